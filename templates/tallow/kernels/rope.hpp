// Rotary embeddings: pairs of elements, turned by the angles of their position.
#pragma once

#include "index.hpp"

namespace tallow {

// Cosines or sines in the compute type, in accesses of 16 bytes.
template <uint32_t N, typename Value> TALLOW_INLINE void load_angles(const float* table, Value (&angles)[N]) {
    constexpr uint32_t length = N < 4 ? N : 4;
#pragma unroll
    for (uint32_t begin = 0; begin < N; begin += length) {
        const Pack<float, length> pack = load_run<length>(table + begin, 1);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            angles[begin + i] = pack.values[i];
    }
}

// The first row of the tables, or row 0 and a record where that is none of the `size` from which all tokens have one.
template <typename Arguments> TALLOW_INLINE uint64_t first_angles(const Arguments& arguments, uint64_t place) {
    const uint64_t places[1] = {place};
    uint64_t loaded[1] = {arguments.position};
    if (arguments.indexes)
        load_indexes(arguments, places, loaded);
    const int64_t index = static_cast<int64_t>(loaded[0] << arguments.index_shift) >> arguments.index_shift;
    if (static_cast<uint64_t>(index) < arguments.size)
        return static_cast<uint64_t>(index);
    record_index(arguments, index);
    return 0;
}

// A thread turns Pairs pairs of one token in each of rope_heads heads, which have the angles in common: pairs of
// neighbours, or of elements half a row apart. The dims count such threads; of the operands 0 is the source, 1 the
// result, 2 the tables, 3 the positions, and 4 the number of the first head.
template <typename T, bool Interleaved, uint32_t Pairs, typename Arguments>
TALLOW_INLINE void turn_pairs(const Arguments& arguments) {
    using Value = compute_type<T>;
    // Neighbours stand in one pack.
    constexpr uint32_t length = Interleaved ? 2 * Pairs : Pairs;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t i = block_index() * block_size + thread_index(); i < arguments.count; i += threads) {
        uint64_t offsets[5];
        locate(arguments, i, offsets);
        const T* const source = pointer_to<const T>(arguments.source) + offsets[0];
        T* const result = pointer_to<T>(arguments.result) + offsets[1];
        const uint64_t angles = offsets[2] + first_angles(arguments, offsets[3]) * arguments.table_stride;
        Value cosines[Pairs];
        Value sines[Pairs];
        load_angles(pointer_to<const float>(arguments.cosines) + angles, cosines);
        load_angles(pointer_to<const float>(arguments.sines) + angles, sines);
        Pack<T, length> packs[rope_heads][Interleaved ? 1 : 2];
#pragma unroll
        for (uint32_t h = 0; h < rope_heads; ++h) {
            if (offsets[4] + h >= arguments.heads)
                continue;
            const T* const head = source + h * arguments.source_stride;
            packs[h][0] = load_run<length>(head, 1);
            if constexpr (!Interleaved)
                packs[h][1] = load_run<length>(head + arguments.half, 1);
        }
#pragma unroll
        for (uint32_t h = 0; h < rope_heads; ++h) {
            if (offsets[4] + h >= arguments.heads)
                continue;
#pragma unroll
            for (uint32_t p = 0; p < Pairs; ++p) {
                T& first = packs[h][0].values[Interleaved ? 2 * p : p];
                T& second = packs[h][Interleaved ? 0 : 1].values[Interleaved ? 2 * p + 1 : p];
                const Value x = to_compute(first);
                const Value y = to_compute(second);
                first = convert<T>(x * cosines[p] - y * sines[p]);
                second = convert<T>(x * sines[p] + y * cosines[p]);
            }
            T* const head = result + h * arguments.result_stride;
            store_guarded(head, 0, length, packs[h][0]);
            if constexpr (!Interleaved)
                store_guarded(head + arguments.half, 0, length, packs[h][1]);
        }
    }
}
template <typename T, bool Interleaved, typename Arguments> TALLOW_INLINE void rope(const Arguments& arguments) {
    constexpr uint32_t pack = access_bytes / sizeof(T);
    if (arguments.is_packed)
        turn_pairs<T, Interleaved, Interleaved ? pack / 2 : pack>(arguments);
    else
        turn_pairs<T, Interleaved, 1>(arguments);
}

} // namespace tallow
