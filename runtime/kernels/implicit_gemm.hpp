// Convolutions and their gradients as matrix products whose operands are gathered where they lie: implicit GEMM.
//
//   product             rows                depth                     columns
//   the convolution     output channels     taps x input channels     positions of the result
//   input gradient      input channels      taps x output channels    positions of the input, by residue
//   weight gradient     output channels     positions of the result   taps x input channels
//
// An element of the image belongs to a position and a term, which is a tap and a channel: its place along each axis is
// the sum of what both contribute. Positions of the input whose residues modulo the strides are equal meet the same
// taps, and the gradients of these are a convolution without strides, whose taps go backwards. Depth counts channels
// before taps, and positions row by row, whatever the strides of the operands: so do sums, in every layout.
#pragma once

#include "math.hpp"
#include "reread.hpp"
#include "tile_pipeline.hpp"

namespace tallow {

// How positions and taps meet the image along an axis.
struct ImageAxis {
    uint32_t positions;
    // From one position, and one tap, to the next, and where the first of both meet, modulo 2**32.
    uint32_t position_step;
    uint32_t tap_step;
    uint32_t origin;
    uint32_t taps;
    // Which taps of the kernel, and which positions of the result, these are.
    uint32_t first_tap;
    uint32_t tap_period;
    uint32_t first_position;
    uint32_t position_period;
};

// A number below 2**31 by which others are divided as in memory.hpp.
struct ImageDivisor {
    uint32_t value;
    uint32_t multiplier;
    uint32_t shift;

    static TALLOW_INLINE ImageDivisor of(uint32_t value) {
        uint32_t shift = 0;
        while (shift < 31 && (1u << shift) < value)
            ++shift;
        const uint64_t rest = (uint64_t{1} << shift) - value;
        return {value, value == 0 ? 0 : static_cast<uint32_t>((rest << 32) / value + 1), shift};
    }
    // The remainder; the number becomes the quotient.
    TALLOW_INLINE uint32_t take(uint32_t& number) const {
        const uint32_t quotient = divide(number, multiplier, shift);
        const uint32_t remainder = number - quotient * value;
        number = quotient;
        return remainder;
    }
};

struct AxisOfCall {
    uint32_t positions;
    uint32_t taps;
    uint32_t padding;
    uint32_t dilation;
    uint32_t stride;
    // Every such tap meets positions of the same residue.
    uint32_t period;

