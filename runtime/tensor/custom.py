"""Ops that users write, applied to tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...storage import Storage
from ..core.layout import Layout
from ..core.shape import Shape
from .base import TensorBase, require_tensors

if TYPE_CHECKING:
    from ...custom_op import CustomOp1, CustomOp2, CustomOp3, InplaceOp1, InplaceOp2, InplaceOp3


class CustomMethods(TensorBase):
    """Application of a user's op; it sees the operands' storages and layouts as they are, strided or not.

    An op that returns the storage of an operand makes a tensor that shares its memory, as a view does.
    `InvalidArgument` before an op runs if it is of another kind, or lacks the method of the backend, and after it if it
    returned anything but a storage and its shape, or, in place, anything at all; `InvalidLayout` if the shape has more
    elements than the storage.
    """

    __slots__ = ()

    def apply_op1(self, op: CustomOp1) -> Self:
        """Apply an op of one's own to this tensor: what its method for the device returns.

        >>> class Cube(tl.CustomOp1):
        ...     def cpu_fwd(self, storage, layout):
        ...         cubes = storage.array(layout) ** 3
        ...         return storage.device.storage(cubes), tl.Shape(cubes.shape)
        >>> tl.Tensor([1.0, 2.0]).apply_op1(Cube())
        Tensor([1., 8.], dtype=f32)
        """
        return self._made(self._storage.apply_op1(self._layout, op))

    def apply_op2(self, second: Self, op: CustomOp2) -> Self:
        """Apply an op of one's own to this tensor and another.

        >>> class Power(tl.CustomOp2):
        ...     def cpu_fwd(self, storage1, layout1, storage2, layout2):
        ...         powers = storage1.array(layout1) ** storage2.array(layout2)
        ...         return storage1.device.storage(powers), tl.Shape(powers.shape)
        >>> tl.Tensor([1.0, 2.0]).apply_op2(tl.Tensor([2.0, 3.0]), Power())
        Tensor([1., 8.], dtype=f32)
        """
        require_tensors("apply_op2", second=second)
        return self._made(self._storage.apply_op2(self._layout, second._storage, second._layout, op))

    def apply_op3(self, second: Self, third: Self, op: CustomOp3) -> Self:
        """Apply an op of one's own to this tensor and two others.

        >>> class Clip(tl.CustomOp3):
        ...     def cpu_fwd(self, storage1, layout1, storage2, layout2, storage3, layout3):
        ...         low, high = storage2.array(layout2), storage3.array(layout3)
        ...         values = np.clip(storage1.array(layout1), low, high)
        ...         return storage1.device.storage(values), tl.Shape(values.shape)
        >>> tl.Tensor([1.0, 5.0]).apply_op3(tl.Tensor([0.0, 0.0]), tl.Tensor([2.0, 2.0]), Clip())
        Tensor([1., 2.], dtype=f32)
        """
        require_tensors("apply_op3", second=second, third=third)
        others = (second._storage, second._layout, third._storage, third._layout)
        return self._made(self._storage.apply_op3(self._layout, *others, op))

    def inplace_op1(self, op: InplaceOp1) -> Self:
        """Let an op of one's own change this tensor in place, and return the tensor.

        >>> class Clear(tl.InplaceOp1):
        ...     def cpu_fwd(self, storage, layout):
        ...         storage.array(layout)[...] = 0
        >>> tl.Tensor([1.0, 2.0]).inplace_op1(Clear())
        Tensor([0., 0.], dtype=f32)
        """
        self._storage.inplace_op1(self._layout, op)
        return self

    def inplace_op2(self, second: Self, op: InplaceOp2) -> Self:
        """Let an op of one's own change this tensor in place, with another operand, and return the tensor.

        >>> class AddTo(tl.InplaceOp2):
        ...     def cpu_fwd(self, storage1, layout1, storage2, layout2):
        ...         storage1.array(layout1)[...] += storage2.array(layout2)
        >>> tl.Tensor([1.0, 2.0]).inplace_op2(tl.Tensor([10.0, 20.0]), AddTo())
        Tensor([11., 22.], dtype=f32)
        """
        require_tensors("inplace_op2", second=second)
        self._storage.inplace_op2(self._layout, second._storage, second._layout, op)
        return self

    def inplace_op3(self, second: Self, third: Self, op: InplaceOp3) -> Self:
        """Let an op of one's own change this tensor in place, with two other operands, and return the tensor.

        >>> class AddProduct(tl.InplaceOp3):
        ...     def cpu_fwd(self, storage1, layout1, storage2, layout2, storage3, layout3):
        ...         storage1.array(layout1)[...] += storage2.array(layout2) * storage3.array(layout3)
        >>> tl.Tensor([1.0, 2.0]).inplace_op3(tl.Tensor([10.0, 20.0]), tl.Tensor([2.0, 2.0]), AddProduct())
        Tensor([21., 42.], dtype=f32)
        """
        require_tensors("inplace_op3", second=second, third=third)
        self._storage.inplace_op3(self._layout, second._storage, second._layout, third._storage, third._layout, op)
        return self

    def _made(self, result: tuple[Storage, Shape]) -> Self:
        storage, shape = result
        return self._new(storage, Layout.contiguous(shape))
