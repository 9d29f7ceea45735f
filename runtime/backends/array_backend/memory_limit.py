"""The limit of memory that array libraries may allocate."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...base.error import OutOfMemory

if TYPE_CHECKING:
    from ....dtype import DType
    from .library_device import LibraryDevice

# Smaller requests are not checked.
_LARGE: Final = 1 << 26


def require_memory(device: LibraryDevice, shape: Iterable[int], dtype: DType) -> None:
    """Raise OutOfMemory for more than the process may have, of a library that would end it later."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > _LARGE and device.library.start is not None:
        # Windows has neither this module nor such a library.
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if nbytes > (available if limit == resource.RLIM_INFINITY else min(available, limit)):
            raise OutOfMemory(device.backend, nbytes)
