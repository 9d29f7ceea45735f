// The gradients of attention. Scores are recomputed, a tile at a time, from the statistics of their rows (Dao 2023,
// FlashAttention-2): one kernel has blocks of rows, whose queries get gradients, and one blocks of keys. Each number is
// added up by one lane, in order, so that it has the same bits on every run.
#pragma once

#include "attention.hpp"
#include "matrix_core.hpp"

namespace tallow {

// What a MatrixCore does by one multiplication after the other: for f32, and where there are no matrix cores. A lane
// holds a row, and reads columns as it needs them.
template <typename T> struct DotCore {
    static constexpr uint32_t sums = 256 / wave_size;
    static constexpr uint32_t lane_rows = 1;
    static constexpr uint32_t run = 4;
    static constexpr uint32_t first_partner = 16;
    static constexpr uint32_t last_partner = wave_size / 2;
    static constexpr bool reads_transposed = true;
    static constexpr uint32_t words = matrix_side;
    struct Rows {
        float values[words];
    };
    template <typename Tile, bool Transposed> struct Columns {
        Tile tile;
        uint32_t column;
        uint32_t depth;
    };
    static TALLOW_INLINE uint32_t row(uint32_t) {
        return lane_index() % matrix_side;
    }
    static constexpr TALLOW_INLINE uint32_t lane_row_of(uint32_t) {
        return 0;
    }
    static TALLOW_INLINE uint32_t column(uint32_t i) {
        return lane_index() / matrix_side * sums + i;
    }
    static TALLOW_INLINE Rows load(const T* const (&lines)[lane_rows], const uint32_t (&sizes)[lane_rows],
                                   uint32_t element) {
        constexpr uint32_t length = access_bytes / sizeof(T);
        Rows rows;
#pragma unroll
        for (uint32_t first = 0; first < words; first += length) {
            const auto access = load_access(lines[0], element + first, sizes[0]);
#pragma unroll
            for (uint32_t i = 0; i < length; ++i)
                rows.values[first + i] = to_compute(take_element<T>(access, i));
        }
        return rows;
    }
    static TALLOW_INLINE Rows rows_of(const float (&values)[sums]) {
        Rows rows;
#pragma unroll
        for (uint32_t w = 0; w < words; ++w)
            rows.values[w] = shuffle_from(values[w % sums], lane_index() % matrix_side + w / sums * matrix_side);
        return rows;
    }
    template <typename Tile>
    static TALLOW_INLINE Columns<Tile, false> read(const Tile& tile, uint32_t first_column, uint32_t first_depth) {
        return {tile, first_column, first_depth};
    }
    template <typename Tile>
    static TALLOW_INLINE Columns<Tile, true> read_transposed(const Tile& tile, uint32_t first_column,
                                                             uint32_t first_depth) {
        return {tile, first_column, first_depth};
    }
    template <typename Tile>
    static TALLOW_INLINE void multiply(float (&sums_)[sums], const Rows& rows, const Columns<Tile, false>& columns) {
        constexpr uint32_t length = access_bytes / sizeof(T);
#pragma unroll
        for (uint32_t first = 0; first < words; first += length)
#pragma unroll
            for (uint32_t i = 0; i < sums; ++i) {
                const auto access =
                    load_registers<access_bytes>(columns.tile.at(columns.column + column(i), columns.depth + first));
#pragma unroll
                for (uint32_t j = 0; j < length; ++j)
                    sums_[i] = multiply_add(rows.values[first + j], to_compute(take_element<T>(access, j)), sums_[i]);
            }
    }
    template <typename Tile>
    static TALLOW_INLINE void multiply(float (&sums_)[sums], const Rows& rows, const Columns<Tile, true>& columns) {
        constexpr uint32_t length = access_bytes / sizeof(T) < sums ? access_bytes / sizeof(T) : sums;
#if defined(TALLOW_AMD)
        // Else the compiler hoists the loads of columns and spills sums.
        asm volatile("" ::: "memory");
#endif
#pragma unroll
        for (uint32_t depth = 0; depth < words; ++depth)
#pragma unroll
            for (uint32_t i = 0; i < sums; i += length) {
                const auto access = load_registers<length * sizeof(T)>(
                    columns.tile.at(columns.depth + depth, columns.column + column(i)));
#pragma unroll
                for (uint32_t j = 0; j < length; ++j)
                    sums_[i + j] =
                        multiply_add(rows.values[depth], to_compute(take_element<T>(access, j)), sums_[i + j]);
            }
    }
};

template <typename T, bool OnMatrixCores> struct GradientCore : DotCore<T> {};

#if defined(TALLOW_MATRIX_CORES)
template <typename T> struct GradientCore<T, true> : MatrixCore<T> {
    using Core = MatrixCore<T>;
    static TALLOW_INLINE typename Core::Rows load(const T* const (&lines)[Core::lane_rows],
                                                  const uint32_t (&sizes)[Core::lane_rows], uint32_t element) {
        typename Core::Rows rows;
#pragma unroll
        for (uint32_t w = 0; w < Core::words; ++w) {
            const uint32_t column = element + Core::depth_of_word(w);
            const uint32_t h = Core::lane_row_of_word(w);
            rows.values[w] = column < sizes[h] ? load_registers<4>(lines[h] + column).values[0] : 0;
        }
        return rows;
    }
};
#endif

// How a kernel divides its work: a block has attention_rows rows or keys, its waves some tiles of 16 of them each, and
// meets the others a tile of `lines` at a time. Size is that of a head, or more.
template <typename T, uint32_t Size> struct GradientShape {
    using Core = GradientCore<T, is_multiplicand<T> && has_matrix_cores>;
    static constexpr uint32_t tiles = attention_rows / matrix_side / waves_per_block;
    static_assert(tiles * matrix_side * waves_per_block == attention_rows, "waves have equally many tiles");
    static constexpr uint32_t steps = Size / matrix_side;
#if defined(TALLOW_MATRIX_CORES_WMMA)
    // Whose rows and columns take twice the registers.
    static constexpr uint32_t lines = sizeof(T) == 2 && Size <= 64 ? 32 : 16;
    static constexpr uint32_t part = 64;
#else
    static constexpr uint32_t lines = sizeof(T) == 2 ? 4096 / Size : 16;
    // Registers hold sums of this many elements of a head, of two operands: larger heads take several passes.
#if defined(TALLOW_MATRIX_CORES_MMA)
    static constexpr uint32_t part = 64;
#else
    static constexpr uint32_t part = sizeof(T) == 2 && Size == 128 ? 128 : 64;
#endif
#endif
    static constexpr uint32_t columns = lines / matrix_side;
    static constexpr uint32_t bytes = lines * Size * sizeof(T);
    // Where matrix cores cannot read tiles transposed, they are stored so too, a line for each element of the head.
    static constexpr bool transposes = !Core::reads_transposed;
#if defined(TALLOW_HAS_ASYNC_COPIES)
    static constexpr uint32_t slots = sizeof(T) == 2 ? 2 : 1;
#else
    static constexpr uint32_t slots = 1;
#endif
    using Tile = SharedTile<T, Size, false>;
    using TransposedTile = SharedTile<T, lines, true>;
    using Products = float[tiles][columns][Core::sums];

    // The first row or key of a wave, of those of its block.
    static TALLOW_INLINE uint32_t first_of_wave() {
        return wave_index() * tiles * matrix_side;
    }
    // Calls `use` with each number of a product: its tile, the row that the lane holds of it, the column, and itself.
    template <typename Use> static TALLOW_INLINE void each(Products& products, const Use& use) {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t c = 0; c < columns; ++c)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    use(t, Core::lane_row_of(i), c * matrix_side + Core::column(i), products[t][c][i], c, i);
    }
    // Writes numbers times a factor, their columns from `first` on, as far as there are any: line(t, h) is where those
    // of row h of the lane are, of which there are size(t, h), 0 where there is no such row. A line of nullptr would
    // hide from compilers that others are in global memory.
    template <uint32_t Columns, typename Line, typename Sizes>
    static TALLOW_INLINE void store(const float (&numbers)[tiles][Columns][Core::sums], uint32_t first, float factor,
                                    const Line& line, const Sizes& size) {
#pragma unroll
        for (uint32_t t = 0; t < tiles; ++t)
#pragma unroll
            for (uint32_t h = 0; h < Core::lane_rows; ++h) {
                const uint32_t count = size(t, h);
                if (count == 0)
                    continue;
                T* const to = line(t, h);
#pragma unroll
                for (uint32_t c = 0; c < Columns; ++c)
#pragma unroll
                    for (uint32_t i = 0; i < Core::sums; i += Core::run)
                        if (Core::lane_row_of(i) == h) {
                            Pack<T, Core::run> pack;
#pragma unroll
                            for (uint32_t j = 0; j < Core::run; ++j)
                                pack.values[j] = convert<T>(numbers[t][c][i + j] * factor);
                            store_guarded<Core::run>(to, first + c * matrix_side + Core::column(i), count, pack);
                        }
            }
    }
};

