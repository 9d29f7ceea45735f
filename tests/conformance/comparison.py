"""How far a result may be from the oracle, and messages that say where it is not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .oracle.formats import (
    COMPLEX,
    EXTENDED,
    FLOATS,
    HALVES,
    NUMPY,
    Array,
    compute_name,
    decode,
    name_of,
    part_name,
    spacing,
)
from .subnormals import are_flushed

# In units in the last place of the result's dtype; every result of a short float that
# is not exact gets 1. elu is alpha times an exponential, and counts as one.
EXACT, ROUNDED, FUNCTION = 0, 1, 4
ULPS = {
    **dict.fromkeys(["neg", "relu", "abs", "floor", "ceil", "round", "sign", "minimum", "maximum"], EXACT),
    **dict.fromkeys(["isnan", "isinf", "isfinite", "signbit", "rint", "trunc", "clamp", "fmod"], EXACT),
    **dict.fromkeys(["copysign", "nextafter", "conj", "real", "imag", "relu6", "hardshrink"], EXACT),
    **dict.fromkeys(["add", "sub", "mul", "div", "sqr", "sqrt", "affine", "recip"], ROUNDED),
    **dict.fromkeys(["exp", "log", "sin", "cos", "tanh", "erf", "gelu", "gelu_erf", "silu", "sigmoid"], FUNCTION),
    **dict.fromkeys(["powf", "elu", "normal"], FUNCTION),
    **dict.fromkeys(["log1p", "expm1", "rsqrt", "softplus", "mish", "hardswish", "pow", "atan2"], FUNCTION),
    # The quotient of a multiple of y is rounded twice before it is an integer again.
    "floor_divide": 2 * ROUNDED,
    "remainder": ROUNDED,
    **dict.fromkeys(["nan_to_num", "nan_to_num_gradient"], EXACT),
    **dict.fromkeys(["leaky_relu", "prelu", "softshrink", "round_to", "copysign_gradient_x"], ROUNDED),
    # A product may have half the unit of its factor.
    **dict.fromkeys(["silu_mul", "gelu_mul"], 2 * FUNCTION + ROUNDED),
    **dict.fromkeys(["relu_gradient", "abs_gradient", "clamp_gradient", "min_gradient"], EXACT),
    **dict.fromkeys(
        ["sqr_gradient", "sqrt_gradient", "leaky_relu_gradient", "minimum_gradient_x", "maximum_gradient_x"], ROUNDED
    ),
    **dict.fromkeys(["product", "quotient"], ROUNDED),
    **dict.fromkeys(["recip_gradient", "log1p_gradient", "rsqrt_gradient", "div_gradient_y"], 2 * ROUNDED + ROUNDED),
    **dict.fromkeys(["remainder_gradient_y", "fmod_gradient_y"], 2 * ROUNDED + ROUNDED),
    # These have several functions, one after another.
    **dict.fromkeys(["tanh_gradient", "sigmoid_gradient", "silu_gradient", "mish_gradient"], 2 * FUNCTION + ROUNDED),
    **dict.fromkeys(["gelu_gradient", "gelu_erf_gradient", "erf_gradient", "pow_gradient_y"], 2 * FUNCTION + ROUNDED),
    **dict.fromkeys(["silu_mul_gradient_x", "gelu_mul_gradient_x"], 3 * FUNCTION + ROUNDED),
}
# A function of a complex number has several of real ones, and as many roundings of its modulus.
COMPLEX_FUNCTION = 4 * FUNCTION
# Where what is infinite or NaN, and in which part, is left to the implementation: C and NumPy disagree.
LOOSE = ("mul", "div", "sqr", "recip", "rsqrt", "pow", "powf", "sign", "affine")
# Beyond this sin and cos only have to be finite and in [-1, 1].
LARGEST_ANGLE = 1e5
# A sum of n terms is off by at most this many epsilons, plus log2(n), of the sum of absolute values.
SUM_EPSILONS = 4


def tolerance(op: str, name: str) -> int:
    """The units in the last place that `op` of dtype `name` may be off; where none are listed it is a function."""
    ulps = ULPS.get(op, FUNCTION)
    if name in COMPLEX and (ulps != EXACT or op == "sign"):
        return ROUNDED if op in ("add", "sub") else COMPLEX_FUNCTION
    return min(ulps, ROUNDED) if name in HALVES else ulps


def sum_bound(name: str, magnitude: Array, count: int) -> Array:
    """Return the error bound of a sum of `count` terms in the compute dtype of `name`, before it is rounded."""
    precision = FLOATS[part_name(compute_name(name))].precision
    epsilon = EXTENDED(2) ** (1 - precision)
    return epsilon * (SUM_EPSILONS + np.log2(EXTENDED(max(count, 1)))) * magnitude


def assert_same(got: Array, expected: Array, where: str, inputs: Mapping[str, Array] | None = None) -> None:
    """Bit for bit; any NaN is as good as any other."""
    assert got.dtype == expected.dtype, f"{where}: dtype {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: shape {got.shape}, expected {expected.shape}"
    _report(is_different(got, expected), got, expected, where, inputs)


def is_different(got: Array, expected: Array) -> Array:
    """Where bits differ that are not both NaN; of complex numbers in either part."""
    if got.dtype.kind == "c":
        return is_different(got.real, expected.real) | is_different(got.imag, expected.imag)
    raw = f"u{got.dtype.itemsize}"
    different: Array = np.ascontiguousarray(got).view(raw) != np.ascontiguousarray(expected).view(raw)
    different = different.reshape(got.shape)
    if different.any():
        with np.errstate(invalid="ignore"):
            different &= ~(np.isnan(_numbers(got)) & np.isnan(_numbers(expected)))
    return different


def assert_equal_values(got: Array, expected: Array, where: str, inputs: Mapping[str, Array] | None = None) -> None:
    """Like `assert_same`, but 0.0 and -0.0 are the same, for ops of which no rule names the sign of zero."""
    zeros = (_numbers(got) == 0) & (_numbers(expected) == 0) if got.shape == expected.shape else False
    assert_same(got, np.where(zeros, got, expected).astype(expected.dtype), where, inputs)


def _numbers(array: Array) -> Array:
    """The array, or of a float that NumPy lacks the values of its elements."""
    return array if array.dtype.names is None else decode(name_of(array), array)


def assert_close(
    name: str,
    got: Array,
    expected: Array,
    ulps: float,
    where: str,
    inputs: Mapping[str, Array] | None = None,
    *,
    slack: Array | float = 0.0,
    zero_sign: bool = True,
    loose: bool = False,
) -> None:
    """Within `ulps` units in the last place of float dtype `name`, plus `slack`, of the extended `expected`.

    Of a complex dtype the units are those of the larger part, the sign of zero is free, and with `loose` a number that
    is infinite or NaN is as good as any other.
    """
    assert got.dtype == NUMPY[name], f"{where}: dtype {got.dtype}, expected {name}"
    assert got.shape == expected.shape, f"{where}: shape {got.shape}, expected {expected.shape}"
    with np.errstate(all="ignore"):
        if name in COMPLEX:
            unit = _larger_unit(name, expected)
            error = complex_error(name, got, expected, unit, loose=loose)
        else:
            unit = spacing(name, expected)
            error = ulp_error(name, got, expected, zero_sign=zero_sign, unit=unit)
        allowed: Array | float = ulps
        if np.any(slack):
            allowed = ulps + np.asarray(slack, EXTENDED) / unit
        # What the extended reference itself may be off.
        wrong = ~(error <= allowed + EXTENDED(2) ** -8)
    _report(wrong, got, expected, where, inputs, error)


def _larger_unit(name: str, expected: Array) -> Array:
    """The unit in the last place of the larger part that is finite; that of 0 where none is."""
    parts = [np.where(np.isfinite(part), np.abs(part), 0) for part in (expected.real, expected.imag)]
    return spacing(COMPLEX[name].part, np.maximum(*parts))


def complex_error(name: str, got: Array, expected: Array, unit: Array, *, loose: bool = False) -> Array:
    """The distance of the part that is farther off, in units; infinite where the parts are of different kinds."""
    part = COMPLEX[name].part
    pairs = [(got.real, expected.real), (got.imag, expected.imag)]
    error = np.maximum(*(ulp_error(part, *pair, zero_sign=False, unit=unit) for pair in pairs))
    # The sign of an infinity beside NaN is nobody's.
    is_nan = np.isnan(expected.real) | np.isnan(expected.imag)
    alike = [(np.isnan(x) & np.isnan(y)) | (np.isinf(x) & np.isinf(y)) | (x == y) for x, y in pairs]
    error = np.where(is_nan & np.logical_and(*alike), EXTENDED(0), error)
    if loose:
        error = np.where(~np.isfinite(expected) & ~np.isfinite(got), EXTENDED(0), error)
    return error


def ulp_error(name: str, got: Array, expected: Array, *, zero_sign: bool = True, unit: Array | None = None) -> Array:
    """The distance in units in the last place, or in others; infinite where the results are of different kinds."""
    number_format = FLOATS[name]
    largest = EXTENDED(number_format.largest)
    value = decode(name, got)
    if number_format.saturates:
        expected = np.where(np.isnan(expected), expected, np.clip(expected, -largest, largest))
    unit = spacing(name, expected) if unit is None else unit
    error = np.abs(value - expected) / unit
    infinite, is_nan, should_be_nan = np.isinf(value), np.isnan(value), np.isnan(expected)
    if infinite.any():
        # Infinity is right from half a unit above the largest number on.
        top = spacing(name, largest)
        beyond = np.maximum(largest + top / 2 - np.abs(expected), EXTENDED(0)) / top
        error = np.where(infinite & (np.signbit(value) == np.signbit(expected)), beyond, error)
    error = np.where(is_nan & should_be_nan, EXTENDED(0), np.where(is_nan | should_be_nan, EXTENDED("inf"), error))
    if zero_sign and number_format.specials != "fnuz":
        other_sign = (value == 0) & (np.signbit(value) != np.signbit(expected))
        # A result may be off across zero, but a zero has the sign of what it stands for.
        error = np.where(other_sign & ~should_be_nan, EXTENDED("inf"), error)
    return error


def _report(
    wrong: Array,
    got: Array,
    expected: Array,
    where: str,
    inputs: Mapping[str, Array] | None,
    error: Array | None = None,
) -> None:
    """Fail with the first element that is wrong, and the worst one."""
    if wrong.any():
        wrong = wrong & ~np.asarray(are_flushed(got, expected, inputs or {}))
    if not wrong.any():
        return
    positions = np.argwhere(wrong)
    lines = [f"{where}: {len(positions)} of {wrong.size} elements are wrong"]
    chosen = {"first": tuple(int(index) for index in positions[0])}
    if error is not None:
        ranked = np.where(wrong, error, EXTENDED(-1))
        worst = np.unravel_index(int(np.argmax(ranked)), wrong.shape)
        chosen["worst"] = tuple(int(index) for index in worst)
    for label, position in chosen.items():
        facts = [f"got {got[position]!r}", f"expected {expected[position]!r}"]
        if error is not None:
            facts.append(f"off by {float(error[position]):.4g} ulp")
        for argument, array in (inputs or {}).items():
            if array.shape == got.shape:
                facts.append(f"{argument} = {array[position]!r} ({_bits(array[position])})")
        lines.append(f"  {label} at {position}: " + ", ".join(facts))
    raise AssertionError("\n".join(lines))


def _bits(element: np.generic) -> str:
    return "0x" + element.tobytes()[::-1].hex()
