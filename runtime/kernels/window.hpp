// Resampling of (b, c, h, w).
#pragma once

#include "math.hpp"
#include "memory.hpp"

namespace tallow {

// What resampling launches number: patches of `strided_length<T>` columns and `rows` rows of the result, which one
// thread makes. Dim 0 of the launch counts the patches along a row, dim 1 those along a column, and the others are the
// planes. Makes every patch with a `Maker` of it: constructed once for the columns, it gives row after row. Where rows
// of the result are multiples of a pack, the columns of a thread are adjacent and stored in one access; else their
// stride is the number of threads along the row, so that neighbouring threads store neighbouring elements.
template <typename T, typename Maker, typename Arguments> TALLOW_INLINE void resample(const Arguments& arguments) {
    constexpr uint32_t length = strided_length<T>;
    const uint32_t across = arguments.dims[0];
    const bool is_packed = arguments.width % length == 0;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < arguments.count; index += threads) {
        const uint32_t outer = divide(index, arguments.multipliers[0], arguments.shifts[0]);
        const uint32_t plane = divide(outer, arguments.multipliers[1], arguments.shifts[1]);
        const uint32_t first_row = (outer - plane * arguments.dims[1]) * arguments.rows;
        const uint32_t column = (index - outer * across) * (is_packed ? length : 1);
        // Operand 0 is the result, operand 1 the source.
        uint64_t offsets[2];
        locate_between(arguments, 2, arguments.rank, plane, offsets);
        T* row = pointer_to<T>(arguments.result) + offsets[0] + uint64_t{first_row} * arguments.width + column;
        const uint32_t below = arguments.height - first_row;
        const uint32_t rows = below < arguments.rows ? below : arguments.rows;
        Maker maker(arguments, pointer_to<const T>(arguments.source) + offsets[1], column, is_packed ? 1 : across,
                    first_row);
#pragma unroll 1
        for (uint32_t y = 0; y < rows; ++y) {
            const Pack<T, length> pack = maker.next_row();
            if (is_packed) {
                store_pack(row, pack);
            } else {
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    if (column + i * across < arguments.width)
                        row[i * across] = pack.values[i];
            }
            row += arguments.width;
        }
    }
}

// The source position of a result position, floor(position * source / result), which advances by steps with the
// remainder: position * source = quotient * result + remainder.
struct NearestIndex {
    uint32_t quotient;
    uint32_t remainder;
    // `wide` says that a product may reach 2**31, where the division by multiplication ends.
    template <typename Arguments>
    TALLOW_INLINE NearestIndex(const Arguments& arguments, uint32_t position, uint32_t source, uint32_t result,
                               uint32_t multiplier, uint32_t shift) {
        const uint64_t product = uint64_t{position} * source;
        quotient = arguments.wide ? static_cast<uint32_t>(product / result)
                                  : divide(static_cast<uint32_t>(product), multiplier, shift);
        remainder = static_cast<uint32_t>(product) - quotient * result;
    }
    // Advances by a step whose product with the source is step * result + part; returns whether that is step + 1
    // positions.
    TALLOW_INLINE bool advance(uint32_t step, uint32_t part, uint32_t result) {
        remainder += part;
        const bool carries = remainder >= result;
        remainder -= carries ? result : 0;
        quotient += step + (carries ? 1 : 0);
        return carries;
    }
};

