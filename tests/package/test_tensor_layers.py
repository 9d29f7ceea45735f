"""Layers and losses that are made of several ops, against PyTorch's definitions in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Tensor
from tallow.runtime.base.error import InvalidArgument, InvalidIndex, ShapeMismatch, TallowError, UnsupportedDType

from .arrays import same
from .gradcheck import Gradcheck, like, rand

INF = np.inf
GENERATOR = np.random.default_rng(0)
IMAGES, ROWS = GENERATOR.normal(1, 2, (3, 4, 2, 5)).astype("f4"), GENERATOR.normal(1, 2, (6, 4)).astype("f4")
WEIGHT, BIAS, MEAN = (GENERATOR.normal(size=4).astype("f4") for _ in range(3))
VAR = GENERATOR.uniform(0.5, 2, 4).astype("f4")


def channels(vector: np.ndarray, rank: int) -> np.ndarray:
    return vector.astype(np.float64).reshape(1, -1, *[1] * (rank - 2))


def close(actual: Tensor, expected: np.ndarray, bound: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.numpy().astype(np.float64), expected, rtol=0, atol=bound * np.abs(expected).max())


@pytest.mark.parametrize("array", [IMAGES, ROWS], ids=["images", "rows"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_batch_norm(device: Device, array: np.ndarray, dtype: str) -> None:
    x = Tensor(array, dtype, device)
    wide, rank = x.numpy().astype(np.float64), array.ndim
    dims = tuple(dim for dim in range(rank) if dim != 1)
    weight, bias, mean, var = (Tensor(vector, device=device) for vector in (WEIGHT, BIAS, MEAN, VAR))
    bound = 1e-5 if dtype == "f32" else 2**-11

    actual = x.batch_norm(mean, var, weight.to_dtype(dtype), bias.to_dtype(dtype))
    assert actual.dtype is x.dtype
    scale, shift = (channels(vector.to_dtype(dtype).numpy(), rank) for vector in (weight, bias))
    close(actual, (wide - channels(MEAN, rank)) / np.sqrt(channels(VAR, rank) + 1e-5) * scale + shift, bound)

    actual = x.batch_norm(mean, var, training=True, momentum=0.3, eps=1e-3)
    expected = (wide - wide.mean(dims, keepdims=True)) / np.sqrt(wide.var(dims, keepdims=True) + 1e-3)
    close(actual, expected, bound)
    close(mean, 0.7 * MEAN + 0.3 * wide.mean(dims))
    close(var, 0.7 * VAR + 0.3 * wide.var(dims, ddof=1))
    close(x.batch_norm(training=True, eps=1e-3), expected, bound)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("running", ["f16", "bf16", "f32", "f64"])
def test_running_statistics_are_rounded_once(device: Device, dtype: str, running: str) -> None:
    if not (device.supports(dtype) and device.supports(running)):
        pytest.skip(f"{device.label} lacks one of the dtypes")
    x = Tensor(np.random.default_rng(1).normal(3, 2, (6, 64, 2)), dtype, device)
    wide = x.numpy().astype(np.float64)
    old = np.random.default_rng(2).uniform(0.5, 2, (2, 64))
    mean, var = (Tensor(numbers, running, device) for numbers in old)
    old = [numbers.numpy().astype(np.float64) for numbers in (mean, var)]
    x.batch_norm(mean, var, training=True, momentum=0.3)
    for actual, before, new in zip((mean, var), old, (wide.mean((0, 2)), wide.var((0, 2), ddof=1)), strict=True):
        expected = Tensor(0.7 * before + 0.3 * new, running, device)
        if running in ("f16", "bf16"):
            assert (actual.numpy() != expected.numpy()).mean() < 0.05  # ties, as f32 has them
        np.testing.assert_allclose(
            actual.numpy().astype(np.float64),
            expected.numpy().astype(np.float64),
            rtol=2**-7 if running == "bf16" else 2**-10 if running == "f16" else 1e-6,
        )


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (0, 3, 2), (1, 3, 1), (4, 3, 0)], ids=str)
def test_a_batch_without_variance_leaves_running_statistics(device: Device, shape: tuple[int, ...]) -> None:
    mean, var = Tensor([1.0, 2.0, 3.0], device=device), Tensor([4.0, 5.0, 6.0], device=device)
    result = Tensor.ones(shape, device=device).batch_norm(mean, var, training=True)
    assert result.shape == shape
    assert (mean.tolist(), var.tolist()) == ([1, 2, 3], [4, 5, 6])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm(device: Device, groups: int) -> None:
    for array in (IMAGES, ROWS):
        for dtype, bound in (("f32", 1e-5), ("f16", 2**-11)):
            x = Tensor(array, dtype, device)
            parts = x.numpy().astype(np.float64).reshape(len(array), groups, -1)
            centred = parts - parts.mean(-1, keepdims=True)
            normed = (centred / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)).reshape(array.shape)
            close(x.group_norm(groups), normed, bound)
            weight, bias = (Tensor(vector, dtype, device) for vector in (WEIGHT, BIAS))
            scale, shift = (channels(vector.numpy(), array.ndim) for vector in (weight, bias))
            close(x.group_norm(groups, weight, bias), normed * scale + shift, bound)


# All norms of channels, of x, a weight, a bias, a running mean and a running variance.
NORMS: dict[str, Callable[..., Any]] = {
    "batch": lambda x, w, b, m, v: x.batch_norm(m, v, w, b, training=True, eps=0.1),
    "given": lambda x, w, b, m, v: x.batch_norm(m, v, w, b, eps=0.1),
    "group": lambda x, w, b, m, v: x.group_norm(2, w, b, 0.1),
    "instance": lambda x, w, b, m, v: x.instance_norm(w, b, 0.1),
}


def _norm_operands(device: Device, shape: tuple[int, ...], dtype: str) -> list[Tensor]:
    generator = np.random.default_rng(5)
    x = Tensor(generator.normal(1, 2, shape), dtype, device)
    return [x, *[Tensor(generator.uniform(0.5, 2, shape[1]), "f32", device) for _ in range(4)]]


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("shape", [(2, 4, 9), (3, 8, 5, 4), (2, 4, 2, 3, 4), (2, 6, 1, 1)], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_every_memory_format(device: Device, name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Channels last stay so; a layout is copied that is neither; and gradients are those of contiguous elements."""
    x, *vectors = _norm_operands(device, shape, dtype)
    weights = Tensor(np.random.default_rng(6).normal(size=shape), dtype, device)
    order = [*range(len(shape) - 1, -1, -1)]
    expected, of_x = None, None
    for each in (x, x.contiguous("channels_last"), x.permute(order).contiguous().permute(order)):
        result = NORMS[name](each, *vectors[:2], *[vector.copy() for vector in vectors[2:]])
        assert result.layout.is_channels_last == each.layout.is_channels_last
        var = tl.Var(each)
        gradient = (
            (NORMS[name](var * 1, *vectors[:2], *[v.copy() for v in vectors[2:]]) * weights).sum().backward()[var]
        )
        if expected is None or of_x is None:
            expected, of_x = result.numpy(), gradient.numpy()
        bound = 2e-2 if dtype == "bf16" else 2e-5
        for actual, reference in ((result, expected), (gradient, of_x)):
            np.testing.assert_allclose(
                actual.numpy().astype(np.float64), reference.astype(np.float64), rtol=bound, atol=bound
            )


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_fused_batch_norm_has_the_bits_of_the_op(device: Device, dtype: str) -> None:
    x, *vectors = _norm_operands(device, (2, 4, 5, 3), dtype)
    fused = tl.fuse(lambda x, w, b, m, v: x.batch_norm(m, v, w, b).relu())
    weight, bias, mean, var = vectors
    same(fused(x, *vectors), x.batch_norm(mean, var, weight, bias).relu().numpy())


