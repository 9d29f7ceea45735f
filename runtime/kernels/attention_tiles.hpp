// Attention on matrix cores: a wave takes some tiles of 16 rows, and meets the keys a tile at a time, which the block
// brings to shared memory (Dao 2023, FlashAttention-2). Weights go from the sums of one product to the rows of the
// next. Where there are few rows, waves divide each tile of keys instead, and blocks the keys.
#pragma once

#include "attention.hpp"
#include "group_core.hpp"
#include "tile_memory.hpp"

namespace tallow {

// Whether some waves of a block can wait for each other without the others.
#if defined(TALLOW_MATRIX_CORES_MMA)
constexpr bool has_named_barriers = true;
#else
constexpr bool has_named_barriers = false;
#endif

#if defined(TALLOW_MATRIX_CORES)

// How the waves of a block divide its rows and the keys. Size is that of a head, or more. `Sharing` waves share a tile
// of keys for the same rows. `Subgroups` of waves have tiles of their own, and wait for no other: while one makes
// weights, the other multiplies. Only those of `IsSmall` rows split the keys among blocks. With a mask, or a scale that
// is not positive, it must be one of `IsAny`.
template <typename Element, uint32_t Size, uint32_t Rows, uint32_t Sharing, uint32_t Subgroups, bool IsSmall,
          bool IsAny = IsSmall>
struct AttentionShape {
    using T = Element;
    using Core = MatrixCore<T>;
    static constexpr uint32_t size = Size;
    static constexpr uint32_t rows = Rows;
    static constexpr uint32_t sharing = Sharing;
    static constexpr uint32_t subgroups = Subgroups;
    static constexpr bool is_any = IsAny;
    static constexpr bool is_small = IsSmall;
    // Whether waves read some of their queries from shared memory, because registers cannot hold all.
    static constexpr bool shares_queries = has_named_barriers && !IsSmall && (Subgroups > 1 || Size > 128);
    // The registers for those that stay there.
    static constexpr uint32_t query_words = Subgroups > 1 && Size > 64 ? 0 : 32;
    // So many waves have the same rows.
    static constexpr uint32_t sharing_waves = Sharing * Subgroups;
    static constexpr uint32_t threads = block_size / Subgroups;
    // Tiles of 16 rows of a wave.
    static constexpr uint32_t tiles = Rows * sharing_waves / matrix_side / waves_per_block;
    static_assert(tiles * matrix_side * waves_per_block == Rows * sharing_waves, "waves have equally many tiles");
    // So many keys at once that the shared memory of a block is enough, and the registers for their scores.
#if defined(TALLOW_MATRIX_CORES_WMMA)
    static constexpr uint32_t keys = Size <= 64 || (Size <= 128 && Sharing > 1) ? 64 : Size <= 128 ? 32 : 16;
#else
    static constexpr uint32_t keys = Size <= 128 || shares_queries ? 64 : 32;
#endif

