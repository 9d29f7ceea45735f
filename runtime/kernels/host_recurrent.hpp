// One step of recurrent layers on the host and its gradient, apart from the products with weights; and all steps of a
// sequence, with their products.
#pragma once

#include "host_few_rows.hpp"
#include "host_rows.hpp"
#include "packed_product.hpp"
#include "recurrent_cells.hpp"

namespace tallow {

template <typename T> struct FunctionsOf {
    using type = CellFunctions;
};
#if defined(TALLOW_VECTOR)
// To 16 bits, for cells of bf16, with exact limits: short polynomials and no division, which takes longer.
struct BriefCellFunctions {
    // e**x of x <= 0, as (1 + excess) * 2**n. The last bits of `exponent` are those of n + Added.
    template <uint32_t Added> static TALLOW_INLINE FloatExponential exponential(float x) {
        // Adding 1.5 * 2**23 leaves the nearest integer in the last bits.
        constexpr float shift = 12582912.0f + Added;
        const float shifted = fma(x, 1.44269504f, shift);
        const float rest = fma(shifted - shift, -0.693147181f, x);
        const float powers = polynomial(rest, 0.50005116, 0.16753514, 0.04127775);
        return {fma(rest * rest, powers, rest), bit_cast<uint32_t>(shifted)};
    }
    // 1 / (1 + x) for 0 <= x <= 1, which is exact at 0: the best polynomial, off by 2**-9, and a step of Newton's.
    static TALLOW_INLINE float reciprocal_above_one(float x) {
        const float near = polynomial(x, 1.0, -0.95649804, 0.69250511, -0.23708868);
        return near * fma(-(1.0f + x), near, 2.0f);
    }
    static TALLOW_INLINE float gate(float x) {
        const float size = -fabs(x);
        const FloatExponential power = exponential<127 + 24>(size < -104.0f ? -104.0f : size);
        // The last product alone may be subnormal.
        const float raised = (1.0f + power.excess) * float_of_exponent(power.exponent);
        const float larger = reciprocal_above_one(raised * 0x1p-24f);
        return x < 0 ? raised * larger * 0x1p-24f : larger;
    }
    static TALLOW_INLINE float candidate(float x) {
        const float size = -2.0f * fabs(x);
        const FloatExponential power = exponential<127>(size < -40.0f ? -40.0f : size);
        const float one = float_of_exponent(power.exponent);
        const float decay = fma(power.excess, one, one - 1.0f);
        return copysign(decay * reciprocal_above_one(1.0f + decay), x);
    }
};
template <> struct FunctionsOf<bf16> {
    using type = BriefCellFunctions;
};
#endif

// Numbers as a loop of vectors reads and writes them: those that it cannot convert are converted before and behind it.
template <typename T, bool Near = is_near_float<T>> struct Nearby {
    using type = widened<T>;

    static TALLOW_INLINE const type* source(uint64_t count, const T* memory, type* buffer) {
        return computed_span<T>(count, memory, buffer);
    }
    static TALLOW_INLINE type* result(T* memory, type* buffer) {
        return result_span<T>(memory, buffer);
    }
    static TALLOW_INLINE void finish(uint64_t count, T* memory, const type* computed) {
        finish_span<T>(count, memory, computed);
    }
};
template <typename T> struct Nearby<T, true> {
    using type = T;

    static TALLOW_INLINE const T* source(uint64_t count, const T* memory, T* buffer) {
        if (!memory)
            __builtin_memset(buffer, 0, count * sizeof(T));
        return memory ? memory : buffer;
    }
    static TALLOW_INLINE T* result(T* memory, T* buffer) {
        return memory ? memory : buffer;
    }
    static TALLOW_INLINE void finish(uint64_t, T*, const T*) {
    }
};
template <typename T> using nearby = typename Nearby<T>::type;

// Both parts of the gates of consecutive units.
template <typename Cell, typename T> struct GateSpans {
    using Value = widened<T>;
    nearby<T> buffers[3][Cell::gates][span_part];
    const nearby<T>* x[Cell::gates];
    const nearby<T>* h[Cell::gates];
    const nearby<T>* bias[Cell::gates];

    template <typename Arguments>
    TALLOW_INLINE GateSpans(const Arguments& arguments, uint64_t row, uint64_t first, uint64_t count) {
        const uint64_t length = arguments.length;
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            const uint64_t offset = k * length + first;
            x[k] = Nearby<T>::source(count,
                                     optional_pointer<const T>(arguments.gates, row * arguments.gates_stride + offset),
                                     buffers[0][k]);
            h[k] = Nearby<T>::source(count,
                                     optional_pointer<const T>(arguments.products, row * Cell::gates * length + offset),
                                     buffers[1][k]);
            bias[k] = Nearby<T>::source(count, optional_pointer<const T>(arguments.bias, offset), buffers[2][k]);
        }
    }
    TALLOW_INLINE void load(uint64_t i, Value (&of_x)[Cell::gates], Value (&of_h)[Cell::gates]) const {
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            of_x[k] = to_compute(x[k][i]);
            of_h[k] = to_compute(h[k][i]) + to_compute(bias[k][i]);
        }
    }
};

