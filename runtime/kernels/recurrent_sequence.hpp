// All steps of a recurrent layer in one launch, with the recurrent weight in registers. The blocks of a launch run at
// the same time, and wait for results of the step before. A block computes `group_units` units of a group of rows, of
// which it takes `rows_per_tile` at a time: while it computes those, the others travel.
//
// Subgroups of 32 threads split the terms of a product; a subgroup adds up 32 sums together, of which each of its
// threads gets one.
#pragma once

#include "recurrent_exchange.hpp"
#include "recurrent_steps.hpp"
#include "reread.hpp"
#include "wave.hpp"

namespace tallow {

constexpr uint32_t subgroup_lanes = 32;
constexpr uint32_t subgroups_per_block = block_size / subgroup_lanes;
constexpr uint32_t units_of_subgroup = 2, group_units = units_of_subgroup * subgroups_per_block;
constexpr uint32_t rows_per_tile = 8;
static_assert(wave_size % subgroup_lanes == 0, "a subgroup is part of a wave");

// Sum i of a subgroup in its lane i. The width is a parameter of the template: an array with indexes of a loop that the
// compiler does not unroll is in memory.
template <uint32_t Width = subgroup_lanes / 2, typename Value>
TALLOW_INLINE Value join_sums(Value (&sums)[subgroup_lanes], uint32_t lane) {
    const bool is_upper = (lane & Width) != 0;
#pragma unroll
    for (uint32_t i = 0; i < Width; ++i) {
        // Read before one is chosen: a choice of addresses would keep the array in memory.
        const Value low = sums[i], high = sums[i + Width];
        sums[i] = (is_upper ? high : low) + shuffle_xor(is_upper ? low : high, Width);
    }
    if constexpr (Width > 1)
        return join_sums<Width / 2>(sums, lane);
    else
        return sums[0];
}

// What a block computes: some units of a group of rows.
struct SequencePart {
    uint32_t first_unit;
    uint32_t first_row;

