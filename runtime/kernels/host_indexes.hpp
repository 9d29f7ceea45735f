// Indexes on the host, one by one.
#pragma once

#include "access.hpp"
#include "words.hpp"

namespace tallow {

// A word as the index that it is.
template <typename Arguments> TALLOW_INLINE int64_t signed_index(const Arguments& arguments, uint64_t word) {
    // The sign of a dtype that has one is moved to that of 64 bits, and back.
    return static_cast<int64_t>(word << arguments.index_shift) >> arguments.index_shift;
}

// The index at an offset, and that of a number; an address of 0 has none.
template <typename Arguments> TALLOW_INLINE int64_t index_in(const Arguments& arguments, int64_t offset) {
    int64_t index = 0;
    with_word(arguments.index_bytes, [&](auto word) {
        index = signed_index(arguments, pointer_to<const decltype(word)>(arguments.indexes)[offset]);
    });
    return index;
}
template <typename Arguments> TALLOW_INLINE int64_t index_at(const Arguments& arguments, uint64_t number) {
    return index_in(arguments, static_cast<int64_t>(number) * arguments.index_stride);
}

// Reports an index that is out of range to the host.
template <typename Arguments> TALLOW_INLINE void report_index(const Arguments& arguments, int64_t index) {
    const auto record = pointer_to<int64_t>(arguments.wrong);
    record[0] = 1;
    record[1] = index;
}

// Whether all indexes are from 0 up to `most`; the first one that is not is reported to the host.
template <typename Arguments>
TALLOW_INLINE bool are_at_most(const Arguments& arguments, uint64_t count, uint64_t most) {
    for (uint64_t i = 0; i < count; ++i) {
        const int64_t index = index_at(arguments, i);
        if (index < 0 || static_cast<uint64_t>(index) > most) {
            report_index(arguments, index);
            return false;
        }
    }
    return true;
}

} // namespace tallow
