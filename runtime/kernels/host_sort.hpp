// The positions of elements in order on the host. Equal elements stay in the order of their positions.
#pragma once

#include "search_sorted.hpp"
#include "vector.hpp"

namespace tallow {

// Elements of a part of short lines, roughly.
constexpr uint64_t counted_part = 1 << 12;
// The limit where only the first elements of lines are selected.
constexpr uint64_t selected_part = 1 << 14;
// The most elements of a short line that are selected without sorting it.
constexpr uint64_t counted_share = 4;
// From this length on, each pass sorts by more bits: clearing and adding up the counts is then negligible.
constexpr uint64_t long_line = 4096;

// What a vector of keys holds.
template <bool Wide> struct CountedKey {
    using type = uint32_t;
};
template <> struct CountedKey<true> {
    using type = uint64_t;
};

// The first positions of short lines: an element's rank is the number of those that come before it, which are counted
// for the elements of a vector at once.
template <typename T>
TALLOW_INLINE void count_line(uint32_t* result, const T* source, uint32_t length, uint32_t count, bool descending) {
    using Key = typename CountedKey<(sizeof(T) > sizeof(uint32_t))>::type;
    constexpr uint32_t lanes = vector_length<Key>;
    using Keys = Vector<Key>;
    using Masks = decltype(Keys{} < Keys{});
    static_assert(sizeof(Masks) == sizeof(Keys));
    // Padding after the line precedes no element of it.
    Key keys[(counted_length<sizeof(T)> + lanes - 1) / lanes * lanes];
    __builtin_memset(keys, -1, sizeof keys);
    for (uint32_t i = 0; i < length; ++i)
        keys[i] = order_key(source[i], descending);
    Keys order;
    for (uint32_t lane = 0; lane < lanes; ++lane)
        order[lane] = lane;
    for (uint32_t first = 0; first < length; first += lanes) {
        Keys own;
        __builtin_memcpy(&own, keys + first, sizeof own);
        // A mask is -1 where it holds.
        Masks before = {};
        for (uint32_t i = 0; i < first; ++i)
            before -= keys[i] <= own;
        // Of equal ones those come before that are at lower positions.
#pragma GCC unroll 16
        for (uint32_t lane = 0; lane < lanes; ++lane)
            before -= (keys[first + lane] < own) | ((keys[first + lane] == own) & (order > static_cast<Key>(lane)));
        for (uint32_t i = first + lanes; i < length; ++i)
            before -= keys[i] < own;
        for (uint32_t lane = 0; lane < lanes && first + lane < length; ++lane)
            if (static_cast<uint32_t>(before[lane]) < count)
                result[before[lane]] = first + lane;
    }
}

// The first elements of a line, without the others: each of these is compared with the last one that was selected so
// far.
template <typename T>
TALLOW_INLINE void select_line(uint32_t* result, const T* source, uint64_t length, uint64_t count, bool descending) {
    using Key = OrderKey<T>;
    constexpr uint64_t block = 64;
    Key best[selected_count];
    uint64_t selected = 0;
    for (uint64_t first = 0; first < length; first += block) {
        const uint64_t size = length - first < block ? length - first : block;
        Key keys[block];
        Key least = static_cast<Key>(~Key{0});
        for (uint64_t i = 0; i < size; ++i) {
            keys[i] = order_key(source[first + i], descending);
            least = keys[i] < least ? keys[i] : least;
        }
        if (selected == count && least >= best[count - 1])
            continue;
        for (uint64_t i = 0; i < size; ++i) {
            const Key key = keys[i];
            // An equal one that comes later does not go before it.
            if (selected == count && key >= best[count - 1])
                continue;
            uint64_t position = selected < count ? selected++ : count - 1;
            for (; position > 0 && best[position - 1] > key; --position) {
                best[position] = best[position - 1];
                result[position] = result[position - 1];
            }
            best[position] = key;
            result[position] = static_cast<uint32_t>(first + i);
        }
    }
}

// Keys and where they were, moved from one buffer to another by a digit a pass.
template <typename T> class LineSorter {
  public:
    using Key = OrderKey<T>;

    LineSorter(Key* scratch, uint64_t capacity, uint64_t length, bool descending)
        : length_(length), descending_(descending), keys_{scratch, scratch + capacity},
          positions_(reinterpret_cast<uint32_t*>(scratch + 2 * capacity)) {
    }

    void sort(uint32_t* result, const T* source) const {
        if (sizeof(Key) >= 4 && length_ >= long_line)
            sort_by<11>(result, source);
        else
            sort_by<8>(result, source);
    }

  private:
    template <uint32_t Bits> void sort_by(uint32_t* result, const T* source) const {
        constexpr uint32_t passes = (8 * sizeof(Key) + Bits - 1) / Bits;
        constexpr uint32_t digits = 1u << Bits;
        constexpr Key mask = static_cast<Key>(digits - 1);
        uint32_t counts[passes][digits] = {};
        for (uint64_t i = 0; i < length_; ++i) {
            const Key key = order_key(source[i], descending_);
            keys_[0][i] = key;
            for (uint32_t pass = 0; pass < passes; ++pass)
                ++counts[pass][(key >> (pass * Bits)) & mask];
        }
        // A digit that all keys have moves nothing.
        uint32_t needed[passes];
        uint32_t count = 0;
        for (uint32_t pass = 0; pass < passes; ++pass)
            if (counts[pass][(keys_[0][0] >> (pass * Bits)) & mask] != length_)
                needed[count++] = pass;
        if (count == 0)
            for (uint64_t i = 0; i < length_; ++i)
                result[i] = static_cast<uint32_t>(i);
        // The last pass writes to the result, the one before it to the scratch, and so on.
        for (uint32_t step = 0; step < count; ++step) {
            uint32_t* const offsets = counts[needed[step]];
            uint32_t before = 0;
            for (uint32_t digit = 0; digit < digits; ++digit) {
                const uint32_t own = offsets[digit];
                offsets[digit] = before;
                before += own;
            }
            uint32_t* const to = (count - step) % 2 == 1 ? result : positions_;
            const uint32_t* const from = (count - step) % 2 == 1 ? positions_ : result;
            const uint32_t shift = needed[step] * Bits;
            const Key* const keys = keys_[step % 2];
            Key* const moved = keys_[(step + 1) % 2];
            const bool is_first = step == 0, is_last = step + 1 == count;
            for (uint64_t i = 0; i < length_; ++i) {
                const Key key = keys[i];
                const uint32_t target = offsets[(key >> shift) & mask]++;
                to[target] = is_first ? static_cast<uint32_t>(i) : from[i];
                if (!is_last)
                    moved[target] = key;
            }
        }
    }

    const uint64_t length_;
    const bool descending_;
    Key* const keys_[2];
    uint32_t* const positions_;
};

template <typename T, typename Arguments> TALLOW_INLINE void argsort_lines(const Arguments& arguments) {
    const uint64_t length = arguments.length, lines = arguments.lines;
    const bool descending = arguments.descending != 0;
    uint32_t* const result = pointer_to<uint32_t>(arguments.result);
    const T* const source = pointer_to<const T>(arguments.source);
    const auto for_lines = [&](uint64_t together, const auto& apply) {
        do_parts(arguments, (lines + together - 1) / together, [=](uint64_t part) {
            for (uint64_t line = part * together; line < (part + 1) * together && line < lines; ++line)
                apply(line, source + line * length);
        });
    };
    const uint64_t count = arguments.count;
    if (length <= counted_length<sizeof(T)> && length <= counted_share * count) {
        for_lines(counted_part / length, [=](uint64_t line, const T* elements) {
            count_line(result + line * count, elements, static_cast<uint32_t>(length), static_cast<uint32_t>(count),
                       descending);
        });
        return;
    }
    if (count != length) {
        for_lines(selected_part / length + 1, [=](uint64_t line, const T* elements) {
            select_line(result + line * count, elements, length, count, descending);
        });
        return;
    }
    const uint64_t parts = lines < sorted_lines ? lines : sorted_lines;
    do_parts(arguments, parts, [=](uint64_t part) {
        const uint64_t bytes = arguments.line_capacity * (2 * sizeof(OrderKey<T>) + sizeof(uint32_t));
        const auto scratch = pointer_to<OrderKey<T>>(arguments.scratch + part * bytes);
        const LineSorter<T> sorter(scratch, arguments.line_capacity, length, descending);
        for (uint64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line)
            sorter.sort(result + line * length, source + line * length);
    });
}

// Searching this many elements is worth a part of its own.
constexpr uint64_t searched_part = 1 << 12;

template <typename T, typename Arguments> TALLOW_INLINE void search_sorted_lines(const Arguments& arguments) {
    int64_t* const result = pointer_to<int64_t>(arguments.result);
    const T* const values = pointer_to<const T>(arguments.values);
    const T* const lines = pointer_to<const T>(arguments.source);
    const uint64_t count = arguments.count, per_line = arguments.per_line, length = arguments.length;
    const bool right = arguments.right != 0;
    do_parts(arguments, (count + searched_part - 1) / searched_part, [=](uint64_t part) {
        for (uint64_t i = part * searched_part; i < (part + 1) * searched_part && i < count; ++i)
            result[i] = search_sorted(lines + i / per_line * length, length, values[i], right);
    });
}

} // namespace tallow
