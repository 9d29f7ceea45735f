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
CORES = ahead._cores
FLOATS = [dtype for dtype in DType if dtype.is_float]


@pytest.fixture
def many_cores(monkeypatch):
    monkeypatch.setattr(ahead, "_cores", lambda: 6)


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
    monkeypatch.setattr(ahead, "_cores", lambda: 2)
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
        ahead._cores = lambda: 4
        def compile_kernel(family, name):
            print("compiled")
            time.sleep(0.5)
        ahead.CompiledAhead(compile_kernel).begin("add_f32_contiguous")
        """
    )
    assert printed.count("compiled") == 2


@pytest.mark.parametrize(
    ("quota", "most"), [("max 100000\n", 1 << 20), ("150000 100000\n", 1), ("", 1 << 20), (None, 1 << 20)]
)
def test_a_container_has_as_many_cores_as_it_may_use(quota, most, monkeypatch, tmp_path):
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    monkeypatch.setattr(ahead, "_QUOTA", file)
    seen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert CORES() == min(seen, most)
