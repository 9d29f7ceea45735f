// Row formulas on the host: groups of values that are computed side by side, which compilers vectorise, and reductions
// of what they contribute.
#pragma once

#include "host_row_numbers.hpp"
#include "math.hpp"
#include "numbers.hpp"
#include "parts.hpp"
#include "row_formula.hpp"
#include "span.hpp"
#include "vector.hpp"

// The iterations of the loop below, one for each lane of a group, become vectors. clang would unroll it first, and then
// find no vectors where results may overwrite operands.
#if defined(__clang__)
#define TALLOW_LANES _Pragma("clang loop vectorize(assume_safety) interleave_count(2) unroll(disable)")
#else
#define TALLOW_LANES TALLOW_INDEPENDENT
#endif
#define TALLOW_INLINE_LAMBDA __attribute__((always_inline))

namespace tallow {

constexpr uint32_t group_lanes = 32;
// Positions of a piece of a row, of which each lane adds up 64.
constexpr uint64_t piece_length = 2048;
// Elements of a part of the work, roughly.
constexpr uint64_t part_length = 1 << 13;
// Buffers of 64 KiB for operands that are converted or gathered, of 32 KiB for derived values, and of 8 KiB for each
// result that is rounded or scattered.
template <typename T> constexpr uint64_t operands_length = (1 << 16) / sizeof(T);
template <typename Value> constexpr uint64_t derived_length = (1 << 15) / sizeof(Value);
template <typename T> constexpr uint64_t block_groups = (1 << 13) / sizeof(T) / group_lanes;

// The length of rows of complete groups.
TALLOW_INLINE uint64_t padded_length(uint64_t length) {
    return (length + group_lanes - 1) / group_lanes * group_lanes;
}
TALLOW_INLINE uint64_t lower(uint64_t x, uint64_t y) {
    return x < y ? x : y;
}

// Functors for the host name values of an element that several stages need, and that take long to compute:
//
//     static constexpr uint32_t derived = 1;                          // values, after the operands in `elements`
//     template <uint32_t Stage> static constexpr uint32_t available;  // the first ones, known in a stage
//     template <uint32_t Stage, typename T>                           // computes those that the passes before allow
//     static void derive(const RowOf<T, Softmin>& row, compute_type<T> (&elements)[operands + derived],
//                        compute_type<T> position);
//
// They are cached if those of a row fit the buffer.
template <typename Functor, typename = void> constexpr uint32_t derived_values = 0;
template <typename Functor>
constexpr uint32_t derived_values<Functor, typename VoidOf<decltype(Functor::derived)>::type> = Functor::derived;

template <typename Functor, int Stage> constexpr uint32_t available_values() {
    if constexpr (derived_values<Functor> == 0 || Stage < 0)
        return 0;
    else
        return Functor::template available<static_cast<uint32_t>(Stage)>;
}

// Bit k of reads<Stage> is set if a stage needs operand k: all are, unless the functor says it.
template <typename Functor, uint32_t Stage, typename = void> constexpr uint32_t operands_read = ~0u;
template <typename Functor, uint32_t Stage>
constexpr uint32_t operands_read<Functor, Stage, typename VoidOf<decltype(Functor::template reads<Stage>)>::type> =
    Functor::template reads<Stage>;

// The operands of consecutive groups. One that is constant along the row is a single group.
template <typename Functor, typename T> struct GroupOperands {
    using Value = widened<T>;
    const T* operands[Functor::operands];
    uint64_t steps[Functor::operands];
    Value* derived[derived_values<Functor> ? derived_values<Functor> : 1];
    uint64_t first; // group of the row
};

// The lanes are positions of one row.
template <typename Functor, typename Value> struct RowOfLanes {
    RowOf<Value, Functor> row;
    TALLOW_INLINE const RowOf<Value, Functor>& row_of(uint32_t) const {
        return row;
    }
    static TALLOW_INLINE Value position_of(uint64_t group, uint32_t lane) {
        return static_cast<Value>(group * group_lanes) + static_cast<Value>(lane);
    }
};

// A position that is not the index of its row: comparing it takes no instruction.
template <typename Value> struct OtherPosition {
    Value value;
    TALLOW_INLINE explicit OtherPosition(Value value) : value(value) {
    }
    TALLOW_INLINE operator Value() const {
        return value;
    }
    friend TALLOW_INLINE bool operator==(OtherPosition, OtherPosition) {
        return false;
    }
};

// Each lane is a row.
template <typename Functor, typename Value> struct RowPerLane {
    RowOf<Value, Functor> shared;
    uint64_t index[group_lanes];
    Value known[Functor::known ? Functor::known : 1][group_lanes];
    TALLOW_INLINE RowOf<Value, Functor> row_of(uint32_t lane) const {
        // Compilers vectorise no copy of a struct.
        RowOf<Value, Functor> row;
        row.count = shared.count;
        if constexpr (has_row_index<Functor>)
            row.index = index[lane];
        for (uint32_t i = 0; i < Functor::parameters; ++i)
            row.parameters[i] = shared.parameters[i];
        for (uint32_t i = 0; i < Functor::known; ++i)
            row.known[i] = known[i][lane];
        return row;
    }
    static TALLOW_INLINE Value position_of(uint64_t group, uint32_t) {
        return static_cast<Value>(group);
    }
};

template <typename Functor, uint32_t First, typename Value, typename Elements, uint32_t... Stage>
TALLOW_INLINE void derive_values(const RowOf<Value, Functor>& row, Elements& elements, Value position,
                                 Numbers<Stage...>) {
    (Functor::template derive<First + Stage, Value>(row, elements, position), ...);
}

// Calls visit(lane, row, elements, position) for the lanes of a group in a stage: a pass, or what follows the last one.
// Derived values of earlier stages are read if they are cached, else computed again.
template <uint32_t Stage, bool IsCached, typename Functor, typename T, typename Rows, typename Visit>
TALLOW_INLINE void for_lanes(const Rows& rows, const GroupOperands<Functor, T>& from, uint64_t group, Visit visit) {
    using Value = widened<T>;
    constexpr uint32_t operands = Functor::operands, derived = derived_values<Functor>;
    constexpr uint32_t cached = IsCached ? available_values<Functor, static_cast<int>(Stage) - 1>() : 0;
    TALLOW_LANES
    for (uint32_t lane = 0; lane < group_lanes; ++lane) {
        const auto& row = rows.row_of(lane);
        const Value position = rows.position_of(from.first + group, lane);
        Value elements[operands + derived];
        for (uint32_t k = 0; k < operands; ++k)
            elements[k] = to_compute(from.operands[k][group * from.steps[k] + lane]);
        for (uint32_t k = 0; k < cached; ++k)
            elements[operands + k] = from.derived[k][group * group_lanes + lane];
        if constexpr (derived != 0) {
            constexpr uint32_t first = IsCached ? Stage : 0;
            derive_values<Functor, first>(row, elements, position, typename CountUp<Stage + 1 - first>::type{});
        }
        visit(lane, row, elements, position);
        if constexpr (IsCached)
            for (uint32_t k = cached; k < available_values<Functor, static_cast<int>(Stage)>(); ++k)
                from.derived[k][group * group_lanes + lane] = elements[operands + k];
    }
}

// Calls visit(number, join) for the joins of a pass.
template <uint32_t First, typename... Joins, typename Visit, uint32_t... Number>
TALLOW_INLINE void for_joins(RowJoins<First, Joins...>, Numbers<Number...>, Visit visit) {
    (visit(Number, Joins{}), ...);
}
template <typename Functor, uint32_t Pass, typename Visit> TALLOW_INLINE void for_joins_of(Visit visit) {
    using Reduced = typename Functor::template Reduced<Pass>;
    for_joins(Reduced{}, typename CountUp<Reduced::count>::type{}, visit);
}
template <typename Functor, uint32_t Pass> constexpr uint32_t joins_of = Functor::template Reduced<Pass>::count;

// Combines a vector with another one lane by lane. An extreme may lose a NaN, which LaneTotals records. No vector is
// returned: how that is done depends on the target's instructions, of which clang warns.
template <typename X> TALLOW_INLINE void join_lanes(JoinSums, X& x, const X& y) {
    x += y;
}
template <typename X> TALLOW_INLINE void join_lanes(JoinHighest, X& x, const X& y) {
    x = x > y ? x : y;
}
template <typename X> TALLOW_INLINE void join_lanes(JoinLowest, X& x, const X& y) {
    x = x < y ? x : y;
}

// Partial results of a pass, one in each lane.
template <typename Functor, uint32_t Pass, typename Value> struct LaneTotals {
    static constexpr uint32_t joins = joins_of<Functor, Pass>;
    static constexpr uint32_t length = static_cast<uint32_t>(vector_length<Value>);
    static constexpr uint32_t vectors = group_lanes / length;
    // A NaN shows in sums of e**(.. - maximum) as well.
    static constexpr bool records_nan = !is_rescaled<Functor, Pass + 1>;
    Vector<Value> values[joins][vectors];
    // The last NaN of an extreme, or 0: a comparison in the chain of dependent maxima would take twice as long.
    Vector<Value> invalid[joins][vectors];

    TALLOW_INLINE void reset() {
        for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
            for (uint32_t v = 0; v < vectors; ++v) {
                values[j][v] = Vector<Value>{} + decltype(join)::template identity<Value>();
                invalid[j][v] = Vector<Value>{};
            }
        });
    }
    TALLOW_INLINE void add(const Value (&numbers)[joins][group_lanes]) {
        for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
            for (uint32_t v = 0; v < vectors; ++v) {
                Vector<Value> x;
                __builtin_memcpy(&x, numbers[j] + v * length, sizeof x);
                join_lanes(join, values[j][v], x);
                if constexpr (!is_same<decltype(join), JoinSums> && records_nan)
                    invalid[j][v] = x == x ? invalid[j][v] : x;
            }
        });
    }
    // Adds the first lanes of others.
    TALLOW_INLINE void add_lanes(const LaneTotals& others, uint32_t lanes) {
        Value numbers[joins][group_lanes];
        for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
            for (uint32_t v = 0; v < vectors; ++v) {
                Vector<Value> x = others.values[j][v];
                if constexpr (!is_same<decltype(join), JoinSums>)
                    x = others.invalid[j][v] == others.invalid[j][v] ? x : others.invalid[j][v];
                __builtin_memcpy(numbers[j] + v * length, &x, sizeof x);
            }
            for (uint32_t lane = 0; lane < group_lanes; ++lane)
                numbers[j][lane] = lane < lanes ? numbers[j][lane] : decltype(join)::template identity<Value>();
        });
        add(numbers);
    }
    // Adds the lanes, combined, to the totals of the row.
    TALLOW_INLINE void join_to(double (&totals)[joins]) const {
        for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
            const auto joining = [=](auto& x, const auto& y) TALLOW_INLINE_LAMBDA { join_lanes(join, x, y); };
            const Value value = combined(values[j], joining);
            if constexpr (is_same<decltype(join), JoinSums>) {
                totals[j] += static_cast<double>(value);
            } else {
                const auto adding = [](auto& x, const auto& y) TALLOW_INLINE_LAMBDA { x += y; };
                const Value error = combined(invalid[j], adding);
                totals[j] = decltype(join)::combine(totals[j], static_cast<double>(error == error ? value : error));
            }
        });
    }

  private:
    template <typename Joining>
    static TALLOW_INLINE Value combined(const Vector<Value> (&all)[vectors], Joining joining) {
        Vector<Value> lanes[vectors];
        __builtin_memcpy(lanes, all, sizeof lanes);
        for (uint32_t half = vectors / 2; half != 0; half /= 2)
            for (uint32_t v = 0; v < half; ++v)
                joining(lanes[v], lanes[v + half]);
        return reduce_lanes<Value>(lanes[0], joining);
    }
};

