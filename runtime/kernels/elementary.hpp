// The elementary functions of a target's library, for float and double, such as exp and pow. A functor finds these
// names before the global ones, whatever a target calls exp or round.
#pragma once

#include "basic.hpp"

#if defined(TALLOW_VECTOR)
#include "vector_math.hpp"
#endif

#if defined(TALLOW_AMD)
extern "C" {
#define TALLOW_OCML(name)                                                                                              \
    __device__ __attribute__((const)) float __ocml_##name##_f32(float);                                                \
    __device__ __attribute__((const)) double __ocml_##name##_f64(double);
TALLOW_OCML(exp)
TALLOW_OCML(expm1)
TALLOW_OCML(log1p)
TALLOW_OCML(tanh)
TALLOW_OCML(erf)
TALLOW_OCML(exp2)
TALLOW_OCML(asin)
TALLOW_OCML(acos)
TALLOW_OCML(atan)
TALLOW_OCML(sinh)
TALLOW_OCML(cosh)
TALLOW_OCML(asinh)
TALLOW_OCML(acosh)
TALLOW_OCML(atanh)
TALLOW_OCML(sqrt)
TALLOW_OCML(rsqrt)
TALLOW_OCML(round)
#undef TALLOW_OCML
#define TALLOW_OCML(name)                                                                                              \
    __device__ float __ocml_##name##_f32(float);                                                                       \
    __device__ double __ocml_##name##_f64(double);
TALLOW_OCML(log)
TALLOW_OCML(log2)
TALLOW_OCML(log10)
TALLOW_OCML(sin)
TALLOW_OCML(cos)
TALLOW_OCML(tan)
TALLOW_OCML(sinpi)
TALLOW_OCML(cospi)
#undef TALLOW_OCML
#define TALLOW_OCML(name)                                                                                              \
    __device__ __attribute__((const)) float __ocml_##name##_f32(float, float);                                         \
    __device__ __attribute__((const)) double __ocml_##name##_f64(double, double);
TALLOW_OCML(pow)
TALLOW_OCML(fmod)
TALLOW_OCML(atan2)
TALLOW_OCML(hypot)
#undef TALLOW_OCML
__device__ float __ocml_native_exp2_f32(float);
}
#endif

