// The activations that convolutions apply to their sums.
#pragma once

#include "math.hpp"

namespace tallow {

struct Relu {
    template <typename Value> static TALLOW_INLINE Value apply(Value x) {
        return relu(x);
    }
};
struct Relu6 {
    template <typename Value> static TALLOW_INLINE Value apply(Value x) {
        return x >= 6 ? Value{6} : relu(x);
    }
};
struct Hardswish {
    template <typename Value> static TALLOW_INLINE Value apply(Value x) {
        return hardswish(x);
    }
};
struct Silu {
    template <typename Value> static TALLOW_INLINE Value apply(Value x) {
        return silu(x);
    }
};

template <typename Functor, uint32_t N, typename Value> TALLOW_INLINE void apply_to_each(Value (&values)[N]) {
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        values[i] = Functor::apply(values[i]);
}

// Applies the activation with a number, in the order of `ACTIVATIONS` in depthwise.py. 0 is none.
template <uint32_t N, typename Value> TALLOW_INLINE void activate(uint32_t activation, Value (&values)[N]) {
    switch (activation) {
    case 1:
        return apply_to_each<Relu>(values);
    case 2:
        return apply_to_each<Relu6>(values);
    case 3:
        return apply_to_each<Hardswish>(values);
    case 4:
        return apply_to_each<Silu>(values);
    }
}

} // namespace tallow
