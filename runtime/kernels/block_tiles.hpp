// Products of f16 or bf16 rows with block-quantized weights, which are decoded for matrix cores.
//
// A block computes the products of some activation rows and rows of weights. It stages a part of these in shared
// memory, and decodes as many weights of it at a time as its threads take, 32 each. Where copies do not wait, the next
// part is in flight, and the next step is decoded while this one is multiplied. Where weights have few rows, blocks
// share the depth: each writes its sums, which are added up afterwards.
#pragma once

#include "block_bytes.hpp"
#include "matrix_core.hpp"
#include "tile_memory.hpp"

namespace tallow {

// Decodes a lane's weights, which begin at `i` of their block, and has each access of them stored: by `store`, which
// takes the offset of its first weight after those.
template <typename Block, typename T, typename Store>
TALLOW_INLINE void decode_lane(const Block& block, const uint32_t* grid, uint32_t i, Store store) {
    constexpr uint32_t length = run_length<Block> / 4;
    constexpr uint32_t in_access = access_bytes / sizeof(T);
    constexpr uint32_t in_run = run_length<Block> / in_access;
    static_assert(run_length<Block> % in_access == 0 && Block::group % in_access == 0, "an access has one scale");
    const auto loaded = block.template load<length>(i, grid);
    // Compilers reload scales after a store.
    Registers<access_bytes> decoded[runs<Block>][in_run];
#pragma unroll
    for (uint32_t run = 0; run < runs<Block>; ++run) {
#pragma unroll
        for (uint32_t access = 0; access < in_run; ++access) {
            const uint32_t begin = access * in_access;
            float weights[in_access];
            const uint32_t first = i + run * run_stride<Block> + begin;
            decode_loaded(block, loaded, begin / 4, first, ScaleOfGroup::of(block, first / Block::group), weights);
            decoded[run][access] = round_all<T>(weights);
        }
    }
#pragma unroll
    for (uint32_t run = 0; run < runs<Block>; ++run) {
#pragma unroll
        for (uint32_t access = 0; access < in_run; ++access)
            store(run * run_stride<Block> + access * in_access, decoded[run][access]);
    }
}

template <typename Weights, typename Element> struct BlockTile {
    using Block = Weights;
    using T = Element;
    static constexpr uint32_t rows = tile_rows_of_x;
    static constexpr uint32_t columns = tile_rows_of_blocks;
    // A part is staged at a time, in complete blocks of every format; each thread decodes 32 weights of a step.
    static constexpr uint32_t part = 256;
    static constexpr uint32_t lanes_of_row = block_size / columns;
    static constexpr uint32_t depth = lanes_of_row * lane_weights;
    static constexpr uint32_t steps = part / depth;
    static constexpr uint32_t together = runs<Block> == 1 ? lane_weights : runs<Block> * run_stride<Block>;
    static_assert(part % depth == 0 && depth % together == 0, "lanes decode all of a step");
    static_assert(steps % 2 == 0, "two slots take turns");
    static constexpr uint32_t blocks = part / Block::elements;
    static constexpr uint32_t accesses = StagedBlocks<Block>::template accesses<blocks * sizeof(Block)>;
#if defined(TALLOW_HAS_ASYNC_COPIES)
    static constexpr uint32_t slots = 2;
#else
    static constexpr uint32_t slots = 1;
#endif
    using Halves = SharedTile<T, depth, false>;
    static constexpr uint32_t weights_bytes = columns * depth * sizeof(T);
    static constexpr uint32_t rows_bytes = rows * depth * sizeof(T);
    // The words of the last block may end past it.
    static constexpr uint32_t window_bytes = columns * accesses * access_bytes;
    static constexpr uint32_t bytes = slots * (weights_bytes + rows_bytes + window_bytes) + access_bytes;

    bits128* memory;

    TALLOW_INLINE Halves weights(uint32_t step) const {
        return {reinterpret_cast<uint8_t*>(memory) + step % slots * weights_bytes};
    }
    TALLOW_INLINE Halves rows_of_x(uint32_t step) const {
        return {reinterpret_cast<uint8_t*>(memory) + slots * weights_bytes + step % slots * rows_bytes};
    }
    TALLOW_INLINE bits128* window(uint32_t part) const {
        return memory + (slots * (weights_bytes + rows_bytes) + part % slots * window_bytes) / access_bytes;
    }
};

// The parts of the depth that a member takes of all.
struct PartsOfSplit {
    uint32_t all;
    uint32_t begin;
    uint32_t end;

