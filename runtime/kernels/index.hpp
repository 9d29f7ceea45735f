// Elements chosen by an index: gathered, scattered and added, each sum in the order of its positions.
#pragma once

#include "arithmetic.hpp"
#include "graph.hpp"
#include "produce.hpp"
#include "read_index.hpp"
#include "sort.hpp"

namespace tallow {

// Whether an index of the call was met that is out of range, so that nothing is written. Every lane of the wave must
// take part: of a vote compilers know that all lanes get one answer, which costs later loops no registers.
template <typename Arguments> TALLOW_INLINE bool is_refused(const Arguments& arguments) {
    return ballot(pointer_to<const IndexError>(arguments.errors)->refused == arguments.call) != 0;
}

// N indexes with a stride are loaded in accesses of up to 16 bytes where they are dense.
template <typename Bytes, uint32_t N, typename Arguments>
TALLOW_INLINE void load_bytes_of_run(const Arguments& arguments, uint64_t offset, uint64_t stride,
                                     uint64_t (&loaded)[N]) {
    constexpr uint32_t length = pack_length<Bytes> < N ? pack_length<Bytes> : N;
    const Bytes* const first = pointer_to<const Bytes>(arguments.indexes) + offset;
#pragma unroll
    for (uint32_t begin = 0; begin < N; begin += length) {
        const Pack<Bytes, length> pack = load_run<length>(first + begin * stride, stride);
#pragma unroll
        for (uint32_t i = 0; i < length; ++i)
            loaded[begin + i] = pack.values[i];
    }
}
template <uint32_t N, typename Arguments>
TALLOW_INLINE void load_index_run(const Arguments& arguments, uint64_t offset, uint64_t stride, uint64_t (&loaded)[N]) {
    switch (arguments.index_bytes) {
    case 1:
        load_bytes_of_run<uint8_t>(arguments, offset, stride, loaded);
        break;
    case 2:
        load_bytes_of_run<uint16_t>(arguments, offset, stride, loaded);
        break;
    case 4:
        load_bytes_of_run<uint32_t>(arguments, offset, stride, loaded);
        break;
    default:
        load_bytes_of_run<uint64_t>(arguments, offset, stride, loaded);
    }
}

// Those from position `begin` on of a run of `Length`; operand 0 is the indexes.
template <uint32_t Length, uint32_t N, uint32_t Operands, typename Arguments>
TALLOW_INLINE void load_indexes_of_run(const Arguments& arguments, const Run<Operands>& run, uint32_t begin,
                                       uint64_t (&loaded)[N]) {
    const uint64_t step = arguments.strides[0];
    if (run.template is_in_one_row<Length>()) {
        load_index_run(arguments, run.offsets[0] + begin * step, step, loaded);
    } else {
        uint64_t index_offsets[N];
#pragma unroll
        for (uint32_t i = 0; i < N; ++i)
            index_offsets[i] = run.offset(0, begin + i, step);
        load_indexes(arguments, index_offsets, loaded);
    }
}

// Checks every index, and records the first one that is out of range. Operand 0 is the indexes.
template <typename Arguments> struct IndexChecker {
    const Arguments& arguments;
    template <uint32_t N> TALLOW_INLINE void visit(uint32_t, const Run<1>& run) const {
        uint64_t loaded[N];
        load_indexes_of_run<N>(arguments, run, 0, loaded);
        int64_t rows[N];
        find_rows(arguments, loaded, rows);
    }
};
template <typename Arguments> TALLOW_INLINE void check_indexes(const Arguments& arguments) {
    visit_runs<4, 1>(arguments, IndexChecker<Arguments>{arguments});
}

// The element of a row of the source, of which `offset` is the offset in row 0; 0 where there is no such row.
template <typename T, typename Arguments>
TALLOW_INLINE T element_of_row(const Arguments& arguments, int64_t row, uint64_t offset_in_first_row) {
    const uint64_t offset = offset_in_first_row + static_cast<uint64_t>(row) * arguments.row_stride;
    return row == no_row ? T{} : pointer_to<const T>(arguments.source)[offset];
}

// Operand 0 is the indexes, operand 1 the source, whose stride along the chosen dim is row_stride instead. Several
// indexes are loaded before any of their elements is.
template <typename T, typename Arguments> struct GatherMaker {
    const Arguments& arguments;
    template <uint32_t N> TALLOW_INLINE Pack<T, N> make(const Run<2>& run) const {
        constexpr uint32_t ahead = N < 4 ? N : 4;
        Pack<T, N> pack;
#pragma unroll
        for (uint32_t begin = 0; begin < N; begin += ahead) {
            uint64_t loaded[ahead];
            load_indexes_of_run<N>(arguments, run, begin, loaded);
            int64_t rows[ahead];
            find_rows(arguments, loaded, rows);
#pragma unroll
            for (uint32_t i = 0; i < ahead; ++i)
                pack.values[begin + i] =
                    element_of_row<T>(arguments, rows[i], run.offset(1, begin + i, arguments.strides[max_rank]));
        }
        return pack;
    }
};
// Elements of a full access: of many, a thread has several in flight, since each waits for its index first. The others
// are a block further on.
template <uint32_t N, typename T, typename Arguments>
TALLOW_INLINE void gather_accesses(const Arguments& arguments, uint32_t first) {
    uint64_t index_offsets[N];
    uint64_t in_source[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const uint32_t number = first + i * block_size;
        uint64_t offsets[2];
        locate(arguments, number < arguments.count ? number : arguments.count - 1, offsets);
        index_offsets[i] = offsets[0];
        in_source[i] = offsets[1];
    }
    uint64_t loaded[N];
    load_indexes(arguments, index_offsets, loaded);
    int64_t rows[N];
    find_rows(arguments, loaded, rows);
    T values[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        values[i] = element_of_row<T>(arguments, rows[i], in_source[i]);
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        if (first + i * block_size < arguments.count)
            pointer_to<T>(arguments.result)[first + i * block_size] = values[i];
}
template <typename T, typename Arguments> TALLOW_INLINE void gather(const Arguments& arguments) {
    if constexpr (strided_length<T> != 1) {
        produce_packs<2, T>(arguments, GatherMaker<T, Arguments>{arguments});
    } else if (grid_blocks() * block_size >= arguments.count) {
        gather_accesses<1, T>(arguments, block_index() * block_size + thread_index());
    } else {
        const uint32_t step = grid_blocks() * block_size * copy_elements;
        for (uint32_t base = block_index() * block_size * copy_elements; base < arguments.count; base += step)
            gather_accesses<copy_elements, T>(arguments, base + thread_index());
    }
}

// Calls function(position, offset in the destination, offset in the source) for every source element that has a row.
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

// The last position that writes an element wins: the highest is determined first, then only it writes. Where all have
// one index there is nothing to find, and no array of winners.
struct MarkWinner {
    uint32_t* winners;
    TALLOW_INLINE void operator()(uint32_t index, uint64_t offset, uint64_t) const {
        atomic_maximum(winners + offset, index + 1);
    }
};
template <typename T> struct WriteWinner {
    const uint32_t* winners;
    T* destination;
    const T* source;
    TALLOW_INLINE void operator()(uint32_t index, uint64_t offset, uint64_t source_offset) const {
        if (winners == nullptr || winners[offset] == index + 1)
            destination[offset] = source[source_offset];
    }
};
template <typename Arguments> TALLOW_INLINE void mark_winners(const Arguments& arguments) {
    for_each_scattered(arguments, MarkWinner{pointer_to<uint32_t>(arguments.winners)});
}
template <typename T, typename Arguments> TALLOW_INLINE void scatter_set(const Arguments& arguments) {
    if (is_refused(arguments))
        return;
    for_each_scattered(arguments,
                       WriteWinner<T>{pointer_to<const uint32_t>(arguments.winners),
                                      pointer_to<T>(arguments.destination), pointer_to<const T>(arguments.source)});
}

// N positions of a line with a stride of `step`, as they were loaded.
template <typename T, uint32_t N> struct Stretch {
    uint64_t indexes[N];
    T values[N];
};

// The last position is repeated past the end: a load without a branch does not wait.
template <uint32_t N, typename T, typename Arguments>
TALLOW_INLINE Stretch<T, N> load_stretch(const Arguments& arguments, const uint64_t (&offsets)[3], uint32_t first,
                                         uint32_t step) {
    const T* const source = pointer_to<const T>(arguments.source) + offsets[2];
    Stretch<T, N> stretch;
    uint64_t index_offsets[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const uint32_t position = first + i * step < arguments.length ? first + i * step : arguments.length - 1;
        index_offsets[i] = offsets[0] + position * arguments.index_stride;
        stretch.values[i] = source[position * arguments.source_stride];
    }
    load_indexes(arguments, index_offsets, stretch.indexes);
    return stretch;
}

// Whether the lines stay as they are. If indexes are few, every block checks them itself, which takes less time than
// another launch.
template <typename Arguments> TALLOW_INLINE bool are_lines_refused(const Arguments& arguments) {
    constexpr uint32_t each = 4;
    if (arguments.is_unchecked) {
        uint64_t index_offsets[each];
        uint64_t loaded[each];
#pragma unroll
        for (uint32_t i = 0; i < each; ++i) {
            const uint32_t last = arguments.lines * arguments.length - 1;
            const uint32_t element = thread_index() + i * block_size < last ? thread_index() + i * block_size : last;
            const uint32_t line = element / arguments.length;
            uint64_t offsets[1];
            locate(arguments, line, offsets);
            index_offsets[i] = offsets[0] + (element - line * arguments.length) * arguments.index_stride;
        }
        load_indexes(arguments, index_offsets, loaded);
        int64_t rows[each];
        find_rows(arguments, loaded, rows);
        synchronize_block();
    }
    return is_refused(arguments);
}

// A thread walks the positions of one line along the chosen dim. The destination is in the compute dtype.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_lines(const Arguments& arguments) {
    if (are_lines_refused(arguments))
        return;
    using Value = compute_type<T>;
    constexpr uint32_t ahead = 4;
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t line = block_index() * block_size + thread_index(); line < arguments.lines; line += threads) {
        uint64_t offsets[3];
        locate(arguments, line, offsets);
        Value* const destination = pointer_to<Value>(arguments.destination) + offsets[1];
        for (uint32_t base = 0; base < arguments.length; base += ahead) {
            const Stretch<T, ahead> stretch = load_stretch<ahead, T>(arguments, offsets, base, 1);
            int64_t rows[ahead];
            find_rows(arguments, stretch.indexes, rows);
#pragma unroll
            for (uint32_t i = 0; i < ahead; ++i) {
                if (base + i < arguments.length && rows[i] != no_row) {
                    Value* const target = destination + static_cast<uint64_t>(rows[i]) * arguments.row_stride;
                    *target = add(*target, to_compute(stretch.values[i]));
                }
            }
        }
    }
}

