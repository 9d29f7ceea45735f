// A dense result of which every element is a function of where it lies.
#pragma once

#include "memory.hpp"

namespace tallow {

// result[i] = function(offsets of i in each of `Operands` operands), a thread for each element.
template <uint32_t Operands, typename T, typename Arguments, typename Function>
TALLOW_INLINE void produce(const Arguments& arguments, Function function) {
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t i = block_index() * block_size + thread_index(); i < arguments.count; i += threads) {
        uint64_t offsets[Operands];
        locate(arguments, i, offsets);
        pointer_to<T>(arguments.result)[i] = function(offsets);
    }
}

// Where elements side by side are in each operand: the first `left` of them in one row of the innermost dim, the others
// in the next row.
template <uint32_t Operands> struct Run {
    uint64_t offsets[Operands];
    // Of the next row, less what the steps to its first element add up to.
    uint64_t next_offsets[Operands];
    uint32_t left;
    uint32_t last;

    template <uint32_t N> TALLOW_INLINE bool is_in_one_row() const {
        return left >= N;
    }
    // Element i of operand k, which are `step` apart. Behind the last element of all, that one again.
    TALLOW_INLINE uint64_t place(uint32_t k, uint32_t i, uint64_t step) const {
        return (i < left ? offsets[k] : next_offsets[k]) + (i < last ? i : last) * step;
    }
};

// Whole says that N elements never reach into the next row, which leaves nothing of it in registers.
template <uint32_t N, bool Whole, uint32_t Operands, typename Arguments>
TALLOW_INLINE Run<Operands> locate_run(const Arguments& arguments, uint32_t first) {
    Run<Operands> run{};
    const uint32_t column = locate(arguments, first, run.offsets);
    run.left = Whole ? N : arguments.dims[0] - column;
    run.last = Whole ? N - 1 : arguments.count - 1 - first;
    if (!Whole && run.left < N && run.left <= run.last) {
        locate(arguments, first + run.left, run.next_offsets);
#pragma unroll
        for (uint32_t k = 0; k < Operands; ++k)
            run.next_offsets[k] -= run.left * arguments.strides[k * max_rank];
    }
    return run;
}

template <uint32_t N, bool Whole, uint32_t Operands, typename T, typename Arguments, typename Maker>
TALLOW_INLINE void produce_runs(const Arguments& arguments, const Maker& maker) {
    const uint32_t step = grid_blocks() * block_size * N;
    for (uint32_t first = (block_index() * block_size + thread_index()) * N; first < arguments.count; first += step) {
        const Run<Operands> run = locate_run<N, Whole, Operands>(arguments, first);
        store_guarded(pointer_to<T>(arguments.result), first, arguments.count, maker.template make<N>(run));
    }
}

// The same with maker.make<N>(run), which makes N elements. A thread makes a pack of them, or where rows are shorter
// than a pack one element.
template <uint32_t Operands, typename T, typename Arguments, typename Maker>
TALLOW_INLINE void produce_packs(const Arguments& arguments, const Maker& maker) {
    constexpr uint32_t length = pack_length<T> > 8 ? 8 : pack_length<T>;
    if (arguments.dims[0] % length == 0)
        produce_runs<length, true, Operands, T>(arguments, maker);
    else if (arguments.dims[0] > length)
        produce_runs<length, false, Operands, T>(arguments, maker);
    else
        produce_runs<1, true, Operands, T>(arguments, maker);
}

} // namespace tallow
