"""Elements that tensors, arrays and lists of indexes and masks choose, by NumPy's rules for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Final, NamedTuple, NoReturn, SupportsIndex, TypeVar

import numpy as np

from ....dtype import DType
from ...base.error import IndexMismatch, InvalidArgument, InvalidDim, InvalidIndex, type_name
from ...core.argument import integer
from ...core.shape import Shape
from ..base import TensorBase

T = TypeVar("T", bound=Any)

# What chooses copies of elements.
_CHOICES: Final = (TensorBase, np.ndarray, list, tuple, range)

_WHOLE = slice(None)

_NO_INDEX: Final = (
    "an index must be an integer, a slice, None, '...', or a tensor, an array or a list of integers or of truth values,"
    " not of type {}; convert it"
)


class Selection(NamedTuple):
    """The elements that an index with tensors or arrays in it selects."""

    view: Any
    """The part that its slices choose, with the dims that its tensors index in front."""
    rows: Any
    """Which of these, counted as if they were one dim."""
    counted: int
    """How many of the dims of `view` are indexed."""
    shape: tuple[int, ...]
    """The shape that the tensors of the index broadcast to; it replaces the dims that they index."""
    position: int
    """The dim of the result at which that shape begins."""
    parts: list[tuple[Any, int]]
    """The tensors of the index, each with the size of the dim that it indexes."""

    @property
    def merged(self) -> tuple[int, ...]:
        """The shape of `view` with the indexed dims as one."""
        sizes = self.view.shape
        return (math.prod(sizes[: self.counted]), *sizes[self.counted :])

    def taken(self) -> Any:
        """A copy of what is chosen."""
        try:
            rows = self.view.reshape(self.merged).index_select(self.rows, 0)
        except InvalidIndex as error:
            self.refuse(error)
        chosen = rows.reshape(*self.shape, *self.merged[1:])
        ahead = len(self.shape)
        others = range(ahead, chosen.rank)
        order = [*others[: self.position], *range(ahead), *others[self.position :]]
        return chosen.permute(order) if self.position else chosen

    def refuse(self, error: InvalidIndex) -> NoReturn:
        """Raise the error about one of `rows` as that about the index that the user wrote."""
        for part, size in self.parts:
            indexes = part.numpy()
            for index in indexes[(indexes < 0) | (indexes >= size)].tolist():
                # Those below 0 have had the size added.
                raise InvalidIndex("index", index - size if index < 0 else index, size) from None
        raise error

    def assign(self, value: Any, backward: Sequence[int]) -> None:
        """Set what is chosen to a tensor that broadcasts to it, but for leading dims of size 1.

        The tensor is taken from the end in the dims `backward` of those that slices choose.
        """
        sizes = self.merged[1:]
        ahead, start = len(self.shape), self.position
        shape = *sizes[:start], *self.shape, *sizes[start:]
        source = without_leading(value, len(shape)).broadcast_as(shape)
        source = source._reversed([dim if dim < start else dim + ahead for dim in backward])
        source = source.permute([*range(start, start + ahead), *range(start), *range(start + ahead, source.rank)])
        source = source.reshape(self.rows.elem_count, *sizes)
        layout = self.view.layout.reshape(self.merged)
        try:
            if layout is not None:
                self.view._view(layout).index_copy_(self.rows, source, 0)
            else:
                # No strides step through dims that are not adjacent as through one.
                copy = self.view.reshape(self.merged).index_copy_(self.rows, source, 0)
                self.view.copy_(copy.reshape(self.view.shape))
        except InvalidIndex as error:
            self.refuse(error)


def without_leading(value: T, rank: int) -> T:
    """Drop leading dims of size 1 beyond `rank`, as NumPy does where an index is assigned to."""
    while value.rank > rank and value.shape[0] == 1:
        value = value.squeeze(0)
    return value


def with_arrays(items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return an index with its lists as arrays of truth values or of integers; None if it has neither nor tensors.

    `InvalidArgument` for other arrays and lists, and for a tensor of u8, which may be a mask or indexes.
    """
    for item in items:
        if isinstance(item, _CHOICES):
            break
    else:
        return None
    arrays = tuple([_as_array(item) for item in items])
    return arrays if any(map(_is_array, arrays)) else None


def _as_array(item: Any) -> Any:
    """Return a list as an array, and anything else that may be in an index as it is."""
    if isinstance(item, TensorBase):
        if item.dtype is DType.U8:
            reason = "a tensor of u8 may be a mask or indexes; convert it to bool or i64 with to_dtype"
            raise InvalidArgument("index", reason)
        if item.dtype.kind != "bool" and not item.dtype.is_integer:
            raise InvalidArgument("index", f"a tensor of {item.dtype.value} is neither a mask nor indexes; convert it")
        return item
    if isinstance(item, np.ndarray):
        if item.ndim and item.dtype.kind not in "biu":
            raise InvalidArgument("index", _NO_INDEX.format(f"ndarray of {item.dtype}"))
        return item
    if not isinstance(item, list | tuple | range):
        return item
    try:
        # Of tensors NumPy would take the elements to the host.
        array = np.asarray(None if _holds_tensors(item) else item)
    except (TypeError, ValueError, OverflowError):
        array = np.asarray(None)
    array = array if array.size else array.astype(np.int64)
    if array.dtype.kind not in "biu":
        elements = " and ".join(sorted({type_name(it) for it in item}))
        raise InvalidArgument("index", _NO_INDEX.format(f"{type(item).__name__} of {elements}"))
    return array


def _holds_tensors(items: Any) -> bool:
    nested = (isinstance(item, list | tuple) and _holds_tensors(item) for item in items)
    return any(isinstance(item, TensorBase) for item in items) or any(nested)


