"""The reports of a run: the file, the page and the plot. No PyTorch needed."""

from __future__ import annotations

import shlex
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import tallow as tl
from click.testing import CliRunner, Result
from tallow.runtime.helpers import threads

from benchmarks.cpu import measure, plot, report
from benchmarks.cpu.__main__ import main
from benchmarks.cpu.results import CALLS, Results, Row, write_text
from benchmarks.plot import Mark, Panel, draw, ratio_axis

PAGE = Path(__file__).parents[2] / "docs" / "cpu.md"
OTHER = "## another CPU, 2 cores\n\n`python`: as it was  \n\n| op |  |\n| --- | ---: |\n| add | 1 |\n"


def render(results: Results, folder: Path) -> Result:
    results.write(folder / "results.json")
    return CliRunner().invoke(main, ["render", str(folder / "results.json"), str(folder / "docs")])


def named(results: Results, processor: str, cores: int) -> Results:
    return replace(results, machine=replace(results.machine, processor=processor, cores=cores))


def test_the_file_keeps_everything(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "build" / "cpu.json")
    assert Results.read(tmp_path / "build" / "cpu.json") == results
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["cpu.json"]


def test_runs_with_onednn_have_a_section_and_a_plot_of_their_own(results: Results) -> None:
    versions = {**results.machine.versions, "oneDNN": None}
    without = replace(results, machine=replace(results.machine, versions=versions))
    with_it = replace(results, machine=replace(results.machine, versions={**versions, "oneDNN": "1.0"}))
    assert with_it.title == f"{without.title}, with oneDNN"
    assert plot.file_name(with_it) == plot.file_name(without).replace(".svg", "-onednn.svg")
    assert not {*plot.draw_all(with_it)} & {*plot.draw_all(without)}


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "cpu.json"
    write_text(file, "before")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "no character: \ud800")
    assert file.read_text(encoding="utf-8") == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.json"]


def test_ratios() -> None:
    assert Row(1, "f32", 24, "add", 4e-3, 8e-3, 2e-3).to_torch == pytest.approx(2)
    assert Row(1, "f32", 24, "add", 4e-3, 8e-3, 2e-3).to_numpy == pytest.approx(0.5)
    assert Row(1, "f32", 24, "gelu", 4e-3).to_torch is None


def test_an_op_of_one_dtype_stands_in_its_family(results: Results) -> None:
    assert results.ops(24) == ["add", "cast to f32", "gelu"]
    assert results.ops(10) == ["add", "matmul"]


def test_section_has_the_means_and_a_table_for_each_size(results: Results) -> None:
    lines = report.section(results, "families.svg", "cpu.svg").splitlines()
    assert lines[0] == f"`{results.command}`: tallow 0.1.0, NumPy 2.4.6, PyTorch 2.13.0."
    alternative = "Speed relative to PyTorch at 2^24 elements, by op and dtype, with 1 and 4 threads"
    assert f"![{alternative}](cpu.svg)" in lines
    assert "| 1 | f32 | 2^24 | 1.00 | 0.50 |" in lines
    assert "| 1 | bf16 | 2^24 | 2.00 | – |" in lines
    large, small = (lines.index(next(line for line in lines if line.startswith(f"2^{n} el"))) for n in (24, 10))
    assert lines[large + 2 : large + 7] == [
        "| op | f32, 1 thr. | bf16, 1 thr. | f32, 4 thr. | bf16, 4 thr. |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| add | 4000 (2.00, 0.50) | 2000 (8.00) | 1000 (4.00, 2.00) |  |",
        "| cast to f32 |  | 3000 (1.00) |  |  |",
        "| gelu | 5000 (0.50) | 5000 (1.00) |  | 1000 (1.00) |",
    ]
    assert lines[small + 4] == "| add | 1.0 (2.00, 0.50) |  |  |  |"


def test_calls_have_a_table_without_sizes_and_plots(results: Results) -> None:
    rows = [Row(1, "f32", CALLS, "flip", 4e-6, 6e-6), Row(1, "f32", CALLS, "det", 1e-5, numpy=4e-6)]
    only = replace(results, rows=rows)
    assert plot.draw_all(only) == {}
    assert report.section(only).splitlines()[4:] == [
        "| op | f32, 1 thr. |",
        "| --- | ---: |",
        "| flip | 4.0 (1.50) |",
        "| det | 10 (0.40) |",
    ]
    both = report.section(replace(results, rows=[*results.rows, *rows]))
    assert both.startswith(report.section(results))
    assert both.endswith("| det | 10 (0.40) |  |  |  |")


