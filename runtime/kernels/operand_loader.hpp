// How operands of matrix products come to shared memory in steps of the depth, and how matrix cores read them there.
// A source knows where the accesses of 16 bytes are:
//
//   begin(from)            the step of the depth from `from` on is next
//   at(from, i)            where access i of the thread is
//   is_inside(from, i)     whether it is inside of the operand; others are read as zeros
#pragma once

#include "group_core.hpp"
#include "tile_pipeline.hpp"

namespace tallow {

// The accesses of a step: `Lines` rows or columns of the product, `Depth` of each. They are along the depth where it
// `IsDeep`, else along the lines, of which RowLength are a row of shared memory. Threads take rows with a stride of
// `rows_per_round`, or where these are `SideBySide` consecutive ones.
template <typename T, uint32_t Lines, uint32_t Depth, bool IsDeep, uint32_t RowLength, bool SideBySide>
struct AccessesOfStep {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t depth = Depth;
    static constexpr bool is_deep = IsDeep;
    static constexpr uint32_t row_length = RowLength;
    static constexpr uint32_t bytes = Lines * Depth * sizeof(T);
    static constexpr uint32_t in_row = RowLength / length;
    static constexpr uint32_t all = bytes / access_bytes;
    static constexpr uint32_t count = (all + block_size - 1) / block_size;
    static_assert(all % block_size == 0 || count == 1, "threads have equally many accesses, or one at most");
    static constexpr uint32_t rows_per_round = block_size / in_row;
    // How many different lines, and indexes of the depth, the accesses of a thread have.
    static constexpr uint32_t lines = IsDeep                                       ? count
                                      : count > 1 && count* rows_per_round > Depth ? count* rows_per_round / Depth
                                                                                   : 1;
    static constexpr uint32_t depths = IsDeep ? 1 : count / lines;
    static_assert(!SideBySide || lines == 1 || IsDeep);

