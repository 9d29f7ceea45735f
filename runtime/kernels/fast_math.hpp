// The argument of functors of types with at most 11 bits: a float, with functions that are accurate to 14 bits and
// as quick as memory. Every other function takes it for the float that it is.
#pragma once

#include "math.hpp"

namespace tallow {

// Bounded says that the number is below 1e5, as those of f16 and of 8 bits all are.
template <bool Bounded> struct FastMath {
    float value;
    TALLOW_INLINE explicit FastMath(float x) : value(x) {
    }
    TALLOW_INLINE operator float() const {
        return value;
    }
};
template <bool Bounded> struct Traits<FastMath<Bounded>> : FloatTraits<float> {};

// A number that was computed of elements of T, as the argument of functions: unchanged, but for bf16. Where such
// functions are subtracted from each other, f16 would see what they lack.
template <typename T> struct FastMathOf {
    using type = compute_type<T>;
};
template <> struct FastMathOf<FastMath<false>> {
    using type = FastMath<false>;
};
// In rows, where elements are not passed as such, f16 takes the quick exponentials below 0 alone: sums of them are no
// differences.
struct BelowZero {
    float value;
    TALLOW_INLINE explicit BelowZero(float x) : value(x) {
    }
    TALLOW_INLINE operator float() const {
        return value;
    }
};
template <> struct FastMathOf<bf16> {
    using type = FastMath<false>;
};
template <> struct FastMathOf<f16> {
    using type = BelowZero;
};
template <typename T, typename Number> TALLOW_INLINE auto fast_math(Number x) {
    return static_cast<typename FastMathOf<T>::type>(x);
}

template <bool Bounded> TALLOW_INLINE bool is_infinite(FastMath<Bounded> x) {
    return is_infinite(x.value);
}

// 1 / (1 + s * s) with s = e**(-|x| / 2), or s * s times that: so it is 1 exactly where f32 has it so, and what is left
// of it, which decides the sign of an infinite gradient, takes the same functions.
template <bool Bounded> TALLOW_INLINE float sigmoid(FastMath<Bounded> x) {
    const float root = approx_exp2(fabs(x.value) * -0.72134752f);
    const float larger = approx_reciprocal(fma(root, root, 1.0f));
    return x.value < 0.0f ? root * (root * larger) : larger;
}

// x / (1 + e**-x) = (x * s / (1 + s * s)) * s with s = e**(x / 2): neither factor overflows, and a subnormal result
// comes of the last product alone. Beyond x = 20 nothing changes any more.
template <bool Bounded> TALLOW_INLINE float silu(FastMath<Bounded> x) {
    const float root = approx_exp2((x.value > 20.0f ? 20.0f : x.value) * 0.72134752f);
    const float product = x.value * (root * approx_reciprocal(fma(root, root, 1.0f))) * root;
    return x.value < -170.0f ? -0.0f : product;
}

TALLOW_INLINE float exp_below_zero(BelowZero x) {
    return approx_exp2(x.value * 1.44269504f);
}
template <bool Bounded> TALLOW_INLINE float exp_below_zero(FastMath<Bounded> x) {
    return exp_below_zero(BelowZero(x.value));
}

// x * n / (n + 2), as in math.hpp, with the root of the exponential as above.
template <bool Bounded> TALLOW_INLINE float mish(FastMath<Bounded> x) {
    const float root = approx_exp2((x.value > 20.0f ? 20.0f : x.value) * 0.72134752f);
    const float power = root * root;
    const float share = (power + 2.0f) * approx_reciprocal(fma(power, power + 2.0f, 2.0f));
    const float product = x.value * (root * share) * root;
    return x.value < -170.0f ? -0.0f : product;
}

template <bool Bounded> TALLOW_INLINE float sqrt(FastMath<Bounded> x) {
    return approx_sqrt(x.value);
}

template <bool Bounded> TALLOW_INLINE float reciprocal_root(FastMath<Bounded> x) {
    return rsqrt(x.value);
}

// The sigmoid is the one that the gradient takes.
template <bool Bounded> TALLOW_INLINE float gelu(FastMath<Bounded> x) {
    const float u = x.value * (1.59576912f + 0.071354816f * (x.value * x.value));
    const float product = x.value * sigmoid(FastMath<Bounded>(u));
    return x.value < -25.0f ? -0.0f : product;
}

template <bool Bounded> TALLOW_INLINE float gelu_erf(FastMath<Bounded> x) {
    const float size = fabs(x.value);
    const float p = polynomial((size - 4.0f) * approx_reciprocal(size + 4.0f), 1.25694307, -0.13235234, -0.0630292888,
                               0.14023837, -0.118761746, 0.0579988035, -0.0109744352, -0.00169484415);
    const float root = approx_exp2(x.value * x.value * -0.36067376f);
    const float tail = 0.5f * x.value * (p * approx_reciprocal(fma(size, 1.41421356f, 1.0f)) * root) * root;
    const float result = x.value <= 0.0f ? tail : x.value - tail;
    return size > 40.0f ? (x.value < 0.0f ? -0.0f : x.value) : result;
}

// |x|**y as the square of |x|**(y / 2), which does not underflow unless the result does. An infinite y is even.
template <bool Bounded> TALLOW_INLINE float pow(FastMath<Bounded> x, float y) {
    const float size = fabs(x.value);
    const float half = 0.5f * y;
    const bool is_integer = floor(y) == y;
    const bool is_odd = is_integer && floor(half) != half;
    const float root = approx_exp2(size == 1.0f && y == y ? 0.0f : half * log2(size));
    const float power = is_odd && bit_cast<int32_t>(x.value) < 0 ? -(root * root) : root * root;
    const bool is_complex = x.value < 0 && size < infinity(float{}) && !is_integer;
    return x.value == 1.0f || y == 0 ? 1.0f : is_complex ? not_a_number() : power;
}

// The absolute value of the remainder of x / y, for quotients below 2**21, by a rough reciprocal of y. Every step is
// exact, except that the quotient may be one too small or too large.
TALLOW_INLINE float fast_remainder(float x, float y, float reciprocal) {
    float result = fma(-floor(x * reciprocal), y, x);
    result = result < 0.0f ? result + y : result;
    return result >= y ? result - y : result;
}
// In two steps, since the quotient of two numbers of f16 may have 41 bits.
TALLOW_INLINE float fmod(FastMath<true> x, FastMath<true> y) {
    const float size = fabs(x.value);
    const float divisor = fabs(y.value);
    const float reciprocal = approx_reciprocal(divisor);
    const float large = fast_remainder(size, divisor * 0x1p20f, reciprocal * 0x1p-20f);
    const float remainder = fast_remainder(large, divisor, reciprocal);
    const float result = divisor == infinity(float{}) && size < divisor ? size : remainder;
    return bit_cast<int32_t>(x.value) < 0 ? -result : result;
}
// The quotient of two numbers of bf16 may have hundreds of bits, but seldom has more than 20.
TALLOW_INLINE float fmod(FastMath<false> x, FastMath<false> y) {
    const float size = fabs(x.value);
    const float divisor = fabs(y.value);
    const float reciprocal = approx_reciprocal(divisor);
    if (divisor > 0x1p-64f && divisor < 0x1p64f && size * reciprocal < 0x1p20f) {
        const float remainder = fast_remainder(size, divisor, reciprocal);
        return bit_cast<int32_t>(x.value) < 0 ? -remainder : remainder;
    }
    return fmod(x.value, y.value);
}
template <bool Bounded> TALLOW_INLINE float remainder(FastMath<Bounded> x, FastMath<Bounded> y) {
    return floored_remainder(fmod(x, y), y.value);
}

// sin(x + Quarters * pi / 2) of a bounded x: the nearest multiple of pi is taken off in two steps, which leaves 18 bits
// of even the number of f16 that comes nearest to one; then a polynomial does.
template <int Quarters> TALLOW_INLINE float fast_sine(float x) {
    const float half_turns = Quarters == 0 ? x * 0.318309886f : fma(x, 0.318309886f, 0.5f * Quarters);
    // Adding 1.5 * 2**23 leaves the nearest integer in the last bits.
    const float shifted = half_turns + 12582912.0f;
    const float turns = shifted - 12582912.0f - 0.5f * Quarters;
    const float reduced = fma(-turns, 1.509958e-07f, fma(-turns, 3.1415925f, x));
    const float square = reduced * reduced;
    const float sine = reduced * polynomial(square, 1.0, -0.16665925, 0.0083152121, -0.00018569377);
    return bit_cast<uint32_t>(shifted) & 1 ? -sine : sine;
}
TALLOW_INLINE float sin(FastMath<true> x) {
    return fast_sine<0>(x.value);
}
TALLOW_INLINE float cos(FastMath<true> x) {
    return fast_sine<1>(x.value);
}

} // namespace tallow
