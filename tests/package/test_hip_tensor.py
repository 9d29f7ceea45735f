"""Tensors on buffers: what they are made of, what they share, and what is refused before anything is enqueued."""

from __future__ import annotations

import gc
import mmap
import weakref

import numpy as np
import pytest

pytest.importorskip("hip")

from tallow import DType, Shape, Tensor
from tallow.rocm_backend import RocmDevice
from tallow.rocm_backend.hip import DeviceTensor, HipBuffer, HipClosed, HipDevice, HipStream, device_count
from tallow.runtime.backends.gpu_backend.ops import memory
from tallow.runtime.base.error import InvalidArgument, OutOfMemory, ShapeMismatch


@pytest.fixture
def device(rocm) -> HipDevice:
    return HipDevice(0)


@pytest.fixture
def pool(device) -> HipBuffer:
    """The numbers 0 to 255."""
    buffer = HipBuffer(device, 1024)
    buffer.copy_from_host(np.arange(256, dtype=np.float32))
    return buffer


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (7, 11, 13), [2, np.int64(3)]])
def test_an_empty_tensor_has_zeros(rocm, shape):
    count = int(np.prod(shape))
    del [rocm.storage(np.full(count, 7, np.float32))][:]  # whose memory serves again
    tensor = DeviceTensor.empty(shape)
    assert tensor.shape == tuple(shape)
    assert (len(tensor), tensor.nbytes) == (count, 4 * count)
    assert tensor.device == HipDevice(0)
    np.testing.assert_array_equal(tensor.to_host(), np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    "array", [np.float32(3), np.ones((0, 2)), np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4).T]
)
def test_an_array_comes_back(rocm, array):
    array = np.asarray(array, np.float32)
    tensor = DeviceTensor.from_host(array, HipDevice(0))
    actual = tensor.to_host()
    assert (actual.shape, actual.dtype) == (array.shape, np.float32)
    np.testing.assert_array_equal(actual, array)


def test_what_a_tensor_shows(rocm):
    assert repr(DeviceTensor.empty((2, 3))) == "<DeviceTensor of shape (2, 3) on rocm:0>"


def test_more_memory_than_there_is(rocm):
    with pytest.raises(OutOfMemory, match="rocm:0: no memory"):
        DeviceTensor.empty((1 << 40,))


def test_tensors_of_a_pool_share_it(pool):
    first, second = DeviceTensor.from_pool(pool, 4, (2, 3)), DeviceTensor.from_buffer(pool, (256,))
    assert first.address == pool.address + 4
    np.testing.assert_array_equal(first.to_host(), np.arange(1, 7).reshape(2, 3))
    first.copy_from_host(np.zeros((2, 3), np.float32))
    assert second.to_host()[:8].tolist() == [0, 0, 0, 0, 0, 0, 0, 7]


def test_a_tensor_waits_for_what_its_buffer_is_given(pool):
    pool.fill(0x3F800000, itemsize=4)  # in the null stream, beside which the stream of tensors runs
    assert DeviceTensor.from_buffer(pool, (256,)).to_tensor().sum().item() == 256
    target = DeviceTensor.empty((256,))
    pool.fill(0x40000000, itemsize=4)
    target.copy_from_buffer(pool)
    assert target.to_tensor().sum().item() == 512


def test_a_tensor_keeps_its_pool(device, host):
    gc.collect()  # what other tests have left
    before = host.live("device memory")
    tensor = DeviceTensor.from_pool(HipBuffer(device, 64), 16, (4,))
    gc.collect()
    tensor.copy_from_host(np.arange(4, dtype=np.float32))
    assert tensor.to_host().tolist() == [0, 1, 2, 3]
    assert host.live("device memory") == before + 1
    del tensor
    gc.collect()
    assert host.live("device memory") == before


def test_a_tensor_of_a_pool_that_was_closed(pool):
    tensor = DeviceTensor.from_pool(pool, 0, (4,))
    shared = tensor.to_tensor()
    again = DeviceTensor.from_tensor(shared)
    pool.close()
    for use in (tensor.to_host, again.to_host, shared.numpy, lambda: tensor.address, lambda: shared.add(shared)):
        with pytest.raises(HipClosed, match="HipBuffer view of 16 bytes on rocm:0"):
            use()


