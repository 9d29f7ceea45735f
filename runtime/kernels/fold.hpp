// Reductions of spans. Parts of them are joined in an order that their length alone decides.
#pragma once

#include "math.hpp"
#include "monoid.hpp"
#include "parts.hpp"
#include "runs.hpp"
#include "span.hpp"
#include "vector.hpp"

// Independent iterations that take little time of all: compilers make one vector of them at a time, which is half the
// code.
#if defined(__clang__)
#define TALLOW_SELDOM _Pragma("clang loop vectorize(assume_safety) interleave_count(1)")
#else
#define TALLOW_SELDOM TALLOW_INDEPENDENT
#endif

namespace tallow {

// States of so many bytes are filled side by side: enough for the vector instructions that are under way at once. Those
// of three numbers are fewer, since lanes join in pairs.
constexpr uint64_t lanes_bytes = 256;
template <typename State>
constexpr uint32_t fold_lanes = lanes_bytes / (sizeof(State) % 3 == 0 ? sizeof(State) / 3 * 4 : sizeof(State));
constexpr uint32_t few_lanes = 4;
// Up to so many elements a span takes longer to be joined from many lanes than to be read.
constexpr uint64_t short_span = 256;
// Elements, or rows of columns, that are joined before the partial results are: this keeps sums accurate.
constexpr uint64_t fold_piece = 2048;
constexpr uint64_t fold_height = 64;
// Rows of columns that are read at once, and spans that are finished at once.
constexpr uint64_t rows_at_once = 4;
constexpr uint64_t spans_at_once = 64;
constexpr uint64_t most_state_bytes = 40;
constexpr uint64_t most_element_bytes = 16;
// Bytes of a row's columns that are gathered at once.
constexpr uint64_t gathered_row_bytes = 1024;
// So far ahead elements are asked for: on an Intel Xeon a thread reads 25 GB/s then in place of 10, on an AMD EPYC 23
// in place of 27. Nearer ones help less.
constexpr uint64_t prefetch_bytes = 4096;

// Where rows are so far apart, each is in another page.
constexpr uint64_t page_bytes = 4096;

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

template <typename Op, typename State> TALLOW_INLINE void begin_states(State* states, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i)
        states[i] = Op::identity();
}
template <typename Op, uint32_t Lanes, typename State> TALLOW_INLINE State join_lanes(State* states) {
    if constexpr (Lanes == 1) {
        return states[0];
    } else {
        for (uint32_t lane = 0; lane < Lanes / 2; ++lane)
            states[lane] = Op::combine(states[lane], states[lane + Lanes / 2]);
        return join_lanes<Op, Lanes / 2>(states);
    }
}

// What lanes of the elements of a span join to, of which a function makes numbers.
template <typename Joining, typename Number, typename T, typename Element>
TALLOW_INLINE Number join_span(const T* source, uint64_t count, Number first, Element element) {
    constexpr uint32_t lanes = fold_lanes<Number>;
    Number held[lanes];
    for (uint32_t lane = 0; lane < lanes; ++lane)
        held[lane] = first;
    uint64_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (uint32_t lane = 0; lane < lanes; ++lane)
            held[lane] = Joining::combine(held[lane], element(static_cast<Number>(to_compute(source[i + lane]))));
    for (uint32_t lane = 0; i < count; ++i, ++lane)
        held[lane] = Joining::combine(held[lane], element(static_cast<Number>(to_compute(source[i]))));
    return join_lanes<Joining, lanes>(held);
}
template <typename Number> struct AddedUp {
    static TALLOW_INLINE Number combine(Number x, Number y) {
        return x + y;
    }
};
template <typename Number> struct HighestNumber {
    static TALLOW_INLINE Number combine(Number x, Number y) {
        return x < y ? y : x;
    }
};

// Sums of e**(element - highest) of a span, which is read for the highest, and again. A NaN is in the sum.
template <typename State, typename T> State powers_of_span(const T* source, uint64_t count) {
    using Number = decltype(State::total);
    const auto itself = [](Number x) { return x; };
    const Number highest = join_span<HighestNumber<Number>>(source, count, -infinity(Number{}), itself);
    const auto power = [=](Number x) { return exp(below(x, highest)); };
    return {highest, join_span<AddedUp<Number>>(source, count, Number{0}, power)};
}

// Sums of scaled squares of elements, of which a function adds up what another one makes of each.
template <typename Number, typename Add>
TALLOW_INLINE ScaledSquares<Number> scaled_by(Number plain, Number mean, Add add) {
    const auto shrunk = [=](Number x) { return square_of(shrink(x) - shrink(mean)); };
    const auto grown = [=](Number x) { return square_of(grow(x - mean)); };
    if (grow(plain) < 1)
        return {0, add(grown)};
    return {add(shrunk), plain};
}

template <typename Number, typename T>
__attribute__((noinline)) ScaledSquares<Number> scaled_of_span(const T* source, uint64_t count, Number plain,
                                                               Number mean) {
    return scaled_by(plain, mean, [=](auto of) { return join_span<AddedUp<Number>>(source, count, Number{0}, of); });
}

// The mean of a span whose distances from the first element add up to too much, if these are numbers.
template <typename Number, typename T>
__attribute__((noinline)) Number mean_of_far(const T* source, uint64_t count, Number first) {
    const auto distance = [=](Number x) { return shrink(x) - shrink(first); };
    const Number sum = join_span<AddedUp<Number>>(source, count, Number{0}, distance);
    return grow(shrink(first) + sum / static_cast<Number>(count));
}

