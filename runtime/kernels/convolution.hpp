// Convolutions of (b, c, d, h, w), an element of the result by itself: what has too few channels for a matrix product.
#pragma once

#include "math.hpp"
#include "produce.hpp"
#include "reread.hpp"

namespace tallow {

// position / stride where that is an integer below `size`, else `size`: which source element meets a kernel element.
TALLOW_INLINE uint32_t source_of(uint32_t position, uint32_t tap_position, uint32_t stride, uint32_t size) {
    if (position < tap_position)
        return size;
    const uint32_t quotient = (position - tap_position) / stride;
    return quotient * stride == position - tap_position && quotient < size ? quotient : size;
}

// The products at one source position over all input channels, added to `sums`. A position that is not inside of
// the source has zeros.
template <typename T, typename Arguments>
TALLOW_INLINE void add_channels(const Arguments& arguments, const T* source, bool inside, const T* kernel,
                                uint32_t channels, compute_type<T> (&sums)[conv_channels]) {
    using Value = compute_type<T>;
    Value partial[conv_channels] = {};
    for (uint32_t c = 0; c < arguments.channels_in; ++c) {
        const Value x = inside ? to_compute(source[c * arguments.source_stride_c]) : Value{0};
#pragma unroll
        for (uint32_t i = 0; i < conv_channels; ++i)
            if (i < channels)
                partial[i] = multiply_add(
                    x, to_compute(kernel[c * arguments.kernel_stride_in + i * arguments.kernel_stride_out]),
                    partial[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < conv_channels; ++i)
        sums[i] = add(sums[i], partial[i]);
}

// Where a source element is that meets a kernel's element at `tap`: at a position of the padded source, or for a
// transposed convolution of the padded result. Outside of the source it is at `size` or beyond.
template <bool Transposed>
TALLOW_INLINE uint32_t source_position(uint32_t position, uint32_t tap, uint32_t padding, uint32_t stride,
                                       uint32_t size) {
    return Transposed ? source_of(position + padding, tap, stride, size) : position + tap - padding;
}

// The first tap along an axis that meets source elements of a transposed convolution at a position of the padded
// result; the next ones follow after a period each.
template <bool Transposed>
TALLOW_INLINE uint32_t first_tap(uint32_t position, uint32_t taps, uint32_t dilation, uint32_t stride) {
    if (!Transposed || stride == 1)
        return 0;
    uint32_t remainder = position % stride;
    const uint32_t step = dilation % stride;
    uint32_t tap = 0;
    for (; remainder != 0 && tap < taps; ++tap)
        remainder = remainder >= step ? remainder - step : remainder + stride - step;
    return tap;
}

// Operands 0 to 2 are the slice, the row and the column, of the padded source or for a transposed convolution of the
// padded result; operand 3 is the source, 4 the kernel, 5 the result and 6 the output channel of the group.
template <bool Transposed, typename T, typename Arguments> TALLOW_INLINE void convolve(const Arguments& launch) {
    // The zeros of the padding take part, since infinity times one of them is NaN.
    constexpr bool has_zeros = !Transposed && !is_integer<compute_type<T>>;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < launch.count; index += threads) {
        const Arguments& arguments = reread(launch);
        uint64_t offsets[7];
        locate(arguments, index, offsets);
        const uint32_t slice = static_cast<uint32_t>(offsets[0]);
        const uint32_t row = static_cast<uint32_t>(offsets[1]);
        const uint32_t column = static_cast<uint32_t>(offsets[2]);
        const T* const source = pointer_to<const T>(arguments.source) + offsets[3];
        const T* const kernel = pointer_to<const T>(arguments.kernel) + offsets[4];
        const uint32_t left = arguments.channels_out - static_cast<uint32_t>(offsets[6]);
        const uint32_t channels = left < conv_channels ? left : conv_channels;
        compute_type<T> sums[conv_channels] = {};
        const uint32_t first_y = first_tap<Transposed>(row + arguments.padding_h, arguments.kernel_h,
                                                       arguments.dilation_h, arguments.stride_h);
        const uint32_t first_x = first_tap<Transposed>(column + arguments.padding_w, arguments.kernel_w,
                                                       arguments.dilation_w, arguments.stride_w);
        uint32_t kz = first_tap<Transposed>(slice + arguments.padding_d, arguments.kernel_d, arguments.dilation_d,
                                            arguments.stride_d);
        for (; kz < arguments.kernel_d; kz += Transposed ? arguments.period_d : 1) {
            const uint32_t z = source_position<Transposed>(slice, kz * arguments.dilation_d, arguments.padding_d,
                                                           arguments.stride_d, arguments.source_d);
            if (!has_zeros && z >= arguments.source_d)
                continue;
            for (uint32_t ky = first_y; ky < arguments.kernel_h; ky += Transposed ? arguments.period_h : 1) {
                const uint32_t y = source_position<Transposed>(row, ky * arguments.dilation_h, arguments.padding_h,
                                                               arguments.stride_h, arguments.source_h);
                if (!has_zeros && y >= arguments.source_h)
                    continue;
                for (uint32_t kx = first_x; kx < arguments.kernel_w; kx += Transposed ? arguments.period_w : 1) {
                    const uint32_t x = source_position<Transposed>(
                        column, kx * arguments.dilation_w, arguments.padding_w, arguments.stride_w, arguments.source_w);
                    const bool inside = z < arguments.source_d && y < arguments.source_h && x < arguments.source_w;
                    if (has_zeros || inside)
                        add_channels(arguments,
                                     source + z * arguments.source_stride_d + y * arguments.source_stride_h +
                                         x * arguments.source_stride_w,
                                     inside,
                                     kernel + kz * arguments.kernel_stride_d + ky * arguments.kernel_stride_h +
                                         kx * arguments.kernel_stride_w,
                                     channels, sums);
                }
            }
        }
        T* const result = pointer_to<T>(arguments.result) + offsets[5];
#pragma unroll
        for (uint32_t i = 0; i < conv_channels; ++i)
            if (i < channels)
                result[i * arguments.result_stride_c] = convert<T>(sums[i]);
    }
}

} // namespace tallow
