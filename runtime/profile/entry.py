"""What imports the profiler where somebody asks for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .block import Profile

_VARIABLE: Final = "TALLOW_TRACE"


def profile(path: str | os.PathLike[str] | None = None) -> Profile:
    """Note each call in a `with` block: its launches, their times, and memory; for all devices and threads.

    What the block gives prints as tables, after its end. Its `calls`, `launches` and `allocations` are records. With a
    path, the end of the block also writes a file that ui.perfetto.dev opens, after an error in the block too. Blocks
    that are inside of others, or in other threads, have all calls each.

    Times of launches on a GPU are known when the block has ended, which waits for the device. InvalidArgument where a
    block is entered twice, FileError where the file cannot be written.

    >>> x = tl.ones((2, 3))
    >>> with tl.profile() as p:
    ...     y = x + 1
    >>> p.calls[-1].operands[0]
    '(2, 3) f32'
    """
    from .block import Profile

    return Profile(path)


def trace_if_asked() -> None:
    """Print calls from now on if the environment variable TALLOW_TRACE is 1 or 2."""
    level = os.environ.get(_VARIABLE, "0")
    if level not in ("", "0"):
        from .tracing import start

        start(level)
