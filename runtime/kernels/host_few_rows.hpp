// Products of a few rows with the transpose of a matrix on the host.
#pragma once

#include "blocks.hpp"
#include "math.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

constexpr uint32_t max_rows = 8;
// Rows of x and of the matrix that are multiplied at once: their sums stay in registers, of which AVX2 has 16 and the
// others 32.
#if defined(__AVX512F__)
constexpr uint64_t register_bytes = 64;
constexpr uint32_t sum_registers = 16;
#elif defined(__AVX2__)
constexpr uint64_t register_bytes = 32;
constexpr uint32_t sum_registers = 12;
#else
constexpr uint64_t register_bytes = 16;
constexpr uint32_t sum_registers = 24;
#endif
constexpr uint32_t matrix_group = 4;
constexpr uint32_t pair_group = 2;
constexpr uint32_t joined_x_rows = sum_registers < 16 ? 3 : 4;
// Numbers of rows of the matrix that stay in the nearest cache where they are read again.
constexpr uint64_t chunk_length = 1024;
// Whether numbers are converted to floats in registers.
template <typename T> constexpr bool is_near_float = is_same<T, bf16>;
// Bytes of the matrix that a part reads, roughly.
constexpr uint64_t product_bytes = 1 << 17;

// Gives `count` numbers of a row of the matrix from `first` on: those themselves, or floats in `buffer`.
template <typename T> struct Elements {
    static constexpr bool is_converted = is_small_float<T> && !is_near_float<T>;

    static auto load(const void* row, uint64_t first, uint64_t count, widened<T>* buffer) {
        const T* const source = static_cast<const T*>(row) + first;
        if constexpr (is_converted) {
            convert_span(count, buffer, source);
            return static_cast<const float*>(buffer);
        } else {
            return source;
        }
    }
};

// Those of floats that files have, each a block.
template <typename Block> struct Blocks {
    static constexpr bool is_converted = !is_same<Block, BlockF32>;

    static const float* load(const void* row, uint64_t first, uint64_t count, [[maybe_unused]] float* buffer) {
        const auto* const source = &static_cast<const Block*>(row)->value + first;
        if constexpr (is_converted) {
            convert_span(count, buffer, source);
            return buffer;
        } else {
            return source;
        }
    }
};

// A vector of numbers, or of floats that they become.
template <typename Register, typename Source> TALLOW_INLINE void load_vector(Register& result, const Source* numbers) {
    if constexpr (is_same<Source, bf16>) {
        // Their bits are the higher half of a float's.
        using Words = Vector<uint32_t, sizeof(Register)>;
        Vector<uint16_t, sizeof(Register) / 2> bits;
        __builtin_memcpy(&bits, numbers, sizeof bits);
        const Words words = __builtin_convertvector(bits, Words) << 16;
        __builtin_memcpy(&result, &words, sizeof result);
    } else {
        __builtin_memcpy(&result, numbers, sizeof result);
    }
}

// Adds the products of a part of the activation rows, whose stride is `step`, with the same parts of rows of the
// matrix, lane by lane. The order of a sum is that of its numbers alone: lanes are those of a line, of which registers
// may have a part. What is `ahead` bytes from the rows of the matrix is needed next: Intel's processors do not find
// several rows by themselves. The first part of a row begins the sums.
template <uint32_t Rows, uint32_t Group, typename T, typename Source>
TALLOW_JOINING void add_products(uint64_t count, const T* x, uint64_t step, const Source* const* matrix, uint64_t ahead,
                                 bool is_first, Vector<T> (*result)[Group]) {
    TALLOW_JOIN
    using Register = Vector<T, register_bytes>;
    constexpr uint64_t lanes = vector_length<T>;
    constexpr uint32_t registers = line_bytes / register_bytes;
    constexpr uint32_t together = Rows * Group * registers <= sum_registers ? registers : 1;
    const uint64_t aligned_count = count / lanes * lanes;
    for (uint32_t first = 0; first < registers; first += together) {
        Register sums[Rows][Group][together];
        if (is_first)
            __builtin_memset(sums, 0, sizeof sums);
        else
            for (uint32_t row = 0; row < Rows; ++row)
                for (uint32_t k = 0; k < Group; ++k)
                    __builtin_memcpy(sums[row][k], reinterpret_cast<const Register*>(&result[row][k]) + first,
                                     sizeof sums[row][k]);
        for (uint64_t i = first * (lanes / registers); i < aligned_count; i += lanes) {
#pragma GCC unroll 4
            for (uint32_t part = 0; part < together; ++part) {
                Register left[Rows];
#pragma GCC unroll 4
                for (uint32_t row = 0; row < Rows; ++row)
                    load_vector(left[row], x + row * step + i + part * (lanes / registers));
#pragma GCC unroll 4
                for (uint32_t k = 0; k < Group; ++k) {
                    if (ahead != 0 && part == 0)
                        __builtin_prefetch(reinterpret_cast<const uint8_t*>(matrix[k] + i) + ahead);
                    Register right;
                    load_vector(right, matrix[k] + i + part * (lanes / registers));
#pragma GCC unroll 4
                    for (uint32_t row = 0; row < Rows; ++row)
                        sums[row][k][part] += left[row] * right;
                }
            }
        }
        for (uint32_t row = 0; row < Rows; ++row)
            for (uint32_t k = 0; k < Group; ++k)
                __builtin_memcpy(reinterpret_cast<Register*>(&result[row][k]) + first, sums[row][k],
                                 sizeof sums[row][k]);
        ahead = 0;
    }
    for (uint64_t at = 0; aligned_count + at < count; ++at)
        for (uint32_t row = 0; row < Rows; ++row)
            for (uint32_t k = 0; k < Group; ++k)
                result[row][k][at] = fma(x[row * step + aligned_count + at], convert<T>(matrix[k][aligned_count + at]),
                                         result[row][k][at]);
}