@pytest.fixture
def mapped(rocm, tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"head" + np.arange(10, dtype=np.float32).tobytes())
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def test_a_mapped_file(mapped):
    tensor = DeviceTensor.from_mmap(mapped, 8, (3, 3))
    mapped.close()
    np.testing.assert_array_equal(tensor.to_host(), np.arange(1, 10).reshape(3, 3))
    with pytest.raises(InvalidArgument, match=r"from_mmap: mmap is no host memory .*; use a buffer"):
        DeviceTensor.from_mmap(mapped, 8, (3, 3))


def test_any_buffer_may_stand_for_a_mapped_file(rocm):
    raw = b"x" + np.arange(4, dtype=np.float32).tobytes()
    assert DeviceTensor.from_mmap(memoryview(raw)[1:], 4, (3,)).to_host().tolist() == [1, 2, 3]


REGIONS = [
    (-4, (1,), "4 bytes at offset -4 reach outside"),
    (1024, (1,), "4 bytes at offset 1024 reach outside the 1024 bytes"),
    (1020, (2,), "8 bytes at offset 1020 reach outside"),
    (2, (1,), "multiple"),
    (None, (1,), "offset must be an integer"),
]


@pytest.mark.parametrize(("offset", "shape", "reason"), REGIONS)
@pytest.mark.parametrize("make", ["from_buffer", "from_pool", "from_mmap"])
def test_regions_that_are_refused(pool, host, make, offset, shape, reason):
    source = bytes(1024) if make == "from_mmap" else pool
    arguments = (source, shape, offset) if make == "from_buffer" else (source, offset, shape)

    def refused() -> None:
        with pytest.raises(InvalidArgument, match=f"DeviceTensor.from_.*{reason}"):
            getattr(DeviceTensor, make)(*arguments)

    assert host.calls_of(refused) == []


@pytest.mark.parametrize(
    ("source_offset", "nbytes", "offset", "reason"),
    [
        (0, 68, 0, "68 bytes at offset 0 reach outside the 64 bytes"),
        (0, 64, 4, "64 bytes at offset 4 reach outside the 64 bytes"),
        (1000, 28, 0, "28 bytes at offset 1000 reach outside the 1024 bytes"),
        (0, -4, 0, "-4 bytes at offset 0 reach outside"),
        (0, 6, 0, "multiples of 4 bytes"),
        (0, 8, 2, "multiples of 4 bytes"),
        (3, 8, 0, "multiple of 4 bytes"),
        ("0", 8, 0, "offset must be an integer"),
    ],
)
def test_copies_that_are_refused(pool, host, source_offset, nbytes, offset, reason):
    tensor = DeviceTensor.empty((16,))

    def refused() -> None:
        with pytest.raises(InvalidArgument, match=f"copy_from_region: .*{reason}"):
            tensor.copy_from_region(pool, source_offset, nbytes, offset)

    assert host.calls_of(refused) == []


def test_a_view_that_is_not_aligned(pool):
    with pytest.raises(InvalidArgument, match=r"offset 0 of <HipBuffer view .*> is at no multiple of 4 bytes"):
        DeviceTensor.from_buffer(pool.view(2), (1,))


def test_copies_within_the_device(pool):
    tensor = DeviceTensor.empty((2, 4))
    tensor.copy_from_buffer(pool, 16)
    np.testing.assert_array_equal(tensor.to_host(), np.arange(4, 12).reshape(2, 4))
    tensor.copy_from_region(pool, 400, 8, 12)
    assert tensor.to_host().ravel().tolist() == [4, 5, 6, 100, 101, 9, 10, 11]
    tensor.copy_from_region(pool, 400, 0)
    with pytest.raises(InvalidArgument, match="the two regions overlap"):
        DeviceTensor.from_pool(pool, 0, (8,)).copy_from_buffer(pool, 4)


@pytest.mark.parametrize("source", [np.zeros(4), np.zeros(4, ">f4"), [1.0] * 4, None])
def test_arrays_that_are_no_f32(rocm, source):
    tensor = DeviceTensor.empty((4,))
    for call in (DeviceTensor.from_host, tensor.copy_from_host):
        with pytest.raises(InvalidArgument, match=r"DeviceTensor\..*from_host: source must"):
            call(source)


