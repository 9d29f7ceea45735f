"""Edges of CUDA's graphs: which kernels begin before the ones in front of them have ended."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any


def let_kernels_begin_early(
    binding: Any, checked: Callable[[str, Any, str], Any], graph: Any, kernels: Container[int]
) -> None:
    """Let each kernel that waits itself for the one in front of it begin while that ends, which hides its launch.

    `kernels` has their functions. Libraries launch kernels that may begin early too, and read before they wait: fused
    convolutions of cuDNN do. They depend on the end of a kernel of this package, which lets the next one begin before
    it has waited itself.
    """
    try:
        counted = _newest(binding, "cuGraphGetEdges")(graph)
    # What cuda-python raises where a driver is too old to have the function.
    except RuntimeError:
        return
    count = checked("cuGraphGetEdges", counted, "")[-1]
    origins, targets, data, count = checked("cuGraphGetEdges", _newest(binding, "cuGraphGetEdges")(graph, count), "")
    nodes = {int(node): node for node in (*origins, *targets)}
    waiting = {address: _waits(binding, checked, node, kernels) for address, node in nodes.items()}
    early = binding.CUgraphEdgeData()
    early.from_port = binding.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    early.type = binding.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    for origin, target, edge in zip(origins, targets, data, strict=True):
        is_early = waiting[int(target)]
        if waiting[int(origin)] and (is_early or edge.type == early.type):
            ends = [origin], [target]
            wanted = early if is_early else binding.CUgraphEdgeData()
            for name, one in (("cuGraphRemoveDependencies", edge), ("cuGraphAddDependencies", wanted)):
                checked(name, _newest(binding, name)(graph, *ends, [one], 1), "")


def _newest(binding: Any, name: str) -> Any:
    """The function that knows data of edges: cuda-python 12 has it next to an older one, 13 instead of that."""
    return getattr(binding, f"{name}_v2", None) or getattr(binding, name)


def _waits(binding: Any, checked: Callable[[str, Any, str], Any], node: Any, kernels: Container[int]) -> bool:
    """Whether a node is a kernel that waits for the one in front of it."""
    kind = checked("cuGraphNodeGetType", binding.cuGraphNodeGetType(node), "")
    if kind != binding.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
        return False
    parameters = checked("cuGraphKernelNodeGetParams", binding.cuGraphKernelNodeGetParams(node), "")
    return int(parameters.func) in kernels
