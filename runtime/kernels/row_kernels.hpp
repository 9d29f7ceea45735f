// Row formulas along the innermost dim: see row_formula.hpp. Rows consist of vectors of N elements: 16 bytes, or, of
// the widest elements, a single one. The last vector of a ragged row is not complete. So the order of a reduction
// follows from the width alone, wherever a row begins. Arguments are AlongRows of row.yaml.
#pragma once

#include "row_derived.hpp"
#include "row_numbers.hpp"
#include "row_ragged.hpp"
#include "row_totals.hpp"

namespace tallow {

// A vector as it is loaded.
template <typename Vector> struct LoadedVector {
    Vector loaded;

    static TALLOW_INLINE LoadedVector of(const Vector& vector) {
        return {vector};
    }
    TALLOW_INLINE const Vector& vector() const {
        return loaded;
    }
};
// Of rows whose operands have several types, elements of ragged vectors are loaded one by one.
template <typename Functor, typename T, uint32_t N, bool Shifted> struct AccessOf {
    using type = LoadedVector<OperandVector<Functor, T, N>>;
};
template <typename Functor, typename T, uint32_t N> struct AccessOf<Functor, T, N, true> {
    using type = RaggedAccesses<T>;
};

// The operands of a row, some of which may be one number, and the residual behind them.
template <typename Functor, typename T, uint32_t N, bool Ragged, typename Arguments> struct RowSources {
    static constexpr uint32_t operands = stored_operands<Functor>;
    using Access = typename AccessOf<Functor, T, N, Ragged && !has_types<Functor>>::type;
    const Arguments& arguments;
    const T* sources[operands];
    // Whether the sums with the residual are in the place of the first operand.
    bool are_sums = false;

    TALLOW_INLINE RowSources(const Arguments& arguments, const uint64_t (&offsets)[operands]) : arguments(arguments) {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            sources[k] = operand_at<Functor, T>(pointer_to<const T>(arguments.sources[k]), k, offsets[k]);
    }
    // The sums with the residual, of row `number`.
    TALLOW_INLINE T* sums(uint32_t number) const {
        return pointer_to<T>(arguments.results[row_outputs<Functor>]) + uint64_t{number} * arguments.length;
    }
    TALLOW_INLINE void take_sums(uint32_t number) {
        sources[0] = sums(number);
        are_sums = true;
    }
    // Brings a vector to the cache.
    TALLOW_INLINE void fetch(uint32_t k, uint32_t index) const {
        fetch_line(operand_at<Functor, T>(sources[k], k, arguments.varying >> k & 1 ? index : 0));
    }
    // The elements from index - skipped on, where a ragged row begins `skipped` elements later.
    TALLOW_INLINE Access load(uint32_t k, uint32_t index, [[maybe_unused]] uint32_t skipped = 0) const {
        const bool is_number = (arguments.varying >> k & 1) == 0;
        if constexpr (has_types<Functor>) {
            const T* const source = operand_at<Functor, T>(sources[k], k, is_number ? 0 : index);
            return Access::of(load_typed<Functor, T, N, Ragged>(k, source, is_number, arguments.length - index));
        } else {
            if (is_absent<Functor>(k, arguments.sources[k]))
                return Access::of(splat<T, N>(convert<T>(static_cast<compute_type<T>>(absent_number<Functor>(k)))));
            if constexpr (N > 1)
                if (is_number)
                    return Access::of(splat<T, N>(*sources[k]));
            if constexpr (Ragged) {
                uint64_t first = arguments.sources[k], last = arguments.ends[k];
                if constexpr (adds_residual<Functor>)
                    if (k == 0 && are_sums) {
                        first = arguments.results[row_outputs<Functor>];
                        last = first + uint64_t{arguments.rows} * arguments.length * sizeof(T);
                    }
                return Access::load(sources[k] + index - skipped, index, skipped, arguments.length, first, last);
            } else {
                return Access::of(load_registers<sizeof(T) * N>(sources[k] + (is_number ? 0 : index)));
            }
        }
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

// A row in the registers of a team. Each thread has every team-th vector.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, bool Ragged, typename Arguments>
struct RowInRegisters {
    using Value = compute_type<T>;
    using Vector = OperandVector<Functor, T, N>;
    using Sources = RowSources<Functor, T, N, Ragged, Arguments>;
    static constexpr uint32_t operands = Functor::operands, stored = stored_operands<Functor>;
    const Arguments& arguments;
    uint32_t number;
    uint32_t length;
    uint32_t lane;
    uint32_t team;
    Vector loaded[operands][Vectors];
    typename DerivedOf<Functor, T, N, Vectors>::type derived[Vectors];

    // Teams behind the last row have one without elements.
    TALLOW_INLINE RowInRegisters(const Arguments& arguments, uint32_t number, const uint64_t (&offsets)[stored],
                                 uint32_t team)
        : arguments(arguments), number(number < arguments.rows ? number : 0),
          length(number < arguments.rows ? arguments.length : 0), lane(place_in_team(team)), team(team) {
        const Sources sources(arguments, offsets);
        typename Sources::Access accesses[operands][Vectors];
#pragma unroll
        for (uint32_t v = 0; v < Vectors; ++v)
#pragma unroll
            for (uint32_t k = 0; k < operands; ++k) {
                accesses[k][v] = {};
                if (is_kept(k) && index(v) < length)
                    accesses[k][v] = sources.load(k, index(v));
                else if (!is_kept(k) && index(v) < length && (arguments.apart >> k & 1) != 0)
                    sources.fetch(k, index(v));
            }
#pragma unroll
        for (uint32_t v = 0; v < Vectors; ++v)
#pragma unroll
            for (uint32_t k = 0; k < operands; ++k)
                loaded[k][v] = accesses[k][v].vector();
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
                pad_vectors<Functor, T, N>(vectors, index(v), length);
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k)
                    loaded[k][v] = vectors[k];
            }
        }
    }
    TALLOW_INLINE void add_residual(const Sources& sources) {
        static_assert((kept_operands<Functor, T, N, Vectors> & 1) != 0, "the sums are kept in registers");
        typename Sources::Access residuals[Vectors];
#pragma unroll
        for (uint32_t v = 0; v < Vectors; ++v) {
            residuals[v] = {};
            if (index(v) < length)
                residuals[v] = sources.load(operands, index(v));
        }
#pragma unroll
        for (uint32_t v = 0; v < Vectors; ++v) {
            loaded[0][v] = add_vectors<T, N>(loaded[0][v], residuals[v].vector());
            if constexpr (Ragged)
                store_ragged(sources.sums(number), index(v), length, loaded[0][v], team < wave_size ? team : wave_size);
            else if (index(v) < length)
                store_registers(sources.sums(number) + index(v), loaded[0][v]);
        }
    }
    static TALLOW_INLINE bool is_kept(uint32_t k) {
        return (kept_operands<Functor, T, N, Vectors> >> k & 1) != 0;
    }
    TALLOW_INLINE uint32_t index(uint32_t v) const {
        return (lane + v * team) * N;
    }
    // The operands that are not in registers. Where the row begins in them is computed again for each pass, which
    // leaves registers to others; most often all rows share them, and there is nothing to compute.
    TALLOW_INLINE Sources locate_again() const {
        uint64_t offsets[stored] = {};
        if ((arguments.apart & ~kept_operands<Functor, T, N, Vectors>) != 0)
            locate(arguments, opaque(number), offsets);
        return Sources(arguments, offsets);
    }
    // Takes vector v of each operand, and gives its index. That is opaque: compilers would keep what they have loaded
    // before, and, in too many scalar registers, which vectors are valid.
    TALLOW_INLINE uint32_t take(const Sources& sources, uint32_t v, Vector (&vectors)[operands]) {
        const uint32_t at = opaque(index(v));
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            vectors[k] =
                is_kept(k) ? packed<Functor, T, N>(k, loaded[k][v]) : sources.load(k, at < length ? at : 0).vector();
        if constexpr (kept_operands<Functor, T, N, Vectors> != (1u << operands) - 1)
            pad_vectors<Functor, T, N>(vectors, at, length);
        return at;
    }
    // The passes from `Pass` on.
    template <uint32_t Pass> TALLOW_INLINE void reduce(RowOf<T, Functor>& row, Team& threads) {
        if constexpr (Pass < Functor::passes) {
            using Joins = typename Functor::template Joined<Pass>;
            const Sources sources = locate_again();
            Value parts[Vectors][Joins::count];
#pragma unroll
            for (uint32_t v = 0; v < Vectors; ++v) {
                Vector vectors[operands];
                const uint32_t at = take(sources, v, vectors);
                Value terms[Joins::count];
                reduce_vector<Pass, Functor, T, N, Ragged>(row, vectors, derived[v], at, length, terms);
                Joins::identities(parts[v]);
#pragma unroll
                for (uint32_t j = 0; j < Joins::count; ++j)
                    parts[v][j] = has_padding<Functor> || at < length ? terms[j] : parts[v][j];
            }
            join_parts<Joins, Vectors / 2>(parts);
            join_team<Joins>(threads, parts[0]);
            finish_pass<Pass>(row, parts[0]);
            reduce<Pass + 1>(row, threads);
        }
    }
    // Writes the results, and adds to the sums over rows of the elements that the thread has.
    template <typename Totals> TALLOW_INLINE void store(const RowOf<T, Functor>& row, Totals& totals) {
        const Sources sources = locate_again();
        const uint64_t first = uint64_t{number} * length;
#pragma unroll
        for (uint32_t v = 0; v < (has_results_of_elements<Functor> ? Vectors : 1); ++v) {
            // One after the other: other threads keep the memory busy, of which more fit if each has fewer registers.
            Vector vectors[operands];
            const uint32_t at = take(sources, v, vectors);
            if (!Ragged && at >= length)
                continue;
            Value results[output_slots<Functor>][N];
            derived[v].template hide<Functor::passes>();
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                compute_element<Functor, T, N>(row, vectors, derived[v], i, at + i, results);
            totals.add(v, results);
            store_numbers<Functor, T, N>(arguments, results, 0, number, at == 0 && length > 0);
            if constexpr (Ragged && has_types<Functor>) {
#pragma unroll
                for (uint32_t r = 0; r < Functor::results; ++r)
                    if (!is_of_rows<Functor>(r))
                        store_before<Functor, T, N>(r, arguments.results[r], results[r], first, at, length);
            } else if constexpr (Ragged) {
#pragma unroll
                for (uint32_t r = 0; r < Functor::results; ++r)
                    if (!is_of_rows<Functor>(r))
                        store_ragged(pointer_to<T>(arguments.results[r]) + first, at, length,
                                     round_vector<T, N>(results[r]), team < wave_size ? team : wave_size);
            } else {
                store_vectors<Functor, T, N>(arguments, results, first + at);
            }
        }
    }
};