    static TALLOW_INLINE bool takes_part() {
        return all >= block_size || thread_index() < all;
    }
    // The first row, from which rows of memory of one line or index of the depth are counted, and the element in it.
    static TALLOW_INLINE uint32_t first_row() {
        return SideBySide ? thread_index() / in_row * count : thread_index() / in_row;
    }
    static TALLOW_INLINE uint32_t element() {
        return thread_index() % in_row * length;
    }
    static constexpr TALLOW_INLINE uint32_t row_step(uint32_t i) {
        return i * (SideBySide ? 1 : rows_per_round);
    }
    static constexpr TALLOW_INLINE uint32_t line_number(uint32_t i) {
        return IsDeep ? i : i / depths;
    }
    static constexpr TALLOW_INLINE uint32_t depth_number(uint32_t i) {
        return IsDeep ? 0 : i % depths;
    }
    // From the line, and the index of the depth, of the first access to those of access i.
    static constexpr TALLOW_INLINE uint32_t line_step(uint32_t i) {
        return IsDeep ? row_step(i) : line_number(i) * RowLength;
    }
    static constexpr TALLOW_INLINE uint32_t depth_step(uint32_t i) {
        return IsDeep ? 0 : row_step(depth_number(i));
    }
    static TALLOW_INLINE uint32_t line(uint32_t i) {
        return (IsDeep ? first_row() : element()) + line_step(i);
    }
    static TALLOW_INLINE uint32_t depth_index(uint32_t i) {
        return (IsDeep ? element() : first_row()) + depth_step(i);
    }
};

// An operand that lies in memory as a matrix.
template <typename T, typename Accesses> struct MatrixSource {
    const T* first;
    uint64_t row_stride;
    uint32_t lines;
    uint32_t depth;

    TALLOW_INLINE MatrixSource(const T* first, uint64_t row_stride, uint32_t lines, uint32_t depth)
        : first(first + Accesses::first_row() * row_stride + Accesses::element()), row_stride(row_stride), lines(lines),
          depth(depth) {
    }
    TALLOW_INLINE void begin(uint32_t) {
    }
    TALLOW_INLINE const T* at(uint32_t from, uint32_t i) const {
        const T* const here = first + (Accesses::is_deep ? from : from * row_stride);
        return here + (Accesses::is_deep ? Accesses::line_step(i) * row_stride
                                         : Accesses::depth_step(i) * row_stride + Accesses::line_step(i));
    }
    TALLOW_INLINE bool is_inside(uint32_t from, uint32_t i) const {
        return Accesses::line(i) < lines && from + Accesses::depth_index(i) < depth;
    }
};

#if defined(TALLOW_HAS_ASYNC_COPIES)
// Begins the accesses of a step, all of which are located first: copies would have memory read again in between.
template <typename Accesses, typename Source, typename Target>
TALLOW_INLINE void copy_each(const Source& source, uint32_t from, Target target) {
    const void* sources[Accesses::count];
    uint32_t bytes[Accesses::count];
#pragma unroll
    for (uint32_t i = 0; i < Accesses::count; ++i) {
        sources[i] = source.at(from, i);
        bytes[i] = source.is_inside(from, i) ? access_bytes : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < Accesses::count; ++i)
        copy_async(target(i), sources[i], bytes[i]);
}
#endif

// The loader of an operand of dot products: see DotSums. What lies along the depth is transposed, unless it
// `KeepsLines`. Copies are asynchronous where elements are not converted and accesses are aligned in shared
// memory, which they are not in the padded rows of elements of 16 bits or fewer.
template <typename T, uint32_t Lines, uint32_t Depth, bool IsDeep, bool KeepsLines,
          template <typename, typename> typename SourceOf>
struct DotLoader {
    using Value = compute_type<T>;
    using Accesses = AccessesOfStep<T, Lines, Depth, IsDeep, IsDeep ? Depth : Lines, false>;
    using Source = SourceOf<T, Accesses>;
    static constexpr uint32_t depth = Depth;
    static constexpr uint32_t stride = dot_stride<Lines>;
    static constexpr bool has_lines = IsDeep && KeepsLines;
#if defined(TALLOW_HAS_ASYNC_COPIES)
    static constexpr bool is_async =
        is_same<T, Value> && (has_lines || (!IsDeep && stride * sizeof(Value) % access_bytes == 0));
#else
    static constexpr bool is_async = false;
#endif
    struct Shared {
        alignas(access_bytes) Value values[has_lines ? Lines * Depth : Depth * stride];
    };

    static_assert(!has_lines || Accesses::rows_per_round % 8 == 0,
                  "lines that are so far rows_per_round are permuted alike");

    Source source;
    // Where the elements of the first access are in shared memory; those of access i are `step_to(i)` further on.
    uint32_t first;
    Registers<access_bytes> loaded[is_async ? 1 : Accesses::count];

