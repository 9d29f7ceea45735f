// Block-quantized weights on the host: decoding, and products with x that is rounded to integers as Q8_1 has them.
//
// 32 numbers of x share a step. Four products of bytes are a lane of a vector, whose sum is exact; it becomes a float
// where the scale of the weights changes, at the latest after 32. A few activation rows are multiplied by blocks as
// they are in memory. For more of them the quants of some rows of weights are unpacked to a panel, in which vectors
// have bytes of several of these rows; each is then multiplied by all activation rows.
#pragma once

#include "block_vectors.hpp"

namespace tallow {

// Weights that are decoded in a part.
constexpr uint64_t decoded_part = 1 << 13;

template <typename Block, typename Arguments> TALLOW_INLINE void decode_weights(const Arguments& arguments) {
    do_parts(arguments, (arguments.count + decoded_part - 1) / decoded_part, [&arguments](uint64_t part) {
        const uint64_t first = part * decoded_part;
        const uint64_t count = arguments.count - first < decoded_part ? arguments.count - first : decoded_part;
        decode_blocks(pointer_to<const Block>(arguments.blocks), first, count,
                      pointer_to<float>(arguments.result) + first);
    });
}

// Up to this many rows are multiplied by blocks as they are in memory. This many of them share what is unpacked.
constexpr uint32_t max_few_rows = 8;
constexpr uint32_t unpacked_rows = 4;
// Bytes of weights that are multiplied in a part, roughly.
constexpr uint64_t part_bytes = 1 << 15;

// Calls function(output, blocks) for each row of weights, in parts.
template <typename Block, typename Arguments, typename Function>
TALLOW_INLINE void do_rows(const Arguments& arguments, const Function& function) {
    const uint64_t count = arguments.length / Block::elements;
    const uint64_t rows = part_bytes / (count * sizeof(Block)) + 1;
    do_parts(arguments, (arguments.outputs + rows - 1) / rows, [&](uint64_t part) {
        const uint64_t end = (part + 1) * rows < arguments.outputs ? (part + 1) * rows : arguments.outputs;
        for (uint64_t output = part * rows; output < end; ++output)
            function(output, pointer_to<const Block>(arguments.blocks) + output * count);
    });
}

// The products of a row of blocks with rows of floats, whose stride is `step`: each run is decoded in registers. Sums
// have the order of those with a matrix of floats.
template <typename Block, uint32_t Rows>
TALLOW_JOINING void multiply_floats(const Block* blocks, uint64_t count, const float* x, uint64_t step, float* result,
                                    uint64_t stride) {
    TALLOW_JOIN
    constexpr uint32_t chains = sizeof(Vector<float>) / sizeof(Floats);
    Floats sums[Rows][chains] = {};
    for (uint64_t i = 0; i < count; ++i) {
        fetch_ahead<sizeof(Block)>(blocks + i);
#pragma GCC unroll 8
        for (uint32_t run = 0; run < block_runs<Block>; ++run, x += run_length) {
            Floats weights[run_vectors];
            decode_run(blocks[i], run * run_length, weights);
#pragma GCC unroll 4
            for (uint32_t r = 0; r < Rows; ++r)
#pragma GCC unroll 4
                for (uint32_t k = 0; k < run_vectors; ++k)
                    sums[r][k % chains] += weights[k] * load_full_vector<Floats>(x + r * step + k * vector_quants);
        }
    }
    for (uint32_t r = 0; r < Rows; ++r)
        result[r * stride] = reduce_lanes<float, Adds, run_length>(sums[r][0] + sums[r][1], Adds{});
}

template <typename Block, typename Arguments> TALLOW_INLINE void block_product(const Arguments& arguments) {
    const uint64_t length = arguments.length;
    const uint64_t stride = arguments.outputs;
    do_rows<Block>(arguments, [&](uint64_t output, const Block* blocks) {
        const float* const x = pointer_to<const float>(arguments.x);
        float* const result = pointer_to<float>(arguments.result) + output;
        const uint64_t count = length / Block::elements;
        uint64_t r = 0;
        for (; r + unpacked_rows <= arguments.rows; r += unpacked_rows)
            multiply_floats<Block, unpacked_rows>(blocks, count, x + r * length, length, result + r * stride, stride);
        for (; r < arguments.rows; ++r)
            multiply_floats<Block, 1>(blocks, count, x + r * length, length, result + r * stride, stride);
    });
}

// Where runs have their quants in the same bytes, vectors have the scales of all parts of a block, and the quants of
// two runs if they fit. gcc would make such vectors number by number.
#if defined(__clang__)
template <typename Block>
constexpr bool is_joint = Block::run_stride == run_length && Block::runs > 1 && byte_width >= run_length;
#else
template <typename> constexpr bool is_joint = false;
#endif

// A row of x: integers, then what those of some runs stand for, the parts of which meet weights with one scale. Each of
// `sums` is that of the rounded numbers of a part. What the bias of quants adds is known before: each of `starts` is
// the bias times the sum of the integers of a part or, where lanes have the products of four, of four.
template <typename Block, typename Quant, uint32_t Starts, uint32_t Runs = 1> struct RowOfX {
    static constexpr uint32_t parts = Runs * run_groups<Block>;
    struct Facts {
        float steps[parts];
        float sums[parts];
        int32_t starts[Runs * Starts];
    };

    uint8_t* memory;
    uint64_t length;

    static TALLOW_INLINE uint64_t bytes(uint64_t length) {
        return length * sizeof(Quant) + length / (Runs * run_length) * sizeof(Facts);
    }
    TALLOW_INLINE Quant* quants() const {
        return reinterpret_cast<Quant*>(memory);
    }
    TALLOW_INLINE Facts* facts() const {
        return reinterpret_cast<Facts*>(memory + length * sizeof(Quant));
    }
};
template <typename Block>
using FewRowOfX = RowOfX<Block, int8_t, run_length / 4, is_joint<Block> ? block_runs<Block> : 1>;

// Rounds a row of x, half away from zero. What is infinite or no number makes all of such products no number.
template <typename Block, typename Quant, uint32_t Starts, uint32_t Runs>
__attribute__((noinline)) void round_row(const float* x, const RowOfX<Block, Quant, Starts, Runs>& row) {
    constexpr uint32_t group_vectors = run_vectors / run_groups<Block>;
    for (uint64_t run = 0; run < row.length / run_length; ++run) {
        Floats values[run_vectors];
        __builtin_memcpy(values, x + run * run_length, sizeof values);
        Floats sizes[run_vectors];
        Floats most = {};
        Floats poison = {};
        for (uint32_t k = 0; k < run_vectors; ++k) {
            sizes[k] = bit_cast<Floats>(bit_cast<Integers>(values[k]) & 0x7fffffff);
            most = most < sizes[k] ? sizes[k] : most;
            poison += values[k] * 0.0f;
        }
        const float scale = reduce_lanes<float, Takes<false>, run_length>(most, Takes<false>{}) / 127.0f +
                            reduce_lanes<float, Adds, run_length>(poison, Adds{});
        auto& facts = row.facts()[run / Runs];
        const float step = to_float(round_from<f16>(scale));
        for (uint32_t group = 0; group < run_groups<Block>; ++group) {
            Integers sums = {};
            for (uint32_t k = group * group_vectors; k < (group + 1) * group_vectors; ++k) {
                const Floats size = sizes[k] / scale;
                const Floats known = size <= 128.0f ? size : 0.0f;
                Integers quants = __builtin_convertvector(known, Integers);
                quants -= known - __builtin_convertvector(quants, Floats) >= 0.5f;
                quants = values[k] < 0.0f ? -quants : quants;
                const auto narrow = __builtin_convertvector(quants, Vector<Quant, vector_quants * sizeof(Quant)>);
                __builtin_memcpy(row.quants() + run * run_length + k * vector_quants, &narrow, sizeof narrow);
                sums += quants;
            }
            const int32_t sum = reduce_lanes<int32_t, Adds, run_length>(sums, Adds{});
            const uint32_t part = run % Runs * run_groups<Block> + group;
            facts.steps[part] = step;
            facts.sums[part] = static_cast<float>(sum) * step;
        }
        for (uint32_t i = 0; i < Starts; ++i) {
            int32_t sum = 0;
            for (uint32_t k = i * (run_length / Starts); k < (i + 1) * (run_length / Starts); ++k)
                sum += row.quants()[run * run_length + k];
            facts.starts[run % Runs * Starts + i] = sum * Block::bias;
        }
    }
}

// Whether quants are signed as they stand, and multiplied so.
template <typename Block, typename Bytes> constexpr bool is_plain = is_signed<Block> && !Bytes::is_biased;

// The products of unpacked quants with integers, by fours.
template <typename Block, typename Bytes, typename Quants>
TALLOW_INLINE auto dots_of(Quants unpacked, const int8_t* integers, const int32_t* starts) {
    const auto numbers = load_full_vector<Vector<int8_t, sizeof(Quants)>>(integers);
    if constexpr (is_plain<Block, Bytes>) {
        return Bytes::signed_dots(unpacked, numbers);
    } else {
        Vector<int32_t, sizeof(Quants)> dots = {};
        if constexpr (Block::bias != 0)
            dots = load_full_vector<decltype(dots)>(starts);
        return Bytes::dots(unpacked, numbers, dots);
    }
}

// The numbers of `Parts` parts from `first` on, each in as many lanes as the others.
template <uint32_t Parts, typename Numbers>
TALLOW_INLINE Wide<float> repeat_each(const Numbers& numbers, uint32_t first) {
    constexpr uint32_t lanes = byte_width / 4;
    Wide<float> result;
#pragma GCC unroll 16
    for (uint32_t lane = 0; lane < lanes; ++lane)
        result[lane] = numbers[first + lane * Parts / lanes];
    return result;
}

// The products of a row of such blocks with activation rows, by vectors of several runs.
template <typename Block, typename Bytes, uint32_t Rows>
TALLOW_JOINING void multiply_row_jointly(const Block* blocks, const FewRowOfX<Block>* x, float* result,
                                         uint64_t stride) {
    TALLOW_JOIN
    constexpr uint32_t groups = run_groups<Block>;
    constexpr uint32_t parts = FewRowOfX<Block>::parts;
    constexpr uint32_t together = byte_width / run_length;
    constexpr uint32_t chains = 2;
    using Parts = Vector<float, parts * sizeof(float)>;
    Wide<float> sums[Rows][chains] = {};
    Parts offset_sums[Rows] = {};
    const uint64_t count = x[0].length / Block::elements;
    for (uint64_t i = 0; i < count; ++i) {
        fetch_ahead<sizeof(Block)>(blocks + i);
        Parts scales;
        Parts offsets;
#pragma GCC unroll 16
        for (uint32_t part = 0; part < parts; ++part) {
            const uint32_t group = part * (run_length / groups) / Block::group;
            scales[part] = blocks[i].scale(group);
            if constexpr (Block::has_offset)
                offsets[part] = blocks[i].offset(group);
        }
        Parts factors[Rows];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < Rows; ++r) {
            const auto& own = x[r].facts()[i];
            factors[r] = scales * load_full_vector<Parts>(own.steps);
            // Compilers would split it into vectors of four numbers.
            if constexpr (sizeof(Parts) <= byte_width)
                keep_in_register(factors[r]);
            if constexpr (Block::has_offset)
                offset_sums[r] += offsets * load_full_vector<Parts>(own.sums);
        }
#pragma GCC unroll 8
        for (uint32_t run = 0; run < block_runs<Block>; run += together) {
            const auto unpacked = unpack<byte_width>(blocks[i], run * run_length);
#pragma GCC unroll 4
            for (uint32_t r = 0; r < Rows; ++r) {
                const int8_t* const integers = x[r].quants() + i * Block::elements + run * run_length;
                const auto dots =
                    dots_of<Block, Bytes>(unpacked, integers, x[r].facts()[i].starts + run * (run_length / 4));
                sums[r][run / together % chains] += __builtin_convertvector(dots, Wide<float>) *
                                                    repeat_each<together * groups>(factors[r], run * groups);
            }
        }
    }
    for (uint32_t r = 0; r < Rows; ++r) {
        result[r * stride] = reduce_lanes<float, Adds, byte_width>(sums[r][0] + sums[r][1], Adds{});
        if constexpr (Block::has_offset)
            result[r * stride] += reduce_lanes<float, Adds, sizeof(Parts)>(offset_sums[r], Adds{});
    }
}

