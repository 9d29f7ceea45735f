// Quants by fours: bytes of a word.
#pragma once

#include "access.hpp"
#if defined(TALLOW_VECTOR)
#include "vector.hpp"
#endif

// A field of a block begins where the spec says. Some versions of NVRTC have no way to ask; their layout is the same.
#if defined(TALLOW_NVIDIA)
#define TALLOW_FIELD(Block, field, offset) static_assert(sizeof(Block) >= offset, "a field is inside")
#else
#define TALLOW_FIELD(Block, field, offset) static_assert(__builtin_offsetof(Block, field) == offset, "another layout")
#endif

namespace tallow {

// One of two numbers that are both worked out, so that no lane waits for others.
template <typename T> TALLOW_INLINE T either(bool is_first, T first, T second) {
    return is_first ? first : second;
}

// The 32 bits of a pair of words that begin at bit `shift` below 32.
TALLOW_INLINE uint32_t shift_pair(uint32_t low, uint32_t high, uint32_t shift) {
#if defined(TALLOW_NVIDIA)
    return __funnelshift_r(low, high, shift);
#elif defined(TALLOW_AMD)
    return __builtin_amdgcn_alignbit(high, low, shift);
#else
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> shift);
#endif
}

// Words that follow each other, of which the first stands at a multiple of so many bytes, or of their own. Some begin
// in the middle of a word of memory: many of those, which are in shared memory, are cut from whole ones, of which the
// ends reach outside.
#if defined(TALLOW_VECTOR)
// All of them are one vector, so that what is done with a word is done with all.
template <uint32_t N> struct Words {
    Vector<uint32_t, 4 * N> values[1];
};
template <uint32_t, uint32_t N> TALLOW_INLINE Words<N> load_words(const void* pointer) {
    Vector<uint32_t, 4 * N> words;
    __builtin_memcpy(&words, pointer, sizeof words);
    return {{words}};
}

// Bits, one in each byte of such a vector, from the lowest of the first byte on.
template <uint32_t N, typename Places>
TALLOW_INLINE Vector<uint32_t, 4 * N> spread_bits(const uint8_t* bits, Places bytes, Places) {
    using Bytes = Vector<uint8_t, 4 * N>;
    Vector<uint64_t, 4 * N> eights;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < N / 2; ++i)
        eights[i] = bits[bytes[0] + i] * 0x0101010101010101u & 0x8040201008040201u;
    return bit_cast<Vector<uint32_t, 4 * N>>(reinterpret_cast<Bytes>(bit_cast<Bytes>(eights) != 0) & 1);
}
#else
template <uint32_t N> struct Words {
    uint32_t values[N];
};
template <uint32_t Alignment, uint32_t N> TALLOW_INLINE Words<N> load_words(const void* pointer) {
    static_assert(is_power_of_two<Alignment> && Alignment >= 2, "blocks begin at multiples of 2");
    const uint8_t* const bytes = static_cast<const uint8_t*>(pointer);
    Words<N> words;
    if constexpr (Alignment >= 4) {
        constexpr uint32_t together = Alignment / 4 < N ? Alignment / 4 : N;
#pragma unroll
        for (uint32_t k = 0; k < N; k += together) {
            const auto access = load_registers<4 * together>(bytes + 4 * k);
#pragma unroll
            for (uint32_t i = 0; i < together; ++i)
                words.values[k + i] = access.values[i];
        }
    } else if constexpr (N == 1) {
        words.values[0] = load_registers<2>(bytes).values[0] | load_registers<2>(bytes + 2).values[0] << 16;
    } else {
#if defined(TALLOW_NVIDIA)
        // The same bits of an address in shared memory are known without the address that stands for it elsewhere.
        const uint32_t odd = static_cast<uint32_t>(__cvta_generic_to_shared(bytes)) & 2;
#else
        const uint32_t odd = static_cast<uint32_t>(reinterpret_cast<uint64_t>(bytes)) & 2;
#endif
        uint32_t low = load_registers<4>(bytes - odd).values[0];
#pragma unroll
        for (uint32_t k = 0; k < N; ++k) {
            const uint32_t high = load_registers<4>(bytes - odd + 4 * (k + 1)).values[0];
            words.values[k] = shift_pair(low, high, 8 * odd);
            low = high;
        }
    }
    return words;
}

// Four bits of a byte from bit `shift` on, one in each byte of a word.
template <uint32_t> TALLOW_INLINE uint32_t spread_bits(const uint8_t* bits, uint32_t byte, uint32_t shift) {
    return (static_cast<uint32_t>(bits[byte] >> shift) & 15u) * 0x00204081u & 0x01010101u;
}
#endif

// Byte i of a word and a bias as a float. 2**23 and an integer below it are exact, and so is their difference; where
// there is an instruction for bytes, that is found.
template <int Bias> TALLOW_INLINE float quant_of(uint32_t quads, uint32_t i) {
#if defined(TALLOW_NVIDIA)
    const uint32_t raised = __byte_perm(quads, 0x4b000000u, 0x7440u + i);
    return bit_cast<float>(raised) - (8388608.0f - static_cast<float>(Bias));
#else
    return static_cast<float>(quads >> 8 * i & 255u) + static_cast<float>(Bias);
#endif
}

// A sum and the products of signed bytes, one in each quarter of two words.
TALLOW_INLINE int dot_of_bytes(uint32_t x, uint32_t y, int sum) {
#if defined(TALLOW_NVIDIA)
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(y));
    return sum;
#elif defined(TALLOW_AMD) && (defined(__GFX11__) || defined(__GFX12__))
    return __builtin_amdgcn_sudot4(true, static_cast<int>(x), true, static_cast<int>(y), sum, false);
#elif defined(TALLOW_AMD) && (defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) ||                     \
                              defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1030__))
    return __builtin_amdgcn_sdot4(static_cast<int>(x), static_cast<int>(y), sum, false);
#else
    for (uint32_t shift = 0; shift < 32; shift += 8)
        sum += static_cast<int8_t>(x >> shift) * static_cast<int8_t>(y >> shift);
    return sum;
#endif
}

} // namespace tallow
