// hipBLAS: general matrix products, in columns first order, checked as rocBLAS checks them, and decompositions of
// several matrices, by the LAPACK of NumPy.
#include "float_types.hpp"
#include "lapack.hpp"

#include <array>

using namespace hip_host;

enum hipblasStatus_t {
    HIPBLAS_STATUS_SUCCESS = 0,
    HIPBLAS_STATUS_NOT_INITIALIZED = 1,
    HIPBLAS_STATUS_ALLOC_FAILED = 2,
    HIPBLAS_STATUS_INVALID_VALUE = 3,
    HIPBLAS_STATUS_MAPPING_ERROR = 4,
    HIPBLAS_STATUS_EXECUTION_FAILED = 5,
    HIPBLAS_STATUS_INTERNAL_ERROR = 6,
    HIPBLAS_STATUS_NOT_SUPPORTED = 7,
    HIPBLAS_STATUS_ARCH_MISMATCH = 8,
    HIPBLAS_STATUS_HANDLE_IS_NULLPTR = 9,
    HIPBLAS_STATUS_INVALID_ENUM = 10,
    HIPBLAS_STATUS_UNKNOWN = 11,
};

enum hipblasOperation_t { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, HIPBLAS_OP_C = 113 };
enum hipblasPointerMode_t { HIPBLAS_POINTER_MODE_HOST = 0, HIPBLAS_POINTER_MODE_DEVICE = 1 };
enum hipblasGemmAlgo_t { HIPBLAS_GEMM_DEFAULT = 160 };

enum hipblasComputeType_t {
    HIPBLAS_COMPUTE_16F = 0,
    HIPBLAS_COMPUTE_16F_PEDANTIC = 1,
    HIPBLAS_COMPUTE_32F = 2,
    HIPBLAS_COMPUTE_32F_PEDANTIC = 3,
    HIPBLAS_COMPUTE_64F = 7,
    HIPBLAS_COMPUTE_64F_PEDANTIC = 8,
};

struct BlasHandle {
    hipStream_t stream;
    hipblasPointerMode_t pointer_mode;
};
using hipblasHandle_t = BlasHandle*;

