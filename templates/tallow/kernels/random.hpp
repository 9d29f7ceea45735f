// Random numbers from Philox 4x32-10, a counter-based generator: Salmon, Moraes, Dror and Shaw, Parallel random
// numbers: as easy as 1, 2, 3, SC 2011. Element i of a call always comes from the same words, whatever the launch.
#pragma once

#include "math.hpp"
#include "memory.hpp"

namespace tallow {

struct Words {
    uint32_t values[4];
};

TALLOW_INLINE Words philox(uint64_t seed, uint64_t block) {
    uint32_t key_low = static_cast<uint32_t>(seed);
    uint32_t key_high = static_cast<uint32_t>(seed >> 32);
    Words words = {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}};
#pragma unroll
    for (uint32_t round = 0; round < 10; ++round) {
        const uint64_t first = uint64_t{0xd2511f53u} * words.values[0];
        const uint64_t second = uint64_t{0xcd9e8d57u} * words.values[2];
        words = {{static_cast<uint32_t>(second >> 32) ^ words.values[1] ^ key_low, static_cast<uint32_t>(second),
                  static_cast<uint32_t>(first >> 32) ^ words.values[3] ^ key_high, static_cast<uint32_t>(first)}};
        key_low += 0x9e3779b9u;
        key_high += 0xbb67ae85u;
    }
    return words;
}

// A number in [0, 1) of 24 bits from a word, of 53 bits from two.
TALLOW_INLINE float unit_float(uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24f;
}
TALLOW_INLINE double unit_double(uint32_t even, uint32_t odd) {
    return (static_cast<double>(even >> 5) * 0x1p26 + static_cast<double>(odd >> 6)) * 0x1p-53;
}

// How many elements a block of four words gives, and what they are before scaling.
template <typename T> constexpr uint32_t elements_per_block = sizeof(T) == 8 ? 2 : 4;

TALLOW_INLINE void uniform_units(const Words& words, float (&units)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
        units[i] = unit_float(words.values[i]);
}
TALLOW_INLINE void uniform_units(const Words& words, double (&units)[2]) {
    units[0] = unit_double(words.values[0], words.values[1]);
    units[1] = unit_double(words.values[2], words.values[3]);
}

// Box and Muller, A note on the generation of random normal deviates, 1958; the first unit is taken from 1 to avoid 0.
template <typename Value> TALLOW_INLINE void box_muller(Value first, Value second, Value* pair) {
    const Value radius = sqrt(Value{-2} * log(Value{1} - first));
    pair[0] = radius * cospi(Value{2} * second);
    pair[1] = radius * sinpi(Value{2} * second);
}
TALLOW_INLINE void normal_units(const Words& words, float (&units)[4]) {
    box_muller(unit_float(words.values[0]), unit_float(words.values[1]), units);
    box_muller(unit_float(words.values[2]), unit_float(words.values[3]), units + 2);
}
TALLOW_INLINE void normal_units(const Words& words, double (&units)[2]) {
    box_muller(unit_double(words.values[0], words.values[1]), unit_double(words.values[2], words.values[3]), units);
}

// The flags of the build keep the product and the sum apart: the bits are the same on every target.
template <typename T> struct UniformFunction {
    using Value = compute_type<T>;
    Value low;
    Value span;
    Value lowest;
    Value highest;
    template <typename Arguments>
    TALLOW_INLINE explicit UniformFunction(const Arguments& arguments)
        : low(static_cast<Value>(arguments.low)), span(static_cast<Value>(arguments.span)),
          lowest(static_cast<Value>(arguments.lowest)), highest(static_cast<Value>(arguments.highest)) {
    }
    template <uint32_t N> static TALLOW_INLINE void draw(const Words& words, Value (&units)[N]) {
        uniform_units(words, units);
    }
    TALLOW_INLINE T operator()(Value unit) const {
        const Value rounded = to_compute(convert<T>(low + unit * span));
        return convert<T>(rounded < lowest ? lowest : rounded > highest ? highest : rounded);
    }
};
template <typename T> struct NormalFunction {
    using Value = compute_type<T>;
    Value mean;
    Value std;
    template <typename Arguments>
    TALLOW_INLINE explicit NormalFunction(const Arguments& arguments)
        : mean(static_cast<Value>(arguments.mean)), std(static_cast<Value>(arguments.std)) {
    }
    template <uint32_t N> static TALLOW_INLINE void draw(const Words& words, Value (&units)[N]) {
        normal_units(words, units);
    }
    TALLOW_INLINE T operator()(Value unit) const {
        return convert<T>(fma(std, unit, mean));
    }
};

template <typename T, typename Arguments, typename Function>
TALLOW_INLINE void draw_all(const Arguments& arguments, Function function) {
    constexpr uint32_t length = pack_length<T>;
    constexpr uint32_t together = elements_per_block<T>;
    T* const result = pointer_to<T>(arguments.result);
    const uint64_t step = uint64_t{grid_blocks()} * block_size * length;
    for (uint64_t first = (uint64_t{block_index()} * block_size + thread_index()) * length; first < arguments.count;
         first += step) {
        Pack<T, length> pack;
#pragma unroll
        for (uint32_t i = 0; i < length; i += together) {
            compute_type<T> units[together];
            Function::draw(philox(arguments.seed, arguments.block + (first + i) / together), units);
#pragma unroll
            for (uint32_t j = 0; j < together; ++j)
                pack.values[i + j] = function(units[j]);
        }
        store_guarded(result, first, arguments.count, pack);
    }
}
template <typename T, typename Arguments> TALLOW_INLINE void random_uniform(const Arguments& arguments) {
    draw_all<T>(arguments, UniformFunction<T>(arguments));
}
template <typename T, typename Arguments> TALLOW_INLINE void random_normal(const Arguments& arguments) {
    draw_all<T>(arguments, NormalFunction<T>(arguments));
}

} // namespace tallow
