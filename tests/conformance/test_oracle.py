"""The oracle itself: published test vectors, values from exact arithmetic, every bit pattern of small formats."""

from __future__ import annotations

import cmath
import itertools
import math
import struct
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from .comparison import assert_close, assert_same
from .oracle import blocks, elementwise, functions, gradients, indexing, movement, randomness, reductions, windows
from .oracle.formats import (
    EXTENDED,
    EXTENDED_COMPLEX,
    FLOATS,
    HALVES,
    INTEGERS,
    convert,
    decode,
    decode_bits,
    encode,
    encode_bits,
    from_number,
    spacing,
)

F64_ULP = 2.0**-53


def bits_of(name: str, value: float) -> int:
    return int(encode(name, EXTENDED(value)).view(FLOATS[name].raw))


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(counter, key, expected):
    assert randomness.philox(counter, key) == expected


@pytest.mark.parametrize(
    ("name", "value", "bits"),
    [
        ("f16", 1.0, 0x3C00),
        ("f16", 65504.0, 0x7BFF),
        ("f16", 65519.99, 0x7BFF),
        ("f16", 65520.0, 0x7C00),
        ("f16", -65520.0, 0xFC00),
        ("f16", 2.0**-24, 0x0001),
        ("f16", 2.0**-25, 0x0000),
        ("f16", 1.0001 * 2.0**-25, 0x0001),
        ("f16", 3 * 2.0**-25, 0x0002),
        ("f16", 2.0**-14 - 2.0**-25, 0x0400),
        ("f16", 1 + 2.0**-11, 0x3C00),
        ("f16", 1 + 3 * 2.0**-11, 0x3C02),
        ("f16", -0.0, 0x8000),
        ("bf16", 1 + 2.0**-8, 0x3F80),
        ("bf16", 1 + 3 * 2.0**-8, 0x3F82),
        ("bf16", 1 + 2.0**-8 + 2.0**-40, 0x3F81),
        ("bf16", 3.4e38, 0x7F80),
        ("bf16", float.fromhex("0x1.fep127"), 0x7F7F),
        ("bf16", math.inf, 0x7F80),
        ("f8e4m3", 448.0, 0x7E),
        ("f8e4m3", 464.0, 0x7E),
        ("f8e4m3", 1e9, 0x7E),
        ("f8e4m3", -math.inf, 0xFE),
        ("f8e4m3", 2.0**-9, 0x01),
        ("f8e4m3", 2.0**-10, 0x00),
        ("f8e4m3", 1.5 * 2.0**-9, 0x02),
        ("f8e4m3", 1.0625, 0x38),
        ("f8e4m3", 1.1875, 0x3A),
        ("f8e5m2", 57344.0, 0x7B),
        ("f8e5m2", 61439.0, 0x7B),
        ("f8e5m2", 61440.0, 0x7C),
        ("f8e5m2", -math.inf, 0xFC),
        ("f8e5m2", 2.0**-16, 0x01),
        ("f8e5m2", 2.0**-17, 0x00),
        ("f8e5m2", 1.125, 0x3C),
        ("f8e5m2", 1.375, 0x3E),
        ("f32", 1 + 2.0**-24, 0x3F800000),
        ("f32", 1 + 2.0**-24 + 2.0**-52, 0x3F800001),
        ("f32", 2.0**-150, 0x00000000),
        ("f32", 1.0001 * 2.0**-150, 0x00000001),
        ("f64", 0.1, 0x3FB999999999999A),
    ],
)
def test_rounding_is_to_nearest_even(name, value, bits):
    assert bits_of(name, value) == bits


@pytest.mark.parametrize("name", FLOATS)
def test_nan_stays_nan(name):
    assert np.isnan(decode(name, encode(name, EXTENDED("nan"))))


