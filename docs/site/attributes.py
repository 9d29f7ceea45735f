"""The texts below attributes in the source of a class, which Python does not keep."""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path


def docstring_of(owner: type, attribute: str) -> str:
    """The text below an attribute of a class or of a base; empty where there is none."""
    return next((text for each in owner.__mro__ if (text := _texts(each).get(attribute))), "")


@cache
def _texts(owner: type) -> dict[str, str]:
    texts: dict[str, str] = {}
    for statement, below in pairwise(_body(owner)):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(target, ast.Name):
            texts[target.id] = inspect.cleandoc(str(below.value.value))
    return texts


def _body(owner: type) -> list[ast.stmt]:
    """The statements of a class, whichever module it says that it is of: public ones say the package."""
    package = owner.__module__.partition(".")[0]
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if file and name.partition(".")[0] == package and vars(module).get(owner.__name__) is owner:
            for statement in _statements(file):
                if isinstance(statement, ast.ClassDef) and statement.name == owner.__name__:
                    return statement.body
    return []


@cache
def _statements(file: str) -> list[ast.stmt]:
    return ast.parse(Path(file).read_text(encoding="utf-8")).body
