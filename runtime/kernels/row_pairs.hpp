// Pairs of elements of 16 bits, the vectors of rows whose widths are no multiples of 16 bytes. Such rows begin
// anywhere: a pair lies in one word or, in every other row, in two.
#pragma once

#include "access.hpp"

namespace tallow {

template <typename T, uint32_t N> using RowVector = Registers<sizeof(T) * N>;
template <typename T, uint32_t N> constexpr bool are_pairs = N == 2 && sizeof(T) == 2;

// The bits of a word before the first element.
template <typename T> TALLOW_INLINE uint32_t bits_before(const T* elements) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(elements) & 2) * 8;
}

// The words that a pair lies in. They are loaded for several pairs before any is shifted to its place.
struct WordsOfPair {
    uint32_t low;
    uint32_t high;

    // Of a pair `shift` bits behind the first element of a word, if it is not complete of its first element. A word
    // that has an element of the row is read entirely.
    template <typename T> static TALLOW_INLINE WordsOfPair load(const T* word, uint32_t shift, bool is_complete) {
        const auto* const words = reinterpret_cast<const uint32_t*>(word);
        WordsOfPair loaded{words[0], 0};
        if (shift != 0 && is_complete)
            loaded.high = words[1];
        return loaded;
    }
    // The same pair wherever it begins.
    static TALLOW_INLINE WordsOfPair of(const RowVector<uint16_t, 2>& pair) {
        return {pair.values[0], pair.values[0]};
    }
    TALLOW_INLINE RowVector<uint16_t, 2> pair(uint32_t shift) const {
        return {{static_cast<uint32_t>(join_words(low, high) >> shift)}};
    }
};

// Writes the pair `index` elements from the first one on, or its first element.
template <typename T>
TALLOW_INLINE void store_pair(T* first, uint64_t index, const RowVector<T, 2>& pair, bool is_complete) {
    T* const elements = first + index;
    if (is_complete && bits_before(first) == 0) {
        store_registers(elements, pair);
    } else {
        elements[0] = take_element<T>(pair, 0);
        if (is_complete)
            elements[1] = take_element<T>(pair, 1);
    }
}

} // namespace tallow
