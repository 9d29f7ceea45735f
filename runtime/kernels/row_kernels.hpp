// Row formulas along the innermost dim: see row_formula.hpp. Rows consist of vectors of N elements: 16 bytes or, of
// rows that are not made of such, a word or what a wider element has. So the order of a reduction follows from the
// width alone, wherever a row begins. Arguments are AlongRows of row.yaml.
#pragma once

#include "reread.hpp"
#include "row_derived.hpp"
#include "row_numbers.hpp"
#include "row_totals.hpp"
#include "row_vectors.hpp"

namespace tallow {

// A vector as it is loaded: elements of pairs of several types are loaded one by one.
template <typename Functor, typename T, uint32_t N, bool Pairs> struct AccessOf {
    using type = OperandVector<Functor, T, N>;
};
template <typename Functor, typename T, uint32_t N> struct AccessOf<Functor, T, N, true> {
    using type = WordsOfPair;
};

// The operands of a row from one of its elements on, some of which may be one number, and the residual behind them.
template <typename Functor, typename T, uint32_t N, typename Arguments> struct RowSources {
    static constexpr uint32_t operands = stored_operands<Functor>;
    static constexpr bool has_words = are_pairs<T, N> && !has_types<Functor>;
    using Vector = OperandVector<Functor, T, N>;
    using Access = typename AccessOf<Functor, T, N, has_words>::type;
    const Arguments& arguments;
    // Opaque, or compilers would keep masks of all operands in scalar registers.
    uint32_t with_elements;
    const T* sources[operands];
    // How many bits of the first word of pairs are before the first element.
    uint32_t shifts[has_words ? operands : 1];
    // What the operands have along the row that have one number, or what stands for these that are absent.
    T numbers[operands];

    TALLOW_INLINE RowSources(const Arguments& arguments, const uint64_t (&offsets)[operands], uint32_t first = 0)
        : arguments(arguments), with_elements(opaque(arguments.varying)) {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k) {
            const T* const source = operand_at<Functor, T>(pointer_to<const T>(arguments.sources[k]), k,
                                                           offsets[k] + (is_number(k) ? 0 : first));
            set_source(k, source);
            numbers[k] = convert<T>(static_cast<compute_type<T>>(absent_number<Functor>(k)));
            if (!has_types<Functor> && is_number(k) && arguments.sources[k] != 0)
                numbers[k] = *source;
        }
    }
    TALLOW_INLINE void set_source(uint32_t k, const T* source) {
        if constexpr (has_words) {
            shifts[k] = bits_before(source);
            source -= shifts[k] / 16;
        }
        sources[k] = opaque_pointer<const T>(reinterpret_cast<uint64_t>(source));
    }
    TALLOW_INLINE bool is_number(uint32_t k) const {
        return (with_elements >> k & 1) == 0;
    }
    // The sums with the residual, of row `number`.
    TALLOW_INLINE T* sums(uint32_t number) const {
        return pointer_to<T>(arguments.results[row_outputs<Functor>]) + uint64_t{number} * arguments.length;
    }
    // Has the sums in the place of the first operand.
    TALLOW_INLINE void take_sums(uint32_t number) {
        set_source(0, sums(number));
    }
    // Brings a vector to the cache.
    TALLOW_INLINE void fetch(uint32_t k, uint64_t index) const {
        fetch_line(operand_at<Functor, T>(sources[k], k, is_number(k) ? 0 : index));
    }
    // The vector `index` elements from the first one on, all of which the row has if it `is_complete`, or the first
    // one.
    TALLOW_INLINE Access load(uint32_t k, uint64_t index, bool is_complete) const {
        return is_number(k) ? number(k) : varying(k, index, true, is_complete);
    }
    TALLOW_INLINE Access number(uint32_t k) const {
        if constexpr (has_types<Functor>)
            return load_typed<Functor, T, N, are_pairs<T, N>>(k, sources[k], true, true);
        else if constexpr (has_words)
            return WordsOfPair::of(splat<T, N>(numbers[k]));
        else
            return splat<T, N>(numbers[k]);
    }
    // The same of an operand that has elements along the row; words that are not valid are 0.
    TALLOW_INLINE Access varying(uint32_t k, uint64_t index, [[maybe_unused]] bool is_valid,
                                 [[maybe_unused]] bool is_complete) const {
        if constexpr (has_words)
            return WordsOfPair::load(sources[k] + index, shifts[k], is_valid, is_complete);
        else if constexpr (has_types<Functor>)
            return load_typed<Functor, T, N, are_pairs<T, N>>(k, operand_at<Functor, T>(sources[k], k, index), false,
                                                              is_complete);
        else
            return load_registers<sizeof(T) * N>(sources[k] + index);
    }
    TALLOW_INLINE Vector vector([[maybe_unused]] uint32_t k, const Access& access) const {
        if constexpr (has_words)
            return access.pair(shifts[k]);
        else
            return access;
    }
};

