// The positions of the first few elements of lines in order. A block counts the digits of its elements' keys, from the
// highest on, until few enough have the digits of the last one that is wanted or come before it, and sorts these.
#pragma once

#include "order_key.hpp"
#include "subgroup_scan.hpp"

namespace tallow {

// An element to be ordered: by its key, and where keys are equal by its position.
template <typename T, bool Wide = (sizeof(T) > 4)> struct KeyAndPosition {
    uint64_t bits;
    static TALLOW_INLINE KeyAndPosition of(OrderKey<T> key, uint32_t position) {
        return {uint64_t{key} << 32 | position};
    }
    static TALLOW_INLINE KeyAndPosition last() {
        return {~uint64_t{0}};
    }
    TALLOW_INLINE OrderKey<T> key() const {
        return static_cast<OrderKey<T>>(bits >> 32);
    }
    TALLOW_INLINE uint32_t position() const {
        return static_cast<uint32_t>(bits);
    }
    TALLOW_INLINE bool is_before(const KeyAndPosition& other) const {
        return bits < other.bits;
    }
};
template <typename T> struct KeyAndPosition<T, true> {
    OrderKey<T> word;
    uint32_t number;
    static TALLOW_INLINE KeyAndPosition of(OrderKey<T> key, uint32_t position) {
        return {key, position};
    }
    static TALLOW_INLINE KeyAndPosition last() {
        return {static_cast<OrderKey<T>>(~OrderKey<T>{0}), ~0u};
    }
    TALLOW_INLINE OrderKey<T> key() const {
        return word;
    }
    TALLOW_INLINE uint32_t position() const {
        return number;
    }
    TALLOW_INLINE bool is_before(const KeyAndPosition& other) const {
        return word < other.word || (word == other.word && number < other.number);
    }
};

// In order, by a bitonic network whose size is the next power of two.
template <typename T> TALLOW_INLINE void sort_entries(KeyAndPosition<T>* entries, uint32_t count) {
    uint32_t size = 2;
    while (size < count)
        size *= 2;
    for (uint32_t i = count + thread_index(); i < size; i += block_size)
        entries[i] = KeyAndPosition<T>::last();
    synchronize_block();
#pragma unroll 1
    for (uint32_t run = 2; run <= size; run *= 2) {
#pragma unroll 1
        for (uint32_t distance = run / 2; distance > 0; distance /= 2) {
#pragma unroll 1
            for (uint32_t i = thread_index(); i < size / 2; i += block_size) {
                const uint32_t low = 2 * i - (i & (distance - 1));
                const KeyAndPosition<T> x = entries[low];
                const KeyAndPosition<T> y = entries[low + distance];
                if (y.is_before(x) == ((low & run) == 0)) {
                    entries[low] = y;
                    entries[low + distance] = x;
                }
            }
            // At distances below wave_size, entries belong to one wave.
            if (distance > wave_size || (distance == 1 && run > wave_size))
                synchronize_block();
            else
                synchronize_wave();
        }
    }
    synchronize_block();
}

// The elements side by side that a thread looks at, and how often it does at once.
template <typename T> constexpr uint32_t looked_at = sizeof(T) < 4 ? 4 : access_bytes / sizeof(T);
constexpr uint32_t looks = 4;
// The bits that elements are counted by.
constexpr uint32_t counted_bits = 11;
// So many elements are sorted as quickly as fewer are.
constexpr uint32_t min_entries = 512;
static_assert(min_entries <= select_count && is_power_of_two<select_count>, "a network has capacity");

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

    // look(keys, i, count), by the threads together, of the elements from i on in their order until it is false.
    template <typename Look> TALLOW_INLINE void each(Look look_at) const {
        constexpr uint32_t length = looked_at<T>;
        constexpr uint32_t together = length * block_size;
        for (uint32_t base = begin; base < end; base += looks * together) {
            const uint32_t first = base + thread_index() * length;
            Pack<T, length> packs[looks];
            uint32_t counts[looks];
#pragma unroll
            for (uint32_t look = 0; look < looks; ++look) {
                const uint32_t i = first + look * together;
                const uint32_t left = i < end ? end - i : 0;
                counts[look] = left < length ? left : length;
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
                OrderKey<T> keys[length];
#pragma unroll
                for (uint32_t e = 0; e < length; ++e)
                    keys[e] = order_key(packs[look].values[e], descending);
                if (!look_at(keys, first + look * together, counts[look]))
                    return;
            }
        }
    }
};

