"""Numbers from Python as elements of a dtype."""

import math
from functools import lru_cache
from typing import Final

from .....dtype import DType
from .....kernels.arguments import PARAMETERS
from ....host import cast
from ....program.values import Number, Parameter, Scalar

_WORD: Final = 1 << 64
NO_PARAMETERS: Final = {family: (0,) * count for family, count in PARAMETERS.items()}
"""The `parameters` in structs of each family, for functors that have none."""


def element_bits(value: complex | Parameter, dtype: DType) -> Number:
    """The bits of `value` as an element of `dtype`: see `bits_of`."""
    return Scalar(value, bits_of, dtype) if isinstance(value, Parameter) else bits_of(value, dtype)


def bits_of(value: complex, dtype: DType, times: int = 1) -> int:
    """Return the bits of `count` elements, converted as to_dtype does."""
    if dtype.is_complex or isinstance(value, complex):
        # Either part may be a zero of either sign.
        bits = _bits.__wrapped__(value, dtype)
    elif value == 0:
        # A cache would take 0.0 and -0.0 for one number.
        bits = int(dtype.is_float and math.copysign(1, value) < 0) << (8 * dtype.itemsize - 1)
    else:
        bits = _bits(value, dtype)
    return bits if times == 1 else _repeated(bits, dtype.itemsize, times)


def element_words(value: complex | Parameter, dtype: DType, times: int = 1) -> tuple[Number, Number]:
    """Return the bits of elements, as `element_bits` has them, in two words, the lowest first."""
    if isinstance(value, Parameter):
        return Scalar(value, _low, dtype, times), Scalar(value, _high, dtype, times)
    return _low(value, dtype, times), _high(value, dtype, times)


def _low(value: complex, dtype: DType, times: int) -> int:
    return bits_of(value, dtype, times) % _WORD


def _high(value: complex, dtype: DType, times: int) -> int:
    return bits_of(value, dtype, times) // _WORD


def parameter_bits(family: str, parameters: tuple[float | Parameter, ...], dtype: DType) -> tuple[Number, ...]:
    """The parameters of a functor as the structs of its kernels hold them: their bits in the compute dtype, or that of
    the parts of complex numbers.
    """
    if not parameters:
        return NO_PARAMETERS[family]
    bits = [element_bits(number, dtype.compute.real) for number in parameters]
    return (*bits, *NO_PARAMETERS[family][len(bits) :])


def repeated_bits(bits: Number, itemsize: int, times: int) -> Number:
    """Return the bits of adjacent elements of `itemsize` bytes, each of which has these bits."""
    if isinstance(bits, Scalar) and times > 1:
        return Scalar(bits, _repeated, itemsize, times)
    return bits if not isinstance(bits, int) else _repeated(bits, itemsize, times)


def _repeated(bits: int, itemsize: int, times: int) -> int:
    return bits if times == 1 else int.from_bytes(bits.to_bytes(itemsize, "little") * times, "little")


# Typed, because a large int and the float that it equals may differ in what they are converted from.
@lru_cache(maxsize=1024, typed=True)
def _bits(value: complex, dtype: DType) -> int:
    # A number is converted on the host: a launch would take longer, and the CPU backend does it like this.
    return int.from_bytes(cast.scalar(value, dtype)[0].tobytes(), "little")
