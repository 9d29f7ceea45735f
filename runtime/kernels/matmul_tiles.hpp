// Products of large matrices: a block makes a tile of the result, and brings the operands to shared memory in steps
// along the depth, the next step while it multiplies this one. Each operand is dense along one of its two dims, and
// whole accesses of 16 bytes are inside of it or outside.
#pragma once

#include "group_core.hpp"
#include "math.hpp"
#include "memory.hpp"
#include "tile_pipeline.hpp"

namespace tallow {

// Where the tile of a block is. Blocks side by side make a square of tiles, so that they find in the cache what they
// share.
template <uint32_t Rows, uint32_t Columns> struct TileOfProduct {
    static constexpr uint32_t square_side = 8;
    uint32_t batch;
    uint32_t first_row;
    uint32_t first_column;

    template <typename Arguments> static TALLOW_INLINE uint32_t down(const Arguments& arguments) {
        return (arguments.m + Rows - 1) / Rows;
    }
    template <typename Arguments> static TALLOW_INLINE uint32_t across(const Arguments& arguments) {
        return (arguments.n + Columns - 1) / Columns;
    }
    template <typename Arguments> static TALLOW_INLINE uint32_t count(const Arguments& arguments) {
        return arguments.batches * down(arguments) * across(arguments);
    }
    template <typename Arguments> TALLOW_INLINE TileOfProduct(const Arguments& arguments, uint32_t number) {
        const uint32_t tiles_down = down(arguments);
        const uint32_t tiles_across = across(arguments);
        batch = number / (tiles_down * tiles_across);
        number -= batch * tiles_down * tiles_across;
        const uint32_t first = number / (square_side * tiles_across) * square_side;
        const uint32_t height = tiles_down - first < square_side ? tiles_down - first : square_side;
        number -= first * tiles_across;
        first_row = (first + number % height) * Rows;
        first_column = number / height * Columns;
    }
};

// How an operand goes to shared memory: `Lines` rows or columns of the product, `Depth` of each.
template <typename T, uint32_t Lines, uint32_t Depth> struct StepOfOperand {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t bytes = Lines * Depth * sizeof(T);
    static constexpr uint32_t accesses = bytes / access_bytes / block_size;
    static_assert(accesses * access_bytes * block_size == bytes, "threads have equally many accesses");
};

// Stores elements side by side of a row of the result.
template <typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void store_elements(const Arguments& arguments, uint32_t batch, uint32_t row, uint32_t column,
                                  const Pack<T, N>& elements) {
    if (row < arguments.m) {
        T* const line = pointer_to<T>(arguments.result) + (uint64_t{batch} * arguments.m + row) * arguments.n;
        store_guarded<N>(line, column, arguments.n, elements);
    }
}

// The sum of a column, and of the bias where there is one.
template <typename T, typename Arguments>
TALLOW_INLINE float with_bias(const Arguments& arguments, uint32_t column, float sum) {
    if (arguments.bias != 0 && column < arguments.n)
        sum += to_compute(pointer_to<const T>(arguments.bias)[column * arguments.bias_stride]);
    return sum;
}

// Adds the bias and stores sums side by side of a row of the result.
template <typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void store_sums(const Arguments& arguments, uint32_t batch, uint32_t row, uint32_t column,
                              const float (&sums)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        pack.values[i] = round_from<T>(with_bias<T>(arguments, column + i, sums[i]));
    store_elements(arguments, batch, row, column, pack);
}

// An operand of dot products on its way to shared memory, where a thread brings one access of each step. What it reads
// in place of lines outside of the operand belongs to sums that nobody stores.
template <typename T, uint32_t Lines, bool IsDeep> struct DotOperand {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t depth = block_size * length / Lines;
    static constexpr uint32_t part = 4;
    static constexpr uint32_t stride = dot_stride<Lines>;
    struct Shared {
        alignas(access_bytes) float values[depth * stride];
    };

    const T* next;
    uint64_t step;
    uint32_t depth_of_all;
    Registers<access_bytes> loaded{};

    // The line, and the place in the depth, of the thread's access.
    static TALLOW_INLINE uint32_t line() {
        return IsDeep ? thread_index() / (depth / length) : thread_index() % (Lines / length) * length;
    }
    static TALLOW_INLINE uint32_t place() {
        return IsDeep ? thread_index() % (depth / length) * length : thread_index() / (Lines / length);
    }
    // Of `lines` lines from `first` on.
    TALLOW_INLINE DotOperand(const T* first, uint64_t row_stride, uint32_t lines, uint32_t depth_of_all)
        : step(IsDeep ? depth : depth * row_stride), depth_of_all(depth_of_all) {
        const uint32_t last = lines - (IsDeep ? 1 : length);
        const uint32_t near = line() < last ? line() : last;
        next = first + (IsDeep ? near * row_stride + place() : place() * row_stride + near);
    }
    // The step of the depth from `from` on, which are called one after the other.
    TALLOW_INLINE void load(uint32_t from) {
        loaded = {};
        if (from + place() < depth_of_all)
            loaded = load_registers<access_bytes>(next);
        next += step;
    }
    TALLOW_INLINE void store(Shared& shared) const {
        float* const to = shared.values + place() * stride + line();
#pragma unroll
        for (uint32_t e = 0; e < length; e += part) {
            Pack<float, part> pack;
#pragma unroll
            for (uint32_t j = 0; j < part; ++j)
                pack.values[j] = to_compute(take_element<T>(loaded, e + j));
            if constexpr (IsDeep) {
#pragma unroll
                for (uint32_t j = 0; j < part; ++j)
                    to[(e + j) * stride] = pack.values[j];
            } else {
                store_whole(to + e, pack);
            }
        }
    }
};

// The operands of dot products, a step of the depth in each slot of shared memory.
template <typename Lhs, typename Rhs> struct DotOperands {
    static constexpr uint32_t depth = Lhs::depth;
    struct Slot {
        typename Lhs::Shared lhs;
        typename Rhs::Shared rhs;
    };

    Lhs lhs;
    Rhs rhs;
    Slot* slots;

    // Steps are loaded one after the other.
    TALLOW_INLINE void load(uint32_t step) {
        lhs.load(step * depth);
        rhs.load(step * depth);
    }
    TALLOW_INLINE void store(uint32_t slot) const {
        lhs.store(slots[slot].lhs);
        rhs.store(slots[slot].rhs);
    }
    TALLOW_INLINE const float* rows(uint32_t slot, uint32_t d) const {
        return slots[slot].lhs.values + d * Lhs::stride;
    }
    TALLOW_INLINE const float* columns(uint32_t slot, uint32_t d) const {
        return slots[slot].rhs.values + d * Rhs::stride;
    }
};

// By dot products: a thread makes `Side` by `Side` squares of four by four.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, uint32_t Side, typename Arguments>
TALLOW_INLINE void multiply_by_dots(const Arguments& arguments) {
    using Sums = DotSums<float, Side, Side>;
    using Lhs = DotOperand<T, Sums::rows, IsLhsDeep>;
    using Rhs = DotOperand<T, Sums::columns, IsRhsDeep>;
    using Operands = DotOperands<Lhs, Rhs>;
    using Slot = typename Operands::Slot;
    using SmallestShared = typename DotOperand<T, matmul_side, false>::Shared;
    const TileOfProduct<Sums::rows, Sums::columns> tile(arguments, block_index());
    // The launcher counts the smallest tiles.
    if (tile.batch >= arguments.batches)
        return;
    // Of the smallest tiles, which have most padding: all share it.
    Slot* const slots = reinterpret_cast<Slot*>(declared_memory<4 * sizeof(SmallestShared)>());
    static_assert(2 * sizeof(Slot) <= 4 * sizeof(SmallestShared), "two steps fit");
    uint64_t offsets[2];
    locate(arguments, tile.batch, offsets);
    const Lhs lhs(pointer_to<const T>(arguments.lhs) + offsets[0] + tile.first_row * arguments.lhs_stride_m,
                  IsLhsDeep ? arguments.lhs_stride_m : arguments.lhs_stride_k, arguments.m - tile.first_row,
                  arguments.k);
    const Rhs rhs(pointer_to<const T>(arguments.rhs) + offsets[1] + tile.first_column * arguments.rhs_stride_n,
                  IsRhsDeep ? arguments.rhs_stride_n : arguments.rhs_stride_k, arguments.n - tile.first_column,
                  arguments.k);
    Operands operands{lhs, rhs, slots};
    Sums sums;
    sums.add(operands, (arguments.k + Operands::depth - 1) / Operands::depth);
    sums.each_run([&](uint32_t row, uint32_t column, const float(&run)[Sums::run]) {
        store_sums<T>(arguments, tile.batch, tile.first_row + row, tile.first_column + column, run);
    });
}

#if defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)

// An operand on its way to matrix cores. Where it `IsDeep` it is dense along the depth, else along its lines; then it
// is transposed on the way if matrix cores cannot read it so.
template <typename T, uint32_t Lines, uint32_t Depth, bool IsDeep, uint32_t Slots> struct OperandLoader {
    using Core = MatrixCore<T>;
    using Step = StepOfOperand<T, Lines, Depth>;
    static constexpr uint32_t length = Step::length;
    static constexpr uint32_t accesses = Step::accesses;
    static constexpr bool transposes = !IsDeep && !Core::reads_transposed;
    static constexpr bool has_lines = IsDeep || transposes;
    using Shared = SharedTile<T, has_lines ? Depth : Lines, transposes>;
    static constexpr uint32_t in_row = (IsDeep ? Depth : Lines) / length;
    static constexpr uint32_t apart = block_size / in_row;

    uint8_t* ring;
    const T* source;
    uint64_t row_stride;
    uint32_t lines;
    uint32_t depth;
#if !defined(TALLOW_MATRIX_CORE_MMA)
    Registers<access_bytes> loaded[accesses];
#endif

    // The row of memory of an access, and the first element of it. Where they are transposed, a thread's rows are side
    // by side.
    static TALLOW_INLINE uint32_t row(uint32_t i) {
        return transposes ? thread_index() / in_row * accesses + i : thread_index() / in_row + i * apart;
    }
    static TALLOW_INLINE uint32_t element() {
        return thread_index() % in_row * length;
    }
    TALLOW_INLINE OperandLoader(bits128* shared, const T* first, uint64_t row_stride, uint32_t lines, uint32_t depth)
        : ring(reinterpret_cast<uint8_t*>(shared)), source(first + row(0) * row_stride + element()),
          row_stride(row_stride), lines(lines), depth(depth) {
    }
    TALLOW_INLINE bool is_inside(uint32_t from, uint32_t i) const {
        return IsDeep ? row(i) < lines && from + element() < depth : from + row(i) < depth && element() < lines;
    }
    TALLOW_INLINE Shared tile(uint32_t slot) const {
        return {ring + slot * Step::bytes};
    }

    // The step of the depth from `from` on, which are called one after the other.
#if defined(TALLOW_MATRIX_CORE_MMA)
    TALLOW_INLINE void begin(uint32_t from, uint32_t slot) {
        const Shared to = tile(slot);
        const T* const here = source + (IsDeep ? from : from * row_stride);
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i)
            copy_async(to.at(row(i), element()), here + i * apart * row_stride, is_inside(from, i) ? access_bytes : 0);
    }
#else
    TALLOW_INLINE void load(uint32_t from) {
        const T* const here = source + (IsDeep ? from : from * row_stride);
#pragma unroll
        for (uint32_t i = 0; i < accesses; ++i) {
            loaded[i] = {};
            if (is_inside(from, i))
                loaded[i] = load_registers<access_bytes>(here + i * (transposes ? 1 : apart) * row_stride);
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
                store_registers(to.at(element() + e, row(0)), side_by_side);
            }
        } else {
#pragma unroll
            for (uint32_t i = 0; i < accesses; ++i)
                store_registers(to.at(row(i), element()), loaded[i]);
        }
    }
