// Attention on matrix cores: a wave takes some tiles of 16 rows, and meets the keys a tile at a time, which the block
// brings to shared memory (Dao 2023, FlashAttention-2). Weights go from the sums of one product to the rows of the
// next. Where there are few rows, waves divide each tile of keys instead, and blocks the keys.
#pragma once

#include "attention.hpp"
#include "matrix_core.hpp"

namespace tallow {

template <typename T, uint32_t Size, uint32_t Sharing, typename Arguments>
TALLOW_INLINE void attend_on_matrix_cores(const Arguments& arguments, uint32_t most_rows);

#if defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)

// Only where waves share tiles do blocks split the keys.
template <uint32_t Sharing, typename Arguments> TALLOW_INLINE uint32_t splits_of(const Arguments& arguments) {
    return Sharing > 1 ? arguments.splits : 1;
}

// Copies tiles of keys and of values, alternately, to shared memory before they are needed. Size is that of a head, or
// more: what is beyond is 0, and so are keys from `end` on. So many waves share a tile.
template <typename T, uint32_t Size, uint32_t Sharing> struct TileLoader {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    // So many keys at once that the shared memory of a block is enough, and the registers for their scores.
#if defined(TALLOW_MATRIX_CORE_WMMA)
    static constexpr uint32_t keys = Size <= 64 || (Size <= 128 && Sharing > 1) ? 64 : Size <= 128 ? 32 : 16;
#else
    static constexpr uint32_t keys = Size <= 128 ? 64 : 32;
#endif
    static constexpr uint32_t bytes = keys * Size * sizeof(T);
    static constexpr uint32_t accesses = bytes / access_bytes / block_size;
    // Values are stored transposed, a line for each element of the head, if matrix cores cannot read them transposed.
    static constexpr bool transposes = !MatrixCore<T>::reads_transposed;
    using Keys = SharedTile<T, Size, false>;
    using TransposedValues = SharedTile<T, keys, true>;

#if defined(TALLOW_MATRIX_CORE_MMA)
    static constexpr uint32_t slots = 3;
#else
    static constexpr uint32_t slots = 2;
    Registers<access_bytes> loaded[accesses];
#endif
    uint8_t* ring;
    const T* key_lines;
    const T* value_lines;
    uint64_t key_stride;
    uint64_t value_stride;
    uint32_t end;
    uint32_t head_size;
    uint32_t slot = slots - 1; // in which the tile is that is worked on

    TALLOW_INLINE uint8_t* tile(uint32_t ahead) const {
        return ring + (slot + ahead) % slots * bytes;
    }

    // Begin with the tile of the keys from `first` on.
    TALLOW_INLINE void start(uint32_t first) {
#if defined(TALLOW_MATRIX_CORE_MMA)
        begin(key_lines, key_stride, first, 1);
        begin(value_lines, value_stride, first, 2);
#else
        load<false>(key_lines, key_stride, first);
#endif
    }
    // Wait for the keys from `first` on, or the values. What all threads had before is no longer needed.
    TALLOW_INLINE Keys take_keys(uint32_t first) {
        slot = (slot + 1) % slots;
#if defined(TALLOW_MATRIX_CORE_MMA)
        await_copies<1>();
        synchronize_block();
        begin(key_lines, key_stride, first + keys, 2);
#else
        Keys to{tile(0)};
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i)
            store_registers(to.at(line<false>(i), element()), loaded[i]);
        synchronize_block();
        load<transposes>(value_lines, value_stride, first);
#endif
        return {tile(0)};
    }
    TALLOW_INLINE auto take_values(uint32_t first) {
        slot = (slot + 1) % slots;
#if defined(TALLOW_MATRIX_CORE_MMA)
        await_copies<1>();
        synchronize_block();
        begin(value_lines, value_stride, first + keys, 2);
        return Keys{tile(0)};
#else
        // A thread has some elements of several keys side by side.
        const TransposedValues to{tile(0)};
        constexpr uint32_t together = accesses * sizeof(T);
#pragma unroll
        for (uint32_t e = 0; e < length; ++e) {
            Registers<together> side_by_side{};
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i)
                put_element(side_by_side, i, take_element<T>(loaded[i], e));
            store_registers(to.at(element() + e, line<true>(0)), side_by_side);
        }
        synchronize_block();
        load<false>(key_lines, key_stride, first + keys);
        return to;
#endif
    }

  private:
    static constexpr uint32_t lines_apart = block_size / (Size / length);
    static_assert(lines_apart % 8 == 0, "the accesses of a thread to a tile are permuted alike");
    // The key, and the first element of it, of an access of this thread. Where they are transposed, the thread's keys
    // are side by side.
    template <bool Transposed> static TALLOW_INLINE uint32_t line(uint32_t access) {
        constexpr uint32_t in_line = Size / length;
        return Transposed ? thread_index() / in_line * accesses + access
                          : thread_index() / in_line + access * lines_apart;
    }
    static TALLOW_INLINE uint32_t element() {
        return thread_index() % (Size / length) * length;
    }
