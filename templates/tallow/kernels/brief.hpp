// What the functors of types with at most 11 bits are given: a float, with functions that are accurate to 14 bits and
// as quick as memory. Every other function takes it for the float that it is.
#pragma once

#include "math.hpp"

namespace tallow {

struct Brief {
    float value;
    TALLOW_INLINE Brief(float x) : value(x) {
    }
    TALLOW_INLINE operator float() const {
        return value;
    }
};
template <> struct Traits<Brief> : FloatTraits<float> {};

// x / (1 + e**-u) = (x * s / (1 + s * s)) * s with s = e**(u / 2): neither factor overflows, and a subnormal result
// comes of the last product alone. Beyond u = 20 nothing changes any more.
TALLOW_INLINE float brief_logistic_product(float x, float u) {
    const float root = rough_exp2((u > 20.0f ? 20.0f : u) * 0.72134752f);
    return x * (root * rough_reciprocal(fma(root, root, 1.0f))) * root;
}

TALLOW_INLINE float sigmoid(Brief x) {
    return brief_logistic_product(1.0f, x.value);
}

TALLOW_INLINE float silu(Brief x) {
    const float product = brief_logistic_product(x.value, x.value);
    return x.value < -170.0f ? -0.0f : product;
}

TALLOW_INLINE float gelu(Brief x) {
    const float u = x.value * fma(0.071354816f, x.value * x.value, 1.5957691f);
    const float product = brief_logistic_product(x.value, u);
    return x.value < -25.0f ? -0.0f : product;
}

TALLOW_INLINE float gelu_erf(Brief x) {
    const float size = fabs(x.value);
    const float p = polynomial((size - 4.0f) * rough_reciprocal(size + 4.0f), 1.25694307, -0.13235234, -0.0630292888,
                               0.14023837, -0.118761746, 0.0579988035, -0.0109744352, -0.00169484415);
    const float root = rough_exp2(x.value * x.value * -0.36067376f);
    const float tail = 0.5f * x.value * (p * rough_reciprocal(fma(size, 1.41421356f, 1.0f)) * root) * root;
    const float result = x.value <= 0.0f ? tail : x.value - tail;
    return size > 40.0f ? (x.value < 0.0f ? -0.0f : x.value) : result;
}

} // namespace tallow
