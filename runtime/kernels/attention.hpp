// Attention by dot products, for a few queries over many keys and for what matrix cores do not multiply: a subgroup of
// lanes takes a key at a time, each as many elements of it as one access moves, and a wave several keys.
#pragma once

#include "attention_stream.hpp"

namespace tallow {

// The attention of a block, a wave or a subgroup over its part of the keys: for each row the maximum, the total of the
// weights, and the sums of weighted values. Size is that of a head, or more.
template <typename T, uint32_t Size, uint32_t Rows> struct RowAttention {
    using Element = T;
    static constexpr uint32_t size = Size;
    static constexpr uint32_t rows = Rows;
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t lanes = Size / length < 32 ? Size / length : 32;
    static constexpr uint32_t accesses = Size / length / lanes;
    static constexpr uint32_t elements = length * accesses;
    static constexpr uint32_t subgroups = block_size / lanes;
    // The keys that a subgroup takes together.
    static constexpr uint32_t batch = Rows < 8 && accesses == 1 ? 4 : 2;
    using Stream = LineStream<T, batch, accesses>;
    static constexpr uint32_t step = batch * subgroups;
    static constexpr uint32_t shared_bytes = Stream::shared_bytes;
    static constexpr uint32_t scores = Rows * batch;
    // How many scores a lane has of these, or how many lanes have each.
    static constexpr uint32_t own = scores > lanes ? scores / lanes : 1;
    static constexpr uint32_t alike = scores > lanes ? 1 : lanes / scores;
    static constexpr uint32_t lanes_of_row = lanes / Rows;
    static_assert(lanes <= wave_size && lanes_of_row * Rows == lanes && own <= batch, "a lane has scores of one row");

    float maxima[Rows];
    float totals[Rows];
    float sums[Rows][elements];

    static TALLOW_INLINE uint32_t lane() {
        return lane_index() % lanes;
    }
    // The first of the elements of an access.
    static TALLOW_INLINE uint32_t element(uint32_t access) {
        return (access * lanes + lane()) * length;
    }

    // The part of a subgroup of the keys [begin, end). All waves make the same steps.
    template <typename Arguments>
    TALLOW_INLINE void attend(const RowsOfHead<Arguments>& rows, uint32_t first_row, uint32_t begin, uint32_t end,
                              bits128* shared) {
        const Arguments& arguments = rows.arguments;
        Stream stream;
        stream.keys = rows.template keys<T>();
        stream.values = rows.template values<T>();
        stream.key_stride = arguments.key_strides[2];
        stream.value_stride = arguments.value_strides[2];
        stream.end = end;
        stream.head_size = arguments.head_size;
        stream.element = element(0);
        stream.step = lanes * length;
        stream.subgroups = subgroups;
        const uint32_t subgroup = opaque(thread_index()) / lanes;
#if defined(TALLOW_HAS_ASYNC_COPIES)
        stream.ring = shared;
#else
        static_cast<void>(shared);
#endif
        stream.start(begin + subgroup);
        const float scale = rows.scale();
        float query[Rows][elements];
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            const bool is_row = first_row + r < rows.count;
            const T* const line = rows.template query<T>(is_row ? first_row + r : first_row);
#pragma unroll
            for (uint32_t a = 0; a < accesses; ++a) {
                const auto access = load_access(line, element(a), arguments.head_size);
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    query[r][a * length + i] = scale * to_compute(take_element<T>(access, i));
            }
#pragma unroll
            for (uint32_t i = 0; i < elements; ++i)
                sums[r][i] = 0;
        }
        // This lane's scores are of this row, and of the keys of the batch from this one on.
        const uint32_t first_score = lane() * own / alike;
        const uint32_t row = first_row + first_score / batch;
        const uint32_t first_of_batch = first_score % batch;
        const uint32_t seen = rows.seen(row) < end ? rows.seen(row) : end;
        // Without a mask it is no address. A choice of nullptr would hide from compilers that it is in global memory.
        const T* const mask = rows.template mask<T>(row < rows.count ? row : first_row);
        const uint32_t first_lane_of_subgroup = lane_index() - lane();
        float maximum = -infinity(float{});
        float total = 0;
        for (uint32_t first = begin; first < end; first += batch * subgroups) {
            const uint32_t key = first + subgroup;
            typename Stream::Lines lines;
            stream.take_keys(key, lines);
            float weights[scores];
#pragma unroll
            for (uint32_t b = 0; b < batch; ++b) {
#pragma unroll
                for (uint32_t r = 0; r < Rows; ++r)
                    weights[r * batch + b] = 0;
#pragma unroll
                for (uint32_t i = 0; i < elements; ++i) {
                    const float x = to_compute(take_element<T>(lines[b][i / length], i % length));
#pragma unroll
                    for (uint32_t r = 0; r < Rows; ++r)
                        weights[r * batch + b] = multiply_add(query[r][i], x, weights[r * batch + b]);
                }
            }
            butterfly_reduce<lanes, scores>(weights);
            float maximum_now = maximum;
#pragma unroll
            for (uint32_t i = 0; i < own; ++i) {
                const uint32_t key_index = key + (first_of_batch + i) * subgroups;
                if (arguments.mask != 0)
                    weights[i] = multiply_add(rows.masked(mask, key_index), log2_e, weights[i]);
                weights[i] = key_index < seen ? weights[i] : -infinity(float{});
                maximum_now = larger(maximum_now, weights[i]);
            }
#pragma unroll
            for (uint32_t partner = alike; partner < lanes_of_row; partner *= 2)
                maximum_now = larger(maximum_now, shuffle_xor(maximum_now, partner));
            const float factor = approx_exp2(maximum - finite_maximum(maximum_now));
            maximum = maximum_now;
            total *= factor;
#pragma unroll
            for (uint32_t i = 0; i < own; ++i) {
                weights[i] = approx_exp2(weights[i] - finite_maximum(maximum));
                total += weights[i];
            }
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                const float factor_of_row = shuffle_from(factor, first_lane_of_subgroup + r * lanes_of_row);
#pragma unroll
                for (uint32_t i = 0; i < elements; ++i)
                    sums[r][i] *= factor_of_row;
            }
            stream.take_values(key, lines);
#pragma unroll
            for (uint32_t b = 0; b < batch; ++b) {
                float weight[Rows];
#pragma unroll
                for (uint32_t r = 0; r < Rows; ++r)
                    weight[r] = shuffle_from(weights[(r * batch + b) % own],
                                             first_lane_of_subgroup + (r * batch + b) / own * alike);
#pragma unroll
                for (uint32_t i = 0; i < elements; ++i) {
                    const float x = to_compute(take_element<T>(lines[b][i / length], i % length));
#pragma unroll
                    for (uint32_t r = 0; r < Rows; ++r)
                        sums[r][i] = multiply_add(weight[r], x, sums[r][i]);
                }
            }
        }
#pragma unroll
        for (uint32_t partner = alike; partner < lanes_of_row; partner *= 2)
            total += shuffle_xor(total, partner);
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            maxima[r] = shuffle_from(maximum, first_lane_of_subgroup + r * lanes_of_row);
            totals[r] = shuffle_from(total, first_lane_of_subgroup + r * lanes_of_row);
        }
    }

    // Joins the subgroups of each wave, which all get the same.
    TALLOW_INLINE void combine_subgroups() {
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r)
#pragma unroll
            for (uint32_t partner = lanes; partner < wave_size; partner *= 2) {
                const float other = shuffle_xor(maxima[r], partner);
                const float maximum = larger(maxima[r], other);
                const float factor = approx_exp2(maxima[r] - finite_maximum(maximum));
                const float other_factor = approx_exp2(other - finite_maximum(maximum));
                maxima[r] = maximum;
                totals[r] = totals[r] * factor + shuffle_xor(totals[r], partner) * other_factor;
#pragma unroll
                for (uint32_t i = 0; i < elements; ++i)
                    sums[r][i] = sums[r][i] * factor + shuffle_xor(sums[r][i], partner) * other_factor;
            }
    }
    // Hands on what the wave has of all rows, and of as many as there are lines from the first one on.
    TALLOW_INLINE void hand_on_state(float (&to_maxima)[Rows], float (&to_totals)[Rows]) const {
        if (lane_index() == 0) {
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                to_maxima[r] = maxima[r];
                to_totals[r] = totals[r];
            }
        }
    }
    template <uint32_t Count, uint32_t Length>
    TALLOW_INLINE void hand_on_sums(float (&lines)[Count][Length], uint32_t first) const {
        if (lane_index() >= lanes)
            return;
#pragma unroll
        for (uint32_t r = 0; r < Count; ++r)
#pragma unroll
            for (uint32_t i = 0; i < elements; i += 4) {
                const float(&own)[elements] = sums[first + r];
                store_pack(lines[r] + element(i / length) + i % length,
                           Pack<float, 4>{own[i], own[i + 1], own[i + 2], own[i + 3]});
            }
    }
};

