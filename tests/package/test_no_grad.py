"""Where nothing is recorded: in blocks and decorated functions, of each thread and task, whatever interrupts them."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import linecache
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
import tallow as tl
from tallow import InvalidArgument, Tensor, Var
from tallow.runtime.gradient import recording


@pytest.fixture
def x() -> Var:
    return Var(Tensor([1.0]))


def is_recording() -> bool:
    return (Var(Tensor([1.0])) * 2).is_recorded


@pytest.fixture(autouse=True)
def records_before_and_after() -> Iterator[None]:
    assert is_recording()
    yield
    assert is_recording()


def test_a_block_serves_again_and_inside_itself(x: Var) -> None:
    guard = tl.no_grad()
    for _ in range(2):
        with guard:
            with guard:
                assert not (x * 2).is_recorded
            assert not (x * 2).is_recorded
        assert (x * 2).is_recorded

    @guard
    def nested(depth: int) -> list[bool]:
        return [(x * 2).is_recorded, *(nested(depth - 1) if depth else [])]

    assert nested(2) == [False] * 3


def test_one_object_serves_many_threads(x: Var) -> None:
    guard, both, actual = tl.no_grad(), threading.Barrier(2), []

    def work(is_first: bool) -> None:
        # One enters first and leaves last.
        if not is_first:
            both.wait()
        with guard:
            if is_first:
                both.wait()
                both.wait()
            actual.append((x * 2).is_recorded)
        actual.append((x * 2).is_recorded)
        if not is_first:
            both.wait()

    threads = [threading.Thread(target=work, args=(is_first,)) for is_first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actual == [False, True] * 2


def test_tasks_that_overlap_record_on_their_own(x: Var) -> None:
    actual: list[bool] = []

    async def task(before: float, inside: float) -> None:
        await asyncio.sleep(before)
        with tl.no_grad():
            await asyncio.sleep(inside)
            actual.append((x * 2).is_recorded)
        actual.append((x * 2).is_recorded)

    async def every() -> None:
        # The first one to enter is the first one to leave.
        tasks = [asyncio.create_task(task(0, 0.02)), asyncio.create_task(task(0.01, 0.02))]
        await asyncio.sleep(0.015)
        actual.append((x * 2).is_recorded)
        await asyncio.gather(*tasks)

    asyncio.run(every())
    assert actual == [True, False, True, False, True]


def test_generators_that_overlap_leave_no_trace(x: Var) -> None:
    def values() -> Iterator[bool]:
        with tl.no_grad():
            yield (x * 2).is_recorded

    first, second = values(), values()
    assert [next(first), next(second)] == [False, False]
    assert [*first, *second] == []


def test_decorated_generators_record_between_their_steps(x: Var) -> None:
    @tl.no_grad()
    def values(*given: int) -> Generator[Any, Any, str]:
        received = []
        for value in given:
            try:
                received.append((yield value, (x * 2).is_recorded))
            except KeyError as error:
                received.append(error.args[0])
            finally:
                assert not (x * 2).is_recorded
        yield received
        return "end"

    assert inspect.isgeneratorfunction(values)
    assert values.__name__ == "values"
    steps = values(1, 2, 3)
    assert next(steps) == (1, False)
    assert (x * 2).is_recorded
    assert steps.send("sent") == (2, False)
    assert steps.throw(KeyError("thrown")) == (3, False)
    assert steps.send("last") == ["sent", "thrown", "last"]
    with pytest.raises(StopIteration) as caught:
        next(steps)
    assert caught.value.value == "end"
    steps = values(1)
    next(steps)
    steps.close()
    with pytest.raises(ValueError, match="out"):
        [*map(steps_of_error, values(1))]


def steps_of_error(_: object) -> None:
    raise ValueError("out")


class Pause:
    """An awaitable that gives its value to whoever runs the coroutine."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __await__(self) -> Generator[object, object, object]:
        return (yield self.value)


def test_decorated_coroutines_record_between_their_steps(x: Var) -> None:
    @tl.no_grad()
    async def call(value: int) -> list[object]:
        received = [await Pause(value), (x * 2).is_recorded]
        try:
            await Pause((x * 2).is_recorded)
        except KeyError:
            received.append((x * 2).is_recorded)
        return received

    assert inspect.iscoroutinefunction(call)
    steps = call(1)
    assert steps.send(None) == 1
    assert (x * 2).is_recorded
    assert steps.send("sent") is False
    assert (x * 2).is_recorded
    with pytest.raises(StopIteration) as caught:
        steps.throw(KeyError())
    assert caught.value.value == ["sent", False, False]


