// Work in parts, which threads may do in parallel.
#pragma once

#include "platform.hpp"

namespace tallow {

// Of a line of the cache.
constexpr uint64_t line_bytes = 64;

// Does one part. What it does depends on its number alone, so that results are the same for every number of threads.
using Part = void (*)(const void* context, uint64_t part);
using RunParts = void(Part part, const void* context, uint64_t parts, uint32_t threads);

// Calls function(part) for each of `parts`, with the threads of a call.
template <typename Arguments, typename Function>
TALLOW_INLINE void do_parts(const Arguments& arguments, uint64_t parts, const Function& function) {
    reinterpret_cast<RunParts*>(arguments.run_parts)(
        [](const void* context, uint64_t part) { (*static_cast<const Function*>(context))(part); }, &function, parts,
        arguments.threads);
}

} // namespace tallow
