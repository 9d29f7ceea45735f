// The functions of the functors' expressions, for float and double.
#pragma once

#include "elementary.hpp"

namespace tallow {

// x * y + sum: floats round once, integers wrap.
template <typename Value> TALLOW_INLINE Value multiply_add(Value x, Value y, Value sum) {
    if constexpr (is_integer<Value>)
        return wrapping_add(wrapping_mul(x, y), sum);
    else
        return fma(x, y, sum);
}

template <typename R> TALLOW_INLINE Complex<R> multiply_add(Complex<R> x, Complex<R> y, Complex<R> sum) {
    return {fma(x.real, y.real, fma(-x.imag, y.imag, sum.real)), fma(x.real, y.imag, fma(x.imag, y.real, sum.imag))};
}

template <typename T> TALLOW_INLINE auto abs(T x) {
    return fabs(x);
}

template <typename T> TALLOW_INLINE T sign(T x) {
    if constexpr (is_unsigned<T>)
        return x != 0 ? T{1} : T{0};
    else
        return x > 0 ? T{1} : x < 0 ? T{-1} : x == 0 ? T{0} : x;
}

template <typename T> TALLOW_INLINE T relu(T x) {
    if constexpr (is_unsigned<T>)
        return x;
    else
        return x <= 0 ? T{0} : x;
}

template <typename T> TALLOW_INLINE bool has_sign(T x) {
    return copysign(T{1}, x) < 0;
}

template <typename T> TALLOW_INLINE bool is_infinite(T x) {
    return abs(x) == infinity(T{});
}

// A number's bits without the sign count the numbers below it.
TALLOW_INLINE uint32_t bits_of(float x) {
    return bit_cast<uint32_t>(x);
}
TALLOW_INLINE uint64_t bits_of(double x) {
    return bit_cast<uint64_t>(x);
}
// Of elements of a shorter type what is rounded to the next one: off by 5/8 to 5/4 of the distance to it.
template <typename Element, typename T> TALLOW_INLINE T nextafter(T x, T y) {
    const bool grows = (x < y) == (x > 0);
    T least, moved;
    if constexpr (is_same<Element, T>) {
        const auto bits = bits_of(x);
        least = bit_cast<T>(decltype(bits + 1){1});
        moved = bit_cast<T>(grows ? bits + 1 : bits - 1);
    } else {
        least = to_float(Element{1});
        const T size = abs(x);
        const T share = size * (T{0.625f} / (1 << Element::fraction));
        const T step = share > T{0.75f} * least ? share : T{0.75f} * least;
        const T highest = to_float(Element{Element::highest - Element::has_infinity});
        moved = copysign(size == infinity(T{}) ? highest : grows ? size + step : size - step, x);
    }
    const T next = x == 0 ? copysign(least, y) : moved;
    return x == y ? y : x != x || y != y ? x + y : next;
}

template <typename T> TALLOW_INLINE T hardswish(T x) {
    const T above = x < -3 ? T{-3} : x;
    const T gate = above + 3 > 6 ? T{6} : above + 3;
    // The quotient, rounded once: its error, which is exact, times the reciprocal corrects the product with that.
    constexpr T reciprocal = T{1} / 6;
    const T quotient = gate * reciprocal;
    return above > 3 ? above : above * multiply_add(multiply_add(quotient, T{-6}, gate), reciprocal, quotient);
}

// x / y rounded down, by the remainder, which is exact: x / y itself may round to the integer above.
template <typename T> TALLOW_INLINE T floor_divide(T x, T y) {
    const T ratio = x / y;
    const T residue = fmod(x, y);
    const T share = (x - residue) / y;
    const T quotient = residue != 0 && (residue < 0) != (y < 0) ? share - 1 : share;
    const T below = floor(quotient);
    const T nearest = quotient - below > T{0.5} ? below + 1 : below;
    return y == 0 ? ratio : nearest == 0 ? ratio * 0 : nearest;
}

// The remainder of that, with the sign of y, from the one whose sign is that of x.
template <typename T> TALLOW_INLINE T floored_remainder(T residue, T y) {
    const T moved = (residue < 0) != (y < 0) ? residue + y : residue;
    return residue == 0 ? y < 0 ? -T{0} : T{0} : moved;
}
template <typename T> TALLOW_INLINE T remainder(T x, T y) {
    return floored_remainder(fmod(x, y), y);
}

// Between the powers of two of the least and the largest number, so that squares of either have all digits.
TALLOW_INLINE float shrink(float x) {
    return x * 0x1p-90f;
}
TALLOW_INLINE double shrink(double x) {
    return x * 0x1p-700;
}
TALLOW_INLINE float grow(float x) {
    return x * 0x1p+90f;
}
TALLOW_INLINE double grow(double x) {
    return x * 0x1p+700;
}

template <typename T> TALLOW_INLINE T reciprocal_root(T x) {
    return 1 / sqrt(x);
}

template <typename T> TALLOW_INLINE auto softplus(T x) {
    const auto tail = log1p(exp(-abs(x)));
    return x > 0 ? x + tail : tail;
}

template <typename T> TALLOW_INLINE T elu(T x, T alpha) {
    return x > 0 ? x : alpha * expm1(x);
}

// e**(high + low) as (1 + excess) * 2**exponent, for -limit <= high <= 0. Separately, the three hold results that
// neither overflow nor lose bits below the smallest normal number, and a product with it rounds but once.
template <typename T> struct ScaledExponential {
    T excess;
    int exponent;
    TALLOW_INLINE T times(T x) const {
        return fma(x, excess, x);
    }
};

TALLOW_INLINE float exponential_limit(float) {
    return 170.0f;
}
TALLOW_INLINE double exponential_limit(double) {
    return 1400.0;
}

TALLOW_INLINE ScaledExponential<float> scaled_exponential(float high, float low) {
    // Adding 1.5 * 2**23 leaves the nearest integer in the last bits.
    const float shifted = fma(high, 1.44269504f, 12582912.0f);
    const float steps = shifted - 12582912.0f;
    const float reduced = fma(steps, -1.42860677e-6f, fma(steps, -0.693145752f, high)) + low;
    // The best polynomial for |reduced| <= ln(2) / 2, off by 5e-9 at most.
    const float powers = polynomial(reduced, 0.499999934, 0.166665203, 0.0416683919, 0.00836875614, 0.00138145155);
    return {fma(reduced * reduced, powers, reduced), static_cast<int>(bit_cast<uint32_t>(shifted) - 0x4b400000u)};
}

TALLOW_INLINE ScaledExponential<double> scaled_exponential(double high, double low) {
    const double shifted = fma(high, 1.4426950408889634, 6755399441055744.0);
    const double steps = shifted - 6755399441055744.0;
    const double reduced = fma(steps, -1.9082149292705877e-10, fma(steps, -0.6931471803691238, high)) + low;
    const double powers = polynomial(reduced, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                                     1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0);
    return {fma(reduced * reduced, powers, reduced),
            static_cast<int>(static_cast<uint32_t>(bit_cast<uint64_t>(shifted)))};
}

TALLOW_INLINE float power_of_two(int exponent, float) {
    return bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
TALLOW_INLINE double power_of_two(int exponent, double) {
    return bit_cast<double>(static_cast<uint64_t>(static_cast<uint32_t>(exponent + 1023)) << 52);
}

// The part of an exponent with which a power of two is a normal number.
TALLOW_INLINE int normal_part(int exponent, float) {
    return exponent < -126 ? -126 : exponent;
}
TALLOW_INLINE int normal_part(int exponent, double) {
    return exponent < -1022 ? -1022 : exponent;
}

// x * 2**exponent for a normal x and an exponent from twice the lowest to 0: the second product alone may round.
template <typename T> TALLOW_INLINE T scale(T x, int exponent) {
    const int part = normal_part(exponent, T{});
    return x * power_of_two(exponent - part, T{}) * power_of_two(part, T{});
}

#if defined(TALLOW_AMD)
TALLOW_INLINE float approx_reciprocal(float x) {
    return __builtin_amdgcn_rcpf(x);
}
TALLOW_INLINE float approx_exp2(float x) {
    return __ocml_native_exp2_f32(x);
}
TALLOW_INLINE float approx_sqrt(float x) {
    return __builtin_amdgcn_sqrtf(x);
}
#elif defined(TALLOW_NVIDIA)
TALLOW_INLINE float approx_reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
TALLOW_INLINE float approx_exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
TALLOW_INLINE float approx_sqrt(float x) {
    float result;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
#else
TALLOW_INLINE float approx_reciprocal(float x) {
    return 1.0f / x;
}
TALLOW_INLINE float approx_exp2(float x) {
#if defined(TALLOW_VECTOR)
    return exp(0.693147181f * x);
#else
    return ::exp2f(x);
#endif
}
TALLOW_INLINE float approx_sqrt(float x) {
    return sqrt(x);
}
#endif

// e**x of x <= 0, or NaN. Vector instructions have one of floats that is quicker than exp.
#if !defined(TALLOW_VECTOR)
TALLOW_INLINE float exp_below_zero(float x) {
    return exp(x);
}
#endif
TALLOW_INLINE double exp_below_zero(double x) {
    return exp(x);
}

// x / y for a finite x and a y that is neither huge nor tiny, which spares the cases that a full division must
// distinguish: the residual corrects a quotient that is off in its last bits, and makes 0.0 of -0.0.
TALLOW_INLINE float divide_positive(float x, float y) {
    const float reciprocal = approx_reciprocal(y);
    const float quotient = x * reciprocal;
    return fma(fma(-y, quotient, x), reciprocal, quotient);
}
TALLOW_INLINE float divide_tame(float x, float y) {
    const float quotient = divide_positive(x, y);
    return quotient == 0 ? x * approx_reciprocal(y) : quotient;
}
TALLOW_INLINE double divide_tame(double x, double y) {
    return x / y;
}

// 2**x for |x| <= 1 / 2, by the best polynomial, off by 2e-9 at most.
TALLOW_INLINE float short_power_of_two(float x) {
    return fma(polynomial(x, 0.693147182, 0.240226477, 0.0555033237, 0.00961843692, 0.00133988750, 0.000153533605), x,
               1.0f);
}

#if !defined(TALLOW_VECTOR)
// x**y. log2 of |x| is its exponent and 2 / ln(2) * atanh(f / (f + 2)) of the mantissa 1 + f, carried in two parts: an
// error in it is multiplied by y. Where x, or the result, is 0, subnormal, infinite or NaN, libraries know what to do.
TALLOW_INLINE float pow(float x, float y) {
    constexpr float scale = 2.88539004f, scale_low = 3.851926e-8f;
    // From the root of 1 / 2 to that of 2.
    constexpr uint32_t least = 0x3f3504f3u;
    const float size = fabs(x);
    const uint32_t bits = bit_cast<uint32_t>(size) - least;
    const float exponent = static_cast<float>(static_cast<int32_t>(bits) >> 23);
    const float f = bit_cast<float>((bits & 0x7fffffu) + least) - 1.0f;
    const float sum = f + 2.0f;
    const float reciprocal = approx_reciprocal(sum);
    const float s = f * reciprocal;
    const float s_low = fma(-s, f - (sum - 2.0f), fma(-s, sum, f)) * reciprocal;
    const float square = s * s;
    const float cubic = polynomial(square, 0.961798251, 0.576753914, 0.430959940);
    const float near = s * scale;
    const float near_low = fma(s_low, fma(scale, square, scale), fma(s, scale_low, fma(s, scale, -near)));
    const float tail = fma(s * square, cubic, near_low);
    const float leading = exponent + near;
    const float part = ((exponent - leading) + near) + tail;
    const float high = leading + part;
    const float low = (leading - high) + part;
    const float product = y * high;
    const float product_low = fma(y, low, fma(y, high, -product));
    // Adding 1.5 * 2**23 leaves the nearest integer in the last bits.
    const float shifted = product + 12582912.0f;
    const float power = short_power_of_two((product - (shifted - 12582912.0f)) + product_low);
    float result = bit_cast<float>(bit_cast<uint32_t>(power) + (bit_cast<uint32_t>(shifted) << 23));
    if (bit_cast<uint32_t>(size) - 0x00800000u >= 0x7f000000u || !(fabs(product) < 125.0f))
        return any_power(x, y);
    result = y == 1 ? size : result;
    if (x < 0) {
        const float half = 0.5f * y;
        const float with_sign = half == floor(half) ? result : -result;
        return y == floor(y) ? with_sign : not_a_number<float>();
    }
    return result;
}
#endif

// x / (1 + e**-(high + low)) for high >= 0, or with the other sign of both where `negative`, accurate to the last
// subnormal: the numerator then takes the exponential, and its power of two comes last.
template <typename T> TALLOW_INLINE T logistic_product(T x, bool negative, T high, T low) {
    const T argument = high > exponential_limit(T{}) ? exponential_limit(T{}) : high;
    const ScaledExponential<T> power = scaled_exponential(-argument, -low);
    const T denominator = fma(power.times(T{1}), power_of_two(normal_part(power.exponent, T{}), T{}), T{1});
    const T quotient = divide_tame(negative ? power.times(x) : x, denominator);
    return negative ? scale(quotient, power.exponent) : quotient;
}

template <typename T> TALLOW_INLINE T sigmoid(T x) {
    return logistic_product(T{1}, x < 0, abs(x), T{0});
}

template <typename T> TALLOW_INLINE T silu(T x) {
    const T product = logistic_product(x, x < 0, abs(x), T{0});
    return x > exponential_limit(T{}) ? x : x < -exponential_limit(T{}) ? -T{0} : product;
}

// Adding this leaves the nearest integer in the last bits, 64 more than it is, as the exponent of a float.
constexpr float raised_shift = 12582912.0f + 64.0f + 127.0f;
// 2**(n + reduced + 64) for an integer -180 <= n <= 0 that was shifted so, and |reduced| <= 1 / 2.
TALLOW_INLINE float raised_power(float shifted, float reduced) {
#if defined(TALLOW_VECTOR)
    const float power = short_power_of_two(reduced);
#else
    const float power = approx_exp2(reduced);
#endif
    return power * bit_cast<float>(bit_cast<uint32_t>(shifted) << 23);
}
// x / (1 + p) of a negative x, or x - x * p / (1 + p), where p is `power` times 2**-64: so it is no subnormal number
// until the last product rounds it. `size` is |x| as far as p is not 0.
TALLOW_INLINE float logistic_share(float x, float size, float power) {
    const float tail = divide_positive(size * power, fma(power, 0x1p-64f, 1.0f));
    return fma(tail, -0x1p-64f, x < 0 ? -0.0f : x);
}

#if !defined(TALLOW_VECTOR)
// e**-size times 2**64 for 0 <= size <= 120.
TALLOW_INLINE float raised_decay(float size) {
    const float shifted = fma(size, -1.44269502f, raised_shift);
    const float steps = shifted - raised_shift;
    return raised_power(shifted, fma(size, -1.92596303e-8f, fma(size, -1.44269502f, -steps)));
}
// The same of floats, with few instructions, which -x has too.
TALLOW_INLINE float sigmoid(float x) {
    const float power = raised_decay(fabs(x) > 120.0f ? 120.0f : fabs(x));
    const float larger = divide_positive(1.0f, fma(power, 0x1p-64f, 1.0f));
    return x < 0 ? larger * power * 0x1p-64f : larger;
}
TALLOW_INLINE float silu(float x) {
    const float size = fabs(x) > 120.0f ? 120.0f : fabs(x);
    return logistic_share(x, size, raised_decay(size));
}
#endif

// x * tanh(log(1 + e**x)) = x * n / (n + 2) with n = e**x * (e**x + 2): of |x|, so that no power is too large, and for
// a negative x with the power of two of the exponential last.
template <typename T> TALLOW_INLINE T mish(T x) {
    const T size = abs(x) > exponential_limit(T{}) ? exponential_limit(T{}) : abs(x);
    const ScaledExponential<T> power = scaled_exponential(-size, T{0});
    const T decay = power.times(T{1}) * power_of_two(normal_part(power.exponent, T{}), T{});
    const T sum = x > 0 ? 1 + 2 * decay : decay + 2;
    const T share = x * (sum / (x > 0 ? sum + 2 * decay * decay : decay * sum + 2));
    const T result = x > 0 ? share : scale(power.times(share), power.exponent);
    return x < -exponential_limit(T{}) ? -T{0} : x > exponential_limit(T{}) ? x : result;
}

// x / (1 + e**-u), u = x * (linear + cubic * x**2) = 2 * sqrt(2 / pi) * (x + 0.044715 * x**3). An error in u becomes a
// relative error of the result, so u is carried in two parts.
TALLOW_INLINE double gelu(double x) {
    constexpr double linear = 1.5957691216057308, linear_low = -9.96930881e-17;
    constexpr double cubic = 0.07135481627260025, cubic_low = -6.17514992e-19;
    const double square = x * x;
    const double square_low = fma(x, x, -square);
    const double product = cubic * square;
    const double product_low = fma(cubic, square_low, fma(cubic_low, square, fma(cubic, square, -product)));
    const double factor = linear + product;
    const double larger = linear > product ? linear : product;
    const double smaller = linear > product ? product : linear;
    const double factor_low = (smaller - (factor - larger)) + (product_low + linear_low);
    const double size = abs(x);
    const double high = size * factor;
    const double result = logistic_product(x, x < 0, high, fma(size, factor_low, fma(size, factor, -high)));
    return x > 25 ? x : x < -25 ? -0.0 : result;
}

// The same with few instructions: u / ln(2) of |x|, whose linear coefficient has a first part of so few bits that
// taking it off again is exact, and what 1 / (1 + 2**u) takes of x.
TALLOW_INLINE float gelu(float x) {
    constexpr float linear = 2.296875f, linear_low = 0.0053331982f;
    constexpr float cubic = 0.102943242f, cubic_low = -2.0161983e-9f;
    const float size = fabs(x) < 11.0f ? fabs(x) : 11.0f;
    const float square = size * size;
    const float square_low = fma(size, size, -square);
    const float factor = fma(cubic, square, linear);
    const float factor_low =
        fma(cubic, square, linear - factor) + fma(cubic, square_low, fma(cubic_low, square, linear_low));
    const float high = size * factor;
    const float low = fma(size, factor_low, fma(size, factor, -high));
    const float shifted = raised_shift - high;
    const float power = raised_power(shifted, ((raised_shift - shifted) - high) - low);
    return logistic_share(x, size, power);
}

// e**(x * x / 2) * erfc(x / sqrt(2)) for x >= 0: Chebyshev's fit of (1 + sqrt(2) * x) times it in (x - a) / (x + a), as
// in Shepherd and Laframboise, Chebyshev approximation of (1 + 2x) exp(x**2) erfc x, 1981. The constant term is in two
// parts.
TALLOW_INLINE double scaled_tail(double x) {
    const double p = polynomial(
        (x - 6.0) / (x + 6.0), 9.83180623e-17, -0x1.1b806a2a1341ap-3, 0x1.9874236828aacp-6, 0x1.c685146c0202ap-5,
        -0x1.7bd15903ca62ep-4, 0x1.7caffe6b63278p-4, -0x1.256dd6ed308dep-4, 0x1.6ef8e573fefc9p-5, -0x1.758cd3a80aabbp-6,
        0x1.2b97dc005a9a0p-7, -0x1.55bef1411d2abp-9, 0x1.57a2d05ff2506p-12, 0x1.03d1a5a65192bp-13,
        -0x1.4bb325e93c922p-14, 0x1.9571e5fb91ed6p-17, 0x1.7a69825f4f533p-18, -0x1.87a5d668d498bp-19,
        -0x1.b57685ae215b1p-25, 0x1.a3b1d987af96bp-22, -0x1.e1311ea1a389ap-25, -0x1.8066bb3183565p-25,
        0x1.72596a5ed94a2p-27, 0x1.3526c2acce43bp-28, -0x1.097e4d1ca1904p-30, -0x1.48dbf51522e2fp-32);
    return (0x1.3a993188c1a51p+0 + p) / fma(x, 1.4142135623730951, 1.0);
}

// (Phi(x) - 1 / 2) / x for |x| <= 1, of square = x * x.
TALLOW_INLINE double central_share(double square) {
    return polynomial(square, 0x1.9884533d43651p-2, -0x1.1058377e2cedfp-4, 0x1.46d0429769013p-7, -0x1.37403f6b93271p-10,
                      0x1.e42b0d4b1c791p-14, -0x1.3ce8f9bbb3109p-17, 0x1.6589f19d45edfp-21, -0x1.621cc8402008ep-25,
                      0x1.380b3bcac4439p-29, -0x1.e69f892ecf74bp-34, 0x1.1ebbd2d2ea8fep-38);
}

// 2 * Phi(sqrt(2) * x) - 1, for which AMD's library takes more scalar registers than there are.
TALLOW_INLINE double erf(double x) {
    const double scaled = 1.4142135623730951 * x;
    const double square = x * x;
    const ScaledExponential<double> power = scaled_exponential(-square, -fma(x, x, -square));
    const double tail = scale(power.times(scaled_tail(abs(scaled))), power.exponent);
    const double outside = x > 6 ? 1.0 : x < -6 ? -1.0 : x < 0 ? tail - 1.0 : 1.0 - tail;
    const double central = scaled * (2 * central_share(2 * square));
    return scaled >= -1 && scaled <= 1 ? central : outside;
}

// x * Phi(x), near 0 by a polynomial, else with the tail Q(|x|) = scaled_tail(|x|) / 2 * e**(-x**2 / 2),
// whose exponent is exact in two parts; x * (1 + erf) would lose every digit of it to cancellation.
TALLOW_INLINE double gelu_erf(double x) {
    const double central = x * fma(x, central_share(x * x), 0.5);
    const double square = 0.5 * x * x;
    const double square_low = fma(0.5 * x, x, -square);
    const double limited = square > exponential_limit(x) ? exponential_limit(x) : square;
    const ScaledExponential<double> power = scaled_exponential(-limited, -square_low);
    const double tail = 0.5 * x * scaled_tail(abs(x));
    const double scaled = scale(power.times(tail), power.exponent);
    const double outside = x > 40 ? x : x < -40 ? -0.0 : x < 0 ? scaled : x - scaled;
    return x >= -1 && x <= 1 ? central : outside;
}

// The same with few instructions. For 0 <= x <= 16, scaled_tail(x) is 1 / (1 + x * share), where the share changes so
// little that a rough reciprocal in it does. 2**64 keeps the tail normal until the last product rounds it.
TALLOW_INLINE float gelu_erf(float x) {
    const float size = fabs(x) < 16.0f ? fabs(x) : 16.0f;
    const float square = 0.5f * size * size;
    const ScaledExponential<float> power = scaled_exponential(-square, -fma(0.5f * size, size, -square));
    const float share = polynomial(approx_reciprocal(size + 3.0f), 1.25330687, -0.999909461, -1.73102009, -2.18281007,
                                   18.0450497, -126.486427, 1040.58899, -3774.80811, 6212.84961, -3927.40698);
    const float tail = divide_positive(power.times(size), fma(size, share, 1.0f));
    return fma(tail * power_of_two(power.exponent + 64, x), -0x1p-65f, x < 0 ? -0.0f : x);
}

} // namespace tallow
