"""hipBLAS and RCCL through hip-python and MIOpen through ctypes: what they compute, and what they refuse."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from itertools import product

import numpy as np
import pytest
from hip_host_driver import Buffer, CallError, check
from hip_runtime import library

hipblas = pytest.importorskip("rocm.bindings.hipblas", reason="hipBLAS's bindings are not installed")
rccl = pytest.importorskip("rocm.bindings.rccl", reason="RCCL's bindings are not installed")
from hip import hip  # noqa: E402

TYPES = {
    "f32": (np.float32, hip.hipDataType.HIP_R_32F, 1e-5),
    "f64": (np.float64, hip.hipDataType.HIP_R_64F, 1e-12),
    "f16": (np.float16, hip.hipDataType.HIP_R_16F, 2e-3),
    "bf16": (np.uint16, hip.hipDataType.HIP_R_16BF, 1e-2),
}
OPERATIONS = {"N": hipblas.hipblasOperation_t.HIPBLAS_OP_N, "T": hipblas.hipblasOperation_t.HIPBLAS_OP_T}


def to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode(values, name):
    return to_bf16(values) if name == "bf16" else values.astype(TYPES[name][0])


def decode(values, name):
    return from_bf16(values) if name == "bf16" else values


@pytest.fixture
def blas(host):
    # Other tests may have left a device open in this process.
    before = host.live("hipblas handle")
    handle = check(hipblas.hipblasCreate())
    yield handle
    check(hipblas.hipblasDestroy(handle))
    assert host.live("hipblas handle") == before


def columns_first(matrix, leading):
    """The bytes of a batch of matrices with their columns one after another, `leading` elements apart."""
    batch, rows, columns = matrix.shape
    padded = np.full((batch, columns, leading), 7, matrix.dtype)
    padded[:, :, :rows] = matrix.transpose(0, 2, 1)
    return padded


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("a_op", "b_op"), ["NN", "NT", "TN", "TT"])
def test_gemm(blas, host, name, a_op, b_op):
    m, n, k, batch, pad = 5, 7, 9, 3, 2
    random = np.random.default_rng(1)
    a, b, c = (encode(random.standard_normal(shape), name) for shape in ((batch, m, k), (batch, k, n), (batch, m, n)))
    stored_a = columns_first(a if a_op == "N" else a.transpose(0, 2, 1), (m if a_op == "N" else k) + pad)
    stored_b = columns_first(b if b_op == "N" else b.transpose(0, 2, 1), (k if b_op == "N" else n) + pad)
    stored_c = columns_first(c, m + pad)
    kind, tolerance = TYPES[name][1], TYPES[name][2]
    compute = getattr(hipblas.hipblasComputeType_t, "HIPBLAS_COMPUTE_64F" if name == "f64" else "HIPBLAS_COMPUTE_32F")
    scalar = np.float64 if name == "f64" else np.float32
    alpha, beta = scalar(1.5), scalar(0.5)
    host.keep_log(True)
    with Buffer(stored_a) as left, Buffer(stored_b) as right, Buffer(stored_c) as out:
        check(
            hipblas.hipblasGemmStridedBatchedEx(
                blas, OPERATIONS[a_op], OPERATIONS[b_op], m, n, k, np.array(alpha),
                left.pointer, kind, stored_a.shape[2], stored_a[0].size,
                right.pointer, kind, stored_b.shape[2], stored_b[0].size, np.array(beta),
                out.pointer, kind, stored_c.shape[2], stored_c[0].size,
                batch, compute, hipblas.hipblasGemmAlgo_t.HIPBLAS_GEMM_DEFAULT,
            )
        )  # fmt: skip
        result = out.read()
    expected = alpha * (decode(a, name).astype(np.float64) @ decode(b, name)) + beta * decode(c, name)
    np.testing.assert_allclose(
        decode(result[:, :, :m].transpose(0, 2, 1).copy(), name), expected, rtol=tolerance, atol=tolerance
    )
    assert (result[:, :, m:] == 7).all()
    (line,) = [line for line in host.take_log() if line["call"] == "hipblasGemmStridedBatchedEx"]
    assert (line["transpose_a"], line["transpose_b"], line["a"], line["c"]) == (a_op, b_op, name, name)
    assert (line["m"], line["n"], line["k"], line["batch"], line["alpha"], line["beta"]) == (m, n, k, batch, 1.5, 0.5)
    assert (line["lda"], line["ldb"], line["ldc"]) == tuple(x.shape[2] for x in (stored_a, stored_b, stored_c))


def sgemm(blas, left, right, out, m=2, n=2, k=2, lda=2, ldb=2, ldc=2, beta=0.0):
    none = OPERATIONS["N"]
    return hipblas.hipblasSgemm(
        blas, none, none, m, n, k, np.float32([1]), left, lda, right, ldb, np.float32([beta]), out, ldc
    )


def test_beta_zero_does_not_read_the_result(blas):
    nan = np.full((2, 2), np.nan, np.float32)
    with Buffer(np.ones((2, 2), np.float32)) as ones, Buffer(nan) as out:
        check(sgemm(blas, ones.pointer, ones.pointer, out.pointer))
        assert (out.read() == 2).all()


@pytest.mark.parametrize("wrong", [{"lda": 1}, {"ldb": 1}, {"ldc": 1}, {"m": -1}, {"k": -1}])
def test_wrong_sizes_are_refused(blas, wrong):
    with Buffer(np.ones((2, 2), np.float32)) as ones:
        (status,) = sgemm(blas, ones.pointer, ones.pointer, ones.pointer, **wrong)
    assert status.name == "HIPBLAS_STATUS_INVALID_VALUE"


def test_what_hipblas_does_not_take(blas, host):
    with Buffer(np.ones((2, 2), np.float32)) as ones:
        assert sgemm(blas, None, ones.pointer, ones.pointer)[0].name == "HIPBLAS_STATUS_INVALID_VALUE"
        check(sgemm(blas, None, None, None, m=0))
        host.fail("hipblasSgemm")
        assert sgemm(blas, ones.pointer, ones.pointer, ones.pointer)[0].name == "HIPBLAS_STATUS_INTERNAL_ERROR"
        other = check(hipblas.hipblasCreate())
        check(hipblas.hipblasDestroy(other))
        assert sgemm(other, ones.pointer, ones.pointer, ones.pointer)[0].name == "HIPBLAS_STATUS_NOT_INITIALIZED"


def test_a_product_outside_of_its_operand_is_a_fault(run_script):
    result = run_script(
        """
