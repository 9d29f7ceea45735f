// MIOpen: handles and descriptors.
#include "miopen.hpp"

#include "float_types.hpp"

using namespace hip_host;

namespace hip_host {

Registry<miopenHandle>& miopen_handles() {
    static auto& instance = *new Registry<miopenHandle>("miopen handle");
    return instance;
}

Registry<miopenTensorDescriptor>& tensor_descriptors() {
    static auto& instance = *new Registry<miopenTensorDescriptor>("tensor descriptor");
    return instance;
}

Registry<miopenConvolutionDescriptor>& convolution_descriptors() {
    static auto& instance = *new Registry<miopenConvolutionDescriptor>("convolution descriptor");
    return instance;
}

Registry<miopenPoolingDescriptor>& pooling_descriptors() {
    static auto& instance = *new Registry<miopenPoolingDescriptor>("pooling descriptor");
    return instance;
}

namespace {

template <class Visit> void each_element(const miopenTensorDescriptor& tensor, Visit&& visit) {
    std::size_t index = 0;
    for (int n = 0; n < tensor.dims[0]; ++n)
        for (int c = 0; c < tensor.dims[1]; ++c)
            for (int h = 0; h < tensor.dims[2]; ++h)
                for (int w = 0; w < tensor.dims[3]; ++w)
                    visit(index++, tensor.offset(n, c, h, w));
}

template <class Element> std::vector<float> read_as(const miopenTensorDescriptor& tensor, const void* data) {
    std::vector<float> values;
    each_element(tensor, [&](std::size_t, std::size_t offset) {
        values.push_back(static_cast<float>(static_cast<const Element*>(data)[offset]));
    });
    return values;
}

template <class Element>
void write_as(const miopenTensorDescriptor& tensor, void* data, const std::vector<float>& values) {
    each_element(tensor, [&](std::size_t index, std::size_t offset) {
        static_cast<Element*>(data)[offset] = static_cast<Element>(values[index]);
    });
}

bool is_supported(miopenDataType_t type) { return type == miopenHalf || type == miopenFloat || type == miopenBFloat16; }

const char* name_of(miopenDataType_t type) { return type == miopenHalf ? "f16" : type == miopenFloat ? "f32" : "bf16"; }

template <class Object> miopenStatus_t create(const char* function, Registry<Object>& registry, Object** object) {
    return miopen_call(function, [&] {
        if (!object)
            return miopenStatusBadParm;
        *object = registry.add(new Object());
        return miopenStatusSuccess;
    });
}

template <class Object> miopenStatus_t destroy(const char* function, Registry<Object>& registry, Object* object) {
    return miopen_call(function, [&] { return registry.destroy(object) ? miopenStatusSuccess : miopenStatusBadParm; });
}

miopenStatus_t set_tensor(miopenTensorDescriptor_t tensor, miopenDataType_t type, std::vector<int> dims,
                          std::vector<int> strides) {
    if (!tensor_descriptors().contains(tensor))
        return miopenStatusBadParm;
    if (!is_supported(type))
        return miopenStatusNotImplemented;
    for (int dim : dims)
        if (dim <= 0)
            return miopenStatusBadParm;
    for (int stride : strides)
        if (stride < 0)
            return miopenStatusBadParm;
    if (strides.empty()) {
        strides.assign(dims.size(), 1);
        for (std::size_t dim = dims.size() - 1; dim > 0; --dim)
            strides[dim - 1] = strides[dim] * dims[dim];
    }
    *tensor = {type, std::move(dims), std::move(strides)};
    return miopenStatusSuccess;
}

} // namespace

std::vector<float> read_tensor(const miopenTensorDescriptor& tensor, const void* data) {
    return tensor.type == miopenHalf    ? read_as<Half>(tensor, data)
           : tensor.type == miopenFloat ? read_as<float>(tensor, data)
                                        : read_as<BFloat16>(tensor, data);
}

void write_tensor(const miopenTensorDescriptor& tensor, void* data, const std::vector<float>& values) {
    if (tensor.type == miopenHalf)
        write_as<Half>(tensor, data, values);
    else if (tensor.type == miopenFloat)
        write_as<float>(tensor, data, values);
    else
        write_as<BFloat16>(tensor, data, values);
}

void log_tensor(LogLine& line, const char* name, const miopenTensorDescriptor& tensor) {
    const std::string prefix = name;
    line.text(name, name_of(tensor.type))
        .list((prefix + "_dims").c_str(), tensor.dims)
        .list((prefix + "_strides").c_str(), tensor.strides);
}

} // namespace hip_host

