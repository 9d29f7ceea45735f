"""The operands of ops: a layout in a storage, which is a buffer while a program is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self, TypeAlias

from ...dtype import DType
from ..core.layout import Layout
from ..core.shape import Shape
from .values import Address, Buffer

StorageOrBuffer: TypeAlias = Any
"""What the dispatch passes as a storage, and an op that builds a program gets as a Buffer or BlocksBuffer."""


class Operand(NamedTuple):
    """The elements that `layout` reaches in `storage`.

    The dispatch gives a backend operands of storages. An op that builds a program gets the same operands with a Buffer
    in the place of each storage.
    """

    storage: StorageOrBuffer
    layout: Layout

    @classmethod
    def optional(cls, storage: Any, layout: Layout | None) -> Self | None:
        """The operand of a storage and its layout; None where there is none."""
        return None if storage is None or layout is None else cls(storage, layout)

    @classmethod
    def each(cls, storages: Sequence[Any], layouts: Sequence[Layout]) -> list[Self]:
        """The operands of the dispatch's storages, all of which are one backend's."""
        return [cls(storage.inner, layout) for storage, layout in zip(storages, layouts, strict=True)]

    @property
    def with_a_dim(self) -> Self:
        """The same elements along a dim at least, where rank 0 has one element."""
        layout = self.layout
        return self if layout.shape else type(self)(self.storage, Layout((1,), (1,), layout.start_offset))

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        dtype: DType = self.storage.dtype
        return dtype

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        itemsize: int = self.storage.dtype.itemsize
        return itemsize

    @property
    def shape(self) -> Shape:
        """The sizes of the dims."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The step along each dim in elements."""
        return self.layout.strides

    @property
    def address(self) -> Address:
        """The address of the first element that the layout reaches, in a program."""
        storage = self.storage
        return Address(storage.memory, self.layout.start_offset * storage.dtype.itemsize)

    def relaid(self, shape: Sequence[int], strides: Sequence[int]) -> Self:
        """The same storage from the same first element on, with other dims."""
        layout = Layout(Shape._trusted(tuple(shape)), tuple(strides), self.layout.start_offset)
        return type(self)(self.storage, layout)


def dense(buffer: Buffer, shape: Sequence[int]) -> Operand:
    """All elements of a buffer in row-major order."""
    return Operand(buffer, Layout.contiguous(tuple(shape)))
