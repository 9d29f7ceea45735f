// hipSOLVER: decompositions, checked as it checks them, by the LAPACK of NumPy.
#include "lapack.hpp"

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
struct SolverParams {};
using hipsolverDnParams_t = SolverParams*;
struct GesvdjInfo {};
using hipsolverGesvdjInfo_t = GesvdjInfo*;

namespace {

// So much that a caller that gives too little is found.
constexpr int workspace_bytes = 4096;

Registry<SolverHandle>& handles() {
    static auto& instance = *new Registry<SolverHandle>("hipsolver handle");
    return instance;
}

Registry<SolverParams>& params() {
    static auto& instance = *new Registry<SolverParams>("hipsolver params");
    return instance;
}

Registry<GesvdjInfo>& gesvdj_infos() {
    static auto& instance = *new Registry<GesvdjInfo>("hipsolver gesvdj info");
    return instance;
}

template <class Object> hipsolverStatus_t create(const char* function, Registry<Object>& objects, Object** created) {
    if (const int injected = injected_failure(function, HIPSOLVER_STATUS_ALLOC_FAILED))
        return static_cast<hipsolverStatus_t>(injected);
    *created = objects.add(new Object);
    return HIPSOLVER_STATUS_SUCCESS;
}

template <class Object> hipsolverStatus_t destroy(Registry<Object>& objects, Object* object) {
    return objects.destroy(object) ? HIPSOLVER_STATUS_SUCCESS : HIPSOLVER_STATUS_INVALID_VALUE;
}

template <class Body>
hipsolverStatus_t with_handle(const std::string& function, hipsolverHandle_t handle, Body&& body) {
    if (const int injected = injected_failure(function.c_str(), HIPSOLVER_STATUS_INTERNAL_ERROR))
        return static_cast<hipsolverStatus_t>(injected);
    return handles().contains(handle) ? body(*handle) : HIPSOLVER_STATUS_NOT_INITIALIZED;
}

// ---- One call

template <class T> std::string named(const char* function) {
    return std::string("hipsolverDn") + Traits<T>::letter + function;
}

// Enqueues what `work` does with LAPACK's info, which it gives to the device: `work` may take the number of a matrix,
// of which there are `count`. `sizes` are above 0.
template <class T, class Work>
hipsolverStatus_t enqueue(const char* function, hipsolverHandle_t handle, std::vector<std::int64_t> sizes,
                          std::vector<Extent> extents, int* info, Work work, std::int64_t count = 1) {
    const std::string name = named<T>(function);
    return with_handle(name, handle, [&](SolverHandle& known) {
        for (const std::int64_t size : sizes)
            if (size < 1)
                return HIPSOLVER_STATUS_INVALID_VALUE;
        LogLine line(name.c_str());
        for (std::size_t place = 0; place < sizes.size(); ++place)
            line.integer(("size" + std::to_string(place)).c_str(), sizes[place]);
        extents.push_back({"info", info, count * std::int64_t(sizeof(int))});
        const hipError_t error = submit(known.stream, [=] {
            for (const Extent& extent : extents)
                if (!check_access(name.c_str(), extent.operand, extent.address, std::size_t(extent.bytes)))
                    return sticky_error();
            for (const Extent& extent : extents)
                if (!std::strcmp(extent.operand, "workspace"))
                    std::memset(const_cast<void*>(extent.address), 0xCB, workspace_bytes);
            for (std::int64_t number = 0; number < count; ++number) {
                std::int64_t found = 0;
                bool is_done;
                if constexpr (std::is_invocable_v<Work, std::int64_t*, std::int64_t>)
                    is_done = work(&found, number);
                else
                    is_done = work(&found);
                if (!is_done)
                    return sticky_error() ? sticky_error() : hipErrorNotSupported;
                info[number] = int(found);
            }
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

Extent workspace(const void* address, int bytes = workspace_bytes) {
    return {"workspace", address, bytes < workspace_bytes ? std::int64_t(1) << 62 : workspace_bytes};
}

template <class T> bool factored(hipblasFillMode_t fill, int n, T* a, int lda, std::int64_t* found) {
    const char triangle = fill == HIPBLAS_FILL_MODE_UPPER ? 'U' : 'L';
    const std::int64_t size = n, leading = lda;
    return lapack(Traits<T>::letter, "potrf", &triangle, &size, a, &leading, found);
}

template <class T>
hipsolverStatus_t potrf(hipsolverHandle_t handle, hipblasFillMode_t fill, int n, T* a, int lda, T* work, int length,
                        int* info) {
    return enqueue<T>("potrf", handle, {n, lda - n + 1}, {matrix("a", a, lda, n), workspace(work, length)}, info,
                      [=](std::int64_t* found) { return factored(fill, n, a, lda, found); });
}

template <class T>
hipsolverStatus_t potrf_batched(hipsolverHandle_t handle, hipblasFillMode_t fill, int n, T* const* a, int lda,
                                int* info, int count) {
    return enqueue<T>(
        "potrfBatched", handle, {n, lda - n + 1, count}, {}, info,
        [=](std::int64_t* found, std::int64_t number) {
            T* const place = placed("potrfBatched", a, number, matrix("a", static_cast<T*>(nullptr), lda, n).bytes);
            return place && factored(fill, n, place, lda, found);
        },
        count);
}

template <class T>
hipsolverStatus_t getrf(hipsolverHandle_t handle, int m, int n, T* a, int lda, T* work, int* pivots, int* info) {
    return enqueue<T>("getrf", handle, {m, n, lda - m + 1},
                      {matrix("a", a, lda, n), workspace(work), matrix("pivots", pivots, 1, m < n ? m : n)}, info,
                      [=](std::int64_t* found) { return hip_host::getrf(m, n, a, lda, pivots, found); });
}

template <class T>
hipsolverStatus_t getrs(hipsolverHandle_t handle, hipblasOperation_t operation, int n, int columns, const T* a, int lda,
                        const int* pivots, T* b, int ldb, int* info) {
    return enqueue<T>("getrs", handle, {n, columns, lda - n + 1, ldb - n + 1},
                      {matrix("a", a, lda, n), matrix("pivots", pivots, 1, n), matrix("b", b, ldb, columns)}, info,
                      [=](std::int64_t* found) {
                          const char which = "NTC"[operation - HIPBLAS_OP_N];
                          return hip_host::getrs(which, n, columns, a, lda, pivots, b, ldb, found);
                      });
}

template <class T>
hipsolverStatus_t geqrf(hipsolverHandle_t handle, int m, int n, T* a, int lda, T* factors, T* work, int length,
                        int* info) {
    return enqueue<T>("geqrf", handle, {m, n, lda - m + 1},
                      {matrix("a", a, lda, n), matrix("tau", factors, 1, m < n ? m : n), workspace(work, length)}, info,
                      [=](std::int64_t* found) { return hip_host::geqrf(m, n, a, lda, factors, found); });
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

template <class T> constexpr const char* syevd_name = is_complex<T> ? "heevd" : "syevd";

template <class T>
bool eigenvalues(hipsolverEigMode_t mode, hipblasFillMode_t fill, std::int64_t size, T* a, std::int64_t leading,
                 RealOf<T>* values, std::int64_t* found) {
    const char job = mode == HIPSOLVER_EIG_MODE_VECTOR ? 'V' : 'N';
    const char triangle = fill == HIPBLAS_FILL_MODE_UPPER ? 'U' : 'L';
    const std::int64_t all = 1 + 6 * size + 2 * size * size;
    const std::int64_t reals = 1 + 5 * size + 2 * size * size, integers = 3 + 5 * size;
    std::vector<T> own(all);
    std::vector<std::int64_t> numbers(integers);
    if constexpr (is_complex<T>) {
        std::vector<RealOf<T>> parts(reals);
        return lapack(Traits<T>::letter, syevd_name<T>, &job, &triangle, &size, a, &leading, values, own.data(), &all,
                      parts.data(), &reals, numbers.data(), &integers, found);
    } else
        return lapack(Traits<T>::letter, syevd_name<T>, &job, &triangle, &size, a, &leading, values, own.data(), &all,
                      numbers.data(), &integers, found);
}

template <class T>
hipsolverStatus_t syevd(hipsolverHandle_t handle, hipsolverEigMode_t mode, hipblasFillMode_t fill, int n, T* a, int lda,
                        RealOf<T>* values, T* work, int length, int* info) {
    return enqueue<T>(syevd_name<T>, handle, {n, lda - n + 1},
                      {matrix("a", a, lda, n), matrix("values", values, 1, n), workspace(work, length)}, info,
                      [=](std::int64_t* found) { return eigenvalues(mode, fill, n, a, lda, values, found); });
}

template <class T>
hipsolverStatus_t syev_batched(hipsolverHandle_t handle, hipsolverEigMode_t mode, hipblasFillMode_t fill,
                               std::int64_t n, void* matrices, std::int64_t lda, void* all_values, void* work,
                               std::size_t length, int* info, std::int64_t count) {
    T* const a = static_cast<T*>(matrices);
    RealOf<T>* const values = static_cast<RealOf<T>*>(all_values);
    return enqueue<T>(
        "XsyevBatched", handle, {n, lda - n + 1, count},
        {matrix("a", a, lda, n * count), matrix("values", values, 1, n * count), workspace(work, int(length))}, info,
        [=](std::int64_t* found, std::int64_t number) {
            return eigenvalues(mode, fill, n, a + number * lda * n, lda, values + number * n, found);
        },
        count);
}

template <class T> struct Svd {
    hipsolverEigMode_t mode;
    bool is_economic;
    int m, n;
    T* a;
    int lda;
    RealOf<T>* values;
    T* left;
    int ldu;
    T* right;
    int ldv;

    std::int64_t left_columns() const { return is_economic ? n : m; }
};

// Right vectors are columns, those of LAPACK conjugate rows.
template <class T> bool singular_values(const Svd<T>& svd, std::int64_t* found) {
    const char job = svd.mode == HIPSOLVER_EIG_MODE_NOVECTOR ? 'N' : svd.is_economic ? 'S' : 'A';
    const std::int64_t m = svd.m, n = svd.n, leading[] = {svd.lda, svd.ldu, n}, all = 64 * (m + 2 * n);
    std::vector<T> own(all), rows(n * n);
    bool is_done;
    if constexpr (is_complex<T>) {
        std::vector<RealOf<T>> parts(5 * n);
        is_done = lapack(Traits<T>::letter, "gesvd", &job, &job, &m, &n, svd.a, &leading[0], svd.values, svd.left,
                         &leading[1], rows.data(), &leading[2], own.data(), &all, parts.data(), found);
    } else
        is_done = lapack(Traits<T>::letter, "gesvd", &job, &job, &m, &n, svd.a, &leading[0], svd.values, svd.left,
                         &leading[1], rows.data(), &leading[2], own.data(), &all, found);
    for (std::int64_t i = 0; job != 'N' && i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            T& element = svd.right[i * svd.ldv + j];
            element = rows[j * n + i];
            if constexpr (is_complex<T>)
                element = std::conj(element);
        }
    return is_done;
}

template <class T>
hipsolverStatus_t gesvdj(const char* name, hipsolverHandle_t handle, const Svd<T>& svd, T* work, int length, int* info,
                         hipsolverGesvdjInfo_t settings, int count) {
    if (!gesvdj_infos().contains(settings))
        return HIPSOLVER_STATUS_INVALID_VALUE;
    const std::int64_t m = svd.m, n = svd.n, of_left = svd.ldu * svd.left_columns();
    // Vectors are written to even where they are not asked for.
    return enqueue<T>(
        name, handle, {m, n, m - n + 1, svd.lda - m + 1, svd.ldu - m + 1, svd.ldv - n + 1, count},
        {matrix("a", svd.a, svd.lda, n * count), matrix("values", svd.values, 1, n * count), workspace(work, length),
         matrix("u", svd.left, of_left, count), matrix("v", svd.right, svd.ldv, n * count)},
        info,
        [=](std::int64_t* found, std::int64_t number) {
            Svd<T> one = svd;
            one.a += number * svd.lda * n;
            one.values += number * n;
            one.left += number * of_left;
            one.right += number * svd.ldv * n;
            return singular_values(one, found);
        },
        count);
}

} // namespace

HIP_HOST_API hipsolverStatus_t hipsolverDnCreate(hipsolverHandle_t* handle) {
    return create("hipsolverDnCreate", handles(), handle);
}

HIP_HOST_API hipsolverStatus_t hipsolverDnDestroy(hipsolverHandle_t handle) {
    return with_handle("hipsolverDnDestroy", handle, [&](SolverHandle&) { return destroy(handles(), handle); });
}

HIP_HOST_API hipsolverStatus_t hipsolverDnCreateParams(hipsolverDnParams_t* created) {
    return create("hipsolverDnCreateParams", params(), created);
}

HIP_HOST_API hipsolverStatus_t hipsolverDnDestroyParams(hipsolverDnParams_t object) {
    return destroy(params(), object);
}

HIP_HOST_API hipsolverStatus_t hipsolverDnCreateGesvdjInfo(hipsolverGesvdjInfo_t* created) {
    return create("hipsolverDnCreateGesvdjInfo", gesvdj_infos(), created);
}

HIP_HOST_API hipsolverStatus_t hipsolverDnDestroyGesvdjInfo(hipsolverGesvdjInfo_t object) {
    return destroy(gesvdj_infos(), object);
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
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##potrfBatched(hipsolverHandle_t handle, hipblasFillMode_t fill,      \
                                                                int n, T** a, int lda, int* info, int count) {         \
        return potrf_batched<T>(handle, fill, n, a, lda, info, count);                                                 \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##gesvdj_bufferSize(                                                  \
        hipsolverHandle_t handle, hipsolverEigMode_t, int, int, int, const T*, int, const R*, const T*, int, const T*, \
        int, int* size, hipsolverGesvdjInfo_t) {                                                                       \
        return size_of_work<T>("gesvdj", handle, size);                                                                \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##gesvdj(                                                             \
        hipsolverHandle_t handle, hipsolverEigMode_t mode, int is_economic, int m, int n, T* a, int lda, R* values,    \
        T* left, int ldu, T* right, int ldv, T* work, int length, int* info, hipsolverGesvdjInfo_t settings) {         \
        return gesvdj<T>("gesvdj", handle, {mode, is_economic != 0, m, n, a, lda, values, left, ldu, right, ldv},      \
                         work, length, info, settings, 1);                                                             \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##gesvdjBatched_bufferSize(                                           \
        hipsolverHandle_t handle, hipsolverEigMode_t, int, int, const T*, int, const R*, const T*, int, const T*, int, \
        int* size, hipsolverGesvdjInfo_t, int) {                                                                       \
        return size_of_work<T>("gesvdjBatched", handle, size);                                                         \
    }                                                                                                                  \
    HIP_HOST_API hipsolverStatus_t hipsolverDn##L##gesvdjBatched(                                                      \
        hipsolverHandle_t handle, hipsolverEigMode_t mode, int m, int n, T* a, int lda, R* values, T* left, int ldu,   \
        T* right, int ldv, T* work, int length, int* info, hipsolverGesvdjInfo_t settings, int count) {                \
        return gesvdj<T>("gesvdjBatched", handle, {mode, false, m, n, a, lda, values, left, ldu, right, ldv}, work,    \
                         length, info, settings, count);                                                               \
    }

SOLVER_FUNCTIONS(S, float, float, orgqr, syevd)
SOLVER_FUNCTIONS(D, double, double, orgqr, syevd)
SOLVER_FUNCTIONS(C, std::complex<float>, float, ungqr, heevd)
SOLVER_FUNCTIONS(Z, std::complex<double>, double, ungqr, heevd)

HIP_HOST_API hipsolverStatus_t hipsolverDnXsyevBatched_bufferSize(hipsolverHandle_t handle, hipsolverDnParams_t,
                                                                  hipsolverEigMode_t, hipblasFillMode_t, std::int64_t,
                                                                  hipDataType, const void*, std::int64_t, hipDataType,
                                                                  const void*, hipDataType, std::size_t* on_device,
                                                                  std::size_t* on_host, std::int64_t) {
    return with_handle("hipsolverDnXsyevBatched_bufferSize", handle, [&](SolverHandle&) {
        *on_device = workspace_bytes;
        *on_host = 16;
        return HIPSOLVER_STATUS_SUCCESS;
    });
}

HIP_HOST_API hipsolverStatus_t hipsolverDnXsyevBatched(hipsolverHandle_t handle, hipsolverDnParams_t settings,
                                                       hipsolverEigMode_t mode, hipblasFillMode_t fill, std::int64_t n,
                                                       hipDataType type, void* a, std::int64_t lda,
                                                       hipDataType value_type, void* values, hipDataType computed,
                                                       void* work, std::size_t length, void* on_host,
                                                       std::size_t host_length, int* info, std::int64_t count) {
    const bool is_double = type == HIP_R_64F || type == HIP_C_64F;
    if (!params().contains(settings) || computed != type || value_type != (is_double ? HIP_R_64F : HIP_R_32F) ||
        host_length < 16)
        return HIPSOLVER_STATUS_INVALID_VALUE;
    std::memset(on_host, 0xCB, 16);
    switch (type) {
    case HIP_R_32F:
        return syev_batched<float>(handle, mode, fill, n, a, lda, values, work, length, info, count);
    case HIP_R_64F:
        return syev_batched<double>(handle, mode, fill, n, a, lda, values, work, length, info, count);
    case HIP_C_32F:
        return syev_batched<std::complex<float>>(handle, mode, fill, n, a, lda, values, work, length, info, count);
    case HIP_C_64F:
        return syev_batched<std::complex<double>>(handle, mode, fill, n, a, lda, values, work, length, info, count);
    default:
        return HIPSOLVER_STATUS_INVALID_VALUE;
    }
}
