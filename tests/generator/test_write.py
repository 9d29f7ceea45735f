"""The tree on disk: only what changed is written, nothing that somebody else wrote is lost."""

import errno
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import Result
from opgen.write import locked, temporary_of

from .project import OPGEN, Project

LIMITS = "tallow/limits.py"


def change_rank(project: Project) -> None:
    project.edit("spec/package.yaml", "max_rank: 8", "max_rank: 9")


def test_everything_is_written_at_first(small: Project) -> None:
    names = ["__init__", "accelerator_backend/__init__", "accelerator_two_backend/__init__", "host_backend/__init__"]
    names += ["storage/elementwise", "storage/index", "limits", "kernels/constants"]
    assert sorted(small.files()) == sorted(f"tallow/{name}.py" for name in names)


def test_only_what_changed_is_written(small: Project) -> None:
    before = small.times()
    change_rank(small)
    result = small.run("generate")
    assert result.output == f"wrote generated/{LIMITS}\n8 files, 1 changed\n"
    after = small.times()
    assert [name for name in after if after[name] != before[name]] == [LIMITS]
    assert b"MAX_RANK = 9" in small.files()[LIMITS]


def test_an_orphan_is_removed_with_its_empty_folder(small: Project) -> None:
    (small.root / "templates/tallow/kernels/constants.py.j2").unlink()
    result = small.run("generate")
    assert result.output == "removed generated/tallow/kernels/constants.py\n7 files, 1 changed\n"
    assert not (small.output / "tallow/kernels").exists()
    assert (small.output / "tallow").is_dir()


def test_a_family_that_goes_takes_its_module(small: Project) -> None:
    (small.root / "spec/storage/index.yaml").unlink()
    for name in ("backends/host", "backends/accelerator", "families/chips"):
        file = small.root / f"spec/{name}.yaml"
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(line for line in lines if "gather:" not in line), encoding="utf-8")
    small.generate()
    assert "tallow/storage/index.py" not in small.files()


@pytest.mark.parametrize("name", ["notes.txt", "tallow/mine.py", "tallow/other/data.bin"])
def test_a_foreign_file_is_kept(small: Project, name: str) -> None:
    file = small.output / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"\xff\x00 mine")
    change_rank(small)
    small.generate()
    assert file.read_bytes() == b"\xff\x00 mine"
    assert small.run("check").exit_code == 0


@pytest.mark.parametrize("command", ["generate", "check"])
def test_what_python_leaves_is_not_looked_at(small: Project, command: str) -> None:
    banner = small.files()[LIMITS]
    for folder in ("tallow/__pycache__", "build/lib", "tallow.egg-info"):
        (small.output / folder).mkdir(parents=True)
        (small.output / folder / "module.py").write_bytes(banner)
    assert small.run(command).exit_code == 0
    assert len(small.files()) == 11


def test_a_file_with_conflicts_of_a_merge_is_written_anew(small: Project) -> None:
    """Both sides changed it, and its banner with it; what belongs there follows from the merged spec."""
    file = small.output / LIMITS
    text = file.read_text(encoding="utf-8")
    banner, remaining = text.split("\n", 1)
    file.write_text(f"<<<<<<< HEAD\n{banner}\n=======\n{banner[:-1]}0\n>>>>>>> theirs\n{remaining}", encoding="utf-8")
    assert small.run("generate").exit_code == 0
    assert file.read_text(encoding="utf-8") == text


