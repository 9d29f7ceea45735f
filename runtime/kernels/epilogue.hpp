// Epilogues of matrix products and convolutions on the host, before the sums are rounded.
#pragma once

#include "tile_product.hpp"

namespace tallow {

// As MapInPlace of span.yaml.
struct InPlace {
    uint64_t kernel;
    uint64_t elements;
    uint64_t count;
};

// A scale and a shift for each channel, elements of a tensor like the result, and an activation, of which each may be
// absent. Each step rounds to the compute type.
template <typename T, typename Arguments> struct Epilogue {
    using Value = compute_type<T>;
    const Arguments& arguments;

    // Sums of one channel, or of channels that follow each other.
    TALLOW_INLINE void transform(Value* sums, uint64_t count, uint64_t channel, bool are_channels) const {
        combine(sums, count, arguments.scale, channel, are_channels, [](Value x, Value y) { return x * y; });
        combine(sums, count, arguments.shift, channel, are_channels, add);
    }
    // The sums of the elements of the result from one on.
    TALLOW_INLINE void add_residual(Value* sums, uint64_t count, uint64_t element) const {
        if (arguments.residual == 0)
            return;
        const T* const source = pointer_to<const T>(arguments.residual) + element;
        Value widened[span_part];
        for (uint64_t first = 0; first < count; first += span_part) {
            const uint64_t length = count - first < span_part ? count - first : span_part;
            widen_span(length, widened, source + first);
            map_span(length, add, sums + first, static_cast<const Value*>(sums + first),
                     static_cast<const Value*>(widened));
        }
    }
    TALLOW_INLINE void activate(Value* sums, uint64_t count) const {
        if (arguments.activation == 0)
            return;
        const InPlace call = {arguments.activation, reinterpret_cast<uint64_t>(sums), count};
        reinterpret_cast<void (*)(const InPlace*)>(arguments.map_in_place)(&call);
    }

  private:
    static TALLOW_INLINE Value add(Value x, Value y) {
        return x + y;
    }
    template <typename Function>
    static TALLOW_INLINE void combine(Value* sums, uint64_t count, uint64_t vector, uint64_t channel, bool are_channels,
                                      Function function) {
        if (vector == 0)
            return;
        const Value* const values = pointer_to<const Value>(vector) + channel;
        if (are_channels)
            map_span(count, function, sums, static_cast<const Value*>(sums), values);
        else
            map_span(
                count, [=, value = *values](Value x) { return function(x, value); }, sums,
                static_cast<const Value*>(sums));
    }
};

} // namespace tallow
