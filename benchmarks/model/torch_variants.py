"""PyTorch's variants, on tallow's memory; and what PyTorch's profiler says of any variant. Imports torch."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tallow as tl
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.dlpack import from_dlpack

from . import variants
from .results import COMPILED, FUSED, FUSED_GRAPH, SAME_OPS
from .torch_decoder import Fused, SameOps, TorchDecoder
from .variants import Call, Calls, Replay
from .weights import Config

_TRACED_CALLS = 3
_ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}


@dataclass(frozen=True)
class TorchData:
    """`variants.Data` as tensors of PyTorch."""

    config: Config
    weights: Mapping[str, torch.Tensor]
    prompt: torch.Tensor
    token: torch.Tensor
    position: torch.Tensor

    @classmethod
    def of(cls, data: variants.Data, dtype: torch.dtype | None = None) -> TorchData:
        """The same memory, or with a dtype a copy of the weights in that."""
        weights = {name: _shared(tensor) for name, tensor in data.weights.items()}
        if dtype is not None:
            weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
        return cls(data.config, weights, *(from_dlpack(x) for x in (data.prompt, data.token, data.position)))


def _shared(tensor: tl.Tensor) -> torch.Tensor:
    if tensor.device.backend == "cpu" and tensor.dtype is tl.DType.BF16:
        # NumPy, by which elements on the CPU are shared, has no bfloat16 to tell of.
        return torch.from_numpy(tensor.numpy().view("i2")).view(torch.bfloat16)
    return from_dlpack(tensor)


def torch_calls(variant: str, data: variants.Data) -> Calls:
    """The calls of one of PyTorch's variants."""
    shared = TorchData.of(data)
    if variant == SAME_OPS:
        return variants.op_by_op(SameOps(shared.config, shared.weights), shared)
    fused = Fused(shared.config, shared.weights)
    if variant == FUSED:
        return variants.op_by_op(fused, shared)
    if variant == FUSED_GRAPH:
        return variants.captured(fused, shared, _in_graph)
    assert variant == COMPILED
    return variants.captured(_Compiled(fused), shared, _in_graph)


class _Compiled:
    """A decoder whose two calls are compiled for their shapes."""

    def __init__(self, decoder: TorchDecoder) -> None:
        self.new_cache = decoder.new_cache
        self.prefill = torch.compile(decoder.prefill, dynamic=False)
        self.decode_at = torch.compile(decoder.decode_at, dynamic=False)


def _in_graph(call: Call) -> Call:
    # What is compiled and chosen at the first calls is none of a graph's work; they run beside the current stream, as
    # PyTorch's documentation wants it.
    stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    current.wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = call()
    return Replay(graph, logits, call)


def exact_calls(data: variants.Data) -> Calls:
    """Calls that compute in f32."""
    exact = TorchData.of(data, torch.float32)
    return variants.op_by_op(Fused(exact.config, exact.weights), exact)


def trace(call: Call) -> tuple[float, int]:
    """The seconds that the kernels and copies of a call take on the GPU, and how many they are.

    CUPTI tells PyTorch's profiler of everything that the process runs there, tallow's kernels and those of a graph too.
    """
    torch.cuda.synchronize()
    # The profiler tells at each use how it would be used in a loop.
    with warnings.catch_warnings(action="ignore"), profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(_TRACED_CALLS):
            call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    durations = [event["dur"] for event in events if event.get("cat") in _ON_GPU]
    if not durations:
        raise RuntimeError("PyTorch's profiler saw nothing run on the GPU")
    return sum(durations) / 1e6 / _TRACED_CALLS, round(len(durations) / _TRACED_CALLS)
