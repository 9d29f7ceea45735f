"""The page about ops of one's own: its program runs on the device, and its ops are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import Device, InvalidArgument, ShapeMismatch, Tensor

PAGE = Path(__file__).parents[2] / "docs" / "custom-ops.md"


@pytest.fixture(scope="module")
def page(device: Device) -> dict[str, Any]:
    return ran(PAGE, device)


def ran(path: Path, device: Device) -> dict[str, Any]:
    """What a page's program has defined once it has run, as if the device were the best that there is."""
    lines, is_code = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = line == "```python"
            line = ""
        # Empty lines instead of the text, so that messages have the lines of the page.
        lines.append(line if is_code else "")
    results: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tallow.Device, "default", lambda: device)
        exec(compile("\n".join(lines), str(path), "exec"), results)
    return results


SHAPES = [(3, 5), (2, 2, 300), (1, 1), (7, 1), (0, 4), (4,), (2, 1024)]


def operand(device: Device, shape: tuple[int, ...]) -> tuple[Tensor, np.ndarray[Any, Any]]:
    array = np.random.default_rng(1).normal(size=shape).astype(np.float32) * 4
    return Tensor(array, device=device), array.astype(np.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_softmax(device: Device, page: dict[str, Any], shape: tuple[int, ...]) -> None:
    x, rows = operand(device, shape)
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    actual = x.apply_op1(page["FusedSoftmax"]()).numpy()
    np.testing.assert_allclose(actual, weights / weights.sum(axis=-1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_rms_norm(device: Device, page: dict[str, Any], shape: tuple[int, ...]) -> None:
    x, rows = operand(device, shape)
    weight, factors = operand(device, shape[-1:])
    expected = rows / np.sqrt(np.square(rows).mean(axis=-1, keepdims=True) + 1e-6) * factors
    np.testing.assert_allclose(x.apply_op2(weight, page["RmsNorm"]()).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_operands_with_strides(device: Device, page: dict[str, Any]) -> None:
    x, rows = operand(device, (40, 30))
    transposed, part = x.t(), rows.T[5:20, 3:]
    weights = np.exp(part - part.max(axis=-1, keepdims=True))
    actual = transposed[5:20, 3:].apply_op1(page["FusedSoftmax"]())
    np.testing.assert_allclose(actual.numpy(), weights / weights.sum(axis=-1, keepdims=True), rtol=1e-5, atol=1e-7)
    weight = x[:, 0][::2]
    expected = rows[:20].T / np.sqrt(np.square(rows[:20].T).mean(axis=-1, keepdims=True) + 1e-6) * rows[::2, 0]
    normed = transposed[:, :20].apply_op2(weight, page["RmsNorm"]())
    np.testing.assert_allclose(normed.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_operands_that_do_not_fit(device: Device, page: dict[str, Any]) -> None:
    x, _ = operand(device, (2, 6))
    with pytest.raises(ShapeMismatch, match=r"RmsNorm: .*the weight has an element for each"):
        x.apply_op2(x, page["RmsNorm"]())
    if device.backend != "cpu":
        with pytest.raises(InvalidArgument, match=r"launch of softmax: argument 1 .* points to f32, not f64"):
            x.to_dtype("f64").apply_op1(page["FusedSoftmax"]())


def test_a_device_without_the_method(device: Device, page: dict[str, Any]) -> None:
    if device.backend != "cpu":
        told = f"Softmax: class Softmax does not run on {device.backend}; define {device.backend}_fwd"
        with pytest.raises(InvalidArgument, match=told):
            page["x"].apply_op1(page["Softmax"]())
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert "Softmax: class Softmax does not run on cuda; define cuda_fwd(self, storage, layout) in it" in text
