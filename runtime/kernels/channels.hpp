// Normalisation of channels. Elements are rows: those of a channel, of which there are `channels` for each of the
// batch, or those of all channels side by side, at each of `length` positions. An item is a part of the positions of an
// item of the batch; sums of items are computed first, then combined to those of groups of channels.
#pragma once

#include "math.hpp"
#include "reduce.hpp"
#include "statistics.hpp"

namespace tallow {

template <typename Value> struct TwoSums {
    Value first;
    Value second;

    template <typename Function> TALLOW_INLINE TwoSums each(Function function) const {
        return {function(first), function(second)};
    }
    TALLOW_INLINE void add(const TwoSums& y) {
        first += y.first;
        second += y.second;
    }
};
template <typename Value> constexpr bool has_parts<TwoSums<Value>> = true;

// States that add up.
template <typename Of> struct JoinStates {
    using State = Of;
    static TALLOW_INLINE State combine(State x, const State& y) {
        x.add(y);
        return x;
    }
};

// What a channel is normalised by.
template <typename T> struct ChannelScale {
    using Value = compute_type<T>;
    Value mean;
    Value scale;
    Value bias;

    template <typename Arguments>
    TALLOW_INLINE ChannelScale(const Arguments& arguments, uint32_t channel, uint64_t group) {
        mean = load_number<T>(arguments.mean, group, arguments.wide_statistics);
        const Value variance = load_number<T>(arguments.variance, group, arguments.wide_statistics);
        scale = rsqrt(variance + from_bits<Value>(arguments.epsilon));
        if (arguments.weight)
            scale = scale * load_number<T>(arguments.weight, channel, arguments.wide_affine);
        bias = arguments.bias ? load_number<T>(arguments.bias, channel, arguments.wide_affine) : Value{0};
    }
    // Without a bias -0.0 stays.
    template <typename Arguments> TALLOW_INLINE Value apply(const Arguments& arguments, Value x) const {
        const Value scaled = (x - mean) * scale;
        return arguments.bias ? scaled + bias : scaled;
    }
};
// What the gradient of an element is computed by.
template <typename T> struct ChannelSlope {
    using Value = compute_type<T>;
    Value mean;
    Value scale;
    TwoSums<Value> totals;

    template <typename Arguments>
    TALLOW_INLINE ChannelSlope(const Arguments& arguments, uint32_t channel, uint64_t group) {
        const ChannelScale<T> forward(arguments, channel, group);
        mean = forward.mean;
        scale = forward.scale;
        totals = pointer_to<const TwoSums<Value>>(arguments.totals)[group];
    }
    TALLOW_INLINE Value apply(Value x, Value gradient) const {
        return (gradient * scale - totals.first) - (x - mean) * totals.second;
    }
};

// One item of the batch, channel or group, and part of its positions.
struct ChannelItem {
    uint32_t item;
    uint32_t batch;
    uint32_t channel;
    uint32_t begin;
    uint32_t end;

    template <typename Arguments>
    TALLOW_INLINE ChannelItem(const Arguments& arguments, uint32_t outer, uint32_t first_channel)
        : item(outer), batch(outer / arguments.splits), channel(first_channel) {
        begin = (outer - batch * arguments.splits) * arguments.chunk;
        end = arguments.length - begin < arguments.chunk ? arguments.length : begin + arguments.chunk;
    }
    template <typename Arguments> TALLOW_INLINE uint64_t group(const Arguments& arguments, uint32_t index) const {
        return uint64_t{batch} * arguments.batch_groups + index / arguments.group_size;
    }
};
template <typename T, typename Arguments>
TALLOW_INLINE const T* row_of_source(const Arguments& arguments, uint32_t batch, uint64_t row) {
    return pointer_to<const T>(arguments.source) + batch * arguments.source_batch + row * arguments.source_step;
}
template <typename T, typename Arguments>
TALLOW_INLINE const T* row_of_gradient(const Arguments& arguments, uint32_t batch, uint64_t row) {
    return pointer_to<const T>(arguments.gradient) + batch * arguments.gradient_batch + row * arguments.gradient_step;
}
template <typename T> TALLOW_INLINE uint32_t misalignment_of(const T* pointer) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(pointer) % access_bytes / sizeof(T));
}

