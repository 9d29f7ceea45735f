"""The benchmark of training: a run of it, its networks beside what PyTorch would compute, and its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tallow as tl
from click.testing import CliRunner

from benchmarks.training import recording, report
from benchmarks.training.__main__ import main
from benchmarks.training.measure import start_of, tallow_step
from benchmarks.training.results import COMPILED, DECODER, EAGER, GRAPH, PERCEPTRON, TALLOW, Results, Row
from benchmarks.training.sizes import Start


def perceptron_losses(start: Start, steps: int) -> list[float]:
    """The losses of steps of gradient descent with momentum, in NumPy and with gradients by hand."""
    weights = {name: array.astype(np.float64) for name, array in start.weights.items()}
    velocities = {name: np.zeros_like(array) for name, array in weights.items()}
    x, rows = np.asarray(start.inputs, np.float64), np.arange(len(start.targets))
    losses = []
    for _ in range(steps):
        before = x @ weights["0.weight"].T + weights["0.bias"]
        hidden = np.maximum(before, 0)
        scores = hidden @ weights["1.weight"].T + weights["1.bias"]
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        losses.append(float(-np.log(shares[rows, start.targets]).mean()))
        shares[rows, start.targets] -= 1
        shares /= len(rows)
        of_hidden = shares @ weights["1.weight"] * (before > 0)
        gradients = {
            "0.weight": of_hidden.T @ x, "0.bias": of_hidden.sum(0),
            "1.weight": shares.T @ hidden, "1.bias": shares.sum(0),
        }  # fmt: skip
        for name, gradient in gradients.items():
            velocities[name] = 0.9 * velocities[name] + gradient
            weights[name] = weights[name] - 0.1 * velocities[name]
    return losses


def test_the_perceptron_learns_as_gradients_by_hand_say(device: tl.Device) -> None:
    start = start_of(PERCEPTRON, "tiny", 1, 1)
    step = tallow_step(start, "f32", device)
    np.testing.assert_allclose([step().item() for _ in range(6)], perceptron_losses(start, 6), rtol=2e-5)


def test_what_recording_adds_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_ROUNDS", 3)
    done = CliRunner().invoke(main, ["recording"])
    assert done.exit_code == 0, done.output
    rows = [line[20:].split() for line in done.output.splitlines()[1:]]
    assert len(rows) == len(recording.CALLS)
    assert all(float(plain) > 0 and float(recorded) > 0 for plain, recorded, _ in rows)


def test_steps_are_taken_in_turns() -> None:
    pytest.importorskip("torch")
    done = CliRunner().invoke(main, ["turns", "--model", "tiny", "--batch", "1", "--length", "4", "--rounds", "1"])
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.output.splitlines()[1:]] == [
        [network, variant] for network in (DECODER, PERCEPTRON) for variant in (TALLOW, EAGER)
    ]


def test_a_run_times_every_way_that_is_there(label: str, device: tl.Device, tmp_path: Path) -> None:
    sizes = ["--model", "tiny", "--batch", "2", "--length", "7", "--dtype", "f32", "--steps", "3", "--no-compiled"]
    done = CliRunner().invoke(main, ["run", "--device", label, *sizes, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = {(row.network, row.variant): row for row in Results.read(tmp_path / "training.json").rows}
    for network in (DECODER, PERCEPTRON):
        row, graph = rows[network, TALLOW], rows[network, GRAPH]
        assert row.wall_seconds >= row.host_seconds > 0
        assert row.last_loss < row.first_loss
        if label == "cpu":
            assert graph.reason == "a graph is a GPU's"
        else:
            assert (graph.first_loss, graph.last_loss) == (row.first_loss, row.last_loss)
            assert row.peak_bytes > 0
    page = (tmp_path / "training-steps.md").read_text(encoding="utf-8")
    assert "batch 2 x 7, f32" in page


@pytest.fixture
def results() -> Results:
    rows = [
        Row(DECODER, TALLOW, 0.02, 0.01, 6 << 30, 11.5, 9.25),
        Row(DECODER, EAGER, 0.03, 0.02, 7 << 30, 11.5, 9.5),
        Row(DECODER, COMPILED, reason="RuntimeError: no compiler", failed=True),
        Row(PERCEPTRON, EAGER, reason="PyTorch is not installed"),
    ]
    return Results({"command": "python -m benchmarks.training run", "GPU": "a GPU"}, "12 layers", 20, rows)


def test_the_page_shows_what_was_measured(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "training.json")
    done = CliRunner().invoke(main, ["render", str(tmp_path / "training.json"), str(tmp_path / "docs")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "docs" / "training-steps.md").read_text(encoding="utf-8")
    assert "| PyTorch | 30.000 | 1.50 | 20.000 | 7.000 | 11.5000 | 9.5000 |" in page
    assert "PyTorch, compiled failed**: RuntimeError: no compiler" in page
    assert "| PyTorch | PyTorch is not installed |" in page
    assert report.line(results.rows[2]).endswith("FAILED  RuntimeError: no compiler")
