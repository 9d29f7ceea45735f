// Products of an activation row with block-quantized weights.
//
// A wave takes rows of weights. It stages the bytes of a part of each in shared memory by aligned accesses, wherever
// blocks begin, and then each lane takes 32 weights of each row. Sums have one order, whatever else is computed: that
// of a lane's parts, then the lanes pairwise, then the waves that share a row. So a row of x has the same result alone
// and among others: see block_rows.hpp.
#pragma once

#include "block_bytes.hpp"
#include "rows_of_x.hpp"

namespace tallow {

// What a block's windows take of the 48 KiB of shared memory; waves exchange sums in the remainder.
constexpr uint32_t max_windows_bytes = 46 << 10;

// The windows of a wave's rows in shared memory: accesses that have a part of each. Where copies do not wait, those of
// the next parts are in flight.
template <typename Block, uint32_t Rows> struct Windows {
    static constexpr uint32_t blocks = wave_size * lane_weights / Block::elements;
    static constexpr uint32_t bytes = blocks * sizeof(Block);
    static constexpr uint32_t accesses = StagedBlocks<Block>::template accesses<bytes>;
    static_assert(accesses * access_bytes <= min_blocks_bytes, "a window is inside what may be read");
#if defined(TALLOW_HAS_ASYNC_COPIES)
    static constexpr uint32_t slot_bytes = waves_per_block * Rows * accesses * access_bytes;
    static constexpr uint32_t slots = 3 * slot_bytes <= max_windows_bytes ? 3 : 2;
#else
    static constexpr uint32_t slots = 1;
#endif
    bits128 memory[slots][Rows][accesses];
    // The words of the last block may end past it.
    bits128 padding;
};

// The parts of rows of weights that are copied to shared memory. A window begins with the access in which its part
// does, and what it has of the next row does no harm. Nothing past the end of the weights is read: no window begins so
// late.
template <typename Block, uint32_t Rows> struct Stream {
    using Wave = Windows<Block, Rows>;

    // Where the lane stores the first bytes of the first window, and where it has its block if that begins a window.
    SharedAddress target;
    SharedAddress block;
    // The first access of the lane to a window that would begin with a row, the offset of the row in it, and that of
    // the last window.
    const uint8_t* sources[Rows];
    uint32_t skews[Rows];
    int lasts[Rows];

    template <typename Arguments>
    TALLOW_INLINE Stream(Wave& wave, const Arguments& arguments, uint32_t first_row)
        : target(shared_address_of(&wave.memory[0][0][0]) + lane_index() * access_bytes),
          block(shared_address_of(&wave.memory[0][0][0]) + lane_index() / lanes_of_block<Block> * sizeof(Block)) {
        constexpr uint32_t far = 1u << 26;
        const uint32_t length = arguments.hidden / Block::elements * static_cast<uint32_t>(sizeof(Block));
        const uint64_t end = (arguments.blocks + arguments.readable + access_bytes - 1) / access_bytes;
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            // Past the last row it is the last one again.
            const uint32_t row = first_row + r < arguments.rows ? first_row + r : arguments.rows - 1;
            const uint64_t begin = arguments.blocks + uint64_t{row} * length;
            const uint32_t reach = static_cast<uint32_t>(end) - static_cast<uint32_t>(begin / access_bytes);
            lasts[r] = static_cast<int>((reach < far ? reach : far) - Wave::accesses) * static_cast<int>(access_bytes);
            skews[r] = StagedBlocks<Block>::skew(begin);
            sources[r] = pointer_to<const uint8_t>(begin - skews[r]) + lane_index() * access_bytes;
        }
    }

    // Where the window of the part that at `offset` in its row begins.
    TALLOW_INLINE int window_of(uint32_t r, uint32_t offset) const {
        constexpr bool is_steady = Wave::bytes % access_bytes == 0;
        const uint32_t access = is_steady ? offset : (offset + skews[r]) / access_bytes * access_bytes;
        return static_cast<int>(access) < lasts[r] ? static_cast<int>(access) : lasts[r];
    }

    TALLOW_INLINE void prefetch_part(uint32_t slot, uint32_t offset) const {
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            const uint8_t* const source = sources[r] + window_of(r, offset);
#pragma unroll
            for (uint32_t begin = 0; begin < Wave::accesses; begin += wave_size)
                prefetch_access(begin + wave_size <= Wave::accesses || begin + lane_index() < Wave::accesses,
                                target + ((slot * Rows + r) * Wave::accesses + begin) * access_bytes,
                                source + begin * access_bytes);
        }
    }

    // The block of a lane in such a part, once that is there.
    TALLOW_INLINE const Block& block_of(uint32_t slot, uint32_t r, uint32_t offset) const {
        const uint32_t in_window = offset + skews[r] - static_cast<uint32_t>(window_of(r, offset));
        const uint32_t window = (slot * Rows + r) * Wave::accesses * access_bytes;
        return *reinterpret_cast<const Block*>(pointer_of_shared(block + window + in_window));
    }
};

