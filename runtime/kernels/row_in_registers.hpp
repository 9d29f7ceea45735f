// Row formulas (see row_formula.hpp) of rows that fit the registers of a subgroup of threads, which reads them once.
#pragma once

#include "row_derived.hpp"
#include "row_numbers.hpp"
#include "row_sources.hpp"
#include "row_totals.hpp"

namespace tallow {

// The most bytes of an operand that a thread has in shared memory.
constexpr uint32_t staged_bytes = 64;

// A row in the registers of a subgroup.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, typename Arguments> struct RowInRegisters {
    using Value = compute_type<T>;
    using Vector = OperandVector<Functor, T, N>;
    using Sources = RowSources<Functor, T, N, Arguments>;
    static constexpr uint32_t operands = Functor::operands, stored = stored_operands<Functor>;
    // So many vectors are reduced side by side; threads of a short row have no more.
    static constexpr uint32_t chains = Vectors < reduce_chains ? Vectors : reduce_chains;
    static constexpr bool is_short = Vectors * N * sizeof(T) <= short_row_bytes;
    // Threads of f64 have no more vectors in longer rows, which take several waves.
    static constexpr bool is_of_a_wave = is_short && sizeof(T) < 8;
    // Vectors are added up in sets of those that are preferred, see ThreadVectors.
    static constexpr uint32_t sets = N * sizeof(T) == access_bytes && Vectors > chains ? Vectors / chains : 1;
    static constexpr uint32_t set_vectors = Vectors / sets;
    static constexpr uint32_t known_operands = resident_operands<Functor, T, N, Vectors> | operands_of_rows<Functor>;
    static constexpr uint32_t others = ((1u << operands) - 1) & ~known_operands;
    // How many vectors of operands that are not in registers are loaded at once: of two operands fewer, and where rows
    // are added up 8 elements.
    static constexpr bool is_word = N * sizeof(T) < access_bytes;
    static constexpr uint32_t max_together = is_word ? chains : 2;
    static constexpr uint32_t together = row_totals<Functor> != 0 && !is_word ? 8 / N
                                         : bits_set<others> > 1               ? max_together / 2
                                                                              : max_together;
    // The operand that is staged where rows are added up, if one fits; else 0.
    static constexpr uint32_t staged =
        row_totals<Functor> != 0 && N * sizeof(T) == access_bytes && Vectors * sizeof(Vector) <= staged_bytes
            ? lowest_bits<others, 1>
            : 0;
    const Arguments& arguments;
    uint32_t number;
    uint32_t length;
    uint32_t subgroup_size;
    const Vector* shared;
    using Own = ThreadVectors<is_short, sets, set_vectors>;
    Own own;
    Vector loaded[operands][Vectors];
    typename DerivedOf<Functor, T, N, Vectors>::type derived[Vectors];

