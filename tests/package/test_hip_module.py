"""Modules, kernels and launches, with kernels that are compiled for the test."""

import gc
import re
import struct
import threading
import weakref

import numpy as np
import pytest

pytest.importorskip("hip")

from hip import hip, hiprtc
from tallow.rocm_backend.hip import (
    HipBuffer,
    HipClosed,
    HipDevice,
    HipError,
    HipModule,
    HipStream,
    device_count,
)
from tallow.runtime.backends.gpu_backend.driver.error import InvalidKernel
from tallow.runtime.base.error import BackendUnavailable, DeviceMismatch, InvalidArgument

SOURCE = r"""
struct Sum { unsigned *values; unsigned count; unsigned amount; };

extern "C" __global__ void add(Sum sum) {
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < sum.count; i += step)
        sum.values[i] += sum.amount;
}

struct Place { unsigned *values; };

extern "C" __global__ void number(Place place) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned index = block * blockDim.x * blockDim.y * blockDim.z + thread;
    place.values[index] = index + 1;
}

extern "C" __global__ void reverse(Place place) {
    extern __shared__ unsigned dynamic[];
    __shared__ unsigned fixed[256];
    fixed[threadIdx.x] = place.values[threadIdx.x];
    dynamic[blockDim.x - 1 - threadIdx.x] = threadIdx.x;
    __syncthreads();
    place.values[threadIdx.x] = fixed[dynamic[threadIdx.x]];
}

extern "C" __global__ __launch_bounds__(64) void small(Place place) { place.values[threadIdx.x] = 1; }

extern "C" __global__ void nothing() {}
"""

SUM = struct.Struct("<QII")
PLACE = struct.Struct("<Q")


@pytest.fixture(scope="module")
def image() -> bytes:
    try:
        options = [f"--offload-arch={HipDevice(0).properties.gcn_arch_name}".encode()]
    except BackendUnavailable as error:
        pytest.skip(str(error))
    _, program = hiprtc.hiprtcCreateProgram(SOURCE.encode(), b"test.hip", 0, None, None)
    (status,) = hiprtc.hiprtcCompileProgram(program, len(options), options)
    if status:
        log = bytearray(hiprtc.hiprtcGetProgramLogSize(program)[1])
        hiprtc.hiprtcGetProgramLog(program, log)
        pytest.fail(log.decode(errors="replace"))
    code = bytearray(hiprtc.hiprtcGetCodeSize(program)[1])
    hiprtc.hiprtcGetCode(program, code)
    hiprtc.hiprtcDestroyProgram(program.createRef())
    return bytes(code)


@pytest.fixture
def device(image) -> HipDevice:
    return HipDevice(0)


@pytest.fixture
def module(device, image):
    with HipModule(device, image, "test") as module:
        yield module


@pytest.fixture
def stream(device):
    with HipStream(device) as stream:
        yield stream


def zeros(device, count: int) -> HipBuffer:
    buffer = HipBuffer(device, 4 * count)
    buffer.fill(0)
    device.synchronize()
    return buffer


def read(buffer, stream=None) -> np.ndarray:
    return np.frombuffer(buffer.to_bytes(stream=stream), np.uint32)


@pytest.mark.parametrize("null", [False, True])
def test_a_launch(device, module, stream, null):
    stream = HipStream.null(device) if null else stream
    kernel = module.kernel("add", SUM.size)
    buffer = zeros(device, 1000)
    kernel.launch((2, 1, 1), (256, 1, 1), SUM.pack(buffer.address, 1000, 5), stream)
    kernel.launch((4, 1, 1), (64, 1, 1), SUM.pack(buffer.address + 400, 100, 2), stream)
    expected = np.full(1000, 5)
    expected[100:200] += 2
    np.testing.assert_array_equal(read(buffer, stream), expected)


def test_arguments_are_copied_by_the_launch(device, module, stream):
    kernel = module.kernel("add", SUM.size)
    buffer = zeros(device, 64)
    for amount in range(100):
        kernel.launch((1, 1, 1), (64, 1, 1), SUM.pack(buffer.address, 64, amount), stream)
    assert set(read(buffer, stream)) == {sum(range(100))}


def test_launches_from_several_threads(device, module):
    kernel = module.kernel("add", SUM.size)
    buffers = [zeros(device, 64) for _ in range(4)]

    def work(index):
        with HipStream(device) as stream:
            for _ in range(50):
                kernel.launch((1, 1, 1), (64, 1, 1), SUM.pack(buffers[index].address, 64, index + 1), stream)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, buffer in enumerate(buffers):
        assert set(read(buffer)) == {50 * (index + 1)}


