// Depthwise convolutions of images: each channel of the result depends on one channel of the source.
#pragma once

#include "activation.hpp"
#include "math.hpp"
#include "produce.hpp"
#include "reduce.hpp"

namespace tallow {

// The weights of one channel, wherever they lie.
template <typename T> struct StridedTaps {
    const T* kernel;
    uint64_t stride_h;
    uint64_t stride_w;

    TALLOW_INLINE Pack<T, 1> at(uint32_t ky, uint32_t kx) const {
        return {{kernel[ky * stride_h + kx * stride_w]}};
    }
};

// The weights of channels side by side in shared memory, where those of the next tap are `step` packs further on.
template <typename T, uint32_t N> struct StagedTaps {
    const Pack<T, N>* packs;
    uint32_t kernel_w;
    uint32_t step;

    TALLOW_INLINE Pack<T, N> at(uint32_t ky, uint32_t kx) const {
        return packs[(ky * kernel_w + kx) * step];
    }
};

// Adds the products of the taps to the sums of some rows of a column, of N channels side by side.
template <bool Transposed, uint32_t N, typename T, typename Arguments, typename Taps>
TALLOW_INLINE void add_taps(const Arguments& arguments, uint32_t row, uint32_t column, const T* source,
                            const Taps& taps, compute_type<T> (&sums)[depthwise_rows][N]) {
    using Value = compute_type<T>;
    // The zeros of the padding take part, since infinity times one of them is NaN.
    constexpr bool has_zeros = !Transposed && !is_integer<Value>;
    // Taps of a row of the kernel that are loaded together: with few elements their latency is most of the time.
    constexpr uint32_t taps_loaded = N == 1 ? 5 : 1;
    const uint32_t stride_h = arguments.stride_h;
    const uint32_t stride_w = arguments.stride_w;
    // From one row of the source to the next, and from one tap that meets an element of it to the next. The rows of a
    // transposed convolution are of one phase of the stride, and meet the same taps.
    const uint32_t source_row_step = Transposed ? 1 : stride_h;
    const uint32_t tap_step_h = Transposed ? stride_h : 1;
    const uint32_t tap_step_w = Transposed ? stride_w : 1;
    const uint32_t source_step_h = Transposed ? ~0u : arguments.dilation_h;
    const uint32_t source_step_w = Transposed ? ~0u : arguments.dilation_w;
    // Above and left of the source the difference wraps around to a large number.
    const uint32_t y_first = Transposed ? (row + arguments.padding_h) / stride_h : row * stride_h - arguments.padding_h;
    const uint32_t x_first =
        Transposed ? (column + arguments.padding_w) / stride_w : column * stride_w - arguments.padding_w;
    const uint32_t ky_first = Transposed ? row + arguments.padding_h - y_first * stride_h : 0;
    const uint32_t kx_first = Transposed ? column + arguments.padding_w - x_first * stride_w : 0;
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
             kx += taps_loaded * tap_step_w, x += taps_loaded * source_step_w) {
            const auto is_tap = [&](uint32_t tap) { return tap == 0 || kx + tap * tap_step_w < arguments.kernel_w; };
            // All are in flight before the first is awaited.
            Pack<T, N> weights[taps_loaded] = {};
            Registers<sizeof(T) * N> values[taps_loaded][depthwise_rows] = {};
#pragma unroll
            for (uint32_t tap = 0; tap < taps_loaded; ++tap) {
                if (!is_tap(tap))
                    continue;
                weights[tap] = taps.at(ky, kx + tap * tap_step_w);
                const uint32_t column_of_tap = x + tap * source_step_w;
#pragma unroll
                for (uint32_t i = 0; i < depthwise_rows; ++i)
                    if (column_of_tap < widths[i])
                        values[tap][i] =
                            load_registers<sizeof(T) * N>(lines[i] + column_of_tap * arguments.source_stride_w);
            }
#pragma unroll
            for (uint32_t tap = 0; tap < taps_loaded; ++tap) {
                if (!is_tap(tap))
                    continue;
#pragma unroll
                for (uint32_t i = 0; i < depthwise_rows; ++i) {
                    if (has_zeros || x + tap * source_step_w < widths[i]) {
#pragma unroll
                        for (uint32_t c = 0; c < N; ++c)
                            sums[i][c] = multiply_add(to_compute(take_element<T>(values[tap][i], c)),
                                                      to_compute(weights[tap].values[c]), sums[i][c]);
                    }
                }
            }
        }
    }
}