// The moments of a span, which the nearest cache holds: it is read for the mean, and again for the distances from it,
// seldom once more.
template <typename State, typename T> State moments_of_span(const T* source, uint64_t count) {
    using Number = decltype(State::count);
    using Sum = AddedUp<Number>;
    const auto all = static_cast<Number>(count);
    // The mean of equal elements may be rounded, that of their distances from the first one is 0.
    const auto first = static_cast<Number>(to_compute(source[0]));
    Number mean = first + join_span<Sum>(source, count, Number{0}, [=](Number x) { return x - first; }) / all;
    if constexpr (has_plain<State> || is_mean<State>)
        if (mean - mean != 0)
            mean = mean_of_far(source, count, first);
    if constexpr (is_mean<State>) {
        return {all, mean};
    } else {
        const auto square = [=](Number x) { return square_of(x - mean); };
        const Number squares = join_span<Sum>(source, count, Number{0}, square);
        if constexpr (has_plain<State>) {
            const auto scaled =
                is_ordinary(squares) ? scaled_from(squares) : scaled_of_span(source, count, squares, mean);
            return {all, mean, scaled.shrunk, squares, scaled.grown};
        } else {
            return {all, mean, squares};
        }
    }
}

// The sums of squares of a span, which the nearest cache holds. It is seldom read again.
template <typename State, typename T> State lengths_of_span(const T* source, uint64_t count) {
    using Number = decltype(State{}.result());
    const auto square = [](Number x) { return square_of(x); };
    const Number squares = join_span<AddedUp<Number>>(source, count, Number{0}, square);
    if constexpr (has_plain<State>) {
        const auto scaled =
            is_ordinary(squares) ? scaled_from(squares) : scaled_of_span(source, count, squares, Number{0});
        return {scaled.shrunk, squares, scaled.grown};
    } else {
        return {squares};
    }
}

// Reductions to an element, and to the place of one.
template <typename Of> constexpr bool finds_element = false;
template <typename Of, typename T, bool Lowest> constexpr bool finds_element<ExtremeReduction<Of, T, Lowest>> = true;
template <typename Of> constexpr bool finds_place = false;
template <typename T, bool Lowest> constexpr bool finds_place<IndexReduction<T, Lowest>> = true;

// The lowest or highest of floats, if no NaN is among them: then one instruction compares a vector. Whether none is.
template <typename Take, typename T> TALLOW_INLINE bool find_extreme(T& best, const T* source, uint64_t count) {
    using Elements = Vector<T>;
    using Masks = decltype(Elements{} < Elements{});
    constexpr uint64_t length = vector_length<T>;
    constexpr uint64_t vectors = lanes_bytes / line_bytes;
    if (count < length) {
        bool is_odd = false;
        for (uint64_t i = 0; i < count; ++i) {
            Take{}(best, source[i]);
            is_odd |= source[i] != source[i];
        }
        return !is_odd;
    }
    Elements near[vectors];
    Masks odd[vectors] = {};
    const auto join = [&](uint64_t v, const T* from) {
        Elements x;
        __builtin_memcpy(&x, from, sizeof x);
        Take{}(near[v], x);
        odd[v] |= x != x;
    };
    for (uint64_t v = 0; v < vectors; ++v)
        __builtin_memcpy(&near[v], source, sizeof near[v]);
    uint64_t i = 0;
    for (; i + vectors * length <= count; i += vectors * length) {
#pragma GCC unroll 4
        for (uint64_t v = 0; v < vectors; ++v) {
            // To the second cache: comparing takes less time than filling the first one.
            __builtin_prefetch(source + i + v * length + prefetch_bytes / sizeof(T), 0, 2);
            join(v, source + i + v * length);
        }
    }
    for (; i + length <= count; i += length)
        join(0, source + i);
    // The last ones, some of them once more.
    join(1, source + count - length);
    for (uint64_t v = 1; v < vectors; ++v) {
        Take{}(near[0], near[v]);
        odd[0] |= odd[v];
    }
    best = joined_lanes<T>(near[0], Take{});
    uint64_t words[line_bytes / sizeof(uint64_t)];
    __builtin_memcpy(words, odd, sizeof words);
    uint64_t is_odd = 0;
    for (const uint64_t word : words)
        is_odd |= word;
    return is_odd == 0;
}

