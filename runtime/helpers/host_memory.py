"""Raises OutOfMemory for arrays that do not fit in host memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import numpy as np

from ...dtype import Array, DType
from ..base.error import OutOfMemory
from ..core.shape import MAX_ELEMENTS

P = ParamSpec("P")
T = TypeVar("T")


def require_memory(dtype: DType, sizes: Iterable[int]) -> None:
    """Raise OutOfMemory for dims of more elements than NumPy could try to allocate."""
    count = math.prod(sizes)
    if count >= MAX_ELEMENTS:
        raise OutOfMemory("cpu", count * dtype.itemsize)


def raises_out_of_memory(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise OutOfMemory where NumPy finds no memory."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except MemoryError as error:
            raise out_of_memory(error) from None

    return call


def out_of_memory(error: MemoryError) -> OutOfMemory:
    """The OutOfMemory for an error of NumPy's, or of Python's."""
    if isinstance(error, OutOfMemory):
        return error
    # NumPy's says what it is for; its class is none of the public ones.
    dtype = getattr(error, "dtype", None)
    return OutOfMemory("cpu", None if dtype is None else math.prod(getattr(error, "shape", ())) * dtype.itemsize)


@raises_out_of_memory
def zero_bytes(count: int) -> Array:
    """So many bytes of zeros."""
    require_memory(DType.U8, (count,))
    return np.zeros(count, np.uint8)
