"""Streams, events, buffers and pinned memory, which every vendor has: what they do, and that they leave nothing."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from tallow import DeviceMismatch, InvalidArgument, OutOfMemory
from tallow.runtime.backends.gpu_backend.driver import stream as stream_module
from tallow.runtime.backends.gpu_backend.driver.error import Closed, DriverError


@pytest.fixture
def device(objects):
    return objects.Device(0)


@pytest.fixture
def other(objects):
    """A second device."""
    try:
        return objects.Device(1)
    except InvalidArgument:
        pytest.skip("needs two devices")


@pytest.fixture
def stream(objects, device):
    with objects.Stream(device) as stream:
        yield stream


def numbers(nbytes: int) -> np.ndarray:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)


# ---- Streams and events


def test_a_stream_waits_for_an_event_of_another(objects, device, stream):
    buffer, copy = objects.Buffer(device, 1 << 20), objects.Buffer(device, 1 << 20)
    with objects.Stream(device) as first:
        buffer.fill(7, stream=first)
        with first.record() as mark:
            assert not mark.timing
            stream.wait(mark)
        copy.copy_from(buffer, stream=stream)
        assert copy.to_bytes(stream=stream) == b"\7" * (1 << 20)
        assert first.query()


def test_events_measure_time(objects, device, stream):
    with objects.Event(device) as start, objects.Event(device) as stop:
        with pytest.raises(DriverError, match="EventElapsedTime"):
            start.elapsed_ms(stop)
        start.record(stream)
        stop.record(stream)
        assert 0 <= start.elapsed_ms(stop) < 60_000
        assert stop.query()
        with objects.Event(device, timing=False) as mark, pytest.raises(InvalidArgument, match="timing=True"):
            start.elapsed_ms(mark)


def test_what_is_closed_says_so(objects, device):
    stream, event, buffer, host = (
        objects.Stream(device),
        objects.Event(device, timing=False, blocking=True),
        objects.Buffer(device, 8),
        objects.HostBuffer(device, 8),
    )
    for opened in (stream, event, buffer, host):
        opened.close()
        opened.close()
        assert opened.closed
        with pytest.raises(Closed, match=f"<{type(opened).__name__}.*:0> is closed"):
            opened.__enter__()
    uses = (
        stream.synchronize,
        stream.record,
        lambda: stream.address,
        event.query,
        event.synchronize,
        lambda: buffer.address,
        buffer.to_bytes,
        lambda: host.address,
        host.array,
        lambda: objects.Buffer(device, 8).copy_from_host(host),
    )
    for use in uses:
        with pytest.raises(Closed):
            use()


def test_the_default_stream_is_left_to_its_owner(objects, device):
    with objects.Stream.null(device) as null:
        null.synchronize()
        assert null.query()
    objects.Stream.null(device).synchronize()


# ---- Device memory


def test_device_memory(objects, device, stream):
    data = numbers(1000)
    with objects.Buffer(device, 1000) as buffer, objects.Buffer(device, 1000) as copy:
        buffer.copy_from_host(data, stream=stream)
        copy.copy_from(buffer, offset=10, source_offset=20, nbytes=100, stream=stream)
        copy.fill(0xABCD, itemsize=2, offset=200, nbytes=4, stream=stream)
        copy.fill(0x12345678, itemsize=4, offset=204, nbytes=4, stream=stream)
        assert copy.to_bytes(offset=10, nbytes=100, stream=stream) == data[20:120].tobytes()
        assert copy.view(200, 8).to_bytes(stream=stream) == bytes.fromhex("cdabcdab78563412")
        with pytest.raises(InvalidArgument, match=r"copy_from: .*overlap"):
            copy.copy_from(copy, offset=1, nbytes=10)
        with pytest.raises(InvalidArgument, match=r"Buffer.view: 11 bytes at offset 990 reach outside"):
            copy.view(990, 11)


def test_memory_that_no_device_has(objects, device):
    with pytest.raises(DriverError) as raised:
        objects.Buffer(device, 1 << 50)
    assert raised.value.out_of_memory
    for kind in (objects.Buffer, objects.HostBuffer):
        with pytest.raises(OutOfMemory):
            kind(device, 1 << 64)
        with pytest.raises(InvalidArgument, match=f"{kind.__name__}: a size is 0 or more, not -1"):
            kind(device, -1)


# ---- Pinned memory


def test_pinned_memory_is_numpys_too(objects, device, stream):
    data = numbers(4096)
    with objects.HostBuffer(device, 4096) as host, objects.Buffer(device, 4096) as buffer:
        host.array()[:] = data
        assert host.array(np.float16).shape == (2048,)
        assert host.array().ctypes.data == host.address
        buffer.copy_from_host(host, stream=stream)
        host.array()[:] = 0
        buffer.copy_to_host(host.array(np.int64)[:256], offset=2048, stream=stream)
        assert host.array()[:2048].tobytes() == data[2048:].tobytes()
        assert not host.array()[2048:].any()
        for dtype in (np.dtype("V3"), object):
            with pytest.raises(
                InvalidArgument, match=r"HostBuffer.array: 4096 bytes are no multiple of items of dtype"
            ):
                host.array(dtype)


def test_no_pinned_memory(objects, device):
    with objects.HostBuffer(device, 0) as host:
        assert (host.address, host.nbytes, host.array().size) == (0, 0, 0)
        objects.Buffer(device, 8).copy_from_host(host)


@pytest.fixture
def freed(objects, monkeypatch):
    """The addresses of pinned memory that was given back."""
    addresses = []
    free = objects.HostBuffer._free

    def freeing(device, address):
        addresses.append(address)
        free(device, address)

    monkeypatch.setattr(objects.HostBuffer, "_free", staticmethod(freeing))
    return addresses


def test_pinned_memory_is_given_back_once_and_never_under_an_array(objects, device, freed):
    host = objects.HostBuffer(device, 64)
    address = host.address
    host.close()
    host.close()
    assert freed == [address]
    with objects.HostBuffer(device, 64) as host:
        array = host.array(np.int32)
        array[:] = range(16)
    assert host.closed
    assert freed == [address]
    assert array.sum() == 120
    del array
    gc.collect()
    assert len(freed) == 2
    forgotten = objects.HostBuffer(device, 64)
    part = forgotten.array()[8:]
    del forgotten
    gc.collect()
    assert part.size == 56
    assert len(freed) == 2
    del part
    gc.collect()
    assert len(freed) == 3


# ---- Copies that do not wait


@pytest.mark.parametrize("pinned", [True, False])
def test_copies_that_do_not_wait(objects, device, stream, pinned):
    data = numbers(1 << 20)
    source, target = np.empty_like(data), np.empty_like(data)
    if pinned:
        source, target = (objects.HostBuffer(device, data.nbytes).array() for _ in range(2))
    source[:] = data
    with objects.Buffer(device, data.nbytes) as buffer:
        went = buffer.copy_from_host(source, stream=stream, wait=False)
        came = buffer.copy_to_host(target, stream=stream, wait=False)
        assert isinstance(went, objects.Event)
        came.synchronize()
        assert went.query()
        assert came.query()
        np.testing.assert_array_equal(target, data)
        assert buffer.copy_from_host(source, stream=stream) is None
        assert buffer.copy_to_host(target, stream=stream) is None
        buffer.copy_from_host(b"", stream=stream, wait=False).synchronize()


class Memory(bytearray):
    """Host memory that can be watched."""


def test_memory_is_kept_until_a_copy_is_done(objects, device, stream, monkeypatch):
    """Whatever becomes of the event, which is the caller's."""
    stream_module._under_way.clear()
    buffer = objects.Buffer(device, 8)
    memory = Memory(b"abcdefgh")
    gone = weakref.ref(memory)
    with monkeypatch.context() as patch:
        patch.setattr(objects.Event, "query", lambda event: False)
        buffer.copy_from_host(memory, stream=stream, wait=False).close()
        del memory
        gc.collect()
        buffer.copy_from_host(b"", stream=stream, wait=False)
        assert gone() is not None
    stream.synchronize()
    buffer.copy_to_host(Memory(8), stream=stream, wait=False)
    gc.collect()
    assert gone() is None
    stream.synchronize()
    assert buffer.to_bytes() == b"abcdefgh"


