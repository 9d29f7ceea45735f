// Weights in blocks: decoding.
#pragma once

#include "blocks.hpp"
#include "math.hpp"

namespace tallow {

// N weights from place i on, a multiple of N, in a block; N is 4 or 8.
template <typename Block, uint32_t N> TALLOW_INLINE void decode(const Block& block, uint32_t i, float (&weights)[N]) {
    const float scale = block.scale(i / Block::group);
    float offset = 0.0f;
    if constexpr (Block::has_offset)
        offset = block.offset(i / Block::group);
#pragma unroll
    for (uint32_t quad = 0; quad < N; quad += 4) {
        const uint32_t quads = block.quads(block.template load<1>(i + quad), 0, i + quad);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
            weights[quad + k] = quant_of<Block::bias>(quads, k) * scale;
            if constexpr (Block::has_offset)
                weights[quad + k] += offset;
        }
    }
}

// Thread by thread an access of the result, some of which are under way at once.
template <typename Block, typename T, typename Arguments> TALLOW_INLINE void dequantize(const Arguments& arguments) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    constexpr uint32_t packs = decoded_packs;
    const Block* const blocks = pointer_to<const Block>(arguments.blocks);
    const uint64_t step = static_cast<uint64_t>(grid_blocks()) * block_size * length * packs;
    uint64_t first = (static_cast<uint64_t>(block_index()) * block_size * packs + thread_index()) * length;
    for (; first < arguments.count; first += step) {
        float weights[packs][length];
#pragma unroll
        for (uint32_t pack = 0; pack < packs; ++pack) {
            uint64_t place = first + pack * block_size * length;
            if constexpr (Block::elements == 1) {
#pragma unroll
                for (uint32_t k = 0; k < length; ++k)
                    weights[pack][k] = place + k < arguments.count ? blocks[place + k].quant(0) : 0.0f;
            } else {
                place = place < arguments.count ? place : first;
                decode(blocks[place / Block::elements], static_cast<uint32_t>(place % Block::elements), weights[pack]);
            }
        }
#pragma unroll
        for (uint32_t pack = 0; pack < packs; ++pack) {
            Pack<T, length> rounded;
#pragma unroll
            for (uint32_t k = 0; k < length; ++k)
                rounded.values[k] = round_from<T>(weights[pack][k]);
            const uint64_t place = first + pack * block_size * length;
            store_guarded(pointer_to<T>(arguments.result), place, arguments.count, rounded);
        }
    }
}

template <uint32_t N, typename T> TALLOW_INLINE void load_floats(const T* pointer, float (&values)[N]) {
    constexpr uint32_t length = N < access_bytes / sizeof(T) ? N : access_bytes / sizeof(T);
#pragma unroll
    for (uint32_t begin = 0; begin < N; begin += length) {
        const Pack<T, length> pack = load_whole<length>(pointer + begin);
#pragma unroll
        for (uint32_t k = 0; k < length; ++k)
            values[begin + k] = to_compute(pack.values[k]);
    }
}

} // namespace tallow
