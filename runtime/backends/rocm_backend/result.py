"""What calls of ROCm's libraries give, as hip-python binds them."""

from __future__ import annotations

from typing import Any

from ..gpu_backend.driver.error import LibraryError


def value_of(call: str, result: tuple[Any, ...], advice: str) -> Any:
    """The value, or values, that a call gives beside its status; LibraryError for a status that is an error."""
    status, *values = result
    if status:
        raise LibraryError(call, status.name, advice)
    return tuple(values) if len(values) > 1 else values[0] if values else None
