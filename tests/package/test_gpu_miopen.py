"""Convolution and pooling by MIOpen: what is passed to it, what comes out, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

pytest.importorskip("hip")

from tallow.dtype import DType
from tallow.rocm_backend.miopen import Miopen
from tallow.runtime.backends.gpu_backend.driver.error import Closed, LibraryError
from tallow.runtime.backends.gpu_backend.libraries.library import ConvolutionKind
from tallow.runtime.backends.rocm_backend.libraries import miopen
from tallow.runtime.base.error import OutOfMemory
from tallow.runtime.core.conv import ParamsConv2D

from .library_calls import run

DTYPES = [DType.BF16, DType.F16, DType.F32]
KINDS = ("tensor descriptor", "convolution descriptor", "pooling descriptor")


@pytest.fixture
def images(rocm):
    """MIOpen as a device has it, with nothing found yet."""
    images = Miopen.open(rocm.driver, rocm.allocator)
    if images is None:
        pytest.skip("no MIOpen")
    yield images
    images.close()


@pytest.fixture(autouse=True)
def descriptors_are_destroyed(host):
    before = [host.live(kind) for kind in (*KINDS, "miopen handle")]
    yield
    assert [host.live(kind) for kind in (*KINDS, "miopen handle")] == before


def random(dtype: DType, *shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype.numpy)


def operand_dims(kind: ConvolutionKind, params: ParamsConv2D) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of what a call is given, in its order."""
    return {
        ConvolutionKind.FORWARD: (params.input_dims, params.kernel_dims),
        ConvolutionKind.INPUT: (params.out_dims, params.kernel_dims),
        ConvolutionKind.WEIGHT: (params.input_dims, params.out_dims),
    }[kind]


def expected(kind: ConvolutionKind, first: np.ndarray, second: np.ndarray, params: ParamsConv2D) -> np.ndarray:
    pad, (down, right) = params.padding, params.out_dims[2:]
    padded = [*params.input_dims[:2], *(size + 2 * pad for size in params.input_dims[2:])]
    x, inside = np.zeros(padded), np.s_[:, :, pad : padded[2] - pad, pad : padded[3] - pad]
    if kind is not ConvolutionKind.INPUT:
        x[inside] = first
    y, w = np.zeros(params.out_dims), np.zeros(params.kernel_dims)
    for row, column in itertools.product(range(params.k_h), range(params.k_w)):
        rows, columns = (
            slice(at * params.dilation, at * params.dilation + (count - 1) * params.stride + 1, params.stride)
            for at, count in ((row, down), (column, right))
        )
        if kind is ConvolutionKind.FORWARD:
            y += np.einsum("bchw,oc->bohw", x[:, :, rows, columns], second[:, :, row, column])
        elif kind is ConvolutionKind.INPUT:
            x[:, :, rows, columns] += np.einsum("bohw,oc->bchw", first, second[:, :, row, column])
        else:
            w[:, :, row, column] = np.einsum("bohw,bchw->oc", second, x[:, :, rows, columns])
    return {ConvolutionKind.FORWARD: y, ConvolutionKind.INPUT: x[inside], ConvolutionKind.WEIGHT: w}[kind]


FORWARD = ConvolutionKind.FORWARD


def convolve(
    rocm, images, dtype: DType, params: ParamsConv2D, kind: ConvolutionKind = FORWARD
) -> np.ndarray | None:  # fmt: skip
    """The result, found right; None where MIOpen refused."""
    operands = [random(dtype, *dims) for dims in operand_dims(kind, params)]
    storages = list(map(rocm.storage, operands))
    reference = expected(kind, *[each.astype(float) for each in operands], params)
    result = rocm.empty(dtype, reference.size)
    addresses = [each.memory.address for each in (*storages, result)]
    if not run(images.convolution(kind, dtype, params.general, *addresses)):
        return None
    numbers = result.to_numpy().astype(float).reshape(reference.shape)
    assert (numbers == reference.astype(dtype.numpy).astype(float)).all()
    return numbers


PARAMS = ParamsConv2D(
    b_size=2, i_h=9, i_w=11, k_h=3, k_w=2, c_out=4, c_in=3, padding=1, stride=2, dilation=2
)  # fmt: skip