template <bool Transposed, uint32_t N, typename T, typename Arguments>
TALLOW_INLINE void store_rows(const Arguments& arguments, uint32_t row, T* result,
                              const compute_type<T> (&sums)[depthwise_rows][N]) {
    const uint32_t row_step = Transposed ? arguments.stride_h : 1;
#pragma unroll
    for (uint32_t i = 0; i < depthwise_rows; ++i) {
        if (row + i * row_step < arguments.rows) {
            // Compilers that know the steps between rows work out each word of an access from the rows before, and
            // split it.
            const uint32_t step = N == 1 ? i * row_step : opaque(i * row_step);
            const auto sum = [&](compute_type<T>, uint32_t c) { return sums[i][c]; };
            store_registers(result + step * arguments.result_stride_h, map_pack<T>(Registers<sizeof(T) * N>{}, sum));
        }
    }
}

// What becomes of the sums of a kernel that has no epilogue.
struct NoEpilogue {
    template <typename Arguments, uint32_t N, typename Value>
    static TALLOW_INLINE void apply(const Arguments&, uint32_t, Value (&)[depthwise_rows][N]) {
    }
};

// activation(sum * scale + bias): vectors in the compute dtype, aligned, either of which may be missing.
struct ChannelEpilogue {
    template <typename Arguments, uint32_t N, typename Value>
    static TALLOW_INLINE void apply(const Arguments& arguments, uint32_t channel, Value (&sums)[depthwise_rows][N]) {
        constexpr uint32_t length = access_bytes / sizeof(Value);
#pragma unroll
        for (uint32_t first = 0; first < N; first += length) {
            const Pack<Value, length> scale = load_vector(arguments.scale, channel + first, Value{1});
            const Pack<Value, length> bias = load_vector(arguments.bias, channel + first, Value{0});
#pragma unroll
            for (uint32_t i = 0; i < depthwise_rows; ++i) {
#pragma unroll
                for (uint32_t c = 0; c < length; ++c)
                    sums[i][first + c] = add(sums[i][first + c] * scale.values[c], bias.values[c]);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < depthwise_rows; ++i)
            activate(arguments.activation, sums[i]);
    }

  private:
    template <typename Value>
    static TALLOW_INLINE Pack<Value, access_bytes / sizeof(Value)> load_vector(uint64_t vector, uint32_t channel,
                                                                               Value missing) {
        constexpr uint32_t length = access_bytes / sizeof(Value);
        if (vector)
            return load_pack<length>(pointer_to<const Value>(vector) + channel);
        Pack<Value, length> pack;
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            pack.values[i] = missing;
        return pack;
    }
};

// A depthwise convolution, or the gradient of its input: a sum over the `channels` of the result that a channel of the
// input has, with a dilation of 1. A thread computes some rows of a column, so that its loads are those of
// neighbouring threads one row further on. Operand 0 is the first of these rows, 1 the column, 2 the source, 3 the
// kernel and 4 the result.
template <bool Transposed, typename T, typename Arguments> TALLOW_INLINE void depthwise(const Arguments& arguments) {
    const uint32_t channels = Transposed ? arguments.channels : 1;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < arguments.count; index += threads) {
        uint64_t offsets[5];
        locate(arguments, index, offsets);
        const uint32_t row = static_cast<uint32_t>(offsets[0]);
        const uint32_t column = static_cast<uint32_t>(offsets[1]);
        const T* source = pointer_to<const T>(arguments.source) + offsets[2];
        StridedTaps<T> taps{pointer_to<const T>(arguments.kernel) + offsets[3], arguments.kernel_stride_h,
                            arguments.kernel_stride_w};
        compute_type<T> sums[depthwise_rows][1] = {};
        for (uint32_t c = 0; c < channels; ++c) {
            add_taps<Transposed, 1>(arguments, row, column, source, taps, sums);
            source += arguments.source_stride_c;
            taps.kernel += arguments.kernel_stride_c;
        }
        store_rows<Transposed, 1>(arguments, row, pointer_to<T>(arguments.result) + offsets[4], sums);
    }
}

