// MIOpen: convolution and pooling. What a call must have done before (Find), what it may ask for (alpha 1, beta 0) and
// what max pooling does with NaN follow MIOpen's own sources.
#include "miopen.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

using namespace hip_host;

namespace {

// What a call computes of the two others of input, weights and output.
enum class Computed { output, input, weights };

struct Convolution {
    miopenTensorDescriptor x, w, y;
    miopenConvolutionDescriptor shape;
    Computed computed;

    const miopenTensorDescriptor& result() const {
        return computed == Computed::output ? y : computed == Computed::input ? x : w;
    }

    int kernel_h() const { return w.dims[2]; }
    int kernel_w() const { return w.dims[3]; }
    int out_h() const {
        return 1 + (x.dims[2] + 2 * shape.pad_h - shape.dilation_h * (kernel_h() - 1) - 1) / shape.stride_h;
    }
    int out_w() const {
        return 1 + (x.dims[3] + 2 * shape.pad_w - shape.dilation_w * (kernel_w() - 1) - 1) / shape.stride_w;
    }

    bool fits() const {
        return is_image(x) && is_image(w) && x.type == w.type && x.dims[1] == w.dims[1] * shape.groups &&
               w.dims[0] % shape.groups == 0 && x.dims[2] + 2 * shape.pad_h > shape.dilation_h * (kernel_h() - 1) &&
               x.dims[3] + 2 * shape.pad_w > shape.dilation_w * (kernel_w() - 1);
    }
    bool result_fits() const {
        return fits() && is_image(y) && y.type == x.type &&
               y.dims == std::vector<int>{x.dims[0], w.dims[0], out_h(), out_w()};
    }

    // What the algorithm by matrix product needs: the unfolded windows of one image.
    std::size_t workspace() const {
        return x.element_bytes() * static_cast<std::size_t>(w.dims[1]) * static_cast<std::size_t>(shape.groups) *
               static_cast<std::size_t>(kernel_h()) * static_cast<std::size_t>(kernel_w()) *
               static_cast<std::size_t>(out_h()) * static_cast<std::size_t>(out_w());
    }

    std::string key() const {
        std::string text = std::to_string(x.type) + " " + std::to_string(static_cast<int>(computed));
        for (const auto* tensor : {&x, &w, &y})
            for (const auto* numbers : {&tensor->dims, &tensor->strides})
                for (int number : *numbers)
                    text += " " + std::to_string(number);
        for (int number : {shape.pad_h, shape.pad_w, shape.stride_h, shape.stride_w, shape.dilation_h, shape.dilation_w,
                           shape.groups, shape.fp16_alternative, shape.deterministic})
            text += " " + std::to_string(number);
        return text;
    }

    void log(const char* function, int algorithm, std::size_t workspace_bytes) const {
        if (!log_enabled())
            return;
        LogLine line(function);
        log_tensor(line, "x", x);
        log_tensor(line, "w", w);
        log_tensor(line, "y", y);
        line.list("pad", std::initializer_list<int>{shape.pad_h, shape.pad_w})
            .list("stride", std::initializer_list<int>{shape.stride_h, shape.stride_w})
            .list("dilation", std::initializer_list<int>{shape.dilation_h, shape.dilation_w})
            .integer("groups", shape.groups)
            .integer("deterministic", shape.deterministic)
            .integer("algorithm", algorithm)
            .integer("workspace", static_cast<long long>(workspace_bytes));
    }

    // Gradients leave the padding out: it has none.
    void compute_gradient(const void* first_data, const void* second_data, void* result_data) const {
        const bool is_input = computed == Computed::input;
        const std::vector<float> of_y = read_tensor(y, first_data);
        const std::vector<float> other = read_tensor(is_input ? w : x, second_data);
        std::vector<float> sums(elements(result()));
        const int filters_of_group = w.dims[0] / shape.groups;
        std::size_t output = 0;
        for (int image = 0; image < x.dims[0]; ++image)
            for (int filter = 0; filter < w.dims[0]; ++filter)
                for (int row = 0; row < out_h(); ++row)
                    for (int column = 0; column < out_w(); ++column, ++output)
                        for (int channel = 0; channel < w.dims[1]; ++channel)
                            for (int r = 0; r < kernel_h(); ++r)
                                for (int s = 0; s < kernel_w(); ++s) {
                                    const int h = row * shape.stride_h - shape.pad_h + r * shape.dilation_h;
                                    const int v = column * shape.stride_w - shape.pad_w + s * shape.dilation_w;
                                    if (h < 0 || h >= x.dims[2] || v < 0 || v >= x.dims[3])
                                        continue;
                                    const int from = filter / filters_of_group * w.dims[1] + channel;
                                    const std::size_t source = place(x, image, from, h, v);
                                    const std::size_t factor = place(w, filter, channel, r, s);
                                    sums[is_input ? source : factor] +=
                                        of_y[output] * other[is_input ? factor : source];
                                }
        write_tensor(result(), result_data, sums);
    }

