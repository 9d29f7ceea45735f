// Products of large matrices: a block makes a tile of the result, and brings the operands to shared memory in steps
// along the depth, the next step while it multiplies this one. Each operand is dense along one of its two dims, and
// each access of 16 bytes is inside of it or outside.
#pragma once

#include "math.hpp"
#include "memory.hpp"
#include "operand_loader.hpp"

namespace tallow {

// Where the tile of a block is. Blocks side by side make a square of tiles, so that they find in the cache what they
// share.
template <uint32_t Rows, uint32_t Columns> struct TileOfProduct {
    static constexpr uint32_t square_side = 8;
    uint32_t batch;
    uint32_t first_row;
    uint32_t first_column;

    template <typename Arguments> static TALLOW_INLINE uint32_t down(const Arguments& arguments) {
        return (arguments.m + Rows - 1) / Rows;
    }
    template <typename Arguments> static TALLOW_INLINE uint32_t across(const Arguments& arguments) {
        return (arguments.n + Columns - 1) / Columns;
    }
    template <typename Arguments> static TALLOW_INLINE uint32_t count(const Arguments& arguments) {
        return arguments.batches * down(arguments) * across(arguments);
    }
    template <typename Arguments> TALLOW_INLINE TileOfProduct(const Arguments& arguments, uint32_t number) {
        const uint32_t tiles_down = down(arguments);
        const uint32_t tiles_across = across(arguments);
        batch = number / (tiles_down * tiles_across);
        number -= batch * tiles_down * tiles_across;
        const uint32_t first = number / (square_side * tiles_across) * square_side;
        const uint32_t height = tiles_down - first < square_side ? tiles_down - first : square_side;
        number -= first * tiles_across;
        first_row = (first + number % height) * Rows;
        first_column = number / height * Columns;
    }
};

// Stores elements side by side of a row of the result.
template <typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void store_elements(const Arguments& arguments, uint32_t batch, uint32_t row, uint32_t column,
                                  const Pack<T, N>& elements) {
    if (row < arguments.m) {
        T* const line = pointer_to<T>(arguments.result) + (uint64_t{batch} * arguments.m + row) * arguments.n;
        store_guarded<N>(line, column, arguments.n, elements);
    }
}

// The sum of a column, and of the bias where there is one.
template <typename T, typename Arguments>
TALLOW_INLINE float with_bias(const Arguments& arguments, uint32_t column, float sum) {
    if (arguments.bias != 0 && column < arguments.n)
        sum += to_compute(pointer_to<const T>(arguments.bias)[column * arguments.bias_stride]);
    return sum;
}

// Adds the bias and stores sums side by side of a row of the result.
template <typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void store_sums(const Arguments& arguments, uint32_t batch, uint32_t row, uint32_t column,
                              const float (&sums)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        pack.values[i] = round_from<T>(with_bias<T>(arguments, column + i, sums[i]));
    store_elements(arguments, batch, row, column, pack);
}

// The loader of an operand of dot products to shared memory, where a thread makes one access of each step. Reads for
// lines outside of the operand go into sums that are not stored.
template <typename T, uint32_t Lines, bool IsDeep> struct DotOperand {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t depth = block_size * length / Lines;
    static constexpr bool is_async = false;
    static constexpr uint32_t part = 4;
    static constexpr uint32_t stride = dot_stride<Lines>;
    struct Shared {
        alignas(access_bytes) float values[depth * stride];
    };

    const T* next;
    uint64_t step;
    uint32_t depth_of_all;
    Registers<access_bytes> loaded{};

    // The line, and the index in the depth, of the thread's access.
    static TALLOW_INLINE uint32_t line() {
        return IsDeep ? thread_index() / (depth / length) : thread_index() % (Lines / length) * length;
    }
    static TALLOW_INLINE uint32_t depth_index() {
        return IsDeep ? thread_index() % (depth / length) * length : thread_index() / (Lines / length);
    }
    // Of `lines` lines from `first` on.
    TALLOW_INLINE DotOperand(const T* first, uint64_t row_stride, uint32_t lines, uint32_t depth_of_all)
        : step(IsDeep ? depth : depth * row_stride), depth_of_all(depth_of_all) {
        const uint32_t last = lines - (IsDeep ? 1 : length);
        const uint32_t near = line() < last ? line() : last;
        next = first + (IsDeep ? near * row_stride + depth_index() : depth_index() * row_stride + near);
    }
    // The step of the depth from `from` on, which are called one after the other.
    TALLOW_INLINE void load(uint32_t from) {
        loaded = {};
        if (from + depth_index() < depth_of_all)
            loaded = load_registers<access_bytes>(next);
        next += step;
    }
    TALLOW_INLINE void store(Shared& shared) const {
        float* const to = shared.values + depth_index() * stride + line();
#pragma unroll
        for (uint32_t e = 0; e < length; e += part) {
            Pack<float, part> pack;
#pragma unroll
            for (uint32_t j = 0; j < part; ++j)
                pack.values[j] = to_compute(take_element<T>(loaded, e + j));
            if constexpr (IsDeep) {
#pragma unroll
                for (uint32_t j = 0; j < part; ++j)
                    to[(e + j) * stride] = pack.values[j];
            } else {
                store_pack(to + e, pack);
            }
        }
    }
};

// By dot products: a thread makes `Side` by `Side` squares of four by four.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, uint32_t Side, typename Arguments>
TALLOW_INLINE void multiply_by_dots(const Arguments& arguments) {
    using Sums = DotSums<float, Side, Side>;
    using Lhs = DotOperand<T, Sums::rows, IsLhsDeep>;
    using Rhs = DotOperand<T, Sums::columns, IsRhsDeep>;
    using Operands = DotOperands<Lhs, Rhs>;
    using Slot = typename Operands::Slot;
    using SmallestShared = typename DotOperand<T, matmul_side, false>::Shared;
    const TileOfProduct<Sums::rows, Sums::columns> tile(arguments, block_index());
    // The launcher counts the smallest tiles.
    if (tile.batch >= arguments.batches)
        return;
    // Of the smallest tiles, which have most padding: all share it.
    Slot* const slots = reinterpret_cast<Slot*>(declared_memory<4 * sizeof(SmallestShared)>());
    static_assert(2 * sizeof(Slot) <= 4 * sizeof(SmallestShared), "two steps fit");
    uint64_t offsets[2];
    locate(arguments, tile.batch, offsets);
    const Lhs lhs(pointer_to<const T>(arguments.lhs) + offsets[0] + tile.first_row * arguments.lhs_stride_m,
                  IsLhsDeep ? arguments.lhs_stride_m : arguments.lhs_stride_k, arguments.m - tile.first_row,
                  arguments.k);
    const Rhs rhs(pointer_to<const T>(arguments.rhs) + offsets[1] + tile.first_column * arguments.rhs_stride_n,
                  IsRhsDeep ? arguments.rhs_stride_n : arguments.rhs_stride_k, arguments.n - tile.first_column,
                  arguments.k);
    Operands operands{lhs, rhs, slots};
    Sums sums;
    sums.add(operands, (arguments.k + Operands::depth - 1) / Operands::depth);
    sums.each_run([&](uint32_t row, uint32_t column, const float(&run)[Sums::run]) {
        store_sums<T>(arguments, tile.batch, tile.first_row + row, tile.first_column + column, run);
    });
}

// The operands of a tile, with their loaders.
template <typename Lhs, typename Rhs> struct SourcesOfTile {
    typename Lhs::Source lhs;
    typename Rhs::Source rhs;

    template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Arguments, typename Tile>
    static TALLOW_INLINE SourcesOfTile of(const Arguments& arguments, const Tile& tile) {
        uint64_t offsets[2];
        locate(arguments, tile.batch, offsets);
        const T* const lhs = pointer_to<const T>(arguments.lhs) + offsets[0];
        const T* const rhs = pointer_to<const T>(arguments.rhs) + offsets[1];
        return {{lhs + tile.first_row * arguments.lhs_stride_m,
                 IsLhsDeep ? arguments.lhs_stride_m : arguments.lhs_stride_k, arguments.m - tile.first_row,
                 arguments.k},
                {rhs + tile.first_column * arguments.rhs_stride_n,
                 IsRhsDeep ? arguments.rhs_stride_n : arguments.rhs_stride_k, arguments.n - tile.first_column,
                 arguments.k}};
    }
};

#if defined(TALLOW_MATRIX_CORES)

template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Arguments>
TALLOW_INLINE void multiply_on_cores(const Arguments& arguments) {
#if defined(TALLOW_MATRIX_CORES_MMA)
    using Waves = TileOfWaves<128, 256, 3, 2>;
#else
    using Waves = TileOfWaves<128, 128, 2, 2>;
#endif
    using Lhs = OperandLoader<T, Waves::rows, Waves::depth, IsLhsDeep, MatrixSource>;
    using Rhs = OperandLoader<T, Waves::columns, Waves::depth, IsRhsDeep, MatrixSource>;
    using Operands = CoreOperands<Lhs, Rhs, Waves>;
    bits128* const lhs_shared = tile_memory<Operands::bytes>();
    bits128* const rhs_shared = lhs_shared + Operands::lhs_bytes / sizeof(bits128);
    const TileOfProduct<Waves::rows, Waves::columns> tile(arguments, block_index());
    // The launcher counts the smallest tiles.
    if (tile.batch >= arguments.batches)
        return;
    const auto sources = SourcesOfTile<Lhs, Rhs>::template of<T, IsLhsDeep, IsRhsDeep>(arguments, tile);
    Operands operands{{lhs_shared, sources.lhs}, {rhs_shared, sources.rhs}};
    CoreSums<T, Waves> sums;
    sums.add(operands, (arguments.k + Waves::depth - 1) / Waves::depth);
    sums.each_run([&](uint32_t row, uint32_t column, const float(&run)[MatrixCore<T>::run]) {
        store_sums<T>(arguments, tile.batch, tile.first_row + row, tile.first_column + column, run);
    });
}

#endif

#if defined(TALLOW_HAS_WGMMA)

// Adds the bias to sums of 64 rows from `row` on, by 2 * N columns, and stores them.
template <typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void store_group(const Arguments& arguments, uint32_t batch, uint32_t row, uint32_t column,
                               const float (&sums)[N]) {
    // Four lanes have pairs of the same eights of columns; each stores one of four eights.
    const uint32_t own = lane_index() % 4;
    constexpr uint32_t eights = 4;
#pragma unroll
    for (uint32_t first = 0; first < N; first += 4 * eights)
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h) {
            Registers<access_bytes> words;
#pragma unroll
            for (uint32_t e = 0; e < eights; ++e) {
                const uint32_t i = first + 4 * e + 2 * h;
                const uint32_t pair = column + 2 * (first + 4 * e) + 2 * own;
                words.values[e] = round_pair<T>(with_bias<T>(arguments, pair, sums[i]),
                                                with_bias<T>(arguments, pair + 1, sums[i + 1]));
            }
            transpose_quads(words.values);
            store_elements(arguments, batch, row + MatrixCore<T>::row(h), column + 2 * first + 8 * own,
                           bit_cast<Pack<T, 8>>(words));
        }
}

