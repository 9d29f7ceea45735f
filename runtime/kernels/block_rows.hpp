// Products of several activation rows with block-quantized weights.
//
// A block takes 16 rows of weights, parts of which it stages in shared memory. Matrix cores that multiply bytes make
// sums of 32 weights, or of 16 that share a scale, for all activation rows at once. What a lane of the product of one
// row adds up, see block_product.hpp, a wave has sums of here, for some of those lanes. So sums have the same order
// there.
#pragma once

#include "block_product.hpp"
#include "byte_core.hpp"

namespace tallow {

template <typename Weights> struct RowsTile {
    using Block = Weights;
    static constexpr uint32_t columns = block_rows;
    static_assert(block_rows == matrix_side);
    static constexpr uint32_t blocks = wave_size * lane_weights / Block::elements;
    // An odd number, so that lanes which read of rows side by side meet different banks.
    static constexpr uint32_t accesses = StagedBlocks<Block>::template accesses<blocks * sizeof(Block)> | 1;
    static constexpr uint32_t window = columns * accesses;
#if defined(TALLOW_HAS_ASYNC_COPIES)
    static constexpr uint32_t max_slots = (max_windows_bytes - (4 << 10)) / (window * access_bytes);
    static constexpr uint32_t slots = max_slots < 4 ? max_slots : 4;
    static_assert(slots > 1, "a part is in flight while another one is multiplied");
#else
    static constexpr uint32_t slots = 1;
#endif
};

// The parts of rows from `row` on: those of the waves that would share a row, one wave after the other.
struct PartsInOrder {
    uint32_t row;
    uint32_t split_bits;
    uint32_t all;
    uint32_t split = 0;
    uint32_t part = 0;
    uint32_t left = 0;

    TALLOW_INLINE PartsInOrder(uint32_t row, uint32_t split_bits, uint32_t all)
        : row(row), split_bits(split_bits), all(all) {
        begin();
    }
    // Whether this part is the last one of its wave.
    TALLOW_INLINE bool ends_split() const {
        return left == 1;
    }
    TALLOW_INLINE void advance() {
        if (ends_split()) {
            ++split;
            begin();
        } else {
            part = Round(split, split_bits, all).after(part);
            --left;
        }
    }

