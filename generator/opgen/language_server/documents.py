"""Documents as the protocol has them: their URIs, their lines, and how columns are counted in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.workspace import TextDocument

from opgen.problem import lines_of

# Of each encoding that editors may choose, Python's name without a mark of the byte order, and the bytes of a unit.
_ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def path_of(uri: str) -> Path | None:
    """The file that a URI means; None of a document that is no file, such as `git:` and `untitled:`."""
    parts = urlparse(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def line_at(lines: Sequence[str], number: int) -> str:
    """Return a line, counted from 1; an empty one past the end."""
    return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass(frozen=True)
class Columns:
    """Columns as an editor counts them: from 0, in units of an encoding, while opgen's count characters from 1."""

    encoding: str

    def to_units(self, line: str, column: int) -> int:
        """The editor's column of opgen's."""
        name, size = _ENCODINGS[self.encoding]
        return len(line[: column - 1].encode(name)) // size

    def from_units(self, line: str, units: int) -> int:
        """Return opgen's column for the editor's, at most the end of the line."""
        name, size = _ENCODINGS[self.encoding]
        return len(line.encode(name)[: units * size].decode(name, "ignore")) + 1

    def range(self, lines: Sequence[str], line: int, start: int, end: int) -> types.Range:
        """Part of a line."""
        text = line_at(lines, line)
        begin = types.Position(line - 1, self.to_units(text, start))
        return types.Range(begin, types.Position(line - 1, max(begin.character, self.to_units(text, end))))


class Document(TextDocument):
    """A document whose lines end where the protocol says: pygls's own end at U+2028 and others too."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their ends."""
        *complete, last = lines_of(self.source, keep_ends=True)
        return (*complete, last) if last else complete
