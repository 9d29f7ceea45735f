"""Bindings of NVIDIA's libraries for Python: modules of functions, each of which raises an error of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...gpu_backend.driver.error import LibraryError


def load_optional(package: str, name: str, probe: str, *arguments: int) -> Any | None:
    """A module of a package, a function of which can be called; None where the package or the library is missing."""
    try:
        module = getattr(__import__(package, fromlist=[name]), name)
        getattr(module, probe)(*arguments)
    # What nvmath-python and nccl4py raise where they do not find the library, or a function of it, is a RuntimeError.
    except (ImportError, RuntimeError):
        return None
    return module


class Binding(NamedTuple):
    """A module, and the error that its functions raise."""

    name: str
    module: Any
    refusal: type[Exception]
    advice: str

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function. Raises LibraryError."""
        try:
            return getattr(self.module, function)(*arguments)
        except self.refusal as error:
            raise self.refused(function, error) from error

    def refused(self, function: str, error: Exception) -> LibraryError:
        """The error to raise instead of a function's."""
        return LibraryError(f"{self.name} {function}", str(error), self.advice)
