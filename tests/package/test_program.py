"""Programs: their values, the structs of their kernels, how long memory is needed, and how they are printed."""

from __future__ import annotations

import math
import operator
import struct
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tallow import DType, GgmlDType, Layout
from tallow.kernels.constants import ACCESS_BYTES
from tallow.runtime.program.builder import OpCall, ProgramBuilder
from tallow.runtime.program.host import HostCompiler, Translating
from tallow.runtime.program.program import Allocate, Copy, ExpectError, Fill, HostCall, Launch, LibraryCall, Program
from tallow.runtime.program.values import (
    Address,
    ArgumentStruct,
    Buffer,
    KernelArguments,
    Memory,
    Operand,
    Parameter,
    Scalar,
    alignment_of,
    dense,
)

from .programs import FACTS, Run, Stored, at, built, call_of, described, layout

PAIR = ArgumentStruct("=PIxxxx2Pd")


@given(st.integers(0, 40), st.lists(st.integers(0, 100), max_size=4))
def test_an_address_knows_what_divides_it_in_every_run(skew: int, steps: list[int]) -> None:
    address = Memory(1000, argument=0, skew=skew % ACCESS_BYTES, is_foreign=True).address
    for step in steps:
        address += step
    number = 1 << 20 | skew % ACCESS_BYTES
    assert address.offset == sum(steps)
    assert address.alignment == math.gcd(number + sum(steps), ACCESS_BYTES)
    for nbytes in (1, 2, 4, 8, 16):
        assert address.is_aligned(nbytes) == ((number + sum(steps)) % nbytes == 0)
    assert alignment_of(address, 8, 0) == min(address.alignment, 8)


def test_operands_reach_their_first_element() -> None:
    buffer = Buffer(DType.F16, 100, Memory(200))
    operand = Operand(buffer, layout((5, 4), (1, 5), 7))
    assert (operand.address.memory, operand.address.offset) == (buffer.memory, 14)
    assert dense(buffer, (10, 10)).layout == Layout.contiguous((10, 10))


fields_of_pair = st.tuples(*[st.one_of(st.integers(0, 99), st.just("value"))] * 4, st.just(0.5))


@given(fields_of_pair)
def test_a_struct_is_packed_with_numbers_in_the_place_of_values(fields: tuple[Any, ...]) -> None:
    """Whether it is packed as a whole or in the parts between its values."""

    def number(value: Any) -> int:
        return 1000 + int(value.offset)

    memory = Memory(1 << 10)
    inputs = [memory.address + position if field == "value" else field for position, field in enumerate(fields)]
    expected = [1000 + position if field == "value" else field for position, field in enumerate(fields)]
    if inputs[1] is not fields[1]:
        # No address has 32 bits.
        inputs[1] = expected[1] = 7
    arguments = KernelArguments(PAIR, tuple(inputs))
    assert arguments.values == [(index, field) for index, field in enumerate(inputs) if isinstance(field, Address)]
    packed = PAIR.pack(*expected)
    assert arguments.packed(number) == packed
    form, parts = arguments.parts()
    assert struct.pack(form, *[number(part) if isinstance(part, Address) else part for part in parts]) == packed


def launch(build: ProgramBuilder, kernel: str, *addresses: Address, blocks: int = 1) -> None:
    arguments = KernelArguments(ArgumentStruct(f"={len(addresses)}P"), addresses)
    build.launch("family", kernel, blocks, arguments)


def chained(build: ProgramBuilder, x: Operand, count: int) -> Buffer:
    """As many launches, each of which reads what the one before it has written."""
    unused = build.empty(DType.F64, 1000)
    source = x.address
    for number in range(count):
        result = build.empty(x.dtype, x.layout.elem_count)
        launch(build, f"step{number}", result.address, source)
        source = result.address
    assert unused.length == 1000
    return result


def test_memory_is_released_after_its_last_use_and_unused_memory_is_not_allocated() -> None:
    program = built(chained, at(Stored(DType.F32, 6), (2, 3)), 3)
    assert str(program) == (
        "chained(x0: f32[6]):\n"
        "    m0 = allocate 24 bytes\n"
        "    launch family/step0 on 1 blocks (m0, x0)\n"
        "    m1 = allocate 24 bytes\n"
        "    launch family/step1 on 1 blocks (m1, m0)\n"
        "    free m0\n"
        "    m2 = allocate 24 bytes\n"
        "    launch family/step2 on 1 blocks (m2, m1)\n"
        "    free m1\n"
        "    return m2: f32[6]"
    )