    TALLOW_INLINE DotLoader(const Source& source) : source(source), first(first_target()) {
    }
    static TALLOW_INLINE uint32_t first_target() {
        if constexpr (has_lines)
            return SharedTile<T, Depth, false>::offset(Accesses::line(0), Accesses::depth_index(0)) / sizeof(Value);
        else
            return Accesses::depth_index(0) * stride + Accesses::line(0);
    }
    static constexpr TALLOW_INLINE uint32_t step_to(uint32_t i) {
        return Accesses::depth_step(i) * stride + Accesses::line_step(i) * (has_lines ? Depth : 1);
    }
    // The step of the depth from `from` on, which are called one after the other.
#if defined(TALLOW_HAS_ASYNC_COPIES)
    TALLOW_INLINE void begin(uint32_t from, Shared& shared) {
        source.begin(from);
        const uint32_t to = shared_address(shared.values) + first * static_cast<uint32_t>(sizeof(Value));
        if (Accesses::takes_part())
            copy_each<Accesses>(source, from,
                                [&](uint32_t i) { return to + step_to(i) * static_cast<uint32_t>(sizeof(Value)); });
    }
#endif
    TALLOW_INLINE void load(uint32_t from) {
        source.begin(from);
#pragma unroll
        for (uint32_t i = 0; i < Accesses::count; ++i) {
            loaded[i] = {};
            if (Accesses::takes_part() && source.is_inside(from, i))
                loaded[i] = load_registers<access_bytes>(source.at(from, i));
        }
    }
    TALLOW_INLINE void store(Shared& shared) const {
        constexpr uint32_t length = Accesses::length;
        // Lines begin at multiples of four elements.
        constexpr uint32_t in_pack = length < 4 ? length : sizeof(Value) < 8 ? 4 : 2;
        if (!Accesses::takes_part())
            return;
#pragma unroll
        for (uint32_t i = 0; i < Accesses::count; ++i) {
            Value* const to = shared.values + first + step_to(i);
#pragma unroll
            for (uint32_t e = 0; e < length; e += in_pack) {
                Pack<Value, in_pack> pack;
#pragma unroll
                for (uint32_t j = 0; j < in_pack; ++j)
                    pack.values[j] = to_compute(take_element<T>(loaded[i], e + j));
                if constexpr (IsDeep && !has_lines) {
#pragma unroll
                    for (uint32_t j = 0; j < in_pack; ++j)
                        to[(e + j) * stride] = pack.values[j];
                } else {
                    store_pack(to + e, pack);
                }
            }
        }
    }
};

// The operands of dot products, a step of the depth in each slot of shared memory.
template <typename Lhs, typename Rhs> struct DotOperands {
    static constexpr uint32_t depth = Lhs::depth;
    static constexpr bool is_async = Lhs::is_async;
    struct Slot {
        typename Lhs::Shared lhs;
        typename Rhs::Shared rhs;
    };

    Lhs lhs;
    Rhs rhs;
    Slot* slots;

    // Steps are loaded one after the other.
#if defined(TALLOW_HAS_ASYNC_COPIES)
    TALLOW_INLINE void begin(uint32_t step, uint32_t slot) {
        lhs.begin(step * depth, slots[slot].lhs);
        rhs.begin(step * depth, slots[slot].rhs);
        commit_copies();
    }
#endif
    TALLOW_INLINE void load(uint32_t step) {
        lhs.load(step * depth);
        rhs.load(step * depth);
    }
    TALLOW_INLINE void store(uint32_t slot) const {
        lhs.store(slots[slot].lhs);
        rhs.store(slots[slot].rhs);
    }
    TALLOW_INLINE const auto* rows(uint32_t slot) const {
        return slots[slot].lhs.values;
    }
    TALLOW_INLINE const auto* columns(uint32_t slot) const {
        return slots[slot].rhs.values;
    }
};

#if defined(TALLOW_MATRIX_CORES)

// The loader of an operand of matrix cores. What lies along the lines is transposed if matrix cores cannot read
// it so.
template <typename T, uint32_t Lines, uint32_t Depth, bool IsDeep, template <typename, typename> typename SourceOf>
struct OperandLoader {
    using Core = MatrixCore<T, matrix_depth>;
    static constexpr bool transposes = !IsDeep && !Core::reads_transposed;
    static constexpr bool has_lines = IsDeep || transposes;
    using Accesses = AccessesOfStep<T, Lines, Depth, IsDeep, IsDeep ? Depth : Lines, transposes>;
    using Source = SourceOf<T, Accesses>;
    using Shared = SharedTile<T, has_lines ? Depth : Lines, transposes>;
    static constexpr uint32_t length = Accesses::length;
    static constexpr uint32_t accesses = Accesses::count;

    uint8_t* ring;
    Source source;
#if !defined(TALLOW_MATRIX_CORES_MMA)
    Registers<access_bytes> loaded[accesses];
#endif

    TALLOW_INLINE OperandLoader(bits128* shared, const Source& source)
        : ring(reinterpret_cast<uint8_t*>(shared)), source(source) {
    }
    TALLOW_INLINE Shared tile(uint32_t slot) const {
        return {ring + slot * Accesses::bytes};
    }
    // The row of shared memory of an access that is not transposed.
    static TALLOW_INLINE uint32_t row(uint32_t i) {
        return Accesses::first_row() + Accesses::row_step(i);
    }

