// Copies on the host whose dims are padded, cut, rolled or reversed.
#pragma once

#include "access.hpp"
#include "threads.hpp"
#include "words.hpp"

namespace tallow {

// Bytes that a part writes.
constexpr uint64_t padded_bytes = 1 << 17;

// Writes a result row after row: each is up to three runs, whose elements have the stride `step` in a dense row of the
// source.
template <typename Word, typename Arguments> class Padding {
  public:
    explicit Padding(const Arguments& arguments) : arguments_(arguments), value_(static_cast<Word>(arguments.value)) {
        for (uint32_t d = 0; d < arguments.rank; ++d)
            count_ *= arguments.dims[d];
        for (uint32_t run = 0; run < sizeof(runs_) / sizeof(Run); ++run)
            runs_[run] = {arguments.ends[run * max_rank], arguments.origins[run * max_rank],
                          arguments.steps[run * max_rank]};
        has_one_run_ = runs_[0].end >= arguments.dims[0] && runs_[0].step != 0;
    }

    void run(Pool& threads) const {
        threads.run([](const void* padding, uint64_t part) { static_cast<const Padding*>(padding)->part(part); }, this,
                    (count_ + part_length - 1) / part_length, arguments_.threads);
    }

  private:
    static constexpr uint64_t part_length = padded_bytes / sizeof(Word);
    // Bytes of an access to a long row, and the accesses from which on a call of memcpy takes less time.
    static constexpr uint64_t long_bytes = 64, few = 16;

    // Of the innermost dim.
    struct Run {
        uint64_t end;
        int64_t origin;
        int64_t step;
    };

    void part(uint64_t part) const {
        const uint64_t begin = part * part_length, width = arguments_.dims[0], height = arguments_.dims[1];
        Word* target = pointer_to<Word>(arguments_.result) + begin;
        uint64_t left = count_ - begin < part_length ? count_ - begin : part_length;
        uint64_t row = begin / width, first = begin % width;
        while (left != 0) {
            const Word* const plane = plane_of(row / height);
            for (uint64_t y = row % height, rows = 0; y < height && left != 0; y += rows, row += rows) {
                const Word* const source = inside(plane, 1, y);
                uint64_t length = width - first < left ? width - first : left;
                rows = 1;
                if (has_one_run_ && length == width) {
                    const uint64_t run = run_of(1, y), end = run < 2 ? arguments_.ends[run * max_rank + 1] : height;
                    rows = (end < height ? end : height) - y;
                    rows = rows < left / width ? rows : left / width;
                    write_rows(target, source, arguments_.steps[run * max_rank + 1] * arguments_.strides[1], rows);
                    length = rows * width;
                } else {
                    write(target, source, first, first + length);
                }
                target += length;
                left -= length;
                first = 0;
            }
        }
    }

    // Where the rows of a plane begin; null if they are filled.
    const Word* plane_of(uint64_t number) const {
        const Word* plane = pointer_to<const Word>(arguments_.source);
        for (uint32_t d = 2; d < arguments_.rank; number /= arguments_.dims[d++])
            plane = inside(plane, d, number % arguments_.dims[d]);
        return plane;
    }

    // Of a dim, the run in which a position is.
    TALLOW_INLINE uint32_t run_of(uint32_t d, uint64_t at) const {
        return (at >= arguments_.ends[d]) + (at >= arguments_.ends[max_rank + d]);
    }

    TALLOW_INLINE const Word* inside(const Word* base, uint32_t d, uint64_t at) const {
        const uint32_t run = run_of(d, at);
        const int64_t element =
            arguments_.origins[run * max_rank + d] + arguments_.steps[run * max_rank + d] * static_cast<int64_t>(at);
        return base == nullptr || element < 0 ? nullptr : base + element * arguments_.strides[d];
    }

    // Writes rows of one run each, whose sources have a stride.
    TALLOW_INLINE void write_rows(Word* __restrict target, const Word* __restrict source, int64_t stride,
                                  uint64_t rows) const {
        const uint64_t width = arguments_.dims[0];
        const auto write_each = [=](auto write_row) {
            for (uint64_t i = 0; i < rows; ++i)
                write_row(target + i * width, source + static_cast<int64_t>(i) * stride);
        };
        constexpr uint64_t many = long_bytes / sizeof(Word);
        const int64_t origin = runs_[0].origin;
        if (source == nullptr)
            fill(target, value_, rows * width);
        else if (runs_[0].step > 0)
            write_each([=](Word* to, const Word* from) { copy(to, from + origin, width); });
        else if (width < many)
            write_each([=](Word* to, const Word* from) { reverse(to, from + origin, width); });
        else
            write_each([=](Word* to, const Word* from) { reverse_by<many>(to, from + origin, width); });
    }

    // Writes the positions of a row from one to another.
    TALLOW_INLINE void write(Word* __restrict target, const Word* __restrict source, uint64_t begin,
                             uint64_t end) const {
        if (source == nullptr) {
            fill(target, value_, end - begin);
            return;
        }
        for (const Run* run = runs_; begin < end; ++run) {
            if (run->end <= begin)
                continue;
            const uint64_t length = (run->end < end ? run->end : end) - begin;
            const int64_t element = run->origin + run->step * static_cast<int64_t>(begin);
            if (run->step > 0)
                copy(target, source + element, length);
            else if (run->step == 0)
                fill(target, element < 0 ? value_ : source[element], length);
            else
                reverse(target, source + element, length);
            target += length;
            begin += length;
        }
    }

    // Most borders have one element or two, of which a vectorised loop only learns that they are few.
    static TALLOW_INLINE void fill(Word* target, Word value, uint64_t length) {
        target[0] = target[length - 1] = value;
        if (length > 2)
            for (uint64_t i = 0; i < length; ++i)
                target[i] = value;
    }
    static TALLOW_INLINE void reverse(Word* target, const Word* last, uint64_t length) {
        constexpr uint64_t lanes = access_bytes / sizeof(Word), many = long_bytes / sizeof(Word);
        target[0] = last[0];
        target[length - 1] = last[1 - static_cast<int64_t>(length)];
        if (length >= many)
            reverse_by<many>(target, last, length);
        else if (length > lanes)
            reverse_by<lanes>(target, last, length);
        else if (length > 2)
            for (uint64_t i = 0; i < length; ++i)
                target[i] = last[-static_cast<int64_t>(i)];
    }
    // Whole accesses, as in copy_few.
    template <uint64_t Lanes> static TALLOW_INLINE void reverse_by(Word* target, const Word* last, uint64_t length) {
        const auto access = [=](uint64_t i) {
            Word words[Lanes], reversed[Lanes];
            __builtin_memcpy(words, last - i - (Lanes - 1), sizeof words);
            for (uint64_t j = 0; j < Lanes; ++j)
                reversed[j] = words[Lanes - 1 - j];
            __builtin_memcpy(target + i, reversed, sizeof reversed);
        };
#pragma GCC unroll 1
        for (uint64_t i = 0; i < length - Lanes; i += Lanes)
            access(i);
        access(length - Lanes);
    }
    static TALLOW_INLINE void copy(Word* target, const Word* source, uint64_t length) {
        constexpr uint64_t lanes = access_bytes / sizeof(Word), many = long_bytes / sizeof(Word);
        if (length < lanes)
            for (uint64_t i = 0; i < length; ++i)
                target[i] = source[i];
        else if (length < many)
            copy_few<lanes>(target, source, length);
        else if (length < few * many)
            copy_few<many>(target, source, length);
        else
            __builtin_memcpy(target, source, length * sizeof(Word));
    }
    // Whole accesses, of which the last one may overlap the one in front of it: a call of memcpy takes longer.
    template <uint64_t Lanes> static TALLOW_INLINE void copy_few(Word* target, const Word* source, uint64_t length) {
        for (uint64_t i = 0; i < length - Lanes; i += Lanes)
            __builtin_memcpy(target + i, source + i, Lanes * sizeof(Word));
        __builtin_memcpy(target + length - Lanes, source + length - Lanes, Lanes * sizeof(Word));
    }

    const Arguments& arguments_;
    const Word value_;
    Run runs_[3];
    uint64_t count_ = 1;
    bool has_one_run_ = false;
};

template <typename Arguments> TALLOW_INLINE void pad_rows(const Arguments& arguments) {
    with_word(arguments.itemsize, [&](auto word) { Padding<decltype(word), Arguments>(arguments).run(pool); });
}

} // namespace tallow
