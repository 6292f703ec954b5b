"""Sampling against numpy: exact sets for the filters, chi-square for the draws."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sgjax.engine import sampling
from sgjax.kernels.batch import Sampling

V, B, Q = 70, 4, 3
ALL = np.full((1, -(-V // 32)), 0xFFFFFFFF, np.uint32)


def plain(rows=B, **changes):
    """Greedy rows with every option off; a change is a scalar or an array."""
    defaults = {
        "temperature": np.float32(0),
        "top_k": np.int32(V),
        "top_p": np.float32(1),
        "min_p": np.float32(0),
        "seed": np.uint32(0),
        "position": np.int32(0),
        "mask_row": np.int32(0),
        "wants_logprob": np.bool_(False),
    }
    fields = {
        name: np.broadcast_to(np.asarray(changes.pop(name, value), value.dtype), (rows,))
        for name, value in defaults.items()
    }
    fields["adjust_ids"] = np.zeros((rows, Q), np.int32)
    fields["adjust_mul"] = np.ones((rows, Q), np.float32)
    fields["adjust_add"] = np.zeros((rows, Q), np.float32)
    return dataclasses.replace(Sampling(**fields), **changes)


def random_logits(rows=B, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, V)).astype(np.float32)


run = jax.jit(sampling.sample)


@functools.cache
def many_draws():
    """Draw at 4,096 seeds from one row's distribution, through the same function."""

    def draws(logits, options, seeds):
        def one(seed):
            return sampling.sample(logits, ALL, dataclasses.replace(options, seed=seed[None]))[0]

        return jax.lax.map(one, seeds)

    return jax.jit(draws)


def kept(logits, options):
    """Return the set of ids that the filters leave for the one row given."""
    draws = many_draws()(logits, options, np.arange(4096, dtype=np.uint32))
    return set(np.asarray(draws).tolist())


def leading(probs, count):
    return set(np.argsort(-probs, kind="stable")[:count].tolist())


def softmax(x):
    e = np.exp(x.astype(np.float64) - x.max())
    return e / e.sum()


def test_greedy_takes_the_lowest_of_equal_ids():
    logits = random_logits()
    logits[1, [7, 40, 69]] = 99
    want = logits.argmax(axis=1)
    assert want[1] == 7
    np.testing.assert_array_equal(run(logits, ALL, plain()), want)


def test_draws_follow_the_softmax_at_the_temperature():
    logits = random_logits(1)
    draws = many_draws()(logits, plain(1, temperature=1.7), np.arange(4096, dtype=np.uint32))
    expected = softmax(logits[0] / 1.7) * 4096
    counts = np.bincount(draws, minlength=V)
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-3


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_keeps_exactly_k(k):
    logits = random_logits(1)
    options = plain(1, temperature=3.0, top_k=k)
    assert kept(logits, options) == leading(logits[0], k)


def test_top_k_breaks_ties_by_id():
    logits = np.zeros((1, V), np.float32)
    logits[0, 50] = 1
    assert kept(logits, plain(1, temperature=1.0, top_k=4)) == {50, 0, 1, 2}


@pytest.mark.parametrize("p", [0.01, 0.3, 0.6])
def test_top_p_keeps_the_smallest_set_that_reaches_it(p):
    logits = random_logits(1)
    probs = softmax(logits[0])
    count = int(np.searchsorted(np.cumsum(np.sort(probs)[::-1]), p) + 1)
    assert kept(logits, plain(1, temperature=1.0, top_p=p)) == leading(probs, count)


def test_top_p_breaks_ties_by_id_and_keeps_at_least_one():
    logits = np.zeros((1, V), np.float32)
    # 70 equal tokens: 3 of them hold 4.3 %, 4 hold 5.7 %.
    assert kept(logits, plain(1, temperature=1.0, top_p=0.05)) == {0, 1, 2, 3}
    assert kept(logits, plain(1, temperature=1.0, top_p=1e-6)) == {0}


def test_top_p_counts_what_top_k_left():
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1] + [1e-30] * (V - 4)], np.float32))
    # Of {0.4, 0.3} the first holds 57 %.
    assert kept(logits, plain(1, temperature=1.0, top_k=2, top_p=0.5)) == {0}
    assert kept(logits, plain(1, temperature=1.0, top_p=0.5)) == {0, 1}


def test_min_p_is_relative_to_the_likeliest():
    logits = random_logits(1)
    probs = softmax(logits[0])
    want = set(np.flatnonzero(probs >= 0.2 * probs.max()).tolist())
    assert 1 < len(want) < V
    assert kept(logits, plain(1, temperature=1.0, min_p=0.2)) == want


def test_filters_see_the_distribution_at_the_temperature():
    logits = random_logits(1)
    probs = softmax(logits[0] / 4)
    count = int(np.searchsorted(np.cumsum(np.sort(probs)[::-1]), 0.3) + 1)
    assert kept(logits, plain(1, temperature=4.0, top_p=0.3)) == leading(probs, count)


