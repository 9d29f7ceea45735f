"""Device memory: views, copies in every direction, fills, bounds and lifetimes."""

import array
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("hip")

from hip import hip
from tallow.rocm_backend.hip import HipBuffer, HipClosed, HipDevice, HipError, HipStream, device_count
from tallow.runtime.base.error import BackendUnavailable, DeviceMismatch, InvalidArgument, OutOfMemory


@pytest.fixture
def device():
    try:
        return HipDevice(0)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def stream(device):
    with HipStream(device) as stream:
        yield stream


def filled(device, data) -> HipBuffer:
    buffer = HipBuffer(device, len(data))
    buffer.copy_from_host(data)
    return buffer


def test_bytes_come_back(device, stream):
    data = bytes(range(256)) * 5
    buffer = HipBuffer(device, len(data))
    assert buffer.address
    assert buffer.nbytes == len(data)
    buffer.copy_from_host(data, stream=stream)
    assert buffer.to_bytes(stream=stream) == data
    assert buffer.to_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(24)),
        bytearray(range(24)),
        memoryview(bytes(range(24))).cast("I", [2, 3]),
        array.array("d", [1, 2, 3]),
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.arange(6, dtype=">f4"),
        np.arange(12, dtype=np.float16),
        np.arange(12, dtype=ml_dtypes.bfloat16),
        np.arange(24, dtype=ml_dtypes.float8_e4m3fn).reshape(4, 6),
        np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(7.0 + 1j),
        np.broadcast_to(np.int64(9), (1,)),
    ],
    ids=lambda data: f"{type(data).__name__}-{getattr(data, 'dtype', '')}",
)
def test_any_contiguous_host_memory(device, data):
    raw = data.tobytes() if hasattr(data, "tobytes") else bytes(data)
    buffer = HipBuffer(device, len(raw) + 8)
    buffer.copy_from_host(data, offset=8)
    assert buffer.to_bytes(offset=8) == raw
    if isinstance(data, np.ndarray):
        back = np.zeros_like(data, subok=False)
        buffer.copy_to_host(back, offset=8)
        assert back.tobytes() == raw


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (np.arange(6).reshape(2, 3).T, "C-contiguous"),
        (memoryview(bytes(8))[::2], "C-contiguous"),
        (np.array([object()]), "no host memory"),
        ([1, 2], "no host memory"),
        (7, "no host memory"),
        ("text", "no host memory"),
    ],
    ids=["transposed", "every other byte", "objects", "list", "number", "text"],
)
def test_what_is_no_host_memory(device, data, reason):
    with pytest.raises(InvalidArgument, match=reason):
        HipBuffer(device, 64).copy_from_host(data)


def test_reading_into_read_only_memory(device):
    for target in (bytes(4), memoryview(b"abcd"), np.broadcast_to(np.uint8(1), (1,))):
        with pytest.raises(InvalidArgument, match="read-only"):
            HipBuffer(device, 4).copy_to_host(target)


def test_empty_buffers(device, stream):
    buffer = HipBuffer(device, 0)
    assert buffer.address == 0
    buffer.copy_from_host(b"", stream=stream)
    buffer.copy_from_host(np.empty((0, 3)))
    buffer.fill(0)
    buffer.copy_from(HipBuffer(device, 0))
    assert buffer.to_bytes() == b""
    assert buffer.view().nbytes == 0
    with pytest.raises(InvalidArgument, match="1 bytes at offset 0"):
        buffer.copy_from_host(b"a")
    buffer.close()


def test_sizes_that_are_none(device):
    with pytest.raises(InvalidArgument, match="not -1"):
        HipBuffer(device, -1)


def test_out_of_memory(device):
    before = HipBuffer(device, 16)
    before.fill(3)
    with pytest.raises(HipError, match=r"on rocm:0.*hipErrorOutOfMemory") as caught:
        HipBuffer(device, 1 << 60)
    assert caught.value.out_of_memory
    assert caught.value.recoverable
    for nbytes in (1 << 64, 1 << 65):
        with pytest.raises(OutOfMemory, match=f"rocm:0: no memory for {nbytes} bytes"):
            HipBuffer(device, nbytes)
    assert before.to_bytes() == b"\3" * 16
    assert HipBuffer(device, 16).nbytes == 16


def test_views_share_memory(device):
    parent = filled(device, bytes(range(16)))
    view = parent.view(4, 8)
    assert view.address == parent.address + 4
    assert view.is_view
    assert not parent.is_view
    assert view.to_bytes() == bytes(range(4, 12))
    inner = view.view(2)
    assert (inner.nbytes, inner.address) == (6, parent.address + 6)
    inner.fill(0xFF)
    assert parent.to_bytes() == bytes(range(6)) + b"\xff" * 6 + bytes(range(12, 16))


def test_a_view_keeps_the_memory(device):
    released = []
    parent = HipBuffer.wrap(device, 1 << 20, 16, released.append, "parent")
    view = parent.view(8)
    gone = weakref.ref(parent)
    del parent
    gc.collect()
    assert gone() is None
    assert view.address == (1 << 20) + 8
    view.close()
    gc.collect()
    assert released == ["parent"]


