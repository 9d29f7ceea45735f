// A dense result of which every element is a function of where it lies.
#pragma once

#include "memory.hpp"

namespace tallow {

// result[i] = function(offsets of i in each of `Operands` operands), a thread for each element.
template <uint32_t Operands, typename T, typename Arguments, typename Function>
TALLOW_INLINE void produce(const Arguments& arguments, Function function) {
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t i = block_index() * block_size + thread_index(); i < arguments.count; i += threads) {
        uint64_t offsets[Operands];
        locate(arguments, i, offsets);
        pointer_to<T>(arguments.result)[i] = function(offsets);
    }
}

template <uint32_t Operands, typename T, typename Maker> struct SingleElements {
    const Maker& maker;
    TALLOW_INLINE T operator()(const uint64_t (&offsets)[Operands]) const {
        return maker.template make<1>(offsets).values[0];
    }
};

// The same with maker.make<N>(offsets), which makes N elements that lie a step along the innermost dim from each other.
// Where rows are whole packs, a thread makes a pack; elsewhere one element, so that none waits for one of the next row.
template <uint32_t Operands, typename T, typename Arguments, typename Maker>
TALLOW_INLINE void produce_packs(const Arguments& arguments, Maker maker) {
    constexpr uint32_t length = pack_length<T> > 8 ? 8 : pack_length<T>;
    if (arguments.dims[0] % length == 0) {
        const uint32_t step = grid_blocks() * block_size * length;
        for (uint32_t first = (block_index() * block_size + thread_index()) * length; first < arguments.count;
             first += step) {
            uint64_t offsets[Operands];
            locate(arguments, first, offsets);
            const Pack<T, length> pack = maker.template make<length>(offsets);
            store_guarded(pointer_to<T>(arguments.result), first, arguments.count, pack);
        }
    } else {
        produce<Operands, T>(arguments, SingleElements<Operands, T, Maker>{maker});
    }
}

} // namespace tallow
