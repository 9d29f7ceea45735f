"""Gradients of tensor methods, compared with differences, and in other dtypes and on other devices with those.

Those of what the spec has an example of are in test_gradient_examples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Layout, Tensor, array_api
from tallow.gradients.functors import DERIVATIVES, ROW_GRADIENTS
from tallow.op import MethodOp, UnaryOp
from tallow.storage import Storage

from .gradcheck import CLOSE, Gradcheck, differences, gradients, like, rand, slopes

JOINT_METHODS = ["binary_gradients", *(op.value for op in MethodOp if op.value.endswith("_gradients"))]


ROW_METHODS = tuple(op.value for op in ROW_GRADIENTS.values())


def passes_of(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """The methods of storages that are called, from now on, of so many elements."""
    passes: list[str] = []

    def counted(method: Any) -> Any:
        def call(storage: Storage, *given: Any) -> Any:
            passes.extend([method.__name__] * any(isinstance(it, Layout) and it.elem_count == count for it in given))
            return method(storage, *given)

        return call

    for method in (
        "unary_impl",
        "binary_impl",
        "binary_gradient",
        "cmp",
        "where_cond",
        "to_dtype",
        *JOINT_METHODS,
        *ROW_METHODS,
    ):
        monkeypatch.setattr(Storage, method, counted(getattr(Storage, method)))
    monkeypatch.setattr(Storage, "reduce_op", counted(Storage.reduce_op))
    return passes


JOINT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{
        op.value: lambda x, y, op=op: x._binary(tl.BinaryOp(op.value.removesuffix("_gradients")), y)
        for op in tl.BinaryGradientsOp
    },
    "huber_gradients": lambda x, y: x.huber_loss(y, "none", 0.3),
    "where_cond_gradients": lambda x, y: like(Tensor([[1], [0], [2], [0], [1], [1], [0]]), x).where(x, y),
}


@pytest.mark.parametrize("name", JOINT)
def test_gradients_of_both_operands_are_one_pass_of_the_same_bits(
    name: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of hypot need its result, which the pass computes again, in 16 bits without rounding it.
    for dtype in ("f32",) if name == "hypot_gradients" else ("f32", "bf16"):
        plain = [rand(5, 7, low=0.1, high=0.95, seed=seed).to(device, dtype) for seed in range(3)]
        g, *inputs = [plain[0].T, plain[1].T, plain[2].reshape(7, 5)]
        x, y = map(tl.Var, inputs)
        results = [JOINT[name](x, inputs[1]), JOINT[name](inputs[0], y), JOINT[name](x, y)]
        alone = [results[0].backward(g)[x], results[1].backward(g)[y]]
        with monkeypatch.context() as patched:
            passes = passes_of(patched, 35)
            both = results[2].backward(g)
        assert passes == [name if name in JOINT_METHODS else "binary_gradients"]
        for variable, expected in zip((x, y), alone, strict=True):
            np.testing.assert_array_equal(both[variable].numpy(), expected.numpy())


def test_operators_with_numbers_and_plain_tensors(gradcheck: Gradcheck) -> None:
    x, plain = rand(2, 3, low=0.5, high=2), rand(3, low=1, high=2, seed=3)
    for function in (
        lambda x: 2 - x * 3,
        lambda x: 1 / x + x / 4,
        lambda x: like(plain, x) - x,
        lambda x: like(plain, x) / x,
        lambda x: x**3 + x**2.5 + 2**x,
        lambda x: -x + abs(x - 1),
        lambda x: x * x * x,
    ):
        gradcheck(function, x)


def test_the_power_0_has_the_slope_0(gradcheck: Gradcheck) -> None:
    gradcheck(lambda x: x.powf(0), rand(3, 4))


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(("bf16", "f16", "f32", "f64"), 2)))
def test_casts(source: str, target: str, device: Device) -> None:
    if device.is_metal() and "f64" in (source, target):
        pytest.skip("Apple GPUs have no f64")
    x = tl.Var(Tensor([1.0, 2.0, 3.0], dtype=source, device=device))
    factors = Tensor([1.5, -2.0, 0.25], dtype=target, device=device)
    gradient = (x.to_dtype(target) * factors).backward(Tensor.ones(3, dtype=target, device=device))[x]
    assert (gradient.dtype.value, gradient.tolist()) == (source, [1.5, -2.0, 0.25])


def test_huber_loss_of_both(gradcheck: Gradcheck) -> None:
    gradcheck(lambda x, y: x.huber_loss(y, "none", 0.3), rand(2, 3), rand(2, 3, seed=1))


def test_where(gradcheck: Gradcheck) -> None:
    x, y = rand(2, 3), rand(3, seed=4)
    mask = Tensor([[1, 0, 1], [0, 0, 1]], dtype="u8")
    gradcheck(lambda x, y: like(mask, x).where(x, y), x, y)
    gradcheck(lambda x: like(mask, x).where(x, 2.0) + like(mask, x).where(0.5, x), x)


def test_what_where_did_not_choose_gives_no_nan(device: Device) -> None:
    x = tl.Var(Tensor([0.0, 4.0], device=device))
    assert (x > 1).where(x.sqrt(), 0).sum().backward()[x].tolist()[1] == 0.25
    w = tl.Var(Tensor([1.0, 2.0], device=device))
    nan = Tensor([math.nan, 1.0], device=device)
    gradient = (nan == nan).where(w * 2, nan).sum().backward()[w]
    assert gradient.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        # What is repeated is copied for a variable, whose gradient can be written to.
        *[("sum", 1), ("mean", 1), ("norm", 1), ("var", 1), ("std", 2), ("logsumexp", 1), ("min", 2), ("max", 2)],
        ("prod", 2),
    ],
)
def test_gradients_of_reductions_take_few_passes(
    name: str, most: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = tl.Var(rand(5, 7).to(device, "f32"))
    result = getattr(x, name)(1)
    g = Tensor.ones(5, device=device) * 2
    passes = passes_of(monkeypatch, 35)
    result.backward(g)
    assert len(passes) == most


@pytest.mark.parametrize("op", list(ROW_GRADIENTS), ids=lambda op: op.value)
def test_gradients_of_short_floats_along_rows_take_one_pass(
    op: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = tl.Var(rand(5, 7).to(device, "bf16"))
    result = getattr(x, op.value)(1)
    passes = passes_of(monkeypatch, 35)
    result.backward(Tensor.ones(5, dtype="bf16", device=device))
    assert passes == [ROW_GRADIENTS[op].value]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(op, dtype) for op, own in ROW_GRADIENTS.items() for dtype in ("bf16", "f32") if tl.DType(dtype) in own.dtypes],
    ids=lambda it: getattr(it, "value", it),
)
def test_gradients_along_rows_are_those_op_by_op(op: Any, dtype: str, device: Device) -> None:
    inf, nan = math.inf, math.nan
    rows = [[0, 0, 0], [1, 1, 1], [3, 4, -2], [-inf, -inf, -inf], [inf, 1, 2], [nan, 1, 2], [-inf, 0, 1], [0, -0.0, 5]]
    big = 2.0**100
    rows += [[big, -2 * big, big], [1 / big, 2 / big, 3 / big]]
    x = Tensor(rows, dtype=dtype, device=device)
    g = Tensor([[0.5 - index] for index in range(len(rows))], dtype=dtype, device=device)
    parameters = {"correction": 1.0} if op in (MethodOp.VAR, MethodOp.STD) else {}
    spread = g.broadcast_as(x.shape)
    method = getattr(spread._storage, ROW_GRADIENTS[op].value)
    results = x._like(method(spread._layout, x._storage, x._layout, *parameters.values()))
    wide, (derivative,) = x.to_dtype("f32"), (DERIVATIVES[op] or {}).values()
    assert derivative is not None
    result = wide._reduce(op, (1,), True, None, None, *parameters.values())
    known = {"x": wide, "result": result, "dims": (1,), "count": 3, **parameters}
    expected = derivative.function(g.to_dtype("f32"), *[known[name] for name in derivative.takes]).to_dtype(dtype)
    error = {"bf16": 2.0**-7, "f32": 2.0**-20}[dtype]
    has_result = ~np.isnan(result.numpy().ravel())
    actual, expected = results.to_dtype("f32").numpy(), expected.to_dtype("f32").numpy()
    np.testing.assert_allclose(actual[has_result], expected[has_result], rtol=error)
    assert not np.isfinite(actual[~has_result]).any()


REDUCTIONS = ("sum", "mean", "prod", "norm", "logsumexp", "min", "max", "var", "std")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, gradcheck: Gradcheck) -> None:
    x = rand(2, 3, 2)
    gradcheck(lambda x: getattr(x, name)(), x)
    gradcheck(lambda x: getattr(x, name)(1), x)
    gradcheck(lambda x: getattr(x, name)((0, 2), keepdim=True), x)
    gradcheck(lambda x: getattr(x.T[:, 1:], name)(-1), x, second=False)


def test_ties_share_and_products_of_zeros(device: Device) -> None:
    x = tl.Var(Tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], device=device))
    np.testing.assert_allclose(x.max(1).sum().backward()[x].numpy(), [[0, 0.5, 0.5], [1 / 3] * 3], rtol=1e-6)
    np.testing.assert_allclose(x.maximum(x).sum().backward()[x].numpy(), np.ones((2, 3)))
    assert x.maximum(3.0).sum().backward()[x].tolist() == [[0, 0.5, 0.5], [0, 0, 0]]
    zeros = tl.Var(Tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]], device=device))
    assert zeros.prod(1).sum().backward()[zeros].tolist() == [[6, 0, 0], [0, 0, 0], [6, 3, 2]]
    assert zeros.cumprod(1).sum().backward()[zeros].tolist() == [[9, 0, 0], [1, 0, 0], [9, 4, 2]]
    origin = tl.Var(Tensor.zeros(3, device=device))
    assert origin.norm().backward()[origin].tolist() == [0, 0, 0]
    assert origin.relu().sum().backward()[origin].tolist() == [0, 0, 0]
    assert origin.abs().sum().backward()[origin].tolist() == [0, 0, 0]


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transpose": lambda x: x.transpose(0, 2) * x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1).sqr(),
    "narrow": lambda x: x[:, 1:3].sqr() + x[:, :2],
    "steps": lambda x: x[:, ::2].exp(),
    "index": lambda x: x[1].sqr() * x[0],
    "broadcast": lambda x: x[:, :1].broadcast_as(2, 3, 4).sqr(),
    "broadcast_twice": lambda x: x.sum().broadcast_as(2, 2) * x[0, 0, 0],
    "reshape": lambda x: x.reshape(6, 4).sqr(),
    "reshape_of_a_transpose": lambda x: x.T.reshape(-1).sqr(),
    "unsqueeze": lambda x: x.unsqueeze(1).squeeze(1).sqr(),
    "copy": lambda x: x[:, 1].copy().sqr(),
    "flip": lambda x: x.flip(1) * x,
    "backward_slice": lambda x: x[:, ::-1].sqr(),
    "repeat": lambda x: x[0].repeat(2, 1).sqr(),
    "pad": lambda x: x.pad_with_zeros(1, 1, 2).sqr(),
    "pad_around_the_front": lambda x: x.pad(((2, 1), (1, 0)), mode="circular").sqr(),
    "pad_without_elements": lambda x: x[:, :1] * padded(x, (0, -3, 0), (0, 5, 0)),
    "chunk": lambda x: x.chunk(3, 1)[1].sqr(),
    "tril": lambda x: x.tril(-1).sqr() + x.triu(1),
    "cat": lambda x: tl.cat([x, x[:, :1], x.sqr()], 1).sqr(),
    "stack": lambda x: tl.stack([x[0], x[1], x[0]], 1).sqr(),
    "sort": lambda x: x.sort(1)[0].sqr(),
    "topk": lambda x: x.topk(2)[0].sqr(),
    "cumsum": lambda x: x.cumsum(1).sqr(),
    "cumprod": lambda x: x.cumprod(1) * x,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: x.layer_norm(),
    "rms_norm": lambda x: x.rms_norm(),
    "clone": lambda x: cloned(x.copy()).sqr(),
    "clone by a part": lambda x: Tensor.from_storage(x.storage.try_clone(x[1].layout), x.layout).sqr(),
}


def padded(x: Tensor, before: tuple[int, ...], after: tuple[int, ...]) -> Tensor:
    """Padded with ones; a negative number cuts elements off."""
    shape = [sum(sizes) for sizes in zip(before, x.shape, after, strict=True)]
    return Tensor.from_storage(x.storage.pad(x.layout, "constant", before, after, 1.0), shape)


def cloned(x: Tensor) -> Tensor:
    """A clone that is written to, and what it was made of."""
    clone = Tensor.from_storage(x.storage.try_clone(x.layout), x.layout)
    clone *= 3
    return clone + x


def test_the_gradient_of_a_roll_is_one_call(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    pad = Storage.pad
    x = tl.Var(rand(5).to(device, "f32"))
    rolled = x.roll(2, 0)
    monkeypatch.setattr(Storage, "pad", lambda *operands: calls.append(operands) or pad(*operands))
    g = rand(5, seed=1).to(device, "f32")
    assert rolled.backward(g)[x].tolist() == [*g.tolist()[2:], *g.tolist()[:2]]
    assert len(calls) == 1


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_methods_of_one_tensor(name: str, gradcheck: Gradcheck) -> None:
    gradcheck(VIEWS[name], rand(2, 3, 4))


ONE_TENSOR: dict[str, Callable[[Tensor], Tensor]] = {
    **{op.value: lambda x, op=op: x._unary(op) for op, given in DERIVATIVES.items() if type(op) is UnaryOp and given},
    **VIEWS,
}


@pytest.mark.parametrize("name", ONE_TENSOR)
def test_recorded_gradients_are_copied_no_more_often(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded of a gradient needs its elements, and does not own them."""
    copied: list[Tensor] = []
    copy = Tensor.copy

    def counted(tensor: Tensor) -> Tensor:
        copied.append(tensor)
        return copy(tensor)

    monkeypatch.setattr(Tensor, "copy", counted)
    x = tl.Var(rand(2, 3, 4, low=0.1, high=0.7))
    counts = []
    for create_graph in (False, True):
        result = ONE_TENSOR[name](x)
        seed = tl.Var(result.ones_like()) if create_graph else result.detach().ones_like()
        copied.clear()
        result.backward(seed, create_graph=create_graph)
        counts.append(len(copied))
    assert counts[0] == counts[1]


