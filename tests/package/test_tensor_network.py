"""Matrix products, convolutions, pooling and upsampling against loops over NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tallow import (
    Device,
    InvalidArgument,
    InvalidIndex,
    ParamsConv1D,
    ParamsConvTranspose2D,
    ShapeMismatch,
    Tensor,
    UnsupportedDType,
    Var,
)

from .arrays import numbers, same

Array = NDArray[Any]

MATMULS = [
    ((2, 3), (3, 4)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((2, 0), (0, 4)),
    ((0, 2, 3), (3, 4)),
    ((4, 5, 2, 3), (3, 4)),
]


@pytest.mark.parametrize(("left", "right"), MATMULS)
def test_matmul_is_numpys(device: Device, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = numbers(left, seed=1), numbers(right, seed=2)
    same(Tensor(x, device=device) @ Tensor(y, device=device), np.asarray(np.matmul(x, y)))


def test_matmul_of_views(device: Device) -> None:
    x, y = numbers((3, 5, 2), seed=1), numbers((4, 3), seed=2)
    same(Tensor(x, device=device).transpose(0, 2) @ Tensor(y, device=device).T, x.swapaxes(0, 2) @ y.T)
    same(Tensor(x, device=device)[::2, 1:, :1] @ Tensor(y, device=device)[:1, :], x[::2, 1:, :1] @ y[:1, :])


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [((), (3,), "multiply with"), ((2, 3), (2, 3), "transpose one"), ((2, 2, 3), (3, 3, 1), "do not broadcast")],
)
def test_matrices_that_do_not_fit(left: tuple[int, ...], right: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        Tensor(numbers(left)).matmul(Tensor(numbers(right)))


def convolve(x: Array, kernel: Array, padding: int, stride: int, dilation: int) -> Array:
    """The convolution of (b, c, h, w), by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    height, width = (
        (n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel.shape[2:], strict=True)
    )
    result = np.zeros((x.shape[0], kernel.shape[0], height, width), x.dtype)
    for i, j in np.ndindex(*kernel.shape[2:]):
        window = x[:, :, i * dilation :, j * dilation :][:, :, ::stride, ::stride][:, :, :height, :width]
        result += np.einsum("bchw,oc->bohw", window, kernel[:, :, i, j])
    return result


def spread(x: Array, kernel: Array, padding: int, output_padding: int, stride: int, dilation: int) -> Array:
    """The transposed convolution of (b, c, h, w), by its definition."""
    height, width = (
        (n - 1) * stride + dilation * (k - 1) + output_padding + 1
        for n, k in zip(x.shape[2:], kernel.shape[2:], strict=True)
    )
    result = np.zeros((x.shape[0], kernel.shape[1], height, width), x.dtype)
    for i, j in np.ndindex(*kernel.shape[2:]):
        window = result[:, :, i * dilation :, j * dilation :][:, :, ::stride, ::stride]
        window[:, :, : x.shape[2], : x.shape[3]] += np.einsum("bchw,co->bohw", x, kernel[:, :, i, j])
    return result[:, :, padding : height - padding, padding : width - padding]


def grouped(function: Any, x: Array, kernel: Array, groups: int, *arguments: int) -> Array:
    pairs = zip(np.split(x, groups, 1), np.split(kernel, groups, 0), strict=True)
    return np.concatenate([function(part, weights, *arguments) for part, weights in pairs], 1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("padding", "stride", "dilation"), [(0, 1, 1), (2, 1, 2), (1, 2, 1), (0, 3, 2)])
