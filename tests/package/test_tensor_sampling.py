"""Random numbers and choices: what is drawn, from which it follows, and how often."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tallow as tl
from tallow import Device, DType, InvalidArgument, ShapeMismatch, TallowError, Tensor, UnsupportedDType

from .arrays import same


def drawn_twice(device: Device, draw: Callable[[Device], Tensor]) -> Tensor:
    """What is drawn, which one seed gives again on the device, and on the CPU."""
    results = []
    for each in (device, device, Device.cpu()):
        each.set_seed(11)
        results.append(draw(each))
    for other in results[1:]:
        same(other, results[0].numpy())
    return results[0]


def test_numbers_like_those_of_a_tensor(device: Device) -> None:
    x = Tensor.zeros((3, 5), dtype="f16", device=device).T
    for draw, other in ((x.rand_like, Tensor.rand), (x.randn_like, Tensor.randn)):
        device.set_seed(3)
        result = draw(-1.0, 2.0)
        device.set_seed(3)
        options = {"lo": -1.0, "up": 2.0} if other == Tensor.rand else {"mean": -1.0, "std": 2.0}
        same(result, other(x.shape, dtype="f16", device=device, **options).numpy())


@pytest.mark.parametrize("dtype", ["i64", "u8", "f32"])
def test_randint(device: Device, dtype: str) -> None:
    actual = drawn_twice(device, lambda d: tl.randint(3, 9, (40, 50), dtype=dtype, device=d))
    assert actual.dtype == DType(dtype)
    counts = np.bincount(actual.numpy().astype(np.int64).ravel(), minlength=9)
    assert counts[:3].sum() == 0
    assert (abs(counts[3:] - 2000 / 6) < 5 * np.sqrt(2000 / 6)).all()
    assert Tensor.randint(-(2**63), -(2**63) + 1, 2, device=device).tolist() == [-(2**63)] * 2
    assert Tensor.randint(0, 5, (0, 2), device=device).shape == (0, 2)


@pytest.mark.parametrize("count", [0, 1, 7, 3000])
def test_randperm(device: Device, count: int) -> None:
    actual = drawn_twice(device, lambda d: tl.randperm(count, device=d)).numpy()
    assert sorted(actual) == list(range(count))
    assert count < 100 or abs(np.corrcoef(actual, np.arange(count))[0, 1]) < 0.1


def test_bernoulli(device: Device) -> None:
    probabilities = np.linspace(0, 1, 5, dtype=np.float32).repeat(400)
    actual = drawn_twice(device, lambda d: Tensor(probabilities, device=d).bernoulli()).numpy().reshape(5, 400)
    assert set(actual.ravel()) == {0, 1}
    np.testing.assert_allclose(actual.mean(1), [0, 0.25, 0.5, 0.75, 1], atol=0.12)
    assert Tensor([0.5], "bf16", device).bernoulli().dtype is DType.BF16


def test_multinomial(device: Device) -> None:
    weights = np.array([[0, 1, 3, 0, 4, 0], [2, 0, 0, 0, 0, 2]], np.float32)
    device.set_seed(5)
    actual = Tensor(weights, device=device).multinomial(2000, replacement=True)
    assert actual.dtype is DType.I64
    for row, expected in zip(actual.numpy(), weights / weights.sum(1, keepdims=True), strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=6) / 2000, expected, atol=0.05)
        assert not (np.bincount(row, minlength=6)[expected == 0]).any()
    line = Tensor(weights[0], device=device)
    assert line.multinomial(5, True).shape == (5,)
    assert line.multinomial(0).shape == (0,)
    first = []
    for _ in range(300):
        chosen = line.multinomial(3).tolist()
        assert sorted(chosen) == [1, 2, 4]
        first.append(chosen[0])
    np.testing.assert_allclose(np.bincount(first, minlength=6) / 300, weights[0] / 8, atol=0.12)
    assert Tensor(weights, "f16", device).multinomial(2).shape == (2, 2)


@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_float], ids=str)
def test_weights_of_multinomial(device: Device, dtype: DType, with_replacement: bool) -> None:
    """What no weights are is refused in any row, and what has no weight is never drawn, however large others are."""
    if not device.supports(dtype):
        pytest.skip(f"{device.label} lacks {dtype}")
    largest, least = (float(getattr(ml_dtypes.finfo(dtype.numpy), name)) for name in ("max", "smallest_subnormal"))
    for numbers in ([0.0, 0.0], [1.0, -1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, 1.0], [-0.0, -least]):
        weights = np.array(numbers, dtype.numpy)
        if not np.array_equal(weights.astype(float), numbers, equal_nan=True):
            continue  # the dtype has no infinity
        for x in (weights, np.stack([np.ones(2, dtype.numpy), weights])):
            with pytest.raises(InvalidArgument, match="multinomial: weights are finite and 0 or more, and one of each"):
                Tensor(x, device=device).multinomial(1, with_replacement)
    device.set_seed(1)
    for weight in (largest, least):
        rows = np.array([[0, weight, 0, weight, 0], [weight, 0, 0, 0, weight]], dtype.numpy)
        actual = Tensor(rows, device=device).multinomial(500 if with_replacement else 2, with_replacement).numpy()
        assert [set(row) for row in actual] == [{1, 3}, {0, 4}]
    assert Tensor(np.zeros((0, 3), dtype.numpy), device=device).multinomial(2, with_replacement).shape == (0, 2)


def test_sums_that_fall_draw_nothing_without_weight(device: Device) -> None:
    """Parallel running sums are not monotone."""
    generator = np.random.default_rng(0)
    weights = np.where(generator.random(20_000) < 0.6, 0, generator.random(20_000) ** 3).astype(np.float32)
    device.set_seed(2)
    assert (weights[Tensor(weights, device=device).multinomial(20_000, True).numpy()] > 0).all()


REFUSED: dict[str, tuple[type[TallowError], Callable[[Any], object]]] = {
    "randint": (InvalidArgument, lambda d: Tensor.randint(2, 2, 3, device=d)),
    "randperm": (InvalidArgument, lambda d: Tensor.randperm(300, "u8", d)),
    "bernoulli": (UnsupportedDType, lambda d: Tensor([1], device=d).bernoulli()),
    "multinomial": (InvalidArgument, lambda d: Tensor([1.0], device=d).multinomial(2)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_what_was_called(device: Device, name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call(device)
    assert caught.value.op == name


def test_what_is_not_drawn(device: Device) -> None:
    with pytest.raises(InvalidArgument, match="randint"):
        Tensor.randint(0, 300, 3, dtype="u8", device=device)
    with pytest.raises(InvalidArgument, match="pass the shape as one tuple"):
        Tensor.randint(0, 3, 2, 3, device=device)  # type: ignore[arg-type]
    with pytest.raises(ShapeMismatch):
        Tensor.ones((2, 0), device=device).multinomial(0)
