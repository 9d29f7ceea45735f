// Reductions. Sums keep a fixed order, so that the bits are the same on every run; no kernel adds floats atomically.
#pragma once

#include "memory.hpp"
#include "monoid.hpp"
#include "wave.hpp"

namespace tallow {

// NVRTC takes a generic lambda for a function of the host.
struct ShuffleXor {
    uint32_t mask;
    template <typename Part> TALLOW_INLINE Part operator()(Part part) const {
        return shuffle_xor(part, mask);
    }
};
template <typename State> TALLOW_INLINE State shuffle_state(State state, uint32_t mask) {
    if constexpr (has_parts<State>)
        return state.each(ShuffleXor{mask});
    else
        return shuffle_xor(state, mask);
}
TALLOW_INLINE RankAndPosition shuffle_state(RankAndPosition state, uint32_t mask) {
    return {shuffle_xor(state.rank, mask), shuffle_xor(state.index, mask)};
}

// Subgroups are powers of two, so that a thread computes its subgroup and its lane without a division.
TALLOW_INLINE uint32_t lane_in_subgroup(uint32_t subgroup_size) {
    return thread_index() & (subgroup_size - 1);
}
TALLOW_INLINE uint32_t subgroups_in(uint32_t threads, uint32_t subgroup_size) {
    return threads >> count_bits(subgroup_size - 1);
}

static_assert(is_power_of_two<row_subgroup> && row_subgroup <= wave_size,
              "a subgroup_size is part of a wave, or a block");

// Combines the states of `subgroup_size` adjacent threads, a power of two up to row_subgroup or all of the block; the
// first gets it.
template <typename Op, typename State> TALLOW_INLINE State reduce_subgroup(State state, uint32_t subgroup_size) {
    const uint32_t lanes = subgroup_size < wave_size ? subgroup_size : wave_size;
    for (uint32_t mask = lanes / 2; mask > 0; mask /= 2)
        state = Op::combine(state, shuffle_state(state, mask));
    if (subgroup_size == block_size) {
        __shared__ State waves[waves_per_block];
        if (lane_index() == 0)
            waves[wave_index()] = state;
        synchronize_block();
        state = waves[0];
#pragma unroll
        for (uint32_t w = 1; w < waves_per_block; ++w)
            state = Op::combine(state, waves[w]);
        synchronize_block();
    }
    return state;
}

// Elements First .. First + Count of a pack combined as a tree, which for sums is both short and accurate.
template <typename Op, uint32_t First, uint32_t Count, uint32_t N, typename T>
TALLOW_INLINE typename Op::State reduce_part(const Pack<T, N>& pack, uint32_t index) {
    if constexpr (Count == 1)
        return Op::element(pack.values[First], index + First);
    else
        return Op::combine(reduce_part<Op, First, Count / 2>(pack, index),
                           reduce_part<Op, First + Count / 2, Count / 2>(pack, index));
}
// Sums of e**(element - highest), as exact as an element of T shows.
template <typename State, uint32_t N, typename T> TALLOW_INLINE State powers_of_pack(const Pack<T, N>& pack) {
    using Number = compute_type<T>;
    Number highest = to_compute(pack.values[0]);
#pragma unroll
    for (uint32_t i = 1; i < N; ++i)
        highest = fmax(highest, to_compute(pack.values[i]));
    Number total = 0;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const Number x = below<Number>(to_compute(pack.values[i]), highest);
        if constexpr (has_fast_math<T>)
            total += approx_exp2(x * 1.44269504f);
        else
            total += exp(x);
    }
    return {highest, total};
}
template <typename Op, uint32_t N, typename T>
TALLOW_INLINE typename Op::State reduce_pack(const Pack<T, N>& pack, uint32_t index) {
    if constexpr (has_highest<typename Op::State>)
        return powers_of_pack<typename Op::State>(pack);
    else
        return reduce_part<Op, 0, N>(pack, index);
}

// Elements [begin, end) of a dense row, taken by `subgroup_size` threads, in packs but for the two ends. A thread
// has several packs in flight and a state for each, fewer where states take more registers. Where packs join more
// quickly among themselves it has one state, and one pack of bytes, of which AMD's compilers would spill scalar
// registers.
template <typename Op, typename T>
TALLOW_INLINE typename Op::State reduce_dense(const T* row, uint32_t begin, uint32_t end, uint32_t lane,
                                              uint32_t subgroup_size) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    constexpr bool is_one = has_count<typename Op::State> || has_highest<typename Op::State>;
    constexpr bool are_many = is_one || sizeof(typename Op::State) < 8 || sizeof(T) < 4;
    constexpr uint32_t parts = is_one && sizeof(T) == 1 ? 1 : are_many ? reduce_in_flight : reduce_in_flight / 2;
    const uint32_t misaligned = static_cast<uint32_t>(reinterpret_cast<uint64_t>(row + begin) % access_bytes);
    const uint32_t wanted = misaligned == 0 ? 0 : static_cast<uint32_t>((access_bytes - misaligned) / sizeof(T));
    const uint32_t head = wanted < end - begin ? begin + wanted : end;
    const uint32_t packs = (end - head) / length;
    typename Op::State states[parts];
