// The main loops of products that blocks make in tiles: operands come to shared memory in steps of the depth, the next
// step while threads multiply this one. Who launches says what the operands are:
//
//   load(step)          begins to load a step into registers; steps past the depth are zeros
//   store(slot)         what was loaded goes to a slot of shared memory
//   begin(step, slot)   where `is_async`, both in one
//   rows, columns       for dot products: a slot of shared memory
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
        const Pack<Value, in_access> pack = load_pack<in_access>(from + i);
#pragma unroll
        for (uint32_t j = 0; j < in_access; ++j)
            to[i + j] = pack.values[j];
    }
}

// The sums of a tile by dot products: a thread computes `Down` by `Across` squares of four by four. Where operands
// `AreLines` shared memory has the depth of each line, in four accesses that are permuted as in a SharedTile; else it
// has the lines of each index of the depth. Parts of 32 threads are next to or below each other, `PartsDown` of them.
template <typename Value, uint32_t Down, uint32_t Across, bool AreLines = false, uint32_t PartsDown = 4>
struct DotSums {
    static constexpr uint32_t part = 4;
    static constexpr uint32_t run = AreLines ? 1 : part;
    // 32 threads make 16 rows and 32 columns for each square of a thread. Threads side by side share columns, and every
    // second one rows, so that NVIDIA's shared memory serves them at once.
    static constexpr uint32_t row_stride = 4 * part;
    static constexpr uint32_t column_stride = 8 * part;
    static constexpr uint32_t parts_across = block_size / 32 / PartsDown;
    static constexpr uint32_t rows = PartsDown * Down * row_stride;
    static constexpr uint32_t columns = parts_across * Across * column_stride;

    Value sums[Down * part][Across * part] = {};

    // The row of a thread among four, and its column among eight, whose elements are adjacent, or have a stride of as
    // many.
    static TALLOW_INLINE uint32_t row_of_thread() {
        return thread_index() % 2 + thread_index() % 32 / 16 * 2;
    }
    static TALLOW_INLINE uint32_t column_of_thread() {
        return thread_index() % 16 / 2;
    }
    static TALLOW_INLINE uint32_t first_row() {
        return thread_index() / (32 * parts_across) * Down * row_stride + row_of_thread() * run;
    }
    static TALLOW_INLINE uint32_t first_column() {
        return thread_index() / 32 % parts_across * Across * column_stride + column_of_thread() * run;
    }
    static constexpr TALLOW_INLINE uint32_t row_step(uint32_t i) {
        return AreLines ? i * part : i / part * row_stride + i % part;
    }
    static constexpr TALLOW_INLINE uint32_t column_step(uint32_t j) {
        return AreLines ? j * 2 * part : j / part * column_stride + j % part;
    }
    template <typename Operands> TALLOW_INLINE void add(Operands& operands, uint32_t steps) {
        if constexpr (Operands::is_async)
            operands.begin(0, 0);
        else
            operands.load(0);
        uint32_t slot = 0;
#pragma unroll 1
        for (uint32_t step = 0; step < steps; ++step) {
            // Those who still multiply what the other slot has are done before it is written again.
            if constexpr (Operands::is_async) {
#if defined(TALLOW_HAS_ASYNC_COPIES)
                await_copies<0>();
#endif
                synchronize_block();
                operands.begin(step + 1, slot ^ 1);
            } else {
                operands.store(slot);
                synchronize_block();
                operands.load(step + 1);
            }
            if constexpr (AreLines)
                multiply_lines<Operands::depth>(operands.rows(slot), operands.columns(slot));
            else
                multiply_depths<Operands::depth>(operands.rows(slot), operands.columns(slot));
            slot ^= 1;
        }
    }
    // Calls function(row, column, sums) for the sums of columns side by side.
    template <typename Function> TALLOW_INLINE void each_run(Function function) const {
#pragma unroll
        for (uint32_t i = 0; i < Down * part; ++i)
#pragma unroll
            for (uint32_t j = 0; j < Across * part; j += run) {
                Value side_by_side[run];
#pragma unroll
                for (uint32_t e = 0; e < run; ++e)
                    side_by_side[e] = sums[i][j + e];
                function(first_row() + row_step(i), first_column() + column_step(j), side_by_side);
            }
    }

