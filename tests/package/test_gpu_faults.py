"""Faults: each gives its clear error, and the next op works."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tallow import Device, Tensor, results
from tallow.dtype import DType
from tallow.runtime.backends.gpu_backend.driver.error import DriverError, InvalidKernel
from tallow.runtime.backends.gpu_backend.execute.index_errors import INDEX_OPS
from tallow.runtime.backends.gpu_backend.execute.kernels import Kernels
from tallow.runtime.backends.gpu_backend.ops.index import select
from tallow.runtime.backends.gpu_backend.ops.memory import synchronize
from tallow.runtime.base.error import CompilationFailed, InvalidArgument, InvalidIndex, OutOfMemory
from tallow.runtime.core.layout import Layout
from tallow.runtime.kernels import code_object
from tallow.runtime.program.values import Operand

from .filling import fill, plant


@pytest.fixture(autouse=True)
def the_next_op_works(gpu):
    yield
    assert fill(gpu) == [9] * 5
    synchronize(gpu)


@pytest.fixture
def fresh(gpu, tmp_path, monkeypatch):
    """Kernels that found nothing yet, with an empty cache and no code objects built ahead."""
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(code_object, "current", lambda path: None)
    return Kernels(gpu.driver)


def test_more_memory_than_there_is(gpu):
    with pytest.raises(OutOfMemory, match="drop tensors"):
        gpu.empty(DType.F64, 1 << 50)


def test_arguments_of_the_wrong_size(gpu):
    fill(gpu)
    with pytest.raises(InvalidArgument, match="its arguments are 32 bytes, not 31"):
        gpu.kernels.launch("fill", "fill_b32_contiguous", 1, bytes(31))


def test_a_source_that_does_not_compile(gpu):
    with pytest.raises(CompilationFailed, match=r"(?s)does not compile kernel broken for .*broken\.hip[:(]2.*nonsense"):
        gpu.driver.compile("\nnonsense", "broken", {})


def test_an_unknown_target(gpu, fresh, monkeypatch):
    unknown = gpu.driver.target.rstrip("0123456789abcdef") + "_000"
    monkeypatch.setattr(gpu.driver, "target", unknown)
    with pytest.raises(
        CompilationFailed, match=rf"(?s)for {unknown}; where it does not know the target, install a newer"
    ):
        fill(gpu, fresh)


def test_a_cache_file_that_was_cut(gpu, fresh, tmp_path):
    assert fill(gpu, fresh) == [9] * 5
    (entry,) = tmp_path.glob("*/*.co")
    full = entry.read_bytes()
    entry.write_bytes(full[:-100])
    assert fill(gpu, Kernels(gpu.driver)) == [9] * 5
    assert entry.read_bytes() == full


@pytest.mark.parametrize("code", [b"garbage", b"\x7fELF"])
def test_a_cache_file_whose_code_the_driver_refuses(gpu, fresh, tmp_path, code):
    assert fill(gpu, fresh) == [9] * 5
    (entry,) = tmp_path.glob("*/*.co")
    full = entry.read_bytes()
    plant(tmp_path, code)
    assert fill(gpu, Kernels(gpu.driver)) == [9] * 5
    assert entry.read_bytes() == full


@pytest.fixture
def shipped(gpu, tmp_path, monkeypatch):
    """Puts a code object among the kernels that the package ships, with a record that describes it."""
    sources = tmp_path / "kernels"
    sources.mkdir()
    for path in code_object.SOURCES.glob("*.h*p"):
        (sources / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(code_object, "SOURCES", sources)
    code = sources / "code" / gpu.driver.target / "fill.co"
    code.parent.mkdir(parents=True)

    def ship(content: bytes) -> Path:
        code.write_bytes(content)
        record = {"sources": {"fill.hip": checksum((sources / "fill.hip").read_bytes())}, "code": checksum(content)}
        code.with_suffix(".json").write_text(json.dumps(record))
        return code

    return ship


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_shipped_code_object_is_used(gpu, shipped, monkeypatch):
    shipped(gpu.kernels._compiled("fill", "fill_b32_contiguous", bytes))
    monkeypatch.setattr(Kernels, "_compiled", None)
    assert fill(gpu, Kernels(gpu.driver)) == [9] * 5


def test_a_shipped_code_object_that_was_cut(gpu, shipped):
    code = shipped(gpu.kernels._compiled("fill", "fill_b32_contiguous", bytes))
    code.write_bytes(code.read_bytes()[:-1000])
    assert fill(gpu, Kernels(gpu.driver)) == [9] * 5


def test_a_shipped_code_object_that_was_built_short(gpu, shipped):
    shipped(gpu.kernels._compiled("fill", "fill_b32_contiguous", bytes)[:-1000])
    with pytest.raises((InvalidArgument, DriverError), match=r"fill\.co"):
        fill(gpu, Kernels(gpu.driver))


def test_a_shipped_code_object_without_the_kernel(gpu, shipped):
    shipped(gpu.kernels._compiled("fill", "fill_b64_contiguous", bytes))
    with pytest.raises(InvalidKernel, match=r"kernel fill_b32_contiguous: .*fill\.co does not have it"):
        fill(gpu, Kernels(gpu.driver))


def gather(gpu, indexes: list[int], op: str = "gather") -> list[int]:
    """rows[indexes] of ten numbers, or 0, by an op of that name."""
    source = gpu.storage(np.arange(100, 110, dtype=np.int32))
    indices = gpu.storage(np.array(indexes, np.int64))
    operands = [Operand(each, Layout.contiguous((each.length,))) for each in (source, indices)]
    return gpu.run(gathered, op, *operands).to_numpy().tolist()


def gathered(build, op, x, indexes):
    return select(build, op, x, indexes, results.index_select(x, indexes, 0), 0)


@pytest.mark.parametrize("index", [10, -1, 1 << 40])
@pytest.mark.parametrize("op", INDEX_OPS)
def test_an_index_out_of_range(gpu, index, op):
    with pytest.raises(InvalidIndex, match=f"{op}: index {index} is out of range; use one from 0 to 9") as raised:
        gather(gpu, [1, index, 3], op)
    assert (raised.value.op, raised.value.index, raised.value.size) == (op, index, 10)
    synchronize(gpu)
    assert gather(gpu, [1, 9, 3]) == [101, 109, 103]


def test_an_index_error_waits_for_the_next_synchronising_call(gpu):
    before = gpu.storage(np.arange(3))
    with pytest.raises(InvalidIndex):
        gather(gpu, [99])
    gpu.index_errors.expect()
    assert before.to_numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("failing", ["copy_to_host", "zero"])
def test_an_index_error_survives_a_look_that_fails(gpu, monkeypatch, failing):
    """It is raised by the next call that can look, and not by a valid one after that."""
    x, bad, good = on(gpu, np.arange(10)), on(gpu, np.array([77])), on(gpu, np.array([7]))

    def fail(*arguments):
        raise KeyboardInterrupt

    x.index_select(bad, 0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gpu.driver, failing, fail)
        synchronize(gpu)
    with pytest.raises(InvalidIndex, match="index_select: index 77"):
        synchronize(gpu)
    assert x.index_select(good, 0).tolist() == [7]


def test_an_index_error_reaches_the_thread_that_caused_it(gpu):
    x, good = on(gpu, np.arange(10)), on(gpu, np.array([7]))
    bad = [on(gpu, np.array([index])) for index in (77, 88)]
    with ThreadPoolExecutor(1) as other:
        for choose in x.index_select, lambda indexes, dim: x.copy().scatter_(indexes, indexes, dim):
            other.submit(choose, bad[1], 0).result()
            assert x.index_select(good, 0).tolist() == [7]
            choose(bad[0], 0)
            with pytest.raises(InvalidIndex, match="index 88 is"):
                other.submit(synchronize, gpu).result()
            with pytest.raises(InvalidIndex, match="index 77 is"):
                x.tolist()
            synchronize(gpu)
            other.submit(synchronize, gpu).result()


def test_every_thread_gets_its_own_index_errors_and_no_others(gpu):
    x, calls, threads = on(gpu, np.arange(10)), 30, 6
    start = threading.Barrier(threads)

    def work(number: int) -> list[object]:
        start.wait()
        return [outcome(number * calls + call) for call in range(calls)]

    def outcome(call: int) -> object:
        # Every third index is good, the others say who asked for them.
        index = call if call % 3 else call % 10
        try:
            return x.index_select(on(gpu, np.array([index])), 0).tolist()
        except InvalidIndex as error:
            return error.index

    with ThreadPoolExecutor(threads) as pool:
        actual = [result for results in pool.map(work, range(threads)) for result in results]
    expected = [call if call % 3 and call >= 10 else [call % 10] for call in range(threads * calls)]
    assert actual == expected


def test_a_thread_that_ends_leaves_its_index_error(gpu):
    x, bad = on(gpu, np.arange(10)), on(gpu, np.array([77]))
    in_a_thread(lambda: x.index_select(bad, 0))
    with pytest.raises(InvalidIndex, match="index_select: index 77"):
        synchronize(gpu)
    synchronize(gpu)


def test_threads_one_after_the_other_share_a_record(gpu):
    x, good, records = on(gpu, np.arange(10)), on(gpu, np.array([7])), []

    def work() -> None:
        x.index_select(good, 0)
        records.append(gpu.index_errors.address)

    for _ in range(200):
        in_a_thread(work)
        synchronize(gpu)
    assert len(set(records)) == 1
    assert gpu.index_errors.address not in records


def on(gpu, array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(array, Device(gpu))


def in_a_thread(work) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_finaliser_may_use_indexes_at_any_time(gpu, monkeypatch):
    """Garbage collection calls it in the middle of a launch, or of the reading of the record, of its own thread."""
    x, index = on(gpu, np.arange(10)), on(gpu, np.array([7]))
    calls, actual = itertools.count(), []

    def finalised(call, *arguments):
        result = call(*arguments)
        if next(calls) < 3:
            actual.append(x.index_select(index, 0).tolist())
        return result

    driver, function = gpu.driver, Kernels.function
    # In the class: an attribute that is undone in an object stays there, and hides what other tests put in the class.
    monkeypatch.setattr(Kernels, "function", lambda *arguments: finalised(function, *arguments))
    monkeypatch.setattr(driver, "copy_to_host", partial(finalised, driver.copy_to_host))
    assert x.index_select(index, 0).tolist() == [7]
    assert actual == [[7]] * 3


def test_reading_costs_nothing_more_where_no_index_was_read(gpu, monkeypatch):
    storage, x, index = gpu.storage(np.arange(3)), on(gpu, np.arange(10)), on(gpu, np.array([7]))
    synchronize(gpu)
    calls = counted(gpu, monkeypatch)
    storage.to_numpy()
    assert calls == ["copy_to_host"]
    # One that was read costs one look, once.
    chosen = x.index_select(index, 0)
    assert calls == ["copy_to_host", "function"]
    chosen.tolist()
    assert calls[2:] == ["copy_to_host"] * 2
    chosen.tolist()
    assert calls[4:] == ["copy_to_host"]


def counted(gpu, monkeypatch) -> list[str]:
    """The names of the calls from now on that give the device work or wait for it."""
    calls: list[str] = []
    # A plan knows its kernels.
    gpu.plans.clear()

    def count(owner, name):
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *arguments: (calls.append(name), call(*arguments))[1])

    for name in ("copy_to_host", "copy_to_device", "copy", "fill_bytes", "zero"):
        count(gpu.driver, name)
    count(Kernels, "function")
    return calls