    static TALLOW_INLINE uint32_t subgroup() {
        return wave_index() % Subgroups;
    }
    static TALLOW_INLINE uint32_t thread() {
        return wave_index() / Subgroups * wave_size + lane_index();
    }
    // Waits for the threads of the subgroup.
    static TALLOW_INLINE void synchronize() {
#if defined(TALLOW_MATRIX_CORES_MMA)
        if constexpr (Subgroups > 1) {
            asm volatile("bar.sync %0, %1;" ::"r"(subgroup() + 1), "n"(threads) : "memory");
            return;
        }
#endif
        static_assert(Subgroups == 1 || has_named_barriers, "subgroups wait for themselves alone");
        synchronize_block();
    }
    template <typename Arguments> static TALLOW_INLINE uint32_t splits(const Arguments& arguments) {
        return IsSmall ? arguments.splits : 1;
    }
};

// Copies tiles of keys and of values, alternately, to shared memory before they are needed, by the threads of a
// subgroup. What is beyond the head is 0, and so are keys from `end` on.
template <typename Shape> struct TileLoader {
    using T = typename Shape::T;
    static constexpr uint32_t size = Shape::size;
    static constexpr uint32_t keys = Shape::keys;
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t bytes = keys * size * sizeof(T);
    static constexpr uint32_t accesses = bytes / access_bytes / Shape::threads;
    // Values are stored transposed, a line for each element of the head, if matrix cores cannot read them transposed.
    static constexpr bool transposes = !MatrixCore<T>::reads_transposed;
    using Keys = SharedTile<T, size, false>;
    using TransposedValues = SharedTile<T, keys, true>;

#if defined(TALLOW_MATRIX_CORES_MMA)
    static constexpr uint32_t slots = Shape::shares_queries ? 2 : 3;
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

    // Begin with the subgroup's tile of the keys from `first` on.
    TALLOW_INLINE void start(uint32_t first) {
#if defined(TALLOW_MATRIX_CORES_MMA)
        begin(key_lines, key_stride, first, 1);
        if constexpr (slots == 3)
            begin(value_lines, value_stride, first, 2);
#else
        load<false>(key_lines, key_stride, first);
#endif
    }
    // Wait for the keys from `first` on, or the values. What all threads had before is no longer needed.
    TALLOW_INLINE Keys take_keys(uint32_t first) {
        slot = slots == 2 ? 0 : (slot + 1) % slots;
#if defined(TALLOW_MATRIX_CORES_MMA)
        await_copies<slots - 2>();
        Shape::synchronize();
        if constexpr (slots == 2)
            begin(value_lines, value_stride, first, 1);
        else
            begin(key_lines, key_stride, first + Shape::subgroups * keys, 2);
#else
        Keys to{tile(0)};
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i)
            store_registers(to.at(line<false>(i), element()), loaded[i]);
        Shape::synchronize();
        load<transposes>(value_lines, value_stride, first);
#endif
        return {tile(0)};
    }
    TALLOW_INLINE auto take_values(uint32_t first) {
        slot = slots == 2 ? 1 : (slot + 1) % slots;
#if defined(TALLOW_MATRIX_CORES_MMA)
        await_copies<slots - 2>();
        Shape::synchronize();
        if constexpr (slots == 2)
            begin(key_lines, key_stride, first + Shape::subgroups * keys, 1);
        else
            begin(value_lines, value_stride, first + Shape::subgroups * keys, 2);
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
        Shape::synchronize();
        load<false>(key_lines, key_stride, first + keys);
        return to;
#endif
    }

