"""The examples: that the gradients of gpt.py are those of its loss, and that it learns."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.progress import Progress
from tallow import Device, Tensor

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKENS = 11


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def gpt(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example, with a model that a test has time for."""
    module = example("gpt")
    for name, size in {"WIDTH": 16, "HEADS": 2, "LAYERS": 2, "CONTEXT": 8, "HIDDEN": 24, "BATCH": 4}.items():
        monkeypatch.setattr(module, name, size)
    return module


def test_the_gradients_are_those_of_the_loss(gpt: ModuleType, device: Device) -> None:
    device.set_seed(0)
    generator = np.random.default_rng(0)
    decoder = gpt.Decoder(TOKENS, device)
    pieces = Tensor(generator.integers(0, TOKENS, (4, 9)), device=device)
    grads = decoder.loss(pieces).backward()
    for parameter in decoder.parameters:
        # Along the gradient itself the loss changes most, so that rounding matters least.
        slope = grads[parameter]
        size = float(slope.norm().item())
        weight, step = parameter.detach().copy(), slope * (0.03 / size)
        losses = []
        for moved in (weight + step, weight - step):
            parameter.set_(moved)
            losses.append(float(decoder.loss(pieces).item()))
        parameter.set_(weight)
        assert (losses[0] - losses[1]) / 0.06 == pytest.approx(size, rel=0.02)


def test_a_short_training_learns_and_writes(gpt: ModuleType, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt, "read_text", lambda: "to be or not to be\n" * 40)
    monkeypatch.setattr(gpt, "REQUIRED_LOSS", 1.5)
    done = CliRunner().invoke(gpt.main, ["--device", device.label, "--steps", "60", "--characters", "7"])
    assert done.exit_code == 0, done.output
    progress, remaining = done.output.split("loss on the held-out tenth: ")
    losses = re.fullmatch(r"step 0: loss (\d\.\d{4})\nstep 50: loss (\d\.\d{4})\n", progress)
    assert losses is not None, progress
    assert float(losses[2]) < float(losses[1])
    assert len(remaining.split("\n", 1)[1].rstrip("\n")) == 7


def test_what_has_not_learnt_fails(gpt: ModuleType, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt, "read_text", lambda: "to be or not to be\n" * 40)
    done = CliRunner().invoke(gpt.main, ["--device", device.label, "--steps", "1", "--characters", "1"])
    assert done.exit_code == 1
    assert "train for more steps" in done.output


def test_a_terminal_shows_the_loss_and_a_progress_line(device: Device) -> None:
    terminal = io.StringIO()
    with Progress(console=Console(file=terminal, force_terminal=True, width=80)) as progress:
        example("digits").train(device, 2, 0, progress)
    assert re.findall(r"epoch \d of 2: loss \d\.\d{4}\n", terminal.getvalue()) != []
    assert f"training on {device.label}" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