// True if a sequence is shorter: the step keeps its state.
template <typename Arguments> TALLOW_INLINE bool has_ended(const Arguments& arguments, uint64_t row) {
    return arguments.lengths &&
           pointer_to<const int64_t>(arguments.lengths)[row] <= static_cast<int64_t>(arguments.position);
}

// Calls visit(row, first, count) for up to span_part consecutive units at a time.
template <typename Arguments, typename Visit>
TALLOW_INLINE void visit_units(const Arguments& arguments, const Visit& visit) {
    run_rows(arguments, [&](uint64_t row) {
        const uint64_t length = arguments.length;
        for (uint64_t first = 0; first < length; first += span_part)
            visit(row, first, length - first < span_part ? length - first : span_part);
    });
}

// A step of consecutive units of a row, of which there are at most span_part.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void step_units(const Arguments& arguments, uint64_t row, uint64_t first, uint64_t count) {
    using Value = widened<T>;
    const uint64_t offset = row * arguments.length + first;
    T* const hidden = optional_pointer<T>(arguments.hidden, offset);
    T* const cell = optional_pointer<T>(arguments.cell, offset);
    const T* const last_hidden = optional_pointer<const T>(arguments.last_hidden, offset);
    const T* const last_cell = optional_pointer<const T>(arguments.last_cell, offset);
    if (has_ended(arguments, row)) {
        __builtin_memcpy(hidden, last_hidden, count * sizeof(T));
        if constexpr (Cell::has_cell)
            __builtin_memcpy(cell, last_cell, count * sizeof(T));
        return;
    }
    const GateSpans<Cell, T> gates(arguments, row, first, count);
    nearby<T> buffers[3][span_part];
    const nearby<T>* const state = Nearby<T>::source(count, Cell::has_cell ? last_cell : last_hidden, buffers[0]);
    nearby<T>* const new_hidden = Nearby<T>::result(hidden, buffers[1]);
    nearby<T>* const new_cell = Nearby<T>::result(cell, buffers[2]);
    TALLOW_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
        Value x[Cell::gates], h[Cell::gates];
        gates.load(i, x, h);
        const auto state_after = Cell::template step<typename FunctionsOf<T>::type>(x, h, to_compute(state[i]));
        new_hidden[i] = convert<nearby<T>>(state_after.hidden);
        if constexpr (Cell::has_cell)
            new_cell[i] = convert<nearby<T>>(state_after.cell);
    }
    Nearby<T>::finish(count, hidden, new_hidden);
    if constexpr (Cell::has_cell)
        Nearby<T>::finish(count, cell, new_cell);
}

template <typename Cell, typename T, typename Arguments> TALLOW_INLINE void recurrent_step(const Arguments& arguments) {
    visit_units(arguments, [&](uint64_t row, uint64_t first, uint64_t count) {
        step_units<Cell, T>(arguments, row, first, count);
    });
}

// The products of a state with the weight, of a few rows, as floats.
template <typename Cell, typename T> struct FewProducts {
    struct Arguments {
        uint64_t result, x, matrix, bias, x_floats, run_parts, rows, outputs, length;
        int64_t step;
        uint32_t threads;
    };
    Arguments arguments;
    const widened<T>* x = nullptr;

    template <typename Sequence>
    TALLOW_INLINE explicit FewProducts(const Sequence& sequence)
        : arguments{0,
                    0,
                    sequence.weight,
                    0,
                    sequence.x_floats,
                    sequence.run_parts,
                    sequence.rows,
                    Cell::gates * sequence.length,
                    sequence.length,
                    static_cast<int64_t>(sequence.length * sizeof(T)),
                    sequence.threads} {
    }
    // The matrix is in a cache after the first step, so half of a part is worth a thread.
    TALLOW_INLINE uint64_t units() const {
        const uint64_t limit = rows_of_part(arguments) / (2 * Cell::gates) / matrix_group * matrix_group;
        return limit < matrix_group ? matrix_group : limit < span_part ? limit : span_part;
    }
    TALLOW_INLINE void take(uint64_t state, uint64_t result) {
        arguments.x = state;
        arguments.result = result;
        x = computed_rows<T>(arguments);
    }
    TALLOW_INLINE void multiply(uint64_t first, uint64_t count) const {
        for (uint64_t k = 0; k < Cell::gates; ++k) {
            const uint64_t begin = k * arguments.length + first;
            multiply_range<T, Elements<T>>(arguments, x, begin, begin + count);
        }
    }
};

