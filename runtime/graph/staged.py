"""Fused functions with convolutions: fused functions of maps and rows, and the convolutions between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...dtype import DType
from ...storage import Storage
from ..core.layout import Layout, layout_of
from ..program.fused_function import FusedFunction, Result, Source, Step
from .epilogue import with_epilogues
from .traced import Trace
from .traced_convolution import Convolution, Shown


class Stage(NamedTuple):
    """A call: the positions of its operands among the arguments and what earlier stages compute; None of no operand."""

    operands: tuple[int | None, ...]
    function: FusedFunction | ConvolutionCall
    released: tuple[int, ...] = ()
    """The positions of values that no later stage reads."""


class ConvolutionCall(NamedTuple):
    """The arguments of a convolution besides its operands."""

    layouts: tuple[Any, ...]
    """Those of input, kernel, scale, bias and residual; None of what there is not."""
    activation: str | None
    params: Any

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Return the result of the backend."""
        x, kernel, *others = [None if inner is None else Storage._new(inner) for inner in operands]
        assert x is not None and kernel is not None, "a convolution has two operands"
        layout, kernel_layout, *shown = self.layouts
        if self.activation is None and others == [None] * 3:
            return x.convolution(layout, kernel, kernel_layout, self.params).inner
        epilogue = [part for pair in zip(others, shown, strict=True) for part in pair]
        fuse: Any = x.fused_convolution
        return fuse(layout, kernel, kernel_layout, *epilogue, self.activation, self.params).inner


class StagedFunction:
    """A fused function with convolutions: see `FusedFunction`."""

    computed_numbers: tuple[()] = ()
    """It has no program of its own that takes numbers."""

    def __init__(self, stages: Sequence[Stage], results: Sequence[int], layouts: list[Layout]) -> None:
        self.stages = stages
        self.results = results
        self.layouts = layouts
        """Those of the results."""

    @property
    def functions(self) -> list[FusedFunction]:
        """The fused functions among the stages."""
        return [stage.function for stage in self.stages if isinstance(stage.function, FusedFunction)]


def functions_of(function: FusedFunction | StagedFunction) -> list[FusedFunction]:
    """The functions of maps and rows that a function consists of."""
    return function.functions if isinstance(function, StagedFunction) else [function]


def staged(trace: Trace, results: Sequence[Result], *, is_precise: bool) -> StagedFunction:
    """Divide what was traced into stages. Epilogues of convolutions change bits: only without `is_precise`."""
    convolutions = trace.convolutions if is_precise else with_epilogues(trace, results)
    return _Division(trace, convolutions).function(results)


class _Value(NamedTuple):
    """The result of a stage."""

    position: int
    dtype: DType
    layout: Layout

    def viewed(self, layout: Layout) -> Layout:
        """The layout of the elements that the layout of a contiguous value shows."""
        return layout if self.layout.is_contiguous else self.layout.broadcast_as(layout.shape)


