"""Numbers from Python as elements of a dtype."""

from functools import lru_cache
from typing import Any

from ...cpu_backend.ops import cast
from ...dtype import DType


def element(value: float, dtype: DType) -> Any:
    """`value` as a NumPy scalar of `dtype`, converted as to_dtype does."""
    if value == 0:
        # A cache would take 0.0 and -0.0 for one number.
        return _converted(value, dtype)
    return _cached(value, dtype)


def element_bits(value: float, dtype: DType) -> int:
    """The bits of `value` as an element of `dtype`."""
    return int.from_bytes(element(value, dtype).tobytes(), "little")


def _converted(value: float, dtype: DType) -> Any:
    # A number is converted on the host: a launch would take longer, and the CPU backend does it like this.
    return cast.scalar(value, dtype)[0]


# Typed, because a large int and the float that it equals may differ in what they are converted from.
_cached = lru_cache(maxsize=1024, typed=True)(_converted)
