// Pooling and resampling of (b, c, h, w).
#pragma once

#include "math.hpp"
#include "produce.hpp"

namespace tallow {

// Operand 0 is the source at the first element of a window.
template <typename T, typename Arguments> struct AverageFunction {
    const Arguments& arguments;
    TALLOW_INLINE T operator()(const uint64_t (&offsets)[1]) const {
        using Value = compute_type<T>;
        const T* const window = pointer_to<const T>(arguments.source) + offsets[0];
        Value sum{0};
        for (uint32_t y = 0; y < arguments.window_h; ++y)
            for (uint32_t x = 0; x < arguments.window_w; ++x)
                sum += to_compute(window[y * arguments.stride_h + x * arguments.stride_w]);
        return convert<T>(sum / static_cast<Value>(arguments.window_h * arguments.window_w));
    }
};
template <typename T, typename Arguments> struct MaximumFunction {
    const Arguments& arguments;
    TALLOW_INLINE T operator()(const uint64_t (&offsets)[1]) const {
        const T* const window = pointer_to<const T>(arguments.source) + offsets[0];
        auto highest = to_compute(*window);
        for (uint32_t y = 0; y < arguments.window_h; ++y)
            for (uint32_t x = 0; x < arguments.window_w; ++x)
                highest = maximum(highest, to_compute(window[y * arguments.stride_h + x * arguments.stride_w]));
        return convert<T>(highest);
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void average_pool(const Arguments& arguments) {
    produce<1, T>(arguments, AverageFunction<T, Arguments>{arguments});
}
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool(const Arguments& arguments) {
    produce<1, T>(arguments, MaximumFunction<T, Arguments>{arguments});
}

// floor(i * source / result) where the result is the size of dim d of the launch; `wide` says that a product may reach
// 2**31, where the division by multiplication ends.
template <typename Arguments>
TALLOW_INLINE uint64_t nearest(const Arguments& arguments, uint32_t d, uint64_t i, uint32_t source) {
    if (arguments.wide)
        return i * source / arguments.dims[d];
    return divide(static_cast<uint32_t>(i) * source, arguments.multipliers[d], arguments.shifts[d]);
}

// Operands 0 and 1 are the place in the result along w and h, operand 2 the source's plane.
template <typename T, typename Arguments> struct NearestFunction {
    const Arguments& arguments;
    TALLOW_INLINE T operator()(const uint64_t (&offsets)[3]) const {
        const uint64_t x = nearest(arguments, 0, offsets[0], arguments.source_w);
        const uint64_t y = nearest(arguments, 1, offsets[1], arguments.source_h);
        const T* const plane = pointer_to<const T>(arguments.source) + offsets[2];
        return plane[y * arguments.stride_h + x * arguments.stride_w];
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void upsample_nearest(const Arguments& arguments) {
    produce<3, T>(arguments, NearestFunction<T, Arguments>{arguments});
}

// The two source elements around a place of the result, and the share of the second.
struct Neighbours {
    uint64_t first;
    uint64_t second;
    double share;
};

// As PyTorch has it: the source is at scale * i with aligned corners, else at scale * (i + 0.5) - 0.5, not below 0.
// Doubles, because a float loses the share of elements far from 0.
TALLOW_INLINE Neighbours neighbours(uint64_t i, double scale, bool aligned, uint32_t size) {
    const double place = static_cast<double>(i);
    const double centred = scale * (place + 0.5) - 0.5;
    const double wanted = aligned ? scale * place : centred < 0.0 ? 0.0 : centred;
    const uint64_t floor = static_cast<uint32_t>(wanted);
    const uint64_t first = floor < size ? floor : size - 1;
    const double share = wanted - static_cast<double>(first);
    return {first, first + 1 < size ? first + 1 : first, share < 1.0 ? share : 1.0};
}

template <typename T, typename Arguments> struct BilinearFunction {
    const Arguments& arguments;
    TALLOW_INLINE T operator()(const uint64_t (&offsets)[3]) const {
        using Value = compute_type<T>;
        const bool aligned = arguments.align_corners != 0;
        const Neighbours x = neighbours(offsets[0], arguments.scale_w, aligned, arguments.source_w);
        const Neighbours y = neighbours(offsets[1], arguments.scale_h, aligned, arguments.source_h);
        const T* const above = pointer_to<const T>(arguments.source) + offsets[2] + y.first * arguments.stride_h;
        const T* const below = pointer_to<const T>(arguments.source) + offsets[2] + y.second * arguments.stride_h;
        const uint64_t left = x.first * arguments.stride_w;
        const uint64_t right = x.second * arguments.stride_w;
        const Value right_share = static_cast<Value>(x.share);
        const Value below_share = static_cast<Value>(y.share);
        const Value left_share = static_cast<Value>(1.0 - x.share);
        const Value above_share = static_cast<Value>(1.0 - y.share);
        const Value upper = left_share * to_compute(above[left]) + right_share * to_compute(above[right]);
        const Value lower = left_share * to_compute(below[left]) + right_share * to_compute(below[right]);
        return convert<T>(above_share * upper + below_share * lower);
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void upsample_bilinear(const Arguments& arguments) {
    produce<3, T>(arguments, BilinearFunction<T, Arguments>{arguments});
}

} // namespace tallow