def test_conflicts_of_somebody_elses_text_are_no_reason_to_overwrite_it(small: Project) -> None:
    file = small.output / LIMITS
    file.write_text("<<<<<<< HEAD\nONE = 1\n=======\nONE = 2\n>>>>>>> theirs\n", encoding="utf-8")
    assert small.run("generate").exit_code == 1


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="a line more"),
        pytest.param(b"MAX_RANK = 7\n", id="no banner"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
def test_an_edited_file_stops_everything(small: Project, content: bytes | None) -> None:
    file = small.output / LIMITS
    file.write_bytes(file.read_bytes() + b"MORE = 1\n" if content is None else content)
    # Another file is out of date too: it must not be written either.
    (small.root / "templates/tallow/kernels/constants.py.j2").write_text('"""Deeper."""\n', encoding="utf-8")
    before = small.files(), small.times()
    result = small.run("generate")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        f"edited by hand, not overwritten:\n  {file}\n"
        "move the edit to templates/, runtime/ or spec/, or run 'opgen generate --force' to lose it\n"
    )
    assert (small.files(), small.times()) == before

    forced = small.run("generate", "--force")
    assert forced.exit_code == 0, forced.output
    assert b"MORE" not in small.files()[LIMITS]
    assert b"Deeper" in small.files()["tallow/kernels/constants.py"]
    assert small.run("check").exit_code == 0


def test_an_edited_orphan_is_not_removed(small: Project) -> None:
    (small.root / "templates/tallow/kernels/constants.py.j2").unlink()
    orphan = small.output / "tallow/kernels/constants.py"
    orphan.write_bytes(orphan.read_bytes() + b"MINE = 1\n")
    assert small.run("generate").exit_code == 1
    assert orphan.is_file()
    assert small.run("generate", "--force").exit_code == 0
    assert not orphan.exists()


def test_a_link_that_leads_out_is_refused(small: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (small.output / "tallow/kernels").rename(outside)
    (small.output / "tallow/kernels").symlink_to(outside)
    (outside / "deep.py").write_text("precious", encoding="utf-8")
    result = small.run("generate", "--force")
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"{small.output}/tallow/kernels/constants.py leads to {outside}/constants.py; remove the link\n"
    )
    assert (outside / "deep.py").read_text(encoding="utf-8") == "precious"


def test_a_folder_in_the_way_is_named(small: Project) -> None:
    (small.output / LIMITS).unlink()
    (small.output / LIMITS).mkdir()
    result = small.run("generate")
    assert result.exit_code == 1
    assert result.stderr == f"{small.output / LIMITS} blocks the output; remove it\n"


def test_a_link_to_an_orphan_is_refused(small: Project) -> None:
    """Followed, the link would be up to date, and then lead nowhere as the orphan is removed."""
    file, orphan = small.output / LIMITS, small.output / "tallow/orphan.py"
    file.rename(orphan)
    file.symlink_to(orphan)
    result = small.run("generate")
    assert (result.exit_code, result.stderr) == (1, f"{file} leads to {orphan}; remove the link\n")
    assert orphan.is_file()


@pytest.mark.parametrize("blocking", ["tallow/kernels", "tallow"])
def test_a_file_in_the_way_of_a_folder_is_named(small: Project, blocking: str) -> None:
    shutil.rmtree(small.output / blocking)
    (small.output / blocking).write_text("mine", encoding="utf-8")
    result = small.run("generate")
    assert (result.exit_code, result.stderr) == (1, f"{small.output / blocking} blocks the output; remove it\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"generated/{LIMITS}", "{path} cannot be read: Permission denied; nothing was written"),
        ("generated/tallow", "{path} cannot be read: Permission denied; nothing was written"),
        (
            "templates/tallow/kernels/constants.py.j2",
            "{name}:1:1: cannot be read: Permission denied; let it be read or remove it",
        ),
        ("templates/tallow/limits.py.j2", "{name}:1:1: cannot be read: Permission denied; let it be read or remove it"),
        ("templates/tallow/kernels", "{name}:1:1: cannot be read: Permission denied; let it be read or remove it"),
        ("spec/storage", "{name}:1:1: cannot be read: Permission denied; let it be read or remove it"),
        ("spec/device.yaml", "{name}:1:1: cannot be read: Permission denied; let it be read or remove it"),
    ],
)
def test_what_may_not_be_read_is_named(
    small: Project, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    """Root may read everything, so that a refusal is pretended."""
    path = small.root / name
    real_read, real_scan = Path.read_bytes, os.scandir

    def refuse(wanted: object) -> None:
        if Path(str(wanted)) == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(wanted))

    def read(file: Path) -> bytes:
        refuse(file)
        return real_read(file)

    def scan(folder: str) -> object:
        refuse(folder)
        return real_scan(folder)

    before = small.files()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read)
        patch.setattr(os, "scandir", scan)
        result = small.run("generate")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == message.format(path=path, name=name)
    assert len(lines) == (1 if name.startswith("generated") else 2)
    assert small.files() == before