namespace {

Registry<BlasHandle>& handles() {
    static auto& instance = *new Registry<BlasHandle>("hipblas handle");
    return instance;
}

template <class Body> hipblasStatus_t call(const char* function, hipblasStatus_t natural, Body&& body) {
    if (const int injected = injected_failure(function, natural))
        return static_cast<hipblasStatus_t>(injected);
    return body();
}

template <class Body> hipblasStatus_t with_handle(const char* function, hipblasHandle_t handle, Body&& body) {
    return call(function, HIPBLAS_STATUS_INTERNAL_ERROR,
                [&] { return handles().contains(handle) ? body(*handle) : HIPBLAS_STATUS_NOT_INITIALIZED; });
}

struct Matrix {
    const void* data;
    hipDataType type;
    int leading;      // elements from one column to the next
    long long stride; // elements from one matrix of the batch to the next
};

struct Product {
    hipblasOperation_t transpose_a, transpose_b;
    int m, n, k;
    const void* alpha;
    Matrix a, b;
    const void* beta;
    Matrix c;
    int batch;
    hipblasComputeType_t compute;
};

std::size_t size_of(hipDataType type) {
    switch (type) {
    case HIP_C_64F:
        return 16;
    case HIP_R_64F:
    case HIP_C_32F:
        return 8;
    case HIP_R_32F:
        return 4;
    default:
        return 2;
    }
}

const char* name_of(hipDataType type) {
    switch (type) {
    case HIP_R_32F:
        return "f32";
    case HIP_R_64F:
        return "f64";
    case HIP_R_16F:
        return "f16";
    case HIP_R_16BF:
        return "bf16";
    case HIP_C_32F:
        return "complex64";
    case HIP_C_64F:
        return "complex128";
    }
    return "unknown";
}

const char* name_of(hipblasOperation_t operation) {
    return operation == HIPBLAS_OP_N ? "N" : operation == HIPBLAS_OP_T ? "T" : "C";
}

bool is_operation(hipblasOperation_t operation) { return operation >= HIPBLAS_OP_N && operation <= HIPBLAS_OP_C; }

void log_product(const char* function, const Product& product, double alpha, double beta) {
    if (!log_enabled())
        return;
    LogLine line(function);
    line.text("transpose_a", name_of(product.transpose_a)).text("transpose_b", name_of(product.transpose_b));
    line.integer("m", product.m).integer("n", product.n).integer("k", product.k).integer("batch", product.batch);
    line.number("alpha", alpha).number("beta", beta).integer("compute", product.compute);
    const char* keys[3][3] = {{"a", "lda", "stride_a"}, {"b", "ldb", "stride_b"}, {"c", "ldc", "stride_c"}};
    const Matrix* matrices[3] = {&product.a, &product.b, &product.c};
    for (int index = 0; index < 3; ++index)
        line.text(keys[index][0], name_of(matrices[index]->type))
            .integer(keys[index][1], matrices[index]->leading)
            .integer(keys[index][2], matrices[index]->stride);
}

// What alpha and beta point to.
template <class Compute> Compute scalar_at(const void* address, hipblasComputeType_t compute) {
    if (compute == HIPBLAS_COMPUTE_16F || compute == HIPBLAS_COMPUTE_16F_PEDANTIC)
        return static_cast<Compute>(static_cast<float>(*static_cast<const Half*>(address)));
    return *static_cast<const Compute*>(address);
}

template <class Input, class Output, class Compute>
void multiply(const Product& product, Compute alpha, Compute beta, const Input* a, const Input* b, Output* c) {
    const auto [m, n, k] = std::array{std::size_t(product.m), std::size_t(product.n), std::size_t(product.k)};
    const std::size_t lda = std::size_t(product.a.leading), ldb = std::size_t(product.b.leading);
    const bool plain_a = product.transpose_a == HIPBLAS_OP_N, plain_b = product.transpose_b == HIPBLAS_OP_N;
    // op(A) as columns, so that the innermost loop runs along memory whatever the transposition.
    std::vector<Compute> columns(alpha == Compute(0) ? 0 : m * k), sums(m);
    for (std::size_t index = 0; index < columns.size(); ++index) {
        const std::size_t row = index % m, column = index / m;
        columns[index] = static_cast<Compute>(a[plain_a ? row + column * lda : column + row * lda]);
    }
    for (std::size_t column = 0; column < n; ++column) {
        std::fill(sums.begin(), sums.end(), Compute(0));
        for (std::size_t inner = 0; alpha != Compute(0) && inner < k; ++inner) {
            const Compute factor = static_cast<Compute>(b[plain_b ? inner + column * ldb : column + inner * ldb]);
            const Compute* source = columns.data() + inner * m;
            for (std::size_t row = 0; row < m; ++row)
                sums[row] += source[row] * factor;
        }
        Output* result = c + column * std::size_t(product.c.leading);
        for (std::size_t row = 0; row < m; ++row) {
            // With beta 0 the result is not read: it may hold anything.
            const Compute before = beta == Compute(0) ? Compute(0) : beta * static_cast<Compute>(result[row]);
            result[row] = static_cast<Output>(alpha * sums[row] + before);
        }
    }
}

bool check_operand(const char* function, const char* operand, const Matrix& matrix, int rows, int columns, int batch) {
    if (!rows || !columns)
        return true;
    const std::size_t elements = std::size_t(batch - 1) * std::size_t(matrix.stride) +
                                 std::size_t(columns - 1) * std::size_t(matrix.leading) + std::size_t(rows);
    return check_access(function, operand, matrix.data, elements * size_of(matrix.type));
}

template <class Input, class Output, class Compute>
hipblasStatus_t run(const char* function, const BlasHandle& handle, const Product& product) {
    const Compute alpha = scalar_at<Compute>(product.alpha, product.compute);
    const Compute beta = scalar_at<Compute>(product.beta, product.compute);
    log_product(function, product, std::real(alpha), std::real(beta));
    const hipError_t error = submit(handle.stream, [=] {
        const bool plain_a = product.transpose_a == HIPBLAS_OP_N, plain_b = product.transpose_b == HIPBLAS_OP_N;
        const int m = product.m, n = product.n, k = alpha == Compute(0) ? 0 : product.k;
        if (!check_operand(function, "A", product.a, plain_a ? m : k, plain_a ? k : m, product.batch) ||
            !check_operand(function, "B", product.b, plain_b ? k : n, plain_b ? n : k, product.batch) ||
            !check_operand(function, "C", product.c, m, n, product.batch))
            return sticky_error();
        for (long long index = 0; index < product.batch; ++index)
            multiply<Input, Output, Compute>(
                product, alpha, beta, static_cast<const Input*>(product.a.data) + index * product.a.stride,
                static_cast<const Input*>(product.b.data) + index * product.b.stride,
                static_cast<Output*>(const_cast<void*>(product.c.data)) + index * product.c.stride);
        return hipSuccess;
    });
    return error ? HIPBLAS_STATUS_EXECUTION_FAILED : HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t check(const Product& product) {
    const auto& [transpose_a, transpose_b, m, n, k, alpha, a, b, beta, c, batch, compute] = product;
    if (!is_operation(transpose_a) || !is_operation(transpose_b))
        return HIPBLAS_STATUS_INVALID_ENUM;
    if (m < 0 || n < 0 || k < 0 || batch < 0)
        return HIPBLAS_STATUS_INVALID_VALUE;
    if (a.leading < std::max(1, transpose_a == HIPBLAS_OP_N ? m : k) ||
        b.leading < std::max(1, transpose_b == HIPBLAS_OP_N ? k : n) || c.leading < std::max(1, m))
        return HIPBLAS_STATUS_INVALID_VALUE;
    if (batch > 1 && (a.stride < 0 || b.stride < 0 || c.stride < 0))
        return HIPBLAS_STATUS_INVALID_VALUE;
    const bool has_work = m && n && batch;
    if (has_work && (!alpha || !beta || !c.data || (k && (!a.data || !b.data))))
        return HIPBLAS_STATUS_INVALID_VALUE;
    return HIPBLAS_STATUS_SUCCESS;
}

// The combinations that rocBLAS has for these types.
hipblasStatus_t product(const char* function, hipblasHandle_t handle, const Product& product) {
    return with_handle(function, handle, [&](const BlasHandle& known) {
        const hipblasStatus_t status = check(product);
        if (status || !product.m || !product.n || !product.batch)
            return status;
        const hipDataType input = product.a.type, output = product.c.type;
        if (product.b.type != input)
            return HIPBLAS_STATUS_NOT_SUPPORTED;
        const bool in_16 = product.compute <= HIPBLAS_COMPUTE_16F_PEDANTIC;
        const bool in_32 = product.compute == HIPBLAS_COMPUTE_32F || product.compute == HIPBLAS_COMPUTE_32F_PEDANTIC;
        const bool in_64 = product.compute == HIPBLAS_COMPUTE_64F || product.compute == HIPBLAS_COMPUTE_64F_PEDANTIC;
        if (in_64 && input == HIP_R_64F && output == HIP_R_64F)
            return run<double, double, double>(function, known, product);
        if (in_32 && input == HIP_R_32F && output == HIP_R_32F)
            return run<float, float, float>(function, known, product);
        if (in_64 && input == HIP_C_64F && output == HIP_C_64F)
            return run<std::complex<double>, std::complex<double>, std::complex<double>>(function, known, product);
        if (in_32 && input == HIP_C_32F && output == HIP_C_32F)
            return run<std::complex<float>, std::complex<float>, std::complex<float>>(function, known, product);
        if ((in_32 || in_16) && input == HIP_R_16F && output == HIP_R_16F)
            return run<Half, Half, float>(function, known, product);
        if (in_32 && input == HIP_R_16F && output == HIP_R_32F)
            return run<Half, float, float>(function, known, product);
        if (in_32 && input == HIP_R_16BF && output == HIP_R_16BF)
            return run<BFloat16, BFloat16, float>(function, known, product);
        if (in_32 && input == HIP_R_16BF && output == HIP_R_32F)
            return run<BFloat16, float, float>(function, known, product);
        return HIPBLAS_STATUS_NOT_SUPPORTED;
    });
}

} // namespace

HIP_HOST_API hipblasStatus_t hipblasCreate(hipblasHandle_t* handle) {
    return call("hipblasCreate", HIPBLAS_STATUS_ALLOC_FAILED, [&] {
        if (!handle)
            return HIPBLAS_STATUS_HANDLE_IS_NULLPTR;
        *handle = handles().add(new BlasHandle{nullptr, HIPBLAS_POINTER_MODE_HOST});
        LogLine("hipblasCreate").address("handle", *handle);
        return HIPBLAS_STATUS_SUCCESS;
    });
}

HIP_HOST_API hipblasStatus_t hipblasDestroy(hipblasHandle_t handle) {
    return with_handle("hipblasDestroy", handle, [&](BlasHandle&) {
        LogLine("hipblasDestroy").address("handle", handle);
        return handles().destroy(handle) ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_NOT_INITIALIZED;
    });
}

HIP_HOST_API hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream) {
    return with_handle("hipblasSetStream", handle, [&](BlasHandle& known) {
        if (!stream_is_live(stream))
            return HIPBLAS_STATUS_INVALID_VALUE;
        LogLine("hipblasSetStream").address("handle", handle).address("stream", stream);
        known.stream = stream;
        return HIPBLAS_STATUS_SUCCESS;
    });
}