// The same where channels are innermost, as many of the result as of the input: a thread makes a pack of them. A block
// has `packs` side by side, whose weights it stages, one pack of one tap a thread; the blocks of all channels follow
// each other. Operand 3 is the pack in the block.
template <bool Transposed, typename T, typename After = NoEpilogue, typename Arguments>
TALLOW_INLINE void depthwise_last(const Arguments& arguments) {
    constexpr uint32_t length = pack_length<T>;
    __shared__ Pack<T, length> staged[block_size];
    const uint32_t packs = arguments.packs;
    const uint32_t channels = arguments.channels;
    const uint32_t chunks = (channels / length + packs - 1) / packs;
    const uint32_t blocks = grid_blocks() / chunks;
    const uint32_t block = block_index() / chunks;
    const uint32_t channel = (block_index() - block * chunks) * packs * length;
    {
        const uint32_t tap = thread_index() / packs;
        const uint32_t first = channel + (thread_index() - tap * packs) * length;
        const uint32_t ky = tap / arguments.kernel_w;
        if (ky < arguments.kernel_h && first < channels) {
            const T* const weights = pointer_to<const T>(arguments.kernel) + first * arguments.kernel_stride_c +
                                     ky * arguments.kernel_stride_h +
                                     (tap - ky * arguments.kernel_w) * arguments.kernel_stride_w;
            Pack<T, length> pack;
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                pack.values[i] = weights[i * arguments.kernel_stride_c];
            staged[thread_index()] = pack;
        }
    }
    synchronize_block();
    for (uint32_t index = block * block_size + thread_index(); index < arguments.count; index += blocks * block_size) {
        uint64_t offsets[5];
        locate(arguments, index, offsets);
        const uint32_t pack = static_cast<uint32_t>(offsets[3]);
        if (channel + pack * length >= channels)
            continue;
        const uint32_t row = static_cast<uint32_t>(offsets[0]);
        const T* const source = pointer_to<const T>(arguments.source) + offsets[2] + channel;
        const StagedTaps<T, length> taps{staged + pack, arguments.kernel_w, packs};
        compute_type<T> sums[depthwise_rows][length] = {};
        add_taps<Transposed, length>(arguments, row, static_cast<uint32_t>(offsets[1]), source, taps, sums);
        After::apply(arguments, channel + pack * length, sums);
        store_rows<Transposed, length>(arguments, row, pointer_to<T>(arguments.result) + offsets[4] + channel, sums);
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
        const Value sum = reduce_subgroup<AddDepthwise>(sums[i], block_size);
        if (thread_index() == 0)
            result[i] = sum;
    }
}

