// Losses of rows: minus the logarithm of softmax at a target.
#pragma once

#include "index.hpp"
#include "softmax.hpp"

namespace tallow {

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

// A team reads a row once, or joins what softmax_measure knows of its parts. Operand 1 is the targets.
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
