"""The language server, asked over its protocol about the repository's own spec; nothing is written there."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from .editor import Editor
from .project import OPGEN, REPOSITORY, Project

pytest.importorskip("pygls", reason="opgen[lsp] is not installed")

UNARY, REDUCE = "spec/functors/unary.yaml", "spec/functors/reduce.yaml"
GPU, CPU, CONV = "spec/families/gpu.yaml", "spec/backends/cpu.yaml", "spec/storage/conv.yaml"
SOFTMAX = "spec/kernels/softmax.yaml"
EDITS = (  # what is typed, and what is wrong then
    (UNARY, "formula: log(x)", "formula: log(z)", "unknown name 'z'"),
    (UNARY, "  leaky_relu:\n    doc:", "  leaky_relu:\n    dok:", "unknown key 'dok'"),
    (CONV, "conv1d(layout: Layout", "conv1d(layout: Layuot", "unknown type 'Layuot'"),
    (GPU, "unary.to_dtype: elementwise.cast", "unary.to_dtype: elementwise.cats", "has no function 'cats'"),
    (CPU, "label: cpu", "label: [cpu", "not valid YAML"),
    (SOFTMAX, "headers: [", "headers: [sofmax.hpp, ", "unknown header 'sofmax.hpp'"),
)


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    editor = Editor.start(REPOSITORY)
    for file in (UNARY, REDUCE, GPU, CPU, CONV, SOFTMAX):
        editor.open(file)
    # An answer comes when the spec was read for the first time, which takes seconds.
    editor.ask("textDocument/hover", editor.at(UNARY, "formula: log(x)"))
    yield editor
    editor.close()


def labels(completions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["label"]: item for item in completions["items"]}


@pytest.mark.parametrize(("file", "find", "replace", "message"), EDITS, ids=[edit[3] for edit in EDITS])
def test_mistakes_come_and_go_as_you_type(editor: Editor, file: str, find: str, replace: str, message: str) -> None:
    editor.type(file, find, replace)
    editor.wait(file, message)
    (diagnostic,) = (each for each in editor.diagnostics[editor.uri(file)] if message in each["message"])
    start, end = diagnostic["range"]["start"], diagnostic["range"]["end"]
    assert start["line"] == end["line"]
    assert start["character"] < end["character"]
    editor.type(file, replace, find)
    editor.wait(file)


def test_mistakes_of_other_files_are_shown(editor: Editor) -> None:
    """A name that is gone is missed where it is used."""
    editor.type(UNARY, "  to_dtype:\n", "  to_dtypes:\n")
    editor.wait(GPU, "unknown functor 'unary.to_dtype'")
    editor.type(UNARY, "  to_dtypes:\n", "  to_dtype:\n")
    editor.wait(GPU)


def test_latency(editor: Editor, capsys: pytest.CaptureFixture[str]) -> None:
    """How long mistakes take to come and to go; a figure and no promise, as machines differ."""
    times = []
    for _ in range(2):
        for file, find, replace, message in EDITS:
            for before, after, wanted in ((find, replace, message), (replace, find, None)):
                editor.type(file, before, after)
                times.append(1000 * editor.wait(file, wanted))
    with capsys.disabled():
        centiles = statistics.quantiles(times, n=20)
        print(f"\ndiagnostics after {statistics.median(times):.0f} ms in the middle, {centiles[-1]:.0f} ms at 95 %")
    assert len(times) == 4 * len(EDITS)


def test_completion_of_keys(editor: Editor) -> None:
    editor.type(UNARY, "  leaky_relu:\n", "  leaky_relu:\n    no\n")
    items = labels(editor.ask("textDocument/completion", editor.at(UNARY, "    no\n", 6)))
    editor.type(UNARY, "    no\n", "")
    assert items["note"]["textEdit"]["newText"] == "note: "
    assert "callers" in items["note"]["documentation"]["value"]
    assert "doc" not in items, "it is there already"
    editor.wait(UNARY)


@pytest.mark.parametrize(
    ("file", "text", "offset", "wanted"),
    [
        (UNARY, "formula: log(x)", len("formula: lo"), {"log1p", "sigmoid", "where"}),
        (UNARY, "slope * x)", 2, {"slope"}),
        (GPU, "unary.to_dtype: elementwise.cast", len("unary.to_dtype: elementwise."), {"elementwise.unary"}),
        (SOFTMAX, "headers: [", len("headers: ["), {"softmax.hpp"}),
    ],
)
def test_completion_of_names(editor: Editor, file: str, text: str, offset: int, wanted: set[str]) -> None:
    items = labels(editor.ask("textDocument/completion", editor.at(file, text, offset)))
    assert wanted <= items.keys()


def test_hover(editor: Editor) -> None:
    def shown(file: str, text: str, offset: int = 0) -> str:
        value: str = editor.ask("textDocument/hover", editor.at(file, text, offset))["contents"]["value"]
        return value

    op = shown(UNARY, "  leaky_relu:\n", 4)
    assert "where(x > 0, x, slope * x)" in op
    assert "| rocm | 6 of 6 | `elementwise.unary` |" in op
    assert "else slope * x" in op
    assert "The expression over" not in op
    assert shown(CPU, "preference:", 2).startswith("Of the backends that are available")
    function = shown(GPU, "unary.to_dtype: elementwise.cast", len("unary.to_dtype: elementwise.c"))
    assert "def cast(op: MethodOp, x: Operand, *, result: DType)" in function
    assert "`exp(x)`" in shown(UNARY, "formula: exp(x)", len("formula: e"))


def test_definitions(editor: Editor) -> None:
    def found(file: str, text: str, offset: int = 0) -> list[str]:
        return editor.lines(editor.ask("textDocument/definition", editor.at(file, text, offset)))

    cell = "unary.to_dtype: elementwise.cast"
    (function,) = found(GPU, cell, len("unary.to_dtype: elementwise.c"))
    assert function.startswith("runtime/backends/gpu_backend/ops/elementwise.py: def cast(")
    *branches, op = found(GPU, cell, len("unary.to"))
    assert op == f"{UNARY}: to_dtype:"
    assert branches == [
        f"generated/tallow/storage/elementwise.py: case {name}Storage() as inner:" for name in ("Cuda", "Rocm")
    ]
    (branch,) = found(UNARY, "  leaky_relu:\n", 4)
    assert branch.startswith("generated/tallow/storage/elementwise.py: def leaky_relu(")
    assert found(UNARY, "formula: log(x)", len("formula: l")) == ["spec/primitives.yaml: log(x):"]


def test_references_and_rename(editor: Editor) -> None:
    place = editor.at(UNARY, "  leaky_relu:\n", 4)
    uses = editor.lines(editor.ask("textDocument/references", {**place, "context": {"includeDeclaration": True}}))
    assert f"{UNARY}: leaky_relu:" in uses
    changes = editor.ask("textDocument/rename", {**place, "newName": "leaky"})["changes"]
    assert sum(map(len, changes.values())) == len(uses)
    parameter = editor.ask("textDocument/rename", {**editor.at(UNARY, "slope * x)", 2), "newName": "steepness"})
    (edits,) = parameter["changes"].values()
    assert len(edits) == 2, "where it is defined, and in the formula"


@pytest.mark.parametrize(
    ("place", "name", "message"),
    [
        ((UNARY, "  leaky_relu:\n", 4), "Leaky", "cannot be a name; use small letters"),
        ((UNARY, "  leaky_relu:\n", 4), "relu", "is taken; choose another one"),
        ((UNARY, "\nunsupported: ", 4), "x", "no name that the spec defines"),
        ((GPU, "  unary: elementwise.unary", 4), "x", "rename the file"),
    ],
)
def test_names_that_cannot_be_changed(editor: Editor, place: tuple[str, str, int], name: str, message: str) -> None:
    assert message in editor.ask("textDocument/rename", {**editor.at(*place), "newName": name})


def test_a_rename_leaves_a_spec_that_works(few_ops: Project) -> None:
    """Every place is found: of a primitive in formulas and gradients of all files."""
    editor = Editor.start(few_ops.root)
    editor.open("spec/primitives.yaml")
    editor.wait("spec/primitives.yaml")
    place = editor.at("spec/primitives.yaml", "\n  exp(x):\n", 4)
    for uri, edits in editor.ask("textDocument/rename", {**place, "newName": "exponential"})["changes"].items():
        path = Path(unquote(uri.removeprefix("file://")))
        lines = path.read_text(encoding="utf-8").split("\n")
        for edit in sorted(edits, key=lambda edit: -edit["range"]["start"]["character"]):
            start, end = edit["range"]["start"], edit["range"]["end"]
            line = lines[start["line"]]
            lines[start["line"]] = line[: start["character"]] + edit["newText"] + line[end["character"] :]
        path.write_text("\n".join(lines), encoding="utf-8")
    editor.close()
    assert "unknown primitive" not in few_ops.run("check").stderr


def test_without_pygls_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "pygls").mkdir()
    (tmp_path / "pygls/__init__.py").write_text("raise ImportError('not here', name='pygls')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "opgen", "lsp"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "the language server needs pygls; install it with: pip install 'opgen[lsp]'\n"


def configuration(language: str) -> str:
    """What docs/editors.md says in a language."""
    page = (REPOSITORY / "docs/editors.md").read_text(encoding="utf-8")
    match = re.search(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_the_configuration_of_vs_code_is_json() -> None:
    assert json.loads(configuration("json"))["glspc.server.commandArguments"] == ["lsp"]


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_neovim_shows_mistakes(small: Project, tmp_path: Path) -> None:
    """Neovim starts with what docs/editors.md says, and a file with a mistake."""
    small.edit("spec/package.yaml", "max_rank: ", "most_rank: ")
    (tmp_path / "init.lua").write_text(configuration("lua"), encoding="utf-8")
    script = """
        vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 50)
        for _, each in ipairs(vim.diagnostic.get(0)) do io.stdout:write(each.lnum .. ": " .. each.message .. "\\n") end
        vim.cmd("qa!")
    """
    (tmp_path / "wait.lua").write_text(script, encoding="utf-8")
    path = f"{OPGEN.parent}{os.pathsep}{os.environ['PATH']}"
    command = [
        "nvim",
        "--headless",
        "-u",
        "init.lua",
        "-i",
        "NONE",
        str(small.root / "spec/package.yaml"),
        "-c",
        "luafile wait.lua",
    ]
    # Neovim keeps its log there.
    environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "5: unknown key 'most_rank' in the package; did you mean 'max_rank'?" in shown.stdout + shown.stderr
