// Products of tiles of 16 by 16 numbers of two bytes by the lanes of one wave, on the matrix cores of each target, or
// of a depth of `matrix_depth`.
//
//     sums[row][column] += rows[row][depth] * columns[column][depth], added up over the depth
//
// Rows and sums are in registers, columns are read from shared memory. What a lane holds of a tile differs between the
// targets; a MatrixCore says it:
//
//   sums            how many sums a lane holds
//   lane_rows       to how many rows these belong; the lane's sums differ in the columns alone
//   run             how many sums are side by side in a row
//   row(h)          the row of row h of the lane
//   lane_row_of(i)  the row of the lane that sum i belongs to
//   column(i)       the column of sum i
//   first_partner   lanes whose indexes differ in the bits from this mask ..
//   last_partner    .. to this one hold the same rows
//   words           two elements each, how many a lane holds of a tile of rows
//   lane_row_of_word(w)  the row of the lane that word w belongs to
//   depth_of_word(w)     the depth of its first element
//   rows_of              sums, rounded, as rows whose depth was the columns: nothing or little moves between lanes
//   read, read_rows     columns, and rows, from a SharedTile of a row for each of them
//   read_transposed, read_rows_transposed   the same from one of a row for each depth, where `reads_transposed`
#pragma once

#include "async_copy.hpp"
#include "wave.hpp"

