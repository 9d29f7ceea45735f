// Products of bf16 on the host by instructions that multiply pairs of terms, where the machine has them.
#pragma once

#include "tile_product.hpp"

#if defined(__AVX512BW__) && defined(__linux__)
#define TALLOW_PAIRS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tallow {

// A register holds a tile of this many rows of pairs of terms, or of sums of as many columns.
constexpr uint32_t pair_side = 16;
constexpr uint32_t tile_pairs = pair_side * pair_side;

// AMX takes subnormal numbers for 0. Products of no more rows are of floats, whatever the layouts are.
constexpr uint32_t max_rows_of_floats = 8;

// Whether this machine has AMX for bf16, and rounds vectors to it. Linux lets a process use tiles that asks, unless a
// thread has too small a stack for signals.
extern "C" __attribute__((visibility("default"), used)) inline bool has_pairs() {
    static const bool has = [] {
        constexpr uint32_t tiles_of_bf16 = 1u << 22 | 1u << 24;
        constexpr long ask_permission = 0x1023;
        constexpr long tile_data = 18;
        constexpr uint32_t rounds_to_bf16 = 1u << 5;
        uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
        return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & tiles_of_bf16) == tiles_of_bf16 &&
               __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & rounds_to_bf16) != 0 &&
               syscall(SYS_arch_prctl, ask_permission, tile_data) == 0;
    }();
    return has;
}

// The shapes of registers of tiles, as LDTILECFG reads them: rows have 64 bytes. Six have sums or a left side.
struct alignas(64) TileShapes {
    uint8_t palette = 1;
    uint8_t unused[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};

    constexpr explicit TileShapes(uint8_t left_rows) {
        for (uint32_t i = 0; i < 8; ++i)
            rows[i] = i < 6 ? left_rows : uint8_t{pair_side};
    }
};
static_assert(sizeof(TileShapes) == 64);

// Compilers do not use these registers, and need not know that they are overwritten.
template <uint32_t Number> TALLOW_INLINE void load_tile(const void* rows, uint64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride * 4), "i"(Number) : "memory");
}
template <uint32_t Number> TALLOW_INLINE void clear_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(Number));
}
template <uint32_t Number> TALLOW_INLINE void store_tile(void* rows, uint64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride * 4), "i"(Number) : "memory");
}
template <uint32_t Sums, uint32_t Lhs, uint32_t Rhs> TALLOW_INLINE void multiply_tiles() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Lhs), "i"(Rhs));
}

template <uint32_t Value> struct Number {
    static constexpr uint32_t value = Value;
};

// Both sides of a block of tiles, and its sums. `lhs_step` is the stride in pairs of rows of tiles on the left,
// `rhs_step` that of columns of them on the right; their tiles, which have `tile_rows` rows on the left, follow one
// another unless the left side lies in rows. `stride` is that of rows of sums.
struct TileBlock {
    const uint32_t* lhs;
    const uint32_t* rhs;
    uint64_t lhs_step;
    uint64_t rhs_step;
    uint32_t pairs;
    uint32_t tile_rows;
    float* sums;
    uint64_t stride;
    // The strides in pairs of the rows of a tile on the left, and of its tiles.
    uint64_t row_step = pair_side;
    uint64_t tile_step = uint64_t{tile_rows} * pair_side;

    // Of the sums in this register: those of a column follow one another.
    template <uint32_t Rows, uint32_t Number> TALLOW_INLINE float* tile_of_sums() const {
        return sums + Number % Rows * tile_rows * stride + Number / Rows * pair_side;
    }
    template <uint32_t Rows, uint32_t... Number> TALLOW_INLINE void load_sums(Numbers<Number...>) const {
        (load_tile<Number>(tile_of_sums<Rows, Number>(), stride), ...);
    }
    template <uint32_t... Number> static TALLOW_INLINE void clear_sums(Numbers<Number...>) {
        (clear_tile<Number>(), ...);
    }
    template <uint32_t Rows, uint32_t... Number> TALLOW_INLINE void store_sums(Numbers<Number...>) const {
        (store_tile<Number>(tile_of_sums<Rows, Number>(), stride), ...);
    }
    // Registers take turns with `Parity`: a processor waits before it overwrites one that a product reads.
    template <uint32_t Rows, uint32_t Parity, uint32_t... Column>
    TALLOW_INLINE void multiply(uint64_t offset, Numbers<Column...>) const {
        constexpr uint32_t first_left = Rows * Parity, first_right = sizeof...(Column) * Parity;
        const uint32_t* const left = lhs + offset / tile_pairs * tile_step;
        if constexpr (Rows <= 2)
            load_rows<first_left>(left, typename CountUp<Rows>::type());
        (multiply_column<Rows, Column, first_left, first_right>(left, rhs + Column * rhs_step + offset,
                                                                typename CountUp<Rows>::type()),
         ...);
    }
    // Two registers have rows of the left side: of more rows, of a single column, each replaces the last but one.
    template <uint32_t FirstLeft, uint32_t... Row>
    TALLOW_INLINE void load_rows(const uint32_t* left, Numbers<Row...>) const {
        (load_tile<4 + (FirstLeft + Row) % 2>(left + Row * lhs_step, row_step), ...);
    }
    template <uint32_t Rows, uint32_t Column, uint32_t FirstLeft, uint32_t FirstRight, uint32_t... Row>
    TALLOW_INLINE void multiply_column(const uint32_t* left, const uint32_t* tile, Numbers<Row...>) const {
        constexpr uint32_t right = 6 + (FirstRight + Column) % 2;
        load_tile<right>(tile, pair_side);
        const auto multiply_row = [&](auto row) {
            constexpr uint32_t number = decltype(row)::value, register_of_row = 4 + (FirstLeft + number) % 2;
            if constexpr (Rows > 2)
                load_tile<register_of_row>(left + number * lhs_step, row_step);
            multiply_tiles<Column * Rows + number, register_of_row, right>();
        };
        (multiply_row(Number<Row>()), ...);
    }
};

