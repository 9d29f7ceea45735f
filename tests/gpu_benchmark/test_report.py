"""The reports of a run: the file, the page, the plot and the table. No GPU and no PyTorch needed."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pictures import crossing_texts, hidden_marks, wrong_texts

from benchmarks.gpu import plot, report, sources, table
from benchmarks.gpu.__main__ import _resumed, main
from benchmarks.gpu.results import COMPILED, Loading, Measurement, Results, Row, Start, bytes_text, size_text

LARGE, SMALL = 1 << 28, 1 << 10
GIB = 1 << 30
NO_BF16 = "CuPy has no bf16"


def row(
    op: str,
    dtype: str = "f32",
    elements: int = LARGE,
    tallow: float | None = None,
    torch: float | None = None,
    cupy: float | str = NO_BF16,
    host: tuple[float, float, float] | None = None,
    flops: int = 0,
    failure: str = "",
) -> Row:
    libraries = {
        "tallow": Measurement(tallow),
        "torch": Measurement(torch),
        "cupy": Measurement(reason=cupy) if isinstance(cupy, str) else Measurement(cupy),
    }
    for measured, seconds in zip(libraries.values(), host or (None, None, None), strict=True):
        measured.host_seconds = seconds
    itemsize = 4 if dtype == "f32" else 2
    return Row("family", op, dtype, elements, "16384 x 16384", 2 * elements * itemsize, flops, libraries, failure)


@pytest.fixture
def results() -> Results:
    """At 1 GiB a copy takes 500 us."""
    environment = {"command": "python -m benchmarks.gpu run", "GPU": "a <GPU>, 139 GiB"}
    ceilings = {GIB: {"slow": 2 * GIB / 1e-3 / 1e9, "fast": 2 * GIB / 500e-6 / 1e9}}
    rows = [
        row("exp", tallow=500e-6, torch=520e-6, cupy=600e-6),
        row("gather", tallow=2e-3, torch=1e-3, cupy=4e-3),
        row("scatter_add", tallow=4e-3, torch=1e-3, cupy="CuPy has no scatter_add | along a dim"),
        row("where", tallow=550e-6, torch=550e-6, cupy=440e-6),
        row("exp", "bf16", tallow=240e-6, torch=260e-6),
        row("matmul", tallow=1e-3, torch=2e-3, flops=10**11, cupy=1e-3),
        row("exp", elements=SMALL, tallow=2e-6, torch=2e-6, cupy=2e-6, host=(4e-6, 5e-6, 8e-6)),
        row("gather", elements=SMALL, tallow=2e-6, torch=2e-6, cupy=2e-6, host=(10e-6, 5e-6, 8e-6)),
    ]
    return Results(environment, ceilings, rows)


def section(page: str, title: str) -> str:
    result = page.partition(f"\n## {title}\n")[2]
    assert result, f"there is no section {title}"
    return result.partition("\n## ")[0]


def test_numbers_of_a_row(results: Results) -> None:
    exp, gather, matmul = results.rows[0], results.rows[1], results.rows[5]
    assert exp.rate("tallow") == pytest.approx(2 * GIB / 500e-6 / 1e9)
    assert results.share(exp) == pytest.approx(1)
    assert results.share(gather) == pytest.approx(0.25)
    assert (gather.ratio("torch"), gather.ratio("cupy")) == pytest.approx((0.5, 2))
    assert (matmul.unit, matmul.rate("torch"), results.share(matmul)) == ("TFLOP/s", pytest.approx(50), None)
    assert results.rows[2].ratio("cupy") is None
    assert results.rows[7].host_ratio("torch") == pytest.approx(0.5)
    # Nothing was copied in the dtype's size.
    assert results.share(results.rows[4]) is None


def test_sources_are_told_apart_by_name_and_content(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    one, other = tmp_path / "kernels/one.hip", tmp_path / "kernels/other.hip"
    one.write_bytes(b"one")
    actual = {sources.checksum(tmp_path)}
    one.write_bytes(b"two")
    actual.add(sources.checksum(tmp_path))
    one.rename(other)
    actual.add(sources.checksum(tmp_path))
    other.write_bytes(b"")
    actual.add(sources.checksum(tmp_path))
    assert len(actual) == 4
    # What is made of the sources does not count.
    (tmp_path / "kernels/one.co").write_bytes(b"code")
    (tmp_path / "one.pyc").write_bytes(b"code")
    assert sources.checksum(tmp_path) in actual


def test_the_sources_at_hand_are_named() -> None:
    result = CliRunner().invoke(main, ["sources"])
    assert result.exit_code == 0
    assert result.output == f"{sources.checksum()}\n"


def test_the_page_says_what_pytorch_was_told(results: Results) -> None:
    page = report.page(results, "plot.svg", "families.svg")
    assert "torch.backends.cudnn.benchmark off" in page
    assert "scatter_add and index_add add with atomics" in page


def test_the_file_keeps_everything(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "docs" / "results.json")
    assert Results.read(tmp_path / "docs" / "results.json") == results


def test_page_says_what_is_slow_worst_first(results: Results) -> None:
    slow = section(report.page(results, "plot.svg", "families.svg"), "What is slow")
    device, _, remaining = slow.partition("Below 0.8 of the copy ceiling at 2^28 elements: 2 rows")
    ceiling, _, host = remaining.partition("on the host")
    lines = [line for line in device.splitlines() if line.startswith("|")]
    assert lines[2:] == [
        "| scatter_add | f32 | 0.25 | – | 4000 | 1000 | – |",
        "| gather | f32 | 0.50 | 2.00 | 2000 | 1000 | 4000 |",
        "| where | f32 | 1.00 | 0.80 | 550 | 550 | 440 |",
    ]
    assert "At 2^10 elements no op is below 0.9 of a peer." in device
    assert [line.split(" | ")[0] for line in ceiling.splitlines() if "f32" in line] == ["| scatter_add", "| gather"]
    assert "| gather | f32 | 0.50 | 0.80 | 10.0 | 5.00 | 8.00 |" in host
    assert "| exp |" not in slow
    assert "What keeps them slow" in slow
    # At the largest size less is slow.
    results.rows[0].libraries["torch"].seconds = 480e-6
    device = section(report.page(results, "plot.svg", "families.svg"), "What is slow").partition("Below 0.8")[0]
    assert "Below 0.97 of a peer at 2^28 elements:" in device
    assert "| exp | f32 | 0.96 | 1.20 | 500 | 480 | 600 |" in device
    results.rows[0].libraries["torch"].seconds = 520e-6
    results.rows[:] = [row for row in results.rows if row.op == "exp"]
    assert "What keeps them slow" not in report.page(results, "plot.svg", "families.svg")


def test_page_begins_with_the_means_of_the_families(results: Results) -> None:
    results.rows.append(replace(row("exp2", tallow=1e-3, torch=4e-3), family="other"))
    page = report.page(results, "plot.svg", "families.svg")
    summary = section(page, "Summary")
    # Of exp, gather, scatter_add, where, exp and matmul: the sixth root of 1.04 * 0.5 * 0.25 * 1 * 1.083 * 2.
    assert "| family | 5 | 0.81 | 1.00 | 1.18 | 1.00 |" in summary
    assert "| other | 1 | 4.00 | – | – | – |" in summary
    assert "](families.svg)" in summary
    assert page.index("## Summary") < page.index("## What is slow") < page.index("](plot.svg)")
    assert "<summary>other: 1 row, 4.00 times PyTorch's speed</summary>" in section(page, "2^28 elements")


def test_what_is_long_is_folded(results: Results) -> None:
    page = report.page(results, "plot.svg", "families.svg")
    assert page.count("<details>") == page.count("</details>") > 3
    # GitHub and Sphinx read Markdown within HTML behind an empty line only.
    assert len(re.findall(r"<details>\n<summary>.*</summary>\n\n", page)) == page.count("<details>")
    assert page.count("\n\n</details>") == page.count("<details>")
    outside = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert "| exp | f32 | 16384 x 16384 |" not in outside
    assert "| gather | f32 | 0.50 | 2.00 | 2000 | 1000 | 4000 |" in outside


def test_page_shows_rates_times_and_reasons(results: Results) -> None:
    page = report.page(results, "plot.svg", "families.svg")
    assert "    python -m benchmarks.gpu run\n" in page
    assert "| GPU | a <GPU>, 139 GiB |" in page
    assert "| 1 GiB | 2147 | 4295 |" in section(page, "The copy ceiling").replace("1024 MiB", "1 GiB")
    large = section(page, "2^28 elements")
    assert "| exp | f32 | 16384 x 16384 | 4295 | 1.00 | 4130 | 1.04 | 3579 | 1.20 |" in large
    assert "| matmul | f32 | 16384 x 16384 | 100 | – | 50.0 | 2.00 | 100 | 1.00 |" in large.partition("In TFLOP/s")[2]
    assert "| exp | f32 | 2.00 | 2.00 | 1.00 | 2.00 | 1.00 |" in section(page, "2^10 elements")
    assert "tallow 7.00 us, PyTorch 5.00 us, CuPy 8.00 us" in section(page, "Host time of a small call")
    dashes = section(page, "What a dash means")
    assert f"| CuPy | {NO_BF16} | exp bf16 |" in dashes
    assert "CuPy has no scatter_add \\| along a dim" in dashes
    assert "FAILED" not in page
    assert "](plot.svg)" in page


def test_page_shows_the_slowest_ops_beside_the_faster_of_pytorchs_two_ways_first(
    results: Results, tmp_path: Path
) -> None:
    assert COMPILED not in report.page(results, "x.svg", "families.svg")
    exp, gather, scatter_add = results.rows[:3]
    exp.libraries[COMPILED] = Measurement(400e-6)
    gather.libraries[COMPILED] = Measurement(4e-3)
    scatter_add.libraries[COMPILED] = Measurement(reason="no compiler")
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json").rows == results.rows
    page = report.page(results, "x.svg", "families.svg")
    rows = [
        "| scatter_add | f32 | 537 | 2147 | – | 0.25 |",
        "| gather | f32 | 1074 | 2147 | 537 | 0.50 |",
        "| exp | f32 | 4295 | 4130 | 5369 | 0.80 |",
    ]
    assert "\n".join(rows) in section(page, f"Beside {COMPILED}")
    assert f"| {COMPILED} | no compiler | scatter_add f32 |" in section(page, "What a dash means")
    assert {len(table.line(row, results)) for row in results.rows} == {len(table.HEAD)}


def test_page_shows_how_a_file_is_loaded(results: Results, tmp_path: Path) -> None:
    assert "Loading" not in report.page(results, "x.svg", "families.svg")
    results.loading = [
        Loading("a copy from pinned memory", 1 << 30, 0.02),
        Loading("tallow", 1 << 31, 0.05, 96 << 20),
        Loading("another", reason="No module named 'another'"),
    ]
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json").loading == results.loading
    rows = [
        "| a copy from pinned memory | 1024 MiB | 53.7 | 1.00 | – |",
        "| tallow | 2048 MiB | 42.9 | 0.80 | 96.0 |",
        "| another | No module named 'another' | – | – | – |",
    ]
    assert "\n".join(rows) in report.page(results, "x.svg", "families.svg")


def test_page_shows_what_a_launch_costs_the_host(results: Results, tmp_path: Path) -> None:
    assert "Host time of a launch" not in report.page(results, "x.svg", "families.svg")
    results.launches = {"tallow's": 2e-6, "a user's": 2.3e-6}
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json").launches == results.launches
    rows = "| tallow's | 2.00 | 1.00 |\n| a user's | 2.30 | 1.15 |"
    assert rows in section(report.page(results, "x.svg", "families.svg"), "Host time of a launch")


def test_page_shows_what_first_results_take(results: Results, tmp_path: Path) -> None:
    assert "First results" not in report.page(results, "x.svg", "families.svg")
    phases = {"import of tallow": 0.04, "eight kernels": 0.5}
    results.starts = [Start("with an empty cache", 0.9, phases), Start("with a full cache", reason="it | failed")]
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json").starts == results.starts
    rows = "| with an empty cache | 900 | 40 | 500 |\n| with a full cache | it \\| failed | – | – |"
    assert rows in section(report.page(results, "x.svg", "families.svg"), "First results")


def test_a_wrong_result_stands_at_the_top_and_nowhere_else(results: Results) -> None:
    results.rows.append(row("silu", failure="tallow: element 7 is 1, expected 2"))
    page = report.page(results, "plot.svg", "families.svg")
    assert page.index("## **1 FAILED**") < page.index("## The copy ceiling")
    assert "| silu | f32 | 2^28 | tallow: element 7 is 1, expected 2 |" in page
    assert "silu" not in section(page, "2^28 elements")
    assert "silu" not in plot.draw(results)
    assert "FAILED  tallow: element 7" in table.line(results.rows[-1], results)
    assert report.summary(results)[-1] == "FAILED silu f32 2^28: tallow: element 7 is 1, expected 2"


def test_summary_ends_with_what_is_slow(results: Results) -> None:
    lines = report.summary(results)
    assert "3 of 8 rows below 0.9 of a peer" in lines
    assert lines[-3:] == [
        "  scatter_add f32 2^28: 0.25 of PyTorch",
        "  gather f32 2^28: 0.50 of PyTorch, 2.00 of CuPy",
        "  where f32 2^28: 1.00 of PyTorch, 0.80 of CuPy",
    ]


def test_lines_of_the_table_stand_below_its_head(results: Results) -> None:
    lines = [table.line(actual, results) for actual in results.rows]
    assert {len(line) for line in lines} == {len(table.HEAD)}
    assert "0.25" in lines[1]


def test_plot_has_a_mark_for_each_number(results: Results) -> None:
    root = ET.fromstring(plot.draw(results))
    marks = [actual.text for actual in root.iter("{http://www.w3.org/2000/svg}title")]
    assert marks[0] == "tallow beside a copy and PyTorch, 2^28 elements, a <GPU>, 139 GiB"
    # One to a copy and one to PyTorch, where there is such a number.
    assert sum(str(mark).startswith("gather f32") for mark in marks) == 2
    assert sum(str(mark).startswith("matmul f32") for mark in marks) == 1
    assert sum(str(mark).startswith("exp bf16") for mark in marks) == 1


def test_plot_is_as_it_was(results: Results, pytestconfig: pytest.Config) -> None:
    file = Path(__file__).with_name("plot.svg")
    if pytestconfig.getoption("--update-golden"):
        file.write_text(plot.draw(results), encoding="utf-8")
    assert plot.draw(results) == file.read_text(encoding="utf-8")


def test_labels_of_the_plot_are_not_cut_off_and_marks_of_the_same_place_are_all_seen(results: Results) -> None:
    name = "attention of all tokens, with kernels of our own"
    results.rows += [row(name, dtype, tallow=500e-6, torch=500e-6) for dtype in ("f32", "f16", "bf16")]
    results.rows += [row("argsort", tallow=1e-3, torch=1e-4), row("rope", tallow=1e-3, torch=64e-3)]
    picture = plot.draw(results)
    assert name in picture
    assert wrong_texts(picture) == []
    assert crossing_texts(picture) == []
    assert hidden_marks(picture) == []


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_the_plots_of_the_documents_are_whole(path: Path) -> None:
    picture = path.read_text(encoding="utf-8")
    assert wrong_texts(picture) == []
    assert crossing_texts(picture) == []
    assert hidden_marks(picture) == []


def test_nothing_measured_is_no_error() -> None:
    empty = Results({})
    assert "# Benchmarks" in report.page(empty, "plot.svg", "families.svg")
    ET.fromstring(plot.draw(empty))
    ET.fromstring(plot.draw_families(empty))
    assert report.summary(empty) == ["", "0 of 0 rows below 0.9 of a peer"]


@pytest.mark.parametrize(
    ("nbytes", "text"), [(GIB, "1024 MiB"), (4096, "4 KiB"), (1536, "1536 bytes"), (512, "512 bytes")]
)
def test_bytes(nbytes: int, text: str) -> None:
    assert bytes_text(nbytes) == text


def test_size() -> None:
    assert size_text(LARGE) == "2^28"


def test_render_writes_page_and_plot_and_leaves_the_results_where_they_are(results: Results, tmp_path: Path) -> None:
    file, docs = tmp_path / "build" / "benchmarks.json", tmp_path / "docs"
    results.write(file)
    done = CliRunner().invoke(main, ["render", str(file), str(docs)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in docs.iterdir()) == [
        "benchmarks-families.svg",
        "benchmarks.md",
        "benchmarks.svg",
    ]
    assert (docs / "benchmarks.md").read_text(encoding="utf-8") == report.page(
        results, "benchmarks.svg", "benchmarks-families.svg"
    )
    assert (docs / "benchmarks.svg").read_text(encoding="utf-8") == plot.draw(results)
    assert (docs / "benchmarks-families.svg").read_text(encoding="utf-8") == plot.draw_families(results)


def test_a_run_goes_on_where_another_on_the_same_machine_ended(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    results.write(path)
    begun = Results({**results.environment, "date": "later", "command": "the same --resume"})
    assert _resumed(path, begun) == results
    elsewhere = Results({**begun.environment, "GPU": "another"})
    with pytest.raises(click.ClickException, match=r"is of another run \(GPU: .*, here another\); leave out --resume"):
        _resumed(path, elsewhere)


def test_run_without_pytorch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("benchmarks.gpu.libraries")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    done = CliRunner().invoke(main, ["run"])
    assert done.exit_code == 1
    assert "install torch for your GPU" in done.output
