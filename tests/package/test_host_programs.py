"""How the CPU runs programs: a launch by a call that is made in C, several steps by a function written for them."""

from __future__ import annotations

import gc
import linecache
import pkgutil
import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow.kernels import host_launches
from tallow.kernels.constants import JOIN_ROWS_SOURCES
from tallow.op import BinaryGradientsOp, MethodOp
from tallow.runtime.backends.cpu_backend import ops
from tallow.runtime.backends.cpu_backend.execute import compiled
from tallow.runtime.backends.cpu_backend.kernels import HostKernels
from tallow.runtime.backends.cpu_backend.ops import native, native_copy, native_scan
from tallow.runtime.backends.cpu_backend.storage import CpuStorage
from tallow.runtime.program.builder import OpCall, ProgramBuilder, builds
from tallow.runtime.program.program import Allocate, HostCall, Launch, Program
from tallow.runtime.program.values import Buffer, Operand, dense

KERNELS = HostKernels.open()
DEVICE = tl.Device.cpu().inner
MODULES = [import_module(f"{ops.__name__}.{each.name}") for each in pkgutil.iter_modules(ops.__path__)]
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no kernels for this machine; run 'opgen compile --host'")


def stored(*values: float, dtype: str = "f4") -> CpuStorage:
    storage = tl.Device.cpu().storage(np.array(values, dtype)).inner
    assert isinstance(storage, CpuStorage)
    return storage


def row(storage: CpuStorage) -> Operand:
    return Operand(storage, tl.Layout.contiguous((storage.length,)))


def program_of(op: Callable[..., Any], *arguments: Any, numbers: int = 0, **options: Any) -> Program:
    call, _ = OpCall.of(op, arguments, options, numbers)
    program = call.program(DEVICE.facts)
    assert program is not None
    return program


def test_one_launch_is_one_call_made_in_c() -> None:
    x, y = stored(1, 2, 3), stored(4, 5, 6)
    add = compiled(DEVICE, program_of(native.elementwise, KERNELS, tl.BinaryOp.ADD, row(x), row(y)))
    assert not isinstance(add, FunctionType)
    assert add(x, y).to_numpy().tolist() == [5, 7, 9]
    assert add(y, y).to_numpy().tolist() == [8, 10, 12]
    assign = compiled(DEVICE, program_of(native_copy.assign, KERNELS, row(x), row(y)))
    assert assign(x, y) is True
    assert x.to_numpy().tolist() == [4, 5, 6]
    gradients = program_of(native.binary_gradients, KERNELS, BinaryGradientsOp.MUL_GRADIENTS, row(x), row(x), row(x))
    assert [result.to_numpy().tolist() for result in compiled(DEVICE, gradients)(x, x, x)] == [[16, 25, 36]] * 2


@pytest.mark.parametrize("count", [1, 3, JOIN_ROWS_SOURCES])
@pytest.mark.parametrize(("strides", "offset"), [((4, 1), 0), ((16, 1), 1), ((16, 2), 2), ((1, 8), 0)])
@pytest.mark.parametrize("dim", [0, 1])
def test_operands_are_joined_by_one_launch(count: int, strides: tuple[int, int], offset: int, dim: int) -> None:
    x = Operand(stored(*range(48)), tl.Layout((3, 4), strides, offset))
    program = program_of(native_copy.cat, KERNELS, x, dim, *[x] * (count - 1))
    assert [type(step) for step in program.steps] == [Allocate, Launch]


def test_several_steps_are_a_function_whose_text_can_be_read() -> None:
    x = stored(1, 2, 3, 4)
    transposed = Operand(x, tl.Layout((2, 2), (1, 2)))
    plan = compiled(DEVICE, program_of(native_scan.scan, KERNELS, MethodOp.CUMSUM, transposed, 0, False))
    assert isinstance(plan, FunctionType)
    assert plan(x).to_numpy().tolist() == [1, 3, 3, 7]
    lines = linecache.getlines(plan.__code__.co_filename)
    assert "scan" in plan.__code__.co_filename
    assert lines[0] == "def scan(x0):\n"


def test_memory_that_a_launch_uses_in_parts_is_allocated_before_it() -> None:
    def halves(build: ProgramBuilder, x: Operand) -> Buffer:
        """Both halves of the result are one half of x."""
        result = build.empty(x.dtype, x.layout.elem_count)
        count = result.length // 2
        half = Operand(x.storage, tl.Layout.contiguous((count,)))
        targets = [Operand(result, tl.Layout.contiguous((count,), start)) for start in (count, 0)]
        native.launch_map(build, "mul_gradients_f32", targets, [half, half, half])
        return result

    def second_half(build: ProgramBuilder, x: Operand) -> Buffer:
        """The rest of the result is what was there before."""
        result = build.empty(x.dtype, x.layout.elem_count)
        build.zero(result)
        count = result.length // 2
        part = Operand(result, tl.Layout.contiguous((count,), count))
        native.launch_map(build, native.MOVE, [part], [Operand(x.storage, tl.Layout.contiguous((count,)))])
        return result

    def twice(build: ProgramBuilder, x: Operand) -> tuple[Buffer, ...]:
        result = native.elementwise(build, KERNELS, tl.BinaryOp.ADD, x, x)
        return result, result

    x = stored(1, 2, 3, 4)
    for op, expected in ((halves, [1, 4, 1, 4]), (second_half, [0, 0, 1, 2])):
        plan = compiled(DEVICE, program_of(op, row(x)))
        assert plan(x).to_numpy().tolist() == expected
    first, second = compiled(DEVICE, program_of(twice, row(x)))(x)
    assert first is second
    assert first.to_numpy().tolist() == [2, 4, 6, 8]