def test_pinned_memory_whose_copy_is_done_is_given_back_by_close(objects, device, stream, freed):
    buffer, host = objects.Buffer(device, 8), objects.HostBuffer(device, 8)
    buffer.copy_from_host(host, stream=stream, wait=False)
    stream.synchronize()
    host.close()
    assert len(freed) == 1


def test_many_copies_in_many_streams_keep_little(objects, device):
    buffer = objects.Buffer(device, 8)
    for _ in range(50):
        with objects.Stream(device) as stream:
            for _ in range(5):
                buffer.copy_from_host(b"abcdefgh", stream=stream, wait=False)
    with objects.Stream(device) as stream:
        buffer.copy_from_host(b"abcdefgh", stream=stream, wait=False)
        assert len(stream_module._under_way) == 1


# ---- Two devices


def test_a_copy_from_one_device_to_another(objects, device, other):
    data = numbers(1 << 20)
    here, there = objects.Buffer(device, data.nbytes), objects.Buffer(other, data.nbytes)
    here.copy_from_host(data)
    with objects.Stream(other) as stream:
        there.copy_from(here, stream=stream)
        assert there.to_bytes(stream=stream) == data.tobytes()
        with pytest.raises(DeviceMismatch, match=r":0, .*:1"):
            here.copy_from(there, stream=stream)
        with objects.Event(device) as event, pytest.raises(InvalidArgument, match=r"the event is on .*:0, the stream"):
            event.record(stream)


def test_pinned_memory_serves_every_device(objects, device, other):
    host = objects.HostBuffer(device, 8)
    host.array()[:] = range(8)
    for one in (device, other):
        buffer = objects.Buffer(one, 8)
        with objects.Stream(one) as stream:
            buffer.copy_from_host(host, stream=stream, wait=False)
            assert buffer.to_bytes(stream=stream) == bytes(range(8))


# ---- Nothing is left


def test_what_is_made_and_dropped_leaves_no_memory_of_the_device(objects, device, gpu, full):
    def use():
        with objects.Stream(device) as stream, objects.Event(device) as event:
            buffer = objects.Buffer(device, 1 << 20)
            host = objects.HostBuffer(device, 1 << 12)
            buffer.copy_from_host(host, stream=stream, wait=False)
            event.record(stream)

    use()
    gpu.driver.synchronize_device()

    def lost() -> int:
        before = device.memory()[0]
        for _ in range(10_000 if full else 200):
            use()
        gc.collect()
        return before - device.memory()[0]

    # Others may share the device and take memory meanwhile, but not each time.
    assert any(lost() < 64 << 20 for _ in range(5))
