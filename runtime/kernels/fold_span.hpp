// Reductions of a span of elements: sums, moments, scaled squares and extremes, by lanes that are combined as a tree.
#pragma once

#include "math.hpp"
#include "monoid.hpp"
#include "parts.hpp"
#include "runs.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

// The bytes of states that are filled side by side: enough for the vector instructions that are in flight at once.
// Those of three numbers are fewer, since lanes join in pairs.
constexpr uint64_t lanes_bytes = 256;
template <typename State>
constexpr uint32_t fold_lanes = lanes_bytes / (sizeof(State) % 3 == 0 ? sizeof(State) / 3 * 4 : sizeof(State));
constexpr uint32_t few_lanes = 4;
// Up to this many elements, combining many lanes takes longer than reading the span.
constexpr uint64_t short_span = 256;
// Elements, or rows of columns, that are combined before the partial results are: this preserves the accuracy of sums.
constexpr uint64_t fold_piece = 2048;
constexpr uint64_t fold_height = 64;
// Rows of columns that are read at once, and spans that are finished at once.
constexpr uint64_t rows_at_once = 4;
constexpr uint64_t spans_at_once = 64;
constexpr uint64_t max_state_bytes = 40;
// Elements of a run that are read where they are, if reductions take them in any order; those of shorter ones are
// gathered.
constexpr uint64_t long_run = 512;
// Bytes of a row's columns that are gathered at once.
constexpr uint64_t gathered_row_bytes = 1024;
// The distance of prefetches: on an Intel Xeon a thread reads 25 GB/s then instead of 10, on an AMD EPYC 23 instead of
// 27. Nearer ones help less.
constexpr uint64_t prefetch_bytes = 4096;

// Rows with at least this stride are in different pages.
constexpr uint64_t page_bytes = 4096;

// The elements of runs from number `first` on, and memory for a piece of them.
template <typename T> struct RunSource {
    const uint8_t* source;
    const Runs& runs;
    uint64_t first;
    T* gathered;

    TALLOW_INLINE const T* run(uint64_t number) const {
        return reinterpret_cast<const T*>(source + number * runs.stride);
    }
    // Whether runs are at least that long, dense, and adjacent.
    TALLOW_INLINE bool are_long(uint64_t elements) const {
        return runs.step == sizeof(T) && runs.elements >= elements &&
               static_cast<int64_t>(runs.stride) >= static_cast<int64_t>(runs.elements * sizeof(T));
    }
    __attribute__((noinline)) const T* at(uint64_t number, uint64_t count) const {
        const uint64_t begin = first + number;
        const uint64_t element = begin % runs.elements;
        if (runs.step == sizeof(T) && element + count <= runs.elements)
            return run(begin / runs.elements) + element;
        gather_words<typename Word<sizeof(T)>::type>(reinterpret_cast<uint8_t*>(gathered), source, runs, begin, count);
        return gathered;
    }
    // How many of the elements from this number on to take at once: to the end of a long run, where they are.
    __attribute__((noinline)) uint64_t together(uint64_t number, uint64_t count) const {
        const uint64_t left = runs.elements - (first + number) % runs.elements;
        return left < count && are_long(long_run) ? left : count;
    }
};

// `Count` elements, of which the first `left` are at `here` and the others at `there`.
template <uint32_t Count, typename T>
TALLOW_INLINE void select_first(T* selected, const T* here, const T* there, uint64_t left) {
    using Word = typename Word<sizeof(T)>::type;
    typedef Word Words __attribute__((vector_size(Count * sizeof(T))));
    Words numbers, x, y;
    for (uint32_t i = 0; i < Count; ++i)
        numbers[i] = static_cast<Word>(i);
    __builtin_memcpy(&x, here, sizeof x);
    __builtin_memcpy(&y, there, sizeof y);
    x = numbers < static_cast<Word>(left) ? x : y;
    __builtin_memcpy(selected, &x, sizeof x);
}

