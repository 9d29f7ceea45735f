// HIP's memory functions. Every range that claims to be device memory is looked up before it is touched.
#include "allocation.hpp"
#include "device.hpp"
#include "stream.hpp"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace hip_host;

namespace {

// What a handle says of memory that another process maps.
struct SharedMemory {
    pid_t process;
    int file;
    std::size_t span;
    std::ptrdiff_t offset;
    std::size_t bytes;
};
static_assert(sizeof(SharedMemory) <= sizeof(hipIpcMemHandle_t), "HIP's size");

enum class Where { host, pinned, device };

// Nothing of [address, address + bytes) may lie outside of the allocation that it begins in.
hipError_t place(const void* address, std::size_t bytes, Where& where) {
    if (!address)
        return hipErrorInvalidValue;
    const std::optional<Allocation> allocation = find_allocation(address);
    if (!allocation) {
        // Freed or guard memory is not the host's either.
        where = Where::host;
        return describe_address(address).empty() ? hipSuccess : hipErrorInvalidValue;
    }
    where = allocation->type == hipMemoryTypeDevice ? Where::device : Where::pinned;
    return allocation->holds(address, bytes) ? hipSuccess : hipErrorInvalidValue;
}

bool fits(hipMemcpyKind kind, Where destination, Where source) {
    const bool to_device = destination == Where::device, from_device = source == Where::device;
    switch (kind) {
    case hipMemcpyHostToHost:
        return !to_device && !from_device;
    case hipMemcpyHostToDevice:
        return to_device && !from_device;
    case hipMemcpyDeviceToHost:
        return !to_device && from_device;
    case hipMemcpyDeviceToDevice:
        return to_device && from_device;
    case hipMemcpyDefault:
        return true;
    }
    return false;
}

struct Rows {
    std::size_t width, height, destination_pitch, source_pitch;

    std::size_t destination_bytes() const { return (height - 1) * destination_pitch + width; }
    std::size_t source_bytes() const { return (height - 1) * source_pitch + width; }
};

void copy_rows(void* destination, const void* source, Rows rows) {
    for (std::size_t row = 0; row < rows.height; ++row)
        std::memmove(static_cast<char*>(destination) + row * rows.destination_pitch,
                     static_cast<const char*>(source) + row * rows.source_pitch, rows.width);
}

enum class Wait { for_it, as_the_stream_does };

hipError_t copy(void* destination, const void* source, Rows rows, hipMemcpyKind kind, Wait wait, hipStream_t stream) {
    if (rows.width == 0 || rows.height == 0)
        return stream_is_live(stream) ? hipSuccess : hipErrorInvalidHandle;
    Where to, from;
    if (rows.width > rows.destination_pitch || rows.width > rows.source_pitch ||
        place(destination, rows.destination_bytes(), to) || place(source, rows.source_bytes(), from))
        return hipErrorInvalidValue;
    if (!fits(kind, to, from))
        return hipErrorInvalidMemcpyDirection;
    // A replay would read or write the host's memory, whatever has become of it.
    if (wait != Wait::for_it && (to == Where::host || from == Where::host))
        if (const hipError_t refusal = refuse_capture(stream))
            return refusal;
    const auto work = [=] { return copy_rows(destination, source, rows), hipSuccess; };
    if (wait == Wait::for_it)
        return run_now(work);
    if (!lazy())
        return submit(stream, work);
    if (from == Where::host) {
        // HIP stages pageable memory before the call returns, so the host may reuse it at once.
        const auto* begin = static_cast<const char*>(source);
        std::vector<char> staged(begin, begin + rows.source_bytes());
        return submit(stream, [=, staged = std::move(staged)] {
            return copy_rows(destination, staged.data(), rows), hipSuccess;
        });
    }
    const hipError_t error = submit(stream, work);
    // To pageable memory the copy is done when the call returns.
    return error == hipSuccess && to == Where::host ? finish_stream(stream) : error;
}

hipError_t copy(void* destination, const void* source, std::size_t bytes, hipMemcpyKind kind, Wait wait,
                hipStream_t stream) {
    return copy(destination, source, Rows{bytes, 1, bytes, bytes}, kind, wait, stream);
}

template <class Value>
hipError_t fill(void* destination, Value value, std::size_t count, Wait wait, hipStream_t stream) {
    if (count == 0)
        return stream_is_live(stream) ? hipSuccess : hipErrorInvalidHandle;
    Where where;
    if (!stream_is_live(stream))
        return hipErrorInvalidHandle;
    if (place(destination, count * sizeof(Value), where) || where == Where::host)
        return hipErrorInvalidValue;
    // A fill is a kernel, which does not reach the memory of another device.
    if (where == Where::device && find_allocation(destination)->device != device_of(stream))
        return hipErrorInvalidValue;
    const auto work = [=] {
        for (std::size_t index = 0; index < count; ++index)
            std::memcpy(static_cast<char*>(destination) + index * sizeof(Value), &value, sizeof(Value));
        return hipSuccess;
    };
    return wait == Wait::for_it ? run_now(work) : submit(stream, work);
}

hipError_t allocate_for(const char* name, void** address, std::size_t bytes, hipMemoryType type, unsigned flags) {
    return api(name, hipErrorOutOfMemory, [&] {
        if (!address)
            return hipErrorInvalidValue;
        *address = nullptr;
        if (!is_device(current_device()))
            return hipErrorNoDevice;
        const hipError_t error = bytes ? allocate(address, bytes, type, current_device(), flags) : hipSuccess;
        LogLine(name).integer("bytes", static_cast<long long>(bytes)).address("address", *address);
        return error;
    });
}

// Memory is freed when its device has done all that may use it, whichever device is current.
hipError_t finish_owner(const void* address) {
    const std::optional<Allocation> allocation = find_allocation(address);
    return finish_device(allocation ? allocation->device : current_device());
}

hipError_t release_for(const char* name, void* address, hipMemoryType type) {
    if (!address)
        return hipSuccess;
    LogLine(name).address("address", address);
    return release(address, type);
}

constexpr auto wait_for_it = Wait::for_it;
constexpr auto in_order = Wait::as_the_stream_does;

} // namespace