// Rows that fit the registers of a team, each read once.
template <typename Functor, typename T, uint32_t N, uint32_t Vectors, bool Ragged = false, typename Arguments>
TALLOW_INLINE void rows_in_registers(const Arguments& arguments) {
    begin_rows<Functor, T>(arguments);
    Team team{arguments.team};
    // Threads of complete vectors have the same positions of all rows.
    constexpr bool has_totals = row_totals<Functor> != 0 && !Ragged;
    TotalsInRegisters<Functor, T, N, Vectors, has_totals> totals;
    visit_rows<stored_operands<Functor>>(
        arguments, [&](uint32_t number, const uint64_t(&offsets)[stored_operands<Functor>]) {
            // The index is asked for first: another load depends on it.
            const uint64_t loaded = load_row_index<Functor>(arguments, number);
            RowInRegisters<Functor, T, N, Vectors, Ragged, Arguments> elements(arguments, number, offsets, team.size);
            RowOf<T, Functor> row = begin_row<Functor, T>(arguments);
            begin_numbers(arguments, number, offsets, loaded, row);
            elements.template reduce<0>(row, team);
            if constexpr (number_results<Functor> != 0) {
                if (number < arguments.rows && team.lane() == 0)
                    conclude_row(arguments, number, row);
            } else {
                elements.store(row, totals);
            }
            if constexpr (row_totals<Functor> != 0 && Ragged)
                if (number < arguments.rows && team.lane() == 0)
                    store_known(arguments, number, row);
        });
    if constexpr (has_totals)
        if (arguments.totals != 0)
            totals.store(arguments, team.size);
}

