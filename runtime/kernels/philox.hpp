// Words from Philox 4x32-10, a counter-based generator, and random numbers from them: Salmon, Moraes,
// Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
#pragma once

#include "math.hpp"

namespace tallow {

struct Words {
    uint32_t values[4];
};

// One instruction on NVIDIA's GPUs, where the compiler makes more of a product with a constant of 32 bits.
TALLOW_INLINE uint64_t multiply_wide(uint32_t x, uint32_t y) {
#if defined(TALLOW_NVIDIA)
    uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(x), "r"(y));
    return product;
#else
    return uint64_t{x} * y;
#endif
}

// The upper half of a product of 128 bits.
TALLOW_INLINE uint64_t multiply_high(uint64_t x, uint64_t y) {
    const uint32_t x_low = static_cast<uint32_t>(x), x_high = static_cast<uint32_t>(x >> 32);
    const uint32_t y_low = static_cast<uint32_t>(y), y_high = static_cast<uint32_t>(y >> 32);
    const uint64_t first = multiply_wide(x_high, y_low) + (multiply_wide(x_low, y_low) >> 32);
    const uint64_t second = multiply_wide(x_low, y_high) + static_cast<uint32_t>(first);
    return multiply_wide(x_high, y_high) + (first >> 32) + (second >> 32);
}

TALLOW_INLINE Words philox(uint64_t seed, uint64_t block) {
    uint32_t key_low = static_cast<uint32_t>(seed);
    uint32_t key_high = static_cast<uint32_t>(seed >> 32);
    Words words = {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}};
#pragma unroll
    for (uint32_t round = 0; round < 10; ++round) {
        const uint64_t first = multiply_wide(0xd2511f53u, words.values[0]);
        const uint64_t second = multiply_wide(0xcd9e8d57u, words.values[2]);
        words = {{static_cast<uint32_t>(second >> 32) ^ words.values[1] ^ key_low, static_cast<uint32_t>(second),
                  static_cast<uint32_t>(first >> 32) ^ words.values[3] ^ key_high, static_cast<uint32_t>(first)}};
        key_low += 0x9e3779b9u;
        key_high += 0xbb67ae85u;
    }
    return words;
}

// A number in [0, 1) of 24 bits from a word, of 53 bits from two.
TALLOW_INLINE float unit_float(uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24f;
}
TALLOW_INLINE double unit_double(uint32_t even, uint32_t odd) {
    return (static_cast<double>(even >> 5) * 0x1p26 + static_cast<double>(odd >> 6)) * 0x1p-53;
}

// How many elements a block of four words gives, and what they are before scaling.
template <typename T> constexpr uint32_t elements_per_block = sizeof(T) == 8 ? 2 : 4;

TALLOW_INLINE void uniform_units(const Words& words, float (&units)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
        units[i] = unit_float(words.values[i]);
}
TALLOW_INLINE void uniform_units(const Words& words, double (&units)[2]) {
    units[0] = unit_double(words.values[0], words.values[1]);
    units[1] = unit_double(words.values[2], words.values[3]);
}

// Box and Muller, A note on the generation of random normal deviates, 1958; the first unit is taken from 1 to avoid 0.
TALLOW_INLINE void box_muller(double first, double second, double* pair) {
    const double radius = sqrt(-2.0 * log(1.0 - first));
    pair[0] = radius * cospi(2.0 * second);
    pair[1] = radius * sinpi(2.0 * second);
}

// 1 / sqrt(x) of a normal number, to about 22 bits.
TALLOW_INLINE float approx_inverse_root(float x) {
#if defined(TALLOW_AMD)
    return __builtin_amdgcn_rsqf(x);
#elif defined(TALLOW_NVIDIA)
    float result;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return 1.0f / sqrt(x);
#endif
}

// sqrt(-2 log(1 - unit_float(word))). Fast results are accurate to 16 bits, others to the last two units of a float.
template <bool IsFast> TALLOW_INLINE float normal_radius(uint32_t word) {
    // 1 - unit = part * 2**exponent with a part from 2/3 to 4/3: neither 0 nor subnormal, so there are no special
    // cases.
    const uint32_t bits = bit_cast<uint32_t>(fma(static_cast<float>(word >> 8), -0x1p-24f, 1.0f));
    const uint32_t exponent = (bits - 0x3f2aaaabu) & 0xff800000u;
    const float x = fma(bit_cast<float>(bits - exponent), -2.0f, 2.0f);
    // The best polynomials for -2 log(1 - x / 2) = x + x**2 * p(x).
    const float p = IsFast ? polynomial(x, 0.249667522, 0.0830030301, 0.034339151, 0.0143295633)
                           : polynomial(x, 0.249999702, 0.0833327621, 0.0312594995, 0.01251003705, 0.00513104675,
                                        0.00217514439, 0.00120099553, 0.000561488268);
    const float scaled_exponent = static_cast<float>(static_cast<int32_t>(exponent));
    const float square = fma(scaled_exponent, -0x1.62e43p-23f, fma(x * x, p, x));
    // Of 0 the root is 0 times the largest inverse, and not infinity.
    const float inverse = approx_inverse_root(square < 1e-30f ? 1e-30f : square);
    const float root = square * inverse;
    return IsFast ? root : fma(fma(-root, root, square), 0.5f * inverse, root);
}

