// Attention of the few queries that share a key head on the matrix cores of NVIDIA. Keys and values go from memory to
// the registers that products take, past shared memory: which keys and which elements of a head a lane multiplies
// is free, as long as it is the same on both sides, so each makes full accesses.
#pragma once

#include "attention.hpp"
#include "matrix_core.hpp"

namespace tallow {

#if defined(TALLOW_MATRIX_CORES_MMA)

// The partial result of a wave for its part of the keys: of the product of queries and transposed keys a lane has a
// row, and of that of transposed values and weights the sums of two rows.
template <typename T, uint32_t Size> struct MatrixRowAttention {
    using Element = T;
    using Core = MatrixCore<T>;
    using Access = Registers<access_bytes>;
    static constexpr uint32_t size = Size;
    static constexpr uint32_t rows = 8;
    static constexpr uint32_t shared_bytes = 0;
    static constexpr uint32_t length = access_bytes / sizeof(T);
    // The keys that a wave takes together, and a block.
    static constexpr uint32_t keys = matrix_side;
    static constexpr uint32_t step = keys * waves_per_block;
    static constexpr uint32_t key_accesses = Size / (4 * length);
    static constexpr uint32_t value_accesses = Size / (8 * length);

    float maximum = -infinity(float{});
    float total = 0;
    float sums[Size / matrix_side][4]{};

    // Groups of four lanes share a row, or a key at a time, and divide the elements of a head or the keys.
    static TALLOW_INLINE uint32_t line() {
        return lane_index() / 4;
    }
    static TALLOW_INLINE uint32_t lane_in_line() {
        return lane_index() % 4;
    }
    // The column of score i of this lane's row: two of eight keys, twice.
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return i / 2 * 8 + 2 * lane_in_line() + i % 2;
    }

    template <typename Arguments>
    TALLOW_INLINE void attend(const RowsOfHead<Arguments>& of, uint32_t first_row, uint32_t begin, uint32_t end,
                              bits128*) {
        const Arguments& arguments = of.arguments;
        const T* const key_lines = of.template keys<T>() + lane_in_line() * length;
        const T* const value_lines = of.template values<T>() + line() * length;
        Access key[2][key_accesses];
        Access value[4][value_accesses];
        const auto load_keys = [&](uint32_t first) {
#pragma unroll
            for (uint32_t n = 0; n < 2; ++n)
                load(key_lines, arguments.key_strides[2], first + n * 8 + line(), end, lane_in_line(), 4,
                     arguments.head_size, key[n]);
        };
        const auto load_values = [&](uint32_t first) {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i)
                load(value_lines, arguments.value_strides[2], first + column(i), end, line(), 8, arguments.head_size,
                     value[i]);
        };
        uint32_t first = begin + wave_index() * keys;
        load_keys(first);
        load_values(first);
        const uint32_t row = first_row + line();
        const uint32_t row_that_is = row < of.count ? row : first_row;
        const uint32_t seen = of.seen(row) < end ? of.seen(row) : end;
        const T* const mask = of.template mask<T>(row_that_is);
        const float scale = of.scale();
        Access query[key_accesses];
        const T* const query_line = of.template query<T>(row_that_is);
#pragma unroll
        for (uint32_t j = 0; j < key_accesses; ++j)
            query[j] = load_access(query_line, (4 * j + lane_in_line()) * length, arguments.head_size);
#pragma unroll 1
        for (; first < end; first += step) {
            float scores[Core::sums]{};
#pragma unroll
            for (uint32_t j = 0; j < key_accesses; ++j)
#pragma unroll
                for (uint32_t w = 0; w < 4; w += 2)
                    Core::multiply(
                        scores, {query[j].values[w], 0, query[j].values[w + 1], 0},
                        {key[0][j].values[w], key[0][j].values[w + 1], key[1][j].values[w], key[1][j].values[w + 1]});
            load_keys(first + step);
            float weights[4];
            float maximum_now = maximum;
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                const uint32_t at = first + column(i);
                weights[i] = scores[i / 2 * 4 + i % 2] * scale;
                if (arguments.mask != 0)
                    weights[i] = multiply_add(of.masked(mask, at), log2_e, weights[i]);
                weights[i] = at < seen ? weights[i] : -infinity(float{});
                maximum_now = larger(maximum_now, weights[i]);
            }
            maximum_now = larger(maximum_now, shuffle_xor(maximum_now, 1));
            maximum_now = larger(maximum_now, shuffle_xor(maximum_now, 2));
            const float subtracted = finite_maximum(maximum_now);
            const float factor = approx_exp2(maximum - subtracted);
            maximum = maximum_now;
            total *= factor;
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                weights[i] = approx_exp2(weights[i] - (subtracted - weight_exponent<T>));
                total += weights[i];
            }
            // Behind the first keys, maxima hardly ever change.
            if (ballot(factor != 1) != 0) {
                const float factors[2] = {shuffle_from(factor, 8 * lane_in_line()),
                                          shuffle_from(factor, 8 * lane_in_line() + 4)};
#pragma unroll
                for (uint32_t s = 0; s < Size / matrix_side; ++s)
#pragma unroll
                    for (uint32_t i = 0; i < 4; ++i)
                        sums[s][i] *= factors[i % 2];
            }
            const uint32_t rounded[2] = {round_pair<T>(weights[0], weights[1]), round_pair<T>(weights[2], weights[3])};