#pragma unroll
    for (uint32_t p = 0; p < parts; ++p)
        states[p] = Op::identity();
    for (uint32_t i = begin + lane; i < head; i += subgroup_size)
        states[0] = Op::combine(states[0], Op::element(row[i], i));
    uint32_t pack = lane;
    for (; pack + (parts - 1) * subgroup_size < packs; pack += parts * subgroup_size) {
        Pack<T, length> loaded[parts];
#pragma unroll
        for (uint32_t p = 0; p < parts; ++p)
            loaded[p] = load_pack<length>(row + head + (pack + p * subgroup_size) * length);
        if constexpr (is_one) {
            auto together = reduce_pack<Op>(loaded[0], head + pack * length);
#pragma unroll
            for (uint32_t p = 1; p < parts; ++p)
                together =
                    Op::combine(together, reduce_pack<Op>(loaded[p], head + (pack + p * subgroup_size) * length));
            states[0] = Op::combine(states[0], together);
        } else {
#pragma unroll
            for (uint32_t p = 0; p < parts; ++p)
                states[p] =
                    Op::combine(states[p], reduce_pack<Op>(loaded[p], head + (pack + p * subgroup_size) * length));
        }
    }
    for (; pack < packs; pack += subgroup_size)
        states[0] = Op::combine(states[0],
                                reduce_pack<Op>(load_pack<length>(row + head + pack * length), head + pack * length));
    for (uint32_t i = head + packs * length + lane; i < end; i += subgroup_size)
        states[0] = Op::combine(states[0], Op::element(row[i], i));
#pragma unroll
    for (uint32_t half = is_one ? 0 : parts / 2; half > 0; half /= 2)
#pragma unroll
        for (uint32_t p = 0; p < half; ++p)
            states[p] = Op::combine(states[p], states[p + half]);
    return states[0];
}

// Elements [begin, end) of the reduced dims, wherever they are.
template <typename Op, typename T, typename Arguments>
TALLOW_INLINE typename Op::State reduce_scattered(const Arguments& arguments, const T* source, uint32_t begin,
                                                  uint32_t end, uint32_t lane, uint32_t subgroup_size) {
    typename Op::State state = Op::identity();
    for (uint32_t i = begin + lane; i < end; i += subgroup_size) {
        uint64_t offsets[1];
        locate_between(arguments, 0, arguments.reduced_rank, i, offsets);
        state = Op::combine(state, Op::element(source[offsets[0]], i));
    }
    return state;
}

// The result of one output, or with several splits the state of one part of it.
template <typename Op, typename Arguments>
TALLOW_INLINE void store_state(const Arguments& arguments, uint32_t index, typename Op::State state) {
    if (arguments.splits == 1)
        pointer_to<typename Op::Result>(arguments.result)[index] = Op::result(state, arguments.count, arguments);
    else
        pointer_to<typename Op::State>(arguments.result)[index] = state;
}

// The same of a state without scaled squares that takes none.
template <typename Op, typename Arguments, typename Known>
TALLOW_INLINE void store_unscaled(const Arguments& arguments, uint32_t index, const Known& known) {
    if (arguments.splits == 1)
        pointer_to<typename Op::Result>(arguments.result)[index] =
            Op::result_in_units(known.result(), 1, arguments.count, arguments);
    else
        pointer_to<typename Op::State>(arguments.result)[index] = state_from(known);
}

// The state of the elements of one output and split, which a subgroup joins; that of none beyond the last row.
template <typename Op, typename T, typename Arguments>
TALLOW_INLINE typename Op::State reduce_row(const Arguments& arguments, uint32_t row, uint32_t rows, bool is_dense) {
    const uint32_t subgroup_size = arguments.subgroup_size;
    const uint32_t lane = lane_in_subgroup(subgroup_size);
    typename Op::State state = Op::identity();
    if (row < rows) {
        const uint32_t split = row / arguments.outputs;
        const uint32_t begin = split * arguments.chunk;
        const uint32_t end = arguments.length - begin < arguments.chunk ? arguments.length : begin + arguments.chunk;
        uint64_t offsets[1];
        locate_between(arguments, arguments.reduced_rank, arguments.rank, row - split * arguments.outputs, offsets);
        const T* const source = pointer_to<const T>(arguments.source) + offsets[0];
        state = is_dense ? reduce_dense<Op>(source, begin, end, lane, subgroup_size)
                         : reduce_scattered<Op>(arguments, source, begin, end, lane, subgroup_size);
    }
    return reduce_subgroup<Op>(state, subgroup_size);
}

