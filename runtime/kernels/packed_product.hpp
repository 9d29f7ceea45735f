// Products of bf16 with a matrix that lies in tiles, because many products have it one after the other.
#pragma once

#include "pair_product.hpp"

#if defined(TALLOW_PAIRS)
namespace tallow {

// The number of pairs of `terms` terms of 16 rows or columns, padded to full tiles.
TALLOW_INLINE uint64_t pairs_of_lines(uint64_t terms) {
    return (terms + 2 * pair_side - 1) / (2 * pair_side) * tile_pairs;
}

// Rows on the left, in tiles of as many rows as each other: the time of a product depends on them. Rows that fill their
// tiles are read where they are, so that no thread waits for one that arranges them.
struct RowTiles {
    uint64_t rows;
    uint64_t terms;
    uint32_t count = static_cast<uint32_t>((rows + pair_side - 1) / pair_side);
    uint32_t tile_rows = static_cast<uint32_t>((rows + count - 1) / count);
    bool are_full = rows == uint64_t{count} * tile_rows && terms % (2 * pair_side) == 0;
    const uint32_t* pairs = nullptr;

    // `memory` has space for all tiles.
    TALLOW_INLINE RowTiles(uint64_t rows, uint64_t terms, const bf16* source, uint32_t* memory)
        : rows(rows), terms(terms), pairs(are_full ? reinterpret_cast<const uint32_t*>(source) : memory) {
        for (uint64_t row = 0; row < rows && !are_full; ++row) {
            uint32_t* target = memory + row / tile_rows * step() + row % tile_rows * pair_side;
            for (uint64_t term = 0; term < terms; term += 2 * pair_side, target += tile_rows * pair_side) {
                const Pairs line =
                    load_numbers<Pairs>(source + row * terms + term, static_cast<uint32_t>(terms - term));
                __builtin_memcpy(target, &line, sizeof line);
            }
        }
    }
    // The pairs of a row of tiles.
    TALLOW_INLINE uint64_t step() const {
        return pairs_of_lines(terms) / pair_side * tile_rows;
    }
    // The strides in pairs of rows, and of the tiles of a row of them.
    TALLOW_INLINE uint64_t row_step() const {
        return are_full ? terms / 2 : pair_side;
    }
    TALLOW_INLINE uint64_t tile_step() const {
        return are_full ? pair_side : uint64_t{tile_rows} * pair_side;
    }
};

template <uint32_t Rows, uint32_t Columns>
__attribute__((noinline)) void multiply_packed_tiles(const TileBlock& block) {
    multiply_tiles_of_pairs<Rows, Columns, false>(block);
}

// Rounds sums of tiles, none of which is subnormal: the instruction, which machines with tiles have, makes such ones
// zero.
TALLOW_INLINE void round_sums(const float* sums, bf16* result) {
    Vector<float, sizeof(float) * pair_side> numbers;
    Vector<uint16_t, sizeof(uint16_t) * pair_side> rounded;
    __builtin_memcpy(&numbers, sums, sizeof numbers);
    asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(numbers));
    __builtin_memcpy(result, &rounded, sizeof rounded);
}

struct RowRange {
    uint64_t begin;
    uint64_t count;
};

// Tiles of rows that have a column one after the other: the nearest cache holds these.
constexpr uint32_t near_row_tiles = 4;

// Writes products of a few tiles of rows, from tile number `tile` on, with `Columns` columns of tiles; returns which
// rows these are.
template <uint32_t Columns, typename Result>
TALLOW_INLINE RowRange multiply_packed(const RowTiles& lhs, uint32_t tile, const uint32_t* rhs, const Result& result) {
    // A block has four tiles of sums.
    const uint32_t tall = lhs.count > 1 ? 2 : 1, wide = 4 / tall;
    const uint64_t step = pairs_of_lines(lhs.terms), begin = uint64_t{tile} * lhs.tile_rows;
    const uint32_t last = lhs.count - tile < near_row_tiles ? lhs.count : tile + near_row_tiles;
    const uint64_t end = uint64_t{last} * lhs.tile_rows < lhs.rows ? uint64_t{last} * lhs.tile_rows : lhs.rows;
    alignas(64) float sums[4 * tile_pairs];
    for (uint32_t column = 0; column < Columns; column += wide)
        for (uint32_t first = tile; first < last; first += tall) {
            const uint32_t width = Columns - column < wide ? Columns - column : wide;
            const uint32_t height = last - first < tall ? last - first : tall;
            const TileBlock block{lhs.pairs + first * lhs.step(),
                                  rhs + column * step,
                                  lhs.step(),
                                  step,
                                  static_cast<uint32_t>(step / pair_side),
                                  lhs.tile_rows,
                                  sums,
                                  wide * pair_side,
                                  lhs.row_step(),
                                  lhs.tile_step()};
            switch (height * 4 + width) {
            case 4 + 1:
                multiply_packed_tiles<1, 1>(block);
                break;
            case 4 + 2:
                multiply_packed_tiles<1, 2>(block);
                break;
            case 4 + 3:
                multiply_packed_tiles<1, 3>(block);
                break;
            case 4 + 4:
                multiply_packed_tiles<1, 4>(block);
                break;
            case 8 + 1:
                multiply_packed_tiles<2, 1>(block);
                break;
            default:
                multiply_packed_tiles<2, 2>(block);
            }
            const uint64_t row = uint64_t{first} * lhs.tile_rows, full = uint64_t{height} * lhs.tile_rows;
            const uint64_t rows = end - row < full ? end - row : full;
            for (uint64_t i = 0; i < rows; ++i)
                for (uint32_t j = 0; j < width; ++j)
                    round_sums(sums + i * block.stride + j * pair_side, result.at(row - begin + i, column + j));
        }
    return {begin, end - begin};
}

} // namespace tallow
#endif
