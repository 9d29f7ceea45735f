"""Every function of the HIP objects, called once on objects that are made for it: for tests of all of them."""

from __future__ import annotations

import gc
import inspect
import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import tallow
from tallow import Tensor
from tallow.drivers import rocm as driver
from tallow.kernels.arguments import FILL_CONTIGUOUS, fill_contiguous
from tallow.rocm_backend import RocmDevice, hip
from tallow.rocm_backend.miopen import Miopen
from tallow.rocm_backend.rocblas import RocBlas
from tallow.runtime.backends.gpu_backend.driver.buffer import SharedBuffer
from tallow.runtime.backends.gpu_backend.driver.device import _start
from tallow.runtime.backends.gpu_backend.driver.gpu_driver import GpuDriver
from tallow.runtime.backends.gpu_backend.driver.loader import Upload
from tallow.runtime.backends.gpu_backend.driver.stream import Direction, _under_way
from tallow.runtime.backends.gpu_backend.execute.kernels import open_cache
from tallow.runtime.backends.gpu_backend.user_kernels import UserKernels
from tallow.runtime.backends.rocm_backend.hip.device import _properties
from tallow.runtime.base.error import TallowError

NUMBERS = np.arange(1, 65, dtype=np.float32)
REVERSED = NUMBERS[::-1].copy()
SOURCE = """
struct Fill { unsigned *values; unsigned long count; unsigned long value; };

extern "C" __global__ void nines(Fill fill) {
    if (threadIdx.x < fill.count)
        fill.values[threadIdx.x] = fill.value;
}
"""
HEADER = b'{"x": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}'
FILE = len(HEADER).to_bytes(8, "little") + HEADER + NUMBERS.tobytes()
_images: dict[str, bytes] = {}


def image(rocm: RocmDevice) -> bytes:
    """A code object with the kernel `nines`."""
    if not _images:
        _images["nines"] = rocm.driver.compile(SOURCE, "nines", {})
    return _images["nines"]


def forget_kernels(rocm: RocmDevice) -> None:
    """Users' kernels stay for as long as their device, and what was compiled for as long as its folder."""
    rocm._runtime._user_kernels = UserKernels(rocm.driver, open_cache())


class Kit:
    """An object of each kind on one device, with work behind it; buffers hold the numbers 1 to 64."""

    def __init__(self, rocm: RocmDevice) -> None:
        # A call that failed may have left the thread at another one.
        hip.HipDevice(0).set_current()
        self.rocm = rocm
        forget_kernels(rocm)
        self.kept: list[hip.DeviceTensor] = []
        self.graphs: list[hip.HipGraph] = []
        self.label = f"rocm:{rocm.ordinal}"
        self.code = image(rocm)
        with ExitStack() as output:
            device = self.device = hip.HipDevice(rocm.ordinal)
            self.stream = output.enter_context(hip.HipStream(device))
            self.event = output.enter_context(hip.HipEvent(device).record(self.stream))
            self.buffer = output.enter_context(hip.HipBuffer(device, NUMBERS.nbytes))
            self.other = output.enter_context(hip.HipBuffer(device, NUMBERS.nbytes))
            self.buffer.copy_from_host(NUMBERS)
            self.other.copy_from_host(NUMBERS)
            self.host_buffer = output.enter_context(hip.HipHostBuffer(device, NUMBERS.nbytes))
            self.host_buffer.array(np.float32)[:] = NUMBERS
            self.module = output.enter_context(hip.HipModule(device, self.code, "nines"))
            self.kernel = self.module.kernel("nines", FILL_CONTIGUOUS.size)
            self.backend = output.enter_context(hip.HipBackend(rocm.ordinal))
            self.loader = output.enter_context(hip.AsyncLoader(device))
            self.loader.upload_auto(self.other, NUMBERS)
            self.loader.synchronize()
            self.tensor = hip.DeviceTensor.from_host(NUMBERS, device)
            self.matrix = hip.DeviceTensor.from_host(NUMBERS.reshape(8, 8), device)
            self.row = hip.DeviceTensor.from_pool(self.other, 0, (8,))
            self.arguments = fill_contiguous(result=self.buffer.address, count=64, value=(9, 0)).packed()
            self.made = output.pop_all()

    def close(self) -> None:
        """Give all of it back, and what other work has left behind."""
        self.made.close()
        del self.tensor, self.matrix, self.row, self.kept, self.graphs
        self.device.synchronize()
        _under_way.clear()
        forget_kernels(self.rocm)
        gc.collect()
        self.rocm.allocator.empty_cache()

    def numbers(self, buffer: hip.HipBuffer | None = None) -> list[float]:
        """Return the elements of a buffer once all work is done."""
        self.device.synchronize()
        return np.frombuffer((buffer or self.buffer).to_bytes(), np.float32).tolist()

    def input(self, *shape: int) -> Tensor:
        return self.matrix.to_tensor().reshape(shape)


