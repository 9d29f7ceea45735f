// One step of recurrent layers on the host and its gradient, without the products with weights; and all steps of a
// sequence, with their products.
#pragma once

#include "host_rows.hpp"
#include "panel_product.hpp"
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
        const float remainder = fma(shifted - shift, -0.693147181f, x);
        const float powers = polynomial(remainder, 0.50005116, 0.16753514, 0.04127775);
        return {fma(remainder * remainder, powers, remainder), bit_cast<uint32_t>(shifted)};
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

// Numbers as a loop of vectors reads and writes them: those that it cannot convert are converted before and after it.
template <typename T, bool Near = is_same<T, bf16>> struct Nearby {
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

    // The products of a row with the weights of gates are `stride` numbers apart.
    template <typename Arguments>
    TALLOW_INLINE GateSpans(const Arguments& arguments, uint64_t row, uint64_t first, uint64_t count, const T* products,
                            uint64_t stride) {
        const uint64_t length = arguments.length;
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            const uint64_t offset = k * length + first;
            x[k] = Nearby<T>::source(count,
                                     optional_pointer<const T>(arguments.gates, row * arguments.gates_stride + offset),
                                     buffers[0][k]);
            h[k] = Nearby<T>::source(count, products ? products + k * stride : nullptr, buffers[1][k]);
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

// The products of a row with the weights of gates, for the units from `first` on.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE const T* products_of_row(const Arguments& arguments, uint64_t row, uint64_t first) {
    return optional_pointer<const T>(arguments.products, row * Cell::gates * arguments.length + first);
}

// A step of consecutive units of a row, of which there are at most span_part, from products as GateSpans has them.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void step_units(const Arguments& arguments, uint64_t row, uint64_t first, uint64_t count,
                              const T* products, uint64_t stride) {
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
    const GateSpans<Cell, T> gates(arguments, row, first, count, products, stride);
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
        step_units<Cell, T>(arguments, row, first, count, products_of_row<Cell, T>(arguments, row, first),
                            arguments.length);
    });
}

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

// The panels of a step, of which each thread has a part.
struct PanelParts {
    uint64_t panels;
    uint64_t together;

    TALLOW_INLINE PanelParts(uint64_t panels, uint32_t threads)
        : panels(panels), together((panels + threads - 1) / threads) {
    }
    TALLOW_INLINE uint64_t count() const {
        return (panels + together - 1) / together;
    }
    TALLOW_INLINE uint64_t begin(uint64_t part) const {
        return part * together;
    }
    TALLOW_INLINE uint64_t end(uint64_t part) const {
        return panels - begin(part) < together ? panels : begin(part) + together;
    }
};

// A part has the products of all gates of some units, and of a few panels the cells while the nearest cache has these:
// a step waits for its threads once.
template <typename Cell, typename T, typename Products, typename Rows>
__attribute__((noinline)) void run_step(const Products& products, const Rows& x, const StepCells& cells) {
    // A row of a gate's products is a cache line longer than they are, so that rows lie in different sets.
    constexpr uint64_t lanes = Products::Columns::lanes, units = Products::near_units, together = units / lanes;
    constexpr uint64_t step = units + 64 / sizeof(T);
    const auto& columns = products.columns;
    const PanelParts parts(columns.panels(), cells.threads);
    const auto units_from = [&](uint64_t panel, uint64_t end) {
        const uint64_t first = panel * lanes, last = end * lanes;
        return (last < cells.length ? last : cells.length) - first;
    };
    do_parts(cells, parts.count(), [&](uint64_t part) {
        const uint64_t begin = parts.begin(part), end = parts.end(part);
        const auto prefetch = [&](uint64_t panel, uint64_t row) {
            if (panel < end)
                prefetch_gates<Cell, T>(cells, row, panel * lanes,
                                        units_from(panel, end - panel < together ? end : panel + together));
        };
        constexpr uint64_t rows_ahead = 8;
        for (uint64_t row = 0; row < cells.rows && row < rows_ahead; ++row)
            prefetch(begin, row);
        T near[near_panel_rows][Cell::gates][step];
        const auto result = [&](uint64_t panel) {
            return PanelResult<T>{near[0][0] + (panel - begin) % together * lanes, Cell::gates * step, step};
        };
        products.multiply(x, cells.rows, begin, end, result, [&](uint64_t panel, uint64_t row, uint64_t rows) {
            if (cells.products)
                columns.store(panel, row, rows, result(panel), pointer_to<T>(cells.products));
            const uint64_t number = (panel - begin) % together;
            if (number + 1 != together && panel + 1 != end)
                return;
            const uint64_t first = panel - number;
            for (uint64_t i = 0; i < rows; ++i) {
                const uint64_t ahead = i + rows_ahead;
                if (ahead < rows)
                    prefetch(first, row + ahead);
                else
                    prefetch(panel + 1, row + ahead - rows);
                step_units<Cell, T>(cells, row + i, first * lanes, units_from(first, panel + 1), near[i][0], step);
            }
        });
    });
}

