// Layers of networks by rows on the host.
#pragma once

#include "host_indexes.hpp"
#include "math.hpp"
#include "parts.hpp"
#include "span.hpp"

namespace tallow {

// Elements of a part, roughly.
constexpr uint64_t rows_length = 1 << 13;

template <typename Arguments, typename Function>
TALLOW_INLINE void run_rows(const Arguments& arguments, const Function& function) {
    const uint64_t together = rows_length / (arguments.length + 1) + 1;
    const auto part = [&, together](uint64_t number) {
        for (uint64_t row = number * together; row < (number + 1) * together && row < arguments.rows; ++row)
            function(row);
    };
    do_parts(arguments, (arguments.rows + together - 1) / together, part);
}

// Pairs of a token's elements rotated by the angles of its position: neighbours, or elements with half a row between
// them.
template <typename T, typename Arguments> TALLOW_INLINE void rope_rows(const Arguments& arguments) {
    const uint64_t half = arguments.length / 2;
    if (!are_at_most(arguments, arguments.rows / arguments.rows_of_index, arguments.max_position))
        return;
    run_rows(arguments, [&](uint64_t row) {
        const auto begin = static_cast<uint64_t>(index_at(arguments, row / arguments.rows_of_index));
        const uint64_t offset = (begin + row % arguments.tokens) * half;
        const float* const cosines = pointer_to<const float>(arguments.cosines) + offset;
        const float* const sines = pointer_to<const float>(arguments.sines) + offset;
        const T* const source = pointer_to<const T>(arguments.source) + row * arguments.length;
        T* const result = pointer_to<T>(arguments.result) + row * arguments.length;
        const auto rotate = [&](uint64_t i, uint64_t first, uint64_t second) {
            const auto x = to_compute(source[first]);
            const auto y = to_compute(source[second]);
            const auto cosine = static_cast<compute_type<T>>(cosines[i]);
            const auto sine = static_cast<compute_type<T>>(sines[i]);
            result[first] = convert<T>(x * cosine - y * sine);
            result[second] = convert<T>(x * sine + y * cosine);
        };
        if (arguments.interleaved) {
            TALLOW_INDEPENDENT
            for (uint64_t i = 0; i < half; ++i)
                rotate(i, 2 * i, 2 * i + 1);
        } else {
            TALLOW_INDEPENDENT
            for (uint64_t i = 0; i < half; ++i)
                rotate(i, i, half + i);
        }
    });
}

} // namespace tallow