namespace tallow {

#if defined(TALLOW_AMD)
#define TALLOW_FUNCTION(name)                                                                                          \
    TALLOW_INLINE float name(float x) {                                                                                \
        return __ocml_##name##_f32(x);                                                                                 \
    }                                                                                                                  \
    TALLOW_INLINE double name(double x) {                                                                              \
        return __ocml_##name##_f64(x);                                                                                 \
    }
#define TALLOW_BINARY_FUNCTION(name)                                                                                   \
    TALLOW_INLINE float name(float x, float y) {                                                                       \
        return __ocml_##name##_f32(x, y);                                                                              \
    }                                                                                                                  \
    TALLOW_INLINE double name(double x, double y) {                                                                    \
        return __ocml_##name##_f64(x, y);                                                                              \
    }
TALLOW_BINARY_FUNCTION(fmod)
TALLOW_BINARY_FUNCTION(atan2)
TALLOW_BINARY_FUNCTION(hypot)
#undef TALLOW_BINARY_FUNCTION
TALLOW_INLINE double pow(double x, double y) {
    return __ocml_pow_f64(x, y);
}
TALLOW_INLINE float any_power(float x, float y) {
    return __ocml_pow_f32(x, y);
}
// These have the sign of x, which the library's lose at -0.0.
#define TALLOW_SIGNED_FUNCTION(name)                                                                                   \
    TALLOW_INLINE float name(float x) {                                                                                \
        return __builtin_copysignf(__ocml_##name##_f32(x), x);                                                         \
    }                                                                                                                  \
    TALLOW_INLINE double name(double x) {                                                                              \
        return __builtin_copysign(__ocml_##name##_f64(x), x);                                                          \
    }
TALLOW_SIGNED_FUNCTION(expm1)
TALLOW_SIGNED_FUNCTION(log1p)
#undef TALLOW_SIGNED_FUNCTION
TALLOW_INLINE float erf(float x) {
    return __ocml_erf_f32(x);
}
#else
TALLOW_INLINE double pow(double x, double y) {
    return y == 0 ? 1.0 : y == 1 ? x : ::pow(x, y);
}
TALLOW_INLINE float fmod(float x, float y) {
    return ::fmodf(x, y);
}
TALLOW_INLINE double fmod(double x, double y) {
    return ::fmod(x, y);
}
TALLOW_INLINE double atan2(double y, double x) {
    return ::atan2(y, x);
}
#if !defined(TALLOW_VECTOR)
TALLOW_INLINE double hypot(double x, double y) {
    const double wide = ::fabs(x), high = ::fabs(y);
    const double larger = wide > high ? wide : high, smaller = wide > high ? high : wide;
    // Some libraries round what a small one adds to the largest numbers up, to infinity.
    return smaller <= larger * 0x1p-27 ? larger : ::hypot(x, y);
}
TALLOW_INLINE float atan2(float y, float x) {
    return ::atan2f(y, x);
}
TALLOW_INLINE float hypot(float x, float y) {
    return ::hypotf(x, y);
}
#define TALLOW_FUNCTION(name)                                                                                          \
    TALLOW_INLINE float name(float x) {                                                                                \
        return ::name##f(x);                                                                                           \
    }                                                                                                                  \
    TALLOW_INLINE double name(double x) {                                                                              \
        return ::name(x);                                                                                              \
    }
TALLOW_INLINE float any_power(float x, float y) {
    // C's pow(x, 0) is 1 for every x, of which some libraries except signalling NaNs. Not every one gives x back for 1.
    return y == 0 ? 1.0f : y == 1 ? x : ::powf(x, y);
}
TALLOW_FUNCTION(expm1)
TALLOW_FUNCTION(log1p)
TALLOW_INLINE float erf(float x) {
    return ::erff(x);
}
#endif
#endif
#if !defined(TALLOW_VECTOR)
TALLOW_FUNCTION(exp)
TALLOW_FUNCTION(log)
#if defined(TALLOW_AMD) || defined(TALLOW_HOST)
TALLOW_FUNCTION(log2)
#else
TALLOW_INLINE float log2(float x) {
    return ::log2f(x);
}
// Some libraries' is a rounding off for powers of two. ldexp is exact, and gives 0 and infinity for their logarithms.
TALLOW_INLINE double log2(double x) {
    const double logarithm = ::log2(x), integer = ::rint(logarithm);
    return ::ldexp(1.0, static_cast<int>(integer)) == x ? integer : logarithm;
}
#endif
TALLOW_FUNCTION(log10)
TALLOW_FUNCTION(exp2)
TALLOW_FUNCTION(sin)
TALLOW_FUNCTION(cos)
TALLOW_FUNCTION(tan)
TALLOW_FUNCTION(asin)
TALLOW_FUNCTION(acos)
TALLOW_FUNCTION(atan)
TALLOW_FUNCTION(sinh)
TALLOW_FUNCTION(cosh)
TALLOW_FUNCTION(tanh)
TALLOW_FUNCTION(asinh)
TALLOW_FUNCTION(acosh)
TALLOW_FUNCTION(atanh)
TALLOW_FUNCTION(sqrt)
TALLOW_FUNCTION(round)
#endif
#if !defined(TALLOW_HOST)
TALLOW_FUNCTION(rsqrt)
TALLOW_FUNCTION(sinpi)
TALLOW_FUNCTION(cospi)
#else
template <typename T> TALLOW_INLINE T rsqrt(T x) {
    return T{1} / sqrt(x);
}
// The library of the host computes in radians only. The nearest multiple of a quarter circle is subtracted first, which
// is exact: the remainder is small where the result is.
TALLOW_INLINE double sinpi(double x) {
    const double quarter = ::rint(2 * x);
    const double angle = 3.14159265358979323846 * (x - quarter / 2);
    const double size = static_cast<int64_t>(quarter) & 1 ? ::cos(angle) : ::sin(angle);
    return static_cast<int64_t>(quarter) & 2 ? -size : size;
}
TALLOW_INLINE double cospi(double x) {
    const double quarter = ::rint(2 * x);
    const double angle = 3.14159265358979323846 * (x - quarter / 2);
    const double size = static_cast<int64_t>(quarter) & 1 ? ::sin(angle) : ::cos(angle);
    return (static_cast<int64_t>(quarter) + 1) & 2 ? -size : size;
}
TALLOW_INLINE float sinpi(float x) {
    return static_cast<float>(sinpi(static_cast<double>(x)));
}
TALLOW_INLINE float cospi(float x) {
    return static_cast<float>(cospi(static_cast<double>(x)));
}
#endif
#undef TALLOW_FUNCTION

} // namespace tallow
