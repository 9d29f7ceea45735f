// Evenly spaced numbers.
#pragma once

#include "memory.hpp"

namespace tallow {

// result[i] = function(i) from i on, in vector accesses.
template <typename T, typename Arguments, typename Function>
TALLOW_INLINE void number_packs(const Arguments& arguments, Function function) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    const uint64_t step = uint64_t{grid_blocks()} * block_size * length;
    for (uint64_t first = (uint64_t{block_index()} * block_size + thread_index()) * length; first < arguments.count;
         first += step)
        store_guarded(pointer_to<T>(arguments.result), first, arguments.count, function(first));
}

template <typename T> using NumberPack = Pack<T, access_bytes / sizeof(T)>;

template <typename T, typename Arguments> TALLOW_INLINE void arange_integers(const Arguments& arguments) {
    number_packs<T>(arguments, [&arguments](uint64_t first) {
        NumberPack<T> pack;
        uint64_t number = arguments.start + first * arguments.step;
#pragma unroll
        for (T& value : pack.values) {
            value = convert<T>(static_cast<int64_t>(number));
            number += arguments.step;
        }
        return pack;
    });
}

template <typename T, typename Arguments> TALLOW_INLINE void arange_floats(const Arguments& arguments) {
    number_packs<T>(arguments, [&arguments](uint64_t first) {
        NumberPack<T> pack;
        double position = static_cast<double>(first);
#pragma unroll
        for (T& value : pack.values) {
            value = convert<T>(arguments.start + position * arguments.step);
            position += 1.0;
        }
        if (first == 0) {
            pack.values[0] = convert<T>(arguments.start);
            pack.values[1] = convert<T>(arguments.second);
        }
        return pack;
    });
}

} // namespace tallow
