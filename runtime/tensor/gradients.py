"""Gradients of what was computed of variables."""

from __future__ import annotations

from typing import Any, Self

from ..storage.calls import live_batches
from .base import TensorBase
from .batch import detached


class GradientMethods(TensorBase):
    """Gradients: the result of an op on a `Var`, or on a tensor computed from one, records the op."""

    __slots__ = ()

    @property
    def is_recorded(self) -> bool:
        """Whether ops on this tensor are recorded for `backward`: it is a `Var`, or was computed from one.

        >>> w = tl.Var(tl.ones(2))
        >>> (w + 1).is_recorded, tl.ones(2).is_recorded
        (True, False)
        """
        return self._storage.is_recorded

    def detach(self) -> Self:
        """Return a tensor that shares the memory of this one and is not recorded, so no gradient flows through it.

        >>> w = tl.Var(tl.ones(2))
        >>> (w * 2).detach().is_recorded
        False
        """
        storage: Any = self._storage
        if not storage.is_recorded:
            return self
        if live_batches:
            return self._new(detached(storage), self._layout)
        plain = storage.value
        plain.is_shown = True
        return self._new(plain, self._layout)
