// Products of tiles of 16 by 16 numbers of two bytes by the lanes of one wave, on the matrix cores of each target.
//
//     sums[row][column] += rows[row][depth] * columns[column][depth], added up over the depth
//
// Rows and sums are in registers, columns are read from shared memory. What a lane holds of a tile differs between the
// targets; a MatrixCore says it:
//
//   sums            how many sums a lane holds
//   held            to how many rows these belong; the lane's places differ in the columns alone
//   run             how many sums are side by side in a row
//   row(h)          the row of held row h
//   held_of(i)      the held row of sum i
//   column(i)       the column of sum i
//   first_partner   lanes whose indexes differ in the bits from this mask ..
//   last_partner    .. to this one hold the same rows
//   words           two elements each, how many a lane holds of a tile of rows
//   held_of_word(w), depth_of_word(w)   the held row of word w, and the depth of its first element
//   rows_of         sums, rounded, as rows whose depth was the columns: nothing or little moves between lanes
//   read, read_rows     columns, and rows, from a SharedTile of a row for each of them
//   read_transposed, read_rows_transposed   the same from one of a row for each depth, where `reads_transposed`
#pragma once

#include "async_copy.hpp"
#include "wave.hpp"

namespace tallow {

#if defined(TALLOW_NVIDIA)
#if defined(TALLOW_ASYNC_COPIES)
#define TALLOW_MATRIX_CORE_MMA 1
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Groups of waves can multiply together, too: see group_core.hpp.
#define TALLOW_GROUP_CORE 1
#endif
#elif defined(TALLOW_AMD)
#if defined(__gfx90a__)
#define TALLOW_MATRIX_CORE_MFMA 2
#elif defined(__gfx942__) || defined(__gfx950__)
#define TALLOW_MATRIX_CORE_MFMA 3
#elif defined(__GFX11__)
#define TALLOW_MATRIX_CORE_WMMA 11
#elif defined(__GFX12__)
#define TALLOW_MATRIX_CORE_WMMA 12
#endif
// The HIP runtime for the CPU has the instructions of AMD's matrix cores.
#elif OPGEN_WAVE_SIZE == 64
#if !defined(TALLOW_MATRIX_CORE_MFMA)
#define TALLOW_MATRIX_CORE_MFMA 2
#endif
#elif !defined(TALLOW_MATRIX_CORE_WMMA)
#define TALLOW_MATRIX_CORE_WMMA 11
#endif

#if defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)
constexpr bool has_matrix_cores = true;
#else
constexpr bool has_matrix_cores = false;
#endif

constexpr uint32_t matrix_side = 16;

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

#if defined(TALLOW_MATRIX_CORE_MMA)

// mma.m16n8k16, twice side by side.
template <typename T> struct MatrixCore {
    static constexpr uint32_t sums = 8;
    static constexpr uint32_t held = 2;
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
    static constexpr TALLOW_INLINE uint32_t held_of(uint32_t i) {
        return i / 2 % 2;
    }
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
    }
    static constexpr TALLOW_INLINE uint32_t held_of_word(uint32_t w) {
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
#define TALLOW_MMA(type)                                                                                               \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                                         \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                         \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
        if constexpr (is_same<T, bf16>)
            TALLOW_MMA("bf16");
        else
            TALLOW_MMA("f16");
#undef TALLOW_MMA
    }

