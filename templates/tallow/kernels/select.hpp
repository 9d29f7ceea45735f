// The kernels' bodies of what has operands of several types: casts, and the choice between two elements.
#pragma once

#include "map.hpp"

namespace tallow {

template <typename To, typename From> struct CastFunction {
    TALLOW_INLINE To operator()(From x) const {
        return convert<To>(x);
    }
};
template <typename T, typename Condition> struct WhereFunction {
    TALLOW_INLINE T operator()(Condition condition, T on_true, T on_false) const {
        return condition != 0 ? on_true : on_false;
    }
};
template <typename From, typename To, typename Arguments>
TALLOW_INLINE void cast_contiguous(const Arguments& arguments) {
    map_contiguous(arguments.count, CastFunction<To, From>{}, pointer_to<To>(arguments.result),
                   pointer_to<const From>(arguments.source));
}
template <typename From, typename To, typename Arguments> TALLOW_INLINE void cast_strided(const Arguments& arguments) {
    map_strided(arguments, CastFunction<To, From>{}, pointer_to<To>(arguments.result),
                pointer_to<const From>(arguments.source));
}

template <typename Condition, typename T, typename Arguments>
TALLOW_INLINE void where_contiguous(const Arguments& arguments) {
    map_contiguous(arguments.count, WhereFunction<T, Condition>{}, pointer_to<T>(arguments.result),
                   pointer_to<const Condition>(arguments.condition), pointer_to<const T>(arguments.on_true),
                   pointer_to<const T>(arguments.on_false));
}
template <typename Condition, typename T, typename Arguments>
TALLOW_INLINE void where_strided(const Arguments& arguments) {
    map_strided(arguments, WhereFunction<T, Condition>{}, pointer_to<T>(arguments.result),
                pointer_to<const Condition>(arguments.condition), pointer_to<const T>(arguments.on_true),
                pointer_to<const T>(arguments.on_false));
}

} // namespace tallow
