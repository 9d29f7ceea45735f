"""The vendors' libraries' part of the model: the functions that spec/libraries lists, which have no Python binding."""

import re
from dataclasses import dataclass

from opgen.fields import Fields
from opgen.loader import Document
from opgen.problem import Problem, did_you_mean

# The types of arguments and results, as ctypes calls them.
C_TYPES = {"bool": "c_bool", "int": "c_int", "pointer": "c_void_p", "size": "c_size_t", "text": "c_char_p"}
# And of results alone.
RESULT_TYPES = {**C_TYPES, "nothing": "None"}
_SIGNATURE = re.compile(r"\[([\w, ]*)\] -> (\w+)")


@dataclass(frozen=True)
class Function:
    """A function of a library; its types are keys of C_TYPES, and that of the result one of RESULT_TYPES."""

    name: str
    arguments: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class CLibrary:
    """A file of spec/libraries."""

    name: str
    doc: str
    functions: tuple[Function, ...]


def build_library(document: Document, problems: list[Problem]) -> CLibrary:
    """The library that `document` holds."""
    fields = Fields(document.root, f"{document.stem}.yaml", problems)
    functions = []
    doc = fields.text("doc")
    listed = fields.required("functions")
    # Names are the library's own, so they are not held to the rule for names of the spec.
    names = listed.content if listed is not None and isinstance(listed.content, dict) else {}
    for name, value in names.items():
        match = _SIGNATURE.fullmatch(str(value.content))
        if match is None:
            message = f"'{value.content}' is no signature of '{name}'; write '[pointer, int] -> int'"
            problems.append(Problem(value.location, message))
            continue
        arguments = tuple(match[1].split(", ")) if match[1] else ()
        for type, types in (*((argument, C_TYPES) for argument in arguments), (match[2], RESULT_TYPES)):
            if type not in types:
                hint = did_you_mean(type, types)
                problems.append(Problem(value.location, f"unknown type '{type}' in '{name}'{hint}"))
        functions.append(Function(name, arguments, match[2]))
    fields.finish()
    return CLibrary(document.stem, doc, tuple(functions))
