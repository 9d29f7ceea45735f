// Switching between stacks: what lets a thread of a block wait while the others run on the same thread of the host.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace hip_host {

struct Context {
#if defined(__x86_64__)
    void* stack_pointer = nullptr;
#else
    ucontext_t state;
#endif
};

// Keeps where the caller is in `from` and goes on at `to`.
void switch_context(Context& from, const Context& to);

// Makes `context` begin `entry`, which never returns, on the stack that ends at `top`.
void begin_context(Context& context, char* bottom, char* top, void (*entry)());

} // namespace hip_host
