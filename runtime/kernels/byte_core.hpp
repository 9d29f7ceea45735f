// Products of tiles of bytes by the lanes of one wave, on the matrix cores of each target, or without them:
//
//     sums[row][column] += rows[row][depth] * columns[column][depth], added up over the depth
//
// A tile has 16 rows, `columns` columns, and a depth of 16 bytes or twice that, in chunks of 16. What a lane holds of
// it differs between the targets:
//
//   sums            how many sums a lane holds
//   lane_rows       to how many rows these belong
//   row(h)          the row of row h of the lane
//   lane_row_of(i)  the row of the lane that sum i belongs to
//   column(i)       the column of sum i
//   words           four elements each, how many a lane holds of a chunk of a row or a column; side by side
//   first_depth()   the depth of the first one
//   lane_columns    of how many columns a lane holds words
//   lane_column(k)  column k of the lane
//   alike           how many lanes hold the same rows
//   index_of_alike(), lane_of_alike(index)   the index of a lane among those, and the lane with an index
#pragma once

#include "matrix_core.hpp"
#include "quads.hpp"

namespace tallow {

#if defined(TALLOW_MATRIX_CORES_MMA)

// Products of a depth of 16 and of 32.
struct ByteCore {
    static constexpr uint32_t columns = 8;
    static constexpr uint32_t sums = 4;
    static constexpr uint32_t lane_rows = 2;
    static constexpr uint32_t words = 1;
    static constexpr uint32_t lane_columns = 1;
    static TALLOW_INLINE uint32_t row(uint32_t h) {
        return lane_index() / 4 + 8 * h;
    }
    static constexpr TALLOW_INLINE uint32_t lane_row_of(uint32_t i) {
        return i / 2;
    }
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return lane_index() % 4 * 2 + i % 2;
    }
    static TALLOW_INLINE uint32_t first_depth() {
        return lane_index() % 4 * 4;
    }
    static TALLOW_INLINE uint32_t lane_column(uint32_t) {
        return lane_index() / 4;
    }
    static constexpr uint32_t alike = 4;
    static TALLOW_INLINE uint32_t index_of_alike() {
        return lane_index() % 4;
    }
    static TALLOW_INLINE uint32_t lane_of_alike(uint32_t index) {
        return lane_index() / 4 * 4 + index;
    }
    template <uint32_t Chunks>
    static TALLOW_INLINE void multiply(int (&d)[sums], const uint32_t (&rows)[lane_rows][Chunks][words],
                                       const uint32_t (&own)[lane_columns][Chunks][words]) {
        if constexpr (Chunks == 1)
            asm(TALLOW_MATRIX_I8_16X8X16 " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                : "r"(rows[0][0][0]), "r"(rows[1][0][0]), "r"(own[0][0][0]));
        else
            asm(TALLOW_MATRIX_I8_16X8X32 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                : "r"(rows[0][0][0]), "r"(rows[1][0][0]), "r"(rows[0][1][0]), "r"(rows[1][1][0]), "r"(own[0][0][0]),
                  "r"(own[0][1][0]));
    }
};

#else

// The rows where a lane has sums of one, and lanes side by side have those of rows side by side.
struct ByteRows {
    static constexpr uint32_t lane_rows = 1;
    static constexpr uint32_t alike = wave_size / matrix_side;
    static TALLOW_INLINE uint32_t row(uint32_t) {
        return lane_index() % matrix_side;
    }
    static constexpr TALLOW_INLINE uint32_t lane_row_of(uint32_t) {
        return 0;
    }
    static TALLOW_INLINE uint32_t index_of_alike() {
        return lane_index() / matrix_side;
    }
    static TALLOW_INLINE uint32_t lane_of_alike(uint32_t index) {
        return lane_index() % matrix_side + matrix_side * index;
    }
};

#if defined(TALLOW_MATRIX_CORES)

// AMD's: of the product of columns and transposed rows a lane holds sums of one row. The depth is split among the
// lanes, unless operands are doubled: then each half of a wave holds all of it.
struct ByteCore : ByteRows {
#if defined(TALLOW_HAS_DOUBLED_OPERANDS)
    static constexpr bool is_doubled = true;
#else
    static constexpr bool is_doubled = false;
#endif
    static constexpr uint32_t columns = 16;
    static constexpr uint32_t sums = 256 / wave_size;
    static constexpr uint32_t words = is_doubled ? 4 : sums / 4;
    static constexpr uint32_t lane_columns = 1;
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return is_doubled ? 2 * i + lane_index() / 16 : lane_index() / 16 * sums + i;
    }
    static TALLOW_INLINE uint32_t first_depth() {
        return is_doubled ? 0 : lane_index() / 16 * sums;
    }
    static TALLOW_INLINE uint32_t lane_column(uint32_t) {
        return lane_index() % 16;
    }
    template <uint32_t Chunks>
    static TALLOW_INLINE void multiply(int (&values)[sums], const uint32_t (&rows)[lane_rows][Chunks][words],
                                       const uint32_t (&own)[lane_columns][Chunks][words]) {
        using Sums = int __attribute__((vector_size(4 * sums)));
        Sums d;
#pragma unroll
        for (uint32_t i = 0; i < sums; ++i)
            d[i] = values[i];
#if defined(TALLOW_MATRIX_I8_16X16X32)
        // A depth of 32 at once: where there is a chunk, the other one is 0.
        d = TALLOW_MULTIPLY(TALLOW_MATRIX_I8_16X16X32, both(own[0]), both(rows[0]), d);
#elif defined(TALLOW_MATRIX_I8_16X16X64)
        d = TALLOW_MATRIX_I8_16X16X64(true, padded(own[0]), true, padded(rows[0]), d, false, false);
#else
#pragma unroll
        for (uint32_t chunk = 0; chunk < Chunks; ++chunk) {
#if defined(TALLOW_MATRIX_CORES_MFMA)
            d = TALLOW_MULTIPLY(TALLOW_MATRIX_I8_16X16X16, static_cast<int>(own[0][chunk][0]),
                                static_cast<int>(rows[0][chunk][0]), d);
#else
            using Words = int __attribute__((vector_size(4 * words)));
            Words column;
            Words row;
#pragma unroll
            for (uint32_t w = 0; w < words; ++w) {
                column[w] = static_cast<int>(own[0][chunk][w]);
                row[w] = static_cast<int>(rows[0][chunk][w]);
            }
            d = TALLOW_MATRIX_I8_16X16X16(true, column, true, row, d, false);
#endif
        }
#endif
#pragma unroll
        for (uint32_t i = 0; i < sums; ++i)
            values[i] = d[i];
    }

