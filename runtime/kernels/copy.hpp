// Elements moved from strides to strides, filled, or transposed: only their width counts.
#pragma once

#include "memory.hpp"

namespace tallow {

// ptxas splits a plain store of 16 bytes where it knows some of the four words to be the same.
template <typename T, uint32_t N> TALLOW_INLINE void store_repeated(T* pointer, const Pack<T, N>& pack) {
#if defined(TALLOW_NVIDIA)
    static_assert(sizeof(pack) == access_bytes, "a pack is one access");
    const auto registers = bit_cast<Registers<access_bytes>>(pack);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(pointer), "r"(registers.values[0]), "r"(registers.values[1]), "r"(registers.values[2]),
                   "r"(registers.values[3])
                 : "memory");
#else
    store_pack(pointer, pack);
#endif
}

// The first bytes of two words as an element.
template <typename T> TALLOW_INLINE T filling(const uint64_t (&value)[2]) {
    if constexpr (sizeof(T) > sizeof(uint64_t))
        return {value[0], value[1]};
    else
        return static_cast<T>(value[0]);
}

// The result from its first multiple of 16 bytes on is written in aligned accesses, what lies before and after by
// element.
template <typename T, typename Arguments> TALLOW_INLINE void fill_contiguous(const Arguments& arguments) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    T* const result = pointer_to<T>(arguments.result);
    const T value = filling<T>(arguments.value);
    const uint64_t count = arguments.count;
    const uint32_t before = (0u - static_cast<uint32_t>(arguments.result)) % access_bytes / sizeof(T);
    const uint32_t head = before < count ? before : static_cast<uint32_t>(count);
    const uint64_t packs = (count - head) / length;
    Pack<T, length> pack;
#pragma unroll
    for (uint32_t i = 0; i < length; ++i)
        pack.values[i] = value;
    const uint32_t step = block_size * fill_packs;
    for (uint64_t base = uint64_t{block_index()} * step; base < packs; base += uint64_t{grid_blocks()} * step) {
        const uint64_t first = base + thread_index();
        T* const target = result + head + first * length;
#pragma unroll
        for (uint32_t i = 0; i < fill_packs; ++i)
            if (first + i * block_size < packs)
                store_repeated(target + i * block_size * length, pack);
    }
    if (block_index() == 0) {
        const uint64_t tail = head + packs * length;
        if (thread_index() < head)
            result[thread_index()] = value;
        if (thread_index() < count - tail)
            result[tail + thread_index()] = value;
    }
}

template <typename T, typename Arguments> TALLOW_INLINE void fill_strided(const Arguments& arguments) {
    T* const result = pointer_to<T>(arguments.result);
    const T value = filling<T>(arguments.value);
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
    // Few elements have a thread each.
    if (arguments.count <= grid_blocks() * block_size) {
        const uint32_t index = block_index() * block_size + thread_index();
        uint64_t offsets[2];
        locate(arguments, index, offsets);
        if (index < arguments.count)
            store_pack(result + offsets[0], load_pack<1>(source + offsets[1]));
        return;
    }
    const uint32_t step = grid_blocks() * block_size * copy_elements;
    for (uint32_t base = block_index() * block_size * copy_elements; base < arguments.count; base += step) {
        Pack<T, 1> values[copy_elements];
        uint64_t targets[copy_elements];
#pragma unroll
        for (uint32_t i = 0; i < copy_elements; ++i) {
            const uint32_t index = base + i * block_size + thread_index();
            uint64_t offsets[2];
            locate(arguments, index < arguments.count ? index : arguments.count - 1, offsets);
            targets[i] = offsets[0];
            values[i] = load_pack<1>(source + offsets[1]);
        }
#pragma unroll
        for (uint32_t i = 0; i < copy_elements; ++i)
            if (base + i * block_size + thread_index() < arguments.count)
                store_pack(result + targets[i], values[i]);
    }
}

// A copy with 0 on the diagonals past the last one that is copied; their elements are not read.
template <typename T, typename Arguments> TALLOW_INLINE void triangle(const Arguments& arguments) {
    T* const result = pointer_to<T>(arguments.result);
    const T* const source = pointer_to<const T>(arguments.source);
    const uint32_t step = grid_blocks() * block_size * copy_elements;
    for (uint32_t base = block_index() * block_size * copy_elements; base < arguments.count; base += step) {
        T values[copy_elements];
        uint64_t targets[copy_elements];
#pragma unroll
        for (uint32_t i = 0; i < copy_elements; ++i) {
            const uint32_t index = base + i * block_size + thread_index();
            uint64_t offsets[3];
            locate(arguments, index < arguments.count ? index : arguments.count - 1, offsets);
            targets[i] = offsets[0];
            values[i] = static_cast<int64_t>(arguments.diagonal + offsets[2]) <= 0 ? source[offsets[1]] : T{};
        }
#pragma unroll
        for (uint32_t i = 0; i < copy_elements; ++i)
            if (base + i * block_size + thread_index() < arguments.count)
                result[targets[i]] = values[i];
    }
}

// Every block has elements of one source, which stand in rows of the result. The launcher takes the widest element that
// all sides allow.
template <typename T, typename Arguments> TALLOW_INLINE void join(const Arguments& arguments) {
    constexpr uint32_t sources = sizeof(arguments.first_blocks) / sizeof(uint32_t);
    uint32_t k = 0;
#pragma unroll
    for (uint32_t step = join_many_power; step > 0; step /= 2)
        if (k + step < sources && block_index() >= arguments.first_blocks[k + step])
            k += step;
    T* const result = pointer_to<T>(arguments.result) + arguments.offsets[k];
    const T* const source = pointer_to<const T>(arguments.sources[k]);
    const uint32_t width = arguments.widths[k];
    const uint32_t count = arguments.rows * width;
    const uint32_t first = (block_index() - arguments.first_blocks[k]) * block_size * copy_elements + thread_index();
    uint32_t lines[copy_elements];
    Pack<T, 1> values[copy_elements];
#pragma unroll
    for (uint32_t i = 0; i < copy_elements; ++i) {
        const uint32_t index = first + i * block_size < count ? first + i * block_size : count - 1;
        lines[i] = divide(index, arguments.multipliers[k], arguments.shifts[k]);
        const uint32_t column = index - lines[i] * width;
        values[i] = load_pack<1>(source + (lines[i] * arguments.strides[k] + column * arguments.steps[k]));
    }
#pragma unroll
    for (uint32_t i = 0; i < copy_elements; ++i) {
        const uint32_t index = first + i * block_size;
        if (index < count)
            store_pack(result + (lines[i] * arguments.row + index - lines[i] * width), values[i]);
    }
}

} // namespace tallow
