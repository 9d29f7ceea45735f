"""Stage 1: YAML files to plain values that know their line and column."""

import hashlib
import math
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import yaml

from opgen.cache.memo import memoize
from opgen.folders import walk
from opgen.problem import Location, Problem, lines_of
from opgen.yaml_errors import diagnose, find_conflict

Scalar = str | int | float | bool | None


# libyaml's parser is ten times faster; PyYAML's own gives the same nodes where libyaml is missing.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML with the core schema of version 1.2: PyYAML's own 1.1 reads 010 as 8, 1:30 as 90, on as true."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


# By its tag, the plain scalars of a type, what these may begin with, and how their text is read.
_TAG = "tag:yaml.org,2002:"
_CORE_SCHEMA: Mapping[str, tuple[str, str, Callable[[str], Scalar]]] = {
    "null": ("~|null|Null|NULL|", "~nN", lambda _: None),
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789", lambda text: _integer(text)),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
        lambda text: float(re.sub(r"\.(?=[a-zA-Z])", "", text)),
    ),
    "str": ("(?!)", "", str),
}
for _name, (_pattern, _first, _) in _CORE_SCHEMA.items():
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), [*_first, *[""] * (_name == "null")])
# Version 1.1, which libyaml implements, ends lines at these too; editors and version 1.2 do not.
_LINE_ENDS_OF_OLD = re.compile("[\x85\u2028\u2029]")
# Aliases of aliases grow like powers; no file that a person writes comes near.
_MAX_VALUES = 100_000
_TOO_DEEP = "brackets or lists stand too deep inside each other; close them"


@dataclass(frozen=True)
class Value:
    """A value of a spec file: a scalar, a list of values, or a mapping of names to values."""

    location: Location
    content: "Scalar | list[Value] | dict[str, Value]"
    # The location of the key that leads to this value; the value's own location for the elements of a list.
    key_location: Location
    is_quoted: bool = False

    @cached_property
    def digest(self) -> bytes:
        """A digest of locations, texts and types, in which 1 is neither true nor 1.0."""
        hasher = hashlib.sha256(f"{self.location.line} {self.location.column} {self.is_quoted} ".encode())
        match self.content:
            case dict() as entries:
                hasher.update(b"{")
                for key, value in entries.items():
                    location = value.key_location
                    hasher.update(f"{key!r} {location.line} {location.column} ".encode() + value.digest)
            case list() as elements:
                hasher.update(b"[" + b"".join(element.digest for element in elements))
            case scalar:
                hasher.update(repr(scalar).encode())
        return hasher.digest()

    @property
    def type_name(self) -> str:
        """The name of the value's type in messages."""
        names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "an integer"}
        if self.content is None:
            return "nothing"
        return names.get(type(self.content), "a number")


@dataclass(frozen=True, eq=False)
class Document:
    """One spec file: its path relative to the project, and the mapping that it holds.

    A file that is read again without a change is the same document.
    """

    path: Path
    root: Value
    text: str = ""

    def __getstate__(self) -> dict[str, object]:
        # The decoded record is cached, and the value has many parts.
        return {"path": self.path, "text": self.text}

    def __getattr__(self, name: str) -> object:
        """The mapping again, of a document that another process has read."""
        if name != "root":
            raise AttributeError(name)
        object.__setattr__(self, "root", _parse(self.text, self.path, []))
        return self.root

    @property
    def stem(self) -> str:
        """The file's name without its ending, which names a family, a functor kind or a backend."""
        return self.path.stem


