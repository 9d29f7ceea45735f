"""A fused function gives the bits that its ops give one by one: every functor, dtype and layout class."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tallow as tl
from tallow import BinaryOp, CmpOp, DType, Tensor, UnaryOp
from tallow.backends import CpuDevice
from tallow.kernels.constants import ELEMENTWISE_METHODS, ROWS
from tallow.op import BinaryGradientOp, MethodOp, UnaryGradientOp
from tallow.runtime.base.error import TallowError
from tallow.runtime.graph.traced import Trace, TracedStorage

from . import calls, matrix, values
from .bench import cell_label
from .comparison import is_different
from .layouts import CONTIGUOUS, FEW_VIEWS, TILES, VIEWS, Case, lay_out
from .oracle.formats import NUMPY, Array

Function = Callable[[Tensor, Tensor], Tensor]

DTYPES = pytest.mark.parametrize("dtype", DType, ids=str)
# A dtype of each way to compute, and of each width.
FEW_DTYPES = pytest.mark.parametrize("dtype", [DType.U8, DType.BF16, DType.F32, DType.I64], ids=str)


def functions(dtype: DType, backend: str) -> dict[str, Function]:
    """A function of x and y for each functor that has the dtype, with a tensor, and with a number on either side."""
    results: dict[str, Function] = {}
    for op in UnaryOp:
        if dtype in op.dtypes:
            results[op.value] = lambda x, y, name=op.value: getattr(x, name)()
    for op in (*BinaryOp, *CmpOp):
        # A method with other operands, such as prelu's channels, is not the op alone.
        is_method = "other" in inspect.signature(getattr(Tensor, op.value, lambda: None)).parameters
        if dtype in op.dtypes and not is_method:
            results[op.value] = lambda x, y, op=op: x._binary(op, y)
        elif dtype in op.dtypes:
            results[op.value] = lambda x, y, name=op.value: getattr(x, name)(y)
            results[f"{op.value} of a number"] = lambda x, y, name=op.value: getattr(x, name)(dtype is DType.BOOL or 3)
    for op in (*UnaryGradientOp, *BinaryGradientOp):
        if dtype in op.dtypes:
            results[op.value] = lambda x, y, op=op: x._gradient(op, *(y, x)[: 1 + isinstance(op, BinaryGradientOp)])
    for op in MethodOp:
        is_elementwise = op.value in ELEMENTWISE_METHODS and op not in (MethodOp.TO_DTYPE, MethodOp.WHERE_COND)
        if dtype not in op.dtypes or not hasattr(Tensor, op.value) or not is_elementwise:
            continue
        parameters = inspect.signature(getattr(Tensor, op.value)).parameters.values()
        count = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters) - 1
        for first in (0, 1):
            numbers = (2, 1, 0, 3)[first : first + count]
            results[f"{op.value}{numbers}"] = lambda x, y, name=op.value, numbers=numbers: getattr(x, name)(*numbers)
    is_complex = dtype.kind == "complex"
    for other in map(DType, matrix.dtypes_of(backend)):
        if is_complex and other.kind not in ("complex", "bool"):
            continue
        results[f"to_dtype {other}"] = lambda x, y, other=other: x.to_dtype(other) if other is not x.dtype else x.copy()
    if is_complex:
        results["where"] = lambda x, y: (x == y).where(x, 2 - 1j)
        results["1 + 2j - x"] = lambda x, y: (1 + 2j) - x
        return results
    results["where"] = lambda x, y: (x > y).where(x, y)
    results["1 < x"] = lambda x, y: 1 < x  # noqa: SIM300
    if not dtype.is_float:
        results["where by elements"] = lambda x, y: x.where(y, x)
    if dtype is DType.BOOL:
        return results
    results["where of a number"] = lambda x, y: (x > y).where(3, y) + (x < y).where(x, 1)
    results["3 - x"] = lambda x, y: 3 - x
    results["3 / x"] = lambda x, y: 3 / x
    if dtype.is_float:
        results["3 ** x"] = lambda x, y: 3**x
        results["x ** 2"] = lambda x, y: x**2 + x**0.5
    return results


def chain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Ops whose results are rounded in between, and operands that come several times and broadcast."""
    steps = ((x * y + 3) // 7 - x).abs().sqr()
    return steps.maximum(y).clamp(1, 40) + x.relu() * steps, (steps > y).where(x, steps)


def assert_same(got: Tensor, expected: Tensor, where: str) -> None:
    """The same bits; NaNs are alike, since compilers may swap the operands of a sum."""
    assert (got.shape, got.dtype, got.device) == (expected.shape, expected.dtype, expected.device), where
    actual, reference = got.numpy(), expected.numpy()
    indices = np.argwhere(is_different(actual, reference))
    assert not indices.size, (
        f"{where}: {actual[tuple(indices[0])]}, not {reference[tuple(indices[0])]}, at {indices[0]}"
    )


def tensor(device: tl.Device, dtype: DType, array: Array, placement: str = "contiguous") -> Tensor:
    operand = lay_out(device, dtype.value, array, placement)
    return Tensor.from_storage(operand.storage, operand.layout)


@DTYPES
def test_each_functor_gives_the_bits_of_its_op(device: tl.Device, dtype: DType, full: bool) -> None:
    x, y = (tensor(device, dtype, array) for array in values.special_pairs(dtype.value))
    results = functions(dtype, device.backend)
    if device.backend != "cpu" and not full:
        # A compiler takes a second for twenty of them. Each dtype has a third, since they differ in the type alone.
        position = [*DType].index(dtype) % 3
        results = dict([*results.items()][position::3])
    fused = tl.fuse(lambda x, y: [function(x, y) for function in results.values()])
    for time in ("first", "recorded", "planned"):
        for name, got, function in zip(results, fused(x, y), results.values(), strict=True):
            assert_same(got, function(x, y), f"{name} {time}")


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32], ids=str)
def test_gradients_of_each_functor_are_fused_and_have_the_bits_of_its_op(
    monkeypatch: pytest.MonkeyPatch, dtype: DType
) -> None:
    """On the CPU, as on GPUs, whose compilers take a second for each function."""
    monkeypatch.setattr(CpuDevice, "has_fused_kernels", True)
    device = tl.Device.cpu()
    x, y = (tensor(device, dtype, array) for array in values.special_pairs(dtype.value))
    g = tensor(device, dtype, values.ordinary(np.random.default_rng(0), dtype.value, tuple(x.shape)))
    called_by_ops = set()
    for name, function in functions(dtype, "cpu").items():
        if "complex" in name:
            continue  # complex numbers have no gradients
        pairs = []
        for each in (tl.fuse(function), function):
            variables = tl.Var(x), tl.Var(y)
            result = each(*variables)
            actual: dict[tl.Var, Tensor] | tl.Gradients = {}
            if result.is_recorded:
                # That of the function where the call is recorded as one.
                if each is not function and result._storage.inner.name != function.__name__:
                    called_by_ops.add(name)
                actual = result.backward(g.to_dtype(result.dtype))
            pairs.append([actual[variable] for variable in variables if variable in actual])
        for got, expected in zip(*pairs, strict=True):
            assert_same(got, expected, name)
    # Its op of both gradients reads no result that was rounded.
    assert called_by_ops == ({"hypot"} if dtype is DType.BF16 else set())


