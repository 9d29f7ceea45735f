"""The base class of objects that a `with` block closes."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Self


class Closing:
    """Something that is closed where a `with` block of it is left, and that refuses a block once it is closed."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds; nothing happens when that was done already."""

    def require_open(self) -> None:
        """Raise where it cannot be used any more; some things can always."""
        return

    def __enter__(self) -> Self:
        self.require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
