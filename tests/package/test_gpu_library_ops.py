"""What the ops of the GPU backends ask of libraries, and what they leave to kernels."""

import itertools
import math

import numpy as np
import pytest
from tallow import Device, Storage, Tensor
from tallow.dtype import DType
from tallow.kernels import arguments
from tallow.runtime.backends.gpu_backend.ops import attention_by_library, conv, conv_epilogue, matmul
from tallow.runtime.core.conv import ParamsConv2D, ParamsConvolution
from tallow.runtime.core.layout import layout_of
from tallow.runtime.program.program import Launch, LibraryCall
from tallow.runtime.program.values import Operand

from .programs import FACTS, LARGE, Observer, Run, Stored, at, built, call_of, kernels, layout


class Library:
    """A BLAS that describes its calls."""

    def multiply(self, dtype, bmnk, lhs, rhs, result, is_added=False, result_dtype=None):
        assert not is_added, "there is no bias"
        assert result_dtype is None, "products are in the dtype of their operands"
        return LibraryCall(self.multiply, (dtype, bmnk, lhs, rhs, result))


def test_products_go_to_a_library_where_it_takes_them():
    x, y = Stored(DType.F32, 4096), Stored(DType.I32, 4096)
    sizes, right = (2, 8, 16, 4), layout((2, 4, 16), (0, 1, 4))
    for left, copies in ((layout((2, 8, 4)), []), (layout((2, 8, 4), (64, 8, 2)), ["copy_b32_strided"])):
        program = built(matmul.by_library, Library(), Operand(x, left), Operand(x, right), sizes)
        assert kernels(program) == copies
        ((_, (_, _, _, rhs, result)),) = (run := Run(program)).calls
        assert (rhs.address, rhs.step, [result]) == (run.arguments[1], 0, run.results)
    nothing = at(x, (2, 8, 0)), at(x, (2, 0, 16))
    assert call_of(matmul.by_library, Library(), *nothing, (2, 8, 16, 0)).program(FACTS, may_refuse=True) is None
    run = Run(built(matmul.matmul, *nothing, (2, 8, 16, 0)))
    assert (run.launches, run.fills) == ([], [(*run.results, 0, 2 * 8 * 16 * 4)])
    (launch,) = Run(built(matmul.matmul, Operand(y, layout((2, 8, 4))), Operand(y, right), sizes)).launches
    assert launch.kernel == "matmul_i32"
    assert arguments.MATMUL.unpack(launch.packed)[3:14] == (4, 1, 1, 4, 0, 0, 8, 16, 4, 2, 1)


class OrderedImages:
    """A library of convolutions that notes what it is asked for, and takes all in row-major order at least."""

    def __init__(self, has_channels_last=True):
        self.asked = []
        self._has_channels_last = has_channels_last

    def convolution(self, kind, dtype, params, first, second, result):
        self.asked.append((params.channels_last, params.stride))
        if params.channels_last and not self._has_channels_last:
            return None
        return LibraryCall(self.convolution, (first, second, result))


@pytest.mark.parametrize("kind", ["forward", "input", "weight"])
def test_convolutions_get_images_in_the_order_that_is_quick(kind):
    op = {"forward": conv.by_library, "input": conv.transposed_by_library, "weight": conv.weight_by_library}[kind]

    def converted(dtype, taps, stride, *, images=layout_of, has_channels_last=True):
        x = Stored(dtype, 1 << 20)
        sizes = {"b_size": 2, "i_h": 16, "i_w": 16, "c_in": 8, "c_out": 16, "k_h": taps, "k_w": taps}
        params = ParamsConv2D(**sizes, padding=0, stride=stride, dilation=1).general
        dims = {"forward": (params.input_dims, params.kernel_dims), "input": (params.out_dims, params.kernel_dims),
                "weight": (params.input_dims, params.out_dims)}[kind]  # fmt: skip
        last = images is not layout_of
        library = OrderedImages(has_channels_last)
        operands = [Operand(x, layout_of(each, last)) for each in dims]
        program = built(op, library, *operands, params._replace(channels_last=last))
        return library.asked, len(kernels(program))

    assert converted(DType.F16, 3, 1) == ([(True, (1, 1))], 3)
    assert converted(DType.F16, 3, 1, images="last") == ([(True, (1, 1))], 0)
    assert converted(DType.F16, 3, 1, has_channels_last=False) == ([(True, (1, 1)), (False, (1, 1))], 0)
    assert converted(DType.F16, 1, 1) == ([(False, (1, 1))], 0)
    assert converted(DType.F32, 3, 2) == ([(False, (2, 2))], 0)
    # Of f32 the zeros between products are not multiplied.
    steps, copies = ((1, 1), 1) if kind == "input" else ((2, 2), 0)
    assert converted(DType.F32, 1, 2) == ([(False, steps)], copies)