def test_an_array_of_another_shape(rocm):
    with pytest.raises(ShapeMismatch, match=r"copy_from_host: shapes \(2, 2\), \(4,\): give an array of the tensor's"):
        DeviceTensor.empty((2, 2)).copy_from_host(np.zeros(4, np.float32))


@pytest.mark.parametrize("given", [None, 3, bytes(64), "pool"])
def test_what_is_no_buffer(rocm, given):
    for call in (
        lambda: DeviceTensor.from_buffer(given, (1,)),
        lambda: DeviceTensor.empty((1,)).copy_from_buffer(given),
    ):
        with pytest.raises(InvalidArgument, match="is no HipBuffer; make one with"):
            call()


def test_tensors_are_shared_both_ways_without_a_call(rocm, host):
    x = DeviceTensor.from_host(np.arange(6, dtype=np.float32).reshape(2, 3))
    result = []
    assert host.calls_of(lambda: result.append(x.to_tensor())) == []
    (tensor,) = result
    assert isinstance(tensor, Tensor)
    assert (tensor.shape, tensor.dtype, tensor.device.label) == ((2, 3), DType.F32, "rocm:0")
    assert host.calls_of(lambda: result.append(DeviceTensor.from_tensor(tensor.narrow(0, 1, 1)))) == []
    row = result[1]
    assert row.address == x.address + 12
    x.copy_from_host(np.full((2, 3), 7, np.float32))
    assert tensor.tolist() == [[7] * 3] * 2
    assert row.to_host().tolist() == [[7] * 3]
    shared = DeviceTensor.from_tensor(Tensor([1.0, 2.0], device="rocm"))
    assert shared.to_host().tolist() == [1, 2]


def test_each_keeps_the_memory_of_the_other(rocm):
    def held() -> int:
        gc.collect()
        return rocm.allocator.statistics().allocated

    before = held()
    x = DeviceTensor.empty((1000,))
    tensor = x.to_tensor()
    gone = weakref.ref(x)
    del x
    assert held() > before
    assert gone() is None
    assert tensor.add(1.0).sum().item() == 1000
    y = DeviceTensor.from_tensor(tensor)
    del tensor
    assert held() > before
    assert y.to_host().sum() == 0
    del y
    assert held() == before


def test_memory_serves_again_after_the_work_of_buffers(rocm):
    """A buffer's work is in the null stream, beside which the stream of tensors runs."""
    tensor = DeviceTensor.empty((1 << 16,))
    address = tensor.address
    tensor.buffer.fill(0xFF)
    del tensor
    gc.collect()
    again = rocm.make(memory.zeros, Shape((1 << 16,)), DType.F32)
    assert again.memory.address == address
    rocm.driver.synchronize()
    HipDevice(0).synchronize()
    assert again.to_numpy().sum() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tensor([1.0]),
        lambda: Tensor([1], dtype="u8", device="rocm"),
        lambda: Tensor([[1.0, 2.0], [3.0, 4.0]], device="rocm").t(),
        lambda: np.zeros(3, np.float32),
        lambda: None,
    ],
)
def test_tensors_that_cannot_be_shared(rocm, make):
    with pytest.raises(InvalidArgument, match="from_tensor: it shares the elements of a contiguous Tensor of f32"):
        DeviceTensor.from_tensor(make())


def test_tensors_of_another_device(rocm):
    if device_count() < 2:
        pytest.skip("needs two devices")
    second = HipDevice(1)
    values = np.arange(8, dtype=np.float32)
    there = DeviceTensor.from_host(values, 1)
    assert there.device == second
    assert there.to_tensor().device.label == "rocm:1"
    RocmDevice(1).driver.synchronize()
    here = DeviceTensor.empty((8,))
    here.copy_from_buffer(there.buffer)
    np.testing.assert_array_equal(here.to_host(), values)
    with HipBuffer(second, 32) as pool, HipStream(second) as stream:
        pool.copy_from_host(values, stream=stream)
        np.testing.assert_array_equal(DeviceTensor.from_pool(pool, 16, (4,)).to_host(), values[4:])