// Adds in any order, directly into the destination. The destination is in the compute dtype.
template <typename T> struct AddAtOffset {
    compute_type<T>* destination;
    const T* source;
    TALLOW_INLINE void operator()(uint32_t, uint64_t offset, uint64_t source_offset) const {
        atomic_add(destination + offset, to_compute(source[source_offset]));
    }
};
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_atomically(const Arguments& arguments) {
    if (is_refused(arguments))
        return;
    for_each_scattered(arguments, AddAtOffset<T>{pointer_to<compute_type<T>>(arguments.destination),
                                                 pointer_to<const T>(arguments.source)});
}

// Adds in any order, in shared memory, from which sums go back rounded once: a block has a part of a line, of which it
// looks at all positions. Blocks of one line run side by side and read them from the cache.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_shared(const Arguments& arguments) {
    using Value = compute_type<T>;
    constexpr uint32_t most = shared_sums / sizeof(Value);
    constexpr uint32_t ahead = 4;
    __shared__ Value sums[most];
    if (are_lines_refused(arguments))
        return;
    const uint32_t size = static_cast<uint32_t>(arguments.size);
    const uint32_t parts = (size + most - 1) / most;
    for (uint32_t block = block_index(); block < arguments.lines * parts; block += grid_blocks()) {
        const uint32_t line = block / parts;
        const uint32_t begin = (block - line * parts) * most;
        const uint32_t count = size - begin < most ? size - begin : most;
        uint64_t offsets[3];
        locate(arguments, line, offsets);
        T* const destination = pointer_to<T>(arguments.destination) + offsets[1] + begin * arguments.row_stride;
        for (uint32_t i = thread_index(); i < count; i += block_size)
            sums[i] = to_compute(destination[i * arguments.row_stride]);
        synchronize_block();
        for (uint32_t base = 0; base < arguments.length; base += ahead * block_size) {
            const uint32_t first = base + thread_index();
            const Stretch<T, ahead> stretch = load_stretch<ahead, T>(arguments, offsets, first, block_size);
            int64_t rows[ahead];
            find_rows(arguments, stretch.indexes, rows);
#pragma unroll
            for (uint32_t i = 0; i < ahead; ++i) {
                const uint64_t offset = static_cast<uint64_t>(rows[i]) - begin;
                if (first + i * block_size < arguments.length && offset < count)
                    atomic_add_shared(sums + offset, to_compute(stretch.values[i]));
            }
        }
        synchronize_block();
        for (uint32_t i = thread_index(); i < count; i += block_size)
            destination[i * arguments.row_stride] = convert<T>(sums[i]);
        synchronize_block();
    }
}

