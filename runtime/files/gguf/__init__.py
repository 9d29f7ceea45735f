"""GGUF files: the metadata of a model, and its tensors, read one by one or written."""

from .file import GgufFile, GgufTensor, open_gguf
from .metadata import Value
from .writer import save_gguf

__all__ = ["GgufFile", "GgufTensor", "Value", "open_gguf", "save_gguf"]
