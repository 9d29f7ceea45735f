// A stable radix sort of (key, position) by one digit of 8 bits a pass: counts by block and digit, their running sum,
// and each pair to its place. Nothing in it depends on the order in which threads run.
#pragma once

#include "platform.hpp"

namespace tallow {

constexpr uint32_t digit_count = 256;
constexpr uint32_t sort_tile = 4096;
static_assert(digit_count == block_size, "a thread keeps one digit");

template <typename Arguments> TALLOW_INLINE void count_digits(const Arguments& arguments) {
    __shared__ uint32_t counts[digit_count];
    const uint32_t* const keys = pointer_to<const uint32_t>(arguments.keys);
    counts[thread_index()] = 0;
    synchronize_block();
    const uint32_t begin = block_index() * sort_tile;
    for (uint32_t i = begin + thread_index(); i < begin + sort_tile && i < arguments.count; i += block_size)
        atomic_add_shared(counts + (keys[i] >> arguments.shift) % digit_count, 1);
    synchronize_block();
    pointer_to<uint32_t>(arguments.counts)[thread_index() * arguments.blocks + block_index()] = counts[thread_index()];
}

// The sum of the values of all threads before this one.
TALLOW_INLINE uint32_t sum_before(uint32_t value, uint32_t* shared) {
    const uint32_t thread = thread_index();
    shared[thread] = value;
    synchronize_block();
    for (uint32_t distance = 1; distance < block_size; distance *= 2) {
        const uint32_t earlier = thread >= distance ? shared[thread - distance] : 0;
        synchronize_block();
        shared[thread] += earlier;
        synchronize_block();
    }
    return shared[thread] - value;
}

// In place, by one block: each thread a stretch.
template <typename Arguments> TALLOW_INLINE void scan_counts(const Arguments& arguments) {
    __shared__ uint32_t shared[block_size];
    uint32_t* const counts = pointer_to<uint32_t>(arguments.counts) + thread_index() * arguments.blocks;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < arguments.blocks; ++i)
        sum += counts[i];
    uint32_t before = sum_before(sum, shared);
    for (uint32_t i = 0; i < arguments.blocks; ++i) {
        const uint32_t count = counts[i];
        counts[i] = before;
        before += count;
    }
}

template <typename Arguments> TALLOW_INLINE void move_pairs(const Arguments& arguments) {
    __shared__ uint32_t next[digit_count];
    __shared__ uint32_t in_wave[waves_per_block][digit_count];
    const uint32_t thread = thread_index();
    const uint64_t lanes_before = (uint64_t{1} << lane_index()) - 1;
    next[thread] = pointer_to<const uint32_t>(arguments.counts)[thread * arguments.blocks + block_index()];
    const uint32_t begin = block_index() * sort_tile;
    for (uint32_t base = begin; base < begin + sort_tile && base < arguments.count; base += block_size) {
#pragma unroll
        for (uint32_t w = 0; w < waves_per_block; ++w)
            in_wave[w][thread] = 0;
        synchronize_block();
        const uint32_t i = base + thread;
        const bool valid = i < arguments.count;
        const uint32_t key = valid ? pointer_to<const uint32_t>(arguments.keys)[i] : 0;
        const uint32_t digit = (key >> arguments.shift) % digit_count;
        uint64_t alike = ballot(valid);
#pragma unroll
        for (uint32_t bit = 1; bit < digit_count; bit *= 2) {
            const uint64_t set = ballot((digit & bit) != 0);
            alike &= (digit & bit) != 0 ? set : ~set;
        }
        const uint32_t rank = count_bits(alike & lanes_before);
        if (valid && rank == 0)
            in_wave[wave_index()][digit] = count_bits(alike);
        synchronize_block();
        if (valid) {
            uint32_t place = next[digit] + rank;
            for (uint32_t w = 0; w < wave_index(); ++w)
                place += in_wave[w][digit];
            pointer_to<uint32_t>(arguments.sorted_keys)[place] = key;
            pointer_to<uint32_t>(arguments.sorted_positions)[place] =
                pointer_to<const uint32_t>(arguments.positions)[i];
        }
        synchronize_block();
#pragma unroll
        for (uint32_t w = 0; w < waves_per_block; ++w)
            next[thread] += in_wave[w][thread];
    }
}

} // namespace tallow
