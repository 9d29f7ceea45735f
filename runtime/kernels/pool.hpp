// What pools do with the elements of a window.
#pragma once

#include "math.hpp"

namespace tallow {

// `begin` is joined with each of them, and `result` ends it.
template <typename T> struct Average {
    using State = compute_type<T>;
    static TALLOW_INLINE State begin() {
        return State{0};
    }
    static TALLOW_INLINE State join(State sum, State element) {
        return sum + element;
    }
    static TALLOW_INLINE T result(State sum, uint32_t height, uint32_t width) {
        return convert<T>(sum / (static_cast<State>(height) * static_cast<State>(width)));
    }
};
template <typename T> struct Maximum {
    using State = compute_type<T>;
    static TALLOW_INLINE State begin() {
        return lowest<State>();
    }
    static TALLOW_INLINE State join(State highest, State element) {
        const State joined = maximum(highest, element);
        // Comparisons for sixteen windows at once would take more scalar registers than AMD hardware has.
        if constexpr (!is_integer<T> && sizeof(T) == 1)
            return bit_cast<State>(opaque(bit_cast<uint32_t>(joined)));
        else
            return joined;
    }
    static TALLOW_INLINE T result(State highest, uint32_t, uint32_t) {
        return convert<T>(highest);
    }
};

} // namespace tallow
