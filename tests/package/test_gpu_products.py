"""Products of large matrices by kernels of their own, on the GPU of --device, and on the HIP runtime for the CPU."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tallow import Device, Storage, Tensor
from tallow.kernels.constants import GROUP_SHARED

from . import backend

backend.require_package()

# b, m, n and k: neither fills its tiles, nor the depth its steps.
SIZES = 2, 72, 264, 40


@pytest.mark.parametrize(("dtype", "least"), [("f32", 1e-6), ("f16", 2**-11), ("bf16", 2**-8)])
def test_products_by_large_tiles_however_operands_lie(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, least: float
) -> None:
    from tallow.runtime.backends.gpu_backend.kernels import Kernels
    from tallow.runtime.backends.gpu_backend.ops.matmul import matmul
    from tallow.runtime.backends.gpu_backend.ops.operand import Operand

    launch, launched = Kernels.launch, []

    def note(kernels: Kernels, family: str, name: str, *rest: Any) -> None:
        launched.append((name, rest[-1]))
        launch(kernels, family, name, *rest)

    monkeypatch.setattr(Kernels, "launch", note)
    generator = np.random.default_rng(0)
    b, m, n, k = SIZES
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
        launched.clear()
        made = matmul(operands[0], operands[1], SIZES, operands[2])
        ending = "" if dtype == "f32" else f"_{left}{right}"
        assert launched == [(f"matmul_{dtype}_tiles{ending}", GROUP_SHARED if ending else 0)]
        result = Tensor.from_storage(Storage(made), (b, m, n)).to_dtype("f64").numpy()
        expected = x @ y + bias
        assert np.abs(result - expected).max() <= least * np.abs(expected).max(), (left, right)
