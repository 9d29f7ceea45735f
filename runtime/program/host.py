"""Runs programs that are one call of a function of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .program import Program
from .steps import HostCall
from .values import BlocksBuffer, Buffer, Parameter


class Translate(Protocol):
    """What gives the error to raise in the place of one of a library's; that may be the same one."""

    def __call__(self, error: Exception, /) -> Exception:
        """The error to raise."""


class Translating:
    """Errors that are raised inside of a `with` block become those of tallow."""

    __slots__ = ("_translate",)

    def __init__(self, translate: Translate) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):
            other = self._translate(error)
            if other is not error:
                raise other from error


def host_plan(program: Program, translate: Translate) -> Callable[..., Any]:
    """The function that makes the host call of a program with storages and numbers."""
    (step,) = program.steps
    assert isinstance(step, HostCall)
    call = _filled(step, program)

    def run(*operands: Any) -> Any:
        try:
            return call(*operands)
        except Exception as error:
            other = translate(error)
            if other is error:
                raise
            raise other from error

    return run


def _filled(step: HostCall, program: Program) -> Callable[..., Any]:
    """The call of a function as one of what the program is given."""
    function, options = step.function, step.options
    if step.arguments == program.arguments and not options:
        return function
    parts = [_filler(part) for part in step.arguments]
    return lambda *operands: function(*[part(operands) for part in parts], **options)


def _filler(part: Any) -> Callable[[tuple[Any, ...]], Any]:
    """What finds an argument of the call among the operands of a run."""
    if isinstance(part, Parameter):
        position = part.position
        return lambda operands: operands[position]
    if isinstance(part, Buffer | BlocksBuffer):
        position = _position(part)
        return lambda operands: operands[position]
    if isinstance(part, tuple) and part and isinstance(part[0], Buffer | BlocksBuffer):
        kind: Any = type(part)
        position, rest = _position(part[0]), part[1:]
        return lambda operands: kind(operands[position], *rest)
    return lambda _: part


def _position(buffer: Buffer | BlocksBuffer) -> int:
    assert buffer.memory.argument is not None, "the host allocates what it makes"
    return buffer.memory.argument
