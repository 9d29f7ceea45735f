// A stable radix sort of (key, position) by one digit a pass. Up to sort_tile pairs are sorted by one block, in
// shared memory. Of longer lines all digits are counted first. A pass is then one launch: blocks sort a tile each,
// publish the others how many pairs of each digit the tile has, and learn from the tiles before it in its line where
// its own go (Adinets and Merrill, "Onesweep", 2022). The result does not depend on the order in which threads run.
#pragma once

#include "order_key.hpp"
#include "subgroup_scan.hpp"

#if defined(TALLOW_HOST)
#include <sched.h>
#endif

namespace tallow {

constexpr uint32_t digit_count = 1u << digit_bits;
static_assert(digit_count == block_size, "a thread keeps one digit");
static_assert(sort_tile % block_size == 0 && sort_tile <= 1u << 16, "positions have 16 bits");

TALLOW_INLINE LaneMask lanes_before() {
    return (LaneMask{1} << lane_index()) - 1;
}

// The pairs of one block, and for each wave how many of its keys have a digit.
struct SharedPairs {
    uint32_t keys[sort_tile];
    uint16_t positions[sort_tile];
    uint16_t counts[waves_per_block][digit_count];
};
static_assert(sizeof(SharedPairs) <= 1u << 15, "two blocks fit on every target");

// By one digit. A wave takes pairs that stand together, so that the pairs before one are those of the waves before its
// own, and of its own wave those that it took before. `counted` gets early how many pairs have the digit that is the
// thread's number; the result is how many have a lower one.
template <typename Counted>
TALLOW_INLINE uint32_t sort_by_digit(SharedPairs& pairs, uint32_t count, uint32_t shift, Counted counted) {
    constexpr uint32_t most = sort_tile / block_size;
    constexpr uint32_t none = ~0u;
    const uint32_t thread = thread_index();
    const uint32_t steps = (count + block_size - 1) / block_size;
    const uint32_t first = wave_index() * steps * wave_size + lane_index();
    uint16_t* const counts = pairs.counts[wave_index()];
#pragma unroll
    for (uint32_t w = 0; w < waves_per_block; ++w)
        pairs.counts[w][thread] = 0;
    synchronize_block();
    // The upper half of a word is the pair's rank among those of its wave and digit, the lower half its position.
    uint32_t keys[most];
    uint32_t ranked[most];
#pragma unroll
    for (uint32_t i = 0; i < most; ++i) {
        keys[i] = 0;
        ranked[i] = none;
        if (i < steps) {
            const uint32_t index = first + i * wave_size;
            const bool valid = index < count;
            keys[i] = valid ? pairs.keys[index] : 0;
            const uint32_t digit = (keys[i] >> shift) % digit_count;
            const LaneMask alike = lanes_alike_by_votes(valid ? digit : digit_count, digit_count);
            const uint32_t rank = count_bits(alike & lanes_before());
            const uint32_t before = counts[digit];
            if (valid)
                ranked[i] = (before + rank) << 16 | pairs.positions[index];
            synchronize_wave();
            if (valid && rank == 0)
                counts[digit] = static_cast<uint16_t>(before + count_bits(alike));
            synchronize_wave();
        }
    }
    synchronize_block();
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < waves_per_block; ++w)
        sum += pairs.counts[w][thread];
    counted(sum);
    uint32_t total;
    const uint32_t lower = exclusive_subgroup_scan<Counts>(sum, block_size, total);
    uint32_t before = lower;
#pragma unroll
    for (uint32_t w = 0; w < waves_per_block; ++w) {
        const uint32_t in_wave = pairs.counts[w][thread];
        pairs.counts[w][thread] = static_cast<uint16_t>(before);
        before += in_wave;
    }
    synchronize_block();
#pragma unroll
    for (uint32_t i = 0; i < most; ++i) {
        if (ranked[i] != none) {
            const uint32_t index = counts[(keys[i] >> shift) % digit_count] + (ranked[i] >> 16);
            pairs.keys[index] = keys[i];
            pairs.positions[index] = static_cast<uint16_t>(ranked[i]);
        }
    }
    synchronize_block();
    return lower;
}
TALLOW_INLINE uint32_t sort_by_digit(SharedPairs& pairs, uint32_t count, uint32_t shift) {
    return sort_by_digit(pairs, count, shift, [](uint32_t) {});
}

