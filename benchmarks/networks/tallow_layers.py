"""The layers of tallow: functions of tensors in a dict, as docs/training.md structures models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import tallow as tl
from tallow import Tensor

# Of batch norms, by default.
_EPS = 1e-5


class TallowLayers:
    """See `layers.Layers`.

    With `is_fused`, a convolution and what follows it are a fused function.
    """

    def __init__(self, weights: Mapping[str, Tensor], *, training: bool, is_fused: bool) -> None:
        self._weights = weights
        self._training = training
        self._is_fused = is_fused
        self._groups: dict[str, dict[str, Tensor]] = {}
        self._affines: dict[str, tuple[Tensor, Tensor]] = {}

    def conv(
        self,
        x: Tensor,
        name: str,
        inputs: int,
        outputs: int,
        size: int | tuple[int, int],
        stride: int = 1,
        groups: int = 1,
        *,
        padding: int | None = None,
        norm: bool = True,
        activation: str = "relu",
        residual: Tensor | None = None,
    ) -> Tensor:
        if padding is None:
            assert isinstance(size, int)
            padding = size // 2
        weight, window = self._weights[f"{name}.weight"], _Window(padding, stride, groups)
        bias = None if norm else self._weights[f"{name}.bias"]
        residuals = [] if residual is None else [residual]
        if self._is_fused and not (norm and self._training):
            vectors = self._affine(f"{name}.norm") if bias is None else (bias,)
            return _fused_layer(window, norm, activation)(x, weight, *vectors, *residuals)
        x = x.conv2d(weight, bias=bias, **window._asdict())
        if norm:
            x = x.batch_norm(**self._group(f"{name}.norm"), training=self._training)
        if self._is_fused and (residuals or activation):
            return _fused_tail(activation)(x, *residuals)
        return _tail(activation, x, *residuals)

    def transposed_conv(self, x: Tensor, name: str, inputs: int, outputs: int, activation: str = "") -> Tensor:
        return _activated(x.conv_transpose2d(**_kernel(self._group(name)), stride=2), activation)

    def linear(self, x: Tensor, name: str, inputs: int, outputs: int, activation: str = "") -> Tensor:
        return _activated(x.linear(**self._group(name)), activation)

    def lstm(self, x: Tensor, name: str, inputs: int, units: int, layers: int, directions: int = 1) -> Tensor:
        return tl.lstm(x, self._group(name))[0]

    def max_pool(self, x: Tensor, size: Any, stride: Any, padding: int = 0) -> Tensor:
        return x.max_pool2d(size, stride, padding)

    def mean(self, x: Tensor, keepdim: bool = False) -> Tensor:
        return x.mean((2, 3), keepdim)

    def upsample(self, x: Tensor, factor: int) -> Tensor:
        return x.upsample_nearest2d(factor * x.shape[2], factor * x.shape[3])

    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        return tl.cat(parts, 1)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def multiply(self, x: Tensor, y: Tensor, activation: str) -> Tensor:
        return (_fused_product(activation) if self._is_fused else partial(_product, activation))(x, y)

    def sequence(self, x: Tensor) -> Tensor:
        return x.squeeze(2).permute(2, 0, 1)

    def _affine(self, name: str) -> tuple[Tensor, Tensor]:
        """The scale and the bias that a batch norm comes to, in f32: of weights that stay, computed once."""
        if name not in self._affines:
            weight, bias, mean, variance = [
                self._weights[f"{name}.{part}"].to_dtype("f32")
                for part in ("weight", "bias", "running_mean", "running_var")
            ]
            scale = weight * (variance + _EPS).rsqrt()
            channels = -1, 1, 1
            self._affines[name] = scale.reshape(channels), (bias - mean * scale).reshape(channels)
        return self._affines[name]

    def _group(self, name: str) -> dict[str, Tensor]:
        group = self._groups.get(name)
        if group is None:
            group = {key.rpartition(".")[2]: x for key, x in self._weights.items() if key.rpartition(".")[0] == name}
            self._groups[name] = group
        return group


def _kernel(group: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"kernel": group["weight"], "bias": group["bias"]}


class _Window(NamedTuple):
    padding: int
    stride: int
    groups: int


@cache
def _fused_layer(window: _Window, has_affine: bool, activation: str) -> Callable[..., Tensor]:
    """A function of the input, the weight, the scale and bias of a batch norm or the bias alone, and the residual."""

    def layer(x: Tensor, weight: Tensor, *operands: Tensor) -> Tensor:
        if has_affine:
            scale, bias, *residuals = operands
            y = x.conv2d(weight, **window._asdict())
            y = (y.to_dtype(scale.dtype) * scale + bias).to_dtype(x.dtype)
        else:
            bias, *residuals = operands
            y = x.conv2d(weight, bias=bias, **window._asdict())
        return _tail(activation, y, *residuals)

    return tl.fuse(layer, precise=False)


def _tail(activation: str, x: Tensor, *residuals: Tensor) -> Tensor:
    return _activated(sum(residuals, x), activation)


@cache
def _fused_tail(activation: str) -> Callable[..., Tensor]:
    return tl.fuse(partial(_tail, activation))


def _product(activation: str, x: Tensor, y: Tensor) -> Tensor:
    return x * _activated(y, activation)


@cache
def _fused_product(activation: str) -> Callable[..., Tensor]:
    return tl.fuse(partial(_product, activation))


def _activated(x: Tensor, activation: str) -> Tensor:
    return getattr(x, activation)() if activation else x  # type: ignore[no-any-return]


def loss(y: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy with classes, or the mean squared difference of maps."""
    if targets.dtype.is_float:
        return y.mse_loss(targets)
    return y.flatten(0, -2).cross_entropy(targets.flatten(0, -1))
