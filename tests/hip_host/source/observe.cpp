// What tests look at and turn: injected failures, the call log, the count of live objects.
#include "hip_host.hpp"

#include <atomic>
#include <cstdio>
#include <map>
#include <sstream>
#include <vector>

namespace hip_host {
namespace {

// ---- Injected failures

struct Injection {
    long calls_left; // until the first failure
    bool stays;      // fails from then on, not once
    int error;       // 0 for the natural one
};

class Injections {
  public:
    // HIP_HOST_FAIL is a list such as "hipMalloc:3,hipModuleLoadData:1+:200": the function, which call of it, a plus
    // where all later calls fail too, and the error where it is not the natural one.
    Injections() {
        const char* text = std::getenv("HIP_HOST_FAIL");
        std::istringstream list(text ? text : "");
        for (std::string item; std::getline(list, item, ',');) {
            std::istringstream fields(item);
            std::string name, nth, error;
            std::getline(fields, name, ':');
            std::getline(fields, nth, ':');
            std::getline(fields, error, ':');
            const long number = nth.empty() ? 1 : std::atol(nth.c_str());
            const bool stays = !nth.empty() && nth.back() == '+';
            set(name, stays ? -number : number, error.empty() ? 0 : std::atoi(error.c_str()));
        }
    }

    void set(const std::string& name, long nth, int error) {
        std::lock_guard lock(mutex_);
        if (nth == 0)
            by_name_.erase(name);
        else
            by_name_[name] = {std::labs(nth), nth < 0, error};
        armed_ = !by_name_.empty();
    }

    void clear() {
        std::lock_guard lock(mutex_);
        by_name_.clear();
        armed_ = false;
    }

    int take(const char* name, int natural) {
        if (!armed_)
            return 0;
        std::lock_guard lock(mutex_);
        auto found = by_name_.find(name);
        if (found == by_name_.end() || (found->second.calls_left > 1 && found->second.calls_left--))
            return 0;
        const int error = found->second.error ? found->second.error : natural;
        if (!found->second.stays)
            by_name_.erase(found);
        armed_ = !by_name_.empty();
        return error;
    }

  private:
    std::mutex mutex_;
    std::atomic<bool> armed_{false};
    std::map<std::string, Injection> by_name_;
};

Injections& injections() {
    static Injections instance;
    return instance;
}

// ---- The trace: every call that can fail, by the name for injections

class Trace {
  public:
    void add(const char* function) {
        if (!enabled_)
            return;
        std::lock_guard lock(mutex_);
        (kept_ += function) += '\n';
    }

    void keep(bool on) {
        std::lock_guard lock(mutex_);
        enabled_ = on;
        kept_.clear();
    }

    const char* take() {
        std::lock_guard lock(mutex_);
        taken_.swap(kept_);
        kept_.clear();
        return taken_.c_str();
    }

  private:
    std::mutex mutex_;
    std::atomic<bool> enabled_{false};
    std::string kept_, taken_;
};

Trace& trace() {
    static Trace instance;
    return instance;
}

// ---- The call log

class Log {
  public:
    Log() {
        if (const char* path = std::getenv("HIP_HOST_LOG"); path && *path) {
            file_ = std::fopen(path, "a");
            if (!file_)
                std::fprintf(stderr, "hip_host: cannot write HIP_HOST_LOG=%s\n", path);
        }
        enabled = file_ != nullptr;
    }

    void add(const std::string& line) {
        std::lock_guard lock(mutex_);
        if (keep_)
            kept_ += line;
        if (file_) {
            std::fwrite(line.data(), 1, line.size(), file_);
            std::fflush(file_);
        }
    }

    void keep(bool on) {
        std::lock_guard lock(mutex_);
        keep_ = on;
        kept_.clear();
        enabled = keep_ || file_;
    }

    const char* take() {
        std::lock_guard lock(mutex_);
        taken_.swap(kept_);
        kept_.clear();
        return taken_.c_str();
    }

    std::atomic<bool> enabled{false};

  private:
    std::mutex mutex_;
    std::FILE* file_ = nullptr;
    bool keep_ = false;
    std::string kept_, taken_;
};

Log& call_log() {
    static Log instance;
    return instance;
}

std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (char letter : text) {
        if (letter == '"' || letter == '\\')
            result += '\\';
        result += letter;
    }
    return result + '"';
}

// ---- Live objects

std::mutex live_mutex;
std::map<std::string, long>& live_counts() {
    static std::map<std::string, long> counts;
    return counts;
}

} // namespace

int injected_failure(const char* function, int natural) {
    trace().add(function);
    return injections().take(function, natural);
}

void count_live(const char* kind, long change) {
    std::lock_guard lock(live_mutex);
    live_counts()[kind] += change;
}

bool log_enabled() { return call_log().enabled; }

LogLine::LogLine(const char* call) : enabled_(log_enabled()) { text("call", call); }

LogLine::~LogLine() {
    if (enabled_)
        call_log().add(line_ + "}\n");
}

LogLine& LogLine::raw(const char* key, const std::string& value) {
    if (enabled_)
        line_ += (line_.empty() ? "{" : ", ") + quoted(key) + ": " + value;
    return *this;
}

LogLine& LogLine::text(const char* key, const std::string& value) { return enabled_ ? raw(key, quoted(value)) : *this; }

LogLine& LogLine::number(const char* key, double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    return raw(key, digits);
}

LogLine& LogLine::integer(const char* key, long long value) { return raw(key, std::to_string(value)); }

LogLine& LogLine::address(const char* key, const void* value) {
    return integer(key, static_cast<long long>(reinterpret_cast<std::uintptr_t>(value)));
}

} // namespace hip_host

// Fails the nth call from now of a function: once where nth is positive, that one and all later ones where it is
// negative; 0 disarms. An error of 0 is the function's natural one. A null name disarms all.
HIP_HOST_API void hip_host_fail(const char* function, long nth, int error) {
    if (function)
        hip_host::injections().set(function, nth, error);
    else
        hip_host::injections().clear();
}

// Starts (and empties) or stops the log that hip_host_log_take reads.
HIP_HOST_API void hip_host_log_keep(int on) { hip_host::call_log().keep(on != 0); }

// The lines since the last take. The text is valid until the next one.
HIP_HOST_API const char* hip_host_log_take() { return hip_host::call_log().take(); }

// Starts (and empties) or stops the trace that hip_host_trace_take reads.
HIP_HOST_API void hip_host_trace_keep(int on) { hip_host::trace().keep(on != 0); }

// The functions that were called since the last take, a line each: those that hip_host_fail knows, by the names that it
// knows. The text is valid until the next one.
HIP_HOST_API const char* hip_host_trace_take() { return hip_host::trace().take(); }

// The kinds of which there were objects, and how many are live, as a JSON object. The text is valid until the next one.
HIP_HOST_API const char* hip_host_live_all() {
    static std::string text;
    std::lock_guard lock(hip_host::live_mutex);
    text.clear();
    for (const auto& [kind, count] : hip_host::live_counts())
        text += (text.empty() ? "{" : ", ") + hip_host::quoted(kind) + ": " + std::to_string(count);
    text += text.empty() ? "{}" : "}";
    return text.c_str();
}

// How many objects of a kind are live: "device memory", "host memory", "stream", "event", "module", "function",
// "program", "hipblas handle", "miopen handle", "tensor descriptor", "convolution descriptor", "pooling descriptor".
HIP_HOST_API long hip_host_live(const char* kind) {
    std::lock_guard lock(hip_host::live_mutex);
    auto found = hip_host::live_counts().find(kind);
    return found == hip_host::live_counts().end() ? 0 : found->second;
}
