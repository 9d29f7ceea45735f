"""The parts of the random stream that all backends share."""

from __future__ import annotations

import math
import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tallow import Device, DType, InvalidArgument
from tallow.runtime.core.random import INITIAL_SEED, RandomState, drawn_blocks, uniform_range

from .arrays import FLOATS

BOUNDS = st.floats(-1e38, 1e38) | st.floats(-500, 500) | st.sampled_from([0.0, -0.0, 0.1, 448.0, 65504.0, 1e-45])


def has(dtype: DType, number: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.array(number).astype(dtype.numpy).astype(np.float64)) == number


def next_number(dtype: DType, number: float, up: bool) -> float:
    """The neighbour of a number among those of the dtype, by its bits."""
    sign = -1 if (number < 0) else 1
    bits = np.array(abs(number)).astype(dtype.numpy).view(f"u{dtype.itemsize}")
    if number == 0:
        neighbour = np.array(1, bits.dtype).view(dtype.numpy).astype(np.float64)
        return float(neighbour) if up else -float(neighbour)
    away = (sign > 0) == up
    neighbour = (bits + 1 if away else bits - 1).astype(bits.dtype).view(dtype.numpy)
    return sign * float(neighbour.astype(np.float64))


@pytest.mark.parametrize("dtype", FLOATS)
@given(lo=BOUNDS, up=BOUNDS)
def test_uniform_range_is_the_tightest_that_the_dtype_has(dtype: DType, lo: float, up: float) -> None:
    try:
        lowest, highest = uniform_range(lo, up, dtype)
    except InvalidArgument:
        return
    assert lo <= lowest <= highest < up
    assert has(dtype, lowest)
    assert has(dtype, highest)
    assert next_number(dtype, lowest, up=False) < lo or math.isnan(next_number(dtype, lowest, up=False))
    above = next_number(dtype, highest, up=True)
    assert above >= up or math.isnan(above)


@pytest.mark.parametrize(
    ("dtype", "lo", "up", "expected"),
    [
        (DType.F32, 0.0, 1.0, (0.0, 1 - 2**-24)),
        (DType.F64, 0.0, 1.0, (0.0, 1 - 2**-53)),
        (DType.F16, 0.0, 1.0, (0.0, 1 - 2**-11)),
        (DType.BF16, 0.0, 1.0, (0.0, 1 - 2**-8)),
        (DType.F8E4M3, 0.0, 1.0, (0.0, 1 - 2**-4)),
        (DType.F8E4M3, -1000.0, 1000.0, (-448.0, 448.0)),
        (DType.F16, -1e5, 1e5, (-65504.0, 65504.0)),
        (DType.F32, -1.0, 0.0, (-1.0, -(2.0**-149))),
        (DType.F32, 0.1, 0.2, (float(np.float32(0.1)), float(np.nextafter(np.float32(0.2), np.float32(0))))),
    ],
)
def test_uniform_range_of_known_bounds(dtype: DType, lo: float, up: float, expected: tuple[float, float]) -> None:
    assert uniform_range(lo, up, dtype) == expected


@pytest.mark.parametrize(
    ("dtype", "lo", "up", "message"),
    [
        (DType.F32, 1.0, 1.0, "lo is below up"),
        (DType.F32, 2.0, 1.0, "lo is below up"),
        (DType.F32, math.nan, 1.0, "finite"),
        (DType.F32, 0.0, math.inf, "finite"),
        (DType.F32, -3e38, 3e38, "too large for f32"),
        (DType.F64, -1.7e308, 1.7e308, "too large for f64"),
        (DType.F8E4M3, 449.0, 500.0, "f8e4m3 has no number"),
        (DType.F8E4M3, -500.0, -449.0, "f8e4m3 has no number"),
        (DType.BF16, 1.001, 1.002, "bf16 has no number"),
        (DType.F32, 1 + 2**-30, 1 + 2**-29, "f32 has no number"),
    ],
)
def test_bounds_without_numbers_between_are_errors(dtype: DType, lo: float, up: float, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        uniform_range(lo, up, dtype)


def test_blocks_are_handed_out_one_after_the_other() -> None:
    state = RandomState()
    assert state.seed == INITIAL_SEED == 299792458
    first = [
        state.reserve(drawn_blocks(count, dtype)) for count, dtype in ((5, DType.F32), (5, DType.F64), (0, DType.F32))
    ]
    assert first == [(INITIAL_SEED, 0), (INITIAL_SEED, 2), (INITIAL_SEED, 5)]
    assert state.reserve(1) == (INITIAL_SEED, 5)
    state.set_seed(7)
    assert state.seed == 7
    assert state.next_block == 0
    with pytest.raises(InvalidArgument, match="2\\*\\*64"):
        state.set_seed(1 << 64)
    with pytest.raises(InvalidArgument):
        state.set_seed(-1)


def test_the_blocks_of_a_call_that_failed_are_handed_out_again() -> None:
    state = RandomState(3)
    state.reserve(1)
    state.cancel(state.reserve(5), 5)
    assert state.next_block == 1
    # Not where another call has some since, and not of a stream that was left.
    failed = state.reserve(1)
    state.reserve(1)
    state.cancel(failed, 1)
    assert state.next_block == 3
    failed = state.reserve(1)
    state.set_seed(4)
    state.reserve(4)
    state.cancel(failed, 1)
    assert (state.seed, state.next_block) == (4, 4)


@pytest.mark.parametrize("seed", [1.5, 2.0, np.float32(3), "4", None])
def test_a_seed_that_is_no_integer(device: Device, seed: object) -> None:
    before = device.get_current_seed()
    with pytest.raises(InvalidArgument, match=re.escape(f"set_seed: seed must be an integer, not {seed!r}")):
        device.set_seed(seed)  # type: ignore[arg-type]
    assert device.get_current_seed() == before


def test_any_integer_is_a_seed(device: Device) -> None:
    before = device.get_current_seed()
    for seed in (np.uint64(2**64 - 1), np.int8(7), True):
        device.set_seed(seed)  # type: ignore[arg-type]
        assert type(device.get_current_seed()) is int
        assert device.get_current_seed() == int(seed)
    device.set_seed(before)


def test_threads_get_different_blocks() -> None:
    state = RandomState()
    taken: list[int] = []
    threads = [threading.Thread(target=lambda: taken.extend(state.reserve(1)[1] for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(2000))
