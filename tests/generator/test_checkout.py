"""However git and the file system store a project, commands see the same one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from opgen.folders import walk
from opgen.project import read_project

from .project import Project

FOLDERS = ("spec", "templates", "runtime")
AUTHOR = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.com", "-c", "protocol.file.allow=always")


def git(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    command = ["git", "-C", str(folder), *AUTHOR, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def commit(folder: Path) -> None:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")


def folders_of(project: Project, *tops: str) -> list[Path]:
    """The folders of a project's sources, those inside others last."""
    return [
        folder
        for top in tops
        for folder in (project.root / top, *sorted((project.root / top).rglob("*")))
        if folder.is_dir() and folder.name != "__pycache__"
    ]


def files_of(project: Project) -> list[Path]:
    return [path for top in (*FOLDERS, "generated") for path in (project.root / top).rglob("*") if path.is_file()]


def check(project: Project, *arguments: str) -> None:
    """Nothing differs, and nothing is changed by generating."""
    before = {path: path.read_bytes() for path in files_of(project)}
    for command in ("check", "generate"):
        result = project.run(command, *arguments)
        assert result.exit_code == 0, result.output
    assert {path: path.read_bytes() for path in files_of(project)} == before


# ---- Links


def test_folders_and_files_behind_links_are_read(small: Project, tmp_path: Path) -> None:
    for number, folder in enumerate(folders_of(small, *FOLDERS)[::-1]):
        elsewhere = tmp_path / f"folder_{number}"
        folder.rename(elsewhere)
        folder.symlink_to(elsewhere)
    check(small)
    tops = [small.root / top for top in FOLDERS]
    files = [top / file for top in tops for file in walk(top, lambda error: pytest.fail(str(error)))]
    assert len(files) > 20
    for number, file in enumerate(files):
        elsewhere = tmp_path / f"file_{number}"
        file.rename(elsewhere)
        file.symlink_to(elsewhere)
    check(small)
    # What is written to a file behind a link, is written there.
    assert small.run("new", "op", "twice", "--kind", "map", "--formula", "x + x").exit_code == 0
    file = small.root / "spec/functors/unary.yaml"
    assert file.is_symlink()
    assert "twice:" in file.resolve().read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["nowhere", ".", "..", "{name}"])
@pytest.mark.parametrize("top", FOLDERS)
def test_links_to_folders_that_cannot_be_read_are_errors(small: Project, top: str, target: str) -> None:
    for folder in folders_of(small, top):
        link = folder / "link"
        link.symlink_to(target.format(name="link"))
        before = small.files()
        for command in ("check", "generate"):
            result = small.run(command)
            assert result.exit_code == 1
            index = link.relative_to(small.root).as_posix()
            assert f"{index}" in result.stderr and "it leads to " in result.stderr, result.stderr
        assert small.files() == before
        link.unlink()


def test_a_change_behind_a_link_is_seen(small: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("opgen.cache.up_to_date._TICK", -(10**12))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    elsewhere = tmp_path / "elsewhere"
    (small.root / "templates/tallow").rename(elsewhere)
    (small.root / "templates/tallow").symlink_to(elsewhere)
    for _ in range(3):
        assert small.run("check").exit_code == 0
    (elsewhere / "limits.py.j2").write_text('"""New."""\n', encoding="utf-8")
    assert small.run("check").stdout == "differs generated/tallow/limits.py\n"


# ---- Line ends


def with_crlf(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))


@pytest.mark.parametrize("top", [*FOLDERS, "generated", "all"])
def test_line_ends_are_no_difference(small: Project, top: str) -> None:
    small.run("schema")
    for path in files_of(small):
        if top in ("all", path.relative_to(small.root).parts[0]):
            with_crlf(path)
    check(small)
    project = read_project(small.root)
    assert not any("\r" in (project.sources.text(path) or "") for path in project.sources.paths)
    assert small.run("schema").stdout == "0 files changed\n"
    # What is generated anew, and an edit, are seen.
    limits = small.output / "tallow/limits.py"
    limits.write_bytes(limits.read_bytes() + b"\r\n")
    assert small.run("check").stdout == "edited generated/tallow/limits.py\n"
    small.run("generate", "--force")
    small.edit("spec/package.yaml", "max_rank: 8", "max_rank: 9")
    assert small.run("check").stdout == "differs generated/tallow/limits.py\n"
    assert small.run("generate").exit_code == 0


