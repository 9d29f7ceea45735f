// Matrix products on the host.
#pragma once

#include "epilogue.hpp"
#include "pair_product.hpp"

namespace tallow {

// Columns of a transposed block that are converted at a time, and rows that are moved together.
constexpr uint32_t transposed_columns = 16;
static_assert(tile_terms % transposed_columns == 0 && tile_rows % transposed_columns == 0);
// The cost of loading a tile's right side into the cache, in rows of products.
constexpr uint32_t rows_of_side = 8;
// So many sizes of parts are compared.
constexpr uint32_t max_sizes = 32;
// The least products of a part, roughly, unless each thread has several parts.
constexpr uint64_t part_products = 1 << 19;
constexpr uint64_t parts_of_thread = 2;

// The parts of a result (m, n): a part has one tile, or several one below the other whose right side stays in the
// cache. No sum depends on them.
struct PartSizes {
    uint64_t rows;
    uint32_t columns;

    // Of at most `max_rows` and `max_columns`, with rows in multiples of `row_step`.
    TALLOW_INLINE PartSizes(uint64_t batches, uint64_t m, uint64_t n, uint64_t k, uint64_t threads, uint32_t max_rows,
                            uint32_t max_columns, uint32_t row_step)
        : rows(max_rows), columns(max_columns) {
        const uint64_t enough = threads > 1 ? threads * parts_of_thread : 1;
        while (rows * columns * k > part_products && columns > 64 && batches * count(m, n) < enough)
            columns /= 2;
        while (rows * columns * k > part_products && rows > 24 && batches * count(m, n) < enough)
            rows /= 2;
        const uint64_t fewest = rows / 2;
        if (k <= tile_terms && batches * count(m, n) > enough)
            rows = (batches * across(n) * m / enough / row_step + 1) * row_step;
        // Threads that get as many parts as others end at the same time.
        const auto time = [&] { return (batches * count(m, n) + threads - 1) / threads * (rows + rows_of_side); };
        const uint64_t step = (rows / max_sizes / row_step + 1) * row_step;
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

// The rows of a block of a matrix with any strides, in the compute type with the row stride `Stride`.
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
    compute_type<T> lines[transposed_columns][tile_terms];
    for (uint32_t first = 0; first < columns; first += transposed_columns) {
        const uint32_t count = columns - first < transposed_columns ? columns - first : transposed_columns;
        for (uint32_t i = 0; i < count; ++i)
            widen_span(rows, lines[i], source + static_cast<int64_t>(first + i) * steps[1]);
        for (uint32_t row = 0; row < rows; row += lanes)
            for (uint32_t column = 0; column < transposed_columns; column += lanes) {
                Vector<compute_type<T>, vector_bytes> square[lanes];
                for (uint32_t i = 0; i < lanes; ++i)
                    square[i] = *reinterpret_cast<const Unaligned*>(lines[column + i] + row);
                transpose_square(square);
                for (uint32_t i = 0; i < lanes; ++i)
                    *reinterpret_cast<Unaligned*>(target + (row + i) * Stride + first + column) = square[i];
            }
    }
}

// The sides of a product and the sums of a tile: numbers of the compute type.
template <typename T> struct NumberSides {
    using Value = compute_type<T>;
    static constexpr uint32_t max_terms = tile_terms;
    static constexpr uint32_t max_rows = tile_rows;
    static constexpr uint32_t near_rows = tile_rows;
    static constexpr uint32_t max_columns = product_columns;
    static constexpr uint32_t row_step = strip_rows;
    static constexpr uint32_t column_step = Tile<Value>::strip_columns;
    // Rows that follow one another lie in different sets of the cache.
    static constexpr uint32_t rhs_stride = product_columns + 16;
    static_assert(rhs_stride * tile_terms <= tile_numbers && product_columns * tile_rows <= tile_sums);

    Tile<Value>& tile;
    Value* const sums = tile.sums;

    TALLOW_INLINE explicit NumberSides(uint64_t terms) : tile(Tile<Value>::of_thread()) {
        for (uint32_t i = 0; i < terms && i < max_terms; ++i)
            tile.offsets[i] = i * rhs_stride;
    }
    TALLOW_INLINE void take_lhs(const T* source, const int64_t* steps, uint32_t rows, uint32_t terms) {
        take_block<Tile<Value>::lhs_stride>(source, steps, rows, terms, tile.lhs);
    }
    TALLOW_INLINE void take_rhs(const T* source, const int64_t* steps, uint32_t terms, uint32_t columns) {
        take_block<rhs_stride>(source, steps, terms, columns, tile.rhs);
    }
    // Adds the products of `terms` terms to sums, whose row stride is `width`.
    TALLOW_INLINE void multiply(uint32_t rows, uint32_t columns, uint32_t terms, Value* result, uint32_t width) {
        multiply_tile(tile, rows, columns, terms, result, width);
    }
};

// The host gives where each matrix begins.
template <typename T, typename Sides, typename Arguments>
TALLOW_INLINE void multiply_sides(const Arguments& arguments) {
    using Value = typename Sides::Value;
    const PartSizes sizes(arguments.batches, arguments.m, arguments.n, arguments.k, arguments.threads, Sides::max_rows,
                          Sides::max_columns, Sides::row_step);
    const uint64_t across = sizes.across(arguments.n);
    const uint64_t parts = sizes.down(arguments.m) * across;
    do_parts(arguments, arguments.batches * parts, [&](uint64_t part) {
        Sides sides(arguments.k);
        const uint64_t batch = part / parts;
        const uint64_t first = part % parts / across * sizes.rows;
        const uint64_t end = arguments.m - first < sizes.rows ? arguments.m : first + sizes.rows;
        const uint64_t column = part % across * sizes.columns;
        const auto columns =
            static_cast<uint32_t>(arguments.n - column < sizes.columns ? arguments.n - column : sizes.columns);
        const T* rhs = pointer_to<const T>(arguments.rhs) + pointer_to<const int64_t>(arguments.rhs_begins)[batch] +
                       static_cast<int64_t>(column) * arguments.rhs_strides[1];
        const uint32_t width = (columns + Sides::column_step - 1) / Sides::column_step * Sides::column_step;
        Value shift[Sides::max_columns];
        if (arguments.bias != 0)
            widen_span(columns, shift, pointer_to<const T>(arguments.bias) + column);
        // Without other terms, sums of a few rows at a time stay in a nearer cache.
        const uint32_t step = arguments.k > Sides::max_terms ? Sides::max_rows : Sides::near_rows;
        for (uint64_t row = first; row < end; row += step) {
            const auto rows = static_cast<uint32_t>(end - row < step ? end - row : step);
            const T* lhs = pointer_to<const T>(arguments.lhs) + pointer_to<const int64_t>(arguments.lhs_begins)[batch] +
                           static_cast<int64_t>(row) * arguments.lhs_strides[0];
            for (uint32_t i = 0; i < rows * width; ++i)
                sides.sums[i] = 0;
            for (uint64_t term = 0; term < arguments.k; term += Sides::max_terms) {
                const uint64_t remaining = arguments.k - term;
                const auto terms = static_cast<uint32_t>(remaining < Sides::max_terms ? remaining : Sides::max_terms);
                const auto offset = static_cast<int64_t>(term);
                if (row == first || arguments.k > Sides::max_terms)
                    sides.take_rhs(rhs + offset * arguments.rhs_strides[0], arguments.rhs_strides, terms, columns);
                for (uint32_t i = 0; i < rows; i += tile_rows) {
                    const uint32_t count = rows - i < tile_rows ? rows - i : tile_rows;
                    sides.take_lhs(lhs + i * arguments.lhs_strides[0] + offset * arguments.lhs_strides[1],
                                   arguments.lhs_strides, count, terms);
                    sides.multiply(count, columns, terms, sides.sums + i * width, width);
                }
            }
            const uint64_t element = (batch * arguments.m + row) * arguments.n + column;
            const Epilogue<T, Arguments> epilogue{arguments};
            for (uint32_t i = 0; i < rows; ++i) {
                Value* const sums = sides.sums + i * width;
                const bool are_columns = arguments.channels_are_columns != 0;
                epilogue.transform(sums, columns, are_columns ? column : row + i, are_columns);
                epilogue.add_residual(sums, columns, element + i * arguments.n);
            }
            epilogue.activate(sides.sums, rows * width);
            T* const result = pointer_to<T>(arguments.result) + element;
            for (uint32_t i = 0; i < rows; ++i) {
                Value* const sums = sides.sums + i * width;
                if (arguments.bias != 0)
                    map_span(
                        columns, [](Value x, Value y) { return convert<T>(x + y); }, result + i * arguments.n, sums,
                        shift);
                else
                    narrow_span(columns, result + i * arguments.n, sums);
            }
        }
    });
}

template <typename T, typename Arguments> TALLOW_INLINE void multiply_matrices(const Arguments& arguments) {
#if defined(TALLOW_PAIRS)
    if constexpr (is_same<T, bf16>)
        if (has_pairs() && arguments.m > max_rows_of_floats)
            return multiply_sides<T, PairSides>(arguments);
#endif
    multiply_sides<T, NumberSides<T>>(arguments);
}

} // namespace tallow
