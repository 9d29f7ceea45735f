"""The decoder beside one in float64 that has no cache: it reads all tokens anew each time."""

from __future__ import annotations

import numpy as np
import pytest
import tallow as tl
from click.testing import CliRunner

from benchmarks.model.__main__ import main
from benchmarks.model.decoder import ComposedDecoder, Decoder
from benchmarks.model.results import COMPOSED, COMPOSED_GRAPH, FUSED, TALLOW, TALLOW_GRAPH, Results
from benchmarks.model.weights import CONFIGS, random_tokens, random_weights

CONFIG = CONFIGS["tiny"]
BATCH, COUNT = 2, 7


def oracle(weights: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """The logits (vocabulary,) of what follows the tokens of one row."""
    exact = {name: array.astype(np.float64) for name, array in weights.items()}

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ exact[f"{name}.weight"] + exact[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        deviation = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
        return (x - x.mean(axis=-1, keepdims=True)) / deviation * exact[f"{name}.weight"] + exact[f"{name}.bias"]

    x = exact["tokens"][tokens] + exact["positions"][: len(tokens)]
    for layer in range(CONFIG.layers):
        queries, keys, values = np.split(linear(norm(x, f"{layer}.norm1"), f"{layer}.qkv"), 3, axis=-1)
        mixed = np.zeros_like(x)
        for head in range(CONFIG.heads):
            part = slice(head * CONFIG.depth, (head + 1) * CONFIG.depth)
            for index in range(len(tokens)):
                scores = keys[: index + 1, part] @ queries[index, part] / CONFIG.depth**0.5
                shares = np.exp(scores) / np.exp(scores).sum()
                mixed[index, part] = shares @ values[: index + 1, part]
        x = x + linear(mixed, f"{layer}.out")
        up = linear(norm(x, f"{layer}.norm2"), f"{layer}.up")
        gelu = 0.5 * up * (1 + np.tanh((2 / np.pi) ** 0.5 * (up + 0.044715 * up**3)))
        x = x + linear(gelu, f"{layer}.down")
    return exact["tokens"] @ norm(x[-1], "norm")


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return random_weights(CONFIG)


@pytest.fixture(params=[Decoder, ComposedDecoder])
def decoder(request: pytest.FixtureRequest, weights: dict[str, np.ndarray], device: tl.Device) -> Decoder:
    return request.param(CONFIG, {name: tl.Tensor(array, device=device) for name, array in weights.items()})


@pytest.mark.parametrize("is_on_device", [False, True], ids=["position on the host", "position on the device"])
def test_logits_are_those_of_a_decoder_without_a_cache(decoder, weights, device, is_on_device):
    tokens = random_tokens(CONFIG, BATCH, COUNT + 3)
    cache = decoder.new_cache(BATCH)

    def on_device(array: np.ndarray) -> tl.Tensor:
        return tl.Tensor(array, device=device)

    def check(logits: tl.Tensor, count: int) -> None:
        expected = [oracle(weights, row[:count]) for row in tokens]
        np.testing.assert_allclose(logits.numpy(), expected, atol=2e-5)

    check(decoder.prefill(on_device(tokens[:, :COUNT]), cache), COUNT)
    for position in range(COUNT, COUNT + 3):
        token = on_device(tokens[:, position : position + 1])
        if is_on_device:
            logits = decoder.decode_at(token, cache, on_device(np.array([position])))
        else:
            logits = decoder.decode(token, cache, position)
        check(logits, position + 1)


def test_a_run_compares_and_times_every_way_that_is_there(device, label, tmp_path):
    sizes = ["--model", "tiny", "--prompt", "5", "--dtype", "f32", "--batch", "2"]
    done = CliRunner().invoke(main, ["run", "--device", label, *sizes, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = {(row.variant, row.phase): row for row in Results.read(tmp_path / "model.json").rows}
    for phase in ("prefill", "decode"):
        row = rows[TALLOW, phase]
        assert row.wall_seconds >= row.host_seconds > 0
        assert row.difference < 1e-5
        assert rows[FUSED, phase].reason.startswith("PyTorch is ")
        assert rows[COMPOSED, phase].difference < 1e-5
        for variant, captured in ((TALLOW, TALLOW_GRAPH), (COMPOSED, COMPOSED_GRAPH)):
            graph = rows[captured, phase]
            if label == "cpu":
                assert graph.reason == "a graph is a GPU's"
                continue
            assert graph.wall_seconds > 0
            # A prefill is the same ops either variant; a decode step does not know where the token is.
            same = rows[variant, phase].difference
            assert graph.difference == same if phase == "prefill" else graph.difference < 1e-5
    assert (tmp_path / "model.md").is_file()


def test_a_profile_says_how_often_a_step_calls_each_op(device, label):
    done = CliRunner().invoke(
        main, ["profile", "--device", label, "--model", "tiny", "--prompt", "5", "--dtype", "f32"]
    )
    assert done.exit_code == 0, done.output
    calls = {name: int(count) for name, count, *_ in (line.split() for line in done.output.splitlines()[1:-1])}
    assert calls["linear"] == 4 * CONFIG.layers
    assert calls["scaled_dot_product_attention"] == calls["gelu"] == CONFIG.layers
    assert calls["layer_norm"] == 2 * CONFIG.layers + 1
    # The embedding gives the scores.
    assert calls["__matmul__"] == 1
