// Decoding of block-quantized weights.
#pragma once

#include "async_copy.hpp"
#include "blocks.hpp"
#include "math.hpp"
#include "wave.hpp"

namespace tallow {

// What the quants of a group are multiplied by, and what is added.
struct ScaleOfGroup {
    float scale;
    float offset;

    template <typename Block> static TALLOW_INLINE ScaleOfGroup of(const Block& block, uint32_t group) {
        if constexpr (Block::has_offset)
            return {block.scale(group), block.offset(group)};
        else
            return {block.scale(group), 0.0f};
    }
};

// The grid of a format in shared memory, if it has one: lanes read different words of it.
template <typename Block> TALLOW_INLINE auto stage_grid() {
    if constexpr (Block::grid_words != 0) {
        __shared__ uint32_t grid[Block::grid_words];
        for (uint32_t i = thread_index(); i < Block::grid_words; i += block_size)
            grid[i] = Block::grid()[i];
        synchronize_block();
        return static_cast<const uint32_t*>(grid);
    } else {
        return grid_of<Block>();
    }
}

// N weights from position i on, which share a scale, of quants that are loaded: theirs begin with word `first`.
template <typename Block, typename Loaded, uint32_t N>
TALLOW_INLINE void decode_loaded(const Block& block, const Loaded& loaded, uint32_t first, uint32_t i,
                                 const ScaleOfGroup& group, float (&weights)[N]) {
#pragma unroll
    for (uint32_t quad = 0; quad < N / 4; ++quad) {
        const uint32_t quads = block.quads(loaded, first + quad, i + 4 * quad);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
            const float quant = quant_of<Block::bias>(quads, k);
            // The product is exact, so that it makes no difference that it is not rounded.
            weights[4 * quad + k] =
                Block::has_offset ? multiply_add(quant, group.scale, group.offset) : quant * group.scale;
        }
    }
}
// The same from position i on, a multiple of N; N is 4 or 8. Where it is 8, the block is in shared memory.
template <typename Block, uint32_t N>
TALLOW_INLINE void decode(const Block& block, const uint32_t* grid, uint32_t i, float (&weights)[N]) {
    const auto loaded = block.template load<N / 4>(i, grid);
    decode_loaded(block, loaded, 0, i, ScaleOfGroup::of(block, i / Block::group), weights);
}

// Numbers rounded to a type, as an access has them.
template <typename T, uint32_t N> TALLOW_INLINE Registers<N * sizeof(T)> round_all(const float (&values)[N]) {
    Registers<N * sizeof(T)> rounded;
#pragma unroll
    for (uint32_t w = 0; w < N * sizeof(T) / 4; ++w) {
        if constexpr (sizeof(T) == 2)
            rounded.values[w] = round_pair<T>(values[2 * w], values[2 * w + 1]);
        else
            rounded.values[w] = bit_cast<uint32_t>(values[w]);
    }
    return rounded;
}

// How blocks are staged in shared memory by aligned accesses. The first block is aligned to an access. The others are
// where their size is a multiple of an access; else blocks and their words are aligned to 2 bytes, and space for the
// skew is added.
template <typename Block> struct StagedBlocks {
    static constexpr bool is_aligned = sizeof(Block) % access_bytes == 0;

    template <uint32_t Bytes>
    static constexpr uint32_t accesses = (Bytes + (is_aligned ? 0 : 2 * access_bytes - 1)) / access_bytes;
    // How many bytes of its access are in front of a block at this address.
    static TALLOW_INLINE uint32_t skew(uint64_t address) {
        return is_aligned ? 0 : static_cast<uint32_t>(address) % access_bytes;
    }
};

