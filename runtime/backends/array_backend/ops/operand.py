"""The operands of ops on array libraries."""

from __future__ import annotations

from typing import Any

from .....dtype import DType
from ....program.values import Operand as OperandBase


class Operand(OperandBase):
    """The elements that `layout` reaches in `storage`, as an array of the library."""

    __slots__ = ()

    @property
    def library(self) -> Any:
        """The words of the backend's library."""
        return self.storage.library

    @property
    def device(self) -> Any:
        """The device."""
        return self.storage.device

    @property
    def array(self) -> Any:
        """The elements; rank 0 has shape (1,)."""
        return self.storage.view(self.layout)

    def result(self, values: Any, dtype: DType | None = None) -> Any:
        """A new storage of `values`, of this operand's dtype or another one."""
        return self.storage.result(values, dtype or self.storage.dtype)

    def write(self, values: Any) -> None:
        """Put `values`, of the layout's shape, where the layout reaches."""
        self.storage.write(self.layout, values)
