// The positions of the first few elements of lines in order, in one read of the lines: a block keeps the first that it
// has seen so far, and of the others only those that come before the last of them.
#pragma once

#include "order_key.hpp"

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
// More than are wanted are kept before they are ordered, as far as what all threads find in a look still has room.
constexpr uint32_t most_kept = select_room - 4 * block_size;
static_assert(select_count <= most_kept && is_power_of_two<select_room>, "a network has room");

// A part of a line for each block: `count` of its elements, the first in order. Where positions of a line's elements
// are listed, those are the elements; of equal ones the list has the lower position first.
template <typename T, bool Listed, typename Arguments> TALLOW_INLINE void select_first(const Arguments& arguments) {
    __shared__ Place<T> places[select_room];
    __shared__ uint32_t kept;
    // Whether a thread has found something, by turns: a thread may be one turn ahead of others.
    __shared__ uint32_t found_in[2];
    constexpr uint32_t length = looked_at<T>;
    const uint32_t thread = thread_index();
    const uint32_t wanted = arguments.count;
    const uint32_t enough = wanted + block_size < most_kept ? wanted + block_size : most_kept;
    const bool descending = arguments.descending != 0;
    uint32_t turn = 0;
    if (thread < 2)
        found_in[thread] = 0;
    for (uint64_t block = block_index(); block < arguments.lines * arguments.parts; block += grid_blocks()) {
        const uint64_t line = block / arguments.parts;
        const uint64_t part = block % arguments.parts;
        const uint32_t begin = static_cast<uint32_t>(arguments.candidates * part / arguments.parts);
        const uint32_t end = static_cast<uint32_t>(arguments.candidates * (part + 1) / arguments.parts);
        const T* const source = pointer_to<const T>(arguments.source) + line * arguments.length;
        const uint32_t* const list = pointer_to<const uint32_t>(arguments.listed) + line * arguments.candidates;
        const auto position_of = [&](uint32_t i) { return Listed ? list[i] : i; };
        uint32_t first = begin;
        uint32_t count = 0;
        synchronize_block();
        for (; first < end && count < wanted; first += block_size) {
            const uint32_t i = first + thread;
            if (i < end) {
                const uint32_t position = position_of(i);
                places[count + thread] = Place<T>::of(order_key(source[position], descending), position);
            }
            count += end - first < block_size ? end - first : block_size;
        }
        synchronize_block();
        OrderKey<T> last;
        const auto keep_first = [&] {
            order_places<T>(places, count);
            count = count < wanted ? count : wanted;
            last = places[count - 1].key();
            synchronize_block();
            if (thread == 0)
                kept = count;
            synchronize_block();
        };
        keep_first();
        for (; first < end; first += looks * length * block_size) {
            OrderKey<T> keys[looks][length];
            bool found = false;
#pragma unroll
            for (uint32_t look = 0; look < looks; ++look) {
                const uint32_t i = first + look * length * block_size + thread * length;
                const uint32_t left = i < end ? end - i : 0;
                Pack<T, length> pack{};
                if constexpr (Listed) {
#pragma unroll
                    for (uint32_t e = 0; e < length; ++e)
                        if (e < left)
                            pack.values[e] = source[list[i + e]];
                } else {
                    pack = load_some<length>(source + i, 1, left);
                }
#pragma unroll
                for (uint32_t e = 0; e < length; ++e) {
                    const OrderKey<T> key = order_key(pack.values[e], descending);
                    // What is not there is as little wanted as the last.
                    keys[look][e] = e < left ? key : last;
                    found |= keys[look][e] < last;
                }
            }
            ++turn;
            if (found)
                found_in[turn % 2] = turn;
            synchronize_block();
            if (found_in[turn % 2] != turn)
                continue;
#pragma unroll
            for (uint32_t look = 0; look < looks; ++look) {
                const uint32_t i = first + look * length * block_size + thread * length;
#pragma unroll
                for (uint32_t e = 0; e < length; ++e)
                    if (keys[look][e] < last)
                        places[take_shared(&kept)] = Place<T>::of(keys[look][e], position_of(i + e));
                synchronize_block();
                count = kept;
                synchronize_block();
                if (count > enough)
                    keep_first();
            }
        }
        if (count > wanted)
            keep_first();
        uint32_t* const result = pointer_to<uint32_t>(arguments.result) + block * wanted;
        for (uint32_t i = thread; i < wanted; i += block_size)
            result[i] = places[i].position();
    }
}

} // namespace tallow
