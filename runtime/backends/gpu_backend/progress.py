"""Says why a program waits while kernels are compiled."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

# Seconds of waiting before the first line, and between lines.
_PATIENCE: Final = 1.0


class CompileProgress:
    """A line for each second that this process has waited for compilers, which names what is compiled at that moment.

    A terminal gets it on stderr. Elsewhere, so that logs and tests stay as they are, the logger "tallow" does, as INFO.
    """

    def __init__(self) -> None:
        self._compiled = 0
        self._waited = 0.0
        self._due = _PATIENCE

    @contextmanager
    def compiling(self, name: str, target: str) -> Iterator[None]:
        """Count the block's time as waiting for kernel `name`."""
        text = f"tallow compiles kernels at their first use: {name} for {target}, after {self._compiled} others"
        timer = threading.Timer(max(self._due - self._waited, 0.0), _tell, [text])
        timer.daemon = True
        start = perf_counter()
        timer.start()
        try:
            yield
        finally:
            self._compiled += 1
            self._waited += perf_counter() - start
            if self._waited >= self._due:
                self._due = self._waited + _PATIENCE
            timer.cancel()


def _tell(text: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr)
    else:
        import logging

        logging.getLogger("tallow").info(text)


progress: Final = CompileProgress()
"""That of this process."""
