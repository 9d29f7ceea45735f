"""Elements on a GPU that other libraries share, and theirs that tallow shares."""

from __future__ import annotations

import datetime
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, Layout, Shape, Tensor
from tallow.runtime.base.error import InvalidArgument, UnsupportedDType
from tallow.runtime.host import dlpack

NUMBERS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
VIEWS = {
    "whole": lambda x: x,
    "narrowed": lambda x: x[:, 1:],
    "transposed": lambda x: x.transpose(0, 2),
    "broadcast": lambda x: x[:, :1].broadcast_as((2, 3, 4)),
    "scalar": lambda x: x[1, 2, 3],
    "empty": lambda x: x[:0],
}


@pytest.fixture
def device(gpu) -> Device:
    return Device(gpu)


@pytest.fixture
def tensor(device: Device) -> Tensor:
    return Tensor.from_numpy(NUMBERS, device)


def live(device: Any) -> int:
    """The bytes that somebody holds."""
    gc.collect()
    return int(device.inner.allocator.statistics().allocated)


@pytest.mark.parametrize("view", VIEWS)
def test_any_view_goes_out_and_comes_back(tensor: Tensor, view: str) -> None:
    inputs = VIEWS[view](tensor)
    taken = Tensor.from_dlpack(inputs)
    assert (taken.device, taken.dtype, taken.shape) == (tensor.device, tensor.dtype, inputs.shape)
    np.testing.assert_array_equal(taken.numpy(), inputs.numpy())


def test_the_elements_are_shared(tensor: Tensor) -> None:
    Tensor.from_dlpack(tensor[:, 1:]).fill_(7)
    assert (tensor.numpy()[:, 1:] == 7).all()
    np.testing.assert_array_equal(tensor.numpy()[:, 0], NUMBERS[:, 0])


def test_a_copy_is_shared_with_nobody(tensor: Tensor) -> None:
    class Copied:
        def __dlpack__(self, stream: int) -> Any:
            return tensor[:, 1:].__dlpack__(stream=stream, copy=True)

        def __dlpack_device__(self) -> tuple[int, int]:
            return tensor.__dlpack_device__()

    taken = Tensor.from_dlpack(Copied())
    np.testing.assert_array_equal(taken.numpy(), NUMBERS[:, 1:])
    taken.fill_(7)
    np.testing.assert_array_equal(tensor.numpy(), NUMBERS)


@pytest.mark.parametrize("dtype", DType)
def test_every_dtype_is_known(device: Device, dtype: DType) -> None:
    tensor = Tensor.from_numpy(np.arange(5).astype(dtype.numpy), device)
    taken = Tensor.from_dlpack(tensor)
    assert taken.dtype is dtype
    assert taken.numpy().tobytes() == tensor.numpy().tobytes()


def test_the_memory_lives_as_long_as_somebody_holds_it(device: Device) -> None:
    before = live(device)
    tensor = Tensor.from_numpy(NUMBERS, device)
    held = live(device)
    assert held > before
    taken = Tensor.from_dlpack(tensor)
    del tensor
    assert live(device) == held
    np.testing.assert_array_equal(taken.numpy(), NUMBERS)
    del taken
    assert live(device) == before