// A subgroup of threads for each output and split: for reduced dims that are innermost, or that nothing better fits.
template <typename Op, typename T, typename Arguments> TALLOW_INLINE void reduce_rows(const Arguments& arguments) {
    using State = typename Op::State;
    const uint32_t lane = lane_in_subgroup(arguments.subgroup_size);
    const uint32_t rows_per_block = subgroups_in(block_size, arguments.subgroup_size);
    const uint32_t rows = arguments.outputs * arguments.splits;
    for (uint32_t base = block_index() * rows_per_block; base < rows; base += grid_blocks() * rows_per_block) {
        const uint32_t row = base + subgroups_in(thread_index(), arguments.subgroup_size);
        const bool is_stored = lane == 0 && row < rows;
        if constexpr (has_plain<State>) {
            const auto known =
                reduce_row<typename WithoutScaling<Op>::type, T>(arguments, row, rows, arguments.dense != 0);
            const bool is_odd = row < rows && needs_elements(known);
            if (is_stored && !is_odd)
                store_unscaled<Op>(arguments, row, known);
            // All subgroups of a wave read their rows again, because their threads exchange states.
            if (ballot(is_odd) != 0) {
                const State scaled = reduce_row<Op, T>(arguments, row, rows, false);
                if (is_stored && is_odd)
                    store_state<Op>(arguments, row, scaled);
            }
        } else {
            const State state = reduce_row<Op, T>(arguments, row, rows, arguments.dense != 0);
            if (is_stored)
                store_state<Op>(arguments, row, state);
        }
    }
}

// The quotient of two sums, each with the bits that reduce_rows gives it.
template <typename Op, typename T, typename Arguments> TALLOW_INLINE void ratio_of_sums(const Arguments& arguments) {
    const uint32_t subgroup_size = arguments.subgroup_size;
    T sums[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        const T* const source = pointer_to<const T>(i == 0 ? arguments.source : arguments.divisor);
        T sum = 0;
        if (thread_index() < subgroup_size)
            sum = reduce_dense<Op>(source, 0, arguments.length, thread_index(), subgroup_size);
        sums[i] = reduce_subgroup<Op>(sum, subgroup_size);
    }
    if (block_index() == 0 && thread_index() == 0) {
        pointer_to<T>(arguments.result)[0] = sums[0] / sums[1];
        pointer_to<T>(arguments.total)[0] = sums[1];
        pointer_to<T>(arguments.slope)[0] = T{1} / sums[1];
    }
}

static_assert(is_power_of_two<reduce_in_flight> && reduce_in_flight > 1, "states are combined pairwise");

// How many outputs side by side a thread keeps.
template <typename T> constexpr uint32_t column_pack = column_elements<sizeof(T)>;

// Row `row` of a pack of outputs, of which `left` exist. IsAligned says that every row can be read in one access:
// tested once, outside of the loop, it leaves the loads of several rows in flight together.
template <bool IsAligned, typename T, typename Arguments>
TALLOW_INLINE Pack<T, column_pack<T>> load_row_of_columns(const Arguments& arguments, const T* source, uint32_t row,
                                                          uint32_t left) {
    uint64_t offsets[1];
    locate_between(arguments, 0, arguments.reduced_rank, row, offsets);
    if constexpr (IsAligned)
        return load_pack<column_pack<T>>(source + offsets[0]);
    else
        return load_some<column_pack<T>>(source + offsets[0], 1, left);
}

// The states of outputs side by side are of as many elements each: compilers that see it divide once for all of them.
template <typename State, uint32_t N> TALLOW_INLINE void share_count(State (&states)[N]) {
    if constexpr (has_count<State>) {
#pragma unroll
        for (uint32_t i = 1; i < N; ++i)
            states[i].count = states[0].count;
    }
}