def test_closing_the_owner_closes_its_views(device):
    released = []
    parent = HipBuffer.wrap(device, 1 << 20, 16, released.append, "parent")
    view = parent.view(8)
    parent.close()
    parent.close()
    assert released == ["parent"]
    assert parent.closed
    assert view.closed
    for use in (lambda: view.address, view.to_bytes, view.view, lambda: view.fill(0), lambda: view.copy_from_host(b"")):
        with pytest.raises(HipClosed, match="HipBuffer view of 8 bytes on rocm:0"):
            use()
    with pytest.raises(HipClosed, match="HipBuffer of 16 bytes on rocm:0"):
        parent.__enter__()


def test_closing_a_view_leaves_the_memory(device):
    with filled(device, b"abcd") as parent:
        with parent.view(1, 2) as view:
            assert view.to_bytes() == b"bc"
        assert view.closed
        assert not parent.closed
        assert parent.to_bytes() == b"abcd"


def test_memory_is_freed_once(device, monkeypatch):
    freed = []
    original = hip.hipFree
    monkeypatch.setattr(hip, "hipFree", lambda address: freed.append(address) or original(address))
    buffer = HipBuffer(device, 32)
    address = buffer.address
    with buffer:
        pass
    buffer.close()
    assert freed == [address]
    buffer = HipBuffer(device, 32)
    address = buffer.address
    del buffer
    gc.collect()
    assert freed[1:] == [address]


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 1), (0, 17), (16, 1), (17, None), (8, -1), (1 << 70, 1)])
def test_regions_outside_a_buffer(device, offset, nbytes):
    buffer, other = HipBuffer(device, 16), HipBuffer(device, 64)
    uses = [
        lambda: buffer.view(offset, nbytes),
        lambda: buffer.to_bytes(offset=offset, nbytes=nbytes),
        lambda: buffer.fill(0, offset=offset, nbytes=nbytes),
        lambda: other.copy_from(buffer, source_offset=offset, nbytes=nbytes),
    ]
    if nbytes is not None and nbytes > 0:
        uses += [
            lambda: buffer.copy_from_host(bytes(nbytes), offset=offset),
            lambda: buffer.copy_to_host(bytearray(nbytes), offset=offset),
            lambda: buffer.copy_from(other, offset=offset, nbytes=nbytes),
        ]
    for use in uses:
        with pytest.raises(InvalidArgument, match="reach outside a buffer of 16 bytes"):
            use()


def test_copies_between_buffers(device, stream):
    source = filled(device, bytes(range(32)))
    target = filled(device, bytes(32))
    target.copy_from(source, offset=4, source_offset=16, nbytes=8, stream=stream)
    assert target.to_bytes(stream=stream) == bytes(4) + bytes(range(16, 24)) + bytes(20)
    target.copy_from(source, stream=stream)
    assert target.to_bytes(stream=stream) == bytes(range(32))


def test_copies_within_a_buffer(device):
    buffer = filled(device, bytes(range(16)))
    buffer.copy_from(buffer, offset=8, nbytes=8)
    assert buffer.to_bytes() == bytes(range(8)) * 2
    for offset in (1, 7, 0):
        with pytest.raises(InvalidArgument, match="overlap"):
            buffer.copy_from(buffer.view(), offset=offset, nbytes=8)


@pytest.mark.parametrize(("width", "height", "pitch", "source_pitch"), [(3, 4, 8, 5), (8, 2, 8, 8), (5, 1, 0, 0)])
def test_strided_copies(device, stream, width, height, pitch, source_pitch):
    data = np.random.default_rng(0).integers(1, 255, 64, dtype=np.uint8)
    source, target = filled(device, data), HipBuffer(device, 64)
    # In the copy's own stream, which does not wait for the null stream.
    target.fill(0, stream=stream)
    target.copy_2d_from(
        source,
        width=width,
        height=height,
        pitch=pitch,
        source_pitch=source_pitch,
        offset=2,
        source_offset=1,
        stream=stream,
    )
    expected = np.zeros(64, np.uint8)
    for row in range(height):
        start = 1 + row * source_pitch
        expected[2 + row * pitch :][:width] = data[start : start + width]
    assert target.to_bytes(stream=stream) == expected.tobytes()


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        ({"width": 8, "height": 3, "pitch": 8, "source_pitch": 7}, "need pitches of 8 or more"),
        ({"width": 8, "height": 3, "pitch": -8, "source_pitch": 8}, "need pitches of 8 or more"),
        ({"width": -1, "height": 3, "pitch": 8, "source_pitch": 8}, "neither may be negative"),
        ({"width": 8, "height": 8, "pitch": 8, "source_pitch": 9}, "71 bytes at offset 0 reach outside"),
        ({"width": 8, "height": 8, "pitch": 8, "source_pitch": 8, "offset": 1}, "64 bytes at offset 1 reach outside"),
        ({"width": 8, "height": 1, "pitch": 8, "source_pitch": 8, "source_offset": -8}, "offset -8 reach outside"),
    ],
)
def test_strided_copies_that_do_not_fit(device, geometry, reason):
    with pytest.raises(InvalidArgument, match=reason):
        HipBuffer(device, 64).copy_2d_from(HipBuffer(device, 64), **geometry)


