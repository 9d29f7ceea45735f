// Products of matrices on the host by tiles: what is multiplied is converted for blocks that stay in the cache.
#pragma once

#include "numbers.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

// Rows of a strip of a tile, which is two vectors wide, or one at its end, and keeps its sums in registers.
#if defined(__AVX512F__)
constexpr uint32_t vector_bytes = 64;
constexpr uint32_t strip_rows = 8;
#else
constexpr uint32_t vector_bytes = 32;
constexpr uint32_t strip_rows = 6;
#endif
constexpr uint32_t strip_vectors = 2;
// Strips of a tile of one row that are computed at once.
constexpr uint32_t line_strips = 4;

// Rows of a tile, a multiple of every strip's.
constexpr uint32_t tile_rows = 96;

// What a thread has in the cache: a block of terms of both sides, and the sums of a tile. So many terms are added up in
// registers, then what comes of such blocks: sums depend on the number of terms alone, not on the sizes of tiles.
template <typename T> struct alignas(64) Tile {
    typedef T Vector __attribute__((vector_size(vector_bytes), aligned(sizeof(T)), may_alias));
    static constexpr uint32_t lanes = vector_bytes / sizeof(T);
    static constexpr uint32_t strip_columns = strip_vectors * lanes;
    static_assert(tile_sums % strip_columns == 0);
    // Rows that follow one another lie in different sets of the cache.
    static constexpr uint32_t lhs_stride = tile_terms + 16;

    T lhs[tile_rows * lhs_stride];
    T rhs[tile_numbers];
    T sums[tile_sums];
    // Where in `rhs` the row of each term begins.
    uint32_t offsets[tile_terms];

    static Tile& of_thread() {
        static thread_local Tile tile;
        return tile;
    }
};

// Adds to `Rows` rows of sums, `Vectors` wide, the products of the terms in each row of `lhs` and column of `rhs`.
// The stride of rows of `lhs` is `RowStep`, that of their terms `TermStep`.
template <uint32_t Rows, uint32_t Vectors, uint32_t RowStep, uint32_t TermStep, typename T>
TALLOW_JOINING void multiply_strip(const T* lhs, const T* rhs, const uint32_t* offsets, uint32_t terms, T* sums,
                                   uint64_t stride) {
    TALLOW_JOIN
    using Vector = typename Tile<T>::Vector;
    Vector accumulators[Rows][Vectors] = {};
    // An index as wide as an address needs no arithmetic of its own.
    for (uint64_t k = 0; k < terms; ++k) {
        Vector right[Vectors];
        for (uint32_t j = 0; j < Vectors; ++j)
            right[j] = *reinterpret_cast<const Vector*>(rhs + offsets[k] + j * Tile<T>::lanes);
        for (uint32_t i = 0; i < Rows; ++i)
            for (uint32_t j = 0; j < Vectors; ++j)
                accumulators[i][j] += lhs[i * RowStep + k * TermStep] * right[j];
    }
    for (uint32_t i = 0; i < Rows; ++i)
        for (uint32_t j = 0; j < Vectors; ++j)
            *reinterpret_cast<Vector*>(sums + i * stride + j * Tile<T>::lanes) += accumulators[i][j];
}

template <uint32_t Rows, uint32_t Vectors, uint32_t RowStep, uint32_t TermStep, typename T, typename... Others>
TALLOW_INLINE void multiply_rows(uint32_t rows, const T* lhs, const T* rhs, Others... others) {
    if (rows >= Rows)
        multiply_strip<Rows, Vectors, RowStep, TermStep>(lhs, rhs, others...);
    else if constexpr (Rows > 1)
        multiply_rows<Rows - 1, Vectors, RowStep, TermStep>(rows, lhs, rhs, others...);
}

