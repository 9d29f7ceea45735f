// Sums over all rows of what their elements add, one for each position in the row: the totals of row formulas (see
// row_formula.hpp), such as gradients of weights. Where threads have the same positions of all rows in registers, each
// adds these up, and a block writes its sums. Else a kernel writes the numbers of each row, and another one computes
// the elements again, a thread for each position of some rows. Last, a kernel joins the sums of all parts in their
// order.
#pragma once

#include "column_sums.hpp"
#include "row_derived.hpp"
#include "row_numbers.hpp"

namespace tallow {

// What a thread has added up at the positions of its vectors.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, bool Adds> struct TotalsInRegisters {
    using Value = compute_type<T>;
    static constexpr uint32_t totals = row_totals<Functor>;
    Value sums[totals][Vectors][N] = {};

    TALLOW_INLINE void add(uint32_t v, const Value (&outputs)[output_slots<Functor>][N]) {
#pragma unroll
        for (uint32_t t = 0; t < totals; ++t)
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                sums[t][v][i] += outputs[Functor::results + t][i];
    }
    // Adds up over the subgroups of the block, and writes the sums of the block.
    template <bool IsShort, typename Arguments>
    TALLOW_INLINE void store(const Arguments& arguments, uint32_t subgroup_size) const {
        __shared__ Value staged[block_size * N];
        const uint32_t together = subgroup_size * N;
#pragma unroll
        for (uint32_t t = 0; t < totals; ++t) {
            Value* const result =
                pointer_to<Value>(arguments.totals) + (uint64_t{block_index()} * totals + t) * arguments.length;
#pragma unroll
            for (uint32_t v = 0; v < Vectors; ++v) {
                synchronize_block();
#pragma unroll
                for (uint32_t i = 0; i < N; ++i)
                    staged[thread_index() * N + i] = sums[t][v][i];
                synchronize_block();
                for (uint32_t c = thread_index(); c < together; c += block_size) {
                    const ThreadVectors<IsShort> own(c / N, subgroup_size, arguments.length, N, arguments.chunk);
                    if (!own.has(v))
                        continue;
                    Value sum = 0;
                    for (uint32_t index = c; index < block_size * N; index += together)
                        sum += staged[index];
                    result[(own.first + own.vector_offset(v)) * N + c % N] = sum;
                }
            }
        }
    }
};
template <typename Functor, typename T, uint32_t N, uint32_t Vectors>
struct TotalsInRegisters<Functor, T, N, Vectors, false> {
    using Value = compute_type<T>;
    TALLOW_INLINE void add(uint32_t, const Value (&)[output_slots<Functor>][N]) const {
    }
};

// Writes the numbers of a row, of which add_up_rows computes its elements.
template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void store_known(const Arguments& arguments, uint32_t number, const RowOf<T, Functor>& row) {
    if (arguments.known == 0)
        return;
    compute_type<T>* const known = pointer_to<compute_type<T>>(arguments.known) + uint64_t{number} * Functor::known;
#pragma unroll
    for (uint32_t j = 0; j < Functor::known; ++j)
        known[j] = row.known[j];
}

// Loads the elements at a position of a row, and what is known of it.
template <typename Functor, typename T, typename Arguments>
TALLOW_INLINE void load_known_row(const Arguments& arguments, uint32_t number, uint32_t position,
                                  RowOf<T, Functor>& row, compute_type<T> (&elements)[row_elements<Functor>]) {
    using Value = compute_type<T>;
    uint64_t offsets[stored_operands<Functor>];
    locate(arguments, number, offsets);
    begin_numbers(arguments, number, offsets, load_row_index<Functor>(arguments, number), row);
    const Value* const known = pointer_to<const Value>(arguments.known) + uint64_t{number} * Functor::known;
#pragma unroll
    for (uint32_t j = 0; j < Functor::known; ++j)
        row.known[j] = known[j];
#pragma unroll
    for (uint32_t k = 0; k < Functor::operands; ++k) {
        const uint64_t offset = offsets[k] + (arguments.varying >> k & 1 ? position : 0);
        const T* const source = operand_at<Functor, T>(pointer_to<const T>(arguments.sources[k]), k, offset);
        if constexpr (has_types<Functor>)
            visit_type(typename Functor::Operands{}, k, LoadElement<Value>{source, elements[k]});
        else
            elements[k] = is_absent<Functor>(k, arguments.sources[k]) ? static_cast<Value>(absent_number<Functor>(k))
                                                                      : to_compute(*source);
    }
}

