// Layers of networks by rows on the host. A piece of a row is summed in floats, and the sums of pieces in doubles;
// results are rounded once.
#pragma once

#include "host_indexes.hpp"
#include "math.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

// Exponentials of rows of up to this many elements are kept as floats; those of longer rows are computed twice.
constexpr uint64_t held_length = 1 << 13;
// Elements of a part, roughly.
constexpr uint64_t rows_length = 1 << 13;
// Elements of a piece, which fits the nearest cache, and elements that are added side by side.
constexpr uint64_t row_piece = 2048;
constexpr uint32_t row_lanes = 32;

template <typename Arguments, typename Function>
TALLOW_INLINE void run_rows(const Arguments& arguments, const Function& function) {
    const uint64_t together = rows_length / (arguments.length + 1) + 1;
    const auto part = [&, together](uint64_t number) {
        for (uint64_t row = number * together; row < (number + 1) * together && row < arguments.rows; ++row)
            function(row);
    };
    do_parts(arguments, (arguments.rows + together - 1) / together, part);
}

// Calls visit(first, length) for the pieces of a row.
template <typename Visit> TALLOW_INLINE void for_pieces(uint64_t length, Visit visit) {
    for (uint64_t first = 0; first < length; first += row_piece)
        visit(first, length - first < row_piece ? length - first : row_piece);
}

// Reduces the floats that a function computes from elements, starting with `begin`: always in the same order.
template <typename T, typename Function, typename Join>
TALLOW_INLINE float joined_floats(const T* values, uint64_t count, float begin, Function function, Join join) {
    constexpr uint32_t length = vector_length<float>;
    constexpr uint32_t vectors = row_lanes / length;
    Vector<float> near[vectors];
    for (uint32_t v = 0; v < vectors; ++v)
        near[v] = Vector<float>{} + begin;
    float held[row_lanes];
    const auto join_held = [&] {
        for (uint32_t v = 0; v < vectors; ++v) {
            Vector<float> x;
            __builtin_memcpy(&x, held + v * length, sizeof x);
            join(near[v], x);
        }
    };
    uint64_t i = 0;
    for (; i + row_lanes <= count; i += row_lanes) {
        for (uint32_t lane = 0; lane < row_lanes; ++lane)
            held[lane] = function(to_compute(values[i + lane]));
        join_held();
    }
    if (i < count) {
        T last[row_lanes] = {};
        __builtin_memcpy(last, values + i, (count - i) * sizeof(T));
        for (uint32_t lane = 0; lane < row_lanes; ++lane)
            held[lane] = lane < count - i ? function(to_compute(last[lane])) : begin;
        join_held();
    }
    for (uint32_t v = 1; v < vectors; ++v)
        join(near[0], near[v]);
    return joined_lanes<float>(near[0], join);
}
template <typename T, typename Function>
TALLOW_INLINE double sum_of(const T* values, uint64_t count, Function function) {
    return static_cast<double>(joined_floats(values, count, 0.0f, function, Adds{}));
}

// The largest element of a row; any element if the row has a NaN, because all its results are NaN.
template <typename T> TALLOW_INLINE float largest_of(const T* row, uint64_t length) {
    return joined_floats(row, length, -infinity(float{}), [](float x) { return x; }, Takes<false>{});
}

// The exponentials of the elements minus `most`, their maximum, and the sum of these.
template <typename T> TALLOW_INLINE double powers_of(const T* values, uint64_t count, float most, float* powers) {
    map_span(count, [=](T x) { return exp_below_zero(to_compute(x) - most); }, powers, values);
    return sum_of(static_cast<const float*>(powers), count, [](float x) { return x; });
}

// The largest element of a row, and the logarithm of the sum of the exponentials of the elements minus it.
struct RowTotal {
    float most;
    double logarithm;
};
template <typename T> __attribute__((noinline)) RowTotal row_total(const T* row, uint64_t length) {
    const float most = largest_of(row, length);
    double sum = 0.0;
    for_pieces(length, [&](uint64_t first, uint64_t count) {
        float powers[row_piece];
        sum += powers_of(row + first, count, most, powers);
    });
    return {most, log(sum)};
}

