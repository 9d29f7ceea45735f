"""Decoders of random weights beside NumPy in float64, their cache, how they draw tokens, and the command."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tallow import Device, DType, GgmlDType, InvalidArgument, QTensor, Tensor
from tallow.gguf import open_gguf, save_gguf
from tallow.runtime import ExecutionPlan, KVCache, ModelConfig, ModelRuntime, Sampler, ScratchBufferManager

Arrays = dict[str, NDArray[Any]]

VOCABULARY, CONTEXT = 29, 40
TEXTS = ["<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrstuvwxy"]
TOKENS = np.random.default_rng(5).integers(0, VOCABULARY, 12).tolist()


def metadata(architecture: str, **changes: object) -> dict[str, Any]:
    """The keys of a small model, changed or, with None, without some."""
    keys = {
        "block_count": 2,
        "embedding_length": 24,
        "feed_forward_length": 20,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 8,
        "attention.value_length": 8,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "context_length": CONTEXT,
        "rope.freq_base": 100.0,
        **changes,
    }
    found = {f"{architecture}.{key}": value for key, value in keys.items() if value is not None}
    return {"general.architecture": architecture, **found}


def weights(
    architecture: str,
    *,
    key_heads: int = 2,
    tied: bool = False,
    biased: bool = False,
    width: int = 24,
    hidden: int = 20,
) -> Arrays:
    """Random weights, by the names of GGUF files."""
    random = np.random.default_rng(7)
    rows, key_rows = 4 * 8, key_heads * 8
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, width), "output_norm.weight": (width,)}
    if not tied:
        shapes["output.weight"] = (VOCABULARY, width)
    for layer in range(2):
        parts = {
            "attn_norm.weight": (width,),
            "ffn_norm.weight": (width,),
            "attn_q.weight": (rows, width),
            "attn_k.weight": (key_rows, width),
            "attn_v.weight": (key_rows, width),
            "attn_output.weight": (width, rows),
            "ffn_gate.weight": (hidden, width),
            "ffn_up.weight": (hidden, width),
            "ffn_down.weight": (width, hidden),
        }
        if biased or architecture == "qwen2":
            parts |= {"attn_q.bias": (rows,), "attn_k.bias": (key_rows,), "attn_v.bias": (key_rows,)}
        if architecture == "qwen3":
            parts |= {"attn_q_norm.weight": (8,), "attn_k_norm.weight": (8,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
    return {
        name: (random.standard_normal(shape) * (2 / math.sqrt(width)) + ("norm" in name)).astype(np.float32)
        for name, shape in shapes.items()
    }


def oracle(architecture: str, arrays: Arrays, tokens: list[int], base: float = 100.0) -> NDArray[Any]:
    """The logits (tokens, vocabulary) of a decoder, in float64."""
    w = {name: array.astype(np.float64) for name, array in arrays.items()}
    n, halves = len(tokens), architecture.startswith("qwen")
    frequencies = base ** (-np.arange(0, 8, 2) / 8) / w.get("rope_freqs.weight", 1)
    turns = np.exp(1j * np.arange(n)[:, None] * frequencies)

    def norm(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    def turned(x: NDArray[Any]) -> NDArray[Any]:
        pairs = x[..., :4] + 1j * x[..., 4:] if halves else x[..., 0::2] + 1j * x[..., 1::2]
        pairs = pairs * turns
        parts = (pairs.real, pairs.imag)
        return np.concatenate(parts, -1) if halves else np.stack(parts, -1).reshape(x.shape)

    x = w["token_embd.weight"][tokens]
    for layer in range(2):
        of = {name.split(".", 2)[2]: array for name, array in w.items() if name.startswith(f"blk.{layer}.")}
        normed = norm(x, of["attn_norm.weight"])
        q, k, v = (
            (normed @ of[f"attn_{part}.weight"].T + of.get(f"attn_{part}.bias", 0)).reshape(n, -1, 8).swapaxes(0, 1)
            for part in "qkv"
        )
        if architecture == "qwen3":
            q, k = norm(q, of["attn_q_norm.weight"]), norm(k, of["attn_k_norm.weight"])
        k, v = (np.repeat(part, len(q) // len(k), axis=0) for part in (turned(k), v))
        scores = turned(q) @ k.swapaxes(1, 2) / math.sqrt(8) + np.triu(np.full((n, n), -np.inf), 1)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        found = (shares / shares.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(n, -1)
        x = x + found @ of["attn_output.weight"].T
        normed = norm(x, of["ffn_norm.weight"])
        gate = normed @ of["ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (normed @ of["ffn_up.weight"].T)) @ of["ffn_down.weight"].T
    head = w.get("output.weight", w["token_embd.weight"])
    return norm(x, w["output_norm.weight"]) @ head.T


def saved(path: Path, arrays: Arrays, values: Mapping[str, Any], dtype: DType = DType.F32) -> Path:
    tensors = {name: Tensor(array).to_dtype(dtype if array.ndim > 1 else DType.F32) for name, array in arrays.items()}
    save_gguf(tensors, path, values)
    return path


def agree(logits: Tensor, expected: NDArray[Any]) -> None:
    """Within 2e-5 of the standard deviation on the CPU, 1e-4 elsewhere."""
    bound = 2e-5 if logits.device == Device.cpu() else 1e-4
    assert np.abs(logits.numpy() - expected).max() <= bound * expected.std()


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases, one key head and a tied head": ("llama", {"key_heads": 1, "tied": True, "biased": True}),
    "mistral": ("mistral", {"key_heads": 4}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_definition(device: Device, tmp_path: Path, name: str) -> None:
    architecture, options = CASES[name]
    arrays = weights(architecture, **options)
    key_heads = options.get("key_heads", 2)
    path = saved(tmp_path / "m.gguf", arrays, metadata(architecture, **{"attention.head_count_kv": key_heads}))
    expected = oracle(architecture, arrays, TOKENS)
    runtime = ModelRuntime.load_from_gguf(path, device)
    agree(runtime.decode_step(TOKENS), expected)
    runtime.reset_state()
    # The third step of one token and those behind it are replays, on a GPU.
    for token, row in zip(TOKENS, expected, strict=True):
        agree(runtime.decode_step([token])[0], row)
    runtime.reset_state()
    agree(runtime.prefill(TOKENS[:-1], piece=5), expected[-2])
    agree(runtime.decode_step([TOKENS[-1]])[0], expected[-1])
    assert runtime.cache.length == len(TOKENS)


def test_weights_of_16_bits_are_read_as_they_are(device: Device, tmp_path: Path) -> None:
    arrays = weights("llama")
    for dtype in (DType.F16, DType.BF16):
        path = saved(tmp_path / "m.gguf", arrays, metadata("llama"), dtype)
        with open_gguf(path) as file:
            rounded = {name: tensor.load().to_dtype("f32").numpy() for name, tensor in file.items()}
        agree(ModelRuntime.load_from_gguf(path, device).decode_step(TOKENS), oracle("llama", rounded, TOKENS))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4K", "Q6K"])
def test_matrices_stay_in_their_blocks(device: Device, tmp_path: Path, name: str) -> None:
    format = GgmlDType(name)
    arrays = weights("llama", tied=True, width=256, hidden=256)
    whole = {key for key, array in arrays.items() if array.ndim > 1 and array.shape[1] % format.block_size == 0}
    blocks = {key: QTensor.quantize(Tensor(arrays[key]), format) for key in whole}
    tensors = {key: blocks.get(key, Tensor(array)) for key, array in arrays.items()}
    path = tmp_path / "m.gguf"
    save_gguf(tensors, path, metadata("llama", embedding_length=256, feed_forward_length=256))
    decoded = arrays | {key: tensor.dequantize().numpy() for key, tensor in blocks.items()}
    expected = oracle("llama", decoded, TOKENS)
    runtime = ModelRuntime.load_from_gguf(path, device)
    agree(runtime.decode_step(TOKENS), expected)
    runtime.reset_state()
    for token, row in zip(TOKENS[:4], expected, strict=False):
        agree(runtime.decode_step([token])[0], row)
    with open_gguf(path, device) as file:
        plan = ExecutionPlan.from_gguf(file, save_memory=True)
        agree(ModelRuntime(plan).decode_step(TOKENS), expected)


@pytest.mark.parametrize("name", ["F16", "Q8_0", "Q4_0", "Q4K", "Q6K"])
def test_rounded_activations_move_logits_by_less_than_a_fifth_of_their_deviation(device: Device, name: str) -> None:
    # Matrices have a deviation of 0.02, with which transformers begins.
    arrays = {
        key: array * 0.16 if array.ndim > 1 else array for key, array in weights("llama", width=256, hidden=256).items()
    }
    tensors = {
        key: QTensor.quantize(Tensor(array, device=device), name)
        if array.shape[-1] == 256 and array.ndim == 2
        else Tensor(array, device=device)
        for key, array in arrays.items()
    }
    config = ModelConfig.from_metadata(metadata("llama", embedding_length=256, feed_forward_length=256))
    exact = ModelRuntime(ExecutionPlan(config, tensors, device))
    rounded = ModelRuntime(ExecutionPlan(config, tensors, device, activations="q8_1"))
    expected = exact.decode_step(TOKENS[:8]).numpy()
    logits = np.concatenate([rounded.decode_step([token]).numpy() for token in TOKENS[:8]])
    off = np.abs(logits - expected).max() / expected.std()
    assert off < 1e-4 if name == "F16" else 1e-3 < off < 0.2
    with pytest.raises(InvalidArgument, match="activations is 'q8_1' or None, not 'q4'"):
        ExecutionPlan(config, tensors, device, activations="q4")


def test_frequencies_of_a_file_and_scaled_places(device: Device) -> None:
    arrays = weights("llama") | {"rope_freqs.weight": np.array([1, 2, 4, 8], np.float32)}
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    config = ModelConfig.from_metadata(metadata("llama"))
    runtime = ModelRuntime.new_with_config(config, tensors, device, max_seq_len=16)
    agree(runtime.decode_step(TOKENS), oracle("llama", arrays, TOKENS))
    # Places divided by 2 are frequencies divided by 2.
    arrays["rope_freqs.weight"] *= 2
    scaled = metadata("llama", **{"rope.scaling.type": "linear", "rope.scaling.factor": 2.0})
    runtime = ModelRuntime.new_with_config(ModelConfig.from_metadata(scaled), tensors, device, max_seq_len=16)
    agree(runtime.decode_step(TOKENS), oracle("llama", arrays, TOKENS))


def test_hidden_states_are_read_like_tokens(device: Device) -> None:
    arrays = weights("qwen2")
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    runtime = ModelRuntime.new_with_config(ModelConfig.from_metadata(metadata("qwen2")), tensors, device)
    hidden = Tensor(arrays["token_embd.weight"][TOKENS], device=device)
    agree(runtime.decode_step(hidden), oracle("qwen2", arrays, TOKENS))
    with pytest.raises(InvalidArgument, match=r"hidden states have the shape \(n, 24\)"):
        runtime.decode_step(hidden[0])


def test_a_plan_loads_a_layer_when_it_is_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.gguf", weights("llama"), metadata("llama"))
    with open_gguf(path) as file:
        plan = ExecutionPlan.from_gguf(file)
        assert plan.loading_stats == (0, 0, 0.0)
        told: list[tuple[int, int]] = []
        plan.preload_all(lambda done, total: told.append((done, total)))
        assert told == [(1, 3), (2, 3), (3, 3)]
        stats = plan.loading_stats
        assert stats.tensors == len(file)
        assert stats.nbytes == sum(tensor.nbytes for tensor in file.values())
    runtime = ModelRuntime.from_execution_plan(plan)
    assert runtime.decode_step(TOKENS).shape == (len(TOKENS), VOCABULARY)
    assert plan.loading_stats == stats


def test_what_a_model_cannot_read_is_refused() -> None:
    tensors = {name: Tensor(array) for name, array in weights("llama").items()}
    config = ModelConfig.from_metadata(metadata("llama"))
    runtime = ModelRuntime.new_with_config(config, tensors, max_seq_len=4)
    for tokens, reason in (([], "tokens is empty"), ([VOCABULARY], f"no token {VOCABULARY}"), ([-1], "no token -1")):
        with pytest.raises(InvalidArgument, match=reason):
            runtime.prefill(tokens)
    with pytest.raises(InvalidArgument, match="room for 4 tokens, 0 are there, and 5 more come"):
        runtime.prefill([1] * 5)
    runtime.prefill([1] * 4)
    with pytest.raises(InvalidArgument, match="room for 4 tokens, 4 are there, and 1 more come; reset it"):
        runtime.decode_step([1])
    del tensors["blk.1.ffn_up.weight"]
    with pytest.raises(InvalidArgument, match=r"tensor 'blk\.1\.ffn_up\.weight' of architecture 'llama' is missing"):
        ModelRuntime.new_with_config(config, tensors)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "key 'general.architecture' is missing"),
        (metadata("gemma"), "architecture 'gemma' is not known; known are llama, mistral, qwen2, qwen3"),
        (metadata("llama", block_count=None), "key 'llama.block_count' is missing"),
        (metadata("llama", block_count="2"), "key 'llama.block_count' must be an integer, not '2'"),
        (metadata("llama", block_count=0), "layers is 0, and must be 1 or more"),
        (metadata("llama", **{"attention.head_count": 3}), "key_heads is 2, and must divide the heads, which are 3"),
        (metadata("llama", **{"attention.value_length": 4}), "key 'llama.attention.value_length' is 4 and not 8"),
        (metadata("llama", **{"rope.dimension_count": 4}), "key 'llama.rope.dimension_count' is 4 and not 8"),
        (metadata("llama", **{"rope.scaling.type": "yarn"}), "key 'llama.rope.scaling.type' is 'yarn'"),
        (metadata("llama", **{"attention.sliding_window": 8}), "key 'llama.attention.sliding_window' is 8"),
        (metadata("llama", **{"rope.freq_base": -1.0}), "rope_base is -1.0, and must be above 0"),
        (
            metadata("llama", **{"attention.key_length": 7, "attention.value_length": 7}),
            "head_dim is 7, and must be even",
        ),
    ],
)
def test_a_model_that_cannot_be_run_is_refused_by_key(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^ModelConfig: .*{reason}"):
        ModelConfig.from_metadata(values)


def test_heads_share_keys_or_not() -> None:
    found = {
        key_heads: ModelConfig.from_metadata(metadata("llama", **{"attention.head_count_kv": key_heads}))
        for key_heads in (None, 1, 2, 4)
    }
    assert {key: (each.is_mha, each.is_gqa, each.is_mqa) for key, each in found.items()} == {
        None: (True, False, False),
        1: (False, False, True),
        2: (False, True, False),
        4: (True, False, False),
    }


def test_a_cache_keeps_what_is_appended_until_it_is_reset(device: Device) -> None:
    cache = KVCache(device, layers=2, heads=1, head_dim=2, max_seq_len=3)
    rows = Tensor([[[1.0, 2.0], [3.0, 4.0]]], device=device)
    cache.append(1, rows, rows * 2)
    assert cache.get(1)[0].shape == (1, 0, 2), "nothing is there before it is counted"
    cache.advance(2)
    keys, values = cache.get(1)
    copies = cache.retrieve(1)
    assert keys.numpy().tolist() == rows.numpy().tolist()
    assert values.numpy().tolist() == (rows * 2).numpy().tolist()
    with pytest.raises(InvalidArgument, match="room for 3 tokens, 2 are there, and 2 more come"):
        cache.append(0, rows, rows)
    with pytest.raises(InvalidArgument, match="there is no layer 2; use one from 0 to 1"):
        cache.get(2)
    cache.reset()
    cache.append(1, rows * 5, rows)
    cache.advance(1)
    assert cache.get(1)[0].numpy().tolist() == [[[5, 10]]]
    assert keys.numpy()[0, 0].tolist() == [5, 10], "views see what is written"
    assert copies[0].numpy()[0, 0].tolist() == [1, 2], "copies do not"
    with pytest.raises(InvalidArgument, match="heads is 0, and must be 1 or more"):
        KVCache(device, 1, 0, 2, 3)


def test_scratch_buffers_are_the_same_memory_each_time(device: Device) -> None:
    scratch = ScratchBufferManager(device)
    scratch.get("x", (2, 3)).fill_(1)
    assert scratch.get("x", (5,)).numpy().tolist() == [1] * 5
    assert scratch.get("x", (), "u8").item() == 0
    assert scratch.size_in_bytes == 6 * 4 + 1
    assert scratch.get("x", (2, 4)).numpy().tolist() == [[0] * 4] * 2
    with pytest.raises(InvalidArgument, match=r"shape is \(-1,\)"):
        scratch.get("x", (-1,))
    scratch.clear()
    assert scratch.size_in_bytes == 0


def drawn(sampler: Sampler, logits: list[float], before: tuple[int, ...] = ()) -> set[int]:
    return {sampler.sample(np.array(logits), before) for _ in range(300)}


def test_samplers_leave_the_tokens_that_they_shall_leave() -> None:
    logits = [math.log(share) for share in (0.1, 0.5, 0.3, 0.1)]
    assert drawn(Sampler(), logits) == {1}
    assert drawn(Sampler(temperature=1.0), logits) == {0, 1, 2, 3}
    assert drawn(Sampler(temperature=1.0, top_k=2), logits) == {1, 2}
    assert drawn(Sampler(temperature=1.0, top_p=0.4), logits) == {1}
    assert drawn(Sampler(temperature=1.0, top_p=0.7), logits) == {1, 2}
    assert drawn(Sampler(temperature=1.0, min_p=0.5), logits) == {1, 2}
    assert drawn(Sampler(repetition_penalty=2.0), [1.0, 1.5, -1.0], (1, 1)) == {0}
    assert drawn(Sampler(repetition_penalty=2.0), [-1.0, -0.75, -2.0], (1,)) == {0}
    first, second = (Sampler(temperature=2.0, seed=3) for _ in range(2))
    assert [first.sample(np.array(logits)) for _ in range(9)] == [second.sample(np.array(logits)) for _ in range(9)]
    for option in ({"temperature": -1}, {"top_k": -1}, {"top_p": 2}, {"min_p": math.nan}, {"repetition_penalty": 0}):
        with pytest.raises(InvalidArgument, match=f"Sampler: {next(iter(option))} is"):
            Sampler(**option)  # type: ignore[arg-type]


def test_generation_ends_where_it_shall(device: Device) -> None:
    arrays = weights("llama")
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    runtime = ModelRuntime.new_with_config(ModelConfig.from_metadata(metadata("llama")), tensors, device)
    expected = [*TOKENS]
    for _ in range(6):
        expected.append(int(oracle("llama", arrays, expected)[-1].argmax()))
    new = expected[len(TOKENS) :]
    assert [*runtime.generate(TOKENS, 6)] == new
    runtime.reset_state()
    assert [*runtime.generate(TOKENS, 6, ends={new[3]})] == new[: new.index(new[3])]
    runtime.reset_state()
    assert [*runtime.generate(TOKENS, 0)] == []
    runtime.reset_state()
    assert len([*runtime.generate(TOKENS, 99)]) == CONTEXT - len(TOKENS) + 1, "there is no more room"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a vocabulary of letters, and a template."""
    pytest.importorskip("tokenizers", reason="what a tokenizer stands on")
    vocabulary = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TEXTS,
        "tokenizer.ggml.scores": np.zeros(VOCABULARY, np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3, *[1] * 26], np.int32),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
    }
    return saved(tmp_path / "model.gguf", weights("llama"), metadata("llama") | vocabulary)


