"""The keys and values of tokens that a model has read."""

from __future__ import annotations

from typing import Final

from ...device import Device
from ...dtype import DType
from ..base.error import InvalidArgument
from ..core import argument
from ..core.argument import DTypeLike
from ..tensor import Tensor
from ..tensor.base import device_of

_ROWS: Final = 1  # the dim of the tokens


class KVCache:
    """The keys and values of up to `max_seq_len` tokens in each layer, all allocated at once.

    `append` writes those of new tokens after the cached ones, in each layer, and `advance` counts them as cached.
    there. Where they are written the device knows: a graph that appends goes on from replay to replay.

    >>> from tallow import models
    >>> cache = models.KVCache("cpu", layers=2, heads=4, head_dim=16, max_seq_len=128)
    >>> cache.length, cache.max_seq_len
    (0, 128)
    """

    def __init__(
        self,
        device: Device | str | None,
        layers: int,
        heads: int,
        head_dim: int,
        max_seq_len: int,
        dtype: DTypeLike = DType.F32,
    ) -> None:
        sizes = {"layers": layers, "heads": heads, "head_dim": head_dim, "max_seq_len": max_seq_len}
        for name, size in sizes.items():
            if argument.integer("KVCache", name, size) < 1:
                raise InvalidArgument("KVCache", f"{name} is {size}, and must be 1 or more")
        self.device = device_of(device)
        self.max_seq_len = max_seq_len
        self.length = 0
        """How many tokens are there."""
        shape = (heads, max_seq_len, head_dim)
        self._layers = [
            (Tensor.zeros(shape, dtype=dtype, device=self.device), Tensor.zeros(shape, dtype=dtype, device=self.device))
            for _ in range(layers)
        ]
        self._positions = Tensor.arange(max_seq_len, device=self.device)
        self.position = Tensor.zeros((1,), dtype=self._positions.dtype, device=self.device)
        """The length as the device knows it."""

    def require_room(self, count: int) -> None:
        """Raise InvalidArgument if `count` more tokens do not fit."""
        if self.length + count > self.max_seq_len:
            reason = f"the cache holds {self.max_seq_len} tokens, {self.length} are there, and {count} more come"
            raise InvalidArgument("KVCache", f"{reason}; reset it, or make it with a larger max_seq_len")

    def positions(self, count: int) -> Tensor:
        """Return the positions of the next `count` tokens, on the device."""
        self.require_room(count)
        return self._positions[:count] + self.position

    def append(
        self, layer: int, keys: Tensor, values: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values, each (heads, n, head_dim), after the cached tokens of one layer.

        The result is the full memory of the layer, (heads, max_seq_len, head_dim) each, for an attention with
        `lengths`. `positions` are those of `positions(n)`, computed once for all layers.
        """
        positions = self.positions(keys.shape[_ROWS]) if positions is None else positions
        cached_keys, cached_values = self._layer(layer)
        cached_keys.index_copy_(positions, keys, dim=_ROWS)
        cached_values.index_copy_(positions, values, dim=_ROWS)
        return cached_keys, cached_values

    def advance(self, count: int) -> None:
        """Count `count` tokens that were appended in all layers as cached. InvalidArgument if they do not fit."""
        if argument.integer("KVCache.advance", "count", count) < 0:
            raise InvalidArgument("KVCache.advance", f"count is {count}, and must be 0 or more; reset forgets tokens")
        self.require_room(count)
        self.position.add_(count)
        self.length += count

    def get(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return views of the keys and of the values so far, (heads, length, head_dim) each."""
        keys, values = self._layer(layer)
        return keys.narrow(_ROWS, 0, self.length), values.narrow(_ROWS, 0, self.length)

    def retrieve(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return copies of what `get` returns, which later tokens do not change."""
        keys, values = self.get(layer)
        return keys.copy(), values.copy()

    def reset(self) -> None:
        """Forget all tokens; the memory stays."""
        self.truncate(0)

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first `length`. InvalidArgument where there are fewer."""
        if not 0 <= argument.integer("KVCache.truncate", "length", length) <= self.length:
            raise InvalidArgument("KVCache.truncate", f"length is {length}, and must be from 0 to {self.length}")
        self.position.fill_(length)
        self.length = length

    @property
    def nbytes(self) -> int:
        """How many bytes the keys and values take."""
        return sum(keys.layout.shape.elem_count * keys.dtype.itemsize * 2 for keys, _ in self._layers)

    def _layer(self, layer: int) -> tuple[Tensor, Tensor]:
        if not 0 <= argument.integer("KVCache", "layer", layer) < len(self._layers):
            raise InvalidArgument("KVCache", f"there is no layer {layer}; use one from 0 to {len(self._layers) - 1}")
        return self._layers[layer]

    def __repr__(self) -> str:
        return (
            f"<KVCache of {len(self._layers)} layers, {self.length} of {self.max_seq_len} tokens, {self.device.label}>"
        )
