"""Blocks of weights: the formats that files have, and what NumPy decodes of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
import tallow as tl
from tallow import GgmlDType
from tallow.runtime.base.error import InvalidArgument, InvalidIndex, ShapeMismatch, UnsupportedDType
from tallow.runtime.host.weights import decode

# The oracle, which the Python of `make test-gpu` may lack.
gguf = pytest.importorskip("gguf")
GGML_QUANT_SIZES, GGMLQuantizationType = gguf.GGML_QUANT_SIZES, gguf.GGMLQuantizationType

# By our names, those of the gguf package, where they differ.
GGUF_NAMES = {f"Q{bits}K": f"Q{bits}_K" for bits in (2, 3, 4, 5, 6, 8)}
# What the package cannot decode.
CANDLE_ALONE = (GgmlDType.Q8_1, GgmlDType.Q8K)
# Zeros, subnormal, ordinary and the largest scales of 16 bits, of both signs.
SCALES = [0.0, -0.0, 2**-24, -(2**-24), 2**-14 - 2**-24, 2**-14, 0.1, -1.0, 3.5, 65504.0, -65504.0]
# Those that only floats with the exponents of f32 have.
WIDE = (GgmlDType.F32, GgmlDType.BF16, GgmlDType.Q8K)
WIDE_SCALES = [2**-149, -(2**-149), 2**-133, 2**-126 - 2**-149, 2**-126, 2.0**127, -(2.0**127)]


def of_gguf(dtype: GgmlDType) -> GGMLQuantizationType:
    return GGMLQuantizationType[GGUF_NAMES.get(dtype.value, dtype.value)]


def random_blocks(dtype: GgmlDType, count: int, seed: int = 3) -> np.ndarray:
    """Bytes of blocks: fields of integers have any bits, floats are each of SCALES, not finite and others."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, count * dtype.type_size, np.uint8).view(dtype.numpy)
    for name in blocks.dtype.names:
        element = blocks.dtype[name]
        if element.base.kind not in "iu":
            values = [*SCALES, *(WIDE_SCALES if dtype in WIDE else ()), *generator.standard_normal(50)]
            values += [] if dtype in CANDLE_ALONE else [np.inf, -np.inf, np.nan]
            blocks[name] = generator.choice(values, count).astype(element)
    return blocks.view(np.uint8)


@pytest.mark.parametrize("dtype", GgmlDType, ids=str)
def test_the_sizes_are_those_of_ggml(dtype: GgmlDType) -> None:
    number = of_gguf(dtype)
    # The package counts a field of llama.cpp's old Q8_1, which has 4 bytes more than that of files and of Candle.
    size = 36 if dtype is GgmlDType.Q8_1 else GGML_QUANT_SIZES[number][1]
    assert (dtype.to_u32(), dtype.block_size, dtype.type_size) == (number.value, GGML_QUANT_SIZES[number][0], size)
    assert GgmlDType.from_u32(dtype.to_u32()) is dtype
    assert dtype.numpy.itemsize == dtype.type_size


@pytest.mark.parametrize("number", [4, 31, -1, 2**32, 2.0, "2", None])
def test_a_number_of_no_format_is_refused(number: object) -> None:
    with pytest.raises(InvalidArgument, match=r"from_u32: .* is the number of no block format; known are 0 \(F32\)"):
        GgmlDType.from_u32(number)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [dtype for dtype in GgmlDType if dtype not in CANDLE_ALONE], ids=str)
