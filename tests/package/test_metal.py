"""What the metal backend does besides its cells, on MLX's CPU device."""

from __future__ import annotations

import numpy as np
import pytest
from tallow import Device, DType, TallowError, Tensor, UnsupportedDType, fuse
from tallow.metal_backend import MetalError
from tallow.runtime.backends import backend

pytest.importorskip("mlx.core", reason="MLX is not installed")


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setenv("TALLOW_METAL_CPU", "1")
    # An open device stays open: tests that run later in this process must not find it.
    monkeypatch.setattr(backend, "_opened", {**backend._opened})
    return Device.metal()


def test_what_the_library_refuses_is_an_error_of_the_backend(metal: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not today")

    monkeypatch.setattr(metal.inner.library, "sin", refuse)
    with pytest.raises(MetalError, match="metal: ValueError: not today") as caught:
        Tensor([1.0], device=metal).sin()
    assert isinstance(caught.value, TallowError)


def test_truth_values_become_numbers(metal: Device) -> None:
    x = Tensor([1, 2], dtype="u8", device=metal)
    assert (x.eq(x).to_dtype("u8") + x.eq(x).to_dtype("u8")).tolist() == [2, 2]


def test_a_fused_function_is_refused_a_dtype_as_its_op_is(metal: Device) -> None:
    x = Tensor([1.0], device=metal)
    for dtype in (DType.F64, DType.COMPLEX64):
        with pytest.raises(UnsupportedDType) as expected:
            x.to_dtype(dtype)
        with pytest.raises(UnsupportedDType) as caught:
            fuse(lambda x, dtype=dtype: x.to_dtype(dtype))(x)
        assert str(caught.value) == str(expected.value)


def test_long_sums_of_floats_are_added_in_short_rows(metal: Device) -> None:
    """The library adds one after the other, which of a million tenths is off by 138 units in the last place."""
    tenths = np.full(1 << 20, 0.1, np.float32)
    expected = tenths.astype(np.float64).sum()
    actual = Tensor.from_numpy(tenths, device=metal).sum().item()
    assert abs(actual - expected) < 16 * np.spacing(np.float32(expected))


def test_dlpack_shares_what_is_kept_as_itself(metal: Device) -> None:
    for dtype in ("u8", "i64", "f32"):
        x = Tensor([1, 2, 3], dtype=dtype, device=metal)
        assert np.from_dlpack(x).tolist() == [1, 2, 3]
    with pytest.raises(UnsupportedDType, match="stored as their bits"):
        np.from_dlpack(Tensor([1.0], device=metal).to_dtype(DType.F8E4M3))


def test_elements_of_a_repeated_one_are_there_in_steps(metal: Device) -> None:
    """The library keeps what it repeats as one element, and strides over rows alone."""
    repeated = Tensor([2.0], device=metal).broadcast_as(6).copy()
    assert repeated.reshape(2, 3)[:, 1:].contiguous().tolist() == [[2, 2], [2, 2]]
