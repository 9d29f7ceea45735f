// Runs one block at a time on a thread of the host.
//
// The threads of a block run one after another on one stack as long as none waits. A thread that waits (at a barrier,
// or for its wave) keeps the stack that it is on, and the next thread starts on another one. So a kernel without
// barriers is a plain loop, and a kernel with barriers needs at most one stack for each thread of the block.
#pragma once

#include "device.hpp"
#include "fiber.hpp"

#include <hip/hip_host_kernel.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace hip_host {

// What the blocks of one launch have in common.
struct KernelCall {
    const char* name;
    void (*invoke)(void* const* parameters);
    void* const* parameters;
    hip_host_index grid;
    hip_host_index block;
    unsigned dynamic_shared;
    const struct StaticShared* static_shared;
    bool backwards; // threads start from the last one, to expose what relies on their order
};

// Where the `__shared__` variables of a module are on this thread of the host.
struct StaticShared {
    unsigned long long module;    // differs for every module that was ever loaded
    char* (*anchor)();            // one of the variables, on the calling thread
    std::ptrdiff_t anchor_offset; // where it is among them
    std::size_t bytes;

    char* begin() const { return anchor() - anchor_offset; }
};

class BlockRunner {
  public:
    // False where the block was abandoned, because the kernel failed.
    bool run(const KernelCall& call, hip_host_index block_index);

    // Called on the stack of a thread of the block.
    void wait_at_barrier(int line);
    const hip_host_wave* exchange(unsigned long long value, int line);
    [[noreturn]] void abandon();

    std::string describe_current() const;

  private:
    enum class State : unsigned char { waits_to_start, runs, at_barrier, at_exchange, done };

    struct Thread {
        hip_host_thread view; // first: hip_host_current points here
        State state;
        unsigned index;
        int line; // of the barrier or exchange that it waits at
        unsigned long long value;
        Context context;
    };

    struct Wave {
        unsigned live;
        unsigned blocked;
        unsigned at_exchange;
        hip_host_wave values;
    };

    struct Unmap {
        std::size_t bytes;
        void operator()(char* memory) const;
    };
    using Pages = std::unique_ptr<char, Unmap>;

    static Pages map_guarded(std::size_t bytes, bool guard_at_end);
    [[noreturn]] static void start_threads();

    Thread& current() const;
    Wave& wave_of(const Thread& thread) { return waves_[thread.index >> lane_bits_]; }
    hip_host_index index_of(unsigned thread) const;
    void prepare(const KernelCall& call, hip_host_index block_index);
    void poison_shared(const KernelCall& call);
    bool is_measured(const KernelCall& call) const;
    void measure_static_shared(const KernelCall& call);
    void run_threads();
    void finish(Thread& thread);
    void block(Thread& thread, State state, int line);
    void settle_wave(Wave& wave);
    void release_barrier_if_complete();
    void make_ready(Thread& thread);
    void switch_away(Context& from);

    const KernelCall* call_ = nullptr;
    hip_host_block block_{};
    std::vector<Thread> threads_;
    std::vector<Wave> waves_;
    std::array<unsigned, max_threads_per_block> ready_{}; // a ring of threads that can go on
    unsigned ready_first_ = 0, ready_count_ = 0;
    const unsigned lanes_ = static_cast<unsigned>(wave_size()), lane_bits_ = lanes_ == 64 ? 6 : 5;
    unsigned count_ = 0, started_ = 0, live_ = 0, at_barrier_ = 0;
    std::vector<Pages> stacks_;
    unsigned stacks_used_ = 0;
    Pages shared_;
    Context host_;
    bool failed_ = false;

    // The part of the static shared memory that this kernel was seen to write.
    unsigned long long measured_module_ = 0;
    void (*measured_)(void* const*) = nullptr;
    std::size_t static_first_ = 0, static_end_ = 0;
};

BlockRunner& block_runner();
std::string describe_current_thread();
[[noreturn]] void abandon_block();

} // namespace hip_host
