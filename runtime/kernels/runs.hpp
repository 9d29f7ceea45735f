// Elements of at most two strides, which are gathered as bytes.
#pragma once

#include "platform.hpp"
#include "words.hpp"

namespace tallow {

// Where elements are: side by side or, if `elements` is not 0, in runs of so many, `stride` bytes apart, whose elements
// are `step` bytes apart.
struct Runs {
    uint64_t elements;
    uint64_t stride;
    uint64_t step;
};

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

template <typename T>
TALLOW_INLINE void gather_words(uint8_t* target, const uint8_t* source, const Runs& runs, uint64_t first,
                                uint64_t count) {
    uint64_t run = first / runs.elements, element = first % runs.elements;
    for (uint64_t left = count; left != 0; element = 0, ++run) {
        const uint64_t length = runs.elements - element < left ? runs.elements - element : left;
        const uint8_t* from = source + run * runs.stride + element * runs.step;
        if (runs.step == sizeof(T)) {
            copy_bytes(target, from, length * sizeof(T));
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
