"""What a run leaves to the next one: changes of every kind are seen, and nothing else is found anew."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
from opgen import caches, memory, unchanged
from opgen.formula import Call
from opgen.project import read_project, recalled_project

from .project import Project
from .test_watch import EDITS, EDITS_OF_MANY


def file_of(project: Project) -> Path:
    (file,) = Path(os.environ["XDG_CACHE_HOME"], "opgen").glob("*.kept")
    return file


@pytest.fixture(autouse=True)
def empty(caches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of the test's own, and nothing kept of the projects of other tests in this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    containers = {name: type(kept)() for name, kept in memory.recalled()["containers"].items()}
    memory.remember({"results": {}, "containers": containers})


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
    monkeypatch.setattr(caches, "_mark", lambda: b"another")
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
    for number in range(40):
        (folder / f"old{number}").touch()
        os.utime(folder / f"old{number}", (number, number))
    other = tmp_path / "other"
    shutil.copytree(small.root, other, symlinks=True)
    Project(other).run("check")
    assert len(list(folder.iterdir())) == 32
    assert (folder / "old39").exists() and not (folder / "old0").exists()


def is_known(project: Project) -> bool:
    return unchanged.recall(project.root) is not None


def test_each_change_of_a_project_is_seen(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_TICK", -(10**12))
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
        assert right.exit_code == 0 and is_known(small)
        assert small.run("check").output == right.output
        assert small.run("generate").output == right.output.replace("all up to date", "0 changed")
        assert json.loads(small.run("check", "--format", "json").stdout) == []
        change()
        assert not is_known(small)
        assert small.run("check").exit_code == 1
        assert not is_known(small)
        undo()


def test_what_has_just_changed_is_read_again(small: Project) -> None:
    small.generate()
    assert small.run("check").exit_code == 0
    assert not is_known(small)


def test_links_are_known_by_what_they_lead_to(small: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(unchanged, "_TICK", -(10**12))
    file, elsewhere = small.root / "spec/package.yaml", tmp_path / "elsewhere.yaml"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    small.generate().run("check")
    assert is_known(small)
    elsewhere.write_text(elsewhere.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert not is_known(small)
