#include "stream.hpp"

#include "allocation.hpp"
#include "device.hpp"

#include <algorithm>

namespace hip_host {
namespace {

Registry<ihipStream_t>& streams() {
    static auto& instance = *new Registry<ihipStream_t>("stream");
    return instance;
}

Registry<ihipEvent_t>& events() {
    static auto& instance = *new Registry<ihipEvent_t>("event");
    return instance;
}

// Held while lazy work is queued or run. Work submits and waits in turn, for its events: hence recursive.
std::recursive_mutex& order() {
    static auto& instance = *new std::recursive_mutex;
    return instance;
}

// The default stream of each device, behind the null handle.
ihipStream_t& default_stream(int device) {
    static auto& instances = *new std::deque<ihipStream_t>;
    while (static_cast<int>(instances.size()) <= device)
        instances.push_back({static_cast<int>(instances.size()), hipStreamDefault, 0, {}});
    return instances[static_cast<std::size_t>(device)];
}

ihipStream_t& resolve(hipStream_t stream, int device) { return stream ? *stream : default_stream(device); }
ihipStream_t& resolve(hipStream_t stream) { return resolve(stream, current_device()); }

bool run_one(ihipStream_t& stream, hipError_t& error) {
    if (stream.work.empty())
        return false;
    auto work = std::move(stream.work.front());
    stream.work.pop_front();
    const Turn turn(stream.device);
    const hipError_t outcome = sticky_error() ? sticky_error() : work();
    if (error == hipSuccess)
        error = outcome;
    return true;
}

hipError_t drain(ihipStream_t& stream) {
    hipError_t error = hipSuccess;
    while (run_one(stream, error))
        continue;
    return error;
}

// The default stream and the blocking ones wait for each other.
hipError_t drain_predecessors(ihipStream_t& stream) {
    ihipStream_t& common = default_stream(stream.device);
    if (&stream != &common)
        return stream.flags & hipStreamNonBlocking ? hipSuccess : drain(common);
    hipError_t error = hipSuccess;
    streams().each([&](ihipStream_t& other) {
        if (other.device == stream.device && !(other.flags & hipStreamNonBlocking))
            if (const hipError_t outcome = drain(other); error == hipSuccess)
                error = outcome;
    });
    return error;
}

// Makes a step towards a mark; false where there is none left to make.
bool approach(const Mark& mark, hipError_t& error) {
    return stream_is_live(mark.stream) && run_one(resolve(mark.stream, mark.device), error);
}

// Lets a stream wait for a mark of a capture: it comes into that capture, or the stream of the mark leaves it again.
hipError_t wait_in_capture(hipStream_t stream, const Mark& mark) {
    Recording& recording = *mark.capture;
    if (!recording.is_open || !stream || (stream->capture && stream->capture != mark.capture))
        return hipErrorStreamCaptureMerge;
    auto& forks = recording.forks;
    if (!stream->capture) {
        stream->capture = mark.capture;
        forks.push_back(stream);
    } else if (mark.stream != recording.origin && stream_is_captured(mark.stream)) {
        mark.stream->capture = nullptr;
        forks.erase(std::remove(forks.begin(), forks.end(), mark.stream), forks.end());
    }
    return hipSuccess;
}

void reach(const std::shared_ptr<Mark>& mark) {
    hipError_t error = hipSuccess;
    while (mark && !mark->passed && approach(*mark, error))
        continue;
}

} // namespace

bool lazy() {
    static const bool on = setting("HIP_HOST_LAZY", 0) != 0;
    return on;
}

int device_of(hipStream_t stream) { return resolve(stream).device; }

bool stream_is_live(hipStream_t stream) { return !stream || streams().contains(stream); }

bool stream_is_captured(hipStream_t stream) { return stream && streams().contains(stream) && stream->capture; }

hipError_t refuse_capture(hipStream_t stream, hipError_t error) {
    if (!stream_is_captured(stream))
        return hipSuccess;
    stream->capture->is_valid = false;
    return error;
}

hipError_t submit(hipStream_t stream, std::function<hipError_t()> work) {
    if (!stream_is_live(stream))
        return hipErrorInvalidHandle;
    if (stream_is_captured(stream)) {
        stream->capture->nodes.push_back(std::move(work));
        return hipSuccess;
    }
    if (!lazy()) {
        const Turn turn(device_of(stream));
        return work();
    }
    std::lock_guard lock(order());
    ihipStream_t& queue = resolve(stream);
    const hipError_t error = drain_predecessors(queue);
    queue.work.push_back(std::move(work));
    return error;
}

hipError_t run_now(std::function<hipError_t()> work) {
    const hipError_t error = lazy() ? finish_stream(nullptr) : hipSuccess;
    const Turn turn(current_device());
    return error == hipSuccess ? work() : error;
}

hipError_t finish_device(int device) {
    std::lock_guard lock(order());
    hipError_t error = drain(default_stream(device));
    streams().each([&](ihipStream_t& stream) {
        if (stream.device == device)
            if (const hipError_t outcome = drain(stream); error == hipSuccess)
                error = outcome;
    });
    return error;
}

hipError_t finish_stream(hipStream_t stream) {
    std::lock_guard lock(order());
    ihipStream_t& queue = resolve(stream);
    const hipError_t error = drain_predecessors(queue);
    return error ? error : drain(queue);
}

} // namespace hip_host

