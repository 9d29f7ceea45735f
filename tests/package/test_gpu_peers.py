"""Tensors that go from one GPU to another of the same backend: without the host, and in order."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from tallow import DType, InvalidArgument, Tensor
from tallow.runtime.backends.gpu_backend.driver.gpu_driver import GpuDriver
from tallow.runtime.backends.gpu_backend.driver.stream import Direction

from . import backend

NUMBERS = np.arange(1 << 18, dtype=np.float32)


@pytest.fixture
def devices(gpu) -> tuple[str, str]:
    try:
        backend.own("Device")(1)
    except InvalidArgument:
        pytest.skip("needs two devices")
    return f"{backend.backend_name()}:0", f"{backend.backend_name()}:1"


@pytest.fixture
def no_host(monkeypatch):
    """Copies to the host, and waiting there, are errors."""

    def forbidden(*arguments):
        raise AssertionError(f"the host takes part: {arguments}")

    def forbid() -> pytest.MonkeyPatch:
        for name in ("copy_to_host", "copy_to_device", "synchronize", "synchronize_device"):
            monkeypatch.setattr(GpuDriver, name, forbidden)
        return monkeypatch

    return forbid


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.value)
def test_elements_arrive(devices, dtype):
    array = np.arange(100).astype(dtype.numpy)
    for first, second in (devices, devices[::-1]):
        tensor = Tensor.from_numpy(array, first)
        moved = tensor.to(second)
        assert (moved.device.label, moved.dtype, moved.shape) == (second, dtype, (100,))
        assert moved.numpy().tobytes() == array.tobytes()
        assert tensor.to(first) is tensor


def test_nothing_arrives(devices):
    assert Tensor.zeros((0, 3), device=devices[0]).to(devices[1]).shape == (0, 3)


def test_views_arrive_as_what_they_show(devices):
    array = NUMBERS[:60].reshape(3, 4, 5)
    tensor = Tensor.from_numpy(array, devices[0])
    for view, expected in ((tensor.T, array.T), (tensor[1:, ::2], array[1:, ::2]), (tensor[2], array[2])):
        np.testing.assert_array_equal(view.to(devices[1]).numpy(), expected)


def test_the_host_takes_no_part(devices, no_host):
    tensor = Tensor.from_numpy(NUMBERS, devices[0])
    Tensor.zeros(1, device=devices[1])
    patch = no_host()
    moved = tensor.to(devices[1])
    back = moved.to(devices[0])
    patch.undo()
    np.testing.assert_array_equal(back.numpy(), NUMBERS)


def fill(tensor: Tensor, value: int) -> None:
    """Set every byte, in the device's stream."""
    memory = tensor.storage.inner.memory
    tensor.storage.inner.device.driver.fill_bytes(memory.address, value, memory.nbytes)


def test_what_the_source_is_given_later_waits_for_the_copy(devices):
    """Its memory serves again when the tensor is gone."""
    for _ in range(10):
        tensor = Tensor.from_numpy(NUMBERS, devices[0])
        moved = tensor.to(devices[1])
        del tensor
        again = Tensor.from_numpy(NUMBERS, devices[0])
        fill(again, 0xFF)
        np.testing.assert_array_equal(moved.numpy(), NUMBERS)


def test_the_copy_waits_for_what_both_were_given_before(devices):
    for value in range(1, 10):
        tensor, old = Tensor.from_numpy(NUMBERS, devices[0]), Tensor.from_numpy(NUMBERS, devices[1])
        fill(old, 0xFF)
        del old
        fill(tensor, value)
        moved = tensor.to(devices[1])
        # The copy is done in the first device's stream.
        tensor.device.synchronize()
        assert set(moved.numpy().view(np.uint8).tolist()) == {value}


def test_what_the_receiver_is_given_later_finds_the_elements(devices):
    for _ in range(10):
        moved = Tensor.from_numpy(NUMBERS, devices[0]).to(devices[1])
        memory = moved.storage.inner.memory
        copy = moved.storage.inner.device.empty(DType.F32, NUMBERS.size)
        copy.device.driver.queue.copy(copy.memory.address, memory.address, memory.nbytes, Direction.WITHIN_DEVICE)
        np.testing.assert_array_equal(copy.to_numpy(), NUMBERS)


def test_threads_send_both_ways_at_once(devices):
    tensors = [Tensor.from_numpy(NUMBERS + number, devices[number % 2]) for number in range(4)]
    wrong = []

    def work(number: int) -> None:
        tensor = tensors[number]
        for step in range(10):
            tensor = tensor.to(devices[(number + step + 1) % 2])
        if not np.array_equal(tensor.numpy(), NUMBERS + number):
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_copies_between_devices_leave_nothing(devices):
    tensor = Tensor.from_numpy(NUMBERS, devices[0])

    def held() -> list[int]:
        gc.collect()
        allocators = [backend.own("Device")(ordinal).allocator for ordinal in (0, 1)]
        return [allocator.statistics().allocated for allocator in allocators]

    tensor.to(devices[1])
    before = held()
    for _ in range(100):
        tensor.to(devices[1])
    assert held() == before
