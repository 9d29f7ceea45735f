"""The parameters of a user's kernel, as its signature declares them in C."""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import Final, NamedTuple

from ...dtype import DType
from ..base.error import InvalidArgument, describe

# By the code that `struct` has for a type: what C calls it, several words in alphabetical order. Dtypes have names too.
_NAMES: Final = {
    "?": ("bool", "_Bool"),
    "b": ("char", "char signed", "int8_t"),
    "B": ("char unsigned",),
    "h": ("short", "int short", "short signed", "int short signed"),
    "H": ("short unsigned", "int short unsigned", "uint16_t"),
    "i": ("int", "signed", "int signed"),
    "I": ("unsigned", "int unsigned"),
    "q": ("long long", "int long long", "long long signed", "int long long signed", "ptrdiff_t"),
    "Q": ("long long unsigned", "int long long unsigned", "size_t", "uint64_t"),
    "e": ("half", "__half"),
}
_LONG: Final = ("long", "int long", "long signed", "int long signed")
_UNSIGNED_LONG: Final = ("long unsigned", "int long unsigned")
_VENDORS: Final = {
    "bfloat16": ("__nv_bfloat16", "__hip_bfloat16", "hip_bfloat16"),
    "float8_e4m3fn": ("__nv_fp8_e4m3", "__hip_fp8_e4m3"),
    "float8_e5m2": ("__nv_fp8_e5m2", "__hip_fp8_e5m2"),
    "float8_e4m3fnuz": ("__hip_fp8_e4m3_fnuz",),
    "float8_e5m2fnuz": ("__hip_fp8_e5m2_fnuz",),
}
# Of dtypes, by kind and bytes.
_CODES: Final = {
    "bool": {1: "?"},
    "unsigned": {1: "B", 2: "H", 4: "I", 8: "Q"},
    "signed": {1: "b", 2: "h", 4: "i", 8: "q"},
    "float": {2: "e", 4: "f", 8: "d"},
    "complex": {8: "2f", 16: "2d"},
}

_QUALIFIERS: Final = frozenset(("const", "volatile", "restrict", "__restrict", "__restrict__"))
_NAMESPACE: Final = re.compile(r"\b\w+\s*::\s*")
_TOKEN: Final = re.compile(r"\w+|\S")
_KNOWN: Final = "float, double, int, unsigned, long long, size_t, bool, the name of a real dtype"


class CType(NamedTuple):
    """A type of C: the code that `struct` has for it, or for its bits, and the dtype that it is, if it is one."""

    code: str
    dtype: DType | None


class Parameter(NamedTuple):
    """A parameter of a kernel: its text in the signature, and its type or, of a pointer, that of its elements."""

    text: str
    type: CType | None
    """None for void."""
    is_pointer: bool

    @property
    def code(self) -> str:
        """The code that `struct` has for it."""
        return "Q" if self.type is None or self.is_pointer else self.type.code

    @property
    def size(self) -> int:
        """Its bytes, which are its alignment too."""
        return struct.calcsize(f"@{self.code}")

    @property
    def takes(self) -> str:
        """The elements that the pointer may point to."""
        if self.type is None:
            return "elements of any dtype"
        size = struct.calcsize(f"@{self.type.code}")
        return f"elements of {size} bytes" if self.type.dtype is None else self.type.dtype.value

    def points_to(self, dtype: DType) -> bool:
        """Return True if the pointer may point to elements of a dtype.

        Those of its own dtype, of a type that is no dtype those of as many bytes, of void any.
        """
        if self.type is None or dtype is self.type.dtype:
            return True
        return self.type.dtype is None and dtype.itemsize == struct.calcsize(f"@{self.type.code}")


def parameters(op: str, signature: str) -> tuple[Parameter, ...]:
    """The parameters of a list such as "float* y, const float*, unsigned n"; InvalidArgument for what is none."""
    if signature.strip() in ("", "void"):
        return ()
    return tuple([_parameter(op, text.strip()) for text in signature.split(",")])


def _parameter(op: str, text: str) -> Parameter:
    tokens = [token for token in _TOKEN.findall(_NAMESPACE.sub("", text)) if token not in _QUALIFIERS]
    # The parameter's own name may stand last.
    for words in (tokens, tokens[:-1] if tokens[-1:] and tokens[-1].isidentifier() else []):
        is_pointer = words[-1:] == ["*"]
        name = " ".join(sorted(words[:-1] if is_pointer else words))
        known = _types().get(name)
        # A complex number is two of C's, which only a pointer can point to.
        is_complex = known is not None and known.dtype is not None and known.dtype.is_complex
        if (known is not None and not is_complex) or (is_pointer and (is_complex or name == "void")):
            return Parameter(text, known, is_pointer)
    advice = f"write {_KNOWN}, or a pointer to one or to void"
    reason = f"signature: {describe(text)} is no parameter that tallow knows; {advice}"
    raise InvalidArgument(op, f"{reason}, or leave the signature out and pack the parameters as one struct")


@cache
def _types() -> dict[str, CType]:
    """All types by their names, several words in alphabetical order."""
    types = {}
    by_code = {}
    for dtype in DType:
        # Python has no numbers of the dtypes that NumPy lacks: what is packed is their bits.
        code = _CODES[dtype.kind if dtype.is_of_numpy else "unsigned"][dtype.itemsize]
        if dtype.is_of_numpy:
            by_code[code] = dtype
        known = () if dtype.numpy.names else (dtype.numpy.name, *_VENDORS.get(dtype.numpy.name, ()))
        types.update(dict.fromkeys((dtype.value, dtype.cpp, *known), CType(code, dtype)))
    for code, names in _NAMES.items():
        types.update(dict.fromkeys(names, CType(code, by_code.get(code))))
    same = "long long" if struct.calcsize("@l") == struct.calcsize("@q") else "int"
    types.update(dict.fromkeys(_LONG, types[same]))
    types.update(dict.fromkeys(_UNSIGNED_LONG, types[f"{same} unsigned"]))
    return types
