// What the layers of networks make of rows on the host. Sums are of doubles, and results are rounded once.
#pragma once

#include "math.hpp"
#include "parts.hpp"
#include "span.hpp"

namespace tallow {

// Rows of up to so many elements are held as floats; of longer ones the exponentials are computed twice.
constexpr uint64_t held_length = 1 << 13;
// A part has about so many elements.
constexpr uint64_t rows_length = 1 << 14;
constexpr uint32_t sum_lanes = 16;

template <typename Arguments, typename Function>
TALLOW_INLINE void run_rows(const Arguments& arguments, const Function& function) {
    const uint64_t together = rows_length / (arguments.length + 1) + 1;
    const auto part = [&, together](uint64_t number) {
        for (uint64_t row = number * together; row < (number + 1) * together && row < arguments.rows; ++row)
            function(row);
    };
    do_parts(arguments, (arguments.rows + together - 1) / together, part);
}

// Elements of a row as floats: those themselves, or a part of them converted.
template <typename T> TALLOW_INLINE const float* floats_of(const T* source, uint64_t count, float* held) {
    if constexpr (is_same<T, float>) {
        return source;
    } else {
        convert_span(count, held, source);
        return held;
    }
}
template <typename T> TALLOW_INLINE void store_floats(uint64_t count, T* result, const float* source) {
    if constexpr (is_same<T, float>)
        map_span(count, [](float x) { return x; }, result, source);
    else
        convert_span(count, result, source);
}

// Calls visit(first, length, floats) for the parts of a row.
template <typename T, typename Visit> TALLOW_INLINE void for_parts(const T* row, uint64_t length, Visit visit) {
    float held[span_part];
    for (uint64_t first = 0; first < length; first += span_part) {
        const uint64_t count = length - first < span_part ? length - first : span_part;
        visit(first, count, floats_of(row + first, count, held));
    }
}

// The sum of doubles that a function makes of floats: always in the same order.
template <typename Function> TALLOW_INLINE double sum_of(const float* values, uint64_t count, Function function) {
    double sums[sum_lanes] = {};
    uint64_t i = 0;
    for (; i + sum_lanes <= count; i += sum_lanes)
        for (uint32_t lane = 0; lane < sum_lanes; ++lane)
            sums[lane] += function(values[i + lane]);
    for (uint32_t lane = 0; i < count; ++i, ++lane)
        sums[lane] += function(values[i]);
    for (uint32_t half = sum_lanes / 2; half > 0; half /= 2)
        for (uint32_t lane = 0; lane < half; ++lane)
            sums[lane] += sums[lane + half];
    return sums[0];
}

// The largest element of a row; NaN wins.
template <typename T> TALLOW_INLINE float largest_of(const T* row, uint64_t length) {
    float most[sum_lanes];
    for (uint32_t lane = 0; lane < sum_lanes; ++lane)
        most[lane] = -infinity(float{});
    for_parts(row, length, [&](uint64_t, uint64_t count, const float* values) {
        uint64_t i = 0;
        for (; i + sum_lanes <= count; i += sum_lanes)
            for (uint32_t lane = 0; lane < sum_lanes; ++lane)
                most[lane] = maximum(most[lane], values[i + lane]);
        for (uint32_t lane = 0; i < count; ++i, ++lane)
            most[lane] = maximum(most[lane], values[i]);
    });
    for (uint32_t lane = 1; lane < sum_lanes; ++lane)
        most[0] = maximum(most[0], most[lane]);
    return most[0];
}

template <typename T, typename Arguments> TALLOW_INLINE void softmax_rows(const Arguments& arguments) {
    run_rows(arguments, [&](uint64_t row) {
        const uint64_t length = arguments.length;
        const T* const source = pointer_to<const T>(arguments.source) + row * length;
        T* const result = pointer_to<T>(arguments.result) + row * length;
        const float most = largest_of(source, length);
        float powers[held_length];
        const bool is_held = length <= held_length;
        const auto power = [=](float x) { return exp(x - most); };
        double sum = 0.0;
        for_parts(source, length, [&](uint64_t first, uint64_t count, const float* values) {
            float* const made = powers + (is_held ? first : 0);
            map_span(count, power, made, values);
            sum += sum_of(made, count, [](float x) { return static_cast<double>(x); });
        });
        const auto share = static_cast<float>(1.0 / sum);
        for_parts(source, length, [&](uint64_t first, uint64_t count, const float* values) {
            float* const made = powers + (is_held ? first : 0);
            if (!is_held)
                map_span(count, power, made, values);
            map_span(count, [=](float x) { return x * share; }, made, static_cast<const float*>(made));
            store_floats(count, result + first, made);
        });
    });
}

template <typename T, typename Arguments> TALLOW_INLINE void log_softmax_rows(const Arguments& arguments) {
    run_rows(arguments, [&](uint64_t row) {
        const uint64_t length = arguments.length;
        const T* const source = pointer_to<const T>(arguments.source) + row * length;
        T* const result = pointer_to<T>(arguments.result) + row * length;
        const float most = largest_of(source, length);
        double sum = 0.0;
        for_parts(source, length, [&](uint64_t, uint64_t count, const float* values) {
            float powers[span_part];
            map_span(count, [=](float x) { return exp(x - most); }, powers, values);
            sum += sum_of(powers, count, [](float x) { return static_cast<double>(x); });
        });
        const double taken = static_cast<double>(most) + log(sum);
        for_parts(source, length, [&](uint64_t first, uint64_t count, const float* values) {
            float made[span_part];
            map_span(count, [=](float x) { return static_cast<float>(static_cast<double>(x) - taken); }, made, values);
            store_floats(count, result + first, made);
        });
    });
}

// The elements of a row, plus those of the residual where there is one: the sums, rounded, are a result too.
template <typename T, typename Arguments> TALLOW_INLINE const T* summed_row(const Arguments& arguments, uint64_t row) {
    const uint64_t place = row * arguments.length;
    const T* const source = pointer_to<const T>(arguments.source) + place;
    if (arguments.residual == 0)
        return source;
    const T* const residual = pointer_to<const T>(arguments.residual) + place;
    T* const sums = pointer_to<T>(arguments.sums) + place;
    for_parts(source, arguments.length, [&](uint64_t first, uint64_t count, const float* values) {
        float held[span_part];
        float made[span_part];
        map_span(count, [](float x, float y) { return x + y; }, made, values, floats_of(residual + first, count, held));
        store_floats(count, sums + first, made);
    });
    return sums;
}

// (x - mean) / sqrt(mean of the squares of that + epsilon) * weight + bias; without Centered the mean is left at 0.
template <typename T, bool Centered, typename Arguments> TALLOW_INLINE void norm_rows(const Arguments& arguments) {
    const auto weights = pointer_to<const T>(arguments.weight);
    const auto biases = pointer_to<const T>(arguments.bias);
    run_rows(arguments, [&](uint64_t row) {
        const T* const source = summed_row<T>(arguments, row);
        T* const result = pointer_to<T>(arguments.result) + row * arguments.length;
        double sum = 0.0;
        if constexpr (Centered)
            for_parts(source, arguments.length, [&](uint64_t, uint64_t count, const float* values) {
                sum += sum_of(values, count, [](float x) { return static_cast<double>(x); });
            });
        const double mean = sum / static_cast<double>(arguments.length);
        double squares = 0.0;
        for_parts(source, arguments.length, [&](uint64_t, uint64_t count, const float* values) {
            squares += sum_of(values, count, [=](float x) {
                const double rest = static_cast<double>(x) - mean;
                return rest * rest;
            });
        });
        const double variance = squares / static_cast<double>(arguments.length);
        const double factor = 1.0 / sqrt(variance + from_bits<double>(arguments.epsilon));
        for_parts(source, arguments.length, [&](uint64_t first, uint64_t count, const float* values) {
            float weight_held[span_part];
            float bias_held[span_part];
            float made[span_part];
            const auto scaled = [=](float x) { return (static_cast<double>(x) - mean) * factor; };
            const float* const weight = weights ? floats_of(weights + first, count, weight_held) : nullptr;
            const float* const bias = biases ? floats_of(biases + first, count, bias_held) : nullptr;
            if (weight && bias)
                map_span(
                    count,
                    [=](float x, float w, float b) {
                        return static_cast<float>(scaled(x) * static_cast<double>(w) + static_cast<double>(b));
                    },
                    made, values, weight, bias);
            else if (weight)
                map_span(
                    count, [=](float x, float w) { return static_cast<float>(scaled(x) * static_cast<double>(w)); },
                    made, values, weight);
            else if (bias)
                map_span(
                    count, [=](float x, float b) { return static_cast<float>(scaled(x) + static_cast<double>(b)); },
                    made, values, bias);
            else
                map_span(count, [=](float x) { return static_cast<float>(scaled(x)); }, made, values);
            store_floats(count, result + first, made);
        });
    });
}

// Minus the logarithm of softmax at each row's target; 0 where that is -1.
template <typename T, typename Arguments> TALLOW_INLINE void cross_entropy_rows(const Arguments& arguments) {
    const auto targets = pointer_to<const int64_t>(arguments.targets);
    run_rows(arguments, [&](uint64_t row) {
        const T* const source = pointer_to<const T>(arguments.source) + row * arguments.length;
        T& result = pointer_to<T>(arguments.result)[row];
        result = round_from<T>(0.0f);
        if (targets[row] < 0)
            return;
        const float most = largest_of(source, arguments.length);
        double sum = 0.0;
        for_parts(source, arguments.length, [&](uint64_t, uint64_t count, const float* values) {
            float powers[span_part];
            map_span(count, [=](float x) { return exp(x - most); }, powers, values);
            sum += sum_of(powers, count, [](float x) { return static_cast<double>(x); });
        });
        const auto below = static_cast<double>(to_compute(source[targets[row]])) - static_cast<double>(most);
        result = convert<T>(log(sum) - below);
    });
}

// Pairs of a token's elements turned by the angles of its position: neighbours, or elements half a row apart.
template <typename T, typename Arguments> TALLOW_INLINE void rope_rows(const Arguments& arguments) {
    const uint64_t half = arguments.length / 2;
    const auto begins = pointer_to<const int64_t>(arguments.begins);
    run_rows(arguments, [&](uint64_t row) {
        const uint64_t place =
            (static_cast<uint64_t>(begins[row / arguments.rows_of_begin]) + row % arguments.tokens) * half;
        const float* const cosines = pointer_to<const float>(arguments.cosines) + place;
        const float* const sines = pointer_to<const float>(arguments.sines) + place;
        const T* const source = pointer_to<const T>(arguments.source) + row * arguments.length;
        T* const result = pointer_to<T>(arguments.result) + row * arguments.length;
        const auto turn = [&](uint64_t i, uint64_t first, uint64_t second) {
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
                turn(i, 2 * i, 2 * i + 1);
        } else {
            TALLOW_INDEPENDENT
            for (uint64_t i = 0; i < half; ++i)
                turn(i, i, half + i);
        }
    });
}

// Lines of `length` elements of which `inner` are side by side: each element becomes the sum of those up to it.
template <typename T, bool IsInteger = is_integer<T>> struct RunningSum {
    using type = T;
};
template <typename T> struct RunningSum<T, false> {
    using type = double;
};
template <typename T, typename Arguments> TALLOW_INLINE void cumsum_lines(const Arguments& arguments) {
    using Sum = typename RunningSum<T>::type;
    const uint64_t inner = arguments.inner;
    const uint64_t pieces = (inner + span_part - 1) / span_part;
    const uint64_t together = rows_length / (arguments.length * (inner < span_part ? inner : span_part) + 1) + 1;
    const uint64_t blocks = arguments.rows * pieces;
    do_parts(arguments, (blocks + together - 1) / together, [&](uint64_t part) {
        for (uint64_t block = part * together; block < (part + 1) * together && block < blocks; ++block) {
            const uint64_t column = block % pieces * span_part;
            const uint64_t count = inner - column < span_part ? inner - column : span_part;
            const uint64_t first = block / pieces * arguments.length * inner + column;
            const T* source = pointer_to<const T>(arguments.source) + first;
            T* result = pointer_to<T>(arguments.result) + first;
            if (inner == 1) {
                Sum sum{};
                for (uint64_t i = 0; i < arguments.length; ++i) {
                    sum = add(sum, static_cast<Sum>(to_compute(source[i])));
                    result[i] = convert<T>(sum);
                }
                continue;
            }
            Sum sums[span_part] = {};
            for (uint64_t i = 0; i < arguments.length; ++i, source += inner, result += inner) {
                TALLOW_INDEPENDENT
                for (uint64_t c = 0; c < count; ++c) {
                    sums[c] = add(sums[c], static_cast<Sum>(to_compute(source[c])));
                    result[c] = convert<T>(sums[c]);
                }
            }
        }
    });
}

} // namespace tallow
