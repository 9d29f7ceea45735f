"""A decoder as GPT-2's, written with tallow's tensors: it reads a prompt, then goes on token by token.

    decoder = Decoder(config, weights)
    cache = decoder.new_cache(batch)
    logits = decoder.prefill(prompt, cache)
    logits = decoder.decode(logits.argmax(dim=1, keepdim=True), cache, position=prompt.shape[1])

A step of it in a graph reads its position from the device, since each replay launches the same kernels:

    graph = tallow.Graph(device)
    with graph.capture():
        logits = decoder.decode_at(tokens, cache, position)
    graph.replay()
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from tallow import Tensor

from .weights import Config

EPSILON = 1e-5
Cache = list[tuple[Tensor, Tensor]]


class Decoder:
    """12 blocks of attention and a perceptron, between an embedding and its transpose, in GPT-2."""

    def __init__(self, config: Config, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self.tokens = weights["tokens"]
        self.positions = weights["positions"]
        self.blocks = [Block(config, weights, f"{layer}.") for layer in range(config.layers)]
        self.norm = LayerNorm(weights, "norm")
        self.places = Tensor.arange(config.context, device=self.tokens.device)

    def new_cache(self, batch: int) -> Cache:
        """Room for the keys and the values of every block, each (batch, heads, context, depth)."""
        shape = (batch, self.config.heads, self.config.context, self.config.depth)

        def room() -> Tensor:
            return Tensor.zeros(shape, dtype=self.tokens.dtype, device=self.tokens.device)

        return [(room(), room()) for _ in self.blocks]

    def prefill(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Read a prompt (batch, n): the logits (batch, vocabulary) of the token that follows it."""
        return self._logits(tokens, cache, Prompt(self.places[: tokens.shape[1]]))

    def decode(self, tokens: Tensor, cache: Cache, position: int) -> Tensor:
        """Read the tokens (batch, 1) at a position: the logits (batch, vocabulary) of those that follow them."""
        return self._logits(tokens, cache, Step(position))

    def decode_at(self, tokens: Tensor, cache: Cache, position: Tensor) -> Tensor:
        """Do what `decode` does, with the position in a tensor of one element, which a graph may read."""
        return self._logits(tokens, cache, StepOnDevice(position, self.places))

    def _logits(self, tokens: Tensor, cache: Cache, place: Place) -> Tensor:
        x = self.tokens[tokens] + place.of(self.positions)
        for block, kept in zip(self.blocks, cache, strict=True):
            x = block(x, kept, place)
        return self.norm(x[:, -1]) @ self.tokens.T


class Block:
    """Attention and a perceptron, each of the normalised input and added to it."""

    def __init__(self, config: Config, weights: Mapping[str, Tensor], name: str) -> None:
        self.heads = config.heads
        self.scale = 1 / math.sqrt(config.depth)
        self.norm1, self.norm2 = LayerNorm(weights, name + "norm1"), LayerNorm(weights, name + "norm2")
        self.qkv, self.out = Linear(weights, name + "qkv"), Linear(weights, name + "out")
        self.up, self.down = Linear(weights, name + "up"), Linear(weights, name + "down")

    def __call__(self, x: Tensor, kept: tuple[Tensor, Tensor], place: Place) -> Tensor:
        """(batch, n, width) to the same."""
        x = x + self.out(self.attention(self.qkv(self.norm1(x)), kept, place))
        return x + self.down(self.up(self.norm2(x)).gelu())

    def attention(self, qkv: Tensor, kept: tuple[Tensor, Tensor], place: Place) -> Tensor:
        """(batch, n, 3 * width) to (batch, n, width), with the keys and the values that the cache has kept."""
        batch, n, triple = qkv.shape
        parts = qkv.reshape(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keys, values = (place.kept(cache, new) for cache, new in zip(kept, (parts[1], parts[2]), strict=True))
        shares = softmax(place.masked((parts[0] * self.scale) @ keys.mT))
        return (shares @ values).transpose(1, 2).reshape(batch, n, triple // 3)


class Linear:
    """The layer x @ weight + bias."""

    def __init__(self, weights: Mapping[str, Tensor], name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def __call__(self, x: Tensor) -> Tensor:
        """(.., inputs) to (.., outputs)."""
        return x @ self.weight + self.bias


class LayerNorm:
    """Normalise the last dim, then scale and shift it."""

    def __init__(self, weights: Mapping[str, Tensor], name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def __call__(self, x: Tensor) -> Tensor:
        """(.., width) to the same."""
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.sqr().mean(dim=-1, keepdim=True)
        return centred * (variance + EPSILON).rsqrt() * self.weight + self.bias


def softmax(x: Tensor) -> Tensor:
    """The shares of the last dim."""
    # The largest is subtracted so that exp cannot overflow; it cancels in the quotient.
    powers = (x - x.max(dim=-1, keepdim=True)).exp()
    return powers / powers.sum(dim=-1, keepdim=True)


class Place(Protocol):
    """Where tokens stand, and so what they see."""

    def of(self, table: Tensor) -> Tensor:
        """The rows of the table of positions."""

    def kept(self, cache: Tensor, new: Tensor) -> Tensor:
        """Put new rows (batch, heads, n, depth) into the cache: those that the tokens look at."""

    def masked(self, scores: Tensor) -> Tensor:
        """Scores (batch, heads, n, rows), with -inf where a token does not look."""


class Prompt:
    """The first tokens: each sees itself and those before it. `places` are 0, 1, .. n - 1."""

    def __init__(self, places: Tensor) -> None:
        self.count = places.shape[0]
        self.hidden = places > places.unsqueeze(1)

    def of(self, table: Tensor) -> Tensor:
        return table[: self.count]

    def kept(self, cache: Tensor, new: Tensor) -> Tensor:
        cache[:, :, : self.count] = new
        return new

    def masked(self, scores: Tensor) -> Tensor:
        return self.hidden.where(-math.inf, scores)


class Step:
    """One token, which sees all that was kept."""

    def __init__(self, position: int) -> None:
        self.position = position

    def of(self, table: Tensor) -> Tensor:
        return table[self.position]

    def kept(self, cache: Tensor, new: Tensor) -> Tensor:
        end = self.position + 1
        cache[:, :, self.position : end] = new
        return cache[:, :, :end]

    def masked(self, scores: Tensor) -> Tensor:
        return scores


class StepOnDevice:
    """One token at a position that the device alone knows: the whole cache is looked at, and masked behind it."""

    def __init__(self, position: Tensor, places: Tensor) -> None:
        self.position = position
        self.hidden = places > position

    def of(self, table: Tensor) -> Tensor:
        return table[self.position]

    def kept(self, cache: Tensor, new: Tensor) -> Tensor:
        return cache.index_copy_(self.position, new, dim=2)

    def masked(self, scores: Tensor) -> Tensor:
        return self.hidden.where(-math.inf, scores)
