// Products of many rows of halves and rows of weights in blocks on Hopper. Groups of waves multiply weights that they
// decode to shared memory meanwhile: a step of the depth while the one before is multiplied. No weight is decoded to
// memory.
#pragma once

#include "block_tiles.hpp"
#include "group_core.hpp"

#if defined(TALLOW_GROUP_CORE)

namespace tallow {

// The depth has the order in which lanes decode weights: in one step those of two lanes, 32 each.
template <typename Weights, typename Element> struct GroupTile {
    using Block = Weights;
    using T = Element;
    static constexpr uint32_t rows = group_rows_of_x;
    static constexpr uint32_t columns = group_rows_of_blocks;
    static_assert(columns == groups_per_block * group_rows);
    static constexpr uint32_t part = 256;
    static constexpr uint32_t depth = 64;
    static constexpr uint32_t steps = part / depth;
    static constexpr uint32_t lanes_of_row = depth / lane_weights;
    static_assert(lanes_of_row * columns == block_size, "a thread decodes a lane's weights of a step");
    static constexpr uint32_t blocks = part / Block::elements;
    static constexpr uint32_t accesses = Brought<Block>::template accesses<blocks * sizeof(Block)>;
    using Lines = GroupOperand<T, true, columns>;
    using RowsOfX = GroupOperand<T, true, rows>;
    static constexpr uint32_t weights_bytes = columns * depth * sizeof(T);
    static constexpr uint32_t rows_bytes = rows * depth * sizeof(T);
    static constexpr uint32_t window_bytes = columns * accesses * access_bytes;
    // The words of a last block may end behind it.
    static constexpr uint32_t other_bytes = 2 * (weights_bytes + window_bytes) + access_bytes;
    // A group knows a step later that the other one is done with a slot of x.
    static constexpr uint32_t slots = 4 * rows_bytes + other_bytes <= group_shared ? 4 : 3;
    static constexpr uint32_t ahead = slots - 2;
    static constexpr uint32_t bytes = slots * rows_bytes + other_bytes;

    struct Halves {
        uint8_t* bytes;
        TALLOW_INLINE uint8_t* at(uint32_t row, uint32_t element) const {
            return bytes + Lines::offset(row, element);
        }
    };

    uint8_t* memory;
    uint32_t address;

    TALLOW_INLINE explicit GroupTile(bits128* memory)
        : memory(reinterpret_cast<uint8_t*>(memory)), address(shared_address(memory)) {
    }
    TALLOW_INLINE Halves weights(uint32_t step) const {
        return {memory + step % 2 * weights_bytes};
    }
    TALLOW_INLINE Lines lines(uint32_t step) const {
        return {address + step % 2 * weights_bytes + group_index() * (group_rows * Lines::row_bytes)};
    }
    TALLOW_INLINE RowsOfX rows_of_x(uint32_t slot) const {
        return {address + 2 * weights_bytes + slot * rows_bytes};
    }
    TALLOW_INLINE bits128* window(uint32_t part) const {
        return reinterpret_cast<bits128*>(memory + 2 * weights_bytes + slots * rows_bytes + part % 2 * window_bytes);
    }
    static TALLOW_INLINE uint32_t depth_of(uint32_t lane, uint32_t place) {
        return lane * lane_weights + place / apart<Block> * run_length<Block> + place % apart<Block>;
    }
    // Which weight of its part is so deep.
    static TALLOW_INLINE uint32_t weight_at(uint32_t depth) {
        const uint32_t lane = depth / lane_weights;
        const uint32_t place = depth % lane_weights;
        return lane / lanes_of_block<Block> * Block::elements + first_weight<Block>(lane) +
               place / run_length<Block> * apart<Block> + place % run_length<Block>;
    }
};

// Rows of x on their way to shared memory, in the order of the depth; what they lack is 0.
template <typename Tile> struct RowsOfGroup {
    using T = typename Tile::T;
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t in_row = Tile::depth / length;
    static constexpr uint32_t apart_rows = block_size / in_row;

    const T* source;
    uint64_t stride;
    int left;
    uint32_t hidden;

    static TALLOW_INLINE uint32_t row() {
        return thread_index() / in_row;
    }
    static TALLOW_INLINE uint32_t place() {
        return thread_index() % in_row * length;
    }
    template <typename Arguments>
    TALLOW_INLINE RowsOfGroup(const Arguments& arguments, uint32_t first)
        : source(pointer_to<const T>(arguments.x) + (first + row()) * arguments.x_stride), stride(arguments.x_stride),
          left(static_cast<int>(arguments.x_rows - first - row())), hidden(arguments.hidden) {
    }
    TALLOW_INLINE void bring(const Tile& tile, uint32_t slot, uint32_t part, uint32_t step) const {
        const uint32_t target = tile.rows_of_x(slot).address + Tile::RowsOfX::offset(row(), place());
        const uint32_t element = part * Tile::part + Tile::weight_at(step * Tile::depth + place());
        const uint32_t bytes = element < hidden ? access_bytes : 0;
        const T* from = source + element;
#pragma unroll
        for (uint32_t i = 0; i < Tile::rows / apart_rows; ++i) {
            copy_async(target + i * apart_rows * Tile::RowsOfX::row_bytes, from,
                       static_cast<int>(i * apart_rows) < left ? bytes : 0);
            from += apart_rows * stride;
        }
    }
};

// Turns sums of rows of weights around in shared memory, and stores rows of the result from `first` on.
template <typename Result, typename Arguments, uint32_t N>
TALLOW_INLINE void store_rows_of_x(const Arguments& arguments, bits128* memory, uint32_t first, uint32_t row,
                                   Result* result, const float (&sums)[N]) {
    // Lanes that write four rows side by side meet different banks.
    constexpr uint32_t stride = group_rows_of_blocks + 4;
    static_assert(group_rows_of_x * stride * sizeof(float) <= group_shared);
    float* const numbers = reinterpret_cast<float*>(memory);
    using Core = MatrixCore<bf16>;
    synchronize_block();
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        numbers[(i / 8 * matrix_side + Core::column(i % 8)) * stride + wave_index() * matrix_side +
                Core::row(Core::held_of(i % 8))] = sums[i];
    synchronize_block();
    constexpr uint32_t length = 4;
    constexpr uint32_t in_row = group_rows_of_blocks / length;
    const uint32_t column = thread_index() % in_row * length;
#pragma unroll 4
    for (uint32_t r = thread_index() / in_row; r < group_rows_of_x; r += block_size / in_row) {
        if (first + r >= arguments.x_rows)
            break;
        const Pack<float, length> loaded = load_whole<length>(numbers + r * stride + column);
        Pack<Result, length> pack;
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            pack.values[i] = round_from<Result>(loaded.values[i]);
        store_guarded<length>(result + uint64_t{first + r} * arguments.rows, row + column, arguments.rows, pack);
    }
}

template <typename Block, typename T, typename Arguments>
TALLOW_INLINE void multiply_by_groups(const Arguments& arguments) {
    using Tile = GroupTile<Block, T>;
    let_next_kernel_begin();
    bits128* const memory = tile_memory<Tile::bytes>();
    const Tile tile(memory);
    const uint32_t across = (arguments.rows + Tile::columns - 1) / Tile::columns;
    const uint32_t down = (arguments.x_rows + Tile::rows - 1) / Tile::rows;
    // Blocks side by side share rows of weights.
    const uint32_t first = block_index() % down * Tile::rows;
    const uint32_t row = block_index() / down % across * Tile::columns;
    const uint32_t member = block_index() / down / across;
    const uint32_t parts = (arguments.hidden + Tile::part - 1) / Tile::part;
    const uint32_t each = (parts + arguments.members - 1) / arguments.members;
    const uint32_t begin = member * each;
    const uint32_t end = begin + each < parts ? begin + each : parts;
    const BytesOfTile<Tile, Arguments> bytes{arguments, row};
    const RowsOfGroup<Tile> x(arguments, first);
    float sums[Tile::rows / 2] = {};
    if (begin < end)
        bytes.bring(tile, begin);
    commit_copies();
    await_previous_kernel();
#pragma unroll
    for (uint32_t step = 0; step < Tile::ahead; ++step) {
        if (begin < end)
            x.bring(tile, step, begin, step);
        commit_copies();
    }
    await_copies<Tile::ahead>();
    synchronize_block();
    if (begin < end)
        bytes.decode(tile, begin, 0);
    uint32_t slot = 0;
#pragma unroll 1
    for (uint32_t part = begin; part < end; ++part) {
#pragma unroll
        for (uint32_t step = 0; step < Tile::steps; ++step) {
            // What this step multiplies is there, and the bytes of what the next one decodes.
            await_copies<Tile::ahead - 1>();
            show_products_shared();
            synchronize_block();
            begin_products();
#pragma unroll
            for (uint32_t place = 0; place < Tile::depth; place += matrix_side)
                multiply_group<T, true, true>(sums, tile.lines(step).describe(0, place),
                                              tile.rows_of_x(slot).describe(0, place));
            commit_products();
            const uint32_t next = step + Tile::ahead;
            const uint32_t part_of_next = part + next / Tile::steps;
            const uint32_t free =
                slot + Tile::ahead < Tile::slots ? slot + Tile::ahead : slot + Tile::ahead - Tile::slots;
            if (part_of_next < end)
                x.bring(tile, free, part_of_next, next % Tile::steps);
            if (step == 0 && part + 1 < end)
                bytes.bring(tile, part + 1);
            commit_copies();
            // A group multiplies the weights that it decoded itself, and is done with those of the step before.
            await_products<1>();
            if (step + 1 < Tile::steps)
                bytes.decode(tile, part, step + 1);
            else if (part + 1 < end)
                bytes.decode(tile, part + 1, 0);
            slot = slot + 1 == Tile::slots ? 0 : slot + 1;
        }
    }
    await_products<0>();
    pin(sums);
    if (arguments.rounds != 0)
        store_rows_of_x(arguments, memory, first, row, pointer_to<T>(arguments.result), sums);
    else
        store_rows_of_x(arguments, memory, first, row,
                        pointer_to<float>(arguments.result) + uint64_t{member} * arguments.x_rows * arguments.rows,
                        sums);
}

} // namespace tallow

#endif
