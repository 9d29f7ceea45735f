// Memory of large results, which is cached when it is released: the C library returns such memory to the system, which
// clears it page by page when it is allocated again. Callers have the GIL.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "parts.hpp"

namespace tallow {

class BufferPool {
  public:
    // Memory of at least this many bytes is cached. A network of many layers releases more than the C library keeps,
    // also where no result has a megabyte.
    static constexpr size_t large = 1 << 19;

    // Bytes that begin somewhere in memory of malloc.
    struct Piece {
        void* begin = nullptr;
        void* allocation = nullptr;
        size_t bytes = 0;
    };

    // A piece of `large` bytes or more; an empty one if memory is exhausted.
    Piece allocate(size_t bytes) {
        const size_t size = size_class(bytes);
        if (Free* const free = find(size)) {
            const Piece piece{free, free->allocation, free->bytes};
            remove(free);
            return piece;
        }
        void* allocation = malloc(size + 2 * page);
        if (allocation == nullptr) {
            trim(0);
            allocation = malloc(size + 2 * page);
        }
        if (allocation == nullptr)
            return {};
        const uintptr_t first = (reinterpret_cast<uintptr_t>(allocation) + page - 1) / page * page;
#if defined(__linux__)
        if (size >= huge_pages)
            madvise(reinterpret_cast<void*>(first), size, MADV_HUGEPAGE);
#endif
        // Processors stall where reads and writes are at the same offset in their pages.
        offset_ = (offset_ + 9 * line_bytes) % page;
        return {reinterpret_cast<void*>(first + offset_), allocation, size};
    }

    void release(const Piece& piece) {
        if (piece.bytes > limit_) {
            ::free(piece.allocation);
            return;
        }
        Free* const free = static_cast<Free*>(piece.begin);
        free->allocation = piece.allocation;
        free->bytes = piece.bytes;
        insert<&Free::by_age>(all_, free);
        insert<&Free::by_size>(of_size_[class_of(piece.bytes)], free);
        cached_ += piece.bytes;
        trim(limit_);
    }

    // Sets the limit of cached bytes, and returns the previous one.
    size_t cache_at_most(size_t bytes) {
        const size_t before = limit_;
        limit_ = bytes;
        trim(bytes);
        return before;
    }

  private:
    // At the beginning of a piece that is cached.
    struct Free;
    struct Links {
        Free* newer;
        Free* older;
    };
    struct Free {
        Links by_age;
        Links by_size;
        void* allocation;
        size_t bytes;
    };
    struct Ends {
        Free* newest = nullptr;
        Free* oldest = nullptr;
    };

    static constexpr size_t page = 4096;
    // As NumPy asks for huge pages.
    static constexpr size_t huge_pages = 1 << 22;
    // Memory of up to this many bytes may be in a processor's cache if it was released among the last ones, and serves
    // smaller results too.
    static constexpr size_t in_cache = 1 << 22;
    static constexpr uint32_t last_released = 8;
    // For each power of two.
    static constexpr uint32_t size_classes = 8;

    static uint32_t power_above(size_t bytes) {
        return static_cast<uint32_t>(64 - __builtin_clzll(bytes - 1));
    }
    // As size_class in runtime/helpers: sizes in steps of an eighth serve each other.
    static size_t size_class(size_t bytes) {
        const size_t step = (size_t(1) << power_above(bytes)) / (2 * size_classes);
        return (bytes + step - 1) / step * step;
    }
    static uint32_t class_of(size_t size) {
        const uint32_t power = power_above(size);
        return power * size_classes +
               static_cast<uint32_t>(size / ((size_t(1) << power) / (2 * size_classes))) % size_classes;
    }

    Free* find(size_t size) const {
        uint32_t count = 0;
        for (Free* free = all_.newest; size <= in_cache && free != nullptr && count < last_released; ++count) {
            if (size <= free->bytes && free->bytes <= in_cache)
                return free;
            free = free->by_age.older;
        }
        return of_size_[class_of(size)].newest;
    }

    template <Links Free::* links> static void insert(Ends& ends, Free* free) {
        free->*links = {nullptr, ends.newest};
        (ends.newest == nullptr ? ends.oldest : (ends.newest->*links).newer) = free;
        ends.newest = free;
    }
    template <Links Free::* links> static void remove(Ends& ends, Free* free) {
        const auto [newer, older] = free->*links;
        (newer == nullptr ? ends.newest : (newer->*links).older) = older;
        (older == nullptr ? ends.oldest : (older->*links).newer) = newer;
    }
    void remove(Free* free) {
        remove<&Free::by_age>(all_, free);
        remove<&Free::by_size>(of_size_[class_of(free->bytes)], free);
        cached_ -= free->bytes;
    }
    // Returns the oldest memory to the system until no more than `limit` bytes are cached.
    void trim(size_t limit) {
        while (cached_ > limit) {
            Free* const oldest = all_.oldest;
            remove(oldest);
            ::free(oldest->allocation);
        }
    }

    Ends all_;
    Ends of_size_[65 * size_classes];
    size_t cached_ = 0;
    size_t limit_ = 0;
    size_t offset_ = 0;
};

inline BufferPool buffer_pool;

} // namespace tallow