// Adds to some strips of one row of sums the products of the terms and each column: a strip of one row waits for sums.
template <uint32_t Strips, uint32_t TermStep, typename T>
TALLOW_JOINING void multiply_line(const T* lhs, const T* rhs, const uint32_t* offsets, uint32_t terms, T* sums) {
    TALLOW_JOIN
    using Vector = typename Tile<T>::Vector;
    constexpr uint32_t vectors = Strips * strip_vectors;
    Vector accumulators[vectors] = {};
    for (uint64_t k = 0; k < terms; ++k)
        for (uint32_t j = 0; j < vectors; ++j)
            accumulators[j] +=
                lhs[k * TermStep] * *reinterpret_cast<const Vector*>(rhs + offsets[k] + j * Tile<T>::lanes);
    for (uint32_t j = 0; j < vectors; ++j)
        *reinterpret_cast<Vector*>(sums + j * Tile<T>::lanes) += accumulators[j];
}

template <uint32_t Strips, uint32_t TermStep, typename T, typename... Others>
TALLOW_INLINE void multiply_some_strips(uint32_t strips, const T* lhs, const T* rhs, Others... others) {
    if (strips >= Strips)
        multiply_line<Strips, TermStep>(lhs, rhs, others...);
    else if constexpr (Strips > 1)
        multiply_some_strips<Strips - 1, TermStep>(strips, lhs, rhs, others...);
}

// Adds products to sums of any number of rows and of full strips of columns.
template <uint32_t RowStep, uint32_t TermStep, typename T>
TALLOW_INLINE void multiply_strips(uint32_t rows, uint32_t columns, const T* lhs, const T* rhs, const uint32_t* offsets,
                                   uint32_t terms, T* sums, uint64_t stride) {
    if (rows == 1) {
        for (uint32_t column = 0; column < columns; column += line_strips * Tile<T>::strip_columns)
            multiply_some_strips<line_strips, TermStep>((columns - column + Tile<T>::strip_columns - 1) /
                                                            Tile<T>::strip_columns,
                                                        lhs, rhs + column, offsets, terms, sums + column);
        return;
    }
    const auto multiply = [=](auto multiply_some_rows, uint32_t column) {
        for (uint32_t row = 0; row < rows; row += strip_rows)
            multiply_some_rows(rows - row, lhs + row * RowStep, rhs + column, sums + row * stride + column);
    };
    const auto wide = [=](uint32_t count, const T* left, const T* right, T* to) {
        multiply_rows<strip_rows, strip_vectors, RowStep, TermStep>(count, left, right, offsets, terms, to, stride);
    };
    const auto narrow = [=](uint32_t count, const T* left, const T* right, T* to) {
        multiply_rows<strip_rows, 1, RowStep, TermStep>(count, left, right, offsets, terms, to, stride);
    };
    uint32_t column = 0;
    for (; column + Tile<T>::lanes < columns; column += Tile<T>::strip_columns)
        multiply(wide, column);
    if (column < columns)
        multiply(narrow, column);
}

// Adds the product of a tile's sides to sums with a row stride: of full strips of columns; those past `columns` are
// undefined.
template <typename T>
TALLOW_INLINE void multiply_tile(const Tile<T>& tile, uint32_t rows, uint32_t columns, uint32_t terms, T* sums,
                                 uint32_t stride) {
    multiply_strips<Tile<T>::lhs_stride, 1>(rows, columns, tile.lhs, tile.rhs, tile.offsets, terms, sums, stride);
}

