// Waves: how many lanes they have, and what these do together. Code that needs no waves does not include this header,
// so that it is the same for both sizes.
#pragma once

#include "platform.hpp"

namespace tallow {

constexpr uint32_t wave_size = TALLOW_WAVE_SIZE;
static_assert(wave_size == 32 || wave_size == 64, "waves have 32 or 64 lanes");

constexpr uint32_t waves_per_block = block_size / wave_size;

// A bit for each lane of a wave, and no more of them: kernels hold several masks in registers at once.
template <uint32_t Lanes> struct MaskOfLanes {
    using Type = uint64_t;
};
template <> struct MaskOfLanes<32> {
    using Type = uint32_t;
};
using LaneMask = MaskOfLanes<wave_size>::Type;

#if defined(TALLOW_AMD)

TALLOW_INLINE uint32_t shuffle_word(uint32_t value, uint32_t lane) {
    return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(static_cast<int>(lane << 2), static_cast<int>(value)));
}

// What lanes wrote before, the others of the wave read after; every lane of the wave must take part.
TALLOW_INLINE void synchronize_wave() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// The lanes of the wave for which `predicate` holds.
TALLOW_INLINE LaneMask ballot(bool predicate) {
    return static_cast<LaneMask>(__builtin_amdgcn_uicmp(static_cast<uint32_t>(predicate), 0u, 33));
}

#elif defined(TALLOW_NVIDIA)

TALLOW_INLINE uint32_t shuffle_word(uint32_t value, uint32_t lane) {
    return __shfl_sync(0xffffffffu, value, static_cast<int>(lane));
}
TALLOW_INLINE LaneMask ballot(bool predicate) {
    return __ballot_sync(0xffffffffu, predicate);
}
TALLOW_INLINE void synchronize_wave() {
    __syncwarp();
}

#else

TALLOW_INLINE uint32_t shuffle_word(uint32_t value, uint32_t lane) {
    return __shfl(value, static_cast<int>(lane));
}
TALLOW_INLINE LaneMask ballot(bool predicate) {
    return static_cast<LaneMask>(__ballot(predicate));
}
// Lanes of the host wait for each other in votes.
TALLOW_INLINE void synchronize_wave() {
    __ballot(true);
}

#endif

TALLOW_INLINE uint32_t lane_index() {
    return thread_index() % wave_size;
}
TALLOW_INLINE uint32_t wave_index() {
    return thread_index() / wave_size;
}

// The value that another lane has; every lane of the wave must take part.
template <typename T> TALLOW_INLINE T shuffle_from(T value, uint32_t lane) {
    if constexpr (sizeof(T) < 4) {
        return static_cast<T>(shuffle_word(static_cast<uint32_t>(value), lane));
    } else if constexpr (sizeof(T) == 4) {
        return bit_cast<T>(shuffle_word(bit_cast<uint32_t>(value), lane));
    } else if constexpr (sizeof(T) == 16) {
        const bits128 bits = bit_cast<bits128>(value);
        return bit_cast<T>(bits128{shuffle_from(bits.low, lane), shuffle_from(bits.high, lane)});
    } else {
        static_assert(sizeof(T) == 8, "lanes exchange at most 16 bytes");
        const uint64_t bits = bit_cast<uint64_t>(value);
        const uint64_t low = shuffle_word(static_cast<uint32_t>(bits), lane);
        const uint64_t high = shuffle_word(static_cast<uint32_t>(bits >> 32), lane);
        return bit_cast<T>(low | high << 32);
    }
}

// The value that the lane whose index differs in the bits of `mask` has.
template <typename T> TALLOW_INLINE T shuffle_xor(T value, uint32_t mask) {
#if defined(TALLOW_NVIDIA)
    if constexpr (sizeof(T) == 4)
        return bit_cast<T>(__shfl_xor_sync(0xffffffffu, bit_cast<uint32_t>(value), static_cast<int>(mask)));
#endif
    return shuffle_from(value, lane_index() ^ mask);
}

// The lowest lane of some; lane 0 of none.
TALLOW_INLINE uint32_t lowest_lane(LaneMask lanes) {
    return count_bits(static_cast<LaneMask>(~lanes & (lanes - 1))) % wave_size;
}

// The lanes that have this lane's value, of those whose values are below `limit`; every lane of the wave must take
// part, and what a lane with another value gets is of no use. A vote a bit: quicker than a match where bits are few.
template <typename Limit> TALLOW_INLINE LaneMask lanes_alike_by_votes(uint32_t value, Limit limit) {
    LaneMask alike = ballot(value < limit);
    for (Limit bit = 1; bit < limit; bit *= 2) {
        const LaneMask set = ballot((value & bit) != 0);
        alike &= (value & bit) != 0 ? set : ~set;
    }
    return alike;
}
TALLOW_INLINE LaneMask lanes_alike(uint32_t value, uint64_t limit) {
#if defined(TALLOW_NVIDIA)
    return ballot(value < limit) & __match_any_sync(0xffffffffu, value);
#else
    return lanes_alike_by_votes(value, limit);
#endif
}

} // namespace tallow
