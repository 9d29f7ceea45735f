"""Epilogues of traced convolutions: which of the maps after a convolution it computes itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...dtype import DType
from ...op import BinaryOp, MethodOp, UnaryOp
from ..core.layout import Layout
from ..program.fused_function import Result, Step
from .traced import Trace
from .traced_convolution import Convolution, Shown


def with_epilogues(trace: Trace, results: Sequence[Result]) -> list[Convolution]:
    """Move the maps after convolutions into them where nothing else reads what they compute of.

    These are a scale and a bias of the channels, as of a batch norm in inference, a residual, and an activation, which
    a convolution computes in its compute dtype and rounds once. What takes more than a kernel on the device stays.
    """
    uses = Counter([result.name for result in results])
    readers: dict[str, Step] = {}
    for step in trace.steps:
        uses.update(step.operands)
        readers |= dict.fromkeys(step.operands, step)
    for convolution in trace.convolutions:
        uses.update([shown.name for shown in convolution.operands if shown is not None])
    taken: set[str] = set()
    fused = []
    for convolution in trace.convolutions:
        chain = _Chain(trace, convolution)
        while uses[chain.name] == 1 and chain.name in readers:
            step = readers[chain.name]
            if step.name in taken or not chain.take(step):
                break
        extended, device = chain.longest, trace.device.inner
        what = extended.dtype, extended.params, extended.activation
        if extended is convolution or not device.has_epilogue(*what, extended.residual is not None):
            extended = convolution
        else:
            taken |= chain.steps
        fused.append(extended)
    return fused


class _Chain:
    """The maps after a convolution, one after the other, as far as they are an epilogue."""

    def __init__(self, trace: Trace, convolution: Convolution) -> None:
        self._trace = trace
        self._now = convolution
        self.name = convolution.name
        """The value that the epilogue computes so far, in some float dtype."""
        self.longest = convolution
        """The convolution with what gives a value of its own dtype."""
        self.steps: set[str] = set()

    def take(self, step: Step) -> bool:
        """Add a step that reads the value; False for what is no part of an epilogue."""
        convolution = self._now
        dtypes = convolution.dtype, convolution.dtype.compute
        is_map = step.dim is None and step.results == 1 and step.shape == convolution.shape
        if not is_map or not convolution.dtype.is_float or step.dtype not in dtypes:
            return False
        extended: Convolution | None = None
        if step.op is MethodOp.TO_DTYPE:
            extended = convolution
        elif convolution.activation is None:
            if isinstance(step.op, BinaryOp):
                extended = self._joined(step)
            elif isinstance(step.op, UnaryOp):
                extended = convolution._replace(activation=step.op.value)
        if extended is None:
            return False
        self._now, self.name = extended, step.name
        self.steps.add(step.name)
        if step.dtype is convolution.dtype:
            self.longest = extended._replace(name=step.name)
        return True

    def _joined(self, step: Step) -> Convolution | None:
        """The convolution with an operand of a step more: a vector along the channels, or a residual."""
        convolution, (left, right) = self._now, step.operands
        if left == right or convolution.residual is not None:
            return None
        position = 1 if left == self.name else 0
        other = Shown(step.operands[position], step.layouts[position])
        is_commutative = step.op in (BinaryOp.ADD, BinaryOp.MUL)
        if not is_commutative and (position == 0 or step.op not in (BinaryOp.SUB, BinaryOp.DIV)):
            return None
        vector = self._vector(other)
        if vector is None:
            residual = self._residual(other) if step.op is BinaryOp.ADD else None
            return residual and convolution._replace(residual=residual)
        scale, bias = convolution.scale, convolution.bias
        if step.op is BinaryOp.ADD or step.op is BinaryOp.SUB:
            absent = None if step.op is BinaryOp.ADD else UnaryOp.NEG
            return convolution._replace(bias=self._applied(step.op, bias, vector, absent))
        absent = None if step.op is BinaryOp.MUL else UnaryOp.RECIP
        scaled = self._applied(step.op, scale, vector, absent)
        return convolution._replace(scale=scaled, bias=bias and self._applied(step.op, bias, vector, None))

    def _applied(self, op: BinaryOp, before: Shown | None, vector: Shown, absent: UnaryOp | None) -> Shown:
        """A scale or a bias after an op with a vector; where there was none, the vector itself or an op of it."""
        if before is None:
            return vector if absent is None else self._step(absent, self._wide(vector))
        return self._step(op, self._wide(before), self._wide(vector))

    def _wide(self, vector: Shown) -> Shown:
        wide = self._now.dtype.compute
        is_wide = self._dtype_of(vector.name) is wide
        return vector if is_wide else self._step(MethodOp.TO_DTYPE, vector)

    def _step(self, op: Any, *operands: Shown) -> Shown:
        """A step of vectors that gives the compute dtype."""
        wide, dtype = self._now.dtype.compute, self._dtype_of(operands[-1].name)
        names, layouts = zip(*operands, strict=True)
        step = self._trace.step(Step("", op, names, layouts, (), dtype, wide))
        return Shown(step.name, step.layouts[-1].dense)

    def _dtype_of(self, name: str) -> DType:
        trace = self._trace
        if name in trace.numbers:
            return trace.numbers[name].dtype
        step = trace.step_of(name)
        if step is not None:
            return step.dtype_of(name)
        origin = trace.source_of(name) or trace.convolution_of(name)
        assert origin is not None, "each operand is a number, a source, a step or a convolution"
        return origin.dtype

    def _residual(self, shown: Shown) -> Shown | None:
        """An operand of all elements in the dtype of the convolution, before it was converted to the compute dtype."""
        step = self._trace.step_of(shown.name)
        if step is not None and step.op is MethodOp.TO_DTYPE:
            shown = Shown(step.operands[0], step.layouts[0])
        is_same = self._dtype_of(shown.name) is self._now.dtype and shown.layout.shape == self._now.shape
        return shown if is_same and shown.name not in self._trace.numbers else None

    def _vector(self, shown: Shown) -> Shown | None:
        """An operand as a vector along the channels; None where it is none, or only of numbers."""
        channels, dims = self._now.shape[1], [dim for dim in range(len(self._now.shape)) if dim != 1]
        if any(shown.layout.strides[dim] and shown.layout.shape[dim] > 1 for dim in dims):
            return None
        vector = self._along_channels(shown, 1, channels)
        return vector if vector is not None and self._reads_tensors(vector.name) else None

    def _along_channels(self, shown: Shown, dim: int | None, channels: int) -> Shown | None:
        """The elements along one dim, or one element for all; None of what is more than maps of such operands."""
        trace, layout = self._trace, shown.layout
        stride = 0 if dim is None else layout.strides[dim]
        if shown.name in trace.numbers:
            return Shown(shown.name, Layout((channels,), (0,)))
        source = trace.source_of(shown.name)
        if source is not None:
            vector_layout = Layout((channels,), (stride,), layout.start_offset)
            return Shown(trace.source(source._replace(layout=vector_layout)), vector_layout)
        step = trace.step_of(shown.name)
        if step is None:  # a convolution
            return None
        if step.dim is not None or step.results > 1:
            return None
        if step.shape.elem_count not in (1, channels):
            return None
        along = next((dim for dim, size in enumerate(step.shape) if size > 1), None)
        parts = [
            self._along_channels(Shown(*it), along, channels) for it in zip(step.operands, step.layouts, strict=True)
        ]
        operands = [part for part in parts if part is not None]
        if len(operands) < len(parts):
            return None
        names, layouts = zip(*operands, strict=True)
        computed = trace.step(step._replace(name="", operands=names, layouts=layouts))
        return Shown(computed.name, computed.layouts[-1].dense)

    def _reads_tensors(self, name: str) -> bool:
        step = self._trace.step_of(name)
        return name not in self._trace.numbers if step is None else any(map(self._reads_tensors, step.operands))
