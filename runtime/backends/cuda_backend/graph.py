"""Graphs: work that a stream was given while it was captured, enqueued again by one call."""

from __future__ import annotations

from typing import Any, Final

from ..gpu_backend.driver.protocols import StreamHandle
from ..gpu_backend.driver.stream import Recorded
from .context import Context
from .module import waiting_kernels
from .result import check, cuda

# Of the compute capabilities, the first major number of those where kernels can begin before others end.
_CAN_BEGIN_EARLY: Final = 9


def _newest(name: str) -> Any:
    """The function that knows data of edges: cuda-python 12 has it beside an older one, 13 in its place."""
    return getattr(cuda, f"{name}_v2", None) or getattr(cuda, name)


_get_edges, _remove_edges, _add_edges = map(
    _newest, ("cuGraphGetEdges", "cuGraphRemoveDependencies", "cuGraphAddDependencies")
)


class CudaGraph(Recorded):
    """Work that a stream was given while it was captured: see `CudaStream.end_capture`."""

    __slots__ = ()

    device: Context

    def __init__(self, device: Context, graph: Any) -> None:
        """Make what CUDA captured ready; the handle `graph` is given back."""
        self.device = device
        with device.activated():
            try:
                if device.attribute("COMPUTE_CAPABILITY_MAJOR") >= _CAN_BEGIN_EARLY:
                    _set_dependencies(graph, device.label)
                self._handle = check("cuGraphInstantiate", cuda.cuGraphInstantiate(graph, 0), device.label)
                self._own(device.call, "cuGraphExecDestroy", self._handle)
            finally:
                cuda.cuGraphDestroy(graph)

    def launch(self, stream: StreamHandle) -> None:
        if not self._held:
            self.require_open()
        (status,) = cuda.cuGraphLaunch(self._handle, stream.handle)
        if status:
            # Trying first costs nothing where the context is current.
            if not self.device.is_current():
                with self.device.activated():
                    (status,) = cuda.cuGraphLaunch(self._handle, stream.handle)
            check("cuGraphLaunch", (status,), self.device.label)


def _set_dependencies(graph: Any, label: str) -> None:
    """Let each kernel that waits itself for the one in front of it begin while that ends, which hides its launch.

    Libraries launch kernels that may begin early too, and read before they wait: fused convolutions of cuDNN do. They
    depend on the end of a kernel of this package, which lets the next one begin before it has waited itself.
    """
    try:
        counted = _get_edges(graph)
    # What cuda-python raises where a driver is too old to have the function.
    except RuntimeError:
        return
    count = check("cuGraphGetEdges", counted, label)[-1]
    origins, targets, data, count = check("cuGraphGetEdges", _get_edges(graph, count), label)
    nodes = {int(node): node for node in (*origins, *targets)}
    waiting = {address: _waits(node, label) for address, node in nodes.items()}
    early = cuda.CUgraphEdgeData()
    early.from_port = cuda.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    early.type = cuda.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    for origin, target, edge in zip(origins, targets, data, strict=True):
        is_early = waiting[int(target)]
        if waiting[int(origin)] and (is_early or edge.type == early.type):
            ends = [origin], [target]
            wanted = early if is_early else cuda.CUgraphEdgeData()
            check("cuGraphRemoveDependencies", _remove_edges(graph, *ends, [edge], 1), label)
            check("cuGraphAddDependencies", _add_edges(graph, *ends, [wanted], 1), label)


def _waits(node: Any, label: str) -> bool:
    """Whether a node is a kernel that waits for the one in front of it."""
    kind = check("cuGraphNodeGetType", cuda.cuGraphNodeGetType(node), label)
    if kind != cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
        return False
    parameters = check("cuGraphKernelNodeGetParams", cuda.cuGraphKernelNodeGetParams(node), label)
    return int(parameters.func) in waiting_kernels