def test_repetition_divides_positive_and_multiplies_negative_logits():
    logits = np.zeros((B, V), np.float32)
    logits[:, 3], logits[:, 4], logits[:, 0] = 2.0, -2.0, 1.0
    options = plain(
        adjust_ids=np.tile(np.array([3, 4, 0], np.int32), (B, 1)),
        adjust_mul=np.tile(np.array([4, 4, 1], np.float32), (B, 1)),
        adjust_add=np.tile(np.array([0.25, 0, 0], np.float32), (B, 1)),
    )
    got = np.asarray(sampling.adjust(jnp.asarray(logits), options))
    np.testing.assert_allclose(got[0, [3, 4, 0]], [0.75, -8.0, 1.0])
    np.testing.assert_array_equal(run(logits, ALL, options), np.zeros(B))


def test_padding_of_the_adjustments_leaves_id_0_alone():
    logits = np.zeros((B, V), np.float32)
    options = plain(
        adjust_ids=np.tile(np.array([0, 0, 9], np.int32), (B, 1)),
        adjust_add=np.tile(np.array([-1, 0, -np.inf], np.float32), (B, 1)),
    )
    got = np.asarray(sampling.adjust(jnp.asarray(logits), options))
    assert got[0, 0] == -1
    assert got[0, 9] == -np.inf
    assert not got[:, 1:9].any()


def mask_of(ids):
    bits = np.zeros(-(-V // 32) * 32, bool)
    bits[list(ids)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


def test_a_mask_belongs_to_its_row():
    table = np.concatenate([ALL, [mask_of({5, 33, 69}), mask_of({33, 2})]])
    logits = random_logits()
    options = plain(mask_row=[0, 1, 2, 0])
    got = np.asarray(run(logits, table, options))
    assert got[0] == logits[0].argmax()
    assert got[1] == max((5, 33, 69), key=lambda i: logits[1, i])
    assert got[2] == max((33, 2), key=lambda i: logits[2, i])
    assert got[3] == logits[3].argmax()
    sampled = np.asarray(
        run(logits, table, dataclasses.replace(options, temperature=np.full(B, 9, np.float32)))
    )
    assert sampled[1] in {5, 33, 69}
    assert sampled[2] in {33, 2}


def test_padded_ids_are_never_sampled():
    logits = random_logits()
    logits[:, 60:] = 99
    masked = sampling.mask_padding(jnp.asarray(logits), 60)
    assert np.asarray(run(masked, ALL, plain())).max() < 60
    for seed in range(20):
        assert np.asarray(run(masked, ALL, plain(temperature=50.0, seed=seed))).max() < 60


def test_a_seed_gives_the_same_draw_in_any_batch():
    logits = random_logits(1)
    row = {"temperature": 1.3, "top_k": 50, "top_p": 0.95, "min_p": 0.001, "position": 17}
    alone = [int(run(logits, ALL, plain(1, seed=s, **row))[0]) for s in range(16)]
    assert len(set(alone)) > 4
    for rows, at in ((4, 2), (33, 31)):
        for seed in range(16):
            mixed = random_logits(rows, seed=5)
            mixed[at] = logits[0]
            options = plain(rows, temperature=0.5, top_p=0.5, seed=np.arange(rows))
            options = jax.tree.map(np.array, options)
            for name, value in {**row, "seed": seed}.items():
                getattr(options, name)[at] = value
            options.temperature[0] = 0
            got = np.asarray(run(mixed, ALL, options))
            assert got[at] == alone[seed]
            assert got[0] == mixed[0].argmax()


def test_positions_and_seeds_give_independent_draws():
    logits = np.zeros((B, V), np.float32)
    a = [run(logits, ALL, plain(temperature=1.0, seed=3, position=i)) for i in range(64)]
    counts = np.bincount(np.array(a)[:, 0], minlength=V)
    assert stats.chisquare(counts.reshape(7, 10).sum(1)).pvalue > 1e-3
    b = [run(logits, ALL, plain(temperature=1.0, seed=4, position=i)) for i in range(64)]
    assert (np.array(a)[:, 0] != np.array(b)[:, 0]).mean() > 0.8


def test_top_logprobs_are_those_of_the_log_softmax():
    logits = random_logits()
    normalizer = sampling.log_normalizer(jnp.asarray(logits))
    ids, values = sampling.top_logprobs(jnp.asarray(logits), normalizer, 5)
    want = np.log([softmax(row) for row in logits])
    np.testing.assert_array_equal(ids, np.argsort(-want, axis=1)[:, :5])
    np.testing.assert_allclose(values, -np.sort(-want, axis=1)[:, :5], rtol=1e-5, atol=1e-5)
    none, empty = sampling.top_logprobs(jnp.asarray(logits), normalizer, 0)
    assert none.shape == empty.shape == (B, 0)


def test_the_mass_that_masks_leave_is_the_sum_of_what_they_allow() -> None:
    logits = random_logits()
    allowed = np.random.default_rng(3).random((2, V)) < 0.3
    bits = np.pad(allowed, ((0, 0), (0, -V % 32))).reshape(2, -1, 32)
    table = np.concatenate([ALL, (bits * (1 << np.arange(32))).sum(-1).astype(np.uint32)])
    rows, wanted = np.array([1, 2, 0, 1], np.int32), np.array([True, True, True, False])
    mass = jax.jit(sampling.log_mass)(logits, table, plain(mask_row=rows, wants_logprob=wanted))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = [math.log(p[0, allowed[0]].sum()), math.log(p[1, allowed[1]].sum()), 0, 0]
    np.testing.assert_allclose(mass, expected, atol=1e-5)
