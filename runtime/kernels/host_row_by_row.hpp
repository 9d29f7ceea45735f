// Row formulas on the host, row by row: the lanes of a group are positions of one row.
#pragma once

#include "host_row_groups.hpp"

namespace tallow {

// Computes rows one by one. A row is a sequence of segments: full groups, and last what is less than a group.
template <typename Functor, typename T, typename Arguments> class RowByRow : RowEngine<Functor, T, Arguments> {
    using Base = RowEngine<Functor, T, Arguments>;
    using Base::arguments_, Base::moves_, Base::length_, Base::buffer_, Base::derived_, Base::constants_,
        Base::results_;
    using Base::operands, Base::derived;
    using typename Base::Operands;
    using typename Base::Value;

  public:
    TALLOW_INLINE RowByRow(const Arguments& arguments, const ElementMoves<T>& moves)
        : Base(arguments, moves), full_length_(length_ - length_ % group_lanes),
          tail_lanes_(static_cast<uint32_t>(length_ % group_lanes)), tails_{} {
        Base::fill_absent();
        uint32_t loaded = 0;
        for (uint32_t k = 0; k < operands; ++k) {
            const int64_t stride = arguments.length_strides[k];
            access_[k] = stride == 0 ? is_constant : stride == 1 ? is_direct : is_loaded;
            slots_[k] = loaded;
            loaded += access_[k] == is_loaded;
        }
        const uint64_t capacity = Base::capacity_of(operands_length<T>, loaded) * group_lanes;
        slot_length_ = capacity;
        fits_ = length_ <= capacity;
        segment_ = piece_length;
        while (!fits_ && segment_ > capacity)
            segment_ /= 2;
        full_segments_ = (full_length_ + segment_ - 1) / segment_;
        segments_ = full_segments_ + (full_length_ != length_);
        has_cached_segments_ = fits_ && full_segments_ <= 1;
        is_cached_ = length_ <= Base::derived_capacity * group_lanes;
    }

    TALLOW_INLINE void run(uint64_t begin, uint64_t end, Value* totals) {
        totals_ = totals;
        if (has_cached_segments_)
            for (uint64_t i = 0; i < segments_; ++i)
                find_segment(i, ~0u, cached_segments_[i]);
        if constexpr (derived != 0)
            if (is_cached_) {
                for (uint64_t row = begin; row < end; ++row)
                    run_row<true>(row);
                return;
            }
        for (uint64_t row = begin; row < end; ++row)
            run_row<false>(row);
    }

  private:
    enum Access : uint32_t { is_constant, is_direct, is_loaded };
    struct Segment {
        Operands from;
        uint64_t first;
        uint64_t groups;
        uint32_t lanes; // of the last group
    };

    TALLOW_INLINE void find_operand(uint32_t k, uint64_t row) {
        if (Base::is_absent(k))
            return;
        const uint64_t source = Base::source_of(k, row);
        if (access_[k] == is_constant) {
            moves_.load(1, constants_[k], 1, pointer_to<const void>(source), 1);
            for (T& value : constants_[k])
                value = constants_[k][0];
        } else if (access_[k] == is_direct) {
            if (full_length_ != 0)
                cached_segments_[0].from.operands[k] = pointer_to<const T>(source);
            if (tail_lanes_ != 0 && sources_[k] != source)
                load_lanes(tail_lanes_, tails_[k], pointer_to<const T>(source) + full_length_);
        } else if (fits_ && sources_[k] != source) {
            load(k, source, 0, length_);
        }
        sources_[k] = source;
    }
    // Pads the last group with zeros.
    TALLOW_INLINE void load(uint32_t k, uint64_t source, uint64_t first, uint64_t count) {
        T* const to = buffer_ + slots_[k] * slot_length_;
        const int64_t stride = arguments_.length_strides[k];
        for (uint64_t i = count; i % group_lanes != 0; ++i)
            to[i] = T{};
        moves_.load(count, to, 1,
                    pointer_to<const void>(Base::address_of(source, static_cast<int64_t>(first) * stride)), stride);
    }
    // Segments that are few are computed once a row.
    TALLOW_INLINE const Segment& segment_of(uint64_t number, uint32_t reads) {
        if (has_cached_segments_)
            return cached_segments_[number];
        find_segment(number, reads, cached_segments_[0]);
        return cached_segments_[0];
    }
    __attribute__((noinline)) void find_segment(uint64_t number, uint32_t reads, Segment& segment) {
        const bool is_last = number == full_segments_;
        segment.first = is_last ? full_length_ : number * segment_;
        const uint64_t count = is_last ? length_ - full_length_ : lower(segment_, full_length_ - segment.first);
        segment.groups = is_last ? 1 : count / group_lanes;
        segment.lanes = is_last ? static_cast<uint32_t>(count) : group_lanes;
        segment.from.first = segment.first / group_lanes;
        for (uint32_t k = 0; k < operands; ++k) {
            segment.from.steps[k] = access_[k] == is_constant ? 0 : group_lanes;
            if (access_[k] == is_constant) {
                segment.from.operands[k] = constants_[k];
            } else if (access_[k] == is_direct) {
                segment.from.operands[k] = is_last ? tails_[k] : pointer_to<const T>(sources_[k]) + segment.first;
            } else {
                segment.from.operands[k] = buffer_ + slots_[k] * slot_length_ + (fits_ ? segment.first : 0);
                if (!fits_ && (reads >> k & 1) != 0)
                    load(k, sources_[k], segment.first, count);
            }
        }
        for (uint32_t k = 0; k < derived; ++k)
            segment.from.derived[k] = derived_ + k * (Base::derived_capacity * group_lanes) + segment.first;
        if constexpr (derived == 0)
            segment.from.derived[0] = derived_;
    }

    template <bool IsCached> TALLOW_INLINE void run_row(uint64_t row) {
        Base::add_residual(row, 1);
        for (uint32_t k = 0; k < operands; ++k)
            find_operand(k, row);
        RowOfLanes<Functor, Value> lanes{Base::shared_};
        Base::begin_row(row, lanes.row);
        run_passes<IsCached>(lanes, typename CountUp<Functor::passes>::type{});
        if constexpr (number_results<Functor> != 0)
            store_numbers(arguments_, row, lanes.row);
        else
            write_row<IsCached>(lanes, row);
    }
    template <bool IsCached> TALLOW_INLINE void write_row(const RowOfLanes<Functor, Value>& lanes, uint64_t row) {
        for (uint64_t i = 0; i < segments_; ++i) {
            const Segment& segment = segment_of(i, operands_read<Functor, Functor::passes>);
            if constexpr (row_totals<Functor> != 0)
                if (totals_ != nullptr) {
                    write<IsCached, true>(lanes, row, segment);
                    continue;
                }
            write<IsCached, false>(lanes, row, segment);
        }
    }
    template <bool IsCached, uint32_t... Pass>
    TALLOW_INLINE void run_passes(RowOfLanes<Functor, Value>& lanes, Numbers<Pass...>) {
        (run_pass<Pass, IsCached>(lanes), ...);
    }
    template <uint32_t Pass, bool IsCached> TALLOW_INLINE void run_pass(RowOfLanes<Functor, Value>& rows) {
        constexpr uint32_t joins = joins_of<Functor, Pass>;
        double totals[joins];
        for_joins_of<Functor, Pass>([&](uint32_t j, auto join) TALLOW_INLINE_LAMBDA {
            totals[j] = decltype(join)::template identity<double>();
        });
        LaneTotals<Functor, Pass, Value> piece;
        piece.reset();
        for (uint64_t i = 0; i < segments_; ++i) {
            const Segment& segment = segment_of(i, operands_read<Functor, Pass>);
            LaneTotals<Functor, Pass, Value> running = piece;
            if (segment.lanes != group_lanes)
                running.reset();
            for (uint64_t group = 0; group < segment.groups; ++group) {
                Value numbers[joins][group_lanes];
                for_lanes<Pass, IsCached>(
                    rows, segment.from, group,
                    [&](uint32_t lane, const auto& row, const auto& elements, Value position) TALLOW_INLINE_LAMBDA {
                        Value contributions[joins];
                        Functor::template contribute<Pass, Value>(row, elements, position, contributions);
                        for (uint32_t j = 0; j < joins; ++j)
                            numbers[j][lane] = contributions[j];
                    });
                running.add(numbers);
            }
            if (segment.lanes != group_lanes)
                piece.add_lanes(running, segment.lanes);
            else
                piece = running;
            if (i + 1 == segments_ || (segment.first + segment.groups * group_lanes) % piece_length == 0) {
                piece.join_to(totals);
                piece.reset();
            }
        }
        finish_pass<Functor, Pass>(rows.row, totals);
    }
    template <bool IsCached, bool HasTotals>
    TALLOW_INLINE void write(const RowOfLanes<Functor, Value>& rows, uint64_t row, const Segment& segment) {
        const int64_t stride = static_cast<int64_t>(arguments_.inner);
        const bool is_direct_result = segment.lanes == group_lanes && stride == 1;
        const uint64_t limit = is_direct_result ? segment.groups : block_groups<T>;
        for (uint64_t begin = 0; begin < segment.groups; begin += limit) {
            const uint64_t end = lower(begin + limit, segment.groups);
            uint64_t result[Functor::results];
            T* to[Functor::results];
            for (uint32_t r = 0; r < Functor::results; ++r) {
                result[r] = Base::address_of(Base::result_of(r, row),
                                             static_cast<int64_t>(segment.first + begin * group_lanes) * stride);
                to[r] = is_direct_result ? pointer_to<T>(result[r]) : results_[r];
            }
            for (uint64_t group = begin; group < end; ++group) {
                Value* const totals = HasTotals ? totals_ + segment.first + group * group_lanes : nullptr;
                const uint64_t total_stride = padded_length(length_);
                const uint64_t index = rows.row.index;
                if (has_row_index<Functor> && index != no_index && index / group_lanes != segment.from.first + group)
                    compute_group<IsCached, HasTotals, !has_row_index<Functor>>(rows, segment.from, group, to, totals,
                                                                                total_stride);
                else
                    compute_group<IsCached, HasTotals>(rows, segment.from, group, to, totals, total_stride);
                for (T*& each : to)
                    each += group_lanes;
            }
            if (is_direct_result)
                return;
            const uint64_t count = (end - begin - 1) * group_lanes + segment.lanes;
            if (stride == 1 && end == 1) {
                for (uint32_t r = 0; r < Functor::results; ++r)
                    store_lanes(segment.lanes, pointer_to<T>(result[r]), results_[r]);
                return;
            }
            for (uint32_t r = 0; r < Functor::results; ++r)
                moves_.store(count, pointer_to<void>(result[r]), stride, results_[r], 1);
        }
    }

    Value* totals_ = nullptr;
    uint64_t full_length_;
    uint32_t tail_lanes_;
    alignas(line_bytes) T tails_[operands][group_lanes];
    uint64_t sources_[operands] = {};
    Access access_[operands];
    uint64_t slots_[operands];
    uint64_t slot_length_;
    bool fits_;
    bool is_cached_;
    Segment cached_segments_[2];
    bool has_cached_segments_;
    uint64_t segment_;
    uint64_t full_segments_;
    uint64_t segments_;
};

} // namespace tallow