@pytest.mark.parametrize("name", HALVES)
def test_every_bit_pattern_survives_decode_and_encode(name):
    patterns = np.arange(2 ** FLOATS[name].bits).astype(FLOATS[name].raw)
    values = decode(name, patterns.view(FLOATS[name].numpy))
    np.testing.assert_array_equal(values, decode_bits(name, patterns.view(FLOATS[name].numpy)))
    numbers = ~np.isnan(values)
    assert (encode(name, values).view(FLOATS[name].raw)[numbers] == patterns[numbers]).all()
    # ml_dtypes and NumPy decode alike; how they round is what the package is tested for.
    with np.errstate(invalid="ignore"):
        theirs = patterns.view(FLOATS[name].numpy).astype(np.float64)
    assert np.array_equal(theirs, values.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("name", ["f16", "f32"])
def test_rounding_agrees_with_the_hardware(name):
    generator = np.random.default_rng(7)
    values = np.ldexp(generator.uniform(-1, 1, 20000), generator.integers(-160, 140, 20000))
    with np.errstate(all="ignore"):
        expected = values.astype(FLOATS[name].numpy)
    assert encode_bits(name, values.astype(EXTENDED)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", FLOATS)
def test_numpy_widens_and_rounds_as_the_bits_say(name):
    generator = np.random.default_rng(8)
    bits = generator.integers(0, 2 ** FLOATS[name].bits, 20000, dtype=FLOATS[name].raw)
    values = decode(name, bits.view(FLOATS[name].numpy))
    np.testing.assert_array_equal(values, decode_bits(name, bits.view(FLOATS[name].numpy)))
    with np.errstate(all="ignore"):
        between = np.concatenate([values * EXTENDED("1.3"), values * (1 + EXTENDED(2) ** -FLOATS[name].precision)])
    between = between[~np.isnan(between)]
    assert encode(name, between).tobytes() == encode_bits(name, between).tobytes()


def test_spacing_is_the_denormal_spacing_near_zero():
    assert spacing("f32", EXTENDED(0)) == 2.0**-149
    assert spacing("f32", EXTENDED(2.0**-130)) == 2.0**-149
    assert spacing("f32", EXTENDED(1)) == 2.0**-23
    assert spacing("f32", EXTENDED(1e60)) == 2.0**104


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        ("f32", math.nan, "i32", 0),
        ("f32", -1.99, "i32", -1),
        ("f32", 1e30, "i64", 2**63 - 1),
        ("f32", -math.inf, "i64", -(2**63)),
        ("f64", -0.9, "u8", 0),
        ("f64", 255.9, "u8", 255),
        ("f64", 300.0, "u8", 255),
        ("f64", 2.0**32, "u32", 2**32 - 1),
        ("i64", -1, "u32", 2**32 - 1),
        ("i64", 2**40 + 70000, "i16", 4464),
        ("i32", -129, "u8", 127),
        ("i64", 2**53 + 1, "f64", 2**53),
        ("i64", 2**63 - 1, "f32", 2**63),
        ("i64", 2**24 + 1, "f32", 2**24),
        ("i64", 257, "bf16", 256),
        ("i64", 70000, "f16", math.inf),
        ("i64", 500, "f8e4m3", 448),
    ],
)
def test_conversions(source, value, target, expected):
    array = np.array(value, (INTEGERS | FLOATS)[source].numpy)
    assert decode(target, convert(source, target, array)) == EXTENDED(expected)


def test_f64_is_not_rounded_through_f32():
    # Through f32 this is a tie, and rounds down to even.
    assert bits_of("bf16", 1 + 2.0**-8 + 2.0**-50) == 0x3F81
    assert from_number("f16", 1 + 2.0**-11 + 2.0**-50).view(np.uint16) == 0x3C01


def decimal_erf(x: float) -> Decimal:
    square, term, total = Decimal(x) ** 2, Decimal(x), Decimal(x)
    for order in range(1, 2000):
        term = term * -square / order
        total += term / (2 * order + 1)
    return 2 * total / decimal_pi().sqrt()


def decimal_pi() -> Decimal:
    return Decimal("3.141592653589793238462643383279502884197169399375105820974944592307816406286209")


