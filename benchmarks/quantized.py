"""Time products with block-quantized weights on a GPU, and measure the tokens a second of a model of 8B."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import tallow as tl
from tallow.gguf import open_gguf, save_gguf
from tallow.models import ExecutionPlan, ModelRuntime

from benchmarks.markdown import fold, markdown
from benchmarks.results import joined, write_page

FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2K", "Q3K", "Q4K", "Q5K", "Q6K")
FORMATS += ("IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_S", "TQ1_0", "TQ2_0", "MXFP4")
SHAPES = ((14336, 4096), (4096, 14336))
# More than any cache holds: so weights come from memory.
MIN_BYTES = 200 << 20
ROUNDS, REPLAYS = 5, 20
LAYERS, WIDTH, HIDDEN, KEYS, VOCABULARY, CONTEXT = 32, 4096, 14336, 1024, 128256, 2048
PROMPT, STEPS, LONG_PROMPT = 16, 64, 512
# Rows of x that are few, and what a sum reads whose speed counts as that of the memory.
FEW = (1, 8, 32)
MANY = (128, 512)
READ_BYTES = 1 << 30

HEAD = """\
# Block-quantized weights

Products with block-quantized weights on a GPU, and a model that consists of them. "exact" multiplies by the decoded
weights, "q8_1" rounds x to integers of a byte first, as Candle and llama.cpp do, and more than 16 rows to bf16."""

PRODUCTS = """\
The time of a product in microseconds, by the number of activation rows. "PyTorch's" is the time of PyTorch's product of
as many rows with weights in f16, which are 3.6 times those of Q4K, and "of PyTorch's" is the ratio of the two."""

MODEL = """\
The model has the sizes of LLaMA 3 8B and random weights in Q4K; it reads a prompt of 16 tokens, then one token a step.
"Prefill" is a prompt of 512 tokens, in tokens a second, as llama.cpp's pp512 counts them. "of the read speed" is what a
step reads, the weights but one embedding and the cache of the prompt, as a share of what the GPU could read meanwhile:
its read speed is what a sum of 1 GiB of floats reaches. "of it, file and cache" counts the complete file and the
complete cache instead."""

METHOD = """\
Calls with different weights, so that these come from memory, are captured in a graph, and the fastest of several rounds
counts; PyTorch's products take turns with them. 128 and 512 rows are in f16: the kernels of Hopper decode the weights
while they multiply, but those of Q3K, which are decoded to memory first. All figures on this page come from the command
in the table, and

    python -m benchmarks.quantized render build/benchmarks/quantized.json docs

renders the page."""

CAUSES = """\
- One row: about 3 us of each product do not depend on its size. They are its first reads and its last sums; kernels
  begin before the ones in front of them end.
- 2 to 16 rows: for 1,024 weights of 16 rows a wave issues 330 instructions, of which 4 are of matrix cores (Q4_0, 8
  rows, "q8_1"); the integers of each scale become floats, and are added in the order of the product of one row. To
  issue them takes 10 of 18 us. Three blocks a multiprocessor took a tenth less time with 896 blocks, and a third more
  with 256. Scales that each lane finds for itself, and numbers of x that are loaded when they are needed, took 3 to 7 %
  more.
- 17 rows and more, exact: turns of 16. Up to 512 rows they take less time than cuBLAS's product of f32 by decoded
  weights.
- 128 and 512 rows: two warps of each scheduler issue 0.4 instructions a cycle. To decode takes two thirds of the time,
  and the products wait for it. Weights that go through shared memory took a quarter more time, scales that each lane
  finds 5 %.
