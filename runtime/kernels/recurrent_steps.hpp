// What kernels of all steps of a recurrent layer read and write of a step. Steps are counted in the order in which they
// run forward; the gradient runs them from the last one to the first one.
#pragma once

#include "recurrent_cells.hpp"
#include "types.hpp"

namespace tallow {

template <typename Arguments> TALLOW_INLINE uint64_t position_of(const Arguments& arguments, uint32_t step) {
    return arguments.reverse ? arguments.steps - 1 - step : step;
}

// The position from which on a sequence keeps its state.
template <typename Arguments> TALLOW_INLINE uint64_t length_of(const Arguments& arguments, uint32_t row) {
    if (!arguments.lengths)
        return arguments.steps;
    const int64_t length = pointer_to<const int64_t>(arguments.lengths)[row];
    return length > 0 ? static_cast<uint64_t>(length) : 0;
}

template <typename T, typename Arguments>
TALLOW_INLINE T bias_of(const Arguments& arguments, uint32_t gate, uint32_t unit) {
    return arguments.bias ? pointer_to<const T>(arguments.bias)[gate * arguments.units + unit] : T{};
}

// The parts of the gates of a unit that depend on the input.
template <typename T, uint32_t Gates, typename Arguments>
TALLOW_INLINE void load_gates(const Arguments& arguments, uint32_t step, uint32_t row, uint32_t unit, T (&x)[Gates]) {
    const T* const gates = pointer_to<const T>(arguments.gates) + position_of(arguments, step) * arguments.gates_step +
                           row * arguments.gates_stride + unit;
#pragma unroll
    for (uint32_t k = 0; k < Gates; ++k)
        x[k] = gates[k * arguments.units];
}

// The operands of the gradient of a step, of one unit, that no step computes. They are elements as they lie in memory:
// to convert them would wait for them.
template <typename Cell, typename T> struct GradientOperands {
    T x[Cell::gates];
    T products[Cell::gates];
    T state;
    T of_hidden;
    T of_cell;

    template <typename Arguments>
    TALLOW_INLINE void load(const Arguments& arguments, uint32_t step, uint32_t row, uint32_t unit) {
        const uint32_t units = arguments.units;
        const uint64_t position = position_of(arguments, step);
        const uint64_t state_size = uint64_t{arguments.rows} * units, offset = uint64_t{row} * units + unit;
        load_gates<T>(arguments, step, row, unit, x);
        const T* const own =
            pointer_to<const T>(arguments.products) + (position * arguments.rows + row) * Cell::gates * units + unit;
#pragma unroll
        for (uint32_t k = 0; k < Cell::gates; ++k)
            products[k] = own[k * units];
        const T* const before =
            step ? pointer_to<const T>(arguments.states) + position_of(arguments, step - 1) * state_size
                 : pointer_to<const T>(arguments.initial);
        state = before[offset];
        of_hidden = pointer_to<const T>(arguments.gradient)[position * state_size + offset];
        if constexpr (Cell::has_cell)
            of_cell = pointer_to<const T>(arguments.cell_gradient)[position * state_size + offset];
    }
    // bias(gate) is that of the unit.
    template <typename Bias> TALLOW_INLINE auto slopes(Bias bias) const {
        float input[Cell::gates], hidden[Cell::gates];
#pragma unroll
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            input[k] = to_compute(x[k]);
            hidden[k] = to_compute(products[k]) + to_compute(bias(k));
        }
        return Cell::slopes(input, hidden, to_compute(state));
    }
};

// The gradient of a unit between two steps: what reaches its states directly, and through the products.
template <typename Cell, typename T> struct CarriedGradient {
    float by_products = 0;
    T direct{};
    T direct_cell{};

    // The gradients of the gates and of the products of a step; all of them are 0 where the step keeps the state.
    template <typename Slopes>
    TALLOW_INLINE void step(const Slopes& slopes, T of_hidden, T of_cell, bool keeps_state, T (&of_gates)[Cell::gates],
                            T (&of_products)[Cell::gates]) {
        const float total = to_compute(of_hidden) + by_products + to_compute(direct);
        const float total_cell = to_compute(of_cell) + to_compute(direct_cell);
        const auto gradients = Cell::gradients(slopes, total, total_cell);
#pragma unroll
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            of_gates[k] = keeps_state ? T{} : convert<T>(gradients.of_input[k]);
            of_products[k] = keeps_state ? T{} : convert<T>(gradients.of_hidden[k]);
        }
        direct = keeps_state ? convert<T>(total) : Cell::has_cell ? T{} : convert<T>(gradients.of_state);
        if constexpr (Cell::has_cell)
            direct_cell = convert<T>(keeps_state ? total_cell : gradients.of_state);
    }
    template <typename Arguments>
    TALLOW_INLINE void store(const Arguments& arguments, uint32_t row, uint32_t unit) const {
        const uint64_t offset = uint64_t{row} * arguments.units + unit;
        T* const of_initial = pointer_to<T>(arguments.of_initial);
        of_initial[offset] = convert<T>(by_products + to_compute(direct));
        if constexpr (Cell::has_cell)
            of_initial[uint64_t{arguments.rows} * arguments.units + offset] = direct_cell;
    }
};

// Writes the gradients of the gates of a unit and, of a GRU, those of its products, by store(address, value).
template <typename Cell, typename T, typename Arguments, typename Store>
TALLOW_INLINE void store_gradients(const Arguments& arguments, uint32_t step, uint32_t row, uint32_t unit,
                                   const T (&of_gates)[Cell::gates], const T (&of_products)[Cell::gates], Store store) {
    const uint64_t own = (position_of(arguments, step) * arguments.rows + row) * Cell::gates * arguments.units + unit;
#pragma unroll
    for (uint32_t k = 0; k < Cell::gates; ++k) {
        store(pointer_to<T>(arguments.of_products) + own + k * arguments.units, of_products[k]);
        if constexpr (!Cell::has_cell)
            pointer_to<T>(arguments.of_gates)[own + k * arguments.units] = of_gates[k];
    }
}

} // namespace tallow
