"""Errors of array libraries as errors of tallow."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from ...base.error import OutOfMemory, TallowError

if TYPE_CHECKING:
    from ....dtype import DType
    from .library_device import LibraryDevice

P = ParamSpec("P")
T = TypeVar("T")

# Libraries have no class of their own for a lack of memory.
_NO_MEMORY: Final = re.compile(r"memory|alloc|maximum size|too (big|large)", re.IGNORECASE)

# Nobody need ask whether so many bytes are there.
_LARGE: Final = 1 << 26


def tells_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise what an array library says as OutOfMemory or LibraryError.

    A BufferError stays one: the protocol of DLPack has it.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except (TallowError, BufferError):
            raise
        except Exception as error:
            device, text = _device(arguments), f"{error}".strip() or type(error).__name__
            backend = device.backend
            if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
                raise OutOfMemory(backend, None, text) from error
            raise device.error_class(backend, f"{type(error).__name__}: {text}") from error

    return call


def _device(arguments: tuple[Any, ...]) -> LibraryDevice | type[LibraryDevice]:
    """The device of the first storage or operand among the arguments of a call, or a device or class of devices."""
    devices = (getattr(argument, "device", argument) for argument in arguments)
    found: LibraryDevice = next(device for device in devices if hasattr(device, "backend"))
    return found


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