// Writes dot products of bf16, or adds them to those that are there: at most four tiles.
template <uint32_t Rows, uint32_t Columns, bool Adds>
TALLOW_INLINE void multiply_tiles_of_pairs(const TileBlock& block) {
    using Sums = typename CountUp<Rows * Columns>::type;
    if constexpr (Adds)
        block.load_sums<Rows>(Sums());
    else
        block.clear_sums(Sums());
    const uint64_t end = uint64_t{block.pairs} * pair_side;
    for (uint64_t offset = 0; offset < end; offset += 2 * tile_pairs) {
        block.multiply<Rows, 0>(offset, typename CountUp<Columns>::type());
        if (offset + tile_pairs < end)
            block.multiply<Rows, 1>(offset + tile_pairs, typename CountUp<Columns>::type());
    }
    block.store_sums<Rows>(Sums());
}

// The same of any number of rows, and of two columns of tiles at a time. Rows and terms are rounded up to full tiles.
template <uint32_t Stride>
TALLOW_INLINE void multiply_pairs(uint32_t rows, uint32_t columns, uint32_t terms, const uint32_t* lhs,
                                  const uint32_t* rhs, float* sums, uint64_t stride) {
    const uint32_t pairs = (terms + 2 * pair_side - 1) / (2 * pair_side) * pair_side;
    for (uint32_t column = 0; column < columns; column += 2 * pair_side)
        for (uint32_t row = 0; row < rows; row += 2 * pair_side) {
            const TileBlock block{lhs + row / pair_side * Stride,
                                  rhs + column / pair_side * Stride,
                                  Stride,
                                  Stride,
                                  pairs,
                                  pair_side,
                                  sums + row * stride + column,
                                  stride};
            if (rows - row > pair_side)
                multiply_tiles_of_pairs<2, 2, true>(block);
            else
                multiply_tiles_of_pairs<1, 2, true>(block);
        }
}

// Between its begin and its end a thread may multiply tiles, which have `left_rows` rows on the left.
struct UsesTiles {
    TALLOW_INLINE explicit UsesTiles(uint32_t left_rows = pair_side) {
        const TileShapes shapes(static_cast<uint8_t>(left_rows));
        asm volatile("ldtilecfg %0" ::"m"(shapes));
    }
    TALLOW_INLINE ~UsesTiles() {
        asm volatile("tilerelease" ::);
    }
};

// The stride in pairs of the tiles of 16 lines: those of `terms` terms, and a few more, so that the next
// ones lie in another set of the cache.
constexpr uint32_t lines_stride(uint32_t terms) {
    return terms / 2 * pair_side + pair_side;
}

using Pairs = Vector<uint32_t, sizeof(uint32_t) * pair_side>;

// Up to a vector of numbers that follow one another; those beyond are zero.
template <typename V> TALLOW_INLINE V load_numbers(const bf16* source, uint32_t count) {
    V result = {};
    if (count >= sizeof result / sizeof(bf16))
        __builtin_memcpy(&result, source, sizeof result);
    else
        __builtin_memcpy(&result, source, count * sizeof(bf16));
    return result;
}
// The pairs of a line's terms.
TALLOW_INLINE Pairs pairs_of_line(const bf16* source, int64_t step, uint32_t terms) {
    if (step == 1)
        return load_numbers<Pairs>(source, terms);
    bf16 gathered[2 * pair_side] = {};
    for (uint32_t i = 0; i < 2 * pair_side && i < terms; ++i)
        gathered[i] = source[static_cast<int64_t>(i) * step];
    return load_numbers<Pairs>(gathered, 2 * pair_side);
}
// A pair of terms, of lines that lie side by side.
TALLOW_INLINE Pairs pair_of_lines(const bf16* low, const bf16* high, uint32_t lines, uint32_t terms) {
    using Halves = Vector<uint16_t, sizeof(uint16_t) * pair_side>;
    return __builtin_convertvector(load_numbers<Halves>(low, terms > 0 ? lines : 0), Pairs) |
           __builtin_convertvector(load_numbers<Halves>(high, terms > 1 ? lines : 0), Pairs) << 16;
}