// Adds the values of the lanes of `alike`, which have the same target. The lowest of them does it, in the order of the
// lanes.
template <typename Value> TALLOW_INLINE void add_alike(Value* target, Value value, LaneMask alike) {
    const bool leads = alike != 0 && lowest_lane(alike) == lane_index();
    Value sum{};
    if (leads)
        sum = add(*target, value);
    LaneMask others = leads ? alike & (alike - 1) : 0;
    while (ballot(others != 0) != 0) {
        const Value other = shuffle_from(value, lowest_lane(others));
        if (others != 0)
            sum = add(sum, other);
        others &= others - 1;
    }
    if (leads)
        *target = sum;
    synchronize_wave();
}

// A wave walks the positions of one line, a lane for each of `wave_size` of them. The next ones are in flight while
// these are added. There are fewer than 2**32 - 1 rows; the destination is in the compute dtype.
template <uint32_t ahead, typename T, typename Arguments>
TALLOW_INLINE void add_line(const Arguments& arguments, const uint64_t (&offsets)[3], compute_type<T>* destination,
                            uint64_t row_stride) {
    constexpr uint32_t length = ahead * wave_size;
    Stretch<T, ahead> next = load_stretch<ahead, T>(arguments, offsets, lane_index(), wave_size);
    for (uint32_t base = 0; base < arguments.length; base += length) {
        const Stretch<T, ahead> stretch = next;
        int64_t rows_of_stretch[ahead];
        find_rows(arguments, stretch.indexes, rows_of_stretch);
        uint32_t rows[ahead];
        LaneMask alike[ahead];
#pragma unroll
        for (uint32_t i = 0; i < ahead; ++i) {
            const bool is_present = base + i * wave_size + lane_index() < arguments.length;
            rows[i] = static_cast<uint32_t>(is_present ? rows_of_stretch[i] : no_row);
            alike[i] = lanes_alike(rows[i], arguments.size);
        }
        if (base + length < arguments.length)
            next = load_stretch<ahead, T>(arguments, offsets, base + length + lane_index(), wave_size);
#pragma unroll
        for (uint32_t i = 0; i < ahead; ++i)
            add_alike(destination + rows[i] * row_stride, to_compute(stretch.values[i]), alike[i]);
    }
}