template <typename Functor, uint32_t Pass, typename Value>
TALLOW_INLINE void finish_pass(RowOf<Value, Functor>& row, const double (&totals)[joins_of<Functor, Pass>]) {
    for (uint32_t j = 0; j < joins_of<Functor, Pass>; ++j)
        row.known[Functor::template Reduced<Pass>::first + j] = static_cast<Value>(totals[j]);
    if constexpr (is_rescaled<Functor, Pass>) {
        // Of a finite maximum the sum is NaN only where an element is, which is the maximum then.
        Value& maximum = row.known[Functor::template Reduced<Pass - 1>::first];
        if (maximum - maximum == Value{0} && totals[0] != totals[0])
            maximum = static_cast<Value>(totals[0]);
    }
    Functor::template finish<Pass, Value>(row);
}

// Writes the results of a group, and adds to the sums over rows where HasTotals: total t begins `t * total_stride`
// values after the first one. Of groups with MayHaveIndex false, rows count and the index is elsewhere.
template <bool IsCached, bool HasTotals = false, bool MayHaveIndex = true, typename Functor, typename T, typename Rows>
TALLOW_INLINE void compute_group(const Rows& rows, const GroupOperands<Functor, T>& from, uint64_t group,
                                 T* const (&results)[Functor::results], [[maybe_unused]] widened<T>* totals = nullptr,
                                 [[maybe_unused]] uint64_t total_stride = 0) {
    using Value = widened<T>;
    for_lanes<Functor::passes, IsCached>(
        rows, from, group,
        [&](uint32_t lane, const auto& row, const auto& elements, Value position) TALLOW_INLINE_LAMBDA {
            Value values[output_slots<Functor>];
            if constexpr (MayHaveIndex)
                Functor::template compute<Value>(row, elements, position, values);
            else
                Functor::template compute<Value>(row, elements, OtherPosition<Value>(position), values);
            constexpr bool may_be_zero = has_row_index<Functor> && MayHaveIndex;
            for (uint32_t r = 0; r < Functor::results; ++r)
                results[r][lane] = convert<T>(may_be_zero && row.index == no_index ? Value{0} : values[r]);
            if constexpr (HasTotals)
                for (uint32_t t = 0; t < row_totals<Functor>; ++t)
                    totals[t * total_stride + lane] += values[Functor::results + t];
        });
}

