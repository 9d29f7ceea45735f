// Pooling of (b, c, d, h, w) on the host, and its gradients.
#pragma once

#include "parts.hpp"
#include "pool.hpp"

namespace tallow {

// Windows of a row that are reduced at once, so that they stay in the nearest cache, and elements of a part, roughly.
constexpr uint64_t pool_columns = 256;
constexpr uint64_t pool_length = 1 << 14;

// Loops over `count` windows of a row, whose elements have the stride `distance`; compilers know the distance if `Step`
// is not 0. Offsets are signed, so that compilers know that they do not wrap around, and load strided elements without
// gathers.
template <typename Loop, typename... Arguments>
TALLOW_INLINE void run_loop(int64_t distance, int64_t count, Arguments... arguments) {
    if (distance == 1)
        Loop::template run<1>(1, count, arguments...);
    else if (distance == 2)
        Loop::template run<2>(2, count, arguments...);
    else
        Loop::template run<0>(distance, count, arguments...);
}
template <typename Op, typename T> struct JoinWindows {
    template <int64_t Step>
    static TALLOW_INLINE void run(int64_t distance, int64_t count, typename Op::State* __restrict states,
                                  const T* __restrict source) {
        const int64_t step = Step == 0 ? distance : Step;
        for (int64_t i = 0; i < count; ++i)
            states[i] = Op::join(states[i], to_compute(source[i * step]), compute_type<T>{});
    }
};
template <typename T> struct CountLargest {
    using Value = compute_type<T>;
    template <int64_t Step>
    static TALLOW_INLINE void run(int64_t distance, int64_t count, Value* __restrict counts,
                                  const Value* __restrict highest, const T* __restrict source) {
        const int64_t step = Step == 0 ? distance : Step;
        for (int64_t i = 0; i < count; ++i)
            counts[i] += is_largest(to_compute(source[i * step]), highest[i]) ? Value{1} : Value{0};
    }
};
template <typename T> struct ShareLargest {
    using Value = compute_type<T>;
    template <int64_t Step>
    static TALLOW_INLINE void run(int64_t distance, int64_t count, Value* __restrict sums,
                                  const Value* __restrict shares, const Value* __restrict highest,
                                  const T* __restrict source) {
        const int64_t step = Step == 0 ? distance : Step;
        for (int64_t i = 0; i < count; ++i)
            sums[i * step] += is_largest(to_compute(source[i * step]), highest[i]) ? shares[i] : Value{0};
    }
};
template <typename T> struct Share {
    using Value = compute_type<T>;
    template <int64_t Step>
    static TALLOW_INLINE void run(int64_t distance, int64_t count, Value* __restrict sums,
                                  const Value* __restrict shares) {
        const int64_t step = Step == 0 ? distance : Step;
        for (int64_t i = 0; i < count; ++i)
            sums[i * step] += shares[i];
    }
};

template <typename Arguments> struct PoolVolume {
    const PoolAxis depth;
    const PoolAxis height;
    const PoolAxis width;
    const bool adaptive;
    const bool include_padding;

    TALLOW_INLINE explicit PoolVolume(const Arguments& arguments)
        : depth(TALLOW_POOL_AXIS(arguments, d)), height(TALLOW_POOL_AXIS(arguments, h)),
          width(TALLOW_POOL_AXIS(arguments, w)), adaptive(arguments.adaptive != 0),
          include_padding(arguments.include_padding != 0),
          first_((int64_t{width.stride} - 1 + width.padding) / width.stride) {
    }

    TALLOW_INLINE Span elements(const PoolAxis& axis, uint64_t window) const {
        return elements_of(axis, adaptive, static_cast<int32_t>(window));
    }
    TALLOW_INLINE uint32_t divisor(const PoolAxis& axis, uint64_t window) const {
        return divisor_of(axis, adaptive, include_padding, static_cast<int32_t>(window));
    }
    // Calls function(slice, row) for those that windows cover.
    template <typename Function>
    TALLOW_INLINE void visit_rows(const Span& slices, const Span& rows, const Function& function) const {
        for (int32_t d = slices.first; d < slices.end; d += static_cast<int32_t>(depth.dilation))
            for (int32_t h = rows.first; h < rows.end; h += static_cast<int32_t>(height.dilation))
                function(static_cast<uint64_t>(d), static_cast<uint64_t>(h));
    }
    // Calls function(i, n, column) for each element of a row of the windows from `first` on: windows first + i and the
    // n - 1 after it have it at this column, and at columns `stride` from each other.
    template <typename Function>
    TALLOW_INLINE void visit_columns(uint64_t first, uint64_t count, const Function& function) const {
        if (adaptive) {
            for (uint64_t i = 0; i < count; ++i) {
                const Span columns = elements(width, first + i);
                for (int32_t w = columns.first; w < columns.end; ++w)
                    function(i, uint64_t{1}, static_cast<uint64_t>(w));
            }
            return;
        }
        const auto stride = static_cast<int64_t>(width.stride);
        const auto end = static_cast<int64_t>(first + count);
        // The windows from `inside` up to `past` have the element within the source; both go down from element to
        // element.
        int64_t inside = first_;
        int64_t past = width.windows;
        for (uint32_t t = 0; t < width.window; ++t) {
            const int64_t offset = int64_t{t} * width.dilation - width.padding;
            while (inside > 0 && (inside - 1) * stride + offset >= 0)
                --inside;
            while (past > 0 && (past - 1) * stride + offset >= int64_t{width.size})
                --past;
            const int64_t from = inside > static_cast<int64_t>(first) ? inside : static_cast<int64_t>(first);
            const int64_t to = past < end ? past : end;
            if (from < to)
                function(static_cast<uint64_t>(from) - first, static_cast<uint64_t>(to - from),
                         static_cast<uint64_t>(from * stride + offset));
        }
    }

  private:
    // The first window whose first element lies within the source.
    const int64_t first_;
};

// The runs that PoolVolume::visit_columns finds, which are the same for all rows: computed once if they are few.
template <typename Arguments> class PoolColumns {
  public:
    TALLOW_INLINE explicit PoolColumns(const PoolVolume<Arguments>& volume)
        : volume_(volume), is_listed_(!volume.adaptive && volume.width.window <= max_runs) {
    }
    TALLOW_INLINE void find(uint64_t first, uint64_t count) {
        first_ = first;
        count_ = count;
        runs_found_ = 0;
        if (is_listed_)
            volume_.visit_columns(first, count,
                                  [&](uint64_t i, uint64_t n, uint64_t w) { runs_[runs_found_++] = {i, n, w}; });
    }
    template <typename Function> TALLOW_INLINE void visit(const Function& function) const {
        if (is_listed_)
            for (uint32_t k = 0; k < runs_found_; ++k)
                function(runs_[k].window, runs_[k].windows, runs_[k].column);
        else
            volume_.visit_columns(first_, count_, function);
    }

  private:
    static constexpr uint32_t max_runs = 16;
    struct Run {
        uint64_t window;
        uint64_t windows;
        uint64_t column;
    };
    const PoolVolume<Arguments>& volume_;
    const bool is_listed_;
    uint64_t first_ = 0;
    uint64_t count_ = 0;
    uint32_t runs_found_ = 0;
    Run runs_[max_runs];
};

template <typename Op, typename T, typename Arguments> TALLOW_INLINE void pool_rows(const Arguments& arguments) {
    using Value = compute_type<T>;
    const PoolVolume<Arguments> volume(arguments);
    const uint64_t width = volume.width.windows;
    const uint64_t height = volume.height.windows;
    const uint64_t depth = volume.depth.windows;
    const uint64_t rows = arguments.planes * depth * height;
    const uint64_t cost = uint64_t{volume.depth.window} * volume.height.window * volume.width.window;
    const uint64_t together = pool_length / (width * cost + 1) + 1;
    const int64_t distance = volume.width.stride * arguments.source_strides[4];
    const auto place_of = [](const auto& strides, uint64_t d, uint64_t h, uint64_t w) {
        return static_cast<int64_t>(d) * strides[2] + static_cast<int64_t>(h) * strides[3] +
               static_cast<int64_t>(w) * strides[4];
    };
    // Windows of a row, side by side, whose runs and, for an average, divisors of columns are known.
    const auto make_windows = [&](T* result, const T* source, [[maybe_unused]] const T* tangents, uint64_t z,
                                  uint64_t y, uint64_t count, const PoolColumns<Arguments>& columns,
                                  const Value* divisors) {
        typename Op::State states[pool_columns];
        for (uint64_t i = 0; i < count; ++i)
            states[i] = Op::begin();
        const Span slices = volume.elements(volume.depth, z);
        const Span lines = volume.elements(volume.height, y);
        volume.visit_rows(slices, lines, [&](uint64_t d, uint64_t h) {
            columns.visit([&](uint64_t i, uint64_t n, uint64_t w) {
                const T* const elements = source + place_of(arguments.source_strides, d, h, w);
                typename Op::State* const of_columns = states + i;
                if constexpr (Op::has_tangents) {
                    const T* const other = tangents + place_of(arguments.tangent_strides, d, h, w);
                    const auto step = static_cast<uint64_t>(volume.width.stride * arguments.tangent_strides[4]);
                    for (uint64_t k = 0; k < n; ++k)
                        of_columns[k] =
                            Op::join(of_columns[k], to_compute(elements[static_cast<int64_t>(k) * distance]),
                                     to_compute(other[k * step]));
                } else {
                    run_loop<JoinWindows<Op, T>>(distance, static_cast<int64_t>(n), of_columns, elements);
                }
            });
        });
        if constexpr (Op::counts) {
            const Value area = static_cast<Value>(volume.divisor(volume.depth, z)) *
                               static_cast<Value>(volume.divisor(volume.height, y));
            for (uint64_t i = 0; i < count; ++i)
                result[i] = Op::result(states[i], area * divisors[i]);
        } else {
            for (uint64_t i = 0; i < count; ++i)
                result[i] = Op::result(states[i], Value{});
        }
    };
    const auto plane_of = [&](uint64_t address, uint64_t plane, const auto& strides) {
        return pointer_to<const T>(address) + static_cast<int64_t>(plane / arguments.channels) * strides[0] +
               static_cast<int64_t>(plane % arguments.channels) * strides[1];
    };
    do_parts(arguments, (rows + together - 1) / together, [&](uint64_t part) {
        const uint64_t begin = part * together;
        const uint64_t end = begin + together < rows ? begin + together : rows;
        PoolColumns<Arguments> columns(volume);
        Value divisors[pool_columns];
        for (uint64_t first = 0; first < width; first += pool_columns) {
            const uint64_t count = width - first < pool_columns ? width - first : pool_columns;
            columns.find(first, count);
            for (uint64_t i = 0; Op::counts && i < count; ++i)
                divisors[i] = static_cast<Value>(volume.divisor(volume.width, first + i));
            uint64_t y = begin % height, z = begin / height % depth;
            for (uint64_t row = begin, plane = begin / height / depth; row < end; ++plane, z = 0) {
                const T* const source = plane_of(arguments.source, plane, arguments.source_strides);
                const T* tangents = nullptr;
                if constexpr (Op::has_tangents)
                    tangents = plane_of(arguments.tangent, plane, arguments.tangent_strides);
                for (; row < end && z < depth; ++z, y = 0)
                    for (; row < end && y < height; ++y, ++row)
                        make_windows(pointer_to<T>(arguments.result) + row * width + first, source, tangents, z, y,
                                     count, columns, divisors);
            }
        }
    });
}
template <typename T, typename Arguments> TALLOW_INLINE void average_pool(const Arguments& arguments) {
    pool_rows<Average<T>, T>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool(const Arguments& arguments) {
    pool_rows<Maximum<T>, T>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool_tangent(const Arguments& arguments) {
    pool_rows<MaximumTangent<T>, T>(arguments);
}

// The windows of a plane add their shares to its elements, in the order of the windows.
template <bool Largest, typename T, typename Arguments> TALLOW_INLINE void pool_gradient(const Arguments& arguments) {
    using Value = compute_type<T>;
    const PoolVolume<Arguments> volume(arguments);
    const PoolAxis &depth = volume.depth, &height = volume.height, &width = volume.width;
    const uint64_t size = uint64_t{depth.size} * height.size * width.size;
    const uint64_t windows = uint64_t{depth.windows} * height.windows * width.windows;
    const uint64_t together = pool_length / (size + windows + 1) + 1;
    const auto make_plane = [&](uint64_t plane) {
        const T* const source = Largest ? pointer_to<const T>(arguments.source) + plane * size : nullptr;
        const T* const pooled = Largest ? pointer_to<const T>(arguments.pooled) + plane * windows : nullptr;
        const T* const gradient = pointer_to<const T>(arguments.gradient) + plane * windows;
        Value* const sums = pointer_to<Value>(arguments.sums) + plane * size;
        for (uint64_t i = 0; i < size; ++i)
            sums[i] = 0;
        PoolColumns<Arguments> columns(volume);
        for (uint64_t first = 0; first < width.windows; first += pool_columns) {
            const uint64_t count = width.windows - first < pool_columns ? width.windows - first : pool_columns;
            columns.find(first, count);
            Value shares[pool_columns];
            Value counts[pool_columns];
            Value highest[pool_columns];
            Value divisors[pool_columns];
            for (uint64_t i = 0; i < count; ++i)
                divisors[i] = Largest ? Value{1} : static_cast<Value>(volume.divisor(width, first + i));
            for (uint64_t z = 0; z < depth.windows; ++z)
                for (uint64_t y = 0; y < height.windows; ++y) {
                    const Span slices = volume.elements(depth, z);
                    const Span lines = volume.elements(height, y);
                    const uint64_t row = (z * height.windows + y) * width.windows + first;
                    if constexpr (Largest) {
                        for (uint64_t i = 0; i < count; ++i) {
                            counts[i] = 0;
                            highest[i] = to_compute(pooled[row + i]);
                        }
                        volume.visit_rows(slices, lines, [&](uint64_t d, uint64_t h) {
                            const T* const line = source + (d * height.size + h) * width.size;
                            columns.visit([&](uint64_t i, uint64_t n, uint64_t w) {
                                run_loop<CountLargest<T>>(width.stride, static_cast<int64_t>(n), counts + i,
                                                          highest + i, line + w);
                            });
                        });
                    } else {
                        const Value area = static_cast<Value>(volume.divisor(depth, z)) *
                                           static_cast<Value>(volume.divisor(height, y));
                        for (uint64_t i = 0; i < count; ++i)
                            counts[i] = area * divisors[i];
                    }
                    for (uint64_t i = 0; i < count; ++i)
                        shares[i] = to_compute(gradient[row + i]) / counts[i];
                    volume.visit_rows(slices, lines, [&](uint64_t d, uint64_t h) {
                        const uint64_t line = (d * height.size + h) * width.size;
                        columns.visit([&](uint64_t i, uint64_t n, uint64_t w) {
                            Value* const target = sums + line + w;
                            if constexpr (Largest)
                                run_loop<ShareLargest<T>>(width.stride, static_cast<int64_t>(n), target, shares + i,
                                                          highest + i, source + line + w);
                            else
                                run_loop<Share<T>>(width.stride, static_cast<int64_t>(n), target, shares + i);
                        });
                    });
                }
        }
        if constexpr (!is_same<T, Value>)
            for (uint64_t i = 0; i < size; ++i)
                pointer_to<T>(arguments.result)[plane * size + i] = convert<T>(sums[i]);
    };
    do_parts(arguments, (arguments.planes + together - 1) / together, [&](uint64_t part) {
        const uint64_t end = (part + 1) * together < arguments.planes ? (part + 1) * together : arguments.planes;
        for (uint64_t plane = part * together; plane < end; ++plane)
            make_plane(plane);
    });
}
template <typename T, typename Arguments> TALLOW_INLINE void average_pool_gradient(const Arguments& arguments) {
    pool_gradient<false, T>(arguments);
}
template <typename T, typename Arguments> TALLOW_INLINE void maximum_pool_gradient(const Arguments& arguments) {
    pool_gradient<true, T>(arguments);
}

} // namespace tallow