// The elements of a span: contiguous or, in runs, contiguous a piece at a time. Two registers hold it.
template <typename T> struct SpanSource {
    const T* source;
    const RunSource<T>* in_runs = nullptr;

    // Those from number `first` on, until the next call.
    TALLOW_INLINE const T* at(uint64_t first, uint64_t count) const {
        return in_runs == nullptr ? source + first : in_runs->at(first, count);
    }
    // How many of those, up to a piece, to ask for.
    TALLOW_INLINE uint64_t together(uint64_t first, uint64_t count) const {
        count = count < fold_piece ? count : fold_piece;
        return in_runs == nullptr ? count : in_runs->together(first, count);
    }
};

// States that join as a tree, whose shape only their number decides: sums of many stay accurate.
template <typename Op, typename State> class Tree {
  public:
    TALLOW_INLINE void add(State state) {
        uint32_t level = 0;
        for (uint64_t other = count_++; other & 1; other >>= 1)
            state = Op::combine(states_[level++], state);
        states_[level] = state;
    }
    TALLOW_INLINE State combined() const {
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
    Number states[lanes];
    for (uint32_t lane = 0; lane < lanes; ++lane)
        states[lane] = first;
    uint64_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (uint32_t lane = 0; lane < lanes; ++lane)
            states[lane] = Joining::combine(states[lane], element(static_cast<Number>(to_compute(source[i + lane]))));
    for (uint32_t lane = 0; i < count; ++i, ++lane)
        states[lane] = Joining::combine(states[lane], element(static_cast<Number>(to_compute(source[i]))));
    return join_lanes<Joining, lanes>(states);
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

// Reductions to an element, and to the index of one.
template <typename Of> constexpr bool finds_element = false;
template <typename Of, typename T, bool Lowest> constexpr bool finds_element<ExtremeReduction<Of, T, Lowest>> = true;
template <typename Of> constexpr bool finds_place = false;
template <typename T, bool Lowest> constexpr bool finds_place<IndexReduction<T, Lowest>> = true;

// The lowest or highest of floats, if no NaN is among them: then one instruction compares a vector. Whether none is.
template <typename Take, typename T> TALLOW_INLINE bool find_extreme(T& best, SpanSource<T> elements, uint64_t count) {
    using Elements = Vector<T>;
    using Masks = decltype(Elements{} < Elements{});
    constexpr uint64_t length = vector_length<T>;
    constexpr uint64_t vectors = lanes_bytes / line_bytes;
    if (count < length) {
        const T* const source = elements.at(0, count);
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
    const T* const first_elements = elements.at(0, length);
    for (uint64_t v = 0; v < vectors; ++v)
        __builtin_memcpy(&near[v], first_elements, sizeof near[v]);
    for (uint64_t first = 0, here = 0; first < count; first += here) {
        here = elements.together(first, count - first);
        const T* const source = elements.at(first, here);
        uint64_t i = 0;
        for (; i + vectors * length <= here; i += vectors * length) {
#pragma GCC unroll 4
            for (uint64_t v = 0; v < vectors; ++v) {
                // To the second cache: comparing takes less time than filling the first one.
                __builtin_prefetch(source + i + v * length + prefetch_bytes / sizeof(T), 0, 2);
                join(v, source + i + v * length);
            }
        }
        for (; i + length <= here; i += length)
            join(0, source + i);
        // The last ones, with some of those in front of them once more.
        const uint64_t end = first + here < length ? length : first + here;
        if (i != here)
            join(1, elements.at(end - length, length));
    }
    for (uint64_t v = 1; v < vectors; ++v) {
        Take{}(near[0], near[v]);
        odd[0] |= odd[v];
    }
    best = reduce_lanes<T>(near[0], Take{});
    uint64_t words[line_bytes / sizeof(uint64_t)];
    __builtin_memcpy(words, odd, sizeof words);
    uint64_t is_odd = 0;
    for (const uint64_t word : words)
        is_odd |= word;
    return is_odd == 0;
}

// What is best of some elements, no more than a piece, of which the first one has this index: vectors of elements and
// of how many rows of vectors came before are narrower than indexes. Whether there is no NaN. Compilers make branches
// of the same in loops.
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

} // namespace tallow