// Calls visitor.load<N>(offset) and visitor.take(offset, loaded) for the elements [begin, end) of a row, of which a
// subgroup of threads makes aligned accesses if all operands are aligned alike.
template <typename T, typename Visitor>
TALLOW_INLINE void visit_channel(uint32_t begin, uint32_t end, uint32_t misaligned, bool is_even, uint32_t lane,
                                 uint32_t subgroup_size, Visitor& visitor) {
    constexpr uint32_t length = pack_length<T>;
    constexpr uint32_t in_flight = Visitor::in_flight;
    const uint32_t wanted = misaligned == 0 ? 0 : length - misaligned;
    const uint32_t head = is_even && wanted < end - begin ? begin + wanted : end;
    const uint32_t packs = (end - head) / length;
    for (uint32_t i = begin + lane; i < head; i += subgroup_size)
        visitor.take(i, visitor.template load<1>(i));
    uint32_t pack = lane;
    for (; pack + (in_flight - 1) * subgroup_size < packs; pack += in_flight * subgroup_size) {
        decltype(visitor.template load<length>(0)) loaded[in_flight];
#pragma unroll
        for (uint32_t p = 0; p < in_flight; ++p)
            loaded[p] = visitor.template load<length>(head + (pack + p * subgroup_size) * length);
#pragma unroll
        for (uint32_t p = 0; p < in_flight; ++p)
            visitor.take(head + (pack + p * subgroup_size) * length, loaded[p]);
    }
    for (; pack < packs; pack += subgroup_size)
        visitor.take(head + pack * length, visitor.template load<length>(head + pack * length));
    for (uint32_t i = head + packs * length + lane; i < end; i += subgroup_size)
        visitor.take(i, visitor.template load<1>(i));
}

template <typename T, uint32_t N> struct PackPair {
    Pack<T, N> source;
    Pack<T, N> gradient;
};

// Sums of the distances from a shift and of their squares, or of gradients and of these times the distances.
template <typename T, bool Gradient> struct SumsOfRow {
    using Value = compute_type<T>;
    static constexpr uint32_t in_flight = reduce_in_flight;
    const T* source;
    const T* gradient;
    Value shift;
    TwoSums<Value> sums;

    template <uint32_t N> TALLOW_INLINE auto load(uint32_t offset) const {
        if constexpr (Gradient)
            return PackPair<T, N>{load_pack<N>(source + offset), load_pack<N>(gradient + offset)};
        else
            return load_pack<N>(source + offset);
    }
    template <uint32_t N> TALLOW_INLINE void take(uint32_t, const PackPair<T, N>& loaded) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            add(to_compute(loaded.source.values[i]), to_compute(loaded.gradient.values[i]));
    }
    template <uint32_t N> TALLOW_INLINE void take(uint32_t, const Pack<T, N>& loaded) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            add(to_compute(loaded.values[i]), Value{});
    }
    TALLOW_INLINE void add(Value x, [[maybe_unused]] Value g) {
        const Value distance = x - shift;
        const Value factor = Gradient ? g : distance;
        sums.first += factor;
        sums.second = fma(factor, distance, sums.second);
    }
};
// What sums of `count` elements are stored as: of distances the mean of the elements, and the sum of the squares of
// their distances from it.
template <bool Gradient, typename Value>
TALLOW_INLINE TwoSums<Value> stored_sums(const TwoSums<Value>& sums, Value shift, uint32_t count) {
    if constexpr (Gradient) {
        return sums;
    } else {
        const Value step = sums.first / static_cast<Value>(count);
        const Value squares = sums.second - step * sums.first;
        return {shift + step, squares < 0 ? Value{0} : squares};
    }
}

