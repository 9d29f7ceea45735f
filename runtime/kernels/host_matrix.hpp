// Determinants, solutions and Cholesky factors of small square matrices, for which calling LAPACK takes longer than
// computing. Floats are computed in doubles. All results of a matrix with a NaN or an infinity are NaN.
#pragma once

#include "complex.hpp"
#include "host_indexes.hpp"
#include "parts.hpp"

namespace tallow {

// Numbers of the matrices of a part, roughly.
constexpr uint64_t matrix_numbers = 1 << 12;

template <typename T> struct Doubled {
    using type = double;
};
template <typename R> struct Doubled<Complex<R>> {
    using type = complex128;
};
template <typename T> using doubled = typename Doubled<T>::type;

TALLOW_INLINE double real(double x) {
    return x;
}
TALLOW_INLINE double conj(double x) {
    return x;
}
// As LAPACK compares pivots.
TALLOW_INLINE double pivot_size(double x) {
    return fabs(x);
}
TALLOW_INLINE double pivot_size(complex128 z) {
    return fabs(z.real) + fabs(z.imag);
}
TALLOW_INLINE double scaled(double x, int power) {
    return __builtin_ldexp(x, power);
}
TALLOW_INLINE complex128 scaled(complex128 z, int power) {
    return {__builtin_ldexp(z.real, power), __builtin_ldexp(z.imag, power)};
}

// A square matrix in doubles, of up to max_matrix_rows rows.
template <typename T> struct SmallMatrix {
    using Number = doubled<T>;
    Number at[max_matrix_rows][max_matrix_rows];
    uint32_t size;
    // The row of the source that is in each row, and whether that is an odd permutation.
    uint32_t order[max_matrix_rows];
    bool is_odd = false;
    bool is_finite;

    TALLOW_INLINE SmallMatrix(const T* source, uint64_t side, bool is_lower) : size(static_cast<uint32_t>(side)) {
        double sum = 0;
        for (uint32_t i = 0; i < size; ++i) {
            const uint32_t columns = is_lower ? i + 1 : size;
            for (uint32_t j = 0; j < columns; ++j) {
                const auto number = convert<Number>(source[i * side + j]);
                at[i][j] = number;
                sum += pivot_size(number) * 0;
            }
            order[i] = i;
        }
        is_finite = sum == 0;
    }

    // Replaces the matrix by the triangles whose product is its rows in `order`; the lower one has ones on its
    // diagonal. False where a pivot is 0.
    TALLOW_INLINE bool factor() {
        for (uint32_t k = 0; k < size; ++k) {
            uint32_t largest = k;
            for (uint32_t i = k + 1; i < size; ++i)
                if (pivot_size(at[i][k]) > pivot_size(at[largest][k]))
                    largest = i;
            if (pivot_size(at[largest][k]) == 0)
                return false;
            if (largest != k) {
                for (uint32_t j = 0; j < size; ++j)
                    swap(at[k][j], at[largest][j]);
                swap(order[k], order[largest]);
                is_odd = !is_odd;
            }
            for (uint32_t i = k + 1; i < size; ++i) {
                const Number share = at[i][k] / at[k][k];
                at[i][k] = share;
                for (uint32_t j = k + 1; j < size; ++j)
                    at[i][j] = at[i][j] - share * at[k][j];
            }
        }
        return true;
    }

    // Replaces the lower triangle by L, where the matrix is L L^H. False where that is not positive definite.
    TALLOW_INLINE bool factor_definite() {
        for (uint32_t j = 0; j < size; ++j) {
            double square = real(at[j][j]);
            for (uint32_t k = 0; k < j; ++k)
                square -= real(at[j][k] * conj(at[j][k]));
            if (!(square > 0))
                return false;
            const double root = sqrt(square);
            at[j][j] = root;
            for (uint32_t i = j + 1; i < size; ++i) {
                Number sum = at[i][j];
                for (uint32_t k = 0; k < j; ++k)
                    sum = sum - at[i][k] * conj(at[j][k]);
                at[i][j] = sum * Number(1 / root);
            }
        }
        return true;
    }

  private:
    template <typename X> static TALLOW_INLINE void swap(X& x, X& y) {
        const X other = x;
        x = y;
        y = other;
    }
};

// Calls function(number, matrix) for each matrix.
template <typename T, typename Arguments, typename Function>
TALLOW_INLINE void for_matrices(const Arguments& arguments, bool is_lower, const Function& function) {
    const uint64_t side = arguments.side, count = arguments.matrices;
    const uint64_t together = matrix_numbers / (side * side) + 1;
    do_parts(arguments, (count + together - 1) / together, [&](uint64_t part) {
        const uint64_t end = (part + 1) * together < count ? (part + 1) * together : count;
        for (uint64_t number = part * together; number < end; ++number) {
            SmallMatrix<T> matrix(pointer_to<const T>(arguments.source) + number * side * side, side, is_lower);
            function(number, matrix);
        }
    });
}

// The determinant, or its sign and the logarithm of its absolute value.
template <typename T, bool HasLogarithm, typename Arguments>
TALLOW_INLINE void determinants(const Arguments& arguments) {
    using Number = doubled<T>;
    for_matrices<T>(arguments, false, [&](uint64_t number, SmallMatrix<T>& matrix) {
        // A number near 1 times a power of two, so that no part of the product overflows.
        Number product(matrix.is_finite ? 1 : not_a_number<double>());
        int64_t power = 0;
        if (matrix.is_finite && !matrix.factor()) {
            product = 0;
        } else if (matrix.is_finite) {
            for (uint32_t k = 0; k < matrix.size; ++k) {
                int exponent;
                product = product * matrix.at[k][k];
                __builtin_frexp(pivot_size(product), &exponent);
                product = scaled(product, -exponent);
                power += exponent;
            }
            product = matrix.is_odd ? -product : product;
        }
        const auto result = pointer_to<T>(arguments.result) + number;
        if constexpr (HasLogarithm) {
            *result = convert<T>(sign(product));
            pointer_to<real_of<T>>(arguments.logarithm)[number] =
                static_cast<real_of<T>>(log(abs(product)) + static_cast<double>(power) * 0.6931471805599453);
        } else {
            constexpr int64_t most = 4096;
            *result = convert<T>(scaled(product, static_cast<int>(power > most    ? most
                                                                  : power < -most ? -most
                                                                                  : power)));
        }
    });
}

// Solves for `columns` columns of values for each matrix, some of them at a time.
template <typename T, typename Arguments> TALLOW_INLINE void solve_matrices(const Arguments& arguments) {
    using Number = doubled<T>;
    const uint64_t columns = arguments.columns;
    for_matrices<T>(arguments, false, [&](uint64_t number, SmallMatrix<T>& matrix) {
        const uint32_t size = matrix.size;
        const bool is_finite = matrix.is_finite;
        if (is_finite && !matrix.factor()) {
            report_index(arguments, 0);
            return;
        }
        const uint64_t offset = number * size * columns;
        const T* const values = pointer_to<const T>(arguments.values) + offset;
        T* const result = pointer_to<T>(arguments.result) + offset;
        for (uint64_t first = 0; first < columns; first += max_matrix_rows) {
            const auto count =
                static_cast<uint32_t>(columns - first < max_matrix_rows ? columns - first : max_matrix_rows);
            Number solved[max_matrix_rows][max_matrix_rows];
            double sums[max_matrix_rows];
            for (uint32_t c = 0; c < count; ++c)
                sums[c] = is_finite ? 0 : not_a_number<double>();
            for (uint32_t i = 0; i < size; ++i) {
                for (uint32_t c = 0; c < count; ++c) {
                    solved[i][c] = convert<Number>(values[matrix.order[i] * columns + first + c]);
                    sums[c] += pivot_size(solved[i][c]) * 0;
                }
                for (uint32_t k = 0; k < i; ++k)
                    for (uint32_t c = 0; c < count; ++c)
                        solved[i][c] = solved[i][c] - matrix.at[i][k] * solved[k][c];
            }
            for (uint32_t i = size; i-- > 0;) {
                for (uint32_t k = i + 1; k < size; ++k)
                    for (uint32_t c = 0; c < count; ++c)
                        solved[i][c] = solved[i][c] - matrix.at[i][k] * solved[k][c];
                for (uint32_t c = 0; c < count; ++c) {
                    solved[i][c] = solved[i][c] / matrix.at[i][i];
                    // The sum is 0, or NaN where a value of the column is not finite.
                    result[i * columns + first + c] = convert<T>(solved[i][c] + Number(sums[c]));
                }
            }
        }
    });
}

// Lower triangles L, where matrices are L L^H.
template <typename T, typename Arguments> TALLOW_INLINE void cholesky_factors(const Arguments& arguments) {
    using Number = doubled<T>;
    for_matrices<T>(arguments, true, [&](uint64_t number, SmallMatrix<T>& matrix) {
        if (matrix.is_finite && !matrix.factor_definite()) {
            report_index(arguments, 0);
            return;
        }
        const uint32_t size = matrix.size;
        T* const result = pointer_to<T>(arguments.result) + number * size * size;
        for (uint32_t i = 0; i < size; ++i)
            for (uint32_t j = 0; j < size; ++j)
                result[i * size + j] = convert<T>(!matrix.is_finite ? Number(not_a_number<double>())
                                                  : j > i           ? Number(0)
                                                                    : matrix.at[i][j]);
    });
}

} // namespace tallow