- The model: a token takes 12 launches a layer. Norms and silu(x) * y write x as products read it, queries and keys have
  one rope, and norms add what the layer before leaves. With "q8_1" 129 of 396 launches are products; on an H100 some
  kernel runs for 94 % of a step."""


def driver_of(device: tl.Device) -> Any:
    """The driver of a GPU; ClickException where the device is none."""
    if not hasattr(device.inner, "driver"):
        raise click.ClickException(f"{device.label} is no GPU; name one with --device")
    return device.inner.driver


def blocks_of(name: str, rows: int, hidden: int) -> np.ndarray:
    """The bytes of random blocks, of which the scales are small."""
    generator, dtype = np.random.default_rng(0), tl.GgmlDType(name)
    blocks = generator.integers(0, 256, rows * hidden // dtype.block_size * dtype.type_size, np.uint8).view(dtype.numpy)
    for field in {"d", "dmin", "m", "s"} & set(blocks.dtype.names or ()):
        blocks[field] = generator.normal(0, 0.01, blocks.shape).astype(blocks.dtype[field])
    if name == "MXFP4":
        blocks["e"] = generator.integers(110, 126, blocks.shape)
    return blocks.view(np.uint8)


Round = Callable[[], float]


def rounds_of(device: tl.Device, calls: Sequence[Callable[[], object]]) -> Round:
    """Return a function that measures the microseconds of a call, of those that a graph makes one after the other."""
    for call in (*calls[:2], *calls[:2]):
        call()
    graph = tl.Graph(device)
    with graph.capture():
        for call in calls:
            call()
    graph.replay()
    device.synchronize()
    return lambda: time_of_call(graph.replay, device.synchronize, len(calls))


def time_of_call(replay: Callable[[], object], synchronize: Callable[[], object], calls: int) -> float:
    """The time of one of the calls of a graph in microseconds."""
    begin = perf_counter()
    for _ in range(REPLAYS):
        replay()
    synchronize()
    return (perf_counter() - begin) / REPLAYS / calls * 1e6


def timed(device: tl.Device, calls: Sequence[Callable[[], object]]) -> float:
    """The time of a call in microseconds: that of the fastest round."""
    one_round = rounds_of(device, calls)
    return min(one_round() for _ in range(ROUNDS))


def timed_in_turns(*rounds: Round) -> list[float]:
    """Time several calls, which take turns: the warmer a GPU is, the slower are its products."""
    times = [[one_round() for one_round in rounds] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*times, strict=True)]


def products(device: tl.Device) -> Iterator[dict[str, Any]]:
    """A row of times for each format and shape, once results are compared with those of the CPU."""
    for name in FORMATS:
        for rows, hidden in SHAPES:
            data = blocks_of(name, rows, hidden)
            copies = MIN_BYTES // data.size + 2
            weights = [tl.QTensor(tl.QStorage.from_data(data, device, name), (rows, hidden)) for _ in range(copies)]
            inputs = {
                count: np.random.default_rng(1).standard_normal((count, hidden), np.float32) for count in (*FEW, *MANY)
            }
            row: dict[str, Any] = {"format": name, "weights": f"{rows} x {hidden}", "bytes": data.size}
            for variant, activations in (("exact", None), ("q8_1", "q8_1")):
                ops = [tl.QMatMul(each, activations=activations) for each in weights]
                check(ops[0], data, inputs[8], activations)
                for count in FEW:
                    x = tl.Tensor(inputs[count], device=device)
                    row[f"{variant}, {count}"] = timed(device, [partial(op.forward, x) for op in ops])
            row["decoded to f16"] = timed(device, [each.dequantize_f16 for each in weights])
            for count in MANY:
                halves = inputs[count].astype(np.float16)
                check(ops[0], data, halves, None)
                x = tl.Tensor(halves, device=device)
                ours, theirs = rounds_of(device, [partial(op.forward, x) for op in ops]), peer(rows, hidden, count)
                taken, *other = timed_in_turns(*[ours, theirs] if theirs else [ours])
                row[f"{count} rows"], row[f"{count}, PyTorch's"] = taken, other[0] if other else None
                row[f"{count}, of PyTorch's"] = taken / other[0] if other else None
            yield row


def check(op: tl.QMatMul, data: np.ndarray, x: np.ndarray, activations: str | None) -> None:
    """Refuse to time what is wrong: the CPU multiplies the first rows as well."""
    hidden, device = x.shape[1], op.qtensor.device
    few = 64 * data.size // op.qtensor.shape[0]
    on_cpu = tl.QTensor(tl.QStorage.from_data(data[:few], tl.Device.cpu(), op.qtensor.dtype), (64, hidden))
    expected = tl.QMatMul(on_cpu, activations=activations).forward(tl.Tensor(x)).to_dtype("f32").numpy()
    got = op.forward(tl.Tensor(x, device=device)).to_dtype("f32").numpy()[:, :64]
    # Halves round weights and results, other sums differ in their order.
    least = 3e-5 if x.dtype == np.float32 else 8 * np.finfo(x.dtype).eps
    if not np.abs(got - expected).max() <= least * expected.std():
        raise click.ClickException(f"products of {op.qtensor.dtype} are wrong; run make test-gpu")


@cache
def peer(rows: int, hidden: int, count: int) -> Round | None:
    """Return a function that times the product by PyTorch in f16, where it is installed."""
    try:
        import torch
    except ImportError:
        return None
    weights = [torch.randn(rows, hidden, device="cuda", dtype=torch.float16) for _ in range(4)]
    x = torch.randn(count, hidden, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    _ = x @ weights[0].T
    with torch.cuda.graph(graph):
        for weight in weights:
            _ = x @ weight.T
    # A graph does not keep what it reads.
    operands = x, weights
    return lambda: time_of_call(graph.replay, torch.cuda.synchronize, len(operands[1]))


def peers() -> Iterator[dict[str, Any]]:
    """Time the products by PyTorch."""
    for rows, hidden in SHAPES:
        row: dict[str, Any] = {"format": "PyTorch, f16", "weights": f"{rows} x {hidden}", "bytes": rows * hidden * 2}
        for count in FEW:
            one_round = peer(rows, hidden, count)
            if one_round is None:
                return
            (row[f"exact, {count}"],) = timed_in_turns(one_round)
        yield row


def read_speed_of(device: tl.Device) -> float:
    """The bytes a second that a sum of floats reads."""
    x = tl.zeros((READ_BYTES // 4,), device=device)
    return READ_BYTES / timed(device, [x.sum]) * 1e6


def model(device: tl.Device, read_speed: float, folder: Path) -> Iterator[dict[str, Any]]:
    """Tokens a second of a model of 8B, and the memory that the process then has on the device."""
    weights_of: dict[tuple[int, int], tl.QTensor] = {}

    def matrix(rows: int, hidden: int) -> tl.QTensor:
        if (rows, hidden) not in weights_of:
            generator, count = np.random.default_rng(0), rows * hidden // 256
            blocks = generator.integers(0, 256, count * 144, np.uint8).view(tl.GgmlDType.Q4K.numpy)
            blocks["d"], blocks["dmin"] = 2e-4 * generator.random(count), 1.6e-3 * generator.random(count)
            storage = tl.QStorage.from_data(blocks.view(np.uint8), tl.Device.cpu(), "Q4K")
            weights_of[rows, hidden] = tl.QTensor(storage, (rows, hidden))
        return weights_of[rows, hidden]

    ones = tl.Tensor(np.ones(WIDTH, np.float32))
    tensors: dict[str, tl.Tensor | tl.QTensor] = {
        "token_embd.weight": matrix(VOCABULARY, WIDTH),
        "output.weight": matrix(VOCABULARY, WIDTH),
        "output_norm.weight": ones,
    }
    sizes = {"attn_q": (WIDTH, WIDTH), "attn_k": (KEYS, WIDTH), "attn_v": (KEYS, WIDTH), "attn_output": (WIDTH, WIDTH)}
    sizes |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    for layer in range(LAYERS):
        tensors |= {f"blk.{layer}.{name}.weight": matrix(*size) for name, size in sizes.items()}
        tensors |= {f"blk.{layer}.{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
    keys = {"block_count": LAYERS, "context_length": 8192, "embedding_length": WIDTH, "feed_forward_length": HIDDEN}
    keys |= {"attention.head_count": 32, "attention.head_count_kv": 8, "vocab_size": VOCABULARY}
    metadata: dict[str, Any] = {"general.architecture": "llama", "llama.attention.layer_norm_rms_epsilon": 1e-5}
    metadata |= {"llama.rope.freq_base": 5e5} | {f"llama.{key}": value for key, value in keys.items()}
    before, _ = driver_of(device).memory_info()
    path = folder / "8b.gguf"
    save_gguf(tensors, path, metadata)
    cache = 2 * LAYERS * KEYS * CONTEXT * 4
    for variant, activations in (("exact", None), ("q8_1", "q8_1")):
        with open_gguf(path, device) as file:
            plan = ExecutionPlan.from_gguf(file, activations=activations)
            plan.preload_all()
        runtime = ModelRuntime(plan, CONTEXT)
        prefill = min(seconds_of_prefill(runtime) for _ in range(ROUNDS))
        runtime.prefill(list(range(PROMPT)))
        for token in range(4):
            logits = runtime.decode_step([token])
        logits.numpy()
        begin = perf_counter()
        for token in range(STEPS):
            logits = runtime.decode_step([token])
        logits.numpy()
        step = (perf_counter() - begin) / STEPS
        read = path.stat().st_size - matrix(VOCABULARY, WIDTH).storage_size_in_bytes + cache * PROMPT // CONTEXT
        free, _ = driver_of(device).memory_info()
        yield {
            "variant": variant,
            "prefill": LONG_PROMPT / prefill,
            "tokens a second": 1 / step,
            "of the read speed": read / step / read_speed,
            "of it, file and cache": (path.stat().st_size + cache) / step / read_speed,
            "file and cache, MiB": (path.stat().st_size + cache) / 2**20,
            "taken on the device, MiB": (before - free) / 2**20,
        }
        del runtime, plan


def seconds_of_prefill(runtime: ModelRuntime) -> float:
    """How long it takes to read a prompt, after which nothing is in the cache."""
    begin = perf_counter()
    runtime.prefill(list(range(LONG_PROMPT))).numpy()
    seconds = perf_counter() - begin
    runtime.reset_state()
    return seconds


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Time products with block-quantized weights on a GPU.

    \b
    python -m benchmarks.quantized run --device cuda:0 --output build/benchmarks
    python -m benchmarks.quantized render build/benchmarks/quantized.json docs
    """  # noqa: D301 -- \b is the character that click reads