// What is best of some elements, no more than a piece, of which the first one has this index: vectors of elements and
// of how many rows of vectors came before are narrower than places. Whether there is no NaN. Compilers make branches of
// the same in loops.
template <bool Lowest, typename T, typename State>
TALLOW_INLINE bool find_best(State& best, const T* source, uint64_t count, uint64_t index) {
    using Op = IndexReduction<T, Lowest>;
    using Elements = Vector<T>;
    using Masks = decltype(Elements{} < Elements{});
    constexpr uint32_t lanes = fold_lanes<T>;
    constexpr uint32_t vectors = lanes_bytes / line_bytes;
    constexpr uint32_t length = lanes / vectors;
    Elements near[vectors];
    Masks rows[vectors] = {};
    Masks are_odd = {};
    __builtin_memcpy(near, source, sizeof near);
    for (uint32_t v = 0; v < vectors; ++v)
        are_odd |= near[v] != near[v];
    Masks row = {};
    for (uint64_t first = lanes; first < count; first += lanes) {
        row += 1;
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vectors; ++v) {
            __builtin_prefetch(source + first + v * length + prefetch_bytes / sizeof(T));
            Elements x;
            __builtin_memcpy(&x, source + first + v * length, sizeof x);
            const Masks is_better = Lowest ? x < near[v] : x > near[v];
            near[v] = is_better ? x : near[v];
            rows[v] = is_better ? row : rows[v];
            are_odd |= x != x;
        }
    }
    using Row = typename Word<sizeof(T)>::type;
    T elements[lanes];
    Row counts[lanes], odd[length];
    __builtin_memcpy(elements, near, sizeof elements);
    __builtin_memcpy(counts, rows, sizeof counts);
    __builtin_memcpy(odd, &are_odd, sizeof odd);
    State states[lanes];
    for (uint32_t lane = 0; lane < lanes; ++lane)
        states[lane] = Op::element(elements[lane], static_cast<uint32_t>(index) + counts[lane] * lanes + lane);
    Row is_odd = 0;
    for (uint32_t lane = 0; lane < length; ++lane)
        is_odd |= odd[lane];
    best = join_lanes<Op, lanes>(states);
    return !is_odd;
}

// How states are joined depends on their type alone: reductions share it where an element of one of these types begins
// the same state.
template <template <typename> typename Op, typename T, typename First, typename... Rest> constexpr auto stand_in() {
    if constexpr (is_same<typename Op<First>::State, typename Op<T>::State>)
        return First{};
    else if constexpr (sizeof...(Rest) == 0)
        return T{};
    else
        return stand_in<Op, T, Rest...>();
}
template <typename Of> struct States {
    using State = typename Of::State;

    static __attribute__((noinline)) void join(State* states, const State* others, uint64_t count) {
        TALLOW_INDEPENDENT
        for (uint64_t i = 0; i < count; ++i)
            states[i] = Of::combine(states[i], others[i]);
    }
    static __attribute__((noinline)) void begin(State* states, uint64_t count) {
        TALLOW_SELDOM
        for (uint64_t i = 0; i < count; ++i)
            states[i] = Of::identity();
    }
    static __attribute__((noinline)) State joined(const State* states, uint64_t count) {
        Tree<Of, State> tree;
        for (uint64_t i = 0; i < count; ++i)
            tree.add(states[i]);
        return tree.joined();
    }
    static __attribute__((noinline)) State join_lanes(State* states) {
        return tallow::join_lanes<Of, fold_lanes<State>>(states);
    }
};

