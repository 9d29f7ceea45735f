"""The functions that the steps of a layer call: see decoders/. The first argument is their context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from ..distributed import Group, all_reduce
from ..quantized import QMatMul
from ..tensor import Tensor
from ..tensor.shape.joining import cat
from .cache import KVCache
from .config import ModelConfig

Weight: TypeAlias = Tensor | QMatMul
"""A matrix in f32, or block-quantized."""


@dataclass(frozen=True)
class LayerContext:
    """The context of n new tokens in one layer."""

    config: ModelConfig
    cache: KVCache
    layer: int
    position: Tensor
    """Of the first token, on the device."""
    positions: Tensor
    """Of all of them."""
    lengths: Tensor
    """How many tokens are in the cache with them."""
    cos: Tensor
    sin: Tensor
    group: Group
    """The ranks that share the heads and the hidden units of the layer; `config` counts those of this rank."""


def rms_norm(at: LayerContext, x: Tensor, weight: Tensor) -> Tensor:
    """The last dim, normalised and scaled."""
    return x.rms_norm(weight, at.config.epsilon)


def added_rms_norm(at: LayerContext, x: Tensor, added: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The norm of a sum, and the sum; of x where nothing is added."""
    return (rms_norm(at, x, weight), x) if added is None else added.rms_norm(weight, at.config.epsilon, x)


def linear(_at: LayerContext | None, x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """(n, k) by a weight (m, k), in f32 or block-quantized, to (n, m)."""
    if isinstance(weight, Tensor):
        return x.linear(weight, bias)
    product = weight.forward(x)
    return product if bias is None else product + bias


def joined_linear(at: LayerContext, x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """The linear layer if each rank has a part of k: the sum of the products of all ranks."""
    if at.group.size == 1:
        return linear(at, x, weight, bias)
    return plus(at, all_reduce(linear(at, x, weight), group=at.group), bias)


def gated_linear(at: LayerContext, gate: Tensor, up: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """silu(gate) * up by a weight of which each rank has a part of k, as `joined_linear` multiplies."""
    if at.group.size == 1 and isinstance(weight, QMatMul):
        return plus(at, weight.forward_silu_mul(gate, up), bias)
    return joined_linear(at, silu_mul(at, gate, up), weight, bias)


@dataclass(frozen=True)
class Joined:
    """Weights by which the same is multiplied: one matrix of the rows of all, or each by itself."""

    matrices: tuple[Weight, ...]
    rows: tuple[int, ...]
    """Of each weight."""


def normed_products(
    at: LayerContext, x: Tensor, added: Tensor | None, norm: Tensor, weights: Joined
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The norm of a sum, or of x alone, by each matrix of some weights, and the sum."""
    weight, *others = weights.matrices
    if isinstance(weight, QMatMul) and not others:
        summands = (x, None) if added is None else (added, x)
        product, total = weight.forward_rms_norm(summands[0], norm, at.config.epsilon, summands[1])
        return (product,), total
    normed, total = added_rms_norm(at, x, added, norm)
    return tuple(linear(at, normed, weight) for weight in weights.matrices), total


def split(products: tuple[Tensor, ...], weights: Joined) -> tuple[Tensor, ...]:
    """The products of each weight, of those of each matrix."""
    if len(products) > 1:
        return products
    ends = accumulate(weights.rows)
    return tuple(products[0].narrow(1, end - rows, rows) for rows, end in zip(weights.rows, ends, strict=True))


def rotated_heads(
    at: LayerContext,
    products: tuple[Tensor, ...],
    weights: Joined,
    biases: Sequence[Tensor | None],
    rope: Callable[[LayerContext, Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Products as queries, keys and values by heads, of which one call of `rope` rotates queries and keys."""
    query, key, value = weights.rows
    if len(products) == 1 and biases.count(None) == len(biases):
        both, values = products[0].narrow(1, 0, query + key), products[0].narrow(1, query + key, value)
    else:
        *first, values = [plus(at, *each) for each in zip(split(products, weights), biases, strict=True)]
        both = cat(first, 1)
    rotated = rope(at, both.reshape(both.shape[0], -1, at.config.head_dim).transpose(0, 1))
    queries, keys = rotated.split((at.config.heads, at.config.key_heads))
    return queries, keys, key_heads(at, values)


def plus(_at: LayerContext, x: Tensor, bias: Tensor | None) -> Tensor:
    """A bias added, where there is one."""
    return x if bias is None else x + bias


def heads(at: LayerContext, x: Tensor) -> Tensor:
    """(n, heads * head_dim) as (heads, n, head_dim)."""
    return x.reshape(x.shape[0], at.config.heads, at.config.head_dim).transpose(0, 1)


def key_heads(at: LayerContext, x: Tensor) -> Tensor:
    """(n, key_heads * head_dim) as (key_heads, n, head_dim)."""
    return x.reshape(x.shape[0], at.config.key_heads, at.config.head_dim).transpose(0, 1)


def rope_neighbours(at: LayerContext, x: Tensor) -> Tensor:
    """(heads, n, head_dim), of which elements 2i and 2i + 1 are transposed by the angles of their position."""
    return x.rope(at.cos, at.sin, at.position, interleaved=True)


def rope_halves(at: LayerContext, x: Tensor) -> Tensor:
    """(heads, n, head_dim), of which elements i and i + head_dim / 2 are transposed by the angles of their position."""
    return x.rope(at.cos, at.sin, at.position)


def attention(at: LayerContext, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Append keys and values to the cache, and let queries (heads, n, head_dim) attend to it: (n, heads * head_dim)."""
    cached_keys, cached_values = at.cache.append(at.layer, keys, values, at.positions)
    attended = queries.scaled_dot_product_attention(cached_keys, cached_values, causal=True, lengths=at.lengths)
    return attended.transpose(0, 1).reshape(queries.shape[1], -1)


def silu_mul(_at: LayerContext, gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return gate.silu_mul(up)