// So many rows of a thread are loaded at once.
constexpr uint32_t rows_together = 4;

// Threads side by side take the positions of each part of `chunk` rows. Where a row is shorter than a block, its
// threads take several rows at a time.
template <typename Functor, typename T, typename Arguments> TALLOW_INLINE void add_up_rows(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t totals = row_totals<Functor>;
    let_next_kernel_begin();
    await_previous_kernel();
    const uint32_t length = arguments.length;
    uint32_t width = 1;
    while (width < length && width < block_size)
        width *= 2;
    const uint32_t blocks = (length + width - 1) / width, lanes = block_size / width;
    const uint32_t part = block_index() / blocks, lane = thread_index() / width;
    const uint32_t position = (block_index() - part * blocks) * width + thread_index() % width;
    const uint32_t begin = part * arguments.chunk;
    const uint32_t left = arguments.rows - begin;
    const uint32_t end = position < length ? begin + (left < arguments.chunk ? left : arguments.chunk) : begin;
    Value sums[totals] = {};
    for (uint32_t first = begin + lane; first < end; first += rows_together * lanes) {
        RowOf<T, Functor> rows[rows_together];
        Value elements[rows_together][row_elements<Functor>];
#pragma unroll
        for (uint32_t r = 0; r < rows_together; ++r) {
            const uint32_t number = first + r * lanes;
            rows[r] = begin_row<Functor, T>(arguments);
            load_known_row<Functor, T>(arguments, number < end ? number : first, position, rows[r], elements[r]);
        }
#pragma unroll
        for (uint32_t r = 0; r < rows_together; ++r) {
            Value outputs[output_slots<Functor>];
            DerivedValues<Functor, T, 1, 0>{}.template derive<Functor::passes>(rows[r], elements[r], 0, position);
            Functor::template compute<T>(rows[r], elements[r], position, outputs);
#pragma unroll
            for (uint32_t t = 0; t < totals; ++t)
                sums[t] += first + r * lanes < end ? outputs[Functor::results + t] : Value{0};
        }
    }
    Value* const result = pointer_to<Value>(arguments.totals) + uint64_t{part} * totals * length + position;
    __shared__ Value staged[block_size];
#pragma unroll
    for (uint32_t t = 0; t < totals; ++t) {
        synchronize_block();
        staged[thread_index()] = sums[t];
        synchronize_block();
        if (lane == 0 && position < length) {
            Value sum = 0;
            for (uint32_t thread = thread_index(); thread < block_size; thread += width)
                sum += staged[thread];
            result[uint64_t{t} * length] = sum;
        }
    }
}

// Joins the sums of the parts: blocks take turns at the totals, and the threads of one share out the parts of
// `combined_columns` positions, of which a part has 32 bytes side by side.
template <typename T, typename Arguments> TALLOW_INLINE void join_totals(const Arguments& arguments) {
    using Value = compute_type<T>;
    let_next_kernel_begin();
    await_previous_kernel();
    const uint32_t total = block_index() % arguments.totals;
    const uint32_t position = block_index() / arguments.totals * combined_columns + thread_index() % combined_columns;
    const uint64_t result = arguments.results[total];
    const bool is_valid = position < arguments.length && result != 0;
    const Value* const sums = pointer_to<const Value>(arguments.sums) + uint64_t{total} * arguments.length + position;
    const uint64_t step = uint64_t{arguments.totals} * arguments.length;
    const Value sum = sum_of_parts(sums, step, is_valid ? arguments.parts : 0);
    if (thread_index() < combined_columns && is_valid)
        pointer_to<T>(result)[position] = convert<T>(sum);
}

} // namespace tallow