// What reductions of elements of T share where they join them alike.
template <typename Of, typename T, typename Shared> struct Joined {
    using State = typename Of::State;

    static TALLOW_INLINE State joined(State state, const T& value, uint64_t index) {
        return Of::combine(state, Of::element(value, static_cast<uint32_t>(index)));
    }

    // The states of lanes of elements, which are no more than a piece.
    static __attribute__((noinline)) void fill_lanes(State* states, const T* source, uint64_t count, uint64_t index) {
        constexpr uint32_t lanes = fold_lanes<State>;
        State near[lanes];
        begin_states<Of>(near, lanes);
        uint64_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            // Across pages too, where processors look ahead no further by themselves.
            for (uint32_t lane = 0; lane < lanes; lane += line_bytes / sizeof(T))
                __builtin_prefetch(source + i + lane + prefetch_bytes / sizeof(T));
            for (uint32_t lane = 0; lane < lanes; ++lane)
                near[lane] = joined(near[lane], source[i + lane], index + i + lane);
        }
        for (uint32_t lane = 0; lane < lanes; ++lane)
            states[lane] = near[lane];
        if (i == count)
            return;
        if constexpr (sizeof(State) <= sizeof(uint64_t)) {
            if (i != 0) {
                join_last<lanes>(states, source, i, count, index);
                return;
            }
        }
        // A whole loop for the first lanes is a short one for compilers.
        T last[lanes] = {};
        __builtin_memcpy(last, source + i, (count - i) * sizeof(T));
        for (uint32_t lane = 0; lane < lanes; ++lane)
            near[lane] = joined(near[lane], last[lane], index + i + lane);
        __builtin_memcpy(states, near, (count - i) * sizeof(State));
    }

    static TALLOW_INLINE uint64_t piece(uint64_t count, uint64_t first) {
        return count - first < fold_piece ? count - first : fold_piece;
    }
    template <typename Known> struct Added {
        static TALLOW_INLINE Known identity() {
            return Known{};
        }
        static TALLOW_INLINE Known combine(Known x, const Known& y) {
            x.add(y);
            return x;
        }
    };
    // The joined states of pieces.
    template <typename Piece> static TALLOW_INLINE auto of_pieces(const T* source, uint64_t count, Piece of) {
        using Known = decltype(of(source, count));
        Tree<Added<Known>, Known> tree;
        for (uint64_t first = 0; first < count; first += fold_piece)
            tree.add(of(source + first, piece(count, first)));
        return tree.joined();
    }
    template <typename Known> static TALLOW_INLINE Known of_squares(const T* source, uint64_t count) {
        return of_pieces(source, count, [](const T* from, uint64_t length) {
            if constexpr (has_count<Known>)
                return moments_of_span<Known>(from, length);
            else
                return lengths_of_span<Known>(from, length);
        });
    }
    static __attribute__((noinline)) State of_scaled_squares(const T* source, uint64_t count) {
        return of_squares<State>(source, count);
    }
    static State of_elements(const T* source, uint64_t count, uint64_t index) {
        if constexpr (has_plain<State>) {
            const auto known = of_squares<typename Unscaled<State>::type>(source, count);
            return needs_elements(known) ? of_scaled_squares(source, count) : state_from(known);
        } else if constexpr (has_count<State>) {
            return of_squares<State>(source, count);
        } else if constexpr (has_highest<State>) {
            return of_pieces(source, count, powers_of_span<State, T>);
        } else if constexpr (finds_element<Of> && is_same<T, State> && !is_integer<T>) {
            State best = Of::identity();
            return find_extreme<Takes<Of::is_lowest>>(best, source, count) ? best : of_odd(source, count, index);
        } else if constexpr (finds_place<Of>) {
            State best = Of::identity();
            for (uint64_t first = 0; first < count; first += fold_piece)
                best = Of::combine(best, place_in(source + first, piece(count, first), index + first));
            return best;
        } else {
            return of_lanes(source, count, index);
        }
    }

    // Elements with a NaN, which short rows without one should not carry along.
    static __attribute__((noinline)) State of_odd(const T* source, uint64_t count, uint64_t index) {
        return of_lanes(source, count, index);
    }
    // Of a short span: one vector of states, which is joined in no time.
    template <uint32_t Lanes>
    static __attribute__((noinline)) State of_short(const T* source, uint64_t count, uint64_t index) {
        State states[Lanes];
        begin_states<Of>(states, Lanes);
        uint64_t i = 0;
        for (; i + Lanes <= count; i += Lanes)
            for (uint32_t lane = 0; lane < Lanes; ++lane)
                states[lane] = joined(states[lane], source[i + lane], index + i + lane);
        if (i != count && count >= Lanes) {
            join_last<Lanes>(states, source, i, count, index);
        } else if (i != count) {
            T last[Lanes] = {};
            copy_few<Lanes / 2>(last, source, count);
#if defined(__clang__)
            for (uint32_t lane = 0; lane < Lanes; ++lane) {
                const State all = joined(states[lane], last[lane], index + lane);
                states[lane] = lane < count ? all : states[lane];
            }
#else
            // g++ 12 and 13 end with an internal error where a maximum of i16 is taken under a mask.
            for (uint32_t lane = 0; lane < count; ++lane)
                states[lane] = joined(states[lane], last[lane], index + lane);
#endif
        }
        return join_lanes<Of, Lanes>(states);
    }
    // Copies of lengths that compilers know, in place of a call.
    template <uint32_t Most> static TALLOW_INLINE void copy_few(T* target, const T* source, uint64_t count) {
        const bool is_copied = count & Most;
        if (is_copied)
            __builtin_memcpy(target, source, Most * sizeof(T));
        if constexpr (Most > 1)
            copy_few<Most / 2>(target + (is_copied ? Most : 0), source + (is_copied ? Most : 0), count);
    }
    // The elements from `begin` on, fewer than lanes, into the last lanes: those in front of them are read again.
    template <uint32_t Lanes>
    static TALLOW_INLINE void join_last(State* states, const T* source, uint64_t begin, uint64_t count,
                                        uint64_t index) {
        const uint64_t first = count - Lanes;
        for (uint32_t lane = 0; lane < Lanes; ++lane) {
            const State all = joined(states[lane], source[first + lane], index + first + lane);
            states[lane] = first + lane < begin ? states[lane] : all;
        }
    }
    static State of_lanes(const T* source, uint64_t count, uint64_t index) {
        constexpr uint32_t lanes = fold_lanes<State>;
        constexpr uint32_t short_lanes = lanes / (lanes_bytes / line_bytes);
        if constexpr (lanes > few_lanes)
            if (count < (short_lanes < few_lanes ? few_lanes : short_lanes))
                return of_short<few_lanes>(source, count, index);
        if constexpr (short_lanes > few_lanes)
            if (count <= short_span)
                return of_short<short_lanes>(source, count, index);
        State states[lanes];
        fill_lanes(states, source, piece(count, 0), index);
        for (uint64_t first = fold_piece; first < count; first += fold_piece) {
            State others[lanes];
            fill_lanes(others, source + first, piece(count, first), index + first);
            Shared::join(states, others, lanes);
        }
        return Shared::join_lanes(states);
    }

    static __attribute__((noinline)) State place_in(const T* source, uint64_t count, uint64_t index) {
        using Compared = compute_type<T>;
        constexpr uint32_t lanes = fold_lanes<State>;
        State best = Of::identity();
        uint64_t whole = count - count % fold_lanes<Compared>;
        if (whole != 0) {
            bool is_found;
            if constexpr (is_same<T, Compared>) {
                is_found = find_best<Of::is_lowest>(best, source, whole, index);
            } else {
                Compared converted[fold_piece];
                if constexpr (is_small_float<T>)
                    convert_span(whole, converted, source);
                else
                    map_span(whole, [](T x) { return to_compute(x); }, converted, source);
                is_found = find_best<Of::is_lowest>(best, converted, whole, index);
            }
            if (!is_found) {
                best = Of::identity();
                whole = 0;
            }
        }
        if (whole == count)
            return best;
        State states[lanes];
        fill_lanes(states, source + whole, count - whole, index + whole);
        return Of::combine(best, Shared::join_lanes(states));
    }

    // As powers_of_span, of columns of rows that a cache holds.
    static void powers_of_columns(State* states, uint64_t width, const T* source, uint64_t stride, uint64_t rows) {
        using Number = decltype(State{}.total);
        Number highest[fold_columns], totals[fold_columns];
        for (uint64_t c = 0; c < width; ++c) {
            highest[c] = -infinity(Number{});
            totals[c] = Number{0};
        }
        for (uint64_t row = 0; row < rows; ++row) {
            TALLOW_INDEPENDENT
            for (uint64_t c = 0; c < width; ++c) {
                const Number x = to_compute(source[row * stride + c]);
                highest[c] = highest[c] < x ? x : highest[c];
            }
        }
        for (uint64_t row = 0; row < rows; ++row) {
            TALLOW_INDEPENDENT
            for (uint64_t c = 0; c < width; ++c)
                totals[c] += exp(below<Number>(to_compute(source[row * stride + c]), highest[c]));
        }
        for (uint64_t c = 0; c < width; ++c)
            states[c] = {highest[c], totals[c]};
    }

    // Joins rows begin to end of columns, of which the first is given, with what is held of these.
    template <typename Held, typename Join>
    static TALLOW_INLINE void join_rows(Held* held, uint64_t width, const T* source, uint64_t stride, uint64_t begin,
                                        uint64_t end, Join join) {
        uint64_t row = begin;
        for (; row + rows_at_once <= end; row += rows_at_once) {
            const T* const rows = source + (row - begin) * stride;
            const auto join_some = [=](uint64_t first, uint64_t count) {
                TALLOW_INDEPENDENT
                for (uint64_t c = first; c < first + count; ++c) {
                    Held state = held[c];
#pragma GCC unroll 4
                    for (uint64_t i = 0; i < rows_at_once; ++i)
                        state = join(state, rows[i * stride + c], row + i, c);
                    held[c] = state;
                }
            };
            // Processors do not look at the next pages by themselves.
            constexpr uint64_t length = line_bytes / sizeof(T);
            uint64_t c = 0;
            for (; stride * sizeof(T) >= page_bytes && c + length <= width; c += length) {
                for (uint64_t i = 0; i < rows_at_once; ++i)
                    __builtin_prefetch(rows + (rows_at_once + i) * stride + c);
                join_some(c, length);
            }
            join_some(c, width - c);
        }
        for (; row < end; ++row) {
            TALLOW_INDEPENDENT
            for (uint64_t c = 0; c < width; ++c)
                held[c] = join(held[c], source[(row - begin) * stride + c], row, c);
        }
    }

    // Sums of squares of columns, and the means from which these are distances, if there are any.
    template <typename Number> struct Squares {
        static constexpr bool is_centred = has_count<State>;
        static constexpr bool is_scaled = has_plain<State>;
        static constexpr bool has_squares = !is_mean<State>;
        Number count;
        Number means[is_centred ? fold_columns : 1];
        Number plain[has_squares ? fold_columns : 1];
        Number shrunk[is_scaled ? fold_columns : 1];
        Number grown[is_scaled ? fold_columns : 1];

        // Those of rows that a cache holds.
        void find(uint64_t width, const T* source, uint64_t stride, uint64_t rows) {
            count = static_cast<Number>(rows);
            if constexpr (is_centred)
                find_means(width, source, stride, rows);
            if constexpr (has_squares)
                find_squares(width, source, stride, rows);
        }
        void find_squares(uint64_t width, const T* source, uint64_t stride, uint64_t rows) {
            // Compilers know of local arrays that no elements are among them.
            Number sums[fold_columns] = {}, centres[is_centred ? fold_columns : 1];
            for (uint64_t c = 0; is_centred && c < width; ++c)
                centres[c] = means[c];
            join_rows(sums, width, source, stride, 0, rows, [&](Number sum, const T& value, uint64_t, uint64_t c) {
                const auto x = static_cast<Number>(to_compute(value));
                return sum + square_of(is_centred ? x - centres[c] : x);
            });
            for (uint64_t c = 0; c < width; ++c)
                plain[c] = sums[c];
            if constexpr (is_scaled)
                find_scaled(width, source, stride, rows);
        }
        void find_means(uint64_t width, const T* source, uint64_t stride, uint64_t rows) {
            Number sums[fold_columns] = {}, firsts[fold_columns];
            for (uint64_t c = 0; c < width; ++c)
                firsts[c] = to_compute(source[c]);
            join_rows(sums, width, source, stride, 0, rows, [&](Number sum, const T& value, uint64_t, uint64_t c) {
                return sum + (static_cast<Number>(to_compute(value)) - firsts[c]);
            });
            uint64_t infinite = 0;
            TALLOW_INDEPENDENT
            for (uint64_t c = 0; c < width; ++c) {
                means[c] = firsts[c] + sums[c] / count;
                infinite += means[c] - means[c] == 0 ? 0 : 1;
            }
            for (uint64_t c = 0; infinite != 0 && c < width; ++c) {
                if (means[c] - means[c] == 0)
                    continue;
                // The sum of the distances from the first element may have overflowed.
                const Number first = shrink(firsts[c]);
                const auto distance = [=](Number x) { return shrink(x) - first; };
                means[c] = grow(first + add_column(source + c, stride, rows, distance) / count);
            }
        }
        void find_scaled(uint64_t width, const T* source, uint64_t stride, uint64_t rows) {
            uint64_t odd = 0;
            TALLOW_INDEPENDENT
            for (uint64_t c = 0; c < width; ++c) {
                const auto scaled = scaled_from(plain[c]);
                shrunk[c] = scaled.shrunk;
                grown[c] = scaled.grown;
                odd += is_ordinary(plain[c]) ? 0 : 1;
            }
            for (uint64_t c = 0; odd != 0 && c < width; ++c) {
                if (is_ordinary(plain[c]))
                    continue;
                const auto scaled = scaled_by(plain[c], is_centred ? means[c] : Number{0},
                                              [=](auto of) { return add_column(source + c, stride, rows, of); });
                shrunk[c] = scaled.shrunk;
                grown[c] = scaled.grown;
            }
        }
        template <typename Function>
        static Number add_column(const T* source, uint64_t stride, uint64_t rows, Function function) {
            Number sum = 0;
            for (uint64_t row = 0; row < rows; ++row)
                sum += function(static_cast<Number>(to_compute(source[row * stride])));
            return sum;
        }

        void add(const Squares& y, uint64_t width) {
            const Number share = y.count / (count + y.count);
            const Number weight = share * count;
            count += y.count;
            TALLOW_INDEPENDENT
            for (uint64_t c = 0; c < width; ++c) {
                // Half of a distance does not overflow.
                Number half = 0;
                if constexpr (is_centred) {
                    half = y.means[c] / 2 - means[c] / 2;
                    means[c] += 2 * share * half;
                }
                if constexpr (has_squares)
                    plain[c] += y.plain[c] + square_of(2 * half) * weight;
                if constexpr (is_scaled) {
                    shrunk[c] += y.shrunk[c] + square_of(2 * shrink(abs(half) + negligible<Number>)) * weight;
                    grown[c] += y.grown[c] + square_of(grow(2 * half)) * weight;
                }
            }
        }
        State state(uint64_t c) const {
            if constexpr (is_centred && is_scaled)
                return {count, means[c], shrunk[c], plain[c], grown[c]};
            else if constexpr (is_centred && has_squares)
                return {count, means[c], plain[c]};
            else if constexpr (is_centred)
                return {count, means[c]};
            else
                return {shrunk[c], plain[c], grown[c]};
        }
    };

    // The states of columns of rows, which are `stride` apart; of the first row the index is known.
    static __attribute__((noinline)) void of_columns(State* states, uint64_t width, const T* source, uint64_t stride,
                                                     uint64_t begin, uint64_t end) {
        if constexpr (has_count<State> || has_plain<State>) {
            using Known = Squares<decltype(State{}.result())>;
            Known all, near;
            for (uint64_t row = begin; row < end; row += fold_height) {
                Known& known = row == begin ? all : near;
                known.find(width, source + (row - begin) * stride, stride,
                           end - row < fold_height ? end - row : fold_height);
                if (row != begin)
                    all.add(near, width);
            }
            for (uint64_t c = 0; c < width; ++c)
                states[c] = all.state(c);
        } else {
            Shared::begin(states, width);
            State near[fold_columns];
            for (uint64_t row = begin; row < end; row += fold_height) {
                const uint64_t last = end - row < fold_height ? end : row + fold_height;
                const T* const rows = source + (row - begin) * stride;
                if constexpr (has_highest<State>) {
                    powers_of_columns(near, width, rows, stride, last - row);
                } else {
                    const auto join = [](State state, const T& value, uint64_t index, uint64_t) {
                        return joined(state, value, index);
                    };
                    Shared::begin(near, width);
                    join_rows(near, width, rows, stride, row, last, join);
                }
                Shared::join(states, near, width);
            }
        }
    }
};

