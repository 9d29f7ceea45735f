"""Faults: each gives its clear error, and the next op works."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

pytest.importorskip("hip")

from tallow.dtype import DType
from tallow.error import BackendUnavailable, InvalidArgument, InvalidIndex, OutOfMemory, TallowError
from tallow.kernels.arguments import FILL_CONTIGUOUS, GATHER
from tallow.rocm_backend import RocmDevice, compiler
from tallow.rocm_backend import kernels as kernels_module
from tallow.rocm_backend.error import CompilationFailed, InvalidKernel
from tallow.rocm_backend.hip import HipError, error
from tallow.rocm_backend.index_errors import INDEX_OPS
from tallow.rocm_backend.kernels import Kernels
from tallow.shape import Shape


def fill(rocm: RocmDevice, kernels: Kernels | None = None) -> list[float]:
    """What an op does: memory, a kernel and a copy to the host."""
    storage = rocm.empty(DType.U32, 5)
    arguments = FILL_CONTIGUOUS.pack(storage.memory.address, 5, 9)
    (kernels or rocm.kernels).launch("fill", "fill_b32_contiguous", 1, arguments)
    return storage.to_numpy().tolist()


@pytest.fixture(autouse=True)
def the_next_op_works(rocm):
    yield
    assert fill(rocm) == [9] * 5
    rocm.synchronize()


@pytest.fixture
def fresh(rocm, tmp_path, monkeypatch):
    """Kernels that found nothing yet, with an empty cache and no code objects built ahead."""
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path))
    monkeypatch.setattr("tallow.rocm_backend.kernels._is_current", lambda code: False)
    return Kernels(rocm.driver)


def test_an_allocation_that_fails_once_is_tried_again(rocm, host):
    rocm.allocator.empty_cache()
    host.fail("hipMalloc")
    assert rocm.zeros(Shape((1000,)), DType.F32).to_numpy().sum() == 0


def test_an_allocation_that_fails(rocm, host):
    rocm.allocator.empty_cache()
    held = rocm.storage(np.arange(100))
    host.fail("hipMalloc", -1)
    with pytest.raises(OutOfMemory, match="rocm:0: no memory for 4194304 bytes") as raised:
        rocm.zeros(Shape((1 << 20,)), DType.F32)
    assert (raised.value.device, raised.value.nbytes) == ("rocm:0", 1 << 22)
    host.fail(None)
    assert held.to_numpy().tolist() == list(range(100))


def test_more_memory_than_there_is(rocm):
    with pytest.raises(OutOfMemory, match="drop tensors"):
        rocm.empty(DType.F64, 1 << 50)


def test_a_copy_that_fails(rocm, host):
    host.fail("hipMemcpyAsync")
    with pytest.raises(HipError, match=r"hipMemcpyAsync \(rocm:0\)"):
        rocm.storage(np.arange(10))


def test_a_launch_that_fails(rocm, host):
    fill(rocm)
    host.fail("hipModuleLaunchKernel")
    with pytest.raises(HipError, match="fill_b32_contiguous on rocm:0"):
        fill(rocm)


def test_arguments_of_the_wrong_size(rocm):
    fill(rocm)
    with pytest.raises(InvalidArgument, match="its arguments are 24 bytes, not 23"):
        rocm.kernels.launch("fill", "fill_b32_contiguous", 1, bytes(23))


def test_a_module_that_does_not_load(rocm, host, fresh):
    host.fail("hipModuleLoadData")
    with pytest.raises(HipError, match="fill_b32_contiguous on rocm:0"):
        fill(rocm, fresh)
    assert fill(rocm, fresh) == [9] * 5


def test_a_source_that_does_not_compile(rocm):
    with pytest.raises(CompilationFailed, match=r"(?s)does not compile kernel broken for .*broken\.hip:2.*nonsense"):
        rocm.driver.compile("\nnonsense", "broken", {})


def test_an_unknown_target(rocm, host, fresh, monkeypatch):
    monkeypatch.setattr(rocm.driver, "target", "gfx000")
    with pytest.raises(CompilationFailed, match=r"(?s)for gfx000; where it does not know the target, install a newer"):
        fill(rocm, fresh)


def test_a_compiler_that_fails(rocm, host, fresh):
    host.fail("hiprtcCreateProgram")
    with pytest.raises(TallowError, match="hiprtcCreateProgram: HIPRTC_ERROR_PROGRAM_CREATION_FAILURE"):
        fill(rocm, fresh)
    assert fill(rocm, fresh) == [9] * 5
    assert host.live("program") == 0


def test_a_compiler_that_is_missing(rocm, fresh, monkeypatch):
    class Missing:
        @staticmethod
        def has_symbol(name):
            return name == "hiprtcVersion"

    monkeypatch.setattr(compiler, "hiprtc", Missing)
    compiler.compiler_version.cache_clear()
    with pytest.raises(BackendUnavailable, match=r"lacks hiprtcCompileProgram.*install ROCm"):
        fill(rocm, fresh)
    monkeypatch.undo()
    compiler.compiler_version.cache_clear()


def test_a_cache_file_that_was_cut(rocm, fresh, tmp_path):
    assert fill(rocm, fresh) == [9] * 5
    (entry,) = tmp_path.glob("*/*.co")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-100])
    assert fill(rocm, Kernels(rocm.driver)) == [9] * 5
    assert entry.read_bytes() == whole


@pytest.fixture
def shipped(rocm, tmp_path, monkeypatch):
    """Puts a code object among the kernels that the package ships."""
    sources = tmp_path / "kernels"
    sources.mkdir()
    for path in kernels_module._SOURCES.glob("*.h*p"):
        (sources / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(kernels_module, "_SOURCES", sources)
    code = sources / "code" / rocm.driver.target / "fill.co"
    code.parent.mkdir(parents=True)
    checksum = hashlib.sha256((sources / "fill.hip").read_bytes()).hexdigest()
    code.with_suffix(".json").write_text(json.dumps({"sources": {"fill.hip": checksum}}))
    return code


def test_a_shipped_code_object_is_used(rocm, host, shipped):
    shipped.write_bytes(rocm.kernels._compiled("fill", "fill_b32_contiguous"))
    host.fail("hiprtcCreateProgram", -1)
    assert fill(rocm, Kernels(rocm.driver)) == [9] * 5


def test_a_shipped_code_object_that_is_cut(rocm, shipped):
    shipped.write_bytes(rocm.kernels._compiled("fill", "fill_b32_contiguous")[:-1000])
    with pytest.raises((InvalidArgument, HipError), match=r"fill\.co"):
        fill(rocm, Kernels(rocm.driver))


def test_a_shipped_code_object_without_the_kernel(rocm, shipped):
    shipped.write_bytes(rocm.kernels._compiled("fill", "fill_b64_contiguous"))
    with pytest.raises(InvalidKernel, match=r"kernel fill_b32_contiguous: .*fill\.co does not have it"):
        fill(rocm, Kernels(rocm.driver))


def test_a_runtime_of_the_wrong_version(rocm, monkeypatch):
    class Old:
        def __getattr__(self, name):
            return getattr(real, name)

        @staticmethod
        def has_symbol(name):
            return name != "hipMemsetD8Async" and real.has_symbol(name)

    real = error.hip
    monkeypatch.setattr(error, "hip", Old())
    error.require_runtime.cache_clear()
    with pytest.raises(BackendUnavailable, match="lacks hipMemsetD8Async; install ROCm"):
        RocmDevice(1)
    monkeypatch.undo()
    error.require_runtime.cache_clear()


def gather(rocm: RocmDevice, indexes: list[int], op: str = "gather") -> list[int]:
    """rows[indexes] of ten numbers, or 0."""
    source = rocm.storage(np.arange(100, 110, dtype=np.int32))
    places = rocm.storage(np.array(indexes, np.int64))
    result = rocm.empty(DType.I32, len(indexes))
    count = len(indexes)
    shift = (count - 1).bit_length()
    addresses = (result.memory.address, source.memory.address, places.memory.address, rocm.index_errors.address)
    dims = [count, *[1] * 7]
    multipliers = [2**32 * (2**shift - count) // count + 1, *[1] * 7]
    strides = [1, *[0] * 15]
    arguments = GATHER.pack(
        *addresses, 10, 1, INDEX_OPS[op], 4, count, 1, *dims, *multipliers, shift, *[0] * 7, *strides
    )
    rocm.kernels.launch("index", "gather_b32", 1, arguments)
    rocm.index_errors.expect()
    return result.to_numpy().tolist()


@pytest.mark.parametrize("index", [10, -1, 1 << 40])
@pytest.mark.parametrize("op", INDEX_OPS)
def test_an_index_out_of_range(rocm, index, op):
    with pytest.raises(InvalidIndex, match=f"{op}: index {index} is out of range; use one from 0 to 9") as raised:
        gather(rocm, [1, index, 3], op)
    assert (raised.value.op, raised.value.index, raised.value.size) == (op, index, 10)
    rocm.synchronize()
    assert gather(rocm, [1, 9, 3]) == [101, 109, 103]


def test_an_index_error_waits_for_the_next_synchronising_call(rocm):
    before = rocm.storage(np.arange(3))
    with pytest.raises(InvalidIndex):
        gather(rocm, [99])
    rocm.index_errors.expect()
    assert before.to_numpy().tolist() == [0, 1, 2]


def test_reading_costs_nothing_more_where_no_index_was_read(rocm, monkeypatch):
    storage = rocm.storage(np.arange(3))
    rocm.synchronize()
    copies = []
    copy_to_host = rocm.driver.copy_to_host
    monkeypatch.setattr(
        type(rocm.driver), "copy_to_host", lambda self, *arguments: (copies.append(1), copy_to_host(*arguments))
    )
    storage.to_numpy()
    assert len(copies) == 1
