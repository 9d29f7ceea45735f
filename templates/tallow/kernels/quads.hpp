// Quants by fours: bytes of a word.
#pragma once

#include "access.hpp"

// A field of a block begins where the spec says. Some versions of NVRTC have no way to ask; their layout is the same.
#if defined(TALLOW_NVIDIA)
#define TALLOW_FIELD(Block, field, offset) static_assert(sizeof(Block) >= offset, "a field is inside")
#else
#define TALLOW_FIELD(Block, field, offset) static_assert(__builtin_offsetof(Block, field) == offset, "another layout")
#endif

namespace tallow {

// Four bytes, of which the first stands at a multiple of so many.
template <uint32_t Alignment> TALLOW_INLINE uint32_t load_quad(const void* pointer) {
    static_assert(Alignment == 2 || Alignment == 4, "blocks begin at multiples of 2");
    if constexpr (Alignment == 4)
        return load_registers<4>(pointer).values[0];
    const uint32_t low = load_registers<2>(pointer).values[0];
    return low | load_registers<2>(static_cast<const uint8_t*>(pointer) + 2).values[0] << 16;
}

// The lowest four bits, one in each byte.
TALLOW_INLINE uint32_t spread_bits(int bits) {
    return (static_cast<uint32_t>(bits) & 15u) * 0x00204081u & 0x01010101u;
}

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

} // namespace tallow
