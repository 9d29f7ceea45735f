// hipFFT: discrete Fourier transforms of contiguous lines, by their definition.
#include "hip_host.hpp"

#include <cmath>
#include <complex>
#include <cstring>
#include <vector>

using namespace hip_host;

enum hipfftResult {
    HIPFFT_SUCCESS = 0,
    HIPFFT_INVALID_PLAN = 1,
    HIPFFT_ALLOC_FAILED = 2,
    HIPFFT_INVALID_VALUE = 4,
    HIPFFT_INTERNAL_ERROR = 5,
    HIPFFT_EXEC_FAILED = 6,
    HIPFFT_INVALID_SIZE = 8,
    HIPFFT_NOT_IMPLEMENTED = 14,
};

enum hipfftType {
    HIPFFT_R2C = 0x2a,
    HIPFFT_C2R = 0x2c,
    HIPFFT_C2C = 0x29,
    HIPFFT_D2Z = 0x6a,
    HIPFFT_Z2D = 0x6c,
    HIPFFT_Z2Z = 0x69,
};

struct FftPlan {
    hipStream_t stream = nullptr;
    hipfftType type = HIPFFT_C2C;
    long long count = 0; // points of a line; 0 until the plan is made
    long long lines = 0;
    void* workspace = nullptr;
};
using hipfftHandle = FftPlan*;

namespace {

// So much that a caller that gives too little is found.
constexpr std::size_t workspace_bytes = 4096;

Registry<FftPlan>& plans() {
    static auto& instance = *new Registry<FftPlan>("hipfft plan");
    return instance;
}

template <class Body> hipfftResult call(const char* function, hipfftResult natural, Body&& body) {
    if (const int injected = injected_failure(function, natural))
        return static_cast<hipfftResult>(injected);
    return body();
}

template <class Body> hipfftResult with_plan(const char* function, hipfftHandle plan, Body&& body) {
    return call(function, HIPFFT_INTERNAL_ERROR,
                [&] { return plans().contains(plan) ? body(*plan) : HIPFFT_INVALID_PLAN; });
}

// Element k of a line is the sum of x[j] exp(direction 2 pi i j k / n), in double.
using Line = std::vector<std::complex<double>>;

Line transformed(const Line& line, int direction) {
    const std::size_t count = line.size();
    Line roots(count), result(count);
    for (std::size_t place = 0; place < count; ++place)
        roots[place] = std::polar(1.0, direction * 2 * M_PI * double(place) / double(count));
    for (std::size_t place = 0; place < count; ++place) {
        // By parts, as a product of infinite numbers is more than its parts.
        double real = 0, imaginary = 0;
        for (std::size_t point = 0; point < count; ++point) {
            const std::complex<double> root = roots[place * point % count];
            real += line[point].real() * root.real() - line[point].imag() * root.imag();
            imaginary += line[point].real() * root.imag() + line[point].imag() * root.real();
        }
        result[place] = {real, imaginary};
    }
    return result;
}

template <class Real> void read(const std::complex<Real>* from, Line& line) { line.assign(from, from + line.size()); }
template <class Real> void read(const Real* from, Line& line) { line.assign(from, from + line.size()); }

template <class Real> void write(const Line& line, std::complex<Real>* to, std::size_t count) {
    for (std::size_t place = 0; place < count; ++place)
        to[place] = std::complex<Real>(Real(line[place].real()), Real(line[place].imag()));
}

template <class Real> void write(const Line& line, Real* to, std::size_t count) {
    for (std::size_t place = 0; place < count; ++place)
        to[place] = Real(line[place].real());
}

// The elements that a line has of numbers of a type: half of a transform of real numbers.
std::size_t length_of(const FftPlan& plan, bool other_is_real) {
    return std::size_t(other_is_real ? plan.count / 2 + 1 : plan.count);
}

template <class Source, class Target>
hipfftResult execute(const char* function, hipfftHandle handle, hipfftType type, Source* source, Target* target,
                     int direction) {
    return with_plan(function, handle, [&](FftPlan& plan) {
        if (plan.type != type || !plan.count)
            return HIPFFT_INVALID_PLAN;
        if (!source || !target || (direction != 1 && direction != -1))
            return HIPFFT_INVALID_VALUE;
        const bool from_real = type == HIPFFT_R2C || type == HIPFFT_D2Z,
                   to_real = type == HIPFFT_C2R || type == HIPFFT_Z2D;
        const std::size_t given = length_of(plan, to_real), made = length_of(plan, from_real);
        LogLine(function).integer("count", plan.count).integer("lines", plan.lines).integer("direction", direction);
        const FftPlan fixed = plan;
        const hipError_t error = submit(plan.stream, [=] {
            const std::size_t lines = std::size_t(fixed.lines), count = std::size_t(fixed.count);
            if (!check_access(function, "workspace", fixed.workspace, workspace_bytes) ||
                !check_access(function, "input", source, lines * given * sizeof(Source)) ||
                !check_access(function, "output", target, lines * made * sizeof(Target)))
                return sticky_error();
            std::memset(fixed.workspace, 0xCB, workspace_bytes);
            for (std::size_t number = 0; number < lines; ++number) {
                Line line(given);
                read(source + number * given, line);
                if (to_real) {
                    // The other half are the conjugates; what real numbers lack does not count.
                    line.resize(count);
                    line[0] = line[0].real();
                    if (count % 2 == 0)
                        line[count / 2] = line[count / 2].real();
                    for (std::size_t place = given; place < count; ++place)
                        line[place] = std::conj(line[count - place]);
                }
                write(transformed(line, direction), target + number * made, made);
                // As rocFFT may.
                if (to_real)
                    source[number * given] = Source(0);
            }
            return hipSuccess;
        });
        return error ? HIPFFT_EXEC_FAILED : HIPFFT_SUCCESS;
    });
}

} // namespace

