// Vectors of numbers, for loops that compilers do not vectorise.
#pragma once

#include "parts.hpp"

// Between these, a product and a sum are contracted to one operation, which rounds once.
#if defined(__clang__)
#define TALLOW_JOINING __attribute__((noinline))
#define TALLOW_JOIN _Pragma("clang fp contract(fast)")
#else
#define TALLOW_JOINING __attribute__((noinline, noclone, optimize("fp-contract=fast")))
#define TALLOW_JOIN
#endif

namespace tallow {

template <typename T, uint64_t Bytes> struct VectorOf {
    typedef T type __attribute__((vector_size(Bytes)));
};
template <typename T, uint64_t Bytes = line_bytes> using Vector = typename VectorOf<T, Bytes>::type;
template <typename T> constexpr uint64_t vector_length = line_bytes / sizeof(T);

// What joins numbers, or vectors lane by lane, into the first of the two.
struct Adds {
    template <typename X> TALLOW_INLINE void operator()(X& x, const X& y) const {
        x += y;
    }
};
// The lower or the higher. NaN does not win.
template <bool Lowest> struct Takes {
    template <typename X> TALLOW_INLINE void operator()(X& x, const X& y) const {
        if constexpr (Lowest)
            x = x < y ? x : y;
        else
            x = x > y ? x : y;
    }
};

// All lanes joined: halves of them, until one is left.
template <typename T, typename Join, uint64_t Bytes = line_bytes>
TALLOW_INLINE T joined_lanes(const Vector<T, Bytes>& lanes, Join join) {
    if constexpr (Bytes == sizeof(T)) {
        return lanes[0];
    } else {
        Vector<T, Bytes / 2> halves[2];
        __builtin_memcpy(halves, &lanes, sizeof halves);
        join(halves[0], halves[1]);
        return joined_lanes<T, Join, Bytes / 2>(halves[0], join);
    }
}

} // namespace tallow
