"""Names that languages and libraries use for what a spec names otherwise: `float32` for `f32`, `np.power` for `pow`."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

_MODULES: Final = "np|numpy|math|Math|cmath|scipy|special|torch|F|jax|jnp|tf|cp|cupy|mx|xp|tl|std|ml_dtypes"
LIBRARIES: Final = frozenset(_MODULES.split("|"))
"""The modules and namespaces that other languages and libraries call functions of."""

_FLOAT: Final = re.compile(r"(?:float|fp|f)(?P<bits>16|32|64)(?:_t)?")
_INTEGER: Final = re.compile(r"(?P<sign>u?)i(?:nt)?(?P<bits>8|16|32|64)(?:_t)?")
_UNSIGNED: Final = re.compile(r"u(?P<bits>8|16|32|64)")
_COMPLEX: Final = re.compile(r"(?:complex|c)(?P<bits>64|128)")
_BYTE_FLOAT: Final = re.compile(r"(?:float8_|fp8_|f8_?)(?P<format>e\dm\d)(?:fn|fnuz)?")
_DTYPES: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "bool": "bool",
    "bool_": "bool",
    "boolean": "bool",
    "half": "f16",
    "single": "f32",
    "float": "f32",
    "double": "f64",
    "char": "i8",
    "byte": "i8",
    "ubyte": "u8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
    "longlong": "i64",
    "ushort": "u16",
    "uint": "u32",
    "ulong": "u64",
    "ulonglong": "u64",
    "intc": "i32",
    "uintc": "u32",
    "csingle": "complex64",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
_CONSTANTS: Final[Mapping[str, str]] = {
    "inf": "inf",
    "infinity": "inf",
    "nan": "nan",
    "pi": repr(math.pi),
    "e": repr(math.e),
    "tau": repr(math.tau),
}
_PRIMITIVES: Final[Mapping[str, str]] = {
    "absolute": "abs",
    "fabs": "abs",
    "power": "pow",
    "ln": "log",
    "select": "where",
    "max": "maximum",
    "min": "minimum",
    "fmax": "maximum",
    "fmin": "minimum",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "rint": "round",
    "sgn": "sign",
    "fix": "trunc",
    "mod": "remainder",
    "fma": "multiply_add",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "bitwise_not": "bitwise_invert",
    "invert": "bitwise_invert",
    "expit": "sigmoid",
    "swish": "silu",
}
_KEYS: Final[Mapping[str, str]] = {
    "description": "doc",
    "summary": "doc",
    "docs": "doc",
    "expression": "formula",
    "expr": "formula",
    "types": "dtypes",
    "defaults": "parameters",
    "attributes": "parameters",
    "backward": "gradient",
    "tests": "edges",
}


def last_part(name: str) -> str:
    """`name` without the libraries before it: `power` of `np.power`, but `x.power` as it is."""
    first, *others = name.split(".")
    return others[-1] if others and first in LIBRARIES else name


def dtype_name(word: str) -> str | None:
    """The name that a spec has for the dtype that `word` is elsewhere; None where it is none."""
    name = last_part(word.strip()).lower()
    if name in _DTYPES:
        return _DTYPES[name]
    if match := _FLOAT.fullmatch(name):
        return f"f{match['bits']}"
    if match := _INTEGER.fullmatch(name):
        return f"{match['sign'] or 'i'}{match['bits']}"
    if match := _UNSIGNED.fullmatch(name):
        return f"u{match['bits']}"
    if match := _COMPLEX.fullmatch(name):
        return f"complex{match['bits']}"
    if match := _BYTE_FLOAT.fullmatch(name):
        return f"f8{match['format']}"
    return None


def primitive_name(function: str) -> str:
    """The name that formulas have for what libraries call `function`."""
    return _PRIMITIVES.get(function, function)


def constant(word: str) -> str | None:
    """The number that `word` is elsewhere, as a formula and an edge write it; None where it is none."""
    return _CONSTANTS.get(last_part(word).lower())


def meanings(word: str) -> Iterator[str]:
    """Yield what `word`, as other languages and libraries have it, may be called in a spec."""
    name = last_part(word)
    yield name
    by_subject = (primitive_name(name.lower()), _KEYS.get(name.lower()), dtype_name(word), constant(word))
    yield from (meant for meant in by_subject if meant is not None)