// The products of a row of blocks with activation rows. Each is the same alone and among others.
template <typename Block, typename Bytes, uint32_t Rows>
TALLOW_JOINING void multiply_row(const Block* blocks, const FewRowOfX<Block>* x, float* result, uint64_t stride) {
    TALLOW_JOIN
    if constexpr (is_joint<Block>)
        return multiply_row_jointly<Block, Bytes, Rows>(blocks, x, result, stride);
    constexpr uint32_t groups = run_groups<Block>;
    // Sums form chains of their own.
    constexpr uint32_t chains = 2;
    Floats sums[Rows][chains] = {};
    float offset_sums[Rows][chains * groups] = {};
    const uint64_t count = x[0].length / Block::elements;
    const int8_t* quants[Rows];
    const typename FewRowOfX<Block>::Facts* facts[Rows];
    for (uint32_t r = 0; r < Rows; ++r) {
        quants[r] = x[r].quants();
        facts[r] = x[r].facts();
    }
    // Blocks of one run are taken by twos.
    constexpr uint32_t together = block_runs<Block> == 1 ? chains : 1;
    const auto add = [&](const Block& block, uint32_t index, uint64_t run,
                         uint32_t chain) __attribute__((always_inline)) {
        const uint32_t first = index * run_length;
        float scales[groups];
        for (uint32_t g = 0; g < groups; ++g)
            scales[g] = block.scale((first + g * (run_length / groups)) / Block::group);
        Floats scale = scales[0] - Floats{};
        if constexpr (groups == 2)
            scale = Floats{scales[0], scales[0], scales[0], scales[0], scales[1], scales[1], scales[1], scales[1]};
        // Once for all rows: compilers do not see that what is unpacked is the same.
        const auto unpacked = unpack_as<is_plain<Block, Bytes>>(block, first);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < Rows; ++r) {
            const auto& own = facts[r][run];
            const Integers dots = dots_of<Block, Bytes>(unpacked, quants[r] + run * run_length, own.starts);
            sums[r][chain] += __builtin_convertvector(dots, Floats) * (scale * own.steps[0]);
            if constexpr (Block::has_offset)
                for (uint32_t g = 0; g < groups; ++g) {
                    // Compilers make vectors of some of these numbers, and join only what was not moved between.
                    float& offset_sum = offset_sums[r][chain * groups + g];
                    offset_sum =
                        fma(block.offset((first + g * (run_length / groups)) / Block::group), own.sums[g], offset_sum);
                }
        }
    };
    uint64_t i = 0;
    for (; i + together <= count; i += together) {
        fetch_ahead<together * sizeof(Block)>(blocks + i);
#pragma GCC unroll 8
        for (uint32_t run = 0; run < together * block_runs<Block>; ++run)
            add(blocks[i + run / block_runs<Block>], run % block_runs<Block>, i * block_runs<Block> + run,
                run % chains);
    }
    if (i < count)
        add(blocks[i], 0, i, 0);
    for (uint32_t r = 0; r < Rows; ++r) {
        float offset_sum = 0.0f;
        for (uint32_t k = 0; k < chains * groups; ++k)
            offset_sum += offset_sums[r][k];
        result[r * stride] = reduce_lanes<float, Adds, run_length>(sums[r][0] + sums[r][1], Adds{}) + offset_sum;
    }
}

