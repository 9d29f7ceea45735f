// What scans do with the reductions of the elements up to each: for GPUs and for the host.
#pragma once

#include "monoid.hpp"

namespace tallow {

// The results are those of the reduction.
template <typename Reduction> struct Scan : Reduction {
    using typename Reduction::Element, typename Reduction::Result, typename Reduction::State;
    static constexpr bool has_positions = false;
    // The bytes of the largest of what a thread reads and writes for an element.
    static constexpr uint32_t most_bytes = sizeof(Element) < sizeof(Result) ? sizeof(Result) : sizeof(Element);
    static TALLOW_INLINE Result result(State state, Element, uint64_t) {
        return convert<Result>(Reduction::number(state));
    }
};

// They are finished by a formula of what joined, of the element itself and of how many joined.
template <typename Joins, typename Of> struct FinishedScan : Joins {
    using typename Joins::Element, typename Joins::Number, typename Joins::Result, typename Joins::State;
    static TALLOW_INLINE Result result(State state, Element element, uint64_t count) {
        const Number finished = Of::finish(Joins::number(state), static_cast<Number>(to_compute(element)),
                                           static_cast<Number>(count));
        return convert<Result>(finished);
    }
};

// The element that a reduction finds, and its position in the line.
template <typename Number> struct NumberAt {
    Number number;
    uint32_t position;
};

// That of nothing.
constexpr uint32_t no_position = ~0u;

// Of equals the last one is found, and the first NaN.
template <typename Reduction> struct PlacedScan {
    using Element = typename Reduction::Element;
    using Number = typename Reduction::Number;
    using State = NumberAt<Number>;
    using Joining = typename Reduction::Joining;
    using Result = Element;
    static constexpr bool has_positions = true;
    static constexpr uint32_t most_bytes = sizeof(Element) < sizeof(uint32_t) ? sizeof(uint32_t) : sizeof(Element);
    static TALLOW_INLINE State identity() {
        return {Reduction::identity(), no_position};
    }
    static TALLOW_INLINE State element(Element value, uint32_t position) {
        return {Reduction::element(value, position), position};
    }
    static TALLOW_INLINE State combine(State x, State y) {
        const Number joined = Reduction::combine(x.number, y.number);
        const bool is_nan = x.number != x.number;
        const bool is_later = !is_nan && (joined != x.number || joined == y.number);
        const bool is_y = x.position == no_position || (is_later && y.position != no_position);
        // Compilers would choose between structs in memory.
        return {is_y ? y.number : x.number, is_y ? y.position : x.position};
    }
    static TALLOW_INLINE Result result(State state, Element, uint64_t) {
        return convert<Result>(state.number);
    }
};

} // namespace tallow
