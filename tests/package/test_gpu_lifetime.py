"""What a process leaves behind on a device: nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("hip")

IMPORTS = """
import ctypes, gc, os, sys
import numpy as np
import tallow
from tallow import DType, Shape
from tallow.runtime.backends.gpu_backend.libraries.library import ConvolutionKind
from tallow.runtime.core.conv import ParamsConv2D
from tallow.runtime.backends.gpu_backend.libraries.matrices import Matrices
from tallow.kernels import launches
from tallow.runtime.backends.gpu_backend.ops import memory, random
from tallow.rocm_backend import RocmDevice
"""
USE = (
    IMPORTS
    + """
library = ctypes.CDLL(os.environ["ROCM_PATH"] + "/lib/libamdhip64.so")
library.hip_host_live.restype = ctypes.c_long
KINDS = ("device memory", "host memory", "stream", "event", "module", "program", "hipblas handle", "miopen handle",
         "tensor descriptor", "convolution descriptor", "pooling descriptor")
live = lambda: {kind: count for kind in KINDS if (count := library.hip_host_live(kind.encode()))}

def use(device):
    numbers = device.make(launches.rand_uniform_f64, 0.0, 1.0, Shape((64,)), DType.F32)
    result = device.make(memory.zeros, Shape((64,)), DType.F32)
    square = Matrices(numbers.memory.address, False, 8, 64)
    product = device.hipblas.multiply(DType.F32, (1, 8, 8, 8), square, square, result.memory.address)
    product.function(*product.arguments)
    params = ParamsConv2D(
        b_size=1, i_h=8, i_w=8, k_h=1, k_w=1, c_out=1, c_in=1, padding=0, stride=1, dilation=1
    )
    addresses = numbers.memory.address, numbers.memory.address, result.memory.address
    convolution = device.miopen.convolution(ConvolutionKind.FORWARD, DType.F32, params.general, *addresses)
    assert convolution.function(*convolution.arguments)
    result.to_numpy()
    return [numbers, result]
"""
)


@pytest.fixture(autouse=True)
def on_the_cpu(host):
    """These count what only the runtime for the CPU counts."""


def test_what_a_device_holds(run_forked):
    run_forked(
        USE
        + """
held = use(RocmDevice(0))
RocmDevice(0).driver.wait_for(0)
before = live()
assert before["device memory"] == 5, before
assert {kind: before[kind] for kind in before if kind != "device memory"} == {
    "stream": 1, "event": 1, "module": 1, "hipblas handle": 1, "miopen handle": 1
}, before
"""
    )


def test_work_in_a_loop_leaves_nothing(run_forked):
    run_forked(
        USE
        + """
device = RocmDevice(0)
use(device)
device.allocator.empty_cache()
before = live(), device.allocator.statistics()[:2]
for _ in range(20):
    use(device)
device.allocator.empty_cache()
assert (live(), device.allocator.statistics()[:2]) == before
assert before[0]["device memory"] == 2, "the record of index errors, and counters of joins"
"""
    )


def test_storages_that_outlive_everything_are_quiet(run_forked):
    run_forked(USE + "sys.held = use(RocmDevice(0)); sys.held.append(sys.held)")
    run_forked(
        USE + "class Late:\n    def __del__(self): self.held.clear()\nlate = Late(); late.held = use(RocmDevice(0))"
    )


def test_threads_that_outlive_the_interpreter(run_forked):
    run_forked(
        USE
        + """
import threading
held = use(RocmDevice(0))
started = threading.Barrier(3)

def work():
    started.wait()
    while True:
        use(RocmDevice(0))

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
started.wait()
"""
    )


def test_a_forked_child_is_told_that_it_has_no_gpu(run_forked):
    run_forked(
        USE
        + """
import copy, pickle, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of every fork beside other threads
from tallow import BackendUnavailable, Device, Tensor
from tallow.drivers import rocm as driver

