// LAPACK with integers of 64 bits, as NumPy's wheels have it: NumPy is in the process already.
#pragma once

#include "hip_host.hpp"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string>
#include <type_traits>
#include <vector>

namespace hip_host {

inline void* openblas() {
    static void* const library = [] {
        std::string path;
        dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* found) {
                if (std::strstr(info->dlpi_name, "scipy_openblas64_"))
                    *static_cast<std::string*>(found) = info->dlpi_name;
                return 0;
            },
            &path);
        return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    }();
    return library;
}

// Fortran passes addresses, and behind them the lengths of texts, which are 1 here.
template <class... Arguments> bool lapack(char letter, const char* name, Arguments... arguments) {
    const std::string symbol = std::string("scipy_") + char(letter + 'a' - 'A') + name + "_64_";
    void* const function = openblas() ? dlsym(openblas(), symbol.c_str()) : nullptr;
    if (!function) {
        std::fprintf(stderr, "hip_host: no NumPy with %s is loaded; install NumPy's own wheel\n", symbol.c_str());
        return false;
    }
    reinterpret_cast<void (*)(Arguments..., std::size_t, std::size_t)>(function)(arguments..., 1, 1);
    return true;
}

template <class T> struct Traits;
template <> struct Traits<float> {
    static constexpr char letter = 'S';
    using Real = float;
};
template <> struct Traits<double> {
    static constexpr char letter = 'D';
    using Real = double;
};
template <> struct Traits<std::complex<float>> {
    static constexpr char letter = 'C';
    using Real = float;
};
template <> struct Traits<std::complex<double>> {
    static constexpr char letter = 'Z';
    using Real = double;
};
template <class T> using RealOf = typename Traits<T>::Real;
template <class T> constexpr bool is_complex = !std::is_same_v<T, RealOf<T>>;

// What a call reads or writes.
struct Extent {
    const char* operand;
    const void* address;
    std::int64_t bytes;
};

template <class T> Extent matrix(const char* operand, const T* address, std::int64_t leading, std::int64_t columns) {
    return {operand, address, leading * columns * std::int64_t(sizeof(T))};
}

// The address of a matrix of so many bytes, which an array of the device has; null where either is not there.
template <class T> T* placed(const char* call, T* const* array, std::int64_t number, std::int64_t bytes) {
    if (!check_access(call, "array", array + number, sizeof(T*)))
        return nullptr;
    T* const place = array[number];
    return check_access(call, "matrix", place, std::size_t(bytes)) ? place : nullptr;
}

// P L U of one matrix; false where there is no LAPACK.
template <class T> bool getrf(int m, int n, T* a, int lda, int* pivots, std::int64_t* found) {
    std::vector<std::int64_t> rows(m < n ? m : n);
    const std::int64_t sizes[] = {m, n, lda};
    const bool is_done = lapack(Traits<T>::letter, "getrf", &sizes[0], &sizes[1], a, &sizes[2], rows.data(), found);
    std::copy(rows.begin(), rows.end(), pivots);
    return is_done;
}

template <class T>
bool getrs(char transposed, int n, int columns, const T* a, int lda, const int* pivots, T* b, int ldb,
           std::int64_t* found) {
    const std::vector<std::int64_t> rows(pivots, pivots + n);
    const std::int64_t sizes[] = {n, columns, lda, ldb};
    return lapack(Traits<T>::letter, "getrs", &transposed, &sizes[0], &sizes[1], a, &sizes[2], rows.data(), b,
                  &sizes[3], found);
}

template <class T> bool geqrf(int m, int n, T* a, int lda, T* factors, std::int64_t* found) {
    const std::int64_t sizes[] = {m, n, lda, 64 * std::int64_t(n)};
    std::vector<T> own(sizes[3]);
    return lapack(Traits<T>::letter, "geqrf", &sizes[0], &sizes[1], a, &sizes[2], factors, own.data(), &sizes[3],
                  found);
}

} // namespace hip_host
