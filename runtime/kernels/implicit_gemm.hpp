// Convolutions and their gradients as matrix products whose operands are gathered where they lie: implicit GEMM.
//
//   product             rows                depth                     columns
//   the convolution     output channels     taps x input channels     positions of the result
//   input gradient      input channels      taps x output channels    positions of the input, by residue
//   weight gradient     output channels     positions of the result   taps x input channels
//
// Operands have channels innermost, a multiple of an access: of the image and the kernel they are the depth, and
// where positions are summed the columns, and the rows of the gradient.
#pragma once

#include "activation.hpp"
#include "gathered_source.hpp"
#include "math.hpp"

namespace tallow {

// Which tile a block makes. Blocks side by side share columns, which are what is gathered.
struct GatheredTile {
    uint32_t first_row;
    uint32_t first_column;
    uint32_t group;
    uint32_t residues[3];
    uint32_t part;

    static TALLOW_INLINE uint32_t take(uint32_t& number, uint32_t count) {
        const uint32_t quotient = number / count;
        const uint32_t remainder = number - quotient * count;
        number = quotient;
        return remainder;
    }
    template <typename Arguments>
    TALLOW_INLINE GatheredTile(const Arguments& arguments, uint32_t rows, uint32_t columns) {
        uint32_t number = block_index();
        first_row = take(number, (arguments.rows + rows - 1) / rows) * rows;
        first_column = take(number, arguments.tiles_across) * columns;
        residues[2] = take(number, arguments.residues_w);
        residues[1] = take(number, arguments.residues_h);
        residues[0] = take(number, arguments.residues_d);
        group = take(number, arguments.groups);
        part = number;
    }
};

// An element of the gradient of the input by itself: terms outside of the image take no part in it. Tiles multiply
// zeros instead of these, which make NaN of infinite factors.
template <typename T, typename Arguments>
TALLOW_INLINE compute_type<T> sum_inside(const Gathering<false, Arguments>& gathering, const GatheredTile& tile,
                                         uint32_t row, uint32_t column) {
    const auto& arguments = reread(gathering.arguments);
    const uint32_t channels = arguments.channels;
    const ImageIndex position = gathering.of_column(column);
    const T* const image =
        pointer_to<const T>(arguments.image) + tile.group * arguments.image_stride_group + position.image;
    const T* const factors = pointer_to<const T>(arguments.factors) + tile.group * arguments.factors_stride_group +
                             row * arguments.factors_stride_row;
    const uint32_t all = gathering.depth();
    uint32_t number = tile.part * arguments.part < all ? tile.part * arguments.part : all;
    const uint32_t end = all - number > arguments.part ? number + arguments.part : all;
    compute_type<T> sum{0};
#pragma unroll 1
    while (number < end) {
        const ImageIndex term = gathering.of_depth(number);
        const uint32_t next = (number / channels + 1) * channels;
        const uint32_t count = (next < end ? next : end) - number;
        number += count;
        if (position.coordinates[0] + term.coordinates[0] >= arguments.image_d ||
            position.coordinates[1] + term.coordinates[1] >= arguments.image_h ||
            position.coordinates[2] + term.coordinates[2] >= arguments.image_w)
            continue;
#pragma unroll 1
        for (uint32_t c = 0; c < count; ++c)
            sum = multiply_add(to_compute(factors[term.other + c * arguments.factors_stride_outer]),
                               to_compute(image[term.image + c * arguments.image_stride_c]), sum);
    }
    return sum;
}

// How tiles are computed: what sums them, and what brings the operands to it. Of elements that have a register each,
// dot products read the depth of lines.
template <typename T, typename Gathering, uint32_t Down, uint32_t Across, uint32_t Depth, uint32_t PartsDown = 4>
struct DotTile {
    static constexpr bool is_deep = !Gathering::sums_positions;
    static constexpr bool has_lines = is_deep && sizeof(T) >= 4;
    using Sums = DotSums<compute_type<T>, Down, Across, has_lines, PartsDown>;
    using Lhs = DotLoader<T, Sums::rows, Depth, is_deep, has_lines, SourcesOf<Gathering>::template Factors>;
    using Rhs = DotLoader<T, Sums::columns, Depth, is_deep, has_lines, SourcesOf<Gathering>::template Image>;
    using Operands = DotOperands<Lhs, Rhs>;
    static constexpr uint32_t bytes = 2 * sizeof(typename Operands::Slot);