HIP_HOST_API const char* miopenGetErrorString(miopenStatus_t status) {
    static const char* const names[] = {"miopenStatusSuccess",        "miopenStatusNotInitialized",
                                        "miopenStatusInvalidValue",   "miopenStatusBadParm",
                                        "miopenStatusAllocFailed",    "miopenStatusInternalError",
                                        "miopenStatusNotImplemented", "miopenStatusUnknownError",
                                        "miopenStatusUnsupportedOp",  "miopenStatusGpuOperationsSkipped",
                                        "miopenStatusVersionMismatch"};
    return status >= 0 && status <= miopenStatusVersionMismatch ? names[status] : names[miopenStatusUnknownError];
}

HIP_HOST_API miopenStatus_t miopenGetVersion(std::size_t* major, std::size_t* minor, std::size_t* patch) {
    return miopen_call("miopenGetVersion", [&] {
        if (!major || !minor || !patch)
            return miopenStatusBadParm;
        *major = 3;
        *minor = 5;
        *patch = 0;
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenCreateWithStream(miopenHandle_t* handle, hipStream_t stream) {
    return miopen_call("miopenCreate", [&] {
        if (!handle || !stream_is_live(stream))
            return miopenStatusBadParm;
        *handle = miopen_handles().add(new miopenHandle{stream, {}});
        LogLine("miopenCreate").address("handle", *handle).address("stream", stream);
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenCreate(miopenHandle_t* handle) { return miopenCreateWithStream(handle, nullptr); }

HIP_HOST_API miopenStatus_t miopenDestroy(miopenHandle_t handle) {
    LogLine("miopenDestroy").address("handle", handle);
    return destroy("miopenDestroy", miopen_handles(), handle);
}

HIP_HOST_API miopenStatus_t miopenSetStream(miopenHandle_t handle, hipStream_t stream) {
    return miopen_call("miopenSetStream", [&] {
        if (!miopen_handles().contains(handle) || !stream_is_live(stream))
            return miopenStatusBadParm;
        LogLine("miopenSetStream").address("handle", handle).address("stream", stream);
        handle->stream = stream;
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenGetStream(miopenHandle_t handle, hipStream_t* stream) {
    return miopen_call("miopenGetStream", [&] {
        if (!miopen_handles().contains(handle) || !stream)
            return miopenStatusBadParm;
        *stream = handle->stream;
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t* tensor) {
    return create("miopenCreateTensorDescriptor", tensor_descriptors(), tensor);
}

HIP_HOST_API miopenStatus_t miopenDestroyTensorDescriptor(miopenTensorDescriptor_t tensor) {
    return destroy("miopenDestroyTensorDescriptor", tensor_descriptors(), tensor);
}

HIP_HOST_API miopenStatus_t miopenSet4dTensorDescriptor(miopenTensorDescriptor_t tensor, miopenDataType_t type, int n,
                                                        int c, int h, int w) {
    return miopen_call("miopenSet4dTensorDescriptor", [&] { return set_tensor(tensor, type, {n, c, h, w}, {}); });
}

HIP_HOST_API miopenStatus_t miopenSet4dTensorDescriptorEx(miopenTensorDescriptor_t tensor, miopenDataType_t type, int n,
                                                          int c, int h, int w, int stride_n, int stride_c, int stride_h,
                                                          int stride_w) {
    return miopen_call("miopenSet4dTensorDescriptorEx", [&] {
        return set_tensor(tensor, type, {n, c, h, w}, {stride_n, stride_c, stride_h, stride_w});
    });
}

HIP_HOST_API miopenStatus_t miopenSetTensorDescriptor(miopenTensorDescriptor_t tensor, miopenDataType_t type, int rank,
                                                      const int* dims, const int* strides) {
    return miopen_call("miopenSetTensorDescriptor", [&] {
        if (rank < 1 || rank > 5 || !dims)
            return miopenStatusBadParm;
        return set_tensor(tensor, type, {dims, dims + rank},
                          strides ? std::vector<int>(strides, strides + rank) : std::vector<int>());
    });
}

HIP_HOST_API miopenStatus_t miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t* convolution) {
    return create("miopenCreateConvolutionDescriptor", convolution_descriptors(), convolution);
}

HIP_HOST_API miopenStatus_t miopenDestroyConvolutionDescriptor(miopenConvolutionDescriptor_t convolution) {
    return destroy("miopenDestroyConvolutionDescriptor", convolution_descriptors(), convolution);
}

HIP_HOST_API miopenStatus_t miopenInitConvolutionDescriptor(miopenConvolutionDescriptor_t convolution,
                                                            miopenConvolutionMode_t mode, int pad_h, int pad_w,
                                                            int stride_h, int stride_w, int dilation_h,
                                                            int dilation_w) {
    return miopen_call("miopenInitConvolutionDescriptor", [&] {
        if (!convolution_descriptors().contains(convolution) || pad_h < 0 || pad_w < 0 || stride_h < 1 ||
            stride_w < 1 || dilation_h < 1 || dilation_w < 1)
            return miopenStatusBadParm;
        if (mode != miopenConvolution)
            return mode == miopenTranspose ? miopenStatusNotImplemented : miopenStatusBadParm;
        *convolution = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w};
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenSetConvolutionGroupCount(miopenConvolutionDescriptor_t convolution, int groups) {
    return miopen_call("miopenSetConvolutionGroupCount", [&] {
        if (!convolution_descriptors().contains(convolution) || groups < 1)
            return miopenStatusBadParm;
        convolution->groups = groups;
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenSetConvolutionAttribute(miopenConvolutionDescriptor_t convolution,
                                                          const miopenConvolutionAttrib_t attribute, int value) {
    return miopen_call("miopenSetConvolutionAttribute", [&] {
        if (!convolution_descriptors().contains(convolution) || value > 1)
            return miopenStatusBadParm;
        if (attribute == MIOPEN_CONVOLUTION_ATTRIB_FP16_ALT_IMPL && value >= -1)
            convolution->fp16_alternative = value;
        else if (attribute == MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC && value >= 0)
            convolution->deterministic = value;
        else
            return miopenStatusBadParm;
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenCreatePoolingDescriptor(miopenPoolingDescriptor_t* pooling) {
    return create("miopenCreatePoolingDescriptor", pooling_descriptors(), pooling);
}

HIP_HOST_API miopenStatus_t miopenDestroyPoolingDescriptor(miopenPoolingDescriptor_t pooling) {
    return destroy("miopenDestroyPoolingDescriptor", pooling_descriptors(), pooling);
}

HIP_HOST_API miopenStatus_t miopenSet2dPoolingDescriptor(miopenPoolingDescriptor_t pooling, miopenPoolingMode_t mode,
                                                         int window_h, int window_w, int pad_h, int pad_w, int stride_h,
                                                         int stride_w) {
    return miopen_call("miopenSet2dPoolingDescriptor", [&] {
        if (!pooling_descriptors().contains(pooling) || mode < miopenPoolingMax ||
            mode > miopenPoolingAverageInclusive || window_h < 1 || window_w < 1 || pad_h < 0 || pad_w < 0 ||
            stride_h < 1 || stride_w < 1)
            return miopenStatusBadParm;
        *pooling = {mode, window_h, window_w, pad_h, pad_w, stride_h, stride_w};
        return miopenStatusSuccess;
    });
}
