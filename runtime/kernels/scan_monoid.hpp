// Scans as reductions of prefixes, for GPUs and for the host.
#pragma once

#include "monoid.hpp"

namespace tallow {

// A result is the reduction of a prefix.
template <typename Reduction> struct Scan : Reduction {
    using typename Reduction::Element, typename Reduction::Result, typename Reduction::State;
    static constexpr bool has_positions = false;
    static constexpr bool adds_floats = false;
    // The bytes of the largest of what a thread reads and writes for an element.
    static constexpr uint32_t max_bytes = sizeof(Element) < sizeof(Result) ? sizeof(Result) : sizeof(Element);
    static TALLOW_INLINE Result result(State state, Element, uint64_t) {
        return convert<Result>(Reduction::number(state));
    }
};

// The same of a reduction that adds up what the elements contribute.
template <typename Reduction> struct RunningSum : Scan<Reduction> {
    static constexpr bool adds_floats = !is_integer<typename Reduction::State>;
};

// A result is a formula over the reduction of a prefix, the element itself and the number of elements in the prefix.
template <typename Joins, typename Of> struct FinishedScan : Joins {
    using typename Joins::Element, typename Joins::Number, typename Joins::Result, typename Joins::State;
    static TALLOW_INLINE Result result(State state, Element element, uint64_t count) {
        const Number finished =
            Of::finish(Joins::number(state), static_cast<Number>(to_compute(element)), static_cast<Number>(count));
        return convert<Result>(finished);
    }
};

// The number that a reduction of extremes selects, and its position in the line.
template <typename Number> struct NumberWithPosition {
    Number number;
    uint32_t position;
};

// The position where no element was combined yet.
constexpr uint32_t no_position = ~0u;

// A reduction of extremes with positions: the last of equals wins, and the first NaN.
template <typename Reduction> struct ScanWithPositions {
    using Element = typename Reduction::Element;
    using Number = typename Reduction::Number;
    using State = NumberWithPosition<Number>;
    using Joining = typename Reduction::Joining;
    using Result = Element;
    static constexpr bool has_positions = true;
    static constexpr bool adds_floats = false;
    static constexpr uint32_t max_bytes = sizeof(Element) < sizeof(uint32_t) ? sizeof(uint32_t) : sizeof(Element);
    static TALLOW_INLINE State identity() {
        return {Reduction::identity(), no_position};
    }
    static TALLOW_INLINE State element(Element value, uint32_t position) {
        return {Reduction::element(value, position), position};
    }
    static TALLOW_INLINE State combine(State x, State y) {
        const Number combined = Reduction::combine(x.number, y.number);
        const bool is_nan = x.number != x.number;
        const bool is_later = !is_nan && (combined != x.number || combined == y.number);
        const bool is_y = x.position == no_position || (is_later && y.position != no_position);
        // Field by field: compilers select between structs in memory.
        return {is_y ? y.number : x.number, is_y ? y.position : x.position};
    }
    static TALLOW_INLINE Result result(State state, Element, uint64_t) {
        return convert<Result>(state.number);
    }
};

} // namespace tallow
