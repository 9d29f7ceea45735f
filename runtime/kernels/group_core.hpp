// Products on the matrix cores of NVIDIA's Hopper: a group of four waves multiplies tiles in shared memory, and goes on
// meanwhile (PTX's wgmma). A group makes 64 rows; its wave w has rows 16 * w on. What a lane holds of the sums, and of
// rows in registers, is as in a MatrixCore, for 16 columns or steps of the depth after 16.
#pragma once

#include "matrix_core.hpp"

#if defined(TALLOW_HAS_WGMMA)

namespace tallow {

constexpr uint32_t waves_per_group = 4;
constexpr uint32_t group_rows = waves_per_group * matrix_side;
constexpr uint32_t groups_per_block = waves_per_block / waves_per_group;

// The same in all lanes, as compilers see.
TALLOW_INLINE uint32_t group_index() {
    return shuffle_word(wave_index() / waves_per_group, 0);
}
TALLOW_INLINE uint64_t make_word64(uint32_t low, uint32_t high) {
    uint64_t word;
    asm("mov.b64 %0, {%1, %2};" : "=l"(word) : "r"(low), "r"(high));
    return word;
}

// An operand in shared memory: 64 elements of each of `Rows` rows, then the next 64. Rows are 128 bytes, permuted by
// eights. Where it `HasLines` a row is a line, and its elements are the depth; else a row is a step of the depth.
template <typename T, bool HasLines, uint32_t Rows> struct GroupOperand {
    static constexpr uint32_t row_length = 64;
    static constexpr uint32_t row_bytes = row_length * sizeof(T);
    static constexpr uint32_t alignment = 8 * row_bytes;
    static_assert(row_bytes == 128 && Rows % 8 == 0);

    uint32_t address;

    static TALLOW_INLINE uint32_t offset(uint32_t row, uint32_t element) {
        return element / row_length * (Rows * row_bytes) +
               SharedTile<T, row_length, false>::offset(row, element % row_length);
    }
    // The descriptor of 16 steps of the depth from `depth` on, of the lines from `line` on. The constant
    // part of these is added in one instruction.
    TALLOW_INLINE uint64_t describe(uint32_t line, uint32_t depth) const {
        const uint32_t row = HasLines ? line : depth;
        const uint32_t element = HasLines ? depth : line;
        const uint32_t begin = (element / row_length * Rows + row) * (row_bytes / access_bytes) +
                               element % row_length * static_cast<uint32_t>(sizeof(T)) / access_bytes;
        constexpr uint32_t next_elements = Rows * row_bytes / access_bytes;
        constexpr uint32_t next_rows = alignment / access_bytes;
        constexpr uint32_t permuted = 1u << 30;
        return make_word64(address / access_bytes + (begin | next_elements << 16), next_rows | permuted);
    }
};

// A barrier in shared memory (PTX's mbarrier), of 8 bytes: threads wait for the end of a phase, and others arrive
// meanwhile.
struct SharedBarrier {
    static constexpr uint32_t bytes = 8;

    uint32_t address;

    // This many arrive in each phase. One thread calls this, and the others wait for it.
    template <uint32_t Count> TALLOW_INLINE void initialize() const {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "n"(Count) : "memory");
    }
    TALLOW_INLINE void arrive() const {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
    }
    // Arrives when all asynchronous copies that the thread has begun so far are done.
    TALLOW_INLINE void arrive_after_copies() const {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address) : "memory");
    }
    // Arrives when `bytes`, a multiple of 16, are copied.
    TALLOW_INLINE void arrive_after_copy(uint32_t target, const void* source, uint32_t bytes) const {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
            "l"(source), "r"(bytes), "r"(address)
            : "memory");
    }
    // Waits for the end of a phase; the first one is number 0.
    TALLOW_INLINE void await(uint32_t phase) const {
        uint32_t is_done;
        do
            asm volatile("{ .reg .pred is_done; mbarrier.try_wait.parity.shared.b64 is_done, [%1], %2; "
                         "selp.u32 %0, 1, 0, is_done; }"
                         : "=r"(is_done)
                         : "r"(address), "r"(phase & 1)
                         : "memory");
        while (is_done == 0);
    }
};

// What was written to shared memory before, products may read.
TALLOW_INLINE void show_products_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Products may use the registers of sums and rows, which must not be touched until they are done.
TALLOW_INLINE void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
TALLOW_INLINE void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most this many of the last committed products are pending.
template <uint32_t Left> TALLOW_INLINE void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

// Orders numbers that are written before it and used after it: what waits for products does not name the sums that
// these change.
template <uint32_t N> TALLOW_INLINE void pin(float (&sums)[N]) {
#pragma unroll
    for (uint32_t i = 0; i < N; ++i)
        asm volatile("" : "+f"(sums[i])::"memory");
}

