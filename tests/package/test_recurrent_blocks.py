"""Recurrent layers by one launch on GPUs: blocks that wait for each other, on more threads than the CPU has cores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hip_runtime import Host

pytest.importorskip("hip")

IMPORTS = """
import numpy as np
import tallow as tl
"""
COMPARE = """
def results(kind, dtype, shape, lengths, device):
    steps, rows, units = shape
    gates, rng = {"lstm": 4, "gru": 3}[kind], np.random.default_rng(0)
    def variable(scale, *sizes):
        return tl.Var(tl.Tensor(rng.normal(0, scale, sizes).astype("f4"), dtype=dtype, device=device))
    weights = {}
    for ending in ("", "_reverse"):
        weights[f"weight_ih_l0{ending}"] = variable(0.2, gates * units, 3)
        weights[f"weight_hh_l0{ending}"] = variable(units**-0.5, gates * units, units)
        weights[f"bias_hh_l0{ending}"] = variable(0.2, gates * units)
    states = [variable(0.5, 2, rows, units) for _ in range(2 if kind == "lstm" else 1)]
    x, upstream = variable(1, steps, rows, 3), variable(1, steps, rows, 2 * units)
    output, _ = getattr(tl, kind)(x, weights, tuple(states) if kind == "lstm" else states[0], lengths=lengths)
    gradients = (output * upstream).sum().backward()
    every = [output.detach(), *[gradients[each] for each in (x, *weights.values(), *states)]]
    return [each.to_dtype("f32").numpy() for each in every]

def compare(kind, dtype, shape, lengths=None, tolerance=2e-5):
    with tl.profile() as profile:
        computed = results(kind, dtype, shape, lengths, "rocm")
    assert f"{kind}_sequence_gradient_{dtype}" in str(profile), str(profile)
    for own, wanted in zip(computed, results(kind, dtype, shape, lengths, "cpu"), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=0, atol=tolerance * (1 + abs(wanted).max()))
"""
ALL_ONES = """
units = 132
ones = tl.Tensor(np.full((1, 1, units), -1, "i4").view("f4"), device="rocm")
weights = {
    "weight_ih_l0": tl.zeros((3 * units, 1), device="rocm"),
    "weight_hh_l0": tl.zeros((3 * units, units), device="rocm"),
}
with tl.profile() as profile:
    output, last = tl.gru(tl.zeros((3, 1, 1), device="rocm"), weights, ones, lengths=[0])
assert "gru_sequence_f32_8" in str(profile), str(profile)
assert np.isnan(last.numpy()).all()
"""
# Units that fill neither the last block nor aligned accesses; rows of one iteration and of several.
CASES = [
    ("lstm", "f32", (2, 2, 129), None),
    ("gru", "f32", (2, 9, 132), [2, 0, 1, 2, 2, 1, 0, 2, 1]),
    pytest.param("lstm", "bf16", (3, 9, 260), None, marks=pytest.mark.full),
    pytest.param("gru", "f16", (3, 17, 136), None, marks=pytest.mark.full),
    pytest.param("gru", "bf16", (3, 2, 131), [3, 1], marks=pytest.mark.full),
    pytest.param("lstm", "f32", (2, 5, 512), None, marks=pytest.mark.full),
]


@pytest.fixture(autouse=True)
def on_the_cpu(host: Host) -> None:
    """The runtime for the CPU has as many multiprocessors as a variable says."""


@pytest.mark.parametrize("wave", ["64", pytest.param("32", marks=pytest.mark.full)])
@pytest.mark.parametrize(("kind", "dtype", "shape", "lengths"), CASES)
def test_blocks_that_wait_compute_what_the_cpu_does(
    kind: str,
    dtype: str,
    shape: tuple[int, int, int],
    lengths: list[int] | None,
    wave: str,
    run_forked: Callable[..., str],
) -> None:
    tolerance = 2e-5 if dtype == "f32" else 2e-2
    call = f"compare({kind!r}, {dtype!r}, {shape}, {lengths}, {tolerance})"
    _, rows, units = shape
    blocks = -(-units // 16) * -(-rows // 16)
    run_forked(IMPORTS + COMPARE + call, HIP_HOST_THREADS=str(blocks), HIP_HOST_WAVE=wave)


def test_an_initial_state_of_all_ones_is_no_wait(run_forked: Callable[..., str]) -> None:
    """All bits are a NaN; in results they mark elements that no block has computed yet."""
    run_forked(IMPORTS + ALL_ONES, HIP_HOST_THREADS="9")