@pytest.mark.parametrize("kind", miopen._NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
def test_a_convolution(rocm, host, images, dtype, kind):
    host.take_log()
    assert convolve(rocm, images, dtype, PARAMS, kind) is not None
    find, done = (call for call in host.take_log() if "Convolution" in call["call"])
    name = miopen._NAMES[kind]
    assert (find["call"], done["call"]) == (f"miopenFindConvolution{name}Algorithm", f"miopenConvolution{name}")
    for call in (find, done):
        assert {call["x"], call["w"], call["y"]} == {dtype.value}
        assert call["x_dims"] == [2, 3, 9, 11]
        assert call["x_strides"] == [297, 99, 11, 1]
        assert call["w_dims"] == [4, 3, 3, 2]
        assert call["y_dims"] == [2, 4, 4, 6]
        assert (call["pad"], call["stride"], call["dilation"]) == ([1, 1], [2, 2], [2, 2])
        assert (call["groups"], call["deterministic"]) == (1, 1)
    assert done["workspace"] > 0


def test_an_algorithm_is_found_once_for_a_problem(rocm, host, images):
    host.take_log()
    for dtype in (DType.F32, DType.F32, DType.F16, DType.F32):
        convolve(rocm, images, dtype, PARAMS)
    calls = [call["call"] for call in host.take_log()]
    assert calls.count("miopenFindConvolutionForwardAlgorithm") == 2
    assert calls.count("miopenConvolutionForward") == 4


def test_what_leaves_the_padding_out_is_taken_only_where_there_is_none(rocm, host, images, monkeypatch):
    monkeypatch.setattr(miopen, "_PRODUCTS", frozenset())
    assert convolve(rocm, images, DType.F32, PARAMS) is None
    host.take_log()
    assert convolve(rocm, images, DType.F32, changed(PARAMS, padding=0)) is not None
    (forward,) = (call for call in host.take_log() if call["call"] == "miopenConvolutionForward")
    assert (forward["pad"], forward["algorithm"], forward["workspace"]) == ([0, 0], 1, 0)
    # Gradients meet no zeros of the padding.
    for kind in (ConvolutionKind.INPUT, ConvolutionKind.WEIGHT):
        assert convolve(rocm, images, DType.F32, PARAMS, kind) is not None


def changed(params: ParamsConv2D, **change: int) -> ParamsConv2D:
    return dataclasses.replace(params, **change)


@pytest.mark.parametrize("change", [{"b_size": 0}, {"c_in": 0}, {"c_out": 0}, {"b_size": 1 << 20, "c_out": 1 << 12}])
def test_what_miopen_cannot_count_is_left_to_the_kernels(rocm, images, host, change):
    host.take_log()
    assert not run(images.convolution(ConvolutionKind.FORWARD, DType.F32, changed(PARAMS, **change).general, 1, 1, 1))
    assert not host.take_log()


def test_what_miopen_has_no_algorithm_for_is_left_to_the_kernels(rocm, host, images):
    host.fail("miopenFindConvolutionForwardAlgorithm", 1, 6)
    assert convolve(rocm, images, DType.F32, PARAMS) is None
    host.take_log()
    assert convolve(rocm, images, DType.F32, PARAMS) is None
    assert not [call for call in host.take_log() if call["call"].startswith("miopen")]
    assert convolve(rocm, images, DType.F16, PARAMS) is not None


def test_a_workspace_that_there_is_no_room_for(rocm, host, images, monkeypatch):
    def fails(_: object, nbytes: int) -> None:
        raise OutOfMemory("rocm:0", nbytes)

    with monkeypatch.context() as patch:
        patch.setattr(miopen, "Slice", fails)
        assert not run(images.convolution(ConvolutionKind.FORWARD, DType.F32, PARAMS.general, 1, 1, 1))
    assert convolve(rocm, images, DType.F32, PARAMS) is not None


@pytest.mark.parametrize(
    "call",
    [
        "miopenCreateTensorDescriptor",
        "miopenSet4dTensorDescriptor",
        "miopenCreateConvolutionDescriptor",
        "miopenInitConvolutionDescriptor",
        "miopenSetConvolutionAttribute",
        "miopenConvolutionForwardGetWorkSpaceSize",
        "miopenFindConvolutionForwardAlgorithm",
        "miopenConvolutionForward",
    ],
)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_call_that_fails_says_so_and_the_next_one_works(rocm, host, images, call, nth):
    if nth == 2 and call.startswith(
        ("miopenConvolutionForward", "miopenFind", "miopenInit", "miopenSetConv", "miopenCreateConv")
    ):
        convolve(rocm, images, DType.F32, PARAMS)
        nth = 1
        if call in ("miopenConvolutionForwardGetWorkSpaceSize", "miopenFindConvolutionForwardAlgorithm"):
            return
    host.fail(call, nth)
    with pytest.raises(LibraryError, match=f"{call}: miopenStatusInternalError; tallow needs a MIOpen 3"):
        convolve(rocm, images, DType.F32, PARAMS)
    assert convolve(rocm, images, DType.F32, PARAMS) is not None


@pytest.mark.parametrize("call", ["miopenDestroyTensorDescriptor", "miopenDestroyConvolutionDescriptor"])
def test_a_descriptor_that_is_not_taken_back_is_destroyed_later(rocm, host, images, call):
    before = [host.live(kind) for kind in KINDS]
    host.fail(call)
    assert convolve(rocm, images, DType.F32, PARAMS) is not None
    assert [host.live(kind) for kind in KINDS] == before
    host.fail(call, -1)
    assert convolve(rocm, images, DType.F32, PARAMS) is not None
    assert [host.live(kind) for kind in KINDS] != before
    with pytest.raises(LibraryError, match=call):
        convolve(rocm, images, DType.F32, PARAMS)
    host.fail(None)
    images.close()
    assert [host.live(kind) for kind in KINDS] == before


@pytest.mark.parametrize(("kernel_size", "stride"), [((2, 3), (1, 2)), ((1, 1), (1, 1)), ((5, 7), (3, 3))])
def test_means_of_windows(rocm, host, images, kernel_size, stride):
    x = random(DType.F32, 2, 3, 9, 11)
    source = rocm.storage(x)
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel_size, (2, 3))[:, :, :: stride[0], :: stride[1]]
    means = windows.astype(float).mean((4, 5))
    result = rocm.empty(DType.F32, means.size)
    host.take_log()
    addresses = (source.memory.address, result.memory.address)
    assert run(images.avg_pool2d(DType.F32, x.shape, means.shape, kernel_size, stride, *addresses))
    (call,) = (call for call in host.take_log() if call["call"] == "miopenPoolingForward")
    assert (call["x_dims"], call["y_dims"], call["mode"]) == ([2, 3, 9, 11], list(means.shape), 1)
    assert (call["window"], call["stride"], call["pad"]) == (list(kernel_size), list(stride), [0, 0])
    assert np.allclose(result.to_numpy().reshape(means.shape), means, rtol=1e-6, atol=1e-6)