def relative_error(got: np.longdouble, exact: Decimal) -> float:
    with localcontext() as context:
        context.prec = 100
        mantissa, exponent = np.frexp(got)
        value = Decimal(int(np.ldexp(mantissa, 64))) * Decimal(2) ** (int(exponent) - 64)
        return float(abs(value / exact - 1))


@pytest.mark.parametrize("x", [1e-300, 1e-9, 0.3, 0.9, 1.4, 1.4143, 2.1, 3.7, 5.5])
def test_erf(x):
    with localcontext() as context:
        context.prec = 100
        exact = decimal_erf(x)
    assert relative_error(functions.erf(EXTENDED(x)), exact) < F64_ULP / 100
    assert functions.erf(EXTENDED(-x)) == -functions.erf(EXTENDED(x))


@pytest.mark.parametrize("x", [-38.5, -20.0, -9.3, -5.0, -3.1, -2.0, -1.9999, -1.0, -0.1, 1e-30, 0.7, 2.5, 9.0])
def test_gelu_erf(x):
    with localcontext() as context:
        context.prec = 1100
        half_square = Decimal(x) ** 2 / 2
        term, total = Decimal(x), Decimal(x)
        for order in range(1, 4000):
            term = term * half_square * 2 / (2 * order + 1)
            total += term
        # exp(-x**2 / 2) times a series of terms of one sign; 2 pi to 80 digits limits the lower tail.
        center = total * (-half_square).exp() / (2 * decimal_pi()).sqrt()
        exact = Decimal(x) * (Decimal("0.5") + center)
    if x > -12:
        assert relative_error(functions.gelu_erf(EXTENDED(x)), exact) < F64_ULP / 20
    else:
        assert relative_error(functions.gelu_erf(EXTENDED(x)), tail_by_fraction(x)) < F64_ULP / 20


def tail_by_fraction(x: float) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        magnitude = -Decimal(x)
        fraction = magnitude
        for order in range(400, 0, -1):
            fraction = magnitude + order / fraction
        return -magnitude * (-(magnitude**2) / 2).exp() / (2 * decimal_pi()).sqrt() / fraction


@pytest.mark.parametrize("x", [-21.0, -12.5, -4.5, -3.9, -1.0, -1e-20, 0.5, 3.0, 30.0])
def test_gelu(x):
    with localcontext() as context:
        context.prec = 80
        u = (2 / decimal_pi()).sqrt() * (Decimal(x) + Decimal("0.044715") * Decimal(x) ** 3)
        exact = Decimal(x) / (1 + (-2 * u).exp())
    assert relative_error(functions.gelu(np.array(x, EXTENDED)), exact) < F64_ULP / 20


@pytest.mark.parametrize("x", [-745.0, -90.0, -0.5, 3.0, 50.0])
def test_silu_and_sigmoid(x):
    with localcontext() as context:
        context.prec = 80
        exact = 1 / (1 + (-Decimal(x)).exp())
        assert relative_error(functions.sigmoid(EXTENDED(x)), exact) < F64_ULP / 100
        assert relative_error(functions.silu(EXTENDED(x)), exact * Decimal(x)) < F64_ULP / 100


@pytest.mark.parametrize("x", [-700.0, -1e-12, 1e-300, 0.1, 1.0, 700.0])
def test_exp_and_tanh_of_the_platform(x):
    with localcontext() as context:
        context.prec = 80
        assert relative_error(np.exp(EXTENDED(x)), Decimal(x).exp()) < F64_ULP / 100
        if abs(x) > 1e-11:
            twice = (2 * Decimal(x)).exp()
            assert relative_error(np.tanh(EXTENDED(x)), (twice - 1) / (twice + 1)) < F64_ULP / 100


@pytest.mark.parametrize("x", [3.141592653589793, 1e5, 99999.99, 710.5, 1e-8])
def test_sin_and_cos_of_the_platform(x):
    with localcontext() as context:
        context.prec = 80
        reduced = Decimal(x) % (2 * decimal_pi())
        sine, cosine, term = Decimal(0), Decimal(0), Decimal(1)
        for order in range(80):
            cosine += (-1) ** order * term
            term = term * reduced / (2 * order + 1)
            sine += (-1) ** order * term
            term = term * reduced / (2 * order + 2)
        assert relative_error(np.sin(EXTENDED(x)), sine) < F64_ULP / 20
        assert relative_error(np.cos(EXTENDED(x)), cosine) < F64_ULP / 20


