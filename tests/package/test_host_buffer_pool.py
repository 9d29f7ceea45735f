"""Memory of large results on the CPU, which later ones reuse."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.cpu_backend.kernels import HostKernels, address_of_array

KERNELS = HostKernels.open()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no kernels for this machine; run 'opgen compile --host'")
DEVICE = tl.Device.cpu().inner
LARGE = 1 << 23
MOST = 1 << 28


@pytest.fixture(autouse=True)
def nothing_is_cached() -> Iterator[None]:
    before = cache_at_most(0)
    cache_at_most(MOST)
    yield
    cache_at_most(before)


def cache_at_most(nbytes: int) -> int:
    assert KERNELS is not None
    return int(KERNELS.cache_at_most(nbytes))


def empty(nbytes: int) -> np.ndarray:
    array: np.ndarray = DEVICE.empty(nbytes, tl.DType.U8)
    return array


def address_of_released(nbytes: int) -> int:
    """The address of memory that was allocated and released."""
    return address_of_array(empty(nbytes))


@pytest.mark.parametrize("dtype", tl.DType)
def test_a_large_array_takes_the_memory_of_one_that_is_gone(dtype: tl.DType) -> None:
    first = DEVICE.empty(LARGE, dtype)
    assert (first.shape, first.dtype, first.flags.writeable) == ((LARGE,), np.dtype(dtype.numpy), True)
    address = address_of_array(first)
    second = DEVICE.empty(LARGE, dtype)
    assert address_of_array(second) != address and address % 64 == 0
    del first
    # Sizes in one step of an eighth serve each other.
    third = DEVICE.empty(LARGE - 1, dtype)
    assert (third.shape, address_of_array(third)) == ((LARGE - 1,), address)


def test_results_of_calls_take_the_memory_of_earlier_ones() -> None:
    x = tl.Tensor(np.ones(LARGE // 4, np.float32))
    first = x + x
    address = first.storage.inner.address
    del first
    assert (x * x).storage.inner.address == address


def test_memory_stays_while_a_view_of_it_is_there() -> None:
    array = DEVICE.empty(LARGE, tl.DType.F32)
    array[:] = np.arange(LARGE, dtype=np.float32)
    address = address_of_array(array)
    x = tl.Tensor.from_storage(tl.Device.cpu().storage_owned(array), (LARGE,))
    seen, exported = x[5:].numpy(), np.from_dlpack(x)[7:]
    assert address_of_array(exported) == address + 7 * 4
    del x, array
    gc.collect()
    others = [DEVICE.empty(LARGE, tl.DType.F32) for _ in range(3)]
    for other in others:
        other[:] = 2
    assert seen[0] == 5 and exported[0] == 7
    del exported
    gc.collect()
    assert address_of_released(4 * LARGE) == address


def test_the_oldest_memory_is_returned_where_too_much_is_cached() -> None:
    pieces = [empty(LARGE) for _ in range(4)]
    addresses = [address_of_array(piece) for piece in pieces]
    cache_at_most(2 * LARGE)
    while pieces:
        del pieces[0]
    again = [empty(LARGE) for _ in range(2)]
    assert [address_of_array(piece) for piece in again] == addresses[:1:-1]
    # More than the limit is not cached, and does not replace what is.
    again.clear()
    del again
    empty(4 * LARGE)
    assert address_of_released(LARGE) in addresses[2:]
    assert cache_at_most(0) == 2 * LARGE


def test_memory_that_may_be_in_the_cache_serves_smaller_results() -> None:
    sizes = (1 << 20, 1 << 21, 1 << 23)
    pieces = [empty(size) for size in sizes]
    small, larger, huge = map(address_of_array, pieces)
    while pieces:
        del pieces[0]
    first = empty(1 << 19)
    assert address_of_array(first) == larger
    second = empty(1 << 20)
    assert address_of_array(second) == small
    assert address_of_released(1 << 23) == huge


def test_exhausted_memory_is_an_error() -> None:
    with pytest.raises(MemoryError):
        empty(1 << 62)
    assert len(empty(LARGE)) == LARGE


def test_threads_and_processes_share_no_memory() -> None:
    wrong = []

    def work(number: int) -> None:
        for iteration in range(20):
            array = DEVICE.empty(LARGE // 8 + number // 2, tl.DType.F32)
            array[::4096] = number * 100 + iteration
            if not (array[::4096] == number * 100 + iteration).all():
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    child = os.fork()
    if child == 0:
        array = DEVICE.empty(LARGE, tl.DType.F32)
        array[:] = 1
        del array
        os._exit(0 if DEVICE.empty(LARGE, tl.DType.F32)[-1] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
