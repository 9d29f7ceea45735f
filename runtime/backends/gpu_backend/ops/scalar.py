"""Numbers from Python as elements of a dtype."""

from typing import Final

from .....dtype import DType
from .....kernels.arguments import PARAMETERS
from ....program.values import Number, Parameter, Scalar
from ...numbers import bits_of, element_bits

_WORD: Final = 1 << 64
NO_PARAMETERS: Final = {family: (0,) * count for family, count in PARAMETERS.items()}
"""The `parameters` in structs of each family, for functors that have none."""


def element_words(value: complex | Parameter, dtype: DType, times: int = 1) -> tuple[Number, Number]:
    """Return the bits of elements, as `element_bits` has them, in two words, the lowest first."""
    if isinstance(value, Parameter):
        return Scalar(value, _low, dtype, times), Scalar(value, _high, dtype, times)
    return _low(value, dtype, times), _high(value, dtype, times)


def _low(value: complex, dtype: DType, times: int) -> int:
    return _repeated(bits_of(value, dtype), dtype.itemsize, times) % _WORD


def _high(value: complex, dtype: DType, times: int) -> int:
    return _repeated(bits_of(value, dtype), dtype.itemsize, times) // _WORD


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
