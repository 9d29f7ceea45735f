// Attention of many rows by dot products, for dtypes that matrix cores do not multiply: a block takes its rows, and a
// tile of keys at a time, of which a thread makes some scores for eight rows, and then some elements of their results.
// Weights go through shared memory, from the threads that share rows to each other.
#pragma once

#include "attention.hpp"
#include "tile_memory.hpp"

namespace tallow {

template <typename T, uint32_t Size> struct DotAttention {
    // Threads side by side share rows.
    static constexpr uint32_t sharing = 16;
    static constexpr uint32_t height = attention_rows * sharing / block_size;
    static constexpr uint32_t part = 4;
    static_assert(height == 2 * part, "a thread reads its rows by two accesses");
    // So many keys that weights fit into shared memory, and scores into registers.
    static constexpr uint32_t keys = has_async_copies && Size <= 128 ? 128 : 64;
    // The stride between the adjacent elements of a thread.
    static constexpr uint32_t part_stride = sharing * part;
    static constexpr uint32_t key_parts = keys / part_stride;
    static constexpr uint32_t size_parts = Size / part_stride;
    // Of a head in a step of the scores, and of the keys in a step of the results.
    static constexpr uint32_t depth = 8;
    static constexpr uint32_t value_depth = Size < 128 ? 16 : 8;
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t value_accesses = value_depth * Size / length / block_size;
    static_assert(depth == 2 * length && attention_rows * 2 == block_size, "an access a thread to a step of queries");
    static_assert(value_accesses * length * block_size == value_depth * Size, "threads have equally many accesses");

    // The padding keeps parts aligned and spreads what is transposed over the banks.
    struct Operands {
        alignas(access_bytes) float queries[depth][attention_rows + part];
        float keys[depth][DotAttention::keys + part];
    };
    struct Values {
        alignas(access_bytes) float lines[value_depth][Size];
    };
    union Step {
        Operands operands;
        Values values;
    };
    // Chunks of the rows of a key are permuted, so that threads that share rows write to different banks.
    struct Shared {
        Step steps[2];
        float weights[keys][attention_rows];
    };
    template <uint32_t Parts> struct Fragment {
        Pack<float, part> rows[2];
        Pack<float, part> columns[Parts];
    };

    const T* query_line;
    const T* key_line;
    const T* value_line;
    uint64_t key_stride;
    uint64_t value_stride;
    uint32_t end;
    uint32_t head_size;
    Shared& shared;
    uint32_t slot = 0;
    Registers<access_bytes> query{};
    Registers<access_bytes> key{};
    Registers<access_bytes> value[value_accesses]{};

    static TALLOW_INLINE uint32_t line() {
        return thread_index() / 2;
    }
    static TALLOW_INLINE uint32_t part_element() {
        return thread_index() % 2 * length;
    }
    static TALLOW_INLINE uint32_t value_row(uint32_t access) {
        return thread_index() / (Size / length) + access * (block_size / (Size / length));
    }
    static TALLOW_INLINE uint32_t value_element() {
        return thread_index() % (Size / length) * length;
    }
    static TALLOW_INLINE uint32_t row(uint32_t i) {
        return thread_index() / sharing * height + i;
    }
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return i / part * part_stride + thread_index() % sharing * part + i % part;
    }
    // The first of four rows of a key's weights.
    TALLOW_INLINE float* weights(uint32_t key, uint32_t half) const {
        return shared.weights[key] + (row(half * part) / part ^ key / part % 8) * part;
    }

