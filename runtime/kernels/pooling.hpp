// Pooling of (b, c, d, h, w) and its gradients.
#pragma once

#include "memory.hpp"
#include "pool.hpp"
#include "reread.hpp"

namespace tallow {

// Calls Visitor::visit<N>(offsets of a plane of (d, h, w), z, y, x) for N elements of a row of the result, from x on.
// Dim 0 of the launch counts these packs along a row, dims 1 and 2 the rows and the slices, and the others the planes.
template <typename Visitor, uint32_t N, typename Arguments> TALLOW_INLINE void visit_packs_of(const Arguments& launch) {
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < launch.count; index += threads) {
        const Arguments& geometry = reread(launch);
        uint32_t coordinates[3];
        uint32_t outer = index;
#pragma unroll
        for (uint32_t d = 0; d < 3; ++d) {
            const uint32_t quotient = divide(outer, geometry.multipliers[d], geometry.shifts[d]);
            coordinates[d] = outer - quotient * geometry.dims[d];
            outer = quotient;
        }
        uint64_t offsets[2];
        locate_between(geometry, 3, geometry.rank, outer, offsets);
        const Visitor visitor{reread(launch)};
        visitor.template visit<N>(offsets, static_cast<int32_t>(coordinates[2]), static_cast<int32_t>(coordinates[1]),
                                  static_cast<int32_t>(coordinates[0] * N));
    }
}
// The same with as many elements as an access holds, or where rows are shorter than that, one.
template <typename Visitor, typename T, typename Arguments>
TALLOW_INLINE void visit_packs(const Arguments& arguments, uint32_t width) {
    constexpr uint32_t length = strided_length<T>;
    if (width < length)
        visit_packs_of<Visitor, 1>(arguments);
    else
        visit_packs_of<Visitor, length>(arguments);
}

// Operand 0 is the result and operand 1 the source; tangents lie as the source does.
template <typename Op, typename T, typename Arguments> struct PoolMaker {
    using Value = compute_type<T>;
    const Arguments& arguments;
    template <uint32_t N>
    TALLOW_INLINE void visit(const uint64_t (&offsets)[2], int32_t z, int32_t y, int32_t x) const {
        const PoolAxis depth = TALLOW_POOL_AXIS(arguments, d);
        const PoolAxis height = TALLOW_POOL_AXIS(arguments, h);
        const PoolAxis width = TALLOW_POOL_AXIS(arguments, w);
        const bool adaptive = arguments.adaptive != 0;
        const uint32_t left = width.windows - static_cast<uint32_t>(x);
        const Span slices = elements_of(depth, adaptive, z);
        const Span rows = elements_of(height, adaptive, y);
        Span columns[N];
        typename Op::State states[N];
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            columns[i] = i < left ? elements_of(width, adaptive, x + static_cast<int32_t>(i)) : Span{0, 0};
            states[i] = Op::begin();
        }
        for (int32_t d = slices.first; d < slices.end; d += static_cast<int32_t>(depth.dilation))
            for (int32_t h = rows.first; h < rows.end; h += static_cast<int32_t>(height.dilation)) {
                const PoolAxis width = TALLOW_POOL_AXIS(reread(arguments), w);
                const uint64_t row = offsets[1] + static_cast<uint64_t>(d) * arguments.source_stride_d +
                                     static_cast<uint64_t>(h) * arguments.source_stride_h;
                if (is_halved<N>(width, columns, row))
                    join_halved<N>(row + static_cast<uint64_t>(columns[0].first), states);
                else
                    join_row<N>(width, columns, row, states);
            }
        Value area{};
        if constexpr (Op::counts)
            area = static_cast<Value>(divisor(depth, z)) * static_cast<Value>(divisor(height, y));
        const uint64_t window = offsets[0] +
                                (static_cast<uint64_t>(z) * height.windows + static_cast<uint64_t>(y)) * width.windows +
                                static_cast<uint64_t>(x);
        Pack<T, N> gradients{};
        uint64_t result;
        if constexpr (Op::shares) {
            gradients = load_some<N>(pointer_to<const T>(arguments.gradient) + window, 1, left);
            result = arguments.shares;
        } else {
            result = arguments.result;
        }
        Pack<typename Op::Result, N> pack;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            Value count{};
            if constexpr (Op::counts)
                count = area * static_cast<Value>(divisor(width, x + static_cast<int32_t>(i)));
            else if constexpr (Op::shares)
                count = to_compute(gradients.values[i]);
            pack.values[i] = Op::result(states[i], count);
        }
        auto* const first = pointer_to<typename Op::Result>(result) + window;
        constexpr uint32_t in_access = N < pack_length<typename Op::Result> ? N : pack_length<typename Op::Result>;