// Floats whose numbers bf16 has all are joined as such: that code is compiled once.
template <typename T, bool IsWithin = is_within_bf16<T>> struct Joinable {
    using type = T;
};
template <typename T> struct Joinable<T, true> {
    using type = bf16;
};

// What a reduction does with its elements, states and results, for what calls it without their types.
struct FoldSteps {
    uint64_t source_bytes;
    uint64_t state_bytes;
    uint64_t result_bytes;
    // The states of spans of elements side by side, which are `stride` bytes apart; the first element has this index.
    void (*of_spans)(void* states, const void* source, uint64_t spans, uint64_t length, uint64_t stride,
                     uint64_t index);
    // The states of columns of the rows [begin, end), which are `stride` elements apart; `source` is the first of them.
    void (*of_columns)(void* states, const void* source, uint64_t width, uint64_t stride, uint64_t begin, uint64_t end);
    void (*join)(void* states, const void* others, uint64_t count);
    // The state of all of these.
    void (*join_all)(void* state, const void* states, uint64_t count);
    void (*finish)(void* results, const void* states, uint64_t count, uint64_t length, const uint64_t* parameters);
};

template <template <typename> typename Op, typename T> struct Fold {
    using Of = Op<T>;
    using State = typename Of::State;
    using Result = typename Of::Result;
    using Held = typename Joinable<T>::type;
    using StandIn = decltype(stand_in<Op, T, uint8_t, uint64_t, bf16, double, complex128>());
    using Shared = States<typename Op<StandIn>::Joining>;
    using Joins = Joined<typename Op<Held>::Joining, Held, Shared>;
    static constexpr bool is_converted = !is_same<T, Held>;

    static __attribute__((noinline)) void hold(Held* held, const T* source, uint64_t count) {
        map_span(count, [](T x) { return convert<Held>(x); }, held, source);
    }
    static void of_spans(void* states, const void* source, uint64_t spans, uint64_t length, uint64_t stride,
                         uint64_t index) {
        for (uint64_t i = 0; i < spans; ++i) {
            const auto span = reinterpret_cast<const T*>(static_cast<const uint8_t*>(source) + i * stride);
            State& state = static_cast<State*>(states)[i];
            if constexpr (is_converted) {
                Held held[fold_length];
                hold(held, span, length);
                state = Joins::of_elements(held, length, index);
            } else {
                state = Joins::of_elements(span, length, index);
            }
        }
    }
    static void of_columns(void* states, const void* source, uint64_t width, uint64_t stride, uint64_t begin,
                           uint64_t end) {
        const auto columns = static_cast<State*>(states);
        const T* const first = static_cast<const T*>(source);
        if constexpr (is_converted) {
            Held held[fold_height * fold_columns];
            State near[fold_columns];
            for (uint64_t row = begin; row < end; row += fold_height) {
                const uint64_t last = end - row < fold_height ? end : row + fold_height;
                for (uint64_t i = row; i < last; ++i)
                    hold(held + (i - row) * width, first + (i - begin) * stride, width);
                Joins::of_columns(row == begin ? columns : near, width, held, width, row, last);
                if (row != begin)
                    Shared::join(columns, near, width);
            }
        } else {
            Joins::of_columns(columns, width, first, stride, begin, end);
        }
    }
    static void join(void* states, const void* others, uint64_t count) {
        Shared::join(static_cast<State*>(states), static_cast<const State*>(others), count);
    }
    static void join_all(void* state, const void* states, uint64_t count) {
        *static_cast<State*>(state) = Shared::joined(static_cast<const State*>(states), count);
    }
    static void finish(void* results, const void* states, uint64_t count, uint64_t length, const uint64_t* parameters) {
        struct {
            const uint64_t* parameters;
        } const arguments = {parameters};
        TALLOW_SELDOM
        for (uint64_t i = 0; i < count; ++i)
            static_cast<Result*>(results)[i] = Of::result(static_cast<const State*>(states)[i], length, arguments);
    }
    static_assert(sizeof(State) <= most_state_bytes, "states have too little room");
    static_assert(sizeof(T) <= most_element_bytes, "gathered elements have too little room");
    static constexpr FoldSteps steps = {sizeof(T),  sizeof(State), sizeof(Result), of_spans,
                                        of_columns, join,          join_all,       finish};
};

