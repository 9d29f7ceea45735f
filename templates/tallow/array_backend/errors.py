"""Errors of array libraries as errors of tallow."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from ..error import LibraryError, OutOfMemory, TallowError

if TYPE_CHECKING:
    from ..dtype import DType
    from ..shape import Shape
    from .device import ArrayDevice

P = ParamSpec("P")
T = TypeVar("T")

# Libraries have no class of their own for a lack of memory.
_NO_MEMORY: Final = re.compile(r"memory|alloc|maximum size|too (big|large)", re.IGNORECASE)


def tells_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise what an array library says as OutOfMemory or LibraryError."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except TallowError:
            raise
        except Exception as error:
            library, text = type(error).__module__.partition(".")[0], f"{error}".strip() or type(error).__name__
            if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
                raise OutOfMemory(library, None, text) from error
            raise LibraryError(library, f"{type(error).__name__}: {text}") from error

    return call


def require_room(device: ArrayDevice, shape: Shape, dtype: DType) -> None:
    """Raise OutOfMemory for more than the host has, of a library that would find out later."""
    nbytes = shape.elem_count * dtype.itemsize
    if device.library.start is not None and nbytes > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise OutOfMemory(device.backend, nbytes)
