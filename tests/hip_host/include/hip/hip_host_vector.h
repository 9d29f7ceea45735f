// HIP's short vectors, aligned as on the device, so that a wide access is one access.
#pragma once

#define HIP_HOST_VECTORS(type, name)                                                                                   \
    struct name##1 { type x; };                                                                                        \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                                           \
    struct name##3 { type x, y, z; };                                                                                  \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; };                        \
    inline name##1 make_##name##1(type x) { return {x}; }                                                              \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                   \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                        \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

HIP_HOST_VECTORS(signed char, char)
HIP_HOST_VECTORS(unsigned char, uchar)
HIP_HOST_VECTORS(short, short)
HIP_HOST_VECTORS(unsigned short, ushort)
HIP_HOST_VECTORS(int, int)
HIP_HOST_VECTORS(unsigned, uint)
HIP_HOST_VECTORS(long long, longlong)
HIP_HOST_VECTORS(unsigned long long, ulonglong)
HIP_HOST_VECTORS(float, float)
HIP_HOST_VECTORS(double, double)

#undef HIP_HOST_VECTORS
