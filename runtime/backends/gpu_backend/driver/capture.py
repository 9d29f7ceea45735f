"""Captures of graphs: what a thread gives a device meanwhile is recorded, and not done.

It goes into a stream of the capture's own, so that other threads go on as ever: where the device's stream is requested
its handle, a thread that captures gets that of the capture. `slow_path.required` says that there is a capture at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Protocol

from ....base.error import CaptureError
from ....core.random import RandomState
from ...backend import BackendStorage
from ...plan import Key, Plan
from . import fork, slow_path
from .protocols import CapturingDriver, Region, StreamHandle

if TYPE_CHECKING:
    from ....program.builder import OpCall

# Of GraphState in kernels/graph.hpp.
STATE_BYTES = 64
_INDEX_ERROR_PLACE = 32


class Capture:
    """A recording of one thread on one device: its stream, and what a replay has to provide."""

    def __init__(self, driver: CapturingDriver, stream: StreamHandle, pool: object, state: Region) -> None:
        self.stream = stream
        self.pool = pool
        self.state = state
        """Memory that kernels read and write at each replay. No tensor of the capture has had this memory."""
        self.has_state = False
        """Whether there are such kernels."""
        self.random = RandomState()
        """Counts the blocks that are drawn; which ones these are is for a replay to say."""
        self.has_indexes = False
        self.is_empty = True
        """Whether no stream's handle was requested yet to enqueue work."""
        self.retained: dict[int, object] = {}
        """Memory of before the capture that its work reads or writes, by its id."""
        self._driver = driver
        self._keys = (driver, driver.queue.address)

    def state_address(self) -> int:
        """The address of the state, for a kernel that works with it."""
        self.has_state = True
        return self.state.address

    def hold(self, operands: Iterable[object]) -> None:
        """Retain the memory of operands while the graph may be replayed; the graph's own memory is retained anyway."""
        for operand in operands:
            if isinstance(operand, tuple | list):
                self.hold(operand)
                continue
            # A number has no memory as long as nothing asks for it.
            memory = getattr(operand, "__dict__", {}).get("memory")
            if memory is not None and getattr(memory, "pool", None) is not self.pool:
                self.retained[id(memory)] = memory
                if isinstance(operand, BackendStorage):
                    operand.share()

    def index_record(self) -> int:
        """Where kernels record an index out of range."""
        self.has_indexes = True
        return self.state_address() + _INDEX_ERROR_PLACE

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Let what this thread gives the device go into the capture."""
        thread = get_ident()
        with _changing:
            _under_way.append(self)
            _choose_path()
        for key in self._keys:
            _captures[thread, key] = self
        try:
            yield
        finally:
            for key in self._keys:
                del _captures[thread, key]


class Watcher(Protocol):
    """An observer of what a device does besides programs: replays, copies, kernels of users."""

    def __call__(
        self, work: Callable[[], Any], name: str, kind: str | None, *, nbytes: int = 0, grid: int | None = None
    ) -> Any:
        """Do the work, of a kind as in `LaunchRecord`; None for what gives the device nothing to do."""


class Holder:
    """Has a capture hold the operands of the calls that its thread makes."""

    def __init__(self, captured: Capture) -> None:
        self._captured = captured
        self._thread = get_ident()

    def observed(self, _key: Key, _call: OpCall, plan: Plan, _is_known: bool) -> Plan:
        """See `plan.Observer`."""
        return partial(self._run, plan)

    def _run(self, plan: Plan, *operands: Any) -> Any:
        result = plan(*operands)
        if get_ident() == self._thread:
            self._captured.hold(operands)
        return result


_under_way: list[Capture] = []
# Held while that and `slow_path.required` change together.
_changing = Lock()
# By a thread and a driver, or the address of its stream.
_captures: dict[tuple[int, object], Capture] = {}
_watchers: dict[object, Watcher] = {}
_postponed: list[tuple[Callable[..., None], tuple[Any, ...]]] = []


def of(key: object) -> Capture | None:
    """Return the capture of this thread on a device, by its driver or the address of its stream."""
    return _captures.get((get_ident(), key))


def refuse(driver: CapturingDriver, what: str, advice: str) -> None:
    """Raise CaptureError where this thread captures the work of the device."""
    if of(driver) is not None:
        raise CaptureError(driver.label, what, advice)


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Let what this thread does inside be done at once, as no part of a capture."""
    thread = get_ident()
    own = {key: captured for key, captured in list(_captures.items()) if key[0] == thread}
    for key in own:
        del _captures[key]
    try:
        yield
    finally:
        _captures.update(own)


def enqueue(
    queue: StreamHandle, set_stream: Callable[[Any], None], call: Callable[..., object], *arguments: Any
) -> None:
    """Have a library enqueue where the work of this thread goes: into its capture, where it has one."""
    handle = queue.handle if slow_path.required else None
    if handle is None or handle is queue.own_handle:
        call(*arguments)
        return
    set_stream(handle)
    try:
        call(*arguments)
    finally:
        set_stream(queue.own_handle)


def end(captured: Capture) -> None:
    """Note that the vendor captures no more."""
    with _changing:
        _under_way.remove(captured)
        _choose_path()


def watch(driver: CapturingDriver, watcher: Watcher | None) -> None:
    """Have a watcher run the device's work besides programs; None removes it."""
    with _changing:
        if watcher is None:
            _watchers.pop(driver, None)
        else:
            _watchers[driver] = watcher
        _choose_path()


def tracked(driver: CapturingDriver, work: Callable[[], Any], name: str, kind: str | None, **facts: Any) -> Any:
    """Run some work through the device's watcher, if there is one: see `Watcher`. Return its result."""
    watcher = _watchers.get(driver)
    return work() if watcher is None else watcher(work, name, kind, **facts)


def _choose_path() -> None:
    slow_path.required = fork.lost or len(_under_way) > 0 or len(_watchers) > 0


def postpone(release: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
    """Whether garbage collection must leave a call to the end of the captures: what it waits for may forbid them."""
    if not _under_way:
        return False
    _postponed.append((release, arguments))
    catch_up()
    return True


def catch_up() -> None:
    """Make the calls that were postponed, if no capture is in progress."""
    while _postponed and not _under_way:
        with suppress(Exception):
            release, arguments = _postponed.pop()
            release(*arguments)