    TALLOW_INLINE void load_operands(uint32_t first, uint32_t from) {
        query = load_access(query_line, from + part_element(), head_size);
        const bool is_key = line() < keys && first + line() < end;
        key = load_access(key_line + first * key_stride, from + part_element(), is_key ? head_size : 0);
    }
    TALLOW_INLINE void store_operands() {
        Operands& to = shared.steps[slot].operands;
#pragma unroll
        for (uint32_t e = 0; e < length; ++e)
            to.queries[part_element() + e][line()] = to_compute(take_element<T>(query, e));
        if (keys == attention_rows || line() < keys) {
#pragma unroll
            for (uint32_t e = 0; e < length; ++e)
                to.keys[part_element() + e][line()] = to_compute(take_element<T>(key, e));
        }
        synchronize_block();
    }
    TALLOW_INLINE void load_values(uint32_t first) {
#pragma unroll
        for (uint32_t i = 0; i < value_accesses; ++i) {
            const uint32_t number = first + value_row(i);
            value[i] = load_access(value_line + number * value_stride, value_element(), number < end ? head_size : 0);
        }
    }
    TALLOW_INLINE void store_values() {
        Values& to = shared.steps[slot].values;
#pragma unroll
        for (uint32_t i = 0; i < value_accesses; ++i) {
            Pack<float, length> pack;
#pragma unroll
            for (uint32_t e = 0; e < length; ++e)
                pack.values[e] = to_compute(take_element<T>(value[i], e));
            store_pack(to.lines[value_row(i)] + value_element(), pack);
        }
        synchronize_block();
    }
    TALLOW_INLINE Fragment<key_parts> read_operands(uint32_t d) const {
        const Operands& from = shared.steps[slot].operands;
        Fragment<key_parts> fragment;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            fragment.rows[i] = load_pack<part>(from.queries[d] + row(i * part));
#pragma unroll
        for (uint32_t i = 0; i < key_parts; ++i)
            fragment.columns[i] = load_pack<part>(from.keys[d] + column(i * part));
        return fragment;
    }
    TALLOW_INLINE Fragment<size_parts> read_values(uint32_t key, uint32_t d) const {
        const Values& from = shared.steps[slot].values;
        Fragment<size_parts> fragment;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            fragment.rows[i] = load_pack<part>(weights(key + d, i));
#pragma unroll
        for (uint32_t i = 0; i < size_parts; ++i)
            fragment.columns[i] = load_pack<part>(from.lines[d] + column(i * part));
        return fragment;
    }
    template <uint32_t Parts>
    static TALLOW_INLINE void multiply(const Fragment<Parts>& fragment, float (&sums)[height][Parts * part]) {
#pragma unroll
        for (uint32_t i = 0; i < height; ++i)
#pragma unroll
            for (uint32_t j = 0; j < Parts * part; ++j)
                sums[i][j] = multiply_add(fragment.rows[i / part].values[i % part],
                                          fragment.columns[j / part].values[j % part], sums[i][j]);
    }
    // Adds products of `count` rows and columns of operands: `take` brings `Depth` of them to shared memory, from its
    // argument on, and `read` reads one of these.
    template <uint32_t Depth, uint32_t Parts, typename Take, typename Read>
    static TALLOW_INLINE void multiply_all(uint32_t count, const Take& take, const Read& read,
                                           float (&sums)[height][Parts * part]) {
#if defined(TALLOW_NVIDIA)
        // What is multiplied next is read before. AMD's compilers read ahead by themselves, and need too many registers
        // for this.
        take(0);
        Fragment<Parts> now = read(0, 0);
#pragma unroll 1
        for (uint32_t from = 0; from < count; from += Depth) {
#pragma unroll
            for (uint32_t d = 0; d < Depth; ++d) {
                Fragment<Parts> next{};
                if (d + 1 < Depth) {
                    next = read(from, d + 1);
                } else if (from + Depth < count) {
                    take(from + Depth);
                    next = read(from + Depth, 0);
                }
                multiply(now, sums);
                now = next;
            }
        }
#else
#pragma unroll 1
        for (uint32_t from = 0; from < count; from += Depth) {
            take(from);
#pragma unroll 4
            for (uint32_t d = 0; d < Depth; ++d)
                multiply(read(from, d), sums);
        }
#endif
    }
    // The scores of the keys from `first` on, whose first operands are loaded.
    TALLOW_INLINE void score(uint32_t first, float (&scores)[height][key_parts * part]) {
        const auto take = [&](uint32_t from) __attribute__((always_inline)) {
            slot ^= 1;
            store_operands();
            load_operands(first, from + depth);
        };
        const auto read = [&](uint32_t, uint32_t d) { return read_operands(d); };
        multiply_all<depth, key_parts>(head_size, take, read, scores);
    }
    // Adds the values of the keys from `first` on, of which the first are loaded, and loads operands of the next tile.
    TALLOW_INLINE void add(uint32_t first, float (&sums)[height][size_parts * part]) {
        const auto take = [&](uint32_t key) __attribute__((always_inline)) {
            slot ^= 1;
            store_values();
            if (key + value_depth < keys)
                load_values(first + key + value_depth);
            else
                load_operands(first + keys, 0);
        };
        const auto read = [&](uint32_t key, uint32_t d) { return read_values(key, d); };
        multiply_all<value_depth, size_parts>(keys, take, read, sums);
    }
};