    // The step of the depth from `from` on, which are called one after the other.
#if defined(TALLOW_MATRIX_CORES_MMA)
    TALLOW_INLINE void begin(uint32_t from, uint32_t slot) {
        const Shared to = tile(slot);
        source.begin(from);
        copy_each<Accesses>(source, from,
                            [&](uint32_t i) { return shared_address(to.at(row(i), Accesses::element())); });
    }
#else
    TALLOW_INLINE void load(uint32_t from) {
        source.begin(from);
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i) {
            loaded[i] = {};
            if (source.is_inside(from, i))
                loaded[i] = load_registers<access_bytes>(source.at(from, i));
        }
    }
    TALLOW_INLINE void store(uint32_t slot) {
        const Shared to = tile(slot);
        if constexpr (transposes) {
            constexpr uint32_t together = accesses * sizeof(T);
#pragma unroll
            for (uint32_t e = 0; e < length; ++e) {
                Registers<together> side_by_side{};
#pragma unroll
                for (uint32_t i = 0; i < accesses; ++i)
                    put_element(side_by_side, i, take_element<T>(loaded[i], e));
                store_registers(to.at(Accesses::element() + e, row(0)), side_by_side);
            }
        } else {
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i)
                store_registers(to.at(row(i), Accesses::element()), loaded[i]);
        }
    }
#endif
    static TALLOW_INLINE typename Core::Columns read(const Shared& from, uint32_t line, uint32_t depth_index) {
        if constexpr (has_lines)
            return Core::read(from, line, depth_index);
        else
            return Core::read_transposed(from, line, depth_index);
    }
    static TALLOW_INLINE typename Core::Rows read_rows(const Shared& from, uint32_t line, uint32_t depth_index) {
        if constexpr (has_lines)
            return Core::read_rows(from, line, depth_index);
        else
            return Core::read_rows_transposed(from, line, depth_index);
    }
};

// The operands of matrix cores.
template <typename LhsLoader, typename RhsLoader, typename Waves> struct CoreOperands {
    using Lhs = LhsLoader;
    using Rhs = RhsLoader;
    static constexpr uint32_t depth = Waves::depth;
    static constexpr uint32_t lhs_bytes = Waves::slots * Lhs::Accesses::bytes;
    static constexpr uint32_t bytes = lhs_bytes + Waves::slots * Rhs::Accesses::bytes;

    Lhs lhs;
    Rhs rhs;

#if defined(TALLOW_MATRIX_CORES_MMA)
    static constexpr bool is_async = true;
    TALLOW_INLINE void begin(uint32_t step, uint32_t slot) {
        lhs.begin(step * depth, slot);
        rhs.begin(step * depth, slot);
        commit_copies();
    }
#else
    static constexpr bool is_async = false;
    TALLOW_INLINE void load(uint32_t step) {
        lhs.load(step * depth);
        rhs.load(step * depth);
    }
    TALLOW_INLINE void store(uint32_t slot) {
        lhs.store(slot);
        rhs.store(slot);
    }
#endif
    TALLOW_INLINE auto read_rows(uint32_t slot, uint32_t row, uint32_t depth_index) const {
        return Lhs::read_rows(lhs.tile(slot), row, depth_index);
    }
    TALLOW_INLINE auto read_columns(uint32_t slot, uint32_t column, uint32_t depth_index) const {
        return Rhs::read(rhs.tile(slot), column, depth_index);
    }
};

#endif

#if defined(TALLOW_HAS_WGMMA)

