// Captures of streams, and graphs of what was captured: a chain of nodes, in the order in which they were enqueued.
#include "device.hpp"
#include "stream.hpp"

#include <atomic>

struct ihipGraph {
    std::shared_ptr<hip_host::Recording> recording;
};

struct hipGraphExec {
    std::shared_ptr<hip_host::Recording> recording;
    // Launches that are not done.
    std::shared_ptr<std::atomic<int>> under_way = std::make_shared<std::atomic<int>>(0);
};

using namespace hip_host;

namespace {

Registry<ihipGraph>& graphs() {
    static auto& instance = *new Registry<ihipGraph>("graph");
    return instance;
}

Registry<hipGraphExec>& executables() {
    static auto& instance = *new Registry<hipGraphExec>("graph exec");
    return instance;
}

} // namespace

// Only the relaxed mode, in which other calls are allowed that might wait.
HIP_HOST_API hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
    return api("hipStreamBeginCapture", hipErrorInvalidValue, [&] {
        if (!stream)
            return hipErrorStreamCaptureUnsupported;
        if (!stream_is_live(stream))
            return hipErrorInvalidHandle;
        if (stream->capture)
            return hipErrorIllegalState;
        if (mode != hipStreamCaptureModeRelaxed)
            return hipErrorNotSupported;
        LogLine("hipStreamBeginCapture").address("stream", stream);
        stream->capture = std::make_shared<Recording>(Recording{stream->device, stream});
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
    return api("hipStreamEndCapture", hipErrorInvalidValue, [&] {
        if (!graph)
            return hipErrorInvalidValue;
        *graph = nullptr;
        if (!stream || !stream_is_live(stream))
            return hipErrorInvalidHandle;
        if (!stream->capture)
            return hipErrorIllegalState;
        if (stream->capture->origin != stream)
            return hipErrorStreamCaptureUnmatched;
        const std::shared_ptr<Recording> recording = std::move(stream->capture);
        stream->capture = nullptr;
        recording->is_open = false;
        for (const hipStream_t fork : recording->forks)
            if (stream_is_captured(fork))
                fork->capture = nullptr;
        LogLine("hipStreamEndCapture").address("stream", stream).integer("nodes", recording->nodes.size());
        if (!recording->is_valid)
            return hipErrorStreamCaptureInvalidated;
        if (!recording->forks.empty())
            return hipErrorStreamCaptureUnjoined;
        *graph = graphs().add(new ihipGraph{recording});
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                                     unsigned long long flags) {
    return api("hipGraphInstantiateWithFlags", hipErrorOutOfMemory, [&] {
        if (!executable || flags || !graphs().contains(graph) || graph->recording->nodes.empty())
            return hipErrorInvalidValue;
        *executable = executables().add(new hipGraphExec{graph->recording});
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
    return api("hipGraphLaunch", hipErrorLaunchFailure, [&] {
        if (!executables().contains(executable))
            return hipErrorInvalidValue;
        // As for a kernel.
        const int device = current_device();
        if (!stream_is_live(stream) || device_of(stream) != device || executable->recording->device != device)
            return hipErrorInvalidHandle;
        if (const hipError_t refusal = refuse_capture(stream))
            return refusal;
        LogLine("hipGraphLaunch").integer("nodes", executable->recording->nodes.size()).address("stream", stream);
        ++*executable->under_way;
        return submit(stream, [recording = executable->recording, under_way = executable->under_way] {
            hipError_t error = hipSuccess;
            for (const Work& work : recording->nodes)
                if (error == hipSuccess)
                    error = work();
            --*under_way;
            return error;
        });
    });
}

HIP_HOST_API hipError_t hipGraphDestroy(hipGraph_t graph) {
    return api("hipGraphDestroy", hipErrorInvalidValue,
               [&] { return graphs().destroy(graph) ? hipSuccess : hipErrorInvalidValue; });
}

// Not before its launches are done.
HIP_HOST_API hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
    return api("hipGraphExecDestroy", hipErrorInvalidValue, [&] {
        if (!executables().contains(executable) || *executable->under_way)
            return hipErrorInvalidValue;
        LogLine("hipGraphExecDestroy");
        return executables().destroy(executable) ? hipSuccess : hipErrorInvalidValue;
    });
}
