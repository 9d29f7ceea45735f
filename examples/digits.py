"""Trains a small classifier on handwritten digits.

python examples/digits.py --device cpu --epochs 12

The data are the 1797 images of 8 x 8 pixels of scikit-learn's `load_digits`, from the UCI repository. Four fifths are
trained on, one fifth is held out. NumPy loads and shuffles; everything else is tallow's.
"""

from __future__ import annotations

import sys
from time import perf_counter

import click
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from sklearn.datasets import load_digits
from tallow import Device, DType, TallowError, Tensor, Var, no_grad, stack
from tallow.optim import SGD

CLASSES = 10
HIDDEN = 128
BATCH = 32
LEARNING_RATE = 0.1
MOMENTUM = 0.9
REQUIRED_ACCURACY = 0.95


class Classifier:
    """Two layers with a relu between them: 64 pixels to a score for each digit."""

    def __init__(self, pixels: int, device: Device) -> None:
        self.hidden = self._layer(pixels, HIDDEN, device)
        self.output = self._layer(HIDDEN, CLASSES, device)
        self.optimizer = SGD([*self.hidden, *self.output], LEARNING_RATE, momentum=MOMENTUM)

    def _layer(self, inputs: int, outputs: int, device: Device) -> tuple[Var, Var]:
        # Of this scale, the outputs of a layer with relu vary as its inputs do (He et al. 2015).
        weight = Tensor.randn((outputs, inputs), std=(2 / inputs) ** 0.5, device=device)
        return Var(weight), Var(Tensor.zeros(outputs, device=device))

    def scores(self, images: Tensor) -> Tensor:
        """(batch, pixels) to (batch, classes)."""
        return images.linear(*self.hidden).relu().linear(*self.output)

    def learn(self, images: Tensor, digits: Tensor) -> Tensor:
        """Go one step down the cross entropy of (batch, pixels) and the (batch,) digits that they show; return it."""
        loss = self.scores(images).cross_entropy(digits)
        self.optimizer.step(loss.backward())
        return loss.detach()

    def accuracy(self, images: Tensor, digits: Tensor) -> float:
        """The share of `images` whose highest score is that of their digit."""
        return float((self.scores(images).argmax(dim=1) == digits).to_dtype(DType.F32).mean().item())


def train(device: Device, epochs: int, seed: int, progress: Progress) -> float:
    """Return the accuracy on the held-out fifth after `epochs` rounds over the other four."""
    shuffle = np.random.default_rng(seed)
    device.set_seed(seed)
    data = load_digits()
    order = shuffle.permutation(len(data.target))
    images = Tensor((data.data[order] / 16).astype(np.float32), device=device)
    digits = Tensor(data.target[order].astype(np.uint32), device=device)
    trained = len(order) - len(order) // 5

    classifier = Classifier(images.shape[1], device)
    task = progress.add_task(f"training on {device.label}", total=epochs)
    for epoch in range(1, epochs + 1):
        shuffled = shuffle.permutation(trained).astype(np.uint32)
        losses = []
        for start in range(0, trained, BATCH):
            batch = Tensor(shuffled[start : start + BATCH], device=device)
            losses.append(classifier.learn(images.index_select(batch, 0), digits.index_select(batch, 0)))
        # Printing a loss waits for the device, so it is done once an epoch.
        progress.console.print(f"epoch {epoch} of {epochs}: loss {stack(losses).mean():.4f}", highlight=False)
        progress.advance(task)
    with no_grad():
        return classifier.accuracy(images[trained:], digits[trained:])


@click.command()
@click.option(
    "--device", "label", default="cpu", show_default=True, help="cpu, cuda, rocm or metal; rocm:1 is the second."
)
@click.option(
    "--epochs", type=click.IntRange(min=1), default=12, show_default=True, help="Rounds over the training data."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the shuffling and the weights."
)
def main(label: str, epochs: int, seed: int) -> None:
    """Train a small classifier on handwritten digits. Exit code 1 if it is right on less than 95 % of new ones."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs")
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as progress:
        start = perf_counter()
        try:
            device = Device.parse(label)
            accuracy = train(device, epochs, seed, progress)
        except TallowError as error:
            raise click.ClickException(str(error)) from error
        seconds = perf_counter() - start
    rounds = "1 epoch" if epochs == 1 else f"{epochs} epochs"
    click.echo(f"accuracy on the held-out fifth: {100 * accuracy:.0f} % ({device.label}, {rounds}, {seconds:.1f} s)")
    if accuracy < REQUIRED_ACCURACY:
        raise click.ClickException(f"that is below {100 * REQUIRED_ACCURACY:.0f} %; train for more epochs")


if __name__ == "__main__":
    main()
