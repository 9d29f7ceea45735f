"""The program that each rank of `test_distributed.py` runs: `python -m tallow.launch -n 4 tests/package/ranks.py cpu`.

Every rank knows what the others hold, and NumPy says what all of them together make of that.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tallow as tl
from tallow import Device, DType, Tensor
from tallow import distributed as dist
from tallow.gguf import save_gguf
from tallow.kernels.constants import REDUCED_RANKS
from tallow.models import ExecutionPlan, ModelConfig, ModelRuntime
from tallow.runtime.backends.gpu_backend.driver.gpu_driver import GpuDriver
from tallow.runtime.gradient.node import Node
from tallow.runtime.ranks.group import Group
from tallow.runtime.ranks.mpi import Mpi

JOINED = tuple(dtype.value for dtype in DType)
# Those that a kind of dtypes has, instead of all but mean.
OF_KIND = {"bool": ("min", "max"), "complex": ("sum", "mean"), "float": ("sum", "prod", "min", "max", "mean")}
SHAPES = ((), (1,), (7,), (8, 3), (0, 5), (16, 130), (8, 2, 5))
REDUCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def reductions_of(dtype: str) -> tuple[str, ...]:
    """How ranks join elements of a dtype."""
    return OF_KIND.get(DType(dtype).kind, tuple(REDUCTIONS))


class Collectives:
    """Calls of all ranks, on a device."""

    def __init__(self, device: Device, seed: int = 0, *, full: bool = False) -> None:
        self.group = dist.init()
        self.device = device
        self.joined_dtypes = [name for name in JOINED if device.supports(name)]
        self.seed = seed
        self.full = full

    def generator(self, rank: int, *key: int) -> np.random.Generator:
        """The random numbers of a rank."""
        return np.random.default_rng([self.seed, rank, *key])

    def given(self, shape: tuple[int, ...], dtype: str, *key: int, small: int = 3) -> list[np.ndarray]:
        """Return the array of each rank: integers so small that no dtype rounds their sum."""
        kind = DType(dtype).numpy
        least = 0 if DType(dtype).kind in ("unsigned", "bool") else -small
        ranks = range(self.group.size)
        return [self.generator(rank, *key).integers(least, small, shape).astype(kind) for rank in ranks]

    def tensor(self, array: np.ndarray, placement: int = 0) -> Tensor:
        """An array on the device, which lies there in one of several ways."""
        if placement % 4 == 1 and array.ndim > 1:
            return Tensor.from_numpy(np.ascontiguousarray(array.T)).to(self.device).T
        if placement % 4 == 2 and array.ndim:
            wide = np.repeat(array, 2, axis=-1)
            return Tensor.from_numpy(wide).to(self.device)[..., ::2]
        if placement % 4 == 3 and array.ndim and array.shape[0]:
            longer = np.concatenate([array[:1], array])
            return Tensor.from_numpy(longer).to(self.device)[1:]
        return Tensor.from_numpy(array).to(self.device)

    def same(self, actual: Tensor, expected: np.ndarray) -> None:
        """A result is what NumPy makes, in the same dtype."""
        got = actual.numpy()
        assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
        assert got.dtype == expected.dtype, f"dtype {got.dtype}, expected {expected.dtype}"
        np.testing.assert_array_equal(got.astype(np.complex128), expected.astype(np.complex128))

    def joined(self, arrays: list[np.ndarray], reduction: str) -> np.ndarray:
        """Return NumPy's reduction of the elements of all ranks."""
        dtype = arrays[0].dtype
        wide = [array.astype(np.float64 if DType.from_numpy(dtype).is_float else dtype) for array in arrays]
        if reduction == "mean":
            return (np.add.reduce(wide) / len(wide)).astype(dtype)
        return REDUCTIONS[reduction].reduce(wide, axis=0).astype(dtype)

    def cases(self) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """Dtypes that can be joined, shapes and placements: each shape in every other dtype."""
        for number, dtype in enumerate(self.joined_dtypes):
            for index, shape in enumerate(SHAPES):
                if (number + index) % 2 == 0:
                    yield dtype, shape, number // 2 + index

    def check_all_reduce(self) -> None:
        for dtype, shape, number in self.cases():
            names = reductions_of(dtype)
            reduction = names[number % len(names)]
            arrays = self.given(shape, dtype, number, small=2 if reduction == "prod" else 3)
            result = dist.all_reduce(self.tensor(arrays[self.group.rank], number), reduction)
            self.same(result, self.joined(arrays, reduction))

    def check_few_elements(self) -> None:
        """By turns of sizes, which leave words of earlier calls: one rounding, in the order of the ranks."""
        rank, size = self.group.rank, self.group.size
        library = getattr(self.device.inner, "rccl", None) or getattr(self.device.inner, "nccl", None)
        if library is not None and size > 1:
            dist.all_reduce(self.tensor(np.ones(1, np.float32)))
            assert (library.peers.of(self.group) is not None) == (size <= REDUCED_RANKS)
        if library is None:
            return
        for number, count in enumerate((1, 2, 3, 255, 256, 257, 511, 1000, 1, 4099, 3)):
            for dtype in ("f32", "bf16", "f16"):
                exact = [
                    self.generator(r, number, count).standard_normal(count).astype(np.float32) for r in range(size)
                ]
                rounded = [Tensor(array).to_dtype(dtype) for array in exact]
                sums = rounded[0].to_dtype("f32").numpy().copy()
                for other in rounded[1:]:
                    sums += other.to_dtype("f32").numpy()
                x = rounded[rank].to(self.device)
                for reduction, divisor in (("sum", 1), ("mean", size)):
                    expected = Tensor(sums / np.float32(divisor)).to_dtype(dtype).numpy()
                    for _ in range(3):
                        self.same(dist.all_reduce(x, reduction), expected)

    def check_every_reduction(self) -> None:
        for number, dtype in enumerate(self.joined_dtypes):
            for reduction in reductions_of(dtype):
                arrays = self.given((33,), dtype, number, small=2 if reduction == "prod" else 3)
                x, root = self.tensor(arrays[self.group.rank]), number % self.group.size
                expected = self.joined(arrays, reduction)
                self.same(dist.all_reduce(x, reduction), expected)
                actual = dist.reduce(x, reduction, root)
                self.same(actual, expected if self.group.rank == root else np.zeros_like(expected))

    def check_reduce_scatter(self) -> None:
        rank, size = self.group.rank, self.group.size
        for dtype, shape, number in self.cases():
            if shape and shape[0] % size == 0:
                arrays, reduction = self.given(shape, dtype, number), reductions_of(dtype)[0]
                result = dist.reduce_scatter(self.tensor(arrays[rank], number), reduction)
                self.same(result, np.split(self.joined(arrays, reduction), size)[rank])

    def check_moves(self) -> None:
        rank, size = self.group.rank, self.group.size
        for number, dtype in enumerate(DType):
            if not self.device.supports(dtype):
                continue
            for index, shape in enumerate(SHAPES):
                arrays = self.given(shape, dtype.value, number)
                x, root = self.tensor(arrays[rank], number + index), index % size
                # A group of one gives back what it was given.
                every = arrays[0] if size == 1 else np.concatenate([np.atleast_1d(array) for array in arrays])
                self.same(dist.all_gather(x), every)
                self.same(dist.broadcast(x, root), arrays[root])
                if shape and shape[0] % size == 0:
                    parts = [np.split(array, size)[rank] for array in arrays]
                    self.same(dist.all_to_all(x), np.concatenate(parts))

    def check_send_and_recv(self) -> None:
        rank, size = self.group.rank, self.group.size
        if size % 2:
            return
        arrays = self.given((5, 3), "f32")
        after, before = (rank + 1) % size, (rank - 1) % size
        # In a ring, some rank has to receive first.
        for iteration in (0, 1):
            if rank % 2 == iteration:
                dist.send(self.tensor(arrays[rank], 1), after)
            else:
                self.same(dist.recv((5, 3), before, device=self.device), arrays[before])

    def check_same_bits(self) -> None:
        """Sums of numbers that round, and numbers of trouble, have the same bits on every rank."""
        trouble = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 65504.0])
        for number, dtype in enumerate(name for name in self.joined_dtypes if DType(name).is_float):
            generator = self.generator(self.group.rank, number)
            values = np.concatenate([generator.normal(size=1000), generator.permutation(trouble)])
            x = self.tensor(values.astype(DType(dtype).numpy))
            for reduction in ("sum", "mean", "prod", "min", "max"):
                mine = dist.all_reduce(x, reduction).numpy().tobytes().hex()
                every = self.group.exchange("same bits", mine)
                assert len(set(every)) == 1, f"{reduction} of {dtype} has other bits on some rank"

    def check_groups(self) -> None:
        rank, size = self.group.rank, self.group.size
        arrays = self.given((4, 4), "f32")
        # Odd ranks and even ones, the highest first.
        half = self.group.split(rank % 2, -rank)
        members = sorted((other for other in range(size) if other % 2 == rank % 2), reverse=True)
        assert half.ranks == tuple(members)
        assert half.rank == members.index(rank)
        x = self.tensor(arrays[rank])
        self.same(dist.all_reduce(x, group=half), self.joined([arrays[other] for other in members], "sum"))
        self.same(dist.broadcast(x, half.size - 1, group=half), arrays[members[-1]])
        self.group.barrier()
        half.barrier()

    def check_random_programs(self) -> None:
        """Each call of a program works on what the one before made."""
        rank, size = self.group.rank, self.group.size
        for number in range(1000 if self.full and self.group.size == 4 else 10):
            shared = np.random.default_rng([self.seed, number])
            shape = (size * int(shared.integers(1, 4)), int(shared.integers(1, 5)))
            arrays = self.given(shape, "i64", 1000 + number)
            x = self.tensor(arrays[rank], number)
            for step in range(int(shared.integers(1, 5))):
                x, arrays = self.step(shared, x, arrays)
                if step % 2 and x.rank == 2:
                    x, arrays = x.T, [array.T for array in arrays]
            self.same(x, arrays[rank])

    def step(self, shared: np.random.Generator, x: Tensor, arrays: list[np.ndarray]) -> tuple[Tensor, list[np.ndarray]]:
        """A random call, and what NumPy makes of it on every rank."""
        size, root = self.group.size, int(shared.integers(self.group.size))
        reduction = str(shared.choice([*REDUCTIONS]))
        concatenated = REDUCTIONS[reduction].reduce(arrays, axis=0)
        divides = x.shape[0] % size == 0
        match int(shared.integers(6)):
            case 0:
                return dist.all_reduce(x, reduction), [concatenated] * size
            case 1 if x.elem_count < 1000:
                return dist.all_gather(x), [np.concatenate(arrays)] * size
            case 2:
                return dist.broadcast(x, root), [arrays[root]] * size
            case 3:
                zeros = np.zeros_like(concatenated)
                result = [concatenated if rank == root else zeros for rank in range(size)]
                return dist.reduce(x, reduction, root), result if size > 1 else arrays
            case 4 if divides:
                parts = [np.split(array, size) for array in arrays]
                return dist.all_to_all(x), [np.concatenate([part[rank] for part in parts]) for rank in range(size)]
            case 5 if divides:
                return dist.reduce_scatter(x, reduction), np.split(concatenated, size)
        return x, arrays

    def check_gradients(self) -> None:
        """The gradient of a sum over all ranks, each of which weighs its result."""
        rank, size = self.group.rank, self.group.size
        arrays, weights = self.given((size * 2, 3), "f32", 1), self.given((size * 2, 3), "f32", 2)
        total = np.add.reduce(weights)

        def gradient(call: Callable[[Tensor], Tensor], weight: np.ndarray) -> Tensor:
            w = tl.Var(self.tensor(arrays[rank]))
            grads = (call(w) * self.tensor(weight)).sum().backward()
            return grads[w]

        self.same(gradient(dist.all_reduce, weights[rank]), total)
        self.same(gradient(lambda x: dist.all_reduce(x, "mean"), weights[rank]), (total / size).astype(np.float32))
        every = [np.concatenate(self.given((size * 2, 3), "f32", 3 + other)) for other in range(size)]
        own = np.split(np.add.reduce(every), size)[rank] if size > 1 else every[0]
        self.same(gradient(dist.all_gather, every[rank]), own)
        # Of elements that lie in another order than in the result, whose gradient is that of one dim.
        wide = tl.Var(self.tensor(self.given((size * 2, size * 3), "f32", 4)[rank]))
        every = self.given((size * size * 3, size * 2), "f32", 5)
        grads = (dist.all_gather(wide.T) * self.tensor(every[rank])).sum().backward()
        self.same(grads[wide], np.split(np.add.reduce(every), size)[rank].T if size > 1 else every[0].T)
        every = self.given((size * 6,), "f32", 6)
        grads = (dist.reduce_scatter(wide.T).reshape(-1) * self.tensor(every[rank])).sum().backward()
        self.same(grads[wide], np.concatenate(every).reshape(size * 3, size * 2).T)
        scalar = tl.Var(self.tensor(arrays[rank][0, 0]))
        every_scalar = dist.all_gather(scalar).reshape(-1)
        grads = (every_scalar * self.tensor(weights[rank][:size, 0])).sum().backward()
        self.same(grads[scalar], total[rank, 0])
        for call in (dist.all_reduce, dist.reduce_scatter, dist.reduce) if size > 1 else ():
            try:
                call(scalar * self.tensor(arrays[rank]), "max").sum().backward()
            except tl.GradientError:
                continue
            raise AssertionError(f"the largest of all ranks has a gradient in {call}")
        parts = [np.split(weight, size)[0] for weight in weights]
        self.same(gradient(dist.reduce_scatter, parts[rank]), np.concatenate(parts))
        mean = gradient(lambda x: dist.reduce_scatter(x, "mean"), parts[rank])
        self.same(mean, (np.concatenate(parts) / size).astype(np.float32))
        root = size - 1
        self.same(gradient(lambda x: dist.broadcast(x, root), weights[rank]), total if rank == root else total * 0)
        self.same(gradient(lambda x: dist.reduce(x, "sum", root), weights[rank]), weights[root])
        mean = gradient(lambda x: dist.reduce(x, "mean", root), weights[rank])
        self.same(mean, (weights[root] / size).astype(np.float32))
        sent = np.concatenate([np.split(weight, size)[rank] for weight in weights])
        self.same(gradient(dist.all_to_all, weights[rank]), sent)

    def check_training(self) -> None:
        """Ranks that share batches have the losses of one that takes all of each, in buckets of any size."""
        alone = self.group.split(self.group.rank)
        expected = self.losses(alone)
        np.testing.assert_allclose(self.losses(self.group), expected, rtol=1e-5)
        if self.has_graphs:
            np.testing.assert_allclose(self.losses(self.group, is_captured=True), expected, rtol=1e-5)

    def losses(self, group: Group, *, is_captured: bool = False) -> list[float]:
        """Those of some steps of a group, the first of which makes the calls that a capture needs to have been made."""
        pick = np.random.default_rng(7)
        weights = [tl.Var(self.tensor(pick.normal(size=size).astype(np.float32))) for size in ((6, 9), (9,), (9, 1))]
        # Of the last rank's loss alone; its mean over the ranks is what one rank has of a part of its batch.
        partly, unused = tl.Var(tl.ones(1, device=self.device)), tl.Var(tl.ones(3, device=self.device))
        variables = [unused, partly, *weights]
        optimizer = tl.optim.AdamW(variables, learning_rate=0.05)
        batches = [[pick.normal(size=(16, width)).astype(np.float32) for width in (6, 1)] for _ in range(6)]
        own = slice(group.rank * 16 // group.size, (group.rank + 1) * 16 // group.size)
        x, y = (self.tensor(array[own]) for array in batches[0])

        def step(bucket_bytes: int) -> Tensor:
            results = (x @ weights[0] + weights[1]).tanh() @ weights[2]
            if group.rank == group.size - 1:
                last = results[-1:] * partly
                results = tl.cat([results[:-1], last])
            loss = (results - y).sqr().mean()
            optimizer.step(dist.average_gradients(loss, variables, group=group, bucket_bytes=bucket_bytes))
            return dist.all_reduce(loss.detach(), "mean", group=group)

        taken = [float(step(1).item())]
        graph = tl.Graph(self.device) if is_captured else None
        if graph is not None:
            with graph.capture():
                loss = step(100)
        for number, batch in enumerate(batches[1:]):
            for tensor, array in zip((x, y), batch, strict=True):
                tensor.copy_(self.tensor(array[own]))
            if graph is not None:
                graph.replay()
            else:
                loss = step((1, 100, 1 << 20)[number % 3])
            taken.append(float(loss.item()))
        # All ranks have gone the same way.
        every = self.group.exchange("weights", [weight.numpy().tobytes().hex() for weight in variables])
        assert all(each == every[0] for each in every)
        return taken

    def check_averages(self) -> None:
        """Gradients of several dtypes, those of gradients, and means that have gradients themselves."""
        rank, size = self.group.rank, self.group.size
        dtypes = [name for name in ("f32", "bf16", "f16", "f8e4m3") if self.device.supports(name)]
        arrays = [self.given((4, 3), dtype, number) for number, dtype in enumerate(dtypes)]
        variables = [tl.Var(self.tensor(array[rank])) for array in arrays]
        # Strides of 0, and two uses of a variable.
        total = (
            sum(w.to_dtype("f32").sum() * (rank + index) for index, w in enumerate(variables))
            + variables[0].sqr().sum()
        )
        grads = dist.average_gradients(total, variables)
        for index, (w, each) in enumerate(zip(variables, arrays, strict=True)):
            mean = (size - 1) / 2 + index
            of_squares = 2 * np.mean(each, 0) if index == 0 else 0
            np.testing.assert_allclose(grads[w].to_dtype("f32").numpy(), np.full((4, 3), mean) + of_squares, rtol=0.07)
            assert grads[w].dtype == w.dtype
        w = variables[0]
        # The gradient of w**3 is recorded: the sum of its squares has the gradient 36 w**3.
        slope = (w * w * w).sum().backward(create_graph=True)[w]
        actual = dist.average_gradients(slope.sqr().sum(), [w])[w]
        np.testing.assert_allclose(actual.numpy(), 36 * np.mean([array**3 for array in arrays[0]], 0), rtol=1e-5)
        mean = dist.average_gradients((w * w * w).sum(), [w], create_graph=True)[w]
        np.testing.assert_allclose(mean.detach().numpy(), 3 * np.mean([array**2 for array in arrays[0]], 0), rtol=1e-5)
        # Each rank's mean depends on w by 1 / size, and there are so many of them.
        np.testing.assert_allclose(mean.sum().backward()[w].numpy(), 6 * arrays[0][rank], rtol=1e-5)

    def check_averages_begin_before_backward_ends(self) -> None:
        """Calls for the last layers are under way, beside the others, while gradients of the first are worked out."""
        if self.group.size == 1:
            return
        weights = [tl.Var(self.tensor(np.eye(4, dtype=np.float32))) for _ in range(4)]
        order: list[str] = []
        threads: set[str] = set()
        waits: list[tuple[object, object]] = []
        begin, free, join, wait = Group.begin, Node.free, Mpi.all_reduce, GpuDriver.order

        def begun(group: Group, op: str, *call: object) -> None:
            order.append(op)
            begin(group, op, *call)

        def freed(node: Node) -> None:
            order.append("gradient")
            free(node)

        def joined(*arguments: Any) -> Any:
            threads.add(threading.current_thread().name)
            return join(*arguments)

        def waited(driver: Any, first: Any, second: Any) -> None:
            waits.append((first, second))
            wait(driver, first, second)

        x = self.tensor(np.full((2, 4), self.group.rank, np.float32))
        for weight in weights:
            x = (x @ weight).tanh()
        with (
            patch.object(GpuDriver, "order", waited),
            patch.object(Group, "begin", begun),
            patch.object(Node, "free", freed),
            patch.object(Mpi, "all_reduce", joined),
        ):
            dist.average_gradients(x.sum(), weights, bucket_bytes=1)
        # A product and tanh have a gradient each, and the sum.
        assert order == ["gradient", *["gradient", "gradient", "all_reduce"] * 4], order
        if self.has_graphs:
            # Each call waits for what its gradients come from, and what follows the last for all of them.
            queue = self.device.inner.driver.queue
            assert [(first is queue, second is queue) for first, second in waits] == [(True, False)] * 4 + [
                (False, True)
            ]
        elif self.device.backend == "cpu":
            assert threads == {"tallow-ranks-async"}

    def check_model(self) -> None:
        """Ranks that share a model have the logits of a CPU with all of it, of a file of which each reads a part."""
        size, sizes = self.group.size, {"width": 256, "hidden": 512, "head_dim": 128}
        of_files, of_memory = {2: (("Q4K", "F16"), ("F32", "Q8_0")), 4: (("Q8_0",), ())}.get(size, ((), ()))
        if not self.full:
            of_files, of_memory = of_files[:1], of_memory[:1]
        if not of_files:
            return
        import decoders

        # Ranks can share it.
        decoders.VOCABULARY = 32
        keys = decoders.metadata("llama", **sizes, **{"attention.head_count_kv": 4})
        arrays = decoders.weights("llama", key_heads=4, biased=True, **sizes)
        for format in of_files:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "m.gguf")
                save_gguf(decoders.in_blocks(arrays, format), path, keys)
                complete = ModelRuntime.load_from_gguf(path, Device.cpu())
                shared = ModelRuntime.load_from_gguf(path, self.device, group=self.group)
            for tokens in (decoders.TOKENS, *([token] for token in decoders.TOKENS[:2])):
                self.near(shared.decode_step(tokens), complete.decode_step(tokens))
            read = [runtime.plan.loading_stats.nbytes for runtime in (complete, shared)]
            # The embedding and the vectors are whole on each rank.
            assert read[1] < read[0] * (1 / size + 0.1)
        config = ModelConfig.from_metadata(keys)
        for format in of_memory:
            complete, shared = (
                ModelRuntime(ExecutionPlan(config, decoders.in_blocks(arrays, format, device), device, group=group))
                for device, group in ((Device.cpu(), None), (self.device, self.group))
            )
            self.near(shared.decode_step(decoders.TOKENS), complete.decode_step(decoders.TOKENS))

    def near(self, actual: Tensor, expected: Tensor) -> None:
        """Logits are those of another order of sums."""
        reference = expected.numpy()
        np.testing.assert_allclose(actual.numpy(), reference, rtol=1e-3, atol=1e-3 * np.abs(reference).max())

    def check_graph(self) -> None:
        """Captured calls are made at each replay, with what is in memory then."""
        if not self.has_graphs:
            return
        rank, size = self.group.rank, self.group.size
        arrays, others = self.given((2 * size, 3), "f32", 1), self.given((2 * size, 3), "f32", 2)
        x = self.tensor(arrays[rank])

        def calls() -> list[Tensor]:
            """All that ranks call, on what kernels have made; a rank of an even number sends first."""
            y = x * 2
            result = [
                dist.all_reduce(y),
                dist.all_gather(y),
                dist.reduce_scatter(y, "mean"),
                dist.broadcast(y, size - 1),
            ]
            result += [dist.reduce(y, "max", size - 1), dist.all_to_all(y), dist.all_reduce(y.to_dtype("i16"), "prod")]
            if size % 2 == 0:
                if rank % 2 == 0:
                    dist.send(y, rank + 1)
                result.append(y if rank % 2 == 0 else dist.recv(y.shape, rank - 1, device=self.device))
                if rank % 2:
                    dist.send(y, rank - 1)
                result.append(y if rank % 2 else dist.recv(y.shape, rank + 1, device=self.device))
            return [each + 1 for each in result]

        calls()
        # There until the process ends, which has to close what it recorded before it ends the communicators.
        self.graph = graph = tl.Graph(self.device)
        with graph.capture():
            captured = calls()
        self.same(dist.all_reduce(x), self.joined(arrays, "sum"))
        for inputs in (arrays, others):
            x.copy_(self.tensor(inputs[rank]))
            graph.replay()
            for actual, expected in zip(captured, calls(), strict=True):
                self.same(actual, expected.numpy())
            self.same(captured[0], self.joined(inputs, "sum") * 2 + 1)

    def check_order_with_the_stream(self) -> None:
        """Calls see what was enqueued in front of them, and what follows sees their results."""
        rank, size = self.group.rank, self.group.size
        x = self.tensor(np.full((300, 300), rank + 1, np.float32))
        for _ in range(5):
            x = dist.all_reduce(x * 2) / (2 * size)
        self.same(x, np.full((300, 300), (size + 1) / 2, np.float32))

    def check_slow_rank(self) -> None:
        """A rank that takes its time is no error."""
        if self.group.rank == self.group.size - 1:
            time.sleep(0.3)
        result = dist.all_reduce(self.tensor(np.ones(4, np.float32)))
        self.same(result, np.full(4, self.group.size, np.float32))

    def check_library_of_one(self) -> None:
        """A group of one that calls the library all the same, in a graph too where there are any."""
        alone, array = self.group.split(self.group.rank), self.given((6, 5), "f32")[self.group.rank]
        x = self.tensor(array, 1)

        def called() -> Tensor:
            return Tensor.from_storage(x.storage.all_reduce(x.layout, "sum", alone), (6, 5))

        self.same(called(), array)
        if self.has_graphs:
            graph = tl.Graph(self.device)
            with graph.capture():
                result = called() * 2
            graph.replay()
            self.same(result, array * 2)

    @property
    def has_graphs(self) -> bool:
        """Whether calls can be captured on the device."""
        library = {"cuda": "nccl", "rocm": "rccl"}.get(self.device.backend)
        return library is not None and getattr(self.device.inner, library) is not None

    def run(self, names: str) -> int:
        """Run the checks whose names contain a text."""
        checks = [name for name in dir(self) if name.startswith("check_") and names in name]
        for name in checks:
            getattr(self, name)()
        return len(checks)


