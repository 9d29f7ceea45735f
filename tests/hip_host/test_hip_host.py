"""The runtime, driven as tallow drives it: through hip-python."""

from __future__ import annotations

import struct
from uuid import uuid4

import numpy as np
import pytest
from hip import hip
from hip_host_driver import TO_DEVICE, TO_HOST, Buffer, CallError, Module, check, compile_source, target

SCALE = """
struct Args { float* values; float factor; unsigned count; };
extern "C" __global__ void __launch_bounds__(256) scale(Args args) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < args.count)
        args.values[index] *= args.factor;
}
"""


def scale_arguments(address: int, factor: float, count: int) -> bytes:
    return struct.pack("<QfI", address, factor, count)


# ---- Devices


def test_the_device_says_what_it_is(host):
    assert check(hip.hipGetDeviceCount()) == 1
    properties = check(hip.hipGetDeviceProperties(0))
    assert properties.name == "HIP on the CPU"
    assert properties.gcnArchName == "host64"
    assert properties.warpSize == 64
    assert properties.maxThreadsPerBlock == 1024
    assert properties.sharedMemPerBlock == 65536
    assert properties.pciBusID == 1
    assert properties.isLargeBar == 0
    attribute = hip.hipDeviceAttribute_t
    assert check(hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeWarpSize, 0)) == 64
    assert check(hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeMaxThreadsPerBlock, 0)) == 1024
    assert check(hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeMultiprocessorCount, 0)) >= 1
    assert check(hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeComputeCapabilityMajor, 0)) == 9
    with pytest.raises(CallError, match="hipErrorInvalidDevice"):
        check(hip.hipSetDevice(1))
    assert check(hip.hipRuntimeGetVersion()) // 10_000_000 == 7


def test_several_devices(run_script):
    result = run_script(
        """
assert check(hip.hipGetDeviceCount()) == 2
first = Buffer(np.arange(8.0))
check(hip.hipSetDevice(1))
second = Buffer(np.zeros(8))
assert check(hip.hipDeviceCanAccessPeer(0, 1)) == 0
check(hip.hipMemcpyPeer(second.pointer, 1, first.pointer, 0, 64))
assert (second.read() == np.arange(8.0)).all()
assert hip.hipMemcpyPeer(second.pointer, 0, first.pointer, 0, 64)[0].name == "hipErrorInvalidValue"
""",
        HIP_HOST_DEVICES="2",
    )
    assert result.returncode == 0, result.stderr


PEERS = """
refused = lambda result: result[0].name
source = Buffer(np.arange(8.0))
check(hip.hipSetDevice(1))
target, stream = Buffer(np.zeros(8)), check(hip.hipStreamCreate())
host = Host()
host.keep_log(True)
"""


def test_peer_access(run_script):
    """It changes what the log says of copies, and nothing else."""
    result = run_script(
        PEERS
        + """
assert [check(hip.hipDeviceCanAccessPeer(*pair)) for pair in ((0, 1), (1, 0), (1, 1))] == [1, 1, 0]
assert refused(hip.hipDeviceCanAccessPeer(0, 2)) == "hipErrorInvalidDevice"
assert refused(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipErrorInvalidDevice"
assert refused(hip.hipDeviceEnablePeerAccess(0, 1)) == "hipErrorInvalidValue"
def copied():
    check(hip.hipMemcpyPeerAsync(target.pointer, 1, source.pointer, 0, 64, stream))
    check(hip.hipStreamSynchronize(stream))
    return host.take_log()
copy = {"call": "hipMemcpyPeer", "bytes": 64, "from": 0, "to": 1}
assert copied() == [copy | {"direct": 0}]
check(hip.hipDeviceEnablePeerAccess(0, 0))
assert refused(hip.hipDeviceEnablePeerAccess(0, 0)) == "hipErrorPeerAccessAlreadyEnabled"
assert copied() == [{"call": "hipDeviceEnablePeerAccess", "device": 1, "peer": 0}, copy | {"direct": 1}]
check(hip.hipDeviceDisablePeerAccess(0))
assert refused(hip.hipDeviceDisablePeerAccess(0)) == "hipErrorPeerAccessNotEnabled"
assert copied() == [copy | {"direct": 0}]
assert (target.read() == np.arange(8.0)).all()
check(hip.hipStreamDestroy(stream))
assert refused(hip.hipMemcpyPeerAsync(target.pointer, 1, source.pointer, 0, 64, stream)) == "hipErrorInvalidHandle"
""",
        HIP_HOST_DEVICES="2",
        HIP_HOST_PEERS="1",
    )
    assert result.returncode == 0, result.stderr