Operation = Callable[[Kit], Any]


def opened(make: Callable[[Kit], Any]) -> Operation:
    """Make something and close it, again where it could not be closed."""

    def operation(kit: Kit) -> None:
        result = make(kit)
        try:
            result.close()
        except TallowError:
            result.close()
            raise

    return operation


def buffer_after(work: Callable[[Kit], Any]) -> Operation:
    """Return the elements of the buffer after some work."""

    def operation(kit: Kit) -> list[float]:
        work(kit)
        return kit.numbers()

    return operation


def tensor_after(work: Callable[[Kit], Any]) -> Operation:
    """Return the elements of the tensor after some work."""

    def operation(kit: Kit) -> list[float]:
        work(kit)
        result: list[float] = kit.tensor.to_host().tolist()
        return result

    return operation


def made(make: Callable[[Kit], hip.DeviceTensor]) -> Operation:
    """Return the elements of a new tensor, which lives as long as the kit."""

    def operation(kit: Kit) -> list[float]:
        kit.kept.append(make(kit))
        result: list[float] = kit.kept[-1].to_host().tolist()
        return result

    return operation


def copied(work: Callable[[Kit, np.ndarray], Any]) -> Operation:
    """Return the array that some work copies to; if it returns an event, after that."""

    def operation(kit: Kit) -> list[float]:
        target = np.zeros_like(NUMBERS)
        event = work(kit, target)
        if event is not None:
            with event:
                event.synchronize()
        result: list[float] = target.tolist()
        return result

    return operation


def in_turn(*steps: Callable[[Kit], Any]) -> Operation:
    """Return the result of the last of some steps."""
    return lambda kit: [step(kit) for step in steps][-1]


def activate(kit: Kit) -> None:
    with kit.device.activated():
        pass


def copy_from_another_device(kit: Kit) -> list[float]:
    kit.device._peers.clear()
    with hip.HipBuffer(hip.HipDevice(1 - kit.device.ordinal), NUMBERS.nbytes) as there:
        there.copy_from_host(REVERSED)
        try:
            kit.buffer.copy_from(there, stream=kit.stream)
            return kit.numbers()
        finally:
            # Freeing waits for the memory's own device, and this one reads it.
            kit.stream.synchronize()


def move_to_another_device(kit: Kit) -> Any:
    return kit.input(64).to(f"rocm:{1 - kit.device.ordinal}").tolist()


def upload_all(kit: Kit) -> None:
    upload = Upload(
        kit.buffer.address, 64, lambda target, offset: target.__setitem__(slice(None), bytes(target.nbytes))
    )
    kit.loader.upload_all([upload], kit.stream)


def from_file(kit: Kit) -> hip.HipModule:
    with tempfile.NamedTemporaryFile() as file:
        file.write(kit.code)
        file.flush()
        return hip.HipModule.from_file(kit.device, file.name)


def use_new_kernel(kit: Kit) -> list[float]:
    """A kernel that is loaded, found and launched."""
    driver = kit.rocm.driver
    with driver.load(kit.code, "nines") as module:
        module.function("nines", driver.queue, 64, FILL_CONTIGUOUS.size)(1, kit.arguments)
        return kit.numbers()


