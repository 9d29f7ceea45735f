#include "block.hpp"

#include "allocation.hpp"
#include "fault.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>

__thread const hip_host_thread* hip_host_current __attribute__((tls_model("initial-exec"))) = nullptr;

namespace hip_host {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t stack_bytes = 64 * 1024;

// A lane that did not take part in an exchange holds this: its value is undefined on a GPU.
constexpr unsigned long long poison_value = 0xCBCBCBCBCBCBCBCBull;
constexpr std::ptrdiff_t word_bytes = sizeof poison_value;

// The runner of this thread of the host, where kernels reach it fast.
__thread BlockRunner* running __attribute__((tls_model("initial-exec"))) = nullptr;

} // namespace

void wait_at_barrier(int line) { running->wait_at_barrier(line); }
const hip_host_wave* exchange(unsigned long long value, int line) { return running->exchange(value, line); }

BlockRunner& block_runner() {
    // Behind a pointer: the library's thread-local storage must fit the little room that is left for libraries that
    // are loaded late.
    thread_local const auto runner = std::make_unique<BlockRunner>();
    return *runner;
}

void BlockRunner::Unmap::operator()(char* memory) const { munmap(memory, bytes); }

BlockRunner::Pages BlockRunner::map_guarded(std::size_t bytes, bool guard_at_end) {
    void* memory = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("hip_host: no memory for the stacks of a block");
        std::abort();
    }
    char* begin = static_cast<char*>(memory);
    mprotect(guard_at_end ? begin + bytes : begin, page, PROT_NONE);
    return Pages(begin, Unmap{bytes + page});
}

BlockRunner::Thread& BlockRunner::current() const {
    return *reinterpret_cast<Thread*>(const_cast<hip_host_thread*>(hip_host_current));
}

bool BlockRunner::run(const KernelCall& call, hip_host_index block_index) {
    running = this;
    prepare(call, block_index);
    poison_shared(call);
    ++stacks_used_;
    if (stacks_.empty())
        stacks_.push_back(map_guarded(stack_bytes, false));
    Context first;
    char* bottom = stacks_[0].get();
    begin_context(first, bottom, bottom + page + stack_bytes, &start_threads);
    switch_context(host_, first);
    hip_host_current = nullptr;
    if (live_ && !failed_) {
        report_failure(std::string("kernel ") + call.name, std::to_string(live_) + " threads of a block wait forever");
        failed_ = true;
    }
    if (call.static_shared->bytes && !is_measured(call))
        measure_static_shared(call);
    return !failed_;
}

void BlockRunner::prepare(const KernelCall& call, hip_host_index block_index) {
    call_ = &call;
    count_ = call.block.x * call.block.y * call.block.z;
    if (threads_.empty()) {
        threads_.resize(max_threads_per_block);
        waves_.resize(max_threads_per_block / 32);
        shared_ = map_guarded(max_shared_memory, true);
    }
    // The end of the dynamic shared memory touches a page that cannot be touched.
    const std::size_t shared = (call.dynamic_shared + 15) / 16 * 16;
    block_ = {block_index, call.block, call.grid, shared_.get() + max_shared_memory - shared, wave_size()};
    for (unsigned wave = 0; wave * lanes_ < count_; ++wave)
        waves_[wave].live = std::min(lanes_, count_ - wave * lanes_),
        waves_[wave].blocked = waves_[wave].at_exchange = 0;
    ready_first_ = ready_count_ = started_ = at_barrier_ = stacks_used_ = 0;
    live_ = count_;
    failed_ = false;
}

// The module's variables include those of its other kernels. Filling all of them for every block would cost more than
// most blocks, so the first block shows which part the kernel writes, and later ones fill that.
void BlockRunner::poison_shared(const KernelCall& call) {
    std::memset(block_.dynamic_shared, poison_byte, call.dynamic_shared);
    if (!call.static_shared->bytes)
        return;
    char* variables = call.static_shared->begin();
    if (is_measured(call))
        std::memset(variables + static_first_, poison_byte, static_end_ - static_first_);
    else
        std::memset(variables, poison_byte, call.static_shared->bytes);
}

void BlockRunner::measure_static_shared(const KernelCall& call) {
    const char* begin = call.static_shared->begin();
    const char* end = begin + call.static_shared->bytes;
    const auto written = [](char byte) { return static_cast<unsigned char>(byte) != poison_byte; };
    // Most of it is not written, and words are compared faster than bytes.
    const auto word_written = [](const char* word) { return std::memcmp(word, &poison_value, sizeof poison_value); };
    const char* first = begin;
    while (end - first >= word_bytes && !word_written(first))
        first += word_bytes;
    first = std::find_if(first, end, written);
    while (end - first >= word_bytes && !word_written(end - word_bytes))
        end -= word_bytes;
    while (end > first && !written(end[-1]))
        --end;
    static_first_ = static_cast<std::size_t>(first - begin);
    static_end_ = static_cast<std::size_t>(end - begin);
    measured_ = call.invoke;
    measured_module_ = call.static_shared->module;
}

bool BlockRunner::is_measured(const KernelCall& call) const {
    return measured_ == call.invoke && measured_module_ == call.static_shared->module;
}

void BlockRunner::start_threads() {
    BlockRunner& runner = *running;
    runner.run_threads();
    Context unused;
    runner.switch_away(unused);
    std::abort(); // nothing returns to a stack whose threads are done
}

