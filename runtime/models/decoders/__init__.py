"""The architectures that the runtime knows: the module of each, by the names that files have for it."""

from typing import Final

MODULES: Final = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