// How many bytes a row, or a group of columns, is from the first one.
template <typename Arguments> TALLOW_INLINE int64_t outer_offset(const Arguments& arguments, uint64_t number) {
    return static_cast<int64_t>(number / arguments.outer_run) * arguments.outer_run_stride +
           static_cast<int64_t>(number % arguments.outer_run) * arguments.outer_stride;
}

// Rows, of which each is dense or gathered a piece at a time.
template <typename Arguments>
__attribute__((noinline)) void fold_rows_by(const FoldSteps& steps, const Arguments& arguments) {
    const uint64_t length = arguments.length;
    const auto source = pointer_to<const uint8_t>(arguments.source);
    const auto result = pointer_to<char>(arguments.result);
    const auto finish = [=, &steps, &arguments](uint64_t row, const void* states, uint64_t count) {
        steps.finish(result + row * steps.result_bytes, states, count, length, arguments.parameters);
    };
    // The states of parts of rows, of which those that are gathered have at most `fold_length` elements together.
    const auto find_states = [=, &steps, &arguments](void* states, uint64_t row, uint64_t rows, uint64_t first,
                                                     uint64_t count) {
        const Runs runs = {arguments.run, static_cast<uint64_t>(arguments.run_stride),
                           static_cast<uint64_t>(arguments.step)};
        const uint64_t bytes = steps.source_bytes;
        if (runs.elements == 0) {
            for (uint64_t done = 0, together = 0; done < rows; done += together) {
                const uint64_t left = arguments.outer_run - (row + done) % arguments.outer_run;
                together = left < rows - done ? left : rows - done;
                steps.of_spans(static_cast<char*>(states) + done * steps.state_bytes,
                               source + outer_offset(arguments, row + done) + first * bytes, together, count,
                               arguments.outer_stride, first);
            }
            return;
        }
        alignas(64) uint8_t gathered[fold_length * most_element_bytes];
        for (uint64_t i = 0; i < rows; ++i)
            gather(gathered + i * count * bytes, source + outer_offset(arguments, row + i), runs, bytes, first, count);
        steps.of_spans(states, gathered, rows, count, count * bytes, first);
    };
    const uint64_t parts = (length + fold_length - 1) / fold_length;
    if (parts <= 1) {
        const uint64_t together = fold_length / (length + 1) + 1;
        const uint64_t room = arguments.run == 0 ? spans_at_once : fold_length / length;
        const uint64_t at_once = room < spans_at_once ? room : spans_at_once;
        do_parts(arguments, (arguments.outputs + together - 1) / together, [=, &arguments](uint64_t part) {
            alignas(64) char states[spans_at_once * most_state_bytes];
            const uint64_t end = (part + 1) * together < arguments.outputs ? (part + 1) * together : arguments.outputs;
            for (uint64_t row = part * together; row < end; row += at_once) {
                const uint64_t count = end - row < at_once ? end - row : at_once;
                find_states(states, row, count, 0, length);
                finish(row, states, count);
            }
        });
        return;
    }
    const auto states = pointer_to<char>(arguments.states);
    do_parts(arguments, arguments.outputs * parts, [=, &steps](uint64_t part) {
        const uint64_t first = part % parts * fold_length;
        const uint64_t left = length - first;
        find_states(states + part * steps.state_bytes, part / parts, 1, first, left < fold_length ? left : fold_length);
    });
    for (uint64_t row = 0; row < arguments.outputs; ++row) {
        alignas(64) char state[most_state_bytes];
        steps.join_all(state, states + row * parts * steps.state_bytes, parts);
        finish(row, state, 1);
    }
}

