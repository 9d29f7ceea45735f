"""Whole processes: nothing leaks, and the end of the interpreter is quiet whatever is still open."""

import gc
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from forks import Forks

pytest.importorskip("hip")

import numpy as np
from tallow import Kernel, Tensor, load_safetensors
from tallow.drivers import rocm as driver
from tallow.rocm_backend import hip
from tallow.rocm_backend.hip import HipDevice
from tallow.rocm_backend.miopen import Miopen
from tallow.rocm_backend.rocblas import RocBlas
from tallow.runtime.backends.gpu_backend.driver import loader as loader_module
from tallow.runtime.backends.gpu_backend.driver.gpu_driver import GpuDriver
from tallow.runtime.backends.gpu_backend.execute.kernels import open_cache
from tallow.runtime.backends.gpu_backend.user_kernels import UserKernels
from tallow.runtime.base.error import BackendUnavailable

from .hip_operations import FILE, TWICE

NOTHING = 'extern "C" __global__ void nothing() {}'

IMPORTS = """
import contextlib, gc, os, sys
from tallow.rocm_backend.hip import *
"""
MAKE = (
    IMPORTS
    + """

def make():
    device = HipDevice(0)
    backend = HipBackend()
    stream = HipStream(device)
    buffer = HipBuffer(device, 1 << 16)
    view = buffer.view(16)
    buffer.fill(1, stream=stream)
    return [device, backend, stream, buffer, view, HipEvent(device).record(stream), HipStream.null(device)]
"""
)


@pytest.fixture(autouse=True)
def runtime():
    try:
        HipDevice(0)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process that has run IMPORTS, in Python's development mode."""
    # Newer Pythons warn of every fork beside other threads, and a HIP runtime has threads.
    options = ["-X", "dev", "-W", "error", "-W", "ignore:.*fork.*:DeprecationWarning"]
    forks = Forks(IMPORTS, tmp_path_factory.mktemp("forks"), *options)
    yield forks
    forks.close()


@pytest.fixture
def run(run_forked: Callable[..., str]) -> Callable[[str], str]:
    """Runs a script, which may make one of each object, in a process of its own, and returns what it printed."""
    return lambda script: run_forked(MAKE + textwrap.dedent(script))


@pytest.mark.parametrize(
    "script",
    [
        "kept = make()",
        "sys.kept = make()",
        "kept = make(); kept.append(kept)",
        "import threading; local = threading.local(); local.kept = make()",
        "class Late:\n    def __del__(self): [it.close() for it in self.kept[1:]]\nlate = Late(); late.kept = make()",
        "import atexit; kept = make(); atexit.register(kept[2].synchronize)",
        "kept = make(); [thing.close() for thing in kept[1:]]",
        "make()",
    ],
)
def test_the_end_of_the_interpreter_is_quiet(run, script):
    run(script)


def test_each_handle_is_given_back_once(run):
    run(
        """
        from hip import hip
        counts = {}
        def count(name, change):
            original = getattr(hip, name)
            def call(*arguments):
                counts[change[1:]] = counts.get(change[1:], 0) + (1 if change[0] == "+" else -1)
                return original(*arguments)
            setattr(hip, name, call)
        count("hipMalloc", "+memory"), count("hipFree", "-memory")
        count("hipStreamCreateWithPriority", "+stream"), count("hipStreamDestroy", "-stream")
        count("hipEventCreateWithFlags", "+event"), count("hipEventDestroy", "-event")
        HipBackend()  # the stream and the memory of the device's tensors, which stay
        counts.clear()
        kept = make()
        assert counts == {"memory": 1, "stream": 1, "event": 1}, counts
        kept[2].close()
        del kept
        gc.collect()
        assert counts == {"memory": 0, "stream": 0, "event": 0}, counts
        """
    )


def test_nothing_is_left_in_a_loop(run):
    run(
        """
        make()
        gc.collect()
        before = HipDevice(0).memory().free
        for _ in range(50):
            make()
        gc.collect()
        assert HipDevice(0).memory().free == before
        """
    )


def test_a_forked_child_leaves_its_parents_handles(run):
    said = run(
        """
        from hip import hip
        def free(address):
            print("freed in", "the child" if os.getpid() != parent else "the parent", flush=True)
            return original(address)
        parent, original = os.getpid(), hip.hipFree
        kept = make()
        hip.hipFree = free
        child = os.fork()
        if child == 0:
            kept.clear()
            gc.collect()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert kept[3].to_bytes(stream=kept[2])[:3] == b"\\1\\1\\1"
        kept.clear()
        gc.collect()
        """
    )
    assert said.splitlines() == ["freed in the parent"]


def test_a_forked_child_is_told_that_it_has_no_gpu(run):
    run(
        """
        from hip import hip
        from tallow.runtime.base.error import BackendUnavailable
        from tallow.drivers import rocm as driver

        def refuses(call):
            try:
                call()
            except BackendUnavailable as error:
                assert str(error).endswith("start processes with multiprocessing.get_context('spawn')"), error
            else:
                raise AssertionError("no error")

        device, backend, stream, buffer, view, event, null = make()
        if os.fork() == 0:
            # No call reaches the runtime, which may wait for ever for threads that no child has.
            for name in driver.FUNCTIONS:
                setattr(hip, name, None)
            for opening in (lambda: HipDevice(0), HipBackend, device_count, runtime_version, require_runtime):
                refuses(opening)
            for making in (lambda: HipStream(device), lambda: HipEvent(device), lambda: HipBuffer(device, 8)):
                refuses(making)
            for opened in (stream, null):
                refuses(lambda: opened.handle)
                refuses(opened.synchronize)
                refuses(lambda: buffer.fill(2, stream=opened))
            for call in (view.to_bytes, lambda: view.address, event.query, event.synchronize, backend.synchronize):
                refuses(call)
            refuses(lambda: event.record(stream))
            refuses(device.synchronize)
            refuses(device.set_current)
            with contextlib.suppress(BackendUnavailable), stream:
                pass
            for opened in (stream, null, buffer, view, event):
                assert opened.closed
                opened.close()
            backend.close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        assert buffer.to_bytes(stream=stream)[:3] == b"\\1\\1\\1"
        backend.synchronize()
        """
    )