#pragma unroll
            for (uint32_t j = 0; j < value_accesses; ++j)
#pragma unroll
                for (uint32_t w = 0; w < 4; ++w) {
                    // A word has two elements of a key; the product takes one element of two keys.
                    const uint32_t transposed[4] = {__byte_perm(value[0][j].values[w], value[1][j].values[w], 0x5410),
                                                    __byte_perm(value[0][j].values[w], value[1][j].values[w], 0x7632),
                                                    __byte_perm(value[2][j].values[w], value[3][j].values[w], 0x5410),
                                                    __byte_perm(value[2][j].values[w], value[3][j].values[w], 0x7632)};
                    Core::multiply_half(sums[4 * j + w], transposed, rounded);
                }
            load_values(first + step);
        }
        total += shuffle_xor(total, 1);
        total += shuffle_xor(total, 2);
    }
    // The wave is one subgroup.
    static TALLOW_INLINE void combine_subgroups() {
    }
    // As those of RowAttention.
    TALLOW_INLINE void hand_on_state(float (&to_maxima)[rows], float (&to_totals)[rows]) const {
        if (lane_in_line() == 0) {
            to_maxima[line()] = maximum - weight_exponent<T>;
            to_totals[line()] = total;
        }
    }
    template <uint32_t Length> TALLOW_INLINE void hand_on_sums(float (&lines)[rows][Length], uint32_t) const {
#pragma unroll
        for (uint32_t j = 0; j < value_accesses; ++j)
#pragma unroll
            for (uint32_t w = 0; w < 4; w += 2)
#pragma unroll
                for (uint32_t r = 0; r < 2; ++r) {
                    const auto& pair = sums[4 * j + w];
                    const auto& next = sums[4 * j + w + 1];
                    store_pack(lines[2 * lane_in_line() + r] + (8 * j + line()) * length + 2 * w,
                               Pack<float, 4>{pair[r], pair[2 + r], next[r], next[2 + r]});
                }
    }

  private:
    // The accesses of a lane to a line, `access_stride` accesses from each other; zeros where nothing is.
    template <uint32_t Count>
    static TALLOW_INLINE void load(const T* lines, uint64_t stride, uint32_t number, uint32_t end, uint32_t first,
                                   uint32_t access_stride, uint32_t head_size, Access (&loaded)[Count]) {
        const T* const from = lines + number * stride;
#pragma unroll
        for (uint32_t j = 0; j < Count; ++j) {
            loaded[j] = {};
            if (number < end && (j * access_stride + first) * length < head_size)
                loaded[j] = load_registers<access_bytes>(from + j * access_stride * length);
        }
    }
};

#endif

// Attention by blocks, each of which takes some rows and one split of the keys.
template <typename T, uint32_t Size, uint32_t Rows, typename Arguments>
TALLOW_INLINE void attend_group(const Arguments& arguments) {
#if defined(TALLOW_MATRIX_CORES_MMA)
    // Larger heads would leave too few registers.
    if constexpr (is_multiplicand<T> && Size <= 128) {
        attend_rows<MatrixRowAttention<T, Size>>(arguments, Rows);
        return;
    }
#endif
    attend_rows<RowAttention<T, Size, Rows>>(arguments);
}

} // namespace tallow
