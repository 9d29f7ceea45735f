"""Runs programs that are one call of a function of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .program import Program
from .steps import HostCall
from .values import BlocksBuffer, Buffer, Parameter


def host_plan(program: Program) -> Callable[..., Any]:
    """The function that makes the host call of a program with storages and numbers."""
    (step,) = program.steps
    assert isinstance(step, HostCall)
    parts = [_filler(part) for part in step.arguments]
    function, options = step.function, step.options

    def run(*operands: Any) -> Any:
        return function(*[part(operands) for part in parts], **options)

    return run


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