@pytest.mark.parametrize("kept", [0, 10, 120])
def test_what_a_killed_run_left_is_cleared_away(small: Project, kept: int) -> None:
    """A torn temporary file looks like an edited one, and must not stop the next run."""
    invalid_files = temporary_of(small.output / LIMITS)
    invalid_files.write_bytes(small.files()[LIMITS][:kept])
    assert small.run("check").exit_code == 0
    assert small.run("generate").exit_code == 0
    assert not invalid_files.exists()


@pytest.mark.parametrize("name", [".opgen-notes", ".opgen-0123456789ab-limits.py", ".opgen-"])
@pytest.mark.parametrize("content", [b"", b"# Generated by op", b"mine"])
def test_a_file_that_is_only_named_like_a_temporary_one_is_kept(small: Project, name: str, content: bytes) -> None:
    own = small.output / "tallow" / name
    own.write_bytes(content)
    change_rank(small)
    small.generate()
    assert own.read_bytes() == content


def test_what_is_no_regular_file_is_not_waited_for(small: Project) -> None:
    """Nobody writes to these pipes: whoever reads one would wait forever."""
    os.mkfifo(small.output / "tallow/pipe")
    small.generate()
    (small.output / LIMITS).unlink()
    os.mkfifo(small.output / LIMITS)
    result = small.run("generate")
    assert (result.exit_code, result.stderr) == (1, f"{small.output / LIMITS} blocks the output; remove it\n")


def test_a_second_generate_waits_for_the_first(small: Project) -> None:
    """Both would write through the same temporary files, and each would remove the other's."""
    change_rank(small)
    handle = os.open(small.output, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    command = [OPGEN, "generate", "--root", small.root]
    second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert second.stderr is not None
    assert second.stderr.readline() == f"another opgen writes to {small.output}; waiting for its end\n"
    assert b"MAX_RANK = 8" in small.files()[LIMITS]
    os.close(handle)
    output, errors = second.communicate(timeout=60)
    assert (second.returncode, output, errors) == (0, f"wrote generated/{LIMITS}\n8 files, 1 changed\n", "")
    assert sorted(small.output.iterdir()) == [small.output / "tallow"]


def test_several_generates_at_once_all_succeed(small: Project) -> None:
    shutil.rmtree(small.output)
    command = [OPGEN, "generate", "--root", small.root]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    printed = [run.communicate(timeout=60)[0].splitlines()[-1] for run in runs]
    assert sorted(printed) == ["8 files, 0 changed"] * 3 + ["8 files, 9 changed"]
    assert small.run("check").exit_code == 0


def test_the_lock_leaves_nothing_behind(small: Project) -> None:
    shutil.rmtree(small.output)
    small.edit("spec/package.yaml", "max_rank: 8", "max_rank: none")
    assert small.run("generate").exit_code == 1
    assert not small.output.exists()


def test_a_folder_that_was_removed_while_it_was_waited_for_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "generated"
    folder.mkdir()
    first = os.open(folder, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)

    def end_first() -> None:
        folder.rmdir()
        os.close(first)

    with locked(folder, end_first):
        assert folder.is_dir()
        other = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)