HIP_HOST_API hipfftResult hipfftCreate(hipfftHandle* plan) {
    return call("hipfftCreate", HIPFFT_ALLOC_FAILED, [&] {
        if (!plan)
            return HIPFFT_INVALID_VALUE;
        *plan = plans().add(new FftPlan);
        LogLine("hipfftCreate").address("plan", *plan);
        return HIPFFT_SUCCESS;
    });
}

HIP_HOST_API hipfftResult hipfftDestroy(hipfftHandle plan) {
    return with_plan("hipfftDestroy", plan, [&](FftPlan&) {
        LogLine("hipfftDestroy").address("plan", plan);
        return plans().destroy(plan) ? HIPFFT_SUCCESS : HIPFFT_INVALID_PLAN;
    });
}

HIP_HOST_API hipfftResult hipfftSetStream(hipfftHandle plan, hipStream_t stream) {
    return with_plan("hipfftSetStream", plan, [&](FftPlan& known) {
        if (!stream_is_live(stream))
            return HIPFFT_INVALID_VALUE;
        known.stream = stream;
        return HIPFFT_SUCCESS;
    });
}

HIP_HOST_API hipfftResult hipfftSetAutoAllocation(hipfftHandle plan, int allocates) {
    // No caller of this runtime leaves the workspace to the library.
    return with_plan("hipfftSetAutoAllocation", plan,
                     [&](FftPlan&) { return allocates ? HIPFFT_NOT_IMPLEMENTED : HIPFFT_SUCCESS; });
}

HIP_HOST_API hipfftResult hipfftSetWorkArea(hipfftHandle plan, void* workspace) {
    return with_plan("hipfftSetWorkArea", plan, [&](FftPlan& known) {
        known.workspace = workspace;
        return HIPFFT_SUCCESS;
    });
}

HIP_HOST_API hipfftResult hipfftMakePlanMany64(hipfftHandle plan, int rank, long long* sizes, long long* given_sizes,
                                               long long, long long, long long* made_sizes, long long, long long,
                                               hipfftType type, long long lines, std::size_t* bytes) {
    return with_plan("hipfftMakePlanMany64", plan, [&](FftPlan& known) {
        if (rank != 1 || given_sizes || made_sizes)
            return HIPFFT_NOT_IMPLEMENTED;
        if (!sizes || !bytes)
            return HIPFFT_INVALID_VALUE;
        if (sizes[0] < 1 || lines < 1)
            return HIPFFT_INVALID_SIZE;
        known.type = type, known.count = sizes[0], known.lines = lines;
        *bytes = workspace_bytes;
        LogLine("hipfftMakePlanMany64").integer("count", known.count).integer("lines", lines).integer("type", type);
        return HIPFFT_SUCCESS;
    });
}

HIP_HOST_API hipfftResult hipfftExecC2C(hipfftHandle plan, std::complex<float>* source, std::complex<float>* target,
                                        int direction) {
    return execute("hipfftExecC2C", plan, HIPFFT_C2C, source, target, direction);
}

HIP_HOST_API hipfftResult hipfftExecZ2Z(hipfftHandle plan, std::complex<double>* source, std::complex<double>* target,
                                        int direction) {
    return execute("hipfftExecZ2Z", plan, HIPFFT_Z2Z, source, target, direction);
}

HIP_HOST_API hipfftResult hipfftExecR2C(hipfftHandle plan, float* source, std::complex<float>* target) {
    return execute("hipfftExecR2C", plan, HIPFFT_R2C, source, target, -1);
}

HIP_HOST_API hipfftResult hipfftExecD2Z(hipfftHandle plan, double* source, std::complex<double>* target) {
    return execute("hipfftExecD2Z", plan, HIPFFT_D2Z, source, target, -1);
}

HIP_HOST_API hipfftResult hipfftExecC2R(hipfftHandle plan, std::complex<float>* source, float* target) {
    return execute("hipfftExecC2R", plan, HIPFFT_C2R, source, target, 1);
}

HIP_HOST_API hipfftResult hipfftExecZ2D(hipfftHandle plan, std::complex<double>* source, double* target) {
    return execute("hipfftExecZ2D", plan, HIPFFT_Z2D, source, target, 1);
}
