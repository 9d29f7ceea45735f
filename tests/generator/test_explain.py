"""opgen explain: what names are and where they are written, and where each emitted line comes from."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click
import pytest
from opgen.alignment import lines_before
from opgen.commands import trees
from opgen.commands.trees import Branch
from opgen.explain import Explainer, Scope, explain
from opgen.explain_line import emitted_lines
from opgen.explanation import Fact
from opgen.loader import Document, Value
from opgen.problem import Location, SpecError
from opgen.project import Project as Checked
from opgen.project import compose
from opgen.provenance import Origin, marked

from .project import REPOSITORY, Project
from .test_mutations import Path_, documents, mutations, sources, walk

LINES_PER_FILE = 40
OF_THE_SPEC = ("tallow/kernels/unary.hip", "tallow/kernels/constants.hpp")


@pytest.fixture(scope="module")
def checked() -> Checked:
    """The repository's own project."""
    return compose(REPOSITORY, documents(), sources(), [])


@pytest.fixture(scope="module")
def emitted(checked: Checked, full: bool) -> dict[PurePosixPath, tuple[list[str], list[Origin]]]:
    """The lines of an output of each template, and of every output with --full."""
    of_templates = {output.template: output for output in checked.outputs}
    of_templates |= {output.template: output for output in checked.outputs if str(output.path) in OF_THE_SPEC}
    return emitted_lines(checked, checked.outputs if full else [*of_templates.values()])


def facts(fact: Fact) -> Iterator[Fact]:
    yield fact
    for part in fact.parts:
        yield from facts(part)


def told(actual: list[Fact], label: str) -> list[str]:
    return [each.text for fact in actual for each in facts(fact) if each.label == label]


def line_at(index: Location) -> str:
    return (REPOSITORY / index.path).read_text(encoding="utf-8").splitlines()[index.line - 1]


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_every_emitted_line_answers_with_the_line_of_a_template(
    checked: Checked, emitted: dict[PurePosixPath, tuple[list[str], list[Origin]]]
) -> None:
    templates = {path: (checked.sources.text(path) or "").splitlines() for path in checked.sources.paths}
    of_spec = 0
    for path, (lines, origins) in emitted.items():
        assert "\n".join(lines) == (REPOSITORY / "generated" / path).read_text(encoding="utf-8")
        assert len(lines) == len(origins)
        for number, (line, origin) in enumerate(zip(lines, origins, strict=True), 1):
            where, context = PurePosixPath(origin.template.path), f"{path}:{number}: {line}"
            assert origin.template.line <= len(templates[where]), context
            written = templates[where][origin.template.line - 1]
            of_spec += bool(origin.values or origin.around)
            if "{" in written or number == 1 or not words(line):
                continue
            # A line without tags is emitted as it stands; ruff may break it, or put others beside it.
            assert line.strip() == written.strip() or (path.suffix == ".py" and words(line) & words(written)), context
    assert of_spec > sum(len(lines) for lines, _ in emitted.values()) / 2


def candidates(file: Path, entry: Path_) -> list[dict[Path, Document]]:
    """Changes of the spec that take an entry away, rename it, or change something in it."""
    *above, key = entry
    away = {f"'{key}' is removed", f"'{key}' is renamed", f"[{key}] is removed"}
    actual = [*mutations({file: documents()[file]})]
    full = [each for each in actual if each.path == (*above,) and each.what in away]
    inside = [each for each in actual if each.path[: len(entry)] == entry]
    roots = [root for each in (*full, *inside) for root in each.roots[:1]]
    # The edges of an op call it by its name.
    bare = [without_edges(each.roots[0]) for each in full if above == ["ops"]]
    return [{file: Document(file, root)} for root in (*bare, *roots)]


