"""The benchmarks of several ranks: they run, and ranks have the losses of one. The model's sizes are those of GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.full


def printed(ranks: int, *arguments: str) -> str:
    """Return the output of a command of `benchmarks.distributed` on n ranks of the CPU."""
    command = [sys.executable, "-m", "tallow.launch", "-n", str(ranks), "-m", "benchmarks.distributed", *arguments]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ranks_have_the_losses_of_one() -> None:
    step = ("step", "--backend", "cpu", "--model", "tiny", "--batch", "4", "--length", "16", "--dtype", "f32")
    row = re.compile(r"\| tallow \|.* (\d+\.\d+) \| (\d+\.\d+) \|")
    alone, shared = ([float(loss) for pair in row.findall(printed(ranks, *step)) for loss in pair] for ranks in (1, 2))
    assert shared == pytest.approx(alone, abs=2e-4)
    assert alone[1] < alone[0]


def test_collectives_and_copies_have_a_row_for_each_size(tmp_path: Path) -> None:
    output = tmp_path / "table.md"
    printed(2, "collectives", "--backend", "cpu", "--most", "4096", "--dtype", "f32", "--output", str(output))
    table = output.read_text(encoding="utf-8")
    for call in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
        assert f"| {call} | f32 | 4096 |" in table
    assert re.search(r"\| 1048576 \| [\d.]+ \|", printed(1, "copies", "cpu", "cpu", "--most", "1048576"))
