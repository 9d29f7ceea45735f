// States of reductions of elements of one type: those of lanes, spans and columns, and how they are combined.
#pragma once

#include "fold_span.hpp"

// Independent iterations that take little time of all: compilers make one vector of them at a time, which is half the
// code.
#if defined(__clang__)
#define TALLOW_SELDOM _Pragma("clang loop vectorize(assume_safety) interleave_count(1)")
#else
#define TALLOW_SELDOM TALLOW_INDEPENDENT
#endif

namespace tallow {

// How states are combined depends on their type alone: reductions share it where an element of one of these types
// begins the same state.
template <template <typename> typename Op, typename T, typename First, typename... Others> constexpr auto proxy_of() {
    if constexpr (is_same<typename Op<First>::State, typename Op<T>::State>)
        return First{};
    else if constexpr (sizeof...(Others) == 0)
        return T{};
    else
        return proxy_of<Op, T, Others...>();
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
    static __attribute__((noinline)) State combine_all(const State* states, uint64_t count) {
        Tree<Of, State> tree;
        for (uint64_t i = 0; i < count; ++i)
            tree.add(states[i]);
        return tree.combined();
    }
    static __attribute__((noinline)) State join_lanes(State* states) {
        return tallow::join_lanes<Of, fold_lanes<State>>(states);
    }
};

// What reductions of elements of T share where they join them alike.
template <typename Of, typename T, typename Shared> struct ElementFold {
    using State = typename Of::State;

    static TALLOW_INLINE State add_element(State state, const T& value, uint64_t index) {
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
                near[lane] = add_element(near[lane], source[i + lane], index + i + lane);
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
        // Compilers unroll a loop over all lanes.
        T last[lanes] = {};
        __builtin_memcpy(last, source + i, (count - i) * sizeof(T));
        for (uint32_t lane = 0; lane < lanes; ++lane)
            near[lane] = add_element(near[lane], last[lane], index + i + lane);
        __builtin_memcpy(states, near, (count - i) * sizeof(State));
    }

    // As fill_lanes, of at least as many elements as lanes from number `first` of runs on, with the same bits. Lanes
    // that two runs share are selected from both.
    static __attribute__((noinline)) void fill_from_runs(State* states, const RunSource<T>& source, uint64_t first,
                                                         uint64_t count, uint64_t index) {
        constexpr uint32_t lanes = fold_lanes<State>;
        constexpr uint32_t length = lanes < vector_length<T> ? lanes : vector_length<T>;
        State near[lanes];
        begin_states<Of>(near, lanes);
        const Runs& runs = source.runs;
        uint64_t run = (source.first + first) / runs.elements;
        const T* from = source.run(run) + (source.first + first) % runs.elements;
        const T* end = source.run(run) + runs.elements;
        const uint64_t last = (source.first + first + count - 1) / runs.elements;
        const bool are_short = runs.elements * sizeof(T) < run_bytes_ahead;
        uint64_t i = 0;
        for (; i + lanes <= count; i += lanes, from += lanes) {
            alignas(line_bytes) T shared[lanes];
            const T* row = from;
            const auto left = static_cast<uint64_t>(end - from);
            if (left < lanes) {
                const T* const next = source.run(++run);
                from = next - left;
                end = next + runs.elements;
                if (left == 0) {
                    row = next;
                } else {
                    for (uint32_t lane = 0; lane < lanes; lane += length)
                        select_first<length>(shared + lane, row + lane, from + lane, left < lane ? 0 : left - lane);
                    row = shared;
                }
            }
            // Compilers that know of both rows compute with parts of vectors.
            asm("" : "+r"(row) : : "memory");
            // Not past the last run, where there may be no memory: to find that out takes long.
            const uint64_t ahead = !are_short                 ? run_bytes_ahead
                                   : run + runs_ahead <= last ? runs_ahead * runs.stride
                                                              : 0;
            for (uint32_t lane = 0; lane < lanes; lane += length)
                __builtin_prefetch(reinterpret_cast<const uint8_t*>(from + lane) + ahead);
            for (uint32_t lane = 0; lane < lanes; ++lane)
                near[lane] = add_element(near[lane], row[lane], index + i + lane);
        }
        for (uint32_t lane = 0; lane < lanes; ++lane)
            states[lane] = near[lane];
        if (i != count)
            join_last<lanes>(states, source.at(first + count - lanes, lanes) - (count - lanes), i, count, index);
    }
    // The states of lanes of the piece that begins with number `first`.
    static TALLOW_INLINE void fill_piece(State* states, SpanSource<T> elements, uint64_t first, uint64_t all,
                                         uint64_t index) {
        const uint64_t count = piece(all, first);
        // Of runs that are hardly longer than the lanes nearly all rows of lanes would be selected.
        constexpr uint32_t lanes = fold_lanes<State>;
        if constexpr (sizeof(State) <= sizeof(uint64_t) && sizeof(T) <= sizeof(uint64_t) && !finds_place<Of>)
            if (elements.in_runs != nullptr && count >= lanes && elements.in_runs->are_long(lanes * 3 / 2))
                return fill_from_runs(states, *elements.in_runs, first, count, index + first);
        fill_lanes(states, elements.at(first, count), count, index + first);
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
    // The combined states of pieces.
    template <typename Piece> static TALLOW_INLINE auto of_pieces(SpanSource<T> elements, uint64_t count, Piece of) {
        using Known = decltype(of(elements.at(0, count), count));
        Tree<Added<Known>, Known> tree;
        for (uint64_t first = 0; first < count; first += fold_piece)
            tree.add(of(elements.at(first, piece(count, first)), piece(count, first)));
        return tree.combined();
    }
    template <typename Known> static TALLOW_INLINE Known of_squares(SpanSource<T> elements, uint64_t count) {
        return of_pieces(elements, count, [](const T* from, uint64_t length) {
            if constexpr (has_count<Known>)
                return moments_of_span<Known>(from, length);
            else
                return lengths_of_span<Known>(from, length);
        });
    }
    static __attribute__((noinline)) State of_scaled_squares(SpanSource<T> elements, uint64_t count) {
        return of_squares<State>(elements, count);
    }
    static TALLOW_INLINE State of_elements(SpanSource<T> elements, uint64_t count, uint64_t index) {
        if constexpr (has_plain<State>) {
            const auto known = of_squares<typename Unscaled<State>::type>(elements, count);
            return needs_elements(known) ? of_scaled_squares(elements, count) : state_from(known);
        } else if constexpr (has_count<State>) {
            return of_squares<State>(elements, count);
        } else if constexpr (has_highest<State>) {
            return of_pieces(elements, count, powers_of_span<State, T>);
        } else if constexpr (finds_element<Of> && is_same<T, State> && !is_integer<T>) {
            State best = Of::identity();
            return find_extreme<Takes<Of::is_lowest>>(best, elements, count) ? best : of_odd(elements, count, index);
        } else if constexpr (finds_place<Of>) {
            if (count < fold_lanes<compute_type<T>>)
                return of_lanes(elements, count, index);
            State best = Of::identity();
            for (uint64_t first = 0; first < count; first += fold_piece)
                best = Of::combine(
                    best, index_in(elements.at(first, piece(count, first)), piece(count, first), index + first));
            return best;
        } else {
            return of_lanes(elements, count, index);
        }
    }

    // Elements with a NaN, which short rows without one should not carry along.
    static __attribute__((noinline)) State of_odd(SpanSource<T> elements, uint64_t count, uint64_t index) {
        return of_lanes(elements, count, index);
    }
    // Of a short span, of `Lanes` elements at least: one vector of states, which is quick to combine.
    template <uint32_t Lanes>
    static __attribute__((noinline)) State of_short(const T* source, uint64_t count, uint64_t index) {
        State states[Lanes];
        begin_states<Of>(states, Lanes);
        uint64_t i = 0;
        for (; i + Lanes <= count; i += Lanes)
            for (uint32_t lane = 0; lane < Lanes; ++lane)
                states[lane] = add_element(states[lane], source[i + lane], index + i + lane);
        if (i != count)
            join_last<Lanes>(states, source, i, count, index);
        return join_lanes<Of, Lanes>(states);
    }
    // Of no more elements than the lanes of a short span, which join as its lanes do.
    static TALLOW_INLINE State of_few(const T* source, uint64_t count, uint64_t index) {
        State states[few_lanes];
        begin_states<Of>(states, few_lanes);
#pragma GCC unroll 4
        for (uint32_t lane = 0; lane < few_lanes; ++lane)
            if (lane < count)
                states[lane] = add_element(states[lane], source[lane], index + lane);
        return join_lanes<Of, few_lanes>(states);
    }
    // The elements from `begin` on, fewer than lanes, into the last lanes: those in front of them are read again.
    template <uint32_t Lanes>
    static TALLOW_INLINE void join_last(State* states, const T* source, uint64_t begin, uint64_t count,
                                        uint64_t index) {
        const uint64_t first = count - Lanes;
        for (uint32_t lane = 0; lane < Lanes; ++lane) {
            const State all = add_element(states[lane], source[first + lane], index + first + lane);
            states[lane] = first + lane < begin ? states[lane] : all;
        }
    }
    static State of_lanes(SpanSource<T> elements, uint64_t count, uint64_t index) {
        constexpr uint32_t lanes = fold_lanes<State>;
        constexpr uint32_t short_lanes = lanes / (lanes_bytes / line_bytes);
        if (count <= few_lanes)
            return of_few(elements.at(0, count), count, index);
        if constexpr (lanes > few_lanes)
            if (count < (short_lanes < few_lanes ? few_lanes : short_lanes))
                return of_short<few_lanes>(elements.at(0, count), count, index);
        if constexpr (short_lanes > few_lanes)
            if (count <= short_span)
                return of_short<short_lanes>(elements.at(0, count), count, index);
        State states[lanes];
        fill_piece(states, elements, 0, count, index);
        for (uint64_t first = fold_piece; first < count; first += fold_piece) {
            State others[lanes];
            fill_piece(others, elements, first, count, index);
            Shared::join(states, others, lanes);
        }
        return Shared::join_lanes(states);
    }

    static __attribute__((noinline)) State index_in(const T* source, uint64_t count, uint64_t index) {
        using Compared = compute_type<T>;
        constexpr uint32_t lanes = fold_lanes<State>;
        State best = Of::identity();
        uint64_t in_lanes = count - count % fold_lanes<Compared>;
        if (in_lanes != 0) {
            bool has_no_nan;
            if constexpr (is_same<T, Compared>) {
                has_no_nan = find_best<Of::is_lowest>(best, source, in_lanes, index);
            } else {
                Compared converted[fold_piece];
                if constexpr (is_small_float<T>)
                    convert_span(in_lanes, converted, source);
                else
                    map_span(in_lanes, [](T x) { return to_compute(x); }, converted, source);
                has_no_nan = find_best<Of::is_lowest>(best, converted, in_lanes, index);
            }
            if (!has_no_nan) {
                best = Of::identity();
                in_lanes = 0;
            }
        }
        if (in_lanes == count)
            return best;
        State states[lanes];
        fill_lanes(states, source + in_lanes, count - in_lanes, index + in_lanes);
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

    // Joins rows begin to end of columns, of which the first is the source, with their states.
    template <typename Value, typename Join>
    static TALLOW_INLINE void join_rows(Value* values, uint64_t width, const T* source, uint64_t stride, uint64_t begin,
                                        uint64_t end, Join join) {
        // Registers hold the values of a tile while rows that are near each other are read.
        constexpr uint64_t tile = lanes_bytes / sizeof(Value);
        uint64_t column = 0;
        for (; stride * sizeof(T) < page_bytes && column + tile <= width; column += tile) {
            Value near[tile];
            for (uint64_t c = 0; c < tile; ++c)
                near[c] = values[column + c];
            const T* from = source + column;
            for (uint64_t row = begin; row < end; ++row, from += stride)
                for (uint64_t c = 0; c < tile; ++c)
                    near[c] = join(near[c], from[c], row, column + c);
            for (uint64_t c = 0; c < tile; ++c)
                values[column + c] = near[c];
        }
        if (column == width)
            return;
        uint64_t row = begin;
        for (; row + rows_at_once <= end; row += rows_at_once) {
            const T* const rows = source + (row - begin) * stride;
            const auto join_some = [=](uint64_t first, uint64_t count) {
                TALLOW_INDEPENDENT
                for (uint64_t c = first; c < first + count; ++c) {
                    Value state = values[c];
#pragma GCC unroll 4
                    for (uint64_t i = 0; i < rows_at_once; ++i)
                        state = join(state, rows[i * stride + c], row + i, c);
                    values[c] = state;
                }
            };
            // Processors do not look at the next pages by themselves.
            constexpr uint64_t length = line_bytes / sizeof(T);
            uint64_t c = column;
            for (; stride * sizeof(T) >= page_bytes && c + length <= width; c += length) {
                for (uint64_t i = 0; i < rows_at_once; ++i)
                    __builtin_prefetch(rows + (rows_at_once + i) * stride + c);
                join_some(c, length);
            }
            join_some(c, width - c);
        }
        for (; row < end; ++row) {
            TALLOW_INDEPENDENT
            for (uint64_t c = column; c < width; ++c)
                values[c] = join(values[c], source[(row - begin) * stride + c], row, c);
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

    // The states of columns of rows, with a stride; of the first row the index is known.
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
                        return add_element(state, value, index);
                    };
                    Shared::begin(near, width);
                    join_rows(near, width, rows, stride, row, last, join);
                }
                Shared::join(states, near, width);
            }
        }
    }
};

} // namespace tallow