// Cells with the fields that all steps of `rows` rows from `first` on share.
template <typename Cells, typename Arguments>
TALLOW_INLINE Cells cells_of_rows(const Arguments& arguments, uint64_t first, uint64_t rows, uint32_t threads) {
    Cells cells{};
    cells.bias = arguments.bias;
    cells.lengths = arguments.lengths ? arguments.lengths + first * sizeof(int64_t) : 0;
    cells.run_parts = arguments.run_parts;
    cells.gates_stride = arguments.gates_stride;
    cells.rows = rows;
    cells.length = arguments.length;
    cells.threads = threads;
    return cells;
}

// All steps of `rows` rows from `first` on.
template <typename Cell, typename T, typename Products, typename Arguments>
TALLOW_INLINE void run_steps(const Arguments& arguments, const Products& products, uint64_t first, uint64_t rows,
                             uint32_t threads) {
    const uint64_t length = arguments.length, steps = arguments.steps;
    const uint64_t state_bytes = arguments.rows * length * sizeof(T), begin = first * length * sizeof(T);
    StepCells cells = cells_of_rows<StepCells>(arguments, first, rows, threads);
    cells.last_hidden = arguments.initial + begin;
    cells.last_cell = Cell::has_cell ? arguments.initial + state_bytes + begin : 0;
    for (uint64_t i = 0; i < steps; ++i) {
        cells.position = arguments.reverse ? steps - 1 - i : i;
        cells.products =
            arguments.products ? arguments.products + Cell::gates * (cells.position * state_bytes + begin) : 0;
        cells.gates =
            arguments.gates + (cells.position * arguments.gates_step + first * arguments.gates_stride) * sizeof(T);
        cells.hidden = arguments.states + cells.position * state_bytes + begin;
        cells.cell = Cell::has_cell ? cells.hidden + steps * state_bytes : 0;
        run_step<Cell, T>(products, products.take(pointer_to<const T>(cells.last_hidden), first, rows), cells);
        cells.last_hidden = cells.hidden;
        cells.last_cell = cells.cell;
    }
}

// The rows of a part whose steps one thread runs, so that it waits for no others: as many as those of other parts, and
// not one alone, for which reading the weight takes as long. 0 if threads had better share each step: since their
// caches do not hold the complete weight or, with few rows, since reading it takes longer than waiting for each
// other.
template <typename Arguments> TALLOW_INLINE uint64_t rows_of_thread(const Arguments& arguments, uint64_t weight_bytes) {
    constexpr uint64_t cache_bytes = 5 << 18, wait_bytes = 1 << 17;
    constexpr uint64_t few_rows = 8, max_block_rows = 64;
    const uint64_t threads = arguments.threads < 1 ? 1 : arguments.threads, all = arguments.rows;
    const bool are_few = all <= threads && all <= few_rows;
    if (threads > 1 && weight_bytes > (are_few ? wait_bytes : cache_bytes))
        return 0;
    const uint64_t rows = all < 2 * threads ? 2 : (all + threads - 1) / threads;
    const uint64_t blocks = (rows + max_block_rows - 1) / max_block_rows;
    return (rows + blocks - 1) / blocks;
}

// Calls run(products, first, rows, threads) for all rows, or for those of each thread.
template <typename Products, typename Arguments, typename Run>
TALLOW_INLINE void divide_rows(const Arguments& arguments, const Run& run) {
    const Products products(arguments);
    const uint64_t rows = arguments.rows, together = rows_of_thread(arguments, products.bytes());
    if (together == 0)
        return run(products, 0, rows, arguments.threads);
    do_parts(arguments, (rows + together - 1) / together, [&](uint64_t part) {
        const uint64_t first = part * together;
        run(products, first, rows - first < together ? rows - first : together, 1);
    });
}
template <typename Cell, typename T, bool OfGradients, typename Arguments, typename Run>
TALLOW_INLINE void with_products(const Arguments& arguments, const Run& run) {
#if defined(TALLOW_PAIRS)
    if constexpr (is_same<T, bf16>)
        if (arguments.has_tiles)
            return divide_rows<TileProducts<Cell::gates, OfGradients>>(arguments, run);
#endif
    divide_rows<PanelProducts<T, Cell::gates, OfGradients>>(arguments, run);
}

