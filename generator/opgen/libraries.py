"""The vendors' libraries' part of the model: the functions that spec/libraries lists, which have no Python binding."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from opgen.decoder import Cursor
from opgen.notes import Entry, exactly
from opgen.problem import did_you_mean

# The types of arguments and results, as ctypes calls them.
C_TYPES = {"bool": "c_bool", "int": "c_int", "pointer": "c_void_p", "size": "c_size_t", "text": "c_char_p"}
# And of results alone.
RESULT_TYPES = {**C_TYPES, "nothing": "None"}
_SIGNATURE = re.compile(r"\[([\w, ]*)\] -> (\w+)")


@dataclass(frozen=True)
class Function:
    """A function of a library; its types are keys of C_TYPES, and that of the result one of RESULT_TYPES."""

    arguments: tuple[str, ...]
    result: str
    FORM: ClassVar = Annotated[
        str,
        exactly(
            rf"\[(?:(?:{'|'.join(C_TYPES)})(?:, (?:{'|'.join(C_TYPES)}))*)?\] -> (?:{'|'.join(RESULT_TYPES)})",
        ),
    ]

    @classmethod
    def decode(cls, cursor: Cursor) -> "Function":
        """The function that a text such as '[pointer, int] -> int' says."""
        match = _SIGNATURE.fullmatch(str(cursor.value.content))
        if match is None:
            cursor.problem(f"'{cursor.value.content}' is no signature of '{cursor.key}'; write '[pointer, int] -> int'")
            return cls((), "nothing")
        arguments = tuple(match[1].split(", ")) if match[1] else ()
        for type, types in (*((argument, C_TYPES) for argument in arguments), (match[2], RESULT_TYPES)):
            if type not in types:
                cursor.problem(f"unknown type '{type}' in '{cursor.key}'{did_you_mean(type, types)}")
        return cls(arguments, match[2])


@dataclass(frozen=True)
class CLibrary:
    """A C library that is called through ctypes: the functions that opgen binds, which have no Python binding."""

    name: Annotated[str, Entry("{}.yaml")]
    doc: Annotated[str, "The docstring of the module."]
    functions: Annotated[
        Mapping[str, Function],
        "By the library's own name of a function, `[types of the arguments] -> type of the result`. A `pointer` is a "
        "handle, a descriptor, an address on the device, or the address of a result on the host; `int` is every "
        "enumeration too, also of errors; `size` is size_t; `text` is a string that is not to be freed; `nothing` is "
        "no result.",
    ]
    path: Path