@FEW_DTYPES
def test_layouts_of_every_class_give_the_bits_of_the_ops(device: tl.Device, dtype: DType) -> None:
    generator = np.random.default_rng(0)
    fused = tl.fuse(chain)
    for case in VIEWS + CONTIGUOUS + TILES:
        others = [case, *(Case(case.shape, few.placement) for few in FEW_VIEWS if len(case.shape) == 2)]
        for other in others[: 1 if case in TILES else None]:
            x, y = (
                tensor(device, dtype, values.mixed(generator, dtype.value, case.shape), each.placement)
                for each in (case, other)
            )
            for _ in range(3):
                for got, expected in zip(fused(x, y), chain(x, y), strict=True):
                    assert_same(got, expected, f"{case} and {other}")


@FEW_DTYPES
def test_operands_broadcast(device: tl.Device, dtype: DType) -> None:
    generator = np.random.default_rng(0)
    fused = tl.fuse(chain)
    for left, right in (((4, 1, 5), (3, 1)), ((), (2, 3)), ((17,), (16, 1)), ((1, 1), (1,)), ((0, 3), (3,)), ((), ())):
        x, y = (tensor(device, dtype, values.mixed(generator, dtype.value, shape)) for shape in (left, right))
        for _ in range(3):
            for got, expected in zip(fused(x, y), chain(x, y), strict=True):
                assert_same(got, expected, f"{left} and {right}")


def test_traced_methods_have_the_dtypes_and_the_errors_of_calls(device: tl.Device) -> None:
    """Of each elementwise cell and each of rows, with operands of its dtype and with one of another dtype."""

    def make(name: str, length: int) -> tl.Storage:
        return device.storage(np.ones(length, NUMPY[name]))

    dtypes = matrix.dtypes_of(device.backend)
    for cell in tl.support():
        facts = ROWS.get(cell.method)
        is_fused = cell.method in ELEMENTWISE_METHODS or (facts is not None and not facts.numbers)
        if not is_fused or cell.backend != device.backend or str(cell.dtype) not in dtypes:
            continue
        storage, method, arguments = calls.storage_call(cell, make)
        # What adds up rows is no fused function.
        arguments = {name: False if it is True else it for name, it in arguments.items()}
        inputs = [storage, *arguments.values()]
        indices = [index for index, each in enumerate(inputs) if isinstance(each, tl.Storage)]
        for other, name in [(None, ""), *itertools.product(indices, {"i16", "f32", "complex64"} & {*dtypes})]:
            changed = [make(name, each.length) if index == other else each for index, each in enumerate(inputs)]
            trace = Trace("f", device, ())
            traced = [
                TracedStorage.create(trace, each.dtype, position=index) if index in indices else each
                for index, each in enumerate(changed)
            ]
            expected, actual = (outcome(method, *every) for every in (changed, traced))
            assert actual == expected, f"{cell_label(cell)}, operand {other} of {name}"


def outcome(method: str, storage: tl.Storage, *arguments: object) -> str:
    """The dtype that a call gives, or its error."""
    try:
        result = getattr(storage, method)(*arguments)
        return ", ".join(str(each.dtype) for each in (result if isinstance(result, tuple) else (result,)))
    except TallowError as error:
        return f"{type(error).__name__}: {error}"