HIP_HOST_API hipblasStatus_t hipblasGetStream(hipblasHandle_t handle, hipStream_t* stream) {
    return with_handle("hipblasGetStream", handle, [&](BlasHandle& known) {
        return stream ? (*stream = known.stream, HIPBLAS_STATUS_SUCCESS) : HIPBLAS_STATUS_INVALID_VALUE;
    });
}

HIP_HOST_API hipblasStatus_t hipblasSetPointerMode(hipblasHandle_t handle, hipblasPointerMode_t mode) {
    return with_handle("hipblasSetPointerMode", handle, [&](BlasHandle& known) {
        if (mode == HIPBLAS_POINTER_MODE_DEVICE)
            return HIPBLAS_STATUS_NOT_SUPPORTED; // no caller of this runtime keeps its scalars on the device
        if (mode != HIPBLAS_POINTER_MODE_HOST)
            return HIPBLAS_STATUS_INVALID_ENUM;
        known.pointer_mode = mode;
        return HIPBLAS_STATUS_SUCCESS;
    });
}

HIP_HOST_API hipblasStatus_t hipblasGetPointerMode(hipblasHandle_t handle, hipblasPointerMode_t* mode) {
    return with_handle("hipblasGetPointerMode", handle, [&](BlasHandle& known) {
        return mode ? (*mode = known.pointer_mode, HIPBLAS_STATUS_SUCCESS) : HIPBLAS_STATUS_INVALID_VALUE;
    });
}

