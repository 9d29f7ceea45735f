// Running sums and products on the host, by the monoids of reductions. Floats are joined in doubles.
#pragma once

#include "math.hpp"
#include "monoid.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "vector.hpp"

namespace tallow {

// Elements of a part, roughly.
constexpr uint64_t scanned_length = 1 << 13;

// The states of a monoid; small floats are joined as floats are.
template <template <typename> typename Monoid, typename T> using ScanState = typename Monoid<widened<T>>::State;

// Each step waits for the one before it, so this many rows are joined side by side.
template <typename T> constexpr uint32_t scanned_rows = is_integer<T> ? 1 : 4;

template <template <typename> typename Monoid, uint32_t Rows, typename T>
TALLOW_INLINE void scan_rows(uint64_t length, T* result, const T* source) {
    using Value = widened<T>;
    using State = ScanState<Monoid, T>;
    State states[Rows];
    for (State& state : states)
        state = Monoid<Value>::identity();
    Value held[Rows][is_small_float<T> ? span_part : 1];
    for (uint64_t first = 0; first < length; first += span_part) {
        const uint64_t count = length - first < span_part ? length - first : span_part;
        const Value* from[Rows];
        Value* to[Rows];
        for (uint32_t row = 0; row < Rows; ++row) {
            const uint64_t begin = row * length + first;
            if constexpr (is_small_float<T>) {
                convert_span(count, held[row], source + begin);
                from[row] = to[row] = held[row];
            } else {
                from[row] = source + begin;
                to[row] = result + begin;
            }
        }
        for (uint64_t i = 0; i < count; ++i)
#pragma GCC unroll 4
            for (uint32_t row = 0; row < Rows; ++row) {
                states[row] = Monoid<Value>::combine(states[row], static_cast<State>(to_compute(from[row][i])));
                to[row][i] = convert<Value>(states[row]);
            }
        if constexpr (is_small_float<T>)
            for (uint32_t row = 0; row < Rows; ++row)
                convert_span(count, result + row * length + first, static_cast<const float*>(held[row]));
    }
}

// Each element becomes what those of its line up to it come to.
template <template <typename> typename Monoid, typename T, typename Arguments>
TALLOW_INLINE void scan_lines(const Arguments& arguments) {
    using State = ScanState<Monoid, T>;
    using Joining = Monoid<widened<T>>;
    const uint64_t inner = arguments.inner;
    const uint64_t pieces = (inner + span_part - 1) / span_part;
    const uint64_t least = scanned_length / (arguments.length * (inner < span_part ? inner : span_part) + 1) + 1;
    const uint64_t together = (least + scanned_rows<T> - 1) / scanned_rows<T> * scanned_rows<T>;
    const uint64_t blocks = arguments.rows * pieces;
    do_parts(arguments, (blocks + together - 1) / together, [&](uint64_t part) {
        const uint64_t end = (part + 1) * together < blocks ? (part + 1) * together : blocks;
        uint64_t block = part * together;
        if (inner == 1) {
            const auto result = pointer_to<T>(arguments.result);
            const auto source = pointer_to<const T>(arguments.source);
            const uint64_t length = arguments.length;
            for (; block + scanned_rows<T> <= end; block += scanned_rows<T>)
                scan_rows<Monoid, scanned_rows<T>>(length, result + block * length, source + block * length);
            for (; block < end; ++block)
                scan_rows<Monoid, 1>(length, result + block * length, source + block * length);
            return;
        }
        for (; block < end; ++block) {
            const uint64_t column = block % pieces * span_part;
            const uint64_t count = inner - column < span_part ? inner - column : span_part;
            const uint64_t first = block / pieces * arguments.length * inner + column;
            const T* source = pointer_to<const T>(arguments.source) + first;
            T* result = pointer_to<T>(arguments.result) + first;
            State states[span_part];
            for (State& state : states)
                state = Joining::identity();
            for (uint64_t i = 0; i < arguments.length; ++i, source += inner, result += inner) {
                TALLOW_INDEPENDENT
                for (uint64_t c = 0; c < count; ++c) {
                    states[c] = Joining::combine(states[c], static_cast<State>(to_compute(source[c])));
                    result[c] = convert<T>(states[c]);
                }
            }
        }
    });
}

} // namespace tallow
