"""Trains a small character-level GPT from scratch, with tallow tensors and a small tape, and writes text with it.

python examples/gpt.py --device cpu --steps 300

The text is the language reference that ships with Python, in `pydoc_data.topics`; its last tenth is held out. NumPy
picks the pieces to learn from; everything else is tallow's.
"""

from __future__ import annotations

import math
import pydoc_data.topics
import sys
from collections.abc import Callable, Iterator
from time import perf_counter

import click
import numpy as np
import tallow as tl
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tallow import Device, TallowError, Tensor

WIDTH, HEADS, LAYERS, CONTEXT = 128, 4, 3, 64
HIDDEN = 352
BATCH = 16
HIGHEST_RATE = 3e-3
WARM_UP = 20
DECAY = 0.1
BETAS = 0.9, 0.98
# After 300 steps it is about 1.9; letters drawn by how often they occur give 3.2.
REQUIRED_LOSS = 2.3


class Variable:
    """A tensor, and the gradient of the loss by it once there is one."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.slope: Tensor | None = None

    def add_slope(self, slope: Tensor) -> None:
        """Add what one use of the variable contributes to its gradient."""
        self.slope = slope if self.slope is None else self.slope + slope


class Tape:
    """What was computed, each with a function that hands the gradient by the result on to what it was made of."""

    def __init__(self) -> None:
        self._steps: list[tuple[Variable, Callable[[Tensor], None]]] = []

    def made(self, value: Tensor, backward: Callable[[Tensor], None]) -> Variable:
        """Note a result, and what takes its gradient."""
        result = Variable(value)
        self._steps.append((result, backward))
        return result

    def backward(self, loss: Variable) -> None:
        """Give every variable that `loss`, of rank 0, was made of its gradient."""
        loss.slope = Tensor.ones((), device=loss.value.device)
        for result, backward in reversed(self._steps):
            if result.slope is not None:
                backward(result.slope)

    def add(self, x: Variable, y: Variable) -> Variable:
        """x + y, where y may lack the first dim of x."""

        def backward(slope: Tensor) -> None:
            x.add_slope(slope)
            y.add_slope(slope.sum(dim=0) if y.value.rank < x.value.rank else slope)

        return self.made(x.value + y.value, backward)

    def linear(self, x: Variable, weight: Variable) -> Variable:
        """(.., inputs) by a weight (outputs, inputs) to (.., outputs)."""

        def backward(slope: Tensor) -> None:
            x.add_slope(slope @ weight.value)
            weight.add_slope(slope.flatten(0, -2).mT @ x.value.flatten(0, -2))

        return self.made(x.value @ weight.value.mT, backward)

    def embedding(self, weight: Variable, tokens: Tensor) -> Variable:
        """The rows of `weight` that (batch, time) `tokens` name: (batch, time, width)."""

        def backward(slope: Tensor) -> None:
            rows = slope.flatten(0, -2)
            weight.add_slope(weight.value.zeros_like().index_add(tokens.flatten(), rows, 0))

        return self.made(weight.value[tokens], backward)

    def rms_norm(self, x: Variable, weight: Variable) -> Variable:
        """x / sqrt(mean(x * x)) * weight over the last dim (Zhang and Sennrich 2019)."""

        def backward(slope: Tensor) -> None:
            scale = (x.value.sqr().mean(dim=-1, keepdim=True) + 1e-6).rsqrt()
            normed = x.value * scale
            weight.add_slope((slope * normed).flatten(0, -2).sum(dim=0))
            of_normed = slope * weight.value
            x.add_slope(scale * (of_normed - normed * (of_normed * normed).mean(dim=-1, keepdim=True)))

        return self.made(x.value.rms_norm(weight.value), backward)

    def silu_mul(self, gate: Variable, up: Variable) -> Variable:
        """silu(gate) * up (Shazeer 2020)."""

        def backward(slope: Tensor) -> None:
            sigmoid = gate.value.sigmoid()
            silu = gate.value * sigmoid
            up.add_slope(slope * silu)
            gate.add_slope(slope * up.value * (sigmoid + silu * (1 - sigmoid)))

        return self.made(gate.value.silu_mul(up.value), backward)

    def attention(self, joined: Variable, mask: Tensor) -> Variable:
        """Causal self-attention of queries, keys and values side by side, (batch, time, 3 * width)."""
        batch, time, _ = joined.value.shape
        scale = (WIDTH // HEADS) ** -0.5

        def by_head(x: Tensor) -> Tensor:
            return x.reshape(batch, time, HEADS, WIDTH // HEADS).transpose(1, 2)

        def by_place(x: Tensor) -> Tensor:
            return x.transpose(1, 2).reshape(batch, time, WIDTH)

        query, key, value = map(by_head, joined.value.chunk(3, -1))
        weights = (query @ key.mT * scale + mask[:time, :time]).softmax(-1)

        def backward(slope: Tensor) -> None:
            slope = by_head(slope)
            of_weights = slope @ value.mT
            of_scores = weights * (of_weights - (of_weights * weights).sum(dim=-1, keepdim=True)) * scale
            parts = of_scores @ key, of_scores.mT @ query, weights.mT @ slope
            joined.add_slope(tl.cat([by_place(part) for part in parts], -1))

        return self.made(by_place(weights @ value), backward)

    def cross_entropy(self, scores: Variable, targets: Tensor) -> Variable:
        """The mean of -log of what the softmax of (batch, time, tokens) scores gives the (batch, time) targets."""
        logarithms = scores.value.log_softmax(-1)
        places = targets.unsqueeze(-1)

        def backward(slope: Tensor) -> None:
            # The gradient is the probabilities, less 1 at the targets.
            ones = Tensor.full(places.shape, -1.0, device=targets.device)
            scores.add_slope(logarithms.exp().scatter_add_(places, ones, -1) * (slope / targets.elem_count))

        return self.made(-logarithms.gather(places, -1).mean(), backward)


class Decoder:
    """A decoder of characters, with learned positions; the embedding gives the scores too."""

    def __init__(self, tokens: int, device: Device) -> None:
        self.parameters: list[Variable] = []
        self.mask = Tensor.full((CONTEXT, CONTEXT), -math.inf, device=device).triu(1)
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

    def _matrix(self, outputs: int, inputs: int, device: Device, scale: float = 1.0) -> Variable:
        self.parameters.append(Variable(Tensor.randn((outputs, inputs), std=scale * inputs**-0.5, device=device)))
        return self.parameters[-1]

    def _ones(self, device: Device) -> Variable:
        self.parameters.append(Variable(Tensor.ones(WIDTH, device=device)))
        return self.parameters[-1]

    def scores(self, tape: Tape, tokens: Tensor) -> Variable:
        """(batch, time) tokens to the scores of what follows each, (batch, time, tokens)."""
        places = Tensor.arange(tokens.shape[1], device=tokens.device)
        x = tape.add(tape.embedding(self.tokens, tokens), tape.embedding(self.positions, places))
        for norm, joined, mixed, other_norm, gate, up, down in self.layers:
            normed = tape.rms_norm(x, norm)
            x = tape.add(x, tape.linear(tape.attention(tape.linear(normed, joined), self.mask), mixed))
            normed = tape.rms_norm(x, other_norm)
            x = tape.add(x, tape.linear(tape.silu_mul(tape.linear(normed, gate), tape.linear(normed, up)), down))
        return tape.linear(tape.rms_norm(x, self.last), self.tokens)

    def loss(self, tape: Tape, pieces: Tensor) -> Variable:
        """How badly each character of (batch, time + 1) is foretold by those before it, in nats."""
        return tape.cross_entropy(self.scores(tape, pieces[:, :-1]), pieces[:, 1:])

    def write(self, start: Tensor, count: int, temperature: float) -> Iterator[int]:
        """Draw `count` characters that follow (1, time) tokens, each from the probabilities after those before."""
        tokens = start
        for _ in range(count):
            scores = self.scores(Tape(), tokens[:, -CONTEXT:]).value[:, -1]
            # The largest of the scores with Gumbel noise is a draw from their softmax.
            noise = -(-Tensor.rand(scores.shape, lo=1e-9, device=scores.device).log()).log()
            drawn = (scores / temperature + noise).argmax(dim=-1, keepdim=True).to_dtype(tokens.dtype)
            tokens = tl.cat([tokens, drawn], 1)
            yield int(drawn.item())


@tl.fuse
def adam(
    weight: Tensor, slope: Tensor, mean: Tensor, square: Tensor, rate: float, decay: float, step: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A step of Adam with decoupled decay (Loshchilov and Hutter 2019): the weight, and both moments."""
    mean = mean * BETAS[0] + slope * (1 - BETAS[0])
    square = square * BETAS[1] + slope.sqr() * (1 - BETAS[1])
    spread = (square * (1 / (1 - BETAS[1] ** step))).sqrt() + 1e-8
    change = mean * (1 / (1 - BETAS[0] ** step)) / spread + weight * decay
    return weight - change * rate, mean, square