  private:
    template <uint32_t Depth> TALLOW_INLINE void multiply_depths(const Value* lhs, const Value* rhs) {
        const uint32_t row = first_row();
        const uint32_t column = first_column();
#pragma unroll
        for (uint32_t d = 0; d < Depth; ++d) {
            Value x[Down][part];
            Value y[Across][part];
#pragma unroll
            for (uint32_t i = 0; i < Down; ++i)
                load_side_by_side(lhs + d * dot_stride<rows> + row + i * row_stride, x[i]);
#pragma unroll
            for (uint32_t j = 0; j < Across; ++j)
                load_side_by_side(rhs + d * dot_stride<columns> + column + j * column_stride, y[j]);
#pragma unroll
            for (uint32_t i = 0; i < Down * part; ++i)
#pragma unroll
                for (uint32_t j = 0; j < Across * part; ++j)
                    sums[i][j] = multiply_add(x[i / part][i % part], y[j / part][j % part], sums[i][j]);
        }
    }
    template <uint32_t Depth> TALLOW_INLINE void multiply_lines(const Value* lhs, const Value* rhs) {
        constexpr uint32_t length = access_bytes / sizeof(Value);
        static_assert(Depth == 4 * length, "lines that differ by eight are permuted alike");
        // Chunks of alternate lines are permuted by one: by the thread's own number, and one that is constant.
        const uint32_t x_first = first_row() * Depth + row_of_thread() / 2 * length;
        const uint32_t y_first = first_column() * Depth + column_of_thread() / 2 * length;
        const auto load_row = [&](uint32_t i, uint32_t chunk, Value(&x)[length]) {
            load_side_by_side(lhs + (x_first ^ (chunk ^ row_step(i) / 2 % 4) * length) + row_step(i) * Depth, x);
        };
        const auto load_column = [&](uint32_t j, uint32_t chunk, Value(&y)[length]) {
            load_side_by_side(rhs + (y_first ^ chunk * length) + column_step(j) * Depth, y);
        };
        // The fewer lines are in registers together, and the others one after the other. What is multiplied next is
        // read before.
        constexpr bool holds_rows = Down < Across;
        constexpr uint32_t resident = (holds_rows ? Down : Across) * part;
        constexpr uint32_t passing = (holds_rows ? Across : Down) * part;
        constexpr uint32_t chunks = 4;
        Value own[2][resident][length];
        Value other[2][length];
        const auto load_own = [&](uint32_t number, uint32_t chunk) {
            if constexpr (holds_rows)
                load_row(number, chunk, own[chunk % 2][number]);
            else
                load_column(number, chunk, own[chunk % 2][number]);
        };
        const auto load_other = [&](uint32_t iteration) {
            if constexpr (holds_rows)
                load_column(iteration % passing, iteration / passing, other[iteration % 2]);
            else
                load_row(iteration % passing, iteration / passing, other[iteration % 2]);
        };
        load_other(0);
#pragma unroll
        for (uint32_t number = 0; number < resident; ++number)
            load_own(number, 0);
#pragma unroll
        for (uint32_t chunk = 0; chunk < chunks; ++chunk)
#pragma unroll
            for (uint32_t pass = 0; pass < passing; ++pass) {
                const uint32_t iteration = chunk * passing + pass;
                if (iteration + 1 < chunks * passing)
                    load_other(iteration + 1);
#pragma unroll
                for (uint32_t number = pass; number < resident && chunk + 1 < chunks; number += passing)
                    load_own(number, chunk + 1);
#pragma unroll
                for (uint32_t e = 0; e < length; ++e)
#pragma unroll
                    for (uint32_t number = 0; number < resident; ++number) {
                        Value& sum = holds_rows ? sums[number][pass] : sums[pass][number];
                        sum = holds_rows ? multiply_add(own[chunk % 2][number][e], other[iteration % 2][e], sum)
                                         : multiply_add(other[iteration % 2][e], own[chunk % 2][number][e], sum);
                    }
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
    static constexpr uint32_t steps = depth / matrix_depth;
    static_assert(across % 2 == 0, "two squares take turns in registers");

    static TALLOW_INLINE uint32_t first_row() {
        return wave_index() / waves_across * down * matrix_side;
    }
    static TALLOW_INLINE uint32_t first_column() {
        return wave_index() % waves_across * across * matrix_side;
    }
};

#if defined(TALLOW_MATRIX_CORES)

// The sums of a tile on matrix cores.
template <typename T, typename Waves> struct CoreSums {
    using Core = MatrixCore<T, matrix_depth>;
    static constexpr uint32_t rows = Waves::rows;
    static constexpr uint32_t columns = Waves::columns;
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
#if defined(TALLOW_HAS_ASYNC_COPIES)
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
        typename Core::Rows own_rows[Waves::down];
        typename Core::Columns own_columns[2];
        const auto read_rows = [&](uint32_t step, uint32_t i) {
            return operands.read_rows(slot, Waves::first_row() + i * matrix_side, step * matrix_depth);
        };
        const auto read_columns = [&](uint32_t step, uint32_t j) {
            return operands.read_columns(slot, Waves::first_column() + j * matrix_side, step * matrix_depth);
        };
        take_step();
#pragma unroll
        for (uint32_t i = 0; i < Waves::down; ++i)
            own_rows[i] = read_rows(0, i);
        own_columns[0] = read_columns(0, 0);
#pragma unroll 1
        for (uint32_t done = 0; done < steps; ++done) {
#pragma unroll
            for (uint32_t step = 0; step < Waves::steps; ++step) {
                const uint32_t next = (step + 1) % Waves::steps;
#pragma unroll
                for (uint32_t j = 0; j < Waves::across; ++j) {
                    // What is multiplied next is read before, and rows when they were multiplied last; past the depth
                    // there are zeros.
                    const bool is_last = j + 1 == Waves::across;
                    if (is_last && next == 0)
                        take_step();
                    own_columns[(j + 1) % 2] = is_last ? read_columns(next, 0) : read_columns(step, j + 1);
#pragma unroll
                    for (uint32_t i = 0; i < Waves::down; ++i) {
                        Core::multiply(sums[i][j], own_rows[i], own_columns[j % 2]);
                        if (is_last)
                            own_rows[i] = read_rows(next, i);
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
                    function(Waves::first_row() + i * matrix_side + Core::row(Core::lane_row_of(first)),
                             Waves::first_column() + j * matrix_side + Core::column(first), side_by_side);
                }
    }
};

#endif

} // namespace tallow
