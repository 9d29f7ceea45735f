// Softmax, and its logarithm. The highest number of a row is subtracted first; a row of -inf gives NaN.
#pragma once

#include "rows.hpp"

namespace tallow {

// e**x of numbers that are not above 0, as exact as an element of type T shows.
template <typename T> TALLOW_INLINE compute_type<T> row_exponential(compute_type<T> x) {
    if constexpr (sizeof(T) == 2)
        return rough_exp2(x * 1.44269504f);
    else
        return exp(x);
}

// What is known of a row, or of a part of it: its highest number, and the sum of e**(element - highest). Finished, the
// second is what a result is made with: the reciprocal of the sum, or its logarithm.
template <typename T> struct Exponentials {
    using Value = compute_type<T>;
    Value highest;
    Value sum;

    static TALLOW_INLINE Exponentials none() {
        return {-infinity(Value{}), Value{0}};
    }
    // What is subtracted where all numbers so far may be -inf.
    static TALLOW_INLINE Value pivot(Value highest) {
        return highest == -infinity(Value{}) ? Value{0} : highest;
    }
    // The sum as one of e**(element - pivot).
    TALLOW_INLINE Value scaled(Value pivot) const {
        return sum * row_exponential<T>(highest - pivot);
    }
    TALLOW_INLINE void add(const Exponentials& other) {
        const Value most = JoinHighestNumber::combine(highest, other.highest);
        *this = {most, scaled(pivot(most)) + other.scaled(pivot(most))};
    }
    TALLOW_INLINE void add(Value x) {
        const Value most = JoinHighestNumber::combine(highest, x);
        *this = {most, scaled(pivot(most)) + row_exponential<T>(x - pivot(most))};
    }
    // What the threads of a team know together.
    TALLOW_INLINE Exponentials of_team(Team& team) const {
        const Value most = team.highest(highest);
        return {most, team.sum(scaled(pivot(most)))};
    }
    TALLOW_INLINE Exponentials finished(bool is_log) const {
        return {highest, is_log ? log(sum) : Value{1} / sum};
    }
    TALLOW_INLINE Value result(Value x, bool is_log) const {
        return is_log ? (x - highest) - sum : row_exponential<T>(x - highest) * sum;
    }
    TALLOW_INLINE Registers<access_bytes> results(const Registers<access_bytes>& pack, bool is_log) const {
        return map_pack<T>(pack, [&](Value x, uint32_t) { return result(x, is_log); });
    }
};

template <typename T> TALLOW_INLINE T no_number() {
    return convert<T>(-infinity(compute_type<T>{}));
}

// Rows that a team holds in registers, each read once.
template <typename T, uint32_t Packs, bool Even, typename Arguments>
TALLOW_INLINE void softmax_held(const Arguments& arguments) {
    using Value = compute_type<T>;
    const bool is_log = arguments.is_log != 0;
    Team team{arguments.team};
    visit_rows<1>(arguments, [&](uint32_t number, const uint64_t(&offsets)[1]) {
        const uint32_t length = number < arguments.rows ? arguments.length : 0;
        const Row<T, Even> row(pointer_to<const T>(arguments.source) + offsets[0], length);
        HeldRow<T, Packs, Even> held(row, team.size, no_number<T>());
        const Value highest = team.highest(held.template fold<JoinHighestNumber>(
            -infinity(Value{}), [](Value most, Value x) { return fmax(most, x); }));
        held.keep_packed();
        const Value sum = team.sum(held.template fold<JoinSums>(
            Value{0}, [=](Value sum, Value x) { return sum + row_exponential<T>(x - highest); }));
        held.keep_packed();
        const auto known = Exponentials<T>{highest, sum}.finished(is_log);
        held.store(pointer_to<T>(arguments.result) + uint64_t{number} * arguments.length,
                   [=](const Registers<access_bytes>& pack, uint32_t) { return known.results(pack, is_log); });
    });
}

// What a thread of a team knows of packs [begin, end) of a row, of which it takes every team-th: several at once.
template <typename T>
TALLOW_INLINE Exponentials<T> measure_exponentials(const Row<T>& row, uint32_t begin, uint32_t end, uint32_t team) {
    using Known = Exponentials<T>;
    using Value = compute_type<T>;
    Known known = Known::none();
    for (uint32_t k = begin + place_in_team(team); k < end; k += reduce_in_flight * team) {
        Registers<access_bytes> loaded[reduce_in_flight];
#pragma unroll
        for (uint32_t p = 0; p < reduce_in_flight; ++p) {
            // What is behind the end is read again, and counts for nothing.
            const uint32_t wanted = k + p * team;
            loaded[p] = row.load(row.elements, row.place(wanted < end ? wanted : k), no_number<T>());
        }
        Value highest = known.highest;
#pragma unroll
        for (uint32_t p = 0; p < reduce_in_flight; ++p)
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i)
                highest = JoinHighestNumber::combine(highest, to_compute(take_element<T>(loaded[p], i)));
        const Value pivot = Known::pivot(highest);
        Value sum = known.scaled(pivot);
#pragma unroll
        for (uint32_t p = 0; p < reduce_in_flight; ++p) {
            Value part = 0;
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i)
                part += row_exponential<T>(to_compute(take_element<T>(loaded[p], i)) - pivot);
            sum += k + p * team < end ? part : Value{0};
        }
        known = {highest, sum};
    }
    return known;
}

