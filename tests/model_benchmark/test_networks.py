"""The benchmark of networks: a run of each of them, and its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.networks import measure, report
from benchmarks.networks.__main__ import _NAMES, main
from benchmarks.networks.networks import NETWORKS
from benchmarks.networks.results import (
    COMPILED,
    EAGER,
    FUSED,
    FUSED_GRAPH,
    INFERENCE,
    ONNX,
    TALLOW,
    TRAINING,
    Results,
    Row,
    Task,
)  # fmt: skip

# Networks of few weights.
CHEAP = "detector", "lstm"
SMALL = ["--small", "--batch", "2", "--threads", "1"]


def test_every_network_is_listed() -> None:
    assert tuple(NETWORKS) == _NAMES
    done = CliRunner().invoke(main, ["list"])
    assert [line.split()[0] for line in done.output.splitlines()] == list(_NAMES)


# PyTorch would take as long again: where it is installed, the command line compares with it. Of images training alone
# is run in every way, which computes all of inference too.
@pytest.mark.parametrize(
    ("name", "phase"),
    [
        pytest.param(
            name, phase, marks=[] if name in CHEAP and (name, phase) != ("detector", INFERENCE) else pytest.mark.full
        )
        for name in NETWORKS
        for phase in (INFERENCE, TRAINING)
    ],
)
def test_every_way_of_a_network_gives_the_same(
    name: str, phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_reference", lambda *_: None)
    arguments = ["run", name, *SMALL, "--phase", phase, "--only", "tallow", "--output", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    results = Results.read(tmp_path / "networks.json")
    assert [(row.dtype, row.variant) for row in results.rows] == [
        (dtype, variant) for dtype in ("f32", "bf16") for variant in (TALLOW, FUSED)
    ]
    assert all(row.wall_seconds > 0 and row.processor_seconds > 0 for row in results.rows)
    assert f"| {name} | {phase} | 2 | bf16 | 1 |" in (tmp_path / "networks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in CHEAP])
def test_a_network_runs(name: str) -> None:
    arguments = ["run", name, *SMALL, "--phase", INFERENCE, "--only", "tallow$", "--dtype", "f32"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_reference", lambda *_: [np.ones((5, 2, 97))])
    arguments = ["run", "lstm", *SMALL, "--only", "tallow$", "--phase", INFERENCE, "--dtype", "f32"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1, done.output
    assert "FAILED  the results are off by" in done.output


def test_a_profile_names_the_ops_of_a_network() -> None:
    done = CliRunner().invoke(main, ["profile", "detector", "--small", "--batch", "1"])
    assert done.exit_code == 0, done.output
    assert "convolution " in done.output


@pytest.mark.skipif("not __import__('importlib').util.find_spec('torch')", reason="PyTorch is not installed")
def test_a_network_gives_what_pytorch_gives() -> None:
    done = CliRunner().invoke(main, ["run", "recogniser", *SMALL])
    assert done.exit_code == 0, done.output
    assert "recogniser, training" in done.output


@pytest.fixture
def results() -> Results:
    gpu, cpu = Task("unet", TRAINING, 32, "bf16", None), Task("lstm", INFERENCE, 8, "f32", 2)
    rows = [
        Row(*gpu, TALLOW, 0.02),
        Row(*gpu, FUSED_GRAPH, 0.02),
        Row(*gpu, EAGER, 0.03),
        Row(*gpu, COMPILED, reason="RuntimeError: no compiler", failed=True),
    ]
    assert str(cpu) == "lstm, inference, batch 8, f32, 2 threads"
    return Results({"command": "python -m benchmarks.networks run unet"}, "a GPU", rows)


def test_the_page_shows_what_was_measured(results: Results, tmp_path: Path) -> None:
    task = Task("lstm", INFERENCE, 8, "f32", 2)
    rows = [
        Row(*task, TALLOW, 0.004, 0.008), Row(*task, EAGER, 0.003, 0.006), Row(*task, ONNX, 0.002, 0.004),
        Row(*task, FUSED, reason="not here"),
    ]  # fmt: skip
    files = [tmp_path / "gpu.json", tmp_path / "cpu.json"]
    for file, run in zip(files, (results, Results({"command": "run"}, "a CPU", rows)), strict=True):
        run.write(file)
        done = CliRunner().invoke(main, ["render", str(file), str(tmp_path / "docs")])
        assert done.exit_code == 0, done.output
    page = (tmp_path / "docs" / "networks.md").read_text(encoding="utf-8")
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["## a GPU", "## a CPU", f"## {report.METHOD_TITLE}"]
    assert "| unet | training | 32 | bf16 | 1.50 | – | – | – |" in page
    assert "channels last, in a graph failed**: RuntimeError: no compiler" in page
    assert "| lstm | inference | 8 | f32 | 2 | 0.75 | – | 0.50 |" in page
    assert "4.000 (8.000)" in page
    assert "| tallow, fused | not here |" in page
    assert report.line(results.rows[3], results).endswith("FAILED  RuntimeError: no compiler")