    static TALLOW_INLINE Operands operands(bits128* memory, const typename Lhs::Source& lhs,
                                           const typename Rhs::Source& rhs) {
        return {lhs, rhs, reinterpret_cast<typename Operands::Slot*>(memory)};
    }
};

#if defined(TALLOW_MATRIX_CORES)

template <typename T, typename Gathering, typename Waves> struct CoreTile {
    static constexpr bool is_deep = !Gathering::sums_positions;
    using Sums = CoreSums<T, Waves>;
    using Lhs = OperandLoader<T, Waves::rows, Waves::depth, is_deep, SourcesOf<Gathering>::template Factors>;
    using Rhs = OperandLoader<T, Waves::columns, Waves::depth, is_deep, SourcesOf<Gathering>::template Image>;
    using Operands = CoreOperands<Lhs, Rhs, Waves>;
    static constexpr uint32_t bytes = Operands::bytes;

    static TALLOW_INLINE Operands operands(bits128* memory, const typename Lhs::Source& lhs,
                                           const typename Rhs::Source& rhs) {
        return {{memory, lhs}, {memory + Operands::lhs_bytes / sizeof(bits128), rhs}};
    }
};

#endif

#if defined(TALLOW_HAS_WGMMA)

template <typename T, typename Gathering, uint32_t Rows, uint32_t Columns, uint32_t Slots> struct GroupTile {
    static constexpr bool is_deep = !Gathering::sums_positions;
    using Sums = GroupSums<T, is_deep, is_deep, Rows, Columns>;
    using Lhs = GroupLoader<T, Rows, is_deep, SourcesOf<Gathering>::template Factors>;
    using Rhs = GroupLoader<T, Columns, is_deep, SourcesOf<Gathering>::template Image>;
    using Operands = GroupOperands<Lhs, Rhs, Slots>;
    static constexpr uint32_t bytes = Operands::bytes;

    static TALLOW_INLINE Operands operands(bits128* memory, const typename Lhs::Source& lhs,
                                           const typename Rhs::Source& rhs) {
        const uint32_t address = shared_address(memory);
        return {{address, lhs}, {address + Operands::lhs_bytes, rhs}};
    }
};

#endif

// Shared memory after the operands.
template <typename T, typename Gathering, uint32_t Columns> struct GatheredMemory {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t columns_count = Columns;
    ImageNumbers numbers;
    GatheredLimits limits;
    uint32_t has_nan;
    DepthIndexes<T, Gathering> indexes;
    ColumnIndexes<T, Columns> columns;
};

// Exchanges sums through shared memory before they are stored, some rows at a time, so that threads store full
// accesses: along the columns, or along rows that lie side by side.
template <typename Value, uint32_t Rows, uint32_t Columns, uint32_t Bytes> struct StagedSums {
    static constexpr uint32_t padding = access_bytes / sizeof(Value);
    static constexpr TALLOW_INLINE uint32_t bytes_of(uint32_t rows) {
        return (rows > Columns ? rows * (Columns + padding) : (rows + padding) * Columns) *
               static_cast<uint32_t>(sizeof(Value));
    }
    static constexpr TALLOW_INLINE uint32_t fitting(uint32_t rows) {
        return bytes_of(rows) <= Bytes ? rows : fitting(rows / 2);
    }
    static constexpr uint32_t rows = fitting(Rows);
    static_assert(rows >= padding, "some rows fit");

    Value* memory;

    TALLOW_INLINE Value* at(bool is_along_rows, uint32_t row, uint32_t column) const {
        return memory + (is_along_rows ? column * (rows + padding) + row : row * (Columns + padding) + column);
    }
};

// What blocks know when they store. Convolutions of floats have an epilogue: scale and bias of each row, a residual
// that lies as the result does, and an activation.
template <typename Gathering, typename Memory, typename T> struct StoredTile {
    static constexpr bool has_epilogue = !Gathering::sums_positions && !is_integer<compute_type<T>>;
    const Gathering& gathering;
    const Memory& memory;
    uint64_t first;
    uint32_t first_row;
    uint32_t first_row_of_group;

    // Sums from a row on, or of it, with the epilogue; `offsets` are those of the residual's elements.
    template <uint32_t N, typename Value>
    TALLOW_INLINE void finish(Value (&values)[N], bool is_along_rows, uint32_t row, uint32_t left,
                              const uint64_t (&offsets)[N]) const {
        const auto& arguments = reread(gathering.arguments);
        const Value* const scale = pointer_to<const Value>(arguments.scale);
        const Value* const bias = pointer_to<const Value>(arguments.bias);
        const T* const residual = pointer_to<const T>(arguments.residual);
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            const uint32_t channel = first_row_of_group + row + (is_along_rows ? i : 0);
            const bool is_present = i < left;
            Value value = values[i];
            if (is_present && scale != nullptr)
                value *= scale[channel];
            if (is_present && bias != nullptr)
                value += bias[channel];
            if (is_present && residual != nullptr)
                value += to_compute(residual[offsets[i]]);
            values[i] = value;
        }
        activate(arguments.activation, values);
    }
    // Stores elements side by side from a row and a column of the tile on.
    template <typename Result, bool Finishes, uint32_t N, typename Value>
    TALLOW_INLINE void store(bool is_along_rows, uint32_t row, uint32_t column, const Value* staged) const {
        const auto& arguments = reread(gathering.arguments);
        if (row >= memory.limits.rows || column >= memory.limits.columns)
            return;
        Value values[N];
        load_side_by_side(staged, values);
        Result* const result = pointer_to<Result>(arguments.result);
        const uint64_t line = first + (first_row + row) * arguments.result_stride_row;
        const uint32_t left = is_along_rows ? memory.limits.rows - row : memory.limits.columns - column;
        const bool is_dense = is_along_rows || memory.columns.are_dense[column / Memory::length] != 0;
        const uint64_t begin = line + memory.columns.results[column];
        uint64_t offsets[N];
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            offsets[i] = begin + i;
        if (!is_dense) {
#pragma unroll
            for (uint32_t i = 1; i < N; ++i)
                offsets[i] = line + memory.columns.results[column + i];
        }
        if constexpr (Finishes)
            finish(values, is_along_rows, row, left, offsets);
        Pack<Result, N> pack;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            pack.values[i] = convert<Result>(values[i]);
        if (left >= N && is_dense && is_aligned<N>(result + begin)) {
            store_pack(result + begin, pack);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < N; ++i)
                if (i < left)
                    result[offsets[i]] = pack.values[i];
        }
    }
    // Of all threads.
    template <typename Result, bool Finishes, typename Staged>
    TALLOW_INLINE void store_each(bool is_along_rows, uint32_t from, const Staged& staged) const {
        constexpr uint32_t length =
            Memory::length < access_bytes / sizeof(Result) ? Memory::length : access_bytes / sizeof(Result);
        constexpr uint32_t columns = Memory::columns_count;
        constexpr uint32_t in_rows = Staged::rows / length;
        constexpr uint32_t in_columns = columns / length;
#pragma unroll 1
        for (uint32_t i = thread_index(); i < Staged::rows * in_columns; i += block_size) {
            const uint32_t row = is_along_rows ? i % in_rows * length : i / in_columns;
            const uint32_t column = is_along_rows ? i / in_rows : i % in_columns * length;
            store<Result, Finishes, length>(is_along_rows, from + row, column, staged.at(is_along_rows, row, column));
        }
    }
    template <typename Result, typename Staged>
    TALLOW_INLINE void store_all(bool is_along_rows, uint32_t from, const Staged& staged) const {
        if constexpr (has_epilogue) {
            if (reread(gathering.arguments).has_epilogue != 0)
                return store_each<Result, true>(is_along_rows, from, staged);
        }
        store_each<Result, false>(is_along_rows, from, staged);
    }
};

