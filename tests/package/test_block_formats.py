"""Blocks of weights: the formats that files have, and what NumPy decodes of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
import tallow as tl
from tallow import GgmlDType
from tallow.error import InvalidArgument, InvalidIndex, ShapeMismatch
from tallow.host.weights import decode

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
    """Bytes of blocks: fields of integers have any bits, floats are each of SCALES and others."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, count * dtype.type_size, np.uint8).view(dtype.numpy)
    for name in blocks.dtype.names:
        element = blocks.dtype[name]
        if element.base.kind not in "iu":
            values = [*SCALES, *(WIDE_SCALES if dtype in WIDE else ()), *generator.standard_normal(50)]
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
    expected = gguf.quants.dequantize(data, of_gguf(dtype)).reshape(-1)
    np.testing.assert_array_equal(decode(data, dtype).view(np.uint32), expected.view(np.uint32))


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


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16"])
def test_blocks_of_32_have_the_bits_of_the_gguf_package(name: str) -> None:
    x = weights(700)
    with np.errstate(over="ignore"):
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


def q8k_of_candle(x: np.ndarray) -> bytes:
    """BlockQ8K::from_float there.

    With -128 / the first number of the largest magnitude as the factor, quants are x times it, at most 127, d is 1 /
    it in f32, and behind the quants stand the sums of 16 each. Zeros give zeros.
    """
    largest = x[np.abs(x).argmax()]
    if largest == 0:
        return bytes(292)
    factor = np.float32(-128) / largest
    quants = [nearest(factor * number) for number in x]
    return struct.pack("<f256b16h", np.float32(1) / factor, *quants, *np.reshape(quants, (16, 16)).sum(1))


# A sum of zeros times a scale that f16 does not hold would be no number.
@pytest.mark.parametrize(
    ("name", "length", "of_candle", "most"),
    [("Q8_1", 32, q8_1_of_candle, 1.0), ("Q8K", 256, q8k_of_candle, 2.0**100)],
    ids=["Q8_1", "Q8K"],
)
def test_blocks_of_bytes_have_the_bits_of_candle(
    name: str, length: int, of_candle: Callable[[np.ndarray], bytes], most: float
) -> None:
    x = weights(1400).reshape(-1, length)
    halves = np.resize(np.arange(-127, 128) / 2, (8, length))
    x = np.concatenate([x, x * 2.0**-90, x * most, np.full((1, length), -3), halves]).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = b"".join(map(of_candle, x))
    assert tl.QTensor.quantize(tl.Tensor(x), name).data.tobytes() == expected


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
    assert tl.QMatMul.from_qtensor(weight, activations="q8_1").forward(x).item() == 5561664.5


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


@pytest.mark.parametrize("save_memory", [False, True])
def test_products_have_the_shape_and_the_dtype_of_x(save_memory: bool) -> None:
    weight = tl.QTensor.quantize(tl.Tensor(weights(6).reshape(3, 64)), "Q8_0")
    product = tl.QMatMul.from_qtensor(weight, save_memory=save_memory)
    x = tl.Tensor(np.ones((2, 5, 64), np.float32)).to_dtype("f16")
    result = product.forward(x)
    assert (result.shape, result.dtype) == ((2, 5, 3), tl.DType.F16)
    assert (weight.storage.inner.weights is None) is save_memory
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
