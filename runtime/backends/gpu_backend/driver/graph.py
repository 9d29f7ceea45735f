"""Graphs: work that a stream captured, enqueued again by one call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ....base.error import DeviceMismatch
from .device import Device
from .error import DriverError
from .module import waiting_kernels
from .protocols import StreamHandle
from .resource import Resource


class Graph(Resource):
    """Work that a stream captured, to be enqueued as one: see `Stream.end_capture`.

    Memory and modules that it works with must live as long as it does; closing it waits for nothing.
    """

    __slots__ = ("_handle", "device")

    def __init__(self, device: Device, graph: Any) -> None:
        """Instantiate what the driver captured; the handle `graph` is released."""
        self.device = device
        calls = device.calls
        try:
            with device.activated():
                if calls.prepare is not None:
                    calls.prepare(graph, waiting_kernels, device.handle, device.label)
                self._handle = calls.instantiate(graph, device.label)
                self._own(device.call_in_context, calls.destroy_executable, self._handle)
        finally:
            # Where the driver refuses, it is not needed any more.
            with suppress(DriverError):
                device.call_in_context(calls.destroy_graph, graph)

    def launch(self, stream: StreamHandle) -> None:
        """Enqueue all of it, in a stream of the device that it was captured on (`DeviceMismatch`)."""
        if not self._handles:
            self.require_open()
        device = self.device
        try:
            device.calls.launch_graph(self._handle, stream.handle, device.label)
        except DriverError:
            if stream.device != device:
                labels = device.label, stream.device.label
                raise DeviceMismatch(f"{type(self).__name__}.launch", labels) from None
            # Trying first costs nothing where the device is current.
            if device.is_current():
                raise
            device.call(device.calls.launch_graph, self._handle, stream.handle)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device.label}>"
