// Matrix products on the host.
#pragma once

#include "tile_product.hpp"

namespace tallow {

// Columns of a transposed block that are converted at a time, and rows that are moved together.
constexpr uint32_t transposed_columns = 16;
static_assert(tile_terms % transposed_columns == 0 && tile_rows % transposed_columns == 0);
// What it takes to bring a tile's right side into the cache, in rows of products.
constexpr uint32_t rows_of_side = 8;
// So many sizes of parts are compared.
constexpr uint32_t most_sizes = 32;
// The least products of a part, roughly, unless each thread has several parts.
constexpr uint64_t part_products = 1 << 19;
constexpr uint64_t parts_of_thread = 2;

// The parts of a result (m, n): a part has one tile, or several one below the other whose right side stays in the
// cache. No sum depends on them.
struct PartSizes {
    uint64_t rows = tile_rows;
    uint32_t columns = product_columns;

    TALLOW_INLINE PartSizes(uint64_t batches, uint64_t m, uint64_t n, uint64_t k, uint64_t threads) {
        const uint64_t enough = threads > 1 ? threads * parts_of_thread : 1;
        while (rows * columns * k > part_products && columns > 64 && batches * count(m, n) < enough)
            columns /= 2;
        while (rows * columns * k > part_products && rows > 24 && batches * count(m, n) < enough)
            rows /= 2;
        const uint64_t fewest = rows / 2;
        if (k <= tile_terms && batches * count(m, n) > enough)
            rows = (batches * across(n) * m / enough / strip_rows + 1) * strip_rows;
        // Threads that get as many parts as others end at the same time.
        const auto time = [&] { return (batches * count(m, n) + threads - 1) / threads * (rows + rows_of_side); };
        const uint64_t step = (rows / most_sizes / strip_rows + 1) * strip_rows;
        uint64_t best = rows;
        uint64_t least = time();
        for (; rows > fewest + step; rows -= step)
            if (time() < least) {
                least = time();
                best = rows;
            }
        rows = best;
    }
    TALLOW_INLINE uint64_t down(uint64_t m) const {
        return (m + rows - 1) / rows;
    }
    TALLOW_INLINE uint64_t across(uint64_t n) const {
        return (n + columns - 1) / columns;
    }
    TALLOW_INLINE uint64_t count(uint64_t m, uint64_t n) const {
        return down(m) * across(n);
    }
};

#if defined(__clang__) || __GNUC__ >= 12
template <int... Lane> struct LanesOf {};
template <int Count, int... Lane> struct LanesUpTo : LanesUpTo<Count - 1, Count - 1, Lane...> {};
template <int... Lane> struct LanesUpTo<0, Lane...> {
    using type = LanesOf<Lane...>;
};

template <uint32_t Step, typename Vector, int... Lane>
TALLOW_INLINE void exchange_lanes(Vector& x, Vector& y, LanesOf<Lane...>) {
    constexpr int lanes = sizeof...(Lane), step = Step;
    const Vector before = x;
    x = __builtin_shufflevector(x, y, ((Lane & step) != 0 ? lanes + Lane - step : Lane)...);
    y = __builtin_shufflevector(before, y, ((Lane & step) != 0 ? lanes + Lane : Lane + step)...);
}
#endif

// As many rows as a vector has lanes, of which the columns become rows: each step exchanges lanes that are `Step`
// apart.
template <uint32_t Step = 1, typename Vector, uint32_t Lanes>
TALLOW_INLINE void transpose_square(Vector (&rows)[Lanes]) {
#if defined(__clang__) || __GNUC__ >= 12
    if constexpr (Step < Lanes) {
        for (uint32_t i = 0; i < Lanes; ++i)
            if ((i & Step) == 0)
                exchange_lanes<Step>(rows[i], rows[i + Step], typename LanesUpTo<Lanes>::type());
        transpose_square<2 * Step>(rows);
    }
#else
    for (uint32_t i = 0; i < Lanes; ++i)
        for (uint32_t j = 0; j < i; ++j) {
            const auto held = rows[i][j];
            rows[i][j] = rows[j][i];
            rows[j][i] = held;
        }
#endif
}

// The rows of a block of a matrix with any strides, `Stride` apart in the compute type.
template <uint32_t Stride, typename T>
TALLOW_INLINE void take_block(const T* source, const int64_t* steps, uint32_t rows, uint32_t columns,
                              compute_type<T>* target) {
    if (steps[0] != 1 || steps[1] == 1) {
        for (uint32_t row = 0; row < rows; ++row)
            widen_strided(columns, target + row * Stride, source + static_cast<int64_t>(row) * steps[0], steps[1]);
        return;
    }
    using Unaligned = typename Tile<compute_type<T>>::Vector;
    constexpr uint32_t lanes = Tile<compute_type<T>>::lanes;
    compute_type<T> held[transposed_columns][tile_terms];
    for (uint32_t first = 0; first < columns; first += transposed_columns) {
        const uint32_t count = columns - first < transposed_columns ? columns - first : transposed_columns;
        for (uint32_t i = 0; i < count; ++i)
            widen_span(rows, held[i], source + static_cast<int64_t>(first + i) * steps[1]);
        for (uint32_t row = 0; row < rows; row += lanes)
            for (uint32_t column = 0; column < transposed_columns; column += lanes) {
                Vector<compute_type<T>, vector_bytes> square[lanes];
                for (uint32_t i = 0; i < lanes; ++i)
                    square[i] = *reinterpret_cast<const Unaligned*>(held[column + i] + row);
                transpose_square(square);
                for (uint32_t i = 0; i < lanes; ++i)
                    *reinterpret_cast<Unaligned*>(target + (row + i) * Stride + first + column) = square[i];
            }
    }
}

// The host gives where each matrix begins.
template <typename T, typename Arguments> TALLOW_INLINE void multiply_matrices(const Arguments& arguments) {
    using Value = compute_type<T>;
    // Rows that follow one another lie in different sets of the cache.
    constexpr uint32_t rhs_stride = product_columns + 16;
    static_assert(rhs_stride * tile_terms <= tile_numbers && product_columns * tile_rows <= tile_sums);
    const PartSizes sizes(arguments.batches, arguments.m, arguments.n, arguments.k, arguments.threads);
    const uint64_t across = sizes.across(arguments.n);
    const uint64_t parts = sizes.down(arguments.m) * across;
    do_parts(arguments, arguments.batches * parts, [&](uint64_t part) {
        auto& tile = Tile<Value>::of_thread();
        const uint64_t batch = part / parts;
        const uint64_t first = part % parts / across * sizes.rows;
        const uint64_t end = arguments.m - first < sizes.rows ? arguments.m : first + sizes.rows;
        const uint64_t column = part % across * sizes.columns;
        const auto columns =
            static_cast<uint32_t>(arguments.n - column < sizes.columns ? arguments.n - column : sizes.columns);
        const T* rhs = pointer_to<const T>(arguments.rhs) + pointer_to<const int64_t>(arguments.rhs_begins)[batch] +
                       static_cast<int64_t>(column) * arguments.rhs_strides[1];
        const uint64_t most_terms = arguments.k < tile_terms ? arguments.k : tile_terms;
        for (uint32_t i = 0; i < most_terms; ++i)
            tile.places[i] = i * rhs_stride;
        constexpr uint32_t strip = Tile<Value>::strip_columns;
        const uint32_t width = (columns + strip - 1) / strip * strip;
        Value shift[product_columns];
        if (arguments.bias != 0)
            widen_span(columns, shift, pointer_to<const T>(arguments.bias) + column);
        for (uint64_t row = first; row < end; row += tile_rows) {
            const auto rows = static_cast<uint32_t>(end - row < tile_rows ? end - row : tile_rows);
            const T* lhs = pointer_to<const T>(arguments.lhs) + pointer_to<const int64_t>(arguments.lhs_begins)[batch] +
                           static_cast<int64_t>(row) * arguments.lhs_strides[0];
            for (uint32_t i = 0; i < rows * width; ++i)
                tile.sums[i] = 0;
            for (uint64_t term = 0; term < arguments.k; term += tile_terms) {
                const auto terms =
                    static_cast<uint32_t>(arguments.k - term < tile_terms ? arguments.k - term : tile_terms);
                const auto place = static_cast<int64_t>(term);
                take_block<Tile<Value>::lhs_stride>(lhs + place * arguments.lhs_strides[1], arguments.lhs_strides, rows,
                                                    terms, tile.lhs);
                if (row == first || arguments.k > tile_terms)
                    take_block<rhs_stride>(rhs + place * arguments.rhs_strides[0], arguments.rhs_strides, terms,
                                           columns, tile.rhs);
                multiply_tile(tile, rows, columns, terms, width);
            }
            T* const result = pointer_to<T>(arguments.result) + (batch * arguments.m + row) * arguments.n + column;
            for (uint32_t i = 0; i < rows; ++i) {
                Value* const sums = tile.sums + i * width;
                if (arguments.bias != 0)
                    for (uint32_t j = 0; j < columns; ++j)
                        sums[j] += shift[j];
                narrow_span(columns, result + i * arguments.n, sums);
            }
        }
    });
}

} // namespace tallow
