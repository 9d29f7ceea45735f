"""Measure the tokens a second of a model of random weights on the CPU, and those of llama-cpp-python in the same run.

python -m benchmarks.tokens run --threads 2 --output build/benchmarks
python -m benchmarks.tokens render build/benchmarks/tokens.json docs  # or the files of several runs
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Protocol

import click
import numpy as np
import tallow as tl
from tallow.gguf import save_gguf
from tallow.models import ModelRuntime

from .markdown import fold, markdown
from .processor import cores, processor
from .quantized import table
from .results import joined, write_page

LAYERS, WIDTH, HIDDEN, HEADS, KEY_HEADS, HEAD_DIM, VOCABULARY = 8, 1024, 2816, 16, 4, 64, 32000
CONTEXT, PROMPT, STEPS, TURNS = 1024, 512, 32, 7
CACHE_BYTES = 2 * 4 * LAYERS * KEY_HEADS * HEAD_DIM * CONTEXT
# In a pause the threads of the other library fall asleep.
PAUSE = 0.2
FILE, PAGE, PEER = "tokens.json", "tokens.md", "llama-cpp-python"

HEAD = """\
# Tokens a second on the CPU

A llama of random weights on the CPU, compared with llama-cpp-python with as many threads. "prefill" reads a prompt of
512 tokens at once, "decode" reads 32 tokens after it one by one, both in tokens a second. "exact" multiplies by the
decoded weights, of which it stores no copy; "q8_1" rounds the activations of products to integers of a byte first, as
llama.cpp does. "memory" is by how much a process grows until the first token is decoded, less the cache of keys and
values, over the size of the file."""

METHOD = """\
Both libraries read one file, have a cache of keys and values in f32 and take turns; once the logits agree, the medians
are compared. All figures on this page come from the commands below the tables, and

    python -m benchmarks.tokens render build/benchmarks/tokens.json docs

renders the page."""

CAUSES = """\
- "exact" with many rows decodes weights to f32 and multiplies by NumPy's BLAS, where llama.cpp multiplies bytes. In f32
  and "exact", BLAS keeps its threads spinning after a product, and kernels of tallow's own wait for cores: with 16
  threads and OPENBLAS_THREAD_TIMEOUT=4, Q4_0 decodes after a prompt at 405 tokens a second instead of 215, but a
  prompt takes 1.7 times as long, since BLAS then wakes its threads for each product.
- "exact" decode multiplies each row of weights as floats, with vectors; llama.cpp rounds x to bytes first, as "q8_1".
- With 16 threads a token of this model is about a hundred calls of some 20 us each: to wake and join the threads takes
  a part of each.
- Memory: what a prompt of 512 tokens needs meanwhile does not depend on the file, which is small here: up to a fifth of
  the 84 MiB in Q4_0. 7 of these are decoded parts of the weights and the buffers of BLAS, which "q8_1" does without."""


class Model(Protocol):
    """The functions of a library that read tokens. Both return the logits of what follows the last token."""

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        """Forget all tokens, then read these at once."""

    def decode(self, token: int) -> np.ndarray:
        """Read one more."""


class Tallow:
    """The runtime of this package, exact or with activations that are rounded."""

    def __init__(self, path: Path, activations: str | None) -> None:
        self._runtime = ModelRuntime.load_from_gguf(path, "cpu", CONTEXT, activations=activations)

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        self._runtime.reset_state()
        return self._runtime.prefill(tokens).numpy()

    def decode(self, token: int) -> np.ndarray:
        return self._runtime.decode_step([token]).numpy()[0]


class LlamaCpp:
    """llama-cpp-python."""

    def __init__(self, path: Path, threads: int) -> None:
        self._library = __import__("llama_cpp")
        f32 = self._library.GGML_TYPE_F32
        self._llama = self._library.Llama(
            str(path), n_ctx=CONTEXT, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=threads, n_threads_batch=threads,
            type_k=f32, type_v=f32, verbose=False,
        )  # fmt: skip

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        self._llama.reset()
        return self._read(tokens)

    def decode(self, token: int) -> np.ndarray:
        return self._read([token])

    def _read(self, tokens: Sequence[int]) -> np.ndarray:
        self._llama.eval(tokens)
        logits = self._library.llama_get_logits_ith(self._llama.ctx, -1)
        return np.ctypeslib.as_array(logits, (VOCABULARY,)).copy()


def write_model(path: Path, kind: str) -> int:
    """Write a llama of random weights, matrices in a format of GGUF files: how many weights it has."""
    generator = np.random.default_rng(0)

    def matrix(rows: int, hidden: int) -> tl.Tensor | tl.QTensor:
        weights = tl.Tensor(generator.standard_normal((rows, hidden), np.float32) * np.float32(1 / math.sqrt(hidden)))
        return weights if kind == "F32" else tl.QTensor.quantize(weights, tl.GgmlDType(kind))

    ones, rows, key_rows = tl.Tensor(np.ones(WIDTH, np.float32)), HEADS * HEAD_DIM, KEY_HEADS * HEAD_DIM
    tensors: dict[str, tl.Tensor | tl.QTensor] = {
        "token_embd.weight": matrix(VOCABULARY, WIDTH),
        "output.weight": matrix(VOCABULARY, WIDTH),
        "output_norm.weight": ones,
    }
    sizes = {"attn_q": (rows, WIDTH), "attn_k": (key_rows, WIDTH), "attn_v": (key_rows, WIDTH)}
    sizes |= {"attn_output": (WIDTH, rows), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH)}
    sizes |= {"ffn_down": (WIDTH, HIDDEN)}
    for layer in range(LAYERS):
        tensors |= {f"blk.{layer}.{name}.weight": matrix(*size) for name, size in sizes.items()}
        tensors |= {f"blk.{layer}.{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
    keys = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEY_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HEAD_DIM,
        "vocab_size": VOCABULARY,
    }
    # llama.cpp reads no file without a vocabulary.
    bytes_of_text = [f"<0x{byte:02X}>" for byte in range(256)]
    texts = ["<unk>", "<s>", "</s>", *bytes_of_text]
    texts += [f"▁{number}" for number in range(VOCABULARY - len(texts))]
    kinds = np.full(VOCABULARY, 1, np.int32)
    kinds[:3], kinds[3 : 3 + len(bytes_of_text)] = (2, 3, 3), 6
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.scores": np.zeros(VOCABULARY, np.float32),
        "tokenizer.ggml.token_type": kinds,
    }
    save_gguf(tensors, path, metadata | {f"llama.{key}": value for key, value in keys.items()})
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


def require_agreement(models: Sequence[Model], tokens: Sequence[int], bound: float) -> None:
    """Refuse to time what is wrong: logits of a prompt, and of tokens after it, that differ from the first model's."""
    results = [[model.prefill(tokens[:-4]), *(model.decode(token) for token in tokens[-4:])] for model in models]
    for other in results[1:]:
        for logits, expected in zip(other, results[0], strict=True):
            if not np.abs(logits - expected).max() <= bound * expected.std():
                raise click.ClickException(f"logits differ by {np.abs(logits - expected).max() / expected.std():.2g}")


