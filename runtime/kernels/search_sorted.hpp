// Binary search in a sorted line.
#pragma once

#include "order_key.hpp"

namespace tallow {

// How many elements of a line in ascending order, with NaN last, are below a value, or with `right` not above it.
template <typename T> TALLOW_INLINE int64_t search_sorted(const T* line, uint64_t length, T value, bool right) {
    const OrderKey<T> key = order_key(value, false);
    uint64_t first = 0;
    while (length > 0) {
        const uint64_t half = length / 2;
        const OrderKey<T> other = order_key(line[first + half], false);
        const bool is_before = other < key || (right && other == key);
        first = is_before ? first + half + 1 : first;
        length = is_before ? length - half - 1 : half;
    }
    return static_cast<int64_t>(first);
}

} // namespace tallow