NUMBERS = [0.0, -0.0, 0.25, -0.75, 1.0, -1.0, 3.5, -20.0, math.inf, -math.inf, math.nan]
# By the names that the module of Python's standard library has.
CMATH = {
    **{op: op for op in ("exp", "log", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sqrt")},
    **{op: op for op in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
}


@pytest.mark.parametrize("op", CMATH)
def test_functions_of_complex_numbers_have_the_values_and_edges_of_python(op):
    for real, imaginary in itertools.product(NUMBERS, NUMBERS):
        z = complex(real, imaginary)
        # What a NaN beside 0 gives is since C11's corrections no NaN, which Python lacks.
        if op in ("tan", "tanh", "acosh") and math.isnan(real + imaginary) and 0 in (real, imaginary):
            continue
        try:
            expected = np.array([getattr(cmath, CMATH[op])(z)])
        except ValueError:
            continue  # where Python has no number, C has an infinity
        actual = elementwise.unary(op, "complex128", np.array([z]))
        assert_close("complex128", actual.astype(np.complex128), expected.astype(EXTENDED_COMPLEX), 8, f"{op} of {z}")


@pytest.mark.parametrize("op", ["log1p", "expm1", "log2"])
def test_functions_of_complex_numbers_that_python_lacks_agree_with_those_of_numpy(op):
    numbers = np.array([complex(*parts) for parts in itertools.product(NUMBERS, NUMBERS)])
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(numbers)
    actual = elementwise.unary(op, "complex128", numbers).astype(np.complex128)
    # NumPy's formula of expm1 has NaN beside some infinities where the array API standard has numbers.
    is_number = np.isfinite(expected)
    np.testing.assert_allclose(actual[is_number], expected[is_number], rtol=1e-14, atol=1e-15)
    assert (np.isnan(actual) <= np.isnan(expected)).all()
    assert np.isnan(actual[np.isnan(numbers) & (np.abs(numbers.real) < 20)]).all()
    small = np.array([1e-20 + 1e-25j, -1e-9j, 1e-12 + 1e-3j])
    near = elementwise.unary("log1p" if op == "log2" else "expm1", "complex128", small)
    np.testing.assert_allclose(near.real, [1e-20, *near.real[1:]], rtol=1e-15)


def test_products_quotients_and_powers_of_complex_numbers():
    generator = np.random.default_rng(5)
    z, w = (generator.normal(size=50) + 1j * generator.normal(size=50) for _ in range(2))
    for op, theirs in {"mul": z * w, "div": z / w, "pow": z**w, "add": z + w, "sub": z - w}.items():
        np.testing.assert_allclose(elementwise.binary(op, "complex128", z, w).astype(complex), theirs, rtol=1e-14)
    wide = elementwise.binary("div", "complex128", np.array([1e300 + 1e300j]), np.array([1e300 - 1e-300j]))
    np.testing.assert_allclose(wide.astype(complex), [1 + 1j])
    zero, numbers = np.zeros(3, complex), np.array([2, 0, 1 - 5j])
    assert elementwise.binary("pow", "complex128", zero, numbers).tolist() == [0, 1, 0]
    assert elementwise.unary("sign", "complex64", np.array([3 - 4j, 0], np.complex64)).astype(complex).tolist() == [
        0.6 - 0.8j,
        0,
    ]


def test_parts_of_complex_numbers_are_converted_and_compared_each():
    numbers = np.array([complex(-0.0, math.inf), 1 + 2.0**-30 + 1e300j, complex(math.nan, 0)])
    narrow = convert("complex128", "complex64", numbers)
    assert str(narrow.tolist()) == "[(-0+infj), (1+infj), (nan+0j)]"
    assert convert("complex128", "bool", np.array([0j, -0.0, 1e-300j, math.nan])).tolist() == [False, False, True, True]
    assert convert("i64", "complex64", np.array([2**24 + 1])).tolist() == [2**24]
    assert from_number("complex64", 2.5 - 1e-60j) == 2.5
    assert elementwise.compare("eq", "complex64", narrow, narrow).tolist() == [True, True, False]
    with pytest.raises(AssertionError, match="1 of 3 elements"):
        assert_same(narrow, np.array([complex(0.0, math.inf), narrow[1], math.nan], np.complex64), "zeros")
    close = np.array([1 + 3e-16j, math.inf + math.nan * 1j])
    assert_close("complex128", close, np.array([1, -math.inf + 1j * math.nan]).astype(EXTENDED_COMPLEX), 2, "parts")
    with pytest.raises(AssertionError, match="off by"):
        assert_close("complex128", close[:1], np.array([1 + 1e-15j]).astype(EXTENDED_COMPLEX), 2, "parts")


def test_functions_at_the_edges():
    minus_infinity = np.array(-np.inf, EXTENDED)
    for function in (functions.gelu, functions.gelu_erf, functions.silu):
        with np.errstate(all="ignore"):
            lowest, highest = function(minus_infinity), function(-minus_infinity)
        assert lowest == 0
        assert np.signbit(lowest)
        assert highest == np.inf
    assert functions.erf(minus_infinity) == -1
    assert np.signbit(functions.erf(np.array(-0.0, EXTENDED)))


def test_round_goes_away_from_zero():
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, -0.4], EXTENDED)
    assert functions.round_half_away(x).tolist() == [1, -1, 2, 3, -3, 0, 0]
    assert np.signbit(functions.round_half_away(x))[-1]


def test_turns():
    turns = np.array([0, 0.125, 0.25, 0.5, 0.75], EXTENDED)
    assert np.allclose(functions.cos_turns(turns).astype(float), [1, math.sqrt(0.5), 0, -1, 0], atol=0, rtol=1e-15)
    assert np.allclose(functions.sin_turns(turns).astype(float), [0, math.sqrt(0.5), 1, 0, -1], atol=0, rtol=1e-15)


def test_integers():
    smallest = np.array([-(2**31), 7, -7, 5, 2**31 - 1], np.int32)
    divisor = np.array([-1, -2, 2, 0, 1], np.int32)
    assert elementwise.binary("div", "i32", smallest, divisor).tolist() == [-(2**31), -3, -3, 0, 2**31 - 1]
    assert elementwise.unary("neg", "i32", smallest)[0] == -(2**31)
    assert elementwise.unary("abs", "i32", smallest)[0] == -(2**31)
    assert elementwise.unary("neg", "u8", np.array([0, 1, 255], np.uint8)).tolist() == [0, 255, 1]
    assert elementwise.unary("sqr", "i16", np.array([300], np.int16)).tolist() == [24464]
    assert elementwise.affine("u8", np.array([200], np.uint8), 2.9, -3.0).tolist() == [144]
    least = np.array([-(2**63)], np.int64)
    assert elementwise.binary("div", "i64", least, np.array([-1])).tolist() == [-(2**63)]


def test_affine_of_f64_is_exact():
    x, mul, add = 1 + 2.0**-52, 1 + 2.0**-52, -1.0
    exact = Fraction(x) * Fraction(mul) + Fraction(add)
    got = elementwise.affine("f64", np.array([x]), mul, add)[0]
    assert Fraction(float(got)) + Fraction(float(got - EXTENDED(float(got)))) == exact


def test_reductions():
    values = np.array([[3.0, np.nan, 1.0], [2.0, 2.0, 5.0], [5.0, 5.0, -1.0]], np.float32)
    assert reductions.extreme_position("argmax", "f32", values, (1,)).ravel().tolist() == [1, 2, 0]
    assert reductions.extreme_position("argmin", "f32", values, (1,)).ravel().tolist() == [1, 0, 2]
    assert reductions.extreme_position("argmax", "f32", values[1:], (0, 1)).tolist() == [[2]]
    assert reductions.sum_exact("u8", np.array([255, 2], np.uint8), (0,))[0].tolist() == [1]
    assert reductions.sum_exact("f32", values[:, :0], (1,))[0].tolist() == [[0], [0], [0]]


def test_matmul_and_convolution_agree_with_numpy():
    generator = np.random.default_rng(3)
    lhs, rhs = generator.normal(size=(2, 3, 5)), generator.normal(size=(2, 5, 4))
    assert np.allclose(reductions.matmul("f64", lhs, rhs)[0].astype(float), lhs @ rhs)
    signal, kernel = generator.normal(size=(1, 1, 1, 9)), generator.normal(size=(1, 1, 1, 3))
    got = windows.convolve("f64", signal, kernel, windows.Window())[0]
    assert np.allclose(got[0, 0, 0].astype(float), np.correlate(signal[0, 0, 0], kernel[0, 0, 0], "valid"))


def test_transposed_convolution_is_the_adjoint():
    generator = np.random.default_rng(4)
    window = windows.Window((1, 2), (2, 1), (1, 2), (1, 0))
    image, kernel = generator.normal(size=(1, 2, 4, 5)), generator.normal(size=(2, 3, 3, 2))
    forward = windows.convolve_transposed("f64", image, kernel, window)[0]
    other = generator.normal(size=forward.shape)
    back = windows.convolve("f64", other, kernel, windows.Window((1, 2), (2, 1), (1, 2)))[0]
    assert np.allclose(float((forward * other).sum()), float((image * back[:, :, :4, :5]).sum()))


def test_upsampling():
    row = np.arange(4.0).reshape(1, 1, 1, 4)
    assert windows.upsample_nearest(row, (1, 6)).ravel().tolist() == [0, 0, 1, 2, 2, 3]
    doubled = windows.upsample_bilinear("f64", row, (1, 8), align_corners=False)[0]
    assert doubled.ravel().tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]
    kept = windows.upsample_bilinear("f64", row, (2, 4), False, (None, 1.5))[0]
    assert kept.ravel().tolist() == 2 * [0, 1, 2, 3]
    aligned = windows.upsample_bilinear("f64", row, (1, 7), align_corners=True)[0]
    assert aligned.ravel().tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]