// Whether a target is none that is ignored.
template <typename Arguments> TALLOW_INLINE bool counts(const Arguments& arguments, int64_t target) {
    return target != arguments.ignored && target != arguments.index_mark;
}
// Whether all rows have those that count; of those that they have not, the host is told the first one.
template <typename Arguments> TALLOW_INLINE bool have_targets(const Arguments& arguments) {
    for (uint64_t row = 0; row < arguments.rows; ++row) {
        const int64_t target = index_at(arguments, row);
        if (counts(arguments, target) && (target < 0 || static_cast<uint64_t>(target) >= arguments.length)) {
            tell_wrong(arguments, target);
            return false;
        }
    }
    return true;
}

// Minus the logarithm of softmax at each row's target; 0 where the target counts for nothing.
template <typename T, typename Arguments> TALLOW_INLINE void cross_entropy_rows(const Arguments& arguments) {
    if (!have_targets(arguments))
        return;
    run_rows(arguments, [&](uint64_t row) {
        const T* const source = pointer_to<const T>(arguments.source) + row * arguments.length;
        const int64_t target = index_at(arguments, row);
        float& result = pointer_to<float>(arguments.result)[row];
        float& counted = pointer_to<float>(arguments.counted)[row];
        result = 0.0f;
        counted = counts(arguments, target) ? 1.0f : 0.0f;
        if (counted == 0.0f)
            return;
        const RowTotal total = row_total(source, arguments.length);
        const auto below = static_cast<double>(to_compute(source[target])) - static_cast<double>(total.most);
        result = static_cast<float>(total.logarithm - below);
    });
}

// Softmax of each row, less 1 at its target, times the gradient of its loss; 0 where the target counts for nothing. Of
// the loss follow the logarithms of softmax, unless there are none at the target.
template <typename T, typename Arguments> TALLOW_INLINE void cross_entropy_gradient_rows(const Arguments& arguments) {
    if (!have_targets(arguments))
        return;
    run_rows(arguments, [&](uint64_t row) {
        const uint64_t length = arguments.length;
        const T* const source = pointer_to<const T>(arguments.source) + row * length;
        T* const result = pointer_to<T>(arguments.result) + row * length;
        const int64_t target = index_at(arguments, row);
        if (!counts(arguments, target)) {
            for (uint64_t i = 0; i < length; ++i)
                result[i] = T{};
            return;
        }
        const float loss = pointer_to<const float>(arguments.losses)[row];
        const float given = pointer_to<const float>(arguments.gradient)[row];
        RowTotal total{to_compute(source[target]), static_cast<double>(loss)};
        if (loss == infinity(float{}))
            total = row_total(source, length);
        const float most = total.most, logarithm = static_cast<float>(total.logarithm);
        const auto make = [=](T x) { return round_from<T>(exp_below_zero(to_compute(x) - most - logarithm) * given); };
        map_span(length, make, result, source);
        result[target] = round_from<T>(expm1(-loss) * given);
    });
}

// Pairs of a token's elements rotated by the angles of its position: neighbours, or elements half a row apart.
template <typename T, typename Arguments> TALLOW_INLINE void rope_rows(const Arguments& arguments) {
    const uint64_t half = arguments.length / 2;
    if (!are_at_most(arguments, arguments.rows / arguments.rows_of_index, arguments.most))
        return;
    run_rows(arguments, [&](uint64_t row) {
        const auto begin = static_cast<uint64_t>(index_at(arguments, row / arguments.rows_of_index));
        const uint64_t place = (begin + row % arguments.tokens) * half;
        const float* const cosines = pointer_to<const float>(arguments.cosines) + place;
        const float* const sines = pointer_to<const float>(arguments.sines) + place;
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