@pytest.mark.parametrize(("broken", "call"), [("replace", 1), ("replace", 3), ("write", 2)])
def test_a_failing_disk_leaves_each_file_whole(
    small: Project, monkeypatch: pytest.MonkeyPatch, broken: str, call: int
) -> None:
    """When the disk is full at the n-th file, it and all after it are the old ones, and no temporary file stays."""
    for name in ("__init__", "kernels/constants", "storage/{storage}"):
        (small.root / f"templates/tallow/{name}.py.j2").write_text('"""New."""\n', encoding="utf-8")
    change_rank(small)
    old = small.files()
    calls = 0
    real_replace, real_open = Path.replace, os.fdopen

    def fail() -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(errno.ENOSPC, "No space left on device")

    def replace(source: Path, target: Path) -> Path:
        fail()
        return real_replace(source, target)

    def fdopen(handle: int, mode: str) -> object:
        stream = real_open(handle, mode)
        try:
            fail()
        except OSError:
            stream.write(b"torn")
            stream.close()
            raise
        return stream

    with monkeypatch.context() as patch:
        # What is left to the next run is a file too.
        patch.setattr("opgen.project.state.save", lambda *_: None)
        patch.setattr(*((Path, "replace", replace) if broken == "replace" else (os, "fdopen", fdopen)))
        result = small.run("generate")
    assert result.exit_code == 1
    assert "No space left on device; every file is complete" in result.stderr
    middle = small.files()
    small.generate()
    new = small.files()
    assert middle.keys() == old.keys() == new.keys()
    assert sum(middle[name] == new[name] != old[name] for name in new) == call - 1
    assert all(middle[name] in (old[name], new[name]) for name in new)


def test_permissions_are_those_of_any_file(small: Project) -> None:
    assert {(small.output / name).stat().st_mode & 0o777 for name in small.files()} == {0o644}


MOUNT = "tallow/runtime"


def test_the_runtime_is_mounted_by_a_link(small: Project) -> None:
    link = small.output / MOUNT
    assert link.readlink() == Path("../../runtime")
    link.unlink()
    assert small.run("check").stdout == f"missing generated/{MOUNT}\n"
    assert small.run("generate").stdout == f"wrote generated/{MOUNT}\n8 files, 1 changed\n"
    assert link.readlink() == Path("../../runtime")


def test_what_git_leaves_in_place_of_a_link_is_replaced(small: Project) -> None:
    """Where links are not to be had, a checkout has a file with the link's text."""
    link = small.output / MOUNT
    link.unlink()
    link.write_text("../../runtime", encoding="utf-8")
    assert small.run("generate").exit_code == 0
    assert link.is_symlink()


