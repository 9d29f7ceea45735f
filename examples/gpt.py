"""Trains a small character-level GPT from scratch, and writes text with it.

python examples/gpt.py --device cpu --steps 300
python -m tallow.launch -n 2 examples/gpt.py --device cuda

Each rank learns from a part of each batch, so that the losses are those of one rank.

The text is the language reference that ships with Python, in `pydoc_data.topics`; its last tenth is held out. NumPy
picks the pieces to learn from; everything else is tallow's.
"""

from __future__ import annotations

import math
import pydoc_data.topics
import sys
from collections.abc import Iterator
from time import perf_counter

import click
import numpy as np
import tallow as tl
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tallow import Device, TallowError, Tensor, Var
from tallow.distributed import Group
from tallow.optim import AdamW

WIDTH, HEADS, LAYERS, CONTEXT = 128, 4, 3, 64
HIDDEN = 352
BATCH = 16
HIGHEST_RATE = 3e-3
WARM_UP = 20
DECAY = 0.1
BETAS = 0.9, 0.98
# After 300 steps it is about 1.9; letters drawn by how often they occur give 3.2.
REQUIRED_LOSS = 2.3


class Decoder:
    """A decoder of characters, with learned positions; the embedding gives the scores too."""

    def __init__(self, tokens: int, device: Device) -> None:
        self.parameters: list[Var] = []
        self.tokens = self._matrix(tokens, WIDTH, device)
        self.positions = self._matrix(CONTEXT, WIDTH, device)
        # What is added to the residual stream is scaled with the number of additions, as in GPT-2.
        added = (2 * LAYERS) ** -0.5
        self.layers = [
            (
                self._ones(device),
                self._matrix(3 * WIDTH, WIDTH, device),
                self._matrix(WIDTH, WIDTH, device, added),
                self._ones(device),
                self._matrix(HIDDEN, WIDTH, device),
                self._matrix(HIDDEN, WIDTH, device),
                self._matrix(WIDTH, HIDDEN, device, added),
            )
            for _ in range(LAYERS)
        ]
        self.last = self._ones(device)

    def _matrix(self, outputs: int, inputs: int, device: Device, scale: float = 1.0) -> Var:
        self.parameters.append(Var(Tensor.randn((outputs, inputs), std=scale * inputs**-0.5, device=device)))
        return self.parameters[-1]

    def _ones(self, device: Device) -> Var:
        self.parameters.append(Var(Tensor.ones(WIDTH, device=device)))
        return self.parameters[-1]

    def scores(self, tokens: Tensor) -> Tensor:
        """(batch, time) tokens to the scores of what follows each, (batch, time, tokens)."""
        x = self.tokens[tokens] + self.positions[: tokens.shape[1]]
        for norm, qkv, mixed, other_norm, gate, up, down in self.layers:
            x = x + attention(x.rms_norm(norm).linear(qkv)).linear(mixed)
            normed = x.rms_norm(other_norm)
            x = x + normed.linear(gate).silu_mul(normed.linear(up)).linear(down)
        return x.rms_norm(self.last).linear(self.tokens)

    def loss(self, pieces: Tensor) -> Tensor:
        """Return the cross entropy of each character of (batch, time + 1) given those before it, in nats."""
        return self.scores(pieces[:, :-1]).flatten(0, 1).cross_entropy(pieces[:, 1:].flatten())

    def write(self, start: Tensor, count: int, temperature: float) -> Iterator[int]:
        """Draw `count` characters that follow (1, time) tokens, each from the probabilities after those before."""
        tokens = start
        for _ in range(count):
            drawn = self._draw(tokens[:, -CONTEXT:], temperature)
            tokens = tl.cat([tokens, drawn.to_dtype(tokens.dtype)], 1)
            yield int(drawn.item())

    @tl.no_grad()
    def _draw(self, tokens: Tensor, temperature: float) -> Tensor:
        scores = self.scores(tokens)[:, -1]
        # The largest of the scores with Gumbel noise is a draw from their softmax.
        noise = -(-Tensor.rand(scores.shape, lo=1e-9, device=scores.device).log()).log()
        return (scores / temperature + noise).argmax(dim=-1, keepdim=True)