from hip import hipblas
handle = check(hipblas.hipblasCreate())
one = Buffer(np.ones((2, 2), np.float32))
none = hipblas.hipblasOperation_t.HIPBLAS_OP_N
hipblas.hipblasSgemm(handle, none, none, 2, 3, 2, np.float32([1]), one.pointer, 2, one.pointer, 2, np.float32([0]),
                     one.pointer, 2)
"""
    )
    assert result.returncode == -6
    assert "hipblasSgemm: operand B takes 24 bytes" in result.stderr
    assert "0 bytes past the end of a live allocation of 16 bytes" in result.stderr


def test_an_operand_of_another_device_is_a_fault(run_script):
    result = run_script(
        """
from hip import hipblas
one = Buffer(np.ones((2, 2), np.float32))
check(hip.hipSetDevice(1))
handle = check(hipblas.hipblasCreate())
two, none = Buffer(np.ones((2, 2), np.float32)), hipblas.hipblasOperation_t.HIPBLAS_OP_N
for right in (two, one):
    hipblas.hipblasSgemm(handle, none, none, 2, 2, 2, np.float32([1]), two.pointer, 2, right.pointer, 2,
                         np.float32([0]), two.pointer, 2)
    print("done", flush=True)
""",
        HIP_HOST_DEVICES="2",
    )
    assert (result.returncode, result.stdout) == (-6, "done\n")
    assert "hipblasSgemm: operand B takes 16 bytes" in result.stderr
    assert "at offset 0 of a live allocation of 16 bytes" in result.stderr
    assert "on device 0" in result.stderr


# ---- MIOpen


MIOPEN_TYPES = {"f16": 0, "f32": 1, "bf16": 5}


class Miopen:
    def __init__(self):
        self.library = library("MIOpen")
        self.library.miopenGetErrorString.restype = ctypes.c_char_p
        self.handle = self.create("miopenCreate")
        self.tensors = []

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise CallError(type("Status", (), {"name": self.library.miopenGetErrorString(status).decode()})())

    def create(self, name):
        result = c_void_p()
        self.call(name, byref(result))
        return result

    def tensor(self, shape, name="f32", strides=None):
        tensor = self.create("miopenCreateTensorDescriptor")
        self.tensors.append(tensor)
        numbers = c_int * len(shape)
        self.call("miopenSetTensorDescriptor", tensor, MIOPEN_TYPES[name], len(shape), numbers(*shape),
                  numbers(*strides) if strides else None)  # fmt: skip
        return tensor

    def close(self):
        for tensor in self.tensors:
            self.call("miopenDestroyTensorDescriptor", tensor)
        self.call("miopenDestroy", self.handle)


class Perf(ctypes.Structure):
    _fields_ = (("algorithm", c_int), ("time", c_float), ("memory", c_size_t))


@pytest.fixture
def miopen(host):
    kinds = ("miopen handle", "tensor descriptor", "convolution descriptor", "pooling descriptor")
    before = [host.live(kind) for kind in kinds]
    miopen = Miopen()
    yield miopen
    miopen.close()
    assert [host.live(kind) for kind in kinds] == before


def convolve(x, w, pad, stride, dilation, groups, has_zeros):
    """With zeros in the padding, or without any product there."""
    images, _, height, width = x.shape
    filters, channels, rows, columns = w.shape
    edges, outside, add = (
        ((0, 0), (0, 0), (pad, pad), (pad, pad)),
        *((0.0, np.sum) if has_zeros else (np.nan, np.nansum)),
    )
    padded = np.pad(x.astype(np.float64), edges, constant_values=outside)
    out_h = (height + 2 * pad - dilation * (rows - 1) - 1) // stride + 1
    out_w = (width + 2 * pad - dilation * (columns - 1) - 1) // stride + 1
    out = np.zeros((images, filters, out_h, out_w))
    for f, i, j in product(range(filters), range(out_h), range(out_w)):
        first = f // (filters // groups) * channels
        window = padded[:, first : first + channels, i * stride :, j * stride :][..., ::dilation, ::dilation]
        with np.errstate(invalid="ignore"):
            out[:, f, i, j] = add(window[..., :rows, :columns] * w[f], (1, 2, 3))
    return out


@pytest.mark.parametrize("algorithm", [0, 1])
@pytest.mark.parametrize(("pad", "stride", "dilation", "groups"), [(0, 1, 1, 1), (1, 2, 1, 2), (2, 1, 2, 1)])
@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_convolution(miopen, host, name, pad, stride, dilation, groups, algorithm):
    random = np.random.default_rng(2)
    x, w = (encode(random.standard_normal(s), name) for s in ((2, 4, 7, 6), (6, 4 // groups, 3, 2)))
    w[0, 0, 0, 0] = encode(np.float32(np.inf), name)
    expected = convolve(decode(x, name), decode(w, name), pad, stride, dilation, groups, has_zeros=algorithm == 0)
    host.keep_log(True)
    shape = miopen.create("miopenCreateConvolutionDescriptor")
    miopen.call("miopenInitConvolutionDescriptor", shape, 0, pad, pad, stride, stride, dilation, dilation)
    miopen.call("miopenSetConvolutionGroupCount", shape, groups)
    miopen.call("miopenSetConvolutionAttribute", shape, 1, algorithm)
    xt, wt, yt = (miopen.tensor(t.shape, name) for t in (x, w, expected))
    dims = [c_int() for _ in range(4)]
    miopen.call("miopenGetConvolutionForwardOutputDim", shape, xt, wt, *map(byref, dims))
    assert tuple(dim.value for dim in dims) == expected.shape
    size = c_size_t()
    miopen.call("miopenConvolutionForwardGetWorkSpaceSize", miopen.handle, wt, xt, shape, yt, byref(size))
    out = np.zeros(expected.shape, TYPES[name][0])
    one, zero = c_float(1), c_float(0)
    with Buffer(x) as xb, Buffer(w) as wb, Buffer(out) as yb, Buffer(np.zeros(size.value, np.uint8)) as space:
        pointers = [c_void_p(b.address) for b in (xb, wb, yb, space)]

        def forward():
            miopen.call("miopenConvolutionForward", miopen.handle, byref(one), xt, pointers[0], wt, pointers[1], shape,
                        algorithm, byref(zero), yt, pointers[2], pointers[3], size)  # fmt: skip

        with pytest.raises(CallError, match="miopenStatusUnknownError"):
            forward()  # nothing was found for it
        results, count = (Perf * 2)(), c_int()
        miopen.call("miopenFindConvolutionForwardAlgorithm", miopen.handle, xt, pointers[0], wt, pointers[1], shape,
                    yt, pointers[2], 2, byref(count), results, pointers[3], size, False)  # fmt: skip
        assert [r.algorithm for r in results[: count.value]] == [0, 1] and results[0].memory == size.value
        forward()
        result = decode(yb.read(), name)
        one.value = 2
        with pytest.raises(CallError, match="miopenStatusNotImplemented"):
            forward()
    tolerance = TYPES[name][2]
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
    (line,) = [
        line
        for line in host.take_log()
        if line["call"] == "miopenConvolutionForward" and line["algorithm"] == algorithm
    ][1:]
    assert (line["x"], line["x_dims"], line["w_dims"]) == (name, list(x.shape), list(w.shape))
    assert (line["pad"], line["stride"], line["dilation"], line["groups"], line["deterministic"]) == (
        [pad] * 2,
        [stride] * 2,
        [dilation] * 2,
        groups,
        algorithm,
    )
    miopen.call("miopenDestroyConvolutionDescriptor", shape)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("name", ["f32", "f16"])
def test_pooling(miopen, name, mode):
    x = np.random.default_rng(3).standard_normal((2, 3, 8, 7)).astype(TYPES[name][0])
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2, ::2]
    expected = windows.max((4, 5)) if mode == 0 else windows.astype(np.float64).mean((4, 5))
    pooling = miopen.create("miopenCreatePoolingDescriptor")
    miopen.call("miopenSet2dPoolingDescriptor", pooling, mode, 3, 2, 0, 0, 2, 2)
    strided = np.ascontiguousarray(x.transpose(0, 2, 3, 1))  # channels last
    _, c, h, w = x.shape
    xt, yt = miopen.tensor(x.shape, name, (h * w * c, 1, w * c, c)), miopen.tensor(expected.shape, name)
    one, zero = c_float(1), c_float(0)
    with Buffer(strided) as source, Buffer(np.zeros(expected.shape, TYPES[name][0])) as out:
        miopen.call("miopenPoolingForward", miopen.handle, pooling, byref(one), xt, c_void_p(source.address),
                    byref(zero), yt, c_void_p(out.address), False, None, c_size_t(0))  # fmt: skip
        np.testing.assert_allclose(out.read(), expected, rtol=1e-3)
        bf16 = miopen.tensor(x.shape, "bf16"), miopen.tensor(expected.shape, "bf16")
        with pytest.raises(CallError, match="miopenStatusNotImplemented"):
            miopen.call("miopenPoolingForward", miopen.handle, pooling, byref(one), bf16[0], c_void_p(source.address),
                        byref(zero), bf16[1], c_void_p(out.address), False, None, c_size_t(0))  # fmt: skip
    miopen.call("miopenDestroyPoolingDescriptor", pooling)


def test_max_pooling_loses_nan_as_miopen_does(miopen):
    """MIOpen takes fmax from the lowest finite number on: a backend whose NaN must win cannot use it for max."""
    pooling = miopen.create("miopenCreatePoolingDescriptor")
    miopen.call("miopenSet2dPoolingDescriptor", pooling, 0, 1, 2, 0, 0, 1, 2)
    xt, yt = miopen.tensor((1, 1, 1, 4)), miopen.tensor((1, 1, 1, 2))
    one, zero = c_float(1), c_float(0)
    with Buffer(np.float32([np.nan, 1, -np.inf, -np.inf])) as x, Buffer(np.zeros(2, np.float32)) as y:
        miopen.call("miopenPoolingForward", miopen.handle, pooling, byref(one), xt, c_void_p(x.address), byref(zero),
                    yt, c_void_p(y.address), False, None, c_size_t(0))  # fmt: skip
        assert y.read().tolist() == [1, np.finfo(np.float32).min]
    miopen.call("miopenDestroyPoolingDescriptor", pooling)


def test_descriptors_are_checked(miopen):
    with pytest.raises(CallError, match="miopenStatusBadParm"):
        miopen.tensor((1, 0, 2, 2))
    gone = miopen.create("miopenCreateTensorDescriptor")
    miopen.call("miopenDestroyTensorDescriptor", gone)
    shape = miopen.create("miopenCreateConvolutionDescriptor")
    for attribute, value in ((0, -1), (0, 1), (1, 0), (1, 1)):
        miopen.call("miopenSetConvolutionAttribute", shape, attribute, value)
    wrong = [("miopenSetConvolutionAttribute", (shape, *pair)) for pair in ((1, 2), (1, -1), (0, -2), (0, 2), (2, 0))]
    for name, arguments in (
        *wrong,
        ("miopenSetConvolutionAttribute", (gone, 1, 1)),
        ("miopenDestroyTensorDescriptor", (gone,)),
        ("miopenSet4dTensorDescriptor", (gone, 1, 1, 1, 1, 1)),
    ):
        with pytest.raises(CallError, match="miopenStatusBadParm"):
            miopen.call(name, *arguments)
    miopen.call("miopenDestroyConvolutionDescriptor", shape)
    version = [c_size_t() for _ in range(3)]
    miopen.call("miopenGetVersion", *map(byref, version))
    assert version[0].value == 3


# ---- RCCL, of which tests/package/test_distributed.py has several ranks


@pytest.fixture
def ranks(host):
    """A communicator of one."""
    before = host.live("rccl communicator")
    communicator = check(rccl.ncclCommInitRank(1, check(rccl.ncclGetUniqueId()), 0))
    yield communicator
    check(rccl.ncclCommDestroy(communicator))
    assert host.live("rccl communicator") == before


def test_a_rank_alone_joins_its_own_elements(ranks):
    inputs = np.arange(100_000, dtype=np.float32)
    kind, mean = rccl.ncclDataType_t.ncclFloat32, rccl.ncclRedOp_t.ncclAvg
    with Buffer(inputs) as source, Buffer(0 * inputs) as result, Buffer(0 * inputs) as back:
        check(rccl.ncclAllReduce(source.pointer, result.pointer, inputs.size, kind, mean, ranks, None))
        assert np.array_equal(result.read(), inputs)
        # What goes to and fro at a time has to be in one group.
        check(rccl.ncclGroupStart())
        check(rccl.ncclSend(result.pointer, inputs.size, kind, 0, ranks, None))
        check(rccl.ncclRecv(back.pointer, inputs.size, kind, 0, ranks, None))
        check(rccl.ncclGroupEnd())
        assert np.array_equal(back.read(), inputs)


def test_what_rccl_refuses(ranks):
    kind, total = rccl.ncclDataType_t.ncclFloat32, rccl.ncclRedOp_t.ncclSum
    with Buffer(np.zeros(4, np.float32)) as held:
        buffer = held.pointer
        refused = (
            (rccl.ncclCommInitRank(2, check(rccl.ncclGetUniqueId()), 2), "ncclInvalidArgument"),
            (rccl.ncclAllReduce(None, buffer, 4, kind, total, ranks, None), "ncclInvalidArgument"),
            (rccl.ncclBroadcast(buffer, buffer, 4, kind, 1, ranks, None), "ncclInvalidArgument"),
            (rccl.ncclSend(buffer, 4, kind, -1, ranks, None), "ncclInvalidArgument"),
            (rccl.ncclGroupEnd(), "ncclInvalidUsage"),
        )
        assert [status.name for (status, *_), _ in refused] == [name for _, name in refused]
        check(rccl.ncclCommAbort(ranks))
        late = rccl.ncclAllReduce(buffer, buffer, 4, kind, total, ranks, None)
        assert late[0].name == "ncclRemoteError"
