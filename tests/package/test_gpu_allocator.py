"""The caching allocator, on memory that only counts."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tallow.runtime.backends.gpu_backend.driver.error import DriverError
from tallow.runtime.backends.gpu_backend.memory.allocator import CachingAllocator, PrivatePool, Slice, cache_limit
from tallow.runtime.base.error import InvalidArgument, OutOfMemory
from tallow.runtime.helpers.size_class import size_class

STEPS = st.sampled_from([1, 512])


class Memory:
    """A driver's memory: addresses are never used twice, and freeing what is not allocated is an error."""

    def __init__(self, total: int = 1 << 30) -> None:
        self.total = total
        self.live: dict[int, int] = {}
        self.calls = 0
        self._next = 256
        self.refused: set[int] = set()

    def allocate(self, nbytes: int) -> int:
        self.calls += 1
        if sum(self.live.values()) + nbytes > self.total:
            raise OutOfMemory("rocm:0", nbytes)
        address, self._next = self._next, self._next + nbytes
        self.live[address] = nbytes
        return address

    def free(self, address: int) -> None:
        if address in self.refused:
            self.refused.remove(address)
            raise DriverError("free", "refused", 1)
        del self.live[address]

    def memory_info(self) -> tuple[int, int]:
        return self.total - sum(self.live.values()), self.total


@given(st.integers(0, 1 << 50), STEPS)
def test_sizes_are_rounded_up_by_an_eighth_or_a_step_at_most(nbytes, step):
    size = size_class(nbytes, step)
    assert nbytes <= size <= max(nbytes + nbytes // 8, nbytes + step - 1)
    assert size % step == 0
    assert size_class(size, step) == size


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50), STEPS)
def test_larger_requests_get_no_smaller_blocks(first, second, step):
    small, large = sorted((first, second))
    assert size_class(small, step) <= size_class(large, step)


def test_a_released_block_serves_the_next_request_of_its_size():
    memory = Memory()
    allocator = CachingAllocator(memory)
    first = Slice(allocator, 5000)
    address = first.address
    del first
    assert Slice(allocator, 4900).address == address
    assert memory.calls == 1


def test_blocks_in_use_are_not_handed_out():
    allocator = CachingAllocator(Memory())
    first, second = Slice(allocator, 100), Slice(allocator, 100)
    assert abs(first.address - second.address) >= 512


def test_no_bytes_take_no_memory():
    memory = Memory()
    assert Slice(CachingAllocator(memory), 0).address == 0
    assert memory.calls == 0


def test_a_slice_gives_its_block_back():
    memory = Memory()
    allocator = CachingAllocator(memory)
    held = Slice(allocator, 1000)
    assert (held.nbytes, allocator.statistics().allocated) == (1000, 1024)
    del held
    assert allocator.statistics() == (0, 1024, 1024)
    empty = Slice(allocator, 0)
    assert empty.address == 0
    del empty
    assert allocator.statistics() == (0, 1024, 1024)


def test_a_slice_that_gets_no_memory_gives_nothing_back():
    allocator = CachingAllocator(Memory(total=4096))
    with pytest.raises(OutOfMemory):
        Slice(allocator, 1 << 20)
    assert allocator.statistics() == (0, 0, 0)


def test_the_peak_is_what_was_held_at_once():
    allocator = CachingAllocator(Memory())
    blocks = [Slice(allocator, 1024) for _ in range(3)]
    del blocks
    held = Slice(allocator, 1024)
    assert allocator.statistics() == (1024, 2048, 3072)
    del held


def test_the_cache_is_capped():
    memory = Memory()
    allocator = CachingAllocator(memory, limit=2048)
    blocks = [Slice(allocator, 1024) for _ in range(5)]
    del blocks
    assert allocator.statistics() == (0, 2048, 5120)
    assert len(memory.live) == 2


def test_the_cache_is_emptied_on_demand():
    memory = Memory()
    allocator = CachingAllocator(memory)
    Slice(allocator, 1024)
    allocator.empty_cache()
    assert not memory.live
    assert allocator.statistics() == (0, 0, 1024)


def test_without_a_cache_sizes_are_exact():
    memory = Memory()
    allocator = CachingAllocator(memory, limit=0)
    block = Slice(allocator, 77)
    assert memory.live == {block.address: 77}
    del block
    allocator.statistics()
    assert not memory.live


def test_a_failing_allocation_empties_the_cache_and_tries_again():
    memory = Memory(total=8192)
    allocator = CachingAllocator(memory, limit=8192)
    saved = Slice(allocator, 2048)
    blocks = [Slice(allocator, 1024) for _ in range(6)]
    del blocks
    block = Slice(allocator, 4096)
    assert (memory.live[block.address], memory.live[saved.address]) == (4096, 2048)
    assert allocator.statistics().cached == 0


def test_out_of_memory_leaves_everything_usable():
    memory = Memory(total=4096)
    allocator = CachingAllocator(memory)
    saved = Slice(allocator, 1024)
    with pytest.raises(OutOfMemory, match=r"rocm:0: no memory for 1048576 bytes"):
        Slice(allocator, 1 << 20)
    assert memory.live == {saved.address: 1024}
    other = Slice(allocator, 1024)
    assert other.address != saved.address
    assert allocator.statistics() == (2048, 0, 2048)


def test_what_the_driver_does_not_take_back_stays_cached():
    memory = Memory()
    allocator = CachingAllocator(memory)
    blocks = [Slice(allocator, size) for size in (1024, 1024, 2048)]
    addresses = [block.address for block in blocks]
    blocks.clear()
    memory.refused = {addresses[0], addresses[2]}
    with pytest.raises(DriverError, match="free: refused"):
        allocator.empty_cache()
    assert allocator.statistics()[:2] == (0, 1024 + 2048) == (0, sum(memory.live.values()))
    block = Slice(allocator, 1024)
    assert block.address == addresses[0]
    allocator.empty_cache()
    assert memory.live == {addresses[0]: 1024}


