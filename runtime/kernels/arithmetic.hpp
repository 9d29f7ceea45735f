// Integer arithmetic that wraps, and what minimum and maximum mean here.
#pragma once

#include "types.hpp"

namespace tallow {

// Signed overflow is undefined in C++, and even two uint16_t multiply as int: both are done in 32 or 64 unsigned bits.
template <uint32_t Bytes> struct WideUnsigned {
    using type = uint32_t;
};
template <> struct WideUnsigned<8> {
    using type = uint64_t;
};
template <typename T> using wide_unsigned = typename WideUnsigned<sizeof(T)>::type;

template <typename T> TALLOW_INLINE T wrapping_add(T x, T y) {
    return static_cast<T>(static_cast<wide_unsigned<T>>(x) + static_cast<wide_unsigned<T>>(y));
}
template <typename T> TALLOW_INLINE T wrapping_sub(T x, T y) {
    return static_cast<T>(static_cast<wide_unsigned<T>>(x) - static_cast<wide_unsigned<T>>(y));
}
template <typename T> TALLOW_INLINE T wrapping_mul(T x, T y) {
    return static_cast<T>(static_cast<wide_unsigned<T>>(x) * static_cast<wide_unsigned<T>>(y));
}
template <typename T> TALLOW_INLINE T wrapping_neg(T x) {
    return wrapping_sub(T{0}, x);
}
template <typename T> TALLOW_INLINE T wrapping_abs(T x) {
    if constexpr (is_unsigned<T>)
        return x;
    else
        return x < 0 ? wrapping_neg(x) : x;
}

// Truncates toward zero; x / 0 is 0 and MIN / -1 is MIN.
template <typename T> TALLOW_INLINE T divide_integers(T x, T y) {
    if (y == 0)
        return T{0};
    if constexpr (!is_unsigned<T>)
        if (y == T{-1})
            return wrapping_neg(x);
    return static_cast<T>(x / y);
}

// Rounds down; x // 0 is 0 and MIN // -1 is MIN.
template <typename T> TALLOW_INLINE T floor_divide_integers(T x, T y) {
    const T quotient = divide_integers(x, y);
    if constexpr (is_unsigned<T>)
        return quotient;
    else
        return y != 0 && (x < 0) != (y < 0) && wrapping_mul(quotient, y) != x ? static_cast<T>(quotient - 1) : quotient;
}
// The remainder of that, with the sign of y; x % 0 is 0.
template <typename T> TALLOW_INLINE T remainder_integers(T x, T y) {
    return y == 0 ? T{0} : wrapping_sub(x, wrapping_mul(floor_divide_integers(x, y), y));
}

// By squaring. Of a power below 0 what is left of 1 / x ** -y: 1 or -1 where x is one of them, else 0, as of 0.
template <typename T> TALLOW_INLINE T power_integers(T x, T y) {
    if constexpr (!is_unsigned<T>)
        if (y < 0)
            return x == 1 || (x == T{-1} && y % 2 == 0) ? T{1} : x == T{-1} ? T{-1} : T{0};
    T power{1};
    for (auto exponent = static_cast<wide_unsigned<T>>(y); exponent != 0; exponent >>= 1) {
        if (exponent % 2 != 0)
            power = wrapping_mul(power, x);
        x = wrapping_mul(x, x);
    }
    return power;
}

template <typename T> TALLOW_INLINE T bitwise_and(T x, T y) {
    return static_cast<T>(x & y);
}
template <typename T> TALLOW_INLINE T bitwise_or(T x, T y) {
    return static_cast<T>(x | y);
}
template <typename T> TALLOW_INLINE T bitwise_xor(T x, T y) {
    return static_cast<T>(x ^ y);
}
template <typename T> TALLOW_INLINE T bitwise_invert(T x) {
    return static_cast<T>(~x);
}
// As NumPy's: a shift by the width or more drops all bits, and a sign stays. A negative shift is a large unsigned one.
template <typename T> TALLOW_INLINE T bitwise_left_shift(T x, T y) {
    const auto shift = static_cast<wide_unsigned<T>>(y);
    return shift < 8 * sizeof(T) ? static_cast<T>(static_cast<wide_unsigned<T>>(x) << shift) : T{0};
}
template <typename T> TALLOW_INLINE T bitwise_right_shift(T x, T y) {
    const auto shift = static_cast<wide_unsigned<T>>(y);
    if constexpr (is_unsigned<T>)
        return shift < 8 * sizeof(T) ? static_cast<T>(x >> shift) : T{0};
    else
        return static_cast<T>(x >> (shift < 8 * sizeof(T) ? shift : 8 * sizeof(T) - 1));
}

TALLOW_INLINE float infinity(float) {
    return bit_cast<float>(0x7f800000u);
}
TALLOW_INLINE double infinity(double) {
    return bit_cast<double>(uint64_t{0x7ff0000000000000u});
}

TALLOW_INLINE float not_a_number() {
    return bit_cast<float>(0x7fc00000u);
}

// The literals inf and nan of expressions, in the type in which these are computed.
template <typename T> TALLOW_INLINE T infinity() {
    return static_cast<T>(infinity(float{}));
}
template <typename T> TALLOW_INLINE T not_a_number() {
    return static_cast<T>(not_a_number());
}

// NaN wins: of two operands the first NaN. Of 0.0 and -0.0 the second operand.
template <typename T> TALLOW_INLINE T minimum(T x, T y) {
    if constexpr (is_integer<T>)
        return y < x ? y : x;
    else {
        const T less = x < y ? x : y;
        return x != x ? x : less;
    }
}
template <typename T> TALLOW_INLINE T maximum(T x, T y) {
    if constexpr (is_integer<T>)
        return y > x ? y : x;
    else {
        const T more = x > y ? x : y;
        return x != x ? x : more;
    }
}

// The sum in a compute type, where integers wrap.
template <typename T> TALLOW_INLINE T add(T x, T y) {
    if constexpr (is_integer<T>)
        return wrapping_add(x, y);
    else
        return x + y;
}

// The highest and the lowest value of a compute type.
template <typename Value> TALLOW_INLINE Value highest() {
    if constexpr (is_integer<Value>)
        return Traits<Value>::highest;
    else
        return infinity(Value{});
}
template <typename Value> TALLOW_INLINE Value lowest() {
    if constexpr (is_integer<Value>)
        return Traits<Value>::lowest;
    else
        return -infinity(Value{});
}

} // namespace tallow