// Of four lanes side by side, lane i gets word i of each of them.
TALLOW_INLINE void transpose_quads(uint32_t (&words)[4]) {
#pragma unroll
    for (uint32_t mask = 1; mask < 4; mask *= 2)
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            if ((i & mask) == 0) {
                const bool is_upper = (lane_index() & mask) != 0;
                const uint32_t other = shuffle_xor(is_upper ? words[i] : words[i | mask], mask);
                words[i] = is_upper ? other : words[i];
                words[i | mask] = is_upper ? words[i | mask] : other;
            }
}

#define TALLOW_SUMS_8(i)                                                                                               \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),      \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define TALLOW_SUMS_32(i) TALLOW_SUMS_8(i), TALLOW_SUMS_8(i + 8), TALLOW_SUMS_8(i + 16), TALLOW_SUMS_8(i + 24)
#define TALLOW_SUMS_64(i) TALLOW_SUMS_32(i), TALLOW_SUMS_32(i + 32)
#define TALLOW_SUMS_128(i) TALLOW_SUMS_64(i), TALLOW_SUMS_64(i + 64)
#define TALLOW_PLACES_32                                                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define TALLOW_PLACES_64                                                                                               \
    TALLOW_PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "    \
                     "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TALLOW_PLACES_128                                                                                              \
    TALLOW_PLACES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "    \
                     "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "      \
                     "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, "      \
                     "%115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// Products of 64 rows by `columns`; "1"s negate nothing.
#define TALLOW_GROUP_PRODUCT(columns, count, type, operands, ...)                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" TALLOW_PLACES_##count      \
                 "}, " operands                                                                                        \
                 : TALLOW_SUMS_##count(0)                                                                              \
                 : __VA_ARGS__                                                                                         \
                 : "memory")
#define TALLOW_SHARED_ROWS(type)                                                                                       \
    if constexpr (N == 128)                                                                                            \
        TALLOW_GROUP_PRODUCT(256, 128, type, "%128, %129, %130, 1, 1, %131, %132;", TALLOW_SHARED_OPERANDS);           \
    else if constexpr (N == 64)                                                                                        \
        TALLOW_GROUP_PRODUCT(128, 64, type, "%64, %65, %66, 1, 1, %67, %68;", TALLOW_SHARED_OPERANDS);                 \
    else                                                                                                               \
        TALLOW_GROUP_PRODUCT(64, 32, type, "%32, %33, %34, 1, 1, %35, %36;", TALLOW_SHARED_OPERANDS)
#define TALLOW_SHARED_OPERANDS "l"(rows), "l"(lines), "n"(Adds), "n"(!HaveRows), "n"(!HaveLines)
#define TALLOW_HELD_ROWS(type)                                                                                         \
    if constexpr (N == 128)                                                                                            \
        TALLOW_GROUP_PRODUCT(256, 128, type, "{%128, %129, %130, %131}, %132, %133, 1, 1, %134;",                      \
                             TALLOW_HELD_OPERANDS);                                                                    \
    else if constexpr (N == 64)                                                                                        \
        TALLOW_GROUP_PRODUCT(128, 64, type, "{%64, %65, %66, %67}, %68, %69, 1, 1, %70;", TALLOW_HELD_OPERANDS);       \
    else                                                                                                               \
        TALLOW_GROUP_PRODUCT(64, 32, type, "{%32, %33, %34, %35}, %36, %37, 1, 1, %38;", TALLOW_HELD_OPERANDS)
#define TALLOW_HELD_OPERANDS                                                                                           \
    "r"(rows.values[0]), "r"(rows.values[1]), "r"(rows.values[2]), "r"(rows.values[3]), "l"(lines), "n"(Adds),         \
        "n"(!HaveLines)

// Begins products of 64 rows and 2 * N lines, of 16 steps of the depth, and `Adds` them to the sums, or replaces these.
// Operands describe both.
template <typename T, bool HaveRows, bool HaveLines, bool Adds = true, uint32_t N>
TALLOW_INLINE void multiply_group(float (&sums)[N], uint64_t rows, uint64_t lines) {
    static_assert(is_multiplicand<T>, "matrix cores multiply bf16 and f16");
    static_assert(N == 128 || N == 64 || N == 32, "64 rows by 256, 128 or 64 lines");
    if constexpr (is_same<T, bf16>) {
        TALLOW_SHARED_ROWS("bf16");
    } else {
        TALLOW_SHARED_ROWS("f16");
    }
}
// The same of rows in registers.
template <typename T, bool HaveLines, bool Adds = true, uint32_t N>
TALLOW_INLINE void multiply_resident(float (&sums)[N], const typename MatrixCore<T>::Rows& rows, uint64_t lines) {
    static_assert(is_multiplicand<T>, "matrix cores multiply bf16 and f16");
    static_assert(N == 128 || N == 64 || N == 32, "64 rows by 256, 128 or 64 lines");
    if constexpr (is_same<T, bf16>) {
        TALLOW_HELD_ROWS("bf16");
    } else {
        TALLOW_HELD_ROWS("f16");
    }
}

} // namespace tallow

#endif
