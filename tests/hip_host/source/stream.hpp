// Streams and events. Work runs when it is submitted, or, with HIP_HOST_LAZY=1, as late as HIP allows: not before
// something waits for it. The lazy order exposes a host that reads, frees or overwrites memory without waiting.
#pragma once

#include "hip_host.hpp"

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

namespace hip_host {

// What a stream was given while it was captured, and streams that waited for it: those that it has yet to wait for are
// `forks`. In the order in which it was given, all is done that something in it waits for.
using Work = std::function<hipError_t()>;
struct Recording {
    int device;
    hipStream_t origin;
    std::vector<Work> nodes{};
    bool is_valid = true;
    bool is_open = true;
    std::vector<hipStream_t> forks{};
};

} // namespace hip_host

struct ihipStream_t {
    int device;
    unsigned flags;
    int priority;
    std::deque<hip_host::Work> work;
    std::shared_ptr<hip_host::Recording> capture{}; // while it is captured
};

namespace hip_host {

// A point in a stream that an event was recorded at. What waits for it keeps it, as HIP does: the event may be recorded
// anew or destroyed in between.
struct Mark {
    hipStream_t stream;
    int device;
    bool passed = false;
    std::chrono::steady_clock::time_point time{};
    std::shared_ptr<Recording> capture{}; // where the stream was captured
};

} // namespace hip_host

struct ihipEvent_t {
    int device;
    unsigned flags;
    std::shared_ptr<hip_host::Mark> mark{}; // none until the first record
};

namespace hip_host {

bool lazy();

// The device of a live stream; the null stream is the current device's.
int device_of(hipStream_t stream);

// What a call gives that a capture of the stream does not allow, and which ends its use: hipSuccess where the stream is
// not captured.
hipError_t refuse_capture(hipStream_t stream, hipError_t error = hipErrorStreamCaptureUnsupported);

// Runs all that was submitted to the device's streams, or to one stream.
hipError_t finish_device(int device);
hipError_t finish_stream(hipStream_t stream);

// Runs the work in the order of the default stream, and returns when it is done.
hipError_t run_now(std::function<hipError_t()> work);

} // namespace hip_host
