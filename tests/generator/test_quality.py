"""What is committed in generated/ is what the spec says, and it and its generator are formatted and linted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opgen.banner import GENERATE, is_edited

from .project import REPOSITORY, Project

EMITTED = sorted(
    path
    for path in (REPOSITORY / "generated").rglob("*")
    if path.is_file() and not {"__pycache__", "build", "code"} & set(path.parts) and ".egg-info" not in str(path)
)


def succeed(*arguments: str) -> None:
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_generated_is_what_the_spec_says() -> None:
    result = Project(REPOSITORY).run("check")
    assert result.output == f"{len(EMITTED)} files, all up to date\n"


def test_a_clone_on_windows_is_up_to_date(small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git is told there to write CRLF, which `opgen check` would take for edits."""
    for variable in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(variable, os.devnull)
    shutil.copy(REPOSITORY / ".gitattributes", small.root)
    git = ["git", "-C", str(small.root), "-c", "core.autocrlf=true"]
    checkout = ["checkout-index", "--all", f"--prefix={tmp_path}/clone/"]
    for arguments in (["init", "--quiet"], ["add", "."], checkout):
        subprocess.run([*git, *arguments], check=True)
    assert Project(tmp_path / "clone").run("check").output == "8 files, all up to date\n"


def test_formatted() -> None:
    succeed("ruff", "format", "--check")


def test_linted() -> None:
    succeed("ruff", "check")


@pytest.mark.parametrize("file", EMITTED, ids=lambda path: path.relative_to(REPOSITORY / "generated").as_posix())
def test_each_file_carries_its_banner_and_is_short(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert GENERATE.is_in(text)
    assert not is_edited(text)
    assert text.endswith("\n")
    assert str(REPOSITORY) not in text
    if file.suffix == ".py":
        # The longest are the branches of the gradients of row ops, and the tensor methods with their examples.
        assert len(text.splitlines()) < 1600
