// The rows of queries that attention kernels compute, the keys that each sees, and the splits of these.
#pragma once

#include "index.hpp"
#include "math.hpp"
#include "reduce.hpp"

namespace tallow {

constexpr float log2_e = 1.44269504f;
constexpr float ln_2 = 0.693147181f;

// The larger one; a NaN loses, and is in the sums.
TALLOW_INLINE float larger(float x, float y) {
#if defined(TALLOW_NVIDIA)
    float result;
    asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
#else
    return __builtin_fmaxf(x, y);
#endif
}

// What is subtracted from the scores of a row: nothing where no key is seen, so that their weights are 0.
TALLOW_INLINE float finite_maximum(float maximum) {
    return maximum == -infinity(float{}) ? 0.0f : maximum;
}

// The rows of one batch and key head.
template <typename Arguments> struct RowsOfHead {
    const Arguments& arguments;
    uint32_t batch;
    uint32_t head;
    uint32_t count;
    uint32_t length; // the keys that are there

    TALLOW_INLINE RowsOfHead(const Arguments& arguments, uint32_t number)
        : arguments(arguments), batch(number / arguments.heads), head(number % arguments.heads),
          count(arguments.queries * arguments.group), length(arguments.keys) {
        if (arguments.indexes != 0) {
            const int64_t read = read_row(arguments, batch * arguments.index_stride);
            length = read == no_row ? 0 : static_cast<uint32_t>(read);
        }
    }
    // How many keys a row sees, which are the first ones; none where it is no row.
    TALLOW_INLINE uint32_t seen(uint32_t row) const {
        if (row >= count)
            return 0;
        if (arguments.is_causal == 0)
            return length;
        const int64_t last = int64_t{row / arguments.group} + length - arguments.queries;
        return last < 0 ? 0 : static_cast<uint32_t>(last) + 1;
    }
    // What a score is multiplied by to be an exponent of two.
    TALLOW_INLINE float scale() const {
        return from_bits<float>(arguments.scale) * log2_e;
    }
    // The number of the batch and key head among all.
    TALLOW_INLINE uint64_t number() const {
        return uint64_t{batch} * arguments.heads + head;
    }
    TALLOW_INLINE uint64_t query_head(uint32_t row) const {
        return uint64_t{head} * arguments.group + row % arguments.group;
    }
    template <typename T> TALLOW_INLINE const T* query(uint32_t row) const {
        const uint64_t(&strides)[3] = arguments.query_strides;
        return pointer_to<const T>(arguments.query) + batch * strides[0] + query_head(row) * strides[1] +
               row / arguments.group * strides[2];
    }
    template <typename T> TALLOW_INLINE const T* mask(uint32_t row) const {
        const uint64_t(&strides)[4] = arguments.mask_strides;
        return pointer_to<const T>(arguments.mask) + batch * strides[0] + query_head(row) * strides[1] +
               row / arguments.group * strides[2];
    }
    // The term that the line of a mask adds to the score of a key, any number past the last key.
    template <typename T> TALLOW_INLINE float masked(const T* line, uint32_t key) const {
        const uint32_t index = key < arguments.keys ? key : arguments.keys - 1;
        return to_compute(line[index * arguments.mask_strides[3]]);
    }
    template <typename T> TALLOW_INLINE const T* keys() const {
        return pointer_to<const T>(arguments.key) + batch * arguments.key_strides[0] + head * arguments.key_strides[1];
    }
    template <typename T> TALLOW_INLINE const T* values() const {
        return pointer_to<const T>(arguments.value) + batch * arguments.value_strides[0] +
               head * arguments.value_strides[1];
    }
    // Where a row is in what is contiguous, by lines.
    TALLOW_INLINE uint64_t line(uint32_t row) const {
        const uint64_t heads = uint64_t{arguments.heads} * arguments.group;
        return (batch * heads + query_head(row)) * arguments.queries + row / arguments.group;
    }
    template <typename T> TALLOW_INLINE T* result(uint32_t row) const {
        return pointer_to<T>(arguments.result) + line(row) * arguments.head_size;
    }
    // Stores, if requested, the logarithm of the sum of a row's exponentials, total * 2^maximum; infinity where that is
    // 0.
    TALLOW_INLINE void note_sum(uint32_t row, float maximum, float total) const {
        if (arguments.logsumexp != 0)
            pointer_to<float>(arguments.logsumexp)[line(row)] =
                total == 0 ? infinity(float{}) : multiply_add(maximum, ln_2, log(total));
    }
};

// The keys of one split: full steps, distributed as evenly as possible.
struct KeyRange {
    uint32_t begin;
    uint32_t end;

    TALLOW_INLINE KeyRange(uint32_t seen, uint32_t step, uint32_t split, uint32_t splits) {
        const uint32_t steps = (seen + step - 1) / step;
        // The first splits have one more where there are some left.
        const uint32_t each = steps / splits;
        const uint32_t left = steps - each * splits;
        begin = (split * each + (split < left ? split : left)) * step;
        const uint32_t next = begin + (each + (split < left)) * step;
        end = next < seen ? next : seen;
    }
};

// The splits for this many keys: where the device alone knows how many there are, a launch is for as many as
// there may be, and to join blocks would take longer than few keys do.
TALLOW_INLINE uint32_t used_splits(uint32_t seen, uint32_t splits) {
    return seen <= few_keys ? 1 : splits;
}

// Where one split of a row leaves the weighted sums of values, and the maximum and the total of the weights. Size is
// that of a head, or more: sums are lines of this length.
template <uint32_t Size> struct PartsOfRow {
    float* sums;
    float* state;

    template <typename Rows> TALLOW_INLINE PartsOfRow(const Rows& rows, uint32_t row, uint32_t split) {
        const auto& arguments = rows.arguments;
        const uint64_t lines = uint64_t{arguments.batches} * arguments.heads * rows.count;
        const uint64_t number = (rows.number() * rows.count + row) * arguments.splits + split;
        sums = pointer_to<float>(arguments.parts) + number * Size;
        state = pointer_to<float>(arguments.parts) + lines * arguments.splits * Size + 2 * number;
    }
    TALLOW_INLINE void set_state(float maximum, float total) const {
        state[0] = maximum;
        state[1] = total;
    }
};

} // namespace tallow
