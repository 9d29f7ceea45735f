// The mathematics of HIP's device side: C's library, and what HIP has besides.
#pragma once

extern "C" {
double acos(double) noexcept;
float acosf(float) noexcept;
double acosh(double) noexcept;
float acoshf(float) noexcept;
double asin(double) noexcept;
float asinf(float) noexcept;
double asinh(double) noexcept;
float asinhf(float) noexcept;
double atan(double) noexcept;
float atanf(float) noexcept;
double atanh(double) noexcept;
float atanhf(float) noexcept;
double cbrt(double) noexcept;
float cbrtf(float) noexcept;
double ceil(double) noexcept;
float ceilf(float) noexcept;
double cos(double) noexcept;
float cosf(float) noexcept;
double cosh(double) noexcept;
float coshf(float) noexcept;
double erf(double) noexcept;
float erff(float) noexcept;
double erfc(double) noexcept;
float erfcf(float) noexcept;
double exp(double) noexcept;
float expf(float) noexcept;
double exp2(double) noexcept;
float exp2f(float) noexcept;
double exp10(double) noexcept;
float exp10f(float) noexcept;
double expm1(double) noexcept;
float expm1f(float) noexcept;
double fabs(double) noexcept;
float fabsf(float) noexcept;
double floor(double) noexcept;
float floorf(float) noexcept;
double lgamma(double) noexcept;
float lgammaf(float) noexcept;
double log(double) noexcept;
float logf(float) noexcept;
double log10(double) noexcept;
float log10f(float) noexcept;
double log1p(double) noexcept;
float log1pf(float) noexcept;
double log2(double) noexcept;
float log2f(float) noexcept;
double nearbyint(double) noexcept;
float nearbyintf(float) noexcept;
double rint(double) noexcept;
float rintf(float) noexcept;
double round(double) noexcept;
float roundf(float) noexcept;
double sin(double) noexcept;
float sinf(float) noexcept;
double sinh(double) noexcept;
float sinhf(float) noexcept;
double sqrt(double) noexcept;
float sqrtf(float) noexcept;
double tan(double) noexcept;
float tanf(float) noexcept;
double tanh(double) noexcept;
float tanhf(float) noexcept;
double tgamma(double) noexcept;
float tgammaf(float) noexcept;
double trunc(double) noexcept;
float truncf(float) noexcept;
double atan2(double, double) noexcept;
float atan2f(float, float) noexcept;
double copysign(double, double) noexcept;
float copysignf(float, float) noexcept;
double fdim(double, double) noexcept;
float fdimf(float, float) noexcept;
double fmax(double, double) noexcept;
float fmaxf(float, float) noexcept;
double fmin(double, double) noexcept;
float fminf(float, float) noexcept;
double fmod(double, double) noexcept;
float fmodf(float, float) noexcept;
double hypot(double, double) noexcept;
float hypotf(float, float) noexcept;
double nextafter(double, double) noexcept;
float nextafterf(float, float) noexcept;
double pow(double, double) noexcept;
float powf(float, float) noexcept;
double remainder(double, double) noexcept;
float remainderf(float, float) noexcept;
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double frexp(double, int*) noexcept;
float frexpf(float, int*) noexcept;
void sincos(double, double*, double*) noexcept;
void sincosf(float, float*, float*) noexcept;
int abs(int) noexcept;
long long llabs(long long) noexcept;
int printf(const char*, ...);
}

