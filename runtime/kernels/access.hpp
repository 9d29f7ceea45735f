// Packs of elements that move in one access.
#pragma once

#include "types.hpp"

namespace tallow {

static_assert(access_bytes == 16, "the widest access is one of four words");

template <uint32_t First, uint32_t... Others>
constexpr uint32_t largest = First > largest<Others...> ? First : largest<Others...>;
template <uint32_t First> constexpr uint32_t largest<First> = First;

// How many elements of each of these types a thread takes at once: 16 bytes of the widest.
template <typename... Elements>
constexpr uint32_t pack_length = access_bytes / largest<static_cast<uint32_t>(sizeof(Elements))...>;

// The same where a thread computes the position of each of them.
template <typename... Elements>
constexpr uint32_t strided_length = pack_length<Elements...> > side_by_side ? side_by_side : pack_length<Elements...>;
static_assert(is_power_of_two<side_by_side>, "packs are split evenly");

template <typename T, uint32_t N> struct alignas(sizeof(T) * N > access_bytes ? access_bytes : sizeof(T) * N) Pack {
    T values[N];
};

template <uint32_t N, typename T> TALLOW_INLINE bool is_aligned(const T* pointer) {
    return reinterpret_cast<uint64_t>(pointer) % alignof(Pack<T, N>) == 0;
}

// An unsigned value of this many bytes. Compilers do not split an access to one of these types, where they would
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

// The lowest bits of a word as a number of a type. Of one with more bits they are the first part, the others are 0.
template <typename Value> TALLOW_INLINE Value from_bits(uint64_t bits) {
    if constexpr (sizeof(Value) > sizeof(bits))
        return bit_cast<Value>(bits128{bits, 0});
    else
        return bit_cast<Value>(static_cast<typename Word<sizeof(Value)>::type>(bits));
}

// The bytes of an access in registers, from which elements are cut by shifts: a struct laid over them could end up in
// memory.
template <uint32_t Bytes> struct Registers {
    uint32_t values[(Bytes + 3) / 4];
};

// The same words, of which compilers know nothing any more.
template <uint32_t Bytes> TALLOW_INLINE Registers<Bytes> opaque(Registers<Bytes> pack) {
#pragma unroll
    for (uint32_t word = 0; word < Bytes / 4; ++word)
        pack.values[word] = opaque(pack.values[word]);
    return pack;
}

template <uint32_t Bytes> TALLOW_INLINE Registers<Bytes> load_registers(const void* pointer) {
    const auto word = *static_cast<const typename Word<Bytes>::type*>(pointer);
    if constexpr (Bytes == 16) {
#if defined(TALLOW_NVIDIA)
        return {{word.x, word.y, word.z, word.w}};
#else
        return {{word[0], word[1], word[2], word[3]}};
#endif
    } else if constexpr (Bytes == 8) {
        return {{static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)}};
    } else {
        return {{word}};
    }
}

template <uint32_t Bytes> TALLOW_INLINE void store_registers(void* pointer, const Registers<Bytes>& registers) {
    using Access = typename Word<Bytes>::type;
    auto& word = *static_cast<Access*>(pointer);
    if constexpr (Bytes == 16)
        word = Access{registers.values[0], registers.values[1], registers.values[2], registers.values[3]};
    else if constexpr (Bytes == 8)
        word = registers.values[0] | uint64_t{registers.values[1]} << 32;
    else
        word = static_cast<Access>(registers.values[0]);
}

// The same of a result that is larger than caches: on NVIDIA it is written through them. The kernel must not read it
// again, as compilers move other accesses across this one.
TALLOW_INLINE void store_streaming(void* pointer, const Registers<16>& registers) {
#if defined(TALLOW_NVIDIA)
    asm volatile("st.global.wt.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(registers.values[0]),
                 "r"(registers.values[1]), "r"(registers.values[2]), "r"(registers.values[3]));
#else
    store_registers(pointer, registers);
#endif
}

// Two words of an access as one number. LLVM would compile a shift and an or of them to a load of their own, besides
// that of the access.
TALLOW_INLINE uint64_t join_words(uint32_t low, uint32_t high) {
#if defined(TALLOW_NVIDIA)
    return low | uint64_t{high} << 32;
#else
    using Pair = uint32_t __attribute__((vector_size(8)));
    return bit_cast<uint64_t>(Pair{low, high});
#endif
}