def resident_bytes() -> int:
    """How much memory the process has of the machine's."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def taken_by(load: Callable[[], Model], tokens: Sequence[int], threads: int) -> int:
    """The bytes by which a process of its own grows until a model has decoded a token, less the cache."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(growth, load, tokens, threads).result()


def growth(load: Callable[[], Model], tokens: Sequence[int], threads: int) -> int:
    """Measure a model in this process."""
    tl.set_threads(threads)
    before = resident_bytes()
    model = load()
    model.prefill(tokens)
    model.decode(tokens[0])
    return resident_bytes() - before - CACHE_BYTES


def timed(models: Sequence[Model], tokens: Sequence[int]) -> Iterator[tuple[float, float]]:
    """The tokens a second of each model in prefill and in decode: medians of turns."""
    taken: list[list[tuple[float, float]]] = [[] for _ in models]
    for _ in range(TURNS):
        for model, times in zip(models, taken, strict=True):
            sleep(PAUSE)
            begin = perf_counter()
            model.prefill(tokens)
            middle = perf_counter()
            for token in tokens[:STEPS]:
                model.decode(token)
            times.append((middle - begin, perf_counter() - middle))
    for times in taken:
        yield PROMPT / statistics.median(t for t, _ in times), STEPS / statistics.median(t for _, t in times)


def measure(kind: str, threads: int, folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each library."""
    path = folder / f"{kind}.gguf"
    weights = write_model(path, kind)
    tokens = np.random.default_rng(1).integers(3, VOCABULARY, PROMPT).tolist()
    loads: dict[str, Callable[[], Model]] = {"tallow, exact": partial(Tallow, path, None)}
    if kind != "F32":
        loads["tallow, q8_1"] = partial(Tallow, path, "q8_1")
    if find_spec("llama_cpp"):
        loads[PEER] = partial(LlamaCpp, path, threads)
    memory = {name: taken_by(load, tokens, threads) / path.stat().st_size for name, load in loads.items()}
    models = {name: load() for name, load in loads.items()}
    # llama.cpp rounds what weights in blocks multiply.
    require_agreement(list(models.values()), tokens[:64], 1e-4 if kind == "F32" else 0.2)
    speeds = dict(zip(models, timed(list(models.values()), tokens), strict=True))
    for name, speed in speeds.items():
        row: dict[str, Any] = {"weights": kind, "millions": weights / 1e6, "library": name, "memory": memory[name]}
        for column, own, other in zip(("prefill", "decode"), speed, speeds.get(PEER, (None, None)), strict=True):
            row |= {column: own, f"{column}, over {PEER}": None if name == PEER or other is None else own / other}
        yield row
    path.unlink()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compare a model on the CPU with llama-cpp-python."""


@main.command()
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--format", "kinds", multiple=True, default=("F32", "Q8_0", "Q6K", "Q4K", "Q4_0"), show_default=True)
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="The folder for tokens.json.")
def run(threads: int, kinds: tuple[str, ...], output: Path | None) -> None:
    """Compare the logits of both libraries, then time them."""
    tl.set_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for kind in kinds for row in measure(kind, threads, Path(folder))]
    results = {
        "command": " ".join(["python -m benchmarks.tokens", *sys.argv[1:]]),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Python": platform.python_version(),
        "processor": f"{processor()}, {cores()} cores",
        "tallow": tl.__version__,
        "NumPy": np.__version__,
        "rows": rows,
    }
    if find_spec("llama_cpp"):
        results[PEER] = __import__("llama_cpp").__version__
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / FILE).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    click.echo(table(rows))


@main.command()
@click.argument("files", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def render(files: Sequence[Path], folder: Path) -> None:
    """Write the page of runs."""
    write_page(folder / PAGE, page([json.loads(file.read_text(encoding="utf-8")) for file in files]))


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The page, in Markdown."""
    parts = [HEAD]
    for results in runs:
        facts = {key: value for key, value in results.items() if key != "rows"}
        parts += [f"## {results['processor']}", table(results["rows"])]
        parts.append(fold("Command and versions", markdown(["", ""], facts.items())))
    parts += ["## How it was measured", METHOD]
    return joined([*parts, f"## What keeps these from the speed of {PEER}", CAUSES])


if __name__ == "__main__":
    main()
