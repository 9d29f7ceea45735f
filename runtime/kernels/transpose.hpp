// Transposes matrices of words: squares of them in vectors.
#pragma once

#include "formats.hpp"
#include "vector.hpp"

namespace tallow {

// Interleaves the lower or the upper parts of two vectors: one instruction for vectors of 16 bytes on all targets.
template <typename Word> using Line = Vector<Word, 16>;
template <bool Second, typename Word, uint32_t... I>
TALLOW_INLINE Line<Word> interleaved(const Line<Word>& left, const Line<Word>& right, Numbers<I...>) {
    constexpr uint32_t first = Second ? sizeof...(I) / 2 : 0;
#if defined(__clang__)
    return __builtin_shufflevector(left, right, (first + I / 2 + I % 2 * sizeof...(I))...);
#else
    return __builtin_shuffle(left, right, Line<Word>{static_cast<Word>(first + I / 2 + I % 2 * sizeof...(I))...});
#endif
}

// Transposes a square of words, whose lines have these strides in words.
template <typename Word>
TALLOW_INLINE void turn_square(Word* target, int64_t target_step, const Word* source, int64_t source_step) {
    constexpr uint32_t side = 16 / sizeof(Word);
    const typename CountUp<side>::type order;
    Line<Word> lines[side];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < side; ++i)
        __builtin_memcpy(&lines[i], source + static_cast<int64_t>(i) * source_step, sizeof lines[i]);
    // Each step doubles how many words of a line have one source.
#pragma GCC unroll 4
    for (uint32_t step = 1; step < side; step *= 2) {
        Line<Word> next[side];
#pragma GCC unroll 8
        for (uint32_t i = 0; i < side / 2; ++i) {
            next[2 * i] = interleaved<false, Word>(lines[i], lines[i + side / 2], order);
            next[2 * i + 1] = interleaved<true, Word>(lines[i], lines[i + side / 2], order);
        }
        __builtin_memcpy(lines, next, sizeof lines);
    }
#pragma GCC unroll 16
    for (uint32_t i = 0; i < side; ++i)
        __builtin_memcpy(target + static_cast<int64_t>(i) * target_step, &lines[i], sizeof lines[i]);
}

TALLOW_INLINE void turn_square(bits128* target, int64_t, const bits128* source, int64_t) {
    *target = *source;
}

// `columns` columns of `rows` words each, which are side by side in the source and become rows of the target. Lines of
// the cache are read and written completely: those of other rows often map to the same set.
template <typename Word>
TALLOW_INLINE void transpose_tile(Word* target, int64_t target_step, const Word* source, int64_t source_step,
                                  uint64_t columns, uint64_t rows) {
    constexpr uint64_t side = 16 / sizeof(Word), line = line_bytes / sizeof(Word);
    const auto from = [&](uint64_t column, uint64_t row) {
        return source + static_cast<int64_t>(column) * source_step + static_cast<int64_t>(row);
    };
    const auto to = [&](uint64_t column, uint64_t row) {
        return target + static_cast<int64_t>(row) * target_step + static_cast<int64_t>(column);
    };
    const uint64_t full_columns = columns / line * line;
    const uint64_t full_rows = rows / line * line;
    for (uint64_t column = 0; column < full_columns; column += line)
        for (uint64_t row = 0; row < full_rows; row += line) {
            alignas(line_bytes) Word transposed[line][line];
            for (uint64_t c = 0; c < line; c += side)
                for (uint64_t r = 0; r < line; r += side)
                    turn_square(&transposed[r][c], line, from(column + c, row + r), source_step);
            for (uint64_t r = 0; r < line; ++r)
                __builtin_memcpy(to(column, row + r), transposed[r], line_bytes);
        }
    for (uint64_t c = 0; c < columns; ++c)
        for (uint64_t r = c < full_columns ? full_rows : 0; r < rows; ++r)
            *to(c, r) = *from(c, r);
}

} // namespace tallow
