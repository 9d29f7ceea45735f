// Transposes through shared memory: dim 0 is the result's innermost, dim 1 the one in which a transposed source is
// dense. In both cases a wave moves 128 adjacent bytes.
#pragma once

#include "memory.hpp"

namespace tallow {

template <typename T> struct Tile {
    // Narrow elements move as words of 4 bytes, so that their tiles are wider.
    static constexpr uint32_t pack = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    static constexpr uint32_t side = tile_side<sizeof(T)>;
    static constexpr uint32_t packs_per_line = side / pack;
    static constexpr uint32_t lines_at_once = block_size / packs_per_line;
    static_assert(side % pack == 0 && block_size % packs_per_line == 0 && side % lines_at_once == 0, "no thread idles");
    // The result's lines. A wave reads the packs of one of them, or writes one pack of every `pack`th: with a pack of
    // padding after `pack` lines, those too are in different banks.
    alignas(Pack<T, pack>) T values[side / pack][pack * side + pack];
    TALLOW_INLINE T* at(uint32_t line, uint32_t column) {
        return values[line / pack] + line % pack * side + column;
    }
};

// Where a block's tile begins, and each operand's first element in it.
template <uint32_t Operands> struct TileOrigin {
    uint32_t first_column;
    uint32_t first_line;
    uint64_t offsets[Operands];
};

// A block has one tile, since what functions hold in registers would stay there through a loop over tiles. They count
// along dim 0, then dim 1, then the dims above.
template <uint32_t Side, uint32_t Operands, typename Arguments>
TALLOW_INLINE TileOrigin<Operands> locate_tile(const Arguments& arguments) {
    const uint32_t tile = arguments.first_tile + block_index();
    TileOrigin<Operands> origin;
    const uint32_t columns = (arguments.dims[0] + Side - 1) / Side;
    const uint32_t lines = (arguments.dims[1] + Side - 1) / Side;
    const uint32_t row = tile / columns;
    uint32_t index = row / lines;
    origin.first_column = (tile - row * columns) * Side;
    origin.first_line = (row - index * lines) * Side;
#pragma unroll
    for (uint32_t k = 0; k < Operands; ++k)
        origin.offsets[k] = origin.first_column * arguments.strides[k * max_rank] +
                            origin.first_line * arguments.strides[k * max_rank + 1];
#pragma unroll 1
    for (uint32_t d = 2; d < arguments.rank; ++d) {
        const uint32_t quotient = divide(index, arguments.multipliers[d], arguments.shifts[d]);
#pragma unroll
        for (uint32_t k = 0; k < Operands; ++k)
            origin.offsets[k] += (index - quotient * arguments.dims[d]) * arguments.strides[k * max_rank + d];
        index = quotient;
    }
    return origin;
}

// Columns of a square of the tile, transposed in registers, so that shared memory is written in packs.
template <typename T, uint32_t N>
TALLOW_INLINE void store_transposed(Tile<T>& tile, uint32_t line, uint32_t column, const Pack<T, N> (&columns)[N]) {
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) {
        Pack<T, N> pack;
#pragma unroll
        for (uint32_t j = 0; j < N; ++j)
            pack.values[j] = columns[j].values[k];
        store_pack(tile.at(line + k, column), pack);
    }
}

// Reads the tile along dim 1, in which the source has stride 1.
template <typename T>
TALLOW_INLINE void load_transposed(Tile<T>& tile, const T* source, uint64_t column_stride, uint32_t columns,
                                   uint32_t lines) {
    using Shape = Tile<T>;
    constexpr uint32_t length = Shape::pack;
    const uint32_t line = thread_index() % Shape::packs_per_line * length;
    if (columns >= Shape::side && lines >= Shape::side && is_aligned<length>(source) && column_stride % length == 0) {
        // Without conditions, so that four loads of a thread are in flight together.
        constexpr uint32_t squares = 4 / length;
        constexpr uint32_t step = Shape::lines_at_once * length;
#pragma unroll 1
        for (uint32_t i = 0; i < Shape::side; i += squares * step) {
            const uint32_t first = i + thread_index() / Shape::packs_per_line * length;
            Pack<T, length> loaded[squares][length];
#pragma unroll
            for (uint32_t s = 0; s < squares; ++s)
#pragma unroll
                for (uint32_t j = 0; j < length; ++j)
                    loaded[s][j] = load_pack<length>(source + (first + s * step + j) * column_stride + line);
#pragma unroll
            for (uint32_t s = 0; s < squares; ++s)
                store_transposed(tile, line, first + s * step, loaded[s]);
        }
    } else {
#pragma unroll 1
        for (uint32_t i = 0; i < Shape::side; i += Shape::lines_at_once) {
            const uint32_t column = i + thread_index() / Shape::packs_per_line;
            if (column < columns && line < lines) {
                const Pack<T, length> pack = load_some<length>(source + column * column_stride + line, 1, lines - line);
#pragma unroll
                for (uint32_t k = 0; k < length; ++k)
                    *tile.at(line + k, column) = pack.values[k];
            }
        }
    }
}

