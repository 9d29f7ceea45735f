"""The backend object: modules and launches, memory with a reserve, operations that are tried again, and a few ops."""

from __future__ import annotations

import ctypes
import struct
import time

import numpy as np
import pytest

pytest.importorskip("hip")

from hip import hip
from tallow import Tensor
from tallow.rocm_backend.hip import DeviceTensor, HipBackend, HipClosed, HipDevice, HipError, HipMemory, HipStatus
from tallow.runtime.base.error import InvalidArgument, OutOfMemory, ShapeMismatch, TallowError

SOURCE = """
struct Sum { unsigned *values; unsigned count; unsigned amount; };

extern "C" __global__ void add(Sum sum) {
    if (threadIdx.x < sum.count)
        sum.values[threadIdx.x] += sum.amount;
}
"""
SUM = struct.Struct("<QII")
MIB = 1 << 20


@pytest.fixture
def backend(rocm):
    with HipBackend() as backend:
        yield backend


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    return {}


@pytest.fixture
def image(rocm, images) -> bytes:
    if not images:
        images["add"] = rocm.driver.compile(SOURCE, "add", {})
    return images["add"]


def test_a_backend_is_the_device_of_tensors(rocm, backend):
    assert backend.device == HipDevice(0)
    assert backend.stream.address == rocm.driver.stream
    assert repr(backend) == "<HipBackend on rocm:0>"
    with pytest.raises(InvalidArgument, match="ordinal 1000 is out of range"):
        HipBackend(1000)


def test_a_module_is_loaded_once_and_its_kernels_are_launched(rocm, image):
    with HipBackend() as backend:
        module = backend.load_module("test", image)
        assert backend.load_module("test", image) is module
        with pytest.raises(InvalidArgument, match="load_module: another module is called 'test'; use another name"):
            backend.load_module("test", image + bytes(1))
        kernel = backend.get_kernel("test", "add", SUM.size)
        assert kernel is module.kernel("add", SUM.size)
        buffer = backend.buffer(256)
        buffer.fill(0, stream=backend.stream)
        with backend.event() as start, backend.event() as stop:
            start.record(backend.stream)
            backend.launch(kernel, (1, 1, 1), (64, 1, 1), SUM.pack(buffer.address, 64, 3))
            assert start.elapsed_ms(stop.record(backend.stream)) >= 0
        backend.synchronize()
        assert set(np.frombuffer(buffer.to_bytes(), np.uint32)) == {3}
        with pytest.raises(InvalidArgument, match="get_kernel: no module is called 'tset'; load it with load_module"):
            backend.get_kernel("tset", "add", SUM.size)
        with pytest.raises(InvalidArgument, match="threads"):
            backend.launch(kernel, (1, 1, 1), (2048, 1, 1), SUM.pack(buffer.address, 64, 3))
    assert module.closed
    assert backend.stream.closed
    backend.close()
    for use in (lambda: backend.load_module("test", image), lambda: backend.get_kernel("test", "add", 16)):
        with pytest.raises(HipClosed, match="HipBackend"):
            use()
    with pytest.raises(HipClosed, match="HipBackend"), backend:
        pass
    # The stream is the device's, which works on.
    assert Tensor([1.0], device="rocm").add(1.0).tolist() == [2.0]


def test_a_module_is_loaded_from_a_file(backend, image, tmp_path):
    path = tmp_path / "add.hsaco"
    path.write_bytes(image)
    module = backend.load_module(path)
    assert backend.load_module(str(path)) is module
    assert backend.get_kernel("add.hsaco", "add", SUM.size)
    with pytest.raises(OSError, match="missing"):
        backend.load_module(tmp_path / "missing.hsaco")


def test_a_kernel_is_launched_with_a_value_for_each_parameter(rocm, backend):
    body = "if (threadIdx.x < n) y[threadIdx.x] = value;"
    source = f'extern "C" __global__ void fill(float* y, float value, unsigned n) {{ {body} }}'
    backend.load_module("fill", rocm.driver.compile(source, "fill", {}))
    kernel = backend.get_kernel("fill", "fill")
    x = DeviceTensor.empty((64,))
    backend.launch(kernel, (1, 1, 1), (64, 1, 1), [x, ctypes.c_float(2.5), ctypes.c_uint32(60)])
    np.testing.assert_array_equal(x.to_host(), np.repeat(np.float32([2.5, 0]), [60, 4]))
    buffer = backend.buffer(256)
    backend.copy_to_device(buffer, np.zeros(64, np.float32))
    backend.launch(kernel, (1, 1, 1), (64, 1, 1), (buffer, ctypes.c_float(-1), ctypes.c_uint32(64)))
    actual = np.empty(64, np.float32)
    backend.copy_from_device(buffer, actual)
    assert set(actual) == {-1}
    with pytest.raises(InvalidArgument, match=r"launch: 2\.5 has no type of C; give numbers of ctypes"):
        backend.launch(kernel, (1, 1, 1), (64, 1, 1), [x, 2.5, 60])
    with pytest.raises(InvalidArgument, match=r"fill: .* give its parameters one by one"):
        backend.launch(kernel, (1, 1, 1), (64, 1, 1), bytes(16))