// What sums of weighted values are multiplied by to be means. The total is 0 or from 1 on, so that its inverse takes no
// subroutine.
TALLOW_INLINE float share_of(float total) {
    return total == 0 ? 0.0f : divide_positive(1.0f, total);
}

// What a thread knows of a row after some of the keys, for some elements of the head.
struct PartialAttention {
    static constexpr uint32_t elements = 4;
    Pack<float, elements> sums{};
    float maximum = -infinity(float{});
    float total = 0;

    template <uint32_t Count> TALLOW_INLINE void add(const PartialAttention (&others)[Count]) {
        float maximum_of_all = maximum;
#pragma unroll
        for (uint32_t k = 0; k < Count; ++k)
            maximum_of_all = larger(maximum_of_all, others[k].maximum);
        const float subtracted = finite_maximum(maximum_of_all);
        const float factor = approx_exp2(maximum - subtracted);
        maximum = maximum_of_all;
        total *= factor;
#pragma unroll
        for (uint32_t i = 0; i < elements; ++i)
            sums.values[i] *= factor;
#pragma unroll
        for (uint32_t k = 0; k < Count; ++k) {
            const float other_factor = approx_exp2(others[k].maximum - subtracted);
            total = multiply_add(other_factor, others[k].total, total);
#pragma unroll
            for (uint32_t i = 0; i < elements; ++i)
                sums.values[i] = multiply_add(other_factor, others[k].sums.values[i], sums.values[i]);
        }
    }
    // Those of a line of the result from `element` on.
    template <typename T> TALLOW_INLINE void store_means(T* line, uint32_t element, uint32_t size) const {
        const float share = share_of(total);
        Pack<T, elements> pack;
#pragma unroll
        for (uint32_t i = 0; i < elements; ++i)
            pack.values[i] = convert<T>(share == 0 ? 0.0f : sums.values[i] * share);
        store_guarded<elements>(line, element, size, pack);
    }
};

