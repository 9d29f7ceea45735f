"""Uploads beside the host: what arrives, in which order, what is refused, and what is left behind."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter

import numpy as np
import pytest
from tallow import DeviceMismatch, DType, InvalidArgument
from tallow.runtime.backends.backend import Part
from tallow.runtime.backends.gpu_backend.driver import loader as loader_module
from tallow.runtime.backends.gpu_backend.driver.error import Closed

SLOT = 1 << 16


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A ring that a test fills."""
    monkeypatch.setattr(loader_module, "SLOT_BYTES", SLOT)
    monkeypatch.setattr(loader_module, "SLOTS", 4)
    monkeypatch.setattr(loader_module, "THREADS", 3)


@pytest.fixture
def device(objects):
    return objects.Device(0)


@pytest.fixture
def loader(objects, device):
    with objects.AsyncLoader(device) as loader:
        yield loader


@pytest.fixture
def gpu_loader(gpu):
    """The loader of the backend's device, made anew for the size of the ring."""
    gpu.loader.close()
    yield gpu.loader
    gpu.loader.close()


def numbers(nbytes: int) -> np.ndarray:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)


@pytest.mark.parametrize("nbytes", [0, 1, SLOT - 1, SLOT, SLOT + 1, 9 * SLOT + 5])
@pytest.mark.parametrize("index", [0, 3])
def test_bytes_arrive(objects, device, loader, nbytes, index):
    data = numbers(nbytes)
    buffer = objects.Buffer(device, nbytes)
    loader.upload_to_buffer(buffer, data, index)
    loader.synchronize()
    assert buffer.to_bytes() == data.tobytes()


def test_a_part_of_a_buffer_is_written(objects, device, loader):
    data = numbers(3 * SLOT)
    buffer = objects.Buffer(device, 3 * SLOT + 20)
    with objects.Stream(device) as stream:
        buffer.fill(7, stream=stream)
    loader.upload_to_buffer_offset(buffer, 10, data, 1)
    loader.synchronize()
    assert buffer.to_bytes() == b"\7" * 10 + data.tobytes() + b"\7" * 10


def test_uploads_to_one_stream_are_in_order(objects, device, loader):
    buffer = objects.Buffer(device, 2 * SLOT)
    for value in range(20):
        loader.upload_to_buffer(buffer, np.full(2 * SLOT, value, np.uint8), 2)
    loader.stream(2).synchronize()
    assert set(buffer.to_bytes()) == {19}


@pytest.mark.parametrize("data", [b"abcdefgh", bytearray(b"abcdefgh"), memoryview(b"abcdefgh").cast("I", [2, 1])])
def test_any_host_memory_is_taken_and_may_change_at_once(objects, device, loader, data):
    buffer = objects.Buffer(device, 8)
    assert loader.upload_auto(buffer, data) in range(4)
    if isinstance(data, bytearray):
        data[:] = bytes(8)
    loader.synchronize()
    assert buffer.to_bytes() == b"abcdefgh"


def test_another_stream_waits_for_an_upload(objects, device, loader):
    data = numbers(5 * SLOT)
    buffer, copy = objects.Buffer(device, data.nbytes), objects.Buffer(device, data.nbytes)
    index = loader.upload_auto(buffer, data)
    with objects.Stream(device) as stream, loader.stream(index).record() as mark:
        stream.wait(mark)
        copy.copy_from(buffer, stream=stream)
        assert copy.to_bytes(stream=stream) == data.tobytes()