template <typename T, typename Arguments> struct NearestMaker {
    static constexpr uint32_t length = strided_length<T>;
    const Arguments& arguments;
    const T* row;
    NearestIndex position;
    bool is_new = true;
    uint32_t columns[length];
    Pack<T, length> elements;

    TALLOW_INLINE NearestMaker(const Arguments& nearest, const T* plane, uint32_t column, uint32_t, uint32_t first_row)
        : arguments(nearest),
          position(nearest, first_row, nearest.source_h, nearest.height, nearest.multiplier_h, nearest.shift_h) {
        row = plane + position.quotient * nearest.stride_h;
        const uint32_t last = nearest.source_w - 1;
        NearestIndex x(nearest, column, nearest.source_w, nearest.width, nearest.multiplier_w, nearest.shift_w);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            // Columns past the last are read, and never stored.
            columns[i] = (x.quotient < last ? x.quotient : last) * static_cast<uint32_t>(nearest.stride_w);
            x.advance(nearest.step_w, nearest.part_w, nearest.width);
        }
    }
    // Rows of the result that show the same row of the source read it once.
    TALLOW_INLINE const Pack<T, length>& next_row() {
        if (is_new) {
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                elements.values[i] = row[columns[i]];
        }
        const bool carries = position.advance(arguments.step_h, arguments.part_h, arguments.height);
        is_new = carries || arguments.step_h != 0;
        row += arguments.step_h * arguments.stride_h + (carries ? arguments.stride_h : 0);
        return elements;
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void upsample_nearest(const Arguments& arguments) {
    resample<T, NearestMaker<T, Arguments>>(arguments);
}

// The two source elements around a position of the result, and the share of the second.
struct Neighbours {
    uint32_t first;
    uint32_t second;
    double share;
};

// A nonnegative number without its fraction; the largest integer if it does not fit 32 bits.
TALLOW_INLINE uint32_t truncate_to_unsigned(double x) {
#if defined(TALLOW_NVIDIA)
    return __double2uint_rz(x);
#else
    return x < 4294967295.0 ? static_cast<uint32_t>(x) : ~0u;
#endif
}

// As PyTorch has it: the source is at scale * i with aligned corners, else at scale * (i + 0.5) - 0.5, not below 0;
// `half` is 0 or 0.5. Doubles, because a float loses the share of elements far from 0.
TALLOW_INLINE Neighbours neighbours(double position, double scale, double half, uint32_t size) {
    const double centred = scale * (position + half) - half;
    const double wanted = centred < 0.0 ? 0.0 : centred;
    const uint32_t floor = truncate_to_unsigned(wanted);
    const bool is_inside = floor < size;
    const uint32_t first = is_inside ? floor : size - 1;
    return {first, first + 1 < size ? first + 1 : first, is_inside ? wanted - static_cast<double>(floor) : 1.0};
}

// Keeps a compiler from moving loop invariants into a loop.
template <typename Value> TALLOW_INLINE void settle(Value& value) {
#if defined(TALLOW_NVIDIA)
    if constexpr (sizeof(Value) == 4)
        asm volatile("" : "+f"(value));
    else
        asm volatile("" : "+d"(value));
#elif defined(TALLOW_AMD)
    asm volatile("" : "+v"(value));
#else
    static_cast<void>(value);
#endif
}

// The interpolated values of two source rows stay in registers: as a rule the next row of the result needs one of them,
// or both. A dim that keeps its size has a scale of 1 and is copied: a share of 0 would turn an adjacent infinity into
// NaN.
template <typename T, bool KeepsHeight, bool KeepsWidth, typename Arguments> struct BilinearMaker {
    static constexpr uint32_t length = strided_length<T>;
    using Value = compute_type<T>;
    const Arguments& arguments;
    const T* row;
    uint32_t row_number = 0;
    double half;
    double position;
    uint32_t left[length];
    uint32_t right[length];
    Value left_share[length];
    Value right_share[length];
    uint32_t upper_row = ~0u;
    uint32_t lower_row = ~0u;
    Value upper[length];
    Value lower[length];

    TALLOW_INLINE BilinearMaker(const Arguments& bilinear, const T* plane, uint32_t column, uint32_t spacing,
                                uint32_t first_row)
        : arguments(bilinear), row(plane), half(bilinear.align_corners ? 0.0 : 0.5),
          position(static_cast<double>(first_row)) {
        const uint32_t stride = static_cast<uint32_t>(bilinear.stride_w);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            const double x_position = static_cast<double>(column) + i * static_cast<double>(spacing);
            const Neighbours x = neighbours(x_position, bilinear.scale_w, half, bilinear.source_w);
            left[i] = x.first * stride;
            right[i] = x.second * stride;
            left_share[i] = static_cast<Value>(1.0 - x.share);
            right_share[i] = static_cast<Value>(x.share);
            settle(left_share[i]);
            settle(right_share[i]);
        }
    }
    TALLOW_INLINE void interpolate(uint32_t y, Value (&values)[length]) {
        // Step by step, since the sum of a row and a column would be worked out anew for each element.
        row += static_cast<int32_t>(y - row_number) * static_cast<int64_t>(arguments.stride_h);
        row_number = y;
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            values[i] = to_compute(row[left[i]]);
            if constexpr (!KeepsWidth)
                values[i] = left_share[i] * values[i] + right_share[i] * to_compute(row[right[i]]);
        }
    }
    TALLOW_INLINE Pack<T, length> next_row() {
        const Neighbours y = neighbours(position, arguments.scale_h, half, arguments.source_h);
        position += 1.0;
        if (y.first != upper_row) {
            if (y.first == lower_row) {
#pragma unroll
                for (uint32_t i = 0; i < length; ++i)
                    upper[i] = lower[i];
            } else {
                interpolate(y.first, upper);
            }
            upper_row = y.first;
        }
        if (!KeepsHeight && y.second != lower_row) {
            interpolate(y.second, lower);
            lower_row = y.second;
        }
        const Value above_share = static_cast<Value>(1.0 - y.share);
        const Value below_share = static_cast<Value>(y.share);
        Pack<T, length> pack;
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            pack.values[i] = convert<T>(KeepsHeight ? upper[i] : above_share * upper[i] + below_share * lower[i]);
        return pack;
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void upsample_bilinear(const Arguments& arguments) {
    resample<T, BilinearMaker<T, false, false, Arguments>>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void upsample_rows(const Arguments& arguments) {
    resample<T, BilinearMaker<T, true, false, Arguments>>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void upsample_columns(const Arguments& arguments) {
    resample<T, BilinearMaker<T, false, true, Arguments>>(arguments);
}

// The element before a position of the result, which may be -1, and the distance from it: as `neighbours`, but not cut
// off at the first element.
struct CubicPosition {
    int32_t second;
    double distance;
};
TALLOW_INLINE CubicPosition cubic_position(double position, double scale, double half, uint32_t size) {
    const double wanted = scale * (position + half) - half;
    if (wanted < 0.0)
        return {-1, wanted + 1.0};
    const uint32_t floor = truncate_to_unsigned(wanted);
    if (floor >= size)
        return {static_cast<int32_t>(size - 1), 1.0};
    return {static_cast<int32_t>(floor), wanted - static_cast<double>(floor)};
}

// The weights of the elements around a position at a distance from the second one: cubic convolution, Keys 1981, with
// a = -0.75 as in PyTorch.
template <typename Value> TALLOW_INLINE void cubic_weights(Value distance, Value (&weights)[4]) {
    constexpr Value a{-0.75};
    const Value complement = Value{1} - distance;
    // Polynomials of the distance of each element, in which a factor shows that they vanish at 1 or 2.
    weights[0] = a * distance * complement * complement;
    weights[1] = ((a + 2) * distance - (a + 3)) * distance * distance + 1;
    weights[2] = ((a + 2) * complement - (a + 3)) * complement * complement + 1;
    weights[3] = a * complement * distance * distance;
}

// The element of a number that may lie outside of its dim.
TALLOW_INLINE uint32_t inside(int32_t number, uint32_t size) {
    return number < 0 ? 0 : static_cast<uint32_t>(number) < size ? static_cast<uint32_t>(number) : size - 1;
}

// A dim that keeps its size is copied, since a weight of 0 would make NaN of an infinity.
template <typename T, typename Arguments> struct BicubicMaker {
    static constexpr uint32_t length = strided_length<T>;
    using Value = compute_type<T>;
    const Arguments& arguments;
    const T* plane;
    double half;
    double position;
    int32_t second[length];
    Value distance[length];

    TALLOW_INLINE BicubicMaker(const Arguments& bicubic, const T* source, uint32_t column, uint32_t spacing,
                               uint32_t first_row)
        : arguments(bicubic), plane(source), half(bicubic.align_corners ? 0.0 : 0.5),
          position(static_cast<double>(first_row)) {
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            const double x_position = static_cast<double>(column) + i * static_cast<double>(spacing);
            const CubicPosition x = cubic_position(x_position, bicubic.scale_w, half, bicubic.source_w);
            second[i] = x.second;
            distance[i] = static_cast<Value>(x.distance);
        }
    }
    TALLOW_INLINE Pack<T, length> next_row() {
        const CubicPosition y = cubic_position(position, arguments.scale_h, half, arguments.source_h);
        position += 1.0;
        const bool keeps_height = arguments.source_h == arguments.height;
        const bool keeps_width = arguments.source_w == arguments.width;
        const uint32_t stride = static_cast<uint32_t>(arguments.stride_w);
        Value row_weights[4];
        cubic_weights(static_cast<Value>(y.distance), row_weights);
        Pack<T, length> pack;
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            Value weights[4];
            cubic_weights(distance[i], weights);
            Value sum{0};
#pragma unroll 1
            for (int32_t v = 0; v < 4; ++v) {
                if (keeps_height && v != 1)
                    continue;
                const T* const row = plane + inside(y.second - 1 + v, arguments.source_h) * arguments.stride_h;
                Value along{0};
#pragma unroll
                for (int32_t u = 0; u < 4; ++u) {
                    if (keeps_width && u != 1)
                        continue;
                    const Value element = to_compute(row[inside(second[i] - 1 + u, arguments.source_w) * stride]);
                    along = keeps_width ? element : along + weights[u] * element;
                }
                // An array with an index of a loop that is not unrolled would be in memory.
                const Value row_weight =
                    v < 2 ? (v == 0 ? row_weights[0] : row_weights[1]) : (v == 2 ? row_weights[2] : row_weights[3]);
                sum = keeps_height ? along : sum + row_weight * along;
            }
            pack.values[i] = convert<T>(sum);
        }
        return pack;
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void upsample_bicubic(const Arguments& arguments) {
    resample<T, BicubicMaker<T, Arguments>>(arguments);
}

} // namespace tallow