  private:
    static constexpr uint32_t lines_per_round = Shape::threads / (size / length);
    static_assert(lines_per_round % 8 == 0, "the accesses of a thread to a tile are permuted alike");
    // The key, and the first element of it, of an access of this thread. Where they are transposed, the thread's keys
    // are side by side.
    template <bool Transposed> static TALLOW_INLINE uint32_t line(uint32_t access) {
        constexpr uint32_t in_line = size / length;
        return Transposed ? Shape::thread() / in_line * accesses + access
                          : Shape::thread() / in_line + access * lines_per_round;
    }
    static TALLOW_INLINE uint32_t element() {
        return Shape::thread() % (size / length) * length;
    }
#if defined(TALLOW_MATRIX_CORES_MMA)
    TALLOW_INLINE void begin(const T* lines, uint64_t stride, uint32_t first, uint32_t ahead) {
        if (first < end) {
            // What is no key is not read, wherever it would be.
            const T* source = lines + uint64_t{first + line<false>(0)} * stride + element();
            uint8_t* target = Keys{tile(ahead)}.at(line<false>(0), element());
            const bool is_inside = element() < head_size;
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i) {
                copy_async(target, source, is_inside && first + line<false>(i) < end ? access_bytes : 0);
                source += lines_per_round * stride;
                target += lines_per_round * size * sizeof(T);
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

// A wave's rows, and its partial result for the keys so far.
template <typename Shape> struct TileAttention {
    using T = typename Shape::T;
    using Core = MatrixCore<T>;
    // Of queries and keys, whose depth is that of a head.
    using ScoreCore = MatrixCore<T, matrix_depth>;
    using Loader = TileLoader<Shape>;
    static constexpr uint32_t tiles = Shape::tiles;
    static constexpr uint32_t lane_rows = Core::lane_rows;
    static constexpr uint32_t steps = Shape::size / matrix_side;
    static constexpr uint32_t score_steps = Shape::size / matrix_depth;
    static constexpr uint32_t columns = Shape::keys / matrix_side / Shape::sharing;
    static_assert(columns * Shape::sharing * matrix_side == Shape::keys, "waves have equally many keys of a tile");
    // Larger heads leave no registers for all queries. Where these are not in shared memory they are loaded for each
    // tile of keys.
    static constexpr uint32_t max_resident = Shape::query_words / (tiles * ScoreCore::words);
    static constexpr uint32_t resident_steps = score_steps <= max_resident ? score_steps
                                               : Shape::shares_queries     ? max_resident
                                                                           : 0;
    static constexpr uint32_t shared_steps = Shape::shares_queries ? score_steps - resident_steps : 0;
    using SharedQueries = SharedTile<T, shared_steps == 0 ? 8 * matrix_side : shared_steps * matrix_depth, false>;
    static constexpr uint32_t shared_bytes = Shape::rows * shared_steps * matrix_depth * sizeof(T);

    uint32_t first_row;
    uint32_t end_row;
    const T* queries[tiles][lane_rows];
    float maxima[tiles][lane_rows];
    float totals[tiles][lane_rows];
    float subtracted[tiles][lane_rows];
    float sums[tiles][steps][Core::sums];
    typename ScoreCore::Rows resident_queries[tiles][resident_steps == 0 ? 1 : resident_steps];
    SharedQueries shared_queries;
    uint32_t seen_by_all;
    uint32_t seen_by_any;
    // Scores and maxima times this are exponents of two.
    float factor;

    // Whether scores are scaled before there is a largest one: a mask is added to scaled ones, and only a positive
    // scale leaves the largest the largest.
    template <typename Arguments> static TALLOW_INLINE bool scales_first(const RowsOfHead<Arguments>& rows) {
        return Shape::is_any && (rows.arguments.mask != 0 || !(rows.scale() > 0));
    }
    // Waves side by side share their rows; each has the keys of a tile from its own first one on.
    static TALLOW_INLINE uint32_t first_key() {
        return wave_index() % Shape::sharing_waves / Shape::subgroups * columns * matrix_side;
    }
    TALLOW_INLINE uint32_t first_of_wave() const {
        return first_row + wave_index() / Shape::sharing_waves * tiles * matrix_side;
    }
    TALLOW_INLINE uint32_t row(uint32_t tile, uint32_t h) const {
        return first_of_wave() + tile * matrix_side + Core::row(h);
    }

    TALLOW_INLINE uint32_t row_that_is(uint32_t tile, uint32_t h) const {
        return row(tile, h) < end_row ? row(tile, h) : first_row;
    }

    template <typename Arguments>
    TALLOW_INLINE TileAttention(const RowsOfHead<Arguments>& rows, uint32_t first_row, uint32_t end_row,
                                bits128* shared)
        : first_row(first_row), end_row(end_row), shared_queries{reinterpret_cast<uint8_t*>(shared)} {
        const Arguments& arguments = rows.arguments;
        factor = scales_first(rows) ? 1 : rows.scale();
        const uint32_t first = first_of_wave();
        const uint32_t end = first + tiles * matrix_side;
        seen_by_all = end <= end_row ? rows.seen(first) : 0;
        seen_by_any = first < end_row ? rows.seen((end < end_row ? end : end_row) - 1) : 0;
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
#pragma unroll
            for (uint32_t h = 0; h < lane_rows; ++h) {
                queries[t][h] = rows.template query<T>(row_that_is(t, h));
                maxima[t][h] = -infinity(float{});
                totals[t][h] = 0;
            }
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s) {
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    sums[t][s][i] = 0;
                if (s + 1 <= resident_steps)
                    resident_queries[t][s] = load_query(arguments.head_size, t, s);
            }
        }
    }

#if defined(TALLOW_MATRIX_CORES_MMA)
    // Starts copies of what is shared of the block's queries.
    template <typename Arguments> TALLOW_INLINE void share_queries(const RowsOfHead<Arguments>& rows) const {
        constexpr uint32_t in_row = shared_steps * matrix_depth / Loader::length;
        const uint32_t element = thread_index() % in_row * Loader::length;
        const uint32_t column = resident_steps * matrix_depth + element;
#pragma unroll 1
        for (uint32_t r = thread_index() / in_row; r < Shape::rows; r += block_size / in_row) {
            const T* const line = rows.template query<T>(first_row + r < end_row ? first_row + r : first_row);
            copy_async(shared_queries.at(r, element), line + column,
                       column < rows.arguments.head_size ? access_bytes : 0);
        }
        commit_copies();
    }
#endif

    TALLOW_INLINE typename ScoreCore::Rows load_query(uint32_t head_size, uint32_t tile, uint32_t step) const {
        typename ScoreCore::Rows loaded;
#pragma unroll
        for (uint32_t w = 0; w < ScoreCore::words; ++w) {
            const uint32_t element = step * matrix_depth + ScoreCore::depth_of_word(w);
            const T* const line = queries[tile][ScoreCore::lane_row_of_word(w)];
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
        constexpr uint32_t unrolled = resident_steps > 0 ? score_steps : shared_steps > 0 ? 4 : 1;
#pragma unroll unrolled
        for (uint32_t s = 0; s < score_steps; ++s) {
            typename ScoreCore::Rows rows[tiles];
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t) {
                if (s + 1 <= resident_steps)
                    rows[t] = resident_queries[t][s];
                else if constexpr (shared_steps > 0)
                    rows[t] = ScoreCore::read_rows(shared_queries,
                                                   (wave_index() / Shape::sharing_waves * tiles + t) * matrix_side,
                                                   (s - resident_steps) * matrix_depth);
                else
                    rows[t] = load_query(arguments.head_size, t, s);
            }
#pragma unroll
            for (uint32_t c = 0; c < columns; ++c) {
                const auto column = ScoreCore::read(keys, first_key() + c * matrix_side, s * matrix_depth);
#pragma unroll
                for (uint32_t t = 0; t < tiles; ++t)
                    ScoreCore::multiply(scores[t][c], rows[t], column);
            }
        }
    }

    // Calls `change` with each score of a row of the lane, and its key; the first one of the tile is `first`.
    template <typename Change>
    static TALLOW_INLINE void each_score(float (&scores)[columns][Core::sums], uint32_t h, uint32_t first,
                                         const Change& change) {
#pragma unroll
        for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
            for (uint32_t i = 0; i < Core::sums; ++i)
                if (Core::lane_row_of(i) == h)
                    change(first + first_key() + c * matrix_side + Core::column(i), scores[c][i]);
    }

    // Masks scores and finds their maxima, and the factors by which these rescale earlier sums.
    template <typename Arguments>
    TALLOW_INLINE void find_maxima(const RowsOfHead<Arguments>& rows, uint32_t first,
                                   float (&scores)[tiles][columns][Core::sums], float (&changes)[tiles][lane_rows]) {
        if (scales_first(rows)) {
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < lane_rows; ++h) {
                    const T* const mask = rows.template mask<T>(row_that_is(t, h));
                    each_score(scores[t], h, first, [&](uint32_t key, float& score) {
                        score *= rows.scale();
                        if (rows.arguments.mask != 0)
                            score = multiply_add(rows.masked(mask, key), log2_e, score);
                    });
                }
        }
        if (first + Shape::keys > seen_by_all) {
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < lane_rows; ++h) {
                    // Not known before, so that no register keeps it for the tiles of which all rows see all keys.
                    const uint32_t seen = rows.seen(opaque(row(t, h)));
                    each_score(scores[t], h, first, [&](uint32_t key, float& score) {
                        if (key >= seen)
                            score = -infinity(float{});
                    });
                }
        }
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t h = 0; h < lane_rows; ++h) {
                float maximum = maxima[t][h];
                each_score(scores[t], h, first, [&](uint32_t, float& score) { maximum = larger(maximum, score); });
#pragma unroll
                for (uint32_t partner = Core::first_partner; partner <= Core::last_partner; partner *= 2)
                    maximum = larger(maximum, shuffle_xor(maximum, partner));
                subtracted[t][h] = finite_maximum(maximum) * factor;
                changes[t][h] = approx_exp2(multiply_add(maxima[t][h], factor, -subtracted[t][h]));
                subtracted[t][h] -= weight_exponent<T>;
                maxima[t][h] = maximum;
                totals[t][h] *= changes[t][h];
            }
    }

    // Brings the sums to new maxima.
    TALLOW_INLINE void change_sums(const float (&changes)[tiles][lane_rows]) {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
#if defined(TALLOW_MATRIX_CORES_MMA)
            // Behind the first tiles, maxima hardly ever change. AMD's compilers need too many registers for the
            // branch.
            bool has_changed = false;
#pragma unroll
            for (uint32_t h = 0; h < lane_rows; ++h)
                has_changed |= changes[t][h] != 1;
            if (ballot(has_changed) == 0)
                continue;
#endif
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    sums[t][s][i] *= changes[t][Core::lane_row_of(i)];
        }
    }

    // Makes weights of scores.
    TALLOW_INLINE void weigh(uint32_t t, float (&scores)[Core::sums]) {
#pragma unroll
        for (uint32_t i = 0; i < Core::sums; ++i) {
            const uint32_t h = Core::lane_row_of(i);
            scores[i] = approx_exp2(multiply_add(scores[i], factor, -subtracted[t][h]));
            totals[t][h] += scores[i];
        }
    }

    // Adds the values, weighted. The weights of some keys are computed while the values of the previous ones are
    // multiplied.
    template <typename Tile> TALLOW_INLINE void add(const Tile& values, float (&scores)[tiles][columns][Core::sums]) {
#pragma unroll
        for (uint32_t c = 0; c < columns; ++c) {
            typename Core::Rows rows[tiles];
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t) {
                weigh(t, scores[t][c]);
                rows[t] = Core::rows_of(scores[t][c]);
            }
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

    // Calls `change` with a number for each sum of the steps from `first` on, its tile, its row of the lane, and
    // itself.
    template <typename Change> TALLOW_INLINE void each_sum(uint32_t first, uint32_t count, const Change& change) {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    if (s >= first && s < first + count)
                        change((t * count + s - first) * Core::sums + i, t, Core::lane_row_of(i), sums[t][s][i]);
    }

    // Combines the partial results of waves that share rows, in order; the first of them gets it. `shared` is free, and
    // has the size of a loader's ring.
    TALLOW_INLINE void join_waves(bits128* shared) {
        constexpr uint32_t together = 4;
        using Exchanged = float[tiles][together][Core::sums];
        static_assert(sizeof(Exchanged) * block_size / 2 <= Shape::subgroups * Loader::slots * Loader::bytes,
                      "half of the waves hand on");
        float* const numbers = reinterpret_cast<float*>(shared);
        const uint32_t sharing_index = wave_index() % Shape::sharing_waves;
#pragma unroll
        for (uint32_t half = Shape::sharing_waves / 2; half > 0; half /= 2) {
            // The threads that hand on, one of each pair, are numbered.
            const uint32_t thread =
                (wave_index() / Shape::sharing_waves * half + sharing_index % half) * wave_size + lane_index();
            const bool gives = sharing_index >= half && sharing_index < 2 * half;
            float factors[tiles][lane_rows];
            float other_factors[tiles][lane_rows];
            const auto exchange = [&](uint32_t number, float own) {
                float* const slot = numbers + number * (block_size / 2) + thread;
                if (gives)
                    *slot = own;
                return slot;
            };
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < lane_rows; ++h) {
                    exchange(2 * (t * lane_rows + h), maxima[t][h]);
                    exchange(2 * (t * lane_rows + h) + 1, totals[t][h]);
                }
            synchronize_block();
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < lane_rows; ++h) {
                    const float other = numbers[2 * (t * lane_rows + h) * (block_size / 2) + thread];
                    const float maximum = larger(maxima[t][h], other);
                    const float subtracted = finite_maximum(maximum) * factor;
                    factors[t][h] = approx_exp2(multiply_add(maxima[t][h], factor, -subtracted));
                    other_factors[t][h] = approx_exp2(multiply_add(other, factor, -subtracted));
                    maxima[t][h] = gives ? maxima[t][h] : maximum;
                    totals[t][h] =
                        totals[t][h] * factors[t][h] +
                        numbers[(2 * (t * lane_rows + h) + 1) * (block_size / 2) + thread] * other_factors[t][h];
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
        const bool is_first = wave_index() % Shape::sharing_waves == 0;
        const uint32_t splits = Shape::splits(arguments);
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t h = 0; h < lane_rows; ++h) {
                float total = totals[t][h];
#pragma unroll
                for (uint32_t partner = Core::first_partner; partner <= Core::last_partner; partner *= 2)
                    total += shuffle_xor(total, partner);
                if (!is_first || row(t, h) >= end_row)
                    continue;
                const float maximum = maxima[t][h] * factor - weight_exponent<T>;
                if (splits > 1) {
                    const PartsOfRow<Shape::size> parts(rows, row(t, h), split);
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
    // Calls `use` with the first column and the values of each run of sums of a row of the lane.
    template <typename Use> TALLOW_INLINE void each_run(uint32_t t, uint32_t h, const Use& use) const {
#pragma unroll
        for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
            for (uint32_t i = 0; i < Core::sums; i += Core::run)
                if (Core::lane_row_of(i) == h) {
                    float values[Core::run];
#pragma unroll
                    for (uint32_t j = 0; j < Core::run; ++j)
                        values[j] = sums[t][s][i + j];
                    use(s * matrix_side + Core::column(i), values);
                }
    }
};

// A block takes the rows of its shape, of which it needs at most `max_rows`, and one split of the keys.
template <typename Shape, typename Arguments>
TALLOW_INLINE void attend_on_matrix_cores(const Arguments& arguments, uint32_t max_rows) {
    using T = typename Shape::T;
    using Attention = TileAttention<Shape>;
    using Loader = TileLoader<Shape>;
    constexpr uint32_t ring_bytes = Shape::subgroups * Loader::slots * Loader::bytes;
    constexpr uint32_t shared_bytes = ring_bytes + Attention::shared_bytes;
    bits128* ring;
    if constexpr (Shape::is_small)
        ring = declared_memory<shared_bytes>();
    else
        ring = tile_memory<shared_bytes>();
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + max_rows - 1) / max_rows;
    const uint32_t splits = Shape::splits(arguments);
    const uint32_t group = block_index() / splits;
    const uint32_t split = block_index() % splits;
    const RowsOfHead<Arguments> rows(arguments, group / parts);
    // The last rows see most keys where attention is causal, and begin first.
    const uint32_t first_row = (parts - 1 - group % parts) * max_rows;
    const uint32_t end_row = count - first_row > max_rows ? first_row + max_rows : count;
    const KeyRange range(rows.seen(end_row - 1), Shape::keys, split, splits);
    const uint32_t begin = range.begin + Shape::subgroup() * Shape::keys;
    Loader loader;
    loader.ring = reinterpret_cast<uint8_t*>(ring) + Shape::subgroup() * Loader::slots * Loader::bytes;
    loader.key_lines = rows.template keys<T>();
    loader.value_lines = rows.template values<T>();
    loader.key_stride = arguments.key_strides[2];
    loader.value_stride = arguments.value_strides[2];
    loader.end = range.end;
    loader.head_size = arguments.head_size;
    loader.start(begin);
    Attention attention(rows, first_row, end_row, ring + ring_bytes / sizeof(bits128));
#if defined(TALLOW_MATRIX_CORES_MMA)
    if constexpr (Attention::shared_steps > 0) {
        attention.share_queries(rows);
        await_copies<0>();
        synchronize_block();
    }
#endif
#pragma unroll 1
    for (uint32_t first = begin; first < range.end; first += Shape::subgroups * Shape::keys) {
        float scores[Attention::tiles][Attention::columns][Attention::Core::sums];
        const auto keys = loader.take_keys(first);
        const bool is_seen = first + Attention::first_key() < attention.seen_by_any;
        if (is_seen) {
            attention.score(arguments, keys, scores);
            float changes[Attention::tiles][Attention::lane_rows];
            attention.find_maxima(rows, first, scores, changes);
            attention.change_sums(changes);
        }
        const auto values = loader.take_values(first);
        if (is_seen)
            attention.add(values, scores);
    }
    if constexpr (Shape::sharing_waves > 1) {
        synchronize_block();
        attention.join_waves(ring);
    }
    attention.store(rows, split);
    if constexpr (Shape::sharing_waves > 1) {
        static_assert(sizeof(PartialAttention) * block_size <= ring_bytes,
                      "threads join what they have where tiles were");
        if (splits > 1)
            join_splits<T, Shape::size>(rows, first_row, end_row, splits, ring);
    }
}

#endif

#if defined(TALLOW_HAS_WGMMA)

// A block whose groups of waves multiply together has 128 rows.
template <typename Element, uint32_t Size, bool IsAny> struct GroupShape {
    using T = Element;
    using Core = MatrixCore<T>;
    static constexpr uint32_t size = Size;
    static constexpr uint32_t rows = groups_per_block * group_rows;
    static constexpr uint32_t keys = Size <= 128 && !IsAny ? 128 : 64;
    // Groups that alternate are up to a tile out of step, which takes one more slot.
    static constexpr bool alternates = Size <= 128;
    static constexpr uint32_t slots = alternates ? 3 : 2;
    static constexpr uint32_t sharing = 1;
    static constexpr uint32_t subgroups = 1;
    static constexpr uint32_t sharing_waves = 1;
    static constexpr uint32_t threads = block_size;
    static constexpr uint32_t tiles = 1;
    static constexpr uint32_t query_words = 0;
    static constexpr bool shares_queries = false;
    static constexpr bool is_any = IsAny;
    static constexpr bool is_small = false;

    template <typename Arguments> static TALLOW_INLINE uint32_t splits(const Arguments&) {
        return 1;
    }
};

// Lines of keys, or of values, of which a thread copies some accesses, a tile after the other.
template <typename T, uint32_t Size, uint32_t Rows> struct GroupLines {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t in_line = Size / length;
    static constexpr uint32_t lines_per_round = block_size / in_line;
    static_assert(lines_per_round % 8 == 0 && Rows % lines_per_round == 0,
                  "the accesses of a thread are permuted alike");
    using Operand = GroupOperand<T, true, Rows>;

    const T* source;
    uint64_t stride;
    int left;
    uint32_t bytes;

    // The first line of a thread, and the first element of it.
    static TALLOW_INLINE uint32_t line() {
        return thread_index() / in_line;
    }
    static TALLOW_INLINE uint32_t element() {
        return thread_index() % in_line * length;
    }
    TALLOW_INLINE GroupLines(const T* lines, uint64_t stride, uint32_t count, uint32_t head_size)
        : source(lines + line() * stride + element()), stride(stride), left(static_cast<int>(count - line())),
          bytes(element() < head_size ? access_bytes : 0) {
    }
    // Starts to copy the next tile; lines past the last one are zeros.
    TALLOW_INLINE void prefetch(uint32_t tile) {
        const uint32_t target = tile + Operand::offset(line(), element());
#pragma unroll
        for (uint32_t i = 0; i < Rows / lines_per_round; ++i) {
            copy_async(target + i * lines_per_round * Operand::row_bytes, source,
                       static_cast<int>(i * lines_per_round) < left ? bytes : 0);
            source += lines_per_round * stride;
        }
        left -= static_cast<int>(Rows);
    }
};

// Waits for the other one of two groups to release this one.
TALLOW_INLINE void await_group(uint32_t group) {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(block_size) : "memory");
}
TALLOW_INLINE void release_group(uint32_t group) {
    asm volatile("bar.arrive %0, %1;" ::"r"(group + 1), "n"(block_size) : "memory");
}