template <typename Block> constexpr uint32_t sum_length = Block::group < lane_weights ? Block::group : lane_weights;

// Adds the products of a dot of quants, and of their bias, with numbers of x, which have this step and sum, and of an
// offset that weights have in common.
template <typename Block, uint32_t Planes>
TALLOW_INLINE void add_product(const int (&dots)[Planes], float step, float sum, const ScaleOfGroup& group,
                               float& total) {
    // Quants of 8 bits are signed as they stand.
    constexpr float bias = Block::bias == -128 ? 0.0f : static_cast<float>(Block::bias);
    float dot = static_cast<float>(dots[0]);
#pragma unroll
    for (uint32_t plane = 1; plane < Planes; ++plane)
        dot = multiply_add(dot, 256.0f, static_cast<float>(dots[plane]));
    // An infinite step is multiplied with weights, not with their quants.
    const float product = bias == 0.0f  ? dot * step
                          : Planes == 1 ? multiply_add(dot, step, bias * sum)
                                        : multiply_add(bias, sum, dot) * step;
    total = multiply_add(group.scale, product, total);
    if constexpr (Block::has_offset)
        total = multiply_add(group.offset, Planes == 1 ? sum : sum * step, total);
}

// Quants as products take them, which are signed.
template <typename Block> TALLOW_INLINE uint32_t signed_quads(uint32_t quads) {
    return quads ^ (Block::bias == -128 ? 0x80808080u : 0u);
}

// The row of x, of which lanes take what their weights meet.
template <typename Block, uint32_t Planes> struct OnlyRowOfX {
    using Row = RowOfX<Planes, sum_length<Block>>;

    // What a lane multiplies with 32 weights.
    struct Numbers {
        uint32_t quads[Planes][lane_weights / 4];
        Registers<Row::sum_bytes> steps_and_sums[Row::sums];
    };

    static TALLOW_INLINE Numbers load(uint64_t x, uint32_t part) {
        const uint8_t* const begin = pointer_to<const uint8_t>(x) + part * Row::part_bytes;
        const uint32_t first = first_element<Block>(lane_index());
        Numbers numbers;
        constexpr uint32_t words = access_bytes / 4;
#pragma unroll
        for (uint32_t plane = 0; plane < Planes; ++plane) {
#pragma unroll
            for (uint32_t quad = 0; quad < lane_weights / 4; quad += words) {
                const uint32_t element =
                    first + 4 * quad / run_length<Block> * run_stride<Block> + 4 * quad % run_length<Block>;
                const auto access = load_registers<access_bytes>(begin + Row::quant_offset(element, plane));
#pragma unroll
                for (uint32_t k = 0; k < words; ++k)
                    numbers.quads[plane][quad + k] = access.values[k];
            }
        }
#pragma unroll
        for (uint32_t sum = 0; sum < Row::sums; ++sum)
            numbers.steps_and_sums[sum] =
                load_registers<Row::sum_bytes>(begin + Row::sum_offset(first + sum * group_stride<Block>));
        return numbers;
    }

    // Adds the products with a lane's weights, which begin at `i` of their block.
    template <uint32_t Rows>
    static TALLOW_INLINE void add(const Block* const (&blocks)[Rows], const uint32_t* grid, uint32_t i,
                                  const Numbers& numbers, float (&sums)[Rows]) {
        constexpr uint32_t length = run_length<Block> / 4;
        constexpr uint32_t quads_of_sum = sum_length<Block> / 4;
        uint32_t quads[Rows][lane_weights / 4];
        ScaleOfGroup groups[Rows][Row::sums];
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            const auto loaded = blocks[r]->template load<length>(i, grid);
#pragma unroll
            for (uint32_t quad = 0; quad < lane_weights / 4; ++quad) {
                const uint32_t element = i + quad / length * run_stride<Block> + quad % length * 4;
                quads[r][quad] = signed_quads<Block>(blocks[r]->quads(loaded, quad % length, element));
            }
#pragma unroll
            for (uint32_t run = 0; run < Row::sums; ++run)
                groups[r][run] = ScaleOfGroup::of(*blocks[r], (i + run * group_stride<Block>) / Block::group);
        }
#pragma unroll
        for (uint32_t run = 0; run < Row::sums; ++run) {
            const float step = bit_cast<float>(numbers.steps_and_sums[run].values[0]);
            const float sum = bit_cast<float>(numbers.steps_and_sums[run].values[1]);
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                int dots[Planes] = {};
#pragma unroll
                for (uint32_t plane = 0; plane < Planes; ++plane) {
#pragma unroll
                    for (uint32_t quad = run * quads_of_sum; quad < (run + 1) * quads_of_sum; ++quad)
                        dots[plane] = dot_of_bytes(quads[r][quad], numbers.quads[plane][quad], dots[plane]);
                }
                add_product<Block>(dots, step, sum, groups[r][run], sums[r]);
            }
        }
    }
};