def test_peer_access_that_there_is_not(run_script):
    result = run_script(
        PEERS
        + """
assert check(hip.hipDeviceCanAccessPeer(1, 0)) == 0
assert refused(hip.hipDeviceEnablePeerAccess(0, 0)) == "hipErrorPeerAccessUnsupported"
""",
        HIP_HOST_DEVICES="2",
    )
    assert result.returncode == 0, result.stderr


def test_pinned_memory_is_counted_and_logged(host):
    before = host.live("host memory")
    host.keep_log(True)
    pinned = check(hip.hipHostMalloc(100, 0))
    assert check(hip.hipHostMalloc(0, 0)) is None or not int(check(hip.hipHostMalloc(0, 0)))
    assert host.live("host memory") == before + 1
    assert hip.hipFree(pinned)[0].name == "hipErrorInvalidValue"
    check(hip.hipHostFree(pinned))
    assert hip.hipHostFree(pinned)[0].name == "hipErrorInvalidValue"
    assert host.live("host memory") == before
    log = [(line["call"], line.get("bytes")) for line in host.take_log() if line["address"] == int(pinned)]
    assert log[0] == ("hipHostMalloc", 100)
    assert ("hipHostFree", None) in log


TWO_DEVICES = f"""
module = Module({SCALE!r})
buffer, event, stream = Buffer(np.ones(16, np.float32)), check(hip.hipEventCreate()), check(hip.hipStreamCreate())
check(hip.hipSetDevice(1))
others_module = Module({SCALE!r})
others = Buffer(np.ones(16, np.float32))
others_event, others_stream = check(hip.hipEventCreate()), check(hip.hipStreamCreate())
check(hip.hipSetDevice(0))

def launch(module, stream, buffer):
    module.launch("scale", (1,), (16,), struct.pack("<QfI", buffer.address, 2, 16), stream=stream)

def refusal(call, *arguments):
    try:
        check(call(*arguments) or (0,))
    except CallError as error:
        return error.name
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_a_handle_of_another_device_is_refused(run_script, lazy):
    result = run_script(
        TWO_DEVICES
        + """
assert refusal(hip.hipEventRecord, event, others_stream) == "hipErrorInvalidHandle"
assert refusal(hip.hipEventRecord, others_event, None) == "hipErrorInvalidHandle"
assert refusal(launch, module, others_stream, buffer) == "hipErrorInvalidHandle"
assert refusal(launch, others_module, others_stream, others) == "hipErrorInvalidHandle"
assert refusal(launch, others_module, stream, buffer) == "hipErrorInvalidHandle"
assert refusal(hip.hipMemsetD8Async, others.pointer, 0, 4, stream) == "hipErrorInvalidValue"
assert refusal(hip.hipMemsetD8, others.pointer, 0, 4) == "hipErrorInvalidValue"
# What HIP takes, whichever device is current.
check(hip.hipEventRecord(event, stream))
check(hip.hipEventRecord(others_event, others_stream))
check(hip.hipStreamWaitEvent(others_stream, event, 0))
check(hip.hipMemcpyDtoDAsync(others.pointer, buffer.pointer, 64, others_stream))
check(hip.hipMemsetD8Async(others.pointer, 0, 32, others_stream))
check(hip.hipStreamSynchronize(others_stream))
check(hip.hipEventSynchronize(others_event))
assert refusal(hip.hipEventElapsedTime, event, others_event) == "hipErrorInvalidHandle"
launch(module, stream, buffer)
check(hip.hipStreamSynchronize(stream))
check(hip.hipSetDevice(1))
launch(others_module, others_stream, others)
check(hip.hipSetDevice(0))
check(hip.hipStreamSynchronize(others_stream))
assert (buffer.read() == 2).all() and (others.read() == [0] * 8 + [2] * 8).all()
""",
        HIP_HOST_DEVICES="2",
        HIP_HOST_LAZY=lazy,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_a_kernel_that_touches_the_memory_of_another_device_is_named(run_script, lazy):
    result = run_script(
        TWO_DEVICES + "launch(module, stream, others)\ncheck(hip.hipDeviceSynchronize())",
        HIP_HOST_DEVICES="2",
        HIP_HOST_LAZY=lazy,
    )
    assert result.returncode == -11
    assert (
        "kernel scale, block (0, 0, 0), thread (0, 0, 0): access to memory outside of any allocation of the device"
        in (result.stderr)
    )
    assert "at offset 0 of a live allocation of 64 bytes" in result.stderr
    assert "on device 1" in result.stderr


def test_memory_of_another_device_is_closed_for_a_launch_only(run_script):
    result = run_script(
        TWO_DEVICES
        + """
try:
    launch(module, stream, others)
except CallError as error:
    assert error.name == "hipErrorIllegalAddress"
