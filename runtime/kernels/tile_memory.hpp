// The shared memory of blocks that make large tiles. On GPUs of NVIDIA that copy to it asynchronously, kernels get more
// at a launch than they may declare.
#pragma once

#include "matrix_core.hpp"

namespace tallow {

#if defined(TALLOW_HAS_ASYNC_COPIES)
constexpr bool has_async_copies = true;
#else
constexpr bool has_async_copies = false;
#endif
#if defined(TALLOW_HAS_ASYNC_COPIES) && !defined(TALLOW_HAS_WGMMA)
constexpr uint32_t tile_memory_bytes = tile_shared;
#else
constexpr uint32_t tile_memory_bytes = TALLOW_SHARED_BYTES;
#endif

template <uint32_t Bytes> TALLOW_INLINE bits128* declared_memory() {
    __shared__ bits128 memory[(Bytes + sizeof(bits128) - 1) / sizeof(bits128)];
    return memory;
}
// What a launch gives to a kernel of large tiles, once.
template <uint32_t Bytes> TALLOW_INLINE bits128* tile_memory() {
    static_assert(Bytes <= tile_memory_bytes, "blocks have no more shared memory");
#if defined(TALLOW_HAS_ASYNC_COPIES)
    extern __shared__ __align__(1024) bits128 memory_of_launch[];
    return memory_of_launch;
#else
    return declared_memory<Bytes>();
#endif
}

} // namespace tallow
