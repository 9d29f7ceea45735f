// Row formulas along a dim that is not the innermost one: see row_formula.hpp. N rows side by side are a column of
// vectors. Arguments are AlongColumns of row.yaml.
#pragma once

#include "row_derived.hpp"

namespace tallow {

// The most numbers to which one of the first passes reduces.
template <typename Functor, uint32_t Passes>
constexpr uint32_t max_reduced =
    largest<max_reduced<Functor, Passes - 1>, Functor::template Reduced<Passes - 1>::count>;
template <typename Functor> constexpr uint32_t max_reduced<Functor, 0> = 1;

// A thread's part of a column: vectors `down`, down + together and so on. It has up to `Loaded` of them in registers;
// where that is 0, it reads them again in every pass. If `Rescales`, it makes passes of sums that are rescaled with
// those before them.
template <typename Functor, typename T, uint32_t N, uint32_t Loaded, bool Rescales> struct RowColumn {
    using Value = compute_type<T>;
    using Vector = OperandVector<Functor, T, N>;
    static constexpr uint32_t operands = Functor::operands;
    static constexpr uint32_t in_flight = Loaded ? Loaded : vectors_in_flight<Functor, T, N>;
    const T* sources[operands];
    uint64_t along[operands];
    uint32_t across;
    uint32_t length;
    uint32_t down;
    uint32_t together;
    Vector loaded[operands][in_flight];

    template <typename Arguments>
    TALLOW_INLINE RowColumn(const Arguments& arguments, uint32_t outer, uint32_t column)
        : across(arguments.across), length(arguments.length),
          down(subgroups_in(thread_index(), arguments.subgroup_size)),
          together(subgroups_in(block_size, arguments.subgroup_size)) {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k) {
            const uint64_t first = outer * arguments.outer[k] + (across >> k & 1 ? column : 0);
            sources[k] = operand_at<Functor, T>(pointer_to<const T>(arguments.sources[k]), k, first);
            along[k] = arguments.along[k];
        }
        if constexpr (Loaded > 0) {
#pragma unroll
            for (uint32_t v = 0; v < Loaded; ++v)
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k) {
                    loaded[k][v] = Vector{};
                    if (is_resident(k) && down + v * together < length)
                        loaded[k][v] = load(k, down + v * together);
                }
        }
    }
    static TALLOW_INLINE bool is_resident(uint32_t k) {
        return (resident_operands<Functor, T, N, in_flight> >> k & 1) != 0;
    }
    TALLOW_INLINE Vector load(uint32_t k, uint32_t position) const {
        const T* const source = operand_at<Functor, T>(sources[k], k, position * along[k]);
        if constexpr (has_types<Functor>) {
            return load_typed<Functor, T, N, false>(k, source, (across >> k & 1) == 0, true);
        } else {
            if constexpr (N > 1)
                if ((across >> k & 1) == 0)
                    return splat<T, N>(*source);
            return load_registers<sizeof(T) * N>(source);
        }
    }
    // Calls visit(vectors, position) for each vector of the thread, and some past the end.
    template <typename Visit> TALLOW_INLINE void visit(Visit visit) {
        if constexpr (Loaded > 0) {
#pragma unroll
            for (uint32_t v = 0; v < Loaded; ++v) {
                // Opaque as in RowInRegisters.
                const uint32_t position = opaque(down + v * together);
                Vector vectors[operands];
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k)
                    vectors[k] = is_resident(k) ? packed<Functor, T, N>(k, loaded[k][v])
                                                : load(k, position < length ? position : 0);
                visit(vectors, position);
            }
        } else {
            visit_together([&](const Vector(&vectors)[in_flight][operands], uint32_t first) {
#pragma unroll
                for (uint32_t v = 0; v < in_flight; ++v)
                    visit(vectors[v], first + v * together);
            });
        }
    }
    // Calls visit(vectors, first) for the vectors that a thread loads at once, with a stride of `together`.
    template <typename Visit> TALLOW_INLINE void visit_together(Visit visit) const {
        for (uint32_t first = down; first < length; first += in_flight * together) {
            Vector vectors[in_flight][operands];
#pragma unroll
            for (uint32_t v = 0; v < in_flight; ++v)
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k) {
                    // Past the end, a vector that exists.
                    const uint32_t wanted = first + v * together;
                    vectors[v][k] = load(k, wanted < length ? wanted : first);
                }
            visit(vectors, first);
        }
    }
    // Joins the numbers of a pass for element i of a vector.
    template <uint32_t Pass, uint32_t Count>
    TALLOW_INLINE void join_element(const RowOf<T, Functor>& row, const Vector (&vectors)[operands], uint32_t i,
                                    uint32_t position, Value (&numbers)[Count]) const {
        Value elements[row_elements<Functor>];
        Product<Value> terms[Count];
        take_elements<Functor, T, N>(vectors, i, elements);
        DerivedValues<Functor, T, N, 0>{}.template derive<Pass>(row, elements, i, position);
        Functor::template contribute<Pass, T>(row, elements, position, terms);
        combine_valid<typename Functor::template Reduced<Pass>>(numbers, terms, position < length);
    }
    // Joins the numbers of the threads of each column, for each of them.
    template <typename Joins, uint32_t Max>
    TALLOW_INLINE void join_threads(Value (&numbers)[N][Joins::count], Value (&shared)[N][block_size][Max]) const {
        const uint32_t subgroup_size = block_size / together;
        // The numbers of the pass before may still be read.
        synchronize_block();
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            copy_numbers<Joins::count>(shared[i][thread_index()], numbers[i]);
        synchronize_block();
        for (uint32_t half = together / 2; half > 0; half /= 2) {
            if (down < half) {
#pragma unroll
                for (uint32_t i = 0; i < N; ++i) {
                    Value others[Joins::count];
                    copy_numbers<Joins::count>(others, shared[i][thread_index() + half * subgroup_size]);
                    Joins::combine(numbers[i], others);
                    copy_numbers<Joins::count>(shared[i][thread_index()], numbers[i]);
                }
            }
            synchronize_block();
        }
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            copy_numbers<Joins::count>(numbers[i], shared[i][lane_in_subgroup(subgroup_size)]);
    }
    // The maximum of a pass and the sums of the next one.
    template <uint32_t Pass, uint32_t Max>
    TALLOW_INLINE void reduce_both(RowOf<T, Functor> (&rows)[N], Value (&shared)[N][block_size][Max]) const {
        using Joins = typename Functor::template Reduced<Pass>;
        using Sums = typename Functor::template Reduced<Pass + 1>;
        Value maximum[N][1], own[N], sums[N][Sums::count];
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            Joins::identities(maximum[i]);
            Sums::identities(sums[i]);
        }
        visit_together([&](const Vector(&vectors)[in_flight][operands], uint32_t first) {
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                const Value old = maximum[i][0];
#pragma unroll
                for (uint32_t v = 0; v < in_flight; ++v)
                    join_element<Pass>(rows[i], vectors[v], i, first + v * together, maximum[i]);
                rescale(sums[i], old, maximum[i][0]);
                rows[i].known[Joins::first] = finite_maximum(maximum[i][0]);
#pragma unroll
                for (uint32_t v = 0; v < in_flight; ++v)
                    join_element<Pass + 1>(rows[i], vectors[v], i, first + v * together, sums[i]);
            }
        });
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            own[i] = maximum[i][0];
        join_threads<Joins>(maximum, shared);
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            rescale(sums[i], own[i], maximum[i][0]);
        join_threads<Sums>(sums, shared);
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            finish_pass<Pass>(rows[i], maximum[i]);
            finish_pass<Pass + 1>(rows[i], sums[i]);
        }
    }
    // The passes from `Pass` on, of each of the N rows.
    template <uint32_t Pass, uint32_t Max>
    TALLOW_INLINE void reduce(RowOf<T, Functor> (&rows)[N], Value (&shared)[N][block_size][Max]) {
        if constexpr (Rescales && is_rescaled<Functor, Pass + 1>) {
            reduce_both<Pass>(rows, shared);
            reduce<Pass + 2>(rows, shared);
        } else if constexpr (Pass < Functor::passes) {
            using Joins = typename Functor::template Reduced<Pass>;
            Value numbers[N][Joins::count];
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                Joins::identities(numbers[i]);
            visit([&](const Vector(&vectors)[operands], uint32_t position) {
#pragma unroll
                for (uint32_t i = 0; i < N; ++i)
                    join_element<Pass>(rows[i], vectors, i, position, numbers[i]);
            });
            join_threads<Joins>(numbers, shared);
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                finish_pass<Pass>(rows[i], numbers[i]);
            reduce<Pass + 1>(rows, shared);
        }
    }
    template <typename Arguments>
    TALLOW_INLINE void store(const Arguments& arguments, const RowOf<T, Functor> (&rows)[N], uint64_t first,
                             [[maybe_unused]] uint64_t number) {
        const RowTargets<Functor, T, N> targets(arguments, first);
        visit([&](const Vector(&vectors)[operands], uint32_t position) {
            Value results[output_slots<Functor>][N];
            DerivedValues<Functor, T, N, 0> derived;
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                compute_element<Functor, T, N>(rows[i], vectors, derived, i, position, results);
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                store_numbers<Functor, T, N>(arguments, results, i, number + i, position == 0);
            if (position < length)
                targets.store(results, uint64_t{position} * arguments.inner, true, true);
        });
    }
};

