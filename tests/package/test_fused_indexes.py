"""Fused functions with an index for each row: elements that are gathered, as losses of classes need."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
import tallow as tl
from tallow import DType, InvalidIndex, Tensor
from tallow.backends import CpuDevice
from tallow.dtype import INDEX
from tallow.runtime.backends.gpu_backend.ops import fused
from tallow.runtime.base.error import FusionError
from tallow.runtime.graph.fused_gradient import gradient_of
from tallow.runtime.graph.traced import Trace
from tallow.runtime.program.fused_function import FusedFunction
from tallow.runtime.program.values import Operand

from .programs import Stored, built, kernels

Compute = Callable[[Any, Any], Any]


def smoothed(x: Any, index: Any) -> Any:
    logarithms = x.log_softmax(-1)
    return -0.9 * logarithms.gather(index, -1).squeeze(-1) - 0.1 * logarithms.mean(-1)


# Functions of rows and of indexes that have the dim of the rows, of size 1: those that give the bits of their ops.
EXACT: Final[list[Compute]] = [
    lambda x, index: -x.log_softmax(-1).gather(index, -1).squeeze(-1),
    lambda x, index: (x * 2).exp().gather(index, -1) * 3,
    lambda x, index: x - x.gather(index, -1),
    lambda x, index: (x + x.gather(index, -1)).softmax(-1) * x.softmax(-1).gather(index, -1),
]
# Those in which reductions add up in another order.
REDUCED: Final[list[Compute]] = [
    smoothed,
    lambda x, index: (x - x.gather(index, -1)).tanh().sum(-1),
    lambda x, index: x.softmax(-1) * (x - x.mean(-1, keepdim=True)).gather(index, -1),
]


def case(device: tl.Device, shape: tuple[int, ...], dtype: str, index: DType) -> tuple[Tensor, Tensor]:
    """Rows, and an index for each, of which some are marks where the dtype has one."""
    normal = np.random.default_rng(len(shape))
    indexes = Tensor(normal.integers(0, min(shape[-1], 100), (*shape[:-1], 1)), dtype=index)
    if index.index_mark is not None and len(shape) > 1 and shape[0] > 1:
        indexes[0] = index.index_mark
    return Tensor(normal.standard_normal(shape), device=device).to_dtype(dtype), indexes.to_device(device)


class Loss(NamedTuple):
    """A loss of classes: a function of scores, targets and, of some, the weights of classes."""

    method: str
    arguments: Mapping[str, Any]
    is_weighted: bool

    def __call__(self, x: Any, targets: Any, weight: Any = None) -> Any:
        weights = {"weight": weight} if self.is_weighted else {}
        return getattr(x * 2, self.method)(targets, **self.arguments, **weights)


def losses() -> Iterator[Loss]:
    """The methods that take `ignore_index`, with arguments of every kind of theirs."""
    for name, method in inspect.getmembers(Tensor, inspect.isfunction):
        parameters = inspect.signature(method).parameters
        if "ignore_index" in parameters and not name.startswith("_"):
            shares = (0.0, 0.1) if "label_smoothing" in parameters else (0.0,)
            for is_weighted, reduction, share in itertools.product((False, True), ("none", "sum", "mean"), shares):
                smoothing = {"label_smoothing": share} if share else {}
                yield Loss(name, {"ignore_index": 1, "reduction": reduction, **smoothing}, is_weighted)


def check(
    device: tl.Device,
    function: Compute,
    case: Sequence[Tensor],
    *,
    is_exact: bool,
    has_exact_gradient: bool = False,
) -> None:
    x, *others = case
    actual = []
    for of in (tl.fuse(function), function):
        variable = tl.Var(x)
        result = of(variable, *others)
        weights = Tensor(np.random.default_rng(0).standard_normal(result.shape), device=device).to_dtype(result.dtype)
        gradient = (result * weights).backward(weights)[variable]
        actual.append([each.to_dtype("f64").numpy() for each in (of(x, *others), result.detach(), gradient)])
    (plain, recorded, gradient), (expected, _, derivative) = actual
    np.testing.assert_array_equal(plain, recorded)
    if has_exact_gradient:
        np.testing.assert_array_equal(gradient, derivative)
    tolerance = {"f64": 1e-13, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}[x.dtype.value]
    if is_exact:
        np.testing.assert_array_equal(plain, expected)
    np.testing.assert_allclose(plain, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    np.testing.assert_allclose(gradient, derivative, rtol=0, atol=tolerance * np.abs(derivative).max())


@pytest.mark.parametrize("function", [*EXACT, *REDUCED])
def test_gathered_elements_are_those_of_the_op_on_the_cpu(monkeypatch: pytest.MonkeyPatch, function: Compute) -> None:
    monkeypatch.setattr(CpuDevice, "has_fused_kernels", True)
    for shape in ((3, 40), (2, 3, 7), (5,)):
        for index in INDEX:
            check(tl.Device.cpu(), function, case(tl.Device.cpu(), shape, "f32", index), is_exact=True)


@pytest.mark.parametrize(
    ("shape", "dtype", "index"),
    [
        ((4, 64), "bf16", "i64"),
        # Threads without results of elements have twice the vectors.
        ((3, 1544), "f32", "i64"),
        *[
            pytest.param(shape, dtype, index, marks=pytest.mark.full)
            for shape in ((4, 64), (5, 33), (3, 4104), (2, 3, 5000), (1, 70_001))
            for dtype, index in (("f32", "u32"), ("bf16", "u8"), ("f64", "i16"))
        ],
    ],
)
def test_gathered_elements_are_those_of_the_op(
    gpu: Any, shape: tuple[int, ...], dtype: str, index: str, full: bool
) -> None:
    device = tl.Device(gpu)
    # Each function is compiled: every other one for long rows, the others for short ones.
    chosen = slice(None) if full else slice(int(shape[-1] < 1000), None, 2)
    for functions, is_exact in ((EXACT, True), (REDUCED, False)):
        for function in functions[chosen]:
            check(device, function, case(device, shape, dtype, DType(index)), is_exact=is_exact)


def check_losses(device: tl.Device, shape: tuple[int, ...], dtype: str, cases: Iterable[Loss]) -> None:
    normal = np.random.default_rng(0)
    targets = normal.integers(0, shape[1], (shape[0], *shape[2:]))
    targets.flat[0] = 1
    x = Tensor(normal.standard_normal(shape), device=device).to_dtype(dtype)
    weight = Tensor(normal.uniform(0.5, 2, shape[1]), device=device).to_dtype(dtype)
    for loss in cases:
        given = [x, Tensor(targets, device=device), *[weight] * loss.is_weighted]
        check(device, lambda *given, loss=loss: loss(*given) * 1.5, given, is_exact=True, has_exact_gradient=True)


@pytest.mark.parametrize("has_kernels", [False, True])
def test_losses_of_classes_have_the_bits_of_the_ops_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, has_kernels: bool
) -> None:
    monkeypatch.setattr(CpuDevice, "has_fused_kernels", has_kernels)
    for shape in ((5, 33), (4, 7, 3, 2), (2, 300)):
        for dtype in ("f32", "bf16", "f64"):
            check_losses(tl.Device.cpu(), shape, dtype, losses())


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((4, 64), "bf16"),
        *[
            pytest.param(shape, dtype, marks=pytest.mark.full)
            for shape in ((5, 33), (4, 7, 3, 2), (2, 70_001), (3, 5000))
            for dtype in ("f32", "bf16", "f64")
        ],
    ],
)
def test_losses_of_classes_have_the_bits_of_the_ops(gpu: Any, shape: tuple[int, ...], dtype: str, full: bool) -> None:
    means = {loss.method: loss for loss in losses()}
    check_losses(tl.Device(gpu), shape, dtype, losses() if full else means.values())


def test_a_loss_is_a_kernel_of_rows_and_one_of_all_of_them() -> None:
    for loss in losses():
        trace = Trace("loss", tl.Device.cpu(), ())
        inputs = (
            Tensor(np.zeros((128, 64)), dtype="f32"),
            Tensor(np.zeros(128), dtype="i64"),
            Tensor(np.zeros(64), "f32"),
        )
        of = trace.function([loss(*trace.proxies(inputs))])
        assert len(launched(of)) == (1 if loss.arguments["reduction"] == "none" else 2)
        recorded = of.with_saved
        layouts = tuple([layout if k == 0 else None for k, layout in enumerate(recorded.computed_layouts)])
        gradient = gradient_of(recorded, (0,), (0,), layouts, ())
        assert gradient is not None
        assert gradient.function is not None
        # It reads the targets, and computes no number of a row again.
        assert 1 in gradient.positions
        assert [step.op.value for step in gradient.function.steps if step.is_of_rows] == [
            f"{step.op.value}_gradient" for step in of.steps if step.is_of_rows
        ]
        dtypes = [DType.I64 if position == 1 else DType.F32 for position in gradient.positions]
        assert len(launched(gradient.function, dtypes)) == 1


def test_an_index_out_of_range_raises(gpu: Any) -> None:
    device = tl.Device(gpu)
    x, index = Tensor(np.ones((4, 64)), device=device).to_dtype("bf16"), Tensor([[0], [64], [1], [2]], device=device)
    with pytest.raises(InvalidIndex, match="gather: index 64 is out of range"):
        tl.fuse(EXACT[0])(x, index).numpy()
    with pytest.raises(InvalidIndex, match="cross_entropy: index 64 is out of range"):
        tl.fuse(lambda x, index: x.cross_entropy(index.squeeze(-1)))(x, index).numpy()


def traced(function: Compute, shape: tuple[int, int] = (128, 64)) -> FusedFunction:
    trace = Trace("chosen", tl.Device.cpu(), ())
    arguments = Tensor(np.zeros(shape), dtype="f32"), Tensor(np.zeros((shape[0], 1)), dtype="i64")
    return trace.function([function(*trace.proxies(arguments))])


def launched(function: FusedFunction, dtypes: Sequence[DType] = (DType.F32, DType.I64, DType.F32)) -> list[str]:
    tensors = zip(dtypes, function.tensors, strict=False)
    stored = [Operand(Stored(dtype, 1 << 13), layout) for dtype, layout in tensors]
    return [name.rpartition("_")[2] for name in kernels(built(fused.fused, function, *stored))]


@pytest.mark.parametrize("function", [*EXACT, *REDUCED])
def test_a_loss_of_classes_is_one_kernel_and_so_is_its_gradient(function: Compute) -> None:
    of = traced(function)
    assert launched(of) == ["vector2"]
    gradient = gradient_of(of, (0,), (), tuple(of.layouts), ())
    assert gradient is not None
    assert gradient.function is not None
    assert launched(gradient.function) == ["vector2"]


def test_indexes_that_are_computed_go_through_memory_and_each_kernel_has_one() -> None:
    assert launched(traced(lambda x, index: x.softmax(-1).gather(index * 2 - index, -1))) == ["contiguous", "vector2"]
    two = traced(lambda x, index: x.softmax(-1).gather(index, -1) + x.gather(index * 2 - index, -1))
    assert sorted(launched(two)) == ["contiguous", "contiguous", "vector2", "vector2"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, index: x.gather(index.broadcast_as((128, 2)), 1), "chooses other elements"),
        (lambda x, index: x.to_dtype("i64").gather(index, 1), "chooses other elements"),
        (lambda x, index: x.sum(1, keepdim=True).gather(index, 1).gather(index, 0), "chooses other elements"),
        (lambda x, index: x.gather(Tensor([[1]] * 128), 1), "is given a tensor that is no argument"),
    ],
)
def test_other_elements_are_refused(function: Compute, reason: str) -> None:
    with pytest.raises(FusionError, match=reason):
        traced(function)
