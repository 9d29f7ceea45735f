// A dense result of which every element is a function of where it lies.
#pragma once

#include "memory.hpp"

namespace tallow {

// result[i] = function(offsets of i in each of `Operands` operands). A thread makes elements side by side, so that
// most of them are found by one step along the innermost dim.
template <uint32_t Operands, typename T, typename Arguments, typename Function>
TALLOW_INLINE void produce(const Arguments& arguments, Function function) {
    constexpr uint32_t length = pack_length<T> > 8 ? 8 : pack_length<T>;
    const uint32_t count = arguments.count;
    const uint32_t step = grid_blocks() * block_size * length;
    for (uint32_t first = (block_index() * block_size + thread_index()) * length; first < count; first += step) {
        uint64_t offsets[Operands];
        const uint32_t column = locate(arguments, first, offsets);
        Pack<T, length> pack;
        if (column + length <= arguments.dims[0]) {
#pragma unroll
            for (uint32_t i = 0; i < length; ++i) {
                pack.values[i] = function(offsets);
#pragma unroll
                for (uint32_t k = 0; k < Operands; ++k)
                    offsets[k] += arguments.strides[k * max_rank];
            }
            store_guarded(pointer_to<T>(arguments.result), first, count, pack);
        } else {
#pragma unroll 1
            for (uint32_t i = first; i < first + length && i < count; ++i) {
                locate(arguments, i, offsets);
                pointer_to<T>(arguments.result)[i] = function(offsets);
            }
        }
    }
}

} // namespace tallow
