"""Graphs on GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from .....kernels.arguments import graph_begin, graph_finish
from ....base.error import InvalidArgument, TallowError
from ....program.values import NULL
from ...backend import BackendGraph
from ..driver import capture, slow_path
from ..driver.graph import Graph
from ..driver.resource import Resource
from ..driver.stream import keep_until_done, release_finished
from ..memory.allocator import PrivatePool, Slice

if TYPE_CHECKING:
    from ..gpu_base import GpuBase


class _Captured(NamedTuple):
    """The result of a capture."""

    recorded: Graph | None
    """None where nothing was enqueued: not every driver takes a graph without a node."""
    blocks: int
    """How many blocks of random numbers a replay draws."""
    has_indexes: bool
    state: Slice | None
    """The state that kernels read and write at each replay: GraphState of kernels/graph.hpp."""
    retained: tuple[object, ...]
    """Memory of before the capture that a replay reads or writes."""


@final
class GpuGraph(Resource, BackendGraph):
    """A graph on a GPU: see `tallow.Graph`."""

    def __init__(self, device: GpuBase) -> None:
        self._device = device
        self._captured: _Captured | None = None
        self._pool = PrivatePool(device.allocator)
        # Replays take the lock, so that they are enqueued in the order in which they reserve random numbers, and before
        # the memory is released.
        self._lock = threading.Lock()
        # What the state on the device is for: a seed, a block of random numbers and a record of indexes.
        self._ready: tuple[int, int, int] | None = None
        self._is_capturing = False
        # What gives back all that the graph has, in order.
        self._steps: list[Callable[[], None]] = [self._pool.close]
        self._own(_release, self._steps)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """See `tallow.Graph.capture`."""
        device = self._device
        capture.refuse(device.driver, "another capture", "leave the with block of the first one before")
        self._begin_capture()
        try:
            captured = yield from self._record()
            with self._lock:
                # Whoever closed it meanwhile has seen to it that nothing is replayed.
                self.require_open()
                self._captured = captured
                if captured.recorded is not None:
                    # Replays may be in progress when it is released.
                    self._steps.append(partial(keep_until_done, device.driver.queue, captured.recorded))
        finally:
            self._end_capture()

    def _begin_capture(self) -> None:
        with self._lock:
            self.require_open()
            if self._captured is not None:
                raise InvalidArgument("Graph.capture", "the graph has captured something already; make another one")
            if self._is_capturing:
                raise InvalidArgument("Graph.capture", "another thread captures the graph now; make another one")
            self._is_capturing = True
            # The capture takes memory until it ends, also where the graph is closed before.
            self._steps.clear()

    def _end_capture(self) -> None:
        with self._lock:
            self._is_capturing = False
            if self.closed:
                self._pool.close()
            else:
                self._steps.append(self._pool.close)

    def _record(self) -> Generator[None, None, _Captured]:
        device = self._device
        release_finished()
        if not device.driver.opens_in_captures:
            for open_library in device.libraries:
                # Whoever needs one that does not open hears of it.
                with suppress(TallowError):
                    device.library(open_library)
        # Before anything else has memory of the pool: a tensor that had the same before would write to it in replays.
        state = Slice(self._pool, capture.STATE_BYTES)
        with device.driver.captured(self._pool, state) as (recording, finish):
            with device.plans.observed_by(capture.Holder(recording)):
                yield
            if recording.has_state:
                fields = graph_finish(state=state.address, blocks=recording.random.next_block)
                device.kernels.launch("graph", "graph_finish", 1, fields.packed())
            recorded = None if recording.is_empty else finish()
        replay_state = state if recording.has_state else None
        retained = tuple(recording.retained.values())
        return _Captured(recorded, recording.random.next_block, recording.has_indexes, replay_state, retained)

    def replay(self) -> None:
        """See `tallow.Graph.replay`."""
        with self._lock:
            captured = self._captured
            if captured is None or slow_path.required:
                captured = self._require_captured()
                capture.tracked(self._device.driver, partial(self._enqueue, captured), "Graph.replay", "graph")
            else:
                self._enqueue(captured)

    def _enqueue(self, captured: _Captured) -> None:
        recorded = captured.recorded
        if recorded is None:
            return
        if captured.state is None:
            recorded.launch(self._device.driver.queue)
        else:
            self._replay_with_state(recorded, captured, captured.state.address)

    def _replay_with_state(self, recorded: Graph, captured: _Captured, state: int) -> None:
        device, blocks = self._device, captured.blocks
        record = device.index_errors.own_address if captured.has_indexes else NULL
        reserved = seed, first = device.random.reserve(blocks) if blocks else (0, 0)
        try:
            if self._ready != (seed, first, record):
                fields = graph_begin(state=state, seed=seed, block=first, record=record)
                device.kernels.launch("graph", "graph_begin", 1, fields.packed())
            self._ready = None
            recorded.launch(device.driver.queue)
        except BaseException:
            device.random.cancel(reserved, blocks)
            raise
        # The graph itself counts the blocks on.
        self._ready = seed, (first + blocks) % (1 << 64), record
        if captured.has_indexes:
            device.index_errors.expect()

    def close(self) -> None:
        """See `tallow.Graph.close`."""
        with self._lock, capture.suspended():
            super().close()
            self._captured = None

    def _require_captured(self) -> _Captured:
        self.require_open()
        capture.refuse(self._device.driver, "the replay of a graph", "replay it outside of the with block")
        if self._captured is None:
            raise InvalidArgument("Graph.replay", "nothing was captured; call it after `with graph.capture():`")
        return self._captured

    def __repr__(self) -> str:
        return f"<Graph on {self._device.driver.label}{'' if self._captured else ', nothing captured'}>"


def _release(steps: list[Callable[[], None]]) -> None:
    while steps:
        steps[0]()
        steps.pop(0)
