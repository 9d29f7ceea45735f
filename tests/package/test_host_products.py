"""Matrix products and convolutions by the kernels for the host: of small integers, exactly as NumPy makes them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.cpu_backend.kernels import HostKernels
from tallow.runtime.backends.cpu_backend.ops import native_conv
from tallow.runtime.core.conv import ParamsConv2D
from tallow.runtime.host.weights import FEW_ROWS
from tallow.runtime.program.builder import NO_FACTS, ProgramBuilder
from tallow.runtime.program.values import Buffer, Memory, dense

KERNELS = HostKernels.open()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no kernels for this machine; run 'opgen compile --host'")
DTYPES = [tl.DType.BF16, tl.DType.F16, tl.DType.F32, tl.DType.F64]


def integers(*shape: int) -> tl.Tensor:
    return tl.Tensor(np.random.default_rng(0).integers(-3, 4, shape))


def check(got: tl.Tensor, expected: tl.Tensor) -> None:
    np.testing.assert_array_equal(
        got.to_dtype(tl.DType.F64).numpy(), expected.to_dtype(got.dtype).to_dtype(tl.DType.F64).numpy()
    )


# Around the sizes of tiles, strips and blocks of terms.
@pytest.mark.parametrize(
    "sizes",
    [(1, 130, 200), (97, 1, 192), (7, 129, 193), (100, 200, 385), (25, 65, 1), (50, 50, 50), (401, 271, 33)],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products(sizes: tuple[int, int, int], dtype: tl.DType) -> None:
    m, n, k = sizes
    lhs, rhs = integers(2, m, k), integers(2, k, n)
    expected = lhs @ rhs
    for x in (lhs, lhs.transpose(1, 2).contiguous().transpose(1, 2)):
        for y in (rhs, rhs.transpose(1, 2).contiguous().transpose(1, 2)):
            check(x.to_dtype(dtype) @ y.to_dtype(dtype), expected)
    every_other = lhs.to_dtype(dtype)[:, :, ::2] @ rhs.to_dtype(dtype)[:, ::2, :]
    check(every_other, lhs[:, :, ::2] @ rhs[:, ::2, :])


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [tl.DType.BF16, tl.DType.F16])
def test_products_of_up_to_8_rows_keep_subnormal_numbers(rows: int, dtype: tl.DType) -> None:
    """However their operands lie, also where instructions for pairs of bf16 take those for 0."""
    least = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)
    x = (integers(2, rows, 256).to_dtype("f64") * least).to_dtype(dtype)
    y = (integers(2, 256, 128).to_dtype("f64") / 8).to_dtype(dtype)
    expected = x.to_dtype("f64") @ y.to_dtype("f64")
    for left in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        for right in (y, y.transpose(1, 2).contiguous().transpose(1, 2)):
            check(left @ right, expected)
            check(left[0] @ right[0], expected[0])
            check(left[0][:, ::2] @ right[0][::2], x[0][:, ::2].to_dtype("f64") @ y[0][::2].to_dtype("f64"))
            check(left[1].linear(right[1].T), expected[1])


# Around the sizes of lanes, of parts of columns and of rows that are added up together.
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 64, 16), (2, 257, 17), (3, 63, 700), (8, 520, 33)])
@pytest.mark.parametrize("dtype", [*DTYPES, tl.DType.F8E4M3])
def test_products_of_few_rows(sizes: tuple[int, int, int], dtype: tl.DType) -> None:
    m, n, k = sizes
    x, weight, bias = integers(m, k), integers(n + 3, k + 5)[3:, 5:], integers(n)
    expected = x.to_dtype(tl.DType.F32).linear(weight.to_dtype(tl.DType.F32), bias.to_dtype(tl.DType.F32))
    rows, columns = weight.to_dtype(dtype), weight.T.contiguous().to_dtype(dtype)
    wide = integers(k + 5, n + 3).to_dtype(dtype)[5:, 3:]
    x = x.to_dtype(dtype)
    check(x.linear(rows, bias.to_dtype(dtype)), expected)
    check(x.linear(columns.T, bias.to_dtype(dtype)), expected)
    check(x @ columns, x.linear(rows))
    check(x @ wide, x.linear(wide.T.contiguous()))
    for i in range(m):
        check((x[i : i + 1] @ columns)[0], (x @ columns)[i])
        check(x[i : i + 1].linear(rows)[0], x.linear(rows)[i])


@pytest.mark.parametrize("dtype", [tl.DType.F32, tl.DType.F64, tl.DType.BF16])
@pytest.mark.parametrize("length", [40, 511, 1025, 2100])
def test_few_rows_have_the_bits_that_each_has_alone(length: int, dtype: tl.DType) -> None:
    """However many rows of x and of the matrix share registers, and a cache."""
    generator = np.random.default_rng(0)
    x, weight = (tl.Tensor(generator.standard_normal((count, length))).to_dtype(dtype) for count in (FEW_ROWS, 11))
    expected = x.to_dtype("f64").numpy() @ weight.to_dtype("f64").numpy().T
    alone = [x[i : i + 1].linear(weight).to_dtype("f64").numpy() for i in range(FEW_ROWS)]
    for rows in range(1, FEW_ROWS + 1):
        result = x[:rows].linear(weight).to_dtype("f64").numpy()
        np.testing.assert_array_equal(result, np.concatenate(alone[:rows]))
        np.testing.assert_allclose(result, expected[:rows], rtol=1e-2, atol=1e-3 * length)


@pytest.mark.parametrize("dtype", [tl.DType.BF16, tl.DType.F16])
def test_a_bias_of_one_repeated_element_needs_no_numpy(dtype: tl.DType) -> None:
    x, weight, bias = integers(300, 24), integers(40, 24), integers(1)
    with tl.profile() as profile:
        result = x.to_dtype(dtype).linear(weight.to_dtype(dtype), bias.to_dtype(dtype).broadcast_as(40))
    check(result, x.float().linear(weight.float(), bias.float().broadcast_as(40)))
    assert "linear" not in [launch.name for launch in profile.launches]


def test_a_bias_is_added_before_the_sum_is_rounded() -> None:
    # 257 is no bf16, and would be 256 or 258.
    x, weight, bias = (tl.Tensor(np.full(shape, 1.0)).to_dtype(tl.DType.BF16) for shape in ((3, 257), (70, 257), (70,)))
    np.testing.assert_array_equal(x.linear(weight, bias).to_dtype(tl.DType.F32).numpy(), np.full((3, 70), 258))
    np.testing.assert_array_equal(x.linear(weight).to_dtype(tl.DType.F32).numpy(), np.full((3, 70), 256))


def kernel_gradient(x: tl.Tensor, g: tl.Tensor, params: tl.ParamsConvolution) -> tl.Tensor:
    storage = x._storage.convolution_gradient_weight(x._layout, g._storage, g._layout, params)
    return tl.Tensor.from_storage(storage, params.kernel_dims)


# Image, kernel, padding, stride and dilation: tiles are cut in each of their ways.
CONVOLUTIONS = [
    ((2, 3, 40, 30), (5, 3, 3, 3), 1, 1, 1),
    ((1, 2, 3, 1100), (3, 2, 2, 5), 2, 1, 1),
    ((1, 70, 9, 9), (67, 70, 3, 3), 1, 1, 1),
    ((1, 300, 6, 5), (9, 300, 1, 1), 0, 1, 1),
    ((1, 3, 40, 50), (4, 3, 7, 7), 3, 2, 1),
    ((1, 2, 64, 64), (8, 2, 16, 16), 0, 16, 1),
    ((1, 2, 90, 90), (3, 2, 3, 3), 5, 3, 7),
    ((1, 1, 44, 60), (2, 1, 20, 30), 25, 2, 1),
]


@pytest.mark.parametrize(("image", "kernel", "padding", "stride", "dilation"), CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [tl.DType.BF16, tl.DType.F64])
def test_convolutions(
    image: tuple[int, ...], kernel: tuple[int, ...], padding: int, stride: int, dilation: int, dtype: tl.DType
) -> None:
    x, w = integers(*image), integers(*kernel)
    steps = {"padding": padding, "stride": stride, "dilation": dilation}
    check(x.to_dtype(dtype).conv2d(w.to_dtype(dtype), **steps), x.conv2d(w, **steps))
    transposed = x.transpose(2, 3).contiguous().transpose(2, 3).to_dtype(dtype)
    check(transposed.conv2d(w.to_dtype(dtype), **steps), x.conv2d(w, **steps))
    shape = x.conv2d(w, **steps).shape
    params = tl.ParamsConvolution(image, kernel, shape[2:], [padding] * 2, [stride] * 2, [dilation] * 2)
    g = integers(*shape)
    check(kernel_gradient(x.to_dtype(dtype), g.to_dtype(dtype), params), kernel_gradient(x, g, params))
    image = (image[0], image[1], min(image[2], 20), min(image[3], 20))
    x, w = integers(*image), w.transpose(0, 1)
    steps["padding"] = min(padding, (kernel[2] - 1) * dilation // 2)
    check(x.to_dtype(dtype).conv_transpose2d(w.to_dtype(dtype), **steps), x.conv_transpose2d(w, **steps))


# Batch, channels, sizes, channels of the result and stride: few and many rows, and too many terms for kernels alone.
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 5, (7,), 3, 1),
        (2, 70, (1, 1), 40, 1),
        (12, 33, (1, 1), 9, 1),
        (3, 20, (9, 10), 2, 2),
        (2, 64, (40, 40), 65, 1),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_convolutions_of_one_element_are_products(
    sizes: tuple[int, int, tuple[int, ...], int, int], dtype: tl.DType
) -> None:
    batches, inner, dims, outer, stride = sizes
    x, w, bias = integers(batches, inner, *dims), integers(outer, inner, *[1] * len(dims)), integers(outer)
    columns = x[:, :, *[slice(None, None, stride)] * len(dims)]
    expected = (w.reshape(outer, inner) @ columns.flatten(2)).reshape(batches, outer, *columns.shape[2:])
    last = [0, *range(2, x.rank), 1]
    images = {
        "row-major": x.to_dtype(dtype),
        "channels last": x.permute(last).contiguous().permute(0, x.rank - 1, *range(1, x.rank - 1)).to_dtype(dtype),
        "reversed": x.transpose(0, -1).contiguous().transpose(0, -1).to_dtype(dtype),
        "one of several": tl.stack([x, x + 1], -1).to_dtype(dtype)[..., 0],
    }
    for image in images.values():
        for kernel in (w.to_dtype(dtype), w.transpose(0, 1).contiguous().transpose(0, 1).to_dtype(dtype)):
            convolve = getattr(image, f"conv{len(dims)}d")
            check(convolve(kernel, stride=stride), expected)
            biased = convolve(kernel, stride=stride, bias=bias.to_dtype(dtype))
            check(biased, expected + bias.reshape(-1, *[1] * len(dims)))


@pytest.mark.parametrize("operand", ["x", "g"])
def test_gradients_of_kernels_of_infinities(operand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the rows of a tile zeros take the place of the gradient."""
    params = tl.ParamsConvolution((2, 4, 9, 9), (4, 1, 3, 3), (9, 9), (1, 1), (1, 1), (1, 1), 4)
    operands = {"x": integers(2, 4, 9, 9).float(), "g": integers(2, 4, 9, 9).float()}
    array = operands[operand].numpy()
    array[0, 1, 3, 0] = np.inf
    operands[operand] = tl.Tensor(array)
    got = kernel_gradient(operands["x"], operands["g"], params).numpy()
    device = tl.Device.cpu().inner
    monkeypatch.setattr(device, "kernels", None)
    device.plans.clear()
    np.testing.assert_array_equal(got, kernel_gradient(operands["x"], operands["g"], params).numpy())
    device.plans.clear()


def test_a_kernel_without_room_is_left_to_numpy() -> None:
    assert KERNELS is not None
    x, w = integers(1, 1, 300, 300).to_dtype(tl.DType.F32), integers(1, 1, 1, 300).to_dtype(tl.DType.F32)
    large = ParamsConv2D(
        b_size=1, i_h=300, i_w=300, k_h=1, k_w=300, c_out=1, c_in=1, padding=99_999, stride=1, dilation=500
    )
    operands = [dense(Buffer(each.dtype, each.elem_count, Memory(0)), each.shape) for each in (x, w)]
    assert native_conv.convolve(ProgramBuilder(NO_FACTS), KERNELS, *operands, large) is None


def test_blas_has_the_threads_of_other_calls() -> None:
    from tallow.runtime.backends.cpu_backend import blas

    # SciPy has a BLAS of its own, which another test may have loaded.
    def threads_of_blas() -> set[int]:
        return {library["num_threads"] for library in blas._controller().info()}

    before, count = threads_of_blas(), tl.get_threads()
    tl.set_threads(1)
    try:
        with blas.threads():
            assert threads_of_blas() == {1}
    finally:
        tl.set_threads(count)
    assert threads_of_blas() == before