def test_draws_come_from_the_stream_of_the_device() -> None:
    program = program_of(host_launches.rand_normal_f64, KERNELS, 0.0, 1.0, tl.Shape((5,)), tl.DType.F32)
    draw = compiled(DEVICE, program)
    DEVICE.random.set_seed(3)
    first, second = draw(), draw()
    DEVICE.random.set_seed(3)
    assert (draw().to_numpy() == first.to_numpy()).all()
    assert (draw().to_numpy() == second.to_numpy()).all()
    assert (first.to_numpy() != second.to_numpy()).all()


def test_memory_lives_until_its_last_use_and_a_fallback_is_run_where_a_library_refuses() -> None:
    is_taken, copies = True, list[weakref.ref[Any]]()

    def look(copy: CpuStorage, address: int) -> bool:
        copies.append(weakref.ref(copy.data))
        assert address != copy.address
        return is_taken

    def look_again() -> None:
        gc.collect()
        assert copies[-1]() is None

    def negated(x: Any) -> CpuStorage:
        return stored(*(-x.storage.data))

    def otherwise(build: ProgramBuilder, x: Operand) -> HostCall:
        return build.host(negated, x)

    def op(build: ProgramBuilder, x: Operand, number: float) -> Buffer | None:
        assert KERNELS is not None
        copy = native.copied(build, x)
        build.call(look, copy.storage, x.address, fallback=partial(otherwise, x=x))
        doubled = native.elementwise(build, KERNELS, tl.BinaryOp.ADD, copy, copy)
        assert doubled is not None
        build.host(look_again)
        return native.elementwise(build, KERNELS, MethodOp.AFFINE, dense(doubled, x.shape), number, 0.0)

    x = stored(1, 2, 3)
    plan = compiled(DEVICE, program_of(op, row(x), 3.0, numbers=1))
    assert plan(x, 3.0).to_numpy().tolist() == [6, 12, 18]
    assert plan(x, 0.5).to_numpy().tolist() == [1, 2, 3]
    is_taken = False
    assert plan(x, 3.0).to_numpy().tolist() == [-1, -2, -3]


def test_a_lack_of_memory_of_the_host_is_out_of_memory() -> None:
    def fail(_: CpuStorage) -> None:
        raise MemoryError

    def alone(build: ProgramBuilder, x: Operand) -> HostCall:
        return build.host(fail, x.storage)

    def among_others(build: ProgramBuilder, x: Operand) -> Buffer:
        copy = native.copied(build, x)
        build.host(fail, copy.storage)
        buffer: Buffer = copy.storage
        return buffer

    x = stored(1, 2, 3)
    for op in (alone, among_others):
        with pytest.raises(tl.OutOfMemory):
            compiled(DEVICE, program_of(op, row(x)))(x)


def test_every_op_of_kernels_builds_a_program() -> None:
    """Any other function would be called as one of NumPy's is, with the kernels among its arguments."""
    functions = [
        function
        for module in [*MODULES, host_launches]
        for name, function in vars(module).items()
        if isinstance(function, FunctionType) and not name.startswith("_")
        if {"HostKernels", "Onednn"} & {*list(function.__annotations__.values())[:2]}
        # One that only says whether kernels take operands is no op.
        if function.__annotations__["return"] != "bool"
    ]
    assert len(functions) > 50
    assert [function.__name__ for function in functions if not builds(function)] == []


def test_one_program_serves_any_number_of_elements() -> None:
    cpu, plans = tl.Device.cpu(), DEVICE.plans
    calls: list[Callable[[int], tl.Tensor]] = [
        lambda count: tl.arange(count, dtype="f32").gelu(),
        lambda count: tl.arange(count, dtype="bf16").elu(count),
        lambda count: tl.arange(count, dtype="f32") - 0.5,
        lambda count: tl.arange(count + 3, dtype="f64")[3:] * tl.arange(count, dtype="f64"),
        lambda count: tl.arange(count, dtype="i32").to_dtype("f16"),
        lambda count: tl.zeros((count,), dtype="i16"),
        lambda count: tl.full((count,), count),
        lambda count: tl.rand((count,)),
        lambda count: tl.randn((count,), dtype="f64"),
        lambda count: tl.Tensor([2.0]).broadcast_as((count,)).copy().fill_(3),
    ]
    counts = (3, 3, 8, 5, 5, 5, 70_000, 1, 0, 3)
    for call in calls:
        expected = []
        for count in counts:
            plans.clear()
            cpu.set_seed(count)
            expected.append(call(count).numpy())
        plans.clear()
        for count, alone in zip(counts, expected, strict=True):
            cpu.set_seed(count)
            assert call(count).numpy().tobytes() == alone.tobytes()
        # One element alone is a number, which has programs of its own.
        assert len(plans.dynamic) < len(set(counts) - {0})


def test_what_a_layout_repeats_is_written_once_whatever_was_written_before() -> None:
    for count in (1, 5, 100_000):
        storage = tl.Device.cpu().storage(np.zeros(1, "f4"))
        storage.const_set(3.0, tl.Layout((count,), (0,)))
        assert storage.to_numpy() == 3