def test_a_file_keeps_its_line_ends(small: Project) -> None:
    file = small.root / "spec/functors/unary.yaml"
    with_crlf(file)
    assert small.run("new", "op", "twice", "--kind", "map", "--formula", "x + x").exit_code == 0
    content = file.read_bytes()
    assert b"twice:" in content and content.count(b"\n") == content.count(b"\r\n")
    small.generate()


def test_pages_of_a_checkout_are_no_difference(small: Project) -> None:
    pages = small.root / "pages"
    assert small.run("reference", str(pages)).exit_code == 0
    for path in pages.rglob("*.md"):
        with_crlf(path)
    assert small.run("reference", str(pages)).stdout.endswith(" pages, 0 changed\n")


# ---- A commit of git


@pytest.fixture
def committed(small: Project) -> Project:
    commit(small.root)
    return small


def check_diff(project: Project, revision: str = "HEAD") -> None:
    """A commit is compared as it is, and changes and what breaks callers are seen."""
    result = project.run("diff", revision)
    assert result.stdout == f"no change of the spec since {revision}\n", result.output
    assert project.run("check", "--against", revision).exit_code == 0
    file = project.root / "spec/functors/unary.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("alpha: 1.0", "alpha: 2.0"), encoding="utf-8")
    assert "alpha" in project.run("diff", revision).stdout
    assert "PARAMETER_DEFAULT_CHANGED" in project.run("check", "--against", revision).stderr
    file.write_text(text, encoding="utf-8")