class Trainer:
    """Learns from random pieces of a text."""

    def __init__(self, decoder: Decoder, steps: int) -> None:
        self._decoder = decoder
        self._steps = steps
        self._moments = [(p.value.zeros_like(), p.value.zeros_like()) for p in decoder.parameters]

    def learn(self, pieces: Tensor, step: int) -> Tensor:
        """Go one step down the loss of (batch, time + 1) pieces, and return it."""
        tape = Tape()
        loss = self._decoder.loss(tape, pieces)
        tape.backward(loss)
        cosine = (1 + math.cos(math.pi * step / self._steps)) / 2
        rate = HIGHEST_RATE * min((step + 1) / WARM_UP, 0.1 + 0.9 * cosine)
        for number, parameter in enumerate(self._decoder.parameters):
            mean, square = self._moments[number]
            decay = DECAY if parameter.value.rank > 1 else 0.0
            if parameter.slope is not None:
                parameter.value, *moments = adam(
                    parameter.value, parameter.slope, mean, square, rate, decay, float(step + 1)
                )
                self._moments[number] = moments[0], moments[1]
                parameter.slope = None
        return loss.value


def read_text() -> str:
    """The language reference, in plain characters."""
    return "\n\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore").decode()


def pieces_of(text: Tensor, starts: np.ndarray) -> Tensor:
    """The pieces of CONTEXT + 1 characters that begin at `starts`."""
    return text[Tensor(starts[:, None] + np.arange(CONTEXT + 1), device=text.device)]


