"""The decoder op by op and in a graph, on data that all variants share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tallow as tl

from .decoder import ComposedDecoder, Decoder
from .results import GRAPHS, TALLOW, TALLOW_GRAPH
from .weights import Config, Weights, random_tokens

Call = Callable[[], Any]


class Calls(NamedTuple):
    """A prefill, and a decode step behind it: each gives logits, and may be called again."""

    prefill: Call
    decode: Call


@dataclass(frozen=True)
class Data:
    """Weights in a dtype, a prompt (batch, n), the token (batch, 1) behind it, and the position of that."""

    config: Config
    weights: Mapping[str, tl.Tensor]
    prompt: tl.Tensor
    token: tl.Tensor
    position: tl.Tensor

    @classmethod
    def make(cls, config: Config, weights: Weights, dtype: str, batch: int, count: int, device: tl.Device) -> Data:
        """The data of a batch on a device."""
        tokens = random_tokens(config, batch, count + 1)
        return cls(
            config,
            {name: tl.Tensor(array, device=device).to_dtype(dtype) for name, array in weights.items()},
            tl.Tensor(tokens[:, :count], device=device),
            tl.Tensor(tokens[:, count:], device=device),
            tl.Tensor([count], device=device),
        )

    def to(self, device: tl.Device, dtype: str) -> Data:
        """The same numbers elsewhere, in another dtype."""
        weights = {name: tensor.to(device).to_dtype(dtype) for name, tensor in self.weights.items()}
        return Data(self.config, weights, *(x.to(device) for x in (self.prompt, self.token, self.position)))


class Replay:
    """A call of a graph. It keeps the call that was captured, since the graph reads and writes the tensors of that."""

    def __init__(self, graph: Any, logits: Any, captured: Call) -> None:
        self._graph, self._logits, self._captured = graph, logits, captured

    def __call__(self) -> Any:
        """The logits, which the next replay overwrites."""
        self._graph.replay()
        return self._logits


def op_by_op(decoder: Any, data: Any) -> Calls:
    """Each call launches op after op. Serves tallow's decoder and PyTorch's alike."""
    batch, count = data.prompt.shape
    cache = decoder.new_cache(batch)
    return Calls(
        lambda: decoder.prefill(data.prompt, cache),
        lambda: decoder.decode(data.token, cache, count),
    )


def captured(decoder: Any, data: Any, capture: Callable[[Call], Call]) -> Calls:
    """Each call replays the graph of the ops."""
    cache = decoder.new_cache(data.prompt.shape[0])
    return Calls(
        capture(lambda: decoder.prefill(data.prompt, cache)),
        capture(lambda: decoder.decode_at(data.token, cache, data.position)),
    )


def tallow_calls(variant: str, data: Data) -> Calls:
    """The calls of one of tallow's variants."""
    decoder = (Decoder if variant in (TALLOW, TALLOW_GRAPH) else ComposedDecoder)(data.config, data.weights)
    return captured(decoder, data, _in_graph) if variant in GRAPHS else op_by_op(decoder, data)


def _in_graph(call: Call) -> Call:
    # Kernels are compiled and libraries opened by a call that is not captured.
    device = call().device
    device.synchronize()
    graph = tl.Graph(device)
    with graph.capture():
        logits = call()
    return Replay(graph, logits, call)
