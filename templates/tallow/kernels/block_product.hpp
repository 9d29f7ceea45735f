// Products of few rows of x and rows of weights in blocks.
//
// A wave takes rows of weights. It brings the bytes of a part of each to shared memory in whole accesses, wherever
// blocks begin, and then each lane takes 32 weights of each row. Sums have one order, whatever else is computed: that
// of a lane's weights, then the lanes by halves. So a row of x has the same result alone and among others.
#pragma once

#include "async_copy.hpp"
#include "quantized.hpp"
#include "wave.hpp"

namespace tallow {

// The 32 weights of a lane: runs whose quants share bytes. Where lanes share a block, none is shorter than a group, so
// that few scales are decoded.
constexpr uint32_t lane_weights = 32;
template <typename Block>
constexpr uint32_t most_runs = Block::elements == lane_weights ? lane_weights
                               : Block::group < lane_weights   ? lane_weights / Block::group
                                                               : 1;
template <typename Block> constexpr uint32_t runs = Block::runs < most_runs<Block> ? Block::runs : most_runs<Block>;
template <typename Block> constexpr uint32_t apart = runs<Block> == 1 ? Block::elements : Block::apart;
template <typename Block> constexpr uint32_t run_length = lane_weights / runs<Block>;

template <typename Block> constexpr uint32_t lanes_of_block = Block::elements / lane_weights;
template <typename Block> constexpr uint32_t runs_side_by_side = apart<Block> / run_length<Block>;

// Where those of a lane begin in their block.
template <typename Block> TALLOW_INLINE uint32_t first_weight(uint32_t lane) {
    const uint32_t place = lane % lanes_of_block<Block>;
    return runs<Block> * apart<Block> * (place / runs_side_by_side<Block>)+run_length<Block> *
           (place % runs_side_by_side<Block>);
}

// The other way round: whose an element of a row is, and which of the 32.
struct LanePlace {
    uint32_t lane;
    uint32_t number;
};
template <typename Block> TALLOW_INLINE LanePlace place_of(uint32_t element) {
    constexpr uint32_t together = runs<Block> * apart<Block>;
    const uint32_t i = element % together;
    const uint32_t lane = element / together * runs_side_by_side<Block> + i % apart<Block> / run_length<Block>;
    return {lane, i / apart<Block> * run_length<Block> + i % run_length<Block>};
}

// Where the bytes of x that a lane multiplies with 32 weights are, which are accesses of all lanes of a wave in turn:
// so lanes read side by side.
template <uint32_t Bytes> TALLOW_INLINE uint32_t arranged_place(LanePlace place) {
    constexpr uint32_t accesses = lane_weights * Bytes / access_bytes;
    const uint32_t byte = place.number * Bytes;
    const uint32_t access =
        (place.lane / wave_size * accesses + byte / access_bytes) * wave_size + place.lane % wave_size;
    return access * access_bytes + byte % access_bytes;
}
// The bytes of such a row.
template <uint32_t Bytes> TALLOW_INLINE uint32_t arranged_bytes(uint32_t hidden) {
    constexpr uint32_t part = wave_size * lane_weights;
    return (hidden + part - 1) / part * part * Bytes;
}

// A place in shared memory, as what copies to it takes it; where copies do not wait, accesses that are not whole are
// left out.
#if defined(TALLOW_ASYNC_COPIES)
using SharedPlace = uint32_t;
TALLOW_INLINE SharedPlace place_of_shared(bits128* pointer) {
    return shared_address(pointer);
}
TALLOW_INLINE void bring(SharedPlace target, const uint8_t* source, int) {
    copy_async(target, source);
}
#else
using SharedPlace = uint8_t*;
TALLOW_INLINE SharedPlace place_of_shared(bits128* pointer) {
    return reinterpret_cast<uint8_t*>(pointer);
}
TALLOW_INLINE void bring(SharedPlace target, const uint8_t* source, int left) {
    if (left >= 0) {
        store_registers(target, load_registers<access_bytes>(source));
    } else {
        for (int i = 0; i < left + static_cast<int>(access_bytes); i += 2)
            store_registers(target + i, load_registers<2>(source + i));
    }
}
#endif

// The parts of a wave's rows in shared memory. Where copies do not wait, those of the next parts are under way.
template <typename Block, uint32_t Rows> struct Parts {
    static constexpr uint32_t blocks = wave_size * lane_weights / Block::elements;
    static constexpr uint32_t bytes = blocks * sizeof(Block);
    // The first block of all begins at a multiple of 16, each at one of 2, and so do words, which are cut from whole
    // ones.
    static constexpr bool is_aligned = sizeof(Block) % access_bytes == 0;
    static constexpr uint32_t accesses = (bytes + (is_aligned ? 0 : 2 * access_bytes - 1)) / access_bytes;
    // What is quickest was measured on an H200.
#if defined(TALLOW_ASYNC_COPIES)
    static constexpr uint32_t slots = Rows == 1 ? 3 : 2;
#else
    static constexpr uint32_t slots = 1;
#endif
    bits128 memory[slots][Rows][accesses];

    // The block of a lane of the part of row `row` that begins with `begin`.
    TALLOW_INLINE const Block& block(uint32_t slot, uint32_t row, const Block* begin) const {
        const uint8_t* const first = reinterpret_cast<const uint8_t*>(memory[slot][row]) + skew_of(begin);
        return reinterpret_cast<const Block*>(first)[lane_index() / lanes_of_block<Block>];
    }

    // How many bytes of its first access are in front of a part.
    static TALLOW_INLINE uint32_t skew_of(const void* begin) {
        return is_aligned ? 0 : static_cast<uint32_t>(reinterpret_cast<uint64_t>(begin)) % access_bytes;
    }
};

// What a lane copies of the parts of rows, which follow each other: accesses of all rows in turn.
template <typename Block, uint32_t Rows> struct Copies {
    using Wave = Parts<Block, Rows>;
    static constexpr uint32_t rounds = (Rows * Wave::accesses + wave_size - 1) / wave_size;
    static_assert(Rows <= 2, "the second row is the other one");

    Wave& parts;
    SharedPlace target;
    // Where the next part would have the lane's bytes if it began with an access.
    const uint8_t* sources[rounds];
    // The lowest bits of the last address at which an access may begin. What a row's last access has of the next row
    // does no harm; behind all rows nothing is read.
    uint32_t limits[rounds];
#if defined(TALLOW_ASYNC_COPIES)
    static constexpr int least_left = 0;
#else
    static constexpr int least_left = 1 - static_cast<int>(access_bytes);
#endif

    TALLOW_INLINE Copies(Wave& wave, const Block* const (&begins)[Rows], uint32_t length, const Block* end)
        : parts(wave), target(place_of_shared(&wave.memory[0][0][0]) + lane_index() * access_bytes) {
#pragma unroll
        for (uint32_t i = 0; i < rounds; ++i) {
            const uint32_t access = i * wave_size + lane_index();
            const Block* const begin = row_of(access) == 0 ? begins[0] : begins[Rows - 1];
            const Block* const row_end = begin + length;
            sources[i] = reinterpret_cast<const uint8_t*>(begin) + place_of(access);
            limits[i] =
                static_cast<uint32_t>(reinterpret_cast<uint64_t>(row_end)) - (row_end == end ? access_bytes : 1);
        }
    }

    static TALLOW_INLINE uint32_t row_of(uint32_t access) {
        return Rows == 1 || access < Wave::accesses ? 0 : Rows - 1;
    }
    static TALLOW_INLINE uint32_t place_of(uint32_t access) {
        return (access - row_of(access) * Wave::accesses) * access_bytes;
    }

    // Copies the next part; behind the last one there is nothing to copy.
    TALLOW_INLINE void next(uint32_t slot) {
#pragma unroll
        for (uint32_t i = 0; i < rounds; ++i) {
            const uint32_t access = i * wave_size + lane_index();
            const uint32_t skew = Wave::skew_of(sources[i]);
            const uint8_t* const source = sources[i] - skew;
            const int left = static_cast<int>(limits[i] - static_cast<uint32_t>(reinterpret_cast<uint64_t>(source)));
            if (access < Rows * Wave::accesses && place_of(access) < skew + Wave::bytes && left >= least_left)
                bring(target + (slot * Rows * Wave::accesses + i * wave_size) * access_bytes, source, left);
            sources[i] += Wave::bytes;
        }
#if defined(TALLOW_ASYNC_COPIES)
        commit_copies();
#endif
    }

#if defined(TALLOW_ASYNC_COPIES)
    // Copies what the last access of all rows has, where that is not whole, of a part that begins with `begin`.
    TALLOW_INLINE void finish(uint32_t slot, uint32_t row, const Block* begin, const Block* end) {
        const uint8_t* const last = reinterpret_cast<const uint8_t*>(end) - skew_of_access(end);
        const uint8_t* const first = reinterpret_cast<const uint8_t*>(begin) - skew_of_access(begin);
        const uint32_t place = lane_index() * 2;
        if (place < skew_of_access(end))
            store_registers(reinterpret_cast<uint8_t*>(parts.memory[slot][row]) + (last - first) + place,
                            load_registers<2>(last + place));
    }
    static TALLOW_INLINE uint32_t skew_of_access(const Block* pointer) {
        return static_cast<uint32_t>(reinterpret_cast<uint64_t>(pointer)) % access_bytes;
    }
#endif
};

// x as spread_x leaves it. `add` adds the products of a lane's weights, which begin at `i` of their block and are those
// of part `part` of a row.
template <typename Block, uint32_t Rows, uint32_t Held> struct ExactRows {
    static constexpr bool is_rounded = false;

    const float* x;
    uint32_t stride;
    uint32_t count;

    template <typename Arguments>
    TALLOW_INLINE explicit ExactRows(const Arguments& arguments)
        : x(pointer_to<const float>(arguments.x)), stride(arranged_bytes<4>(arguments.hidden) / 4),
          count(arguments.x_rows) {
    }

    TALLOW_INLINE void add(const Block* const (&blocks)[Rows], uint32_t part, uint32_t i,
                           float (&sums)[Rows][Held]) const {
        constexpr uint32_t quads_of_run = run_length<Block> / 4;
        // Many rows of x need the registers.
        constexpr uint32_t unrolled = Held == 1 ? lane_weights : 1;
        constexpr uint32_t unrolled_runs = Held == 1 ? runs<Block> : 2;
        const uint32_t first = (part * (lane_weights / 4) * wave_size + lane_index()) * 4;
        constexpr uint32_t at_once = Held == 1 ? quads_of_run : 1;
        typename Block::template Loaded<at_once> loaded[Rows];
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r)
            loaded[r] = blocks[r]->template load<at_once>(i);
#pragma unroll unrolled_runs
        for (uint32_t run = 0; run < runs<Block>; ++run) {
            const uint32_t place = i + run * apart<Block>;
            float products[Rows][Held] = {};
            float totals[Held] = {};
#pragma unroll unrolled
            for (uint32_t quad = 0; quad < quads_of_run; ++quad) {
                float quants[Rows][4];
#pragma unroll
                for (uint32_t r = 0; r < Rows; ++r) {
                    if (at_once == 1)
                        loaded[r] = blocks[r]->template load<at_once>(i + 4 * quad);
                    const uint32_t quads = blocks[r]->quads(loaded[r], quad % at_once, place + 4 * quad);
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k)
                        quants[r][k] = quant_of<Block::bias>(quads, k);
                }
#pragma unroll
                for (uint32_t h = 0; h < Held; ++h) {
                    const uint32_t held = Held == 1 || h < count ? h : 0;
                    float values[4];
                    load_floats(x + (held * stride + first) + (run * quads_of_run + quad) * (4 * wave_size), values);
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) {
#pragma unroll
                        for (uint32_t r = 0; r < Rows; ++r)
                            products[r][h] = multiply_add(quants[r][k], values[k], products[r][h]);
                        totals[h] += values[k];
                    }
                }
            }
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                const float scale = blocks[r]->scale(place / Block::group);
                float offset = 0.0f;
                if constexpr (Block::has_offset)
                    offset = blocks[r]->offset(place / Block::group);
#pragma unroll
                for (uint32_t h = 0; h < Held; ++h) {
                    sums[r][h] = multiply_add(scale, products[r][h], sums[r][h]);
                    if constexpr (Block::has_offset)
                        sums[r][h] = multiply_add(offset, totals[h], sums[r][h]);
                }
            }
        }
    }
};

