// Functors as functions of elements: computed in the compute type, rounded once.
#pragma once

#include "access.hpp"
#include "complex.hpp"
#include "fast_math.hpp"
#include "numbers.hpp"

namespace tallow {

// The traits of a functor: how many parameters it takes, and whether it has a FastMath variant, on CPUs one of bounded
// floats, and takes the type of elements.
template <uint32_t Parameters, bool AsFastMath, bool AsBounded, bool OfElement = false> struct FunctorTraits {
    static constexpr uint32_t parameters = Parameters;
    static constexpr bool as_fast_math = AsFastMath;
    static constexpr bool as_bounded = AsBounded;
    static constexpr bool of_element = OfElement;
};

// The two results of a functor, each of a type of its own.
template <typename First, typename Second> struct Both {
    First first;
    Second second;
};
template <typename First, typename Second> TALLOW_INLINE Both<First, Second> both(First first, Second second) {
    return {first, second};
}

// The argument of a functor: an element in the compute type, or FastMath for floats of at most 11 bits where the
// functor has a variant for it.
template <bool AsFastMath, typename T> TALLOW_INLINE auto argument_of(T x) {
    if constexpr (AsFastMath && has_fast_math<T>)
        return FastMath<is_bounded<T>>(to_compute(x));
    else
        return to_compute(x);
}

// The bits of a functor's parameters, as the structs of its kernels have them.
template <uint32_t Count> struct ParameterBits {
    uint64_t parameters[Count];
};

// A functor with its parameters, computed in the compute type of T and rounded once; a truth value is 0 or 1.
template <typename Functor, typename Result, typename T> struct ElementFunction {
    static constexpr uint32_t count = Functor::parameters;
    // Parameters are real numbers.
    using Parameter = real_of<compute_type<T>>;
    Parameter parameters[count ? count : 1];

    template <typename Arguments> TALLOW_INLINE explicit ElementFunction(const Arguments& arguments) : parameters{} {
        if constexpr (count > 0) {
#pragma unroll
            for (uint32_t i = 0; i < count; ++i)
                parameters[i] = from_bits<Parameter>(arguments.parameters[i]);
        }
    }
    template <typename... Elements> TALLOW_INLINE auto operator()(Elements... elements) const {
        return apply(typename CountUp<count>::type{}, elements...);
    }

  private:
    template <typename... Values> static TALLOW_INLINE auto applied(Values... values) {
        if constexpr (Functor::of_element)
            return Functor::template apply<T>(values...);
        else
            return Functor::apply(values...);
    }
    template <uint32_t... I, typename... Elements> TALLOW_INLINE auto apply(Numbers<I...>, Elements... elements) const {
        return rounded(applied(argument_of<Functor::as_fast_math>(elements)..., parameters[I]...));
    }
    template <typename First, typename Second> static TALLOW_INLINE auto rounded(Both<First, Second> values) {
        return both(rounded(values.first), rounded(values.second));
    }
    template <typename Value> static TALLOW_INLINE Result rounded(Value value) {
        if constexpr (is_same<Value, bool>)
            return value ? Result{1} : Result{0};
        else if constexpr (is_complex<T>)
            return convert<Result>(value);
        else
            return convert<Result>(static_cast<compute_type<T>>(value));
    }
};

// The same where one of the last two operands is a number, the same for all elements, on the left or on the right.
template <typename Functor, typename Result, typename T, bool IsLeft>
struct NumberFunction : ElementFunction<Functor, Result, T> {
    T number;

    template <typename Arguments>
    TALLOW_INLINE explicit NumberFunction(const Arguments& arguments)
        : ElementFunction<Functor, Result, T>(arguments), number(from_bits<T>(arguments.number)) {
    }
    TALLOW_INLINE Result operator()(T x) const {
        const ElementFunction<Functor, Result, T>& function = *this;
        return IsLeft ? function(number, x) : function(x, number);
    }
    template <typename First> TALLOW_INLINE Result operator()(First first, T x) const {
        const ElementFunction<Functor, Result, T>& function = *this;
        return IsLeft ? function(first, number, x) : function(first, x, number);
    }
};

// The first source may be a condition, so that T is the type of the last one.
template <typename First, typename... Others> struct Last : Last<Others...> {};
template <typename T> struct Last<T> {
    using type = T;
};

} // namespace tallow
