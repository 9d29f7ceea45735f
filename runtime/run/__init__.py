"""Text from a GGUF file: `python -m tallow.run model.gguf --prompt "Once upon a time"`."""

from .program import main

__all__ = ["main"]