// Arranges rows of x in f32 for the lanes that multiply them.
template <typename Block, typename Arguments> TALLOW_INLINE void spread_x(const Arguments& arguments) {
    await_previous_kernel();
    const uint32_t fours = arguments.hidden / 4;
    const uint32_t count = fours * arguments.x_rows;
    for (uint32_t four = block_index() * block_size + thread_index(); four < count;
         four += grid_blocks() * block_size) {
        const uint32_t row = four / fours;
        const uint32_t element = four % fours * 4;
        const float* const source = pointer_to<const float>(arguments.x) + row * arguments.x_stride + element;
        uint8_t* const target = pointer_to<uint8_t>(arguments.result) +
                                uint64_t{row} * arranged_bytes<4>(arguments.hidden) +
                                arranged_place<4>(place_of<Block>(element));
        store_registers(target, load_registers<access_bytes>(source));
    }
    // Not before: what products fetch of their weights would hold up what is read of x.
    let_next_kernel_begin();
}

// x as round_x leaves it: the quants of all rows for the lanes, then for each 32 elements their scale and their sum.
template <typename Block, uint32_t Rows, uint32_t Held> struct RoundedRows {
    static constexpr bool is_rounded = true;

    const uint8_t* quants;
    const uint64_t* scales;
    uint32_t stride;
    uint32_t blocks_of_row;
    uint32_t count;

    template <typename Arguments>
    TALLOW_INLINE explicit RoundedRows(const Arguments& arguments)
        : quants(pointer_to<const uint8_t>(arguments.x)), stride(arranged_bytes<1>(arguments.hidden)),
          blocks_of_row(arguments.hidden / lane_weights), count(arguments.x_rows) {
        scales = pointer_to<const uint64_t>(arguments.x + uint64_t{stride} * count);
    }

    // Where the quants of a row are from `first` on. AMD hardware has scalar registers for the offsets of all rows, but
    // not for their addresses; NVIDIA's compiler spills registers for the offsets.
    TALLOW_INLINE const uint8_t* row_of(uint32_t row, uint32_t first) const {
#if defined(TALLOW_AMD)
        return quants + (row * stride + first);
#else
        return quants + row * stride + first;
#endif
    }

    TALLOW_INLINE void add(const Block* const (&blocks)[Rows], uint32_t part, uint32_t i,
                           float (&sums)[Rows][Held]) const {
        constexpr uint32_t length = run_length<Block>;
        constexpr uint32_t bytes = length < access_bytes ? length : access_bytes;
        constexpr uint32_t unrolled = Held == 1 ? runs<Block> : 1;
        const uint32_t first = (part * (lane_weights / access_bytes) * wave_size + lane_index()) * access_bytes;
        const uint32_t begin =
            (part * wave_size + lane_index() / lanes_of_block<Block> * lanes_of_block<Block>)*lane_weights + i;
        // Quants of 8 bits are signed as they stand.
        constexpr bool is_signed = Block::bias == -128;
        constexpr int bias = is_signed ? 0 : Block::bias;
        // A lane whose weights share their scale meets one block of x, of which the sum is known: what the weights have
        // in common is multiplied with that.
        constexpr bool has_sums = Block::elements == lane_weights || runs<Block> == 1;
        int totals[Rows][Held] = {};
        typename Block::template Loaded<length / 4> loaded[Rows];
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r)
            loaded[r] = blocks[r]->template load<length / 4>(i);
#pragma unroll unrolled
        for (uint32_t run = 0; run < runs<Block>; ++run) {
            const uint32_t place = run * apart<Block>;
            const uint32_t group = (i + place) / Block::group;
            uint32_t quads[Rows][length / 4];
            float scale[Rows];
            float offset[Rows] = {};
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
#pragma unroll
                for (uint32_t quad = 0; quad < length / 4; ++quad)
                    quads[r][quad] =
                        blocks[r]->quads(loaded[r], quad, i + place + 4 * quad) ^ (is_signed ? 0x80808080u : 0u);
                scale[r] = blocks[r]->scale(group);
                if constexpr (Block::has_offset)
                    offset[r] = blocks[r]->offset(group);
            }
#pragma unroll
            for (uint32_t h = 0; h < Held; ++h) {
                const uint32_t held = Held == 1 || h < count ? h : 0;
                const uint8_t* const row = row_of(held, first);
                int total = 0;
                Registers<bytes> x;
#pragma unroll
                for (uint32_t quad = 0; quad < length / 4; ++quad) {
                    const uint32_t number = run * length + quad * 4;
                    if (quad % (bytes / 4) == 0)
                        x = load_registers<bytes>(row + number / access_bytes * (access_bytes * wave_size) +
                                                  number % access_bytes);
                    const uint32_t four = x.values[quad % (bytes / 4)];
                    if constexpr (!has_sums && (bias != 0 || Block::has_offset))
                        total = dot_of_bytes(0x01010101u, four, total);
#pragma unroll
                    for (uint32_t r = 0; r < Rows; ++r)
                        totals[r][h] = dot_of_bytes(quads[r][quad], four, totals[r][h]);
                }
                if (has_sums && run + 1 < runs<Block>)
                    continue;
                const uint64_t pair = scales[held * blocks_of_row + (begin + run * apart<Block>) / lane_weights];
                const float step = bit_cast<float>(static_cast<uint32_t>(pair));
                const float sum =
                    has_sums ? bit_cast<float>(static_cast<uint32_t>(pair >> 32)) : step * static_cast<float>(total);
#pragma unroll
                for (uint32_t r = 0; r < Rows; ++r) {
                    float product;
                    if constexpr (has_sums && bias != 0)
                        product = multiply_add(static_cast<float>(totals[r][h]), step, static_cast<float>(bias) * sum);
                    else
                        product = static_cast<float>(totals[r][h] + bias * total) * step;
                    sums[r][h] = multiply_add(scale[r], product, sums[r][h]);
                    if constexpr (Block::has_offset)
                        sums[r][h] = multiply_add(offset[r], sum, sums[r][h]);
                    totals[r][h] = 0;
                }
            }
        }
    }
};