HIP_HOST_API const char* hipblasStatusToString(hipblasStatus_t status) {
    static const char* const names[] = {
        "HIPBLAS_STATUS_SUCCESS",           "HIPBLAS_STATUS_NOT_INITIALIZED", "HIPBLAS_STATUS_ALLOC_FAILED",
        "HIPBLAS_STATUS_INVALID_VALUE",     "HIPBLAS_STATUS_MAPPING_ERROR",   "HIPBLAS_STATUS_EXECUTION_FAILED",
        "HIPBLAS_STATUS_INTERNAL_ERROR",    "HIPBLAS_STATUS_NOT_SUPPORTED",   "HIPBLAS_STATUS_ARCH_MISMATCH",
        "HIPBLAS_STATUS_HANDLE_IS_NULLPTR", "HIPBLAS_STATUS_INVALID_ENUM",    "HIPBLAS_STATUS_UNKNOWN"};
    return status >= 0 && status < HIPBLAS_STATUS_UNKNOWN ? names[status] : names[HIPBLAS_STATUS_UNKNOWN];
}

HIP_HOST_API hipblasStatus_t hipblasGemmStridedBatchedEx(hipblasHandle_t handle, hipblasOperation_t transpose_a,
                                                         hipblasOperation_t transpose_b, int m, int n, int k,
                                                         const void* alpha, const void* a, hipDataType a_type, int lda,
                                                         long long stride_a, const void* b, hipDataType b_type, int ldb,
                                                         long long stride_b, const void* beta, void* c,
                                                         hipDataType c_type, int ldc, long long stride_c, int batch,
                                                         hipblasComputeType_t compute, hipblasGemmAlgo_t algorithm) {
    if (algorithm != HIPBLAS_GEMM_DEFAULT)
        return HIPBLAS_STATUS_INVALID_ENUM;
    return product("hipblasGemmStridedBatchedEx", handle,
                   {transpose_a,
                    transpose_b,
                    m,
                    n,
                    k,
                    alpha,
                    {a, a_type, lda, stride_a},
                    {b, b_type, ldb, stride_b},
                    beta,
                    {c, c_type, ldc, stride_c},
                    batch,
                    compute});
}

