// Elements of at most two strides, which are gathered as bytes.
#pragma once

#include "platform.hpp"
#include "words.hpp"

namespace tallow {

// Where elements are: side by side or, if `elements` is not 0, in runs of `elements` with a stride of `stride` bytes,
// whose elements have one of `step` bytes.
struct Runs {
    uint64_t elements;
    uint64_t stride;
    uint64_t step;
};

// Elements are prefetched this many runs, or bytes of a long run, ahead: processors do not look into other pages by
// themselves.
constexpr uint64_t runs_ahead = 4;
constexpr uint64_t run_bytes_ahead = 4096;

// Fixed sizes compile to a load and a store where a call of memcpy would take longer.
TALLOW_INLINE void copy_bytes(void* target, const void* source, uint64_t bytes) {
    if (bytes == 4)
        __builtin_memcpy(target, source, 4);
    else if (bytes == 8)
        __builtin_memcpy(target, source, 8);
    else if (bytes == 16)
        __builtin_memcpy(target, source, 16);
    else
        __builtin_memcpy(target, source, bytes);
}

// Copies at least `Bytes` bytes without a call. The last ones may be written twice.
template <uint64_t Bytes>
TALLOW_INLINE void copy_in_steps(uint8_t* target, const uint8_t* source, uint64_t bytes, uint64_t ahead) {
    for (uint64_t i = 0; i + Bytes <= bytes; i += Bytes) {
        __builtin_prefetch(source + i + ahead);
        __builtin_memcpy(target + i, source + i, Bytes);
    }
    __builtin_memcpy(target + bytes - Bytes, source + bytes - Bytes, Bytes);
}
TALLOW_INLINE void copy_run(uint8_t* target, const uint8_t* source, uint64_t bytes, uint64_t stride) {
    const uint64_t ahead = bytes < run_bytes_ahead ? runs_ahead * stride : run_bytes_ahead;
    if (bytes >= 64)
        copy_in_steps<64>(target, source, bytes, ahead);
    else if (bytes >= 16)
        copy_in_steps<16>(target, source, bytes, ahead);
    else
        copy_bytes(target, source, bytes);
}

template <typename T>
TALLOW_INLINE void gather_words(uint8_t* target, const uint8_t* source, const Runs& runs, uint64_t first,
                                uint64_t count) {
    uint64_t run = first / runs.elements, element = first % runs.elements;
    for (uint64_t left = count; left != 0; element = 0, ++run) {
        const uint64_t length = runs.elements - element < left ? runs.elements - element : left;
        const uint8_t* from = source + run * runs.stride + element * runs.step;
        if (runs.step == sizeof(T)) {
            copy_run(target, from, length * sizeof(T), runs.stride);
        } else {
            for (uint64_t i = 0; i < length; ++i)
                __builtin_memcpy(target + i * sizeof(T), from + i * runs.step, sizeof(T));
        }
        target += length * sizeof(T);
        left -= length;
    }
}

// Writes elements from the one of this number on side by side.
TALLOW_INLINE void gather(uint8_t* target, const uint8_t* source, const Runs& runs, uint32_t itemsize, uint64_t first,
                          uint64_t count) {
    if (runs.elements == 0)
        copy_bytes(target, source + first * itemsize, count * itemsize);
    else if (itemsize > 8)
        gather_words<bits128>(target, source, runs, first, count);
    else
        with_word(itemsize, [&](auto word) { gather_words<decltype(word)>(target, source, runs, first, count); });
}

} // namespace tallow
