// Elements chosen by indexes on the host.
#pragma once

#include <stdlib.h>

#include "access.hpp"
#include "arithmetic.hpp"
#include "dims.hpp"
#include "host_indexes.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "words.hpp"

namespace tallow {

// Positions that are loaded at once.
constexpr uint64_t index_block = 1024;
// Elements of a part, roughly.
constexpr uint64_t index_length = 1 << 15;
// Lines side by side that are taken together: as many as keep what they reach in the cache.
constexpr uint64_t max_columns = 256;
constexpr uint64_t few_columns = 32;
constexpr uint64_t min_columns = 8;
constexpr uint64_t cached_elements = 1 << 18;
constexpr uint64_t shared_length = 1 << 19;
// With more elements for each index than this, it does not pay to convert all of them.
constexpr uint64_t max_sums = 4;
// Elements of a row that are added up at once.
constexpr uint64_t piece_length = 2048;

// Positions of some indexes, and whether all of these name rows.
struct Loaded {
    const int64_t* positions;
    bool are_rows;
};

// The indexes of a call as positions. An index that is out of range is the call's error: of several the first one.
template <typename Arguments> class Positions {
  public:
    // As words without a sign, marks and indexes that are negative or too large are all beyond those of rows.
    explicit Positions(const Arguments& arguments)
        : arguments_(arguments), limit_(static_cast<uint64_t>(arguments.index_mark) < arguments.size
                                            ? static_cast<uint64_t>(arguments.index_mark)
                                            : arguments.size) {
    }

    // Whether all of some indexes name rows.
    __attribute__((noinline)) bool are_rows(int64_t offset, int64_t stride, uint64_t count) const {
        bool result = false;
        with_word(arguments_.index_bytes, [&](auto word) {
            using Word = decltype(word);
            const auto source = pointer_to<const Word>(arguments_.indexes) + offset;
            Word most = 0;
            if (stride == 1)
                for (uint64_t i = 0; i < count; ++i)
                    most = most < source[i] ? source[i] : most;
            else
                for (uint64_t i = 0; i < count; ++i) {
                    const Word index = source[static_cast<int64_t>(i) * stride];
                    most = most < index ? index : most;
                }
            result = most < limit_;
        });
        return result;
    }

    // The positions of up to a block of indexes that name rows; they may be in `buffer`.
    const int64_t* read(int64_t* buffer, int64_t offset, int64_t stride, uint64_t count) const {
        if (stride == 1 && arguments_.index_bytes == sizeof(int64_t))
            return pointer_to<const int64_t>(arguments_.indexes) + offset;
        return widen(buffer, offset, stride, count);
    }

    // Those of any indexes, of which the first one has this number; -1 where there is a mark or an error.
    __attribute__((noinline)) Loaded load(int64_t* buffer, int64_t offset, int64_t stride, uint64_t count,
                                          uint64_t number) const {
        const int64_t* const positions = read(buffer, offset, stride, count);
        if (are_rows(offset, stride, count))
            return {positions, true};
        for (uint64_t i = 0; i < count; ++i) {
            const auto index = static_cast<uint64_t>(positions[i]);
            if (index >= limit_ && signed_index(arguments_, index) != arguments_.index_mark)
                note(number + i);
            buffer[i] = index < limit_ ? positions[i] : -1;
        }
        return {buffer, false};
    }

    // The position of one index, or -1, as those of `load`.
    TALLOW_INLINE int64_t load_one(int64_t offset, uint64_t number) const {
        int64_t position = 0;
        with_word(arguments_.index_bytes, [&](auto word) {
            position = static_cast<int64_t>(pointer_to<const decltype(word)>(arguments_.indexes)[offset]);
        });
        return static_cast<uint64_t>(position) < limit_ ? position : *load(&position, offset, 0, 1, number).positions;
    }

    // Reports the first wrong index to the host, with the position of its number. Returns whether there is one.
    template <typename OffsetOf> bool report_error(OffsetOf offset_of) const {
        if (first_ == none)
            return false;
        report_index(arguments_, index_in(arguments_, offset_of(first_)));
        return true;
    }

  private:
    static constexpr uint64_t none = ~uint64_t{0};

    __attribute__((noinline)) const int64_t* widen(int64_t* buffer, int64_t offset, int64_t stride,
                                                   uint64_t count) const {
        with_word(arguments_.index_bytes, [&](auto word) {
            const auto source = pointer_to<const decltype(word)>(arguments_.indexes) + offset;
            if (stride == 1)
                for (uint64_t i = 0; i < count; ++i)
                    buffer[i] = static_cast<int64_t>(source[i]);
            else
                for (uint64_t i = 0; i < count; ++i)
                    buffer[i] = static_cast<int64_t>(source[static_cast<int64_t>(i) * stride]);
        });
        return buffer;
    }

    void note(uint64_t number) const {
        uint64_t first = __atomic_load_n(&first_, __ATOMIC_RELAXED);
        while (number < first &&
               !__atomic_compare_exchange_n(&first_, &first, number, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }

    const Arguments& arguments_;
    const uint64_t limit_;
    mutable uint64_t first_ = none;
};

// Element i of the result is that of the source at index i; 0 at a mark. Operand 1 is the source, 2 the indexes.
template <typename Arguments> TALLOW_INLINE void gather(const Arguments& arguments) {
    const Dims dims(3, arguments.rank, arguments.dims, arguments.strides);
    const Positions<Arguments> indexes(arguments);
    const auto take_part = [&](uint64_t part) {
        uint64_t number = part * index_length;
        const uint64_t end = number + index_length < arguments.count ? number + index_length : arguments.count;
        Cursor cursor(dims, 3, number);
        with_element(arguments.itemsize, [&](auto word) {
            using Word = decltype(word);
            int64_t buffer[index_block];
            while (number < end) {
                uint64_t length = cursor.left() < end - number ? cursor.left() : end - number;
                Word* const target = pointer_to<Word>(arguments.result) + number;
                const Word* const source = pointer_to<const Word>(arguments.source) + cursor.offset(1);
                if (dims.stride(2, 0) == 0) {
                    const int64_t position = indexes.load_one(cursor.offset(2), number);
                    if (position < 0)
                        __builtin_memset(target, 0, length * sizeof(Word));
                    else
                        gather_words(target, source + position * arguments.row_stride, dims.stride(1, 0), length);
                } else {
                    length = length < index_block ? length : index_block;
                    const Loaded loaded = indexes.load(buffer, cursor.offset(2), dims.stride(2, 0), length, number);
                    const int64_t* const positions = loaded.positions;
                    const int64_t step = dims.stride(1, 0);
                    const auto offset_of = [&](uint64_t i) {
                        return static_cast<int64_t>(i) * step + positions[i] * arguments.row_stride;
                    };
                    if (loaded.are_rows && step == 0 && arguments.row_stride == 1)
                        for (uint64_t i = 0; i < length; ++i)
                            target[i] = source[positions[i]];
                    else if (loaded.are_rows)
                        for (uint64_t i = 0; i < length; ++i)
                            target[i] = source[offset_of(i)];
                    else
                        for (uint64_t i = 0; i < length; ++i)
                            target[i] = positions[i] < 0 ? Word{} : source[offset_of(i)];
                }
                cursor.advance(length);
                number += length;
            }
        });
    };
    do_parts(arguments, (arguments.count + index_length - 1) / index_length, take_part);
    indexes.report_error([&](uint64_t number) { return dims.offset_of(2, number); });
}

// What scatters of all elements share. Operand 0 is the destination, 1 the source, 2 the indexes. Lines along the
// chosen dim are taken side by side where the source has them so. Of a line, parts take ranges of the destination, so
// that no two write one element, and each is written in the order of the source.
template <typename Arguments> class ScatterLines {
  public:
    explicit ScatterLines(const Arguments& arguments)
        : arguments_(arguments), lines_(lines_of(arguments)), positions_(arguments),
          length_(arguments.dims[arguments.dim]), row_stride_(arguments.strides[arguments.dim]),
          source_step_(arguments.strides[max_rank + arguments.dim]),
          index_step_(arguments.strides[2 * max_rank + arguments.dim]) {
        lines_count_ = 1;
        for (uint32_t d = 0; d < lines_.rank(); ++d)
            lines_count_ *= lines_.size(d);
        // Threads that share lines read the same indexes.
        const bool is_shared = lines_count_ * length_ >= shared_length;
        if (lines_.size(0) >= min_columns && lines_.stride(1, 0) < source_step_) {
            const auto is_wide = [&] {
                return columns_ * arguments.size > cached_elements ||
                       (is_shared && lines_count_ / columns_ < arguments.threads);
            };
            for (columns_ = max_columns; columns_ > few_columns && is_wide();)
                columns_ /= 2;
            row_pieces_ = (lines_.size(0) + columns_ - 1) / columns_;
            blocks_ = lines_count_ / lines_.size(0) * row_pieces_;
        } else {
            together_ = index_length / (length_ + 1) + 1;
            blocks_ = (lines_count_ + together_ - 1) / together_;
        }
        ranges_ = is_shared && blocks_ < arguments.threads ? arguments.threads : 1;
    }

    // Whether all indexes name rows, or are marks.
    bool check() {
        // In row-major order, without what repeats.
        uint64_t sizes[max_rank];
        int64_t strides[2 * max_rank];
        uint64_t count = 1;
        for (uint32_t d = 0; d < arguments_.rank; ++d) {
            strides[max_rank + d] = arguments_.strides[2 * max_rank + d];
            sizes[d] = strides[max_rank + d] == 0 ? 1 : arguments_.dims[d];
            strides[d] = static_cast<int64_t>(count);
            count *= sizes[d];
        }
        const Dims dims(2, arguments_.rank, sizes, strides);
        const auto check_part = [&](uint64_t part) {
            uint64_t number = part * index_length;
            const uint64_t end = number + index_length < count ? number + index_length : count;
            Cursor cursor(dims, 2, number);
            int64_t buffer[index_block];
            while (number < end) {
                const uint64_t length = cursor.left() < end - number ? cursor.left() : end - number;
                if (!positions_.are_rows(cursor.offset(1), dims.stride(1, 0), length)) {
                    __atomic_store_n(&all_are_rows_, false, __ATOMIC_RELAXED);
                    for (uint64_t i = 0; i < length; i += index_block)
                        positions_.load(buffer, cursor.offset(1) + static_cast<int64_t>(i) * dims.stride(1, 0),
                                        dims.stride(1, 0), length - i < index_block ? length - i : index_block,
                                        number + i);
                }
                cursor.advance(length);
                number += length;
            }
        };
        do_parts(arguments_, (count + index_length - 1) / index_length, check_part);
        return !positions_.report_error([&](uint64_t number) { return dims.offset_of(1, number); });
    }

    // Whether adjacent lines share the indexes: full rows are copied to full rows.
    bool has_rows() const {
        for (uint32_t d = 0; d < lines_.rank(); ++d)
            if (lines_.stride(2, d) != 0)
                return false;
        return columns_ != 0 && lines_.stride(0, 0) == 1 && lines_.stride(1, 0) == 1;
    }

  protected:
    // Calls visit(number of the index, the row that it names) for all indexes of a line but marks.
    template <typename Visit> void for_positions(const Visit& visit) const {
        int64_t buffer[index_block];
        for (uint64_t i = 0; i < length_; i += index_block) {
            const uint64_t count = length_ - i < index_block ? length_ - i : index_block;
            const int64_t* const positions = positions_of(
                buffer, lines_.offset_of(2, 0) + static_cast<int64_t>(i) * index_step_, index_step_, count);
            for (uint64_t k = 0; k < count; ++k)
                if (positions[k] >= 0)
                    visit(i + k, static_cast<uint64_t>(positions[k]));
        }
    }

    // The numbers of the source's rows, those of each row of the destination one after the other, and where these end.
    void sort_rows(uint64_t* ends, uint64_t* order) const {
        for_positions([=](uint64_t, uint64_t row) { ++ends[row + 1]; });
        for (uint64_t row = 0; row < arguments_.size; ++row)
            ends[row + 1] += ends[row];
        for_positions([=](uint64_t i, uint64_t row) { order[ends[row]++] = i; });
    }

    // Those of indexes that were checked.
    const int64_t* positions_of(int64_t* buffer, int64_t offset, int64_t stride, uint64_t count) const {
        return all_are_rows_ ? positions_.read(buffer, offset, stride, count)
                             : positions_.load(buffer, offset, stride, count, 0).positions;
    }

    static Dims lines_of(const Arguments& arguments) {
        uint64_t sizes[max_rank];
        for (uint32_t d = 0; d < arguments.rank; ++d)
            sizes[d] = d == arguments.dim ? 1 : arguments.dims[d];
        return Dims(3, arguments.rank, sizes, arguments.strides);
    }

    const Arguments& arguments_;
    const Dims lines_;
    const Positions<Arguments> positions_;
    const uint64_t length_;
    const int64_t row_stride_;
    const int64_t source_step_;
    const int64_t index_step_;
    uint64_t lines_count_;
    uint64_t columns_ = 0;
    uint64_t row_pieces_ = 1;
    uint64_t together_ = 1;
    uint64_t blocks_;
    uint64_t ranges_;
    bool all_are_rows_ = true;
};

// Elements of the source moved to where the destination has their indexes.
template <typename T, typename Arguments> class Scatter : public ScatterLines<Arguments> {
  public:
    using ScatterLines<Arguments>::ScatterLines;

    // Calls apply(elements of a row of the destination, elements of the rows of the source for it in order, how many
    // rows these are, how many elements) for parts of all rows that the indexes name. Whether there was memory for it.
    template <typename Apply> bool run_rows(const Apply& apply) const {
        const auto ends = static_cast<uint64_t*>(::calloc(arguments_.size + 1, sizeof(uint64_t)));
        const auto order = static_cast<uint64_t*>(::malloc(length_ * sizeof(uint64_t)));
        const bool is_present = ends != nullptr && order != nullptr;
        if (is_present) {
            this->sort_rows(ends, order);
            const uint64_t width = lines_.size(0);
            const uint64_t outer = lines_count_ / width;
            const uint64_t pieces = (width + piece_length - 1) / piece_length;
            const uint64_t together = index_length / (width < piece_length ? width : piece_length) + 1;
            const uint64_t blocks = (arguments_.size + together - 1) / together;
            do_parts(arguments_, outer * pieces * blocks, [=](uint64_t part) {
                const uint64_t column = part % pieces * piece_length;
                const uint64_t count = width - column < piece_length ? width - column : piece_length;
                const uint64_t line = part / pieces / blocks * width + column;
                T* const target = pointer_to<T>(arguments_.destination) + lines_.offset_of(0, line);
                const T* const values = pointer_to<const T>(arguments_.source) + lines_.offset_of(1, line);
                const uint64_t first = part / pieces % blocks * together;
                for (uint64_t row = first; row < first + together && row < arguments_.size; ++row) {
                    const uint64_t begin = row == 0 ? 0 : ends[row - 1];
                    if (begin != ends[row])
                        apply(target + static_cast<int64_t>(row) * row_stride_, values, source_step_, order + begin,
                              ends[row] - begin, count);
                }
            });
        }
        ::free(ends);
        ::free(order);
        return is_present;
    }

    // Calls apply(element of the destination, element of the source) for all, in order for each element.
    template <typename Apply> void run(const Apply& apply) const {
        for_strips([=](const Strip& strip, Range rows, uint64_t) {
            visit(strip, rows, [=](T* target, uint64_t, const T* value) { apply(target, value); });
        });
    }

    // Adds to floats of fewer bits: in `sums`, which has a float for each element that the lines reach, and rounds
    // once.
    void add_up() const {
        for_strips([=](Strip& strip, Range rows, uint64_t first) {
            float* const sums = pointer_to<float>(arguments_.sums);
            const bool is_dense = (strip.count == 1 && row_stride_ == 1) || strip.step == 1;
            const auto add_to = [=](T*, uint64_t sum, const T* value) { sums[sum] += to_float(*value); };
            if (is_dense && arguments_.size <= max_sums * length_) {
                // All elements of the strip, in floats that stay in the cache.
                strip.sums = first * arguments_.size + static_cast<uint64_t>(rows.first) * strip.count;
                const bool is_one = row_stride_ == static_cast<int64_t>(strip.count);
                const auto number = static_cast<uint64_t>(rows.end - rows.first);
                const uint64_t pieces = is_one ? 1 : number;
                const uint64_t length = is_one ? number * strip.count : strip.count;
                T* const target = strip.target + rows.first * row_stride_;
                for (uint64_t i = 0; i < pieces; ++i)
                    convert_span(length, sums + strip.sums + i * length,
                                 static_cast<const T*>(target + static_cast<int64_t>(i) * row_stride_));
                visit(strip, rows, add_to);
                for (uint64_t i = 0; i < pieces; ++i)
                    round_sums(target + static_cast<int64_t>(i) * row_stride_, sums + strip.sums + i * length, length);
                return;
            }
            strip.sums = strip.number * arguments_.size + static_cast<uint64_t>(rows.first) * strip.count;
            visit(strip, rows, [=](const T* target, uint64_t sum, const T*) { sums[sum] = to_float(*target); });
            visit(strip, rows, add_to);
            visit(strip, rows, [=](T* target, uint64_t sum, const T*) { *target = round_from<T>(sums[sum]); });
        });
    }

  private:
    using Lines = ScatterLines<Arguments>;
    using Lines::all_are_rows_;
    using Lines::arguments_;
    using Lines::blocks_;
    using Lines::columns_;
    using Lines::index_step_;
    using Lines::length_;
    using Lines::lines_;
    using Lines::lines_count_;
    using Lines::positions_of;
    using Lines::ranges_;
    using Lines::row_pieces_;
    using Lines::row_stride_;
    using Lines::source_step_;
    using Lines::together_;

    struct Range {
        int64_t first;
        int64_t end;
    };

    // Lines that are taken together, side by side: one, or `count` of them, whose elements have the strides `step` and
    // `values_step`. The number is that of the first one; the sums of a row are side by side.
    struct Strip {
        uint64_t number;
        uint64_t count;
        T* target;
        int64_t step;
        const T* values;
        int64_t values_step;
        int64_t index_offset;
        int64_t index_stride;
        uint64_t sums;
    };

    // What was not changed keeps its bits: a NaN has more than one number for it.
    static __attribute__((noinline)) void round_sums(T* target, const float* sums, uint64_t count) {
        float before[span_part];
        T rounded[span_part];
        for (uint64_t first = 0; first < count; first += span_part, target += span_part, sums += span_part) {
            const uint64_t length = count - first < span_part ? count - first : span_part;
            convert_span(length, before, static_cast<const T*>(target));
            convert_span(length, rounded, sums);
            const auto choose = [](T old, T converted, float x, float y) {
                return T{bit_cast<uint32_t>(x) == bit_cast<uint32_t>(y) ? old.bits : converted.bits};
            };
            map_span(length, choose, target, static_cast<const T*>(target), static_cast<const T*>(rounded),
                     static_cast<const float*>(before), sums);
        }
    }

    // Calls visit(strip, rows of it, number of the first line of its part) for all strips, each in the order of its
    // lines.
    template <typename Visit> void for_strips(const Visit& visit) const {
        const auto do_part = [=](uint64_t part) {
            const uint64_t range = part % ranges_;
            const Range rows = {static_cast<int64_t>(arguments_.size * range / ranges_),
                                static_cast<int64_t>(arguments_.size * (range + 1) / ranges_)};
            const uint64_t block = part / ranges_;
            if (columns_ != 0) {
                const uint64_t column = block % row_pieces_ * columns_;
                const uint64_t count = lines_.size(0) - column < columns_ ? lines_.size(0) - column : columns_;
                Strip strip = strip_of(block / row_pieces_ * lines_.size(0) + column, count);
                visit(strip, rows, strip.number);
                return;
            }
            const uint64_t first = block * together_;
            for (uint64_t line = first; line < first + together_ && line < lines_count_; ++line) {
                Strip strip = strip_of(line, 1);
                visit(strip, rows, first);
            }
        };
        do_parts(arguments_, blocks_ * ranges_, do_part);
    }

    Strip strip_of(uint64_t line, uint64_t count) const {
        return {line,
                count,
                pointer_to<T>(arguments_.destination) + lines_.offset_of(0, line),
                lines_.stride(0, 0),
                pointer_to<const T>(arguments_.source) + lines_.offset_of(1, line),
                lines_.stride(1, 0),
                lines_.offset_of(2, line),
                lines_.stride(2, 0),
                0};
    }

    // Calls apply(element of the destination, its sum, element of the source) for the elements of a strip.
    template <typename Apply> void visit(const Strip& strip, Range rows, const Apply& apply) const {
        int64_t buffer[index_block];
        if (columns_ == 0) {
            for (uint64_t i = 0; i < length_; i += index_block) {
                const auto at = static_cast<int64_t>(i);
                each(buffer, strip.index_offset + at * index_step_, index_step_,
                     length_ - i < index_block ? length_ - i : index_block, rows, apply, strip.target, 0, strip.sums, 0,
                     1, strip.values + at * source_step_, source_step_);
            }
            return;
        }
        const T* values = strip.values;
        int64_t index_offset = strip.index_offset;
        for (uint64_t i = 0; i < length_; ++i, values += source_step_, index_offset += index_step_) {
            if (strip.index_stride != 0) {
                each(buffer, index_offset, strip.index_stride, strip.count, rows, apply, strip.target, strip.step,
                     strip.sums, 1, strip.count, values, strip.values_step);
                continue;
            }
            const int64_t position = *positions_of(buffer, index_offset, 0, 1);
            if (position >= rows.first && position < rows.end)
                apply_row(strip, apply, strip.target + position * row_stride_,
                          strip.sums + static_cast<uint64_t>(position - rows.first) * strip.count, values);
        }
    }

    template <typename Apply>
    TALLOW_INLINE void each(int64_t* buffer, int64_t index_offset, int64_t index_stride, uint64_t count, Range rows,
                            const Apply& apply, T* target, int64_t step, uint64_t sums, uint64_t sums_step,
                            uint64_t sums_row, const T* values, int64_t values_step) const {
        const int64_t* const positions = positions_of(buffer, index_offset, index_stride, count);
        const auto take = [&](uint64_t i) {
            apply(target + static_cast<int64_t>(i) * step + positions[i] * row_stride_,
                  sums + i * sums_step + static_cast<uint64_t>(positions[i] - rows.first) * sums_row,
                  values + static_cast<int64_t>(i) * values_step);
        };
        if (all_are_rows_ && ranges_ == 1 && step == 0 && row_stride_ == 1 && values_step == 1) {
            // The most frequent case, without a product.
            for (uint64_t i = 0; i < count; ++i)
                apply(target + positions[i], sums + static_cast<uint64_t>(positions[i]), values + i);
            return;
        }
        if (all_are_rows_ && ranges_ == 1) {
            for (uint64_t i = 0; i < count; ++i)
                take(i);
            return;
        }
        for (uint64_t i = 0; i < count; ++i)
            if (positions[i] >= rows.first && positions[i] < rows.end)
                take(i);
    }

    // Elements of all columns to one row.
    template <typename Apply>
    TALLOW_INLINE void apply_row(const Strip& strip, const Apply& apply, T* target, uint64_t sums,
                                 const T* values) const {
        if (strip.step == 1 && strip.values_step == 1) {
            TALLOW_INDEPENDENT
            for (uint64_t i = 0; i < strip.count; ++i)
                apply(target + i, sums + i, values + i);
        } else {
            for (uint64_t i = 0; i < strip.count; ++i)
                apply(target + static_cast<int64_t>(i) * strip.step, sums + i,
                      values + static_cast<int64_t>(i) * strip.values_step);
        }
    }
};

template <typename Word, typename Arguments> TALLOW_INLINE void scatter_set(const Arguments& arguments) {
    Scatter<Word, Arguments> scatter(arguments);
    if (scatter.check())
        scatter.run([](Word* target, const Word* value) { *target = *value; });
}

// Rows of elements added to one, which is rounded once.
template <typename T>
__attribute__((noinline)) void add_rows(T* target, const T* source, int64_t step, const uint64_t* rows, uint64_t count,
                                        uint64_t length) {
    using Sum = widened<T>;
    Sum sums[piece_length];
    map_span(length, [](T x) { return static_cast<Sum>(convert<Sum>(x)); }, sums, static_cast<const T*>(target));
    for (uint64_t i = 0; i < count; ++i) {
        const T* const row = source + static_cast<int64_t>(rows[i]) * step;
        TALLOW_INDEPENDENT
        for (uint64_t c = 0; c < length; ++c)
            sums[c] = add(sums[c], convert<Sum>(row[c]));
    }
    map_span(length, [](Sum x) { return convert<T>(x); }, target, static_cast<const Sum*>(sums));
}

template <typename T, typename Arguments> __attribute__((noinline)) void add_elements(const Arguments& arguments) {
    Scatter<T, Arguments> scatter(arguments);
    if (!scatter.check() || (scatter.has_rows() && scatter.run_rows(add_rows<T>)))
        return;
    if constexpr (is_small_float<T>)
        scatter.add_up();
    else
        scatter.run([](T* target, const T* value) { *target = add(*target, *value); });
}
// Integers wrap, so their sums have the same bits with and without a sign.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add(const Arguments& arguments) {
    if constexpr (is_integer<T>)
        add_elements<typename Word<sizeof(T)>::type>(arguments);
    else
        add_elements<T>(arguments);
}

} // namespace tallow
