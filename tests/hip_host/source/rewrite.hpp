// The part of a HIP compiler that the host's compiler lacks: kernels and shared memory.
#pragma once

#include <string>

namespace hip_host {

// Turns preprocessed HIP source into C++ for the host, and appends the table of its kernels.
//   __global__                  goes; the function's name enters the table
//   __launch_bounds__(n, ...)   goes; n enters the table
//   __shared__ T x[n]           becomes a thread-local variable: a block stays on one thread of the host
//   extern __shared__ T x[];    becomes a pointer to the launch's dynamic shared memory
// Inside of a function only; `extern __shared__` outside of one is left for the compiler to refuse.
std::string rewrite_kernels(const std::string& preprocessed);

} // namespace hip_host