    // Subgroups past the last row have one without elements.
    TALLOW_INLINE RowInRegisters(const Arguments& arguments, uint32_t number, uint32_t subgroup_size,
                                 const Vector* shared = nullptr)
        : arguments(arguments), number(number < arguments.rows ? number : 0),
          length(number < arguments.rows ? arguments.length : 0), subgroup_size(subgroup_size), shared(shared),
          own(lane_in_subgroup(subgroup_size), subgroup_size, length, N, arguments.chunk) {
    }
    // Loads the vectors of the operands that stay in registers.
    TALLOW_INLINE void load(const uint64_t (&offsets)[stored], Vector (&vectors)[operands][Vectors]) const {
        const Sources sources(arguments, offsets, own.first * N);
        typename Sources::Access accesses[operands][Vectors];
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            if (is_resident(k))
                load(sources, k, 0, hidden(own), accesses[k]);
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
#pragma unroll
            for (uint32_t v = 0; v < Vectors; ++v)
                vectors[k][v] = is_resident(k) ? sources.vector(k, accesses[k][v]) : Vector{};
    }
    // Takes the row that is loaded, with the residual.
    TALLOW_INLINE void begin() {
        if ((arguments.per_row & others) != 0)
            fetch_others(locate_again());
        if constexpr (adds_residual<Functor>)
            if (arguments.sources[operands] != 0)
                add_residual(locate_again());
        if constexpr (has_padding<Functor>) {
#pragma unroll
            for (uint32_t v = 0; v < Vectors; ++v) {
                Vector vectors[operands];
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k)
                    vectors[k] = loaded[k][v];
                pad(vectors, v, hidden(own));
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k)
                    loaded[k][v] = vectors[k];
            }
        }
    }
    // The same vectors of which compilers know nothing any more: they would keep in scalar registers which there are.
    static TALLOW_INLINE Own hidden(Own own) {
#pragma unroll
        for (uint32_t set = 0; set < sets; ++set)
            own.counts[set] = opaque(own.counts[set]);
        if constexpr (are_pairs<T, N>)
            own.complete = opaque(own.complete);
        if constexpr (Vectors > chains)
            own.slots = opaque(own.slots);
        return own;
    }
    // Loads vectors of operand k from `begin` on, those that the row has.
    template <uint32_t Count>
    TALLOW_INLINE void load(const Sources& sources, uint32_t k, uint32_t begin, Own own,
                            typename Sources::Access (&accesses)[Count]) const {
        if (sources.is_number(k)) {
            const typename Sources::Access number = sources.number(k);
#pragma unroll
            for (uint32_t v = 0; v < Count; ++v)
                accesses[v] = number;
        } else {
#pragma unroll
            for (uint32_t v = 0; v < Count; ++v) {
                if (v > 0 && v % chains == 0)
                    own = hidden(own);
                const uint32_t w = begin + v;
                accesses[v] = {};
                if (Sources::has_words || own.has(w))
                    accesses[v] = sources.varying(k, own.vector_offset(w) * N, own.has(w), own.is_complete(w));
            }
        }
    }
    // Brings vectors of the operands that are not in registers, and that rows have of their own, to the cache.
    TALLOW_INLINE void fetch_others(const Sources& sources) const {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            if ((arguments.per_row & others) >> k & 1)
#pragma unroll
                for (uint32_t v = 0; v < Vectors; ++v)
                    if (hidden(own).has(v))
                        sources.fetch(k, own.vector_offset(v) * N);
    }
    TALLOW_INLINE void pad(Vector (&vectors)[operands], uint32_t v, const Own& own) const {
        pad_vectors<Functor, T, N>(vectors, own.has(v), own.is_complete(v));
    }
    TALLOW_INLINE void add_residual(const Sources& sources) {
        static_assert((resident_operands<Functor, T, N, Vectors> & 1) != 0, "the sums are resident in registers");
        typename Sources::Access residuals[Vectors];
        load(sources, operands, 0, hidden(own), residuals);
        T* const sums = sources.sums(number) + own.first * N;
#pragma unroll
        for (uint32_t v = 0; v < Vectors; ++v) {
            loaded[0][v] = add_vectors<T, N>(loaded[0][v], sources.vector(operands, residuals[v]));
            const Own there = hidden(own);
            store_one<T, N>(sums, own.vector_offset(v) * N, loaded[0][v], there.has(v), there.is_complete(v));
        }
    }
    static TALLOW_INLINE bool is_resident(uint32_t k) {
        return (resident_operands<Functor, T, N, Vectors> >> k & 1) != 0;
    }
    TALLOW_INLINE const Vector& resident(uint32_t k, uint32_t v) {
        if constexpr (stays_packed<Functor, T, N, Vectors>)
            return packed<Functor, T, N>(k, loaded[k][v]);
        else
            return loaded[k][v];
    }
    TALLOW_INLINE uint32_t index(uint32_t v) const {
        // Opaque, or compilers would keep in scalar registers which elements have the index of their row.
        return ((has_row_index<Functor> ? opaque(own.first) : own.first) + own.vector_offset(v)) * N;
    }
    // The operands that are not in registers. Where the row begins in them is computed again for each pass, which
    // leaves registers to others; most often all rows share them, and there is nothing to compute.
    TALLOW_INLINE Sources locate_again() const {
        uint64_t offsets[stored] = {};
        if ((arguments.per_row & ~known_operands) != 0)
            locate(arguments, opaque(number), offsets);
        return Sources(arguments, offsets, opaque(own.first) * N);
    }
    // Writes the vectors of the operand that is staged, which all rows share, to shared memory.
    TALLOW_INLINE void stage(Vector* vectors) const {
        const Sources sources = locate_again();
        typename Sources::Access accesses[Vectors];
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            if ((staged >> k & 1) != 0) {
                load(sources, k, 0, own, accesses);
#pragma unroll
                for (uint32_t v = 0; v < Vectors; ++v)
                    vectors[v * block_size + thread_index()] = sources.vector(k, accesses[v]);
            }
    }
    // Brings the vectors that stay in registers of a later row to the cache.
    TALLOW_INLINE void fetch_next(uint32_t next) const {
        if (next >= arguments.rows)
            return;
        uint64_t offsets[stored];
        locate(arguments, next, offsets);
        const Sources sources(arguments, offsets, own.first * N);
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            if (is_resident(k) && !sources.is_number(k))
#pragma unroll
                for (uint32_t v = 0; v < Vectors; ++v)
                    if (own.has(v))
                        sources.fetch(k, own.vector_offset(v) * N);
    }
#if defined(TALLOW_HAS_BULK_PREFETCH)
    // Where rows have at least as many bytes written as read, which are all resident, memory has time for the row of a
    // block of each multiprocessor further. Where more are read, this takes longer.
    TALLOW_INLINE void fetch_ahead() const {
        constexpr uint32_t residents = resident_operands<Functor, T, N, Vectors> & ((1u << operands) - 1);
        constexpr uint32_t bytes_read = bits_set<residents> * sizeof(T);
        // Operands of a narrower type have no aligned vectors of 16 bytes.
        if constexpr (bytes_read != 0 && bytes_read == bytes_of_operands<Functor, T, residents> &&
                      bytes_read <= bytes_of_results<Functor, T> && row_totals<Functor> == 0 &&
                      operand_bytes<Functor, T> * N == access_bytes && sizeof(T) * N == access_bytes) {
            const uint32_t next = number + multiprocessors() * subgroups_in(block_size, subgroup_size);
            if (arguments.per_row != residents || subgroup_size < row_subgroup || own.first != 0 ||
                next >= arguments.rows)
                return;
            uint64_t offsets[stored];
            locate(arguments, next, offsets);
            const Sources sources(arguments, offsets);
#pragma unroll
            for (uint32_t k = 0; k < operands; ++k)
                if (is_resident(k) && !sources.is_number(k))
                    fetch_bytes(sources.sources[k], row_bytes<Functor, T>(k, length));
        }
    }
#endif
    // Loads vectors of the operands that are not in registers, from `begin` on: several at once, as each waits for the
    // cache.
    template <uint32_t Count>
    TALLOW_INLINE void load_others(const Sources& sources, uint32_t begin, const Own& own,
                                   typename Sources::Access (&accesses)[operands][Count]) const {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k) {
            if ((others >> k & 1) == 0)
                continue;
            if constexpr (staged != 0) {
                if ((staged & ~arguments.per_row) >> k & 1) {
#pragma unroll
                    for (uint32_t v = 0; v < Count; ++v)
                        accesses[k][v] = shared[(begin + v) * block_size + thread_index()];
                    continue;
                }
            }
            load(sources, k, begin, own, accesses[k]);
        }
    }
    // Takes vector v of each operand, if the row has it, of which `accesses` are the operands that are not in
    // registers.
    template <uint32_t Count>
    TALLOW_INLINE void take(const Sources& sources, uint32_t v, const Own& own,
                            const typename Sources::Access (&accesses)[operands][Count], Vector (&vectors)[operands]) {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            if (!is_number_of_row<Functor>(k))
                vectors[k] = is_resident(k) ? resident(k, v) : sources.vector(k, accesses[k][v % Count]);
        if constexpr (others != 0)
            pad(vectors, v, own);
    }
    // The numbers of a pass for the vectors of a set, from `first` on.
    template <uint32_t Pass>
    TALLOW_INLINE void reduce_set(const RowOf<T, Functor>& row, const Sources& sources, uint32_t first,
                                  Value (&numbers)[Functor::template Reduced<Pass>::count]) {
        using Joins = typename Functor::template Reduced<Pass>;
        Value parts[chains][Joins::count];
#pragma unroll
        for (uint32_t j = 0; j < chains; ++j)
            Joins::identities(parts[j]);
#pragma unroll
        for (uint32_t begin = 0; begin < set_vectors; begin += chains) {
            const Own there = hidden(own);
            if (begin > 0 && begin >= there.slots)
                continue;
            typename Sources::Access accesses[operands][together];
#pragma unroll
            for (uint32_t j = 0; j < chains; ++j) {
                const uint32_t v = first + begin + j;
                if (j % together == 0)
                    load_others(sources, v, there, accesses);
                Vector vectors[operands];
                take(sources, v, there, accesses, vectors);
                Value terms[Joins::count];
                reduce_vector<Pass, Functor, T, N>(row, vectors, derived[v], index(v), there.is_complete(v), terms);
                const bool is_valid = has_padding<Functor> || there.has(v);
                if (begin == 0) {
#pragma unroll
                    for (uint32_t i = 0; i < Joins::count; ++i)
                        parts[j][i] = is_valid ? terms[i] : parts[j][i];
                } else {
                    combine_valid<Joins>(parts[j], terms, is_valid);
                }
            }
        }
        join_parts<Joins, chains / 2>(parts);
        copy_numbers<Joins::count>(numbers, parts[0]);
    }
    // The passes from `Pass` on.
    template <uint32_t Pass> TALLOW_INLINE void reduce(RowOf<T, Functor>& row, Subgroup& threads) {
        if constexpr (Pass < Functor::passes) {
            using Joins = typename Functor::template Reduced<Pass>;
            const Sources sources = locate_again();
            Value numbers[sets][Joins::count];
#pragma unroll
            for (uint32_t set = 0; set < sets; ++set)
                reduce_set<Pass>(row, sources, set * set_vectors, numbers[set]);
            // Where no branch depends on the subgroup, NVIDIA's compiler unpacks elements of 16 bits while lanes
            // exchange numbers, for which there are not enough registers.
            constexpr uint32_t least = is_short || sizeof(T) < sizeof(Value) ? 1 : row_subgroup;
            all_reduce_sets<Joins, least, is_of_a_wave ? row_subgroup : block_size>(threads, numbers);
            finish_pass<Pass>(row, numbers[0]);
            reduce<Pass + 1>(row, threads);
        }
    }
    // The first result of the elements of vector v, which the row has.
    TALLOW_INLINE void compute(const RowOf<T, Functor>& row, uint32_t v, Value (&result)[N]) {
        const Sources sources = locate_again();
        typename Sources::Access accesses[operands][1];
        load_others(sources, v, own, accesses);
        Vector vectors[operands];
        take(sources, v, own, accesses, vectors);
        Value results[output_slots<Functor>][N];
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            compute_element<Functor, T, N>(row, vectors, derived[v], i, index(v) + i, results);
        copy_numbers<N>(result, results[0]);
    }
    // Writes the results, and adds to the sums over rows of the elements that the thread has.
    template <typename Totals> TALLOW_INLINE void store(const RowOf<T, Functor>& row, Totals& totals) {
        const Sources sources = locate_again();
        const RowTargets<Functor, T, N> targets(arguments, uint64_t{number} * length + own.first * N);
        constexpr uint32_t stored_vectors = has_results_of_elements<Functor> ? Vectors : 1;
        // Where adjacent lanes have adjacent vectors, which exist for both or for none of them.
        const bool in_halves = writes_halves<Functor, N> && subgroup_size > 1 && arguments.length % (2 * N) == 0;
#pragma unroll
        for (uint32_t begin = 0; begin < stored_vectors; begin += together) {
            const Own there = hidden(own);
            if (!in_halves && !there.has(begin))
                continue;
            // Few at a time: other threads keep the memory busy, of which more fit if each has fewer registers.
            typename Sources::Access accesses[operands][together];
            load_others(sources, begin, there, accesses);
#pragma unroll
            for (uint32_t v = begin; v < begin + together && v < stored_vectors; ++v) {
                // Words take few instructions, and a branch would be one of them.
                if (sizeof(T) * N >= access_bytes && v > begin && !in_halves && !there.has(v))
                    continue;
                Vector vectors[operands];
                take(sources, v, there, accesses, vectors);
                Value results[output_slots<Functor>][N];
                derived[v].template hide<Functor::passes>();
#pragma unroll
                for (uint32_t i = 0; i < N; ++i)
                    compute_element<Functor, T, N>(row, vectors, derived[v], i, index(v) + i, results);
                totals.add(v, results);
                store_numbers<Functor, T, N>(arguments, results, 0, number, index(v) == 0 && length > 0);
                targets.store(results, own.vector_offset(v) * N, there.has(v), there.is_complete(v), in_halves);
            }
        }
    }
};

