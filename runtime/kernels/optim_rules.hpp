// What the steps of optimisers make of an element and of its gradient, with some numbers of state.
#pragma once

#include "math.hpp"

namespace tallow {

// x -= rate * g.
template <typename Value> struct Descent {
    static constexpr uint32_t states = 0;
    Value rate, decay;

    TALLOW_INLINE Descent(const Value* numbers, bool) : rate(numbers[0]), decay(numbers[2]) {
    }
    TALLOW_INLINE Value operator()(Value x, Value g, Value*) const {
        return x - rate * (g + decay * x);
    }
};

// Of a gradient and of those before it.
template <typename Value> struct Momentum {
    static constexpr uint32_t states = 1;
    Value rate, momentum, decay;
    bool is_nesterov;

    TALLOW_INLINE Momentum(const Value* numbers, bool is_nesterov)
        : rate(numbers[0]), momentum(numbers[1]), decay(numbers[2]), is_nesterov(is_nesterov) {
    }
    TALLOW_INLINE Value operator()(Value x, Value g, Value* state) const {
        g = g + decay * x;
        state[0] = momentum * state[0] + g;
        return x - rate * (is_nesterov ? g + momentum * state[0] : state[0]);
    }
};

// Kingma and Ba (2015); decoupled, Loshchilov and Hutter (2019).
template <typename Value> struct Adam {
    static constexpr uint32_t states = 2;
    Value rate, beta1, beta2, epsilon, decay, scale1, scale2;
    bool is_decoupled;

    TALLOW_INLINE Adam(const Value* numbers, bool is_decoupled)
        : rate(numbers[0]), beta1(numbers[1]), beta2(numbers[2]), epsilon(numbers[3]), decay(numbers[4]),
          scale1(numbers[6]), scale2(numbers[7]), is_decoupled(is_decoupled) {
    }
    // Counts a step.
    static TALLOW_INLINE void advance(Value* numbers) {
        numbers[5] += 1;
        for (uint32_t i = 0; i < 2; ++i) {
            // 1 - beta**steps, of which small differences are not lost.
            const double power = static_cast<double>(numbers[5]) * log(static_cast<double>(numbers[1 + i]));
            numbers[6 + i] = static_cast<Value>(-1 / expm1(power));
        }
    }
    TALLOW_INLINE Value operator()(Value x, Value g, Value* state) const {
        if (is_decoupled)
            x = x - rate * decay * x;
        else
            g = g + decay * x;
        state[0] = beta1 * state[0] + (1 - beta1) * g;
        state[1] = beta2 * state[1] + (1 - beta2) * g * g;
        return x - rate * scale1 * state[0] / (sqrt(state[1] * scale2) + epsilon);
    }
};

} // namespace tallow
