// Normalisation of channels on the host: of rows that are the positions of a channel, or the channels of a position.
// Pieces are summed in the compute type, and combined as doubles.
#pragma once

#include "math.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "statistics.hpp"
#include "vector.hpp"

#define TALLOW_INLINE_LAMBDA __attribute__((always_inline))

namespace tallow {

// Elements of a part of the work, roughly; elements, or rows, of a piece; rows that are summed at once.
constexpr uint64_t channels_part = 1 << 14;
constexpr uint64_t channels_piece = 512;
constexpr uint64_t channels_height = 64;
constexpr uint64_t channels_rows = 8;

// Sums of factors, and of their products with distances from a shift: the factors are these distances, or gradients.
struct ChannelSums {
    double first;
    double second;

    TALLOW_INLINE void add(const ChannelSums& y) {
        first += y.first;
        second += y.second;
    }
};
// How many elements there are, their mean, and the sum of the squares of their distances from it.
struct ChannelMoments {
    double count;
    double mean;
    double squares;

    TALLOW_INLINE ChannelMoments(const ChannelSums& sums, double shift, double number) : count(number) {
        const double step = sums.first / count;
        mean = shift + step;
        squares = sums.second - sums.first * step;
        squares = squares < 0 ? 0 : squares;
    }
    TALLOW_INLINE void add(const ChannelMoments& y) {
        const double total = count + y.count, step = y.mean - mean;
        mean += step * (y.count / total);
        squares += y.squares + step * step * (count * y.count / total);
        count = total;
    }
};

template <uint64_t Lanes, bool Gradient, typename Value>
TALLOW_INLINE void add_lanes(Value* __restrict first, Value* __restrict second, const Value* __restrict source,
                             [[maybe_unused]] const Value* __restrict gradient, Value shift) {
    for (uint64_t lane = 0; lane < Lanes; ++lane) {
        const Value distance = source[lane] - shift;
        const Value factor = Gradient ? gradient[lane] : distance;
        first[lane] += factor;
        second[lane] = fma(factor, distance, second[lane]);
    }
}
template <bool Gradient, typename Value>
__attribute__((noinline)) ChannelSums sums_of_span(uint64_t count, const Value* source, const Value* gradient,
                                                   Value shift) {
    constexpr uint64_t lanes = 256 / sizeof(Value), few = lanes / 8;
    Value first[lanes] = {}, second[lanes] = {};
    uint64_t i = 0;
    for (; i + lanes <= count; i += lanes)
        add_lanes<lanes, Gradient>(first, second, source + i, gradient + i, shift);
    for (; i + few <= count; i += few)
        add_lanes<few, Gradient>(first, second, source + i, gradient + i, shift);
    for (; i < count; ++i)
        add_lanes<1, Gradient>(first, second, source + i, gradient + i, shift);
    for (uint64_t half = lanes / 2; half > 0; half /= 2)
        for (uint64_t lane = 0; lane < half; ++lane) {
            first[lane] += first[lane + half];
            second[lane] += second[lane + half];
        }
    return {static_cast<double>(first[0]), static_cast<double>(second[0])};
}

// What elements of one channel are written by: (x - mean) * scale + bias, or with a gradient g
// g * scale - bias - (x - mean) * slope.
template <typename Value> struct ChannelFactors {
    Value mean;
    Value scale;
    Value bias;
    Value slope;
};
template <bool Gradient, bool Biased, typename Value>
__attribute__((noinline)) void write_span(uint64_t count, Value* result, const Value* source, const Value* gradient,
                                          const ChannelFactors<Value>& by) {
    const ChannelFactors<Value> own = by;
    TALLOW_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
        const Value distance = source[i] - own.mean;
        if constexpr (Gradient)
            result[i] = (gradient[i] * own.scale - own.bias) - distance * own.slope;
        else
            result[i] = Biased ? distance * own.scale + own.bias : distance * own.scale;
    }
}
// The same of rows with a channel for each element.
template <bool Gradient, bool Biased, typename Value>
__attribute__((noinline)) void write_channels(uint64_t count, Value* result, const Value* source, const Value* gradient,
                                              const Value* mean, const Value* scale, const Value* bias,
                                              const Value* slope) {
    TALLOW_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
        const Value distance = source[i] - mean[i];
        if constexpr (Gradient)
            result[i] = (gradient[i] * scale[i] - bias[i]) - distance * slope[i];
        else
            result[i] = Biased ? distance * scale[i] + bias[i] : distance * scale[i];
    }
}