def mismatch(collectives: Collectives, _kind: str) -> None:
    """Rank 1 makes another call, which all ranks are told."""
    x, rank = collectives.tensor(np.ones(4, np.float32)), dist.init().rank
    others: dict[str, Callable[[], Tensor]] = {
        "all_gather(f32, (4,))": lambda: dist.all_gather(x),
        "all_reduce(max, f32, (4,))": lambda: dist.all_reduce(x, "max"),
        "all_reduce(sum, f64, (4,))": lambda: dist.all_reduce(x.to_dtype("f64")),
        "all_reduce(sum, f32, (3,))": lambda: dist.all_reduce(x[:3]),
    }
    for text, other in others.items():
        started = time.monotonic()
        try:
            other() if rank == 1 else dist.all_reduce(x)
        except tl.CollectiveMismatch as error:
            result = f"rank 0 called all_reduce(sum, f32, (4,)); rank 1 called {text}"
            assert str(error).endswith(f"the calls of the ranks must match, but {result}"), error
            assert time.monotonic() - started < 5
        else:
            raise AssertionError(f"{text} passes for another call")
    mismatch_of_two(collectives)
    collectives.same(dist.all_reduce(x), np.full(4, dist.init().size, np.float32))


def mismatch_of_two(collectives: Collectives) -> None:
    """Send from rank 0 other elements than rank 1 receives, or call something else meanwhile."""
    x, rank = collectives.tensor(np.ones(4, np.float32)), dist.init().rank

    def take(count: int, source: int, dtype: str = "f32") -> Tensor:
        return dist.recv(count, source, dtype=dtype, device=collectives.device)

    sent = "send(f32, 4 elements, to rank 1)", lambda: dist.send(x, 1)
    pairs: list[tuple[tuple[str, Callable[[], object]], tuple[str, Callable[[], object]]]] = [
        (sent, ("recv(f64, 4 elements, from rank 0)", lambda: take(4, 0, "f64"))),
        (sent, ("recv(f32, 3 elements, from rank 0)", lambda: take(3, 0))),
        (sent, ("send(f32, 4 elements, to rank 0)", lambda: dist.send(x, 0))),
        (sent, ("all_reduce(sum, f32, (4,))", lambda: dist.all_reduce(x))),
        (("recv(f32, 4 elements, from rank 1)", lambda: take(4, 1)), ("barrier()", dist.barrier)),
    ]
    for pair in pairs:
        started = time.monotonic()
        try:
            pair[rank][1]()
        except tl.CollectiveMismatch as error:
            result = f"rank 0 called {pair[0][0]}; rank 1 called {pair[1][0]}"
            assert str(error).endswith(f"the calls of the ranks must match, but {result}"), error
            assert time.monotonic() - started < 5
        else:
            raise AssertionError(f"{pair[0][0]} passes for {pair[1][0]}")
    if rank == 0:
        dist.send(x, 1)
    else:
        collectives.same(take(4, 0), np.ones(4, np.float32))