    // The operands are those of a call, in its order.
    void run(miopenConvFwdAlgorithm_t algorithm, const void* first, const void* second, void* result_data) const {
        if (computed == Computed::output)
            compute_output(algorithm, first, second, result_data);
        else
            compute_gradient(first, second, result_data);
    }

    static std::size_t elements(const miopenTensorDescriptor& tensor) {
        std::size_t count = 1;
        for (int size : tensor.dims)
            count *= static_cast<std::size_t>(size);
        return count;
    }

    // Where an element is among those in the order of the dims.
    static std::size_t place(const miopenTensorDescriptor& tensor, int n, int c, int h, int v) {
        return static_cast<std::size_t>(((n * tensor.dims[1] + c) * tensor.dims[2] + h) * tensor.dims[3] + v);
    }

    void compute_output(miopenConvFwdAlgorithm_t algorithm, const void* x_data, const void* w_data,
                        void* y_data) const {
        const std::vector<float> input = read_tensor(x, x_data), weights = read_tensor(w, w_data);
        std::vector<float> output;
        // The direct kernels leave the padding out, the matrix product has zeros there: infinity makes NaN of them.
        const bool has_zeros = algorithm != miopenConvolutionFwdAlgoDirect;
        const int images = x.dims[0], filters = w.dims[0], channels = w.dims[1];
        for (int image = 0; image < images; ++image)
            for (int filter = 0; filter < filters; ++filter) {
                const int first = filter / (filters / shape.groups) * channels;
                for (int row = 0; row < out_h(); ++row)
                    for (int column = 0; column < out_w(); ++column)
                        output.push_back(
                            window(input, weights, image * x.dims[1] + first, filter, row, column, has_zeros));
            }
        write_tensor(y, y_data, output);
    }

