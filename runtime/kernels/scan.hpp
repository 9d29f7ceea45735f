// Scans along a dim: reductions of the elements up to each. The order in which elements are combined depends on the
// shape alone, so that the bits are the same on every run. Where there are few lines each goes in splits: one launch
// joins the elements of each split, another one begins each of them with what those before it come to.
#pragma once

#include "access.hpp"
#include "scan_monoid.hpp"
#include "subgroup_scan.hpp"

namespace tallow {

// Element i in the order of a scan. No index depends on what is known at run time, for which registers would not do.
template <typename T, uint32_t N> TALLOW_INLINE T in_order(const T (&values)[N], uint32_t i, bool reverse) {
    return reverse ? values[N - 1 - i] : values[i];
}

// What the elements so far come to. A thread joins some of its own, from `begin` on, before it adds them.
template <typename Scan, bool IsSum = Scan::adds_floats> struct Carry {
    using State = typename Scan::State;
    State state = Scan::identity();
    TALLOW_INLINE State value() const {
        return state;
    }
    TALLOW_INLINE void add(State next) {
        state = Scan::combine(state, next);
    }
    // States of several numbers take long to join: each is joined once.
    TALLOW_INLINE State begin() const {
        return state;
    }
    TALLOW_INLINE State with(State own) const {
        return own;
    }
    TALLOW_INLINE void add_own(State own) {
        state = own;
    }
};

template <typename R> TALLOW_INLINE R zero_if_nan(R x) {
    return x == x ? x : R(0);
}
template <typename R> TALLOW_INLINE Complex<R> zero_if_nan(Complex<R> z) {
    return {zero_if_nan(z.real), zero_if_nan(z.imag)};
}

// Sums of floats carry what their additions round off, by Kahan's method, so that errors do not grow with the length of
// a line.
template <typename Scan> struct Carry<Scan, true> {
    using State = typename Scan::State;
    State sum = Scan::identity();
    State excess = Scan::identity();
    TALLOW_INLINE State value() const {
        return sum;
    }
    // Differences from infinite sums are NaN, but they exceed nothing.
    TALLOW_INLINE void add(State next) {
        const State before = sum, wanted = next - excess;
        sum = before + wanted;
        excess = zero_if_nan((sum - before) - wanted);
    }
    TALLOW_INLINE State begin() const {
        return Scan::identity();
    }
    TALLOW_INLINE State with(State own) const {
        return sum + own;
    }
    TALLOW_INLINE void add_own(State own) {
        add(own);
    }
};

// How many elements a thread takes at once: 16 bytes. States of several numbers take too many registers where they are
// of doubles, or of many elements.
template <typename State, uint32_t Bytes>
constexpr uint32_t scanned_length = access_bytes / Bytes / (has_parts<State> && (Bytes == 1 || Bytes == 8) ? 2 : 1);

// The elements of a split of a contiguous row, with the carry of those in front of it. In reverse the accesses are the
// same ones, from the last to the first: `chunk` is one of the split in memory.
template <bool Stores, typename Scan, typename T, typename Arguments>
TALLOW_INLINE typename Scan::State scan_split(const Arguments& arguments, bool reverse, uint64_t row, uint64_t chunk,
                                              uint32_t lane, Carry<Scan> carry) {
    using State = typename Scan::State;
    constexpr uint32_t length = scanned_length<State, Scan::max_bytes>;
    const uint32_t subgroup_size = arguments.subgroup_size;
    const bool exists = row < arguments.rows;
    const uint64_t begin = chunk * arguments.chunk;
    const uint64_t remaining = exists && begin < arguments.length ? arguments.length - begin : 0;
    const uint64_t count = remaining < arguments.chunk ? remaining : arguments.chunk;
    const uint64_t offset = exists ? row * arguments.length + begin : 0;
    const T* const source = pointer_to<const T>(arguments.source) + offset;
    const uint64_t round = subgroup_size * length;
    // Every thread of the wave takes part in each round.
    for (uint64_t done = 0; done < arguments.chunk; done += round) {
        const uint64_t base = reverse ? arguments.chunk - round - done : done;
        const uint64_t first = base + (reverse ? subgroup_size - 1 - lane : lane) * length;
        const uint32_t left = first >= count           ? 0
                              : count - first < length ? static_cast<uint32_t>(count - first)
                                                       : length;
        Pack<T, length> pack{};
        if (left > 0)
            pack = load_some<length>(source + first, 1, left);
        State states[length];
        State own = Scan::identity();
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            const uint32_t at = reverse ? length - 1 - i : i;
            if (at < left)
                own = Scan::combine(
                    own, Scan::element(in_order(pack.values, i, reverse), static_cast<uint32_t>(begin + first + at)));
            states[i] = own;
        }
        State total;
        const State before = Scan::combine(carry.value(), exclusive_subgroup_scan<Scan>(own, subgroup_size, total));
        carry.add(total);
        if constexpr (Stores) {
            typename Scan::Result results[length];
            [[maybe_unused]] uint32_t positions[length];
#pragma unroll
            for (uint32_t i = 0; i < length; ++i) {
                State state = states[i];
                if (arguments.exclusive)
                    state = i == 0 ? Scan::identity() : states[i == 0 ? 0 : i - 1];
                state = Scan::combine(before, state);
                const uint64_t at = begin + first + (reverse ? length - 1 - i : i);
                const uint64_t earlier = reverse ? arguments.length - 1 - at : at;
                const T element = in_order(pack.values, i, reverse);
                results[i] = Scan::result(state, element, earlier + !arguments.exclusive);
                if constexpr (Scan::has_positions)
                    positions[i] = state.position;
            }
            Pack<typename Scan::Result, length> stored;
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                stored.values[i] = in_order(results, i, reverse);
            store_guarded(pointer_to<typename Scan::Result>(arguments.result) + offset, first, count, stored);
            if constexpr (Scan::has_positions) {
                Pack<uint32_t, length> packed_positions;
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    packed_positions.values[i] = in_order(positions, i, reverse);
                store_guarded(pointer_to<uint32_t>(arguments.positions) + offset, first, count, packed_positions);
            }
        }
    }
    return carry.value();
}

