// Every conversion between the element types.
#pragma once

#include "dtypes.hpp"

namespace tallow {

// The type in which arithmetic on T is done.
template <typename T> using compute_type = typename Traits<T>::compute;
template <typename T> constexpr bool is_integer = Traits<T>::is_integer;
template <typename T> constexpr bool is_unsigned = Traits<T>::is_unsigned;

template <typename A, typename B> constexpr bool is_same = false;
template <typename A> constexpr bool is_same<A, A> = true;

template <uint32_t Exponent, uint32_t Fraction, uint32_t Bias, Specials Kind>
TALLOW_INLINE float to_float(SmallFloat<Exponent, Fraction, Bias, Kind> value) {
    using From = SmallFloat<Exponent, Fraction, Bias, Kind>;
    const uint32_t magnitude = value.bits & (From::sign - 1);
    const uint32_t sign = static_cast<uint32_t>(value.bits & From::sign) << (31 - Exponent - Fraction);
    // Where the exponent field is 0, the resulting float is subnormal: the product is exact all the same.
    const float scale = bit_cast<float>((254u - Bias) << 23);
    const uint32_t scaled = bit_cast<uint32_t>(bit_cast<float>(magnitude << (23 - Fraction)) * scale);
    const uint32_t special = From::has_infinity ? scaled | 0x7f800000u : 0x7fc00000u;
    const bool is_special =
        Kind == Specials::fnuz ? value.bits == From::nan : magnitude >= From::highest + !From::has_infinity;
    return bit_cast<float>((is_special ? special : scaled) | sign);
}

TALLOW_INLINE float to_float(bf16 value) {
    return bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

#if defined(TALLOW_AMD) || defined(TALLOW_VECTOR)
TALLOW_INLINE float to_float(f16 value) {
    return static_cast<float>(bit_cast<_Float16>(value.bits));
}
#elif defined(TALLOW_NVIDIA)
TALLOW_INLINE float to_float(f16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
#endif

// The bits of the nearest float of 8 or 16 bits.
template <typename To> TALLOW_INLINE uint32_t small_float_bits(float value) {
    constexpr uint32_t lost = 23 - To::fraction;
    constexpr uint32_t rebias = (127 - To::bias) << 23;
    // Half a unit below infinity, numbers round to it. Without an infinity, the largest number is the last one.
    constexpr uint32_t limit = (To::highest << lost) + rebias - (To::has_infinity ? 1u << (lost - 1) : 0u);
    const uint32_t bits = bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> (31 - To::exponent - To::fraction) & To::sign;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Below the normal numbers the float adder rounds to a multiple of the least one. Selects, not branches: lanes
    // differ.
    constexpr uint32_t adder = (151 - To::bias - To::fraction) << 23;
    const uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude) + bit_cast<float>(adder)) - adder;
    const uint32_t normal = (magnitude - rebias + (1u << (lost - 1)) - 1 + (magnitude >> lost & 1u)) >> lost;
    const uint32_t finite = magnitude < (128 - To::bias) << 23 ? subnormal : normal;
    const uint32_t bounded = magnitude >= limit ? To::highest : finite;
    if constexpr (To::specials == Specials::fnuz)
        return magnitude > 0x7f800000u ? To::nan : bounded == 0 ? 0u : bounded | sign;
    else
        return (magnitude > 0x7f800000u ? To::nan : bounded) | sign;
}

template <typename To> TALLOW_INLINE To round_from(float value) {
#if defined(TALLOW_HAS_F8_CONVERSIONS)
    if constexpr (is_same<To, SmallFloat<4, 3, 7, Specials::fn>>) {
        uint16_t pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
        return {static_cast<uint8_t>(pair)};
    } else
#endif
        return {static_cast<typename To::Bits>(small_float_bits<To>(value))};
}

template <> TALLOW_INLINE float round_from<float>(float value) {
    return value;
}

#if defined(TALLOW_AMD)
template <> TALLOW_INLINE f16 round_from<f16>(float value) {
    // After this a product cannot be fused with its conversion: LLVM would add 0.0 to it, which makes 0.0 of -0.0.
    asm("" : "+v"(value));
    return {bit_cast<uint16_t>(static_cast<_Float16>(value))};
}
#elif defined(TALLOW_HAS_PAIR_CONVERSIONS)
template <> TALLOW_INLINE f16 round_from<f16>(float value) {
    // Pairs are converted at several times the rate of single numbers.
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
    return {static_cast<uint16_t>(pair)};
}
#elif defined(TALLOW_VECTOR)
template <> TALLOW_INLINE f16 round_from<f16>(float value) {
    return {bit_cast<uint16_t>(static_cast<_Float16>(value))};
}
#endif

template <> TALLOW_INLINE bf16 round_from<bf16>(float value) {
#if defined(TALLOW_HAS_PAIR_CONVERSIONS)
    uint32_t pair;
    // In the upper half, which is the float that it stands for: to_float takes no instruction.
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value), "f"(0.0f));
    __builtin_assume((pair & 0xffffu) == 0);
    return {static_cast<uint16_t>(pair >> 16)};
