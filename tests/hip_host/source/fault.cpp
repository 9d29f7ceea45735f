#include "fault.hpp"

#include "allocation.hpp"
#include "block.hpp"

#include <cstdio>
#include <cstring>
#include <memory>
#include <signal.h>
#include <unistd.h>

namespace hip_host {
namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction previous[4];

const char* meaning_of(int signal) {
    switch (signal) {
    case SIGFPE:
        return "integer division by zero (a GPU gives an undefined number instead)";
    case SIGILL:
        return "trap";
    default:
        return "access to memory outside of any allocation of the device";
    }
}

void write_report(const std::string& where, const std::string& what) {
    const std::string line = "hip_host: " + where + ": " + what + "\n";
    if (write(STDERR_FILENO, line.data(), line.size()) < 0)
        return; // there is nowhere left to say so
}

std::string at_address(const std::string& what, const void* address) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%#zx", reinterpret_cast<std::size_t>(address));
    const std::string beside = describe_address(address);
    return what + ": address " + digits + ", " + (beside.empty() ? "near no allocation" : beside);
}

// Formatting allocates, which a handler may not do in general. Here the fault is in a kernel, which holds no lock.
void on_signal(int signal, siginfo_t* info, void* context) {
    const int slot = static_cast<int>(std::find(signals, signals + 4, signal) - signals);
    const bool in_kernel = hip_host_current != nullptr;
    const bool is_access = signal == SIGSEGV || signal == SIGBUS;
    if (in_kernel) {
        const std::string what = meaning_of(signal);
        write_report(describe_current_thread(), is_access ? at_address(what, info->si_addr) : what);
        if (!faults_kill()) {
            set_sticky_error(is_access ? hipErrorIllegalAddress : hipErrorLaunchFailure);
            abandon_block();
        }
    } else if (is_access && !describe_address(info->si_addr).empty()) {
        write_report("the host", at_address("device memory touched from outside of a kernel", info->si_addr));
    }
    // Whoever caught the signal before this runtime did gets it now: Python's faulthandler prints who launched.
    if (previous[slot].sa_flags & SA_SIGINFO)
        previous[slot].sa_sigaction(signal, info, context);
    else if (previous[slot].sa_handler != SIG_DFL && previous[slot].sa_handler != SIG_IGN)
        previous[slot].sa_handler(signal);
    else
        sigaction(signal, &previous[slot], nullptr); // returning repeats the fault, now with its default outcome
}

void install_handlers() {
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    // A block is left from inside the handler, so the signal must not stay blocked.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (int slot = 0; slot < 4; ++slot)
        sigaction(signals[slot], &action, &previous[slot]);
}

class SignalStack {
  public:
    SignalStack() {
        stack_t current{};
        sigaltstack(nullptr, &current);
        // The report needs more than the small stack that Python's faulthandler may have set up.
        if (!(current.ss_flags & SS_DISABLE) && current.ss_size >= size)
            return;
        memory_.reset(new char[size]);
        stack_t wanted{};
        wanted.ss_sp = memory_.get();
        wanted.ss_size = size;
        sigaltstack(&wanted, &previous_);
        installed_ = true;
    }
    ~SignalStack() {
        if (installed_)
            sigaltstack(&previous_, nullptr);
    }
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;

  private:
    static constexpr std::size_t size = 64 * 1024;
    std::unique_ptr<char[]> memory_;
    stack_t previous_{};
    bool installed_ = false;
};

} // namespace

bool faults_kill() {
    static const bool kill = [] {
        const char* text = std::getenv("HIP_HOST_FAULT");
        return !text || std::strcmp(text, "error") != 0;
    }();
    return kill;
}

static void fail(const std::string& where, const std::string& what, hipError_t error) {
    write_report(where, what);
    if (faults_kill())
        std::abort();
    set_sticky_error(error);
}

void report_fault(const std::string& where, const void* address, const std::string& what) {
    fail(where, at_address(what, address), hipErrorIllegalAddress);
}

void report_failure(const std::string& where, const std::string& what) { fail(where, what, hipErrorLaunchFailure); }

void watch_faults() {
    static const bool installed = (install_handlers(), true);
    thread_local SignalStack stack;
    (void)installed;
    (void)stack;
}

} // namespace hip_host
