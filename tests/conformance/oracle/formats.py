"""The number formats: what each dtype can hold, and correct rounding into it, bit by bit."""

from __future__ import annotations

import math
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
    """A binary float: the bits of its exponent and its fraction, and which codes are no finite numbers.

    Without `specials` the highest exponent has infinities and NaNs. With "fn" the last code of each sign is the only
    NaN, with "fnuz" the code of -0.0 is; what is too large for these, infinity included, becomes the largest number.
    """

    numpy: np.dtype[Any]
    exponent_bits: int
    fraction_bits: int
    specials: str = ""

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def precision(self) -> int:
        """The bits of the significand, with the hidden one."""
        return self.fraction_bits + 1

    @property
    def min_exponent(self) -> int:
        """That of the smallest normal number."""
        return 2 - (1 << (self.exponent_bits - 1)) - (self.specials == "fnuz")

    @property
    def smallest_normal(self) -> float:
        return math.ldexp(1, self.min_exponent)

    @property
    def smallest_subnormal(self) -> float:
        return math.ldexp(1, self.min_exponent - self.fraction_bits)

    @property
    def saturates(self) -> bool:
        return bool(self.specials)

    @property
    def infinity(self) -> int:
        """The code after that of the largest finite number."""
        every = 1 << (self.bits - 1)
        return every - {"": 1 << self.fraction_bits, "fn": 1, "fnuz": 0}[self.specials]

    @property
    def largest(self) -> float:
        exponent, fraction = divmod(self.infinity - 1, 1 << self.fraction_bits)
        return math.ldexp((1 << self.fraction_bits) + fraction, exponent - 1 + self.min_exponent - self.fraction_bits)

    @property
    def raw(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.bits // 8}")

    @property
    def quiet_nan(self) -> int:
        return self.infinity if self.specials else self.infinity | 1 << (self.fraction_bits - 1)


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
    "bf16": FloatFormat(np.dtype(ml_dtypes.bfloat16), 8, 7),
    "f16": FloatFormat(np.dtype(np.float16), 5, 10),
    "f32": FloatFormat(np.dtype(np.float32), 8, 23),
    "f64": FloatFormat(np.dtype(np.float64), 11, 52),
    "f8e4m3": FloatFormat(np.dtype(ml_dtypes.float8_e4m3fn), 4, 3, "fn"),
    "f8e5m2": FloatFormat(np.dtype(ml_dtypes.float8_e5m2), 5, 2),
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
    if array.dtype.names is not None:
        return decode_bits(name, array)
    # NumPy widens exactly, as the tests of the oracle see from the bits; a signalling NaN it warns of.
    with np.errstate(invalid="ignore"):
        wide = EXTENDED_COMPLEX if name in COMPLEX else EXTENDED
        return (array.astype(np.float32) if name in HALVES else array).astype(wide)


def decode_bits(name: str, array: Array) -> Array:
    """The same of a float dtype from the parts of each number."""
    number_format = FLOATS[name]
    bits = np.ascontiguousarray(array).view(number_format.raw).astype(np.uint64).reshape(array.shape)
    sign = np.uint64(1 << (number_format.bits - 1))
    exponent, fraction = np.divmod(bits & (sign - np.uint64(1)), np.uint64(1 << number_format.fraction_bits))
    significand = fraction.astype(EXTENDED)
    significand += np.where(exponent > 0, EXTENDED(2) ** number_format.fraction_bits, EXTENDED(0))
    exponent = np.maximum(exponent.astype(np.int64), 1) - 1 + number_format.min_exponent
    magnitude = np.ldexp(significand, exponent - number_format.fraction_bits)
    above = (bits & (sign - np.uint64(1))).astype(np.int64) - number_format.infinity
    if not number_format.specials:
        magnitude = np.where(above == 0, EXTENDED("inf"), magnitude)
        above -= 1
    magnitude = np.where((above >= 0) | (bits == sign) & (number_format.specials == "fnuz"), EXTENDED("nan"), magnitude)
    return np.where(bits >= sign, -magnitude, magnitude)


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
    index = np.minimum(np.maximum(exponent - (1 + lowest), 0), len(units) - 1)
    # `frexp` gives 0 for zero, NaN and infinity.
    index = np.where(np.isfinite(magnitude) & (magnitude != 0), index, np.isinf(magnitude) * (len(units) - 1))
    result: Array = units[index]
    return result


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
    fraction_bits = number_format.fraction_bits
    significand = np.where(np.isfinite(magnitude), magnitude / quantum, EXTENDED(0)).astype(np.uint64)
    _, exponent = np.frexp(quantum)
    # A normal significand's hidden bit carries into the exponent field, and a denormal lacks it: one sum serves both,
    # and also a significand that was rounded up to the next power of two.
    steps = exponent.astype(np.int64) - 1 + fraction_bits - number_format.min_exponent
    bits = (steps.astype(np.uint64) << np.uint64(fraction_bits)) + significand
    bits = np.where(np.isinf(magnitude), np.uint64(number_format.infinity), bits)
    bits = np.where(np.isnan(magnitude), np.uint64(number_format.quiet_nan), bits)
    is_negative = np.signbit(rounded)
    if number_format.specials == "fnuz":
        is_negative &= ~np.isnan(magnitude) & (magnitude > 0)
    bits = bits | (is_negative.astype(np.uint64) << np.uint64(number_format.bits - 1))
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
    integral = np.trunc(np.where(np.isnan(value), EXTENDED(0), np.asarray(value, EXTENDED)))
    clipped = np.clip(integral, EXTENDED(number_format.lowest), EXTENDED(number_format.highest))
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
