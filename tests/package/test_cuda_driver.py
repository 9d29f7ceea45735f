"""The CUDA driver's calls, on a driver that has no GPU: see cuda_host.c."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forks import Forks

pytest.importorskip("cuda.bindings")

IMPORTS = """
import ctypes
import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from package.filling import fill
from tallow.cuda_backend import CudaDevice, device_count, is_available, runtime_version
from tallow.drivers import cuda as driver_calls
from tallow.cuda_backend.error import CudaError
from tallow.runtime.backends.gpu_backend.driver.gpu_driver import GpuDriver
from tallow.dtype import DType
from tallow.kernels.arguments import fill_contiguous
from tallow.runtime.base.error import BackendUnavailable, InvalidArgument, OutOfMemory
from tallow.runtime.backends.gpu_backend.driver.error import InvalidKernel
"""
USE = """
library = ctypes.CDLL("libcuda.so.1")
library.cuda_host_log_take.restype = ctypes.c_char_p
library.cuda_host_fail.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
library.cuda_host_fail(None, 0, 0)

def fail(call, error, nth=1):
    library.cuda_host_fail(call.encode() if call else None, nth, error)

def calls():
    return [tuple(line.split(" ", 1)) for line in library.cuda_host_log_take().decode().splitlines()]
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the driver."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("cuda_host")
    source = Path(__file__).with_name("cuda_host.c")
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]
    subprocess.run([compiler, *options, "-o", folder / "libcuda.so.1", source, "-ldl"], check=True)
    return folder