def test_weights_have_the_bits_of_the_gguf_package(dtype: GgmlDType) -> None:
    data = random_blocks(dtype, 3000)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(data, of_gguf(dtype)).reshape(-1)
    got = decode(data, dtype)
    # What is no number has no sign, and no other bits, that anybody promises.
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    got[np.isnan(got)] = expected[np.isnan(expected)] = 0
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("dtype", CANDLE_ALONE, ids=str)
def test_weights_are_those_of_candle(dtype: GgmlDType) -> None:
    """BlockQ8_1::to_float and BlockQ8K::to_float of candle-core/src/quantized/k_quants.rs."""
    data = random_blocks(dtype, 500)
    blocks = data.view(dtype.numpy)
    with np.errstate(over="ignore"):
        expected = [np.float32(quant) * block["d"].astype(np.float32) for block in blocks for quant in block["qs"]]
    np.testing.assert_array_equal(decode(data, dtype).view(np.uint32), np.array(expected).view(np.uint32))


def weights(count: int) -> np.ndarray:
    """Numbers of many sizes, rows of zeros, and halves between quants."""
    rows = np.random.default_rng(5).standard_normal((count, 32)).astype(np.float32)
    rows *= np.float32(2) ** np.random.default_rng(6).integers(-20, 15, (count, 1)).astype(np.float32)
    rows[::7] = 0
    rows[1::7] = np.round(rows[1::7] * 2) / 2
    return rows


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16", "TQ1_0", "TQ2_0", "MXFP4"])
def test_blocks_have_the_bits_of_the_gguf_package(name: str) -> None:
    x = weights(704)
    if GgmlDType(name).block_size == 256:
        x = x.reshape(-1, 256)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = gguf.quants.quantize(x, GGMLQuantizationType[name])
    assert tl.QTensor.quantize(tl.Tensor(x), name).data.tobytes() == expected.tobytes()


def nearest(x: np.float32) -> int:
    """f32::round of Rust, halves away from zero, as an i8."""
    return int(np.clip(math.copysign(math.floor(abs(float(x)) + 0.5), float(x)), -128, 127))


def q8_1_of_candle(x: np.ndarray) -> bytes:
    """BlockQ8_1::from_float of candle-core/src/quantized/k_quants.rs.

    d is the largest magnitude / 127 in f16, quants are x * (1 / d) with that d in f32, and s is the product in f16 of
    their sum in f16 and d.
    """
    step = np.abs(x).max() / np.float32(127)
    inverse = np.float32(1) / step if step != 0 else np.float32(0)
    quants = [nearest(number * inverse) for number in x]
    d = np.float16(step)
    return struct.pack("<ee32b", d, np.float16(sum(quants)) * d, *quants)


def q8k_of_ggml(x: np.ndarray) -> bytes:
    """quantize_row_q8_K_ref of ggml-quants.c.

    With -127 / the first number of the largest magnitude as the factor, quants are x times it, halves to even, d is 1 /
    it in f32, and behind the quants stand the sums of 16 each. Zeros give zeros.
    """
    largest = x[np.abs(x).argmax()]
    if largest == 0:
        return bytes(292)
    factor = np.float32(-127) / largest
    quants = np.rint(factor * x).astype(int)
    return struct.pack("<f256b16h", np.float32(1) / factor, *quants, *np.reshape(quants, (16, 16)).sum(1))


# A sum of zeros times a scale that f16 does not hold would be no number.
@pytest.mark.parametrize(
    ("name", "length", "definition", "most"),
    [("Q8_1", 32, q8_1_of_candle, 1.0), ("Q8K", 256, q8k_of_ggml, 2.0**100)],
    ids=["Q8_1", "Q8K"],
)
def test_blocks_of_bytes_have_the_bits_of_their_definition(
    name: str, length: int, definition: Callable[[np.ndarray], bytes], most: float
) -> None:
    x = weights(1400).reshape(-1, length)
    halves = np.resize(np.arange(-127, 128) / 2, (8, length))
    x = np.concatenate([x, x * 2.0**-90, x * most, np.full((1, length), -3), halves]).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = b"".join(map(definition, x))
    assert tl.QTensor.quantize(tl.Tensor(x), name).data.tobytes() == expected


def total(numbers: np.ndarray) -> np.float32:
    """A sum in f32, from the first number on."""
    return sum(numbers, np.float32(0))


def line_of_ggml(
    x: np.ndarray, weight: np.ndarray, most: int, first: float, steps: int, use_mad: bool
) -> tuple[np.float32, np.float32]:
    """make_qkx2_quants of ggml-quants.c: a scale, and the negative of a minimum."""
    least, highest = min(x.min(), np.float32(0)), x.max()
    if least == highest:
        return np.float32(0), -least

    def error(scale: np.float32, least: np.float32, quants: np.ndarray) -> np.float32:
        off = scale * quants + least - x
        return total(weight * (abs(off) if use_mad else off * off))

    inverse = np.float32(most) / (highest - least)
    scale = 1 / inverse
    best = error(scale, least, np.rint(inverse * (x - least)).clip(0, most))
    weights, sum_x = total(weight), total(weight * x)
    for step in range(steps + 1):
        inverse = (np.float32(first) + np.float32(0.1) * np.float32(step) + np.float32(most)) / (highest - least)
        quants = np.rint(inverse * (x - least)).clip(0, most)
        sum_l, sum_l2, sum_xl = (total(weight * quants * factor) for factor in (np.float32(1), quants, x))
        determinant = weights * sum_l2 - sum_l * sum_l
        if determinant <= 0:
            continue
        new_scale = (weights * sum_xl - sum_x * sum_l) / determinant
        new_least = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
        if new_least > 0:
            new_scale, new_least = sum_xl / sum_l2, np.float32(0)
        new = error(new_scale, new_least, quants)
        if new < best:
            best, scale, least = new, new_scale, new_least
    return scale, -least


def k_quants_with_minima(name: str, x: np.ndarray) -> np.ndarray:
    """The weights of a block of quantize_row_q2_K_ref, quantize_row_q4_K_ref or quantize_row_q5_K_ref."""
    most, group, max_scale, first, steps = {
        "Q2K": (3, 16, 15, -0.5, 15), "Q4K": (15, 32, 63, -1.0, 20), "Q5K": (31, 32, 63, -0.5, 15)
    }[name]  # fmt: skip
    groups = x.reshape(-1, group)
    lines = []
    for each in groups:
        mean = np.float32(0) if name == "Q2K" else np.sqrt(total(each * each) / np.float32(group))
        lines.append(line_of_ggml(each, mean + abs(each), most, first, steps, name == "Q2K"))
    factors = np.array(lines, np.float32).T
    shared = []
    for each in factors:
        highest = max(each.max(), np.float32(0))
        inverse = np.float32(max_scale) / highest if highest > 0 else np.float32(0)
        chosen = np.rint(inverse * each).clip(0, max_scale)
        shared.append(np.float32(np.float16(highest / np.float32(max_scale))) * chosen)
    step, least = (each[:, None] for each in shared)
    quants = np.where(step == 0, 0, np.rint((groups + least) / step).clip(0, most)).astype(np.float32)
    return (step * quants - least).reshape(-1)


def slope_of_ggml(x: np.ndarray, half: int, is_searched: bool) -> np.float32:
    """make_qx_quants, weighted by squares, or else make_q3_quants."""
    largest = x[abs(x).argmax()]
    if largest == 0:
        return np.float32(0)

    def fit(steps: np.float32) -> tuple[np.ndarray, np.float32, np.float32]:
        quants = np.rint(-steps / largest * x).clip(-half, half - 1)
        return quants, total(x * x * x * quants), total(x * x * quants * quants)

    quants, products, squares = fit(np.float32(half))
    if is_searched:
        scale = products / squares
        best = scale * products
        for step in (*range(-9, 0), *range(1, 10)):
            _, products, squares = fit(np.float32(half) + np.float32(0.1) * np.float32(step))
            if squares > 0 and products * products > best * squares:
                scale = products / squares
                best = scale * products
        return scale
    for _ in range(5):
        for index, (value, quant) in enumerate(zip(x, quants, strict=True)):
            less, fewer = products - value * value * value * quant, squares - value * value * quant * quant
            if less <= 0:
                continue
            actual = np.rint(value * fewer / less).clip(-half, half - 1)
            more, bigger = less + value * value * value * actual, fewer + value * value * actual * actual
            if actual != quant and bigger > 0 and more * more * squares > products * products * bigger:
                quants[index], products, squares = actual, more, bigger
    return products / squares


