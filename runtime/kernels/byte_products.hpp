// Products of bytes on the host: four of them, summed, are a lane of a vector.
#pragma once

#include "vector.hpp"

#if defined(__AVX2__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace tallow {

// The width of vectors in bytes, and activation rows whose sums stay in registers with those of two such vectors.
#if defined(__AVX512BW__)
constexpr uint32_t byte_width = 64;
constexpr uint32_t byte_rows = 8;
#elif defined(__aarch64__)
constexpr uint32_t byte_width = 16;
constexpr uint32_t byte_rows = 8;
#else
constexpr uint32_t byte_width = 32;
constexpr uint32_t byte_rows = 4;
#endif
template <typename T> using Wide = Vector<T, byte_width>;

// Bytes that are multiplied with one scale, or two.
constexpr uint32_t run_length = 32;
template <typename T> using Run = Vector<T, run_length>;

// A vector in memory. One copy of several of them would go through smaller ones.
template <typename V> TALLOW_INLINE V load_full_vector(const void* source) {
    V result;
    __builtin_memcpy(&result, source, sizeof result);
    return result;
}

// A vector that repeats one of half its size.
TALLOW_INLINE Run<uint32_t> twice(Vector<uint32_t, run_length / 2> half) {
#if defined(__AVX2__)
    return (Run<uint32_t>)_mm256_broadcastsi128_si256((__m128i)half);
#else
    return __builtin_shufflevector(half, half, 0, 1, 2, 3, 0, 1, 2, 3);
#endif
}
#if defined(__AVX512BW__)
TALLOW_INLINE Wide<uint32_t> twice(Run<uint32_t> half) {
    return (Wide<uint32_t>)_mm512_broadcast_i64x4((__m256i)half);
}
#endif

// Sums of pairs: of products of bytes, which 16 bits must hold, and of products of 16 bits. On x86 the first bytes are
// unsigned, else both are signed.
#if defined(__AVX2__)
TALLOW_INLINE Run<int16_t> pair_products(Run<uint8_t> x, Run<int8_t> y) {
    return (Run<int16_t>)_mm256_maddubs_epi16((__m256i)x, (__m256i)y);
}
TALLOW_INLINE Run<int32_t> pair_products(Run<int16_t> x, Run<int16_t> y) {
    return (Run<int32_t>)_mm256_madd_epi16((__m256i)x, (__m256i)y);
}
#if defined(__AVX512BW__)
TALLOW_INLINE Wide<int16_t> pair_products(Wide<uint8_t> x, Wide<int8_t> y) {
    return (Wide<int16_t>)_mm512_maddubs_epi16((__m512i)x, (__m512i)y);
}
TALLOW_INLINE Wide<int32_t> pair_products(Wide<int16_t> x, Wide<int16_t> y) {
    return (Wide<int32_t>)_mm512_madd_epi16((__m512i)x, (__m512i)y);
}
#endif
#elif defined(__aarch64__)
TALLOW_INLINE Wide<int16_t> pair_products(Wide<uint8_t> x, Wide<int8_t> y) {
    const int8x16_t left = (int8x16_t)x;
    const int8x16_t right = (int8x16_t)y;
    return (Wide<int16_t>)vpaddq_s16(vmull_s8(vget_low_s8(left), vget_low_s8(right)), vmull_high_s8(left, right));
}
TALLOW_INLINE Wide<int32_t> pair_products(Wide<int16_t> x, Wide<int16_t> y) {
    const int16x8_t left = (int16x8_t)x;
    const int16x8_t right = (int16x8_t)y;
    return (Wide<int32_t>)vpaddq_s32(vmull_s16(vget_low_s16(left), vget_low_s16(right)), vmull_high_s16(left, right));
}
#else
TALLOW_INLINE Wide<int16_t> pair_products(Wide<uint8_t> x, Wide<int8_t> y) {
    Wide<int16_t> sums;
    for (uint32_t i = 0; i < byte_width / 2; ++i)
        sums[i] = static_cast<int16_t>(static_cast<int8_t>(x[2 * i]) * y[2 * i] +
                                       static_cast<int8_t>(x[2 * i + 1]) * y[2 * i + 1]);
    return sums;
}
TALLOW_INLINE Wide<int32_t> pair_products(Wide<int16_t> x, Wide<int16_t> y) {
    Wide<int32_t> sums;
    for (uint32_t i = 0; i < byte_width / 4; ++i)
        sums[i] = x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1];
    return sums;
}
#endif

// Four products and a sum may be one instruction: adds them to each lane. It is compiled in, and used if the machine
// has it at the call of a kernel.
#if defined(__AVX2__) || defined(__aarch64__)
constexpr bool may_have_dots = true;

template <typename Sums, typename X, typename Y> TALLOW_INLINE void add_dots(Sums& sums, X x, Y y) {
#if defined(__AVX512VL__)
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(y));
#elif defined(__AVX2__)
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(x), "x"(y));
#else
    asm(".arch_extension dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(x), "w"(y));
#endif
}

// Whether this machine has it.
TALLOW_INLINE bool has_dots() {
#if defined(__AVX2__)
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
#if defined(__AVX512VL__)
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 11 & 1) != 0;
#else
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
#endif
#else
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
}