class Unpadded(OrderedImages):
    """A library that leaves padding to the input."""

    def convolution(self, kind, dtype, params, first, second, result):
        return None if params.is_padded else super().convolution(kind, dtype, params, first, second, result)


@pytest.mark.parametrize(("dtype", "copies"), [(DType.F16, 3), (DType.F32, 1)])
def test_padding_is_added_in_the_order_that_the_library_takes(dtype, copies):
    """One copy of the image; those of 16 bits have channels last, to which the kernel and the result are copied too."""
    x = Stored(dtype, 1 << 20)
    sizes = {"b_size": 2, "i_h": 16, "i_w": 16, "c_in": 8, "c_out": 16, "k_h": 3, "k_w": 3}
    params = ParamsConv2D(**sizes, padding=1, stride=2, dilation=1).general
    program = built(conv.by_library, Unpadded(), at(x, params.input_dims), at(x, params.kernel_dims), params)
    assert len(kernels(program)) == copies


@pytest.mark.parametrize("kind", ["forward", "input", "weight"])
def test_large_tiles_take_convolutions_of_f32(kind):
    """Where the device has them; of gradients of kernels a library has quicker ways."""
    op = {"forward": conv.by_library, "input": conv.transposed_by_library, "weight": conv.weight_by_library}[kind]

    def is_left(dtype=DType.F32, channels=32, taps=3, stride=1, has_tiles=True):
        x = Stored(dtype, 1 << 20)
        sizes = {"b_size": 2, "i_h": 16, "i_w": 16, "c_in": channels, "c_out": 32, "k_h": taps, "k_w": taps}
        params = ParamsConv2D(**sizes, padding=taps // 2, stride=stride, dilation=1).general
        dims = {"forward": (params.input_dims, params.kernel_dims), "input": (params.out_dims, params.kernel_dims),
                "weight": (params.input_dims, params.out_dims)}[kind]  # fmt: skip
        call = call_of(op, library := OrderedImages(), *[at(x, each) for each in dims], params)
        program = call.program(LARGE._replace(has_kernels=lambda _: has_tiles), may_refuse=True)
        assert (program is None) == (library.asked == [])
        return program is None

    assert is_left() == is_left(stride=2) == (kind != "weight")
    assert not any([is_left(DType.BF16), is_left(channels=8), is_left(taps=1), is_left(has_tiles=False)])


@pytest.mark.parametrize(
    ("rows", "size", "tile"), [(24, 96, "32x256"), (128, 64, "128x128"), (128, 8, "implicit_gemm")]
)
def test_tiles_of_floats_follow_the_size_of_a_product(rows, size, tile):
    def tiles(dims):
        x = Stored(DType.F32, 1 << 24)
        params = ParamsConvolution((4, 128, size, size), (rows, 128, *dims), (size, size), (1, 1), (1, 1), (1, 1))
        program = built(conv.convolve, at(x, params.input_dims), at(x, params.kernel_dims), params, facts=LARGE)
        return [name for name in kernels(program) if name.startswith("conv")]

    assert tiles((3, 3)) == [f"conv_f32_{tile}"]
    # Larger ones lack bits for so many taps.
    assert tiles((1, 31)) == ["conv_f32_implicit_gemm"]


class BiasedLibrary:
    """Matrix products to which a bias is added."""

    def multiply_and_add(self, dtype, mnk, lhs, rhs, bias, result):
        return LibraryCall(self.multiply_and_add, (mnk, result))


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
def test_a_convolution_of_one_window_is_a_linear_layer(dtype):
    def steps(op, *library, taps=3, bias=dtype, scale=None, activation=None):
        x = Stored(dtype, 1 << 20)
        sizes = {"b_size": 2, "i_h": 3, "i_w": 3, "c_in": 8, "c_out": 16, "k_h": taps, "k_w": taps}
        params = ParamsConv2D(**sizes, padding=0, stride=1, dilation=1).general
        vectors = [kind and at(Stored(kind, 16), (16,)) for kind in (scale, bias)]
        operands = at(x, params.input_dims), at(x, params.kernel_dims), *vectors, None, activation, params
        program = call_of(op, *library, *operands).program(FACTS, may_refuse=True)
        return program and [*[call.arguments[0] for call in Run(program).calls], *kernels(program)]

    layer = conv_epilogue.by_layer_library, BiasedLibrary()
    assert steps(*layer) == [(2, 16, 72)]
    assert steps(*layer, activation="relu") == [(2, 16, 72), f"relu_{dtype}_contiguous"]
    assert steps(conv_epilogue.convolve) == [f"matmul_{dtype}"]
    for other in ({"taps": 2}, {"bias": None}, {"scale": DType.F32}, {"activation": "silu"}, {"bias": DType.F64}):
        assert steps(*layer, **other) is None
    # A library of fused convolutions leaves those of 16 bits alone.
    if dtype is DType.BF16:
        assert steps(conv_epilogue.by_fused_library, Fused()) is None


def test_convolutions_are_products_where_these_pay():
    x = Stored(DType.F32, 1 << 20)
    sizes = {"b_size": 2, "i_h": 8, "i_w": 8, "c_in": 4, "padding": 0, "stride": 1, "dilation": 1}
    actual = []
    for c_out, k in ((16, 3), (16, 1), (2, 3)):
        params = ParamsConv2D(**sizes, c_out=c_out, k_h=k, k_w=k)
        actual.append(kernels(built(conv.convolve, at(x, (2, 4, 8, 8)), at(x, (c_out, 4, k, k)), params)))
    # The image is copied with channels last, and a kernel of several places so that its channels are side by side.
    copied = ["copy_b32_strided"]
    assert actual == [[*copied * 2, "conv_f32_implicit_gemm"], [*copied, "conv_f32_implicit_gemm"], ["conv_f32_direct"]]


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32], ids=str)
@pytest.mark.parametrize("last", list(itertools.product([False, True], repeat=2)), ids=str)
def test_windows_of_one_element_are_products_of_matrices(dtype, last):
    """Whatever the layouts, so that these do not change bits; but not where blocks are few, or windows larger."""
    of_images, of_results = last

    def found(sizes, channels=136, outer=136, taps=1):
        params = ParamsConvolution(
            (3, channels, *sizes), (outer, channels, taps, taps), sizes, (taps // 2,) * 2, (1, 1), (1, 1)
        )._replace(channels_last=of_results)
        x, kernel, g = [
            Operand(Stored(dtype, 1 << 20), layout_of(dims, of_images))
            for dims in (params.input_dims, params.kernel_dims, params.out_dims)
        ]
        return [
            kernels(built(function, *operands, params, facts=LARGE))
            for function, operands in ((conv.convolve, (x, kernel)), (conv.convolve_transposed, (g, kernel)))
        ]

    for names in found((48, 48)):
        copies = int(of_results and not of_images)
        assert [name.startswith("copy") for name in names] == [True] * copies + [False]
        assert names[-1].startswith(f"matmul_{dtype}_tiles_")
    for names in found((47, 49)):
        assert sum(name.startswith(f"matmul_{dtype}_tiles_") for name in names) == 1
    for other in found((7, 7)), found((48, 48), channels=64, outer=64), found((48, 48), taps=3):
        assert not any("matmul" in name for names in other for name in names)


def test_layouts_do_not_change_the_bits_of_convolutions(rocm, monkeypatch):
    monkeypatch.setattr(type(rocm), "miopen", None)
    rng, actual = np.random.default_rng(0), []
    # The channels are many, so that tiles of gathered products would be sums of parts.
    x, kernel = (
        Tensor(rng.normal(size=size), dtype=DType.BF16, device=Device(rocm))
        for size in ((1, 2048, 9, 8), (72, 2048, 1, 1))
    )
    padded = Tensor.zeros((1, 2048, 9, 9), dtype=DType.BF16, device=x.device)
    padded[..., :8] = x
    for image, last in ((x, False), (padded[..., :8], False), (x.contiguous(memory_format="channels_last"), True)):
        params = ParamsConvolution(x.shape, kernel.shape, (9, 8), (0, 0), (1, 1), (1, 1), 1, last)
        result = image.storage.convolution(image.layout, kernel.storage, kernel.layout, params)
        actual.append(Tensor.from_storage(result, layout_of(params.out_dims, last)).float().numpy())
    assert all(np.array_equal(actual[0], other) for other in actual[1:])


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32], ids=str)
def test_gradients_of_strided_images_are_written_with_channels_last(dtype):
    x = Stored(dtype, 1 << 20)
    for stride, copies in ((1, 2), (2, 3 if dtype is DType.BF16 else 2)):
        sizes = 8 // stride, 8 // stride
        params = ParamsConvolution((2, 16, 8, 8), (16, 16, 3, 3), sizes, (1, 1), (stride, stride), (1, 1))
        names = kernels(built(conv.convolve_transposed, at(x, params.out_dims), at(x, params.kernel_dims), params))
        assert len([name for name in names if name.startswith("copy")]) == copies
        assert names[2].startswith("conv_")


