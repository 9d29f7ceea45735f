"""The public function `profile`, which imports the profiler when it is called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .block import Profile

_VARIABLE: Final = "TALLOW_TRACE"


def profile(path: str | os.PathLike[str] | None = None) -> Profile:
    """Record each call in a `with` block: its launches, their times, and memory, on all devices and of all threads.

    `print(p)` shows tables after the block. `p.calls`, `p.launches` and `p.allocations` are the records. With a path,
    the end of the block also writes a file for ui.perfetto.dev, even after an error. Blocks may be nested or in several
    threads; each one records all calls.

    The end of the block waits for the GPUs, and times of launches on them are known from then on. Raises
    InvalidArgument if a block is entered twice, and FileError if the file cannot be written.

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
