"""The layout of emitted Python is that of `ruff format`: property tests against ruff itself, many samples a run."""

import ast
import keyword
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opgen.views.python import LINE_LENGTH, docstring, import_lines, in_triple_quotes, quoted, tuple_of, wrapped

from .project import REPOSITORY

SAMPLES = 200


def ruff(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ruff", *arguments, "--config", str(REPOSITORY / "pyproject.toml"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def formatted(text: str) -> str:
    result = ruff("format", text=text)
    assert result.returncode == 0, result.stderr
    return result.stdout


def word(rng: random.Random, longest: int = 14) -> str:
    name = "".join(rng.choice("abcdefghijklmnop_") for _ in range(rng.randint(1, longest))).strip("_") or "a"
    return f"{name}_" if keyword.iskeyword(name) else name


def test_signatures_are_formatted(tmp_path: Path) -> None:
    rng = random.Random(1)
    types = ["int", "Layout", "float | None", "tuple[int, int, int]", "tuple[int, ...]", "Self"]
    methods = []
    for number in range(SAMPLES):
        names = sorted({f"{word(rng)}{index}" for index in range(rng.randint(0, 9))})
        parameters = ["self", *(f"{name}: {rng.choice(types)}" for name in names)]
        head = f"def {word(rng)}{number}("
        tail = f") -> {rng.choice(['None', 'Self', 'tuple[Self, Shape]'])}:"
        methods.append(f"    {wrapped(head, parameters, tail, 4)}\n        pass\n")
    text = "class Sample:\n" + "\n".join(methods)
    assert formatted(text) == text


@pytest.mark.parametrize("indent", [0, 8, 16])
def test_calls_are_formatted(indent: int) -> None:
    rng = random.Random(indent)
    lines = []
    for _ in range(SAMPLES):
        items = [rng.choice([word(rng, 30), quoted(word(rng, 40))]) for _ in range(rng.randint(1, 8))]
        lines.append(" " * indent + wrapped(f"{word(rng)}(", items, ")", indent) + "\n")
    opening = "".join(f"{' ' * column}if True:\n" for column in range(0, indent, 4))
    text = opening + "".join(lines)
    assert formatted(text) == text


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
    assert formatted(text) == text
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
    assert formatted("".join(lines)) == "".join(lines)
    values = [ast.literal_eval(line[4:]) for line in lines]
    assert values == texts + [f"\n{text}\n" for text in texts]


def test_imports_are_sorted() -> None:
    rng = random.Random(3)
    for _ in range(8):
        modules = {
            f"{'.' * rng.randint(1, 2)}{word(rng)}": {
                rng.choice([word(rng), word(rng).title().replace("_", ""), word(rng).upper()])
                for _ in range(rng.randint(1, 9))
            }
            for _ in range(rng.randint(1, 6))
        }
        names = sorted({name for group in modules.values() for name in group})
        text = f"{import_lines(modules)}\n\n__all__ = {names!r}\n"
        result = ruff("check", "--select", "I", "--fix", "--stdin-filename", "package/inner/module.py", text=text)
        assert (result.returncode, result.stdout) == (0, text), result.stderr


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_characters="\x7f\x85"), max_size=30))
def test_a_quoted_text_means_itself(text: str) -> None:
    assert ast.literal_eval(quoted(text)) == text


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4))
def test_a_tuple_is_a_tuple(items: list[str]) -> None:
    node = ast.parse(tuple_of(items), mode="eval").body
    assert isinstance(node, ast.Tuple)
    assert [ast.unparse(element) for element in node.elts] == items