def held_out_loss(decoder: Decoder, text: Tensor) -> float:
    """The mean loss over pieces of a text at equal distances."""
    starts = np.linspace(0, text.shape[0] - CONTEXT - 1, 64).astype(np.int64)
    return float(decoder.loss(Tape(), pieces_of(text, starts)).value.item())


def train(decoder: Decoder, text: Tensor, steps: int, seed: int, progress: Progress) -> None:
    """Learn from random pieces of (characters,) text."""
    pick = np.random.default_rng(seed)
    trainer = Trainer(decoder, steps)
    task = progress.add_task("training", total=steps)
    for step in range(steps):
        loss = trainer.learn(pieces_of(text, pick.integers(0, text.shape[0] - CONTEXT, BATCH)), step)
        # Reading the loss waits for the device, so it is read now and then.
        if step % 10 == 0:
            progress.update(task, description=f"training, loss {loss.item():.2f}")
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
    with Progress(TextColumn("{task.description}"), *bar, transient=True, disable=not sys.stdout.isatty()) as progress:
        begin = perf_counter()
        try:
            device = Device.parse(label)
            device.set_seed(seed)
            text = read_text()
            alphabet = sorted(set(text))
            numbers = {character: number for number, character in enumerate(alphabet)}
            tokens = np.array([numbers[character] for character in text], np.int64)
            held_out = len(tokens) // 10
            decoder = Decoder(len(alphabet), device)
            train(decoder, Tensor(tokens[:-held_out], device=device), steps, seed, progress)
            loss = held_out_loss(decoder, Tensor(tokens[-held_out:], device=device))
            seconds = perf_counter() - begin
            start = Tensor([[numbers["\n"]]], device=device)
            written = "".join(alphabet[number] for number in decoder.write(start, characters, 0.8))
        except TallowError as error:
            raise click.ClickException(str(error)) from error
    count = sum(parameter.value.elem_count for parameter in decoder.parameters)
    done = "1 step" if steps == 1 else f"{steps} steps"
    click.echo(
        f"loss on the held-out tenth: {loss:.2f} nats a character ({label}, {count:,} weights, {done}, {seconds:.1f} s)"
    )
    click.echo(written)
    if loss > REQUIRED_LOSS:
        raise click.ClickException(f"the loss is above {REQUIRED_LOSS}; train for more steps")


if __name__ == "__main__":
    main()