// The lines of some operands that a block meets, a tile of each in shared memory: at once, or while it works on the
// tiles before.
template <typename T, uint32_t Size, uint32_t Operands> struct MetLines {
    using Shape = GradientShape<T, Size>;
    using Core = typename Shape::Core;
    static constexpr uint32_t length = access_bytes / sizeof(T);
    static constexpr uint32_t in_line = Size / length;
    static constexpr uint32_t accesses = Shape::bytes / access_bytes / block_size;
    static constexpr uint32_t operand_bytes = Shape::bytes * (Shape::transposes ? 2 : 1);
    static constexpr uint32_t shared_bytes = Shape::slots * Operands * operand_bytes;
    uint8_t* shared;
    uint32_t head_size;
    uint32_t slot = 0; // in which the tiles are that are worked on

    // Brings lines from `first` on, of which those from `end` on are 0, to a slot: line(operand, number) is where one
    // is.
    template <typename Line>
    TALLOW_INLINE void load_lines(uint32_t to, uint32_t first, uint32_t end, const Line& line) {
        const uint32_t element = thread_index() % in_line * length;
#pragma unroll
        for (uint32_t operand = 0; operand < Operands; ++operand) {
            const typename Shape::Tile tile = tile_of(to, operand);
            if constexpr (Shape::slots > 1) {
#if defined(TALLOW_HAS_ASYNC_COPIES)
#pragma unroll
                for (uint32_t i = 0; i < accesses; ++i) {
                    const uint32_t number = thread_index() / in_line + i * (block_size / in_line);
                    const bool is_present = first + number < end && element < head_size;
                    // What is not there is not read, wherever it would be.
                    copy_async(tile.at(number, element), line(operand, first + number) + element,
                               is_present ? access_bytes : 0);
                }
#endif
            } else {
                Registers<access_bytes> loaded[accesses];
#pragma unroll
                for (uint32_t i = 0; i < accesses; ++i) {
                    const uint32_t number = thread_index() / in_line * accesses + i;
                    const bool is_present = first + number < end;
                    loaded[i] = load_access(line(operand, is_present ? first + number : first), element,
                                            is_present ? head_size : 0);
                    store_registers(tile.at(number, element), loaded[i]);
                }
                if constexpr (Shape::transposes) {
                    // A thread has some elements of several lines side by side.
                    const typename Shape::TransposedTile transposed = transposed_of(to, operand);
                    constexpr uint32_t together = accesses * sizeof(T);
#pragma unroll
                    for (uint32_t e = 0; e < length; ++e) {
                        Registers<together> side_by_side{};
#pragma unroll
                        for (uint32_t i = 0; i < accesses; ++i)
                            put_element(side_by_side, i, take_element<T>(loaded[i], e));
                        store_registers(transposed.at(element + e, thread_index() / in_line * accesses), side_by_side);
                    }
                }
            }
        }
    }
    // Calls `work` with the first line of each tile of [begin, end), when that is there. `prepare` is called before,
    // with the first line of a tile that will be there, and `ready` just before it is.
    template <typename Line, typename Prepare, typename Ready, typename Work>
    TALLOW_INLINE void each_tile(uint32_t begin, uint32_t end, const Line& line, const Prepare& prepare,
                                 const Ready& ready, const Work& work) {
        if constexpr (Shape::slots > 1) {
#if defined(TALLOW_HAS_ASYNC_COPIES)
            if (begin < end) {
                load_lines(slot, begin, end, line);
                commit_copies();
                prepare(begin);
            }
#pragma unroll 1
            for (uint32_t first = begin; first < end; first += Shape::lines) {
                await_copies<0>();
                ready(slot);
                synchronize_block();
                if (first + Shape::lines < end) {
                    load_lines(1 - slot, first + Shape::lines, end, line);
                    commit_copies();
                    prepare(first + Shape::lines);
                }
                work(first);
                slot = 1 - slot;
            }
#endif
        } else {
#pragma unroll 1
            for (uint32_t first = begin; first < end; first += Shape::lines) {
                synchronize_block();
                load_lines(slot, first, end, line);
                prepare(first);
                ready(slot);
                synchronize_block();
                work(first);
            }
        }
    }
    TALLOW_INLINE typename Shape::Tile tile(uint32_t operand) const {
        return tile_of(slot, operand);
    }
    // Columns of elements of the head, whose depth are lines.
    TALLOW_INLINE auto elements(uint32_t operand, uint32_t element, uint32_t line) const {
        if constexpr (Shape::transposes)
            return Core::read(transposed_of(slot, operand), element, line);
        else
            return Core::read_transposed(tile_of(slot, operand), element, line);
    }

  private:
    TALLOW_INLINE typename Shape::Tile tile_of(uint32_t in, uint32_t operand) const {
        return {shared + (in * Operands + operand) * operand_bytes};
    }
    TALLOW_INLINE typename Shape::TransposedTile transposed_of(uint32_t in, uint32_t operand) const {
        return {shared + (in * Operands + operand) * operand_bytes + Shape::bytes};
    }
};