check(hip.hipDeviceReset())
buffer = Buffer(np.ones(16, np.float32))
launch(module, stream, buffer)
assert (others.read() == 1).all() and (buffer.read() == 2).all()
check(hip.hipFree(others.pointer))
""",
        HIP_HOST_DEVICES="2",
        HIP_HOST_FAULT="error",
    )
    assert result.returncode == 0, result.stderr


def test_threads_use_two_devices_at_once(run_script):
    result = run_script(
        TWO_DEVICES
        + """
from concurrent.futures import ThreadPoolExecutor

def work(ordinal):
    check(hip.hipSetDevice(ordinal))
    own_module, own_stream = ((module, stream), (others_module, others_stream))[ordinal]
    for _ in range(100):
        with Buffer(np.ones(16, np.float32)) as own:
            launch(own_module, own_stream, own)
            assert (own.read() == 2).all()

with ThreadPoolExecutor() as pool:
    assert list(pool.map(work, (0, 1))) == [None, None]
""",
        HIP_HOST_DEVICES="2",
    )
    assert result.returncode == 0, result.stderr


def test_memory_is_freed_when_its_own_device_is_done(run_script):
    result = run_script(
        TWO_DEVICES
        + """
check(hip.hipSetDevice(1))
launch(others_module, others_stream, others)
check(hip.hipSetDevice(0))
check(hip.hipFree(others.pointer))
check(hip.hipStreamSynchronize(others_stream))
""",
        HIP_HOST_DEVICES="2",
        HIP_HOST_LAZY="1",
    )
    assert result.returncode == 0, result.stderr


def test_no_device(run_script):
    result = run_script("print(hip.hipGetDeviceCount()[0].name)", HIP_HOST_DEVICES="0")
    assert result.stdout == "hipErrorNoDevice\n"


# ---- Memory


def test_copies_and_fills():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    with Buffer(values) as buffer, Buffer(np.zeros((4, 6), np.float32)) as other:
        assert (buffer.read() == values).all()
        check(hip.hipMemcpyDtoD(other.pointer, buffer.pointer, values.nbytes))
        assert (other.read() == values).all()
        check(hip.hipMemcpy2D(other.pointer, 24, buffer.address + 4, 24, 8, 4, hip.hipMemcpyKind.hipMemcpyDefault))
        assert (other.read()[:, :2] == values[:, 1:3]).all()
        check(hip.hipMemsetD32(other.pointer, 0x3F800000, 24))
        assert (other.read() == 1).all()
        check(hip.hipMemsetD8Async(other.pointer, 0, 96, None))
        assert (other.read() == 0).all()


@pytest.mark.parametrize("kind", ["hipMemcpyDeviceToDevice", "hipMemcpyDeviceToHost", "hipMemcpyHostToHost"])
def test_a_copy_in_the_wrong_direction_is_refused(kind):
    with Buffer(np.zeros(4)) as buffer, pytest.raises(CallError, match="hipErrorInvalidMemcpyDirection"):
        check(hip.hipMemcpy(buffer.pointer, np.zeros(4), 32, hip.hipMemcpyKind[kind]))


def test_a_copy_past_the_end_is_refused():
    with Buffer(np.zeros(4)) as buffer:
        with pytest.raises(CallError, match="hipErrorInvalidValue"):
            check(hip.hipMemcpy(buffer.pointer, np.zeros(5), 40, TO_DEVICE))
        with pytest.raises(CallError, match="hipErrorInvalidValue"):
            check(hip.hipMemcpy(buffer.address + 8, np.zeros(4), 32, TO_DEVICE))


def test_fresh_memory_is_poisoned_and_freed_memory_is_gone():
    pointer = check(hip.hipMalloc(10))
    result = np.zeros(10, np.uint8)
    check(hip.hipMemcpy(result, pointer, 10, TO_HOST))
    assert (result == 0xCB).all()
    check(hip.hipFree(pointer))
    with pytest.raises(CallError, match="hipErrorInvalidValue"):
        check(hip.hipMemcpy(result, int(pointer), 10, TO_HOST))
    with pytest.raises(CallError, match="hipErrorInvalidValue"):
        check(hip.hipFree(int(pointer)))


def test_pointers_know_what_they_are():
    with Buffer(np.zeros(4)) as buffer:
        attributes = check(hip.hipPointerGetAttributes(buffer.pointer))
        assert attributes.type == hip.hipMemoryType.hipMemoryTypeDevice
        assert attributes.device == 0
    assert hip.hipPointerGetAttributes(np.zeros(4))[0].name == "hipErrorInvalidValue"
    pinned = check(hip.hipHostMalloc(64, 0))
    assert check(hip.hipPointerGetAttributes(pinned)).type == hip.hipMemoryType.hipMemoryTypeHost
    check(hip.hipHostFree(pinned))


def test_memory_runs_out_and_comes_back(run_script):
    result = run_script(
        """
