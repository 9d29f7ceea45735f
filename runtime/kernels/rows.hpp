// Rows of elements side by side, each taken by a subgroup of threads.
#pragma once

#include "math.hpp"
#include "reduce.hpp"
#include "row_formula.hpp"

namespace tallow {

// Threads side by side that take a row together: a power of two of them, a part of a wave or some waves of a block, all
// of whose threads join at the same time.
struct Subgroup {
    uint32_t size;
    // Whether its waves wait for the whole block.
    bool waits_for_block = false;
    uint32_t joins = 0;

    TALLOW_INLINE uint32_t lane() const {
        return lane_in_subgroup(size);
    }
};

// Waits for the other threads of a subgroup of several waves; on AMD for all subgroups of the block, none of which is
// elsewhere. A barrier whose number is not constant reserves all 16 of a block, of which NVIDIA's multiprocessors have
// those of four blocks: as many as keep the memory busy.
TALLOW_INLINE void synchronize_subgroup([[maybe_unused]] const Subgroup& subgroup) {
#if defined(TALLOW_NVIDIA)
    if (!subgroup.waits_for_block) {
        asm volatile("bar.sync %0, %1;" ::"r"(subgroups_in(thread_index(), subgroup.size) + 1), "r"(subgroup.size)
                     : "memory");
        return;
    }
#endif
    synchronize_block();
}

// Brings the line of an address to the cache that all blocks share.
TALLOW_INLINE void fetch_line([[maybe_unused]] const void* address) {
#if defined(TALLOW_NVIDIA)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}
#if defined(TALLOW_HAS_BULK_PREFETCH)
// The same of `bytes` bytes, by one thread; both are multiples of 16.
TALLOW_INLINE void fetch_bytes(const void* address, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
}
TALLOW_INLINE uint32_t multiprocessors() {
    uint32_t count;
    asm("mov.u32 %0, %%nsmid;" : "=r"(count));
    return count;
}
#endif
// Prefetches memory to it, by a block; an address of 0 is none.
TALLOW_INLINE void fetch_to_cache(uint64_t address, uint32_t bytes) {
    constexpr uint32_t line = 128;
    for (uint32_t byte = thread_index() * line; address != 0 && byte < bytes; byte += block_size * line)
        fetch_line(pointer_to<const void>(address + byte));
}

// Calls visit(number, offsets) for each row, for a subgroup of threads: its number and where it begins in each operand.
// Subgroups past the last row are called too, with a number that no row has, since all lanes of a wave exchange what
// they have.
template <uint32_t Operands, typename Arguments, typename Visit>
TALLOW_INLINE void visit_rows(const Arguments& arguments, Visit visit) {
    const uint32_t rows_per_block = subgroups_in(block_size, arguments.subgroup_size);
    for (uint32_t base = block_index() * rows_per_block; base < arguments.rows;
         base += grid_blocks() * rows_per_block) {
        const uint32_t row = base + subgroups_in(thread_index(), arguments.subgroup_size);
        uint64_t offsets[Operands];
        locate(arguments, row < arguments.rows ? row : 0, offsets);
        visit(row, offsets);
    }
}

} // namespace tallow
