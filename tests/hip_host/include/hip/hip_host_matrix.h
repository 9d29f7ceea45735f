// The instructions of AMD's matrix cores, on the CPU: D = A B + C of 16 by 16 by a depth of 16, or of 4 numbers of
// f32, or of 32 bytes, with the operands spread over the lanes of a wave as AMD documents it. A and B hold columns of
// the depth, `Depth` elements a lane.
#pragma once

namespace hip_host {

// CDNA 2 takes subnormal operands of 16 bits for zeros.
inline float widen(_Float16 value, bool flushes) {
    const float wide = static_cast<float>(value);
    return flushes && __builtin_fabsf(wide) < 0x1p-14f ? 0.0f : wide;
}
inline float widen(short bf16, bool flushes) {
    const unsigned bits = static_cast<unsigned>(static_cast<unsigned short>(bf16)) << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return flushes && __builtin_fabsf(value) < 0x1p-126f ? 0.0f : value;
}

// What all lanes of the wave hold.
template <class Vector> inline void collect(const Vector& own, Vector (&all)[64], int line) {
    constexpr unsigned size = sizeof(Vector) < 8 ? sizeof(Vector) : 8;
    for (unsigned at = 0; at < sizeof(Vector); at += size) {
        unsigned long long word = 0;
        __builtin_memcpy(&word, reinterpret_cast<const char*>(&own) + at, size);
        const hip_host_wave* const wave = hip_host_exchange(word, line);
        for (int lane = 0; lane < wave_size(); ++lane)
            __builtin_memcpy(reinterpret_cast<char*>(&all[lane]) + at, &wave->value[lane], size);
    }
}

inline float element(float value, unsigned, bool) { return value; }
template <class Vector> inline float element(const Vector& vector, unsigned k, bool flushes) {
    return widen(vector[k], flushes);
}
// Signed bytes, four in each word of what a lane holds.
template <class Words> struct Bytes {
    Words words;
};
template <class Words> inline int element(const Bytes<Words>& bytes, unsigned k, bool) {
    return reinterpret_cast<const signed char*>(&bytes.words)[k];
}

// `row(lane, i)` is the row of D that value i of a lane belongs to; its column is lane % 16.
template <unsigned Depth, unsigned Whole = 16, class Vector, class Sums, class Row>
inline Sums multiply_matrices(const Vector& a, const Vector& b, Sums sums, Row row, int line, bool flushes = false) {
    Vector all_a[64], all_b[64];
    collect(a, all_a, line);
    collect(b, all_b, line);
    const unsigned lane = __lane_id();
    decltype(element(b, 0, flushes)) column[Whole];
    for (unsigned k = 0; k < Whole; ++k)
        column[k] = element(all_b[lane % 16 + k / Depth * 16], k % Depth, flushes);
    for (unsigned i = 0; i < sizeof(Sums) / sizeof(column[0]); ++i)
        for (unsigned k = 0; k < Whole; ++k)
            sums[i] += element(all_a[row(lane, i) + k / Depth * 16], k % Depth, flushes) * column[k];
    return sums;
}

} // namespace hip_host

// GCC mangles no name that begins so, and two instances of one name clash where they are not inlined. hiprtc.cpp takes
// the attribute without underscores from kernels.

// gfx90a and gfx942, waves of 64; what is subnormal is taken as gfx90a does.
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_mfma_f32_16x16x16f16(Vector a, Vector b, Sums c, int, int,
                                                                             int) {
    return hip_host::multiply_matrices<4>(
        a, b, c, [](unsigned lane, unsigned i) { return lane / 16 * 4 + i; }, __builtin_LINE(), true);
}
template <class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_mfma_f32_16x16x4f32(float a, float b, Sums c, int, int, int) {
    return hip_host::multiply_matrices<1, 4>(
        a, b, c, [](unsigned lane, unsigned i) { return lane / 16 * 4 + i; }, __builtin_LINE());
}
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(Vector a, Vector b, Sums c, int, int,
                                                                                 int) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
}

