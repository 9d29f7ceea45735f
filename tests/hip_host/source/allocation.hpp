// Memory with guards. Every allocation ends at a page that cannot be touched and has one in front. Addresses are used
// once: a freed allocation stays untouchable, so a use after free faults however late it comes.
#pragma once

#include "hip_host.hpp"

#include <optional>

namespace hip_host {

// What memory holds before anything was written to it.
constexpr unsigned char poison_byte = 0xCB;

struct Allocation {
    char* begin;
    std::size_t bytes;
    hipMemoryType type;
    int device;
    unsigned flags;
    bool freed;
    bool external; // a variable of a module, or memory of another process: known here, but not owned
    int file = -1; // what other processes map, of memory that they may share

    bool holds(const void* address, std::size_t count) const {
        const auto* first = static_cast<const char*>(address);
        return first >= begin && count <= bytes && static_cast<std::size_t>(first - begin) <= bytes - count;
    }
};

hipError_t allocate(void** address, std::size_t bytes, hipMemoryType type, int device, unsigned flags);
// The same of a device, in pages that other processes can map.
hipError_t allocate_shared(void** address, std::size_t bytes, int device, unsigned flags);
hipError_t release(void* address, hipMemoryType type);
void release_device(int device);

// Work on memory, while it is done. Devices take turns, so that the memory of the others can be closed to a kernel; a
// turn inside of another one on the same thread is part of it. With one device there is nothing to wait for.
class Turn {
  public:
    explicit Turn(int device);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

  private:
    std::unique_lock<std::recursive_mutex> lock_;
    int previous_;
};

// A kernel's turn: as long as it lasts, an access to the memory of another device faults.
class KernelTurn {
  public:
    explicit KernelTurn(int device);
    ~KernelTurn();

  private:
    Turn turn_;
    int device_;
};

// The pages of an allocation: where they begin, and how many bytes they have.
std::pair<char*, std::size_t> pages_of(const Allocation& allocation);

void register_external(void* address, std::size_t bytes, int device);
void forget_external(void* address);

// The live allocation that holds the address (its end counts as inside), if there is one.
std::optional<Allocation> find_allocation(const void* address);

// A sentence that says where the address lies relative to the nearest allocation. Empty where it is near none.
std::string describe_address(const void* address);

std::size_t allocated_bytes(int device);

} // namespace hip_host
