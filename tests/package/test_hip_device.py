"""Devices, their properties and which one is current."""

import dataclasses
import threading

import pytest

pytest.importorskip("hip")

from hip import hip
from tallow.rocm_backend.hip import (
    HipDevice,
    HipDeviceProp,
    HipError,
    device_count,
    hipUUID,
    runtime_version,
    synchronize_device,
)
from tallow.runtime.base.error import BackendUnavailable, InvalidArgument


@pytest.fixture(autouse=True)
def runtime():
    try:
        if device_count() == 0:
            pytest.skip("no GPU")
    except BackendUnavailable as error:
        pytest.skip(str(error))


def current() -> int:
    return hip.hipGetDevice()[1]


def test_devices_compare_by_ordinal():
    assert HipDevice(0) == HipDevice(0)
    assert hash(HipDevice(0)) == hash(HipDevice(0))
    assert HipDevice(0) != 0
    assert repr(HipDevice(0)) == "HipDevice(0)"
    assert HipDevice(0).label == "rocm:0"


@pytest.mark.parametrize("beyond", [-1, 1_000])
def test_an_ordinal_out_of_range(beyond):
    with pytest.raises(InvalidArgument, match=f"ordinal {beyond} is out of range"):
        HipDevice(beyond)


def test_no_device(monkeypatch):
    monkeypatch.setattr(hip, "hipGetDeviceCount", lambda: (hip.hipError_t.hipErrorNoDevice, 0))
    assert device_count() == 0
    with pytest.raises(BackendUnavailable, match="no GPU"):
        HipDevice(0)


def test_a_count_that_fails(monkeypatch):
    monkeypatch.setattr(hip, "hipGetDeviceCount", lambda: (hip.hipError_t.hipErrorInsufficientDriver, 0))
    with pytest.raises(HipError, match="hipErrorInsufficientDriver"):
        device_count()


def test_properties_are_read_once_and_frozen(monkeypatch):
    result = HipDevice(0).properties
    monkeypatch.setattr(hip, "hipGetDeviceProperties", None)
    assert HipDevice(0).properties is result
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.name = "another"


def test_properties_make_sense():
    actual = HipDevice(0).properties
    assert actual.name
    assert actual.gcn_arch_name.startswith(actual.target)
    assert actual.wave_size in (32, 64)
    assert actual.multi_processor_count > 0
    assert actual.max_threads_per_block >= 256
    assert min(actual.max_threads_dim) >= 64
    assert max(actual.max_threads_dim) <= actual.max_threads_per_block
    assert min(actual.max_grid) >= 65_535
    assert actual.shared_memory_per_block >= 32_768
    assert actual.shared_memory_per_multiprocessor >= actual.shared_memory_per_block
    assert actual.regs_per_multiprocessor >= actual.regs_per_block >= actual.max_threads_per_block
    assert actual.max_threads_per_multi_processor >= actual.max_threads_per_block
    assert 100_000 <= actual.clock_rate <= 10_000_000, "not in kHz"
    assert len(actual.uuid.bytes) == 16
    assert actual.pci.count(":") == 2


def test_properties_are_hips_own():
    raw = hip.hipGetDeviceProperties(0)[1]
    actual = HipDevice(0).properties
    assert actual.max_threads_dim == tuple(raw.maxThreadsDim)
    assert actual.max_grid == tuple(raw.maxGridSize)
    assert actual.regs_per_block == raw.regsPerBlock
    assert actual.max_threads_per_multi_processor == raw.maxThreadsPerMultiProcessor
    assert actual.max_blocks_per_multi_processor == raw.maxBlocksPerMultiProcessor
    assert actual.shared_memory_per_multiprocessor == raw.maxSharedMemoryPerMultiProcessor
    assert actual.regs_per_multiprocessor == raw.regsPerMultiprocessor
    assert actual.clock_rate == raw.clockRate


@pytest.mark.parametrize(
    ("arch", "target", "features"),
    [
        ("gfx90a:sramecc+:xnack-", "gfx90a", ("sramecc+", "xnack-")),
        ("gfx1030", "gfx1030", ()),
    ],
)
def test_the_target_has_no_features(arch, target, features):
    actual = dataclasses.replace(HipDevice(0).properties, gcn_arch_name=arch)
    assert isinstance(actual, HipDeviceProp)
    assert actual.target == target
    assert actual.features == features


@pytest.mark.parametrize(
    ("raw", "printed"),
    [
        (b"0123456789abcdef", "GPU-0123456789abcdef"),
        (b"XX" + bytes(14), "GPU-XX"),
        (bytes(range(16)), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (bytes(16), "GPU-00000000-0000-0000-0000-000000000000"),
    ],
)
def test_uuids_print_as_amd_prints_them(raw, printed):
    assert str(hipUUID(raw)) == printed
    assert hipUUID(raw) == hipUUID(bytes(raw))


def test_a_uuid_has_16_bytes():
    with pytest.raises(InvalidArgument, match="16 bytes, not 3"):
        hipUUID(b"abc")


def test_memory_is_what_the_device_has():
    free, total = HipDevice(0).memory()
    assert 0 < free <= total
    assert total == HipDevice(0).memory().total


def test_version_has_three_parts():
    major, minor, patch = runtime_version()
    assert major >= 6
    assert 0 <= minor < 100
    assert 0 <= patch < 100_000


def test_synchronizing():
    HipDevice(0).synchronize()
    synchronize_device()
    synchronize_device(HipDevice(0))
    with pytest.raises(InvalidArgument, match="out of range"):
        synchronize_device(1_000)


def test_activated_restores_the_previous_device():
    if device_count() < 2:
        pytest.skip("needs two devices")
    HipDevice(0).set_current()
    with HipDevice(1).activated():
        assert current() == 1
        with HipDevice(1).activated():
            assert current() == 1
    assert current() == 0
    with pytest.raises(KeyError), HipDevice(1).activated():
        raise KeyError
    assert current() == 0


def test_the_current_device_is_that_of_the_thread():
    if device_count() < 2:
        pytest.skip("needs two devices")
    HipDevice(0).set_current()
    seen = []

    def work():
        HipDevice(1).set_current()
        seen.append(current())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]
    assert current() == 0
