// The kernels' bodies of functors.
#pragma once

#include "functor.hpp"
#include "map.hpp"
#include "tile.hpp"

namespace tallow {

template <typename... Sources, typename Arguments, typename Function, typename Result, uint32_t... K>
TALLOW_INLINE void contiguous_operands(const Arguments& arguments, Function function, Result* result, Numbers<K...>) {
    map_contiguous(arguments.count, function, result, pointer_to<const Sources>(arguments.sources[K])...);
}
template <typename... Sources, typename Arguments, typename Function, typename Result, uint32_t... K>
TALLOW_INLINE void strided_operands(const Arguments& arguments, Function function, Result* result, Numbers<K...>) {
    map_strided(arguments, function, result, pointer_to<const Sources>(arguments.sources[K])...);
}

template <typename Functor, typename Result, typename... Sources, typename Arguments>
TALLOW_INLINE void elementwise_contiguous(const Arguments& arguments) {
    const ElementFunction<Functor, Result, typename Last<Sources...>::type> function(arguments);
    contiguous_operands<Sources...>(arguments, function, pointer_to<Result>(arguments.result),
                                    typename CountUp<sizeof...(Sources)>::type{});
}
template <typename Functor, typename Result, typename... Sources, typename Arguments>
TALLOW_INLINE void elementwise_strided(const Arguments& arguments) {
    const ElementFunction<Functor, Result, typename Last<Sources...>::type> function(arguments);
    strided_operands<Sources...>(arguments, function, pointer_to<Result>(arguments.result),
                                 typename CountUp<sizeof...(Sources)>::type{});
}
// Each side has a loop of its own, so that no loop asks for the side.
template <typename Functor, typename Result, typename T, typename... Sources, typename Arguments>
TALLOW_INLINE void elementwise_number_contiguous(const Arguments& arguments) {
    const auto result = pointer_to<Result>(arguments.result);
    const typename CountUp<sizeof...(Sources)>::type order;
    if (arguments.number_is_left)
        contiguous_operands<Sources...>(arguments, NumberFunction<Functor, Result, T, true>(arguments), result, order);
    else
        contiguous_operands<Sources...>(arguments, NumberFunction<Functor, Result, T, false>(arguments), result, order);
}
template <typename Functor, typename Result, typename T, typename... Sources, typename Arguments>
TALLOW_INLINE void elementwise_number_strided(const Arguments& arguments) {
    const auto result = pointer_to<Result>(arguments.result);
    const typename CountUp<sizeof...(Sources)>::type order;
    if (arguments.number_is_left)
        strided_operands<Sources...>(arguments, NumberFunction<Functor, Result, T, true>(arguments), result, order);
    else
        strided_operands<Sources...>(arguments, NumberFunction<Functor, Result, T, false>(arguments), result, order);
}
template <typename Functor, typename Result, typename T, typename Arguments>
TALLOW_INLINE void elementwise_transposed(const Arguments& arguments) {
    binary_tiles<ElementFunction<Functor, Result, T>, T>(arguments, ElementFunction<Functor, Result, T>(arguments));
}

} // namespace tallow
