"""What a run leaves to the next one: edits of every kind are seen, and nothing else is found anew."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest
from opgen import store
from opgen.formula import Call
from opgen.project import read_project, recalled_project

from .project import Project
from .test_watch import EDITS, EDITS_OF_MANY


def file_of(project: Project) -> Path:
    (file,) = Path(os.environ["XDG_CACHE_HOME"], "opgen").iterdir()
    return file


@pytest.fixture(autouse=True)
def empty(caches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def check_edits(project: Project, edits: dict[str, tuple[str, str]]) -> None:
    """After each edit a run with what is left finds what a run finds that knows nothing."""
    project.run("generate")
    for file, (find, replace) in edits.items():
        project.edit(file, find, replace)
        fresh = {change.path: change.new for change in read_project(project.root).changes(project.output)}
        recalled = {change.path: change.new for change in recalled_project(project.root).changes(project.output)}
        assert recalled == fresh != {}, file
        assert project.run("generate").exit_code == 0


def test_edits_of_spec_and_templates_are_seen(small: Project) -> None:
    check_edits(small, EDITS)


@pytest.mark.full
def test_edits_of_a_large_project_are_seen(few_ops: Project) -> None:
    check_edits(few_ops, EDITS_OF_MANY)
    assert recalled_project(few_ops.root).is_new is False
    for file in ("runtime/kernels/copy.hpp", "runtime/core/check.py"):
        with (few_ops.root / file).open("a", encoding="utf-8") as text:
            text.write("\n")
        project = recalled_project(few_ops.root)
        assert project.is_new, file
        assert project.changes(few_ops.output) == read_project(few_ops.root).changes(few_ops.output) == []
        assert recalled_project(few_ops.root).is_new is False


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
    assert recalled_project(small.root).is_new is False
    monkeypatch.setattr(store, "_mark", lambda: b"another")
    assert recalled_project(small.root).is_new is True


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
    for number in range(20):
        (folder / f"old{number}").touch()
        os.utime(folder / f"old{number}", (number, number))
    other = tmp_path / "other"
    shutil.copytree(small.root, other, symlinks=True)
    Project(other).run("check")
    assert len(list(folder.iterdir())) == 16
    assert (folder / "old19").exists() and not (folder / "old0").exists()
