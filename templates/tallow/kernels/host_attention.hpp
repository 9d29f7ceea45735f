// Attention on the host: scores of some queries and keys at a time, which never leave the cache.
#pragma once

#include "host_indexes.hpp"
#include "math.hpp"
#include "tile_product.hpp"

namespace tallow {

// So many queries meet so many keys at once.
constexpr uint32_t attended_rows = 64;
constexpr uint32_t attended_keys = 64;
// Rows are as long at most, and are filled with zeros up to whole strips.
constexpr uint32_t most_size = tile_terms;
constexpr uint32_t total_lanes = 16;
// From a row that is multiplied to the next one.
constexpr uint32_t multiplied_stride = Tile<float>::lhs_stride;
static_assert(attended_keys <= tile_terms && attended_keys % 32 == 0);

// Adds the product of rows and of whole strips of a matrix's columns to sums, whose rows are `stride` apart.
TALLOW_INLINE void multiply_attended(const float* rows, uint32_t count, const float* matrix, const uint32_t* places,
                                     uint32_t terms, uint32_t columns, float* sums, uint32_t stride) {
    for (uint32_t column = 0; column < columns; column += Tile<float>::strip_columns)
        for (uint32_t row = 0; row < count; row += strip_rows)
            multiply_rows<strip_rows>(count - row, rows + row * multiplied_stride, matrix + column, places, terms,
                                      sums + row * stride + column, static_cast<uint64_t>(stride));
}

// Some queries that share keys, and what they have found so far.
struct Attended {
    float queries[attended_rows][multiplied_stride];
    float found[attended_rows * most_size];
    float largest[attended_rows];
    float totals[attended_rows];
    // How many of all keys a query sees.
    uint64_t seen[attended_rows];
    // Of the keys at hand, which are turned.
    float keys[most_size * attended_keys];
    float values[attended_keys * most_size];
    float scores[attended_rows * attended_keys];
    float weights[attended_rows][multiplied_stride];
    // Where rows of keys and of values begin.
    uint32_t key_places[most_size];
    uint32_t value_places[attended_keys];
};

// A row as floats, with zeros behind it.
template <typename T> TALLOW_INLINE void load_row(float* held, const T* row, uint64_t size, uint64_t padded) {
    map_span(size, [](T x) { return to_compute(x); }, held, row);
    for (uint64_t i = size; i < padded; ++i)
        held[i] = 0.0f;
}

// Weights of the scores of a row, next to what was found before.
TALLOW_INLINE void weigh(Attended& at, uint32_t row, uint64_t first_key, uint32_t width, uint32_t padded, float scale) {
    float* const scores = at.scores + row * attended_keys;
    float* const weights = at.weights[row];
    float* const found = at.found + row * padded;
    const uint64_t seen = at.seen[row] > first_key ? at.seen[row] - first_key : 0;
    float most = at.largest[row];
    for (uint32_t key = 0; key < width; ++key) {
        scores[key] = key < seen ? scores[key] * scale : -infinity(float{});
        most = scores[key] > most ? scores[key] : most;
    }
    // Where all that was seen is -inf, nothing is taken away from it.
    const float taken = most > -infinity(float{}) ? most : 0.0f;
    map_span(width, [=](float x) { return exp(x - taken); }, weights, static_cast<const float*>(scores));
    float lanes[total_lanes] = {};
    for (uint32_t key = 0; key < width; key += total_lanes)
        for (uint32_t lane = 0; lane < total_lanes; ++lane)
            lanes[lane] += weights[key + lane];
    for (uint32_t half = total_lanes / 2; half > 0; half /= 2)
        for (uint32_t lane = 0; lane < half; ++lane)
            lanes[lane] += lanes[lane + half];
    const float kept = exp(at.largest[row] - taken);
    at.totals[row] = at.totals[row] * kept + lanes[0];
    map_span(padded, [=](float x) { return x * kept; }, found, static_cast<const float*>(found));
    at.largest[row] = most;
}

template <typename T, typename Arguments> TALLOW_INLINE void attend_rows(const Arguments& arguments) {
    constexpr uint32_t strip = Tile<float>::strip_columns;
    const auto size = static_cast<uint32_t>(arguments.size);
    const uint32_t padded = (size + strip - 1) / strip * strip;
    const uint64_t queries = arguments.queries;
    const uint64_t group_rows = arguments.group * queries;
    const uint64_t blocks = (group_rows + attended_rows - 1) / attended_rows;
    const float scale = bit_cast<float>(arguments.scale);
    const auto row_of = [](uint64_t address, const int64_t(&strides)[3], uint64_t batch, uint64_t head, uint64_t row) {
        return pointer_to<const T>(address) + static_cast<int64_t>(batch) * strides[0] +
               static_cast<int64_t>(head) * strides[1] + static_cast<int64_t>(row) * strides[2];
    };
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
        Attended at;
        for (uint32_t i = 0; i < size; ++i)
            at.key_places[i] = i * attended_keys;
        for (uint32_t i = 0; i < attended_keys; ++i)
            at.value_places[i] = i * padded;
        __builtin_memset(at.found, 0, rows * padded * sizeof(float));
        uint64_t end = 0;
        for (uint32_t row = 0; row < rows; ++row) {
            const uint64_t query = (first + row) % queries;
            const uint64_t head = key_head * arguments.group + (first + row) / queries;
            load_row(at.queries[row], row_of(arguments.query, arguments.query_strides, batch, head, query), size, size);
            at.largest[row] = -infinity(float{});
            at.totals[row] = 0.0f;
            const uint64_t behind = queries - 1 - query;
            at.seen[row] = !arguments.is_causal ? keys : keys > behind ? keys - behind : 0;
            end = at.seen[row] > end ? at.seen[row] : end;
        }
        for (uint64_t first_key = 0; first_key < end; first_key += attended_keys) {
            const auto there = static_cast<uint32_t>(end - first_key < attended_keys ? end - first_key : attended_keys);
            const uint32_t width = (there + strip - 1) / strip * strip;
            for (uint32_t i = 0; i < size; ++i)
                for (uint32_t key = there; key < width; ++key)
                    at.keys[i * attended_keys + key] = 0.0f;
            for (uint32_t key = 0; key < there; ++key) {
                const uint64_t place = first_key + key;
                const T* const key_row = row_of(arguments.key, arguments.key_strides, batch, key_head, place);
                const T* const value_row = row_of(arguments.value, arguments.value_strides, batch, key_head, place);
                for (uint32_t i = 0; i < size; ++i)
                    at.keys[i * attended_keys + key] = to_compute(key_row[i]);
                load_row(at.values + key * padded, value_row, size, padded);
            }
            __builtin_memset(at.scores, 0, rows * attended_keys * sizeof(float));
            multiply_attended(at.queries[0], rows, at.keys, at.key_places, size, width, at.scores, attended_keys);
            for (uint32_t row = 0; row < rows; ++row)
                weigh(at, row, first_key, width, padded, scale);
            multiply_attended(at.weights[0], rows, at.values, at.value_places, there, padded, at.found, padded);
        }
        for (uint32_t row = 0; row < rows; ++row) {
            const uint64_t head = key_head * arguments.group + (first + row) / queries;
            const uint64_t place = (batch * arguments.key_heads * arguments.group + head) * queries;
            T* const result = pointer_to<T>(arguments.result) + (place + (first + row) % queries) * size;
            const float* const found = at.found + row * padded;
            const float total = at.totals[row];
            // A query that sees nothing gives 0.
            map_span(size, [=](float x) { return round_from<T>(total == 0.0f ? 0.0f : x / total); }, result, found);
        }
    });
}

} // namespace tallow