// Where a pass finds the words of keys that it sorts by: the lower words of elements in their order, the higher words
// of elements in the order that pairs have, or those of pairs. A pair is a word, and above it a position: what goes to
// one address in one access take less time than two that go to two.
enum class From { elements, positions, pairs };
enum class To { pairs, positions, keys_and_positions, elements_and_positions };

template <typename T, From from, typename Arguments>
TALLOW_INLINE uint32_t word_of_key(const Arguments& arguments, uint64_t line, uint32_t i) {
    const T* const source = pointer_to<const T>(arguments.source) + line;
    const uint64_t* const pairs = pointer_to<const uint64_t>(arguments.pairs) + line;
    if constexpr (from == From::pairs)
        return static_cast<uint32_t>(pairs[i]);
    else if constexpr (from == From::positions)
        return static_cast<uint32_t>(uint64_t{order_key(source[pairs[i] >> 32], arguments.descending != 0)} >> 32);
    else
        return static_cast<uint32_t>(order_key(source[i], arguments.descending != 0));
}

// The element of a position, whose key has this word: read where the word does not say all of it.
template <typename T, typename Arguments>
TALLOW_INLINE T element_of_word(const Arguments& arguments, uint64_t line, uint32_t word, uint32_t position) {
    if constexpr (sizeof(T) <= sizeof(word)) {
        const auto key = static_cast<OrderKey<T>>(word);
        if (is_of_one_element<T>(key, arguments.descending != 0))
            return element_of_key<T>(key, arguments.descending != 0);
    }
    return pointer_to<const T>(arguments.source)[line + position];
}

// How often each digit occurs in a line, whose tiles `parts` blocks share. Neighbouring lanes count separately, since
// keys have many equal digits, and lanes that add to one word wait for each other.
template <typename T, typename Arguments> TALLOW_INLINE void count_digits(const Arguments& arguments) {
    constexpr uint32_t copies = 16 / (sizeof(T) < 4 ? 4 : sizeof(T));
    __shared__ uint32_t counts[sizeof(T)][digit_count * copies];
    const uint32_t thread = thread_index();
    const uint64_t line = block_index() / arguments.parts;
    const T* const source = pointer_to<const T>(arguments.source) + line * arguments.length;
#pragma unroll
    for (uint32_t pass = 0; pass < sizeof(T); ++pass)
        for (uint32_t i = thread; i < digit_count * copies; i += block_size)
            counts[pass][i] = 0;
    synchronize_block();
    for (uint32_t begin = block_index() % arguments.parts * sort_tile; begin < arguments.length;
         begin += arguments.parts * sort_tile) {
        const uint32_t left = arguments.length - begin;
        const uint32_t count = left < sort_tile ? left : sort_tile;
#pragma unroll 4
        for (uint32_t i = thread; i < count; i += block_size) {
            const OrderKey<T> key = order_key(source[begin + i], arguments.descending != 0);
#pragma unroll
            for (uint32_t pass = 0; pass < sizeof(T); ++pass)
                if (pass < arguments.passes)
                    atomic_add_shared(
                        &counts[pass][(key >> pass * digit_bits) % digit_count * copies + thread % copies], 1u);
        }
    }
    synchronize_block();
    uint32_t* const digits = pointer_to<uint32_t>(arguments.digits) + line * arguments.passes * digit_count + thread;
#pragma unroll
    for (uint32_t pass = 0; pass < sizeof(T); ++pass) {
        uint32_t sum = 0;
#pragma unroll
        for (uint32_t copy = 0; copy < copies; ++copy)
            sum += counts[pass][thread * copies + copy];
        if (sum != 0)
            atomic_add(digits + pass * digit_count, sum);
    }
}

// The prefix that a block publishes for a digit of its tile: 0 is none yet, `of_all` are the pairs of the line up to
// the tile's end, and else 1 more than the pairs of the tile.
constexpr uint32_t of_all = 1u << 31;

// The pairs with the thread's digit in the tiles before; `prefixes` is the entry of the block for the digit. To read
// several tiles at once takes the bandwidth that the others need.
TALLOW_INLINE uint32_t pairs_before(uint32_t* prefixes, uint32_t tile, uint32_t own) {
    uint32_t before = 0;
    for (uint32_t earlier = 1; earlier <= tile;) {
        const uint32_t word = load_relaxed(prefixes - earlier * digit_count);
        if ((word & of_all) != 0) {
            before += word - of_all;
            break;
        }
        if (word != 0) {
            before += word - 1;
            ++earlier;
        }
#if defined(TALLOW_HOST)
        if (word == 0)
            sched_yield(); // blocks may share a core
#endif
    }
    store_relaxed(prefixes, of_all + before + own);
    return before;
}