// A wave's own lines of one operand.
template <typename T, uint32_t Size> struct OwnLines {
    using Shape = GradientShape<T, Size>;
    using Core = typename Shape::Core;
    // Larger heads leave no registers for them: they are loaded for each tile that is met.
#if defined(TALLOW_MATRIX_CORES_MMA)
    static constexpr uint32_t max_words = 32;
#else
    static constexpr uint32_t max_words = 16;
#endif
    static constexpr bool are_resident = Shape::tiles * Shape::steps * Core::words <= max_words;
    const T* lines[Shape::tiles][Core::lane_rows];
    uint32_t sizes[Shape::tiles][Core::lane_rows];
    typename Core::Rows resident[are_resident ? Shape::tiles : 1][are_resident ? Shape::steps : 1];

    // line(t, h) is where row h of the lane in tile t is; an absent row has a size of 0.
    template <typename Line, typename Sizes> TALLOW_INLINE OwnLines(const Line& line, const Sizes& size) {
#pragma unroll
        for (uint32_t t = 0; t < Shape::tiles; ++t) {
#pragma unroll
            for (uint32_t h = 0; h < Core::lane_rows; ++h) {
                lines[t][h] = line(t, h);
                sizes[t][h] = size(t, h);
            }
            if constexpr (are_resident) {
#pragma unroll
                for (uint32_t s = 0; s < Shape::steps; ++s)
                    resident[t][s] = Core::load(lines[t], sizes[t], s * matrix_side);
            }
        }
    }
    // Their products with the lines of a tile.
    template <typename Tile> TALLOW_INLINE void multiply(const Tile& tile, typename Shape::Products& products) const {
#pragma unroll
        for (uint32_t t = 0; t < Shape::tiles; ++t)
#pragma unroll
            for (uint32_t c = 0; c < Shape::columns; ++c)
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    products[t][c][i] = 0;
        constexpr uint32_t unrolled = are_resident ? Shape::steps : 1;
#pragma unroll unrolled
        for (uint32_t s = 0; s < Shape::steps; ++s) {
            typename Core::Rows rows[Shape::tiles];
#pragma unroll
            for (uint32_t t = 0; t < Shape::tiles; ++t) {
                if constexpr (are_resident)
                    rows[t] = resident[t][s];
                else
                    rows[t] = Core::load(lines[t], sizes[t], s * matrix_side);
            }
#pragma unroll
            for (uint32_t c = 0; c < Shape::columns; ++c) {
                const auto column = Core::read(tile, c * matrix_side, s * matrix_side);
#pragma unroll
                for (uint32_t t = 0; t < Shape::tiles; ++t)
                    Core::multiply(products[t][c], rows[t], column);
            }
        }
    }
};