// HIP overloads C's names for float.
inline float acos(float x) { return acosf(x); }
inline float acosh(float x) { return acoshf(x); }
inline float asin(float x) { return asinf(x); }
inline float asinh(float x) { return asinhf(x); }
inline float atan(float x) { return atanf(x); }
inline float atanh(float x) { return atanhf(x); }
inline float cbrt(float x) { return cbrtf(x); }
inline float ceil(float x) { return ceilf(x); }
inline float cos(float x) { return cosf(x); }
inline float cosh(float x) { return coshf(x); }
inline float erf(float x) { return erff(x); }
inline float erfc(float x) { return erfcf(x); }
inline float exp(float x) { return expf(x); }
inline float exp2(float x) { return exp2f(x); }
inline float exp10(float x) { return exp10f(x); }
inline float expm1(float x) { return expm1f(x); }
inline float fabs(float x) { return fabsf(x); }
inline float floor(float x) { return floorf(x); }
inline float lgamma(float x) { return lgammaf(x); }
inline float log(float x) { return logf(x); }
inline float log10(float x) { return log10f(x); }
inline float log1p(float x) { return log1pf(x); }
inline float log2(float x) { return log2f(x); }
inline float nearbyint(float x) { return nearbyintf(x); }
inline float rint(float x) { return rintf(x); }
inline float round(float x) { return roundf(x); }
inline float sin(float x) { return sinf(x); }
inline float sinh(float x) { return sinhf(x); }
inline float sqrt(float x) { return sqrtf(x); }
inline float tan(float x) { return tanf(x); }
inline float tanh(float x) { return tanhf(x); }
inline float tgamma(float x) { return tgammaf(x); }
inline float trunc(float x) { return truncf(x); }
inline float atan2(float x, float y) { return atan2f(x, y); }
inline float copysign(float x, float y) { return copysignf(x, y); }
inline float fdim(float x, float y) { return fdimf(x, y); }
inline float fmax(float x, float y) { return fmaxf(x, y); }
inline float fmin(float x, float y) { return fminf(x, y); }
inline float fmod(float x, float y) { return fmodf(x, y); }
inline float hypot(float x, float y) { return hypotf(x, y); }
inline float nextafter(float x, float y) { return nextafterf(x, y); }
inline float pow(float x, float y) { return powf(x, y); }
inline float remainder(float x, float y) { return remainderf(x, y); }
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
inline float ldexp(float x, int exponent) { return ldexpf(x, exponent); }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline long long abs(long long x) { return llabs(x); }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }

inline int min(int x, int y) { return x < y ? x : y; }
inline int max(int x, int y) { return x > y ? x : y; }
inline unsigned min(unsigned x, unsigned y) { return x < y ? x : y; }
inline unsigned max(unsigned x, unsigned y) { return x > y ? x : y; }
inline long min(long x, long y) { return x < y ? x : y; }
inline long max(long x, long y) { return x > y ? x : y; }
inline unsigned long min(unsigned long x, unsigned long y) { return x < y ? x : y; }
inline unsigned long max(unsigned long x, unsigned long y) { return x > y ? x : y; }
inline long long min(long long x, long long y) { return x < y ? x : y; }
inline long long max(long long x, long long y) { return x > y ? x : y; }
inline unsigned long long min(unsigned long long x, unsigned long long y) { return x < y ? x : y; }
inline unsigned long long max(unsigned long long x, unsigned long long y) { return x > y ? x : y; }
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }

// ---- HIP's own functions

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// The argument is reduced exactly before it meets pi, so that whole and half turns give whole results.
inline void sincospi(double x, double* sine, double* cosine) {
    const double quarter = rint(x * 2.0);
    const double rest = fma(quarter, -0.5, x) * 3.14159265358979323846;
    const long long turn = static_cast<long long>(quarter - 4.0 * floor(quarter * 0.25));
    const double s = sin(rest), c = cos(rest);
    *sine = turn == 0 ? s : turn == 1 ? c : turn == 2 ? -s : -c;
    *cosine = turn == 0 ? c : turn == 1 ? -s : turn == 2 ? -c : s;
}
inline void sincospif(float x, float* sine, float* cosine) {
    double s, c;
    sincospi(x, &s, &c);
    *sine = static_cast<float>(s);
    *cosine = static_cast<float>(c);
}
inline double sinpi(double x) {
    double sine, cosine;
    sincospi(x, &sine, &cosine);
    return sine;
}
inline double cospi(double x) {
    double sine, cosine;
    sincospi(x, &sine, &cosine);
    return cosine;
}
inline float sinpif(float x) { return static_cast<float>(sinpi(static_cast<double>(x))); }
inline float cospif(float x) { return static_cast<float>(cospi(static_cast<double>(x))); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

// ---- Bits

namespace hip_host {
template <class To, class From> inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps their number");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
} // namespace hip_host

inline unsigned __float_as_uint(float x) { return hip_host::bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return hip_host::bits_as<int>(x); }
inline float __uint_as_float(unsigned x) { return hip_host::bits_as<float>(x); }
inline float __int_as_float(int x) { return hip_host::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return hip_host::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return hip_host::bits_as<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __ffsll(unsigned long long x) { return __builtin_ffsll(static_cast<long long>(x)); }
inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    __extension__ typedef unsigned __int128 wide;
    return static_cast<unsigned long long>(static_cast<wide>(x) * y >> 64);
}
inline long long __mul64hi(long long x, long long y) {
    __extension__ typedef __int128 wide;
    return static_cast<long long>(static_cast<wide>(x) * y >> 64);
}
inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
template <class Value> inline Value __ldg(const Value* address) { return *address; }
