#include "code_object.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace hip_host {
namespace {

// An ELF file's machine is at byte 18; 224 is AMD's GPU.
bool is_for_a_gpu(const char* start) {
    constexpr char bundle[] = "__CLANG_OFFLOAD_BUNDLE__", compressed[] = "CCOB";
    if (std::memcmp(start, bundle, sizeof bundle - 1) == 0 || std::memcmp(start, compressed, 4) == 0)
        return true;
    return std::memcmp(start, "\177ELF", 4) == 0 && static_cast<unsigned char>(start[18]) == 224;
}

// The kernel copies from the image, and stops where it cannot be read.
bool copy_to_file(const char* image, std::size_t bytes, int file) {
    while (bytes) {
        const ssize_t written = write(file, image, std::min<std::size_t>(bytes, 1 << 30));
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        image += written;
        bytes -= static_cast<std::size_t>(written);
    }
    return true;
}

hipError_t check_payload(int file, const CodeObjectHeader& header) {
    void* payload = mmap(nullptr, header.payload_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (payload == MAP_FAILED)
        return hipErrorOutOfMemory;
    const bool intact = checksum(static_cast<const char*>(payload), header.payload_bytes) == header.checksum;
    munmap(payload, header.payload_bytes);
    return intact ? hipSuccess : hipErrorInvalidImage;
}

} // namespace

std::uint64_t checksum(const char* data, std::size_t bytes) {
    constexpr std::uint64_t prime = 0x100000001b3;
    std::uint64_t hash = 0xcbf29ce484222325;
    std::size_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        std::uint64_t word;
        std::memcpy(&word, data + at, 8);
        hash = (hash ^ word) * prime;
        hash ^= hash >> 29;
    }
    for (; at < bytes; ++at)
        hash = (hash ^ static_cast<unsigned char>(data[at])) * prime;
    return hash;
}

std::string pack_code_object(const std::string& target, const std::string& shared_object) {
    CodeObjectHeader header{};
    std::memcpy(header.magic, code_object_magic, sizeof header.magic);
    header.version = HIP_HOST_KERNEL_VERSION;
    header.header_bytes = sizeof header;
    target.copy(header.target, sizeof header.target - 1);
    header.payload_bytes = shared_object.size();
    header.checksum = checksum(shared_object.data(), shared_object.size());
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + shared_object;
}

hipError_t unpack_code_object(const void* image, const std::string& target, int& file) {
    file = memfd_create("hip_host_module", MFD_CLOEXEC);
    if (file < 0)
        return hipErrorOutOfMemory;
    CodeObjectHeader header{};
    hipError_t error = hipSuccess;
    const auto* bytes = static_cast<const char*>(image);
    if (!copy_to_file(bytes, sizeof header, file) || pread(file, &header, sizeof header, 0) != sizeof header)
        error = hipErrorInvalidImage;
    else if (is_for_a_gpu(reinterpret_cast<const char*>(&header)))
        error = hipErrorNoBinaryForGpu;
    else if (std::memcmp(header.magic, code_object_magic, sizeof header.magic) != 0 ||
             header.header_bytes != sizeof header || header.payload_bytes == 0)
        error = hipErrorInvalidImage;
    else if (header.version != HIP_HOST_KERNEL_VERSION ||
             target != std::string(header.target, strnlen(header.target, sizeof header.target)))
        error = hipErrorNoBinaryForGpu;
    else if (lseek(file, 0, SEEK_SET) != 0 || !copy_to_file(bytes + sizeof header, header.payload_bytes, file))
        error = hipErrorInvalidImage;
    else
        error = check_payload(file, header);
    if (error)
        close(file);
    return error;
}

} // namespace hip_host
