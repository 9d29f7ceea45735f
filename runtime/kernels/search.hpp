// Binary search in sorted lines.
#pragma once

#include "search_sorted.hpp"

namespace tallow {

template <typename T, typename Arguments> TALLOW_INLINE void search_lines(const Arguments& arguments) {
    const T* const values = pointer_to<const T>(arguments.values);
    const uint64_t step = uint64_t{grid_blocks()} * block_size;
    for (uint64_t i = uint64_t{block_index()} * block_size + thread_index(); i < arguments.count; i += step) {
        const T* const line = pointer_to<const T>(arguments.source) + i / arguments.per_line * arguments.length;
        pointer_to<int64_t>(arguments.result)[i] =
            search_sorted(line, arguments.length, values[i], arguments.right != 0);
    }
}

} // namespace tallow