def test_convolutions(device: Device, padding: int, stride: int, dilation: int, groups: int) -> None:
    x, kernel = numbers((2, 4, 7, 6), seed=1), numbers((6, 4 // groups, 3, 2), seed=2)
    options = {"padding": padding, "stride": stride, "dilation": dilation, "groups": groups}
    result = Tensor(x, device=device).conv2d(Tensor(kernel, device=device), **options)
    same(result, grouped(convolve, x, kernel, groups, padding, stride, dilation))
    line = Tensor(x[..., 0], device=device).conv1d(Tensor(kernel[..., 0], device=device), **options)
    padded = np.pad(x[..., :1], ((0, 0), (0, 0), (padding, padding), (0, 0)))
    same(line, grouped(convolve_lines, padded, kernel[..., :1], groups, stride, dilation)[..., 0])


def convolve_lines(x: Array, kernel: Array, stride: int, dilation: int) -> Array:
    return convolve(x, kernel, 0, stride, dilation)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("padding", "output_padding", "stride", "dilation"), [(0, 0, 1, 1), (1, 0, 2, 1), (1, 1, 2, 2), (2, 0, 3, 2)]
)
def test_transposed_convolutions(
    device: Device, padding: int, output_padding: int, stride: int, dilation: int, groups: int
) -> None:
    x, kernel = numbers((2, 4, 5, 4), seed=1), numbers((4, 3, 3, 4), seed=2)
    arguments = {"padding": padding, "output_padding": output_padding, "stride": stride, "dilation": dilation}
    actual = Tensor(x, device=device).conv_transpose2d(Tensor(kernel, device=device), **arguments, groups=groups)
    same(actual, grouped(spread, x, kernel, groups, *arguments.values()))
    line = Tensor(x[..., 0], device=device).conv_transpose1d(
        Tensor(kernel[..., 0], device=device), **arguments, groups=groups
    )
    # Along the width, a kernel of one column spreads an image of one column to one column.
    expected = grouped(spread, x[..., :1], kernel[..., :1], groups, 0, output_padding, stride, dilation)[..., 0]
    same(line, expected[..., padding : expected.shape[-1] - padding])


def test_channels_and_groups_that_do_not_fit() -> None:
    x = Tensor.zeros((1, 4, 5))
    with pytest.raises(ShapeMismatch, match=r"4 / 2 channels"):
        x.conv1d(Tensor.zeros((2, 4, 1)), groups=2)
    with pytest.raises(ShapeMismatch, match="multiple of 2 in number"):
        x.conv1d(Tensor.zeros((3, 2, 1)), groups=2)
    with pytest.raises(ShapeMismatch, match="4 kernels"):
        x.conv_transpose1d(Tensor.zeros((2, 4, 1)))
    with pytest.raises(ShapeMismatch, match="have 4 dims"):
        x.conv2d(Tensor.zeros((2, 4, 1, 1)))
    with pytest.raises(InvalidArgument, match="groups is 1 or more"):
        x.conv1d(Tensor.zeros((2, 4, 1)), groups=0)
    with pytest.raises(InvalidArgument, match="longer than the 5 elements"):
        x.conv1d(Tensor.zeros((2, 4, 6)))
    with pytest.raises(InvalidArgument, match="groups must be an integer"):
        x.conv1d(Tensor.zeros((2, 4, 1)), groups=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="conv1d: stride must be an integer"):
        x.conv1d(Tensor.zeros((2, 4, 1)), stride=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="stride is 1 or more"):
        x.conv1d(Tensor.zeros((2, 4, 1)), stride=0)
    with pytest.raises(InvalidArgument, match="padding below 3"):
        x[..., :1].conv_transpose1d(Tensor.zeros((4, 4, 1)), padding=3)


def test_convolutions_of_nothing(device: Device) -> None:
    kernel = Tensor.ones((3, 4, 2), device=device)
    same(Tensor.zeros((0, 4, 5), device=device).conv1d(kernel), np.zeros((0, 3, 4), np.float32))
    same(Tensor.zeros((1, 4, 0), device=device).conv1d(kernel), np.zeros((1, 3, 0), np.float32))
    same(Tensor.zeros((1, 0, 5), device=device).conv1d(kernel[:, :0]), np.zeros((1, 3, 4), np.float32))


def test_params_give_the_sizes_of_the_result() -> None:
    line = ParamsConv1D(b_size=2, l_in=10, c_out=3, c_in=4, k_size=3, padding=1, stride=2, dilation=2)
    assert line.out_dims[2] == 4
    assert line.out_dims == (2, 3, 4)
    assert (line.input_dims, line.kernel_dims) == ((2, 4, 10), (3, 4, 3))
    sizes = {"b_size": 2, "i_h": 5, "i_w": 4, "k_h": 3, "k_w": 2, "c_out": 3, "c_in": 4}
    image = ParamsConvTranspose2D(**sizes, padding=1, output_padding=1, stride=2, dilation=1)
    assert image.out_dims == (2, 3, 10, 7)
    assert image.kernel_dims == (4, 3, 3, 2)


def test_params_refuse_sizes_that_no_error_could_print() -> None:
    with pytest.raises(InvalidArgument, match="conv1d: k_size must have at most 256 bits"):
        ParamsConv1D(b_size=2, l_in=10, c_out=3, c_in=4, k_size=10**5000, padding=1, stride=2, dilation=2)


def test_pooling(device: Device) -> None:
    x = numbers((2, 3, 5, 6))
    tensor = Tensor(x, device=device)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), axis=(2, 3))
    same(tensor.max_pool2d((2, 3)), windows[:, :, ::2, ::3].max((-1, -2)))
    same(tensor.max_pool2d((2, 3), 1), windows.max((-1, -2)))
    squares = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3))
    same(tensor.avg_pool2d(2, (1, 2)), squares[:, :, :, ::2].mean((-1, -2)))
    same(tensor.max_pool2d(np.int64(2), [1, np.int32(2)]), squares[:, :, :, ::2].max((-1, -2)))  # type: ignore[arg-type]
    for size in (2.0, (2, 2, 2), (2, 1.5), "ab"):
        with pytest.raises(InvalidArgument, match="max_pool2d: kernel_size must be an integer or a pair of integers"):
            tensor.max_pool2d(size)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="avg_pool2d: stride must be an integer or a pair of integers"):
            tensor.avg_pool2d(2, size)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="use a smaller one"):
        tensor.max_pool2d(6)
    with pytest.raises(InvalidArgument, match="1 or more"):
        tensor.max_pool2d(2, 0)
    with pytest.raises(ShapeMismatch, match="4 dims"):
        tensor[0].avg_pool2d(2)


