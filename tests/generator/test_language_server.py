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
from hypothesis import assume, given
from hypothesis import strategies as st

from .editor import Editor
from .project import OPGEN, REPOSITORY, Project
from .test_loader import OTHER_LINE_ENDS

types = pytest.importorskip("lsprotocol.types", reason="opgen's extra lsp is not installed")
pytest.importorskip("pygls", reason="opgen's extra lsp is not installed")
from opgen.language_server.documents import Columns, Document  # noqa: E402 -- it needs what was looked for above
from pygls.workspace import PositionCodec  # noqa: E402

UNARY, REDUCE = "spec/functors/unary.yaml", "spec/functors/reduce.yaml"
GPU, CPU, CONV = "spec/families/gpu.yaml", "spec/backends/cpu.yaml", "spec/storage/conv.yaml"
ROWS, ROPE, COPY = "spec/kernels/host_rows.yaml", "spec/kernels/rope.yaml", "spec/storage/copy.yaml"
EDITS = (  # what is typed, and what is wrong then
    (UNARY, "formula: log(x)", "formula: log(z)", "unknown name 'z'"),
    (UNARY, "  leaky_relu:\n    doc:", "  leaky_relu:\n    dok:", "unknown key 'dok'"),
    (CONV, "conv1d(layout: Layout", "conv1d(layout: Layuot", "unknown type 'Layuot'"),
    (GPU, "unary.to_dtype: elementwise.cast", "unary.to_dtype: elementwise.cats", "has no function 'cats'"),
    (CPU, "label: cpu", "label: [cpu", "the bracket [ is not closed"),
    (ROPE, "headers: [", "headers: [sofmax.hpp, ", "unknown header 'sofmax.hpp'"),
    (ROWS, "tokens: self.shape[-2]", "tokens: self.shapes[-2]", "has no 'shapes'; did you mean 'shape'?"),
    (COPY, "[concatenated(self", "[concatenate(self", "did you mean 'concatenated'?"),
)


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    editor = Editor.start(REPOSITORY)
    for file in (UNARY, REDUCE, GPU, CPU, CONV, ROWS, ROPE, COPY):
        editor.open(file)
    # An answer comes when the spec was read for the first time, which takes seconds.
    editor.ask("textDocument/hover", editor.at(UNARY, "formula: log(x)"))
    yield editor
    editor.close()


def labels(completions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["label"]: item for item in completions["items"]}


# Each edit takes two readings of the spec. A key and a function of another file stand for the others.
@pytest.mark.parametrize(
    ("file", "find", "replace", "message"),
    [pytest.param(*edit, marks=[] if number in (1, 3) else pytest.mark.full) for number, edit in enumerate(EDITS)],
    ids=[edit[3] for edit in EDITS],
)
def test_errors_come_and_go_as_you_type(editor: Editor, file: str, find: str, replace: str, message: str) -> None:
    editor.type(file, find, replace)
    editor.wait(file, message)
    (diagnostic,) = (each for each in editor.diagnostics[editor.uri(file)] if message in each["message"])
    start, end = diagnostic["range"]["start"], diagnostic["range"]["end"]
    assert start["line"] == end["line"]
    assert start["character"] < end["character"]
    editor.type(file, replace, find)
    editor.wait(file)


def test_errors_of_other_files_are_shown(editor: Editor) -> None:
    """A name that is gone is missed where it is used."""
    editor.type(UNARY, "  to_dtype:\n", "  to_dtypes:\n")
    editor.wait(GPU, "unknown functor 'unary.to_dtype'")
    editor.type(UNARY, "  to_dtypes:\n", "  to_dtype:\n")
    editor.wait(GPU)


@pytest.mark.full
def test_latency(editor: Editor, capsys: pytest.CaptureFixture[str]) -> None:
    """How long errors take to come and to go; a figure and no promise, as machines differ."""
    times = []
    for _ in range(2):
        for file, find, replace, message in EDITS:
            for before, after, expected in ((find, replace, message), (replace, find, None)):
                editor.type(file, before, after)
                times.append(1000 * editor.wait(file, expected))
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


