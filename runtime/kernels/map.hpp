// One result for each element, written densely: the loops of every elementwise kernel.
#pragma once

#include "memory.hpp"
#include "numbers.hpp"

namespace tallow {

// How many packs a thread has in flight on the contiguous path: more than one of 4 or 8 elements. More elements, or
// doubles, are enough work for the registers in one pack.
template <uint32_t Length> constexpr uint32_t packs_in_flight = Length == 4 || Length == 8 ? contiguous_packs : 1;
// Whether a thread loads a pack when it has stored the one before, where memory is all that counts: on an H200 that is
// 3 % quicker than with all of them in flight.
#if defined(TALLOW_NVIDIA)
constexpr bool streams_packs = true;
#else
constexpr bool streams_packs = false;
#endif
// How many elements that it takes one by one a thread has in flight.
template <uint32_t Length> constexpr uint32_t elements_in_flight = Length < 4 ? 1 : 4;

template <typename Result, uint32_t N, typename Function, typename... Sources>
TALLOW_INLINE Pack<Result, N> map_packs(Function function, const Pack<Sources, N>&... sources) {
    Pack<Result, N> result;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        result.values[i] = function(sources.values[i]...);
    return result;
}

// A full pack for the function that computes results. Of a wider integer compilers would load the bytes alone that
// narrow ones keep.
template <typename Result, uint32_t N, typename T> TALLOW_INLINE Pack<T, N> load_for(const T* source) {
    const Pack<T, N> pack = load_pack<N>(source);
    if constexpr (sizeof(T) > sizeof(Result)) {
        if constexpr (is_integer<T>)
            return bit_cast<Pack<T, N>>(opaque(bit_cast<Registers<sizeof(T) * N>>(pack)));
    }
    return pack;
}

// N elements of a dense source, one in `step`; those from `count` on are zeros, and not read.
template <uint32_t N, typename T>
TALLOW_INLINE Pack<T, N> load_interleaved(const T* source, uint64_t first, uint64_t step, uint64_t count) {
    Pack<T, N> pack{};
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        if (first + i * step < count)
            pack.values[i] = source[first + i * step];
    return pack;
}

template <uint32_t N, typename Result, typename Function, typename... Sources>
TALLOW_INLINE void store_results(Function function, Result* result, uint64_t first, uint64_t step, uint64_t count,
                                 const Pack<Sources, N>&... sources) {
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        if (first + i * step < count)
            result[first + i * step] = function(sources.values[i]...);
}

// Elements first, first + step, .. below `count`, of which a thread has N in flight.
template <uint32_t N, typename Result, typename Function, typename... Sources>
TALLOW_INLINE void map_elements(uint64_t first, uint64_t step, uint64_t count, Function function, Result* result,
                                const Sources*... sources) {
    for (; first < count; first += N * step)
        store_results<N>(function, result, first, step, count, load_interleaved<N>(sources, first, step, count)...);
}

// result[i] = function(sources[i]...) with everything dense: a block has as many elements as its threads have packs.
// The result begins at a multiple of 16 bytes, as every allocation does; where a source does not, and in a last block
// that has fewer, elements are read one by one. So are few, for which the launcher gives more blocks than packs need:
// no thread waits for the work of several. Their code is first, since they wait longer for it than for anything else.
template <typename Result, typename Function, typename... Sources>
TALLOW_INLINE void map_contiguous(uint64_t count, Function function, Result* result, const Sources*... sources) {
    constexpr uint32_t length = pack_length<Result, Sources...>;
    constexpr uint32_t packs_per_thread = packs_in_flight<length>;
    constexpr uint32_t step = block_size * packs_per_thread * length;
    const uint64_t base = uint64_t{block_index()} * step;
    const uint64_t reached = uint64_t{grid_blocks()} * step;
    const bool is_small = reached >= count + step;
    if (is_small || base + step > count || !(is_aligned<length>(sources) && ...)) {
        const uint64_t first = is_small ? uint64_t{block_index()} * block_size : base;
        const uint64_t end = is_small || base + step > count ? count : base + step;
        map_elements<elements_in_flight<length>>(first + thread_index(),
                                                 is_small ? uint64_t{grid_blocks()} * block_size : block_size, end,
                                                 function, result, sources...);
    } else {
        // A block has one step: a loop would keep the constants of functions in registers.
        const uint64_t first = base + thread_index() * length;
        const auto map_pack = [&](uint32_t p) {
            return map_packs<Result, length>(function, load_for<Result, length>(sources + first + p)...);
        };
        constexpr uint32_t pack_stride = block_size * length;
        if (streams_packs && packs_per_thread > 1 && count >= streamed_bytes / sizeof(Result)) {
#pragma unroll
            for (uint32_t p = 0; p < packs_per_thread; ++p) {
                // It is loaded after what comes before; nor does a compiler take the first one out of both branches.
                asm volatile("" ::: "memory");
                store_pack(result + first + p * pack_stride, map_pack(p * pack_stride));
            }
        } else {
            Pack<Result, length> packs[packs_per_thread];
#pragma unroll
            for (uint32_t p = 0; p < packs_per_thread; ++p)
                packs[p] = map_pack(p * pack_stride);
#pragma unroll
            for (uint32_t p = 0; p < packs_per_thread; ++p)
                store_pack(result + first + p * pack_stride, packs[p]);
        }
    }
    // There cannot be blocks enough for everything.
    if (reached < count)
        map_elements<1>(reached + block_index() * block_size + thread_index(), uint64_t{grid_blocks()} * block_size,
                        count, function, result, sources...);
}

// Elements first .. first + N of operand K in row-major order: a run where they are in one row of the innermost dim,
// else one by one. Those from `count` on repeat the last.
template <uint32_t N, uint32_t K, typename Arguments, typename T>
TALLOW_INLINE Pack<T, N> load_strided(const Arguments& arguments, const T* source, uint32_t first, bool in_one_row,
                                      uint64_t offset) {
    if (in_one_row)
        return load_run<N>(source + offset, arguments.strides[K * max_rank]);
    uint32_t remaining[N];
    uint64_t offsets[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        remaining[i] = first + i < arguments.count ? first + i : arguments.count - 1;
        offsets[i] = 0;
    }
#pragma unroll 1
    for (uint32_t d = 0; d < arguments.rank; ++d) {
        const uint64_t stride = arguments.strides[K * max_rank + d];
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            const uint32_t quotient = divide(remaining[i], arguments.multipliers[d], arguments.shifts[d]);
            offsets[i] += (remaining[i] - quotient * arguments.dims[d]) * stride;
            remaining[i] = quotient;
        }
    }
    Pack<T, N> pack;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        pack.values[i] = source[offsets[i]];
    return pack;
}