def test_max_pool_prefers_nan():
    image = np.array([[np.inf, np.nan], [1, 2]], np.float32).reshape(1, 1, 2, 2)
    assert np.isnan(windows.max_pool2d(image, "f32", (2, 2), (1, 1))).all()
    assert windows.max_pool2d(image, "f32", (1, 1), (1, 1)).ravel()[0] == np.inf


def test_indexing():
    values, source = np.zeros(3, np.float32), np.array([1, 2, 3, 4], np.float32)
    indexes = np.array([2, 0, 2, 2**31 - 1], np.int32)
    assert indexing.scatter_set(values, indexes, "i32", source, 0).tolist() == [2, 0, 3]
    assert indexing.scatter_add("f32", values, indexes, "i32", source, 0).tolist() == [2, 0, 4]
    assert indexing.index_add("f32", values, indexes, "i32", source, 0).tolist() == [2, 0, 4]
    assert indexing.gather(source, indexes, 0).tolist() == [3, 1, 3, 0]
    assert indexing.index_select(source, indexes, 0).tolist() == [3, 1, 3, 0]


def test_copy2d():
    copied = movement.copy2d(np.arange(10), np.zeros(8, np.int64), 2, 2, (5, 3), (1, 2))
    assert copied.tolist() == [0, 0, 1, 2, 0, 6, 7, 0]