// The gradient of a wave's own lines, or of some elements of them: sums of lines that it met.
template <typename T, uint32_t Size, uint32_t Part> struct GradientSums {
    using Shape = GradientShape<T, Size>;
    using Core = typename Shape::Core;
    static constexpr uint32_t steps = Part / matrix_side;
    float sums[Shape::tiles][steps][Core::sums]{};

    // Adds the lines of an operand with weights, elements from `first` on. Weights of T are multiplied by `factor`.
    template <typename Met>
    TALLOW_INLINE void add(const Met& met, uint32_t operand, uint32_t first, float factor,
                           const typename Shape::Products& weights) {
#pragma unroll
        for (uint32_t c = 0; c < Shape::columns; ++c) {
            typename Core::Rows rows[Shape::tiles];
#pragma unroll
            for (uint32_t t = 0; t < Shape::tiles; ++t) {
                float scaled[Core::sums];
#pragma unroll
                for (uint32_t i = 0; i < Core::sums; ++i)
                    scaled[i] = weights[t][c][i] * factor;
                rows[t] = Core::rows_of(scaled);
            }
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s) {
                const auto column = met.elements(operand, first + s * matrix_side, c * matrix_side);
#pragma unroll
                for (uint32_t t = 0; t < Shape::tiles; ++t)
                    Core::multiply(sums[t][s], rows[t], column);
            }
        }
    }
    // Writes them times a factor, as `Shape::store`.
    template <typename Line, typename Sizes>
    TALLOW_INLINE void store(uint32_t first, float factor, const Line& line, const Sizes& size) const {
        Shape::store(sums, first, factor, line, size);
    }
};

