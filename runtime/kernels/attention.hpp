// Attention by dot products, for a few queries over many keys and for what matrix cores do not multiply: a team of
// lanes takes a key at a time, each as many elements of it as one access moves, and a wave several keys.
#pragma once

#include "async_copy.hpp"
#include "index.hpp"
#include "math.hpp"
#include "reduce.hpp"

namespace tallow {

constexpr float log2_e = 1.44269504f;
constexpr float ln_2 = 0.693147181f;

// The larger one; a NaN loses, and is found in the sums.
TALLOW_INLINE float larger(float x, float y) {
#if defined(TALLOW_NVIDIA)
    float result;
    asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
#else
    return __builtin_fmaxf(x, y);
#endif
}

// What is subtracted from the scores of a row: nothing where no key is seen, so that their weights are 0.
TALLOW_INLINE float finite_maximum(float maximum) {
    return maximum == -infinity(float{}) ? 0.0f : maximum;
}

// The rows of one batch and key head.
template <typename Arguments> struct RowsOfHead {
    const Arguments& arguments;
    uint32_t batch;
    uint32_t head;
    uint32_t count;
    uint32_t length; // the keys that are there

    TALLOW_INLINE RowsOfHead(const Arguments& arguments, uint32_t place)
        : arguments(arguments), batch(place / arguments.heads), head(place % arguments.heads),
          count(arguments.queries * arguments.group), length(arguments.keys) {
        if (arguments.indexes != 0) {
            const int64_t read = read_row(arguments, batch * arguments.index_stride);
            length = read == no_row ? 0 : static_cast<uint32_t>(read);
        }
    }
    // How many keys a row sees, which are the first ones; none where it is no row.
    TALLOW_INLINE uint32_t seen(uint32_t row) const {
        if (row >= count)
            return 0;
        if (arguments.is_causal == 0)
            return length;
        const int64_t last = int64_t{row / arguments.group} + length - arguments.queries;
        return last < 0 ? 0 : static_cast<uint32_t>(last) + 1;
    }
    // What a score is multiplied by to be an exponent of two.
    TALLOW_INLINE float scale() const {
        return from_bits<float>(arguments.scale) * log2_e;
    }
    // Which rows these are of all.
    TALLOW_INLINE uint64_t place() const {
        return uint64_t{batch} * arguments.heads + head;
    }
    TALLOW_INLINE uint64_t query_head(uint32_t row) const {
        return uint64_t{head} * arguments.group + row % arguments.group;
    }
    template <typename T> TALLOW_INLINE const T* query(uint32_t row) const {
        const uint64_t(&strides)[3] = arguments.query_strides;
        return pointer_to<const T>(arguments.query) + batch * strides[0] + query_head(row) * strides[1] +
               row / arguments.group * strides[2];
    }
    template <typename T> TALLOW_INLINE const T* mask(uint32_t row) const {
        const uint64_t(&strides)[4] = arguments.mask_strides;
        return pointer_to<const T>(arguments.mask) + batch * strides[0] + query_head(row) * strides[1] +
               row / arguments.group * strides[2];
    }
    // What the line of a mask adds to the score of a key, anything for what is no key.
    template <typename T> TALLOW_INLINE float masked(const T* line, uint32_t key) const {
        const uint32_t place = key < arguments.keys ? key : arguments.keys - 1;
        return to_compute(line[place * arguments.mask_strides[3]]);
    }
    template <typename T> TALLOW_INLINE const T* keys() const {
        return pointer_to<const T>(arguments.key) + batch * arguments.key_strides[0] + head * arguments.key_strides[1];
    }
    template <typename T> TALLOW_INLINE const T* values() const {
        return pointer_to<const T>(arguments.value) + batch * arguments.value_strides[0] +
               head * arguments.value_strides[1];
    }
    // Where a row is in what is contiguous, by lines.
    TALLOW_INLINE uint64_t line(uint32_t row) const {
        const uint64_t heads = uint64_t{arguments.heads} * arguments.group;
        return (batch * heads + query_head(row)) * arguments.queries + row / arguments.group;
    }
    template <typename T> TALLOW_INLINE T* result(uint32_t row) const {
        return pointer_to<T>(arguments.result) + line(row) * arguments.head_size;
    }
    // Notes, if it is asked for, the logarithm of the sum of what a row's weights are made of, which is total *
    // 2^maximum; infinity where that is 0.
    TALLOW_INLINE void note_sum(uint32_t row, float maximum, float total) const {
        if (arguments.logsumexp != 0)
            pointer_to<float>(arguments.logsumexp)[line(row)] =
                total == 0 ? infinity(float{}) : multiply_add(maximum, ln_2, log(total));
    }
};

// The keys of one split: whole steps, distributed as evenly as possible.
struct KeyRange {
    uint32_t begin;
    uint32_t end;