// How many numbers the passes before `Pass` reduce to.
template <typename Functor, uint32_t Pass>
constexpr uint32_t joined_before = joined_before<Functor, Pass - 1> + Functor::template Joined<Pass - 1>::count;
template <typename Functor> constexpr uint32_t joined_before<Functor, 0> = 0;

// Vectors [begin, end) of a long row, which a block reads again in every pass.
template <typename Functor, typename T, uint32_t N, bool Ragged, typename Arguments> struct RowInPasses {
    using Value = compute_type<T>;
    using Vector = OperandVector<Functor, T, N>;
    static constexpr uint32_t operands = Functor::operands;
    static constexpr uint32_t in_flight = vectors_in_flight<Functor, T, N>;
    using Sources = RowSources<Functor, T, N, Ragged, Arguments>;
    Sources sources;
    uint32_t number;
    // Whether a residual is added to the vectors that are loaded next.
    bool adds;
    uint32_t length;
    uint32_t part;
    uint32_t first_part;
    uint32_t begin;
    uint32_t end;

    // Calls visit(vectors, first) for the vectors that a thread loads at once, which are block_size apart; the row may
    // begin `skipped` elements behind the first one.
    template <typename Visit> TALLOW_INLINE void visit_together(Visit visit, uint32_t skipped = 0) {
        for (uint32_t first = begin + thread_index(); first < end; first += in_flight * block_size) {
            typename Sources::Access accesses[in_flight][operands];
#pragma unroll
            for (uint32_t v = 0; v < in_flight; ++v)
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k)
                    // In the place of a vector behind the end, one that exists.
                    accesses[v][k] =
                        sources.load(k, (is_valid(first, v) ? first + v * block_size : first) * N, skipped);
            Vector vectors[in_flight][operands];
#pragma unroll
            for (uint32_t v = 0; v < in_flight; ++v)
#pragma unroll
                for (uint32_t k = 0; k < operands; ++k)
                    vectors[v][k] = accesses[v][k].vector();
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
            // Opaque, or compilers would keep which elements of all vectors a ragged row has.
            const uint32_t index = opaque((is_valid(first, v) ? first + v * block_size : first) * N);
            vectors[v][0] = add_vectors<T, N>(vectors[v][0], sources.load(operands, index).vector());
            if constexpr (Ragged) {
#pragma unroll
                for (uint32_t i = 0; i < N; ++i)
                    if (index + i < length)
                        sums[index + i] = take_element<T>(vectors[v][0], i);
            } else {
                store_registers(sums + index, vectors[v][0]);
            }
        }
    }
    TALLOW_INLINE bool is_valid(uint32_t first, uint32_t v) const {
        return first + v * block_size < end;
    }
    TALLOW_INLINE void pad(Vector (&vectors)[in_flight][operands], uint32_t first) const {
#pragma unroll
        for (uint32_t v = 0; v < in_flight; ++v)
            pad_vectors<Functor, T, N>(vectors[v], is_valid(first, v) ? (first + v * block_size) * N : length, length);
    }
    // Joins the numbers of a pass for vectors that are loaded.
    template <uint32_t Pass, uint32_t Count>
    TALLOW_INLINE void join_vectors(const RowOf<T, Functor>& row, const Vector (&vectors)[in_flight][operands],
                                    uint32_t first, Value (&numbers)[Count]) const {
#pragma unroll
        for (uint32_t v = 0; v < in_flight; ++v) {
            Value terms[Count];
            // Opaque, or compilers would keep which elements of all vectors a ragged row has.
            const uint32_t vector = opaque(first + v * block_size);
            DerivedValues<Functor, T, N, 0> derived;
            reduce_vector<Pass, Functor, T, N, Ragged>(row, vectors[v], derived, vector * N, length, terms);
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
            constexpr uint32_t stage = Pass - bits_set < rescaled_passes<Functor> & ((2u << Pass) - 1) > ;
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
        uint32_t skipped = 0;
        if constexpr (Ragged && !has_types<Functor>) {
            // Vectors that are whole accesses to the results: the order is free here.
            skipped = elements_before(pointer_to<const T>(arguments.results[0]) + first);
            if (end == length / N + 1)
                end = (length + skipped + N - 1) / N;
        }
        visit_together(
            [&](const Vector(&vectors)[in_flight][operands], uint32_t begins) {
#pragma unroll
                for (uint32_t v = 0; v < in_flight; ++v) {
                    const uint32_t index = (begins + v * block_size) * N;
                    Value results[output_slots<Functor>][N];
                    DerivedValues<Functor, T, N, 0> derived;
#pragma unroll
                    for (uint32_t i = 0; i < N; ++i)
                        compute_element<Functor, T, N>(row, vectors[v], derived, i, index + i - skipped, results);
                    if (results_of_rows<Functor> != 0 && index == 0) {
                        const uint32_t at = opaque(skipped);
#pragma unroll
                        for (uint32_t i = 0; i < N; ++i)
                            store_numbers<Functor, T, N>(arguments, results, i, number, i == at);
                    }
                    if (!is_valid(begins, v))
                        continue;
                    if (!Ragged || (!has_types<Functor> && index >= skipped && index - skipped + N <= length))
                        store_vectors<Functor, T, N>(arguments, results, first + index - skipped);
                    else
                        store_elements(arguments, results, first, index - skipped);
                }
            },
            skipped);
    }
    // Writes those elements of a vector that the row has.
    TALLOW_INLINE void store_elements(const Arguments& arguments, const Value (&results)[output_slots<Functor>][N],
                                      uint64_t first, uint32_t index) const {
#pragma unroll
        for (uint32_t r = 0; r < Functor::results; ++r)
            if (!is_of_rows<Functor>(r))
                store_before<Functor, T, N>(r, arguments.results[r], results[r], first, index, length);
    }
};

