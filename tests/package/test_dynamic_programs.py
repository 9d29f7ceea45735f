"""Dynamic programs: those of one number of elements are the programs that ops build for it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import DType, Layout
from tallow.kernels import host_launches as host_emitted
from tallow.kernels import launches as emitted
from tallow.op import BinaryGradientOp, BinaryGradientsOp, BinaryOp, CmpOp, MethodOp, UnaryGradientOp, UnaryOp
from tallow.runtime.backends.cpu_backend.kernel_call import BRIEF
from tallow.runtime.backends.cpu_backend.ops import native, native_copy, native_memory
from tallow.runtime.backends.gpu_backend.ops import copy, elementwise, memory
from tallow.runtime.core.shape import Shape
from tallow.runtime.program.builder import Facts, OpCall, ProgramBuilder
from tallow.runtime.program.dynamic import dynamic_call, dynamic_ops, with_count
from tallow.runtime.program.values import Operand

from .programs import FACTS, LARGE, Stored, described

MOST = 1 << 26
COUNTS = (1, 3, 4096, 4097, 1 << 22, MOST - 8)


def of(dtype: DType, count: int, offset: int = 0) -> Operand:
    """Contiguous elements of a large storage."""
    return Operand(Stored(dtype, MOST), Layout.contiguous((count,), offset))


def number(dtype: DType, count: int) -> Operand:
    """A number as so many elements."""
    return Operand(Stored(dtype, 1, is_number=True), Layout(Shape((count,)), (0,)))


F32, BF16, U8 = DType.F32, DType.BF16, DType.U8
CALLS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "unary": lambda n: (elementwise.unary, UnaryOp.EXP, of(F32, n)),
    "unaligned unary": lambda n: (elementwise.unary, UnaryOp.EXP, of(BF16, n, 3)),
    "parameter": lambda n: (elementwise.unary, MethodOp.ELU, of(F32, n), 0.5),
    "cast": lambda n: (elementwise.cast, MethodOp.TO_DTYPE, of(F32, n), DType.F16),
    "cast that copies": lambda n: (elementwise.cast, MethodOp.TO_DTYPE, of(F32, n), F32),
    "binary": lambda n: (elementwise.binary, BinaryOp.ADD, of(F32, n), of(F32, n, 1)),
    "number": lambda n: (elementwise.binary, BinaryOp.SUB, number(F32, n), of(F32, n)),
    "compare": lambda n: (elementwise.compare, CmpOp.LT, of(BF16, n), of(BF16, n)),
    "ternary": lambda n: (elementwise.ternary, MethodOp.WHERE_COND, of(U8, n), of(F32, n), of(F32, n)),
    "gradient": lambda n: (elementwise.gradient, UnaryGradientOp.SIN_GRADIENT, of(F32, n), of(F32, n)),
    "binary gradient": lambda n: (
        elementwise.gradient, BinaryGradientOp.DIV_GRADIENT_Y, of(F32, n), of(F32, n), of(F32, n),
    ),
    "gradients": lambda n: (
        elementwise.binary_gradients, BinaryGradientsOp.MUL_GRADIENTS, of(F32, n), of(F32, n), of(F32, n),
    ),
    "const_set": lambda n: (copy.const_set, of(BF16, n), 2.5),
    "zeros": lambda n: (memory.zeros, Shape((n,)), BF16),
    "arange": lambda n: (memory.arange, 1, 2, Shape((n,)), DType.I64),
    "arange of floats": lambda n: (memory.arange, -0.0, 0.5, Shape((n,)), F32),
    "rand": lambda n: (emitted.rand_uniform_f64, 0.0, 1.0, Shape((n,)), F32),
    "randn": lambda n: (emitted.rand_normal_f64, 0.0, 1.0, Shape((n,)), BF16),
    "rand_integers": lambda n: (emitted.rand_integers, -3, 5, Shape((n,))),
}  # fmt: skip
HOST = SimpleNamespace(has=lambda *_: True)
"""Kernels of the CPU of every name."""
CALLS |= {
    "host unary": lambda n: (native.elementwise, HOST, UnaryOp.EXP, of(BF16, n, 3)),
    "host parameter": lambda n: (native.elementwise, HOST, MethodOp.ELU, of(F32, n), 0.5),
    "host cast": lambda n: (native.elementwise, HOST, MethodOp.TO_DTYPE, of(F32, n), DType.F16),
    "host binary": lambda n: (native.elementwise, HOST, BinaryOp.ADD, of(F32, n), of(F32, n, 1)),
    "host number": lambda n: (
        native.elementwise, HOST, BinaryOp.SUB, Operand(Stored(F32, 1), Layout(Shape((n,)), (0,))), of(F32, n),
    ),
    "host gradients": lambda n: (
        native.binary_gradients, HOST, BinaryGradientsOp.MUL_GRADIENTS, of(F32, n), of(F32, n), of(F32, n),
    ),
    "host fill": lambda n: (native_copy.fill, HOST, of(BF16, n), 2.5),
    "host zeros": lambda n: (native_memory.zeros, HOST, Shape((n,)), BF16),
    "host empty": lambda n: (native_memory.empty, HOST, Shape((n,)), BF16),
    "host rand": lambda n: (host_emitted.rand_uniform_f64, HOST, 0.0, 1.0, Shape((n,)), F32),
    "host randn": lambda n: (host_emitted.rand_normal_f64, HOST, 0.0, 1.0, Shape((n,)), BF16),
    "host rand_integers": lambda n: (host_emitted.rand_integers, HOST, -3, 5, Shape((n,))),
}  # fmt: skip
NUMBERS = {"parameter": 1, "const_set": 1, "host parameter": 1, "host fill": 1}


def call_of(name: str, count: int) -> OpCall:
    op, *arguments = CALLS[name](count)
    options = {"result": arguments.pop()} if isinstance(arguments[-1], DType) and "cast" in name else {}
    return OpCall.of(op, tuple(arguments), options, NUMBERS.get(name, 0))[0]


@pytest.mark.parametrize("facts", [FACTS, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", CALLS)
def test_a_dynamic_program_is_that_of_each_number_of_elements(name: str, facts: Facts) -> None:
    limit = dynamic_ops[CALLS[name](1)[0]].limit
    for built_for in (2, min(1 << 23, limit)):
        program = call_of(name, built_for).dynamic().program(facts)
        assert program is not None
        for count in [count for count in COUNTS if count <= limit and (count > 1 or name != "host number")]:
            expected = call_of(name, count).program(facts)
            assert expected is not None
            assert described(with_count(program, count)) == described(expected)
            assert str(with_count(program, count)) == str(expected)


def test_every_dynamic_op_is_tested() -> None:
    assert {call(1)[0] for call in CALLS.values()} == dynamic_ops.keys()


def test_a_dynamic_program_is_printed() -> None:
    assert str(call_of("binary", 5).dynamic().program(FACTS)).splitlines() == [
        "binary(x0: f32[67108864], x1: f32[67108864], n2):",
        "    m0 = allocate mul(n2) bytes",
        "    launch binary/add_f32_contiguous on _blocks(n2) blocks (m0, x0, x1 + 4, n2)",
        "    return m0: f32[n2]",
    ]


class Own(Stored):
    """A storage of which dynamic programs take the memory."""

    form: int | None = 0

    @property
    def dynamic_form(self) -> int | None:
        return self.form


def contiguous(count: int, offset: int = 0, form: int | None = 0) -> Operand:
    storage = Own(F32, count + offset)
    storage.form = form
    return Operand(storage, Layout.contiguous((count,), offset))


def test_calls_that_differ_in_their_number_of_elements_have_one_key() -> None:
    x, y = contiguous(6), contiguous(9)
    first = dynamic_call(elementwise.unary, (MethodOp.ELU, x, 0.5), {"result": None}, 1)
    second = dynamic_call(elementwise.unary, (MethodOp.ELU, y, 2.5), {"result": None}, 1)
    assert first is not None and second is not None
    assert first == (second.key, [x.storage, 0.5], 6)
    assert (second.operands, second.elements) == ([y.storage, 2.5], 9)
    others = [
        dynamic_call(elementwise.unary, (UnaryOp.EXP, x), {}, 0),
        dynamic_call(elementwise.unary, (MethodOp.ELU, contiguous(6, 1), 0.5), {"result": None}, 1),
        dynamic_call(elementwise.unary, (MethodOp.ELU, contiguous(6, form=-1), 0.5), {"result": None}, 1),
        dynamic_call(elementwise.unary, (MethodOp.ELU, x, 0.5), {"result": F32}, 1),
        dynamic_call(copy.const_set, (contiguous(1, form=-1),), {}, 0),
    ]
    keys = {first.key, *[other.key for other in others if other is not None]}
    assert len(keys) == 1 + len(others)
    repeated = Operand(contiguous(1, form=-1).storage, Layout(Shape((3,)), (0,)))
    for function, arguments in (
        (copy.const_set, (repeated,)),
        (elementwise.unary, (UnaryOp.EXP, repeated)),
        (elementwise.binary, (BinaryOp.ADD, repeated, repeated)),
        (elementwise.ternary, (MethodOp.WHERE_COND, repeated, contiguous(3), contiguous(3))),
        (elementwise.binary, (BinaryOp.ADD, contiguous(3), Operand(repeated.storage, Layout(Shape((3, 1)), (0, 1))))),
    ):
        assert dynamic_call(function, arguments, {}, 0) is None
    assert dynamic_call(elementwise.binary, (BinaryOp.ADD, contiguous(3), repeated), {}, 0) is not None


@pytest.mark.parametrize(
    "operands",
    [
        (contiguous(0),),
        (contiguous(3, form=None),),
        (Operand(Own(F32, 9), Layout(Shape((3,)), (2,))),),
        (contiguous(3), contiguous(4)),
    ],
    ids=["nothing", "memory of others", "strides", "lengths"],
)
def test_other_calls_have_programs_of_their_own(operands: tuple[Operand, ...]) -> None:
    assert dynamic_call(elementwise.unary, operands, {}, 0) is None


def test_more_elements_than_the_limit_have_programs_of_their_own() -> None:
    assert dynamic_ops[native_memory.zeros].limit == BRIEF
    assert native_memory.zeros(ProgramBuilder(FACTS), HOST, Shape((BRIEF + 1,)), F32) is None  # type: ignore[arg-type]


def test_repeated_numbers_are_read_for_each_element(device: tl.Device) -> None:
    """Kernels that read a number in memory have the dims of its layout, of which a dynamic program knows nothing."""
    for rows in (3, 4, 50):
        x = tl.full((rows, 3), float(rows), device=device)
        half = tl.Tensor._new(x._number("add", 0.5 + rows), Layout((rows, 3), (0, 0), 0))
        computed = {
            "exp": (half.exp(), np.exp(0.5 + rows)),
            "to_dtype": (half.to_dtype("i32"), rows),
            "both": (half + half, 1 + 2 * rows),
            "left": (half - x, 0.5),
            "right": (x - half, -0.5),
            "condition": ((half > x).where(half, x), 0.5 + rows),
            "gradient": (half._gradient(UnaryGradientOp.SIN_GRADIENT, x), (0.5 + rows) * np.cos(rows)),
            "of gradient": (x._gradient(UnaryGradientOp.SIN_GRADIENT, half), rows * np.cos(0.5 + rows)),
        }
        for name, (result, expected) in computed.items():
            np.testing.assert_allclose(result.numpy(), np.full((rows, 3), expected), rtol=1e-5, err_msg=name)
