"""Transforms by cuFFT: what is passed to it, and what comes of it where it fails or is missing."""

from __future__ import annotations

import gc
import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import pytest
from tallow.dtype import DType

pytest.importorskip("cuda.bindings")

from tallow.runtime.backends.cuda_backend.libraries.cufft import CuFft
from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.gpu_backend.libraries.library import Transform
from tallow.runtime.backends.gpu_backend.memory.allocator import CachingAllocator

from .library_calls import run
from .test_cuda_cublas import Context, queue
from .test_gpu_allocator import Memory


class CuFftError(Exception):
    """As nvmath-python's."""


class Library(ModuleType):
    """nvmath-python's module: what it is called with, and in which context."""

    Type = IntEnum("Type", {"R2C": 0x2A, "C2R": 0x2C, "C2C": 0x29, "D2Z": 0x6A, "Z2D": 0x6C, "Z2Z": 0x69})
    cuFFTError = CuFftError  # noqa: N815 - nvmath-python's own name

    def __init__(self, context: Context) -> None:
        super().__init__("nvmath.bindings.cufft")
        self.calls: list[tuple] = []
        self.context = context
        self.failing = ""
        self.workspace = 512

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments):
            assert self.context.depth or name == "get_version"
            self.calls.append((name, *arguments))
            if name == self.failing:
                raise CuFftError("INVALID_SIZE (8)")
            return {"create": 77, "make_plan_many64": self.workspace}.get(name)

        return call


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def library(context, monkeypatch) -> Library:
    library = Library(context)
    bindings = SimpleNamespace(cufft=library)
    for name, module in (("nvmath", SimpleNamespace(bindings=bindings)), ("nvmath.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cufft", library)
    return library


def open_fft(context: Context) -> CuFft | None:
    return CuFft.open(SimpleNamespace(device=context, queue=queue(1234)), CachingAllocator(Memory()))


def test_a_plan_is_made_once_and_given_back(context, library):
    fft = open_fft(context)
    library.calls.clear()
    run(fft.transform(DType.F32, Transform.FORWARD, 5, 3, 4096, 8192))
    (work,) = [call for call in library.calls if call[0] == "set_work_area"]
    assert library.calls == [
        ("create",),
        ("set_auto_allocation", 77, 0),
        ("make_plan_many64", 77, 1, [5], 0, 1, 0, 0, 1, 0, 0x29, 3),
        ("set_stream", 77, 1234),
        work,
        ("exec_c2c", 77, 4096, 8192, -1),
    ]
    library.calls.clear()
    run(fft.transform(DType.F32, Transform.INVERSE, 5, 3, 4096, 8192))
    assert [call[0] for call in library.calls] == ["set_work_area", "exec_c2c"]
    assert library.calls[-1][-1] == 1
    library.calls.clear()
    del fft
    gc.collect()
    assert library.calls == [("destroy", 77)]


def test_a_plan_without_a_workspace_is_told_so_once(context, library):
    fft = open_fft(context)
    library.workspace = 0
    run(fft.transform(DType.F32, Transform.FORWARD, 5, 3, 4096, 8192))
    assert [call[0] for call in library.calls][-3:] == ["set_stream", "set_work_area", "exec_c2c"]
    library.calls.clear()
    run(fft.transform(DType.F32, Transform.FORWARD, 5, 3, 4096, 8192))
    assert library.calls == [("exec_c2c", 77, 4096, 8192, -1)]


@pytest.mark.parametrize(
    ("dtype", "form", "call", "kind"),
    [
        (DType.F32, Transform.REAL, "exec_r2c", 0x2A),
        (DType.F32, Transform.INVERSE_REAL, "exec_c2r", 0x2C),
        (DType.F64, Transform.REAL, "exec_d2z", 0x6A),
        (DType.F64, Transform.INVERSE_REAL, "exec_z2d", 0x6C),
        (DType.F64, Transform.FORWARD, "exec_z2z", 0x69),
    ],
)
def test_each_kind_has_its_function(context, library, dtype, form, call, kind):
    fft = open_fft(context)
    run(fft.transform(dtype, form, 8, 2, 4096, 8192))
    assert library.calls[-1][:4] == (call, 77, 4096, 8192)
    (result,) = [each for each in library.calls if each[0] == "make_plan_many64"]
    assert result[-2] == kind


def test_a_refusal_gives_the_plan_back(context, library):
    fft = open_fft(context)
    library.calls.clear()
    library.failing = "make_plan_many64"
    with pytest.raises(LibraryError, match=r"cufft make_plan_many64.*INVALID_SIZE.*tallow needs cuFFT"):
        run(fft.transform(DType.F32, Transform.FORWARD, 5, 3, 4096, 8192))
    assert library.calls[-1] == ("destroy", 77)


def test_without_the_library_there_is_none(context, library, monkeypatch):
    def missing():
        raise RuntimeError("libcufft is not there")

    monkeypatch.setattr(library, "get_version", missing, raising=False)
    assert open_fft(context) is None
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    assert open_fft(context) is None