// The pairs of a block of lines and terms, in tiles: those of 16 lines follow one another, and begin `Stride` pairs
// after those of the previous lines. A row of a tile holds pairs of a line, or of all its lines. Terms are padded to
// full tiles with zeros.
template <uint32_t Stride, bool ByLine>
TALLOW_INLINE void take_pairs(const bf16* source, const int64_t* steps, uint32_t lines, uint32_t terms,
                              uint32_t* target) {
    constexpr uint32_t square_terms = 2 * pair_side;
    const int64_t line_step = steps[0], term_step = steps[1];
    const auto remaining = [](uint32_t done, uint32_t all) { return done < all ? all - done : 0; };
    const auto store = [](uint32_t* to, const Pairs& pairs) { __builtin_memcpy(to, &pairs, sizeof pairs); };
    const bool lies_by_line = line_step != 1 || term_step == 1;
    if (lies_by_line && ByLine) {
        for (uint32_t line = 0; line < lines; ++line) {
            const bf16* from = source + line * line_step;
            uint32_t* to = target + line / pair_side * Stride + line % pair_side * pair_side;
            for (uint32_t term = 0; term < terms; term += square_terms, to += tile_pairs) {
                __builtin_prefetch(from + 2 * line_step);
                store(to, pairs_of_line(from, term_step, terms - term));
                from += square_terms * term_step;
            }
        }
    } else if (!lies_by_line && !ByLine) {
        const uint32_t end = (terms + square_terms - 1) / square_terms * square_terms;
        for (uint32_t term = 0; term < end; term += 2) {
            const bf16* const low = source + term * term_step;
            const bf16* const high = low + term_step;
            uint32_t* to = target + term / square_terms * tile_pairs + term % square_terms / 2 * pair_side;
            for (uint32_t line = 0; line < lines; line += pair_side, to += Stride) {
                __builtin_prefetch(low + line + 8 * term_step);
                __builtin_prefetch(high + line + 8 * term_step);
                store(to, pair_of_lines(low + line, high + line, lines - line, remaining(term, terms)));
            }
        }
    } else {
        for (uint32_t line = 0; line < lines; line += pair_side)
            for (uint32_t term = 0; term < terms; term += square_terms) {
                const bf16* const from = source + line * line_step + term * term_step;
                // Four squares later come these terms, or the first ones of the next lines.
                const uint32_t later = term + 4 * square_terms;
                const int64_t ahead = later < terms
                                          ? 4 * square_terms * term_step
                                          : pair_side * line_step + (int64_t{later} - terms - term) * term_step;
                Pairs square[pair_side];
                for (uint32_t i = 0; i < pair_side; ++i)
                    if (lies_by_line) {
                        const bf16* const of_line = from + i * line_step;
                        __builtin_prefetch(of_line + ahead);
                        square[i] = pairs_of_line(of_line, term_step, i < lines - line ? terms - term : 0);
                    } else {
                        const bf16* const low = from + 2 * i * term_step;
                        square[i] = pair_of_lines(low, low + term_step, lines - line, remaining(term + 2 * i, terms));
                    }
                transpose_square(square);
                uint32_t* const to = target + line / pair_side * Stride + term / square_terms * tile_pairs;
                for (uint32_t i = 0; i < pair_side; ++i)
                    store(to + i * pair_side, square[i]);
            }
    }
}

// As NumberSides, with pairs of bf16. Rows, columns and terms are rounded up to full tiles, for which there is space;
// no one reads the sums of the others.
struct PairSides {
    using Value = float;
    static constexpr uint32_t max_terms = 2 * tile_terms;
    static constexpr uint32_t max_rows = 4 * tile_rows;
    static constexpr uint32_t near_rows = 2 * pair_side;
    static constexpr uint32_t max_columns = 2 * product_columns;
    static constexpr uint32_t row_step = pair_side;
    static constexpr uint32_t column_step = 2 * pair_side;
    static constexpr uint32_t stride = lines_stride(max_terms);
    static_assert(tile_terms % pair_side == 0 && tile_rows % row_step == 0 && max_columns % column_step == 0);

    struct alignas(64) Block {
        uint32_t lhs[tile_rows / pair_side * stride];
        uint32_t rhs[max_columns / pair_side * stride];
        float sums[max_rows * max_columns];

        static Block& of_thread() {
            static thread_local Block block;
            return block;
        }
    };
    const UsesTiles tiles;
    Block& block = Block::of_thread();
    float* const sums = block.sums;

    TALLOW_INLINE explicit PairSides(uint64_t) {
    }
    TALLOW_INLINE void take_lhs(const bf16* source, const int64_t* steps, uint32_t rows, uint32_t terms) {
        take_pairs<stride, true>(source, steps, rows, terms, block.lhs);
    }
    TALLOW_INLINE void take_rhs(const bf16* source, const int64_t* steps, uint32_t terms, uint32_t columns) {
        const int64_t turned[2] = {steps[1], steps[0]};
        take_pairs<stride, false>(source, turned, columns, terms, block.rhs);
    }
    TALLOW_INLINE void multiply(uint32_t rows, uint32_t, uint32_t terms, float* result, uint32_t width) {
        multiply_pairs<stride>(rows, width, terms, block.lhs, block.rhs, result, width);
    }
};

} // namespace tallow
#endif
