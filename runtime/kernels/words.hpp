// Elements that are only moved, as words of their size.
#pragma once

#include "formats.hpp"

namespace tallow {

// Calls visit(word) with a word of `bytes` bytes.
template <typename Visit> TALLOW_INLINE void with_word(uint32_t bytes, Visit visit) {
    if (bytes == 1)
        visit(uint8_t{});
    else if (bytes == 2)
        visit(uint16_t{});
    else if (bytes == 4)
        visit(uint32_t{});
    else
        visit(uint64_t{});
}

// The same of elements, which may have twice as many bytes as the longest index.
template <typename Visit> TALLOW_INLINE void with_element(uint32_t bytes, Visit visit) {
    if (bytes == sizeof(bits128))
        visit(bits128{});
    else
        with_word(bytes, visit);
}

template <typename Word>
TALLOW_INLINE void gather_words(Word* target, const Word* source, int64_t stride, uint64_t count) {
    if (stride == 0) {
        const Word word = *source;
        for (uint64_t i = 0; i < count; ++i)
            target[i] = word;
    } else if (stride == 1) {
        __builtin_memcpy(target, source, count * sizeof(Word));
    } else {
        for (uint64_t i = 0; i < count; ++i)
            target[i] = source[static_cast<int64_t>(i) * stride];
    }
}

template <typename Word>
TALLOW_INLINE void scatter_words(Word* target, const Word* source, int64_t stride, uint64_t count) {
    if (stride == 1)
        __builtin_memcpy(target, source, count * sizeof(Word));
    else
        for (uint64_t i = 0; i < count; ++i)
            target[static_cast<int64_t>(i) * stride] = source[i];
}

} // namespace tallow