// Joins the splits of the rows [first_row, end_row), which blocks side by side have, by the last of these and always in
// the same order, `Together` of them loaded at once. `shared` is free, and has space for the parts that each thread
// combines.
template <typename T, uint32_t Size, uint32_t Together = 8, typename Arguments>
TALLOW_INLINE void join_splits(const RowsOfHead<Arguments>& rows, uint32_t first_row, uint32_t end_row, uint32_t splits,
                               bits128* shared) {
    const Arguments& arguments = rows.arguments;
    uint32_t* const counter = pointer_to<uint32_t>(arguments.counters) + block_index() / arguments.splits;
    if (!is_last_block(counter, splits, reinterpret_cast<uint32_t*>(shared)))
        return;
    // Not known before, so that no register keeps what follows from it while keys are attended to.
    const uint32_t thread = opaque(thread_index());
    constexpr uint32_t in_line = Size / PartialAttention::elements;
    constexpr uint32_t subgroups = block_size / in_line;
    PartialAttention* const partials = reinterpret_cast<PartialAttention*>(shared);
    // So many subgroups share the splits of a row.
    uint32_t sharing = subgroups;
    while (sharing > 1 && sharing * (end_row - first_row) > subgroups)
        sharing /= 2;
    const uint32_t first_split = thread / in_line % sharing;
    const uint32_t element = thread % in_line * PartialAttention::elements;
#pragma unroll 1
    for (uint32_t first = first_row; first < end_row; first += subgroups / sharing) {
        const uint32_t row = first + thread / in_line / sharing;
        const bool is_present = row < end_row && element < arguments.head_size;
        PartialAttention own;
        if (is_present) {
            const PartsOfRow<Size> parts(rows, row, 0);
#pragma unroll 1
            for (uint32_t split = first_split; split < splits; split += Together * sharing) {
                PartialAttention loaded[Together];
#pragma unroll
                for (uint32_t k = 0; k < Together; ++k) {
                    const uint32_t of = split + k * sharing;
                    if (of < splits)
                        loaded[k] = {load_pack<PartialAttention::elements>(parts.sums + of * Size + element),
                                     parts.state[2 * of], parts.state[2 * of + 1]};
                }
                own.add(loaded);
            }
        }
        partials[thread] = own;
        synchronize_block();
        if (is_present && first_split == 0) {
            for (uint32_t k = 1; k < sharing; ++k) {
                const PartialAttention others[1] = {partials[thread + k * in_line]};
                own.add(others);
            }
            own.store_means(rows.template result<T>(row), element, arguments.head_size);
            if (element == 0)
                rows.note_sum(row, own.maximum, own.total);
        }
        synchronize_block();
    }
}

