"""`vmap`: a function of one example runs on all examples of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from ...batching import BATCHING as BATCHING
from ..base.error import BatchingError, InvalidArgument, ShapeMismatch, describe
from ..core.layout import Layout
from ..helpers.nested import leaves, mapped
from ..storage.calls import RECORDED
from ..tensor import Tensor
from ..tensor.batch import Level, batched, depth_of, is_at, levels, set_levels, stacked

P = ParamSpec("P")
R = TypeVar("R")

_RANDOMNESS: Final = ("error", "different", "same")


def vmap(function: Callable[P, R], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error") -> Callable[P, R]:
    """Make a function of one example run on a batch: each op is called once, for all examples together.

    `in_dims` says along which dim each argument holds the examples: an integer for all, or a tuple with one for each
    argument, in which None stands for what all examples share, and a list, tuple or dict for the items of such an
    argument. Numbers, and arguments by keyword, are shared. The function gives tensors, in lists, tuples and dicts; the
    examples are along `out_dims` of them.

    The results are those of a loop, up to rounding: `tl.stack([f(x) for x in batch])`. Gradients go through, and
    `vmap(value_and_grad(f))` gives those of each example. An op that has no rule for batches, and what needs to read
    elements, raises BatchingError. So do random draws, unless `randomness` is "different", for numbers of each example
    from one draw for all of the batch, or "same", for numbers that all share.

    >>> products = tl.vmap(lambda x, y: (x * y).sum(), in_dims=(0, None))
    >>> products(tl.Tensor([[1.0, 2.0], [3.0, 4.0]]), tl.Tensor([1.0, 10.0]))
    Tensor([21., 43.], dtype=f32)
    """
    if not callable(function):
        raise InvalidArgument("vmap", f"function must be a function, not {describe(function)}")
    if randomness not in _RANDOMNESS:
        raise InvalidArgument("vmap", f"randomness is one of {', '.join(_RANDOMNESS)}, not {describe(randomness)}")
    _require_dims("in_dims", in_dims)
    _require_dims("out_dims", out_dims)

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        dims = in_dims if isinstance(in_dims, list | tuple) else (in_dims,) * len(arguments)
        if len(dims) != len(arguments):
            reason = f"in_dims has {len(dims)} items for {len(arguments)} arguments; give one for each"
            raise InvalidArgument("vmap", reason)
        pairs = list(_pairs(tuple(arguments), tuple(dims)))
        sizes = {x.shape[_dim(x, dim)] for x, dim in pairs if isinstance(x, Tensor) and dim is not None}
        if not sizes:
            raise InvalidArgument("vmap", "no argument is a batch; see in_dims")
        if len(sizes) != 1:
            shapes = [x.shape for x, dim in pairs if isinstance(x, Tensor) and dim is not None]
            raise ShapeMismatch("vmap", tuple(shapes), "all batched arguments have as many examples")
        with _level(sizes.pop(), randomness) as level:
            examples = iter([_example(x, dim, level) for x, dim in pairs])
            results = function(*mapped(lambda _: next(examples), tuple(arguments)), **named)
            outputs = list(leaves(results))
            out = out_dims if isinstance(out_dims, int) else [dim for _, dim in _pairs(results, out_dims)]
            ends = iter([out] * len(outputs) if isinstance(out, int) else out)
            batched_results: R = mapped(lambda x: _joined(x, next(ends), level), results)
        return batched_results

    return call


def _require_dims(name: str, dims: Any) -> None:
    if isinstance(dims, Mapping | list | tuple):
        for each in dims.values() if isinstance(dims, Mapping) else dims:
            _require_dims(name, each)
    elif dims is not None and type(dims) is not int:
        reason = f"{name} is an integer or None, or nested lists, tuples and dicts of these, not {describe(dims)}"
        raise InvalidArgument("vmap", reason)


def _pairs(values: Any, dims: Any) -> Iterator[tuple[Any, int | None]]:
    """Pair each leaf of nested values with its dim; one dim stands for all items of a list, a tuple or a dict."""
    if isinstance(values, Mapping):
        items, names = list(values.values()), list(values)
        own = [dims[name] for name in names] if isinstance(dims, Mapping) and set(dims) == set(names) else None
    elif isinstance(values, list | tuple):
        items = list(values)
        own = list(dims) if isinstance(dims, list | tuple) and len(dims) == len(items) else None
    else:
        if dims is not None and type(dims) is not int:
            raise InvalidArgument("vmap", f"a dim is an integer or None, not {describe(dims)}")
        yield values, dims
        return
    if own is None and dims is not None and type(dims) is not int:
        reason = f"dims are an integer, None, or nested as the values are, not {describe(dims)} for {describe(values)}"
        raise InvalidArgument("vmap", reason)
    for item, dim in zip(items, own or [dims] * len(items), strict=True):
        yield from _pairs(item, dim)


def _dim(x: Tensor, dim: int) -> int:
    return x.shape.dim("vmap", dim)


@contextmanager
def _level(size: int, randomness: str) -> Iterator[Level]:
    around = levels()
    level = Level(len(around) + 1, size, randomness)
    try:
        set_levels((*around, level))
        yield level
    finally:
        set_levels(around)


def _example(x: Any, dim: int | None, level: Level) -> Any:
    """One example of an argument, which stands for all."""
    if not isinstance(x, Tensor) or dim is None:
        return x
    first = x.movedim(_dim(x, dim), 0) if _dim(x, dim) else x
    layout = first._layout
    if not layout.is_contiguous or layout.start_offset or layout.elem_count != first._storage.inner.length:
        first = first.copy()
    return Tensor._new(batched(first._storage, level), Layout.contiguous(first.shape[1:]))


def _joined(x: Any, dim: int | None, level: Level) -> Any:
    """Return the results of all examples, from the tensor that stands for one."""
    if not isinstance(x, Tensor):
        raise BatchingError("vmap", f"the function gives tensors, also in lists, tuples and dicts, not {describe(x)}")
    storage: Any = x._storage
    if storage.inner.kind == RECORDED and depth_of(storage) > 2 * level.depth:
        # How it was computed of variables of this call ends with it.
        storage = storage.value
    if dim is None:
        if is_at(storage, level):
            raise InvalidArgument("vmap", "a result of which out_dims says None differs between examples; give its dim")
        return Tensor._new(storage, x._layout)
    every = Tensor._new(*stacked(storage, x._layout, level))
    every = every if is_at(storage, level) and storage.inner.step else every.copy()
    target = Layout.contiguous(every.shape).shape.dim("vmap", dim)
    return every.movedim(0, target) if target else every
