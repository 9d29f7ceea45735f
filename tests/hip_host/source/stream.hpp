// Streams and events. Work runs when it is submitted, or, with HIP_HOST_LAZY=1, as late as HIP allows: not before
// something waits for it. The lazy order exposes a host that reads, frees or overwrites memory without waiting.
#pragma once

#include "hip_host.hpp"

#include <chrono>
#include <deque>

struct ihipStream_t {
    int device;
    unsigned flags;
    int priority;
    std::deque<std::function<hipError_t()>> work;
};

struct ihipEvent_t {
    unsigned flags;
    hipStream_t stream = nullptr;
    bool recorded = false;
    bool done = false;
    long long generation = 0;
    std::chrono::steady_clock::time_point time{};
};

namespace hip_host {

bool lazy();

// Runs all that was submitted to the device's streams.
hipError_t finish_device(int device);

// Runs the work in the order of the default stream, and returns when it is done.
hipError_t run_now(std::function<hipError_t()> work);

} // namespace hip_host
