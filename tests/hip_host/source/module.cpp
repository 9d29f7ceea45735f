#include "module.hpp"

#include "allocation.hpp"
#include "code_object.hpp"
#include "stream.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <link.h>
#include <unistd.h>

namespace hip_host {
namespace {

Registry<ihipModule_t>& modules() {
    static auto& instance = *new Registry<ihipModule_t>("module");
    return instance;
}

// The library's thread-local segment is where its `__shared__` variables are.
StaticShared find_static_shared(void* library, char* (*anchor)()) {
    struct Search {
        ElfW(Addr) base;
        std::size_t bytes;
    };
    link_map* map = nullptr;
    dlinfo(library, RTLD_DI_LINKMAP, &map);
    Search search{map->l_addr, 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& wanted = *static_cast<Search*>(data);
            if (info->dlpi_addr != wanted.base)
                return 0;
            for (int index = 0; index < info->dlpi_phnum; ++index)
                if (info->dlpi_phdr[index].p_type == PT_TLS)
                    wanted.bytes = info->dlpi_phdr[index].p_memsz;
            return 1;
        },
        &search);
    char* address = anchor(); // the segment exists on this thread once one of its variables was used
    void* begin = nullptr;
    dlinfo(library, RTLD_DI_TLS_DATA, &begin);
    static std::atomic<unsigned long long> modules_loaded{0};
    // The anchor alone is no shared memory.
    return {++modules_loaded, anchor, address - static_cast<char*>(begin), search.bytes > 1 ? search.bytes : 0};
}

// A path of an open file that no other call gives. dlopen takes a library for one that is loaded when they share a
// name, and the number of a closed file is used again: so the count of calls is written into the path, "/." for each
// bit that is 1 and "/" for each that is 0, which mean nothing there.
std::string unique_path(int file) {
    static std::atomic<unsigned long> calls{0};
    std::string path = "/proc/self/fd";
    for (unsigned long bits = ++calls; bits; bits >>= 1)
        path += bits & 1 ? "/." : "/";
    return path + "/" + std::to_string(file);
}

hipError_t load(hipModule_t* result, const void* image) {
    int file = -1;
    const hipError_t error = unpack_code_object(image, target_name(), file);
    if (error)
        return error;
    const std::string path = unique_path(file);
    auto module = std::make_unique<ihipModule_t>();
    module->device = current_device();
    module->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    close(file);
    if (!module->library) {
        std::fprintf(stderr, "hip_host: %s\n", dlerror());
        return hipErrorSharedObjectInitFailed;
    }
    const auto* kernels = static_cast<const hip_host_kernel*>(dlsym(module->library, "hip_host_kernels"));
    const auto anchor = reinterpret_cast<char* (*)()>(dlsym(module->library, "hip_host_shared_anchor"));
    if (!kernels || !anchor)
        return hipErrorInvalidImage;
    module->shared = find_static_shared(module->library, anchor);
    for (; kernels->name; ++kernels)
        module->functions[kernels->name].reset(new ihipModuleSymbol_t(kernels, module.get()));
    for (auto& [name, function] : module->functions)
        functions().add(function.get());
    *result = modules().add(module.release());
    return hipSuccess;
}

} // namespace

Registry<ihipModuleSymbol_t>& functions() {
    static auto& instance = *new Registry<ihipModuleSymbol_t>("function");
    return instance;
}

} // namespace hip_host

using namespace hip_host;

ihipModuleSymbol_t::ihipModuleSymbol_t(const hip_host_kernel* kernel, const ihipModule_t* module)
    : kernel(kernel), module(module) {
    for (unsigned index = 0; index < kernel->parameter_count; ++index) {
        const auto& [size, alignment] = kernel->parameters[index];
        offsets.push_back((argument_bytes + alignment - 1) / alignment * alignment);
        argument_bytes = offsets.back() + size;
    }
}

ihipModule_t::~ihipModule_t() {
    for (void* address : globals)
        forget_external(address);
    for (auto& [name, function] : functions)
        hip_host::functions().destroy(function.release());
    if (library)
        dlclose(library);
}

