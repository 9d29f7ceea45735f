// Scans on the host: reductions of the elements up to each. Floats are accumulated in doubles.
#pragma once

#include "math.hpp"
#include "parts.hpp"
#include "scan_monoid.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

// Elements of a part, roughly.
constexpr uint64_t scanned_length = 1 << 13;

// How elements T are scanned: small floats are accumulated as floats are.
template <template <typename> typename Scan, typename T> struct Scanning : Scan<widened<T>> {
    using Given = typename Scan<widened<T>>::Result;
    // What is stored: a result of the dtype of the elements is rounded to it.
    using Result = typename Scan<T>::Result;
    static constexpr bool is_rounded = is_small_float<T> && is_same<Result, T>;
};

// Sums that are not added up in a wider type begin anew with each block of this many elements, from the sum of the
// blocks before it. That one is added up in groups of blocks, groups of groups, and so on: an element takes part in
// fewer than `scan_group` sums for each power of `scan_group` in the length of a line, so that rounding errors do not
// grow with it.
constexpr uint64_t scan_block = 64;
constexpr uint64_t scan_group = 16;
// Powers of scan_group that a number of blocks in memory may have.
constexpr uint32_t scan_levels = 11;
// Elements of a block that are added up before they are added to its sum.
constexpr uint32_t scan_pack = 8;
template <typename Scanned, typename T>
constexpr bool joins_blocks = Scanned::adds_floats && is_same<typename Scanned::State, T>;

// In reverse it has the same bits, as sums commute.
template <typename Scanned, typename T> TALLOW_INLINE T sum_of_pack(const T (&x)[scan_pack]) {
    const auto add = [](T left, T right) { return Scanned::combine(left, right); };
    return add(add(add(x[0], x[1]), add(x[2], x[3])), add(add(x[4], x[5]), add(x[6], x[7])));
}

// The sums of the blocks in front of one, for lines side by side.
template <typename Scanned, uint64_t Lines> struct BlockSums {
    using State = typename Scanned::State;
    // Of incomplete groups: of blocks, of groups of these, and so on.
    State sums[scan_levels][Lines];
    uint64_t blocks = 0;

    // Adds a block to each line, of which `states` have the sums, and which become those of all blocks.
    TALLOW_INLINE void join(State* states, uint64_t lines) {
        uint64_t number = blocks++;
        uint32_t level = 0;
        for (;; ++level, number /= scan_group) {
            State* const sum = sums[level];
            if (number % scan_group != 0)
                for (uint64_t c = 0; c < lines; ++c)
                    states[c] = Scanned::combine(sum[c], states[c]);
            for (uint64_t c = 0; c < lines; ++c)
                sum[c] = states[c];
            if (number % scan_group != scan_group - 1)
                break;
        }
        // Groups that ended are part of those of the levels above.
        for (number /= scan_group, ++level; number != 0; number /= scan_group, ++level)
            if (number % scan_group != 0)
                for (uint64_t c = 0; c < lines; ++c)
                    states[c] = Scanned::combine(sums[level][c], states[c]);
    }
};

// Each step waits for the one before it, so this many rows are scanned concurrently.
template <typename T> constexpr uint32_t scanned_rows = is_integer<T> ? 1 : 4;

template <typename Scanned, typename T> struct Line {
    const T* source;
    typename Scanned::Result* result;
    uint32_t* positions;
};

// Rows that follow each other, each as one line, element by element.
template <typename Scanned, bool Reverse, uint32_t Rows, typename T>
TALLOW_INLINE void join_rows(uint64_t length, bool exclusive, Line<Scanned, T> line) {
    using Value = widened<T>;
    using State = typename Scanned::State;
    State states[Rows];
    for (State& state : states)
        state = Scanned::identity();
    Value converted[Rows][is_small_float<T> ? span_part : 1];
    typename Scanned::Given rounded[Rows][Scanned::is_rounded ? span_part : 1];
    for (uint64_t done = 0; done < length; done += span_part) {
        const uint64_t count = length - done < span_part ? length - done : span_part;
        const uint64_t first = Reverse ? length - done - count : done;
        const Value* from[Rows];
        typename Scanned::Given* to[Rows];
        for (uint32_t row = 0; row < Rows; ++row) {
            const uint64_t begin = row * length + first;
            if constexpr (is_small_float<T>) {
                convert_span(count, converted[row], line.source + begin);
                from[row] = converted[row];
            } else {
                from[row] = line.source + begin;
            }
            if constexpr (Scanned::is_rounded)
                to[row] = rounded[row];
            else
                to[row] = line.result + begin;
        }
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t at = Reverse ? count - 1 - i : i;
#pragma GCC unroll 4
            for (uint32_t row = 0; row < Rows; ++row) {
                const Value value = from[row][at];
                const State before = states[row];
                states[row] = Scanned::combine(before, Scanned::element(value, static_cast<uint32_t>(first + at)));
                to[row][at] = Scanned::result(exclusive ? before : states[row], value, done + i + !exclusive);
                if constexpr (Scanned::has_positions)
                    line.positions[row * length + first + at] = states[row].position;
            }
        }
        if constexpr (Scanned::is_rounded)
            for (uint32_t row = 0; row < Rows; ++row)
                convert_span(count, line.result + row * length + first, static_cast<const float*>(rounded[row]));
    }
}

