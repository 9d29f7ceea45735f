// Elements chosen by indexes on the host.
#pragma once

#include <stdlib.h>

#include "access.hpp"
#include "arithmetic.hpp"
#include "dims.hpp"
#include "parts.hpp"
#include "span.hpp"
#include "words.hpp"

namespace tallow {

// So many positions are at hand at once.
constexpr uint64_t index_block = 1024;
// A part has about so many elements.
constexpr uint64_t index_length = 1 << 15;
// Lines side by side that are taken together: as many as keep what they reach in the cache.
constexpr uint64_t most_columns = 256;
constexpr uint64_t few_columns = 32;
constexpr uint64_t least_columns = 8;
constexpr uint64_t cached_elements = 1 << 18;
constexpr uint64_t shared_length = 1 << 19;
// So many elements of a row are added up at once.
constexpr uint64_t piece_length = 2048;

// The indexes of a call as positions. An index that is out of range is the call's error: of several the first one.
template <typename Arguments> class Positions {
  public:
    explicit Positions(const Arguments& arguments) : arguments_(arguments) {
    }

    // The positions of indexes, of which the first one has this number; -1 where there is a mark or an error. Whether
    // all name rows.
    bool load(int64_t* positions, int64_t place, int64_t stride, uint64_t count, uint64_t number) const {
        with_word(arguments_.index_bytes, [&](auto word) {
            const auto source = pointer_to<const decltype(word)>(arguments_.indexes) + place;
            if (stride == 1)
                for (uint64_t i = 0; i < count; ++i)
                    positions[i] = signed_of(source[i]);
            else
                for (uint64_t i = 0; i < count; ++i)
                    positions[i] = signed_of(source[static_cast<int64_t>(i) * stride]);
        });
        uint64_t others = 0;
        for (uint64_t i = 0; i < count; ++i)
            others |= is_row(positions[i]) ? 0u : 1u;
        if (others == 0)
            return true;
        for (uint64_t i = 0; i < count; ++i)
            if (!is_row(positions[i])) {
                if (positions[i] != arguments_.index_mark)
                    note(number + i);
                positions[i] = -1;
            }
        return false;
    }

    // Tells the host of the error, whose place is that of its number. Whether there is one.
    template <typename Place> bool tell(Place place_of) const {
        const auto told = pointer_to<int64_t>(arguments_.wrong);
        told[0] = first_ != none;
        if (first_ == none)
            return false;
        with_word(arguments_.index_bytes, [&](auto word) {
            told[1] = signed_of(pointer_to<const decltype(word)>(arguments_.indexes)[place_of(first_)]);
        });
        return true;
    }

  private:
    static constexpr uint64_t none = ~uint64_t{0};

    int64_t signed_of(uint64_t word) const {
        return static_cast<int64_t>(word << arguments_.index_shift) >> arguments_.index_shift;
    }
    bool is_row(int64_t position) const {
        return static_cast<uint64_t>(position) < arguments_.size && position != arguments_.index_mark;
    }
    void note(uint64_t number) const {
        uint64_t first = __atomic_load_n(&first_, __ATOMIC_RELAXED);
        while (number < first &&
               !__atomic_compare_exchange_n(&first_, &first, number, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }

    const Arguments& arguments_;
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
        with_word(arguments.itemsize, [&](auto word) {
            using Word = decltype(word);
            int64_t positions[index_block];
            while (number < end) {
                uint64_t length = cursor.left() < end - number ? cursor.left() : end - number;
                Word* const target = pointer_to<Word>(arguments.result) + number;
                const Word* const source = pointer_to<const Word>(arguments.source) + cursor.place(1);
                if (dims.stride(2, 0) == 0) {
                    indexes.load(positions, cursor.place(2), 0, 1, number);
                    if (positions[0] < 0)
                        __builtin_memset(target, 0, length * sizeof(Word));
                    else
                        gather_words(target, source + positions[0] * arguments.row_stride, dims.stride(1, 0), length);
                } else {
                    length = length < index_block ? length : index_block;
                    const bool are_rows = indexes.load(positions, cursor.place(2), dims.stride(2, 0), length, number);
                    const int64_t step = dims.stride(1, 0);
                    const auto place_of = [&](uint64_t i) {
                        return static_cast<int64_t>(i) * step + positions[i] * arguments.row_stride;
                    };
                    if (are_rows)
                        for (uint64_t i = 0; i < length; ++i)
                            target[i] = source[place_of(i)];
                    else
                        for (uint64_t i = 0; i < length; ++i)
                            target[i] = positions[i] < 0 ? Word{0} : source[place_of(i)];
                }
                cursor.advance(length);
                number += length;
            }
        });
    };
    do_parts(arguments, (arguments.count + index_length - 1) / index_length, take_part);
    indexes.tell([&](uint64_t number) { return dims.place(2, number); });
}

// Elements of the source brought to where the destination has their indexes: operand 0 is the destination, 1 the
// source, 2 the indexes. Lines along the chosen dim are taken side by side where the source has them so. Of a line,
// parts take ranges of the destination, so that no two write one element, and each is written in the order of the
// source.
template <typename T, typename Arguments> class Scatter {
  public:
    explicit Scatter(const Arguments& arguments)
        : arguments_(arguments), lines_(lines_of(arguments)), positions_(arguments),
          length_(arguments.dims[arguments.dim]), row_stride_(arguments.strides[arguments.dim]),
          source_step_(arguments.strides[max_rank + arguments.dim]),
          index_step_(arguments.strides[2 * max_rank + arguments.dim]) {
        lines_count_ = 1;
        for (uint32_t d = 0; d < lines_.rank(); ++d)
            lines_count_ *= lines_.size(d);
        // Threads that share lines read the same indexes.
        const bool is_shared = lines_count_ * length_ >= shared_length;
        if (lines_.size(0) >= least_columns && lines_.stride(1, 0) < source_step_) {
            const auto is_wide = [&] {
                return columns_ * arguments.size > cached_elements ||
                       (is_shared && lines_count_ / columns_ < arguments.threads);
            };
            for (columns_ = most_columns; columns_ > few_columns && is_wide();)
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
    bool check() const {
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
            int64_t held[index_block];
            while (number < end) {
                uint64_t length = cursor.left() < end - number ? cursor.left() : end - number;
                length = length < index_block ? length : index_block;
                positions_.load(held, cursor.place(1), dims.stride(1, 0), length, number);
                cursor.advance(length);
                number += length;
            }
        };
        do_parts(arguments_, (count + index_length - 1) / index_length, check_part);
        return !positions_.tell([&](uint64_t number) { return dims.place(1, number); });
    }

    // Whether lines side by side share the indexes: whole rows are brought to whole rows.
    bool has_rows() const {
        for (uint32_t d = 0; d < lines_.rank(); ++d)
            if (lines_.stride(2, d) != 0)
                return false;
        return columns_ != 0 && lines_.stride(0, 0) == 1 && lines_.stride(1, 0) == 1;
    }

    // Calls apply(elements of a row of the destination, elements of the rows of the source for it in order, how many
    // rows these are, how many elements) for parts of all rows that the indexes name. Whether there was memory for it.
    template <typename Apply> bool run_rows(const Apply& apply) const {
        // The numbers of the source's rows, those of each row of the destination one after the other.
        const auto ends = static_cast<uint64_t*>(::calloc(arguments_.size + 1, sizeof(uint64_t)));
        const auto order = static_cast<uint64_t*>(::malloc(length_ * sizeof(uint64_t)));
        const bool is_there = ends != nullptr && order != nullptr;
        if (is_there) {
            for_positions([=](uint64_t, uint64_t row) { ++ends[row + 1]; });
            for (uint64_t row = 0; row < arguments_.size; ++row)
                ends[row + 1] += ends[row];
            for_positions([=](uint64_t i, uint64_t row) { order[ends[row]++] = i; });
            const uint64_t width = lines_.size(0);
            const uint64_t outer = lines_count_ / width;
            const uint64_t pieces = (width + piece_length - 1) / piece_length;
            const uint64_t together = index_length / (width < piece_length ? width : piece_length) + 1;
            const uint64_t blocks = (arguments_.size + together - 1) / together;
            do_parts(arguments_, outer * pieces * blocks, [=](uint64_t part) {
                const uint64_t column = part % pieces * piece_length;
                const uint64_t count = width - column < piece_length ? width - column : piece_length;
                const uint64_t line = part / pieces / blocks * width + column;
                T* const target = pointer_to<T>(arguments_.destination) + lines_.place(0, line);
                const T* const values = pointer_to<const T>(arguments_.source) + lines_.place(1, line);
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
        return is_there;
    }

    // Calls apply(element of the destination, its number, element of the source) for all, in order for each place.
    template <typename... Applies> void run(Applies... applies) const {
        const auto do_part = [=](uint64_t part) {
            const uint64_t range = part % ranges_;
            const Range rows = {static_cast<int64_t>(arguments_.size * range / ranges_),
                                static_cast<int64_t>(arguments_.size * (range + 1) / ranges_)};
            (block(part / ranges_, rows, applies), ...);
        };
        do_parts(arguments_, blocks_ * ranges_, do_part);
    }

  private:
    struct Range {
        int64_t first;
        int64_t end;
    };

    // Calls visit(number of the index, the row that it names) for all indexes of a line but marks.
    template <typename Visit> void for_positions(const Visit& visit) const {
        int64_t positions[index_block];
        for (uint64_t i = 0; i < length_; i += index_block) {
            const uint64_t count = length_ - i < index_block ? length_ - i : index_block;
            positions_.load(positions, lines_.place(2, 0) + static_cast<int64_t>(i) * index_step_, index_step_, count,
                            0);
            for (uint64_t k = 0; k < count; ++k)
                if (positions[k] >= 0)
                    visit(i + k, static_cast<uint64_t>(positions[k]));
        }
    }

    static Dims lines_of(const Arguments& arguments) {
        uint64_t sizes[max_rank];
        for (uint32_t d = 0; d < arguments.rank; ++d)
            sizes[d] = d == arguments.dim ? 1 : arguments.dims[d];
        return Dims(3, arguments.rank, sizes, arguments.strides);
    }

    template <typename Apply> void block(uint64_t block, Range rows, const Apply& apply) const {
        int64_t positions[index_block];
        T* const destination = pointer_to<T>(arguments_.destination);
        const T* const source = pointer_to<const T>(arguments_.source);
        if (columns_ == 0) {
            const uint64_t end = (block + 1) * together_ < lines_count_ ? (block + 1) * together_ : lines_count_;
            for (uint64_t line = block * together_; line < end; ++line)
                for (uint64_t i = 0; i < length_; i += index_block) {
                    const uint64_t count = length_ - i < index_block ? length_ - i : index_block;
                    const auto at = static_cast<int64_t>(i);
                    positions_.load(positions, lines_.place(2, line) + at * index_step_, index_step_, count, 0);
                    each(positions, rows, apply, count, destination + lines_.place(0, line), 0,
                         source + lines_.place(1, line) + at * source_step_, source_step_, line * arguments_.size, 0,
                         1);
                }
            return;
        }
        const uint64_t row = block / row_pieces_;
        const uint64_t column = block % row_pieces_ * columns_;
        const uint64_t count = lines_.size(0) - column < columns_ ? lines_.size(0) - column : columns_;
        const uint64_t line = row * lines_.size(0) + column;
        T* const target = destination + lines_.place(0, line);
        const T* values = source + lines_.place(1, line);
        int64_t place = lines_.place(2, line);
        const int64_t index_stride = lines_.stride(2, 0);
        const uint64_t number = row * lines_.size(0) * arguments_.size + column;
        for (uint64_t i = 0; i < length_; ++i, values += source_step_, place += index_step_) {
            if (index_stride != 0) {
                positions_.load(positions, place, index_stride, count, 0);
                each(positions, rows, apply, count, target, lines_.stride(0, 0), values, lines_.stride(1, 0), number, 1,
                     lines_.size(0));
                continue;
            }
            positions_.load(positions, place, 0, 1, 0);
            if (positions[0] >= rows.first && positions[0] < rows.end)
                whole(apply, count, target + positions[0] * row_stride_, values,
                      number + static_cast<uint64_t>(positions[0]) * lines_.size(0));
        }
    }

    template <typename Apply>
    TALLOW_INLINE void each(const int64_t* positions, Range rows, const Apply& apply, uint64_t count, T* target,
                            int64_t step, const T* values, int64_t values_step, uint64_t number, uint64_t number_step,
                            uint64_t number_row) const {
        for (uint64_t i = 0; i < count; ++i)
            if (positions[i] >= rows.first && positions[i] < rows.end)
                apply(target + static_cast<int64_t>(i) * step + positions[i] * row_stride_,
                      number + i * number_step + static_cast<uint64_t>(positions[i]) * number_row,
                      values + static_cast<int64_t>(i) * values_step);
    }

    // Elements of all columns to one row.
    template <typename Apply>
    TALLOW_INLINE void whole(const Apply& apply, uint64_t count, T* target, const T* values, uint64_t number) const {
        const int64_t step = lines_.stride(0, 0);
        const int64_t values_step = lines_.stride(1, 0);
        if (step == 1 && values_step == 1) {
            TALLOW_INDEPENDENT
            for (uint64_t i = 0; i < count; ++i)
                apply(target + i, number + i, values + i);
        } else {
            for (uint64_t i = 0; i < count; ++i)
                apply(target + static_cast<int64_t>(i) * step, number + i,
                      values + static_cast<int64_t>(i) * values_step);
        }
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
};

template <typename Word, typename Arguments> TALLOW_INLINE void scatter_set(const Arguments& arguments) {
    const Scatter<Word, Arguments> scatter(arguments);
    if (scatter.check())
        scatter.run([](Word* target, uint64_t, const Word* value) { *target = *value; });
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

// Floats of fewer bits are added up in `sums`, which has room for all that the lines reach, and rounded once.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add(const Arguments& arguments) {
    const Scatter<T, Arguments> scatter(arguments);
    if (!scatter.check() || (scatter.has_rows() && scatter.run_rows(add_rows<T>)))
        return;
    if constexpr (is_small_float<T>) {
        float* const sums = pointer_to<float>(arguments.sums);
        scatter.run([=](T* target, uint64_t number, const T*) { sums[number] = to_float(*target); },
                    [=](T*, uint64_t number, const T* value) { sums[number] += to_float(*value); },
                    [=](T* target, uint64_t number, const T*) { *target = round_from<T>(sums[number]); });
    } else {
        scatter.run([](T* target, uint64_t, const T* value) { *target = add(*target, *value); });
    }
}

} // namespace tallow
