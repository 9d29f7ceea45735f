// The cells of recurrent layers: the new state of a unit from its gates and its last state, and the gradients. Each
// gate is the sum of two parts: x depends on the input, h on the last hidden state.
#pragma once

#include "math.hpp"

namespace tallow {

// 1 / (1 + e**-x), and its complement without cancellation.
template <typename Value> struct Logistic {
    Value value;
    Value complement;

    // The derivative.
    TALLOW_INLINE Value slope() const {
        return value * complement;
    }
};
template <typename Value> TALLOW_INLINE Logistic<Value> logistic(Value x) {
    const Value decay = exp_below_zero(x < 0 ? x : -x);
    const Value larger = Value{1} / (Value{1} + decay);
    const Value smaller = decay * larger;
    return {x < 0 ? smaller : larger, x < 0 ? larger : smaller};
}
// The derivative of tanh, which is 1 - tanh(x)**2.
template <typename Value> TALLOW_INLINE Value tanh_slope(Value x) {
    return Value{4} * logistic(Value{2} * x).slope();
}

// The functions of a cell, as accurate as its numbers.
struct CellFunctions {
    template <typename Value> static TALLOW_INLINE Value gate(Value x) {
        return sigmoid(x);
    }
    template <typename Value> static TALLOW_INLINE Value candidate(Value x) {
        return tanh(x);
    }
};

// The hidden state of a unit and, of an LSTM, its cell state.
template <typename Value> struct UnitState {
    Value hidden;
    Value cell;
};

// The gradients of both parts of each gate, and of the last state.
template <typename Value, uint32_t Gates> struct UnitGradients {
    Value of_input[Gates];
    Value of_hidden[Gates];
    Value of_state;
};

// Long short-term memory: input gate, forget gate, candidate and output gate. The state is the cell state.
struct LongShortTermMemory {
    static constexpr uint32_t gates = 4;
    static constexpr bool has_cell = true;

    template <typename Functions = CellFunctions, typename Value>
    static TALLOW_INLINE UnitState<Value> step(const Value (&x)[gates], const Value (&h)[gates], Value state) {
        const Value added = Functions::gate(x[0] + h[0]) * Functions::candidate(x[2] + h[2]);
        const Value cell = fma(Functions::gate(x[1] + h[1]), state, added);
        return {Functions::gate(x[3] + h[3]) * Functions::candidate(cell), cell};
    }
    // The derivatives of a step, which do not depend on the gradients of its results.
    template <typename Value> struct Slopes {
        Value cell_of_hidden;
        Value gates_of_cell[3];
        Value output_of_hidden;
        Value state_of_cell;
    };
    template <typename Value>
    static TALLOW_INLINE Slopes<Value> slopes(const Value (&x)[gates], const Value (&h)[gates], Value state) {
        const Logistic<Value> input = logistic(x[0] + h[0]), forget = logistic(x[1] + h[1]),
                              output = logistic(x[3] + h[3]);
        const Value candidate = tanh(x[2] + h[2]);
        const Value cell = fma(forget.value, state, input.value * candidate);
        return {output.value * tanh_slope(cell),
                {candidate * input.slope(), state * forget.slope(), input.value * tanh_slope(x[2] + h[2])},
                tanh(cell) * output.slope(),
                forget.value};
    }
    template <typename Value>
    static TALLOW_INLINE UnitGradients<Value, gates> gradients(const Slopes<Value>& slopes, Value of_hidden,
                                                               Value of_cell) {
        const Value of_new_cell = fma(of_hidden, slopes.cell_of_hidden, of_cell);
        UnitGradients<Value, gates> result;
#pragma unroll
        for (uint32_t k = 0; k < 3; ++k)
            result.of_input[k] = of_new_cell * slopes.gates_of_cell[k];
        result.of_input[3] = of_hidden * slopes.output_of_hidden;
#pragma unroll
        for (uint32_t k = 0; k < gates; ++k)
            result.of_hidden[k] = result.of_input[k];
        result.of_state = of_new_cell * slopes.state_of_cell;
        return result;
    }
};

// Gated recurrent unit: reset gate, update gate and candidate. The reset gate is a factor of the part of the candidate
// that depends on the hidden state, which is the state.
struct GatedRecurrentUnit {
    static constexpr uint32_t gates = 3;
    static constexpr bool has_cell = false;

    template <typename Functions = CellFunctions, typename Value>
    static TALLOW_INLINE UnitState<Value> step(const Value (&x)[gates], const Value (&h)[gates], Value state) {
        const Value candidate = Functions::candidate(fma(Functions::gate(x[0] + h[0]), h[2], x[2]));
        return {fma(Functions::gate(x[1] + h[1]), state - candidate, candidate), Value{0}};
    }
    template <typename Value> struct Slopes {
        Value sum_of_hidden;
        Value reset_of_sum;
        Value update_of_hidden;
        Value product_of_sum;
        Value state_of_hidden;
    };
    template <typename Value>
    static TALLOW_INLINE Slopes<Value> slopes(const Value (&x)[gates], const Value (&h)[gates], Value state) {
        const Logistic<Value> reset = logistic(x[0] + h[0]), update = logistic(x[1] + h[1]);
        const Value sum = fma(reset.value, h[2], x[2]);
        return {update.complement * tanh_slope(sum), h[2] * reset.slope(), (state - tanh(sum)) * update.slope(),
                reset.value, update.value};
    }
    template <typename Value>
    static TALLOW_INLINE UnitGradients<Value, gates> gradients(const Slopes<Value>& slopes, Value of_hidden, Value) {
        const Value of_sum = of_hidden * slopes.sum_of_hidden;
        UnitGradients<Value, gates> result;
        result.of_input[0] = result.of_hidden[0] = of_sum * slopes.reset_of_sum;
        result.of_input[1] = result.of_hidden[1] = of_hidden * slopes.update_of_hidden;
        result.of_input[2] = of_sum;
        result.of_hidden[2] = of_sum * slopes.product_of_sum;
        result.of_state = of_hidden * slopes.state_of_hidden;
        return result;
    }
};

} // namespace tallow