    float window(const std::vector<float>& input, const std::vector<float>& weights, int plane, int filter, int row,
                 int column, bool has_zeros) const {
        float sum = 0;
        for (int channel = 0; channel < w.dims[1]; ++channel)
            for (int r = 0; r < kernel_h(); ++r) {
                const int h = row * shape.stride_h - shape.pad_h + r * shape.dilation_h;
                const bool row_inside = h >= 0 && h < x.dims[2];
                if (!row_inside && !has_zeros)
                    continue;
                const auto line = static_cast<std::size_t>(plane + channel) * static_cast<std::size_t>(x.dims[2]) +
                                  static_cast<std::size_t>(row_inside ? h : 0);
                const float* source = input.data() + line * static_cast<std::size_t>(x.dims[3]);
                const float* factor =
                    weights.data() + ((static_cast<std::size_t>(filter) * static_cast<std::size_t>(w.dims[1]) +
                                       static_cast<std::size_t>(channel)) *
                                          static_cast<std::size_t>(kernel_h()) +
                                      static_cast<std::size_t>(r)) *
                                         static_cast<std::size_t>(kernel_w());
                for (int s = 0; s < kernel_w(); ++s) {
                    const int position = column * shape.stride_w - shape.pad_w + s * shape.dilation_w;
                    const bool inside = row_inside && position >= 0 && position < x.dims[3];
                    if (inside || has_zeros)
                        sum += (inside ? source[position] : 0.0f) * factor[s];
                }
            }
        return sum;
    }
};

bool scales_are_plain(const void* alpha, const void* beta) {
    return *static_cast<const float*>(alpha) == 1.0f && *static_cast<const float*>(beta) == 0.0f;
}

// Calls the body with the problem, where all of its descriptors are live. They are those of a call, in its order.
template <class Body>
miopenStatus_t with_convolution(Computed computed, miopenTensorDescriptor_t first, miopenTensorDescriptor_t second,
                                miopenConvolutionDescriptor_t convolution, miopenTensorDescriptor_t result,
                                Body&& body) {
    if (!tensor_descriptors().contains(first) || !tensor_descriptors().contains(second) ||
        !tensor_descriptors().contains(result) || !convolution_descriptors().contains(convolution))
        return miopenStatusBadParm;
    const bool is_input = computed == Computed::input;
    const Convolution problem =
        computed == Computed::output
            ? Convolution{*first, *second, *result, *convolution, computed}
            : Convolution{is_input ? *result : *second, is_input ? *second : *result, *first, *convolution, computed};
    return problem.result_fits() ? body(problem) : miopenStatusBadParm;
}

miopenStatus_t workspace_size(const char* name, Computed computed, miopenHandle_t handle,
                              miopenTensorDescriptor_t first, miopenTensorDescriptor_t second,
                              miopenConvolutionDescriptor_t convolution, miopenTensorDescriptor_t result,
                              std::size_t* bytes) {
    return miopen_call(name, [&] {
        if (!miopen_handles().contains(handle) || !bytes)
            return miopenStatusBadParm;
        return with_convolution(computed, first, second, convolution, result, [&](const Convolution& problem) {
            *bytes = problem.workspace();
            return miopenStatusSuccess;
        });
    });
}

// An operand of a call.
struct Operand {
    miopenTensorDescriptor_t tensor;
    const void* data;
};

// Offers the matrix product first where the workspace allows it. Running the candidates overwrites the result, so
// that holds poison afterwards.
miopenStatus_t find(const char* name, Computed computed, miopenHandle_t handle, Operand first, Operand second,
                    miopenConvolutionDescriptor_t convolution, miopenTensorDescriptor_t result_tensor, void* result,
                    int requested, int* returned, miopenConvAlgoPerf_t* results, void* workspace,
                    std::size_t workspace_bytes) {
    return miopen_call(name, [&] {
        if (!miopen_handles().contains(handle) || !first.data || !second.data || !result || !returned || !results ||
            requested < 1)
            return miopenStatusBadParm;
        if (stream_is_captured(handle->stream)) // it waits for what it tries
            return miopenStatusInternalError;
        const auto body = [&](const Convolution& problem) {
            problem.log(name, -1, workspace_bytes);
            const std::size_t wanted = problem.workspace();
            const bool has_workspace = workspace && workspace_bytes >= wanted;
            const std::size_t bytes[] = {first.tensor->bytes(), second.tensor->bytes()};
            if (submit(handle->stream, [=] {
                    if (!check_access(name, "first", first.data, bytes[0]) ||
                        !check_access(name, "second", second.data, bytes[1]) ||
                        !check_access(name, "result", result, problem.result().bytes()) ||
                        (has_workspace && !check_access(name, "workspace", workspace, wanted)))
                        return sticky_error();
                    std::vector<float> unwritten(Convolution::elements(problem.result()), NAN);
                    write_tensor(problem.result(), result, unwritten);
                    return hipSuccess;
                }))
                return miopenStatusInternalError;
            handle->found.insert(problem.key());
            int count = 0;
            if (has_workspace)
                results[count++] = {miopenConvolutionFwdAlgoGEMM, 0.5f, wanted};
            if (count < requested)
                results[count++] = {miopenConvolutionFwdAlgoDirect, 1.0f, 0};
            *returned = count;
            return miopenStatusSuccess;
        };
        return with_convolution(computed, first.tensor, second.tensor, convolution, result_tensor, body);
    });
}

miopenStatus_t convolve(const char* name, Computed computed, miopenHandle_t handle, const void* alpha, Operand first,
                        Operand second, miopenConvolutionDescriptor_t convolution, miopenConvFwdAlgorithm_t algorithm,
                        const void* beta, miopenTensorDescriptor_t result_tensor, void* result, void* workspace,
                        std::size_t workspace_bytes) {
    return miopen_call(name, [&] {
        if (!miopen_handles().contains(handle) || !alpha || !beta || !first.data || !second.data || !result)
            return miopenStatusBadParm;
        if (!scales_are_plain(alpha, beta))
            return miopenStatusNotImplemented;
        const auto body = [&](const Convolution& problem) {
            problem.log(name, algorithm, workspace_bytes);
            if (!handle->found.count(problem.key()) ||
                (algorithm != miopenConvolutionFwdAlgoGEMM && algorithm != miopenConvolutionFwdAlgoDirect))
                return miopenStatusUnknownError; // as MIOpen: nothing was found for this problem
            const std::size_t wanted = algorithm == miopenConvolutionFwdAlgoGEMM ? problem.workspace() : 0;
            if (wanted && (!workspace || workspace_bytes < wanted))
                return miopenStatusBadParm;
            const std::size_t bytes[] = {first.tensor->bytes(), second.tensor->bytes()};
            const hipError_t error = submit(handle->stream, [=] {
                if (!check_access(name, "first", first.data, bytes[0]) ||
                    !check_access(name, "second", second.data, bytes[1]) ||
                    !check_access(name, "result", result, problem.result().bytes()) ||
                    !check_access(name, "workspace", workspace, wanted))
                    return sticky_error();
                // The workspace is overwritten, so nothing else can live in it. This comes first: where it overlaps
                // an operand, the result is wrong.
                if (wanted)
                    std::memset(workspace, 0xCB, wanted);
                problem.run(algorithm, first.data, second.data, result);
                return hipSuccess;
            });
            return error ? miopenStatusInternalError : miopenStatusSuccess;
        };
        return with_convolution(computed, first.tensor, second.tensor, convolution, result_tensor, body);
    });
}

struct Pooling {
    miopenPoolingDescriptor shape;
    miopenTensorDescriptor x, y;

