// An exclusive scan over the threads of a subgroup, by a monoid.
#pragma once

#include "wave.hpp"

namespace tallow {

// Numbers of elements, as a monoid.
struct Counts {
    using State = uint32_t;
    static TALLOW_INLINE State identity() {
        return 0;
    }
    static TALLOW_INLINE State combine(State x, State y) {
        return x + y;
    }
};

// The state that another lane has; every lane of the wave must take part. NVRTC takes a generic lambda for a function
// of the host.
struct ShuffleFrom {
    uint32_t lane;
    template <typename Part> TALLOW_INLINE Part operator()(Part part) const {
        return shuffle_from(part, lane);
    }
};
template <typename State> TALLOW_INLINE State state_from(State state, uint32_t lane) {
    if constexpr (sizeof(State) <= 8 || sizeof(State) == 16)
        return shuffle_from(state, lane);
    else
        return state.each(ShuffleFrom{lane});
}

// What the values of the threads before this one in its subgroup come to, which are side by side: a power of two up to
// row_subgroup, or all of the block. `total` is what all of them come to.
template <typename Monoid>
TALLOW_INLINE typename Monoid::State exclusive_subgroup_scan(typename Monoid::State value, uint32_t subgroup_size,
                                                             typename Monoid::State& total) {
    using State = typename Monoid::State;
    const uint32_t lanes = subgroup_size < wave_size ? subgroup_size : wave_size;
    const uint32_t lane = lane_index() & (lanes - 1);
    State inclusive = value;
    for (uint32_t distance = 1; distance < lanes; distance *= 2) {
        const State earlier = state_from(inclusive, (lane_index() - distance) % wave_size);
        if (lane >= distance)
            inclusive = Monoid::combine(earlier, inclusive);
    }
    State before = state_from(inclusive, (lane_index() - 1) % wave_size);
    if (lane == 0)
        before = Monoid::identity();
    total = state_from(inclusive, lane_index() | (lanes - 1));
    if (subgroup_size == block_size) {
        __shared__ State waves[waves_per_block];
        if (lane_index() == 0)
            waves[wave_index()] = total;
        synchronize_block();
        State earlier = Monoid::identity();
        total = Monoid::identity();
        // What joins states of several numbers takes many registers each time that it is written out.
        constexpr uint32_t turns = sizeof(State) <= 8 ? waves_per_block : 1;
#pragma unroll turns
        for (uint32_t w = 0; w < waves_per_block; ++w) {
            if (w == wave_index())
                earlier = total;
            total = Monoid::combine(total, waves[w]);
        }
        before = Monoid::combine(earlier, before);
        synchronize_block();
    }
    return before;
}

} // namespace tallow
