"""What an op works on: a layout in a storage. Each kind of backend adds what its ops ask of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from ...dtype import DType
from ..core.layout import Layout


class OperandBase(NamedTuple):
    """The elements that `layout` reaches in `storage`."""

    storage: Any
    layout: Layout

    @classmethod
    def optional(cls, storage: Any, layout: Layout | None) -> Self | None:
        """That of a storage and its layout; None where there is none."""
        return None if storage is None or layout is None else cls(storage, layout)

    @classmethod
    def each(cls, storages: Sequence[Any], layouts: Sequence[Layout]) -> list[Self]:
        """Those of the dispatch's storages, all of which are one backend's."""
        return [cls(storage.inner, layout) for storage, layout in zip(storages, layouts, strict=True)]

    @property
    def with_a_dim(self) -> Self:
        """The same elements along a dim at least, where rank 0 has one element."""
        layout = self.layout
        return self if layout.shape else type(self)(self.storage, Layout((1,), (1,), layout.start_offset))

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        dtype: DType = self.storage.dtype
        return dtype