@main.command()
@click.option("--device", "label", default="cuda:0", show_default=True, help="The device, as tallow labels it.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for quantized.json; else the tables are only printed.",
)
def run(label: str, output: Path | None) -> None:
    """Compare products with the CPU's, then time them, and a model of 8B.

    \b
    python -m benchmarks.quantized run --device cuda:0 --output build/benchmarks
    """  # noqa: D301
    device = tl.Device.parse(label)
    read_speed = read_speed_of(device)
    with tempfile.TemporaryDirectory() as folder:
        models = list(model(device, read_speed, Path(folder)))
    results = {
        "command": " ".join(["python -m benchmarks.quantized", *sys.argv[1:]]),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "device": driver_of(device).name,
        "read speed": f"{read_speed / 1e12:.2f} TB/s",
        "Python": platform.python_version(),
        "tallow": tl.__version__,
        "products": [*products(device), *peers()],
        "models": models,
    }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "quantized.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    click.echo(f"{table(results['models'])}\n\n{table(results['products'])}")


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("output", type=click.Path(file_okay=False, path_type=Path))
def render(file: Path, output: Path) -> None:
    """Write the page of a run.

    \b
    python -m benchmarks.quantized render build/benchmarks/quantized.json docs
    """  # noqa: D301
    results = json.loads(file.read_text(encoding="utf-8"))
    write_page(output / "quantized.md", page(results))


def page(results: dict[str, Any]) -> str:
    """The page, in Markdown."""
    facts = {key: value for key, value in results.items() if key not in ("products", "models")}
    parts = [
        HEAD,
        *("## A model of 8B in Q4K", MODEL, table(results["models"])),
        *("## Products", PRODUCTS, table(results["products"])),
        fold(
            "What keeps these from the speed of the memory, or from that of PyTorch's products, and what was tried",
            CAUSES,
        ),
        *("## How it was measured", METHOD, markdown(["", ""], facts.items())),
    ]
    return joined(parts)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A table of rows; one that lacks a value has a dash there."""
    columns = list(rows[0])
    return markdown(columns, [[formatted(row.get(column)) for column in columns] for row in rows])


def formatted(value: object) -> str:
    """A value as a table has it."""
    if isinstance(value, float):
        return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"
    return "–" if value is None else str(value)


if __name__ == "__main__":
    main()