template <typename Block, typename Bytes, typename Arguments>
TALLOW_INLINE void multiply_few_rows(const Arguments& arguments) {
    using Row = FewRowOfX<Block>;
    const uint64_t length = arguments.length;
    Row x[max_few_rows];
    for (uint64_t r = 0; r < arguments.rows; ++r) {
        x[r] = {pointer_to<uint8_t>(arguments.scratch) + r * Row::bytes(length), length};
        round_row(pointer_to<const float>(arguments.x) + r * length, x[r]);
    }
    const uint64_t stride = arguments.outputs;
    do_rows<Block>(arguments, [&](uint64_t output, const Block* blocks) {
        float* const result = pointer_to<float>(arguments.result) + output;
        uint64_t r = 0;
        for (; r + unpacked_rows <= arguments.rows; r += unpacked_rows)
            multiply_row<Block, Bytes, unpacked_rows>(blocks, x + r, result + r * stride, stride);
        for (; r < arguments.rows; ++r)
            multiply_row<Block, Bytes, 1>(blocks, x + r, result + r * stride, stride);
    });
}

// Rows of x that are rounded together.
constexpr uint64_t rounded_rows = 4;
// The terms of a panel, and vectors of its rows side by side.
constexpr uint32_t panel_terms = 1024;
constexpr uint32_t panel_vectors = 2;

