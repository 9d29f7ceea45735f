// The functions of the functors' expressions for complex numbers. At zeros, infinities and NaN they have the values of
// C's annex G. Functions that reach infinity through a large exponential multiply twice by its root.
#pragma once

#include "math.hpp"

namespace tallow {

template <typename R> TALLOW_INLINE R real(Complex<R> z) {
    return z.real;
}
template <typename R> TALLOW_INLINE R imag(Complex<R> z) {
    return z.imag;
}
template <typename R> TALLOW_INLINE Complex<R> conj(Complex<R> z) {
    return {z.real, -z.imag};
}
template <typename R> TALLOW_INLINE R angle(Complex<R> z) {
    return atan2(z.imag, z.real);
}
template <typename R> TALLOW_INLINE R abs(Complex<R> z) {
    return hypot(z.real, z.imag);
}
template <typename R> TALLOW_INLINE bool is_infinite(Complex<R> z) {
    return is_infinite(z.real) || is_infinite(z.imag);
}
template <typename R> TALLOW_INLINE bool is_finite(R x) {
    return x - x == 0;
}

// The number of size 1 in the same direction; 0 of 0.
template <typename R> TALLOW_INLINE Complex<R> sign(Complex<R> z) {
    const R size = abs(z);
    return size == 0 ? Complex<R>(0) : Complex<R>(z.real / size, z.imag / size);
}

// i * z and -i * z, without products that would make NaN of infinity and 0.
template <typename R> TALLOW_INLINE Complex<R> turned(Complex<R> z) {
    return {-z.imag, z.real};
}
template <typename R> TALLOW_INLINE Complex<R> turned_back(Complex<R> z) {
    return {z.imag, -z.real};
}

// Beyond this exp(x) is near the largest number.
TALLOW_INLINE float large_exponent(float) {
    return 80.0f;
}
TALLOW_INLINE double large_exponent(double) {
    return 700.0;
}
// Squares of numbers from the second to the first one neither overflow nor lose bits.
TALLOW_INLINE float large_number(float) {
    return 1e18f;
}
TALLOW_INLINE double large_number(double) {
    return 1e150;
}
TALLOW_INLINE float small_number(float) {
    return 1e-15f;
}
TALLOW_INLINE double small_number(double) {
    return 1e-140;
}

template <typename R> TALLOW_INLINE Complex<R> exp(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (y == 0)
        return {exp(x), y};
    if (!is_finite(y)) {
        if (is_infinite(x))
            return x < 0 ? Complex<R>(0, copysign(R{0}, y)) : Complex<R>(x, y - y);
        return {y - y, y - y};
    }
    const bool is_large = x > large_exponent(x);
    const R size = exp(is_large ? x / 2 : x);
    const R again = is_large ? size : R{1};
    return {size * cos(y) * again, size * sin(y) * again};
}

template <typename R> TALLOW_INLINE Complex<R> expm1(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (y == 0)
        return {expm1(x), y};
    if (!is_finite(y) || !(x > -large_exponent(x) && x < large_exponent(x))) {
        const Complex<R> power = exp(z);
        return {power.real - 1, power.imag};
    }
    const R half = sin(y / 2);
    return {expm1(x) * cos(y) - 2 * half * half, exp(x) * sin(y)};
}

// log(|z|), accurate where |z| is near 1: the square less 1 is a dot product whose rounding errors are known.
template <typename R> TALLOW_INLINE R log_abs(Complex<R> z) {
    const R x = fabs(z.real), y = fabs(z.imag);
    const R most = x > y ? x : y, least = x > y ? y : x;
    const R size = hypot(x, y);
    if (size > R(0.5) && size < R(1.5)) {
        const R wide = most * most, high = least * least;
        const R first = wide - 1, sum = first + high;
        const R lost = (wide - (first + 1)) + (first - sum + high);
        return log1p(sum + (lost + fma(most, most, -wide) + fma(least, least, -high))) / 2;
    }
    if (most > large_number(x) && most < infinity(x))
        return log(hypot(x / large_number(x), y / large_number(x))) + log(large_number(x));
    if (most < small_number(x) && most > 0)
        return log(hypot(x / small_number(x), y / small_number(x))) + log(small_number(x));
    return log(size);
}

template <typename R> TALLOW_INLINE Complex<R> log(Complex<R> z) {
    return {log_abs(z), angle(z)};
}
template <typename R> TALLOW_INLINE Complex<R> log2(Complex<R> z) {
    constexpr R scale = R(1.4426950408889634);
    return {log_abs(z) * scale, angle(z) * scale};
}
template <typename R> TALLOW_INLINE Complex<R> log10(Complex<R> z) {
    constexpr R scale = R(0.4342944819032518);
    return {log_abs(z) * scale, angle(z) * scale};
}
template <typename R> TALLOW_INLINE Complex<R> log1p(Complex<R> z) {
    const Complex<R> moved(z.real + 1, z.imag);
    const bool is_near = fabs(z.real) < R(0.5) && fabs(z.imag) < R(0.5);
    const R near = log1p(fma(z.real, z.real + 2, z.imag * z.imag)) / 2;
    return {is_near ? near : log_abs(moved), angle(moved)};
}

template <typename R> TALLOW_INLINE Complex<R> sqrt(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (x == 0 && y == 0)
        return {0, y};
    if (is_infinite(y))
        return {fabs(y), y};
    if (is_infinite(x))
        return x > 0 ? Complex<R>(x, y == y ? copysign(R{0}, y) : y) : Complex<R>(y == y ? R{0} : y, copysign(x, y));
    const R most = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
    const R scale = most > large_number(x) ? R(0x1p-20) : most < small_number(x) ? R(0x1p60) : R{1};
    const R back = most > large_number(x) ? R(0x1p10) : most < small_number(x) ? R(0x1p-30) : R{1};
    const R wide = fabs(x) * scale, high = fabs(y) * scale;
    const R longer = sqrt((wide + hypot(wide, high)) / 2);
    const R shorter = high / (2 * longer) * back;
    return x < 0 ? Complex<R>(shorter, copysign(longer * back, y)) : Complex<R>(longer * back, copysign(shorter, y));
}

template <typename R> TALLOW_INLINE Complex<R> sinh(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (y == 0)
        return {sinh(x), y};
    if (!is_finite(y))
        return {x == 0 || is_infinite(x) ? x : y - y, y - y};
    if (fabs(x) > large_exponent(x)) {
        const R root = exp(fabs(x) / 2);
        return {copysign(root / 2, x) * cos(y) * root, root / 2 * sin(y) * root};
    }
    return {sinh(x) * cos(y), cosh(x) * sin(y)};
}

template <typename R> TALLOW_INLINE Complex<R> cosh(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (y == 0)
        return {cosh(x), has_sign(x) ? -y : y};
    if (!is_finite(y))
        return {is_infinite(x) ? fabs(x) : y - y, x == 0 ? R{0} : y - y};
    if (fabs(x) > large_exponent(x)) {
        const R root = exp(fabs(x) / 2);
        return {root / 2 * cos(y) * root, copysign(root / 2, x) * sin(y) * root};
    }
    return {cosh(x) * cos(y), sinh(x) * sin(y)};
}

// By Kahan 1987, Branch cuts for complex elementary functions; so are the inverse functions.
template <typename R> TALLOW_INLINE Complex<R> tanh(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (y == 0)
        return {tanh(x), y};
    if (is_infinite(x))
        return {copysign(R{1}, x), copysign(R{0}, is_finite(y) ? sin(2 * y) : y)};
    if (!is_finite(y))
        return {x == 0 ? x : y - y, y - y};
    if (fabs(x) > large_exponent(x) / 4)
        return {copysign(R{1}, x), 4 * sin(y) * cos(y) * exp(-fabs(x)) * exp(-fabs(x))};
    const R tangent = tan(y), sine = sinh(x);
    const R square = 1 + tangent * tangent;
    const R divisor = 1 + square * sine * sine;
    return {square * sqrt(1 + sine * sine) * sine / divisor, tangent / divisor};
}

template <typename R> TALLOW_INLINE Complex<R> sin(Complex<R> z) {
    return turned_back(sinh(turned(z)));
}
template <typename R> TALLOW_INLINE Complex<R> cos(Complex<R> z) {
    return cosh(turned(z));
}
template <typename R> TALLOW_INLINE Complex<R> tan(Complex<R> z) {
    return turned_back(tanh(turned(z)));
}

// Of so large a number the inverse functions have the logarithm of twice its size.
template <typename R> TALLOW_INLINE bool is_large(Complex<R> z) {
    return is_infinite(z) || fabs(z.real) > large_number(z.real) || fabs(z.imag) > large_number(z.real);
}
template <typename R> TALLOW_INLINE R log_twice(Complex<R> z) {
    return log_abs(z) + R(0.6931471805599453);
}

template <typename R> TALLOW_INLINE Complex<R> asin(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (is_large(z))
        return {atan2(x, fabs(y)), copysign(log_twice(z), y)};
    if (x != x || y != y)
        return {x == 0 ? x : x + y, x + y};
    const Complex<R> below = sqrt(Complex<R>(1 - x, -y)), above = sqrt(Complex<R>(1 + x, y));
    return {atan2(x, below.real * above.real - below.imag * above.imag),
            copysign(asinh(below.real * above.imag - below.imag * above.real), y)};
}
template <typename R> TALLOW_INLINE Complex<R> acos(Complex<R> z) {
    const R x = z.real, y = z.imag;
    if (is_large(z))
        return {atan2(fabs(y), x), copysign(log_twice(z), -y)};
    if (x != x || y != y)
        return {x == 0 ? R(1.5707963267948966) : x + y, x + y};
    const Complex<R> below = sqrt(Complex<R>(1 - x, -y)), above = sqrt(Complex<R>(1 + x, y));
    return {2 * atan2(below.real, above.real), copysign(asinh(above.real * below.imag - above.imag * below.real), -y)};
}
template <typename R> TALLOW_INLINE Complex<R> acosh(Complex<R> z) {
    const Complex<R> arc = acos(z);
    return {fabs(arc.imag), copysign(arc.real, z.imag)};
}
template <typename R> TALLOW_INLINE Complex<R> asinh(Complex<R> z) {
    return turned_back(asin(turned(z)));
}

template <typename R> TALLOW_INLINE Complex<R> atanh(Complex<R> z) {
    constexpr R right = R(1.5707963267948966);
    const R x = fabs(z.real), y = fabs(z.imag);
    if (is_infinite(z))
        return {copysign(R{0}, z.real), y == y ? copysign(right, z.imag) : y};
    if (x != x || y != y)
        return {x == 0 ? z.real : x + y, x + y};
    const R most = x > y ? x : y;
    R size, angle;
    if (most > large_number(x)) {
        size = x / most / most / (1 + (x > y ? y / x * (y / x) : x / y * (x / y)));
        angle = right;
    } else {
        const bool is_close = x == 1 && y < small_number(x);
        const R distance = (1 - x) * (1 - x) + y * y;
        size = is_close ? (R(0.6931471805599453) - log(y)) / 2 : log1p(4 * x / distance) / 4;
        angle = atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2;
    }
    return {copysign(size, z.real), copysign(angle, z.imag)};
}
template <typename R> TALLOW_INLINE Complex<R> atan(Complex<R> z) {
    return turned_back(atanh(turned(z)));
}

// By multiplication for small integers, which is as exact as that.
TALLOW_INLINE complex128 pow(complex128 x, complex128 y) {
    if (y == 0)
        return 1;
    if (x == 0)
        return y.real > 0 ? complex128(0) : complex128(x.real / x.real, x.real / x.real);
    if (y.imag == 0 && y.real == floor(y.real) && fabs(y.real) <= 100) {
        complex128 product(1), power(x);
        for (uint32_t exponent = static_cast<uint32_t>(fabs(y.real)); exponent != 0; exponent >>= 1) {
            product = exponent & 1 ? product * power : product;
            power = power * power;
        }
        return y.real < 0 ? 1 / product : product;
    }
    return exp(y * log(x));
}
TALLOW_INLINE complex128 pow(complex128 x, double y) {
    return pow(x, complex128(y));
}
// In f64, as an error of the logarithm is multiplied by the exponent.
TALLOW_INLINE complex64 pow(complex64 x, complex64 y) {
    return complex64(pow(complex128(x), complex128(y)));
}
TALLOW_INLINE complex64 pow(complex64 x, float y) {
    return pow(x, complex64(y));
}

} // namespace tallow