// Loads and stores the first lanes of a group by masks. Other lanes are loaded as zeros: the CPU forwards no masked
// store to the loads that follow.
template <typename T> TALLOW_INLINE void load_lanes(uint32_t lanes, T (&to)[group_lanes], const T* from) {
    using Bits = typename Word<sizeof(T)>::type;
    const auto source = reinterpret_cast<const Bits*>(from);
    const auto target = reinterpret_cast<Bits*>(to);
    TALLOW_LANES
    for (uint32_t lane = 0; lane < group_lanes; ++lane)
        target[lane] = lane < lanes ? source[lane] : Bits{0};
}
template <typename T> TALLOW_INLINE void store_lanes(uint32_t lanes, T* to, const T* from) {
    using Bits = typename Word<sizeof(T)>::type;
    const auto source = reinterpret_cast<const Bits*>(from);
    const auto target = reinterpret_cast<Bits*>(to);
    TALLOW_LANES
    for (uint32_t lane = 0; lane < group_lanes; ++lane)
        if (lane < lanes)
            target[lane] = source[lane];
}

// Moves elements of any dtype from and to the values that an engine stores, by the strides of both.
template <typename Value> struct ElementMoves {
    void (*load)(uint64_t count, Value* to, int64_t step, const void* from, int64_t stride);
    void (*store)(uint64_t count, void* to, int64_t stride, const Value* from, int64_t step);
    // Adds elements side by side, from element `first` of three arrays on.
    void (*add)(uint64_t count, uint64_t to, uint64_t x, uint64_t y, uint64_t first);
    uint64_t itemsize;
};
template <typename T>
__attribute__((noinline)) void add_elements(uint64_t count, uint64_t to, uint64_t x, uint64_t y, uint64_t first) {
    map_span(
        count, [](T a, T b) { return convert<T>(to_compute(a) + to_compute(b)); }, pointer_to<T>(to) + first,
        pointer_to<const T>(x) + first, pointer_to<const T>(y) + first);
}
template <typename T, typename Value>
__attribute__((noinline)) void load_elements(uint64_t count, Value* to, int64_t step, const void* from,
                                             int64_t stride) {
    const T* const source = static_cast<const T*>(from);
    if (stride == 1 && step == 1) {
        if constexpr (is_same<T, Value>)
            __builtin_memcpy(to, source, count * sizeof(T));
        else
            convert_span(count, to, source);
        return;
    }
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
        to[i * step] = convert<Value>(source[i * stride]);
}
template <typename T, typename Value>
__attribute__((noinline)) void store_elements(uint64_t count, void* to, int64_t stride, const Value* from,
                                              int64_t step) {
    T* const result = static_cast<T*>(to);
    if (stride == 1 && step == 1) {
        if constexpr (is_same<T, Value>)
            __builtin_memcpy(result, from, count * sizeof(T));
        else
            convert_span(count, result, from);
        return;
    }
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
        result[i * stride] = convert<T>(from[i * step]);
}