def test_upsampling(device: Device) -> None:
    x = numbers((1, 2, 2, 3))
    tensor = Tensor(x, device=device)
    same(tensor.upsample_nearest2d(4, 6), x.repeat(2, 2).repeat(2, 3))
    same(tensor[0].upsample_nearest1d(6), x[0].repeat(2, 2))
    same(tensor.upsample_bilinear2d(3, 3, align_corners=True)[:, :, 1], x.mean(2))
    same(tensor.upsample_bilinear2d(2, 3), x)
    assert tensor.upsample_bilinear2d(4, 6, scale_h=2.0, scale_w=2.0).shape == (1, 2, 4, 6)
    same(tensor.upsample_nearest2d(0, 6), np.zeros((1, 2, 0, 6), np.float32))
    with pytest.raises(InvalidArgument, match="0 or more"):
        tensor.upsample_nearest2d(-1, 6)
    with pytest.raises(InvalidArgument, match="size must be an integer"):
        tensor[0].upsample_nearest1d(6.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="width must be an integer"):
        tensor.upsample_bilinear2d(4, 6.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="scale_h is finite and above 0"):
        tensor.upsample_bilinear2d(4, 6, scale_h=0.0)
    with pytest.raises(ShapeMismatch, match="use an input with elements"):
        Tensor.zeros((1, 2, 0, 3), device=device).upsample_nearest2d(4, 6)