#else
    const uint32_t bits = bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return {static_cast<uint16_t>(value == value ? rounded : 0x7fc0u)};
#endif
}

// Two numbers of 16 bits in a word, the first one in its lower half.
template <typename To> TALLOW_INLINE uint32_t round_pair(float low, float high) {
#if defined(TALLOW_HAS_PAIR_CONVERSIONS)
    uint32_t pair;
    if constexpr (is_same<To, bf16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    } else if constexpr (is_same<To, f16>) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    } else
#endif
        return round_from<To>(low).bits | static_cast<uint32_t>(round_from<To>(high).bits) << 16;
}

// To the float next to zero, its last bit set if that lost anything: rounding such a float once more is as good as
// rounding the double once.
TALLOW_INLINE float round_to_odd(double value) {
    const float nearest = static_cast<float>(value);
    const double back = static_cast<double>(nearest);
    if (!(back < value || back > value))
        return nearest;
    const uint32_t bits = bit_cast<uint32_t>(nearest);
    const bool away = value > 0 ? back > value : back < value;
    return bit_cast<float>((away ? bits - 1u : bits) | 1u);
}

// Exact but for a last bit that says that lower ones were lost, which is enough for the types of 11 bits and less.
template <typename T> TALLOW_INLINE double sticky_double(T value) {
    const bool is_negative = !is_unsigned<T> && value < T{0};
    const uint64_t magnitude = is_negative ? 0u - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    const uint64_t upper = magnitude >> 16 | ((magnitude & 0xffffu) != 0 ? 1u : 0u);
    const double size = magnitude >> 48 ? static_cast<double>(upper) * 65536.0 : static_cast<double>(magnitude);
    return is_negative ? -size : size;
}

template <typename To, typename From> TALLOW_INLINE To truncate_saturated(From value) {
    using Bounds = Traits<To>;
    // The bound above is exact in every float type as a power of two, the highest integer itself is not.
    constexpr From above = static_cast<From>(Bounds::highest / 2 + 1) * From{2};
    if (value != value)
        return To{0};
    if (value >= above)
        return Bounds::highest;
    if (value <= static_cast<From>(Bounds::lowest))
        return Bounds::lowest;
    return static_cast<To>(value);
}

// One conversion, rounded once: what to_dtype does. Float to integer truncates and saturates, NaN to 0; integer to
// integer wraps; to a float rounds to nearest even; to a truth value is whether it is not 0; real to
// complex has no imaginary part.
template <typename To, typename From> TALLOW_INLINE To convert(From value) {
    if constexpr (is_same<To, From>)
        return value;
    else if constexpr (is_complex<From> && is_complex<To>)
        return static_cast<To>(value);
    else if constexpr (is_small_float<From>)
        return convert<To>(to_float(value));
    else if constexpr (is_same<From, boolean>)
        return convert<To>(static_cast<uint8_t>(value.bits != 0));
    else if constexpr (is_same<To, boolean>)
        return {static_cast<uint8_t>(value != From{0})};
    else if constexpr (is_complex<To>)
        return To(convert<real_of<To>>(value));
    else if constexpr (is_integer<To> && is_integer<From>)
        return static_cast<To>(static_cast<typename Traits<To>::wrap>(value));
    else if constexpr (is_integer<To>)
        return truncate_saturated<To>(value);
    else if constexpr (!is_small_float<To>)
        return static_cast<To>(value);
    else if constexpr (is_same<From, float>)
        return round_from<To>(value);
    else if constexpr (is_same<From, double>)
        return round_from<To>(round_to_odd(value));
    else if constexpr (sizeof(From) <= 2)
        return round_from<To>(static_cast<float>(value));
    else if constexpr (sizeof(From) == 4)
        return round_from<To>(round_to_odd(static_cast<double>(value)));
    else
        return round_from<To>(round_to_odd(sticky_double(value)));
}

template <typename T> TALLOW_INLINE compute_type<T> to_compute(T value) {
    return convert<compute_type<T>>(value);
}

} // namespace tallow
