"""What an op works on: a layout in a storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .....dtype import DType
from ....core.layout import Layout
from ....core.shape import Shape

if TYPE_CHECKING:
    from ..device import GpuDevice
    from ..storage import GpuStorage


class Operand(NamedTuple):
    """The elements that `layout` reaches in `storage`."""

    storage: GpuStorage
    layout: Layout

    @classmethod
    def optional(cls, storage: GpuStorage | None, layout: Layout | None) -> Operand | None:
        """That of a storage and its layout; None where there is none."""
        return None if storage is None or layout is None else cls(storage, layout)

    @classmethod
    def each(cls, storages: Sequence[Any], layouts: Sequence[Layout]) -> list[Operand]:
        """Those of the dispatch's storages, all of which are this backend's."""
        return [cls(storage.inner, layout) for storage, layout in zip(storages, layouts, strict=True)]

    @property
    def device(self) -> GpuDevice:
        """The device of the storage."""
        return self.storage.device

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.storage.dtype

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.storage.dtype.itemsize

    @property
    def address(self) -> int:
        """Where the first element is."""
        storage = self.storage
        return storage.memory.address + self.layout.start_offset * storage.dtype.itemsize

    @property
    def end(self) -> int:
        """Where the bytes that the layout spans end."""
        storage = self.storage
        return storage.memory.address + self.layout.end * storage.dtype.itemsize

    @property
    def shape(self) -> Shape:
        """The sizes of the dims."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The step along each dim in elements."""
        return self.layout.strides

    def relaid(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Operand:
        """The same storage from the same first element on, with other dims."""
        return Operand(self.storage, Layout(Shape._trusted(shape), strides, self.layout.start_offset))


def dense(storage: GpuStorage, shape: tuple[int, ...]) -> Operand:
    """A whole storage in row-major order."""
    return Operand(storage, Layout.contiguous(shape))


def shares_memory(one: Operand, other: Operand) -> bool:
    """Whether an element of one may be an element of the other: their ranges meet, whoever else shares the memory."""
    return one.address < other.end and other.address < one.end