@pytest.mark.parametrize("limit", [0, 1024])
def test_what_is_released_beyond_the_limit_and_refused_serves_again(limit):
    memory = Memory()
    allocator = CachingAllocator(memory, limit)
    blocks = [Slice(allocator, 1024) for _ in range(3)]
    addresses = {block.address for block in blocks}
    memory.refused = set(addresses)
    blocks.clear()
    # Nobody who asks for memory hears of it.
    block = Slice(allocator, 1024)
    assert block.address in addresses
    memory.refused = set(addresses)
    assert allocator.statistics()[:2] == (1024, 2048)
    memory.refused.clear()
    allocator.empty_cache()
    assert len(memory.live) == 1


def test_a_refusal_while_memory_is_short_is_no_obstacle():
    memory = Memory(total=8192)
    allocator = CachingAllocator(memory, limit=8192)
    blocks = [Slice(allocator, 2048) for _ in range(4)]
    first = blocks[0].address
    blocks.clear()
    memory.refused = {first}
    held = Slice(allocator, 4096)
    assert memory.live[held.address] == 4096
    memory.refused = {first}
    with pytest.raises(OutOfMemory):
        Slice(allocator, 8192)
    assert allocator.statistics()[:2] == (4096, 2048)
    assert Slice(allocator, 2048).address == first


def test_the_limit_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("TALLOW_MEMORY_CACHE", raising=False)
    assert cache_limit(1000) == 500
    monkeypatch.setenv("TALLOW_MEMORY_CACHE", "123")
    assert cache_limit(1000) == 123
    monkeypatch.setenv("TALLOW_MEMORY_CACHE", "1 GB")
    with pytest.raises(InvalidArgument, match="'1 GB' is no number of bytes"):
        cache_limit(1000)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40_000)), max_size=60),
    st.sampled_from([0, 8192, 1 << 30]),
    st.integers(0, 5),
)
def test_blocks_never_overlap_and_are_all_accounted_for(steps, limit, refusals):
    memory = Memory(total=150_000)
    allocator = CachingAllocator(memory, limit)
    held: list[Slice] = []
    for is_release, number in steps:
        if is_release and held:
            held.pop(number % len(held))
        else:
            try:
                block = Slice(allocator, number)
            except OutOfMemory:
                # What is held and what is asked for do not fit, though nothing is cached but what was refused.
                assert allocator.statistics().cached == 0 or refusals
                assert refusals or allocator.statistics().allocated + number > memory.total - 8192
                continue
            assert memory.live.get(block.address, 0) >= number
            if number:
                held.append(block)
            if len(held) <= refusals:
                memory.refused.add(block.address)
            del block
    ranges = sorted((block.address, block.address + memory.live[block.address]) for block in held)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(ranges))
    allocated, cached, peak = allocator.statistics()
    assert allocated == sum(memory.live[block.address] for block in held) <= peak
    assert cached <= limit or refusals
    assert allocated + cached == sum(memory.live.values())
    memory.refused.clear()
    held.clear()
    allocator.empty_cache()
    assert allocator.statistics()[:2] == (0, 0)
    assert not memory.live


def test_threads_share_an_allocator():
    memory = Memory()
    allocator = CachingAllocator(memory)
    owners: dict[int, int] = {}
    clashes = []

    def work(owner: int) -> None:
        for iteration in range(300):
            block = Slice(allocator, 512 * (1 + iteration % 4))
            if owners.setdefault(block.address, owner) != owner:
                clashes.append(block)
            del owners[block.address]
            del block

    threads = [threading.Thread(target=work, args=(owner,)) for owner in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
    allocator.empty_cache()
    assert not memory.live
    assert allocator.statistics()[:2] == (0, 0)


def test_a_private_pool_reuses_its_blocks_and_shares_them_with_nobody():
    allocator = CachingAllocator(Memory())
    pool = PrivatePool(allocator)
    address = Slice(pool, 1000).address
    others = [Slice(allocator, 1000) for _ in range(3)]
    assert address not in {other.address for other in others}
    assert Slice(pool, 900).address == address
    assert allocator.statistics() == (4 * 1024, 0, 4 * 1024)


def test_a_private_pool_takes_what_is_cached():
    memory = Memory()
    allocator = CachingAllocator(memory)
    Slice(allocator, 1000)
    held = Slice(PrivatePool(allocator), 1000)
    assert memory.live == {held.address: 1024}


def test_a_closed_pool_gives_back_what_is_free_and_the_rest_when_slices_end():
    memory = Memory()
    allocator = CachingAllocator(memory)
    pool = PrivatePool(allocator)
    held, other = Slice(pool, 1000), Slice(pool, 1000)
    free = other.address
    del other
    pool.close()
    assert allocator.statistics()[:2] == (1024, 1024)
    taken = Slice(allocator, 1000)
    assert taken.address == free
    last = held.address
    del held
    assert allocator.statistics()[:2] == (1024, 1024)
    assert Slice(allocator, 1000).address == last
    del taken
    allocator.empty_cache()
    assert (memory.live, allocator.statistics()[:2]) == ({}, (0, 0))


def test_what_a_closed_pool_gives_back_counts_towards_the_limit():
    memory = Memory()
    allocator = CachingAllocator(memory, limit=1024)
    pool = PrivatePool(allocator)
    blocks = [Slice(pool, 1024) for _ in range(3)]
    pool.close()
    assert allocator.statistics()[:2] == (3072, 0)
    blocks.clear()
    assert allocator.statistics()[:2] == (0, 1024)
    assert len(memory.live) == 1
