// Concatenation of operands on the host.
#pragma once

#include "access.hpp"
#include "runs.hpp"
#include "threads.hpp"

namespace tallow {

// Bytes that a part writes.
constexpr uint64_t bytes_of_part = 1 << 17;

// The elements of a source that a row of the result contains, `length` bytes of them, and from one row's first element
// to the next one's. native_copy.py fills in a table of these.
struct ConcatenatedSource {
    uint64_t length;
    uint64_t row_stride;
    Runs runs;
};

// Sources of up to this many bytes a row are short.
constexpr uint64_t max_short_source = 64;

// Writes `Bytes` bytes of each row of a source into rows of the result.
template <uint64_t Bytes>
TALLOW_INLINE void copy_column(uint8_t* target, uint64_t target_stride, const uint8_t* source, uint64_t source_stride,
                               uint64_t rows) {
    for (; rows != 0; --rows, target += target_stride, source += source_stride)
        __builtin_memcpy(target, source, Bytes);
}

// Of short rows those of one source are written after the other, so that the loop knows what it copies.
template <typename Arguments> TALLOW_INLINE void join_columns(const Arguments& arguments, uint64_t row, uint64_t rows) {
    const ConcatenatedSource* const sources = pointer_to<const ConcatenatedSource>(arguments.table);
    uint8_t* target = pointer_to<uint8_t>(arguments.result) + row * arguments.row_stride;
    for (uint32_t number = 0; number < arguments.operands; ++number) {
        const ConcatenatedSource& source = sources[number];
        const uint8_t* const from = pointer_to<const uint8_t>(arguments.sources[number]) + row * source.row_stride;
        const auto copy = [&](auto column) { column(target, arguments.row_stride, from, source.row_stride, rows); };
        const bool is_dense = source.runs.elements == 0;
        if (is_dense && source.length == 4)
            copy(copy_column<4>);
        else if (is_dense && source.length == 8)
            copy(copy_column<8>);
        else if (is_dense && source.length == 16)
            copy(copy_column<16>);
        else if (is_dense && source.length == 32)
            copy(copy_column<32>);
        else
            for (uint64_t i = 0; i < rows; ++i)
                gather(target + i * arguments.row_stride, from + i * source.row_stride, source.runs, arguments.itemsize,
                       0, source.length / arguments.itemsize);
        target += source.length;
    }
}

// Each row of the result has a row of each source, one after the other.
template <typename Arguments> TALLOW_INLINE void join_rows(const Arguments& arguments) {
    if (arguments.width <= arguments.operands * max_short_source) {
        const uint64_t together = bytes_of_part / arguments.width;
        const auto join_part = [&, together](uint64_t part) {
            const uint64_t row = part * together, left = arguments.rows - row;
            join_columns(arguments, row, left < together ? left : together);
        };
        pool.run([](const void* join, uint64_t part) { (*static_cast<decltype(&join_part)>(join))(part); }, &join_part,
                 (arguments.rows + together - 1) / together, arguments.threads);
        return;
    }
    const auto join_part = [&](uint64_t part) {
        const ConcatenatedSource* const sources = pointer_to<const ConcatenatedSource>(arguments.table);
        const uint64_t begin = part * bytes_of_part, count = arguments.width * arguments.rows;
        const uint64_t bytes = count - begin < bytes_of_part ? count - begin : bytes_of_part;
        uint64_t row = begin / arguments.width;
        // How far it is from the beginning of a source's row.
        uint64_t first = begin % arguments.width;
        uint32_t number = 0;
        for (; first >= sources[number].length; ++number)
            first -= sources[number].length;
        uint8_t* target = pointer_to<uint8_t>(arguments.result) + row * arguments.row_stride + begin % arguments.width;
        for (uint64_t left = bytes; left != 0;) {
            const ConcatenatedSource& source = sources[number];
            const uint64_t piece = source.length - first < left ? source.length - first : left;
            const uint8_t* from = pointer_to<const uint8_t>(arguments.sources[number]) + row * source.row_stride;
            gather(target, from, source.runs, arguments.itemsize, first / arguments.itemsize,
                   piece / arguments.itemsize);
            target += piece;
            left -= piece;
            first = 0;
            if (++number == arguments.operands) {
                number = 0;
                ++row;
                target += arguments.row_stride - arguments.width;
            }
        }
    };
    pool.run([](const void* join, uint64_t part) { (*static_cast<decltype(&join_part)>(join))(part); }, &join_part,
             (arguments.width * arguments.rows + bytes_of_part - 1) / bytes_of_part, arguments.threads);
}

} // namespace tallow