// What the waves of a block join: all rows, or as many of them at once as threads can.
template <typename Attention> struct WavePartials {
    static constexpr uint32_t count =
        Attention::rows < 1024 / Attention::size ? Attention::rows : 1024 / Attention::size;
    // Lanes that write to several lines meet different banks.
    float sums[waves_per_block][count][Attention::size + 4];
    float maxima[waves_per_block][Attention::rows];
    float totals[waves_per_block][Attention::rows];
};

// One split of the keys for some rows, by a block. `shared` has space for keys and values, and then for what waves
// combine.
template <typename Attention, typename Arguments>
TALLOW_INLINE void attend_split(const RowsOfHead<Arguments>& rows, uint32_t first_row, uint32_t split, uint32_t splits,
                                bits128* shared) {
    using Partials = WavePartials<Attention>;
    auto& partials = *reinterpret_cast<Partials*>(shared);
    const Arguments& arguments = rows.arguments;
    const uint32_t left = rows.count - first_row;
    const uint32_t seen = rows.seen(first_row + (Attention::rows < left ? Attention::rows : left) - 1);
    const KeyRange range(seen, Attention::step, split, splits);
    Attention attention;
    attention.attend(rows, first_row, range.begin, range.end, shared);
    attention.combine_subgroups();
    if constexpr (Attention::shared_bytes > 0) {
        Attention::Stream::finish();
        synchronize_block();
    }
    attention.hand_on_state(partials.maxima[wave_index()], partials.totals[wave_index()]);
#pragma unroll
    for (uint32_t first = 0; first < Attention::rows; first += Partials::count) {
        attention.hand_on_sums(partials.sums[wave_index()], first);
        synchronize_block();
        constexpr uint32_t in_line = Attention::size / PartialAttention::elements;
        static_assert(Partials::count * in_line <= block_size, "a thread joins once");
        const uint32_t r = thread_index() / in_line;
        const uint32_t row = first_row + first + r;
        const uint32_t element = thread_index() % in_line * PartialAttention::elements;
        if (r < Partials::count && row < rows.count) {
            PartialAttention of_waves[waves_per_block];
#pragma unroll
            for (uint32_t wave = 0; wave < waves_per_block; ++wave)
                of_waves[wave] = {load_pack<PartialAttention::elements>(partials.sums[wave][r] + element),
                                  partials.maxima[wave][first + r], partials.totals[wave][first + r]};
            PartialAttention own;
            own.add(of_waves);
            if (splits == 1) {
                own.store_means(rows.template result<typename Attention::Element>(row), element, arguments.head_size);
                if (element == 0)
                    rows.note_sum(row, own.maximum, own.total);
            } else {
                const PartsOfRow<Attention::size> parts(rows, row, split);
                store_pack(parts.sums + element, own.sums);
                if (element == 0)
                    parts.set_state(own.maximum, own.total);
            }
        }
        synchronize_block();
    }
}

// A block takes at most `max_rows` rows, and one split of the keys.
template <typename Attention, typename Arguments>
TALLOW_INLINE void attend_rows(const Arguments& arguments, uint32_t max_rows = Attention::rows) {
    constexpr uint32_t shared_bytes =
        largest<Attention::shared_bytes, sizeof(WavePartials<Attention>), sizeof(PartialAttention) * block_size>;
    __shared__ bits128 shared[shared_bytes / sizeof(bits128)];
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + max_rows - 1) / max_rows;
    const uint32_t group = block_index() / arguments.splits;
    const RowsOfHead<Arguments> rows(arguments, group / parts);
    const uint32_t first_row = group % parts * max_rows;
    const uint32_t end_row = count - first_row > max_rows ? first_row + max_rows : count;
    const uint32_t split = block_index() % arguments.splits;
    const uint32_t splits = used_splits(rows.seen(end_row - 1), arguments.splits);
    if (split >= splits)
        return;
#pragma unroll 1
    for (uint32_t taken = 0; taken < max_rows; taken += Attention::rows)
        if (first_row + taken < end_row)
            attend_split<Attention>(rows, first_row + taken, split, splits, shared);
    // Many subgroups share the splits of one row.
    if (splits > 1)
        join_splits<typename Attention::Element, Attention::size, Attention::rows == 1 ? 4 : 8>(
            rows, first_row, end_row, splits, shared);
}

} // namespace tallow
