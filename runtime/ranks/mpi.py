"""Calls of a group on arrays of the host: by MPI, through mpi4py."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np

from ...dtype import Array, DType
from ..base.error import InvalidArgument
from ..host import cast

Result = TypeVar("Result")


class Alone:
    """Collectives of a group of one rank, on flat arrays in row-major order.

    No call changes its arguments.
    """

    def __init__(self) -> None:
        self.rank = 0
        # What this rank has sent to itself.
        self._kept: list[Array] = []

    def run_async(self, call: Callable[[], Result]) -> Callable[[], Result]:
        """Make a call, which may go on while other work is done; what is returned waits for it and gives its result."""
        result = call()
        return lambda: result

    def all_reduce(self, source: Array, _reduction: str) -> Array:
        """The sum, mean, minimum or maximum over all ranks."""
        return source.copy()

    reduce_scatter = all_reduce

    def all_gather(self, source: Array) -> Array:
        """The elements of all ranks, concatenated."""
        return source.copy()

    all_to_all = all_gather

    def broadcast(self, source: Array, _root: int) -> Array:
        """The elements of one rank."""
        return source.copy()

    def reduce(self, source: Array, _reduction: str, _root: int) -> Array:
        """The reduction over all ranks on one rank, zeros on the others."""
        return source.copy()

    def send(self, source: Array, _target: int) -> None:
        """Give the elements to a rank."""
        self._kept.append(source.copy())

    def recv(self, like: Array, _source: int) -> Array:
        """The elements that a rank gives, as many as there are in `like`."""
        if not self._kept or self._kept[0].nbytes != like.nbytes:
            raise InvalidArgument("recv", "this rank has sent itself nothing of this size; call send first")
        return self._kept.pop(0).view(like.dtype)


class Mpi(Alone):
    """Collectives by MPI, for ranks that its launcher started."""

    def __init__(self, ranks: Sequence[int]) -> None:
        from mpi4py import MPI

        super().__init__()
        every = MPI.COMM_WORLD
        self._ranks = every.Create_group(every.Get_group().Incl(list(ranks)))
        self.rank = self._ranks.rank
        self._is_threaded = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._helper: _Helper | None = None
        self._ops = {"sum": MPI.SUM, "mean": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}

    def run_async(self, call: Callable[[], Result]) -> Callable[[], Result]:
        """Make a call in a thread of its own, where MPI allows that: MPI goes on with it only while it is called."""
        if not self._is_threaded:
            return super().run_async(call)
        if self._helper is None:
            self._helper = _Helper()
        return self._helper.begin(call)

    def all_reduce(self, source: Array, reduction: str) -> Array:
        """The sum, mean, minimum or maximum over all ranks."""
        operand, finished = _reducible(source, reduction, self._ranks.size)
        reduced = np.empty_like(operand)
        self._ranks.Allreduce(operand, reduced, self._ops[reduction])
        return finished(reduced)

    def reduce_scatter(self, source: Array, reduction: str) -> Array:
        """This rank's part of the reduction over all ranks."""
        operand, finished = _reducible(source, reduction, self._ranks.size)
        reduced = np.empty(operand.size // self._ranks.size, operand.dtype)
        self._ranks.Reduce_scatter_block(operand, reduced, self._ops[reduction])
        return finished(reduced)

    def reduce(self, source: Array, reduction: str, root: int) -> Array:
        """The reduction over all ranks on one rank, zeros on the others."""
        operand, finished = _reducible(source, reduction, self._ranks.size)
        reduced = np.empty_like(operand)
        self._ranks.Reduce(operand, reduced, self._ops[reduction], root)
        return finished(reduced) if self._ranks.rank == root else np.zeros_like(source)

    def all_gather(self, source: Array) -> Array:
        """The elements of all ranks, concatenated."""
        gathered = np.empty(source.size * self._ranks.size, source.dtype)
        self._ranks.Allgather(_bytes(source), _bytes(gathered))
        return gathered

    def broadcast(self, source: Array, root: int) -> Array:
        """The elements of one rank."""
        shared = source.copy()
        self._ranks.Bcast(_bytes(shared), root)
        return shared

    def all_to_all(self, source: Array) -> Array:
        """The part for this rank of each rank."""
        received = np.empty_like(source)
        self._ranks.Alltoall(_bytes(source), _bytes(received))
        return received

    def send(self, source: Array, target: int) -> None:
        """Give the elements to a rank."""
        if target == self.rank:
            super().send(source, target)
        else:
            self._ranks.Send(_bytes(source), target)

    def recv(self, like: Array, source: int) -> Array:
        """The elements that a rank gives, as many as there are in `like`."""
        if source == self.rank:
            return super().recv(like, source)
        received = np.empty_like(like)
        self._ranks.Recv(_bytes(received), source)
        return received


class _Helper(threading.Thread):
    """Makes one call after the other.

    The process does not wait for it at its end: a call that waits for a rank which is lost has none.
    """

    def __init__(self) -> None:
        super().__init__(name="tallow-ranks-async", daemon=True)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.start()

    def begin(self, call: Callable[[], Result]) -> Callable[[], Result]:
        """Queue a call; the returned function waits for it and returns its result, or raises its error."""
        future: Future[Result] = Future()

        def make() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(make)
        return future.result

    def run(self) -> None:
        """Make the calls."""
        while True:
            self._calls.get()()


def _bytes(array: Array) -> Array:
    return array.view(np.uint8)


def _reducible(source: Array, reduction: str, ranks: int) -> tuple[Array, Callable[[Array], Array]]:
    """Return an array that MPI can reduce instead of `source`, and a function that converts the result back.

    Short floats are added up in f32. In whatever order MPI reduces numbers, the least and the largest are the same
    bits: the smaller of two zeros is -0.0, and there is one NaN, which wins.
    """
    dtype = DType.from_numpy(source.dtype)
    if dtype.joined_as.kind != dtype.kind:
        operand, finished_parts = _reducible(source.view(dtype.joined_as.numpy), reduction, ranks)
        return operand, lambda reduced: finished_parts(reduced).view(dtype.numpy)
    if not dtype.is_float:
        return source, lambda reduced: reduced
    if reduction in ("min", "max"):
        integers = np.dtype(f"i{source.itemsize}")
        limits = np.iinfo(integers)
        winner = limits.max if reduction == "max" else limits.min
        keys = np.where(np.isnan(source), np.array(winner, integers), _ordered(source.view(integers)))
        nan = np.array(np.nan, source.dtype)
        return keys, lambda reduced: np.where(reduced == winner, nan, _ordered(reduced).view(source.dtype))
    wide = cast.widen(source, dtype)

    def finished(reduced: Array) -> Array:
        result = reduced / reduced.dtype.type(ranks) if reduction == "mean" else reduced
        return cast.narrow(np.where(np.isnan(result), result.dtype.type(np.nan), result), dtype)

    return wide, finished


def _ordered(bits: Array) -> Array:
    """Map the bits of floats to integers in the same order, and back."""
    limits = np.iinfo(bits.dtype)
    turned: Array = bits ^ ((bits >> (8 * bits.itemsize - 1)) & limits.max)
    return turned


def start() -> Callable[[], object]:
    """Start MPI. Returns what ends it, which waits for all ranks: nothing if the program has started MPI before.

    mpi4py would end it when Python ends, where a rank that the others gave up would wait for them, and end with their
    exit code instead of its own.
    """
    if "mpi4py.MPI" in sys.modules:
        return lambda: None
    import mpi4py

    mpi4py.rc.finalize = False
    from mpi4py import MPI

    return MPI.Finalize


def shared(value: Any) -> Any:
    """Return the value of rank 0, on all ranks."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.bcast(value, 0)


def host_name() -> str:
    """The name by which other hosts may know this one."""
    return socket.gethostname()
