"""`deterministic`: as a setting, as a block, and of each thread for itself."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tallow
from tallow import Device, InvalidArgument, Tensor, deterministic, is_deterministic


@pytest.fixture(autouse=True)
def as_before():
    # Other tests call it with whatever they find.
    deterministic()
    yield
    deterministic()


def test_a_block_ends_as_it_began() -> None:
    assert is_deterministic()
    with deterministic(False):
        assert not is_deterministic()
        with deterministic(True):
            assert is_deterministic()
        assert not is_deterministic()
        with pytest.raises(KeyError), deterministic():
            raise KeyError
        assert not is_deterministic()
    assert is_deterministic()


def test_it_is_a_setting_too() -> None:
    deterministic(False)
    assert not is_deterministic()
    deterministic()
    assert is_deterministic()


def test_a_thread_says_it_for_itself() -> None:
    seen = []
    with deterministic(False):
        thread = threading.Thread(target=lambda: seen.append(is_deterministic()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_only_a_flag_is_taken() -> None:
    with pytest.raises(InvalidArgument, match=r"^deterministic: required must be True or False, not 0"):
        deterministic(0)  # type: ignore[arg-type]
    assert is_deterministic()


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_sums_in_any_order_are_the_same_but_for_rounding(device: Device, dtype: str) -> None:
    generator = np.random.default_rng(3)
    indexes = Tensor(generator.integers(0, 40, (30, 60)), device=device)
    x, source = (Tensor(generator.integers(-9, 9, shape), dtype=dtype, device=device) for shape in ((30, 40), (30, 60)))
    expected = x.scatter_add(indexes, source, 1).tolist()
    with tallow.deterministic(False):
        assert x.scatter_add(indexes, source, 1).tolist() == expected
        assert x.T.scatter_add(indexes.T, source.T, 0).T.tolist() == expected
