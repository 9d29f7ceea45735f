"""Products with weights in blocks, however many of these are decoded at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tallow import Device, QMatMul, QStorage, QTensor, Tensor
from tallow.runtime.backends.gpu_backend.device import GpuDevice
from tallow.runtime.backends.gpu_backend.ops import quantized

from .layouts import Case, lay_out
from .matrix import dtypes_of
from .oracle import blocks as oracle
from .oracle.formats import EXTENDED, encode


def test_many_rows_are_multiplied_by_a_part_of_the_weights_at_a_time(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(device.inner, GpuDevice):
        pytest.skip("GPUs decode weights for a product of many rows; the others keep them, or leave it to NumPy")
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((20, 64), np.float32)
    product = QMatMul(QTensor.quantize(Tensor(weights), "Q8_0").to(device))
    x = Tensor(generator.standard_normal((11, 64), np.float32), device=device)
    full = product.forward(x).numpy()
    monkeypatch.setattr(quantized, "_MAX_DECODED", 7 * 64 * 4)
    device.inner.plans.clear()
    assert np.abs(product.forward(x).numpy() - full).max() <= 1e-5 * full.std()
    assert np.abs(full - x.numpy() @ weights.T).max() <= 0.02 * full.std()
    device.inner.plans.clear()


# By which rounding to a dtype changes a number of 1 at most.
UNITS = {"f32": 2**-24, "f16": 2**-11, "bf16": 2**-8}
# What x may be: few rows and many, of each way in which a tensor can lie.
LAID = (
    Case((256,), "narrowed columns"),
    Case((3, 256), "sliding"),
    *(
        Case(shape, placement)
        for shape in ((2, 3, 256), (2, 5, 256))
        for placement in (
            *("contiguous", "offset", "transposed", "swapped", "rolled", "narrowed columns", "narrowed rows"),
            *("broadcast rows", "broadcast columns", "broadcast middle", "broadcast all", "loose ones"),
        )
    ),
    Case((2, 0, 256), "transposed"),
    Case((0, 3, 256), "broadcast middle"),
)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("format", oracle.SIZES)
def test_x_may_lie_in_any_way(format: str, dtype: str, device: Device) -> None:
    if dtype not in dtypes_of(device.backend):
        pytest.skip(f"{device.backend} has no {dtype}")
    generator = np.random.default_rng(8)
    data = oracle.random_blocks(generator, format, 4 * 256, (0.01, -0.02))
    weights = QTensor(QStorage.from_data(data, device, format), (4, 256))
    product, decoded = QMatMul(weights), weights.dequantize().numpy().astype(np.float64).T
    for case in LAID:
        x = lay_out(device, dtype, encode(dtype, generator.normal(0, 1, case.shape).astype(EXTENDED)), case.placement)
        got = product.forward(Tensor.from_storage(x.storage, x.layout))
        assert (got.shape, got.dtype.value) == ((*case.shape[:-1], 4), dtype), case
        factors = x.values.astype(np.float64)
        slack = (np.abs(factors) @ np.abs(decoded)) * (2 * UNITS[dtype] + 2**-16)
        assert (np.abs(got.to_dtype("f32").numpy() - factors @ decoded) <= slack).all(), case


def test_a_product_over_no_columns_is_zeros(device: Device) -> None:
    product = QMatMul(QTensor.quantize(Tensor(np.zeros((4, 0), np.float32)), "Q8_0").to(device))
    for x in (np.zeros((5, 0), np.float32), np.zeros((3, 2, 0), np.float32)):
        assert product.forward(Tensor(x, device=device)).numpy().tolist() == np.zeros((*x.shape[:-1], 4)).tolist()


# So long that rows end inside a part of theirs, and so few that waves share them.
ROWS, HIDDEN = 37, 8448
FORMATS = [name for name, (size, _) in oracle.SIZES.items() if size > 1]


def each_with(dtype: str, *others: str) -> list[Any]:
    """Each format with a dtype of x, and the first one with others: conversions of x do not depend on the format."""
    few = [*((format, dtype) for format in FORMATS), *((FORMATS[0], other) for other in others)]
    remaining = [(format, other) for format in FORMATS[1:] for other in others]
    return few + [pytest.param(*each, marks=pytest.mark.full) for each in remaining]


def of_random_blocks(format: str, device: Device) -> tuple[QTensor, np.ndarray]:
    """Weights of random blocks, and the same in f64."""
    generator = np.random.default_rng(2)
    data = oracle.random_blocks(generator, format, ROWS * HIDDEN, generator.normal(0, 0.01, 64).tolist())
    weights = QTensor(QStorage.from_data(data, device, format), (ROWS, HIDDEN))
    return weights, weights.dequantize().numpy().astype(np.float64)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("activations", [None, "q8_1"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_row_of_x_has_the_same_product_alone_and_among_others(
    format: str, activations: str | None, dtype: str, device: Device, full: bool
) -> None:
    if dtype not in dtypes_of(device.backend):
        pytest.skip(f"{device.backend} has no {dtype}")
    weights, _ = of_random_blocks(format, device)
    # GPUs round more than 16 that may be rounded to halves; the CPU decodes weights for more than 8.
    most = 8
    if isinstance(device.inner, GpuDevice):
        most = 33 if (dtype, activations) == ("f32", None) else 16
    x = Tensor(np.random.default_rng(3).standard_normal((most, HIDDEN), np.float32)).to_dtype(dtype).to(device)
    product = QMatMul(weights, activations=activations)

    def bits(first: int, count: int) -> np.ndarray:
        return product.forward(x.narrow(0, first, count)).to_dtype("f32").numpy().view(np.uint32)

    every = bits(0, most)
    alone = [(row, 1) for row in (range(8) if full else (0, 5))]
    for first, count in (*alone, (3, 2), (1, 4), (0, 7), (0, 8), (most - 1, 1), (2, most - 7)):
        assert np.array_equal(bits(first, count), every[first : first + count])


@pytest.mark.parametrize(("format", "dtype"), each_with("f16", "f32", "bf16"))
def test_the_product_of_16_bits_is_that_of_what_dequantize_f16_gives(format: str, dtype: str, device: Device) -> None:
    if not {"f16", dtype} <= set(dtypes_of(device.backend)):
        pytest.skip(f"{device.backend} has no f16, or no {dtype}")
    weights, decoded = of_random_blocks(format, device)
    rounded = weights.dequantize_f16().numpy().astype(np.float64)
    assert np.array_equal(rounded, decoded.astype(np.float16))
    x = Tensor(np.random.default_rng(6).standard_normal((9, HIDDEN), np.float32)).to_dtype(dtype).to(device)
    got = QMatMul(weights).forward_via_f16(x)
    assert (got.dtype.value, got.shape) == (dtype, (9, ROWS))
    factors = x.to_dtype("f16").numpy().astype(np.float64)
    # Sums are in f32, and rounded to f16 and to the dtype of x.
    slack = 1e-6 * (np.abs(factors) @ np.abs(rounded).T)
    expected = factors @ rounded.T
    slack += (np.abs(expected) + slack) * (2**-11 + (2**-8 if dtype == "bf16" else 0))
    assert (np.abs(got.to_dtype("f32").numpy() - expected) <= slack).all()


@pytest.mark.parametrize(("format", "dtype"), each_with("bf16", "f16"))
def test_weights_of_16_bits_change_a_product_by_one_unit_of_its_terms(format: str, dtype: str, device: Device) -> None:
    if dtype not in dtypes_of(device.backend):
        pytest.skip(f"{device.backend} has no {dtype}")
    weights, decoded = of_random_blocks(format, device)
    x = Tensor(np.random.default_rng(7).standard_normal((9, HIDDEN), np.float32)).to_dtype(dtype)
    got = QMatMul(weights).forward(x.to(device)).to_dtype("f32").numpy()
    factors = x.to_dtype("f32").numpy().astype(np.float64)
    assert (np.abs(got - factors @ decoded.T) <= 2 * UNITS[dtype] * (np.abs(factors) @ np.abs(decoded).T)).all()


@pytest.mark.parametrize("format", FORMATS)
def test_products_are_exact_whatever_the_size_of_x(format: str, device: Device) -> None:
    weights, decoded = of_random_blocks(format, device)
    generator = np.random.default_rng(4)
    x = generator.standard_normal((8, HIDDEN), np.float32)
    x[1] *= 1e30
    x[2] *= 1e-30
    x[3] *= np.exp(generator.normal(0, 8, HIDDEN)).astype(np.float32)
    x[4, ::100] *= 1e6
    x[5] = np.copysign(np.nextafter(np.float32(2), np.float32(0)), x[5])
    x[6] *= 1e-39
    x[7] = 0
    got = QMatMul(weights).forward(Tensor(x, device=device)).numpy()
    # Numbers may be as exact as the largest of 32 is.
    largest = np.abs(x.astype(np.float64)).reshape(8, -1, 32).max(2)
    sizes = largest @ np.abs(decoded).reshape(ROWS, -1, 32).sum(2).T
    assert (np.abs(got - x.astype(np.float64) @ decoded.T) <= 1e-6 * sizes + 1e-41).all()


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_not_finite_makes_its_products_so(format: str, device: Device) -> None:
    weights, decoded = of_random_blocks(format, device)
    x = np.random.default_rng(5).standard_normal((3, HIDDEN), np.float32)
    x[0, 5], x[1, 6], x[2, 7] = np.inf, -np.inf, np.nan
    got = QMatMul(weights).forward(Tensor(x, device=device)).numpy()
    assert np.isnan(got[2]).all()
    for row, column in enumerate((5, 6)):
        factors = decoded[:, column]
        # A product with a weight of a quant and an offset may be that of both, which have no sum.
        expected = np.copysign(np.inf, factors * np.sign(x[row, column]))
        expected[factors == 0] = np.nan
        assert (np.isnan(got[row]) | (got[row] == expected)).all()
        if format in {"Q4_0", "Q5_0", "Q8_0", "Q3K", "Q6K"}:
            assert np.array_equal(got[row], expected, equal_nan=True)
