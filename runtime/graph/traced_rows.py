"""Functions that are traced: their reductions and ops of rows."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...dtype import INDEX, DType
from ...kernels.constants import ROW_REDUCTIONS, ROWS
from ...op import BinaryOp, MethodOp
from ...storage import Storage
from ..base.error import UnsupportedDType
from ..core import argument, check
from ..core.conversion import conversion
from ..core.layout import Layout
from ..core.shape import Shape
from ..program.fused_function import ALL, EmptyRowError, IndexOp, Step, TotalOp, reduced_shape
from ..storage.calls import require_same_dtype

CHANGES_SHAPE: Final = (
    "gives what was computed another shape",
    "do it to the arguments of the function or to its result",
)
FOREIGN: Final = ("is given a tensor that is no argument of the function", "make it one")
_OUTSIDE: Final = "reduce outside of the fused function, and pass the result"
_SEVERAL_DIMS: Final = ("joins elements of several dims", _OUTSIDE)
_NO_ROW: Final = ("combines elements as no kernel of rows can", _OUTSIDE)
_OTHER_GATHER: Final = ("chooses other elements than one float of each row", "call it outside of the fused function")


def operand_names(method: str) -> list[str]:
    """The names of the operands of a storage method, of which the first one is the storage itself."""
    names = inspect.signature(getattr(Storage, method)).parameters
    return [name for name in names if name == "self" or f"{name}_layout" in names]


def traced_reduction(x: Any, method: str, arguments: Mapping[str, Any]) -> Any:
    """The result of a reduction along one dim, or of all numbers of rows."""
    trace, numbers = x.inner.trace, dict(arguments)
    layout, dims = numbers.pop("layout"), numbers.pop("dims")
    op: Any = numbers.pop("op", None) or MethodOp(method)
    if x.is_without_dims(layout):
        own = [dim for dim in range(len(x.shape)) if dim not in x.dims]
        dims, layout = tuple([own[dim] for dim in dims]), with_dims(layout, x.dims)
    if op.value not in ROW_REDUCTIONS or not x.dtype.is_float or x.dtype.is_narrow:
        trace.refuse(_NO_ROW)
    is_all = bool(x.dims) and {*x.dims, *dims} == {*range(layout.rank)}
    if len(dims) != 1 and not is_all:
        trace.refuse(_SEVERAL_DIMS)
    dim = ALL if is_all else dims[0]
    if not (layout.elem_count if is_all else layout.shape[dim]):
        raise EmptyRowError
    operands = (x.named(layout),)
    parameters = trace.parameters(op, x.dtype, numbers)
    step = trace.step(Step("", op, operands, (layout,), parameters, x.dtype, x.dtype, dim))
    return x.create(trace, x.dtype, name=step.name, shape=step.result_shape, dims=tuple(sorted({*x.dims, *dims})))


def traced_ratio(x: Any, method: str, arguments: Mapping[str, Any]) -> Any:
    """Trace a ratio of two sums over all numbers of rows."""
    trace, (layout, divisor, divisor_layout, saves) = x.inner.trace, arguments.values()
    if not isinstance(divisor, type(x)):
        trace.refuse(FOREIGN)
    operands, layouts = [], []
    for storage, own in ((x, layout), (divisor, divisor_layout)):
        if not storage.is_without_dims(own) or storage.shape != x.shape:
            trace.refuse(_SEVERAL_DIMS)
        layouts.append(with_dims(own, storage.dims))
        operands.append(storage.named(layouts[-1]))
    require_same_dtype(method, x, divisor)
    step = trace.step(Step("", TotalOp(method), tuple(operands), tuple(layouts), (), x.dtype, x.dtype, ALL, 3))
    outputs = _results(x, step, tuple(range(len(x.shape))))
    return outputs if saves else outputs[:1]


def traced_gather(x: Any, method: str, arguments: Mapping[str, Any]) -> Any:
    """The element of each row along a dim that an index names, after the checks that the method makes."""
    trace, (layout, indexes, shown, dim) = x.inner.trace, arguments.values()
    if not isinstance(indexes, type(x)):
        trace.refuse(FOREIGN)
    if indexes.dtype not in INDEX:
        advice = conversion(indexes.dtype, INDEX)
        reason = "indexes have an integer dtype"
        raise UnsupportedDType(method, indexes.dtype, x.device.backend, reason, advice)
    check.dim_in_range(method, layout, dim)
    check.gather_shapes(method, layout, shown, dim)
    is_float = x.dtype.is_float and not x.dtype.is_narrow
    if not is_float or shown.shape != reduced_shape(layout.shape, dim):
        trace.refuse(_OTHER_GATHER)
    if x.is_without_dims(layout):
        trace.refuse(CHANGES_SHAPE)
    if layout.shape[dim] == 0:
        raise EmptyRowError
    row = shown.broadcast_as(layout.shape)
    operands = x.named(layout), indexes.named(row)
    step = trace.step(Step("", IndexOp.GATHER, operands, (layout, row), (), x.dtype, x.dtype, dim))
    return x.create(trace, x.dtype, name=step.name, shape=step.result_shape, dims=(*x.dims, dim))


def traced_row(x: Any, method: str, arguments: Mapping[str, Any]) -> Any:
    """The result of an op of rows, or a tuple of several, after the checks that the method makes."""
    trace, op, facts, numbers = x.inner.trace, MethodOp(method), ROWS[method], dict(arguments)
    layout = numbers.pop("layout")
    if x.is_without_dims(layout):
        trace.refuse(CHANGES_SHAPE)
    others = [(numbers.pop(name), numbers.pop(f"{name}_layout")) for name in operand_names(method)[1:]]
    storages = [storage for storage, _ in others if storage is not None]
    if not all(isinstance(storage, type(x)) for storage in storages):
        trace.refuse(FOREIGN)
    indexes: Any
    indexes, rows = others.pop() if facts.has_index else (None, None)
    require_dtype(x, op, op.dtypes)
    require_same_dtype(op.value, x, *[storage for storage, _ in others if storage is not None])
    if indexes is not None:
        require_dtype(indexes, op, INDEX)
    vectors = [shown for k, (_, shown) in enumerate(others, 1) if facts.vectors >> k & 1]
    check.same_shape(op.value, layout, *[shown for _, shown in others if shown is not None and shown not in vectors])
    if facts.last_dim:
        check.has_last_dim(op.value, layout)
        dim = layout.rank - 1
    else:
        dim = argument.integer(op.value, "dim", numbers.pop("dim"))
        check.dim_in_range(op.value, layout, dim)
    for vector in vectors:
        check.along_dim(op.value, layout, vector, dim)
    if rows is not None:
        check.has_each_row(op.value, layout, rows, dim)
    if facts.number_results and layout.elem_count == 0:
        raise EmptyRowError
    requested = [numbers.pop(name) for name in [*numbers][: facts.totals]]
    adds_up = any(requested)
    if adds_up and not trace.adds_up_rows:
        trace.refuse(("adds up rows", "do it outside of the fused function"))
    sums: list[Any] = []
    if facts.adds_residual:
        residual, residual_layout = others.pop()
        if residual is not None:
            added = {"op": BinaryOp.ADD, "rhs": residual, "l": layout, "r": residual_layout}
            x = x.traced_map("binary_impl", added)
            layout = layout.dense
            sums.append(x)
    names, layouts = [x.named(layout)], [layout]
    for (storage, shown), absent in zip(others, facts.absent[1:], strict=True):
        if storage is None:
            # The number that changes nothing.
            names.append(trace.number(absent, x.dtype, float))
            layouts.append(layout.repeated)
        else:
            names.append(storage.named(shown := _along(shown, layout.shape, dim)))
            layouts.append(shown)
    ignored = None
    if rows is not None:
        ignored = argument.integer(op.value, "ignore_index", numbers.pop("ignore_index"))
        names.append(indexes.named(shown := rows.unsqueeze(dim).broadcast_as(layout.shape)))
        layouts.append(shown)
    has_saved = numbers.pop("saves") if facts.saved else True
    parameters = trace.parameters(op, x.dtype, numbers)
    results = facts.number_results or facts.results + facts.totals * adds_up
    step = trace.step(Step("", op, tuple(names), tuple(layouts), parameters, x.dtype, x.dtype, dim, results, ignored))
    outputs = _results(x, step, (*x.dims, dim) if step.is_reduction else ())
    if not has_saved:
        outputs = outputs[: -facts.saved]
    return (*outputs, *sums) if facts.outputs > 1 or facts.number_results else outputs[0]


def _results(x: Any, step: Step, dims: tuple[int, ...]) -> tuple[Any, ...]:
    """The results of a step, with the dims that it reduces."""
    trace, shape = x.inner.trace, step.result_shape
    return tuple([x.create(trace, step.dtype_of(name), name=name, shape=shape, dims=dims) for name in step.names])


def require_dtype(x: Any, op: Any, dtypes: frozenset[DType]) -> None:
    """Raise UnsupportedDType for what stands for a storage of another dtype."""
    if x.dtype not in dtypes:
        advice = conversion(x.dtype, dtypes)
        raise UnsupportedDType(op.value, x.dtype, x.device.backend, op.unsupported, advice)


def _along(layout: Layout, shape: Shape, dim: int) -> Layout:
    """A layout in a shape of rows along a dim, where it may be that of a vector along them."""
    if layout.rank == len(shape):
        return layout
    return Layout(shape, [layout.strides[0] if axis == dim else 0 for axis in range(len(shape))], layout.start_offset)


def vector_along(layout: Layout, dim: int) -> Layout:
    """The layout of a vector that `_along` repeats."""
    return Layout(layout.shape[dim : dim + 1], layout.strides[dim : dim + 1], layout.start_offset)


def without(shape: Shape, dims: Sequence[int]) -> Shape:
    """Return a shape without some of its dims."""
    return Shape([size for dim, size in enumerate(shape) if dim not in dims])


def with_dims(layout: Layout, dims: Sequence[int]) -> Layout:
    """Return a layout with dims of size 1 that it lacks."""
    for dim in sorted(dims):
        layout = layout.unsqueeze(dim)
    return layout.dense if layout.is_contiguous and not layout.start_offset else layout
