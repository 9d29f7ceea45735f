"""No text tells anyone to install opgen or tallow from an index: none has them, and anyone could register the names.

A clone is installed by its path, `pip install ./generated`, and messages name what a part needs: `pip install mlx`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from opgen.project import read_spec

from .project import REPOSITORY

# The packages that a clone has, and how templates and messages write the name of one.
OURS = r"opgen|tallow|mylib|<<\w+>>|\{+[^}]*\b(?:package\.name|base|name\.content|package_name)\b[^}]*\}+"
EXTRAS = "|".join(
    [
        *read_spec(REPOSITORY).package.extras,
        *(backend.extra for backend in read_spec(REPOSITORY).backends if backend.extra),
        *("lsp", "watch", "dev", "docs", "NAME", "extra"),
    ]
)
# What comes between the words of a command: options, other packages and the line break of a text in code.
BETWEEN = r"[ \t\"'\\]*(?:\n[ \t#f\"']*)?"
COMMAND = re.compile(rf"pip{BETWEEN} install\b{BETWEEN}(?:[^\s`;.,]+ ){{0,8}}?{BETWEEN}(?:{OURS})(?![\w./-])")
EXTRA = re.compile(rf"(?<![\w./-])(?:{OURS})\[(?:{EXTRAS})\]")
ALLOWED = {"tests/generator/test_install_commands.py"}


def tracked() -> list[Path]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    return [REPOSITORY / name for name in names if name not in ALLOWED and (REPOSITORY / name).is_file()]


def found_in(text: str) -> list[str]:
    return [match[0] for pattern in (COMMAND, EXTRA) for match in pattern.finditer(text)]


def test_no_text_installs_our_packages_by_name() -> None:
    wrong = {}
    for file in tracked():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if result := found_in(text):
            wrong[str(file.relative_to(REPOSITORY))] = result
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    [
        "    pip install tallow\n",
        "pip install opgen tallow",
        "run `pip install 'tallow[cpu]'`.",
        "`pip install tallow 'cuda-python==12.*'`",
        "pip install --upgrade tallow",
        "It needs watchfiles: pip install\n    'opgen[watch]'.",
        "f\"{error}; pip install 'tallow[{extra}]'\"",
        '"stands on it; pip install"\n    " tallow"',
        "pip install {{ view.package.name }}",
        "run 'pip install {name.content}'",
        "what tallow[cuda] needs",
    ],
)
def test_commands_that_name_them_are_found(text: str) -> None:
    assert found_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install ./generated",
        "pip install './generated[cuda]' installs tallow",
        "pip install . ./generated",
        "pip install tokenizers",
        "python -m pip install --editable ./generated",
        "pip install nvmath-python 'cuda-toolkit[cublas]==13.*'",
        "`pip install ./generated` installs `tallow` alone.",
    ],
)
def test_commands_that_anyone_can_run_are_not(text: str) -> None:
    assert found_in(text) == []