first = check(hip.hipMalloc(700))
assert check(hip.hipMemGetInfo()) == (300, 1000)
assert hip.hipMalloc(301)[0].name == "hipErrorOutOfMemory"
assert hip.hipGetLastError()[0].name == "hipErrorOutOfMemory"
assert hip.hipGetLastError()[0].name == "hipSuccess"
check(hip.hipFree(first))
check(hip.hipMalloc(1000))
""",
        HIP_HOST_MEMORY="1000",
    )
    assert result.returncode == 0, result.stderr


FAULTS = {
    "past the end": (13, "block (1, 0, 0), thread (1, 0, 0)", "0 bytes past the end of a live allocation of 64 bytes"),
    "in front": (-1025, "block (0, 0, 0), thread (0, 0, 0)", "4100 bytes before a live allocation of 64 bytes"),
}
TOUCH = f"""
module = Module('''{SCALE}'''.replace("args.values[index]", "args.values[int(index + args.factor)]"))
buffer = Buffer(np.zeros(16, np.float32))
"""


@pytest.mark.parametrize("place", FAULTS)
def test_a_kernel_that_leaves_its_memory_is_named(run_script, place):
    offset, thread, words = FAULTS[place]
    code = TOUCH + f"module.launch('scale', (3,), (2,), struct.pack('<QfI', buffer.address, {offset}, 4))"
    result = run_script(code)
    assert result.returncode == -11
    assert f"kernel scale, {thread}" in result.stderr
    assert words in result.stderr


def test_use_after_free_is_named(run_script):
    result = run_script(
        TOUCH + "address = buffer.address; check(hip.hipFree(buffer.pointer))\n"
        "module.launch('scale', (1,), (1,), struct.pack('<QfI', address, 0, 4))"
    )
    assert result.returncode == -11
    assert "at offset 0 of a freed allocation of 64 bytes" in result.stderr


def test_a_fault_can_be_an_error_that_stays(run_script):
    result = run_script(
        TOUCH
        + """
try:
    module.launch('scale', (1,), (1,), struct.pack('<QfI', buffer.address, 100, 4))
except CallError as error:
    assert error.name == "hipErrorIllegalAddress"
assert hip.hipMalloc(4)[0].name == "hipErrorIllegalAddress"
assert hip.hipDeviceSynchronize()[0].name == "hipErrorIllegalAddress"
check(hip.hipDeviceReset())
buffer = Buffer(np.ones(16, np.float32))
module.launch('scale', (1,), (1,), struct.pack('<QfI', buffer.address, 0, 4))
assert buffer.read()[0] == 0
""",
        HIP_HOST_FAULT="error",
    )
    assert result.returncode == 0, result.stderr


def test_bytes_beside_an_allocation_are_watched(run_script):
    result = run_script(
        """
module = Module('struct A { char* p; }; extern "C" __global__ void touch(A a) { a.p[0] = 1; }')
pointer = check(hip.hipMalloc(13))
module.launch("touch", (1,), (1,), struct.pack("<Q", int(pointer) + 13))
check(hip.hipFree(pointer))
"""
    )
    assert result.returncode == -6
    assert "bytes beside an allocation were overwritten" in result.stderr
    assert "0 bytes past the end" in result.stderr


# ---- Streams and events


def test_streams_and_events(host):
    streams, events = host.live("stream"), host.live("event")
    stream = check(hip.hipStreamCreateWithFlags(1))
    start, stop = check(hip.hipEventCreate()), check(hip.hipEventCreateWithFlags(0))
    assert hip.hipEventElapsedTime(start, stop)[0].name == "hipErrorInvalidHandle"
    check(hip.hipEventRecord(start, stream))
    check(hip.hipEventRecord(stop, stream))
    check(hip.hipStreamWaitEvent(stream, stop, 0))
    check(hip.hipEventSynchronize(stop))
    assert check(hip.hipEventElapsedTime(start, stop)) >= 0
    check(hip.hipEventQuery(stop))
    check(hip.hipStreamQuery(stream))
    assert (host.live("stream"), host.live("event")) == (streams + 1, events + 2)
    for event in (start, stop):
        check(hip.hipEventDestroy(event))
    check(hip.hipStreamDestroy(stream))
    assert hip.hipStreamSynchronize(stream)[0].name == "hipErrorInvalidHandle"
    assert (host.live("stream"), host.live("event")) == (streams, events)


def test_lazy_streams_run_when_something_waits(run_script):
    result = run_script(
        """