template <typename T, bool Gradient, typename Arguments>
TALLOW_INLINE void channel_sums_rows(const Arguments& arguments) {
    using Value = compute_type<T>;
    const uint32_t lane = lane_in_subgroup(arguments.subgroup_size);
    const uint32_t subgroups = subgroups_in(block_size, arguments.subgroup_size);
    const uint32_t rows = arguments.batch * arguments.splits * arguments.channels;
    for (uint32_t base = block_index() * subgroups; base < rows; base += grid_blocks() * subgroups) {
        const uint32_t row = base + subgroups_in(thread_index(), arguments.subgroup_size);
        TwoSums<Value> sums{};
        Value shift{};
        uint32_t count = 0;
        if (row < rows) {
            const uint32_t outer = row / arguments.channels;
            const ChannelItem item(arguments, outer, row - outer * arguments.channels);
            SumsOfRow<T, Gradient> visitor{};
            visitor.source = row_of_source<T>(arguments, item.batch, item.channel);
            const uint32_t misaligned = misalignment_of(visitor.source + item.begin);
            bool is_even = true;
            if constexpr (Gradient) {
                visitor.gradient = row_of_gradient<T>(arguments, item.batch, item.channel);
                is_even = misalignment_of(visitor.gradient + item.begin) == misaligned;
                shift = pointer_to<const Value>(arguments.mean)[item.group(arguments, item.channel)];
            } else {
                shift = to_compute(visitor.source[item.begin]);
            }
            visitor.shift = shift;
            visit_channel<T>(item.begin, item.end, misaligned, is_even, lane, arguments.subgroup_size, visitor);
            sums = visitor.sums;
            count = item.end - item.begin;
        }
        sums = reduce_subgroup<JoinStates<TwoSums<Value>>>(sums, arguments.subgroup_size);
        if (lane == 0 && row < rows)
            pointer_to<TwoSums<Value>>(arguments.sums)[row] = stored_sums<Gradient>(sums, shift, count);
    }
}

// Packs that are written together: the conditions under which each bf16 is rounded take scalar registers on AMD.
template <typename T> constexpr uint32_t written_in_flight = sizeof(T) == 2 ? reduce_in_flight / 2 : reduce_in_flight;

// Rows that are written: the elements, or their gradients.
template <typename T, typename Arguments> struct ScaleRow {
    using Value = compute_type<T>;
    static constexpr uint32_t in_flight = written_in_flight<T>;
    const Arguments& arguments;
    const T* source;
    T* result;
    ChannelScale<T> scale;

    template <uint32_t N> TALLOW_INLINE Registers<sizeof(T) * N> load(uint32_t offset) const {
        return load_registers<sizeof(T) * N>(source + offset);
    }
    template <uint32_t Bytes> TALLOW_INLINE void take(uint32_t offset, const Registers<Bytes>& loaded) const {
        store_registers(result + offset,
                        map_pack<T>(loaded, [&](Value x, uint32_t) { return scale.apply(arguments, x); }));
    }
};
template <uint32_t Bytes> struct RegistersPair {
    Registers<Bytes> source;
    Registers<Bytes> gradient;
};
template <typename T> struct SlopeRow {
    using Value = compute_type<T>;
    static constexpr uint32_t in_flight = written_in_flight<T>;
    const T* source;
    const T* gradient;
    T* result;
    ChannelSlope<T> slope;

    template <uint32_t N> TALLOW_INLINE RegistersPair<sizeof(T) * N> load(uint32_t offset) const {
        return {load_registers<sizeof(T) * N>(source + offset), load_registers<sizeof(T) * N>(gradient + offset)};
    }
    template <uint32_t Bytes> TALLOW_INLINE void take(uint32_t offset, const RegistersPair<Bytes>& loaded) const {
        store_registers(result + offset, map_pack<T>(loaded.source, [&](Value x, uint32_t i) {
                            return slope.apply(x, to_compute(take_element<T>(loaded.gradient, i)));
                        }));
    }
};

