// The gradients of what norms of norm.hpp made of: of x, and of the weight and the bias, which are sums over rows. With
// n the normalised elements and p the gradient of the result times the weight, that of x is scale * (p - mean of p
// - n * mean of p * n), where only centred rows have the mean of p. To it a residual is added, where there is one.
#pragma once

#include "column_sums.hpp"
#include "norm.hpp"

namespace tallow {

// What is known of a row: its mean and the factor of centred elements. In the place of sums of p and of p * n, of the
// part of a thread or of the row.
template <typename T> struct NormGradientRow {
    using Value = compute_type<T>;
    using Access = Registers<access_bytes>;
    RowMoments<Value> moments;
    Value direct = 0;
    Value along = 0;

    TALLOW_INLINE Value normal(Value x) const {
        return (x - moments.mean) * moments.scale;
    }
    TALLOW_INLINE void add(const Access& pack, const Access& gradient, const Access& weights) {
#pragma unroll
        for (uint32_t i = 0; i < Row<T>::pack; ++i) {
            const Value own = to_compute(take_element<T>(gradient, i)) * to_compute(take_element<T>(weights, i));
            direct += own;
            along = fma(own, normal(to_compute(take_element<T>(pack, i))), along);
        }
    }
    // The means over the row, of the sums of a team's threads.
    template <typename Arguments> TALLOW_INLINE void finish(const Arguments& arguments, Team& team) {
        const Value share = from_bits<Value>(arguments.share);
        direct = arguments.is_centered ? team.sum(direct) * share : Value{0};
        along = team.sum(along) * share;
    }
    TALLOW_INLINE Access results(const Access& pack, const Access& gradient, const Access& weights,
                                 const Access& residual) const {
        return map_pack<T>(pack, [&](Value x, uint32_t i) {
            const Value own = to_compute(take_element<T>(gradient, i)) * to_compute(take_element<T>(weights, i));
            return fma(moments.scale, fma(Value{0} - normal(x), along, own - direct),
                       to_compute(take_element<T>(residual, i)));
        });
    }
    // Columns of weights and biases are added up by another kernel, which is told of each row.
    template <typename Arguments> TALLOW_INLINE void tell(const Arguments& arguments, uint32_t number) const {
        if (arguments.moments)
            pointer_to<RowMoments<Value>>(arguments.moments)[number] = moments;
    }
};

// The weights from a place of a row on.
template <typename T, bool Even, typename Arguments>
TALLOW_INLINE Registers<access_bytes> weights_at(const Arguments& arguments, const Row<T, Even>& row, uint32_t place) {
    return arguments.weight ? row.load_vector(pointer_to<const T>(arguments.weight), place)
                            : repeated<T>(compute_type<T>{1});
}

// Adds up numbers of each pack of a team's threads over the teams of the block, and writes the sum of each column.
template <typename T, uint32_t Packs, typename Value>
TALLOW_INLINE void store_columns(const Value (&sums)[Packs][Row<T>::pack], Value* result, uint32_t length,
                                 uint32_t team) {
    __shared__ Value staged[block_size * Row<T>::pack];
    const uint32_t together = team * Row<T>::pack;
#pragma unroll
    for (uint32_t p = 0; p < Packs; ++p) {
        synchronize_block();
#pragma unroll
        for (uint32_t i = 0; i < Row<T>::pack; ++i)
            staged[thread_index() * Row<T>::pack + i] = sums[p][i];
        synchronize_block();
        for (uint32_t c = thread_index(); c < together && p * together + c < length; c += block_size) {
            Value sum = 0;
            for (uint32_t place = c; place < block_size * Row<T>::pack; place += together)
                sum += staged[place];
            result[p * together + c] = sum;
        }
    }
}

// Rows of both that a team holds in registers. Where they are cut into whole accesses alone, each thread has the same
// columns of all rows, and adds up what is asked for of them.
template <typename T, uint32_t Packs, bool Even, typename Arguments>
TALLOW_INLINE void norm_gradient_held(const Arguments& arguments) {
    using Value = compute_type<T>;
    using Access = Registers<access_bytes>;
    constexpr uint32_t length = Row<T>::pack;
    Team team{arguments.team};
    Value weights[Packs][length] = {};
    Value biases[Packs][length] = {};
    visit_rows<2>(arguments, [&](uint32_t number, const uint64_t(&offsets)[2]) {
        const bool is_there = number < arguments.rows;
        const Row<T, Even> row(pointer_to<const T>(arguments.source) + offsets[0], is_there ? arguments.length : 0);
        HeldRow<T, Packs, Even> held(row, team.size, T{});
        Access gradients[Packs] = {};
        held.load(pointer_to<const T>(arguments.gradient) + offsets[1], T{}, gradients);
        NormGradientRow<T> known{held_moments(arguments, held, team)};
        held.keep_packed(gradients);
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p) {
            const Access pack = opaque_pack<T>(held.held[p]);
            const Access gradient = opaque_pack<T>(gradients[p]);
            known.add(pack, gradient, weights_at(arguments, row, held.place(p)));
            if constexpr (Even) {
                // What is not there may have no number.
                if (row.is_whole(held.place(p))) {
#pragma unroll
                    for (uint32_t i = 0; i < length; ++i) {
                        const Value given = to_compute(take_element<T>(gradient, i));
                        weights[p][i] = fma(given, known.normal(to_compute(take_element<T>(pack, i))), weights[p][i]);
                        biases[p][i] += given;
                    }
                }
            }
        }
        known.finish(arguments, team);
        held.keep_packed();
        held.keep_packed(gradients);
        const uint64_t first = uint64_t{number} * arguments.length;
        Access residuals[Packs] = {};
        if (arguments.residual)
            held.load(pointer_to<const T>(arguments.residual) + first, T{}, residuals);
        held.replace([&](const Access& pack, uint32_t p) {
            return known.results(pack, gradients[p], weights_at(arguments, row, held.place(p)), residuals[p]);
        });
        held.store(pointer_to<T>(arguments.result) + first, [](const Access& pack, uint32_t) { return pack; });
        if (!Even && is_there && team.lane() == 0)
            known.tell(arguments, number);
    });
    if constexpr (Even) {
        if (arguments.sums) {
            Value* const sums = pointer_to<Value>(arguments.sums) + uint64_t{block_index()} * 2 * arguments.length;
            store_columns<T>(weights, sums, arguments.length, team.size);
            store_columns<T>(biases, sums + arguments.length, arguments.length, team.size);
        }
    }
}