def losses_of(x: Array, targets: Array, ignored: int) -> tuple[Array, Array]:
    """Minus the logarithm of softmax at each target, 0 where it is ignored, and where it is not."""
    below = x - x.max(axis=1, keepdims=True)
    logarithms = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    counted = targets != ignored
    indices = np.expand_dims(np.where(counted, targets, 0), 1)
    return np.where(counted, -np.take_along_axis(logarithms, indices, 1)[:, 0], 0), counted


@pytest.mark.parametrize("dtype", ["i64", "i32", "u32", "u8"])
@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 6), (1, 3)])
def test_cross_entropy_ignores_an_index_and_takes_the_mean_of_the_others(
    device: Device, dtype: str, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(5).normal(0, 3, shape)
    targets = np.random.default_rng(6).integers(0, shape[1], (shape[0], *shape[2:]))
    tensor, indexes = Tensor(x, "f64", device), Tensor(targets, dtype, device)
    for ignored in (-100, 1):
        losses, counted = losses_of(x, targets, ignored)
        actual = tensor.cross_entropy(indexes, ignored, "none").numpy()
        np.testing.assert_allclose(actual, losses, rtol=1e-12)
        assert not np.signbit(actual).any()
        np.testing.assert_allclose(tensor.cross_entropy(indexes, ignored, "sum").item(), losses.sum(), rtol=1e-12)
        with np.errstate(invalid="ignore"):
            mean = losses.sum() / counted.sum()
        np.testing.assert_allclose(tensor.cross_entropy(indexes, ignored).item(), mean, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_cross_entropy_with_weights_and_smoothing(
    device: Device, is_weighted: bool, smoothing: float, reduction: str
) -> None:
    generator = np.random.default_rng(0)
    for shape, dtype in (((7, 5), "i64"), ((3, 4, 6), "i32"), ((3, 4, 6), "u8"), ((5,), "i16")):
        x, dim = generator.normal(0, 3, shape).astype("f4"), min(len(shape), 2) - 1
        weights = generator.uniform(0.5, 2, shape[dim]).astype("f4") if is_weighted else np.ones(shape[dim], "f4")
        targets = generator.integers(0, shape[dim], shape[:dim] + shape[dim + 1 :])
        counted = np.asarray(targets != 1)
        logarithms = x - np.logaddexp.reduce(x.astype(float), dim, keepdims=True)
        logarithms *= np.expand_dims(weights, tuple(range(1, len(shape) - dim)))
        at_target = np.take_along_axis(logarithms, np.expand_dims(targets, dim), dim).squeeze(dim)
        losses = np.where(counted, -(1 - smoothing) * at_target - smoothing * logarithms.mean(dim), 0)
        total = np.where(counted, weights[targets], 0).sum()
        with np.errstate(invalid="ignore"):
            expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / total}[reduction]
        inputs = Tensor(weights, device=device) if is_weighted else None
        indexes, logits = Tensor(targets, dtype, device), Tensor(x, device=device)
        actual = logits.cross_entropy(indexes, 1, reduction, inputs, smoothing).numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
        if not smoothing:
            actual = logits.log_softmax(dim).nll_loss(indexes, 1, reduction, inputs).numpy()
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weight", [None, [1.0, 2.0]])
def test_targets_that_are_all_ignored_have_a_mean_of_nan_and_no_gradient(
    device: Device, weight: list[float] | None
) -> None:
    weights = None if weight is None else Tensor(weight, device=device)
    targets = Tensor([255, 2**32 - 1], "u32", device)
    for loss in (
        lambda x: x.cross_entropy(targets, 255, weight=weights),
        lambda x: x.cross_entropy(targets, 255, weight=weights, label_smoothing=0.1),
        lambda x: x.nll_loss(targets, 255, weight=weights),
    ):
        x = Var(Tensor([[1.0, 2.0], [3.0, 4.0]], device=device))
        result = loss(x)
        assert np.isnan(result.item())
        assert result.backward()[x].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(("dtype", "bits"), [("f16", 11), ("bf16", 8)])
def test_cross_entropy_of_halves_is_rounded_once(device: Device, dtype: str, bits: int) -> None:
    ones = Tensor.ones(9, dtype=dtype, device=device)
    for seed in range(40):
        generator = np.random.default_rng(seed)
        x = Tensor(generator.normal(0, 3, (5, 9)), dtype, device)
        targets = generator.integers(0, 9, 5)
        losses, _ = losses_of(x.to_dtype("f64").numpy(), targets, -100)
        for reduction, expected in (("mean", losses.mean()), ("sum", losses.sum()), ("none", losses)):
            actual = x.cross_entropy(Tensor(targets, device=device), reduction=reduction)
            assert actual.dtype.value == dtype
            weighted = x.cross_entropy(Tensor(targets, device=device), -100, reduction, ones)
            assert weighted.dtype.value == dtype
            np.testing.assert_allclose(weighted.to_dtype("f64").numpy(), expected, rtol=0.51 * 2.0 ** (1 - bits))
            off = (actual.to_dtype("f64").numpy() - expected) / 2.0 ** (np.frexp(expected)[1] - bits)
            # Half a unit, and what sums of floats are off.
            assert np.abs(off).max() < 0.51, reduction


def test_cross_entropy_refuses_what_does_not_fit(device: Device) -> None:
    x, targets = Tensor(numbers((4, 3), seed=1), device=device), Tensor([0, 1, 2, 0], device=device)
    with pytest.raises(InvalidArgument, match="reduction is one of mean, sum, none, not 'median'"):
        x.cross_entropy(targets, reduction="median")
    for array in (np.ones(2)[:0], np.zeros(2, [("a", int)])):
        with pytest.raises(InvalidArgument, match="reduction must be of type str, not ndarray"):
            x.cross_entropy(targets, reduction=array)
    with pytest.raises(ShapeMismatch, match="cross_entropy"):
        x.cross_entropy(targets[1:])
    with pytest.raises(UnsupportedDType, match="cross_entropy"):
        x.cross_entropy(targets.to_dtype("f32"))
    with pytest.raises(InvalidIndex):
        x.cross_entropy(targets + 1).item()


@pytest.mark.parametrize("groups", [3, 1000, 2**32])
def test_groups_without_channels_cost_nothing(device: Device, groups: int) -> None:
    line, image = (Tensor.ones((2, 0, *sizes), device=device) for sizes in ((4,), (4, 5)))
    assert line.conv1d(Tensor.ones((0, 0, 3), device=device), groups=groups).shape == (2, 0, 2)
    assert image.conv2d(Tensor.ones((0, 0, 3, 3), device=device), groups=groups).shape == (2, 0, 2, 3)
    assert line.conv_transpose1d(Tensor.ones((0, 0, 3), device=device), groups=groups).shape == (2, 0, 6)
    assert image.conv_transpose2d(Tensor.ones((0, 0, 3, 3), device=device), groups=groups).shape == (2, 0, 6, 7)


def test_groups_without_anything_to_add_up_give_zeros(device: Device) -> None:
    line, image = (Tensor.ones((2, 0, *sizes), device=device) for sizes in ((4,), (4, 5)))
    for actual, shape in (
        (line.conv1d(Tensor.ones((6, 0, 3), device=device), groups=3), (2, 6, 2)),
        (image.conv2d(Tensor.ones((6, 0, 3, 3), device=device), groups=3), (2, 6, 2, 3)),
        (line.conv_transpose1d(Tensor.ones((0, 2, 3), device=device), groups=3), (2, 6, 6)),
        (image.conv_transpose2d(Tensor.ones((0, 2, 3, 3), device=device), groups=3), (2, 6, 6, 7)),
    ):
        same(actual, np.zeros(shape, np.float32))
        same(actual.add_(1), np.ones(shape, np.float32))
