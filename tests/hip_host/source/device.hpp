// The device that the CPU plays.
#pragma once

#include "hip_host.hpp"

namespace hip_host {

constexpr int max_threads_per_block = 1024;
constexpr std::size_t max_shared_memory = 64 * 1024;

int device_count();
int current_device();
int multiprocessor_count();
bool reaches(int device, int peer); // directly, since it was let
std::size_t memory_limit();         // bytes, for each device

inline bool is_device(int device) { return device >= 0 && device < device_count(); }

} // namespace hip_host