def test_one_element_in_order(gradcheck: Gradcheck) -> None:
    """The storage's method takes it without dims."""
    line = Layout.contiguous((1,))
    gradcheck(lambda x: Tensor.from_storage(x.storage.sort(x.layout, False, 1)[0], line).sqr(), rand())


def test_overlapping_layouts(gradcheck: Gradcheck) -> None:
    windows = tl.Layout((3, 2), (1, 1))
    gradcheck(lambda x: Tensor.from_storage(x.copy().storage, windows).sqr(), rand(4))


def test_matmul(gradcheck: Gradcheck) -> None:
    for left, right in (
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((2, 1, 2, 3), (1, 3, 3, 2)),
        ((2, 3, 2, 1), (2, 3, 1, 3)),
        ((2, 2, 1, 3), (3, 2)),
        ((1, 3), (2, 2, 3, 2)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 2)),
    ):
        gradcheck(lambda x, y: x @ y, rand(*left), rand(*right, seed=1))
    gradcheck(lambda x: x.T @ x, rand(3, 2))
    gradcheck(lambda x, y: x.mT @ y.T, rand(2, 3, 2), rand(4, 3, seed=1))


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_gradients_of_repeated_matrices_are_one_product_in_their_order(
    order: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, ...]] = []

    def product(*given: Any, method: Any = Storage.matmul) -> Storage:
        shapes.append(given[2])
        return method(*given)

    right_sizes = (3, 4) if order == "rows" else (4, 3)
    for left, right, expected in (((7, 3), (5, 3, 4), (7, 3, 20)), ((1, 5, 7, 3), (1, 1, 3, 4), (*right_sizes, 35))):
        x, y = (tl.Var(rand(*shape).to(device, "f32")) for shape in (left, right))
        if order == "columns":
            x, y = (tl.Var(it.mT.contiguous().detach()) for it in (x, y))
        lhs, rhs = (x, y) if order == "rows" else (x.mT, y.mT)
        result = lhs @ rhs
        weights = Tensor.ones(result.shape, device=device)
        with monkeypatch.context() as patched:
            passes = passes_of(patched, 12)
            patched.setattr(Storage, "matmul", product)
            result.backward(weights)
        assert (1, *expected) in shapes
        assert not passes
        shapes.clear()