// A block of two groups computes 128 rows by this many columns.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, uint32_t Columns, typename Arguments>
TALLOW_INLINE void multiply_by_groups(const Arguments& arguments) {
    using Sums = GroupSums<T, IsLhsDeep, IsRhsDeep, groups_per_block * group_rows, Columns>;
    using Lhs = GroupLoader<T, Sums::rows, IsLhsDeep, MatrixSource>;
    using Rhs = GroupLoader<T, Sums::columns, IsRhsDeep, MatrixSource>;
    using Operands = GroupOperands<Lhs, Rhs, 4>;
    const uint32_t shared = shared_address(tile_memory<Operands::bytes>());
    const TileOfProduct<Sums::rows, Sums::columns> tile(arguments, block_index());
    // The launcher counts the smallest tiles.
    if (tile.batch >= arguments.batches)
        return;
    const auto sources = SourcesOfTile<Lhs, Rhs>::template of<T, IsLhsDeep, IsRhsDeep>(arguments, tile);
    Operands operands{{shared, sources.lhs}, {shared + Operands::lhs_bytes, sources.rhs}};
    Sums sums;
    sums.add(operands, (arguments.k + Operands::depth - 1) / Operands::depth);
    store_group<T>(arguments, tile.batch, tile.first_row + wave_index() * matrix_side, tile.first_column, sums.sums);
}