// Integers of x that meet quants of a byte, or of 16 bits.
template <bool IsWide> struct QuantOf {
    using type = int8_t;
};
template <> struct QuantOf<true> {
    using type = int16_t;
};

// Rows of weights, of which a vector has a word each: four quants of a byte, or two of 16 bits.
template <typename Block, typename Bytes> struct Panel {
    static constexpr bool is_wide = is_signed<Block> && Bytes::is_wide;
    static constexpr bool is_biased = !is_signed<Block> || Bytes::is_biased;
    using Quant = typename QuantOf<is_wide>::type;
    using Row = RowOfX<Block, Quant, run_groups<Block>>;
    static constexpr uint32_t lanes = byte_width / 4;
    static constexpr uint32_t outputs = panel_vectors * lanes;
    static constexpr uint32_t groups = run_groups<Block>;
    static constexpr uint32_t steps = run_length * sizeof(Quant) / 4;
    static constexpr uint32_t runs = panel_terms / run_length;

    alignas(64) uint32_t words[runs][steps][outputs];
    alignas(64) float scales[runs][groups][outputs];
    alignas(64) float offsets[Block::has_offset ? runs : 1][groups][outputs];

    // Unpacks `runs` runs from `first` on of rows of blocks; the last row stands in for those after it.
    __attribute__((noinline)) void fill(const Block* blocks, uint64_t row_blocks, uint64_t rows, uint64_t first,
                                        uint64_t count) {
        for (uint32_t i = 0; i < outputs; ++i) {
            const Block* const row = blocks + (i < rows ? i : rows - 1) * row_blocks;
            for (uint64_t run = 0; run < count; ++run) {
                const Block& block = row[(first + run) / block_runs<Block>];
                const uint32_t start = static_cast<uint32_t>((first + run) % block_runs<Block>) * run_length;
                uint32_t quants[steps];
                if constexpr (is_wide) {
                    const auto wide =
                        __builtin_convertvector(unpack_signed(block, start), Vector<int16_t, 2 * run_length>);
                    __builtin_memcpy(quants, &wide, sizeof quants);
                } else if constexpr (is_biased) {
                    const auto bytes = unpack(block, start);
                    __builtin_memcpy(quants, &bytes, sizeof quants);
                } else {
                    const auto bytes = unpack_signed(block, start);
                    __builtin_memcpy(quants, &bytes, sizeof quants);
                }
                for (uint32_t step = 0; step < steps; ++step)
                    words[run][step][i] = quants[step];
                for (uint32_t g = 0; g < groups; ++g) {
                    const uint32_t group = (start + g * (run_length / groups)) / Block::group;
                    scales[run][g][i] = block.scale(group);
                    if constexpr (Block::has_offset)
                        offsets[run][g][i] = block.offset(group);
                }
            }
        }
    }
};

