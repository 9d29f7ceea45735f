"""The backend object: a device with its stream and the modules that are loaded on it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from .device import HipDevice
from .error import HipClosed
from .event import HipEvent
from .memory import HipBuffer
from .module import HipModule
from .stream import HipStream


class HipBackend:
    """What work on one device needs: the device, a stream of its own, and a cache of loaded modules.

    Closing it waits for the stream, then unloads the modules and destroys the stream. Buffers and events belong to
    whoever asked for them. Raises what `HipDevice` and `HipStream` raise.
    """

    __slots__ = ("__weakref__", "_lock", "_modules", "closed", "device", "stream")

    def __init__(self, ordinal: int = 0) -> None:
        self.device = HipDevice(ordinal)
        self.stream = HipStream(self.device)
        self.closed = False
        self._modules: dict[str, HipModule] = {}
        self._lock = threading.Lock()

    def module(self, name: str, load: Callable[[], bytes]) -> HipModule:
        """The module of this name; `load` gives its code object, and is called at the first use only."""
        with self._lock:
            if self.closed:
                raise HipClosed(repr(self))
            module = self._modules.get(name)
            if module is None:
                module = self._modules[name] = HipModule(self.device, load(), name)
            return module

    def buffer(self, nbytes: int) -> HipBuffer:
        """A new allocation of uninitialised bytes."""
        return HipBuffer(self.device, nbytes)

    def event(self, *, timing: bool = True) -> HipEvent:
        """A new event; it marks nothing until it is recorded."""
        return HipEvent(self.device, timing=timing)

    def synchronize(self) -> None:
        """Wait until everything enqueued in the backend's stream is done; errors of kernels come up here."""
        self.stream.synchronize()

    def close(self) -> None:
        """Wait for the stream, unload the modules and destroy the stream; nothing happens to what is closed already.

        Raises `HipError` when the runtime does; the next call tries what is left.
        """
        with self._lock, contextlib.ExitStack() as cleanup:
            self.closed = True
            cleanup.callback(self.stream.close)
            for module in self._modules.values():
                cleanup.callback(module.close)
            if not self.stream.closed:
                self.stream.synchronize()

    def __enter__(self) -> Self:
        if self.closed:
            raise HipClosed(repr(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HipBackend on {self.device.label}>"


def synchronize_device(device: HipDevice | int = 0) -> None:
    """Wait until everything enqueued on a device, in any stream and by any library, is done."""
    (device if isinstance(device, HipDevice) else HipDevice(device)).synchronize()