// The weights of a tile of keys are computed while the values of the previous one are multiplied (Shah et al. 2024,
// FlashAttention-3).
template <typename Shape, typename Arguments> TALLOW_INLINE void attend_by_groups(const Arguments& arguments) {
    using T = typename Shape::T;
    using Attention = TileAttention<Shape>;
    using Core = typename Shape::Core;
    constexpr uint32_t size = Shape::size;
    constexpr uint32_t keys = Shape::keys;
    using Queries = GroupOperand<T, true, Shape::rows>;
    using Keys = GroupOperand<T, true, keys>;
    using Values = GroupOperand<T, false, keys>;
    constexpr uint32_t slots = Shape::slots;
    constexpr uint32_t queries_bytes = Shape::rows * size * sizeof(T);
    constexpr uint32_t tile_bytes = keys * size * sizeof(T);
    constexpr uint32_t all_bytes = queries_bytes + 2 * slots * tile_bytes;
    const uint32_t queries = shared_address(tile_memory<all_bytes + slots * SharedBarrier::bytes>());
    const uint32_t ring_of_keys = queries + queries_bytes;
    const uint32_t ring_of_values = ring_of_keys + slots * tile_bytes;
    const auto barrier = [&](uint32_t slot) {
        return SharedBarrier{queries + all_bytes + slot * SharedBarrier::bytes};
    };
    if (thread_index() < slots)
        barrier(thread_index()).template initialize<block_size>();
    synchronize_block();
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + Shape::rows - 1) / Shape::rows;
    const RowsOfHead<Arguments> rows(arguments, block_index() / parts);
    // The last rows see most keys where attention is causal, and begin first.
    const uint32_t first_row = (parts - 1 - block_index() % parts) * Shape::rows;
    const uint32_t end_row = count - first_row > Shape::rows ? first_row + Shape::rows : count;
    const uint32_t end = rows.seen(end_row - 1);
    {
        using Lines = GroupLines<T, size, Shape::rows>;
#pragma unroll 1
        for (uint32_t row = Lines::line(); row < Shape::rows; row += Lines::lines_per_round) {
            const T* const line = rows.template query<T>(first_row + row < end_row ? first_row + row : first_row);
            copy_async(queries + Queries::offset(row, Lines::element()), line + Lines::element(),
                       first_row + row < end_row && Lines::element() < arguments.head_size ? access_bytes : 0);
        }
    }
    using Lines = GroupLines<T, size, keys>;
    Lines lines_of_keys(rows.template keys<T>(), arguments.key_strides[2], end, arguments.head_size);
    Lines lines_of_values(rows.template values<T>(), arguments.value_strides[2], end, arguments.head_size);
    lines_of_keys.prefetch(ring_of_keys);
    barrier(0).arrive_after_copies();
    Attention attention(rows, first_row, end_row, nullptr);
    float scores[1][Attention::columns][Core::sums] = {};
    typename Core::Rows weights[Attention::columns];
    auto& all_scores = reinterpret_cast<float(&)[keys / 2]>(scores);
    auto& sums = reinterpret_cast<float(&)[size / 2]>(attention.sums);
    const uint32_t group = group_index();
    const Queries own_queries{queries + group * (group_rows * Queries::row_bytes)};
    // Waits for the keys of a tile, and the values of the one before, and begins to multiply the keys.
    const auto multiply_keys = [&](uint32_t slot, uint32_t phase) {
        barrier(slot).await(phase);
        show_products_shared();
        begin_products();
#pragma unroll
        for (uint32_t first_element = 0; first_element < size; first_element += matrix_side) {
            const uint64_t rows_of_group = own_queries.describe(0, first_element);
            const uint64_t lines = Keys{ring_of_keys + slot * tile_bytes}.describe(0, first_element);
            if (first_element == 0)
                multiply_group<T, true, true, false>(all_scores, rows_of_group, lines);
            else
                multiply_group<T, true, true>(all_scores, rows_of_group, lines);
        }
        commit_products();
    };
    const auto prefetch = [&](uint32_t slot, uint32_t next) {
        lines_of_values.prefetch(ring_of_values + slot * tile_bytes);
        lines_of_keys.prefetch(ring_of_keys + next * tile_bytes);
        barrier(next).arrive_after_copies();
    };
    const auto multiply_values = [&](uint32_t slot) {
        const Values values{ring_of_values + slot * tile_bytes};
#pragma unroll
        for (uint32_t c = 0; c < Attention::columns; ++c)
            multiply_resident<T, false>(sums, weights[c], values.describe(0, c * matrix_side));
        commit_products();
    };
    const auto make_weights = [&](uint32_t first, float(&changes)[1][Attention::lane_rows]) {
        attention.find_maxima(rows, first, scores, changes);
#pragma unroll
        for (uint32_t c = 0; c < Attention::columns; ++c)
            attention.weigh(0, scores[0][c]);
        // Weights are computed before any wait: compilers move neither over a branch, which nothing takes.
        if (attention.totals[0][0] + attention.totals[0][1] < 0)
            asm volatile("nanosleep.u32 0;");
    };
    const auto round_weights = [&] {
#pragma unroll
        for (uint32_t c = 0; c < Attention::columns; ++c)
            weights[c] = Core::rows_of(scores[0][c]);
    };
    float changes[1][Attention::lane_rows];
    multiply_keys(0, 0);
    prefetch(0, 1);
    await_products<0>();
    pin(all_scores);
    make_weights(0, changes);
    round_weights();
    uint32_t slot = 1;
    uint32_t before = 0;
    uint32_t phase = 0;
