"""Code objects: those that the spec requires, their sources, and those that are out of date."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from opgen.model.backends import Backend
from opgen.model.spec import Spec
from opgen.problem import Refusal

_INCLUDE = re.compile(rb'^#include "([^"]+)"', re.MULTILINE)
_CODE, _RECORD = ".co", ".json"


class CompileError(Refusal):
    """Nothing can be compiled; the message says what to do."""


@dataclass(frozen=True)
class CodeObject:
    """The kernels of one family, compiled for one target."""

    target: str
    family: str
    is_host: bool
    source: Path
    folders: tuple[Path, ...]  # of the headers
    sources: Mapping[str, str]  # the checksums of the source and of every header that it includes, by name
    file: Path

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.target}/{self.family}"

    @property
    def record(self) -> Path:
        """The file with the checksums of its sources and of itself, and the resources of its kernels."""
        return self.file.with_suffix(_RECORD)


def code_objects(spec: Spec, kernels: Path, headers: Iterable[Path], code: Path) -> tuple[CodeObject, ...]:
    """Return every code object that the spec requires, from the sources in `kernels`, in a folder of `code` per target.

    Headers are in all folders. CompileError where a source is missing.
    """
    folders = (kernels, *headers)
    # A family without kernels is what others are composed of at run time.
    families = [family for family in spec.kernels if family.kernels]
    sources = {family.name: kernels / f"{family.name}.{'cpp' if family.host else 'hip'}" for family in families}
    header = cache(partial(_header, folders))  # families share them
    checksums = {family: _checksums(source, header) for family, source in sources.items()}
    return tuple(
        CodeObject(
            target=target,
            family=family.name,
            is_host=family.host,
            source=sources[family.name],
            folders=folders,
            sources=checksums[family.name],
            file=code / target / f"{family.name}{_CODE}",
        )
        for backend in spec.backends
        if backend.code_objects is not None
        for target in backend.code_objects.targets
        for family in families
        if family.host == backend.code_objects.host and family.needs.keys() <= features(spec, backend, target)
    )


def features(spec: Spec, backend: Backend, name: str) -> AbstractSet[str]:
    """The features of a target that kernels may need."""
    return next((target.has.keys() for target in spec.targets.get(backend.name, ()) if target.name == name), set())


def _read(file: Path) -> tuple[str, Sequence[str]] | None:
    """The checksum of a file, and the names of those that it includes; None where it is missing."""
    if not file.is_file():
        return None
    content = file.read_bytes()
    return checksum(content), [name.decode() for name in _INCLUDE.findall(content)]


def _header(folders: Sequence[Path], name: str) -> tuple[str, Sequence[str]] | None:
    """Read a header; None if no folder has it, which the compiler reports."""
    return next((header for folder in reversed(folders) if (header := _read(folder / name)) is not None), None)


def _checksums(source: Path, header: Callable[[str], tuple[str, Sequence[str]] | None]) -> dict[str, str]:
    own = _read(source)
    if own is None:
        raise CompileError(f"{source} is missing; run 'opgen generate'")
    checksums = {source.name: own[0]}
    waiting = [*own[1]]
    while waiting:
        name = waiting.pop()
        if name not in checksums and (text := header(name)) is not None:
            checksums[name], included = text
            waiting += included
    return dict(sorted(checksums.items()))


def checksum(content: bytes) -> str:
    """Return a checksum of the content."""
    return hashlib.sha256(content).hexdigest()


def remove_orphans(every: Iterable[CodeObject], code: Path) -> None:
    """Remove from `code` what the spec no longer has, and what a killed run left, but nothing of other programs."""
    used = {file for code_object in every for file in (code_object.file, code_object.record)}
    for record in code.rglob(f"*{_RECORD}"):
        if _is_foreign(record):
            used |= {record, record.with_suffix(_CODE)}
    for file in sorted(code.rglob("*"), reverse=True):
        if file.is_dir() and not any(file.iterdir()):
            file.rmdir()
        elif file.is_file() and file not in used:
            file.unlink()


def _is_foreign(record: Path) -> bool:
    """Whether another program wrote a record: all of opgen's name the target."""
    try:
        content = json.loads(record.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "target" not in content


def out_of_date(every: Iterable[CodeObject]) -> list[CodeObject]:
    """Those of the targets that were compiled for here, whose own source or headers have changed since."""
    compiled = {code_object.target for code_object in every if code_object.record.is_file()}
    return [
        code_object
        for code_object in every
        if code_object.target in compiled and _recorded_sources(code_object) != code_object.sources
    ]


def remove_stale(code_objects: Iterable[CodeObject]) -> None:
    """Remove those that are out of date, which nothing loads."""
    for code_object in code_objects:
        if _recorded_sources(code_object) != code_object.sources:
            code_object.record.unlink(missing_ok=True)
            code_object.file.unlink(missing_ok=True)


def _recorded_sources(code_object: CodeObject) -> object:
    try:
        return json.loads(code_object.record.read_bytes()).get("sources")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