TWICE = """
extern "C" __global__ void twice(float* x, unsigned long long n) {
    if (threadIdx.x < n)
        x[threadIdx.x] *= 2;
}
"""
_numbers = itertools.count()


def new_source() -> str:
    """The source of a kernel that this process has not compiled yet."""
    return f"{TWICE} // {next(_numbers)}"


def use_kernel_of_a_user(kit: Kit) -> list[float]:
    kernel = tallow.Kernel.compile("twice", new_source(), kit.label, signature="float*, unsigned long long")
    kernel.launch(1, 64, kit.input(64), 64)
    result: list[float] = kit.tensor.to_host().tolist() + kit.matrix.to_host().ravel().tolist()
    return result


def use_op_of_a_user(kit: Kit) -> list[float]:
    op = tallow.KernelOp1("twice", new_source(), kit.label)
    tensor = kit.input(64)
    tensor.inplace_op1(op)
    result: list[float] = tensor.tolist()
    return result


def launch(stream: Callable[[Kit], hip.HipStream]) -> Operation:
    return buffer_after(lambda kit: kit.kernel.launch((1, 1, 1), (64, 1, 1), kit.arguments, stream(kit)))


def recorded(kit: Kit) -> hip.HipGraph:
    """A graph that fills the buffer with nines."""
    kit.stream.begin_capture()
    try:
        kit.kernel.launch((1, 1, 1), (64, 1, 1), kit.arguments, kit.stream)
        return kit.stream.end_capture()
    except TallowError:
        with suppress(TallowError):
            kit.stream.abandon_capture()
        raise


def replay(kit: Kit) -> list[float]:
    graph = recorded(kit)
    # It ends with the kit, behind its launches.
    kit.graphs.append(graph)
    graph.launch(kit.stream)
    return kit.numbers()


def abandon(kit: Kit) -> None:
    kit.stream.begin_capture()
    try:
        kit.stream.fill(kit.buffer.address, 1, 8)
        kit.stream.abandon_capture()
    except TallowError:
        with suppress(TallowError):
            kit.stream.abandon_capture()
        raise


def use_graph(kit: Kit) -> list[float]:
    """A graph whose calls make tensors, draw random numbers and read indexes."""
    chosen = Tensor([3, 5], "u32", kit.label)
    with tallow.Graph(kit.label) as graph:
        with graph.capture():
            noise = Tensor.rand((2,), device=kit.label)
            result = kit.input(64).index_select(chosen, 0) + noise * 0
        graph.replay()
        actual: list[float] = result.tolist()
        return actual


def share(kit: Kit) -> list[float]:
    """Return the handle by which another process opens memory."""
    with SharedBuffer(kit.device, 64) as buffer:
        return [len(kit.rocm.driver.shared_handle(buffer.address))]