// Adds to sums of rows the products of some runs of a panel with activation rows.
template <typename Block, typename Bytes>
TALLOW_JOINING void multiply_panel(const Panel<Block, Bytes>& panel, uint64_t count,
                                   const typename Panel<Block, Bytes>::Quant* const* x,
                                   const typename Panel<Block, Bytes>::Row::Facts* const* runs, float* sums) {
    TALLOW_JOIN
    using PanelOf = Panel<Block, Bytes>;
    using Sums = Vector<float, byte_width>;
    using Dots = Vector<int32_t, byte_width>;
    constexpr uint32_t rows = byte_rows;
    constexpr uint32_t steps = PanelOf::steps / PanelOf::groups;
    Sums row_sums[rows][panel_vectors];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
        for (uint32_t k = 0; k < panel_vectors; ++k)
            row_sums[r][k] = load_full_vector<Sums>(sums + (r * panel_vectors + k) * PanelOf::lanes);
    for (uint64_t run = 0; run < count; ++run)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < PanelOf::groups; ++g) {
            Dots dots[rows][panel_vectors];
            const uint64_t start = run * run_length + g * (run_length / PanelOf::groups);
#pragma GCC unroll 8
            for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
                for (uint32_t k = 0; k < panel_vectors; ++k)
                    dots[r][k] = Dots{} + (PanelOf::is_biased ? runs[r][run].starts[g] : 0);
            // What is signed is at most 128.
            constexpr uint32_t highest = PanelOf::is_biased ? Block::highest : 128;
            Bytes::template add<highest, steps>(panel.words[run][g * steps], x, start, dots);
#pragma GCC unroll 2
            for (uint32_t k = 0; k < panel_vectors; ++k) {
                const auto scales = load_full_vector<Sums>(panel.scales[run][g] + k * PanelOf::lanes);
#pragma GCC unroll 8
                for (uint32_t r = 0; r < rows; ++r)
                    row_sums[r][k] += __builtin_convertvector(dots[r][k], Sums) * (scales * runs[r][run].steps[0]);
                if constexpr (Block::has_offset) {
                    const auto offsets = load_full_vector<Sums>(panel.offsets[run][g] + k * PanelOf::lanes);
#pragma GCC unroll 8
                    for (uint32_t r = 0; r < rows; ++r)
                        row_sums[r][k] += offsets * runs[r][run].sums[g];
                }
            }
        }
    __builtin_memcpy(sums, row_sums, sizeof row_sums);
}