namespace tallow {

#if defined(TALLOW_MATRIX_CORES)
constexpr bool has_matrix_cores = true;
#else
constexpr bool has_matrix_cores = false;
#endif

constexpr uint32_t matrix_side = 16;
// The largest depth of one instruction, for rows that are no rounded sums.
#if defined(TALLOW_MATRIX_F16_16X16X32)
constexpr uint32_t matrix_depth = 32;
#else
constexpr uint32_t matrix_depth = matrix_side;
#endif

// A weight of attention is at most 1. Times 2**15 it still fits f16, which then holds weights down to 2**-29 as normal
// numbers. The division by the sum of the weights removes the factor.
template <typename T> constexpr float weight_exponent = is_same<T, f16> ? 15 : 0;

// Rows of `Length` elements in shared memory. Their chunks of 16 bytes are permuted, so that lanes that read the same
// chunk of rows side by side, or where `Spread` write one of every eighth row, meet different banks.
template <typename T, uint32_t Length, bool Spread> struct SharedTile {
    static constexpr uint32_t in_chunk = access_bytes / sizeof(T);
    static constexpr uint32_t chunks = Length / in_chunk;
    static constexpr uint32_t period = chunks < 8 ? chunks : 8;
    uint8_t* bytes;
    static TALLOW_INLINE uint32_t offset(uint32_t row, uint32_t element) {
        const uint32_t step = row / (8 / period) + (Spread ? row / 8 : 0);
        const uint32_t chunk = element / in_chunk ^ step % period;
        return (row * chunks + chunk) * access_bytes + element % in_chunk * static_cast<uint32_t>(sizeof(T));
    }
    TALLOW_INLINE uint8_t* at(uint32_t row, uint32_t element) const {
        return bytes + offset(row, element);
    }
};

#if defined(TALLOW_MATRIX_CORES_MMA)

// A product with eight columns, twice side by side.
template <typename T, uint32_t Depth = matrix_side> struct MatrixCore {
    static_assert(is_multiplicand<T>, "matrix cores multiply bf16 and f16");
    static constexpr uint32_t sums = 8;
    static constexpr uint32_t lane_rows = 2;
    static constexpr uint32_t run = 2;
    static constexpr uint32_t first_partner = 1;
    static constexpr uint32_t last_partner = 2;
    static constexpr uint32_t words = 4;
    static constexpr bool reads_transposed = true;
    struct Rows {
        uint32_t values[words];
    };
    using Columns = Rows;
    static TALLOW_INLINE uint32_t row(uint32_t h) {
        return lane_index() / 4 + 8 * h;
    }
    static constexpr TALLOW_INLINE uint32_t lane_row_of(uint32_t i) {
        return i / 2 % 2;
    }
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
    }
    static constexpr TALLOW_INLINE uint32_t lane_row_of_word(uint32_t w) {
        return w % 2;
    }
    static TALLOW_INLINE uint32_t depth_of_word(uint32_t w) {
        return w / 2 * 8 + lane_index() % 4 * 2;
    }
    static TALLOW_INLINE Rows rows_of(const float (&values)[sums]) {
        Rows rows;
#pragma unroll
        for (uint32_t w = 0; w < words; ++w)
            rows.values[w] = round_pair<T>(values[2 * w], values[2 * w + 1]);
        return rows;
    }
    template <typename Tile>
    static TALLOW_INLINE Columns read(const Tile& tile, uint32_t first_column, uint32_t first_depth) {
        return load<false>(part_address(tile, upper_half(), quarter(), first_column, first_depth));
    }
    template <typename Tile>
    static TALLOW_INLINE Columns read_transposed(const Tile& tile, uint32_t first_column, uint32_t first_depth) {
        return load<true>(part_address(tile, lower_half(), half(), first_depth, first_column));
    }
    template <typename Tile>
    static TALLOW_INLINE Rows read_rows(const Tile& tile, uint32_t first_row, uint32_t first_depth) {
        return load<false>(part_address(tile, lower_half(), half(), first_row, first_depth));
    }
    template <typename Tile>
    static TALLOW_INLINE Rows read_rows_transposed(const Tile& tile, uint32_t first_row, uint32_t first_depth) {
        return load<true>(part_address(tile, upper_half(), quarter(), first_depth, first_row));
    }
    static TALLOW_INLINE void multiply(float (&sums)[8], const Rows& rows, const Columns& columns) {
#pragma unroll
        for (uint32_t n = 0; n < 2; ++n)
            multiply_half(sums + 4 * n, rows.values, columns.values + 2 * n);
    }
    // The product with eight columns alone.
    static TALLOW_INLINE void multiply_half(float* d, const uint32_t (&a)[words], const uint32_t* b) {
#define TALLOW_MMA(instruction)                                                                                        \
    asm(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                 \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
        if constexpr (is_same<T, bf16>)
            TALLOW_MMA(TALLOW_MATRIX_BF16_16X8X16);
        else
            TALLOW_MMA(TALLOW_MATRIX_F16_16X8X16);
#undef TALLOW_MMA
    }

  private:
    // Where element `lane_element` of row `lane_row`, counted from others that are the same in all lanes, is. These are
    // multiples of 16 and become constants: the lane's own part of the address is computed once.
    template <typename Tile>
    static TALLOW_INLINE uint32_t part_address(const Tile& tile, uint32_t lane_row, uint32_t lane_element, uint32_t row,
                                               uint32_t element) {
        static_assert(Tile::period >= 4, "rows that differ by eight are permuted alike");
        const uint32_t own = static_cast<uint32_t>(tile.at(lane_row, lane_element) - tile.bytes);
        const uint32_t chunk = element / Tile::in_chunk;
        const uint32_t in_period = chunk % Tile::period;
        const uint32_t permuted = own ^ in_period * access_bytes;
        return shared_address(tile.bytes) + permuted + (row * Tile::chunks + chunk - in_period) * access_bytes;
    }
    // Of four parts of 8 by 8, whose rows the lanes point to, eight each: the row of a lane, and its first element,
    // where the second part is next to the first, or below it.
    static TALLOW_INLINE uint32_t upper_half() {
        return lane_index() / 16 * 8 + lane_index() % 8;
    }
    static TALLOW_INLINE uint32_t quarter() {
        return lane_index() / 8 % 2 * 8;
    }
    static TALLOW_INLINE uint32_t lower_half() {
        return lane_index() % 16;
    }
    static TALLOW_INLINE uint32_t half() {
        return lane_index() / 16 * 8;
    }
    template <bool Transposed> static TALLOW_INLINE Rows load(uint32_t address) {
        Rows loaded;
        uint32_t* const to = loaded.values;
        if constexpr (Transposed)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                         : "r"(address)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                         : "r"(address)
                         : "memory");
        return loaded;
    }
};

