// Keys by which elements are sorted.
#pragma once

#include "access.hpp"

namespace tallow {

template <typename T> using OrderKey = typename Word<sizeof(T)>::type;

// 1 where the code of -0.0 is NaN: numbers have all other codes, so that those from 0.0 on take the keys one below, and
// the last key is left to NaN.
template <typename T> constexpr uint32_t zero_step = 0;
template <uint32_t Exponent, uint32_t Fraction, uint32_t Bias>
constexpr uint32_t zero_step<SmallFloat<Exponent, Fraction, Bias, Specials::fnuz>> = 1;

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
        key = static_cast<Key>(key >= sign ? key - zero_step<T> : key);
    } else if constexpr (!is_unsigned<T>) {
        key = static_cast<Key>(key ^ sign);
    }
    return static_cast<Key>(descending ? ~key - zero_step<T> : key);
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
        key = static_cast<Key>(~(key + zero_step<T>));
    if constexpr (zero_step<T> != 0)
        key = static_cast<Key>(key >= sign - zero_step<T> ? key + zero_step<T> : key);
    if constexpr (!is_integer<T>)
        key = static_cast<Key>((key & sign) != 0 ? key ^ sign : ~key);
    else if constexpr (!is_unsigned<T>)
        key = static_cast<Key>(key ^ sign);
    return bit_cast<T>(key);
}

} // namespace tallow