@pytest.fixture(scope="module")
def forks(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process that has imported the modules, and finds the driver."""
    paths = os.pathsep.join(filter(None, (str(driver), os.environ.get("LD_LIBRARY_PATH"))))
    cache = os.environ.get("TALLOW_CACHE") or str(tmp_path_factory.getbasetemp() / "cache")
    folder = tmp_path_factory.mktemp("forks")
    forks = Forks(IMPORTS, folder, "-W", "error", LD_LIBRARY_PATH=paths, TALLOW_CACHE=cache)
    yield forks
    forks.close()


@pytest.fixture
def on_cuda(run_forked: Callable[..., str]) -> Callable[..., str]:
    """Runs a script on the driver, and returns what it printed."""
    return lambda script, **settings: run_forked(IMPORTS + USE + script, **settings)


def test_what_there_is(on_cuda):
    on_cuda("""
assert (device_count(), is_available(), runtime_version()) == (2, True, "13.2")
driver = CudaDevice(1).driver
assert (driver.label, driver.name, driver.target) == ("cuda:1", "CUDA on the CPU", "sm_90a")
assert (driver.facts.wave_size, driver.multiprocessors) == (32, 132)
assert driver.memory_info() == (1 << 34, 1 << 35)
assert isinstance(driver.stream, int)
with pytest.raises(InvalidArgument, match="ordinal 2 is out of range; use one from 0 to 1"):
    CudaDevice(2)
""")


def test_bytes_go_in_and_out(on_cuda):
    on_cuda("""
device = CudaDevice(0)
numbers = np.arange(1000, dtype=np.int64)
storage = device.storage(numbers)
assert (storage.to_numpy() == numbers).all()
copy = device.empty(DType.I64, 1000)
device.driver.copy(copy.memory.address, storage.memory.address, 8000)
device.driver.fill_bytes(copy.memory.address, 1, 8)
device.driver.zero(copy.memory.address + 8, 8)
assert copy.to_numpy().tolist() == [0x0101010101010101, 0, *range(2, 1000)]
for nothing in (device.storage(numbers[:0]), device.empty(DType.I64, 0)):
    assert nothing.to_numpy().size == 0
""")


def test_whose_memory_it_is(on_cuda):
    on_cuda("""
first, second = CudaDevice(0), CudaDevice(1)
storage = first.storage(np.arange(100))
array, begin = np.arange(9), storage.memory.address
for address, is_first in ((begin, True), (begin + 99, True), (array.ctypes.data, False)):
    assert first.driver.holds(address) is is_first
    assert second.driver.holds(address) is False
fail("cuPointerGetAttribute", 201)
with pytest.raises(CudaError, match="cuPointerGetAttribute"):
    first.driver.holds(storage.memory.address)
""")


def test_a_first_call_is_short_to_read(on_cuda):
    on_cuda("""
pytest.importorskip("cuda.bindings.nvrtc")
import tallow as tl
from package.test_life_of_a_call import follow
device = tl.Device("cuda")
driver, kernels = device.inner.driver, device.inner.kernels
try:
    driver.compiler_version
except BackendUnavailable:
    raise SystemExit
x = tl.Tensor.from_numpy(np.ones(5, "f4"), device)
# The code object of the family is loaded, and the allocator has memory.
x.exp()
load = lambda code: driver.load(code, "unary")
kernels._prebuilt["unary"] = kernels._compiled("unary", "gelu_f32_contiguous", load)
files, changes = follow(x.gelu)
assert len(files) <= 15, files
assert changes <= 3
""")


def test_a_kernel_is_compiled_and_launched(on_cuda):
    on_cuda("""
pytest.importorskip("cuda.bindings.nvrtc")
device = CudaDevice(0)
try:
    device.driver.compiler_version
except BackendUnavailable:
    raise SystemExit
assert fill(device) == [9] * 5
calls()
assert fill(device) == [9] * 5
(launch,) = [arguments for call, arguments in calls() if call == "cuLaunchKernel"]
assert launch == f"fill_b32_contiguous 1 1 1 256 1 1 0 {hex(device.driver.stream)}"
with pytest.raises(InvalidArgument, match="launch of fill_b32_contiguous: its arguments are 32 bytes, not 31"):
    device.kernels.launch("fill", "fill_b32_contiguous", 1, bytes(31))

# A thread that has no context, and one in which that of another device is current.
second, wrong = CudaDevice(1), []
def work():
    for one in (device, second, device):
        if fill(one) != [9] * 5:
            wrong.append(one)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert not wrong

code = device.kernels._compiled("fill", "fill_b32_contiguous", bytes)
module = device.driver.load(code, "fill.co")
with pytest.raises(InvalidKernel, match="kernel gone: fill.co does not have it; build that again"):
    module.function("gone", device.driver.queue, 256, 24)
# A kernel gets the shared memory that it is launched with, or all that the device has.
for asked, given in ((98304, 98304), (1 << 20, 232448)):
    calls()
    enqueue = module.function("fill_b32_contiguous", device.driver.queue, 256, 32, asked)
    assert ("cuFuncSetAttribute", f"fill_b32_contiguous 8 {given}") in calls()
    storage = device.empty(DType.U32, 4)
    calls()
    enqueue(1, fill_contiguous(result=storage.memory.address, count=4, value=(7, 0)).packed())
    (launch,) = [arguments for call, arguments in calls() if call == "cuLaunchKernel"]
    assert launch == f"fill_b32_contiguous 1 1 1 256 1 1 {given} {hex(device.driver.stream)}"
    assert storage.to_numpy().tolist() == [7] * 4
# Blocks that wait for each other are launched together or not at all, from a thread without a context too.
enqueue = module.cooperative_function("fill_b32_contiguous", device.driver.queue, 256, 32)
storage = device.empty(DType.U32, 4)
packed = fill_contiguous(result=storage.memory.address, count=4, value=(8, 0)).packed()
thread = threading.Thread(target=enqueue, args=(132, packed))
calls()
thread.start()
thread.join()
assert ("cuLaunchCooperativeKernel", f"fill_b32_contiguous 132 1 1 256 1 1 0 {hex(device.driver.stream)}") in calls()
assert storage.to_numpy().tolist() == [8] * 4
with pytest.raises(CudaError, match="CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"):
    enqueue(133, packed)
with pytest.raises(InvalidArgument, match="its arguments are 32 bytes, not 31"):
    enqueue(1, bytes(31))
for cut in (0, 4, 40, 1000, len(code) - 1):
    with pytest.raises(InvalidArgument, match=f"fill.co is cut short: it has {cut} of"):
        device.driver.load(code[:cut], "fill.co")
with pytest.raises(CudaError, match=r"cuModuleLoadData \\(text.co on cuda:0\\): CUDA_ERROR_INVALID_IMAGE, code 200"):
    device.driver.load(b"text", "text.co")
""")


def test_a_kernel_of_a_user_is_launched(on_cuda):
    on_cuda("""
pytest.importorskip("cuda.bindings.nvrtc")
from tallow import Device, Kernel, Tensor
device = Device.cuda()
try:
    device.inner.driver.compiler_version
except BackendUnavailable:
    raise SystemExit
source = 'extern "C" __global__ void saxpy(float* y, const float* x, float a, unsigned n) { if (n) *y = a * *x; }'
saxpy = Kernel.compile("saxpy", source, device, signature="float*, const float*, float, unsigned")
log = calls()
# What a kernel declares is not left for it.
assert ("cuFuncSetAttribute", "saxpy 8 231424") in log, log
y, x = Tensor.ones(5, device=device), Tensor(np.arange(5, dtype=np.float32), device=device)
calls()
saxpy.launch((2, 1), 256, y, x, 0.5, 5, shared_bytes=231424)
stream = hex(device.inner.stream)
assert calls() == [("cuLaunchKernel", f"saxpy 2 1 1 256 1 1 231424 {stream}")]
assert y.tolist() == [1, 1.5, 2, 2.5, 3]
limits = saxpy._limits
assert (limits.threads, limits.block, limits.grid) == (1024, (1024, 1024, 64), (2147483647, 65535, 65535))
for launch in (lambda: saxpy.launch(1, (1, 1, 65), y, x, 0.5, 5), lambda: saxpy.launch((1, 65536), 1, y, x, 0.5, 5),
               lambda: saxpy.launch(1, 1, y, x, 0.5, 5, shared_bytes=231425)):
    with pytest.raises(InvalidArgument, match="launch of saxpy: .*at most"):
        launch()

# CUDA tells which parameters a kernel has.
for signature in ("float*, const float*, float", "float*, const float*, double, unsigned"):
    with pytest.raises(InvalidArgument, match="and kernel saxpy has some of 8, 8, 4, 4 bytes; write the kernel's own"):
        Kernel.compile("saxpy", source, device, signature=signature)
with pytest.raises(InvalidArgument, match="signature: kernel saxpy has 4 parameters; write them as in C"):
    Kernel.compile("saxpy", source, device)

# A thread that has no context.
wrong = []
def work():
    saxpy.launch(1, 5, y, x, 0.0, 5)
    wrong.extend(y.numpy() != [1, 1.5, 2, 2.5, 3])
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert wrong == [False] * 5

fail("cuLaunchKernel", 719)
with pytest.raises(CudaError, match=r"cuLaunchKernel \\(saxpy on cuda:0\\): CUDA_ERROR_LAUNCH_FAILED"):
    saxpy.launch(1, 5, y, x, 0.5, 5)
fail(None, 0)
saxpy.launch(1, 5, y, x, 1.0, 1)
import warnings
warnings.simplefilter("ignore")
if os.fork() == 0:
    with pytest.raises(BackendUnavailable, match="forked"):
        saxpy.launch(1, 5, y, x, 1.0, 1)
    with pytest.raises(BackendUnavailable, match="forked"):
        Kernel.compile("other", source, device)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
""")


def test_contexts_are_shared_and_left_as_they_were(on_cuda):
    on_cuda("""
first, second = CudaDevice(0).driver, CudaDevice(1).driver
current = ctypes.c_void_p()
def now():
    library.cuCtxGetCurrent(ctypes.byref(current))
    return current.value
seen = []
def work():
    seen.append(now())
    first.memory_info()
    seen.append(now())
    second.memory_info()
    seen.append(now())
thread = threading.Thread(target=work)
thread.start()
thread.join()
# A thread without a context keeps the first one that it works in.
assert seen[0] is None and seen[1] is not None and seen[1] == seen[2], seen
calls()
first.memory_info()
assert [call for call, _ in calls()] == ["cuMemGetInfo_v2"]
""")


def test_streams_wait_for_each_other(on_cuda):
    on_cuda("""
driver = CudaDevice(0).driver
def ordered(stream):
    calls()
    driver.wait_for(stream)
    driver.let_wait(stream)
    return [(call, int(arguments, 16) if arguments != "(nil)" else 0) for call, arguments in calls()]
# The first time makes the event.
assert ordered(0)[0][0] == "cuEventCreate"
# 0 is the legacy default stream, which a build for default streams per thread would not take it for.
for stream, known in ((0, 1), (1, 1), (2, 2)):
    assert ordered(stream) == [
        ("cuEventRecord", known),
        ("cuStreamWaitEvent", driver.stream),
        ("cuEventRecord", driver.stream),
        ("cuStreamWaitEvent", known),
    ]
assert ordered(driver.stream) == []
""")


GRAPHS = """
from tallow.runtime.backends.gpu_backend.execute.graph import GpuGraph
from tallow.runtime.backends.gpu_backend.driver.stream import release_finished
device = CudaDevice(0)
storage = device.storage(np.arange(5, dtype=np.uint8) + 1)

def captured():
    graph = GpuGraph(device)
    with graph.capture():
        device.driver.zero(storage.memory.address, 2)
    return graph
"""


def test_a_graph_is_captured_and_launched(on_cuda):
    on_cuda(
        GRAPHS
        + """
import threading
calls()
graph = captured()
# 2 is the relaxed mode.
expected = [
    ("cuStreamBeginCapture_v2", "2"),
    ("cuMemsetD8Async", "0 2"),
    ("cuStreamEndCapture", " "),
    ("cuGraphInstantiateWithFlags", "0"),
    ("cuGraphDestroy", " "),
]
assert [call for call in calls() if call[0] in dict(expected)] == expected
assert storage.to_numpy().tolist() == [1, 2, 3, 4, 5]
calls()
graph.replay()
assert calls() == [("cuGraphLaunch", hex(device.driver.stream))]
assert storage.to_numpy().tolist() == [0, 0, 3, 4, 5]
# A thread of its own has no current context.
raised = []
def replay():
    try:
        graph.replay()
    except Exception as error:
        raised.append(error)
thread = threading.Thread(target=replay)
thread.start()
thread.join()
assert raised == []
graph.close()
release_finished()
assert library.cuda_host_live(8) == 0
"""
    )


def test_kernels_of_a_graph_begin_while_those_in_front_of_them_end(on_cuda):
    on_cuda("""
pytest.importorskip("cuda.bindings.nvrtc")
from tallow.runtime.backends.gpu_backend.execute.graph import GpuGraph
from tallow.kernels.arguments import fill_contiguous
device = CudaDevice(0)
try:
    device.driver.compiler_version
except BackendUnavailable:
    raise SystemExit
assert fill(device) == [9] * 5
graph = GpuGraph(device)
packed = fill_contiguous(result=device.empty(DType.U32, 1).memory.address, count=1, value=(9, 0)).packed()
launch = "fill", "fill_b32_contiguous", 1, packed
calls()
with graph.capture():
    device.kernels.launch(*launch)
    device.kernels.launch(*launch)
    device.driver.zero(device.empty(DType.U32, 1).memory.address, 4)
    device.kernels.launch(*launch)
# Only where both are kernels: the other edges stay, since what copies or fills neither waits nor lets begin.
edges = [call for call in calls() if "Dependencies" in call[0]]
assert edges == [("cuGraphRemoveDependencies_v2", "0 1 0 1"), ("cuGraphAddDependencies_v2", "0 1 1 1 1")]

# A library's kernel, which was launched so that it may begin early, depends on the end of one of ours.
binding, plain = driver_calls.binding, driver_calls.prepare
kind = binding.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
class CapturedEarly:
    # The binding, whose edges are programmatic ones.
    def __getattr__(self, name):
        return getattr(binding, name)
    def cuGraphGetEdges(self, graph, *count):
        result = binding.cuGraphGetEdges(graph, *count)
        for edge in result[3] if count else ():
            edge.type = kind
        return result
from tallow.runtime.backends.cuda_backend.edges import let_kernels_begin_early
class OnlyTheFirst:
    # Says of the first kernel alone that it waits.
    def __init__(self):
        self.asked = 0
    def __contains__(self, function):
        self.asked += 1
        return self.asked == 1
driver_calls.prepare = lambda graph, *_: let_kernels_begin_early(
    CapturedEarly(), driver_calls.checked, graph, OnlyTheFirst()
)
another = GpuGraph(device)
with another.capture():
    device.kernels.launch(*launch)
    device.kernels.launch(*launch)
edges = [call for call in calls() if "Dependencies" in call[0]]
assert edges == [("cuGraphRemoveDependencies_v2", "0 1 1 1"), ("cuGraphAddDependencies_v2", "0 1 0 0 1")]

# A driver before 12.3 has no such edges.
class Old(CapturedEarly):
    def cuGraphGetEdges(self, *_):
        raise RuntimeError
driver_calls.prepare = lambda graph, kernels, *_: let_kernels_begin_early(
    Old(), driver_calls.checked, graph, kernels
)
other = GpuGraph(device)
with other.capture():
    device.kernels.launch(*launch)
    device.kernels.launch(*launch)
driver_calls.prepare = plain
assert not [call for call in calls() if "Dependencies" in call[0]]
""")


def test_a_capture_that_fails_leaves_the_device_usable(on_cuda):
    on_cuda(
        GRAPHS
        + """
for call in ("cuStreamBeginCapture_v2", "cuMemsetD8Async", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"):
    print(call)
    storage = device.storage(np.arange(5, dtype=np.uint8) + 1)
    fail(call, 801)
    with pytest.raises(CudaError, match=call.removesuffix("_v2").removesuffix("WithFlags") + ".*_NOT_SUPPORTED"):
        captured()
    assert storage.to_numpy().tolist() == [1, 2, 3, 4, 5]
    captured().replay()
    assert storage.to_numpy().tolist() == [0, 0, 3, 4, 5]
    release_finished()
    assert library.cuda_host_live(8) == 0
"""
    )


def test_a_graph_that_fails_is_usable_later(on_cuda):
    on_cuda(
        GRAPHS
        + """
for call in ("cuGraphLaunch", "cuGraphExecDestroy"):
    print(call)
    graph = captured()
    fail(call, 801)
    with pytest.raises(CudaError, match=f"{call}.*CUDA_ERROR_NOT_SUPPORTED"):
        graph.replay()
        graph._captured.recorded.close()
    graph.replay()
    assert storage.to_numpy().tolist() == [0, 0, 3, 4, 5]
"""
    )


def test_memory_that_is_not_there(on_cuda):
    on_cuda("""
device = CudaDevice(0)
with pytest.raises(OutOfMemory, match="cuda:0: no memory for .* bytes"):
    device.empty(DType.F64, 1 << 50)
with pytest.raises(OutOfMemory, match=f"cuda:0: no memory for {1 << 65} bytes"):
    device.empty(DType.F64, 1 << 62)
device.allocator.empty_cache()
fail("cuMemAlloc_v2", 2)
assert device.storage(np.arange(5)).to_numpy().tolist() == list(range(5))
device.allocator.empty_cache()
fail("cuMemAlloc_v2", 999)
told = r"cuMemAlloc \\(512 bytes on cuda:0\\): CUDA_ERROR_UNKNOWN, code 999; the device is lost"
with pytest.raises(CudaError, match=told):
    device.storage(np.arange(5))
""")


def test_calls_that_fail(on_cuda):
    on_cuda("""
device = CudaDevice(0)
for call, told in (
    ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync (40 bytes from the host to cuda:0)"),
    ("cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync (40 bytes to the host from cuda:0)"),
    ("cuStreamSynchronize", "cuStreamSynchronize (cuda:0)"),
):
    print(call)
    fail(call, 801)
    with pytest.raises(CudaError) as raised:
        device.storage(np.arange(5)).to_numpy()
    assert str(raised.value) == f"{told}: CUDA_ERROR_NOT_SUPPORTED, code 801"
    assert device.storage(np.arange(5)).to_numpy().tolist() == list(range(5))
""")


def test_a_device_that_a_kernel_has_broken(on_cuda):
    """Every later call fails, says so, and the process ends in peace."""
    printed = on_cuda(
        """
device = CudaDevice(0)
held = device.storage(np.arange(5))
fail("cuStreamSynchronize", 700)
told = "CUDA_ERROR_ILLEGAL_ADDRESS, code 700; the device is lost to this process"
for _ in range(2):
    with pytest.raises(CudaError, match=told) as raised:
        held.to_numpy()
    assert not raised.value.recoverable
""",
        CUDA_HOST_REPORT="1",
    )
    assert printed.startswith("contexts ")


def test_a_driver_that_nobody_holds_leaves_nothing(on_cuda):
    printed = on_cuda(
        """
drivers = [GpuDriver(driver_calls, 0), GpuDriver(driver_calls, 1)]
for driver in drivers:
    driver.allocate(100)
    driver.wait_for(0)
del driver, drivers
gc.collect()
""",
        CUDA_HOST_REPORT="1",
    )
    assert printed == "contexts 0 streams 0 events 0 modules 0 memory 0 pinned 0 graphs 0\n"


def test_a_driver_that_gets_no_stream_leaves_nothing(on_cuda):
    printed = on_cuda(
        """
fail("cuStreamCreate", 2)
with pytest.raises(CudaError, match=r"cuStreamCreate \\(cuda:0\\): CUDA_ERROR_OUT_OF_MEMORY"):
    GpuDriver(driver_calls, 0)
""",
        CUDA_HOST_REPORT="1",
    )
    assert printed == "contexts 0 streams 0 events 0 modules 0 memory 0 pinned 0 graphs 0\n"


def test_memory_that_is_not_taken_back_is_neither_lost_nor_freed_twice(on_cuda):
    printed = on_cuda(
        """
driver = GpuDriver(driver_calls, 0)
first, second = driver.allocate(100), driver.allocate(100)
for address in (first, second):
    fail("cuMemFree_v2", 1)
    with pytest.raises(CudaError, match="cuMemFree"):
        driver.free(address)
driver.free(first)
del driver
gc.collect()
""",
        CUDA_HOST_REPORT="1",
    )
    assert printed == "contexts 0 streams 0 events 0 modules 0 memory 0 pinned 0 graphs 0\n"


def test_a_forked_child_takes_nothing_away(on_cuda):
    printed = on_cuda(
        """
import warnings
warnings.simplefilter("ignore")
driver = GpuDriver(driver_calls, 0)
driver.wait_for(0)
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    driver.synchronize()
del driver
gc.collect()
""",
        CUDA_HOST_REPORT="1",
    )
    child, parent = printed.splitlines()
    assert "contexts 1 streams 1 events 1" in child
    assert parent == "contexts 0 streams 0 events 0 modules 0 memory 0 pinned 0 graphs 0"


def test_a_forked_child_is_told_that_it_has_no_gpu(on_cuda):
    on_cuda("""
import warnings
from tallow import Device, Tensor
warnings.simplefilter("ignore")
device = CudaDevice(0)
held, address = device.storage(np.arange(5)), device.driver.allocate(8)
calls()
if os.fork() == 0:
    driver = device.driver
    for call in (
        held.to_numpy, Device(device).synchronize, driver.synchronize, driver.memory_info, lambda: driver.wait_for(0),
        lambda: device.empty(DType.U8, 1), lambda: driver.allocate(8), lambda: driver.zero(address, 8),
        lambda: fill(device), lambda: CudaDevice(0), lambda: CudaDevice(1), lambda: GpuDriver(driver_calls, 0),
        runtime_version,
    ):
        with pytest.raises(BackendUnavailable, match=r"forked .* multiprocessing.get_context\\('spawn'\\)"):
            call()
    assert (device_count(), is_available()) == (0, False)
    del held, driver, device
    gc.collect()
    assert not calls()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
assert held.to_numpy().tolist() == [0, 1, 2, 3, 4]
""")


def test_a_driver_that_finds_no_device(on_cuda):
    on_cuda(
        """
assert (device_count(), is_available()) == (0, False)
with pytest.raises(BackendUnavailable, match="the CUDA driver finds no GPU; check that nvidia-smi lists one"):
    CudaDevice(0)
""",
        CUDA_HOST_DEVICES="0",
    )


def test_a_driver_that_does_not_start(on_cuda):
    on_cuda("""
fail("cuInit", 803, -1)
assert (device_count(), is_available()) == (0, False)
told = "does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; install NVIDIA's driver"
for call in (lambda: CudaDevice(0), runtime_version):
    with pytest.raises(BackendUnavailable, match=told):
        call()
""")


PEERS = """
from tallow import Tensor
numbers = np.arange(100.0)
tensor = Tensor.from_numpy(numbers, "cuda:0")
Tensor.zeros(1, device="cuda:1")
moved = lambda: (tensor.to("cuda:1").numpy() == numbers).all()
calls()
def seen():
    return [entry for entry in calls() if "Peer" in entry[0]]
"""
ASKED = ("cuDeviceCanAccessPeer", "0 1")
COPIED = ("cuMemcpyPeerAsync", "800 from 0 to 1")


@pytest.mark.parametrize(
    ("prepare", "apart", "expected"),
    [
        ("", "", [ASKED, ("cuCtxEnablePeerAccess", "1"), COPIED, COPIED]),
        ("", "1", [ASKED, COPIED, COPIED]),
        ("fail('cuCtxEnablePeerAccess', 704)", "", [ASKED, ("cuCtxEnablePeerAccess", "1"), COPIED, COPIED]),
        ("fail('cuCtxEnablePeerAccess', 711)", "", [ASKED, ("cuCtxEnablePeerAccess", "1"), COPIED, COPIED]),
    ],
    ids=["direct", "apart", "opened by somebody else", "too many peers"],
)
def test_the_way_to_another_device(on_cuda, prepare, apart, expected):
    settings = {"CUDA_HOST_APART": apart} if apart else {}
    on_cuda(f"{PEERS}\n{prepare}\nassert moved() and moved()\nassert seen() == {expected}", **settings)


@pytest.mark.parametrize(
    "call",
    ["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuMemcpyPeerAsync", "cuEventRecord", "cuStreamWaitEvent"],
)
def test_a_way_to_another_device_that_fails(on_cuda, call):
    on_cuda(f"""{PEERS}
fail("{call}", 1)
with pytest.raises(CudaError, match=r"{call} .*cuda:.*CUDA_ERROR_INVALID_VALUE"):
    moved()
assert moved()
""")


def test_a_load_that_fails_leaves_the_loader_usable(on_cuda):
    on_cuda("""
from tallow.runtime.backends.backend import Part
from tallow.runtime.backends.gpu_backend.driver import loader
loader.SLOT_BYTES = 1 << 12
numbers = np.arange(1 << 13)
def read_into(target, begin):
    target[:] = numbers.view(np.uint8).data[begin : begin + target.nbytes]
part = Part(DType.I64, numbers.size, read_into)
for call, nth in (
    ("cuMemHostAlloc", 1),
    ("cuStreamCreate", 3),
    *((call, nth) for call in ("cuEventCreate", "cuMemcpyHtoDAsync_v2", "cuEventRecord") for nth in (1, 2, 6)),
    *((call, nth) for call in ("cuStreamWaitEvent", "cuEventSynchronize", "cuEventQuery") for nth in (1, 3)),
):
    print(call, nth)
    device = CudaDevice(0)
    fail(call, 1, nth)
    with pytest.raises(CudaError, match=call.removesuffix("_v2")):
        for _ in range(6):
            device.load([part])
    fail(None, 0)
    assert (device.load([part])[0].to_numpy() == numbers).all()
    device.loader.close()
    assert library.cuda_host_live(6) == 0
""")


def test_what_every_gpu_does(driver):
    """The tests of streams, events, buffers and the loader, on this driver."""
    files = [Path(__file__).with_name(f"test_gpu_{name}.py") for name in ("objects", "loader", "peers")]
    paths = os.pathsep.join(filter(None, (str(driver), os.environ.get("LD_LIBRARY_PATH"))))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--device", "cuda", *files]
    # Of kernels this driver has none that copies.
    command += ["-k", "not views"]
    done = subprocess.run(command, env=os.environ | {"LD_LIBRARY_PATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout
