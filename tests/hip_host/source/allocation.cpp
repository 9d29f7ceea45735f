#include "allocation.hpp"

#include "device.hpp"
#include "fault.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hip_host {
namespace {

constexpr std::size_t page = 4096;

// Addresses are never used twice, so the range outlasts any test run; it takes no memory by itself.
constexpr std::size_t arena_bytes = std::size_t{16} << 40;

// Freed allocations that a report can still name.
constexpr std::size_t remembered_frees = 65536;

// What is around an allocation inside its pages. A change of it is found when the allocation is freed.
constexpr unsigned char canary_byte = 0xFB;

std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

// HIP_HOST_ALIGN: an allocation's end lies at most this many bytes (less one) before the guard page.
std::size_t end_alignment() {
    static const std::size_t alignment = static_cast<std::size_t>(std::max(1L, setting("HIP_HOST_ALIGN", 16)));
    return alignment;
}

} // namespace

std::pair<char*, std::size_t> pages_of(const Allocation& allocation) {
    const std::size_t span = round_up(allocation.bytes, page);
    return {allocation.begin + round_up(allocation.bytes, end_alignment()) - span, span};
}

namespace {

class Arena {
  public:
    Arena() {
        void* range = mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        begin_ = next_ = range == MAP_FAILED ? nullptr : static_cast<char*>(range);
    }

    hipError_t allocate(void** address, std::size_t bytes, hipMemoryType type, int device, unsigned flags) {
        const std::size_t span = round_up(bytes, page);
        std::unique_lock lock(mutex_);
        if (!begin_ || bytes > arena_bytes || next_ + span + 2 * page > begin_ + arena_bytes)
            return hipErrorOutOfMemory;
        std::size_t& used = used_[device];
        if (type == hipMemoryTypeDevice && bytes > memory_limit() - std::min(used, memory_limit()))
            return hipErrorOutOfMemory;
        char* pages = next_ + page;
        next_ = pages + span;
        if (mprotect(pages, span, PROT_READ | PROT_WRITE) != 0)
            return hipErrorOutOfMemory;
        if (type == hipMemoryTypeDevice)
            used += bytes;
        const Allocation allocation{
            pages + span - round_up(bytes, end_alignment()), bytes, type, device, flags, false, false};
        allocations_[allocation.begin] = allocation;
        lock.unlock();

        count_live(kind(type), 1);
        std::memset(pages, canary_byte, allocation.begin - pages);
        std::memset(allocation.begin, poison_byte, bytes);
        std::memset(allocation.begin + bytes, canary_byte, pages + span - allocation.begin - bytes);
        *address = allocation.begin;
        return hipSuccess;
    }