// The cosine and the sine of 2 pi unit_float(word), from the nearest multiple of a quarter circle and the remainder.
template <bool IsFast> TALLOW_INLINE void cosine_and_sine(uint32_t word, float& cosine, float& sine) {
    // The two highest bits number the quarters; the sine's polynomial begins with what a float lacks of pi / 2.
    const uint32_t quarter = word + 0x20000000u;
    const float x = static_cast<float>(static_cast<int32_t>(word << 2 & 0xfffffc00u)) * 0x1p-32f;
    const float square = x * x;
    const float c = IsFast ? polynomial(square, 1.0, -1.23369771, 0.25360321, -0.02041728)
                           : polynomial(square, 1.0, -1.23370054, 0.253669226, -0.0208601651, 0.000903766504);
    const float p = IsFast ? polynomial(square, -4.371139e-8, -0.64579804, 0.07793993)
                           : polynomial(square, -4.371139e-8, -0.64596346, 0.07968003, -0.00460166);
    const float s = fma(x, 1.57079637f, x * p);
    const bool is_odd = static_cast<int32_t>(quarter << 1) < 0;
    const uint32_t cosine_sign = (quarter + 0x40000000u) & 0x80000000u;
    cosine = bit_cast<float>(bit_cast<uint32_t>(is_odd ? s : c) ^ cosine_sign);
    sine = bit_cast<float>(bit_cast<uint32_t>(is_odd ? c : s) ^ (quarter & 0x80000000u));
}

template <bool IsFast> TALLOW_INLINE void normal_pair(uint32_t first, uint32_t second, float* pair) {
    const float radius = normal_radius<IsFast>(first);
    float cosine;
    float sine;
    cosine_and_sine<IsFast>(second, cosine, sine);
    pair[0] = radius * cosine;
    pair[1] = radius * sine;
}
template <bool IsFast> TALLOW_INLINE void normal_units(const Words& words, float (&units)[4]) {
    // Not in a loop, which keeps gcc from taking several blocks at once.
    normal_pair<IsFast>(words.values[0], words.values[1], units);
    normal_pair<IsFast>(words.values[2], words.values[3], units + 2);
}
template <bool IsFast> TALLOW_INLINE void normal_units(const Words& words, double (&units)[2]) {
    box_muller(unit_double(words.values[0], words.values[1]), unit_double(words.values[2], words.values[3]), units);
}

// Between bounds; no argument is NaN, and `value` is no negative zero.
template <typename Value> TALLOW_INLINE Value bounded(Value value, Value lowest, Value highest) {
#if defined(TALLOW_NVIDIA)
    return ::fmin(::fmax(value, lowest), highest);
#else
    const Value above = value < lowest ? lowest : value;
    return above > highest ? highest : above;
#endif
}

// The flags of the build keep the product and the sum separate: the bits are the same on every target.
template <typename T> struct UniformFunction {
    using Value = compute_type<T>;
    Value low;
    Value span;
    Value lowest;
    Value highest;
    bool is_bounded_first;
    template <typename Arguments>
    TALLOW_INLINE explicit UniformFunction(const Arguments& arguments)
        : low(static_cast<Value>(arguments.low)), span(static_cast<Value>(arguments.span)),
          lowest(static_cast<Value>(arguments.lowest)), highest(static_cast<Value>(arguments.highest)),
          is_bounded_first(sizeof(T) >= 4 || low >= 0 || lowest != 0) {
    }
    template <uint32_t N> static TALLOW_INLINE void draw(const Words& words, Value (&units)[N]) {
        uniform_units(words, units);
    }
    TALLOW_INLINE T operator()(Value unit) const {
        const Value value = low + unit * span;
        // Bounds that T has can as well be applied before rounding, but for the sign of a zero: a negative number that
        // rounds to -0 is not below a bound of 0.
        if (is_bounded_first)
            return convert<T>(bounded(value, lowest, highest));
        const Value rounded = to_compute(convert<T>(value));
        return convert<T>(rounded < lowest ? lowest : rounded > highest ? highest : rounded);
    }
};
// A share of 2**64 as the same share of a span.
struct IntegersFunction {
    uint64_t low;
    uint64_t span;
    template <typename Arguments>
    TALLOW_INLINE explicit IntegersFunction(const Arguments& arguments)
        : low(static_cast<uint64_t>(arguments.low)), span(arguments.span) {
    }
    static TALLOW_INLINE void draw(const Words& words, int64_t (&units)[2]) {
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            units[i] = static_cast<int64_t>(uint64_t{words.values[2 * i + 1]} << 32 | words.values[2 * i]);
    }
    TALLOW_INLINE int64_t operator()(int64_t unit) const {
        return static_cast<int64_t>(low + multiply_high(static_cast<uint64_t>(unit), span));
    }
};
template <typename T> struct NormalFunction {
    using Value = compute_type<T>;
    Value mean;
    Value std;
    template <typename Arguments>
    TALLOW_INLINE explicit NormalFunction(const Arguments& arguments)
        : mean(static_cast<Value>(arguments.mean)), std(static_cast<Value>(arguments.std)) {
    }
    template <uint32_t N> static TALLOW_INLINE void draw(const Words& words, Value (&units)[N]) {
        normal_units<is_small_float<T>>(words, units);
    }
    TALLOW_INLINE T operator()(Value unit) const {
        return convert<T>(fma(std, unit, mean));
    }
};

} // namespace tallow