template <typename T, typename Gathering, typename Tile>
constexpr uint32_t memory_of = (Tile::bytes + access_bytes - 1) / access_bytes * access_bytes +
                               static_cast<uint32_t>(sizeof(GatheredMemory<T, Gathering, Tile::Sums::columns>));

template <typename T, typename Gathering, typename Tile, typename Arguments>
TALLOW_INLINE void multiply_gathered(const Arguments& arguments, bits128* memory) {
    using Sums = typename Tile::Sums;
    using Value = compute_type<T>;
    constexpr uint32_t rows = Sums::rows;
    constexpr uint32_t columns = Sums::columns;
    using Memory = GatheredMemory<T, Gathering, columns>;
    auto& shared = *reinterpret_cast<Memory*>(memory + (Tile::bytes + sizeof(bits128) - 1) / sizeof(bits128));
    const GatheredTile tile(reread(arguments), rows, columns);
    if (thread_index() < 3) {
        const uint32_t a = thread_index();
        const auto of_axis = [&](uint32_t depth, uint32_t height, uint32_t width) {
            return a == 0 ? depth : a == 1 ? height : width;
        };
        const AxisOfCall axis{of_axis(arguments.positions_d, arguments.positions_h, arguments.positions_w),
                              of_axis(arguments.kernel_d, arguments.kernel_h, arguments.kernel_w),
                              of_axis(arguments.padding_d, arguments.padding_h, arguments.padding_w),
                              of_axis(arguments.dilation_d, arguments.dilation_h, arguments.dilation_w),
                              of_axis(arguments.stride_d, arguments.stride_h, arguments.stride_w),
                              of_axis(arguments.period_d, arguments.period_h, arguments.period_w)};
        const ImageAxis own = arguments.is_transposed
                                  ? axis.of_residue(of_axis(tile.residues[0], tile.residues[1], tile.residues[2]))
                                  : axis.all_residues();
        shared.has_nan = 0;
        shared.numbers.axes[a] = own;
        shared.numbers.positions[2 - a] = ImageDivisor::of(own.positions);
        shared.numbers.terms[(3 - a) % 3] = ImageDivisor::of(a == 0 ? arguments.channels : own.taps);
    }
    synchronize_block();
    const Gathering gathering{arguments, shared.numbers};
    const uint32_t all_columns = gathering.columns();
    if (tile.first_column >= all_columns)
        return;
    const uint32_t all = gathering.depth();
    const uint32_t begin = tile.part * arguments.part < all ? tile.part * arguments.part : all;
    const GatheredLimits limits{
        begin,
        all - begin < arguments.part ? all - begin : arguments.part,
        arguments.rows - tile.first_row,
        all_columns - tile.first_column,
    };
    if (thread_index() == 0)
        shared.limits = limits;
    shared.indexes.write(gathering, limits, 0);
    shared.columns.write(gathering, tile.first_column, limits.columns);
    synchronize_block();
    const typename Tile::Lhs::Source factors(gathering, shared.indexes, shared.limits, tile.group, tile.first_row);
    const typename Tile::Rhs::Source image(gathering, shared.indexes, shared.columns, tile.group);
    using Operands = GatheredOperands<typename Tile::Operands, DepthIndexes<T, Gathering>, Gathering>;
    Operands operands(Tile::operands(memory, factors, image), shared.indexes, gathering, shared.limits);
    const uint32_t steps = (limits.depth + Operands::depth - 1) / Operands::depth;
    Sums sums;
    if (steps != 0)
        sums.add(operands, steps);
    if constexpr (!is_integer<Value> && !Gathering::sums_positions) {
        if (reread(arguments).is_transposed) {
            bool has_nan = false;
            sums.each_run([&](uint32_t, uint32_t, const Value(&run)[Sums::run]) {
#pragma unroll
                for (const Value sum : run)
                    has_nan = has_nan || sum != sum;
            });
            if (has_nan)
                shared.has_nan = 1;
        }
    }
    shared.columns.compare();
#if defined(TALLOW_HAS_ASYNC_COPIES)
    // Copies of zeros past the depth may still be in flight.
    await_copies<0>();
#endif
    // The operands are no longer needed.
    synchronize_block();
    const Arguments& again = reread(arguments);
    const bool is_rounded = again.is_rounded != 0;
    const StoredTile<Gathering, Memory, T> stored{
        gathering,
        shared,
        tile.group * again.result_stride_group + tile.part * again.result_stride_part,
        tile.first_row,
        tile.group * again.rows + tile.first_row,
    };
    if constexpr (!is_integer<Value> && !Gathering::sums_positions) {
        if (shared.has_nan != 0) {
            const tallow::Gathering<false, Arguments> by_coordinates{arguments, shared.numbers};
#pragma unroll 1
            for (uint32_t i = thread_index(); i < rows * columns; i += block_size) {
                const uint32_t row = i / columns;
                const uint32_t column = i % columns;
                if (row >= shared.limits.rows || column >= shared.limits.columns)
                    continue;
                const Value sum = sum_inside<T>(by_coordinates, tile, tile.first_row + row, tile.first_column + column);
                const uint64_t to =
                    stored.first + (tile.first_row + row) * again.result_stride_row + shared.columns.results[column];
                if (is_rounded)
                    pointer_to<T>(again.result)[to] = convert<T>(sum);
                else
                    pointer_to<Value>(again.result)[to] = sum;
            }
            return;
        }
    }
    using Staged = StagedSums<Value, rows, columns, Tile::bytes>;
    const Staged staged{reinterpret_cast<Value*>(memory)};
    const bool is_along_rows = !Gathering::sums_positions && again.result_stride_row == 1;
#pragma unroll 1
    for (uint32_t from = 0; from < rows; from += Staged::rows) {
        if (from >= shared.limits.rows)
            break;
        synchronize_block();
        sums.each_run([&](uint32_t row, uint32_t column, const Value(&run)[Sums::run]) {
            if (row - from >= Staged::rows)
                return;
#pragma unroll
            for (uint32_t i = 0; i < Sums::run; ++i)
                *staged.at(is_along_rows, row - from, column + i) = run[i];
        });
        synchronize_block();
        // Sums of parts are added up afterwards, and rounded then.
        if (is_rounded)
            stored.template store_all<T>(is_along_rows, from, staged);
        else
            stored.template store_all<Value>(is_along_rows, from, staged);
    }
}

