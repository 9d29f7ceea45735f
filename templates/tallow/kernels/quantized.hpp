// Weights in blocks: decoding, and products with few rows.
#pragma once

#include "blocks.hpp"
#include "math.hpp"
#include "wave.hpp"

namespace tallow {

// N weights from place i on, a multiple of N, in a block; N is 4 or 8.
template <typename Block, uint32_t N> TALLOW_INLINE void decode(const Block& block, uint32_t i, float (&weights)[N]) {
    const float scale = block.scale(i / Block::group);
    float offset = 0.0f;
    if constexpr (Block::has_offset)
        offset = block.offset(i / Block::group);
#pragma unroll
    for (uint32_t quad = 0; quad < N; quad += 4) {
        const uint32_t quads = block.quads(i + quad);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
            weights[quad + k] = quant_of<Block::bias>(quads, k) * scale;
            if constexpr (Block::has_offset)
                weights[quad + k] += offset;
        }
    }
}

// Thread by thread an access of the result.
template <typename Block, typename T, typename Arguments> TALLOW_INLINE void dequantize(const Arguments& arguments) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    const Block* const blocks = pointer_to<const Block>(arguments.blocks);
    const uint64_t step = static_cast<uint64_t>(grid_blocks()) * block_size * length;
    uint64_t first = (static_cast<uint64_t>(block_index()) * block_size + thread_index()) * length;
    for (; first < arguments.count; first += step) {
        float weights[length];
        if constexpr (Block::elements == 1) {
#pragma unroll
            for (uint32_t k = 0; k < length; ++k)
                weights[k] = first + k < arguments.count ? blocks[first + k].quant(0) : 0.0f;
        } else {
            decode(blocks[first / Block::elements], static_cast<uint32_t>(first % Block::elements), weights);
        }
        Pack<T, length> pack;
#pragma unroll
        for (uint32_t k = 0; k < length; ++k)
            pack.values[k] = round_from<T>(weights[k]);
        store_guarded(pointer_to<T>(arguments.result), first, arguments.count, pack);
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

// The weights of a lane: 16 of a row, in two runs whose quants share bytes. Floats have no blocks; 16 of them stand for
// one.
template <typename Block> struct LaneWeights {
    static constexpr uint32_t elements = Block::elements;
    static constexpr uint32_t apart = Block::apart;
    static TALLOW_INLINE void load(const Block* row, uint32_t block, uint32_t i, float (&weights)[8]) {
        decode(row[block], i, weights);
    }
};
template <typename Block> struct LaneFloats {
    static constexpr uint32_t elements = 16;
    static constexpr uint32_t apart = 8;
    static TALLOW_INLINE void load(const Block* row, uint32_t block, uint32_t i, float (&weights)[8]) {
        load_floats(&row[block * elements + i].value, weights);
    }
};
template <> struct LaneWeights<BlockF32> : LaneFloats<BlockF32> {};
template <> struct LaneWeights<BlockF16> : LaneFloats<BlockF16> {};
template <> struct LaneWeights<BlockBF16> : LaneFloats<BlockBF16> {};

// A wave has two rows of weights at a time, or one where it holds more of x than registers have room for. Sums have one
// order, whatever else it computes: fma after fma in each lane, then the lanes by halves.

template <typename Block, uint32_t Held, typename Arguments>
TALLOW_INLINE void block_product(const Arguments& arguments) {
    using Weights = LaneWeights<Block>;
    constexpr uint32_t product_rows = Held == 1 ? 2 : 1;
    constexpr uint32_t run = 8;
    constexpr uint32_t per_block = Weights::elements / (2 * run);
    constexpr uint32_t side_by_side = Weights::apart / run;
    const uint32_t row_blocks = arguments.hidden / Block::elements;
    const uint32_t units = arguments.hidden / (2 * run);
    const uint32_t groups = (arguments.rows + product_rows - 1) / product_rows;
    const float* const x = pointer_to<const float>(arguments.x);
    const uint32_t waves = grid_blocks() * waves_per_block;
    for (uint32_t group = block_index() * waves_per_block + wave_index(); group < groups; group += waves) {
        const Block* rows[product_rows];
#pragma unroll
        for (uint32_t r = 0; r < product_rows; ++r) {
            // Behind the last row it is the last one again.
            const uint32_t row = group * product_rows + r;
            rows[r] = pointer_to<const Block>(arguments.blocks) +
                      static_cast<uint64_t>(row < arguments.rows ? row : arguments.rows - 1) * row_blocks;
        }
        float sums[product_rows][Held] = {};
#pragma unroll 1
        for (uint32_t unit = lane_index(); unit < units; unit += wave_size) {
            const uint32_t block = unit / per_block;
            const uint32_t place = unit % per_block;
            const uint32_t i = 2 * Weights::apart * (place / side_by_side) + run * (place % side_by_side);
            float weights[product_rows][2][run];
#pragma unroll
            for (uint32_t r = 0; r < product_rows; ++r) {
                Weights::load(rows[r], block, i, weights[r][0]);
                Weights::load(rows[r], block, i + Weights::apart, weights[r][1]);
            }
            const float* const first = x + (static_cast<uint64_t>(block) * Weights::elements + i);
#pragma unroll
            for (uint32_t h = 0; h < Held; ++h) {
                const uint32_t held = Held == 1 || h < arguments.x_rows ? h : 0;
#pragma unroll
                for (uint32_t half = 0; half < 2; ++half) {
                    float values[run];
                    load_floats(first + held * arguments.x_stride + half * Weights::apart, values);
#pragma unroll
                    for (uint32_t k = 0; k < run; ++k)
#pragma unroll
                        for (uint32_t r = 0; r < product_rows; ++r)
                            sums[r][h] = multiply_add(weights[r][half][k], values[k], sums[r][h]);
                }
            }
        }
#pragma unroll
        for (uint32_t r = 0; r < product_rows; ++r) {
#pragma unroll
            for (uint32_t h = 0; h < Held; ++h) {
                float sum = sums[r][h];
#pragma unroll
                for (uint32_t mask = wave_size / 2; mask > 0; mask /= 2)
                    sum += shuffle_xor(sum, mask);
                const uint32_t row = group * product_rows + r;
                if (lane_index() == 0 && row < arguments.rows && h < arguments.x_rows)
                    pointer_to<float>(arguments.result)[static_cast<uint64_t>(h) * arguments.rows + row] = sum;
            }
        }
    }
}

} // namespace tallow