template <typename T, bool Gradient, typename Arguments>
TALLOW_INLINE void channel_write_rows(const Arguments& arguments) {
    const uint32_t lane = lane_in_subgroup(arguments.subgroup_size);
    const uint32_t subgroups = subgroups_in(block_size, arguments.subgroup_size);
    const uint32_t rows = arguments.batch * arguments.splits * arguments.channels;
    for (uint32_t row = block_index() * subgroups + subgroups_in(thread_index(), arguments.subgroup_size); row < rows;
         row += grid_blocks() * subgroups) {
        const uint32_t outer = row / arguments.channels;
        const ChannelItem item(arguments, outer, row - outer * arguments.channels);
        const uint64_t group = item.group(arguments, item.channel);
        const T* const source = row_of_source<T>(arguments, item.batch, item.channel);
        T* const result = pointer_to<T>(arguments.result) +
                          (uint64_t{item.batch} * arguments.channels + item.channel) * arguments.length;
        const uint32_t misaligned = misalignment_of(source + item.begin);
        bool is_even = misalignment_of(result + item.begin) == misaligned;
        if constexpr (Gradient) {
            const T* const gradient = row_of_gradient<T>(arguments, item.batch, item.channel);
            is_even = is_even && misalignment_of(gradient + item.begin) == misaligned;
            const SlopeRow<T> visitor{source, gradient, result, ChannelSlope<T>(arguments, item.channel, group)};
            visit_channel<T>(item.begin, item.end, misaligned, is_even, lane, arguments.subgroup_size, visitor);
        } else {
            const ScaleRow<T, Arguments> visitor{arguments, source, result,
                                                 ChannelScale<T>(arguments, item.channel, group)};
            visit_channel<T>(item.begin, item.end, misaligned, is_even, lane, arguments.subgroup_size, visitor);
        }
    }
}

// A block takes channels side by side at some positions: each of `subgroup_size` threads a pack of channels, which
// others of the block take at further positions. Calls visit(item, first channel of the pack, channels left, first
// position, step).
template <typename T, typename Arguments, typename Visit>
TALLOW_INLINE void visit_columns_of_channels(const Arguments& arguments, const Visit& visit) {
    constexpr uint32_t length = column_pack<T>;
    const uint32_t packs = (arguments.channels + length - 1) / length;
    const uint32_t across = (packs + arguments.subgroup_size - 1) / arguments.subgroup_size;
    const uint32_t tiles = arguments.batch * arguments.splits * across;
    for (uint32_t tile = block_index(); tile < tiles; tile += grid_blocks()) {
        const uint32_t outer = tile / across;
        const uint32_t pack =
            (tile - outer * across) * arguments.subgroup_size + lane_in_subgroup(arguments.subgroup_size);
        const ChannelItem item(arguments, outer, pack * length);
        const uint32_t left = pack < packs ? arguments.channels - pack * length : 0;
        visit(item, left, item.begin + subgroups_in(thread_index(), arguments.subgroup_size),
              subgroups_in(block_size, arguments.subgroup_size));
    }
}
// A pack of channels, of which `left` exist. Whole says that all packs can be read in one access.
template <bool IsAligned, typename T>
TALLOW_INLINE Registers<access_bytes> load_channels(const T* pointer, uint32_t left) {
    if constexpr (IsAligned)
        return load_registers<access_bytes>(pointer);
    Registers<access_bytes> registers{};
#pragma unroll
    for (uint32_t i = 0; i < column_pack<T>; ++i)
        if (i < left)
            put_element(registers, i, pointer[i]);
    return registers;
}
template <typename T, bool Gradient, typename Arguments> TALLOW_INLINE bool are_aligned(const Arguments& arguments) {
    constexpr uint32_t length = column_pack<T>;
    uint64_t steps = arguments.channels | arguments.source_batch | arguments.source_step;
    bool are_aligned = is_aligned<length>(pointer_to<const T>(arguments.source));
    if constexpr (Gradient) {
        steps |= arguments.gradient_batch | arguments.gradient_step;
        are_aligned = are_aligned && is_aligned<length>(pointer_to<const T>(arguments.gradient));
    }
    return are_aligned && steps % length == 0;
}
// Calls take(position, x, gradient) for the packs of channels at some positions of an item, several of which are loaded
// together.
template <bool IsAligned, bool Gradient, typename T, typename Arguments, typename Take>
TALLOW_INLINE void visit_positions(const Arguments& arguments, const ChannelItem& item, uint32_t left, uint32_t first,
                                   uint32_t step, const Take& take) {
    constexpr uint32_t in_flight = Gradient ? written_in_flight<T> : reduce_in_flight;
    const T* const source = row_of_source<T>(arguments, item.batch, 0) + item.channel;
    const auto load = [&](uint32_t position) {
        return load_channels<IsAligned>(source + position * arguments.source_step, left);
    };
    const auto load_gradient = [&]([[maybe_unused]] uint32_t position) {
        if constexpr (Gradient)
            return load_channels<IsAligned>(row_of_gradient<T>(arguments, item.batch, position) + item.channel, left);
        else
            return Registers<access_bytes>{};
    };
    uint32_t position = first;
    for (; position + (in_flight - 1) * step < item.end; position += in_flight * step) {
        Registers<access_bytes> x[in_flight], g[in_flight];
#pragma unroll
        for (uint32_t p = 0; p < in_flight; ++p) {
            x[p] = load(position + p * step);
            g[p] = load_gradient(position + p * step);
        }
#pragma unroll
        for (uint32_t p = 0; p < in_flight; ++p)
            take(position + p * step, x[p], g[p]);
    }
    for (; position < item.end; position += step)
        take(position, load(position), load_gradient(position));
}

