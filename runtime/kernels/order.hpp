// The positions of elements in order. Equal elements stay in the order of their positions.
#pragma once

#include "sort.hpp"

namespace tallow {

// A thread has an element, and counts those of its line that come before it.
template <typename T, typename Arguments> TALLOW_INLINE void sort_short_lines(const Arguments& arguments) {
    __shared__ OrderKey<T> keys[block_size];
    const uint32_t length = arguments.length;
    const uint32_t line = thread_index() / length;
    const uint32_t position = thread_index() % length;
    const uint32_t lines = block_size / length;
    const OrderKey<T>* const others = keys + line * length;
    for (uint64_t base = block_index() * uint64_t{lines}; base < arguments.lines;
         base += grid_blocks() * uint64_t{lines}) {
        const bool valid = line < lines && base + line < arguments.lines;
        const uint64_t first = (base + line) * length;
        if (valid)
            keys[thread_index()] =
                order_key(pointer_to<const T>(arguments.source)[first + position], arguments.descending != 0);
        synchronize_block();
        if (valid) {
            const OrderKey<T> own = others[position];
            uint32_t before = 0;
            for (uint32_t i = 0; i < position; ++i)
                before += others[i] <= own ? 1 : 0;
            for (uint32_t i = position + 1; i < length; ++i)
                before += others[i] < own ? 1 : 0;
            pointer_to<uint32_t>(arguments.result)[first + before] = position;
        }
        synchronize_block();
    }
}

// A block sorts a line in shared memory, by the 32 bits of keys that it has there and then by those above.
template <typename T, typename Arguments> TALLOW_INLINE void sort_tiles(const Arguments& arguments) {
    __shared__ SharedPairs pairs;
    const uint32_t length = arguments.length;
    const uint64_t begin = block_index() * uint64_t{length};
    const T* const source = pointer_to<const T>(arguments.source) + begin;
#pragma unroll 1
    for (uint32_t bit = 0; bit < arguments.bits; bit += digit_bits) {
        if (bit % 32 == 0) {
#pragma unroll 1
            for (uint32_t i = thread_index(); i < length; i += block_size) {
                const uint32_t position = bit == 0 ? i : pairs.positions[i];
                const uint64_t key = order_key(source[position], arguments.descending != 0);
                pairs.keys[i] = static_cast<uint32_t>(key >> bit);
                pairs.positions[i] = static_cast<uint16_t>(position);
            }
            synchronize_block();
        }
        uint32_t count = length;
#if defined(TALLOW_AMD)
        // Else masks that all passes share stay in registers, which do not suffice.
        asm("" : "+s"(count));
#endif
        sort_by_digit(pairs, count, bit % 32);
    }
#pragma unroll 1
    for (uint32_t i = thread_index(); i < length; i += block_size)
        pointer_to<uint32_t>(arguments.result)[begin + i] = pairs.positions[i];
}

} // namespace tallow
