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
// of keys for the same rows. `Teams` of waves have tiles of their own, and wait for nobody else: while one makes
// weights, the other multiplies. Only those of `IsFew` rows split the keys among blocks. With a mask, or a scale that
// is not positive, it must be one of `IsAny`.
template <typename Element, uint32_t Size, uint32_t Rows, uint32_t Sharing, uint32_t Teams, bool IsFew,
          bool IsAny = IsFew>
struct AttentionShape {
    using T = Element;
    using Core = MatrixCore<T>;
    static constexpr uint32_t size = Size;
    static constexpr uint32_t rows = Rows;
    static constexpr uint32_t sharing = Sharing;
    static constexpr uint32_t teams = Teams;
    static constexpr bool is_any = IsAny;
    static constexpr bool is_few = IsFew;
    // Whether waves find some of their queries in shared memory, since registers have no room for all.
    static constexpr bool shares_queries = has_named_barriers && !IsFew && (Teams > 1 || Size > 128);
    // The registers for those that stay there.
    static constexpr uint32_t query_words = Teams > 1 && Size > 64 ? 0 : 32;
    // So many waves have the same rows.
    static constexpr uint32_t joined = Sharing * Teams;
    static constexpr uint32_t threads = block_size / Teams;
    // Tiles of 16 rows of a wave.
    static constexpr uint32_t tiles = Rows * joined / matrix_side / waves_per_block;
    static_assert(tiles * matrix_side * waves_per_block == Rows * joined, "waves have equally many tiles");
    // So many keys at once that the shared memory of a block is enough, and the registers for their scores.
#if defined(TALLOW_MATRIX_CORES_WMMA)
    static constexpr uint32_t keys = Size <= 64 || (Size <= 128 && Sharing > 1) ? 64 : Size <= 128 ? 32 : 16;
#else
    static constexpr uint32_t keys = Size <= 128 || shares_queries ? 64 : 32;
#endif

    static TALLOW_INLINE uint32_t team() {
        return wave_index() % Teams;
    }
    static TALLOW_INLINE uint32_t thread() {
        return wave_index() / Teams * wave_size + lane_index();
    }
    // Waits for the threads of the team.
    static TALLOW_INLINE void synchronize() {
#if defined(TALLOW_MATRIX_CORES_MMA)
        if constexpr (Teams > 1) {
            asm volatile("bar.sync %0, %1;" ::"r"(team() + 1), "n"(threads) : "memory");
            return;
        }
#endif
        static_assert(Teams == 1 || has_named_barriers, "teams wait for themselves alone");
        synchronize_block();
    }
    template <typename Arguments> static TALLOW_INLINE uint32_t splits(const Arguments& arguments) {
        return IsFew ? arguments.splits : 1;
    }
};