    TALLOW_INLINE ImageAxis whole() const {
        return {positions, stride, dilation, 0 - padding, taps, 0, 1, 0, 1};
    }
    TALLOW_INLINE ImageAxis of_residue(uint32_t residue) const {
        const uint64_t place = uint64_t{residue} + padding;
        uint32_t tap = 0;
        while (tap < taps && tap < period && (place + uint64_t{tap} * (stride - dilation % stride)) % stride != 0)
            ++tap;
        const uint32_t count = tap < taps && tap < period ? (taps - 1 - tap) / period + 1 : 0;
        const int64_t first = static_cast<int64_t>(place) - static_cast<int64_t>(uint64_t{tap} * dilation);
        return {
            positions > residue ? (positions - residue - 1) / stride + 1 : 0,
            1,
            static_cast<uint32_t>(0 - uint64_t{period} * dilation / stride),
            static_cast<uint32_t>(first / static_cast<int64_t>(stride)),
            count,
            tap,
            period,
            residue,
            stride,
        };
    }
};

// What a position or a term contributes to the place in the image along the axes, and to the offsets in the image and
// in the tensor beside it: the kernel or the gradient where it is of the depth, the result where it is a column.
struct ImageIndex {
    uint32_t places[4];
    uint64_t image;
    uint64_t beside;
};

// Strides of images or channels, and along the axes.
struct OuterStrides {
    uint64_t outer;
    uint64_t axes[3];
};

// What is numbered: of terms channels, columns and rows of taps, of positions columns, rows and slices.
struct ImageNumbers {
    ImageAxis axes[3];
    ImageDivisor terms[3];
    ImageDivisor positions[3];
};

template <typename Arguments> struct Gathering {
    const Arguments& arguments;
    const ImageNumbers& numbers;

    TALLOW_INLINE ImageIndex term(const Arguments& arguments, uint32_t number, const OuterStrides& beside) const {
        const uint32_t channel = numbers.terms[0].take(number);
        const uint32_t column = numbers.terms[1].take(number);
        const uint32_t row = numbers.terms[2].take(number);
        const uint32_t taps[3] = {number, row, column};
        const uint64_t strides[3] = {arguments.image_stride_d, arguments.image_stride_h, arguments.image_stride_w};
        ImageIndex index{{}, channel * arguments.image_stride_c, channel * beside.outer};
#pragma unroll
        for (uint32_t a = 0; a < 3; ++a) {
            const ImageAxis& axis = numbers.axes[a];
            index.places[a] = axis.origin + taps[a] * axis.tap_step;
            index.image += static_cast<uint64_t>(static_cast<int32_t>(index.places[a])) * strides[a];
            index.beside += (axis.first_tap + taps[a] * axis.tap_period) * beside.axes[a];
        }
        return index;
    }
    TALLOW_INLINE ImageIndex position(const Arguments& arguments, uint32_t number, const OuterStrides& beside) const {
        const uint32_t column = numbers.positions[0].take(number);
        const uint32_t row = numbers.positions[1].take(number);
        const uint32_t slice = numbers.positions[2].take(number);
        const uint32_t positions[3] = {slice, row, column};
        const uint64_t strides[3] = {arguments.image_stride_d, arguments.image_stride_h, arguments.image_stride_w};
        ImageIndex index{{}, number * arguments.image_stride_b, number * beside.outer};
#pragma unroll
        for (uint32_t a = 0; a < 3; ++a) {
            const ImageAxis& axis = numbers.axes[a];
            index.places[a] = positions[a] * axis.position_step;
            index.image += index.places[a] * strides[a];
            index.beside += (axis.first_position + positions[a] * axis.position_period) * beside.axes[a];
        }
        return index;
    }
    TALLOW_INLINE ImageIndex of_depth(uint32_t number) const {
        const Arguments& again = reread(arguments);
        const OuterStrides beside{again.factors_stride_outer,
                                  {again.factors_stride_d, again.factors_stride_h, again.factors_stride_w}};
        return again.sums_positions ? position(again, number, beside) : term(again, number, beside);
    }
    TALLOW_INLINE ImageIndex of_column(uint32_t number) const {
        const Arguments& again = reread(arguments);
        const OuterStrides beside{again.result_stride_outer,
                                  {again.result_stride_d, again.result_stride_h, again.result_stride_w}};
        return again.sums_positions ? term(again, number, beside) : position(again, number, beside);
    }
    TALLOW_INLINE uint32_t terms() const {
        return numbers.axes[0].taps * numbers.axes[1].taps * numbers.axes[2].taps * reread(arguments).channels;
    }
    TALLOW_INLINE uint32_t positions() const {
        return numbers.axes[0].positions * numbers.axes[1].positions * numbers.axes[2].positions *
               reread(arguments).images;
    }
    TALLOW_INLINE uint32_t depth() const {
        return reread(arguments).sums_positions ? positions() : terms();
    }
    TALLOW_INLINE uint32_t columns() const {
        return reread(arguments).sums_positions ? terms() : positions();
    }
};

// The indexes of the depth, some steps ahead of those that are loaded. While one half is read the other one is written,
// behind a barrier of the loop.
template <uint32_t Depth> struct DepthIndexes {
#if defined(TALLOW_NVIDIA)
    static constexpr uint32_t half = 8 * Depth;
#else
    // Two blocks share the memory of a compute unit.
    static constexpr uint32_t half = 2 * Depth;
#endif
    static constexpr uint32_t size = 2 * half;
    static_assert(half <= block_size, "a thread has one of them");
    alignas(access_bytes) uint32_t places[size][4];
    uint64_t image[size];
    uint64_t beside[size];

    template <typename Arguments>
    TALLOW_INLINE void write(const Gathering<Arguments>& gathering, uint32_t begin, uint32_t from, uint32_t end) {
        const uint32_t number = from + thread_index();
        if (thread_index() < half && number < end) {
            const ImageIndex index = gathering.of_depth(number);
            const uint32_t slot = (number - begin) % size;
            store_registers(places[slot], Registers<access_bytes>{{index.places[0], index.places[1], index.places[2]}});
            image[slot] = index.image;
            beside[slot] = index.beside;
        }
    }
};

// How `length` elements side by side along the depth are loaded: each by its own index, by one index and a stride, or
// in whole accesses.
enum class Chunk : uint32_t { scattered, strided, dense };

// A chunk in registers. Narrow elements have a register each, or are the words of an access: to put them together, or
// take them apart, a thread would wait for what it loads.
template <typename T, uint32_t Length, bool IsNarrow = (sizeof(T) < 4)> struct LoadedChunk {
    T values[Length];

    TALLOW_INLINE void clear() {
#pragma unroll
        for (uint32_t e = 0; e < Length; ++e)
            values[e] = T{};
    }
    TALLOW_INLINE void load(uint32_t e, const T* source) {
        values[e] = *source;
    }
    TALLOW_INLINE void load_dense(const T* source) {
        constexpr uint32_t in_access = Length * sizeof(T) > access_bytes ? access_bytes / sizeof(T) : Length;
#pragma unroll
        for (uint32_t i = 0; i < Length; i += in_access) {
            const Pack<T, in_access> pack = load_whole<in_access>(source + i);
#pragma unroll
            for (uint32_t j = 0; j < in_access; ++j)
                values[i + j] = pack.values[j];
        }
    }
    TALLOW_INLINE T element(uint32_t e, bool) const {
        return values[e];
    }
};
template <typename T, uint32_t Length> struct LoadedChunk<T, Length, true> {
    using Bits = typename Word<sizeof(T)>::type;
    static constexpr uint32_t bytes = Length * sizeof(T);
    uint32_t words[Length];

    TALLOW_INLINE void clear() {
#pragma unroll
        for (uint32_t e = 0; e < Length; ++e)
            words[e] = 0;
    }
    TALLOW_INLINE void load(uint32_t e, const T* source) {
        words[e] = *reinterpret_cast<const Bits*>(source);
    }
    TALLOW_INLINE void load_dense(const T* source) {
        const Registers<bytes> loaded = load_registers<bytes>(source);
#pragma unroll
        for (uint32_t i = 0; i < (bytes + 3) / 4; ++i)
            words[i] = loaded.values[i];
    }
    TALLOW_INLINE T element(uint32_t e, bool is_dense) const {
        return take_element<T>(packed(is_dense), e);
    }
    TALLOW_INLINE Registers<bytes> packed(bool is_dense) const {
        Registers<bytes> chunk{};
        constexpr uint32_t in_word = 4 / sizeof(T);
#pragma unroll
        for (uint32_t i = 0; i < Length / in_word; ++i) {
            uint32_t word = 0;
#pragma unroll
            for (uint32_t j = 0; j < in_word; ++j)
                word |= words[i * in_word + j] << 8 * sizeof(T) * j;
            chunk.values[i] = is_dense ? words[i] : word;
        }
        return chunk;
    }
};

// A line of an operand on its way to shared memory: of the image, whose elements may be outside and are zeros there, or
// of the factors beside it. A thread brings chunks of `Length` elements along the depth; threads side by side bring
// lines, or chunks of a line, whichever lie side by side in memory.
template <typename T, uint32_t Lines, uint32_t Depth, uint32_t Length, bool IsImage> struct GatheredLine {
    static constexpr uint32_t threads = block_size / Lines;
    static constexpr uint32_t chunks = Depth / Length / threads;
    static_assert(chunks * Length * threads == Depth, "threads have equally many chunks");

    const T* first;
    uint32_t places[IsImage ? 3 : 1];
    bool is_line;
    bool is_deep;
    Chunk chunk;
    uint64_t stride;
    LoadedChunk<T, Length> loaded[chunks];

    TALLOW_INLINE uint32_t line() const {
        return is_deep ? thread_index() / threads : thread_index() % Lines;
    }
    TALLOW_INLINE uint32_t place(uint32_t i) const {
        return ((is_deep ? thread_index() % threads : thread_index() / Lines) + i * threads) * Length;
    }
    template <typename Indexes, typename Arguments>
    TALLOW_INLINE bool is_inside(const Indexes& indexes, const Arguments& arguments, uint32_t slot) const {
        if constexpr (IsImage) {
            const Registers<access_bytes> at = load_registers<access_bytes>(indexes.places[slot]);
            // Without branches, behind which each element would wait for its own index.
            const uint32_t is_outside = static_cast<uint32_t>(places[0] + at.values[0] >= arguments.image_d) |
                                        static_cast<uint32_t>(places[1] + at.values[1] >= arguments.image_h) |
                                        static_cast<uint32_t>(places[2] + at.values[2] >= arguments.image_w);
            return static_cast<uint32_t>(is_line) > is_outside;
        } else {
            return is_line;
        }
    }
    // The chunks from `from` on, of which `left` elements are inside of the depth.
    template <typename Indexes, typename Arguments>
    TALLOW_INLINE void load(const Indexes& indexes, const Arguments& arguments, uint32_t from, uint32_t left) {
#pragma unroll
        for (uint32_t i = 0; i < chunks; ++i) {
            const uint32_t slot = (from + place(i)) % Indexes::size;
            loaded[i].clear();
            if (chunk == Chunk::scattered) {
                constexpr uint32_t together = Length < 4 ? Length : 4;
#pragma unroll
                for (uint32_t f = 0; f < Length; f += together) {
                    bool takes[together];
                    uint64_t offsets[together];
#pragma unroll
                    for (uint32_t e = 0; e < together; ++e) {
                        const uint32_t own = slot + f + e;
                        const uint32_t is_behind = static_cast<uint32_t>(place(i) + f + e >= left);
                        takes[e] = static_cast<uint32_t>(is_inside(indexes, arguments, own)) > is_behind;
                        offsets[e] = IsImage ? indexes.image[own] : indexes.beside[own];
                    }
#pragma unroll
                    for (uint32_t e = 0; e < together; ++e)
                        if (takes[e])
                            loaded[i].load(f + e, first + offsets[e]);
                }
            } else if (place(i) < left && is_inside(indexes, arguments, slot)) {
                const T* const source = first + (IsImage ? indexes.image[slot] : indexes.beside[slot]);
                if (chunk == Chunk::dense) {
                    loaded[i].load_dense(source);
                } else {
#pragma unroll
                    for (uint32_t e = 0; e < Length; ++e)
                        loaded[i].load(e, source + e * stride);
                }
            }
        }
    }
};

// The lines of both operands, of a part of the depth.
template <typename T, uint32_t Rows, uint32_t Columns, uint32_t Depth, uint32_t Length, typename Arguments>
struct GatheredOperands {
    static constexpr uint32_t depth = Depth;
    using Factors = GatheredLine<T, Rows, Depth, Length, false>;
    using Image = GatheredLine<T, Columns, Depth, Length, true>;
    using Indexes = DepthIndexes<Depth>;

