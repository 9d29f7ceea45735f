"""Functions of complex numbers, by their definitions in extended precision; edges are those of C's Annex G.

NumPy's functions of extended complex numbers are the C library's, or C's own formulas: what is written out here are
those whose formula in NumPy loses digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .formats import EXTENDED, EXTENDED_COMPLEX, Array, joined


def log1p(z: Array) -> Array:
    """log(1 + z), whose digits near 0 a sum would lose."""
    real, imaginary = z.real, z.imag
    square = real * (2 + real) + imaginary * imaginary
    # What is far from 1 needs no more than its modulus, which does not overflow; near -1 the square would lose digits.
    magnitude = np.where(np.abs(square) < 0.5, np.log1p(square) / 2, np.log(np.hypot(1 + real, imaginary)))
    return joined(magnitude, np.arctan2(imaginary, 1 + real))


def expm1(z: Array) -> Array:
    """exp(z) - 1 = expm1(x) cos(y) - 2 sin(y / 2)^2 + i exp(x) sin(y)."""
    real, imaginary = z.real, z.imag
    full = np.exp(z)
    sine = np.sin(imaginary / 2)
    near = joined(np.expm1(real) * np.cos(imaginary) - 2 * sine * sine, full.imag)
    far = joined(full.real - 1, full.imag)
    result: Array = np.where(np.isfinite(near.real), near, far)
    # Of a real number the imaginary part is its zero, also where the real part is infinite.
    return np.where(imaginary == 0, joined(np.expm1(real), imaginary), result)


def quotient(z: Array, w: Array) -> Array:
    """z / w. The squares of all numbers of complex128 are extended ones."""
    square = w.real * w.real + w.imag * w.imag
    return joined((z.real * w.real + z.imag * w.imag) / square, (z.imag * w.real - z.real * w.imag) / square)


def product(z: Array, w: Array) -> Array:
    """z w, without what C does about infinities."""
    return joined(z.real * w.real - z.imag * w.imag, z.real * w.imag + z.imag * w.real)


def power(z: Array, w: Array) -> Array:
    """exp(w log z); z^0 is 1, and 0^w is 0 where the real part of w is positive."""
    result = np.exp(product(w, np.log(z)))
    result = np.where((z == 0) & (w.real > 0), EXTENDED_COMPLEX(0), result)
    return np.where(w == 0, EXTENDED_COMPLEX(1), result)


def sign(z: Array) -> Array:
    """z / |z|, and 0 of 0."""
    modulus = np.abs(z)
    return np.where(z == 0, EXTENDED_COMPLEX(0), joined(z.real / modulus, z.imag / modulus))


UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log2": lambda z: scaled(np.log(z), 1 / np.log(EXTENDED(2))),
    "log10": lambda z: scaled(np.log(z), 1 / np.log(EXTENDED(10))),
    "log1p": log1p,
    "expm1": expm1,
    "neg": np.negative,
    "recip": lambda z: quotient(np.ones_like(z), z),
    "sqr": lambda z: product(z, z),
    "sqrt": np.sqrt,
    "rsqrt": lambda z: quotient(np.ones_like(z), np.sqrt(z)),
    "sign": sign,
    "conj": np.conj,
    # Real numbers and truth values.
    "abs": np.abs,
    "real": lambda z: z.real,
    "imag": lambda z: z.imag,
    "angle": lambda z: np.arctan2(z.imag, z.real),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": product,
    "div": quotient,
    "pow": power,
}


def scaled(z: Array, factor: np.longdouble) -> Array:
    """z by a real number."""
    return joined(z.real * factor, z.imag * factor)
