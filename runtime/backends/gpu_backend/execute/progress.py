"""Says why a program waits while kernels are compiled."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Final

# Seconds of waiting before the first line, and between lines; before the only line where there is no terminal.
_PATIENCE: Final = 1.0
_PATIENCE_OF_LOGS: Final = 2.0


class CompileProgress:
    """Lines on stderr while this process waits for compilers.

    A terminal gets one for each second, which names what is compiled then. A notebook or a log gets one in all.
    """

    def __init__(self) -> None:
        self._compiled = 0
        self._waited = 0.0
        self._due = _PATIENCE
        # Taken by the thread that writes the only line.
        self._once = threading.Lock()

    @contextmanager
    def compiling(self, name: str, target: str) -> Iterator[None]:
        """Count the block's time as waiting for kernel `name`."""
        timer = self._timer(name, target)
        start = perf_counter()
        if timer is not None:
            timer.start()
        try:
            yield
        finally:
            self._compiled += 1
            self._waited += perf_counter() - start
            if self._waited >= self._due:
                self._due = self._waited + _PATIENCE
            if timer is not None:
                timer.cancel()

    def _timer(self, name: str, target: str) -> threading.Timer | None:
        """The timer that writes the next line when it is due; None where no line will follow."""
        text = f"tallow compiles kernels at their first use: {name} for {target}, after {self._compiled} others"
        if _is_terminal():
            due, write = self._due, _write
        elif self._once.locked():
            return None
        else:
            due, write = _PATIENCE_OF_LOGS, self._write_once
            text += "; later programs find them compiled"
        timer = threading.Timer(max(due - self._waited, 0.0), write, [text])
        timer.daemon = True
        return timer

    def _write_once(self, text: str) -> None:
        if self._once.acquire(blocking=False):
            _write(text)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _write(text: str) -> None:
    with suppress(OSError, ValueError):  # no one reads it, or it is closed
        print(text, file=sys.stderr, flush=True)


progress: Final = CompileProgress()
"""That of this process."""
