// Rows less their mean, if they are centred, over the root of their mean square; times a weight, plus a bias. A
// residual is added first, and the sum is a result too.
#pragma once

#include "rows.hpp"

namespace tallow {

// What the threads of a team know together. Where rows are not centred, their mean is left at 0.
template <typename Value> TALLOW_INLINE Moments<Value> of_team(const Moments<Value>& known, Team& team) {
    const Value total = team.sum(known.count);
    const Value together = team.sum(known.mean * known.count) / total;
    const Value step = known.mean - together;
    return {total, together, team.sum(known.squares + step * step * known.count)};
}

// The factor of centred elements, given the sum of their squares.
template <typename Value, typename Arguments> TALLOW_INLINE Value scale_of(const Arguments& arguments, Value squares) {
    return rsqrt(squares * from_bits<Value>(arguments.share) + from_bits<Value>(arguments.epsilon));
}

template <typename T>
TALLOW_INLINE Registers<access_bytes> add_packs(const Registers<access_bytes>& x, const Registers<access_bytes>& y) {
    return map_pack<T>(x, [&](compute_type<T> value, uint32_t i) { return value + to_compute(take_element<T>(y, i)); });
}

// A weight or a bias that is not there changes nothing as 1 and as -0.0.
template <typename T> TALLOW_INLINE Registers<access_bytes> repeated(compute_type<T> value) {
    Registers<access_bytes> pack{};
#pragma unroll
    for (uint32_t i = 0; i < Row<T>::pack; ++i)
        put_element(pack, i, convert<T>(value));
    return pack;
}

// The results of a pack from a place of a row on. What they are multiplied with is read late: the cache has it, and
// registers for it would leave room for fewer threads.
template <typename T, bool Even, typename Arguments>
TALLOW_INLINE Registers<access_bytes> norm_pack(const Arguments& arguments, const Row<T, Even>& row,
                                                const Registers<access_bytes>& pack, uint32_t place,
                                                compute_type<T> mean, compute_type<T> scale) {
    using Value = compute_type<T>;
    const auto weights =
        arguments.weight ? row.load_vector(pointer_to<const T>(arguments.weight), place) : repeated<T>(Value{1});
    const auto biases =
        arguments.bias ? row.load_vector(pointer_to<const T>(arguments.bias), place) : repeated<T>(-Value{0});
    return map_pack<T>(pack, [&](Value x, uint32_t i) {
        const Value factor = scale * to_compute(take_element<T>(weights, i));
        return fma(x - mean, factor, to_compute(take_element<T>(biases, i)));
    });
}

// What elements of a row are less, and then times.
template <typename Value> struct RowMoments {
    Value mean;
    Value scale;
};

// Those of a row that a team holds.
template <typename T, uint32_t Packs, bool Even, typename Arguments>
TALLOW_INLINE RowMoments<compute_type<T>> held_moments(const Arguments& arguments, HeldRow<T, Packs, Even>& held,
                                                       Team& team) {
    using Value = compute_type<T>;
    Value mean = 0;
    if (arguments.is_centered) {
        mean = team.sum(held.template fold<JoinSums>(Value{0}, [](Value sum, Value x) { return sum + x; })) *
               from_bits<Value>(arguments.share);
        held.keep_packed();
    }
    const Value own = held.fold_sums([=](Value sum, Value x) { return fma(x - mean, x - mean, sum); });
    held.keep_packed();
    return {mean, scale_of(arguments, team.sum(own))};
}

// No kernel in front writes weights and biases, so they come to the cache while this one waits for it.
template <typename T, typename Arguments> TALLOW_INLINE void begin_norm(const Arguments& arguments) {
    let_next_kernel_begin();
    if (block_index() == 0) {
        fetch_to_cache(arguments.weight, arguments.length * sizeof(T));
        fetch_to_cache(arguments.bias, arguments.length * sizeof(T));
    }
    await_previous_kernel();
}

// Rows that a team holds in registers, each read once.
template <typename T, uint32_t Packs, bool Even, typename Arguments>
TALLOW_INLINE void norm_held(const Arguments& arguments) {
    using Access = Registers<access_bytes>;
    begin_norm<T>(arguments);
    Team team{arguments.team};
    visit_rows<2>(arguments, [&](uint32_t number, const uint64_t(&offsets)[2]) {
        const uint32_t length = number < arguments.rows ? arguments.length : 0;
        const Row<T, Even> row(pointer_to<const T>(arguments.source) + offsets[0], length);
        const uint64_t first = uint64_t{number} * arguments.length;
        HeldRow<T, Packs, Even> held(row, team.size, T{});
        if (arguments.residual) {
            Access others[Packs] = {};
            held.load(pointer_to<const T>(arguments.residual) + offsets[1], T{}, others);
            held.replace([&](const Access& pack, uint32_t p) { return add_packs<T>(pack, others[p]); });
            held.store(pointer_to<T>(arguments.sum) + first, [](const Access& pack, uint32_t) { return pack; });
        }
        const auto known = held_moments(arguments, held, team);
        held.store(pointer_to<T>(arguments.result) + first, [&](const Access& pack, uint32_t place) {
            return norm_pack(arguments, row, pack, place, known.mean, known.scale);
        });
    });
}

// The operands of a long row.
template <typename T, typename Arguments> struct NormRow {
    using Access = Registers<access_bytes>;
    const Row<T>& row;
    const T* residual;
    T* sum;

    TALLOW_INLINE NormRow(const Arguments& arguments, const Row<T>& row, uint32_t number, uint64_t residual)
        : row(row), residual(arguments.residual ? pointer_to<const T>(arguments.residual) + residual : nullptr),
          sum(pointer_to<T>(arguments.sum) + uint64_t{number} * arguments.length) {
    }
    // The elements from a place on; with a residual their sums, which are written too.
    TALLOW_INLINE Access load(uint32_t place) const {
        const Access access = row.load(row.elements, place, T{});
        if (!residual)
            return access;
        const Access added = add_packs<T>(access, row.load(residual, place, T{}));
        row.store(sum, place, added);
        return added;
    }
    // The same once they have been loaded before, by this thread or by another kernel.
    TALLOW_INLINE Access load_again(uint32_t place) const {
        return row.load(residual ? sum : row.elements, place, T{});
    }
};

// What a thread of the block knows of the packs of a part.
template <typename T, typename Norm>
TALLOW_INLINE Moments<compute_type<T>> measure_moments(const Norm& norm, const RowPart& part, bool is_centered) {
    using Value = compute_type<T>;
    Moments<Value> known{};
    for (uint32_t k = part.begin + thread_index(); k < part.end; k += reduce_in_flight * block_size) {
        Registers<access_bytes> loaded[reduce_in_flight];
#pragma unroll
        for (uint32_t p = 0; p < reduce_in_flight; ++p)
            if (k + p * block_size < part.end)
                loaded[p] = norm.load(norm.row.place(k + p * block_size));
#pragma unroll
        for (uint32_t p = 0; p < reduce_in_flight; ++p) {
            if (k + p * block_size >= part.end)
                continue;
            const uint32_t place = norm.row.place(k + p * block_size);
            Moments<Value> pack{};
            // A bit for each element of the row: conditions that are kept take too many scalar registers.
            uint32_t there = 0;
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i) {
                there |= (place + i < norm.row.length ? 1U : 0U) << i;
                pack.mean += to_compute(take_element<T>(loaded[p], i));
            }
            pack.count = static_cast<Value>(count_bits(there));
            pack.mean = is_centered ? pack.mean / pack.count : Value{0};
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i) {
                const Value step = to_compute(take_element<T>(loaded[p], i)) - pack.mean;
                pack.squares = there >> i & 1 ? fma(step, step, pack.squares) : pack.squares;
            }
            known.add(pack);
        }
    }
    return known;
}

