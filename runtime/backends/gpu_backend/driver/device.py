"""Devices of a vendor's driver, and the contexts in which threads work with them.

`calls` is a module that opgen emits from spec/drivers: a function for each operation of the family's `driver`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from ....base.error import BackendUnavailable, InvalidArgument, TallowError
from ....doctor.machine import library_files
from . import fork
from .error import DriverError
from .resource import Resource

Calls: TypeAlias = Any
"""The module of the calls of a driver."""

_UNCHANGED: Final = contextlib.nullcontext()


class Device(Resource):
    """A device by its ordinal, with its context; two of one driver and one ordinal are equal.

    Raises BackendUnavailable where there is no driver or no device, InvalidArgument for an ordinal that no device has.
    """

    __slots__ = (
        "_address", "_context", "_peers", "calls", "copies", "fills", "handle", "label", "ordinal",
    )  # fmt: skip

    def __init__(self, calls: Calls, ordinal: int) -> None:
        start(calls)
        count = calls.device_count() or 0
        if count == 0:
            raise BackendUnavailable(calls.BACKEND, calls.no_device())
        if not 0 <= ordinal < count:
            reason = f"ordinal {ordinal} is out of range; use one from 0 to {count - 1}"
            raise InvalidArgument(f"device of {calls.BACKEND}", reason)
        self.calls = calls
        self.ordinal = ordinal
        self.label = f"{calls.BACKEND}:{ordinal}"
        self.handle = calls.device(ordinal, self.label)
        self._context = calls.context(self.handle, self.label)
        self._address = int(self._context)
        self.copies = calls.copy_to_device, calls.copy_to_host, calls.copy_within
        """The functions that copy, by `Direction`."""
        self.fills = {1: calls.fill_bytes, 2: calls.fill_halves, 4: calls.fill_words}
        """The functions that fill, by the bytes of an element."""
        # Whether it reaches the memory of other devices, by their ordinals.
        self._peers: dict[int, bool] = {}
        if calls.release_context is None:
            self._own(_keep)
        else:
            self._own(calls.release_context, self.handle, self.label)

    @property
    def context(self) -> Any:
        """The binding's context; `Closed` after `close()`."""
        self.require_open()
        return self._context

    def is_current(self) -> bool:
        """Whether this is the current device of the calling thread."""
        return int(self.calls.current_context()) == self._address

    def activated(self) -> contextlib.AbstractContextManager[None]:
        """Make this the current device of the calling thread for the length of a `with` block.

        A thread that had none keeps it.
        """
        if fork.lost:
            fork.require_own()
        previous = self.calls.current_context()
        return _UNCHANGED if int(previous) == self._address else self._switched_from(previous)

    @contextlib.contextmanager
    def _switched_from(self, previous: Any) -> Iterator[None]:
        self.calls.activate(self._context, self.label)
        try:
            yield
        finally:
            if self.calls.is_context(previous):
                self.calls.activate(previous)

    def in_context(self) -> contextlib.AbstractContextManager[None]:
        """`activated`, where the driver wants that for streams, events and graphs."""
        return self.activated() if self.calls.NEEDS_CONTEXT else _UNCHANGED

    def call(self, function: Callable[..., Any], *arguments: Any, about: str = "") -> Any:
        """Call a function of `calls` for this device. The error is about the device, or says more."""
        with self.activated():
            return function(*arguments, about or self.label)

    def call_in_context(self, function: Callable[..., Any], *arguments: Any, about: str = "") -> Any:
        """Call a function of `calls` for this device in its context: see `in_context`."""
        with self.in_context():
            return function(*arguments, about or self.label)

    def fact(self, name: str) -> Any:
        """Return what an operation of `calls` says of the device."""
        return getattr(self.calls, name)(self.handle, self.label)

    def memory(self) -> tuple[int, int]:
        """The device's free and total memory at this moment, in bytes."""
        free, total = self.call(self.calls.memory)
        return int(free), int(total)

    def holds(self, address: int) -> bool:
        """Whether an address is in memory of the device."""
        with self.activated():
            kind = self.calls.pointer_kind(address, self.label)
            if kind is None or not self.calls.is_device_memory(kind):
                return False
            return int(self.calls.pointer_device(address, self.label)) == self.ordinal

    def synchronize(self) -> None:
        """Wait until everything enqueued on the device is done; errors of kernels come up here."""
        self.call(self.calls.synchronize)

    def let_reach(self, peer: Device) -> bool:
        """Whether the device reaches the memory of another directly, which it is allowed from now on."""
        reaches = self._peers.get(peer.ordinal)
        if reaches is None:
            label = f"from {self.label} to {peer.label}"
            reaches = bool(self.calls.can_reach(self.handle, peer.handle, label))
            if reaches:
                with self.activated():
                    reaches = bool(self.calls.reach(peer.context, label))
            self._peers[peer.ordinal] = reaches
        return reaches

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self.ordinal == other.ordinal and self.calls is other.calls

    def __hash__(self) -> int:
        return hash((Device, self.ordinal))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"


def start(calls: Calls) -> None:
    """Start a driver, once in a process; BackendUnavailable where it is missing, lacks a function or does not start.

    Also in a process that was forked from one that uses the driver.
    """
    fork.require_own()
    _start(calls)


@functools.cache
def _start(calls: Calls) -> None:
    missing = [] if calls.has is None else [name for name in calls.FUNCTIONS if not calls.has(name)]
    try:
        if calls.start is not None:
            calls.start()
        elif len(missing) == len(calls.FUNCTIONS):
            calls.device_count()
    except DriverError as error:
        reason = f"{calls.NAME} does not start: {error.name}; {calls.INSTALL}"
        raise BackendUnavailable(calls.BACKEND, reason) from error
    # What bindings raise where the library, or a function of it, is not there.
    except RuntimeError as error:
        reason = f"{calls.NAME} does not load ({error}); {calls.INSTALL}"
        raise BackendUnavailable(calls.BACKEND, reason) from error
    if missing:
        files = library_files(calls.RUNTIME_LIBRARIES[0])
        name = f"{calls.NAME} of {', '.join(files)}" if files else calls.NAME
        raise BackendUnavailable(calls.BACKEND, f"{name} lacks {', '.join(missing)}; {calls.INSTALL}")
    fork.watch(calls.BACKEND)


def count_devices(calls: Calls) -> int:
    """How many devices there are; 0 where the driver or devices are missing."""
    try:
        start(calls)
        return int(calls.device_count() or 0)
    except TallowError:
        return 0


def version_of(calls: Calls) -> str:
    """The driver's version, such as 13.0; BackendUnavailable where there is no driver."""
    start(calls)
    return str(calls.version_text(calls.version()))


def destroy_handle(destroy: Callable[[int], object], device: Device, handle: int) -> None:
    """Destroy a handle that a library created for a device, by the library's function for that."""
    with device.activated():
        destroy(handle)


def unchanged() -> contextlib.AbstractContextManager[None]:
    """Leave the current device of the thread as it is."""
    return _UNCHANGED


def _keep() -> None:
    """A driver without contexts has none to give back."""