// Rows that fit the registers of a subgroup, each read once.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, typename Arguments>
TALLOW_INLINE void rows_in_registers(const Arguments& arguments) {
    begin_rows<Functor, T>(arguments, true);
    // Threads that derive values have no registers for the number of a barrier, and compute more than four blocks do.
    Subgroup subgroup{arguments.subgroup_size, derived_values<Functor> != 0};
    // Threads of vectors of 16 bytes have registers for the sums at their positions, which are the same in all rows.
    constexpr bool has_totals = row_totals<Functor> != 0 && sizeof(T) * N == access_bytes;
    using Row = RowInRegisters<Functor, T, N, Vectors, Arguments>;
    using Vector = typename Row::Vector;
    constexpr uint32_t stored = stored_operands<Functor>;
    TotalsInRegisters<Functor, T, N, Vectors, has_totals> totals;
    // Where blocks take many rows each, a thread has the vectors of an operand that these share in shared memory.
    __shared__ Vector shared[Row::staged != 0 ? Vectors * block_size : 1];
    if constexpr (Row::staged != 0)
        Row(arguments, 0, subgroup.size, shared).stage(shared);
    visit_rows<stored>(arguments, [&](uint32_t number, const uint64_t(&offsets)[stored]) {
        // The index is loaded first: another load depends on it.
        const uint64_t loaded = load_row_index<Functor>(arguments, number);
        Row elements(arguments, number, subgroup.size, shared);
        elements.load(offsets, elements.loaded);
        elements.begin();
        if constexpr (has_totals)
            elements.fetch_next(number + grid_blocks() * subgroups_in(block_size, subgroup.size));
#if defined(TALLOW_HAS_BULK_PREFETCH)
        elements.fetch_ahead();
#endif
        RowOf<T, Functor> row = begin_row<Functor, T>(arguments);
        begin_numbers(arguments, number, offsets, loaded, row);
        elements.template reduce<0>(row, subgroup);
        if constexpr (number_results<Functor> != 0) {
            if (number < arguments.rows && subgroup.lane() == 0)
                conclude_row(arguments, number, row);
        } else {
            elements.store(row, totals);
        }
        if constexpr (row_totals<Functor> != 0 && !has_totals)
            if (number < arguments.rows && subgroup.lane() == 0)
                store_known(arguments, number, row);
    });
    if constexpr (has_totals)
        if (arguments.totals != 0)
            totals.template store<Row::is_short>(arguments, subgroup.size);
}

} // namespace tallow
