"""Products with weights in blocks, however many of these are decoded at a time."""

from __future__ import annotations

import numpy as np
import pytest
from tallow import Device, QMatMul, QTensor, Tensor
from tallow.gpu_backend.device import GpuDevice
from tallow.gpu_backend.ops import quantized


def test_many_rows_are_multiplied_by_a_part_of_the_weights_at_a_time(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(device.inner, GpuDevice):
        pytest.skip("GPUs decode weights for a product of many rows; the others keep them, or leave it to NumPy")
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((20, 64), np.float32)
    product = QMatMul(QTensor.quantize(Tensor(weights), "Q8_0").to(device))
    x = Tensor(generator.standard_normal((11, 64), np.float32), device=device)
    whole = product.forward(x).numpy()
    monkeypatch.setattr(quantized, "_MOST_DECODED", 7 * 64 * 4)
    device.inner.plans.clear()
    assert np.abs(product.forward(x).numpy() - whole).max() <= 1e-5 * whole.std()
    assert np.abs(whole - x.numpy() @ weights.T).max() <= 0.02 * whole.std()
    device.inner.plans.clear()
