"""The tests of refusals and of edges notice what is changed in the spec: run on a copy, each fails for each mutant.

A mutant changes one method, or one functor, and each of these has a test of its own. So a copy holds many mutants, and
is generated and tested once.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from .project import REPOSITORY, Project

pytestmark = pytest.mark.slow
# Kernels of a user's own have tests of their own, and the test runs on a CPU, which joins nothing with products.
LEFT_OUT = ("compile", "fwd_rms_norm", "fwd_silu_mul")


@dataclass(frozen=True)
class Mutant:
    """A line of the spec that is another one."""

    file: Path
    line: int  # from 0 on
    text: str
    subject: str  # the method or the functor
    what: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}"


def lines_of(file: Path) -> list[str]:
    return (REPOSITORY / file).read_text(encoding="utf-8").split("\n")


def entries(file: Path) -> Iterator[tuple[str, int, str]]:
    """The lines of a file with the method or the op that they belong to."""
    subject = ""
    for number, line in enumerate(lines_of(file)):
        if (key := re.match(r"  (\w+):", line)) is not None:
            subject = key[1]
        yield subject, number, line


def files(*folders: str) -> list[Path]:
    return [path.relative_to(REPOSITORY) for name in folders for path in sorted((REPOSITORY / "spec").glob(name))]


def mutants_of_methods() -> Iterator[Mutant]:
    """Checks that are deleted, operands that need not be alike any more, names that are swapped, errors."""
    for file in files("storage/*.yaml", "device.yaml"):
        for subject, number, line in entries(file):
            for what, text in changed(line) if subject not in LEFT_OUT else ():
                yield Mutant(file, number, text, subject, what)


def changed(line: str) -> Iterator[tuple[str, str]]:
    """What is done to a line of a method, and the other line."""
    key, _, remaining = line.strip().partition(": ")
    if key == "checks":
        checks = yaml.safe_load(remaining)
        for check in checks:
            saved = [other for other in checks if other != check]
            yield f"{check} is deleted", f"    checks: {json.dumps(saved)}" if saved else ""
    elif key == "errors":
        names = yaml.safe_load(remaining)
        for name in names:
            others = ["EmptyTensor" if other == name else other for other in names]
            yield f"{name} is another error", f"    errors: {json.dumps(others)}"
    elif key == "signature":
        yield from (("two parameters change their names", swapped) for swapped in swaps(line))
        # What is true or false in an example cannot be of another type.
        for actual in re.finditer(r"(\w+): int(?=[,)])", line):
            yield f"'{actual[1]}' is of type float", f"{line[: actual.end() - len('int')]}float{line[actual.end() :]}"
    elif re.match(r'- "\w+\(', line.strip()):
        yield f"{line.strip()} is deleted", ""
        for actual in re.finditer(r"(?<=, )\d+(?=[,)])", line):
            yield f"{actual[0]} is one less", f"{line[: actual.start()]}{int(actual[0]) - 1}{line[actual.end() :]}"
    elif "dtypes: same" in remaining:
        yield f"'{key}' may have any dtype", line.replace("dtypes: same", "dtypes: all")


def swaps(line: str) -> Iterator[str]:
    """A signature with the names of two parameters of one type that follow each other swapped."""
    for actual in re.finditer(r"(\w+): ([^,()]+(?:\[[^\]]*\])?), (\w+): \2(?=[,)])", line):
        yield line[: actual.start()] + f"{actual[3]}: {actual[2]}, {actual[1]}: {actual[2]}" + line[actual.end() :]


def mutants_of_edges() -> Iterator[Mutant]:
    """Edges that are not so."""
    for file in files("functors/*.yaml"):
        for subject, number, line in entries(file):
            if (result := re.search(r"edges: \{(.*?)\}(?=[,}]|$)", line)) is None:
                continue
            for edge in re.finditer(r"""("?)(\w+\([^"]*?\))\1: ([^,}]+)""", result[1]):
                start = result.start(1) + edge.start(3)
                text = line[:start] + negated(edge[3]) + line[result.start(1) + edge.end(3) :]
                yield Mutant(file, number, text, subject, f"{edge[2]} is not {edge[3]}")


def negated(value: str) -> str:
    if value == "nan":
        return "0.0"
    try:
        number = float(value)
    except ValueError:
        return value.removeprefix("-") if value.startswith("-") else f"-{value}"
    if number == 0 and "." not in value:
        return "1"
    return str(-number) if math.isfinite(number) else value.removeprefix("-") if number < 0 else f"-{value}"


def rounds(mutants: Iterable[Mutant]) -> list[list[Mutant]]:
    """The mutants in as few copies as hold at most one for each subject."""
    by_subject: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_subject[mutant.subject].append(mutant)
    most = max(map(len, by_subject.values()))
    return [[alike[index] for alike in by_subject.values() if index < len(alike)] for index in range(most)]


def survivors(root: Path, mutants: list[Mutant], test: str, *, is_generated: bool) -> list[str]:
    """The mutants that a test of the copy below `root` does not notice."""
    # NumPy does the work, and bytecode is of use as long as its module is the same.
    ignored = shutil.ignore_patterns("code")
    for folder in ("generated", "runtime", "templates", "starter", "spec", "tests/conformance"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=ignored, symlinks=True)
    for name in ("pyproject.toml", "tests/compilers.py", "tests/conftest.py", "tests/own_spec.py"):
        shutil.copy(REPOSITORY / name, root / name)
    for mutant in mutants:
        lines = (root / mutant.file).read_text(encoding="utf-8").split("\n")
        lines[mutant.line] = mutant.text
        (root / mutant.file).write_text("\n".join(lines), encoding="utf-8")
    if is_generated:
        Project(root).generate()
    python_path = os.pathsep.join(map(str, (root / "generated", root, REPOSITORY / "generator")))
    names = " or ".join(f"[{mutant.subject}]" for mutant in mutants)
    # What the dispatch does not refuse kernels would do; NumPy raises an error, and the process goes on.
    environment = {**os.environ, "PYTHONPATH": python_path, "TALLOW_THREADS": "0"}
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rf", "-k", names, f"tests/conformance/{test}"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 1, finished.stdout + finished.stderr
    # Where CI is set, pytest prints a failure's whole message after the test's name, brackets included.
    failed = set(re.findall(r"^FAILED \S+?\[(\w+)\]", finished.stdout, re.MULTILINE))
    return [str(mutant) for mutant in mutants if mutant.subject not in failed]


# What once survived: it was in the spec, and no test noticed that it was not any more.
ONCE: dict[str, Callable[[Mutant], bool]] = {
    "conv_transpose1d": lambda mutant: "deleted" in mutant.what,
    "cat": lambda mutant: "deleted" in mutant.what,
    "assign": lambda mutant: "may have" in mutant.what,
    "conv_transpose2d": lambda mutant: "may have" in mutant.what,
    "max_pool2d": lambda mutant: "change their names" in mutant.what,
    "set_seed": lambda mutant: "another error" in mutant.what,
    "broadcast": lambda mutant: "'root' is of type" in mutant.what,
    "adam_step": lambda mutant: "8 is one less" in mutant.what,
}


@pytest.mark.full
def test_refusals_that_are_not_in_the_spec_any_more_are_noticed(tmp_path: Path) -> None:
    chosen = {m.subject: m for m in mutants_of_methods() if m.subject in ONCE and ONCE[m.subject](m)}
    assert chosen.keys() == ONCE.keys()
    assert survivors(tmp_path, [*chosen.values()], "test_refusals.py", is_generated=True) == []


def test_edges_that_are_negated_are_noticed(tmp_path: Path) -> None:
    assert survivors(tmp_path, rounds(mutants_of_edges())[0], "test_edges.py", is_generated=False) == []


@pytest.mark.full
@pytest.mark.parametrize("place", range(len(rounds(mutants_of_methods()))))
def test_every_refusal_is_noticed(tmp_path: Path, place: int) -> None:
    mutants = rounds(mutants_of_methods())[place]
    assert survivors(tmp_path, mutants, "test_refusals.py", is_generated=True) == []


@pytest.mark.full
@pytest.mark.parametrize("place", range(1, len(rounds(mutants_of_edges()))))
def test_every_edge_is_noticed(tmp_path: Path, place: int) -> None:
    assert survivors(tmp_path, rounds(mutants_of_edges())[place], "test_edges.py", is_generated=False) == []