  private:
    TALLOW_INLINE void begin() {
        const Round round(split, split_bits, all);
        part = round.begin(row, split_bits);
        left = round.count;
    }
};

// How a block stages parts of its rows of weights: each thread makes some accesses. The last row is repeated past the
// end. Offsets are from the access in which the first row begins.
template <typename Block> struct RowsInParts {
    using Tile = RowsTile<Block>;
    static constexpr uint32_t part_bytes = Tile::blocks * sizeof(Block);
    static constexpr uint32_t rounds = (Tile::window + block_size - 1) / block_size;

    const uint8_t* begin;
    uint32_t reach;
    // Where the accesses of a thread are, and where the rows of a lane begin, in the first part.
    uint32_t accesses[rounds];
    uint32_t rows[ByteCore::lane_rows];

    template <typename Arguments> TALLOW_INLINE RowsInParts(const Arguments& arguments, uint32_t row) {
        constexpr uint64_t far = 1u << 31;
        const uint32_t length = arguments.hidden / Block::elements * static_cast<uint32_t>(sizeof(Block));
        const uint32_t last = arguments.rows - 1 - row;
        const uint64_t first = arguments.blocks + uint64_t{row} * length;
        const uint32_t skew = StagedBlocks<Block>::skew(first);
        const uint64_t left = arguments.blocks + arguments.readable - (first - skew);
        begin = pointer_to<const uint8_t>(first - skew);
        reach = static_cast<uint32_t>(left < far ? left : far);
#pragma unroll
        for (uint32_t round = 0; round < rounds; ++round) {
            const uint32_t number = round * block_size + thread_index();
            const uint32_t own = number / Tile::accesses < last ? number / Tile::accesses : last;
            accesses[round] = skew + own * length + number % Tile::accesses * access_bytes;
        }
#pragma unroll
        for (uint32_t h = 0; h < ByteCore::lane_rows; ++h)
            rows[h] = skew + (ByteCore::row(h) < last ? ByteCore::row(h) : last) * length;
    }
    // Nothing past the end of the weights is read.
    TALLOW_INLINE void prefetch(bits128* window, uint32_t part) const {
        const SharedAddress target = shared_address_of(window + thread_index());
#pragma unroll
        for (uint32_t round = 0; round < rounds; ++round) {
            const uint32_t here = accesses[round] + part * part_bytes;
            const uint32_t source = here - StagedBlocks<Block>::skew(here);
            const bool is_inside =
                (round + 1) * block_size <= Tile::window || round * block_size + thread_index() < Tile::window;
            tallow::prefetch_access(is_inside && source < reach, target + round * (block_size * access_bytes),
                                    begin + source);
        }
    }
    // The blocks of a part of the lane's row h in such a window.
    TALLOW_INLINE const Block* blocks_of(const bits128* window, uint32_t h, uint32_t part) const {
        const auto* const own = reinterpret_cast<const uint8_t*>(window + ByteCore::row(h) * Tile::accesses);
        return reinterpret_cast<const Block*>(own + StagedBlocks<Block>::skew(rows[h] + part * part_bytes));
    }
};

// The sums that a wave has: of every lane whose index has its own one as remainder, by as many columns as there are
// rows of x.
template <typename Block, uint32_t Planes, uint32_t XRows, typename Arguments> struct SumsOfLanes {
    using Core = ByteCore;
    using Row = RowOfX<Planes, sum_length<Block>>;
    static constexpr uint32_t lanes = wave_size / waves_per_block;
    static constexpr uint32_t across = XRows > Core::columns ? XRows / Core::columns : 1;
    static constexpr uint32_t chunks = sum_length<Block> / 16;
    // The lanes of a wave are this many weights from each other, in each of which an activation row has the same order.
    static constexpr uint32_t step = waves_per_block * lane_weights;
    static constexpr uint32_t in_block = lanes_of_block<Block>;
    static_assert(Core::columns % x_rows_together == 0 && step % 128 == 0 &&
                  (waves_per_block % in_block == 0 || in_block % waves_per_block == 0));
    // Columns of a lane's sums.
    static constexpr uint32_t own_columns = Core::sums / Core::lane_rows;

    // The numbers of the activation rows for the weights of a lane.
    struct Numbers {
        uint32_t quads[Row::sums][Planes][Core::lane_columns][chunks][Core::words];
        Registers<Row::sum_bytes> steps_and_sums[Row::sums][own_columns];
    };
    using Quads = uint32_t[Row::sums][Core::lane_rows][chunks][Core::words];
    struct Groups {
        ScaleOfGroup groups[Row::sums][Core::lane_rows];
    };
    // Where scales take more than a load, those who hold the same rows find them for some lanes each.
    static constexpr uint32_t alike = Block::group < Block::elements ? Core::alike : 1;

    float sums[lanes][across][Core::sums] = {};
    const Arguments& arguments;
    const uint32_t* const grid;
    const uint32_t row_bytes;

    TALLOW_INLINE SumsOfLanes(const Arguments& arguments, const uint32_t* grid)
        : arguments(arguments), grid(grid), row_bytes(Row::row_bytes(arguments.hidden)) {
    }

    static constexpr TALLOW_INLINE uint32_t spread(uint32_t offset) {
        return Row::spread(x_rows_together, offset);
    }
    TALLOW_INLINE uint32_t begin_of(uint32_t column) const {
        return Row::offset(XRows < Core::columns ? column % XRows : column, x_rows_together, row_bytes, 0);
    }
    TALLOW_INLINE Numbers load(uint32_t lane, uint32_t n, uint32_t part) const {
        Numbers numbers;
        const uint8_t* const x = pointer_to<const uint8_t>(arguments.x);
        const uint32_t begin = part * spread(Row::part_bytes) + n * Core::columns * row_bytes;
        const uint32_t of_quads = begin + spread(Row::quant_offset(lane * step, 0));
        const uint32_t of_sums = begin + spread(Row::sum_offset(lane * step) - Row::sum_offset(0));
#pragma unroll
        for (uint32_t run = 0; run < Row::sums; ++run) {
#pragma unroll
            for (uint32_t k = 0; k < Core::lane_columns; ++k) {
                const uint32_t column = begin_of(Core::lane_column(k));
#pragma unroll
                for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
                    const uint32_t weight = (run * chunks + chunk) * 16;
                    const uint32_t element = first_element<Block>(wave_index()) +
                                             weight / run_length<Block> * run_stride<Block> +
                                             weight % run_length<Block>;
                    const uint8_t* const source =
                        x + (of_quads + (column + spread(Row::quant_offset(element, 0)) + Core::first_depth()));
#pragma unroll
                    for (uint32_t plane = 0; plane < Planes; ++plane) {
                        const auto words = load_registers<4 * Core::words>(source + plane * spread(Row::cell));
#pragma unroll
                        for (uint32_t w = 0; w < Core::words; ++w)
                            numbers.quads[run][plane][k][chunk][w] = words.values[w];
                    }
                }
            }
#pragma unroll
            for (uint32_t c = 0; c < own_columns; ++c)
                numbers.steps_and_sums[run][c] = load_registers<Row::sum_bytes>(
                    x + (of_sums +
                         (begin_of(Core::column(c)) +
                          spread(Row::sum_offset(first_element<Block>(wave_index()) + run * group_stride<Block>)))));
        }
        return numbers;
    }