// Rows begin, begin + step, .. below end, added to the states of a pack of outputs.
template <bool IsAligned, typename Op, typename T, typename Arguments>
TALLOW_INLINE void reduce_column_pack(const Arguments& arguments, const T* source, uint32_t begin, uint32_t end,
                                      uint32_t step, uint32_t left, typename Op::State (&states)[column_pack<T>]) {
    constexpr uint32_t length = column_pack<T>;
    uint32_t row = begin;
    for (; row + (reduce_in_flight - 1) * step < end; row += reduce_in_flight * step) {
        Pack<T, length> loaded[reduce_in_flight];
#pragma unroll
        for (uint32_t r = 0; r < reduce_in_flight; ++r)
            loaded[r] = load_row_of_columns<IsAligned>(arguments, source, row + r * step, left);
        share_count(states);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            typename Op::State together = Op::element(loaded[0].values[i], row);
#pragma unroll
            for (uint32_t r = 1; r < reduce_in_flight; ++r)
                together = Op::combine(together, Op::element(loaded[r].values[i], row + r * step));
            states[i] = Op::combine(states[i], together);
        }
    }
    for (; row < end; row += step) {
        const Pack<T, length> loaded = load_row_of_columns<IsAligned>(arguments, source, row, left);
        share_count(states);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            states[i] = Op::combine(states[i], Op::element(loaded.values[i], row));
    }
}

// Those outputs of packs whose squares overflowed or underflowed, one output of each pack after the other.
template <typename Op, typename T, typename Arguments>
TALLOW_INLINE void reduce_columns_again(const Arguments& arguments, const T* source, uint32_t begin, uint32_t end,
                                        uint32_t left, uint32_t index, uint32_t odd,
                                        typename Op::State (&shared)[block_size]) {
    __shared__ uint32_t any_odd;
    if (thread_index() == 0)
        any_odd = 0;
    synchronize_block();
    if (odd != 0)
        any_odd = 1;
    synchronize_block();
    const uint32_t subgroup_size = arguments.subgroup_size;
    const uint32_t together = subgroups_in(block_size, subgroup_size);
    const uint32_t down = subgroups_in(thread_index(), subgroup_size);
    for (uint32_t i = 0; any_odd != 0 && i < column_pack<T>; ++i) {
        typename Op::State state = Op::identity();
        if (i < left)
            state = reduce_scattered<Op>(arguments, source + i, begin, end, 0, together);
        shared[thread_index()] = state;
        synchronize_block();
        for (uint32_t half = together / 2; half > 0; half /= 2) {
            if (down < half)
                shared[thread_index()] =
                    Op::combine(shared[thread_index()], shared[thread_index() + half * subgroup_size]);
            synchronize_block();
        }
        if ((odd >> i & 1) != 0)
            store_state<Op>(arguments, index + i, shared[thread_index()]);
        synchronize_block();
    }
}

