"""Convolutions that are traced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...dtype import DType
from ..core.conv import ParamsConvolution
from ..core.layout import Layout
from ..core.shape import Shape
from ..storage.calls import require_same_dtype
from .traced_rows import FOREIGN, operand_names


class Shown(NamedTuple):
    """An operand: the name of a source, a number, a step or a convolution, and the layout that shows its elements."""

    name: str
    layout: Layout


class Convolution(NamedTuple):
    """A traced convolution, activation(convolution * scale + bias + residual)."""

    name: str
    """That of the result, contiguous for the steps that read it."""
    dtype: DType
    params: ParamsConvolution
    x: Shown
    kernel: Shown
    scale: Shown | None = None
    bias: Shown | None = None
    residual: Shown | None = None
    activation: str | None = None

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return Shape(self.params.out_dims)

    @property
    def operands(self) -> tuple[Shown | None, ...]:
        """The operands in the order of the storage method."""
        return self.x, self.kernel, self.scale, self.bias, self.residual


def traced_convolution(x: Any, method: str, arguments: Mapping[str, Any]) -> Any:
    """The result of a convolution, which may have been called with an epilogue."""
    trace = x.inner.trace
    operands = {"x": x, **{name: arguments[name] for name in operand_names(method)[1:]}}
    operands = {name: storage for name, storage in operands.items() if storage is not None}
    if not all(isinstance(storage, type(x)) for storage in operands.values()):
        trace.refuse(FOREIGN)
    require_same_dtype(method, x, operands["kernel"])
    shown: dict[str, Any] = {}
    for name, storage in operands.items():
        layout = arguments["layout" if name == "x" else f"{name}_layout"]
        shown[name] = Shown(storage.named(layout), layout)
    params = arguments["params"]._replace(channels_last=is_channels_last(trace, *shown["x"]))
    name = f"c{len(trace.convolutions)}"
    convolution = Convolution(name, x.dtype, params, **shown, activation=arguments.get("activation"))
    trace.convolutions.append(convolution)
    return x.create(trace, x.dtype, name=name, shape=convolution.shape)


def is_channels_last(trace: Any, name: str, layout: Layout) -> bool:
    """Return True if what a layout shows is stored with channels last: computed values have the order of operands."""
    source, step, convolution = trace.source_of(name), trace.step_of(name), trace.convolution_of(name)
    if source is not None:
        return layout.is_channels_last
    if step is not None:
        pairs = zip(step.operands, step.layouts, strict=True)
        return any(is_channels_last(trace, *pair) for pair in pairs if pair[0] not in trace.numbers)
    return convolution is not None and convolution.params.channels_last
