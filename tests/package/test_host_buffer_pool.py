"""Memory of large results on the CPU, which later ones take over."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.cpu_backend import buffer_pool

LARGE = 1 << 23


def address_of(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_released", buffer_pool.Released(1 << 28))


@pytest.mark.parametrize("dtype", tl.DType)
def test_a_large_array_takes_the_memory_of_one_that_is_gone(dtype: tl.DType) -> None:
    first = buffer_pool.empty(LARGE, dtype.numpy)
    assert (first.shape, first.dtype, first.flags.writeable) == ((LARGE,), np.dtype(dtype.numpy), True)
    address = address_of(first)
    second = buffer_pool.empty(LARGE, dtype.numpy)
    assert address_of(second) != address
    del first
    # Sizes in one step of an eighth serve each other.
    third = buffer_pool.empty(LARGE - 1, dtype.numpy)
    assert (third.shape, address_of(third)) == ((LARGE - 1,), address)


def released() -> list[int]:
    """The addresses of what is kept for later results."""
    return [address_of(memory) for memory in buffer_pool._released._memory.values()]


def test_memory_stays_while_a_view_of_it_is_there() -> None:
    # Whether kernels or NumPy do the work, this memory is of the pool.
    array = buffer_pool.empty(LARGE, np.float32)
    array[:] = np.arange(LARGE, dtype=np.float32)
    address = address_of(array)
    x = tl.Tensor.from_storage(tl.Device.cpu().storage_owned(array), (LARGE,))
    seen, exported = x[5:].numpy(), np.from_dlpack(x)[7:]
    assert address_of(exported) == address + 7 * 4
    del x, array
    gc.collect()
    assert address not in released()
    others = [buffer_pool.empty(LARGE, np.float32) for _ in range(3)]
    for other in others:
        other[:] = 2
    assert seen[0] == 5 and exported[0] == 7
    del exported
    gc.collect()
    assert address in released()


def test_only_so_much_is_kept() -> None:
    kept = buffer_pool.Released(10)
    pieces = [np.empty(size, np.uint8) for size in (4, 4, 3, 11)]
    for piece in pieces[:3]:
        kept.put(piece)
    assert kept.take(4) is pieces[1]
    assert kept.take(4) is None
    kept.put(pieces[3])
    assert kept.take(11) is None and kept.take(3) is None


def test_what_may_be_in_the_cache_serves_smaller_results() -> None:
    kept = buffer_pool.Released(1 << 30)
    small, larger, huge = (np.empty(1 << power, np.uint8) for power in (20, 21, 23))
    for piece in (small, larger, huge):
        kept.put(piece)
    assert kept.take(1 << 19) is larger
    assert kept.take(1 << 21) is None
    assert kept.take(1 << 20) is small and kept.take(1 << 23) is huge
    assert kept._held == 0 and not any(kept._keys.values())


def test_a_key_that_another_size_has_now_is_no_match() -> None:
    kept = buffer_pool.Released(10)
    piece = np.empty(4, np.uint8)
    kept.put(piece)
    kept._keys[8].append(id(piece))
    assert kept.take(8) is None
    assert kept.take(4) is piece and kept.take(4) is None
    assert kept._held == 0


def test_what_is_kept_is_let_go_where_memory_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer_pool.empty(LARGE, np.float32)
    numpy_empty, asked = np.empty, []

    def empty(count: int, dtype: object) -> np.ndarray:
        asked.append(count)
        if len(asked) == 1:
            raise MemoryError
        return numpy_empty(count, dtype)

    monkeypatch.setattr(np, "empty", empty)
    assert len(buffer_pool.empty(2 * LARGE, np.float32)) == 2 * LARGE
    assert len(asked) == 2 and buffer_pool._released.take(4 * LARGE) is None


def test_threads_and_processes_share_no_memory() -> None:
    wrong = []

    def work(number: int) -> None:
        for turn in range(20):
            array = buffer_pool.empty(LARGE // 8 + number // 2, np.float32)
            array[::4096] = number * 100 + turn
            if not (array[::4096] == number * 100 + turn).all():
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    child = os.fork()
    if child == 0:
        array = buffer_pool.empty(LARGE, np.float32)
        array[:] = 1
        del array
        os._exit(0 if buffer_pool.empty(LARGE, np.float32)[0] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