#endif
    static TALLOW_INLINE typename Core::Columns read(const Shared& from, uint32_t line, uint32_t place) {
        if constexpr (has_lines)
            return Core::read(from, line, place);
        else
            return Core::read_transposed(from, line, place);
    }
    static TALLOW_INLINE typename Core::Rows read_rows(const Shared& from, uint32_t line, uint32_t place) {
        if constexpr (has_lines)
            return Core::read_rows(from, line, place);
        else
            return Core::read_rows_transposed(from, line, place);
    }
};

// The operands of matrix cores.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Waves> struct CoreOperands {
    using Lhs = OperandLoader<T, Waves::rows, Waves::depth, IsLhsDeep, Waves::slots>;
    using Rhs = OperandLoader<T, Waves::columns, Waves::depth, IsRhsDeep, Waves::slots>;
    static constexpr uint32_t lhs_bytes = Waves::slots * Lhs::Step::bytes;
    static constexpr uint32_t bytes = lhs_bytes + Waves::slots * Rhs::Step::bytes;

    Lhs lhs;
    Rhs rhs;

#if defined(TALLOW_MATRIX_CORE_MMA)
    static constexpr bool is_async = true;
    TALLOW_INLINE void begin(uint32_t step, uint32_t slot) {
        lhs.begin(step * Waves::depth, slot);
        rhs.begin(step * Waves::depth, slot);
        commit_copies();
    }
