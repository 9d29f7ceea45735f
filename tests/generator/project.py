"""Projects to run opgen on: a folder with spec/, templates/, runtime/ and generated/, made for one test."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result
from opgen.cli import main

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
SMALL = HERE / "small"
OPGEN = Path(sys.executable).with_name("opgen")


@dataclass(frozen=True)
class Project:
    """A project that a test may change."""

    root: Path

    @property
    def output(self) -> Path:
        """The folder that is written to."""
        return self.root / "generated"

    def run(self, *arguments: str, color: bool = False) -> Result:
        """Run opgen on this project in this process."""
        return CliRunner().invoke(main, ["--root", str(self.root), *arguments], color=color)

    def generate(self) -> Project:
        """Write generated/, which must succeed."""
        result = self.run("generate")
        assert result.exit_code == 0, result.output
        return self

    def edit(self, file: str, find: str, replace: str) -> None:
        """Replace the one place where `find` stands in `file`."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert text.count(find) == 1, f"'{find}' stands {text.count(find)} times in {file}"
        path.write_text(text.replace(find, replace), encoding="utf-8")

    def files(self) -> dict[str, bytes]:
        """Every file below generated/ with its content."""
        results = sorted(path for path in self.output.rglob("*") if path.is_file())
        return {path.relative_to(self.output).as_posix(): path.read_bytes() for path in results}

    def times(self) -> dict[str, int]:
        """When each file below generated/ was last written, in nanoseconds."""
        return {name: (self.output / name).stat().st_mtime_ns for name in self.files()}

    def change(self, case: Path) -> None:
        """Make the changes of a golden case: lay its overlay/ over the project, then make the edits in edit.yaml.

        An edit is `{file, find, replace}`, `{file, write}` or `{file, delete: true}`, or `{overlay: name}` for what
        several cases lay over it.
        """
        if (case / "overlay").is_dir():
            shutil.copytree(case / "overlay", self.root, dirs_exist_ok=True)
        edits: list[dict[str, Any]] = []
        if (case / "edit.yaml").is_file():
            edits = yaml.safe_load((case / "edit.yaml").read_text(encoding="utf-8"))
        for edit in edits:
            self.apply(edit)

    def apply(self, edit: dict[str, Any]) -> None:
        """Make one edit of a golden case."""
        if "overlay" in edit:
            shutil.copytree(HERE / "golden" / "overlays" / edit["overlay"], self.root, dirs_exist_ok=True)
            return
        path = self.root / edit["file"]
        if "find" in edit:
            self.edit(edit["file"], edit["find"], edit["replace"])
        elif "write" in edit:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(edit["write"], encoding="utf-8")
        elif edit["delete"]:
            path.unlink()


def copy_project(
    source: Path, target: Path, folders: Sequence[str] = ("spec", "starter", "templates", "runtime", "generated")
) -> Project:
    """A project with the spec, the templates, the runtime and, where there is one, the output of `source`."""
    for folder in folders:
        if (source / folder).is_dir():
            # With the bytecode of the runtime, which each process would make anew.
            ignored = shutil.ignore_patterns("*.egg-info", "build", "code")
            shutil.copytree(source / folder, target / folder, ignore=ignored, symlinks=True)
    return Project(target)