    bool fits() const {
        const int h = x.dims[2] + 2 * shape.pad_h - shape.window_h, w = x.dims[3] + 2 * shape.pad_w - shape.window_w;
        return h >= 0 && w >= 0 && shape.pad_h < shape.window_h && shape.pad_w < shape.window_w && y.type == x.type &&
               y.dims == std::vector<int>{x.dims[0], x.dims[1], 1 + h / shape.stride_h, 1 + w / shape.stride_w};
    }

    // MIOpen's maximum starts from the lowest finite number and takes fmax: NaN loses, and -inf becomes that number.
    float lowest() const { return x.type == miopenHalf ? -65504.0f : -FLT_MAX; }

    float window(const float* plane, int row, int column) const {
        const int first_h = row * shape.stride_h - shape.pad_h, first_w = column * shape.stride_w - shape.pad_w;
        const int end_h = std::min(first_h + shape.window_h, x.dims[2]);
        const int end_w = std::min(first_w + shape.window_w, x.dims[3]);
        const int begin_h = std::max(first_h, 0), begin_w = std::max(first_w, 0);
        float result = shape.mode == miopenPoolingMax ? lowest() : 0.0f;
        for (int h = begin_h; h < end_h; ++h)
            for (int w = begin_w; w < end_w; ++w) {
                const float value = plane[h * x.dims[3] + w];
                result = shape.mode == miopenPoolingMax ? std::fmax(result, value) : result + value;
            }
        if (shape.mode == miopenPoolingMax)
            return result;
        const int count = shape.mode == miopenPoolingAverage ? (end_h - begin_h) * (end_w - begin_w)
                                                             : shape.window_h * shape.window_w;
        return result / static_cast<float>(count);
    }

    void run(const void* x_data, void* y_data) const {
        const std::vector<float> input = read_tensor(x, x_data);
        std::vector<float> output;
        const std::size_t plane_elements = static_cast<std::size_t>(x.dims[2]) * static_cast<std::size_t>(x.dims[3]);
        for (std::size_t first = 0; first < input.size(); first += plane_elements)
            for (int row = 0; row < y.dims[2]; ++row)
                for (int column = 0; column < y.dims[3]; ++column)
                    output.push_back(window(input.data() + first, row, column));
        write_tensor(y, y_data, output);
    }
};

} // namespace

