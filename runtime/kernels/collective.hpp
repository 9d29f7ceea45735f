// Calls that ranks make together, whose GPUs reach each other's memory. An element travels once, in a word of 8 bytes
// with the number of the call next to it, so that a reader of that number has the element too, and nothing else is
// waited for. NCCL calls this protocol LL.
#pragma once

#include "types.hpp"

#if defined(TALLOW_HOST)
#include <sched.h>
#endif

namespace tallow {

// Words that other GPUs read and write meanwhile.
TALLOW_INLINE void store_to_peer(uint64_t* address, uint64_t word) {
#if defined(TALLOW_NVIDIA)
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
#elif defined(TALLOW_AMD)
    __hip_atomic_store(address, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    __atomic_store_n(address, word, __ATOMIC_RELAXED);
#endif
}
TALLOW_INLINE uint64_t load_of_peers(const uint64_t* address) {
#if defined(TALLOW_NVIDIA)
    uint64_t word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    return word;
#elif defined(TALLOW_AMD)
    return __hip_atomic_load(address, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    return __atomic_load_n(address, __ATOMIC_RELAXED);
#endif
}

// What a rank wrote in this call. The wait ends without it when a rank is lost.
TALLOW_INLINE uint32_t await_peer(const uint64_t* address, uint32_t call, const uint64_t* stop) {
    for (uint32_t tries = 1;; ++tries) {
        const uint64_t word = load_of_peers(address);
        if (static_cast<uint32_t>(word >> 32) == call || (tries % 1024 == 0 && load_of_peers(stop) != 0))
            return static_cast<uint32_t>(word);
#if defined(TALLOW_HOST)
        sched_yield(); // ranks may share a core
#endif
    }
}

// The elements that travel together.
template <typename T> struct ElementsOfWord {
    T elements[4 / sizeof(T)];
};

// The sums over all ranks, in the order of their numbers, so that every rank has the same bits; divided and rounded
// once. The words of a call lie in the half of the memory that its number chooses: a rank is at most one call ahead,
// since it cannot end a call that others have not begun.
template <typename T, typename Arguments> TALLOW_INLINE void all_reduce(const Arguments& arguments) {
    constexpr uint32_t in_word = 4 / sizeof(T);
    const uint32_t index = block_index() * block_size + thread_index();
    const uint32_t first = index * in_word;
    const bool takes_part = first < arguments.count;
    uint32_t* const last_call = pointer_to<uint32_t>(arguments.calls) + block_index();
    const uint32_t call = *last_call + 1;
    const uint64_t* const buffers = pointer_to<const uint64_t>(arguments.buffers);
    const uint64_t half = uint64_t{call & 1} * arguments.ranks * reduced_words + index;
    if (takes_part) {
        const T* const source = pointer_to<const T>(arguments.source) + first;
        ElementsOfWord<T> own = {};
#pragma unroll
        for (uint32_t i = 0; i < in_word; ++i)
            if (first + i < arguments.count)
                own.elements[i] = source[i];
        const uint64_t word = uint64_t{call} << 32 | bit_cast<uint32_t>(own);
        for (uint32_t r = 0; r < arguments.ranks; ++r)
            store_to_peer(pointer_to<uint64_t>(buffers[r]) + half + arguments.rank * reduced_words, word);
    }
    // All threads have read the number of the call, and written what others wait for.
    synchronize_block();
    if (thread_index() == 0)
        *last_call = call;
    if (!takes_part)
        return;
    const uint64_t* const words = pointer_to<const uint64_t>(buffers[arguments.rank]) + half;
    const uint64_t* const stop = pointer_to<const uint64_t>(arguments.stop);
    compute_type<T> sums[in_word];
    for (uint32_t r = 0; r < arguments.ranks; ++r) {
        const auto word = bit_cast<ElementsOfWord<T>>(await_peer(words + r * reduced_words, call, stop));
#pragma unroll
        for (uint32_t i = 0; i < in_word; ++i) {
            const auto element = to_compute(word.elements[i]);
            sums[i] = r == 0 ? element : sums[i] + element;
        }
    }
    T* const result = pointer_to<T>(arguments.result) + first;
#pragma unroll
    for (uint32_t i = 0; i < in_word; ++i)
        if (first + i < arguments.count)
            result[i] = convert<T>(sums[i] / arguments.divisor);
}

} // namespace tallow
