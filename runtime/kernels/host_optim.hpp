// Steps of optimisers on the host, of many tensors in one call.
#pragma once

#include "optim_rules.hpp"
#include "parts.hpp"
#include "span.hpp"

namespace tallow {

// Elements that are computed at once.
constexpr uint64_t optim_span = 256;

// Elements side by side.
template <typename Rule, typename Value>
__attribute__((noinline)) void step_span(const Rule& rule, uint64_t count, Value* x, const Value* g, Value* state,
                                         uint64_t state_stride) {
    Value* const other = state + state_stride;
    TALLOW_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
        Value own[2];
        if constexpr (Rule::states > 0)
            own[0] = state[i];
        if constexpr (Rule::states > 1)
            own[1] = other[i];
        x[i] = rule(x[i], g[i], own);
        if constexpr (Rule::states > 0)
            state[i] = own[0];
        if constexpr (Rule::states > 1)
            other[i] = own[1];
    }
}

template <typename Value> TALLOW_INLINE void count_step(const Adam<Value>*, Value* numbers) {
    Adam<Value>::advance(numbers);
}
template <typename Value> TALLOW_INLINE void count_step(const void*, Value*) {
}

template <typename T, template <typename> class Rule, typename Arguments>
TALLOW_INLINE void step_tensors(const Arguments& arguments) {
    using Value = compute_type<T>;
    count_step(static_cast<const Rule<Value>*>(nullptr), pointer_to<Value>(arguments.numbers));
    const Rule<Value> rule(pointer_to<const Value>(arguments.numbers), arguments.choice != 0);
    const auto* const first_parts = pointer_to<const uint64_t>(arguments.first_parts);
    const auto step_part = [&](uint64_t part) {
        uint32_t k = 0;
        while (k + 1 < arguments.tensors && part >= first_parts[k + 1])
            ++k;
        const uint64_t begin = (part - first_parts[k]) * optim_length,
                       count = pointer_to<const uint64_t>(arguments.counts)[k];
        const uint64_t end = begin + optim_length < count ? begin + optim_length : count;
        T* const x = pointer_to<T>(pointer_to<const uint64_t>(arguments.parameters)[k]);
        const T* const g = pointer_to<const T>(pointer_to<const uint64_t>(arguments.gradients)[k]);
        Value* const state = pointer_to<Value>(arguments.state) + pointer_to<const uint64_t>(arguments.offsets)[k];
        if constexpr (is_same<T, Value>) {
            step_span(rule, end - begin, x + begin, g + begin, state + begin, arguments.state_stride);
        } else {
            Value wide[2][optim_span];
            for (uint64_t first = begin; first < end; first += optim_span) {
                const uint64_t length = end - first < optim_span ? end - first : optim_span;
                convert_span(length, wide[0], static_cast<const T*>(x + first));
                convert_span(length, wide[1], g + first);
                step_span(rule, length, wide[0], wide[1], state + first, arguments.state_stride);
                convert_span(length, x + first, static_cast<const float*>(wide[0]));
            }
        }
    };
    do_parts(arguments, arguments.parts, step_part);
}

} // namespace tallow
