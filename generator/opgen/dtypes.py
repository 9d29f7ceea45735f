"""The element types, of which the sizes and the names in C++, NumPy and DLPack follow from a few facts."""

import math
from collections.abc import Callable as Function
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Final, NamedTuple

from opgen.decoder import Diagnostics
from opgen.names import Names
from opgen.notes import Choice, Entry, Key, LocationOf, Mark, Name, Range, defines, names_of
from opgen.problem import Location

MAX_BYTES = 8
"""The size of the largest elements, but for complex numbers."""
# The floats that other libraries know, by the bits of exponent and fraction and the suffix of LLVM's names: their names
# in NumPy and ml_dtypes, and their type codes in DLPack.
_KNOWN: Final = {
    "e5m10": ("numpy.float16", 2),
    "e8m23": ("numpy.float32", 2),
    "e11m52": ("numpy.float64", 2),
    "e8m7": ("ml_dtypes.bfloat16", 4),
    "e3m4": ("ml_dtypes.float8_e3m4", 7),
    "e4m3": ("ml_dtypes.float8_e4m3", 8),
    "e4m3b11fnuz": ("ml_dtypes.float8_e4m3b11fnuz", 9),
    "e4m3fn": ("ml_dtypes.float8_e4m3fn", 10),
    "e4m3fnuz": ("ml_dtypes.float8_e4m3fnuz", 11),
    "e5m2": ("ml_dtypes.float8_e5m2", 12),
    "e5m2fnuz": ("ml_dtypes.float8_e5m2fnuz", 13),
}
# Those that C++ has.
_CPP: Final = {"e8m23": "float", "e11m52": "double"}
# The type codes of other kinds in DLPack.
_CODES: Final = {"signed": 0, "unsigned": 1, "complex": 5, "bool": 6}
# The formats that matrix cores multiply.
_MULTIPLICANDS: Final = {"f16": "e5m10", "bf16": "e8m7"}
_F32_BIAS: Final = 127
_F32_MAX: Final = math.ldexp(2 - 2**-23, _F32_BIAS)


class FloatFormat(NamedTuple):
    """A binary float: a sign, an exponent, and a fraction below a hidden bit."""

    exponent: int
    fraction: int
    bias: int
    specials: str  # of LLVM's names: "" has infinities and NaNs, "fn" a NaN alone, "fnuz" that instead of -0.0

    @property
    def usual_bias(self) -> int:
        """The default bias of such formats."""
        return (1 << self.exponent - 1) - (self.specials != "fnuz")

    @property
    def bits(self) -> int:
        """The size of a number."""
        return 1 + self.exponent + self.fraction

    @property
    def name(self) -> str:
        """The format in LLVM's words, such as e4m3b11fnuz."""
        bias = "" if self.bias == self.usual_bias else f"b{self.bias}"
        return f"e{self.exponent}m{self.fraction}{bias}{self.specials}"

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def max(self) -> float:
        """The largest finite number."""
        significand = 2 - math.ldexp(1 + (self.specials == "fn"), -self.fraction)
        return math.ldexp(significand, 2**self.exponent - 1 - self.bias - (not self.specials))


