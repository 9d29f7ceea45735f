// Row formulas on the host. Groups of `group_lanes` values are computed side by side: positions of one row, or the same
// position of many rows where these are short or interleaved. Both reduce in the same order, so that the bits of a row
// depend on its elements alone: position i belongs to lane i % group_lanes, lanes are joined by halves, and pieces,
// each summed in the compute type, are joined as doubles.
#pragma once

#include "host_row_by_row.hpp"
#include "host_row_tiles.hpp"

namespace tallow {

// Distributes rows, or tiles of rows, over threads.
template <typename Engine, typename T, typename Arguments>
TALLOW_INLINE void run_engine(const Arguments& arguments, const ElementMoves<T>& moves, uint64_t count,
                              uint64_t elements) {
    const uint64_t together = part_length / (elements + 1) + 1;
    do_parts(arguments, (count + together - 1) / together, [&, together](uint64_t part) {
        Engine engine(arguments, moves);
        engine.run(part * together, lower((part + 1) * together, count));
    });
}

// One copy for all dtypes that are computed as these values.
template <typename Functor, typename Value, typename Arguments>
__attribute__((noinline)) void run_row_tiles(const Arguments& arguments, const ElementMoves<Value>& moves) {
    run_engine<RowTiles<Functor, Value, Arguments>>(arguments, moves, (arguments.rows + group_lanes - 1) / group_lanes,
                                                    arguments.length * group_lanes);
}

template <typename Functor, typename T, typename Arguments> TALLOW_INLINE void row_formula(const Arguments& arguments) {
    using Value = widened<T>;
    const uint64_t length = arguments.length, rows = arguments.rows;
    // A tile takes as much time with fewer rows than lanes, and saves little of a single pass.
    constexpr bool is_simple = Functor::passes < 2;
    const bool is_short = length + is_simple <= 2 * group_lanes && 2 * rows >= length;
    if (length == 0)
        return;
    if (rows >= group_lanes / 4 && (arguments.inner != 1 || is_short)) {
        const ElementMoves<Value> moves{load_elements<T, Value>, store_elements<T, Value>, sizeof(T)};
        run_row_tiles<Functor>(arguments, moves);
    } else {
        const ElementMoves<T> moves{load_elements<T, T>, store_elements<T, T>, sizeof(T)};
        run_engine<RowByRow<Functor, T, Arguments>>(arguments, moves, rows, length);
    }
}

} // namespace tallow
