// Functors of two results, as compositions of one step: see fused.hpp.
#pragma once

#include "fused.hpp"

namespace tallow {

template <typename Functor, typename T, typename... Others> struct Joint {
    static constexpr uint32_t sources = 1 + sizeof...(Others);
    static constexpr uint32_t length = pack_length<T>;

    template <typename Arguments> static TALLOW_INLINE bool is_aligned(const Arguments& arguments) {
        bool result = true;
#pragma unroll
        for (uint32_t k = 0; k < sources; ++k)
            result = result && tallow::is_aligned<length>(pointer_to<const T>(arguments.sources[k]));
        return result;
    }
    template <uint32_t N, typename Arguments>
    static TALLOW_INLINE bool are_runs(const Arguments& arguments, const uint64_t (&offsets)[sources]) {
        bool result = true;
#pragma unroll
        for (uint32_t k = 0; k < sources; ++k)
            result = result &&
                     is_run<N>(pointer_to<const T>(arguments.sources[k]) + offsets[k], arguments.strides[k * max_rank]);
        return result;
    }
    template <typename Access> static TALLOW_INLINE void compute(const Access& access) {
        compute(access, typename CountUp<sources>::type{});
    }

  private:
    template <typename Access, uint32_t... K> static TALLOW_INLINE void compute(const Access& access, Numbers<K...>) {
        compute_of(access, access.template load<T, K>()...);
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