// Long rows, a block for each part. A first kernel tells the second one what is known of each; with one part a row, the
// second one finds out itself.
template <typename T, typename Arguments> TALLOW_INLINE void norm_measure(const Arguments& arguments) {
    begin_norm<T>(arguments);
    Team team{block_size};
    visit_parts<T, 2>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&offsets)[2]) {
        const NormRow<T, Arguments> norm(arguments, row, part.number, offsets[1]);
        const auto known = of_team(measure_moments<T>(norm, part, arguments.is_centered != 0), team);
        if (thread_index() == 0)
            pointer_to<Moments<compute_type<T>>>(arguments.parts)[part.part] = known;
    });
}
template <typename T, typename Arguments> TALLOW_INLINE void norm_long(const Arguments& arguments) {
    using Known = Moments<compute_type<T>>;
    begin_norm<T>(arguments);
    Team team{block_size};
    visit_parts<T, 2>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&offsets)[2]) {
        const NormRow<T, Arguments> norm(arguments, row, part.number, offsets[1]);
        Known known{};
        if (arguments.splits == 1) {
            known = measure_moments<T>(norm, part, arguments.is_centered != 0);
        } else {
            const Known* const parts = pointer_to<const Known>(arguments.parts) + part.number * arguments.splits;
            for (uint32_t i = thread_index(); i < arguments.splits; i += block_size)
                known.add(parts[i]);
        }
        known = of_team(known, team);
        const compute_type<T> scale = scale_of(arguments, known.squares);
        T* const result = pointer_to<T>(arguments.result) + uint64_t{part.number} * arguments.length;
        for (uint32_t k = part.begin + thread_index(); k < part.end; k += block_size) {
            const uint32_t place = row.place(k);
            row.store(result, place, norm_pack(arguments, row, norm.load_again(place), place, known.mean, scale));
        }
    });
}

} // namespace tallow