@pytest.mark.parametrize("name", FLOATS)
def test_uniform_stays_below_its_bound(name):
    low, up = 0.0, 1.0
    values = decode(name, randomness.uniform(name, 5, 0, 3000, low, up))
    assert (values >= low).all()
    assert (values < up).all()
    lowest, highest = randomness.uniform_range(name, low, up)
    assert lowest == 0
    assert highest == 1 - EXTENDED(2.0) ** -FLOATS[name].precision


def test_normal_has_the_moments_of_one():
    values = randomness.normal("f64", 11, 0, 20000).astype(float)
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.02


@pytest.mark.parametrize(("name", "layout"), [("Q8_1", "<e2x32b"), ("Q8K", "<f256b32x")])
def test_blocks_of_bytes_are_decoded_as_candle_defines_them(name, layout):
    """BlockQ8K::to_float of candle-core/src/quantized/k_quants.rs, and the same of Q8_1, by Python's own numbers."""
    data = blocks.random_blocks(np.random.default_rng(9), name, 100 * blocks.SIZES[name][0], (0.5, -3.0, 65504.0))
    expected = [
        scale * float(quant) for scale, *quants in struct.iter_unpack(layout, data.tobytes()) for quant in quants
    ]
    with np.errstate(over="ignore"):
        rounded = np.array(expected).astype(np.float32)
        got = blocks.decode(name, data)
    np.testing.assert_array_equal(got.view(np.uint32), rounded.view(np.uint32))


