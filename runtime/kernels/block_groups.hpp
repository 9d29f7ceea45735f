// Products of many rows of f16 or bf16 with block-quantized weights on Hopper. Groups of waves multiply weights that
// they decode to registers meanwhile: those of a step of the depth while the ones before are multiplied. No weight goes
// to memory.
//
// A lane has every fourth pair of the depth of two rows of weights; what it decodes together lies side by side. So x is
// arranged in the order in which lanes decode the depth, and tiles of it as products read them, each of which is one
// copy.
#pragma once

#include "block_tiles.hpp"
#include "group_core.hpp"

#if defined(TALLOW_HAS_WGMMA)

namespace tallow {

// A step of the depth, and the weights of a row that a lane decodes of it.
constexpr uint32_t group_depth = 64;
constexpr uint32_t unit_weights = group_depth / 4;
using TileOfX = GroupOperand<bf16, true, group_rows_of_x>;
constexpr uint32_t x_tile_bytes = group_rows_of_x * TileOfX::row_bytes;

// The order of the depth.
template <typename Block> struct UnitOrder {
    // The weights of a unit are runs of some side by side, and these so far from each other.
    static constexpr uint32_t runs = Block::runs < 2 ? 1 : 2;
    static constexpr uint32_t run_stride = runs == 1 ? unit_weights : Block::run_stride;
    static constexpr uint32_t length = unit_weights / runs;

    // Where weight j of a unit is in its part.
    static TALLOW_INLINE uint32_t position(uint32_t unit, uint32_t j) {
        constexpr uint32_t side_by_side = run_stride / length;
        return unit / side_by_side * (runs * run_stride) + unit % side_by_side * length + j / length * run_stride +
               j % length;
    }
};

// Brings x into tiles, a thread an access of 8 numbers. What rows lack is 0.
template <typename Block, typename Arguments> TALLOW_INLINE void arrange_x(const Arguments& arguments) {
    let_next_kernel_begin();
    await_previous_kernel();
    constexpr uint32_t in_row = group_depth / 8;
    const uint32_t steps = arguments.steps;
    const uint32_t number = block_index() * block_size + thread_index();
    const uint32_t chunk = number % in_row;
    const uint32_t step = number / in_row % steps;
    const uint32_t row = number / in_row / steps;
    if (row >= arguments.padded_rows)
        return;
    const uint16_t* const line = pointer_to<const uint16_t>(arguments.x) + row * arguments.x_stride;
    Registers<access_bytes> pairs;
#pragma unroll
    for (uint32_t unit = 0; unit < 4; ++unit) {
        // Pairs of four lanes follow each other, then their next ones.
        const uint32_t position = UnitOrder<Block>::position(step * 4 + unit, chunk * 2);
        pairs.values[unit] = 0;
        if (row < arguments.x_rows && position < arguments.hidden)
            pairs.values[unit] = load_registers<4>(line + position).values[0];
    }
    const uint64_t tile = uint64_t{row / group_rows_of_x} * steps + step;
    store_registers(pointer_to<uint8_t>(arguments.result) + tile * x_tile_bytes +
                        TileOfX::offset(row % group_rows_of_x, chunk * 8),
                    pairs);
}

template <typename Weights> struct GroupTile {
    using Block = Weights;
    static constexpr uint32_t columns = group_rows_of_blocks;
    static_assert(columns == groups_per_block * group_rows);
    static constexpr uint32_t part = 256;
    static constexpr uint32_t steps = part / group_depth;
    static constexpr uint32_t blocks = part / Block::elements;
    static constexpr uint32_t accesses = StagedBlocks<Block>::template accesses<blocks * sizeof(Block)>;
    static constexpr uint32_t slots = 4;
    static constexpr uint32_t window_bytes = columns * accesses * access_bytes;
    // The words of the last block may end past it.
    static constexpr uint32_t barriers_begin = slots * x_tile_bytes + 2 * window_bytes + access_bytes;
    static constexpr uint32_t bytes = barriers_begin + 2 * slots * SharedBarrier::bytes;

    uint8_t* memory;
    uint32_t address;

    TALLOW_INLINE explicit GroupTile(bits128* memory)
        : memory(reinterpret_cast<uint8_t*>(memory)), address(shared_address(memory)) {
    }
    TALLOW_INLINE bits128* window(uint32_t part) const {
        return reinterpret_cast<bits128*>(memory + slots * x_tile_bytes + part % 2 * window_bytes);
    }
    TALLOW_INLINE TileOfX x(uint32_t slot) const {
        return {address + slot * x_tile_bytes};
    }
    // At which the tile of x in a slot is waited for, and until all groups are done with it.
    TALLOW_INLINE SharedBarrier full(uint32_t slot) const {
        return {address + barriers_begin + slot * SharedBarrier::bytes};
    }
    TALLOW_INLINE SharedBarrier empty(uint32_t slot) const {
        return {address + barriers_begin + (slots + slot) * SharedBarrier::bytes};
    }
};

// The rows of weights of a lane.
template <typename Tile, typename T, typename Arguments> struct RowsOfLane {
    using Block = typename Tile::Block;
    using Core = MatrixCore<T>;
    using Step = typename Core::Rows[group_depth / matrix_side];

    const BytesOfTile<Tile, Arguments>& bytes;
    const Tile& tile;

    using Order = UnitOrder<Block>;
    static constexpr uint32_t all = Core::lane_rows * Order::runs;
    // Where decoding a scale takes more than a load, the lanes that share groups decode some of the scales each.
    static constexpr uint32_t group_weights = Order::length * (Order::run_stride < Block::group ? Order::runs : 1);
    static constexpr uint32_t lanes_of_group = Block::group / group_weights < 4 ? Block::group / group_weights : 4;
    static constexpr uint32_t alike = Block::group < Block::elements && all == 4 ? lanes_of_group : 1;

    // What of the scales of a step a lane finds, and those of the runs of each row.
    struct OwnGroups {
        ScaleOfGroup groups[all / alike];
    };
    struct Groups {
        ScaleOfGroup rows[Core::lane_rows][Order::runs];
    };

    TALLOW_INLINE OwnGroups find_groups(uint32_t part, uint32_t step) const {
        const uint32_t position = first(step);
        OwnGroups own;
#pragma unroll
        for (uint32_t t = 0; t < all / alike; ++t) {
            const uint32_t number = lane_index() % alike + t * alike;
            const uint32_t i = position % Block::elements + number % Order::runs * Order::run_stride;
            own.groups[t] = ScaleOfGroup::of(block_of(part, number / Order::runs, position), i / Block::group);
        }
        return own;
    }
    static TALLOW_INLINE Groups share_groups(const OwnGroups& own) {
        Groups groups;
#pragma unroll
        for (uint32_t number = 0; number < all; ++number) {
            const uint32_t lane = lane_index() / alike * alike + number % alike;
            ScaleOfGroup group = own.groups[number / alike];
            if constexpr (alike > 1)
                group = {shuffle_from(group.scale, lane), Block::has_offset ? shuffle_from(group.offset, lane) : 0.0f};
            groups.rows[number / Order::runs][number % Order::runs] = group;
        }
        return groups;
    }

    // The quants of a step.
    struct Quants {
        using Loaded = typename Block::template Loaded<Order::length / 4>;
        Loaded rows[Core::lane_rows];
    };
    TALLOW_INLINE Quants load(uint32_t part, uint32_t step) const {
        Quants quants;
#pragma unroll
        for (uint32_t h = 0; h < Core::lane_rows; ++h)
            quants.rows[h] = block_of(part, h, first(step))
                                 .template load<Order::length / 4>(first(step) % Block::elements, grid_of<Block>());
        return quants;
    }

    // Decodes what the lane has of a row of a step.
    TALLOW_INLINE void decode(uint32_t part, uint32_t step, uint32_t h, const Quants& quants, const Groups& groups,
                              Step& weights) const {
        const uint32_t position = first(step);
        const bool is_inside = part * Tile::part + position < bytes.arguments.hidden;
#pragma unroll
        for (uint32_t begin = 0; begin < unit_weights; begin += 8) {
            const uint32_t run = begin / Order::length;
            const uint32_t in_run = begin % Order::length;
            const uint32_t i = position % Block::elements + run * Order::run_stride + in_run;
            float decoded[8];
            decode_loaded(block_of(part, h, position), quants.rows[h], in_run / 4, i, groups.rows[h][run], decoded);
            const auto rounded = round_all<T>(decoded);
#pragma unroll
            for (uint32_t w = 0; w < 4; ++w)
                weights[begin / 4 + w / 2].values[w % 2 * 2 + h] = is_inside ? rounded.values[w] : 0;
        }
    }
    // Decodes a step, whose scales are there, and finds the scales of step `next` of the part if there is one:
    // compilers keep the order, in which nothing waits for what was begun just before.
    TALLOW_INLINE void decode(uint32_t part, uint32_t step, uint32_t next, Groups& groups, Step& weights) const {
        static_assert(Core::lane_rows == 2);
        const Quants quants = load(part, step);
        OwnGroups own;
        if (next < Tile::steps)
            own = find_groups(part, next);
        decode(part, step, 0, quants, groups, weights);
        Groups groups_of_next;
        if (next < Tile::steps)
            groups_of_next = share_groups(own);
        decode(part, step, 1, quants, groups, weights);
        if (next < Tile::steps)
            groups = groups_of_next;
    }

  private:
    // Where the lane's weights of a step begin in their part.
    static TALLOW_INLINE uint32_t first(uint32_t step) {
        return Order::position(step * 4 + lane_index() % 4, 0);
    }
    TALLOW_INLINE const Block& block_of(uint32_t part, uint32_t h, uint32_t position) const {
        const uint32_t row = wave_index() * matrix_side + Core::row(h);
        return bytes.blocks_of(tile.window(part), row, part)[position / Block::elements];
    }
};

// Turns sums of rows of weights around in shared memory, and stores rows of the result from `first` on.
template <typename Result, typename Arguments, uint32_t N>
TALLOW_INLINE void store_rows_of_x(const Arguments& arguments, bits128* memory, uint32_t first, uint32_t row,
                                   Result* result, const float (&sums)[N]) {
    // Lanes that write four rows side by side meet different banks.
    constexpr uint32_t stride = group_rows_of_blocks + 4;
    static_assert(group_rows_of_x * stride * sizeof(float) <= TALLOW_SHARED_BYTES);
    float* const numbers = reinterpret_cast<float*>(memory);
    using Core = MatrixCore<bf16>;
    synchronize_block();
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        numbers[(i / 8 * matrix_side + Core::column(i % 8)) * stride + wave_index() * matrix_side +
                Core::row(Core::lane_row_of(i % 8))] = sums[i];
    synchronize_block();
    constexpr uint32_t length = 4;
    constexpr uint32_t in_row = group_rows_of_blocks / length;
    const uint32_t column = thread_index() % in_row * length;
#pragma unroll 2
    for (uint32_t r = thread_index() / in_row; r < group_rows_of_x; r += block_size / in_row) {
        if (first + r >= arguments.x_rows)
            break;
        const Pack<float, length> loaded = load_pack<length>(numbers + r * stride + column);
        Pack<Result, length> pack;
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            pack.values[i] = round_from<Result>(loaded.values[i]);
        store_guarded<length>(result + uint64_t{first + r} * arguments.rows, row + column, arguments.rows, pack);
    }
}

template <typename Block, typename T, typename Arguments>
TALLOW_INLINE void multiply_by_groups(const Arguments& arguments) {
    using Tile = GroupTile<Block>;
    constexpr uint32_t steps = Tile::steps;
    constexpr uint32_t slots = Tile::slots;
    let_next_kernel_begin();
    bits128* const memory = tile_memory<Tile::bytes>();
    const Tile tile(memory);
    const uint32_t across = (arguments.rows + Tile::columns - 1) / Tile::columns;
    const uint32_t down = (arguments.x_rows + group_rows_of_x - 1) / group_rows_of_x;
    // Blocks side by side share rows of weights.
    const uint32_t tile_of_x = block_index() % down;
    const uint32_t row = block_index() / down % across * Tile::columns;
    const uint32_t split = block_index() / down / across;
    const PartsOfSplit range(arguments, Tile::part, split);
    const uint32_t begin = range.begin;
    const uint32_t end = range.end;
    const BytesOfTile<Tile, Arguments> bytes{arguments, row};
    const RowsOfLane<Tile, T, Arguments> lane{bytes, tile};
    if (thread_index() < slots) {
        tile.full(thread_index()).template initialize<1>();
        tile.empty(thread_index()).template initialize<groups_per_block>();
    }
    if (begin < end)
        bytes.prefetch(tile.window(begin), begin);
    commit_copies();
    await_copies<0>();
    show_products_shared();
    synchronize_block();
    await_previous_kernel();
    const uint8_t* const x =
        pointer_to<const uint8_t>(arguments.x) + uint64_t{tile_of_x} * range.all * steps * x_tile_bytes;
    // Of the member's steps, which one thread counts.
    const uint32_t count = begin < end ? (end - begin) * steps : 0;
    const auto prefetch_x = [&](uint32_t number) {
        if (number < count)
            tile.full(number % slots)
                .arrive_after_copy(tile.x(number % slots).address, x + uint64_t{begin * steps + number} * x_tile_bytes,
                                   x_tile_bytes);
    };
    if (thread_index() == 0)
        for (uint32_t number = 0; number < slots; ++number)
            prefetch_x(number);
    float sums[group_rows_of_x / 2] = {};
    typename RowsOfLane<Tile, T, Arguments>::Step weights[2];
    // The scales of a step are decoded while the weights of the previous one are.
    typename RowsOfLane<Tile, T, Arguments>::Groups groups;
    const auto decode_first = [&](uint32_t part) {
        groups = lane.share_groups(lane.find_groups(part, 0));
        lane.decode(part, 0, 1, groups, weights[0]);
    };
    if (begin < end)
        decode_first(begin);
    uint32_t phase = 0;
#pragma unroll 1
    for (uint32_t part = begin; part < end; ++part) {
        const uint32_t number = (part - begin) * steps;
#pragma unroll
        for (uint32_t step = 0; step < steps; ++step) {
            tile.full(step).await(phase);
            begin_products();
#pragma unroll
            for (uint32_t s = 0; s < group_depth / matrix_side; ++s)
                multiply_resident<T, true>(sums, weights[step % 2][s], tile.x(step).describe(0, s * matrix_side));
            commit_products();
            if (step == 0 && part + 1 < end)
                bytes.prefetch(tile.window(part + 1), part + 1);
            commit_copies();
            // This group is done with the step before.
            await_products<1>();
            if (number + step != 0 && thread_index() % (block_size / groups_per_block) == 0)
                tile.empty((step + slots - 1) % slots).arrive();
            // The other group may lag by one step, but not by two.
            if (thread_index() == 0 && number + step >= 2 && number + step + slots - 2 < count) {
                tile.empty((step + slots - 2) % slots).await(step >= 2 ? phase : phase ^ 1);
                prefetch_x(number + step + slots - 2);
            }
            if (step + 1 < steps) {
                lane.decode(part, step + 1, step + 2, groups, weights[(step + 1) % 2]);
            } else {
                // The next part has arrived, and the previous one is no longer read.
                await_copies<0>();
                synchronize_block();
                if (part + 1 < end)
                    decode_first(part + 1);
            }
        }
        phase ^= 1;
    }
    await_products<0>();
    pin(sums);
    if (arguments.split_k > 1) {
        // The last member adds up what all have, in their order.
        constexpr uint32_t tile_sums = group_rows_of_x * group_rows_of_blocks;
        const uint32_t number = block_index() % (down * across);
        float* const parts_of_tile =
            pointer_to<float>(arguments.parts) + uint64_t{number} * arguments.split_k * tile_sums + thread_index();
#pragma unroll
        for (uint32_t i = 0; i < group_rows_of_x / 2; ++i)
            parts_of_tile[split * tile_sums + i * block_size] = sums[i];
        uint32_t* const counter = pointer_to<uint32_t>(arguments.counters) + number;
        if (!is_last_block(counter, arguments.split_k, reinterpret_cast<uint32_t*>(memory)))
            return;
#pragma unroll
        for (uint32_t i = 0; i < group_rows_of_x / 2; ++i)
            sums[i] = parts_of_tile[i * block_size];
#pragma unroll 1
        for (uint32_t other = 1; other < arguments.split_k; ++other) {
#pragma unroll
            for (uint32_t i = 0; i < group_rows_of_x / 2; ++i)
                sums[i] += parts_of_tile[other * tile_sums + i * block_size];
        }
    }
    const uint32_t first = tile_of_x * group_rows_of_x;
    if (arguments.rounds != 0)
        store_rows_of_x(arguments, memory, first, row, pointer_to<T>(arguments.result), sums);
    else
        store_rows_of_x(arguments, memory, first, row, pointer_to<float>(arguments.result), sums);
}

} // namespace tallow

#endif