def test_memory_is_given_back_though_the_device_is_lost(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("the device is lost")

    before = live(device)
    taken = Tensor.from_dlpack(Tensor.from_numpy(NUMBERS, device))
    assert live(device) > before
    with monkeypatch.context() as patch:
        patch.setattr(device.inner.driver, "synchronize", fails)
        del taken
        gc.collect()
    assert live(device) == before


def test_a_capsule_that_nobody_takes_gives_the_memory_back(device: Device) -> None:
    before = live(device)
    capsule = Tensor.from_numpy(NUMBERS, device).__dlpack__()
    assert live(device) > before
    del capsule
    assert live(device) == before


def test_a_taker_that_fails_gives_the_memory_back(device: Device) -> None:
    before = live(device)
    with pytest.raises((BufferError, RuntimeError), match="device"):
        np.from_dlpack(Tensor.from_numpy(NUMBERS, device))
    assert live(device) == before


@pytest.mark.parametrize("stream", [None, -1, "own", "other"])
def test_the_taker_says_which_stream_waits(tensor: Tensor, stream: Any) -> None:
    driver = tensor.device.inner.driver
    handle = {"own": driver.stream, "other": 0}.get(stream, stream)
    capsule = tensor.__dlpack__(stream=handle)
    del capsule
    np.testing.assert_array_equal((tensor + 1).numpy(), NUMBERS + 1)


def test_garbage_collection_in_the_middle_of_an_export(tensor: Tensor, run_python: Callable[..., str]) -> None:
    """It may find capsules that nobody took, whose memory then waits for streams as the export does."""
    run_python(f"""
import faulthandler
import numpy as np
from tallow import Tensor
tensor = Tensor(np.arange(4, dtype=np.float32)).to("{tensor.device.label}")
class Circle:
    pass
faulthandler.dump_traceback_later(60, exit=True)
for _ in range(20000):
    circle = Circle()
    circle.itself = circle
    circle.capsule = tensor.__dlpack__()
    del circle
""")


def test_an_event_is_not_marked_again_before_it_was_waited_for(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, marked = gpu.driver, []

    stream_class = type(driver.queue)

    def wait(stream: Any, event: Any, original: Callable[[Any, Any], None] = stream_class.wait) -> None:
        marked.append(event)
        # What garbage collection does between the mark and the wait.
        if len(marked) < 3:
            driver.wait_for(0)
        assert marked.count(event) == 1
        original(stream, event)

    with monkeypatch.context() as patch:
        patch.setattr(stream_class, "wait", wait)
        driver.wait_for(0)
    assert len(marked) == 3
    result = len(driver._events)
    driver.wait_for(0)
    driver.let_wait(0)
    assert len(driver._events) == result


def test_results_do_not_overwrite_what_they_are_made_of(tensor: Tensor) -> None:
    """Two storages of the same memory are seen to be the same."""
    alias = Tensor.from_dlpack(tensor)
    source = Layout(Shape((12,)), (1,), 0)
    alias.storage.copy_strided_src(tensor.storage, 6, source)
    expected = NUMBERS.reshape(-1).copy()
    expected[6:18] = NUMBERS.reshape(-1)[:12]
    np.testing.assert_array_equal(tensor.numpy().reshape(-1), expected)


def test_numpy_takes_a_copy_on_the_host(tensor: Tensor) -> None:
    taken = np.from_dlpack(tensor, device="cpu")
    np.testing.assert_array_equal(taken, tensor.numpy())
    with pytest.raises(BufferError, match="move them first"):
        np.from_dlpack(tensor, device="cpu", copy=False)


def test_strange_tensors_are_refused(tensor: Tensor) -> None:
    for options in ({"dl_device": (1, 0), "copy": False}, {"dl_device": (7, 0)}):
        with pytest.raises(BufferError, match="move them first"):
            tensor.__dlpack__(**options)

    class Given:
        def __init__(self, capsule: object) -> None:
            self.capsule = capsule

        def __dlpack__(self, stream: int) -> Any:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return tensor.__dlpack_device__()

    source = Given(tensor.__dlpack__())
    Tensor.from_dlpack(source)
    with pytest.raises(InvalidArgument, match="taken before"):
        Tensor.from_dlpack(source)
    other = datetime.datetime_CAPI  # type: ignore[attr-defined]
    for wrong, told in ((5, "5"), (None, "None"), (other, '<capsule object "datetime.datetime_CAPI" at ')):
        with pytest.raises(InvalidArgument, match=f"__dlpack__ gave {told}.*, which is no capsule called dltensor"):
            Tensor.from_dlpack(Given(wrong))


class Lying:
    """Memory of the host, which says that it is the device's; `place` is what its capsule says."""

    def __init__(self, array: np.ndarray, device: Device, index: tuple[int, int]) -> None:
        self.array = array
        self.device = device
        self.place = index

    def __dlpack__(self, stream: int) -> Any:
        capsule = self.array.__dlpack__()
        tensor = dlpack.said_by(capsule)
        tensor.device = dlpack.DeviceOf(*self.place)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.inner.dlpack, self.device.ordinal


def test_memory_of_the_host_is_refused_whatever_is_said_of_it(device: Device) -> None:
    own = device.inner.dlpack, device.ordinal
    array = NUMBERS.copy()
    with pytest.raises(InvalidArgument, match=f"the capsule's memory, at 0x.*, is not that of {device.label}, whose"):
        Tensor.from_dlpack(Lying(array, device, own))
    for index in ((1, 0), (own[0], own[1] + 1)):
        with pytest.raises(InvalidArgument, match=r"the capsule is of device \(.*\) of DLPack, and its source of"):
            Tensor.from_dlpack(Lying(array, device, index))
    # The capsules were not taken, so they gave the array back themselves.
    assert sys.getrefcount(array) == 2
    # Nothing is read where there are no elements.
    assert Tensor.from_dlpack(Lying(array[:0], device, own)).shape == (0, 3, 4)


def test_a_dtype_without_a_code_is_refused(tensor: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DType.F32, "dlpack", None)
    with pytest.raises(UnsupportedDType, match="convert with to_dtype"):
        tensor.__dlpack__()


@pytest.fixture
def torch(device: Device) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if device.backend not in ("cuda", "rocm") or not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU here")
    return torch


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype is not DType.U32 and dtype is not DType.F8E4M3])
def test_pytorch_shares_both_ways(device: Device, torch: Any, dtype: DType, view: str) -> None:
    array = NUMBERS.astype(dtype.numpy)
    inputs = VIEWS[view](Tensor.from_numpy(array, device))
    theirs = torch.from_dlpack(inputs)
    assert theirs.device.index == device.ordinal
    wide = torch.complex128 if dtype.is_complex else torch.float64
    np.testing.assert_array_equal(theirs.to(wide).cpu().numpy(), inputs.numpy().astype(np.complex128))
    back = Tensor.from_dlpack(theirs)
    np.testing.assert_array_equal(back.numpy(), inputs.numpy())
    if theirs.numel() and view != "broadcast":
        assert theirs.data_ptr() == inputs.storage.inner.memory.address + inputs.layout.start_offset * dtype.itemsize
        theirs.fill_(3)
        torch.cuda.synchronize()
        assert (inputs.numpy() == np.array(3).astype(dtype.numpy)).all()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_pytorch_booleans_and_odd_places(torch: Any) -> None:
    taken = Tensor.from_dlpack(torch.tensor([True, False, True], device="cuda"))
    assert (taken.dtype, taken.tolist()) == (DType.BOOL, [True, False, True])
    # Nothing here begins at a multiple of 16 bytes.
    numbers = torch.arange(1001, dtype=torch.float32, device="cuda")
    taken = Tensor.from_dlpack(numbers[1:])
    np.testing.assert_array_equal((taken + taken).numpy(), 2 * np.arange(1, 1001, dtype=np.float32))
    taken.fill_(2)
    taken.device.synchronize()
    assert numbers.tolist() == [0] + [2] * 1000
    with pytest.raises(InvalidArgument, match="no dtype"):
        Tensor.from_dlpack(torch.zeros(2, dtype=torch.complex32, device="cuda"))


def test_pytorch_and_tallow_wait_for_each_other(device: Device, torch: Any) -> None:
    """Each hands over work that is far from done, and the other's streams wait for it, not the host."""
    count = 1 << 26
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            theirs = torch.zeros(count, device="cuda")
            for _ in range(20):
                theirs += 1
            ours = Tensor.from_dlpack(theirs)
            for _ in range(20):
                ours = ours + 1
            again = torch.from_dlpack(ours)
            result = (again + 1).double().sum().item()
        assert result == 41 * count


def test_cupy_shares_both_ways(device: Device) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if device.backend != "cuda":
        pytest.skip("CuPy has no such device")
    tensor = Tensor.from_numpy(NUMBERS, device)
    theirs = cupy.from_dlpack(tensor[:, 1:])
    np.testing.assert_array_equal(cupy.asnumpy(theirs), NUMBERS[:, 1:])
    theirs[...] = 5
    cupy.cuda.get_current_stream().synchronize()
    assert (tensor.numpy()[:, 1:] == 5).all()
    taken = Tensor.from_dlpack(cupy.arange(10, dtype=cupy.float64)[::2])
    assert (taken.dtype, taken.tolist()) == (DType.F64, [0, 2, 4, 6, 8])
