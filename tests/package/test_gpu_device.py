"""A GPU as a device: what its objects share, what goes in and out, and what it says where it is not there."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from tallow.cpu_backend import CpuDevice
from tallow.dtype import ALL, FLOAT, DType
from tallow.error import BackendUnavailable, InvalidArgument
from tallow.rocm_backend import RocmDevice, RocmStorage, device_count, is_available, runtime_version
from tallow.rocm_backend.storage import Slice
from tallow.shape import Shape


def bits(array: np.ndarray) -> list[int]:
    return array.view(f"u{array.dtype.itemsize}").tolist()


def test_devices_of_one_ordinal_share_everything(rocm):
    other = RocmDevice.open(0)
    assert other == rocm
    assert hash(other) == hash(rocm)
    assert (other.driver, other.kernels, other.allocator) == (rocm.driver, rocm.kernels, rocm.allocator)
    other.set_seed(11)
    assert rocm.get_current_seed() == 11
    assert pickle.loads(pickle.dumps(rocm)) == rocm


def test_threads_open_a_device_once(run_python):
    run_python(
        """
        import threading
        from tallow.rocm_backend import RocmDevice
        opened = []
        threads = [threading.Thread(target=lambda: opened.append(RocmDevice(0).driver)) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(opened) == 8 and len({id(driver) for driver in opened}) == 1
        """
    )


@pytest.mark.parametrize("ordinal", [-1, 1000])
def test_an_ordinal_that_no_device_has(rocm, ordinal):
    with pytest.raises(InvalidArgument, match=f"ordinal {ordinal} is out of range"):
        RocmDevice(ordinal)


def test_what_there_is(rocm):
    assert device_count() >= 1
    assert is_available()
    assert RocmDevice.is_available()
    assert len(runtime_version().split(".")) == 3
    assert rocm.driver.label == "rocm:0"
    assert rocm.driver.wave_size in (32, 64)
    assert rocm.driver.multiprocessors >= 1


@pytest.mark.parametrize("dtype", sorted(ALL, key=lambda dtype: dtype.value))
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_arrays_go_in_and_come_out(rocm, dtype, count):
    numbers = np.random.default_rng(1).integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype.numpy)
    storage = rocm.storage(numbers)
    assert isinstance(storage, RocmStorage)
    assert (storage.device, storage.dtype, storage.length) == (rocm, dtype, count)
    assert bits(storage.to_numpy()) == bits(numbers)


def test_an_array_goes_in_in_row_major_order(rocm):
    numbers = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    for view in (numbers.transpose(2, 0, 1), numbers[:, ::-1, ::2], numbers[0, 0, 0]):
        assert rocm.storage(view).to_numpy().tolist() == np.ravel(view).tolist()


def test_a_storage_keeps_a_copy(rocm):
    numbers = np.arange(5, dtype=np.float32)
    storage, owned = rocm.storage(numbers), rocm.storage_owned(numbers)
    numbers[:] = -1
    assert storage.to_numpy().tolist() == owned.to_numpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", sorted(ALL, key=lambda dtype: dtype.value))
def test_numbers_are_converted_as_on_the_cpu(rocm, dtype):
    for numbers in ([], [1, -2, 300], [0.5, 1e9, -1e30, float("nan"), float("inf")], [True, False]):
        expected = CpuDevice().storage_from_slice(numbers, dtype).to_numpy()
        assert bits(rocm.storage_from_slice(numbers, dtype).to_numpy()) == bits(expected)


@pytest.mark.parametrize("dtype", sorted(ALL, key=lambda dtype: dtype.value))
def test_zeros(rocm, dtype):
    garbage = rocm.storage(np.full(1000, 7, np.uint8))
    del garbage
    assert not any(bits(rocm.zeros(Shape((10, 10)), dtype).to_numpy()))
    assert rocm.zeros(Shape((0, 3)), dtype).to_numpy().size == 0
    assert rocm.alloc_uninit(Shape((5,)), dtype).length == 5


def test_bytes_are_filled_and_copied(rocm):
    first, second = rocm.allocate(64), rocm.allocate(64)
    assert isinstance(first, Slice)
    rocm.driver.fill_bytes(first.address, 255, 64)
    rocm.driver.copy(second.address, first.address, 64)
    rocm.driver.zero(second.address + 60, 4)
    array = np.empty(16, np.uint32)
    rocm.read(array, second.address)
    assert array.tolist() == [0xFFFFFFFF] * 15 + [0]


@pytest.mark.parametrize("dtype", sorted(FLOAT, key=lambda dtype: dtype.value))
@pytest.mark.parametrize("count", [1, 2, 3, 5, 63, 1000, 4099])
def test_uniform_numbers_have_the_bits_of_the_cpu(rocm, dtype, count):
    cpu = CpuDevice()
    for seed, lo, up in ((0, 0.0, 1.0), (2**64 - 1, -1.5, 3.25), (299792458, 0.1, 0.3), (5, -0.001, 0.001)):
        for device in (rocm, cpu):
            device.set_seed(seed)
        for _ in range(2):
            drawn = [device.rand_uniform_f64(lo, up, Shape((count,)), dtype).to_numpy() for device in (rocm, cpu)]
            assert bits(drawn[0]) == bits(drawn[1])
            assert (drawn[0].astype(np.float64) >= lo).all()
            assert (drawn[0].astype(np.float64) < up).all()


@pytest.mark.parametrize("dtype", sorted(FLOAT, key=lambda dtype: dtype.value))
def test_normal_numbers_are_within_4_ulp_of_the_cpu(rocm, dtype):
    cpu = CpuDevice()
    for device in (rocm, cpu):
        device.set_seed(77)
    on_gpu, on_cpu = (device.rand_normal_f64(0.0, 1.0, Shape((20_001,)), dtype).to_numpy() for device in (rocm, cpu))
    # Numbers of one sign are in the order of their bits.
    steps = np.abs(on_gpu.view(f"i{dtype.itemsize}").astype(np.int64) - on_cpu.view(f"i{dtype.itemsize}"))
    assert steps.max() <= (4 if dtype.itemsize > 2 else 1)


def test_uniform_and_normal_numbers_advance_one_stream(rocm):
    cpu = CpuDevice()
    for device in (rocm, cpu):
        device.set_seed(3)
        device.rand_normal_f64(0.0, 1.0, Shape((7,)), DType.F32)
        device.rand_uniform_f64(0.0, 1.0, Shape((0,)), DType.F32)
    drawn = [device.rand_uniform_f64(0.0, 1.0, Shape((9,)), DType.F64).to_numpy() for device in (rocm, cpu)]
    assert drawn[0].tolist() == drawn[1].tolist()


def test_bounds_without_a_number_between_them(rocm):
    with pytest.raises(InvalidArgument, match="has no number from"):
        rocm.rand_uniform_f64(1.01, 1.02, Shape((1,)), DType.F8E4M3)


def test_threads_work_on_one_device(rocm):
    wrong = []

    def work(number: int) -> None:
        for turn in range(20):
            numbers = np.full(500 + turn, number, np.int64)
            if rocm.storage(numbers).to_numpy().tolist() != numbers.tolist():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rocm.synchronize()
    assert not wrong


def test_importing_the_backend_imports_no_gpu_package():
    script = """
import sys
import tallow.rocm_backend
assert not {"hip", "rocm"} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_hip_python_there_is_no_device(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tallow.rocm_backend.")]:
        if name.rsplit(".", 1)[1] in ("driver", "runtime", "compiler") or ".hip" in name:
            monkeypatch.delitem(sys.modules, name)
    for module in ("driver", "runtime", "compiler", "hip"):
        monkeypatch.delattr(sys.modules["tallow.rocm_backend"], module, raising=False)
    for name in ("hip", "rocm", "rocm.bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    assert device_count() == 0
    assert not is_available()
    for call in (lambda: RocmDevice(0), runtime_version):
        with pytest.raises(BackendUnavailable, match=r"pip install 'tallow\[rocm\]'"):
            call()
