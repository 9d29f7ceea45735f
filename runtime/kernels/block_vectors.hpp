// Block-quantized weights as vectors of the host: runs of 32 quants that follow each other, and what they are decoded
// to.
#pragma once

#include "blocks.hpp"
#include "byte_products.hpp"
#include "math.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

using Floats = Vector<float, run_length>;
using Integers = Vector<int32_t, run_length>;
constexpr uint32_t run_vectors = run_length * sizeof(float) / sizeof(Floats);
constexpr uint32_t vector_quants = run_length / run_vectors;

// How many runs a block has, and how many scales a run.
template <typename Block> constexpr uint32_t block_runs = Block::elements / run_length;
template <typename Block> constexpr uint32_t run_groups = Block::group < run_length ? run_length / Block::group : 1;
// Quants of 8 bits are signed as they stand.
template <typename Block> constexpr bool is_signed = Block::bias == -128;

// Has the processor fetch bytes that follow later: by itself it stops where a page does.
template <uint32_t Bytes> TALLOW_INLINE void fetch_ahead(const void* pointer) {
    constexpr uint32_t ahead = 2048;
#pragma GCC unroll 5
    for (uint32_t byte = 0; byte < Bytes; byte += line_bytes)
        __builtin_prefetch(static_cast<const uint8_t*>(pointer) + ahead + byte);
}

// Positions in a block of the words of a vector of quants.
template <uint32_t Count> constexpr Vector<uint32_t, Count> word_positions() {
    Vector<uint32_t, Count> positions = {};
    for (uint32_t i = 0; i < Count / 4; ++i)
        positions[i] = 4 * i;
    return positions;
}

// The quants of a run, or of two, a byte each, less the bias. Quants that are `run_stride` stand in the same bytes:
// where a vector has such, both parts of it use the same bytes.
template <uint32_t Count = run_length, typename Block>
TALLOW_INLINE Vector<uint8_t, Count> unpack(const Block& block, uint32_t first) {
    constexpr uint32_t words = Count / 4;
    typename Block::template Loaded<words> loaded;
    if constexpr (Block::run_stride % Count == 0) {
        loaded = block.template load<words>(first, grid_of<Block>());
    } else {
        static_assert(Block::run_stride == Count / 2);
        const auto half = block.template load<words / 2>(first, grid_of<Block>());
        for (uint32_t i = 0; i < sizeof(loaded.words) / sizeof(loaded.words[0]); ++i)
            loaded.words[i].values[0] = twice(half.words[i].values[0]);
    }
    return bit_cast<Vector<uint8_t, Count>>(block.quads(loaded, 0, word_positions<Count>() + first));
}
// The quants themselves.
template <typename Block> TALLOW_INLINE Vector<int8_t, run_length> unpack_signed(const Block& block, uint32_t first) {
    if constexpr (is_signed<Block>)
        return bit_cast<Vector<int8_t, run_length>>(bit_cast<Vector<uint32_t, run_length>>(unpack(block, first)) ^
                                                    0x80808080u);
    else
        return bit_cast<Vector<int8_t, run_length>>(unpack(block, first)) + static_cast<int8_t>(Block::bias);
}

// Either of them.
template <bool IsSigned, typename Block> TALLOW_INLINE auto unpack_as(const Block& block, uint32_t first) {
    if constexpr (IsSigned)
        return unpack_signed(block, first);
    else
        return unpack(block, first);
}

// Integers of as many bytes. gcc converts them one by one.
TALLOW_INLINE Integers widen(const int8_t* bytes) {
#if defined(__AVX2__)
    return (Integers)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
#else
    return __builtin_convertvector((load_full_vector<Vector<int8_t, vector_quants>>(bytes)), Integers);
#endif
}

// The weights of a run, rounded once: products are exact.
template <typename Block>
TALLOW_INLINE void decode_run(const Block& block, uint32_t first, Floats (&weights)[run_vectors]) {
    const Vector<int8_t, run_length> quants = unpack_signed(block, first);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < run_vectors; ++k) {
        const uint32_t group = (first + k * vector_quants) / Block::group;
        const Integers part = widen(reinterpret_cast<const int8_t*>(&quants) + k * vector_quants);
        weights[k] = __builtin_convertvector(part, Floats) * block.scale(group);
        if constexpr (Block::has_offset)
            weights[k] += block.offset(group);
    }
}

// The same of any number of weights, a multiple of the length of a block.
template <typename Block>
TALLOW_INLINE void decode_blocks(const Block* blocks, uint64_t first, uint64_t count, float* weights) {
    if constexpr (Block::elements == 1)
        convert_span(count, weights, &blocks[first].value);
    else
        for (uint64_t i = first / Block::elements; i < (first + count) / Block::elements; ++i)
#pragma GCC unroll 8
            for (uint32_t run = 0; run < block_runs<Block>; ++run, weights += run_length) {
                Floats decoded[run_vectors];
                decode_run(blocks[i], run * run_length, decoded);
                __builtin_memcpy(weights, decoded, sizeof decoded);
            }
}
template <> TALLOW_INLINE void decode_blocks(const BlockF32* blocks, uint64_t first, uint64_t count, float* weights) {
    __builtin_memcpy(weights, blocks + first, count * sizeof(float));
}

} // namespace tallow