def test_completion_of_the_calls_of_a_method(editor: Editor) -> None:
    editor.type(COPY, "  const_set:\n", "  zero:\n    exa\n  const_set:\n")
    items = labels(editor.ask("textDocument/completion", editor.at(COPY, "    exa\n", 7)))
    editor.type(COPY, "  zero:\n    exa\n", "")
    assert "self-test" in items["example"]["documentation"]["value"]
    editor.wait(COPY)


@pytest.mark.parametrize(
    ("file", "text", "offset", "wanted"),
    [
        (UNARY, "formula: log(x)", len("formula: lo"), {"log1p", "sigmoid", "where"}),
        (UNARY, "slope * x)", 2, {"slope"}),
        (GPU, "unary.to_dtype: elementwise.cast", len("unary.to_dtype: elementwise."), {"elementwise.unary"}),
        (ROPE, "headers: [", len("headers: ["), {"rope.hpp"}),
        (ROWS, "numbers.index_stride(positions)", len("numbers."), {"numbers.element_bits"}),
        (ROWS, "positions.dtype, max_position", len("positions.dtype, ma"), {"max_position"}),
        (COPY, "self.dtype[concatenated(", len("self.dtype[con"), {"concatenated", "pooled", "f32"}),
        (CPU, "host_launches.rope", len("host_launches."), {"host_launches.searchsorted"}),
        (ROPE, "rope.plan(rows", len("rope."), {"rope.in_rows"}),
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
    assert "def cast(build: ProgramBuilder, op: MethodOp, x: Operand, *, result: DType)" in function
    launched = shown(CPU, "host_launches.rope", len("host_launches.r"))
    assert "launch RopeRows of host_rows" in launched
    called = shown(ROWS, "numbers.index_stride(positions)", len("numbers.i"))
    assert "def index_stride(indexes: Operand | None) -> int" in called
    assert "def concatenated(first: HasShape" in shown(COPY, "self.dtype[concatenated(", len("self.dtype[con"))
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
    index = editor.at(UNARY, "  leaky_relu:\n", 4)
    uses = editor.lines(editor.ask("textDocument/references", {**index, "context": {"includeDeclaration": True}}))
    assert f"{UNARY}: leaky_relu:" in uses
    changes = editor.ask("textDocument/rename", {**index, "newName": "leaky"})["changes"]
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
        ((UNARY, "  leaky_relu:\n", 4), "class", "cannot be a name"),
        ((UNARY, "slope * x)", 2), "class", "cannot be a name"),
        ((UNARY, "slope * x)", 2), "x", "the name is taken"),
    ],
)
def test_names_that_cannot_be_changed(editor: Editor, place: tuple[str, str, int], name: str, message: str) -> None:
    assert message in editor.ask("textDocument/rename", {**editor.at(*place), "newName": name})


