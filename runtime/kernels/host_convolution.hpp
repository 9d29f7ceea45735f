// Convolutions on the host, as products of a matrix of weights and what lies under each weight.
#pragma once

#include "tile_product.hpp"

namespace tallow {

// Channels of a tile of the result.
constexpr uint32_t convolution_rows = 64;
static_assert(convolution_rows * (convolution_columns + 32) <= tile_sums && convolution_rows <= tile_rows);

// Elements of a plane of the source: `length` of rows of `width`, each `step_h` and `step_w` elements of the source
// apart, from (y, x) of the source on. What is outside of it is 0.
template <typename T, typename Arguments>
TALLOW_INLINE void take_line(const Arguments& arguments, const T* plane, int64_t y, int64_t x,
                             compute_type<T>* target) {
    const auto step = static_cast<int64_t>(arguments.step_w);
    const auto within = static_cast<int64_t>(arguments.width);
    const auto width = static_cast<int64_t>(arguments.line_width);
    // The columns that are inside: from `first` up to `end`.
    const int64_t first = x < 0 ? (-x + step - 1) / step : 0;
    const int64_t end = x < within ? (within - x + step - 1) / step : 0;
    const auto step_h = static_cast<int64_t>(arguments.step_h);
    for (auto left = static_cast<int64_t>(arguments.line_length); left > 0;
         left -= width, target += width, y += step_h) {
        const int64_t count = left < width ? left : width;
        const bool is_inside = y >= 0 && y < static_cast<int64_t>(arguments.height);
        const int64_t from = is_inside && first < count ? first : count;
        const int64_t to = end < from ? from : end < count ? end : count;
        for (int64_t i = 0; i < from; ++i)
            target[i] = 0;
        if (from < to)
            widen_strided(static_cast<uint64_t>(to - from), target + from,
                          plane + y * arguments.stride_h + (x + from * step) * arguments.stride_w,
                          step * arguments.stride_w);
        for (int64_t i = to; i < count; ++i)
            target[i] = 0;
    }
}

// The host says which lines of a plane the weights of a channel multiply, and at which place in them each begins. Lines
// are as long as a tile of the result, with room for the weights beside one another, so no element is taken twice.
template <typename T, typename Arguments> TALLOW_INLINE void convolve(const Arguments& arguments) {
    using Value = compute_type<T>;
    const auto line_rows = pointer_to<const int64_t>(arguments.line_rows);
    const auto line_columns = pointer_to<const int64_t>(arguments.line_columns);
    const auto weight_places = pointer_to<const int64_t>(arguments.weight_places);
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
                for (uint64_t line = 0; line < arguments.lines; ++line)
                    take_line(arguments, plane, static_cast<int64_t>(top * arguments.step_h) + line_rows[line],
                              static_cast<int64_t>(left * arguments.step_w) + line_columns[line],
                              tile.rhs + (i * arguments.lines + line) * arguments.line_length);
            }
            const T* const weights = pointer_to<const T>(arguments.kernel) +
                                     group * arguments.result_channels * all_weights + channel * arguments.weights;
            // A channel may have more weights than a block has room for.
            for (uint64_t first = 0; first < together * arguments.weights; first += tile_terms) {
                const uint64_t rest = together * arguments.weights - first;
                const auto terms = static_cast<uint32_t>(rest < tile_terms ? rest : tile_terms);
                for (uint32_t i = 0; i < rows; ++i)
                    widen_span(terms, tile.lhs + i * tile.lhs_stride, weights + (row + i) * all_weights + first);
                for (uint32_t i = 0; i < terms; ++i)
                    tile.places[i] = static_cast<uint32_t>(
                        (first + i) / arguments.weights * arguments.lines * arguments.line_length +
                        static_cast<uint64_t>(weight_places[(first + i) % arguments.weights]));
                multiply_tile(tile, rows, columns, terms, tile.sums, stride);
            }
        }
        for (uint32_t i = 0; i < rows; ++i)
            for (uint64_t y = 0; y < height; ++y) {
                const Value* const sums = tile.sums + i * stride + y * arguments.line_width;
                T* const result = pointer_to<T>(arguments.result) +
                                  (outer * arguments.result_channels + row + i) * arguments.result_plane +
                                  (top + y) * arguments.result_stride_h + left * arguments.result_stride_w;
                if (arguments.result_stride_w == 1)
                    narrow_span(width, result, sums);
                else
                    for (uint64_t x = 0; x < width; ++x)
                        result[x * arguments.result_stride_w] = convert<T>(sums[x]);
            }
    });
}

} // namespace tallow
