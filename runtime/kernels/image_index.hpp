// Where the elements are that convolutions multiply.
//
// An element of the image belongs to a position and a term, which is a tap and a channel: its coordinate along each
// axis is the sum of what both contribute. Positions of the input whose residues modulo the strides are equal meet the
// same taps, and the gradients of these are a convolution without strides, whose taps go backwards. Depth counts
// channels before taps, and positions row by row, whatever the strides of the operands: so do sums, in every layout.
//
// A position and a term meet outside of the image where the sum of their coordinates is outside along an axis. Where
// the taps along all axes together are few, each tap of an axis has a bit instead: a term has those of its taps, a
// position those of taps that meet it outside.
#pragma once

#include "memory.hpp"
#include "reread.hpp"

namespace tallow {

// How positions and taps meet the image along an axis.
struct ImageAxis {
    uint32_t positions;
    // From one position, and one tap, to the next, and where the first of both meet, modulo 2**32.
    uint32_t position_step;
    uint32_t tap_step;
    uint32_t origin;
    uint32_t taps;
    // Which taps of the kernel, and which positions of the result, these are.
    uint32_t first_tap;
    uint32_t tap_period;
    uint32_t first_position;
    uint32_t position_period;
};

// A number below 2**31 by which others are divided as in memory.hpp.
struct ImageDivisor {
    uint32_t value;
    uint32_t multiplier;
    uint32_t shift;

    static TALLOW_INLINE ImageDivisor of(uint32_t value) {
        // What powers of two are not above the number, by the exponent of a double.
        const uint64_t bits = bit_cast<uint64_t>(static_cast<double>(value - 1));
        const uint32_t shift = value < 2 ? 0 : static_cast<uint32_t>(bits >> 52) - 1022;
        const uint32_t remainder = value == 0 ? 0 : static_cast<uint32_t>((uint64_t{1} << shift) - value);
        return {value, value == 0 ? 0 : fraction(remainder, value) + 1, shift};
    }
    // The remainder; the number becomes the quotient.
    TALLOW_INLINE uint32_t take(uint32_t& number) const {
        const uint32_t quotient = divide(number, multiplier, shift);
        const uint32_t remainder = number - quotient * value;
        number = quotient;
        return remainder;
    }

  private:
    // remainder * 2**32 / value, for a smaller remainder: by doubles, which are off by one at most, and far quicker
    // than integers.
    static TALLOW_INLINE uint32_t fraction(uint32_t remainder, uint32_t value) {
        const uint64_t dividend = uint64_t{remainder} << 32;
        uint32_t quotient = static_cast<uint32_t>(static_cast<double>(dividend) / static_cast<double>(value));
        const int64_t left = static_cast<int64_t>(dividend - uint64_t{quotient} * value);
        quotient += left < 0 ? ~uint32_t{0} : left >= static_cast<int64_t>(value) ? 1 : 0;
        return quotient;
    }
};

struct AxisOfCall {
    uint32_t positions;
    uint32_t taps;
    uint32_t padding;
    uint32_t dilation;
    uint32_t stride;
    // Every such tap meets positions of the same residue.
    uint32_t period;

