"""How storage methods become launches: which kernel, on how many blocks, with which arguments.

A module is imported when it is first asked for: `import tallow` pays for no GPU that is not used.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import convolution, copy, elementwise, index, matmul, reduce, sums, window

__all__ = ["convolution", "copy", "elementwise", "index", "matmul", "reduce", "sums", "window"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
