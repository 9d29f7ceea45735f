"""Libraries are imported at their first use: `import tallow` imports none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...base.error import BackendUnavailable

if TYPE_CHECKING:
    from ....array_library import Library


class Imported:
    """An attribute of a class: a module of a backend's library, which replaces the attribute."""

    def __init__(self, backend: str, module: str, package: str) -> None:
        self._backend = backend
        self._module = module
        self._package = package
        self._attribute = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, instance: object, owner: type) -> Library:
        try:
            library: Any = import_module(self._module, self._package)
        except ImportError as error:
            raise BackendUnavailable(self._backend, f"its library cannot be imported: {error}") from error
        setattr(owner, self._attribute, library)
        module: Library = library
        return module
