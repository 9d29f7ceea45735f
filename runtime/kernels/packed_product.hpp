// Products of bf16 with a matrix that lies in tiles, because many products have it one after the other.
#pragma once

#include "pair_product.hpp"

#if defined(TALLOW_PAIRS)
namespace tallow {

// The pairs of so many terms of 16 rows or columns, in whole tiles.
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

    // How many pairs there is room for.
    TALLOW_INLINE uint64_t size() const {
        return count * pairs_of_lines(terms);
    }
    TALLOW_INLINE void take(const bf16* source) const {
        const int64_t steps[2] = {static_cast<int64_t>(terms), 1};
        for (uint64_t row = 0, tile = 0; row < rows; row += tile_rows, ++tile)
            take_pairs<0, true>(source + row * terms, steps,
                                static_cast<uint32_t>(rows - row < tile_rows ? rows - row : tile_rows),
                                static_cast<uint32_t>(terms), pairs + tile * pairs_of_lines(terms));
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
    const bool is_one_tile = lhs.count == 1;
    constexpr uint32_t most_columns = 4;
    alignas(64) float sums[2 * pair_side * most_columns * pair_side];
    for (uint64_t column = begin; column < end;) {
        const uint64_t most = is_one_tile ? most_columns : 2;
        const auto columns = static_cast<uint32_t>(end - column < most ? end - column : most);
        for (uint32_t tile = 0; tile < lhs.count; tile += 2) {
            const uint64_t row = uint64_t{tile} * lhs.tile_rows;
            const TileBlock block{lhs.pairs + tile * step,
                                  rhs + column * step,
                                  step,
                                  step,
                                  static_cast<uint32_t>(step / pair_side),
                                  lhs.tile_rows,
                                  sums,
                                  most_columns * pair_side};
            const bool is_pair = tile + 1 < lhs.count;
            switch (columns) {
            case 1:
                is_pair ? multiply_packed_tiles<2, 1>(block) : multiply_packed_tiles<1, 1>(block);
                break;
            case 2:
                is_pair ? multiply_packed_tiles<2, 2>(block) : multiply_packed_tiles<1, 2>(block);
                break;
            case 3:
                multiply_packed_tiles<1, 3>(block);
                break;
            default:
                multiply_packed_tiles<1, 4>(block);
            }
            const uint64_t last = row + (is_pair ? 2 : 1) * lhs.tile_rows;
            for (uint64_t i = row; i < last && i < lhs.rows; ++i)
                for (uint32_t j = 0; j < columns; ++j)
                    finish(i, column + j, sums + (i - row) * block.stride + j * pair_side);
        }
        column += columns;
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