HIP_HOST_API hipblasStatus_t hipblasGemmEx(hipblasHandle_t handle, hipblasOperation_t transpose_a,
                                           hipblasOperation_t transpose_b, int m, int n, int k, const void* alpha,
                                           const void* a, hipDataType a_type, int lda, const void* b,
                                           hipDataType b_type, int ldb, const void* beta, void* c, hipDataType c_type,
                                           int ldc, hipblasComputeType_t compute, hipblasGemmAlgo_t algorithm) {
    if (algorithm != HIPBLAS_GEMM_DEFAULT)
        return HIPBLAS_STATUS_INVALID_ENUM;
    return product("hipblasGemmEx", handle,
                   {transpose_a,
                    transpose_b,
                    m,
                    n,
                    k,
                    alpha,
                    {a, a_type, lda, 0},
                    {b, b_type, ldb, 0},
                    beta,
                    {c, c_type, ldc, 0},
                    1,
                    compute});
}

// The functions of one type: hipblasSgemm, hipblasSgemmStridedBatched and so on.
#define HIP_HOST_GEMM(letter, Type, type, compute)                                                                     \
    HIP_HOST_API hipblasStatus_t hipblas##letter##gemm(                                                                \
        hipblasHandle_t handle, hipblasOperation_t transpose_a, hipblasOperation_t transpose_b, int m, int n, int k,   \
        const Type* alpha, const Type* a, int lda, const Type* b, int ldb, const Type* beta, Type* c, int ldc) {       \
        return product("hipblas" #letter "gemm", handle,                                                               \
                       {transpose_a,                                                                                   \
                        transpose_b,                                                                                   \
                        m,                                                                                             \
                        n,                                                                                             \
                        k,                                                                                             \
                        alpha,                                                                                         \
                        {a, type, lda, 0},                                                                             \
                        {b, type, ldb, 0},                                                                             \
                        beta,                                                                                          \
                        {c, type, ldc, 0},                                                                             \
                        1,                                                                                             \
                        compute});                                                                                     \
    }                                                                                                                  \
    HIP_HOST_API hipblasStatus_t hipblas##letter##gemmStridedBatched(                                                  \
        hipblasHandle_t handle, hipblasOperation_t transpose_a, hipblasOperation_t transpose_b, int m, int n, int k,   \
        const Type* alpha, const Type* a, int lda, long long stride_a, const Type* b, int ldb, long long stride_b,     \
        const Type* beta, Type* c, int ldc, long long stride_c, int batch) {                                           \
        return product("hipblas" #letter "gemmStridedBatched", handle,                                                 \
                       {transpose_a,                                                                                   \
                        transpose_b,                                                                                   \
                        m,                                                                                             \
                        n,                                                                                             \
                        k,                                                                                             \
                        alpha,                                                                                         \
                        {a, type, lda, stride_a},                                                                      \
                        {b, type, ldb, stride_b},                                                                      \
                        beta,                                                                                          \
                        {c, type, ldc, stride_c},                                                                      \
                        batch,                                                                                         \
                        compute});                                                                                     \
    }

HIP_HOST_GEMM(H, Half, HIP_R_16F, HIPBLAS_COMPUTE_16F)
HIP_HOST_GEMM(S, float, HIP_R_32F, HIPBLAS_COMPUTE_32F)
HIP_HOST_GEMM(D, double, HIP_R_64F, HIPBLAS_COMPUTE_64F)