  private:
    // Where element `lane_element` of row `lane_row`, counted from others that are the same in all lanes, is. These are
    // multiples of 16 and become constants: the lane's own part of the address is found once.
    template <typename Tile>
    static TALLOW_INLINE uint32_t part_address(const Tile& tile, uint32_t lane_row, uint32_t lane_element, uint32_t row,
                                               uint32_t element) {
        static_assert(Tile::period >= 4, "rows that differ by eight are permuted alike");
        const uint32_t own = static_cast<uint32_t>(tile.at(lane_row, lane_element) - tile.bytes);
        const uint32_t chunk = element / Tile::in_chunk;
        const uint32_t place = chunk % Tile::period;
        const uint32_t permuted = own ^ place * access_bytes;
        return shared_address(tile.bytes) + permuted + (row * Tile::chunks + chunk - place) * access_bytes;
    }
    // Of four parts of 8 by 8, whose rows the lanes point to, eight each: the row of a lane, and its first element,
    // where the second part is beside the first, or below it.
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

#elif defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)

// AMD's: of the product of columns and transposed rows a lane holds sums of one row. The depth is split among the
// lanes, but by RDNA 3, where each half of a wave holds all of it.
template <typename T> struct MatrixCore {
#if defined(TALLOW_MATRIX_CORE_WMMA) && TALLOW_MATRIX_CORE_WMMA == 11
    static constexpr bool is_doubled = true;
#else
    static constexpr bool is_doubled = false;
#endif
    static constexpr uint32_t sums = 256 / wave_size;
    static constexpr uint32_t held = 1;
    static constexpr uint32_t run = is_doubled ? 1 : sums;
    static constexpr uint32_t first_partner = 16;
    static constexpr uint32_t last_partner = wave_size / 2;
    static constexpr uint32_t depth = is_doubled ? 16 : sums;
    static constexpr uint32_t words = depth / 2;
    static constexpr bool reads_transposed = false;
    struct Rows {
        uint32_t values[words];
    };
    using Columns = Rows;
    static TALLOW_INLINE uint32_t row(uint32_t) {
        return lane_index() % 16;
    }
    static constexpr TALLOW_INLINE uint32_t held_of(uint32_t) {
        return 0;
    }
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return is_doubled ? 2 * i + lane_index() / 16 : lane_index() / 16 * sums + i;
    }
    static constexpr TALLOW_INLINE uint32_t held_of_word(uint32_t) {
        return 0;
    }
    static TALLOW_INLINE uint32_t depth_of_word(uint32_t w) {
        return first_depth() + 2 * w;
    }
    static TALLOW_INLINE Rows rows_of(const float (&values)[sums]) {
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
        using Numbers = float __attribute__((vector_size(4 * sums)));
        using Halves = _Float16 __attribute__((vector_size(2 * depth)));
        using Bits = short __attribute__((vector_size(2 * depth)));
        Numbers d;
#pragma unroll
        for (uint32_t i = 0; i < sums; ++i)
            d[i] = values[i];
#if defined(TALLOW_MATRIX_CORE_MFMA)
        if constexpr (is_same<T, bf16>)
            d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(bit_cast<Bits>(columns), bit_cast<Bits>(rows), d, 0, 0, 0);
#if TALLOW_MATRIX_CORE_MFMA == 2
        else {
            // CDNA 2 takes subnormal operands of 16 bits for 0. Those of bf16 are subnormal in f32 too; those of f16
            // are all below 2**-14. So f16 is multiplied as f32, one element of each lane at a time.
            const auto column = bit_cast<Halves>(columns);
            const auto row = bit_cast<Halves>(rows);
#pragma unroll
            for (uint32_t i = 0; i < depth; ++i)
                d = __builtin_amdgcn_mfma_f32_16x16x4f32(static_cast<float>(column[i]), static_cast<float>(row[i]), d,
                                                         0, 0, 0);
        }
#else
        else
            d = __builtin_amdgcn_mfma_f32_16x16x16f16(bit_cast<Halves>(columns), bit_cast<Halves>(rows), d, 0, 0, 0);
#endif
#elif TALLOW_MATRIX_CORE_WMMA == 11
        if constexpr (is_same<T, bf16>)
            d = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(bit_cast<Bits>(columns), bit_cast<Bits>(rows), d);
        else
            d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(bit_cast<Halves>(columns), bit_cast<Halves>(rows), d);
#else
        if constexpr (is_same<T, bf16>)
            d = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(bit_cast<Bits>(columns), bit_cast<Bits>(rows), d);
        else
            d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(bit_cast<Halves>(columns), bit_cast<Halves>(rows), d);
#endif
#pragma unroll
        for (uint32_t i = 0; i < sums; ++i)
            values[i] = d[i];
    }

  private:
    static TALLOW_INLINE uint32_t first_depth() {
        return is_doubled ? 0 : lane_index() / 16 * depth;
    }
};

#endif

} // namespace tallow
