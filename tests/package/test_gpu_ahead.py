"""Kernels that are compiled on idle cores, before anybody has asked for them."""

from __future__ import annotations

import os
import threading

import pytest
from tallow import DType
from tallow.gpu_backend import ahead
from tallow.gpu_backend.ahead import CompiledAhead, usual_kernels
from tallow.gpu_backend.kernels import one_kernel

# Before a fixture takes its place.
IDLE_CORES = ahead._idle_cores
FLOATS = [dtype for dtype in DType if dtype.is_float]


@pytest.fixture
def many_cores(monkeypatch):
    monkeypatch.setattr(ahead, "_idle_cores", lambda: 6)


def finished() -> None:
    """Wait for the threads that compile."""
    for thread in threading.enumerate():
        if thread.name.startswith("tallow compiles"):
            thread.join()


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_usual_kernels_are_kernels_of_the_package(dtype):
    found = usual_kernels(dtype)
    assert len(found) == len(set(found))
    for family, name in found:
        one_kernel(family, name)


def test_the_usual_kernels_of_a_dtype_are_compiled_once_from_its_first_kernel_on(many_cores):
    compiled = []
    compiler = CompiledAhead(lambda family, name: compiled.append((family, name)))
    for name in ("sin_f16_contiguous", "to_dtype_f16_f32_contiguous"):
        compiler.begin(name)
    finished()
    assert sorted(compiled) == sorted(usual_kernels(DType.F16))
    compiler.begin("sin_f32_contiguous")
    finished()
    assert sorted(compiled) == sorted(usual_kernels(DType.F16) + usual_kernels(DType.F32))


@pytest.mark.parametrize("name", ["copy_b32_strided", "add_i64_contiguous", "index_check"])
def test_a_kernel_without_a_float_dtype_begins_nothing(many_cores, name):
    compiled = []
    CompiledAhead(lambda family, name: compiled.append(name)).begin(name)
    finished()
    assert not compiled


def test_few_cores_are_left_to_the_program(monkeypatch):
    monkeypatch.setattr(ahead, "_idle_cores", lambda: 2)
    compiled = []
    CompiledAhead(lambda family, name: compiled.append(name)).begin("add_f32_contiguous")
    finished()
    assert not compiled


def test_what_fails_ahead_does_not_stop_the_others(many_cores):
    compiled = []

    def compile_kernel(family, name):
        compiled.append(name)
        raise OSError

    CompiledAhead(compile_kernel).begin("add_f32_contiguous")
    finished()
    assert len(compiled) == len(usual_kernels(DType.F32))


def test_a_program_ends_without_what_is_still_to_be_compiled(run_python):
    printed = run_python(
        """
        import time
        from tallow.gpu_backend import ahead
        ahead._idle_cores = lambda: 4
        def compile_kernel(family, name):
            print("compiled")
            time.sleep(0.5)
        ahead.CompiledAhead(compile_kernel).begin("add_f32_contiguous")
        """
    )
    assert printed.count("compiled") == 2


@pytest.fixture
def eight_cores(monkeypatch, tmp_path):
    """A machine with 8 cores that do nothing, and the file in which a container's quota is."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.2, 5.0, 5.0), raising=False)
    monkeypatch.setattr(ahead, "_QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.mark.parametrize(("quota", "cores"), [("max 100000\n", 8), ("350000 100000\n", 3), ("", 8), (None, 8)])
def test_a_container_has_as_many_cores_as_it_may_use(eight_cores, quota, cores):
    if quota is not None:
        eight_cores.write_text(quota)
    assert IDLE_CORES() == cores


def test_cores_that_are_busy_are_left_alone(eight_cores, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (5.2, 0.0, 0.0), raising=False)
    assert IDLE_CORES() == 3