hip_host_index BlockRunner::index_of(unsigned thread) const {
    const auto& size = call_->block;
    return {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

void BlockRunner::run_threads() {
    const KernelCall& call = *call_;
    // Divisions would take longer than a small kernel: the next index follows from the last one, except that another
    // stack may have started threads in between.
    unsigned expected = ~0u;
    hip_host_index index{};
    while (started_ < count_) {
        const unsigned number = call.backwards ? count_ - 1 - started_ : started_;
        ++started_;
        if (number != expected || ++index.x == call.block.x)
            index = index_of(number);
        expected = number + 1;
        Thread& thread = threads_[number];
        thread.view = {index, number & (lanes_ - 1), &block_};
        thread.index = number;
        thread.state = State::runs;
        hip_host_current = &thread.view;
        call.invoke(call.parameters);
        finish(thread);
    }
}

// A thread that has returned no longer counts at barriers and in its wave, as on AMD's hardware.
void BlockRunner::finish(Thread& thread) {
    thread.state = State::done;
    --live_;
    Wave& wave = wave_of(thread);
    --wave.live;
    if (wave.at_exchange)
        settle_wave(wave);
    if (at_barrier_)
        release_barrier_if_complete();
}

void BlockRunner::block(Thread& thread, State state, int line) {
    thread.state = state;
    thread.line = line;
    Wave& wave = wave_of(thread);
    ++wave.blocked;
    if (state == State::at_barrier) {
        ++at_barrier_;
        release_barrier_if_complete();
    } else {
        ++wave.at_exchange;
    }
    if (wave.at_exchange)
        settle_wave(wave);
    switch_away(thread.context);
    hip_host_current = &thread.view;
}

void BlockRunner::wait_at_barrier(int line) { block(current(), State::at_barrier, line); }

const hip_host_wave* BlockRunner::exchange(unsigned long long value, int line) {
    Thread& thread = current();
    thread.value = value;
    block(thread, State::at_exchange, line);
    return &wave_of(thread).values;
}

// Once no lane of the wave can go on, those that wait for each other exchange their values. Where lanes wait at
// several lines, the first line goes first: the code there is what the other lanes branched around.
void BlockRunner::settle_wave(Wave& wave) {
    if (wave.blocked < wave.live)
        return;
    const unsigned first = static_cast<unsigned>(&wave - waves_.data()) * lanes_,
                   end = std::min(first + lanes_, count_);
    int line = 0;
    for (unsigned index = first; index < end; ++index)
        if (threads_[index].state == State::at_exchange && (line == 0 || threads_[index].line < line))
            line = threads_[index].line;
    wave.values.active = wave.values.odd = 0;
    for (unsigned lane = 0; lane < lanes_; ++lane) {
        wave.values.value[lane] = poison_value;
        if (first + lane >= end)
            continue;
        Thread& thread = threads_[first + lane];
        if (thread.state != State::at_exchange || thread.line != line)
            continue;
        wave.values.value[lane] = thread.value;
        wave.values.active |= 1ull << lane;
        wave.values.odd |= (thread.value & 1) << lane;
        --wave.at_exchange;
        --wave.blocked;
        make_ready(thread);
    }
}

void BlockRunner::release_barrier_if_complete() {
    if (at_barrier_ < live_)
        return;
    at_barrier_ = 0;
    int line = 0;
    for (unsigned index = 0; index < count_; ++index) {
        Thread& thread = threads_[index];
        if (thread.state != State::at_barrier)
            continue;
        if (line && thread.line != line) {
            report_failure(describe_current(), "threads of one block wait at different barriers, at lines " +
                                                   std::to_string(line) + " and " + std::to_string(thread.line));
            abandon();
        }
        line = thread.line;
        --wave_of(thread).blocked;
        make_ready(thread);
    }
}

void BlockRunner::make_ready(Thread& thread) {
    thread.state = State::runs;
    ready_[(ready_first_ + ready_count_++) % ready_.size()] = thread.index;
}

// Goes on with a thread that can, then with one that has not started. With neither, the block is done: a thread that
// waits while no other can run has been released by settle_wave or release_barrier_if_complete.
void BlockRunner::switch_away(Context& from) {
    if (ready_count_) {
        Thread& next = threads_[ready_[ready_first_]];
        ready_first_ = (ready_first_ + 1) % ready_.size();
        --ready_count_;
        if (&next.context != &from) // a thread that its own arrival released may be the first to go on
            switch_context(from, next.context);
    } else if (started_ < count_) {
        if (stacks_used_ == stacks_.size())
            stacks_.push_back(map_guarded(stack_bytes, false));
        char* bottom = stacks_[stacks_used_].get();
        // Stacks that all begin at the same offset of a page would compete for the same lines of the cache.
        const std::size_t offset = stacks_used_++ % 32 * 320;
        Context fresh;
        begin_context(fresh, bottom, bottom + page + stack_bytes - offset, &start_threads);
        switch_context(from, fresh);
    } else {
        switch_context(from, host_);
    }
}

void BlockRunner::abandon() {
    failed_ = true;
    Context unused;
    switch_context(unused, host_);
    std::abort();
}

std::string BlockRunner::describe_current() const {
    const Thread& thread = current();
    const auto& [x, y, z] = thread.view.thread_index;
    const auto& block = block_.block_index;
    char text[256];
    std::snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", call_->name, block.x,
                  block.y, block.z, x, y, z);
    return text;
}

std::string describe_current_thread() { return running->describe_current(); }
void abandon_block() { running->abandon(); }

} // namespace hip_host

HIP_HOST_API void hip_host_barrier(int line) { hip_host::wait_at_barrier(line); }
HIP_HOST_API const hip_host_wave* hip_host_exchange(unsigned long long value, int line) {
    return hip_host::exchange(value, line);
}