// Adds up sums of the lanes of a wave, and writes those of rows from `row` on.
template <uint32_t Rows, uint32_t Held, typename Arguments>
TALLOW_INLINE void write_sums(const Arguments& arguments, uint32_t row, const float (&sums)[Rows][Held]) {
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
#pragma unroll
        for (uint32_t h = 0; h < Held; ++h) {
            float sum = sums[r][h];
#pragma unroll
            for (uint32_t mask = wave_size / 2; mask > 0; mask /= 2)
                sum += shuffle_xor(sum, mask);
            if (lane_index() == 0 && row + r < arguments.rows && h < arguments.x_rows)
                pointer_to<float>(arguments.result)[static_cast<uint64_t>(h) * arguments.rows + row + r] = sum;
        }
    }
}

// X is ExactRows or RoundedRows.
template <typename Block, template <typename, uint32_t, uint32_t> typename X, uint32_t Held, typename Arguments>
TALLOW_INLINE void block_product(const Arguments& arguments) {
    let_next_kernel_begin();
    // Rows of weights share what is read of x, which is most where it is not rounded.
    constexpr uint32_t count = X<Block, 1, Held>::is_rounded && Held == 1 ? 1 : product_rows;
    using Wave = Parts<Block, count>;
    __shared__ Wave shared[waves_per_block];
    Wave& parts = shared[wave_index()];
    const X<Block, count, Held> x(arguments);
    const uint32_t length = arguments.hidden / Block::elements;
    const uint32_t groups = (arguments.rows + count - 1) / count;
    const Block* const end = pointer_to<const Block>(arguments.blocks) + static_cast<uint64_t>(arguments.rows) * length;
    for (uint32_t group = block_index() * waves_per_block + wave_index(); group < groups;
         group += grid_blocks() * waves_per_block) {
        const Block* rows[count];
#pragma unroll
        for (uint32_t r = 0; r < count; ++r) {
            // Behind the last row it is the last one again.
            const uint32_t row = group * count + r;
            rows[r] = pointer_to<const Block>(arguments.blocks) +
                      static_cast<uint64_t>(row < arguments.rows ? row : arguments.rows - 1) * length;
        }
        Copies<Block, count> copies(parts, rows, length, end);
        float sums[count][Held] = {};
        // Unrolled, it takes registers that compilers then spill.
#pragma unroll 1
        for (uint32_t ahead = 0; ahead + 1 < Wave::slots; ++ahead)
            copies.next(ahead);
        await_previous_kernel();
        uint32_t slot = 0;
#pragma unroll 1
        for (uint32_t part = 0; part * Wave::blocks < length; ++part) {
            copies.next(slot == 0 ? Wave::slots - 1 : slot - 1);
            const uint32_t first = part * Wave::blocks;
#if defined(TALLOW_ASYNC_COPIES)
            if (first + Wave::blocks >= length) {
#pragma unroll
                for (uint32_t r = 0; r < count; ++r) {
                    if (rows[r] + length == end)
                        copies.finish(slot, r, rows[r] + first, end);
                }
            }
            await_copies<Wave::slots - 1>();
#endif
            synchronize_wave();
            if (first + lane_index() / lanes_of_block<Block> < length) {
                const Block* blocks[count];
#pragma unroll
                for (uint32_t r = 0; r < count; ++r)
                    blocks[r] = &parts.block(slot, r, rows[r] + first);
                x.add(blocks, part, first_weight<Block>(lane_index()), sums);
            }
            synchronize_wave();
            slot = slot + 1 == Wave::slots ? 0 : slot + 1;
        }
        write_sums(arguments, group * count, sums);
    }
}