// A subgroup of threads for each split of a row.
template <bool Stores, typename Scan, typename T, typename Arguments>
TALLOW_INLINE void scan_rows_in(const Arguments& arguments, bool reverse) {
    using State = typename Scan::State;
    const uint32_t subgroup_size = arguments.subgroup_size;
    const uint32_t subgroups = block_size / subgroup_size;
    const uint32_t lane = thread_index() % subgroup_size;
    const uint64_t splits = arguments.splits;
    for (uint64_t base = uint64_t{block_index()} * subgroups; base < arguments.rows * splits;
         base += uint64_t{grid_blocks()} * subgroups) {
        const uint64_t part = base + thread_index() / subgroup_size;
        const uint64_t row = part / splits;
        const uint64_t split = part - row * splits;
        State* const totals = pointer_to<State>(arguments.totals) + row * splits;
        Carry<Scan> carry;
        if (Stores && splits > 1) {
            State own = Scan::identity(), total;
            // Side by side, so that the parts are combined in order.
            const uint64_t each = (split + subgroup_size - 1) / subgroup_size;
            const uint64_t end = (lane + 1) * each < split ? (lane + 1) * each : split;
            if (row < arguments.rows)
                for (uint64_t i = lane * each; i < end; ++i)
                    own = Scan::combine(own, totals[i]);
            exclusive_subgroup_scan<Scan>(own, subgroup_size, total);
            carry.add_own(total);
        }
        const State total =
            scan_split<Stores, Scan, T>(arguments, reverse, row, reverse ? splits - 1 - split : split, lane, carry);
        if (!Stores && lane == 0 && row < arguments.rows)
            totals[split] = total;
    }
}
template <bool Stores, typename Scan, typename T, typename Arguments>
TALLOW_INLINE void scan_rows(const Arguments& arguments) {
    // States of several numbers take long to join, and code for both orders more registers than there are.
    if constexpr (has_parts<typename Scan::State>)
        scan_rows_in<Stores, Scan, T>(arguments, arguments.reverse != 0);
    else if (arguments.reverse)
        scan_rows_in<Stores, Scan, T>(arguments, true);
    else
        scan_rows_in<Stores, Scan, T>(arguments, false);
}