// gfx950, a depth of 32; here subnormal numbers stay what they are.
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_mfma_f32_16x16x32_f16(Vector a, Vector b, Sums c, int, int,
                                                                              int) {
    return hip_host::multiply_matrices<8, 32>(
        a, b, c, [](unsigned lane, unsigned i) { return lane / 16 * 4 + i; }, __builtin_LINE());
}
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_mfma_f32_16x16x32_bf16(Vector a, Vector b, Sums c, int, int,
                                                                               int) {
    return __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0);
}

// Of bytes, on gfx90a, and on gfx942, whose depth is 32.
template <class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_mfma_i32_16x16x16i8(int a, int b, Sums c, int, int, int) {
    return hip_host::multiply_matrices<4>(
        hip_host::Bytes<int>{a}, hip_host::Bytes<int>{b}, c,
        [](unsigned lane, unsigned i) { return lane / 16 * 4 + i; }, __builtin_LINE());
}
template <class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_mfma_i32_16x16x32_i8(long a, long b, Sums c, int, int, int) {
    return hip_host::multiply_matrices<8, 32>(
        hip_host::Bytes<long>{a}, hip_host::Bytes<long>{b}, c,
        [](unsigned lane, unsigned i) { return lane / 16 * 4 + i; }, __builtin_LINE());
}

// gfx11, waves of 32: both halves of a wave hold all of A and B.
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(Vector a, Vector b, Sums c) {
    return hip_host::multiply_matrices<16>(
        a, b, c, [](unsigned lane, unsigned i) { return 2 * i + lane / 16; }, __builtin_LINE());
}
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(Vector a, Vector b, Sums c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
}

// gfx12, waves of 32.
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(Vector a, Vector b, Sums c) {
    return hip_host::multiply_matrices<8>(
        a, b, c, [](unsigned lane, unsigned i) { return lane / 16 * 8 + i; }, __builtin_LINE());
}
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(Vector a, Vector b, Sums c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
}

// The same of bytes, which are signed where the flag in front of them says so; here they always are.
template <class Words, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(bool, Words a, bool, Words b, Sums c,
                                                                                  bool) {
    return hip_host::multiply_matrices<16>(
        hip_host::Bytes<Words>{a}, hip_host::Bytes<Words>{b}, c,
        [](unsigned lane, unsigned i) { return 2 * i + lane / 16; }, __builtin_LINE());
}
template <class Words, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(bool, Words a, bool, Words b,
                                                                                        Sums c, bool) {
    return hip_host::multiply_matrices<8>(
        hip_host::Bytes<Words>{a}, hip_host::Bytes<Words>{b}, c,
        [](unsigned lane, unsigned i) { return lane / 16 * 8 + i; }, __builtin_LINE());
}

// gfx1250, waves of 32: its instructions take modifiers, all of them off here, and have a depth of 32, or of 64 bytes.
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_f32_16x16x32_f16(bool, Vector a, bool, Vector b, short,
                                                                              Sums c, bool, bool) {
    return hip_host::multiply_matrices<16, 32>(
        a, b, c, [](unsigned lane, unsigned i) { return lane / 16 * 8 + i; }, __builtin_LINE());
}
template <class Vector, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_f32_16x16x32_bf16(bool, Vector a, bool, Vector b, short,
                                                                               Sums c, bool, bool) {
    return __builtin_amdgcn_wmma_f32_16x16x32_f16(false, a, false, b, 0, c, false, false);
}
template <class Words, class Sums>
[[gnu::__always_inline__]] inline Sums __builtin_amdgcn_wmma_i32_16x16x64_iu8(bool, Words a, bool, Words b, Sums c,
                                                                              bool, bool) {
    return hip_host::multiply_matrices<32, 64>(
        hip_host::Bytes<Words>{a}, hip_host::Bytes<Words>{b}, c,
        [](unsigned lane, unsigned i) { return lane / 16 * 8 + i; }, __builtin_LINE());
}