def load(
    root: Path, problems: list[Problem], unsaved: Mapping[Path, str] = MappingProxyType({})
) -> dict[Path, Document]:
    """Read every `spec/**/*.yaml` below `root`; what cannot be read goes to `problems` and is left out.

    `unsaved` has texts instead of those of files, by their paths below `root`.
    """
    documents = {}
    for path in sorted({*_files(root, problems), *(root / path for path in unsaved)}):
        relative = path.relative_to(root)
        if path.suffix != ".yaml":
            problems.append(
                Problem(Location(relative), f"a file of the spec ends in .yaml; rename it {path.stem}.yaml")
            )
            continue
        if relative in unsaved:
            problem = find_conflict(unsaved[relative], Location(relative))
            problems += [problem] if problem is not None else []
            document = None if problem is not None else _parsed(unsaved[relative], relative, problems)
        else:
            document = load_file(path, relative, problems)
        if document is not None:
            documents[relative] = document
    return documents


@memoize(lambda text, path: (text, path), size=1024)
def parsed(text: str, path: Path) -> tuple[Document | None, Sequence[Problem]]:
    """Return the content of a file, and its errors."""
    problems: list[Problem] = []
    value = _parse(text, path, problems)
    return (None if value is None else Document(path, value, text)), problems


def load_file(file: Path, shown: Path, problems: list[Problem]) -> Document | None:
    """A file of a spec, which messages call `shown`; None where it cannot be read, which goes to `problems`."""
    text = read_text(file, shown, problems)
    return None if text is None else _parsed(text, shown, problems)


def _parsed(text: str, shown: Path, problems: list[Problem]) -> Document | None:
    document, errors = parsed(text, shown)
    problems += errors
    return document