    const Gathering<Arguments>& gathering;
    Indexes& indexes;
    uint32_t begin;
    uint32_t end;
    Factors factors;
    Image image;

    TALLOW_INLINE GatheredOperands(const Gathering<Arguments>& gathering, Indexes& indexes, uint32_t group,
                                   uint32_t first_row, uint32_t first_column, uint32_t part)
        : gathering(gathering), indexes(indexes) {
        const Arguments& arguments = reread(gathering.arguments);
        const uint32_t all = gathering.depth();
        begin = part * arguments.part < all ? part * arguments.part : all;
        end = all - begin > arguments.part ? begin + arguments.part : all;
        factors.is_deep = arguments.factors_deep != 0;
        factors.chunk = static_cast<Chunk>(arguments.factors_chunk);
        factors.stride = arguments.factors_stride_outer;
        image.is_deep = arguments.image_deep != 0;
        image.chunk = static_cast<Chunk>(arguments.image_chunk);
        image.stride = arguments.image_stride_c;
        const uint32_t row = first_row + factors.line();
        factors.is_line = row < arguments.rows;
        factors.first = pointer_to<const T>(arguments.factors) + group * arguments.factors_stride_group +
                        row * arguments.factors_stride_row;
        const uint32_t column = first_column + image.line();
        const ImageIndex index = gathering.of_column(column);
        image.is_line = column < gathering.columns();
        image.first = pointer_to<const T>(arguments.image) + group * arguments.image_stride_group + index.image;
#pragma unroll
        for (uint32_t a = 0; a < 3; ++a)
            image.places[a] = index.places[a];
        indexes.write(gathering, begin, begin, end);
        synchronize_block();
    }
    TALLOW_INLINE uint32_t steps() const {
        return (end - begin + Depth - 1) / Depth;
    }
    TALLOW_INLINE void load(uint32_t step) {
        const uint32_t from = step * Depth;
        if (from % Indexes::half == 0)
            indexes.write(gathering, begin, begin + from + Indexes::half, end);
        const uint32_t left = end - begin > from ? end - begin - from : 0;
        const Arguments& arguments = reread(gathering.arguments);
        factors.load(indexes, arguments, from, left);
        image.load(indexes, arguments, from, left);
    }
};

// The same for dot products: shared memory has a line of rows or columns for each place of the depth.
template <typename T, typename Sums, uint32_t Depth, uint32_t Length, typename Arguments>
struct GatheredDots : GatheredOperands<T, Sums::rows, Sums::columns, Depth, Length, Arguments> {
    using Base = GatheredOperands<T, Sums::rows, Sums::columns, Depth, Length, Arguments>;
    using Value = compute_type<T>;
    static constexpr uint32_t row_stride = dot_stride<Sums::rows>;
    static constexpr uint32_t column_stride = dot_stride<Sums::columns>;
    struct Shared {
        alignas(access_bytes) Value rows[2][Depth * row_stride];
        alignas(access_bytes) Value columns[2][Depth * column_stride];
    };
    Shared& shared;