// Those of any number of activation rows, in parts of nearly as many as `Rows`.
template <uint32_t Rows, uint32_t Group, typename T, typename Source>
TALLOW_INLINE void add_rows_of_products(uint64_t rows, uint64_t count, const T* x, uint64_t step,
                                        const Source* const* matrix, uint64_t ahead, bool is_first,
                                        Vector<T> (*result)[Group]) {
    // A single row of the last part would read the matrix for itself alone.
    for (; rows >= Rows && (rows != Rows + 1 || Rows < 3); rows -= Rows, x += Rows * step, result += Rows, ahead = 0)
        add_products<Rows, Group>(count, x, step, matrix, ahead, is_first, result);
    if constexpr (Rows > 1)
        if (rows != 0)
            add_rows_of_products<Rows - 1, Group>(rows, count, x, step, matrix, ahead, is_first, result);
}

#if defined(__clang__) || __GNUC__ >= 12
// The sums of lanes at distance `Step`: those of x in the lower lanes of each pair, those of y in the upper ones.
template <uint32_t Step, typename Vector> TALLOW_INLINE Vector add_exchanged(Vector x, Vector y) {
    exchange_lanes<Step>(x, y, typename LanesUpTo<sizeof(Vector) / sizeof(x[0])>::type());
    return x + y;
}

// The sums of all groups of `Count` lanes, in each of their lanes.
template <uint32_t Count, typename Vector> TALLOW_INLINE Vector add_groups(Vector x) {
    if constexpr (Count > 1)
        return add_groups<Count / 2>(add_exchanged<Count / 2>(x, x));
    else
        return x;
}
#endif

// The sums of the lanes of each vector, added up in the order of reduce_lanes: vectors share the additions.
template <typename T, uint32_t Group>
TALLOW_INLINE void sum_lanes(const Vector<T> (&vectors)[Group], T (&sums)[Group]) {
#if defined(__clang__) || __GNUC__ >= 12
    if constexpr (Group == 4) {
        constexpr uint32_t lanes = vector_length<T>;
        const Vector<T> all = add_groups<lanes / 4>(add_exchanged<lanes / 4>(
            add_exchanged<lanes / 2>(vectors[0], vectors[1]), add_exchanged<lanes / 2>(vectors[2], vectors[3])));
        const Vector<T, sizeof sums> packed = __builtin_shufflevector(all, all, 0, lanes / 2, lanes / 4, lanes / 4 * 3);
        __builtin_memcpy(&sums, &packed, sizeof sums);
        return;
    }
#endif
    for (uint32_t k = 0; k < Group; ++k)
        sums[k] = reduce_lanes<T>(vectors[k], Adds{});
}

