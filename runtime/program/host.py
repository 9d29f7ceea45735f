"""Runs programs that are one call of a function of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .code import define
from .program import HostCall, Program
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
    names: dict[str, Any] = {"translate": translate}

    def text(part: Any) -> str:
        if isinstance(part, Parameter):
            return f"x{part.position}"
        if isinstance(part, Buffer | BlocksBuffer):
            return f"x{part.memory.argument}"
        if isinstance(part, tuple) and part and isinstance(part[0], Buffer | BlocksBuffer):
            return f"{text(type(part))}({', '.join(map(text, part))})"
        name = f"c{len(names)}"
        names[name] = part
        return name

    options = [f"{name}={text(value)}" for name, value in step.options.items()]
    call = f"{text(step.function)}({', '.join([*map(text, step.arguments), *options])})"
    # Not every function has a name.
    name = program.name if program.name.isidentifier() else "run"
    parameters = ", ".join([f"x{position}" for position in range(len(program.arguments))])
    lines = f"""def {name}({parameters}):
    try:
        return {call}
    except Exception as error:
        other = translate(error)
        if other is error:
            raise
        raise other from error
"""
    return define(lines, program.name, names)
