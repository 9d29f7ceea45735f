// Elements moved from strides to strides, filled, or turned: only their width counts.
#pragma once

#include "memory.hpp"

namespace tallow {

// How many accesses a thread has in flight.
constexpr uint32_t elements_per_thread = 4;

// The result from its first multiple of 16 bytes on is written in whole accesses, what lies before and after by
// element.
template <typename T, typename Arguments> TALLOW_INLINE void fill_contiguous(const Arguments& arguments) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    T* const result = pointer_to<T>(arguments.result);
    const T value = static_cast<T>(arguments.value);
    const uint64_t count = arguments.count;
    const uint64_t misaligned = arguments.result % access_bytes;
    const uint64_t wanted = misaligned == 0 ? 0 : (access_bytes - misaligned) / sizeof(T);
    const uint64_t head = wanted < count ? wanted : count;
    const uint64_t packs = (count - head) / length;
    const uint64_t tail = head + packs * length;
    Pack<T, length> pack;
#pragma unroll
    for (uint32_t i = 0; i < length; ++i)
        pack.values[i] = value;
    const uint64_t step = block_size * elements_per_thread;
    for (uint64_t base = block_index() * step; base < packs; base += grid_blocks() * step) {
#pragma unroll
        for (uint32_t i = 0; i < elements_per_thread; ++i) {
            const uint64_t place = base + i * block_size + thread_index();
            if (place < packs)
                store_whole(result + head + place * length, pack);
        }
    }
    if (block_index() == 0 && thread_index() < head)
        result[thread_index()] = value;
    if (block_index() == 0 && thread_index() < count - tail)
        result[tail + thread_index()] = value;
}

template <typename T, typename Arguments> TALLOW_INLINE void fill_strided(const Arguments& arguments) {
    T* const result = pointer_to<T>(arguments.result);
    const T value = static_cast<T>(arguments.value);
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < arguments.count; index += threads) {
        uint64_t offsets[1];
        locate(arguments, index, offsets);
        result[offsets[0]] = value;
    }
}

// Operand 0 is the result, operand 1 the source. The launcher takes the widest element that both sides allow.
template <typename T, typename Arguments> TALLOW_INLINE void copy_strided(const Arguments& arguments) {
    T* const result = pointer_to<T>(arguments.result);
    const T* const source = pointer_to<const T>(arguments.source);
    const uint32_t step = grid_blocks() * block_size * elements_per_thread;
    for (uint32_t base = block_index() * block_size * elements_per_thread; base < arguments.count; base += step) {
        Pack<T, 1> values[elements_per_thread];
        uint64_t places[elements_per_thread];
#pragma unroll
        for (uint32_t i = 0; i < elements_per_thread; ++i) {
            const uint32_t index = base + i * block_size + thread_index();
            uint64_t offsets[2];
            locate(arguments, index < arguments.count ? index : arguments.count - 1, offsets);
            places[i] = offsets[0];
            values[i] = load_whole<1>(source + offsets[1]);
        }
#pragma unroll
        for (uint32_t i = 0; i < elements_per_thread; ++i)
            if (base + i * block_size + thread_index() < arguments.count)
                store_whole(result + places[i], values[i]);
    }
}

} // namespace tallow