@pytest.fixture
def copied(small: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project where links cannot be created, so that a copy of the runtime is in the package."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    (small.output / MOUNT).unlink()
    result = small.run("generate")
    assert result.exit_code == 0
    assert result.stderr == f"links cannot be created here: generated/{MOUNT} is a copy; edit runtime/\n"
    return small


BLAS = "backends/accelerator_backend/blas.py"


def test_a_copy_of_the_runtime_is_kept_up_to_date(copied: Project) -> None:
    copy, original = copied.output / MOUNT / BLAS, copied.root / "runtime" / BLAS
    assert copy.read_bytes() == original.read_bytes()
    assert copied.run("check").stdout == copied.run("generate").stdout.replace("0 changed", "all up to date")
    os.utime(original, (0, 0))
    original.write_text(original.read_text(encoding="utf-8") + "# New.\n", encoding="utf-8")
    assert copied.run("check").stdout == f"differs generated/{MOUNT}\n"
    assert copied.run("generate").exit_code == 0
    assert copy.read_bytes() == original.read_bytes()


def test_a_copy_of_the_runtime_that_was_edited_is_not_lost(copied: Project) -> None:
    copy = copied.output / MOUNT / BLAS
    copy.write_text("# Mine.\n", encoding="utf-8")
    assert copied.run("check").stdout == f"edited generated/{MOUNT}\n"
    result = copied.run("generate")
    assert (result.exit_code, copy.read_text(encoding="utf-8")) == (1, "# Mine.\n")
    assert "move the edit to templates/, runtime/ or spec/" in result.stderr
    assert copied.run("generate", "--force").exit_code == 0
    assert copy.read_bytes() == (copied.root / "runtime" / BLAS).read_bytes()


def test_a_file_that_is_only_in_the_copy_is_not_lost(copied: Project) -> None:
    added = copied.output / MOUNT / "backends/mine.py"
    added.write_text("# Mine.\n", encoding="utf-8")
    assert copied.run("check").stdout == f"edited generated/{MOUNT}\n"
    result = copied.run("generate")
    assert (result.exit_code, added.read_text(encoding="utf-8")) == (1, "# Mine.\n")
    assert "move the edit to templates/, runtime/ or spec/" in result.stderr
    # Once it is in the runtime, it is nobody's edit.
    shutil.copy(added, copied.root / "runtime/backends/mine.py")
    assert copied.run("generate").exit_code == 0
    assert added.read_text(encoding="utf-8") == "# Mine.\n"


def test_what_leaves_the_runtime_leaves_the_copy(copied: Project) -> None:
    copy, original = (folder / "backends/old.py" for folder in (copied.output / MOUNT, copied.root / "runtime"))
    original.write_text("# Old.\n", encoding="utf-8")
    copied.run("generate")
    assert copy.is_file()
    original.unlink()
    assert copied.run("check").stdout == f"differs generated/{MOUNT}\n"
    assert copied.run("generate").exit_code == 0
    assert not copy.exists()


def test_a_copy_that_fails_leaves_the_last_one_whole(copied: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, original = copied.output / MOUNT, copied.root / "runtime"
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    new = original / "backends/new.py"
    new.write_text("# New.\n", encoding="utf-8")

    def fill_the_disk(_: Path, target: Path, **__: object) -> None:
        target.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copytree", fill_the_disk)
        result = copied.run("generate")
    assert result.exit_code == 1
    assert "No space left on device; every file is complete" in result.stderr
    assert {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()} == before
    # What it left is no orphan, and goes with the next run.
    assert copied.run("generate").exit_code == 0
    assert (copy / "backends/new.py").is_file()
    assert not [path for path in copied.output.rglob(".opgen-*") if path.name != ".opgen-copy"]


# Each command that writes many files, and the folder that it writes to.
WRITERS = {"generate": "generated", "schema": "spec", "reference": "pages"}


def run_writer(project: Project, name: str) -> Result:
    return project.run(name, *([str(project.root / WRITERS[name])] if name == "reference" else []))


def written_by(project: Project, name: str) -> dict[Path, bytes]:
    """The files that a command writes, with their contents; none is left."""
    if name == "generate":
        shutil.rmtree(project.output)
    folder = project.root / WRITERS[name]
    before = {path for path in folder.rglob("*") if path.is_file()}
    assert run_writer(project, name).exit_code == 0
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path not in before)
    contents = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    return contents


@pytest.mark.parametrize("name", WRITERS)
def test_no_command_overwrites_what_it_has_not_written(small: Project, name: str) -> None:
    contents = written_by(small, name)
    assert len(contents) > 5
    for kind in ("foreign", "edited", "not a text"):
        for path, content in contents.items():
            own = {"foreign": b"mine\n", "edited": content + b"mine\n", "not a text": b"\xff\x00"}[kind]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(own)
        own_files = {path: path.read_bytes() for path in contents}
        result = run_writer(small, name)
        assert result.exit_code == 1
        assert all(f"  {path}\n" in result.stderr for path in contents), kind
        assert {path: path.read_bytes() for path in contents} == own_files, kind
    # One is enough.
    first, *others = contents
    for path in others:
        path.unlink()
    assert run_writer(small, name).exit_code == 1
    assert not any(path.exists() for path in others), "nothing is written"
    first.unlink()
    assert written_by(small, name) == contents


@pytest.mark.parametrize("name", WRITERS)
def test_no_command_removes_what_it_has_not_written(small: Project, name: str) -> None:
    contents = written_by(small, name)
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    left_over, own = [], {}
    for path in {path.parent: path for path in contents}.values():
        copy, mine = (path.with_name(f"{word}_{path.name}") for word in ("copy", "mine"))
        copy.write_bytes(contents[path])
        left_over.append(copy)
        own |= {mine: b"mine\n", mine.with_suffix(".other"): b"\xff"}
    for path, content in own.items():
        path.write_bytes(content)
    assert run_writer(small, name).exit_code == 0
    assert not any(path.exists() for path in left_over)
    assert {path: path.read_bytes() for path in own} == own