def test_the_least_busy_stream_is_taken(objects, device, loader, monkeypatch):
    """As long as nothing is done, the bytes that each stream has left decide."""
    monkeypatch.setattr(objects.Event, "query", lambda event: False)
    buffer = objects.Buffer(device, SLOT)
    sizes = 100, 10, 20, 30
    assert [loader.upload_auto(buffer, bytes(size)) for size in sizes] == [0, 1, 2, 3]
    assert [loader.outstanding(index) for index in range(4)] == list(sizes)
    # With four pieces of pinned memory the next copy waits for the first one, of which nothing is left then.
    assert loader.upload_auto(buffer, bytes(5)) == 1
    assert [loader.outstanding(index) for index in range(4)] == [0, 5 + 10, 20, 30]
    monkeypatch.undo()
    loader.synchronize()
    assert [loader.outstanding(index) for index in range(4)] == [0] * 4


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda loader, buffer: loader.upload_to_buffer(buffer, b"a", 4), "no stream has index 4; use one from 0 to 3"),
        (lambda loader, buffer: loader.upload_to_buffer(buffer, b"a", -1), "no stream has index -1"),
        (lambda loader, buffer: loader.upload_to_buffer_offset(buffer, 0, b"a", 9), "no stream has index 9"),
        (lambda loader, buffer: loader.upload_to_buffer(buffer, bytes(65), 0), "65 bytes at offset 0 reach outside"),
        (lambda loader, buffer: loader.upload_to_buffer_offset(buffer, 60, bytes(5), 0), "5 bytes at offset 60 reach"),
        (lambda loader, buffer: loader.upload_to_buffer_offset(buffer, -1, b"a", 0), "1 bytes at offset -1 reach"),
        (lambda loader, buffer: loader.upload_auto(buffer, bytes(65)), "upload_auto.* 65 bytes at offset 0 reach"),
        (lambda loader, buffer: loader.upload_auto(buffer, np.zeros((4, 4))[:, 1]), "must be C-contiguous"),
        (lambda loader, buffer: loader.upload_auto(buffer, [1, 2]), "list is no host memory"),
        (lambda loader, buffer: loader.upload_auto(b"abc", b"a"), "buffer must be of type DeviceBuffer, not bytes"),
        (lambda loader, buffer: loader.upload_auto(buffer, b"a", 1.5), "offset must be an integer, not 1.5"),
        (lambda loader, buffer: loader.upload_to_buffer(buffer, b"a", "0"), "a stream's index must be an integer"),
        (lambda loader, buffer: loader.stream(4), "AsyncLoader.stream: no stream has index 4"),
        (lambda loader, buffer: loader.outstanding(-1), "AsyncLoader.outstanding: no stream has index -1"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_enqueued(objects, device, loader, monkeypatch, call, reason):
    buffer = objects.Buffer(device, 64)
    copied = []
    monkeypatch.setattr(objects.Stream, "copy", lambda *arguments: copied.append(arguments))
    with pytest.raises(InvalidArgument, match=reason):
        call(loader, buffer)
    assert not copied
    assert not loader._made


def test_a_buffer_of_another_device_is_refused(objects, device, loader):
    try:
        buffer = objects.Buffer(objects.Device(1), 8)
    except InvalidArgument:
        pytest.skip("needs two devices")
    with pytest.raises(DeviceMismatch, match=r"AsyncLoader.upload_auto.*:0, .*:1"):
        loader.upload_auto(buffer, b"a")


def test_a_loader_that_is_closed_says_so(objects, device):
    buffer = objects.Buffer(device, 8)
    with objects.AsyncLoader(device) as loader:
        loader.upload_auto(buffer, b"abcdefgh")
    assert loader.closed
    loader.close()
    assert buffer.to_bytes() == b"abcdefgh"
    uses = (
        loader.synchronize,
        lambda: loader.stream(0),
        lambda: loader.upload_auto(buffer, b"a"),
        lambda: loader.upload_to_buffer(buffer, b"a", 0),
        loader.__enter__,
    )
    for use in uses:
        with pytest.raises(Closed, match=r"<AsyncLoader on .*:0> is closed"):
            use()


def test_threads_share_a_loader(objects, device, loader):
    parts = [numbers(7 * SLOT + number) for number in range(4)]
    buffers = [objects.Buffer(device, part.nbytes) for part in parts]
    threads = [threading.Thread(target=loader.upload_auto, args=pair) for pair in zip(buffers, parts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loader.synchronize()
    for buffer, part in zip(buffers, parts, strict=True):
        assert buffer.to_bytes() == part.tobytes()


# ---- What the backend's device loads


def part_of(data: np.ndarray) -> Part:
    raw = data.view(np.uint8).reshape(-1)

    def read_into(target: memoryview, begin: int) -> None:
        np.frombuffer(target, np.uint8)[:] = raw[begin : begin + target.nbytes]

    return Part(DType.from_numpy(data.dtype), data.size, read_into)


def test_a_device_loads_parts_of_any_size(gpu, gpu_loader):
    arrays = [np.arange(size, dtype=np.int32) * 3 for size in (0, 1, 100, 5 * SLOT, 7, SLOT // 4, 0, 3 * SLOT + 1)]
    done = []
    storages = gpu.load([part_of(array) for array in arrays], done.append)
    for storage, array in zip(storages, arrays, strict=True):
        assert storage.dtype is DType.I32
        np.testing.assert_array_equal(storage.to_numpy(), array)
    assert done == sorted(done)
    assert done[-1] == sum(array.nbytes for array in arrays)
    assert gpu.load([]) == []


def test_memory_that_was_used_before_is_loaded_behind_its_last_use(gpu, gpu_loader):
    data = np.arange(SLOT, dtype=np.float32)
    for _ in range(20):
        storage = gpu.empty(DType.F32, SLOT)
        gpu.driver.fill_bytes(storage.memory.address, 0xFF, storage.memory.nbytes)
        del storage
        (loaded,) = gpu.load([part_of(data)])
        np.testing.assert_array_equal(loaded.to_numpy(), data)
        del loaded


class Broken(Exception):
    """What reading raises."""


@pytest.mark.parametrize("size", [10, 20 * SLOT])
def test_a_part_that_cannot_be_read_is_an_error_and_the_next_load_works(gpu, gpu_loader, size):
    def fail(target: memoryview, begin: int) -> None:
        raise Broken

    good = np.arange(SLOT, dtype=np.float32)
    with pytest.raises(Broken):
        gpu.load([part_of(good), Part(DType.U8, size, fail)])
    before = threading.active_count()
    np.testing.assert_array_equal(gpu.load([part_of(good)])[0].to_numpy(), good)
    assert threading.active_count() == before


def test_progress_that_fails_ends_the_reading(gpu, gpu_loader):
    reads = []

    def read_into(target: memoryview, begin: int) -> None:
        reads.append(begin)
        time.sleep(0.002)

    def progress(done: int) -> None:
        raise Broken

    with pytest.raises(Broken):
        gpu.load([Part(DType.U8, 100 * SLOT, read_into)], progress)
    count = len(reads)
    assert count < 100
    gpu.driver.synchronize()
    assert len(reads) == count


def test_progress_may_load_something_itself(gpu, gpu_loader):
    outer, inner = np.arange(SLOT, dtype=np.float32), np.arange(5, dtype=np.int64)
    loaded = []
    (storage,) = gpu.load([part_of(outer)], lambda done: loaded.extend(gpu.load([part_of(inner)])))
    np.testing.assert_array_equal(storage.to_numpy(), outer)
    assert len(loaded) == 4
    for other in loaded:
        np.testing.assert_array_equal(other.to_numpy(), inner)


def test_several_threads_read_at_once(gpu, gpu_loader):
    together = threading.Barrier(3, timeout=30)

    def read_into(target: memoryview, begin: int) -> None:
        together.wait()

    gpu.load([Part(DType.U8, 6 * SLOT, read_into)])


def test_pinned_memory_is_bounded_kept_and_given_back(gpu, gpu_loader, objects, monkeypatch):
    result = Counter()
    allocate, free = objects.HostBuffer._allocate, objects.HostBuffer._free

    def allocating(device, nbytes):
        result["allocated"] += 1
        result["bytes"] += nbytes
        return allocate(device, nbytes)

    def freeing(device, address):
        result["freed"] += 1
        free(device, address)

    monkeypatch.setattr(objects.HostBuffer, "_allocate", staticmethod(allocating))
    monkeypatch.setattr(objects.HostBuffer, "_free", staticmethod(freeing))
    data = numbers(50 * SLOT)
    for _ in range(3):
        gpu.load([part_of(data)])
    assert 1 <= result["allocated"] <= 4
    assert result["bytes"] == result["allocated"] * SLOT
    assert not result["freed"]
    gpu_loader.close()
    gc.collect()
    assert result["freed"] == result["allocated"]
    np.testing.assert_array_equal(gpu.load([part_of(data)])[0].to_numpy(), data)