template <typename T, bool Gradient, bool IsAligned, typename Arguments>
TALLOW_INLINE void sum_columns(const Arguments& arguments,
                               TwoSums<compute_type<T>> (&shared)[column_pack<T>][block_size]) {
    using Value = compute_type<T>;
    constexpr uint32_t length = column_pack<T>;
    visit_columns_of_channels<T>(arguments, [&](const ChannelItem& item, uint32_t left, uint32_t first, uint32_t step) {
        Value shift[length] = {};
        TwoSums<Value> sums[length] = {};
        if (left > 0) {
            if constexpr (Gradient) {
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    if (i < left)
                        shift[i] = pointer_to<const Value>(arguments.mean)[item.group(arguments, item.channel + i)];
            } else {
                const auto begin =
                    load_channels<IsAligned>(row_of_source<T>(arguments, item.batch, item.begin) + item.channel, left);
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    shift[i] = to_compute(take_element<T>(begin, i));
            }
            visit_positions<IsAligned, Gradient, T>(
                arguments, item, left, first, step,
                [&](uint32_t, const Registers<access_bytes>& x, [[maybe_unused]] const Registers<access_bytes>& g) {
#pragma unroll
                    for (uint32_t i = 0; i < length; ++i) {
                        const Value distance = to_compute(take_element<T>(x, i)) - shift[i];
                        const Value factor = Gradient ? to_compute(take_element<T>(g, i)) : distance;
                        sums[i].first += factor;
                        sums[i].second = fma(factor, distance, sums[i].second);
                    }
                });
        }
        // Of each channel, the threads of all positions.
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            shared[i][thread_index()] = sums[i];
        synchronize_block();
        for (uint32_t half = block_size / 2; half >= arguments.subgroup_size; half /= 2) {
            if (thread_index() < half)
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    shared[i][thread_index()].add(shared[i][thread_index() + half]);
            synchronize_block();
        }
        if (thread_index() < arguments.subgroup_size)
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                if (i < left)
                    pointer_to<TwoSums<Value>>(
                        arguments.sums)[uint64_t{item.item} * arguments.channels + item.channel + i] =
                        stored_sums<Gradient>(shared[i][thread_index()], shift[i], item.end - item.begin);
        synchronize_block();
    });
}
template <typename T, bool Gradient, typename Arguments>
TALLOW_INLINE void channel_sums_columns(const Arguments& arguments) {
    __shared__ TwoSums<compute_type<T>> shared[column_pack<T>][block_size];
    if (are_aligned<T, Gradient>(arguments))
        sum_columns<T, Gradient, true>(arguments, shared);
    else
        sum_columns<T, Gradient, false>(arguments, shared);
}

