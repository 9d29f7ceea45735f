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

// The 32 weights of a lane: runs whose quants share bytes.
constexpr uint32_t lane_weights = 32;
template <typename Block> constexpr uint32_t run_length = lane_weights / Block::runs;

// Where those of a lane begin in their block.
template <typename Block> TALLOW_INLINE uint32_t first_weight(uint32_t lane) {
    constexpr uint32_t side_by_side = Block::apart / run_length<Block>;
    const uint32_t place = lane % (Block::elements / lane_weights);
    return Block::runs * Block::apart * (place / side_by_side) + run_length<Block> * (place % side_by_side);
}

// 16 bytes to shared memory, or the first so many of them.
TALLOW_INLINE void bring(bits128* target, const uint8_t* source, uint32_t bytes) {
#if defined(TALLOW_ASYNC_COPIES)
    copy_async(target, source, bytes);
#else
    if (bytes == access_bytes) {
        store_registers(target, load_registers<access_bytes>(source));
    } else {
        for (uint32_t i = 0; i < bytes; i += 2)
            store_registers(reinterpret_cast<uint8_t*>(target) + i, load_registers<2>(source + i));
    }
#endif
}

// The parts of a wave's rows in shared memory. Where copies do not wait, those of the next part are under way.
template <typename Block, uint32_t Rows> struct Parts {
    static constexpr uint32_t blocks = wave_size * lane_weights / Block::elements;
    static constexpr uint32_t bytes = blocks * sizeof(Block);
    // Blocks begin at multiples of 2, accesses at multiples of 16.
    static constexpr uint32_t accesses = (bytes + 2 * access_bytes - 3) / access_bytes;
#if defined(TALLOW_ASYNC_COPIES)
    static constexpr uint32_t slots = 2;
#else
    static constexpr uint32_t slots = 1;
#endif
    bits128 memory[slots][Rows][accesses];

    // Brings the part that begins with block `first` of each row of `length` blocks.
    TALLOW_INLINE void fetch(uint32_t slot, const Block* const (&rows)[Rows], uint32_t first, uint32_t length) {
        const uint32_t left = length - first;
        const uint32_t wanted = (left < blocks ? left : blocks) * sizeof(Block);
#pragma unroll
        for (uint32_t i = 0; i < (Rows * accesses + wave_size - 1) / wave_size; ++i) {
            const uint32_t access = i * wave_size + lane_index();
            const uint32_t row = access / accesses;
            const uint32_t place = access % accesses;
            if (row >= Rows)
                continue;
            const Block* const begin = select(rows, row) + first;
            const uint32_t skew = skew_of(begin);
            if (place * access_bytes < skew + wanted) {
                const uint32_t rest = skew + wanted - place * access_bytes;
                const uint8_t* const source = reinterpret_cast<const uint8_t*>(begin) - skew + place * access_bytes;
                bring(&memory[slot][row][place], source, rest < access_bytes ? rest : access_bytes);
            }
        }
#if defined(TALLOW_ASYNC_COPIES)
        commit_copies();
#endif
    }

    // The block of a lane of a part that was brought.
    TALLOW_INLINE const Block& block(uint32_t slot, uint32_t row, const Block* begin) const {
        const uint8_t* const first = reinterpret_cast<const uint8_t*>(memory[slot][row]) + skew_of(begin);
        return reinterpret_cast<const Block*>(first)[lane_index() / (Block::elements / lane_weights)];
    }

  private:
    static TALLOW_INLINE uint32_t skew_of(const Block* begin) {
        return static_cast<uint32_t>(reinterpret_cast<uint64_t>(begin) % access_bytes);
    }
    static TALLOW_INLINE const Block* select(const Block* const (&rows)[Rows], uint32_t row) {
        const Block* found = rows[0];
#pragma unroll
        for (uint32_t r = 1; r < Rows; ++r)
            found = row == r ? rows[r] : found;
        return found;
    }
};

// How many fours of elements a row of x has as spread_x leaves it: 8 for each lane of each part.
TALLOW_INLINE uint64_t spread_fours(uint32_t hidden) {
    return (hidden / lane_weights + wave_size - 1) / wave_size * (wave_size * (lane_weights / 4));
}

