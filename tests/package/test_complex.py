"""Complex numbers beside real ones: Python's numbers, promotion, printing, and what refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, InvalidArgument, Tensor, UnsupportedDType

from .arrays import COMPLEX, same


@pytest.fixture
def numbers() -> Tensor:
    return Tensor([1 + 2j, 3, -0.5j])


def test_numbers_of_python(device: Device) -> None:
    x = Tensor([1.0, -2.0], device=device)
    same(x + 2j, np.array([1 + 2j, -2 + 2j], np.complex64))
    same(2j - x, np.array([-1 + 2j, 2 + 2j], np.complex64))
    same(x == 1j, np.array([False, False]))
    same(x.to_dtype("f64") * 1j, np.array([1j, -2j]))
    same(Tensor.full(2, 3 - 1j, device=device), np.full(2, 3 - 1j, np.complex64))
    same(Tensor([[1, 2j], [0.5, True]], device=device), np.array([[1, 2j], [0.5, 1]], np.complex64))
    for dtype in COMPLEX:
        z = Tensor.zeros(3, dtype=dtype, device=device)
        z[1:] = 1 - 3j
        same(z, np.array([0, 1 - 3j, 1 - 3j], dtype.numpy))
        assert complex(z[1]) == z[1].item() == 1 - 3j
        # A word of zeros, and one that is none, instead of the imaginary part.
        for number in (2.5, -2.5j, complex(0.5, -0.0)):
            same(z.fill_(number) * number, np.full(3, number, dtype.numpy) * dtype.numpy.type(number))


def test_real_numbers_are_promoted(device: Device) -> None:
    z = Tensor([1j], device=device)
    for name, expected in (("bf16", "complex64"), ("f32", "complex64"), ("f64", "complex128")):
        assert (Tensor([2.0], name, device) * z).dtype.value == expected
        assert (z - Tensor([2.0], name, device)).dtype.value == expected
    assert (z + z.to_dtype("complex128")).dtype is DType.COMPLEX128
    same(z.to_dtype("bool"), np.array([True]))


def test_printing(numbers: Tensor) -> None:
    assert repr(numbers) == "Tensor([1.+2.0j, 3.+0.0j, -0.-0.5j], dtype=complex64)"
    assert str(numbers[0]) == "Tensor(1.+2.j, dtype=complex64)"
    assert repr(Tensor([complex("nan-infj")])) == "Tensor([nan-infj], dtype=complex64)"


@pytest.mark.parametrize("name", [dtype.value for dtype in DType if dtype.kind not in ("bool", "complex")])
def test_an_imaginary_part_is_not_dropped(numbers: Tensor, name: str) -> None:
    with pytest.raises(UnsupportedDType, match=r"imaginary part; take real\(\), imag\(\) or abs\(\)"):
        numbers.to_dtype(name)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z < z,
        lambda z: z.max(),
        lambda z: z.floor(),
        lambda z: z // z,
        lambda z: z.argsort(),
        lambda z: z.relu(),
    ],
)
def test_an_order_is_refused(numbers: Tensor, call: Callable[[Tensor], Any]) -> None:
    with pytest.raises(UnsupportedDType, match=r"order|abs"):
        call(numbers)


def test_real_tensors_have_no_complex_elements() -> None:
    for call in (lambda: Tensor([1]) * 1j, lambda: Tensor([1.0]).fill_(1j), lambda: Tensor([1.0], "bf16") + 1j):
        with pytest.raises(InvalidArgument, match="complex dtype with to_dtype"):
            call()
    with pytest.raises(InvalidArgument, match="f32 lacks; use a complex dtype"):
        x = Tensor([1.0])
        x.storage.const_set(1j, x.layout)


def test_tolerances(numbers: Tensor) -> None:
    assert numbers.allclose(numbers + 1e-9j)
    assert not numbers.allclose(numbers + 1e-3j)
    assert Tensor([complex("nan")]).allclose(Tensor([complex("nan")]), equal_nan=True)


def test_numpy_gets_no_real_parts_alone() -> None:
    x = Tensor([1 + 2j], "complex64")
    assert np.asarray(x, np.complex128).tolist() == [1 + 2j]
    with pytest.raises(UnsupportedDType, match="take real"):
        np.asarray(x, np.float32)