#if defined(TALLOW_PAIRS)
// The same of any number of rows, in tiles: the columns of all gates of 16 units follow one another.
template <typename Cell> struct PackedProducts {
    RowTiles state;
    uint32_t* weight;
    bf16* result = nullptr;
    uint32_t threads;

    template <typename Sequence>
    TALLOW_INLINE explicit PackedProducts(const Sequence& sequence)
        : state{sequence.rows, sequence.length, pointer_to<uint32_t>(sequence.packed)},
          weight(state.pairs + state.size()), threads(sequence.threads) {
        const uint64_t length = sequence.length;
        const int64_t steps[2] = {static_cast<int64_t>(length), 1};
        do_parts(sequence, groups(), [&](uint64_t group) {
            const uint64_t first = group * pair_side;
            const auto lines = static_cast<uint32_t>(length - first < pair_side ? length - first : pair_side);
            for (uint64_t k = 0; k < Cell::gates; ++k)
                take_pairs<0, false>(pointer_to<const bf16>(sequence.weight) + (k * length + first) * length, steps,
                                     lines, static_cast<uint32_t>(length),
                                     weight + (group * Cell::gates + k) * pairs_of_lines(length));
        });
    }
    TALLOW_INLINE uint64_t groups() const {
        return (state.terms + pair_side - 1) / pair_side;
    }
    TALLOW_INLINE uint64_t units() const {
        uint64_t most = 8;
        while (most > 1 && threads > 1 && groups() < most * threads)
            most /= 2;
        return most * pair_side;
    }
    TALLOW_INLINE void take(uint64_t from, uint64_t to) {
        state.take(pointer_to<const bf16>(from));
        result = pointer_to<bf16>(to);
    }
    TALLOW_INLINE void multiply(uint64_t first, uint64_t count) const {
        const uint64_t begin = first / pair_side * Cell::gates;
        const uint64_t end = (first + count + pair_side - 1) / pair_side * Cell::gates;
        multiply_packed(state, weight, begin, end, [&](uint64_t row, uint64_t column, const float* sums) {
            const uint64_t unit = column / Cell::gates * pair_side;
            round_sums(state.terms - unit, result + (row * Cell::gates + column % Cell::gates) * state.terms + unit,
                       sums);
        });
    }
};
#endif

// The arguments of the cells of a step.
struct StepCells {
    uint64_t hidden, cell, gates, products, bias, last_hidden, last_cell, lengths, run_parts, gates_stride, position,
        rows, length;
    uint32_t threads;
};

// Gates lie in short runs, which machines do not fetch ahead, and are read once each.
template <typename Cell, typename T>
TALLOW_INLINE void prefetch_gates(const StepCells& cells, uint64_t row, uint64_t first, uint64_t count) {
    constexpr uint64_t cache_line = 64;
    for (uint64_t k = 0; k < Cell::gates; ++k) {
        const uint64_t begin = cells.gates + (row * cells.gates_stride + k * cells.length + first) * sizeof(T);
        for (uint64_t offset = 0; offset < count * sizeof(T); offset += cache_line)
            __builtin_prefetch(pointer_to<const T>(begin + offset));
    }
}

// A part has the products of all gates of some units, and then their cells: a step waits for its threads once.
template <typename Cell, typename T, typename Products>
__attribute__((noinline)) void run_step(const Products& products, const StepCells& cells) {
    const uint64_t length = cells.length, units = products.units();
    do_parts(cells, (length + units - 1) / units, [&](uint64_t part) {
        const uint64_t first = part * units, count = length - first < units ? length - first : units;
        constexpr uint64_t rows_ahead = 8;
        for (uint64_t row = 0; row < cells.rows && row < rows_ahead; ++row)
            prefetch_gates<Cell, T>(cells, row, first, count);
        products.multiply(first, count);
        for (uint64_t row = 0; row < cells.rows; ++row) {
            if (row + rows_ahead < cells.rows)
                prefetch_gates<Cell, T>(cells, row + rows_ahead, first, count);
            step_units<Cell, T>(cells, row, first, count);
        }
    });
}

