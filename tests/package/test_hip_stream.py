"""Streams and events: order, time, and what happens after they are closed."""

import gc
import re
from functools import partial

import pytest

pytest.importorskip("hip")

from hip import hip
from tallow.drivers import rocm as driver
from tallow.rocm_backend.hip import HipBuffer, HipClosed, HipDevice, HipError, HipEvent, HipStream, device_count
from tallow.runtime.base.error import BackendUnavailable, InvalidArgument


@pytest.fixture
def device():
    try:
        return HipDevice(0)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def destroyed(monkeypatch):
    """The handles of streams and events that were destroyed, in order."""
    handles = []

    def note(original, handle, about):
        handles.append(int(handle))
        original(handle, about)

    for name in ("destroy_stream", "destroy_event"):
        monkeypatch.setattr(driver, name, partial(note, getattr(driver, name)))
    return handles


def test_a_stream_is_destroyed_once(device, destroyed):
    stream = HipStream(device)
    address = stream.address
    stream.close()
    stream.close()
    assert destroyed == [address]
    assert stream.closed


def test_a_forgotten_stream_is_destroyed(device, destroyed):
    stream = HipStream(device)
    address = stream.address
    del stream
    gc.collect()
    assert destroyed == [address]


def test_a_closed_stream_says_so(device):
    stream = HipStream(device)
    event = HipEvent(device)
    stream.close()
    uses = (stream.synchronize, stream.query, stream.record, lambda: stream.handle, lambda: stream.wait(event))
    for use in (*uses, lambda: event.record(stream), lambda: stream.address, stream.__enter__):
        with pytest.raises(HipClosed, match=re.escape("<HipStream on rocm:0> is closed")):
            use()
    event.close()


def test_a_with_block_waits_and_closes(device, monkeypatch):
    with HipStream(device) as stream:
        waited = []
        original = hip.hipStreamSynchronize
        monkeypatch.setattr(hip, "hipStreamSynchronize", lambda handle: waited.append(1) or original(handle))
    assert waited == [1]
    assert stream.closed


def test_a_with_block_that_fails_keeps_its_error(device, monkeypatch):
    failed = (hip.hipError_t.hipErrorLaunchFailure,)
    with pytest.raises(KeyError), HipStream(device) as stream:
        monkeypatch.setattr(hip, "hipStreamSynchronize", lambda handle: failed)
        raise KeyError
    assert stream.closed


def test_a_with_block_may_close_its_stream(device):
    with HipStream(device) as stream:
        stream.close()
    assert stream.closed


def test_closing_the_null_stream_destroys_nothing(device, destroyed):
    stream = HipStream.null(device)
    assert stream.is_null
    assert stream.address == 0
    stream.synchronize()
    assert stream.query()
    stream.close()
    assert destroyed == []
    with pytest.raises(HipClosed, match="HipStream null"):
        stream.synchronize()
    with HipStream.null(device) as another:
        another.synchronize()


def test_closing_a_wrapped_stream_leaves_it_to_its_owner(device, destroyed):
    with HipStream(device) as stream:
        wrapped = HipStream.wrap(device, stream.address)
        assert wrapped.address == stream.address
        assert not wrapped.is_null
        event = HipEvent(device).record(stream)
        wrapped.wait(event)
        wrapped.synchronize()
        wrapped.close()
        with pytest.raises(HipClosed):
            wrapped.synchronize()
        stream.synchronize()
        assert destroyed == []


def test_priorities(device):
    least, greatest = HipStream.priorities(device)
    assert greatest <= 0 <= least
    for priority in range(greatest, least + 1):
        with HipStream(device, priority=priority) as stream:
            assert stream.priority == priority
    with pytest.raises(InvalidArgument, match="priority 99 is out of range"):
        HipStream(device, priority=99)


def test_flags_reach_the_runtime(device, monkeypatch):
    inputs = []
    original = hip.hipStreamCreateWithPriority

    def create(flags, priority):
        inputs.append(flags)
        return original(flags, priority)

    monkeypatch.setattr(hip, "hipStreamCreateWithPriority", create)
    HipStream(device).close()
    HipStream(device, blocking=True).close()
    assert inputs == [hip.hipStreamNonBlocking, 0]