// The loader of an operand of the matrix cores of groups.
template <typename T, uint32_t Lines, bool IsDeep, template <typename, typename> typename SourceOf> struct GroupLoader {
    static constexpr uint32_t depth = 64;
    using Operand = GroupOperand<T, IsDeep, IsDeep ? Lines : depth>;
    using Accesses = AccessesOfStep<T, Lines, depth, IsDeep, Operand::row_length, false>;
    using Source = SourceOf<T, Accesses>;

    uint32_t ring;
    Source source;

    TALLOW_INLINE GroupLoader(uint32_t ring, const Source& source) : ring(ring), source(source) {
    }
    TALLOW_INLINE Operand operand(uint32_t slot) const {
        return {ring + slot * Accesses::bytes};
    }
    // The step of the depth from `from` on, which are called one after the other.
    TALLOW_INLINE void begin(uint32_t from, uint32_t slot) {
        const uint32_t to = operand(slot).address + Operand::offset(Accesses::first_row(), Accesses::element());
        source.begin(from);
        copy_each<Accesses>(source, from, [&](uint32_t i) { return to + Accesses::row_step(i) * Operand::row_bytes; });
    }
};

// The operands of groups.
template <typename LhsLoader, typename RhsLoader, uint32_t Slots> struct GroupOperands {
    using Lhs = LhsLoader;
    using Rhs = RhsLoader;
    static constexpr uint32_t depth = Lhs::depth;
    static constexpr uint32_t slots = Slots;
    static constexpr uint32_t lhs_bytes = slots * Lhs::Accesses::bytes;
    static constexpr uint32_t bytes = lhs_bytes + slots * Rhs::Accesses::bytes;

    Lhs lhs;
    Rhs rhs;

    TALLOW_INLINE void begin(uint32_t step, uint32_t slot) {
        lhs.begin(step * depth, slot);
        rhs.begin(step * depth, slot);
        commit_copies();
    }
};

// The sums of a tile, of which each of two groups makes the upper or lower half, or the left or right one.
template <typename T, bool AreRowsDeep, bool AreColumnsDeep, uint32_t Rows, uint32_t Columns> struct GroupSums {
    static constexpr uint32_t rows = Rows;
    static constexpr uint32_t columns = Columns;
    static constexpr uint32_t groups_down = rows / group_rows;
    static constexpr uint32_t group_columns = columns * groups_down / groups_per_block;
    static constexpr uint32_t run = 2;
    static_assert(groups_down == 1 || groups_down == groups_per_block);

    float sums[group_columns / 2] = {};

    static TALLOW_INLINE uint32_t first_row() {
        return groups_down == 1 ? 0 : group_index() * group_rows;
    }
    static TALLOW_INLINE uint32_t first_column() {
        return groups_down == 1 ? group_index() * group_columns : 0;
    }
    template <typename Operands> TALLOW_INLINE void add(Operands& operands, uint32_t steps) {
        constexpr uint32_t slots = Operands::slots;
        // A slot is free when both groups are done with it, which they know a step later.
        constexpr uint32_t ahead = slots - 2;
#pragma unroll
        for (uint32_t step = 0; step < ahead; ++step)
            operands.begin(step, step);
        uint32_t slot = 0;
#pragma unroll 1
        for (uint32_t step = 0; step < steps; ++step) {
            await_copies<ahead - 1>();
            show_products_shared();
            synchronize_block();
            begin_products();
#pragma unroll
            for (uint32_t depth_index = 0; depth_index < Operands::depth; depth_index += matrix_side)
                multiply_group<T, AreRowsDeep, AreColumnsDeep>(
                    sums, operands.lhs.operand(slot).describe(first_row(), depth_index),
                    operands.rhs.operand(slot).describe(first_column(), depth_index));
            commit_products();
            operands.begin(step + ahead, (slot + ahead) % slots);
            await_products<1>();
            slot = (slot + 1) % slots;
        }
        await_products<0>();
        pin(sums);
    }
    // Calls function(row, column, sums) for the sums of columns side by side.
    template <typename Function> TALLOW_INLINE void each_run(Function function) const {
        const uint32_t row = first_row() + wave_index() % waves_per_group * matrix_side;
#pragma unroll
        for (uint32_t i = 0; i < group_columns / 2; i += run) {
            const float side_by_side[run] = {sums[i], sums[i + 1]};
            function(row + MatrixCore<T>::row(MatrixCore<T>::lane_row_of(i)),
                     first_column() + i / 8 * matrix_side + MatrixCore<T>::column(i % 8), side_by_side);
        }
    }
};

#endif

} // namespace tallow