#if defined(TALLOW_MATRIX_CORE_MMA)
    TALLOW_INLINE void begin(const T* lines, uint64_t stride, uint32_t first, uint32_t ahead) {
        if (first < end) {
            // What is no key is not read, wherever it would be.
            const T* source = lines + uint64_t{first + line<false>(0)} * stride + element();
            uint8_t* target = Keys{tile(ahead)}.at(line<false>(0), element());
            const bool is_inside = element() < head_size;
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i) {
                copy_async(target, source, is_inside && first + line<false>(i) < end ? access_bytes : 0);
                source += lines_apart * stride;
                target += lines_apart * Size * sizeof(T);
            }
        }
        commit_copies();
    }
#else
    template <bool Transposed> TALLOW_INLINE void load(const T* lines, uint64_t stride, uint32_t first) {
        if (first < end) {
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i) {
                const uint32_t key = first + line<Transposed>(i);
                loaded[i] = load_access(lines + key * stride, element(), key < end ? head_size : 0);
            }
        }
    }
#endif
};

// A wave's rows, and what it has made of the keys so far.
template <typename T, uint32_t Size, uint32_t Sharing> struct TileAttention {
    using Core = MatrixCore<T>;
    using Loader = TileLoader<T, Size, Sharing>;
    static constexpr uint32_t tiles = attention_rows / matrix_side / waves_per_block;
    static_assert(tiles * matrix_side * waves_per_block == attention_rows, "waves have equally many tiles");
    static constexpr uint32_t held = Core::held;
    static constexpr uint32_t steps = Size / matrix_side;
    static constexpr uint32_t columns = Loader::keys / matrix_side / Sharing;
    static_assert(columns * Sharing * matrix_side == Loader::keys, "waves have equally many keys of a tile");
    // Larger heads leave no registers for the queries, which are loaded for each tile of keys.
    static constexpr bool holds_queries = tiles * steps * Core::words <= 32;

    uint32_t first_row;
    uint32_t end_row;
    const T* queries[tiles][held];
    const T* masks[tiles][held];
    uint32_t seen[tiles][held];
    float maxima[tiles][held];
    float totals[tiles][held];
    float sums[tiles][steps][Core::sums];
    typename Core::Rows held_queries[holds_queries ? tiles : 1][holds_queries ? steps : 1];
    uint32_t seen_by_all;
    uint32_t seen_by_any;
    // Scores and maxima times this are exponents of two.
    float factor;

    // Whether scores are scaled before there is a largest one: a mask is added to scaled ones, and only a positive
    // scale leaves the largest the largest.
    template <typename Arguments> static TALLOW_INLINE bool scales_first(const RowsOfHead<Arguments>& rows) {
        return rows.arguments.mask != 0 || !(rows.scale() > 0);
    }
    // Waves side by side share their rows; each has the keys of a tile from its own first one on.
    static TALLOW_INLINE uint32_t first_key() {
        return wave_index() % Sharing * columns * matrix_side;
    }
    TALLOW_INLINE uint32_t first_of_wave() const {
        return first_row + wave_index() / Sharing * tiles * matrix_side;
    }
    TALLOW_INLINE uint32_t row(uint32_t tile, uint32_t h) const {
        return first_of_wave() + tile * matrix_side + Core::row(h);
    }

    template <typename Arguments>
    TALLOW_INLINE TileAttention(const RowsOfHead<Arguments>& rows, uint32_t first_row, uint32_t end_row)
        : first_row(first_row), end_row(end_row) {
        const Arguments& arguments = rows.arguments;
        factor = scales_first(rows) ? 1 : rows.scale();
        const uint32_t first = first_of_wave();
        const uint32_t end = first + tiles * matrix_side;
        seen_by_all = end <= end_row ? rows.seen(first) : 0;
        seen_by_any = first < end_row ? rows.seen((end < end_row ? end : end_row) - 1) : 0;
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
#pragma unroll
            for (uint32_t h = 0; h < held; ++h) {
                const uint32_t row_that_is = row(t, h) < end_row ? row(t, h) : first_row;
                queries[t][h] = rows.template query<T>(row_that_is);
                masks[t][h] = rows.template mask<T>(row_that_is);
                seen[t][h] = rows.seen(row(t, h));
                maxima[t][h] = -infinity(float{});
                totals[t][h] = 0;
            }
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s) {
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    sums[t][s][i] = 0;
                if constexpr (holds_queries)
                    held_queries[t][s] = load_query(arguments.head_size, t, s);
            }
        }
    }

    TALLOW_INLINE typename Core::Rows load_query(uint32_t head_size, uint32_t tile, uint32_t step) const {
        typename Core::Rows loaded;
#pragma unroll
        for (uint32_t w = 0; w < Core::words; ++w) {
            const uint32_t element = step * matrix_side + Core::depth_of_word(w);
            const T* const line = queries[tile][Core::held_of_word(w)];
            loaded.values[w] = element < head_size ? load_registers<4>(line + element).values[0] : 0;
        }
        return loaded;
    }

    // The scores of a tile of keys, from `first` on.
    template <typename Arguments>
    TALLOW_INLINE void score(const Arguments& arguments, const typename Loader::Keys& keys,
                             float (&scores)[tiles][columns][Core::sums]) const {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    scores[t][c][i] = 0;
        constexpr uint32_t unrolled = holds_queries ? steps : 1;
#pragma unroll unrolled
        for (uint32_t s = 0; s < steps; ++s) {
            typename Core::Rows rows[tiles];
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t) {
                if constexpr (holds_queries)
                    rows[t] = held_queries[t][s];
                else
                    rows[t] = load_query(arguments.head_size, t, s);
            }
#pragma unroll
            for (uint32_t c = 0; c < columns; ++c) {
                const auto column = Core::read(keys, first_key() + c * matrix_side, s * matrix_side);
#pragma unroll
                for (uint32_t t = 0; t < tiles; ++t)
                    Core::multiply(scores[t][c], rows[t], column);
            }
        }
    }

    // Calls `change` with each score of a held row, and its key; the first one of the tile is `first`.
    template <typename Change>
    static TALLOW_INLINE void each_score(float (&scores)[columns][Core::sums], uint32_t h, uint32_t first,
                                         const Change& change) {
#pragma unroll
        for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
            for (uint32_t i = 0; i < Core::sums; ++i)
                if (Core::held_of(i) == h)
                    change(first + first_key() + c * matrix_side + Core::column(i), scores[c][i]);
    }

    // Makes weights of scores, and brings the sums to the new maxima.
    template <typename Arguments>
    TALLOW_INLINE void weigh(const RowsOfHead<Arguments>& rows, uint32_t first,
                             float (&scores)[tiles][columns][Core::sums]) {
        const Arguments& arguments = rows.arguments;
        if (scales_first(rows)) {
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < held; ++h) {
                    each_score(scores[t], h, first, [&](uint32_t key, float& score) {
                        score *= rows.scale();
                        if (arguments.mask != 0)
                            score = multiply_add(rows.masked(masks[t][h], key), log2_e, score);
                    });
                }
        }
        if (first + Loader::keys > seen_by_all) {
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < held; ++h) {
                    each_score(scores[t], h, first, [&](uint32_t key, float& score) {
                        if (key >= seen[t][h])
                            score = -infinity(float{});
                    });
                }
        }
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
            float changes[held];
            float subtracted[held];
