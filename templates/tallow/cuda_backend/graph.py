"""Graphs: work that a stream was given while it was captured, enqueued again by one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_backend.stream import Recorded
from .context import Context
from .result import check, cuda

if TYPE_CHECKING:
    from .stream import CudaStream


class CudaGraph(Recorded):
    """Work that a stream was given while it was captured: see `CudaStream.end_capture`."""

    __slots__ = ()

    device: Context

    def __init__(self, device: Context, graph: Any) -> None:
        """Make what CUDA captured ready; the handle `graph` is given back."""
        self.device = device
        with device.activated():
            try:
                self._handle = check("cuGraphInstantiate", cuda.cuGraphInstantiate(graph, 0), device.label)
                self._own(_destroy, device, self._handle)
            finally:
                cuda.cuGraphDestroy(graph)

    def launch(self, stream: CudaStream) -> None:
        if not self._held:
            self.require_open()
        (status,) = cuda.cuGraphLaunch(self._handle, stream.handle)
        if status:
            # Trying first costs nothing where the context is current.
            if not self.device.is_current():
                with self.device.activated():
                    (status,) = cuda.cuGraphLaunch(self._handle, stream.handle)
            check("cuGraphLaunch", (status,), self.device.label)


def _destroy(device: Context, handle: Any) -> None:
    with device.activated():
        check("cuGraphExecDestroy", cuda.cuGraphExecDestroy(handle), device.label)