// The products with the rows of the matrix from `output` on, several at once, and before `end`.
template <typename T, uint32_t Group, typename Matrix, typename Arguments>
TALLOW_INLINE void multiply_group(const Arguments& arguments, const widened<T>* x, uint64_t output, uint64_t end) {
    using Compute = widened<T>;
    const uint64_t length = arguments.length;
    const uint64_t outputs = arguments.outputs;
    const bool is_read_again = arguments.rows * Group * (line_bytes / register_bytes) > sum_registers;
    const uint64_t together = Matrix::is_converted ? span_part : is_read_again ? chunk_length : length;
    constexpr uint32_t x_rows = Group == matrix_group ? joined_x_rows : 2;
    const T* const biases = pointer_to<const T>(arguments.bias);
    Vector<Compute> sums[max_rows][Group];
    for (uint64_t first = 0; first < length; first += together) {
        const uint64_t count = length - first < together ? length - first : together;
        Compute buffer[Group][Matrix::is_converted ? span_part : 1];
        decltype(Matrix::load(nullptr, first, count, buffer[0])) rows[Group];
        for (uint32_t k = 0; k < Group; ++k) {
            // Behind the last row it is multiplied again.
            const uint64_t row = output + k < end ? output + k : end - 1;
            const uint64_t address = arguments.matrix + row * static_cast<uint64_t>(arguments.step);
            rows[k] = Matrix::load(pointer_to<const void>(address), first, count, buffer[k]);
        }
        const uint64_t ahead = Matrix::is_converted ? 0 : Group * static_cast<uint64_t>(arguments.step);
        add_rows_of_products<x_rows, Group>(arguments.rows, count, x + first, length, rows, ahead, first == 0, sums);
    }
    for (uint64_t i = 0; i < arguments.rows; ++i) {
        Compute totals[Group];
        sum_lanes(sums[i], totals);
        T* const result = pointer_to<T>(arguments.result) + i * outputs + output;
        const auto finish = [&](uint64_t count) {
            for (uint64_t k = 0; k < count; ++k)
                result[k] = convert<T>(biases ? totals[k] + to_compute(biases[output + k]) : totals[k]);
        };
        if (end - output >= Group)
            finish(Group);
        else
            finish(end - output);
    }
}

// The products with the rows of the matrix from `begin` to `end`.
template <typename T, typename Matrix, typename Arguments>
TALLOW_INLINE void multiply_range(const Arguments& arguments, const widened<T>* x, uint64_t begin, uint64_t end) {
    // As lines of full registers, without reading the matrix again, two rows have these sums.
    const bool is_pair = arguments.rows == 2 && 2 * matrix_group * (line_bytes / register_bytes) > sum_registers;
    for (uint64_t output = begin; output < end; output += is_pair ? pair_group : matrix_group) {
        if (is_pair)
            multiply_group<T, pair_group, Matrix>(arguments, x, output, end);
        else
            multiply_group<T, matrix_group, Matrix>(arguments, x, output, end);
    }
}

// How many rows of the matrix a part multiplies.
template <typename Arguments> TALLOW_INLINE uint64_t rows_of_part(const Arguments& arguments) {
    const auto bytes = static_cast<uint64_t>(arguments.step < 0 ? -arguments.step : arguments.step);
    return (product_bytes / (bytes + 1) / matrix_group + 1) * matrix_group;
}

// One row of x is multiplied with the rows of the matrix in the order of memory.
template <typename T, typename Matrix, typename Arguments>
TALLOW_INLINE void multiply_rows(const Arguments& arguments, const widened<T>* x) {
    const uint64_t outputs = arguments.outputs, part_rows = rows_of_part(arguments);
    do_parts(arguments, (outputs + part_rows - 1) / part_rows, [=, &arguments](uint64_t part) {
        const uint64_t begin = part * part_rows, most = begin + part_rows;
        multiply_range<T, Matrix>(arguments, x, begin, most < outputs ? most : outputs);
    });
}

// The activation rows as numbers that are computed with.
template <typename T, typename Arguments> TALLOW_INLINE const widened<T>* computed_rows(const Arguments& arguments) {
    const T* const x = pointer_to<const T>(arguments.x);
    if constexpr (is_small_float<T>) {
        float* const buffer = pointer_to<float>(arguments.x_floats);
        convert_span(arguments.rows * arguments.length, buffer, x);
        return buffer;
    } else {
        return x;
    }
}

template <typename T, typename Arguments> TALLOW_INLINE void product_of_rows(const Arguments& arguments) {
    multiply_rows<T, Elements<T>>(arguments, computed_rows<T>(arguments));
}

// Columns of the matrix in a part, and rows whose products are added up before they are added to the other sums.
constexpr uint32_t part_columns = 256;
constexpr uint32_t combined_rows = 16;

