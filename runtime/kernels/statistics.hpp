// Vectors with a number for each channel: weights, statistics, and running statistics, which take a share of new ones.
#pragma once

#include "access.hpp"

namespace tallow {

// Number `index` of a vector in the dtype of the elements, or in their compute dtype.
template <typename T> TALLOW_INLINE compute_type<T> load_number(uint64_t vector, uint64_t index, uint32_t is_wide) {
    using Value = compute_type<T>;
    if constexpr (!is_same<T, Value>)
        if (!is_wide)
            return to_compute(pointer_to<const T>(vector)[index]);
    return pointer_to<const Value>(vector)[index];
}

// Writes a number, rounded to the dtype of the elements unless the vector is wide.
template <typename T>
TALLOW_INLINE void store_number(uint64_t vector, uint64_t index, compute_type<T> number, uint32_t is_wide) {
    using Value = compute_type<T>;
    if constexpr (!is_same<T, Value>)
        if (!is_wide) {
            pointer_to<T>(vector)[index] = convert<T>(number);
            return;
        }
    pointer_to<Value>(vector)[index] = number;
}

template <typename T, typename Arguments>
TALLOW_INLINE void move_number(const Arguments& arguments, T& running, compute_type<T> added) {
    using Value = compute_type<T>;
    running = convert<T>(to_compute(running) * from_bits<Value>(arguments.retained) +
                         added * from_bits<Value>(arguments.share));
}

// Moves the mean and the variance of channel i; the new variance is multiplied by a factor first.
template <typename T, typename Arguments>
TALLOW_INLINE void move_statistics_of(const Arguments& arguments, uint64_t i) {
    using Value = compute_type<T>;
    const Value mean = pointer_to<const Value>(arguments.batch_mean)[i * arguments.batch_mean_stride];
    const Value variance = pointer_to<const Value>(arguments.batch_variance)[i * arguments.batch_variance_stride];
    move_number(arguments, pointer_to<T>(arguments.mean)[i * arguments.mean_stride], mean);
    move_number(arguments, pointer_to<T>(arguments.variance)[i * arguments.variance_stride],
                variance * from_bits<Value>(arguments.factor));
}

} // namespace tallow
