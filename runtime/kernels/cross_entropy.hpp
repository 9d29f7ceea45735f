// Losses of rows: minus the logarithm of softmax at a target.
#pragma once

#include "index.hpp"
#include "softmax.hpp"

namespace tallow {

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
        int64_t targets[1] = {no_row};
        T target{};
        if (is_first) {
            const uint64_t places[1] = {offsets[1]};
            uint64_t loaded[1];
            load_indexes(arguments, places, loaded);
            if (index_of(arguments, loaded[0]) != arguments.ignored)
                find_rows(arguments, loaded, targets);
            if (targets[0] != no_row)
                target = row.elements[targets[0]];
        }
        const bool counts = targets[0] != no_row;
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

} // namespace tallow