    template <typename Arguments> TALLOW_INLINE explicit SequencePart(const Arguments& arguments) {
        const uint32_t blocks = (arguments.units + group_units - 1) / group_units;
        first_unit = block_index() % blocks * group_units;
        first_row = block_index() / blocks * arguments.group_rows;
    }
    // Computed each time: AMD's compiler would keep what follows from it for each group of rows, in scalar registers.
    template <typename Arguments> TALLOW_INLINE uint32_t rows(const Arguments& arguments) const {
        const Arguments& own = reread(arguments);
        const uint32_t left = own.rows - first_row;
        return left < own.group_rows ? left : own.group_rows;
    }
};

// The weight of a gate of a unit by another one; 0 beyond the units. Every lane reads one: branches would take masks.
template <typename T, typename Arguments>
TALLOW_INLINE float weight_of(const Arguments& arguments, uint32_t gate, uint32_t unit, uint32_t key) {
    const uint32_t units = arguments.units, last = units - 1;
    const uint32_t row = gate * units + (unit < units ? unit : last);
    const float own = to_compute(pointer_to<const T>(arguments.weight)[row * units + (key < units ? key : last)]);
    // One after another: AMD's compiler would keep the masks of all of them.
    return bit_cast<float>(opaque(bit_cast<uint32_t>(unit < units && key < units ? own : 0.0f)));
}

// Each lane has `Keys` terms of each product. Lane 8 r + 4 u + k of a subgroup gets gate k of unit u of row r, of four
// rows.
template <typename Cell, typename T, uint32_t Keys, typename Arguments>
TALLOW_INLINE void recurrent_sequence(const Arguments& arguments) {
    constexpr uint32_t width = Keys * subgroup_lanes, gate_lanes = 4, row_lanes = units_of_subgroup * gate_lanes;
    constexpr uint32_t rows_at_once = subgroup_lanes / row_lanes, in_pack = 4, in_access = access_bytes / sizeof(T);
    constexpr uint32_t accesses = rows_per_tile * width / in_access / block_size;
    static_assert(Cell::gates <= gate_lanes && Keys % in_pack == 0, "a lane for each gate");
    __shared__ Pack<float, in_pack> tiles[2][rows_per_tile][width / in_pack];
    const SequencePart part(arguments);
    const uint32_t lane = thread_index() % subgroup_lanes, units = arguments.units;
    const uint32_t subgroup_unit = part.first_unit + thread_index() / subgroup_lanes * units_of_subgroup;
    const uint32_t unit = subgroup_unit + lane % row_lanes / gate_lanes, gate = lane % gate_lanes;
    const bool has_gate = unit < units && gate < Cell::gates;
    float weight[units_of_subgroup][Cell::gates][Keys];
#pragma unroll
    for (uint32_t u = 0; u < units_of_subgroup; ++u)
#pragma unroll
        for (uint32_t k = 0; k < Cell::gates; ++k)
#pragma unroll
            for (uint32_t j = 0; j < Keys; ++j) {
                const uint32_t key = opaque((j / in_pack * subgroup_lanes + lane) * in_pack + j % in_pack);
                weight[u][k][j] = weight_of<T>(arguments, k, subgroup_unit + u, key);
            }
    const float bias = has_gate ? to_compute(bias_of<T>(arguments, gate, unit)) : 0.0f;
    const uint64_t state_size = uint64_t{arguments.rows} * units;
    const auto states_before = [&](const Arguments& own, uint64_t state, uint64_t initial, uint32_t step) {
        return step ? pointer_to<const T>(state) + position_of(own, step - 1) * state_size
                    : pointer_to<const T>(initial);
    };
    Awaited<T, in_access> next[accesses];
    const auto load = [&](uint32_t step, uint32_t first) {
        const Arguments& own = reread(arguments);
        const uint32_t rows = part.rows(arguments);
        const T* const states = states_before(own, own.hidden, own.last_hidden, step);
        // The initial states are anywhere.
        const bool is_aligned = units % in_access == 0 && reinterpret_cast<uint64_t>(states) % access_bytes == 0;
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i) {
            const uint32_t number = i * block_size + thread_index();
            const uint32_t row = first + number / (width / in_access), key = number % (width / in_access) * in_access;
            next[i] = {};
            if (row < rows)
                next[i].load(states + uint64_t{part.first_row + row} * units, key, units, is_aligned);
        }
    };
    const auto are_present = [&] {
        bool result = true;
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i)
            result = result && next[i].is_present();
        return result;
    };
    load(0, 0);
    uint32_t item = 0;
    for (uint32_t step = 0; step < arguments.steps; ++step) {
        const uint64_t position = position_of(arguments, step);
        const uint32_t rows = part.rows(arguments);
        for (uint32_t first = 0; first < rows; first += rows_per_tile) {
            constexpr uint32_t joins = rows_per_tile / rows_at_once;
            // What other blocks do not write is read before waiting for them.
            float x[joins];
            T cell[joins];
            bool is_here[joins], has_ended[joins];
            const Arguments& own = reread(arguments);
            const T* const cells = states_before(own, own.cell, own.last_cell, step);
#pragma unroll
            for (uint32_t n = 0; n < joins; ++n) {
                const uint32_t r = first + n * rows_at_once + lane / row_lanes, row = part.first_row + r;
                is_here[n] = has_gate && r < rows;
                const T* const gates =
                    pointer_to<const T>(own.gates) + position * own.gates_step + row * own.gates_stride;
                x[n] = is_here[n] ? to_compute(gates[gate * units + unit]) : 0.0f;
                cell[n] = Cell::has_cell && is_here[n] ? cells[uint64_t{row} * units + unit] : T{};
                has_ended[n] = is_here[n] && position >= length_of(own, row);
            }
            begin_wait();
            while (step && !are_present()) {
                wait_a_moment();
                load(step, first);
            }
            auto& tile = tiles[item++ % 2];
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i) {
                const uint32_t number = (i * block_size + thread_index()) * (in_access / in_pack);
#pragma unroll
                for (uint32_t p = 0; p < in_access / in_pack; ++p)
                    tile[number / (width / in_pack)][number % (width / in_pack) + p] = {
                        {next[i].number(in_pack * p), next[i].number(in_pack * p + 1), next[i].number(in_pack * p + 2),
                         next[i].number(in_pack * p + 3)}};
            }
            synchronize_block();
            const bool is_last = first + rows_per_tile >= rows;
            if (!is_last || step + 1 < arguments.steps)
                load(is_last ? step + 1 : step, is_last ? 0 : first + rows_per_tile);
#pragma unroll
            for (uint32_t n = 0; n < joins; ++n) {
                if (first + n * rows_at_once >= rows)
                    continue;
                float sums[subgroup_lanes] = {};
#pragma unroll
                for (uint32_t i = 0; i < rows_at_once; ++i) {
                    if (first + n * rows_at_once + i >= rows)
                        continue;
#pragma unroll
                    for (uint32_t j = 0; j < Keys; j += in_pack) {
                        const auto keys = tile[n * rows_at_once + i][j / in_pack * subgroup_lanes + lane];
#pragma unroll
                        for (uint32_t u = 0; u < units_of_subgroup; ++u)
#pragma unroll
                            for (uint32_t k = 0; k < Cell::gates; ++k) {
                                float& sum = sums[i * row_lanes + u * gate_lanes + k];
#pragma unroll
                                for (uint32_t m = 0; m < in_pack; ++m)
                                    sum = fma(weight[u][k][j + m], keys.values[m], sum);
                            }
                    }
                }
                const T product = convert<T>(join_sums(sums, lane));
                const float of_hidden = to_compute(product) + bias;
                float both[2][Cell::gates];
#pragma unroll
                for (uint32_t k = 0; k < Cell::gates; ++k) {
                    const uint32_t from = lane_index() / gate_lanes * gate_lanes + k;
                    both[0][k] = shuffle_from(x[n], from);
                    both[1][k] = shuffle_from(of_hidden, from);
                }
                if (!is_here[n])
                    continue;
                const uint32_t r = n * rows_at_once + lane / row_lanes;
                const uint64_t of_row = position * own.rows + part.first_row + first + r;
                if (gate == 0) {
                    const float before = tile[r][unit / in_pack].values[unit % in_pack];
                    const auto state = Cell::step(both[0], both[1], Cell::has_cell ? to_compute(cell[n]) : before);
                    publish(pointer_to<T>(own.hidden) + of_row * units + unit,
                            convert<T>(has_ended[n] ? before : state.hidden));
                    if constexpr (Cell::has_cell)
                        pointer_to<T>(own.cell)[of_row * units + unit] =
                            has_ended[n] ? cell[n] : convert<T>(state.cell);
                }
                if (own.products)
                    pointer_to<T>(own.products)[(of_row * Cell::gates + gate) * units + unit] = product;
            }
        }
    }
}