// The launcher chooses tiles of f32: 64 by 64, or of few taps 64 by 128. Those of f16 and bf16 have 128 by 64, others
// 64 by 64. Where it `SumsPositions` it computes gradients of weights.
template <typename T, bool SumsPositions, typename Arguments>
TALLOW_INLINE void implicit_gemm(const Arguments& arguments) {
    using Gathered = Gathering<SumsPositions, Arguments>;
    constexpr bool is_half = is_multiplicand<T>;
    using Small = DotTile<T, Gathered, 1, 1, sizeof(T) == 8 ? 8 : 16>;
    if constexpr (is_same<T, float>) {
        using GatheredByMasks = Gathering<SumsPositions, Arguments, true>;
        using Wide = DotTile<T, GatheredByMasks, 1, 2, 16>;
        constexpr uint32_t bytes = largest<memory_of<T, Gathered, Small>, memory_of<T, GatheredByMasks, Wide>>;
        bits128* const memory = declared_memory<bytes>();
        if (arguments.tile_columns == matmul_side)
            multiply_gathered<T, Gathered, Small>(arguments, memory);
        else
            multiply_gathered<T, GatheredByMasks, Wide>(arguments, memory);
    } else if constexpr (is_half) {
#if defined(TALLOW_MATRIX_CORES_MMA)
        using Tile = CoreTile<T, Gathered, TileOfWaves<128, 64, 3, 4>>;
#elif defined(TALLOW_MATRIX_CORES_MFMA) || defined(TALLOW_MATRIX_CORES_WMMA)
        using Tile = CoreTile<T, Gathered, TileOfWaves<128, 64, 2, 4>>;
#else
        using Tile = DotTile<T, Gathered, 2, 1, 16>;
#endif
        multiply_gathered<T, Gathered, Tile>(arguments, declared_memory<memory_of<T, Gathered, Tile>>());
    } else {
        multiply_gathered<T, Gathered, Small>(arguments, declared_memory<memory_of<T, Gathered, Small>>());
    }
}

