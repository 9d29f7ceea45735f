"""Programs that `python -m` runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final, Never

# That of a program that SIGPIPE ends, as shells show it.
_READER_GONE: Final = 141


def run_program(main: Callable[[], int]) -> Never:
    """Run a program to its end. A reader of its output that goes away, as `head` does, ends it quietly."""
    code: int | str | None
    try:
        try:
            code = main()
        except SystemExit as end:  # of argparse, whose help may not be written yet
            code = end.code
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BrokenPipeError:
        # Python writes what is left when it ends, and would complain of it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nowhere, number)
        code = _READER_GONE
    raise SystemExit(code)