HIP_HOST_API miopenStatus_t miopenGetConvolutionForwardOutputDim(miopenConvolutionDescriptor_t convolution,
                                                                 miopenTensorDescriptor_t x, miopenTensorDescriptor_t w,
                                                                 int* n, int* c, int* h, int* width) {
    return miopen_call("miopenGetConvolutionForwardOutputDim", [&] {
        if (!tensor_descriptors().contains(x) || !tensor_descriptors().contains(w) ||
            !convolution_descriptors().contains(convolution) || !n || !c || !h || !width)
            return miopenStatusBadParm;
        const Convolution problem{*x, *w, {}, *convolution, Computed::output};
        if (!problem.fits())
            return miopenStatusBadParm;
        *n = x->dims[0];
        *c = w->dims[0];
        *h = problem.out_h();
        *width = problem.out_w();
        return miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenConvolutionForwardGetWorkSpaceSize(miopenHandle_t handle, miopenTensorDescriptor_t w,
                                                                     miopenTensorDescriptor_t x,
                                                                     miopenConvolutionDescriptor_t convolution,
                                                                     miopenTensorDescriptor_t result,
                                                                     std::size_t* bytes) {
    return workspace_size("miopenConvolutionForwardGetWorkSpaceSize", Computed::output, handle, x, w, convolution,
                          result, bytes);
}

HIP_HOST_API miopenStatus_t miopenFindConvolutionForwardAlgorithm(
    miopenHandle_t handle, miopenTensorDescriptor_t first_tensor, const void* first,
    miopenTensorDescriptor_t second_tensor, const void* second, miopenConvolutionDescriptor_t convolution,
    miopenTensorDescriptor_t result_tensor, void* result, int requested, int* returned, miopenConvAlgoPerf_t* results,
    void* workspace, std::size_t workspace_bytes, bool) {
    return find("miopenFindConvolutionForwardAlgorithm", Computed::output, handle, {first_tensor, first},
                {second_tensor, second}, convolution, result_tensor, result, requested, returned, results, workspace,
                workspace_bytes);
}

HIP_HOST_API miopenStatus_t miopenConvolutionForward(miopenHandle_t handle, const void* alpha,
                                                     miopenTensorDescriptor_t first_tensor, const void* first,
                                                     miopenTensorDescriptor_t second_tensor, const void* second,
                                                     miopenConvolutionDescriptor_t convolution,
                                                     miopenConvFwdAlgorithm_t algorithm, const void* beta,
                                                     miopenTensorDescriptor_t result_tensor, void* result,
                                                     void* workspace, std::size_t workspace_bytes) {
    return convolve("miopenConvolutionForward", Computed::output, handle, alpha, {first_tensor, first},
                    {second_tensor, second}, convolution, algorithm, beta, result_tensor, result, workspace,
                    workspace_bytes);
}

HIP_HOST_API miopenStatus_t miopenConvolutionBackwardDataGetWorkSpaceSize(
    miopenHandle_t handle, miopenTensorDescriptor_t first, miopenTensorDescriptor_t second,
    miopenConvolutionDescriptor_t convolution, miopenTensorDescriptor_t result, std::size_t* bytes) {
    return workspace_size("miopenConvolutionBackwardDataGetWorkSpaceSize", Computed::input, handle, first, second,
                          convolution, result, bytes);
}

HIP_HOST_API miopenStatus_t miopenFindConvolutionBackwardDataAlgorithm(
    miopenHandle_t handle, miopenTensorDescriptor_t first_tensor, const void* first,
    miopenTensorDescriptor_t second_tensor, const void* second, miopenConvolutionDescriptor_t convolution,
    miopenTensorDescriptor_t result_tensor, void* result, int requested, int* returned, miopenConvAlgoPerf_t* results,
    void* workspace, std::size_t workspace_bytes, bool) {
    return find("miopenFindConvolutionBackwardDataAlgorithm", Computed::input, handle, {first_tensor, first},
                {second_tensor, second}, convolution, result_tensor, result, requested, returned, results, workspace,
                workspace_bytes);
}

HIP_HOST_API miopenStatus_t miopenConvolutionBackwardData(miopenHandle_t handle, const void* alpha,
                                                          miopenTensorDescriptor_t first_tensor, const void* first,
                                                          miopenTensorDescriptor_t second_tensor, const void* second,
                                                          miopenConvolutionDescriptor_t convolution,
                                                          miopenConvFwdAlgorithm_t algorithm, const void* beta,
                                                          miopenTensorDescriptor_t result_tensor, void* result,
                                                          void* workspace, std::size_t workspace_bytes) {
    return convolve("miopenConvolutionBackwardData", Computed::input, handle, alpha, {first_tensor, first},
                    {second_tensor, second}, convolution, algorithm, beta, result_tensor, result, workspace,
                    workspace_bytes);
}

HIP_HOST_API miopenStatus_t miopenConvolutionBackwardWeightsGetWorkSpaceSize(
    miopenHandle_t handle, miopenTensorDescriptor_t first, miopenTensorDescriptor_t second,
    miopenConvolutionDescriptor_t convolution, miopenTensorDescriptor_t result, std::size_t* bytes) {
    return workspace_size("miopenConvolutionBackwardWeightsGetWorkSpaceSize", Computed::weights, handle, first, second,
                          convolution, result, bytes);
}

HIP_HOST_API miopenStatus_t miopenFindConvolutionBackwardWeightsAlgorithm(
    miopenHandle_t handle, miopenTensorDescriptor_t first_tensor, const void* first,
    miopenTensorDescriptor_t second_tensor, const void* second, miopenConvolutionDescriptor_t convolution,
    miopenTensorDescriptor_t result_tensor, void* result, int requested, int* returned, miopenConvAlgoPerf_t* results,
    void* workspace, std::size_t workspace_bytes, bool) {
    return find("miopenFindConvolutionBackwardWeightsAlgorithm", Computed::weights, handle, {first_tensor, first},
                {second_tensor, second}, convolution, result_tensor, result, requested, returned, results, workspace,
                workspace_bytes);
}

HIP_HOST_API miopenStatus_t miopenConvolutionBackwardWeights(miopenHandle_t handle, const void* alpha,
                                                             miopenTensorDescriptor_t first_tensor, const void* first,
                                                             miopenTensorDescriptor_t second_tensor, const void* second,
                                                             miopenConvolutionDescriptor_t convolution,
                                                             miopenConvFwdAlgorithm_t algorithm, const void* beta,
                                                             miopenTensorDescriptor_t result_tensor, void* result,
                                                             void* workspace, std::size_t workspace_bytes) {
    return convolve("miopenConvolutionBackwardWeights", Computed::weights, handle, alpha, {first_tensor, first},
                    {second_tensor, second}, convolution, algorithm, beta, result_tensor, result, workspace,
                    workspace_bytes);
}

HIP_HOST_API miopenStatus_t miopenPoolingForward(miopenHandle_t handle, miopenPoolingDescriptor_t pooling,
                                                 const void* alpha, miopenTensorDescriptor_t x_tensor, const void* x,
                                                 const void* beta, miopenTensorDescriptor_t y_tensor, void* y,
                                                 bool for_backward, void*, std::size_t) {
    constexpr const char* name = "miopenPoolingForward";
    return miopen_call(name, [&] {
        if (!miopen_handles().contains(handle) || !pooling_descriptors().contains(pooling) ||
            !tensor_descriptors().contains(x_tensor) || !tensor_descriptors().contains(y_tensor) || !alpha || !beta ||
            !x || !y || !is_image(*x_tensor) || !is_image(*y_tensor))
            return miopenStatusBadParm;
        if (!scales_are_plain(alpha, beta))
            return miopenStatusUnknownError;
        // MIOpen has no pooling for bf16. Keeping the positions for a backward pass is not part of this runtime.
        if (x_tensor->type == miopenBFloat16 || for_backward)
            return miopenStatusNotImplemented;
        const Pooling problem{*pooling, *x_tensor, *y_tensor};
        if (!problem.fits())
            return miopenStatusBadParm;
        if (log_enabled()) {
            LogLine line(name);
            log_tensor(line, "x", problem.x);
            log_tensor(line, "y", problem.y);
            line.integer("mode", pooling->mode)
                .list("window", std::initializer_list<int>{pooling->window_h, pooling->window_w})
                .list("pad", std::initializer_list<int>{pooling->pad_h, pooling->pad_w})
                .list("stride", std::initializer_list<int>{pooling->stride_h, pooling->stride_w});
        }
        const hipError_t error = submit(handle->stream, [=] {
            if (!check_access(name, "x", x, problem.x.bytes()) || !check_access(name, "y", y, problem.y.bytes()))
                return sticky_error();
            problem.run(x, y);
            return hipSuccess;
        });
        return error ? miopenStatusInternalError : miopenStatusSuccess;
    });
}

HIP_HOST_API miopenStatus_t miopenGetPoolingForwardOutputDim(miopenPoolingDescriptor_t pooling,
                                                             miopenTensorDescriptor_t x, int* n, int* c, int* h,
                                                             int* w) {
    return miopen_call("miopenGetPoolingForwardOutputDim", [&] {
        if (!pooling_descriptors().contains(pooling) || !tensor_descriptors().contains(x) || !is_image(*x) || !n ||
            !c || !h || !w)
            return miopenStatusBadParm;
        const int rest_h = x->dims[2] + 2 * pooling->pad_h - pooling->window_h;
        const int rest_w = x->dims[3] + 2 * pooling->pad_w - pooling->window_w;
        if (rest_h < 0 || rest_w < 0)
            return miopenStatusBadParm;
        *n = x->dims[0];
        *c = x->dims[1];
        *h = 1 + rest_h / pooling->stride_h;
        *w = 1 + rest_w / pooling->stride_w;
        return miopenStatusSuccess;
    });
}