def k_quants_around_zero(name: str, x: np.ndarray) -> np.ndarray:
    """The weights of a block of quantize_row_q3_K_ref or quantize_row_q6_K_ref."""
    half, max_scale = (4, 32) if name == "Q3K" else (32, 128)
    groups = x.reshape(-1, 16)
    scales = np.array([slope_of_ggml(group, half, name == "Q6K") for group in groups], np.float32)
    largest = scales[abs(scales).argmax()]
    if largest == 0:
        return np.zeros_like(x)
    inverse = np.float32(-max_scale) / largest
    chosen = np.rint(inverse * scales).clip(-max_scale, max_scale - 1)
    step = (np.float32(np.float16(1 / inverse)) * chosen)[:, None]
    return (step * np.where(step == 0, 0, np.rint(groups / step).clip(-half, half - 1)).astype(np.float32)).reshape(-1)


@pytest.mark.parametrize("name", ["Q2K", "Q3K", "Q4K", "Q5K", "Q6K"])
def test_blocks_of_256_have_the_weights_of_ggml(name: str) -> None:
    generator = np.random.default_rng(9)
    few = np.where(generator.random((2, 256)) < 0.3, generator.standard_normal((2, 256)), 0)
    x = np.concatenate([
        generator.standard_normal((3, 256)), generator.uniform(0, 1, (2, 256)), generator.standard_t(3, (2, 256)), few,
        np.repeat(generator.standard_normal((2, 16)), 16, 1), np.full((1, 256), 0.7), np.full((1, 256), -0.3),
        generator.choice([0.25, 0.75], (1, 256)), np.zeros((1, 256)), generator.integers(-8, 9, (1, 256)) / 8,
    ]).astype(np.float32)  # fmt: skip
    definition = k_quants_around_zero if name in ("Q3K", "Q6K") else k_quants_with_minima
    with np.errstate(all="ignore"):
        expected = np.stack([definition(name, row) for row in x])
    actual = tl.QTensor.quantize(tl.Tensor(x), name).dequantize().numpy()
    np.testing.assert_array_equal(actual, expected)


def quants_of_iq4(name: str, x: np.ndarray) -> np.ndarray:
    """The weights of a block of quantize_row_iq4_nl_ref or quantize_row_iq4_xs_ref, by quantize_row_iq4_nl_impl."""
    values = np.array(gguf.quants.IQ4_NL.kvalues, np.float32)
    trials = 7 if name == "IQ4_XS" else -1

    def best(x: np.float32) -> np.float32:
        upper = min(max(int((values <= x).sum()), 1), 15)
        return values[upper - 1] if x - values[upper - 1] < values[upper] - x else values[upper]

    def fit(group: np.ndarray, inverse: np.float32) -> tuple[np.ndarray, np.float32, np.float32]:
        quants = np.array([best(inverse * number) for number in group])
        return quants, total(group * group * quants * group), total(group * group * quants * quants)

    scales, chosen = [], []
    for group in x.reshape(-1, 32):
        largest = group[abs(group).argmax()]
        if abs(largest) < 1e-15:
            scales.append(np.float32(0))
            chosen.append(group * 0)
            continue
        first = -largest / values[0] if trials > 0 else largest / values[0]
        quants, products, squares = fit(group, 1 / first)
        scale = products / squares
        score = scale * products
        for step in range(-trials, trials + 1):
            _, products, squares = fit(group, (np.float32(step) + values[0]) / largest)
            if squares > 0 and products * products > score * squares:
                scale = products / squares
                score = scale * products
        scales.append(scale)
        chosen.append(quants)
    if name == "IQ4_NL":
        return np.float32(np.float16(scales[0])) * chosen[0]
    d = -max(scales, key=abs) / np.float32(32)
    inverse = 1 / d if d else np.float32(0)
    result = []
    for scale, group in zip(scales, x.reshape(-1, 32), strict=True):
        factor = np.clip(np.rint(inverse * scale), -32, 31).astype(np.float32)
        step = d * factor
        quants = np.array([best((1 / step if step else np.float32(0)) * number) for number in group])
        result.append(np.float32(np.float16(d)) * factor * quants)
    return np.concatenate(result)


