"""C libraries that are called through ctypes, a module of each with its functions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any


def load(paths: Iterable[str | bytes], functions: Mapping[str, tuple[Any, ...]]) -> ctypes.CDLL | None:
    """The first library of the paths that is there; None where none is, or where it lacks a function.

    Of each function the type of the result comes first, then those of the arguments.
    """
    for path in paths:
        with suppress(OSError):
            library = ctypes.CDLL(os.fsdecode(path))
            break
    else:
        return None
    if not all(hasattr(library, name) for name in functions):
        return None
    for name, (result, *arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
