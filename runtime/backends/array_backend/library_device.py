"""A device of an array library as its storages and the ops see it; `device.ArrayDevice` is the rest of it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ...base.error import LibraryError
from ...core.random import RandomState
from ...program.builder import Facts
from ...program.host import Translating
from ..backend import BackendDevice

if TYPE_CHECKING:
    from ....array_library import Library


class LibraryDevice(BackendDevice):
    """A device of an array library."""

    library: ClassVar[Library]
    storage_class: ClassVar[type[Any]]
    """The class of its storages."""
    error_class: ClassVar[type[LibraryError]] = LibraryError
    """What is raised where the library refuses something."""
    handle: Any
    """The library's own object for the device."""
    random: RandomState
    facts: Facts
    """What ops know of the device."""

    @classmethod
    @abstractmethod
    def translated(cls, error: Exception) -> Exception:
        """The error of tallow for one of the library's; others stay as they are."""

    @classmethod
    def translating(cls) -> Translating:
        """A context in which errors of the library become those of tallow."""
        return Translating(cls.translated)

    @abstractmethod
    def note(self, op: str, indexes: Any, is_wrong: Any, size: int) -> None:
        """Note the first of the indexes that is wrong, if any is."""

    def raise_errors(self) -> None:
        """Raise the first error that this thread's calls have noted."""
        return
