// Rotary embeddings: pairs of elements, rotated by the angles of their position.
#pragma once

#include "index.hpp"

namespace tallow {

// Cosines or sines in the compute type, in accesses of up to 16 bytes.
template <uint32_t N, typename Value> TALLOW_INLINE void load_angles(const float* table, Value (&angles)[N]) {
    constexpr uint32_t length = N < 4 ? N : 4;
#pragma unroll
    for (uint32_t begin = 0; begin < N; begin += length) {
        const Pack<float, length> pack = load_pack<length>(table + begin);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            angles[begin + i] = pack.values[i];
    }
}

// The first row of the tables, or row 0 and a record where that is none of the `size` from which all tokens have one.
template <typename Arguments> TALLOW_INLINE uint64_t first_angles(const Arguments& arguments, uint64_t offset) {
    const uint64_t offsets[1] = {offset};
    uint64_t loaded[1] = {arguments.position};
    if (arguments.indexes)
        load_indexes(arguments, offsets, loaded);
    const int64_t index = index_of(arguments, loaded[0]);
    if (static_cast<uint64_t>(index) < arguments.size)
        return static_cast<uint64_t>(index);
    record_index(arguments, index);
    return 0;
}

// Elements side by side, which one access moves where they are Packed.
template <bool Packed, uint32_t N, typename T> TALLOW_INLINE Registers<sizeof(T) * N> load_side(const T* elements) {
    if constexpr (Packed) {
        return load_registers<sizeof(T) * N>(elements);
    } else {
        Registers<sizeof(T) * N> access{};
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            put_element(access, i, elements[i]);
        return access;
    }
}
template <bool Packed, typename T, uint32_t Bytes>
TALLOW_INLINE void store_side(T* elements, const Registers<Bytes>& access) {
    if constexpr (Packed) {
        store_registers(elements, access);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < Bytes / sizeof(T); ++i)
            elements[i] = take_element<T>(access, i);
    }
}

// A thread rotates some pairs of one token in `rotated` heads, rope_heads at a time, which have the angles in common:
// pairs of neighbours, or of elements at a distance of half a row. The dims count such threads; of the operands 0 is
// the source, 1 the result, 2 the tables, 3 the positions, and 4 the number of the first head.
template <typename T, bool Interleaved, bool Packed, typename Arguments>
TALLOW_INLINE void rotate_pairs(const Arguments& arguments) {
    using Value = compute_type<T>;
    // Neighbours stand in one pack.
    constexpr uint32_t packs = Interleaved ? 1 : 2;
    constexpr uint32_t length = Packed ? access_bytes / sizeof(T) : 2 / packs;
    constexpr uint32_t pairs = length * packs / 2;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t i = block_index() * block_size + thread_index(); i < arguments.count; i += threads) {
        uint64_t offsets[5];
        locate(arguments, i, offsets);
        const T* source = pointer_to<const T>(arguments.source) + offsets[0];
        T* result = pointer_to<T>(arguments.result) + offsets[1];
        const uint64_t angles = offsets[2] + first_angles(arguments, offsets[3]) * arguments.table_stride;
        Value cosines[pairs];
        Value sines[pairs];
        load_angles(pointer_to<const float>(arguments.cosines) + angles, cosines);
        load_angles(pointer_to<const float>(arguments.sines) + angles, sines);
        const uint32_t first = static_cast<uint32_t>(offsets[4]);
        const uint32_t left = arguments.heads - first < arguments.rotated ? arguments.heads - first : arguments.rotated;
        for (uint32_t begin = 0; begin < left; begin += rope_heads) {
            Registers<sizeof(T) * length> loaded[rope_heads][packs];
#pragma unroll
            for (uint32_t h = 0; h < rope_heads; ++h)
#pragma unroll
                for (uint32_t p = 0; p < packs; ++p)
                    if (begin + h < left)
                        loaded[h][p] =
                            load_side<Packed, length>(source + h * arguments.source_stride + p * arguments.half);
#pragma unroll
            for (uint32_t h = 0; h < rope_heads; ++h)
#pragma unroll
                for (uint32_t p = 0; p < packs; ++p) {
                    // Of a pair, the one is in this pack and the other next to it, or in the other pack.
                    const auto rotated = map_pack<T>(loaded[h][p], [&](Value x, uint32_t i) {
                        const uint32_t pair = Interleaved ? i / 2 : i;
                        const bool is_second = Interleaved ? i % 2 != 0 : p != 0;
                        const auto& others = loaded[h][packs - 1 - p];
                        const Value y = to_compute(take_element<T>(others, Interleaved ? i ^ 1 : i));
                        return is_second ? y * sines[pair] + x * cosines[pair] : x * cosines[pair] - y * sines[pair];
                    });
                    if (begin + h < left)
                        store_side<Packed>(result + h * arguments.result_stride + p * arguments.half, rotated);
                }
            source += rope_heads * arguments.source_stride;
            result += rope_heads * arguments.result_stride;
        }
    }
}
template <typename T, bool Interleaved, typename Arguments> TALLOW_INLINE void rope(const Arguments& arguments) {
    if (arguments.is_packed)
        rotate_pairs<T, Interleaved, true>(arguments);
    else
        rotate_pairs<T, Interleaved, false>(arguments);
}

} // namespace tallow