// The sum of a contiguous block.
template <typename Scanned, bool Reverse, typename T> TALLOW_INLINE T sum_of_block(const T* source) {
    T sum = Scanned::identity();
    for (uint64_t i = 0; i < scan_block; i += scan_pack) {
        T terms[scan_pack];
        for (uint32_t j = 0; j < scan_pack; ++j)
            terms[j] = Scanned::element(source[(Reverse ? scan_block - scan_pack - i : i) + j], 0);
        sum = Scanned::combine(sum, sum_of_pack<Scanned>(terms));
    }
    return sum;
}

// A row of several blocks, of which some are scanned side by side: each step of one waits for the step before it.
template <typename Scanned, bool Reverse, typename T>
TALLOW_INLINE void sum_row(uint64_t length, bool exclusive, Line<Scanned, T> line) {
    constexpr uint64_t together = 4;
    // One row at a time is too few streams for processors to fetch enough of by themselves.
    constexpr uint64_t ahead = 2048 / sizeof(T);
    BlockSums<Scanned, 1> sums;
    T state = Scanned::identity();
    const auto position = [&](uint64_t i) { return Reverse ? length - 1 - i : i; };
    const auto scan = [&](uint64_t i, T& state) {
        const uint64_t at = position(i);
        const T value = line.source[at], before = state;
        state = Scanned::combine(state, Scanned::element(value, 0));
        line.result[at] = Scanned::result(exclusive ? before : state, value, i + !exclusive);
    };
    uint64_t done = 0;
    for (; done + together * scan_block <= length; done += together * scan_block) {
        T states[together];
        for (uint64_t b = 0; b < together; ++b) {
            const uint64_t first = done + b * scan_block;
            states[b] = state;
            for (uint64_t i = first + ahead; i < first + ahead + scan_block; i += line_bytes / sizeof(T)) {
                __builtin_prefetch(line.source + position(i));
                __builtin_prefetch(line.result + position(i), 1);
            }
            state = sum_of_block<Scanned, Reverse>(line.source + position(Reverse ? first + scan_block - 1 : first));
            sums.join(&state, 1);
        }
        for (uint64_t i = done; i < done + scan_block; ++i)
            for (uint64_t b = 0; b < together; ++b)
                scan(i + b * scan_block, states[b]);
    }
    while (done < length) {
        const uint64_t left = length - done, count = left < scan_block ? left : scan_block;
        T own = state;
        if (left > scan_block) {
            state = sum_of_block<Scanned, Reverse>(line.source + position(Reverse ? done + scan_block - 1 : done));
            sums.join(&state, 1);
        }
        for (const uint64_t end = done + count; done < end; ++done)
            scan(done, own);
    }
}

// Rows that follow each other, from the one of a number to that of another.
template <typename Scanned, typename T, bool Reverse, typename LineAt>
TALLOW_INLINE void scan_rows(uint64_t row, uint64_t end, uint64_t length, bool exclusive, const LineAt& line_at) {
    if constexpr (joins_blocks<Scanned, T>) {
        if (length > scan_block) {
            for (; row < end; ++row)
                sum_row<Scanned, Reverse>(length, exclusive, line_at(row * length));
            return;
        }
    }
    for (; row + scanned_rows<T> <= end; row += scanned_rows<T>)
        join_rows<Scanned, Reverse, scanned_rows<T>>(length, exclusive, line_at(row * length));
    for (; row < end; ++row)
        join_rows<Scanned, Reverse, 1>(length, exclusive, line_at(row * length));
}

// A pack of elements of lines side by side, the next one `stride` further. A vector takes the lines of few, so loops
// are not interleaved.
template <typename Scanned, typename T, uint32_t... I>
TALLOW_INLINE void sum_columns(uint64_t count, int64_t stride, Line<Scanned, T> line, uint64_t done, bool exclusive,
                               T* states, T* sums, Numbers<I...>) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety) interleave_count(1)