#else
    static constexpr bool is_async = false;
    TALLOW_INLINE void load(uint32_t step) {
        lhs.load(step * Waves::depth);
        rhs.load(step * Waves::depth);
    }
    TALLOW_INLINE void store(uint32_t slot) {
        lhs.store(slot);
        rhs.store(slot);
    }
#endif
    TALLOW_INLINE auto read_rows(uint32_t slot, uint32_t row, uint32_t place) const {
        return Lhs::read_rows(lhs.tile(slot), row, place);
    }
    TALLOW_INLINE auto read_columns(uint32_t slot, uint32_t column, uint32_t place) const {
        return Rhs::read(rhs.tile(slot), column, place);
    }
};

template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Arguments>
TALLOW_INLINE void multiply_on_cores(const Arguments& arguments) {
#if defined(TALLOW_MATRIX_CORE_MMA)
    using Waves = TileOfWaves<128, 256, 3, 2>;
#else
    using Waves = TileOfWaves<128, 128, 2, 2>;
#endif
    using Operands = CoreOperands<T, IsLhsDeep, IsRhsDeep, Waves>;
    using Lhs = typename Operands::Lhs;
    using Rhs = typename Operands::Rhs;
    bits128* const lhs_shared = tile_memory<Operands::bytes>();
    bits128* const rhs_shared = lhs_shared + Operands::lhs_bytes / sizeof(bits128);
    const TileOfProduct<Waves::rows, Waves::columns> tile(arguments, block_index());
    // The launcher counts the smallest tiles.
    if (tile.batch >= arguments.batches)
        return;
    uint64_t offsets[2];
    locate(arguments, tile.batch, offsets);
    const Lhs lhs(lhs_shared, pointer_to<const T>(arguments.lhs) + offsets[0] + tile.first_row * arguments.lhs_stride_m,
                  IsLhsDeep ? arguments.lhs_stride_m : arguments.lhs_stride_k, arguments.m - tile.first_row,
                  arguments.k);
    const Rhs rhs(
        rhs_shared, pointer_to<const T>(arguments.rhs) + offsets[1] + tile.first_column * arguments.rhs_stride_n,
        IsRhsDeep ? arguments.rhs_stride_n : arguments.rhs_stride_k, arguments.n - tile.first_column, arguments.k);
    Operands operands{lhs, rhs};
    CoreSums<T, Waves> sums;
    sums.add(operands, (arguments.k + Waves::depth - 1) / Waves::depth);
    sums.each_run([&](uint32_t row, uint32_t column, const float(&run)[MatrixCore<T>::run]) {
        store_sums<T>(arguments, tile.batch, tile.first_row + row, tile.first_column + column, run);
    });
}

