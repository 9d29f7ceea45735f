// How products bring the bytes of weights in blocks to shared memory, and which weights a lane takes.
#pragma once

#include "async_copy.hpp"
#include "quantized.hpp"
#include "rows_of_x.hpp"

namespace tallow {

// The 32 weights of a lane: runs whose quants share bytes. Where lanes share a block, none is shorter than a group, so
// that few scales are decoded, unless the halves of a run share bytes.
template <typename Block>
constexpr uint32_t most_runs = Block::elements == lane_weights || Block::apart < lane_weights ? lane_weights
                               : Block::group < lane_weights ? lane_weights / Block::group
                                                             : 1;
template <typename Block> constexpr uint32_t runs = Block::runs < most_runs<Block> ? Block::runs : most_runs<Block>;
template <typename Block> constexpr uint32_t apart = runs<Block> == 1 ? Block::elements : Block::apart;
template <typename Block> constexpr uint32_t run_length = lane_weights / runs<Block>;
// From one to the next of those that share a scale.
template <typename Block> constexpr uint32_t groups_apart = runs<Block> == 1 ? Block::group : Block::apart;

template <typename Block> constexpr uint32_t lanes_of_block = Block::elements / lane_weights;
template <typename Block> constexpr uint32_t runs_side_by_side = apart<Block> / run_length<Block>;

// Where those of a lane begin in their block.
template <typename Block> TALLOW_INLINE uint32_t first_weight(uint32_t lane) {
    const uint32_t place = lane % lanes_of_block<Block>;
    return runs<Block> * apart<Block> * (place / runs_side_by_side<Block>)+run_length<Block> *
           (place % runs_side_by_side<Block>);
}

// The same from the first weight of what the lanes of a wave take at a time on.
template <typename Block> TALLOW_INLINE uint32_t first_element(uint32_t lane) {
    return lane / lanes_of_block<Block> * Block::elements + first_weight<Block>(lane);
}

// A place in shared memory, as what copies to it takes it.
#if defined(TALLOW_HAS_ASYNC_COPIES)
using SharedPlace = uint32_t;
TALLOW_INLINE SharedPlace place_of_shared(bits128* pointer) {
    return shared_address(pointer);
}
TALLOW_INLINE const uint8_t* pointer_of_shared(SharedPlace place) {
    return static_cast<const uint8_t*>(__cvta_shared_to_generic(place));
}
TALLOW_INLINE void bring(bool is_needed, SharedPlace target, const uint8_t* source) {
    copy_async_if(is_needed, target, source);
}
#else
using SharedPlace = uint8_t*;
TALLOW_INLINE SharedPlace place_of_shared(bits128* pointer) {
    return reinterpret_cast<uint8_t*>(pointer);
}
TALLOW_INLINE const uint8_t* pointer_of_shared(SharedPlace place) {
    return place;
}
TALLOW_INLINE void commit_copies() {
}
template <uint32_t> TALLOW_INLINE void await_copies() {
}
TALLOW_INLINE void bring(bool is_needed, SharedPlace target, const uint8_t* source) {
    if (is_needed)
        store_registers(target, load_registers<access_bytes>(source));
}
#endif

// The bytes of rows of weights from `row` on, of which the last one stands for those behind it. A Tile says how many
// rows (columns), blocks and accesses there are in a part.
template <typename Tile, typename Arguments> struct BytesOfTile {
    using Block = typename Tile::Block;
    const Arguments& arguments;
    uint32_t row;

    TALLOW_INLINE uint64_t begin(uint32_t column, uint32_t part) const {
        const uint32_t length = arguments.hidden / Block::elements * static_cast<uint32_t>(sizeof(Block));
        const uint32_t own = row + column < arguments.rows ? row + column : arguments.rows - 1;
        return arguments.blocks + uint64_t{own} * length + part * (Tile::blocks * static_cast<uint32_t>(sizeof(Block)));
    }
    // Accesses behind all weights are none.
    TALLOW_INLINE void bring(bits128* window, uint32_t part) const {
        const uint64_t end = arguments.blocks + arguments.readable;
        const SharedPlace target = place_of_shared(window);
#pragma unroll
        for (uint32_t first = 0; first < Tile::columns * Tile::accesses; first += block_size) {
            const uint32_t number = first + thread_index();
            const uint64_t here = begin(number / Tile::accesses, part);
            const uint64_t source = here - Brought<Block>::skew(here) + number % Tile::accesses * access_bytes;
            tallow::bring(number < Tile::columns * Tile::accesses && source < end, target + number * access_bytes,
                          pointer_to<const uint8_t>(source));
        }
    }
    // The blocks of a part of a row in such a window.
    TALLOW_INLINE const Block* blocks_of(const bits128* window, uint32_t column, uint32_t part) const {
        const uint8_t* const accesses = reinterpret_cast<const uint8_t*>(window + column * Tile::accesses);
        return reinterpret_cast<const Block*>(accesses + Brought<Block>::skew(begin(column, part)));
    }
};

} // namespace tallow