#endif

// Products of floats. The launcher counts tiles of 64 by 64; larger ones would leave multiprocessors without any where
// these are few.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Arguments>
TALLOW_INLINE void multiply_floats(const Arguments& arguments) {
    constexpr uint32_t few_tiles = 1024;
    if (grid_blocks() < few_tiles)
        multiply_by_dots<T, IsLhsDeep, IsRhsDeep, 1>(arguments);
    else
        multiply_by_dots<T, IsLhsDeep, IsRhsDeep, 2>(arguments);
}

// Products of f16 and bf16, of which the launcher counts tiles of 128 by 128, or where these are few, of half the
// columns.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Arguments>
TALLOW_INLINE void multiply_tiles(const Arguments& arguments) {
#if defined(TALLOW_HAS_WGMMA)
    constexpr uint32_t few_tiles = 256;
    if (grid_blocks() > TileOfProduct<128, 128>::count(arguments))
        multiply_by_groups<T, IsLhsDeep, IsRhsDeep, 64>(arguments);
    else if (grid_blocks() < few_tiles)
        multiply_by_groups<T, IsLhsDeep, IsRhsDeep, 128>(arguments);
    else
        multiply_by_groups<T, IsLhsDeep, IsRhsDeep, 256>(arguments);
#elif defined(TALLOW_MATRIX_CORES)
    multiply_on_cores<T, IsLhsDeep, IsRhsDeep>(arguments);
#else
    multiply_by_dots<T, IsLhsDeep, IsRhsDeep, 2>(arguments);
#endif
}

} // namespace tallow
