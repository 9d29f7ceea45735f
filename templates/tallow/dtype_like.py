"""What may stand for a dtype, wherever one is expected."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .dtype import DType
from .error import InvalidArgument

# A dtype, its name, or NumPy's type, dtype or name of it.
DTypeLike: TypeAlias = "DType | str | np.dtype[Any] | type[np.generic]"


def as_dtype(op: str, dtype: DTypeLike) -> DType:
    """Return the dtype that an argument of `op` means; `InvalidArgument` if it means none."""
    if isinstance(dtype, DType):
        return dtype
    meant: object = dtype
    if isinstance(meant, type) and issubclass(meant, np.generic):
        meant = np.dtype(meant)
    if isinstance(meant, np.dtype) and meant.isnative:
        meant = meant.name
    found = DType.named(meant) if isinstance(meant, str) else None
    if found is None:
        known = ", ".join(known.value for known in DType)
        raise InvalidArgument(op, f"{dtype!r} is no dtype; use one of {known}, by DType, by name or by NumPy's type")
    return found
