// Copies whose dims are padded, cut, rolled or reversed: padding.py explains the maps from positions to elements.
#pragma once

#include "copy.hpp"

namespace tallow {

// The element of dim `d` at a position of the result; below 0 where the result is filled.
template <typename Arguments>
TALLOW_INLINE int64_t padded_element(const Arguments& arguments, uint32_t d, uint64_t at) {
    const uint32_t run = (at >= arguments.ends[d]) + (at >= arguments.ends[max_rank + d]);
    return arguments.origins[run * max_rank + d] + arguments.steps[run * max_rank + d] * static_cast<int64_t>(at);
}

template <typename T, typename Arguments> TALLOW_INLINE void pad(const Arguments& arguments) {
    T* const result = pointer_to<T>(arguments.result);
    const T* const source = pointer_to<const T>(arguments.source);
    const T value = filling<T>(arguments.value);
    const uint32_t step = grid_blocks() * block_size * copy_elements;
    for (uint32_t base = block_index() * block_size * copy_elements; base < arguments.count; base += step) {
        T values[copy_elements];
#pragma unroll
        for (uint32_t i = 0; i < copy_elements; ++i) {
            const uint32_t index = base + i * block_size + thread_index();
            uint32_t left = index < arguments.count ? index : arguments.count - 1;
            uint64_t offset = 0;
            bool is_filled = false;
#pragma unroll 1
            for (uint32_t d = 0; d < arguments.rank; ++d) {
                const uint32_t quotient = divide(left, arguments.multipliers[d], arguments.shifts[d]);
                const int64_t element = padded_element(arguments, d, left - quotient * arguments.dims[d]);
                is_filled = is_filled || element < 0;
                offset += static_cast<uint64_t>(element) * arguments.strides[d];
                left = quotient;
            }
            values[i] = is_filled ? value : source[offset];
        }
#pragma unroll
        for (uint32_t i = 0; i < copy_elements; ++i)
            if (base + i * block_size + thread_index() < arguments.count)
                result[base + i * block_size + thread_index()] = values[i];
    }
}

} // namespace tallow
