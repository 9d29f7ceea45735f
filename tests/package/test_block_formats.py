"""Blocks of weights: the formats that files have, and what NumPy decodes of them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from tallow import GgmlDType
from tallow.cpu_backend.ops.quantized import decode
from tallow.error import InvalidArgument

# By our names, those of the gguf package, where they differ.
GGUF_NAMES = {f"Q{bits}K": f"Q{bits}_K" for bits in (2, 3, 4, 5, 6, 8)}
# What the package cannot decode.
CANDLE_ALONE = (GgmlDType.Q8_1, GgmlDType.Q8K)
# Zeros, subnormal, ordinary and the largest scales, of both signs.
SCALES = [0.0, -0.0, 2**-24, -(2**-24), 2**-14 - 2**-24, 2**-14, 0.1, -1.0, 3.5, 65504.0, -65504.0]


def of_gguf(dtype: GgmlDType) -> GGMLQuantizationType:
    return GGMLQuantizationType[GGUF_NAMES.get(dtype.value, dtype.value)]


def random_blocks(dtype: GgmlDType, count: int, seed: int = 3) -> np.ndarray:
    """Bytes of blocks: fields of integers have any bits, floats are each of SCALES and others."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, count * dtype.type_size, np.uint8).view(dtype.numpy)
    for name in blocks.dtype.names:
        element = blocks.dtype[name]
        if element.kind not in "iu":
            values = [*SCALES, *generator.standard_normal(50)]
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
    expected = [
        np.float32(quant) * np.float32(block["d"]) for block in blocks for quant in block["qs"].astype(np.float32)
    ]
    np.testing.assert_array_equal(decode(data, dtype).view(np.uint32), np.array(expected).view(np.uint32))
