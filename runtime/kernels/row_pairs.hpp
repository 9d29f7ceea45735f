// Pairs of elements of 16 bits, the vectors of rows whose widths are no multiples of 16 bytes. Such rows begin
// anywhere: a pair lies in one word or, in every other row, in two.
#pragma once

#include "access.hpp"

namespace tallow {

template <typename T, uint32_t N> using RowVector = Registers<sizeof(T) * N>;
template <typename T, uint32_t N> constexpr bool are_pairs = N == 2 && sizeof(T) == 2;

// A word where a condition holds, else 0; and a word or element that is written where it holds. NVIDIA's compiler would
// branch for each.
TALLOW_INLINE uint32_t load_where(bool condition, const uint32_t* address) {
    uint32_t word = 0;
#if defined(TALLOW_NVIDIA)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.b32 %0, [%1];}"
                 : "+r"(word)
                 : "l"(address), "r"(static_cast<uint32_t>(condition)));
#else
    if (condition)
        word = *address;
#endif
    return word;
}
template <uint32_t Bytes>
TALLOW_INLINE void store_where(bool condition, void* address, const Registers<Bytes>& registers) {
#if defined(TALLOW_NVIDIA)
    const auto is_written = static_cast<uint32_t>(condition);
    if constexpr (Bytes == 4) {
        asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.b32 [%0], %1;}" ::"l"(address),
                     "r"(registers.values[0]), "r"(is_written)
                     : "memory");
        return;
    } else if constexpr (Bytes == 2) {
        asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.b16 [%0], %1;}" ::"l"(address),
                     "h"(static_cast<uint16_t>(registers.values[0])), "r"(is_written)
                     : "memory");
        return;
    }
#endif
    if (condition)
        store_registers(address, registers);
}

// The bits of a word before the first element.
template <typename T> TALLOW_INLINE uint32_t bits_before(const T* elements) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(elements) & 2) * 8;
}

// The words that a pair lies in. They are loaded for several pairs before any is shifted.
struct WordsOfPair {
    uint32_t low;
    uint32_t high;

    // Of a pair `shift` bits after the first element of a word: of its first element where it is not complete, and of
    // none where it is not valid. A word that has an element of the row is read entirely.
    template <typename T>
    static TALLOW_INLINE WordsOfPair load(const T* word, uint32_t shift, bool is_valid, bool is_complete) {
        const auto* const words = reinterpret_cast<const uint32_t*>(word);
        return {load_where(is_valid, words), load_where(is_complete && shift != 0, words + 1)};
    }
    // The same pair wherever it begins.
    static TALLOW_INLINE WordsOfPair of(const RowVector<uint16_t, 2>& pair) {
        return {pair.values[0], pair.values[0]};
    }
    TALLOW_INLINE RowVector<uint16_t, 2> pair(uint32_t shift) const {
        return {{static_cast<uint32_t>(join_words(low, high) >> shift)}};
    }
};

// Writes the pair `index` elements from the first one on, its first element where it is not complete, or nothing.
template <typename T>
TALLOW_INLINE void store_pair(T* first, uint64_t index, const RowVector<T, 2>& pair, bool is_valid, bool is_complete) {
    T* const elements = first + index;
    const bool is_word = bits_before(first) == 0;
    store_where(is_complete && is_word, elements, pair);
    store_where(is_valid && !(is_complete && is_word), elements, RowVector<T, 1>{{pair.values[0] & 0xFFFF}});
    store_where(is_complete && !is_word, elements + 1, RowVector<T, 1>{{pair.values[0] >> 16}});
}

} // namespace tallow