template <typename T, bool Gradient, bool IsAligned, typename Arguments>
TALLOW_INLINE void write_columns(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t length = column_pack<T>;
    visit_columns_of_channels<T>(arguments, [&](const ChannelItem& item, uint32_t left, uint32_t first, uint32_t step) {
        if (left == 0)
            return;
        Value mean[length], scale[length], offset[length];
        [[maybe_unused]] Value slope[length];
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            const uint32_t channel = item.channel + (i < left ? i : 0);
            const uint64_t group = item.group(arguments, channel);
            if constexpr (Gradient) {
                const ChannelSlope<T> own(arguments, channel, group);
                mean[i] = own.mean;
                scale[i] = own.scale;
                offset[i] = own.totals.first;
                slope[i] = own.totals.second;
            } else {
                const ChannelScale<T> own(arguments, channel, group);
                mean[i] = own.mean;
                scale[i] = own.scale;
                offset[i] = own.bias;
            }
        }
        const bool has_bias = !Gradient && arguments.bias != 0;
        T* const result = pointer_to<T>(arguments.result) +
                          uint64_t{item.batch} * arguments.length * arguments.channels + item.channel;
        visit_positions<IsAligned, Gradient, T>(
            arguments, item, left, first, step,
            [&](uint32_t position, const Registers<access_bytes>& x,
                [[maybe_unused]] const Registers<access_bytes>& g) {
                const auto results = map_pack<T>(x, [&](Value element, uint32_t i) {
                    const Value distance = element - mean[i];
                    if constexpr (Gradient)
                        return (to_compute(take_element<T>(g, i)) * scale[i] - offset[i]) - distance * slope[i];
                    const Value scaled = distance * scale[i];
                    return has_bias ? scaled + offset[i] : scaled;
                });
                T* const target = result + uint64_t{position} * arguments.channels;
                if constexpr (IsAligned) {
                    store_registers(target, results);
                } else {
#pragma unroll
                    for (uint32_t i = 0; i < length; ++i)
                        if (i < left)
                            target[i] = take_element<T>(results, i);
                }
            });
    });
}
template <typename T, bool Gradient, typename Arguments>
TALLOW_INLINE void channel_write_columns(const Arguments& arguments) {
    if (are_aligned<T, Gradient>(arguments))
        write_columns<T, Gradient, true>(arguments);
    else
        write_columns<T, Gradient, false>(arguments);
}

// The items that a group of channels has: those of channels side by side, at each of `outers` items.
template <typename Arguments, typename Visit>
TALLOW_INLINE void visit_items_of_group(const Arguments& arguments, uint32_t group, const Visit& visit) {
    const uint32_t groups = arguments.channels / arguments.group_size;
    const uint32_t first_outer = arguments.batch_groups ? group / groups * arguments.splits : 0;
    const uint32_t outers = arguments.batch_groups ? arguments.splits : arguments.batch * arguments.splits;
    const uint32_t first_channel = group % groups * arguments.group_size;
    const uint32_t count = outers * arguments.group_size;
    for (uint32_t i = lane_in_subgroup(arguments.subgroup_size); i < count; i += arguments.subgroup_size) {
        const uint32_t outer = i / arguments.group_size;
        visit(first_outer + outer, first_channel + (i - outer * arguments.group_size));
    }
}
template <typename Value, typename Arguments>
TALLOW_INLINE TwoSums<Value> sums_of_item(const Arguments& arguments, uint32_t outer, uint32_t channel) {
    return pointer_to<const TwoSums<Value>>(arguments.sums)[uint64_t{outer} * arguments.channels + channel];
}