template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_waves(const Arguments& arguments) {
    if (are_lines_refused(arguments))
        return;
    constexpr uint32_t ahead = sizeof(compute_type<T>) < 8 ? 4 : 2;
    const uint32_t waves = grid_blocks() * waves_per_block;
    for (uint32_t line = block_index() * waves_per_block + wave_index(); line < arguments.lines; line += waves) {
        uint64_t offsets[3];
        locate(arguments, line, offsets);
        add_line<ahead, T>(arguments, offsets, pointer_to<compute_type<T>>(arguments.destination) + offsets[1],
                           arguments.row_stride);
    }
}

// The same for lines that fit the shared memory of a wave, from which sums go back rounded once. A step takes
// little time there, so that few of them are unrolled.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_near(const Arguments& arguments) {
    using Value = compute_type<T>;
    __shared__ Value sums[waves_per_block][shared_sums / waves_per_block / sizeof(Value)];
    if (are_lines_refused(arguments))
        return;
    Value* const own = sums[wave_index()];
    const uint32_t size = static_cast<uint32_t>(arguments.size);
    const uint32_t waves = grid_blocks() * waves_per_block;
    for (uint32_t line = block_index() * waves_per_block + wave_index(); line < arguments.lines; line += waves) {
        uint64_t offsets[3];
        locate(arguments, line, offsets);
        T* const destination = pointer_to<T>(arguments.destination) + offsets[1];
        for (uint32_t i = lane_index(); i < size; i += wave_size)
            own[i] = to_compute(destination[i * arguments.row_stride]);
        synchronize_wave();
        add_line<2, T>(arguments, offsets, own, 1);
        for (uint32_t i = lane_index(); i < size; i += wave_size)
            destination[i * arguments.row_stride] = convert<T>(own[i]);
        synchronize_wave();
    }
}

