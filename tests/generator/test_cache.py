"""What a run leaves to the next one: changes of every kind are seen, and nothing else is found anew."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opgen.cache import files, memo, state, up_to_date
from opgen.cache.views import ViewCache
from opgen.folders import FOLDERS
from opgen.formula.nodes import Call
from opgen.problem import Refusal, SpecError
from opgen.project import Project as Opened
from opgen.project import read_project, resumed_project
from opgen.render import environment, render
from opgen.start import choose_base, start

from .edits import edited
from .project import Project
from .test_watch import EDITS, EDITS_OF_MANY


def file_of(project: Project) -> Path:
    (file,) = Path(os.environ["XDG_CACHE_HOME"], "opgen").glob("*.state")
    return file


@pytest.fixture(autouse=True)
def empty(caches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of the test's own, and nothing kept of the projects of other tests in this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    memo.forget()


def check_edits(project: Project, edits: dict[str, tuple[str, str]]) -> None:
    """After each edit a run with what is left finds what a run finds that knows nothing."""
    project.run("generate")
    for file, (find, replace) in edits.items():
        project.edit(file, find, replace)
        fresh = {change.path: change.new for change in read_project(project.root).changes(project.output)}
        recalled = {change.path: change.new for change in resumed_project(project.root).changes(project.output)}
        assert recalled == fresh != {}, file
        assert project.run("generate").exit_code == 0


def test_edits_of_spec_and_templates_are_seen(small: Project) -> None:
    check_edits(small, EDITS)


@pytest.mark.full
def test_edits_of_a_large_project_are_seen(few_ops: Project) -> None:
    check_edits(few_ops, EDITS_OF_MANY)
    assert resumed_project(few_ops.root).is_new is False
    for file in ("runtime/kernels/copy.hpp", "runtime/core/check.py"):
        with (few_ops.root / file).open("a", encoding="utf-8") as text:
            text.write("\n")
        project = resumed_project(few_ops.root)
        assert project.is_new, file
        assert project.changes(few_ops.output) == read_project(few_ops.root).changes(few_ops.output) == []
        assert resumed_project(few_ops.root).is_new is False


def results_of(read: Callable[[Path], Opened], project: Project) -> object:
    """The texts of all outputs that differ from what is written, or the errors."""
    try:
        return {change.path: change.new for change in read(project.root).changes(project.output)}
    except SpecError as error:
        return [*error.problems]
    except Refusal as error:
        return str(error)


def check_random_edits(project: Project, count: int, seed: int) -> int:
    """A run with what earlier runs have saved finds after each edit what one with an empty cache finds.

    The number of edits that are no errors.
    """
    chance = random.Random(seed)
    files = [path for folder in FOLDERS for path in sorted((project.root / folder).rglob("*")) if path.is_file()]
    originals = {path: path.read_bytes() for path in files}
    valid = 0
    for number in range(count):
        if number % 20 == 0:
            for path, content in originals.items():
                path.write_bytes(content)
        # An error in a text that is not Python, YAML or a template is rare.
        path = chance.choice([*files, *(path for path in files if path.suffix == ".yaml")])
        before = path.read_text(encoding="utf-8")
        path.write_text(edited(before, chance), encoding="utf-8")
        resumed = results_of(resumed_project, project)
        memo.forget()
        fresh = results_of(read_project, project)
        assert repr(resumed) == repr(fresh), f"edit {number} of seed {seed}: {path}"
        if isinstance(fresh, dict):
            valid += 1
        elif chance.random() < 0.8:
            path.write_text(before, encoding="utf-8")
    return valid


def test_edits_with_and_without_a_cache_give_the_same_bytes(small: Project) -> None:
    assert check_random_edits(small, 8, seed=0)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_1000_edits_with_and_without_a_cache_give_the_same_bytes(small: Project, seed: int) -> None:
    assert check_random_edits(small, 100, seed) > 20


LEAKY = """\
  leaky:
    doc: leaky
    dtypes: float
    parameters: {slope: 0.0, second: 1.0, third: 2}
    formula: where(x > 0, x, slope * x + second + third * 2)