def several(build: ProgramBuilder, x: Operand, blocks: Any, factor: Any) -> tuple[Buffer, Buffer]:
    """Every kind of step and of value."""
    scratch, flags, numbers = build.allocate(64), build.empty(DType.U8, 5), build.empty(DType.F32, 8)
    build.zero(flags)
    build.fill(scratch.address + 8, 255, 16)
    build.copy(numbers.address, scratch.address, 32)
    bits = Scalar(factor, scaled, 3)
    draw = build.draw(12)
    fields = x.address, x.storage.number or 0, bits, build.error_record, build.call_number(), draw.seed, draw.block
    build.launch("random", "rand", 2, KernelArguments(ArgumentStruct("=7P"), fields), 512)
    build.expect_error()
    build.call(np.multiply, "f32", (blocks.address, numbers.address))
    build.host(partial(np.add, 1), flags, factor, (x.storage, x.layout.shape))
    return flags, numbers


def scaled(number: float, factor: int) -> int:
    return round(number * factor)


def test_a_program_is_printed() -> None:
    x, blocks = at(Stored(DType.F16, 1, is_number=True), (1,)), Stored(GgmlDType.Q4K, 512)
    program = built(several, x, blocks, 0.5, numbers=1)
    assert str(program) == (
        "several(x0: f16[1], a number, x1: Q4K[512], n2):\n"
        "    m0 = allocate 5 bytes\n"
        "    fill 5 bytes at m0 with 0\n"
        "    m1 = allocate 64 bytes\n"
        "    fill 16 bytes at m1 + 8 with 255\n"
        "    m2 = allocate 32 bytes\n"
        "    copy 32 bytes from m1 to m2\n"
        "    free m1\n"
        "    launch random/rand on 2 blocks (x0, bits of x0, scaled(n2), error record, call number,"
        " seed of 12 random blocks, block of 12 random blocks)\n"
        "    expect an index error\n"
        "    call multiply(f32, (x1, m2))\n"
        "    host add(m0: u8[5], n2, (x0: f16[1], (1,)))\n"
        "    return m0: u8[5], m2: f32[8]"
    )
    run = Run(program, [2.5])
    assert run.bytes_at(program.result[1].address, 32).tolist() == [0] * 8 + [255] * 16 + [0] * 8
    assert struct.unpack("=7Q", run.launches[0].packed)[2:] == (8, 64, 1, 5, 7)
    assert run.calls[0].arguments == ("f32", (run.arguments[1], run.results[1]))
    assert run.calls[1].arguments == (run.results[0], 2.5, (run.arguments[0], (1,)))


def nothing(build: ProgramBuilder, x: Operand) -> None:
    launch(build, "none", x.address, blocks=0)
    build.copy(x.address, x.address, 0)
    build.fill(x.address, 1, 0)
    assert build.append(None) is False


def test_what_has_nothing_to_do_appends_no_step() -> None:
    program = built(nothing, at(Stored(DType.F32, 4), (4,)))
    assert program.steps == ()
    assert program.result is None


def compared(build: ProgramBuilder, x: Operand, y: Operand) -> tuple[()]:
    launch(build, f"{build.are_same(x, y)}_{build.shares_memory(x, y)}", x.address, y.address)
    return ()


@pytest.mark.parametrize(
    ("first", "second", "is_one", "expected"),
    [
        ((4,), (4,), True, "True_True"),
        ((4,), (4,), False, "False_False"),
        ((4,), ((4,), None, 2), True, "False_True"),
        ((4,), ((4,), None, 4), True, "False_False"),
        (((4,), None, 4), (4,), True, "False_False"),
        (((2,), (3,)), ((2,), None, 3), True, "False_True"),
    ],
)
def test_operands_of_one_storage_may_share_elements(first: Any, second: Any, is_one: bool, expected: str) -> None:
    x, y = Stored(DType.F32, 8), Stored(DType.F32, 8)
    operands = [at(*(each, arguments) if isinstance(arguments[0], int) else (each, *arguments))
                for each, arguments in ((x, first), (x if is_one else y, second))]  # fmt: skip
    program = built(compared, *operands)
    assert [step.kernel for step in program.steps if isinstance(step, Launch)] == [expected]
    first_memory, second_memory = (argument.memory for argument in program.arguments)
    assert first_memory is not second_memory
    assert first_memory.is_same(second_memory) == is_one
    assert program.disjoint == ()


layouts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=3).flatmap(
    lambda dims: st.builds(
        layout, *[st.just(each) for each in zip(*dims, strict=True)] or [st.just(())] * 2, st.integers(0, 9)
    )
)


