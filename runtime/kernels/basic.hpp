// What every target computes in one instruction or nearly so, and polynomials.
#pragma once

#include "arithmetic.hpp"

namespace tallow {

#if defined(TALLOW_AMD)
#define TALLOW_FUNCTION(name)                                                                                          \
    TALLOW_INLINE float name(float x) {                                                                                \
        return __builtin_##name##f(x);                                                                                 \
    }                                                                                                                  \
    TALLOW_INLINE double name(double x) {                                                                              \
        return __builtin_##name(x);                                                                                    \
    }
// The larger one; NaN loses.
TALLOW_INLINE float fmax(float x, float y) {
    return __builtin_fmaxf(x, y);
}
TALLOW_INLINE double fmax(double x, double y) {
    return __builtin_fmax(x, y);
}
// The size of x with the sign of y.
TALLOW_INLINE float copysign(float x, float y) {
    return __builtin_copysignf(x, y);
}
TALLOW_INLINE double copysign(double x, double y) {
    return __builtin_copysign(x, y);
}
TALLOW_INLINE float fma(float x, float y, float z) {
    return __builtin_fmaf(x, y, z);
}
TALLOW_INLINE double fma(double x, double y, double z) {
    return __builtin_fma(x, y, z);
}
#else
#define TALLOW_FUNCTION(name)                                                                                          \
    TALLOW_INLINE float name(float x) {                                                                                \
        return ::name##f(x);                                                                                           \
    }                                                                                                                  \
    TALLOW_INLINE double name(double x) {                                                                              \
        return ::name(x);                                                                                              \
    }
TALLOW_INLINE float fmax(float x, float y) {
    return ::fmaxf(x, y);
}
TALLOW_INLINE double fmax(double x, double y) {
    return ::fmax(x, y);
}
TALLOW_INLINE float copysign(float x, float y) {
    return ::copysignf(x, y);
}
TALLOW_INLINE double copysign(double x, double y) {
    return ::copysign(x, y);
}
TALLOW_INLINE float fma(float x, float y, float z) {
    return ::fmaf(x, y, z);
}
TALLOW_INLINE double fma(double x, double y, double z) {
    return ::fma(x, y, z);
}
#endif
TALLOW_FUNCTION(floor)
TALLOW_FUNCTION(ceil)
TALLOW_FUNCTION(fabs)
TALLOW_FUNCTION(trunc)
#undef TALLOW_FUNCTION

// The polynomial with these coefficients, the constant first.
template <typename T> TALLOW_INLINE T polynomial(T, double constant) {
    return static_cast<T>(constant);
}
template <typename T, typename... Coefficients>
TALLOW_INLINE T polynomial(T x, double constant, Coefficients... coefficients) {
    return fma(polynomial(x, coefficients...), x, static_cast<T>(constant));
}

} // namespace tallow
