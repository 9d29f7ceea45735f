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

// Whether no other element has the key: 0.0 and -0.0 share one, and all NaN do.
template <typename T> TALLOW_INLINE bool is_of_one_element(OrderKey<T> key, bool descending) {
    return is_integer<T> ||
           (key != static_cast<OrderKey<T>>(~OrderKey<T>{0}) && key != order_key(from_bits<T>(0), descending));
}
// The element that alone has the key.
template <typename T> TALLOW_INLINE T element_of_key(OrderKey<T> key, bool descending) {
    using Key = OrderKey<T>;
    constexpr Key sign = static_cast<Key>(Key{1} << (8 * sizeof(T) - 1));
    if (descending)
        key = static_cast<Key>(~key);
    if constexpr (!is_integer<T>)
        key = static_cast<Key>((key & sign) != 0 ? key ^ sign : ~key);
    else if constexpr (!is_unsigned<T>)
        key = static_cast<Key>(key ^ sign);
    return bit_cast<T>(key);
}

} // namespace tallow
