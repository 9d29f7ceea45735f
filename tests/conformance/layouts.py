"""Tensors in storages that are larger than the tensor needs, in every way in which a layout can lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from .oracle.formats import COMPLEX, FLOATS, INTEGERS, NUMPY, Array, convert
from .subnormals import flush

if TYPE_CHECKING:
    import tallow
    from tallow.runtime.core.layout import Layout

# Around the widths of vector loads, waves and blocks.
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025)


@dataclass(frozen=True)
class Case:
    """A shape and how it lies in its storage."""

    shape: tuple[int, ...]
    placement: str = "contiguous"

    def __str__(self) -> str:
        return f"shape {self.shape}, {self.placement}"


# Every layout class once: what an op with one operand is called on.
VIEWS = (
    Case((), "contiguous"),
    Case((), "offset"),
    Case((0,)),
    Case((3, 0, 2), "transposed"),
    Case((1, 1, 1), "offset"),
    Case((5, 7)),
    Case((5, 7), "offset"),
    Case((5, 7), "transposed"),
    Case((5, 7), "broadcast rows"),
    Case((5, 7), "broadcast columns"),
    Case((5, 7), "broadcast all"),
    Case((5, 7), "narrowed columns"),
    Case((5, 8), "narrowed rows"),
    Case((33, 65), "transposed"),
    Case((3, 257), "broadcast rows"),
    Case((2, 130), "narrowed columns"),
    Case((3, 4, 5), "rolled"),
    Case((3, 4, 5), "broadcast middle"),
    Case((2, 3, 1, 2, 3), "transposed"),
    Case((2, 3, 4, 2, 3), "rolled"),
    Case((2, 2, 3, 2, 4), "narrowed columns"),
    Case((2, 2, 1, 2, 3, 2, 2, 2), "transposed"),
    Case((1, 5, 1, 7), "loose ones"),
    Case((4, 6), "sliding"),
)
CONTIGUOUS = tuple(Case((width,)) for width in WIDTHS)
# Transposes in which GPUs find whole tiles of every dtype and tiles at the edge, and one whose lines begin anywhere.
TILES = (Case((128, 136), "rolled"), Case((131, 129), "rolled"))
# The classes in which every element has its own place, for operands that are written.
SHARED = ("broadcast", "sliding")
WRITABLE = tuple(case for case in VIEWS if not case.placement.startswith(SHARED))
# A few of each kind, where cases multiply.
FEW_VIEWS = (
    Case((6, 7)),
    Case((6, 7), "offset"),
    Case((6, 7), "transposed"),
    Case((6, 7), "narrowed columns"),
    Case((6, 7), "broadcast rows"),
    Case((6, 7), "broadcast columns"),
)


def strides_of(shape: tuple[int, ...], placement: str) -> tuple[tuple[int, ...], int]:
    """The strides and the start offset of a tensor that lies like `placement`."""
    rank = len(shape)
    natural = _row_major(shape)
    if placement == "contiguous":
        return natural, 0
    if placement == "offset":
        return natural, 5
    if placement == "transposed":
        return _row_major(shape[::-1])[::-1], 3
    if placement == "swapped":
        # A stack of transposed matrices.
        return (*natural[:-2], 1, shape[-2]), 1
    if placement == "rolled":
        # The last dim is the outermost one in memory.
        rolled = _row_major((*shape[-1:], *shape[:-1]))
        return (*rolled[1:], *rolled[:1]), 0
    if placement == "channels last":
        batch, *axes, channel = _row_major((shape[0], *shape[2:], shape[1]))
        return (batch, channel, *axes), 0
    if placement == "narrowed columns":
        # Every second element of rows that are longer than that.
        pitch = 2 * shape[-1] + 3
        outer = tuple(pitch * step for step in _row_major(shape[:-1]))
        return (*outer, 2), 1
    if placement == "narrowed rows":
        # Every third row, whole: the start of a row stays where a vector load likes it.
        return (3 * natural[0], *natural[1:]), natural[0]
    if placement == "loose ones":
        # Dims of size 1 never step, so their strides say nothing.
        return tuple(777 if size == 1 else step for size, step in zip(shape, natural, strict=True)), 1
    if placement == "sliding":
        # Rows that overlap, as windows over a signal do.
        return (*natural[:-2], 1, 1), 2
    kept = {
        "broadcast rows": range(1, rank),
        "broadcast columns": range(rank - 1),
        "broadcast middle": [0, *range(2, rank)],
        "broadcast all": [],
    }[placement]
    inner = _row_major(tuple(shape[dim] for dim in kept))
    steps = dict(zip(kept, inner, strict=True))
    return tuple(steps.get(dim, 0) for dim in range(rank)), 2


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


@lru_cache(1 << 12)
def reached(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """The place in the storage of every element, in the shape of the tensor."""
    indices = np.full(shape, offset, np.int64)
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(size) * stride
        indices += steps.reshape([-1 if axis == dim else 1 for axis in range(len(shape))])
    indices.flags.writeable = False
    return indices


def poison(name: str, length: int) -> Array:
    """Elements that no op may read: NaN and a large number by turns, or integers that no index may be."""
    if name in COMPLEX:
        return poison(COMPLEX[name].part, 2 * length).view(NUMPY[name])
    if name in FLOATS:
        pattern = convert("f64", name, np.array([np.nan, 96.0]))
    else:
        highest = INTEGERS[name].highest
        pattern = np.array([highest - 1, highest - 2]).astype(NUMPY[name])
    filled = np.empty((length + 1) // 2 * 2, NUMPY[name])
    filled.reshape(-1, 2)[:] = pattern
    return filled[:length]


@dataclass(frozen=True)
class Operand:
    """A tensor in a storage: what the oracle sees of it, and what the package does."""

    values: Array
    buffer: Array
    places: Array
    layout: Layout
    storage: tallow.Storage


def lay_out(device: tallow.Device, name: str, values: Array, placement: str = "contiguous") -> Operand:
    """`values` laid out like `placement` on `device`; under a broadcast the elements that share a place agree."""
    from tallow.runtime.core.layout import Layout
    from tallow.runtime.core.shape import Shape

    values = flush(name, np.asarray(values))
    assert values.dtype == NUMPY[name], f"values of {values.dtype} for a {name} operand"
    strides, offset = strides_of(values.shape, placement)
    indices = reached(values.shape, strides, offset)
    slack = 0 if placement == "contiguous" else 4
    length = int(indices.max()) + 1 + slack if indices.size else slack
    buffer = poison(name, length)
    buffer[indices] = values
    layout = Layout(Shape(values.shape), strides, offset)
    return Operand(buffer[indices], buffer, indices, layout, device.storage(buffer))


def pairs(cases: tuple[Case, ...]) -> list[tuple[Case, Case]]:
    """Two operands of one shape: each class with a contiguous partner on either side, and with itself."""
    chosen = []
    for case in cases:
        plain = Case(case.shape)
        chosen += [(case, case)] if case == plain else [(case, plain), (plain, case), (case, case)]
    return chosen
