// Losses of rows: minus the logarithm of softmax at a target.
#pragma once

#include "index.hpp"
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
};

template <typename T> TALLOW_INLINE T no_number() {
    return convert<T>(-infinity(compute_type<T>{}));
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

// Long rows, a block for each part, which says what it knows of it.
template <typename T, typename Arguments> TALLOW_INLINE void cross_entropy_measure(const Arguments& arguments) {
    Team team{block_size};
    visit_parts<T, 1>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&)[1]) {
        const auto known = measure_exponentials(row, part.begin, part.end, block_size).of_team(team);
        if (thread_index() == 0)
            pointer_to<Exponentials<T>>(arguments.parts)[part.part] = known;
    });
}

// The target at a place, or `no_row` where it counts for nothing.
template <typename Arguments> TALLOW_INLINE int64_t target_at(const Arguments& arguments, uint64_t place) {
    const uint64_t places[1] = {place};
    uint64_t loaded[1];
    load_indexes(arguments, places, loaded);
    int64_t targets[1] = {no_row};
    if (index_of(arguments, loaded[0]) != arguments.ignored)
        find_rows(arguments, loaded, targets);
    return targets[0];
}

// A team reads a row once, or joins what cross_entropy_measure knows of its parts. Operand 1 is the targets.
template <typename T, typename Arguments> TALLOW_INLINE void cross_entropy(const Arguments& arguments) {
    using Known = Exponentials<T>;
    using Value = compute_type<T>;
    Team team{arguments.team};
    visit_rows<2>(arguments, [&](uint32_t number, const uint64_t(&offsets)[2]) {
        const bool is_there = number < arguments.rows;
        const Row<T> row(pointer_to<const T>(arguments.source) + offsets[0], is_there ? arguments.length : 0);
        // The target is asked for first.
        const bool is_first = is_there && team.lane() == 0;
        const int64_t place = is_first ? target_at(arguments, offsets[1]) : no_row;
        const bool counts = place != no_row;
        const T target = counts ? row.elements[place] : T{};
        Known known = Known::none();
        if (arguments.splits == 1) {
            known = measure_exponentials(row, 0, row.packs(), team.size);
        } else if (is_there) {
            const Known* const parts = pointer_to<const Known>(arguments.parts) + number * arguments.splits;
            for (uint32_t i = team.lane(); i < arguments.splits; i += team.size)
                known.add(parts[i]);
        }
        known = known.of_team(team).finished(true);
        if (!is_first)
            return;
        const Value loss = counts ? Value{0} - known.result(to_compute(target), true) : Value{0};
        pointer_to<Value>(arguments.result)[number] = loss;
        pointer_to<Value>(arguments.counted)[number] = counts ? Value{1} : Value{0};
    });
}

// The gradient of a row: each element is read and written once, as the loss tells what softmax divides by. Only where
// that is infinite, as its target has a share of 0, each thread of the team finds out itself. The result may have the
// memory of the source.
template <typename T, typename Arguments> TALLOW_INLINE void cross_entropy_gradient(const Arguments& arguments) {
    using Value = compute_type<T>;
    using Access = Registers<access_bytes>;
    visit_rows<4>(arguments, [&](uint32_t number, const uint64_t(&offsets)[4]) {
        const bool is_there = number < arguments.rows;
        const Row<T> row(pointer_to<const T>(arguments.source) + offsets[0], is_there ? arguments.length : 0);
        const int64_t target = is_there ? target_at(arguments, offsets[1]) : no_row;
        const bool counts = target != no_row;
        const Value loss = pointer_to<const Value>(arguments.losses)[offsets[2]];
        const Value given = pointer_to<const Value>(arguments.gradient)[offsets[3]];
        const Value own = expm1(-loss) * given;
        // e**(x - pivot - rest) * factor
        Value pivot = counts ? to_compute(row.elements[target]) : Value{0};
        Value rest = loss;
        Value factor = given;
        if (counts && loss == infinity(Value{})) {
            auto known = Exponentials<T>::none();
#pragma unroll 1
            for (uint32_t i = 0; i < row.length; ++i)
                known.add(to_compute(row.elements[i]));
            pivot = known.highest;
            rest = 0;
            factor = given / known.sum;
        }
        // What all threads of a team read of the row is read before one of them writes.
        if (arguments.result == arguments.source)
            synchronize_block();
        T* const result = pointer_to<T>(arguments.result) + uint64_t{number} * arguments.length;
        const uint32_t packs = row.packs(), team = arguments.team;
        for (uint32_t k = place_in_team(team); k < packs; k += reduce_in_flight * team) {
            Access loaded[reduce_in_flight] = {};
#pragma unroll
            for (uint32_t p = 0; p < reduce_in_flight; ++p)
                if (counts && k + p * team < packs)
                    loaded[p] = row.load(row.elements, row.place(k + p * team), T{});
#pragma unroll
            for (uint32_t p = 0; p < reduce_in_flight; ++p) {
                if (k + p * team >= packs)
                    continue;
                const uint32_t place = row.place(k + p * team);
                row.store(result, place, map_pack<T>(loaded[p], [&](Value x, uint32_t i) {
                              const Value share = row_exponential<T>((x - pivot) - rest) * factor;
                              return !counts ? Value{0} : place + i == static_cast<uint32_t>(target) ? own : share;
                          }));
            }
        }
    });
}

} // namespace tallow
