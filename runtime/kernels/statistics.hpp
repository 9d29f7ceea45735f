// Running statistics, which take a share of new ones.
#pragma once

#include "access.hpp"

namespace tallow {

template <typename T, typename Arguments> TALLOW_INLINE void move_number(const Arguments& arguments, uint64_t i) {
    using Value = compute_type<T>;
    T& running = pointer_to<T>(arguments.result)[i * arguments.result_stride];
    const Value added = pointer_to<const Value>(arguments.source)[i * arguments.source_stride] *
                        from_bits<Value>(arguments.factor) * from_bits<Value>(arguments.share);
    running = convert<T>(to_compute(running) * from_bits<Value>(arguments.retained) + added);
}

} // namespace tallow
