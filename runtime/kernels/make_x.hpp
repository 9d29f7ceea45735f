// Rows of x for products with weights in blocks, and what else would make x in a launch of its own.
#pragma once

#include "functor.hpp"
#include "norm.hpp"
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

// A norm of rows that a team holds in registers, as norm_held makes it. As many blocks as a thread holds packs do the
// same, and each writes one pack of each thread: to round all of them would take one of them longer than the norm.
template <uint32_t Planes, uint32_t Group, uint32_t Packs, typename Arguments>
TALLOW_INLINE void make_normed_x(const Arguments& arguments) {
    begin_norm<float>(arguments);
    Team team{arguments.team};
    const uint32_t own = block_index() % Packs;
    const uint32_t number =
        block_index() / Packs * teams_in(block_size, arguments.team) + teams_in(thread_index(), arguments.team);
    uint64_t offsets[2];
    locate(arguments, number < arguments.rows ? number : 0, offsets);
    const Row<float, true> row(pointer_to<const float>(arguments.source) + offsets[0],
                               number < arguments.rows ? arguments.length : 0);
    HeldRow<float, Packs, true> held(row, team.size, 0.0f);
    if (arguments.residual) {
        Registers<access_bytes> others[Packs] = {};
        held.load(pointer_to<const float>(arguments.residual) + offsets[1], 0.0f, others);
        held.replace(
            [&](const Registers<access_bytes>& pack, uint32_t p) { return add_packs<float>(pack, others[p]); });
    }
    const auto known = held_moments(arguments, held, team);
    const auto pack = held.pack_of(held.held, own);
    const uint32_t place = held.place(own);
    float values[4] = {};
    if (row.is_whole(place)) {
        if (arguments.residual)
            row.template store<true>(pointer_to<float>(arguments.sum) + uint64_t{number} * row.length, place, pack);
        const auto made = norm_pack(arguments, row, pack, place, known.mean, known.scale);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k)
            values[k] = take_element<float>(made, k);
    }
    write_x<Planes, Group>(arguments, number, arguments.length, place, row.is_whole(place), values);
}

} // namespace tallow
