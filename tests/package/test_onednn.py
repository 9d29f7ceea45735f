"""Matrix products and convolutions by oneDNN: of small integers, exactly as NumPy makes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import tallow as tl
from tallow.libraries.onednn import FUNCTIONS
from tallow.runtime.backends.cpu_backend.device import CpuDevice
from tallow.runtime.backends.cpu_backend.kernels import HostKernels
from tallow.runtime.backends.cpu_backend.onednn import Onednn
from tallow.runtime.helpers.c_library import load

from .test_host_products import check, integers

ONEDNN = Onednn.open()
needs_onednn = pytest.mark.skipif(ONEDNN is None, reason="oneDNN is missing; pip install onednn-cpu-gomp")


def without_onednn(monkeypatch: pytest.MonkeyPatch, call: Callable[[], tl.Tensor]) -> np.ndarray:
    with monkeypatch.context() as context:
        context.setattr(CpuDevice, "onednn", None)
        tl.Device.cpu().inner.plans.clear()
        result = call().to_dtype(tl.DType.F32).numpy()
    tl.Device.cpu().inner.plans.clear()
    return result


@pytest.fixture
def threads() -> Iterator[None]:
    before = tl.get_threads()
    yield
    tl.set_threads(before)


def test_a_library_without_the_functions_is_none() -> None:
    assert load(["no such library"], FUNCTIONS) is None
    assert load(["libc.so.6"], FUNCTIONS) is None


@needs_onednn
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [tl.DType.BF16, tl.DType.F16])
def test_products(dtype: tl.DType) -> None:
    lhs, rhs, bias = integers(3, 70, 129), integers(3, 129, 65), integers(65)
    x, y, shift = (each.to_dtype(dtype) for each in (lhs, rhs, bias))
    for count in (1, 3):
        tl.set_threads(count)
        for _ in range(3):
            check(x @ y, lhs @ rhs)
        check(x @ y.transpose(1, 2).contiguous().transpose(1, 2), lhs @ rhs)
        check(x.transpose(1, 2).contiguous().transpose(1, 2)[:, 3:] @ y, lhs[:, 3:] @ rhs)
        check(x[:1].broadcast_as(3, 70, 129) @ y, lhs[:1].broadcast_as(3, 70, 129) @ rhs)
        expected = lhs[0] @ rhs[0] + bias.broadcast_as(70, 65)
        check(x[0].linear(y[0].t(), shift), expected)
        check(
            x[0].linear(y[0].t().contiguous(), shift[1:2].broadcast_as(65)),
            lhs[0] @ rhs[0] + bias[1:2].broadcast_as(70, 65),
        )


@needs_onednn
@pytest.mark.parametrize("steps", [{}, {"padding": 1}, {"padding": 2, "stride": 2}, {"stride": 3, "dilation": 2}])
@pytest.mark.parametrize("dtype", [tl.DType.BF16, tl.DType.F16, tl.DType.F32])
def test_convolutions(steps: dict[str, int], dtype: tl.DType) -> None:
    image, kernel = integers(2, 20, 27, 30), integers(18, 20, 3, 3)
    x, w = image.to_dtype(dtype), kernel.to_dtype(dtype)
    check(x.conv2d(w, **steps), image.conv2d(kernel, **steps))
    transposed = x.transpose(2, 3).contiguous().transpose(2, 3)
    check(transposed.conv2d(w, **steps), image.conv2d(kernel, **steps))
    back, weights = w.transpose(0, 1), kernel.transpose(0, 1)
    check(x[:, :, :9].conv_transpose2d(back, **steps), image[:, :, :9].conv_transpose2d(weights, **steps))
    lines, taps = image.reshape(2, 20, 810), kernel.reshape(18, 20, 9)
    check(lines.to_dtype(dtype).conv1d(taps.to_dtype(dtype), **steps), lines.conv1d(taps, **steps))


@needs_onednn
def test_the_zeros_of_the_padding_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = (integers(*shape).to_dtype(tl.DType.F32) for shape in ((1, 20, 30, 30), (16, 20, 3, 3)))
    for special in (np.inf, np.nan):
        array = w.numpy()
        array[3, 4, 0, 0] = special
        kernel = tl.Tensor(array)
        got = x.conv2d(kernel, padding=1).numpy()
        assert np.isnan(got[:, 3, 0]).all()
        expected = without_onednn(monkeypatch, lambda kernel=kernel: x.conv2d(kernel, padding=1))
        np.testing.assert_array_equal(got, expected)


# The shapes of an image and a kernel, and the steps: a window, groups, depthwise, products of matrices and of one.
FUSED = [
    ((2, 32, 20, 22), (48, 32, 3, 3), {"padding": 1}),
    ((2, 64, 20, 20), (64, 16, 3, 3), {"padding": 1, "groups": 4}),
    ((2, 48, 20, 20), (48, 1, 3, 3), {"padding": 1, "groups": 48}),
    ((2, 64, 28, 28), (48, 64, 1, 1), {}),
    ((64, 64, 4, 1), (96, 64, 4, 1), {}),
]


@needs_onednn
@pytest.mark.parametrize("activation", [None, "relu", "hardswish"])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize(("shape", "taps", "steps"), FUSED)
def test_epilogues_are_of_unrounded_sums(
    shape: tuple[int, ...],
    taps: tuple[int, ...],
    steps: dict[str, int],
    last: bool,
    activation: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, kernel = (integers(*each).to_dtype(tl.DType.BF16) for each in (shape, taps))
    scale, bias = integers(taps[0]).float() / 4, integers(taps[0]).float()
    if last:
        x = x.contiguous(memory_format="channels_last")
    with tl.profile() as plain:
        residual = integers(*x.conv2d(kernel, **steps).shape).to_dtype(tl.DType.BF16)
    for other in (None, residual, residual.contiguous(memory_format="channels_last"), residual[:1, :, :1]):
        call = partial(x.conv2d, kernel, **steps, scale=scale, bias=bias, activation=activation)
        if other is not None:
            call.keywords["residual"] = other.broadcast_as(residual.shape)
        with tl.profile() as profile:
            got = call()
        # With an epilogue too, oneDNN reads an image of bf16 where the processor multiplies these.
        if any("Onednn" in launch.name for launch in plain.launches):
            names = [launch.name for launch in profile.launches]
            assert any("Onednn" in name for name in names)
            assert "span/map_operands to_dtype_f32_bf16" not in names
        np.testing.assert_array_equal(got.float().numpy(), without_onednn(monkeypatch, call))


@needs_onednn
def test_epilogues_of_weights_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    x, array = integers(2, 20, 30, 30).to_dtype(tl.DType.BF16), integers(16, 20, 3, 3).float().numpy()
    for special in (np.inf, -np.inf, np.nan):
        array[3, 4, 0, 0] = special
        kernel = tl.Tensor(array).to_dtype(tl.DType.BF16)
        call = partial(x.conv2d, kernel, 1, bias=tl.zeros(16, dtype="bf16"), activation="relu")
        got = call().float().numpy()
        assert np.isnan(got[:, 3, 0]).all()
        np.testing.assert_array_equal(got, without_onednn(monkeypatch, call))


# Groups and channels of each, and for both dims the size, kernel, padding in front, result, stride and dilation.
GROUPED = [
    (1, (20, 16), ((27, 3, 1, 27, 1, 1), (30, 3, 1, 30, 1, 1))),
    (4, (8, 16), ((27, 3, 0, 12, 2, 2), (30, 5, 2, 15, 2, 1))),
    (48, (1, 1), ((20, 3, 1, 20, 1, 1), (33, 3, 1, 17, 2, 1))),
    # No tap lies inside for all windows, nor a window for all taps.
    (48, (1, 1), ((9, 3, 8, 21, 1, 1), (60, 3, 1, 60, 1, 1))),
]


@needs_onednn
@pytest.mark.parametrize("dtype", [tl.DType.BF16, tl.DType.F32])
@pytest.mark.parametrize(("groups", "channels", "dims"), GROUPED)
def test_groups_and_gradients(
    groups: int,
    channels: tuple[int, int],
    dims: tuple[tuple[int, ...], ...],
    dtype: tl.DType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, kernel, padding, result, stride, dilation = zip(*dims, strict=True)
    inner, outer = channels
    shape, taps = (2, groups * inner, *sizes), (groups * outer, inner, *kernel)
    params = tl.ParamsConvolution(shape, taps, result, padding, stride, dilation, groups)
    x, w, g = (integers(*each).to_dtype(dtype) for each in (shape, taps, params.out_dims))

    def convolved(method: str, first: tl.Tensor, second: tl.Tensor, shape: tuple[int, ...]) -> tl.Tensor:
        call = getattr(first._storage, method)
        return tl.Tensor.from_storage(call(first._layout, second._storage, second._layout, params), shape)

    calls = {
        "convolution": (x, w, params.out_dims),
        "convolution_gradient_input": (g, w, params.input_dims),
        "convolution_gradient_weight": (x, g, params.kernel_dims),
    }
    spoiled = {"convolution": w, "convolution_gradient_weight": g}
    for method, (first, second, shape) in calls.items():
        expected = without_onednn(monkeypatch, lambda args=(method, first, second, shape): convolved(*args))
        np.testing.assert_array_equal(convolved(method, first, second, shape).float().numpy(), expected)
        if method in spoiled:
            # At the first element, which zeros of the padding meet.
            array = second.float().numpy()
            array[0, 0, 0, 0] = np.inf
            other = tl.Tensor(array).to_dtype(dtype)
            expected = without_onednn(monkeypatch, lambda args=(method, first, other, shape): convolved(*args))
            np.testing.assert_array_equal(convolved(method, first, other, shape).float().numpy(), expected)


@needs_onednn
@pytest.mark.parametrize("channels", [20, 64])
def test_gradients_of_short_lines_and_of_sums(channels: int) -> None:
    x, w = integers(2, channels, 4).float(), integers(channels, channels, 3).float()
    xs, ws = tl.Var(x), tl.Var(w)
    # The gradient of a sum is one element, repeated.
    y = xs.conv1d(ws, padding=1)
    with tl.profile() as profile:
        gradients = y.sum().backward()
    onednn_calls = [work for call in profile.calls for work in call.launches if "Onednn" in work.name]
    assert len(onednn_calls) == 2
    padded = np.pad(x.numpy(), [(0, 0), (0, 0), (1, 1)])
    windows = np.stack([padded[:, :, tap : tap + 4] for tap in range(3)], -1)
    np.testing.assert_array_equal(gradients[ws].numpy(), np.broadcast_to(windows.sum((0, 2)), w.shape))
    inside = np.stack([w.numpy()[:, :, max(0, i - 2) : min(3, i + 2)].sum((0, 2)) for i in range(4)], -1)
    np.testing.assert_array_equal(gradients[xs].numpy(), np.broadcast_to(inside, x.shape))


@needs_onednn
def test_operands_are_copied_where_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    device = tl.Device.cpu().inner
    images, kernel, bias = (
        integers(2, 64, 24, 24).float(),
        integers(64, 64, 1, 1).float(),
        integers(64, 2).float()[:, 0],
    )
    view = images[:, :, 1:-1, 1:]

    def results() -> list[np.ndarray]:
        device.plans.clear()
        rows = images.reshape(-1, 64).linear(kernel.reshape(64, 64), bias)
        return [x.numpy() for x in (view.conv2d(kernel, stride=2), view.conv2d(kernel), rows)]

    expected = results()
    with monkeypatch.context() as context:
        context.setattr(HostKernels, "open", lambda: None)
        context.setattr(CpuDevice, "kernels", None)
        context.delitem(vars(device), "kernels", raising=False)
        got = results()
    device.plans.clear()
    for actual, wanted in zip(got, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


@needs_onednn
@pytest.mark.usefixtures("threads")
def test_the_same_bits_at_every_call() -> None:
    generator = np.random.default_rng(0)
    x, w = (tl.Tensor(generator.standard_normal(shape, np.float32)) for shape in ((1, 64, 20, 20), (32, 64, 3, 3)))
    y = x.reshape(160, 160).to_dtype(tl.DType.BF16)
    for count in (1, 2, 5):
        tl.set_threads(count)
        assert len({x.conv2d(w).numpy().tobytes() for _ in range(10)}) == 1
        assert len({(y @ y).to_dtype(tl.DType.F32).numpy().tobytes() for _ in range(10)}) == 1


def run(program: str, **environment: str) -> str:
    command = [sys.executable, "-c", f"import os, numpy as np, tallow as tl\n{program}"]
    result = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.strip()


def test_numpy_serves_without_threads() -> None:
    assert run("print(tl.Device.cpu().inner.onednn)", TALLOW_THREADS="0") == "None"


@needs_onednn
def test_threads_are_as_many_as_tallow_says() -> None:
    program = """
