"""opgen diff, and opgen check --against: a spec compared with that of a commit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from opgen.comparison.changes import differing
from opgen.comparison.records import records
from opgen.loader import Document, load
from opgen.problem import SpecError
from opgen.project import compose
from opgen.sources import Sources

from .project import HERE, REPOSITORY, SMALL, Project, copy_project
from .test_golden import compare as compare_golden
from .test_mutations import Mutation, documents, mutations, sample, sources

GOLDEN = HERE / "golden" / "diff.txt"
UNARY, BINARY, HOST = "spec/functors/unary.yaml", "spec/functors/binary.yaml", "spec/backends/host.yaml"
SAMPLE = 60
PARTS = 16


def git(root: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=opgen", "-c", "user.email=opgen@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def committed(tmp_path: Path) -> Project:
    """A generated project in a folder of a checkout, whose spec is that of the last commit."""
    project = copy_project(SMALL, tmp_path / "checkout" / "project").generate()
    git(project.root.parent, "init", "--quiet")
    git(project.root.parent, "add", "--all")
    git(project.root.parent, "commit", "--quiet", "--message", "first")
    return project


def test_a_spec_that_has_not_changed_breaks_nobody(committed: Project) -> None:
    result = committed.run("diff")
    assert (result.exit_code, result.output) == (0, "no change of the spec since HEAD\n")
    assert committed.run("check", "--against", "HEAD").exit_code == 0


def test_what_differs_is_printed_with_its_place(committed: Project, pytestconfig: pytest.Config) -> None:
    committed.edit(UNARY, "doc: e to the power x, dtypes: float", "doc: e to the power of x, dtypes: [f32]")
    committed.edit(BINARY, "ops:\n  add:", "ops:\n  twice: {doc: y twice, dtypes: all, formula: x + y + y}\n  add:")
    committed.edit("spec/backends/accelerator.yaml", "[f32, f16]", "[f32]")
    committed.edit("spec/storage/index.yaml", ", dim: int) -> Storage", ") -> Storage")
    committed.edit("spec/storage/index.yaml", '["dim_in_range(layout, dim)"]', "[]")
    committed.edit("spec/storage/index.yaml", ", dim: 1}", "}")
    for backend in ("host", "chip"):
        committed.edit(f"runtime/backends/{backend}_backend/ops/index.py", "indexes, dim)", "indexes)")
    result = committed.run("diff")
    assert result.exit_code == 0, result.output
    compare_golden(pytestconfig, GOLDEN, result.stdout)
    actual = json.loads(committed.run("diff", "--format", "json").stdout)
    assert {each["kind"] for each in actual["changes"]} == {"added", "changed"}
    assert [(each["rule"], each["what"], each["location_is_of"]) for each in actual["breaks"]] == [
        ("OP_DTYPE_REMOVED", "unary.exp.f16", "old"),
        ("ARGUMENT_REMOVED", "gather.dim", "old"),
    ]


def test_what_breaks_callers_needs_an_exception(committed: Project) -> None:
    committed.edit(UNARY, "{alpha: 1.0}", "{alpha: 2.0}")
    committed.generate()
    git(committed.root, "tag", "v1", "HEAD")
    assert committed.run("check").exit_code == 0
    result = committed.run("check", "--against", "v1")
    assert result.exit_code == 1
    message = "the default of parameter 'alpha' of op 'unary.elu' is 2.0, and was 1.0"
    mend = "undo it, or write why to 'breaking: {PARAMETER_DEFAULT_CHANGED: {unary.elu.alpha: reason}}'"
    assert result.stderr == (
        f"spec/functors/unary.yaml:4:3: PARAMETER_DEFAULT_CHANGED: {message}; {mend} of spec/package.yaml\n"
        "1 error in the spec; nothing was written\n"
    )
    (actual,) = json.loads(committed.run("check", "--against", "v1", "--format", "json").stdout)
    assert (actual["rule"], actual["path"], actual["line"]) == ("breaking-change", UNARY, 4)
    exception = "breaking: {PARAMETER_DEFAULT_CHANGED: {unary.elu.alpha: the paper has 2}}"
    committed.edit("spec/package.yaml", "max_rank: 8\n", f"max_rank: 8\n{exception}\n")
    committed.generate()
    assert committed.run("check", "--against", "v1").exit_code == 0
    assert "allowed: the paper has 2" in committed.run("diff", "v1").stdout
    git(committed.root, "commit", "--quiet", "--all", "--message", "second")
    result = committed.run("check", "--against", "HEAD")
    assert result.exit_code == 1
    assert "spec/package.yaml:7:57: nothing breaks callers by PARAMETER_DEFAULT_CHANGED" in result.stderr
    assert "remove the exception" in result.stderr


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("nothing", "'nothing' is no commit here; give a branch, a tag or a commit that 'git log' shows"),
        ("--output=spec", "'--output=spec' is no commit here"),
        ("HEAD:spec", "'HEAD:spec' is no commit here"),
        ("empty", "there is no spec/ at 'empty'; give a commit that has one"),
        ("older", "this opgen cannot read the spec at 'older', in which it finds 1 error, spec/package.yaml:7:1"),
    ],
)
def test_a_commit_that_cannot_be_read_is_refused(committed: Project, revision: str, message: str) -> None:
    git(committed.root, "tag", "first")
    committed.edit("spec/package.yaml", "max_rank: 8", "max_rank: 8\ncolour: blue")
    git(committed.root, "commit", "--quiet", "--all", "--message", "older")
    git(committed.root, "tag", "older")
    git(committed.root, "rm", "--quiet", "-r", "spec")
    git(committed.root, "commit", "--quiet", "--message", "empty")
    git(committed.root, "tag", "empty")
    git(committed.root, "checkout", "--quiet", "first")
    for command in (["diff", "--", revision], ["check", f"--against={revision}"]):
        result = committed.run(*command)
        assert result.exit_code == 1
        assert result.stderr.startswith(message), result.stderr
        assert result.stdout == ""


def test_what_equals_but_is_written_differently_differs(committed: Project) -> None:
    for old, new in (("1.0", "0.0"), ("0.0", "-0.0"), ("-0.0", "0"), ("0", "null")):
        committed.edit(UNARY, f"{{alpha: {old}}}", f"{{alpha: {new}}}")
        text = committed.run("diff").stdout
        assert "parameters.alpha" in text, (old, new, text)
        git(committed.root, "commit", "--quiet", "--all", "--message", new)
        assert committed.run("diff").stdout == "no change of the spec since HEAD\n"


def test_a_folder_without_git_is_refused(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(small.root.parent))
    result = small.run("diff")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"git cannot read {small.root}: fatal: not a git repository"), result.stderr
    monkeypatch.setenv("PATH", "")
    result = small.run("diff")
    assert (result.exit_code, result.stderr) == (1, "there is no git; install it, or put it on PATH\n")


# Whatever is changed in a spec is seen, if the spec has no error then.


def unseen(root: Path, sources: Sources, files: Mapping[Path, Document], tried: Iterable[Mutation]) -> list[str]:
    """The changes that `opgen check` accepts and `opgen diff` does not see."""
    spec = compose(root, files, sources, []).spec
    # Where something is seen that is quickly found, nothing else need be looked for.
    quick = ("cells of",)
    before, accepted, missed = {without: records(spec, without) for without in (quick, ())}, 0, []
    for mutation in tried:
        for changed in mutation.roots:
            try:
                spec = compose(root, {**files, mutation.file: Document(mutation.file, changed)}, sources, []).spec
            except SpecError:
                continue
            accepted += 1
            if not any(next(differing(of, records(spec, without)), None) for without, of in before.items()):
                missed.append(str(mutation))
    assert accepted
    return missed


def test_changes_of_different_kinds_are_seen(tmp_path: Path) -> None:
    project = copy_project(SMALL, tmp_path / "callers")
    project.apply({"overlay": "callers"})
    files = load(project.root, [])
    assert unseen(project.root, Sources(project.root), files, sample(SAMPLE, files)) == []


@pytest.mark.full
def test_patterns_of_one_name_are_told_apart() -> None:
    path = Path("spec/kernels/row.yaml")
    actual = [each for each in mutations({path: documents()[path]}) if each.path == ("kernels", 0, "over", "dtype")]
    assert unseen(REPOSITORY, sources(), documents(), actual) == []


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_a_change_of_each_kind_is_seen(part: int) -> None:
    """Below each key of the language, of each file: what is done to the values of other names there is done alike."""
    assert unseen(REPOSITORY, sources(), documents(), sample(None)[part::PARTS]) == []
