"""The layers that the networks are written with, and the weights that these layers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
T = TypeVar("T")
# What training does not change by gradients.
STATISTICS = ("running_mean", "running_var")


@runtime_checkable
class Layers(Protocol[T]):
    """The layers of a library, which find their weights by name; images are (b, c, h, w), sequences (steps, b, c)."""

    def conv(
        self,
        x: T,
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
        residual: T | None = None,
    ) -> T:
        """Convolve; apply a batch norm, or add a bias; add a residual; activate. The padding is half the size."""

    def transposed_conv(self, x: T, name: str, inputs: int, outputs: int, activation: str = "") -> T:
        """Double height and width by a transposed convolution of size and stride 2, with a bias."""

    def linear(self, x: T, name: str, inputs: int, outputs: int, activation: str = "") -> T:
        """Multiply by a matrix, add a bias, and activate."""

    def lstm(self, x: T, name: str, inputs: int, units: int, layers: int, directions: int = 1) -> T:
        """The outputs of all steps."""

    def max_pool(self, x: T, size: Any, stride: Any, padding: int = 0) -> T:
        """Maxima of windows."""

    def mean(self, x: T, keepdim: bool = False) -> T:
        """The mean of an image."""

    def upsample(self, x: T, factor: int) -> T:
        """Repeat each pixel."""

    def cat(self, parts: Sequence[T]) -> T:
        """Join channels."""

    def add(self, x: T, y: T) -> T:
        """The sum."""

    def multiply(self, x: T, y: T, activation: str) -> T:
        """The product of x and of an activation of y, broadcast."""

    def sequence(self, x: T) -> T:
        """Images of height 1 as sequences along the width."""


class Declaration:
    """Layers that compute nothing and collect random weights, each a number of bf16, so that all dtypes hold them."""

    def __init__(self) -> None:
        self.weights: dict[str, Array] = {}
        self._generator = np.random.default_rng(0)

    def conv(
        self,
        x: None,
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
        residual: None = None,
    ) -> None:
        height, width = (size, size) if isinstance(size, int) else size
        terms = inputs // groups * height * width
        self._add(f"{name}.weight", (outputs, inputs // groups, height, width), (2 / terms) ** 0.5)
        if norm:
            self._add(f"{name}.norm.weight", (outputs,), 0.1, 1.0)
            self._add(f"{name}.norm.bias", (outputs,), 0.1)
            self._add(f"{name}.norm.running_mean", (outputs,), 0.1)
            self._add(f"{name}.norm.running_var", (outputs,), 0.0, 1.0)
        else:
            self._add(f"{name}.bias", (outputs,), 0.1)

    def transposed_conv(self, x: None, name: str, inputs: int, outputs: int, activation: str = "") -> None:
        self._add(f"{name}.weight", (inputs, outputs, 2, 2), inputs**-0.5)
        self._add(f"{name}.bias", (outputs,), 0.1)

    def linear(self, x: None, name: str, inputs: int, outputs: int, activation: str = "") -> None:
        self._add(f"{name}.weight", (outputs, inputs), inputs**-0.5)
        self._add(f"{name}.bias", (outputs,), 0.1)

    def lstm(self, x: None, name: str, inputs: int, units: int, layers: int, directions: int = 1) -> None:
        for layer in range(layers):
            for direction in ("", "_reverse")[:directions]:
                width = inputs if layer == 0 else units * directions
                for kind, shape in (("weight_ih", (width,)), ("weight_hh", (units,)), ("bias_ih", ()), ("bias_hh", ())):
                    self._add(f"{name}.{kind}_l{layer}{direction}", (4 * units, *shape), units**-0.5)

    def _ignore(self, *arguments: object, **named: object) -> None:
        """A layer without weights."""

    max_pool = mean = upsample = cat = add = multiply = sequence = _ignore

    def _add(self, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> None:
        array = self._generator.standard_normal(shape, np.float32) * np.float32(deviation) + np.float32(mean)
        self.weights[name] = array.astype(ml_dtypes.bfloat16).astype(np.float32)