class Images(Library):
    """A library of images that refuses kernels but of one size, some when it is called."""

    def convolution(self, kind, dtype, params, source, kernel, result):
        return LibraryCall(self._run, params.kernel[:1]) if dtype is DType.F32 else None

    def _run(self, size):
        return size == 5


@pytest.mark.parametrize(
    ("dtype", "c_out", "k", "steps"),
    [
        (DType.F32, 16, 5, ["_run"]),
        (DType.F32, 16, 1, ["_run", "copy_b32_strided", "conv_f32_implicit_gemm"]),
        (DType.F32, 2, 3, ["_run", "conv_f32_direct"]),
        (DType.F64, 16, 1, ["copy_b64_strided", "conv_f64_implicit_gemm"]),
    ],
)
def test_what_a_library_refuses_is_handed_on(rocm, monkeypatch, dtype, c_out, k, steps):
    """To MIOpen, then to the kernel."""
    monkeypatch.setattr(type(rocm), "miopen", Images())
    monkeypatch.setattr(type(rocm), "hipblas", Library())
    sizes = {"b_size": 2, "i_h": 8, "i_w": 8, "c_in": 4, "padding": 0, "stride": 1, "dilation": 1}
    params = ParamsConv2D(**sizes, c_out=c_out, k_h=k, k_w=k)
    image, kernel = (Device(rocm).zeros(shape, dtype) for shape in ((2, 4, 8, 8), (c_out, 4, k, k)))
    observer = Observer()
    rocm.plans.clear()
    with rocm.plans.observed_by(observer):
        image.conv2d(layout((2, 4, 8, 8)), kernel, layout((c_out, 4, k, k)), params)
    rocm.plans.clear()
    taken = [step for program in observer.programs for step in program.steps if isinstance(step, Launch | LibraryCall)]
    assert [getattr(step, "kernel", None) or step.function.__name__ for step in taken] == steps