template <typename Block, typename Bytes, typename Arguments>
TALLOW_INLINE void multiply_many_rows(const Arguments& arguments) {
    using PanelOf = Panel<Block, Bytes>;
    using Row = typename PanelOf::Row;
    constexpr uint32_t together = byte_rows;
    const uint64_t length = arguments.length;
    const auto row_of_x = [&](uint64_t row) {
        return Row{pointer_to<uint8_t>(arguments.scratch) + row * Row::bytes(length), length};
    };
    do_parts(arguments, (arguments.rows + rounded_rows - 1) / rounded_rows, [&](uint64_t part) {
        for (uint64_t row = part * rounded_rows; row < (part + 1) * rounded_rows && row < arguments.rows; ++row)
            round_row(pointer_to<const float>(arguments.x) + row * length, row_of_x(row));
    });
    const uint64_t row_blocks = length / Block::elements;
    const uint64_t outputs = arguments.outputs;
    do_parts(arguments, (outputs + PanelOf::outputs - 1) / PanelOf::outputs, [&](uint64_t part) {
        PanelOf panel;
        const uint64_t output = part * PanelOf::outputs;
        const uint64_t count = outputs - output < PanelOf::outputs ? outputs - output : PanelOf::outputs;
        const Block* const blocks = pointer_to<const Block>(arguments.blocks) + output * row_blocks;
        for (uint64_t first = 0; first < length / run_length; first += PanelOf::runs) {
            const uint64_t left = length / run_length - first;
            const uint64_t runs = left < PanelOf::runs ? left : PanelOf::runs;
            panel.fill(blocks, row_blocks, count, first, runs);
            for (uint64_t row = 0; row < arguments.rows; row += together) {
                alignas(64) float sums[together][PanelOf::outputs] = {};
                const typename PanelOf::Quant* quants[together];
                const typename Row::Facts* facts[together];
                float* results[together];
                for (uint32_t r = 0; r < together; ++r) {
                    // Behind the last row it is multiplied again.
                    const uint64_t here = row + r < arguments.rows ? row + r : arguments.rows - 1;
                    quants[r] = row_of_x(here).quants() + first * run_length;
                    facts[r] = row_of_x(here).facts() + first;
                    results[r] = pointer_to<float>(arguments.result) + here * outputs + output;
                    if (first != 0)
                        __builtin_memcpy(sums[r], results[r], count * sizeof(float));
                }
                multiply_panel<Block, Bytes>(panel, runs, quants, facts, sums[0]);
                for (uint32_t r = 0; r < together && row + r < arguments.rows; ++r)
                    __builtin_memcpy(results[r], sums[r], count * sizeof(float));
            }
        }
    });
}

template <typename Block, typename Bytes, typename Arguments>
TALLOW_INLINE void multiply_rounded(const Arguments& arguments) {
    if (arguments.rows <= max_few_rows)
        multiply_few_rows<Block, Bytes>(arguments);
    else
        multiply_many_rows<Block, Bytes>(arguments);
}

template <typename Block, typename Arguments> TALLOW_INLINE void rounded_product(const Arguments& arguments) {
    if constexpr (may_have_dots)
        if (has_dots()) {
            multiply_rounded<Block, ByteProducts<true>>(arguments);
            return;
        }
    multiply_rounded<Block, ByteProducts<false>>(arguments);
}

} // namespace tallow