// x as spread_x leaves it. `add` adds the products of a lane's weights, which begin at `i` of their block and are those
// of part `part` of a row.
template <typename Block, uint32_t Rows, uint32_t Held> struct ExactRows {
    const float* x;
    uint64_t stride;
    uint32_t count;

    template <typename Arguments>
    TALLOW_INLINE explicit ExactRows(const Arguments& arguments)
        : x(pointer_to<const float>(arguments.x)), stride(4 * spread_fours(arguments.hidden)), count(arguments.x_rows) {
    }

    TALLOW_INLINE void add(const Block* const (&blocks)[Rows], uint32_t part, uint32_t i,
                           float (&sums)[Rows][Held]) const {
        constexpr uint32_t quads_of_run = run_length<Block> / 4;
        const float* const fours = x + (part * (lane_weights / 4) * wave_size + lane_index()) * uint64_t{4};
#pragma unroll
        for (uint32_t run = 0; run < Block::runs; ++run) {
            const uint32_t place = i + run * Block::apart;
            float products[Rows][Held] = {};
            float totals[Held] = {};
#pragma unroll(Held == 1 ? quads_of_run : 1)
            for (uint32_t quad = 0; quad < quads_of_run; ++quad) {
                float quants[Rows][4];
#pragma unroll
                for (uint32_t r = 0; r < Rows; ++r) {
                    const uint32_t quads = blocks[r]->quads(place + 4 * quad);
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k)
                        quants[r][k] = quant_of<Block::bias>(quads, k);
                }
#pragma unroll
                for (uint32_t h = 0; h < Held; ++h) {
                    const uint32_t held = Held == 1 || h < count ? h : 0;
                    float values[4];
                    load_floats(fours + held * stride + (run * quads_of_run + quad) * (4 * wave_size), values);
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

// Rows of x, so that lanes that read theirs of four elements after four read side by side.
template <typename Block, typename Arguments> TALLOW_INLINE void spread_x(const Arguments& arguments) {
    constexpr uint32_t quads_of_run = run_length<Block> / 4;
    constexpr uint32_t of_lane = lane_weights / 4;
    const uint64_t fours = spread_fours(arguments.hidden);
    const uint64_t count = fours * arguments.x_rows;
    const uint64_t step = static_cast<uint64_t>(grid_blocks()) * block_size;
    uint64_t four = static_cast<uint64_t>(block_index()) * block_size + thread_index();
    for (; four < count; four += step) {
        const uint32_t place = static_cast<uint32_t>(four % fours);
        const uint32_t lane = place / (of_lane * wave_size) * wave_size + place % wave_size;
        const uint32_t quad = place / wave_size % of_lane;
        const uint32_t block = lane / (Block::elements / lane_weights);
        const uint32_t i = first_weight<Block>(lane) + quad / quads_of_run * Block::apart + quad % quads_of_run * 4;
        Pack<float, 4> pack{};
        if (block * Block::elements < arguments.hidden)
            pack = load_whole<4>(pointer_to<const float>(arguments.x) + four / fours * arguments.x_stride +
                                 block * Block::elements + i);
        store_whole(pointer_to<float>(arguments.result) + four * 4, pack);
    }
}

// x as round_x leaves it: the quants of all rows, then for each 32 their scale and the sum of what was rounded.
template <typename Block, uint32_t Rows, uint32_t Held> struct RoundedRows {
    const int8_t* quants;
    const uint64_t* scales;
    uint32_t hidden;
    uint32_t count;

    template <typename Arguments>
    TALLOW_INLINE explicit RoundedRows(const Arguments& arguments)
        : quants(pointer_to<const int8_t>(arguments.x)),
          scales(pointer_to<const uint64_t>(arguments.x + uint64_t{arguments.x_rows} * arguments.hidden)),
          hidden(arguments.hidden), count(arguments.x_rows) {
    }

    TALLOW_INLINE void add(const Block* const (&blocks)[Rows], uint32_t part, uint32_t i,
                           float (&sums)[Rows][Held]) const {
        const uint32_t first =
            part * wave_size * lane_weights + lane_index() / (Block::elements / lane_weights) * Block::elements + i;
        constexpr uint32_t length = run_length<Block>;
        // Quants of 8 bits are signed as they stand.
        constexpr bool is_signed = Block::bias == -128;
        constexpr int bias = is_signed ? 0 : Block::bias;
        // Blocks of 32 weights meet one of x each, of which the sum is known: what all weights have in common is
        // multiplied with that.
        constexpr bool has_sums = Block::elements == lane_weights;
        int totals[Rows][Held] = {};
#pragma unroll(Held == 1 ? Block::runs : 1)
        for (uint32_t run = 0; run < Block::runs; ++run) {
            const uint32_t place = run * Block::apart;
            const uint32_t group = (i + place) / Block::group;
            uint32_t quads[Rows][length / 4];
            float scale[Rows];
            float offset[Rows] = {};
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
#pragma unroll
                for (uint32_t quad = 0; quad < length / 4; ++quad)
                    quads[r][quad] = blocks[r]->quads(i + place + 4 * quad) ^ (is_signed ? 0x80808080u : 0u);
                scale[r] = blocks[r]->scale(group);
                if constexpr (Block::has_offset)
                    offset[r] = blocks[r]->offset(group);
            }
#pragma unroll
            for (uint32_t h = 0; h < Held; ++h) {
                const uint64_t held = Held == 1 || h < count ? h : 0;
                const uint64_t begin = held * hidden + first + place;
                const auto x = load_registers<(length < 16 ? length : 16)>(quants + begin);
                const auto more = load_registers<(length < 16 ? length : 16)>(quants + begin + (length - 1) / 16 * 16);
                int total = 0;
#pragma unroll
                for (uint32_t quad = 0; quad < length / 4; ++quad) {
                    const uint32_t four = quad < 4 ? x.values[quad] : more.values[quad % 4];
                    if constexpr (!has_sums && (bias != 0 || Block::has_offset))
                        total = dot_of_bytes(0x01010101u, four, total);
#pragma unroll
                    for (uint32_t r = 0; r < Rows; ++r)
                        totals[r][h] = dot_of_bytes(quads[r][quad], four, totals[r][h]);
                }
                if (has_sums && run + 1 < Block::runs)
                    continue;
                const uint64_t pair = scales[begin / lane_weights];
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
    constexpr uint32_t count = product_rows;
    using Wave = Parts<Block, count>;
    __shared__ Wave shared[waves_per_block];
    Wave& parts = shared[wave_index()];
    const X<Block, count, Held> x(arguments);
    const uint32_t length = arguments.hidden / Block::elements;
    const uint32_t groups = (arguments.rows + count - 1) / count;
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
        float sums[count][Held] = {};
        if constexpr (Wave::slots > 1)
            parts.fetch(0, rows, 0, length);
        uint32_t slot = 0;
#pragma unroll 1
        for (uint32_t first = 0; first < length; first += Wave::blocks) {
#if defined(TALLOW_ASYNC_COPIES)
            if (first + Wave::blocks < length) {
                parts.fetch(slot ^ 1, rows, first + Wave::blocks, length);
                await_copies<1>();
            } else {
                await_copies<0>();
            }
#else
            parts.fetch(slot, rows, first, length);
#endif
            synchronize_wave();
            const uint32_t block = first + lane_index() / (Block::elements / lane_weights);
            if (block < length) {
                const Block* blocks[count];
#pragma unroll
                for (uint32_t r = 0; r < count; ++r)
                    blocks[r] = &parts.block(slot, r, rows[r] + first);
                const uint32_t i = first_weight<Block>(lane_index());
                x.add(blocks, first / Wave::blocks, i, sums);
            }
            synchronize_wave();
            if constexpr (Wave::slots > 1)
                slot ^= 1;
        }
        write_sums(arguments, group * count, sums);
    }
}

// Weights that are floats have no blocks: a lane takes 8 at a time, a wave a row.
template <typename Block, uint32_t Held, typename Arguments>
TALLOW_INLINE void float_product(const Arguments& arguments) {
    constexpr uint32_t run = 8;
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
// quants of all rows stand a scale and a sum for each 32.
template <typename Arguments> TALLOW_INLINE void round_x(const Arguments& arguments) {
    constexpr uint32_t run = 4;
    const uint32_t units = arguments.hidden / run;
    const uint64_t count = static_cast<uint64_t>(arguments.x_rows) * units;
    const uint64_t step = static_cast<uint64_t>(grid_blocks()) * block_size;
    uint32_t* const quants = pointer_to<uint32_t>(arguments.result);
    uint64_t* const scales = pointer_to<uint64_t>(arguments.result + count * run);
    // All lanes of a wave go round as often.
    const uint64_t first = static_cast<uint64_t>(block_index()) * block_size + thread_index();
    for (uint64_t unit = first; unit - thread_index() < count; unit += step) {
        float values[run] = {};
        if (unit < count)
            load_floats(pointer_to<const float>(arguments.x) + unit / units * arguments.x_stride + unit % units * run,
                        values);
        float largest = 0.0f;
#pragma unroll
        for (uint32_t k = 0; k < run; ++k)
            largest = maximum(largest, fabs(values[k]));
        float sum = (values[0] + values[1]) + (values[2] + values[3]);
#pragma unroll
        for (uint32_t mask = 1; mask < lane_weights / run; mask *= 2) {
            largest = maximum(largest, shuffle_xor(largest, mask));
            sum += shuffle_xor(sum, mask);
        }
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
        if (unit < count) {
            quants[unit] = quads;
            if (unit % (lane_weights / run) == 0)
                scales[unit / (lane_weights / run)] = join_words(bit_cast<uint32_t>(kept), bit_cast<uint32_t>(sum));
        }
    }
}

} // namespace tallow