    TALLOW_INLINE ImageAxis all_residues() const {
        return {positions, stride, dilation, 0 - padding, taps, 0, 1, 0, 1};
    }
    TALLOW_INLINE ImageAxis of_residue(uint32_t residue) const {
        const uint64_t coordinate = uint64_t{residue} + padding;
        uint32_t tap = 0;
        while (tap < taps && tap < period && (coordinate + uint64_t{tap} * (stride - dilation % stride)) % stride != 0)
            ++tap;
        const uint32_t count = tap < taps && tap < period ? (taps - 1 - tap) / period + 1 : 0;
        const int64_t first = static_cast<int64_t>(coordinate) - static_cast<int64_t>(uint64_t{tap} * dilation);
        return {
            positions > residue ? (positions - residue - 1) / stride + 1 : 0,
            1,
            static_cast<uint32_t>(0 - uint64_t{period} * dilation / stride),
            static_cast<uint32_t>(first / static_cast<int64_t>(stride)),
            count,
            tap,
            period,
            residue,
            stride,
        };
    }
};

// What a position or a term contributes to the coordinates in the image, and to the offsets in the image and in the
// other tensor: the kernel or the gradient where it is of the depth, the result where it is a column.
struct ImageIndex {
    uint32_t coordinates[4];
    uint64_t image;
    uint64_t other;
};

// Strides of images or channels, and along the axes.
struct OuterStrides {
    uint64_t outer;
    uint64_t axes[3];
};

// What is numbered: of terms channels, columns and rows of taps, of positions columns, rows and slices.
struct ImageNumbers {
    ImageAxis axes[3];
    ImageDivisor terms[3];
    ImageDivisor positions[3];
};

// With `HasMasks` the first coordinate of an index is its mask, whose last two bits are of no tap: all positions have
// one, and what is not there has the other one.
template <bool SumsPositions, typename Arguments, bool HasMasks = false> struct Gathering {
    static constexpr bool sums_positions = SumsPositions;
    static constexpr bool has_masks = HasMasks;
    static constexpr uint32_t of_positions = 1u << 31;
    static constexpr uint32_t of_absent = 1u << 30;

    const Arguments& arguments;
    const ImageNumbers& numbers;

    TALLOW_INLINE ImageIndex term(const Arguments& arguments, uint32_t number,
                                  const OuterStrides& other_strides) const {
        const uint32_t channel = numbers.terms[0].take(number);
        const uint32_t column = numbers.terms[1].take(number);
        const uint32_t row = numbers.terms[2].take(number);
        const uint32_t taps[3] = {number, row, column};
        const uint64_t strides[3] = {arguments.image_stride_d, arguments.image_stride_h, arguments.image_stride_w};
        ImageIndex index{{}, channel * arguments.image_stride_c, channel * other_strides.outer};
#pragma unroll
        for (uint32_t a = 0; a < 3; ++a) {
            const ImageAxis& axis = numbers.axes[a];
            index.coordinates[a] = axis.origin + taps[a] * axis.tap_step;
            index.image += static_cast<uint64_t>(static_cast<int32_t>(index.coordinates[a])) * strides[a];
            index.other += (axis.first_tap + taps[a] * axis.tap_period) * other_strides.axes[a];
        }
        if constexpr (HasMasks) {
            const uint32_t of_row = numbers.axes[0].taps;
            const uint32_t of_column = of_row + numbers.axes[1].taps;
            index.coordinates[0] = 1u << number | 1u << (of_row + row) | 1u << (of_column + column);
        }
        return index;
    }
    TALLOW_INLINE ImageIndex position(const Arguments& arguments, uint32_t number,
                                      const OuterStrides& other_strides) const {
        const uint32_t column = numbers.positions[0].take(number);
        const uint32_t row = numbers.positions[1].take(number);
        const uint32_t slice = numbers.positions[2].take(number);
        const uint32_t positions[3] = {slice, row, column};
        const uint64_t strides[3] = {arguments.image_stride_d, arguments.image_stride_h, arguments.image_stride_w};
        ImageIndex index{{}, number * arguments.image_stride_b, number * other_strides.outer};
#pragma unroll
        for (uint32_t a = 0; a < 3; ++a) {
            const ImageAxis& axis = numbers.axes[a];
            index.coordinates[a] = positions[a] * axis.position_step;
            index.image += index.coordinates[a] * strides[a];
            index.other += (axis.first_position + positions[a] * axis.position_period) * other_strides.axes[a];
        }
        if constexpr (HasMasks)
            index.coordinates[0] = taps_outside(arguments, index);
        return index;
    }
    TALLOW_INLINE ImageIndex of_depth(uint32_t number) const {
        const Arguments& again = reread(arguments);
        const OuterStrides other_strides{again.factors_stride_outer,
                                         {again.factors_stride_d, again.factors_stride_h, again.factors_stride_w}};
        return SumsPositions ? position(again, number, other_strides) : term(again, number, other_strides);
    }
    TALLOW_INLINE ImageIndex of_column(uint32_t number) const {
        const Arguments& again = reread(arguments);
        const OuterStrides other_strides{again.result_stride_outer,
                                         {again.result_stride_d, again.result_stride_h, again.result_stride_w}};
        return SumsPositions ? term(again, number, other_strides) : position(again, number, other_strides);
    }
    // Coordinates along the first axis that are outside of the image, whatever is added to them: of a column that is
    // not there, and of what is not in the depth. Terms may be in front of the image.
    TALLOW_INLINE uint32_t outside(bool is_of_terms) const {
        if constexpr (HasMasks)
            return is_of_terms ? of_positions | of_absent : ~uint32_t{0};
        const ImageAxis& axis = numbers.axes[0];
        const int32_t first = static_cast<int32_t>(axis.origin);
        const int32_t last = static_cast<int32_t>(axis.origin + (axis.taps - 1) * axis.tap_step);
        const int32_t least = first < last ? first : last;
        return reread(arguments).image_d - static_cast<uint32_t>(is_of_terms || least > 0 ? 0 : least);
    }
    TALLOW_INLINE uint32_t terms() const {
        return numbers.axes[0].taps * numbers.axes[1].taps * numbers.axes[2].taps * reread(arguments).channels;
    }
    TALLOW_INLINE uint32_t positions() const {
        return numbers.axes[0].positions * numbers.axes[1].positions * numbers.axes[2].positions *
               reread(arguments).images;
    }
    TALLOW_INLINE uint32_t depth() const {
        return SumsPositions ? positions() : terms();
    }
    TALLOW_INLINE uint32_t columns() const {
        return SumsPositions ? terms() : positions();
    }

  private:
    TALLOW_INLINE uint32_t taps_outside(const Arguments& arguments, const ImageIndex& position) const {
        const uint32_t sizes[3] = {arguments.image_d, arguments.image_h, arguments.image_w};
        uint32_t mask = of_positions;
        uint32_t bit = 1;
#pragma unroll
        for (uint32_t a = 0; a < 3; ++a) {
            const ImageAxis& axis = numbers.axes[a];
            uint32_t coordinate = position.coordinates[a] + axis.origin;
#pragma unroll 1
            for (uint32_t tap = 0; tap < axis.taps; ++tap, coordinate += axis.tap_step, bit <<= 1)
                mask |= coordinate < sizes[a] ? 0 : bit;
        }
        return mask;
    }
};

} // namespace tallow