// The rows of one batch and key head, and their gradients.
template <typename Arguments> struct GradientRows : RowsOfHead<Arguments> {
    using Base = RowsOfHead<Arguments>;
    using Base::arguments, Base::batch, Base::count, Base::head;

    TALLOW_INLINE GradientRows(const Arguments& arguments, uint32_t batch_and_head) : Base(arguments, batch_and_head) {
    }
    template <typename T>
    TALLOW_INLINE const T* strided(uint64_t address, const uint64_t (&strides)[3], uint32_t row) const {
        return pointer_to<const T>(address) + batch * strides[0] + this->query_head(row) * strides[1] +
               row / arguments.group * strides[2];
    }
    template <typename T> TALLOW_INLINE const T* forward_result(uint32_t row) const {
        return strided<T>(arguments.result, arguments.result_strides, row);
    }
    template <typename T> TALLOW_INLINE const T* gradient(uint32_t row) const {
        return strided<T>(arguments.gradient, arguments.gradient_strides, row);
    }
    // The logarithm of the sum of the exponentials of a row, as an exponent of two; infinity where there are
    // none.
    TALLOW_INLINE float exponent(uint32_t row) const {
        return pointer_to<const float>(arguments.logsumexp)[this->line(row)] * log2_e;
    }
    // The sum of gradient times result.
    TALLOW_INLINE float& product(uint32_t row) const {
        return pointer_to<float>(arguments.products)[this->line(row)];
    }
    // Where a key is in a contiguous gradient.
    template <typename T> TALLOW_INLINE T* key_line(uint64_t address, uint32_t key) const {
        return pointer_to<T>(address) + (this->number() * arguments.keys + key) * arguments.head_size;
    }
};

// What is known of a row.
struct alignas(16) RowState {
    float exponent; // what is taken away from scores
    float product;
    uint32_t seen;