#pragma unroll
            for (uint32_t h = 0; h < held; ++h) {
                float maximum = maxima[t][h];
                each_score(scores[t], h, first, [&](uint32_t, float& score) { maximum = larger(maximum, score); });
#pragma unroll
                for (uint32_t partner = Core::first_partner; partner <= Core::last_partner; partner *= 2)
                    maximum = larger(maximum, shuffle_xor(maximum, partner));
                subtracted[h] = finite_maximum(maximum) * factor;
                changes[h] = rough_exp2(multiply_add(maxima[t][h], factor, -subtracted[h]));
                subtracted[h] -= weight_exponent<T>;
                maxima[t][h] = maximum;
                totals[t][h] *= changes[h];
            }
#pragma unroll
            for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i) {
                    const uint32_t h = Core::held_of(i);
                    scores[t][c][i] = rough_exp2(multiply_add(scores[t][c][i], factor, -subtracted[h]));
                    totals[t][h] += scores[t][c][i];
                }
#if defined(TALLOW_MATRIX_CORE_MMA)
            // Behind the first tiles, maxima hardly ever change. AMD's compilers need too many registers for the
            // branch.
            bool has_changed = false;
#pragma unroll
            for (uint32_t h = 0; h < held; ++h)
                has_changed |= changes[h] != 1;
            if (ballot(has_changed) == 0)
                continue;