// Rows too long for registers, a block for each. Few rows are split into parts, a block for each part: then a launch
// reduces in each pass, and one more computes the results.
template <typename Functor, typename T, uint32_t N, bool Ragged = false, typename Arguments>
TALLOW_INLINE void long_rows(const Arguments& arguments) {
    begin_rows<Functor, T>(arguments);
    Team team{block_size};
    for (uint32_t part = block_index(); part < arguments.rows * arguments.splits; part += grid_blocks()) {
        const uint32_t number = part / arguments.splits;
        const uint32_t first_part = number * arguments.splits;
        const uint32_t begin = (part - first_part) * arguments.chunk;
        const uint32_t left = arguments.length / N + (Ragged ? 1 : 0) - begin;
        uint64_t offsets[stored_operands<Functor>];
        locate(arguments, number, offsets);
        RowInPasses<Functor, T, N, Ragged, Arguments> elements{{arguments, offsets},
                                                               number,
                                                               false,
                                                               arguments.length,
                                                               part,
                                                               first_part,
                                                               begin,
                                                               begin +
                                                                   (left < arguments.chunk ? left : arguments.chunk)};
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
                elements.store(arguments, row, uint64_t{number} * arguments.length);
            }
            if constexpr (row_totals<Functor> != 0)
                if (begin == 0 && thread_index() == 0)
                    store_known(arguments, number, row);
        }
    }
}

} // namespace tallow