class Heads:
    """A library that takes all attention that it is asked for."""

    def attention(self, dtype, params, *addresses):
        return LibraryCall(self.attention, (dtype, params, *addresses))

    attention_with_logsumexp = attention_gradient = attention


def test_attention_goes_to_a_library_as_it_lies_where_that_means_the_same():
    x, apart = Stored(DType.F16, 1 << 20), (40 * 2 * 64, 64, 2 * 64, 1)
    query, keys = at(x, (2, 4, 40, 64)), at(x, (2, 2, 40, 64), apart, 64)

    def attend(query=query, keys=keys, mask=None, lengths=None, is_causal=True, scale=0.125):
        operands = query, keys, keys, mask, lengths, is_causal, scale
        return call_of(attention_by_library.attention, Heads(), *operands).program(FACTS, may_refuse=True)

    run = Run(attend())
    ((_, (dtype, params, *addresses)),) = run.calls
    assert not run.launches
    assert (dtype, params.is_causal, params.scale) == (DType.F16, True, 0.125)
    assert params.query == ((2, 4, 40, 64), (10240, 2560, 64, 1))
    assert params.keys == params.values == ((2, 2, 40, 64), apart)
    start, *_ = run.arguments
    assert addresses == [start, start + 128, start + 128, *run.results]
    for refused in (
        {"mask": at(x, (2, 4, 40, 40))},
        {"lengths": at(Stored(DType.I32, 1), (1,))},
        # Queries that see nothing are 0.
        {"query": at(x, (2, 4, 41, 64))},
        {"scale": -0.125},
        {"scale": math.inf},
        # What has too few rows to be worth it, and what lies where no whole access begins.
        {"query": at(x, (2, 4, 16, 64))},
        {"keys": at(x, (2, 2, 40, 64), None, 1)},
        {"keys": at(x, (2, 2, 0, 64)), "is_causal": False},
    ):
        assert attend(**refused) is None, refused


