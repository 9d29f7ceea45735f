// Rows less their mean, if they are centred, over the root of their mean square; times a weight, plus a bias. A
// residual is added first, and the sum is a result too.
#pragma once

#include "rows.hpp"

namespace tallow {

// What is known of some elements: how many they are, their mean, which is left at 0 where rows are not centred, and the
// sum of the squares of what they differ from it.
template <typename Value> struct Moments {
    Value count;
    Value mean;
    Value squares;

    // Chan, Golub and LeVeque 1979.
    TALLOW_INLINE void add(const Moments& other) {
        const Value total = count + other.count;
        const Value share = total > 0 ? other.count / total : Value{0};
        const Value step = other.mean - mean;
        squares += other.squares + step * step * count * share;
        mean += step * share;
        count = total;
    }
    // What the threads of a team know together.
    TALLOW_INLINE Moments of_team(Team& team) const {
        const Value total = team.sum(count);
        const Value together = team.sum(mean * count) / total;
        const Value step = mean - together;
        return {total, together, team.sum(squares + step * step * count)};
    }
};

// A row as it is read.
template <typename T, typename Arguments> struct NormRow {
    using Value = compute_type<T>;
    using Access = Registers<access_bytes>;
    const Arguments& arguments;
    const Row<T>& row;
    uint64_t first;
    const T* residual;

    TALLOW_INLINE NormRow(const Arguments& arguments, const Row<T>& row, uint32_t number, uint64_t residual)
        : arguments(arguments), row(row), first(uint64_t{number} * arguments.length),
          residual(arguments.residual ? pointer_to<const T>(arguments.residual) + residual : nullptr) {
    }
    // The elements from a place on; with a residual their sums, which are written too.
    template <bool Whole> TALLOW_INLINE Access load(uint32_t place) const {
        const Access access = row.template load<Whole>(row.elements, place, T{});
        if (!residual)
            return access;
        const Access other = row.template load<Whole>(residual, place, T{});
        const Access sum =
            map_pack<T>(access, [&](Value x, uint32_t i) { return x + to_compute(take_element<T>(other, i)); });
        row.template store<Whole>(pointer_to<T>(arguments.sum) + first, place, sum);
        return sum;
    }
    TALLOW_INLINE Access load(uint32_t place) const {
        return row.is_whole(place) ? load<true>(place) : load<false>(place);
    }
    // The same once they have been loaded before, by this thread or by another kernel.
    TALLOW_INLINE Access load_again(uint32_t place) const {
        return row.load(residual ? pointer_to<const T>(arguments.sum) + first : row.elements, place, T{});
    }
    // By what centred elements are multiplied.
    TALLOW_INLINE Value scale(Value squares) const {
        return Value{1} / sqrt(squares / static_cast<Value>(arguments.length) + from_bits<Value>(arguments.epsilon));
    }
    TALLOW_INLINE T* result() const {
        return pointer_to<T>(arguments.result) + first;
    }
};

// What makes the results of a row.
template <typename T, typename Arguments> struct NormMaker {
    using Value = compute_type<T>;
    using Access = Registers<access_bytes>;
    const Arguments& arguments;
    const Row<T>& row;
    Value mean;
    Value scale;

    // What is not there changes nothing: a weight of 1 and a bias of -0.0.
    template <bool Whole> TALLOW_INLINE Access make(const Access& pack, uint32_t place) const {
        const Access weights = load<Whole>(arguments.weight, place, Value{1});
        const Access biases = load<Whole>(arguments.bias, place, -Value{0});
        return map_pack<T>(pack, [&](Value x, uint32_t i) {
            const Value factor = scale * to_compute(take_element<T>(weights, i));
            return fma(x - mean, factor, to_compute(take_element<T>(biases, i)));
        });
    }

  private:
    template <bool Whole> TALLOW_INLINE Access load(uint64_t vector, uint32_t place, Value absent) const {
        if (vector)
            return row.template load_vector<Whole>(pointer_to<const T>(vector), place);
        Access access{};
#pragma unroll
        for (uint32_t i = 0; i < Row<T>::pack; ++i)
            put_element(access, i, convert<T>(absent));
        return access;
    }
};

// Rows that a team holds in registers, each read once.
template <typename T, uint32_t Packs, typename Arguments> TALLOW_INLINE void norm_held(const Arguments& arguments) {
    using Value = compute_type<T>;
    Team team{arguments.team};
    visit_rows<2>(arguments, [&](uint32_t number, const uint64_t(&offsets)[2]) {
        const uint32_t length = number < arguments.rows ? arguments.length : 0;
        const Row<T> row(pointer_to<const T>(arguments.source) + offsets[0], length);
        const NormRow<T, Arguments> norm(arguments, row, number, offsets[1]);
        HeldRow<T, Packs> held(row, team.size, T{}, norm);
        Value mean = 0;
        if (arguments.is_centered) {
            mean = team.sum(held.template fold<JoinSums>(Value{0}, [](Value sum, Value x) { return sum + x; })) /
                   static_cast<Value>(arguments.length);
            held.keep_packed();
        }
        const Value squares =
            team.sum(held.fold_sums([=](Value sum, Value x) { return fma(x - mean, x - mean, sum); }));
        held.keep_packed();
        held.store(norm.result(), NormMaker<T, Arguments>{arguments, row, mean, norm.scale(squares)});
    });
}

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
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i) {
                const bool is_there = place + i < norm.row.length;
                pack.count += is_there ? Value{1} : Value{0};
                pack.mean += to_compute(take_element<T>(loaded[p], i));
            }
            pack.mean = is_centered ? pack.mean / pack.count : Value{0};
#pragma unroll
            for (uint32_t i = 0; i < Row<T>::pack; ++i) {
                const Value step = to_compute(take_element<T>(loaded[p], i)) - pack.mean;
                pack.squares = place + i < norm.row.length ? fma(step, step, pack.squares) : pack.squares;
            }
            known.add(pack);
        }
    }
    return known;
}

// Long rows, as those of softmax.
template <typename T, typename Arguments> TALLOW_INLINE void norm_measure(const Arguments& arguments) {
    Team team{block_size};
    visit_parts<T, 2>(arguments, [&](const RowPart& part, const Row<T>& row, const uint64_t(&offsets)[2]) {
        const NormRow<T, Arguments> norm(arguments, row, part.number, offsets[1]);
        const auto known = measure_moments<T>(norm, part, arguments.is_centered != 0).of_team(team);
        if (thread_index() == 0)
            pointer_to<Moments<compute_type<T>>>(arguments.parts)[part.part] = known;
    });
}
template <typename T, typename Arguments> TALLOW_INLINE void norm_long(const Arguments& arguments) {
    using Known = Moments<compute_type<T>>;
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
        known = known.of_team(team);
        const NormMaker<T, Arguments> maker{arguments, row, known.mean, norm.scale(known.squares)};
        for (uint32_t k = part.begin + thread_index(); k < part.end; k += block_size) {
            const uint32_t place = row.place(k);
            const auto loaded = norm.load_again(place);
            row.store(norm.result(), place,
                      row.is_whole(place) ? maker.template make<true>(loaded, place)
                                          : maker.template make<false>(loaded, place));
        }
    });
}

} // namespace tallow
