// The gradients of attention on the host (Dao 2023, FlashAttention-2): scores are recomputed, a tile at a time, from
// what is known of their rows. A thread adds up all that comes of a key head, in order, so that it has the same bits on
// every run.
#pragma once

#include "host_attention.hpp"

namespace tallow {

// The queries that meet keys at once: full strips of rows.
constexpr uint32_t met_rows = 48;

// What a thread has in the cache of some keys, and of queries that meet them. Numbers lie row by row, but those of
// columns element by element of a head.
struct Met {
    float keys[attended_keys * max_size];
    float key_columns[max_size * attended_keys];
    float value_columns[max_size * attended_keys];
    float key_sums[attended_keys * max_size];
    float value_sums[attended_keys * max_size];
    float queries[met_rows * key_stride];
    float gradients[met_rows * key_stride];
    // Scores become weights, and the gradients of these become those of scores.
    float weights[met_rows * attended_keys];
    float changes[met_rows * attended_keys];
    // How many of the keys at hand a query sees, and its sum of gradient * result.
    uint32_t seen_here[met_rows];
    float products[met_rows];
    // Where rows of keys, of columns and of queries begin.
    uint32_t key_places[attended_keys];
    uint32_t column_places[max_size];
    uint32_t query_offsets[met_rows];

    static Met& of_thread() {
        static thread_local Met met;
        return met;
    }
};

// The transpose of `count` rows, padded to full vectors by the rows after them.
TALLOW_INLINE void turn_rows(const float* rows, uint32_t count, uint32_t stride, uint32_t size, float* columns) {
    for (uint32_t first = 0; first < count; first += total_lanes)
        for (uint32_t i = 0; i < size; ++i)
            for (uint32_t lane = 0; lane < total_lanes; ++lane)
                columns[i * attended_keys + first + lane] = rows[(first + lane) * stride + i];
}

TALLOW_INLINE float product_of(const float* left, const float* right, uint32_t padded) {
    Vector<float> sums = {};
    for (uint32_t i = 0; i < padded; i += total_lanes) {
        Vector<float> x, y;
        __builtin_memcpy(&x, left + i, sizeof x);
        __builtin_memcpy(&y, right + i, sizeof y);
        sums += x * y;
    }
    return reduce_lanes<float>(sums, Adds{});
}

// A key head of a batch, with the queries of all heads that it serves: these are the lines.
template <typename T, typename Arguments> struct KeyHead {
    static constexpr uint32_t strip = Tile<float>::strip_columns;

    const Arguments& arguments;
    const uint64_t number, batch, keys, lines;
    const uint32_t size, padded;
    const float scale;
    float* const query_sums;
    Met& met;

    KeyHead(const Arguments& arguments, uint64_t number)
        : arguments(arguments), number(number), batch(number / arguments.key_heads),
          keys(arguments.indexes != 0 ? static_cast<uint64_t>(index_at(arguments, batch)) : arguments.keys),
          lines(arguments.group * arguments.queries), size(static_cast<uint32_t>(arguments.size)),
          padded((size + strip - 1) / strip * strip), scale(bit_cast<float>(arguments.scale)),
          query_sums(pointer_to<float>(arguments.sums) + number * lines * arguments.sum_size), met(Met::of_thread()) {
        for (uint32_t i = 0; i < attended_keys; ++i)
            met.key_places[i] = i * padded;
        for (uint32_t i = 0; i < size; ++i)
            met.column_places[i] = i * attended_keys;
        for (uint32_t i = 0; i < met_rows; ++i)
            met.query_offsets[i] = i * key_stride;
    }

    static uint32_t at_most(uint64_t count, uint32_t most) {
        return count < most ? static_cast<uint32_t>(count) : most;
    }
    template <typename Element, typename Strides>
    const Element* line_at(uint64_t address, const Strides& strides, uint64_t line) const {
        const uint64_t head = number % arguments.key_heads * arguments.group + line / arguments.queries;
        return row_at<Element>(address, strides, batch, head, line % arguments.queries);
    }
    template <typename Strides>
    void load_line(float* target, uint64_t address, const Strides& strides, uint64_t line) const {
        load_row(target, line_at<T>(address, strides, line), size, padded, strides[3]);
    }
    template <typename Strides>
    void load_keys(float* target, uint64_t address, const Strides& strides, uint64_t first, uint32_t count) const {
        for (uint32_t key = 0; key < count; ++key)
            load_row(target + key * padded,
                     row_at<T>(address, strides, batch, number % arguments.key_heads, first + key), size, padded,
                     strides[3]);
    }
    void write_row(uint64_t address, uint64_t row, const float* sums, float factor) const {
        map_span(size, [=](float x) { return round_from<T>(x * factor); }, pointer_to<T>(address) + row * size, sums);
    }

    // Makes weights and gradients of scores of a line of each.
    void weigh_line(uint64_t line, uint32_t row, uint64_t first_key, uint32_t width) const {
        float* const weights = met.weights + row * attended_keys;
        float* const changes = met.changes + row * attended_keys;
        const uint32_t seen = met.seen_here[row];
        float shifts[attended_keys] = {};
        if (arguments.mask != 0) {
            const int64_t step = arguments.mask_strides[3];
            widen_strided(seen, shifts,
                          line_at<T>(arguments.mask, arguments.mask_strides, line) +
                              static_cast<int64_t>(first_key) * step,
                          step);
        }
        const float logsumexp = *line_at<float>(arguments.logsumexp, arguments.logsumexp_strides, line);
        const float product = met.products[row], factor = scale;
        TALLOW_INDEPENDENT
        for (uint32_t i = 0; i < width; ++i) {
            const float weight = exp(weights[i] * factor + shifts[i] - logsumexp);
            const float change = weight * (changes[i] - product);
            weights[i] = weight;
            changes[i] = weight == 0.0f ? 0.0f : change;
        }
        // What is not seen may have been anything.
        __builtin_memset(weights + seen, 0, (width - seen) * sizeof(float));
        __builtin_memset(changes + seen, 0, (width - seen) * sizeof(float));
        if (arguments.mask_gradient != 0)
            narrow_span(seen,
                        pointer_to<T>(arguments.mask_gradient) + (number * lines + line) * arguments.keys + first_key,
                        static_cast<const float*>(changes));
    }

    // Adds what some lines give, and what they get, of the keys at hand.
    void meet_lines(uint64_t first, uint64_t first_key, uint32_t there) const {
        const uint32_t rows = at_most(lines - first, met_rows);
        uint32_t most = 0;
        for (uint32_t row = 0; row < rows; ++row) {
            const uint64_t seen = keys_seen(arguments, (first + row) % arguments.queries, keys);
            met.seen_here[row] = seen > first_key ? at_most(seen - first_key, there) : 0;
            most = met.seen_here[row] > most ? met.seen_here[row] : most;
        }
        if (most == 0)
            return;
        for (uint32_t row = 0; row < rows; ++row) {
            float* const gradient = met.gradients + row * key_stride;
            float forward_row[max_size];
            load_line(met.queries + row * key_stride, arguments.query, arguments.query_strides, first + row);
            load_line(gradient, arguments.gradient, arguments.gradient_strides, first + row);
            load_line(forward_row, arguments.forward_result, arguments.forward_strides, first + row);
            met.products[row] = product_of(gradient, forward_row, padded);
        }
        const uint32_t width = (most + strip - 1) / strip * strip;
        __builtin_memset(met.weights, 0, rows * attended_keys * sizeof(float));
        __builtin_memset(met.changes, 0, rows * attended_keys * sizeof(float));
        multiply_strips<key_stride, 1>(rows, width, met.queries, met.key_columns, met.column_places, size, met.weights,
                                       attended_keys);
        multiply_strips<key_stride, 1>(rows, width, met.gradients, met.value_columns, met.column_places, size,
                                       met.changes, attended_keys);
        for (uint32_t row = 0; row < rows; ++row)
            weigh_line(first + row, row, first_key, width);
        multiply_strips<attended_keys, 1>(rows, padded, met.changes, met.keys, met.key_places, most,
                                          query_sums + first * arguments.sum_size, arguments.sum_size);
        multiply_strips<1, attended_keys>(most, padded, met.changes, met.queries, met.query_offsets, rows, met.key_sums,
                                          padded);
        multiply_strips<1, attended_keys>(most, padded, met.weights, met.gradients, met.query_offsets, rows,
                                          met.value_sums, padded);
    }

    void find_gradients() const {
        __builtin_memset(query_sums, 0, lines * arguments.sum_size * sizeof(float));
        if (arguments.mask_gradient != 0)
            __builtin_memset(pointer_to<T>(arguments.mask_gradient) + number * lines * arguments.keys, 0,
                             lines * arguments.keys * sizeof(T));
        for (uint64_t first_key = 0; first_key < arguments.keys; first_key += attended_keys) {
            const uint32_t there = keys > first_key ? at_most(keys - first_key, attended_keys) : 0;
            load_keys(met.keys, arguments.key, arguments.key_strides, first_key, there);
            turn_rows(met.keys, there, padded, size, met.key_columns);
            // The sums reuse the memory of values, and begin when these are no longer needed.
            load_keys(met.value_sums, arguments.value, arguments.value_strides, first_key, there);
            turn_rows(met.value_sums, there, padded, size, met.value_columns);
            __builtin_memset(met.key_sums, 0, attended_keys * padded * sizeof(float));
            __builtin_memset(met.value_sums, 0, attended_keys * padded * sizeof(float));
            for (uint64_t first = 0; first < lines; first += met_rows)
                meet_lines(first, first_key, there);
            for (uint32_t key = 0; key < at_most(arguments.keys - first_key, attended_keys); ++key) {
                const uint64_t row = number * arguments.keys + first_key + key;
                write_row(arguments.key_gradient, row, met.key_sums + key * padded, scale);
                write_row(arguments.value_gradient, row, met.value_sums + key * padded, 1.0f);
            }
        }
        for (uint64_t line = 0; line < lines; ++line)
            write_row(arguments.query_gradient, number * lines + line, query_sums + line * arguments.sum_size, scale);
    }
};

template <typename T, typename Arguments> TALLOW_INLINE void find_attention_gradients(const Arguments& arguments) {
    if (arguments.indexes != 0 && !are_at_most(arguments, arguments.batches, arguments.keys))
        return;
    do_parts(arguments, arguments.batches * arguments.key_heads,
             [&](uint64_t part) { KeyHead<T, Arguments>(arguments, part).find_gradients(); });
}

} // namespace tallow
