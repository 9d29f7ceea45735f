// Partial results of reductions, and how they are combined.
#pragma once

#include "access.hpp"
#include "arithmetic.hpp"
#include "basic.hpp"
#include "numbers.hpp"
#include "states.hpp"

namespace tallow {

// A result of its own type is combined in that type, such as a truth value in a register: parts of one take more
// of them. Other states are of the compute type; on the host, those of float may be of a wider one.
template <typename R, bool Narrow> struct OwnState {
    using type = compute_type<R>;
};
template <typename R> struct OwnState<R, true> {
    using type = uint32_t;
};
template <typename T, typename R, typename Wide> struct StateOf {
    using type = typename OwnState<R, sizeof(R) < sizeof(uint32_t)>::type;
};
template <typename T, typename Wide> struct StateOf<T, T, Wide> {
    using type = compute_type<T>;
};
#if defined(TALLOW_VECTOR)
template <> struct StateOf<float, float, double> {
    using type = double;
};
template <> struct StateOf<complex64, complex64, double> {
    using type = complex128;
};
#endif

// What an element begins. AMD's compilers would keep the truth values of all lanes in scalar registers, of which many
// elements in flight take more than there are.
template <typename State, typename Value> TALLOW_INLINE State state_of(Value value) {
#if defined(TALLOW_AMD)
    if constexpr (is_same<Value, bool>)
        return static_cast<State>(opaque(value));
#endif
    return static_cast<State>(value);
}

// Of a reduction's formulas, those that the spec may leave out: an element is what it contributes.
struct Formulas {
    template <typename T> static TALLOW_INLINE T element(T x) {
        return x;
    }
};

// What the reductions do with partial results: State holds one, `identity` that of nothing, `element` begins one,
// `combine` joins two, `number` is what one comes to if its elements are divided by `unit`, and `result` makes the
// result of all elements of it. Reductions that differ in their results alone share one Joining.
// Here a state is a number.
template <typename Of, typename T, typename R, typename Wide = void> struct ValueReduction {
    using Element = T;
    using Number = typename StateOf<T, R, Wide>::type;
    using State = Number;
    using Result = R;
    using Joining = ValueReduction;
    static TALLOW_INLINE State identity() {
        return Of::template identity<State>();
    }
    static TALLOW_INLINE State element(T value, uint32_t) {
        return state_of<State>(Of::element(to_compute(value)));
    }
    static TALLOW_INLINE State combine(State x, State y) {
        return Of::combine(x, y);
    }
    static TALLOW_INLINE Number number(State state) {
        return state;
    }
    static TALLOW_INLINE Number unit(State) {
        return 1;
    }
    template <typename Arguments> static TALLOW_INLINE Result result(State state, uint64_t, const Arguments&) {
        return convert<R>(state);
    }
};

// The lowest or the highest of all elements.
template <typename Of, typename T, bool Lowest> struct ExtremeReduction : ValueReduction<Of, T, T> {
    using Joining = ExtremeReduction;
    static constexpr bool is_lowest = Lowest;
};

// States of the spec, which need not have them.
template <typename Number> struct Powers;
template <typename Number> struct Shares;
template <typename Number> struct Lengths;
template <typename Number> struct Spreads;
template <typename Number> struct Centres;

// Lengths of what has no squares that overflow or underflow.
template <typename Number> struct SumOfSquares {
    Number squares;

    static TALLOW_INLINE SumOfSquares of(Number x) {
        return {x * x};
    }
    template <typename Function> TALLOW_INLINE SumOfSquares each(Function function) const {
        return {function(squares)};
    }
    TALLOW_INLINE Number result() const {
        return squares;
    }
    TALLOW_INLINE void add(const SumOfSquares& y) {
        squares += y.squares;
    }
};
template <typename Number> constexpr bool has_parts<SumOfSquares<Number>> = true;
// Spreads of the same: how many elements there are, their mean, and the sum of the squares of their distances from it.
template <typename Number> struct Moments {
    Number count;
    Number mean;
    Number squares;

    static TALLOW_INLINE Moments of(Number x) {
        return {static_cast<Number>(1), x, static_cast<Number>(0)};
    }
    template <typename Function> TALLOW_INLINE Moments each(Function function) const {
        return {function(count), function(mean), function(squares)};
    }
    // No number is at a distance from an infinite mean.
    TALLOW_INLINE Number result() const {
        return squares + (mean - mean);
    }
    TALLOW_INLINE void add(const Moments& y) {
        const Moments x = *this;
        const Number total = x.count + y.count;
        const Number share = y.count / (total > 0 ? total : static_cast<Number>(1));
        const Number step = y.mean - x.mean;
        count = total;
        mean = multiply_add(step, share, x.mean);
        squares = multiply_add(step * share * x.count, step, x.squares + y.squares);
    }
};
template <typename Number> constexpr bool has_parts<Moments<Number>> = true;
// The state that does where no square overflows or underflows.
template <typename State> struct Unscaled {
    using type = State;
};
template <typename Number> struct Unscaled<Lengths<Number>> {
    using type = SumOfSquares<Number>;
};
template <typename Number> struct Unscaled<Spreads<Number>> {
    using type = Moments<Number>;
};
// Whether a sum of squares says what the sums of scaled squares are: it lost none.
template <typename Number> TALLOW_INLINE bool is_ordinary(Number plain) {
    return grow(plain) >= 1 && !is_infinite(plain);
}
template <typename Number> TALLOW_INLINE Number square_of(Number x) {
    return x * x;
}
// A distance far below those whose squares overflow changes no sum of shrunk squares. With it none of these is
// subnormal, for which processors take long.
template <typename Number> constexpr Number negligible = sizeof(Number) == sizeof(float) ? 0x1p30 : 0x1p230;
// Sums of scaled squares: that of smaller ones is needed where the plain sum overflowed, the other one elsewhere.
template <typename Number> struct ScaledSquares {
    Number shrunk;
    Number grown;
};
template <typename Number> TALLOW_INLINE ScaledSquares<Number> scaled_from(Number plain) {
    return {shrink(shrink(plain + square_of(negligible<Number>))), grow(grow(plain))};
}
// The state with scaled squares of elements whose squares are known, and whether it takes the elements once more. One
// element is at no distance from its mean.
template <typename Number> TALLOW_INLINE Lengths<Number> state_from(const SumOfSquares<Number>& known) {
    const auto scaled = scaled_from(known.squares);
    return {scaled.shrunk, known.squares, scaled.grown};
}
template <typename Number> TALLOW_INLINE Spreads<Number> state_from(const Moments<Number>& known) {
    const auto scaled = scaled_from(known.squares);
    return {known.count, known.mean, scaled.shrunk, known.result(), scaled.grown};
}
template <typename Number> TALLOW_INLINE bool needs_elements(const SumOfSquares<Number>& known) {
    return !is_ordinary(known.squares);
}
template <typename Number> TALLOW_INLINE bool needs_elements(const Moments<Number>& known) {
    return known.count > 1 && !is_ordinary(known.squares);
}

// The state of elements T that are combined as Number. On the host f32 are combined as f64, and floats of 8 bits as
// bf16.
#if defined(TALLOW_VECTOR)
template <typename T> constexpr bool is_unscaled = has_squares<T> && !is_within_bf16<T>;
#else
template <typename T> constexpr bool is_unscaled = has_squares<T>;
#endif
template <template <typename> typename Of, typename T, typename Number, bool IsUnscaled = is_unscaled<T>>
struct StateFor {
    using type = Of<Number>;
};
template <template <typename> typename Of, typename T> struct StateFor<Of, T, float, true> {
    using type = typename Unscaled<Of<float>>::type;
};
template <template <typename> typename Of> struct StateFor<Of, float, double> {
    using type = typename Unscaled<Of<double>>::type;
};

// A state is several numbers, a struct of the spec.
template <template <typename> typename Of, typename T, typename R, typename Wide = void> struct StateReduction {
    using Element = T;
    using Number = typename StateOf<T, R, Wide>::type;
    using State = typename StateFor<Of, T, Number>::type;
    using Result = R;
    using Joining = StateReduction;
    static TALLOW_INLINE State identity() {
        return State{};
    }
    static TALLOW_INLINE State element(T value, uint32_t) {
        return State::of(to_compute(value));
    }
    static TALLOW_INLINE State combine(State x, State y) {
        x.add(y);
        return x;
    }
    static TALLOW_INLINE Number number(State state) {
        return state.result();
    }
    static TALLOW_INLINE Number unit(State state) {
        if constexpr (has_unit<State>)
            return state.unit();
        else
            return 1;
    }
    template <typename Arguments> static TALLOW_INLINE Result result(State state, uint64_t, const Arguments&) {
        return convert<R>(number(state));
    }
};

// States of sums of squares, and of what shrink and grow make of these.
template <typename State> constexpr bool has_plain = false;
template <typename Number> constexpr bool has_plain<Lengths<Number>> = true;
template <typename Number> constexpr bool has_plain<Spreads<Number>> = true;

template <bool First, typename X, typename Y> struct OneOf {
    using type = X;
};
template <typename X, typename Y> struct OneOf<false, X, Y> {
    using type = Y;
};

// The same elements combined by a state without scaled squares.
template <typename Of> struct UnscaledReduction {
    using State = typename Unscaled<typename Of::State>::type;
    static TALLOW_INLINE State identity() {
        return State{};
    }
    static TALLOW_INLINE State element(typename Of::Element value, uint32_t) {
        return State::of(to_compute(value));
    }
    static TALLOW_INLINE State combine(State x, State y) {
        x.add(y);
        return x;
    }
};

// How a reduction joins elements whose squares neither overflow nor underflow.
template <typename Op> struct WithoutScaling {
    using type = typename OneOf<has_plain<typename Op::State>, UnscaledReduction<Op>, Op>::type;
};

// What another reduction comes to is finished by a formula of it, of the number of elements, of their unit and of some
// parameters.
template <typename Joins, typename Of, uint32_t Parameters = 0> struct FinishedReduction : Joins {
    using typename Joins::Number, typename Joins::Result, typename Joins::State;
    template <typename Arguments>
    static TALLOW_INLINE Result result(State state, uint64_t elements, const Arguments& arguments) {
        return result_in_units(Joins::number(state), Joins::unit(state), elements, arguments);
    }
    template <typename Arguments>
    static TALLOW_INLINE Result result_in_units(Number number, Number unit, uint64_t elements,
                                                const Arguments& arguments) {
        return finished(number, unit, elements, arguments, typename CountUp<Parameters>::type{});
    }

  private:
    template <typename Arguments, uint32_t... I>
    static TALLOW_INLINE Result finished(Number number, Number unit, uint64_t elements,
                                         [[maybe_unused]] const Arguments& arguments, Numbers<I...>) {
        using Parameter = compute_type<typename Joins::Element>;
        const Number result = Of::finish(number, static_cast<Number>(elements), unit,
                                         static_cast<Number>(from_bits<Parameter>(arguments.parameters[I]))...);
        return convert<Result>(result);
    }
};

// States that join without a division where it is known how many elements they are of.
template <typename State> constexpr bool has_count = false;
template <typename Number> constexpr bool has_count<Moments<Number>> = true;
template <typename Number> constexpr bool has_count<Spreads<Number>> = true;
template <typename Number> constexpr bool has_count<Centres<Number>> = true;

// Of these, those that have no squares.
template <typename State> constexpr bool is_mean = false;
template <typename Number> constexpr bool is_mean<Centres<Number>> = true;

// States that are faster to compute from several elements, by their maximum first.
template <typename State> constexpr bool has_highest = false;
template <typename Number> constexpr bool has_highest<Powers<Number>> = true;
template <typename Number> constexpr bool has_highest<Shares<Number>> = true;
// How far below the highest an element is: of infinite ones there is no difference.
template <typename Number> TALLOW_INLINE Number below(Number x, Number highest) {
    return x == highest ? Number{0} : x - highest;
}

// Unsigned integers in the order of the numbers. 0.0 and -0.0 are the same.
TALLOW_INLINE uint32_t rank_of(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x + 0.0f);
    return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}