# Keys are the functions of `hip` and its classes, those of the classes, and what stands on them.
OPERATIONS: dict[str, Operation] = {
    "memory that is shared": share,
    "AsyncLoader": opened(lambda kit: hip.AsyncLoader(kit.device)),
    "AsyncLoader.close": lambda kit: kit.loader.close(),
    "AsyncLoader.require_open": lambda kit: kit.loader.require_open(),
    "AsyncLoader.outstanding": lambda kit: kit.loader.outstanding(0) in (0, NUMBERS.nbytes),
    "AsyncLoader.stream": lambda kit: kit.loader.stream(3).synchronize(),
    "AsyncLoader.synchronize": lambda kit: kit.loader.synchronize(),
    "AsyncLoader.upload_all": buffer_after(upload_all),
    "AsyncLoader.upload_auto": buffer_after(lambda kit: kit.loader.upload_auto(kit.buffer, REVERSED)),
    "AsyncLoader.upload_to_buffer": buffer_after(lambda kit: kit.loader.upload_to_buffer(kit.buffer, REVERSED, 1)),
    "AsyncLoader.upload_to_buffer_offset": buffer_after(
        lambda kit: kit.loader.upload_to_buffer_offset(kit.buffer, 4, REVERSED[:9], 2)
    ),
    "DeviceTensor.copy_from_buffer": tensor_after(lambda kit: kit.tensor.copy_from_buffer(kit.other)),
    "DeviceTensor.copy_from_host": tensor_after(lambda kit: kit.tensor.copy_from_host(REVERSED)),
    "DeviceTensor.copy_from_region": tensor_after(lambda kit: kit.tensor.copy_from_region(kit.other, 0, 8, 4)),
    "DeviceTensor.empty": made(lambda kit: hip.DeviceTensor.empty((5,), kit.device)),
    "DeviceTensor.from_buffer": made(lambda kit: hip.DeviceTensor.from_buffer(kit.buffer, (2,), 4)),
    "DeviceTensor.from_host": made(lambda kit: hip.DeviceTensor.from_host(NUMBERS, kit.device)),
    "DeviceTensor.from_mmap": made(lambda kit: hip.DeviceTensor.from_mmap(NUMBERS, 4, (3,), kit.device)),
    "DeviceTensor.from_pool": made(lambda kit: hip.DeviceTensor.from_pool(kit.buffer, 4, (2,))),
    "DeviceTensor.from_tensor": made(lambda kit: hip.DeviceTensor.from_tensor(kit.input(64))),
    "DeviceTensor.to_host": made(lambda kit: kit.tensor),
    "DeviceTensor.to_tensor": lambda kit: kit.tensor.to_tensor().tolist(),
    "HipBackend": opened(lambda kit: hip.HipBackend(kit.rocm.ordinal)),
    "HipBackend.add_inplace": tensor_after(lambda kit: kit.backend.add_inplace(kit.tensor, kit.tensor)),
    "HipBackend.add_row_bias": in_turn(
        lambda kit: kit.backend.add_row_bias(kit.matrix, kit.row), lambda kit: kit.matrix.to_host().tolist()
    ),
    "HipBackend.allocate_buffer_safe": opened(lambda kit: kit.backend.allocate_buffer_safe(64)),
    "HipBackend.buffer": opened(lambda kit: kit.backend.buffer(64)),
    "HipBackend.can_allocate": lambda kit: kit.backend.can_allocate(1),
    "HipBackend.check_memory_for_model": lambda kit: kit.backend.check_memory_for_model(1),
    "HipBackend.require_open": lambda kit: kit.backend.require_open(),
    "HipBackend.close": in_turn(
        lambda kit: kit.backend.load_module("nines", kit.code), lambda kit: kit.backend.close()
    ),
    "HipBackend.copy_from_device": in_turn(
        lambda kit: kit.backend.copy_from_device(kit.buffer, kit.host_buffer),
        lambda kit: kit.host_buffer.array(np.float32).tolist(),
    ),
    "HipBackend.copy_to_device": buffer_after(lambda kit: kit.backend.copy_to_device(kit.buffer, NUMBERS + 1)),
    "HipBackend.event": opened(lambda kit: kit.backend.event()),
    "HipBackend.get_kernel": in_turn(
        lambda kit: kit.backend.load_module("nines", kit.code),
        lambda kit: kit.backend.get_kernel("nines", "nines", FILL_CONTIGUOUS.size).name,
    ),
    "HipBackend.gpu_status": lambda kit: kit.backend.gpu_status().name,
    "HipBackend.launch": buffer_after(lambda kit: kit.backend.launch(kit.kernel, (1, 1, 1), (64, 1, 1), kit.arguments)),
    "HipBackend.layernorm": made(lambda kit: kit.backend.layernorm(kit.matrix, kit.row, kit.row)),
    "HipBackend.load_module": lambda kit: kit.backend.load_module("nines", kit.code).name,
    "HipBackend.memory_info": lambda kit: kit.backend.memory_info().total,
    "HipBackend.mlp_swiglu": made(lambda kit: kit.backend.mlp_swiglu(*[kit.matrix] * 4)),
    "HipBackend.retry_operation": lambda kit: kit.backend.retry_operation(kit.backend.synchronize, 0),
    "HipBackend.safe_alloc_size": lambda kit: kit.backend.safe_alloc_size() > 0,
    "HipBackend.scale_inplace": tensor_after(lambda kit: kit.backend.scale_inplace(kit.tensor, 3.0)),
    "HipBackend.synchronize": lambda kit: kit.backend.synchronize(),
    "HipBackend.validate_launch_config": lambda kit: kit.backend.validate_launch_config((1, 1, 1), (1, 1, 1)),
    "HipBuffer": opened(lambda kit: hip.HipBuffer(kit.device, 64)),
    "HipBuffer.require_open": lambda kit: kit.buffer.require_open(),
    "HipBuffer.close": lambda kit: kit.other.close(),
    "HipBuffer.copy_2d_from": buffer_after(
        lambda kit: kit.buffer.copy_2d_from(kit.other, width=8, height=4, pitch=16, source_pitch=8, stream=kit.stream)
    ),
    "HipBuffer.copy_from": buffer_after(
        lambda kit: kit.buffer.copy_from(kit.other, offset=8, nbytes=16, stream=kit.stream)
    ),
    "HipBuffer.copy_from_host": buffer_after(lambda kit: kit.buffer.copy_from_host(REVERSED)),
    "HipBuffer.copy_from_host beside the host": copied(
        lambda kit, target: kit.buffer.copy_from_host(kit.host_buffer, stream=kit.stream, wait=False)
    ),
    "HipBuffer.copy_to_host": copied(lambda kit, target: kit.other.copy_to_host(target, stream=kit.stream)),
    "HipBuffer.copy_to_host beside the host": copied(
        lambda kit, target: kit.other.copy_to_host(target, stream=kit.stream, wait=False)
    ),
    "HipBuffer.fill": buffer_after(
        lambda kit: [kit.buffer.fill(1, itemsize=size, nbytes=8, stream=kit.stream) for size in (1, 2, 4)]
    ),
    "HipBuffer.region": lambda kit: kit.buffer.region("test", 0, 4),
    "HipBuffer.to_bytes": lambda kit: bytes(kit.other.to_bytes()),
    "HipBuffer.view": lambda kit: bytes(kit.other.view(8, 8).to_bytes()),
    "HipBuffer.wrap": opened(lambda kit: hip.HipBuffer.wrap(kit.device, kit.buffer.address, 4, lambda: None)),
    "HipDevice": lambda kit: hip.HipDevice(kit.device.ordinal).label,
    "HipDevice.activated": activate,
    "HipDevice.call": lambda kit: kit.device.call(driver.synchronize),
    "HipDevice.call_in_context": lambda kit: kit.device.call_in_context(driver.synchronize),
    "HipDevice.close": lambda kit: hip.HipDevice(kit.device.ordinal).close(),
    "HipDevice.fact": lambda kit: kit.device.fact("device_name"),
    "HipDevice.in_context": lambda kit: kit.device.in_context() is None,
    "HipDevice.is_current": in_turn(lambda kit: kit.device.set_current(), lambda kit: kit.device.is_current()),
    "HipDevice.let_reach": lambda kit: hip.HipDevice(kit.device.ordinal).let_reach(kit.device),
    "HipDevice.require_open": lambda kit: kit.device.require_open(),
    "HipDevice.holds": lambda kit: [kit.device.holds(kit.buffer.address), kit.device.holds(NUMBERS.ctypes.data)],
    "HipDevice.memory": lambda kit: kit.device.memory().total,
    "HipDevice.properties": in_turn(lambda kit: _properties.cache_clear(), lambda kit: kit.device.properties),
    "HipDevice.set_current": lambda kit: hip.HipDevice(0).set_current(),
    "HipDevice.synchronize": lambda kit: kit.device.synchronize(),
    "HipEvent": opened(lambda kit: hip.HipEvent(kit.device)),
    "HipEvent.close": lambda kit: kit.event.close(),
    "HipEvent.elapsed_ms": lambda kit: kit.event.elapsed_ms(kit.event) == 0,
    "HipEvent.query": in_turn(lambda kit: kit.device.synchronize(), lambda kit: kit.event.query()),
    "HipEvent.record": lambda kit: kit.event.record(kit.stream).synchronize(),
    "HipEvent.require_open": lambda kit: kit.event.require_open(),
    "HipEvent.synchronize": lambda kit: kit.event.synchronize(),
    "HipGraph": opened(recorded),
    "HipGraph.close": lambda kit: recorded(kit).close(),
    "HipGraph.launch": replay,
    "HipGraph.require_open": opened(lambda kit: (graph := recorded(kit)).require_open() or graph),
    "HipHostBuffer": opened(lambda kit: hip.HipHostBuffer(kit.device, 64)),
    "HipHostBuffer.array": lambda kit: kit.host_buffer.array().tolist(),
    "HipHostBuffer.require_open": lambda kit: kit.host_buffer.require_open(),
    "HipHostBuffer.close": lambda kit: kit.host_buffer.close(),
    "HipKernel.launch": launch(lambda kit: kit.stream),
    "HipKernel.launch in the null stream": launch(lambda kit: hip.HipStream.null(kit.device)),
    "HipLimits.refusal": lambda kit: kit.backend.limits.refusal((1, 1, 1), (1, 1, 1), 0),
    "HipModule": opened(lambda kit: hip.HipModule(kit.device, kit.code)),
    "HipModule.close": lambda kit: kit.module.close(),
    "HipModule.cooperative_function": buffer_after(
        lambda kit: kit.module.cooperative_function("nines", kit.stream, 64, FILL_CONTIGUOUS.size)(1, kit.arguments)
    ),
    "HipModule.from_file": opened(from_file),
    "HipModule.function": buffer_after(
        lambda kit: kit.module.function("nines", kit.stream, 64, FILL_CONTIGUOUS.size)(1, kit.arguments)
    ),
    "HipModule.kernel": in_turn(
        lambda kit: kit.module._kernels.clear(), lambda kit: kit.module.kernel("nines", FILL_CONTIGUOUS.size).name
    ),
    "HipModule.handle_of": lambda kit: kit.module.handle_of("nines") is not None,
    "HipModule.launcher": lambda kit: kit.module.launcher("nines", kit.stream).limits.threads,
    "HipModule.limits_of": lambda kit: kit.module.limits_of(kit.module.handle_of("nines"), "nines").threads,
    "HipModule.require_open": lambda kit: kit.module.require_open(),
    "HipStream": opened(lambda kit: hip.HipStream(kit.device)),
    "HipStream.abandon_capture": abandon,
    "HipStream.begin_capture": replay,
    "HipStream.call": lambda kit: kit.stream.call(lambda handle, _about: handle is kit.stream.handle),
    "HipStream.close": lambda kit: kit.stream.close(),
    "HipStream.copy": buffer_after(
        lambda kit: kit.stream.copy(kit.buffer.address, kit.other.address + 8, 8, Direction.WITHIN_DEVICE)
    ),
    "HipStream.copy_between": buffer_after(
        lambda kit: kit.stream.copy_between(kit.buffer.address, kit.device, kit.other.address + 8, kit.device, 8)
    ),
    "HipStream.end_capture": replay,
    "HipStream.fill": buffer_after(lambda kit: kit.stream.fill(kit.buffer.address, 1, 8)),
    "HipStream.new_event": opened(lambda kit: kit.stream.new_event()),
    "HipStream.null": lambda kit: hip.HipStream.null(kit.device).synchronize(),
    "HipStream.priorities": lambda kit: hip.HipStream.priorities(kit.device),
    "HipStream.query": in_turn(lambda kit: kit.stream.synchronize(), lambda kit: kit.stream.query()),
    "HipStream.record": opened(lambda kit: kit.stream.record()),
    "HipStream.require_open": lambda kit: kit.stream.require_open(),
    "HipStream.synchronize": lambda kit: kit.stream.synchronize(),
    "HipStream.upload": buffer_after(
        lambda kit: kit.stream.upload([(kit.buffer.address, kit.host_buffer.address, 8)], kit.event)
    ),
    "HipStream.wait": in_turn(lambda kit: kit.stream.wait(kit.event), lambda kit: kit.stream.synchronize()),
    "HipStream.wrap": lambda kit: hip.HipStream.wrap(kit.device, kit.stream.address).synchronize(),
    "check": lambda kit: hip.check("test", (driver.binding.hipError_t.hipSuccess, 3)),
    "device_count": lambda kit: hip.device_count(),
    "error_string": lambda kit: hip.error_string(2),
    "require_runtime": in_turn(lambda kit: _start.cache_clear(), lambda kit: hip.require_runtime()),
    "runtime_version": lambda kit: hip.runtime_version(),
    "synchronize_device": lambda kit: hip.synchronize_device(kit.device),
    # What stands on the objects.
    "opening a device": opened(lambda kit: GpuDriver(driver, kit.device.ordinal).queue),
    "opening hipBLAS": opened(lambda kit: RocBlas.open(kit.rocm.driver, kit.rocm.allocator)),
    "opening MIOpen": opened(lambda kit: Miopen.open(kit.rocm.driver, kit.rocm.allocator)),
    "a compilation": lambda kit: len(kit.rocm.driver.compile(SOURCE, "nines", {})) > 0,
    "a new kernel": use_new_kernel,
    "memory of a tensor that is dropped": lambda kit: (
        hip.DeviceTensor.from_host(NUMBERS, kit.device).to_host().tolist()
    ),
    "a user's kernel": use_kernel_of_a_user,
    "an op of a user's kernel": use_op_of_a_user,
    "a file": lambda kit: tallow.load_safetensors(FILE, device=kit.label)["x"].tolist(),
    "an elementwise op": lambda kit: kit.input(64).add(kit.input(64)).tolist(),
    "a reduction": lambda kit: kit.input(8, 8).sum(0).tolist(),
    "a matrix product": lambda kit: kit.input(8, 8).matmul(kit.input(8, 8)).tolist(),
    "a convolution": lambda kit: kit.input(1, 1, 8, 8).conv2d(kit.input(4, 1, 4, 4)).tolist(),
    "pooling": lambda kit: kit.input(1, 1, 8, 8).avg_pool2d(2).tolist(),
    "indexes": lambda kit: kit.input(64).index_select(Tensor([3, 5], "u32", kit.label), 0).tolist(),
    "a graph": use_graph,
    "random numbers": lambda kit: Tensor.rand((4,), device=kit.label).numpy().shape,
    "an upload": lambda kit: Tensor.from_numpy(NUMBERS, kit.label).tolist(),
    "an allocation": in_turn(
        lambda kit: kit.rocm.allocator.empty_cache(), lambda kit: Tensor.zeros((1000,), device=kit.label).sum().item()
    ),
    "memory that is not needed": lambda kit: kit.rocm.allocator.empty_cache(),
    "another stream": in_turn(lambda kit: kit.rocm.driver.wait_for(0), lambda kit: kit.rocm.driver.let_wait(0)),
}
# What takes two devices.
OF_TWO_DEVICES: dict[str, Operation] = {
    "HipBuffer.copy_from another device": copy_from_another_device,
    "a tensor that moves": move_to_another_device,
}
# Of classes that call nothing.
_QUIET = (hip.HipDeviceProp, hip.HipMemory, hip.HipPriorities, hip.HipStatus, hip.hipUUID)


def public_functions() -> Iterator[str]:
    """The functions of `hip`, its classes, and their functions, as `OPERATIONS` names them."""
    for name in hip.__all__:
        thing = getattr(hip, name)
        if inspect.isfunction(thing):
            yield name
        elif inspect.isclass(thing) and thing.__module__.startswith("tallow") and not issubclass(thing, Exception):
            methods = [key for key in dir(thing) if not key.startswith("_") and inspect.isroutine(getattr(thing, key))]
            yield from (f"{name}.{key}" for key in methods if thing not in _QUIET and not hasattr(tuple, key))
