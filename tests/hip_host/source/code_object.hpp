// What hiprtc makes and hipModuleLoadData takes: a shared object for the host behind a header that says for which
// target it is, and lets a damaged or foreign one be told from a good one.
#pragma once

#include "hip_types.hpp"

#include <hip/hip_host_kernel.h>

#include <string>

namespace hip_host {

struct CodeObjectHeader {
    char magic[8];
    std::uint32_t version;
    std::uint32_t header_bytes;
    char target[16];
    std::uint64_t payload_bytes;
    std::uint64_t checksum;
};

constexpr char code_object_magic[8] = {'H', 'I', 'P', 'H', 'O', 'S', 'T', '\0'};

// FNV-1a over words of eight bytes; the rest byte by byte.
std::uint64_t checksum(const char* data, std::size_t bytes);

std::string pack_code_object(const std::string& target, const std::string& shared_object);

// Copies the payload into a new anonymous file, whose descriptor the caller closes. The image's length is not known,
// so it is read in a way that ends without a fault where memory ends.
hipError_t unpack_code_object(const void* image, const std::string& target, int& file);

} // namespace hip_host