stream, other = check(hip.hipStreamCreateWithFlags(1)), check(hip.hipStreamCreateWithFlags(1))
buffer = Buffer(np.zeros(4, np.uint8))
pinned = check(hip.hipHostMalloc(4, 0))
view = np.ctypeslib.as_array(ctypes.cast(int(pinned), ctypes.POINTER(ctypes.c_uint8)), (4,))
view[:] = 7
check(hip.hipMemcpyAsync(buffer.pointer, pinned, 4, TO_DEVICE, stream))
event = check(hip.hipEventCreate())
check(hip.hipEventRecord(event, stream))
view[:] = 9  # too early: the copy has not run
assert (buffer.read() == 0).all()
check(hip.hipStreamWaitEvent(other, event, 0))
check(hip.hipStreamSynchronize(other))
assert (buffer.read() == 9).all()
check(hip.hipMemsetAsync(buffer.pointer, 1, 4, stream))
assert hip.hipStreamQuery(stream)[0].name == "hipErrorNotReady"
assert hip.hipStreamQuery(stream)[0].name == "hipSuccess"
assert (buffer.read() == 1).all()
""",
        HIP_HOST_LAZY="1",
    )
    assert result.returncode == 0, result.stderr


# ---- Graphs

RELAXED = hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed


@pytest.fixture
def captured():
    """A stream that is captured until the test ends its capture."""
    stream = check(hip.hipStreamCreateWithFlags(1))
    check(hip.hipStreamBeginCapture(stream, RELAXED))
    yield stream
    check(hip.hipStreamDestroy(stream))


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_a_graph_does_at_each_launch_what_was_captured(run_script, lazy):
    result = run_script(
        """
module = Module('struct A { unsigned* p; }; extern "C" __global__ void add(A a) { a.p[0] += 1; }')
counter, seen = Buffer(np.zeros(1, np.uint32)), Buffer(np.zeros(1, np.uint32))
stream, other = check(hip.hipStreamCreateWithFlags(1)), check(hip.hipStreamCreateWithFlags(1))
check(hip.hipStreamBeginCapture(stream, hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed))
module.launch("add", (1,), (1,), struct.pack("<Q", counter.address), stream=stream)
check(hip.hipMemcpyDtoDAsync(seen.pointer, counter.pointer, 4, stream))
check(hip.hipMemsetD32Async(counter.pointer, 5, 1, stream))
graph = check(hip.hipStreamEndCapture(stream))
assert counter.read()[0] == 0, "nothing is done by a capture"
executable = check(hip.hipGraphInstantiateWithFlags(graph, 0))
check(hip.hipGraphDestroy(graph))
for expected in (1, 6):
    check(hip.hipGraphLaunch(executable, other))
    if int(HIP_HOST_LAZY):
        assert hip.hipGraphExecDestroy(executable)[0].name == "hipErrorInvalidValue", "it is under way"
    check(hip.hipStreamSynchronize(other))
    assert (seen.read()[0], counter.read()[0]) == (expected, 5)
