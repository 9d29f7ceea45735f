// Scans on the host: reductions of the elements up to each. Floats are joined in doubles.
#pragma once

#include "math.hpp"
#include "parts.hpp"
#include "scan_monoid.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

// Elements of a part, roughly.
constexpr uint64_t scanned_length = 1 << 13;

// How elements T are scanned: small floats are joined as floats are.
template <template <typename> typename Scan, typename T> struct Scanning : Scan<widened<T>> {
    using Given = typename Scan<widened<T>>::Result;
    // What is stored: a result of the dtype of the elements is rounded to it.
    using Result = typename Scan<T>::Result;
    static constexpr bool is_rounded = is_small_float<T> && is_same<Result, T>;
};

// Each step waits for the one before it, so this many rows are joined side by side.
template <typename T> constexpr uint32_t scanned_rows = is_integer<T> ? 1 : 4;

template <typename Scanned, typename T> struct Line {
    const T* source;
    typename Scanned::Result* result;
    uint32_t* positions;
};

// Rows that follow each other, each as one line.
template <typename Scanned, bool Reverse, uint32_t Rows, typename T>
TALLOW_INLINE void scan_rows(uint64_t length, bool exclusive, Line<Scanned, T> line) {
    using Value = widened<T>;
    using State = typename Scanned::State;
    State states[Rows];
    for (State& state : states)
        state = Scanned::identity();
    Value held[Rows][is_small_float<T> ? span_part : 1];
    typename Scanned::Given rounded[Rows][Scanned::is_rounded ? span_part : 1];
    for (uint64_t done = 0; done < length; done += span_part) {
        const uint64_t count = length - done < span_part ? length - done : span_part;
        const uint64_t first = Reverse ? length - done - count : done;
        const Value* from[Rows];
        typename Scanned::Given* to[Rows];
        for (uint32_t row = 0; row < Rows; ++row) {
            const uint64_t begin = row * length + first;
            if constexpr (is_small_float<T>) {
                convert_span(count, held[row], line.source + begin);
                from[row] = held[row];
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

// Lines side by side, of which `inner` follow each other.
template <typename Scanned, typename T, typename Arguments>
TALLOW_INLINE void scan_columns(const Arguments& arguments, uint64_t count, Line<Scanned, T> line) {
    using State = typename Scanned::State;
    const bool exclusive = arguments.exclusive;
    State states[span_part];
    for (uint64_t c = 0; c < count; ++c)
        states[c] = Scanned::identity();
    for (uint64_t i = 0; i < arguments.length; ++i) {
        const uint64_t at = arguments.reverse ? arguments.length - 1 - i : i;
        const T* const source = line.source + at * arguments.inner;
        typename Scanned::Result* const result = line.result + at * arguments.inner;
        TALLOW_INDEPENDENT
        for (uint64_t c = 0; c < count; ++c) {
            const auto value = convert<widened<T>>(source[c]);
            const State before = states[c];
            states[c] = Scanned::combine(before, Scanned::element(value, static_cast<uint32_t>(at)));
            result[c] = convert<typename Scanned::Result>(
                Scanned::result(exclusive ? before : states[c], value, i + !exclusive));
        }
        if constexpr (Scanned::has_positions)
            for (uint64_t c = 0; c < count; ++c)
                line.positions[at * arguments.inner + c] = states[c].position;
    }
}

// Each element becomes what those of its line up to it come to, from the last one on in reverse.
template <template <typename> typename Scan, typename T, typename Arguments>
TALLOW_INLINE void scan_lines(const Arguments& arguments) {
    using Scanned = Scanning<Scan, T>;
    const uint64_t inner = arguments.inner;
    const uint64_t length = arguments.length;
    const uint64_t pieces = (inner + span_part - 1) / span_part;
    const uint64_t least = scanned_length / (length * (inner < span_part ? inner : span_part) + 1) + 1;
    const uint64_t together = (least + scanned_rows<T> - 1) / scanned_rows<T> * scanned_rows<T>;
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
            for (; block + scanned_rows<T> <= end; block += scanned_rows<T>) {
                if (arguments.reverse)
                    scan_rows<Scanned, true, scanned_rows<T>>(length, exclusive, line_at(block * length));
                else
                    scan_rows<Scanned, false, scanned_rows<T>>(length, exclusive, line_at(block * length));
            }
            for (; block < end; ++block) {
                if (arguments.reverse)
                    scan_rows<Scanned, true, 1>(length, exclusive, line_at(block * length));
                else
                    scan_rows<Scanned, false, 1>(length, exclusive, line_at(block * length));
            }
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
