// Concatenation of the rows of several operands on the host.
#pragma once

#include "access.hpp"
#include "threads.hpp"

namespace tallow {

// Bytes that a part writes.
constexpr uint64_t joined_bytes = 1 << 17;

// Each row of the result has a row of each source, one after the other.
template <typename Arguments> TALLOW_INLINE void join_rows(const Arguments& arguments) {
    uint64_t width = 0;
    for (uint32_t i = 0; i < arguments.operands; ++i)
        width += arguments.lengths[i];
    const uint64_t count = width * arguments.rows;
    const auto join_part = [&](uint64_t part) {
        uint64_t place = part * joined_bytes;
        const uint64_t end = place + joined_bytes < count ? place + joined_bytes : count;
        uint64_t row = place / width;
        // How far it is from the beginning of a source's row.
        uint64_t first = place % width;
        uint32_t source = 0;
        for (; first >= arguments.lengths[source]; ++source)
            first -= arguments.lengths[source];
        while (place < end) {
            const uint64_t length = arguments.lengths[source];
            const uint64_t bytes = length - first < end - place ? length - first : end - place;
            __builtin_memcpy(pointer_to<uint8_t>(arguments.result) + place,
                             pointer_to<const uint8_t>(arguments.sources[source]) + row * length + first, bytes);
            place += bytes;
            first = 0;
            if (++source == arguments.operands) {
                source = 0;
                ++row;
            }
        }
    };
    pool.run([](const void* join, uint64_t part) { (*static_cast<decltype(&join_part)>(join))(part); }, &join_part,
             (count + joined_bytes - 1) / joined_bytes, arguments.threads);
}

} // namespace tallow
