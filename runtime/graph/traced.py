"""Functions that are traced: what stands for their tensors and numbers, and what they compute."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any, Final, NoReturn

from ...device import Device
from ...dtype import DType
from ...kernels.constants import ELEMENTWISE_METHODS, ROWS
from ...op import MethodOp
from ...storage import Storage
from ..base.error import FusionError, ShapeMismatch
from ..core import argument, check
from ..core.layout import Layout
from ..core.shape import Shape
from ..program.fused_function import (
    FusedFunction,
    IndexOp,
    Number,
    Result,
    Source,
    Step,
    TotalOp,
)
from ..storage.calls import TRACED, require_same_dtype
from ..tensor import Tensor
from ..tensor.base import TensorBase
from ..tensor.number import as_number
from .traced_convolution import Convolution, traced_convolution
from .traced_number import TracedNumber
from .traced_rows import (
    CHANGES_SHAPE,
    FOREIGN,
    require_dtype,
    traced_gather,
    traced_ratio,
    traced_reduction,
    traced_row,
    with_dims,
    without,
)

_PACKAGE: Final = __name__.partition(".")[0]
_READS: Final = ("reads elements", "use where instead of if, or compute the number before and pass it")
# Why storage methods cannot be in a kernel of elementwise ops, where there is more to say than that.
_REASONS: Final = {
    "to_numpy": _READS,
    **dict.fromkeys(
        ("binary_assign", "assign", "const_set", "copy_strided_src", "copy2d", "scatter_set", "scatter_add"),
        ("writes in place", "write x = x + y instead of x += y"),
    ),
}
_OTHER: Final = ("is no elementwise op", "call it outside of the fused function")


class Trace:
    """One run of a function with what stands for its arguments."""

    def __init__(
        self, name: str, device: Device, number_arguments: Sequence[float], *, adds_up_rows: bool = False
    ) -> None:
        self.name = name
        self.adds_up_rows = adds_up_rows
        """Whether row ops may compute totals: elements have storages for what they add to these."""
        self.device = device
        self.number_arguments = number_arguments
        """The numbers among the function's arguments."""
        self.read: set[int] = set()
        """The positions of numbers that decided a branch of the function."""
        self.sources: dict[Source, str] = {}
        self.numbers: dict[str, Number] = {}
        self.steps: list[Step] = []
        self.convolutions: list[Convolution] = []
        self.tensors: list[Layout] = []
        """Those of the arguments."""
        self._constants: dict[tuple[object, ...], str] = {}
        self._computed: dict[Step, Step] = {}
        self._prefix = ""

    @classmethod
    def after(
        cls,
        function: FusedFunction,
        tensors: Iterable[Layout],
        sources: Mapping[str, Source],
        number_arguments: Sequence[float],
    ) -> Trace:
        """A trace that goes on where a function ends, of more tensors; what is a source need not be computed."""
        trace = cls(function.name, Device.cpu(), number_arguments, adds_up_rows=True)
        trace.sources = {source: name for name, source in sources.items()}
        trace.numbers = dict(function.numbers)
        trace.steps = [step for step in function.steps if sources.keys().isdisjoint(step.names)]
        trace.tensors = [*tensors]
        trace._constants = {
            (repr(it.value), type(it.value), it.dtype): name
            for name, it in function.numbers.items()
            if not callable(it.value)
        }
        trace._computed = {step._replace(name=""): step for step in function.steps}
        trace._prefix = "d"
        return trace

    def proxies(self, arguments: Iterable[Any]) -> list[Any]:
        """The objects that replace tensors and numbers in a call of the function; a method's object is unchanged."""
        proxies: list[Any] = []
        numbers = count()
        for value in arguments:
            if isinstance(value, Tensor):
                storage = TracedStorage.create(self, value.dtype, position=len(self.tensors))
                proxies.append(TracedTensor.of_argument(storage, value.layout))
                self.tensors.append(value.layout)
            elif type(value) not in (int, float):
                proxies.append(value)
            else:
                index = next(numbers)
                proxies.append(TracedNumber(self, itemgetter(index), frozenset((index,))))
        return proxies

    def number(self, value: object, dtype: DType, check: Callable[[Any], complex]) -> str:
        """The name of a number of `dtype`, which may depend on the number arguments."""
        if isinstance(value, TracedNumber):
            find = value.find
            check(value.value)
            name = f"{self._prefix}n{len(self.numbers)}"
            self.numbers[name] = Number(dtype, lambda numbers: check(find(numbers)))
            return name
        known = check(value)
        key = repr(known), type(known), dtype
        if key not in self._constants:
            self._constants[key] = name = f"{self._prefix}n{len(self.numbers)}"
            self.numbers[name] = Number(dtype, known)
        return self._constants[key]

    def step(self, step: Step) -> Step:
        """A step with a name: the same one for what is computed again."""
        known = self._computed.get(step)
        if known is None:
            known = self._computed[step] = step._replace(name=f"{self._prefix}v{len(self.steps)}")
            self.steps.append(known)
        return known

    def source(self, source: Source) -> str:
        """The name of what an argument shows."""
        return self.sources.setdefault(source, f"x{len(self.sources)}")

    def source_of(self, name: str) -> Source | None:
        """The source that has a name."""
        return next((source for source, own in self.sources.items() if own == name), None)

    def step_of(self, name: str) -> Step | None:
        """The step that computes what has a name."""
        return next((step for step in self.steps if name in step.names), None)

    def convolution_of(self, name: str) -> Convolution | None:
        """The convolution that computes what has a name."""
        return next((convolution for convolution in self.convolutions if convolution.name == name), None)

    def storage_of(self, name: str) -> TracedStorage:
        """The storage of a source, a number or a step's result, by name."""
        source, step = self.source_of(name), self.step_of(name)
        if source is not None:
            return TracedStorage.create(self, source.dtype, position=source.position)
        if step is None:
            return TracedStorage.create(self, self.numbers[name].dtype, name=name)
        return TracedStorage.create(self, step.dtype_of(name), name=name, shape=step.result_shape)

    def parameters(self, op: MethodOp, dtype: DType, numbers: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the parameters of an op of operands of a dtype."""
        checks = [(value, partial(argument.number, op.value, name)) for name, value in numbers.items()]
        return tuple([self.number(value, dtype.compute, check) for value, check in checks])

    def results(self, tensors: Sequence[TracedTensor]) -> list[Result]:
        """Describe tensors as results."""
        shown = [(it._storage, it.source_layout) for it in tensors]
        return [Result(it.named(layout), it.dtype, layout) for it, layout in shown]

    def function(self, tensors: Sequence[TracedTensor]) -> FusedFunction:
        """Describe the function that computes tensors."""
        return self.function_of(self.results(tensors))

    def function_of(self, results: Sequence[Result]) -> FusedFunction:
        """Describe the function that has results."""
        sources = {name: source for source, name in sorted(self.sources.items(), key=lambda item: item[0].position)}
        return FusedFunction(self.name, self.tensors, sources, self.numbers, self.steps, results).in_memory_order()

    def refuse(self, reason: tuple[str, str]) -> NoReturn:
        """Raise FusionError, which names the line of the function's code that did something and what it called."""
        frame, called = sys._getframe(1), []
        while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            called.append(frame.f_code.co_name)
            frame = frame.f_back
        op = next((name for name in reversed(called) if hasattr(Tensor, name)), called[-1])
        location = frame.f_code.co_filename, frame.f_lineno
        raise FusionError(self.name, *location, op.removeprefix("__").removesuffix("__"), *reason)


class _Inner:
    """A proxy of a backend's storage."""

    kind = TRACED
    length = 0

    def __init__(self, trace: Trace, dtype: DType) -> None:
        self.trace = trace
        self.dtype = dtype

    def __getattr__(self, name: str) -> NoReturn:
        if name == "device":  # of which a storage asks that is none of the function's
            self.trace.refuse(FOREIGN)
        raise AttributeError(name)


class TracedStorage(Storage):
    """Stands for the storage of an argument or of what was computed. Only elementwise ops make another of it."""

    __slots__ = ("dims", "name", "position", "shape")

    is_recorded = False
    is_wrapped = False

    inner: _Inner  # type: ignore[assignment]
    name: str
    position: int | None
    """The position of the argument; None for a computed storage."""
    shape: Shape
    """That of what was computed."""
    dims: tuple[int, ...]
    """The dims of that shape which were reduced to size 1; tensors may show it without them."""

    @classmethod
    def create(
        cls,
        trace: Trace,
        dtype: DType,
        *,
        name: str = "",
        position: int | None = None,
        shape: Shape | None = None,
        dims: tuple[int, ...] = (),
    ) -> TracedStorage:
        """A storage of an argument, or of what has a name in the trace."""
        storage = object.__new__(cls)
        storage.inner = _Inner(trace, dtype)
        storage.name = name
        storage.position = position
        storage.shape = Shape(()) if shape is None else shape
        storage.dims = dims
        return storage

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.inner.dtype

    @property
    def device(self) -> Device:
        """The device of the function's arguments."""
        return self.inner.trace.device

    def named(self, layout: Layout) -> str:
        """The name of the elements that a layout shows."""
        if self.position is None:
            return self.name
        return self.inner.trace.source(Source(self.position, self.inner.dtype, layout))

    def layout_of(self, layout: Layout) -> Layout:
        """The layout of a traced tensor of this storage, without the gaps that `of_argument` leaves."""
        if self.position is None:
            return layout
        steps, first = tuple([step // 2 for step in layout.strides]), layout.start_offset // 2
        return Layout._trusted(layout.shape, steps, first)

    def shows(self, layout: Layout) -> bool:
        """Whether a layout shows what was computed, or that broadcast; of an argument it may show anything."""
        if self.position is not None or self.is_without_dims(layout):
            return True
        try:
            full = Layout.contiguous(self.shape).broadcast_as(layout.shape)
        except ShapeMismatch:
            return False
        return _steps(layout) == _steps(full)

    def is_without_dims(self, layout: Layout) -> bool:
        """Return True for a layout of what was computed without the dims that were reduced."""
        is_whole = layout.is_contiguous and not layout.start_offset
        return bool(self.dims) and is_whole and layout.shape == without(self.shape, self.dims)

    def traced_map(self, method: str, arguments: Mapping[str, Any]) -> Any:
        """The result of an elementwise storage method, after the checks that the method makes."""
        trace = self.inner.trace
        storages: list[TracedStorage] = [self]
        layouts: list[Layout] = []
        numbers: dict[str, Any] = {}
        op: Any = arguments["op"] if "op" in arguments else MethodOp(method)
        target: DType | None = None
        for name, value in arguments.items():
            if isinstance(value, TracedStorage):
                storages.append(value)
            elif isinstance(value, Storage):
                trace.refuse(FOREIGN)
            elif isinstance(value, Layout):
                layouts.append(value)
            elif isinstance(value, DType):
                target = value
            elif value is not op:
                numbers[name] = value
        first, *others = storages[1:] if op.moves else storages
        dims, layouts = self._with_dims(storages, layouts)
        require_dtype(first, op, op.dtypes)
        if op.moves:
            require_dtype(self, op, op.conditions)
        if target is not None:
            check.keeps_parts(op.value, self, target)
        require_same_dtype(op.value, first, *others)
        check.same_shape(op.value, *layouts)
        dtype = op.result_of(first.dtype) if target is None else target
        operands = tuple([storage.named(layout) for storage, layout in zip(storages, layouts, strict=True)])
        parameters = trace.parameters(op, first.dtype, numbers)
        step = trace.step(Step("", op, operands, tuple(layouts), parameters, first.dtype, dtype))
        return self.create(trace, dtype, name=step.name, shape=step.shape, dims=dims)

    def _with_dims(self, storages: list[TracedStorage], layouts: list[Layout]) -> tuple[tuple[int, ...], list[Layout]]:
        """Return the dims of a result that were reduced, and the layouts with them where operands lack them."""
        pairs = [*zip(storages, layouts, strict=True)]
        for storage, layout in pairs:
            if storage.is_without_dims(layout):
                storages[:] = [other._lifted(storage.dims) for other in storages]
                pairs = [(other, with_dims(each, storage.dims)) for other, each in zip(storages, layouts, strict=True)]
                break
        for storage, layout in pairs:
            if storage.dims and not storage.shows(layout):
                self.inner.trace.refuse(CHANGES_SHAPE)
        dims = next((it.dims for it, layout in pairs if it.dims and layout.shape == it.shape), ())
        return dims, [layout for _, layout in pairs]

    def _lifted(self, dims: tuple[int, ...]) -> TracedStorage:
        """A computed storage, expanded by dims that its arguments lack."""
        trace = self.inner.trace
        step = trace.step_of(self.name)
        if self.dims == dims or step is None:
            return self
        if self.dims or step.dim is not None:
            trace.refuse(CHANGES_SHAPE)
        storages = [trace.storage_of(name)._lifted(dims) for name in step.operands]
        layouts = [with_dims(layout, dims) for layout in step.layouts]
        operands = [storage.named(layout) for storage, layout in zip(storages, layouts, strict=True)]
        lifted = trace.step(step._replace(name="", operands=tuple(operands), layouts=tuple(layouts)))
        return self.create(trace, self.dtype, name=lifted.name, shape=lifted.shape, dims=dims)


def _steps(layout: Layout) -> tuple[Shape, list[int], int]:
    """The steps of a layout along dims in which there are any."""
    steps = [step for size, step in zip(layout.shape, layout.strides, strict=True) if size > 1]
    return layout.shape, steps, layout.start_offset


# What is traced besides maps and the ops of rows.
_TRACED: Final = {
    **dict.fromkeys(("convolution", "fused_convolution"), traced_convolution),
    **dict.fromkeys(("reduce_op", "var", "std"), traced_reduction),
    IndexOp.GATHER.value: traced_gather,
    TotalOp.RATIO_OF_SUMS.value: traced_ratio,
}


def _kept(method: str) -> Callable[..., Any]:
    code = getattr(Storage, method).__code__
    names = code.co_varnames[1 : code.co_argcount]
    trace: Callable[[TracedStorage, str, Mapping[str, Any]], Any] = _TRACED.get(method) or (
        traced_row if method in ROWS else TracedStorage.traced_map
    )

    def traced(self: TracedStorage, *arguments: Any) -> Any:
        storages = iter([self, *[value for value in arguments if isinstance(value, Storage)]])
        values = [_layout_of(next(storages), value) if isinstance(value, Layout) else value for value in arguments]
        return trace(self, method, dict(zip(names, values, strict=True)))

    return traced


def _layout_of(storage: Storage, layout: Layout) -> Layout:
    return storage.layout_of(layout) if isinstance(storage, TracedStorage) else layout


def _refused(method: str) -> Callable[..., NoReturn]:
    return lambda self, *_, **__: self.inner.trace.refuse(_REASONS.get(method, _OTHER))


for _name, _method in inspect.getmembers(Storage, inspect.isfunction):
    if not _name.startswith("_"):
        # The gradient of a fused function is derived from all of it at once, not op by op.
        _is_row = _name in ROWS and not ROWS[_name].numbers
        _is_kept = _name in ELEMENTWISE_METHODS or _is_row or _name in _TRACED
        setattr(TracedStorage, _name, (_kept if _is_kept else _refused)(_name))


class TracedTensor(Tensor):
    """Stands for a tensor."""

    __slots__ = ()

    _storage: TracedStorage

    @classmethod
    def of_argument(cls, storage: TracedStorage, layout: Layout) -> Any:
        """A tensor that stands for an argument.

        There are gaps between its elements, so that no elementwise op reorders its dims: ops along a dim follow.
        """
        steps = tuple([2 * step for step in layout.strides])
        return cls._new(storage, Layout._trusted(layout.shape, steps, 2 * layout.start_offset))

    @property
    def source_layout(self) -> Layout:
        """Where the elements are in the storage of the argument, or of what was computed: without gaps."""
        return self._storage.layout_of(self._layout)

    def is_contiguous(self) -> bool:
        """Return True if the elements are contiguous in row-major order."""
        return self.source_layout.is_contiguous

    def contiguous(self, memory_format: str = "contiguous") -> Any:
        """Return the tensor itself if it is contiguous in row-major order."""
        return self if memory_format == "contiguous" and self.is_contiguous() else super().contiguous(memory_format)

    @classmethod
    def _new(cls, storage: Storage, layout: Layout) -> Any:
        if not isinstance(storage, TracedStorage):  # refused where it meets what is traced
            return Tensor._new(storage, layout)
        if not storage.shows(layout):
            storage.inner.trace.refuse(CHANGES_SHAPE)
        return super()._new(storage, layout)

    def _view(self, layout: Layout) -> Any:
        return self if layout is self._layout else self._new(self._storage, layout)

    def _number(self, op: str, other: object, name: str = "other", dtype: DType | None = None) -> Storage:
        trace, chosen = self._storage.inner.trace, dtype or self.dtype
        named = trace.number(other, chosen, lambda value: as_number(op, value, chosen, name=name))
        return TracedStorage.create(trace, chosen, name=named)

    def where(self, on_true: Any, on_false: Any) -> Any:
        """Choose between elements; the types of two numbers, which are read, decide the dtype."""
        if isinstance(on_true, TracedNumber) and not isinstance(on_false, TensorBase):
            on_true = on_true.read()
        if isinstance(on_false, TracedNumber) and not isinstance(on_true, TensorBase):
            on_false = on_false.read()
        return super().where(on_true, on_false)

    def item(self) -> NoReturn:
        """Refused: there are no elements."""
        self._storage.inner.trace.refuse(_READS)

    def __pow__(self, exponent: Any) -> Any:
        # By its value the op is chosen.
        return super().__pow__(exponent.read() if isinstance(exponent, TracedNumber) else exponent)
