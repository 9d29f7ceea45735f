// Steps of optimisers, of many tensors in one launch.
#pragma once

#include "access.hpp"
#include "optim_rules.hpp"

namespace tallow {

// A block of threads has elements of one tensor, several packs a thread.
template <typename T, template <typename> class Rule, typename Arguments>
TALLOW_INLINE void optim_step(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t length = pack_length<Value>;
    const Rule<Value> rule(pointer_to<const Value>(arguments.numbers), arguments.choice != 0);
    uint32_t k = 0;
#pragma unroll
    for (uint32_t step = optim_tensors_power; step > 0; step /= 2)
        if (k + step < optim_tensors && block_index() >= arguments.first_blocks[k + step])
            k += step;
    T* const parameters = pointer_to<T>(arguments.parameters[k]);
    const T* const gradients = pointer_to<const T>(arguments.gradients[k]);
    Value* const state = pointer_to<Value>(arguments.state) + arguments.offsets[k];
    const uint64_t count = arguments.counts[k];
    const uint64_t first = uint64_t{block_index() - arguments.first_blocks[k]} * block_size * optim_packs * length;
#pragma unroll
    for (uint32_t p = 0; p < optim_packs; ++p) {
        const uint64_t place = first + (p * block_size + thread_index()) * length;
        if (place >= count)
            continue;
        const uint32_t left = count - place < length ? static_cast<uint32_t>(count - place) : length;
        Pack<T, length> x = load_some<length>(parameters + place, 1, left);
        const Pack<T, length> g = load_some<length>(gradients + place, 1, left);
        Pack<Value, length> held[Rule<Value>::states + 1];
#pragma unroll
        for (uint32_t s = 0; s != Rule<Value>::states; ++s)
            held[s] = load_whole<length>(state + s * arguments.apart + place);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i) {
            Value own[Rule<Value>::states + 1];
#pragma unroll
            for (uint32_t s = 0; s != Rule<Value>::states; ++s)
                own[s] = held[s].values[i];
            x.values[i] = convert<T>(rule(to_compute(x.values[i]), to_compute(g.values[i]), own));
#pragma unroll
            for (uint32_t s = 0; s != Rule<Value>::states; ++s)
                held[s].values[i] = own[s];
        }
        store_guarded(parameters, place, count, x);
        // A part has room for whole packs.
#pragma unroll
        for (uint32_t s = 0; s != Rule<Value>::states; ++s)
            store_whole(state + s * arguments.apart + place, held[s]);
    }
}

template <typename Value, typename Arguments> TALLOW_INLINE void optim_advance(const Arguments& arguments) {
    if (block_index() == 0 && thread_index() == 0)
        Adam<Value>::advance(pointer_to<Value>(arguments.numbers));
}

} // namespace tallow
