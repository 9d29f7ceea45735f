"""Calls of all ranks of a group by NCCL, or by RCCL, which has the same functions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from .....dtype import DType
from ....ranks.group import Group
from ..driver import capture, slow_path
from ..driver.gpu_driver import GpuDriver
from ..driver.stream import Stream
from ..memory.peers import Peers
from .library import Library

Result = TypeVar("Result")

# The libraries' own numbers.
_DTYPES: Final = DType.known(
    {"i8": 0, "u8": 1, "i32": 2, "u32": 3, "i64": 4, "u64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
)
_BYTE: Final = 1
_REDUCTIONS: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3, "mean": 4}


class Functions(NamedTuple):
    """The functions of a library, which raise LibraryError."""

    all_reduce: Callable[..., object]
    all_gather: Callable[..., object]
    reduce_scatter: Callable[..., object]
    broadcast: Callable[..., object]
    reduce: Callable[..., object]
    send: Callable[..., object]
    recv: Callable[..., object]
    group_start: Callable[[], object]
    group_end: Callable[[], object]
    comm_abort: Callable[[Any], object]
    comm_destroy: Callable[[Any], object]


class Collectives(Library):
    """The communicators of a device, whose calls are enqueued in its stream.

    Runs of programs call its methods, with addresses of device memory.
    """

    without = "MPI moves elements of several processes through the host"

    def __init__(
        self, driver: GpuDriver, functions: Functions, dtype: Callable[[int], Any], reduction: Callable[[int], Any]
    ) -> None:
        self._driver = driver
        self._functions = functions
        self._dtypes = {known: dtype(number) for known, number in _DTYPES.items()}
        self._byte = dtype(_BYTE)
        self._reductions = {known: reduction(number) for known, number in _REDUCTIONS.items()}
        self._communicators: dict[str, Any] = {}
        self.peers = Peers(driver, self._of)
        # The stream of asynchronous calls, which the device's stream has yet to wait for, and their operands.
        self._side: Stream | None = None
        self._under_way: list[object] = []

    def all_reduce(self, group: Group, dtype: DType, reduction: str, source: int, result: int, count: int) -> None:
        """Join `count` elements of every rank."""
        operation = self._joined(dtype, reduction, count)
        self._functions.all_reduce(source, result, *operation, self._of(group), self._stream(group))

    def all_gather(self, group: Group, source: int, result: int, nbytes: int) -> None:
        """Concatenate the bytes of all ranks, `nbytes` of each."""
        self._functions.all_gather(source, result, nbytes, self._byte, self._of(group), self._stream(group))

    def reduce_scatter(self, group: Group, dtype: DType, reduction: str, source: int, result: int, count: int) -> None:
        """Join the elements of every rank, of which each has `count` in the end."""
        operation = self._joined(dtype, reduction, count)
        self._functions.reduce_scatter(source, result, *operation, self._of(group), self._stream(group))

    def broadcast(self, group: Group, root: int, source: int, result: int, nbytes: int) -> None:
        """Copy the bytes of a rank to all."""
        self._functions.broadcast(source, result, nbytes, self._byte, root, self._of(group), self._stream(group))

    def reduce(
        self, group: Group, dtype: DType, reduction: str, root: int, source: int, result: int, count: int
    ) -> None:
        """Join `count` elements of every rank on one of them."""
        operation = self._joined(dtype, reduction, count)
        self._functions.reduce(source, result, *operation, root, self._of(group), self._stream(group))

    def all_to_all(self, group: Group, source: int, result: int, nbytes: int) -> None:
        """Give each rank its part of the bytes, `nbytes` to each."""
        communicator, stream, functions = self._of(group), self._stream(group), self._functions
        functions.group_start()
        for rank in range(group.size):
            functions.send(source + rank * nbytes, nbytes, self._byte, rank, communicator, stream)
            functions.recv(result + rank * nbytes, nbytes, self._byte, rank, communicator, stream)
        functions.group_end()

    def send(self, group: Group, target: int, source: int, nbytes: int) -> None:
        """Give bytes to a rank."""
        self._functions.send(source, nbytes, self._byte, target, self._of(group), self._stream(group))

    def recv(self, group: Group, source: int, result: int, nbytes: int) -> None:
        """Take bytes from a rank."""
        self._functions.recv(result, nbytes, self._byte, source, self._of(group), self._stream(group))

    def run_async(self, call: Callable[[], Result]) -> Callable[[], Result]:
        """Run a call of an asynchronous group: see `BackendDevice.run_async`."""
        result = call()
        self._under_way.append((call, result))

        def finished() -> Result:
            if self._under_way and self._side is not None:
                self._driver.order(self._side, self._driver.queue)
            self._under_way.clear()
            return result

        return finished

    def _joined(self, dtype: DType, reduction: str, count: int) -> tuple[int, Any, Any]:
        """How many elements the library joins, of which dtype, and how; a complex number is two."""
        own = dtype.joined_as
        return count * dtype.itemsize // own.itemsize, self._dtypes[own], self._reductions[reduction]

    def _stream(self, group: Group) -> int:
        """The stream of a group's calls: the device's, or a side stream that waits for what is enqueued there."""
        if not group.is_async:
            return self._driver.stream
        if self._side is None:
            self._side = self._driver.new_stream()
        self._driver.order(self._driver.queue, self._side)
        return self._side.address

    def _of(self, group: Group) -> Any:
        """The communicator of a group, which its ranks join at their first call."""
        known = self._communicators.get(group.name)
        if known is None:
            if slow_path.required:
                advice = "make a call of the group before the capture"
                capture.refuse(self._driver, "how ranks join", advice)
            shared = group.exchange("join", self._new_id().hex() if group.rank == 0 else None)[0]
            if not self._communicators:
                group.release_at_loss(self._abort, self._finish)
            with self._driver.device.activated():
                known = self._communicators[group.name] = self._join(group.size, bytes.fromhex(shared), group.rank)
            self.peers.join(group)
        return known

    @abstractmethod
    def _new_id(self) -> bytes:
        """Return the id that all ranks need to join."""

    @abstractmethod
    def _join(self, size: int, shared: bytes, rank: int) -> Any:
        """A communicator, once all ranks are here."""

    def _abort(self) -> None:
        """End the calls that wait for ranks."""
        self.peers.release()
        for communicator in self._communicators.values():
            self._functions.comm_abort(communicator)

    def _finish(self) -> None:
        """Wait for what was enqueued, since a rank that ends takes its memory along, and end the communicators.

        Their threads crash a process that ends before they do. To destroy a communicator waits for the graphs that have
        captured its calls, and finalisers may no longer run: so each recording is closed.
        """
        for stream in (self._driver.queue, self._side):
            if stream is not None:
                stream.synchronize()
        for recorded in list(self._driver.recorded):
            recorded.close()
        self.peers.leave()
        while self._communicators:
            self._functions.comm_destroy(self._communicators.popitem()[1])
