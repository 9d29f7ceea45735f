// Random numbers: element i of a call always comes from the same words, whatever the launch.
#pragma once

#include "graph.hpp"
#include "memory.hpp"
#include "philox.hpp"

namespace tallow {

// A thread draws two blocks of words at least, which share the keys of the rounds.
template <typename T> constexpr uint32_t packs_together = pack_length<T> < 2 * elements_per_block<T> ? 2 : 1;

template <typename T, typename Arguments, typename Function>
TALLOW_INLINE void draw_all(const Arguments& arguments, Function function) {
    constexpr uint32_t length = pack_length<T>;
    constexpr uint32_t together = elements_per_block<T>;
    constexpr uint32_t per_block = block_size * length * packs_together<T>;
    T* const result = pointer_to<T>(arguments.result);
    uint64_t seed = arguments.seed, block = arguments.block;
    if (arguments.state != 0) {
        // In a graph, `block` counts from the first one of the replay. Compilers would make one load of a choice
        // between the two addresses of the seed, which are in different memory.
        const GraphState* const state = pointer_to<const GraphState>(arguments.state);
        seed += state->seed - arguments.seed;
        block += state->block;
    }
    const uint64_t step = uint64_t{grid_blocks()} * per_block;
    for (uint64_t base = uint64_t{block_index()} * per_block; base < arguments.count; base += step) {
#pragma unroll
        for (uint32_t k = 0; k < packs_together<T>; ++k) {
            const uint64_t first = base + (k * block_size + thread_index()) * length;
            Pack<T, length> pack;
#pragma unroll
            for (uint32_t i = 0; i < length; i += together) {
                compute_type<T> units[together];
                Function::draw(philox(seed, block + (first + i) / together), units);
#pragma unroll
                for (uint32_t j = 0; j < together; ++j)
                    pack.values[i + j] = function(units[j]);
            }
            store_guarded(result, first, arguments.count, pack);
        }
    }
}
template <typename T, typename Arguments> TALLOW_INLINE void random_uniform(const Arguments& arguments) {
    draw_all<T>(arguments, UniformFunction<T>(arguments));
}
template <typename T, typename Arguments> TALLOW_INLINE void random_normal(const Arguments& arguments) {
    draw_all<T>(arguments, NormalFunction<T>(arguments));
}
template <typename Arguments> TALLOW_INLINE void random_integers(const Arguments& arguments) {
    draw_all<int64_t>(arguments, IntegersFunction(arguments));
}

} // namespace tallow
