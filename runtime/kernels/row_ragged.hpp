// Vectors of rows whose widths are no multiples of 16 bytes, and which begin anywhere: vector k of a row has its
// elements from k * N on, wherever they are.
#pragma once

#include "row_vectors.hpp"

namespace tallow {

// The 16 bytes from byte `bytes` on of two accesses side by side.
template <typename T>
TALLOW_INLINE Registers<16> shifted(const Registers<16>& low, const Registers<16>& high, uint32_t bytes) {
    uint32_t words[8];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        words[i] = low.values[i];
        words[i + 4] = high.values[i];
    }
    // By masks: of a choice between two elements of an array compilers make one between their addresses, and keep the
    // array in memory.
    const uint32_t by_one = (bytes & 4) != 0 ? ~0u : 0;
    const uint32_t by_two = (bytes & 8) != 0 ? ~0u : 0;
#pragma unroll
    for (uint32_t i = 0; i < 7; ++i)
        words[i] = (words[i + 1] & by_one) | (words[i] & ~by_one);
#pragma unroll
    for (uint32_t i = 0; i < 5; ++i)
        words[i] = (words[i + 2] & by_two) | (words[i] & ~by_two);
    Registers<16> vector;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) < 4)
            vector.values[i] = static_cast<uint32_t>(join_words(words[i], words[i + 1]) >> bytes % 4 * 8);
        else
            vector.values[i] = words[i];
    }
    return vector;
}

// How many elements before an address the whole access that it lies in begins.
template <typename T> TALLOW_INLINE uint32_t elements_before(const T* elements) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(elements) % access_bytes / sizeof(T));
}

// The accesses that a vector lies in. They are loaded for several vectors before any is shifted to its place.
template <typename T> struct RaggedAccesses {
    Registers<16> low;
    Registers<16> high;
    uint32_t bytes;

    // Elements `index - skipped` and so on of a row, `elements` being the address of the first one. Those that the row
    // does not have are anything. Whole accesses may touch what lies in [first, last), where the whole operand does; at
    // its ends elements are loaded one by one.
    static TALLOW_INLINE RaggedAccesses load(const T* elements, uint32_t index, uint32_t skipped, uint32_t length,
                                             uint64_t first, uint64_t last) {
        constexpr uint32_t count = access_bytes / sizeof(T);
        RaggedAccesses loaded{{}, {}, 0};
        // The same for all vectors of the row, as these are `count` elements apart.
        const uint32_t before = elements_before(elements - index);
        const T* const access = elements - before;
        const uint32_t next = before != 0 ? count : 0;
        bool are_inside = index >= skipped + before && index - skipped + 2 * count <= length;
        if (!are_inside) {
            const uint64_t address = reinterpret_cast<uint64_t>(access);
            are_inside = address >= first && address + access_bytes + next * sizeof(T) <= last;
        }
        if (are_inside) {
            loaded.low = load_registers<access_bytes>(access);
            loaded.high = load_registers<access_bytes>(access + next);
            loaded.bytes = before * static_cast<uint32_t>(sizeof(T));
        } else {
            // Opaque, or compilers would keep which elements there are.
            const uint32_t place = opaque(index - skipped);
#pragma unroll
            for (uint32_t i = 0; i < count; ++i)
                put_element(loaded.low, i, place + i < length ? elements[i] : T{});
        }
        return loaded;
    }
    static TALLOW_INLINE RaggedAccesses of(const Registers<16>& vector) {
        return {vector, vector, 0};
    }
    TALLOW_INLINE Registers<16> vector() const {
        return shifted<T>(low, high, bytes);
    }
};

// Writes the vectors that lanes side by side have of a row, of which each lane has the next one. Each whole access is
// written at once, by the lane in whose vector it ends, and what is left of the vectors one by one. All lanes of the
// wave call this, those whose vectors lie behind the row too.
template <typename T>
TALLOW_INLINE void store_ragged(T* row, uint32_t index, uint32_t length, const Registers<16>& vector, uint32_t lanes) {
    constexpr uint32_t count = access_bytes / sizeof(T);
    const uint32_t lane = lane_index() & (lanes - 1);
    T* const elements = row + index;
    const uint32_t before = elements_before(elements);
    Registers<16> earlier;
#pragma unroll
    for (uint32_t word = 0; word < 4; ++word) {
        const uint32_t other = shuffle_from(vector.values[word], (lane_index() - 1) & (wave_size - 1));
        earlier.values[word] = before != 0 ? other : vector.values[word];
    }
    const bool is_written = (before == 0 || lane > 0) && index + count - before <= length;
    const bool is_rest_written = before == 0 || (lane + 1 < lanes && index + 2 * count - before <= length);
    if (is_written)
        store_registers(elements - before,
                        shifted<T>(earlier, vector, (access_bytes - before * sizeof(T)) % access_bytes));
    if (is_written && is_rest_written)
        return;
    // The elements from the first one on that is not written, up to the last one.
    const uint32_t begin = opaque(is_written ? count - before : 0);
    const uint32_t left = index < length ? length - index : 0;
    const uint32_t end = opaque(is_rest_written && left > count - before ? count - before : left);
#pragma unroll
    for (uint32_t i = 0; i < count; ++i)
        if (i >= begin && i < end)
            elements[i] = take_element<T>(vector, i);
}

} // namespace tallow