// The mean and the variance of each group.
template <typename Value, typename Arguments> TALLOW_INLINE void channel_statistics(const Arguments& arguments) {
    const uint32_t subgroups = subgroups_in(block_size, arguments.subgroup_size);
    for (uint32_t base = block_index() * subgroups; base < arguments.groups; base += grid_blocks() * subgroups) {
        const uint32_t group = base + subgroups_in(thread_index(), arguments.subgroup_size);
        Moments<Value> known{};
        if (group < arguments.groups)
            visit_items_of_group(arguments, group, [&](uint32_t outer, uint32_t channel) {
                const ChannelItem item(arguments, outer, channel);
                const auto sums = sums_of_item<Value>(arguments, outer, channel);
                known.add({static_cast<Value>(item.end - item.begin), sums.first, sums.second});
            });
        known = reduce_subgroup<JoinStates<Moments<Value>>>(known, arguments.subgroup_size);
        if (lane_in_subgroup(arguments.subgroup_size) == 0 && group < arguments.groups) {
            // 0 / 0 where there are no elements.
            pointer_to<Value>(arguments.mean)[group] = known.count > 0 ? known.mean : known.squares / known.count;
            pointer_to<Value>(arguments.variance)[group] = known.squares / known.count;
        }
    }
}

// What the gradients of the elements of each group have in common, then the gradients of each channel's weight and
// bias.
template <typename T, typename Arguments> TALLOW_INLINE void channel_gradients(const Arguments& arguments) {
    using Value = compute_type<T>;
    const uint32_t subgroups = subgroups_in(block_size, arguments.subgroup_size);
    const uint32_t count = arguments.groups + arguments.channels;
    const Value epsilon = from_bits<Value>(arguments.epsilon);
    const auto root_of = [&](uint64_t group) {
        return rsqrt(pointer_to<const Value>(arguments.variance)[group] + epsilon);
    };
    for (uint32_t base = block_index() * subgroups; base < count; base += grid_blocks() * subgroups) {
        const uint32_t number = base + subgroups_in(thread_index(), arguments.subgroup_size);
        TwoSums<Value> sums{};
        if (number < arguments.groups) {
            visit_items_of_group(arguments, number, [&](uint32_t outer, uint32_t channel) {
                TwoSums<Value> own = sums_of_item<Value>(arguments, outer, channel);
                if (arguments.weight) {
                    const Value weight = load_number<T>(arguments.weight, channel, arguments.wide_affine);
                    own = {own.first * weight, own.second * weight};
                }
                sums.add(own);
            });
        } else if (number < count) {
            const uint32_t channel = number - arguments.groups;
            for (uint32_t outer = lane_in_subgroup(arguments.subgroup_size); outer < arguments.batch * arguments.splits;
                 outer += arguments.subgroup_size) {
                const ChannelItem item(arguments, outer, channel);
                const auto own = sums_of_item<Value>(arguments, outer, channel);
                sums.add({own.first, own.second * root_of(item.group(arguments, channel))});
            }
        }
        sums = reduce_subgroup<JoinStates<TwoSums<Value>>>(sums, arguments.subgroup_size);
        if (lane_in_subgroup(arguments.subgroup_size) != 0 || number >= count)
            continue;
        if (number < arguments.groups) {
            const Value root = root_of(number);
            const Value share = root * from_bits<Value>(arguments.share);
            pointer_to<TwoSums<Value>>(arguments.totals)[number] = {sums.first * share,
                                                                    sums.second * share * (root * root)};
        } else {
            store_number<T>(arguments.weight_gradient, number - arguments.groups, sums.second, arguments.wide_affine);
            store_number<T>(arguments.bias_gradient, number - arguments.groups, sums.first, arguments.wide_affine);
        }
    }
}

template <typename T, typename Arguments> TALLOW_INLINE void channel_move(const Arguments& arguments) {
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t i = block_index() * block_size + thread_index(); i < arguments.count; i += threads)
        move_statistics_of<T>(arguments, i);
}

} // namespace tallow
