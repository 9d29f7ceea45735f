// A dense result of which every element is a function of where it lies.
#pragma once

#include "memory.hpp"

namespace tallow {

// result[i] = the element at the offsets of i in each of `Operands` operands. A thread makes elements side by side:
// maker.make<N>(offsets) makes N of them, which lie a step along the innermost dim from each other.
template <uint32_t Operands, typename T, typename Arguments, typename Maker>
TALLOW_INLINE void produce_packs(const Arguments& arguments, Maker maker) {
    constexpr uint32_t length = pack_length<T> > 8 ? 8 : pack_length<T>;
    const uint32_t count = arguments.count;
    const uint32_t step = grid_blocks() * block_size * length;
    for (uint32_t first = (block_index() * block_size + thread_index()) * length; first < count; first += step) {
        uint64_t offsets[Operands];
        const uint32_t column = locate(arguments, first, offsets);
        if (column + length <= arguments.dims[0]) {
            const Pack<T, length> pack = maker.template make<length>(offsets);
            store_guarded(pointer_to<T>(arguments.result), first, count, pack);
        } else {
#pragma unroll 1
            for (uint32_t i = first; i < first + length && i < count; ++i) {
                locate(arguments, i, offsets);
                pointer_to<T>(arguments.result)[i] = maker.template make<1>(offsets).values[0];
            }
        }
    }
}

// The same for a function that makes one element from its offsets.
template <uint32_t Operands, typename T, typename Arguments, typename Function> struct EachElement {
    const Arguments& arguments;
    Function function;
    template <uint32_t N> TALLOW_INLINE Pack<T, N> make(uint64_t (&offsets)[Operands]) const {
        Pack<T, N> pack;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            pack.values[i] = function(offsets);
#pragma unroll
            for (uint32_t k = 0; k < Operands; ++k)
                offsets[k] += arguments.strides[k * max_rank];
        }
        return pack;
    }
};
template <uint32_t Operands, typename T, typename Arguments, typename Function>
TALLOW_INLINE void produce(const Arguments& arguments, Function function) {
    produce_packs<Operands, T>(arguments, EachElement<Operands, T, Arguments, Function>{arguments, function});
}

} // namespace tallow