// Copies tiles of keys and of values, alternately, to shared memory before they are needed, by the threads of a team.
// What is beyond the head is 0, and so are keys from `end` on.
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

    // Begin with the team's tile of the keys from `first` on.
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
            begin(key_lines, key_stride, first + Shape::teams * keys, 2);
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
            begin(key_lines, key_stride, first + Shape::teams * keys, 1);
        else
            begin(value_lines, value_stride, first + Shape::teams * keys, 2);
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
    static constexpr uint32_t lines_apart = Shape::threads / (size / length);
    static_assert(lines_apart % 8 == 0, "the accesses of a thread to a tile are permuted alike");
    // The key, and the first element of it, of an access of this thread. Where they are transposed, the thread's keys
    // are side by side.
    template <bool Transposed> static TALLOW_INLINE uint32_t line(uint32_t access) {
        constexpr uint32_t in_line = size / length;
        return Transposed ? Shape::thread() / in_line * accesses + access
                          : Shape::thread() / in_line + access * lines_apart;
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
                source += lines_apart * stride;
                target += lines_apart * size * sizeof(T);
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
template <typename Shape> struct TileAttention {
    using T = typename Shape::T;
    using Core = MatrixCore<T>;
    // Of queries and keys, whose depth is that of a head.
    using ScoreCore = MatrixCore<T, matrix_depth>;
    using Loader = TileLoader<Shape>;
    static constexpr uint32_t tiles = Shape::tiles;
    static constexpr uint32_t held = Core::held;
    static constexpr uint32_t steps = Shape::size / matrix_side;
    static constexpr uint32_t score_steps = Shape::size / matrix_depth;
    static constexpr uint32_t columns = Shape::keys / matrix_side / Shape::sharing;
    static_assert(columns * Shape::sharing * matrix_side == Shape::keys, "waves have equally many keys of a tile");
    // Larger heads leave no registers for all queries. Where these are not in shared memory they are loaded for each
    // tile of keys.
    static constexpr uint32_t most_held = Shape::query_words / (tiles * ScoreCore::words);
    static constexpr uint32_t held_steps = score_steps <= most_held ? score_steps
                                           : Shape::shares_queries  ? most_held
                                                                    : 0;
    static constexpr uint32_t shared_steps = Shape::shares_queries ? score_steps - held_steps : 0;
    using SharedQueries = SharedTile<T, shared_steps == 0 ? 8 * matrix_side : shared_steps * matrix_depth, false>;
    static constexpr uint32_t shared_bytes = Shape::rows * shared_steps * matrix_depth * sizeof(T);

    uint32_t first_row;
    uint32_t end_row;
    const T* queries[tiles][held];
    float maxima[tiles][held];
    float totals[tiles][held];
    float subtracted[tiles][held];
    float sums[tiles][steps][Core::sums];
    typename ScoreCore::Rows held_queries[tiles][held_steps == 0 ? 1 : held_steps];
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
        return wave_index() % Shape::joined / Shape::teams * columns * matrix_side;
    }
    TALLOW_INLINE uint32_t first_of_wave() const {
        return first_row + wave_index() / Shape::joined * tiles * matrix_side;
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
            for (uint32_t h = 0; h < held; ++h) {
                queries[t][h] = rows.template query<T>(row_that_is(t, h));
                maxima[t][h] = -infinity(float{});
                totals[t][h] = 0;
            }
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s) {
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    sums[t][s][i] = 0;
                if (s + 1 <= held_steps)
                    held_queries[t][s] = load_query(arguments.head_size, t, s);
            }
        }
    }

#if defined(TALLOW_MATRIX_CORES_MMA)
    // Starts copies of what is shared of the block's queries.
    template <typename Arguments> TALLOW_INLINE void share_queries(const RowsOfHead<Arguments>& rows) const {
        constexpr uint32_t in_row = shared_steps * matrix_depth / Loader::length;
        const uint32_t element = thread_index() % in_row * Loader::length;
        const uint32_t place = held_steps * matrix_depth + element;
#pragma unroll 1
        for (uint32_t r = thread_index() / in_row; r < Shape::rows; r += block_size / in_row) {
            const T* const line = rows.template query<T>(first_row + r < end_row ? first_row + r : first_row);
            copy_async(shared_queries.at(r, element), line + place,
                       place < rows.arguments.head_size ? access_bytes : 0);
        }
        commit_copies();
    }
