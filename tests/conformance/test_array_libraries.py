"""What backends on array libraries owe their libraries: errors keep their text, and sums take no copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, Tensor
from tallow.runtime.backends.array_backend.device import ArrayDevice
from tallow.runtime.base.error import LibraryError

from .matrix import dtypes_of

X = np.arange(12, dtype=np.float32).reshape(4, 3)
# By the word of the library that each call needs.
CALLS: dict[str, Callable[[Tensor], object]] = {
    "exp": lambda x: x.exp(),
    "matmul": lambda x: x @ x.T,
    "take": lambda x: x.index_select(Tensor([1, 0], dtype="u8", device=x.device), 0),
    "concat": lambda x: x[1:].slice_set(x[:1], 0, 1),
    "full": lambda x: x.zeros_like(),
    "to_numpy": lambda x: x.numpy(),
    "from_numpy": lambda x: Tensor(X, device=x.device),
    "from_dlpack": lambda x: x.device.inner.from_dlpack(X),
    "reshape": lambda x: x.__dlpack__(),
}


@pytest.fixture
def library(device: Device) -> Any:
    if not isinstance(device.inner, ArrayDevice):
        pytest.skip("the backend stands on no array library")
    return device.inner.library


@pytest.mark.parametrize("word", CALLS)
def test_what_a_library_says_is_inside_of_an_error_of_tallow(
    word: str, device: Device, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KeyError("no such luck")

    if device == Device.cpu():
        pytest.skip("kernels and NumPy do there what the others do by words")
    x = Tensor(X, device=device)
    monkeypatch.setattr(library, word, refuse)
    with pytest.raises(LibraryError, match=f"^{device.backend}: KeyError: 'no such luck'"):
        CALLS[word](x)


def test_a_sum_converts_no_more_than_its_result(device: Device, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, convert, counts = Tensor(X, device=device), library.astype, [0]

    def noted(array: Any, dtype: Any) -> Any:
        counts.append(int(np.prod(array.shape)))
        return convert(array, dtype)

    monkeypatch.setattr(library, "astype", noted)
    assert x.sum().item() == X.sum()
    assert max(counts) <= 1


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.usefixtures("library")
def test_a_quotient_by_repeated_numbers_is_rounded_once(dtype: DType, device: Device) -> None:
    if str(dtype) not in dtypes_of(device.backend):
        pytest.skip("the device has no quotients of this dtype")
    numbers = np.random.default_rng(0).normal(size=(20, 30)).astype(dtype.numpy)
    x = Tensor(numbers, device=device)
    for divisor in (numbers[:1, :1], numbers[:1], numbers[:, :1]):
        quotients = x / Tensor(divisor, device=device).broadcast_as((20, 30))
        assert (quotients.numpy() == numbers / divisor).all(), f"divided by {divisor.shape}"
    assert ((x / 3.7).numpy() == numbers / numbers.dtype.type(3.7)).all()
    assert ((1 / x).numpy() == 1 / numbers).all()