namespace {

// Enqueues work on each of `count` matrices, whose number it takes, with LAPACK's info.
template <class T, class Work>
hipblasStatus_t each(const char* function, hipblasHandle_t handle, std::vector<std::int64_t> sizes,
                     std::vector<Extent> extents, int* infos, int* host_info, int count, Work work) {
    const std::string name = std::string("hipblas") + Traits<T>::letter + function;
    return with_handle(name.c_str(), handle, [&](BlasHandle& known) {
        for (const std::int64_t size : sizes)
            if (size < 1)
                return HIPBLAS_STATUS_INVALID_VALUE;
        LogLine line(name.c_str());
        for (std::size_t place = 0; place < sizes.size(); ++place)
            line.integer(("size" + std::to_string(place)).c_str(), sizes[place]);
        if (host_info)
            *host_info = 0;
        else
            extents.push_back({"info", infos, count * std::int64_t(sizeof(int))});
        const hipError_t error = submit(known.stream, [=] {
            for (const Extent& extent : extents)
                if (!check_access(name.c_str(), extent.operand, extent.address, std::size_t(extent.bytes)))
                    return sticky_error();
            for (std::int64_t number = 0; number < count; ++number) {
                std::int64_t found = 0;
                if (!work(number, &found))
                    return sticky_error() ? sticky_error() : hipErrorNotSupported;
                if (!host_info)
                    infos[number] = int(found);
            }
            return hipSuccess;
        });
        return error ? HIPBLAS_STATUS_EXECUTION_FAILED : HIPBLAS_STATUS_SUCCESS;
    });
}

template <class T> constexpr std::int64_t item = sizeof(T);

template <class T>
hipblasStatus_t getrf_batched(hipblasHandle_t handle, int n, T* const* a, int lda, int* pivots, int* info, int count) {
    return each<T>("getrfBatched", handle, {n, lda - n + 1, count}, {matrix("pivots", pivots, n, count)}, info, nullptr,
                   count, [=](std::int64_t number, std::int64_t* found) {
                       T* const place = placed("getrfBatched", a, number, item<T> * lda * n);
                       return place && getrf(n, n, place, lda, pivots + number * n, found);
                   });
}

template <class T>
hipblasStatus_t getrs_batched(hipblasHandle_t handle, hipblasOperation_t operation, int n, int columns, T* const* a,
                              int lda, const int* pivots, T* const* b, int ldb, int* info, int count) {
    return each<T>(
        "getrsBatched", handle, {n, columns, lda - n + 1, ldb - n + 1, count}, {matrix("pivots", pivots, n, count)},
        nullptr, info, count, [=](std::int64_t number, std::int64_t* found) {
            T* const place = placed("getrsBatched", a, number, item<T> * lda * n);
            T* const values = placed("getrsBatched", b, number, item<T> * ldb * columns);
            const char which = "NTC"[operation - HIPBLAS_OP_N];
            return place && values && getrs(which, n, columns, place, lda, pivots + number * n, values, ldb, found);
        });
}

template <class T>
hipblasStatus_t geqrf_batched(hipblasHandle_t handle, int m, int n, T* const* a, int lda, T* const* factors, int* info,
                              int count) {
    return each<T>("geqrfBatched", handle, {m, n, lda - m + 1, count}, {}, nullptr, info, count,
                   [=](std::int64_t number, std::int64_t* found) {
                       T* const place = placed("geqrfBatched", a, number, item<T> * lda * n);
                       T* const factor = placed("geqrfBatched", factors, number, item<T> * std::min(m, n));
                       return place && factor && geqrf(m, n, place, lda, factor, found);
                   });
}

} // namespace

#define HIP_HOST_BATCHED(L, T)                                                                                         \
    HIP_HOST_API hipblasStatus_t hipblas##L##getrfBatched(hipblasHandle_t handle, int n, T* const* a, int lda,         \
                                                          int* pivots, int* info, int count) {                         \
        return getrf_batched<T>(handle, n, a, lda, pivots, info, count);                                               \
    }                                                                                                                  \
    HIP_HOST_API hipblasStatus_t hipblas##L##getrsBatched(hipblasHandle_t handle, hipblasOperation_t operation, int n, \
                                                          int columns, T* const* a, int lda, const int* pivots,        \
                                                          T* const* b, int ldb, int* info, int count) {                \
        return getrs_batched<T>(handle, operation, n, columns, a, lda, pivots, b, ldb, info, count);                   \
    }                                                                                                                  \
    HIP_HOST_API hipblasStatus_t hipblas##L##geqrfBatched(hipblasHandle_t handle, int m, int n, T* const* a, int lda,  \
                                                          T* const* factors, int* info, int count) {                   \
        return geqrf_batched<T>(handle, m, n, a, lda, factors, info, count);                                           \
    }

HIP_HOST_BATCHED(S, float)
HIP_HOST_BATCHED(D, double)
HIP_HOST_BATCHED(C, std::complex<float>)
HIP_HOST_BATCHED(Z, std::complex<double>)