#endif
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    sums[t][s][i] *= changes[Core::held_of(i)];
        }
    }

    // Adds the values, weighted.
    template <typename Tile>
    TALLOW_INLINE void add(const Tile& values, const float (&weights)[tiles][columns][Core::sums]) {
#pragma unroll
        for (uint32_t c = 0; c < columns; ++c) {
            typename Core::Rows rows[tiles];
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
                rows[t] = Core::rows_of(weights[t][c]);
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s) {
                typename Core::Columns column;
                if constexpr (Core::reads_transposed)
                    column = Core::read_transposed(values, s * matrix_side, first_key() + c * matrix_side);
                else
                    column = Core::read(values, s * matrix_side, first_key() + c * matrix_side);
#pragma unroll
                for (uint32_t t = 0; t < tiles; ++t)
                    Core::multiply(sums[t][s], rows[t], column);
            }
        }
    }

    // Calls `change` with a number for each sum of the steps from `first` on, its tile, its held row, and itself.
    template <typename Change> TALLOW_INLINE void each_sum(uint32_t first, uint32_t count, const Change& change) {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    if (s >= first && s < first + count)
                        change((t * count + s - first) * Core::sums + i, t, Core::held_of(i), sums[t][s][i]);
    }

    // Joins what the waves that share their rows have made, in order; the first of them gets it. `shared` is free, and
    // has the size of a loader's ring.
    TALLOW_INLINE void join_waves(bits128* shared) {
        constexpr uint32_t together = 4;
        using Exchanged = float[tiles][together][Core::sums];
        static_assert(sizeof(Exchanged) * block_size / 2 <= Loader::slots * Loader::bytes, "half of the waves hand on");
        float* const numbers = reinterpret_cast<float*>(shared);
        const uint32_t place = wave_index() % Sharing;
#pragma unroll
        for (uint32_t half = Sharing / 2; half > 0; half /= 2) {
            // The threads that hand on, one of each pair, are numbered.
            const uint32_t thread = (wave_index() / Sharing * half + place % half) * wave_size + lane_index();
            const bool gives = place >= half && place < 2 * half;
            float factors[tiles][held];
            float other_factors[tiles][held];
            const auto exchange = [&](uint32_t number, float own) {
                float* const slot = numbers + number * (block_size / 2) + thread;
                if (gives)
                    *slot = own;
                return slot;
            };
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < held; ++h) {
                    exchange(2 * (t * held + h), maxima[t][h]);
                    exchange(2 * (t * held + h) + 1, totals[t][h]);
                }
            synchronize_block();
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < held; ++h) {
                    const float other = numbers[2 * (t * held + h) * (block_size / 2) + thread];
                    const float maximum = larger(maxima[t][h], other);
                    const float subtracted = finite_maximum(maximum) * factor;
                    factors[t][h] = rough_exp2(multiply_add(maxima[t][h], factor, -subtracted));
                    other_factors[t][h] = rough_exp2(multiply_add(other, factor, -subtracted));
                    maxima[t][h] = gives ? maxima[t][h] : maximum;
                    totals[t][h] = totals[t][h] * factors[t][h] +
                                   numbers[(2 * (t * held + h) + 1) * (block_size / 2) + thread] * other_factors[t][h];
                }
            synchronize_block();