def attention(qkv: Tensor) -> Tensor:
    """Causal self-attention of queries, keys and values side by side, (batch, time, 3 * width)."""
    batch, time, _ = qkv.shape
    parts = qkv.reshape(batch, time, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    attended = parts[0].scaled_dot_product_attention(parts[1], parts[2], causal=True)
    return attended.transpose(1, 2).reshape(batch, time, WIDTH)


class Trainer:
    """Learns from random pieces of a text, of which each rank of a group has others."""

    def __init__(self, decoder: Decoder, steps: int, group: Group) -> None:
        self._decoder = decoder
        self._steps = steps
        self._group = group
        matrices, vectors = ([p for p in decoder.parameters if (p.rank > 1) is many] for many in (True, False))
        groups = [{"parameters": matrices, "weight_decay": DECAY}, {"parameters": vectors, "weight_decay": 0.0}]
        self._optimizer = AdamW(groups, betas=BETAS)

    def learn(self, pieces: Tensor, step: int) -> Tensor:
        """Go one step down the loss of (batch, time + 1) pieces of all ranks, and return it."""
        loss = self._decoder.loss(pieces)
        cosine = (1 + math.cos(math.pi * step / self._steps)) / 2
        self._optimizer.learning_rate = HIGHEST_RATE * min((step + 1) / WARM_UP, 0.1 + 0.9 * cosine)
        grads = tl.distributed.average_gradients(loss, self._decoder.parameters, group=self._group)
        self._optimizer.step(grads)
        return tl.distributed.all_reduce(loss.detach(), "mean", group=self._group)


def read_text() -> str:
    """The language reference, in plain characters."""
    return "\n\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore").decode()


def pieces_of(text: Tensor, starts: np.ndarray) -> Tensor:
    """The pieces of CONTEXT + 1 characters that begin at `starts`."""
    return text[Tensor(starts[:, None] + np.arange(CONTEXT + 1), device=text.device)]


def held_out_loss(decoder: Decoder, text: Tensor) -> float:
    """The mean loss over pieces of a text at equal distances."""
    starts = np.linspace(0, text.shape[0] - CONTEXT - 1, 64).astype(np.int64)
    with tl.no_grad():
        return float(decoder.loss(pieces_of(text, starts)).item())


def train(decoder: Decoder, text: Tensor, steps: int, seed: int, progress: Progress, group: Group) -> None:
    """Learn from random pieces of (characters,) text, each of which one rank takes."""
    pick = np.random.default_rng(seed)
    trainer = Trainer(decoder, steps, group)
    task = progress.add_task("training", total=steps)
    for step in range(steps):
        starts = pick.integers(0, text.shape[0] - CONTEXT, BATCH)[group.rank :: group.size]
        loss = trainer.learn(pieces_of(text, starts), step)
        # Reading the loss waits for the device, so it is read now and then.
        if step % 10 == 0:
            progress.update(task, description=f"training, loss {loss:.4f}")
        if step % 50 == 0 and group.rank == 0:
            progress.console.print(f"step {step}: loss {loss:.4f}", highlight=False)
        progress.advance(task)


@click.command()
@click.option(
    "--device", "label", default="cpu", show_default=True, help="cpu, cuda, rocm or metal; rocm:1 is the second."
)
@click.option("--steps", type=click.IntRange(min=1), default=300, show_default=True, help="Batches to learn from.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the weights, the pieces and the text."
)
@click.option(
    "--characters", type=click.IntRange(min=0), default=300, show_default=True, help="How many are written in the end."
)
def main(label: str, steps: int, seed: int, characters: int) -> None:
    """Train a small GPT on Python's language reference, and write text with it.

    Exit code 1 if its loss on new text is above 2.3 nats a character.
    """
    bar = BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeRemainingColumn()
    group = tl.distributed.init()
    if BATCH % group.size:
        raise click.ClickException(f"{group.size} ranks cannot share {BATCH} pieces; start 1, 2, 4, 8 or 16")
    is_shown = sys.stdout.isatty() and group.rank == 0
    with Progress(TextColumn("{task.description}"), *bar, transient=True, disable=not is_shown) as progress:
        begin = perf_counter()
        try:
            device = tl.distributed.device(label) if group.size > 1 else Device.parse(label)
            device.set_seed(seed)
            text = read_text()
            alphabet = sorted(set(text))
            numbers = {character: number for number, character in enumerate(alphabet)}
            tokens = np.array([numbers[character] for character in text], np.int64)
            held_out = len(tokens) // 10
            decoder = Decoder(len(alphabet), device)
            train(decoder, Tensor(tokens[:-held_out], device=device), steps, seed, progress, group)
            loss = held_out_loss(decoder, Tensor(tokens[-held_out:], device=device))
            seconds = perf_counter() - begin
            start = Tensor([[numbers["\n"]]], device=device)
            written = "".join(alphabet[number] for number in decoder.write(start, characters, 0.8))
        except TallowError as error:
            raise click.ClickException(str(error)) from error
    if group.rank > 0:
        return
    count = sum(parameter.elem_count for parameter in decoder.parameters)
    done = "1 step" if steps == 1 else f"{steps} steps"
    click.echo(
        f"loss on the held-out tenth: {loss:.2f} nats a character ({label}, {count:,} weights, {done}, {seconds:.1f} s)"
    )
    click.echo(written)
    if loss > REQUIRED_LOSS:
        raise click.ClickException(f"the loss is above {REQUIRED_LOSS}; train for more steps")


if __name__ == "__main__":
    main()
