"""Other shapes and orders of elements, and parts of tensors that indexes choose."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from functools import partial, reduce

from ..base.error import InvalidArgument, InvalidDim, type_name
from ..core.argument import boolean, integers, objects
from ..core.shape import Shape
from ..tensor import Tensor
from ..tensor import cat as _cat
from ..tensor import stack as _stack
from ..tensor.shape.selection import from_the_front
from .data_types import promoted_operands

Axes = int | tuple[int, ...]


def axes_of(op: str, axis: int | Sequence[int], name: str = "axis") -> tuple[int, ...]:
    """Return one axis or several as a tuple; `InvalidArgument` for what is no integer."""
    axes = axis if isinstance(axis, Sequence) else (axis,)
    return integers(op, name, axes, expected="an integer or a sequence of integers")


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast; ShapeMismatch if there is none."""
    return _common_shape("broadcast_shapes", shapes)


def _common_shape(op: str, shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(reduce(partial(Shape.broadcast, op), map(Shape, shapes), Shape(())))


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Stretch tensors to the shape to which they broadcast: views, in which repeated elements exist once."""
    for number, array in enumerate(arrays, 1):
        if not isinstance(array, Tensor):
            reason = f"argument {number} must be a Tensor, not of type {type_name(array)}"
            raise InvalidArgument("broadcast_arrays", reason)
    shape = _common_shape("broadcast_arrays", [array.shape for array in arrays])
    return tuple(array.broadcast_as(shape) for array in arrays)


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Stretch a tensor to a shape: a view, in which repeated elements exist once."""
    return x.broadcast_as(shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Join tensors along an axis, flat ones of them with axis None; they are promoted to one dtype."""
    operands = promoted_operands("concat", *objects("concat", "arrays", arrays, Tensor, "Tensor"))
    return _cat([x.flatten() for x in operands] if axis is None else operands, 0 if axis is None else axis)


def expand_dims(x: Tensor, /, axis: Axes) -> Tensor:
    """View a tensor with an axis of size 1 inserted at each position of the result that is named."""
    axes = axes_of("expand_dims", axis)
    rank = x.rank + len(axes)
    for position in sorted(_distinct("expand_dims", [_position("expand_dims", one, rank) for one in axes])):
        x = x.unsqueeze(position)
    return x


def _distinct(op: str, axes: list[int]) -> list[int]:
    if len({*axes}) != len(axes):
        raise InvalidArgument(op, f"{tuple(axes)} names an axis twice; name each once")
    return axes


def _position(op: str, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InvalidDim(op, f"axis {axis} is out of range for rank {rank}; use {-rank} to {rank - 1}")
    return axis % rank


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """Copy a tensor with the order along some axes reversed, by default all."""
    return x.flip(tuple(range(x.rank)) if axis is None else axes_of("flip", axis))


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """View a tensor with axes at other positions; the others stay in their order."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """View a tensor with its axes reordered: axis i of the result is axis `axes[i]`."""
    return x.permute(axes)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along an axis, of a flat copy with axis None; a vector says how often for each."""
    return x.repeat_interleave(repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    """Give the elements another shape: a view if the strides allow, unless `copy`; with False never a copy."""
    must_copy = None if copy is None else boolean("reshape", "copy", copy)
    result = x.view(shape) if must_copy is False else x.reshape(shape)
    return result.copy() if must_copy else result


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
    """Move elements along axes by `shift` positions; those that leave at one end come in at the other."""
    return x.roll(shift, axis)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """View a tensor without some axes of size 1."""
    return x.squeeze(axes_of("squeeze", axis))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis; they are promoted to one dtype."""
    return _stack(promoted_operands("stack", *objects("stack", "arrays", arrays, Tensor, "Tensor")), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Copy a tensor, repeated along each axis; fewer numbers than axes stand for the last ones."""
    return x.tile(repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the views at each index of an axis, without that axis."""
    return tuple(x.unbind(axis))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the rows along an axis that a vector of indexes names; of a vector, the axis may be left out."""
    if axis is None:
        if x.rank != 1:
            raise InvalidArgument("take", f"a tensor of rank {x.rank} needs an axis; state axis=")
        axis = 0
    axis = x.shape.dim("take", axis, "axis")
    return x.index_select(from_the_front(indices, x.shape[axis]), axis)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return result[.., i, ..] = x[.., indices[.., i, ..], ..] along an axis; the other axes broadcast."""
    axis = x.shape.dim("take_along_axis", axis, "axis")
    return x.take_along_dim(from_the_front(indices, x.shape[axis]), axis)
