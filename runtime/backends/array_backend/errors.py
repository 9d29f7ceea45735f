"""Errors of array libraries as errors of tallow."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...base.error import OutOfMemory, TallowError

if TYPE_CHECKING:
    from ....dtype import DType
    from .library_device import LibraryDevice

# Libraries have no class of their own for a lack of memory.
_NO_MEMORY: Final = re.compile(r"memory|alloc|maximum size|too (big|large)", re.IGNORECASE)

# Nobody need ask whether so many bytes are there.
_LARGE: Final = 1 << 26


def translated(device: type[LibraryDevice], error: Exception) -> Exception:
    """The OutOfMemory or LibraryError for what an array library raises.

    A BufferError stays one: the protocol of DLPack has it.
    """
    if isinstance(error, TallowError | BufferError):
        return error
    text = f"{error}".strip() or type(error).__name__
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return OutOfMemory(device.backend, None, text)
    return device.error_class(device.backend, f"{type(error).__name__}: {text}")


def require_room(device: LibraryDevice, shape: Iterable[int], dtype: DType) -> None:
    """Raise OutOfMemory for more than the process may have, of a library that would end it later."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > _LARGE and device.library.start is not None:
        # Windows has neither this module nor such a library.
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_DATA)
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if nbytes > (whole if most == resource.RLIM_INFINITY else min(whole, most)):
            raise OutOfMemory(device.backend, nbytes)