// Adds up sums of the lanes of a wave; every lane has them then.
template <uint32_t Count> TALLOW_INLINE void add_lanes(float (&sums)[Count]) {
#pragma unroll
    for (uint32_t i = 0; i < Count; ++i) {
#pragma unroll
        for (uint32_t mask = wave_size / 2; mask > 0; mask /= 2)
            sums[i] += shuffle_xor(sums[i], mask);
    }
}

// The parts of a row that a wave takes: every `step`-th from `first` on, cyclically. The first one depends on the row:
// waves that all began with the same part would always wait for the same numbers of x.
struct Round {
    uint32_t first;
    uint32_t step;
    uint32_t parts;
    uint32_t count;

    TALLOW_INLINE Round(uint32_t split, uint32_t split_bits, uint32_t all)
        : first(split), step(1u << split_bits), parts(all),
          count(all > split ? ((all - split - 1) >> split_bits) + 1 : 0) {
    }

    TALLOW_INLINE uint32_t begin(uint32_t row, uint32_t split_bits) const {
        // Consecutive numbers times 2**32 over the golden ratio are far from each other.
        constexpr uint32_t golden = 2654435769u;
        return first + (multiply_high(row / block_rows * golden, count) << split_bits);
    }
    TALLOW_INLINE uint32_t after(uint32_t part) const {
        return part + step < parts ? part + step : first;
    }
};

// The sums of the parts that a wave takes of rows from `row` on.
template <typename Block, uint32_t Planes, uint32_t Rows, typename Arguments>
TALLOW_INLINE void add_parts(const Arguments& arguments, Windows<Block, Rows>& windows, const uint32_t* grid,
                             uint32_t row, uint32_t split, float (&sums)[Rows]) {
    using Wave = Windows<Block, Rows>;
    using X = OnlyRowOfX<Block, Planes>;
    constexpr uint32_t ahead = Wave::slots - 1;
    const Stream<Block, Rows> stream(windows, arguments, row);
    const uint32_t length = arguments.hidden / Block::elements;
    const Round round(split, arguments.split_bits, (length + Wave::blocks - 1) / Wave::blocks);
    uint32_t part = round.begin(row, arguments.split_bits);
    uint32_t next = part;
    // Unrolled, it takes registers that compilers then spill.
#pragma unroll 1
    for (uint32_t slot = 0; slot < ahead; ++slot) {
        if (slot < round.count)
            stream.prefetch_part(slot, next * Wave::bytes);
        commit_copies();
        next = round.after(next);
    }
    await_previous_kernel();
    typename X::Numbers numbers;
    if (round.count != 0)
        numbers = X::load(arguments.x, part);
    uint32_t slot = 0;
#pragma unroll 1
    for (uint32_t left = round.count; left != 0; --left) {
        if (left > ahead)
            stream.prefetch_part(slot == 0 ? ahead : slot - 1, next * Wave::bytes);
        commit_copies();
        next = round.after(next);
        await_copies<ahead>();
        synchronize_wave();
        const Block* blocks[Rows];
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r)
            blocks[r] = &stream.block_of(slot, r, part * Wave::bytes);
        if (part * Wave::blocks + lane_index() / lanes_of_block<Block> < length)
            X::add(blocks, grid, first_weight<Block>(lane_index()), numbers, sums);
        synchronize_wave();
        part = round.after(part);
        // It comes from a cache, but that takes long as well.
        if (left != 1)
            numbers = X::load(arguments.x, part);
        slot = slot == ahead ? 0 : slot + 1;
    }
}

