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

// Reduces all lanes, pairwise until one is left.
template <typename T, typename Join, uint64_t Bytes = line_bytes>
TALLOW_INLINE T reduce_lanes(const Vector<T, Bytes>& lanes, Join join) {
    if constexpr (Bytes == sizeof(T)) {
        return lanes[0];
    } else {
        Vector<T, Bytes / 2> parts[2];
        __builtin_memcpy(parts, &lanes, sizeof parts);
        join(parts[0], parts[1]);
        return reduce_lanes<T, Join, Bytes / 2>(parts[0], join);
    }
}

#if defined(__clang__) || __GNUC__ >= 12
template <int... Lane> struct LanesOf {};
template <int Count, int... Lane> struct LanesUpTo : LanesUpTo<Count - 1, Count - 1, Lane...> {};
template <int... Lane> struct LanesUpTo<0, Lane...> {
    using type = LanesOf<Lane...>;
};

template <uint32_t Step, typename Vector, int... Lane>
TALLOW_INLINE void exchange_lanes(Vector& x, Vector& y, LanesOf<Lane...>) {
    constexpr int lanes = sizeof...(Lane), step = Step;
    const Vector before = x;
    x = __builtin_shufflevector(x, y, ((Lane & step) != 0 ? lanes + Lane - step : Lane)...);
    y = __builtin_shufflevector(before, y, ((Lane & step) != 0 ? lanes + Lane : Lane + step)...);
}
#endif

// As many rows as a vector has lanes, of which the columns become rows: each step exchanges lanes at a distance of
// `Step`.
template <uint32_t Step = 1, typename Vector, uint32_t Lanes>
TALLOW_INLINE void transpose_square(Vector (&rows)[Lanes]) {
#if defined(__clang__) || __GNUC__ >= 12
    if constexpr (Step < Lanes) {
        for (uint32_t i = 0; i < Lanes; ++i)
            if ((i & Step) == 0)
                exchange_lanes<Step>(rows[i], rows[i + Step], typename LanesUpTo<Lanes>::type());
        transpose_square<2 * Step>(rows);
    }
#else
    for (uint32_t i = 0; i < Lanes; ++i)
        for (uint32_t j = 0; j < i; ++j) {
            const auto swapped = rows[i][j];
            rows[i][j] = rows[j][i];
            rows[j][i] = swapped;
        }
#endif
}

} // namespace tallow
