// Convolutions on the host, as products of a matrix of weights and what lies under each weight.
#pragma once

#include "epilogue.hpp"
#include "pair_product.hpp"

namespace tallow {

// Channels of a tile of the result.
constexpr uint32_t convolution_rows = 64;
static_assert(convolution_rows * (convolution_columns + 32) <= tile_sums && convolution_rows <= tile_rows);

// How many steps reach from `begin` up to `end`. Few steps are of more than 2 elements: a division takes long.
TALLOW_INLINE int64_t count_steps(int64_t begin, int64_t end, int64_t step) {
    const int64_t distance = end - begin;
    return distance <= 0 ? 0 : step == 1 ? distance : step == 2 ? (distance + 1) / 2 : (distance + step - 1) / step;
}

// Elements of a plane of the source: `line_length` of rows of `line_width`, with the strides `step_h` and `step_w` in
// the source, from (y, x) of the source on. What is outside of it is 0.
template <typename T, typename Arguments>
TALLOW_INLINE void take_line(const Arguments& arguments, const T* plane, int64_t y, int64_t x,
                             compute_type<T>* target) {
    const auto step = static_cast<int64_t>(arguments.step_w), step_h = static_cast<int64_t>(arguments.step_h);
    const auto width = static_cast<int64_t>(arguments.line_width);
    const auto height = static_cast<int64_t>(arguments.height);
    const auto length = static_cast<int64_t>(arguments.line_length);
    // The columns that are inside, from `first` up to `end`.
    const int64_t first = count_steps(x, 0, step);
    const int64_t inside = count_steps(x, static_cast<int64_t>(arguments.width), step);
    const int64_t end = inside < width ? inside : width;
    // One fill for all rows: their ends are short.
    for (int64_t i = 0; i < length; ++i)
        target[i] = 0;
    const T* source = plane + y * arguments.stride_h + (x + first * step) * arguments.stride_w;
    for (int64_t left = length; left > first && y < height; left -= width, y += step_h) {
        const int64_t to = end < left ? end : left;
        if (y >= 0 && first < to)
            widen_strided(static_cast<uint64_t>(to - first), target + first, source, step * arguments.stride_w);
        target += width;
        source += step_h * arguments.stride_h;
    }
}

// The lines of a tile of a plane of the source that the weights of a channel multiply.
template <typename T, typename Arguments>
TALLOW_INLINE void take_lines(const Arguments& arguments, const T* plane, uint64_t top, uint64_t left,
                              compute_type<T>* target) {
    const auto line_rows = pointer_to<const int64_t>(arguments.line_rows);
    const auto line_columns = pointer_to<const int64_t>(arguments.line_columns);
    for (uint64_t line = 0; line < arguments.lines; ++line)
        take_line(arguments, plane, static_cast<int64_t>(top * arguments.step_h) + line_rows[line],
                  static_cast<int64_t>(left * arguments.step_w) + line_columns[line],
                  target + line * arguments.line_length);
}

#if defined(TALLOW_PAIRS)
// As multiply_tile, with pairs of bf16: floats that bf16 became are paired for two columns of tiles at a time.
inline void multiply_tile_of_pairs(Tile<float>& tile, const bf16* weights, uint64_t step, uint32_t rows,
                                   uint32_t columns, uint32_t terms, uint32_t stride) {
    constexpr uint32_t line_stride = lines_stride(tile_terms), strip = 2 * pair_side;
    static_assert(tile_terms % (2 * pair_side) == 0);
    alignas(64) uint32_t lhs[convolution_rows / pair_side * line_stride];
    alignas(64) uint32_t rhs[strip / pair_side * line_stride];
    const UsesTiles tiles;
    const int64_t steps[2] = {static_cast<int64_t>(step), 1};
    take_pairs<line_stride, true>(weights, steps, rows, terms, lhs);
    const auto load = [&](uint32_t term, uint32_t column) {
        Pairs bits = {};
        if (term < terms)
            __builtin_memcpy(&bits, tile.rhs + tile.offsets[term] + column, sizeof bits);
        return bits;
    };
    const uint32_t pairs = (terms + 2 * pair_side - 1) / (2 * pair_side) * pair_side;
    for (uint32_t column = 0; column < columns; column += strip) {
        for (uint32_t pair = 0; pair < pairs; ++pair)
            for (uint32_t half = 0; half < strip / pair_side; ++half) {
                const uint32_t first = column + half * pair_side;
                const Pairs both = load(2 * pair, first) >> 16 | (load(2 * pair + 1, first) & 0xffff0000u);
                __builtin_memcpy(rhs + half * line_stride + pair * pair_side, &both, sizeof both);
            }
        multiply_pairs<line_stride>(rows, strip, terms, lhs, rhs, tile.sums + column, stride);
    }
}
#endif

// Adds to the sums of a tile the products of `terms` weights of each row, whose stride is `step`, and the elements
// under them.
template <typename T>
TALLOW_INLINE void multiply_lines(Tile<compute_type<T>>& tile, const T* weights, uint64_t step, uint32_t rows,
                                  uint32_t columns, uint32_t terms, uint32_t stride) {
#if defined(TALLOW_PAIRS)
    if constexpr (is_same<T, bf16>)
        if (has_pairs() && rows > max_rows_of_floats)
            return multiply_tile_of_pairs(tile, weights, step, rows, columns, terms, stride);
#endif
    for (uint32_t i = 0; i < rows; ++i)
        widen_span(terms, tile.lhs + i * tile.lhs_stride, weights + i * step);
    multiply_tile(tile, rows, columns, terms, tile.sums, stride);
}

// The host says which lines of a plane the weights of a channel multiply, and at which offset in them each begins.
// Lines are as long as a tile of the result and the weights next to each other, so no element is taken twice.
template <typename T, typename Arguments> TALLOW_INLINE void convolve(const Arguments& arguments) {
    using Value = compute_type<T>;
    const auto weight_offsets = pointer_to<const int64_t>(arguments.weight_offsets);
    const uint64_t down = (arguments.result_height + arguments.tile_height - 1) / arguments.tile_height;
    const uint64_t across = (arguments.result_width + arguments.tile_width - 1) / arguments.tile_width;
    const uint64_t row_blocks = (arguments.result_channels + convolution_rows - 1) / convolution_rows;
    const uint64_t all_weights = arguments.channels * arguments.weights;
    do_parts(arguments, arguments.batches * arguments.groups * row_blocks * down * across, [&](uint64_t part) {
        auto& tile = Tile<Value>::of_thread();
        const uint64_t left = part % across * arguments.tile_width;
        const uint64_t top = part / across % down * arguments.tile_height;
        const uint64_t row = part / across / down % row_blocks * convolution_rows;
        const uint64_t outer = part / across / down / row_blocks;
        const uint64_t group = outer % arguments.groups;
        const auto rows = static_cast<uint32_t>(
            arguments.result_channels - row < convolution_rows ? arguments.result_channels - row : convolution_rows);
        const uint64_t height = arguments.result_height - top < arguments.tile_height ? arguments.result_height - top
                                                                                      : arguments.tile_height;
        const uint64_t width =
            arguments.result_width - left < arguments.tile_width ? arguments.result_width - left : arguments.tile_width;
        const auto columns = static_cast<uint32_t>((height - 1) * arguments.line_width + width);
        const uint32_t stride = (columns + 31) / 32 * 32;
        const T* const source = pointer_to<const T>(arguments.source) +
                                static_cast<int64_t>(outer / arguments.groups) * arguments.stride_b +
                                static_cast<int64_t>(group * arguments.channels) * arguments.stride_c;
        for (uint32_t i = 0; i < rows * stride; ++i)
            tile.sums[i] = 0;
        for (uint64_t channel = 0; channel < arguments.channels; channel += arguments.channels_together) {
            const uint64_t together = arguments.channels - channel < arguments.channels_together
                                          ? arguments.channels - channel
                                          : arguments.channels_together;
            for (uint64_t i = 0; i < together; ++i) {
                const T* const plane = source + static_cast<int64_t>(channel + i) * arguments.stride_c;
                take_lines(arguments, plane, top, left, tile.rhs + i * arguments.lines * arguments.line_length);
            }
            const T* const weights = pointer_to<const T>(arguments.kernel) +
                                     group * arguments.result_channels * all_weights + channel * arguments.weights;
            // A channel may have more weights than fit in a block.
            for (uint64_t first = 0; first < together * arguments.weights; first += tile_terms) {
                const uint64_t remaining = together * arguments.weights - first;
                const auto terms = static_cast<uint32_t>(remaining < tile_terms ? remaining : tile_terms);
                uint64_t lines = first / arguments.weights * arguments.lines * arguments.line_length;
                for (uint64_t i = 0, weight = first % arguments.weights; i < terms; ++i) {
                    tile.offsets[i] = static_cast<uint32_t>(lines + static_cast<uint64_t>(weight_offsets[weight]));
                    if (++weight == arguments.weights) {
                        weight = 0;
                        lines += arguments.lines * arguments.line_length;
                    }
                }
                multiply_lines(tile, weights + row * all_weights + first, all_weights, rows, columns, terms, stride);
            }
        }
        const Epilogue<T, Arguments> epilogue{arguments};
        const auto element = [&](uint64_t i, uint64_t y) {
            return (outer * arguments.result_channels + row + i) * arguments.result_plane +
                   (top + y) * arguments.result_stride_h + left * arguments.result_stride_w;
        };
        for (uint32_t i = 0; i < rows; ++i) {
            Value* const sums = tile.sums + i * stride;
            epilogue.transform(sums, columns, group * arguments.result_channels + row + i, false);
            for (uint64_t y = 0; y < height; ++y)
                epilogue.add_residual(sums + y * arguments.line_width, width, element(i, y));
        }
        epilogue.activate(tile.sums, rows * stride);
        for (uint32_t i = 0; i < rows; ++i)
            for (uint64_t y = 0; y < height; ++y) {
                const Value* const sums = tile.sums + i * stride + y * arguments.line_width;
                T* const result = pointer_to<T>(arguments.result) + element(i, y);
                if (arguments.result_stride_w == 1)
                    narrow_span(width, result, sums);
                else
                    for (uint64_t x = 0; x < width; ++x)
                        result[x * arguments.result_stride_w] = convert<T>(sums[x]);
            }
    });
}

// Weights whose sums stay in registers.
constexpr uint32_t weights_together = 12;

// Adds to a vector of sums for each weight the products of a line of the gradient and what lies under the weight.
template <uint32_t Weights, typename T>
TALLOW_JOINING void multiply_weights(const T* gradient, const T* lines, const int64_t* offsets, uint32_t columns,
                                     T* sums) {
    TALLOW_JOIN
    using Vector = typename Tile<T>::Vector;
    Vector totals[Weights] = {};
    for (uint64_t i = 0; i < columns; i += Tile<T>::lanes) {
        const Vector g = *reinterpret_cast<const Vector*>(gradient + i);
        for (uint32_t w = 0; w < Weights; ++w)
            totals[w] += g * *reinterpret_cast<const Vector*>(lines + offsets[w] + i);
    }
    for (uint32_t w = 0; w < Weights; ++w)
        *reinterpret_cast<Vector*>(sums + w * Tile<T>::lanes) += totals[w];
}

template <uint32_t Weights, typename T, typename... Operands>
TALLOW_INLINE void multiply_some_weights(uint32_t weights, const T* gradient, Operands... operands) {
    if (weights >= Weights)
        multiply_weights<Weights>(gradient, operands...);
    else if constexpr (Weights > 1)
        multiply_some_weights<Weights - 1>(weights, gradient, operands...);
}

// The gradient of the kernel of a convolution: reads the gradient of its result where that is, and writes the kernel. A
// part is a channel of the source and some of the result, of which a vector of sums for each weight stays in the cache.
// Between the rows of a tile the gradient is 0: what is not finite there makes sums NaN, which the host looks for.
template <typename T, typename Arguments> TALLOW_INLINE void convolve_weight(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t lanes = Tile<Value>::lanes;
    const auto offsets = pointer_to<const int64_t>(arguments.weight_offsets);
    const uint64_t weights = arguments.weights;
    const uint64_t pieces = (weights + weights_together - 1) / weights_together;
    const uint64_t piece = (weights + pieces - 1) / pieces;
    const uint64_t fitting = tile_sums / (weights * lanes);
    const uint64_t most = fitting < arguments.result_channels ? fitting : arguments.result_channels;
    const uint64_t row_blocks = (arguments.result_channels + most - 1) / most;
    do_parts(arguments, arguments.groups * arguments.channels * row_blocks, [&](uint64_t part) {
        auto& tile = Tile<Value>::of_thread();
        const uint64_t row = part % row_blocks * most;
        const uint64_t channel = part / row_blocks % arguments.channels;
        const uint64_t group = part / row_blocks / arguments.channels;
        const uint64_t rows = arguments.result_channels - row < most ? arguments.result_channels - row : most;
        const uint64_t outer = group * arguments.result_channels + row;
        for (uint64_t i = 0; i < rows * weights * lanes; ++i)
            tile.sums[i] = 0;
        for (uint64_t batch = 0; batch < arguments.batches; ++batch) {
            const T* const plane = pointer_to<const T>(arguments.source) +
                                   static_cast<int64_t>(batch) * arguments.stride_b +
                                   static_cast<int64_t>(group * arguments.channels + channel) * arguments.stride_c;
            const T* const gradients =
                pointer_to<const T>(arguments.result) +
                (batch * arguments.groups * arguments.result_channels + outer) * arguments.result_plane;
            for (uint64_t top = 0; top < arguments.result_height; top += arguments.tile_height)
                for (uint64_t left = 0; left < arguments.result_width; left += arguments.tile_width) {
                    const uint64_t height = arguments.result_height - top < arguments.tile_height
                                                ? arguments.result_height - top
                                                : arguments.tile_height;
                    const uint64_t width = arguments.result_width - left < arguments.tile_width
                                               ? arguments.result_width - left
                                               : arguments.tile_width;
                    const auto columns = static_cast<uint32_t>((height - 1) * arguments.line_width + width);
                    const uint32_t padded = (columns + lanes - 1) / lanes * lanes;
                    take_lines(arguments, plane, top, left, tile.rhs);
                    for (uint32_t i = 0; i < padded; ++i)
                        tile.lhs[i] = 0;
                    for (uint64_t i = 0; i < rows; ++i) {
                        const T* const gradient =
                            gradients + i * arguments.result_plane + top * arguments.result_stride_h + left;
                        for (uint64_t y = 0; y < height; ++y)
                            widen_span(width, tile.lhs + y * arguments.line_width,
                                       gradient + y * arguments.result_stride_h);
                        for (uint64_t first = 0; first < weights; first += piece)
                            multiply_some_weights<weights_together>(
                                static_cast<uint32_t>(weights - first < piece ? weights - first : piece),
                                static_cast<const Value*>(tile.lhs), static_cast<const Value*>(tile.rhs),
                                offsets + first, columns, tile.sums + (i * weights + first) * lanes);
                    }
                }
        }
        for (uint64_t i = 0; i < rows; ++i) {
            T* const kernel = pointer_to<T>(arguments.kernel) + ((outer + i) * arguments.channels + channel) * weights;
            for (uint64_t w = 0; w < weights; ++w) {
                Value sum = 0;
                for (uint32_t lane = 0; lane < lanes; ++lane)
                    sum += tile.sums[(i * weights + w) * lanes + lane];
                kernel[w] = convert<T>(sum);
            }
        }
    });
}

} // namespace tallow
