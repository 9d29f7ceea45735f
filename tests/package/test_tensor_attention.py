"""Attention of tensors: what it is of small numbers, which shapes go together, and what is an error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import Device, DTypeMismatch, InvalidArgument, ShapeMismatch, Tensor
from tallow.runtime.backends.gpu_backend.ops import attention


def drawn(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(math.prod(shape)).standard_normal(shape), dtype="f64", device="cpu")


def by_hand(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Any:
    q, k, v = (each.numpy() for each in (query, key, value))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    weights = np.exp(scores if mask is None else scores + mask.numpy())
    return weights @ v / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_a_batch_and_heads_may_be_missing(batch: tuple[int, ...]) -> None:
    query, key, value = drawn(*batch, 4, 6), drawn(*batch, 5, 6), drawn(*batch, 5, 6) * 2
    result = query.scaled_dot_product_attention(key, value)
    assert result.shape == query.shape
    np.testing.assert_allclose(result.numpy(), by_hand(query, key, value), rtol=1e-12)


def test_batches_and_the_mask_broadcast() -> None:
    query, key, mask = drawn(1, 2, 4, 6), drawn(3, 2, 5, 6), drawn(4, 5)
    result = query.scaled_dot_product_attention(key, key, mask)
    np.testing.assert_allclose(result.numpy(), by_hand(query, key, key, mask), rtol=1e-12)


def test_a_mask_of_truth_values_says_which_keys_are_seen(device: Device) -> None:
    query, key = (x.to_dtype("f32").to(device) for x in (drawn(1, 2, 4, 8), drawn(1, 2, 5, 8)))
    seen = drawn(2, 4, 5).to(device) > 0
    seen[0, 1] = False
    added = Tensor(np.where(seen.numpy(), np.float32(0), np.float32(-np.inf)), device=device)
    result = query.scaled_dot_product_attention(key, key, seen)
    np.testing.assert_array_equal(result.numpy(), query.scaled_dot_product_attention(key, key, added).numpy())
    assert not result[0, 0, 1].numpy().any()
    with pytest.raises(DTypeMismatch, match="f8e4m3 and bool"):
        query.to_dtype("f8e4m3").scaled_dot_product_attention(*(key.to_dtype("f8e4m3"),) * 2, seen)


# Around the sizes of tiles of queries, keys and elements.
@pytest.mark.parametrize(("queries", "keys", "size"), [(5, 300, 80), (33, 65, 20), (70, 130, 192)])
def test_attention_of_bf16_on_the_cpu_rounds_no_weight_to_8_bits(queries: int, keys: int, size: int) -> None:
    inputs = [drawn(1, 2, length, size).to_dtype("bf16") for length in (queries, keys, keys)]
    result = inputs[0].scaled_dot_product_attention(*inputs[1:]).to_dtype("f64").numpy()
    expected = Tensor(by_hand(*(each.to_dtype("f64") for each in inputs)), device="cpu")
    rounded = expected.to_dtype("bf16").to_dtype("f64").numpy()
    np.testing.assert_allclose(result, rounded, rtol=2**-7, atol=2**-13)
    # Two fifths of them would be others if weights had 8 bits.
    assert (result != rounded).mean() < 0.03


def test_an_infinite_value_that_is_seen_is_what_all_get() -> None:
    key = drawn(1, 1, 70, 8).to_dtype("bf16")
    value = key.to_dtype("f64").numpy()
    value[..., 0, 3] = np.inf
    result = key.scaled_dot_product_attention(key, Tensor(value, device="cpu").to_dtype("bf16"), causal=True)
    infinite = np.isposinf(result.to_dtype("f64").numpy())
    assert infinite[..., 3].all() and infinite.sum() == 70


def test_a_key_head_serves_several_heads_in_a_row() -> None:
    query, key = drawn(1, 6, 4, 8), drawn(1, 2, 5, 8)
    repeated = Tensor(np.repeat(key.numpy(), 3, 1), device="cpu")
    result = query.scaled_dot_product_attention(key, key)
    np.testing.assert_allclose(result.numpy(), by_hand(query, repeated, repeated), rtol=1e-12)


def test_a_step_over_a_cache_is_the_last_row_of_all_queries() -> None:
    query, cache = drawn(2, 2, 7, 8), drawn(2, 2, 12, 8)
    lengths = Tensor([7], dtype="i64", device="cpu")
    every = query.scaled_dot_product_attention(cache, cache, causal=True, lengths=lengths)
    seen = cache[:, :, :7]
    np.testing.assert_array_equal(query.scaled_dot_product_attention(seen, seen, causal=True).numpy(), every.numpy())
    step = query[:, :, 6:].scaled_dot_product_attention(cache, cache, causal=True, lengths=lengths)
    np.testing.assert_allclose(step.numpy(), every.numpy()[:, :, 6:], rtol=1e-12)


@pytest.mark.parametrize(("dtype", "heads", "tolerance"), [("f32", 1, 1e-5), ("f16", 4, 1e-3), ("bf16", 8, 8e-3)])
def test_on_a_gpu_the_last_block_joins_any_number_of_splits(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, heads: int, tolerance: float
) -> None:
    device = tallow.Device(gpu)
    for splits in (1, 2, 7, 40):
        monkeypatch.setattr(attention, "_splits", lambda *_, splits=splits: splits)
        inputs = drawn(2, heads, 1, 24), *(drawn(2, 1, 299 + splits, 24) for _ in range(2))
        query, key, value = (each.to_dtype(dtype).to(device) for each in inputs)
        result = query.scaled_dot_product_attention(key, value).to_dtype("f64").numpy()
        expected = by_hand(*(each.to_dtype("f64").to("cpu") for each in (query, key, value)))
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (((4,), (4,), (4,)), "queries, keys and values are (heads, n, size), with at most one dim before"),
        (((2, 4, 6), (2, 5, 6), (2, 4, 6)), "keys and values must have one shape; reshape one of them"),
        (((2, 4, 6), (2, 5, 7), (2, 5, 7)), "queries, keys and values need one b and one size of a head"),
        (((3, 4, 6), (2, 5, 6), (2, 5, 6)), "2 key heads do not divide 3 heads; repeat or narrow the keys"),
        (((2, 2, 4, 6), (3, 2, 5, 6), (3, 2, 5, 6)), "scaled_dot_product_attention"),
    ],
)
def test_shapes_that_do_not_fit_are_errors(shapes: tuple[tuple[int, ...], ...], reason: str) -> None:
    query, key, value = (drawn(*shape) for shape in shapes)
    with pytest.raises(ShapeMismatch) as caught:
        query.scaled_dot_product_attention(key, value)
    assert caught.value.op == "scaled_dot_product_attention"
    assert reason in str(caught.value)


def test_a_mask_and_lengths_that_do_not_fit_are_errors() -> None:
    query = drawn(2, 2, 4, 6)
    with pytest.raises(ShapeMismatch, match="scaled_dot_product_attention"):
        query.scaled_dot_product_attention(query, query, drawn(3, 4))
    with pytest.raises(ShapeMismatch, match="lengths have one element, or 2, one for each batch; reshape them"):
        query.scaled_dot_product_attention(query, query, lengths=Tensor([1, 2, 3], dtype="i32", device="cpu"))
    with pytest.raises(InvalidArgument, match="causal must be True or False, not 1"):
        query.scaled_dot_product_attention(query, query, causal=1)  # type: ignore[arg-type]
    with pytest.raises(tallow.InvalidIndex):
        query.scaled_dot_product_attention(query, query, lengths=Tensor([5], dtype="i32", device="cpu"))
