// Results of a launch that its blocks wait for. All bits of their memory are set before the launch, and an element is
// present once it has other bits. So no flag travels with it. All bits set are a NaN, which is published as another
// one.
#pragma once

#include "access.hpp"
#include "types.hpp"

#if defined(TALLOW_HOST)
#include <sched.h>
#endif

namespace tallow {

template <typename T> using BitsOf = typename Word<sizeof(T)>::type;

template <typename T> TALLOW_INLINE void publish(T* address, T value) {
    BitsOf<T> bits = bit_cast<BitsOf<T>>(value);
    bits = bits == static_cast<BitsOf<T>>(~0u) ? static_cast<BitsOf<T>>(~1u) : bits;
#if defined(TALLOW_NVIDIA)
    if constexpr (sizeof(T) == 2)
        asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(address), "h"(bits) : "memory");
    else
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");
#elif defined(TALLOW_AMD)
    __hip_atomic_store(reinterpret_cast<BitsOf<T>*>(address), bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    __atomic_store_n(reinterpret_cast<BitsOf<T>*>(address), bits, __ATOMIC_RELAXED);
#endif
}

// What other blocks may write meanwhile.
template <typename Bits> TALLOW_INLINE Bits poll(const void* address) {
    static_assert(sizeof(Bits) <= 8, "a poll reads at most eight bytes");
#if defined(TALLOW_NVIDIA)
    Bits bits;
    if constexpr (sizeof(Bits) == 2)
        asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
    else if constexpr (sizeof(Bits) == 4)
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(bits) : "l"(address) : "memory");
    else
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(address) : "memory");
    return bits;
#elif defined(TALLOW_AMD)
    return __hip_atomic_load(static_cast<const Bits*>(address), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    return __atomic_load_n(static_cast<const Bits*>(address), __ATOMIC_RELAXED);
#endif
}

// `Count` consecutive elements that may not be present yet.
template <typename T, uint32_t Count> struct Awaited {
    static constexpr uint32_t bytes = Count * sizeof(T), words = bytes / 4;
    static_assert(bytes % 8 == 0, "polls read eight bytes or more");
    uint32_t bits[words];

    // Those from `first` on of a row of `length`; beyond it are zeros. The row is aligned to `bytes`, or not at all.
    TALLOW_INLINE void load(const T* row, uint32_t first, uint32_t length, bool is_aligned) {
        // Found again each time: AMD's compiler would keep masks of all comparisons across the loop of steps.
        first = opaque(first);
        if (is_aligned && first + Count <= length)
            load_aligned(row + first);
        else
#pragma unroll
            for (uint32_t w = 0; w < words; ++w) {
                bits[w] = 0;
#pragma unroll
                for (uint32_t part = 0; part < 4 / sizeof(T); ++part) {
                    const uint32_t element = first + w * (4 / sizeof(T)) + part;
                    const uint32_t own = poll<BitsOf<T>>(row + (element < length ? element : length - 1));
                    bits[w] |= (element < length ? own : 0) << (8 * sizeof(T) * part);
                }
            }
    }
    TALLOW_INLINE bool is_present() const {
        bool result = true;
#pragma unroll
        for (uint32_t w = 0; w < words; ++w)
            if constexpr (sizeof(T) == 4)
                result = result && bits[w] != ~0u;
            else
                // No half of the complement is 0 (Mycroft 1987).
                result = result && ((~bits[w] - 0x00010001u) & bits[w] & 0x80008000u) == 0;
        return result;
    }
    TALLOW_INLINE Pack<uint32_t, words> pack() const {
        Pack<uint32_t, words> result;
#pragma unroll
        for (uint32_t w = 0; w < words; ++w)
            result.values[w] = bits[w];
        return result;
    }
    TALLOW_INLINE float number(uint32_t i) const {
        if constexpr (sizeof(T) == 4)
            return to_compute(bit_cast<T>(bits[i]));
        else
            return to_compute(bit_cast<T>(static_cast<uint16_t>(bits[i / 2] >> (i % 2 * 16))));
    }

  private:
    TALLOW_INLINE void load_aligned(const T* elements) {
        const uint8_t* const address = reinterpret_cast<const uint8_t*>(elements);
        if constexpr (bytes % 16 == 0) {
#pragma unroll
            for (uint32_t w = 0; w < words; w += 4)
                poll_access(address + 4 * w, bits + w);
        } else {
#pragma unroll
            for (uint32_t w = 0; w < words; w += 2)
                split(poll<uint64_t>(address + 4 * w), bits + w);
        }
    }
    static TALLOW_INLINE void poll_access(const uint8_t* address, uint32_t* to) {
#if defined(TALLOW_NVIDIA)
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "l"(address)
                     : "memory");
#else
        split(poll<uint64_t>(address), to);
        split(poll<uint64_t>(address + 8), to + 2);
#endif
    }
    static TALLOW_INLINE void split(uint64_t both, uint32_t* to) {
        to[0] = static_cast<uint32_t>(both);
        to[1] = static_cast<uint32_t>(both >> 32);
    }
};

// In front of a wait, by all threads of a block. On the host they run one after another: those that wait for others of
// their block would wait forever.
TALLOW_INLINE void begin_wait() {
#if defined(TALLOW_HOST)
    synchronize_block();
#endif
}
// Between two polls of a wait.
TALLOW_INLINE void wait_a_moment() {
#if defined(TALLOW_HOST)
    sched_yield(); // blocks may share a core
#endif
}

} // namespace tallow
