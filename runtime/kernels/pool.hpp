// What pools do with the elements of a window, and which elements these are.
#pragma once

#include "math.hpp"

namespace tallow {

// Along one dim. The sums of its numbers fit 31 bits.
struct PoolAxis {
    uint32_t size;
    uint32_t windows;
    uint32_t window;
    uint32_t padding;
    uint32_t stride;
    uint32_t dilation;
};
#define TALLOW_POOL_AXIS(arguments, dim)                                                                               \
    PoolAxis {                                                                                                         \
        (arguments).size_##dim, (arguments).windows_##dim, (arguments).window_##dim, (arguments).padding_##dim,        \
            (arguments).stride_##dim, (arguments).dilation_##dim                                                       \
    }

// floor(i * numerator / denominator), which is at most `numerator` for i up to `denominator`.
TALLOW_INLINE int32_t scaled_floor(int32_t i, uint32_t numerator, uint32_t denominator) {
    return static_cast<int32_t>(uint64_t{static_cast<uint32_t>(i)} * numerator / denominator);
}
TALLOW_INLINE int32_t scaled_ceil(int32_t i, uint32_t numerator, uint32_t denominator) {
    return static_cast<int32_t>((uint64_t{static_cast<uint32_t>(i)} * numerator + denominator - 1) / denominator);
}

// Positions first, first + dilation .. below `end`.
struct Span {
    int32_t first;
    int32_t end;
};
TALLOW_INLINE uint32_t count_steps(int32_t first, int32_t end, uint32_t step) {
    const uint32_t length = end > first ? static_cast<uint32_t>(end - first) : 0;
    return step == 1 ? length : (length + step - 1) / step;
}

// The elements of a window.
TALLOW_INLINE Span elements_of(const PoolAxis& axis, bool adaptive, int32_t window) {
    if (adaptive)
        return {scaled_floor(window, axis.size, axis.windows), scaled_ceil(window + 1, axis.size, axis.windows)};
    const auto dilation = static_cast<int32_t>(axis.dilation);
    const auto size = static_cast<int32_t>(axis.size);
    int32_t first = window * static_cast<int32_t>(axis.stride) - static_cast<int32_t>(axis.padding);
    const int32_t end = first + static_cast<int32_t>(axis.window - 1) * dilation + 1;
    if (first < 0)
        first = dilation == 1 ? 0 : first + (dilation - 1 - first) / dilation * dilation;
    return {first, end < size ? end : size};
}

// By how many elements an average divides.
TALLOW_INLINE uint32_t divisor_of(const PoolAxis& axis, bool adaptive, bool includes_padding, int32_t window) {
    const Span elements = elements_of(axis, adaptive, window);
    if (adaptive || !includes_padding)
        return count_steps(elements.first, elements.end, axis.dilation);
    const int32_t first = window * static_cast<int32_t>(axis.stride) - static_cast<int32_t>(axis.padding);
    const uint32_t inside = count_steps(first, static_cast<int32_t>(axis.size + axis.padding), axis.dilation);
    return inside < axis.window ? inside : axis.window;
}

// The windows first .. end that may have an element from `first` to `last`: see `covers`.
TALLOW_INLINE Span windows_of(const PoolAxis& axis, bool adaptive, int32_t first, int32_t last) {
    if (adaptive)
        return {scaled_floor(first, axis.windows, axis.size), scaled_ceil(last + 1, axis.windows, axis.size)};
    const auto stride = static_cast<int32_t>(axis.stride);
    const int32_t before =
        first + static_cast<int32_t>(axis.padding) - static_cast<int32_t>((axis.window - 1) * axis.dilation);
    const int32_t end = (last + static_cast<int32_t>(axis.padding)) / stride + 1;
    const auto windows = static_cast<int32_t>(axis.windows);
    return {before <= 0 ? 0 : (before + stride - 1) / stride, end < windows ? end : windows};
}
TALLOW_INLINE bool covers(const Span& elements, uint32_t dilation, int32_t position) {
    return position >= elements.first && position < elements.end &&
           (dilation == 1 || static_cast<uint32_t>(position - elements.first) % dilation == 0);
}

// `begin` is combined with each of the elements, and `result` ends it, for an average with the number of them, and for
// a share with the gradient.
template <typename T> struct Average {
    using Value = compute_type<T>;
    using State = Value;
    using Result = T;
    static constexpr bool counts = true;
    static constexpr bool shares = false;
    static constexpr bool has_tangents = false;
    static TALLOW_INLINE State begin() {
        return State{0};
    }
    static TALLOW_INLINE State join(State sum, Value element, Value) {
        return sum + element;
    }
    static TALLOW_INLINE T result(State sum, Value count) {
        return convert<T>(sum / count);
    }
};
template <typename T> struct Maximum {
    using Value = compute_type<T>;
    using State = Value;
    using Result = T;
    static constexpr bool counts = false;
    static constexpr bool shares = false;
    static constexpr bool has_tangents = false;
    static TALLOW_INLINE State begin() {
        return lowest<State>();
    }
    static TALLOW_INLINE State join(State highest, Value element, Value) {
        const State combined = maximum(highest, element);
        // Comparisons for sixteen windows at once would take more scalar registers than AMD hardware has.
        if constexpr (!is_integer<T> && sizeof(T) == 1)
            return bit_cast<State>(opaque(bit_cast<uint32_t>(combined)));
        else
            return combined;
    }
    static TALLOW_INLINE T result(State highest, Value) {
        return convert<T>(highest);
    }
};
// The mean of the tangents of the largest elements; 0 where there are no elements.
template <typename T> struct MaximumTangent {
    using Value = compute_type<T>;
    struct State {
        Value highest;
        Value sum;
        Value count;
    };
    using Result = T;
    static constexpr bool counts = false;
    static constexpr bool shares = false;
    static constexpr bool has_tangents = true;
    static TALLOW_INLINE State begin() {
        return {lowest<Value>(), Value{0}, Value{0}};
    }
    static TALLOW_INLINE State join(const State& state, Value element, Value tangent) {
        const bool is_nan = element != element;
        if (element > state.highest || (is_nan && state.highest == state.highest))
            return {element, tangent, Value{1}};
        if (element == state.highest || is_nan)
            return {state.highest, state.sum + tangent, state.count + Value{1}};
        return state;
    }
    static TALLOW_INLINE T result(const State& state, Value) {
        return convert<T>(state.count == Value{0} ? Value{0} : state.sum / state.count);
    }
};

// Whether an element is one of the largest of its window.
template <typename Value> TALLOW_INLINE bool is_largest(Value element, Value highest) {
    return element == highest || element != element;
}

// The gradient of a maximum, divided by how many elements are the largest.
template <typename T> struct MaximumShare {
    using Value = compute_type<T>;
    struct State {
        Value highest;
        uint32_t count;
    };
    using Result = Value;
    static constexpr bool counts = false;
    static constexpr bool shares = true;
    static constexpr bool has_tangents = false;
    static TALLOW_INLINE State begin() {
        return {lowest<Value>(), 0};
    }
    static TALLOW_INLINE State join(const State& state, Value element, Value) {
        const bool is_nan = element != element;
        const Value highest = maximum(state.highest, element);
        // As comparisons in `Maximum`.
        const bool is_first = element > state.highest || (is_nan && state.highest == state.highest);
        const uint32_t others = opaque(is_first ? 0 : state.count);
        return {highest, opaque(others + (is_largest(element, highest) ? 1 : 0))};
    }
    static TALLOW_INLINE Value result(const State& state, Value gradient) {
        return gradient / static_cast<Value>(state.count);
    }
};

} // namespace tallow
