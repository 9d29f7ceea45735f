// All steps of a recurrent layer of up to `block_units` units in one launch. A block computes all units of a sequence,
// so that blocks exchange nothing. Two adjacent lanes compute a unit: each multiplies half of the terms of its sums.
// The weights that do not fit in registers are in shared memory.
#pragma once

#include "recurrent_steps.hpp"
#include "reread.hpp"
#include "tile_memory.hpp"

namespace tallow {

constexpr uint32_t block_units = block_size / 2;

// The terms of a lane come in packs of four. The pairs of lanes read adjacent packs.
constexpr uint32_t block_pack = 4;

// The weights of `Sums` sums of `Packs` packs of terms, of one lane. read(sum, term) is the weight of a term; there are
// twice as many terms as a lane has.
template <uint32_t Sums, uint32_t Packs> class LaneWeights {
  public:
    template <typename Read> TALLOW_INLINE explicit LaneWeights(Read read) {
#pragma unroll
        for (uint32_t number = in_registers; number < count; ++number)
            shared()[(number - in_registers) * block_size] = read_pack(number, read);
        // Else compilers read all of them before they write one, and have too few registers.
        synchronize_block();
#pragma unroll
        for (uint32_t number = 0; number < in_registers; ++number)
            registers[number] = read_pack(number, read);
    }
    // The sums of both lanes of a pair. `factors` are in shared memory.
    TALLOW_INLINE void multiply(const Pack<float, block_pack>* factors, float (&sums)[Sums]) const {
        float parts[Sums][block_pack] = {};
#pragma unroll
        for (uint32_t j = 0; j < Packs; ++j) {
            // Else compilers read more ahead than registers hold.
            if (j % 4 == 0)
                asm volatile("" ::: "memory");
            const auto factor = factors[2 * j + thread_index() % 2];
#pragma unroll
            for (uint32_t k = 0; k < Sums; ++k) {
                const auto weight = pack(j * Sums + k);
#pragma unroll
                for (uint32_t n = 0; n < block_pack; ++n)
                    parts[k][n] = fma(weight.values[n], factor.values[n], parts[k][n]);
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < Sums; ++k) {
            const float own = (parts[k][0] + parts[k][1]) + (parts[k][2] + parts[k][3]);
            sums[k] = own + shuffle_xor(own, 1);
        }
    }

  private:
    static constexpr uint32_t count = Sums * Packs, pack_bytes = block_size * block_pack * sizeof(float);
    // Of 96 KiB of shared memory that NVIDIA gives to a launch, and 64 KiB elsewhere. The factors take what remains.
#if defined(TALLOW_NVIDIA)
    static constexpr uint32_t max_shared = 22;
#else
    static constexpr uint32_t max_shared = 14;
#endif
    static constexpr uint32_t beyond = count > 36 ? count - 36 : 0;
    static constexpr uint32_t in_shared = beyond < max_shared ? beyond : max_shared;
    static constexpr uint32_t in_registers = count - in_shared;

    static TALLOW_INLINE Pack<float, block_pack>* shared() {
        constexpr uint32_t bytes = (in_shared ? in_shared : 1) * pack_bytes;
        return reinterpret_cast<Pack<float, block_pack>*>(tile_memory<bytes>()) + thread_index();
    }
    template <typename Read> static TALLOW_INLINE Pack<float, block_pack> read_pack(uint32_t number, Read read) {
        // In a register of the lane: AMD's compiler would compute all offsets first, in scalar registers.
        const uint32_t first = opaque((number / Sums * 2 + thread_index() % 2) * block_pack);
        Pack<float, block_pack> pack;
#pragma unroll
        for (uint32_t n = 0; n < block_pack; ++n)
            pack.values[n] = read(number % Sums, first + n);
        return pack;
    }
    TALLOW_INLINE Pack<float, block_pack> pack(uint32_t number) const {
        if (number < in_registers)
            return registers[number < in_registers ? number : 0];
        return shared()[(number - in_registers) * block_size];
    }

    Pack<float, block_pack> registers[in_registers];
};

template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void recurrent_block(const Arguments& arguments) {
    constexpr uint32_t packs = block_units / block_pack;
    __shared__ Pack<float, block_pack> states[2][packs];
    const uint32_t units = arguments.units, number = thread_index() / 2;
    // Lanes without a unit compute the last one again, and write nothing.
    const bool is_unit = number < units, writes = is_unit && thread_index() % 2 == 0;
    const uint32_t unit = is_unit ? number : units - 1;
    const LaneWeights<Cell::gates, packs / 2> weights([&](uint32_t k, uint32_t key) {
        const T* const own = pointer_to<const T>(reread(arguments).weight) + (k * units + unit) * units;
        return key < units ? to_compute(own[key]) : 0.0f;
    });
    float bias[Cell::gates];
#pragma unroll
    for (uint32_t k = 0; k < Cell::gates; ++k)
        bias[k] = to_compute(bias_of<T>(arguments, k, unit));
    for (uint32_t row = block_index(); row < arguments.rows; row += grid_blocks()) {
        const uint64_t offset = uint64_t{row} * units + unit, length = length_of(arguments, row);
        T hidden = pointer_to<const T>(arguments.last_hidden)[offset];
        T cell = Cell::has_cell ? pointer_to<const T>(arguments.last_cell)[offset] : T{};
        const auto share_hidden = [&](uint32_t step) {
            if (thread_index() % 2 == 0)
                reinterpret_cast<float*>(states[step % 2])[number] = is_unit ? to_compute(hidden) : 0.0f;
            synchronize_block();
        };
        T next[Cell::gates];
        load_gates(arguments, 0, row, unit, next);
        share_hidden(0);
        for (uint32_t step = 0; step < arguments.steps; ++step) {
            const uint64_t position = position_of(arguments, step);
            float x[Cell::gates], sums[Cell::gates], h[Cell::gates];
#pragma unroll
            for (uint32_t k = 0; k < Cell::gates; ++k)
                x[k] = to_compute(next[k]);
            // The gates of the next step arrive meanwhile.
            load_gates(arguments, step + 1 < arguments.steps ? step + 1 : step, row, unit, next);
            weights.multiply(states[step % 2], sums);
            T products[Cell::gates];
#pragma unroll
            for (uint32_t k = 0; k < Cell::gates; ++k) {
                products[k] = convert<T>(sums[k]);
                h[k] = to_compute(products[k]) + bias[k];
            }
            if (position < length) {
                const auto state = Cell::step(x, h, to_compute(Cell::has_cell ? cell : hidden));
                hidden = convert<T>(state.hidden);
                cell = convert<T>(state.cell);
            }
            share_hidden(step + 1);
            if (writes) {
                const uint64_t of_row = position * arguments.rows + row;
                pointer_to<T>(arguments.hidden)[of_row * units + unit] = hidden;
                if constexpr (Cell::has_cell)
                    pointer_to<T>(arguments.cell)[of_row * units + unit] = cell;
                if (arguments.products)
#pragma unroll
                    for (uint32_t k = 0; k < Cell::gates; ++k)
                        pointer_to<T>(arguments.products)[(of_row * Cell::gates + k) * units + unit] = products[k];
            }
        }
        // Nobody reads the last states any more.
        synchronize_block();
    }
}

// The gradient of a hidden state through products is computed of the gradients of the products of the next step.
template <typename Cell, typename T, typename Arguments>
TALLOW_INLINE void recurrent_block_gradient(const Arguments& arguments) {
    constexpr uint32_t packs = Cell::gates * block_units / block_pack;
    __shared__ Pack<float, block_pack> factors[2][packs];
    const uint32_t units = arguments.units, number = thread_index() / 2, steps = arguments.steps;
    const bool is_unit = number < units, writes = is_unit && thread_index() % 2 == 0;
    const uint32_t unit = is_unit ? number : units - 1;
    const LaneWeights<1, packs / 2> weights([&](uint32_t, uint32_t term) {
        const uint32_t k = term / block_units, key = term % block_units;
        const T* const own = pointer_to<const T>(reread(arguments).weight) + unit;
        return key < units ? to_compute(own[(k * units + key) * units]) : 0.0f;
    });
    for (uint32_t row = block_index(); row < arguments.rows; row += grid_blocks()) {
        const uint64_t length = length_of(arguments, row);
        GradientOperands<Cell, T> next{};
        // Registers hold the weights.
        const auto bias = [&](uint32_t gate) { return bias_of<T>(reread(arguments), gate, unit); };
        CarriedGradient<Cell, T> carried;
        next.load(arguments, steps - 1, row, unit);
        auto slopes = next.slopes(bias);
        T of_hidden = next.of_hidden, of_cell = next.of_cell;
        next.load(arguments, steps > 1 ? steps - 2 : 0, row, unit);
        for (uint32_t step = steps; step-- > 0;) {
            T of_gates[Cell::gates], of_products[Cell::gates];
            const bool keeps_state = position_of(arguments, step) >= length;
            carried.step(slopes, of_hidden, of_cell, keeps_state, of_gates, of_products);
            if (thread_index() % 2 == 0)
#pragma unroll
                for (uint32_t k = 0; k < Cell::gates; ++k)
                    reinterpret_cast<float*>(factors[step % 2])[k * block_units + number] =
                        is_unit ? to_compute(of_products[k]) : 0.0f;
            synchronize_block();
            if (writes)
                store_gradients<Cell>(reread(arguments), step, row, unit, of_gates, of_products,
                                      [](T* address, T value) { *address = value; });
            // Those of the step in front need no products, and operands of the one before it arrive meanwhile.
            slopes = next.slopes(bias);
            of_hidden = next.of_hidden;
            of_cell = next.of_cell;
            next.load(reread(arguments), step > 2 ? step - 2 : 0, row, unit);
            float sums[1];
            weights.multiply(factors[step % 2], sums);
            carried.by_products = to_compute(convert<T>(sums[0]));
        }
        if (writes)
            carried.store(arguments, row, unit);
        // Nobody reads the last gradients any more.
        synchronize_block();
    }
}

} // namespace tallow
