"""Shapes, joins and parts with NumPy's signatures, where the standard's differ or it has none.

Each has NumPy's names of those parameters that it takes; `protocol` refuses the others.
"""

# ruff: noqa: D103 - they do what NumPy's functions of the same names do

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....dtype import DType
from ...base.error import InvalidArgument
from ...core.argument import integer
from ...tensor import Tensor
from ...tensor import meshgrid as _meshgrid
from ..creation import full
from ..linear_algebra import diagonal as _last_diagonal
from ..linear_algebra import trace as _last_trace
from ..manipulation import Axes, axes_of, concat, flip, moveaxis, permute_dims
from ..searching import nonzero

__all__ = [
    "append",
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "column_stack",
    "compress",
    "concatenate",
    "copy",
    "diag",
    "diagflat",
    "diagonal",
    "dsplit",
    "dstack",
    "extract",
    "fliplr",
    "flipud",
    "full_like",
    "hsplit",
    "hstack",
    "may_share_memory",
    "meshgrid",
    "ndim",
    "ravel",
    "repeat",
    "rot90",
    "shape",
    "size",
    "split",
    "squeeze",
    "swapaxes",
    "take",
    "trace",
    "transpose",
    "tril",
    "triu",
    "vsplit",
    "vstack",
]


def flat(x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    """A tensor and an axis of it, where None stands for all elements in row-major order."""
    return (x.flatten(), 0) if axis is None else (x, x.shape.dim("axis", axis, "axis"))


def shape(a: Tensor) -> tuple[int, ...]:
    return tuple(a.shape)


def ndim(a: Tensor) -> int:
    return a.rank


def size(a: Tensor, axis: Axes | None = None) -> int:
    axes = range(a.rank) if axis is None else [a.shape.dim("size", one, "axis") for one in axes_of("size", axis)]
    return math.prod(a.shape[one] for one in axes)


def broadcast_arrays(*args: Any) -> tuple[Any, ...]:
    """Stretch tensors, and numbers and lists with them; what no tensor holds, such as texts, stays an array."""
    tensor = next(it for it in args if isinstance(it, Tensor))

    def part(it: Any) -> Any:
        array = it if isinstance(it, Tensor) else np.asarray(it)
        is_other = isinstance(array, Tensor) or array.dtype.kind not in "biufc"
        return array if is_other else Tensor(array, device=tensor.device)

    parts = [part(it) for it in args]
    common = np.broadcast_shapes(*[tuple(it.shape) for it in parts])
    return tuple([it.broadcast_as(common) if isinstance(it, Tensor) else np.broadcast_to(it, common) for it in parts])


def full_like(a: Tensor, fill_value: Any, dtype: DType | None = None) -> Tensor:
    target = a.dtype if dtype is None else dtype
    if isinstance(fill_value, Tensor):
        return fill_value.to_dtype(target).broadcast_as(a.shape).copy()
    return full(a.shape, fill_value, dtype=target, device=a.device)


def may_share_memory(a: Any, b: Any) -> bool:
    """Tell whether writing to one could change the other: whether both are views of one storage."""
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.storage.inner is b.storage.inner


def copy(a: Tensor) -> Tensor:
    return a.copy()


def ravel(a: Tensor) -> Tensor:
    return a.flatten()


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    return a.T if axes is None else permute_dims(a, tuple(axes))


def swapaxes(a: Tensor, axis1: int, axis2: int) -> Tensor:
    return a.transpose(axis1, axis2)


def squeeze(a: Tensor, axis: Axes | None = None) -> Tensor:
    return a.squeeze(axis)


def flipud(m: Tensor) -> Tensor:
    return flip(m, axis=0)


def fliplr(m: Tensor) -> Tensor:
    return flip(m, axis=1)


def rot90(m: Tensor, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    first, second = axes
    turns = k % 4
    if turns == 2:
        return flip(m, axis=(first, second))
    turned = m.transpose(first, second)
    return flip(turned, axis=first if turns == 1 else second) if turns else m.copy()


def _stretched_to(rank: int, x: Tensor) -> Tensor:
    if rank == 3 and x.rank <= 2:
        x = _stretched_to(2, x)
        return x.unsqueeze(2) if x.rank == 2 else x
    while x.rank < rank:
        x = x.unsqueeze(0)
    return x


def _at_least(rank: int, tensors: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    stretched = tuple([_stretched_to(rank, x) for x in tensors])
    return stretched[0] if len(stretched) == 1 else stretched


def atleast_1d(*arys: Tensor) -> Tensor | tuple[Tensor, ...]:
    return _at_least(1, arys)


def atleast_2d(*arys: Tensor) -> Tensor | tuple[Tensor, ...]:
    return _at_least(2, arys)


def atleast_3d(*arys: Tensor) -> Tensor | tuple[Tensor, ...]:
    return _at_least(3, arys)


def concatenate(arrays: Sequence[Tensor], axis: int | None = 0) -> Tensor:
    return concat(list(arrays), axis=axis)


def append(arr: Tensor, values: Tensor, axis: int | None = None) -> Tensor:
    return concat([arr, values], axis=axis)


def vstack(tup: Sequence[Tensor]) -> Tensor:
    return concat([_stretched_to(2, x) for x in tup], axis=0)


def hstack(tup: Sequence[Tensor]) -> Tensor:
    rows = [_stretched_to(1, x) for x in tup]
    return concat(rows, axis=0 if rows and rows[0].rank == 1 else 1)


def dstack(tup: Sequence[Tensor]) -> Tensor:
    return concat([_stretched_to(3, x) for x in tup], axis=2)


def column_stack(tup: Sequence[Tensor]) -> Tensor:
    return concat([x if x.rank > 1 else _stretched_to(1, x).unsqueeze(1) for x in tup], axis=1)


def array_split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    axis = ary.shape.dim("array_split", axis, "axis")
    length = ary.shape[axis]
    if isinstance(indices_or_sections, Iterable):
        bounds = [0, *map(int, indices_or_sections), length]
    else:
        count = integer("array_split", "indices_or_sections", indices_or_sections)
        if count < 1:
            raise InvalidArgument("array_split", f"the number of sections is 1 or more, not {count}")
        each, longer = divmod(length, count)
        bounds = [part * each + min(part, longer) for part in range(count + 1)]
    spans = [slice(*span).indices(length)[:2] for span in itertools.pairwise(bounds)]
    return [ary.narrow(axis, begin, max(end - begin, 0)) for begin, end in spans]


def split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    axis = ary.shape.dim("split", axis, "axis")
    count = 1 if isinstance(indices_or_sections, Iterable) else indices_or_sections
    if isinstance(count, int) and count > 0 and ary.shape[axis] % count:
        raise InvalidArgument("split", f"{ary.shape[axis]} elements do not divide into {count} parts; use array_split")
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: Tensor, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    return split(ary, indices_or_sections, 1 if ary.rank > 1 else 0)


def vsplit(ary: Tensor, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Tensor, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    return split(ary, indices_or_sections, 2)


def repeat(a: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    counts = repeats if isinstance(repeats, Tensor | int) else Tensor(repeats, DType.I64, a.device)
    return a.repeat_interleave(counts, axis)


def take(a: Tensor, indices: Any, axis: int | None = None) -> Tensor:
    x, axis = flat(a, axis)
    if isinstance(indices, Tensor) and not indices.dtype.is_integer:
        # Truth values are integers here, and no mask.
        indices = indices.to_dtype(DType.I64)
    return x[(*[slice(None)] * axis, indices)]


def compress(condition: Any, a: Tensor, axis: int | None = None) -> Tensor:
    x, axis = flat(a, axis)
    chosen = condition if isinstance(condition, Tensor) else Tensor(condition, DType.BOOL, a.device)
    return x[(*[slice(None)] * axis, nonzero(chosen)[0])]


def extract(condition: Tensor, arr: Tensor) -> Tensor:
    return compress(condition.flatten(), arr.flatten(), 0)


def diagonal(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    return _last_diagonal(moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset)


def trace(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DType | None = None) -> Tensor:
    return _last_trace(moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset, dtype=dtype)


def _square(m: Tensor) -> Tensor:
    return m.broadcast_as(*m.shape, *m.shape) if m.rank == 1 else m


def tril(m: Tensor, k: int = 0) -> Tensor:
    return _square(m).tril(k)


def triu(m: Tensor, k: int = 0) -> Tensor:
    return _square(m).triu(k)


def meshgrid(*xi: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    return tuple(_meshgrid(*[x.flatten() for x in xi], indexing=indexing))


def diag(v: Tensor, k: int = 0) -> Tensor:
    if v.rank != 1:
        return diagonal(v, k)
    n = v.shape[0] + abs(k)
    line = v.pad_with_zeros(0, max(k, 0), max(-k, 0))
    on_diagonal = full((n, n), True, device=v.device).triu(k).tril(k)
    return on_diagonal.where(line, 0)


def diagflat(v: Tensor, k: int = 0) -> Tensor:
    return diag(v.flatten(), k)
