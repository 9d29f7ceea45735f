"""Graphs: work that a stream was given while it was captured, enqueued again by one call."""

from __future__ import annotations

from typing import Any

from ....base.error import DeviceMismatch
from ...gpu_backend.driver.protocols import StreamHandle
from ...gpu_backend.driver.stream import Recorded
from .device import HipDevice
from .error import check, failure, hip
from .resource import HipResource


class HipGraph(HipResource, Recorded):
    """Work that a stream was given while it was captured: see `HipStream.end_capture`.

    Memory and modules that it works with must live as long as it does; closing it waits for nothing.
    """

    __slots__ = ()

    device: HipDevice

    def __init__(self, device: HipDevice, graph: Any) -> None:
        """Make what HIP captured ready; the handle `graph` is given back."""
        self.device = device
        try:
            with device.activated():
                made = hip.hipGraphInstantiateWithFlags(graph, 0)
            self._handle = check("hipGraphInstantiateWithFlags", made, device.label)
            self._own(_destroy, self._handle)
        finally:
            forget(graph)

    def launch(self, stream: StreamHandle) -> None:
        """Enqueue all of it, in a stream of the device that it was captured on (`DeviceMismatch`)."""
        if not self._held:
            self.require_open()
        (status,) = hip.hipGraphLaunch(self._handle, stream.handle)
        if status:
            self._launch_again(stream, status)

    def _launch_again(self, stream: StreamHandle, status: Any) -> None:
        """Launch once more after `status`, where another device was current; else raise it."""
        if stream.device != self.device:
            hip.hipGetLastError()
            raise DeviceMismatch("HipGraph.launch", (self.device.label, stream.device.label))
        if check("hipGetDevice", hip.hipGetDevice()) != self.device.ordinal:
            hip.hipGetLastError()
            with self.device.activated():
                (status,) = hip.hipGraphLaunch(self._handle, stream.handle)
        if status:
            raise failure("hipGraphLaunch", status, self.device.label)


def forget(graph: Any) -> None:
    """Give a graph back that HIP captured; where it refuses, nobody needs it any more."""
    (status,) = hip.hipGraphDestroy(graph)
    if status:
        hip.hipGetLastError()


def _destroy(handle: Any) -> None:
    check("hipGraphExecDestroy", hip.hipGraphExecDestroy(handle))