// Where each position goes, as keys to sort by: ~0 for a position that goes nowhere.
template <typename Arguments> TALLOW_INLINE void make_keys(const Arguments& arguments) {
    const uint32_t threads = grid_blocks() * block_size;
    for (uint32_t index = block_index() * block_size + thread_index(); index < arguments.count; index += threads) {
        uint64_t offsets[2];
        locate(arguments, index, offsets);
        const int64_t row = read_row(arguments, offsets[0]);
        const uint64_t key = offsets[1] + static_cast<uint64_t>(row) * arguments.row_stride;
        pointer_to<uint32_t>(arguments.keys)[index] = row == no_row ? ~0u : static_cast<uint32_t>(key);
    }
}

// Makes the keys, sorts them by `bits` bits and finds the first position of each row, all by one block. `rows` entries
// of `starts` become ~0 before; without `starts`, none is stored.
template <typename Arguments> TALLOW_INLINE void make_sorted_keys(const Arguments& arguments) {
    __shared__ SharedPairs pairs;
    constexpr uint32_t ahead = 4;
    const uint32_t thread = thread_index();
    for (uint32_t base = thread; base < arguments.count; base += ahead * block_size) {
        uint64_t index_offsets[ahead];
        uint64_t key_offsets[ahead];
        uint64_t loaded[ahead];
#pragma unroll
        for (uint32_t i = 0; i < ahead; ++i) {
            uint64_t offsets[2];
            const uint32_t index = base + i * block_size;
            locate(arguments, index < arguments.count ? index : base, offsets);
            index_offsets[i] = offsets[0];
            key_offsets[i] = offsets[1];
        }
        load_indexes(arguments, index_offsets, loaded);
        int64_t rows[ahead];
        find_rows(arguments, loaded, rows);
#pragma unroll
        for (uint32_t i = 0; i < ahead; ++i) {
            const uint32_t index = base + i * block_size;
            if (index >= arguments.count)
                break;
            const uint64_t key = key_offsets[i] + static_cast<uint64_t>(rows[i]) * arguments.row_stride;
            pairs.keys[index] = rows[i] == no_row ? ~0u : static_cast<uint32_t>(key);
            pairs.positions[index] = static_cast<uint16_t>(index);
        }
    }
    uint32_t* const starts = pointer_to<uint32_t>(arguments.starts);
    for (uint32_t i = thread; i < arguments.rows; i += block_size)
        starts[i] = ~0u;
    synchronize_block();
    for (uint32_t shift = 0; shift < arguments.bits; shift += digit_bits)
        sort_by_digit(pairs, arguments.count, shift);
    for (uint32_t i = thread; i < arguments.count; i += block_size) {
        const uint32_t key = pairs.keys[i];
        pointer_to<uint32_t>(arguments.keys)[i] = key;
        pointer_to<uint32_t>(arguments.positions)[i] = pairs.positions[i];
        if (arguments.starts != 0 && key != ~0u && (i == 0 || pairs.keys[i - 1] != key))
            starts[key] = i;
    }
}

