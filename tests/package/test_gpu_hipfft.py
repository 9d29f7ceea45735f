"""Transforms by hipFFT, on the HIP runtime for the CPU: plans, their memory, and what there is without the library."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Graph, Tensor, array_api
from tallow.dtype import DType

pytest.importorskip("hip")

from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.gpu_backend.libraries import fft
from tallow.runtime.backends.rocm_backend.libraries.hipfft import HipFft

from .library_calls import run


@pytest.fixture
def library(rocm, host) -> HipFft:
    opened = HipFft.open(rocm.driver, rocm.allocator)
    assert opened is not None
    return opened


def transformed(rocm, library: HipFft, lines: np.ndarray) -> np.ndarray:
    """Transforms of complex numbers, back without a division."""
    source = rocm.storage(lines)
    result = rocm.empty(source.dtype, source.length)
    count = lines.shape[-1]
    addresses = source.memory.address, result.memory.address
    run(library.transform(DType.F32, fft.Transform.FORWARD, count, lines.size // count, *addresses))
    return result.to_numpy().reshape(lines.shape)


def numbers(*shape: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    return (generator.normal(size=shape) + 1j * generator.normal(size=shape)).astype(np.complex64)


def test_a_plan_serves_all_lines_of_its_sizes(rocm, library, host):
    before = host.live("hipfft plan")
    host.take_log()
    for x in (numbers(3, 5), 2 * numbers(3, 5), numbers(2, 5)):
        np.testing.assert_allclose(transformed(rocm, library, x), np.fft.fft(x), rtol=1e-5, atol=1e-5)
    result = [call for call in host.take_log() if call["call"] == "hipfftMakePlanMany64"]
    assert [(call["count"], call["lines"]) for call in result] == [(5, 3), (5, 2)]
    assert host.live("hipfft plan") == before + 2


def test_plans_that_are_not_used_are_given_back(rocm, library, host, monkeypatch):
    monkeypatch.setattr(fft, "_MAX_PLANS", 2)
    before = host.live("hipfft plan")
    for count in (4, 5, 4, 6, 4):
        x = numbers(2, count)
        np.testing.assert_allclose(transformed(rocm, library, x), np.fft.fft(x), rtol=1e-5, atol=1e-5)
        assert host.live("hipfft plan") <= before + 2
    host.take_log()
    transformed(rocm, library, numbers(2, 4))
    assert not [call for call in host.take_log() if call["call"] == "hipfftMakePlanMany64"]
    del library
    gc.collect()


def test_a_failure_leaves_no_plan(rocm, library, host):
    before = host.live("hipfft plan")
    for call in ("hipfftCreate", "hipfftSetAutoAllocation", "hipfftMakePlanMany64", "hipfftSetStream"):
        host.fail(call)
        with pytest.raises(LibraryError, match=f"{call}.*; tallow needs hipFFT"):
            transformed(rocm, library, numbers(2, 3))
        assert host.live("hipfft plan") == before, call
    x = numbers(2, 3)
    np.testing.assert_allclose(transformed(rocm, library, x), np.fft.fft(x), rtol=1e-5, atol=1e-5)
    for call in ("hipfftSetWorkArea", "hipfftExecC2C"):
        host.fail(call)
        with pytest.raises(LibraryError, match=call):
            transformed(rocm, library, x)


def test_transforms_are_captured(rocm, host):
    device = Device(rocm)
    x = Tensor(numbers(3, 8), device=device)
    # The plan is made before.
    expected = array_api.fft.fft(x).numpy()
    graph = Graph(device)
    with graph.capture():
        result = array_api.fft.fft(x)
    for factor in (1, 2):
        x.copy_(Tensor(factor * numbers(3, 8), device=device))
        graph.replay()
        np.testing.assert_allclose(result.numpy(), factor * expected, rtol=1e-6)


def test_without_the_library_the_host_transforms(rocm, monkeypatch):
    from rocm.bindings import hipfft

    monkeypatch.setattr(hipfft, "has_symbol", lambda name: name == "hipfftCreate")
    assert HipFft.open(rocm.driver, rocm.allocator) is None
    monkeypatch.setattr(type(rocm), "hipfft", None)
    rocm.plans.clear()
    device = Device(rocm)
    x = numbers(3, 8)
    lines = Tensor(x, device=device).T
    for _ in range(3):
        np.testing.assert_allclose(array_api.fft.fft(lines).numpy(), np.fft.fft(x.T), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            array_api.fft.rfft(lines.real()).numpy(), np.fft.rfft(x.T.real), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(
            array_api.fft.irfft(lines, n=5).numpy(), np.fft.irfft(x.T, n=5), rtol=1e-5, atol=1e-5
        )
    with pytest.raises(tl.CaptureError), Graph(device).capture():
        array_api.fft.fft(lines)
    rocm.plans.clear()
