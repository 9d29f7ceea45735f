"""docs/amd.md names the targets of the spec, messages and variables that the code has, and commands that run."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
from functools import cache
from pathlib import Path

import own_spec
import pytest
import tallow as tl
from tallow.compilers import rocm as compiler
from tallow.doctor.__main__ import main as doctor
from tallow.drivers import rocm as driver
from tallow.selftest import main as selftest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/amd.md").read_text(encoding="utf-8")
# Messages of ROCm and of the shell, and not of tallow.
FOREIGN = ("rocBLAS error", "doctor", "Aborted", "Segmentation fault")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _text_of(part: ast.expr) -> str:
    """A part of an f-string as it stands; a line break, which no message has, for any value but a table's NAME."""
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=ast.Attribute(attr="NAME")):
            return "{NAME}"
    return "\n"


@cache
def texts() -> tuple[str, ...]:
    """Every text in the sources of the runtime, and f-strings with each NAME in the tables of rocm."""
    names = [driver.NAME, compiler.NAME]
    results: list[str] = []
    for path in (ROOT / "runtime").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                results.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [_text_of(part) for part in node.values]
                if "{NAME}" in parts:
                    results += ["".join(parts).replace("{NAME}", name) for name in names]
    return tuple(results)


def test_the_targets_are_those_of_the_spec() -> None:
    targets = [target for target in own_spec.read().targets["rocm"] if not target.at_run_time]
    facts = [[each.name, str(each.wave_size), each.matrix_cores or "none"] for each in targets]
    assert [[target, lanes, kind.lower()] for target, _, lanes, kind in rows("Which GPUs")] == facts


def test_every_message_is_one_that_the_code_has() -> None:
    messages = [message for row in rows("When it fails") for message in re.findall(r"`([^`]+)`", row[0])]
    assert len(messages) > 15
    for message in messages:
        if not message.startswith(FOREIGN):
            # Names, numbers and paths are the values of an f-string.
            words = re.split(r"\.\.\.|\S*[=\d]\S*|/\S+", message)
            parts = [word.strip() for word in words if len(word.strip()) > 3]
            assert parts and all(any(part in text for text in texts()) for part in parts), message


def test_the_variables_are_read() -> None:
    variables = [row[0].strip("`") for row in rows("Environment variables")]
    assert variables
    ours = {text for text in texts() if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", text)}
    # hip-python and ROCm read these.
    assert {*variables} - {"NCCL_DEBUG"} <= ours


def test_the_commands_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"python -m tallow\.(doctor|selftest)([^`#\n]*)", PAGE)
    assert {name for name, _ in commands} == {"doctor", "selftest"}
    for name, arguments in commands:
        with pytest.raises(SystemExit) as caught:
            {"doctor": doctor, "selftest": selftest}[name]([*shlex.split(arguments), "--help"])
        assert caught.value.code == 0
    capsys.readouterr()


def test_the_session_gives_what_it_shows() -> None:
    if not tl.Device.is_available("rocm"):
        pytest.skip("no HIP runtime")
    (session,) = re.findall(r"```pycon\n(.*?)```", PAGE, re.DOTALL)
    test = doctest.DocTestParser().get_doctest(session, {}, "amd", "docs/amd.md", 0)
    assert doctest.DocTestRunner().run(test).failed == 0
