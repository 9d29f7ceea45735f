// Row formulas on the host, for rows that are short or interleaved: each lane of a group is a row.
#pragma once

#include "host_row_groups.hpp"

namespace tallow {

// Computes as many rows side by side as a group has lanes.
template <typename Functor, typename Value, typename Arguments> class RowTiles : RowEngine<Functor, Value, Arguments> {
    using Base = RowEngine<Functor, Value, Arguments>;
    using Base::arguments_, Base::moves_, Base::length_, Base::buffer_, Base::derived_, Base::constants_,
        Base::results_;
    using Base::operands, Base::derived;
    using typename Base::Operands;

  public:
    TALLOW_INLINE RowTiles(const Arguments& arguments, const ElementMoves<Value>& moves) : Base(arguments, moves) {
        rows_.shared = Base::shared_;
        // Lanes past the last row compute on zeros.
        if (arguments.rows % group_lanes != 0)
            clear();
        Base::fill_absent();
        uint32_t loaded = 0;
        for (uint32_t k = 0; k < operands; ++k) {
            slots_[k] = loaded;
            loaded += arguments.length_strides[k] != 0;
        }
        capacity_ = Base::capacity_of(operands_length<Value>, loaded);
        fits_ = length_ <= capacity_;
        is_cached_ = length_ <= Base::derived_capacity;
    }

    TALLOW_INLINE void run(uint64_t begin, uint64_t end, Value* totals) {
        totals_ = totals;
        for (uint64_t tile = begin; tile < end; ++tile)
            run_tile(tile);
    }

  private:
    __attribute__((noinline)) void clear() {
        for (Value& value : buffer_)
            value = Value{};
        for (auto& lanes : constants_)
            for (Value& value : lanes)
                value = Value{};
        for (Value& value : scratch_)
            value = Value{};
    }
    TALLOW_INLINE void run_tile(uint64_t tile) {
        first_row_ = tile * group_lanes;
        lanes_ = static_cast<uint32_t>(lower(arguments_.rows - first_row_, group_lanes));
        Base::add_residual(first_row_, lanes_);
        for (uint32_t k = 0; k < operands; ++k)
            find_operand(k);
        if constexpr (derived != 0)
            if (is_cached_) {
                run_stages<true>(typename CountUp<Functor::passes>::type{});
                return;
            }
        run_stages<false>(typename CountUp<Functor::passes>::type{});
    }
    TALLOW_INLINE void find_operand(uint32_t k) {
        if (Base::is_absent(k))
            return;
        const auto itemsize = static_cast<int64_t>(moves_.itemsize);
        const uint64_t first = Base::source_of(k, first_row_);
        // Where rows of the next group of `inner` begin.
        const int64_t step = arguments_.inner_strides[k] * itemsize;
        const int64_t jump = arguments_.outer_strides[k] * itemsize - static_cast<int64_t>(arguments_.inner) * step;
        uint64_t until_jump = arguments_.inner - (arguments_.inner == 1 ? 0 : first_row_ % arguments_.inner);
        bool are_same = true, are_adjacent = true;
        are_dense_[k] = arguments_.length_strides[k] == 1;
        int64_t distance = 0;
        for (uint32_t lane = 0; lane < lanes_; ++lane) {
            sources_[k][lane] = first + static_cast<uint64_t>(distance);
            are_same &= distance == 0;
            are_adjacent &= distance == lane * itemsize;
            are_dense_[k] &= distance == static_cast<int64_t>(lane * length_) * itemsize;
            distance += step;
            if (--until_jump == 0) {
                distance += jump;
                until_jump = arguments_.inner;
            }
        }
        layout_[k] = are_same ? is_shared : are_adjacent ? is_adjacent : is_scattered;
        const bool is_loaded = are_same && shared_[k] == sources_[k][0];
        shared_[k] = are_same ? sources_[k][0] : 0;
        if (arguments_.length_strides[k] == 0)
            for (uint32_t lane = 0; lane < lanes_; ++lane)
                moves_.load(1, &constants_[k][lane], 1, pointer_to<const void>(sources_[k][lane]), 1);
        else if (fits_ && !is_loaded)
            load(k, 0, length_);
    }
    TALLOW_INLINE void load(uint32_t k, uint64_t first, uint64_t count) {
        Value* const to = buffer_ + slots_[k] * capacity_ * group_lanes;
        const int64_t stride = arguments_.length_strides[k];
        const auto source = [&](uint32_t lane, uint64_t position) {
            return pointer_to<const void>(
                Base::address_of(sources_[k][lane], static_cast<int64_t>(first + position) * stride));
        };
        if (layout_[k] == is_adjacent) {
            // No hardware prefetcher follows strides of full pages.
            constexpr uint64_t ahead = 16;
            for (uint64_t i = 0; i < count; ++i) {
                __builtin_prefetch(source(0, i + ahead));
                __builtin_prefetch(source(lanes_ - 1, i + ahead));
                moves_.load(lanes_, to + i * group_lanes, 1, source(0, i), 1);
            }
        } else if (layout_[k] == is_scattered) {
            const bool is_dense = count == length_ && are_dense_[k];
            // Vectors may end past a row, but not past the last one.
            const uint64_t vector = vector_length<Value>, next = first_row_ + group_lanes;
            const bool is_inside =
                count % vector == 0 || (next < arguments_.rows && (arguments_.rows - next) * count >= vector);
            if (is_dense && is_inside && Base::is_full_tile(lanes_)) {
                transpose_blocks(group_lanes, count, static_cast<const Value*>(source(0, 0)), count, to, group_lanes);
                return;
            }
            for (uint64_t begin = 0; begin < count; begin += block_groups<Value>) {
                const uint64_t columns = lower(count - begin, block_groups<Value>);
                if (is_dense && columns == count)
                    moves_.load(lanes_ * columns, scratch_, 1, source(0, 0), 1);
                else
                    for (uint32_t lane = 0; lane < lanes_; ++lane)
                        moves_.load(columns, scratch_ + lane * columns, 1, source(lane, begin), stride);
                transpose_blocks(group_lanes, columns, scratch_, columns, to + begin * group_lanes, group_lanes);
            }
        } else {
            moves_.load(count, to, group_lanes, source(0, 0), stride);
            for (uint64_t i = 0; i < count; ++i) {
                const Value value = to[i * group_lanes];
                TALLOW_LANES
                for (uint32_t lane = 0; lane < group_lanes; ++lane)
                    to[i * group_lanes + lane] = value;
            }
        }
    }

    // Calls visit(operands, first, count) for blocks of up to `limit` positions, none of which crosses pieces.
    template <uint32_t Stage, typename Visit> TALLOW_INLINE void for_blocks(uint64_t limit, Visit visit) {
        const uint64_t step = lower(fits_ ? piece_length : lower(capacity_, piece_length), limit);
        uint64_t count = 0;
        for (uint64_t first = 0; first < length_; first += count) {
            count = lower(lower(step, length_ - first), piece_length - first % piece_length);
            Operands from;
            from.first = first;
            for (uint32_t k = 0; k < operands; ++k) {
                const bool is_constant = arguments_.length_strides[k] == 0;
                from.steps[k] = is_constant ? 0 : group_lanes;
                from.operands[k] =
                    is_constant ? constants_[k] : buffer_ + (slots_[k] * capacity_ + (fits_ ? first : 0)) * group_lanes;
                if (!is_constant && !fits_ && (operands_read<Functor, Stage> >> k & 1) != 0)
                    load(k, first, count);
            }
            for (uint32_t k = 0; k < derived; ++k)
                from.derived[k] = derived_ + (k * Base::derived_capacity + first) * group_lanes;
            if constexpr (derived == 0)
                from.derived[0] = derived_;
            visit(from, first, count);
        }
    }

    TALLOW_INLINE void begin_rows() {
        if constexpr (has_row_index<Functor> || row_numbers<Functor> != 0)
            for (uint32_t lane = 0; lane < group_lanes; ++lane) {
                RowOf<Value, Functor> row = Base::shared_;
                row.index = no_index;
                if (lane < lanes_)
                    Base::begin_row(first_row_ + lane, row);
                rows_.index[lane] = row.index;
                for (uint32_t i = 0; i < Functor::known; ++i)
                    rows_.known[i][lane] = row.known[i];
            }
    }
    template <bool IsCached, uint32_t... Pass> TALLOW_INLINE void run_stages(Numbers<Pass...>) {
        begin_rows();
        (run_pass<Pass, IsCached>(), ...);
        if constexpr (number_results<Functor> != 0)
            for (uint32_t lane = 0; lane < lanes_; ++lane)
                store_numbers(arguments_, first_row_ + lane, rows_.row_of(lane));
        else
            write<IsCached>();
    }
    template <bool IsCached> TALLOW_INLINE void write() {
        for_blocks<Functor::passes>(block_groups<Value>,
                                    [&](const Operands& from, uint64_t first, uint64_t count) TALLOW_INLINE_LAMBDA {
                                        for (uint64_t i = 0; i < count; ++i) {
                                            Value* to[Functor::results];
                                            for (uint32_t r = 0; r < Functor::results; ++r)
                                                to[r] = results_[r] + i * group_lanes;
                                            compute<IsCached>(from, first, i, to);
                                        }
                                        for (uint32_t r = 0; r < Functor::results; ++r)
                                            store(r, first, count);
                                    });
    }
    template <bool IsCached>
    TALLOW_INLINE void compute(const Operands& from, uint64_t first, uint64_t i, Value* const (&to)[Functor::results]) {
        if constexpr (row_totals<Functor> != 0)
            if (totals_ != nullptr) {
                Value lanes[row_totals<Functor>][group_lanes] = {};
                compute_group<IsCached, true>(rows_, from, i, to, lanes[0], group_lanes);
                for (uint32_t t = 0; t < row_totals<Functor>; ++t) {
                    for (uint32_t lane = lanes_; lane < group_lanes; ++lane)
                        lanes[t][lane] = Value{0};
                    for (uint32_t half = group_lanes / 2; half != 0; half /= 2)
                        for (uint32_t lane = 0; lane < half; ++lane)
                            lanes[t][lane] += lanes[t][lane + half];
                    totals_[t * padded_length(length_) + first + i] += lanes[t][0];
                }
                return;
            }
        compute_group<IsCached>(rows_, from, i, to);
    }
    // Position i is added to slot i % group_lanes; slots are combined as the lanes of a single row are.
    template <uint32_t Pass, bool IsCached> TALLOW_INLINE void run_pass() {
        constexpr uint32_t joins = joins_of<Functor, Pass>, first_known = Functor::template Reduced<Pass>::first;
        double totals[joins][group_lanes];
        Value slots[joins][group_lanes][group_lanes];
        for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
            for (double& total : totals[j])
                total = decltype(join)::template identity<double>();
        });
        for_blocks<Pass>(piece_length, [&](const Operands& from, uint64_t first, uint64_t count) TALLOW_INLINE_LAMBDA {
            const uint64_t begin = first / piece_length * piece_length;
            const auto used = static_cast<uint32_t>(lower(length_ - begin, group_lanes));
            for (uint64_t i = 0; i < count; ++i) {
                const uint64_t slot = (first + i) % group_lanes;
                const bool is_first = first + i - begin < group_lanes;
                for_lanes<Pass, IsCached>(
                    rows_, from, i,
                    [&](uint32_t lane, const auto& row, const auto& elements, Value position) TALLOW_INLINE_LAMBDA {
                        Value contributions[joins];
                        Functor::template contribute<Pass, Value>(row, elements, position, contributions);
                        for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
                            Value& total = slots[j][slot][lane];
                            total = is_first ? contributions[j] : decltype(join)::combine(total, contributions[j]);
                        });
                    });
            }
            if ((first + count) % piece_length == 0 || first + count == length_)
                for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
                    join_slots(join, slots[j], used);
                    for (uint32_t lane = 0; lane < group_lanes; ++lane)
                        totals[j][lane] =
                            decltype(join)::combine(totals[j][lane], static_cast<double>(slots[j][0][lane]));
                });
        });
        TALLOW_LANES
        for (uint32_t lane = 0; lane < group_lanes; ++lane) {
            RowOf<Value, Functor> row = rows_.row_of(lane);
            for (uint32_t j = 0; j < joins; ++j)
                row.known[first_known + j] = static_cast<Value>(totals[j][lane]);
            Functor::template finish<Pass, Value>(row);
            for (uint32_t i = 0; i < Functor::known; ++i)
                rows_.known[i][lane] = row.known[i];
        }
    }
    template <typename Join>
    static TALLOW_INLINE void join_slots(Join, Value (&slots)[group_lanes][group_lanes], uint32_t used) {
        for (uint32_t half = group_lanes / 2; half != 0; half /= 2) {
            for (uint32_t slot = 0; slot + half < used; ++slot)
                for (uint32_t lane = 0; lane < group_lanes; ++lane)
                    slots[slot][lane] = Join::combine(slots[slot][lane], slots[slot + half][lane]);
            used = used < half ? used : half;
        }
    }

    TALLOW_INLINE void store(uint32_t r, uint64_t first, uint64_t count) {
        const uint64_t inner = arguments_.inner;
        const auto stride = static_cast<int64_t>(inner);
        const auto offset = static_cast<int64_t>(first * inner);
        if (inner != 1 && first_row_ % inner + lanes_ <= inner) {
            const uint64_t result = Base::address_of(Base::result_of(r, first_row_), offset);
            for (uint64_t i = 0; i < count; ++i)
                moves_.store(lanes_, pointer_to<void>(Base::address_of(result, static_cast<int64_t>(i) * stride)), 1,
                             results_[r] + i * group_lanes, 1);
            return;
        }
        const bool is_dense = inner == 1 && count == length_;
        if (is_dense && count % vector_length<Value> == 0 && Base::is_full_tile(lanes_)) {
            transpose_blocks(count, group_lanes, results_[r], group_lanes,
                             pointer_to<Value>(Base::result_of(r, first_row_)), count);
            return;
        }
        transpose_blocks(count, group_lanes, results_[r], group_lanes, scratch_, count);
        if (is_dense)
            moves_.store(lanes_ * count, pointer_to<void>(Base::result_of(r, first_row_)), 1, scratch_, 1);
        else
            for (uint32_t lane = 0; lane < lanes_; ++lane)
                moves_.store(count, pointer_to<void>(Base::address_of(Base::result_of(r, first_row_ + lane), offset)),
                             stride, scratch_ + lane * count, 1);
    }

    enum Layout : uint32_t { is_shared, is_adjacent, is_scattered };
    Value* totals_ = nullptr;
    uint64_t first_row_ = 0;
    uint32_t lanes_ = 0;
    RowPerLane<Functor, Value> rows_;
    uint64_t sources_[operands][group_lanes];
    uint64_t shared_[operands] = {};
    Layout layout_[operands];
    bool are_dense_[operands];
    // A block of rows in row-major order.
    alignas(line_bytes) Value scratch_[block_groups<Value> * group_lanes + vector_length<Value>];
    uint64_t slots_[operands];
    bool fits_;
    bool is_cached_;
    uint64_t capacity_;
};

} // namespace tallow
