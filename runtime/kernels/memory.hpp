// The positions of the elements of a strided tensor.
#pragma once

#include "access.hpp"

namespace tallow {

// index / divisor for index < 2**31: multiplier and shift come from the host (Granlund and Montgomery 1994).
TALLOW_INLINE uint32_t divide(uint32_t index, uint32_t multiplier, uint32_t shift) {
    return (multiply_high(index, multiplier) + index) >> shift;
}

// The dims of a launch go innermost first; the strides have `max_rank` for each operand.

// Where element `index` of the dims [from, to) is in each of `Operands` operands. Returns its position in dim `from`.
template <uint32_t Operands, typename Arguments>
TALLOW_INLINE uint32_t locate_between(const Arguments& arguments, uint32_t from, uint32_t to, uint32_t index,
                                      uint64_t (&offsets)[Operands]) {
#pragma unroll
    for (uint32_t k = 0; k < Operands; ++k)
        offsets[k] = 0;
    uint32_t first_position = 0;
#pragma unroll 1
    for (uint32_t d = from; d < to; ++d) {
        const uint32_t quotient = divide(index, arguments.multipliers[d], arguments.shifts[d]);
        const uint32_t position = index - quotient * arguments.dims[d];
        first_position = d == from ? position : first_position;
#pragma unroll
        for (uint32_t k = 0; k < Operands; ++k)
            offsets[k] += position * arguments.strides[k * max_rank + d];
        index = quotient;
    }
    return first_position;
}

template <uint32_t Operands, typename Arguments>
TALLOW_INLINE uint32_t locate(const Arguments& arguments, uint32_t index, uint64_t (&offsets)[Operands]) {
    return locate_between(arguments, 0, arguments.rank, index, offsets);
}

} // namespace tallow
