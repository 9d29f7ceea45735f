// Resampling of (b, c, h, w) on the host.
#pragma once

#include "access.hpp"
#include "math.hpp"
#include "parts.hpp"
#include "words.hpp"

namespace tallow {

// Columns of the result that are computed at once, so that they stay in the nearest cache, and elements of a part,
// roughly.
constexpr uint64_t window_columns = 256;
constexpr uint64_t window_length = 1 << 14;

// Calls make(part of the planes' rows, its first and its last row, the planes' offsets) for all rows of the result.
template <typename T, typename Arguments, typename Make>
TALLOW_INLINE void make_rows(const Arguments& arguments, uint64_t cost, const Make& make) {
    const uint64_t rows = arguments.planes * arguments.height;
    const uint64_t together = window_length / (arguments.width * cost + 1) + 1;
    const auto make_part = [&](uint64_t part) {
        const uint64_t end = (part + 1) * together < rows ? (part + 1) * together : rows;
        for (uint64_t row = part * together; row < end;) {
            const uint64_t plane = row / arguments.height;
            const uint64_t first = row % arguments.height;
            const uint64_t left = arguments.height - first;
            const uint64_t count = left < end - row ? left : end - row;
            const T* const source = pointer_to<const T>(arguments.source) +
                                    plane / arguments.channels * arguments.stride_b +
                                    plane % arguments.channels * arguments.stride_c;
            make(source, pointer_to<T>(arguments.result) + row * arguments.width, first, count);
            row += count;
        }
    };
    do_parts(arguments, (rows + together - 1) / together, make_part);
}

// The host computes the position of each row and column of the result in a plane of the source.
template <typename Word, typename Arguments> TALLOW_INLINE void upsample_nearest(const Arguments& arguments) {
    const auto columns = pointer_to<const int64_t>(arguments.columns);
    const auto row_offsets = pointer_to<const int64_t>(arguments.rows);
    make_rows<Word>(arguments, 1, [&](const Word* source, Word* result, uint64_t first, uint64_t rows) {
        for (uint64_t y = first; y < first + rows; ++y, result += arguments.width) {
            if (y > first && row_offsets[y] == row_offsets[y - 1]) {
                __builtin_memcpy(result, result - arguments.width, arguments.width * sizeof(Word));
                continue;
            }
            const Word* const row = source + row_offsets[y];
            for (uint64_t x = 0; x < arguments.width; ++x)
                result[x] = row[columns[x]];
        }
    });
}

// Of each row and column of the result the host computes the positions of its two neighbours in a plane of the source,
// and the share of the second. A dim without shares keeps its size and is copied: a share of 0 would make NaN of an
// infinity.
template <typename T, typename Arguments> TALLOW_INLINE void upsample_bilinear(const Arguments& arguments) {
    using Value = compute_type<T>;
    const auto left = pointer_to<const int64_t>(arguments.columns);
    const auto right = pointer_to<const int64_t>(arguments.next_columns);
    const auto column_shares = pointer_to<const double>(arguments.column_shares);
    const auto upper = pointer_to<const int64_t>(arguments.rows);
    const auto lower = pointer_to<const int64_t>(arguments.next_rows);
    const auto row_shares = pointer_to<const double>(arguments.row_shares);
    make_rows<T>(arguments, 4, [&](const T* source, T* result, uint64_t first, uint64_t rows) {
        // What is interpolated along two rows of the source is cached for the next row of the result.
        struct CachedRow {
            const T* row;
            Value values[window_columns];
        } cache[2];
        for (uint64_t x = 0; x < arguments.width; x += window_columns) {
            const uint64_t count = arguments.width - x < window_columns ? arguments.width - x : window_columns;
            cache[0].row = cache[1].row = nullptr;
            const auto interpolated = [&](const T* row) -> const Value* {
                if (row == cache[0].row || row == cache[1].row)
                    return cache[row == cache[0].row ? 0 : 1].values;
                // The first one is the older one.
                CachedRow& entry = cache[cache[0].row == nullptr || cache[0].row < cache[1].row ? 0 : 1];
                entry.row = row;
                if (column_shares == nullptr)
                    for (uint64_t i = 0; i < count; ++i)
                        entry.values[i] = to_compute(row[left[x + i]]);
                else
                    for (uint64_t i = 0; i < count; ++i)
                        entry.values[i] =
                            static_cast<Value>(1.0 - column_shares[x + i]) * to_compute(row[left[x + i]]) +
                            static_cast<Value>(column_shares[x + i]) * to_compute(row[right[x + i]]);
                return entry.values;
            };
            for (uint64_t y = first; y < first + rows; ++y) {
                T* const target = result + (y - first) * arguments.width + x;
                const Value* const above = interpolated(source + upper[y]);
                if (row_shares == nullptr) {
                    for (uint64_t i = 0; i < count; ++i)
                        target[i] = convert<T>(above[i]);
                    continue;
                }
                const Value* const below = interpolated(source + lower[y]);
                const auto share = static_cast<Value>(row_shares[y]);
                const auto upper_share = static_cast<Value>(1.0 - row_shares[y]);
                for (uint64_t i = 0; i < count; ++i)
                    target[i] = convert<T>(upper_share * above[i] + share * below[i]);
            }
        }
    });
}

// Of each row and column of the result the host computes the positions of four elements in a plane of the source, and
// their weights. A dim without weights keeps its size and is copied.
template <typename T, typename Arguments> TALLOW_INLINE void upsample_bicubic(const Arguments& arguments) {
    using Value = compute_type<T>;
    const auto columns = pointer_to<const int64_t>(arguments.columns);
    const auto column_weights = pointer_to<const double>(arguments.column_shares);
    const auto row_offsets = pointer_to<const int64_t>(arguments.rows);
    const auto row_weights = pointer_to<const double>(arguments.row_shares);
    const uint32_t taps = row_weights == nullptr ? 1 : 4;
    make_rows<T>(arguments, 16, [&](const T* source, T* result, uint64_t first, uint64_t rows) {
        // What is interpolated along rows of the source is cached for the next rows of the result.
        struct CachedRow {
            const T* row;
            Value values[window_columns];
        } cache[4];
        for (uint64_t x = 0; x < arguments.width; x += window_columns) {
            const uint64_t count = arguments.width - x < window_columns ? arguments.width - x : window_columns;
            for (CachedRow& each : cache)
                each.row = nullptr;
            const T* wanted[4] = {};
            const auto is_wanted = [&](const T* row) {
                return row == wanted[0] || row == wanted[1] || row == wanted[2] || row == wanted[3];
            };
            const auto interpolated = [&](const T* row) -> const Value* {
                for (const CachedRow& each : cache)
                    if (each.row == row)
                        return each.values;
                uint32_t slot = 0;
                while (cache[slot].row != nullptr && is_wanted(cache[slot].row))
                    ++slot;
                CachedRow& entry = cache[slot];
                entry.row = row;
                const int64_t* const own = columns + x;
                if (column_weights == nullptr) {
                    for (uint64_t i = 0; i < count; ++i)
                        entry.values[i] = to_compute(row[own[i]]);
                    return entry.values;
                }
                const double* const weights = column_weights + x;
                const uint64_t width = arguments.width;
                for (uint64_t i = 0; i < count; ++i)
                    entry.values[i] = static_cast<Value>(weights[i]) * to_compute(row[own[i]]) +
                                      static_cast<Value>(weights[i + width]) * to_compute(row[own[i + width]]) +
                                      static_cast<Value>(weights[i + 2 * width]) * to_compute(row[own[i + 2 * width]]) +
                                      static_cast<Value>(weights[i + 3 * width]) * to_compute(row[own[i + 3 * width]]);
                return entry.values;
            };
            for (uint64_t y = first; y < first + rows; ++y) {
                T* const target = result + (y - first) * arguments.width + x;
                for (uint32_t k = 0; k < 4; ++k)
                    wanted[k] = source + row_offsets[y + (k < taps ? k : 0) * arguments.height];
                const Value* const line = interpolated(wanted[0]);
                if (taps == 1) {
                    for (uint64_t i = 0; i < count; ++i)
                        target[i] = convert<T>(line[i]);
                    continue;
                }
                const Value* const lines[3] = {interpolated(wanted[1]), interpolated(wanted[2]),
                                               interpolated(wanted[3])};
                Value weights[4];
                for (uint32_t k = 0; k < 4; ++k)
                    weights[k] = static_cast<Value>(row_weights[y + k * arguments.height]);
                for (uint64_t i = 0; i < count; ++i)
                    target[i] = convert<T>(weights[0] * line[i] + weights[1] * lines[0][i] + weights[2] * lines[1][i] +
                                           weights[3] * lines[2][i]);
            }
        }
    });
}

} // namespace tallow
