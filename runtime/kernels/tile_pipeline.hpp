// The main loops of products that blocks make in tiles: operands come to shared memory in steps of the depth, the next
// step while threads multiply this one. Who launches says what the operands are:
//
//   load(step)          begins to load a step into registers; steps behind the depth are zeros
//   store(slot)         what was loaded goes to a slot of shared memory
//   begin(step, slot)   where `is_async`, both in one
//   rows, columns       for dot products: a line of shared memory for each place of the depth
//   read_rows, read_columns   for matrix cores: a square of 16 by 16
#pragma once

#include "math.hpp"
#include "tile_memory.hpp"

namespace tallow {

// From one step of the depth to the next in shared memory. The padding keeps parts aligned and spreads what is
// transposed over the banks.
template <uint32_t Lines> constexpr uint32_t dot_stride = Lines + 4;

// Elements side by side in shared memory, in as few accesses as these take.
template <uint32_t N, typename Value> TALLOW_INLINE void load_side_by_side(const Value* from, Value (&to)[N]) {
    constexpr uint32_t in_access = N * sizeof(Value) > access_bytes ? access_bytes / sizeof(Value) : N;
#pragma unroll
    for (uint32_t i = 0; i < N; i += in_access) {
        const Pack<Value, in_access> pack = load_whole<in_access>(from + i);
#pragma unroll
        for (uint32_t j = 0; j < in_access; ++j)
            to[i + j] = pack.values[j];
    }
}

// The sums of a tile by dot products: a thread makes `Down` by `Across` squares of four by four.
template <typename Value, uint32_t Down, uint32_t Across> struct DotSums {
    static constexpr uint32_t part = 4;
    static constexpr uint32_t run = part;
    static constexpr uint32_t rows = Down * matmul_side;
    static constexpr uint32_t columns = Across * matmul_side;
    // 32 threads make 16 rows and 32 columns for each square of a thread. Threads side by side share columns, and every
    // second one rows, so that NVIDIA's shared memory serves them at once.
    static constexpr uint32_t rows_apart = 4 * part;
    static constexpr uint32_t columns_apart = 8 * part;

    Value sums[Down * part][Across * part] = {};

    static TALLOW_INLINE uint32_t first_row() {
        const uint32_t lane = thread_index() % 32;
        return thread_index() / 64 * Down * rows_apart + (lane % 2 + lane / 16 * 2) * part;
    }
    static TALLOW_INLINE uint32_t first_column() {
        return thread_index() / 32 % 2 * Across * columns_apart + thread_index() % 16 / 2 * part;
    }
    template <typename Operands> TALLOW_INLINE void add(Operands& operands, uint32_t steps) {
        const uint32_t row = first_row();
        const uint32_t column = first_column();
        operands.load(0);
        uint32_t slot = 0;
#pragma unroll 1
        for (uint32_t step = 0; step < steps; ++step) {
            operands.store(slot);
            // Those who still multiply what the other slot has are done before it is written again.
            synchronize_block();
            operands.load(step + 1);
#pragma unroll
            for (uint32_t d = 0; d < Operands::depth; ++d) {
                Value x[Down][part];
                Value y[Across][part];
#pragma unroll
                for (uint32_t i = 0; i < Down; ++i)
                    load_side_by_side(operands.rows(slot, d) + row + i * rows_apart, x[i]);
#pragma unroll
                for (uint32_t j = 0; j < Across; ++j)
                    load_side_by_side(operands.columns(slot, d) + column + j * columns_apart, y[j]);
#pragma unroll
                for (uint32_t i = 0; i < Down * part; ++i)
#pragma unroll
                    for (uint32_t j = 0; j < Across * part; ++j)
                        sums[i][j] = multiply_add(x[i / part][i % part], y[j / part][j % part], sums[i][j]);
            }
            slot ^= 1;
        }
    }
    // Calls function(row, column, sums) for the sums of columns side by side.
    template <typename Function> TALLOW_INLINE void each_run(Function function) const {
#pragma unroll
        for (uint32_t i = 0; i < Down * part; ++i)
#pragma unroll
            for (uint32_t j = 0; j < Across * part; j += part) {
                const Value side_by_side[part] = {sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
                function(first_row() + i / part * rows_apart + i % part, first_column() + j / part * columns_apart,
                         side_by_side);
            }
    }
};

// A block's tile on matrix cores, of which each wave makes a part.
template <uint32_t Rows, uint32_t Columns, uint32_t Slots, uint32_t WavesDown> struct TileOfWaves {
    static constexpr uint32_t rows = Rows;
    static constexpr uint32_t columns = Columns;
    static constexpr uint32_t slots = Slots;
    static constexpr uint32_t depth = 32;
    static constexpr uint32_t waves_down = WavesDown;
    static constexpr uint32_t waves_across = waves_per_block / waves_down;
    // In squares.
    static constexpr uint32_t down = rows / waves_down / matrix_side;
    static constexpr uint32_t across = columns / waves_across / matrix_side;
    static constexpr uint32_t steps = depth / matrix_side;
    static_assert(across % 2 == 0, "two squares take turns in registers");

    static TALLOW_INLINE uint32_t first_row() {
        return wave_index() / waves_across * down * matrix_side;
    }
    static TALLOW_INLINE uint32_t first_column() {
        return wave_index() % waves_across * across * matrix_side;
    }
};

#if defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)

// The sums of a tile on matrix cores.
template <typename T, typename Waves> struct CoreSums {
    using Core = MatrixCore<T>;
    static constexpr uint32_t run = Core::run;

    float sums[Waves::down][Waves::across][Core::sums] = {};

    template <typename Operands> TALLOW_INLINE void add(Operands& operands, uint32_t steps) {
        uint32_t slot = Waves::slots - 1;
        uint32_t loaded = 0;
        if constexpr (Operands::is_async) {
#pragma unroll
            for (; loaded + 1 < Waves::slots; ++loaded)
                operands.begin(loaded, loaded);
        } else {
            operands.load(loaded++);
        }
        // Wait for the next step; what all threads read before is no longer needed.
        const auto take_step = [&] {
            slot = (slot + 1) % Waves::slots;
            if constexpr (Operands::is_async) {
#if defined(TALLOW_ASYNC_COPIES)
                await_copies<Waves::slots - 2>();
#endif
                synchronize_block();
                operands.begin(loaded++, (slot + Waves::slots - 1) % Waves::slots);
            } else {
                operands.store(slot);
                synchronize_block();
                operands.load(loaded++);
            }
        };
        typename Core::Rows rows[Waves::down];
        typename Core::Columns columns[2];
        const auto read_rows = [&](uint32_t step, uint32_t i) {
            return operands.read_rows(slot, Waves::first_row() + i * matrix_side, step * matrix_side);
        };
        const auto read_columns = [&](uint32_t step, uint32_t j) {
            return operands.read_columns(slot, Waves::first_column() + j * matrix_side, step * matrix_side);
        };
        take_step();
#pragma unroll
        for (uint32_t i = 0; i < Waves::down; ++i)
            rows[i] = read_rows(0, i);
        columns[0] = read_columns(0, 0);
#pragma unroll 1
        for (uint32_t done = 0; done < steps; ++done) {
#pragma unroll
            for (uint32_t step = 0; step < Waves::steps; ++step) {
                const uint32_t next = (step + 1) % Waves::steps;
#pragma unroll
                for (uint32_t j = 0; j < Waves::across; ++j) {
                    // What is multiplied next is read before, and rows when they were multiplied last; behind the depth
                    // there are zeros.
                    const bool is_last = j + 1 == Waves::across;
                    if (is_last && next == 0)
                        take_step();
                    columns[(j + 1) % 2] = is_last ? read_columns(next, 0) : read_columns(step, j + 1);
#pragma unroll
                    for (uint32_t i = 0; i < Waves::down; ++i) {
                        Core::multiply(sums[i][j], rows[i], columns[j % 2]);
                        if (is_last)
                            rows[i] = read_rows(next, i);
                    }
                }
            }
        }
    }
    // Calls function(row, column, sums) for the sums of columns side by side.
    template <typename Function> TALLOW_INLINE void each_run(Function function) const {
#pragma unroll
        for (uint32_t i = 0; i < Waves::down; ++i)
#pragma unroll
            for (uint32_t j = 0; j < Waves::across; ++j)
#pragma unroll
                for (uint32_t first = 0; first < Core::sums; first += run) {
                    float side_by_side[run];
#pragma unroll
                    for (uint32_t e = 0; e < run; ++e)
                        side_by_side[e] = sums[i][j][first + e];
                    function(Waves::first_row() + i * matrix_side + Core::row(Core::held_of(first)),
                             Waves::first_column() + j * matrix_side + Core::column(first), side_by_side);
                }
    }
};

#endif

} // namespace tallow