def test_matrices(device: Device, gradcheck: Gradcheck) -> None:
    linalg, x = array_api.linalg, Tensor.eye(3, dtype="f64") + 0.2 * rand(1, 2, 3, 3)

    def wide(x: Tensor) -> Tensor:
        return x if x.dtype is tl.DType.F64 else x.to_dtype("f32")

    gradcheck(lambda x: linalg.cholesky(wide(x) @ wide(x).mT), x)
    gradcheck(lambda x: linalg.inv(wide(x)), x, second=False)
    gradcheck(lambda x: linalg.det(wide(x)), x)
    gradcheck(lambda x: linalg.det(wide(x)), x[0], second=False)
    gradcheck(lambda x: linalg.det(wide(x)), Tensor.eye(9, dtype="f64") + 0.1 * rand(9, 9))
    gradcheck(lambda x, y: linalg.solve(wide(x), wide(y)), x, rand(1, 2, 3, 2, seed=1), second=False)
    gradcheck(lambda x, y: linalg.solve(wide(x), wide(y)), x, rand(3, seed=1))
    gradcheck(lambda x: x.tril() * x.triu(1).mT, x)
    gradient = linalg.cholesky(wide(w := tl.Var((x @ x.mT).to(device, "f32")))).sum().backward()[w].numpy()
    np.testing.assert_allclose(gradient, gradient.swapaxes(-1, -2), rtol=1e-6)


