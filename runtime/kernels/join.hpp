// Concatenation of operands on the host.
#pragma once

#include "access.hpp"
#include "threads.hpp"
#include "words.hpp"

namespace tallow {

// Bytes that a part writes.
constexpr uint64_t joined_bytes = 1 << 17;

// The elements of a source that a row of the result contains: `length` bytes of them, side by side or, if
// `run_elements` is not 0, runs of so many elements, `step` bytes apart. native_copy.py fills in a table of these.
struct JoinedSource {
    uint64_t length;
    uint64_t row_stride;
    uint64_t run_elements;
    uint64_t run_stride;
    uint64_t step;
};

// Fixed sizes compile to a load and a store where a call of memcpy would take longer.
TALLOW_INLINE void copy_bytes(uint8_t* target, const uint8_t* source, uint64_t bytes) {
    if (bytes == 4)
        __builtin_memcpy(target, source, 4);
    else if (bytes == 8)
        __builtin_memcpy(target, source, 8);
    else if (bytes == 16)
        __builtin_memcpy(target, source, 16);
    else
        __builtin_memcpy(target, source, bytes);
}

// Bytes of the elements of a source's row, from the one at byte `first` on.
template <typename T>
TALLOW_INLINE void gather_run(uint8_t* target, const uint8_t* row, const JoinedSource& source, uint64_t first,
                              uint64_t bytes) {
    uint64_t run = first / sizeof(T) / source.run_elements, element = first / sizeof(T) % source.run_elements;
    for (uint64_t left = bytes / sizeof(T); left != 0; element = 0, ++run) {
        const uint64_t count = source.run_elements - element < left ? source.run_elements - element : left;
        const uint8_t* from = row + run * source.run_stride + element * source.step;
        if (source.step == sizeof(T)) {
            copy_bytes(target, from, count * sizeof(T));
        } else {
            for (uint64_t i = 0; i < count; ++i)
                __builtin_memcpy(target + i * sizeof(T), from + i * source.step, sizeof(T));
        }
        target += count * sizeof(T);
        left -= count;
    }
}

// Each row of the result has a row of each source, one after the other.
template <typename Arguments> TALLOW_INLINE void join_rows(const Arguments& arguments) {
    const auto join_part = [&](uint64_t part) {
        const JoinedSource* const sources = pointer_to<const JoinedSource>(arguments.table);
        const uint64_t begin = part * joined_bytes, count = arguments.width * arguments.rows;
        const uint64_t bytes = count - begin < joined_bytes ? count - begin : joined_bytes;
        uint64_t row = begin / arguments.width;
        // How far it is from the beginning of a source's row.
        uint64_t first = begin % arguments.width;
        uint32_t number = 0;
        for (; first >= sources[number].length; ++number)
            first -= sources[number].length;
        uint8_t* target = pointer_to<uint8_t>(arguments.result) + row * arguments.row_stride + begin % arguments.width;
        for (uint64_t left = bytes; left != 0;) {
            const JoinedSource& source = sources[number];
            const uint64_t piece = source.length - first < left ? source.length - first : left;
            const uint8_t* from = pointer_to<const uint8_t>(arguments.sources[number]) + row * source.row_stride;
            if (source.run_elements == 0)
                copy_bytes(target, from + first, piece);
            else if (arguments.itemsize > 8)
                gather_run<bits128>(target, from, source, first, piece);
            else
                with_word(arguments.itemsize,
                          [&](auto word) { gather_run<decltype(word)>(target, from, source, first, piece); });
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
             (arguments.width * arguments.rows + joined_bytes - 1) / joined_bytes, arguments.threads);
}

} // namespace tallow