@pytest.mark.parametrize("name", ["group", "instance"])
def test_gradients_of_norms_of_items(gradcheck: Gradcheck, name: str) -> None:
    x, weight, bias = rand(2, 4, 3), rand(4, seed=1), rand(4, seed=2)
    gradcheck(lambda x, w, b: NORMS[name](x, w, b, None, None), x, weight, bias)
    gradcheck(lambda x: NORMS[name](x.transpose(1, 2), None, None, None, None), rand(2, 3, 4), second=False)


def test_dropout(device: Device) -> None:
    x = Tensor.full((40, 50), 3.0, device=device)
    device.set_seed(7)
    units = Tensor.rand(x.shape, device=device).numpy()
    device.set_seed(7)
    same(x.dropout(0.25), np.where(units >= 0.25, np.float32(4), np.float32(0)))
    same(x.dropout(0), x.numpy())
    same(x.dropout(1), np.zeros(x.shape, np.float32))
    assert x.to_dtype("f16").dropout().dtype is tl.DType.F16


@pytest.mark.parametrize("dim", [0, -1, (0, 2), (2, 1), (0, 1, 2, 3)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "f8e4m3"])
def test_logsumexp(device: Device, dim: int | tuple[int, ...], dtype: str) -> None:
    x = Tensor(IMAGES * 20, dtype, device)
    wide = x.numpy().astype(np.float64)
    largest = wide.max(dim, keepdims=True)
    expected = np.log(np.exp(wide - largest).sum(dim, keepdims=True)) + largest
    bound = {"f32": 1e-6, "f16": 2**-11, "f8e4m3": 2**-4}[dtype]
    close(x.logsumexp(dim, keepdim=True), expected, bound)
    close(x.log_sum_exp(dim), expected.squeeze(dim), bound)