@pytest.mark.parametrize("name", ["IQ4_NL", "IQ4_XS"])
def test_blocks_of_a_table_have_the_weights_of_ggml(name: str) -> None:
    generator, length = np.random.default_rng(11), GgmlDType(name).block_size
    x = np.concatenate(
        [generator.standard_normal((3, length)), generator.standard_t(3, (1, length)), np.zeros((1, length))]
    )
    x[2, ::3] = 0
    expected = np.stack([quants_of_iq4(name, row) for row in x.astype(np.float32)])
    actual = tl.QTensor.quantize(tl.Tensor(x.astype(np.float32)), name).dequantize().numpy()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", [dtype.value for dtype in GgmlDType if dtype.has_grid])
def test_grids_are_only_read(name: str) -> None:
    with pytest.raises(UnsupportedDType, match="need an importance matrix: load them from a file"):
        tl.QTensor.quantize(tl.Tensor(np.zeros((1, 256), np.float32)), name)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [dtype for dtype in GgmlDType if not dtype.has_grid], ids=str)
def test_infinities_and_nans_show_in_their_block_alone(dtype: GgmlDType, value: float) -> None:
    x = np.random.default_rng(12).standard_normal((4, dtype.block_size)).astype(np.float32)
    expected = tl.QTensor.quantize(tl.Tensor(x), dtype).dequantize().numpy()
    x[1, 0] = value
    actual = tl.QTensor.quantize(tl.Tensor(x), dtype).dequantize().numpy()
    np.testing.assert_array_equal(actual[[0, 2, 3]], expected[[0, 2, 3]])
    if dtype is GgmlDType.MXFP4:  # none of its scales is NaN
        others = actual[1, 1:]
        assert np.isinf(actual[1, 0])
        assert not others.any()
    elif dtype.block_size > 1:
        assert not np.isfinite(actual[1]).any()
    else:
        np.testing.assert_array_equal(actual[1, 0], np.float32(value))


@pytest.mark.parametrize("value", [0.7, -0.3, 2.0, 100.0])
@pytest.mark.parametrize("name", ["Q2K", "Q3K", "Q4K", "Q5K", "Q6K", "Q8K"])
def test_constant_groups_keep_their_value(name: str, value: float) -> None:
    x = np.full((1, 512), value, np.float32)
    actual = tl.QTensor.quantize(tl.Tensor(x), name).dequantize().numpy()
    # Of a scale and of a minimum in f16.
    np.testing.assert_allclose(actual, x, rtol=2e-3)


# ggml_quantization_error_test and the others of candle-core/tests/quantized_tests.rs.
@pytest.mark.parametrize(
    ("name", "error"),
    [*((name, 0.002) for name in ("Q4K", "Q5K", "Q6K", "Q8K", "Q4_0")), ("Q3K", 0.004), ("Q2K", 0.0075)],
)
def test_errors_are_within_those_of_candle(name: str, error: float) -> None:
    x = (0.1 + 2 * np.cos(np.arange(4096, dtype=np.float32))).astype(np.float32)
    off = tl.QTensor.quantize(tl.Tensor(x), name).dequantize().numpy() - x
    assert np.sqrt((off**2).sum()) / len(x) <= error


