"""Code objects that `opgen compile` builds from the package's kernels."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..helpers.checksum import sha256

SOURCES: Final = Path(sys.modules[__name__.partition(".")[0]].__path__[0], "kernels")
"""Where the kernels are, and the headers that follow from the spec."""
HEADERS: Final = tuple(map(Path, sys.modules[str(__package__)].__path__))
"""Where the other headers are: first those of a project that builds on a package, then those of the package."""


def source(name: str) -> Path:
    """Where a source or a header is."""
    paths = [folder / name for folder in (SOURCES, *HEADERS)]
    return next(filter(Path.is_file, paths), paths[-1])


def path_of(target: str, family: str) -> Path:
    """Where the code object of a family of kernels is."""
    return SOURCES / "code" / target / f"{family}.co"


class Checksums(dict[str, str]):
    """The checksums of sources and headers by name, each of which is read once."""

    def __missing__(self, name: str) -> str:
        checksum = self[name] = _checksum(source(name).read_bytes())
        return checksum


def recorded(path: Path, checksums: Checksums) -> str | None:
    """Return the checksum of a code object that was built from the present sources by the record next to it, else None.

    Kernels of older sources may take other structs. Code objects that include the same headers share `checksums`.
    """
    import json  # most programs need none of it

    try:
        record = json.loads(path.with_suffix(".json").read_bytes())
        is_current = record["sources"] == {name: checksums[name] for name in record["sources"]}
        return str(record["code"]) if is_current and path.is_file() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def intact(path: Path, checksum: str | None) -> bytes | None:
    """Return a code object if it has this checksum, else None."""
    try:
        code = path.read_bytes()
    except OSError:
        return None
    return code if _checksum(code) == checksum else None


def current(path: Path, checksums: Checksums | None = None) -> bytes | None:
    """Return a code object if it is complete and was built from the present sources, else None."""
    return intact(path, recorded(path, Checksums() if checksums is None else checksums))


def sources(name: str) -> dict[str, str]:
    """The texts of a source and of every header that it includes, by name. OSError where one is missing."""
    texts: dict[str, str] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = source(name).read_text(encoding="utf-8")
            waiting.extend(_included(texts[name]))
    return texts


def _included(text: str) -> Iterable[str]:
    # As opgen finds them.
    return re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)


def _checksum(content: bytes) -> str:
    return sha256(content).hex()
