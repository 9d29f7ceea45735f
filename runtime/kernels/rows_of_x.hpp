// Activation rows in the layout that products with block-quantized weights read, and how kernels write such rows.
#pragma once

#include "math.hpp"
#include "wave.hpp"

namespace tallow {

// Elements in full accesses, or in one that is shorter.
template <uint32_t N, typename T> TALLOW_INLINE void load_floats(const T* pointer, float (&values)[N]) {
    constexpr uint32_t length = N < access_bytes / sizeof(T) ? N : access_bytes / sizeof(T);
#pragma unroll
    for (uint32_t begin = 0; begin < N; begin += length) {
        const Pack<T, length> pack = load_pack<length>(pointer + begin);
#pragma unroll
        for (uint32_t k = 0; k < length; ++k)
            values[begin + k] = to_compute(pack.values[k]);
    }
}

// The weights that a lane multiplies at a time.
constexpr uint32_t lane_weights = 32;

// x is multiplied as integers, of which Planes bytes each have a plane: one of numbers that were rounded as Q8_1 has
// them, and exact_planes of numbers that were not. So four of them meet four quants in one instruction, their sum is
// exact, and no quant becomes a float. A row has cells, of what 32 lanes multiply: in accesses that they read side by
// side, plane after plane. Behind those each lane has, for each Group of numbers, which meet weights that share a
// scale, the step of the integers and their sum, which of rounded ones is that of what they stand for. Several rows lie
// `together`: an access of each side by side, so that lanes that have rows of their own read whole lines.
template <uint32_t Planes, uint32_t Group> struct RowOfX {
    static_assert(Planes == 1 || Planes == exact_planes, "numbers are rounded, or exact");
    static_assert(Group == lane_weights || Group == lane_weights / 2, "a lane has one scale, or two");
    static constexpr uint32_t lanes = 32;
    static constexpr uint32_t sums = lane_weights / Group;
    static constexpr uint32_t sum_bytes = 8;
    static constexpr uint32_t cell = lanes * lane_weights;
    static constexpr uint32_t cell_bytes = cell * Planes + lanes * sums * sum_bytes;
    // What the lanes of a wave take at a time.
    static constexpr uint32_t part_bytes = wave_size / lanes * cell_bytes;
    // From the first of two groups of a lane to the second one.
    static constexpr uint32_t run_stride = sums == 1 ? lane_weights : 64;

    // A row is padded to full parts of waves of any size.
    static TALLOW_INLINE uint32_t row_bytes(uint32_t hidden) {
        constexpr uint32_t part = 64 * lane_weights;
        return (hidden + part - 1) / part * (part / cell * cell_bytes);
    }
    static constexpr TALLOW_INLINE uint32_t quant_offset(uint32_t element, uint32_t plane) {
        const uint32_t lane = lane_of(element);
        const uint32_t number = group_of(element) * Group + element % Group;
        return lane / lanes * cell_bytes + plane * cell +
               (number / access_bytes * lanes + lane % lanes) * access_bytes + number % access_bytes;
    }
    static constexpr TALLOW_INLINE uint32_t sum_offset(uint32_t element) {
        const uint32_t lane = lane_of(element);
        return lane / lanes * cell_bytes + cell * Planes + (lane % lanes * sums + group_of(element)) * sum_bytes;
    }
    // The offset of a byte in the first of the rows that are interleaved, and in any row in the memory of all, of
    // `bytes` each.
    static constexpr TALLOW_INLINE uint32_t spread(uint32_t together, uint32_t begin) {
        return begin / access_bytes * (access_bytes * together) + begin % access_bytes;
    }
    static TALLOW_INLINE uint32_t offset(uint32_t row, uint32_t together, uint32_t bytes, uint32_t begin) {
        return row / together * together * bytes + row % together * access_bytes + spread(together, begin);
    }

  private:
    static constexpr TALLOW_INLINE uint32_t lane_of(uint32_t element) {
        return element / (sums * run_stride) * (run_stride / Group) + element % run_stride / Group;
    }
    static constexpr TALLOW_INLINE uint32_t group_of(uint32_t element) {
        return element / run_stride % sums;
    }
};

// A number of less than 24 bits to the nearest integer, ties away from zero: all but 0.5 itself that is below it
// stays below an integer when the number below 0.5 is added.
TALLOW_INLINE int nearest(float number) {
    return static_cast<int>(number + copysign(0x1.fffffep-2f, number));
}

// Integers of numbers whose largest size has these bits; gives their step.
template <uint32_t N> TALLOW_INLINE float round_as_q8_1(const float (&values)[N], uint32_t largest, int (&quants)[N]) {
    const float step = bit_cast<float>(largest) / 127.0f;
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) {
        // No number, and what a step of zero makes, is 0.
        const float number = values[k] / step;
        quants[k] = fabs(number) <= 128.0f ? nearest(number) : 0;
    }
    return to_float(round_from<f16>(step));
}
template <uint32_t N> TALLOW_INLINE float split(const float (&values)[N], uint32_t largest, int (&quants)[N]) {
    constexpr uint32_t infinite = 0x7f800000u;
    // The bytes of an integer are signed, so the largest is not quite 2**23: what is nearly a power of two counts as
    // one.
    const uint32_t exponent = (largest + (1u << 17)) >> 23;
    // 2**(149 - exponent), which may be more than a float has, in two factors.
    const uint32_t half = (149 + 2 * 127 - exponent) / 2;
    const float factor = bit_cast<float>(half << 23);
    const float other = bit_cast<float>((149 + 2 * 127 - exponent - half) << 23);
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) {
        const float of_infinite = fabs(values[k]) >= bit_cast<float>(infinite) ? copysign(1.0f, values[k]) : 0.0f;
        quants[k] = nearest(largest < infinite ? values[k] * factor * other : of_infinite);
    }
    if (largest >= infinite)
        return bit_cast<float>(largest);
    return bit_cast<float>(exponent < 23 ? 1u << exponent : (exponent - 22) << 23);
}