// Long rows, a block for each part. A first kernel tells the second one what is known of each; with one part a row, the
// second one finds out itself.
template <typename T, typename Arguments> TALLOW_INLINE void softmax_measure(const Arguments& arguments) {
    Team team{block_size};
    visit_parts<T, 1>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&)[1]) {
        const auto known = measure_exponentials(row, part.begin, part.end, block_size).of_team(team);
        if (thread_index() == 0)
            pointer_to<Exponentials<T>>(arguments.parts)[part.part] = known;
    });
}
template <typename T, typename Arguments> TALLOW_INLINE void softmax_long(const Arguments& arguments) {
    using Known = Exponentials<T>;
    Team team{block_size};
    visit_parts<T, 1>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&)[1]) {
        Known known = Known::none();
        if (arguments.splits == 1) {
            known = measure_exponentials(row, part.begin, part.end, block_size);
        } else {
            const Known* const parts = pointer_to<const Known>(arguments.parts) + part.number * arguments.splits;
            for (uint32_t i = thread_index(); i < arguments.splits; i += block_size)
                known.add(parts[i]);
        }
        const bool is_log = arguments.is_log != 0;
        known = known.of_team(team).finished(is_log);
        T* const result = pointer_to<T>(arguments.result) + uint64_t{part.number} * arguments.length;
        for (uint32_t k = part.begin + thread_index(); k < part.end; k += block_size) {
            const uint32_t place = row.place(k);
            const auto loaded = row.load(row.elements, place, no_number<T>());
            row.store(result, place, known.results(loaded, is_log));
        }
    });
}

// Of a result y of softmax and its gradient g: y * (g - sum of g * y), or g - e**y * sum of g where it is a logarithm.
template <typename T> struct GradientOfResult {
    using Value = compute_type<T>;
    bool is_log;

    // A sum with one more of the terms.
    TALLOW_INLINE Value add(Value sum, Value y, Value g) const {
        return is_log ? sum + g : fma(g, y, sum);
    }
    TALLOW_INLINE Value result(Value y, Value g, Value sum) const {
        return is_log ? fma(Value{0} - row_exponential<T>(y), sum, g) : y * (g - sum);
    }
    TALLOW_INLINE Registers<access_bytes> results(const Registers<access_bytes>& made,
                                                  const Registers<access_bytes>& gradient, Value sum) const {
        return map_pack<T>(
            made, [&](Value y, uint32_t i) { return result(y, to_compute(take_element<T>(gradient, i)), sum); });
    }
};

// Rows of both that a team holds in registers.
template <typename T, uint32_t Packs, bool Even, typename Arguments>
TALLOW_INLINE void softmax_gradient_held(const Arguments& arguments) {
    using Value = compute_type<T>;
    using Access = Registers<access_bytes>;
    const GradientOfResult<T> known{arguments.is_log != 0};
    Team team{arguments.team};
    visit_rows<2>(arguments, [&](uint32_t number, const uint64_t(&offsets)[2]) {
        const uint32_t length = number < arguments.rows ? arguments.length : 0;
        const Row<T, Even> row(pointer_to<const T>(arguments.source) + offsets[0], length);
        HeldRow<T, Packs, Even> held(row, team.size, T{});
        Access gradients[Packs] = {};
        held.load(pointer_to<const T>(arguments.gradient) + offsets[1], T{}, gradients);
        const Value sum =
            team.sum(held.template fold_places<JoinSums>(Value{0}, [&](Value sum, uint32_t p, uint32_t i) {
                return known.add(sum, held.value(p, i), to_compute(take_element<T>(gradients[p], i)));
            }));
        held.keep_packed();
        held.keep_packed(gradients);
        held.replace([&](const Access& pack, uint32_t p) { return known.results(pack, gradients[p], sum); });
        held.store(pointer_to<T>(arguments.result) + uint64_t{number} * arguments.length,
                   [](const Access& pack, uint32_t) { return pack; });
    });
}

