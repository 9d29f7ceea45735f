// What happens when a kernel, or a library's call, does what a GPU would not survive.
#pragma once

#include "hip_host.hpp"

namespace hip_host {

// Writes what happened, where, and next to which allocation, to stderr. Then the process dies, or, with
// HIP_HOST_FAULT=error, the device is marked as lost: every later call gives hipErrorIllegalAddress.
void report_fault(const std::string& where, const void* address, const std::string& what);

// As above, with hipErrorLaunchFailure, for what has no address: a barrier that can never be passed, for one.
void report_failure(const std::string& where, const std::string& what);

bool faults_kill();

// Catches the signals of a faulting kernel. Called before the first launch of each thread of the host, which needs a
// stack of its own for the handler.
void watch_faults();

} // namespace hip_host
