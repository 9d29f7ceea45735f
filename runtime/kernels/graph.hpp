// What the kernels of a captured graph read and write in memory, since their arguments are the same at each replay.
#pragma once

#include "memory.hpp"

namespace tallow {

// The first index out of range since the host last looked. `state` is 0 while there is none. `refused` is the number of
// the last call that had one; the host gives no number twice.
struct IndexError {
    uint32_t state;
    uint32_t op;
    int64_t index;
    int64_t size;
    uint64_t refused;
};
static_assert(sizeof(IndexError) == 32, "the host reads it back");

// Where the random stream is, the record of the thread that replays, and what the kernels of this replay have recorded.
struct GraphState {
    uint64_t seed;
    uint64_t block;
    uint64_t record;
    uint64_t unused;
    IndexError error;
};
static_assert(sizeof(GraphState) == 64, "the host allocates it");

template <typename Arguments> TALLOW_INLINE void begin_graph(const Arguments& arguments) {
    if (block_index() == 0 && thread_index() == 0)
        *pointer_to<GraphState>(arguments.state) = {arguments.seed, arguments.block, arguments.record, 0, {}};
}

// Brings the random stream to what the next replay draws, and an index out of range to the record of the thread. Call
// numbers come again with the next replay, so that none may have been refused yet.
template <typename Arguments> TALLOW_INLINE void finish_graph(const Arguments& arguments) {
    if (block_index() != 0 || thread_index() != 0)
        return;
    GraphState* const state = pointer_to<GraphState>(arguments.state);
    state->block += arguments.blocks;
    IndexError* const record = pointer_to<IndexError>(state->record);
    if (state->error.state != 0 && record->state == 0)
        *record = {1, state->error.op, state->error.index, state->error.size, record->refused};
    state->error = {};
}

} // namespace tallow
