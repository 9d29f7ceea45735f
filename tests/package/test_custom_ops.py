"""Users' ops on tensors."""

from __future__ import annotations

import numpy as np
import pytest
from tallow import (
    CustomOp1,
    CustomOp2,
    CustomOp3,
    InplaceOp1,
    InplaceOp2,
    InplaceOp3,
    InvalidLayout,
    Layout,
    Shape,
    Tensor,
)
from tallow.cpu_backend import CpuStorage

from .arrays import same


class Total(CustomOp1, CustomOp2, CustomOp3):
    """The sum of the elements of all operands, as a vector of one element."""

    name = "total"

    def cpu_fwd(self, *operands: CpuStorage | Layout) -> tuple[CpuStorage, Shape]:
        pairs = list(zip(operands[::2], operands[1::2], strict=True))
        total = sum(storage.view(layout).sum() for storage, layout in pairs)
        first = operands[0]
        return CpuStorage(first.device, first.dtype, np.array([total], first.dtype.numpy)), Shape((1,))


class AddAll(InplaceOp1, InplaceOp2, InplaceOp3):
    """Add 1, and then the other operands, to the first."""

    name = "add_all"

    def cpu_fwd(self, *operands: CpuStorage | Layout) -> None:
        first, *others = [storage.view(layout) for storage, layout in zip(operands[::2], operands[1::2], strict=True)]
        first += 1
        for other in others:
            first += other


def test_ops_of_one_to_three_tensors() -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]])
    same(tensor[:, 0].apply_op1(Total()), np.array([4], np.float32))
    same(tensor.apply_op2(tensor[0], Total()), np.array([13], np.float32))
    same(tensor.apply_op3(tensor[0], tensor[1], Total()), np.array([20], np.float32))


def test_ops_in_place() -> None:
    tensor, row = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([10.0, 20.0])
    assert tensor.inplace_op1(AddAll()) is tensor
    tensor[0].inplace_op2(row, AddAll())
    tensor[:, 1].inplace_op3(row, row, AddAll())
    same(tensor, np.array([[13, 45], [4, 46]], np.float32))


class Boast(CustomOp1, CustomOp2, CustomOp3):
    """A shape of more elements than there are."""

    name = "boast"

    def cpu_fwd(self, *operands: CpuStorage | Layout) -> tuple[CpuStorage, Shape]:
        return operands[0], Shape((1000,))


def test_a_shape_that_the_storage_does_not_fill() -> None:
    tensor = Tensor([1.0, 2.0])
    with pytest.raises(InvalidLayout, match=r"boast: .*storage of 2 elements"):
        tensor.apply_op1(Boast())
    with pytest.raises(InvalidLayout, match="boast"):
        tensor.apply_op2(tensor, Boast())
    with pytest.raises(InvalidLayout, match="boast"):
        tensor.apply_op3(tensor, tensor, Boast())


class Shrink(InplaceOp1):
    """Less memory for the storage than it had."""

    def cpu_fwd(self, storage: CpuStorage, layout: Layout) -> None:
        storage.data = storage.data[:1]


def test_a_storage_that_shrank_is_not_read_beyond_its_end() -> None:
    tensor = Tensor([1.0, 2.0]).inplace_op1(Shrink())
    with pytest.raises(InvalidLayout, match=r"numpy: .*storage of 1 elements"):
        tensor.tolist()