def test_every_dim_reaches_the_kernel(device, module, stream):
    buffer = zeros(device, 2 * 3 * 4 * 5 * 2 * 3)
    module.kernel("number", PLACE.size).launch((2, 3, 4), (5, 2, 3), PLACE.pack(buffer.address), stream)
    np.testing.assert_array_equal(read(buffer, stream), np.arange(720) + 1)


def test_shared_memory(device, module, stream):
    kernel = module.kernel("reverse", PLACE.size)
    assert 1024 <= kernel.limits.shared_bytes <= device.properties.shared_memory_per_block
    buffer = HipBuffer(device, 1024)
    buffer.copy_from_host(np.arange(256, dtype=np.uint32))
    kernel.launch((1, 1, 1), (256, 1, 1), PLACE.pack(buffer.address), stream, 1024)
    np.testing.assert_array_equal(read(buffer, stream), np.arange(256)[::-1])


def test_a_kernel_without_arguments(module, stream):
    module.kernel("nothing", 0).launch((1, 1, 1), (1, 1, 1), b"", stream)
    stream.synchronize()


def refused(kernel, stream, reason, grid=(1, 1, 1), block=(1, 1, 1), arguments=bytes(PLACE.size), shared_memory=0):
    with pytest.raises(InvalidArgument, match=re.escape(reason)) as caught:
        kernel.launch(grid, block, arguments, stream, shared_memory)
    assert caught.value.op == f"launch of {kernel.name}"


def test_launches_that_the_device_can_not_do(device, module, stream, monkeypatch):
    called = []
    monkeypatch.setattr("tallow.drivers.rocm.launch", lambda *arguments: called.append(arguments))
    limits = device.properties
    kernel = module.kernel("number", PLACE.size)
    most = kernel.limits.threads
    for shape in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, -1, 1), (1, -1, -1)):
        refused(kernel, stream, "is empty", grid=shape)
        refused(kernel, stream, "is empty", block=shape)
    for block in ((most + 1, 1, 1), (1, most, 2), (2, 1, most)):
        refused(kernel, stream, f"at most {most} are possible", block=block)
    for dim in range(3):
        grid = [1, 1, 1]
        grid[dim] = limits.max_grid[dim] + 1
        refused(kernel, stream, f"at most {limits.max_grid} blocks are possible", grid=tuple(grid))
    if limits.max_grid[0] * 4 >= 1 << 32:
        refused(kernel, stream, "more than 4294967295 threads in a dim", grid=(1 << 30, 1, 1), block=(4, 1, 1))
    refused(kernel, stream, "arguments are 8 bytes, not 7", arguments=bytes(7))
    for shared_memory in (kernel.limits.shared_bytes + 1, -1):
        refused(kernel, stream, f"{shared_memory} bytes of shared memory per block", shared_memory=shared_memory)
    assert called == []


