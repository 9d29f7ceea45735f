"""The array libraries' part of the model: the words in which a family writes its ops, and how a library spells them."""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, TypeVar

from opgen.declarations import WITH_PARAMETERS, CallForm, Declared
from opgen.decoder import Cursor, Diagnostics
from opgen.expression import ExpressionError, parse_expression, parse_statements
from opgen.formula.formula import Formula
from opgen.notes import Entry, Form, Key, Mark, Name, defines, like, names_of
from opgen.problem import Location

Kind = TypeVar("Kind")
LIBRARY = "xp"
"""The name of the library itself in spellings."""
NUMPY = "numpy"
"""The value of `dtypes` of a library that has the dtypes of NumPy, as spec/dtypes.yaml names them."""
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Spelling:
    """Python that stands in the module of a library: an expression, or the lines of a function."""

    text: str
    location: Location = field(compare=False)
    FORM: ClassVar = Annotated[str, Mark.MAY_BE_EMPTY, names_of("word", token=r"(?<![\w.])[a-z]\w*")]

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the function that it is."""
        return tuple(self.text.split("\n")) if "\n" in self.text else (f"return {self.text}",)

    @property
    def tree(self) -> ast.Module:
        """The function that it is."""
        return parse_statements("def spelling():\n" + textwrap.indent("\n".join(self.lines), "    "))

    @classmethod
    def decode(cls, cursor: Cursor) -> "Spelling":
        """An expression, or the lines of a function."""
        text = cursor.scalar(str)
        spelling = cls((text or "None").strip(), cursor.value.location)
        reason = None if text is None else _flaw(spelling)
        if reason is not None:
            cursor.problem(f"{cursor.what} is no Python ({reason}); write an expression, or lines that return one")
        return spelling if reason is None else cls("None", cursor.value.location)

    @cached_property
    def free_names(self) -> tuple[str, ...]:
        """The names that it takes from its surroundings."""
        nodes = list(ast.walk(self.tree))
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
        names = (node.id for node in nodes if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(name for name in names if name not in own))


_FORM = CallForm("word", "take(x, positions, axis)", WITH_PARAMETERS)


@dataclass(frozen=True)
class Word(Declared):
    """A function that array libraries have: the ops of a family are written in such words."""

    call: Annotated[str, Entry("word '{}'"), _FORM, defines("word", token=r"^\w+")]
    doc: Annotated[str, "What the word gives."]
    spelling: Annotated[
        Spelling | None,
        "The expression, or the lines of the function, for a library that follows the array API standard. `xp` is the "
        "library's module, and other words are at hand by their names. A backend spells anew what differs. Without "
        "this key, each backend spells the word.",
    ]
    is_optional: Annotated[bool, Key("optional"), "A library may do without the word, which is then None."]
    combine: Annotated[
        Formula | None,
        "Of a word that joins elements: the formula by which reductions of spec/functors join two of them.",
    ]
    scan: Annotated[
        Formula | None,
        "Of a word that joins the elements up to each: the formula by which scans of spec/functors join two of them. "
        "Scans that no word has take log2(n) steps of their 'combine'.",
    ]
    location: Location = field(compare=False)

    def __str__(self) -> str:
        return self.call

    def diagnostics(self, _: str) -> Diagnostics:
        """Report a word that is optional although every library has it."""
        if self.spelling is not None and self.is_optional:
            message = f"word '{self.name}' is spelled, so that every library has it; remove 'optional' or the spelling"
            yield (None,), message


@dataclass(frozen=True)
class Devices:
    """The devices of a library."""

    count: Annotated[Spelling, "The expression of how many devices there are."]
    handle: Annotated[Spelling, "The expression of what words get as `device`, over `ordinal`."]
    name: Annotated[Spelling, "The expression of what people call the device of a `handle`."]


@dataclass(frozen=True)
class Lacking:
    """Why a library has no such dtype."""

    name: Annotated[str, Entry("dtype '{}'")]
    unsupported: Annotated[str, "Why the library has no such dtype: errors and the matrix quote it."]
    intermediate: Annotated[
        Spelling | None,
        "The library's dtype all the same, if narrower numbers are computed in it though it has no ops of its own.",
    ]
    location: Location = field(compare=False)


@dataclass(frozen=True)
class LackingWord:
    """Why a library has no such word."""

    name: Annotated[str, Entry("word '{}'")]
    unsupported: Annotated[str, "Why the library has no such word: errors and the matrix quote it."]
    location: Location = field(compare=False)


def _are_dtypes(cursor: Cursor, dtypes: str | Mapping[str, object]) -> Iterator[str]:
    if isinstance(dtypes, str) and dtypes != NUMPY:
        yield f"{cursor.what} must be '{NUMPY}' or a mapping of dtypes, not '{dtypes}'"


def _are_expressions(cursor: Cursor, calls: tuple[Spelling, ...]) -> Iterator[str]:
    for call in calls:
        if "\n" in call.text:
            yield f"'{call.lines[0]}' of {cursor.what} begins several lines; write each call as an entry of its own"


def _are_modules(cursor: Cursor, modules: Mapping[str, str]) -> Iterator[str]:
    for name, module in modules.items():
        if not is_module(module):
            yield f"'{module}' cannot be module '{name}' of {cursor.owner}; write it as Python imports it"
    if LIBRARY not in modules:
        form = f"modules: {{{LIBRARY}: its module}}"
        yield f"{cursor.owner} does not say which module the library is; write '{form}'"


@dataclass(frozen=True)
class ArrayLibrary:
    """The library that a backend computes with."""

    modules: Annotated[
        Mapping[Name, Annotated[str, like(_MODULE.pattern)]],
        _are_modules,
        Form(required=[LIBRARY]),
        "The modules that spellings use, by the names that they call them. `xp` is the library itself.",
    ]
    setup: Annotated[
        tuple[Spelling, ...],
        Mark.OPTIONAL,
        _are_expressions,
        "Calls that the library needs when it is imported, such as one that enables its 64-bit dtypes.",
    ]
    devices: Annotated[Devices, "The devices of the library."]
    listed: Annotated[
        str | Mapping[Annotated[Name, names_of("dtype")], Spelling | Lacking],
        Key("dtypes"),
        _are_dtypes,
        like(NUMPY),
        "`numpy` if the dtypes are those that spec/dtypes.yaml names of NumPy. Otherwise, by dtype, the expression of "
        "the library's, or why it has none. A float of 8 or 16 bits that is not named is stored as its bits, in the "
        "library's u8 or i16.",
    ]
    flushed: Annotated[
        tuple[Annotated[str, names_of("dtype")], ...],
        Mark.OPTIONAL,
        "The floats of which the library may take a subnormal number for zero, an operand, a result or any between.",
    ]
    written: Annotated[
        Mapping[Annotated[Name, names_of("word")], Spelling | LackingWord],
        Key("spellings"),
        Mark.OPTIONAL,
        "By word, the expression or the lines of its function, if it is not what the family's file says; or why the "
        "library cannot have the word: ops that need it are refused for this reason.",
    ]
    location: Location = field(compare=False)

    @property
    def dtypes(self) -> Mapping[str, Spelling] | None:
        """The library's dtypes, also intermediate ones; None where they are NumPy's."""
        if isinstance(self.listed, str):
            return None
        lacking = _of(self.listed, Lacking)
        intermediate = {name: item.intermediate for name, item in lacking.items() if item.intermediate is not None}
        return _of(self.listed, Spelling) | intermediate

    @property
    def lacking(self) -> Mapping[str, tuple[str, Location]]:
        """Why there is no such dtype."""
        lacking = {} if isinstance(self.listed, str) else _of(self.listed, Lacking)
        return {name: (item.unsupported, item.location) for name, item in lacking.items()}

    @property
    def spellings(self) -> Mapping[str, Spelling]:
        """How the library spells words."""
        return _of(self.written, Spelling)

    @property
    def refused(self) -> Mapping[str, LackingWord]:
        """The words that the library cannot have."""
        return _of(self.written, LackingWord)


def _of(entries: Mapping[str, object], kind: type[Kind]) -> dict[str, Kind]:
    return {name: item for name, item in entries.items() if isinstance(item, kind)}


def is_module(text: str) -> bool:
    """Whether Python may import what is called so."""
    return _MODULE.fullmatch(text) is not None


def _flaw(spelling: Spelling) -> str | None:
    """Why a spelling is no function's body; None where it is one."""
    try:
        if "\n" not in spelling.text:
            parse_expression(spelling.text)
        body = spelling.tree.body
    except ExpressionError as error:
        return str(error)
    function = body[0]
    # Lines that are indented less than the first would leave the function.
    if len(body) > 1 or not isinstance(function, ast.FunctionDef):
        return "its lines have different margins"
    return None if any(isinstance(node, ast.Return) for node in ast.walk(function)) else "it returns nothing"
