"""Where what a name means is defined, where it is used, and what a new name changes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opgen.folders import HEADERS
from opgen.language_server.index import Span, Thing
from opgen.language_server.workspace import PYTHON_KINDS, Workspace
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.notes import module_name
from opgen.problem import Location, lines_of, one_line

# What has the name of its file.
_FILES = ("kind", "family", "backend")
_NAMES = {"struct": r"[A-Za-z_]\w*", "target": r"[a-z][a-z0-9_.-]*"}
_GENERATED = "generated"


class CannotRename(Exception):
    """The text at a position is no name that can be renamed; the message says why."""


def definitions(workspace: Workspace, path: Path, line: int, column: int) -> list[Span]:
    """Return the definitions of the name at a position; for an op or its cells also the branches."""
    word = workspace.index.at(path, line, column)
    if word is None:
        return []
    spans = []
    for kind in word.kinds:
        if kind == "header":
            spans += [Span(Path(HEADERS / word.text), 1, 1, 1)]
        elif kind in PYTHON_KINDS:
            targets = workspace.defined_in_python(kind, word.text, path)
            spans += [Span(target.path, target.line, 1, 1) for target in targets]
    thing = workspace.index.meaning(word)
    if thing is not None:
        own = workspace.index.definitions[thing]
        is_cell = path.parent.name in ("families", "backends")
        if thing.kind in ("op", "method") and (own == word.span or is_cell):
            spans += _branches(workspace, thing, path)
        if own != word.span:
            spans.append(own)
    return spans


def uses(workspace: Workspace, path: Path, line: int, column: int) -> list[Span]:
    """Return the uses of the name at a position."""
    word = workspace.index.at(path, line, column)
    thing = None if word is None else workspace.index.meaning(word)
    return [] if thing is None else list(workspace.index.uses(thing))


def renamable(workspace: Workspace, path: Path, line: int, column: int) -> Span:
    """Return the name at a position, if it can be changed."""
    word = workspace.index.at(path, line, column)
    thing = None if word is None else workspace.index.meaning(word)
    if word is None or thing is None:
        raise CannotRename("no name that the spec defines is here")
    if thing.kind in _FILES:
        raise CannotRename(f"'{thing.name}' is the name of a file; rename the file, and change what uses the name")
    return word.span


def renamed(workspace: Workspace, path: Path, line: int, column: int, name: str) -> Mapping[Path, Sequence[Span]]:
    """Return the spans that a new name changes, by file."""
    renamable(workspace, path, line, column)
    word = workspace.index.at(path, line, column)
    thing = None if word is None else workspace.index.meaning(word)
    assert thing is not None
    if thing.kind not in _NAMES:
        for flaw in module_name(None, name):
            raise CannotRename(one_line(flaw))
    elif not re.fullmatch(_NAMES[thing.kind], name):
        raise CannotRename(f"'{one_line(name)}' cannot be a name; use small letters, digits and underscores")
    if Thing(thing.kind, name, thing.scope) in workspace.index.definitions:
        raise CannotRename(f"the name '{name}' is taken; choose another one")
    by_file: dict[Path, list[Span]] = {}
    for span in dict.fromkeys(workspace.index.uses(thing)):
        if Location(span.path).is_of_base:
            raise CannotRename(f"'{thing.name}' stands in {span.path.as_posix()}, which is not part of the project")
        by_file.setdefault(span.path, []).append(span)
    texts = {file: _replaced(workspace.text(file), spans, name) for file, spans in by_file.items()}
    for problem in workspace.new_problems(texts):
        raise CannotRename(problem.message)
    return by_file


def _replaced(text: str, spans: Sequence[Span], name: str) -> str:
    """Return a text with a new name at some spans."""
    lines = lines_of(text, keep_ends=True)
    for span in sorted(spans, key=lambda span: (span.line, span.start), reverse=True):
        line = lines[span.line - 1]
        lines[span.line - 1] = f"{line[: span.start - 1]}{name}{line[span.end - 1 :]}"
    return "".join(lines)


def _branches(workspace: Workspace, thing: Thing, path: Path) -> Iterator[Span]:
    """The branches of an op in the package: of the backends that a file of cells is for, or the method of all."""
    spec = workspace.spec
    if spec is None:
        return
    folder = Path(_GENERATED, spec.package.name)
    storage = sorted((workspace.root / folder / "storage").glob("*.py"))
    for method in spec.methods:
        if method.name == thing.name or thing.name in (method.functor, *spec.ops(method)):
            files = [workspace.root / folder / "device.py"] if method in spec.device_methods else storage
            for file in files:
                yield from _branches_in(workspace, file.relative_to(workspace.root), method, _prefixes(spec, path))


def _prefixes(spec: Spec, path: Path) -> list[str]:
    """Return the class prefixes of the backends that a file of cells is for."""
    family_files = {backend.name: family.path for backend in spec.backends if (family := spec.family_of(backend))}
    return [backend.class_prefix for backend in spec.backends if path in (backend.path, family_files.get(backend.name))]


def _branches_in(workspace: Workspace, file: Path, method: Method, prefixes: Sequence[str]) -> Iterator[Span]:
    lines = workspace.lines(file)
    start = next((number for number, line in enumerate(lines, 1) if line.startswith(f"    def {method.name}(")), None)
    if start is None:
        return
    is_inside = False
    for number, line in enumerate(lines[start:], start + 1):
        if line.startswith("    def "):
            break
        if re.match(r"\s+case ", line) and any(
            f"{prefix}Storage" in line or f"{prefix}Device" in line for prefix in prefixes
        ):
            is_inside = True
            yield Span(file, number, len(line) - len(line.lstrip()) + 1, len(line) + 1)
    if not is_inside:
        yield Span(file, start, 9, 9 + len(method.name))
