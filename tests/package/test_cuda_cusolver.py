"""Decompositions by cuSOLVER: what is passed to it, and what comes of it where it fails or is missing."""

from __future__ import annotations

import gc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tallow.dtype import DType

pytest.importorskip("cuda.bindings")

from tallow.runtime.backends.cuda_backend.cusolver import CuSolver
from tallow.runtime.backends.gpu_backend.allocator import CachingAllocator
from tallow.runtime.backends.gpu_backend.error import LibraryError

from .test_cuda_cublas import Context, queue
from .test_gpu_allocator import Memory

# What follows the handle in the functions of nvmath-python, of real numbers.
PARAMETERS = {
    "potrf_buffer_size": "uplo n a lda",
    "potrf": "uplo n a lda workspace lwork dev_info",
    "getrf_buffer_size": "m n a lda",
    "getrf": "m n a lda workspace dev_ipiv dev_info",
    "getrs": "trans n nrhs a lda dev_ipiv b ldb dev_info",
    "geqrf_buffer_size": "m n a lda",
    "geqrf": "m n a lda tau workspace lwork dev_info",
    "orgqr_buffer_size": "m n k a lda tau",
    "orgqr": "m n k a lda tau work lwork info",
    "syevd_buffer_size": "jobz uplo n a lda w",
    "syevd": "jobz uplo n a lda w work lwork info",
    "gesvd_buffer_size": "m n",
    "gesvd": "jobu jobvt m n a lda s u ldu vt ldvt work lwork rwork info",
}
OF_COMPLEX = {"ungqr": "orgqr", "heevd": "syevd"}


class CuSolverError(Exception):
    """As nvmath-python's."""


class Library(ModuleType):
    """nvmath-python's module: what it is called with, and in which context."""

    def __init__(self, context: Context) -> None:
        super().__init__("nvmath.bindings.cusolverDn")
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.context = context
        self.failing = ""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(handle=None, *arguments):
            assert self.context.depth
            stem = name[1:]
            for special, usual in OF_COMPLEX.items():
                stem = stem.replace(special, usual) if name[0] in "cz" else stem
            names = PARAMETERS[stem].split() if stem in PARAMETERS else ["stream"][: len(arguments)]
            self.calls.append((name, dict(zip(names, arguments, strict=True))))
            if name == self.failing:
                raise CuSolverError("INVALID_VALUE (3)")
            return {"create": 77, "buffer_size": 512}.get(name if name == "create" else name[-11:])

        return call


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def library(context, monkeypatch) -> Library:
    library = Library(context)
    errors = SimpleNamespace(cuSOLVERError=CuSolverError, get_property=lambda kind: 12)
    bindings = SimpleNamespace(cusolver=errors, cusolverDn=library)
    for name, module in (("nvmath", SimpleNamespace(bindings=bindings)), ("nvmath.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    return library


def open_solver(context: Context) -> CuSolver | None:
    driver = SimpleNamespace(
        device=context, queue=queue(1234), label="cuda:0", copy_to_host=lambda array, address: array.fill(0)
    )
    return CuSolver.open(driver, CachingAllocator(Memory()))


def test_matrices_follow_each_other_with_one_workspace(context, library):
    solver = open_solver(context)
    assert library.calls == [("create", {}), ("set_stream", {"stream": 1234})]
    library.calls.clear()
    solver.cholesky(DType.F64, 4, 2, 4096)
    (size, asked), (first, one), (second, other) = library.calls
    assert (size, first, second) == ("dpotrf_buffer_size", "dpotrf", "dpotrf")
    assert asked == {"uplo": 1, "n": 4, "a": 4096, "lda": 4}
    assert {**other, "a": one["a"], "dev_info": one["dev_info"]} == one
    assert (other["a"] - one["a"], other["dev_info"] - one["dev_info"]) == (4 * 4 * 8, 4)
    assert one["lwork"] == 512
    del solver
    gc.collect()
    assert library.calls[-1][0] == "destroy"


def test_each_dtype_has_its_functions(context, library):
    solver = open_solver(context)
    for dtype, letter, eigen, columns in (
        (DType.F32, "s", "syevd", "orgqr"),
        (DType.F64, "d", "syevd", "orgqr"),
        (DType.COMPLEX64, "c", "heevd", "ungqr"),
        (DType.COMPLEX128, "z", "heevd", "ungqr"),
    ):
        library.calls.clear()
        solver.eigh(dtype, 3, 1, True, 4096, 8192)
        solver.qr(dtype, 5, 3, 5 * 3 * dtype.itemsize, 1, 4096, 8192)
        solver.orthonormal(dtype, 5, 3, 3, 5 * 3 * dtype.itemsize, 1, 4096, 8192)
        solver.svd(dtype, (5, 3, 3), 1, True, 4096, 8192, 12288, 16384)
        solver.solve(dtype, 3, 2, 1, 4096, 8192, 12288)
        names = [name for name, _ in library.calls if not name.endswith("buffer_size")]
        assert names == [f"{letter}{name}" for name in (eigen, "geqrf", columns, "gesvd", "getrf", "getrs")]
        found = dict(library.calls)
        assert (found[f"{letter}{eigen}"]["jobz"], found[f"{letter}{eigen}"]["uplo"]) == (1, 0)
        assert found[f"{letter}gesvd"]["jobu"] == ord("S")
        assert found[f"{letter}getrs"]["trans"] == 1
        assert found[f"{letter}getrs"]["dev_info"] != found[f"{letter}getrf"]["dev_info"]


def test_a_refusal_names_the_function(context, library):
    solver = open_solver(context)
    library.failing = "sgetrf"
    with pytest.raises(LibraryError, match=r"cusolver sgetrf.*INVALID_VALUE.*tallow needs cuSOLVER"):
        solver.lu(DType.F32, 3, 1, 4096, 8192)


def test_without_the_library_there_is_none(context, library, monkeypatch):
    def missing(kind):
        raise RuntimeError("libcusolver is not there")

    monkeypatch.setattr(sys.modules["nvmath.bindings"].cusolver, "get_property", missing)
    assert open_solver(context) is None
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    assert open_solver(context) is None