def without_edges(root: Value) -> Value:
    """A file of ops, none of which has edges."""
    ops = entries(root)["ops"]
    bare = {
        name: replace(op, content={key: value for key, value in entries(op).items() if key != "edges"})
        for name, op in entries(ops).items()
    }
    return replace(root, content={**entries(root), "ops": replace(ops, content=bare)})


def entries(value: Value) -> dict[str, Value]:
    assert isinstance(value.content, dict)
    return value.content


def changes(checked: Checked, path: PurePosixPath, line: str, edited: dict[Path, Document]) -> bool | None:
    """Whether an emitted line is another one after a change of the spec; None where the spec has an error then."""
    try:
        after = compose(REPOSITORY, {**documents(), **edited}, sources(), [])
    except SpecError:
        return None
    output = next((output for output in after.outputs if output.path == path), None)
    return output is None or line not in marked(output, after.sources)[0].split("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [OF_THE_SPEC[0], *(pytest.param(path, marks=pytest.mark.full) for path in OF_THE_SPEC[1:])]
)
def test_what_the_spec_says_there_changes_the_line(
    path: str, checked: Checked, emitted: dict[PurePosixPath, tuple[list[str], list[Origin]]], full: bool
) -> None:
    """The first entry that a line answers with is changed: of a line of each file, and of more with --full."""
    file = PurePosixPath(path)
    lines, _ = emitted[file]
    entries = {value.key_location: path for it in documents().values() for path, value in walk(it.root) if path}
    left = LINES_PER_FILE if full else 1
    for number in random.Random(path).sample(range(1, len(lines)), len(lines) - 1):
        if lines.count(lines[number - 1]) > 1:
            continue  # others are the same, and stay
        (actual,) = explain(checked, f"generated/{path}:{number}", Scope())
        index = next((each.location for each in actual.parts if each.label == "from"), None)
        if index is None or index not in entries:
            continue
        answers = (changes(checked, file, lines[number - 1], each) for each in candidates(index.path, entries[index]))
        accepted = [*itertools.islice((answer for answer in itertools.islice(answers, 30) if answer is not None), 6)]
        # What nobody may change has no answer.
        assert True in accepted or not accepted, (lines[number - 1], index)
        left -= bool(accepted)
        if not left:
            return


def test_which_kernel_computes_an_op_in_what_and_what_to_edit(checked: Checked) -> None:
    actual = explain(checked, "gelu", Scope("rocm", "bf16"))
    assert (actual[0].label, actual[0].text) == ("op", "unary.gelu")
    assert told(actual, "formula")[0] == "gelu(x)"
    assert told(actual, "on rocm") == ["elementwise.unary of bf16"]
    assert told(actual, "function") == ["gpu_backend.ops.elementwise.unary"]
    assert told(actual, "kernel") == ["gelu_bf16_contiguous", "gelu_bf16_strided"]
    assert {*told(actual, "accumulates")} == {"in f32, rounded once"}
    lines = {each.label: line_at(each.location) for fact in actual for each in facts(fact) if each.location is not None}
    assert lines["branch"].strip() == "case RocmStorage() as inner:"
    assert lines["emitted"].startswith("TALLOW_KERNEL(gelu_bf16_")
    assert lines["function"].startswith("def unary(")
    assert lines["what it computes"].strip() == "formula: gelu(x)"
    assert "gelu(double x)" in lines["how kernels compute it"]
    assert "elementwise_strided(" in lines["body"]
    assert not told(actual, "on cpu")


@pytest.mark.parametrize(
    ("name", "backend", "kernels"),
    [
        ("scatter_add", "cpu", "of host_index: scatter_add_{dtype}"),
        ("cumsum", "cpu", "16 of {op}_{dtype}: cumsum_u8, cumsum_u16, ..."),
        ("upsample_nearest2d", "rocm", "of upsample: upsample_nearest_{width}"),
    ],
)
def test_which_kernels_compute_a_method(checked: Checked, name: str, backend: str, kernels: str) -> None:
    assert {*told(explain(checked, name, Scope(backend)), "kernels")} == {kernels}


