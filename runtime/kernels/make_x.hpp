// Activation rows for products with block-quantized weights, and what else would make x in a launch of its own.
#pragma once

#include "functor.hpp"
#include "row_kernels.hpp"
#include "rows_of_x.hpp"

namespace tallow {

// Numbers as they are.
template <uint32_t Planes, uint32_t Group, typename Arguments> TALLOW_INLINE void make_x(const Arguments& arguments) {
    let_next_kernel_begin();
    await_previous_kernel();
    write_rows_of_x<Planes, Group>(arguments, [&](uint32_t row, uint32_t element, float(&values)[4]) {
        load_floats(pointer_to<const float>(arguments.x) + row * arguments.x_stride + element, values);
    });
}

// What a functor makes of two numbers.
template <typename Functor, uint32_t Planes, uint32_t Group, typename Arguments>
TALLOW_INLINE void make_gated_x(const Arguments& arguments) {
    let_next_kernel_begin();
    await_previous_kernel();
    const ElementFunction<Functor, float, float> function(arguments);
    write_rows_of_x<Planes, Group>(arguments, [&](uint32_t row, uint32_t element, float(&values)[4]) {
        float factors[4];
        load_floats(pointer_to<const float>(arguments.x) + row * arguments.x_stride + element, values);
        load_floats(pointer_to<const float>(arguments.y) + row * arguments.y_stride + element, factors);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k)
            values[k] = function(values[k], factors[k]);
    });
}

// The result of an op of rows that a subgroup has in registers, with the bits that it has alone. As many blocks as a
// thread has vectors do the same, and each writes one vector of each thread: to round all of them would take one of
// them longer than the op.
template <typename Functor, uint32_t Planes, uint32_t Group, uint32_t Vectors, typename Arguments>
TALLOW_INLINE void make_normed_x(const Arguments& arguments) {
    constexpr uint32_t stored = stored_operands<Functor>;
    begin_rows<Functor, float>(arguments, true);
    Subgroup subgroup{arguments.subgroup_size};
    const uint32_t own = block_index() % Vectors;
    const uint32_t number = block_index() / Vectors * subgroups_in(block_size, arguments.subgroup_size) +
                            subgroups_in(thread_index(), arguments.subgroup_size);
    uint64_t offsets[stored];
    locate(arguments, number < arguments.rows ? number : 0, offsets);
    RowInRegisters<Functor, float, 4, Vectors, Arguments> elements(arguments, number, subgroup.size);
    elements.load(offsets, elements.loaded);
    elements.begin();
    RowOf<float, Functor> row = begin_row<Functor, float>(arguments);
    elements.template reduce<0>(row, subgroup);
    float values[4] = {};
#pragma unroll
    for (uint32_t v = 0; v < Vectors; ++v)
        if (v == own)
            elements.compute(row, v, values);
    write_x<Planes, Group>(arguments, number, arguments.length, elements.index(own), elements.own.has(own), values);
}

} // namespace tallow