// `Rows` rows added to the sums of their channels.
template <uint64_t Rows, bool Gradient, typename Value>
__attribute__((noinline)) void add_rows(uint64_t count, Value* first, Value* second, const Value* shift,
                                        const Value* source, uint64_t step, [[maybe_unused]] const Value* gradient,
                                        [[maybe_unused]] uint64_t gradient_step) {
    TALLOW_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
        Value sum{}, product{};
        for (uint64_t row = 0; row < Rows; ++row) {
            const Value distance = source[row * step + i] - shift[i];
            const Value factor = Gradient ? gradient[row * gradient_step + i] : distance;
            sum += factor;
            product = fma(factor, distance, product);
        }
        first[i] += sum;
        second[i] += product;
    }
}

TALLOW_INLINE uint64_t lower_of(uint64_t x, uint64_t y) {
    return x < y ? x : y;
}

// Normalises elements, or computes their gradients. A vector of factors serves an item of the batch, or all of them.
template <typename T, typename Arguments> class HostChannels {
    using Value = widened<T>;
    static constexpr bool is_small = is_small_float<T>;
    // Elements that are converted together.
    static constexpr uint64_t buffer_length = is_small ? channels_rows * channels_piece / 2 : 1;
    const Arguments& arguments_;
    const uint64_t batch_, channels_, length_, groups_;
    const Value epsilon_;
    const bool is_whole_;
    const uint64_t vectors_;

  public:
    TALLOW_INLINE explicit HostChannels(const Arguments& arguments)
        : arguments_(arguments), batch_(arguments.batch), channels_(arguments.channels), length_(arguments.length),
          groups_(arguments.channels / arguments.group_size), epsilon_(from_bits<Value>(arguments.epsilon)),
          is_whole_(arguments.batch_groups == 0), vectors_(is_whole_ ? 1 : arguments.batch) {
    }

    template <bool Gradient> TALLOW_INLINE void run_rows() {
        const uint64_t items = is_whole_ ? batch_ : 1, size = arguments_.group_size;
        const uint64_t together = lower_of(groups_, channels_part / (items * size * length_ + 1) + 1);
        const uint64_t parts = (groups_ + together - 1) / together;
        do_parts(arguments_, vectors_ * parts, [&, items, size, together, parts](uint64_t part) {
            const uint64_t vector = part / parts, first = part % parts * together;
            const uint64_t last = lower_of(first + together, groups_);
            Value* const factors = factors_of(vector);
            for (uint64_t channel = first * size; channel < last * size; ++channel) {
                *sums_of(vector, channel) = {};
                factors[channel] = Gradient ? mean_of(vector, channel) : first_of(vector, channel, 0);
            }
            for (uint64_t item = vector; item < vector + items; ++item)
                visit_planes<Gradient>(
                    item, first * size, last * size,
                    [&](uint64_t channel, uint64_t count, const Value* x, const Value* g, Value*) TALLOW_INLINE_LAMBDA {
                        const Value shift = factors[channel];
                        sums_of(vector, channel)->add(sums_of_span<Gradient>(count, x, g, shift));
                    });
            for (uint64_t group = first; group < last; ++group)
                join_unit<Gradient>(vector * groups_ + group, vector, vector + 1, items * length_, factors);
            for (uint64_t item = vector; item < vector + items; ++item)
                write_planes<Gradient>(item, first * size, last * size, factors);
        });
        if constexpr (Gradient)
            add_vector_gradients(vectors_, 1);
    }
    template <bool Gradient> TALLOW_INLINE void run_columns() {
        const uint64_t splits = arguments_.splits;
        for (uint64_t vector = 0; vector < vectors_; ++vector)
            for (uint64_t i = 0; i < channels_; ++i)
                factors_of(vector)[i] = Gradient ? mean_of(vector, i) : first_of(vector, 0, i);
        do_parts(arguments_, length_ ? batch_ * splits : 0, [&, splits](uint64_t part) {
            const uint64_t item = part / splits, begin = part % splits * arguments_.chunk;
            add_columns<Gradient>(item, begin, lower_of(begin + arguments_.chunk, length_),
                                  factors_of(is_whole_ ? 0 : item), sums_of(part, 0));
        });
        const uint64_t items = is_whole_ ? batch_ : 1;
        for (uint64_t vector = 0; vector < vectors_; ++vector)
            for (uint64_t group = 0; group < groups_; ++group)
                join_unit<Gradient>(vector * groups_ + group, vector * splits, (vector + items) * splits,
                                    items * length_, factors_of(vector));
        write_columns<Gradient>();
        if constexpr (Gradient)
            add_vector_gradients(batch_ * splits, splits);
    }
    // With statistics passed for each channel.
    template <bool IsRow> TALLOW_INLINE void run_given() {
        Value* const factors = factors_of(0);
        for (uint64_t i = 0; i < channels_; ++i)
            set_factors(factors, i,
                        scale_of(i, load_number<T>(arguments_.mean, i, arguments_.wide_statistics),
                                 load_number<T>(arguments_.variance, i, arguments_.wide_statistics)));
        if constexpr (!IsRow) {
            write_columns<false>();
        } else {
            const uint64_t together = lower_of(channels_, channels_part / (length_ + 1) + 1);
            const uint64_t parts = together ? (channels_ + together - 1) / together : 0;
            do_parts(arguments_, batch_ * parts, [&, together, parts](uint64_t part) {
                const uint64_t first = part % parts * together;
                write_planes<false>(part / parts, first, lower_of(first + together, channels_), factors);
            });
        }
    }

  private:
    TALLOW_INLINE uint64_t unit_of(uint64_t item, uint64_t channel) const {
        return item * arguments_.batch_groups + channel / arguments_.group_size;
    }
    TALLOW_INLINE Value mean_of(uint64_t item, uint64_t channel) const {
        return pointer_to<const Value>(arguments_.mean)[unit_of(item, channel)];
    }
    TALLOW_INLINE Value first_of(uint64_t item, uint64_t row, uint64_t column) const {
        return length_ && batch_ ? to_compute(source_of(item, row)[column]) : Value{0};
    }
    TALLOW_INLINE Value weight_of(uint64_t channel) const {
        return arguments_.weight ? load_number<T>(arguments_.weight, channel, arguments_.wide_affine) : Value{1};
    }
    TALLOW_INLINE ChannelFactors<Value> scale_of(uint64_t channel, Value mean, Value variance) const {
        const Value root = rsqrt(variance + epsilon_);
        return {mean, arguments_.weight ? root * weight_of(channel) : root,
                arguments_.bias ? load_number<T>(arguments_.bias, channel, arguments_.wide_affine) : Value{0},
                Value{0}};
    }
    TALLOW_INLINE const T* source_of(uint64_t item, uint64_t row) const {
        return pointer_to<const T>(arguments_.source) + item * arguments_.source_batch + row * arguments_.source_step;
    }
    TALLOW_INLINE const T* gradient_of(uint64_t item, uint64_t row) const {
        return pointer_to<const T>(arguments_.gradient) + item * arguments_.gradient_batch +
               row * arguments_.gradient_step;
    }
    TALLOW_INLINE ChannelSums* sums_of(uint64_t part, uint64_t channel) const {
        return pointer_to<ChannelSums>(arguments_.sums) + part * channels_ + channel;
    }
    // Four vectors: of means, which begin as the shifts of sums, of scales, biases and slopes.
    TALLOW_INLINE Value* factors_of(uint64_t vector) const {
        return pointer_to<Value>(arguments_.factors) + vector * 4 * channels_;
    }
    TALLOW_INLINE void set_factors(Value* factors, uint64_t channel, const ChannelFactors<Value>& by) const {
        factors[channel] = by.mean;
        factors[channels_ + channel] = by.scale;
        factors[2 * channels_ + channel] = by.bias;
        factors[3 * channels_ + channel] = by.slope;
    }
    // Rows in the type in which they are computed: the source itself, or converted into the buffer.
    TALLOW_INLINE const Value* rows_of(uint64_t rows, uint64_t count, const T* source, uint64_t step,
                                       [[maybe_unused]] Value* buffer) const {
        if constexpr (is_small) {
            if (step == count)
                convert_span(rows * count, buffer, source);
            else
                for (uint64_t row = 0; row < rows; ++row)
                    convert_span(count, buffer + row * count, source + row * step);
            return buffer;
        } else {
            return source;
        }
    }

    // Calls visit(channel, count, x, gradient, result) for pieces of the planes of channels [begin, end).
    template <bool Gradient, bool Writes = false, typename Visit>
    TALLOW_INLINE void visit_planes(uint64_t item, uint64_t begin, uint64_t end, const Visit& visit) const {
        Value buffers[3][buffer_length];
        const bool are_dense = arguments_.source_step == length_ && (!Gradient || arguments_.gradient_step == length_);
        // Short planes are converted together.
        const uint64_t together =
            is_small && are_dense && length_ * 2 <= buffer_length ? buffer_length / (length_ + (length_ == 0)) : 1;
        const uint64_t piece = is_small ? buffer_length : Writes ? length_ : channels_piece;
        for (uint64_t channel = begin; channel < end; channel += together) {
            const uint64_t planes = lower_of(together, end - channel);
            for (uint64_t first = 0; first < length_; first += piece) {
                const uint64_t count = lower_of(length_ - first, piece);
                T* const result = pointer_to<T>(arguments_.result) + (item * channels_ + channel) * length_ + first;
                const Value* const x = rows_of(planes, count, source_of(item, channel) + first, count, buffers[0]);
                const Value* const g =
                    Gradient ? rows_of(planes, count, gradient_of(item, channel) + first, count, buffers[1]) : x;
                Value* const output = Writes ? result_span<T>(result, buffers[2]) : nullptr;
                for (uint64_t i = 0; i < planes; ++i)
                    visit(channel + i, count, x + i * count, g + i * count, Writes ? output + i * count : nullptr);
                if constexpr (Writes)
                    finish_span<T>(planes * count, result, output);
            }
        }
    }
    template <bool Gradient>
    TALLOW_INLINE void write_planes(uint64_t item, uint64_t begin, uint64_t end, const Value* factors) const {
        visit_planes<Gradient, true>(
            item, begin, end,
            [&](uint64_t channel, uint64_t count, const Value* x, const Value* g, Value* output) TALLOW_INLINE_LAMBDA {
                const Value* const own = factors + channel;
                const ChannelFactors<Value> by{own[0], own[channels_], own[2 * channels_], own[3 * channels_]};
                if (Gradient || arguments_.bias)
                    write_span<Gradient, true>(count, output, x, g, by);
                else
                    write_span<Gradient, false>(count, output, x, g, by);
            });
    }

    // The sums of rows [begin, end) of an item, of channels side by side.
    template <bool Gradient>
    TALLOW_INLINE void add_columns(uint64_t item, uint64_t begin, uint64_t end, const Value* shift,
                                   ChannelSums* sums) const {
        Value buffers[2][is_small ? channels_rows * channels_piece : 1];
        Value first[channels_piece], second[channels_piece];
        for (uint64_t channel = 0; channel < channels_; channel += channels_piece) {
            const uint64_t count = lower_of(channels_ - channel, channels_piece);
            for (uint64_t i = 0; i < count; ++i)
                sums[channel + i] = {};
            for (uint64_t row = begin; row < end;) {
                const uint64_t block_end = lower_of(row + channels_height, end);
                for (uint64_t i = 0; i < count; ++i)
                    first[i] = second[i] = 0;
                for (uint64_t step = 0; row < block_end; row += step) {
                    step = row + channels_rows <= block_end ? channels_rows : 1;
                    const Value* const x =
                        rows_of(step, count, source_of(item, row) + channel, arguments_.source_step, buffers[0]);
                    const Value* const g = Gradient ? rows_of(step, count, gradient_of(item, row) + channel,
                                                              arguments_.gradient_step, buffers[1])
                                                    : x;
                    const uint64_t x_step = is_small ? count : arguments_.source_step;
                    const uint64_t g_step = is_small ? count : arguments_.gradient_step;
                    if (step == 1)
                        add_rows<1, Gradient>(count, first, second, shift + channel, x, x_step, g, g_step);
                    else
                        add_rows<channels_rows, Gradient>(count, first, second, shift + channel, x, x_step, g, g_step);
                }
                for (uint64_t i = 0; i < count; ++i)
                    sums[channel + i].add({static_cast<double>(first[i]), static_cast<double>(second[i])});
            }
        }
    }
    template <bool Gradient> TALLOW_INLINE void write_columns() const {
        const uint64_t rows = batch_ * length_, together = channels_part / (channels_ + 1) + 1;
        do_parts(arguments_, (rows + together - 1) / together, [&, rows, together](uint64_t part) {
            Value buffers[3][buffer_length];
            const uint64_t width = is_small ? lower_of(channels_, channels_piece) : channels_;
            const uint64_t end = lower_of((part + 1) * together, rows);
            uint64_t step = 0;
            for (uint64_t row = part * together; row < end; row += step) {
                const uint64_t item = row / length_, position = row % length_;
                const Value* const factors = factors_of(is_whole_ ? 0 : item);
                step = is_small && width == channels_
                           ? lower_of(lower_of(buffer_length / width, length_ - position), end - row)
                           : 1;
                for (uint64_t first = 0; first < channels_; first += width) {
                    const uint64_t count = lower_of(channels_ - first, width);
                    T* const result = pointer_to<T>(arguments_.result) + row * channels_ + first;
                    const Value* const x =
                        rows_of(step, count, source_of(item, position) + first, arguments_.source_step, buffers[0]);
                    const Value* const g = Gradient ? rows_of(step, count, gradient_of(item, position) + first,
                                                              arguments_.gradient_step, buffers[1])
                                                    : x;
                    Value* const output = result_span<T>(result, buffers[2]);
                    const Value* const by = factors + first;
                    for (uint64_t k = 0; k < step * count; k += count)
                        if (Gradient || arguments_.bias)
                            write_channels<Gradient, true>(count, output + k, x + k, g + k, by, by + channels_,
                                                           by + 2 * channels_, by + 3 * channels_);
                        else
                            write_channels<Gradient, false>(count, output + k, x + k, g + k, by, by + channels_, by,
                                                            by);
                    finish_span<T>(step * count, result, output);
                }
            }
        });
    }

    // The factors of the channels of a unit, from the sums of the parts [begin, end) of `rows` positions together.
    template <bool Gradient>
    TALLOW_INLINE void join_unit(uint64_t unit, uint64_t begin, uint64_t end, uint64_t rows, Value* factors) const {
        const uint64_t channel = unit % groups_ * arguments_.group_size, last = channel + arguments_.group_size;
        const auto own_count = static_cast<double>(rows);
        const double count = own_count * static_cast<double>(arguments_.group_size);
        ChannelMoments known({0, 0}, 0, 1);
        ChannelSums total{};
        for (uint64_t c = channel; c < last; ++c) {
            ChannelSums sums{};
            for (uint64_t part = begin; rows != 0 && part < end; ++part)
                sums.add(*sums_of(part, c));
            if constexpr (Gradient) {
                const double weight = static_cast<double>(weight_of(c));
                total.add({sums.first * weight, sums.second * weight});
            } else {
                const ChannelMoments own(sums, static_cast<double>(factors[c]), own_count);
                if (c == channel)
                    known = own;
                else
                    known.add(own);
            }
        }
        if constexpr (Gradient) {
            const Value root = rsqrt(pointer_to<const Value>(arguments_.variance)[unit] + epsilon_);
            const double wide = static_cast<double>(root);
            const auto bias = static_cast<Value>(total.first / count * wide);
            const auto slope = static_cast<Value>(total.second / count * wide * wide * wide);
            const Value mean = pointer_to<const Value>(arguments_.mean)[unit];
            for (uint64_t c = channel; c < last; ++c)
                set_factors(factors, c, {mean, root * weight_of(c), bias, slope});
        } else {
            // 0 / 0 where there are no elements.
            const auto variance = static_cast<Value>(known.squares / count);
            const Value mean = rows != 0 ? static_cast<Value>(known.mean) : variance;
            pointer_to<Value>(arguments_.mean)[unit] = mean;
            pointer_to<Value>(arguments_.variance)[unit] = variance;
            for (uint64_t c = channel; c < last; ++c)
                set_factors(factors, c, scale_of(c, mean, variance));
        }
    }
    // From the sums of all parts, of which `splits` are of an item.
    TALLOW_INLINE void add_vector_gradients(uint64_t parts, uint64_t splits) const {
        for (uint64_t channel = 0; channel < channels_; ++channel) {
            ChannelSums sums{};
            for (uint64_t part = 0; length_ != 0 && part < parts; ++part) {
                const uint64_t unit = unit_of(part / splits, channel);
                const Value root = rsqrt(pointer_to<const Value>(arguments_.variance)[unit] + epsilon_);
                const ChannelSums own = *sums_of(part, channel);
                sums.add({own.first, own.second * static_cast<double>(root)});
            }
            store_number<T>(arguments_.weight_gradient, channel, static_cast<Value>(sums.second),
                            arguments_.wide_affine);
            store_number<T>(arguments_.bias_gradient, channel, static_cast<Value>(sums.first), arguments_.wide_affine);
        }
    }
};