def test_a_kernel_of_one_struct_takes_no_parameters(backend, image):
    kernel = backend.load_module("test", image).kernel("add", SUM.size)
    with pytest.raises(InvalidArgument, match="its arguments are 16 bytes, not 1 parameters"):
        backend.launch(kernel, (1, 1, 1), (64, 1, 1), [ctypes.c_uint32(1)])


def test_a_module_that_fails_to_load_is_tried_again(backend, image):
    with pytest.raises((InvalidArgument, HipError), match="test"):
        backend.load_module("test", image[:-100])
    assert backend.load_module("test", image).kernel("add", SUM.size)


def test_a_backend_closes_everything_after_an_error(rocm, image, monkeypatch):
    backend = HipBackend()
    module = backend.load_module("test", image)
    failed = (hip.hipError_t.hipErrorLaunchFailure,)
    with monkeypatch.context() as patch:
        patch.setattr(hip, "hipStreamSynchronize", lambda handle: failed)
        with pytest.raises(HipError, match="hipErrorLaunchFailure"):
            backend.close()
    assert module.closed
    assert backend.stream.closed
    backend.close()


def test_limits_are_the_devices(backend):
    actual, limits = HipDevice(0).properties, backend.limits
    assert limits.threads == actual.max_threads_per_block
    assert limits.block == actual.max_threads_dim
    assert limits.grid == actual.max_grid
    assert limits.shared_bytes == actual.shared_memory_per_block


def test_launches_within_the_limits_are_valid(backend):
    limits = backend.limits
    backend.validate_launch_config((1, 1, 1), (limits.threads, 1, 1), limits.shared_bytes)
    backend.validate_launch_config((1, limits.grid[1], limits.grid[2]), (1, 1, 1))
    backend.validate_launch_config([np.int64(2), 1, 1], [64, 1, 1])


@pytest.mark.parametrize(
    ("grid", "block", "shared_bytes", "reason"),
    [
        ((1, 1, 1), (2048, 1, 1), 0, r"blocks \(2048, 1, 1\) have 2048 threads; at most 1024 are possible"),
        ((1, 1, 1), (64, 64, 1), 0, "have 4096 threads"),
        ((1, 1, 1), (0, 1, 1), 0, "is empty; launch nothing"),
        ((1, -1, 1), (1, 1, 1), 0, "is empty"),
        ((1, 1 << 31, 1), (1, 1, 1), 0, "is too large"),
        (((1 << 31) - 1, 1, 1), (64, 1, 1), 0, r"has more than 4294967295 threads in a dim"),
        ((1, 1, 1), (1, 1, 1), -1, "-1 bytes of shared memory"),
        ((1, 1, 1), (1, 1, 1), 1 << 30, r"1073741824 bytes of shared memory per block; at most \d+"),
        ((1, 1), (1, 1, 1), 0, "grid must be a sequence of 3 integers"),
        ((1, 1, 1), (1.5, 1, 1), 0, "block must be a sequence of 3 integers"),
        ((1, 1, 1), (1, 1, 1), "none", "shared_bytes must be an integer"),
    ],
)
def test_launches_beyond_the_limits_are_refused(backend, grid, block, shared_bytes, reason):
    with pytest.raises(InvalidArgument, match=f"HipBackend.validate_launch_config: .*{reason}"):
        backend.validate_launch_config(grid, block, shared_bytes)


def test_blocks_are_limited_in_each_dim(backend, monkeypatch):
    limits = backend.limits._replace(block=(1024, 1024, 64))
    monkeypatch.setattr(type(backend), "limits", limits)
    backend.validate_launch_config((1, 1, 1), (1, 1, 64))
    with pytest.raises(InvalidArgument, match=r"blocks \(1, 1, 65\) are too large; at most \(1024, 1024, 64\) threads"):
        backend.validate_launch_config((1, 1, 1), (1, 1, 65))


@pytest.fixture
def free(monkeypatch):
    """What the device says is free, one figure after another; the last one stays."""
    figures = [1000 * MIB]

    def memory(device):
        return HipMemory(figures.pop(0) if len(figures) > 1 else figures[0], 4000 * MIB)

    monkeypatch.setattr(HipDevice, "memory", memory)
    return figures


