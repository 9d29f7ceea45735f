"""Decompositions by hipSOLVER, on the HIP runtime for the CPU: the handle, failures, and what there is without it."""

from __future__ import annotations

import gc
from itertools import product

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Graph, Tensor, array_api
from tallow.dtype import DType

pytest.importorskip("hip")

from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.rocm_backend.libraries.hipsolver import HipSolver

X = np.random.default_rng(0).normal(size=(3, 5, 5)).astype(np.float32)
SYMMETRIC = X @ X.swapaxes(-1, -2) + np.eye(5, dtype=np.float32)


@pytest.fixture
def library(rocm, host) -> HipSolver:
    opened = HipSolver.open(rocm.driver, rocm.allocator)
    assert opened is not None
    return opened


def factored(rocm, library: HipSolver, matrices: np.ndarray) -> np.ndarray:
    """Upper triangles, which are lower ones row by row."""
    source = rocm.storage(matrices)
    library.cholesky(DType.F32, matrices.shape[-1], len(matrices), source.memory.address, 0)
    return np.tril(source.to_numpy().reshape(matrices.shape))


def test_one_workspace_serves_all_matrices_and_the_handles_are_given_back(rocm, host):
    kinds = ("hipsolver handle", "hipblas handle", "hipsolver params", "hipsolver gesvdj info")
    before = [host.live(kind) for kind in kinds]
    library = HipSolver.open(rocm.driver, rocm.allocator)
    host.take_log()
    np.testing.assert_allclose(factored(rocm, library, SYMMETRIC), np.linalg.cholesky(SYMMETRIC), rtol=1e-4, atol=1e-4)
    assert len([call for call in host.take_log() if call["call"] == "hipsolverDnSpotrf"]) == 3
    del library
    gc.collect()
    assert [host.live(kind) for kind in kinds] == before


def test_one_call_works_on_many_small_matrices(rocm, host):
    x = Tensor(SYMMETRIC, device=Device(rocm))
    linalg = array_api.linalg
    linalg.det(x)  # opens the libraries
    for call, expected in (
        (linalg.cholesky, {"hipsolverDnSpotrfBatched"}),
        (linalg.inv, {"hipblasSgetrfBatched", "hipblasSgetrsBatched"}),
        (linalg.det, {"hipblasSgetrfBatched"}),
        (linalg.eigvalsh, {"hipsolverDnSXsyevBatched"}),
        (linalg.svdvals, {"hipsolverDnSgesvdjBatched"}),
    ):
        host.take_log()
        call(x)
        calls = [entry["call"] for entry in host.take_log() if entry["call"].startswith(("hipsolver", "hipblas"))]
        assert sorted(calls) == sorted(expected)
    host.take_log()
    linalg.qr(x)
    calls = [entry["call"] for entry in host.take_log() if entry["call"].startswith(("hipsolver", "hipblas"))]
    assert calls == ["hipblasSgeqrfBatched", "hipblasSgetrfBatched", "hipblasSgetrsBatched"]


def test_the_host_finds_singular_values_that_the_library_did_not(rocm, library, monkeypatch):
    device, find = Device(rocm), HipSolver.svd

    def without_end(self, *arguments):
        find(self, *arguments)
        # As if the rotations of the last matrix had come to no end.
        rocm.driver.copy_to_device(arguments[-1] + 4 * (arguments[2] - 1), np.array([6], np.int32))

    monkeypatch.setattr(HipSolver, "svd", without_end)
    x = Tensor(X, device=device)
    for _ in range(3):
        np.testing.assert_allclose(array_api.linalg.svdvals(x).numpy(), np.linalg.svdvals(X), rtol=1e-4, atol=1e-5)
    assert np.isnan(array_api.linalg.svdvals(x * np.nan).numpy()).all()


