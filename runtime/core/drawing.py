"""Records draws of random numbers so that they can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias

from ..base.error import GradientError

Reservation: TypeAlias = tuple[object, int, tuple[int, int]]
"""The stream of a draw, how many blocks it reserved, and what the stream returned."""


class Tape:
    """The draws of a function: noted the first time, and the same ones whenever the function runs again."""

    __slots__ = ("_draws", "_outer", "_place")

    def __init__(self, draws: list[Reservation] | None = None) -> None:
        self._draws: list[Reservation] = [] if draws is None else draws
        self._place = None if draws is None else 0
        """The next draw to repeat; None while draws are noted."""
        self._outer: Tape | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note the draws of this thread, or of this task of asyncio, in a `with` block, or repeat them."""
        self._outer = tape()
        token = _tape.set(self)
        try:
            yield
        finally:
            _tape.reset(token)

    def again(self) -> Tape:
        """A tape that repeats the draws of this one."""
        return Tape(self._draws)

    def reserve(self, stream: object, blocks: int, draw: Callable[[int], tuple[int, int]]) -> tuple[int, int]:
        """Return what `draw` reserves of a stream, or what it reserved the first time."""
        if self._place is None:
            outer = self._outer
            reserved = draw(blocks) if outer is None else outer.reserve(stream, blocks, draw)
            self._draws.append((stream, blocks, reserved))
            return reserved
        noted = self._draws[self._place] if self._place < len(self._draws) else None
        if noted is None or noted[0] is not stream or noted[1] != blocks:
            raise GradientError(
                "checkpoint",
                "the function draws other random numbers in backward than it did before; let it depend on its"
                " arguments alone, and capture forward and backward in one graph",
            )
        self._place += 1
        return noted[2]

    def cancel(self, stream: object, blocks: int, reserved: tuple[int, int]) -> bool:
        """Take back the last draw, whose call failed; True if the stream shall take it back too."""
        if self._place is not None:
            self._place -= 1
            return False
        if self._draws and self._draws[-1] == (stream, blocks, reserved):
            self._draws.pop()
        return self._outer is None or self._outer.cancel(stream, blocks, reserved)


_tape: Final[ContextVar[Tape | None]] = ContextVar("tallow_draws", default=None)
tape: Final = _tape.get