#endif

#if defined(TALLOW_GROUP_CORE)

// An operand on its way to the matrix cores of groups.
template <typename T, uint32_t Lines, bool IsDeep> struct GroupLoader {
    static constexpr uint32_t depth = 64;
    using Step = StepOfOperand<T, Lines, depth>;
    using Operand = GroupOperand<T, IsDeep, IsDeep ? Lines : depth>;
    static constexpr uint32_t in_row = Operand::row_length / Step::length;
    static constexpr uint32_t apart = block_size / in_row;

    uint32_t ring;
    const T* source;
    uint64_t row_stride;
    uint32_t lines;
    uint32_t depth_of_all;

    // The line, and the step of the depth, of an access.
    static TALLOW_INLINE uint32_t row(uint32_t i) {
        return thread_index() / in_row + i * apart;
    }
    static TALLOW_INLINE uint32_t element() {
        return thread_index() % in_row * Step::length;
    }
    TALLOW_INLINE GroupLoader(uint32_t ring, const T* first, uint64_t row_stride, uint32_t lines, uint32_t depth_of_all)
        : ring(ring), source(first + row(0) * row_stride + element()), row_stride(row_stride), lines(lines),
          depth_of_all(depth_of_all) {
    }
    TALLOW_INLINE Operand operand(uint32_t slot) const {
        return {ring + slot * Step::bytes};
    }
    TALLOW_INLINE void begin(uint32_t from, uint32_t slot) {
        const uint32_t to = operand(slot).address + Operand::offset(row(0), element());
        const T* const here = source + (IsDeep ? from : from * row_stride);
#pragma unroll
        for (uint32_t i = 0; i < Step::accesses; ++i) {
            // Rows of lines are all of the depth for the first lines, then for the next ones.
            const uint32_t next_lines = i * apart / depth * Operand::row_length;
            const uint32_t next_places = i * apart % depth;
            const uint32_t line = IsDeep ? row(i) : next_lines + element();
            const uint32_t place = IsDeep ? element() : row(0) + next_places;
            const uint64_t offset = IsDeep ? i * apart * row_stride : next_places * row_stride + next_lines;
            const bool is_inside = line < lines && from + place < depth_of_all;
            copy_async(to + i * apart * Operand::row_bytes, here + offset, is_inside ? access_bytes : 0);
        }
    }
};