def _files(root: Path, problems: list[Problem]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        folder = Path(error.filename)
        if folder != root / "spec" or folder.exists():  # a missing spec is reported by its missing files
            problems.append(Problem(Location(folder.relative_to(root)), unreadable(error)))

    return (root / "spec" / file for file in walk(root / "spec", note) if file.lower().endswith((".yaml", ".yml")))


def read_text(file: Path, shown: Path, problems: list[Problem]) -> str | None:
    """The text of a file in UTF-8, or None where it cannot be read, which goes to `problems` under the path `shown`."""
    try:
        # What is no file may never end, or wait for a writer.
        if not stat.S_ISREG(file.stat().st_mode):
            problems.append(Problem(Location(shown), "cannot be read: it is no regular file; write one or remove it"))
            return None
        content = file.read_bytes()
        text = content.decode("utf-8").replace("\r\n", "\n")
        problem = find_conflict(text, Location(shown))
        problems += [problem] if problem is not None else []
        return text if problem is None else None
    except UnicodeDecodeError as error:
        location = _place_after(content[: error.start].decode("utf-8"), shown)
        problems.append(Problem(location, "cannot be read: it is not UTF-8; save it as a text in UTF-8"))
    except OSError as error:
        problems.append(Problem(Location(shown), unreadable(error)))
    return None


def unreadable(error: OSError) -> str:
    """The message of an error: what the system said of a file or a folder."""
    return f"cannot be read: {error.strerror}; let it be read or remove it"


def _place_after(text: str, path: Path) -> Location:
    """Return the location after `text`."""
    lines = lines_of(text)
    return Location(path, len(lines), len(lines[-1]) + 1)


def _parse(text: str, path: Path, problems: list[Problem]) -> Value | None:
    if (refused := _LINE_ENDS_OF_OLD.search(text)) is not None:
        problems.append(_refused_character(text, path, refused))
        return None
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        # libyaml counts levels from 0.2.6 on; others recurse until Python ends that.
        if "nesting depth" in str(error.problem):
            problems.append(Problem(Location(path), _TOO_DEEP))
            return None
        mark = error.problem_mark or error.context_mark
        location = Location(path, mark.line + 1, mark.column + 1) if mark else Location(path)
        problems.append(diagnose(text, location, error))
        return None
    except yaml.YAMLError as error:
        # YAML's errors about characters have no line and column.
        refused = yaml.reader.Reader.NON_PRINTABLE.search(text)
        reason = " ".join(str(error).split())
        problems.append(
            _refused_character(text, path, refused)
            if refused
            else Problem(Location(path), f"not valid YAML: {reason}; remove that character")
        )
        return None
    except RecursionError:
        problems.append(Problem(Location(path), _TOO_DEEP))
        return None
    if node is None:
        problems.append(Problem(Location(path), "the file is empty; write its keys or delete the file"))
        return None
    if not isinstance(node, yaml.MappingNode):
        message = "the file must hold a mapping; write it as 'key: value' lines"
        problems.append(Problem(_location(node, path), message))
        return None
    try:
        position = _location(node, path)
        _count(node, path, position, {})
        return _value(node, path, position, problems)
    except _AliasError as error:
        problems.append(error.problem)
        return None
    except RecursionError:
        problems.append(Problem(Location(path), _TOO_DEEP))
        return None


def _refused_character(text: str, path: Path, match: re.Match[str]) -> Problem:
    message = f"not valid YAML: it holds U+{ord(match[0]):04X}; remove that character"
    return Problem(_place_after(text[: match.start()], path), message)


class _AliasError(Exception):
    """Aliases make a value that cannot be written out."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(location, message)


def _count(node: yaml.Node, path: Path, key_location: Location, counts: dict[int, int | None]) -> int:
    """How many values `node` holds with its aliases written out. `counts` has those of other nodes, None inside one."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) in counts:
        known = counts[id(node)]
        if known is None:
            raise _AliasError(key_location, "an alias stands inside its own anchor; write the value out")
        return known
    counts[id(node)] = None
    inner = [(pair[0], pair[1]) if isinstance(pair, tuple) else (pair, pair) for pair in node.value]
    count = 1 + sum(_count(value, path, _location(key, path), counts) for key, value in inner)
    if count > _MAX_VALUES:
        message = f"it holds more than {_MAX_VALUES} values with its aliases written out; write fewer"
        raise _AliasError(_location(node, path), message)
    counts[id(node)] = count
    return count


def _location(node: yaml.Node, path: Path) -> Location:
    return Location(path, node.start_mark.line + 1, node.start_mark.column + 1)


def _value(node: yaml.Node, path: Path, key_location: Location, problems: list[Problem]) -> Value:
    location = _location(node, path)
    if isinstance(node, yaml.MappingNode):
        items: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key_at = _location(key_node, path)
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                problems.append(Problem(key_at, "a key must be a word; put it in quotes"))
            elif key in items:
                first = items[key].key_location
                problems.append(Problem(key_at, f"key '{key}' stands twice, first at line {first.line}; keep one"))
            else:
                items[key] = _value(value_node, path, key_at, problems)
        return Value(location, items, key_location)
    if isinstance(node, yaml.SequenceNode):
        elements = [_value(element, path, _location(element, path), problems) for element in node.value]
        return Value(location, elements, key_location)
    return Value(location, _scalar(node, location, problems), key_location, getattr(node, "style", None) in ("'", '"'))


def _scalar(node: yaml.Node, location: Location, problems: list[Problem]) -> Scalar:
    kind = node.tag.removeprefix(_TAG)
    pattern, _, read = _CORE_SCHEMA.get(kind, ("(?!)", "", str))
    try:
        if kind == "str" or re.fullmatch(pattern, node.value):
            return read(node.value)
        reason = f"'{node.value}' is no {kind}" if kind in _CORE_SCHEMA else f"it has the unknown tag '{node.tag}'"
    except ValueError:
        reason = "it is a number of too many digits"
    problems.append(Problem(location, f"not a value that a spec may hold: {reason}; write plain text or a number"))
    return None


def _integer(text: str) -> int:
    """An integer of YAML's core schema: decimal, even after a 0, or with the prefix 0o or 0x."""
    number = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if not is_representable(number):
        raise ValueError(text)
    return number


def is_representable(number: float) -> bool:
    """Whether a number is finite and not beyond the largest double."""
    try:
        return math.isfinite(number)
    except OverflowError:  # of an integer
        return False
