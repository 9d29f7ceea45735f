// All steps of a recurrent layer in one launch, with the recurrent weight in registers. The blocks of a launch run at
// the same time and exchange what the products of the next step read. A number travels in a word of 8 bytes with the
// number of the step beside it, as in collective.hpp: whoever finds that has the number too, and waits for nothing
// else.
//
// A block computes `sequence_units` units of a group of rows. Teams of 32 threads split the terms of a product; a team
// adds up 32 sums together, of which each of its threads gets one.
#pragma once

#include "access.hpp"
#include "recurrent_cells.hpp"
#include "types.hpp"
#include "wave.hpp"

#if defined(TALLOW_HOST)
#include <sched.h>
#endif

namespace tallow {

constexpr uint32_t team_lanes = 32;
constexpr uint32_t teams_per_block = block_size / team_lanes;
static_assert(teams_per_block == sequence_units, "a team computes a unit");
static_assert(wave_size % team_lanes == 0, "a team is part of a wave");

// Words that other blocks of the launch read and write meanwhile.
TALLOW_INLINE void send(uint64_t* address, uint32_t turn, float value) {
    const uint64_t word = uint64_t{turn} << 32 | bit_cast<uint32_t>(value);
#if defined(TALLOW_NVIDIA)
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
#elif defined(TALLOW_AMD)
    __hip_atomic_store(address, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    __atomic_store_n(address, word, __ATOMIC_RELAXED);
#endif
}
TALLOW_INLINE uint64_t poll(const uint64_t* address) {
#if defined(TALLOW_NVIDIA)
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    return word;
#elif defined(TALLOW_AMD)
    return __hip_atomic_load(address, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    sched_yield(); // blocks may share a core
    return __atomic_load_n(address, __ATOMIC_RELAXED);
#endif
}

// Words that a thread receives together: all are on their way before the first one is looked at.
template <uint32_t Count> struct StateWords {
    const uint64_t* addresses[Count];
    uint64_t values[Count];

    TALLOW_INLINE void load() {
#pragma unroll
        for (uint32_t i = 0; i < Count; ++i)
            values[i] = poll(addresses[i]);
    }
    TALLOW_INLINE void await(uint32_t turn) {
        while (!have_come(turn))
            load();
    }
    TALLOW_INLINE float number(uint32_t i) const {
        return bit_cast<float>(static_cast<uint32_t>(values[i]));
    }
    TALLOW_INLINE bool have_come(uint32_t turn) const {
        uint32_t earliest = ~0u;
#pragma unroll
        for (uint32_t i = 0; i < Count; ++i) {
            const uint32_t own = static_cast<uint32_t>(values[i] >> 32);
            earliest = own < earliest ? own : earliest;
        }
        return earliest >= turn;
    }
};

// Where the numbers of a turn travel, `Width` places for the units of a gate of a row. Those of the turn after the next
// one take their places: nobody sends these before it has all of the next turn, which are sent by those who have read
// all of this one.
template <uint32_t Gates, uint32_t Width, typename Arguments>
TALLOW_INLINE uint64_t* words_of(const Arguments& arguments, uint32_t turn, uint32_t row) {
    const uint64_t rows = uint64_t{turn & 1} * arguments.rows + row;
    return pointer_to<uint64_t>(arguments.words) + rows * Gates * Width;
}

// Fills the places beyond the units of some rows with zeros of all turns, so that nobody has to tell them apart.
template <uint32_t Gates, uint32_t Width, typename Arguments>
TALLOW_INLINE void fill_places(const Arguments& arguments, uint32_t first_row, uint32_t rows) {
    for (uint32_t number = thread_index(); number < 2 * rows * Gates * Width; number += block_size)
        if (number % Width >= arguments.units) {
            const uint32_t row = number / (Gates * Width);
            send(words_of<Gates, Width>(arguments, row / rows, first_row + row % rows) + number % (Gates * Width), ~0u,
                 0.0f);
        }
    synchronize_block();
}

// Sum i of a team in its lane i. The width is a parameter of the template: an array with indexes of a loop that the
// compiler does not unroll is in memory.
template <uint32_t Width = team_lanes / 2, typename Value>
TALLOW_INLINE Value join_sums(Value (&sums)[team_lanes], uint32_t lane) {
    const bool is_upper = (lane & Width) != 0;
#pragma unroll
    for (uint32_t i = 0; i < Width; ++i) {
        // Read before one is chosen: a choice of places would keep the array in memory.
        const Value low = sums[i], high = sums[i + Width];
        sums[i] = (is_upper ? high : low) + shuffle_xor(is_upper ? low : high, Width);
    }
    if constexpr (Width > 1)
        return join_sums<Width / 2>(sums, lane);
    else
        return sums[0];
}

// What a block of a sequence computes: some units of a group of rows.
struct SequencePart {
    uint32_t first_unit;
    uint32_t first_row;
    uint32_t rows;

    template <typename Arguments> TALLOW_INLINE explicit SequencePart(const Arguments& arguments) {
        const uint32_t blocks = (arguments.units + sequence_units - 1) / sequence_units;
        first_unit = block_index() % blocks * sequence_units;
        first_row = block_index() / blocks * arguments.group_rows;
        const uint32_t left = arguments.rows - first_row;
        rows = left < arguments.group_rows ? left : arguments.group_rows;
    }
};

// The number of the key that a lane multiplies as its j-th one.
template <uint32_t Together> TALLOW_INLINE uint32_t key_of_lane(uint32_t lane, uint32_t j) {
    return (j / Together * team_lanes + lane) * Together + j % Together;
}

// The hidden states of some rows before a step, as factors of products; 0 beyond the units.
template <typename T, uint32_t Rows, uint32_t Width, typename Arguments>
TALLOW_INLINE void receive_tile(const Arguments& arguments, uint32_t step, uint32_t first_row, uint32_t rows,
                                float (&tile)[Rows][Width]) {
    constexpr uint32_t together = 4;
    if (step == 0) {
        const T* const initial = pointer_to<const T>(arguments.last_hidden) + uint64_t{first_row} * arguments.units;
        for (uint32_t number = thread_index(); number < rows * Width; number += block_size) {
            const uint32_t row = number / Width, key = number % Width;
            tile[row][key] = key < arguments.units ? to_compute(initial[uint64_t{row} * arguments.units + key]) : 0.0f;
        }
        return;
    }
    const uint64_t* const words = words_of<1, Width>(arguments, step, first_row);
    for (uint32_t first = 0; first < rows * Width; first += together * block_size) {
        uint32_t numbers[together];
        StateWords<together> received;
#pragma unroll
        for (uint32_t i = 0; i < together; ++i) {
            const uint32_t number = first + i * block_size + thread_index();
            // Some receive the last word too.
            numbers[i] = number < rows * Width ? number : rows * Width - 1;
            received.addresses[i] = words + numbers[i];
        }
        received.load();
        received.await(step);
#pragma unroll
        for (uint32_t i = 0; i < together; ++i)
            tile[numbers[i] / Width][numbers[i] % Width] = received.number(i);
    }
}

// Each lane has `Keys` terms of each product. Lane 4 r + k of a team gets gate k of row r.
template <typename Cell, typename T, uint32_t Keys, typename Arguments>
TALLOW_INLINE void recurrent_sequence(const Arguments& arguments) {
    constexpr uint32_t rows_together = 8, lanes_per_row = team_lanes / rows_together, together = 4;
    static_assert(Cell::gates <= lanes_per_row && Keys % together == 0, "a lane of a row for each gate");
    constexpr uint32_t places = Keys * team_lanes;
    __shared__ float tile[rows_together][places];
    const SequencePart part(arguments);
    fill_places<1, places>(arguments, part.first_row, part.rows);
    const uint32_t lane = thread_index() % team_lanes, unit = part.first_unit + thread_index() / team_lanes;
    const uint32_t units = arguments.units, gate = lane % lanes_per_row;
    const bool has_gate = unit < units && gate < Cell::gates;
    float weight[Cell::gates][Keys];
#pragma unroll
    for (uint32_t k = 0; k < Cell::gates; ++k)
#pragma unroll
        for (uint32_t j = 0; j < Keys; ++j) {
            const uint32_t key = key_of_lane<together>(lane, j);
            const T* const own = pointer_to<const T>(arguments.weight) + (uint64_t{k} * units + unit) * units + key;
            weight[k][j] = unit < units && key < units ? to_compute(*own) : 0.0f;
        }
    const uint64_t own_gate = uint64_t{gate} * units + unit, state_size = uint64_t{arguments.rows} * units;
    const float bias = arguments.bias && has_gate ? to_compute(pointer_to<const T>(arguments.bias)[own_gate]) : 0.0f;
    const T* last_cell = pointer_to<const T>(arguments.last_cell);
    for (uint32_t step = 0; step < arguments.steps; ++step) {
        const uint32_t position = arguments.reverse ? arguments.steps - 1 - step : step;
        T* const hidden = pointer_to<T>(arguments.hidden) + position * state_size;
        T* const cell = pointer_to<T>(arguments.cell) + position * state_size;
        for (uint32_t first = 0; first < part.rows; first += rows_together) {
            const uint32_t count = part.rows - first < rows_together ? part.rows - first : rows_together;
            const uint32_t r = lane / lanes_per_row, row = part.first_row + first + r;
            const uint64_t offset = uint64_t{row} * units + unit;
            const bool is_here = has_gate && r < count;
            // What other blocks do not write is read before waiting for them.
            const T* const gates =
                pointer_to<const T>(arguments.gates) + position * arguments.gates_step + row * arguments.gates_stride;
            const float x = is_here ? to_compute(gates[own_gate]) : 0.0f;
            const T of_cell = Cell::has_cell && is_here ? last_cell[offset] : T{};
            const bool has_ended =
                is_here && arguments.lengths && pointer_to<const int64_t>(arguments.lengths)[row] <= position;
            receive_tile<T>(arguments, step, part.first_row + first, count, tile);
            synchronize_block();
            float sums[team_lanes] = {};
#pragma unroll
            for (uint32_t i = 0; i < rows_together; ++i) {
                if (i >= count)
                    continue;
                float own[Cell::gates] = {};
#pragma unroll
                for (uint32_t j = 0; j < Keys; j += together) {
                    const auto keys = load_whole<together>(&tile[i][key_of_lane<together>(lane, j)]);
#pragma unroll
                    for (uint32_t k = 0; k < Cell::gates; ++k)
#pragma unroll
                        for (uint32_t n = 0; n < together; ++n)
                            own[k] = fma(weight[k][j + n], keys.values[n], own[k]);
                }
#pragma unroll
                for (uint32_t k = 0; k < Cell::gates; ++k)
                    sums[i * lanes_per_row + k] = own[k];
            }
            const T product = convert<T>(join_sums(sums, lane));
            const float of_hidden = to_compute(product) + bias;
            float both[2][Cell::gates];
#pragma unroll
            for (uint32_t k = 0; k < Cell::gates; ++k) {
                const uint32_t from = lane_index() / lanes_per_row * lanes_per_row + k;
                both[0][k] = shuffle_from(x, from);
                both[1][k] = shuffle_from(of_hidden, from);
            }
            if (is_here && gate == 0) {
                const float before = tile[r][unit];
                const auto state = Cell::step(both[0], both[1], Cell::has_cell ? to_compute(of_cell) : before);
                const T made = convert<T>(has_ended ? before : state.hidden);
                if (step + 1 < arguments.steps)
                    send(words_of<1, places>(arguments, step + 1, row) + unit, step + 1, to_compute(made));
                hidden[offset] = made;
                if constexpr (Cell::has_cell)
                    cell[offset] = has_ended ? of_cell : convert<T>(state.cell);
            }
            if (arguments.products && is_here)
                pointer_to<T>(
                    arguments.products)[(uint64_t{position} * arguments.rows + row) * Cell::gates * units + own_gate] =
                    product;
            // The tile is free, and what this block sends is sent.
            synchronize_block();
        }
        last_cell = cell;
    }
}

// The gradient of a hidden state through products is computed of those of the products of the step behind it. A team
// takes half of the terms of a gate; lane 8 r + n gets unit n of row r.
template <typename Cell, typename T, uint32_t Keys, typename Arguments>
TALLOW_INLINE void recurrent_sequence_gradient(const Arguments& arguments) {
    constexpr uint32_t rows_together = team_lanes / sequence_units, own_keys = Keys / 2;
    constexpr uint32_t together = own_keys < 4 ? own_keys : 4, parts = 2 * Cell::gates;
    constexpr uint32_t slots = sequence_rows * sequence_units / block_size;
    static_assert(parts <= teams_per_block, "two teams for each gate");
    constexpr uint32_t places = Keys * team_lanes;
    __shared__ float sums_of_teams[parts][sequence_rows * sequence_units];
    const SequencePart part(arguments);
    fill_places<Cell::gates, places>(arguments, part.first_row, part.rows);
    const uint32_t lane = thread_index() % team_lanes, team = thread_index() / team_lanes;
    const uint32_t units = arguments.units, width = Cell::gates * units, gate = team / 2;
    const uint32_t first_key = team % 2 * own_keys * team_lanes;
    float weight[sequence_units][own_keys];
#pragma unroll
    for (uint32_t n = 0; n < sequence_units; ++n)
#pragma unroll
        for (uint32_t j = 0; j < own_keys; ++j) {
            const uint32_t key = first_key + key_of_lane<together>(lane, j), unit = part.first_unit + n;
            const bool is_there = team < parts && unit < units && key < units;
            const T* const own = pointer_to<const T>(arguments.weight) + (uint64_t{gate} * units + key) * units + unit;
            weight[n][j] = is_there ? to_compute(*own) : 0.0f;
        }
    const uint64_t state_size = uint64_t{arguments.rows} * units, gates_size = uint64_t{arguments.rows} * width;
    T direct[slots] = {}, direct_cell[slots] = {};
    for (uint32_t step = 0; step <= arguments.steps; ++step) {
        const bool is_step = step < arguments.steps;
        const uint32_t position = arguments.reverse ? step : arguments.steps - 1 - step;
        // The state in front of the step.
        const bool is_first = step + 1 == arguments.steps;
        const T* const states = is_first ? pointer_to<const T>(arguments.initial)
                                         : pointer_to<const T>(arguments.states) +
                                               (arguments.reverse ? position + 1 : position - 1) * state_size;
        // What other blocks do not write is read before waiting for them.
        float x[slots][Cell::gates], h[slots][Cell::gates], state[slots], of_hidden[slots], of_cell[slots];
        bool has_ended[slots];
#pragma unroll
        for (uint32_t slot = 0; slot < slots; ++slot) {
            const uint32_t number = slot * block_size + thread_index();
            const uint32_t r = number / sequence_units, unit = part.first_unit + number % sequence_units;
            const uint32_t row = part.first_row + r;
            const bool is_here = is_step && r < part.rows && unit < units;
            const uint64_t offset = uint64_t{row} * units + unit, of_step = position * state_size + offset;
            const T* const gates =
                pointer_to<const T>(arguments.gates) + position * arguments.gates_step + row * arguments.gates_stride;
            const T* const products =
                pointer_to<const T>(arguments.products) + position * gates_size + uint64_t{row} * width;
#pragma unroll
            for (uint32_t k = 0; k < Cell::gates; ++k) {
                const uint64_t own = uint64_t{k} * units + unit;
                x[slot][k] = is_here ? to_compute(gates[own]) : 0.0f;
                h[slot][k] = is_here ? to_compute(products[own]) : 0.0f;
                if (is_here && arguments.bias)
                    h[slot][k] += to_compute(pointer_to<const T>(arguments.bias)[own]);
            }
            state[slot] = is_here ? to_compute(states[offset]) : 0.0f;
            of_hidden[slot] = is_here ? to_compute(pointer_to<const T>(arguments.gradient)[of_step]) : 0.0f;
            const T* const of_cells = pointer_to<const T>(arguments.cell_gradient);
            of_cell[slot] = is_here && Cell::has_cell ? to_compute(of_cells[of_step]) : 0.0f;
            has_ended[slot] =
                is_here && arguments.lengths && pointer_to<const int64_t>(arguments.lengths)[row] <= position;
        }
        if (step > 0 && team < parts) {
            const uint64_t* const words = words_of<Cell::gates, places>(arguments, step, part.first_row) +
                                          gate * places + first_key + key_of_lane<together>(lane, 0);
            const auto words_of_row = [&](uint32_t r) {
                // Behind the last row it is that one again.
                const uint32_t row = r < part.rows ? r : part.rows - 1;
                StateWords<own_keys> row_words;
#pragma unroll
                for (uint32_t j = 0; j < own_keys; ++j)
                    row_words.addresses[j] = words + row * (Cell::gates * places) + key_of_lane<together>(0, j);
                row_words.load();
                return row_words;
            };
            // Those of the next row are on their way meanwhile.
            StateWords<own_keys> next = words_of_row(0);
            for (uint32_t first = 0; first < part.rows; first += rows_together) {
                float sums[team_lanes] = {};
#pragma unroll
                for (uint32_t i = 0; i < rows_together; ++i) {
                    if (first + i >= part.rows)
                        continue;
                    StateWords<own_keys> factors = next;
                    next = words_of_row(first + i + 1);
                    factors.await(step);
                    float own[sequence_units] = {};
#pragma unroll
                    for (uint32_t j = 0; j < own_keys; ++j)
#pragma unroll
                        for (uint32_t n = 0; n < sequence_units; ++n)
                            own[n] = fma(weight[n][j], factors.number(j), own[n]);
#pragma unroll
                    for (uint32_t n = 0; n < sequence_units; ++n)
                        sums[i * sequence_units + n] = own[n];
                }
                sums_of_teams[team][first * sequence_units + lane] = join_sums(sums, lane);
            }
        }
        synchronize_block();
        T* const of_gates = pointer_to<T>(arguments.of_gates) + position * gates_size;
        T* const of_products = pointer_to<T>(arguments.of_products) + position * gates_size;
#pragma unroll
        for (uint32_t slot = 0; slot < slots; ++slot) {
            const uint32_t number = slot * block_size + thread_index();
            const uint32_t r = number / sequence_units, unit = part.first_unit + number % sequence_units;
            const uint32_t row = part.first_row + r;
            if (r >= part.rows || unit >= units)
                continue;
            float sum = 0;
            if (step > 0)
#pragma unroll
                for (uint32_t k = 0; k < parts; ++k)
                    sum += sums_of_teams[k][number];
            const float by_products = to_compute(convert<T>(sum));
            const uint64_t offset = uint64_t{row} * units + unit;
            if (!is_step) {
                T* const of_initial = pointer_to<T>(arguments.of_initial);
                of_initial[offset] = convert<T>(by_products + to_compute(direct[slot]));
                if constexpr (Cell::has_cell)
                    of_initial[state_size + offset] = direct_cell[slot];
                continue;
            }
            const float total = of_hidden[slot] + by_products + to_compute(direct[slot]);
            const float total_cell = of_cell[slot] + to_compute(direct_cell[slot]);
            const auto gradients = Cell::gradients(Cell::slopes(x[slot], h[slot], state[slot]), total, total_cell);
            const bool keeps_state = has_ended[slot];
            uint64_t* const words = words_of<Cell::gates, places>(arguments, step + 1, row) + unit;
#pragma unroll
            for (uint32_t k = 0; k < Cell::gates; ++k) {
                const uint64_t own = uint64_t{row} * width + uint64_t{k} * units + unit;
                const T of_product = keeps_state ? T{} : convert<T>(gradients.of_hidden[k]);
                send(words + k * places, step + 1, to_compute(of_product));
                of_gates[own] = keeps_state ? T{} : convert<T>(gradients.of_input[k]);
                if constexpr (!Cell::has_cell)
                    of_products[own] = of_product;
            }
            direct[slot] = keeps_state ? convert<T>(total) : Cell::has_cell ? T{} : convert<T>(gradients.of_state);
            if constexpr (Cell::has_cell)
                direct_cell[slot] = convert<T>(keeps_state ? total_cell : gradients.of_state);
        }
        // The sums are free, and what this block sends is sent.
        synchronize_block();
    }
}

} // namespace tallow