def test_section_says_that_numpy_served() -> None:
    machine = measure.this_machine(None)
    with_kernels, without = (
        report.section(Results("command", replace(machine, kernels=kernels), [Row(1, "f32", 10, "add", 1e-6)]))
        for kernels in (True, False)
    )
    assert "NumPy" in with_kernels
    assert "no compiled kernels" not in with_kernels
    assert "tallow had no compiled kernels and used NumPy" in without


def test_plot_has_a_panel_for_each_number_of_threads_and_a_mark_for_each_ratio(results: Results) -> None:
    drawing = plot.draw_all(results)[plot.file_name(results)]
    root = ET.fromstring(drawing)
    space = "{http://www.w3.org/2000/svg}"
    assert [mark.text for mark in root.iter(f"{space}title")] == [
        "Speed relative to PyTorch, 2^24 elements, a <CPU>, 4 cores",
        *("add f32: 2.00", "add bf16: 8.00", "add f32: 4.00"),
        "cast to f32 bf16: 1.00",
        *("gelu f32: 0.50", "gelu bf16: 1.00", "gelu bf16: 1.00"),
    ]
    texts = [text.text for text in root.iter(f"{space}text")]
    assert [text for text in texts if text and "thread" in text] == ["1 thread", "4 threads"]
    # The axis is the same in both panels, and its numbers stand above and below.
    assert texts.count("8") == texts.count("0.5") == 4
    assert "matmul" not in texts
    indices = {mark.find(f"{space}title").text: mark.get("cx") for mark in root.iter(f"{space}circle") if len(mark)}  # type: ignore[union-attr]
    # From 0.5 to 8 there are four powers of two: 2 is in the middle of the first panel, 4 behind it in the second.
    assert indices == {"add f32: 2.00": "294.5", "gelu f32: 0.50": "126.0", "add f32: 4.00": "759.8"}


def test_the_plot_of_families_has_their_means(results: Results) -> None:
    root = ET.fromstring(plot.draw_all(results)[plot.file_name(results, "-families")])
    marks = [mark.text for mark in root.iter("{http://www.w3.org/2000/svg}title")]
    assert marks[1:] == [
        "elementwise f32: 1.00",
        "elementwise bf16: 2.83",
        "elementwise f32: 4.00",
        "elementwise bf16: 1.00",
        "casts bf16: 1.00",
    ]


def test_heading_of_the_plot_does_not_reach_the_legend() -> None:
    panel = Panel("1 thread", ratio_axis([1.0]), [Mark("add", "f32", 1.0)])
    widths = []
    for heading in ("a heading", "a heading " + "of many words " * 8):
        drawing = draw("title", heading, ["add"], ["f32"], [panel])
        widths.append(int(ET.fromstring(drawing).get("viewBox", "").split()[2]))
    assert widths[0] < widths[1]


def test_numbers_of_an_axis_do_not_run_into_each_other() -> None:
    assert ratio_axis([0.3, 1.5]).ticks == [0.25, 0.5, 1, 2]
    axis = ratio_axis([0.03, 40])
    assert axis.ticks == [2**-6, 0.125, 1, 8, 64]
    assert (axis.fraction(2**-6), axis.fraction(1), axis.fraction(64)) == (0, 0.5, 1)


def test_without_pytorch_there_is_no_plot(results: Results, tmp_path: Path) -> None:
    results.rows[:] = [row._replace(torch=None) for row in results.rows]
    assert plot.draw_all(results) == {}
    assert plot.draw_all(Results("command", results.machine)) == {}
    done = render(results, tmp_path)
    assert done.exit_code == 0, done.output
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["cpu.md"]
    assert ".svg" not in (tmp_path / "docs" / "cpu.md").read_text(encoding="utf-8")