#pragma unroll
            for (uint32_t first = 0; first < steps; first += together) {
                each_sum(first, together,
                         [&](uint32_t number, uint32_t, uint32_t, float& sum) { exchange(number, sum); });
                synchronize_block();
                each_sum(first, together, [&](uint32_t number, uint32_t t, uint32_t h, float& sum) {
                    sum = sum * factors[t][h] + numbers[number * (block_size / 2) + thread] * other_factors[t][h];
                });
                synchronize_block();
            }
        }
    }
    // The results of this wave's rows, or where the keys are split its part of them. Every lane must take part.
    template <typename Arguments> TALLOW_INLINE void store(const RowsOfHead<Arguments>& rows, uint32_t split) {
        const Arguments& arguments = rows.arguments;
        const bool is_first = wave_index() % Sharing == 0;
        const uint32_t splits = splits_of<Sharing>(arguments);
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t h = 0; h < held; ++h) {
                float total = totals[t][h];
#pragma unroll
                for (uint32_t partner = Core::first_partner; partner <= Core::last_partner; partner *= 2)
                    total += shuffle_xor(total, partner);
                if (!is_first || row(t, h) >= end_row)
                    continue;
                const float maximum = maxima[t][h] * factor - weight_exponent<T>;
                if (splits > 1) {
                    const PartsOfRow<Size> parts(rows, row(t, h), split);
                    parts.set_state(maximum, total);
                    each_run(t, h, [&](uint32_t column, const float(&values)[Core::run]) {
#pragma unroll
                        for (uint32_t j = 0; j < Core::run; ++j)
                            parts.sums[column + j] = values[j];
                    });
                } else {
                    rows.note_sum(row(t, h), maximum, total);
                    const float share = share_of(total);
                    T* const line = rows.template result<T>(row(t, h));
                    each_run(t, h, [&](uint32_t column, const float(&values)[Core::run]) {
                        Pack<T, Core::run> pack;
#pragma unroll
                        for (uint32_t j = 0; j < Core::run; ++j)
                            pack.values[j] = round_from<T>(values[j] * share);
                        store_guarded<Core::run>(line, column, arguments.head_size, pack);
                    });
                }
            }
    }

  private:
    // Calls `use` with the first column and the values of each run of sums of a held row.
    template <typename Use> TALLOW_INLINE void each_run(uint32_t t, uint32_t h, const Use& use) const {
#pragma unroll
        for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
            for (uint32_t i = 0; i < Core::sums; i += Core::run)
                if (Core::held_of(i) == h) {
                    float values[Core::run];
#pragma unroll
                    for (uint32_t j = 0; j < Core::run; ++j)
                        values[j] = sums[t][s][i + j];
                    use(s * matrix_side + Core::column(i), values);
                }
    }
};