"""
# Each text instead of the one before it: `==` sees no difference, and outputs have one.
REWRITTEN = [
    ["{slope: 0.0, second: 1.0, third: 2}", "{second: 1.0, slope: 0.0, third: 2}"],
    ["second: 1.0,", "second: 1,"],
    ["slope: 0.0,", "slope: -0.0,", "slope: 0,"],
    ["third * 2)", "third * 2.0)", "2 * third)"],
    # An entry of another mapping in the same place of the file.
    ["    parameters: {", "    let:        {"],
]


def test_edits_that_equality_does_not_see_are_seen(tmp_path: Path, full: bool) -> None:
    start(choose_base(None), "mylib", tmp_path / "mylib")
    project = Project(tmp_path / "mylib")
    project.edit("spec/functors/unary.yaml", "ops:\n", f"ops:\n{LEAKY}")
    assert isinstance(results_of(resumed_project, project), dict)
    # Each edit takes two readings of the spec.
    for texts in REWRITTEN if full else REWRITTEN[::2]:
        for find, replace in pairwise(texts):
            project.edit("spec/functors/unary.yaml", find, replace)
            resumed = results_of(resumed_project, project)
            memo.forget()
            fresh = results_of(read_project, project)
            assert repr(resumed) == repr(fresh), replace
            assert isinstance(fresh, dict) or replace.startswith("    "), fresh


@pytest.mark.parametrize(
    ("one", "other"),
    [(2, 2.0), (0.0, -0.0), (1, True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ((1, {"a": 2}), (1, {"a": 2.0}))],
)
def test_views_are_made_again_of_what_equality_does_not_tell_apart(one: object, other: object) -> None:
    """Of a member, of what a spec answers, and of what it answers to a call."""
    views, result = ViewCache(), []

    def view(member: object, answer: object) -> None:
        spec: Any = SimpleNamespace(package=answer, resolve=lambda _: answer)
        views.begin(spec)
        for key, make in {"attribute": lambda spec: spec.package, "method": lambda spec: spec.resolve(1)}.items():
            views.view(key, member, lambda spec, key=key, make=make: result.append(key) or repr(make(spec)))

    assert one == other
    for number, (member, answer) in enumerate([(one, one), (one, one), (other, one), (other, other), (other, other)]):
        view(member, answer)
        assert len(result) == (2, 2, 4, 6, 6)[number]


def test_imports_are_sorted_by_the_packages_of_the_project(small: Project) -> None:
    template = small.root / "templates/tallow/limits.py.j2"
    template.write_text('"""Numbers."""\n\nimport json\nimport numpy\nimport other\n\nNAMES = json, numpy, other\n')
    before = results_of(resumed_project, small)
    (small.root / "templates/other").mkdir()
    (small.root / "templates/other/__init__.py.j2").write_text('"""Another package."""\n')
    resumed = results_of(resumed_project, small)
    memo.forget()
    assert resumed == results_of(read_project, small) != before


@pytest.mark.full
def test_edits_of_a_project_that_stands_on_another_give_the_same_bytes(tmp_path: Path) -> None:
    start(choose_base(None), "mylib", tmp_path / "mylib")
    assert check_random_edits(Project(tmp_path / "mylib").generate(), 200, seed=0) > 40


def test_an_error_in_the_runtime_is_seen(small: Project) -> None:
    small.run("generate")
    package = small.root / "runtime/backends/__init__.py"
    package.parent.mkdir(parents=True, exist_ok=True)
    package.write_text("from .missing import name\n", encoding="utf-8")
    assert small.run("check").stderr == small.run("check").stderr != ""


def test_formulas_are_found_among_those_of_another_process() -> None:
    formula = Call("add", ("x", Call("exp", ("y",))))
    assert formula in {formula}
    other = pickle.loads(pickle.dumps(formula))
    assert "_hash" not in vars(other)
    assert other in {formula}


def test_another_generator_reads_nothing(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    small.run("generate")
    assert resumed_project(small.root).is_new is False
    monkeypatch.setattr(files, "_generator", lambda: b"another")
    assert resumed_project(small.root).is_new is True


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_may_have_written_is_not_read(small: Project, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small.run("generate")
    file = file_of(small)
    monkeypatch.setattr(pickle, "loads", lambda _: pytest.fail("it was read"))
    file.chmod(mode)
    assert small.run("check").exit_code == 0
    file.unlink()
    file.parent.chmod(0o777)
    assert small.run("check").exit_code == 0
    assert not file.exists()


def damaged(content: bytes) -> Iterator[bytes]:
    """What is left of a file after a crash, a full disk or a fault of memory."""
    yield b""
    for position in (1, 31, 32, 63, 64, 65, len(content) // 2, len(content) - 1):
        yield content[:position]
        yield content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        yield content[:position] + bytes(len(content) - position)
    yield content + b"\0"
    yield content[64:]


@pytest.mark.parametrize("suffix", [".state", ".up_to_date"])
def test_a_damaged_file_counts_as_missing(small: Project, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_to_date, "_TICK", -(10**12))
    small.run("generate")
    right = [small.run("check") for _ in range(3)][-1]
    file = file_of(small).with_suffix(suffix)
    content = file.read_bytes()
    assert files.load(small.root, suffix) is not None
    for number, damage in enumerate(damaged(content)):
        file.write_bytes(damage)
        assert files.load(small.root, suffix) is None, number
        result = small.run("check")
        assert (result.exit_code, result.output) == (0, right.output), number
    file.unlink()
    file.mkdir()
    assert small.run("check").output == right.output


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"cno_such_module\nname\n.",
        b"copgen.cache.state\nno_such_name\n.",
        pickle.dumps(None),
        pickle.dumps((None, None)),
        pickle.dumps((None, {"results": {"opgen.loader.parsed": [None]}, "containers": {}})),
    ],
)
def test_a_file_of_other_classes_counts_as_missing(
    small: Project, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.run("generate")
    monkeypatch.setattr(files, "load", lambda *_: content)
    assert resumed_project(small.root).is_new
    assert resumed_project(small.root).changes(small.output) == []


def test_two_runs_that_save_at_once_leave_a_whole_file(small: Project) -> None:
    """One of them is in the middle of writing when the other one begins and ends; or it is killed there."""
    file = file_of(small.generate())
    before = {*file.parent.iterdir()}

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    real = os.fdopen

    def open_while_another_saves(handle: int, mode: str) -> Any:
        os.write(handle, b"half of it")
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(os, "fdopen", real)
            files.save(small.root, ".state", lambda: b"other")
        assert files.load(small.root, ".state") == b"other"
        os.lseek(handle, 0, os.SEEK_SET)
        return real(handle, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdopen", open_while_another_saves)
        files.save(small.root, ".state", lambda: b"one")
    assert files.load(small.root, ".state") == b"one"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, "replace", killed)
        files.save(small.root, ".state", lambda: b"two")
    assert files.load(small.root, ".state") == b"one"
    assert {*file.parent.iterdir()} == before


def test_damaged_bytecode_of_templates_counts_as_missing(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (small.root / "templates/tallow/limits.py.j2").write_text("# {{ 1 + 1 }}\n", encoding="utf-8")
    environment.cache_clear()
    project = read_project(small.root)
    right = {change.path: change.new for change in project.changes(small.output)}
    bytecode = [path for path in tmp_path.rglob("*opgen-jinja*") if path.is_file()]
    assert bytecode
    for path in bytecode:
        content = path.read_bytes()
        for position in (0, 10, 20, 40, 60, len(content) // 2):
            path.write_bytes(content[:position])
            environment.cache_clear()
            project = read_project(small.root)
            assert {change.path: change.new for change in project.changes(small.output)} == right, position


def test_a_formula_too_deep_to_be_saved_is_none_to_save(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> bytes:
        raise RecursionError

    monkeypatch.setattr(state, "_pickled", fail)
    assert small.run("generate").exit_code == 0


def test_files_of_old_projects_go(small: Project, tmp_path: Path) -> None:
    small.run("generate")
    folder = file_of(small).parent
    for number in range(40):
        (folder / f"old{number}").touch()
        os.utime(folder / f"old{number}", (number, number))
    other = tmp_path / "other"
    shutil.copytree(small.root, other, symlinks=True)
    Project(other).run("check")
    assert len(list(folder.iterdir())) == 32
    assert (folder / "old39").exists() and not (folder / "old0").exists()


def is_known(project: Project) -> bool:
    return up_to_date.Run(project.root).outputs is not None


def test_each_change_of_a_project_is_seen(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_to_date, "_TICK", -(10**12))
    small.generate()
    template, output = small.root / "templates/tallow/limits.py.j2", small.output / "tallow/limits.py"
    text, times = template.read_text(encoding="utf-8"), (template.stat().st_atime_ns, template.stat().st_mtime_ns)

    def edit_in_the_same_nanosecond() -> None:
        template.write_text(text.replace('"""Numbers', '"""NUMBERS'), encoding="utf-8")
        os.utime(template, ns=times)

    changes = {
        edit_in_the_same_nanosecond: lambda: template.write_text(text, encoding="utf-8"),
        lambda: output.rename(output.with_suffix(".old")): lambda: output.with_suffix(".old").rename(output),
        lambda: shutil.copy(output, output.with_name("left.py")): output.with_name("left.py").unlink,
        lambda: output.write_text("", encoding="utf-8"): lambda: small.run("generate", "--force"),
        lambda: small.edit("spec/package.yaml", "max_rank: 8", "max_rank: 9"): lambda: small.edit(
            "spec/package.yaml", "max_rank: 9", "max_rank: 8"
        ),
    }
    for change, undo in changes.items():
        right = small.run("check")
        small.run("check")
        assert right.exit_code == 0 and is_known(small)
        assert small.run("check").output == right.output
        assert small.run("generate").output == right.output.replace("all up to date", "0 changed")
        assert json.loads(small.run("check", "--format", "json").stdout) == []
        change()
        assert not is_known(small)
        assert small.run("check").exit_code == 1
        assert not is_known(small)
        undo()


def test_what_may_change_without_a_new_time_is_read_again(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    small.generate()
    for seconds, is_settled in ((0, False), (1, False), (3, True), (-100, True)):
        now += seconds * 10**9
        assert small.run("check").exit_code == 0
        assert is_known(small) == is_settled, seconds
    # Times that the machine counted before it started anew say nothing.
    small.edit("spec/package.yaml", "max_rank: 8", "max_rank:  8")
    small.run("check")
    now -= 10**12
    for seconds, is_settled in ((0, False), (1, False), (3, True)):
        now += seconds * 10**9
        small.run("check")
        assert is_known(small) == is_settled, seconds


@pytest.mark.parametrize("offset", [-3600, 0, 3600])
def test_a_file_that_is_saved_while_a_check_runs_is_read_again(
    small: Project, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """Also if the clock of the machine is hours before, or after, that of the file system."""
    monkeypatch.setattr(up_to_date, "_TICK", -(10**12))
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + offset * 10**9)
    template = small.root / "templates/tallow/limits.py.j2"

    small.generate()
    small.run("check")
    text = template.read_text(encoding="utf-8")

    def save_and_render(*arguments: Any) -> Any:
        result = render(*arguments)
        template.write_text(text.replace('"""Numbers', '"""NUMBERS'), encoding="utf-8")
        return result

    with monkeypatch.context() as patch:
        patch.setattr("opgen.project.render", save_and_render)
        assert small.run("check").exit_code == 0
    assert small.run("check").exit_code == 1


def test_links_are_known_by_what_they_lead_to(small: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(up_to_date, "_TICK", -(10**12))
    file, elsewhere = small.root / "spec/package.yaml", tmp_path / "elsewhere.yaml"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    small.generate().run("check")
    small.run("check")
    assert is_known(small)
    elsewhere.write_text(elsewhere.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert not is_known(small)