// A block sorts its pairs by the digit before it moves them, so that writes of one digit are adjacent.
// It takes the next tile when it begins, so that all tiles before it are in blocks that have begun.
template <typename T, From from, To to, typename Arguments> TALLOW_INLINE void move_pairs(const Arguments& arguments) {
    __shared__ SharedPairs pairs;
    // Where the pairs of each digit go, less where they begin among those of the block.
    __shared__ uint32_t next[digit_count];
    __shared__ uint32_t taken;
    const uint32_t thread = thread_index();
    if (thread == 0)
        taken = arrive(pointer_to<uint32_t>(arguments.taken));
    synchronize_block();
    const uint32_t tile = taken % arguments.tiles;
    const uint64_t line_index = taken / arguments.tiles;
    const uint64_t line = line_index * arguments.length;
    const uint32_t begin = tile * sort_tile;
    const uint32_t left = arguments.length - begin;
    uint32_t count = left < sort_tile ? left : sort_tile;
#pragma unroll 4
    for (uint32_t i = thread; i < count; i += block_size) {
        pairs.keys[i] = word_of_key<T, from>(arguments, line, begin + i);
        pairs.positions[i] = static_cast<uint16_t>(i);
    }
    uint32_t total;
    const uint32_t in_line =
        pointer_to<const uint32_t>(arguments.digits)[line_index * arguments.passes * digit_count + thread];
    const uint32_t first = exclusive_subgroup_scan<Counts>(in_line, block_size, total);
    uint32_t* const prefixes = pointer_to<uint32_t>(arguments.prefixes) + uint64_t{taken} * digit_count + thread;
    uint32_t own = 0;
    const uint32_t lower = sort_by_digit(pairs, count, arguments.shift, [&](uint32_t with_digit) {
        own = with_digit;
        store_relaxed(prefixes, tile == 0 ? of_all + own : own + 1);
    });
    next[thread] = first + pairs_before(prefixes, tile, own) - lower;
    synchronize_block();
#pragma unroll 4
    for (uint32_t i = thread; i < count; i += block_size) {
        const uint32_t key = pairs.keys[i];
        const uint32_t position_in_line = next[(key >> arguments.shift) % digit_count] + i;
        const uint64_t index = line + position_in_line;
        uint32_t position = begin + pairs.positions[i];
        if constexpr (from != From::elements)
            position = static_cast<uint32_t>(pointer_to<const uint64_t>(arguments.pairs)[line + position] >> 32);
        if constexpr (to == To::pairs)
            pointer_to<uint64_t>(arguments.result)[index] = key | uint64_t{position} << 32;
        else
            pointer_to<uint32_t>(arguments.result)[index] = position;
        if constexpr (to == To::keys_and_positions)
            pointer_to<uint32_t>(arguments.carried)[index] = key;
        if constexpr (to == To::elements_and_positions)
            pointer_to<T>(arguments.carried)[index] = element_of_word<T>(arguments, line, key, position);
    }
}

template <typename T, typename Arguments> TALLOW_INLINE void move_elements(const Arguments& arguments) {
    move_pairs<T, From::elements, sizeof(T) == 1 ? To::positions : To::pairs>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void move_by_upper_words(const Arguments& arguments) {
    move_pairs<T, From::positions, To::pairs>(arguments);
}
template <typename Arguments> TALLOW_INLINE void move_between(const Arguments& arguments) {
    move_pairs<uint32_t, From::pairs, To::pairs>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void move_with_elements(const Arguments& arguments) {
    move_pairs<T, sizeof(T) == 1 ? From::elements : From::pairs, To::elements_and_positions>(arguments);
}
template <typename Arguments> TALLOW_INLINE void move_positions(const Arguments& arguments) {
    move_pairs<uint32_t, From::pairs, To::positions>(arguments);
}
template <typename Arguments> TALLOW_INLINE void move_keys_and_positions(const Arguments& arguments) {
    move_pairs<uint32_t, From::pairs, To::keys_and_positions>(arguments);
}

} // namespace tallow