@given(layouts, layouts)
def test_operands_that_share_an_element_are_found(one: Layout, other: Layout) -> None:
    def reached(layout: Layout) -> set[int]:
        return {
            layout.start_offset + sum(map(operator.mul, index, layout.strides)) for index in np.ndindex(*layout.shape)
        }

    x = Stored(DType.F16, 100)
    (step,) = built(compared, Operand(x, one), Operand(x, other)).steps
    are_same, shares = step.kernel.split("_")
    assert (are_same == "True") == (one == other)
    if reached(one) & reached(other):
        assert shares == "True"
    assert shares == "False" or (reached(one) and reached(other))


def test_foreign_memory_is_apart_until_a_run_finds_that_it_overlaps() -> None:
    x, y = (at(Stored(DType.F32, 8, skew=4), (8,)) for _ in range(2))
    call = call_of(compared, x, y)
    apart, shared = call.program(FACTS), call.program(FACTS, frozenset([(0, 1)]))
    assert apart is not None and shared is not None
    assert [[memory.argument for memory in pair] for pair in apart.disjoint] == [[0, 1]]
    assert shared.disjoint == ()
    assert [program.steps[0].kernel for program in (apart, shared)] == ["False_False", "False_True"]
    # Memory of the package's own overlaps with nothing.
    assert built(compared, x, at(Stored(DType.F32, 8), (8,))).disjoint == ()


def noted(build: ProgramBuilder, *arguments: Any, **options: Any) -> tuple[()]:
    build.host(print, *arguments, **options)
    return ()


def test_a_call_has_a_place_for_each_storage_and_number() -> None:
    x, y = Stored(DType.F32, 4), Stored(DType.U8, 2)
    arguments = x, at(x, (4,)), "option", (2, 3), None, y, 1.5, 2
    program = built(noted, *arguments, numbers=2, flag=True)
    kinds = [type(argument) for argument in program.arguments]
    assert kinds == [Buffer, Buffer, Buffer, Parameter, Parameter]
    assert [argument.memory.owner for argument in program.arguments[:3]] == [0, 0, 2]
    (step,) = program.steps
    buffers, numbers = program.arguments[:3], program.arguments[3:]
    expected = buffers[0], Operand(buffers[1], layout((4,))), "option", (2, 3), None, buffers[2], *numbers
    assert (step.arguments, step.options) == (expected, {"flag": True})
    _, operands = OpCall.of(noted, arguments, {}, 2)
    assert operands == [x, x, y, 1.5, 2]


def add(x: Operand, number: float, *, sign: int) -> tuple[Any, ...]:
    """A function of an array library."""
    return x.storage, x.layout, sign * number


def test_a_function_of_an_array_library_is_one_step() -> None:
    x = at(Stored(DType.F32, 4), (4,))
    program = built(add, x, 0.5, numbers=1, sign=-1)
    assert program.is_host_call
    (step,) = program.steps
    first, second = program.arguments
    assert step == program.result == HostCall(add, (Operand(first, x.layout), second), {"sign": -1})
    arguments = "(x0: f32[4], Layout(shape=(4,), strides=(1,), start_offset=0)), n1"
    assert str(program) == f"add(x0: f32[4], n1):\n    return host add({arguments})"
    assert host_plan(program)("other", 2.0) == ("other", x.layout, -2.0)


def host_plan(program: Program) -> Callable[..., Any]:
    """What runs a program on a host whose storages are arrays."""
    return HostCompiler(program, translated, lambda array: array).function()


def translated(error: Exception) -> Exception:
    return RuntimeError("translated") if isinstance(error, LookupError) else error


@pytest.mark.parametrize(("error", "raised"), [(KeyError, RuntimeError), (ValueError, ValueError)])
def test_errors_of_an_array_library_are_translated_where_its_program_runs(
    error: type[Exception], raised: type[Exception]
) -> None:
    def fail(x: Any) -> Any:
        raise error(x)

    plan = host_plan(built(fail, Stored(DType.F32, 4)))
    with pytest.raises(raised):
        plan("storage")
    with pytest.raises(raised), Translating(translated):
        fail("storage")


def prepared(build: ProgramBuilder, x: Operand, number: float | Parameter) -> HostCall:
    """An op whose function takes what runs are given, as it is."""
    return build.host(pow, x.storage, number)


def test_a_function_that_takes_what_runs_are_given_is_called_as_it_is() -> None:
    program = built(prepared, at(Stored(DType.F32, 4), (4,)), 0.5, numbers=1)
    assert program.is_host_call
    assert host_plan(program)(3, 2) == 9


