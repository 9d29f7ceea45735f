// The kernels' bodies of functions with one result for each element.
#pragma once

#include "brief.hpp"
#include "elementwise.hpp"
#include "tile.hpp"

namespace tallow {

// What functions of one element are given: it in the compute type, which for floats of at most 11 bits is brief.
template <typename T> TALLOW_INLINE auto argument_of(T x) {
    if constexpr (is_integer<T> || sizeof(T) > 2)
        return to_compute(x);
    else
        return Brief<!is_same<T, bf16>>(to_compute(x));
}

// A functor's result is rounded once.
template <typename Functor, typename T> struct UnaryFunction {
    TALLOW_INLINE T operator()(T x) const {
        return convert<T>(static_cast<compute_type<T>>(Functor::apply(argument_of(x))));
    }
};
template <typename Functor, typename T> struct BinaryFunction {
    TALLOW_INLINE T operator()(T x, T y) const {
        return convert<T>(Functor::apply(to_compute(x), to_compute(y)));
    }
};
template <typename Functor, typename T> struct CompareFunction {
    TALLOW_INLINE uint8_t operator()(T x, T y) const {
        return Functor::apply(to_compute(x), to_compute(y)) ? 1 : 0;
    }
};
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
template <typename T> struct AffineFunction {
    compute_type<T> mul;
    compute_type<T> add;
    template <typename Arguments> TALLOW_INLINE explicit AffineFunction(const Arguments& arguments) {
        if constexpr (is_integer<T>) {
            mul = static_cast<T>(arguments.integer_mul);
            add = static_cast<T>(arguments.integer_add);
        } else {
            mul = static_cast<compute_type<T>>(arguments.mul);
            add = static_cast<compute_type<T>>(arguments.add);
        }
    }
    TALLOW_INLINE T operator()(T x) const {
        if constexpr (is_integer<T>)
            return wrapping_add(wrapping_mul(x, mul), add);
        else
            return convert<T>(fma(to_compute(x), mul, add));
    }
};
template <typename T> struct PowerFunction {
    compute_type<T> alpha;
    template <typename Arguments>
    TALLOW_INLINE explicit PowerFunction(const Arguments& arguments)
        : alpha(static_cast<compute_type<T>>(arguments.alpha)) {
    }
    TALLOW_INLINE T operator()(T x) const {
        return convert<T>(pow(argument_of(x), alpha));
    }
};
template <typename T> struct EluFunction {
    compute_type<T> alpha;
    template <typename Arguments>
    TALLOW_INLINE explicit EluFunction(const Arguments& arguments)
        : alpha(static_cast<compute_type<T>>(arguments.alpha)) {
    }
    TALLOW_INLINE T operator()(T x) const {
        return convert<T>(elu(to_compute(x), alpha));
    }
};

template <typename Result, typename Source, typename Arguments, typename Function>
TALLOW_INLINE void one_source_contiguous(const Arguments& arguments, Function function) {
    map_contiguous(arguments.count, function, pointer_to<Result>(arguments.result),
                   pointer_to<const Source>(arguments.source));
}
template <typename Result, typename Source, typename Arguments, typename Function>
TALLOW_INLINE void one_source_strided(const Arguments& arguments, Function function) {
    map_strided(arguments, function, pointer_to<Result>(arguments.result), pointer_to<const Source>(arguments.source));
}

template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void unary_contiguous(const Arguments& arguments) {
    one_source_contiguous<T, T>(arguments, UnaryFunction<Functor, T>{});
}
template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void unary_strided(const Arguments& arguments) {
    one_source_strided<T, T>(arguments, UnaryFunction<Functor, T>{});
}

template <typename From, typename To, typename Arguments>
TALLOW_INLINE void cast_contiguous(const Arguments& arguments) {
    one_source_contiguous<To, From>(arguments, CastFunction<To, From>{});
}
template <typename From, typename To, typename Arguments> TALLOW_INLINE void cast_strided(const Arguments& arguments) {
    one_source_strided<To, From>(arguments, CastFunction<To, From>{});
}

template <typename T, typename Arguments> TALLOW_INLINE void affine_contiguous(const Arguments& arguments) {
    one_source_contiguous<T, T>(arguments, AffineFunction<T>(arguments));
}
template <typename T, typename Arguments> TALLOW_INLINE void affine_strided(const Arguments& arguments) {
    one_source_strided<T, T>(arguments, AffineFunction<T>(arguments));
}

template <typename T, typename Arguments> TALLOW_INLINE void powf_contiguous(const Arguments& arguments) {
    one_source_contiguous<T, T>(arguments, PowerFunction<T>(arguments));
}
template <typename T, typename Arguments> TALLOW_INLINE void powf_strided(const Arguments& arguments) {
    one_source_strided<T, T>(arguments, PowerFunction<T>(arguments));
}

template <typename T, typename Arguments> TALLOW_INLINE void elu_contiguous(const Arguments& arguments) {
    one_source_contiguous<T, T>(arguments, EluFunction<T>(arguments));
}
template <typename T, typename Arguments> TALLOW_INLINE void elu_strided(const Arguments& arguments) {
    one_source_strided<T, T>(arguments, EluFunction<T>(arguments));
}

template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void binary_contiguous(const Arguments& arguments) {
    map_contiguous(arguments.count, BinaryFunction<Functor, T>{}, pointer_to<T>(arguments.result),
                   pointer_to<const T>(arguments.lhs), pointer_to<const T>(arguments.rhs));
}
template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void binary_strided(const Arguments& arguments) {
    map_strided(arguments, BinaryFunction<Functor, T>{}, pointer_to<T>(arguments.result),
                pointer_to<const T>(arguments.lhs), pointer_to<const T>(arguments.rhs));
}

template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void binary_turned(const Arguments& arguments) {
    binary_tiles<BinaryFunction<Functor, T>, T>(arguments, BinaryFunction<Functor, T>{});
}

template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void compare_contiguous(const Arguments& arguments) {
    map_contiguous(arguments.count, CompareFunction<Functor, T>{}, pointer_to<uint8_t>(arguments.result),
                   pointer_to<const T>(arguments.lhs), pointer_to<const T>(arguments.rhs));
}
template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void compare_strided(const Arguments& arguments) {
    map_strided(arguments, CompareFunction<Functor, T>{}, pointer_to<uint8_t>(arguments.result),
                pointer_to<const T>(arguments.lhs), pointer_to<const T>(arguments.rhs));
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
