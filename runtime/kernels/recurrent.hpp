// One step of recurrent layers and its gradient, without the products with weights. Each thread computes `Units`
// consecutive units of a row, and accesses each gate once.
#pragma once

#include "access.hpp"
#include "recurrent_cells.hpp"

namespace tallow {

// Both parts of the gates of consecutive units.
template <typename Cell, typename T, uint32_t Units> struct UnitGates {
    using Value = compute_type<T>;
    Value x[Units][Cell::gates];
    Value h[Units][Cell::gates];

    template <typename Arguments> TALLOW_INLINE UnitGates(const Arguments& arguments, uint32_t row, uint32_t first) {
        const T* const gates = pointer_to<const T>(arguments.gates) + row * arguments.gates_stride + first;
        const T* const products =
            pointer_to<const T>(arguments.products) + uint64_t{row} * Cell::gates * arguments.units + first;
        const T* const bias = pointer_to<const T>(arguments.bias) + first;
#pragma unroll
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            const Pack<T, Units> of_x = load_pack<Units>(gates + k * arguments.units),
                                 of_h = load_pack<Units>(products + k * arguments.units),
                                 of_bias =
                                     arguments.bias ? load_pack<Units>(bias + k * arguments.units) : Pack<T, Units>{};
#pragma unroll
            for (uint32_t i = 0; i < Units; ++i) {
                x[i][k] = to_compute(of_x.values[i]);
                h[i][k] = to_compute(of_h.values[i]) + to_compute(of_bias.values[i]);
            }
        }
    }
};

// Calls visit(row, first unit) for the units of a thread.
template <uint32_t Units, typename Arguments, typename Visit>
TALLOW_INLINE void visit_units(const Arguments& arguments, Visit visit) {
    const uint32_t across = arguments.units / Units;
    const uint32_t number = block_index() * block_size + thread_index();
    if (number < arguments.rows * across)
        visit(number / across, number % across * Units);
}

// True if a sequence is shorter: the step keeps its state.
template <typename Arguments> TALLOW_INLINE bool has_ended(const Arguments& arguments, uint32_t row) {
    return arguments.lengths && pointer_to<const int64_t>(arguments.lengths)[row] <= arguments.position;
}

template <uint32_t Units, typename T> TALLOW_INLINE Pack<T, Units> load_optional(uint64_t address, uint64_t offset) {
    return address ? load_pack<Units>(pointer_to<const T>(address) + offset) : Pack<T, Units>{};
}

template <typename Cell, typename T, uint32_t Units, typename Arguments>
TALLOW_INLINE void recurrent_step(const Arguments& arguments) {
    visit_units<Units>(arguments, [&](uint32_t row, uint32_t first) {
        const uint64_t offset = uint64_t{row} * arguments.units + first;
        Pack<T, Units> hidden = load_optional<Units, T>(arguments.last_hidden, offset);
        Pack<T, Units> cell = load_optional<Units, T>(arguments.last_cell, offset);
        if (!has_ended(arguments, row)) {
            const UnitGates<Cell, T, Units> gates(arguments, row, first);
#pragma unroll
            for (uint32_t i = 0; i < Units; ++i) {
                const T last = Cell::has_cell ? cell.values[i] : hidden.values[i];
                const auto state = Cell::step(gates.x[i], gates.h[i], to_compute(last));
                hidden.values[i] = convert<T>(state.hidden);
                cell.values[i] = convert<T>(state.cell);
            }
        }
        store_pack(pointer_to<T>(arguments.hidden) + offset, hidden);
        if constexpr (Cell::has_cell)
            store_pack(pointer_to<T>(arguments.cell) + offset, cell);
    });
}

// The gradient of a hidden state has three terms: as a result, through the products of the next step, and directly
// through the states of the next step.
template <typename Cell, typename T, uint32_t Units, typename Arguments>
TALLOW_INLINE void recurrent_gradient(const Arguments& arguments) {
    using Value = compute_type<T>;
    visit_units<Units>(arguments, [&](uint32_t row, uint32_t first) {
        const uint64_t offset = uint64_t{row} * arguments.units + first;
        const auto gradient = load_optional<Units, T>(arguments.gradient, offset);
        const auto by_products = load_optional<Units, T>(arguments.by_products, offset);
        const auto direct = load_optional<Units, T>(arguments.direct, offset);
        const auto cell_gradient = load_optional<Units, T>(arguments.cell_gradient, offset);
        const auto direct_cell = load_optional<Units, T>(arguments.direct_cell, offset);
        Pack<T, Units> of_input[Cell::gates] = {}, of_products[Cell::gates] = {}, of_hidden{}, of_cell{};
        const bool keeps_state = has_ended(arguments, row);
        const auto states = load_optional<Units, T>(keeps_state ? 0 : arguments.state, offset);
        Value hidden[Units], cell[Units];
#pragma unroll
        for (uint32_t i = 0; i < Units; ++i) {
            hidden[i] =
                to_compute(gradient.values[i]) + to_compute(by_products.values[i]) + to_compute(direct.values[i]);
            cell[i] = to_compute(cell_gradient.values[i]) + to_compute(direct_cell.values[i]);
        }
        if (keeps_state) {
#pragma unroll
            for (uint32_t i = 0; i < Units; ++i) {
                of_hidden.values[i] = convert<T>(hidden[i]);
                of_cell.values[i] = convert<T>(cell[i]);
            }
        } else {
            const UnitGates<Cell, T, Units> gates(arguments, row, first);
#pragma unroll
            for (uint32_t i = 0; i < Units; ++i) {
                const auto slopes = Cell::slopes(gates.x[i], gates.h[i], to_compute(states.values[i]));
                const auto gradients = Cell::gradients(slopes, hidden[i], cell[i]);
#pragma unroll
                for (uint32_t k = 0; k < Cell::gates; ++k) {
                    of_input[k].values[i] = convert<T>(gradients.of_input[k]);
                    of_products[k].values[i] = convert<T>(gradients.of_hidden[k]);
                }
                (Cell::has_cell ? of_cell : of_hidden).values[i] = convert<T>(gradients.of_state);
            }
        }
        const uint64_t begin = uint64_t{row} * Cell::gates * arguments.units + first;
#pragma unroll
        for (uint32_t k = 0; k < Cell::gates; ++k) {
            store_pack(pointer_to<T>(arguments.of_gates) + begin + k * arguments.units, of_input[k]);
            if constexpr (!Cell::has_cell)
                store_pack(pointer_to<T>(arguments.of_products) + begin + k * arguments.units, of_products[k]);
        }
        if (arguments.of_hidden)
            store_pack(pointer_to<T>(arguments.of_hidden) + offset, of_hidden);
        if constexpr (Cell::has_cell)
            store_pack(pointer_to<T>(arguments.of_cell) + offset, of_cell);
    });
}

} // namespace tallow
