// Numbers of rows: operands and results of row formulas (see row_formula.hpp) that have one for each row, and indexes,
// which name an element of each. Arguments are AlongRows of row.yaml.
#pragma once

#include "read_index.hpp"
#include "row_passes.hpp"

namespace tallow {

// The bytes of the index of a row, if it has one.
template <typename Functor, typename Arguments>
TALLOW_INLINE uint64_t load_row_index(const Arguments& arguments, uint32_t number) {
    if constexpr (has_row_index<Functor>) {
        const uint64_t offsets[1] = {uint64_t{number < arguments.rows ? number : 0} * arguments.index_step};
        uint64_t loaded[1];
        load_indexes(arguments, offsets, loaded);
        return loaded[0];
    }
    return 0;
}

// Loads an element of operand k.
template <typename T, typename Functor, typename Arguments>
TALLOW_INLINE void load_number(const Arguments& arguments, uint32_t k, uint64_t offset, compute_type<T>& number) {
    const T* const source = operand_at<Functor, T>(pointer_to<const T>(arguments.sources[k]), k, offset);
    if constexpr (has_types<Functor>)
        visit_type(typename Functor::Operands{}, k, LoadElement<compute_type<T>>{source, number});
    else
        number = to_compute(*source);
}

// Sets the numbers that are operands of a row. Subgroups past the last row have those of the first one.
template <typename T, typename Functor, uint32_t Operands, typename Arguments>
TALLOW_INLINE void load_numbers(const Arguments& arguments, uint32_t number, const uint64_t (&offsets)[Operands],
                                uint64_t loaded, RowOf<T, Functor>& row) {
    using Value = compute_type<T>;
    constexpr uint32_t numbers = row_numbers<Functor>;
    if constexpr (numbers != 0) {
        const uint32_t own = number < arguments.rows ? number : 0;
#pragma unroll
        for (uint32_t i = 0; i < numbers; ++i)
            row.known[i] =
                pointer_to<const Value>(arguments.numbers[i])[(arguments.number_steps >> i & 1) != 0 ? own : 0];
    }
    uint32_t known = numbers;
    if constexpr (operands_of_rows<Functor> != 0)
#pragma unroll
        for (uint32_t k = 0; k < Functor::operands; ++k)
            if (is_number_of_row<Functor>(k))
                load_number<T, Functor>(arguments, k, offsets[k], row.known[known++]);
    if constexpr (has_row_index<Functor>) {
        const uint64_t words[1] = {loaded};
        int64_t rows[1] = {no_row};
        if (index_of(arguments, loaded) != arguments.ignored)
            find_rows(arguments, words, rows);
        row.index = rows[0] == no_row ? no_index : static_cast<uint64_t>(rows[0]);
        // A row that does not count has its first element, so that no load depends on a branch.
        const uint64_t index = rows[0] == no_row ? 0 : row.index;
#pragma unroll
        for (uint32_t k = 0; k < Functor::operands; ++k)
            if ((Functor::at_index >> k & 1) != 0) {
                if (is_absent<Functor>(k, arguments.sources[k])) {
                    row.known[known++] = static_cast<Value>(absent_number<Functor>(k));
                    continue;
                }
                const uint64_t position = (arguments.varying >> k & 1) != 0 ? index : 0;
                load_number<T, Functor>(arguments, k, offsets[k] + position, row.known[known++]);
            }
    }
}

// Sets what is known of a row before its first pass.
template <typename T, typename Functor, uint32_t Operands, typename Arguments>
TALLOW_INLINE void begin_numbers(const Arguments& arguments, uint32_t number, const uint64_t (&offsets)[Operands],
                                 uint64_t loaded, RowOf<T, Functor>& row) {
    load_numbers(arguments, number, offsets, loaded, row);
    begin_constants(row);
}

// Writes the numbers of a row, which are 0 if its index does not count.
template <typename T, typename Functor, typename Arguments>
TALLOW_INLINE void conclude_row(const Arguments& arguments, uint32_t number, const RowOf<T, Functor>& row) {
    using Value = compute_type<T>;
    constexpr uint32_t results = number_results<Functor>, first = row_numbers<Functor>;
    const bool counts = !has_row_index<Functor> || row.index != no_index;
    Value own_results[results];
    Functor::template conclude<T>(row, own_results);
#pragma unroll
    for (uint32_t r = 0; r < results; ++r)
        pointer_to<Value>(arguments.numbers[first + r])[number] = counts ? own_results[r] : Value{0};
}

} // namespace tallow