  private:
    template <uint32_t Chunks> static TALLOW_INLINE long both(const uint32_t (&chunks)[Chunks][words]) {
        return static_cast<long>(chunks[0][0] | (Chunks == 1 ? 0 : uint64_t{chunks[Chunks - 1][0]} << 32));
    }
    // Chunks as an operand of a depth of 64; beyond them it is 0.
    using DeepWords = int __attribute__((vector_size(32)));
    template <uint32_t Chunks> static TALLOW_INLINE DeepWords padded(const uint32_t (&chunks)[Chunks][words]) {
        static_assert(sizeof(chunks) <= sizeof(DeepWords), "one instruction multiplies all chunks");
        DeepWords operand{};
#pragma unroll
        for (uint32_t w = 0; w < Chunks * words; ++w)
            operand[w] = static_cast<int>(chunks[w / words][w % words]);
        return operand;
    }
};

#else

// Without matrix cores: a lane multiplies a row by some columns.
struct ByteCore : ByteRows {
    static constexpr uint32_t columns = 8;
    static constexpr uint32_t sums = matrix_side * columns / wave_size;
    static constexpr uint32_t words = 4;
    static constexpr uint32_t lane_columns = sums;
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return lane_index() / matrix_side * sums + i;
    }
    static TALLOW_INLINE uint32_t first_depth() {
        return 0;
    }
    static TALLOW_INLINE uint32_t lane_column(uint32_t k) {
        return column(k);
    }
    template <uint32_t Chunks>
    static TALLOW_INLINE void multiply(int (&values)[sums], const uint32_t (&rows)[lane_rows][Chunks][words],
                                       const uint32_t (&own)[lane_columns][Chunks][words]) {
#pragma unroll
        for (uint32_t i = 0; i < sums; ++i) {
#pragma unroll
            for (uint32_t k = 0; k < Chunks * words; ++k)
                values[i] = dot_of_bytes(rows[0][k / words][k % words], own[i][k / words][k % words], values[i]);
        }
    }
};

#endif
#endif

} // namespace tallow
