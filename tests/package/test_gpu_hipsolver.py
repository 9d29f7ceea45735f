"""Decompositions by hipSOLVER, on the HIP runtime for the CPU: the handle, failures, and what there is without it."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Graph, Tensor, array_api
from tallow.dtype import DType

pytest.importorskip("hip")

from tallow.runtime.backends.gpu_backend.error import LibraryError
from tallow.runtime.backends.rocm_backend.hipsolver import HipSolver

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
    library.cholesky(DType.F32, matrices.shape[-1], len(matrices), source.memory.address)
    return np.tril(source.to_numpy().reshape(matrices.shape))


def test_one_workspace_serves_all_matrices_and_the_handle_is_given_back(rocm, host):
    before = host.live("hipsolver handle")
    library = HipSolver.open(rocm.driver, rocm.allocator)
    host.take_log()
    np.testing.assert_allclose(factored(rocm, library, SYMMETRIC), np.linalg.cholesky(SYMMETRIC), rtol=1e-4, atol=1e-4)
    assert len([call for call in host.take_log() if call["call"] == "hipsolverDnSpotrf"]) == 3
    del library
    gc.collect()
    assert host.live("hipsolver handle") == before


def test_a_failure_names_the_function(rocm, library, host):
    for call in ("hipsolverDnSpotrf", "hipsolverDnSpotrf_bufferSize"):
        host.fail(call)
        with pytest.raises(LibraryError, match=f"{call}.*; tallow needs hipSOLVER"):
            factored(rocm, library, SYMMETRIC)
    gc.collect()
    before = host.live("hipsolver handle")
    for call in ("hipsolverDnCreate", "hipsolverDnSetStream"):
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


def test_captures_refuse_decompositions(rocm):
    device = Device(rocm)
    x = Tensor(SYMMETRIC, device=device)
    for call in (array_api.linalg.cholesky, array_api.linalg.det, array_api.linalg.eigvals):
        with pytest.raises(tl.CaptureError), Graph(device).capture():
            call(x)
    np.testing.assert_allclose(array_api.linalg.det(x).numpy(), np.linalg.det(SYMMETRIC), rtol=1e-4)


def test_without_the_library_the_host_decomposes(rocm, monkeypatch):
    from rocm.bindings import hipsolver

    monkeypatch.setattr(hipsolver, "has_symbol", lambda name: name == "hipsolverDnCreate")
    assert HipSolver.open(rocm.driver, rocm.allocator) is None
    monkeypatch.setattr(type(rocm), "hipsolver", None)
    rocm.plans.clear()
    x = Tensor(SYMMETRIC, device=Device(rocm)).mT
    for _ in range(3):
        for name in ("cholesky", "det", "inv", "eigvalsh", "svdvals"):
            found = getattr(array_api.linalg, name)(x).numpy()
            np.testing.assert_allclose(found, getattr(np.linalg, name)(SYMMETRIC), rtol=1e-3, atol=1e-4)
        (columns, upper), (sign, size) = array_api.linalg.qr(x), array_api.linalg.slogdet(x)
        np.testing.assert_allclose((columns @ upper).numpy(), SYMMETRIC, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose((sign * size.exp()).numpy(), np.linalg.det(SYMMETRIC), rtol=1e-3)
    rocm.plans.clear()
