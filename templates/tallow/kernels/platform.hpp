// What the targets call the same thing: AMD (hipcc, clang, hiprtc), NVIDIA (nvcc, NVRTC) and the host, through the
// HIP runtime for the CPU. On the GPUs no header is included, so that run-time compilation needs none.
#pragma once

#include "constants.hpp"

#if defined(__AMDGCN__)
#define TALLOW_AMD 1
#elif defined(__CUDACC__)
#define TALLOW_NVIDIA 1
#else
#define TALLOW_HOST 1
#include <hip/hip_runtime.h>
#endif

#if defined(TALLOW_AMD)
#if !defined(__global__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#endif
#if !defined(__launch_bounds__)
#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#endif
#endif

#if defined(TALLOW_HOST)
#define TALLOW_INLINE inline __attribute__((always_inline))
#else
#define TALLOW_INLINE inline __device__ __attribute__((always_inline))
#endif

// A kernel: its name, its struct, and the function of the struct that its threads call.
#define TALLOW_KERNEL(name, Arguments, ...)                                                                            \
    extern "C" __global__ void __launch_bounds__(tallow::block_size) name(Arguments arguments) {                       \
        __VA_ARGS__(arguments);                                                                                        \
    }

namespace tallow {

// Inside the namespace these are the same types on every target, whatever a target's own headers define.
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

template <uint32_t Number> constexpr bool is_power_of_two = Number != 0 && (Number & (Number - 1)) == 0;

#if defined(TALLOW_AMD)
// clang's macros of the wave size are deprecated since 20, and gone since 22.
#if defined(__GFX9__)
constexpr uint32_t wave_size = 64;
#else
constexpr uint32_t wave_size = 32;
#endif
#elif defined(TALLOW_NVIDIA)
constexpr uint32_t wave_size = 32;
#elif defined(OPGEN_WAVE_SIZE)
constexpr uint32_t wave_size = OPGEN_WAVE_SIZE;
#else
constexpr uint32_t wave_size = 32;
#endif
static_assert(wave_size == 32 || wave_size == 64, "waves have 32 or 64 lanes");
static_assert(is_power_of_two<block_size> && block_size >= 64, "blocks are whole waves, and halve into teams");

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

TALLOW_INLINE uint32_t thread_index() {
    return __builtin_amdgcn_workitem_id_x();
}
TALLOW_INLINE uint32_t block_index() {
    return __builtin_amdgcn_workgroup_id_x();
}
TALLOW_INLINE uint32_t grid_blocks() {
    return __builtin_amdgcn_grid_size_x() / block_size;
}

TALLOW_INLINE void synchronize_block() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

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

// A kernel's struct holds addresses as integers; going through the global address space makes every access a global
// one.
template <typename T> TALLOW_INLINE T* pointer_to(uint64_t address) {
    return (T*)(__attribute__((address_space(1))) T*)address;
}

TALLOW_INLINE uint32_t count_bits(uint64_t bits) {
    return static_cast<uint32_t>(__builtin_popcountll(bits));
}
TALLOW_INLINE uint32_t multiply_high(uint32_t x, uint32_t y) {
    return static_cast<uint32_t>((uint64_t{x} * y) >> 32);
}

TALLOW_INLINE uint32_t atomic_compare_exchange(uint32_t* address, uint32_t expected, uint32_t value) {
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
TALLOW_INLINE void atomic_maximum(uint32_t* address, uint32_t value) {
    __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> TALLOW_INLINE void atomic_add(T* address, T value) {
    __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> TALLOW_INLINE void atomic_add_shared(T* address, T value) {
    __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

#else

TALLOW_INLINE uint32_t thread_index() {
    return threadIdx.x;
}
TALLOW_INLINE uint32_t block_index() {
    return blockIdx.x;
}
TALLOW_INLINE uint32_t grid_blocks() {
    return gridDim.x;
}
TALLOW_INLINE void synchronize_block() {
    __syncthreads();
}
template <typename T> TALLOW_INLINE T* pointer_to(uint64_t address) {
    return reinterpret_cast<T*>(address);
}
TALLOW_INLINE void atomic_maximum(uint32_t* address, uint32_t value) {
    atomicMax(address, value);
}
template <typename T> TALLOW_INLINE void atomic_add(T* address, T value) {
    atomicAdd(address, value);
}
template <typename T> TALLOW_INLINE void atomic_add_shared(T* address, T value) {
    atomicAdd(address, value);
}
TALLOW_INLINE uint32_t atomic_compare_exchange(uint32_t* address, uint32_t expected, uint32_t value) {
    return atomicCAS(address, expected, value);
}

#if defined(TALLOW_NVIDIA)
TALLOW_INLINE uint32_t shuffle_word(uint32_t value, uint32_t lane) {
    return __shfl_sync(0xffffffffu, value, static_cast<int>(lane));
}
TALLOW_INLINE LaneMask ballot(bool predicate) {
    return __ballot_sync(0xffffffffu, predicate);
}
TALLOW_INLINE void synchronize_wave() {
    __syncwarp();
}
TALLOW_INLINE uint32_t count_bits(uint64_t bits) {
    return static_cast<uint32_t>(__popcll(bits));
}
TALLOW_INLINE uint32_t multiply_high(uint32_t x, uint32_t y) {
    return __umulhi(x, y);
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
TALLOW_INLINE uint32_t count_bits(uint64_t bits) {
    return static_cast<uint32_t>(__builtin_popcountll(bits));
}
TALLOW_INLINE uint32_t multiply_high(uint32_t x, uint32_t y) {
    return static_cast<uint32_t>((uint64_t{x} * y) >> 32);
}
#endif

#endif

template <typename To, typename From> TALLOW_INLINE To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    return __builtin_bit_cast(To, value);
}

// The same word, of which compilers know nothing any more.
TALLOW_INLINE uint32_t opaque(uint32_t word) {
#if defined(TALLOW_AMD)
    asm volatile("" : "+v"(word));
#elif defined(TALLOW_NVIDIA)
    asm volatile("" : "+r"(word));
#endif
    return word;
}

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
    } else {
        static_assert(sizeof(T) == 8, "lanes exchange at most 8 bytes");
        const uint64_t bits = bit_cast<uint64_t>(value);
        const uint64_t low = shuffle_word(static_cast<uint32_t>(bits), lane);
        const uint64_t high = shuffle_word(static_cast<uint32_t>(bits >> 32), lane);
        return bit_cast<T>(low | high << 32);
    }
}

// The value that the lane whose index differs in the bits of `mask` has.
template <typename T> TALLOW_INLINE T shuffle_xor(T value, uint32_t mask) {
    return shuffle_from(value, lane_index() ^ mask);
}

// The lowest lane of some; lane 0 of none.
TALLOW_INLINE uint32_t lowest_lane(LaneMask lanes) {
    return count_bits(static_cast<LaneMask>(~lanes & (lanes - 1))) % wave_size;
}

// The lanes that have this lane's value, of those whose values are below `limit`; every lane of the wave must take
// part, and what a lane with another value gets is of no use.
TALLOW_INLINE LaneMask lanes_alike(uint32_t value, uint64_t limit) {
    LaneMask alike = ballot(value < limit);
#if defined(TALLOW_NVIDIA)
    alike &= __match_any_sync(0xffffffffu, value);
#else
    for (uint64_t bit = 1; bit < limit; bit *= 2) {
        const LaneMask set = ballot((value & bit) != 0);
        alike &= (value & bit) != 0 ? set : ~set;
    }
#endif
    return alike;
}

} // namespace tallow
