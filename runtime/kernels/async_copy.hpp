// Asynchronous copies to shared memory, which need no registers: those of NVIDIA.
#pragma once

#include "access.hpp"

#if defined(TALLOW_HAS_ASYNC_COPIES)

namespace tallow {

// The address of shared memory as instructions take it.
TALLOW_INLINE uint32_t shared_address(const void* pointer) {
    uint32_t address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(pointer));
    return address;
}

// Starts a copy of 16 bytes to such an address: `bytes` bytes of the source, then zeros.
TALLOW_INLINE void copy_async(uint32_t target, const void* source, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}
TALLOW_INLINE void copy_async(void* target, const void* source, uint32_t bytes) {
    copy_async(shared_address(target), source, bytes);
}
// Starts a copy of 16 bytes if they are needed, without a branch.
TALLOW_INLINE void copy_async_if(bool is_needed, uint32_t target, const void* source) {
    asm volatile("{ .reg .pred is_needed; setp.ne.u32 is_needed, %2, 0; @is_needed cp.async.cg.shared.global [%0], "
                 "[%1], 16; }" ::"r"(target),
                 "l"(source), "r"(static_cast<uint32_t>(is_needed))
                 : "memory");
}
// Ends a group of these copies.
TALLOW_INLINE void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most this number of this thread's last groups are pending.
template <uint32_t Left> TALLOW_INLINE void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

} // namespace tallow

#endif