def test_a_child_of_a_process_that_opened_no_gpu_opens_its_own(run):
    run(
        """
        if os.fork() == 0:
            make()[2].synchronize()
            if os.fork() == 0:
                try:
                    make()
                except Exception:
                    os._exit(5)
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 5
        make()
        """
    )


@pytest.mark.parametrize(
    "use",
    [
        "HipStream(device)",
        "HipStream(device).close()",
        "HipEvent(device)",
        "HipEvent(device).record(stream).close()",
        "HipBuffer(device, 100)",
        "HipBuffer(device, 100).view(8).fill(1, stream=stream)",
        "HipHostBuffer(device, 100)",
        "HipHostBuffer(device, 100).array().fill(1)",
        "buffer.copy_from_host(HipHostBuffer(device, 100), stream=stream, wait=False)",
        "buffer.copy_to_host(bytearray(100), stream=stream, wait=False)",
        "AsyncLoader(device)",
        "AsyncLoader(device).upload_auto(buffer, bytes(100))",
        "loader.upload_auto(buffer, bytes(100))",
        "HipStream.wrap(device, stream.address).synchronize()",
        "HipBuffer.wrap(device, buffer.address, 8, list)",
        "HipModule(device, image)",
        "HipModule(device, image).kernel('nothing', 0).launch((1, 1, 1), (1, 1, 1), b'', stream)",
        "HipBackend()",
        "HipBackend().load_module('nothing', image)",
        "with HipBackend() as backend: backend.load_module('nothing', image)",
        "backend.launch(backend.get_kernel('nothing', 'nothing', 0), (1, 1, 1), (1, 1, 1), b'')",
        "backend.allocate_buffer_safe(100), backend.event(), backend.gpu_status()",
        "DeviceTensor.empty((4,))",
        "DeviceTensor.from_host(numbers)",
        "DeviceTensor.from_mmap(numbers, 4, (2,))",
        "DeviceTensor.from_buffer(HipBuffer(device, 100), (4,))",
        "DeviceTensor.from_pool(buffer, 4, (4,)).copy_from_host(numbers)",
        "DeviceTensor.from_tensor(tensor.to_tensor()).to_tensor().add(1.0).numpy()",
        "backend.add_inplace(tensor, tensor), backend.scale_inplace(tensor, 0.5)",
        "backend.layernorm(tensor, tensor), backend.add_row_bias(matrix, tensor)",
        "backend.mlp_swiglu(matrix, matrix, matrix, matrix)",
        "load_safetensors(file, device='rocm')",
        "UserKernels(rocm.driver, open_cache()).get(rocm, 'nothing', 'nothing', source, (), None)",
        "Kernel.compile('twice', twice, 'rocm', signature='float*, unsigned long long').launch(1, 4, numbers_there, 4)",
        "GpuDriver(driver, 0)",
        "RocBlas.open(rocm.driver, rocm.allocator)",
        "Miopen.open(rocm.driver, rocm.allocator)",
        "rocm.driver.load(image, 'nothing')",
    ],
)
def test_many_cycles_leave_nothing(rocm, host, monkeypatch, full, use):
    """Neither memory nor handles, as the runtime for the CPU counts them; a thousand cycles with --full."""
    monkeypatch.setattr(loader_module, "SLOT_BYTES", 1 << 10)
    device = HipDevice(0)
    image = rocm.driver.compile(NOTHING, "nothing", {})
    with hip.HipBackend() as backend, hip.AsyncLoader(device) as loader, hip.HipStream(device) as stream:
        backend.load_module("nothing", image)
        numbers = np.ones(4, np.float32)
        inputs = vars(hip) | {
            "GpuDriver": GpuDriver,
            "driver": driver,
            "Kernel": Kernel,
            "UserKernels": UserKernels,
            "open_cache": open_cache,
            "file": FILE,
            "load_safetensors": load_safetensors,
            "numbers_there": Tensor.from_numpy(numbers, "rocm"),
            "source": NOTHING,
            "twice": TWICE,
            "Miopen": Miopen,
            "RocBlas": RocBlas,
            "backend": backend,
            "buffer": hip.HipBuffer(device, 100),
            "device": device,
            "image": image,
            "loader": loader,
            "matrix": hip.DeviceTensor.from_host(np.ones((4, 4), np.float32)),
            "numbers": numbers,
            "rocm": rocm,
            "stream": stream,
            "tensor": hip.DeviceTensor.from_host(numbers),
        }
        cycle = compile(use, "cycle", "exec")

        def live() -> tuple[dict[str, int], int]:
            gc.collect()
            rocm.allocator.empty_cache()
            return host.live_all(), device.memory().free

        for _ in range(50):
            exec(cycle, inputs)
        before = live()
        cycles = 1000 if full else 80
        # What other threads of the tests allocate meanwhile they do not allocate again and again.
        for _ in range(5):
            blocks = sys.getallocatedblocks()
            for _ in range(cycles):
                exec(cycle, inputs)
            now, left = live(), sys.getallocatedblocks() - blocks
            if left < cycles // 2:
                break
        # What was copied last may still be kept.
        assert all(count <= before[0].get(kind, 0) + 1 for kind, count in now[0].items())
        assert now[1] == before[1]
        assert left < cycles // 2, "objects of Python's are left"
