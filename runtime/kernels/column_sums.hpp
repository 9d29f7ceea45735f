// Sums of columns that were added up in parts.
#pragma once

#include "access.hpp"

namespace tallow {

// The sum of the parts of a column, with a stride of `step`, which the threads of a block share: each
// `combined_columns`-th one has parts of the same column, and the first `combined_columns` threads get the sums. All
// threads of the block call this.
template <typename Value> TALLOW_INLINE Value sum_of_parts(const Value* column, uint64_t step, uint32_t parts) {
    __shared__ Value shared[block_size];
    constexpr uint32_t rows = block_size / combined_columns;
    Value sum = 0;
    // Several loads are in flight at once.
    for (uint32_t first = thread_index() / combined_columns; first < parts; first += reduce_in_flight * rows) {
        Value loaded[reduce_in_flight];
#pragma unroll
        for (uint32_t i = 0; i < reduce_in_flight; ++i) {
            const uint32_t part = first + i * rows;
            loaded[i] = part < parts ? column[part * step] : Value{0};
        }
#pragma unroll
        for (uint32_t i = 0; i < reduce_in_flight; ++i)
            sum += loaded[i];
    }
    shared[thread_index()] = sum;
    synchronize_block();
    for (uint32_t half = block_size / 2; half >= combined_columns; half /= 2) {
        if (thread_index() < half)
            shared[thread_index()] += shared[thread_index() + half];
        synchronize_block();
    }
    return shared[thread_index()];
}

} // namespace tallow