template <typename Cell, typename T, typename Products, typename Arguments>
TALLOW_INLINE void run_sequence(const Arguments& arguments) {
    const uint64_t rows = arguments.rows, length = arguments.length, steps = arguments.steps;
    const uint64_t state_bytes = rows * length * sizeof(T);
    Products products(arguments);
    StepCells cells{};
    cells.bias = arguments.bias;
    cells.last_hidden = arguments.initial;
    cells.last_cell = Cell::has_cell ? arguments.initial + state_bytes : 0;
    cells.lengths = arguments.lengths;
    cells.run_parts = arguments.run_parts;
    cells.gates_stride = arguments.gates_stride;
    cells.rows = rows;
    cells.length = length;
    cells.threads = arguments.threads;
    for (uint64_t i = 0; i < steps; ++i) {
        cells.position = arguments.reverse ? steps - 1 - i : i;
        cells.products = arguments.products + cells.position * arguments.product_bytes;
        cells.gates = arguments.gates + cells.position * arguments.gates_step * sizeof(T);
        cells.hidden = arguments.states + cells.position * state_bytes;
        cells.cell = Cell::has_cell ? cells.hidden + steps * state_bytes : 0;
        products.take(cells.last_hidden, cells.products);
        run_step<Cell, T>(products, cells);
        cells.last_hidden = cells.hidden;
        cells.last_cell = cells.cell;
    }
}

// All steps of a sequence: of at most most_rows rows, or of any number where there is room for tiles.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void recurrent_sequence(const Arguments& arguments) {
#if defined(TALLOW_PAIRS)
    if constexpr (is_same<T, bf16>)
        if (arguments.packed != 0)
            return run_sequence<Cell, T, PackedProducts<Cell>>(arguments);
#endif
    run_sequence<Cell, T, FewProducts<Cell, T>>(arguments);
}

// As in recurrent.hpp. of_hidden and of_cell may alias direct and direct_cell.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void recurrent_gradient(const Arguments& arguments) {
    using Value = widened<T>;
    visit_units(arguments, [&](uint64_t row, uint64_t first, uint64_t count) {
        const uint64_t length = arguments.length, offset = row * length + first;
        Value buffers[6][span_part], hidden_buffer[span_part], cell_buffer[span_part];
        Value gate_buffers[2][Cell::gates][span_part];
        const auto load = [&](uint64_t address, uint32_t number) {
            return computed_span<T>(count, optional_pointer<const T>(address, offset), buffers[number]);
        };
        const Value *const gradient = load(arguments.gradient, 0), *const by_products = load(arguments.by_products, 1),
                           *const direct = load(arguments.direct, 2),
                           *const cell_gradient = load(arguments.cell_gradient, 3),
                           *const direct_cell = load(arguments.direct_cell, 4), *const state = load(arguments.state, 5);
        T* const of_hidden = optional_pointer<T>(arguments.of_hidden, offset);
        T* const of_cell = optional_pointer<T>(arguments.of_cell, offset);
        Value* const new_hidden = result_span<T>(of_hidden, hidden_buffer);
        Value* const new_cell = result_span<T>(of_cell, cell_buffer);
        T* of_gates[2][Cell::gates];
        Value* new_gates[2][Cell::gates];
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            const uint64_t begin = (row * Cell::gates + k) * length + first;
            of_gates[0][k] = optional_pointer<T>(arguments.of_gates, begin);
            of_gates[1][k] = optional_pointer<T>(arguments.of_products, begin);
            for (uint32_t part = 0; part < 2; ++part)
                new_gates[part][k] = result_span<T>(of_gates[part][k], gate_buffers[part][k]);
        }
        if (has_ended(arguments, row)) {
            for (uint64_t i = 0; i < count; ++i) {
                new_hidden[i] = gradient[i] + by_products[i] + direct[i];
                new_cell[i] = cell_gradient[i] + direct_cell[i];
                for (uint32_t k = 0; k < Cell::gates; ++k)
                    new_gates[0][k][i] = new_gates[1][k][i] = 0;
            }
        } else {
            const GateSpans<Cell, T> gates(arguments, row, first, count);
            TALLOW_INDEPENDENT
            for (uint64_t i = 0; i < count; ++i) {
                Value x[Cell::gates], h[Cell::gates];
                gates.load(i, x, h);
                const auto gradients =
                    Cell::gradients(Cell::slopes(x, h, state[i]), gradient[i] + by_products[i] + direct[i],
                                    cell_gradient[i] + direct_cell[i]);
                for (uint32_t k = 0; k < Cell::gates; ++k) {
                    new_gates[0][k][i] = gradients.of_input[k];
                    if constexpr (!Cell::has_cell)
                        new_gates[1][k][i] = gradients.of_hidden[k];
                }
                new_hidden[i] = Cell::has_cell ? Value{0} : gradients.of_state;
                if constexpr (Cell::has_cell)
                    new_cell[i] = gradients.of_state;
            }
        }
        finish_span<T>(count, of_hidden, new_hidden);
        finish_span<T>(count, of_cell, new_cell);
        for (uint32_t k = 0; k < Cell::gates; ++k)
            for (uint32_t part = 0; part < 2; ++part)
                finish_span<T>(count, of_gates[part][k], new_gates[part][k]);
    });
}

} // namespace tallow