// The elements of a line that a thread loads before it joins them.
constexpr uint32_t columns_in_flight = 8;

// Where a thread is in a line, of which `inner` lie side by side: in memory, and in the order of the scan.
template <typename Scan, typename T> struct Column {
    using Result = typename Scan::Result;
    const T* source;
    Result* result;
    uint32_t* positions;
    int64_t step;
    uint64_t done;
    uint64_t at;

    // Joins the next elements to the carry, of which all are loaded first.
    template <bool Stores, uint32_t Count> TALLOW_INLINE void scan(Carry<Scan>& carry, bool reverse, bool exclusive) {
        T loaded[Count];
#pragma unroll
        for (uint32_t k = 0; k < Count; ++k, source += step)
            loaded[k] = *source;
        auto own = carry.begin();
#pragma unroll
        for (uint32_t k = 0; k < Count; ++k, ++done, at += reverse ? -1 : 1) {
            auto state = own;
            own = Scan::combine(own, Scan::element(loaded[k], static_cast<uint32_t>(at)));
            if constexpr (Stores) {
                state = carry.with(exclusive ? state : own);
                *result = Scan::result(state, loaded[k], done + !exclusive);
                result += step;
                if constexpr (Scan::has_positions) {
                    *positions = state.position;
                    positions += step;
                }
            }
        }
        carry.add_own(own);
    }
};

// A thread for each split of a line, of which `inner` lie side by side.
template <bool Stores, typename Scan, typename T, typename Arguments>
TALLOW_INLINE void scan_columns(const Arguments& arguments) {
    using State = typename Scan::State;
    constexpr uint32_t together = columns_in_flight;
    const uint64_t inner = arguments.inner;
    const uint64_t splits = arguments.splits;
    const uint64_t parts = arguments.rows * inner * splits;
    const bool reverse = arguments.reverse, exclusive = arguments.exclusive;
    for (uint64_t part = uint64_t{block_index()} * block_size + thread_index(); part < parts;
         part += uint64_t{grid_blocks()} * block_size) {
        const uint64_t of_row = part / inner;
        const uint64_t column = part - of_row * inner;
        const uint64_t row = of_row / splits;
        const uint64_t split = of_row - row * splits;
        State* const totals = pointer_to<State>(arguments.totals) + row * splits * inner + column;
        Carry<Scan> carry;
        if constexpr (Stores) {
            const State* total = totals;
            uint64_t left = split;
            for (; left >= together; left -= together) {
                State loaded[together];
#pragma unroll
                for (uint32_t k = 0; k < together; ++k, total += inner)
                    loaded[k] = *total;
                State own = carry.begin();
#pragma unroll
                for (uint32_t k = 0; k < together; ++k)
                    own = Scan::combine(own, loaded[k]);
                carry.add_own(own);
            }
#pragma unroll 1
            for (; left > 0; --left, total += inner)
                carry.add(*total);
        }
        const uint64_t begin = split * arguments.chunk;
        const uint64_t end = arguments.length - begin < arguments.chunk ? arguments.length : begin + arguments.chunk;
        // In reverse the first element is the last in memory.
        const uint64_t at = reverse ? arguments.length - 1 - begin : begin;
        const uint64_t offset = (row * arguments.length + at) * inner + column;
        const auto step = static_cast<int64_t>(inner);
        Column<Scan, T> line{pointer_to<const T>(arguments.source) + offset,
                             pointer_to<typename Scan::Result>(arguments.result) + offset,
                             pointer_to<uint32_t>(arguments.positions) + (Scan::has_positions ? offset : 0),
                             reverse ? -step : step,
                             begin,
                             at};
        while (line.done + together <= end)
            line.template scan<Stores, together>(carry, reverse, exclusive);
#pragma unroll 1
        while (line.done < end)
            line.template scan<Stores, 1>(carry, reverse, exclusive);
        if constexpr (!Stores)
            totals[split * inner] = carry.value();
    }
}

} // namespace tallow
