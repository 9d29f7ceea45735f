"""What decoders of random weights read, their cache, how they draw tokens, and the command."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hip_runtime import Host
from tallow import Device, InvalidArgument, QStorage, QTensor, Shape, ShapeMismatch, Tensor
from tallow.gguf import GgufTensor, open_gguf, save_gguf
from tallow.models import ExecutionPlan, KVCache, ModelConfig, ModelRuntime, Sampler, ScratchBufferManager
from tallow.runtime.models.steps import LayerContext

from .decoders import CONTEXT, SENTENCES, TOKENS, VOCABULARY, agree, metadata, oracle, saved, weights


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
    arrays = weights("llama") | {"rope_freqs.weight": np.ones(4, np.float32)}
    with open_gguf(saved(tmp_path / "m.gguf", arrays, metadata("llama"))) as file:
        plan = ExecutionPlan.from_gguf(file)
        assert plan.loading_stats == (0, 0, 0.0)
        told: list[tuple[int, int]] = []
        plan.preload_all(lambda done, total: told.append((done, total)))
        assert told == [(1, 3), (2, 3), (3, 3)]
        stats = plan.loading_stats
        assert stats.tensors == len(file)
        assert stats.nbytes == sum(tensor.nbytes for tensor in file.values())
    # The file is closed.
    runtime = ModelRuntime.from_execution_plan(plan)
    assert runtime.decode_step(TOKENS).shape == (len(TOKENS), VOCABULARY)
    assert plan.loading_stats == stats


def test_weights_are_loaded_with_64_mib_beyond_their_own(
    device: Device, tmp_path: Path, run_python: Callable[..., str]
) -> None:
    """By the memory of a process: that of a GPU is in it on the HIP runtime for the CPU alone."""
    if not Path("/proc/self/status").is_file():
        pytest.skip("only Linux says how much memory a process had at most")
    sizes: dict[str, Any] = {"width": 2048, "hidden": 12288, "head_dim": 512}
    tensors: dict[str, Tensor | QTensor] = {}
    for name, array in weights("llama", **sizes).items():
        tensors[name] = Tensor(array)
        # Queries, keys and values are joined, and so are gate and up.
        if array.ndim == 2 and name != "output.weight":
            content = np.zeros(array.size // 32 * 34, np.uint8)
            tensors[name] = QTensor(QStorage.from_data(content, Device.cpu(), "Q8_0"), array.shape)
    save_gguf(tensors, tmp_path / "m.gguf", metadata("llama", **sizes))
    nbytes, more = map(
        int,
        run_python(f"""
            import re
            from pathlib import Path
            from tallow import Device, Tensor
            from tallow.gguf import open_gguf
            from tallow.models import ExecutionPlan

            def memory(what):
                return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

            device = Device.parse({device.label!r})
            Tensor([1.0], device=device).numpy()
            with open_gguf({str(tmp_path / "m.gguf")!r}, device) as file:
                plan = ExecutionPlan.from_gguf(file)
                before = memory("VmRSS")
                plan.preload_all()
                print(plan.loading_stats.nbytes, memory("VmHWM") - before)
        """).split(),
    )
    assert nbytes > 150 << 20, "more than what is allowed beside it"
    is_in_process = device == Device.cpu() or Host.found() is not None
    # Allocators round a size up by an eighth at most.
    own = (nbytes if device == Device.cpu() else nbytes * 9 // 8) if is_in_process else 0
    assert more < own + (64 << 20)


def test_what_a_model_cannot_read_is_refused() -> None:
    tensors = {name: Tensor(array) for name, array in weights("llama").items()}
    config = ModelConfig.from_metadata(metadata("llama"))
    runtime = ModelRuntime.new_with_config(config, tensors, max_seq_len=4)
    for tokens, reason in (([], "tokens is empty"), ([VOCABULARY], f"no token {VOCABULARY}"), ([-1], "no token -1")):
        with pytest.raises(InvalidArgument, match=reason):
            runtime.prefill(tokens)
    with pytest.raises(
        InvalidArgument, match=f"has 5 tokens, and the cache holds 4; shorten it, or give max_seq_len up to {CONTEXT}"
    ):
        runtime.prefill([1] * 5)
    runtime.prefill([1] * 4)
    with pytest.raises(InvalidArgument, match="holds 4 tokens, 4 are there, and 1 more come; reset it"):
        runtime.decode_step([1])
    del tensors["blk.1.ffn_up.weight"]
    with pytest.raises(InvalidArgument, match=r"tensor 'blk\.1\.ffn_up\.weight' of architecture 'llama' is missing"):
        ModelRuntime.new_with_config(config, tensors)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("token_embd.weight", (), (1, 24)),
        ("token_embd.weight", (VOCABULARY,), (VOCABULARY, 24)),
        ("token_embd.weight", (VOCABULARY, 25), (VOCABULARY, 24)),
        ("output.weight", (VOCABULARY + 1, 24), (VOCABULARY, 24)),
        ("output_norm.weight", (1,), (24,)),
        ("rope_freqs.weight", (5,), (4,)),
        ("blk.0.attn_q.weight", (), (32, 24)),
        ("blk.0.attn_q.weight", (24, 32), (32, 24)),
        ("blk.1.attn_k.weight", (32, 24), (16, 24)),
        ("blk.1.attn_v.weight", (16, 24, 1), (16, 24)),
        ("blk.1.attn_output.weight", (24, 33), (24, 32)),
        ("blk.0.attn_q.bias", (16,), (32,)),
        ("blk.1.ffn_gate.weight", (19, 24), (20, 24)),
        ("blk.1.ffn_down.weight", (20, 24), (24, 20)),
        ("blk.1.ffn_norm.weight", (24, 1), (24,)),
    ],
)
def test_a_tensor_of_another_shape_is_refused_before_any_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    arrays = weights("llama") | {name: np.ones(shape, np.float32)}
    path = saved(tmp_path / "m.gguf", arrays, metadata("llama"))
    monkeypatch.setattr(GgufTensor, "_read", None)
    reason = f"shapes {Shape(shape)}: tensor '{name}' of architecture 'llama' must have shape {Shape(expected)} "
    with pytest.raises(ShapeMismatch, match=f"^ExecutionPlan: {re.escape(reason)}"):
        ModelRuntime.load_from_gguf(path)


@pytest.mark.parametrize("layers", [3, 2**31, 2**62])
def test_a_file_that_counts_more_layers_than_it_has_is_refused(tmp_path: Path, layers: int) -> None:
    path = saved(tmp_path / "m.gguf", weights("llama"), metadata("llama", block_count=layers))
    with pytest.raises(InvalidArgument, match=r"tensor 'blk\.2\.attn_norm\.weight' of architecture 'llama' is missing"):
        ModelRuntime.load_from_gguf(path)


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


def test_a_config_of_an_unknown_architecture_is_refused() -> None:
    known = ModelConfig.from_metadata(metadata("llama"))
    reason = "architecture 'gemma' is not known; use one of llama, mistral, qwen2, qwen3"
    with pytest.raises(InvalidArgument, match=f"^ModelConfig: {reason}"):
        replace(known, architecture="gemma")
    assert replace(known, architecture="mistral").architecture == "mistral"
    known.validate()
    object.__setattr__(known, "architecture", "gemma")
    with pytest.raises(InvalidArgument, match=reason):
        known.validate()


def test_a_layer_and_the_head_are_called_by_themselves(device: Device) -> None:
    """A model is its layers, one after another, each with its own place in the cache."""
    arrays = weights("llama")
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    plan = ExecutionPlan(ModelConfig.from_metadata(metadata("llama")), tensors, device)
    cache = KVCache(device, layers=2, heads=2, head_dim=8, max_seq_len=16)
    count = len(TOKENS)
    positions, lengths, rotations = cache.positions(count), cache.position + count, plan.rotations(16)
    x = plan.embed(Tensor(TOKENS, device=device))
    for layer in range(2):
        x = plan.forward_layer(
            x, LayerContext(plan.config, cache, layer, cache.position, positions, lengths, *rotations, plan.group)
        )
        assert x.shape == (count, 24)
    agree(plan.apply_lm_head(x), oracle("llama", arrays, TOKENS))
    assert cache.length == 0, "the tokens are counted by advance"
    cache.advance(count)
    agree(plan.apply_lm_head(x[-1:])[0], oracle("llama", arrays, TOKENS)[-1])


def test_heads_share_keys_or_not() -> None:
    results = {
        key_heads: ModelConfig.from_metadata(metadata("llama", **{"attention.head_count_kv": key_heads}))
        for key_heads in (None, 1, 2, 4)
    }
    assert {key: (each.is_mha, each.is_gqa, each.is_mqa) for key, each in results.items()} == {
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
    with pytest.raises(InvalidArgument, match="holds 3 tokens, 2 are there, and 2 more come"):
        cache.append(0, rows, rows)
    for count in (2, 1 << 62):
        with pytest.raises(InvalidArgument, match=f"holds 3 tokens, 2 are there, and {count} more come; reset it"):
            cache.advance(count)
    with pytest.raises(InvalidArgument, match="count is -1, and must be 0 or more"):
        cache.advance(-1)
    assert (cache.length, cache.position.numpy().tolist()) == (2, [2])
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
    assert drawn(Sampler(temperature=1e-310), [-math.inf, 1.0, 2.0]) == {2}
    for wrong in ([math.nan, 1.0], [math.inf, 1.0], [-math.inf], [], [[1.0]]):
        for temperature in (0, 1):
            with pytest.raises(InvalidArgument, match=r"Sampler\.sample: logits must be"):
                Sampler(temperature=temperature).sample(np.array(wrong))
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
    with pytest.raises(InvalidArgument, match="max_tokens is -1, and must be 0 or more"):
        next(runtime.generate(TOKENS, -1))
    runtime.reset_state()
    assert len([*runtime.generate(TOKENS, 99)]) == CONTEXT - len(TOKENS) + 1, "there is no more room"


def test_a_cache_of_another_length_begins_anew(device: Device) -> None:
    arrays = weights("llama")
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    runtime = ModelRuntime.new_with_config(ModelConfig.from_metadata(metadata("llama")), tensors, device)
    new = [*runtime.generate(TOKENS, 6)]
    # As many tokens as before, then just as many as are read.
    for length in (None, len(TOKENS) + 5):
        runtime.recreate_kv_cache(length)
        assert (runtime.cache.length, runtime.cache.max_seq_len) == (0, length or CONTEXT)
        assert [*runtime.generate(TOKENS, 6)] == new
    with pytest.raises(InvalidArgument, match="max_seq_len is 0"):
        runtime.recreate_kv_cache(0)
    assert runtime.weight_buffer_count() == len(arrays)
    assert runtime.total_weight_memory() == sum(array.nbytes for array in arrays.values())


def test_generation_draws_with_its_sampler(device: Device) -> None:
    arrays = weights("llama")
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    runtime = ModelRuntime.new_with_config(ModelConfig.from_metadata(metadata("llama")), tensors, device)

    def generated(seed: int) -> list[int]:
        runtime.reset_state()
        return [*runtime.generate(TOKENS, 12, Sampler(temperature=1.5, top_k=20, repetition_penalty=1.2, seed=seed))]

    twin, expected = Sampler(temperature=1.5, top_k=20, repetition_penalty=1.2, seed=3), [*TOKENS]
    for _ in range(12):
        expected.append(twin.sample(oracle("llama", arrays, expected)[-1], expected))
    assert generated(3) == expected[len(TOKENS) :]
    assert generated(3) == generated(3)
    assert len({tuple(generated(seed)) for seed in range(4)}) == 4, "a seed of its own draws others"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a vocabulary of letters, and a template."""
    pytest.importorskip("tokenizers", reason="what a tokenizer stands on")
    vocabulary = SENTENCES | {"tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}"}
    return saved(tmp_path / "model.gguf", weights("llama"), metadata("llama") | vocabulary)


def test_the_program_of_the_page_writes_text(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(model.parent)
    exec(program.replace("Who wrote Faust?", "ab"), {})
    assert capsys.readouterr().out
