// Row formulas on the host. Groups of `group_lanes` values are computed side by side: positions of one row, or the same
// position of many rows where these are short or interleaved. Both reduce in the same order, so that the bits of a row
// depend on its elements alone: position i belongs to lane i % group_lanes, lanes are reduced pairwise, and pieces,
// each summed in the compute type, are combined as doubles.
#pragma once

#include "host_row_by_row.hpp"
#include "host_row_tiles.hpp"

namespace tallow {

// Begins the sums over rows of a part of the work at 0; null where none are requested.
template <typename Functor, typename Value, typename Arguments>
TALLOW_INLINE Value* part_totals(const Arguments& arguments, uint64_t part) {
    if constexpr (row_totals<Functor> != 0)
        if (arguments.scratch != 0) {
            const uint64_t count = row_totals<Functor> * padded_length(arguments.length);
            Value* const totals = pointer_to<Value>(arguments.scratch) + part * count;
            for (uint64_t i = 0; i < count; ++i)
                totals[i] = Value{0};
            return totals;
        }
    return nullptr;
}

// Distributes rows, or tiles of `rows` rows, over threads.
template <typename Engine, typename Functor, uint64_t Rows, typename T, typename Arguments>
TALLOW_INLINE void run_engine(const Arguments& arguments, const ElementMoves<T>& moves) {
    const uint64_t count = (arguments.rows + Rows - 1) / Rows;
    // Where rows are added up, their parts do not depend on how these are computed.
    const uint64_t together =
        row_totals<Functor> != 0 ? arguments.together / Rows : part_length / (arguments.length * Rows + 1) + 1;
    do_parts(arguments, (count + together - 1) / together, [&, together](uint64_t part) {
        const uint64_t begin = part * together, end = lower((part + 1) * together, count);
        Engine engine(arguments, moves);
        engine.run(begin, end, part_totals<Functor, widened<T>>(arguments, part));
    });
}

// One copy for all dtypes that are computed as these values.
template <typename Functor, typename Value, typename Arguments>
__attribute__((noinline)) void run_row_tiles(const Arguments& arguments, const ElementMoves<Value>& moves) {
    run_engine<RowTiles<Functor, Value, Arguments>, Functor, group_lanes>(arguments, moves);
}

// Adds up the sums of all parts, in their order.
template <typename Functor, typename T, typename Arguments> TALLOW_INLINE void join_totals(const Arguments& arguments) {
    using Value = widened<T>;
    const uint64_t length = arguments.length, padded = padded_length(length);
    const uint64_t parts = (arguments.rows + arguments.together - 1) / arguments.together;
    const uint64_t pieces = (length + piece_length - 1) / piece_length;
    do_parts(arguments, pieces * row_totals<Functor>, [&](uint64_t number) {
        const uint64_t total = number / pieces, first = number % pieces * piece_length;
        T* const result = pointer_to<T>(arguments.results[Functor::results + total]);
        const Value* const sums = pointer_to<const Value>(arguments.scratch) + total * padded;
        for (uint64_t i = first; result && i < lower(first + piece_length, length); ++i) {
            double sum = 0.0;
            for (uint64_t part = 0; part < parts; ++part)
                sum += static_cast<double>(sums[part * row_totals<Functor> * padded + i]);
            result[i] = convert<T>(static_cast<Value>(sum));
        }
    });
}

template <typename Functor, typename T, typename Arguments> TALLOW_INLINE void row_formula(const Arguments& arguments) {
    using Value = widened<T>;
    const uint64_t length = arguments.length, rows = arguments.rows;
    // A tile takes as much time with fewer rows than lanes, saves little of a single pass, and has a copy of each
    // operand.
    constexpr bool is_simple = Functor::passes < 2 || stored_operands<Functor> > 2;
    const bool is_short = length + is_simple <= 2 * group_lanes && 2 * rows >= length;
    if (!have_indexes<Functor>(arguments) || (length == 0 && number_results<Functor> == 0))
        return;
    if (rows >= group_lanes / 4 && (arguments.inner != 1 || is_short)) {
        const ElementMoves<Value> moves{load_elements<T, Value>, store_elements<T, Value>, add_elements<T>, sizeof(T)};
        run_row_tiles<Functor>(arguments, moves);
    } else {
        const ElementMoves<T> moves{load_elements<T, T>, store_elements<T, T>, add_elements<T>, sizeof(T)};
        run_engine<RowByRow<Functor, T, Arguments>, Functor, 1>(arguments, moves);
    }
    if constexpr (row_totals<Functor> != 0)
        if (arguments.scratch != 0)
            join_totals<Functor, T>(arguments);
}

} // namespace tallow
