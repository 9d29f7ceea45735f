// Random numbers on the host.
#pragma once

#include "access.hpp"
#include "parts.hpp"
#include "philox.hpp"

namespace tallow {

// Elements of a part, and blocks of words that are drawn at once.
constexpr uint64_t random_length = 1 << 15;
constexpr uint64_t random_blocks = 128;

template <typename T, typename Function, typename Arguments> TALLOW_INLINE void draw(const Arguments& arguments) {
    constexpr uint32_t each = elements_per_block<T>;
    constexpr uint64_t together = random_blocks * each;
    const Function function(arguments);
    const auto draw_part = [&](uint64_t part) {
        const uint64_t first = part * random_length;
        const uint64_t end = first + random_length < arguments.count ? first + random_length : arguments.count;
        for (uint64_t begin = first; begin < end; begin += together) {
            // Words are stored before they are used: compilers take the blocks of either side by side.
            uint32_t words[4][random_blocks];
            for (uint32_t block = 0; block < random_blocks; ++block) {
                const Words drawn = philox(arguments.seed, arguments.block + begin / each + block);
                for (uint32_t i = 0; i < 4; ++i)
                    words[i][block] = drawn.values[i];
            }
            compute_type<T> units[together];
            for (uint32_t block = 0; block < random_blocks; ++block) {
                compute_type<T> drawn[each];
                Function::draw({{words[0][block], words[1][block], words[2][block], words[3][block]}}, drawn);
                for (uint32_t i = 0; i < each; ++i)
                    units[block * each + i] = drawn[i];
            }
            const uint64_t count = end - begin < together ? end - begin : together;
            T* const result = pointer_to<T>(arguments.result) + begin;
            for (uint64_t i = 0; i < count; ++i)
                result[i] = function(units[i]);
        }
    };
    do_parts(arguments, (arguments.count + random_length - 1) / random_length, draw_part);
}
template <typename T, typename Arguments> TALLOW_INLINE void random_uniform(const Arguments& arguments) {
    draw<T, UniformFunction<T>>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void random_normal(const Arguments& arguments) {
    draw<T, NormalFunction<T>>(arguments);
}
template <typename Arguments> TALLOW_INLINE void random_integers(const Arguments& arguments) {
    draw<int64_t, IntegersFunction>(arguments);
}

} // namespace tallow