HIP_HOST_API hipError_t hipMalloc(void** address, std::size_t bytes) {
    return allocate_for("hipMalloc", address, bytes, hipMemoryTypeDevice, 0);
}

HIP_HOST_API hipError_t hipExtMallocWithFlags(void** address, std::size_t bytes, unsigned flags) {
    return api("hipExtMallocWithFlags", hipErrorOutOfMemory, [&] {
        if (!address || flags > 1)
            return hipErrorInvalidValue;
        *address = nullptr;
        return bytes ? allocate_shared(address, bytes, current_device(), flags) : hipSuccess;
    });
}

// Of memory that was not allocated with flags HIP shares the whole block that it lies in; here there is nothing to map.
HIP_HOST_API hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* address) {
    return api("hipIpcGetMemHandle", hipErrorInvalidValue, [&] {
        const std::optional<Allocation> allocation = find_allocation(address);
        if (!handle || !allocation || allocation->begin != address || allocation->file < 0)
            return hipErrorInvalidValue;
        const auto [pages, span] = pages_of(*allocation);
        const SharedMemory shared{getpid(), allocation->file, span, allocation->begin - pages, allocation->bytes};
        std::memcpy(handle->reserved, &shared, sizeof shared);
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipIpcOpenMemHandle(void** address, hipIpcMemHandle_t handle, unsigned flags) {
    return api("hipIpcOpenMemHandle", hipErrorInvalidValue, [&] {
        SharedMemory shared;
        std::memcpy(&shared, handle.reserved, sizeof shared);
        // A process does not open what is its own.
        if (!address || flags != 1 || shared.process == getpid())
            return hipErrorInvalidValue;
        const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
        const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (file < 0)
            return hipErrorInvalidValue;
        void* const pages = mmap(nullptr, shared.span, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (pages == MAP_FAILED)
            return hipErrorOutOfMemory;
        *address = static_cast<char*>(pages) + shared.offset;
        register_external(*address, shared.bytes, current_device());
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipIpcCloseMemHandle(void* address) {
    return api("hipIpcCloseMemHandle", hipErrorInvalidValue, [&] {
        const std::optional<Allocation> allocation = find_allocation(address);
        if (!allocation || allocation->begin != address || !allocation->external)
            return hipErrorInvalidValue;
        const auto [pages, span] = pages_of(*allocation);
        forget_external(address);
        return munmap(pages, span) == 0 ? hipSuccess : hipErrorInvalidValue;
    });
}

HIP_HOST_API hipError_t hipMallocAsync(void** address, std::size_t bytes, hipStream_t stream) {
    if (!stream_is_live(stream))
        return remember(hipErrorInvalidHandle);
    return allocate_for("hipMallocAsync", address, bytes, hipMemoryTypeDevice, 0);
}

HIP_HOST_API hipError_t hipHostMalloc(void** address, std::size_t bytes, unsigned flags) {
    return allocate_for("hipHostMalloc", address, bytes, hipMemoryTypeHost, flags);
}

HIP_HOST_API hipError_t hipFree(void* address) {
    return api("hipFree", hipErrorInvalidValue, [&] {
        const hipError_t error = finish_owner(address);
        return error ? error : release_for("hipFree", address, hipMemoryTypeDevice);
    });
}

HIP_HOST_API hipError_t hipFreeAsync(void* address, hipStream_t stream) {
    return api("hipFreeAsync", hipErrorInvalidValue, [&] {
        const std::optional<Allocation> allocation = find_allocation(address);
        if (!allocation || allocation->begin != address)
            return hipErrorInvalidValue;
        return submit(stream, [=] { return release_for("hipFreeAsync", address, hipMemoryTypeDevice); });
    });
}

HIP_HOST_API hipError_t hipHostFree(void* address) {
    return api("hipHostFree", hipErrorInvalidValue, [&] {
        const hipError_t error = finish_owner(address);
        return error ? error : release_for("hipHostFree", address, hipMemoryTypeHost);
    });
}

HIP_HOST_API hipError_t hipMemGetInfo(std::size_t* available, std::size_t* total) {
    return api("hipMemGetInfo", hipErrorInvalidValue, [&] {
        if (!available || !total)
            return hipErrorInvalidValue;
        *total = memory_limit();
        *available = *total - allocated_bytes(current_device());
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address) {
    return api("hipPointerGetAttributes", hipErrorInvalidValue, [&] {
        const std::optional<Allocation> allocation = find_allocation(address);
        if (!attributes || !allocation)
            return hipErrorInvalidValue;
        void* pointer = const_cast<void*>(address);
        const bool on_device = allocation->type == hipMemoryTypeDevice;
        *attributes = {allocation->type, allocation->device, pointer, on_device ? nullptr : pointer, 0,
                       allocation->flags};
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipMemcpy(void* destination, const void* source, std::size_t bytes, hipMemcpyKind kind) {
    return api("hipMemcpy", hipErrorInvalidValue,
               [&] { return copy(destination, source, bytes, kind, wait_for_it, nullptr); });
}

HIP_HOST_API hipError_t hipMemcpyAsync(void* destination, const void* source, std::size_t bytes, hipMemcpyKind kind,
                                       hipStream_t stream) {
    return api("hipMemcpyAsync", hipErrorInvalidValue,
               [&] { return copy(destination, source, bytes, kind, in_order, stream); });
}

HIP_HOST_API hipError_t hipMemcpyWithStream(void* destination, const void* source, std::size_t bytes,
                                            hipMemcpyKind kind, hipStream_t stream) {
    return api("hipMemcpyWithStream", hipErrorInvalidValue, [&] {
        const hipError_t error = copy(destination, source, bytes, kind, in_order, stream);
        return error ? error : finish_stream(stream);
    });
}

HIP_HOST_API hipError_t hipMemcpyHtoD(void* destination, const void* source, std::size_t bytes) {
    return hipMemcpy(destination, source, bytes, hipMemcpyHostToDevice);
}
HIP_HOST_API hipError_t hipMemcpyDtoH(void* destination, void* source, std::size_t bytes) {
    return hipMemcpy(destination, source, bytes, hipMemcpyDeviceToHost);
}
HIP_HOST_API hipError_t hipMemcpyDtoD(void* destination, void* source, std::size_t bytes) {
    return hipMemcpy(destination, source, bytes, hipMemcpyDeviceToDevice);
}
HIP_HOST_API hipError_t hipMemcpyHtoDAsync(void* destination, const void* source, std::size_t bytes,
                                           hipStream_t stream) {
    return hipMemcpyAsync(destination, source, bytes, hipMemcpyHostToDevice, stream);
}
HIP_HOST_API hipError_t hipMemcpyDtoHAsync(void* destination, void* source, std::size_t bytes, hipStream_t stream) {
    return hipMemcpyAsync(destination, source, bytes, hipMemcpyDeviceToHost, stream);
}
HIP_HOST_API hipError_t hipMemcpyDtoDAsync(void* destination, void* source, std::size_t bytes, hipStream_t stream) {
    return hipMemcpyAsync(destination, source, bytes, hipMemcpyDeviceToDevice, stream);
}

HIP_HOST_API hipError_t hipMemcpyPeerAsync(void* destination, int to_device, const void* source, int from_device,
                                           std::size_t bytes, hipStream_t stream) {
    return api("hipMemcpyPeer", hipErrorInvalidValue, [&] {
        if (!is_device(to_device) || !is_device(from_device))
            return hipErrorInvalidDevice;
        const std::optional<Allocation> to = find_allocation(destination), from = find_allocation(source);
        if (bytes && (!to || !from || to->device != to_device || from->device != from_device))
            return hipErrorInvalidValue;
        if (!stream_is_live(stream))
            return hipErrorInvalidHandle;
        LogLine("hipMemcpyPeer")
            .integer("bytes", static_cast<long long>(bytes))
            .integer("from", from_device)
            .integer("to", to_device)
            .integer("direct",
                     bytes && reaches(device_of(stream), device_of(stream) == to_device ? from_device : to_device));
        return copy(destination, source, bytes, hipMemcpyDeviceToDevice, in_order, stream);
    });
}

HIP_HOST_API hipError_t hipMemcpyPeer(void* destination, int to_device, const void* source, int from_device,
                                      std::size_t bytes) {
    const hipError_t error = hipMemcpyPeerAsync(destination, to_device, source, from_device, bytes, nullptr);
    return error ? error : finish_device(current_device());
}

HIP_HOST_API hipError_t hipMemcpy2D(void* destination, std::size_t destination_pitch, const void* source,
                                    std::size_t source_pitch, std::size_t width, std::size_t height,
                                    hipMemcpyKind kind) {
    return api("hipMemcpy2D", hipErrorInvalidValue, [&] {
        return copy(destination, source, Rows{width, height, destination_pitch, source_pitch}, kind, wait_for_it,
                    nullptr);
    });
}

HIP_HOST_API hipError_t hipMemcpy2DAsync(void* destination, std::size_t destination_pitch, const void* source,
                                         std::size_t source_pitch, std::size_t width, std::size_t height,
                                         hipMemcpyKind kind, hipStream_t stream) {
    return api("hipMemcpy2DAsync", hipErrorInvalidValue, [&] {
        return copy(destination, source, Rows{width, height, destination_pitch, source_pitch}, kind, in_order, stream);
    });
}

#define HIP_HOST_FILL(name, Value, Given)                                                                              \
    HIP_HOST_API hipError_t name(void* destination, Given value, std::size_t count) {                                  \
        return api(#name, hipErrorInvalidValue,                                                                        \
                   [&] { return fill(destination, static_cast<Value>(value), count, wait_for_it, nullptr); });         \
    }                                                                                                                  \
    HIP_HOST_API hipError_t name##Async(void* destination, Given value, std::size_t count, hipStream_t stream) {       \
        return api(#name "Async", hipErrorInvalidValue,                                                                \
                   [&] { return fill(destination, static_cast<Value>(value), count, in_order, stream); });             \
    }

HIP_HOST_FILL(hipMemset, unsigned char, int)
HIP_HOST_FILL(hipMemsetD8, unsigned char, unsigned char)
HIP_HOST_FILL(hipMemsetD16, unsigned short, unsigned short)
HIP_HOST_FILL(hipMemsetD32, unsigned, int)