    template <typename Arguments>
    TALLOW_INLINE PartsOfSplit(const Arguments& arguments, uint32_t part, uint32_t split)
        : all((arguments.hidden + part - 1) / part) {
        const uint32_t each = (all + arguments.split_k - 1) / arguments.split_k;
        begin = split * each;
        end = begin + each < all ? begin + each : all;
    }
};

// Stages what a step of a part multiplies of the activation rows from `first` on, padded with zeros.
template <typename Block, typename T, typename Arguments>
TALLOW_INLINE void prefetch_rows(const BlockTile<Block, T>& tile, const Arguments& arguments, uint32_t first,
                                 uint32_t part, uint32_t step) {
    using Tile = BlockTile<Block, T>;
    constexpr uint32_t in_access = access_bytes / sizeof(T);
    const auto to = tile.rows_of_x(step);
#pragma unroll
    for (uint32_t begin = 0; begin < Tile::rows * Tile::depth; begin += block_size * in_access) {
        const uint32_t number = begin + thread_index() * in_access;
        const uint32_t row = number / Tile::depth;
        const uint32_t depth = part * Tile::part + step * Tile::depth + number % Tile::depth;
        const bool is_inside = first + row < arguments.x_rows && depth < arguments.hidden;
        const T* const source = pointer_to<const T>(arguments.x) + uint64_t{first + row} * arguments.x_stride + depth;
        uint8_t* const target = to.at(row, number % Tile::depth);
#if defined(TALLOW_HAS_ASYNC_COPIES)
        copy_async(target, source, is_inside ? access_bytes : 0);
#else
        Registers<access_bytes> loaded{};
        if (is_inside)
            loaded = load_registers<access_bytes>(source);
        store_registers(target, loaded);
#endif
    }
}

// Decodes step `step` of a part of rows of weights; what a row lacks of it is 0.
template <typename Tile, typename Arguments>
TALLOW_INLINE void decode_step(const Tile& tile, const BytesOfTile<Tile, Arguments>& bytes, const uint32_t* grid,
                               uint32_t part, uint32_t step) {
    using Block = typename Tile::Block;
    const uint32_t column = thread_index() / Tile::lanes_of_row;
    const uint32_t lane = thread_index() % Tile::lanes_of_row + step * Tile::lanes_of_row;
    const uint32_t block = lane / lanes_of_block<Block>;
    const uint32_t i = first_weight<Block>(lane);
    const uint32_t first = block * Block::elements + i - step * Tile::depth;
    const auto to = tile.weights(step);
    const auto store = [&](uint32_t offset, const Registers<access_bytes>& rounded) {
        store_registers(to.at(column, first + offset), rounded);
    };
    if (part * Tile::part + block * Block::elements < bytes.arguments.hidden) {
        decode_lane<Block, typename Tile::T>(bytes.blocks_of(tile.window(part), column, part)[block], grid, i, store);
    } else {
#pragma unroll
        for (uint32_t k = 0; k < lane_weights; k += access_bytes / sizeof(typename Tile::T))
            store(k / run_length<Block> * run_stride<Block> + k % run_length<Block>, {});
    }
}

#if defined(TALLOW_MATRIX_CORES)

// The sums of a wave: all activation rows, by 16 rows of weights. Waves that share these take parts of the depth.
template <typename Block, typename T> struct SumsOfWave {
    using Tile = BlockTile<Block, T>;
    using Core = MatrixCore<T>;
    static constexpr uint32_t across = Tile::columns / matrix_side;
    static constexpr uint32_t down = Tile::rows / matrix_side;
    static constexpr uint32_t wave_splits = waves_per_block / across;
    static constexpr uint32_t depth = Tile::depth / wave_splits;
    static_assert(wave_splits * across == waves_per_block && depth % matrix_side == 0);

    float sums[down][Core::sums] = {};

    static TALLOW_INLINE uint32_t first_column() {
        return wave_index() % across * matrix_side;
    }
    static TALLOW_INLINE uint32_t wave_split() {
        return wave_index() / across;
    }
    TALLOW_INLINE void add(const typename Tile::Halves& weights, const typename Tile::Halves& rows) {
#pragma unroll
        for (uint32_t d = 0; d < depth; d += matrix_side) {
            const auto columns = Core::read(weights, first_column(), wave_split() * depth + d);
#pragma unroll
            for (uint32_t i = 0; i < down; ++i)
                Core::multiply(sums[i], Core::read_rows(rows, i * matrix_side, wave_split() * depth + d), columns);
        }
    }
    // Adds up the sums of the splits and stores them; all threads are done with the memory of the tile.
    template <typename Arguments>
    TALLOW_INLINE void store(const Arguments& arguments, float* shared, uint32_t first, uint32_t row, float* result) {
        constexpr uint32_t count = down * Core::sums;
        float* const own = shared + (wave_index() % across * wave_size + lane_index()) * count;
        if constexpr (wave_splits != 1) {
            static_assert(wave_splits == 2);
            if (wave_split() != 0)
#pragma unroll
                for (uint32_t i = 0; i < count; ++i)
                    own[i] = sums[i / Core::sums][i % Core::sums];
            synchronize_block();
        }
        if (wave_split() != 0)
            return;
#pragma unroll
        for (uint32_t i = 0; i < down; ++i)
#pragma unroll
            for (uint32_t s = 0; s < Core::sums; ++s) {
                const uint32_t x_row = first + i * matrix_side + Core::row(Core::lane_row_of(s));
                const uint32_t column = row + first_column() + Core::column(s);
                const float sum = sums[i][s] + (wave_splits == 1 ? 0.0f : own[i * Core::sums + s]);
                if (x_row < arguments.x_rows && column < arguments.rows)
                    result[uint64_t{x_row} * arguments.rows + column] = sum;
            }
    }
};

#else

// The same without matrix cores: a thread makes sums of one row of weights.
template <typename Block, typename T> struct SumsOfWave {
    using Tile = BlockTile<Block, T>;
    static constexpr uint32_t count = Tile::rows * Tile::columns / block_size;

    float sums[count] = {};

    static TALLOW_INLINE uint32_t column() {
        return thread_index() % Tile::columns;
    }
    static TALLOW_INLINE uint32_t x_row(uint32_t i) {
        return thread_index() / Tile::columns * count + i;
    }
    TALLOW_INLINE void add(const typename Tile::Halves& weights, const typename Tile::Halves& rows) {
        constexpr uint32_t in_access = access_bytes / sizeof(T);
#pragma unroll 1
        for (uint32_t d = 0; d < Tile::depth; d += in_access) {
            const auto factors = load_registers<access_bytes>(weights.at(column(), d));
#pragma unroll
            for (uint32_t i = 0; i < count; ++i) {
                const auto values = load_registers<access_bytes>(rows.at(x_row(i), d));
#pragma unroll
                for (uint32_t k = 0; k < in_access; ++k)
                    sums[i] = multiply_add(to_compute(take_element<T>(factors, k)),
                                           to_compute(take_element<T>(values, k)), sums[i]);
            }
        }
    }
    template <typename Arguments>
    TALLOW_INLINE void store(const Arguments& arguments, float*, uint32_t first, uint32_t row, float* result) {
#pragma unroll
        for (uint32_t i = 0; i < count; ++i)
            if (first + x_row(i) < arguments.x_rows && row + column() < arguments.rows)
                result[uint64_t{first + x_row(i)} * arguments.rows + row + column()] = sums[i];
    }
};

#endif

template <typename Block, typename T, typename Arguments>
TALLOW_INLINE void multiply_blocks(const Arguments& arguments) {
    using Tile = BlockTile<Block, T>;
    let_next_kernel_begin();
    const Tile tile{tile_memory<Tile::bytes>()};
    const uint32_t across = (arguments.rows + Tile::columns - 1) / Tile::columns;
    const uint32_t down = (arguments.x_rows + Tile::rows - 1) / Tile::rows;
    // Blocks side by side share rows of weights.
    const uint32_t first = block_index() % down * Tile::rows;
    const uint32_t row = block_index() / down % across * Tile::columns;
    const uint32_t split = block_index() / down / across;
    const PartsOfSplit range(arguments, Tile::part, split);
    const uint32_t begin = range.begin;
    const uint32_t end = range.end;
    const BytesOfTile<Tile, Arguments> bytes{arguments, row};
    const uint32_t* const grid = stage_grid<Block>();
    SumsOfWave<Block, T> sums;
#if defined(TALLOW_HAS_ASYNC_COPIES)
    if (begin < end)
        bytes.prefetch(tile.window(begin), begin);
    commit_copies();
    await_previous_kernel();
    if (begin < end)
        prefetch_rows(tile, arguments, first, begin, 0);
    commit_copies();
    await_copies<1>();
    synchronize_block();
    if (begin < end)
        decode_step(tile, bytes, grid, begin, 0);
#pragma unroll 1
    for (uint32_t part = begin; part < end; ++part) {
#pragma unroll
        for (uint32_t step = 0; step < Tile::steps; ++step) {
            const bool ends_part = step + 1 == Tile::steps;
            // The operands of this step and the blocks of the next one have arrived; the slots that are overwritten are
            // no longer read.
            await_copies<0>();
            synchronize_block();
            if (!ends_part)
                prefetch_rows(tile, arguments, first, part, step + 1);
            else if (part + 1 < end)
                prefetch_rows(tile, arguments, first, part + 1, 0);
            if (step == 0 && part + 1 < end)
                bytes.prefetch(tile.window(part + 1), part + 1);
            commit_copies();
            if (!ends_part)
                decode_step(tile, bytes, grid, part, step + 1);
            else if (part + 1 < end)
                decode_step(tile, bytes, grid, part + 1, 0);
            sums.add(tile.weights(step), tile.rows_of_x(step));
        }
    }
    synchronize_block();
#else
    await_previous_kernel();
#pragma unroll 1
    for (uint32_t part = begin; part < end; ++part) {
#pragma unroll
        for (uint32_t step = 0; step < Tile::steps; ++step) {
            if (step == 0)
                bytes.prefetch(tile.window(part), part);
            prefetch_rows(tile, arguments, first, part, step);
            synchronize_block();
            decode_step(tile, bytes, grid, part, step);
            synchronize_block();
            sums.add(tile.weights(step), tile.rows_of_x(step));
            synchronize_block();
        }
    }
#endif
    sums.store(arguments, reinterpret_cast<float*>(tile.memory), first, row,
               pointer_to<float>(arguments.result) + uint64_t{split} * arguments.x_rows * arguments.rows);
}

} // namespace tallow