    template <typename... Rest>
    TALLOW_INLINE GatheredDots(Shared& shared, Rest&... rest) : Base(rest...), shared(shared) {
    }
    template <typename Line> static TALLOW_INLINE void store_line(const Line& line, Value* to, uint32_t stride) {
#pragma unroll
        for (uint32_t i = 0; i < Line::chunks; ++i)
#pragma unroll
            for (uint32_t e = 0; e < Length; ++e)
                to[(line.place(i) + e) * stride + line.line()] =
                    to_compute(line.loaded[i].element(e, line.chunk == Chunk::dense));
    }
    TALLOW_INLINE void store(uint32_t slot) const {
        store_line(this->factors, shared.rows[slot], row_stride);
        store_line(this->image, shared.columns[slot], column_stride);
    }
    TALLOW_INLINE const Value* rows(uint32_t slot, uint32_t d) const {
        return shared.rows[slot] + d * row_stride;
    }
    TALLOW_INLINE const Value* columns(uint32_t slot, uint32_t d) const {
        return shared.columns[slot] + d * column_stride;
    }
};

#if defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)

// The same for matrix cores: shared memory has the depth of each row and column.
template <typename T, typename Waves, typename Arguments>
struct GatheredTiles
    : GatheredOperands<T, Waves::rows, Waves::columns, Waves::depth, access_bytes / sizeof(T), Arguments> {
    static constexpr uint32_t length = access_bytes / sizeof(T);
    using Base = GatheredOperands<T, Waves::rows, Waves::columns, Waves::depth, length, Arguments>;
    using Core = MatrixCore<T>;
    using Tile = SharedTile<T, Waves::depth, false>;
    static constexpr bool is_async = false;
    struct Shared {
        alignas(access_bytes) T rows[Waves::slots][Waves::rows * Waves::depth];
        alignas(access_bytes) T columns[Waves::slots][Waves::columns * Waves::depth];
    };
    Shared& shared;

    template <typename... Rest>
    TALLOW_INLINE GatheredTiles(Shared& shared, Rest&... rest) : Base(rest...), shared(shared) {
    }
    static TALLOW_INLINE Tile tile(T* memory) {
        return {reinterpret_cast<uint8_t*>(memory)};
    }
    template <typename Line> static TALLOW_INLINE void store_line(const Line& line, const Tile& to) {
#pragma unroll
        for (uint32_t i = 0; i < Line::chunks; ++i)
            store_registers(to.at(line.line(), line.place(i)), line.loaded[i].packed(line.chunk == Chunk::dense));
    }
    TALLOW_INLINE void store(uint32_t slot) const {
        store_line(this->factors, tile(shared.rows[slot]));
        store_line(this->image, tile(shared.columns[slot]));
    }
    TALLOW_INLINE auto read_rows(uint32_t slot, uint32_t row, uint32_t place) const {
        return Core::read_rows(tile(shared.rows[slot]), row, place);
    }
    TALLOW_INLINE auto read_columns(uint32_t slot, uint32_t column, uint32_t place) const {
        return Core::read(tile(shared.columns[slot]), column, place);
    }
};

#endif

// Stores sums of columns side by side, whose offsets are given, those in front of `columns`.
template <typename T, typename Value, uint32_t N>
TALLOW_INLINE void store_columns_at(T* row, const uint64_t* offsets, uint32_t left, const Value (&sums)[N]) {
    Pack<T, N> pack;
    uint64_t gaps = 0;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        pack.values[i] = convert<T>(sums[i]);
        gaps |= offsets[i] - offsets[0] - i;
    }
    if (sizeof(pack) <= access_bytes && left >= N && gaps == 0 && is_aligned<N>(row + offsets[0])) {
        if constexpr (sizeof(pack) <= access_bytes)
            store_whole(row + offsets[0], pack);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            if (i < left)
                row[offsets[i]] = pack.values[i];
    }
}

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
// zeros in place of these, which make NaN of infinite factors.
template <typename T, typename Arguments>
TALLOW_INLINE compute_type<T> sum_inside(const Gathering<Arguments>& gathering, const GatheredTile& tile, uint32_t row,
                                         uint32_t column) {
    const Arguments& arguments = reread(gathering.arguments);
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
        if (position.places[0] + term.places[0] >= arguments.image_d ||
            position.places[1] + term.places[1] >= arguments.image_h ||
            position.places[2] + term.places[2] >= arguments.image_w)
            continue;
#pragma unroll 1
        for (uint32_t c = 0; c < count; ++c)
            sum = multiply_add(to_compute(factors[term.beside + c * arguments.factors_stride_outer]),
                               to_compute(image[term.image + c * arguments.image_stride_c]), sum);
    }
    return sum;
}

