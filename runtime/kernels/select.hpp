// The positions of the first few elements of lines in order. A block counts the digits of its elements' keys, from the
// highest on, until few enough have the digits of the last one that is wanted or come before it, and sorts these.
#pragma once

#include "order_key.hpp"
#include "team_scan.hpp"

namespace tallow {

// An element to be ordered: by its key, and where keys are equal by its position.
template <typename T, bool Wide = (sizeof(T) > 4)> struct Place {
    uint64_t bits;
    static TALLOW_INLINE Place of(OrderKey<T> key, uint32_t position) {
        return {uint64_t{key} << 32 | position};
    }
    static TALLOW_INLINE Place last() {
        return {~uint64_t{0}};
    }
    TALLOW_INLINE OrderKey<T> key() const {
        return static_cast<OrderKey<T>>(bits >> 32);
    }
    TALLOW_INLINE uint32_t position() const {
        return static_cast<uint32_t>(bits);
    }
    TALLOW_INLINE bool is_before(const Place& other) const {
        return bits < other.bits;
    }
};
template <typename T> struct Place<T, true> {
    OrderKey<T> word;
    uint32_t number;
    static TALLOW_INLINE Place of(OrderKey<T> key, uint32_t position) {
        return {key, position};
    }
    static TALLOW_INLINE Place last() {
        return {static_cast<OrderKey<T>>(~OrderKey<T>{0}), ~0u};
    }
    TALLOW_INLINE OrderKey<T> key() const {
        return word;
    }
    TALLOW_INLINE uint32_t position() const {
        return number;
    }
    TALLOW_INLINE bool is_before(const Place& other) const {
        return word < other.word || (word == other.word && number < other.number);
    }
};

// In order, by a bitonic network of as many places as the next power of two has.
template <typename T> TALLOW_INLINE void order_places(Place<T>* places, uint32_t count) {
    uint32_t size = 2;
    while (size < count)
        size *= 2;
    for (uint32_t i = count + thread_index(); i < size; i += block_size)
        places[i] = Place<T>::last();
    synchronize_block();
#pragma unroll 1
    for (uint32_t run = 2; run <= size; run *= 2) {
#pragma unroll 1
        for (uint32_t distance = run / 2; distance > 0; distance /= 2) {
#pragma unroll 1
            for (uint32_t i = thread_index(); i < size / 2; i += block_size) {
                const uint32_t low = 2 * i - (i & (distance - 1));
                const Place<T> x = places[low];
                const Place<T> y = places[low + distance];
                if (y.is_before(x) == ((low & run) == 0)) {
                    places[low] = y;
                    places[low + distance] = x;
                }
            }
            synchronize_block();
        }
    }
}

// The elements side by side that a thread looks at, and how often it does at once.
template <typename T> constexpr uint32_t looked_at = sizeof(T) < 4 ? 4 : access_bytes / sizeof(T);
constexpr uint32_t looks = 4;
// The bits that elements are counted by.
constexpr uint32_t counted_bits = 11;
static_assert(select_room >= select_count + 4 * block_size, "what threads find in a look has room beside all wanted");
static_assert(is_power_of_two<select_room>, "a network has room");

// The elements of a block: a part of a line or, where positions of the line's elements are listed, of the list. Of
// equal elements the list has the lower position first.
template <typename T, bool Listed> struct Candidates {
    const T* source;
    const uint32_t* list;
    uint32_t begin;
    uint32_t end;
    bool descending;

    TALLOW_INLINE uint32_t position(uint32_t i) const {
        return Listed ? list[i] : i;
    }

    // each(key, i) of every element, by the threads together in the order of i, as long as is_needed() after a look.
    template <typename Each, typename IsNeeded> TALLOW_INLINE void look(Each each, IsNeeded is_needed) const {
        constexpr uint32_t length = looked_at<T>;
        constexpr uint32_t together = length * block_size;
        for (uint32_t base = begin; base < end; base += looks * together) {
            const uint32_t first = base + thread_index() * length;
            Pack<T, length> packs[looks];
#pragma unroll
            for (uint32_t look = 0; look < looks; ++look) {
                const uint32_t i = first + look * together;
                const uint32_t left = i < end ? end - i : 0;
                if constexpr (Listed) {
#pragma unroll
                    for (uint32_t e = 0; e < length; ++e)
                        packs[look].values[e] = e < left ? source[list[i + e]] : T{};
                } else {
                    packs[look] = load_some<length>(source + i, 1, left);
                }
            }
#pragma unroll
            for (uint32_t look = 0; look < looks; ++look) {
                const uint32_t i = first + look * together;
#pragma unroll
                for (uint32_t e = 0; e < length; ++e)
                    if (i + e < end)
                        each(order_key(packs[look].values[e], descending), i + e);
                if (!is_needed())
                    return;
            }
        }
    }
};

template <typename T, bool Listed, typename Arguments> TALLOW_INLINE void select_first(const Arguments& arguments) {
    using Key = OrderKey<T>;
    constexpr uint32_t key_bits = 8 * sizeof(T);
    constexpr uint32_t counts_each = (1u << counted_bits) / block_size;
    union Shared {
        Place<T> places[select_room];
        uint32_t counts[1u << counted_bits];
    };
    __shared__ Shared shared;
    __shared__ uint32_t kept;
    // The digit of the last one that is wanted, how many elements have lower ones, and how many this one.
    __shared__ uint32_t digit_of_last[3];
    const uint32_t thread = thread_index();
    for (uint64_t block = block_index(); block < arguments.lines * arguments.parts; block += grid_blocks()) {
        const uint64_t line = block / arguments.parts;
        const uint64_t part = block % arguments.parts;
        const Candidates<T, Listed> candidates{
            pointer_to<const T>(arguments.source) + line * arguments.length,
            pointer_to<const uint32_t>(arguments.listed) + line * arguments.candidates,
            static_cast<uint32_t>(arguments.candidates * part / arguments.parts),
            static_cast<uint32_t>(arguments.candidates * (part + 1) / arguments.parts),
            arguments.descending != 0,
        };
        // The digits of the last one so far, how many bits they have, and of how many elements that have them as many
        // are `wanted` as come before it or are it.
        Key last = 0;
        uint32_t known = 0;
        uint32_t alike = candidates.end - candidates.begin;
        uint32_t wanted = arguments.count;
        while (arguments.count - wanted + alike > select_room && known < key_bits) {
            const uint32_t bits = key_bits - known < counted_bits ? key_bits - known : counted_bits;
            const uint32_t shift = key_bits - known - bits;
            synchronize_block();
            for (uint32_t i = thread; i < 1u << counted_bits; i += block_size)
                shared.counts[i] = 0;
            synchronize_block();
            candidates.look(
                [&](Key key, uint32_t) {
                    if (known == 0 || static_cast<Key>(key >> shift >> bits) == last)
                        atomic_add_shared(shared.counts + (static_cast<uint32_t>(key >> shift) & ((1u << bits) - 1)),
                                          1u);
                },
                [] { return true; });
            synchronize_block();
            uint32_t sum = 0;
#pragma unroll
            for (uint32_t i = 0; i < counts_each; ++i)
                sum += shared.counts[thread * counts_each + i];
            uint32_t total;
            uint32_t before = joined_before_in_team<Counts>(sum, block_size, total);
            if (before < wanted && wanted <= before + sum) {
                uint32_t digit = thread * counts_each;
                while (before + shared.counts[digit] < wanted)
                    before += shared.counts[digit++];
                digit_of_last[0] = digit;
                digit_of_last[1] = before;
                digit_of_last[2] = shared.counts[digit];
            }
            synchronize_block();
            last = static_cast<Key>((known == 0 ? 0 : last << bits) | digit_of_last[0]);
            wanted -= digit_of_last[1];
            alike = digit_of_last[2];
            known += bits;
        }
        synchronize_block();
        if (thread == 0)
            kept = 0;
        synchronize_block();
        const auto keep = [&](Key key, uint32_t i) {
            shared.places[take_shared(&kept)] = Place<T>::of(key, candidates.position(i));
        };
        const bool has_room = arguments.count - wanted + alike <= select_room;
        candidates.look(
            [&](Key key, uint32_t i) {
                const Key digits = known == 0 ? Key{0} : static_cast<Key>(key >> (key_bits - known));
                if (digits < last || (digits == last && has_room))
                    keep(key, i);
            },
            [] { return true; });
        // All bits are known, and more elements are equal than there is room for: the first of them.
        if (!has_room)
            candidates.look(
                [&](Key key, uint32_t i) {
                    if (key == last)
                        keep(key, i);
                },
                [&] {
                    synchronize_block();
                    const uint32_t count = kept;
                    synchronize_block();
                    return count < arguments.count;
                });
        synchronize_block();
        order_places<T>(shared.places, kept);
        uint32_t* const result = pointer_to<uint32_t>(arguments.result) + block * arguments.count;
        for (uint32_t i = thread; i < arguments.count; i += block_size)
            result[i] = shared.places[i].position();
    }
}

} // namespace tallow