def test_render_replaces_the_section_of_its_machine_and_keeps_others(results: Results, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "cpu.md"
    page.parent.mkdir()
    old = f"# An old head\n\n## {results.title}\n\nold figures\n\n{OTHER}"
    page.write_text(old, encoding="utf-8")
    done = render(results, tmp_path)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    head, _, remaining = text.partition("\n## ")
    assert head.startswith("# Ops on the CPU\n")
    assert "An old head" not in text
    assert "old figures" not in text
    assert (
        remaining
        == f"{results.title}\n\n{report.section(results, 'cpu-4-cores-families.svg', 'cpu-4-cores.svg')}\n\n{OTHER}"
    )
    for name, drawing in plot.draw_all(results).items():
        assert (page.parent / name).read_text(encoding="utf-8") == drawing
    # Once more changes nothing, and a new machine comes last.
    assert render(results, tmp_path).exit_code == 0
    assert page.read_text(encoding="utf-8") == text
    assert render(named(results, "a third CPU", 64), tmp_path).exit_code == 0
    assert page.read_text(encoding="utf-8").startswith(f"{text}\n## a third CPU, 64 cores\n")
    names = [f"cpu-{cores}-cores{what}.svg" for cores in (4, 64) for what in ("-families", "")]
    assert sorted(path.name for path in page.parent.iterdir()) == [*names, "cpu.md"]


def test_render_of_several_files(results: Results, tmp_path: Path) -> None:
    files = []
    for cores in (8, 4):
        files.append(tmp_path / f"{cores}.json")
        named(results, "a CPU", cores).write(files[-1])
    done = CliRunner().invoke(main, ["render", *map(str, files), str(tmp_path / "docs")])
    assert done.exit_code == 0, done.output
    sections = report.sections_of((tmp_path / "docs" / "cpu.md").read_text(encoding="utf-8"))
    assert list(sections) == ["a CPU, 8 cores", "a CPU, 4 cores"]


def test_two_machines_do_not_share_a_plot(results: Results, tmp_path: Path) -> None:
    assert render(results, tmp_path).exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "docs").iterdir()}
    done = render(named(results, "another", 4), tmp_path)
    assert done.exit_code == 1
    assert "cpu-4-cores-families.svg is the plot of 'a <CPU>, 4 cores'; remove that section" in done.output
    assert {path.name: path.read_bytes() for path in (tmp_path / "docs").iterdir()} == before


def test_the_page_in_docs_is_as_rendered() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = report.sections_of(text)
    assert sections
    assert report.page(sections) == text, "run python -m benchmarks.cpu render docs"


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.setattr(threads, "_threads", threads.get_threads())
    monkeypatch.setattr(sys, "argv", ["benchmarks/cpu/__main__.py", "run", *words])
    return CliRunner().invoke(main, ["run", *words])


def test_run_writes_the_command_that_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["--threads", "1", "--size", "8", "--only", "sum of", "--only", "rope", "--output", str(tmp_path)]
    done = run(monkeypatch, *words)
    assert done.exit_code == 0, done.output
    results = Results.read(tmp_path / "cpu.json")
    assert results.command == f"python -m benchmarks.cpu run {shlex.join(words)}"
    assert "'sum of'" in results.command
    ops = ["sum of rows", "sum of columns", "rope"]
    assert [(row.threads, row.dtype, row.exponent, row.op) for row in results.rows] == [
        (1, dtype, 8, op) for dtype in ("f32", "bf16") for op in ops
    ]
    assert all(row.tallow > 0 for row in results.rows)
    assert [row.numpy is None for row in results.rows] == [False, False, True, True, True, True]
    assert report.section(results) in done.output


def test_run_of_no_op_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["--threads", "1", "--size", "8", "--only", "nothing", "--output", str(tmp_path)]
    done = run(monkeypatch, *words)
    assert done.exit_code == 2
    assert "no op begins with nothing" in done.output
    assert not list(tmp_path.iterdir())


def test_run_stops_at_a_wrong_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tl.Tensor, "exp", tl.Tensor.sin)
    done = run(monkeypatch, "--threads", "1", "--size", "8", "--only", "exp", "--output", str(tmp_path))
    assert done.exit_code == 1
    assert "exp, 1 thread, f32, 2^8 elements: the result is not that of " in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [[], ["run"], ["render"]])
def test_help(words: list[str]) -> None:
    done = CliRunner().invoke(main, [*words, "-h"])
    assert done.exit_code == 0
    assert "python -m benchmarks.cpu" in done.output