HIP_HOST_API hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
    return api("hipModuleLoadData", hipErrorSharedObjectInitFailed,
               [&] { return module && image ? load(module, image) : hipErrorInvalidValue; });
}

HIP_HOST_API hipError_t hipModuleLoad(hipModule_t* module, const char* path) {
    return api("hipModuleLoad", hipErrorFileNotFound, [&] {
        if (!module || !path)
            return hipErrorInvalidValue;
        std::ifstream file(path, std::ios::binary);
        if (!file)
            return hipErrorFileNotFound;
        std::string image((std::istreambuf_iterator<char>(file)), {});
        CodeObjectHeader header{};
        image.copy(reinterpret_cast<char*>(&header), sizeof header);
        const bool ours = std::memcmp(header.magic, code_object_magic, sizeof header.magic) == 0;
        if (ours && header.payload_bytes + sizeof header != image.size())
            return hipErrorInvalidImage;
        image.resize(std::max(image.size(), sizeof header));
        return load(module, image.data());
    });
}

HIP_HOST_API hipError_t hipModuleUnload(hipModule_t module) {
    return api("hipModuleUnload", hipErrorInvalidHandle, [&] {
        if (!modules().contains(module))
            return hipErrorInvalidHandle;
        const hipError_t error = finish_device(module->device);
        modules().destroy(module);
        return error;
    });
}

HIP_HOST_API hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    return api("hipModuleGetFunction", hipErrorNotFound, [&] {
        if (!function || !name)
            return hipErrorInvalidValue;
        if (!modules().contains(module))
            return hipErrorInvalidHandle;
        // A kernel that is not extern "C" is in the table, but has another name for the linker, as on a GPU.
        auto found = module->functions.find(name);
        if (found == module->functions.end() || !dlsym(module->library, name))
            return hipErrorNotFound;
        *function = found->second.get();
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipModuleGetGlobal(void** address, std::size_t* bytes, hipModule_t module, const char* name) {
    return api("hipModuleGetGlobal", hipErrorNotFound, [&] {
        if (!name)
            return hipErrorInvalidValue;
        if (!modules().contains(module))
            return hipErrorInvalidHandle;
        void* found = dlsym(module->library, name);
        Dl_info info{};
        void* entry = nullptr;
        if (!found || !dladdr1(found, &info, &entry, RTLD_DL_SYMENT) || !entry)
            return hipErrorNotFound;
        const auto& symbol = *static_cast<const ElfW(Sym)*>(entry);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT)
            return hipErrorNotFound;
        register_external(found, symbol.st_size, module->device);
        module->globals.push_back(found);
        if (address)
            *address = found;
        if (bytes)
            *bytes = symbol.st_size;
        return hipSuccess;
    });
}

HIP_HOST_API hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute attribute, hipFunction_t function) {
    return api("hipFuncGetAttribute", hipErrorInvalidDeviceFunction, [&] {
        if (!value)
            return hipErrorInvalidValue;
        if (!functions().contains(function))
            return hipErrorInvalidDeviceFunction;
        switch (attribute) {
        case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value =
                function->kernel->max_threads ? static_cast<int>(function->kernel->max_threads) : max_threads_per_block;
            return hipSuccess;
        case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = static_cast<int>(max_shared_memory);
            return hipSuccess;
        default: // registers, spills and the share of each kernel in the static memory are not known here
            return hipErrorNotSupported;
        }
    });
}

HIP_HOST_API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t function,
                                                                           int block_threads,
                                                                           std::size_t dynamic_shared) {
    return api("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", hipErrorInvalidDeviceFunction, [&] {
        if (!blocks || block_threads <= 0 || block_threads > max_threads_per_block)
            return hipErrorInvalidValue;
        if (!functions().contains(function))
            return hipErrorInvalidDeviceFunction;
        const int by_threads = 2048 / block_threads;
        const int by_shared = dynamic_shared ? static_cast<int>(max_shared_memory / dynamic_shared) : by_threads;
        *blocks = std::min(by_threads, by_shared);
        return hipSuccess;
    });
}
