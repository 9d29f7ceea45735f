"""The operands of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.layout import Layout
from ....core.shape import Shape
from ....kernels.argument_struct import Address
from ...operand import OperandBase

if TYPE_CHECKING:
    from ..device import GpuDevice
    from ..memory.storage import GpuStorage


class Operand(OperandBase):
    """The elements that `layout` reaches in `storage`, in the memory of a GPU."""

    __slots__ = ()

    storage: GpuStorage

    @property
    def device(self) -> GpuDevice:
        """The device of the storage."""
        return self.storage.device

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.storage.dtype.itemsize

    @property
    def address(self) -> Address:
        """Where the first element is."""
        storage = self.storage
        return storage.memory.address + self.layout.start_offset * storage.dtype.itemsize

    @property
    def end(self) -> Address:
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