    template <typename Arguments> static TALLOW_INLINE RowState of(const GradientRows<Arguments>& rows, uint32_t row) {
        const uint32_t seen = rows.seen(row);
        if (seen == 0)
            return {0, 0, 0};
        return {rows.exponent(row), rows.product(row), seen};
    }
    // Makes a weight of a score that is seen.
    TALLOW_INLINE void weigh(float& score, float factor) const {
        score = approx_exp2(multiply_add(score, factor, -exponent));
    }
    // Makes the gradient of a score of that of its weight.
    TALLOW_INLINE void change(float weight, float& gradient) const {
        gradient = weight == 0 ? 0.0f : weight * (gradient - product);
    }
};

struct RowAndKey {
    uint32_t row;
    uint32_t key;
};

// Turns products of queries and keys into weights, and gradients of weights into those of scores. row_and_key(t, h,
// column) tells the row and key of a number, state(t, h, column) what is known of the row. Optional steps have loops of
// their own, so that no branch separates one number from the next.
template <typename T, typename Shape, typename Arguments, typename State, typename RowAndKeyOf>
TALLOW_INLINE void find_changes(const GradientRows<Arguments>& rows, bool are_all_seen, const State& state,
                                const RowAndKeyOf& row_and_key, typename Shape::Products& weights,
                                typename Shape::Products& changes) {
    const bool has_mask = rows.arguments.mask != 0;
    if (has_mask)
        Shape::each(weights, [&](uint32_t t, uint32_t h, uint32_t column, float& score, uint32_t, uint32_t) {
            const RowAndKey at = row_and_key(t, h, column);
            const T* const mask = rows.template mask<T>(at.row < rows.count ? at.row : 0);
            score = multiply_add(rows.masked(mask, at.key), log2_e, score * rows.scale());
        });
    const float factor = has_mask ? 1.0f : rows.scale();
    Shape::each(weights, [&](uint32_t t, uint32_t h, uint32_t column, float& score, uint32_t, uint32_t) {
        state(t, h, column).weigh(score, factor);
    });
    if (!are_all_seen)
        Shape::each(weights, [&](uint32_t t, uint32_t h, uint32_t column, float& weight, uint32_t, uint32_t) {
            if (row_and_key(t, h, column).key >= state(t, h, column).seen)
                weight = 0;
        });
    Shape::each(weights, [&](uint32_t t, uint32_t h, uint32_t column, float& weight, uint32_t c, uint32_t i) {
        state(t, h, column).change(weight, changes[t][c][i]);
    });
}

// The sum of gradient times result of a row, by the lanes that hold it: each gets it.
template <typename T, typename Core> TALLOW_INLINE float product_of(const T* result, const T* gradient, uint32_t size) {
    constexpr uint32_t length = access_bytes / sizeof(T);
    constexpr uint32_t sharing = 2 * Core::last_partner / Core::first_partner;
    float product = 0;
    for (uint32_t element = lane_index() / Core::first_partner % sharing * length; element < size;
         element += sharing * length) {
        const auto left = load_registers<access_bytes>(result + element);
        const auto right = load_registers<access_bytes>(gradient + element);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            product =
                multiply_add(to_compute(take_element<T>(left, i)), to_compute(take_element<T>(right, i)), product);
    }
#pragma unroll
    for (uint32_t partner = Core::first_partner; partner <= Core::last_partner; partner *= 2)
        product += shuffle_xor(product, partner);
    return product;
}