// Threads across the outputs, which are dense in the innermost remaining dim; the block's other threads share the rows.
// The dims count packs of outputs: `inner` is the size of the innermost remaining dim in elements.
template <typename Op, typename T, typename Arguments> TALLOW_INLINE void reduce_columns(const Arguments& arguments) {
    using Joins = typename WithoutScaling<Op>::type;
    using State = typename Joins::State;
    constexpr uint32_t length = column_pack<T>;
    // Narrow states are exchanged in words.
    constexpr uint32_t alike = sizeof(State) < sizeof(uint32_t) ? sizeof(uint32_t) / sizeof(State) : 1;
    static_assert(length % alike == 0, "the states of a pack fill words");
    struct alignas(alike * alignof(State)) Part {
        State values[alike];
    };
    union Exchanged {
        Part parts[length / alike][block_size];
        typename Op::State scaled[block_size];
    };
    __shared__ Exchanged exchanged;
    Part(&shared)[length / alike][block_size] = exchanged.parts;
    const uint32_t subgroup_size = arguments.subgroup_size;
    const uint32_t together = subgroups_in(block_size, subgroup_size);
    const uint32_t across = lane_in_subgroup(subgroup_size);
    const uint32_t down = subgroups_in(thread_index(), subgroup_size);
    const uint32_t blocks_across = (arguments.packs + subgroup_size - 1) / subgroup_size;
    bool even_rows = true;
    for (uint32_t d = 0; d < arguments.reduced_rank; ++d)
        even_rows = even_rows && arguments.strides[d] % length == 0;
    for (uint32_t block = block_index(); block < blocks_across * arguments.splits; block += grid_blocks()) {
        const uint32_t split = block / blocks_across;
        const uint32_t pack = (block - split * blocks_across) * subgroup_size + across;
        const uint32_t begin = split * arguments.chunk;
        const uint32_t end = arguments.length - begin < arguments.chunk ? arguments.length : begin + arguments.chunk;
        State states[length];
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            states[i] = Joins::identity();
        uint64_t offsets[1];
        const uint32_t column =
            length * locate_between(arguments, arguments.reduced_rank, arguments.rank, pack, offsets);
        const uint32_t left = arguments.inner - column < length ? arguments.inner - column : length;
        const T* const source = pointer_to<const T>(arguments.source) + offsets[0];
        if (pack < arguments.packs) {
            if (even_rows && left == length && is_aligned<length>(source))
                reduce_column_pack<true, Joins>(arguments, source, begin + down, end, together, left, states);
            else
                reduce_column_pack<false, Joins>(arguments, source, begin + down, end, together, left, states);
        }
#pragma unroll
        for (uint32_t i = 0; i < length; i += alike) {
            Part part;
#pragma unroll
            for (uint32_t k = 0; k < alike; ++k)
                part.values[k] = states[i + k];
            shared[i / alike][thread_index()] = part;
        }
        synchronize_block();
        for (uint32_t half = together / 2; half > 0; half /= 2) {
            if (down < half)
#pragma unroll
                for (uint32_t i = 0; i < length / alike; ++i) {
                    Part part = shared[i][thread_index()];
                    const Part other = shared[i][thread_index() + half * subgroup_size];
#pragma unroll
                    for (uint32_t k = 0; k < alike; ++k)
                        part.values[k] = Joins::combine(part.values[k], other.values[k]);
                    shared[i][thread_index()] = part;
                }
            synchronize_block();
        }
        const uint32_t index = split * arguments.outputs + pack / arguments.packs_per_row * arguments.inner + column;
        // A bit for each output whose rows are needed again.
        [[maybe_unused]] uint32_t odd = 0;
        if (down == 0 && pack < arguments.packs) {
#pragma unroll
            for (uint32_t i = 0; i < length; i += alike) {
                const Part part = shared[i / alike][thread_index()];
#pragma unroll
                for (uint32_t k = 0; k < alike; ++k) {
                    if (i + k >= left)
                        continue;
                    if constexpr (has_plain<typename Op::State>) {
                        odd |= (needs_elements(part.values[k]) ? 1U : 0U) << (i + k);
                        store_unscaled<Op>(arguments, index + i + k, part.values[k]);
                    } else {
                        store_state<Op>(arguments, index + i + k, part.values[k]);
                    }
                }
            }
        }
        synchronize_block();
        if constexpr (has_plain<typename Op::State>)
            reduce_columns_again<Op>(arguments, source, begin + down, end, pack < arguments.packs ? left : 0, index,
                                     odd, exchanged.scaled);
    }
}

// The second pass: `subgroup_size` threads join the `splits` states of each output. Outputs side by side are read side
// by side.
template <typename Op, typename Arguments> TALLOW_INLINE void reduce_finish(const Arguments& arguments) {
    using State = typename Op::State;
    __shared__ State shared[block_size];
    const uint32_t subgroup_size = arguments.subgroup_size;
    const uint32_t together = subgroups_in(block_size, subgroup_size);
    const uint32_t across = lane_in_subgroup(together);
    const uint32_t down = subgroups_in(thread_index(), together);
    const State* const states = pointer_to<const State>(arguments.source);
    for (uint32_t base = block_index() * together; base < arguments.outputs; base += grid_blocks() * together) {
        const uint32_t output = base + across;
        State state = Op::identity();
        // Several loads are in flight at once.
        for (uint32_t first = down; first < arguments.splits; first += reduce_in_flight * subgroup_size) {
            State loaded[reduce_in_flight];
#pragma unroll
            for (uint32_t i = 0; i < reduce_in_flight; ++i) {
                const uint32_t split = first + i * subgroup_size;
                const bool is_present = split < arguments.splits && output < arguments.outputs;
                loaded[i] = is_present ? states[split * arguments.outputs + output] : Op::identity();
            }
#pragma unroll
            for (uint32_t i = 0; i < reduce_in_flight; ++i)
                state = Op::combine(state, loaded[i]);
        }
        shared[thread_index()] = state;
        synchronize_block();
        for (uint32_t half = subgroup_size / 2; half > 0; half /= 2) {
            if (down < half)
                shared[thread_index()] = Op::combine(shared[thread_index()], shared[thread_index() + half * together]);
            synchronize_block();
        }
        if (down == 0 && output < arguments.outputs)
            pointer_to<typename Op::Result>(arguments.result)[output] =
                Op::result(shared[thread_index()], arguments.count, arguments);
        synchronize_block();
    }
}

} // namespace tallow