device = Device.rocm(0)
held = use(device.inner)
x, indexes, nothing = Tensor([[1.0, 2.0]], device=device), Tensor([[1]], device=device), Tensor.zeros(0, device=device)
assert (x + x).tolist() == [[2.0, 4.0]]
loader = device.inner.loader
dumped, path = pickle.dumps(device.inner), sys.argv[0] + ".safetensors"
before = live()
CALLS = [
    lambda: x + x, lambda: x.exp(), lambda: x @ x.T, lambda: x.sum(), lambda: x.gather(indexes, 1), lambda: x.fill_(2),
    lambda: x.tolist(), lambda: nothing.tolist(), lambda: x.copy(), lambda: x.to("cpu"), lambda: str(x),
    lambda: Tensor([1], device=device), lambda: Tensor.zeros(0, device=device), lambda: Tensor.rand(3, device=device),
    lambda: tallow.save_safetensors({"x": x}, path), lambda: copy.deepcopy(x), lambda: pickle.loads(dumped),
    lambda: x.__dlpack__(), lambda: Tensor.from_dlpack(x), lambda: device.inner.load([]), lambda: device.inner.loader,
    loader.synchronize, lambda: loader.upload_auto(None, b""), lambda: loader.stream(0).address,
    device.synchronize, device.inner.allocator.empty_cache, device.inner.allocator.statistics,
    lambda: Device.rocm(0), lambda: Device.parse("rocm:1"), lambda: Tensor([1], device="rocm"),
]
if os.fork() == 0:
    for name in driver.FUNCTIONS:  # no call reaches the runtime
        setattr(driver.binding, name, None)
    for number, call in enumerate(CALLS):
        try:
            call()
        except BackendUnavailable as refusal:
            assert str(refusal).endswith("start processes with multiprocessing.get_context('spawn')"), refusal
        else:
            raise AssertionError(f"call {number} gives no error")
    assert (x.shape, x.dtype, x.device) == ((1, 2), DType.F32, device)
    assert not type(device.inner).is_available()
    assert Device.default().backend != "rocm"
    assert (Tensor([1.0]) + 1).tolist() == [2.0]
    del x, indexes, nothing, held, CALLS
    gc.collect()
    assert live() == before
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
assert live() == before
assert (x + x).tolist() == [[2.0, 4.0]]
"""
    )


def test_without_a_cache_every_storage_is_an_allocation(run_forked):
    run_forked(
        USE
        + """
device = RocmDevice(0)
held = use(device)
assert device.allocator.statistics()[:2] == (512, 0)
assert live()["device memory"] == 4, live()
held.clear()
assert device.allocator.statistics()[:2] == (0, 0)
assert live()["device memory"] == 2
""",
        TALLOW_MEMORY_CACHE="0",
    )


def test_a_second_process_compiles_nothing(run_forked, tmp_path):
    first = USE + "use(RocmDevice(0)); device = RocmDevice(0)"
    run_forked(first, TALLOW_CACHE=str(tmp_path))
    run_forked(USE + "use(RocmDevice(0))", TALLOW_CACHE=str(tmp_path), HIP_HOST_FAIL="hiprtcCreateProgram:1+")


def test_two_devices_work_side_by_side(run_forked):
    run_forked(
        USE
        + """
import threading
devices = [RocmDevice(0), RocmDevice(1)]
assert devices[0] != devices[1] and devices[0].driver is not devices[1].driver
for _ in range(3):
    for device in devices:
        random.set_seed(device, 5)
    first, second = (use(device)[0].to_numpy() for device in devices)
    assert (first == second).all()
    assert devices[1].hipblas is not devices[0].hipblas
threads = [threading.Thread(target=use, args=(device,)) for device in devices * 2]
for thread in threads: thread.start()
for thread in threads: thread.join()
for device in devices: memory.synchronize(device)
""",
        HIP_HOST_DEVICES="2",
    )