check(hip.hipGraphExecDestroy(executable))
assert hip.hipGraphLaunch(executable, other)[0].name == "hipErrorInvalidValue"
assert {kind: Host().live(kind) for kind in ("graph", "graph exec")} == {"graph": 0, "graph exec": 0}
""".replace("HIP_HOST_LAZY", lazy),
        HIP_HOST_LAZY=lazy,
    )
    assert result.returncode == 0, result.stderr


UNSUPPORTED = "hipErrorStreamCaptureUnsupported"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda stream: hip.hipStreamSynchronize(stream), UNSUPPORTED),
        (lambda stream: hip.hipStreamQuery(stream), UNSUPPORTED),
        (lambda stream: hip.hipDeviceSynchronize(), UNSUPPORTED),
        (
            lambda stream: hip.hipStreamWaitEvent(stream, check(hip.hipEventCreate()), 0),
            "hipErrorStreamCaptureIsolation",
        ),
        (lambda stream: hip.hipMemcpyHtoDAsync(check(hip.hipMalloc(4)), np.zeros(4, np.uint8), 4, stream), UNSUPPORTED),
        (lambda stream: hip.hipMemcpyDtoHAsync(np.zeros(4, np.uint8), check(hip.hipMalloc(4)), 4, stream), UNSUPPORTED),
    ],
)
def test_what_waits_or_reaches_the_host_makes_a_capture_invalid(captured, call, error):
    assert call(captured)[0].name == error
    assert hip.hipStreamEndCapture(captured)[0].name == "hipErrorStreamCaptureInvalidated"
    check(hip.hipStreamSynchronize(captured))


def recorded_in(stream):
    event = check(hip.hipEventCreate())
    check(hip.hipEventRecord(event, stream))
    return event


def test_a_stream_that_waits_for_a_captured_one_is_captured_until_that_waits_for_it(captured):
    other = check(hip.hipStreamCreateWithFlags(1))
    with Buffer(np.zeros(4, np.uint8)) as buffer:
        forked = recorded_in(captured)
        check(hip.hipStreamWaitEvent(other, forked, 0))
        check(hip.hipMemsetAsync(buffer.pointer, 7, 4, other))
        assert hip.hipEventSynchronize(forked)[0].name == "hipErrorCapturedEvent"
        assert hip.hipStreamEndCapture(other)[0].name == "hipErrorStreamCaptureUnmatched"
        check(hip.hipStreamWaitEvent(captured, recorded_in(other), 0))
        check(hip.hipMemsetAsync(buffer.pointer, 5, 2, captured))
        graph = check(hip.hipStreamEndCapture(captured))
        check(hip.hipStreamSynchronize(other))
        executable = check(hip.hipGraphInstantiateWithFlags(graph, 0))
        check(hip.hipGraphDestroy(graph))
        assert buffer.read().tolist() == [0, 0, 0, 0]
        check(hip.hipGraphLaunch(executable, captured))
        check(hip.hipStreamSynchronize(captured))
        assert buffer.read().tolist() == [5, 5, 7, 7]
        check(hip.hipGraphExecDestroy(executable))
        assert hip.hipStreamWaitEvent(other, forked, 0)[0].name == "hipErrorStreamCaptureMerge"
    check(hip.hipStreamDestroy(other))


def test_a_capture_waits_for_the_streams_that_came_into_it(captured):
    other = check(hip.hipStreamCreateWithFlags(1))
    check(hip.hipStreamWaitEvent(other, recorded_in(captured), 0))
    assert hip.hipStreamEndCapture(captured)[0].name == "hipErrorStreamCaptureUnjoined"
    check(hip.hipStreamSynchronize(other))
    check(hip.hipStreamDestroy(other))


def test_other_calls_go_on_during_a_capture(captured):
    with Buffer(np.arange(4, dtype=np.uint8)) as buffer:
        assert buffer.read().tolist() == [0, 1, 2, 3]
    other = check(hip.hipStreamCreateWithFlags(1))
    check(hip.hipStreamSynchronize(other))
    check(hip.hipStreamDestroy(other))
    check(hip.hipGraphDestroy(check(hip.hipStreamEndCapture(captured))))


def test_captures_that_are_not_possible(captured):
    assert hip.hipStreamBeginCapture(captured, RELAXED)[0].name == "hipErrorIllegalState"
    graph = check(hip.hipStreamEndCapture(captured))
    assert hip.hipStreamEndCapture(captured)[0].name == "hipErrorIllegalState"
    assert hip.hipGraphInstantiateWithFlags(graph, 0)[0].name == "hipErrorInvalidValue", "it is empty"
    check(hip.hipGraphDestroy(graph))
    assert hip.hipGraphDestroy(graph)[0].name == "hipErrorInvalidValue"
    assert hip.hipStreamBeginCapture(None, RELAXED)[0].name == UNSUPPORTED


LAZY_FILL = """
first, second = check(hip.hipStreamCreateWithFlags(1)), check(hip.hipStreamCreateWithFlags(1))
source, target = Buffer(np.zeros(4, np.uint8)), Buffer(np.zeros(4, np.uint8))
check(hip.hipMemsetAsync(source.pointer, 7, 4, first))
event = check(hip.hipEventCreate())
check(hip.hipEventRecord(event, first))
check(hip.hipStreamWaitEvent(second, event, 0))
check(hip.hipMemcpyDtoDAsync(target.pointer, source.pointer, 4, second))
"""


@pytest.mark.parametrize(
    "change",
    [
        "check(hip.hipEventDestroy(event))",
        "other = check(hip.hipStreamCreateWithFlags(1)); check(hip.hipEventRecord(event, other))",
    ],
)
def test_a_lazy_wait_is_for_what_the_event_was_when_it_was_asked_for(run_script, change):
    """An event may be destroyed, or recorded elsewhere, before the work that waits for it runs."""
    check_it = "\ncheck(hip.hipStreamSynchronize(second))\nassert (target.read() == 7).all()"
    result = run_script(LAZY_FILL + change + check_it, HIP_HOST_LAZY="1")
    assert result.returncode == 0, result.stderr


def test_a_lazy_event_that_was_destroyed_holds_nothing(run_script):
    result = run_script(
        LAZY_FILL
        + """