    hipError_t allocate_shared(void** address, std::size_t bytes, int device, unsigned flags) {
        if (const hipError_t error = allocate(address, bytes, hipMemoryTypeDevice, device, flags))
            return error;
        std::lock_guard lock(mutex_);
        Allocation& allocation = allocations_[static_cast<char*>(*address)];
        auto [pages, span] = pages_of(allocation);
        const int file = memfd_create("shared device memory", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, static_cast<off_t>(span)) != 0 ||
            pwrite(file, pages, span, 0) != static_cast<ssize_t>(span) ||
            mmap(pages, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            return hipErrorOutOfMemory;
        allocation.file = file;
        return hipSuccess;
    }

    hipError_t release(void* address, hipMemoryType type) {
        std::unique_lock lock(mutex_);
        auto found = allocations_.find(static_cast<char*>(address));
        if (found == allocations_.end() || found->second.freed || found->second.external || found->second.type != type)
            return hipErrorInvalidValue;
        Allocation& allocation = found->second;
        const char* damage = find_damage(allocation);
        allocation.freed = true;
        if (type == hipMemoryTypeDevice)
            used_[allocation.device] -= allocation.bytes;
        // A fresh mapping gives the memory back to the system, which taking away the access would not.
        auto [pages, span] = pages_of(allocation);
        if (allocation.file >= 0)
            close(allocation.file);
        mmap(pages, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        freed_.push_back(allocation.begin);
        if (freed_.size() > remembered_frees) {
            allocations_.erase(freed_.front());
            freed_.pop_front();
        }
        lock.unlock();

        count_live(kind(type), -1);
        if (damage)
            report_fault("hipFree", damage, "bytes beside an allocation were overwritten");
        return hipSuccess;
    }

    void release_device(int device) {
        std::vector<void*> live;
        {
            std::lock_guard lock(mutex_);
            for (auto& [begin, allocation] : allocations_)
                if (!allocation.freed && !allocation.external && allocation.device == device &&
                    allocation.type == hipMemoryTypeDevice)
                    live.push_back(begin);
        }
        for (void* address : live)
            release(address, hipMemoryTypeDevice);
    }

    void register_external(void* address, std::size_t bytes, int device) {
        std::lock_guard lock(mutex_);
        auto* begin = static_cast<char*>(address);
        allocations_[begin] = {begin, bytes, hipMemoryTypeDevice, device, 0, false, true};
    }

    void forget_external(void* address) {
        std::lock_guard lock(mutex_);
        allocations_.erase(static_cast<char*>(address));
    }

    // The last allocation that begins at or before the address, freed or not; without one, the first after it.
    std::optional<Allocation> nearest(const void* address) {
        std::lock_guard lock(mutex_);
        if (allocations_.empty())
            return std::nullopt;
        auto after = allocations_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
        if (after == allocations_.begin())
            return after->second;
        auto before = std::prev(after);
        const auto* byte = static_cast<const char*>(address);
        const bool closer_after = after != allocations_.end() && byte > before->second.begin + before->second.bytes &&
                                  after->first - byte < byte - (before->second.begin + before->second.bytes);
        return closer_after ? after->second : before->second;
    }

    std::optional<Allocation> find(const void* address) {
        std::lock_guard lock(mutex_);
        auto after = allocations_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
        if (after == allocations_.begin())
            return std::nullopt;
        const Allocation& before = std::prev(after)->second;
        return before.freed || !before.holds(address, 0) ? std::nullopt : std::optional(before);
    }

    // Lets everyone touch the memory of the devices but this one, or nobody.
    void protect_others(int device, int protection) {
        std::lock_guard lock(mutex_);
        for (const auto& [begin, allocation] : allocations_)
            if (!allocation.freed && !allocation.external && allocation.type == hipMemoryTypeDevice &&
                allocation.device != device) {
                auto [pages, span] = pages_of(allocation);
                mprotect(pages, span, protection);
            }
    }

    bool contains(const void* address) const { return address >= begin_ && address < begin_ + arena_bytes; }

    std::size_t used(int device) {
        std::lock_guard lock(mutex_);
        return used_[device];
    }

  private:
    static const char* kind(hipMemoryType type) {
        return type == hipMemoryTypeDevice ? "device memory" : "host memory";
    }

    static const char* find_damage(const Allocation& allocation) {
        auto [pages, span] = pages_of(allocation);
        const char* changed = std::find_if(pages, allocation.begin, is_damaged);
        if (changed != allocation.begin)
            return changed;
        changed = std::find_if(allocation.begin + allocation.bytes, pages + span, is_damaged);
        return changed == pages + span ? nullptr : changed;
    }

    static bool is_damaged(char byte) { return static_cast<unsigned char>(byte) != canary_byte; }

    std::mutex mutex_;
    char* begin_;
    char* next_;
    std::map<char*, Allocation> allocations_;
    std::deque<char*> freed_;
    std::map<int, std::size_t> used_;
};

// Never destroyed: kernels and Python's finalisers may come later than static destructors.
Arena& arena() {
    static Arena& instance = *new Arena;
    return instance;
}

std::recursive_mutex& turns() {
    static auto& instance = *new std::recursive_mutex;
    return instance;
}

// The device whose turn this thread has.
thread_local int working_device = -1;

} // namespace

Turn::Turn(int device) : previous_(std::exchange(working_device, device)) {
    if (device_count() > 1)
        lock_ = std::unique_lock(turns());
}
Turn::~Turn() { working_device = previous_; }

KernelTurn::KernelTurn(int device) : turn_(device), device_(device) {
    if (device_count() > 1)
        arena().protect_others(device_, PROT_NONE);
}
KernelTurn::~KernelTurn() {
    if (device_count() > 1)
        arena().protect_others(device_, PROT_READ | PROT_WRITE);
}

// What is written and read beside an allocation must not be closed meanwhile.
hipError_t allocate(void** address, std::size_t bytes, hipMemoryType type, int device, unsigned flags) {
    const Turn turn(device);
    return arena().allocate(address, bytes, type, device, flags);
}
hipError_t allocate_shared(void** address, std::size_t bytes, int device, unsigned flags) {
    const Turn turn(device);
    return arena().allocate_shared(address, bytes, device, flags);
}
hipError_t release(void* address, hipMemoryType type) {
    const Turn turn(current_device());
    return arena().release(address, type);
}
void release_device(int device) {
    const Turn turn(device);
    arena().release_device(device);
}
void register_external(void* address, std::size_t bytes, int device) {
    arena().register_external(address, bytes, device);
}
void forget_external(void* address) { arena().forget_external(address); }
std::optional<Allocation> find_allocation(const void* address) { return arena().find(address); }
std::size_t allocated_bytes(int device) { return arena().used(device); }

std::string describe_address(const void* address) {
    const std::optional<Allocation> nearest = arena().nearest(address);
    if (!nearest || !(arena().contains(address) || nearest->holds(address, 0)))
        return {};
    const auto* byte = static_cast<const char*>(address);
    char where[160];
    const char* state = nearest->freed ? "freed" : "live";
    const char* end = nearest->begin + nearest->bytes;
    if (byte < nearest->begin)
        std::snprintf(where, sizeof where, "%td bytes before a %s allocation of %zu bytes at %p", nearest->begin - byte,
                      state, nearest->bytes, static_cast<void*>(nearest->begin));
    else if (byte >= end)
        std::snprintf(where, sizeof where, "%td bytes past the end of a %s allocation of %zu bytes at %p", byte - end,
                      state, nearest->bytes, static_cast<void*>(nearest->begin));
    else
        std::snprintf(where, sizeof where, "at offset %td of a %s allocation of %zu bytes at %p", byte - nearest->begin,
                      state, nearest->bytes, static_cast<void*>(nearest->begin));
    const bool has_owner = device_count() > 1 && nearest->type == hipMemoryTypeDevice;
    return has_owner ? where + (" on device " + std::to_string(nearest->device)) : where;
}

bool check_access(const char* call, const char* operand, const void* address, std::size_t bytes) {
    if (bytes == 0)
        return true;
    const std::optional<Allocation> found = find_allocation(address);
    if (found && found->type == hipMemoryTypeDevice && found->device == working_device && found->holds(address, bytes))
        return true;
    // The first byte that does not belong: the address itself, or the one after the allocation's end.
    const bool is_short = found && !found->holds(address, bytes);
    const void* wrong = is_short ? found->begin + found->bytes : address;
    report_fault(call, wrong, std::string("operand ") + operand + " takes " + std::to_string(bytes) + " bytes");
    return false;
}

} // namespace hip_host