// Weights that are floats have no blocks: a lane takes 8 at a time, a wave a row.
template <typename Block, uint32_t Held, typename Arguments>
TALLOW_INLINE void float_product(const Arguments& arguments) {
    constexpr uint32_t run = 8;
    let_next_kernel_begin();
    await_previous_kernel();
    const float* const x = pointer_to<const float>(arguments.x);
    const uint32_t waves = grid_blocks() * waves_per_block;
    for (uint32_t row = block_index() * waves_per_block + wave_index(); row < arguments.rows; row += waves) {
        const Block* const weights =
            pointer_to<const Block>(arguments.blocks) + static_cast<uint64_t>(row) * arguments.hidden;
        float sums[1][Held] = {};
        for (uint32_t i = lane_index() * run; i < arguments.hidden; i += wave_size * run) {
            float factors[run];
            load_floats(&weights[i].value, factors);
#pragma unroll
            for (uint32_t h = 0; h < Held; ++h) {
                const uint32_t held = Held == 1 || h < arguments.x_rows ? h : 0;
                float values[run];
                load_floats(x + held * arguments.x_stride + i, values);
#pragma unroll
                for (uint32_t k = 0; k < run; ++k)
                    sums[0][h] = multiply_add(factors[k], values[k], sums[0][h]);
            }
        }
        write_sums(arguments, row, sums);
    }
}