def selection(tensor: T, items: Sequence[Any]) -> Selection:
    """Find out what an index chooses that has at least one tensor."""
    basic: list[Any] = []
    chosen: list[tuple[int, Any]] = []
    dim = 0
    for item in spelled_out(items, tensor.rank):
        if _is_mask(item):
            parts = _places(tensor, dim, item)
            if not item.ndim:
                tensor = tensor.unsqueeze(dim)
        elif _is_array(item):
            parts = [item]
        elif isinstance(item, slice) or item is None:
            basic.append(item)
            dim += item is not None
            continue
        else:
            parts = [integer_index(item)]
        for part in parts:
            chosen.append((len(basic), from_the_front(part, tensor.shape[dim])))
            basic.append(_WHOLE)
            dim += 1
    view = tensor[tuple(basic)]
    dims = [dim for dim, _ in chosen]
    shape = _common_shape([part.shape for _, part in chosen if not isinstance(part, int)])
    kinds = {type(part) for _, part in chosen}
    if np.ndarray in kinds and not kinds <= {np.ndarray, int}:
        chosen = [(dim, _on_device_of(tensor, part)) for dim, part in chosen]
    rows: Any = 0
    outside = None
    for dim, part in chosen:
        size = view.shape[dim]
        rows = rows * size + part
        if len(chosen) > 1 and not isinstance(part, int | np.ndarray):
            # As a term of a sum it could alias another index.
            wrong = (part < 0) | (part >= size)
            outside = wrong if outside is None else outside | wrong
    if outside is not None:
        rows = outside.where(-1, rows)
    if isinstance(rows, np.ndarray):
        rows = tensor.from_numpy(np.broadcast_to(rows, shape), tensor.device)
    rows = rows.broadcast_as(shape)
    # As in NumPy, `...` separates indexes even where it stands for no dim.
    advanced = [dim for dim, item in enumerate(items) if not (item is None or isinstance(item, slice | EllipsisType))]
    adjacent = advanced[-1] - advanced[0] < len(advanced)
    order = [*dims, *[dim for dim in range(view.rank) if dim not in dims]]
    parts = [(part, view.shape[dim]) for dim, part in chosen if isinstance(part, TensorBase)]
    return Selection(view.permute(order), rows.flatten(), len(dims), shape, dims[0] if adjacent else 0, parts)


def integer_index(item: Any) -> int:
    """Return an item of an index as an integer. InvalidArgument if it is of another type."""
    if isinstance(item, bool) or not isinstance(item, SupportsIndex) or getattr(item, "ndim", False):
        raise InvalidArgument("index", _NO_INDEX.format(type_name(item)))
    return integer("index", "an index", item)


def _common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        reason = "tensors of indexes broadcast to one shape, and masks have as many True elements"
        raise IndexMismatch("index", tuple(map(Shape, shapes)), reason) from None


def spelled_out(items: Sequence[Any], rank: int) -> list[Any]:
    """Replace `...` by the slices that it stands for, or put them at the end; a mask indexes as many dims as it has."""
    dots = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise InvalidArgument("index", "an index has at most one '...'; write ':' for the other dims")
    named = sum(indexed_dims(item) for item in items if item is not Ellipsis)
    if named > rank:
        raise InvalidDim("index", f"{named} indexes are too many for a tensor of rank {rank}; drop some")
    position = dots[0] if dots else len(items)
    return [*items[:position], *[_WHOLE] * (rank - named), *items[position + 1 :]]


def indexed_dims(item: Any) -> int:
    """Return how many dims an item of an index stands for, which is not `...`."""
    dims: int = item.ndim if _is_mask(item) else int(item is not None)
    return dims


def _is_array(item: Any) -> bool:
    return isinstance(item, TensorBase) or (isinstance(item, np.ndarray) and (item.ndim > 0 or _is_mask(item)))


def _is_mask(item: Any) -> bool:
    if isinstance(item, TensorBase):
        return item.dtype.kind == "bool"
    return isinstance(item, np.ndarray) and item.dtype == np.bool_


def _on_device_of(tensor: Any, part: Any) -> Any:
    return tensor.from_numpy(part, tensor.device) if isinstance(part, np.ndarray) else part


def _places(tensor: Any, dim: int, mask: Any) -> list[Any]:
    """Return the indexes at which a mask of some dims is True, a vector for each of these dims."""
    if not mask.ndim:
        # It indexes a new dim, which it keeps or drops.
        mask = mask.reshape(1)
        tensor = tensor.unsqueeze(dim)
    sizes = tensor.shape[dim : dim + mask.ndim]
    if any(size not in (0, expected) for size, expected in zip(mask.shape, sizes, strict=True)):
        reason = f"a mask has the shape of the dims that it indexes, {sizes}, or 0 instead of a size"
        raise IndexMismatch("index", (tensor.shape, Shape(mask.shape)), reason)
    return list(mask.nonzero()) if isinstance(mask, np.ndarray) else list(mask.nonzero().unbind(1))


def from_the_front(part: Any, size: int) -> Any:
    """Return indexes, of which those below 0 count from the end, as indexes from 0 on."""
    if isinstance(part, int):
        if not -size <= part < size:
            raise InvalidIndex("index", part, size)
        return part % size
    if isinstance(part, np.ndarray):
        outside = (part >= size) | (part < -size) if part.dtype.kind == "i" else part >= size
        if outside.any():
            raise InvalidIndex("index", int(part[outside][0]), size)
        return np.where(part < 0, part + size, part).astype(np.int64)
    wide = part.to_dtype(DType.I64)
    return wide if part.dtype.kind == "unsigned" else (wide < 0).where(wide + size, wide)