def hook_environments(project: Project, tmp_path: Path) -> dict[str, dict[str, str]]:
    """What git and its commands may hand to a hook, of this repository and of others."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    commit(other)
    listed = git(other, "rev-parse", "--local-env-vars").split()
    paths = {name: str(other / ".git") for name in listed if "CONFIG" not in name}
    objects = {"GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"}
    own = str(project.root / ".git")
    return {
        **{name: {name: path} for name, path in paths.items()},
        "all": paths,
        "objects": {name: path for name, path in paths.items() if name in objects},
        "commit": {"GIT_DIR": ".git", "GIT_INDEX_FILE": ".git/index.lock", "GIT_PREFIX": ""},
        "worktree": {"GIT_DIR": own, "GIT_WORK_TREE": str(other)},
        "pathspecs": dict.fromkeys(("GIT_LITERAL_PATHSPECS", "GIT_ICASE_PATHSPECS"), "1"),
        "trace": {"GIT_TRACE": "1"},
    }


def test_a_hook_is_told_of_another_repository(committed: Project, tmp_path: Path) -> None:
    for name, environment in hook_environments(committed, tmp_path).items():
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in environment.items():
                patch.setenv(variable, value)
            result = committed.run("diff")
            assert result.stdout == "no change of the spec since HEAD\n", (name, result.output)


def attributes(project: Project) -> Project:
    lines = (
        f"{path} {attribute}\n"
        for path in ("*.yaml", "spec/**", "runtime")
        for attribute in ("export-ignore", "export-subst")
    )
    (project.root / ".gitattributes").write_text("".join(lines), encoding="utf-8")
    project.edit("spec/functors/unary.yaml", "doc: minus x", "doc: minus x $Format:%H$")
    commit(project.root)
    return project.generate()


def folder_of_a_repository(project: Project) -> Project:
    inner = project.root.parent / "repository/ünder score/one"
    inner.parent.mkdir(parents=True)
    shutil.move(project.root, inner)
    commit(inner.parent.parent)
    return Project(inner)


def worktree(project: Project) -> Project:
    commit(project.root)
    target = project.root.parent / "worktree"
    git(project.root, "worktree", "add", "--quiet", str(target))
    return Project(target)


def sparse(project: Project) -> Project:
    inner = folder_of_a_repository(project)
    top = inner.root.parent.parent
    (top / "other").mkdir()
    (top / "other/file").write_text("other\n", encoding="utf-8")
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--message", "second")
    git(top, "sparse-checkout", "set", inner.root.relative_to(top).as_posix())
    assert not (top / "other").exists()
    return inner


def partial_clone(project: Project) -> Project:
    commit(project.root)
    target = project.root.parent / "clone"
    git(project.root, "config", "uploadpack.allowfilter", "true")
    git(project.root.parent, "clone", "--quiet", "--filter=blob:none", project.root.as_uri(), str(target))
    return Project(target)


def behind_links(project: Project) -> Project:
    """Links to folders and files of the repository, by way of another link, and to those outside."""
    shared, outside = project.root / "shared/one", project.root.parent / "outside"
    shared.mkdir(parents=True)
    (project.root / "spec/storage").rename(shared / "storage")
    (project.root / "current").symlink_to("shared/one")
    (project.root / "spec/storage").symlink_to("../current/storage")
    (project.root / "templates").rename(project.root / "shared/templates")
    (project.root / "templates").symlink_to("shared/templates")
    (project.root / "spec/dtypes.yaml").rename(shared / "dtypes")
    (project.root / "spec/dtypes.yaml").symlink_to("../shared/one/dtypes")
    (project.root / "spec/device.yaml").rename(outside)
    (project.root / "spec/device.yaml").symlink_to("../../outside")
    commit(project.root)
    return project


def submodules(*names: str) -> Callable[[Project], Project]:
    def make(project: Project) -> Project:
        git(project.root, "init", "--quiet")
        for name in names:
            shared = project.root.parent / "shared" / name
            shared.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(project.root / name, shared)
            commit(shared)
            git(project.root, "submodule", "--quiet", "add", str(shared), name)
        commit(project.root)
        return project

    return make


def submodule_that_is_a_project(project: Project) -> Project:
    shared = project.root.parent / "shared"
    shutil.move(project.root, shared)
    commit(shared)
    top = project.root.parent / "top"
    top.mkdir()
    git(top, "init", "--quiet")
    git(top, "submodule", "--quiet", "add", str(shared), "inner")
    return Project(top / "inner")


STORED = {
    "attributes": attributes,
    "a folder of a repository": folder_of_a_repository,
    "a worktree": worktree,
    "a sparse checkout": sparse,
    "a partial clone": partial_clone,
    "links": behind_links,
    "a submodule": submodule_that_is_a_project,
    "spec in a submodule": submodules("spec"),
    "all in submodules": submodules(*FOLDERS),
    "a folder in a submodule": submodules("spec/storage"),
}


@pytest.mark.parametrize("name", STORED)
def test_a_commit_is_compared_however_it_is_stored(small: Project, name: str) -> None:
    check_diff(STORED[name](small))


def test_a_submodule_that_is_not_here_is_refused(small: Project) -> None:
    project = submodules("runtime")(small)
    shutil.move(project.root / "runtime", project.root / "moved")
    (project.root / "runtime").mkdir()
    result = project.run("diff")
    assert (result.exit_code, result.stderr) == (
        1,
        "runtime is a submodule that is not here; run 'git submodule update --init'\n",
    )
    (project.root / "runtime").rmdir()
    shutil.move(project.root / "moved", project.root / "runtime")
    shared = project.root.parent / "shared/runtime"
    git(shared, "commit", "--quiet", "--allow-empty", "--message", "second")
    identity = git(shared, "rev-parse", "HEAD")
    git(project.root, "update-index", "--cacheinfo", f"160000,{identity},runtime")
    git(project.root, "commit", "--quiet", "--message", "second")
    result = project.run("diff")
    message = f"submodule runtime lacks the commit {identity}; run 'git fetch' in it\n"
    assert (result.exit_code, result.stderr) == (1, message)
