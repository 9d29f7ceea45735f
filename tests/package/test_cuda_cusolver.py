"""Decompositions by cuSOLVER: what is passed to it, and what comes of it where it fails or is missing."""

from __future__ import annotations

import gc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tallow.dtype import DType

pytest.importorskip("cuda.bindings")

from tallow.runtime.backends.cuda_backend.libraries.cusolver import CuSolver
from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.gpu_backend.memory.allocator import CachingAllocator

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
    "gesvdj_buffer_size": "jobz econ m n a lda s u ldu v ldv params",
    "gesvdj": "jobz econ m n a lda s u ldu v ldv work lwork info params",
    "gesvdj_batched_buffer_size": "jobz m n a lda s u ldu v ldv params batch_size",
    "gesvdj_batched": "jobz m n a lda s u ldu v ldv work lwork info params batch_size",
    "potrf_batched": "uplo n aarray lda info_array batch_size",
    "syev_batched_buffer_size": "params jobz uplo n data_type_a a lda data_type_w w compute_type batch_size",
    "syev_batched": (
        "params jobz uplo n data_type_a a lda data_type_w w compute_type buffer_on_device workspace_in_bytes_on_device"
        " buffer_on_host workspace_in_bytes_on_host info batch_size"
    ),
    "getrf_batched": "n a lda p info batch_size",
    "getrs_batched": "trans n nrhs aarray lda dev_ipiv barray ldb info batch_size",
    "geqrf_batched": "m n aarray lda tau_array info batch_size",
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
            if name.endswith("buffer_size"):
                return (512, 16) if "syev_batched" in name else 512
            return {"create": 77, "create_params": 78, "create_gesvdj_info": 79}.get(name)

        return call


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def library(context, monkeypatch) -> Library:
    library = Library(context)
    errors = SimpleNamespace(cuSOLVERError=CuSolverError, get_property=lambda kind: 12)
    library.cuBLASError, library.get_cudart_version = CuSolverError, lambda: 13
    bindings = SimpleNamespace(cusolver=errors, cusolverDn=library, cublas=library)
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
    assert [name for name, _ in library.calls] == [
        *("create", "create", "set_stream", "set_stream", "create_params", "create_gesvdj_info")
    ]
    assert library.calls[2] == ("set_stream", {"stream": 1234})
    library.calls.clear()
    solver.cholesky(DType.F64, 4, 2, 4096, 0)
    (size, asked), (first, one), (second, other) = library.calls
    assert (size, first, second) == ("dpotrf_buffer_size", "dpotrf", "dpotrf")
    assert asked == {"uplo": 1, "n": 4, "a": 4096, "lda": 4}
    assert {**other, "a": one["a"], "dev_info": one["dev_info"]} == one
    assert (other["a"] - one["a"], other["dev_info"] - one["dev_info"]) == (4 * 4 * 8, 4)
    assert one["lwork"] == 512
    del solver
    gc.collect()
    given_back = {name for name, _ in library.calls}
    assert given_back >= {"destroy", "destroy_params", "destroy_gesvdj_info"}


def test_one_call_works_on_many_matrices(context, library):
    solver = open_solver(context)
    library.calls.clear()
    solver.cholesky(DType.F64, 4, 9, 4096, 64)
    solver.lu(DType.COMPLEX64, 4, 9, 4096, 8192, 64)
    solver.solve(DType.F32, 4, 2, 9, 4096, 8192, 12288, 64, 128)
    solver.qr(DType.COMPLEX128, 5, 3, 5 * 3 * 16, 9, 4096, 8192, 64, 128)
    solver.eigh(DType.COMPLEX64, 3, 9, True, 4096, 8192)
    solver.svd(DType.F32, (5, 3, 5), 9, True, 4096, 8192, 12288, 16384, 20480)
    assert [name for name, _ in library.calls if not name.endswith("buffer_size")] == [
        *("dpotrf_batched", "cgetrf_batched", "sgetrf_batched", "sgetrs_batched", "zgeqrf_batched"),
        *("xsyev_batched", "sgesvdj_batched"),
    ]
    actual = dict(library.calls)
    assert actual["dpotrf_batched"]["aarray"] == actual["zgeqrf_batched"]["aarray"] == 64
    assert actual["sgetrs_batched"]["barray"] == actual["zgeqrf_batched"]["tau_array"] == 128
    eigenvalues, singular = actual["xsyev_batched"], actual["sgesvdj_batched"]
    assert (eigenvalues["params"], eigenvalues["data_type_a"], eigenvalues["data_type_w"]) == (78, 4, 0)
    assert (eigenvalues["workspace_in_bytes_on_device"], eigenvalues["workspace_in_bytes_on_host"]) == (512, 16)
    assert (singular["params"], singular["info"], singular["ldu"], singular["ldv"]) == (79, 20480, 5, 3)


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
        solver.qr(dtype, 5, 3, 5 * 3 * dtype.itemsize, 1, 4096, 8192, 0, 0)
        solver.orthonormal(dtype, 5, 3, 3, 5 * 3 * dtype.itemsize, 1, 4096, 8192)
        solver.svd(dtype, (5, 3, 3), 1, True, 4096, 8192, 12288, 16384, 20480)
        solver.solve(dtype, 3, 2, 1, 4096, 8192, 12288, 0, 0)
        names = [name for name, _ in library.calls if not name.endswith("buffer_size")]
        assert names == [f"{letter}{name}" for name in (eigen, "geqrf", columns, "gesvdj", "getrf", "getrs")]
        actual = dict(library.calls)
        assert (actual[f"{letter}{eigen}"]["jobz"], actual[f"{letter}{eigen}"]["uplo"]) == (1, 0)
        assert (actual[f"{letter}gesvdj"]["econ"], actual[f"{letter}gesvdj"]["params"]) == (1, 79)
        assert actual[f"{letter}getrs"]["trans"] == 1
        assert actual[f"{letter}getrs"]["dev_info"] != actual[f"{letter}getrf"]["dev_info"]


def test_a_refusal_names_the_function(context, library):
    solver = open_solver(context)
    library.failing = "sgetrf"
    with pytest.raises(LibraryError, match=r"cusolver sgetrf.*INVALID_VALUE.*tallow needs cuSOLVER"):
        solver.lu(DType.F32, 3, 1, 4096, 8192, 0)


def test_without_the_library_there_is_none(context, library, monkeypatch):
    def missing(kind):
        raise RuntimeError("libcusolver is not there")

    monkeypatch.setattr(sys.modules["nvmath.bindings"].cusolver, "get_property", missing)
    assert open_solver(context) is None
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    assert open_solver(context) is None
