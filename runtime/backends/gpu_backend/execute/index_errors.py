"""Indexes out of range: a kernel records the first one on the device, the next synchronising call raises it.

Each thread has a record of its own, so that an error reaches the thread whose call it was. What a thread that has ended
did not raise is raised by the next synchronising call of any thread.
"""

import itertools
import struct
import threading
from typing import TYPE_CHECKING, Final

import numpy as np

from .....dtype import DType
from .....kernels.constants import ROWS
from ....base.error import InvalidIndex
from ..driver import capture, slow_path

if TYPE_CHECKING:
    from ..driver.gpu_driver import GpuDriver

INDEX_OPS: Final = (
    *("gather", "scatter_set", "scatter_add", "index_add", "index_select"),
    *("rope", "scaled_dot_product_attention", "embedding"),
    *("scaled_dot_product_attention_with_logsumexp", "scaled_dot_product_attention_gradient"),
    *(name for name, facts in ROWS.items() if facts.has_index),
)
_CODES: Final = {name: 2 * number for number, name in enumerate(INDEX_OPS)}

# IndexError of kernels/index.hpp: state, op, index, size, refused. The state is 0 while there is none.
_RECORD: Final = struct.Struct("=IIqqQ")
_STATE_BYTES: Final = 4
# So many records are allocated at once.
_PAGE: Final = 128


def code_of(op: str, indexes: DType) -> int:
    """The number by which a record knows an op, and whether its indexes have no sign."""
    return _CODES[op] + (indexes.kind == "unsigned")


class _Record:
    """Where kernels record an index; `expected` says that one was launched that may, since the host last looked."""

    __slots__ = ("address", "expected")

    def __init__(self, address: int) -> None:
        self.address = address
        self.expected = False


class _Lease:
    """A record for as long as a thread lives."""

    __slots__ = ("_errors", "record")

    def __init__(self, errors: "IndexErrors") -> None:
        self._errors = errors
        self.record = errors.take()

    def __del__(self) -> None:
        self._errors.give_back(self.record)


class _OfThread(threading.local):
    """The record of a thread, created at its first use."""

    def __init__(self, errors: "IndexErrors") -> None:
        self.lease = _Lease(errors)
        self.record = self.lease.record


class IndexErrors:
    """The records of one device, one for each thread."""

    def __init__(self, driver: "GpuDriver") -> None:
        self._driver = driver
        # Records that no thread has, and those among them that are still to be read. There is no lock: taking one
        # from a list is a single step, and garbage collection may run a finaliser here while this thread is here.
        self._free = self._new_page()
        self._left: list[_Record] = []
        self._own = _OfThread(self)
        self._calls = itertools.count(1)

    @property
    def address(self) -> int:
        """The record of this thread, or of its capture, for the arguments of every kernel that reads indexes."""
        if slow_path.required:
            captured = capture.of(self._driver)
            if captured is not None:
                return captured.index_record()
        return self._own.record.address

    @property
    def own_address(self) -> int:
        """The record of this thread, for what a replay finds."""
        return self._own.record.address

    def next_call(self) -> int:
        """A number that no call has had."""
        return next(self._calls)

    def expect(self) -> None:
        """Say that a kernel that may write the record was launched, so that the next `check` looks at it."""
        if slow_path.required and capture.of(self._driver) is not None:
            return
        self._own.record.expected = True

    def check(self) -> None:
        """Wait for the device and raise the first index that this thread's calls have recorded as InvalidIndex.

        Where there is none, one of a thread that has ended, if there is any.
        """
        record = self._own.record
        if record.expected:
            self._look_at(record)
        while self._left:
            try:
                record = self._left.pop()
            except IndexError:  # another thread has taken it
                return
            try:
                self._look_at(record)
            finally:
                self.give_back(record)

    def take(self) -> _Record:
        """A record for a thread."""
        while True:
            try:
                return self._free.pop()
            except IndexError:
                self._free += self._new_page()

    def give_back(self, record: _Record) -> None:
        """Note that no thread has the record any more. Never waits, so that finalisers may call it."""
        (self._left if record.expected else self._free).append(record)

    def _look_at(self, record: _Record) -> None:
        content = np.empty(_RECORD.size, np.uint8)
        try:
            # Before the look, since a finaliser may launch a kernel during it.
            record.expected = False
            self._driver.copy_to_host(content, record.address)
            state, op, index, size, _ = _RECORD.unpack(content.tobytes())
            if state:
                self._driver.zero(record.address, _STATE_BYTES)
        except BaseException:
            record.expected = True
            raise
        if state:
            raise InvalidIndex(INDEX_OPS[op // 2], index % 2**64 if op % 2 else index, size)

    def _new_page(self) -> list[_Record]:
        first = self._driver.allocate(_PAGE * _RECORD.size)
        self._driver.zero(first, _PAGE * _RECORD.size)
        return [_Record(first + index * _RECORD.size) for index in range(_PAGE)]
