// Concatenation of operands on the host.
#pragma once

#include "access.hpp"
#include "runs.hpp"
#include "threads.hpp"

namespace tallow {

// Bytes that a part writes.
constexpr uint64_t joined_bytes = 1 << 17;

// The elements of a source that a row of the result contains, `length` bytes of them, and from one row's first element
// to the next one's. native_copy.py fills in a table of these.
struct JoinedSource {
    uint64_t length;
    uint64_t row_stride;
    Runs runs;
};

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
             (arguments.width * arguments.rows + joined_bytes - 1) / joined_bytes, arguments.threads);
}

} // namespace tallow
