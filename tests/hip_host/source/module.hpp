// Loaded code objects and their kernels.
#pragma once

#include "block.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

struct ihipModuleSymbol_t {
    ihipModuleSymbol_t(const hip_host_kernel* kernel, const ihipModule_t* module);

    const hip_host_kernel* kernel;
    const ihipModule_t* module;
    std::vector<std::size_t> offsets; // of each parameter, in a buffer with all of them
    std::size_t argument_bytes = 0;
};

struct ihipModule_t {
    ~ihipModule_t();

    int device = 0;
    void* library = nullptr;
    hip_host::StaticShared shared{};
    std::map<std::string, std::unique_ptr<ihipModuleSymbol_t>> functions;
    std::vector<void*> globals;
};

namespace hip_host {

Registry<ihipModuleSymbol_t>& functions();

} // namespace hip_host