template <typename Operands> struct GatheredMemory {
    ImageNumbers numbers;
    uint32_t has_nan;
    typename Operands::Indexes indexes;
    typename Operands::Shared operands;
};

// Sums is what makes a tile, Operands what brings the operands to it.
template <typename T, typename Sums, typename Operands, uint32_t Rows, uint32_t Columns, typename Arguments>
TALLOW_INLINE void multiply_gathered(const Arguments& arguments, bits128* memory) {
    auto& shared = *reinterpret_cast<GatheredMemory<Operands>*>(memory);
    const GatheredTile tile(reread(arguments), Rows, Columns);
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
                                  : axis.whole();
        shared.has_nan = 0;
        shared.numbers.axes[a] = own;
        shared.numbers.positions[2 - a] = ImageDivisor::of(own.positions);
        shared.numbers.terms[(3 - a) % 3] = ImageDivisor::of(a == 0 ? arguments.channels : own.taps);
    }
    synchronize_block();
    const Gathering<Arguments> gathering{arguments, shared.numbers};
    const uint32_t columns = gathering.columns();
    if (tile.first_column >= columns)
        return;
    Operands operands(shared.operands, gathering, shared.indexes, tile.group, tile.first_row, tile.first_column,
                      tile.part);
    Sums sums;
    if (operands.steps() != 0)
        sums.add(operands, operands.steps());
    using Value = compute_type<T>;
    if constexpr (!is_integer<Value>) {
        bool has_nan = false;
        sums.each_run([&](uint32_t, uint32_t, const Value(&run)[Sums::run]) {
#pragma unroll
            for (const Value sum : run)
                has_nan = has_nan || sum != sum;
        });
        if (has_nan && reread(arguments).is_transposed)
            shared.has_nan = 1;
    }
    synchronize_block();
    // The operands are no longer needed.
    uint64_t* const offsets = reinterpret_cast<uint64_t*>(&shared.operands);
    static_assert(sizeof(shared.operands) >= Columns * sizeof(uint64_t));
    for (uint32_t i = thread_index(); i < Columns; i += block_size)
        offsets[i] = gathering.of_column(tile.first_column + i).beside;
    synchronize_block();
    const Arguments& again = reread(arguments);
    const uint64_t first = tile.group * again.result_stride_group + tile.part * again.result_stride_part;
    const uint32_t rows_left = again.rows - tile.first_row;
    const uint32_t columns_left = columns - tile.first_column;
    const auto store = [&](uint32_t row, uint32_t column, const Value(&run)[Sums::run]) {
        // AMD's compiler would keep a mask for each column of a thread, and for each sum that is rounded.
        const Arguments& again = reread(arguments);
        const uint32_t end = opaque(columns_left);
        if (row >= opaque(rows_left) || column >= end)
            return;
        const uint64_t to = first + (tile.first_row + row) * again.result_stride_row;
        // Sums of parts are added up afterwards, and rounded then.
        if (again.result_stride_part != 0)
            store_columns_at(pointer_to<Value>(again.result) + to, offsets + column, end - column, run);
        else
            store_columns_at(pointer_to<T>(again.result) + to, offsets + column, end - column, run);
    };
    if (shared.has_nan == 0) {
        sums.each_run(store);
        return;
    }