// All steps of a sequence.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void recurrent_sequence(const Arguments& arguments) {
    with_products<Cell, T, false>(arguments,
                                  [&](const auto& products, uint64_t first, uint64_t rows, uint32_t threads) {
                                      run_steps<Cell, T>(arguments, products, first, rows, threads);
                                  });
}

// The gradient of a step of consecutive units of a row, of which there are at most span_part.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void gradient_of_units(const Arguments& arguments, uint64_t row, uint64_t first, uint64_t count) {
    using Value = widened<T>;
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
        const GateSpans<Cell, T> gates(arguments, row, first, count, products_of_row<Cell, T>(arguments, row, first),
                                       length);
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
}

// As in recurrent.hpp. of_hidden and of_cell may alias direct and direct_cell.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void recurrent_gradient(const Arguments& arguments) {
    visit_units(arguments, [&](uint64_t row, uint64_t first, uint64_t count) {
        gradient_of_units<Cell, T>(arguments, row, first, count);
    });
}

// The arguments of the gradient of a step.
struct GradientCells {
    uint64_t of_gates, of_products, of_hidden, of_cell, gates, products, bias, state, lengths, gradient, by_products,
        direct, cell_gradient, direct_cell, run_parts, gates_stride, position, rows, length;
    uint32_t threads;
};

// The gradient of all steps, from the last one that ran to the first one. The gradient of a hidden state through the
// products is in that of the initial state; what reaches it directly is added at the end.
template <typename Cell, typename T, typename Products, typename Arguments>
TALLOW_INLINE void run_gradient_steps(const Arguments& arguments, const Products& products, uint64_t first,
                                      uint64_t rows, uint32_t threads) {
    const uint64_t length = arguments.length, steps = arguments.steps;
    const uint64_t state_bytes = arguments.rows * length * sizeof(T), begin = first * length * sizeof(T);
    const uint64_t of_cell = Cell::has_cell ? arguments.of_initial + state_bytes + begin : 0;
    const uint64_t of_last = Cell::has_cell ? arguments.of_gates : arguments.of_products;
    GradientCells cells = cells_of_rows<GradientCells>(arguments, first, rows, threads);
    cells.of_hidden = arguments.direct ? arguments.direct + begin : 0;
    cells.of_cell = of_cell;
    const PanelParts parts(products.columns.panels(), threads);
    for (uint64_t i = steps; i-- > 0;) {
        const auto position = [&](uint64_t step) { return arguments.reverse ? steps - 1 - step : step; };
        const uint64_t offset = position(i) * state_bytes + begin, of_step = Cell::gates * offset;
        cells.position = position(i);
        cells.of_gates = arguments.of_gates + of_step;
        cells.of_products = Cell::has_cell ? 0 : arguments.of_products + of_step;
        cells.gates =
            arguments.gates + (cells.position * arguments.gates_step + first * arguments.gates_stride) * sizeof(T);
        cells.products = arguments.products + of_step;
        cells.state = i != 0 ? arguments.states + position(i - 1) * state_bytes + begin : arguments.initial + begin;
        if (Cell::has_cell)
            cells.state += i != 0 ? steps * state_bytes : state_bytes;
        cells.gradient = arguments.gradient + offset;
        cells.cell_gradient = Cell::has_cell ? cells.gradient + steps * state_bytes : 0;
        recurrent_gradient<Cell, T>(cells);
        cells.by_products = arguments.of_initial + begin;
        cells.direct = cells.of_hidden;
        cells.direct_cell = of_cell;
        const auto x = products.take(pointer_to<const T>(of_last + of_step), first, rows);
        do_parts(cells, parts.count(), [&](uint64_t part) {
            constexpr uint64_t lanes = Products::Columns::lanes;
            T sums[near_panel_rows][Cell::gates][lanes];
            const PanelResult<T> near{sums[0][0], Cell::gates * lanes, lanes};
            products.multiply(
                x, rows, parts.begin(part), parts.end(part), [&](uint64_t) { return near; },
                [&](uint64_t panel, uint64_t row, uint64_t count) {
                    products.columns.store(panel, row, count, near, pointer_to<T>(cells.by_products));
                });
        });
    }
    if (arguments.direct)
        map_span(
            rows * length, [](T x, T y) { return convert<T>(to_compute(x) + to_compute(y)); },
            pointer_to<T>(cells.by_products), pointer_to<const T>(cells.by_products),
            pointer_to<const T>(cells.direct));
}

// The gradient of a sequence.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void recurrent_sequence_gradient(const Arguments& arguments) {
    with_products<Cell, T, true>(arguments, [&](const auto& products, uint64_t first, uint64_t rows, uint32_t threads) {
        run_gradient_steps<Cell, T>(arguments, products, first, rows, threads);
    });
}

} // namespace tallow
