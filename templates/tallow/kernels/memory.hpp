// Packs of elements that move in one access, and where the elements of a strided tensor are.
#pragma once

#include "types.hpp"

namespace tallow {

// The most bytes that a thread moves in one access.
constexpr uint32_t access_bytes = 16;

template <uint32_t First, uint32_t... Rest>
constexpr uint32_t largest = First > largest<Rest...> ? First : largest<Rest...>;
template <uint32_t First> constexpr uint32_t largest<First> = First;

// How many elements of each of these types a thread takes at once: 16 bytes of the widest.
template <typename... Elements>
constexpr uint32_t pack_length = access_bytes / largest<static_cast<uint32_t>(sizeof(Elements))...>;

template <typename T, uint32_t N> struct alignas(sizeof(T) * N > access_bytes ? access_bytes : sizeof(T) * N) Pack {
    T values[N];
};

template <uint32_t N, typename T> TALLOW_INLINE bool is_aligned(const T* pointer) {
    return reinterpret_cast<uint64_t>(pointer) % alignof(Pack<T, N>) == 0;
}

// An unsigned value of so many bytes. Compilers keep one access whole when it has one of these types, where they would
// split that of a struct and join its parts with accesses on other paths.
#if defined(TALLOW_NVIDIA)
#define TALLOW_MAY_ALIAS
#else
#define TALLOW_MAY_ALIAS __attribute__((may_alias))
#endif
template <uint32_t Bytes> struct Word;
template <> struct Word<1> {
    using type TALLOW_MAY_ALIAS = uint8_t;
};
template <> struct Word<2> {
    using type TALLOW_MAY_ALIAS = uint16_t;
};
template <> struct Word<4> {
    using type TALLOW_MAY_ALIAS = uint32_t;
};
template <> struct Word<8> {
    using type TALLOW_MAY_ALIAS = uint64_t;
};
template <> struct Word<16> {
#if defined(TALLOW_NVIDIA)
    using type = uint4;
#else
    using type TALLOW_MAY_ALIAS = uint32_t __attribute__((vector_size(16)));
#endif
};

template <uint32_t N, typename T> TALLOW_INLINE Pack<T, N> load_whole(const T* pointer) {
    using Access = typename Word<sizeof(T) * N>::type;
    return bit_cast<Pack<T, N>>(*reinterpret_cast<const Access*>(pointer));
}
template <uint32_t N, typename T> TALLOW_INLINE void store_whole(T* pointer, const Pack<T, N>& pack) {
    using Access = typename Word<sizeof(T) * N>::type;
    *reinterpret_cast<Access*>(pointer) = bit_cast<Access>(pack);
}

// Elements first .. first + N of a contiguous tensor, those from `count` on left at zero and never touched.
template <uint32_t N, typename T>
TALLOW_INLINE Pack<T, N> load_guarded(const T* pointer, uint64_t first, uint64_t count) {
    Pack<T, N> pack{};
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        if (first + i < count)
            pack.values[i] = pointer[first + i];
    return pack;
}
template <uint32_t N, typename T>
TALLOW_INLINE void store_guarded(T* pointer, uint64_t first, uint64_t count, const Pack<T, N>& pack) {
    if (first + N <= count && is_aligned<N>(pointer)) {
        store_whole(pointer + first, pack);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            if (first + i < count)
                pointer[first + i] = pack.values[i];
    }
}

// N elements `stride` apart. The innermost stride is 0 for a broadcast operand and 1 for a dense one.
template <uint32_t N, typename T> TALLOW_INLINE Pack<T, N> load_run(const T* pointer, uint64_t stride) {
    Pack<T, N> pack;
    if (stride == 1 && is_aligned<N>(pointer)) {
        pack = load_whole<N>(pointer);
    } else if (stride == 0) {
        const T value = *pointer;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            pack.values[i] = value;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            pack.values[i] = pointer[i * stride];
    }
    return pack;
}

// Up to N elements `stride` apart, of which `left` exist.
template <uint32_t N, typename T> TALLOW_INLINE Pack<T, N> load_some(const T* pointer, uint64_t stride, uint32_t left) {
    if (left >= N)
        return load_run<N>(pointer, stride);
    Pack<T, N> pack{};
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        if (i < left)
            pack.values[i] = pointer[i * stride];
    return pack;
}

// index / divisor for index < 2**31: multiplier and shift come from the host (Granlund and Montgomery 1994).
TALLOW_INLINE uint32_t divide(uint32_t index, uint32_t multiplier, uint32_t shift) {
    return (multiply_high(index, multiplier) + index) >> shift;
}

// The dims of a launch, the innermost first, and the strides of its operands, `max_rank` for each of them.
constexpr uint32_t max_rank = 8;

// Where element `index` of the dims [from, to) is in each of `Operands` operands. Returns its place in dim `from`.
template <uint32_t Operands, typename Arguments>
TALLOW_INLINE uint32_t locate_between(const Arguments& arguments, uint32_t from, uint32_t to, uint32_t index,
                                      uint64_t (&offsets)[Operands]) {
#pragma unroll
    for (uint32_t k = 0; k < Operands; ++k)
        offsets[k] = 0;
    uint32_t first_place = 0;
#pragma unroll 1
    for (uint32_t d = from; d < to; ++d) {
        const uint32_t quotient = divide(index, arguments.multipliers[d], arguments.shifts[d]);
        const uint32_t place = index - quotient * arguments.dims[d];
        first_place = d == from ? place : first_place;
#pragma unroll
        for (uint32_t k = 0; k < Operands; ++k)
            offsets[k] += place * arguments.strides[k * max_rank + d];
        index = quotient;
    }
    return first_place;
}

template <uint32_t Operands, typename Arguments>
TALLOW_INLINE uint32_t locate(const Arguments& arguments, uint32_t index, uint64_t (&offsets)[Operands]) {
    return locate_between(arguments, 0, arguments.rank, index, offsets);
}

} // namespace tallow
