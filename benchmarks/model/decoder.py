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
from functools import cached_property
from typing import Protocol

from tallow import Tensor

from .weights import Config

EPSILON = 1e-5
# For each block the keys and the values.
Cache = list[Tensor]


class Decoder:
    """12 blocks of attention and a perceptron, between an embedding and its transpose, in GPT-2."""

    def __init__(self, config: Config, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self.tokens = weights["tokens"]
        self.positions = weights["positions"]
        self.blocks = [self._block(config, weights, f"{layer}.") for layer in range(config.layers)]
        self.norm = self._norm(weights, "norm")
        self.indices = Tensor.arange(config.context, device=self.tokens.device)

    def _block(self, config: Config, weights: Mapping[str, Tensor], name: str) -> Block:
        return Block(config, weights, name)

    def _norm(self, weights: Mapping[str, Tensor], name: str) -> LayerNorm:
        return LayerNorm(weights, name)

    def new_cache(self, batch: int) -> Cache:
        """Room for the keys and the values of every block, each (2, batch, heads, context, depth)."""
        shape = (2, batch, self.config.heads, self.config.context, self.config.depth)
        return [Tensor.zeros(shape, dtype=self.tokens.dtype, device=self.tokens.device) for _ in self.blocks]

    def prefill(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Read a prompt (batch, n): the logits (batch, vocabulary) of the token that follows it."""
        return self._logits(tokens, cache, Prompt(self.indices[: tokens.shape[1]]))

    def decode(self, tokens: Tensor, cache: Cache, position: int) -> Tensor:
        """Read the tokens (batch, 1) at a position: the logits (batch, vocabulary) of those that follow them."""
        return self._logits(tokens, cache, Step(position))

    def decode_at(self, tokens: Tensor, cache: Cache, position: Tensor) -> Tensor:
        """Do what `decode` does, with the position in a tensor of one element, which a graph may read."""
        return self._logits(tokens, cache, StepOnDevice(position, self.indices))

    def _logits(self, tokens: Tensor, cache: Cache, positions: Positions) -> Tensor:
        x = self.tokens[tokens]
        added = positions.select(self.positions).broadcast_as(x.shape)
        for block, block_cache in zip(self.blocks, cache, strict=True):
            x, added = block(x, added, block_cache, positions)
        normed, _ = self.norm(x[:, -1], added[:, -1])
        return normed @ self.tokens.T


class ComposedDecoder(Decoder):
    """A decoder of elementwise ops, reductions and products alone."""

    def _block(self, config: Config, weights: Mapping[str, Tensor], name: str) -> Block:
        return ComposedBlock(config, weights, name)

    def _norm(self, weights: Mapping[str, Tensor], name: str) -> LayerNorm:
        return ComposedLayerNorm(weights, name)


class Block:
    """Attention and a perceptron, each of the normalised input and added to it."""

    def __init__(self, config: Config, weights: Mapping[str, Tensor], name: str) -> None:
        self.heads = config.heads
        self.scale = 1 / math.sqrt(config.depth)
        self.norm1, self.norm2 = self._norm(weights, name + "norm1"), self._norm(weights, name + "norm2")
        parts = ("qkv", "out", "up", "down")
        self.qkv, self.out, self.up, self.down = (self._linear(weights, name + part) for part in parts)

    def _norm(self, weights: Mapping[str, Tensor], name: str) -> LayerNorm:
        return LayerNorm(weights, name)

    def _linear(self, weights: Mapping[str, Tensor], name: str) -> Linear:
        return Linear(weights, name)

    def __call__(self, x: Tensor, added: Tensor, cache: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """(batch, n, width), and what is still to be added to it, to the same two."""
        normed, x = self.norm1(x, added)
        added = self.out(self.attention(self.qkv(normed), cache, positions))
        normed, x = self.norm2(x, added)
        return x, self.down(self.up(normed).gelu())

    def attention(self, qkv: Tensor, cache: Tensor, positions: Positions) -> Tensor:
        """(batch, n, 3 * width) to (batch, n, width), with the keys and values of the cache."""
        batch, n, triple = qkv.shape
        parts = qkv.reshape(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.attended(parts, cache, positions).transpose(1, 2).reshape(batch, n, triple // 3)

    def attended(self, parts: Tensor, cache: Tensor, positions: Positions) -> Tensor:
        """Queries, keys and values in one, (3, batch, heads, n, depth), to (batch, heads, n, depth)."""
        keys, values = positions.update(cache, parts[1:])
        return parts[0].scaled_dot_product_attention(
            keys, values, causal=positions.is_causal, scale=self.scale, lengths=positions.lengths
        )


class ComposedBlock(Block):
    """A block without ops of its own for norm, product with bias, and attention."""

    def _norm(self, weights: Mapping[str, Tensor], name: str) -> LayerNorm:
        return ComposedLayerNorm(weights, name)

    def _linear(self, weights: Mapping[str, Tensor], name: str) -> Linear:
        return ComposedLinear(weights, name)

    def attended(self, parts: Tensor, cache: Tensor, positions: Positions) -> Tensor:
        """See `Block.attended`."""
        keys, values = (positions.update(part, new) for part, new in zip(cache, parts[1:], strict=True))
        shares = softmax(positions.masked((parts[0] * self.scale) @ keys.mT))
        return shares @ values


class Linear:
    """The layer x @ weight + bias."""

    def __init__(self, weights: Mapping[str, Tensor], name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        self.transposed = self.weight.T

    def __call__(self, x: Tensor) -> Tensor:
        """(.., inputs) to (.., outputs)."""
        return x.linear(self.transposed, self.bias)


class ComposedLinear(Linear):
    """The same in two ops."""

    def __call__(self, x: Tensor) -> Tensor:
        """See `Linear`."""
        return x @ self.weight + self.bias


class LayerNorm:
    """Normalise the last dim, then scale and shift it."""

    def __init__(self, weights: Mapping[str, Tensor], name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def __call__(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of (.., width) and what is added to it first, and their sum."""
        return x.layer_norm(self.weight, self.bias, EPSILON, added)


class ComposedLayerNorm(LayerNorm):
    """The same in several ops."""

    def __call__(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """See `LayerNorm`."""
        x = x + added
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.sqr().mean(dim=-1, keepdim=True)
        return centred * (variance + EPSILON).rsqrt() * self.weight + self.bias, x


def softmax(x: Tensor) -> Tensor:
    """The shares of the last dim."""
    # The largest is subtracted so that exp cannot overflow; it cancels in the quotient.
    powers = (x - x.max(dim=-1, keepdim=True)).exp()
    return powers / powers.sum(dim=-1, keepdim=True)


class Positions(Protocol):
    """The positions of tokens, which decide what rows of the cache each attends to."""

    is_causal: bool

    @property
    def lengths(self) -> Tensor | None:
        """The number of valid rows of the cache; None where all that `update` returns are valid."""

    def select(self, table: Tensor) -> Tensor:
        """The rows of the table of positions."""

    def update(self, cache: Tensor, new: Tensor) -> Tensor:
        """Write new rows (.., heads, n, depth) to the cache, and return the rows to attend to."""

    def masked(self, scores: Tensor) -> Tensor:
        """Scores (batch, heads, n, rows), with -inf where a token does not attend."""


class Prompt:
    """The first tokens: each attends to itself and those before it. `indices` are 0, 1, .. n - 1."""

    is_causal = True
    lengths = None

    def __init__(self, indices: Tensor) -> None:
        self.indices = indices

    def select(self, table: Tensor) -> Tensor:
        return table[: self.indices.shape[0]]

    def update(self, cache: Tensor, new: Tensor) -> Tensor:
        cache[..., : self.indices.shape[0], :] = new
        return new

    def masked(self, scores: Tensor) -> Tensor:
        return self._mask.where(-math.inf, scores)

    @cached_property
    def _mask(self) -> Tensor:
        return self.indices > self.indices.unsqueeze(1)


class Step:
    """One token, which attends to all rows of the cache up to its own."""

    is_causal = False
    lengths = None

    def __init__(self, position: int) -> None:
        self.position = position

    def select(self, table: Tensor) -> Tensor:
        return table[self.position]

    def update(self, cache: Tensor, new: Tensor) -> Tensor:
        end = self.position + 1
        cache[..., self.position : end, :] = new
        return cache[..., :end, :]

    def masked(self, scores: Tensor) -> Tensor:
        return scores


class StepOnDevice:
    """One token at a position in the device's memory; rows of the cache after it are masked."""

    is_causal = False

    def __init__(self, position: Tensor, indices: Tensor) -> None:
        self.position = position
        self.indices = indices

    @cached_property
    def lengths(self) -> Tensor:
        """The number of tokens up to and including this one."""
        return self.position + 1

    def select(self, table: Tensor) -> Tensor:
        return table[self.position]

    def update(self, cache: Tensor, new: Tensor) -> Tensor:
        return cache.index_copy_(self.position, new, dim=-2)

    def masked(self, scores: Tensor) -> Tensor:
        return self._mask.where(-math.inf, scores)

    @cached_property
    def _mask(self) -> Tensor:
        return self.indices > self.position
