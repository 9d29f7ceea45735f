"""Decorators that hold a context around each step of a function, be it a generator or a coroutine."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from functools import wraps
from types import coroutine
from typing import Any, TypeAlias, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Context: TypeAlias = "Callable[[], AbstractContextManager[object]]"


def decorated(function: F, context: Context) -> F:
    """Return a function of the same kind that enters a new context around each of its steps, and leaves it in between.

    So what consumes a generator, or runs while a coroutine waits, is outside of the context. The kind of an object
    that is called as a function is that of its `__call__`.
    """
    for is_kind, wrapper in (
        (inspect.isasyncgenfunction, _async_generator),
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isgeneratorfunction, _generator),
    ):
        if is_kind(function) or is_kind(getattr(function, "__call__", None)):  # noqa: B004 - the method itself is looked at
            return cast("F", wraps(function)(wrapper(function, context)))

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with context():
            return function(*arguments, **named)

    return cast("F", call)


def _generator(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return (yield from _stepped(function(*arguments, **named), context))

    return call


def _coroutine(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    async def call(*arguments: Any, **named: Any) -> Any:
        return await _awaited(function(*arguments, **named), context)

    return call


def _async_generator(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    async def call(*arguments: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*arguments, **named)
        step = generator.asend(None)
        while True:
            try:
                value = await _awaited(step, context)
            except StopAsyncIteration:
                return
            try:
                step = generator.asend((yield value))
            except GeneratorExit:
                await _awaited(generator.aclose(), context)
                raise
            except BaseException as error:
                step = generator.athrow(error)

    return call


def _stepped(steps: Any, context: Context) -> Generator[Any, Any, Any]:
    """Forward what is sent to a generator, a coroutine, or a step of an async generator, which runs in the context."""
    advance, argument = steps.send, None
    try:
        while True:
            with context():
                value = advance(argument)
            try:
                argument = yield value
                advance = steps.send
            except GeneratorExit:
                with context():
                    steps.close()
                raise
            except BaseException as error:
                advance, argument = steps.throw, error
    except StopIteration as end:
        return end.value


_awaited = coroutine(_stepped)
