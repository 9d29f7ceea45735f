// Numbers of a kernel's struct that are read again where they are needed.
#pragma once

#include "platform.hpp"

namespace tallow {

// The struct of a kernel, read anew. AMD's compiler reads a struct once, at the start, and keeps its numbers in scalar
// registers, which are few: numbers of a loop that are read again in it are neither live nor spilled across the others.
template <typename Arguments> TALLOW_INLINE const Arguments& reread([[maybe_unused]] const Arguments& arguments) {
#if defined(TALLOW_AMD)
    auto segment = (const __attribute__((address_space(4))) Arguments*)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(segment));
    return *(const Arguments*)segment;
#else
    return arguments;
#endif
}

} // namespace tallow
