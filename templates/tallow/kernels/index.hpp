// Elements chosen by an index: gathered, scattered and added, each sum in the order of its positions.
#pragma once

#include "arithmetic.hpp"
#include "produce.hpp"

namespace tallow {

// The first index out of range since the host last looked. `state` is 0 while there is none.
struct IndexError {
    uint32_t state;
    uint32_t op;
    int64_t index;
    int64_t size;
};
static_assert(sizeof(IndexError) == 24, "the host reads it back");

constexpr int64_t no_row = -1;

// The row that an index names, or `no_row` for the mark and for an index out of range, which is recorded. The dtype of
// the indexes is the same for a whole launch, so that the switch costs no divergence.
template <typename Arguments> TALLOW_INLINE int64_t read_row(const Arguments& arguments, uint64_t place) {
    int64_t index = 0;
    int64_t mark = 0;
    switch (arguments.index_kind) {
    case 0:
        index = pointer_to<const uint8_t>(arguments.indexes)[place];
        mark = no_row;
        break;
    case 1:
        index = pointer_to<const uint32_t>(arguments.indexes)[place];
        mark = Traits<uint32_t>::highest;
        break;
    case 2:
        index = pointer_to<const int16_t>(arguments.indexes)[place];
        mark = Traits<int16_t>::highest;
        break;
    case 3:
        index = pointer_to<const int32_t>(arguments.indexes)[place];
        mark = Traits<int32_t>::highest;
        break;
    default:
        index = pointer_to<const int64_t>(arguments.indexes)[place];
        mark = Traits<int64_t>::highest;
    }
    if (static_cast<uint64_t>(index) < arguments.size && index != mark)
        return index;
    if (index != mark || arguments.index_kind == 0) {
        IndexError* const error = pointer_to<IndexError>(arguments.errors);
        if (atomic_compare_exchange(&error->state, 0, 1) == 0) {
            error->op = arguments.op;
            error->index = index;
            error->size = static_cast<int64_t>(arguments.size);
        }
    }
    return no_row;
}

// Operand 0 is the indexes, operand 1 the source, whose stride along the chosen dim is row_stride instead.
template <typename T, typename Arguments> struct GatherFunction {
    const Arguments& arguments;
    TALLOW_INLINE T operator()(const uint64_t (&offsets)[2]) const {
        const int64_t row = read_row(arguments, offsets[0]);
        const uint64_t place = offsets[1] + static_cast<uint64_t>(row) * arguments.row_stride;
        return row == no_row ? T{} : pointer_to<const T>(arguments.source)[place];
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void gather(const Arguments& arguments) {
    produce<2, T>(arguments, GatherFunction<T, Arguments>{arguments});
}

// Calls function(position, place in the destination, place in the source) for every source element that has a row.
// Operand 0 is the indexes, operand 1 the destination without its stride along the chosen dim, operand 2 the source.
template <typename Arguments, typename Function>
TALLOW_INLINE void for_each_scattered(const Arguments& arguments, Function function) {
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < arguments.count; index += threads) {
        uint64_t offsets[3];
        locate(arguments, index, offsets);
        const int64_t row = read_row(arguments, offsets[0]);
        if (row != no_row)
            function(index, offsets[1] + static_cast<uint64_t>(row) * arguments.row_stride, offsets[2]);
    }
}

// The last position that writes an element wins: the highest is found first, then only it writes.
struct MarkWinner {
    uint32_t* winners;
    TALLOW_INLINE void operator()(uint32_t index, uint64_t place, uint64_t) const {
        atomic_maximum(winners + place, index + 1);
    }
};
template <typename T> struct WriteWinner {
    const uint32_t* winners;
    T* destination;
    const T* source;
    TALLOW_INLINE void operator()(uint32_t index, uint64_t place, uint64_t source_place) const {
        if (winners[place] == index + 1)
            destination[place] = source[source_place];
    }
};
template <typename Arguments> TALLOW_INLINE void mark_winners(const Arguments& arguments) {
    for_each_scattered(arguments, MarkWinner{pointer_to<uint32_t>(arguments.winners)});
}
template <typename T, typename Arguments> TALLOW_INLINE void scatter_set(const Arguments& arguments) {
    for_each_scattered(arguments,
                       WriteWinner<T>{pointer_to<const uint32_t>(arguments.winners),
                                      pointer_to<T>(arguments.destination), pointer_to<const T>(arguments.source)});
}

// A thread walks the positions of one line along the chosen dim. The destination is in the compute dtype.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_lines(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t ahead = 4;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t line = block_index() * block_size + thread_index(); line < arguments.lines; line += threads) {
        uint64_t offsets[3];
        locate(arguments, line, offsets);
        Value* const destination = pointer_to<Value>(arguments.destination) + offsets[1];
        const T* const source = pointer_to<const T>(arguments.source) + offsets[2];
        for (uint32_t base = 0; base < arguments.length; base += ahead) {
            int64_t rows[ahead];
            Value values[ahead];
#pragma unroll
            for (uint32_t i = 0; i < ahead; ++i) {
                const uint32_t position = base + i;
                rows[i] = no_row;
                values[i] = Value{0};
                if (position < arguments.length) {
                    rows[i] = read_row(arguments, offsets[0] + position * arguments.index_stride);
                    values[i] = to_compute(source[position * arguments.source_stride]);
                }
            }
#pragma unroll
            for (uint32_t i = 0; i < ahead; ++i) {
                if (rows[i] != no_row) {
                    Value* const place = destination + static_cast<uint64_t>(rows[i]) * arguments.row_stride;
                    *place = add(*place, values[i]);
                }
            }
        }
    }
}