using namespace hip_host;

HIP_HOST_API hipError_t hipDeviceSynchronize() {
    return api("hipDeviceSynchronize", hipErrorLaunchFailure, [] {
        hipError_t error = hipSuccess;
        streams().each([&](ihipStream_t& stream) {
            if (stream.device == current_device() && refuse_capture(&stream))
                error = hipErrorStreamCaptureUnsupported;
        });
        return error ? error : finish_device(current_device());
    });
}

// Frees what the device holds and brings a device back that a kernel has lost.
HIP_HOST_API hipError_t hipDeviceReset() {
    finish_device(current_device());
    release_device(current_device());
    set_sticky_error(hipSuccess);
    remember(hipSuccess);
    return hipSuccess;
}

HIP_HOST_API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority) {
    return api("hipStreamCreate", hipErrorOutOfMemory, [&] {
        if (!stream || flags > hipStreamNonBlocking)
            return hipErrorInvalidValue;
        *stream = streams().add(new ihipStream_t{current_device(), flags, priority, {}});
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
    return hipStreamCreateWithPriority(stream, flags, 0);
}

HIP_HOST_API hipError_t hipStreamCreate(hipStream_t* stream) {
    return hipStreamCreateWithPriority(stream, hipStreamDefault, 0);
}

HIP_HOST_API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api("hipDeviceGetStreamPriorityRange", hipErrorInvalidValue, [&] {
        if (least)
            *least = 1;
        if (greatest)
            *greatest = -1;
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipStreamDestroy(hipStream_t stream) {
    return api("hipStreamDestroy", hipErrorInvalidHandle, [&] {
        std::lock_guard lock(order());
        if (!stream || !streams().contains(stream))
            return hipErrorInvalidHandle;
        const hipError_t error = drain(*stream);
        streams().destroy(stream);
        return error;
    });
}

HIP_HOST_API hipError_t hipStreamSynchronize(hipStream_t stream) {
    return api("hipStreamSynchronize", hipErrorLaunchFailure, [&] {
        if (const hipError_t refusal = refuse_capture(stream))
            return refusal;
        return stream_is_live(stream) ? finish_stream(stream) : hipErrorInvalidHandle;
    });
}

// Asking makes a step, so that a loop that asks comes to an end.
HIP_HOST_API hipError_t hipStreamQuery(hipStream_t stream) {
    return api("hipStreamQuery", hipErrorLaunchFailure, [&] {
        if (!stream_is_live(stream))
            return hipErrorInvalidHandle;
        if (const hipError_t refusal = refuse_capture(stream))
            return refusal;
        std::lock_guard lock(order());
        hipError_t error = hipSuccess;
        const bool ran = run_one(resolve(stream), error);
        return error == hipSuccess && ran ? hipErrorNotReady : error;
    });
}

HIP_HOST_API hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
    return api("hipEventCreate", hipErrorOutOfMemory, [&] {
        if (!event)
            return hipErrorInvalidValue;
        *event = events().add(new ihipEvent_t{current_device(), flags});
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipEventCreate(hipEvent_t* event) { return hipEventCreateWithFlags(event, 0); }

HIP_HOST_API hipError_t hipEventDestroy(hipEvent_t event) {
    return api("hipEventDestroy", hipErrorInvalidHandle, [&] {
        std::lock_guard lock(order());
        return events().destroy(event) ? hipSuccess : hipErrorInvalidHandle;
    });
}

HIP_HOST_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    return api("hipEventRecord", hipErrorInvalidHandle, [&] {
        if (!events().contains(event) || !stream_is_live(stream))
            return hipErrorInvalidHandle;
        if (device_of(stream) != event->device)
            return hipErrorInvalidHandle;
        std::lock_guard lock(order());
        event->mark = std::make_shared<Mark>(Mark{stream, event->device});
        if (stream_is_captured(stream)) {
            event->mark->capture = stream->capture;
            return hipSuccess;
        }
        return submit(stream, [mark = event->mark] {
            mark->passed = true;
            mark->time = std::chrono::steady_clock::now();
            return hipSuccess;
        });
    });
}

HIP_HOST_API hipError_t hipEventQuery(hipEvent_t event) {
    return api("hipEventQuery", hipErrorLaunchFailure, [&] {
        std::lock_guard lock(order());
        if (!events().contains(event))
            return hipErrorInvalidHandle;
        if (!event->mark || event->mark->passed)
            return hipSuccess;
        if (event->mark->capture)
            return hipErrorCapturedEvent;
        hipError_t error = hipSuccess;
        approach(*event->mark, error);
        return error == hipSuccess ? hipErrorNotReady : error;
    });
}

HIP_HOST_API hipError_t hipEventSynchronize(hipEvent_t event) {
    return api("hipEventSynchronize", hipErrorLaunchFailure, [&] {
        std::lock_guard lock(order());
        if (!events().contains(event))
            return hipErrorInvalidHandle;
        if (event->mark && event->mark->capture)
            return hipErrorCapturedEvent;
        reach(event->mark);
        return sticky_error();
    });
}

HIP_HOST_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
    return api("hipEventElapsedTime", hipErrorInvalidHandle, [&] {
        std::lock_guard lock(order());
        if (!milliseconds)
            return hipErrorInvalidValue;
        if (!events().contains(start) || !events().contains(stop))
            return hipErrorInvalidHandle;
        if (start->device != stop->device || !start->mark || !stop->mark ||
            ((start->flags | stop->flags) & hipEventDisableTiming))
            return hipErrorInvalidHandle;
        if (!start->mark->passed || !stop->mark->passed)
            return hipErrorNotReady;
        *milliseconds = std::chrono::duration<float, std::milli>(stop->mark->time - start->mark->time).count();
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
    return api("hipStreamWaitEvent", hipErrorInvalidHandle, [&] {
        if (!events().contains(event) || !stream_is_live(stream))
            return hipErrorInvalidHandle;
        if (event->mark && event->mark->capture)
            return wait_in_capture(stream, *event->mark);
        if (const hipError_t refusal = refuse_capture(stream, hipErrorStreamCaptureIsolation))
            return refusal;
        return submit(stream, [mark = event->mark] { return reach(mark), hipSuccess; });
    });
}
