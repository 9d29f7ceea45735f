"""Users' ops on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tallow import (
    CustomOp1,
    CustomOp2,
    CustomOp3,
    Device,
    DeviceMismatch,
    InplaceOp1,
    InplaceOp2,
    InplaceOp3,
    InvalidArgument,
    InvalidLayout,
    Layout,
    Shape,
    Storage,
    Tensor,
)
from tallow.runtime.backends.cpu_backend import CpuStorage

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


class Returns(CustomOp1):
    """Whatever it was made with."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def cpu_fwd(self, storage: CpuStorage, layout: Layout) -> Any:
        return self.result(storage)


@pytest.mark.parametrize(
    ("result", "described"),
    [
        (lambda storage: (Storage(storage), Shape((2,))), r"\(Storage, Shape\)"),
        (lambda storage: storage.to_numpy(), "ndarray"),
        (lambda storage: (storage.to_numpy(), Shape((2,))), r"\(ndarray, Shape\)"),
        (lambda storage: storage, "CpuStorage"),
        (lambda storage: (storage,), r"\(CpuStorage\)"),
        (lambda storage: (storage, 2), r"\(CpuStorage, int\)"),
        (lambda storage: None, "None"),
    ],
)
def test_a_result_that_is_no_storage_with_its_shape(result: Callable[[CpuStorage], Any], described: str) -> None:
    expected = rf"^Returns: cpu_fwd of Returns returned {described}; return \(CpuStorage, Shape\), such as"
    with pytest.raises(InvalidArgument, match=expected):
        Tensor([1.0, 2.0]).apply_op1(Returns(result))


def test_a_shape_that_is_none() -> None:
    for sizes in ((-1,), (0.5,), "ab"):
        with pytest.raises(InvalidArgument, match=r"^Returns: cpu_fwd of Returns returned a wrong shape: "):
            Tensor([1.0, 2.0]).apply_op1(Returns(lambda storage, sizes=sizes: (storage, sizes)))
    assert Tensor([1.0, 2.0]).apply_op1(Returns(lambda storage: (storage, (2, 1)))).shape == Shape((2, 1))


def test_a_result_that_is_the_operand_shares_its_memory() -> None:
    tensor = Tensor([1.0, 2.0])
    result = tensor.apply_op1(Returns(lambda storage: (storage, Shape((2, 1)))))
    tensor.fill_(7)
    same(result, np.array([[7], [7]], np.float32))


class Chatty(InplaceOp1):
    def cpu_fwd(self, storage: CpuStorage, layout: Layout) -> Any:
        return storage, layout.shape


def test_an_op_in_place_that_returns_something() -> None:
    with pytest.raises(InvalidArgument, match=r"^Chatty: cpu_fwd of Chatty returned \(CpuStorage, Shape\); .*None"):
        Tensor([1.0]).inplace_op1(Chatty())


class Mute(CustomOp1, CustomOp2, InplaceOp3):
    """No method for any backend."""


@pytest.mark.parametrize(
    ("apply", "parameters"),
    [
        (lambda x: x.apply_op1(Mute()), "self, storage, layout"),
        (lambda x: x.apply_op2(x, Mute()), "self, storage, layout1, storage2, layout2"),
        (lambda x: x.inplace_op3(x, x, Mute()), "self, storage, layout1, storage2, layout2, storage3, layout3"),
        (lambda x: Mute().cpu_fwd(x.storage.inner, x.layout), "self, storage, layout"),
    ],
)
def test_an_op_without_the_method_of_a_backend(apply: Callable[[Tensor], Any], parameters: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        apply(Tensor([1.0]))
    assert str(caught.value) == f"Mute: class Mute does not run on cpu; define cpu_fwd({parameters}) in it"


@pytest.mark.parametrize(
    ("op", "hint"),
    [
        (AddAll(), "not from InplaceOp1 as AddAll does; call inplace_op1 with it"),
        (Total, r"not a class; make an object of it, Total\(\)"),
        (lambda storage, layout: (storage, layout.shape), "not a function; derive one"),
        (None, "not a NoneType; derive one"),
    ],
)
def test_what_is_no_op_of_the_kind_is_told_before_anything_runs(op: Any, hint: str) -> None:
    tensor = Tensor([1.0, 2.0])
    for method, operands in (("apply_op1", ()), ("apply_op2", (tensor,)), ("apply_op3", (tensor, tensor))):
        with pytest.raises(InvalidArgument, match=f"^{method}: the op is an object of a class .*CustomOp.*, {hint}"):
            getattr(tensor, method)(*operands, op)
    assert tensor.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_an_array_of_a_storage_has_the_shape_of_the_layout_and_shares_the_elements(dtype: str) -> None:
    tensor = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4), dtype=dtype)
    for view in (tensor, tensor.t(), tensor[1:, ::2], tensor[2][3], tensor[:0]):
        array = view.storage.inner.array(view.layout)
        assert array.shape == tuple(view.shape)
        same(view, array)
    array = tensor.storage.inner.array(tensor[1].layout)
    array[...] = 7
    assert tensor.tolist()[1] == [7] * 4


def test_a_device_gives_what_its_backend_has_for_it() -> None:
    device = Device.cpu()
    assert device.as_cpu_device() is device.inner
    for name in ("cuda", "metal", "rocm"):
        with pytest.raises(DeviceMismatch) as caught:
            getattr(device, f"as_{name}_device")()
        assert str(caught.value) == f"as_{name}_device: tensors on cpu are not on {name}; move them with to first"
        assert (caught.value.op, caught.value.devices) == (f"as_{name}_device", ("cpu",))


def test_an_operand_that_is_no_tensor() -> None:
    tensor, other = Tensor([1.0]), np.array([1.0])
    for call in (
        lambda: tensor.apply_op2(other, Total()),
        lambda: tensor.apply_op3(tensor, other, Total()),
        lambda: tensor.inplace_op2(other, AddAll()),
        lambda: tensor.inplace_op3(other, tensor, AddAll()),
    ):
        with pytest.raises(InvalidArgument, match=r"(second|third) must be a Tensor, not of type ndarray"):
            call()


def test_the_name_of_an_op_is_that_of_its_class_unless_stated() -> None:
    class Derived(Total):
        pass

    assert (Chatty.name, Chatty().name, Total().name, Derived().name) == ("Chatty", "Chatty", "total", "total")
    op = Chatty()
    op.name = "quiet"
    assert op.name == "quiet"


class Shrink(InplaceOp1):
    """Less memory for the storage than it had."""

    def cpu_fwd(self, storage: CpuStorage, layout: Layout) -> None:
        storage.data = storage.data[:1]


def test_a_storage_cannot_shrink() -> None:
    tensor = Tensor([1.0, 2.0])
    with pytest.raises(InvalidArgument, match=r"2 elements and dtype float32, not one of shape \(1,\)"):
        tensor.inplace_op1(Shrink())
    assert tensor.tolist() == [1, 2]
