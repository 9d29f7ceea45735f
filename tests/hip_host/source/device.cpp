// Devices, their properties, and errors.
#include "device.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

namespace hip_host {
namespace {

std::atomic<hipError_t> sticky{hipSuccess};
thread_local hipError_t last_error = hipSuccess;
thread_local int chosen_device = 0;

// Pairs of a device and one whose memory it was let reach.
std::mutex peers_mutex;
std::set<std::pair<int, int>>& reached_peers() {
    static auto& instance = *new std::set<std::pair<int, int>>;
    return instance;
}

bool can_reach(int device, int peer) {
    static const bool allowed = setting("HIP_HOST_PEERS", 0) != 0;
    return allowed && device != peer;
}

// HIP 7.15, in the form major * 10^7 + minor * 10^5 + patch.
constexpr int runtime_version = 71526333;

struct ErrorText {
    hipError_t error;
    const char* name;
    const char* description;
};

constexpr ErrorText error_texts[] = {
    {hipSuccess, "hipSuccess", "no error"},
    {hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {hipErrorInvalidDevicePointer, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {hipErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {hipErrorInvalidDeviceFunction, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {hipErrorNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {hipErrorInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {hipErrorInvalidContext, "hipErrorInvalidContext", "invalid device context"},
    {hipErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {hipErrorFileNotFound, "hipErrorFileNotFound", "file not found"},
    {hipErrorSharedObjectInitFailed, "hipErrorSharedObjectInitFailed", "shared object initialization failed"},
    {hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {hipErrorIllegalState, "hipErrorIllegalState", "the operation cannot be performed in the present state"},
    {hipErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {hipErrorIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {hipErrorLaunchOutOfResources, "hipErrorLaunchOutOfResources", "too many resources requested for launch"},
    {hipErrorPeerAccessUnsupported, "hipErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {hipErrorPeerAccessAlreadyEnabled, "hipErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {hipErrorPeerAccessNotEnabled, "hipErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {hipErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {hipErrorStreamCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {hipErrorStreamCaptureMerge, "hipErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {hipErrorStreamCaptureUnmatched, "hipErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {hipErrorStreamCaptureUnjoined, "hipErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {hipErrorStreamCaptureIsolation, "hipErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {hipErrorCapturedEvent, "hipErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {hipErrorUnknown, "hipErrorUnknown", "unknown error"},
};

const ErrorText& text_of(hipError_t error) {
    for (const ErrorText& text : error_texts)
        if (text.error == error)
            return text;
    return *(std::end(error_texts) - 1);
}

hipUUID uuid_of(int device) {
    hipUUID uuid{"hip-host-device"};
    uuid.bytes[15] = static_cast<char>(device);
    return uuid;
}

hipDeviceProp_t properties_of(int device) {
    hipDeviceProp_t properties{};
    std::snprintf(properties.name, sizeof properties.name, "HIP on the CPU");
    std::snprintf(properties.gcnArchName, sizeof properties.gcnArchName, "%s", target_name().c_str());
    properties.uuid = uuid_of(device);
    properties.totalGlobalMem = memory_limit();
    properties.sharedMemPerBlock = properties.sharedMemPerBlockOptin = max_shared_memory;
    properties.sharedMemPerMultiprocessor = properties.maxSharedMemoryPerMultiProcessor = max_shared_memory;
    properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
    properties.warpSize = wave_size();
    properties.memPitch = 0x7fffffff;
    properties.maxThreadsPerBlock = max_threads_per_block;
    std::fill_n(properties.maxThreadsDim, 3, max_threads_per_block);
    properties.maxGridSize[0] = 0x7fffffff;
    properties.maxGridSize[1] = properties.maxGridSize[2] = 65535;
    properties.clockRate = 1000000;
    properties.memoryClockRate = 1000000;
    properties.memoryBusWidth = 64;
    properties.totalConstMem = 0x7fffffff;
    properties.major = 9;
    properties.textureAlignment = properties.texturePitchAlignment = properties.surfaceAlignment = 256;
    properties.multiProcessorCount = multiprocessor_count();
    properties.integrated = 1;
    properties.canMapHostMemory = 1;
    properties.concurrentKernels = 1;
    properties.cooperativeLaunch = 1;
    properties.pciBusID = device + 1;
    properties.unifiedAddressing = 1;
    properties.l2CacheSize = 4 << 20;
    properties.maxThreadsPerMultiProcessor = 2048;
    properties.maxBlocksPerMultiProcessor = 2048 / wave_size();
    properties.streamPrioritiesSupported = 1;
    properties.clockInstructionRate = 100000;
    return properties;
}

// The attributes of hipDeviceAttribute_t that describe this device, by HIP's numbers.
std::optional<int> attribute_of(int number, const hipDeviceProp_t& properties) {
    switch (number) {
    case 5:
        return properties.clockRate;
    case 8:
        return properties.concurrentKernels;
    case 16:
        return properties.integrated;
    case 23:
        return properties.major;
    case 25:
        return properties.maxBlocksPerMultiProcessor;
    case 26:
    case 27:
    case 28:
        return properties.maxThreadsDim[number - 26];
    case 29:
    case 30:
    case 31:
        return properties.maxGridSize[number - 29];
    case 56:
        return properties.maxThreadsPerBlock;
    case 57:
        return properties.maxThreadsPerMultiProcessor;
    case 61:
        return properties.minor;
    case 63:
        return properties.multiProcessorCount;
    case 67:
        return properties.pciBusID;
    case 74:
    case 75:
    case 76:
        return static_cast<int>(properties.sharedMemPerBlock);
    case 87:
        return properties.warpSize;
    default:
        return std::nullopt;
    }
}

} // namespace

int wave_size() {
    static const int size = setting("HIP_HOST_WAVE", 64) == 32 ? 32 : 64;
    return size;
}

std::string target_name() {
    const char* chosen = std::getenv("HIP_HOST_TARGET");
    return chosen && *chosen ? chosen : "host" + std::to_string(wave_size());
}

int device_count() {
    static const int count = static_cast<int>(std::max(0L, setting("HIP_HOST_DEVICES", 1)));
    return count;
}

int current_device() { return chosen_device; }

int multiprocessor_count() {
    static const int count = static_cast<int>(
        std::max(1L, setting("HIP_HOST_THREADS", 0) ? setting("HIP_HOST_THREADS", 0)
                                                    : static_cast<long>(std::thread::hardware_concurrency())));
    return count;
}

std::size_t memory_limit() {
    static const std::size_t limit =
        static_cast<std::size_t>(setting("HIP_HOST_MEMORY", sysconf(_SC_PHYS_PAGES) / 2 * sysconf(_SC_PAGESIZE)));
    return limit;
}

bool reaches(int device, int peer) {
    std::lock_guard lock(peers_mutex);
    return reached_peers().count({device, peer}) != 0;
}

hipError_t sticky_error() { return sticky; }
void set_sticky_error(hipError_t error) { sticky = error; }
hipError_t remember(hipError_t error) { return last_error = error; }

} // namespace hip_host

using namespace hip_host;

HIP_HOST_API hipError_t hipInit(unsigned flags) {
    return api("hipInit", hipErrorNotInitialized, [&] { return flags ? hipErrorInvalidValue : hipSuccess; });
}

HIP_HOST_API hipError_t hipGetDeviceCount(int* count) {
    return api("hipGetDeviceCount", hipErrorNoDevice, [&] {
        if (!count)
            return hipErrorInvalidValue;
        *count = device_count();
        return *count ? hipSuccess : hipErrorNoDevice;
    });
}

HIP_HOST_API hipError_t hipGetDevice(int* device) {
    return api("hipGetDevice", hipErrorNoDevice, [&] {
        if (!device)
            return hipErrorInvalidValue;
        *device = chosen_device;
        return device_count() ? hipSuccess : hipErrorNoDevice;
    });
}

HIP_HOST_API hipError_t hipSetDevice(int device) {
    return api("hipSetDevice", hipErrorInvalidDevice, [&] {
        if (!is_device(device))
            return hipErrorInvalidDevice;
        chosen_device = device;
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t* properties, int device) {
    return api("hipGetDeviceProperties", hipErrorInvalidDevice, [&] {
        if (!properties)
            return hipErrorInvalidValue;
        if (!is_device(device))
            return hipErrorInvalidDevice;
        *properties = properties_of(device);
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipDeviceGetAttribute(int* value, int attribute, int device) {
    return api("hipDeviceGetAttribute", hipErrorInvalidDevice, [&] {
        if (!value)
            return hipErrorInvalidValue;
        if (!is_device(device))
            return hipErrorInvalidDevice;
        const std::optional<int> known = attribute_of(attribute, properties_of(device));
        *value = known.value_or(0);
        return known ? hipSuccess : hipErrorNotSupported;
    });
}

HIP_HOST_API hipError_t hipDeviceGetName(char* name, int length, int device) {
    return api("hipDeviceGetName", hipErrorInvalidDevice, [&] {
        if (!name || length <= 0)
            return hipErrorInvalidValue;
        if (!is_device(device))
            return hipErrorInvalidDevice;
        std::snprintf(name, static_cast<std::size_t>(length), "%s", properties_of(device).name);
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
    return api("hipDeviceGetUuid", hipErrorInvalidDevice, [&] {
        if (!uuid)
            return hipErrorInvalidValue;
        if (!is_device(device))
            return hipErrorInvalidDevice;
        *uuid = uuid_of(device);
        return hipSuccess;
    });
}

// Kernels here never reach the memory of another device, so that a backend cannot come to rely on it; what access
// between devices changes is what the log says of copies.
HIP_HOST_API hipError_t hipDeviceCanAccessPeer(int* can_access, int device, int peer) {
    return api("hipDeviceCanAccessPeer", hipErrorInvalidDevice, [&] {
        if (!can_access)
            return hipErrorInvalidValue;
        if (!is_device(device) || !is_device(peer))
            return hipErrorInvalidDevice;
        *can_access = can_reach(device, peer);
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    return api("hipDeviceEnablePeerAccess", hipErrorInvalidDevice, [&] {
        if (flags)
            return hipErrorInvalidValue;
        if (!is_device(peer) || peer == chosen_device)
            return hipErrorInvalidDevice;
        if (!can_reach(chosen_device, peer))
            return hipErrorPeerAccessUnsupported;
        std::lock_guard lock(peers_mutex);
        if (!reached_peers().insert({chosen_device, peer}).second)
            return hipErrorPeerAccessAlreadyEnabled;
        LogLine("hipDeviceEnablePeerAccess").integer("device", chosen_device).integer("peer", peer);
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipDeviceDisablePeerAccess(int peer) {
    return api("hipDeviceDisablePeerAccess", hipErrorInvalidDevice, [&] {
        if (!is_device(peer))
            return hipErrorInvalidDevice;
        std::lock_guard lock(peers_mutex);
        return reached_peers().erase({chosen_device, peer}) ? hipSuccess : hipErrorPeerAccessNotEnabled;
    });
}

HIP_HOST_API hipError_t hipRuntimeGetVersion(int* version) {
    return api("hipRuntimeGetVersion", hipErrorInvalidValue,
               [&] { return version ? (*version = runtime_version, hipSuccess) : hipErrorInvalidValue; });
}

HIP_HOST_API hipError_t hipDriverGetVersion(int* version) {
    return api("hipDriverGetVersion", hipErrorInvalidValue,
               [&] { return version ? (*version = runtime_version, hipSuccess) : hipErrorInvalidValue; });
}

HIP_HOST_API hipError_t hipGetLastError() {
    const hipError_t error = sticky ? sticky.load() : last_error;
    last_error = hipSuccess;
    return error;
}

HIP_HOST_API hipError_t hipPeekAtLastError() { return sticky ? sticky.load() : last_error; }
HIP_HOST_API const char* hipGetErrorName(hipError_t error) { return text_of(error).name; }
HIP_HOST_API const char* hipGetErrorString(hipError_t error) { return text_of(error).description; }