@pytest.mark.parametrize("scheme", ["git", "untitled", "vscode-vfs", "output", "vscode-notebook-cell", "http"])
def test_documents_that_are_no_files_are_left_alone(editor: Editor, scheme: str) -> None:
    """An editor shows an earlier revision of a file by a URI with the file's path."""
    uri = editor.uri(UNARY).replace("file:", f"{scheme}:")
    editor.tell("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": "["}})
    change = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": "{"}]}
    editor.tell("textDocument/didChange", change)
    assert (
        editor.ask("textDocument/hover", {**editor.at(UNARY, "  leaky_relu:\n", 4), "textDocument": {"uri": uri}})
        is None
    )
    editor.tell("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert "leaky_relu" in editor.ask("textDocument/hover", editor.at(UNARY, "  leaky_relu:\n", 4))["contents"]["value"]
    assert not any(editor.diagnostics.values())


@pytest.mark.parametrize("method", ["completion", "hover", "definition", "references", "prepareRename", "rename"])
def test_places_behind_the_end(editor: Editor, method: str) -> None:
    """Editors ask of places in a text that they have not sent yet."""
    lines = editor.texts[UNARY].split("\n")
    for line, character in ((len(lines) - 1, 9), (len(lines), 0), (len(lines) + 7, 3), (3, 10_000), (10**6, 10**6)):
        index = {"textDocument": {"uri": editor.uri(UNARY)}, "position": {"line": line, "character": character}}
        more = {"newName": "other", "context": {"includeDeclaration": True, "triggerKind": 1}}
        answer = editor.ask(f"textDocument/{method}", {**index, **more})
        assert not isinstance(answer, str) or "no name that the spec defines" in answer


@pytest.mark.parametrize("end", OTHER_LINE_ENDS)
def test_only_line_ends_of_the_protocol_end_lines(editor: Editor, end: str) -> None:
    editor.type(UNARY, "# Functions of one element x", f"# Functions{end} of one element x")
    editor.wait(UNARY, f"it holds U+{ord(end):04X}")
    editor.type(UNARY, f"# Functions{end} of one element x", "# Functions of one element x")
    editor.wait(UNARY)


@given(
    text=st.text(st.sampled_from("ab\r\n\u2028\x85\x0c\u00e4\u20ac\U0001f600"), max_size=12),
    new=st.text(st.sampled_from("x\n\r\U0001f600"), max_size=4),
    cut=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-32"]),
)
def test_edits_in_every_encoding(text: str, new: str, cut: tuple[int, int], encoding: str) -> None:
    columns = Columns(encoding)
    start, end = sorted(min(each, len(text)) for each in cut)
    # No place is between the two characters of one line end.
    assume(all(text[each - 1 : each + 1] != "\r\n" for each in (start, end)))

    def position(offset: int) -> types.Position:
        *above, line = re.split(r"\r\n|\n|\r", text[:offset])
        return types.Position(len(above), columns.to_units(line, len(line) + 1))

    document = Document("file:///a.yaml", text, position_codec=PositionCodec(encoding))
    document.apply_change(types.TextDocumentContentChangePartial(types.Range(position(start), position(end)), new))
    assert document.source == text[:start] + new + text[end:]


def test_a_project_behind_a_link(small: Project, tmp_path: Path) -> None:
    """Errors are shown in the document that is open, by whichever path the editor has it."""
    (tmp_path / "link").symlink_to(small.root)
    (tmp_path / "alone.yaml").symlink_to(small.root / "spec/functors/unary.yaml")
    for root, file in ((tmp_path / "link", "spec/functors/unary.yaml"), (tmp_path, "alone.yaml")):
        editor = Editor.start(root)
        editor.open(file)
        editor.type(file, "formula: -x", "formula: -z")
        editor.wait(file, "unknown name 'z'")
        assert [uri for uri, actual in editor.diagnostics.items() if actual] == [editor.uri(file)]
        assert editor.ask("textDocument/definition", editor.at(file, "exp(x)"))[0]["uri"].startswith("file://")
        editor.close()


@pytest.mark.full
def test_a_rename_leaves_a_spec_that_works(few_ops: Project) -> None:
    """Every place is found: of a primitive in formulas and gradients of all files."""
    editor = Editor.start(few_ops.root)
    editor.open("spec/primitives.yaml")
    editor.wait("spec/primitives.yaml")
    index = editor.at("spec/primitives.yaml", "\n  sigmoid(x):\n", 4)
    for uri, edits in editor.ask("textDocument/rename", {**index, "newName": "logistic"})["changes"].items():
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
    assert result.stderr == "the language server needs pygls; install it with: pip install lsprotocol pygls\n"


def configuration(language: str) -> str:
    """What docs/editors.md says in a language."""
    page = (REPOSITORY / "docs/editors.md").read_text(encoding="utf-8")
    match = re.search(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_the_configuration_of_vs_code_is_json() -> None:
    assert json.loads(configuration("json"))["glspc.server.commandArguments"] == ["lsp"]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_neovim_shows_errors(small: Project, tmp_path: Path) -> None:
    """Neovim starts with what docs/editors.md says, and a file with an error."""
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