// The gradient of a hidden state through products is computed of the gradients of the products of the next step. A
// subgroup takes half of the terms of a gate; lane 16 r + u gets unit u of row r, of two rows. Each thread then
// computes the gradients of one unit of one row.
//
// The code is executed once a step, by few threads: its loops stay loops, so that an instruction cache holds it.
template <typename Cell, typename T, uint32_t Keys, typename Arguments>
TALLOW_INLINE void recurrent_sequence_gradient(const Arguments& arguments) {
    constexpr uint32_t own_keys = Keys / 2, parts = 2 * Cell::gates, rows_at_once = subgroup_lanes / group_units;
    constexpr uint32_t width = Keys * subgroup_lanes, in_access = access_bytes / sizeof(T);
    constexpr uint32_t in_pack = own_keys < in_access ? own_keys : in_access;
    // Factors of up to four rows travel together, in up to four accesses of each thread, and lie in shared memory.
    constexpr uint32_t row_accesses = Cell::gates * width / in_access, fitting_rows = 4 * block_size / row_accesses;
    constexpr uint32_t rows_staged = fitting_rows < 4 ? rows_at_once : 4;
    constexpr uint32_t staged_accesses = rows_staged * row_accesses;
    constexpr uint32_t accesses = (staged_accesses + block_size - 1) / block_size;
    static_assert(parts <= subgroups_per_block && fitting_rows >= rows_at_once, "two subgroups for each gate");
    __shared__ Pack<uint32_t, access_bytes / 4> staged[staged_accesses];
    __shared__ float sums_of_subgroups[parts][block_size];
    const SequencePart part(arguments);
    const uint32_t lane = thread_index() % subgroup_lanes, subgroup = thread_index() / subgroup_lanes;
    const uint32_t units = arguments.units, steps = arguments.steps;
    // The terms of a subgroup, and those of a lane.
    const uint32_t gate = subgroup / 2, first_key = (subgroup % 2 * subgroup_lanes + lane) * own_keys;
    float weight[group_units][own_keys];
#pragma unroll
    for (uint32_t j = 0; j < own_keys; ++j)
#pragma unroll
        for (uint32_t u = 0; u < group_units; ++u) {
            const uint32_t key = opaque(first_key + j), unit = part.first_unit + u;
            weight[u][j] = weight_of<T>(arguments, subgroup < parts ? gate : 0, key, unit);
        }
    Awaited<T, in_access> arriving[accesses];
    // The gradients of the products of a step, of some rows.
    const auto load = [&](uint32_t step, uint32_t first) {
        const Arguments& own = reread(arguments);
        const bool is_aligned = units % in_access == 0;
        const uint32_t rows = part.rows(arguments);
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i) {
            const uint32_t number = i * block_size + thread_index(), r = first + number / row_accesses;
            const uint32_t of_gate = number % row_accesses * in_access / width;
            arriving[i] = {};
            if (number < staged_accesses && r < rows) {
                const uint64_t row = position_of(own, step) * own.rows + part.first_row + r;
                arriving[i].load(pointer_to<const T>(own.of_products) + (row * Cell::gates + of_gate) * units,
                                 number * in_access % width, units, is_aligned);
            }
        }
    };
    const auto are_present = [&] {
        bool result = true;
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i)
            result = result && arriving[i].is_present();
        return result;
    };
    const uint32_t own_row = thread_index() / group_units, unit = part.first_unit + thread_index() % group_units;
    const uint32_t row = part.first_row + own_row;
    const bool has_unit = own_row < part.rows(arguments) && unit < units;
    T bias[Cell::gates];
