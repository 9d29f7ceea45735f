// Keys by which elements are sorted.
#pragma once

#include "access.hpp"

namespace tallow {

template <typename T> using OrderKey = typename Word<sizeof(T)>::type;

// A number that orders elements: 0.0 and -0.0 have one, and that of NaN is above all others, in either order.
template <typename T> TALLOW_INLINE OrderKey<T> order_key(T value, bool descending) {
    using Key = OrderKey<T>;
    constexpr Key sign = static_cast<Key>(Key{1} << (8 * sizeof(T) - 1));
    Key key = bit_cast<Key>(value);
    if constexpr (!is_integer<T>) {
        const auto number = to_compute(value);
        if (number != number)
            return static_cast<Key>(~Key{0});
        key = number == 0 ? sign : static_cast<Key>((key & sign) != 0 ? ~key : key | sign);
    } else if constexpr (!is_unsigned<T>) {
        key = static_cast<Key>(key ^ sign);
    }
    return static_cast<Key>(descending ? ~key : key);
}

} // namespace tallow
