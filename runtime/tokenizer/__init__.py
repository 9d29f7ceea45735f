"""Text to tokens and back, as the metadata of a GGUF file say, and messages to text by its chat template."""

from .chat import render_chat
from .tokenizer import TextStream, Tokenizer

__all__ = ["TextStream", "Tokenizer", "render_chat"]