    TALLOW_INLINE KeyRange(uint32_t seen, uint32_t step, uint32_t split, uint32_t splits) {
        const uint32_t steps = (seen + step - 1) / step;
        // The first splits have one more where there are some left.
        const uint32_t each = steps / splits;
        const uint32_t left = steps - each * splits;
        begin = (split * each + (split < left ? split : left)) * step;
        const uint32_t next = begin + (each + (split < left)) * step;
        end = next < seen ? next : seen;
    }
};

// The splits that attend to so many keys: where the device alone knows how many there are, a launch is for as many as
// there may be, and to join blocks would take longer than few keys do.
TALLOW_INLINE uint32_t used_splits(uint32_t seen, uint32_t splits) {
    return seen <= few_keys ? 1 : splits;
}

// Where one split of a row leaves the weighted sums of values, and the maximum and the total of the weights. Size is
// that of a head, or more: sums are lines of so many.
template <uint32_t Size> struct PartsOfRow {
    float* sums;
    float* state;

    template <typename Rows> TALLOW_INLINE PartsOfRow(const Rows& rows, uint32_t row, uint32_t split) {
        const auto& arguments = rows.arguments;
        const uint64_t lines = uint64_t{arguments.batches} * arguments.heads * rows.count;
        const uint64_t number = (rows.place() * rows.count + row) * arguments.splits + split;
        sums = pointer_to<float>(arguments.parts) + number * Size;
        state = pointer_to<float>(arguments.parts) + lines * arguments.splits * Size + 2 * number;
    }
    TALLOW_INLINE void set_state(float maximum, float total) const {
        state[0] = maximum;
        state[1] = total;
    }
};

// An access of a line from element `first` on, of which `count` exist; those that begin behind them are 0.
template <typename T> TALLOW_INLINE Registers<access_bytes> load_access(const T* line, uint32_t first, uint32_t count) {
    Registers<access_bytes> access{};
    if (first < count)
        access = load_registers<access_bytes>(line + first);
    return access;
}

// Adds up each of `Count` sums over a team of lanes. Where there are several, each lane gets those for which it then is
// there: those from lane * Count / Lanes on. It takes few shuffles to halve the sums rather than give all to everybody.
template <uint32_t Lanes, uint32_t Count, uint32_t Total> TALLOW_INLINE void share_sums(float (&sums)[Total]) {
    if constexpr (Lanes > 1 && Count > 1) {
        constexpr uint32_t half = Count / 2;
        const bool is_upper = (lane_index() & Lanes / 2) != 0;
#pragma unroll
        for (uint32_t i = 0; i < half; ++i) {
            const float sent = is_upper ? sums[i] : sums[i + half];
            sums[i] = (is_upper ? sums[i + half] : sums[i]) + shuffle_xor(sent, Lanes / 2);
        }
        share_sums<Lanes / 2, half>(sums);
    } else if constexpr (Lanes > 1) {
        sums[0] += shuffle_xor(sums[0], Lanes / 2);
        share_sums<Lanes / 2, 1>(sums);
    }
}

// The accesses of a thread to keys and values, alternately: `Batch` lines, `teams` apart, and some accesses of each.
// The first access begins at `element`, each other one `step` further. What is behind `end`, or behind the head, is 0.
template <typename T, uint32_t Batch, uint32_t Accesses> struct LineStream {
    using Lines = Registers<access_bytes>[Batch][Accesses];

    const T* keys;
    const T* values;
    uint64_t key_stride;
    uint64_t value_stride;
    uint32_t end;
    uint32_t head_size;
    uint32_t element;
    uint32_t step;
    uint32_t teams;

#if defined(TALLOW_HAS_ASYNC_COPIES)
    // Each thread has slots of its own, of which all but one are on their way.
    static constexpr uint32_t accesses = Batch * Accesses;
    static constexpr uint32_t slots = accesses > 2 ? 3 : 5;
    static constexpr uint32_t shared_bytes = slots * accesses * access_bytes * block_size;
    bits128* ring;
    uint32_t slot = slots - 1;

    TALLOW_INLINE void start(uint32_t first) {
#pragma unroll
        for (uint32_t ahead = 1; ahead < slots; ahead += 2) {
            begin(keys, key_stride, first + (ahead - 1) / 2 * Batch * teams, ahead);
            begin(values, value_stride, first + (ahead - 1) / 2 * Batch * teams, ahead + 1);
        }
    }
    TALLOW_INLINE void take_keys(uint32_t first, Lines& lines) {
        take(keys, key_stride, first, lines);
    }
    TALLOW_INLINE void take_values(uint32_t first, Lines& lines) {
        take(values, value_stride, first, lines);
    }
    // Behind the last lines the slots are still being cleared.
    static TALLOW_INLINE void finish() {
        await_copies<0>();
    }

  private:
    TALLOW_INLINE bits128* place(uint32_t ahead, uint32_t access) const {
        return ring + ((slot + ahead) % slots * accesses + access) * block_size + thread_index();
    }
    TALLOW_INLINE void begin(const T* from, uint64_t stride, uint32_t first, uint32_t ahead) {
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i) {
            const uint32_t line = first + i / Accesses * teams;
            const uint32_t place_of_access = element + i % Accesses * step;
            const bool is_there = line < end && place_of_access < head_size;
            copy_async(place(ahead, i), from + (is_there ? line * stride + place_of_access : 0),
                       is_there ? access_bytes : 0);
        }
        commit_copies();
    }
    TALLOW_INLINE void take(const T* from, uint64_t stride, uint32_t first, Lines& lines) {
        slot = (slot + 1) % slots;
        await_copies<slots - 2>();
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i)
            lines[i / Accesses][i % Accesses] = load_registers<access_bytes>(place(0, i));
        begin(from, stride, first + (slots - 1) / 2 * Batch * teams, slots - 1);
    }
