// HIP's device side for the host compiler: what a kernel may use on the CPU runtime. It includes no standard header, as
// hiprtc has none, and keeps the compile short.
//
// `__global__`, `__shared__` and `__launch_bounds__` are not macros: the compile step rewrites them in the preprocessed
// source (source/rewrite.cpp), which is also how it learns the names of the kernels.
#pragma once

#include "hip_host_kernel.h"

#ifndef HIP_HOST
#define HIP_HOST 1
#endif
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif

// The wave size comes from the target (host32, host64); a caller who also gives it must agree.
#ifndef HIP_HOST_WAVE_SIZE
#define HIP_HOST_WAVE_SIZE 64
#endif
#ifndef OPGEN_WAVE_SIZE
#define OPGEN_WAVE_SIZE HIP_HOST_WAVE_SIZE
#endif
#if OPGEN_WAVE_SIZE != HIP_HOST_WAVE_SIZE
#error "OPGEN_WAVE_SIZE is not the wave size of the target"
#endif

#define __host__
#define __device__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define HIP_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(hip_host_current->block->dynamic_shared);

#define threadIdx (hip_host_current->thread_index)
#define blockIdx (hip_host_current->block->block_index)
#define blockDim (hip_host_current->block->block_size)
#define gridDim (hip_host_current->block->grid_size)

// A constant for kernels. This file does not name it: code that does not either is the same for both sizes.
#define warpSize OPGEN_WAVE_SIZE

typedef decltype(sizeof(0)) size_t;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#include "hip_host_math.h"
#include "hip_host_vector.h"

// ---- Barriers and fences

__forceinline__ void __syncthreads(int line = __builtin_LINE()) { hip_host_barrier(line); }
__forceinline__ void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
__forceinline__ void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
__forceinline__ void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// ---- Waves

__forceinline__ unsigned __lane_id() { return hip_host_current->lane; }

namespace hip_host {

inline int wave_size() { return hip_host_current->block->wave_size; }

template <class Value> inline Value exchange(Value value, unsigned source, int line) {
    static_assert(sizeof(Value) <= 8, "a shuffle moves at most eight bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(Value));
    const hip_host_wave* wave = hip_host_exchange(bits, line);
    __builtin_memcpy(&value, &wave->value[source & (wave_size() - 1)], sizeof(Value));
    return value;
}

} // namespace hip_host

template <class Value>
__forceinline__ Value __shfl(Value value, int source, int width = hip_host::wave_size(), int line = __builtin_LINE()) {
    const int first = __lane_id() & -width;
    return hip_host::exchange(value, first + (source & (width - 1)), line);
}

template <class Value>
__forceinline__ Value __shfl_up(Value value, unsigned delta, int width = hip_host::wave_size(),
                                int line = __builtin_LINE()) {
    const int lane = __lane_id(), source = lane - static_cast<int>(delta);
    return hip_host::exchange(value, source < (lane & -width) ? lane : source, line);
}

template <class Value>
__forceinline__ Value __shfl_down(Value value, unsigned delta, int width = hip_host::wave_size(),
                                  int line = __builtin_LINE()) {
    const int lane = __lane_id(), inside = (lane & (width - 1)) + static_cast<int>(delta);
    return hip_host::exchange(value, inside >= width ? lane : lane + static_cast<int>(delta), line);
}

template <class Value>
__forceinline__ Value __shfl_xor(Value value, int mask, int width = hip_host::wave_size(),
                                 int line = __builtin_LINE()) {
    const int lane = __lane_id(), source = lane ^ mask;
    return hip_host::exchange(value, source >= ((lane + width) & -width) ? lane : source, line);
}

__forceinline__ unsigned long long __ballot(int predicate, int line = __builtin_LINE()) {
    return hip_host_exchange(predicate != 0, line)->odd;
}
__forceinline__ int __any(int predicate, int line = __builtin_LINE()) { return __ballot(predicate, line) != 0; }
__forceinline__ int __all(int predicate, int line = __builtin_LINE()) { return __ballot(predicate == 0, line) == 0; }

#include "hip_host_matrix.h"

// ---- Atomics. The second parameter takes the type of the first, as HIP's overloads do.

namespace hip_host {
template <class Type> struct Same {
    using type = Type;
};
template <class Type> using same = typename Same<Type>::type;

template <class Value, class Update> inline Value update(Value* address, Update next) {
    Value seen, wanted;
    __atomic_load(address, &seen, __ATOMIC_RELAXED);
    do
        wanted = next(seen);
    while (!__atomic_compare_exchange(address, &seen, &wanted, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return seen;
}
} // namespace hip_host

template <class Value> inline Value atomicAdd(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value seen) -> Value { return seen + value; });
}
template <class Value> inline Value atomicSub(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value seen) -> Value { return seen - value; });
}
template <class Value> inline Value atomicMin(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value seen) -> Value { return value < seen ? value : seen; });
}
template <class Value> inline Value atomicMax(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value seen) -> Value { return value > seen ? value : seen; });
}
template <class Value> inline Value atomicAnd(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value seen) -> Value { return seen & value; });
}
template <class Value> inline Value atomicOr(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value seen) -> Value { return seen | value; });
}
template <class Value> inline Value atomicXor(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value seen) -> Value { return seen ^ value; });
}
template <class Value> inline Value atomicExch(Value* address, hip_host::same<Value> value) {
    return hip_host::update(address, [value](Value) -> Value { return value; });
}
template <class Value>
inline Value atomicCAS(Value* address, hip_host::same<Value> expected, hip_host::same<Value> value) {
    __atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