    // Where the weights of a lane are: a block of the part, and the position of the first one in it.
    static TALLOW_INLINE uint32_t block_of(uint32_t lane) {
        return lane * waves_per_block / in_block + wave_index() / in_block;
    }
    static TALLOW_INLINE uint32_t first_weight_of(uint32_t lane) {
        return first_weight<Block>(lane * waves_per_block % in_block + wave_index() % in_block);
    }
    // The scales of a lane's weights, of which the rows have these blocks.
    static TALLOW_INLINE Groups groups_of(uint32_t lane, const Block* const (&blocks)[Core::lane_rows]) {
        Groups result;
#pragma unroll
        for (uint32_t h = 0; h < Core::lane_rows; ++h)
#pragma unroll
            for (uint32_t run = 0; run < Row::sums; ++run)
                result.groups[run][h] = ScaleOfGroup::of(
                    blocks[h][block_of(lane)], (first_weight_of(lane) + run * group_stride<Block>) / Block::group);
        return result;
    }
    static TALLOW_INLINE Groups groups_from(const Groups& own, uint32_t lane) {
        Groups result;
#pragma unroll
        for (uint32_t h = 0; h < Core::lane_rows; ++h)
#pragma unroll
            for (uint32_t run = 0; run < Row::sums; ++run) {
                const ScaleOfGroup& group = own.groups[run][h];
                result.groups[run][h] = {shuffle_from(group.scale, lane),
                                         Block::has_offset ? shuffle_from(group.offset, lane) : 0.0f};
            }
        return result;
    }
    TALLOW_INLINE void load_weights(uint32_t lane, const Block* const (&blocks)[Core::lane_rows], Quads& quads) const {
#pragma unroll
        for (uint32_t h = 0; h < Core::lane_rows; ++h) {
            const Block& block = blocks[h][block_of(lane)];
#pragma unroll
            for (uint32_t weight = 0; weight < lane_weights; weight += 16) {
                const uint32_t first = first_weight_of(lane) + weight % run_length<Block> + Core::first_depth();
                const auto loaded = block.template load<Core::words>(first, grid);
#pragma unroll
                for (uint32_t w = 0; w < Core::words; ++w)
                    quads[weight / 16 / chunks][h][weight / 16 % chunks][w] = signed_quads<Block>(
                        block.quads(loaded, w, first + weight / run_length<Block> * run_stride<Block> + 4 * w));
            }
        }
    }