@dataclass(frozen=True)
class DType:
    """An element type. Its size and its names in C++, NumPy and DLPack follow from its kind and its bits."""

    name: Annotated[Name, Entry("dtype '{}'"), defines("dtype")]
    doc: Annotated[str, "What the dtype is, for the docs."]
    kind: Annotated[
        str,
        Choice(("bool", "unsigned", "signed", "float", "complex")),
        "Whether it holds truth values, which are bytes of 0 and 1, or integers, and signed ones, or complex numbers.",
    ]
    size: Annotated[int | None, Key("bytes"), Choice((1, 2, 4, 8, 16)), "The size of one element. Floats lack the key."]
    exponent: Annotated[
        int | None,
        Range(2, 11, "as f64 has"),
        "Of a float the bits of the exponent. With the sign and the fraction there are 8 or 16 bits, or those of f32 "
        "or f64. A shorter float has no normal number that f32 lacks.",
    ]
    fraction: Annotated[int | None, Range(1, 52, "as f64 has"), "Of a float the bits of the fraction."]
    bias: Annotated[
        int | None,
        "Of a float what is subtracted from the field of the exponent, if it is not the usual 2**(exponent - 1) - 1, "
        "or 1 more than that with `fnuz`.",
    ]
    specials: Annotated[
        str | None,
        Choice(("fn", "fnuz")),
        "Of a float without infinities, in LLVM's words: with `fn` only the last code of each sign is NaN, with `fnuz` "
        "only that of -0.0, which there is not. Conversions to it saturate. Without the key the highest exponent "
        "belongs to infinities and NaNs, as in IEEE 754.",
    ]
    multiplicand: Annotated[
        str | None,
        Choice(tuple(_MULTIPLICANDS)),
        "Of a float the type as which matrix cores multiply it. Kernels multiply the numbers of other dtypes one by "
        "one.",
    ]
    compute: Annotated[str, names_of("dtype"), "The dtype in which arithmetic on it is done, before one rounding back."]
    safetensors: Annotated[
        str | None, Mark.NULL, "The name of the dtype in the safetensors format; null if the format lacks it."
    ]
    real: Annotated[
        str | None, names_of("dtype"), "Of a complex dtype that of its real and imaginary parts; others lack the key."
    ]
    joined_as: Annotated[
        str | None,
        names_of("dtype"),
        "The dtype in which ranks join its elements, where the libraries of collectives lack it: complex numbers as "
        "their parts, truth values as bytes, others converted. Dtypes that the libraries have lack the key, and so do "
        "floats of 8 or 16 bits without a 'multiplicand', which are reduced in their compute dtype.",
    ]
    may_index: Annotated[bool, LocationOf("index_mark")]
    index_mark: Annotated[
        int | None,
        Mark.NULL,
        Mark.OPTIONAL,
        'The key makes the dtype one that may index. The value is the index that means "no row"; null if there is '
        "none.",
    ]
    promotes_to: Annotated[
        tuple[str, ...],
        Mark.OPTIONAL,
        names_of("dtype"),
        "The dtypes that have all of its numbers and are next to it. Operands of two dtypes are promoted to the first "
        "dtype that can be reached from both, unless one yields to the other; without either, they do not go together.",
    ]
    yields_to: Annotated[
        Names | None,
        "The dtypes of other operands to which it is converted though they may lack some of its numbers, as integers "
        "are to floats: a set such as `float`, or a list.",
    ]
    location: Location = field(compare=False)

    @property
    def is_integer(self) -> bool:
        """Whether it holds integers."""
        return self.kind in ("unsigned", "signed")

    @property
    def is_exact(self) -> bool:
        """Whether it holds integers or truth values."""
        return self.is_integer or self.kind == "bool"

    @property
    def is_complex(self) -> bool:
        """Whether it holds complex numbers."""
        return self.kind == "complex"

    @cached_property
    def format(self) -> FloatFormat | None:
        """How a float is encoded; None of other kinds."""
        if self.kind != "float" or not self.exponent or not self.fraction:
            return None
        usual = FloatFormat(self.exponent, self.fraction, 0, self.specials or "")
        return usual._replace(bias=usual.usual_bias if self.bias is None else self.bias)

    @property
    def is_short(self) -> bool:
        """Whether it is a float of fewer bits than f32."""
        return self.format is not None and self.format.bits < 32

    @property
    def bytes(self) -> int:
        """The size of one element."""
        return self.format.bits // 8 if self.format is not None else self.size or 0

    @property
    def cpp(self) -> str:
        """The C++ type of an element in kernels."""
        if self.kind == "bool":
            return "boolean"
        if self.is_integer:
            return f"{'u' * (self.kind == 'unsigned')}int{8 * self.bytes}_t"
        if self.is_complex:
            return f"complex{8 * self.bytes}"
        return self.name if self.format is None else _CPP.get(self.format.name, self.name)

    @property
    def numpy(self) -> str | None:
        """The NumPy type of an element, as `module.name`; None where neither NumPy nor ml_dtypes has it."""
        if self.kind == "float":
            return _KNOWN[self.format.name][0] if self.format is not None and self.format.name in _KNOWN else None
        if self.is_integer:
            return f"numpy.{'u' * (self.kind == 'unsigned')}int{8 * self.bytes}"
        return "numpy.bool" if self.kind == "bool" else f"numpy.complex{8 * self.bytes}"

    @property
    def dlpack(self) -> tuple[int, int] | None:
        """The type code and the bits of DLPack's `DLDataType`; None where DLPack has no such type."""
        known = _KNOWN.get(self.format.name) if self.format is not None else None
        code = _CODES.get(self.kind) if known is None else known[1]
        return None if code is None else (code, 8 * self.bytes)

    def bits_dtype(self, dtypes: Sequence["DType"]) -> str | None:
        """The integer dtype whose elements in an array library have the bits of a short float that it lacks."""
        kind = "unsigned" if self.bytes == 1 else "signed"
        names = (other.name for other in dtypes if (other.kind, other.bytes) == (kind, self.bytes))
        return next(names, None) if self.is_short else None

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest number of an integer dtype, or of truth values."""
        if self.kind == "bool":
            return 0, 1
        least = -(1 << 8 * self.bytes - 1) if self.kind == "signed" else 0
        return least, least + (1 << 8 * self.bytes) - 1

    def holds(self, number: float) -> bool:
        """Whether a number is one of an integer dtype, or a truth value."""
        least, most = self.bounds
        return math.isfinite(number) and number == int(number) and least <= number <= most

    def diagnostics(self, what: str) -> Diagnostics:
        """Note facts of another kind or of no known format, an index that is no integer, and a mark that is none."""
        if self.kind == "float":
            yield from self._format_diagnostics(what)
        elif self.kind:
            keys = ("exponent", "fraction", "bias", "specials", "multiplicand")
            for key in (key for key in keys if getattr(self, key) is not None):
                yield key, f"{what} is no float, so that it has no '{key}'; remove it"
            if self.size is None:
                yield ("kind", None), f"{what} has no 'bytes'; write the size of an element"
        if self.kind and self.is_complex == (self.real is None):
            fix = "write the dtype of its parts, such as f32" if self.is_complex else "remove it"
            key = "kind" if self.real is None else "real"
            yield (key, None), f"'real' of {what} is the dtype of the parts of a complex number; {fix}"
        least, most = self.bounds
        if self.may_index and not self.is_integer:
            yield "index_mark", f"{what} is no integer, so that it cannot index; remove 'index_mark'"
        elif self.may_index and self.index_mark is None and self.bytes == MAX_BYTES:
            # Kernels see indexes of this size, and a mark that is no index where there is none.
            yield "index_mark", f"'index_mark' of {what} must be a number, as it has {MAX_BYTES} bytes"
        elif self.index_mark is not None and not least <= self.index_mark <= most:
            yield "index_mark", f"'index_mark' of {what} must be from {least} to {most}, not {self.index_mark}"

    def _format_diagnostics(self, what: str) -> Diagnostics:
        if self.size is not None:
            yield "bytes", f"'bytes' of {what} follows from the bits of its exponent and its fraction; remove it"
        if self.format is None:
            yield ("kind", None), f"{what} is a float; write the bits of its 'exponent' and its 'fraction'"
            return
        if self.bias == self.format.usual_bias:
            yield "bias", f"'bias' of {what} is {self.bias} without the key; remove it"
        if self.format.bits not in (8, 16) and self.format.name not in _CPP:
            fix = (
                "write an exponent and a fraction of 7 or 15 bits together, or of 8 and 23 as f32, or 11 and 52 as f64"
            )
            yield "exponent", f"{what} has {self.format.bits} bits with its sign; {fix}"
        elif self.is_short and not (1 <= self.format.bias <= _F32_BIAS and self.format.max <= _F32_MAX):
            key = "exponent" if self.bias is None else "bias"
            yield key, f"{what} has normal numbers that f32 lacks, in which it is computed; change its {key}"
        if self.multiplicand and self.format.name != _MULTIPLICANDS.get(self.multiplicand):
            own = next((name for name, each in _MULTIPLICANDS.items() if each == self.format.name), None)
            fix = f"write {own}" if own else "remove it"
            yield "multiplicand", f"'multiplicand' of {what}, which is {self.format.name}, is another float; {fix}"


@dataclass(frozen=True)
class DTypes:
    """The element types.

    Ops, kernels and backends name sets of them: `all`, `number` (all but truth values), `real` (numbers that have an
    order), `integer`, `float`, `half` (floats that matrix cores multiply), `complex`, `wide` (real numbers of 8 bytes)
    and `index` (those with an `index_mark`).
    """

    dtypes: Annotated[tuple[DType, ...], "The dtypes by name, in the order in which they are listed everywhere."]


SETS: Final[Mapping[str, Function[[DType], bool]]] = {
    "all": lambda _: True,
    "number": lambda dtype: dtype.kind != "bool",
    "real": lambda dtype: dtype.kind != "bool" and not dtype.is_complex,
    "integer": lambda dtype: dtype.is_integer,
    "float": lambda dtype: dtype.kind == "float",
    "half": lambda dtype: dtype.multiplicand is not None,
    "complex": lambda dtype: dtype.is_complex,
    "wide": lambda dtype: dtype.bytes == MAX_BYTES and not dtype.is_complex,
    "index": lambda dtype: dtype.may_index,
}
"""The sets of dtypes that have a name: whether they have a dtype."""