class _Division:
    def __init__(self, trace: Trace, convolutions: Iterable[Convolution]) -> None:
        self._trace = trace
        self._convolutions = {convolution.name: convolution for convolution in convolutions}
        self._steps = {name: step for step in trace.steps for name in step.names}
        self._layouts = [*trace.tensors]
        # What is in memory.
        self._values: dict[str, _Value] = {}
        self._stages: list[Stage] = []

    def function(self, results: Sequence[Result]) -> StagedFunction:
        for name in self._needed([result.name for result in results]):
            self._convolve(self._convolutions[name])
        positions: list[int | None] = []
        for result in results:
            value = self._values.get(result.name)
            is_whole = value is not None and result.layout.shape == value.layout.shape
            positions.append(value.position if value is not None and is_whole else None)
        # Results share no memory.
        positions = [None if each in positions[:index] else each for index, each in enumerate(positions)]
        computed = [result for result, position in zip(results, positions, strict=True) if position is None]
        if computed:
            computed_positions = iter(self._compute(computed))
            positions = [next(computed_positions) if position is None else position for position in positions]
        result_positions = [position for position in positions if position is not None]
        return StagedFunction(
            self._released(result_positions),
            result_positions,
            [self._layouts[position] for position in result_positions],
        )

    def _needed(self, names: Iterable[str]) -> list[str]:
        """The convolutions that values in no memory are computed of."""
        left, seen = [*names], set[str]()
        needed: dict[str, None] = {}
        while left:
            name = left.pop()
            if name in seen or name in self._values:
                continue
            seen.add(name)
            if name in self._convolutions:
                needed[name] = None
            elif name in self._steps:
                left += self._steps[name].operands
        return [*needed]

    def _convolve(self, convolution: Convolution) -> None:
        if convolution.name in self._values:
            return
        operands = [shown for shown in convolution.operands if shown is not None]
        for name in self._needed([shown.name for shown in operands]):
            self._convolve(self._convolutions[name])
        computed = dict.fromkeys([it.name for it in operands if it.name in self._steps and it.name not in self._values])
        if computed:
            steps = [(name, self._steps[name]) for name in computed]
            self._compute(
                [Result(name, step.dtype_of(name), Layout.contiguous(step.result_shape)) for name, step in steps]
            )
        arguments = [None if shown is None else self._argument(shown) for shown in convolution.operands]
        positions = [None if it is None else it[0] for it in arguments]
        layouts = tuple([None if it is None else it[1] for it in arguments])
        is_last = layouts[0] is not None and layouts[0].is_channels_last
        params = convolution.params._replace(channels_last=is_last)
        self._add(positions, ConvolutionCall(layouts, convolution.activation, params))
        self._keep(convolution.name, convolution.dtype, layout_of(params.out_dims, is_last))

    def _argument(self, shown: Shown) -> tuple[int, Layout]:
        value = self._values.get(shown.name)
        if value is not None:
            return value.position, value.viewed(shown.layout)
        source = self._trace.source_of(shown.name)
        assert source is not None, "numbers are no operands of convolutions"
        return source.position, shown.layout

    def _compute(self, results: Sequence[Result]) -> list[int]:
        """Add a stage of maps and rows, whose results are values; return their positions."""
        needed, steps = {result.name for result in results}, list[Step]()
        for step in reversed(self._trace.steps):
            if not needed.isdisjoint(step.names) and self._values.keys().isdisjoint(step.names):
                needed.update(step.operands, step.parameters)
                steps.append(step)

        def read(name: str, layout: Layout) -> Shown:
            value = self._values.get(name)
            if value is None:
                return Shown(name, layout)
            layout = value.viewed(layout)
            return Shown(self._trace.source(Source(value.position, value.dtype, layout)), layout)

        own = []
        for step in reversed(steps):
            names, layouts = zip(*map(read, step.operands, step.layouts), strict=True)
            own.append(step._replace(operands=names, layouts=layouts))
        shown = [read(result.name, result.layout) for result in results]
        wanted = [it._replace(name=name, layout=layout) for it, (name, layout) in zip(results, shown, strict=True)]
        sources = {name: source for source, name in self._trace.sources.items()}
        name, numbers = self._trace.name, self._trace.numbers
        function = FusedFunction(name, self._layouts, sources, numbers, own, wanted).in_memory_order()
        positions = sorted({source.position for source in function.sources.values()})
        function = function.of_tensors(positions)
        self._add(positions, function)
        for result, layout in zip(results, function.layouts, strict=True):
            self._keep(result.name, result.dtype, layout)
        return [*range(len(self._layouts) - len(results), len(self._layouts))]

    def _add(self, operands: Iterable[int | None], function: FusedFunction | ConvolutionCall) -> None:
        self._stages.append(Stage(tuple(operands), function))

    def _keep(self, name: str, dtype: DType, layout: Layout) -> None:
        self._values.setdefault(name, _Value(len(self._layouts), dtype, layout))
        self._layouts.append(layout)

    def _released(self, results: Iterable[int]) -> list[Stage]:
        """The stages, each with the values that it reads last."""
        first, used = len(self._trace.tensors), {*results}
        stages: list[Stage] = []
        for stage in reversed(self._stages):
            last = {it for it in stage.operands if it is not None and it >= first} - used
            used |= last
            stages.append(stage._replace(released=tuple(sorted(last))))
        return stages[::-1]
