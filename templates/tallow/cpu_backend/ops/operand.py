"""What an op works on: a layout in a storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtype import Array, DType
from ...layout import Layout
from .array import contiguous

if TYPE_CHECKING:
    from ..storage import CpuStorage


class Operand(NamedTuple):
    """The elements that `layout` reaches in `storage`."""

    storage: CpuStorage
    layout: Layout

    @classmethod
    def optional(cls, storage: CpuStorage | None, layout: Layout | None) -> Operand | None:
        """That of a storage and its layout; None where there is none."""
        return None if storage is None or layout is None else cls(storage, layout)

    @classmethod
    def each(cls, storages: Sequence[Any], layouts: Sequence[Layout]) -> list[Operand]:
        """Those of the dispatch's storages, all of which are this backend's."""
        return [cls(storage.inner, layout) for storage, layout in zip(storages, layouts, strict=True)]

    @property
    def array(self) -> Array:
        """The elements, without a copy; rank 0 has shape (1,)."""
        return self.storage.view(self.layout)

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.storage.dtype

    def result(self, values: Array, dtype: DType | None = None) -> CpuStorage:
        """A new storage of `values`, of this operand's dtype or another one."""
        storage = self.storage
        return type(storage)(storage.device, dtype or storage.dtype, contiguous(values).reshape(-1))