template <typename T, bool Listed, typename Arguments> TALLOW_INLINE void select_first(const Arguments& arguments) {
    using Key = OrderKey<T>;
    constexpr uint32_t length = looked_at<T>;
    constexpr uint32_t key_bits = 8 * sizeof(T);
    constexpr uint32_t digits = 1u << counted_bits;
    constexpr uint32_t own_digits = digits / block_size;
    union Shared {
        KeyAndPosition<T> entries[select_count];
        uint32_t counts[digits];
    };
    __shared__ Shared shared;
    __shared__ uint32_t taken;
    // The digit of the last one that is wanted, how many elements have lower ones, and how many this one.
    __shared__ uint32_t digit_of_last[3];
    const uint32_t thread = thread_index();
    uint32_t capacity = min_entries;
    while (capacity < arguments.count)
        capacity *= 2;
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
        // What is known of the key of the last one that is wanted, from the highest bit on. `before` elements come
        // before all that are `alike` so far.
        Key last = 0;
        uint32_t known = 0;
        uint32_t before = 0;
        uint32_t alike = candidates.end - candidates.begin;
        while (before + alike > capacity && known < key_bits) {
            const uint32_t bits = key_bits - known < counted_bits ? key_bits - known : counted_bits;
            const uint32_t shift = key_bits - known - bits;
            synchronize_block();
            for (uint32_t i = thread; i < digits; i += block_size)
                shared.counts[i] = 0;
            synchronize_block();
            candidates.each([&](const Key(&keys)[length], uint32_t, uint32_t count) {
#pragma unroll
                for (uint32_t e = 0; e < length; ++e)
                    if (e < count && (known == 0 || static_cast<Key>(keys[e] >> shift >> bits) == last))
                        atomic_add_shared(shared.counts + static_cast<uint32_t>(keys[e] >> shift) % (1u << bits), 1u);
                return true;
            });
            synchronize_block();
            uint32_t sum = 0;
#pragma unroll
            for (uint32_t i = 0; i < own_digits; ++i)
                sum += shared.counts[thread * own_digits + i];
            uint32_t total;
            uint32_t lower = before + exclusive_subgroup_scan<Counts>(sum, block_size, total);
            if (lower < arguments.count && arguments.count <= lower + sum) {
                uint32_t digit = thread * own_digits;
                while (lower + shared.counts[digit] < arguments.count)
                    lower += shared.counts[digit++];
                digit_of_last[0] = digit;
                digit_of_last[1] = lower;
                digit_of_last[2] = shared.counts[digit];
            }
            synchronize_block();
            last = static_cast<Key>(known == 0 ? digit_of_last[0] : last << bits | digit_of_last[0]);
            before = digit_of_last[1];
            alike = digit_of_last[2];
            known += bits;
        }
        const bool fits = before + alike <= capacity;
        synchronize_block();
        if (thread == 0)
            taken = 0;
        synchronize_block();
        candidates.each([&](const Key(&keys)[length], uint32_t i, uint32_t count) {
#pragma unroll
            for (uint32_t e = 0; e < length; ++e) {
                const Key high = known == 0 ? Key{0} : static_cast<Key>(keys[e] >> (key_bits - known));
                if (e < count && (high < last || (high == last && fits)))
                    shared.entries[take_shared(&taken)] = KeyAndPosition<T>::of(keys[e], candidates.position(i + e));
            }
            return true;
        });
        uint32_t selected = fits ? before + alike : before;
        // All bits of the key are known, and more elements have it than fit: the first of them.
        if (!fits)
            candidates.each([&](const Key(&keys)[length], uint32_t i, uint32_t count) {
                uint32_t own = 0;
#pragma unroll
                for (uint32_t e = 0; e < length; ++e)
                    own += e < count && keys[e] == last ? 1 : 0;
                uint32_t total;
                uint32_t slot = selected + exclusive_subgroup_scan<Counts>(own, block_size, total);
#pragma unroll
                for (uint32_t e = 0; e < length; ++e)
                    if (e < count && keys[e] == last && slot < arguments.count)
                        shared.entries[slot++] = KeyAndPosition<T>::of(last, candidates.position(i + e));
                selected = selected + total < arguments.count ? selected + total : arguments.count;
                return selected < arguments.count;
            });
        synchronize_block();
        sort_entries<T>(shared.entries, selected);
        uint32_t* const result = pointer_to<uint32_t>(arguments.result) + block * arguments.count;
        for (uint32_t i = thread; i < arguments.count; i += block_size)
            result[i] = shared.entries[i].position();
    }
}

} // namespace tallow
