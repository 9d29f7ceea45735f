"""Faults of HIP and hiprtc: each gives its clear error, and the next op works."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("hip")

from tallow.compilers import rocm as compiler
from tallow.drivers import rocm as driver
from tallow.dtype import DType
from tallow.rocm_backend import RocmDevice
from tallow.rocm_backend.hip import (
    AsyncLoader,
    HipBackend,
    HipBuffer,
    HipDevice,
    HipError,
    HipEvent,
    HipHostBuffer,
    HipModule,
    HipStream,
    device_count,
)
from tallow.rocm_backend.rocblas import RocBlas
from tallow.runtime.backends.backend import Part
from tallow.runtime.backends.gpu_backend.driver import loader
from tallow.runtime.backends.gpu_backend.driver.device import _start
from tallow.runtime.backends.gpu_backend.execute.kernels import Kernels
from tallow.runtime.backends.gpu_backend.ops import memory
from tallow.runtime.base.error import BackendUnavailable, OutOfMemory, TallowError
from tallow.runtime.core.shape import Shape
from tallow.runtime.kernels import code_object

from .filling import fill
from .hip_operations import OF_TWO_DEVICES, OPERATIONS, Kit, public_functions


@pytest.fixture(autouse=True)
def the_next_op_works(rocm):
    yield
    assert fill(rocm) == [9] * 5
    memory.synchronize(rocm)


@pytest.fixture
def fresh(rocm, tmp_path, monkeypatch):
    """Kernels that found nothing yet, with an empty cache and no code objects built ahead."""
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(code_object, "current", lambda path: None)
    return Kernels(rocm.driver)


def test_an_allocation_that_fails_once_is_tried_again(rocm, host):
    rocm.allocator.empty_cache()
    host.fail("hipMalloc")
    assert rocm.run(memory.zeros, Shape((1000,)), DType.F32).to_numpy().sum() == 0


def test_an_allocation_that_fails(rocm, host):
    rocm.allocator.empty_cache()
    held = rocm.storage(np.arange(100))
    host.fail("hipMalloc", -1)
    with pytest.raises(OutOfMemory, match="rocm:0: no memory for 4194304 bytes") as raised:
        rocm.run(memory.zeros, Shape((1 << 20,)), DType.F32)
    assert (raised.value.device, raised.value.nbytes) == ("rocm:0", 1 << 22)
    host.fail(None)
    assert held.to_numpy().tolist() == list(range(100))


def test_memory_that_is_not_taken_back_is_neither_lost_nor_freed_twice(rocm, host):
    gc.collect()  # what the errors of other tests hold
    rocm.allocator.empty_cache()
    before = host.live("device memory"), rocm.allocator.statistics()[:2]
    storages = [rocm.run(memory.zeros, Shape((size,)), DType.U8) for size in (1000, 1000, 5000)]
    del storages
    host.fail("hipFree", -1)
    for _ in range(2):
        with pytest.raises(HipError, match="hipFree"):
            rocm.allocator.empty_cache()
    assert host.live("device memory") == before[0] + 3
    host.fail(None)
    assert rocm.run(memory.zeros, Shape((1000,)), DType.U8).to_numpy().sum() == 0
    rocm.allocator.empty_cache()
    assert (host.live("device memory"), rocm.allocator.statistics()[:2]) == before


@pytest.mark.parametrize(
    ("call", "kind", "make"),
    [
        ("hipFree", "device memory", lambda rocm: HipBuffer(rocm.driver.device, 100)),
        ("hipHostFree", "host memory", lambda rocm: HipHostBuffer(rocm.driver.device, 100)),
        ("hipStreamDestroy", "stream", lambda rocm: HipStream(rocm.driver.device)),
        ("hipEventDestroy", "event", lambda rocm: HipEvent(rocm.driver.device)),
        ("hipModuleUnload", "module", lambda rocm: HipModule(rocm.driver.device, code_of(rocm))),
        ("hipblasDestroy", "hipblas handle", lambda rocm: RocBlas.open(rocm.driver, rocm.allocator)),
    ],
)
def test_what_cannot_be_closed_stays_open_and_is_closed_later(rocm, host, call, kind, make):
    before = host.live(kind)
    opened = make(rocm)
    host.fail(call)
    with pytest.raises(TallowError, match=call):
        opened.close()
    assert (opened.closed, host.live(kind)) == (False, before + 1)
    opened.close()
    opened.close()
    assert (opened.closed, host.live(kind)) == (True, before)


def code_of(rocm) -> bytes:
    return rocm.kernels._compiled("fill", "fill_b32_contiguous", bytes)


def test_a_backend_that_cannot_be_closed_is_closed_later(rocm, host):
    before = host.live("module"), host.live("stream")
    backend = HipBackend()
    backend.load_module("fill", code_of(rocm))
    host.fail("hipModuleUnload")
    with pytest.raises(HipError, match="hipModuleUnload"):
        backend.close()
    assert (host.live("module"), host.live("stream")) == (before[0] + 1, before[1])
    backend.close()
    assert (host.live("module"), host.live("stream")) == before


def test_a_copy_that_fails(rocm, host):
    host.fail("hipMemcpyAsync")
    with pytest.raises(HipError, match=r"hipMemcpyAsync \(80 bytes from the host to rocm:0\)"):
        rocm.storage(np.arange(10))


def test_a_launch_that_fails(rocm, host):
    fill(rocm)
    host.fail("hipModuleLaunchKernel")
    with pytest.raises(HipError, match="fill_b32_contiguous on rocm:0"):
        fill(rocm)


def test_a_module_that_does_not_load(rocm, host, fresh):
    host.fail("hipModuleLoadData")
    with pytest.raises(HipError, match="fill_b32_contiguous on rocm:0"):
        fill(rocm, fresh)
    assert fill(rocm, fresh) == [9] * 5


def test_a_compiler_that_fails(rocm, host, fresh):
    host.fail("hiprtcCreateProgram")
    message = r"hiprtcCreateProgram \(fill_b32_contiguous\): HIPRTC_ERROR_PROGRAM_CREATION_FAILURE"
    with pytest.raises(TallowError, match=message):
        fill(rocm, fresh)
    assert fill(rocm, fresh) == [9] * 5
    assert host.live("program") == 0


def test_a_compiler_that_is_missing(rocm, fresh, monkeypatch):
    class Missing:
        @staticmethod
        def has_symbol(name):
            return name == "hiprtcVersion"

    monkeypatch.setattr(compiler, "binding", Missing)
    monkeypatch.delitem(vars(rocm.driver.compiler), "version", raising=False)
    monkeypatch.delitem(vars(rocm.driver.compiler), "_numbers", raising=False)
    with pytest.raises(BackendUnavailable, match=r"lacks hiprtcCompileProgram.*install ROCm"):
        fill(rocm, fresh)


def test_a_runtime_of_the_wrong_version(rocm, monkeypatch):
    class Old:
        def __getattr__(self, name):
            return getattr(real, name)

        @staticmethod
        def has_symbol(name):
            return name != "hipMemsetD8Async" and real.has_symbol(name)

    real = driver.binding
    monkeypatch.setattr(driver, "binding", Old())
    _start.cache_clear()
    with pytest.raises(BackendUnavailable, match="lacks hipMemsetD8Async; install ROCm"):
        RocmDevice(1)
    monkeypatch.undo()
    _start.cache_clear()


@pytest.mark.parametrize("call", ["hipEventRecord", "hipStreamWaitEvent"])
@pytest.mark.parametrize("order", ["wait_for", "let_wait"])
def test_streams_that_cannot_wait_for_each_other(rocm, host, call, order):
    host.fail(call)
    getattr(rocm.driver, order)(rocm.driver.stream)
    with pytest.raises(HipError, match=rf"{call} \(rocm:0\)"):
        getattr(rocm.driver, order)(0)
    getattr(rocm.driver, order)(0)


@pytest.mark.parametrize(
    ("call", "nth"),
    [
        ("hipHostMalloc", 1),
        *((call, nth) for call in ("hipStreamCreate", "hipEventQuery") for nth in (1, 3)),
        *((call, nth) for call in ("hipEventCreate", "hipMemcpyAsync", "hipEventRecord") for nth in (1, 2, 6)),
        *((call, nth) for call in ("hipStreamWaitEvent", "hipEventSynchronize") for nth in (1, 6)),
    ],
)
def test_a_load_that_fails_leaves_the_loader_usable(rocm, host, call, nth, monkeypatch):
    """The error names the call; nothing that was enqueued before reads memory that serves again."""
    monkeypatch.setattr(loader, "SLOT_BYTES", 1 << 12)
    rocm.loader.close()
    data = np.arange(1 << 13, dtype=np.int32)

    def read_into(target: memoryview, begin: int) -> None:
        target[:] = data.view(np.uint8).data[begin : begin + target.nbytes]

    part = Part(DType.I32, data.size, read_into)
    host.fail(call, nth)
    with pytest.raises(HipError, match=call):
        for _ in range(6):
            rocm.load([part])
    host.fail(None)
    assert (rocm.load([part])[0].to_numpy() == data).all()
    rocm.loader.close()


@pytest.mark.parametrize("call", ["hipHostFree", "hipEventSynchronize", "hipEventDestroy", "hipStreamDestroy"])
def test_a_loader_that_cannot_be_closed_is_closed_later(rocm, host, call):
    gc.collect()  # what the errors of other tests hold
    kinds = "host memory", "event", "stream"
    before = [host.live(kind) for kind in kinds]
    loader = AsyncLoader(rocm.driver.device)
    buffer = HipBuffer(rocm.driver.device, 100)
    loader.upload_auto(buffer, bytes(100))
    host.fail(call)
    with pytest.raises(HipError, match=call):
        loader.close()
    loader.close()
    assert [host.live(kind) for kind in kinds] == before
    assert buffer.to_bytes() == bytes(100)


@pytest.mark.parametrize("call", ["hipMemcpyAsync", "hipEventCreate", "hipEventRecord"])
@pytest.mark.parametrize("way", ["copy_from_host", "copy_to_host"])
def test_a_copy_that_does_not_wait_and_fails(rocm, host, call, way):
    buffer, memory = HipBuffer(rocm.driver.device, 100), bytearray(100)
    with HipStream(rocm.driver.device) as stream:
        host.fail(call)
        with pytest.raises(HipError, match=call):
            getattr(buffer, way)(memory, stream=stream, wait=False)
        getattr(buffer, way)(memory, stream=stream, wait=False).synchronize()


def test_memory_of_a_copy_without_an_event_is_waited_for(rocm, host):
    device = HipDevice(0)
    with HipBuffer(device, 8) as buffer, HipHostBuffer(device, 8) as memory, HipStream(device) as stream:
        host.fail("hipEventCreate")

        def copy() -> None:
            with pytest.raises(HipError, match="hipEventCreate"):
                buffer.copy_from_host(memory, stream=stream, wait=False)

        assert host.calls_of(copy)[-1] == "hipStreamSynchronize"


def test_memory_of_a_copy_that_may_be_under_way_is_kept(rocm, host):
    device = HipDevice(0)
    with HipBuffer(device, 8) as buffer, HipStream(device) as stream:
        before = host.live("host memory")
        buffer.copy_from_host(HipHostBuffer(device, 8), stream=stream, wait=False)
        host.fail("hipEventQuery", 1, NOT_SUPPORTED)
        buffer.copy_from_host(bytes(8), stream=stream, wait=False)
        assert host.live("host memory") == before + 1
        stream.synchronize()
        buffer.copy_from_host(bytes(8), stream=stream, wait=False)
        assert host.live("host memory") == before


# hipErrorNotSupported, which no function here takes for an answer.
NOT_SUPPORTED = 801
# What is given back when nobody asked for it just then: by garbage collection, or behind another error.
GIVES_BACK = re.compile("hip(Free|HostFree|EventDestroy|GraphDestroy)|hiprtcDestroyProgram|miopenDestroy.*")
# The memory of a tensor that is dropped waits for other streams; where it cannot, the host does.
WAITS = {"hipGetDevice", "hipSetDevice", "hipEventRecord", "hipStreamWaitEvent"}
# The compiler's own words.
OTHER_NAMES = {"hiprtcCompileProgram": "hiprtc .* does not compile kernel"}


@pytest.fixture
def still(tmp_path, monkeypatch) -> Iterator[None]:
    """Nothing but the operation makes calls: no garbage collection, which then looks at new objects alone.

    Nothing that was compiled before is found.
    """
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path))
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


def test_every_public_function_is_among_the_operations():
    assert not set(public_functions()) - OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_call_fails_once(rocm, host, still, name):
    """The error names the call, the next op works, and nothing is left behind."""
    sweep(rocm, host, name)


# Without --full a third of the operations, as each of their calls fails above too.
@pytest.mark.parametrize(
    "name",
    [
        *OF_TWO_DEVICES,
        *(pytest.param(name, marks=[pytest.mark.full] * (place % 3 > 0)) for place, name in enumerate(OPERATIONS)),
    ],
)
def test_every_call_fails_once_where_another_device_is_current(host, still, name):
    if device_count() < 2:
        pytest.skip("needs two devices")
    sweep(RocmDevice(1), host, name)


def sweep(rocm, host, name: str) -> None:
    operation = (OPERATIONS | OF_TWO_DEVICES)[name]
    fill(rocm)
    rocm.driver.wait_for(0)
    # The second time a call is recorded, and the third time it has a plan.
    for times in range(3):
        kit = Kit(rocm)
        results: list[object] = []
        calls = host.calls_of(lambda kit=kit, results=results: results.append(operation(kit)))
        kit.close()
        if times == 0:
            before = host.live_all()
    lost = 0
    for number, call in enumerate(calls):
        kit = Kit(rocm)
        own_code = NOT_SUPPORTED if re.match("hip[A-Z]", call) else 0
        host.fail(call, calls[: number + 1].count(call), own_code)
        try:
            result = operation(kit)
        except TallowError as raised:
            assert re.search(OTHER_NAMES.get(call, call), str(raised)), f"call {number}, {call}"
            del raised
        else:
            assert result == results[0], f"call {number}, {call}"
            assert (
                GIVES_BACK.fullmatch(call)
                or (call in WAITS and name == "memory of a tensor that is dropped")
                # A launch may fail because another device is current.
                or (call in ("hipModuleLaunchKernel", "hipGraphLaunch") and rocm.ordinal > 0)
            ), f"call {number}, {call}, is ignored"
            lost += 1
        host.fail(None)
        assert fill(rocm) == [9] * 5
        kit.close()
    live = host.live_all()
    assert sum(live.values()) <= sum(before.values()) + lost, (calls, before, live)
    kit = Kit(rocm)
    assert operation(kit) == results[0]
    kit.close()


def test_every_function_of_hip_is_made_to_fail(rocm, host, still):
    """The operations call all that the objects need of the runtime."""
    called: set[str] = set()
    operations = OPERATIONS if device_count() < 2 else OPERATIONS | OF_TWO_DEVICES
    for operation in operations.values():
        kit = Kit(rocm)
        called |= set(host.calls_of(lambda kit=kit, operation=operation: operation(kit)))
        kit.close()
    # Variants share a name, and some functions cannot fail.
    never = {"hipGetLastError", "hipGetErrorString"}
    # Here devices reach each other by copies alone, unless the environment says otherwise.
    of_peers = {name for name in driver.FUNCTIONS if "Peer" in name and operations is OPERATIONS}
    of_peers.add("hipDeviceEnablePeerAccess")
    # Another process opens what one shares: see tests of ranks.
    of_processes = {"hipIpcOpenMemHandle", "hipIpcCloseMemHandle"}
    missing = {name for name in driver.FUNCTIONS if not any(name.startswith(call) for call in called)}
    assert missing - never - of_peers - of_processes == set()
