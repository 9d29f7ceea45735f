"""Functions whose text is written for a program, where tracebacks, debuggers and profilers find it."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final

_numbers: Final = itertools.count(1)


def define(text: str, name: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function that a text defines, whose global names are these."""
    return FunctionType(_code(text, name), names)


# Programs of one kind differ in their constants alone.
@lru_cache(maxsize=1024)
def _code(text: str, name: str) -> CodeType:
    file = f"<tallow program {next(_numbers)}: {name}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return next(part for part in compile(text, file, "exec").co_consts if isinstance(part, CodeType))