// Compilers would move sums after all of their products, for which there are no registers.
template <typename V> TALLOW_INLINE void keep_in_register(V& vector) {
#if defined(__AVX2__)
    asm("" : "+x"(vector));
#else
    asm("" : "+w"(vector));
#endif
}
#else
constexpr bool may_have_dots = false;

TALLOW_INLINE bool has_dots() {
    return false;
}

template <typename V> TALLOW_INLINE void keep_in_register(V&) {
}
#endif

// Products by that instruction, or by pairs.
template <bool IsDotted> struct ByteProducts {
    // How a panel has quants of 8 bits, which are signed: with 16 bits, or less the bias, or as they are.
#if defined(__AVX2__)
    static constexpr bool is_wide = !IsDotted;
    static constexpr bool is_biased = IsDotted;
#else
    static constexpr bool is_wide = false;
    static constexpr bool is_biased = false;
#endif

    template <typename Sums, typename X, typename Y> static TALLOW_INLINE Sums products(X x, Y y, Sums sums) {
        if constexpr (IsDotted) {
            add_dots(sums, x, y);
            return sums;
        } else {
            const auto pairs = pair_products(x, y);
            return sums + pair_products(pairs, decltype(pairs + pairs){} + int16_t{1});
        }
    }

    // Sums and the products of a run, or of two: of quants less the bias, which are below 128, or of signed ones. x has
    // no -128.
#if defined(__AVX512BW__)
    static TALLOW_INLINE Wide<int32_t> dots(Wide<uint8_t> quants, Wide<int8_t> x, Wide<int32_t> sums) {
        return products(quants, x, sums);
    }
#endif
    static TALLOW_INLINE Run<int32_t> dots(Run<uint8_t> quants, Run<int8_t> x, Run<int32_t> sums = {}) {
#if defined(__AVX2__)
        return products(quants, x, sums);
#else
        Wide<int32_t> parts[run_length / byte_width];
        __builtin_memcpy(parts, &sums, sizeof parts);
        for (uint32_t part = 0; part < run_length / byte_width; ++part)
            parts[part] = products(
                load_full_vector<Wide<uint8_t>>(reinterpret_cast<const uint8_t*>(&quants) + part * byte_width),
                load_full_vector<Wide<int8_t>>(reinterpret_cast<const int8_t*>(&x) + part * byte_width), parts[part]);
        return load_full_vector<Run<int32_t>>(parts);
#endif
    }
    static TALLOW_INLINE Run<int32_t> signed_dots(Run<int8_t> quants, Run<int8_t> x) {
#if defined(__AVX2__)
        return dots((Run<uint8_t>)_mm256_abs_epi8((__m256i)quants),
                    (Run<int8_t>)_mm256_sign_epi8((__m256i)x, (__m256i)quants));
#else
        return dots((Run<uint8_t>)quants, x);
#endif
    }

    // Adds the products of consecutive words in vectors with those of activation rows. Quants are at
    // most Highest, which bounds how many products 16 bits hold.
    template <uint32_t Highest, uint32_t Steps, uint32_t Rows, uint32_t Count, typename Quant>
    static TALLOW_INLINE void add(const uint32_t* words, const Quant* const* x, uint64_t first,
                                  Wide<int32_t> (&sums)[Rows][Count]) {
        constexpr bool is_of_pairs = sizeof(Quant) == 2;
        constexpr bool is_direct = IsDotted || is_of_pairs;
        constexpr uint32_t most = 32767 / (2 * 127 * Highest);
        constexpr uint32_t together = is_direct ? Steps : most < Steps ? most : Steps;
        constexpr uint32_t lanes = byte_width / 4;
        Wide<int16_t> pairs[Rows][Count];
#pragma GCC unroll 16
        for (uint32_t step = 0; step < Steps; ++step) {
            Wide<uint32_t> left[Count];
#pragma GCC unroll 2
            for (uint32_t k = 0; k < Count; ++k)
                left[k] = load_full_vector<Wide<uint32_t>>(words + (step * Count + k) * lanes);
#pragma GCC unroll 8
            for (uint32_t r = 0; r < Rows; ++r) {
                uint32_t word;
                __builtin_memcpy(&word, x[r] + first + step * (4 / sizeof(Quant)), sizeof word);
                const Wide<uint32_t> right = Wide<uint32_t>{} + word;
#pragma GCC unroll 2
                for (uint32_t k = 0; k < Count; ++k)
                    if constexpr (is_of_pairs) {
                        sums[r][k] += pair_products((Wide<int16_t>)left[k], (Wide<int16_t>)right);
                        keep_in_register(sums[r][k]);
                    } else if constexpr (IsDotted) {
                        add_dots(sums[r][k], left[k], right);
                    } else {
                        const Wide<int16_t> paired = pair_products((Wide<uint8_t>)left[k], (Wide<int8_t>)right);
                        pairs[r][k] = step % together == 0 ? paired : pairs[r][k] + paired;
                        keep_in_register(pairs[r][k]);
                        if (step % together == together - 1 || step == Steps - 1)
                            sums[r][k] += pair_products(pairs[r][k], Wide<int16_t>{} + int16_t{1});
                    }
            }
        }
    }
};

} // namespace tallow