def test_an_allocation_may_take_70_percent_of_the_free_memory(backend, free):
    assert backend.memory_info() == (1000 * MIB, 4000 * MIB)
    assert backend.safe_alloc_size() == 700 * MIB
    assert backend.can_allocate(700 * MIB)
    assert not backend.can_allocate(700 * MIB + 1)
    with pytest.raises(InvalidArgument, match="can_allocate: nbytes must be 0 or more, not -1"):
        backend.can_allocate(-1)


def test_a_safe_allocation(backend, free, host):
    free[:] = [1 * MIB]
    with backend.allocate_buffer_safe(MIB // 2) as buffer:
        assert (buffer.nbytes, buffer.is_view) == (MIB // 2, False)
    reason = r"rocm:0: no memory for 734004 bytes \(there are 734003, at most 70 % of the free memory at once\); drop"
    with pytest.raises(OutOfMemory, match=reason) as raised:
        backend.allocate_buffer_safe(734004)
    assert (raised.value.device, raised.value.nbytes) == ("rocm:0", 734004)
    host.fail("hipMalloc")
    with pytest.raises(OutOfMemory, match="no memory for 8 bytes"):
        backend.allocate_buffer_safe(8)


def test_a_safe_allocation_takes_what_tensors_no_longer_need(rocm, backend, free):
    del [rocm.empty(Tensor([1.0]).dtype, 100)][:]
    assert rocm.allocator.statistics().cached
    free[:] = [0, 1000 * MIB]
    backend.allocate_buffer_safe(64).close()
    assert not rocm.allocator.statistics().cached


@pytest.mark.parametrize(("free_now", "most"), [(1000 * MIB, 900 * MIB), (500 * MIB, 400 * MIB), (50 * MIB, 0)])
def test_a_model_leaves_a_reserve(backend, free, free_now, most):
    free[:] = [free_now]
    backend.check_memory_for_model(most)
    with pytest.raises(
        OutOfMemory, match=f"there are {most}, with 10 % of the free memory, at least 100 MiB, in reserve"
    ):
        backend.check_memory_for_model(most + 1)


def test_the_status_says_how_the_device_is_doing(rocm, backend):
    held = DeviceTensor.empty((1 << 20,))
    status = backend.gpu_status()
    assert isinstance(status, HipStatus)
    assert (status.name, status.target) == (HipDevice(0).properties.name, rocm.driver.target)
    assert 0 < status.free <= status.total
    assert status.allocated >= held.nbytes
    assert status.cached == rocm.allocator.statistics().cached
    backend.synchronize()
    assert not backend.gpu_status().busy


@pytest.fixture
def waits(monkeypatch):
    """The seconds that were waited, and nobody waits."""
    results: list[float] = []
    monkeypatch.setattr(time, "sleep", results.append)
    return results


def failing(times: int, error: Exception):
    """An operation that fails so often, then returns how often it was called."""
    calls: list[None] = []

    def operation() -> int:
        calls.append(None)
        if len(calls) <= times:
            raise error
        return len(calls)

    return operation


RECOVERABLE = HipError("hipMemcpyAsync", "hipErrorInvalidValue", 1)


def test_an_operation_is_tried_again(backend, waits):
    assert backend.retry_operation(failing(3, RECOVERABLE)) == 4
    assert waits == [0.01, 0.02, 0.04]


def test_an_operation_that_always_fails(backend, waits):
    with pytest.raises(HipError) as raised:
        backend.retry_operation(failing(100, RECOVERABLE), 9)
    assert raised.value is RECOVERABLE
    assert waits == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


@pytest.mark.parametrize(
    "error", [HipError("hipMemcpyAsync", "hipErrorIllegalAddress", 700), InvalidArgument("op", "reason"), KeyError()]
)
def test_what_cannot_be_mended_is_not_tried_again(backend, waits, error):
    with pytest.raises(type(error)):
        backend.retry_operation(failing(1, error))
    assert not waits


def test_no_retries(backend, waits):
    with pytest.raises(HipError):
        backend.retry_operation(failing(1, RECOVERABLE), 0)
    with pytest.raises(InvalidArgument, match="retries must be 0 or more, not -1"):
        backend.retry_operation(failing(1, RECOVERABLE), -1)
    assert not waits


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (1023,), (33, 65), (2, 3, 4, 5)])
def test_adding_in_place(rocm, backend, shape):
    left, right = normal(*shape), normal(*shape[::-1]).reshape(shape)
    x, y = DeviceTensor.from_host(left), DeviceTensor.from_host(right)
    allocated = rocm.allocator.statistics().allocated
    address = x.address
    backend.add_inplace(x, y)
    assert rocm.allocator.statistics().allocated == allocated
    assert x.address == address
    np.testing.assert_array_equal(x.to_host(), left + right)
    np.testing.assert_array_equal(y.to_host(), right)
    backend.add_inplace(x, x)
    np.testing.assert_array_equal(x.to_host(), 2 * (left + right))