TALLOW_INLINE uint64_t rank_of(double x) {
    const uint64_t bits = bit_cast<uint64_t>(x + 0.0);
    return bits ^ (static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63) | 0x8000000000000000u);
}
template <typename T> TALLOW_INLINE auto rank_of(T x) {
    using Rank = wide_unsigned<T>;
    return static_cast<Rank>(x) ^ (is_unsigned<T> ? Rank{0} : Rank{1} << (sizeof(Rank) * 8 - 1));
}

// The best element so far and its position: a better one, or an equal one further in front, is greater. A rank of 32
// bits and its position are one number, which lanes exchange and compare at once.
TALLOW_INLINE uint64_t with_position(uint32_t rank, uint32_t index) {
    return uint64_t{rank} << 32 | ~index;
}
TALLOW_INLINE uint32_t position_of(uint64_t state) {
    return ~static_cast<uint32_t>(state);
}
TALLOW_INLINE bool is_greater(uint64_t x, uint64_t y) {
    return x > y;
}
struct RankAndPosition {
    uint64_t rank;
    uint32_t index;
};
TALLOW_INLINE RankAndPosition with_position(uint64_t rank, uint32_t index) {
    return {rank, index};
}
TALLOW_INLINE uint32_t position_of(RankAndPosition state) {
    return state.index;
}
TALLOW_INLINE bool is_greater(RankAndPosition x, RankAndPosition y) {
    return x.rank > y.rank || (x.rank == y.rank && x.index < y.index);
}

// A NaN is better than any number.
template <typename T, bool Lowest> struct IndexReduction {
    using Rank = decltype(rank_of(compute_type<T>{}));
    using State = decltype(with_position(Rank{}, 0u));
    using Result = uint32_t;
    using Joining = IndexReduction;
    static constexpr bool is_lowest = Lowest;
    static TALLOW_INLINE State identity() {
        return with_position(Rank{0}, ~0u);
    }
    static TALLOW_INLINE State element(T value, uint32_t index) {
        const compute_type<T> number = to_compute(value);
        const Rank rank = Lowest ? ~rank_of(number) : rank_of(number);
        return with_position(number != number ? ~Rank{0} : rank, index);
    }
    static TALLOW_INLINE State combine(State x, State y) {
        return is_greater(y, x) ? y : x;
    }
    template <typename Arguments> static TALLOW_INLINE Result result(State state, uint64_t, const Arguments&) {
        return position_of(state);
    }
};

} // namespace tallow