#pragma unroll
    for (uint32_t k = 0; k < Cell::gates; ++k)
        bias[k] = bias_of<T>(arguments, k, unit < units ? unit : units - 1);
    const auto bias_of_gate = [&](uint32_t k) { return bias[k]; };
    GradientOperands<Cell, T> operands{};
    if (has_unit)
        operands.load(arguments, steps - 1, row, unit);
    CarriedGradient<Cell, T> carried;
    // The last iteration is that of the initial state.
    for (uint32_t left = steps + 1; left-- > 0;) {
        const uint32_t rows = part.rows(arguments);
        const T of_hidden = operands.of_hidden, of_cell = operands.of_cell;
        decltype(operands.slopes(bias_of_gate)) slopes{};
        bool is_loaded = false;
        for (uint32_t first = 0; first < rows; first += rows_staged) {
            begin_wait();
            for (bool begins = first == 0;; begins = false) {
                if (left < steps && !is_loaded)
                    load(left, first);
                // While they travel.
                if (begins)
                    slopes = operands.slopes(bias_of_gate);
                if (left == steps || are_present())
                    break;
                is_loaded = false;
                wait_a_moment();
            }
            // What no block writes would be in front of what is waited for, and is loaded after it.
            if (first == 0 && left > 1 && has_unit)
                operands.load(reread(arguments), left - 2, row, unit);
            if (left == steps)
                break;
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i) {
                const uint32_t number = i * block_size + thread_index();
                if (number < staged_accesses)
                    staged[number] = arriving[i].pack();
            }
            synchronize_block();
            is_loaded = first + rows_staged < rows;
            if (is_loaded)
                load(left, first + rows_staged);
#pragma unroll 1
            for (uint32_t i = 0; i < rows_staged; i += rows_at_once) {
                if (subgroup >= parts || first + i >= rows)
                    continue;
                float sums[subgroup_lanes] = {};
#pragma unroll
                for (uint32_t r = 0; r < rows_at_once; ++r) {
                    const T* const row_of_gate =
                        reinterpret_cast<const T*>(staged + (i + r) * row_accesses) + gate * width + first_key;
#pragma unroll
                    for (uint32_t j = 0; j < own_keys; j += in_pack) {
                        const auto factors = load_pack<in_pack>(row_of_gate + j);
#pragma unroll
                        for (uint32_t m = 0; m < in_pack; ++m)
#pragma unroll
                            for (uint32_t u = 0; u < group_units; ++u) {
                                float& sum = sums[r * group_units + u];
                                sum = fma(weight[u][j + m], to_compute(factors.values[m]), sum);
                            }
                    }
                }
                sums_of_subgroups[subgroup][(first + i) * group_units + lane] = join_sums(sums, lane);
            }
            synchronize_block();
        }
        if (!has_unit)
            continue;
        float sum = 0;
        if (left < steps)
#pragma unroll
            for (uint32_t k = 0; k < parts; ++k)
                sum += sums_of_subgroups[k][thread_index()];
        carried.by_products = to_compute(convert<T>(sum));
        const Arguments& own = reread(arguments);
        if (left == 0)
            break;
        T of_gates[Cell::gates], of_products[Cell::gates];
        const bool keeps_state = position_of(own, left - 1) >= length_of(own, row);
        carried.step(slopes, of_hidden, of_cell, keeps_state, of_gates, of_products);
        store_gradients<Cell>(own, left - 1, row, unit, of_gates, of_products,
                              [](T* address, T value) { publish(address, value); });
    }
    if (has_unit)
        carried.store(reread(arguments), row, unit);
}

} // namespace tallow