// The same of f32 by larger tiles, for few taps. A thread has `Down` by `Across` squares, and parts of 32 threads are
// below each other, `PartsDown` of them, and next to each other.
template <bool SumsPositions, uint32_t PartsDown, uint32_t Down, uint32_t Across, typename Arguments>
TALLOW_INLINE void implicit_gemm_of_floats(const Arguments& arguments) {
    using Gathered = Gathering<SumsPositions, Arguments, true>;
    using Tile = DotTile<float, Gathered, Down, Across, 16, PartsDown>;
    multiply_gathered<float, Gathered, Tile>(arguments, tile_memory<memory_of<float, Gathered, Tile>>());
}

#if defined(TALLOW_HAS_WGMMA)

// The same by groups of waves, which compute 128 or 64 rows by this many columns.
template <typename T, bool SumsPositions, uint32_t Columns, uint32_t Slots, typename Arguments>
TALLOW_INLINE void implicit_gemm_by_groups(const Arguments& arguments) {
    using Gathered = Gathering<SumsPositions, Arguments>;
    using Tall = GroupTile<T, Gathered, 128, Columns, Slots>;
    using Flat = GroupTile<T, Gathered, 64, Columns, Slots>;
    bits128* const memory = tile_memory<memory_of<T, Gathered, Tall>>();
    if (arguments.tile_rows == 128)
        multiply_gathered<T, Gathered, Tall>(arguments, memory);
    else
        multiply_gathered<T, Gathered, Flat>(arguments, memory);
}

#endif

} // namespace tallow
