// What the libraries share: the frame around every call, fault injection, the call log, the count of live objects.
// All of it lives in libamdhip64; the others link against that.
#pragma once

#include "hip_types.hpp"

#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_set>

// The libraries hide their symbols; these ones are shared.
#pragma GCC visibility push(default)

namespace hip_host {

// ---- Settings

inline long setting(const char* name, long fallback) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtol(text, nullptr, 0) : fallback;
}

// 32 or 64; read once, since compiled kernels depend on it.
int wave_size();

// The name of the target that this process runs code objects of: HIP_HOST_TARGET, or host32 or host64.
std::string target_name();

// ---- The frame around a call

// The error to give instead of doing the call, or 0. `natural` is what the call gives when the injection names no
// error.
int injected_failure(const char* function, int natural);

// Set by a kernel that failed: all later calls give it, as on a real device whose context is lost.
hipError_t sticky_error();
void set_sticky_error(hipError_t error);

// Keeps the error for hipGetLastError, and passes it on.
hipError_t remember(hipError_t error);

template <class Body> hipError_t api(const char* function, hipError_t natural, Body&& body) {
    hipError_t error = static_cast<hipError_t>(injected_failure(function, natural));
    if (error == hipSuccess)
        error = sticky_error();
    if (error == hipSuccess)
        error = body();
    return error == hipSuccess ? error : remember(error);
}

// ---- Live objects

void count_live(const char* kind, long change);

// The objects of one kind behind a handle type. A handle that is not live is recognised, not followed.
template <class Object> class Registry {
  public:
    explicit Registry(const char* kind) : kind_(kind) {}

    Object* add(Object* object) {
        std::lock_guard lock(mutex_);
        objects_.insert(object);
        count_live(kind_, 1);
        return object;
    }

    bool contains(const Object* object) {
        std::lock_guard lock(mutex_);
        return objects_.count(const_cast<Object*>(object)) != 0;
    }

    // False where the handle is not, or no longer, live.
    bool destroy(Object* object) {
        {
            std::lock_guard lock(mutex_);
            if (!objects_.erase(object))
                return false;
            count_live(kind_, -1);
        }
        delete object;
        return true;
    }

    template <class Visit> void each(Visit&& visit) {
        std::unique_lock lock(mutex_);
        const auto objects = objects_; // visiting may come back here
        lock.unlock();
        for (Object* object : objects)
            visit(*object);
    }

  private:
    const char* kind_;
    std::mutex mutex_;
    std::unordered_set<Object*> objects_;
};

// ---- The call log

bool log_enabled();

// One JSON line. Nothing is built, and nothing is written, while the log is off.
class LogLine {
  public:
    explicit LogLine(const char* call);
    ~LogLine();
    LogLine(const LogLine&) = delete;
    LogLine& operator=(const LogLine&) = delete;

    LogLine& text(const char* key, const std::string& value);
    LogLine& number(const char* key, double value);
    LogLine& integer(const char* key, long long value);
    LogLine& address(const char* key, const void* value);
    template <class Range> LogLine& list(const char* key, const Range& values) {
        std::string joined;
        for (auto value : values)
            joined += (joined.empty() ? "" : ", ") + std::to_string(value);
        return raw(key, "[" + joined + "]");
    }

  private:
    LogLine& raw(const char* key, const std::string& value);

    bool enabled_;
    std::string line_;
};

// ---- Memory, for the libraries

// Called in work that was submitted: whether [address, address + bytes) is inside one live allocation of the stream's
// device. Where it is not, the access is reported like a fault of a kernel, under the name of the call.
bool check_access(const char* call, const char* operand, const void* address, std::size_t bytes);

// Runs the work in the stream's order: at once or, in lazy mode, when something waits for it.
hipError_t submit(hipStream_t stream, std::function<hipError_t()> work);
bool stream_is_live(hipStream_t stream);
bool stream_is_captured(hipStream_t stream);

} // namespace hip_host

#pragma GCC visibility pop
