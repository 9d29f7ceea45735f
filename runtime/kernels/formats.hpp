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

// Of short floats the bits of the fraction, and those of the largest number that is finite.
template <typename T> constexpr uint32_t fraction_of = T::fraction;
template <> inline constexpr uint32_t fraction_of<bf16> = 7;
template <> inline constexpr uint32_t fraction_of<f16> = 10;
template <typename T> constexpr uint8_t highest_bits = T::highest - T::has_infinity;
template <> inline constexpr uint16_t highest_bits<bf16> = 0x7f7f;
template <> inline constexpr uint16_t highest_bits<f16> = 0x7bff;

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