@pytest.mark.parametrize("distance", [-3, 0, 3, 64])
@pytest.mark.parametrize("start", [68, 69])
def test_adding_what_shares_memory(backend, distance, start):
    """Wherever operands lie in one pool, aligned or not."""
    values = normal(1000)
    pool = backend.buffer(values.nbytes)
    pool.copy_from_host(values)
    x = DeviceTensor.from_pool(pool, 4 * start, (500,))
    backend.add_inplace(x, DeviceTensor.from_pool(pool, 4 * (start + distance), (500,)))
    expected = values.copy()
    expected[start : start + 500] += values[start + distance : start + distance + 500]
    np.testing.assert_array_equal(np.frombuffer(pool.to_bytes(stream=backend.stream), np.float32), expected)


@pytest.mark.parametrize("factor", [0.5, -3, 0.0, float("inf"), np.float32(0.1)])
def test_scaling_in_place(backend, factor):
    values = np.array([0.0, -0.0, 1.0, -2.5, np.inf, np.nan, 3e38], np.float32)
    x = DeviceTensor.from_host(values)
    backend.scale_inplace(x, factor)
    with np.errstate(all="ignore"):
        expected = values * np.float32(factor)
    np.testing.assert_array_equal(x.to_host(), expected)
    np.testing.assert_array_equal(np.signbit(x.to_host())[:5], np.signbit(expected)[:5])


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_a_bias_is_added_to_each_row(backend, shape):
    rows, bias = normal(300, 5), normal(*shape)
    x = DeviceTensor.from_host(rows)
    assert backend.add_row_bias(x, DeviceTensor.from_host(bias)) is None
    np.testing.assert_array_equal(x.to_host(), rows + bias)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", [(40,), (3, 40), (2, 3, 200), (0, 8)])
def test_layernorm(backend, shape, with_bias):
    rows, weight, bias = normal(*shape) * 3 + 1, normal(shape[-1]), normal(1, shape[-1])[0]
    inputs = [DeviceTensor.from_host(array) for array in ((rows, weight, bias) if with_bias else (rows, weight))]
    result = backend.layernorm(*inputs, eps=0.01).to_host()
    wide = rows.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 0.01) * weight
    np.testing.assert_allclose(result, expected + bias * with_bias, rtol=1e-5, atol=1e-5)


def test_mlp_swiglu(backend):
    x, gate, up, down = normal(6, 32), normal(48, 32), normal(32, 48).T.copy(), normal(20, 48)
    result = backend.mlp_swiglu(*(DeviceTensor.from_host(array) for array in (x, gate, up, down))).to_host()
    wide = x.astype(np.float64)
    gated = wide @ gate.T
    expected = (gated / (1 + np.exp(-gated)) * (wide @ up.T)) @ down.T
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        ("add_inplace", [(2, 3), (3,)]),
        ("add_row_bias", [(2, 3), (2,)]),
        ("add_row_bias", [(2, 3), (2, 3)]),
        ("add_row_bias", [(3,), (3,)]),
        ("layernorm", [(2, 3), (2,)]),
        ("layernorm", [(2, 3), (3,), (1, 3)]),
        ("layernorm", [(), ()]),
        ("mlp_swiglu", [(2, 3), (4, 3), (4, 3), (4, 5)]),
        ("mlp_swiglu", [(2, 3), (4, 3), (5, 3), (5, 4)]),
        ("mlp_swiglu", [(3,), (4, 3), (4, 3), (5, 4)]),
    ],
)
def test_shapes_that_do_not_fit(backend, call, shapes):
    with pytest.raises(ShapeMismatch, match=f"HipBackend.{call}: shapes"):
        getattr(backend, call)(*map(DeviceTensor.empty, shapes))


@pytest.mark.parametrize("call", ["add_inplace", "scale_inplace", "add_row_bias", "layernorm", "mlp_swiglu"])
def test_what_is_no_device_tensor(backend, call):
    x = DeviceTensor.empty((2, 2))
    operands = 4 if call == "mlp_swiglu" else 2
    with pytest.raises(
        InvalidArgument, match=rf"(?s)HipBackend.{call}: .*(DeviceTensor; make one|must be a Python number)"
    ):
        getattr(backend, call)(*[x] * (operands - 1), np.ones((2, 2), np.float32))
    with pytest.raises(TallowError):
        getattr(backend, call)(*[None] * operands)