// Element i of such an access, and back.
template <typename T, uint32_t Bytes> TALLOW_INLINE T take_element(const Registers<Bytes>& registers, uint32_t i) {
    constexpr uint32_t size = sizeof(T);
    const uint32_t* const words = registers.values + i * size / 4;
    if constexpr (size < 4)
        return bit_cast<T>(static_cast<typename Word<size>::type>(words[0] >> i * size % 4 * 8));
    else if constexpr (size == 4)
        return bit_cast<T>(words[0]);
    else if constexpr (size == 8)
        return bit_cast<T>(join_words(words[0], words[1]));
    else
        return bit_cast<T>(bits128{join_words(words[0], words[1]), join_words(words[2], words[3])});
}

template <typename T, uint32_t Bytes>
TALLOW_INLINE void put_element(Registers<Bytes>& registers, uint32_t i, T element) {
    constexpr uint32_t size = sizeof(T);
    uint32_t* const words = registers.values + i * size / 4;
    if constexpr (size < 4) {
        words[0] |= static_cast<uint32_t>(bit_cast<typename Word<size>::type>(element)) << i * size % 4 * 8;
    } else if constexpr (size == 4) {
        words[0] = bit_cast<uint32_t>(element);
    } else if constexpr (size == 8) {
        const uint64_t bits = bit_cast<uint64_t>(element);
        words[0] = static_cast<uint32_t>(bits);
        words[1] = static_cast<uint32_t>(bits >> 32);
    } else {
        const bits128 bits = bit_cast<bits128>(element);
        words[0] = static_cast<uint32_t>(bits.low);
        words[1] = static_cast<uint32_t>(bits.low >> 32);
        words[2] = static_cast<uint32_t>(bits.high);
        words[3] = static_cast<uint32_t>(bits.high >> 32);
    }
}

// The pack of function(element, its number in the pack), rounded.
template <typename T, uint32_t Bytes, typename Function>
TALLOW_INLINE Registers<Bytes> map_pack(const Registers<Bytes>& pack, Function function) {
    constexpr uint32_t length = Bytes / sizeof(T);
    Registers<Bytes> result{};
#pragma unroll
    for (uint32_t i = 0; i < length; ++i) {
        const auto value = function(to_compute(take_element<T>(pack, i)), i);
        if constexpr (sizeof(T) == 2 && length > 1) {
            ++i;
            result.values[i / 2] = round_pair<T>(value, function(to_compute(take_element<T>(pack, i)), i));
        } else {
            put_element(result, i, convert<T>(value));
        }
    }
    return result;
}

// N elements in one access, which the pointer must be aligned for.
template <uint32_t N, typename T> TALLOW_INLINE Pack<T, N> load_pack(const T* pointer) {
    const Registers<sizeof(T) * N> registers = load_registers<sizeof(T) * N>(pointer);
    Pack<T, N> pack;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        pack.values[i] = take_element<T>(registers, i);
    return pack;
}
template <uint32_t N, typename T> TALLOW_INLINE void store_pack(T* pointer, const Pack<T, N>& pack) {
    Registers<sizeof(T) * N> registers{};
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        put_element(registers, i, pack.values[i]);
    store_registers(pointer, registers);
}

// Elements first .. first + N of a contiguous tensor, those from `count` on never touched.
template <uint32_t N, typename T>
TALLOW_INLINE void store_guarded(T* pointer, uint64_t first, uint64_t count, const Pack<T, N>& pack) {
    if (first + N <= count && is_aligned<N>(pointer)) {
        store_pack(pointer + first, pack);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            if (first + i < count)
                pointer[first + i] = pack.values[i];
    }
}

// N elements with a stride. The innermost stride is 0 for a broadcast operand and 1 for a dense one.
template <uint32_t N, typename T> TALLOW_INLINE Pack<T, N> load_run(const T* pointer, uint64_t stride) {
    Pack<T, N> pack;
    if (stride == 1 && is_aligned<N>(pointer)) {
        pack = load_pack<N>(pointer);
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

// Up to N elements with a stride, of which `left` exist.
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

} // namespace tallow
