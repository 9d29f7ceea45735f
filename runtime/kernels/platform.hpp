// What the targets call the same thing: AMD (hipcc, clang, hiprtc), NVIDIA (nvcc, NVRTC) and the host, either through
// the HIP runtime for the CPU or, as TALLOW_VECTOR, for kernels on spans of elements. On the GPUs no header is
// included, so that run-time compilation needs none.
#pragma once

#include "constants.hpp"
#include "target.hpp"

#if defined(__AMDGCN__)
#define TALLOW_AMD 1
#elif defined(__CUDACC__)
#define TALLOW_NVIDIA 1
#else
#define TALLOW_HOST 1
#if defined(TALLOW_VECTOR)
#include <math.h>
#else
#include <hip/hip_runtime.h>
#endif
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

// The launch bounds of blocks: their threads and, where the spec says so, how many a multiprocessor holds.
#define TALLOW_RESIDENT 0
#if defined(TALLOW_NVIDIA)
#define TALLOW_BOUNDS __launch_bounds__(tallow::block_size, TALLOW_RESIDENT)
#else
#define TALLOW_BOUNDS __launch_bounds__(tallow::block_size)
#endif

// The same of the waves that a SIMD holds: of a block of 256 threads each has one.
#define TALLOW_WAVES
#if defined(TALLOW_AMD) && defined(TALLOW_HAS_WAVE_BOUNDS)
#define TALLOW_LEAST_WAVES(count) __attribute__((amdgpu_waves_per_eu(count)))
#else
#define TALLOW_LEAST_WAVES(count)
#endif

// A kernel: its name, its struct, and the function of the struct that its threads call.
#if defined(TALLOW_VECTOR)
#define TALLOW_KERNEL(name, Arguments, ...)                                                                            \
    extern "C" __attribute__((visibility("default"))) void name(const Arguments* arguments) {                          \
        __VA_ARGS__(*arguments);                                                                                       \
    }
#else
#define TALLOW_KERNEL(name, Arguments, ...)                                                                            \
    extern "C" __global__ void TALLOW_BOUNDS TALLOW_WAVES name(Arguments arguments) {                                  \
        tallow::begin_kernel();                                                                                        \
        __VA_ARGS__(arguments);                                                                                        \
    }
#endif

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

static_assert(is_power_of_two<block_size> && block_size >= 64, "a block is a number of waves that is a power of two");

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
// The number of those of the block that called this before.
TALLOW_INLINE uint32_t take_shared(uint32_t* counter) {
    return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
TALLOW_INLINE uint32_t arrive(uint32_t* counter) {
    return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
// Words that other blocks of the launch read and write meanwhile.
TALLOW_INLINE uint32_t load_relaxed(const uint32_t* address) {
    return __hip_atomic_load(address, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
TALLOW_INLINE void store_relaxed(uint32_t* address, uint32_t word) {
    __hip_atomic_store(address, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

#elif defined(TALLOW_VECTOR)

template <typename T> TALLOW_INLINE T* pointer_to(uint64_t address) {
    return reinterpret_cast<T*>(address);
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
TALLOW_INLINE uint32_t take_shared(uint32_t* counter) {
    return atomicAdd(counter, 1u);
}
TALLOW_INLINE uint32_t atomic_compare_exchange(uint32_t* address, uint32_t expected, uint32_t value) {
    return atomicCAS(address, expected, value);
}

#if defined(TALLOW_NVIDIA)
TALLOW_INLINE uint32_t arrive(uint32_t* counter) {
    uint32_t arrived;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(arrived) : "l"(counter) : "memory");
    return arrived;
}
TALLOW_INLINE uint32_t load_relaxed(const uint32_t* address) {
    uint32_t word;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    return word;
}
TALLOW_INLINE void store_relaxed(uint32_t* address, uint32_t word) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
}
TALLOW_INLINE uint32_t count_bits(uint64_t bits) {
    return static_cast<uint32_t>(__popcll(bits));
}
TALLOW_INLINE uint32_t multiply_high(uint32_t x, uint32_t y) {
    return __umulhi(x, y);
}
#else
TALLOW_INLINE uint32_t arrive(uint32_t* counter) {
    return __atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL);
}
TALLOW_INLINE uint32_t load_relaxed(const uint32_t* address) {
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}
TALLOW_INLINE void store_relaxed(uint32_t* address, uint32_t word) {
    __atomic_store_n(address, word, __ATOMIC_RELAXED);
}
TALLOW_INLINE uint32_t count_bits(uint64_t bits) {
    return static_cast<uint32_t>(__builtin_popcountll(bits));
}
TALLOW_INLINE uint32_t multiply_high(uint32_t x, uint32_t y) {
    return static_cast<uint32_t>((uint64_t{x} * y) >> 32);
}
#endif

#endif

#if !defined(TALLOW_VECTOR)
// In a graph a kernel may begin before the one in front of it ends, and waits here: all that was written is there then.
TALLOW_INLINE void await_previous_kernel() {
#if defined(TALLOW_HAS_PROGRAMMATIC_LAUNCH)
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel begin as soon as all blocks of this one are here, or have ended.
TALLOW_INLINE void let_next_kernel_begin() {
#if defined(TALLOW_HAS_PROGRAMMATIC_LAUNCH)
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Kernels of early families do both themselves.
TALLOW_INLINE void begin_kernel() {
#if !defined(TALLOW_EARLY)
    let_next_kernel_begin();
    await_previous_kernel();
#endif
}

// Whether this block is the last of `count` blocks that count themselves: it then reads what any of them wrote before.
// The counter is 0 before the first one, and after the last. Every thread must take part; `shared` is free meanwhile.
TALLOW_INLINE bool is_last_block(uint32_t* counter, uint32_t blocks, uint32_t* shared) {
    synchronize_block();
    if (thread_index() == 0) {
        *shared = arrive(counter);
        if (*shared == blocks - 1)
            *counter = 0;
    }
    synchronize_block();
    const bool is_last = *shared == blocks - 1;
    synchronize_block();
    return is_last;
}
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
// The same address, of which compilers know nothing any more: they would keep sums of it and of constants, where an
// access can add these.
template <typename T> TALLOW_INLINE T* opaque_pointer(uint64_t address) {
#if defined(TALLOW_AMD)
    asm volatile("" : "+v"(address));
#elif defined(TALLOW_NVIDIA)
    asm volatile("" : "+l"(address));
    return static_cast<T*>(__cvta_global_to_generic(address));
#endif
    return pointer_to<T>(address);
}

} // namespace tallow
