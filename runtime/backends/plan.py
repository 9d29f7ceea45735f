"""Plans: how calls are carried out, by all that decides it. docs/architecture.md explains them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ..base.bounded_cache import BoundedCache

Plan: TypeAlias = Callable[..., Any]
"""A function of the storages of a call, and then of its numbers."""
Key: TypeAlias = Hashable
"""What decides how a call is carried out: the method, and all of its arguments but the numbers. None is that of a call
without a plan. Looking for a plan fails where an argument is of a wrong class, and the checks then name that; an error
that has another reason is in the place of the key."""

MOST_PLANS: Final = 1 << 14

_kinds: BoundedCache[tuple[DType | GgmlDType, int, int], int] = BoundedCache(1 << 16)
_next_kind: Final = itertools.count()


def kind_of(dtype: DType | GgmlDType, length: int, form: int = 0) -> int:
    """The number of a kind of storages: those of a dtype, a length, and what a backend tells apart besides."""
    key = dtype, length, form
    kind = _kinds.get(key)
    # Numbers are never given again: a kind that is met after the others are forgotten has another one, and new plans.
    return _kinds.keep(key, next(_next_kind)) if kind is None else kind