    static TALLOW_INLINE void add_lane(bool is_present, const Quads& quads, const Groups& groups,
                                       const Numbers& numbers, float (&own)[Core::sums]) {
#pragma unroll
        for (uint32_t run = 0; run < Row::sums; ++run) {
            int dots[Planes][Core::sums] = {};
#pragma unroll
            for (uint32_t plane = 0; plane < Planes; ++plane)
                Core::multiply(dots[plane], quads[run], numbers.quads[run][plane]);
#pragma unroll
            for (uint32_t s = 0; s < Core::sums; ++s) {
                const auto& known = numbers.steps_and_sums[run][s % own_columns];
                int of_planes[Planes];
#pragma unroll
                for (uint32_t plane = 0; plane < Planes; ++plane)
                    of_planes[plane] = dots[plane][s];
                float sum = own[s];
                add_product<Block>(of_planes, bit_cast<float>(known.values[0]), bit_cast<float>(known.values[1]),
                                   groups.groups[run][Core::lane_row_of(s)], sum);
                own[s] = is_present ? sum : own[s];
            }
        }
    }
    // Adds the products with a part, of whose numbers those for the first row of x may be there. The last part may lack
    // blocks, on which all lanes of a wave agree. Without branches between them the loads of several lanes are in
    // flight together. That takes registers, which compilers other than NVIDIA's then spill.
    TALLOW_INLINE void add(uint32_t length, const Block* const (&blocks)[Core::lane_rows], uint32_t part,
                           const Numbers (&loaded)[lanes]) {
        Groups own[lanes / alike];
#pragma unroll
        for (uint32_t k = 0; k < lanes / alike && alike != 1; ++k)
            own[k] = groups_of(k * alike + Core::index_of_alike() % alike, blocks);
#pragma unroll
        for (uint32_t lane = 0; lane < lanes; ++lane) {
            const bool is_present = part * RowsTile<Block>::blocks + block_of(lane) < length;
#if !defined(TALLOW_NVIDIA)
            if (!is_present)
                continue;
#endif
            const Groups groups = alike == 1 ? groups_of(lane, blocks)
                                             : groups_from(own[lane / alike], Core::lane_of_alike(lane % alike));
            Quads quads;
            load_weights(lane, blocks, quads);
#pragma unroll
            for (uint32_t n = 0; n < across; ++n)
                add_lane(is_present, quads, groups, loads_ahead ? loaded[lane] : load(lane, n, part), sums[lane][n]);
        }
    }

    // Registers can hold the numbers of a part, which are loaded ahead.
#if defined(TALLOW_HAS_ASYNC_COPIES)
    static constexpr bool loads_ahead = across == 1;
#else
    static constexpr bool loads_ahead = false;
#endif
    TALLOW_INLINE void load_ahead(uint32_t part, Numbers (&loaded)[lanes]) const {
        if constexpr (loads_ahead) {
#pragma unroll
            for (uint32_t lane = 0; lane < lanes; ++lane)
                loaded[lane] = load(lane, 0, part);
        }
    }

    // What waves hand each other: a column of x, then rows of weights.
    using Shared = float[waves_per_block][Core::columns * block_rows];