// Where each position goes, as keys to sort by: ~0 for a position that goes nowhere.
template <typename Arguments> TALLOW_INLINE void make_keys(const Arguments& arguments) {
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < arguments.count; index += threads) {
        uint64_t offsets[2];
        locate(arguments, index, offsets);
        const int64_t row = read_row(arguments, offsets[0]);
        const uint64_t place = offsets[1] + static_cast<uint64_t>(row) * arguments.row_stride;
        pointer_to<uint32_t>(arguments.keys)[index] = row == no_row ? ~0u : static_cast<uint32_t>(place);
        pointer_to<uint32_t>(arguments.positions)[index] = index;
    }
}

// The thread at the first of equal keys adds up all of them, in the order of their positions, and rounds once.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_sorted(const Arguments& arguments) {
    const uint32_t* const keys = pointer_to<const uint32_t>(arguments.keys);
    const uint32_t* const positions = pointer_to<const uint32_t>(arguments.positions);
    const T* const source = pointer_to<const T>(arguments.source);
    T* const destination = pointer_to<T>(arguments.destination);
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t first = block_index() * block_size + thread_index(); first < arguments.count; first += threads) {
        const uint32_t key = keys[first];
        if (key == ~0u || (first > 0 && keys[first - 1] == key))
            continue;
        auto sum = to_compute(destination[key]);
        for (uint32_t i = first; i < arguments.count && keys[i] == key; ++i) {
            uint64_t offsets[1];
            locate(arguments, positions[i], offsets);
            sum = add(sum, to_compute(source[offsets[0]]));
        }
        destination[key] = convert<T>(sum);
    }
}

// starts[key] = the first place of the key; keys that do not occur keep the ~0 that the launcher wrote.
template <typename Arguments> TALLOW_INLINE void find_starts(const Arguments& arguments) {
    const uint32_t* const keys = pointer_to<const uint32_t>(arguments.keys);
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t i = block_index() * block_size + thread_index(); i < arguments.count; i += threads)
        if (keys[i] != ~0u && (i == 0 || keys[i - 1] != keys[i]))
            pointer_to<uint32_t>(arguments.starts)[keys[i]] = i;
}

// N elements of the result in one row of it. Operand 0 is the source that is copied, operand 1 the one that is added,
// without its stride along the chosen dim, and operand 2 has stride 1 along that dim and none else: the row.
template <uint32_t N, typename T, typename Arguments>
TALLOW_INLINE Pack<T, N> add_rows(const Arguments& arguments, const uint64_t (&offsets)[3]) {
    const uint32_t* const keys = pointer_to<const uint32_t>(arguments.keys);
    const uint32_t* const positions = pointer_to<const uint32_t>(arguments.positions);
    Pack<T, N> pack = load_run<N>(pointer_to<const T>(arguments.source) + offsets[0], arguments.strides[0]);
    uint32_t entry = pointer_to<const uint32_t>(arguments.starts)[offsets[2]];
    if (entry == ~0u)
        return pack;
    compute_type<T> sums[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        sums[i] = to_compute(pack.values[i]);
    const uint32_t key = keys[entry];
    for (; entry < arguments.entries && keys[entry] == key; ++entry) {
        const T* const added =
            pointer_to<const T>(arguments.added) + offsets[1] + positions[entry] * arguments.added_stride;
        const Pack<T, N> values = load_run<N>(added, arguments.strides[max_rank]);
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            sums[i] = add(sums[i], to_compute(values.values[i]));
    }
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        pack.values[i] = convert<T>(sums[i]);
    return pack;
}

template <typename T, typename Arguments> TALLOW_INLINE void index_add(const Arguments& arguments) {
    constexpr uint32_t length = pack_length<T> > 8 ? 8 : pack_length<T>;
    T* const result = pointer_to<T>(arguments.result);
    const uint32_t step = grid_blocks() * block_size * length;
    for (uint32_t first = (block_index() * block_size + thread_index()) * length; first < arguments.count;
         first += step) {
        uint64_t offsets[3];
        const uint32_t column = locate(arguments, first, offsets);
        if (column + length <= arguments.dims[0] && arguments.strides[2 * max_rank] == 0) {
            store_guarded(result, first, arguments.count, add_rows<length, T>(arguments, offsets));
        } else {
#pragma unroll 1
            for (uint32_t i = first; i < first + length && i < arguments.count; ++i) {
                locate(arguments, i, offsets);
                result[i] = add_rows<1, T>(arguments, offsets).values[0];
            }
        }
    }
}

} // namespace tallow
