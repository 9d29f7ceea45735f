"""Standard streams, which a program may be started without."""

from typing import TextIO


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody reads a standard stream as it is written; Python has None for one that is closed."""
    return stream is not None and stream.isatty()
