// How products stage block-quantized weights in shared memory, and which weights a lane takes.
#pragma once

#include "async_copy.hpp"
#include "quantized.hpp"
#include "rows_of_x.hpp"

namespace tallow {

// The 32 weights of a lane: runs whose quants share bytes. Where lanes share a block, none is shorter than a group, so
// that few scales are decoded, unless both parts of a run share bytes.
template <typename Block>
constexpr uint32_t max_runs = Block::elements == lane_weights || Block::run_stride < lane_weights ? lane_weights
                              : Block::group < lane_weights ? lane_weights / Block::group
                                                            : 1;
template <typename Block> constexpr uint32_t runs = Block::runs < max_runs<Block> ? Block::runs : max_runs<Block>;
template <typename Block> constexpr uint32_t run_stride = runs<Block> == 1 ? Block::elements : Block::run_stride;
template <typename Block> constexpr uint32_t run_length = lane_weights / runs<Block>;
// From one to the next of those that share a scale.
template <typename Block> constexpr uint32_t group_stride = runs<Block> == 1 ? Block::group : Block::run_stride;

template <typename Block> constexpr uint32_t lanes_of_block = Block::elements / lane_weights;
template <typename Block> constexpr uint32_t runs_side_by_side = run_stride<Block> / run_length<Block>;

// Where those of a lane begin in their block.
template <typename Block> TALLOW_INLINE uint32_t first_weight(uint32_t lane) {
    const uint32_t lane_in_block = lane % lanes_of_block<Block>;
    return runs<Block> * run_stride<Block> * (lane_in_block / runs_side_by_side<Block>)+run_length<Block> *
           (lane_in_block % runs_side_by_side<Block>);
}

// The same from the first weight of what the lanes of a wave take at a time on.
template <typename Block> TALLOW_INLINE uint32_t first_element(uint32_t lane) {
    return lane / lanes_of_block<Block> * Block::elements + first_weight<Block>(lane);
}

// An address in shared memory, in the form that copies take.
#if defined(TALLOW_HAS_ASYNC_COPIES)
using SharedAddress = uint32_t;
TALLOW_INLINE SharedAddress shared_address_of(bits128* pointer) {
    return shared_address(pointer);
}
TALLOW_INLINE const uint8_t* pointer_of_shared(SharedAddress address) {
    return static_cast<const uint8_t*>(__cvta_shared_to_generic(address));
}
TALLOW_INLINE void prefetch_access(bool is_needed, SharedAddress target, const uint8_t* source) {
    copy_async_if(is_needed, target, source);
}
#else
using SharedAddress = uint8_t*;
TALLOW_INLINE SharedAddress shared_address_of(bits128* pointer) {
    return reinterpret_cast<uint8_t*>(pointer);
}
TALLOW_INLINE const uint8_t* pointer_of_shared(SharedAddress address) {
    return address;
}
TALLOW_INLINE void commit_copies() {
}
template <uint32_t> TALLOW_INLINE void await_copies() {
}
TALLOW_INLINE void prefetch_access(bool is_needed, SharedAddress target, const uint8_t* source) {
    if (is_needed)
        store_registers(target, load_registers<access_bytes>(source));
}
#endif

// The bytes of rows of weights from `row` on, where the last one is repeated past the end. A Tile says how many rows
// (columns), blocks and accesses a part has.
template <typename Tile, typename Arguments> struct BytesOfTile {
    using Block = typename Tile::Block;
    const Arguments& arguments;
    uint32_t row;

    TALLOW_INLINE uint64_t begin(uint32_t column, uint32_t part) const {
        const uint32_t length = arguments.hidden / Block::elements * static_cast<uint32_t>(sizeof(Block));
        const uint32_t own = row + column < arguments.rows ? row + column : arguments.rows - 1;
        return arguments.blocks + uint64_t{own} * length + part * (Tile::blocks * static_cast<uint32_t>(sizeof(Block)));
    }
    // Nothing past the end of the weights is read.
    TALLOW_INLINE void prefetch(bits128* window, uint32_t part) const {
        const uint64_t end = arguments.blocks + arguments.readable;
        const SharedAddress target = shared_address_of(window);
#pragma unroll
        for (uint32_t first = 0; first < Tile::columns * Tile::accesses; first += block_size) {
            const uint32_t number = first + thread_index();
            const uint64_t here = begin(number / Tile::accesses, part);
            const uint64_t source = here - StagedBlocks<Block>::skew(here) + number % Tile::accesses * access_bytes;
            tallow::prefetch_access(number < Tile::columns * Tile::accesses && source < end,
                                    target + number * access_bytes, pointer_to<const uint8_t>(source));
        }
    }
    // The blocks of a part of a row in such a window.
    TALLOW_INLINE const Block* blocks_of(const bits128* window, uint32_t column, uint32_t part) const {
        const uint8_t* const accesses = reinterpret_cast<const uint8_t*>(window + column * Tile::accesses);
        return reinterpret_cast<const Block*>(accesses + StagedBlocks<Block>::skew(begin(column, part)));
    }
};

} // namespace tallow