// Longer rows, a block for each, which reads them again from the cache.
template <typename T> struct LongRow {
    const Row<T>& row;

    TALLOW_INLINE Registers<access_bytes> load(uint32_t place) const {
        return row.load(row.elements, place, T{});
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void norm_gradient_long(const Arguments& arguments) {
    Team team{block_size};
    visit_rows<2>(arguments, [&](uint32_t number, const uint64_t(&offsets)[2]) {
        const LongRow<T> x{Row<T>(pointer_to<const T>(arguments.source) + offsets[0], arguments.length)};
        const T* const gradient = pointer_to<const T>(arguments.gradient) + offsets[1];
        const uint64_t first = uint64_t{number} * arguments.length;
        T* const result = pointer_to<T>(arguments.result) + first;
        const T* const residual = arguments.residual ? pointer_to<const T>(arguments.residual) + first : nullptr;
        const uint32_t packs = x.row.packs();
        const auto measured = measure_moments<T>(x, RowPart{number, number, 0, packs}, arguments.is_centered != 0);
        const auto together = of_team(measured, team);
        NormGradientRow<T> known{{together.mean, scale_of(arguments, together.squares)}};
        for (uint32_t k = thread_index(); k < packs; k += block_size) {
            const uint32_t place = x.row.place(k);
            known.add(x.load(place), x.row.load(gradient, place, T{}), weights_at(arguments, x.row, place));
        }
        known.finish(arguments, team);
        for (uint32_t k = thread_index(); k < packs; k += block_size) {
            const uint32_t place = x.row.place(k);
            const auto added = residual ? x.row.load(residual, place, T{}) : Registers<access_bytes>{};
            x.row.store(result, place,
                        known.results(x.load(place), x.row.load(gradient, place, T{}),
                                      weights_at(arguments, x.row, place), added));
        }
        if (thread_index() == 0)
            known.tell(arguments, number);
    });
}

// A thread for each column of each part of the rows: what its rows add to the gradients of weight and bias.
template <typename T, typename Arguments> TALLOW_INLINE void norm_gradient_columns(const Arguments& arguments) {
    using Value = compute_type<T>;
    const uint32_t blocks = (arguments.length + block_size - 1) / block_size;
    const uint32_t part = block_index() / blocks;
    const uint32_t column = (block_index() - part * blocks) * block_size + thread_index();
    if (column >= arguments.length)
        return;
    const uint32_t begin = part * arguments.chunk;
    const uint32_t left = arguments.rows - begin;
    Value weight = 0;
    Value bias = 0;
    for (uint32_t number = begin; number < begin + (left < arguments.chunk ? left : arguments.chunk); ++number) {
        uint64_t offsets[2];
        locate(arguments, number, offsets);
        const NormGradientRow<T> known{pointer_to<const RowMoments<Value>>(arguments.moments)[number]};
        const Value x = to_compute(pointer_to<const T>(arguments.source)[offsets[0] + column]);
        const Value given = to_compute(pointer_to<const T>(arguments.gradient)[offsets[1] + column]);
        weight = fma(given, known.normal(x), weight);
        bias += given;
    }
    Value* const sums = pointer_to<Value>(arguments.sums) + uint64_t{part} * 2 * arguments.length;
    sums[column] = weight;
    sums[arguments.length + column] = bias;
}

// Adds up the parts: blocks take turns at the columns of the weight and of the bias, and the threads of one share out
// the parts of `joined_columns` columns, of which a part has 32 bytes side by side.
template <typename T, typename Arguments> TALLOW_INLINE void norm_gradient_sums(const Arguments& arguments) {
    using Value = compute_type<T>;
    const uint32_t is_bias = block_index() % 2;
    const uint32_t column = block_index() / 2 * joined_columns + thread_index() % joined_columns;
    const uint64_t result = is_bias ? arguments.bias : arguments.weight;
    const bool is_there = column < arguments.length && result != 0;
    const Value* const sums = pointer_to<const Value>(arguments.sums) + is_bias * arguments.length + column;
    const Value sum = joined_parts(sums, uint64_t{2} * arguments.length, is_there ? arguments.parts : 0);
    if (thread_index() < joined_columns && is_there)
        pointer_to<T>(result)[column] = convert<T>(sum);
}

} // namespace tallow
