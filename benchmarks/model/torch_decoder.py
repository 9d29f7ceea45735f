"""The decoder written with PyTorch: with the ops that tallow's is written with, and with PyTorch's fused ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- as PyTorch's own documentation has it
from torch import Tensor

from .decoder import EPSILON
from .weights import Config

Cache = list[tuple[Tensor, Tensor]]


class TorchDecoder(ABC):
    """The common part of both variants: all but the norm and the attention. See `decoder.Decoder` for the methods."""

    def __init__(self, config: Config, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self.weights = weights
        self.indices = torch.arange(config.context, device=weights["tokens"].device)

    def new_cache(self, batch: int) -> Cache:
        """Room for the keys and the values of every block."""
        shape = (batch, self.config.heads, self.config.context, self.config.depth)
        like = self.weights["tokens"]
        return [(like.new_zeros(shape), like.new_zeros(shape)) for _ in range(self.config.layers)]

    def prefill(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Read a prompt (batch, n)."""
        count = tokens.shape[1]
        indices = self.indices[:count]
        return self._logits(tokens, cache, slice(0, count), indices > indices.unsqueeze(1))

    def decode(self, tokens: Tensor, cache: Cache, position: int) -> Tensor:
        """Read the tokens (batch, 1) at a position."""
        return self._logits(tokens, cache, slice(position, position + 1), None)

    def decode_at(self, tokens: Tensor, cache: Cache, position: Tensor) -> Tensor:
        """Read the tokens (batch, 1) at a position in a tensor of one element."""
        return self._logits(tokens, cache, position, self.indices > position)

    def _logits(self, tokens: Tensor, cache: Cache, positions: slice | Tensor, mask: Tensor | None) -> Tensor:
        x = self.weights["tokens"][tokens] + self.weights["positions"][positions]
        for layer, layer_cache in enumerate(cache):
            name = f"{layer}."
            qkv = self._linear(self.norm(x, name + "norm1"), name + "qkv")
            x = x + self._linear(self._attended(qkv, layer_cache, positions, mask), name + "out")
            x = x + self._linear(
                F.gelu(self._linear(self.norm(x, name + "norm2"), name + "up"), approximate="tanh"), name + "down"
            )
        return self.norm(x[:, -1], "norm") @ self.weights["tokens"].T

    def _attended(
        self, qkv: Tensor, layer_cache: tuple[Tensor, Tensor], positions: slice | Tensor, mask: Tensor | None
    ) -> Tensor:
        batch, n, triple = qkv.shape
        queries, *new = qkv.reshape(batch, n, 3, self.config.heads, -1).permute(2, 0, 3, 1, 4)
        keys, values = (_update(cache, rows, positions) for cache, rows in zip(layer_cache, new, strict=True))
        return self.attention(queries, keys, values, mask).transpose(1, 2).reshape(batch, n, triple // 3)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    @abstractmethod
    def norm(self, x: Tensor, name: str) -> Tensor:
        """Normalise the last dim, then scale and shift it."""

    @abstractmethod
    def attention(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of (batch, heads, n, depth); `mask` says where a query does not look."""


def _update(cache: Tensor, new: Tensor, positions: slice | Tensor) -> Tensor:
    if isinstance(positions, Tensor):
        return cache.index_copy_(2, positions, new)
    cache[:, :, positions] = new
    return cache[:, :, : positions.stop]


class SameOps(TorchDecoder):
    """With the ops that tallow's decoder is written with."""

    def norm(self, x: Tensor, name: str) -> Tensor:
        """See `decoder.LayerNorm`."""
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        return centred * (variance + EPSILON).rsqrt() * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """See `decoder.Block.attention`."""
        scores = (queries * (1 / math.sqrt(self.config.depth))) @ keys.mT
        if mask is not None:
            scores = torch.where(mask, -math.inf, scores)
        powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        return (powers / powers.sum(dim=-1, keepdim=True)) @ values


class Fused(TorchDecoder):
    """With PyTorch's own ops for norm, product with bias, and attention."""

    def norm(self, x: Tensor, name: str) -> Tensor:
        """One op."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, EPSILON)

    def attention(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """One op, which knows the mask of a prompt by name."""
        if mask is None or mask.dim() == 2:
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=mask is not None)
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=~mask.expand(1, 1, 1, -1))

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"].T, self.weights[f"{name}.bias"])
