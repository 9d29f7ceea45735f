"""The number formats: what each dtype can hold, and correct rounding into it, bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

EXTENDED = np.longdouble
EXTENDED_COMPLEX = np.clongdouble
EXTENDED_IS_WIDE = np.finfo(EXTENDED).nmant >= 63


@dataclass(frozen=True)
class IntegerFormat:
    """An integer of `bits` bits in two's complement."""

    numpy: np.dtype[Any]
    bits: int
    signed: bool

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        return (1 << (self.bits - int(self.signed))) - 1


@dataclass(frozen=True)
class FloatFormat:
    """A binary float: `precision` counts the hidden bit, 2**min_exponent is the smallest normal number."""

    numpy: np.dtype[Any]
    bits: int
    precision: int
    min_exponent: int
    largest: float
    # Without infinities (f8e4m3) what is too large, infinity included, becomes the largest number.
    saturates: bool = False

    @property
    def raw(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.bits // 8}")

    @property
    def quiet_nan(self) -> int:
        exponent_bits = self.bits - self.precision
        exponent = ((1 << exponent_bits) - 1) << (self.precision - 1)
        return exponent | (0x7 if self.saturates else 1 << (self.precision - 2))


@dataclass(frozen=True)
class ComplexFormat:
    """A real and an imaginary part, each a number of float dtype `part`."""

    numpy: np.dtype[Any]
    part: str


INTEGERS = {
    # A truth value counts as a number of one bit, of which conversions alone know more.
    "bool": IntegerFormat(np.dtype(np.bool_), 1, signed=False),
    "u8": IntegerFormat(np.dtype(np.uint8), 8, signed=False),
    "u16": IntegerFormat(np.dtype(np.uint16), 16, signed=False),
    "u32": IntegerFormat(np.dtype(np.uint32), 32, signed=False),
    "u64": IntegerFormat(np.dtype(np.uint64), 64, signed=False),
    "i8": IntegerFormat(np.dtype(np.int8), 8, signed=True),
    "i16": IntegerFormat(np.dtype(np.int16), 16, signed=True),
    "i32": IntegerFormat(np.dtype(np.int32), 32, signed=True),
    "i64": IntegerFormat(np.dtype(np.int64), 64, signed=True),
}
FLOATS = {
    "bf16": FloatFormat(np.dtype(ml_dtypes.bfloat16), 16, 8, -126, float.fromhex("0x1.fep127")),
    "f16": FloatFormat(np.dtype(np.float16), 16, 11, -14, 65504.0),
    "f32": FloatFormat(np.dtype(np.float32), 32, 24, -126, float.fromhex("0x1.fffffep127")),
    "f64": FloatFormat(np.dtype(np.float64), 64, 53, -1022, float.fromhex("0x1.fffffffffffffp1023")),
    "f8e4m3": FloatFormat(np.dtype(ml_dtypes.float8_e4m3fn), 8, 4, -6, 448.0, saturates=True),
    "f8e5m2": FloatFormat(np.dtype(ml_dtypes.float8_e5m2), 8, 3, -14, 57344.0),
}
COMPLEX = {
    "complex64": ComplexFormat(np.dtype(np.complex64), "f32"),
    "complex128": ComplexFormat(np.dtype(np.complex128), "f64"),
}
NUMPY = {name: number_format.numpy for name, number_format in (INTEGERS | FLOATS | COMPLEX).items()}
HALVES = tuple(name for name, number_format in FLOATS.items() if number_format.bits < 32)
# The index that means "no row"; u8 has none.
NO_ROW = {"u8": None, **{name: integer.highest for name, integer in INTEGERS.items() if name not in ("u8", "bool")}}


def compute_name(name: str) -> str:
    """The dtype in which arithmetic on `name` is done."""
    return "f32" if name in HALVES else name


def name_of(array: Array) -> str:
    """The name of the dtype of an array."""
    return next(name for name, dtype in NUMPY.items() if dtype == array.dtype)


def part_name(name: str) -> str:
    """The dtype of the parts of a complex dtype; any other dtype itself."""
    return COMPLEX[name].part if name in COMPLEX else name


def joined(real: Array, imaginary: Array) -> Array:
    """Extended complex numbers of extended parts. A product with 1j would make NaN of an infinity."""
    result = np.empty(np.broadcast(real, imaginary).shape, EXTENDED_COMPLEX)
    result.real, result.imag = real, imaginary
    return result


def decode(name: str, array: Array) -> Array:
    """The exact values of an array of dtype `name`, extended; of a complex one extended complex numbers."""
    # NumPy widens exactly, as the tests of the oracle see from the bits; a signalling NaN it warns of.
    with np.errstate(invalid="ignore"):
        wide = EXTENDED_COMPLEX if name in COMPLEX else EXTENDED
        return (array.astype(np.float32) if name in HALVES else array).astype(wide)


def decode_bits(name: str, array: Array) -> Array:
    """The same of a float dtype from the parts of each number."""
    number_format = FLOATS[name]
    bits = np.ascontiguousarray(array).view(number_format.raw).astype(np.uint64).reshape(array.shape)
    fraction_bits = number_format.precision - 1
    fraction = (bits & np.uint64((1 << fraction_bits) - 1)).astype(EXTENDED)
    exponent_ones = (1 << (number_format.bits - number_format.precision)) - 1
    exponent = ((bits >> np.uint64(fraction_bits)) & np.uint64(exponent_ones)).astype(np.int64)
    negative = (bits >> np.uint64(number_format.bits - 1)) == 1
    normal = exponent > 0
    significand = fraction + np.where(normal, EXTENDED(2) ** fraction_bits, EXTENDED(0))
    magnitude = np.ldexp(significand, np.maximum(exponent, 1) - 1 + number_format.min_exponent - fraction_bits)
    top = exponent == exponent_ones
    if number_format.saturates:
        magnitude = np.where(top & (fraction == 7), EXTENDED("nan"), magnitude)
    else:
        special = np.where(fraction == 0, EXTENDED("inf"), EXTENDED("nan"))
        magnitude = np.where(top, special, magnitude)
    return np.where(negative, -magnitude, magnitude)


@cache
def _units(name: str) -> Array:
    """The units in the last place for each exponent, from that of the smallest normal number on."""
    number_format = FLOATS[name]
    _, highest = np.frexp(number_format.largest)
    exponents = np.arange(number_format.min_exponent, highest) - (number_format.precision - 1)
    return np.ldexp(EXTENDED(1), exponents)


def spacing(name: str, value: Array) -> Array:
    """The unit in the last place of `name` at `value`: in the denormal range the denormal spacing."""
    units, lowest = _units(name), FLOATS[name].min_exponent
    magnitude = np.abs(value)
    _, exponent = np.frexp(magnitude)
    place = np.minimum(np.maximum(exponent - (1 + lowest), 0), len(units) - 1)
    # `frexp` gives 0 for zero, NaN and infinity.
    place = np.where(np.isfinite(magnitude) & (magnitude != 0), place, np.isinf(magnitude) * (len(units) - 1))
    found: Array = units[place]
    return found


def _rounded(name: str, value: Array) -> tuple[Array, Array]:
    """`round_values`, and the unit in the last place of `value`."""
    number_format = FLOATS[name]
    value = np.asarray(value, EXTENDED)
    quantum = spacing(name, value)
    with np.errstate(all="ignore"):
        rounded = np.rint(value / quantum) * quantum
        largest = EXTENDED(number_format.largest)
        if number_format.saturates:
            rounded = np.clip(rounded, -largest, largest)
        else:
            # `quantum` is clamped at the largest number, so half a quantum above it rounds away and below it back.
            rounded = np.where(np.abs(rounded) > largest, np.copysign(EXTENDED("inf"), value), rounded)
    return np.copysign(rounded, value), quantum


def round_values(name: str, value: Array) -> Array:
    """`value`, extended and exact, rounded once to nearest even into float dtype `name`; still extended."""
    return _rounded(name, value)[0]


def encode(name: str, value: Array) -> Array:
    """`value`, extended and exact, as an array of float or complex dtype `name`, rounded once to nearest even."""
    if name in COMPLEX:
        with np.errstate(all="ignore"):
            return np.asarray(value, EXTENDED_COMPLEX).astype(NUMPY[name])
    # NumPy rounds to others by way of f64.
    if name in ("f32", "f64"):
        with np.errstate(all="ignore"):
            return np.asarray(value, EXTENDED).astype(NUMPY[name])
    return encode_bits(name, value)


def encode_bits(name: str, value: Array) -> Array:
    """The same by way of the parts of each number."""
    number_format = FLOATS[name]
    rounded, quantum = _rounded(name, value)
    magnitude = np.abs(rounded)
    fraction_bits = number_format.precision - 1
    significand = np.where(np.isfinite(magnitude), magnitude / quantum, EXTENDED(0)).astype(np.uint64)
    _, exponent = np.frexp(quantum)
    # A normal significand's hidden bit carries into the exponent field, and a denormal lacks it: one sum serves both,
    # and also a significand that was rounded up to the next power of two.
    steps = exponent.astype(np.int64) - 1 + fraction_bits - number_format.min_exponent
    bits = (steps.astype(np.uint64) << np.uint64(fraction_bits)) + significand
    infinity = number_format.quiet_nan & ~((1 << fraction_bits) - 1)
    bits = np.where(np.isinf(magnitude), np.uint64(infinity), bits)
    bits = np.where(np.isnan(magnitude), np.uint64(number_format.quiet_nan), bits)
    bits = bits | (np.signbit(rounded).astype(np.uint64) << np.uint64(number_format.bits - 1))
    return bits.astype(number_format.raw).view(number_format.numpy).reshape(np.shape(value))


def wide(name: str, array: Array) -> Array:
    """An array of an integer dtype in the type of 64 bits that has its numbers."""
    return array.astype(np.int64 if INTEGERS[name].signed else np.uint64)


def wrap(name: str, value: Array) -> Array:
    """Integers of any 64-bit kind modulo 2**n, as an array of integer dtype `name`; what is not 0 is True."""
    number_format = INTEGERS[name]
    if name == "bool":
        return value.astype(np.bool_)
    bits = value.astype(np.uint64) & np.uint64((1 << number_format.bits) - 1)
    return bits.astype(f"u{number_format.bits // 8}").view(number_format.numpy)


def truncate(name: str, value: Array) -> Array:
    """Extended values as an array of integer dtype `name`: toward zero, saturated, NaN to 0."""
    number_format = INTEGERS[name]
    whole = np.trunc(np.where(np.isnan(value), EXTENDED(0), np.asarray(value, EXTENDED)))
    clipped = np.clip(whole, EXTENDED(number_format.lowest), EXTENDED(number_format.highest))
    return clipped.astype(number_format.numpy)


def convert(source: str, target: str, array: Array) -> Array:
    """to_dtype, which has no other dtypes than bool and complex ones for complex numbers."""
    if target in FLOATS or target in COMPLEX:
        return encode(target, decode(source, array))
    if target == "bool":
        return decode(source, array) != 0
    if source in INTEGERS:
        return wrap(target, array.astype(np.int64))
    return truncate(target, decode(source, array))


def from_number(name: str, number: complex) -> Array:
    """One f64 or complex128 number converted to `name` as to_dtype does, as an array of rank 0."""
    if isinstance(number, complex):
        return convert("complex128", name, np.asarray(number, np.complex128))
    return convert("f64", name, np.asarray(number, np.float64))