// Joins parts in pairs `Half` apart, and so on, into the first one.
template <typename Joins, uint32_t Half, typename Value, uint32_t Parts>
TALLOW_INLINE void join_parts(Value (&parts)[Parts][Joins::count]) {
    if constexpr (Half > 0) {
#pragma unroll
        for (uint32_t p = 0; p < Half; ++p)
            Joins::combine(parts[p], parts[p + Half]);
        join_parts<Joins, Half / 2>(parts);
    }
}

// Joins the numbers of all threads of a team, for each of them.
template <typename Joins, typename Value> TALLOW_INLINE void join_team(Team& team, Value (&numbers)[Joins::count]) {
    constexpr uint32_t count = Joins::count;
    const uint32_t lanes = team.size < wave_size ? team.size : wave_size;
    for (uint32_t mask = lanes / 2; mask > 0; mask /= 2) {
        Value others[count];
#pragma unroll
        for (uint32_t j = 0; j < count; ++j)
            others[j] = shuffle_xor(numbers[j], mask);
        Joins::combine(numbers, others);
    }
    if (team.size <= wave_size) {
        // Lanes combine in different orders.
        if constexpr (!Joins::are_commutative)
#pragma unroll
            for (uint32_t j = 0; j < count; ++j)
                numbers[j] = shuffle_from(numbers[j], lane_index() & ~(lanes - 1));
        return;
    }
    // Two arrays alternate: a wave that is ahead writes to the one that no other wave still reads.
    __shared__ Value waves[2][waves_per_block][count];
    Value(&joined)[waves_per_block][count] = waves[team.joins++ % 2];
    if (lane_index() == 0)
        copy_numbers<count>(joined[wave_index()], numbers);
    synchronize_block();
    const uint32_t first = wave_index() & ~(team.size / wave_size - 1);
    copy_numbers<count>(numbers, joined[first]);
    for (uint32_t wave = 1; wave < team.size / wave_size; ++wave)
        Joins::combine(numbers, joined[first + wave]);
}