x = tl.Tensor(np.ones((1, 64, 40, 40), np.float32))
w = tl.Tensor(np.ones((64, 64, 3, 3), np.float32))
x.exp()
library = tl.Device.cpu().inner.onednn.library
before = library.omp_get_max_threads()
def started(): return len(os.listdir("/proc/self/task"))
first = started()
for count in (1, 3):
    tl.set_threads(count)
    x.conv2d(w)
    print(started() - first, end=" ")
print(library.omp_get_max_threads() == before)
"""
    assert run(program, TALLOW_THREADS="1") == "0 2 True"


@needs_onednn
def test_kernels_and_onednn_have_the_same_threads() -> None:
    program = """
tl.set_threads(3)
x = tl.Tensor(np.ones((1, 64, 40, 40), np.float32))
w = tl.Tensor(np.ones((64, 64, 3, 3), np.float32))
large = tl.Tensor(np.full(1 << 20, 2, np.float32))
tl.Device.cpu().inner.onednn
def started(): return len(os.listdir("/proc/self/task"))
first = started()
print((large.sqrt().numpy() == np.sqrt(np.float32(2))).all(), started() - first, end=" ")
x.conv2d(w)
print((large.relu().numpy() == 2).all(), started() - first)
"""
    assert run(program, TALLOW_THREADS="1") == "True 2 True 2"


@needs_onednn
@pytest.mark.parametrize(("environment", "count"), [({}, "2000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_threads_of_openmp_soon_sleep(environment: dict[str, str], count: str) -> None:
    program = "print(tl.Device.cpu().inner.onednn is None, os.environ.get('GOMP_SPINCOUNT'))"
    command = [sys.executable, "-c", f"import os, tallow as tl\n{program}"]
    environment = {**os.environ, "OMP_DISPLAY_ENV": "verbose", **environment}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == f"False {environment.get('GOMP_SPINCOUNT')}"
    assert f"GOMP_SPINCOUNT = '{count}'" in result.stderr


@needs_onednn
def test_a_forked_process_does_without() -> None:
    program = """
tl.set_threads(2)
x = tl.Tensor(np.ones((1, 64, 40, 40), np.float32))
w = tl.Tensor(np.ones((64, 64, 3, 3), np.float32))
first = x.conv2d(w).numpy()
child = os.fork()
if child == 0:
    same = (x.conv2d(w).numpy() == first).all() and (x.conv2d(w, padding=1).numpy()[:, :, 1:-1, 1:-1] == first).all()
    os._exit(0 if same and tl.Device.cpu().inner.onednn is None else 1)
print(os.waitpid(child, 0)[1], (x.conv2d(w).numpy() == first).all())
"""
    assert run(program) == "0 True"