// The bytes of four words, from the lowest on: those at one position in each word.
TALLOW_INLINE void transpose_bytes(const uint32_t (&words)[4], uint32_t (&bytes)[4]) {
    constexpr uint32_t even = 0x00ff00ffu;
    const uint32_t first = (words[0] & even) | (words[1] & even) << 8;
    const uint32_t second = (words[2] & even) | (words[3] & even) << 8;
    const uint32_t third = (words[0] >> 8 & even) | (words[1] & ~even);
    const uint32_t fourth = (words[2] >> 8 & even) | (words[3] & ~even);
    bytes[0] = (first & 0xffffu) | second << 16;
    bytes[1] = (third & 0xffffu) | fourth << 16;
    bytes[2] = first >> 16 | (second & 0xffff0000u);
    bytes[3] = third >> 16 | (fourth & 0xffff0000u);
}

// Writes four numbers of a row of `length`, from `element` on, if they exist. All lanes of a wave take part, and
// eight side by side have 32 numbers that follow each other. Those of one plane are rounded as Q8_1 has them, 32 with a
// step. Others share a step if they meet weights that share a scale: a power of two, by which the largest of them has
// 23 bits. Numbers that are infinite have all of such a product, and one that is none makes it none.
template <uint32_t Planes, uint32_t Group, typename Arguments>
TALLOW_INLINE void write_x(const Arguments& arguments, uint32_t row, uint32_t length, uint32_t element, bool is_present,
                           const float (&values)[4]) {
    using Row = RowOfX<Planes, Group>;
    constexpr uint32_t count = 4;
    constexpr uint32_t stepped = Planes == 1 ? lane_weights : Group;
    // The bits of sizes have their order.
    uint32_t largest = 0;
#pragma unroll
    for (uint32_t k = 0; k < count; ++k) {
        const uint32_t size = bit_cast<uint32_t>(values[k]) & 0x7fffffffu;
        largest = largest < size ? size : largest;
    }
#pragma unroll
    for (uint32_t mask = 1; mask < stepped / count; mask *= 2) {
        const uint32_t other = shuffle_xor(largest, mask);
        largest = largest < other ? other : largest;
    }
    int quants[count];
    const float step = Planes == 1 ? round_as_q8_1(values, largest, quants) : split(values, largest, quants);
    int sum_of_quants = (quants[0] + quants[1]) + (quants[2] + quants[3]);
#pragma unroll
    for (uint32_t mask = 1; mask < Group / count; mask *= 2)
        sum_of_quants += shuffle_xor(sum_of_quants, mask);
    const float sum = static_cast<float>(sum_of_quants) * (Planes == 1 ? step : 1.0f);
    if (!is_present)
        return;
    // With 128 more in each byte none is below 0, and none takes one from the next.
    constexpr uint32_t middle = 0x80808080u >> 8 * (4 - Planes);
    uint8_t* const result = pointer_to<uint8_t>(arguments.result);
    const uint32_t row_bytes = Row::row_bytes(length);
    uint32_t words[count];
    uint32_t bytes[count];
#pragma unroll
    for (uint32_t k = 0; k < count; ++k)
        words[k] = static_cast<uint32_t>(quants[k]) + middle;
    transpose_bytes(words, bytes);
#pragma unroll
    for (uint32_t plane = 0; plane < Planes; ++plane)
        store_registers<count>(result +
                                   Row::offset(row, arguments.together, row_bytes, Row::quant_offset(element, plane)),
                               {{bytes[Planes - 1 - plane] ^ 0x80808080u}});
    if (element % Group == 0)
        store_registers<Row::sum_bytes>(result +
                                            Row::offset(row, arguments.together, row_bytes, Row::sum_offset(element)),
                                        {{bit_cast<uint32_t>(step), bit_cast<uint32_t>(sum)}});
}

// Writes activation rows: `load` gives four numbers of a row, from an element on.
template <uint32_t Planes, uint32_t Group, typename Arguments, typename Load>
TALLOW_INLINE void write_rows_of_x(const Arguments& arguments, Load load) {
    constexpr uint32_t run = 4;
    const uint32_t runs = arguments.hidden / run;
    const uint32_t count = runs * arguments.x_rows;
    // All lanes of a wave go round as often.
    for (uint32_t begin = block_index() * block_size; begin < count; begin += grid_blocks() * block_size) {
        const uint32_t number = begin + thread_index();
        const uint32_t row = number / runs;
        const uint32_t element = number % runs * run;
        float values[run] = {};
        if (number < count)
            load(row, element, values);
        write_x<Planes, Group>(arguments, row, arguments.hidden, element, number < count, values);
    }
}

} // namespace tallow