// A row in the registers of a team.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, typename Arguments> struct RowInRegisters {
    using Value = compute_type<T>;
    using Vector = OperandVector<Functor, T, N>;
    using Sources = RowSources<Functor, T, N, Arguments>;
    static constexpr uint32_t operands = Functor::operands, stored = stored_operands<Functor>;
    // So many vectors are reduced side by side; threads of a short row have no more.
    static constexpr uint32_t chains = Vectors < reduce_chains ? Vectors : reduce_chains;
    static constexpr bool is_short = Vectors * N * sizeof(T) <= short_row_bytes;
    // So many vectors of operands that are not in registers are loaded at once; sums over rows leave room for one.
    static constexpr uint32_t together = N * sizeof(T) < access_bytes ? chains : row_totals<Functor> != 0 ? 1 : 2;
    const Arguments& arguments;
    uint32_t number;
    uint32_t length;
    uint32_t team;
    using Own = ThreadVectors<is_short>;
    Own own;
    Vector loaded[operands][Vectors];
    typename DerivedOf<Functor, T, N, Vectors>::type derived[Vectors];

    // Teams behind the last row have one without elements.
    TALLOW_INLINE RowInRegisters(const Arguments& arguments, uint32_t number, const uint64_t (&offsets)[stored],
                                 uint32_t team)
        : arguments(arguments), number(number < arguments.rows ? number : 0),
          length(number < arguments.rows ? arguments.length : 0), team(team),
          own(place_in_team(team), team, length, N, arguments.chunk) {
        const Sources sources(arguments, offsets, own.first * N);
        typename Sources::Access accesses[operands][Vectors];
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k) {
            if (is_kept(k)) {
                load(sources, k, 0, hidden(own), accesses[k]);
            } else if ((arguments.apart >> k & 1) != 0) {
#pragma unroll
                for (uint32_t v = 0; v < Vectors; ++v)
                    if (v < hidden(own).count)
                        sources.fetch(k, own.behind(v) * N);
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
#pragma unroll
            for (uint32_t v = 0; v < Vectors; ++v)
                loaded[k][v] = is_kept(k) ? sources.vector(k, accesses[k][v]) : Vector{};
        if constexpr (adds_residual<Functor>)
            if (arguments.sources[operands] != 0)
                add_residual(sources);
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
        own.count = opaque(own.count);
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
                if (Sources::has_words || w < own.count)
                    accesses[v] = sources.varying(k, own.behind(w) * N, w < own.count, w < own.complete);
            }
        }
    }
    TALLOW_INLINE void pad(Vector (&vectors)[operands], uint32_t v, const Own& own) const {
        pad_vectors<Functor, T, N>(vectors, v < own.count, v < own.complete);
    }
    TALLOW_INLINE void add_residual(const Sources& sources) {
        static_assert((kept_operands<Functor, T, N, Vectors> & 1) != 0, "the sums are kept in registers");
        typename Sources::Access residuals[Vectors];
        load(sources, operands, 0, hidden(own), residuals);
        T* const sums = sources.sums(number) + own.first * N;
#pragma unroll
        for (uint32_t v = 0; v < Vectors; ++v) {
            loaded[0][v] = add_vectors<T, N>(loaded[0][v], sources.vector(operands, residuals[v]));
            const Own there = hidden(own);
            store_one<T, N>(sums, own.behind(v) * N, loaded[0][v], v < there.count, v < there.complete);
        }
    }
    static TALLOW_INLINE bool is_kept(uint32_t k) {
        return (kept_operands<Functor, T, N, Vectors> >> k & 1) != 0;
    }
    TALLOW_INLINE uint32_t index(uint32_t v) const {
        // Opaque, or compilers would keep in scalar registers which elements have the index of their row.
        return ((has_row_index<Functor> ? opaque(own.first) : own.first) + own.behind(v)) * N;
    }
    // The operands that are not in registers. Where the row begins in them is computed again for each pass, which
    // leaves registers to others; most often all rows share them, and there is nothing to compute.
    TALLOW_INLINE Sources locate_again() const {
        uint64_t offsets[stored] = {};
        if ((arguments.apart & ~kept_operands<Functor, T, N, Vectors>) != 0)
            locate(arguments, opaque(number), offsets);
        return Sources(arguments, offsets, opaque(own.first) * N);
    }
    // Loads vectors of the operands that are not in registers, from `begin` on: several at once, as each waits for the
    // cache.
    template <uint32_t Count>
    TALLOW_INLINE void load_others(const Sources& sources, uint32_t begin, const Own& own,
                                   typename Sources::Access (&accesses)[operands][Count]) const {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            if (!is_kept(k))
                load(sources, k, begin, own, accesses[k]);
    }
    // Takes vector v of each operand, if the row has it, of which `accesses` are the operands that are not in
    // registers.
    template <uint32_t Count>
    TALLOW_INLINE void take(const Sources& sources, uint32_t v, const Own& own,
                            const typename Sources::Access (&accesses)[operands][Count], Vector (&vectors)[operands]) {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            vectors[k] =
                is_kept(k) ? packed<Functor, T, N>(k, loaded[k][v]) : sources.vector(k, accesses[k][v % Count]);
        if constexpr (kept_operands<Functor, T, N, Vectors> != (1u << operands) - 1)
            pad(vectors, v, own);
    }
    // The passes from `Pass` on.
    template <uint32_t Pass> TALLOW_INLINE void reduce(RowOf<T, Functor>& row, Team& threads) {
        if constexpr (Pass < Functor::passes) {
            using Joins = typename Functor::template Joined<Pass>;
            const Sources sources = locate_again();
            Value parts[chains][Joins::count];
#pragma unroll
            for (uint32_t j = 0; j < chains; ++j)
                Joins::identities(parts[j]);
#pragma unroll
            for (uint32_t begin = 0; begin < Vectors; begin += chains) {
                const Own there = hidden(own);
                if (begin > 0 && begin >= there.slots)
                    continue;
                typename Sources::Access accesses[operands][together];
#pragma unroll
                for (uint32_t j = 0; j < chains; ++j) {
                    const uint32_t v = begin + j;
                    if (j % together == 0)
                        load_others(sources, v, there, accesses);
                    Vector vectors[operands];
                    take(sources, v, there, accesses, vectors);
                    Value terms[Joins::count];
                    reduce_vector<Pass, Functor, T, N>(row, vectors, derived[v], index(v), v < there.complete, terms);
                    const bool is_valid = has_padding<Functor> || v < there.count;
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
            join_team<Joins>(threads, parts[0]);
            finish_pass<Pass>(row, parts[0]);
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
#pragma unroll
        for (uint32_t begin = 0; begin < stored_vectors; begin += together) {
            const Own there = hidden(own);
            if (begin >= there.count)
                continue;
            // Few at a time: other threads keep the memory busy, of which more fit if each has fewer registers.
            typename Sources::Access accesses[operands][together];
            load_others(sources, begin, there, accesses);
#pragma unroll
            for (uint32_t v = begin; v < begin + together && v < stored_vectors; ++v) {
                // Words take few instructions, and a branch would be one of them.
                if (sizeof(T) * N >= access_bytes && v > begin && v >= there.count)
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
                targets.store(results, own.behind(v) * N, v < there.count, v < there.complete);
            }
        }
    }
};

// Rows that fit the registers of a team, each read once.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, typename Arguments>
TALLOW_INLINE void rows_in_registers(const Arguments& arguments) {
    begin_rows<Functor, T>(arguments, true);
    Team team{arguments.team};
    // Threads of vectors of 16 bytes have room for what they add up at their positions, which are the same in all rows.
    constexpr bool has_totals = row_totals<Functor> != 0 && sizeof(T) * N == access_bytes;
    using Row = RowInRegisters<Functor, T, N, Vectors, Arguments>;
    TotalsInRegisters<Functor, T, N, Vectors, has_totals> totals;
    visit_rows<stored_operands<Functor>>(arguments,
                                         [&](uint32_t number, const uint64_t(&offsets)[stored_operands<Functor>]) {
                                             // The index is asked for first: another load depends on it.
                                             const uint64_t loaded = load_row_index<Functor>(arguments, number);
                                             Row elements(arguments, number, offsets, team.size);
                                             RowOf<T, Functor> row = begin_row<Functor, T>(arguments);
                                             begin_numbers(arguments, number, offsets, loaded, row);
                                             elements.template reduce<0>(row, team);
                                             if constexpr (number_results<Functor> != 0) {
                                                 if (number < arguments.rows && team.lane() == 0)
                                                     conclude_row(arguments, number, row);
                                             } else {
                                                 elements.store(row, totals);
                                             }
                                             if constexpr (row_totals<Functor> != 0 && !has_totals)
                                                 if (number < arguments.rows && team.lane() == 0)
                                                     store_known(arguments, number, row);
                                         });
    if constexpr (has_totals)
        if (arguments.totals != 0)
            totals.template store<Row::is_short>(arguments, team.size);
}

// How many numbers the passes before `Pass` reduce to.
template <typename Functor, uint32_t Pass>
constexpr uint32_t joined_before = joined_before<Functor, Pass - 1> + Functor::template Joined<Pass - 1>::count;
template <typename Functor> constexpr uint32_t joined_before<Functor, 0> = 0;

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

    // Calls visit(vectors, first) for the vectors that a thread loads at once, which are block_size apart.
    template <typename Visit> TALLOW_INLINE void visit_together(Visit visit) {
        for (uint32_t first = begin + thread_index(); first < end; first += in_flight * block_size) {
            typename Sources::Access accesses[in_flight][operands];
#pragma unroll
            for (uint32_t v = 0; v < in_flight; ++v)
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k) {
                    // In the place of a vector behind the end, one that exists.
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
            combine_valid<typename Functor::template Joined<Pass>>(numbers, terms,
                                                                   has_padding<Functor> || is_valid(first, v));
        }
    }
    // The maximum of a pass and the sums of the next one, of this thread's vectors or parts and then of the team.
    template <uint32_t Pass, typename Joins, typename Sums>
    TALLOW_INLINE void reduce_both(const Arguments& arguments, RowOf<T, Functor>& row, Team& team, const Value* parts,
                                   Value (&numbers)[1 + Sums::count]) {
        constexpr uint32_t joined = joined_before<Functor, Functor::passes>, first_known = Joins::first;
        Value maximum[1], sums[Sums::count];
        Joins::identities(maximum);
        Sums::identities(sums);
        if (parts != nullptr) {
            for (uint32_t i = thread_index(); i < arguments.splits; i += block_size) {
                const Value* const others = parts + uint64_t{first_part + i} * joined;
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
        join_team<Joins>(team, maximum);
        rescale(sums, own, maximum[0]);
        join_team<Sums>(team, sums);
        numbers[0] = maximum[0];
#pragma unroll
        for (uint32_t j = 0; j < Sums::count; ++j)
            numbers[1 + j] = sums[j];
    }
    // The passes from `Pass` on. Of a row in several parts, earlier launches have reduced each part in the stages
    // before arguments.stage; a stage is a pass, or a maximum with the sums that follow it. If that is one, this launch
    // writes it, and there are no results yet: then this is false.
    template <uint32_t Pass> TALLOW_INLINE bool reduce(const Arguments& arguments, RowOf<T, Functor>& row, Team& team) {
        if constexpr (Pass < Functor::passes) {
            using Joins = typename Functor::template Joined<Pass>;
            constexpr bool are_both = is_rescaled<Functor, Pass + 1>;
            constexpr uint32_t joined = joined_before<Functor, Functor::passes>;
            constexpr uint32_t count = joined_before<Functor, Pass + 1 + are_both> - joined_before<Functor, Pass>;
            Value* const parts = pointer_to<Value>(arguments.parts) + joined_before<Functor, Pass>;
            constexpr uint32_t stage = Pass - bits_set<(rescaled_passes<Functor> & ((2u << Pass) - 1))>;
            const bool is_known = arguments.splits > 1 && stage < arguments.stage;
            Value numbers[count];
            if constexpr (are_both) {
                using Sums = typename Functor::template Joined<Pass + 1>;
                reduce_both<Pass, Joins, Sums>(arguments, row, team, is_known ? parts : nullptr, numbers);
            } else {
                Joins::identities(numbers);
                if (is_known) {
                    for (uint32_t i = thread_index(); i < arguments.splits; i += block_size) {
                        Value others[count];
#pragma unroll
                        for (uint32_t j = 0; j < count; ++j)
                            others[j] = parts[uint64_t{first_part + i} * joined + j];
                        Joins::combine(numbers, others);
                    }
                } else {
                    visit_together([&](Vector(&vectors)[in_flight][operands], uint32_t first) {
                        pad(vectors, first);
                        join_vectors<Pass>(row, vectors, first, numbers);
                    });
                }
                join_team<Joins>(team, numbers);
            }
            if (arguments.splits > 1 && stage == arguments.stage) {
                if (thread_index() == 0) {
#pragma unroll
                    for (uint32_t j = 0; j < count; ++j)
                        parts[uint64_t{part} * joined + j] = numbers[j];
                }
                return false;
            }
            if constexpr (are_both)
                finish_both<Pass>(row, numbers);
            else
                finish_pass<Pass>(row, numbers);
            return reduce<Pass + 1 + are_both>(arguments, row, team);
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
TALLOW_INLINE void long_rows(const Arguments& given) {
    begin_rows<Functor, T>(given, false);
    Team team{block_size};
    for (uint32_t part = block_index(); part < given.rows * given.splits; part += grid_blocks()) {
        const Arguments& arguments = reread(given);
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
        if (elements.template reduce<0>(arguments, row, team)) {
            if constexpr (number_results<Functor> != 0) {
                if (begin == 0 && thread_index() == 0)
                    conclude_row(arguments, number, row);
            } else {
                const Arguments& again = reread(given);
                elements.store(again, row, uint64_t{number} * again.length);
            }
            if constexpr (row_totals<Functor> != 0)
                if (begin == 0 && thread_index() == 0)
                    store_known(reread(given), number, row);
        }
    }
}

} // namespace tallow
