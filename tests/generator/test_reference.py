"""opgen reference: the pages of a project's ops and methods, and the data of its support matrix."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from opgen.matrix import cells
from opgen.project import read_project, read_spec
from opgen.reference import markdown
from opgen.reference.pages import Reference

from .project import REPOSITORY, Project


@pytest.fixture
def pages(small: Project) -> Path:
    result = small.run("reference", str(small.root / "build/pages"))
    assert result.exit_code == 0, result.output
    return small.root / "build/pages"


def test_there_is_a_page_for_each_op_and_method(small: Project, pages: Path) -> None:
    spec = read_spec(small.root)
    names = {cell.op or cell.method for cell in cells(spec)} | {method.name for method in spec.methods}
    assert {file.stem for file in (pages / "ops").glob("*.md")} == names
    index = (pages / "index.md").read_text(encoding="utf-8")
    assert all(f"(ops/{name}.md)" in index for name in names)


def test_a_page_has_formula_gradient_edges_and_support(small: Project, pages: Path) -> None:
    text = (pages / "ops/exp.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Formula", "Gradient", "Edges", "Support"]
    assert "```python\nexp(x)\n```" in text
    assert "Of x:\n\n```python\ng * result\n```" in text
    assert "| f32 | yes |" in text


def test_pages_include_the_emitted_lines() -> None:
    """Of a functor its struct, of a reduction its formulas and its type, of a method its branches."""
    folder = REPOSITORY / "build/pages"
    actual = Reference(read_project(REPOSITORY), {})
    pages = {it.name: actual.page(it, folder) for it in actual.subjects if it.name in ("gelu", "mean", "std", "conv2d")}
    firsts = {}
    for name, text in pages.items():
        for path, first, last in re.findall(r"{literalinclude} (\S+)\n:language: \w+\n:lines: (\d+)-(\d+)", text):
            file = Path(os.path.normpath(folder / "ops" / path))
            lines = file.read_text(encoding="utf-8").splitlines()[int(first) - 1 : int(last)]
            firsts[name, file.name] = lines[0].strip(), lines[-1].strip()
    assert firsts["conv2d", "conv.py"][0].startswith("def conv2d(self, layout: Layout")
    assert firsts["mean", "reduce.hip"][0] == "// mean of the elements"
    assert firsts["mean", "reduce.hip"][1].startswith("template <typename T> using Mean = FinishedReduction<")
    assert firsts["gelu", "unary.hip"][0].startswith("// GELU by tanh")
    assert firsts["gelu", "unary.hip"][1] == "};"
    assert "`gelu_{dtype}_contiguous`" in pages["gelu"]
    assert "row(x) = norm(x - centre(x)) / sqrt(" in pages["std"]
    families = re.findall(r"^Kernels of `spec/kernels/(\w+)", pages["conv2d"], re.MULTILINE)
    assert families == ["conv", "conv_floats", "host_product", "span"]


def test_the_matrix_has_every_cell_once(small: Project, pages: Path) -> None:
    text = (pages / "matrix.md").read_text(encoding="utf-8")
    data = json.loads(text.partition('id="cells">')[2].partition("</script>")[0])
    actual = {
        (op["method"], op["name"], data["backends"][backend], data["dtypes"][dtype] if dtype >= 0 else None): (
            bool(supported),
            data["texts"][variant],
        )
        for op in data["ops"]
        for backend, supported, variant, dtypes in op["cells"]
        for dtype in dtypes
    }
    expected = {
        (cell.method, cell.op or cell.method, cell.backend, cell.dtype): (
            cell.status == "supported",
            (cell.via if cell.status == "supported" else cell.reason) or "",
        )
        for cell in cells(read_spec(small.root))
    }
    assert actual == expected


def test_notes_join_the_page_of_their_op(small: Project, tmp_path: Path) -> None:
    (tmp_path / "exp.md").write_text("## Plot\n\nA curve.\n", encoding="utf-8")
    arguments = ("reference", str(tmp_path / "pages"), "--notes", str(tmp_path))
    assert small.run(*arguments).exit_code == 0
    assert "## Plot\n\nA curve.\n" in (tmp_path / "pages/ops/exp.md").read_text(encoding="utf-8")
    (tmp_path / "epx.md").touch()
    result = small.run(*arguments)
    assert result.exit_code == 2
    assert "unknown notes 'epx'; did you mean 'exp'?" in result.stderr


def test_only_what_changes_is_written(small: Project, pages: Path) -> None:
    left, own = pages / "ops/gone.md", pages / "ops/own.md"
    left.write_bytes((pages / "ops/exp.md").read_bytes())
    own.write_text("# By hand\n", encoding="utf-8")
    result = small.run("reference", str(pages))
    assert re.fullmatch(r"\d+ pages, 1 changed\n", result.output)
    assert not left.exists()
    assert own.exists()


def test_marks_are_words() -> None:
    assert markdown.escaped("x ** y of `a_b`, <b> and [c] | d") == r"x \*\* y of `a_b`, \<b\> and \[c\] | d"
    assert markdown.cell("`a | b` | c") == r"`a \| b` \| c"
    assert markdown.code("x | y") == r"`x \| y`"
