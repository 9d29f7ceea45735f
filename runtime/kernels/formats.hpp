// The C++ types of elements that the language lacks, and what the traits of element types are made of.
#pragma once

#include "platform.hpp"

namespace tallow {

// Truth values from outside may be other bytes than 0 and 1, which are undefined in C++'s own type; they are True.
struct boolean {
    uint8_t bits;
};

// Compilers name half and bfloat differently, so these types are bits with conversions of our own.
struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};
// Floats of 8 bits: so many of them are the fraction. Where there is no infinity, the last number is NaN.
template <uint32_t Fraction, bool HasInfinity> struct Float8 {
    static constexpr uint32_t fraction = Fraction;
    static constexpr bool has_infinity = HasInfinity;
    static constexpr uint32_t bias = (1u << (6 - Fraction)) - 1;
    // The bits of infinity, or of the largest number.
    static constexpr uint32_t highest = HasInfinity ? 0x80u - (1u << Fraction) : 0x7eu;
    uint8_t bits;
};
using f8e4m3 = Float8<3, false>;
using f8e5m2 = Float8<2, true>;

// What kernels know of the type of an element. The dtypes have theirs in dtypes.hpp; what is no dtype's is only moved.
template <typename T> struct Traits {
    using compute = T;
};
template <typename T, typename Compute, typename Wrap, bool Signed> struct IntegerTraits {
    using compute = Compute;
    using wrap = Wrap;
    static constexpr bool is_integer = true;
    static constexpr bool is_unsigned = !Signed;
    static constexpr T highest = static_cast<T>(static_cast<Wrap>(~Wrap{0}) >> (Signed ? 1 : 0));
    static constexpr T lowest = Signed ? static_cast<T>(-highest - 1) : T{0};
};
template <typename Compute> struct TruthTraits {
    using compute = Compute;
    static constexpr bool is_integer = true;
    static constexpr bool is_unsigned = true;
};
template <typename Compute> struct FloatTraits {
    using compute = Compute;
    static constexpr bool is_integer = false;
    static constexpr bool is_unsigned = false;
};

} // namespace tallow