#pragma unroll 1
    for (uint32_t first = keys; first < end; first += keys) {
        const uint32_t next = slot + 1 == slots ? 0 : slot + 1;
        // The second group knows before it multiplies that the slots of the next tiles are free.
        const bool is_early = Shape::alternates && group == 1;
        if (is_early)
            prefetch(slot, next);
        // Groups begin products in turns: while one makes weights, the other multiplies.
        if constexpr (Shape::alternates) {
            if (group != 0 || first != keys)
                await_group(group);
        } else {
            synchronize_block();
        }
        multiply_keys(slot, phase);
        multiply_values(before);
        if constexpr (Shape::alternates)
            if (group == 0 || first + keys < end)
                release_group(1 - group);
        if (!is_early)
            prefetch(slot, next);
        await_products<1>();
        pin(all_scores);
        make_weights(first, changes);
        await_products<0>();
        pin(sums);
        attention.change_sums(changes);
        round_weights();
        before = slot;
        slot = next;
        phase ^= next == 0 ? 1 : 0;
    }
    // Where no key is seen there are no values.
    if (end != 0) {
        barrier(slot).await(phase);
        show_products_shared();
        begin_products();
        multiply_values(before);
        await_products<0>();
        pin(sums);
    }
    attention.store(rows, 0);
}

