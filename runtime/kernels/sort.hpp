// A stable radix sort of (key, position) by one digit a pass. Up to sort_tile pairs are sorted by one block, in
// shared memory. Of more, a pass is three launches: counts by block and digit, the sums of the counts before them, and
// each pair to its place. Nothing in it depends on the order in which threads run.
#pragma once

#include "access.hpp"
#include "team_scan.hpp"

namespace tallow {

// Numbers of elements, as a monoid.
struct Counts {
    using State = uint32_t;
    static TALLOW_INLINE State identity() {
        return 0;
    }
    static TALLOW_INLINE State combine(State x, State y) {
        return x + y;
    }
};

constexpr uint32_t digit_count = 1u << digit_bits;
static_assert(digit_count == block_size, "a thread keeps one digit");
static_assert(sort_tile % block_size == 0 && sort_tile <= 1u << 16, "positions have 16 bits");

// The lanes whose keys have this lane's digit, of those that have a key.
TALLOW_INLINE LaneMask lanes_of_digit(uint32_t digit, bool has_key) {
    LaneMask alike = ballot(has_key);
#pragma unroll
    for (uint32_t bit = 1; bit < digit_count; bit *= 2) {
        const LaneMask set = ballot((digit & bit) != 0);
        alike &= (digit & bit) != 0 ? set : ~set;
    }
    return alike;
}

TALLOW_INLINE LaneMask lanes_before() {
    return (LaneMask{1} << lane_index()) - 1;
}

template <typename Arguments> TALLOW_INLINE void count_digits(const Arguments& arguments) {
    __shared__ uint32_t counts[digit_count];
    const uint32_t* const keys = pointer_to<const uint32_t>(arguments.keys);
    counts[thread_index()] = 0;
    synchronize_block();
    const uint32_t begin = block_index() * sort_tile;
    for (uint32_t i = begin + thread_index(); i < begin + sort_tile && i < arguments.count; i += block_size)
        atomic_add_shared(counts + (keys[i] >> arguments.shift) % digit_count, 1u);
    synchronize_block();
    pointer_to<uint32_t>(arguments.counts)[thread_index() * arguments.blocks + block_index()] = counts[thread_index()];
}

// In place, a digit by each block: each count becomes the sum of those before it, and the sum of all comes behind the
// counts of all digits.
template <typename Arguments> TALLOW_INLINE void scan_counts(const Arguments& arguments) {
    constexpr uint32_t length = 4;
    uint32_t* const all = pointer_to<uint32_t>(arguments.counts);
    for (uint32_t digit = block_index(); digit < digit_count; digit += grid_blocks()) {
        uint32_t* const counts = all + digit * arguments.blocks;
        uint32_t before_tile = 0;
        for (uint32_t base = 0; base < arguments.blocks; base += length * block_size) {
            const uint32_t first = base + thread_index() * length;
            uint32_t values[length];
            uint32_t own = 0;
#pragma unroll
            for (uint32_t i = 0; i < length; ++i) {
                values[i] = first + i < arguments.blocks ? counts[first + i] : 0;
                own += values[i];
            }
            uint32_t sum;
            uint32_t before = before_tile + joined_before_in_team<Counts>(own, block_size, sum);
#pragma unroll
            for (uint32_t i = 0; i < length; ++i) {
                if (first + i < arguments.blocks)
                    counts[first + i] = before;
                before += values[i];
            }
            before_tile += sum;
        }
        if (thread_index() == 0)
            all[digit_count * arguments.blocks + digit] = before_tile;
    }
}

// The pairs of one block, and for each wave how many of its keys have a digit.
struct SharedPairs {
    uint32_t keys[sort_tile];
    uint16_t positions[sort_tile];
    uint16_t counts[waves_per_block][digit_count];
};
static_assert(sizeof(SharedPairs) <= 1u << 15, "two blocks find room on every target");

// By one digit. A wave takes pairs that stand together, so that the pairs before one are those of the waves before its
// own, and of its own wave those that it took before.
TALLOW_INLINE void sort_by_digit(SharedPairs& pairs, uint32_t count, uint32_t shift) {
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
            const uint32_t place = first + i * wave_size;
            const bool valid = place < count;
            keys[i] = valid ? pairs.keys[place] : 0;
            const uint32_t digit = (keys[i] >> shift) % digit_count;
            const LaneMask alike = lanes_of_digit(digit, valid);
            const uint32_t rank = count_bits(alike & lanes_before());
            const uint32_t before = counts[digit];
            if (valid)
                ranked[i] = (before + rank) << 16 | pairs.positions[place];
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
    uint32_t total;
    uint32_t before = joined_before_in_team<Counts>(sum, block_size, total);
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
            const uint32_t place = counts[(keys[i] >> shift) % digit_count] + (ranked[i] >> 16);
            pairs.keys[place] = keys[i];
            pairs.positions[place] = static_cast<uint16_t>(ranked[i]);
        }
    }
    synchronize_block();
}

// A block sorts its pairs by the digit before it moves them, so that those of one digit go to one place side by side.
template <typename Arguments> TALLOW_INLINE void move_pairs(const Arguments& arguments) {
    __shared__ SharedPairs pairs;
    // Where the pairs of each digit go, less where they begin among those of the block.
    __shared__ uint32_t next[digit_count];
    const uint32_t thread = thread_index();
    const uint32_t begin = block_index() * sort_tile;
    const uint32_t left = arguments.count - begin;
    const uint32_t count = left < sort_tile ? left : sort_tile;
    const uint32_t* const counts = pointer_to<const uint32_t>(arguments.counts);
    uint32_t total;
    const uint32_t first =
        joined_before_in_team<Counts>(counts[digit_count * arguments.blocks + thread], block_size, total);
    next[thread] = first + counts[thread * arguments.blocks + block_index()];
    for (uint32_t i = thread; i < count; i += block_size) {
        pairs.keys[i] = pointer_to<const uint32_t>(arguments.keys)[begin + i];
        pairs.positions[i] = static_cast<uint16_t>(i);
    }
    synchronize_block();
    sort_by_digit(pairs, count, arguments.shift);
    for (uint32_t i = thread; i < count; i += block_size) {
        const uint32_t digit = (pairs.keys[i] >> arguments.shift) % digit_count;
        if (i == 0 || (pairs.keys[i - 1] >> arguments.shift) % digit_count != digit)
            next[digit] -= i;
    }
    synchronize_block();
    for (uint32_t i = thread; i < count; i += block_size) {
        const uint32_t key = pairs.keys[i];
        const uint32_t place = next[(key >> arguments.shift) % digit_count] + i;
        pointer_to<uint32_t>(arguments.sorted_keys)[place] = key;
        pointer_to<uint32_t>(arguments.sorted_positions)[place] =
            pointer_to<const uint32_t>(arguments.positions)[begin + pairs.positions[i]];
    }
}

} // namespace tallow
