// Row formulas on the host. Groups of `group_lanes` values are computed side by side: positions of one row, or the same
// position of many rows where these are short or interleaved. Both reduce in the same order, so that the bits of a row
// depend on its elements alone: position i belongs to lane i % group_lanes, lanes are joined by halves, and pieces,
// each summed in the compute type, are joined as doubles.
#pragma once

#include "host_row_by_row.hpp"
#include "host_row_tiles.hpp"

namespace tallow {

// Distributes rows, or tiles of rows, over threads.
template <typename Engine, typename Value, typename Arguments>
TALLOW_INLINE void run_engine(const Arguments& arguments, const ElementMoves<Value>& moves, uint64_t count,
                              uint64_t elements) {
    const uint64_t together = part_length / (elements + 1) + 1;
    do_parts(arguments, (count + together - 1) / together, [&, together](uint64_t part) {
        Engine engine(arguments, moves);
        engine.run(part * together, lower((part + 1) * together, count));
    });
}
template <typename Functor, typename Value, typename Arguments>
__attribute__((noinline)) void run_row_formula(const Arguments& arguments, const ElementMoves<Value>& moves) {
    const uint64_t length = arguments.length, rows = arguments.rows;
    // A tile takes as much time with fewer rows than lanes. The fewer passes, the less there is to save by one.
    const bool is_short = length < 2 * group_lanes + (Functor::passes > 1) && 2 * rows >= length;
    const bool is_tiled = rows >= group_lanes / 4 && (arguments.inner != 1 || is_short);
    if (length == 0)
        return;
    if (is_tiled)
        run_engine<RowTiles<Functor, Value, Arguments>>(arguments, moves, (rows + group_lanes - 1) / group_lanes,
                                                        length * group_lanes);
    else
        run_engine<RowByRow<Functor, Value, Arguments>>(arguments, moves, rows, length);
}

template <typename Functor, typename T, typename Arguments> TALLOW_INLINE void row_formula(const Arguments& arguments) {
    using Value = widened<T>;
    const ElementMoves<Value> moves{load_elements<T, Value>, store_elements<T, Value>, sizeof(T)};
    run_row_formula<Functor, Value>(arguments, moves);
}

} // namespace tallow
