// What a compiled kernel and the runtime agree on. A kernel reads its position through hip_host_current, calls the
// runtime to wait for other threads, and is found through a table that the compile step appends to its source.
#pragma once

// Raised whenever this file changes meaning: the loader refuses code objects of another version.
#define HIP_HOST_KERNEL_VERSION 3

struct hip_host_index {
    unsigned x, y, z;
};

struct hip_host_block {
    hip_host_index block_index;
    hip_host_index block_size;
    hip_host_index grid_size;
    void* dynamic_shared;
    int wave_size;
};

struct hip_host_thread {
    hip_host_index thread_index;
    unsigned lane;
    const hip_host_block* block;
};

// What the lanes of one wave have handed in. Lanes that did not take part hold poison and have no bit in `active`.
struct hip_host_wave {
    unsigned long long active;
    unsigned long long odd; // the lanes of them whose value is
    unsigned long long value[64];
};

struct hip_host_parameter {
    unsigned long long size;
    unsigned long long alignment;
};

struct hip_host_kernel {
    const char* name;
    void (*invoke)(void* const* parameters);
    const hip_host_parameter* parameters;
    unsigned parameter_count;
    unsigned max_threads; // from __launch_bounds__, 0 where the kernel has none
};

extern "C" {
// The thread that runs. A block stays on one thread of the host, so thread-local storage follows it.
extern __thread const hip_host_thread* hip_host_current
    __attribute__((tls_model("initial-exec"), visibility("default")));

// Waits for all threads of the block that have not returned. `line` tells barriers apart.
void hip_host_barrier(int line);

// Hands in a value and waits for the other lanes of the wave. What it returns is valid until the lane's next exchange.
const hip_host_wave* hip_host_exchange(unsigned long long value, int line);
}

namespace hip_host {

template <auto function> struct Kernel;

template <class... Parameter, void (*function)(Parameter...)> struct Kernel<function> {
    static constexpr hip_host_parameter parameters[sizeof...(Parameter) + 1] = {
        {sizeof(Parameter), alignof(Parameter)}..., {0, 0}};

    static void invoke(void* const* parameters) {
        // A braced list evaluates from left to right, so each parameter takes the next pointer.
        struct Call {
            Call(Parameter... parameter) { function(parameter...); }
        };
        (void)parameters;
        Call{*static_cast<Parameter*>(*parameters++)...};
    }

    static constexpr hip_host_kernel entry(const char* name, unsigned max_threads) {
        return {name, &invoke, parameters, sizeof...(Parameter), max_threads};
    }
};

} // namespace hip_host