check(hip.hipEventDestroy(event))
assert Host().live("event") == 0
for call in (hip.hipEventQuery, hip.hipEventSynchronize, hip.hipEventDestroy):
    assert call(event)[0].name == "hipErrorInvalidHandle"
check(hip.hipStreamDestroy(first))
check(hip.hipStreamSynchronize(second))
assert (target.read() == 7).all()
""",
        HIP_HOST_LAZY="1",
    )
    assert result.returncode == 0, result.stderr


def test_a_lazy_copy_to_the_host_waits_for_its_own_stream_only(run_script):
    result = run_script(
        LAZY_FILL
        + """
found = np.zeros(4, np.uint8)
check(hip.hipMemcpyAsync(found, source.pointer, 4, TO_HOST, second))
assert (found == 7).all()
check(hip.hipMemsetAsync(source.pointer, 9, 4, first))
check(hip.hipMemcpyAsync(found, source.pointer, 4, TO_HOST, second))
assert (found == 7).all()
""",
        HIP_HOST_LAZY="1",
    )
    assert result.returncode == 0, result.stderr


# ---- Modules


def test_a_code_object_is_checked_before_it_is_loaded(tmp_path):
    code = compile_source(SCALE)
    wrong_target = code[:16] + b"host16".ljust(16, b"\0") + code[32:]
    gpu = b"\x7fELF" + bytes(14) + b"\xe0\x00" + bytes(100)
    cases = {
        "hipErrorInvalidImage": [code[: len(code) // 2] + bytes(len(code)), b"no code object" + bytes(100)],
        "hipErrorNoBinaryForGpu": [wrong_target, gpu, b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100)],
    }
    for name, images in cases.items():
        for image in images:
            assert hip.hipModuleLoadData(image)[0].name == name
    path = tmp_path / "kernels.co"
    for length in (0, 20, 1000, len(code) - 1):
        path.write_bytes(code[:length])
        assert hip.hipModuleLoad(bytes(path))[0].name == "hipErrorInvalidImage"
    path.write_bytes(code)
    module = check(hip.hipModuleLoad(bytes(path)))
    assert hip.hipModuleGetFunction(module, b"missing")[0].name == "hipErrorNotFound"
    check(hip.hipModuleUnload(module))
    assert hip.hipModuleGetFunction(module, b"scale")[0].name == "hipErrorInvalidHandle"
    assert hip.hipModuleLoad(bytes(tmp_path / "none"))[0].name == "hipErrorFileNotFound"


def test_globals_are_device_memory():
    source = '__device__ int table[4]; extern "C" __global__ void fill() { table[threadIdx.x] = threadIdx.x; }'
    with Module(
        source.replace("__device__", 'extern "C" { __device__', 1).replace("; extern", "; } extern", 1)
    ) as module:
        module.launch("fill", (1,), (4,), b"")
        address, size = check(hip.hipModuleGetGlobal(module.handle, b"table"))
        result = np.zeros(4, np.int32)
        check(hip.hipMemcpy(result, address, size, TO_HOST))
        assert result.tolist() == [0, 1, 2, 3]


# ---- hiprtc


def test_a_compile_error_has_the_name_and_line_of_the_source():
    with pytest.raises(CallError) as failure:
        compile_source('extern "C" __global__ void broken() {\n  undeclared = 1;\n}')
    assert failure.value.name == "HIPRTC_ERROR_COMPILATION"
    assert "test.hip:2:" in failure.value.log and "undeclared" in failure.value.log


def test_an_unknown_target_or_option_is_an_error():
    for option in ("--offload-arch=gfx90a", "--no-such-option"):
        with pytest.raises(CallError, match="HIPRTC_ERROR_COMPILATION"):
            compile_source(SCALE, option)
    other = "host32" if target() == "host64" else "host64"
    assert hip.hipModuleLoadData(compile_source(SCALE, f"--offload-arch={other}"))[0].name == "hipErrorNoBinaryForGpu"


def test_options_reach_the_compiler(tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR GIVEN")
    source = '#include "factor.h"\nextern "C" __global__ void fill(float* out) { *out = FACTOR + OPGEN_WAVE_SIZE; }'
    options = ("-I", str(tmp_path), "-DGIVEN=0.5f", "-Wall", "-Werror", f"--offload-arch={target()}", "-mllvm", "-x")
    with Module(source, *options) as module, Buffer(np.zeros(1, np.float32)) as out:
        module.launch("fill", (1,), (1,), struct.pack("<Q", out.address))
        assert out.read()[0] == 64.5


def test_what_does_not_read_the_wave_size_is_compiled_once(tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("HIP_HOST_CXX", str(compiler))
    for value, compilations in (("gridDim.x", 1), ("warpSize", 2)):
        (tmp_path / "calls").write_text("")
        # A name that no earlier run has compiled.
        source = f'extern "C" __global__ void fill_{uuid4().hex}(float* out) {{ *out = {value}; }}'
        codes = [compile_source(source, f"--offload-arch=host{lanes}") for lanes in (32, 64, 32, 64)]
        assert (tmp_path / "calls").read_text().count("c++-cpp-output") == compilations
        assert codes[:2] == codes[2:] and codes[0] != codes[1], "a code object names its target"


def test_options_for_the_compiler_follow_those_of_the_runtime(monkeypatch):
    monkeypatch.setenv("HIP_HOST_CXXFLAGS", "-O0 -fno-such-option")
    with pytest.raises(CallError, match="-fno-such-option"):
        compile_source(f'extern "C" __global__ void fill_{uuid4().hex}() {{}}')


# ---- Launches


@pytest.mark.parametrize(
    ("grid", "block", "shared", "name"),
    [
        ((0, 1, 1), (1, 1, 1), 0, "hipErrorInvalidConfiguration"),
        ((1, 1, 1), (1, 0, 1), 0, "hipErrorInvalidConfiguration"),
        ((1, 1, 1), (1025, 1, 1), 0, "hipErrorInvalidConfiguration"),
        ((1 << 24, 1, 1), (256, 1, 1), 0, "hipErrorInvalidConfiguration"),
        ((1, 1, 1), (512, 1, 1), 0, "hipErrorLaunchFailure"),
        ((1, 1, 1), (1, 1, 1), 65537, "hipErrorInvalidValue"),
    ],
)
def test_a_launch_outside_of_the_limits_is_refused(grid, block, shared, name):
    with Module(SCALE) as module, Buffer(np.zeros(1)) as buffer, pytest.raises(CallError, match=name):
        module.launch("scale", grid, block, scale_arguments(buffer.address, 1, 0), shared)


def test_arguments_must_have_the_size_of_the_struct():
    with Module(SCALE) as module, Buffer(np.ones(4, np.float32)) as buffer:
        arguments = scale_arguments(buffer.address, 2, 4)
        for wrong in (arguments[:-1], arguments + b"\0"):
            with pytest.raises(CallError, match="hipErrorInvalidValue"):
                module.launch("scale", (1,), (4,), wrong)
        by_pointer = np.frombuffer(arguments, np.uint8).copy()
        check(hip.hipModuleLaunchKernel(module.function("scale"), 1, 1, 1, 4, 1, 1, 0, None, [by_pointer], None))
        assert buffer.read().tolist() == [2, 2, 2, 2]
        assert hip.hipModuleLaunchKernel(module.function("scale"), 1, 1, 1, 4, 1, 1, 0, None, None, None)[0].value == 1


# ---- What tests turn and look at


def test_failures_are_injected(host, run_script):
    host.fail("hipMalloc", 2)
    first = check(hip.hipMalloc(8))
    assert hip.hipMalloc(8)[0].name == "hipErrorOutOfMemory"
    check(hip.hipFree(check(hip.hipMalloc(8))))
    host.fail("hipMalloc", -1, 719)
    assert [hip.hipMalloc(8)[0].name for _ in range(2)] == ["hipErrorLaunchFailure"] * 2
    host.fail("hipMalloc", 0)
    check(hip.hipFree(first))
    code = "print([hip.hipInit(0)[0].value for _ in range(4)])"
    assert run_script(code, HIP_HOST_FAIL="hipMalloc,hipInit:2:999").stdout == "[0, 999, 0, 0]\n"
    assert run_script(code, HIP_HOST_FAIL="hipInit:3+").stdout == "[0, 0, 3, 3]\n"


def test_launches_and_allocations_are_logged(host):
    host.keep_log(True)
    with Module(SCALE) as module, Buffer(np.zeros(4, np.float32)) as buffer:
        module.launch("scale", (2, 1, 1), (2,), scale_arguments(buffer.address, 1, 4))
    log = host.take_log()
    assert [line["call"] for line in log] == ["hipMalloc", "hipModuleLaunchKernel", "hipFree"]
    assert log[0]["bytes"] == 16 and log[0]["address"] == log[2]["address"] == buffer.address
    assert log[1] == {"call": "hipModuleLaunchKernel", "kernel": "scale", "grid": [2, 1, 1], "block": [2, 1, 1],
                      "shared": 0, "stream": 0}  # fmt: skip
    assert host.take_log() == []


def test_nothing_is_left(host):
    kinds = ("device memory", "host memory", "stream", "event", "module", "function", "program")
    before = [host.live(kind) for kind in kinds]
    with Module(SCALE), Buffer(np.zeros(4)):
        pass
    assert [host.live(kind) for kind in kinds] == before
