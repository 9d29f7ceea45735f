// Products of bf16 with a matrix that lies in tiles, because many products have it one after the other.
#pragma once

#include "pair_product.hpp"

#if defined(TALLOW_PAIRS)
namespace tallow {

// The number of pairs of `terms` terms of 16 rows or columns, padded to full tiles.
TALLOW_INLINE uint64_t pairs_of_lines(uint64_t terms) {
    return (terms + 2 * pair_side - 1) / (2 * pair_side) * tile_pairs;
}

// Rows on the left, in tiles of as many rows as each other: the time of a product depends on them.
struct RowTiles {
    uint64_t rows;
    uint64_t terms;
    uint32_t* pairs;
    uint32_t count = static_cast<uint32_t>((rows + pair_side - 1) / pair_side);
    uint32_t tile_rows = static_cast<uint32_t>((rows + count - 1) / count);

    // The pairs of a row of tiles.
    TALLOW_INLINE uint64_t step() const {
        return pairs_of_lines(terms) / pair_side * tile_rows;
    }
    TALLOW_INLINE void take(const bf16* source) const {
        for (uint64_t row = 0; row < rows; ++row) {
            uint32_t* target = pairs + row / tile_rows * step() + row % tile_rows * pair_side;
            for (uint64_t term = 0; term < terms; term += 2 * pair_side, target += tile_rows * pair_side) {
                const Pairs line =
                    load_numbers<Pairs>(source + row * terms + term, static_cast<uint32_t>(terms - term));
                __builtin_memcpy(target, &line, sizeof line);
            }
        }
    }
};

template <uint32_t Rows, uint32_t Columns>
__attribute__((noinline)) void multiply_packed_tiles(const TileBlock& block) {
    multiply_tiles_of_pairs<Rows, Columns, false>(block);
}

// Calls finish(row, column, sums) for the 16 sums of each row in each column of tiles from `begin` to `end`.
template <typename Finish>
TALLOW_INLINE void multiply_packed(const RowTiles& lhs, const uint32_t* rhs, uint64_t begin, uint64_t end,
                                   const Finish& finish) {
    const UsesTiles tiles(lhs.tile_rows);
    const uint64_t step = pairs_of_lines(lhs.terms);
    // A block has four tiles: many rows read a column once.
    constexpr uint32_t max_tiles = 4;
    const uint32_t tall = lhs.count > 2 ? max_tiles : lhs.count, wide = max_tiles / tall;
    alignas(64) float sums[max_tiles * tile_pairs];
    for (uint64_t column = begin; column < end; column += wide) {
        const auto columns = static_cast<uint32_t>(end - column < wide ? end - column : wide);
        for (uint32_t tile = 0; tile < lhs.count; tile += tall) {
            const uint32_t rows = lhs.count - tile < tall ? lhs.count - tile : tall;
            const uint64_t row = uint64_t{tile} * lhs.tile_rows;
            const TileBlock block{
                lhs.pairs + tile * lhs.step(),           rhs + column * step, lhs.step(), step,
                static_cast<uint32_t>(step / pair_side), lhs.tile_rows,       sums,       wide * pair_side};
            switch (rows * max_tiles + columns) {
            case max_tiles + 1:
                multiply_packed_tiles<1, 1>(block);
                break;
            case max_tiles + 2:
                multiply_packed_tiles<1, 2>(block);
                break;
            case max_tiles + 3:
                multiply_packed_tiles<1, 3>(block);
                break;
            case max_tiles + 4:
                multiply_packed_tiles<1, 4>(block);
                break;
            case 2 * max_tiles + 1:
                multiply_packed_tiles<2, 1>(block);
                break;
            case 2 * max_tiles + 2:
                multiply_packed_tiles<2, 2>(block);
                break;
            case 3 * max_tiles + 1:
                multiply_packed_tiles<3, 1>(block);
                break;
            default:
                multiply_packed_tiles<4, 1>(block);
            }
            const uint64_t last = row + rows * lhs.tile_rows;
            for (uint64_t i = row; i < last && i < lhs.rows; ++i)
                for (uint32_t j = 0; j < columns; ++j)
                    finish(i, column + j, sums + (i - row) * block.stride + j * pair_side);
        }
    }
}

// Rounds up to 16 sums.
TALLOW_INLINE void round_sums(uint64_t count, bf16* result, const float* sums) {
    const auto round = [](float x) { return round_from<bf16>(x); };
    if (count >= pair_side)
        map_span(pair_side, round, result, sums);
    else
        map_span(count, round, result, sums);
}

} // namespace tallow
#endif