def test_the_largest_launch_is_possible(device, module, stream, monkeypatch):
    called = []
    success = (hip.hipError_t.hipSuccess,)
    monkeypatch.setattr("tallow.drivers.rocm.launch", lambda *given: called.append(given[1:8]) or success)
    limits = device.properties
    kernel = module.kernel("number", PLACE.size)
    block = (kernel.limits.threads, 1, 1)
    grid = (min(limits.max_grid[0], ((1 << 32) - 1) // kernel.limits.threads), *limits.max_grid[1:])
    kernel.launch(grid, block, bytes(8), stream, kernel.limits.shared_bytes)
    assert called == [(*grid, *block, kernel.limits.shared_bytes)]


def test_a_kernel_compiled_for_small_blocks(module, stream):
    kernel = module.kernel("small", PLACE.size)
    assert kernel.limits.threads == 64
    refused(kernel, stream, "at most 64 are possible", block=(65, 1, 1))


def test_a_launch_that_fails(module, stream, monkeypatch):
    failed = (hip.hipError_t.hipErrorLaunchFailure,)
    kernel = module.kernel("nothing", 0)
    with monkeypatch.context() as patch:
        patch.setattr("tallow.drivers.rocm.launch", lambda *arguments: failed)
        with pytest.raises(HipError, match=r"hipModuleLaunchKernel \(nothing on rocm:0\): hipErrorLaunchFailure"):
            kernel.launch((1, 1, 1), (1, 1, 1), b"", stream)
    kernel.launch((1, 1, 1), (1, 1, 1), b"", stream)


def test_a_stream_of_another_device(module):
    if device_count() < 2:
        pytest.skip("needs two devices")
    with HipStream(HipDevice(1)) as stream, pytest.raises(DeviceMismatch, match="launch of nothing"):
        module.kernel("nothing", 0).launch((1, 1, 1), (1, 1, 1), b"", stream)


def test_a_launch_while_another_device_is_current(image):
    """HIP 7 refuses it at first, and so does the HIP runtime for the CPU."""
    if device_count() < 2:
        pytest.skip("needs two devices")
    device = HipDevice(1)
    HipDevice(0).set_current()
    with HipModule(device, image) as module, HipStream(device) as stream:
        buffer = zeros(device, 64)
        for queue in (stream, HipStream.null(device)):
            module.kernel("add", SUM.size).launch((1, 1, 1), (64, 1, 1), SUM.pack(buffer.address, 64, 1), queue)
            queue.synchronize()
        assert set(read(buffer)) == {2}
    assert hip.hipGetDevice()[1] == 0


def test_kernels_are_looked_up_once(module, monkeypatch):
    kernel = module.kernel("add", SUM.size)
    monkeypatch.setattr(hip, "hipModuleGetFunction", None)
    assert module.kernel("add", SUM.size) is kernel
    with pytest.raises(InvalidArgument, match="add takes 16 bytes of arguments, not 8"):
        module.kernel("add", 8)


def test_a_kernel_that_is_not_there(module):
    with pytest.raises(InvalidKernel, match="kernel subtract: test does not have it"):
        module.kernel("subtract", 0)
    assert module.kernel("add", SUM.size)


def test_modules_from_files(tmp_path, device, image, stream):
    path = tmp_path / "test.co"
    path.write_bytes(image)
    with HipModule.from_file(device, path) as module:
        assert module.name == "test.co"
        module.kernel("nothing", 0).launch((1, 1, 1), (1, 1, 1), b"", stream)
        stream.synchronize()
    with pytest.raises(FileNotFoundError, match=r"absent\.co"):
        HipModule.from_file(device, tmp_path / "absent.co")


def elf(total: int) -> bytes:
    """The start of a 64-bit ELF that says it has `total` bytes."""
    header = bytearray(64)
    header[:5] = b"\x7fELF\2"
    struct.pack_into("<Q", header, 40, total - 2 * 64)
    struct.pack_into("<HH", header, 58, 64, 2)
    return bytes(header)


def bundle(offset: int, size: int) -> bytes:
    target = b"hipv4-amdgcn-amd-amdhsa--gfx90a"
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, offset, size, len(target)) + target


@pytest.mark.parametrize(
    ("broken", "sizes"),
    [
        (b"", "0 of 1 bytes"),
        (elf(9000), "64 of 9000 bytes"),
        (elf(9000)[:20], "20 of 64 bytes"),
        (bundle(4096, 500), "87 of 4596 bytes"),
        (bundle(4096, 500)[:60], "60 of 4596 bytes"),
        (bundle(4096, 500)[:40], "40 of 56 bytes"),
        (bundle(4096, 500)[:24], "24 of 32 bytes"),
    ],
)
def test_images_that_are_cut_short(device, broken, sizes, monkeypatch):
    monkeypatch.setattr(hip, "hipModuleLoadData", None)
    with pytest.raises(InvalidArgument, match=f"cached is cut short: it has {sizes}"):
        HipModule(device, broken, "cached")


def test_images_for_something_else(device, image):
    for broken in (b"no code object" + bytes(4096), elf(64 + 128) + bytes(128), image[:8] + bytes(len(image))):
        with pytest.raises(HipError, match=r"hipModuleLoadData \(other on rocm:0\)") as caught:
            HipModule(device, broken, "other")
        assert caught.value.recoverable
    HipModule(device, image).close()


def test_a_closed_module(device, image, stream, monkeypatch):
    unloaded = []
    original = hip.hipModuleUnload
    monkeypatch.setattr(hip, "hipModuleUnload", lambda handle: unloaded.append(int(handle)) or original(handle))
    module = HipModule(device, image, "test")
    kernel = module.kernel("nothing", 0)
    module.close()
    module.close()
    assert len(unloaded) == 1
    for use in (lambda: module.kernel("nothing", 0), lambda: kernel.launch((1, 1, 1), (1, 1, 1), b"", stream)):
        with pytest.raises(HipClosed, match="<HipModule test on rocm:0> is closed"):
            use()
    stream.close()
    with pytest.raises(HipClosed, match="HipStream"), HipModule(device, image) as another:
        another.kernel("nothing", 0).launch((1, 1, 1), (1, 1, 1), b"", stream)


def test_a_kernel_keeps_its_module(device, image, stream):
    module = HipModule(device, image)
    kernel = module.kernel("nothing", 0)
    gone = weakref.ref(module)
    del module
    gc.collect()
    kernel.launch((1, 1, 1), (1, 1, 1), b"", stream)
    stream.synchronize()
    del kernel
    gc.collect()
    assert gone() is None
