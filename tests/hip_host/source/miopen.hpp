// MIOpen's numbers and handles, as its callers pass them, and what its functions share.
#pragma once

#include "hip_host.hpp"

#include <set>
#include <string>
#include <vector>

enum miopenStatus_t {
    miopenStatusSuccess = 0,
    miopenStatusNotInitialized = 1,
    miopenStatusInvalidValue = 2,
    miopenStatusBadParm = 3,
    miopenStatusAllocFailed = 4,
    miopenStatusInternalError = 5,
    miopenStatusNotImplemented = 6,
    miopenStatusUnknownError = 7,
    miopenStatusUnsupportedOp = 8,
    miopenStatusGpuOperationsSkipped = 9,
    miopenStatusVersionMismatch = 10,
};

enum miopenDataType_t { miopenHalf = 0, miopenFloat = 1, miopenBFloat16 = 5 };
enum miopenConvolutionMode_t { miopenConvolution = 0, miopenTranspose = 1 };
enum miopenPoolingMode_t { miopenPoolingMax = 0, miopenPoolingAverage = 1, miopenPoolingAverageInclusive = 2 };
enum miopenConvFwdAlgorithm_t { miopenConvolutionFwdAlgoGEMM = 0, miopenConvolutionFwdAlgoDirect = 1 };

enum miopenConvolutionAttrib_t {
    MIOPEN_CONVOLUTION_ATTRIB_FP16_ALT_IMPL = 0,
    MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC = 1
};

struct miopenConvAlgoPerf_t {
    miopenConvFwdAlgorithm_t algorithm;
    float time;
    std::size_t memory;
};

struct miopenHandle {
    hipStream_t stream;
    std::set<std::string> found; // the problems that Find was called for
};
using miopenHandle_t = miopenHandle*;

struct miopenTensorDescriptor {
    miopenDataType_t type = miopenFloat;
    std::vector<int> dims, strides;

    std::size_t element_bytes() const { return type == miopenFloat ? 4 : 2; }
    std::size_t offset(int n, int c, int h, int w) const {
        return static_cast<std::size_t>(n) * static_cast<std::size_t>(strides[0]) +
               static_cast<std::size_t>(c) * static_cast<std::size_t>(strides[1]) +
               static_cast<std::size_t>(h) * static_cast<std::size_t>(strides[2]) +
               static_cast<std::size_t>(w) * static_cast<std::size_t>(strides[3]);
    }
    std::size_t bytes() const {
        return (offset(dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1) + 1) * element_bytes();
    }
};
using miopenTensorDescriptor_t = miopenTensorDescriptor*;

struct miopenConvolutionDescriptor {
    int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, groups = 1;
    int fp16_alternative = -1, deterministic = 0;
};
using miopenConvolutionDescriptor_t = miopenConvolutionDescriptor*;

struct miopenPoolingDescriptor {
    miopenPoolingMode_t mode = miopenPoolingMax;
    int window_h = 0, window_w = 0, pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1;
};
using miopenPoolingDescriptor_t = miopenPoolingDescriptor*;

namespace hip_host {

Registry<miopenHandle>& miopen_handles();
Registry<miopenTensorDescriptor>& tensor_descriptors();
Registry<miopenConvolutionDescriptor>& convolution_descriptors();
Registry<miopenPoolingDescriptor>& pooling_descriptors();

template <class Body> miopenStatus_t miopen_call(const char* function, Body&& body) {
    if (const int injected = injected_failure(function, miopenStatusInternalError))
        return static_cast<miopenStatus_t>(injected);
    return body();
}

// A tensor as contiguous floats, in the order of its dims, and back.
std::vector<float> read_tensor(const miopenTensorDescriptor& tensor, const void* data);
void write_tensor(const miopenTensorDescriptor& tensor, void* data, const std::vector<float>& values);

void log_tensor(LogLine& line, const char* name, const miopenTensorDescriptor& tensor);

inline bool is_image(const miopenTensorDescriptor& tensor) { return tensor.dims.size() == 4; }

} // namespace hip_host
