"""Numbers of launches on all devices: bits of elements, random blocks, and what follows from operands."""

from __future__ import annotations

import math
from functools import lru_cache

from ...dtype import DType
from ..core.random import drawn_blocks
from ..core.random import uniform_range as uniform_range
from ..host import cast
from ..program.builder import ProgramBuilder
from ..program.values import Draw, Number, Operand, Parameter, Scalar, computed


def draw(build: ProgramBuilder, count: Number, dtype: DType) -> Draw:
    """Return the random blocks of `count` numbers."""
    return build.draw(computed(drawn_blocks, count, dtype))


def element_bits(value: complex | Parameter, dtype: DType) -> Number:
    """Return the bits of `value` as an element of `dtype`: see `bits_of`."""
    return Scalar(value, bits_of, dtype) if isinstance(value, Parameter) else bits_of(value, dtype)


def bits_of(value: complex, dtype: DType) -> int:
    """Return the bits of an element, converted as to_dtype does."""
    if isinstance(value, complex):
        # Either part may be a zero of either sign.
        return _bits(value, dtype)
    # The sign distinguishes 0.0 and -0.0, which are equal.
    return _cached_bits(value, math.copysign(1, value), dtype)


# Typed, because a large int and the float that it equals may differ in what they are converted from.
@lru_cache(maxsize=1 << 12, typed=True)
def _cached_bits(value: float, _sign: float, dtype: DType) -> int:
    return _bits(value, dtype)


def _bits(value: complex, dtype: DType) -> int:
    # A number is converted on the host: a launch would take longer.
    return int.from_bytes(cast.scalar(value, dtype).tobytes(), "little")


def index_stride(indexes: Operand | None) -> int:
    """How far indexes of a vector, or contiguous ones, are from each other; 0 for a single one, and for none."""
    if indexes is None or indexes.layout.elem_count == 1:
        return 0
    return 1 if indexes.layout.is_contiguous else indexes.strides[0]


def is_wide(dtype: DType, *vectors: Operand | None) -> bool:
    """Return True if vectors are in the compute dtype of the elements; without vectors no kernel asks."""
    return any(vector is not None and vector.dtype is not dtype for vector in vectors)