def test_a_failure_names_the_function(rocm, library, host):
    for call in ("hipsolverDnSpotrf", "hipsolverDnSpotrf_bufferSize"):
        host.fail(call)
        with pytest.raises(LibraryError, match=f"{call}.*; tallow needs hipSOLVER"):
            factored(rocm, library, SYMMETRIC)
    host.fail("hipblasSgetrfBatched")
    with pytest.raises(LibraryError, match=r"hipblasSgetrfBatched.*; tallow needs hipSOLVER"):
        array_api.linalg.det(Tensor(SYMMETRIC, device=Device(rocm)))
    gc.collect()
    before = host.live("hipsolver handle")
    for call in ("hipsolverDnCreate", "hipsolverDnSetStream", "hipblasCreate", "hipsolverDnCreateParams"):
        host.fail(call)
        with pytest.raises(LibraryError, match=call):
            HipSolver.open(rocm.driver, rocm.allocator)
    gc.collect()
    assert host.live("hipsolver handle") == before


def test_one_matrix_without_a_result_is_an_error_and_no_other_call_fails(rocm, library):
    matrices = SYMMETRIC.copy()
    matrices[1] *= -1
    with pytest.raises(tl.InvalidArgument, match="cholesky: Matrix is not positive definite; there is no result"):
        factored(rocm, library, matrices)
    np.testing.assert_allclose(factored(rocm, library, SYMMETRIC), np.linalg.cholesky(SYMMETRIC), rtol=1e-4, atol=1e-4)


def test_an_older_library_finds_eigenvalues_one_by_one(rocm, host, monkeypatch):
    from rocm.bindings import hipsolver

    has_symbol = hipsolver.has_symbol
    monkeypatch.setattr(hipsolver, "has_symbol", lambda name: "XsyevBatched" not in name and has_symbol(name))
    library = HipSolver.open(rocm.driver, rocm.allocator)
    source, values = rocm.storage(SYMMETRIC), rocm.storage(np.zeros((3, 5), np.float32))
    library.eigh(DType.F32, 5, 3, True, source.memory.address, values.memory.address)
    np.testing.assert_allclose(values.to_numpy().reshape(3, 5), np.linalg.eigvalsh(SYMMETRIC), rtol=1e-4, atol=1e-5)


def test_captures_refuse_decompositions(rocm):
    device = Device(rocm)
    x = Tensor(SYMMETRIC, device=device)
    for call in (array_api.linalg.cholesky, array_api.linalg.det, array_api.linalg.eigvals, array_api.linalg.svdvals):
        with pytest.raises(tl.CaptureError), Graph(device).capture():
            call(x)
    np.testing.assert_allclose(array_api.linalg.det(x).numpy(), np.linalg.det(SYMMETRIC), rtol=1e-4)


# The functions of square matrices, and of any, with their options.
SQUARE = [(name, {}) for name in ("cholesky", "det", "slogdet", "inv", "eigh", "eigvalsh", "eig", "eigvals")]
ANY = [
    ("svdvals", {}),
    *(("svd", {"full_matrices": is_full}) for is_full in (False, True)),
    *(("qr", {"mode": mode}) for mode in ("reduced", "complete")),
]
# NumPy gives real numbers where all of these are.
COMPLEX = ("eig", "eigvals")


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_without_the_library_the_host_decomposes(rocm, monkeypatch, dtype):
    from rocm.bindings import hipblas, hipsolver

    for library in (hipblas, hipsolver):
        with monkeypatch.context() as patched:
            patched.setattr(library, "has_symbol", lambda name: name in ("hipblasCreate", "hipsolverDnCreate"))
            assert HipSolver.open(rocm.driver, rocm.allocator) is None
    monkeypatch.setattr(type(rocm), "hipsolver", None)
    rocm.plans.clear()
    square, tall, wide = (x.astype(dtype) for x in (SYMMETRIC, X[:, :, :3], X[0, :3]))
    for (name, options), x in [*product(SQUARE, (square, square[0])), *product(ANY, (square, tall, wide))]:
        function, by_numpy = getattr(array_api.linalg, name), getattr(np.linalg, name)
        tensor = Tensor(x, device=Device(rocm))
        # The elements where they are, and in a copy.
        for inputs, array in ((tensor, x), (tensor.mT, x.swapaxes(-1, -2))):
            expected = by_numpy(array, **options)
            for _ in range(3):
                actual = function(inputs, **options)
                pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
                for part, reference in pairs:
                    assert part.dtype.numpy == (
                        np.result_type(reference, np.complex64) if name in COMPLEX else reference.dtype
                    )
                    np.testing.assert_allclose(part.numpy(), reference, rtol=1e-3, atol=1e-4, err_msg=name)
    rocm.plans.clear()
