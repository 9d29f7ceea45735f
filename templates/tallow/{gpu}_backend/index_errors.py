"""Indexes out of range: a kernel records the first one on the device, the next synchronising call raises it."""

import struct
import threading
from typing import TYPE_CHECKING, Final

import numpy as np

from ..error import InvalidIndex

if TYPE_CHECKING:
    from .driver import Driver

INDEX_OPS: Final = {
    name: number for number, name in enumerate(("gather", "scatter_set", "scatter_add", "index_add", "index_select"))
}
"""The number by which kernels know an op."""

# IndexError of kernels/index.hpp: state, op, index, size. The state is 0 while there is none.
_RECORD: Final = struct.Struct("=IIqq")
_NAMES: Final = tuple(INDEX_OPS)


class IndexErrors:
    """The record of one device. Its address goes into the arguments of every kernel that reads indexes."""

    def __init__(self, driver: "Driver") -> None:
        self._driver = driver
        # Held where a kernel that may write the record is launched, and from reading the record until it is empty: what
        # the kernel of another thread writes in between would be lost. A finaliser that garbage collection calls
        # meanwhile may use indexes too, and must not wait for its own thread.
        self.lock = threading.RLock()
        self.address = driver.allocate(_RECORD.size)
        driver.zero(self.address, _RECORD.size)
        self._expected = False

    def expect(self) -> None:
        """Say that a kernel that may write the record was launched, so that the next `check` looks at it."""
        self._expected = True

    def check(self) -> None:
        """Wait for the device and raise the index recorded since the last check as InvalidIndex, if there is one."""
        if not self._expected:
            return
        record = np.empty(_RECORD.size, np.uint8)
        with self.lock:
            self._expected = False
            self._driver.copy_to_host(record, self.address)
            state, op, index, size = _RECORD.unpack(record.tobytes())
            if state:
                self._driver.zero(self.address, _RECORD.size)
                raise InvalidIndex(_NAMES[op], index, size)
