"""The page about training: its program runs on the device, and its graph learns as its calls do."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest
import tallow as tl
from tallow import Device

from .test_custom_ops_page import PAGE, ran

TRAINING = PAGE.with_name("training.md")


@pytest.fixture(scope="module")
def page(device: Device) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        defined = ran(TRAINING, device)
    return {**defined, "printed": printed.getvalue()}


def test_the_page_shows_what_a_run_prints(page: dict[str, Any]) -> None:
    shown = "".join(re.findall(r"^```text\n(.*?)^```$", TRAINING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    number = re.compile(r"\d+\.\d+")
    assert number.sub("", shown) == number.sub("", page["printed"])
    # Devices round in their own ways.
    actual, expected = ([float(each) for each in number.findall(text)] for text in (page["printed"], shown))
    assert actual == pytest.approx(expected, abs=1e-3, rel=0)


def test_the_model_learns(page: dict[str, Any]) -> None:
    assert page["after"] < 0.25 * page["before"]
    assert page["accuracy"] > 0.95


def test_a_step_in_a_graph_learns_as_the_calls_do(page: dict[str, Any], device: Device) -> None:
    batches = [(page["points"], page["classes"])] * 4
    losses = []
    for is_captured in (True, False):
        weights = {name: tl.Var(weight) for name, weight in page["weights"].items()}
        optimizer = tl.optim.AdamW(weights)
        if is_captured:
            try:
                losses.append(page["learn_in_a_graph"](weights, optimizer, batches))
            except tl.UnsupportedDevice as error:
                pytest.skip(str(error))
            continue
        for number in range(-1, len(batches)):
            if number >= 0:
                optimizer.learning_rate = 0.01 * 0.9**number
            loss = page["loss_of"](weights, page["points"], page["classes"])
            optimizer.step(loss.backward())
        losses.append(loss.item())
    assert losses[0] == losses[1]
