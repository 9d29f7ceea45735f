// Row formulas along the innermost dim: see row_formula.hpp. Rows consist of vectors of N elements: 16 bytes or, of
// rows whose length is no multiple of it, a word or what a wider element has. So the order of a reduction follows from
// the width alone, wherever a row begins. Arguments are AlongRows of row.yaml.
#pragma once

#include "reread.hpp"
#include "row_in_registers.hpp"

namespace tallow {

// How many numbers the passes before `Pass` reduce to.
template <typename Functor, uint32_t Pass>
constexpr uint32_t reduced_before = reduced_before<Functor, Pass - 1> + Functor::template Reduced<Pass - 1>::count;
template <typename Functor> constexpr uint32_t reduced_before<Functor, 0> = 0;

// Vectors [begin, end) of a long row, which a block reads again in every pass.
template <typename Functor, typename T, uint32_t N, typename Arguments> struct RowInPasses {
    using Value = compute_type<T>;
    using Vector = OperandVector<Functor, T, N>;
    static constexpr uint32_t operands = Functor::operands;
    static constexpr uint32_t in_flight = vectors_in_flight<Functor, T, N>;
    using Sources = RowSources<Functor, T, N, Arguments>;
    Sources sources;
    uint32_t number;
    // Whether a residual is added to the vectors that are loaded next.
    bool adds;
    uint32_t length;
    uint32_t part;
    uint32_t first_part;
    uint32_t begin;
    uint32_t end;

    // Calls visit(vectors, first) for the vectors that a thread loads at once, with a stride of block_size.
    template <typename Visit> TALLOW_INLINE void visit_together(Visit visit) {
        for (uint32_t first = begin + thread_index(); first < end; first += in_flight * block_size) {
            typename Sources::Access accesses[in_flight][operands];
#pragma unroll
            for (uint32_t v = 0; v < in_flight; ++v)
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k) {
                    // Past the end, a vector that exists.
                    const uint32_t index = opaque(is_valid(first, v) ? first + v * block_size : first) * N;
                    accesses[v][k] = sources.load(k, index, is_complete(index));
                }
            Vector vectors[in_flight][operands];
#pragma unroll
            for (uint32_t v = 0; v < in_flight; ++v)
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k)
                    vectors[v][k] = sources.vector(k, accesses[v][k]);
            if constexpr (adds_residual<Functor>)
                if (adds)
                    add_residual(vectors, first);
            visit(vectors, first);
        }
        if constexpr (adds_residual<Functor>)
            if (adds) {
                sources.take_sums(number);
                adds = false;
            }
    }
    TALLOW_INLINE void add_residual(Vector (&vectors)[in_flight][operands], uint32_t first) const {
        T* const sums = sources.sums(number);
#pragma unroll
        for (uint32_t v = 0; v < in_flight; ++v) {
            const uint32_t index = opaque(is_valid(first, v) ? first + v * block_size : first) * N;
            const Vector residual = sources.vector(operands, sources.load(operands, index, is_complete(index)));
            vectors[v][0] = add_vectors<T, N>(vectors[v][0], residual);
            store_one<T, N>(sums, index, vectors[v][0], true, is_complete(index));
        }
    }
    TALLOW_INLINE bool is_valid(uint32_t first, uint32_t v) const {
        return first + v * block_size < end;
    }
    // Whether the row has all elements of a vector.
    TALLOW_INLINE bool is_complete(uint32_t index) const {
        return !are_pairs<T, N> || index + 1 < length;
    }
    TALLOW_INLINE void pad(Vector (&vectors)[in_flight][operands], uint32_t first) const {
#pragma unroll
        for (uint32_t v = 0; v < in_flight; ++v)
            pad_vectors<Functor, T, N>(vectors[v], is_valid(first, v), is_complete((first + v * block_size) * N));
    }
    // Joins the numbers of a pass for vectors that are loaded.
    template <uint32_t Pass, uint32_t Count>
    TALLOW_INLINE void join_vectors(const RowOf<T, Functor>& row, const Vector (&vectors)[in_flight][operands],
                                    uint32_t first, Value (&numbers)[Count]) const {
#pragma unroll
        for (uint32_t v = 0; v < in_flight; ++v) {
            Value terms[Count];
            // Opaque, or compilers would keep in scalar registers which vectors are complete.
            const uint32_t index = opaque(first + v * block_size) * N;
            DerivedValues<Functor, T, N, 0> derived;
            reduce_vector<Pass, Functor, T, N>(row, vectors[v], derived, index, is_complete(index), terms);
            combine_valid<typename Functor::template Reduced<Pass>>(numbers, terms,
                                                                    has_padding<Functor> || is_valid(first, v));
        }
    }
    // The maximum of a pass and the sums of the next one, of this thread's vectors or parts and then of the subgroup.
    template <uint32_t Pass, typename Joins, typename Sums>
    TALLOW_INLINE void reduce_both(const Arguments& arguments, RowOf<T, Functor>& row, Subgroup& subgroup,
                                   const Value* parts, Value (&numbers)[1 + Sums::count]) {
        constexpr uint32_t all_reduced = reduced_before<Functor, Functor::passes>, first_known = Joins::first;
        Value maximum[1], sums[Sums::count];
        Joins::identities(maximum);
        Sums::identities(sums);
        if (parts != nullptr) {
            for (uint32_t i = thread_index(); i < arguments.splits; i += block_size) {
                const Value* const others = parts + uint64_t{first_part + i} * all_reduced;
                const Value old = maximum[0];
                maximum[0] = JoinHighest::combine(old, others[0]);
                rescale(sums, old, maximum[0]);
                Value terms[Sums::count];
#pragma unroll
                for (uint32_t j = 0; j < Sums::count; ++j)
                    terms[j] = others[1 + j];
                rescale(terms, others[0], maximum[0]);
                Sums::combine(sums, terms);
            }
        } else {
            visit_together([&](Vector(&vectors)[in_flight][operands], uint32_t first) {
                pad(vectors, first);
                const Value old = maximum[0];
                join_vectors<Pass>(row, vectors, first, maximum);
                rescale(sums, old, maximum[0]);
                row.known[first_known] = finite_maximum(maximum[0]);
                join_vectors<Pass + 1>(row, vectors, first, sums);
            });
        }
        const Value own = maximum[0];
        all_reduce_subgroup<Joins, block_size>(subgroup, maximum);
        rescale(sums, own, maximum[0]);
        all_reduce_subgroup<Sums, block_size>(subgroup, sums);
        numbers[0] = maximum[0];
#pragma unroll
        for (uint32_t j = 0; j < Sums::count; ++j)
            numbers[1 + j] = sums[j];
    }
    // The passes from `Pass` on. Of a row in several parts, earlier launches have reduced each part in the stages
    // before arguments.stage; a stage is a pass, or a maximum with the sums that follow it. If that is one, this launch
    // writes it, and there are no results yet: then this is false.
    template <uint32_t Pass>
    TALLOW_INLINE bool reduce(const Arguments& arguments, RowOf<T, Functor>& row, Subgroup& subgroup) {
        if constexpr (Pass < Functor::passes) {
            using Joins = typename Functor::template Reduced<Pass>;
            constexpr bool are_both = is_rescaled<Functor, Pass + 1>;
            constexpr uint32_t all_reduced = reduced_before<Functor, Functor::passes>;
            constexpr uint32_t count = reduced_before<Functor, Pass + 1 + are_both> - reduced_before<Functor, Pass>;
            Value* const parts = pointer_to<Value>(arguments.parts) + reduced_before<Functor, Pass>;
            constexpr uint32_t stage = Pass - bits_set<(rescaled_passes<Functor> & ((2u << Pass) - 1))>;
            const bool is_known = arguments.splits > 1 && stage < arguments.stage;
            Value numbers[count];
            if constexpr (are_both) {
                using Sums = typename Functor::template Reduced<Pass + 1>;
                reduce_both<Pass, Joins, Sums>(arguments, row, subgroup, is_known ? parts : nullptr, numbers);
            } else {
                Joins::identities(numbers);
                if (is_known) {
                    for (uint32_t i = thread_index(); i < arguments.splits; i += block_size) {
                        Value others[count];
#pragma unroll
                        for (uint32_t j = 0; j < count; ++j)
                            others[j] = parts[uint64_t{first_part + i} * all_reduced + j];
                        Joins::combine(numbers, others);
                    }
                } else {
                    visit_together([&](Vector(&vectors)[in_flight][operands], uint32_t first) {
                        pad(vectors, first);
                        join_vectors<Pass>(row, vectors, first, numbers);
                    });
                }
                all_reduce_subgroup<Joins, block_size>(subgroup, numbers);
            }
            if (arguments.splits > 1 && stage == arguments.stage) {
                if (thread_index() == 0) {
#pragma unroll
                    for (uint32_t j = 0; j < count; ++j)
                        parts[uint64_t{part} * all_reduced + j] = numbers[j];
                }
                return false;
            }
            if constexpr (are_both)
                finish_both<Pass>(row, numbers);
            else
                finish_pass<Pass>(row, numbers);
            return reduce<Pass + 1 + are_both>(arguments, row, subgroup);
        } else {
            return true;
        }
    }
    TALLOW_INLINE void store(const Arguments& arguments, const RowOf<T, Functor>& row, uint64_t first) {
        if constexpr (!has_results_of_elements<Functor>) {
            if (begin > 0)
                return;
            end = end < block_size ? end : block_size;
        }
        const RowTargets<Functor, T, N> targets(arguments, first);
        visit_together([&](const Vector(&vectors)[in_flight][operands], uint32_t begins) {
#pragma unroll
            for (uint32_t v = 0; v < in_flight; ++v) {
                if (!is_valid(begins, v))
                    continue;
                const uint32_t index = opaque(begins + v * block_size) * N;
                Value results[output_slots<Functor>][N];
                DerivedValues<Functor, T, N, 0> derived;
#pragma unroll
                for (uint32_t i = 0; i < N; ++i)
                    compute_element<Functor, T, N>(row, vectors[v], derived, i, index + i, results);
                if (results_of_rows<Functor> != 0 && index == 0)
                    store_numbers<Functor, T, N>(arguments, results, 0, number, true);
                targets.store(results, index, true, is_complete(index));
            }
        });
    }
};