// Adds the bias to sums of 64 rows from `row` on, by 2 * N columns, and stores them.
template <typename T, uint32_t N, typename Arguments>
TALLOW_INLINE void store_group(const Arguments& arguments, uint32_t batch, uint32_t row, uint32_t column,
                               const float (&sums)[N]) {
    // Four lanes have pairs of the same eights of columns; each stores one of four eights.
    const uint32_t own = lane_index() % 4;
    constexpr uint32_t eights = 4;
#pragma unroll
    for (uint32_t first = 0; first < N; first += 4 * eights)
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h) {
            Registers<access_bytes> words;
#pragma unroll
            for (uint32_t e = 0; e < eights; ++e) {
                const uint32_t i = first + 4 * e + 2 * h;
                const uint32_t pair = column + 2 * (first + 4 * e) + 2 * own;
                words.values[e] = round_pair<T>(with_bias<T>(arguments, pair, sums[i]),
                                                with_bias<T>(arguments, pair + 1, sums[i + 1]));
            }
            transpose_quads(words.values);
            store_elements(arguments, batch, row + MatrixCore<T>::row(h), column + 2 * first + 8 * own,
                           bit_cast<Pack<T, 8>>(words));
        }
}

// A block of two groups makes 128 rows by so many columns.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, uint32_t Columns, typename Arguments>
TALLOW_INLINE void multiply_by_groups(const Arguments& arguments) {
    constexpr uint32_t rows = groups_per_block * group_rows;
    constexpr uint32_t slots = 4;
    using Lhs = GroupLoader<T, rows, IsLhsDeep>;
    using Rhs = GroupLoader<T, Columns, IsRhsDeep>;
    constexpr uint32_t depth = Lhs::depth;
    constexpr uint32_t lhs_bytes = slots * Lhs::Step::bytes;
    const uint32_t lhs_shared = shared_address(tile_memory<lhs_bytes + slots * Rhs::Step::bytes>());
    const uint32_t rhs_shared = lhs_shared + lhs_bytes;
    const TileOfProduct<rows, Columns> tile(arguments, block_index());
    // The launcher counts the smallest tiles.
    if (tile.batch >= arguments.batches)
        return;
    uint64_t offsets[2];
    locate(arguments, tile.batch, offsets);
    Lhs lhs(lhs_shared, pointer_to<const T>(arguments.lhs) + offsets[0] + tile.first_row * arguments.lhs_stride_m,
            IsLhsDeep ? arguments.lhs_stride_m : arguments.lhs_stride_k, arguments.m - tile.first_row, arguments.k);
    Rhs rhs(rhs_shared, pointer_to<const T>(arguments.rhs) + offsets[1] + tile.first_column * arguments.rhs_stride_n,
            IsRhsDeep ? arguments.rhs_stride_n : arguments.rhs_stride_k, arguments.n - tile.first_column, arguments.k);
    const auto begin = [&](uint32_t from, uint32_t slot) {
        lhs.begin(from, slot);
        rhs.begin(from, slot);
        commit_copies();
    };
    // A slot is free when both groups are done with it, which they know a step later.
    constexpr uint32_t ahead = slots - 2;
#pragma unroll
    for (uint32_t step = 0; step < ahead; ++step)
        begin(step * depth, step);
    float sums[Columns / 2] = {};
    uint32_t slot = 0;
#pragma unroll 1
    for (uint32_t from = 0; from < arguments.k; from += depth) {
        await_copies<ahead - 1>();
        show_products_shared();
        synchronize_block();
        begin_products();
#pragma unroll
        for (uint32_t place = 0; place < depth; place += matrix_side)
            multiply_group<T, IsLhsDeep, IsRhsDeep>(sums, lhs.operand(slot).describe(group_index() * group_rows, place),
                                                    rhs.operand(slot).describe(0, place));
        commit_products();
        begin(from + ahead * depth, (slot + ahead) % slots);
        await_products<1>();
        slot = (slot + 1) % slots;
    }
    await_products<0>();
    pin(sums);
    store_group<T>(arguments, tile.batch, tile.first_row + wave_index() * matrix_side, tile.first_column, sums);
}

