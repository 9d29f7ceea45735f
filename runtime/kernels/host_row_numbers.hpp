// Numbers of rows on the host: operands and results of row formulas (see row_formula.hpp) that have one for each row,
// and indexes, which name an element of each.
#pragma once

#include "host_indexes.hpp"
#include "row_formula.hpp"

namespace tallow {

// Whether a row with an index counts.
template <typename Arguments> TALLOW_INLINE bool counts(const Arguments& arguments, int64_t index) {
    return index != arguments.ignored && index != arguments.index_mark;
}

// Whether the indexes of all rows that count name elements; the first one that does not is reported to the host.
template <typename Functor, typename Arguments> TALLOW_INLINE bool have_indexes(const Arguments& arguments) {
    if constexpr (has_row_index<Functor>) {
        for (uint64_t row = 0; row < arguments.rows; ++row) {
            const int64_t index = index_at(arguments, row);
            if (counts(arguments, index) && (index < 0 || static_cast<uint64_t>(index) >= arguments.length)) {
                report_index(arguments, index);
                return false;
            }
        }
    }
    return true;
}

// Sets what is known of a row before its first pass; element(k, position) loads an element of operand k, if it is
// there.
template <typename Functor, typename Value, typename Arguments, typename Element>
TALLOW_INLINE void begin_numbers(const Arguments& arguments, uint64_t number, RowOf<Value, Functor>& row,
                                 Element element) {
    for (uint32_t i = 0; i < row_numbers<Functor>; ++i)
        row.known[i] =
            pointer_to<const Value>(arguments.numbers[i])[static_cast<int64_t>(number) * arguments.number_strides[i]];
    if constexpr (has_row_index<Functor>) {
        const int64_t index = index_at(arguments, number);
        row.index = counts(arguments, index) ? static_cast<uint64_t>(index) : no_index;
        uint32_t known = row_numbers<Functor>;
        for (uint32_t k = 0; k < Functor::operands; ++k)
            if ((Functor::at_index >> k & 1) != 0)
                row.known[known++] = row.index == no_index ? Value{0}
                                     : is_absent<Functor>(k, arguments.operands[k])
                                         ? static_cast<Value>(absent_number<Functor>(k))
                                         : element(k, row.index);
    }
    begin_constants(row);
}

// Writes the numbers of a row, which are 0 if its index does not count; those for the gradient, the last ones, where
// they are asked for.
template <typename Functor, typename Value, typename Arguments>
TALLOW_INLINE void store_numbers(const Arguments& arguments, uint64_t number, const RowOf<Value, Functor>& row) {
    constexpr uint32_t results = number_results<Functor>, first = row_numbers<Functor>;
    if constexpr (results != 0) {
        const bool counts = !has_row_index<Functor> || row.index != no_index;
        Value row_results[results];
        Functor::template conclude<Value>(row, row_results);
        for (uint32_t r = 0; r < results && arguments.numbers[first + r] != 0; ++r)
            pointer_to<Value>(arguments.numbers[first + r])[number] = counts ? row_results[r] : Value{0};
    }
}

} // namespace tallow
