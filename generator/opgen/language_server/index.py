"""The names of a spec: where each is defined, and where it is used."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from opgen.dtypes import SETS
from opgen.formats import FORMAT_SETS
from opgen.language_server.tree import Node, Steps, nodes_of
from opgen.loader import Document
from opgen.problem import lines_of
from opgen.report import end_column

# The kinds of names that are known in their own file alone, or in an entry of it.
_OF_FILE = ("struct", "state")
_OF_ENTRY = "local"
# Files are named by others after their stems.
_FILES = {"functors": "kind", "families": "family", "backends": "backend"}

Scope = tuple[Path | str | int, ...]


@dataclass(frozen=True)
class Span:
    """Part of a line; line and columns count from 1, and `end` is the column after it."""

    path: Path
    line: int
    start: int
    end: int

    def holds(self, line: int, column: int) -> bool:
        """Return True if a position is in it, or at its end."""
        return self.line == line and self.start <= column <= self.end


@dataclass(frozen=True)
class Word:
    """A word that is, or may be, a name."""

    text: str
    kinds: Sequence[str]  # the first of which something is called so
    span: Span
    steps: Steps
    is_definition: bool


@dataclass(frozen=True)
class Thing:
    """The meaning of a name: its kind, its name and its scope."""

    kind: str
    name: str
    scope: Scope


@dataclass
class Index:
    """The names of all files."""

    words: dict[Path, Sequence[Word]] = field(default_factory=dict)
    definitions: dict[Thing, Span] = field(default_factory=dict)

    def meaning(self, word: Word) -> Thing | None:
        """Return the meaning of a word, if it is a name of the spec."""
        things = (_thing(kind, word) for kind in word.kinds)
        return next((thing for thing in things if thing in self.definitions), None)

    def at(self, path: Path, line: int, column: int) -> Word | None:
        """Return the word at a position."""
        return next((word for word in self.words.get(path, ()) if word.span.holds(line, column)), None)

    def uses(self, thing: Thing) -> Iterator[Span]:
        """Where a name stands, its definition included."""
        for words in self.words.values():
            for word in words:
                if word.text == thing.name and self.meaning(word) == thing:
                    yield word.span

    def names(self, kinds: Iterable[str], path: Path, steps: Steps) -> Iterator[Thing]:
        """Yield the names that may stand at a position in a file."""
        for kind in kinds:
            if kind == "set":
                yield from (Thing(kind, name, ()) for name in (*SETS, *FORMAT_SETS, "same", "op"))
            yield from (
                thing for thing in self.definitions if thing.kind == kind and thing.scope == _scope(kind, path, steps)
            )


def index_of(documents: Mapping[Path, Document], texts: Mapping[Path, str]) -> Index:
    """The index of the files of a spec."""
    index = Index()
    for path, document in documents.items():
        words = _words(document, texts[path])
        index.words[path] = words
        for word in words:
            if word.is_definition:
                index.definitions.setdefault(_thing(word.kinds[0], word), word.span)
        kind = _FILES.get(path.parent.name)
        if kind is not None:
            index.definitions[Thing(kind, path.stem, ())] = Span(path, 1, 1, 1)
    return index


def _thing(kind: str, word: Word) -> Thing:
    return Thing(kind, word.text, _scope(kind, word.span.path, word.steps))


def _scope(kind: str, path: Path, steps: Steps) -> Scope:
    return (path,) if kind in _OF_FILE else (path, *steps[:2]) if kind == _OF_ENTRY else ()


@lru_cache(maxsize=1024)
def _words(document: Document, text: str) -> Sequence[Word]:
    """The words of a file that may be names."""
    lines = lines_of(text)
    words = []
    for node in nodes_of(document):
        for keyword in ("x-defines", "x-names"):
            for shape, kinds in node.kinds(keyword) if node.text is not None else ():
                for span, word in _matches(node, lines, shape["x-token"]):
                    words.append(Word(word, kinds, span, node.steps, keyword == "x-defines"))
    return words


def _matches(node: Node, lines: Sequence[str], token: str) -> Iterator[tuple[Span, str]]:
    """The words of a text where they stand in the file."""
    location = node.location
    for number, start, raw in _written(node, lines):
        for match in re.finditer(token, raw):
            column = start + match.start()
            yield Span(location.path, number, column, column + len(match[0])), match[0]


def _written(node: Node, lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The lines of a text as they are written, each with its number and first column."""
    location = node.location
    line = lines[location.line - 1] if location.line <= len(lines) else ""
    if node.value is not None and line[location.column - 1 : location.column] in ("|", ">"):
        margin = len(line) - len(line.lstrip())
        for number in range(location.line, len(lines)):
            below = lines[number]
            if below.strip() and len(below) - len(below.lstrip()) <= margin:
                return
            yield number + 1, 1, below
        return
    end = end_column(line, location.column)
    is_quoted = line[location.column - 1 : location.column] in ("'", '"')
    yield location.line, location.column + is_quoted, line[location.column - 1 + is_quoted : end - 1 - is_quoted]
