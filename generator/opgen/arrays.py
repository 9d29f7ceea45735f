"""The array libraries' part of the model: the words in which a family writes its ops, and how a library spells them."""

import ast
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opgen.fields import Fields
from opgen.loader import Value
from opgen.problem import Location, Problem

LIBRARY = "xp"
"""The name of the library itself in spellings."""
NUMPY = "numpy"
"""What stands for all dtypes where they are those that spec/dtypes.yaml names of NumPy."""
_WORD = re.compile(r"([a-z]\w*)\(([a-z]\w*(?:, [a-z]\w*)*)\)")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Spelling:
    """Python that stands in the module of a library: an expression, or the lines of a function."""

    text: str
    location: Location

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the function that it is."""
        return tuple(self.text.split("\n")) if "\n" in self.text else (f"return {self.text}",)

    @property
    def tree(self) -> ast.Module:
        """The function that it is."""
        return ast.parse("def spelling():\n" + textwrap.indent("\n".join(self.lines), "    "))

    def free_names(self) -> tuple[str, ...]:
        """The names that it takes from its surroundings."""
        nodes = list(ast.walk(self.tree))
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
        names = (node.id for node in nodes if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(name for name in names if name not in own))


# In the place of one that is a mistake.
_NOTHING = Spelling("None", Location(Path()))


@dataclass(frozen=True)
class Word:
    """A function that array libraries have: the ops of a family are written in such words."""

    name: str
    parameters: tuple[str, ...]
    doc: str
    spelling: Spelling | None  # where a library does not say otherwise
    is_optional: bool  # a library may do without
    combine: str | None  # the ufunc of NumPy by which reductions name it
    location: Location

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


@dataclass(frozen=True)
class ArrayLibrary:
    """The library that a backend computes with."""

    modules: Mapping[str, str]  # by the names that spellings call them
    count: Spelling  # of devices
    handle: Spelling  # what words get as `device`, over `ordinal`
    name: Spelling  # what the device of a `handle` is called, for people
    dtypes: Mapping[str, Spelling] | None  # None where they are NumPy's
    lacking: Mapping[str, tuple[str, Location]]  # why there is no such dtype
    spellings: Mapping[str, Spelling]
    location: Location


def is_module(text: str) -> bool:
    """Whether Python may import what is called so."""
    return _MODULE.fullmatch(text) is not None


def build_vocabulary(fields: Fields) -> Mapping[str, Word]:
    """The words below the key `vocabulary`; none where a family has none."""
    value = fields.optional("vocabulary")
    if value is None:
        return {}
    if not isinstance(value.content, dict):
        fields.problem(value.location, f"'vocabulary' of {fields.what} must be a mapping, not {value.type_name}")
        return {}
    words: dict[str, Word] = {}
    for key, inner in value.content.items():
        word = _word(key, inner, fields.problems)
        if word is not None and word.name in words:
            message = f"word '{word.name}' stands twice, first at line {words[word.name].location.line}; keep one"
            fields.problem(inner.key_location, message)
        elif word is not None:
            words[word.name] = word
    return words


def _word(key: str, value: Value, problems: list[Problem]) -> Word | None:
    match = _WORD.fullmatch(key)
    if match is None:
        message = f"'{key}' is no word; write its name and parameters, as 'take(x, positions, axis)'"
        problems.append(Problem(value.key_location, message))
        return None
    fields = Fields(value, f"word '{match[1]}'", problems)
    spelling = fields.optional("spelling")
    word = Word(
        name=match[1],
        parameters=tuple(match[2].split(", ")),
        doc=fields.text("doc"),
        spelling=None if spelling is None else _spelling(fields, spelling, "spelling"),
        is_optional=fields.flag("optional"),
        combine=fields.text_or_none("combine"),
        location=value.key_location,
    )
    if word.spelling is not None and word.is_optional:
        message = f"{fields.what} is spelled, so that every library has it; remove 'optional' or the spelling"
        fields.problem(fields.key_location, message)
    fields.finish()
    return word


def build_array(value: Value, backend: str, problems: list[Problem]) -> ArrayLibrary:
    """The section `array` of a backend."""
    fields = Fields(value, f"'array' of backend '{backend}'", problems)
    modules = fields.texts_by_name("modules")
    place = fields.place("modules")
    for name, module in modules.items():
        if not is_module(module):
            fields.problem(
                place, f"'{module}' cannot be module '{name}' of {fields.what}; write it as Python imports it"
            )
    if LIBRARY not in modules:
        message = f"{fields.what} does not say which module the library is; write 'modules: {{{LIBRARY}: its module}}'"
        fields.problem(place, message)
    devices = _devices(fields.required("devices"), backend, problems)
    dtypes, lacking = _dtypes(fields, backend)
    library = ArrayLibrary(
        modules=modules,
        count=devices.get("count", _NOTHING),
        handle=devices.get("handle", _NOTHING),
        name=devices.get("name", _NOTHING),
        dtypes=dtypes,
        lacking=lacking,
        spellings={word: _spelling(fields, inner, word) for word, inner in fields.named("spellings").items()},
        location=value.key_location,
    )
    fields.finish()
    return library


def _devices(value: Value | None, backend: str, problems: list[Problem]) -> dict[str, Spelling]:
    if value is None:
        return {}
    fields = Fields(value, f"'devices' of backend '{backend}'", problems)
    given = {key: fields.required(key) for key in ("count", "handle", "name")}
    fields.finish()
    return {key: _spelling(fields, inner, key) for key, inner in given.items() if inner is not None}


def _dtypes(fields: Fields, backend: str) -> tuple[Mapping[str, Spelling] | None, Mapping[str, tuple[str, Location]]]:
    """The library's dtypes, and why it lacks the others."""
    given = fields.required("dtypes")
    if given is None or given.content == NUMPY:
        return None, {}
    found, lacking = {}, {}
    for name, value in fields.named_in(given, "dtypes").items():
        if isinstance(value.content, dict):
            parts = Fields(value, f"dtype '{name}' of backend '{backend}'", fields.problems)
            lacking[name] = (parts.text("unsupported"), value.key_location)
            parts.finish()
        else:
            found[name] = _spelling(fields, value, name)
    return found, lacking


def _spelling(fields: Fields, value: Value, key: str) -> Spelling:
    """An expression, or the lines of a function."""
    text = fields.scalar(value, str, key)
    if text is None:
        return _NOTHING
    spelling = Spelling(text.strip(), value.location)
    reason = _flaw(spelling)
    if reason is None:
        return spelling
    message = f"'{key}' of {fields.what} is no Python ({reason}); write an expression, or lines that return one"
    fields.problem(value.location, message)
    return _NOTHING


def _flaw(spelling: Spelling) -> str | None:
    """Why a spelling is no function's body; None where it is one."""
    try:
        if "\n" not in spelling.text:
            ast.parse(spelling.text, mode="eval")
        body = spelling.tree.body
    except (SyntaxError, ValueError) as error:
        return error.msg if isinstance(error, SyntaxError) else str(error)
    function = body[0]
    # Lines that are indented less than the first would leave the function.
    if len(body) > 1 or not isinstance(function, ast.FunctionDef):
        return "its lines have different margins"
    return None if any(isinstance(node, ast.Return) for node in ast.walk(function)) else "it returns nothing"
