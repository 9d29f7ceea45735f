// Rows of elements side by side, each taken by a team of threads in whole accesses, wherever it begins and ends.
#pragma once

#include "math.hpp"
#include "reduce.hpp"

namespace tallow {

// A row is cut where whole accesses are: pack k holds the elements from k * length - lead on. At the two ends some of
// these are not there; such a place numbers them all the same, the ones before the row from 2**32 down.
template <typename T> struct Row {
    static constexpr uint32_t pack = access_bytes / sizeof(T);
    using Access = Registers<access_bytes>;
    const T* elements;
    uint32_t length;
    uint32_t lead;

    TALLOW_INLINE Row(const T* elements, uint32_t length)
        : elements(elements), length(length),
          lead(static_cast<uint32_t>(reinterpret_cast<uint64_t>(elements) % access_bytes / sizeof(T))) {
    }
    TALLOW_INLINE uint32_t packs() const {
        return length == 0 ? 0 : (lead + length + pack - 1) / pack;
    }
    TALLOW_INLINE uint32_t place(uint32_t k) const {
        return k * pack - lead;
    }
    TALLOW_INLINE bool is_whole(uint32_t place) const {
        return length >= pack && place <= length - pack;
    }
    // The elements from a place on; in those that are not there, `blank`.
    TALLOW_INLINE Access load(uint32_t place, T blank) const {
        if (is_whole(place))
            return load_registers<access_bytes>(elements + place);
        Access access{};
#pragma unroll
        for (uint32_t i = 0; i < pack; ++i)
            put_element(access, i, place + i < length ? elements[place + i] : blank);
        return access;
    }
    // Writes those elements that are there to another row of the same length.
    TALLOW_INLINE void store(T* row, uint32_t place, const Access& access) const {
        if (is_whole(place) && is_aligned<pack>(row + place)) {
            store_registers(row + place, access);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < pack; ++i)
                if (place + i < length)
                    row[place + i] = take_element<T>(access, i);
        }
    }
};

// Sums and highest numbers over a team. A NaN is no highest number: it shows in the sums that come after.
struct JoinSums {
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Value y) {
        return x + y;
    }
};
struct JoinHighest {
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Value y) {
        return y > x ? y : x;
    }
};
template <typename Value> TALLOW_INLINE Value team_sum(Value value, uint32_t team) {
    return reduce_team<JoinSums>(value, team);
}
template <typename Value> TALLOW_INLINE Value team_highest(Value value, uint32_t team) {
    return reduce_team<JoinHighest>(value, team);
}

// What a thread of a team holds of a row in registers: every team-th pack.
template <typename T, uint32_t Packs> struct HeldRow {
    using Value = compute_type<T>;
    const Row<T>& row;
    uint32_t lane;
    uint32_t team;
    Registers<access_bytes> held[Packs];

    TALLOW_INLINE HeldRow(const Row<T>& row, uint32_t lane, uint32_t team, T blank) : row(row), lane(lane), team(team) {
        const uint32_t packs = row.packs();
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p) {
            if (lane + p * team < packs) {
                held[p] = row.load(place(p), blank);
            } else {
                held[p] = {};
#pragma unroll
                for (uint32_t i = 0; i < Row<T>::pack; ++i)
                    put_element(held[p], i, blank);
            }
        }
    }
    TALLOW_INLINE uint32_t place(uint32_t p) const {
        return row.place(lane + p * team);
    }
    TALLOW_INLINE Value value(uint32_t p, uint32_t i) const {
        return to_compute(take_element<T>(held[p], i));
    }
    // function(.. function(function(first, element), element) .., element): a chain for each pack, which Join joins.
    template <typename Join, typename Function> TALLOW_INLINE Value fold(Value first, Function function) const {
        Value folded[Packs];
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p) {
            folded[p] = first;
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i)
                folded[p] = function(folded[p], value(p, i));
        }
#pragma unroll
        for (uint32_t half = Packs / 2; half > 0; half /= 2)
#pragma unroll
            for (uint32_t p = 0; p < half; ++p)
                folded[p] = Join::combine(folded[p], folded[p + half]);
        return folded[0];
    }
    // result[i] = function(element i), rounded.
    template <typename Function> TALLOW_INLINE void store(T* result, Function function) const {
        const uint32_t packs = row.packs();
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p) {
            Registers<access_bytes> made{};
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i)
                put_element(made, i, convert<T>(function(value(p, i))));
            if (lane + p * team < packs)
                row.store(result, place(p), made);
        }
    }
};

// Calls visit(number, first) for each row, for a team of threads: its number and where its source begins. Teams behind
// the last row are called too, with a number that no row has, since all lanes of a wave exchange what they have.
template <typename Arguments, typename Visit> TALLOW_INLINE void visit_rows(const Arguments& arguments, Visit visit) {
    const uint32_t rows_per_block = teams_in(block_size, arguments.team);
    for (uint32_t base = block_index() * rows_per_block; base < arguments.rows;
         base += grid_blocks() * rows_per_block) {
        const uint32_t row = base + teams_in(thread_index(), arguments.team);
        uint64_t offsets[1];
        locate(arguments, row < arguments.rows ? row : 0, offsets);
        visit(row, offsets[0]);
    }
}

// Calls visit(part, number, row, begin, end) for each part of each row, for a block: packs [begin, end) of row
// `number`, which is cut into `splits` parts of `chunk` packs.
template <typename T, typename Arguments, typename Visit>
TALLOW_INLINE void visit_parts(const Arguments& arguments, Visit visit) {
    for (uint32_t part = block_index(); part < arguments.rows * arguments.splits; part += grid_blocks()) {
        const uint32_t number = part / arguments.splits;
        uint64_t offsets[1];
        locate(arguments, number, offsets);
        const Row<T> row(pointer_to<const T>(arguments.source) + offsets[0], arguments.length);
        const uint32_t packs = row.packs();
        const uint32_t begin = (part - number * arguments.splits) * arguments.chunk;
        visit(part, number, row, begin, packs - begin < arguments.chunk ? packs : begin + arguments.chunk);
    }
}

} // namespace tallow
