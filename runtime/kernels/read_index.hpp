// Indexes as kernels read them: those of several dtypes, and those that are out of range. Arguments have the fields of
// `index` in groups.yaml.
#pragma once

#include "graph.hpp"
#include "types.hpp"

namespace tallow {

constexpr int64_t no_row = -1;

// Indexes are read in two steps, so that a thread loads several before it waits for one: their bytes below zeros, and
// the row that they name. Their size is the same for all of a launch, so that the switch costs no divergence.
template <typename Bytes, uint32_t N, typename Arguments>
TALLOW_INLINE void load_bytes(const Arguments& arguments, const uint64_t (&offsets)[N], uint64_t (&loaded)[N]) {
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        loaded[i] = pointer_to<const Bytes>(arguments.indexes)[offsets[i]];
}
template <uint32_t N, typename Arguments>
TALLOW_INLINE void load_indexes(const Arguments& arguments, const uint64_t (&offsets)[N], uint64_t (&loaded)[N]) {
    switch (arguments.index_bytes) {
    case 1:
        load_bytes<uint8_t>(arguments, offsets, loaded);
        break;
    case 2:
        load_bytes<uint16_t>(arguments, offsets, loaded);
        break;
    case 4:
        load_bytes<uint32_t>(arguments, offsets, loaded);
        break;
    default:
        load_bytes<uint64_t>(arguments, offsets, loaded);
    }
}

// The index whose bytes were loaded: the shift brings the sign of a signed one to the highest bit.
template <typename Arguments> TALLOW_INLINE int64_t index_of(const Arguments& arguments, uint64_t loaded) {
    return static_cast<int64_t>(loaded << arguments.index_shift) >> arguments.index_shift;
}

// Records that an index is out of range, if it is the first one.
template <typename Arguments> TALLOW_INLINE void record_index(const Arguments& arguments, int64_t index) {
    IndexError* const error = pointer_to<IndexError>(arguments.errors);
    if (atomic_compare_exchange(&error->state, 0, 1) == 0) {
        error->op = arguments.op;
        error->index = index;
        error->size = static_cast<int64_t>(arguments.size);
    }
    error->refused = arguments.call;
}

// The rows that indexes name, or `no_row` for the mark and for an index out of range, of which one is recorded: code
// for each of them would take longer to come than few indexes take.
template <uint32_t N, typename Arguments>
TALLOW_INLINE void find_rows(const Arguments& arguments, const uint64_t (&loaded)[N], int64_t (&rows)[N]) {
    int64_t outside = arguments.index_mark;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const int64_t index = index_of(arguments, loaded[i]);
        const bool is_inside = static_cast<uint64_t>(index) < arguments.size && index != arguments.index_mark;
        rows[i] = is_inside ? index : no_row;
        outside = is_inside || index == arguments.index_mark ? outside : index;
    }
    if (outside != arguments.index_mark)
        record_index(arguments, outside);
}
template <typename Arguments> TALLOW_INLINE int64_t read_row(const Arguments& arguments, uint64_t offset) {
    const uint64_t offsets[1] = {offset};
    uint64_t loaded[1];
    load_indexes(arguments, offsets, loaded);
    int64_t rows[1];
    find_rows(arguments, loaded, rows);
    return rows[0];
}

} // namespace tallow
