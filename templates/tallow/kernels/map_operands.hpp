// Elementwise functions of operands of any layout: they are brought into spans, on which kernels work.
#pragma once

#include "access.hpp"
#include "threads.hpp"

namespace tallow {

constexpr uint32_t most_operands = 3;
// A part has so many elements, and a block of it so many, which stay in the nearest cache while they are brought into
// spans.
constexpr uint64_t part_length = 1 << 15;
constexpr uint64_t block_length = 1024;
// Shorter rows are joined.
constexpr uint64_t least_row = 256;
// Elements of an operand that lie side by side in another dim than those of the result are read in tiles: whole lines
// of the cache.
constexpr uint64_t line_bytes = 64;
constexpr uint64_t tile_columns = 256;
constexpr uint64_t buffer_bytes = tile_columns * line_bytes;
static_assert(buffer_bytes >= block_length * 8, "a block of the widest elements fits");

template <typename Word>
TALLOW_INLINE void gather_words(Word* target, const Word* source, int64_t stride, uint64_t count) {
    if (stride == 0) {
        const Word word = *source;
        for (uint64_t i = 0; i < count; ++i)
            target[i] = word;
    } else if (stride == 1) {
        __builtin_memcpy(target, source, count * sizeof(Word));
    } else {
        for (uint64_t i = 0; i < count; ++i)
            target[i] = source[static_cast<int64_t>(i) * stride];
    }
}

// `rows` rows of `columns` elements, the rows side by side in memory; those of the target are `columns` apart.
template <typename Word>
TALLOW_INLINE void gather_tile(Word* target, const Word* source, int64_t column_stride, int64_t row_stride,
                               uint64_t columns, uint64_t rows) {
    for (uint64_t c = 0; c < columns; ++c)
        for (uint64_t r = 0; r < rows; ++r)
            target[r * columns + c] =
                source[static_cast<int64_t>(c) * column_stride + static_cast<int64_t>(r) * row_stride];
}

// Calls visit(word) with a word of so many bytes.
template <typename Visit> TALLOW_INLINE void with_word(uint32_t bytes, Visit visit) {
    if (bytes == 1)
        visit(uint8_t{});
    else if (bytes == 2)
        visit(uint16_t{});
    else if (bytes == 4)
        visit(uint32_t{});
    else
        visit(uint64_t{});
}

// A call on operands whose dims are merged where all of them allow it, the innermost first.
template <typename Span, typename Arguments> class Map {
  public:
    explicit Map(const Arguments& arguments) : arguments_(arguments) {
        for (uint32_t d = 0; d < arguments.rank; ++d)
            add_dim(arguments.dims[d], d);
        if (rank_ == 0)
            add_whole_dim(1, arguments.rank);
        for (uint32_t k = 0; k < arguments.operands; ++k) {
            int64_t length = 1;
            is_dense_[k] = true;
            for (uint32_t d = 0; d < rank_; ++d) {
                is_dense_[k] = is_dense_[k] && strides_[k][d] == length;
                length *= static_cast<int64_t>(dims_[d]);
            }
        }
        find_turned();
    }

    void run(Pool& threads) const {
        if (turned_ != 0)
            threads.run([](const void* map, uint64_t part) { static_cast<const Map*>(map)->tile(part); }, this, tiles(),
                        arguments_.threads);
        else
            threads.run([](const void* map, uint64_t part) { static_cast<const Map*>(map)->part(part); }, this,
                        (arguments_.count + part_length - 1) / part_length, arguments_.threads);
    }

  private:
    void add_whole_dim(uint64_t size, uint32_t from) {
        dims_[rank_] = size;
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            strides_[k][rank_] = from < arguments_.rank ? arguments_.strides[k * max_rank + from] : 1;
        ++rank_;
    }
    void add_dim(uint64_t size, uint32_t from) {
        if (size == 1)
            return;
        bool merges = rank_ > 0;
        for (uint32_t k = 0; k < arguments_.operands && merges; ++k)
            merges = arguments_.strides[k * max_rank + from] ==
                     strides_[k][rank_ - 1] * static_cast<int64_t>(dims_[rank_ - 1]);
        if (merges)
            dims_[rank_ - 1] *= size;
        else
            add_whole_dim(size, from);
    }
    // The dim in which an operand's elements are side by side, if that is not the innermost one, and both are long.
    void find_turned() {
        constexpr uint64_t least = 8;
        uint32_t widest = 1;
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            widest = widest < arguments_.itemsizes[1 + k] ? arguments_.itemsizes[1 + k] : widest;
        tile_rows_ = line_bytes / widest;
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            for (uint32_t d = 1; d < rank_; ++d)
                if (strides_[k][d] == 1 && dims_[d] >= least && dims_[0] >= least &&
                    (strides_[k][0] > 1 || strides_[k][0] < 0)) {
                    turned_ = d;
                    return;
                }
    }

    const uint8_t* source(uint32_t k, int64_t place) const {
        return pointer_to<const uint8_t>(arguments_.sources[k]) +
               place * static_cast<int64_t>(arguments_.itemsizes[1 + k]);
    }

    void call(uint64_t first, uint64_t count, const void* const (&places)[most_operands]) const {
        Span span{};
        static_assert(sizeof(span.parameters) == sizeof(arguments_.parameters), "a functor has more parameters");
        span.result = arguments_.result + first * arguments_.itemsizes[0];
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            span.sources[k] = reinterpret_cast<uint64_t>(places[k]);
        span.count = count;
        for (uint32_t p = 0; p < sizeof(span.parameters) / sizeof(span.parameters[0]); ++p)
            span.parameters[p] = arguments_.parameters[p];
        reinterpret_cast<void (*)(const Span*)>(arguments_.kernel)(&span);
    }

    struct Buffers {
        alignas(line_bytes) uint8_t bytes[most_operands][buffer_bytes];
    };

    void part(uint64_t part) const {
        const uint64_t first = part * part_length;
        const uint64_t rest = arguments_.count - first;
        const uint64_t count = rest < part_length ? rest : part_length;
        bool all = true;
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            all = all && is_dense_[k];
        const void* places[most_operands] = {};
        if (all) {
            for (uint32_t k = 0; k < arguments_.operands; ++k)
                places[k] = source(k, static_cast<int64_t>(first));
            call(first, count, places);
            return;
        }
        Buffers buffers;
        for (uint64_t done = 0; done < count;) {
            const uint64_t index = first + done;
            const uint64_t column = index % dims_[0];
            uint64_t length = count - done < block_length ? count - done : block_length;
            const bool in_row = dims_[0] >= least_row;
            if (in_row && length > dims_[0] - column)
                length = dims_[0] - column;
            for (uint32_t k = 0; k < arguments_.operands; ++k) {
                if (is_dense_[k])
                    places[k] = source(k, static_cast<int64_t>(index));
                else if (in_row && strides_[k][0] == 1)
                    places[k] = source(k, place(k, index));
                else
                    places[k] = gather(k, index, length, buffers.bytes[k]);
            }
            call(index, length, places);
            done += length;
        }
    }

    int64_t place(uint32_t k, uint64_t index) const {
        int64_t result = 0;
        for (uint32_t d = 0; d < rank_; ++d) {
            result += static_cast<int64_t>(index % dims_[d]) * strides_[k][d];
            index /= dims_[d];
        }
        return result;
    }

    const void* gather(uint32_t k, uint64_t index, uint64_t count, uint8_t* buffer) const {
        with_word(arguments_.itemsizes[1 + k], [&](auto word) {
            using Word = decltype(word);
            for (uint64_t done = 0; done < count;) {
                const uint64_t left = dims_[0] - (index + done) % dims_[0];
                const uint64_t length = left < count - done ? left : count - done;
                gather_words(reinterpret_cast<Word*>(buffer) + done,
                             reinterpret_cast<const Word*>(source(k, place(k, index + done))), strides_[k][0], length);
                done += length;
            }
        });
        return buffer;
    }

    uint64_t tiles() const {
        return arguments_.count / (dims_[0] * dims_[turned_]) * pieces(turned_, tile_rows_) * pieces(0, tile_columns);
    }
    uint64_t pieces(uint32_t dim, uint64_t length) const {
        return (dims_[dim] + length - 1) / length;
    }
    void tile(uint64_t part) const {
        const uint64_t first_column = part % pieces(0, tile_columns) * tile_columns;
        part /= pieces(0, tile_columns);
        const uint64_t first_row = part % pieces(turned_, tile_rows_) * tile_rows_;
        part /= pieces(turned_, tile_rows_);
        const uint64_t columns = dims_[0] - first_column < tile_columns ? dims_[0] - first_column : tile_columns;
        const uint64_t rows = dims_[turned_] - first_row < tile_rows_ ? dims_[turned_] - first_row : tile_rows_;
        int64_t places[most_operands];
        uint64_t result = first_column;
        uint64_t row_length = 1;
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            places[k] = static_cast<int64_t>(first_column) * strides_[k][0] +
                        static_cast<int64_t>(first_row) * strides_[k][turned_];
        uint64_t row_step = 1;
        for (uint32_t d = 0; d < rank_; ++d) {
            if (d == turned_) {
                result += first_row * row_length;
                row_step = row_length;
            } else if (d != 0) {
                const uint64_t at = part % dims_[d];
                part /= dims_[d];
                result += at * row_length;
                for (uint32_t k = 0; k < arguments_.operands; ++k)
                    places[k] += static_cast<int64_t>(at) * strides_[k][d];
            }
            row_length *= dims_[d];
        }
        Buffers buffers;
        for (uint32_t k = 0; k < arguments_.operands; ++k)
            if (strides_[k][turned_] == 1 && strides_[k][0] != 1)
                with_word(arguments_.itemsizes[1 + k], [&](auto word) {
                    using Word = decltype(word);
                    gather_tile(reinterpret_cast<Word*>(buffers.bytes[k]),
                                reinterpret_cast<const Word*>(source(k, places[k])), strides_[k][0], 1, columns, rows);
                });
        for (uint64_t r = 0; r < rows; ++r) {
            const void* spans[most_operands] = {};
            for (uint32_t k = 0; k < arguments_.operands; ++k) {
                const uint8_t* const row = source(k, places[k] + static_cast<int64_t>(r) * strides_[k][turned_]);
                if (strides_[k][0] == 1) {
                    spans[k] = row;
                } else if (strides_[k][turned_] == 1) {
                    spans[k] = buffers.bytes[k] + r * columns * arguments_.itemsizes[1 + k];
                } else {
                    with_word(arguments_.itemsizes[1 + k], [&](auto word) {
                        using Word = decltype(word);
                        gather_words(reinterpret_cast<Word*>(buffers.bytes[k]), reinterpret_cast<const Word*>(row),
                                     strides_[k][0], columns);
                    });
                    spans[k] = buffers.bytes[k];
                }
            }
            call(result + r * row_step, columns, spans);
        }
    }

    const Arguments& arguments_;
    uint32_t rank_ = 0;
    uint32_t turned_ = 0;
    uint64_t tile_rows_ = 0;
    uint64_t dims_[max_rank] = {};
    int64_t strides_[most_operands][max_rank] = {};
    bool is_dense_[most_operands] = {};
};

// Calls a kernel of Span with spans of the operands.
template <typename Span, typename Arguments> TALLOW_INLINE void map_operands(const Arguments& arguments) {
    Map<Span, Arguments>(arguments).run(pool);
}

} // namespace tallow
