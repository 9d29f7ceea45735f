"""`opgen watch` writes what a saved file changes, and no less than a process that begins anew."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from opgen.problem import SpecError
from opgen.project import read_project
from opgen.watch import Watcher

from .project import Project

EDITS = {
    "spec/package.yaml": ("max_rank: 8", "max_rank: 9"),
    "templates/tallow/limits.py.j2": ('"""Numbers that', '"""The numbers that'),
}
EDITS_OF_MANY = {
    "spec/functors/unary.yaml": ("formula: ceil(x)", "formula: ceil(x) * 1"),
    "spec/families/gpu.yaml": ("  index_add: sums.index_add\n", "  index_add: {unsupported: nobody wants it}\n"),
    "spec/storage/matmul.yaml": ("wrap, k = 0 gives zeros", "wrap, no k gives zeros"),
    "spec/kernels/copy.yaml": ("    first_tile: u32\n", "    first_tile: u32\n    another: u32\n"),
    "spec/dtypes.yaml": ("doc: signed 16-bit integer", "doc: short integer"),
}


def check_edits(project: Project, edits: dict[str, tuple[str, str]]) -> Watcher:
    watcher = Watcher(project.root)
    assert watcher.update(project.output)[1] == []
    for file, (find, replace) in edits.items():
        project.edit(file, find, replace)
        _, result = watcher.update(project.output, [project.root / file])
        assert result, file
    # Somebody who knows nothing of what was kept finds nothing to do.
    assert read_project(project.root).changes(project.output) == []
    return watcher


def test_each_edit_is_written_as_a_whole(small: Project) -> None:
    check_edits(small, EDITS)


@pytest.mark.slow
def test_what_is_kept_of_a_large_spec_is_right(few_ops: Project, full: bool) -> None:
    # A formula and what a family has of a method stand for the others, each of which takes two readings of the spec.
    watcher = check_edits(few_ops, dict(islice(EDITS_OF_MANY.items(), None if full else 2)))
    # What only moved is the same, and its errors are where it is now.
    file = few_ops.root / "spec/functors/unary.yaml"
    few_ops.edit("spec/functors/unary.yaml", "ops:\n", "ops:\n\n")
    assert watcher.update(few_ops.output, [file])[1] == []
    few_ops.edit("spec/functors/unary.yaml", "formula: exp(x)", "formula: exp(z)")
    with pytest.raises(SpecError) as saved:
        watcher.update(few_ops.output, [file])
    with pytest.raises(SpecError) as anew:
        read_project(few_ops.root)
    assert saved.value.problems == anew.value.problems


def test_an_error_writes_nothing_and_is_over_when_it_is_fixed(small: Project) -> None:
    watcher, before = Watcher(small.root), small.files()
    file = small.root / "spec/functors/unary.yaml"
    small.edit("spec/functors/unary.yaml", "formula: -x", "formula: -y")
    with pytest.raises(SpecError):
        watcher.update(small.output, [file])
    assert small.files() == before
    small.edit("spec/functors/unary.yaml", "formula: -y", "formula: -x")
    assert watcher.update(small.output, [file])[1] == []


@pytest.mark.parametrize("root", ["", ".", "link"])
def test_the_command_tells_what_changed_until_it_is_interrupted(
    small: Project, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a project that a relative path or a link leads to."""
    Path(small.root.parent, "link").symlink_to(small.root)
    monkeypatch.chdir(small.root if root == "." else small.root.parent)
    command = [sys.executable, "-u", "-m", "opgen", "watch", "--root", root or str(small.root)]
    # A shell that runs the tests in the background has it ignored.
    interruptible = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=interruptible) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("watching "):
                break
        small.edit("spec/package.yaml", "max_rank: 8", "max_rank: 9")
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith("spec/package.yaml: "):
                break
        process.send_signal(signal.SIGINT)
    assert "wrote generated/tallow/limits.py\n" in seen
    assert process.returncode == 0
    assert "MAX_RANK = 9" in Path(small.output, "tallow/limits.py").read_text(encoding="utf-8")