// A block has some rows, and writes the gradients of their queries, and of the mask. The kernel of keys takes the sums
// of gradient times result from it.
template <typename T, uint32_t Size, typename Arguments>
TALLOW_INLINE void find_gradient_of_queries(const Arguments& arguments) {
    using Shape = GradientShape<T, Size>;
    using Core = typename Shape::Core;
    using Met = MetLines<T, Size, 2>;
    __shared__ bits128 shared[Met::shared_bytes / sizeof(bits128)];
    const uint32_t parts = (arguments.queries * arguments.group + attention_rows - 1) / attention_rows;
    const GradientRows<Arguments> rows(arguments, block_index() / parts);
    const uint32_t first_of_block = (parts - 1 - block_index() % parts) * attention_rows;
    const uint32_t last =
        (rows.count - first_of_block > attention_rows ? first_of_block + attention_rows : rows.count) - 1;
    const uint32_t own = first_of_block + Shape::first_of_wave();
    const auto row = [&](uint32_t t, uint32_t h) { return own + t * matrix_side + Core::row(h); };
    const auto row_that_is = [&](uint32_t t, uint32_t h) {
        return row(t, h) < rows.count ? row(t, h) : first_of_block;
    };
    const auto size = [&](uint32_t, uint32_t) { return arguments.head_size; };
    const OwnLines<T, Size> queries([&](uint32_t t, uint32_t h) { return rows.template query<T>(row_that_is(t, h)); },
                                    size);
    const OwnLines<T, Size> gradients(
        [&](uint32_t t, uint32_t h) { return rows.template gradient<T>(row_that_is(t, h)); }, size);
    RowState states[Shape::tiles][Core::lane_rows];
    uint32_t seen_by_wave = 0;
    uint32_t seen_by_all = 0;
#pragma unroll
    for (uint32_t t = 0; t < Shape::tiles; ++t)
#pragma unroll
        for (uint32_t h = 0; h < Core::lane_rows; ++h) {
            const float product =
                product_of<T, Core>(rows.template forward_result<T>(row_that_is(t, h)),
                                    rows.template gradient<T>(row_that_is(t, h)), arguments.head_size);
            if (row(t, h) < rows.count)
                rows.product(row(t, h)) = product;
            states[t][h] = RowState::of(rows, row(t, h));
        }
    if (own < rows.count) {
        const uint32_t last_own = own + Shape::tiles * matrix_side - 1;
        seen_by_wave = rows.seen(last_own < rows.count ? last_own : rows.count - 1);
        seen_by_all = last_own < rows.count ? rows.seen(own) : 0;
    }
    GradientSums<T, Size, Size> sums;
    Met met;
    met.shared = reinterpret_cast<uint8_t*>(shared);
    met.head_size = arguments.head_size;
    const auto nothing = [](uint32_t) {};
    met.each_tile(
        0, rows.seen(last),
        [&](uint32_t operand, uint32_t key) {
            return operand == 0 ? rows.template keys<T>() + key * arguments.key_strides[2]
                                : rows.template values<T>() + key * arguments.value_strides[2];
        },
        nothing, nothing,
        [&](uint32_t first) {
            if (first >= seen_by_wave)
                return;
            typename Shape::Products scores;
            typename Shape::Products changes;
            queries.multiply(met.tile(0), scores);
            gradients.multiply(met.tile(1), changes);
            find_changes<T, Shape>(
                rows, first + Shape::lines <= seen_by_all,
                [&](uint32_t t, uint32_t h, uint32_t) -> const RowState& { return states[t][h]; },
                [&](uint32_t t, uint32_t h, uint32_t column) { return RowAndKey{row(t, h), first + column}; }, scores,
                changes);
            if (arguments.mask_gradient != 0)
                Shape::store(
                    changes, first, 1.0f,
                    [&](uint32_t t, uint32_t h) {
                        return pointer_to<T>(arguments.mask_gradient) + rows.line(row_that_is(t, h)) * arguments.keys;
                    },
                    [&](uint32_t t, uint32_t h) { return row(t, h) < rows.count ? arguments.keys : 0; });
            sums.add(met, 0, 0, 1.0f, changes);
        });
    sums.store(
        0, from_bits<float>(arguments.scale),
        [&](uint32_t t, uint32_t h) {
            return pointer_to<T>(arguments.query_gradient) + rows.line(row_that_is(t, h)) * arguments.head_size;
        },
        [&](uint32_t t, uint32_t h) { return row(t, h) < rows.count ? arguments.head_size : 0; });
}