#else
#pragma GCC ivdep
#endif
    for (uint64_t c = 0; c < count; ++c) {
        T state = states[c];
        T terms[scan_pack];
        const auto step = [&](int64_t i, T& term) {
            const T value = line.source[i * stride + c], before = state;
            term = Scanned::element(value, 0);
            state = Scanned::combine(state, term);
            line.result[i * stride + c] = Scanned::result(exclusive ? before : state, value, done + i + !exclusive);
        };
        (step(I, terms[I]), ...);
        states[c] = state;
        sums[c] = Scanned::combine(sums[c], sum_of_pack<Scanned>(terms));
    }
}

// Lines side by side, of which `inner` follow each other.
template <typename Scanned, typename T, typename Arguments>
TALLOW_INLINE void scan_columns(const Arguments& arguments, uint64_t count, Line<Scanned, T> line) {
    using State = typename Scanned::State;
    const bool exclusive = arguments.exclusive;
    const auto inner = static_cast<int64_t>(arguments.inner), stride = arguments.reverse ? -inner : inner;
    if (arguments.reverse) {
        line.source += (arguments.length - 1) * arguments.inner;
        line.result += (arguments.length - 1) * arguments.inner;
    }
    State states[span_part];
    for (uint64_t c = 0; c < count; ++c)
        states[c] = Scanned::identity();
    uint64_t done = 0;
    if constexpr (joins_blocks<Scanned, T>) {
        BlockSums<Scanned, span_part> blocks;
        State sums[span_part];
        while (done + scan_block < arguments.length) {
            for (uint64_t c = 0; c < count; ++c)
                sums[c] = Scanned::identity();
            for (const uint64_t end = done + scan_block; done < end; done += scan_pack) {
                sum_columns<Scanned>(count, stride, line, done, exclusive, states, sums,
                                     typename CountUp<scan_pack>::type{});
                line.source += scan_pack * stride;
                line.result += scan_pack * stride;
            }
            blocks.join(sums, count);
            for (uint64_t c = 0; c < count; ++c)
                states[c] = sums[c];
        }
    }
    for (; done < arguments.length; ++done) {
        const uint64_t at = arguments.reverse ? arguments.length - 1 - done : done;
        TALLOW_INDEPENDENT
        for (uint64_t c = 0; c < count; ++c) {
            const auto value = convert<widened<T>>(line.source[c]);
            const State before = states[c];
            states[c] = Scanned::combine(before, Scanned::element(value, static_cast<uint32_t>(at)));
            line.result[c] = convert<typename Scanned::Result>(
                Scanned::result(exclusive ? before : states[c], value, done + !exclusive));
        }
        if constexpr (Scanned::has_positions)
            for (uint64_t c = 0; c < count; ++c)
                line.positions[at * arguments.inner + c] = states[c].position;
        line.source += stride;
        line.result += stride;
    }
}

// Each element becomes what those of its line up to it come to, from the last one on in reverse.
template <template <typename> typename Scan, typename T, typename Arguments>
TALLOW_INLINE void scan_lines(const Arguments& arguments) {
    using Scanned = Scanning<Scan, T>;
    constexpr uint64_t rows = scanned_rows<T>;
    const uint64_t inner = arguments.inner;
    const uint64_t length = arguments.length;
    const uint64_t pieces = (inner + span_part - 1) / span_part;
    const uint64_t least = scanned_length / (length * (inner < span_part ? inner : span_part) + 1) + 1;
    const uint64_t together = (least + rows - 1) / rows * rows;
    const uint64_t blocks = arguments.rows * pieces;
    const auto line_at = [&arguments](uint64_t first) {
        Line<Scanned, T> line{pointer_to<const T>(arguments.source) + first,
                              pointer_to<typename Scanned::Result>(arguments.result) + first, nullptr};
        if constexpr (Scanned::has_positions)
            line.positions = pointer_to<uint32_t>(arguments.positions) + first;
        return line;
    };
    do_parts(arguments, (blocks + together - 1) / together, [&](uint64_t part) {
        const uint64_t end = (part + 1) * together < blocks ? (part + 1) * together : blocks;
        uint64_t block = part * together;
        const bool exclusive = arguments.exclusive;
        if (inner == 1) {
            if (arguments.reverse)
                scan_rows<Scanned, T, true>(block, end, length, exclusive, line_at);
            else
                scan_rows<Scanned, T, false>(block, end, length, exclusive, line_at);
            return;
        }
        for (; block < end; ++block) {
            const uint64_t column = block % pieces * span_part;
            const uint64_t count = inner - column < span_part ? inner - column : span_part;
            scan_columns(arguments, count, line_at(block / pieces * length * inner + column));
        }
    });
}

} // namespace tallow