# Where the functions are smooth, and x is no other number than in f64.
NEAR = [-7.25, -2.5, -1.3125, -0.625, 0.4375, 1.1875, 2.75, 5.5]
PARAMETERS = {"leaky_relu": (0.25,), "clamp": (-1.0, 2.0), "powf": (1.75,), "elu": (0.5,), "huber": (2.5,)}


STEP = EXTENDED(2) ** -10


@pytest.mark.parametrize("op", [*gradients.OF_ONE, *(f"{name}_gradient" for name in PARAMETERS if name != "huber")])
def test_gradients_of_one_operand_are_slopes_of_the_oracle(op):
    functor = op.removesuffix("_gradient")
    x = np.array(NEAR, EXTENDED)
    x = np.abs(x) if functor in ("sqrt", "rsqrt", "log1p", "log2", "log10", "powf") else x
    x = x / 8 if functor in ("asin", "acos", "atanh") else x
    numbers = PARAMETERS.get(functor, ())
    inputs = elementwise.unary(functor, "f64", x) if functor in ("sqrt", "tan", "exp2") else x
    actual = gradients.gradient(op, "f64", np.full_like(x, 3), inputs, parameters=numbers)
    np.testing.assert_allclose(actual.value / 3, gradients.slope(op, [x], numbers, STEP), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("op", [*gradients.OF_TWO, "huber_gradient_x"])
def test_gradients_of_two_operands_are_slopes_of_the_oracle(op):
    functor = op.partition("_gradient")[0]
    x, y = (np.array(numbers, EXTENDED) for numbers in np.meshgrid(NEAR, NEAR[1::2]))
    x, y = np.abs(x) if functor == "pow" else x, y + EXTENDED(0.3)  # no multiple
    x = np.abs(x) / 8 if functor in ("bernoulli_loss", "kl_divergence") else x
    inputs, numbers = (x, y), PARAMETERS.get(functor, ())
    if functor in ("div", "hypot"):
        inputs = {"div": y, "hypot": x}[functor], elementwise.binary(functor, "f64", x, y)
    actual = gradients.gradient(op, "f64", np.full_like(x, 3), *inputs, parameters=numbers)
    np.testing.assert_allclose(actual.value / 3, gradients.slope(op, [x, y], numbers, STEP), rtol=1e-8, atol=1e-8)


def test_a_gradient_without_a_closed_form_is_a_difference():
    x = np.array([0.0, 0.5, 1.25, -3.0], np.float32)
    g = np.array([2.0, -1.0, 0.5, 4.0], np.float32)
    # That of exp is a product, and so no op of its own.
    expected = gradients.gradient("exp_gradient", "f32", g, x)
    np.testing.assert_allclose(expected.value.astype(np.float64), g * np.exp(x), rtol=1e-6)
    assert expected.is_open.tolist() == [True, False, False, False]  # 0 is not moderate
