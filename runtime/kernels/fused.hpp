// The loops of kernels that are composed at run time. A composition computes the results of some elements at once:
//
//     static constexpr uint32_t sources                           operands in memory
//     static constexpr uint32_t length                            elements of a pack
//     static bool is_aligned(arguments)                           whether sources are aligned to packs
//     static bool are_runs<N>(arguments, offsets)                 whether `is_run` of each source
//     static void compute(access)                                 loads from `access`, computes, and stores to it
#pragma once

#include "elementwise.hpp"

namespace tallow {

// The elements of one operand or result that a thread has at once.
template <typename T, uint32_t Length, uint32_t Packs> struct Elements {
    Pack<T, Length> packs[Packs];

    TALLOW_INLINE const T& operator[](uint32_t i) const {
        return packs[i / Length].values[i % Length];
    }
    TALLOW_INLINE T& operator[](uint32_t i) {
        return packs[i / Length].values[i % Length];
    }
};

// Dense elements from `first` on, all of which exist, in packs.
template <typename Arguments, uint32_t Length, uint32_t Packs> struct PackAccess {
    static constexpr uint32_t count = Length * Packs;
    template <typename T> using Of = Elements<T, Length, Packs>;
    const Arguments& arguments;
    uint64_t first;

    template <typename T, uint32_t K> TALLOW_INLINE Of<T> load() const {
        Of<T> elements;
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p)
            elements.packs[p] =
                load_pack<Length>(pointer_to<const T>(arguments.sources[K]) + first + p * block_size * Length);
        return elements;
    }
    template <uint32_t K, typename T> TALLOW_INLINE void store(const Of<T>& elements) const {
#pragma unroll
        for (uint32_t p = 0; p < Packs; ++p)
            store_pack(pointer_to<T>(arguments.results[K]) + first + p * block_size * Length, elements.packs[p]);
    }
};

// Dense elements from `first` on, one in `step`.
template <typename Arguments, uint32_t Count> struct InterleavedAccess {
    static constexpr uint32_t count = Count;
    template <typename T> using Of = Elements<T, Count, 1>;
    const Arguments& arguments;
    uint64_t first;
    uint64_t step;

    template <typename T, uint32_t K> TALLOW_INLINE Of<T> load() const {
        return {{load_interleaved<Count>(pointer_to<const T>(arguments.sources[K]), first, step, arguments.count)}};
    }
    template <uint32_t K, typename T> TALLOW_INLINE void store(const Of<T>& elements) const {
#pragma unroll
        for (uint32_t i = 0; i < Count; ++i)
            if (first + i * step < arguments.count)
                pointer_to<T>(arguments.results[K])[first + i * step] = elements[i];
    }
};

// Sources of any strides, and dense results.
template <typename Arguments, uint32_t Length, uint32_t Sources> struct StridedAccess {
    static constexpr uint32_t count = Length;
    template <typename T> using Of = Elements<T, Length, 1>;
    const Arguments& arguments;
    uint32_t first;
    bool in_one_row;
    const uint64_t (&offsets)[Sources];

    template <typename T, uint32_t K> TALLOW_INLINE Of<T> load() const {
        return {{load_strided<Length, K>(arguments, pointer_to<const T>(arguments.sources[K]), first, in_one_row,
                                         offsets[K])}};
    }
    template <uint32_t K, typename T> TALLOW_INLINE void store(const Of<T>& elements) const {
        store_guarded(pointer_to<T>(arguments.results[K]), first, arguments.count, elements.packs[0]);
    }
};

// Whether N elements of a row are one access, or one element repeated.
template <uint32_t N, typename T> TALLOW_INLINE bool is_run(const T* pointer, uint64_t stride) {
    return stride == 0 || (stride == 1 && is_aligned<N>(pointer));
}

