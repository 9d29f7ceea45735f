"""Where an error in a spec is, and what it is."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from opgen.aliases import dtype_name, meanings

# Of how many letters the beginning of a word is enough to know it.
_SHORTEST_START = 3
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, order=True)
class Location:
    """A location in a file of the spec; line and column count from 1."""

    path: Path
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{one_line(self.path.as_posix())}:{self.line}:{self.column}"

    @property
    def folder(self) -> str:
        """The folder of the project that the file is in, or would be."""
        return self.path.parts[self.is_of_base]

    @property
    def is_of_base(self) -> bool:
        """Whether it is in the spec of the base package, which may say more than is used here."""
        return self.path.parts[1:2] == ("spec",)


@dataclass(frozen=True, order=True)
class Problem:
    """One error, printed as `path:line:column: message` on one line, whatever the message quotes."""

    location: Location
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


class SpecError(Exception):
    """The spec has errors: all of them, in the order of their locations."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


class Refusal(Exception):
    """The request cannot be carried out; the message says why, and what to do."""


def lines_of(text: str, *, keep_ends: bool = False) -> list[str]:
    """The lines of `text`; one that ends with a line end has an empty last line.

    Editors and YAML 1.2 end lines at these alone, while `str.splitlines` ends them at U+2028 and others too.
    """
    lines = _LINE_END.split(text)
    if keep_ends:
        return [f"{line}{end}" for line, end in zip(lines, [*_LINE_END.findall(text), ""], strict=True)]
    return lines


def one_line(text: str) -> str:
    """Escape the line ends of `text` and all else that a terminal does not print."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The known word that `word` is probably a misspelling of, or that it means elsewhere."""
    known = [*choices]
    for meant in meanings(word):
        if meant in known:
            return meant
    longer = [choice for choice in known if choice.startswith(word) and len(word) >= _SHORTEST_START]
    match = longer if len(longer) == 1 else difflib.get_close_matches(word, known, n=1)
    if not match:
        small = {choice.casefold(): choice for choice in known}
        match = [small[each] for each in difflib.get_close_matches(word.casefold(), small, n=1)]
    return match[0] if match else None


def did_you_mean(word: str, choices: Iterable[str], fix: str = "") -> str:
    """The end of a message about an unknown word: the nearest known one, or else `fix`, or else all of them."""
    known = list(choices)
    near = nearest(word, known)
    if near is not None:
        return f"; did you mean '{near}'?"
    if fix:
        return f"; {fix}"
    return f"; known are {', '.join(known)}" if known else "; remove it"


def unknown_dtype(word: str, known: Iterable[str]) -> str:
    """The end of a message about a dtype that the spec lacks: how to add it, or the nearest known one."""
    names = list(known)
    name = dtype_name(word)
    return did_you_mean(word, names) if name is None or name in names else f"; 'opgen new dtype {name}' adds it"


class Problems(list[Problem]):
    """The errors so far."""

    def note(self, location: Location, message: str) -> None:
        """Note an error."""
        self.append(Problem(location, message))

    def unknown(self, location: Location, message: str, name: str, known: Iterable[str], fix: str = "") -> None:
        """Note a name that nothing answers to; the end of the message is the nearest known one, or else `fix`."""
        self.note(location, message + did_you_mean(name, known, fix))

    @property
    def invalid_files(self) -> frozenset[Path]:
        """The files with an error, which may not say what they mean to: what they lack is noted later."""
        return frozenset(problem.location.path for problem in self)
