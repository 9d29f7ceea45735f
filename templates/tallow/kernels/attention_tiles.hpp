// Attention on matrix cores: a wave takes some tiles of 16 rows, and meets the keys a tile at a time, which the block
// brings to shared memory (Dao 2023, FlashAttention-2). Weights go from the sums of one product to the rows of the
// next.
#pragma once

#include "attention.hpp"
#include "matrix_core.hpp"

namespace tallow {

#if defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)

// Brings tiles of keys and values by turns to shared memory, ahead of the work on them. Size is that of a head, or
// more: what is beyond is 0, and so are keys from `end` on.
template <typename T, uint32_t Size> struct TileLoader {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    // So many keys at once that the shared memory of a block is enough, and the registers for their scores.
#if defined(TALLOW_MATRIX_CORE_WMMA)
    static constexpr uint32_t keys = Size <= 64 ? 64 : Size <= 128 ? 32 : 16;
#else
    static constexpr uint32_t keys = Size <= 128 ? 64 : 32;
#endif
    static constexpr uint32_t bytes = keys * Size * sizeof(T);
    static constexpr uint32_t accesses = bytes / access_bytes / block_size;
    // Where matrix cores cannot read them turned, values are: a line for each element of the head.
    static constexpr bool turns = !MatrixCore<T>::reads_turned;
    using Keys = SharedTile<T, Size, false>;
    using TurnedValues = SharedTile<T, keys, true>;

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

    // Begin with the first tile.
    TALLOW_INLINE void start() {
#if defined(TALLOW_MATRIX_CORE_MMA)
        begin(key_lines, key_stride, 0, 1);
        begin(value_lines, value_stride, 0, 2);
#else
        load<false>(key_lines, key_stride, 0);
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
        load<turns>(value_lines, value_stride, first);
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
        const TurnedValues to{tile(0)};
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
    // The key, and the first element of it, of an access of this thread. Where they are turned, the thread's keys are
    // side by side.
    template <bool Turned> static TALLOW_INLINE uint32_t line(uint32_t access) {
        constexpr uint32_t in_line = Size / length;
        return Turned ? thread_index() / in_line * accesses + access : thread_index() / in_line + access * lines_apart;
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
                copy_async(target, source, is_inside && first + line<false>(i) < end);
                source += lines_apart * stride;
                target += lines_apart * Size * sizeof(T);
            }
        }
        commit_copies();
    }
#else
    template <bool Turned> TALLOW_INLINE void load(const T* lines, uint64_t stride, uint32_t first) {
        if (first < end) {
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i) {
                const uint32_t key = first + line<Turned>(i);
                loaded[i] = load_access(lines + key * stride, element(), key < end ? head_size : 0);
            }
        }
    }
#endif
};