def test_means_that_miopen_does_not_take(rocm, host, images):
    host.take_log()
    for dtype in (DType.BF16, DType.F16):
        assert not run(images.avg_pool2d(dtype, (1, 1, 4, 4), (1, 1, 2, 2), (2, 2), (2, 2), 1, 1))
    assert not run(images.avg_pool2d(DType.F32, (0, 1, 4, 4), (0, 1, 2, 2), (2, 2), (2, 2), 1, 1))
    assert not host.take_log()


def test_pooling_that_fails_says_so(rocm, host, images):
    source, result = rocm.storage(random(DType.F32, 1, 1, 4, 4)), rocm.empty(DType.F32, 4)
    arguments = (DType.F32, (1, 1, 4, 4), (1, 1, 2, 2), (2, 2), (2, 2), source.memory.address, result.memory.address)
    host.fail("miopenPoolingForward")
    with pytest.raises(LibraryError, match="miopenPoolingForward"):
        run(images.avg_pool2d(*arguments))
    host.fail("miopenPoolingForward", 1, 8)
    assert not run(images.avg_pool2d(*arguments))


def test_the_handle_has_the_devices_stream_and_is_destroyed(rocm, host):
    handles = host.live("miopen handle")
    host.take_log()
    images = Miopen.open(rocm.driver, rocm.allocator)
    (created,) = host.take_log()
    assert created["stream"] == rocm.driver.stream
    images.close()
    images.close()
    assert host.live("miopen handle") == handles
    with pytest.raises(Closed, match="Miopen on rocm:0"):
        run(images.convolution(ConvolutionKind.FORWARD, DType.F32, PARAMS.general, 1, 1, 1))


def test_a_handle_that_is_not_taken_back_is_destroyed_later(rocm, host):
    handles = host.live("miopen handle")
    images = Miopen.open(rocm.driver, rocm.allocator)
    host.fail("miopenDestroy")
    with pytest.raises(LibraryError, match="miopenDestroy: miopenStatusInternalError"):
        images.close()
    assert (images.closed, host.live("miopen handle")) == (False, handles + 1)
    images.close()
    assert (images.closed, host.live("miopen handle")) == (True, handles)


def test_a_handle_that_fails(rocm, host):
    host.fail("miopenCreate")
    with pytest.raises(LibraryError, match="miopenCreateWithStream"):
        Miopen.open(rocm.driver, rocm.allocator)


def test_without_the_library_there_is_none(rocm, monkeypatch):
    assert miopen.available()
    with monkeypatch.context() as patch:
        patch.setitem(miopen.FUNCTIONS, "miopenOfTheFuture", (None,))
        assert not miopen.available()
    monkeypatch.setattr(miopen, "get_library_path", lambda name: b"/nowhere/libMIOpen.so")
    monkeypatch.setattr(miopen.ctypes, "CDLL", raise_os_error)
    assert not miopen.available()
    assert Miopen.open(rocm.driver, rocm.allocator) is None


def raise_os_error(path: str) -> None:
    raise OSError(f"{path}: cannot open shared object file")
