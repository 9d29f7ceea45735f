// Elementwise functions of operands of any layout: operands are copied to spans, on which kernels work, and the results
// are copied to the results.
#pragma once

#include "access.hpp"
#include "dims.hpp"
#include "threads.hpp"
#include "transpose.hpp"
#include "words.hpp"

namespace tallow {

// Elements of a part, and of a block of it, which stays in the nearest cache while it is copied to spans.
constexpr uint64_t part_length = 1 << 14;
constexpr uint64_t block_length = 1024;
// Shorter rows are packed together.
constexpr uint64_t min_row = 256;
// Elements of an operand that lie side by side in another dim than those of the result are read in tiles: full lines
// of the cache.
constexpr uint64_t tile_columns = 128;
constexpr uint64_t tile_lines = 4;
constexpr uint64_t buffer_bytes = tile_columns * tile_lines * line_bytes;
static_assert(buffer_bytes >= block_length * sizeof(bits128), "a block of the widest elements fits");

// A call on operands, of which the first ones are written.
template <typename Span, typename Arguments> class Map {
  public:
    explicit Map(const Arguments& arguments)
        : arguments_(arguments), dims_(arguments.operands, arguments.rank, arguments.dims, arguments.strides) {
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            all_dense_ = all_dense_ && dims_.is_dense(k);
        if (!all_dense_)
            find_transposed();
    }

    void run(Pool& threads) const {
        if (transposed_ != 0)
            threads.run([](const void* map, uint64_t part) { static_cast<const Map*>(map)->tile(part); }, this, tiles(),
                        arguments_.threads);
        else
            threads.run([](const void* map, uint64_t part) { static_cast<const Map*>(map)->part(part); }, this,
                        (arguments_.count + part_length - 1) / part_length, arguments_.threads);
    }

  private:
    // The dim in which a source's elements are side by side, if that is not the innermost one, and both are long.
    void find_transposed() {
        constexpr uint64_t least = 8;
        uint32_t widest = 1;
        for (uint32_t k = arguments_.results; k < arguments_.operands; ++k)
            widest = widest < arguments_.itemsizes[k] ? arguments_.itemsizes[k] : widest;
        tile_rows_ = tile_lines * line_bytes / widest;
        for (uint32_t k = arguments_.results; k < arguments_.operands; ++k)
            for (uint32_t d = 1; d < dims_.rank(); ++d)
                if (dims_.stride(k, d) == 1 && dims_.size(d) >= least && dims_.size(0) >= least &&
                    dims_.stride(k, 0) > 1) {
                    transposed_ = d;
                    return;
                }
    }

    // Without a kernel the elements of the one source are only moved.
    bool only_moves() const {
        return arguments_.kernel == 0;
    }

    uint8_t* element(uint32_t k, int64_t offset) const {
        return pointer_to<uint8_t>(arguments_.addresses[k]) + offset * static_cast<int64_t>(arguments_.itemsizes[k]);
    }

    void call(uint64_t count, void* const (&addresses)[max_operands]) const {
        if (only_moves()) {
            __builtin_memcpy(addresses[0], addresses[1], count * arguments_.itemsizes[0]);
            return;
        }
        Span span{};
        static_assert(sizeof(span.parameters) == sizeof(arguments_.parameters), "a functor has more parameters");
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            (k < arguments_.results ? span.results[k] : span.sources[k - arguments_.results]) =
                reinterpret_cast<uint64_t>(addresses[k]);
        span.count = count;
        for (uint32_t p = 0; p < sizeof(span.parameters) / sizeof(span.parameters[0]); ++p)
            span.parameters[p] = arguments_.parameters[p];
        reinterpret_cast<void (*)(const Span*)>(arguments_.kernel)(&span);
    }

    struct Buffers {
        alignas(line_bytes) uint8_t bytes[max_operands][buffer_bytes];
    };

    void part(uint64_t part) const {
        const uint64_t first = part * part_length;
        const uint64_t remaining = arguments_.count - first;
        const uint64_t count = remaining < part_length ? remaining : part_length;
        void* addresses[max_operands] = {};
        if (all_dense_) {
            for (uint32_t k = 0; k < arguments_.operands; ++k)
                addresses[k] = element(k, static_cast<int64_t>(first));
            call(count, addresses);
            return;
        }
        Buffers buffers;
        const bool in_row = dims_.size(0) >= min_row;
        Cursor cursor(dims_, arguments_.operands, first);
        for (uint64_t done = 0; done < count;) {
            const uint64_t index = first + done;
            uint64_t length = count - done < block_length ? count - done : block_length;
            if (in_row && length > cursor.left())
                length = cursor.left();
            for (uint32_t k = 0; k < arguments_.operands; ++k) {
                const bool is_in_row = in_row && dims_.stride(k, 0) == 1;
                if (dims_.is_dense(k))
                    addresses[k] = element(k, static_cast<int64_t>(index));
                else
                    addresses[k] = is_in_row ? element(k, cursor.offset(k)) : buffers.bytes[k];
                if (addresses[k] == buffers.bytes[k] && k >= arguments_.results)
                    for_rows(k, index, length, [&](auto* row, uint64_t at, int64_t stride, uint64_t size) {
                        gather_words(reinterpret_cast<decltype(row)>(buffers.bytes[k]) + at, row, stride, size);
                    });
            }
            call(length, addresses);
            for (uint32_t k = 0; k < arguments_.results; ++k)
                if (addresses[k] == buffers.bytes[k])
                    for_rows(k, index, length, [&](auto* row, uint64_t at, int64_t stride, uint64_t size) {
                        scatter_words(row, reinterpret_cast<decltype(row)>(buffers.bytes[k]) + at, stride, size);
                    });
            if (in_row)
                cursor.advance(length);
            done += length;
        }
    }

    // Calls visit(words, how many came before, their stride, their number) for the rows of some elements.
    template <typename Visit> void for_rows(uint32_t k, uint64_t index, uint64_t count, Visit visit) const {
        with_element(arguments_.itemsizes[k], [&](auto word) {
            Cursor cursor(dims_, arguments_.operands, index);
            for (uint64_t done = 0; done < count;) {
                const uint64_t length = cursor.left() < count - done ? cursor.left() : count - done;
                visit(reinterpret_cast<decltype(word)*>(element(k, cursor.offset(k))), done, dims_.stride(k, 0),
                      length);
                cursor.advance(length);
                done += length;
            }
        });
    }

    uint64_t tiles() const {
        return arguments_.count / (dims_.size(0) * dims_.size(transposed_)) * pieces(transposed_, tile_rows_) *
               pieces(0, tile_columns);
    }
    uint64_t pieces(uint32_t dim, uint64_t length) const {
        return (dims_.size(dim) + length - 1) / length;
    }
    void tile(uint64_t part) const {
        // The next tile has the next lines of the same columns: a transposed source is read along its pages.
        const uint64_t first_column = part % pieces(0, tile_columns) * tile_columns;
        part /= pieces(0, tile_columns);
        const uint64_t first_row = part % pieces(transposed_, tile_rows_) * tile_rows_;
        part /= pieces(transposed_, tile_rows_);
        const uint64_t columns =
            dims_.size(0) - first_column < tile_columns ? dims_.size(0) - first_column : tile_columns;
        const uint64_t rows =
            dims_.size(transposed_) - first_row < tile_rows_ ? dims_.size(transposed_) - first_row : tile_rows_;
        int64_t first[max_operands];
        for (uint32_t k = 0; k < arguments_.operands; ++k) {
            first[k] = static_cast<int64_t>(first_column) * dims_.stride(k, 0) +
                       static_cast<int64_t>(first_row) * dims_.stride(k, transposed_);
            uint64_t remaining = part;
            for (uint32_t d = 1; d < dims_.rank(); ++d)
                if (d != transposed_) {
                    first[k] += static_cast<int64_t>(remaining % dims_.size(d)) * dims_.stride(k, d);
                    remaining /= dims_.size(d);
                }
        }
        const auto transpose = [&](uint32_t k, uint8_t* target, int64_t step) {
            with_element(arguments_.itemsizes[k], [&](auto word) {
                using Word = decltype(word);
                transpose_tile(reinterpret_cast<Word*>(target), step,
                               reinterpret_cast<const Word*>(element(k, first[k])), dims_.stride(k, 0), columns, rows);
            });
        };
        if (only_moves() && dims_.stride(0, 0) == 1) {
            transpose(1, element(0, first[0]), dims_.stride(0, transposed_));
            return;
        }
        Buffers buffers;
        for (uint32_t k = arguments_.results; k < arguments_.operands; ++k)
            if (dims_.stride(k, transposed_) == 1 && dims_.stride(k, 0) != 1)
                transpose(k, buffers.bytes[k], static_cast<int64_t>(columns));
        for (uint64_t r = 0; r < rows; ++r) {
            void* spans[max_operands] = {};
            const auto row = [&](uint32_t k) {
                return element(k, first[k] + static_cast<int64_t>(r) * dims_.stride(k, transposed_));
            };
            for (uint32_t k = 0; k < arguments_.operands; ++k) {
                spans[k] = buffers.bytes[k];
                if (dims_.stride(k, 0) == 1)
                    spans[k] = row(k);
                else if (k >= arguments_.results && dims_.stride(k, transposed_) == 1)
                    spans[k] = buffers.bytes[k] + r * columns * arguments_.itemsizes[k];
                else if (k >= arguments_.results)
                    with_element(arguments_.itemsizes[k], [&](auto word) {
                        using Word = decltype(word);
                        gather_words(reinterpret_cast<Word*>(buffers.bytes[k]), reinterpret_cast<const Word*>(row(k)),
                                     dims_.stride(k, 0), columns);
                    });
            }
            call(columns, spans);
            for (uint32_t k = 0; k < arguments_.results; ++k)
                if (spans[k] == buffers.bytes[k])
                    with_element(arguments_.itemsizes[k], [&](auto word) {
                        using Word = decltype(word);
                        scatter_words(reinterpret_cast<Word*>(row(k)), reinterpret_cast<const Word*>(buffers.bytes[k]),
                                      dims_.stride(k, 0), columns);
                    });
        }
    }

    const Arguments& arguments_;
    const Dims dims_;
    bool all_dense_ = true;
    uint32_t transposed_ = 0;
    uint64_t tile_rows_ = 0;
};

// Calls a kernel of Span with spans of the operands.
template <typename Span, typename Arguments> TALLOW_INLINE void map_operands(const Arguments& arguments) {
    Map<Span, Arguments>(arguments).run(pool);
}

// Calls a kernel of Span with elements that are its results too.
template <typename Span, typename Arguments> TALLOW_INLINE void map_in_place(const Arguments& arguments) {
    Span span{};
    span.results[0] = span.sources[0] = arguments.elements;
    span.count = arguments.count;
    reinterpret_cast<void (*)(const Span*)>(arguments.kernel)(&span);
}

} // namespace tallow
