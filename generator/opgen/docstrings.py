"""Docstrings that opgen writes to files: also under `python -OO`, which removes them from classes and functions."""

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any


def docstring_of(thing: type | Callable[..., Any]) -> str:
    """The docstring of a class or a function at the top of a module."""
    if sys.flags.optimize < 2:
        return inspect.getdoc(thing) or ""
    return _docstrings(inspect.getfile(thing)).get(thing.__name__, "")


@cache
def _docstrings(file: str) -> Mapping[str, str]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    definitions = (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    return {node.name: ast.get_docstring(node) or "" for node in definitions}


def sentence(text: str) -> str:
    """`text` as a sentence; the name of an operand, of one letter, keeps its case, and so does a formula."""
    word = text.partition(" ")[0].rstrip(",")
    first = text if (len(word) == 1 and word != "a") or "(" in word else f"{text[:1].upper()}{text[1:]}"
    return f"{first}."
