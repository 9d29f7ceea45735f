"""What opgen does without its standard streams, with a full disk, and with a Python that drops docstrings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from opgen.cli import _COMMANDS
from opgen.comparison.rules import RULES

from .project import Project

ARGUMENTS: Mapping[str, Sequence[str]] = {
    "init": ("mylib",),
    "diff": (),
    "explain": ("exp",),
    "new": ("op", "softsign", "--kind", "map"),
    "watch": ("--help",),  # it goes on until it is interrupted
}
SHELL = {
    "closed output": 'exec "$@" >&-',
    "closed errors": 'exec "$@" 2>&-',
    "no streams": 'exec "$@" <&- >&- 2>&-',
    "full output": 'exec "$@" >/dev/full',
    "full errors": 'exec "$@" 2>/dev/full',
    "no temporary folder": 'TMPDIR=/nowhere; TEMP=/nowhere; TMP=/nowhere; export TMPDIR TEMP TMP; exec "$@"',
    "a folder for nothing": 'HOME=/nowhere; XDG_CACHE_HOME=/proc; export HOME XDG_CACHE_HOME; exec "$@"',
}


def opgen(root: Path, *arguments: str, shell: str = 'exec "$@"', options: Sequence[str] = ()) -> tuple[int, str]:
    """The exit code of a command, and what it wrote to the streams that it has."""
    command = ["sh", "-c", shell, "sh", sys.executable, *options, "-m", "opgen", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("condition", SHELL)
def test_commands_end_without_a_traceback(small: Project, condition: str, full: bool) -> None:
    """`check` in each condition, and every other command with --full."""
    for command in _COMMANDS if full else ("check",):
        code, output = opgen(small.root, command, *ARGUMENTS.get(command, ()), shell=SHELL[condition])
        assert "Traceback" not in output, f"{command}: {output}"
        assert "Exception ignored" not in output, f"{command}: {output}"
        assert code in (0, 1, 2), f"{command} ended with {code}: {output}"


def test_output_that_is_lost_is_no_success(small: Project) -> None:
    assert opgen(small.root, "list", shell=SHELL["full output"]) == (1, "No space left on device\n")


def test_nothing_that_opgen_writes_depends_on_docstrings(small: Project) -> None:
    """`python -OO` drops them."""
    (small.root / "spec/schema").mkdir()
    assert small.run("schema").exit_code == 0
    before = {path: path.read_bytes() for path in small.root.rglob("*") if path.is_file()}
    assert opgen(small.root, "schema", options=("-OO",)) == (0, "0 files changed\n")
    assert opgen(small.root, "generate", options=("-OO",)) == (0, "8 files, 0 changed\n")
    assert {path: path.read_bytes() for path in small.root.rglob("*") if path.is_file()} == before
    rules = "from opgen.comparison.rules import RULES; print([rule.doc for rule in RULES.values()])"
    shown = subprocess.check_output([sys.executable, "-OO", "-c", rules], text=True)
    assert shown == f"{[rule.doc for rule in RULES.values()]}\n"


@pytest.mark.parametrize("link", ["spec/functors/loop.yaml", "spec/loop", "templates/tallow/loop.py.j2", "generated"])
def test_links_that_lead_in_a_circle(small: Project, link: str) -> None:
    path = small.root / link
    if path.is_dir():
        path.rename(path.with_name("elsewhere"))
    path.symlink_to(os.path.relpath(path, path.parent))
    for command in ("check", "generate", "list"):
        result = small.run(command)
        assert isinstance(result.exception, SystemExit | None), result.exception