def death(collectives: Collectives, kind: str) -> None:
    """Rank 1 ends in some way, while the others wait for it."""
    x = collectives.tensor(np.ones(4, np.float32))
    dist.all_reduce(x)
    if dist.init().rank == 1:
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "raised":
            raise ValueError("rank 1 is done for")
        if kind == "averages":
            # The others wait by then.
            time.sleep(1)
        return
    if kind == "silent":
        dist.recv(4, 1, device=collectives.device).numpy()
    if kind == "averages":
        w = tl.Var(x)
        dist.average_gradients(w.sum(), [w])[w].numpy()
    for _ in range(3):
        dist.all_reduce(x).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend")
    parser.add_argument("--checks", default="")
    parser.add_argument("--full", action="store_true", help="more random programs, and models in more formats")
    parser.add_argument("--scene", choices=["mismatch", "death"])
    parser.add_argument("--kind", default="")
    options = parser.parse_args()
    group = dist.init()
    collectives = Collectives(dist.device(options.backend), full=options.full)
    if options.scene:
        {"mismatch": mismatch, "death": death}[options.scene](collectives, options.kind)
        done = "is done"
    else:
        done = f"made {collectives.run(options.checks)} checks"
    # At once: ranks share the output.
    os.write(1, f"rank {group.rank} of {group.size} {done}\n".encode())


if __name__ == "__main__":
    main()