def test_linear(gradcheck: Gradcheck) -> None:
    x, weight, bias = rand(2, 2, 3), rand(4, 3, seed=1), rand(4, seed=2)
    gradcheck(lambda x, w, b: x.linear(w, b), x, weight, bias)
    gradcheck(lambda x, w: x.T.linear(w.T[:, :2]), x, rand(2, 3))


@pytest.mark.parametrize(
    "steps",
    [{}, {"padding": 2}, {"stride": 2}, {"dilation": 2, "padding": 1}, {"stride": 3, "padding": 1, "groups": 2}],
)
def test_convolutions(steps: dict[str, int], gradcheck: Gradcheck) -> None:
    groups = steps.get("groups", 1)
    x, kernel = rand(2, 2, 7), rand(4, 2 // groups, 3, seed=1)
    gradcheck(lambda x, k: x.conv1d(k, **steps), x, kernel)
    back = rand(2, 4 // groups, 3, seed=1)
    gradcheck(lambda x, k: x.conv_transpose1d(k, **steps), x, back)
    extra = {**steps, "output_padding": steps.get("stride", 1) - 1}
    gradcheck(lambda x, k: x.conv_transpose1d(k, **extra), x, back, second=False)
    gradcheck(lambda x, k: x.conv_transpose1d(k, dilation=2, output_padding=1), x, rand(2, 1, 2), second=False)
    x, kernel = rand(1, 2, 5, 6), rand(2, 2 // groups, 2, 3, seed=1)
    gradcheck(lambda x, k: x.conv2d(k, **steps), x, kernel, second=False)
    gradcheck(lambda x, k: x.conv_transpose2d(k, **steps), x, kernel, second=False)


@pytest.mark.parametrize(
    ("outer", "steps"),
    [
        (4, {"padding": ((1, 0), (0, 2)), "stride": (1, 2), "dilation": (2, 1)}),
        (4, {"padding": "same", "groups": 2}),
        # Depthwise, with one channel and with two of the result for each.
        (4, {"padding": ((0, 1), (3, 1)), "stride": (2, 3), "groups": 4}),
        (8, {"padding": 1, "groups": 4}),
    ],
)
def test_convolutions_that_differ_along_dims(outer: int, steps: dict[str, Any], gradcheck: Gradcheck) -> None:
    groups = steps.get("groups", 1)
    gradcheck(lambda x, k: x.conv2d(k, **steps), rand(2, 4, 5, 6), rand(outer, 4 // groups, 2, 3, seed=1))


def test_convolutions_of_volumes(gradcheck: Gradcheck) -> None:
    steps = {"padding": (1, 0, 1), "stride": (1, 2, 1), "groups": 2}
    x, kernel = rand(1, 2, 3, 4, 3), rand(4, 1, 2, 2, 2, seed=1)
    gradcheck(lambda x, k: x.conv3d(k, **steps), x, kernel, second=False)
    gradcheck(lambda x, k: x.conv_transpose3d(k, **steps), x, rand(2, 1, 2, 2, 2), second=False)


@pytest.mark.parametrize("dims", [1, 2])
def test_convolutions_of_storages(dims: int, gradcheck: Gradcheck) -> None:
    """Those with Candle's parameters."""

    def convolve(op: str, params: Any) -> Callable[..., Tensor]:
        def called(x: Tensor, kernel: Tensor) -> Tensor:
            storage = getattr(x._storage, op)(x._layout, kernel._storage, kernel._layout, params)
            return x._new(storage, Layout.contiguous(params.out_dims))

        return called

    numbers = {"b_size": 1, "c_in": 2, "c_out": 3, "padding": 1, "stride": 2, "dilation": 2}
    if dims == 1:
        sizes = {**numbers, "l_in": 6, "k_size": 2}
        params, transposed = tl.ParamsConv1D(**sizes), tl.ParamsConvTranspose1D(**sizes, output_padding=1)
    else:
        sizes = {**numbers, "i_h": 4, "i_w": 5, "k_h": 2, "k_w": 2}
        params, transposed = tl.ParamsConv2D(**sizes), tl.ParamsConvTranspose2D(**sizes, output_padding=1)
    x, kernel = rand(*params.input_dims), rand(*params.kernel_dims, seed=1)
    for function, weight in (
        (convolve(f"conv{dims}d", params), kernel),
        (convolve(f"conv_transpose{dims}d", transposed), kernel.transpose(0, 1)),
    ):
        gradcheck(function, x, weight, second=False)
        variable = tl.Var(last(weight))
        assert function(x, variable).sum().backward()[variable].layout.is_channels_last


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format="channels_last")


@pytest.mark.parametrize("op", [Tensor.conv2d, Tensor.conv_transpose2d])
def test_convolutions_of_channels_last(op: Callable[..., Tensor], device: Device, gradcheck: Gradcheck) -> None:
    steps = {"padding": ((1, 0), (0, 2)), "stride": (1, 2), "groups": 2}
    steps = steps if op is Tensor.conv2d else {"stride": (1, 2), "groups": 2}
    x, kernel = rand(2, 4, 3, 5), rand(4, 2, 2, 3, seed=1)
    gradcheck(lambda x, k: op(last(x), last(k), **steps), x, kernel)
    # The gradient of a kernel lies in memory as the kernel does.
    for of_x, of_kernel in ((last, Tensor.contiguous), (Tensor.contiguous, last)):
        variable = tl.Var(of_kernel(kernel.to(device, "f32")))
        result = op(of_x(x.to(device, "f32")), variable, **steps)
        gradient = result.backward(of_x(result.detach().ones_like()))[variable]
        assert gradient.layout.is_channels_last == (of_kernel is last)


@pytest.mark.parametrize(("window", "stride"), [(2, None), ((2, 3), (1, 2)), (3, 1), (2, 3)])
def test_pools(window, stride, gradcheck: Gradcheck) -> None:
    x = rand(1, 2, 5, 6)
    gradcheck(lambda x: x.avg_pool2d(window, stride), x, second=False)
    gradcheck(lambda x: x.max_pool2d(window, stride), x, second=False)
    gradcheck(lambda x: x.sqr().avg_pool2d(window, stride), x[:, :, :3, :4])


def test_largest_of_windows_share(device: Device) -> None:
    x = tl.Var(Tensor.ones((1, 1, 2, 2), device=device))
    assert x.max_pool2d(2).sum().backward()[x].tolist() == [[[[0.25, 0.25], [0.25, 0.25]]]]
    x = tl.Var(Tensor([[[[math.nan, 1.0], [math.nan, 2.0]]]], device=device))
    assert x.max_pool2d(2).sum().backward()[x].tolist() == [[[[0.5, 0], [0.5, 0]]]]


def test_upsampling(gradcheck: Gradcheck) -> None:
    line, image = rand(1, 2, 3), rand(1, 1, 2, 3)
    for size in (2, 3, 7):
        gradcheck(lambda x, size=size: x.upsample_nearest1d(size), line)
        gradcheck(lambda x, size=size: x.upsample_nearest2d(size, 5), image, second=False)
        gradcheck(lambda x, size=size: x.upsample_bilinear2d(size, 5), image)
        gradcheck(lambda x, size=size: x.upsample_bilinear2d(size, 5, align_corners=True), image, second=False)
    for method in ("upsample_bilinear2d", "upsample_bicubic2d"):
        gradcheck(lambda x, method=method: getattr(x, method)(3, 2), image, second=False)
        gradcheck(lambda x, method=method: getattr(x, method)(2, 5, align_corners=True), image, second=False)
        gradcheck(lambda x, method=method: getattr(x, method)(4, 5, scale_h=1.7, scale_w=1.5), image, second=False)


def test_indexes(gradcheck: Gradcheck) -> None:
    x, source = rand(3, 4), rand(2, 3, seed=1)
    indexes = Tensor([[0, 2, 0], [1, 1, 2**32 - 1]], dtype="u32")
    rows = Tensor([2, 0, 2, 2**32 - 1], dtype="u32")
    gradcheck(lambda x: x.gather(like(indexes, x), 0), x)
    gradcheck(lambda x: x.index_select(like(rows, x), 0), x)
    gradcheck(lambda x: x[like(rows, x)[:2]], x, second=False)
    gradcheck(lambda x, s: x.scatter(like(indexes, x), s, 1), x, source)
    gradcheck(lambda x, s: x.scatter_add(like(indexes, x), s, 0).sqr(), x, source)
    gradcheck(lambda x, s: x.index_add(like(rows, x), s.sqr(), 0), x, rand(4, 4, seed=2))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction: str, gradcheck: Gradcheck) -> None:
    targets = Tensor([0, 2, -100, 1], dtype="i64")
    gradcheck(lambda x: x.cross_entropy(like(targets, x), reduction=reduction), rand(4, 3))
    indices = Tensor([[0, 255], [2, 1]], dtype="i32")
    gradcheck(lambda x: x.cross_entropy(like(indices, x), ignore_index=255, reduction=reduction), rand(2, 3, 2))
    marked = Tensor([0, 2, 2**32 - 1], dtype="u32")
    gradcheck(lambda x: x.T.cross_entropy(like(marked, x), reduction=reduction), rand(3, 3))
    one = Tensor([[0], [-100]], dtype="i64")
    gradcheck(lambda x: x.cross_entropy(like(one, x), reduction=reduction), rand(2, 1, 1))
    weights = rand(3, low=0.5, high=2, seed=1)
    for smoothing in (0.0, 0.2):
        gradcheck(
            lambda x, w, s=smoothing: x.cross_entropy(like(targets, x), -100, reduction, w, s), rand(4, 3), weights
        )
    gradcheck(lambda x, w: x.nll_loss(like(targets, x), reduction=reduction, weight=w), rand(4, 3), weights)


def test_ratio_of_sums(gradcheck: Gradcheck) -> None:
    def ratio(x: Tensor, divisor: Tensor, saves: bool) -> Tensor:
        x, divisor = (each.to_dtype(each.dtype.compute) for each in (x, divisor))
        results = x.storage.ratio_of_sums(x.layout, divisor.storage, divisor.layout, saves)
        return tl.stack([Tensor.from_storage(result, ()) for result in results])

    for saves in (False, True):
        gradcheck(lambda x, y, saves=saves: ratio(x.T, y, saves), rand(3, 4), rand(5, low=1, high=2, seed=1))


def test_ops_of_rows_of_what_has_other_uses(gradcheck: Gradcheck) -> None:
    gradcheck(lambda x: x.softmax(1) + x.exp(), rand(2, 3), second=False)
    gradcheck(lambda x: x.exp() + x.softmax(1), rand(2, 3), second=False)


def test_norms(gradcheck: Gradcheck) -> None:
    x, weight, bias = rand(2, 2, 4), rand(4, seed=1), rand(4, seed=2)
    other = rand(2, 2, 4, seed=3)
    gradcheck(lambda x, w, b: x.layer_norm(w, b, 1e-3), x, weight, bias)
    gradcheck(lambda x, w: x.rms_norm(w, 1e-3), x, weight)
    gradcheck(lambda x, w, b, r: tl.cat([*x.layer_norm(w, b, 1e-3, r)]).sqr(), x, weight, bias, other, second=False)
    gradcheck(lambda x, w, r: tl.cat([*x.rms_norm(w, 1e-3, r)]).sqr(), x, weight, other)
    # Of some of the operands, of one that lies in another way, of a vector, and of what has other uses.
    gradcheck(lambda w: like(x, w).layer_norm(w, like(bias, w), 1e-3), weight)
    gradcheck(lambda b: like(x, b).layer_norm(like(weight, b), b, 1e-3), bias)
    gradcheck(lambda x, b: x.layer_norm(like(weight, x), b, 1e-3), x, bias, second=False)
    gradcheck(lambda x, w, b: x.T.layer_norm(w, b, 1e-3) * x.T, rand(4, 2, 1), weight, bias)
    gradcheck(lambda x, w: x.T.rms_norm(w, 1e-3) * x.T, rand(4, 2, 1), weight)
    gradcheck(lambda x, w, b: x.layer_norm(w, b, 1e-3).sum(), rand(4), weight, bias)
    gradcheck(gradients_of_layer_norm, x, other, weight, rand(2, 2, 4, seed=4))
    gradcheck(gradients_of_rms_norm, x, other, weight, rand(2, 2, 4, seed=4))
    for norm in (Tensor.layer_norm, Tensor.rms_norm):
        both = rand(4, 2), rand(2, 4, seed=1)
        gradcheck(lambda x, r, norm=norm: norm(x.T, eps=1e-3, residual=r)[1].reshape(-1), *both, second=False)
        gradcheck(lambda r, norm=norm: norm(like(x, r), eps=1e-3, residual=r)[0], other, second=False)
        gradcheck(lambda x, norm=norm: norm(x, eps=1e-3, residual=like(other, x))[0].reshape(-1), x, second=False)
        gradcheck(lambda w, norm=norm: tl.cat([*norm(like(x, w), w, eps=1e-3, residual=like(other, w))]), weight)


def gradients_of_layer_norm(g: Tensor, *others: Tensor) -> Tensor:
    inputs = [part for other in others for part in (other.storage, other.layout)]
    of_x, of_weight = g.storage.layer_norm_gradient(g.layout, *inputs, True, False, 1e-3)
    _, of_bias = g.storage.layer_norm_gradient(g.layout, *inputs, False, True, 1e-3)
    return tl.cat([Tensor.from_storage(it, it.length) for it in (of_x, of_weight, of_bias)])


def gradients_of_rms_norm(g: Tensor, *others: Tensor) -> Tensor:
    inputs = [part for other in others for part in (other.storage, other.layout)]
    of_x, of_weight = g.storage.rms_norm_gradient(g.layout, *inputs, True, 1e-3)
    return tl.cat([Tensor.from_storage(it, it.length) for it in (of_x, of_weight)])


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("wanted", ["x", "w", "b", "xw", "xb", "wb", "xwb"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_gradients_of_norms_are_one_call(
    name: str, wanted: str, residual: bool, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "rms_norm" and "b" in wanted:
        pytest.skip("it has no bias")
    calls: list[tuple[Any, ...]] = []
    method = getattr(Storage, f"{name}_gradient")

    def counted(*given: Any) -> Any:
        calls.append(given)
        return method(*given)

    operands = {"x": rand(3, 4), "w": rand(4, seed=1), "b": rand(4, seed=2)}
    plain = {key: operand.to(device, "f32") for key, operand in operands.items()}
    x, *others = [tl.Var(it) if key in wanted else it for key, it in plain.items()][: 3 if name == "layer_norm" else 2]
    result = getattr(x, name)(*others, residual=x.detach())[0] if residual else getattr(x, name)(*others)
    monkeypatch.setattr(Storage, f"{name}_gradient", counted)
    result.sum().backward()
    (flags,) = ([it for it in call if type(it) is bool] for call in calls)
    assert flags == [key in wanted for key in "wb"[: len(others)]]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_recorded_gradients_of_norms_of_short_floats_are_rounded_once(name: str, dtype: str, device: Device) -> None:
    # Far from 0: what is left of them less their mean has few of their digits.
    operands = [rand(6, 96), rand(96, seed=1, low=0.5), rand(96, seed=2)][: 3 if name == "layer_norm" else 2]
    operands = [it.to_dtype(dtype) for it in operands]
    g = rand(6, 96, low=100, high=110, seed=3).to_dtype(dtype)
    for count in range(1, len(operands) + 1):

        def slopes(of: Callable[[Tensor], Tensor], count: int = count, **options: bool) -> list[Any]:
            variables = [tl.Var(of(it)) for it in operands[:count]]
            actual = getattr(variables[0], name)(*variables[1:]).backward(of(g), **options)
            return [actual[it].to_dtype("f32").numpy() for it in variables]

        expected = slopes(lambda it: it.to_dtype("f64"))
        step = 2.0 ** (-11 if dtype == "f16" else -8)
        for is_recorded in (False, True):
            for one, other in zip(slopes(lambda it: it.to(device), create_graph=is_recorded), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1.01 * step, atol=1e-4)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("positions", [1, [0, 3], []])
@pytest.mark.parametrize("shape", [(2, 6), (2, 2, 6), (2, 3, 2, 6)])
def test_rope(shape: tuple[int, ...], positions, interleaved: bool, device: Device, gradcheck: Gradcheck) -> None:
    if positions != 1 and len(shape) < 3:
        pytest.skip("there is no batch")
    x = rand(*(shape if positions else (0, *shape[1:])))
    tables = [rand(6, 3).to_dtype("f32"), rand(6, 3, seed=1).to_dtype("f32")]
    index = positions if isinstance(positions, int) else Tensor(positions, dtype="u64")

    def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        on = x.device
        return x.rope(cos.to(on), sin.to(on), index if isinstance(index, int) else index.to(on), interleaved)

    gradcheck(lambda x: rotated(x, *tables), x)
    # The tables are of f32, whatever x is of, and what is made is a sum of their elements.
    weights = np.random.default_rng(1).normal(size=x.shape)
    for dtype in ("f32", "f64", "bf16")[:: 2 if device.is_metal() else 1]:
        short = x.to_dtype(dtype)
        wide, moved = short.to_dtype("f64"), short.to(device)

        def of_numbers(*tables: Tensor, x: Tensor = wide) -> Tensor:
            return rotated(x, *[table.to_dtype("f32") for table in tables])

        expected = differences(of_numbers, [table.numpy() for table in tables], weights, 0.125)
        actual = gradients(lambda *tables, x=moved: rotated(x, *tables), [it.to(device) for it in tables], weights)
        for one, other in zip(actual, expected, strict=True):
            atol = max(CLOSE[dtype], 1e-6) * max(1, np.abs(other).max())
            np.testing.assert_allclose(slopes(one), other, rtol=0, atol=atol)


ATTENTION: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((2, 4, 3, 3), (2, 2, 4, 3), (2, 2, 4, 3)),
    # Of more queries than keys the first ones see nothing.
    ((2, 2, 4, 3), (2, 2, 3, 3), (2, 2, 3, 3)),
    ((2, 3, 3, 1), (2, 1, 2, 1), (2, 1, 2, 1)),
    ((1, 6, 1, 1), (1, 2, 2, 1), (1, 2, 2, 1)),
    ((1, 1, 2, 1), (1, 1, 0, 1), (1, 1, 0, 1)),
    ((1, 0, 2, 1), (1, 0, 2, 1), (1, 0, 2, 1)),
)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shapes", ATTENTION)
def test_attention(shapes: tuple[tuple[int, ...], ...], causal: bool, gradcheck: Gradcheck) -> None:
    operands = [rand(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    operands.append(rand(shapes[0][2], shapes[1][2], seed=9))
    lengths = Tensor([max(shapes[1][2] - 1, 0), shapes[1][2]][: shapes[0][0]], dtype="u32")

    def plain(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
        return q.scaled_dot_product_attention(k, v, causal=causal)

    def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return q.scaled_dot_product_attention(k, v, mask, causal=causal, scale=0.3, lengths=like(lengths, q))

    for function in (plain, masked):
        gradcheck(function, *operands, second=shapes[0][3] == 1, without=["f64"])
