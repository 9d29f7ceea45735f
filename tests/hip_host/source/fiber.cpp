#include "fiber.hpp"

#include <cstdint>

#if defined(__x86_64__)

// Only what the calling convention has a function keep is saved: the switch is a call. This is why it takes
// nanoseconds, where the C library's swapcontext makes a system call.
asm(R"(
    .text
    .globl hip_host_switch_stack
    .hidden hip_host_switch_stack
    .type hip_host_switch_stack, @function
hip_host_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size hip_host_switch_stack, . - hip_host_switch_stack
)");

extern "C" void hip_host_switch_stack(void** save, void* load);

namespace hip_host {

void switch_context(Context& from, const Context& to) { hip_host_switch_stack(&from.stack_pointer, to.stack_pointer); }

void begin_context(Context& context, char*, char* top, void (*entry)()) {
    auto* slot = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(top) & ~std::uintptr_t{15});
    *--slot = nullptr; // where a caller's return address would be; it also aligns the stack as after a call
    *--slot = reinterpret_cast<void*>(entry);
    context.stack_pointer = slot - 6; // the registers that the switch pops, whose values don't matter
}

} // namespace hip_host

#else

namespace hip_host {

void switch_context(Context& from, const Context& to) { swapcontext(&from.state, &to.state); }

void begin_context(Context& context, char* bottom, char* top, void (*entry)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = bottom;
    context.state.uc_stack.ss_size = static_cast<std::size_t>(top - bottom);
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
}

} // namespace hip_host

#endif
