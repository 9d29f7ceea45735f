"""The types of tensors: what is known of a result before it is computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...dtype import DType


class TensorType(NamedTuple):
    """The dtype and the sizes of the dims of a tensor."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def elem_count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def complex_of(dtype: DType) -> DType:
    """The complex dtype of the precision of another, which is one of those that have it."""
    dtype_complex = dtype.complex
    assert dtype_complex is not None
    return dtype_complex