// Adds the products of numbers with rows, whose stride is `step`, to sums.
template <typename Compute, typename T>
TALLOW_INLINE void add_scaled_rows(uint64_t columns, const Compute* numbers, uint64_t rows, const T* matrix,
                                   int64_t step, Compute* sums) {
    constexpr uint32_t lanes = 256 / sizeof(Compute);
    uint64_t column = 0;
    for (; column + lanes <= columns; column += lanes) {
        Compute total[lanes] = {};
        for (uint64_t row = 0; row < rows; ++row) {
            const T* const source = matrix + static_cast<int64_t>(row) * step + column;
            for (uint32_t lane = 0; lane < lanes; ++lane)
                total[lane] = fma(convert<Compute>(source[lane]), numbers[row], total[lane]);
        }
        for (uint32_t lane = 0; lane < lanes; ++lane)
            sums[column + lane] += total[lane];
    }
    for (; column < columns; ++column) {
        Compute total = 0;
        for (uint64_t row = 0; row < rows; ++row)
            total = fma(convert<Compute>(matrix[static_cast<int64_t>(row) * step + static_cast<int64_t>(column)]),
                        numbers[row], total);
        sums[column] += total;
    }
}

// The products with a part of the columns of the matrix.
template <typename T, typename Arguments>
__attribute__((noinline)) void multiply_columns(const Arguments& arguments, const widened<T>* x, uint64_t first) {
    using Compute = widened<T>;
    const uint64_t outputs = arguments.outputs;
    const uint64_t columns = outputs - first < part_columns ? outputs - first : part_columns;
    const int64_t step = arguments.step / static_cast<int64_t>(sizeof(T));
    const T* const matrix = pointer_to<const T>(arguments.matrix) + first;
    const T* const biases = pointer_to<const T>(arguments.bias);
    const bool is_direct = !is_small_float<T> || (is_near_float<T> && arguments.rows <= 2);
    Compute sums[max_rows][part_columns];
    __builtin_memset(sums, 0, arguments.rows * sizeof(sums[0]));
    Compute buffer[combined_rows][part_columns];
    for (uint64_t k = 0; k < arguments.length; k += combined_rows) {
        const uint64_t rows = arguments.length - k < combined_rows ? arguments.length - k : combined_rows;
        const T* const source = matrix + static_cast<int64_t>(k) * step;
        for (uint64_t row = 0; row < rows; ++row) {
            const T* const here = source + static_cast<int64_t>(row) * step;
            // Rows are far from each other: no hardware prefetcher would fetch the next ones in time.
            if (k + row + combined_rows < arguments.length)
                for (uint64_t column = 0; column < columns; column += line_bytes / sizeof(T))
                    __builtin_prefetch(here + combined_rows * step + static_cast<int64_t>(column));
            if constexpr (is_small_float<T>)
                if (!is_direct)
                    convert_span(columns, buffer[row], here);
        }
        for (uint64_t i = 0; i < arguments.rows; ++i) {
            const Compute* const numbers = x + i * arguments.length + k;
            if (!is_direct)
                add_scaled_rows<Compute>(columns, numbers, rows, &buffer[0][0], part_columns, sums[i]);
            else if constexpr (!is_small_float<T> || is_near_float<T>)
                add_scaled_rows<Compute>(columns, numbers, rows, source, step, sums[i]);
        }
    }
    for (uint64_t i = 0; i < arguments.rows; ++i)
        for (uint64_t column = 0; column < columns; ++column) {
            const Compute sum = biases ? sums[i][column] + to_compute(biases[first + column]) : sums[i][column];
            pointer_to<T>(arguments.result)[i * outputs + first + column] = convert<T>(sum);
        }
}

// The product with a matrix that is not transposed: the stride of its rows is `step` bytes, and each has all outputs.
template <typename T, typename Arguments> TALLOW_INLINE void product_of_columns(const Arguments& arguments) {
    const widened<T>* const x = computed_rows<T>(arguments);
    do_parts(arguments, (arguments.outputs + part_columns - 1) / part_columns,
             [=, &arguments](uint64_t part) { multiply_columns<T>(arguments, x, part * part_columns); });
}

template <typename Block, typename Arguments> TALLOW_INLINE void product_of_block_rows(const Arguments& arguments) {
    multiply_rows<float, Blocks<Block>>(arguments, pointer_to<const float>(arguments.x));
}

} // namespace tallow
