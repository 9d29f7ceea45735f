"""The layers of PyTorch. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 -- as PyTorch's own documentation has it
from torch import Tensor


class TorchLayers:
    """See `layers.Layers`. The first pass replaces the weights of an LSTM by those of the module that cuDNN needs."""

    def __init__(self, weights: dict[str, Tensor], *, training: bool) -> None:
        self.weights = weights
        self._training = training
        self._modules: dict[str, torch.nn.LSTM] = {}

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
        bias = None if norm else self.weights[f"{name}.bias"]
        x = F.conv2d(x, self.weights[f"{name}.weight"], bias, stride, padding, groups=groups)
        if norm:
            names = ("running_mean", "running_var", "weight", "bias")
            x = F.batch_norm(x, *[self.weights[f"{name}.norm.{key}"] for key in names], training=self._training)
        if residual is not None:
            x = x + residual
        return _activated(x, activation)

    def transposed_conv(self, x: Tensor, name: str, inputs: int, outputs: int, activation: str = "") -> Tensor:
        x = F.conv_transpose2d(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 2)
        return _activated(x, activation)

    def linear(self, x: Tensor, name: str, inputs: int, outputs: int, activation: str = "") -> Tensor:
        return _activated(F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]), activation)

    def lstm(self, x: Tensor, name: str, inputs: int, units: int, layers: int, directions: int = 1) -> Tensor:
        if name not in self._modules:
            self._modules[name] = self._module(name, inputs, units, layers, directions)
        output: Tensor = self._modules[name](x)[0]
        return output

    def max_pool(self, x: Tensor, size: Any, stride: Any, padding: int = 0) -> Tensor:
        return F.max_pool2d(x, size, stride, padding)

    def mean(self, x: Tensor, keepdim: bool = False) -> Tensor:
        return x.mean((2, 3), keepdim)

    def upsample(self, x: Tensor, factor: int) -> Tensor:
        return F.interpolate(x, scale_factor=factor)

    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), 1)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def multiply(self, x: Tensor, y: Tensor, activation: str) -> Tensor:
        return x * _activated(y, activation)

    def sequence(self, x: Tensor) -> Tensor:
        return x.squeeze(2).permute(2, 0, 1)

    def _module(self, name: str, inputs: int, units: int, layers: int, directions: int) -> torch.nn.LSTM:
        state = {key.removeprefix(f"{name}."): x for key, x in self.weights.items() if key.startswith(f"{name}.")}
        any_weight = next(iter(state.values()))
        module = torch.nn.LSTM(inputs, units, layers, bidirectional=directions == 2)
        module.to(any_weight.device, any_weight.dtype).requires_grad_(any_weight.requires_grad)
        module.load_state_dict(state)
        self.weights.update({f"{name}.{key}": x for key, x in module.named_parameters()})
        return module


def _activated(x: Tensor, activation: str) -> Tensor:
    if activation in ("relu", "sigmoid"):
        return getattr(torch, activation)(x)  # type: ignore[no-any-return]
    return getattr(F, activation)(x) if activation else x  # type: ignore[no-any-return]


def loss(y: Tensor, targets: Tensor) -> Tensor:
    """See `tallow_layers.loss`."""
    if targets.is_floating_point():
        return F.mse_loss(y, targets)
    return F.cross_entropy(y.flatten(0, -2), targets.flatten())
