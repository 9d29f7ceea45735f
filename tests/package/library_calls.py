"""Calls of libraries as a run of a program makes them."""

from __future__ import annotations

from tallow.runtime.program.program import LibraryCall


def run(call: LibraryCall | None) -> bool:
    """Make the call that a library describes; False where the library refuses it, by describing none or in the call."""
    return call is not None and call.function(*call.arguments) is not False