// Dense columns of rows, which are as far from each other as elements of runs are: in parts of rows where there are few
// columns.
template <typename Arguments>
__attribute__((noinline)) void fold_columns_by(const FoldSteps& steps, const Arguments& arguments) {
    const uint64_t length = arguments.length;
    const uint64_t inner = arguments.inner;
    const auto source = pointer_to<const uint8_t>(arguments.source);
    const auto result = pointer_to<char>(arguments.result);
    const auto states = pointer_to<char>(arguments.states);
    const auto finish = [=, &steps, &arguments](uint64_t place, const void* columns, uint64_t count) {
        steps.finish(result + place * steps.result_bytes, columns, count, length, arguments.parameters);
    };
    const bool is_gathered = arguments.run != length;
    const auto find_states = [=, &steps, &arguments](char* columns, const uint8_t* from, uint64_t width, uint64_t begin,
                                                     uint64_t end) {
        if (!is_gathered) {
            const int64_t stride = arguments.step / static_cast<int64_t>(steps.source_bytes);
            steps.of_columns(columns, from + begin * arguments.step, width, stride, begin, end);
            return;
        }
        alignas(64) uint8_t gathered[fold_height * gathered_row_bytes];
        alignas(64) char near[gathered_row_bytes * most_state_bytes];
        const uint64_t bytes = width * steps.source_bytes;
        for (uint64_t row = begin; row < end; row += fold_height) {
            const uint64_t last = end - row < fold_height ? end : row + fold_height;
            uint64_t run = row / arguments.run, element = row % arguments.run;
            for (uint64_t i = row; i < last; ++i) {
                copy_bytes(gathered + (i - row) * bytes, from + run * arguments.run_stride + element * arguments.step,
                           bytes);
                if (++element == arguments.run) {
                    element = 0;
                    ++run;
                }
            }
            steps.of_columns(row == begin ? columns : near, gathered, width, width, row, last);
            if (row != begin)
                steps.join(columns, near, width);
        }
    };
    const uint64_t piece = is_gathered ? gathered_row_bytes / steps.source_bytes : fold_columns;
    const uint64_t pieces = (inner + piece - 1) / piece;
    const uint64_t height = arguments.split;
    const uint64_t splits = (length + height - 1) / height;
    do_parts(arguments, arguments.outputs / inner * pieces * splits, [=, &steps, &arguments](uint64_t part) {
        alignas(64) char held[fold_columns * most_state_bytes];
        const uint64_t split = part % splits;
        const uint64_t column = part / splits % pieces * piece;
        const uint64_t outer = part / splits / pieces;
        const uint64_t width = inner - column < piece ? inner - column : piece;
        const uint64_t begin = split * height;
        const uint64_t place = outer * inner + column;
        char* const columns = splits == 1 ? held : states + (split * arguments.outputs + place) * steps.state_bytes;
        find_states(columns, source + outer_offset(arguments, outer) + column * steps.source_bytes, width, begin,
                    begin + height < length ? begin + height : length);
        if (splits == 1)
            finish(place, columns, width);
    });
    if (splits == 1)
        return;
    do_parts(arguments, (arguments.outputs + fold_columns - 1) / fold_columns, [=, &steps, &arguments](uint64_t part) {
        const uint64_t first = part * fold_columns;
        const uint64_t left = arguments.outputs - first;
        const uint64_t width = left < fold_columns ? left : fold_columns;
        char* const columns = states + first * steps.state_bytes;
        for (uint64_t split = 1; split < splits; ++split)
            steps.join(columns, columns + split * arguments.outputs * steps.state_bytes, width);
        finish(first, columns, width);
    });
}

template <template <typename> typename Op, typename T, typename Arguments>
TALLOW_INLINE void fold_rows(const Arguments& arguments) {
    fold_rows_by(Fold<Op, T>::steps, arguments);
}
template <template <typename> typename Op, typename T, typename Arguments>
TALLOW_INLINE void fold_columns_of(const Arguments& arguments) {
    fold_columns_by(Fold<Op, T>::steps, arguments);
}

} // namespace tallow