// Rows too long for registers, a block for each. Few rows are split into parts, a block for each part: then a launch
// reduces in each pass, and one more computes the results.
template <typename Functor, typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void long_rows(const Arguments& launch) {
    begin_rows<Functor, T>(launch, false);
    Subgroup subgroup{block_size};
    for (uint32_t part = block_index(); part < launch.rows * launch.splits; part += grid_blocks()) {
        const Arguments& arguments = reread(launch);
        const uint32_t number = part / arguments.splits;
        const uint32_t first_part = number * arguments.splits;
        const uint32_t begin = (part - first_part) * arguments.chunk;
        const uint32_t left = (arguments.length + N - 1) / N - begin;
        uint64_t offsets[stored_operands<Functor>];
        locate(arguments, number, offsets);
        RowInPasses<Functor, T, N, Arguments> elements{{arguments, offsets},
                                                       number,
                                                       false,
                                                       arguments.length,
                                                       part,
                                                       first_part,
                                                       begin,
                                                       begin + (left < arguments.chunk ? left : arguments.chunk)};
        if constexpr (adds_residual<Functor>) {
            static_assert(Functor::passes > 0, "a pass adds the residual");
            elements.adds =
                arguments.sources[Functor::operands] != 0 && (arguments.splits == 1 || arguments.stage == 0);
            if (arguments.sources[Functor::operands] != 0 && !elements.adds)
                elements.sources.take_sums(number);
        }
        RowOf<T, Functor> row = begin_row<Functor, T>(arguments);
        begin_numbers(arguments, number, offsets, load_row_index<Functor>(arguments, number), row);
        if (elements.template reduce<0>(arguments, row, subgroup)) {
            if constexpr (number_results<Functor> != 0) {
                if (begin == 0 && thread_index() == 0)
                    conclude_row(arguments, number, row);
            } else {
                const Arguments& again = reread(launch);
                elements.store(again, row, uint64_t{number} * again.length);
            }
            if constexpr (row_totals<Functor> != 0)
                if (begin == 0 && thread_index() == 0)
                    store_known(reread(launch), number, row);
        }
    }
}

} // namespace tallow
