"""The tutorial tells the truth: its commands, edits and sessions are run, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .project import REPOSITORY

PAGE = REPOSITORY / "docs/tutorial.md"
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<about>[^\n]+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_INSTALL = "pip install --editable "
BLOCKS = [match.group("kind", "about", "text") for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


class Reader:
    """Somebody who follows the page, with opgen and the packages of this repository, and without compilers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.printed, self.sessions = folder, "", ""
        self._installed: list[str] = []
        programs = folder / "bin"
        programs.mkdir()
        self._program(programs / "python3", f'exec "{sys.executable}" "$@"')
        # What pip would have told opgen of the package that projects stand on.
        self._program(
            programs / "opgen",
            f'[ "$1" = init ] && set -- "$@" --base tallow\nexec "{sys.executable}" -m opgen "$@"',
        )
        for name in ("make", "sh"):
            results = [path for folder in ("/usr/bin", "/bin") if (path := Path(folder, name)).exists()]
            (programs / name).symlink_to(results[0])
        paths = (REPOSITORY / "generator", REPOSITORY / "generated")
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in ("ROCM_PATH", "MAKEFLAGS")},
            "PATH": str(programs),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        }

    @staticmethod
    def _program(file: Path, text: str) -> None:
        file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        file.chmod(0o755)

    def follow(self, kind: str, about: str | None, text: str) -> None:
        """Do what a block says."""
        match kind:
            case "sh":
                for line in text.splitlines():
                    self._run(line, fails=about == "fails")
            case "diff":
                self._edit(text)
            case "text":
                assert [line.split() for line in text.splitlines()] == [it.split() for it in self.printed.splitlines()]
            case "pycon":
                self._say(text)
            case "python" | "yaml" | "cpp":
                assert about is not None
                file = self.folder / about
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            case _:
                raise AssertionError(f"nobody can follow a block of {kind}")

    def _run(self, line: str, *, fails: bool) -> None:
        if line.startswith("cd "):
            self.folder /= line.removeprefix("cd ")
            return
        if line.startswith(_INSTALL):
            # As pip does it, but only for this reader.
            self._installed.append(str(self.folder / line.removeprefix(_INSTALL)))
            return
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) is fails, line + done.stdout + done.stderr
        self.printed = done.stdout

    def _edit(self, text: str) -> None:
        """Replace the lines of a block that stay or go by those that stay or come."""
        _, header, *lines = text.splitlines(keepends=True)
        file = self.folder / header.removeprefix("+++ b/").rstrip()
        content = file.read_text(encoding="utf-8")
        old, new = ("".join(line[1:] for line in lines if line[0] in (" ", mark)) for mark in "-+")
        assert content.count(old) == 1, f"it stands {content.count(old)} times in {file.name}:\n{old}"
        file.write_text(content.replace(old, new), encoding="utf-8")

    def _say(self, text: str) -> None:
        # No process loads a package twice, so each part of the session begins with those before it.
        self.sessions += text
        file = self.folder.parent / "session.txt"
        file.write_text(self.sessions, encoding="utf-8")
        options = "module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL"
        code = f"import doctest, sys; sys.exit(doctest.testfile({str(file)!r}, {options})[0])"
        paths = os.pathsep.join([*self._installed, self._environment["PYTHONPATH"]])
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**self._environment, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_what_the_tutorial_says_works(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for kind, about, text in BLOCKS:
        reader.follow(kind, about, text)
    assert [kind for kind, *_ in BLOCKS].count("sh") > 6