// Transposes a matrix block by block. Rows that are no multiple of a vector are read up to the next one, and so are
// columns written: what that writes past the end of one is overwritten by the next one, except at the end of the last.
template <typename Value>
TALLOW_INLINE void transpose_blocks(uint64_t rows, uint64_t columns, const Value* from, uint64_t from_stride, Value* to,
                                    uint64_t to_stride) {
    constexpr uint32_t length = static_cast<uint32_t>(vector_length<Value>);
    for (uint64_t end = (rows + length - 1) / length * length; end != 0; end -= length)
        for (uint64_t column = 0; column < columns; column += length) {
            const uint64_t row = end - length;
            Vector<Value> block[length];
            for (uint32_t i = 0; i < length; ++i)
                __builtin_memcpy(&block[i], from + (row + i) * from_stride + column, sizeof block[i]);
            transpose_square(block);
            for (uint32_t i = 0; i < length; ++i)
                __builtin_memcpy(to + (column + i) * to_stride + row, &block[i], sizeof block[i]);
        }
}

// What both engines share.
template <typename Functor, typename T, typename Arguments> struct RowEngine {
    using Value = widened<T>;
    using Operands = GroupOperands<Functor, T>;
    static constexpr uint32_t operands = Functor::operands, derived = derived_values<Functor>;

    TALLOW_INLINE RowEngine(const Arguments& arguments, const ElementMoves<T>& moves)
        : arguments_(arguments), moves_(moves), length_(arguments.length), shared_{} {
        shared_.count = static_cast<Value>(length_);
        for (uint32_t i = 0; i < Functor::parameters; ++i)
            shared_.parameters[i] = from_bits<Value>(arguments.parameters[i]);
    }
    TALLOW_INLINE uint64_t address_of(uint64_t base, int64_t offset) const {
        return base + static_cast<uint64_t>(offset) * moves_.itemsize;
    }
    // The sum with a residual replaces the first operand.
    TALLOW_INLINE uint64_t operand(uint32_t k) const {
        if constexpr (adds_residual<Functor>)
            if (k == 0 && arguments_.operands[operands] != 0)
                return arguments_.results[row_outputs<Functor>];
        return arguments_.operands[k];
    }
    // Writes the sums of some rows and a residual, if there is one.
    TALLOW_INLINE void add_residual(uint64_t first, uint64_t rows) const {
        if constexpr (adds_residual<Functor>)
            if (arguments_.operands[operands] != 0)
                moves_.add(rows * length_, operand(0), arguments_.operands[0], arguments_.operands[operands],
                           first * length_);
    }
    TALLOW_INLINE bool is_absent(uint32_t k) const {
        return tallow::is_absent<Functor>(k, arguments_.operands[k]);
    }
    // Has a number instead of each operand that is left out.
    TALLOW_INLINE void fill_absent() {
        for (uint32_t k = 0; k < operands; ++k)
            if (is_absent(k))
                for (T& value : constants_[k])
                    value = convert<T>(static_cast<Value>(absent_number<Functor>(k)));
    }
    TALLOW_INLINE uint64_t source_of(uint32_t k, uint64_t row) const {
        const uint64_t outer = arguments_.inner == 1 ? row : row / arguments_.inner;
        const uint64_t inner = row - outer * arguments_.inner;
        return address_of(operand(k), static_cast<int64_t>(outer) * arguments_.outer_strides[k] +
                                          static_cast<int64_t>(inner) * arguments_.inner_strides[k]);
    }
    TALLOW_INLINE uint64_t result_of(uint32_t r, uint64_t row) const {
        const uint64_t inner = arguments_.inner == 1 ? 0 : row % arguments_.inner;
        return arguments_.results[r] + ((row - inner) * length_ + inner) * moves_.itemsize;
    }
    // Sets what is known of a row before its first pass.
    TALLOW_INLINE void begin_row(uint64_t number, RowOf<Value, Functor>& row) const {
        begin_numbers(arguments_, number, row, [&](uint32_t k, uint64_t position) {
            T element;
            const int64_t offset = static_cast<int64_t>(position) * arguments_.length_strides[k];
            moves_.load(1, &element, 1, pointer_to<const void>(address_of(source_of(k, number), offset)), 1);
            return to_compute(element);
        });
    }
    // How many groups of each of `count` operands or derived values fit a buffer.
    static TALLOW_INLINE uint64_t capacity_of(uint64_t length, uint32_t count) {
        const uint64_t groups = length / group_lanes / (count ? count : 1);
        return groups - groups % vector_length<Value>;
    }

    // Whether dense rows can be transposed without a copy.
    TALLOW_INLINE bool is_full_tile(uint32_t lanes) const {
        return moves_.itemsize == sizeof(T) && lanes == group_lanes;
    }

    const Arguments& arguments_;
    const ElementMoves<T>& moves_;
    const uint64_t length_;
    RowOf<Value, Functor> shared_;
    // Groups of each derived value.
    static constexpr uint64_t derived_capacity = derived_length<Value> / group_lanes / (derived ? derived : 1);

    alignas(line_bytes) T buffer_[operands_length<T>];
    alignas(line_bytes) Value derived_[derived ? derived_length<Value> : 1];
    alignas(line_bytes) T constants_[operands][group_lanes];
    alignas(line_bytes) T results_[Functor::results ? Functor::results : 1][block_groups<T> * group_lanes];
};

} // namespace tallow
