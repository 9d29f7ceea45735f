"""Emitted Python is laid out by ruff, and texts of the spec stand in it as they are: property tests, many samples."""

import ast
import keyword
import random
import re
import tempfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opgen.format import FormatError, formatted
from opgen.views.python import LINE_LENGTH, comment, docstring, in_triple_quotes, quoted

SAMPLES = 200


MODULE = PurePosixPath("package/module.py")


def laid_out(text: str) -> str:
    return formatted({MODULE: text})[MODULE]


def word(rng: random.Random, longest: int = 14) -> str:
    name = "".join(rng.choice("abcdefghijklmnop_") for _ in range(rng.randint(1, longest))).strip("_") or "a"
    return f"{name}_" if keyword.iskeyword(name) else name


def test_modules_are_laid_out_and_what_is_no_python_is_left_as_it_is() -> None:
    text = """
from typing import TYPE_CHECKING, Final
from .b import (C, B, unused)
from .a import A
import os

if TYPE_CHECKING:
    from .d import D

__all__ = [ 'B', "A", "C" ]
NUMBERS : Final = (1,
2)
"""
    texts = {MODULE: text, PurePosixPath("README.md"): "a  =  1\n"}
    assert formatted(texts) == {
        MODULE: """from typing import Final

from .a import A
from .b import B, C

__all__ = ["A", "B", "C"]
NUMBERS: Final = (1, 2)
""",
        PurePosixPath("README.md"): "a  =  1\n",
    }
    assert laid_out(laid_out(text)) == laid_out(text)


def test_settings_of_the_folder_and_the_person_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ruff.toml").write_text("line-length = 60\n[format]\nquote-style = 'single'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    line = f'x = "{"a" * 60}", "{"b" * 20}"\n'
    assert laid_out(line) == line
    assert [path.name for path in tmp_path.iterdir()] == ["ruff.toml"]


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(FormatError, match=r"ruff cannot format what was emitted: .*; report this"):
        laid_out("x = (\n")


def test_docstrings_are_formatted() -> None:
    """With quotes and backslashes anywhere, and they mean what they are made of."""
    rng = random.Random(2)
    functions, texts = [], []
    for number in range(2 * SAMPLES):
        marks = rng.choice([[""], ["", "", '"', "'", '""', '"""', "\\", '\\"', "\\n"]])
        paragraphs = [
            " ".join(rng.choice(marks) + word(rng) + rng.choice(marks) for _ in range(rng.randint(1, 60)))
            + rng.choice(marks)
            for _ in range(rng.randint(1, 3))
        ]
        texts.append("\n\n".join(paragraphs))
        functions.append(f"def function_{number}() -> None:\n    {docstring(texts[-1], 4)}\n")
    text = "\n\n".join(functions)
    assert laid_out(text) == text
    assert max(map(len, text.splitlines())) <= LINE_LENGTH
    for function, expected in zip(ast.parse(text).body, texts, strict=True):
        assert isinstance(function, ast.FunctionDef)
        assert " ".join((ast.get_docstring(function) or "").split()) == " ".join(expected.split())


def test_texts_are_formatted() -> None:
    rng = random.Random(4)
    texts = [
        "".join(rng.choice(["a", " ", '"', "'", "\\", "\\n", '"""']) for _ in range(rng.randint(0, 9)))
        for _ in range(SAMPLES)
    ]
    lines = [f"x = {quoted(text)}\n" for text in texts]
    lines += [f'y = """\n{in_triple_quotes(text)}\n"""\n' for text in texts]
    assert laid_out("".join(lines)) == "".join(lines)
    values = [ast.literal_eval(line[4:]) for line in lines]
    assert values == texts + [f"\n{text}\n" for text in texts]


def test_comments_are_formatted() -> None:
    rng = random.Random(5)
    texts = [" ".join(word(rng) for _ in range(rng.randint(1, 60))) for _ in range(SAMPLES)]
    text = "".join(f"if x:\n    {comment(each, 4)}\n    y = 1\n" for each in texts)
    assert laid_out(text) == text
    assert max(map(len, text.splitlines())) <= LINE_LENGTH
    assert " ".join(re.findall(r"# (.*)", text)) == " ".join(texts)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_characters="\x7f\x85"), max_size=30))
def test_a_quoted_text_means_itself(text: str) -> None:
    assert ast.literal_eval(quoted(text)) == text