#pragma unroll
        for (uint32_t i = 0; i < N; i += in_access) {
            Pack<typename Op::Result, in_access> part;
#pragma unroll
            for (uint32_t j = 0; j < in_access; ++j)
                part.values[j] = pack.values[i + j];
            store_guarded(first, i, left, part);
        }
    }

  private:
    TALLOW_INLINE uint32_t divisor(const PoolAxis& axis, int32_t window) const {
        return divisor_of(axis, arguments.adaptive != 0, arguments.include_padding != 0, window);
    }
    // Whether the windows are two elements wide and follow each other, so that a row of them is two full accesses.
    template <uint32_t N>
    TALLOW_INLINE bool is_halved(const PoolAxis& width, const Span (&columns)[N], uint64_t row) const {
        const auto first = static_cast<uint64_t>(columns[0].first);
        return N > 1 && !Op::has_tangents && width.window == 2 && width.stride == 2 && width.dilation == 1 &&
               arguments.source_stride_w == 1 && columns[N - 1].end - columns[0].first == static_cast<int32_t>(2 * N) &&
               is_aligned<N>(pointer_to<const T>(arguments.source) + row + first);
    }
    template <uint32_t N> TALLOW_INLINE void join_halved(uint64_t first, typename Op::State (&states)[N]) const {
        const T* const source = pointer_to<const T>(arguments.source) + first;
        const Pack<T, N> packs[2] = {load_pack<N>(source), load_pack<N>(source + N)};
#pragma unroll
        for (uint32_t i = 0; i < 2 * N; ++i)
            states[i / 2] = Op::join(states[i / 2], to_compute(packs[i / N].values[i % N]), Value{});
    }
    // All windows take one element before any takes the next, so that the loads are in flight together.
    template <uint32_t N>
    TALLOW_INLINE void join_row(const PoolAxis& width, const Span (&columns)[N], uint64_t row,
                                typename Op::State (&states)[N]) const {
        const auto length = static_cast<int32_t>(width.window * width.dilation);
        for (int32_t step = 0; step < length; step += static_cast<int32_t>(width.dilation)) {
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                const int32_t column = columns[i].first + step;
                if (column >= columns[i].end)
                    continue;
                const uint64_t offset = row + static_cast<uint64_t>(column) * arguments.source_stride_w;
                Value tangent{};
                if constexpr (Op::has_tangents)
                    tangent = to_compute(pointer_to<const T>(arguments.tangent)[offset]);
                states[i] = Op::join(states[i], to_compute(pointer_to<const T>(arguments.source)[offset]), tangent);
            }
        }
    }
};
template <typename Op, typename T, typename Arguments> TALLOW_INLINE void pool(const Arguments& arguments) {
    visit_packs<PoolMaker<Op, T, Arguments>, T>(arguments, arguments.windows_w);
}
template <typename T, typename Arguments> TALLOW_INLINE void average_pool(const Arguments& arguments) {
    pool<Average<T>, T>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool(const Arguments& arguments) {
    pool<Maximum<T>, T>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool_tangent(const Arguments& arguments) {
    pool<MaximumTangent<T>, T>(arguments);
}
// The part of the gradient that each of the largest elements of a window takes, in the compute dtype.
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool_shares(const Arguments& arguments) {
    pool<MaximumShare<T>, T>(arguments);
}

// Sums over the windows that have an element, in their order, so that the bits are the same on every run: of an average
// the gradient divided by the number of elements, of a maximum its shares, where the element is one of the largest.
// Operand 0 is the source and the result, which are contiguous, operand 1 the pooled elements and the gradient or the
// shares, which are contiguous too.
template <bool Largest, typename T, typename Arguments> struct PoolGradientMaker {
    using Value = compute_type<T>;
    const Arguments& arguments;
    template <uint32_t N>
    TALLOW_INLINE void visit(const uint64_t (&offsets)[2], int32_t z, int32_t y, int32_t x) const {
        const PoolAxis depth = TALLOW_POOL_AXIS(arguments, d);
        const PoolAxis height = TALLOW_POOL_AXIS(arguments, h);
        const PoolAxis width = TALLOW_POOL_AXIS(arguments, w);
        const bool adaptive = arguments.adaptive != 0;
        const uint64_t row =
            (static_cast<uint64_t>(z) * height.size + static_cast<uint64_t>(y)) * width.size + static_cast<uint64_t>(x);
        const uint32_t left = width.size - static_cast<uint32_t>(x);
        Value elements[N] = {};
        Value sums[N] = {};
        // Bits of elements, here and below: as many comparisons are more than AMD hardware has scalar registers.
        const uint32_t inside = left < N ? (1u << left) - 1 : (1u << N) - 1;
        uint32_t nans = 0;
        if constexpr (Largest) {
            const Pack<T, N> pack = load_some<N>(pointer_to<const T>(arguments.source) + offsets[0] + row, 1, left);
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                elements[i] = to_compute(pack.values[i]);
                nans |= elements[i] != elements[i] ? opaque(1u << i) : 0;
            }
        }
        const Span columns = windows_of(width, adaptive, x, x + static_cast<int32_t>(left < N ? left : N) - 1);
        const Span rows = windows_of(height, adaptive, y, y);
        const Span slices = windows_of(depth, adaptive, z, z);
        for (int32_t d = slices.first; d < slices.end; ++d) {
            const PoolAxis depth = TALLOW_POOL_AXIS(reread(arguments), d);
            const Span depths = elements_of(depth, adaptive, d);
            if (!covers(depths, depth.dilation, z))
                continue;
            for (int32_t h = rows.first; h < rows.end; ++h) {
                const PoolAxis height = TALLOW_POOL_AXIS(reread(arguments), h);
                const Span heights = elements_of(height, adaptive, h);
                if (!covers(heights, height.dilation, y))
                    continue;
                const uint64_t windows =
                    offsets[1] + (static_cast<uint64_t>(d) * height.windows + static_cast<uint64_t>(h)) * width.windows;
                const Value area =
                    Largest ? Value{} : static_cast<Value>(divisor(depth, d)) * static_cast<Value>(divisor(height, h));
                if constexpr (Largest) {
                    if (is_own_window(width)) {
                        add_own<N>(windows + static_cast<uint64_t>(x), left, elements, nans, sums);
                        continue;
                    }
                }
#pragma unroll 1
                for (int32_t w = columns.first; w < columns.end; ++w) {
                    const Arguments& again = reread(arguments);
                    const PoolAxis width = TALLOW_POOL_AXIS(again, w);
                    const Span widths = elements_of(width, again.adaptive != 0, w);
                    const uint64_t window = windows + static_cast<uint64_t>(w);
                    const uint32_t open = opaque(inside);
                    const uint32_t always = opaque(nans);
                    uint32_t taken = 0;
                    Value highest{};
                    if constexpr (Largest)
                        highest = to_compute(pointer_to<const T>(again.pooled)[window]);
#pragma unroll
                    for (uint32_t i = 0; i < N; ++i) {
                        uint32_t takes = Largest ? (elements[i] == highest ? 1u << i : always & 1u << i) : 1u << i;
                        takes = covers(widths, width.dilation, x + static_cast<int32_t>(i)) ? takes & open : 0;
                        taken |= opaque(takes);
                    }
                    if (taken == 0)
                        continue;
                    Value share;
                    if constexpr (Largest)
                        share = pointer_to<const Value>(again.gradient)[window];
                    else
                        share = to_compute(pointer_to<const T>(again.gradient)[window]) /
                                (area * static_cast<Value>(divisor(width, w)));
#pragma unroll
                    for (uint32_t i = 0; i < N; ++i)
                        if ((taken >> i & 1) != 0)
                            sums[i] = sums[i] + share;
                }
            }
        }
        Pack<T, N> pack;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            pack.values[i] = convert<T>(sums[i]);
        store_guarded(pointer_to<T>(reread(arguments).result) + offsets[0] + row, 0, left, pack);
    }

  private:
    TALLOW_INLINE uint32_t divisor(const PoolAxis& axis, int32_t window) const {
        return divisor_of(axis, arguments.adaptive != 0, arguments.include_padding != 0, window);
    }
    // Whether each element along a row has a window for itself there, as channels that are last have.
    TALLOW_INLINE bool is_own_window(const PoolAxis& width) const {
        return width.window == 1 && width.stride == 1 && width.padding == 0 && arguments.adaptive == 0;
    }
    // Adds the shares of the windows of elements along a row.
    template <uint32_t N>
    TALLOW_INLINE void add_own(uint64_t window, uint32_t left, const Value (&elements)[N], uint32_t nans,
                               Value (&sums)[N]) const {
        const Arguments& again = reread(arguments);
        const Pack<T, N> highest = load_some<N>(pointer_to<const T>(again.pooled) + window, 1, left);
        uint32_t taken = nans;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            taken |= opaque(elements[i] == to_compute(highest.values[i]) ? 1u << i : 0);
        constexpr uint32_t in_access = N < pack_length<Value> ? N : pack_length<Value>;
#pragma unroll
        for (uint32_t first = 0; first < N; first += in_access) {
            const Value* const shares = pointer_to<const Value>(again.gradient) + window + first;
            const auto pack = load_some<in_access>(shares, 1, left > first ? left - first : 0);
#pragma unroll
            for (uint32_t j = 0; j < in_access; ++j)
                if ((taken >> (first + j) & 1) != 0)
                    sums[first + j] = sums[first + j] + pack.values[j];
        }
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void average_pool_gradient(const Arguments& arguments) {
    visit_packs<PoolGradientMaker<false, T, Arguments>, T>(arguments, arguments.size_w);
}
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool_gradient(const Arguments& arguments) {
    visit_packs<PoolGradientMaker<true, T, Arguments>, T>(arguments, arguments.size_w);
}

} // namespace tallow