def test_gradients_of_attention_go_to_a_library_with_what_it_left_for_them():
    x, apart = Stored(DType.BF16, 1 << 20), (40 * 2 * 64, 64, 2 * 64, 1)
    query, keys = at(x, (2, 4, 40, 64)), at(x, (2, 2, 40, 64), apart, 64)
    forward = built(attention_by_library.attention_with_logsumexp, Heads(), query, keys, keys, None, None, True, 0.125)
    assert [(each.dtype, each.length) for each in forward.result] == [(DType.BF16, 2 * 4 * 40 * 64), (DType.F32, 320)]
    run = Run(forward)
    ((_, (_, of_forward, *addresses)),) = run.calls
    assert addresses[3:] == run.results

    result, logsumexp = at(Stored(DType.BF16, 2 * 4 * 40 * 64), (2, 4, 40, 64)), Stored(DType.F32, 4 * 320)

    def change(
        by=attention_by_library.attention_gradient, query=query, sums=((2, 4, 40),), mask=None, lengths=None, **others
    ):
        of_mask, scale = others.get("of_mask", False), others.get("scale", 0.125)
        operands = query, keys, keys, result, query, at(logsumexp, *sums), mask, lengths, True, of_mask, scale
        return call_of(by, Heads(), *operands).program(FACTS, may_refuse=True)

    for by, nondeterministic in (
        (attention_by_library.attention_gradient, False),
        (attention_by_library.attention_gradient_in_any_order, True),
    ):
        program = change(by)
        run = Run(program)
        ((_, (dtype, params, *addresses)),) = run.calls
        assert (dtype, params.nondeterministic, params.attention) == (DType.BF16, nondeterministic, of_forward)
        assert params.result == params.gradient == params.attention.query
        start, of_result, of_sums = run.arguments[0], run.arguments[3], run.arguments[5]
        assert addresses == [start, *[start + 128] * 2, of_result, start, of_sums, *run.results]
        assert [each.length for each in program.result] == [2 * 4 * 40 * 64, *[2 * 2 * 40 * 64] * 2]
        assert not run.launches
    # Libraries read the logarithms one behind the other.
    run = Run(change(sums=((2, 4, 40), (160, 1, 4))))
    assert len(run.launches) == 1
    assert run.calls[0].arguments[7] not in (0, run.arguments[5])
    for refused in (
        {"mask": at(x, (2, 4, 40, 40))},
        {"mask": at(x, (2, 4, 40, 40)), "of_mask": True},
        {"lengths": at(Stored(DType.I32, 1), (1,))},
        {"scale": -0.125},
        {"query": at(x, (2, 4, 40, 64), None, 1)},
    ):
        assert change(**refused) is None, refused


def test_channels_of_fused_convolutions_are_whole_accesses():
    """Zeros are behind those of the input and of the kernel."""
    dims = []

    class Noting(Fused):
        def fused_convolution(self, dtype, params, epilogue, *addresses):
            dims.append((params.input_dims, params.kernel_dims, params.padding))
            return super().fused_convolution(dtype, params, epilogue, *addresses)

    x = Stored(DType.F16, 1 << 20)
    params = ParamsConv2D(b_size=2, i_h=8, i_w=8, c_in=3, c_out=16, k_h=3, k_w=3, padding=1, stride=2, dilation=1)
    operands = at(x, (2, 3, 8, 8)), at(x, (16, 3, 3, 3)), None, at(Stored(DType.F32, 16), (16,)), None, None
    built(conv_epilogue.by_fused_library, Noting(), *operands, params.general)
    assert dims == [((2, 8, 8, 8), (16, 8, 3, 3), (1, 1))]


def test_a_plan_of_what_a_library_may_refuse_is_for_its_numbers():
    """A plan is found before anybody asks whether the library takes the scale of this call."""
    assert "scaled_dot_product_attention" not in Storage.numbers
    assert Storage.numbers["powf"] == 1


class Fused:
    """A library of convolutions with epilogues, but for activations."""

    def fused_convolution(self, dtype, params, epilogue, *addresses):
        return None if epilogue.activation else LibraryCall(self.fused_convolution, addresses)


@pytest.mark.parametrize(
    ("activation", "steps"),
    [(None, []), ("relu", ["relu_f16_contiguous"]), ("hardswish", ["hardswish_f32_contiguous"])],
)
def test_what_a_library_lacks_of_an_epilogue_follows_the_convolution(activation, steps):
    x = Stored(DType.F16, 1 << 20)
    params = ParamsConv2D(b_size=2, i_h=8, i_w=8, c_in=8, c_out=16, k_h=3, k_w=3, padding=0, stride=1, dilation=1)
    params = params.general._replace(channels_last=True)
    image, kernel, residual = (
        Operand(x, layout_of(dims, channels_last=True))
        for dims in (params.input_dims, params.kernel_dims, params.out_dims)
    )
    program = built(conv_epilogue.by_fused_library, Fused(), image, kernel, None, None, residual, activation, params)
    result = kernels(program)
    assert [name for name in result if "to_dtype" not in name and "_f16_f32" not in name][: len(steps)] == steps, result