// The thread at the first of equal keys adds up all of them, in the order of their positions, and rounds once.
template <typename T, typename Arguments> TALLOW_INLINE void scatter_add_sorted(const Arguments& arguments) {
    if (is_refused(arguments))
        return;
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

// starts[key] = the first position of the key; keys that do not occur keep the ~0 that the launcher wrote.
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
    constexpr uint32_t length = strided_length<T>;
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

// Of the rows that the lanes of the wave hold, those that are this lane's own.
TALLOW_INLINE LaneMask lanes_that_name(uint32_t own, uint32_t named, bool is_one_row) {
    if (is_one_row)
        return ballot(named == own);
    LaneMask lanes = 0;
#pragma unroll 8
    for (uint32_t lane = 0; lane < wave_size; ++lane)
        lanes |= LaneMask{shuffle_from(named, lane) == own} << lane;
    return lanes;
}

// The same of few indexes, at most 4 block_size: each block knows all rows that they name, and each wave looks for
// those of its elements. Operand 2 is the row, from first_row on.
template <typename T, typename Arguments> TALLOW_INLINE void index_add_few(const Arguments& arguments) {
    constexpr uint32_t each = 4;
    __shared__ uint32_t named[each * block_size];
    const uint32_t last = arguments.count - 1;
    const uint32_t index = block_index() * block_size + thread_index();
    uint64_t offsets[3];
    locate(arguments, index < last ? index : last, offsets);
    const T source = pointer_to<const T>(arguments.source)[offsets[0]];
    uint64_t index_offsets[each];
    uint64_t loaded[each];
#pragma unroll
    for (uint32_t i = 0; i < each; ++i) {
        const uint32_t entry = thread_index() + i * block_size;
        index_offsets[i] = (entry < arguments.entries ? entry : arguments.entries - 1) * arguments.index_stride;
    }
    load_indexes(arguments, index_offsets, loaded);
    int64_t rows[each];
    find_rows(arguments, loaded, rows);
#pragma unroll
    for (uint32_t i = 0; i < each; ++i)
        named[thread_index() + i * block_size] = static_cast<uint32_t>(rows[i]);
    synchronize_block();
    const T* const added = pointer_to<const T>(arguments.added) + offsets[1];
    const uint32_t own = arguments.first_row + static_cast<uint32_t>(offsets[2]);
    const bool is_one_row = ballot(own != shuffle_from(own, 0)) == 0;
    auto sum = to_compute(source);
    // One is added while the next one is in flight.
    T next{};
    bool is_added = false;
    for (uint32_t base = 0; base < arguments.entries; base += wave_size) {
        const uint32_t entry = base + lane_index();
        const uint32_t row = entry < arguments.entries ? named[entry] : static_cast<uint32_t>(no_row);
        for (LaneMask lanes = lanes_that_name(own, row, is_one_row); lanes != 0; lanes &= lanes - 1) {
            const T value = added[(base + lowest_lane(lanes)) * arguments.added_stride];
            if (is_added)
                sum = add(sum, to_compute(next));
            next = value;
            is_added = true;
        }
    }
    if (index <= last)
        pointer_to<T>(arguments.result)[index] = is_added ? convert<T>(add(sum, to_compute(next))) : source;
}

} // namespace tallow
