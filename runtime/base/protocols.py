"""Protocols of the dtypes and layouts that errors print; upper layers define them."""

from __future__ import annotations

from typing import Any, Protocol


class HasName(Protocol):
    """A dtype or a format of weights, as messages show it."""

    @property
    def value(self) -> Any:
        """Its name."""


class LayoutLike(Protocol):
    """A layout, as messages show it: see `tallow.Layout`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dims."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The step along each dim, in elements."""

    @property
    def start_offset(self) -> int:
        """The position of the first element."""

    @property
    def elem_count(self) -> int:
        """The number of elements."""

    @property
    def end(self) -> int:
        """The position after the last element."""
