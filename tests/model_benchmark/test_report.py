"""The reports of a run: the file, the page and the failures. No GPU and no PyTorch needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import tallow as tl
from click.testing import CliRunner

from benchmarks.model import measure, report
from benchmarks.model.__main__ import main
from benchmarks.model.results import COMPILED, FUSED, SAME_OPS, TALLOW, Results, Row
from benchmarks.model.variants import Calls, Data
from benchmarks.model.weights import CONFIGS, random_weights


@pytest.fixture
def results() -> Results:
    rows = [
        Row("decode", TALLOW, "f16", 1, 4e-3, 1.25e-3, 480, 3.9e-3, 0.0021),
        Row("decode", FUSED, "f16", 1, 2e-3, 0.5e-3, 120, 1.9e-3, 0.0019),
        Row("decode", COMPILED, "f16", 1, reason="RuntimeError: no | compiler", failed=True),
        Row("decode", TALLOW, "bf16", 1, reason="PyTorch is not installed"),
    ]
    return Results({"command": "python -m benchmarks.model run", "GPU": "a GPU"}, 1024, rows)


def test_a_row_stands_beside_tallow_of_its_case(results: Results) -> None:
    assert report.cells(results.rows[1], results) == [
        *("f16", "1", FUSED, "2.00", "0.50", "0.50", "120", "1.90", "0.0019"),
    ]


def test_the_page_leads_with_what_failed_and_ends_with_what_is_missing(results: Results) -> None:
    page = report.page(results)
    assert "a prompt of 1,024 tokens" in page
    failed, table, missing = (page.index(title) for title in ("## **1 FAILED**", "## Decode", "## What is missing"))
    assert failed < table < missing
    assert f"| decode | f16 | 1 | {COMPILED} | RuntimeError: no \\| compiler |" in page
    assert COMPILED not in page[table:missing].replace('"Compiled"', "")
    assert "## Prefill" not in page


def test_results_are_read_as_they_were_written_and_rendered(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    results.write(file)
    assert Results.read(file) == results
    done = CliRunner().invoke(main, ["render", str(file), str(tmp_path / "docs")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "docs" / "model.md").read_text(encoding="utf-8") == report.page(results)


def test_wrong_logits_and_errors_have_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS["tiny"]
    data = Data.make(config, random_weights(config), "f32", 1, 4, tl.Device.cpu())

    def calls(variant: str, data: Data) -> Calls:
        right = tallow_calls(TALLOW, data)
        if variant == FUSED:
            return Calls(right.prefill, lambda: right.decode() * 1.01)
        raise OSError("no compiler")

    tallow_calls = measure.tallow_calls
    torch = SimpleNamespace(exact_calls=lambda data: tallow_calls(TALLOW, data), torch_calls=calls)
    machine = measure.Machine(tl.Device.cpu(), {}, torch, "", lambda: None, lambda: None)
    rows: list[Row] = []
    measure.measure(machine, data, "f32", [TALLOW, FUSED, SAME_OPS, COMPILED], rows.append)
    matches = {(row.variant, row.phase): row for row in rows}
    assert matches[FUSED, "decode"].reason == "logits differ by 0.01 of their size"
    assert matches[SAME_OPS, "prefill"].reason.startswith("OSError: no compiler")
    wrong = {key for key, row in matches.items() if row.failed}
    assert wrong == {(FUSED, "decode"), (SAME_OPS, "prefill"), (SAME_OPS, "decode")}
    for key, row in matches.items():
        assert (row.wall_seconds is None) == (key in wrong or row.variant == COMPILED)
        # A CPU has neither a profiler of GPUs nor graphs.
        assert row.launches is None
    assert matches[COMPILED, "decode"].reason == "a graph is a GPU's"