def test_launches_are_told(checked: Checked) -> None:
    result = explain(checked, "rope", Scope("cpu"))
    assert told(result, "launch") == ["RopeRows of host_rows"]
    assert "host_launches.rope" in told(result, "emitted")
    kernel = explain(checked, "rope_{dtype}", Scope())
    assert told(kernel, "launched by") == ["host_launches.rope"]


def test_launches_on_devices_are_told(checked: Checked) -> None:
    result = explain(checked, "normalize_groups", Scope("rocm"))
    assert told(result, "launch") == ["ChannelSums, ChannelStatistics, ChannelWrite of normalization"]
    assert "launches.normalize_groups" in told(result, "emitted")
    kernel = explain(checked, "channel_scale_{dtype}_rows", Scope())
    assert told(kernel, "launched by") == ["launches.normalize_groups", "launches.normalize_channels"]


@pytest.mark.parametrize(
    ("name", "scope", "label", "text"),
    [
        ("cross_entropy", Scope("cpu"), "number of each row", "saved_2 is detach(max(x))"),
        ("cross_entropy_gradient", Scope("cpu"), "number of each row", "saved_2 is detach(max(x))"),
        ("sum", Scope("cpu", "f32"), "accumulates", "in f64"),
        ("sum", Scope("rocm", "f16"), "accumulates", "in f32, rounded once"),
        ("argmax", Scope("rocm", "f16"), "accumulates", "in nothing: elements are compared"),
        ("where_cond", Scope("rocm"), "on rocm", "elementwise.ternary of bool u8 "),
        ("matmul", Scope("rocm", "f16"), "library", "hipblas, libraries.rocblas.RocBlas"),
        ("Storage.matmul", Scope("metal"), "check", "matmul_shapes(bmnk, lhs_layout, rhs_layout)"),
        ("zeros", Scope("cpu"), "branch", "of zeros"),
        ("bf16", Scope(), "emitted", "DType.BF16"),
        ("rocm", Scope(), "extends", "family 'gpu'"),
        ("gelu_bf16_contiguous", Scope(), "op", "unary.gelu"),
        (
            "fill_{width}_strided",
            Scope(),
            "makes",
            "5: fill_b8_strided, fill_b16_strided, fill_b32_strided, fill_b64_strided, ...",
        ),
        ("UnaryStrided", Scope(), "struct", "unary.UnaryStrided"),
        ("q4_0", Scope(), "scale", "d"),
        ("MAX_RANK", Scope(), "from", "max_rank: 8"),
        ("Gelu", Scope(), "struct", "Gelu"),
        ("RocmStorage", Scope(), "from", "class_prefix: Rocm"),
        ("generated/tallow/limits.py:1", Scope(), "line", "# Generated by opgen from templates/tallow/limits.py.j2"),
    ],
)
def test_facts_of_a_name_stand_where_they_say(checked: Checked, name: str, scope: Scope, label: str, text: str) -> None:
    result = explain(checked, name, scope)
    assert [each for each in told(result, label) if each.startswith(text)], told(result, label)
    for each in itertools.chain(*map(facts, result)):
        if each.location is not None:
            assert line_at(each.location).strip(), each


def test_emitted_line_is_of_its_template_and_its_entries(checked: Checked) -> None:
    lines = (REPOSITORY / "generated/tallow/kernels/unary.hip").read_text(encoding="utf-8").splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "(gelu_bf16_contiguous," in line)
    (actual,) = explain(checked, f"generated/tallow/kernels/unary.hip:{number}", Scope())
    assert told([actual], "template") == ["TALLOW_KERNEL({{ kernel.name }}, {{ kernel.arguments }}, {{ kernel.call }})"]
    assert told([actual], "called by") == ["{{ kernels.source(view) }}"]
    assert told([actual], "from") == [
        '- name: "{op}_{dtype}_contiguous"',
        "gelu:",
        "arguments: UnaryContiguous",
        'call: "elementwise_contiguous<{op}, {result}, {sources}>"',
    ]


