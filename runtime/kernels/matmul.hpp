// Matrix products through shared memory, for what a library does not take: a block makes a square of elements, a thread
// a part of it. Sums go by steps of 16, so that rounding errors grow with the number of steps only.
#pragma once

#include "math.hpp"
#include "memory.hpp"

namespace tallow {

constexpr uint32_t matmul_depth = 16;
constexpr uint32_t matmul_part = 4;
static_assert(matmul_side / matmul_part * (matmul_side / matmul_part) == block_size, "a thread for each part");

template <typename Value> struct MatmulTile {
    // The padding keeps parts aligned and spreads the columns over the banks.
    alignas(16) Value values[matmul_depth][matmul_side + 4];
};

// Loads a tile, along the dim in which the operand is dense; what is outside is 0.
template <typename T, typename Value>
TALLOW_INLINE void load_matmul_tile(MatmulTile<Value>& tile, const T* operand, uint64_t line_stride,
                                    uint64_t step_stride, uint32_t lines, uint32_t steps) {
    const bool along_steps = step_stride == 1;
#pragma unroll
    for (uint32_t i = 0; i < matmul_side * matmul_depth; i += block_size) {
        const uint32_t element = i + thread_index();
        const uint32_t line = along_steps ? element / matmul_depth : element % matmul_side;
        const uint32_t step = along_steps ? element % matmul_depth : element / matmul_side;
        const bool inside = line < lines && step < steps;
        tile.values[step][line] = inside ? to_compute(operand[line * line_stride + step * step_stride]) : Value{0};
    }
}

// Operands 0 and 1 of the dims are the first elements of the matrices of lhs and rhs.
template <typename T, typename Arguments> TALLOW_INLINE void matmul(const Arguments& arguments) {
    using Value = compute_type<T>;
    __shared__ MatmulTile<Value> lhs_tile;
    __shared__ MatmulTile<Value> rhs_tile;
    const uint32_t tiles_n = (arguments.n + matmul_side - 1) / matmul_side;
    const uint32_t tiles_m = (arguments.m + matmul_side - 1) / matmul_side;
    const uint32_t first_n = thread_index() % (matmul_side / matmul_part) * matmul_part;
    const uint32_t first_m = thread_index() / (matmul_side / matmul_part) * matmul_part;
    const uint32_t tiles = arguments.batches * tiles_m * tiles_n;
    for (uint32_t t = block_index(); t < tiles; t += grid_blocks()) {
        const uint32_t row = t / tiles_n;
        const uint32_t batch = row / tiles_m;
        const uint32_t tile_n = (t - row * tiles_n) * matmul_side;
        const uint32_t tile_m = (row - batch * tiles_m) * matmul_side;
        uint64_t offsets[2];
        locate(arguments, batch, offsets);
        const T* const lhs = pointer_to<const T>(arguments.lhs) + offsets[0] + tile_m * arguments.lhs_stride_m;
        const T* const rhs = pointer_to<const T>(arguments.rhs) + offsets[1] + tile_n * arguments.rhs_stride_n;
        Value sums[matmul_part][matmul_part] = {};
        for (uint32_t k = 0; k < arguments.k; k += matmul_depth) {
            load_matmul_tile(lhs_tile, lhs + k * arguments.lhs_stride_k, arguments.lhs_stride_m, arguments.lhs_stride_k,
                             arguments.m - tile_m, arguments.k - k);
            load_matmul_tile(rhs_tile, rhs + k * arguments.rhs_stride_k, arguments.rhs_stride_n, arguments.rhs_stride_k,
                             arguments.n - tile_n, arguments.k - k);
            synchronize_block();
            Value partial[matmul_part][matmul_part] = {};
#pragma unroll 4
            for (uint32_t step = 0; step < matmul_depth; ++step) {
                Value x[matmul_part];
                Value y[matmul_part];
#pragma unroll
                for (uint32_t i = 0; i < matmul_part; ++i) {
                    x[i] = lhs_tile.values[step][first_m + i];
                    y[i] = rhs_tile.values[step][first_n + i];
                }
#pragma unroll
                for (uint32_t i = 0; i < matmul_part; ++i)
#pragma unroll
                    for (uint32_t j = 0; j < matmul_part; ++j)
                        partial[i][j] = multiply_add(x[i], y[j], partial[i][j]);
            }
#pragma unroll
            for (uint32_t i = 0; i < matmul_part; ++i)
#pragma unroll
                for (uint32_t j = 0; j < matmul_part; ++j)
                    sums[i][j] = add(sums[i][j], partial[i][j]);
            synchronize_block();
        }
        if (arguments.bias != 0)
#pragma unroll
            for (uint32_t j = 0; j < matmul_part; ++j)
                if (tile_n + first_n + j < arguments.n) {
                    const uint64_t bias_offset = (tile_n + first_n + j) * arguments.bias_stride;
                    const Value added = to_compute(pointer_to<const T>(arguments.bias)[bias_offset]);
#pragma unroll
                    for (uint32_t i = 0; i < matmul_part; ++i)
                        sums[i][j] = add(sums[i][j], added);
                }
        T* const result = pointer_to<T>(arguments.result) + uint64_t{batch} * arguments.m * arguments.n;
#pragma unroll
        for (uint32_t i = 0; i < matmul_part; ++i)
#pragma unroll
            for (uint32_t j = 0; j < matmul_part; ++j)
                if (tile_m + first_m + i < arguments.m && tile_n + first_n + j < arguments.n)
                    result[uint64_t{tile_m + first_m + i} * arguments.n + tile_n + first_n + j] =
                        convert<T>(sums[i][j]);
    }
}

} // namespace tallow
