// The C++ types of elements that the language lacks, and the parts of the traits of element types.
#pragma once

#include "platform.hpp"

namespace tallow {

// Truth values from outside may be other bytes than 0 and 1, which are undefined in C++'s own type; they are True.
struct boolean {
    uint8_t bits;
};

// What a float of 8 or 16 bits has besides finite numbers, in LLVM's words: infinities and NaNs as in IEEE 754; one NaN
// of each sign, the last code (fn); one NaN, instead of -0.0 (fnuz).
enum class Specials : uint8_t { ieee, fn, fnuz };

template <uint32_t Bits> struct UnsignedOf;
template <> struct UnsignedOf<8> {
    using type = uint8_t;
};
template <> struct UnsignedOf<16> {
    using type = uint16_t;
};

// A float of 8 or 16 bits, by its bits of exponent and fraction. Compilers name half and bfloat differently, so these
// types are bits with conversions of our own.
template <uint32_t Exponent, uint32_t Fraction, uint32_t Bias = (1u << (Exponent - 1)) - 1,
          Specials Kind = Specials::ieee>
struct SmallFloat {
    using Bits = typename UnsignedOf<1 + Exponent + Fraction>::type;
    static constexpr uint32_t exponent = Exponent;
    static constexpr uint32_t fraction = Fraction;
    static constexpr uint32_t bias = Bias;
    static constexpr Specials specials = Kind;
    static constexpr bool has_infinity = Kind == Specials::ieee;
    static constexpr uint32_t sign = 1u << (Exponent + Fraction);
    // The code of infinity, or of the largest number.
    static constexpr uint32_t highest = sign - (has_infinity ? 1u << Fraction : Kind == Specials::fn ? 2u : 1u);
    static constexpr uint32_t nan = Kind == Specials::fnuz ? sign : sign - 1;
    Bits bits;
};
using f16 = SmallFloat<5, 10>;
using bf16 = SmallFloat<8, 7>;

template <typename T> constexpr bool is_small_float = false;
template <uint32_t Exponent, uint32_t Fraction, uint32_t Bias, Specials Kind>
constexpr bool is_small_float<SmallFloat<Exponent, Fraction, Bias, Kind>> = true;
// Whether matrix cores multiply them, as the spec says.
template <typename T> constexpr bool is_multiplicand = false;
// Whether bf16 has all of their numbers.
template <typename T> constexpr bool is_within_bf16 = false;
template <uint32_t Exponent, uint32_t Fraction, uint32_t Bias, Specials Kind>
constexpr bool is_within_bf16<SmallFloat<Exponent, Fraction, Bias, Kind>> = Exponent < 8 && Fraction <= bf16::fraction;
// Whether their significands have at most 11 bits, and whether all of them are below 2**16.
template <typename T> constexpr bool has_fast_math = false;
template <uint32_t Exponent, uint32_t Fraction, uint32_t Bias, Specials Kind>
constexpr bool has_fast_math<SmallFloat<Exponent, Fraction, Bias, Kind>> = Fraction <= f16::fraction;
template <typename T> constexpr bool is_bounded = (1u << T::exponent) - T::bias - T::has_infinity <= 16;
// Whether f32 has the squares of all of them, and sums of many squares.
template <typename T> constexpr bool has_squares = false;
template <uint32_t Exponent, uint32_t Fraction, uint32_t Bias, Specials Kind>
constexpr bool has_squares<SmallFloat<Exponent, Fraction, Bias, Kind>> =
    (1u << Exponent) - Bias <= 40 && Bias + Fraction <= 64;

// Two numbers side by side. Memory of the host may be aligned as these are, that of a GPU is as both together.
#if defined(TALLOW_HOST)
template <typename R> constexpr uint32_t pair_alignment = sizeof(R);
#else
template <typename R> constexpr uint32_t pair_alignment = 2 * sizeof(R);
#endif

// Sixteen bytes that are only moved.
struct alignas(pair_alignment<uint64_t>) bits128 {
    uint64_t low;
    uint64_t high;
};

// A complex number, with the operators of floats; a real number is one too.
template <typename R> struct alignas(pair_alignment<R>) Complex {
    R real;
    R imag;

    Complex() = default;
    constexpr TALLOW_INLINE Complex(R real, R imag = 0) : real(real), imag(imag) {
    }
    template <typename Other>
    constexpr TALLOW_INLINE explicit Complex(Complex<Other> z)
        : real(static_cast<R>(z.real)), imag(static_cast<R>(z.imag)) {
    }

    friend TALLOW_INLINE Complex operator+(Complex x, Complex y) {
        return {x.real + y.real, x.imag + y.imag};
    }
    friend TALLOW_INLINE Complex operator-(Complex x, Complex y) {
        return {x.real - y.real, x.imag - y.imag};
    }
    friend TALLOW_INLINE Complex operator-(Complex x) {
        return {-x.real, -x.imag};
    }
    friend TALLOW_INLINE Complex operator*(Complex x, Complex y) {
        return {x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real};
    }
    // By Smith 1962: no square overflows. x / 0 has the parts of x over 0.
    friend TALLOW_INLINE Complex operator/(Complex x, Complex y) {
        const R wide = y.real < 0 ? -y.real : y.real;
        const R high = y.imag < 0 ? -y.imag : y.imag;
        if (wide == 0 && high == 0)
            return {x.real / wide, x.imag / wide};
        if (wide >= high) {
            const R ratio = y.imag / y.real;
            const R scale = 1 / (y.real + y.imag * ratio);
            return {(x.real + x.imag * ratio) * scale, (x.imag - x.real * ratio) * scale};
        }
        const R ratio = y.real / y.imag;
        const R scale = 1 / (y.imag + y.real * ratio);
        return {(x.real * ratio + x.imag) * scale, (x.imag * ratio - x.real) * scale};
    }
    TALLOW_INLINE Complex& operator+=(Complex y) {
        return *this = *this + y;
    }
    friend TALLOW_INLINE bool operator==(Complex x, Complex y) {
        return x.real == y.real && x.imag == y.imag;
    }
    friend TALLOW_INLINE bool operator!=(Complex x, Complex y) {
        return !(x == y);
    }
};
using complex64 = Complex<float>;
using complex128 = Complex<double>;

template <typename T> constexpr bool is_complex = false;
template <typename R> constexpr bool is_complex<Complex<R>> = true;

// The type of the parts of a complex number; any other type itself.
template <typename T> struct RealOf {
    using type = T;
};
template <typename R> struct RealOf<Complex<R>> {
    using type = R;
};
template <typename T> using real_of = typename RealOf<T>::type;

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
template <typename R> struct Traits<Complex<R>> : FloatTraits<Complex<R>> {};

} // namespace tallow
