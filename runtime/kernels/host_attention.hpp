// Attention on the host: scores of some queries and keys at a time, which never leave the cache.
#pragma once

#include "host_indexes.hpp"
#include "math.hpp"
#include "pair_product.hpp"

namespace tallow {

// The queries and the keys whose scores are computed at once.
constexpr uint32_t attended_rows = 64;
constexpr uint32_t attended_keys = 64;
// The largest length of rows, which are padded with zeros to full strips.
constexpr uint32_t max_size = tile_terms;
constexpr uint32_t key_stride = Tile<float>::lhs_stride;
// Up to this many queries do not fill the lanes of a vector: then the lanes hold keys.
constexpr uint32_t few_queries = 4;
constexpr uint32_t total_lanes = vector_length<float>;
static_assert(attended_keys % total_lanes == 0);
static_assert(attended_rows % Tile<float>::strip_columns == 0);

// Some queries that share keys, and their results so far. Their numbers are stored query by query innermost, but
// those of few queries and the results are stored row by row.
struct Attended {
    float queries[max_size * attended_rows];
    float results[attended_rows * max_size];
    float largest[attended_rows];
    float totals[attended_rows];
    // By which the next keys rescale the results.
    float factors[attended_rows];
    // How many of all keys a query sees, and of those at hand.
    uint64_t seen[attended_rows];
    uint32_t seen_here[attended_rows];
    // Of the keys at hand. Scores become weights.
    float keys[attended_keys * key_stride];
    float values[attended_keys * max_size];
    float scores[attended_keys * attended_rows];
    // Where rows of queries and of values begin.
    uint32_t query_offsets[max_size];
    uint32_t value_offsets[attended_keys];
};

// A row as floats, padded with zeros.
template <typename T>
TALLOW_INLINE void load_row(float* target, const T* row, uint64_t size, uint64_t padded, int64_t step = 1) {
    if (step == 1)
        map_span(size, [](T x) { return to_compute(x); }, target, row);
    else
        widen_strided(size, target, row, step);
    for (uint64_t i = size; i < padded; ++i)
        target[i] = 0.0f;
}

// The scores of few queries, whose rows end with zeros.
TALLOW_JOINING void score_rows(Attended& at, uint32_t rows, uint32_t keys, uint32_t padded) {
    TALLOW_JOIN
    constexpr uint32_t lanes = vector_length<float>;
    for (uint32_t key = 0; key < keys; ++key)
        for (uint32_t row = 0; row < rows; ++row) {
            Vector<float> sums[2] = {};
            for (uint32_t i = 0; i < padded; i += lanes) {
                Vector<float> left, right;
                __builtin_memcpy(&left, at.queries + row * max_size + i, sizeof left);
                __builtin_memcpy(&right, at.keys + key * key_stride + i, sizeof right);
                sums[i / lanes % 2] += left * right;
            }
            at.scores[row * attended_keys + key] = reduce_lanes<float>(sums[0] + sums[1], Adds{});
        }
}

// Makes weights of the scores of one of few queries, and rescales its previous results.
TALLOW_INLINE void weigh_row(Attended& at, uint32_t row, uint32_t keys, float scale) {
    float* const scores = at.scores + row * attended_keys;
    const uint32_t width = (keys + total_lanes - 1) / total_lanes * total_lanes;
    float most = at.largest[row];
    for (uint32_t key = 0; key < width; ++key) {
        scores[key] = key < at.seen_here[row] ? scores[key] * scale : -infinity(float{});
        most = scores[key] > most ? scores[key] : most;
    }
    const float taken = most > -infinity(float{}) ? most : 0.0f;
    map_span(width, [=](float x) { return exp(x - taken); }, scores, static_cast<const float*>(scores));
    Vector<float> totals = {};
    for (uint32_t key = 0; key < width; key += total_lanes) {
        Vector<float> weights;
        __builtin_memcpy(&weights, scores + key, sizeof weights);
        totals += weights;
    }
    at.factors[row] = exp(at.largest[row] - taken);
    at.totals[row] = at.totals[row] * at.factors[row] + reduce_lanes<float>(totals, Adds{});
    at.largest[row] = most;
}

// The same of the scores of many queries.
TALLOW_INLINE void weigh_columns(Attended& at, uint32_t keys, uint32_t queries, float scale) {
    float most[attended_rows];
    __builtin_memcpy(most, at.largest, sizeof most);
    for (uint32_t key = 0; key < keys; ++key) {
        float* const scores = at.scores + key * attended_rows;
        TALLOW_INDEPENDENT
        for (uint32_t i = 0; i < queries; ++i) {
            const float score = key < at.seen_here[i] ? scores[i] * scale : -infinity(float{});
            scores[i] = score;
            most[i] = score > most[i] ? score : most[i];
        }
    }
    // Where all that was seen is -inf, nothing is taken away from it.
    float taken[attended_rows];
    map_span(
        queries, [](float x) { return x > -infinity(float{}) ? x : 0.0f; }, taken, static_cast<const float*>(most));
    map_span(
        queries, [](float x, float y) { return exp(x - y); }, at.factors, static_cast<const float*>(at.largest),
        static_cast<const float*>(taken));
    map_span(
        queries, [](float x, float y) { return x * y; }, at.totals, static_cast<const float*>(at.totals),
        static_cast<const float*>(at.factors));
    for (uint32_t key = 0; key < keys; ++key) {
        float* const scores = at.scores + key * attended_rows;
        TALLOW_INDEPENDENT
        for (uint32_t i = 0; i < queries; ++i) {
            scores[i] = exp(scores[i] - taken[i]);
            at.totals[i] += scores[i];
        }
    }
    __builtin_memcpy(at.largest, most, sizeof most);
}

// What is multiplied for many queries, as floats, on a machine that has nothing quicker.
struct AttendedNumbers {
    static constexpr bool are_pairs = false;
};

#if defined(TALLOW_PAIRS)
// The same as pairs of bf16.
struct AttendedPairs {
    static constexpr bool are_pairs = true;
    static constexpr uint32_t row_stride = lines_stride(max_size);
    static constexpr uint32_t keys_stride = lines_stride(attended_keys);