// Sources that are such runs. Elements are extracted from registers once all loads are in flight.
template <typename Arguments, uint32_t Length, uint32_t Sources> struct RunAccess {
    static constexpr uint32_t count = Length;
    template <typename T> using Of = Elements<T, Length, 1>;
    const Arguments& arguments;
    uint32_t first;
    const uint64_t (&offsets)[Sources];

    template <typename T, uint32_t K> TALLOW_INLINE Of<T> load() const {
        const T* const source = pointer_to<const T>(arguments.sources[K]) + offsets[K];
        Registers<sizeof(T) * Length> registers{};
        if (arguments.strides[K * max_rank] == 1) {
            registers = load_registers<sizeof(T) * Length>(source);
        } else {
            const T element = *source;
#pragma unroll
            for (uint32_t i = 0; i < Length; ++i)
                put_element(registers, i, element);
        }
        Of<T> elements;
#pragma unroll
        for (uint32_t i = 0; i < Length; ++i)
            elements[i] = take_element<T>(registers, i);
        return elements;
    }
    template <uint32_t K, typename T> TALLOW_INLINE void store(const Of<T>& elements) const {
        store_guarded(pointer_to<T>(arguments.results[K]), first, arguments.count, elements.packs[0]);
    }
};

// One element, with sources of any strides.
template <typename Arguments, uint32_t Sources> struct SingleAccess {
    static constexpr uint32_t count = 1;
    template <typename T> using Of = Elements<T, 1, 1>;
    const Arguments& arguments;
    uint32_t first;
    const uint64_t (&offsets)[Sources];

    template <typename T, uint32_t K> TALLOW_INLINE Of<T> load() const {
        return {{{pointer_to<const T>(arguments.sources[K])[offsets[K]]}}};
    }
    template <uint32_t K, typename T> TALLOW_INLINE void store(const Of<T>& elements) const {
        pointer_to<T>(arguments.results[K])[first] = elements[0];
    }
};

// Like map_contiguous, but all threads share the elements after the last full step.
template <typename Composition, typename Arguments> TALLOW_INLINE void fused_contiguous(const Arguments& arguments) {
    constexpr uint32_t length = Composition::length;
    constexpr uint32_t packs = packs_in_flight<length>;
    constexpr uint32_t elements = elements_in_flight<length>;
    constexpr uint64_t step = uint64_t{block_size} * packs * length;
    const uint64_t count = arguments.count;
    const uint64_t base = block_index() * step;
    const uint64_t reached = grid_blocks() * step;
    const bool in_packs = reached < count + step && Composition::is_aligned(arguments);
    const uint64_t in_steps = reached < count ? reached : count - count % step;
    const uint64_t threads = uint64_t{grid_blocks()} * block_size;
    for (uint64_t first = (in_packs ? in_steps : 0) + block_index() * block_size + thread_index(); first < count;
         first += elements * threads)
        Composition::compute(InterleavedAccess<Arguments, elements>{arguments, first, threads});
    if (in_packs && base + step <= count)
        Composition::compute(PackAccess<Arguments, length, packs>{arguments, base + thread_index() * length});
}

// As map_strided.
template <typename Composition, typename Arguments> TALLOW_INLINE void fused_strided(const Arguments& arguments) {
    constexpr uint32_t sources = Composition::sources;
    constexpr uint32_t length = Composition::length > side_by_side ? side_by_side : Composition::length;
    const bool is_small = grid_blocks() * block_size >= arguments.count;
    const uint32_t first = (block_index() * block_size + thread_index()) * (is_small ? 1 : length);
    if (first >= arguments.count)
        return;
    uint64_t offsets[sources];
    const uint32_t column = locate(arguments, first, offsets);
    if (is_small) {
        Composition::compute(SingleAccess<Arguments, sources>{arguments, first, offsets});
        return;
    }
    const bool in_one_row = column + length <= arguments.dims[0];
    if (in_one_row && Composition::template are_runs<length>(arguments, offsets))
        Composition::compute(RunAccess<Arguments, length, sources>{arguments, first, offsets});
    else
        Composition::compute(StridedAccess<Arguments, length, sources>{arguments, first, in_one_row, offsets});
}

} // namespace tallow
