"""Standard streams, which a program may be started without."""

from typing import TextIO


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal; it is None in Python if it is closed."""
    return stream is not None and stream.isatty()