    UsesTiles tiles;
    bf16 rows[attended_rows * max_size];
    alignas(64) uint32_t queries[attended_rows / pair_side * row_stride];
    alignas(64) uint32_t keys[attended_keys / pair_side * row_stride];
    alignas(64) uint32_t values[max_size / pair_side * keys_stride];
    alignas(64) uint32_t weights[2][attended_rows / pair_side * keys_stride];

    TALLOW_INLINE void take_queries(uint32_t count, uint32_t size) {
        const int64_t steps[2] = {max_size, 1};
        take_pairs<row_stride, false>(rows, steps, count, size, queries);
    }
    TALLOW_INLINE void take_keys(const bf16* key, int64_t key_step, const bf16* value, int64_t value_step,
                                 uint32_t count, uint32_t size) {
        const int64_t key_steps[2] = {key_step, 1}, value_steps[2] = {1, value_step};
        take_pairs<row_stride, true>(key, key_steps, count, size, keys);
        take_pairs<keys_stride, false>(value, value_steps, size, count, values);
    }
    TALLOW_INLINE void add_scores(uint32_t count, uint32_t columns, uint32_t size, float* scores) {
        multiply_pairs<row_stride>(count, columns, size, keys, queries, scores, attended_rows);
    }
    // Weights are sums of two numbers, which have 16 bits between them. Neither is 0 but where the weight is: 0 times
    // infinity would be NaN.
    TALLOW_INLINE void take_weights(uint32_t columns, uint32_t count, const float* scores) {
        constexpr uint32_t upper = 0xffff0000, last_bit = 1 << 16, half_bit = 1 << 15;
        for (uint32_t column = 0; column < columns; column += pair_side)
            for (uint32_t first = 0; first < count; first += 2 * pair_side) {
                Pairs squares[2][pair_side];
                for (uint32_t i = 0; i < pair_side; ++i) {
                    Pairs parts[2][2];
                    for (uint32_t j = 0; j < 2; ++j) {
                        const uint32_t key = first + 2 * i + j;
                        Vector<float, sizeof(Pairs)> weight = {};
                        if (key < count)
                            __builtin_memcpy(&weight, scores + key * attended_rows + column, sizeof weight);
                        const auto bits = (Pairs)weight;
                        parts[0][j] = ((bits > last_bit ? bits : last_bit) - last_bit) & upper;
                        parts[1][j] = (Pairs)(weight - (Vector<float, sizeof(Pairs)>)parts[0][j]) + half_bit;
                    }
                    for (uint32_t part = 0; part < 2; ++part)
                        squares[part][i] = parts[part][0] >> 16 | (parts[part][1] & upper);
                }
                for (uint32_t part = 0; part < 2; ++part) {
                    transpose_square(squares[part]);
                    __builtin_memcpy(weights[part] + column / pair_side * keys_stride + first / 2 * pair_side,
                                     squares[part], sizeof squares[part]);
                }
            }
    }
    TALLOW_INLINE void add_values(uint32_t count, uint32_t columns, uint32_t keys_here, uint32_t padded,
                                  const float* scores, float* results) {
        take_weights(columns, keys_here, scores);
        for (const auto& part : weights)
            multiply_pairs<keys_stride>(count, padded, keys_here, part, values, results, padded);
    }
};
#endif

// Where a row of a head begins.
template <typename T, typename Strides>
TALLOW_INLINE const T* row_at(uint64_t address, const Strides& strides, uint64_t batch, uint64_t head, uint64_t row) {
    return pointer_to<const T>(address) + static_cast<int64_t>(batch) * strides[0] +
           static_cast<int64_t>(head) * strides[1] + static_cast<int64_t>(row) * strides[2];
}

// How many of the keys that are there a query sees.
template <typename Arguments>
TALLOW_INLINE uint64_t keys_seen(const Arguments& arguments, uint64_t query, uint64_t keys) {
    const uint64_t later = arguments.queries - 1 - query;
    return !arguments.is_causal ? keys : keys > later ? keys - later : 0;
}

template <typename T, typename Sides, typename Arguments> TALLOW_INLINE void attend_with(const Arguments& arguments) {
    constexpr uint32_t strip = Tile<float>::strip_columns;
    const auto size = static_cast<uint32_t>(arguments.size);
    const uint32_t padded = (size + strip - 1) / strip * strip;
    const uint64_t queries = arguments.queries;
    const uint64_t group_rows = arguments.group * queries;
    const uint64_t blocks = (group_rows + attended_rows - 1) / attended_rows;
    const float scale = bit_cast<float>(arguments.scale);
    const bool has_lengths = arguments.indexes != 0;
    if (has_lengths && !are_at_most(arguments, arguments.batches, arguments.keys))
        return;
    do_parts(arguments, arguments.batches * arguments.key_heads * blocks, [=, &arguments](uint64_t part) {
        const uint64_t first = part % blocks * attended_rows;
        const uint64_t key_head = part / blocks % arguments.key_heads;
        const uint64_t batch = part / blocks / arguments.key_heads;
        const auto rows =
            static_cast<uint32_t>(group_rows - first < attended_rows ? group_rows - first : attended_rows);
        const uint64_t keys = has_lengths ? static_cast<uint64_t>(index_at(arguments, batch)) : arguments.keys;
        const bool is_small = rows <= few_queries;
        const uint32_t columns = is_small ? rows : (rows + strip - 1) / strip * strip;
        Attended at;
        [[maybe_unused]] Sides sides;
        const bool in_pairs = Sides::are_pairs && !is_small;
        for (uint32_t i = 0; i < size; ++i)
            at.query_offsets[i] = i * attended_rows;
        for (uint32_t i = 0; i < attended_keys; ++i)
            at.value_offsets[i] = i * padded;
        __builtin_memset(at.results, 0, rows * padded * sizeof(float));
        uint64_t end = 0;
        for (uint32_t row = 0; row < columns; ++row) {
            at.largest[row] = -infinity(float{});
            at.totals[row] = 0.0f;
            at.seen[row] = 0;
            if (row >= rows) {
                for (uint32_t i = 0; i < size; ++i)
                    at.queries[i * attended_rows + row] = 0.0f;
                continue;
            }
            const uint64_t query = (first + row) % queries;
            const uint64_t head = key_head * arguments.group + (first + row) / queries;
            const T* const source = row_at<T>(arguments.query, arguments.query_strides, batch, head, query);
            if (is_small)
                load_row(at.queries + row * max_size, source, size, padded);
            else if constexpr (Sides::are_pairs)
                __builtin_memcpy(sides.rows + row * max_size, source, size * sizeof(T));
            else
                for (uint32_t i = 0; i < size; ++i)
                    at.queries[i * attended_rows + row] = to_compute(source[i]);
            at.seen[row] = keys_seen(arguments, query, keys);
            end = at.seen[row] > end ? at.seen[row] : end;
        }
        if constexpr (Sides::are_pairs)
            if (in_pairs)
                sides.take_queries(rows, size);
        for (uint64_t first_key = 0; first_key < end; first_key += attended_keys) {
            const auto there = static_cast<uint32_t>(end - first_key < attended_keys ? end - first_key : attended_keys);
            if constexpr (Sides::are_pairs)
                if (in_pairs)
                    sides.take_keys(row_at<T>(arguments.key, arguments.key_strides, batch, key_head, first_key),
                                    arguments.key_strides[2],
                                    row_at<T>(arguments.value, arguments.value_strides, batch, key_head, first_key),
                                    arguments.value_strides[2], there, size);
            if (!in_pairs)
                for (uint32_t key = 0; key < there; ++key) {
                    const uint64_t position = first_key + key;
                    load_row(at.keys + key * key_stride,
                             row_at<T>(arguments.key, arguments.key_strides, batch, key_head, position), size, padded);
                    load_row(at.values + key * padded,
                             row_at<T>(arguments.value, arguments.value_strides, batch, key_head, position), size,
                             padded);
                }
            for (uint32_t row = 0; row < columns; ++row) {
                const uint64_t seen = at.seen[row] > first_key ? at.seen[row] - first_key : 0;
                at.seen_here[row] = seen < there ? static_cast<uint32_t>(seen) : there;
            }
            if (is_small) {
                score_rows(at, rows, there, padded);
                for (uint32_t row = 0; row < rows; ++row)
                    weigh_row(at, row, there, scale);
            } else {
                __builtin_memset(at.scores, 0, there * attended_rows * sizeof(float));
                if constexpr (Sides::are_pairs)
                    sides.add_scores(there, columns, size, at.scores);
                else
                    multiply_strips<key_stride, 1>(there, columns, at.keys, at.queries, at.query_offsets, size,
                                                   at.scores, attended_rows);
                weigh_columns(at, there, columns, scale);
            }
            for (uint32_t row = 0; row < rows; ++row) {
                const float factor = at.factors[row];
                float* const row_results = at.results + row * padded;
                map_span(
                    padded, [=](float x) { return x * factor; }, row_results, static_cast<const float*>(row_results));
            }
            if (is_small)
                multiply_strips<attended_keys, 1>(rows, padded, at.scores, at.values, at.value_offsets, there,
                                                  at.results, padded);
            else if constexpr (Sides::are_pairs)
                sides.add_values(rows, columns, there, padded, at.scores, at.results);
            else
                multiply_strips<1, attended_rows>(rows, padded, at.scores, at.values, at.value_offsets, there,
                                                  at.results, padded);
        }
        for (uint32_t row = 0; row < rows; ++row) {
            const uint64_t head = key_head * arguments.group + (first + row) / queries;
            const uint64_t first_row = (batch * arguments.key_heads * arguments.group + head) * queries;
            T* const result = pointer_to<T>(arguments.result) + (first_row + (first + row) % queries) * size;
            const float* const row_results = at.results + row * padded;
            const float total = at.totals[row];
            // A query that sees nothing gives 0.
            map_span(
                size, [=](float x) { return round_from<T>(total == 0.0f ? 0.0f : x / total); }, result, row_results);
            if (arguments.logsumexp != 0)
                pointer_to<float>(arguments.logsumexp)[first_row + (first + row) % queries] =
                    total == 0.0f ? infinity(float{}) : at.largest[row] + log(total);
        }
    });
}

template <typename T, typename Arguments> TALLOW_INLINE void attend_rows(const Arguments& arguments) {
#if defined(TALLOW_PAIRS)
    if constexpr (is_same<T, bf16>)
        if (has_pairs())
            return attend_with<T, AttendedPairs>(arguments);
#endif
    attend_with<T, AttendedNumbers>(arguments);
}

} // namespace tallow