// A block takes attention_rows / Sharing rows, of which it needs at most `most_rows`, and one split of the keys.
template <typename T, uint32_t Size, uint32_t Sharing, typename Arguments>
TALLOW_INLINE void attend_on_matrix_cores(const Arguments& arguments, uint32_t most_rows) {
    using Attention = TileAttention<T, Size, Sharing>;
    using Loader = TileLoader<T, Size, Sharing>;
    __shared__ bits128 ring[Loader::slots * Loader::bytes / sizeof(bits128)];
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + most_rows - 1) / most_rows;
    const uint32_t splits = splits_of<Sharing>(arguments);
    const uint32_t group = block_index() / splits;
    const uint32_t split = block_index() % splits;
    const RowsOfHead<Arguments> rows(arguments, group / parts);
    // The last rows see most keys where attention is causal, and begin first.
    const uint32_t first_row = (parts - 1 - group % parts) * most_rows;
    const uint32_t end_row = count - first_row > most_rows ? first_row + most_rows : count;
    const KeyRange range(rows.seen(end_row - 1), Loader::keys, split, splits);
    Loader loader;
    loader.ring = reinterpret_cast<uint8_t*>(ring);
    loader.key_lines = rows.template keys<T>();
    loader.value_lines = rows.template values<T>();
    loader.key_stride = arguments.key_strides[2];
    loader.value_stride = arguments.value_strides[2];
    loader.end = range.end;
    loader.head_size = arguments.head_size;
    loader.start(range.begin);
    Attention attention(rows, first_row, end_row);
#pragma unroll 1
    for (uint32_t first = range.begin; first < range.end; first += Loader::keys) {
        float scores[Attention::tiles][Attention::columns][Attention::Core::sums];
        const auto keys = loader.take_keys(first);
        const bool is_seen = first + Attention::first_key() < attention.seen_by_any;
        if (is_seen) {
            attention.score(arguments, keys, scores);
            attention.weigh(rows, first, scores);
        }
        const auto values = loader.take_values(first);
        if (is_seen)
            attention.add(values, scores);
    }
    if constexpr (Sharing > 1) {
        synchronize_block();
        attention.join_waves(ring);
    }
    attention.store(rows, split);
    if constexpr (Sharing > 1) {
        static_assert(sizeof(JoinedParts) * block_size <= sizeof(ring), "threads join what they have where tiles were");
        if (splits > 1)
            join_splits<T, Size>(rows, first_row, end_row, ring);
    }
}

#endif

template <typename T, uint32_t Size, typename Arguments> TALLOW_INLINE void attend_tiles(const Arguments& arguments) {
    if constexpr (has_matrix_cores)
        attend_on_matrix_cores<T, Size, 1>(arguments, attention_rows);
    else
        attend_rows<RowAttention<T, Size, 8>>(arguments, attention_rows);
}

template <typename T, uint32_t Size, typename Arguments> TALLOW_INLINE void attend_few(const Arguments& arguments) {
#if defined(TALLOW_MATRIX_CORE_WMMA)
    // Large heads would leave too few registers.
    constexpr bool fits = Size <= 128;
#else
    constexpr bool fits = has_matrix_cores;
#endif
    if constexpr (fits)
        attend_on_matrix_cores<T, Size, Size <= 128 ? 4 : 2>(arguments, attention_few_rows);
    else
        attend_rows<RowAttention<T, Size, 8>>(arguments, attention_few_rows);
}

} // namespace tallow
