// What kernels of row formulas (see row_formula.hpp) load of the operands of a row, and how the threads of a row join
// what they have reduced.
#pragma once

#include "row_passes.hpp"

namespace tallow {

// A vector as it is loaded: elements of pairs of several types are loaded one by one.
template <typename Functor, typename T, uint32_t N, bool Pairs> struct AccessOf {
    using type = OperandVector<Functor, T, N>;
};
template <typename Functor, typename T, uint32_t N> struct AccessOf<Functor, T, N, true> {
    using type = WordsOfPair;
};

// The operands of a row from one of its elements on, some of which may be one number, and the residual after them.
// Operands of `operands_of_rows` are not loaded again: the row has their numbers.
template <typename Functor, typename T, uint32_t N, typename Arguments> struct RowSources {
    static constexpr uint32_t operands = stored_operands<Functor>;
    static constexpr bool has_words = are_pairs<T, N> && !has_types<Functor>;
    using Vector = OperandVector<Functor, T, N>;
    using Access = typename AccessOf<Functor, T, N, has_words>::type;
    const Arguments& arguments;
    // Opaque, or compilers would keep masks of all operands in scalar registers.
    uint32_t with_elements;
    const T* sources[operands];
    // How many bits of the first word of pairs are before the first element.
    uint32_t shifts[has_words ? operands : 1];
    // The first element that is read of operands that have elements along the row.
    uint32_t first;

    TALLOW_INLINE RowSources(const Arguments& arguments, const uint64_t (&offsets)[operands], uint32_t first = 0)
        : arguments(arguments), with_elements(opaque(arguments.varying)), first(first) {
#pragma unroll
        for (uint32_t k = 0; k < operands; ++k)
            if (!is_number_of_row<Functor>(k))
                set_source(k, operand_at<Functor, T>(pointer_to<const T>(arguments.sources[k]), k, offsets[k] + first));
    }
    TALLOW_INLINE void set_source(uint32_t k, const T* source) {
        if constexpr (has_words) {
            shifts[k] = bits_before(source);
            source -= shifts[k] / 16;
        }
        sources[k] = opaque_pointer<const T>(reinterpret_cast<uint64_t>(source));
    }
    TALLOW_INLINE bool is_number(uint32_t k) const {
        return ((with_elements | operands_along_rows<Functor>) >> k & 1) == 0;
    }
    // The sums with the residual, of row `number`.
    TALLOW_INLINE T* sums(uint32_t number) const {
        return pointer_to<T>(arguments.results[row_outputs<Functor>]) + uint64_t{number} * arguments.length;
    }
    // Stores the sums as the first operand.
    TALLOW_INLINE void take_sums(uint32_t number) {
        set_source(0, sums(number));
    }
    // Brings a vector to the cache.
    TALLOW_INLINE void fetch(uint32_t k, uint64_t index) const {
        fetch_line(operand_at<Functor, T>(sources[k], k, index));
    }
    // The vector `index` elements from the first one on, all of which the row has if it `is_complete`, or the first
    // one.
    TALLOW_INLINE Access load(uint32_t k, uint64_t index, bool is_complete) const {
        if (is_number_of_row<Functor>(k))
            return {};
        return is_number(k) ? number(k) : varying(k, index, true, is_complete);
    }
    // The number of an operand that has one along the row, or what stands for it where it is absent.
    TALLOW_INLINE Access number(uint32_t k) const {
        const T* const source = operand_at<Functor, T>(sources[k], k, -uint64_t{first});
        if constexpr (has_types<Functor>) {
            return load_typed<Functor, T, N, are_pairs<T, N>>(k, source, true, true);
        } else {
            T element = convert<T>(static_cast<compute_type<T>>(absent_number<Functor>(k)));
            if (!is_absent<Functor>(k, arguments.sources[k]))
                element = take_number(k, source);
            if constexpr (has_words)
                return WordsOfPair::of(splat<T, N>(element));
            else
                return splat<T, N>(element);
        }
    }
    // The element at an address, of the word of which it is the first or the second one.
    TALLOW_INLINE T take_number([[maybe_unused]] uint32_t k, const T* source) const {
        if constexpr (has_words)
            source += shifts[k] / 16;
        return *source;
    }
    // The same of an operand that has elements along the row; words that are not valid are 0.
    TALLOW_INLINE Access varying(uint32_t k, uint64_t index, [[maybe_unused]] bool is_valid,
                                 [[maybe_unused]] bool is_complete) const {
        if constexpr (has_words)
            return WordsOfPair::load(sources[k] + index, shifts[k], is_valid, is_complete);
        else if constexpr (has_types<Functor>)
            return load_typed<Functor, T, N, are_pairs<T, N>>(k, operand_at<Functor, T>(sources[k], k, index), false,
                                                              is_complete);
        else
            return load_registers<sizeof(T) * N>(sources[k] + index);
    }
    TALLOW_INLINE Vector vector([[maybe_unused]] uint32_t k, const Access& access) const {
        if constexpr (has_words)
            return access.pair(shifts[k]);
        else
            return access;
    }
};

// Combines parts at a distance of `Half`, and so on, into the first one.
template <typename Joins, uint32_t Half, typename Value, uint32_t Parts>
TALLOW_INLINE void join_parts(Value (&parts)[Parts][Joins::count]) {
    if constexpr (Half > 0) {
#pragma unroll
        for (uint32_t p = 0; p < Half; ++p)
            Joins::combine(parts[p], parts[p + Half]);
        join_parts<Joins, Half / 2>(parts);
    }
}

// Joins the numbers of lanes whose indexes differ in the bits of `mask`, for each of them.
template <typename Joins, typename Value> TALLOW_INLINE void join_lanes(Value (&numbers)[Joins::count], uint32_t mask) {
    Value others[Joins::count];
#pragma unroll
    for (uint32_t j = 0; j < Joins::count; ++j)
        others[j] = shuffle_xor(numbers[j], mask);
    Joins::combine(numbers, others);
}

// Joins the numbers of all threads of a subgroup, of `Least` threads or more and of `Most` at most, for each of them:
// into the first ones of its sets. Those of row_subgroup threads follow each other, set by set; so sets are joined like
// the numbers of as many waves, or of parts of a wave.
template <typename Joins, uint32_t Least, uint32_t Most, typename Value, uint32_t Sets>
TALLOW_INLINE void all_reduce_sets(Subgroup& subgroup, Value (&numbers)[Sets][Joins::count]) {
    constexpr uint32_t count = Joins::count, width = Sets > 1 ? row_subgroup : wave_size;
    constexpr uint32_t own = width < wave_size ? 1 : Sets;
    static_assert(own == Sets || Sets * width == wave_size, "a wave has the sets of its lanes");
    if constexpr (own < Sets)
#pragma unroll
        for (uint32_t s = 1; s < Sets; ++s)
            Joins::combine(numbers[0], numbers[s]);
    const uint32_t lanes = Least < width && subgroup.size < width ? subgroup.size : width;
    if (Least >= width || subgroup.size >= width) {
#pragma unroll
        for (uint32_t mask = width / 2; mask > 0; mask /= 2)
#pragma unroll
            for (uint32_t s = 0; s < own; ++s)
                join_lanes<Joins>(numbers[s], mask);
    } else {
#pragma unroll 1
        for (uint32_t mask = lanes / 2; mask > 0; mask /= 2)
            join_lanes<Joins>(numbers[0], mask);
    }
    if (Most <= width || subgroup.size <= width) {
        // Lanes combine in different orders.
        if constexpr (!Joins::are_commutative)
#pragma unroll
            for (uint32_t s = 0; s < own; ++s)
#pragma unroll
                for (uint32_t j = 0; j < count; ++j)
                    numbers[s][j] = shuffle_from(numbers[s][j], lane_index() & ~(lanes - 1));
#pragma unroll
        for (uint32_t s = 1; s < own; ++s)
            Joins::combine(numbers[0], numbers[s]);
        return;
    }
    // Two arrays alternate: a wave that is ahead writes to the one that no other wave still reads.
    constexpr uint32_t all = block_size / width * own;
    __shared__ Value of_sets[2][all][count];
    Value(&parts)[all][count] = of_sets[subgroup.joins++ % 2];
    const uint32_t number = thread_index() / width, threads = subgroup.size / width;
    if (lane_index() % width == 0)
#pragma unroll
        for (uint32_t s = 0; s < own; ++s)
            copy_numbers<count>(parts[number * own + s], numbers[s]);
    synchronize_subgroup(subgroup);
    const uint32_t first = (number & ~(threads - 1)) * own;
    copy_numbers<count>(numbers[0], parts[first]);
#pragma unroll
    for (uint32_t part = 1; part < 2 * own; ++part)
        Joins::combine(numbers[0], parts[first + part]);
    if (threads == 2)
        return;
#pragma unroll
    for (uint32_t part = 2 * own; part < all; ++part)
        if (part < threads * own)
            Joins::combine(numbers[0], parts[first + part]);
}
template <typename Joins, uint32_t Least, typename Value>
TALLOW_INLINE void all_reduce_subgroup(Subgroup& subgroup, Value (&numbers)[Joins::count]) {
    Value sets[1][Joins::count];
    copy_numbers<Joins::count>(sets[0], numbers);
    all_reduce_sets<Joins, Least, block_size>(subgroup, sets);
    copy_numbers<Joins::count>(numbers, sets[0]);
}

} // namespace tallow
