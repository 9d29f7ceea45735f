// Functors of two results, as compositions of one step: see fused.hpp.
#pragma once

#include "fused.hpp"

namespace tallow {

template <typename Functor, typename... Sources> struct MultiOutput {
    // The first source may be a condition.
    using T = typename Last<Sources...>::type;
    static constexpr uint32_t sources = sizeof...(Sources);
    static constexpr uint32_t length = pack_length<Sources...>;

    template <typename Arguments> static TALLOW_INLINE bool is_aligned(const Arguments& arguments) {
        return is_aligned(arguments, typename CountUp<sources>::type{});
    }
    template <uint32_t N, typename Arguments, uint32_t Operands>
    static TALLOW_INLINE bool are_runs(const Arguments& arguments, const uint64_t (&offsets)[Operands]) {
        return are_runs<N>(arguments, offsets, typename CountUp<sources>::type{});
    }
    template <typename Access> static TALLOW_INLINE void compute(const Access& access) {
        compute(access, typename CountUp<sources>::type{});
    }

  private:
    template <typename Arguments, uint32_t... K>
    static TALLOW_INLINE bool is_aligned(const Arguments& arguments, Numbers<K...>) {
        return (tallow::is_aligned<length>(pointer_to<const Sources>(arguments.sources[K])) && ...);
    }
    template <uint32_t N, typename Arguments, uint32_t Operands, uint32_t... K>
    static TALLOW_INLINE bool are_runs(const Arguments& arguments, const uint64_t (&offsets)[Operands], Numbers<K...>) {
        return (... && is_run<N>(pointer_to<const Sources>(arguments.sources[K]) + offsets[K],
                                 arguments.strides[K * max_rank]));
    }
    template <typename Access, uint32_t... K> static TALLOW_INLINE void compute(const Access& access, Numbers<K...>) {
        compute_of(access, access.template load<Sources, K>()...);
    }
    template <typename Access, typename... Loaded>
    static TALLOW_INLINE void compute_of(const Access& access, const Loaded&... loaded) {
        const ElementFunction<Functor, T, T> function(access.arguments);
        typename Access::template Of<T> first, second;
#pragma unroll
        for (uint32_t i = 0; i < Access::count; ++i) {
            const auto values = function(loaded[i]...);
            first[i] = values.first;
            second[i] = values.second;
        }
        access.template store<0>(first);
        access.template store<1>(second);
    }
};

} // namespace tallow
