// Depthwise convolutions of images: each channel of the result is made of one channel of the source.
#pragma once

#include "math.hpp"
#include "produce.hpp"
#include "reduce.hpp"

namespace tallow {

// A depthwise convolution, or the gradient of its input: a sum over the `channels` of the result that a channel of the
// input has made, with a dilation of 1. A thread makes some rows of a column, so that its loads are those of
// neighbouring threads one row further on. Operand 0 is the first of these rows, 1 the column, 2 the source, 3 the
// kernel and 4 the result.
template <bool Transposed, typename T, typename Arguments> TALLOW_INLINE void depthwise(const Arguments& arguments) {
    using Value = compute_type<T>;
    // The zeros of the padding take part, since infinity times one of them is NaN.
    constexpr bool has_zeros = !Transposed && !is_integer<Value>;
    const uint32_t stride_h = arguments.stride_h;
    const uint32_t stride_w = arguments.stride_w;
    // From one row of the thread to the next, and from one tap that meets an element of the source to the next. The
    // rows of a transposed convolution are of one phase of the stride, and meet the same taps.
    const uint32_t row_step = Transposed ? stride_h : 1;
    const uint32_t source_row_step = Transposed ? 1 : stride_h;
    const uint32_t tap_step_h = Transposed ? stride_h : 1;
    const uint32_t tap_step_w = Transposed ? stride_w : 1;
    const uint32_t source_step_h = Transposed ? ~0u : arguments.dilation_h;
    const uint32_t source_step_w = Transposed ? ~0u : arguments.dilation_w;
    const uint32_t channels = Transposed ? arguments.channels : 1;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < arguments.count; index += threads) {
        uint64_t offsets[5];
        locate(arguments, index, offsets);
        const uint32_t row = static_cast<uint32_t>(offsets[0]);
        const uint32_t column = static_cast<uint32_t>(offsets[1]);
        const T* source = pointer_to<const T>(arguments.source) + offsets[2];
        const T* kernel = pointer_to<const T>(arguments.kernel) + offsets[3];
        // Above and left of the source the difference wraps around to a large number.
        const uint32_t y_first =
            Transposed ? (row + arguments.padding_h) / stride_h : row * stride_h - arguments.padding_h;
        const uint32_t x_first =
            Transposed ? (column + arguments.padding_w) / stride_w : column * stride_w - arguments.padding_w;
        const uint32_t ky_first = Transposed ? row + arguments.padding_h - y_first * stride_h : 0;
        const uint32_t kx_first = Transposed ? column + arguments.padding_w - x_first * stride_w : 0;
        Value sums[depthwise_rows] = {};
        for (uint32_t c = 0; c < channels; ++c) {
            for (uint32_t ky = ky_first, y = y_first; ky < arguments.kernel_h; ky += tap_step_h, y += source_step_h) {
                const T* lines[depthwise_rows];
                uint32_t widths[depthwise_rows];
#pragma unroll
                for (uint32_t i = 0; i < depthwise_rows; ++i) {
                    const uint32_t line = y + i * source_row_step;
                    widths[i] = line < arguments.source_h ? arguments.source_w : 0;
                    lines[i] = source + line * arguments.source_stride_h;
                }
#pragma unroll 1
                for (uint32_t kx = kx_first, x = x_first; kx < arguments.kernel_w;
                     kx += tap_step_w, x += source_step_w) {
                    const Value weight =
                        to_compute(kernel[ky * arguments.kernel_stride_h + kx * arguments.kernel_stride_w]);
#pragma unroll
                    for (uint32_t i = 0; i < depthwise_rows; ++i) {
                        const bool inside = x < widths[i];
                        const Value value = inside ? to_compute(lines[i][x * arguments.source_stride_w]) : Value{0};
                        if (has_zeros || inside)
                            sums[i] = multiply_add(value, weight, sums[i]);
                    }
                }
            }
            source += arguments.source_stride_c;
            kernel += arguments.kernel_stride_c;
        }
        T* const result = pointer_to<T>(arguments.result) + offsets[4];
#pragma unroll
        for (uint32_t i = 0; i < depthwise_rows; ++i)
            if (row + i * row_step < arguments.rows)
                result[i * row_step * arguments.result_stride_h] = convert<T>(sums[i]);
    }
}

struct AddDepthwise {
    template <typename Value> static TALLOW_INLINE Value combine(Value x, Value y) {
        return add(x, y);
    }
};

// The gradient of the kernel, in the compute dtype. A block sums the products of one channel of the result for some
// taps of a row of the kernel, over `part` of the positions of all images. Operand 0 is the row and 1 the column of the
// padded source, 2 the image of the source and 3 the gradient.
template <typename T, typename Arguments> TALLOW_INLINE void depthwise_weight(const Arguments& arguments) {
    using Value = compute_type<T>;
    const uint32_t pieces = (arguments.kernel_w + depthwise_taps - 1) / depthwise_taps;
    const uint32_t kx_first = block_index() % pieces * depthwise_taps;
    const uint32_t line = block_index() / pieces;
    const uint32_t ky = line % arguments.kernel_h;
    const uint32_t outer = line / arguments.kernel_h;
    const uint32_t channel = outer % arguments.channels;
    const uint32_t begin = outer / arguments.channels * arguments.part;
    const uint32_t end = arguments.count - begin < arguments.part ? arguments.count : begin + arguments.part;
    const T* const source =
        pointer_to<const T>(arguments.source) + channel / arguments.multiplier * arguments.source_stride_c;
    const T* const gradient = pointer_to<const T>(arguments.gradient) + channel * arguments.gradient_stride_c;
    Value sums[depthwise_taps] = {};
    for (uint32_t index = begin + thread_index(); index < end; index += block_size) {
        uint64_t offsets[4];
        locate(arguments, index, offsets);
        const uint32_t y = static_cast<uint32_t>(offsets[0]) + ky * arguments.dilation_h - arguments.padding_h;
        const uint32_t width = y < arguments.source_h ? arguments.source_w : 0;
        const T* const row = source + offsets[2] + y * arguments.source_stride_h;
        const Value g = to_compute(gradient[offsets[3]]);
        uint32_t x = static_cast<uint32_t>(offsets[1]) + kx_first * arguments.dilation_w - arguments.padding_w;
#pragma unroll
        for (uint32_t i = 0; i < depthwise_taps; ++i, x += arguments.dilation_w) {
            if (kx_first + i < arguments.kernel_w) {
                const Value value = x < width ? to_compute(row[x * arguments.source_stride_w]) : Value{0};
                sums[i] = multiply_add(value, g, sums[i]);
            }
        }
    }
    Value* const result = pointer_to<Value>(arguments.result) + uint64_t{line} * arguments.kernel_w + kx_first;
    for (uint32_t i = 0; i < depthwise_taps && kx_first + i < arguments.kernel_w; ++i) {
        const Value sum = reduce_team<AddDepthwise>(sums[i], block_size);
        if (thread_index() == 0)
            result[i] = sum;
    }
}

} // namespace tallow
