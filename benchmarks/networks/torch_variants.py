"""Variants of running a task by PyTorch and onnxruntime. Imports torch."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.machine import without_garbage_collection

from .layers import STATISTICS, Array
from .networks import Network
from .results import COMPILED, GRAPHS, TRAINING, TUNED, Task
from .torch_layers import TorchLayers, loss

Step = Callable[[], list[torch.Tensor]]

_KINDS = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
_WARM_STEPS = 3


def torch_step(variant: str, task: Task, network: Network, weights: dict[str, Array], x: Array, device: str) -> Step:
    """See `tallow_variants.tallow_step`."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = variant == TUNED
    is_training = task.phase == TRAINING

    def tensor(array: Array) -> torch.Tensor:
        layout = torch.channels_last if variant == COMPILED and array.ndim == 4 else torch.contiguous_format
        return torch.from_numpy(array).to(device, _KINDS[task.dtype], copy=True).contiguous(memory_format=layout)

    own = {name: tensor(array) for name, array in weights.items()}
    for name, weight in own.items():
        weight.requires_grad_(is_training and not name.endswith(STATISTICS))
    net = TorchLayers(own, training=is_training)
    inputs = tensor(x)
    with torch.no_grad():
        shape = tuple(network.apply(net, inputs).shape)
    apply: Callable[[torch.Tensor], torch.Tensor] = lambda x: network.apply(net, x)  # noqa: E731
    if is_training:
        array = network.targets(shape)
        targets = torch.from_numpy(array).to(device, inputs.dtype if array.dtype.kind == "f" else torch.int64)
        step = _training_step(lambda: loss(apply(inputs), targets), net.weights, variant)
    else:
        step = _inference_step(apply, inputs, variant)
    return _captured(step) if variant in GRAPHS else step


def _inference_step(apply: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor, variant: str) -> Step:
    if variant == COMPILED:
        apply = _compiled(apply)

    def step() -> list[torch.Tensor]:
        with torch.inference_mode():
            return [apply(inputs)]

    return step


def _training_step(loss_of: Callable[[], torch.Tensor], weights: dict[str, torch.Tensor], variant: str) -> Step:
    parameters = [x for _, x in sorted(weights.items()) if x.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.0, momentum=0.9)
    if variant == COMPILED:
        loss_of = _compiled(loss_of)

    def step() -> list[torch.Tensor]:
        optimizer.zero_grad()
        result = loss_of()
        result.backward()
        optimizer.step()
        return [result.detach(), *[x.grad for x in parameters if x.grad is not None]]

    return step


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    # Code of functions that are built alike counts, and of that PyTorch compiles little.
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)


def _captured(step: Step) -> Step:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    return _Captured(step)


class _Captured:
    """A step that is replayed. It holds what the graph reads, which the graph does not."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._graph = torch.cuda.CUDAGraph()
        # Memory that others release meanwhile must not end the capture.
        with without_garbage_collection(), torch.cuda.graph(self._graph, capture_error_mode="relaxed"):
            self._results = step()

    def __call__(self) -> list[torch.Tensor]:
        self._graph.replay()
        return self._results


def onnx_step(task: Task, network: Network, weights: dict[str, Array], x: Array) -> Callable[[], list[Array]]:
    """The network as PyTorch exports it, on onnxruntime."""
    import onnxruntime

    net = TorchLayers({name: torch.from_numpy(array) for name, array in weights.items()}, training=False)

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = network.apply(net, x)
            return y

    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # Of the exporter's age, and of sizes that it takes for constants.
        warnings.simplefilter("ignore")
        # Makes the modules, which are no part of the network.
        network.apply(net, torch.from_numpy(x))
        torch.onnx.export(Module(), (torch.from_numpy(x),), file, dynamo=False, input_names=["x"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})  # type: ignore[no-any-return]


def reference(task: Task, network: Network, weights: dict[str, Array], x: Array, device: str) -> list[Array]:
    """The results in f64."""
    return arrays(torch_step("", task._replace(dtype="f64"), network, weights, x, device)())


def arrays(results: list[torch.Tensor]) -> list[Array]:
    """Results as arrays of f64."""
    return [x.detach().double().cpu().numpy() for x in results]