def test_functions_of_the_host_get_what_earlier_ones_return() -> None:
    alive = list[weakref.ref[Any]]()

    def sum_of(*arrays: Any) -> Any:
        result = sum(arrays)
        alive.append(weakref.ref(result))
        return result

    def count() -> int:
        return sum(reference() is not None for reference in alive)

    def op(build: ProgramBuilder, x: Buffer, number: Parameter) -> tuple[Buffer, ...]:
        two = build.constant(np.full(1, 2, np.float32))
        first = build.buffer_of(build.host(sum_of, x, two), x.dtype, x.length)
        second = build.buffer_of(build.host(sum_of, first, number), x.dtype, x.length)
        build.buffer_of(build.host(sum_of, two), two.dtype, 1)
        return second, build.buffer_of(build.host(count), DType.I64, 1)

    program = built(op, Stored(DType.F32, 3), 0.5, numbers=1)
    Run(program, [0.5])
    assert str(program).replace(f"{op.__qualname__.partition('.')[0]}.", "").splitlines() == [
        "op(x0: f32[3], n1):",
        "    m0: f32[3] = host sum_of(x0: f32[3], constant 2.0: f32[1])",
        "    m1: f32[3] = host sum_of(m0: f32[3], n1)",
        "    free m0",
        "    m2: f32[1] = host sum_of(constant 2.0: f32[1])",
        "    free m2",
        "    m3: i64[1] = host count()",
        "    return m1: f32[3], m3: i64[1]",
    ]
    result, living = host_plan(program)(np.arange(3, dtype="f4"), 0.5)
    assert result.tolist() == [2.5, 3.5, 4.5]
    assert living == 1


def refusing(build: ProgramBuilder, x: Operand, is_taken: bool) -> Buffer | None:
    result = build.empty(x.dtype, 1)
    call = LibraryCall(print, (result.address,)) if is_taken else None
    return result if build.append(call, partial(copied, x=x)) else None


def copied(build: ProgramBuilder, x: Operand) -> Buffer:
    return build.empty(x.dtype, 1)


def test_an_op_leaves_a_call_to_another_one() -> None:
    x = at(Stored(DType.F32, 4), (4,))
    assert call_of(refusing, x, False).program(FACTS, may_refuse=True) is None
    taken = call_of(refusing, x, True).program(FACTS, may_refuse=True)
    assert taken is not None
    assert str(taken).splitlines()[2] == "    call print(m0), else copied"
    program = call_of(refusing, x, False).program(FACTS)
    assert program is not None and program.result is None


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12), st.sets(st.integers(0, 4)))
def test_every_memory_lives_from_its_first_step_to_its_last(pairs: list[tuple[int, int]], returned: set[int]) -> None:
    def copies(build: ProgramBuilder) -> tuple[Buffer, ...]:
        buffers = [build.empty(DType.U8, 8) for _ in range(5)]
        for number in returned:
            build.fill(buffers[number].address, number, 8)
        for target, source in pairs:
            if target != source:
                build.copy(buffers[target].address, buffers[source].address, 8)
        return tuple(buffers[number] for number in sorted(returned))

    program = built(copies)
    Run(program)
    used = {number for pair in pairs if pair[0] != pair[1] for number in pair} | returned
    assert sum(isinstance(step, Allocate) for step in program.steps) == len(used)
    assert sum(map(len, program.released)) == len(used - returned)
    assert described(program) == described(built(copies))


MEMORY, GIVEN = Memory(8), Buffer(DType.U8, 8, Memory(8, argument=0))
ALLOCATE, FILL = Allocate(MEMORY), Fill(MEMORY.address, 1, 8)
COPY = Copy(GIVEN.address, MEMORY.address, 8)


@pytest.mark.parametrize(
    ("steps", "last", "message"),
    [
        ([ALLOCATE, FILL, COPY], 2, None),
        ([FILL, ALLOCATE, COPY], 2, "memory that is not allocated"),
        ([ALLOCATE, FILL, COPY], 1, "memory that is not allocated, or is released"),
        ([ALLOCATE, FILL, COPY], None, "neither released nor a result"),
        ([ALLOCATE, FILL, ExpectError()], 2, "by a step that does not use it"),
        ([ALLOCATE, ALLOCATE, FILL, COPY], 3, "allocated twice"),
        ([ALLOCATE, Fill(MEMORY.address + 1, 1, 8), COPY], 2, "outside of its memory"),
        ([ALLOCATE, FILL, Copy(MEMORY.address, MEMORY.address + 3, 4)], 2, "overlaps itself"),
    ],
)
def test_a_run_on_numpy_memory_finds_what_is_wrong(steps: list[Any], last: int | None, message: str | None) -> None:
    released = tuple([(MEMORY,) if position == last else () for position in range(len(steps))])
    program = Program("faulty", (GIVEN,), tuple(steps), None, released)
    if message is None:
        Run(program)
        return
    with pytest.raises(AssertionError, match=message):
        Run(program)