def test_logarithms_of_sums_that_are_no_numbers(device: Device) -> None:
    rows = [[-np.inf, -np.inf], [np.inf, 1.0], [np.nan, 1.0], [-np.inf, 2.0], [1e30, 1e30]]
    result = Tensor(rows, device=device).logsumexp(1)
    same(result, np.array([-np.inf, np.inf, np.nan, 2, 1e30], np.float32))
    same(Tensor.zeros((2, 0), device=device).logsumexp(1), np.full(2, -np.inf, np.float32))
    assert Tensor.zeros((0, 2), device=device).logsumexp(1).shape == (0,)


def test_prelu(device: Device) -> None:
    x = Tensor(IMAGES, device=device)
    for weight in (np.float32(0.25), np.array([0.25], np.float32), WEIGHT):
        factors = weight if weight.size == 1 else weight[:, None, None]
        same(x.prelu(Tensor(weight, device=device)), np.where(IMAGES > 0, IMAGES, IMAGES * factors))


@pytest.mark.parametrize("dtype", ["i64", "u8", "i32"])
def test_embedding_and_one_hot(device: Device, dtype: str) -> None:
    ids = np.array([[0, 2, 1], [2, 2, 0]])
    tensor = Tensor(ids, dtype, device)
    rows = Tensor(ROWS, device=device)
    same(rows.embedding(tensor), ROWS[ids])
    same(rows.T.embedding(tensor.T), ROWS.T[ids.T])
    for classes in (3, 300):
        same(tensor.one_hot(classes), np.eye(classes, dtype=np.int64)[ids])
    same(tensor[0, 0].one_hot(2, "f16"), np.array([1, 0], np.float16))
    same(tensor[:0].one_hot(4), np.zeros((0, 3, 4), np.int64))


def test_indexes_of_no_class(device: Device) -> None:
    marked = Tensor([2**32 - 1, 1], "u32", device)
    same(marked.one_hot(2, "u8"), np.array([[0, 0], [0, 1]], np.uint8))
    for wrong in (-1, 2):
        with pytest.raises(InvalidIndex):
            Tensor([wrong], device=device).one_hot(2)
            device.synchronize()
    with pytest.raises(InvalidArgument, match="one_hot"):
        marked.one_hot(-1)
    with pytest.raises(ShapeMismatch, match="embedding"):
        Tensor([1.0], device=device).embedding(marked)