@pytest.mark.parametrize(("name", "most"), [("Q2K", 0.1), ("Q3K", 0.05), ("Q4K", 0.02), ("Q5K", 0.01), ("Q6K", 0.008)])
def test_a_ramp_is_as_near_as_that_of_candle(name: str, most: float) -> None:
    x = (np.arange(1024, dtype=np.float32) - 512) / 1024
    assert np.abs(tl.QTensor.quantize(tl.Tensor(x), name).dequantize().numpy() - x).max() < most


def test_the_squares_up_to_255_in_q4_0_add_up_to_the_sum_of_candle() -> None:
    """dequantize_mul_mat_vec of cuda_mmv_q8_1 in candle-core/src/quantized/cuda.rs."""
    x = tl.Tensor(np.arange(256, dtype=np.float32).reshape(1, 256))
    weight = tl.QTensor.quantize(x, "Q4_0")
    assert tl.QMatMul.from_qtensor(weight).forward(x).item() == 5561851.0
    # Candle has 5561664.5: there the sum of x itself meets the 8 that is subtracted from quants.
    assert tl.QMatMul.from_qtensor(weight, activations="q8_1").forward(x).item() == 5564434.5


def test_the_product_of_candle() -> None:
    """quantized_matmul of candle-core/tests/quantized_tests.rs, within what its backends differ by."""
    x, weight = (tl.Tensor(np.arange(n * 64, dtype=np.float32).reshape(n, 64)) for n in (3, 4))
    product = tl.QMatMul(tl.QTensor.quantize(weight, "Q4_0"))
    expected = [
        [84946, 214126, 344757, 473798],
        [213458, 604350, 1000469, 1387990],
        [341970, 994574, 1656181, 2302182],
    ]
    np.testing.assert_allclose(product.forward(x).numpy(), expected, atol=1)


def test_products_have_the_shape_and_the_dtype_of_x() -> None:
    weight = tl.QTensor.quantize(tl.Tensor(weights(6).reshape(3, 64)), "Q8_0")
    product = tl.QMatMul.from_qtensor(weight)
    x = tl.Tensor(np.ones((2, 5, 64), np.float32)).to_dtype("f16")
    result = product.forward(x)
    assert (result.shape, result.dtype) == ((2, 5, 3), tl.DType.F16)
    assert product.forward(x.transpose(0, 1)).shape == (5, 2, 3)
    assert product.forward(x[0, 0]).shape == (3,)
    assert product.forward_via_f16(x).dtype == tl.DType.F16
    with pytest.raises(ShapeMismatch, match=r"qmatmul: .* its rows have the 64 elements"):
        product.forward(x[..., :32])


def test_rows_are_chosen_by_ids_of_any_shape() -> None:
    weight = tl.QTensor.quantize(tl.Tensor(weights(6).reshape(3, 64)), "Q5_1")
    chosen = weight.embedding(tl.Tensor([[2, 0], [1, 2]], dtype="u32"))
    assert chosen.shape == (2, 2, 64)
    assert chosen.numpy().tobytes() == weight.dequantize().numpy()[[[2, 0], [1, 2]]].tobytes()
    with pytest.raises(InvalidIndex, match="embedding"):
        weight.embedding(tl.Tensor([3], dtype="u32"))


def test_blocks_fill_the_rows_of_a_tensor() -> None:
    with pytest.raises(ShapeMismatch, match="the last dim is a multiple of the 32 weights of a Q4_0 block"):
        tl.QTensor.quantize(tl.Tensor(np.zeros((4, 24), np.float32)), "Q4_0")
    with pytest.raises(ShapeMismatch, match="the blocks have 64 weights, and the shape 32"):
        tl.QTensor(tl.QStorage.zeros(tl.Device.cpu(), 64, "Q4_0"), (1, 32))