template <typename Result, typename Arguments, typename Function, uint32_t... K, typename... Sources>
TALLOW_INLINE void map_strided_numbered(const Arguments& arguments, Function function, Numbers<K...>, Result* result,
                                        const Sources*... sources) {
    constexpr uint32_t length = strided_length<Result, Sources...>;
    const uint32_t count = arguments.count;
    // The launcher gives a thread to each of few elements.
    const bool is_small = grid_blocks() * block_size >= count;
    // Elements that 32 bits number always fit into one launch. A loop would keep the constants of functions in
    // registers.
    const uint32_t first = (block_index() * block_size + thread_index()) * (is_small ? 1 : length);
    if (first >= count)
        return;
    uint64_t offsets[sizeof...(Sources)];
    const uint32_t column = locate(arguments, first, offsets);
    if (is_small) {
        result[first] = function(sources[offsets[K]]...);
        return;
    }
    const bool in_one_row = column + length <= arguments.dims[0];
    store_guarded(result, first, count,
                  map_packs<Result, length>(
                      function, load_strided<length, K>(arguments, sources, first, in_one_row, offsets[K])...));
}

// result[i] = function(sources at i...), the result dense, the sources of any strides; count is below 2**31.
template <typename Result, typename Arguments, typename Function, typename... Sources>
TALLOW_INLINE void map_strided(const Arguments& arguments, Function function, Result* result,
                               const Sources*... sources) {
    using Order = typename CountUp<sizeof...(Sources)>::type;
    map_strided_numbered(arguments, function, Order{}, result, sources...);
}

} // namespace tallow