// Threads side by side take vectors side by side, and the other threads of the block share out those below. Registers
// cannot hold vectors of more than three operands: these are read again.
template <typename Functor, typename T, uint32_t N, uint32_t Loaded, typename Arguments>
TALLOW_INLINE void rows_in_columns(const Arguments& arguments) {
    begin_rows<Functor, T>(arguments, true);
    __shared__ compute_type<T> shared[N][block_size][max_reduced<Functor, Functor::passes>];
    const uint32_t subgroup_size = arguments.subgroup_size;
    for (uint32_t block = block_index(); block < (arguments.columns + subgroup_size - 1) / subgroup_size;
         block += grid_blocks()) {
        const uint32_t wanted = block * subgroup_size + lane_in_subgroup(subgroup_size);
        const uint32_t number = wanted < arguments.columns ? wanted : 0;
        const uint32_t outer = number / arguments.columns_across;
        const uint32_t column = (number - outer * arguments.columns_across) * N;
        RowColumn<Functor, T, N, (Functor::operands > 3 ? 0 : Loaded), Loaded == 0> elements(arguments, outer, column);
        RowOf<T, Functor> rows[N];
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            rows[i] = begin_row<Functor, T>(arguments);
        elements.template reduce<0>(rows, shared);
        if (wanted < arguments.columns)
            elements.store(arguments, rows, uint64_t{outer} * arguments.length * arguments.inner + column,
                           uint64_t{outer} * arguments.inner + column);
    }
}

} // namespace tallow
