"""Products of large matrices by kernels of their own, on the GPU of --device, and on the HIP runtime for the CPU."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, GgmlDType, Storage, Tensor
from tallow.kernels.constants import GROUP_ROWS_OF_BLOCKS, GROUP_ROWS_OF_X
from tallow.runtime.backends.gpu_backend.ops import quantized
from tallow.runtime.backends.gpu_backend.ops.matmul import matmul
from tallow.runtime.program.values import Operand

from . import backend
from .programs import FACTS, Observer, Stored, at, built, kernels, launches

backend.require_package()

# b, m, n and k: neither fills its tiles, nor the depth its steps; and so many that floats, and halves on Hopper, take
# larger tiles.
FEW = 2, 72, 264, 40
MANY = 256, 72, 72, 12
MORE, MOST = (70, 72, 136, 24), (130, 72, 136, 24)


@pytest.mark.parametrize(
    ("dtype", "sizes", "least"),
    [
        ("f32", FEW, 1e-6),
        ("f32", MANY, 1e-6),
        ("f16", FEW, 2**-11),
        ("bf16", FEW, 2**-8),
        ("f16", MORE, 2**-11),
        ("f16", MOST, 2**-11),
    ],
)
def test_products_by_large_tiles_however_operands_lie(
    gpu: Any, dtype: str, sizes: tuple[int, int, int, int], least: float
) -> None:
    if sizes in (MORE, MOST) and Device(gpu).backend != "cuda":
        pytest.skip("tiles of halves have one size here")
    generator = np.random.default_rng(0)
    b, m, n, k = sizes
    for left, right in product("nt", repeat=2):
        shapes = (b, m, k), (b, k, n), (n,)
        numbers = [Tensor(generator.normal(size=shape).astype("f4")).to_dtype(dtype) for shape in shapes]
        x, y, bias = (each.to_dtype("f64").numpy() for each in numbers)
        lhs, rhs, added = (each.to_device(Device(gpu)) for each in numbers)
        if left == "t":
            lhs = lhs.transpose(1, 2).contiguous().transpose(1, 2)
        if right == "t":
            rhs = rhs.transpose(1, 2).contiguous().transpose(1, 2)
        operands = [Operand(each.storage.inner, each.layout) for each in (lhs, rhs, added)]
        observer = Observer()
        with gpu.plans.observed_by(observer):
            output = gpu.run(matmul, operands[0], operands[1], sizes, operands[2])
        (launch,) = launches(observer.programs[0])
        shared = 0 if dtype == "f32" else FACTS.shared_bytes
        assert (launch.kernel, launch.shared_bytes) == (f"matmul_{dtype}_tiles_{left}{right}", shared)
        result = Tensor.from_storage(Storage(output), (b, m, n)).to_dtype("f64").numpy()
        expected = x @ y + bias
        assert np.abs(result - expected).max() <= least * np.abs(expected).max(), (left, right)


@pytest.mark.parametrize(
    ("held", "rows", "way"),
    [
        (32, 256, "block_tiles_Q4K_f16"),
        (33, 256, "block_groups_Q4K_f16"),
        (300, 256, "block_groups_Q4K_f16"),
        (513, 256, "block_tiles_Q4K_f16"),
    ],
)
def test_groups_multiply_many_rows_with_weights_in_blocks_where_a_device_has_them(
    held: int, rows: int, way: str
) -> None:
    hidden = 2048
    blocks, x = Stored(GgmlDType.Q4K, rows * hidden), at(Stored(DType.F16, held * hidden), (held, hidden))
    program = built(quantized.forward, blocks, x, rows, hidden, None)
    assert (program.result.dtype, program.result.length) == (DType.F16, held * rows)
    names = {launch.kernel: launch.blocks for launch in launches(program)}
    assert way in names
    if way.startswith("block_groups"):
        tiles = -(-held // GROUP_ROWS_OF_X) * (rows // GROUP_ROWS_OF_BLOCKS)
        # Two parts of the depth are enough for a block.
        assert names[way] == tiles * max(min(FACTS.multiprocessors // tiles, 2), 1)
        assert "arrange_x_Q4K" in names
    without = built(quantized.forward, blocks, x, rows, hidden, None, facts=FACTS._replace(has_kernels=lambda _: False))
    assert not any(name.startswith("block_groups") for name in kernels(without))