Y = GENERATOR.uniform(0, 1, IMAGES.shape).astype("f4")
LOSSES: dict[str, tuple[dict[str, float], Callable[[Any, Any], Any]]] = {
    "mse_loss": ({}, lambda x, y: (x - y) ** 2),
    "huber_loss": ({}, lambda x, y: np.where(abs(x - y) <= 1, (x - y) ** 2 / 2, abs(x - y) - 0.5)),
    "l1_loss": ({}, lambda x, y: abs(x - y)),
    "smooth_l1_loss": ({"beta": 2.0}, lambda x, y: np.where(abs(x - y) <= 2, (x - y) ** 2 / 4, abs(x - y) - 1)),
    "kl_div": ({}, lambda x, y: y * (np.log(y) - x)),
    "binary_cross_entropy_with_logits": ({}, lambda x, y: np.maximum(x, 0) - x * y + np.log1p(np.exp(-abs(x)))),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(device: Device, name: str, reduction: str) -> None:
    options, expected = LOSSES[name]
    losses = expected(IMAGES.astype(np.float64), Y.astype(np.float64))
    actual = getattr(Tensor(IMAGES, device=device), name)(Tensor(Y, device=device), reduction, **options)
    close(actual, np.asarray({"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]))


def test_ends_of_losses(device: Device) -> None:
    x, y = Tensor([-1e4, 1e4, -50, 50, 3], device=device), Tensor([0.0, 1, 0, 1, 1], device=device)
    logits = x.binary_cross_entropy_with_logits(y, "none").tolist()
    np.testing.assert_allclose(logits, [0, 0, np.exp(-50), np.exp(-50), np.log1p(np.exp(-3))], 1e-6)
    p = Tensor([0.0, 1, 0.25, 1], device=device)
    actual = p.binary_cross_entropy(Tensor([0.0, 1, 0.5, 0], device=device), "none").tolist()
    np.testing.assert_allclose(actual, [0, 0, -0.5 * (np.log(0.25) + np.log(0.75)), 100], 1e-6)
    far = Tensor([0.0, 4], device=device).huber_loss(Tensor([1.0, 0], device=device), "none", 2.0)
    same(far, np.array([0.5, 6], np.float32))
    x, y = Tensor([[-1.0, -INF, 2]], device=device), Tensor([[0.0, 0, 1]], device=device)
    same(x.smooth_l1_loss(y, "none", 0), np.array([[1, INF, 1]], np.float32))
    same(x.kl_div(y, "none"), np.array([[0, 0, -2]], np.float32))
    same(x[:, 2:].kl_div(y[:, :1], "none", log_target=True), np.array([[-2]], np.float32))


def test_the_divergence_of_a_batch_is_the_sum_over_its_size(device: Device) -> None:
    x, y = Tensor(IMAGES, device=device), Tensor(Y, device=device)
    close(x.kl_div(y, "batchmean"), np.asarray(LOSSES["kl_div"][1](IMAGES, Y).sum() / len(Y)))
    close(x.kl_div(y.log(), "batchmean", True), x.kl_div(y, "batchmean").numpy())


def test_gradients(gradcheck: Gradcheck) -> None:
    x, y = rand(3, 4, low=-2, high=2), rand(3, 4, low=0.1, high=0.9, seed=1)
    weight, bias = rand(4, seed=2), rand(4, seed=3)
    for name in LOSSES:
        gradcheck(lambda x, y, name=name: getattr(x, name)(y), x, y)
    gradcheck(lambda x, w: x.prelu(w), x, weight)
    gradcheck(lambda p, y: p.binary_cross_entropy(y), rand(3, 4, low=0.1, high=0.9, seed=4), y)
    gradcheck(lambda x, w, b: x.batch_norm(weight=w, bias=b, training=True, eps=0.1), x, weight, bias)
    gradcheck(lambda x, w: x.batch_norm(like(bias, x), like(y[0], x), w), x, weight, second=False)
    gradcheck(lambda x, w, b: x.reshape(1, 4, 3).group_norm(2, w, b, 0.1), x, weight, bias)


def test_gradients_of_sums_and_rows(gradcheck: Gradcheck) -> None:
    ids = Tensor([[0, 2], [2, 2]])
    gradcheck(lambda x: x.logsumexp((0, 2)).sqr(), rand(2, 3, 2))
    gradcheck(lambda x: x.embedding(like(ids, x)).sqr(), rand(3, 2))


def test_the_gradient_of_dropout(device: Device) -> None:
    x = tl.Var(Tensor.full(100, 3.0, device=device))
    result = x.dropout(0.25)
    gradient = result.sum().backward()[x]
    same(gradient, np.where(result.numpy() == 4, np.float32(4 / 3), np.float32(0)))


REFUSED: dict[str, tuple[type[TallowError], Callable[[Tensor], object]]] = {
    "batch_norm": (InvalidArgument, lambda x: x.batch_norm()),
    "group_norm": (InvalidArgument, lambda x: x.group_norm(3)),
    "dropout": (InvalidArgument, lambda x: x.dropout(1.5)),
    "mse_loss": (ShapeMismatch, lambda x: x.mse_loss(x[0])),
    "huber_loss": (InvalidArgument, lambda x: x.huber_loss(x, delta=0)),
    "l1_loss": (ShapeMismatch, lambda x: x.l1_loss(x[0])),
    "smooth_l1_loss": (InvalidArgument, lambda x: x.smooth_l1_loss(x, beta=-1)),
    "kl_div": (ShapeMismatch, lambda x: x[0, 0].kl_div(x[0, 0], "batchmean")),
    "nll_loss": (UnsupportedDType, lambda x: x.nll_loss(x[:, 0])),
    "cross_entropy": (InvalidArgument, lambda x: x.cross_entropy(x[:, 0].to_dtype("i64"), label_smoothing=1.5)),
    "prelu": (ShapeMismatch, lambda x: x.prelu(x[0, :2])),
    "binary_cross_entropy": (InvalidArgument, lambda x: x.binary_cross_entropy(x, "all")),
    "binary_cross_entropy_with_logits": (ShapeMismatch, lambda x: x.binary_cross_entropy_with_logits(x[:, :1])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_what_was_called(device: Device, name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call(Tensor(ROWS, device=device))
    assert caught.value.op == name


def test_channels_that_do_not_fit(device: Device) -> None:
    x, three = Tensor(ROWS, device=device), Tensor([1.0, 2, 3], device=device)
    with pytest.raises(ShapeMismatch, match="weight is a vector of 4 elements"):
        x.group_norm(2, three)
    with pytest.raises(ShapeMismatch, match="running_var is a vector of 4 elements"):
        x.batch_norm(x[0], three)
    with pytest.raises(UnsupportedDType):
        x.to_dtype("i32").group_norm(2)