#endif

    TALLOW_INLINE typename ScoreCore::Rows load_query(uint32_t head_size, uint32_t tile, uint32_t step) const {
        typename ScoreCore::Rows loaded;
#pragma unroll
        for (uint32_t w = 0; w < ScoreCore::words; ++w) {
            const uint32_t element = step * matrix_depth + ScoreCore::depth_of_word(w);
            const T* const line = queries[tile][ScoreCore::held_of_word(w)];
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
        constexpr uint32_t unrolled = held_steps > 0 ? score_steps : shared_steps > 0 ? 4 : 1;
#pragma unroll unrolled
        for (uint32_t s = 0; s < score_steps; ++s) {
            typename ScoreCore::Rows rows[tiles];
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t) {
                if (s + 1 <= held_steps)
                    rows[t] = held_queries[t][s];
                else if constexpr (shared_steps > 0)
                    rows[t] =
                        ScoreCore::read_rows(shared_queries, (wave_index() / Shape::joined * tiles + t) * matrix_side,
                                             (s - held_steps) * matrix_depth);
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

    // Masks scores and finds their maxima, and by which factors these change what was made before.
    template <typename Arguments>
    TALLOW_INLINE void find_maxima(const RowsOfHead<Arguments>& rows, uint32_t first,
                                   float (&scores)[tiles][columns][Core::sums], float (&changes)[tiles][held]) {
        if (scales_first(rows)) {
#pragma unroll
            for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
                for (uint32_t h = 0; h < held; ++h) {
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
                for (uint32_t h = 0; h < held; ++h) {
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
            for (uint32_t h = 0; h < held; ++h) {
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
    TALLOW_INLINE void change_sums(const float (&changes)[tiles][held]) {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t) {
#if defined(TALLOW_MATRIX_CORES_MMA)
            // Behind the first tiles, maxima hardly ever change. AMD's compilers need too many registers for the
            // branch.
            bool has_changed = false;
#pragma unroll
            for (uint32_t h = 0; h < held; ++h)
                has_changed |= changes[t][h] != 1;
            if (ballot(has_changed) == 0)
                continue;
#endif
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    sums[t][s][i] *= changes[t][Core::held_of(i)];
        }
    }

    // Makes weights of scores.
    TALLOW_INLINE void weigh(uint32_t t, float (&scores)[Core::sums]) {
#pragma unroll
        for (uint32_t i = 0; i < Core::sums; ++i) {
            const uint32_t h = Core::held_of(i);
            scores[i] = approx_exp2(multiply_add(scores[i], factor, -subtracted[t][h]));
            totals[t][h] += scores[i];
        }
    }

    // Adds the values, weighted. The weights of some keys are made while the values of those before are multiplied.
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
        static_assert(sizeof(Exchanged) * block_size / 2 <= Shape::teams * Loader::slots * Loader::bytes,
                      "half of the waves hand on");
        float* const numbers = reinterpret_cast<float*>(shared);
        const uint32_t place = wave_index() % Shape::joined;
#pragma unroll
        for (uint32_t half = Shape::joined / 2; half > 0; half /= 2) {
            // The threads that hand on, one of each pair, are numbered.
            const uint32_t thread = (wave_index() / Shape::joined * half + place % half) * wave_size + lane_index();
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
                    factors[t][h] = approx_exp2(multiply_add(maxima[t][h], factor, -subtracted));
                    other_factors[t][h] = approx_exp2(multiply_add(other, factor, -subtracted));
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
        const bool is_first = wave_index() % Shape::joined == 0;
        const uint32_t splits = Shape::splits(arguments);
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

// A block takes the rows of its shape, of which it needs at most `most_rows`, and one split of the keys.
template <typename Shape, typename Arguments>
TALLOW_INLINE void attend_on_matrix_cores(const Arguments& arguments, uint32_t most_rows) {
    using T = typename Shape::T;
    using Attention = TileAttention<Shape>;
    using Loader = TileLoader<Shape>;
    constexpr uint32_t ring_bytes = Shape::teams * Loader::slots * Loader::bytes;
    constexpr uint32_t shared_bytes = ring_bytes + Attention::shared_bytes;
    bits128* ring;
    if constexpr (Shape::is_few)
        ring = declared_memory<shared_bytes>();
    else
        ring = tile_memory<shared_bytes>();
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + most_rows - 1) / most_rows;
    const uint32_t splits = Shape::splits(arguments);
    const uint32_t group = block_index() / splits;
    const uint32_t split = block_index() % splits;
    const RowsOfHead<Arguments> rows(arguments, group / parts);
    // The last rows see most keys where attention is causal, and begin first.
    const uint32_t first_row = (parts - 1 - group % parts) * most_rows;
    const uint32_t end_row = count - first_row > most_rows ? first_row + most_rows : count;
    const KeyRange range(rows.seen(end_row - 1), Shape::keys, split, splits);
    const uint32_t begin = range.begin + Shape::team() * Shape::keys;
    Loader loader;
    loader.ring = reinterpret_cast<uint8_t*>(ring) + Shape::team() * Loader::slots * Loader::bytes;
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
    for (uint32_t first = begin; first < range.end; first += Shape::teams * Shape::keys) {
        float scores[Attention::tiles][Attention::columns][Attention::Core::sums];
        const auto keys = loader.take_keys(first);
        const bool is_seen = first + Attention::first_key() < attention.seen_by_any;
        if (is_seen) {
            attention.score(arguments, keys, scores);
            float changes[Attention::tiles][Attention::held];
            attention.find_maxima(rows, first, scores, changes);
            attention.change_sums(changes);
        }
        const auto values = loader.take_values(first);
        if (is_seen)
            attention.add(values, scores);
    }
    if constexpr (Shape::joined > 1) {
        synchronize_block();
        attention.join_waves(ring);
    }
    attention.store(rows, split);
    if constexpr (Shape::joined > 1) {
        static_assert(sizeof(JoinedParts) * block_size <= ring_bytes, "threads join what they have where tiles were");
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
    // Groups that take turns are up to a tile apart, which takes a slot more.
    static constexpr bool takes_turns = Size <= 128;
    static constexpr uint32_t slots = takes_turns ? 3 : 2;
    static constexpr uint32_t sharing = 1;
    static constexpr uint32_t teams = 1;
    static constexpr uint32_t joined = 1;
    static constexpr uint32_t threads = block_size;
    static constexpr uint32_t tiles = 1;
    static constexpr uint32_t query_words = 0;
    static constexpr bool shares_queries = false;
    static constexpr bool is_any = IsAny;
    static constexpr bool is_few = false;

    template <typename Arguments> static TALLOW_INLINE uint32_t splits(const Arguments&) {
        return 1;
    }
};

// Lines of keys, or of values, of which a thread copies some accesses, a tile after the other.
template <typename T, uint32_t Size, uint32_t Rows> struct GroupLines {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t in_line = Size / length;
    static constexpr uint32_t apart = block_size / in_line;
    static_assert(apart % 8 == 0 && Rows % apart == 0, "the accesses of a thread are permuted alike");
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
    // Starts to copy the next tile; behind the last line there are zeros.
    TALLOW_INLINE void bring(uint32_t tile) {
        const uint32_t target = tile + Operand::offset(line(), element());
#pragma unroll
        for (uint32_t i = 0; i < Rows / apart; ++i) {
            copy_async(target + i * apart * Operand::row_bytes, source, static_cast<int>(i * apart) < left ? bytes : 0);
            source += apart * stride;
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

// The weights of a tile of keys are made while the values of the one before are multiplied (Shah et al. 2024,
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
        for (uint32_t row = Lines::line(); row < Shape::rows; row += Lines::apart) {
            const T* const line = rows.template query<T>(first_row + row < end_row ? first_row + row : first_row);
            copy_async(queries + Queries::offset(row, Lines::element()), line + Lines::element(),
                       first_row + row < end_row && Lines::element() < arguments.head_size ? access_bytes : 0);
        }
    }
    using Lines = GroupLines<T, size, keys>;
    Lines lines_of_keys(rows.template keys<T>(), arguments.key_strides[2], end, arguments.head_size);
    Lines lines_of_values(rows.template values<T>(), arguments.value_strides[2], end, arguments.head_size);
    lines_of_keys.bring(ring_of_keys);
    barrier(0).arrive_behind_copies();
    Attention attention(rows, first_row, end_row, nullptr);
    float scores[1][Attention::columns][Core::sums] = {};
    typename Core::Rows weights[Attention::columns];
    auto& all_scores = reinterpret_cast<float(&)[keys / 2]>(scores);
    auto& sums = reinterpret_cast<float(&)[size / 2]>(attention.sums);
    const uint32_t group = group_index();
    const Queries own_queries{queries + group * (group_rows * Queries::row_bytes)};
    // Waits for the keys of a tile, and the values of the one before, and begins to multiply the keys.
    const auto multiply_keys = [&](uint32_t slot, uint32_t turn) {
        barrier(slot).await(turn);
        show_products_shared();
        begin_products();
#pragma unroll
        for (uint32_t place = 0; place < size; place += matrix_side) {
            const uint64_t rows_of_group = own_queries.describe(0, place);
            const uint64_t lines = Keys{ring_of_keys + slot * tile_bytes}.describe(0, place);
            if (place == 0)
                multiply_group<T, true, true, false>(all_scores, rows_of_group, lines);
            else
                multiply_group<T, true, true>(all_scores, rows_of_group, lines);
        }
        commit_products();
    };
    const auto bring = [&](uint32_t slot, uint32_t next) {
        lines_of_values.bring(ring_of_values + slot * tile_bytes);
        lines_of_keys.bring(ring_of_keys + next * tile_bytes);
        barrier(next).arrive_behind_copies();
    };
    const auto multiply_values = [&](uint32_t slot) {
        const Values values{ring_of_values + slot * tile_bytes};
#pragma unroll
        for (uint32_t c = 0; c < Attention::columns; ++c)
            multiply_held<T, false>(sums, weights[c], values.describe(0, c * matrix_side));
        commit_products();
    };
    const auto make_weights = [&](uint32_t first, float(&changes)[1][Attention::held]) {
        attention.find_maxima(rows, first, scores, changes);
#pragma unroll
        for (uint32_t c = 0; c < Attention::columns; ++c)
            attention.weigh(0, scores[0][c]);
        // Weights are made before anything waits: compilers move neither over a branch, which nothing takes.
        if (attention.totals[0][0] + attention.totals[0][1] < 0)
            asm volatile("nanosleep.u32 0;");
    };
    const auto round_weights = [&] {
#pragma unroll
        for (uint32_t c = 0; c < Attention::columns; ++c)
            weights[c] = Core::rows_of(scores[0][c]);
    };
    float changes[1][Attention::held];
    multiply_keys(0, 0);
    bring(0, 1);
    await_products<0>();
    pin(all_scores);
    make_weights(0, changes);
    round_weights();
    uint32_t slot = 1;
    uint32_t before = 0;
    uint32_t turn = 0;
#pragma unroll 1
    for (uint32_t first = keys; first < end; first += keys) {
        const uint32_t next = slot + 1 == slots ? 0 : slot + 1;
        // The second group knows before its turn that nobody needs what the next tiles replace.
        const bool is_early = Shape::takes_turns && group == 1;
        if (is_early)
            bring(slot, next);
        // Groups begin products in turns: while one makes weights, the other multiplies.
        if constexpr (Shape::takes_turns) {
            if (group != 0 || first != keys)
                await_group(group);
        } else {
            synchronize_block();
        }
        multiply_keys(slot, turn);
        multiply_values(before);
        if constexpr (Shape::takes_turns)
            if (group == 0 || first + keys < end)
                release_group(1 - group);
        if (!is_early)
            bring(slot, next);
        await_products<1>();
        pin(all_scores);
        make_weights(first, changes);
        await_products<0>();
        pin(sums);
        attention.change_sums(changes);
        round_weights();
        before = slot;
        slot = next;
        turn ^= next == 0 ? 1 : 0;
    }
    // Where no key is seen there are no values.
    if (end != 0) {
        barrier(slot).await(turn);
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
    constexpr uint32_t teams = has_named_barriers && Size <= 128 && !IsAny ? 2 : 1;
    using Shape = AttentionShape<T, Size, attention_rows, 1, teams, false, IsAny>;
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