def test_the_command_writes_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tallow.run import main

    tokens = [1, 3, 4, 5]
    for _ in range(5):
        tokens.append(int(oracle("llama", weights("llama"), tokens)[-1].argmax()))
    text = "".join(TEXTS[token] for token in tokens[4:]).partition("</s>")[0].replace("▁", " ")
    for options in ([], ["--chat"]):
        assert main([str(model), "--prompt", "ab", "--max-tokens", "5", *options]) == 0
        out, told = capsys.readouterr()
        assert out.strip() == text.replace("<s>", "").replace("<unk>", "").strip()
        assert "4 tokens read" in told
    assert main([f"{model}.none", "--prompt", "ab"]) == 1
    assert "model.gguf.none" in capsys.readouterr().err


def test_the_program_of_the_page_writes_text(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(model.parent)
    exec(program.replace("Who wrote Faust?", "ab"), {})
    assert capsys.readouterr().out


@pytest.mark.full
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_logits_are_those_of_transformers(device: Device, tmp_path: Path, architecture: str) -> None:
    torch = pytest.importorskip("torch", reason="what transformers stands on")
    transformers = pytest.importorskip("transformers", reason="the oracle of whole models")
    arrays = weights(architecture)
    prefix = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[architecture]
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=False,
    )
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"} | {
        f"attn_{part}_norm": f"self_attn.{part}_norm" for part in "qk"
    }
    parts |= {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")} | {
        "attn_output": "self_attn.o_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    state = {}
    for name, array in arrays.items():
        stem, kind = name.rsplit(".", 1)
        if architecture == "llama" and stem.endswith(("attn_q", "attn_k")):
            # There pairs are halves, and files have their rows as neighbours.
            array = array.reshape(-1, 4, 2, 24).swapaxes(1, 2).reshape(array.shape)
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            stem = f"model.layers.{layer}.{parts[part]}"
        state[f"{names.get(stem, stem)}.{kind}"] = torch.tensor(array)
    theirs = getattr(transformers, f"{prefix}ForCausalLM")(config).eval()
    theirs.load_state_dict(state)
    tokens = np.random.default_rng(5).integers(0, VOCABULARY, 32).tolist()
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens])).logits[0].numpy()
    runtime = ModelRuntime.load_from_gguf(saved(tmp_path / "m.gguf", arrays, metadata(architecture)), device)
    agree(runtime.decode_step(tokens), expected)
