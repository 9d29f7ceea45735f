// Running sums and products along a dim, by the monoids of reductions. The order in which elements are joined depends
// on the shape alone, so that the bits are the same on every run. Where there are few lines each goes in splits: one
// launch joins the elements of each split, another one begins each of them with what those before it come to.
#pragma once

#include "access.hpp"
#include "monoid.hpp"
#include "team_scan.hpp"

namespace tallow {

// The elements of a split of a contiguous row, and what its first one is joined to.
template <bool Stores, typename Monoid, typename T, typename Arguments>
TALLOW_INLINE typename Monoid::State scan_split(const Arguments& arguments, uint64_t row, uint64_t split, uint32_t lane,
                                                typename Monoid::State joined) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    using State = typename Monoid::State;
    const uint32_t team = arguments.team;
    const bool exists = row < arguments.rows;
    const uint64_t begin = split * arguments.chunk;
    const uint64_t rest = exists && begin < arguments.length ? arguments.length - begin : 0;
    const uint64_t count = rest < arguments.chunk ? rest : arguments.chunk;
    const uint64_t offset = exists ? row * arguments.length + begin : 0;
    const T* const source = pointer_to<const T>(arguments.source) + offset;
    // Every thread of the wave takes part in each round.
    for (uint64_t base = 0; base < arguments.chunk; base += team * length) {
        const uint64_t first = base + lane * length;
        const uint32_t left = first >= count           ? 0
                              : count - first < length ? static_cast<uint32_t>(count - first)
                                                       : length;
        Pack<T, length> pack{};
        if (left > 0)
            pack = load_some<length>(source + first, 1, left);
        State states[length];
        State own = Monoid::identity();
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            if (i < left)
                own = Monoid::combine(own, static_cast<State>(to_compute(pack.values[i])));
            states[i] = own;
        }
        State total;
        const State before = Monoid::combine(joined, joined_before_in_team<Monoid>(own, team, total));
        joined = Monoid::combine(joined, total);
        if constexpr (Stores) {
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                pack.values[i] = convert<T>(Monoid::combine(before, states[i]));
            store_guarded(pointer_to<T>(arguments.result) + offset, first, count, pack);
        }
    }
    return joined;
}

// A team of threads for each split of a row.
template <bool Stores, typename Monoid, typename T, typename Arguments>
TALLOW_INLINE void scan_rows(const Arguments& arguments) {
    using State = typename Monoid::State;
    const uint32_t team = arguments.team;
    const uint32_t teams = block_size / team;
    const uint32_t lane = thread_index() % team;
    const uint64_t splits = arguments.splits;
    for (uint64_t base = uint64_t{block_index()} * teams; base < arguments.rows * splits;
         base += uint64_t{grid_blocks()} * teams) {
        const uint64_t part = base + thread_index() / team;
        const uint64_t row = part / splits;
        const uint64_t split = part - row * splits;
        State* const totals = pointer_to<State>(arguments.totals) + row * splits;
        State joined = Monoid::identity();
        if (Stores && splits > 1) {
            State own = Monoid::identity();
            if (row < arguments.rows)
                for (uint64_t i = lane; i < split; i += team)
                    own = Monoid::combine(own, totals[i]);
            joined_before_in_team<Monoid>(own, team, joined);
        }
        joined = scan_split<Stores, Monoid, T>(arguments, row, split, lane, joined);
        if (!Stores && lane == 0 && row < arguments.rows)
            totals[split] = joined;
    }
}

// The elements of a line that a thread loads before it joins them.
constexpr uint32_t columns_in_flight = 4;

// A thread for each split of a line, of which `inner` lie side by side.
template <bool Stores, typename Monoid, typename T, typename Arguments>
TALLOW_INLINE void scan_columns(const Arguments& arguments) {
    using State = typename Monoid::State;
    const uint64_t inner = arguments.inner;
    const uint64_t splits = arguments.splits;
    const uint64_t parts = arguments.rows * inner * splits;
    for (uint64_t part = uint64_t{block_index()} * block_size + thread_index(); part < parts;
         part += uint64_t{grid_blocks()} * block_size) {
        const uint64_t of_row = part / inner;
        const uint64_t column = part - of_row * inner;
        const uint64_t row = of_row / splits;
        const uint64_t split = of_row - row * splits;
        State* const totals = pointer_to<State>(arguments.totals) + row * splits * inner + column;
        State joined = Monoid::identity();
        if constexpr (Stores)
            for (uint64_t i = 0; i < split; ++i)
                joined = Monoid::combine(joined, totals[i * inner]);
        const uint64_t begin = split * arguments.chunk;
        const uint64_t end = arguments.length - begin < arguments.chunk ? arguments.length : begin + arguments.chunk;
        const uint64_t offset = row * arguments.length * inner + column;
        const T* const source = pointer_to<const T>(arguments.source) + offset;
        for (uint64_t first = begin; first < end; first += columns_in_flight) {
            T loaded[columns_in_flight];
#pragma unroll
            for (uint32_t k = 0; k < columns_in_flight; ++k)
                loaded[k] = source[(first + k < end ? first + k : first) * inner];
#pragma unroll
            for (uint32_t k = 0; k < columns_in_flight; ++k) {
                if (first + k < end) {
                    joined = Monoid::combine(joined, static_cast<State>(to_compute(loaded[k])));
                    if constexpr (Stores)
                        pointer_to<T>(arguments.result)[offset + (first + k) * inner] = convert<T>(joined);
                }
            }
        }
        if constexpr (!Stores)
            totals[split * inner] = joined;
    }
}

} // namespace tallow