// A block has some keys, and writes the gradients of them and of their values.
template <typename T, uint32_t Size, typename Arguments>
TALLOW_INLINE void find_gradient_of_keys(const Arguments& arguments) {
    using Shape = GradientShape<T, Size>;
    using Core = typename Shape::Core;
    using Met = MetLines<T, Size, 2>;
    constexpr uint32_t part = Shape::part;
    constexpr float weight_factor = weight_exponent<T> > 0 ? 32768.0f : 1.0f;
    __shared__ bits128 shared[Met::shared_bytes / sizeof(bits128)];
    __shared__ RowState states[Shape::slots][Shape::lines];
    const uint32_t blocks = (arguments.keys + attention_rows - 1) / attention_rows;
    const GradientRows<Arguments> rows(arguments, block_index() / blocks);
    const uint32_t first_of_block = block_index() % blocks * attention_rows;
    const uint32_t own = first_of_block + Shape::first_of_wave();
    const auto key = [&](uint32_t t, uint32_t h) { return own + t * matrix_side + Core::row(h); };
    const auto key_that_is = [&](uint32_t t, uint32_t h) { return key(t, h) < rows.length ? key(t, h) : 0; };
    const auto size = [&](uint32_t t, uint32_t h) { return key(t, h) < rows.length ? arguments.head_size : 0; };
    const OwnLines<T, Size> keys(
        [&](uint32_t t, uint32_t h) { return rows.template keys<T>() + key_that_is(t, h) * arguments.key_strides[2]; },
        size);
    const OwnLines<T, Size> values(
        [&](uint32_t t, uint32_t h) {
            return rows.template values<T>() + key_that_is(t, h) * arguments.value_strides[2];
        },
        size);
    // The first row that sees a key of the block.
    uint32_t begin = 0;
    if (arguments.is_causal != 0) {
        const int64_t query = int64_t{first_of_block} + arguments.queries - rows.length;
        begin = query > 0 ? static_cast<uint32_t>(query) * arguments.group : 0;
    }
    const auto line = [&](uint64_t address) {
        return [&, address](uint32_t t, uint32_t h) { return rows.template key_line<T>(address, key(t, h)); };
    };
    const auto written = [&](uint32_t t, uint32_t h) { return key(t, h) < arguments.keys ? arguments.head_size : 0; };
#pragma unroll 1
    for (uint32_t first_element = 0; first_element < Size; first_element += part) {
        GradientSums<T, Size, part> key_sums;
        GradientSums<T, Size, part> value_sums;
        Met met;
        met.shared = reinterpret_cast<uint8_t*>(shared);
        met.head_size = arguments.head_size;
        RowState state;
        met.each_tile(
            begin, first_of_block < rows.length ? rows.count : 0,
            [&](uint32_t operand, uint32_t row) {
                return operand == 0 ? rows.template query<T>(row) : rows.template gradient<T>(row);
            },
            [&](uint32_t first) {
                if (thread_index() < Shape::lines)
                    state = RowState::of(rows, first + thread_index());
            },
            [&](uint32_t slot) {
                if (thread_index() < Shape::lines)
                    states[slot][thread_index()] = state;
            },
            [&](uint32_t first) {
                if (states[met.slot][Shape::lines - 1].seen <= own && first + Shape::lines <= rows.count)
                    return;
                typename Shape::Products scores;
                typename Shape::Products changes;
                keys.multiply(met.tile(0), scores);
                values.multiply(met.tile(1), changes);
                // The first row attends to the fewest keys, and one past the last to none.
                const RowState* const met_states = states[met.slot];
                const uint32_t end = own + Shape::tiles * matrix_side;
                find_changes<T, Shape>(
                    rows, met_states[0].seen >= end && met_states[Shape::lines - 1].seen >= end,
                    [&](uint32_t, uint32_t, uint32_t column) -> const RowState& { return met_states[column]; },
                    [&](uint32_t t, uint32_t h, uint32_t column) { return RowAndKey{first + column, key(t, h)}; },
                    scores, changes);
                value_sums.add(met, 1, first_element, weight_factor, scores);
                key_sums.add(met, 0, first_element, 1.0f, changes);
            });
        value_sums.store(first_element, 1.0f / weight_factor, line(arguments.value_gradient), written);
        key_sums.store(first_element, from_bits<float>(arguments.scale), line(arguments.key_gradient), written);
        synchronize_block();
    }
}

} // namespace tallow