// A block takes attention_rows rows.
template <typename T, uint32_t Size, typename Arguments>
TALLOW_INLINE void attend_in_tiles(const Arguments& arguments) {
    using Attention = DotAttention<T, Size>;
    constexpr uint32_t height = Attention::height;
    constexpr uint32_t part = Attention::part;
    auto& shared = *reinterpret_cast<typename Attention::Shared*>(tile_memory<sizeof(typename Attention::Shared)>());
    const uint32_t count = arguments.queries * arguments.group;
    const uint32_t parts = (count + attention_rows - 1) / attention_rows;
    const RowsOfHead<Arguments> rows(arguments, block_index() / parts);
    // The last rows see most keys where attention is causal, and begin first.
    const uint32_t first_row = (parts - 1 - block_index() % parts) * attention_rows;
    const uint32_t end_row = count - first_row > attention_rows ? first_row + attention_rows : count;
    const uint32_t loaded_row = first_row + Attention::line();
    const uint32_t end = rows.seen(end_row - 1);
    const uint32_t seen_by_all = rows.seen(first_row + attention_rows - 1) == 0 ? 0 : rows.seen(first_row);
    Attention attention{rows.template query<T>(loaded_row < end_row ? loaded_row : first_row),
                        rows.template keys<T>() + Attention::line() * arguments.key_strides[2],
                        rows.template values<T>(),
                        arguments.key_strides[2],
                        arguments.value_strides[2],
                        end,
                        arguments.head_size,
                        shared};
    float maxima[height];
    float totals[height];
    float sums[height][Attention::size_parts * part] = {};
#pragma unroll
    for (uint32_t i = 0; i < height; ++i) {
        maxima[i] = -infinity(float{});
        totals[i] = 0;
    }
    attention.load_operands(0, 0);
#pragma unroll 1
    for (uint32_t first = 0; first < end; first += Attention::keys) {
        float scores[height][Attention::key_parts * part] = {};
        attention.score(first, scores);
        attention.load_values(first);
#pragma unroll
        for (uint32_t i = 0; i < height; ++i)
#pragma unroll
            for (uint32_t j = 0; j < Attention::key_parts * part; ++j)
                scores[i][j] *= rows.scale();
        // Rows are not known before, so that no register keeps what follows from them while keys are attended to, nor
        // that there is a mask, so that those for one row are there before those for the next one are loaded.
#pragma unroll
        for (uint32_t i = 0; i < height; ++i)
            if (opaque(arguments.mask != 0) != 0) {
                const uint32_t row = opaque(first_row + Attention::row(i));
                const T* const mask = rows.template mask<T>(row < end_row ? row : first_row);
#pragma unroll
                for (uint32_t j = 0; j < Attention::key_parts * part; ++j)
                    scores[i][j] = multiply_add(rows.masked(mask, first + Attention::column(j)), log2_e, scores[i][j]);
            }
        if (first + Attention::keys > seen_by_all) {
#pragma unroll
            for (uint32_t i = 0; i < height; ++i) {
                const uint32_t seen = rows.seen(opaque(first_row + Attention::row(i)));
#pragma unroll
                for (uint32_t j = 0; j < Attention::key_parts * part; ++j)
                    if (first + Attention::column(j) >= seen)
                        scores[i][j] = -infinity(float{});
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < height; ++i) {
            float maximum = maxima[i];
#pragma unroll
            for (uint32_t j = 0; j < Attention::key_parts * part; ++j)
                maximum = larger(maximum, scores[i][j]);
#pragma unroll
            for (uint32_t partner = 1; partner < Attention::sharing; partner *= 2)
                maximum = larger(maximum, shuffle_xor(maximum, partner));
            const float subtracted = finite_maximum(maximum);
            const float change = approx_exp2(maxima[i] - subtracted);
            maxima[i] = maximum;
            totals[i] *= change;
#pragma unroll
            for (uint32_t j = 0; j < Attention::key_parts * part; ++j) {
                scores[i][j] = approx_exp2(scores[i][j] - subtracted);
                totals[i] += scores[i][j];
            }
#pragma unroll
            for (uint32_t j = 0; j < Attention::size_parts * part; ++j)
                sums[i][j] *= change;
        }
#pragma unroll
        for (uint32_t j = 0; j < Attention::key_parts * part; ++j)
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                Pack<float, part> pack;
#pragma unroll
                for (uint32_t i = 0; i < part; ++i)
                    pack.values[i] = scores[half * part + i][j];
                store_pack(attention.weights(Attention::column(j), half), pack);
            }
        attention.add(first, sums);
    }
#pragma unroll
    for (uint32_t i = 0; i < height; ++i) {
        float total = totals[i];
#pragma unroll
        for (uint32_t partner = 1; partner < Attention::sharing; partner *= 2)
            total += shuffle_xor(total, partner);
        const uint32_t row = first_row + Attention::row(i);
        if (row >= end_row)
            continue;
        if (Attention::column(0) == 0)
            rows.note_sum(row, maxima[i], total);
        const float share = share_of(total);
        T* const line = rows.template result<T>(row);
#pragma unroll
        for (uint32_t j = 0; j < Attention::size_parts * part; j += part) {
            Pack<T, part> pack;
#pragma unroll
            for (uint32_t e = 0; e < part; ++e)
                pack.values[e] = round_from<T>(sums[i][j + e] * share);
            store_guarded<part>(line, Attention::column(j), arguments.head_size, pack);
        }
    }
}

template <typename T, uint32_t Size, typename Arguments> TALLOW_INLINE void attend_by_dots(const Arguments& arguments) {
#if defined(TALLOW_NVIDIA)
    constexpr bool fits = true;
#else
    // Large heads would leave too few registers.
    constexpr bool fits = Size <= 128;
#endif
    if constexpr (fits) {
        attend_in_tiles<T, Size>(arguments);
    } else {
        Arguments unsplit = arguments;
        unsplit.splits = 1;
        attend_rows<RowAttention<T, Size, 8>>(unsplit, attention_rows);
    }
}

} // namespace tallow