// The same where channels are innermost in both operands, of as many channels. The threads of a block are the packs of
// channels that it has, times the rows of the kernel, times the pieces of some taps of a row; as many such subgroups as
// fit alternate along the positions, and are added up in order. The grid is that of all channels, and parts of the
// positions.
template <typename T, typename Arguments> TALLOW_INLINE void depthwise_weight_last(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t length = pack_length<T>;
    __shared__ Pack<Value, length> staged[block_size];
    const uint32_t packs = arguments.packs;
    const uint32_t channels = arguments.channels;
    const uint32_t chunks = (channels / length + packs - 1) / packs;
    const uint32_t part = block_index() / chunks;
    const uint32_t chunk = (block_index() - part * chunks) * packs * length;
    const uint32_t pieces = (arguments.kernel_w + depthwise_taps - 1) / depthwise_taps;
    const uint32_t subgroup_size = packs * arguments.kernel_h * pieces;
    const uint32_t subgroups = block_size / subgroup_size;
    const uint32_t subgroup = thread_index() / subgroup_size;
    const uint32_t lane = thread_index() - subgroup * subgroup_size;
    const uint32_t line = lane / packs;
    const uint32_t channel = chunk + (lane - line * packs) * length;
    const uint32_t ky = line / pieces;
    const uint32_t kx_first = (line - ky * pieces) * depthwise_taps;
    const uint32_t begin = part * arguments.part;
    const uint32_t end = arguments.count - begin < arguments.part ? arguments.count : begin + arguments.part;
    const bool takes_part = subgroup < subgroups && channel < channels;
    const T* const source = pointer_to<const T>(arguments.source) + channel;
    const T* const gradient = pointer_to<const T>(arguments.gradient) + channel;
    Value sums[depthwise_taps][length] = {};
    for (uint32_t index = begin + subgroup; takes_part && index < end; index += subgroups) {
        uint64_t offsets[4];
        locate(arguments, index, offsets);
        const uint32_t y = static_cast<uint32_t>(offsets[0]) + ky * arguments.dilation_h - arguments.padding_h;
        const uint32_t width = y < arguments.source_h ? arguments.source_w : 0;
        const T* const row = source + offsets[2] + y * arguments.source_stride_h;
        const Registers<access_bytes> g = load_registers<access_bytes>(gradient + offsets[3]);
        uint32_t x = static_cast<uint32_t>(offsets[1]) + kx_first * arguments.dilation_w - arguments.padding_w;
        Registers<access_bytes> values[depthwise_taps] = {};
#pragma unroll
        for (uint32_t i = 0; i < depthwise_taps; ++i, x += arguments.dilation_w)
            if (kx_first + i < arguments.kernel_w && x < width)
                values[i] = load_registers<access_bytes>(row + x * arguments.source_stride_w);
#pragma unroll
        for (uint32_t i = 0; i < depthwise_taps; ++i) {
            if (kx_first + i < arguments.kernel_w) {
#pragma unroll
                for (uint32_t c = 0; c < length; ++c)
                    sums[i][c] = multiply_add(to_compute(take_element<T>(values[i], c)),
                                              to_compute(take_element<T>(g, c)), sums[i][c]);
            }
        }
    }
    const uint32_t taps = arguments.kernel_h * arguments.kernel_w;
    Value* const result = pointer_to<Value>(arguments.result) + uint64_t{part} * channels * taps;
#pragma unroll
    for (uint32_t i = 0; i < depthwise_taps; ++i) {
        if (i < arguments.kernel_w) {
            Pack<Value, length> own;
#pragma unroll
            for (uint32_t c = 0; c < length; ++c)
                own.values[c] = sums[i][c];
            staged[thread_index()] = own;
            synchronize_block();
            if (subgroup == 0 && channel < channels && kx_first + i < arguments.kernel_w) {
#pragma unroll 1
                for (uint32_t other = 1; other < subgroups; ++other) {
                    const Pack<Value, length> others = staged[other * subgroup_size + lane];
#pragma unroll
                    for (uint32_t c = 0; c < length; ++c)
                        own.values[c] = add(own.values[c], others.values[c]);
                }
#pragma unroll
                for (uint32_t c = 0; c < length; ++c)
                    result[(channel + c) * taps + ky * arguments.kernel_w + kx_first + i] = own.values[c];
            }
            synchronize_block();
        }
    }
}

} // namespace tallow
