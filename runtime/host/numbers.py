"""Numbers of Python as arrays of a dtype."""

from collections.abc import Sequence

import numpy as np

from ...dtype import Array, DType
from ..base.error import GradientError, InvalidArgument
from ..helpers.host_memory import raises_out_of_memory
from . import cast


def sequence(count: int, start: float, step: float, dtype: DType) -> Array:
    """The first numbers from `start` on, in steps of `step`."""
    if isinstance(start, int) and isinstance(step, int):
        return _integers(count, start, step, dtype)
    return _floats(count, start, step, dtype)


def _integers(count: int, start: int, step: int, dtype: DType) -> Array:
    array = np.arange(count, dtype=np.uint64)
    array *= np.uint64(step % 2**64)
    array += np.uint64(start % 2**64)
    return _converted(array.view(np.int64), DType.I64, dtype)


def _floats(count: int, start: float, step: float, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        start, second = np.float64(start), np.float64(start) + step
        array = np.arange(count, dtype=np.float64)
        array *= second - start
        array += start
    array[:2] = (start, second)[:count]
    return _converted(array, DType.F64, dtype)


def _converted(array: Array, source: DType, dtype: DType) -> Array:
    return array if source is dtype else cast.convert(array, source, dtype)


@raises_out_of_memory
def numbers(data: Sequence[complex], dtype: DType) -> Array:
    """A flat array of the numbers, converted as to_dtype does."""
    _require_plain(data)
    try:
        values = np.asarray(data)
    except ValueError as error:
        raise InvalidArgument("storage_from_slice", f"data must be a flat sequence of numbers ({error})") from None
    if values.ndim == 1 and values.dtype.kind == "c" and dtype.is_complex:
        with np.errstate(over="ignore"):
            return values.astype(dtype.numpy)
    if values.ndim != 1 or values.dtype.kind in "cMmSU":
        reason = f"data must be a flat sequence, not one of {values.ndim} dims and NumPy's type {values.dtype}"
        raise InvalidArgument("storage_from_slice", f"{reason}; use integers, or floats in f64's range")
    if values.dtype.kind in "bi":
        return cast.convert(values.astype(np.int64), DType.I64, dtype)
    integers = [number for number in data if isinstance(number, int | np.integer)]
    if len(integers) == len(data):
        # They exceed i64, and NumPy may have converted them to floats.
        return cast.integers(map(int, integers), dtype)
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument("storage_from_slice", f"{error}; use integers, or floats in f64's range") from None
    return cast.convert(values, DType.F64, dtype)


def _require_plain(data: Sequence[complex]) -> None:
    """Raise GradientError for a recorded tensor, or a sequence with one, of which NumPy takes the elements alone."""
    is_sequence = isinstance(data, list | tuple)
    kinds = {type(data), *(map(type, data) if is_sequence else ())}
    if any(hasattr(kind, "is_recorded") for kind in kinds):
        parts = (data, *data) if is_sequence else (data,)
        if any(getattr(part, "is_recorded", False) for part in parts):
            reason = "the host reads the numbers, which have no gradients; use x.detach()"
            raise GradientError("storage_from_slice", reason)