#endif

template <typename T, uint32_t Size, bool IsAny, typename Arguments>
TALLOW_INLINE void attend_tiles(const Arguments& arguments) {
#if defined(TALLOW_HAS_WGMMA)
    attend_by_groups<GroupShape<T, Size, IsAny>>(arguments);
#elif defined(TALLOW_MATRIX_CORES)
    // Larger heads would leave too few registers.
    constexpr uint32_t subgroups = has_named_barriers && Size <= 128 && !IsAny ? 2 : 1;
    using Shape = AttentionShape<T, Size, attention_rows, 1, subgroups, false, IsAny>;
    attend_on_matrix_cores<Shape>(arguments, attention_rows);
#else
    attend_rows<RowAttention<T, Size, 8>>(arguments, attention_rows);
#endif
}

template <typename T, uint32_t Size, typename Arguments> TALLOW_INLINE void attend_few(const Arguments& arguments) {
#if defined(TALLOW_MATRIX_CORES)
#if defined(TALLOW_MATRIX_CORES_WMMA)
    // Large heads would leave too few registers.
    constexpr bool fits = Size <= 128;
#else
    constexpr bool fits = true;
#endif
    // So many waves share a tile of keys; with fewer of them a block has rows that it does not need.
    constexpr uint32_t sharing = Size <= 128 ? 4 : 2;
    if constexpr (fits) {
        using Shape = AttentionShape<T, Size, 4 / sharing * attention_few_rows, sharing, 1, true>;
        attend_on_matrix_cores<Shape>(arguments, attention_few_rows);
        return;
    }
#endif
    attend_rows<RowAttention<T, Size, 8>>(arguments, attention_few_rows);
}

} // namespace tallow
