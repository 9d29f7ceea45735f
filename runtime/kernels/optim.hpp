// Steps of optimisers, of many tensors in one launch.
#pragma once

#include "access.hpp"
#include "optim_rules.hpp"

namespace tallow {

// The tensor that has a part of the state: unused entries have none.
template <typename Arguments> TALLOW_INLINE uint32_t optim_tensor(const Arguments& arguments, uint64_t part) {
    uint32_t k = 0;
#pragma unroll
    for (uint32_t step = optim_tensors_power; step > 0; step /= 2)
        if (k + step < optim_tensors && part >= arguments.offsets[k + step])
            k += step;
    return k;
}

// Threads go over the state, in which parts of tensors follow each other: several packs a thread, each of one tensor.
template <typename T, template <typename> class Rule, typename Arguments>
TALLOW_INLINE void optim_step(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t length = pack_length<Value>;
    constexpr uint64_t together = uint64_t{block_size} * optim_packs * length;
    const Rule<Value> rule(pointer_to<const Value>(arguments.numbers), arguments.choice != 0);
    const uint64_t begin = uint64_t{arguments.offsets[0]} * optim_alignment + block_index() * together;
    // Most blocks have one tensor.
    const uint32_t first = optim_tensor(arguments, begin / optim_alignment),
                   last = optim_tensor(arguments, (begin + together - 1) / optim_alignment);
#pragma unroll
    for (uint32_t p = 0; p < optim_packs; ++p) {
        const uint64_t position = begin + (p * block_size + thread_index()) * length;
        const uint32_t k = first == last ? first : optim_tensor(arguments, position / optim_alignment);
        T* const parameters = pointer_to<T>(arguments.parameters[k]);
        const T* const gradients = pointer_to<const T>(arguments.gradients[k]);
        Value* const state = pointer_to<Value>(arguments.state) + uint64_t{arguments.offsets[k]} * optim_alignment;
        const uint64_t element = position - uint64_t{arguments.offsets[k]} * optim_alignment,
                       count = arguments.counts[k];
        if (element >= count)
            continue;
        const uint32_t left = count - element < length ? static_cast<uint32_t>(count - element) : length;
        Pack<T, length> x = load_some<length>(parameters + element, 1, left);
        const Pack<T, length> g = load_some<length>(gradients + element, 1, left);
        Pack<Value, length> state_packs[Rule<Value>::states + 1];
#pragma unroll
        for (uint32_t s = 0; s != Rule<Value>::states; ++s)
            state_packs[s] = load_pack<length>(state + s * arguments.state_stride + element);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            Value own[Rule<Value>::states + 1];
#pragma unroll
            for (uint32_t s = 0; s != Rule<Value>::states; ++s)
                own[s] = state_packs[s].values[i];
            x.values[i] = convert<T>(rule(to_compute(x.values[i]), to_compute(g.values[i]), own));
#pragma unroll
            for (uint32_t s = 0; s != Rule<Value>::states; ++s)
                state_packs[s].values[i] = own[s];
        }
        store_guarded(parameters, element, count, x);
        // The state of a parameter is padded to full packs.
#pragma unroll
        for (uint32_t s = 0; s != Rule<Value>::states; ++s)
            store_pack(state + s * arguments.state_stride + element, state_packs[s]);
    }
}

template <typename Value, typename Arguments> TALLOW_INLINE void optim_advance(const Arguments& arguments) {
    if (block_index() == 0 && thread_index() == 0)
        Adam<Value>::advance(pointer_to<Value>(arguments.numbers));
}

} // namespace tallow