#pragma unroll 1
    for (uint32_t i = thread_index(); i < Rows * Columns; i += block_size) {
        const uint32_t row = i / Columns;
        const uint32_t column = i % Columns;
        if (row < rows_left && column < columns_left) {
            const Value sum = sum_inside<T>(gathering, tile, tile.first_row + row, tile.first_column + column);
            const uint64_t to = first + (tile.first_row + row) * again.result_stride_row + offsets[column];
            if (again.result_stride_part != 0)
                pointer_to<Value>(again.result)[to] = sum;
            else
                pointer_to<T>(again.result)[to] = convert<T>(sum);
        }
    }
}

template <typename T, uint32_t Down, uint32_t Across, uint32_t Depth, uint32_t Length, typename Arguments>
struct DotsOfGathered {
    using Sums = DotSums<compute_type<T>, Down, Across>;
    using Operands = GatheredDots<T, Sums, Depth, Length, Arguments>;
    static constexpr uint32_t bytes = sizeof(GatheredMemory<Operands>);

    static TALLOW_INLINE void multiply(const Arguments& arguments, bits128* memory) {
        multiply_gathered<T, Sums, Operands, Sums::rows, Sums::columns>(arguments, memory);
    }
};

// The launcher chooses tiles of f32: 64 by 64, 64 by 128 or 128 by 128. Those of halves have 128 by 64, others 64
// by 64.
template <typename T, typename Arguments> TALLOW_INLINE void implicit_gemm(const Arguments& arguments) {
    using Small = DotsOfGathered<T, 1, 1, sizeof(T) == 8 ? 8 : 16, sizeof(T) == 8 ? 2 : 4, Arguments>;
    using Wide = DotsOfGathered<T, 1, 2, 16, 4, Arguments>;
    using Large = DotsOfGathered<T, 2, 2, 8, 4, Arguments>;
    if constexpr (is_same<T, float>) {
        constexpr uint32_t bytes = largest<Small::bytes, Wide::bytes, Large::bytes>;
        bits128* const memory = declared_memory<bytes>();
        if (arguments.tile_rows != matmul_side)
            Large::multiply(arguments, memory);
        else if (arguments.tile_columns != matmul_side)
            Wide::multiply(arguments, memory);
        else
            Small::multiply(arguments, memory);
    } else if constexpr (sizeof(T) == 2 && is_same<compute_type<T>, float>) {
#if defined(TALLOW_MATRIX_CORE_MMA) || defined(TALLOW_MATRIX_CORE_MFMA) || defined(TALLOW_MATRIX_CORE_WMMA)
        using Waves = TileOfWaves<128, 64, 2, 4>;
        using Operands = GatheredTiles<T, Waves, Arguments>;
        constexpr uint32_t bytes = sizeof(GatheredMemory<Operands>);
        multiply_gathered<T, CoreSums<T, Waves>, Operands, Waves::rows, Waves::columns>(arguments,
                                                                                        declared_memory<bytes>());
#else
        using Tall = DotsOfGathered<T, 2, 1, 16, 4, Arguments>;
        Tall::multiply(arguments, declared_memory<Tall::bytes>());
#endif
    } else {
        Small::multiply(arguments, declared_memory<Small::bytes>());
    }
}

} // namespace tallow