// The blocks that a wave decodes at a time. Its lanes stage their bytes in shared memory by aligned accesses, wherever
// blocks begin: so each byte is fetched once, and all of them are in flight together.
template <typename Block, typename T> struct DecodedTile {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    // Lanes write side by side, so that a pack of a lane and its next one are so far from each other.
    static constexpr uint32_t pack_stride = wave_size * length;
    static constexpr uint32_t weights = pack_stride * decoded_packs;
    static_assert(weights % Block::elements == 0, "a tile is a number of blocks");
    static_assert(pack_stride % Block::elements == 0 || Block::elements % pack_stride == 0,
                  "packs of a lane have one position in their block");
    static constexpr uint32_t bytes = weights / Block::elements * sizeof(Block);
    static constexpr uint32_t accesses = StagedBlocks<Block>::template accesses<bytes>;
    static constexpr uint32_t rounds = (accesses + wave_size - 1) / wave_size;

    bits128 memory[accesses];

    // Stages `count` bytes from `begin` on. Of others it reads at most those that share an access with them.
    TALLOW_INLINE void stage(const Block* begin, uint32_t count) {
        const uint32_t skew = StagedBlocks<Block>::skew(reinterpret_cast<uint64_t>(begin));
        const uint32_t end = skew + count;
        const uint32_t offset = lane_index() * access_bytes;
        const uint8_t* const source = reinterpret_cast<const uint8_t*>(begin) - skew + offset;
        constexpr uint32_t step = wave_size * access_bytes;
#if defined(TALLOW_HAS_ASYNC_COPIES)
        const uint32_t target = shared_address(memory) + offset;
#pragma unroll
        for (uint32_t i = 0; i < rounds; ++i) {
            const uint32_t left = end - (offset + i * step);
            if (offset + i * step < end)
                copy_async(target + i * step, source + i * step, left < access_bytes ? left : access_bytes);
        }
        commit_copies();
        await_copies<0>();
#else
        uint8_t* const target = reinterpret_cast<uint8_t*>(memory) + offset;
        // No load waits for another one.
        Registers<access_bytes> accesses_of_lane[rounds];
#pragma unroll
        for (uint32_t i = 0; i < rounds; ++i)
            if (offset + i * step < end)
                accesses_of_lane[i] = load_registers<access_bytes>(source + i * step);
#pragma unroll
        for (uint32_t i = 0; i < rounds; ++i)
            if (offset + i * step < end)
                store_registers(target + i * step, accesses_of_lane[i]);
#endif
    }

    // Decodes `count` weights of a tile that was staged from `begin`.
    TALLOW_INLINE void decode_to(T* result, const Block* begin, const uint32_t* grid, uint32_t count) const {
        const uint32_t first_weight = lane_index() * length;
        const uint32_t skew = StagedBlocks<Block>::skew(reinterpret_cast<uint64_t>(begin));
        const uint8_t* const staged = reinterpret_cast<const uint8_t*>(memory) + skew;
        const Block* const blocks = reinterpret_cast<const Block*>(staged) + first_weight / Block::elements;
        T* const target = result + first_weight;
#pragma unroll
        for (uint32_t pack = 0; pack < decoded_packs; ++pack) {
            constexpr uint32_t elements = Block::elements;
            float values[length];
            // Behind the last block this is of no use, but without a branch several packs are decoded together.
            decode(blocks[pack * pack_stride / elements], grid, first_weight % elements + pack * pack_stride % elements,
                   values);
            const Registers<access_bytes> rounded = round_all<T>(values);
            if (first_weight + pack * pack_stride < count)
                store_streaming(target + pack * pack_stride, rounded);
        }
    }
};

template <typename Block, typename T, typename Arguments> TALLOW_INLINE void decode_tiles(const Arguments& arguments) {
    using Tile = DecodedTile<Block, T>;
    __shared__ Tile tiles[waves_per_block];
    Tile& tile = tiles[wave_index()];
    const uint32_t* const grid = stage_grid<Block>();
    const uint64_t step = static_cast<uint64_t>(grid_blocks()) * waves_per_block * Tile::weights;
    // The last ones first: what a product then reads first is still in the cache.
    const uint64_t block = grid_blocks() - 1 - block_index();
    uint64_t first = (block * waves_per_block + wave_index()) * Tile::weights;
#pragma unroll 1
    for (; first < arguments.count; first += step) {
        const uint64_t left = arguments.count - first;
        const uint32_t count = left < Tile::weights ? static_cast<uint32_t>(left) : Tile::weights;
        const Block* const begin = pointer_to<const Block>(arguments.blocks) + first / Block::elements;
        tile.stage(begin, count / Block::elements * sizeof(Block));
        synchronize_wave();
        tile.decode_to(pointer_to<T>(arguments.result) + first, begin, grid, count);
        synchronize_wave();
    }
}

// Weights that are floats have no blocks: thread by thread takes an access of them.
template <typename Block, typename T, typename Arguments> TALLOW_INLINE void round_floats(const Arguments& arguments) {
    using Value = decltype(Block::value);
    constexpr uint32_t length = pack_length<Value, T>;
    const Value* const weights = &pointer_to<const Block>(arguments.blocks)->value;
    const uint64_t step = static_cast<uint64_t>(grid_blocks()) * block_size * length;
    uint64_t first = (static_cast<uint64_t>(block_index()) * block_size + thread_index()) * length;
    for (; first < arguments.count; first += step) {
        const uint64_t left = arguments.count - first;
        const Pack<Value, length> pack =
            load_some<length>(weights + first, 1, left < length ? static_cast<uint32_t>(left) : length);
        Pack<T, length> rounded;
#pragma unroll
        for (uint32_t k = 0; k < length; ++k)
            rounded.values[k] = round_from<T>(to_compute(pack.values[k]));
        store_guarded(pointer_to<T>(arguments.result), first, arguments.count, rounded);
    }
}

template <typename Block, typename T, typename Arguments> TALLOW_INLINE void dequantize(const Arguments& arguments) {
    if constexpr (Block::elements == 1)
        round_floats<Block, T>(arguments);
    else
        decode_tiles<Block, T>(arguments);
}

} // namespace tallow
