"""What an op works on: a layout in a storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .....dtype import DType
from ....core.layout import Layout


class Operand(NamedTuple):
    """The elements that `layout` reaches in `storage`."""

    storage: Any
    layout: Layout

    @classmethod
    def optional(cls, storage: Any, layout: Layout | None) -> Operand | None:
        """That of a storage and its layout; None where there is none."""
        return None if storage is None or layout is None else cls(storage, layout)

    @classmethod
    def each(cls, storages: Sequence[Any], layouts: Sequence[Layout]) -> list[Operand]:
        """Those of the dispatch's storages, all of which are this backend's."""
        return [cls(storage.inner, layout) for storage, layout in zip(storages, layouts, strict=True)]

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

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        dtype: DType = self.storage.dtype
        return dtype

    def result(self, values: Any, dtype: DType | None = None) -> Any:
        """A new storage of `values`, of this operand's dtype or another one."""
        return self.storage.result(values, dtype or self.storage.dtype)

    def write(self, values: Any) -> None:
        """Put `values`, of the layout's shape, where the layout reaches."""
        self.storage.write(self.layout, values)