// Elements of up to a vector, without a call: two parts of it that may overlap.
template <typename T> TALLOW_INLINE void copy_short(uint64_t nbytes, T* target, const T* source) {
    const auto to = reinterpret_cast<unsigned char*>(target);
    const auto from = reinterpret_cast<const unsigned char*>(source);
    const auto copy_ends = [&](auto part) {
        constexpr uint64_t length = sizeof part;
        unsigned char first[length], last[length];
        __builtin_memcpy(first, from, length);
        __builtin_memcpy(last, from + nbytes - length, length);
        __builtin_memcpy(to, first, length);
        __builtin_memcpy(to + nbytes - length, last, length);
    };
    if (nbytes >= 32)
        copy_ends(Vector<T, 32>{});
    else if (nbytes >= 16)
        copy_ends(Vector<T, 16>{});
    else if (nbytes >= 8)
        copy_ends(uint64_t{});
    else if (nbytes >= sizeof(T))
        *target = *source;
}
template <typename T> TALLOW_INLINE void copy_span(uint64_t count, T* target, const T* source) {
    constexpr uint64_t lanes = 64 / sizeof(T), few = 8 * lanes;
    if (count <= lanes) {
        copy_short(count * sizeof(T), target, source);
    } else if (count <= few) {
        // Rows of images are short: a call of memcpy takes longer. The last vector may overlap the one before it.
        for (uint64_t i = 0; i < count - lanes; i += lanes)
            __builtin_memcpy(target + i, source + i, 64);
        __builtin_memcpy(target + count - lanes, source + count - lanes, 64);
    } else {
        __builtin_memcpy(target, source, count * sizeof(T));
    }
}

template <typename T> TALLOW_INLINE void widen_span(uint64_t count, compute_type<T>* result, const T* source) {
    if constexpr (is_small_float<T>)
        convert_span(count, result, source);
    else
        copy_span(count, result, source);
}
template <typename T> TALLOW_INLINE void narrow_span(uint64_t count, T* result, const compute_type<T>* source) {
    if constexpr (is_small_float<T>)
        convert_span(count, result, source);
    else
        copy_span(count, result, source);
}
// Every other element of two vectors, from element `First` on.
template <uint32_t First, typename Lanes, uint32_t... I>
TALLOW_INLINE Lanes every_other(const Lanes& left, const Lanes& right, Numbers<I...>) {
#if defined(__clang__)
    return __builtin_shufflevector(left, right, (2 * I + First)...);
#else
    return __builtin_shuffle(left, right, decltype(left < right){2 * I + First...});
#endif
}

// Every other element. The last vector ends with the last element, after which there may be none, and overlaps the one
// before it; few elements take shorter vectors.
template <uint32_t Lanes, typename T> TALLOW_INLINE void copy_every_other(uint64_t count, T* result, const T* source) {
    if (count > Lanes) {
        const typename CountUp<Lanes>::type order;
        Vector<T, Lanes * sizeof(T)> parts[2];
        for (uint64_t i = 0; i + Lanes < count; i += Lanes) {
            __builtin_memcpy(parts, source + 2 * i, sizeof parts);
            parts[0] = every_other<0>(parts[0], parts[1], order);
            __builtin_memcpy(result + i, parts, sizeof parts[0]);
        }
        __builtin_memcpy(parts, source + 2 * (count - Lanes) - 1, sizeof parts);
        parts[0] = every_other<1>(parts[0], parts[1], order);
        __builtin_memcpy(result + count - Lanes, parts, sizeof parts[0]);
    } else if constexpr (Lanes > 2)
        copy_every_other<Lanes / 2>(count, result, source);
    else
        for (uint64_t i = 0; i < count; ++i)
            result[i] = source[2 * i];
}

// Elements with a stride of `step`.
template <typename T> TALLOW_INLINE void copy_strided(uint64_t count, T* result, const T* source, int64_t step) {
    if (step == 2)
        copy_every_other<vector_bytes / sizeof(T)>(count, result, source);
    else
        for (uint64_t i = 0; i < count; ++i)
            result[i] = source[static_cast<int64_t>(i) * step];
}
template <typename T>
TALLOW_INLINE void widen_strided(uint64_t count, compute_type<T>* result, const T* source, int64_t step) {
    if (step == 1)
        widen_span(count, result, source);
    else if constexpr (!is_small_float<T>)
        copy_strided(count, result, source, step);
    else
        for (uint64_t i = 0; i < count; ++i)
            result[i] = to_compute(source[static_cast<int64_t>(i) * step]);
}

} // namespace tallow