def test_strided_copies_of_nothing(device):
    buffer, closed = HipBuffer(device, 4), HipBuffer(device, 4)
    closed.close()
    for width, height in ((0, 9), (9, 0)):
        geometry = {"width": width, "height": height, "pitch": 9, "source_pitch": 9}
        buffer.copy_2d_from(buffer, **geometry)
        with pytest.raises(InvalidArgument, match="0 bytes at offset 5 reach outside"):
            buffer.copy_2d_from(buffer, offset=5, **geometry)
        with pytest.raises(InvalidArgument, match="0 bytes at offset -1 reach outside"):
            buffer.copy_2d_from(buffer, source_offset=-1, **geometry)
        for target, source in ((buffer, closed), (closed, buffer)):
            with pytest.raises(HipClosed):
                target.copy_2d_from(source, **geometry)


@given(
    st.integers(1, 5), st.integers(1, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 30), st.integers(0, 30)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_that_overlap(device, width, height, gap, source_gap, offset, source_offset):
    """Within a buffer rows may take turns, and nothing is copied that would be overwritten."""
    data = np.random.default_rng(0).integers(0, 255, 64, dtype=np.uint8)
    buffer, expected = filled(device, data), data.copy()
    pitch, source_pitch = width + gap, width + source_gap
    geometry = {"width": width, "height": height, "pitch": pitch, "source_pitch": source_pitch}
    indices, origins = (
        {start + row * step + byte for row in range(height) for byte in range(width)}
        for start, step in ((offset, pitch), (source_offset, source_pitch))
    )
    apart = max(indices) < min(origins) or max(origins) < min(indices)
    if indices.isdisjoint(origins) and (apart or pitch == source_pitch):
        for row in range(height):
            origin = source_offset + row * source_pitch
            expected[offset + row * pitch :][:width] = data[origin : origin + width]
        buffer.copy_2d_from(buffer.view(), offset=offset, source_offset=source_offset, **geometry)
    else:
        with pytest.raises(InvalidArgument, match="rows here and there overlap; copy through a third buffer"):
            buffer.copy_2d_from(buffer.view(), offset=offset, source_offset=source_offset, **geometry)
    assert buffer.to_bytes() == expected.tobytes()


@pytest.mark.parametrize(("itemsize", "value"), [(1, 0xAB), (2, 0xABCD), (4, 0xDEADBEEF), (4, 0x7FFFFFFF), (2, 1)])
def test_fills(device, stream, itemsize, value):
    buffer = filled(device, bytes(32))
    buffer.fill(value, itemsize=itemsize, offset=4, nbytes=24, stream=stream)
    assert buffer.to_bytes(stream=stream) == bytes(4) + value.to_bytes(itemsize, "little") * (24 // itemsize) + bytes(4)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"value": 1.5}, "1.5 is not an unsigned number of 1 bytes"),
        ({"value": "a"}, "'a' is not an unsigned number of 1 bytes"),
        ({"value": 256}, "not an unsigned number of 1 bytes"),
        ({"value": -1, "itemsize": 4}, "not an unsigned number of 4 bytes"),
        ({"itemsize": 8}, "1, 2 or 4 bytes"),
        ({"itemsize": 4, "nbytes": 6}, "complete, aligned items"),
        ({"itemsize": 4, "offset": 2, "nbytes": 4}, "complete, aligned items"),
    ],
)
def test_fills_that_can_not_be(device, arguments, reason):
    with pytest.raises(InvalidArgument, match=reason):
        HipBuffer(device, 16).fill(**arguments)


def test_a_failed_copy_names_its_sizes(device, monkeypatch):
    failed = (hip.hipError_t.hipErrorInvalidValue,)
    monkeypatch.setattr(hip, "hipMemcpyAsync", lambda *arguments: failed)
    with pytest.raises(HipError, match="4 bytes from the host to rocm:0"):
        HipBuffer(device, 4).copy_from_host(b"abcd")


def test_another_device(device):
    if device_count() < 2:
        pytest.skip("needs two devices")
    other = HipDevice(1)
    here, there = filled(device, b"abcdefgh"), filled(other, bytes(8))
    there.copy_from(here, offset=2, source_offset=4, nbytes=4)
    assert there.to_bytes() == b"\0\0efgh\0\0"
    with HipStream(other) as stream:
        here.copy_from_host(b"12345678")
        there.copy_from(here, stream=stream)
        assert there.to_bytes(stream=stream) == b"12345678"
        for use in (lambda: here.fill(0, stream=stream), lambda: here.copy_from(there, stream=stream)):
            with pytest.raises(DeviceMismatch, match="rocm:0, rocm:1"):
                use()
    with pytest.raises(DeviceMismatch, match=r"copy_2d_from.*rocm:1, rocm:0"):
        there.copy_2d_from(here, width=1, height=1, pitch=1, source_pitch=1)
    assert hip.hipGetDevice()[1] == 0