#elif defined(TALLOW_MATRIX_CORES)

#if defined(TALLOW_MATRIX_CORES_MFMA)
#define TALLOW_MULTIPLY(instruction, columns, rows, sums) instruction(columns, rows, sums, 0, 0, 0)
#elif defined(TALLOW_HAS_OPERAND_MODIFIERS)
// Neither operand is negated, nor are the sums, and none is reused.
#define TALLOW_MULTIPLY(instruction, columns, rows, sums)                                                              \
    instruction(false, columns, false, rows, 0, sums, false, false)
#else
#define TALLOW_MULTIPLY(instruction, columns, rows, sums) instruction(columns, rows, sums)
#endif

// GCC wants a type of its own for a vector whose length depends on a parameter.
template <typename Element, uint32_t Length> struct VectorOf {
    typedef Element Type __attribute__((vector_size(Length * sizeof(Element))));
};

// AMD's: of the product of columns and transposed rows a lane holds sums of one row. The depth is split among the
// lanes, unless operands are doubled: then each half of a wave holds all of it.
template <typename T, uint32_t Depth = matrix_side> struct MatrixCore {
    static_assert(is_multiplicand<T>, "matrix cores multiply bf16 and f16");
#if defined(TALLOW_HAS_DOUBLED_OPERANDS)
    static constexpr bool is_doubled = true;
#else
    static constexpr bool is_doubled = false;
#endif
    static constexpr uint32_t sums = 256 / wave_size;
    static constexpr uint32_t lane_rows = 1;
    static constexpr uint32_t run = is_doubled ? 1 : sums;
    static constexpr uint32_t first_partner = 16;
    static constexpr uint32_t last_partner = wave_size / 2;
    static constexpr uint32_t depth = is_doubled ? 16 : sums * Depth / matrix_side;
    static constexpr uint32_t words = depth / 2;
    static constexpr bool reads_transposed = false;
    struct Rows {
        uint32_t values[words];
    };
    using Columns = Rows;
    using Numbers = float __attribute__((vector_size(4 * sums)));
    static TALLOW_INLINE uint32_t row(uint32_t) {
        return lane_index() % 16;
    }
    static constexpr TALLOW_INLINE uint32_t lane_row_of(uint32_t) {
        return 0;
    }
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return is_doubled ? 2 * i + lane_index() / 16 : lane_index() / 16 * sums + i;
    }
    static constexpr TALLOW_INLINE uint32_t lane_row_of_word(uint32_t) {
        return 0;
    }
    static TALLOW_INLINE uint32_t depth_of_word(uint32_t w) {
        return first_depth() + 2 * w;
    }
    static TALLOW_INLINE Rows rows_of(const float (&values)[sums]) {
        static_assert(Depth == matrix_side, "a product has matrix_side columns");
        Rows rows;
        if constexpr (is_doubled) {
            // The lower half of the wave holds the even columns, the upper half the odd ones.
            const bool is_upper = lane_index() >= 16;
#pragma unroll
            for (uint32_t w = 0; w < words; w += 2) {
                const uint32_t own = round_pair<T>(values[w], values[w + 1]);
                const uint32_t other = shuffle_xor(own, 16);
                const uint32_t even = is_upper ? other : own;
                const uint32_t odd = is_upper ? own : other;
                rows.values[w] = (even & 0xffffu) | odd << 16;
                rows.values[w + 1] = even >> 16 | (odd & 0xffff0000u);
            }
        } else {
#pragma unroll
            for (uint32_t w = 0; w < words; ++w)
                rows.values[w] = round_pair<T>(values[2 * w], values[2 * w + 1]);
        }
        return rows;
    }
    template <typename Tile>
    static TALLOW_INLINE Columns read(const Tile& tile, uint32_t first_column, uint32_t depth_begin) {
        constexpr uint32_t bytes = words < 4 ? 4 * words : access_bytes;
        Columns columns;
#pragma unroll
        for (uint32_t w = 0; w < words; w += bytes / 4) {
            const auto part =
                load_registers<bytes>(tile.at(first_column + lane_index() % 16, depth_begin + depth_of_word(w)));
#pragma unroll
            for (uint32_t i = 0; i < bytes / 4; ++i)
                columns.values[w + i] = part.values[i];
        }
        return columns;
    }
    template <typename Tile>
    static TALLOW_INLINE Rows read_rows(const Tile& tile, uint32_t first_row, uint32_t depth_begin) {
        return read(tile, first_row, depth_begin);
    }
    static TALLOW_INLINE void multiply(float (&values)[sums], const Rows& rows, const Columns& columns) {
        Numbers d;
#pragma unroll
        for (uint32_t i = 0; i < sums; ++i)
            d[i] = values[i];
        if constexpr (Depth == matrix_side)
            d = multiply_side(columns, rows, d);
        else
            d = multiply_deep(columns, rows, d);
#pragma unroll
        for (uint32_t i = 0; i < sums; ++i)
            values[i] = d[i];
    }
    static TALLOW_INLINE Numbers multiply_deep([[maybe_unused]] const Columns& columns,
                                               [[maybe_unused]] const Rows& rows, Numbers d) {
#if defined(TALLOW_MATRIX_F16_16X16X32)
#if defined(TALLOW_AMD)
        using BrainFloats = typename VectorOf<__bf16, depth>::Type;
#else
        using BrainFloats = typename VectorOf<short, depth>::Type;
#endif
        using Halves = typename VectorOf<_Float16, depth>::Type;
        if constexpr (is_same<T, bf16>)
            d = TALLOW_MULTIPLY(TALLOW_MATRIX_BF16_16X16X32, bit_cast<BrainFloats>(columns),
                                bit_cast<BrainFloats>(rows), d);
        else
            d = TALLOW_MULTIPLY(TALLOW_MATRIX_F16_16X16X32, bit_cast<Halves>(columns), bit_cast<Halves>(rows), d);
#endif
        return d;
    }

  private:
    static TALLOW_INLINE Numbers multiply_side(const Columns& columns, const Rows& rows, Numbers d) {
#if !defined(TALLOW_MATRIX_BF16_16X16X16)
        // Of the instruction's depth of 32 one half is 0 in both operands.
        using Deep = MatrixCore<T, 2 * matrix_side>;
        typename Deep::Rows deep_columns{}, deep_rows{};
#pragma unroll
        for (uint32_t w = 0; w < words; ++w) {
            deep_columns.values[w] = columns.values[w];
            deep_rows.values[w] = rows.values[w];
        }
        return Deep::multiply_deep(deep_columns, deep_rows, d);
#else
        using Halves = typename VectorOf<_Float16, depth>::Type;
        using Bits = typename VectorOf<short, depth>::Type;
        if constexpr (is_same<T, bf16>) {
            d = TALLOW_MULTIPLY(TALLOW_MATRIX_BF16_16X16X16, bit_cast<Bits>(columns), bit_cast<Bits>(rows), d);
        } else {
#if defined(TALLOW_MATRIX_F16_16X16X16)
            d = TALLOW_MULTIPLY(TALLOW_MATRIX_F16_16X16X16, bit_cast<Halves>(columns), bit_cast<Halves>(rows), d);
#else
            // CDNA 2 takes subnormal operands of 16 bits for 0. Those of bf16 are subnormal in f32 too; those of f16
            // are all below 2**-14. So f16 is multiplied as f32, one element of each lane at a time.
            const auto column = bit_cast<Halves>(columns);
            const auto row = bit_cast<Halves>(rows);
#pragma unroll
            for (uint32_t i = 0; i < depth; ++i)
                d = TALLOW_MULTIPLY(TALLOW_MATRIX_F32_16X16X4, static_cast<float>(column[i]),
                                    static_cast<float>(row[i]), d);
#endif
        }
        return d;
#endif
    }
    static TALLOW_INLINE uint32_t first_depth() {
        return is_doubled ? 0 : lane_index() / 16 * depth;
    }
};

#endif

} // namespace tallow