def test_a_stream_that_can_not_be_made(device, monkeypatch):
    failed = (hip.hipError_t.hipErrorOutOfMemory, None)
    monkeypatch.setattr(hip, "hipStreamCreateWithPriority", lambda flags, priority: failed)
    with pytest.raises(HipError, match="hipStreamCreateWithPriority"):
        HipStream(device)


def test_query_tells_busy_from_done_from_failed(device, monkeypatch):
    with HipStream(device) as stream, HipEvent(device) as event:
        stream.synchronize()
        assert stream.query() is True
        event.record(stream)
        event.synchronize()
        assert event.query() is True
        for call, queried in (("hipStreamQuery", stream), ("hipEventQuery", event)):
            with monkeypatch.context() as patch:
                patch.setattr(hip, call, lambda handle: (hip.hipError_t.hipErrorNotReady,))
                assert queried.query() is False
                patch.setattr(hip, call, lambda handle: (hip.hipError_t.hipErrorIllegalAddress,))
                with pytest.raises(HipError, match=f"{call}.*hipErrorIllegalAddress") as caught:
                    queried.query()
                assert not caught.value.recoverable


def test_one_stream_waits_for_another(device):
    buffer, copy = HipBuffer(device, 1 << 20), HipBuffer(device, 1 << 20)
    with HipStream(device) as first, HipStream(device) as second:
        buffer.fill(7, stream=first)
        with first.record() as mark:
            assert not mark.timing
            second.wait(mark)
        copy.copy_from(buffer, stream=second)
        assert copy.to_bytes(stream=second) == b"\7" * (1 << 20)


def test_elapsed_time(device):
    buffer = HipBuffer(device, 1 << 20)
    with HipStream(device) as stream, HipEvent(device) as start, HipEvent(device) as stop:
        assert start.record(stream) is start
        buffer.fill(1, stream=stream)
        assert stream.record(stop) is stop
        milliseconds = start.elapsed_ms(stop)
    assert isinstance(milliseconds, float)
    assert 0 <= milliseconds < 60_000


def test_elapsed_time_needs_timing(device):
    with HipEvent(device) as start, HipEvent(device, timing=False) as stop:
        for pair in ((start, stop), (stop, start)):
            with pytest.raises(InvalidArgument, match="timing=True"):
                pair[0].elapsed_ms(pair[1])


def test_elapsed_time_of_what_was_never_recorded(device):
    with HipEvent(device) as start, HipEvent(device) as stop, pytest.raises(HipError, match="hipEventElapsedTime"):
        start.elapsed_ms(stop)


def test_event_flags_reach_the_runtime(device, monkeypatch):
    inputs = []
    original = hip.hipEventCreateWithFlags
    monkeypatch.setattr(hip, "hipEventCreateWithFlags", lambda flags: inputs.append(flags) or original(flags))
    HipEvent(device).close()
    HipEvent(device, timing=False, blocking=True).close()
    assert inputs == [0, hip.hipEventDisableTiming | hip.hipEventBlockingSync]


def test_an_event_is_destroyed_once(device, destroyed):
    event = HipEvent(device)
    address = int(event.handle)
    with event:
        pass
    event.close()
    assert destroyed == [address]
    with HipEvent(device) as other, HipStream(device) as stream:
        for use in (
            event.query,
            event.synchronize,
            lambda: event.record(stream),
            lambda: stream.wait(event),
            lambda: event.elapsed_ms(other),
            lambda: other.elapsed_ms(event),
        ):
            with pytest.raises(HipClosed, match="HipEvent"):
                use()


def test_a_failing_destroy_is_raised_by_close_only(device, monkeypatch):
    stream, forgotten = HipStream(device), HipStream(device)
    monkeypatch.setattr(hip, "hipStreamDestroy", lambda handle: (hip.hipError_t.hipErrorInvalidHandle,))
    with pytest.raises(HipError, match="hipStreamDestroy"):
        stream.close()
    del forgotten
    gc.collect()
    monkeypatch.undo()
    stream.synchronize()
    stream.close()
    assert stream.closed


def test_an_event_of_another_device(device):
    if device_count() < 2:
        pytest.skip("needs two devices")
    with HipStream(HipDevice(1)) as stream, HipEvent(device) as event, HipStream(device) as own:
        with pytest.raises(InvalidArgument, match="the event is on rocm:0, the stream on rocm:1"):
            event.record(stream)
        event.record(own)
        stream.wait(event)