#else
    static constexpr uint32_t shared_bytes = 0;
    Lines loaded;

    TALLOW_INLINE void start(uint32_t) {
    }
    TALLOW_INLINE void take_keys(uint32_t first, Lines& lines) {
        load(keys, key_stride, first, lines);
        load(values, value_stride, first, loaded);
    }
    TALLOW_INLINE void take_values(uint32_t, Lines& lines) {
#pragma unroll
        for (uint32_t b = 0; b < Batch; ++b)
#pragma unroll
            for (uint32_t a = 0; a < Accesses; ++a)
                lines[b][a] = loaded[b][a];
    }

  private:
    TALLOW_INLINE void load(const T* from, uint64_t stride, uint32_t first, Lines& lines) {
#pragma unroll
        for (uint32_t b = 0; b < Batch; ++b) {
            const uint32_t line = first + b * teams;
#pragma unroll
            for (uint32_t a = 0; a < Accesses; ++a)
                lines[b][a] = load_access(from + line * stride, element + a * step, line < end ? head_size : 0);
        }
    }
#endif
};

// What a block, a wave or a team has made of its part of the keys: for each row the maximum, the total of the weights,
// and the sums of weighted values. Size is that of a head, or more.
template <typename T, uint32_t Size, uint32_t Rows> struct RowAttention {
    using Element = T;
    static constexpr uint32_t size = Size;
    static constexpr uint32_t rows = Rows;
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t lanes = Size / length < 32 ? Size / length : 32;
    static constexpr uint32_t accesses = Size / length / lanes;
    static constexpr uint32_t elements = length * accesses;
    static constexpr uint32_t teams = block_size / lanes;
    // The keys that a team takes together.
    static constexpr uint32_t batch = Rows < 8 && accesses == 1 ? 4 : 2;
    using Stream = LineStream<T, batch, accesses>;
    static constexpr uint32_t step = batch * teams;
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

    // The part of a team of the keys [begin, end). All waves make the same steps.
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
        stream.teams = teams;
        const uint32_t team = opaque(thread_index()) / lanes;
#if defined(TALLOW_HAS_ASYNC_COPIES)
        stream.ring = shared;
#else
        static_cast<void>(shared);
#endif
        stream.start(begin + team);
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
        const uint32_t place = lane() * own / alike;
        const uint32_t row = first_row + place / batch;
        const uint32_t first_of_batch = place % batch;
        const uint32_t seen = rows.seen(row) < end ? rows.seen(row) : end;
        // Without a mask it is no place. A choice of nullptr would hide from compilers that it is in global memory.
        const T* const mask = rows.template mask<T>(row < rows.count ? row : first_row);
        const uint32_t team_lane = lane_index() - lane();
        float maximum = -infinity(float{});
        float total = 0;
        for (uint32_t first = begin; first < end; first += batch * teams) {
            const uint32_t key = first + team;
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
            share_sums<lanes, scores>(weights);
            float maximum_now = maximum;
#pragma unroll
            for (uint32_t i = 0; i < own; ++i) {
                const uint32_t place_of_key = key + (first_of_batch + i) * teams;
                if (arguments.mask != 0)
                    weights[i] = multiply_add(rows.masked(mask, place_of_key), log2_e, weights[i]);
                weights[i] = place_of_key < seen ? weights[i] : -infinity(float{});
                maximum_now = larger(maximum_now, weights[i]);
            }
#pragma unroll
            for (uint32_t partner = alike; partner < lanes_of_row; partner *= 2)
                maximum_now = larger(maximum_now, shuffle_xor(maximum_now, partner));
            const float factor = rough_exp2(maximum - finite_maximum(maximum_now));
            maximum = maximum_now;
            total *= factor;
#pragma unroll
            for (uint32_t i = 0; i < own; ++i) {
                weights[i] = rough_exp2(weights[i] - finite_maximum(maximum));
                total += weights[i];
            }
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                const float factor_of_row = shuffle_from(factor, team_lane + r * lanes_of_row);
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
                    weight[r] = shuffle_from(weights[(r * batch + b) % own], team_lane + (r * batch + b) / own * alike);
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
            maxima[r] = shuffle_from(maximum, team_lane + r * lanes_of_row);
            totals[r] = shuffle_from(total, team_lane + r * lanes_of_row);
        }
    }

    // Joins the teams of each wave, which all get the same.
    TALLOW_INLINE void join_teams() {
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r)
#pragma unroll
            for (uint32_t partner = lanes; partner < wave_size; partner *= 2) {
                const float other = shuffle_xor(maxima[r], partner);
                const float maximum = larger(maxima[r], other);
                const float factor = rough_exp2(maxima[r] - finite_maximum(maximum));
                const float other_factor = rough_exp2(other - finite_maximum(maximum));
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
                store_whole(lines[r] + element(i / length) + i % length,
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
struct JoinedParts {
    static constexpr uint32_t elements = 4;
    Pack<float, elements> sums{};
    float maximum = -infinity(float{});
    float total = 0;

    template <uint32_t Count> TALLOW_INLINE void add(const JoinedParts (&others)[Count]) {
        float maximum_of_all = maximum;
#pragma unroll
        for (uint32_t k = 0; k < Count; ++k)
            maximum_of_all = larger(maximum_of_all, others[k].maximum);
        const float subtracted = finite_maximum(maximum_of_all);
        const float factor = rough_exp2(maximum - subtracted);
        maximum = maximum_of_all;
        total *= factor;
#pragma unroll
        for (uint32_t i = 0; i < elements; ++i)
            sums.values[i] *= factor;
#pragma unroll
        for (uint32_t k = 0; k < Count; ++k) {
            const float other_factor = rough_exp2(others[k].maximum - subtracted);
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
// the same order, `Together` of them loaded at once. `shared` is free, and has room for what each thread has joined.
template <typename T, uint32_t Size, uint32_t Together = 8, typename Arguments>
TALLOW_INLINE void join_splits(const RowsOfHead<Arguments>& rows, uint32_t first_row, uint32_t end_row, uint32_t splits,
                               bits128* shared) {
    const Arguments& arguments = rows.arguments;
    uint32_t* const counter = pointer_to<uint32_t>(arguments.counters) + block_index() / arguments.splits;
    if (!is_last_block(counter, splits, reinterpret_cast<uint32_t*>(shared)))
        return;
    // Not known before, so that no register keeps what follows from it while keys are attended to.
    const uint32_t thread = opaque(thread_index());
    constexpr uint32_t in_line = Size / JoinedParts::elements;
    constexpr uint32_t teams = block_size / in_line;
    JoinedParts* const joined = reinterpret_cast<JoinedParts*>(shared);
    // So many teams share the splits of a row.
    uint32_t sharing = teams;
    while (sharing > 1 && sharing * (end_row - first_row) > teams)
        sharing /= 2;
    const uint32_t place = thread / in_line % sharing;
    const uint32_t element = thread % in_line * JoinedParts::elements;
#pragma unroll 1
    for (uint32_t first = first_row; first < end_row; first += teams / sharing) {
        const uint32_t row = first + thread / in_line / sharing;
        const bool is_there = row < end_row && element < arguments.head_size;
        JoinedParts own;
        if (is_there) {
            const PartsOfRow<Size> parts(rows, row, 0);
#pragma unroll 1
            for (uint32_t split = place; split < splits; split += Together * sharing) {
                JoinedParts loaded[Together];
#pragma unroll
                for (uint32_t k = 0; k < Together; ++k) {
                    const uint32_t of = split + k * sharing;
                    if (of < splits)
                        loaded[k] = {load_whole<JoinedParts::elements>(parts.sums + of * Size + element),
                                     parts.state[2 * of], parts.state[2 * of + 1]};
                }
                own.add(loaded);
            }
        }
        joined[thread] = own;
        synchronize_block();
        if (is_there && place == 0) {
            for (uint32_t k = 1; k < sharing; ++k) {
                const JoinedParts others[1] = {joined[thread + k * in_line]};
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
template <typename Attention> struct JoinedWaves {
    static constexpr uint32_t count =
        Attention::rows < 1024 / Attention::size ? Attention::rows : 1024 / Attention::size;
    // Lanes that write to several lines meet different banks.
    float sums[waves_per_block][count][Attention::size + 4];
    float maxima[waves_per_block][Attention::rows];
    float totals[waves_per_block][Attention::rows];
};

// One split of the keys for some rows, by a block. `shared` has room for keys and values, and then for what is joined.
template <typename Attention, typename Arguments>
TALLOW_INLINE void attend_split(const RowsOfHead<Arguments>& rows, uint32_t first_row, uint32_t split, uint32_t splits,
                                bits128* shared) {
    using Joined = JoinedWaves<Attention>;
    auto& joined = *reinterpret_cast<Joined*>(shared);
    const Arguments& arguments = rows.arguments;
    const uint32_t left = rows.count - first_row;
    const uint32_t seen = rows.seen(first_row + (Attention::rows < left ? Attention::rows : left) - 1);
    const KeyRange range(seen, Attention::step, split, splits);
    Attention attention;
    attention.attend(rows, first_row, range.begin, range.end, shared);
    attention.join_teams();
    if constexpr (Attention::shared_bytes > 0) {
        Attention::Stream::finish();
        synchronize_block();
    }
    attention.hand_on_state(joined.maxima[wave_index()], joined.totals[wave_index()]);
#pragma unroll
    for (uint32_t first = 0; first < Attention::rows; first += Joined::count) {
        attention.hand_on_sums(joined.sums[wave_index()], first);
        synchronize_block();
        constexpr uint32_t in_line = Attention::size / JoinedParts::elements;
        static_assert(Joined::count * in_line <= block_size, "a thread joins once");
        const uint32_t r = thread_index() / in_line;
        const uint32_t row = first_row + first + r;
        const uint32_t element = thread_index() % in_line * JoinedParts::elements;
        if (r < Joined::count && row < rows.count) {
            JoinedParts of_waves[waves_per_block];
#pragma unroll
            for (uint32_t wave = 0; wave < waves_per_block; ++wave)
                of_waves[wave] = {load_whole<JoinedParts::elements>(joined.sums[wave][r] + element),
                                  joined.maxima[wave][first + r], joined.totals[wave][first + r]};
            JoinedParts own;
            own.add(of_waves);
            if (splits == 1) {
                own.store_means(rows.template result<typename Attention::Element>(row), element, arguments.head_size);
                if (element == 0)
                    rows.note_sum(row, own.maximum, own.total);
            } else {
                const PartsOfRow<Attention::size> parts(rows, row, split);
                store_whole(parts.sums + element, own.sums);
                if (element == 0)
                    parts.set_state(own.maximum, own.total);
            }
        }
        synchronize_block();
    }
}

// A block takes at most `most_rows` rows, and one split of the keys.
template <typename Attention, typename Arguments>
TALLOW_INLINE void attend_rows(const Arguments& arguments, uint32_t most_rows = Attention::rows) {
    constexpr uint32_t shared_bytes =
        largest<Attention::shared_bytes, sizeof(JoinedWaves<Attention>), sizeof(JoinedParts) * block_size>;
    __shared__ bits128 shared[shared_bytes / sizeof(bits128)];
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + most_rows - 1) / most_rows;
    const uint32_t group = block_index() / arguments.splits;
    const RowsOfHead<Arguments> rows(arguments, group / parts);
    const uint32_t first_row = group % parts * most_rows;
    const uint32_t end_row = count - first_row > most_rows ? first_row + most_rows : count;
    const uint32_t split = block_index() % arguments.splits;
    const uint32_t splits = used_splits(rows.seen(end_row - 1), arguments.splits);
    if (split >= splits)
        return;
#pragma unroll 1
    for (uint32_t taken = 0; taken < most_rows; taken += Attention::rows)
        if (first_row + taken < end_row)
            attend_split<Attention>(rows, first_row + taken, split, splits, shared);
    // Many teams share the splits of one row.
    if (splits > 1)
        join_splits<typename Attention::Element, Attention::size, Attention::rows == 1 ? 4 : 8>(
            rows, first_row, end_row, splits, shared);
}

} // namespace tallow
