"""A GPU as a device: what its objects share, what goes in and out, and what it says where it is not there."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from tallow import Device
from tallow.dtype import ALL, FLOAT, DType
from tallow.kernels import launches
from tallow.runtime.backends.gpu_backend.ops import random
from tallow.runtime.backends.gpu_backend.ops.memory import synchronize
from tallow.runtime.base.error import InvalidArgument
from tallow.runtime.core.shape import Shape

from .backend import PACKAGES, backend_name, own, package

NAME = backend_name()
PACKAGE = package().__name__
GpuDevice = own("Device")


def bits(array: np.ndarray) -> list[int]:
    return list(array.tobytes())


def test_devices_of_one_ordinal_share_everything(gpu):
    other = GpuDevice.open(0)
    assert other == gpu
    assert hash(other) == hash(gpu)
    assert (other.driver, other.kernels, other.allocator) == (gpu.driver, gpu.kernels, gpu.allocator)
    random.set_seed(other, 11)
    assert random.seed(gpu) == 11
    assert pickle.loads(pickle.dumps(gpu)) == gpu


def test_a_library_is_looked_for_once_on_a_device(gpu):
    looked = []

    def nowhere(driver, allocator):
        looked.append((driver, allocator))

    for device in (gpu, GpuDevice(0)):
        assert device.library(nowhere) is None
    assert looked == [(gpu.driver, gpu.allocator)]


def test_threads_open_a_device_once(gpu, run_python):
    run_python(
        f"""
        import threading
        from {PACKAGE} import {GpuDevice.__name__} as GpuDevice
        opened = []
        threads = [threading.Thread(target=lambda: opened.append(GpuDevice(0).driver)) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(opened) == 8 and len(set(map(id, opened))) == 1
        """
    )


@pytest.mark.parametrize("ordinal", [-1, 1000])
def test_an_ordinal_that_no_device_has(gpu, ordinal):
    with pytest.raises(InvalidArgument, match=f"ordinal {ordinal} is out of range"):
        GpuDevice(ordinal)


def test_what_there_is(gpu):
    assert package().device_count() >= 1
    assert package().is_available()
    for kind in ("Device", "Storage", "StorageSlice"):
        assert getattr(package(), f"{backend_name().capitalize()}{kind}") is own(kind)
    assert GpuDevice.is_available()
    assert all(part.isdecimal() for part in package().runtime_version().split("."))
    assert gpu.driver.label == f"{NAME}:0"
    assert gpu.driver.facts.wave_size in (32, 64)
    assert gpu.driver.multiprocessors >= 1


@pytest.mark.parametrize("dtype", sorted(ALL, key=lambda dtype: dtype.value))
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_arrays_go_in_and_come_out(gpu, dtype, count):
    most = 2 if dtype.kind == "bool" else 256
    numbers = np.random.default_rng(1).integers(0, most, count * dtype.itemsize, np.uint8).view(dtype.numpy)
    storage = gpu.storage(numbers)
    assert isinstance(storage, own("Storage"))
    assert (storage.device, storage.dtype, storage.length) == (gpu, dtype, count)
    assert bits(storage.to_numpy()) == bits(numbers)


def test_an_array_goes_in_in_row_major_order(gpu):
    numbers = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    for view in (numbers.transpose(2, 0, 1), numbers[:, ::-1, ::2], numbers[0, 0, 0]):
        assert gpu.storage(view).to_numpy().tolist() == np.ravel(view).tolist()


def test_a_storage_keeps_a_copy(gpu):
    numbers = np.arange(5, dtype=np.float32)
    storage, owned = gpu.storage(numbers), Device(gpu).storage_owned(numbers)
    numbers[:] = -1
    assert storage.to_numpy().tolist() == owned.to_numpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", sorted(ALL, key=lambda dtype: dtype.value))
def test_numbers_are_converted_as_on_the_cpu(gpu, dtype):
    for numbers in ([], [1, -2, 300], [0.5, 1e9, -1e30, float("nan"), float("inf")], [True, False]):
        result = [device.storage_from_slice(numbers, dtype).to_numpy() for device in (Device(gpu), Device.cpu())]
        assert bits(result[0]) == bits(result[1])


@pytest.mark.parametrize("dtype", sorted(ALL, key=lambda dtype: dtype.value))
def test_zeros(gpu, dtype):
    garbage = gpu.storage(np.full(1000, 7, np.uint8))
    del garbage
    device = Device(gpu)
    assert not any(bits(device.zeros(Shape((10, 10)), dtype).to_numpy()))
    assert device.zeros(Shape((0, 3)), dtype).to_numpy().size == 0
    assert device.alloc_uninit(Shape((5,)), dtype).length == 5


def test_bytes_are_filled_and_copied(gpu):
    first, second = gpu.allocate(64), gpu.allocate(64)
    assert isinstance(first, own("StorageSlice"))
    gpu.driver.fill_bytes(first.address, 255, 64)
    gpu.driver.copy(second.address, first.address, 64)
    gpu.driver.zero(second.address + 60, 4)
    array = np.empty(16, np.uint32)
    gpu.read(array, second.address)
    assert array.tolist() == [0xFFFFFFFF] * 15 + [0]


@pytest.mark.parametrize("dtype", sorted(FLOAT, key=lambda dtype: dtype.value))
@pytest.mark.parametrize("count", [1, 2, 3, 5, 63, 1000, 4099])
def test_uniform_numbers_have_the_bits_of_the_cpu(gpu, dtype, count):
    devices = Device(gpu), Device.cpu()
    for seed, lo, up in ((0, 0.0, 1.0), (2**64 - 1, -1.5, 3.25), (299792458, 0.1, 0.3), (5, -0.001, 0.001)):
        for device in devices:
            device.set_seed(seed)
        for _ in range(2):
            drawn = [device.rand_uniform_f64(lo, up, Shape((count,)), dtype).to_numpy() for device in devices]
            assert bits(drawn[0]) == bits(drawn[1])
            assert (drawn[0].astype(np.float64) >= lo).all()
            assert (drawn[0].astype(np.float64) < up).all()


@pytest.mark.parametrize("dtype", sorted(FLOAT, key=lambda dtype: dtype.value))
def test_normal_numbers_are_within_4_ulp_of_the_cpu(gpu, dtype):
    devices = Device(gpu), Device.cpu()
    for device in devices:
        device.set_seed(77)
    on_gpu, on_cpu = (device.rand_normal_f64(0.0, 1.0, Shape((20_001,)), dtype).to_numpy() for device in devices)
    # Numbers of one sign are in the order of their bits.
    steps = np.abs(on_gpu.view(f"i{dtype.itemsize}").astype(np.int64) - on_cpu.view(f"i{dtype.itemsize}"))
    assert steps.max() <= (4 if dtype.itemsize > 2 else 1)


def test_uniform_and_normal_numbers_advance_one_stream(gpu):
    devices = Device(gpu), Device.cpu()
    for device in devices:
        device.set_seed(3)
        device.rand_normal_f64(0.0, 1.0, Shape((7,)), DType.F32)
        device.rand_uniform_f64(0.0, 1.0, Shape((0,)), DType.F32)
    drawn = [device.rand_uniform_f64(0.0, 1.0, Shape((9,)), DType.F64).to_numpy() for device in devices]
    assert drawn[0].tolist() == drawn[1].tolist()


def test_numbers_that_no_kernel_drew_are_still_to_come(gpu, monkeypatch):
    def fail(*arguments):
        raise KeyboardInterrupt

    device = Device(gpu)
    device.set_seed(3)
    # A plan launches without the kernels.
    gpu.plans.clear()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(gpu.kernels), "function", fail)
        device.rand_uniform_f64(0.0, 1.0, Shape((9,)), DType.F32)
    drawn = device.rand_uniform_f64(0.0, 1.0, Shape((9,)), DType.F32).to_numpy()
    device.set_seed(3)
    assert device.rand_uniform_f64(0.0, 1.0, Shape((9,)), DType.F32).to_numpy().tolist() == drawn.tolist()


def test_bounds_without_a_number_between_them(gpu):
    with pytest.raises(InvalidArgument, match="has no number from"):
        gpu.make(launches.rand_uniform_f64, 1.01, 1.02, Shape((1,)), DType.F8E4M3)


def test_threads_work_on_one_device(gpu):
    wrong = []

    def work(number: int) -> None:
        for iteration in range(20):
            numbers = np.full(500 + iteration, number, np.int64)
            if gpu.storage(numbers).to_numpy().tolist() != numbers.tolist():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    synchronize(gpu)
    assert not wrong


def test_the_stream_is_ordered_with_others(gpu):
    """The default stream of the device, by both of its numbers, and the device's own stream."""
    for stream in (0, gpu.driver.stream):
        filled = gpu.storage(np.zeros(1 << 20, np.uint8))
        gpu.driver.wait_for(stream)
        gpu.driver.fill_bytes(filled.memory.address, 1, filled.length)
        gpu.driver.let_wait(stream)
        assert filled.to_numpy().all()
    assert isinstance(gpu.driver.stream, int)


def test_importing_the_backend_imports_no_gpu_package():
    script = f"""
import sys
import {PACKAGE}
assert {PACKAGES[NAME]!r} not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_vendors_package_there_is_no_device(run_python):
    """A part of the package may be there, as CUDA's is with other packages."""
    run_python(
        f"""
        import sys
        import {PACKAGE} as package
        from tallow.runtime.base.error import BackendUnavailable
        sys.modules[{PACKAGES[NAME]!r}] = None
        assert package.device_count() == 0
        assert not package.is_available()
        for call in (lambda: package.{GpuDevice.__name__}(0), package.runtime_version):
            try:
                call()
            except BackendUnavailable as error:
                assert "pip install " in str(error)
            else:
                raise AssertionError(call)
        """
    )
