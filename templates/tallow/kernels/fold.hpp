// Reductions of spans. Parts of them are joined in an order that their length alone decides.
#pragma once

#include "math.hpp"
#include "monoid.hpp"
#include "parts.hpp"
#include "span.hpp"

namespace tallow {

// So many states are filled side by side: enough for the vector instructions that are under way at once.
constexpr uint32_t fold_lanes = 32;
// So many elements are joined before the lanes are.
constexpr uint64_t fold_piece = 2048;
// Columns are taken so many at once.
constexpr uint64_t fold_columns = 256;

// States that join as a tree, whose shape only their number decides: sums of many stay accurate.
template <typename Op, typename State> class Tree {
  public:
    TALLOW_INLINE void add(State state) {
        uint32_t level = 0;
        for (uint64_t other = count_++; other & 1; other >>= 1)
            state = Op::combine(states_[level++], state);
        states_[level] = state;
    }
    TALLOW_INLINE State joined() const {
        State state = Op::identity();
        uint32_t level = 0;
        for (uint64_t other = count_; other != 0; other >>= 1, ++level)
            if (other & 1)
                state = Op::combine(states_[level], state);
        return state;
    }

  private:
    State states_[48];
    uint64_t count_ = 0;
};

// The moments of a span, which the nearest cache holds: it is read for the mean, and again for the distances from it.
template <typename Number, typename T> Moments<Number> moments_of(const T* source, uint64_t count) {
    const auto add_up = [=](auto element) {
        Number sums[fold_lanes] = {};
        uint64_t i = 0;
        for (; i + fold_lanes <= count; i += fold_lanes)
            for (uint32_t lane = 0; lane < fold_lanes; ++lane)
                sums[lane] += element(static_cast<Number>(source[i + lane]));
        for (uint32_t lane = 0; i < count; ++i, ++lane)
            sums[lane] += element(static_cast<Number>(source[i]));
        for (uint32_t half = fold_lanes / 2; half > 0; half /= 2)
            for (uint32_t lane = 0; lane < half; ++lane)
                sums[lane] += sums[lane + half];
        return sums[0];
    };
    const Number mean = add_up([](Number x) { return x; }) / static_cast<Number>(count);
    return {static_cast<Number>(count), mean, add_up([=](Number x) { return (x - mean) * (x - mean); })};
}

// One copy for all dtypes that are computed in T.
template <template <typename> typename Op, typename T> struct Joined {
    using State = typename Op<T>::State;

    static __attribute__((noinline)) State of_span(const T* source, uint64_t count, uint32_t index) {
        if constexpr (has_count<State>)
            return moments_of<decltype(State::count)>(source, count);
        State states[fold_lanes];
        for (uint32_t lane = 0; lane < fold_lanes; ++lane)
            states[lane] = Op<T>::identity();
        uint64_t i = 0;
        for (; i + fold_lanes <= count; i += fold_lanes)
            for (uint32_t lane = 0; lane < fold_lanes; ++lane)
                states[lane] = Op<T>::combine(
                    states[lane], Op<T>::element(source[i + lane], index + static_cast<uint32_t>(i) + lane));
        for (uint32_t lane = 0; i < count; ++i, ++lane)
            states[lane] = Op<T>::combine(states[lane], Op<T>::element(source[i], index + static_cast<uint32_t>(i)));
        for (uint32_t half = fold_lanes / 2; half > 0; half /= 2)
            for (uint32_t lane = 0; lane < half; ++lane)
                states[lane] = Op<T>::combine(states[lane], states[lane + half]);
        return states[0];
    }

    static __attribute__((noinline)) void each(State* states, const T* row, uint64_t width, uint32_t index) {
        TALLOW_INDEPENDENT
        for (uint64_t c = 0; c < width; ++c)
            states[c] = Op<T>::combine(states[c], Op<T>::element(row[c], index));
    }
};

template <template <typename> typename Op, typename T> struct Fold {
    using Of = Op<T>;
    using State = typename Of::State;
    // A small float joins as the float that it is.
    using Lanes = Joined<Op, widened<T>>;

    static __attribute__((noinline)) State of_elements(const T* source, uint64_t count, uint64_t index) {
        constexpr uint64_t piece = is_small_float<T> ? span_part : fold_piece;
        Tree<Of, State> tree;
        [[maybe_unused]] float held[is_small_float<T> ? span_part : 1];
        for (uint64_t first = 0; first < count; first += piece) {
            const uint64_t length = count - first < piece ? count - first : piece;
            const auto place = static_cast<uint32_t>(index + first);
            if constexpr (is_small_float<T>) {
                convert_span(length, held, source + first);
                tree.add(Lanes::of_span(held, length, place));
            } else {
                tree.add(Lanes::of_span(source + first, length, place));
            }
        }
        return tree.joined();
    }

    // Rows [first, last) of the source, each dense.
    template <typename Arguments> static void rows(const Arguments& arguments) {
        const auto source = pointer_to<const T>(arguments.source);
        const auto result = pointer_to<typename Of::Result>(arguments.result);
        const uint64_t parts = (arguments.length + fold_length - 1) / fold_length;
        if (parts <= 1) {
            const uint64_t together = fold_length / (arguments.length + 1) + 1;
            do_parts(arguments, (arguments.outputs + together - 1) / together, [=, &arguments](uint64_t part) {
                for (uint64_t row = part * together; row < (part + 1) * together && row < arguments.outputs; ++row)
                    result[row] = Of::result(of_elements(source + row * arguments.length, arguments.length, 0),
                                             arguments.length, arguments);
            });
            return;
        }
        const auto states = pointer_to<State>(arguments.states);
        do_parts(arguments, arguments.outputs * parts, [=, &arguments](uint64_t part) {
            const uint64_t first = part % parts * fold_length;
            const uint64_t left = arguments.length - first;
            states[part] = of_elements(source + part / parts * arguments.length + first,
                                       left < fold_length ? left : fold_length, first);
        });
        for (uint64_t row = 0; row < arguments.outputs; ++row) {
            Tree<Of, State> tree;
            for (uint64_t part = 0; part < parts; ++part)
                tree.add(states[row * parts + part]);
            result[row] = Of::result(tree.joined(), arguments.length, arguments);
        }
    }

    // The middle one of three dense dims, of which `inner` is the innermost: in parts of rows where there are few
    // columns.
    template <typename Arguments> static void columns(const Arguments& arguments) {
        const auto source = pointer_to<const T>(arguments.source);
        const auto result = pointer_to<typename Of::Result>(arguments.result);
        const uint64_t inner = arguments.inner;
        const uint64_t pieces = (inner + fold_columns - 1) / fold_columns;
        const uint64_t height = arguments.split;
        const uint64_t splits = (arguments.length + height - 1) / height;
        const auto states = pointer_to<State>(arguments.states);
        do_parts(arguments, arguments.outputs / inner * pieces * splits, [=, &arguments](uint64_t part) {
            const uint64_t split = part % splits;
            const uint64_t column = part / splits % pieces * fold_columns;
            const uint64_t outer = part / splits / pieces;
            const uint64_t width = inner - column < fold_columns ? inner - column : fold_columns;
            const uint64_t begin = split * height;
            const uint64_t end = begin + height < arguments.length ? begin + height : arguments.length;
            State held[fold_columns];
            for (uint64_t c = 0; c < width; ++c)
                held[c] = Of::identity();
            float converted[is_small_float<T> ? fold_columns : 1];
            for (uint64_t i = begin; i < end; ++i) {
                const T* const row = source + (outer * arguments.length + i) * inner + column;
                if constexpr (is_small_float<T>) {
                    convert_span(width, converted, row);
                    Lanes::each(held, converted, width, static_cast<uint32_t>(i));
                } else {
                    Lanes::each(held, row, width, static_cast<uint32_t>(i));
                }
            }
            const uint64_t place = outer * inner + column;
            if (splits == 1)
                for (uint64_t c = 0; c < width; ++c)
                    result[place + c] = Of::result(held[c], arguments.length, arguments);
            else
                for (uint64_t c = 0; c < width; ++c)
                    states[split * arguments.outputs + place + c] = held[c];
        });
        if (splits == 1)
            return;
        for (uint64_t split = 1; split < splits; ++split) {
            const State* const other = states + split * arguments.outputs;
            TALLOW_INDEPENDENT
            for (uint64_t i = 0; i < arguments.outputs; ++i)
                states[i] = Of::combine(states[i], other[i]);
        }
        for (uint64_t i = 0; i < arguments.outputs; ++i)
            result[i] = Of::result(states[i], arguments.length, arguments);
    }
};

template <template <typename> typename Op, typename T, typename Arguments>
TALLOW_INLINE void fold_rows(const Arguments& arguments) {
    Fold<Op, T>::rows(arguments);
}
template <template <typename> typename Op, typename T, typename Arguments>
TALLOW_INLINE void fold_columns_of(const Arguments& arguments) {
    Fold<Op, T>::columns(arguments);
}

} // namespace tallow