// Rounds rows of x to signed bytes, 32 of which share a scale, as Q8_1 has them; 8 lanes take 32 elements. Behind the
// quants of all rows, for the lanes that multiply them, stand a scale and a sum for each 32: of x where a block of
// weights has as many, else of what it was rounded to, as Candle and llama.cpp have it.
template <typename Block, typename Arguments> TALLOW_INLINE void round_x(const Arguments& arguments) {
    let_next_kernel_begin();
    await_previous_kernel();
    constexpr uint32_t run = 4;
    const uint32_t runs = arguments.hidden / run;
    const uint32_t count = runs * arguments.x_rows;
    const uint32_t stride = arranged_bytes<1>(arguments.hidden);
    uint64_t* const scales = pointer_to<uint64_t>(arguments.result + uint64_t{stride} * arguments.x_rows);
    // All lanes of a wave go round as often.
    for (uint32_t begin = block_index() * block_size; begin < count; begin += grid_blocks() * block_size) {
        const uint32_t number = begin + thread_index();
        const uint32_t row = number / runs;
        const uint32_t element = number % runs * run;
        float values[run] = {};
        if (number < count)
            load_floats(pointer_to<const float>(arguments.x) + row * arguments.x_stride + element, values);
        float largest = 0.0f;
#pragma unroll
        for (uint32_t k = 0; k < run; ++k)
            largest = maximum(largest, fabs(values[k]));
        float sum = (values[0] + values[1]) + (values[2] + values[3]);
#pragma unroll
        for (uint32_t mask = 1; mask < lane_weights / run; mask *= 2)
            largest = maximum(largest, shuffle_xor(largest, mask));
        const float scale = largest / 127.0f;
        const float kept = to_float(round_from<f16>(scale));
        uint32_t quads = 0;
#pragma unroll
        for (uint32_t k = 0; k < run; ++k) {
            // Halves go away from zero. No number, and what a scale of zero makes, is 0.
            const float size = fabs(values[k]) / scale;
            const float whole = floor(size);
            const int rounded = size <= 128.0f ? static_cast<int>(whole) + (size - whole >= 0.5f) : 0;
            quads |= (static_cast<uint32_t>(values[k] < 0.0f ? -rounded : rounded) & 255u) << 8 * k;
        }
        constexpr bool is_of_quants = Block::elements != lane_weights;
        if constexpr (is_of_quants)
            sum = static_cast<float>(dot_of_bytes(0x01010101u, quads, 0));
#pragma unroll
        for (uint32_t mask = 1; mask < lane_weights / run; mask *= 2)
            sum += shuffle_xor(sum, mask);
        if constexpr (is_of_quants)
            sum *= kept;
        if (number < count) {
            store_registers<run>(pointer_to<uint8_t>(arguments.result) + row * stride +
                                     arranged_place<1>(place_of<Block>(element)),
                                 {{quads}});
            if (number % (lane_weights / run) == 0)
                scales[number / (lane_weights / run)] = join_words(bit_cast<uint32_t>(kept), bit_cast<uint32_t>(sum));
        }
    }
}

} // namespace tallow
