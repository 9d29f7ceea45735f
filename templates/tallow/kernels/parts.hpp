// Work in parts, which threads may do side by side.
#pragma once

#include "platform.hpp"

namespace tallow {

// Does one part. What it does depends on its number alone, so that results are the same for every number of threads.
using Part = void (*)(const void* context, uint64_t part);
using RunParts = void(Part part, const void* context, uint64_t parts, uint32_t threads);

} // namespace tallow