template <typename T>
TALLOW_INLINE Pack<T, Tile<T>::pack> read_transposed(Tile<T>& tile, uint32_t line, uint32_t column) {
    return load_pack<Tile<T>::pack>(tile.at(line, column));
}

// result = source with dims 0 and 1 dense in one each.
template <typename T, typename Arguments> TALLOW_INLINE void copy_transposed(const Arguments& arguments) {
    using Shape = Tile<T>;
    __shared__ Shape tile;
    const TileOrigin<2> origin = locate_tile<Shape::side, 2>(arguments);
    const uint32_t columns = arguments.dims[0] - origin.first_column;
    const uint32_t lines = arguments.dims[1] - origin.first_line;
    load_transposed(tile, pointer_to<const T>(arguments.source) + origin.offsets[1], arguments.strides[max_rank],
                    columns, lines);
    synchronize_block();
    const uint32_t column = thread_index() % Shape::packs_per_line * Shape::pack;
    T* const result = pointer_to<T>(arguments.result) + origin.offsets[0] + column;
#pragma unroll 4
    for (uint32_t i = 0; i < Shape::side; i += Shape::lines_at_once) {
        const uint32_t line = i + thread_index() / Shape::packs_per_line;
        if (line < lines && column < columns)
            store_guarded(result + line * arguments.strides[1], 0, columns - column,
                          read_transposed(tile, line, column));
    }
}

// result = function(lhs, rhs), of which one or both are transposed. Operand 0 is the result, dense in dim 0.
template <typename Function, typename T, typename Arguments>
TALLOW_INLINE void binary_tiles(const Arguments& arguments, Function function) {
    using Shape = Tile<T>;
    constexpr uint32_t length = Shape::pack;
    // More packs of several elements would take too many registers.
    constexpr uint32_t unrolled = length == 1 ? 4 : 1;
    __shared__ Shape tile;
    const TileOrigin<3> origin = locate_tile<Shape::side, 3>(arguments);
    const uint32_t columns = arguments.dims[0] - origin.first_column;
    const uint32_t lines = arguments.dims[1] - origin.first_line;
    // Operand 1 is the transposed one: the launcher swaps, and `swapped` says that it did.
    load_transposed(tile, pointer_to<const T>(arguments.transposed) + origin.offsets[1], arguments.strides[max_rank],
                    columns, lines);
    synchronize_block();
    const uint32_t column = thread_index() % Shape::packs_per_line * length;
    T* const result = pointer_to<T>(arguments.result) + origin.offsets[0] + column;
    const uint64_t stride = arguments.strides[2 * max_rank];
    const T* const straight = pointer_to<const T>(arguments.straight) + origin.offsets[2] + column * stride;
#pragma unroll unrolled
    for (uint32_t i = 0; i < Shape::side; i += Shape::lines_at_once) {
        const uint32_t line = i + thread_index() / Shape::packs_per_line;
        if (line < lines && column < columns) {
            const Pack<T, length> x = read_transposed(tile, line, column);
            const Pack<T, length> y =
                load_some<length>(straight + line * arguments.strides[2 * max_rank + 1], stride, columns - column);
            Pack<T, length> pack;
#pragma unroll
            for (uint32_t j = 0; j < length; ++j)
                pack.values[j] =
                    arguments.swapped ? function(y.values[j], x.values[j]) : function(x.values[j], y.values[j]);
            store_guarded(result + line * arguments.strides[1], 0, columns - column, pack);
        }
    }
}

} // namespace tallow