def test_decorated_async_generators_record_between_their_steps(x: Var) -> None:
    closed = []

    @tl.no_grad()
    async def values(count: int) -> AsyncIterator[object]:
        try:
            for value in range(count):
                await asyncio.sleep(0)
                try:
                    sent = yield value, (x * 2).is_recorded
                except KeyError:
                    sent = "thrown"
                if sent is not None:
                    yield sent
        finally:
            await asyncio.sleep(0)
            closed.append((x * 2).is_recorded)

    assert inspect.isasyncgenfunction(values)

    async def every() -> None:
        actual = []
        async for value in values(2):
            actual += [value, (x * 2).is_recorded]
        assert actual == [(0, False), True, (1, False), True]
        generator: Any = values(3)
        assert await generator.__anext__() == (0, False)
        assert await generator.asend("sent") == "sent"
        assert await generator.__anext__() == (1, False)
        assert await generator.athrow(KeyError()) == "thrown"
        assert (x * 2).is_recorded
        await generator.aclose()
        assert closed == [False, False]

    asyncio.run(every())


def test_methods_of_every_kind_are_decorated(x: Var) -> None:
    """Above or below the decorator that makes them class methods, static methods or properties."""

    def records(*_: object) -> bool:
        return (x * 2).is_recorded

    def setter(*_: object) -> None:
        assert not records()

    no_grad = tl.no_grad()

    class Model:
        method = no_grad(records)
        of_class = no_grad(classmethod(records))
        in_class = classmethod(no_grad(records))
        alone = no_grad(staticmethod(records))
        within = staticmethod(no_grad(records))
        outer = no_grad(property(records, setter, setter, "doc"))
        inner = property(no_grad(records), doc="doc")

    model = Model()
    for owner in (Model, model):
        assert [owner.of_class(), owner.in_class(), owner.alone(), owner.within()] == [False] * 4
    assert [model.method(), model.outer, model.inner] == [False] * 3
    assert Model.outer.__doc__ == Model.inner.__doc__ == "doc"
    model.outer = False
    del model.outer
    with pytest.raises(AttributeError):
        model.inner = False


def test_objects_that_are_called_are_decorated_as_functions(x: Var) -> None:
    class Call:
        def __call__(self) -> bool:
            return (x * 2).is_recorded

    class Steps:
        def __call__(self) -> Iterator[bool]:
            yield (x * 2).is_recorded

    assert tl.no_grad()(Call())() is False
    assert [*tl.no_grad()(Steps())()] == [False]
    assert [*tl.no_grad()(functools.partial(Steps.__call__, Steps()))()] == [False]


@pytest.mark.parametrize("function", [None, 3, "f", int, type("Model", (), {})])
def test_what_is_no_function_is_not_decorated(function: object) -> None:
    with pytest.raises(InvalidArgument, match=r"function must be a function, not .*; decorate each method of a class"):
        tl.no_grad()(function)


# What begins lines that restore the state, or that are traced once more before they do, when Python cannot be
# interrupted there.
RESTORING = "set_mode(", "finally:", "with "
MODULES = "gradient.recording", "gradient.backward", "gradient.walk", "helpers.stepwise"


@functools.cache
def restores(file: str, line: int) -> bool:
    return linecache.getline(file, line).strip().startswith(RESTORING)


def test_an_interrupt_leaves_no_trace(x: Var) -> None:
    """Raise an error at each call and each line of the block, of the functions that enter it, and of backward."""

    @tl.no_grad()
    def function() -> Iterator[Tensor]:
        yield x * 2

    def work() -> None:
        with tl.no_grad():
            x * 2
        for _ in function():
            pass
        (x * x).sum().backward()

    def events_until(index: int) -> int:
        """Run it up to a call or a line of MODULES, and count them."""
        count = 0

        def trace(frame: Any, event: str, _: object) -> Any:
            nonlocal count
            is_own = frame.f_globals.get("__name__", "").endswith(MODULES)
            is_line = event == "line" and not restores(frame.f_code.co_filename, frame.f_lineno)
            if is_own and (event == "call" or is_line):
                count += 1
                if count == index:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        return count

    count = events_until(0)
    assert count > 100
    for index in range(1, count + 1):
        events_until(index)
        assert is_recording(), index


def test_an_interrupt_behind_the_entry_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks for interrupts behind each call of a function that is written in C."""
    calls = []

    def interrupted(mode: recording.Mode, set_mode: Any = recording.set_mode) -> None:
        set_mode(mode)
        calls.append(mode)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(recording, "set_mode", interrupted)
    with pytest.raises(KeyboardInterrupt), tl.no_grad():
        pass
    assert is_recording()


def in_a_copy(function: Callable[[], object]) -> object:
    return contextvars.copy_context().run(function)


def test_a_copy_of_the_context_does_not_record_either(x: Var) -> None:
    with tl.no_grad():
        assert not in_a_copy(lambda: (x * 2).is_recorded)
    assert in_a_copy(lambda: (x * 2).is_recorded)
