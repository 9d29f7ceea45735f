"""New entries in files of a spec. They are put in as text, so that comments and lines stay as they are.

The complete addition is checked before any file is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from opgen.loader import Document, Value, parsed
from opgen.problem import Problem, Problems, Refusal, SpecError
from opgen.project import compose, read_files
from opgen.schema import with_modeline
from opgen.write import write_atomically


class Additions:
    """Additions to the spec of a project."""

    def __init__(self, root: Path) -> None:
        self._root = root
        problems = Problems()
        documents, self._sources = read_files(root, problems)
        if problems:
            raise SpecError(problems)
        self.documents: dict[Path, Document] = dict(documents)
        self.texts: dict[Path, str] = {}
        """The new texts of files."""

    def is_own(self, path: Path) -> bool:
        """Return True if a file of the spec belongs to the project, not to the package that it builds on."""
        return path in self.documents and self.documents[path].path == path

    def has(self, path: Path, *keys: str) -> bool:
        """Whether a file has an entry."""
        value: Value | None = self.documents[path].root if path in self.documents else None
        for key in keys:
            content = value.content if value is not None else None
            value = content.get(key) if isinstance(content, dict) else None
        return value is not None

    def entries(self, path: Path, key: str) -> Iterable[Value]:
        """The entries of a mapping of a file."""
        content = self.documents[path].root.content
        holder = content.get(key) if isinstance(content, dict) else None
        return holder.content.values() if holder is not None and isinstance(holder.content, dict) else ()

    def create(self, path: Path, text: str) -> None:
        """A new file; Refusal where it is there already."""
        if self.is_own(path):
            raise Refusal(f"{path.as_posix()} is there already; choose another name, or remove it")
        self._put(path, with_modeline(self._root, path, text))

    def append(self, path: Path, keys: Sequence[str], lines: Sequence[str]) -> None:
        """Insert lines after the entries of the mapping that `keys` lead to, with the same indentation.

        The last of the keys is written where it is missing.
        """
        document = self.documents[path]
        text = self.texts.get(path)
        if text is None:
            text = (self._root / path).read_text(encoding="utf-8")
        *outer, last = keys
        holder = _mapping(document, document.root, outer)
        value = holder.get(last)
        if value is None:
            self._put(path, f"{text.rstrip()}\n\n{last}:\n" + "".join(f"  {line}".rstrip() + "\n" for line in lines))
            return
        _mapping(document, document.root, keys)
        own = text.splitlines()
        start, indentation = value.location.line - 1, value.location.column - 1
        if own[start][indentation : indentation + 1] in ("{", "*") or value.location.line == value.key_location.line:
            message = f"'{last}' is written in one line; write each of its entries in a line of its own"
            raise SpecError([Problem(value.location, message)])
        end = start + 1
        for number, line in enumerate(own[start:], start):
            depth = len(line) - len(line.lstrip())
            if line.strip() and depth < indentation:
                break
            if line.strip():
                end = number + 1
        new = [" " * indentation + line if line else "" for line in lines]
        self._put(path, "\n".join([*own[:end], *new, *own[end:]]) + "\n")

    def add_item(self, path: Path, keys: Sequence[str], item: str) -> None:
        """Put an item first in the list that `keys` lead to, unless it is there."""
        *outer, last = keys
        value = _mapping(self.documents[path], self.documents[path].root, outer)[last]
        if not isinstance(value.content, list) or item in [each.content for each in value.content]:
            return
        text = self.texts.get(path)
        own = ((self._root / path).read_text(encoding="utf-8") if text is None else text).splitlines()
        row, column = value.location.line - 1, value.location.column - 1
        if own[row][column] == "[":
            own[row] = f"{own[row][: column + 1]}{item}, {own[row][column + 1 :]}"
        else:
            own.insert(row, f"{' ' * column}- {item}")
        self._put(path, "\n".join(own) + "\n")

    def write(self) -> None:
        """Write the files; SpecError if the spec would have an error then, and then nothing is written."""
        compose(self._root, self.documents, self._sources, [])
        for path, text in self.texts.items():
            # A link stays one, and so do the ends of lines.
            file = (self._root / path).resolve()
            try:
                if file.is_file() and b"\r\n" in file.read_bytes():
                    text = text.replace("\n", "\r\n")
                write_atomically(file, text.encode())
            except OSError as error:
                raise Refusal(f"{path.as_posix()} cannot be written: {error.strerror}; let it be written") from None

    def _put(self, path: Path, text: str) -> None:
        document, problems = parsed(text, path)
        if document is None or problems:
            raise SpecError(problems)
        self.documents[path], self.texts[path] = document, text


def _mapping(document: Document, value: Value, keys: Sequence[str]) -> Mapping[str, Value]:
    """The mapping that keys lead to; SpecError where there is none."""
    for key in keys:
        content = value.content
        child = content.get(key) if isinstance(content, dict) else None
        if child is None:
            raise SpecError([Problem(value.location, f"key '{key}' is missing in {document.path.as_posix()}; add it")])
        value = child
    if not isinstance(value.content, dict):
        raise SpecError([Problem(value.location, "it must be a mapping; write it as 'key: value' lines")])
    return value.content