#endif

// Products of floats. The launcher counts tiles of 64 by 64; larger ones would leave multiprocessors without any where
// these are few.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Arguments>
TALLOW_INLINE void multiply_floats(const Arguments& arguments) {
    constexpr uint32_t few_tiles = 1024;
    if (grid_blocks() < few_tiles)
        multiply_by_dots<T, IsLhsDeep, IsRhsDeep, 1>(arguments);
    else
        multiply_by_dots<T, IsLhsDeep, IsRhsDeep, 2>(arguments);
}

// Products of halves, of which the launcher counts tiles of 128 by 128, or where these are few, of half the columns.
template <typename T, bool IsLhsDeep, bool IsRhsDeep, typename Arguments>
TALLOW_INLINE void multiply_tiles(const Arguments& arguments) {
#if defined(TALLOW_GROUP_CORE)
    constexpr uint32_t few_tiles = 256;
    if (grid_blocks() > TileOfProduct<128, 128>::count(arguments))
        multiply_by_groups<T, IsLhsDeep, IsRhsDeep, 64>(arguments);
    else if (grid_blocks() < few_tiles)
        multiply_by_groups<T, IsLhsDeep, IsRhsDeep, 128>(arguments);
    else
        multiply_by_groups<T, IsLhsDeep, IsRhsDeep, 256>(arguments);
#elif defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)
    multiply_on_cores<T, IsLhsDeep, IsRhsDeep>(arguments);
#else
    multiply_by_dots<T, IsLhsDeep, IsRhsDeep, 2>(arguments);
#endif
}

} // namespace tallow