    // Adds up the sums of all lanes, pairwise, and the result to what the thread has of each column, if anything; then
    // there are new sums.
    TALLOW_INLINE void join(Shared& shared, bool is_first, float (&totals)[across]) {
#pragma unroll
        for (uint32_t n = 0; n < across; ++n) {
#pragma unroll
            for (uint32_t count = lanes / 2; count > 0; count /= 2) {
#pragma unroll
                for (uint32_t lane = 0; lane < count; ++lane)
#pragma unroll
                    for (uint32_t s = 0; s < Core::sums; ++s)
                        sums[lane][n][s] += sums[lane + count][n][s];
            }
#pragma unroll
            for (uint32_t s = 0; s < Core::sums; ++s)
                shared[wave_index()][Core::column(s) * block_rows + Core::row(Core::lane_row_of(s))] = sums[0][n][s];
            synchronize_block();
            if (thread_index() < Core::columns * block_rows) {
                float values[waves_per_block];
#pragma unroll
                for (uint32_t w = 0; w < waves_per_block; ++w)
                    values[w] = shared[w][thread_index()];
#pragma unroll
                for (uint32_t count = waves_per_block / 2; count > 0; count /= 2) {
#pragma unroll
                    for (uint32_t w = 0; w < count; ++w)
                        values[w] += values[w + count];
                }
                totals[n] = is_first ? values[0] : totals[n] + values[0];
            }
            synchronize_block();
#pragma unroll
            for (uint32_t lane = 0; lane < lanes; ++lane)
#pragma unroll
                for (uint32_t s = 0; s < Core::sums; ++s)
                    sums[lane][n][s] = 0.0f;
        }
    }
};

template <typename Block, uint32_t Planes, uint32_t XRows, typename Arguments>
TALLOW_INLINE void multiply_rows(const Arguments& arguments) {
    using Tile = RowsTile<Block>;
    using Sums = SumsOfLanes<Block, Planes, XRows, Arguments>;
    let_next_kernel_begin();
    // The words of the last block may end past it.
    __shared__ bits128 windows[Tile::slots * Tile::window + 1];
    __shared__ typename Sums::Shared shared;
    const uint32_t* const grid = stage_grid<Block>();
    constexpr uint32_t ahead = Tile::slots - 1;
    const uint32_t length = arguments.hidden / Block::elements;
    const uint32_t parts = (length + Tile::blocks - 1) / Tile::blocks;
    for (uint32_t row = block_index() * block_rows; row < arguments.rows; row += grid_blocks() * block_rows) {
        const RowsInParts<Block> rows(arguments, row);
        PartsInOrder next(row, arguments.split_bits, parts);
        PartsInOrder current = next;
#pragma unroll 1
        for (uint32_t slot = 0; slot < ahead; ++slot) {
            if (slot < parts)
                rows.prefetch(windows + slot * Tile::window, next.part);
            commit_copies();
            next.advance();
        }
        await_previous_kernel();
        Sums sums(arguments, grid);
        typename Sums::Numbers loaded[Sums::lanes];
        sums.load_ahead(current.part, loaded);
        float totals[Sums::across] = {};
        uint32_t slot = 0;
#pragma unroll 1
        for (uint32_t left = parts; left != 0; --left) {
            if constexpr (ahead == 0) {
                synchronize_block();
                rows.prefetch(windows, current.part);
                synchronize_block();
            } else {
                await_copies<ahead - 1>();
                synchronize_block();
                if (left > ahead)
                    rows.prefetch(windows + (slot == 0 ? ahead : slot - 1) * Tile::window, next.part);
                commit_copies();
                next.advance();
            }
            const Block* blocks[ByteCore::lane_rows];
#pragma unroll
            for (uint32_t h = 0; h < ByteCore::lane_rows; ++h)
                blocks[h] = rows.blocks_of(windows + slot * Tile::window, h, current.part);
            sums.add(length, blocks, current.part, loaded);
            const bool ends_split = current.ends_split();
            const bool is_first = current.split == 0;
            current.advance();
            if (left != 1)
                sums.load_ahead(current.part, loaded);
            if (ends_split)
                sums.join(shared, is_first, totals);
            slot = slot == ahead ? 0 : slot + 1;
        }
        const uint32_t own = row + thread_index() % block_rows;
#pragma unroll
        for (uint32_t n = 0; n < Sums::across; ++n) {
            const uint32_t column = thread_index() / block_rows + n * ByteCore::columns;
            if (thread_index() < ByteCore::columns * block_rows && column < arguments.x_rows && own < arguments.rows)
                pointer_to<float>(arguments.result)[uint64_t{column} * arguments.rows + own] = totals[n];
        }
        synchronize_block();
    }
}

} // namespace tallow
