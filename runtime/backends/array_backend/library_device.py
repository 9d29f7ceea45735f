"""A device of an array library as its storages and the ops see it; `device.ArrayDevice` extends it."""

from __future__ import annotations

import re
from abc import abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...base.error import LibraryError, OutOfMemory, TallowError
from ...core.random import RandomState
from ...program.host import Translating
from ..backend import BackendDevice

if TYPE_CHECKING:
    from ....array_library import Library

# Libraries have no class of their own for a lack of memory.
_NO_MEMORY: Final = re.compile(r"memory|alloc|maximum size|too (big|large)", re.IGNORECASE)


class LibraryDevice(BackendDevice):
    """A device of an array library."""

    library: ClassVar[Library]
    storage_class: ClassVar[type[Any]]
    """The class of its storages."""
    error_class: ClassVar[type[LibraryError]] = LibraryError
    """The error that is raised where the library refuses something."""
    handle: Any
    """The library's own object for the device."""
    random: RandomState

    @classmethod
    def translated(cls, error: Exception) -> Exception:
        """The OutOfMemory or LibraryError for what the library raises; other errors stay as they are.

        So does a BufferError: the protocol of DLPack has it.
        """
        if isinstance(error, TallowError | BufferError):
            return error
        text = f"{error}".strip() or type(error).__name__
        if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
            return OutOfMemory(cls.backend, None, text)
        return cls.error_class(cls.backend, f"{type(error).__name__}: {text}")

    @classmethod
    @cache
    def translating(cls) -> Translating:
        """A context in which errors of the library become those of tallow."""
        return Translating(cls.translated)

    @abstractmethod
    def note(self, op: str, indexes: Any, is_wrong: Any, size: int) -> None:
        """Note the first of the indexes that is wrong, if any is."""

    def raise_errors(self) -> None:
        """Raise the first error that this thread's calls have noted."""
        return
