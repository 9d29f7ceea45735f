"""What a run leaves to the next one: changes of every kind are seen, and nothing else is found anew."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opgen.cache import files, memo, up_to_date
from opgen.folders import FOLDERS
from opgen.formula import Call
from opgen.problem import Refusal, SpecError
from opgen.project import Project as Opened
from opgen.project import read_project, resumed_project
from opgen.render import render
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
    """The texts of all outputs that differ from what is written, or the mistakes."""
    try:
        return {change.path: change.new for change in read(project.root).changes(project.output)}
    except SpecError as error:
        return [*error.problems]
    except Refusal as error:
        return str(error)


def check_random_edits(project: Project, count: int, seed: int) -> int:
    """A run with what earlier runs have saved finds after each edit what one with an empty cache finds.

    The number of edits that are no mistakes.
    """
    chance = random.Random(seed)
    files = [path for folder in FOLDERS for path in sorted((project.root / folder).rglob("*")) if path.is_file()]
    originals = {path: path.read_bytes() for path in files}
    valid = 0
    for number in range(count):
        if number % 20 == 0:
            for path, content in originals.items():
                path.write_bytes(content)
        # A mistake in a text that is not Python, YAML or a template is rare.
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


@pytest.mark.full
def test_edits_of_a_project_that_stands_on_another_give_the_same_bytes(tmp_path: Path) -> None:
    start(choose_base(None), "mylib", tmp_path / "mylib")
    assert check_random_edits(Project(tmp_path / "mylib").generate(), 200, seed=0) > 40


def test_a_mistake_in_the_runtime_is_seen(small: Project) -> None:
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