// Long rows, as those of softmax: what a thread adds up of a part, and results of parts.
template <typename T, typename Arguments>
TALLOW_INLINE compute_type<T> add_gradients(const Arguments& arguments, const RowPart& part, const Row<T>& row,
                                            const T* gradient) {
    using Value = compute_type<T>;
    const GradientOfResult<T> known{arguments.is_log != 0};
    Value sum = 0;
    for (uint32_t k = part.begin + thread_index(); k < part.end; k += block_size) {
        const auto made = row.load(row.elements, row.place(k), T{});
        const auto given = row.load(gradient, row.place(k), T{});
#pragma unroll
        for (uint32_t i = 0; i < Row<T>::pack; ++i)
            sum = known.add(sum, to_compute(take_element<T>(made, i)), to_compute(take_element<T>(given, i)));
    }
    return sum;
}
template <typename T, typename Arguments> TALLOW_INLINE void softmax_gradient_measure(const Arguments& arguments) {
    Team team{block_size};
    visit_parts<T, 2>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&offsets)[2]) {
        const T* const gradient = pointer_to<const T>(arguments.gradient) + offsets[1];
        const compute_type<T> sum = team.sum(add_gradients(arguments, part, row, gradient));
        if (thread_index() == 0)
            pointer_to<compute_type<T>>(arguments.parts)[part.part] = sum;
    });
}
template <typename T, typename Arguments> TALLOW_INLINE void softmax_gradient_long(const Arguments& arguments) {
    using Value = compute_type<T>;
    Team team{block_size};
    visit_parts<T, 2>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&offsets)[2]) {
        const T* const gradient = pointer_to<const T>(arguments.gradient) + offsets[1];
        Value sum = 0;
        if (arguments.splits == 1) {
            sum = add_gradients(arguments, part, row, gradient);
        } else {
            const Value* const parts = pointer_to<const Value>(arguments.parts) + part.number * arguments.splits;
            for (uint32_t i = thread_index(); i < arguments.splits; i += block_size)
                sum += parts[i];
        }
        sum = team.sum(sum);
        T* const result = pointer_to<T>(arguments.result) + uint64_t{part.number} * arguments.length;
        for (uint32_t k = part.begin + thread_index(); k < part.end; k += block_size) {
            const uint32_t place = row.place(k);
            const auto made = row.load(row.elements, place, T{});
            row.store(result, place,
                      GradientOfResult<T>{arguments.is_log != 0}.results(made, row.load(gradient, place, T{}), sum));
        }
    });
}

// Along a dim that is not the innermost one, of a contiguous tensor: threads across the `inner` elements that are side
// by side, each with a pack of them, and the block's other threads share out the rows.
template <typename T, typename Arguments> TALLOW_INLINE void softmax_columns(const Arguments& arguments) {
    using Known = Exponentials<T>;
    constexpr uint32_t length = column_pack<T>;
    __shared__ Known shared[length][block_size];
    const uint32_t team = arguments.team;
    const uint32_t together = teams_in(block_size, team);
    const uint32_t down = teams_in(thread_index(), team);
    for (uint32_t block = block_index(); block < (arguments.packs + team - 1) / team; block += grid_blocks()) {
        const uint32_t pack = block * team + place_in_team(team);
        const uint32_t outer = pack / arguments.packs_per_row;
        const uint32_t column = (pack - outer * arguments.packs_per_row) * length;
        const uint32_t left = pack < arguments.packs ? arguments.inner - column : 0;
        const uint64_t first = uint64_t{outer} * arguments.length * arguments.inner + column;
        const T* const source = pointer_to<const T>(arguments.source) + first;
        T* const result = pointer_to<T>(arguments.result) + first;
        const bool whole = left >= length && arguments.inner % length == 0 && is_aligned<length>(source);
        const auto load = [&](uint32_t row) {
            const T* const elements = source + uint64_t{row} * arguments.inner;
            return whole ? load_whole<length>(elements) : load_some<length>(elements, 1, left);
        };
        Known known[length];
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            known[i] = Known::none();
        for (uint32_t row = down; row < arguments.length; row += together) {
            const Pack<T, length> loaded = load(row);
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                known[i].add(to_compute(loaded.values[i]));
        }
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            shared[i][thread_index()] = known[i];
        synchronize_block();
        for (uint32_t half = together / 2; half > 0; half /= 2) {
            if (down < half)
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    shared[i][thread_index()].add(shared[i][thread_index() + half * team]);
            synchronize_block();
        }
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            known[i] = shared[i][place_in_team(team)].finished(arguments.is_log != 0);
        for (uint32_t row = down; row < arguments.length; row += together) {
            Pack<T, length> made = load(row);
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                made.values[i] = convert<T>(known[i].result(to_compute(made.values[i]), arguments.is_log != 0));
            T* const elements = result + uint64_t{row} * arguments.inner;
            if (whole && is_aligned<length>(elements))
                store_whole(elements, made);
            else
                store_guarded(elements, 0, left, made);
        }
        synchronize_block();
    }
}

} // namespace tallow
