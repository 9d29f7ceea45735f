"""Ops as a user writes them, on NumPy arrays; they run on any backend, through its to_numpy and storage."""

from __future__ import annotations

from typing import Any

import numpy as np
import tallow
from tallow.custom_op import CustomOp1, CustomOp2, CustomOp3, InplaceOp1, InplaceOp2, InplaceOp3
from tallow.runtime.core.layout import Layout

from .bench import shape_of
from .oracle.formats import Array


def seen(storage: Any, layout: Layout) -> Array:
    """The elements that a layout reaches, as a view of a copy of the storage."""
    return _view(storage.to_numpy(), layout)


def _view(elements: Array, layout: Layout) -> Array:
    # NumPy strides over none of ml_dtypes' types that say they are floats.
    words = elements.view(f"V{elements.itemsize}")[layout.start_offset :]
    strides = tuple(stride * elements.itemsize for stride in layout.strides)
    return np.lib.stride_tricks.as_strided(words, tuple(layout.shape), strides).view(elements.dtype)


def result(storage: Any, values: Array) -> tuple[Any, Any]:
    """A new storage next to `storage`, and its shape."""
    return storage.device.storage(np.ascontiguousarray(values)), shape_of(*values.shape)


def interleave(*arrays: Array) -> Array:
    """Return the result of the custom ops: the arrays along a new last dim, backwards."""
    return np.stack(arrays[::-1], axis=-1)


def write_back(storage: Any, layout: Layout, values: Array) -> None:
    """Write `values` to the places of `layout`."""
    elements = storage.to_numpy()
    _view(elements, layout)[...] = values
    full = Layout.contiguous(shape_of(len(elements)))
    tallow.Storage(storage.device.storage(elements)).copy_strided_src(tallow.Storage(storage), 0, full)


def everywhere(op: type) -> type:
    """The class of an op with what it does on the CPU on every backend."""
    for backend in {cell.backend for cell in tallow.support()}:
        setattr(op, f"{backend}_fwd", op.cpu_fwd)
    return op


@everywhere
class Interleave1(CustomOp1):
    name = "interleave1"

    def cpu_fwd(self, storage, layout):
        return result(storage, interleave(seen(storage, layout)))


@everywhere
class Interleave2(CustomOp2):
    name = "interleave2"

    def cpu_fwd(self, storage, layout1, storage2, layout2):
        return result(storage, interleave(seen(storage, layout1), seen(storage2, layout2)))


@everywhere
class Interleave3(CustomOp3):
    name = "interleave3"

    def cpu_fwd(self, storage, layout1, storage2, layout2, storage3, layout3):
        return result(storage, interleave(seen(storage, layout1), seen(storage2, layout2), seen(storage3, layout3)))


@everywhere
class Reverse(InplaceOp1):
    name = "reverse"

    def cpu_fwd(self, storage, layout):
        write_back(storage, layout, seen(storage, layout).ravel()[::-1].reshape(layout.shape))


@everywhere
class Replace(InplaceOp2):
    name = "replace"

    def cpu_fwd(self, storage, layout1, storage2, layout2):
        write_back(storage, layout1, seen(storage2, layout2))


@everywhere
class Blend(InplaceOp3):
    """Even places of the second storage, odd ones of the third."""

    name = "blend"

    def cpu_fwd(self, storage, layout1, storage2, layout2, storage3, layout3):
        write_back(storage, layout1, blend(seen(storage2, layout2), seen(storage3, layout3)))


def blend(even: Array, odd: Array) -> Array:
    """The elements at even places in row-major order from the one, at odd places from the other."""
    indices = np.arange(even.size).reshape(even.shape)
    return np.where(indices % 2 == 0, even, odd)


class Unwritten1(CustomOp1):
    name = "unwritten1"


class UnwrittenInplace1(InplaceOp1):
    name = "unwritten_inplace1"