template <typename T, typename Arguments> TALLOW_INLINE void scale_groups_rows(const Arguments& arguments) {
    HostChannels<T, Arguments>(arguments).template run_rows<false>();
}
template <typename T, typename Arguments> TALLOW_INLINE void scale_groups_columns(const Arguments& arguments) {
    HostChannels<T, Arguments>(arguments).template run_columns<false>();
}
template <typename T, typename Arguments> TALLOW_INLINE void slope_groups_rows(const Arguments& arguments) {
    HostChannels<T, Arguments>(arguments).template run_rows<true>();
}
template <typename T, typename Arguments> TALLOW_INLINE void slope_groups_columns(const Arguments& arguments) {
    HostChannels<T, Arguments>(arguments).template run_columns<true>();
}
template <typename T, typename Arguments> TALLOW_INLINE void scale_channels_rows(const Arguments& arguments) {
    HostChannels<T, Arguments>(arguments).template run_given<true>();
}
template <typename T, typename Arguments> TALLOW_INLINE void scale_channels_columns(const Arguments& arguments) {
    HostChannels<T, Arguments>(arguments).template run_given<false>();
}

template <typename T, typename Arguments> TALLOW_INLINE void move_statistics(const Arguments& arguments) {
    for (uint64_t i = 0; i < arguments.count; ++i)
        move_statistics_of<T>(arguments, i);
}

} // namespace tallow