// The rows of weights that a wave takes at a time. They share what is read of x, but windows of large blocks would
// leave registers for few in flight.
template <typename Block, uint32_t Planes> TALLOW_INLINE constexpr uint32_t rows_at_once() {
    if (sizeof(Block) >= Block::elements)
        return 1;
    const bool has_few_bits = sizeof(Block) * 8 < Block::elements * exact_product_bits;
    return Planes == exact_planes && has_few_bits ? exact_product_rows : product_rows;
}

// Where group `number` of `Count` rows begins. The parts of 16 rows have one order, so waves side by side take rows of
// different ones.
template <uint32_t Count> TALLOW_INLINE uint32_t row_of_group(uint32_t number) {
    constexpr uint32_t in_tile = block_rows / Count;
    const uint32_t in_tiles = number % (interleaved_tiles * in_tile);
    const uint32_t tile = number / (interleaved_tiles * in_tile) * interleaved_tiles + in_tiles % interleaved_tiles;
    return tile * block_rows + in_tiles / interleaved_tiles * Count;
}

// Where rows are few, waves share some: each takes parts of its own, and the first of them adds the sums up.
template <typename Block, uint32_t Planes, typename Arguments>
TALLOW_INLINE void block_product(const Arguments& arguments) {
    let_next_kernel_begin();
    constexpr uint32_t count = rows_at_once<Block, Planes>();
    __shared__ Windows<Block, count> shared[waves_per_block];
    __shared__ float partial[waves_per_block][count];
    const uint32_t* const grid = stage_grid<Block>();
    const uint32_t splits = 1u << arguments.split_bits;
    const uint32_t split = wave_index() & (splits - 1);
    constexpr uint32_t interleaved_rows = interleaved_tiles * block_rows;
    const uint32_t groups = (arguments.rows + interleaved_rows - 1) / interleaved_rows * (interleaved_rows / count);
    const uint32_t step = waves_per_block >> arguments.split_bits;
    for (uint32_t first = block_index() * step; first < groups; first += grid_blocks() * step) {
        const uint32_t row = row_of_group<count>(first + (wave_index() >> arguments.split_bits));
        float sums[count] = {};
        if (row < arguments.rows) {
            add_parts<Block, Planes>(arguments, shared[wave_index()], grid, row, split, sums);
            add_lanes(sums);
        }
        if (splits != 1) {
            if (lane_index() == 0 && split != 0) {
#pragma unroll
                for (uint32_t r = 0; r < count; ++r)
                    partial[wave_index()][r] = sums[r];
            }
            synchronize_block();
            for (uint32_t other = 1; split == 0 && other < splits; ++other) {
#pragma unroll
                for (uint32_t r = 0; r < count; ++r)
                    sums[r] += partial[wave_index() + other][r];
            }
            synchronize_block();
        }
#pragma unroll
        for (uint32_t r = 0; r < count; ++r)
            if (split == 0 && lane_index() == 0 && row + r < arguments.rows)
                pointer_to<float>(arguments.result)[row + r] = sums[r];
    }
}

// Weights that are floats have no blocks: a lane takes 8 at a time, a wave a row.
template <typename Block, uint32_t XRows, typename Arguments>
TALLOW_INLINE void float_product(const Arguments& arguments) {
    constexpr uint32_t run = 8;
    let_next_kernel_begin();
    await_previous_kernel();
    const float* const x = pointer_to<const float>(arguments.x);
    const uint32_t waves = grid_blocks() * waves_per_block;
    for (uint32_t row = block_index() * waves_per_block + wave_index(); row < arguments.rows; row += waves) {
        const Block* const weights =
            pointer_to<const Block>(arguments.blocks) + static_cast<uint64_t>(row) * arguments.hidden;
        float sums[XRows] = {};
        for (uint32_t i = lane_index() * run; i < arguments.hidden; i += wave_size * run) {
            float factors[run];
            load_floats(&weights[i].value, factors);
#pragma unroll
            for (uint32_t h = 0; h < XRows; ++h) {
                const uint32_t x_row = XRows == 1 || h < arguments.x_rows ? h : 0;
                float values[run];
                load_floats(x + x_row * arguments.x_stride + i, values);
#pragma unroll
                for (uint32_t k = 0; k < run; ++k)
                    sums[h] = multiply_add(factors[k], values[k], sums[h]);
            }
        }
        add_lanes(sums);
#pragma unroll
        for (uint32_t h = 0; h < XRows; ++h)
            if (lane_index() == 0 && h < arguments.x_rows)
                pointer_to<float>(arguments.result)[static_cast<uint64_t>(h) * arguments.rows + row] = sums[h];
    }
}

} // namespace tallow
