"""The step as a whole: results, donation and memory."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from sgjax.engine import step as step_module
from sgjax.engine.step import step
from sgjax.kernels.batch import Batch, Sampling
from sgjax.kernels.cpu import CpuAttention
from sgjax.models import llama
from sgjax.models.config import ModelConfig
from sgjax.models.weights import random_weights
from tests.kernels.ragged import Extend, pack
from tests.models import naive

CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=67,
    hidden_size=24,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    ffn_size=32,
    max_position=64,
)
S, D, G, BQ, P, X, TOP = 4, 2, 2, 8, 8, 5, 3
VALID = 64
ALL = np.full((1, 3), 0xFFFFFFFF, np.uint32)
PROMPT = [int(t) for t in np.random.default_rng(0).integers(0, VALID, 12)]
OTHER = [int(t) for t in np.random.default_rng(1).integers(0, VALID, 9)]


@functools.cache
def jitted(top=TOP):
    f = functools.partial(step, attention=CpuAttention(S, chunk=8), top=top, valid_vocab=VALID)
    return jax.jit(f, static_argnums=0, donate_argnums=2)


def greedy(rows):
    return Sampling(
        temperature=np.zeros(rows, np.float32),
        top_k=np.full(rows, 67, np.int32),
        top_p=np.ones(rows, np.float32),
        min_p=np.zeros(rows, np.float32),
        seed=np.zeros(rows, np.uint32),
        position=np.zeros(rows, np.int32),
        adjust_ids=np.zeros((rows, 2), np.int32),
        adjust_mul=np.ones((rows, 2), np.float32),
        adjust_add=np.zeros((rows, 2), np.float32),
        mask_row=np.zeros(rows, np.int32),
        wants_logprob=np.arange(rows) == 0,
    )


def a_batch(decoded):
    """PROMPT as an extend with prompt log-probs from index 7 on; one decode after OTHER."""
    extends = [Extend((4, 2, 7), 0, 12), Extend((1, 5, 3), 8, 9)]
    packed = pack(extends, S, D, G, BQ, P)
    at, (other,) = packed.places
    tokens = np.zeros(D + G * BQ, np.int32)
    tokens[at], tokens[other] = PROMPT, decoded
    logit_rows = np.zeros(D + G + X, np.int32)
    targets = np.zeros(D + G + X, np.int32)
    logit_rows[0], logit_rows[D] = other, at[-1]
    logit_rows[D + G :], targets[D + G :] = at[6:11], PROMPT[7:12]
    return Batch(
        tokens=tokens,
        layout=packed.layout,
        logit_rows=logit_rows,
        targets=targets,
        sampling=greedy(D + G),
    )


def log_softmax(x):
    x = x[..., :VALID]
    return (
        x
        - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - x.max(-1, keepdims=True)
    )


def run():
    weights = random_weights(CONFIG, "float32", 0)
    kv = llama.make_kv(CONFIG, 40, "float32", "cpu")
    # First the prompt of OTHER, by the same program.
    packed = pack([Extend((1, 5, 3), 0, 8)], S, D, G, BQ, P)
    batch = a_batch(0)
    tokens = np.zeros_like(batch.tokens)
    tokens[packed.places[0]] = OTHER[:8]
    first = dataclasses.replace(batch, tokens=tokens, layout=packed.layout)
    kv, _ = jitted()(CONFIG, weights, kv, ALL, first)
    _, out = jitted()(CONFIG, weights, kv, ALL, a_batch(OTHER[8]))
    return weights, jax.tree.map(np.asarray, out)


def test_step_gives_tokens_and_log_probabilities_of_the_right_rows():
    weights, out = run()
    prompt = log_softmax(naive.logits(CONFIG, weights, PROMPT))
    other = log_softmax(naive.logits(CONFIG, weights, OTHER))
    for row, want in ((0, other[-1]), (D, prompt[-1])):
        best = np.argsort(-want)[:TOP]
        assert out.next_token[row] == best[0]
        np.testing.assert_allclose(out.logprob[row], want[best[0]], atol=1e-4)
        np.testing.assert_array_equal(out.top_ids[row], best)
        np.testing.assert_allclose(out.top_logprobs[row], want[best], atol=1e-4)
    want = prompt[np.arange(6, 11), PROMPT[7:12]]
    np.testing.assert_allclose(out.target_logprob, want, atol=1e-4)
    np.testing.assert_array_equal(out.target_top_ids, np.argsort(-prompt[6:11])[:, :TOP])


def test_a_step_in_which_no_row_wants_log_probabilities_samples_the_same_and_computes_none():
    weights, wanted = run()
    kv = llama.make_kv(CONFIG, 40, "float32", "cpu")
    packed = pack([Extend((1, 5, 3), 0, 8)], S, D, G, BQ, P)
    batch = a_batch(0)
    unwanted = dataclasses.replace(batch.sampling, wants_logprob=np.zeros(D + G, bool))
    tokens = np.zeros_like(batch.tokens)
    tokens[packed.places[0]] = OTHER[:8]
    first = dataclasses.replace(batch, tokens=tokens, layout=packed.layout, sampling=unwanted)
    kv, _ = jitted()(CONFIG, weights, kv, ALL, first)
    second = dataclasses.replace(a_batch(OTHER[8]), sampling=unwanted)
    _, out = jitted()(CONFIG, weights, kv, ALL, second)
    np.testing.assert_array_equal(out.next_token, wanted.next_token)
    assert not np.any(out.logprob)
    assert not np.any(out.top_logprobs)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_prompt_logprobs_in_chunks_are_the_same(rows):
    def f(args):
        return args[0] * 1.0, args[1][:, None], args[0][:, None] + args[1][:, None]

    a, b = np.arange(5), np.arange(5) * 10
    whole = f((a, b))
    for got, want in zip(step_module._in_chunks(f, a, b, rows), whole, strict=True):
        np.testing.assert_array_equal(got, want)


def test_padded_ids_have_no_probability():
    _, out = run()
    assert out.top_ids.max() < VALID
    assert out.target_top_ids.max() < VALID


def test_step_without_prompt_rows_or_alternatives_has_empty_arrays():
    batch = a_batch(0)
    batch = dataclasses.replace(
        batch, logit_rows=batch.logit_rows[: D + G], targets=batch.targets[: D + G]
    )
    weights = random_weights(CONFIG, "float32", 0)
    kv = llama.make_kv(CONFIG, 40, "float32", "cpu")
    _, out = jitted(0)(CONFIG, weights, kv, ALL, batch)
    assert out.target_logprob.shape == (0,)
    assert out.target_top_ids.shape == (0, 0)
    assert out.top_ids.shape == (D + G, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_pool_is_donated_and_updated_in_place(dtype):
    weights = jax.eval_shape(lambda: random_weights(CONFIG, dtype, 0))
    pool = jax.eval_shape(lambda: llama.make_kv(CONFIG, 100_000, dtype, "cpu"))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(pool))
    compiled = jitted().lower(CONFIG, weights, pool, ALL, a_batch(0)).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= size
    assert memory.temp_size_in_bytes < 0.02 * size
