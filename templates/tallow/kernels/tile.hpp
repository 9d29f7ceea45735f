// Transposes through shared memory: dim 0 is the result's innermost, dim 1 the one in which a turned source is dense.
// Either way a wave moves 128 bytes in a row.
#pragma once

#include "memory.hpp"

namespace tallow {

template <typename T> struct Tile {
    // Narrow elements move as words of 4 bytes, so that their tiles are wider.
    static constexpr uint32_t pack = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    static constexpr uint32_t side = 32 * pack;
    static constexpr uint32_t packs_per_line = side / pack;
    static constexpr uint32_t lines_at_once = block_size / packs_per_line;
    T values[side][side + pack];
};

// Where a block's tile begins, and each operand's first element in it.
template <uint32_t Operands> struct TilePlace {
    uint32_t first_column;
    uint32_t first_line;
    uint64_t offsets[Operands];
};

// Tiles count along dim 0, then dim 1, then the dims above.
template <uint32_t Side, uint32_t Operands, typename Arguments>
TALLOW_INLINE TilePlace<Operands> locate_tile(const Arguments& arguments, uint32_t tile) {
    TilePlace<Operands> place;
    const uint32_t columns = (arguments.dims[0] + Side - 1) / Side;
    const uint32_t lines = (arguments.dims[1] + Side - 1) / Side;
    const uint32_t row = tile / columns;
    uint32_t index = row / lines;
    place.first_column = (tile - row * columns) * Side;
    place.first_line = (row - index * lines) * Side;
#pragma unroll
    for (uint32_t k = 0; k < Operands; ++k)
        place.offsets[k] = place.first_column * arguments.strides[k * max_rank] +
                           place.first_line * arguments.strides[k * max_rank + 1];
#pragma unroll 1
    for (uint32_t d = 2; d < arguments.rank; ++d) {
        const uint32_t quotient = divide(index, arguments.multipliers[d], arguments.shifts[d]);
#pragma unroll
        for (uint32_t k = 0; k < Operands; ++k)
            place.offsets[k] += (index - quotient * arguments.dims[d]) * arguments.strides[k * max_rank + d];
        index = quotient;
    }
    return place;
}

// Reads the tile along dim 1, in which the source has stride 1: shared line i is column i of the result.
template <typename T>
TALLOW_INLINE void load_turned(Tile<T>& tile, const T* source, uint64_t column_stride, uint32_t columns,
                               uint32_t lines) {
    using Shape = Tile<T>;
    const uint32_t along = thread_index() % Shape::packs_per_line * Shape::pack;
#pragma unroll
    for (uint32_t i = 0; i < Shape::side; i += Shape::lines_at_once) {
        const uint32_t column = i + thread_index() / Shape::packs_per_line;
        if (column < columns && along < lines) {
            const Pack<T, Shape::pack> pack =
                load_some<Shape::pack>(source + column * column_stride + along, 1, lines - along);
#pragma unroll
            for (uint32_t j = 0; j < Shape::pack; ++j)
                tile.values[column][along + j] = pack.values[j];
        }
    }
}

template <typename T>
TALLOW_INLINE Pack<T, Tile<T>::pack> read_turned(const Tile<T>& tile, uint32_t line, uint32_t column) {
    Pack<T, Tile<T>::pack> pack;
#pragma unroll
    for (uint32_t j = 0; j < Tile<T>::pack; ++j)
        pack.values[j] = tile.values[column + j][line];
    return pack;
}

// result = source with dims 0 and 1 dense in one each.
template <typename T, typename Arguments> TALLOW_INLINE void copy_turned(const Arguments& arguments) {
    using Shape = Tile<T>;
    __shared__ Shape tile;
    for (uint32_t t = block_index(); t < arguments.tiles; t += grid_blocks()) {
        const TilePlace<2> place = locate_tile<Shape::side, 2>(arguments, t);
        const uint32_t columns = arguments.dims[0] - place.first_column;
        const uint32_t lines = arguments.dims[1] - place.first_line;
        load_turned(tile, pointer_to<const T>(arguments.source) + place.offsets[1], arguments.strides[max_rank],
                    columns, lines);
        synchronize_block();
        const uint32_t column = thread_index() % Shape::packs_per_line * Shape::pack;
        T* const result = pointer_to<T>(arguments.result) + place.offsets[0] + column;
#pragma unroll
        for (uint32_t i = 0; i < Shape::side; i += Shape::lines_at_once) {
            const uint32_t line = i + thread_index() / Shape::packs_per_line;
            if (line < lines && column < columns)
                store_guarded(result + line * arguments.strides[1], 0, columns - column,
                              read_turned(tile, line, column));
        }
        synchronize_block();
    }
}

// result = function(lhs, rhs), of which one or both are turned. Operand 0 is the result, dense in dim 0.
template <typename Function, typename T, typename Arguments>
TALLOW_INLINE void binary_tiles(const Arguments& arguments, Function function) {
    using Shape = Tile<T>;
    constexpr uint32_t length = Shape::pack;
    __shared__ Shape tile;
    for (uint32_t t = block_index(); t < arguments.tiles; t += grid_blocks()) {
        const TilePlace<3> place = locate_tile<Shape::side, 3>(arguments, t);
        const uint32_t columns = arguments.dims[0] - place.first_column;
        const uint32_t lines = arguments.dims[1] - place.first_line;
        // Operand 1 is the turned one: the launcher swaps, and `swapped` says that it did.
        load_turned(tile, pointer_to<const T>(arguments.turned) + place.offsets[1], arguments.strides[max_rank],
                    columns, lines);
        synchronize_block();
        const uint32_t column = thread_index() % Shape::packs_per_line * length;
        T* const result = pointer_to<T>(arguments.result) + place.offsets[0] + column;
        const uint64_t stride = arguments.strides[2 * max_rank];
        const T* const straight = pointer_to<const T>(arguments.straight) + place.offsets[2] + column * stride;
#pragma unroll
        for (uint32_t i = 0; i < Shape::side; i += Shape::lines_at_once) {
            const uint32_t line = i + thread_index() / Shape::packs_per_line;
            if (line < lines && column < columns) {
                const Pack<T, length> x = read_turned(tile, line, column);
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
        synchronize_block();
    }
}

} // namespace tallow
