// Products on the matrix cores of NVIDIA's Hopper: a group of four waves multiplies tiles in shared memory, and goes on
// meanwhile (PTX's wgmma). A group makes 64 rows; its wave w has rows 16 * w on. What a lane holds of the sums, and of
// rows in registers, is as in a MatrixCore, for 16 columns or steps of the depth after 16.
#pragma once

#include "matrix_core.hpp"

#if defined(TALLOW_MATRIX_CORE_MMA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TALLOW_GROUP_CORE 1

namespace tallow {

constexpr uint32_t waves_per_group = 4;
constexpr uint32_t group_rows = waves_per_group * matrix_side;
constexpr uint32_t groups_per_block = waves_per_block / waves_per_group;

TALLOW_INLINE uint32_t group_index() {
    return wave_index() / waves_per_group;
}

// An operand in shared memory, in rows of 128 bytes that are permuted by eights: `has_lines` where a row has 64 steps
// of the depth of a line, else where it has 64 lines, and `depth` rows of these follow each other.
template <typename T, bool HasLines, uint32_t Depth> struct GroupOperand {
    using Tile = SharedTile<T, 64, false>;
    static constexpr bool is_transposed = !HasLines;
    static constexpr uint32_t row_bytes = 128;
    static constexpr uint32_t alignment = 8 * row_bytes;
    static_assert(sizeof(T) == 2 && (!HasLines || Depth == 64));

    uint8_t* bytes;

    TALLOW_INLINE Tile tile() const {
        return {bytes};
    }
    // How instructions are told of lines from `line` on, of which there are 64 or a multiple where a row has lines, and
    // of 16 steps of the depth from `place` on.
    TALLOW_INLINE uint64_t describe(uint32_t line, uint32_t place) const {
        const uint32_t offset =
            HasLines ? line * row_bytes + place * sizeof(T) : (line / 64 * Depth + place) * row_bytes;
        constexpr uint64_t lines_apart = HasLines ? 1 : Depth * row_bytes / 16;
        constexpr uint64_t eights_apart = 8 * row_bytes / 16;
        constexpr uint64_t permuted = uint64_t{1} << 62;
        const uint64_t address = (shared_address(bytes) + offset) / 16;
        return address | lines_apart << 16 | eights_apart << 32 | permuted;
    }
};

// What was written to shared memory before, products may read.
TALLOW_INLINE void show_products_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Products may use the registers of sums and rows, which nobody touches until they are done.
TALLOW_INLINE void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
TALLOW_INLINE void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until only so many of the last committed products are pending.
template <uint32_t Left> TALLOW_INLINE void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

// Sums of a group, in whose registers products are pending, are read or written only behind this.
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
// sums += rows x columns, which are descriptions; `Rows` and `Columns` are those of operands. "1"s add, and negate
// nothing.
#define TALLOW_GROUP_PRODUCT(columns, count, type, operands)                                                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" TALLOW_PLACES_##count      \
                 "}, " operands                                                                                        \
                 : TALLOW_SUMS_##count(0)                                                                              \
                 : "l"(rows), "l"(lines), "n"(AreRowsTransposed), "n"(AreLinesTransposed)                              \
                 : "memory")
#define TALLOW_GROUP_PRODUCTS(type)                                                                                    \
    if constexpr (N == 128)                                                                                            \
        TALLOW_GROUP_PRODUCT(256, 128, type, "%128, %129, 1, 1, 1, %130, %131;");                                      \
    else if constexpr (N == 64)                                                                                        \
        TALLOW_GROUP_PRODUCT(128, 64, type, "%64, %65, 1, 1, 1, %66, %67;");                                           \
    else                                                                                                               \
        TALLOW_GROUP_PRODUCT(64, 32, type, "%32, %33, 1, 1, 1, %34, %35;")

// Begins to add products of 64 rows and 2 * N columns, of 16 steps of the depth, which operands describe.
template <typename T, bool AreRowsTransposed, bool AreLinesTransposed, uint32_t N>
TALLOW_INLINE void multiply_group(float (&sums)[N], uint64_t rows, uint64_t lines) {
    static_assert(N == 128 || N == 64 || N == 32, "64 rows by 256, 128 or 64 columns");
    if constexpr (is_same<T, bf16>) {
        TALLOW_GROUP_PRODUCTS("bf16");
    } else {
        TALLOW_GROUP_PRODUCTS("f16");
    }
}

} // namespace tallow

#endif
