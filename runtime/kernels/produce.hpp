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
    // Element i of operand k, with a stride of `step`. The last element is repeated past the end.
    TALLOW_INLINE uint64_t offset(uint32_t k, uint32_t i, uint64_t step) const {
        return (i < left ? offsets[k] : next_offsets[k]) + (i < last ? i : last) * step;
    }
};

// StaysInRow says that N elements never reach into the next row, which leaves nothing of it in registers.
template <uint32_t N, bool StaysInRow, uint32_t Operands, typename Arguments>
TALLOW_INLINE Run<Operands> locate_run(const Arguments& arguments, uint32_t first) {
    Run<Operands> run{};
    const uint32_t column = locate(arguments, first, run.offsets);
    run.left = StaysInRow ? N : arguments.dims[0] - column;
    run.last = StaysInRow ? N - 1 : arguments.count - 1 - first;
    if (!StaysInRow && run.left < N && run.left <= run.last) {
        locate(arguments, first + run.left, run.next_offsets);
#pragma unroll
        for (uint32_t k = 0; k < Operands; ++k)
            run.next_offsets[k] -= run.left * arguments.strides[k * max_rank];
    }
    return run;
}

// Calls visitor.visit<N>(first, run) for the elements from `first` on, N at a time.
template <uint32_t N, bool StaysInRow, uint32_t Operands, typename Arguments, typename Visitor>
TALLOW_INLINE void visit_runs_of(const Arguments& arguments, const Visitor& visitor) {
    const uint32_t step = grid_blocks() * block_size * N;
    for (uint32_t first = (block_index() * block_size + thread_index()) * N; first < arguments.count; first += step)
        visitor.template visit<N>(first, locate_run<N, StaysInRow, Operands>(arguments, first));
}
// The same with `Length` at a time, or where rows are shorter than that, one.
template <uint32_t Length, uint32_t Operands, typename Arguments, typename Visitor>
TALLOW_INLINE void visit_runs(const Arguments& arguments, const Visitor& visitor) {
    if (arguments.dims[0] % Length == 0)
        visit_runs_of<Length, true, Operands>(arguments, visitor);
    else if (arguments.dims[0] > Length)
        visit_runs_of<Length, false, Operands>(arguments, visitor);
    else
        visit_runs_of<1, true, Operands>(arguments, visitor);
}

// result[i] to result[i + N - 1] = maker.make<N>(run).
template <typename T, typename Arguments, typename Maker> struct RunStore {
    const Arguments& arguments;
    const Maker& maker;
    template <uint32_t N, uint32_t Operands> TALLOW_INLINE void visit(uint32_t first, const Run<Operands>& run) const {
        store_guarded(pointer_to<T>(arguments.result), first, arguments.count, maker.template make<N>(run));
    }
};
template <uint32_t Operands, typename T, typename Arguments, typename Maker>
TALLOW_INLINE void produce_packs(const Arguments& arguments, const Maker& maker) {
    constexpr uint32_t length = strided_length<T>;
    visit_runs<length, Operands>(arguments, RunStore<T, Arguments, Maker>{arguments, maker});
}

} // namespace tallow
