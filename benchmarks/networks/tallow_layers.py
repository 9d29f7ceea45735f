"""The layers of tallow: functions of tensors in a dict, as docs/training.md structures models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import tallow as tl
from tallow import Tensor

# Of batch norms, by default.
_EPS = 1e-5
# cuDNN splits the sums of a plain convolution of so small an image over more blocks than those of one with an epilogue.
_FEW_PIXELS = 64


class TallowLayers:
    """See `layers.Layers`.

    With `is_fused`, what follows each convolution is one kernel, in 16 bits on GPUs an epilogue of the convolution.
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
        weight = self._weights[f"{name}.weight"]
        if self._has_epilogue(x, norm, inputs, groups, activation):
            scale, bias = self._affine(f"{name}.norm")
            return x.conv2d(
                weight, padding, stride, groups=groups, scale=scale, bias=bias, residual=residual,
                activation=activation or None,
            )  # fmt: skip
        bias = None if norm else self._weights[f"{name}.bias"]
        x = x.conv2d(weight, padding, stride, groups=groups, bias=bias)
        statistics = self._group(f"{name}.norm") if norm else {}
        if norm and self._training:
            x, statistics = x.batch_norm(**statistics, training=True), {}
        if not self._is_fused:
            return _tail(x, statistics, residual, activation)
        operands = [*statistics.values(), *([] if residual is None else [residual])]
        if not operands and not activation:
            return x
        return _fused_tail(tuple(statistics), residual is not None, activation)(x, *operands)

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

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def sequence(self, x: Tensor) -> Tensor:
        return x.squeeze(2).permute(2, 0, 1)

    def _has_epilogue(self, x: Tensor, norm: bool, inputs: int, groups: int, activation: str) -> bool:
        """Return True for convolutions that are one kernel with what follows: others are faster by `tl.fuse`."""
        if not (self._is_fused and norm) or self._training or x.dtype.itemsize != 2 or x.device.backend == "cpu":
            return False
        is_large = math.prod(x.shape[2:]) > _FEW_PIXELS
        return groups == inputs or (is_large and inputs % 8 == 0 and activation in ("", "relu"))

    def _affine(self, name: str) -> tuple[Tensor, Tensor]:
        """The scale and the bias that a batch norm comes to, in f32: of weights that stay, computed once."""
        if name not in self._affines:
            weight, bias, mean, variance = [
                self._weights[f"{name}.{part}"].to_dtype("f32")
                for part in ("weight", "bias", "running_mean", "running_var")
            ]
            scale = weight * (variance + _EPS).rsqrt()
            self._affines[name] = scale, bias - mean * scale
        return self._affines[name]

    def _group(self, name: str) -> dict[str, Tensor]:
        group = self._groups.get(name)
        if group is None:
            group = {key.rpartition(".")[2]: x for key, x in self._weights.items() if key.rpartition(".")[0] == name}
            self._groups[name] = group
        return group


def _kernel(group: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"kernel": group["weight"], "bias": group["bias"]}


def _tail(x: Tensor, statistics: Mapping[str, Tensor], residual: Tensor | None, activation: str) -> Tensor:
    if statistics:
        x = x.batch_norm(**statistics)
    if residual is not None:
        x = x + residual
    return _activated(x, activation)


@cache
def _fused_tail(names: tuple[str, ...], has_residual: bool, activation: str) -> Callable[..., Tensor]:
    def tail(x: Tensor, *operands: Tensor) -> Tensor:
        statistics = dict(zip(names, operands, strict=False))
        return _tail(x, statistics, operands[-1] if has_residual else None, activation)

    return tl.fuse(tail)


def _activated(x: Tensor, activation: str) -> Tensor:
    return getattr(x, activation)() if activation else x  # type: ignore[no-any-return]


def loss(y: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy with classes, or the mean squared difference of maps."""
    if targets.dtype.is_float:
        return y.mse_loss(targets)
    return y.flatten(0, -2).cross_entropy(targets.flatten(0, -1))
