// hipSOLVER: decompositions, checked as it checks them, by the LAPACK of NumPy, which is in the process already.
#include "hip_host.hpp"

#include <complex>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string>
#include <vector>

using namespace hip_host;

enum hipsolverStatus_t {
    HIPSOLVER_STATUS_SUCCESS = 0,
    HIPSOLVER_STATUS_NOT_INITIALIZED = 1,
    HIPSOLVER_STATUS_ALLOC_FAILED = 2,
    HIPSOLVER_STATUS_INVALID_VALUE = 3,
    HIPSOLVER_STATUS_EXECUTION_FAILED = 5,
    HIPSOLVER_STATUS_INTERNAL_ERROR = 6,
};
enum hipblasOperation_t { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, HIPBLAS_OP_C = 113 };
enum hipblasFillMode_t { HIPBLAS_FILL_MODE_UPPER = 121, HIPBLAS_FILL_MODE_LOWER = 122 };
enum hipsolverEigMode_t { HIPSOLVER_EIG_MODE_NOVECTOR = 201, HIPSOLVER_EIG_MODE_VECTOR = 202 };

struct SolverHandle {
    hipStream_t stream = nullptr;
};
using hipsolverHandle_t = SolverHandle*;

namespace {

// So much that a caller that gives too little is found.
constexpr int workspace_bytes = 4096;

Registry<SolverHandle>& handles() {
    static auto& instance = *new Registry<SolverHandle>("hipsolver handle");
    return instance;
}

template <class Body>
hipsolverStatus_t with_handle(const std::string& function, hipsolverHandle_t handle, Body&& body) {
    if (const int injected = injected_failure(function.c_str(), HIPSOLVER_STATUS_INTERNAL_ERROR))
        return static_cast<hipsolverStatus_t>(injected);
    return handles().contains(handle) ? body(*handle) : HIPSOLVER_STATUS_NOT_INITIALIZED;
}

// ---- LAPACK with integers of 64 bits, as NumPy's wheels have it

void* openblas() {
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

// ---- One call

template <class T> std::string named(const char* function) {
    return std::string("hipsolverDn") + Traits<T>::letter + function;
}

struct Extent {
    const char* operand;
    const void* address;
    std::int64_t bytes;
};

// Enqueues what `work` does with LAPACK's info, which it gives to the device. `sizes` are above 0.
template <class T, class Work>
hipsolverStatus_t enqueue(const char* function, hipsolverHandle_t handle, std::vector<std::int64_t> sizes,
                          std::vector<Extent> extents, int* info, Work work) {
    const std::string name = named<T>(function);
    return with_handle(name, handle, [&](SolverHandle& known) {
        for (const std::int64_t size : sizes)
            if (size < 1)
                return HIPSOLVER_STATUS_INVALID_VALUE;
        LogLine line(name.c_str());
        for (std::size_t place = 0; place < sizes.size(); ++place)
            line.integer(("size" + std::to_string(place)).c_str(), sizes[place]);
        extents.push_back({"info", info, sizeof(int)});
        const hipError_t error = submit(known.stream, [=] {
            for (const Extent& extent : extents)
                if (!check_access(name.c_str(), extent.operand, extent.address, std::size_t(extent.bytes)))
                    return sticky_error();
            for (const Extent& extent : extents)
                if (!std::strcmp(extent.operand, "workspace"))
                    std::memset(const_cast<void*>(extent.address), 0xCB, workspace_bytes);
            std::int64_t found = 0;
            if (!work(&found))
                return hipErrorNotSupported;
            *info = int(found);
            return hipSuccess;
        });
        return error ? HIPSOLVER_STATUS_EXECUTION_FAILED : HIPSOLVER_STATUS_SUCCESS;
    });
}

template <class T> hipsolverStatus_t size_of_work(const char* function, hipsolverHandle_t handle, int* size) {
    return with_handle(named<T>(function) + "_bufferSize", handle, [&](SolverHandle&) {
        if (!size)
            return HIPSOLVER_STATUS_INVALID_VALUE;
        *size = workspace_bytes;
        return HIPSOLVER_STATUS_SUCCESS;
    });
}

template <class T> Extent matrix(const char* operand, const T* address, std::int64_t leading, std::int64_t columns) {
    return {operand, address, leading * columns * std::int64_t(sizeof(T))};
}
Extent workspace(const void* address, int bytes = workspace_bytes) {
    return {"workspace", address, bytes < workspace_bytes ? std::int64_t(1) << 62 : workspace_bytes};
}

template <class T>
hipsolverStatus_t potrf(hipsolverHandle_t handle, hipblasFillMode_t fill, int n, T* a, int lda, T* work, int length,
                        int* info) {
    return enqueue<T>("potrf", handle, {n, lda - n + 1}, {matrix("a", a, lda, n), workspace(work, length)}, info,
                      [=](std::int64_t* found) {
                          const char triangle = fill == HIPBLAS_FILL_MODE_UPPER ? 'U' : 'L';
                          const std::int64_t size = n, leading = lda;
                          return lapack(Traits<T>::letter, "potrf", &triangle, &size, a, &leading, found);
                      });
}

template <class T>
hipsolverStatus_t getrf(hipsolverHandle_t handle, int m, int n, T* a, int lda, T* work, int* pivots, int* info) {
    const std::int64_t count = m < n ? m : n;
    return enqueue<T>("getrf", handle, {m, n, lda - m + 1},
                      {matrix("a", a, lda, n), workspace(work), matrix("pivots", pivots, 1, count)}, info,
                      [=](std::int64_t* found) {
                          std::vector<std::int64_t> rows(count);
                          const std::int64_t sizes[] = {m, n, lda};
                          const bool is_done = lapack(Traits<T>::letter, "getrf", &sizes[0], &sizes[1], a, &sizes[2],
                                                      rows.data(), found);
                          std::copy(rows.begin(), rows.end(), pivots);
                          return is_done;
                      });
}

template <class T>
hipsolverStatus_t getrs(hipsolverHandle_t handle, hipblasOperation_t operation, int n, int columns, const T* a, int lda,
                        const int* pivots, T* b, int ldb, int* info) {
    return enqueue<T>("getrs", handle, {n, columns, lda - n + 1, ldb - n + 1},
                      {matrix("a", a, lda, n), matrix("pivots", pivots, 1, n), matrix("b", b, ldb, columns)}, info,
                      [=](std::int64_t* found) {
                          const char which = "NTC"[operation - HIPBLAS_OP_N];
                          const std::vector<std::int64_t> rows(pivots, pivots + n);
                          const std::int64_t sizes[] = {n, columns, lda, ldb};
                          return lapack(Traits<T>::letter, "getrs", &which, &sizes[0], &sizes[1], a, &sizes[2],
                                        rows.data(), b, &sizes[3], found);
                      });
}

template <class T>
hipsolverStatus_t geqrf(hipsolverHandle_t handle, int m, int n, T* a, int lda, T* factors, T* work, int length,
                        int* info) {
    return enqueue<T>("geqrf", handle, {m, n, lda - m + 1},
                      {matrix("a", a, lda, n), matrix("tau", factors, 1, m < n ? m : n), workspace(work, length)}, info,
                      [=](std::int64_t* found) {
                          const std::int64_t sizes[] = {m, n, lda, 64 * std::int64_t(n)};
                          std::vector<T> own(sizes[3]);
                          return lapack(Traits<T>::letter, "geqrf", &sizes[0], &sizes[1], a, &sizes[2], factors,
                                        own.data(), &sizes[3], found);
                      });
}

template <class T>
hipsolverStatus_t orgqr(hipsolverHandle_t handle, int m, int n, int k, T* a, int lda, const T* factors, T* work,
                        int length, int* info) {
    const char* const name = is_complex<T> ? "ungqr" : "orgqr";
    return enqueue<T>(name, handle, {m, n, k, m - n + 1, n - k + 1, lda - m + 1},
                      {matrix("a", a, lda, n), matrix("tau", factors, 1, k), workspace(work, length)}, info,
                      [=](std::int64_t* found) {
                          const std::int64_t sizes[] = {m, n, k, lda, 64 * std::int64_t(n)};
                          std::vector<T> own(sizes[4]);
                          return lapack(Traits<T>::letter, name, &sizes[0], &sizes[1], &sizes[2], a, &sizes[3], factors,
                                        own.data(), &sizes[4], found);
                      });
}

template <class T>
hipsolverStatus_t syevd(hipsolverHandle_t handle, hipsolverEigMode_t mode, hipblasFillMode_t fill, int n, T* a, int lda,
                        RealOf<T>* values, T* work, int length, int* info) {
    const char* const name = is_complex<T> ? "heevd" : "syevd";
    return enqueue<T>(name, handle, {n, lda - n + 1},
                      {matrix("a", a, lda, n), matrix("values", values, 1, n), workspace(work, length)}, info,
                      [=](std::int64_t* found) {
                          const char job = mode == HIPSOLVER_EIG_MODE_VECTOR ? 'V' : 'N';
                          const char triangle = fill == HIPBLAS_FILL_MODE_UPPER ? 'U' : 'L';
                          const std::int64_t size = n, leading = lda, all = 1 + 6 * size + 2 * size * size;
                          const std::int64_t reals = 1 + 5 * size + 2 * size * size, integers = 3 + 5 * size;
                          std::vector<T> own(all);
                          std::vector<std::int64_t> numbers(integers);
                          if constexpr (is_complex<T>) {
                              std::vector<RealOf<T>> parts(reals);
                              return lapack(Traits<T>::letter, name, &job, &triangle, &size, a, &leading, values,
                                            own.data(), &all, parts.data(), &reals, numbers.data(), &integers, found);
                          } else
                              return lapack(Traits<T>::letter, name, &job, &triangle, &size, a, &leading, values,
                                            own.data(), &all, numbers.data(), &integers, found);
                      });
}

template <class T>
hipsolverStatus_t gesvd(hipsolverHandle_t handle, signed char of_left, signed char of_right, int m, int n, T* a,
                        int lda, RealOf<T>* values, T* left, int ldu, T* right, int ldv, T* work, int length,
                        RealOf<T>*, int* info) {
    std::vector<Extent> extents = {matrix("a", a, lda, n), matrix("values", values, 1, n), workspace(work, length)};
    if (of_left != 'N')
        extents.push_back(matrix("u", left, ldu, of_left == 'A' ? m : n));
    if (of_right != 'N')
        extents.push_back(matrix("v", right, ldv, n));
    // The library takes no wide matrices.
    return enqueue<T>(
        "gesvd", handle, {m, n, m - n + 1, lda - m + 1, ldu - m + 1, ldv - n + 1}, extents, info,
        [=](std::int64_t* found) {
            const char jobs[] = {char(of_left), char(of_right)};
            const std::int64_t sizes[] = {m, n, lda, ldu, ldv, 64 * (std::int64_t(m) + 2 * n)};
            std::vector<T> own(sizes[5]);
            if constexpr (is_complex<T>) {
                std::vector<RealOf<T>> parts(5 * n);
                return lapack(Traits<T>::letter, "gesvd", &jobs[0], &jobs[1], &sizes[0], &sizes[1], a, &sizes[2],
                              values, left, &sizes[3], right, &sizes[4], own.data(), &sizes[5], parts.data(), found);
            } else
                return lapack(Traits<T>::letter, "gesvd", &jobs[0], &jobs[1], &sizes[0], &sizes[1], a, &sizes[2],
                              values, left, &sizes[3], right, &sizes[4], own.data(), &sizes[5], found);
        });
}

} // namespace

HIP_HOST_API hipsolverStatus_t hipsolverDnCreate(hipsolverHandle_t* handle) {
    if (const int injected = injected_failure("hipsolverDnCreate", HIPSOLVER_STATUS_ALLOC_FAILED))
        return static_cast<hipsolverStatus_t>(injected);
    *handle = handles().add(new SolverHandle);
    return HIPSOLVER_STATUS_SUCCESS;
}

HIP_HOST_API hipsolverStatus_t hipsolverDnDestroy(hipsolverHandle_t handle) {
    return with_handle("hipsolverDnDestroy", handle, [&](SolverHandle&) {
        return handles().destroy(handle) ? HIPSOLVER_STATUS_SUCCESS : HIPSOLVER_STATUS_NOT_INITIALIZED;
    });
}

HIP_HOST_API hipsolverStatus_t hipsolverDnSetStream(hipsolverHandle_t handle, hipStream_t stream) {
    return with_handle("hipsolverDnSetStream", handle, [&](SolverHandle& known) {
        if (!stream_is_live(stream))
            return HIPSOLVER_STATUS_INVALID_VALUE;
        known.stream = stream;
        return HIPSOLVER_STATUS_SUCCESS;
    });
}

// The functions of one type; those of real and of complex numbers have other names.
#define SOLVER_FUNCTIONS(L, T, R, ORGQR, SYEVD)                                                                        \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##potrf_bufferSize(hipsolverHandle_t handle, hipblasFillMode_t, int,  \
                                                                    T*, int, int* size) {                              \
        return size_of_work<T>("potrf", handle, size);                                                                 \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##potrf(hipsolverHandle_t handle, hipblasFillMode_t fill, int n,      \
                                                         T* a, int lda, T* work, int length, int* info) {              \
        return potrf(handle, fill, n, a, lda, work, length, info);                                                     \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##getrf_bufferSize(hipsolverHandle_t handle, int, int, T*, int,       \
                                                                    int* size) {                                       \
        return size_of_work<T>("getrf", handle, size);                                                                 \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##getrf(hipsolverHandle_t handle, int m, int n, T* a, int lda,        \
                                                         T* work, int* pivots, int* info) {                            \
        return getrf(handle, m, n, a, lda, work, pivots, info);                                                        \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##getrs(hipsolverHandle_t handle, hipblasOperation_t operation,       \
                                                         int n, int columns, const T* a, int lda, const int* pivots,   \
                                                         T* b, int ldb, int* info) {                                   \
        return getrs(handle, operation, n, columns, a, lda, pivots, b, ldb, info);                                     \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##geqrf_bufferSize(hipsolverHandle_t handle, int, int, T*, int,       \
                                                                    int* size) {                                       \
        return size_of_work<T>("geqrf", handle, size);                                                                 \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##geqrf(hipsolverHandle_t handle, int m, int n, T* a, int lda,        \
                                                         T* factors, T* work, int length, int* info) {                 \
        return geqrf(handle, m, n, a, lda, factors, work, length, info);                                               \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##ORGQR##_bufferSize(hipsolverHandle_t handle, int, int, int,         \
                                                                      const T*, int, const T*, int* size) {            \
        return size_of_work<T>(#ORGQR, handle, size);                                                                  \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##ORGQR(hipsolverHandle_t handle, int m, int n, int k, T* a, int lda, \
                                                         const T* factors, T* work, int length, int* info) {           \
        return orgqr(handle, m, n, k, a, lda, factors, work, length, info);                                            \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##SYEVD##_bufferSize(                                                 \
        hipsolverHandle_t handle, hipsolverEigMode_t, hipblasFillMode_t, int, const T*, int, const R*, int* size) {    \
        return size_of_work<T>(#SYEVD, handle, size);                                                                  \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##SYEVD(hipsolverHandle_t handle, hipsolverEigMode_t mode,            \
                                                         hipblasFillMode_t fill, int n, T* a, int lda, R* values,      \
                                                         T* work, int length, int* info) {                             \
        return syevd(handle, mode, fill, n, a, lda, values, work, length, info);                                       \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##gesvd_bufferSize(hipsolverHandle_t handle, int, int, int* size) {   \
        return size_of_work<T>("gesvd", handle, size);                                                                 \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##gesvd(                                                              \
        hipsolverHandle_t handle, signed char of_left, signed char of_right, int m, int n, T* a, int lda, R* values,   \
        T* left, int ldu, T* right, int ldv, T* work, int length, R* rwork, int* info) {                               \
        return gesvd(handle, of_left, of_right, m, n, a, lda, values, left, ldu, right, ldv, work, length, rwork,      \
                     info);                                                                                            \
    }

SOLVER_FUNCTIONS(S, float, float, orgqr, syevd)
SOLVER_FUNCTIONS(D, double, double, orgqr, syevd)
SOLVER_FUNCTIONS(C, std::complex<float>, float, ungqr, heevd)
SOLVER_FUNCTIONS(Z, std::complex<double>, double, ungqr, heevd)