// A wave's rows, and what it has made of the keys so far.
template <typename T, uint32_t Size> struct TileAttention {
    using Core = MatrixCore<T>;
    using Loader = TileLoader<T, Size>;
    static constexpr uint32_t tiles = attention_rows / matrix_side / waves_per_block;
    static_assert(tiles * matrix_side * waves_per_block == attention_rows, "waves have equally many tiles");
    static constexpr uint32_t held = Core::held;
    static constexpr uint32_t steps = Size / matrix_side;
    static constexpr uint32_t columns = Loader::keys / matrix_side;
    // Larger heads leave no registers for the queries, which are loaded for each tile of keys.
    static constexpr bool holds_queries = tiles * steps * Core::words <= 32;

    const T* queries[tiles][held];
    const T* masks[tiles][held];
    uint32_t seen[tiles][held];
    float maxima[tiles][held];
    float totals[tiles][held];
    float sums[tiles][steps][Core::sums];
    typename Core::Rows held_queries[holds_queries ? tiles : 1][holds_queries ? steps : 1];
    uint32_t seen_by_all;
    uint32_t seen_by_any;

    static TALLOW_INLINE uint32_t row(uint32_t tile, uint32_t h) {
        return (wave_index() * tiles + tile) * matrix_side + Core::row(h);
    }

    template <typename Arguments> TALLOW_INLINE TileAttention(const RowsOfHead<Arguments>& rows, uint32_t first_row) {
        const Arguments& arguments = rows.arguments;
        const uint32_t first = first_row + wave_index() * tiles * matrix_side;
        const uint32_t last = first + tiles * matrix_side - 1;
        seen_by_all = last < rows.count ? rows.seen(first) : 0;
        seen_by_any = first < rows.count ? rows.seen(last < rows.count ? last : rows.count - 1) : 0;
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
#pragma unroll
            for (uint32_t h = 0; h < held; ++h) {
                const uint32_t row_of_head = first_row + row(t, h);
                const uint32_t row_that_is = row_of_head < rows.count ? row_of_head : first_row;
                queries[t][h] = rows.template query<T>(row_that_is);
                masks[t][h] = rows.template mask<T>(row_that_is);
                seen[t][h] = rows.seen(row_of_head);
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
                const auto column = Core::read(keys, c * matrix_side, s * matrix_side);
#pragma unroll
                for (uint32_t t = 0; t < tiles; ++t)
                    Core::multiply(scores[t][c], rows[t], column);
            }
        }
    }

    // Makes weights of scores, and brings the sums to the new maxima.
    template <typename Arguments>
    TALLOW_INLINE void weigh(const RowsOfHead<Arguments>& rows, uint32_t first,
                             float (&scores)[tiles][columns][Core::sums]) {
        const Arguments& arguments = rows.arguments;
        // Scores times this factor are exponents of two; only a positive one leaves the largest score the largest.
        float factor = rows.scale();
        if (arguments.mask != 0 || !(factor > 0)) {
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
                    for (uint32_t i = 0; i < Core::sums; ++i) {
                        const uint32_t key = first + c * matrix_side + Core::column(i);
                        float& score = scores[t][c][i];
                        score *= factor;
                        if (arguments.mask != 0)
                            score = multiply_add(rows.masked(masks[t][Core::held_of(i)], key), log2_e, score);
                    }
            factor = 1;
        }
        if (first + Loader::keys > seen_by_all) {
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
                    for (uint32_t i = 0; i < Core::sums; ++i)
                        if (first + c * matrix_side + Core::column(i) >= seen[t][Core::held_of(i)])
                            scores[t][c][i] = -infinity(float{});
        }
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
            float changes[held];
            float subtracted[held];
#pragma unroll
            for (uint32_t h = 0; h < held; ++h) {
                float maximum = maxima[t][h];
#pragma unroll
                for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
                    for (uint32_t i = 0; i < Core::sums; ++i)
                        if (Core::held_of(i) == h)
                            maximum = larger(maximum, scores[t][c][i]);
#pragma unroll
                for (uint32_t partner = Core::first_partner; partner <= Core::last_partner; partner *= 2)
                    maximum = larger(maximum, shuffle_xor(maximum, partner));
                subtracted[h] = finite_maximum(maximum) * factor;
                changes[h] = rough_exp2(multiply_add(maxima[t][h], factor, -subtracted[h]));
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
            bool has_changed = false;
#pragma unroll
            for (uint32_t h = 0; h < held; ++h)
                has_changed |= changes[h] != 1;
            // Behind the first tiles, maxima hardly ever change.
            if (ballot(has_changed) != 0) {
#pragma unroll
                for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
                    for (uint32_t i = 0; i < Core::sums; ++i)
                        sums[t][s][i] *= changes[Core::held_of(i)];
            }
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
                if constexpr (Core::reads_turned)
                    column = Core::read_turned(values, s * matrix_side, c * matrix_side);
                else
                    column = Core::read(values, s * matrix_side, c * matrix_side);
#pragma unroll
                for (uint32_t t = 0; t < tiles; ++t)
                    Core::multiply(sums[t][s], rows[t], column);
            }
        }
    }

    template <typename Arguments>
    TALLOW_INLINE void store(const RowsOfHead<Arguments>& rows, uint32_t first_row) const {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
            float shares[held];
            T* lines[held];
#pragma unroll
            for (uint32_t h = 0; h < held; ++h) {
                float total = totals[t][h];
#pragma unroll
                for (uint32_t partner = Core::first_partner; partner <= Core::last_partner; partner *= 2)
                    total += shuffle_xor(total, partner);
                shares[h] = weighted_mean(1, total);
                const uint32_t row_of_head = first_row + row(t, h);
                lines[h] = row_of_head < rows.count ? rows.template result<T>(row_of_head) : nullptr;
            }
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; i += Core::run) {
                    const uint32_t h = Core::held_of(i);
                    Pack<T, Core::run> pack;
#pragma unroll
                    for (uint32_t j = 0; j < Core::run; ++j)
                        pack.values[j] = round_from<T>(sums[t][s][i + j] * shares[h]);
                    if (lines[h] != nullptr)
                        store_guarded<Core::run>(lines[h], s * matrix_side + Core::column(i), rows.arguments.head_size,
                                                 pack);
                }
        }
    }
};

template <typename T, uint32_t Size, typename Arguments> TALLOW_INLINE void attend_tiles(const Arguments& arguments) {
    using Attention = TileAttention<T, Size>;
    using Loader = TileLoader<T, Size>;
    __shared__ bits128 ring[Loader::slots * Loader::bytes / sizeof(bits128)];
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + attention_rows - 1) / attention_rows;
    const RowsOfHead<Arguments> rows(arguments, block_index() / parts);
    // The last rows see most keys where attention is causal, and begin first.
    const uint32_t first_row = (parts - 1 - block_index() % parts) * attention_rows;
    const uint32_t last_row = count - first_row > attention_rows ? first_row + attention_rows - 1 : count - 1;
    Attention attention(rows, first_row);
    Loader loader;
    loader.ring = reinterpret_cast<uint8_t*>(ring);
    loader.key_lines = rows.template keys<T>();
    loader.value_lines = rows.template values<T>();
    loader.key_stride = arguments.key_strides[2];
    loader.value_stride = arguments.value_strides[2];
    loader.end = rows.seen(last_row);
    loader.head_size = arguments.head_size;
    loader.start();
#pragma unroll 1
    for (uint32_t first = 0; first < loader.end; first += Loader::keys) {
        float scores[Attention::tiles][Attention::columns][Attention::Core::sums];
        const auto keys = loader.take_keys(first);
        const bool is_seen = first < attention.seen_by_any;
        if (is_seen) {
            attention.score(arguments, keys, scores);
            attention.weigh(rows, first, scores);
        }
        const auto values = loader.take_values(first);
        if (is_seen)
            attention.add(values, scores);
    }
    attention.store(rows, first_row);
}

#else

template <typename T, uint32_t Size, typename Arguments> TALLOW_INLINE void attend_tiles(const Arguments& arguments) {
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + attention_rows - 1) / attention_rows;
    const RowsOfHead<Arguments> rows(arguments, block_index() / parts);
    const uint32_t first = block_index() % parts * attention_rows;
#pragma unroll 1
    for (uint32_t row = first; row < count && row < first + attention_rows; row += 8)
        attend_split<T, Size, 8>(rows, row, 0);
}

#endif

} // namespace tallow