def test_every_name_is_known_once_asked_for(checked: Checked) -> None:
    known = [name for names, _ in Explainer(checked, Scope()).things() for name in names]
    assert {"gelu", "unary.gelu", "matmul", "zeros", "f16", "rocm", "gelu_f16_strided", "q8_0", "erf"} <= {*known}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gatherr", "nothing is called 'gatherr'; did you mean 'gather'?"),
        ("zzz", "nothing is called 'zzz'; give a name of the spec or of generated/, or FILE:LINE"),
        (
            "generated/tallow/limit.py:3",
            "no output is 'generated/tallow/limit.py'; did you mean 'generated/tallow/limits.py'?",
        ),
        ("generated/tallow/limits.py:99", "generated/tallow/limits.py has 4 lines, and no line 99"),
        ("spec/package.yaml:1", "spec/package.yaml is not emitted: it is written by hand"),
        ("runtime/backends/host_backend/ops/index.py:1", "runtime/backends/host_backend/ops/index.py is not emitted"),
    ],
)
def test_what_nothing_is_called_is_refused(small: Project, name: str, message: str) -> None:
    result = small.run("explain", name)
    assert result.exit_code == 1
    assert result.stderr.startswith(message), result.stderr
    assert result.stdout == ""


def test_options_name_what_there_is(small: Project) -> None:
    assert "unknown backend 'hots'; did you mean 'host'?" in small.run("explain", "exp", "--backend", "hots").stderr
    assert "unknown dtype 'f61'; did you mean 'f16'?" in small.run("explain", "exp", "--dtype", "f61").stderr


def test_a_file_that_is_out_of_date_is_refused(small: Project) -> None:
    small.edit("generated/tallow/limits.py", "MAX_RANK = 8", "MAX_RANK = 9")
    result = small.run("explain", "generated/tallow/limits.py:3")
    assert result.exit_code == 1
    assert result.stderr == "generated/tallow/limits.py is not what the spec says; run 'opgen generate' first\n"


def test_answers_for_machines_and_for_people_say_the_same(small: Project) -> None:
    arguments = ["explain", "generated/tallow/limits.py:4"]
    (result,) = json.loads(small.run(*arguments, "--format", "json").stdout)
    assert (result["label"], result["text"]) == ("line", "MAX_RANK = 8")
    assert result["location"] == {"path": "generated/tallow/limits.py", "line": 4, "column": 1}
    assert [part["label"] for part in result["parts"]] == ["template", "from", "for"]
    lines = small.run(*arguments).stdout.splitlines()
    assert lines[0] == "line: MAX_RANK = 8  generated/tallow/limits.py:4:1"
    assert lines[1] == "  template: MAX_RANK = {{ view.package.max_rank }}  templates/tallow/limits.py.j2:3:1"
    assert lines[2] == "  from: max_rank: 8  spec/package.yaml:6:1"
    tree = Branch("root", parts=[Branch("first", parts=[Branch("inner")]), Branch("last", "here")])
    assert [*map(click.unstyle, trees.lines(tree, is_tree=True))] == [
        "root",
        "├── first",
        "│   └── inner",
        "└── last  here",
    ]


def test_lines_are_paired_with_those_before_the_layout() -> None:
    before = "import b\nfrom a import (z, y)\nx = call(1, 'text' 'more')\nif x: y = 1; z = 2\n"
    after = "from a import (\n    y,\n    z,\n)\n\nx = call(\n    1,\n    'textmore',\n)\nif x:\n    y = 1\n    z = 2\n"
    assert lines_before(before, after) == [1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    # What the layout does not keep leaves the rest where it was.
    assert lines_before("a = 1\nb = 2\nc = 3\n", "a = 1\nc = 3\nd = 4\n") == [0, 2, 2, 2]
