// Normalisation of channels on the host: of rows that are the positions of a channel, or the channels of a position.
// Pieces are summed in the compute type, and joined as doubles.
#pragma once

#include "math.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "vector.hpp"

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

template <typename T, typename Arguments> class HostChannels {
    using Value = widened<T>;
    const Arguments& arguments_;
    const uint64_t batch_, channels_, length_, groups_;
    const Value epsilon_;

  public:
    TALLOW_INLINE explicit HostChannels(const Arguments& arguments)
        : arguments_(arguments), batch_(arguments.batch), channels_(arguments.channels), length_(arguments.length),
          groups_(arguments.channels / arguments.group_size), epsilon_(from_bits<Value>(arguments.epsilon)) {
    }

    // Statistics are made where they are not given, and gradients where `Gradient`.
    template <bool Gradient> TALLOW_INLINE void run_rows() {
        const bool is_whole = arguments_.batch_groups == 0;
        const uint64_t units = is_whole ? groups_ : batch_ * groups_, items = is_whole ? batch_ : 1;
        const uint64_t count = items * arguments_.group_size * length_;
        const uint64_t together = channels_part / (count + 1) + 1;
        do_parts(arguments_, (units + together - 1) / together, [&, together, count, items, is_whole](uint64_t part) {
            for (uint64_t unit = part * together; unit < lower_of((part + 1) * together, units); ++unit) {
                const uint64_t item = is_whole ? 0 : unit / groups_;
                const uint64_t channel = unit % groups_ * arguments_.group_size;
                if constexpr (Gradient)
                    slope_unit(unit, item, item + items, channel, static_cast<double>(count));
                else
                    scale_unit(unit, item, item + items, channel, static_cast<double>(count));
            }
        });
        if constexpr (Gradient)
            add_vector_gradients(1);
    }
    // By statistics that are given for each channel.
    TALLOW_INLINE void run_given_rows() {
        const uint64_t together = channels_part / (length_ + 1) + 1, rows = batch_ * channels_;
        do_parts(arguments_, (rows + together - 1) / together, [&, together, rows](uint64_t part) {
            for (uint64_t row = part * together; row < lower_of((part + 1) * together, rows); ++row) {
                const uint64_t channel = row % channels_;
                const auto by = factors_of(channel, given(arguments_.mean, channel, arguments_.wide_statistics),
                                           given(arguments_.variance, channel, arguments_.wide_statistics));
                write_row<false>(row / channels_, channel, by);
            }
        });
    }

    template <bool Gradient> TALLOW_INLINE void run_columns() {
        Value* const factors = pointer_to<Value>(arguments_.factors);
        const bool is_whole = arguments_.batch_groups == 0;
        const uint64_t vectors = is_whole ? 1 : batch_, splits = arguments_.splits;
        for (uint64_t item = 0; item < vectors; ++item)
            for (uint64_t i = 0; i < channels_; ++i)
                factors[item * 4 * channels_ + i] = Gradient
                                                        ? pointer_to<const Value>(arguments_.mean)[unit_of(item, i)]
                                                        : (length_ ? to_compute(source_of(item, 0)[i]) : Value{0});
        do_parts(arguments_, length_ ? batch_ * splits : 0, [&, is_whole, splits, factors](uint64_t part) {
            const uint64_t item = part / splits, begin = part % splits * arguments_.chunk;
            add_columns<Gradient>(item, begin, lower_of(begin + arguments_.chunk, length_),
                                  factors + (is_whole ? 0 : item) * 4 * channels_, sums_of(part, 0));
        });
        const uint64_t units = is_whole ? groups_ : batch_ * groups_;
        for (uint64_t unit = 0; unit < units; ++unit)
            join_columns<Gradient>(unit, is_whole, factors + (is_whole ? 0 : unit / groups_) * 4 * channels_);
        write_columns<Gradient>(is_whole);
        if constexpr (Gradient)
            add_vector_gradients(splits);
    }
    TALLOW_INLINE void run_given_columns() {
        Value* const factors = pointer_to<Value>(arguments_.factors);
        for (uint64_t i = 0; i < channels_; ++i)
            set_factors(factors, i,
                        factors_of(i, given(arguments_.mean, i, arguments_.wide_statistics),
                                   given(arguments_.variance, i, arguments_.wide_statistics)));
        write_columns<false>(true);
    }

  private:
    TALLOW_INLINE uint64_t unit_of(uint64_t item, uint64_t channel) const {
        return item * arguments_.batch_groups + channel / arguments_.group_size;
    }
    // Number `index` of a vector in the dtype of the elements, or in their compute dtype.
    TALLOW_INLINE Value given(uint64_t vector, uint64_t index, bool is_wide) const {
        return is_wide ? pointer_to<const Value>(vector)[index] : to_compute(pointer_to<const T>(vector)[index]);
    }
    TALLOW_INLINE Value weight_of(uint64_t channel) const {
        return arguments_.weight ? given(arguments_.weight, channel, arguments_.wide_affine) : Value{1};
    }
    TALLOW_INLINE ChannelFactors<Value> factors_of(uint64_t channel, Value mean, Value variance) const {
        const Value root = rsqrt(variance + epsilon_);
        return {mean, arguments_.weight ? root * weight_of(channel) : root,
                arguments_.bias ? given(arguments_.bias, channel, arguments_.wide_affine) : Value{0}, Value{0}};
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

    template <bool Gradient> TALLOW_INLINE ChannelSums sums_of_row(uint64_t item, uint64_t channel, Value shift) const {
        Value buffers[2][is_small_float<T> ? channels_piece : 1];
        ChannelSums sums{};
        const T* const source = source_of(item, channel);
        const T* const gradient = Gradient ? gradient_of(item, channel) : nullptr;
        for (uint64_t first = 0; first < length_; first += channels_piece) {
            const uint64_t count = lower_of(length_ - first, channels_piece);
            const Value* const x = computed_span<T>(count, source + first, buffers[0]);
            const Value* const g = Gradient ? computed_span<T>(count, gradient + first, buffers[1]) : x;
            sums.add(sums_of_span<Gradient>(count, x, g, shift));
        }
        return sums;
    }
    template <bool Gradient>
    TALLOW_INLINE void write_row(uint64_t item, uint64_t channel, const ChannelFactors<Value>& by) const {
        constexpr bool is_small = is_small_float<T>;
        Value buffers[3][is_small ? channels_piece : 1];
        T* const result = pointer_to<T>(arguments_.result) + (item * channels_ + channel) * length_;
        const T* const source = source_of(item, channel);
        const T* const gradient = Gradient ? gradient_of(item, channel) : nullptr;
        const uint64_t piece = is_small ? channels_piece : length_;
        for (uint64_t first = 0; first < length_; first += piece) {
            const uint64_t count = lower_of(length_ - first, piece);
            const Value* const x = computed_span<T>(count, source + first, buffers[0]);
            const Value* const g = Gradient ? computed_span<T>(count, gradient + first, buffers[1]) : nullptr;
            Value* const made = result_span<T>(result + first, buffers[2]);
            if (Gradient || arguments_.bias)
                write_span<Gradient, true>(count, made, x, g, by);
            else
                write_span<Gradient, false>(count, made, x, g, by);
            finish_span<T>(count, result + first, made);
        }
    }

    TALLOW_INLINE ChannelFactors<Value> keep_statistics(uint64_t unit, uint64_t channel, double mean, double squares,
                                                        double count) const {
        // 0 / 0 where there are no elements.
        const auto variance = static_cast<Value>(squares / count);
        const auto centre = count > 0 ? static_cast<Value>(mean) : variance;
        pointer_to<Value>(arguments_.mean)[unit] = centre;
        pointer_to<Value>(arguments_.variance)[unit] = variance;
        return factors_of(channel, centre, variance);
    }
    TALLOW_INLINE void scale_unit(uint64_t unit, uint64_t begin, uint64_t end, uint64_t channel, double count) const {
        const uint64_t last = channel + arguments_.group_size;
        const Value shift = count > 0 ? to_compute(*source_of(begin, channel)) : Value{0};
        ChannelSums sums{};
        for (uint64_t item = begin; item < end; ++item)
            for (uint64_t c = channel; c < last; ++c)
                sums.add(sums_of_row<false>(item, c, shift));
        const ChannelMoments known(sums, static_cast<double>(shift), count);
        ChannelFactors<Value> by = keep_statistics(unit, channel, known.mean, known.squares, count);
        const Value variance = pointer_to<const Value>(arguments_.variance)[unit];
        for (uint64_t c = channel; c < last; ++c) {
            by = factors_of(c, by.mean, variance);
            for (uint64_t item = begin; item < end; ++item)
                write_row<false>(item, c, by);
        }
    }
    // The factors of gradients of a unit from its sums, which are multiplied by the weights.
    TALLOW_INLINE ChannelFactors<Value> slopes_of(uint64_t unit, const ChannelSums& sums, double count) const {
        const Value root = rsqrt(pointer_to<const Value>(arguments_.variance)[unit] + epsilon_);
        const double wide = static_cast<double>(root);
        return {pointer_to<const Value>(arguments_.mean)[unit], root, static_cast<Value>(sums.first / count * wide),
                static_cast<Value>(sums.second / count * wide * wide * wide)};
    }
    TALLOW_INLINE void slope_unit(uint64_t unit, uint64_t begin, uint64_t end, uint64_t channel, double count) const {
        const uint64_t last = channel + arguments_.group_size;
        const Value mean = pointer_to<const Value>(arguments_.mean)[unit];
        ChannelSums sums{};
        for (uint64_t c = channel; c < last; ++c)
            for (uint64_t item = begin; item < end; ++item) {
                const ChannelSums own = sums_of_row<true>(item, c, mean);
                *sums_of(item, c) = own;
                const double weight = static_cast<double>(weight_of(c));
                sums.add({own.first * weight, own.second * weight});
            }
        ChannelFactors<Value> by = slopes_of(unit, sums, count);
        const Value root = by.scale;
        for (uint64_t c = channel; c < last; ++c) {
            by.scale = root * weight_of(c);
            for (uint64_t item = begin; item < end; ++item)
                write_row<true>(item, c, by);
        }
    }
    // Sums over `splits` parts of each item.
    TALLOW_INLINE void add_vector_gradients(uint64_t splits) const {
        for (uint64_t channel = 0; channel < channels_; ++channel) {
            ChannelSums sums{};
            for (uint64_t part = 0; length_ != 0 && part < batch_ * splits; ++part) {
                const uint64_t unit = unit_of(part / splits, channel);
                const Value root = rsqrt(pointer_to<const Value>(arguments_.variance)[unit] + epsilon_);
                const ChannelSums own = *sums_of(part, channel);
                sums.add({own.first, own.second * static_cast<double>(root)});
            }
            pointer_to<Value>(arguments_.weight_gradient)[channel] = static_cast<Value>(sums.second);
            pointer_to<Value>(arguments_.bias_gradient)[channel] = static_cast<Value>(sums.first);
        }
    }

    // The sums of rows [begin, end) of an item, of channels side by side.
    template <bool Gradient>
    TALLOW_INLINE void add_columns(uint64_t item, uint64_t begin, uint64_t end, const Value* shift,
                                   ChannelSums* sums) const {
        constexpr bool is_small = is_small_float<T>;
        Value buffers[2][is_small ? channels_rows * channels_piece : 1];
        Value first[channels_piece], second[channels_piece];
        for (uint64_t channel = 0; channel < channels_; channel += channels_piece) {
            const uint64_t count = lower_of(channels_ - channel, channels_piece);
            for (uint64_t i = 0; i < count; ++i)
                sums[channel + i] = {};
            for (uint64_t row = begin; row < end;) {
                const uint64_t behind = lower_of(row + channels_height, end);
                for (uint64_t i = 0; i < count; ++i)
                    first[i] = second[i] = 0;
                for (uint64_t step = 0; row < behind; row += step) {
                    step = row + channels_rows <= behind ? channels_rows : 1;
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
    // Rows in the type in which they are computed: the source itself, or converted into the buffer.
    TALLOW_INLINE const Value* rows_of(uint64_t rows, uint64_t count, const T* source, uint64_t step,
                                       [[maybe_unused]] Value* buffer) const {
        if constexpr (is_small_float<T>) {
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
    // The factors of a unit, whose first vector has the shifts so far.
    template <bool Gradient> TALLOW_INLINE void join_columns(uint64_t unit, bool is_whole, Value* factors) const {
        const uint64_t channel = unit % groups_ * arguments_.group_size, last = channel + arguments_.group_size;
        const uint64_t splits = arguments_.splits, begin = is_whole ? 0 : unit / groups_ * splits;
        const uint64_t end = length_ == 0 ? begin : is_whole ? batch_ * splits : begin + splits;
        const auto rows = static_cast<double>((is_whole ? batch_ : 1) * length_);
        const double count = rows * static_cast<double>(arguments_.group_size);
        ChannelMoments known({0, 0}, 0, 1);
        ChannelSums total{};
        for (uint64_t c = channel; c < last; ++c) {
            ChannelSums sums{};
            for (uint64_t part = begin; part < end; ++part)
                sums.add(*sums_of(part, c));
            if constexpr (Gradient) {
                const double weight = static_cast<double>(weight_of(c));
                total.add({sums.first * weight, sums.second * weight});
            } else {
                const ChannelMoments own(sums, static_cast<double>(factors[c]), rows);
                if (c == channel)
                    known = own;
                else
                    known.add(own);
            }
        }
        ChannelFactors<Value> by =
            Gradient ? slopes_of(unit, total, count) : keep_statistics(unit, channel, known.mean, known.squares, count);
        const Value root = by.scale, variance = pointer_to<const Value>(arguments_.variance)[unit];
        for (uint64_t c = channel; c < last; ++c) {
            if constexpr (Gradient)
                by.scale = root * weight_of(c);
            else
                by = factors_of(c, by.mean, variance);
            set_factors(factors, c, by);
        }
    }
    TALLOW_INLINE void set_factors(Value* factors, uint64_t channel, const ChannelFactors<Value>& by) const {
        factors[channel] = by.mean;
        factors[channels_ + channel] = by.scale;
        factors[2 * channels_ + channel] = by.bias;
        factors[3 * channels_ + channel] = by.slope;
    }
    template <bool Gradient> TALLOW_INLINE void write_columns(bool is_whole) const {
        const uint64_t rows = batch_ * length_, together = channels_part / (channels_ + 1) + 1;
        do_parts(arguments_, (rows + together - 1) / together, [&, rows, together, is_whole](uint64_t part) {
            constexpr bool is_small = is_small_float<T>;
            constexpr uint64_t held = channels_rows * channels_piece / 2;
            Value buffers[3][is_small ? held : 1];
            const uint64_t width = is_small ? lower_of(channels_, channels_piece) : channels_;
            const uint64_t end = lower_of((part + 1) * together, rows);
            uint64_t step = 0;
            for (uint64_t row = part * together; row < end; row += step) {
                const uint64_t item = row / length_, position = row % length_;
                const Value* const factors =
                    pointer_to<const Value>(arguments_.factors) + (is_whole ? 0 : item) * 4 * channels_;
                step = is_small && width == channels_ ? lower_of(lower_of(held / width, length_ - position), end - row)
                                                      : 1;
                for (uint64_t first = 0; first < channels_; first += width) {
                    const uint64_t count = lower_of(channels_ - first, width);
                    T* const result = pointer_to<T>(arguments_.result) + row * channels_ + first;
                    const Value* const x =
                        rows_of(step, count, source_of(item, position) + first, arguments_.source_step, buffers[0]);
                    const Value* const g = Gradient ? rows_of(step, count, gradient_of(item, position) + first,
                                                              arguments_.gradient_step, buffers[1])
                                                    : x;
                    Value* const made = result_span<T>(result, buffers[2]);
                    const Value* const by = factors + first;
                    for (uint64_t k = 0; k < step * count; k += count)
                        if (Gradient || arguments_.bias)
                            write_channels<Gradient, true>(count, made + k, x + k, g + k, by, by + channels_,
                                                           by + 2 * channels_, by + 3 * channels_);
                        else
                            write_channels<Gradient, false>(count, made + k, x + k, g + k, by, by + channels_, by, by);
                    finish_span<T>(step * count, result, made);
                }
            }
        });
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
    HostChannels<T, Arguments>(arguments).run_given_rows();
}
template <typename T, typename Arguments> TALLOW_INLINE void scale_channels_columns(const Arguments& arguments) {
    HostChannels<T, Arguments>(arguments).run_given_columns();
}

} // namespace tallow
