"""The one function that runs on the device: extend, then sample.

DEVICE. Imports jax, flax, kernels, models and engine.sampling. The executor jits `step` with `kv`
donated, once for each shape of the batch. No [B, V] array leaves the device.
"""

from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp

from sgjax.engine import sampling
from sgjax.engine.vocab import WHOLE, Vocab
from sgjax.kernels.base import Attention
from sgjax.kernels.batch import Batch, KVCache, Sampling
from sgjax.models import llama
from sgjax.models.config import ModelConfig
from sgjax.models.layer import Dense, LlamaWeights

Rows = tuple[jax.Array, jax.Array]
Results = tuple[jax.Array, jax.Array, jax.Array]

LOGIT_BYTES = 64 << 20
"""Logits of prompt rows are computed in chunks of at most so many bytes."""


@flax.struct.dataclass
class StepArrays:
    """What one step gives back; see `schedule.plan.StepOutput`.

    Attributes:
        next_token: i32[B].
        logprob: f32[B] under the raw distribution; 0 in steps in which no row wants it, and so
            are the next three.
        log_mass: f32[B] log of what a row's masks left of that distribution.
        top_ids: i32[B, top] likeliest ids.
        top_logprobs: f32[B, top].
        target_logprob: f32[X].
        target_top_ids: i32[X, top].
        target_top_logprobs: f32[X, top].
    """

    next_token: jax.Array
    logprob: jax.Array
    log_mass: jax.Array
    top_ids: jax.Array
    top_logprobs: jax.Array
    target_logprob: jax.Array
    target_top_ids: jax.Array
    target_top_logprobs: jax.Array


def step(
    config: ModelConfig,
    weights: LlamaWeights,
    kv: KVCache,
    mask_table: jax.Array,
    batch: Batch,
    *,
    attention: Attention,
    top: int,
    valid_vocab: int,
    dense: Dense = llama.XLA,
    vocab: Vocab = WHOLE,
) -> tuple[KVCache, StepArrays]:
    """Extend sequences by the batch's tokens and sample the next ones. Donates `kv`.

    Args:
        config: the model, static.
        weights: its weights.
        kv: K/V of all earlier tokens.
        mask_table: u32[U, ceil(V / 32)] resident masks; row 0 allows everything.
        batch: the new tokens and what is wanted back.
        attention: the backend, static.
        top: alternatives to report beside each log-probability, static; 0 reports none.
        valid_vocab: ids below it are tokens, static; the rest are never sampled and have no
            probability.
        dense: the backend of all products, static.
        vocab: how the vocabulary is split over devices, static.

    Returns:
        The K/V pool with the new tokens, and the step's results.
    """
    B, R = batch.layout.kv_lens.shape[0], batch.logit_rows.shape[0]
    used = jnp.concatenate([batch.sampling.position > 0, jnp.ones(R - B, bool)])
    hidden, kv = llama.forward(
        config, weights, kv, batch, attention, dense, (batch.logit_rows, used)
    )

    @vocab.over_devices
    def choose(raw: jax.Array, mask_table: jax.Array, how: Sampling) -> tuple[jax.Array, ...]:
        raw = sampling.mask_padding(raw, valid_vocab, vocab)
        next_token = sampling.sample(raw, mask_table, how, vocab)
        mass = sampling.log_mass(raw, mask_table, how, vocab)
        # Normalising [B, V] logits takes time that most steps need not spend.
        return (
            next_token,
            mass,
            *jax.lax.cond(
                how.wants_logprob.any(),
                lambda: _logprobs(raw, next_token, top, vocab),
                lambda: _no_logprobs(B, top),
            ),
        )

    @vocab.over_devices
    def score(raw: jax.Array, targets: jax.Array) -> Results:
        return _logprobs(sampling.mask_padding(raw, valid_vocab, vocab), targets, top, vocab)

    def prompt(args: Rows) -> Results:
        rows, targets = args
        results: Results = score(llama.logits(config, weights, rows, dense=dense), targets)
        return results

    next_token, log_mass, logprob, top_ids, top_logprobs = choose(
        llama.logits(config, weights, hidden[:B], used[:B], dense), mask_table, batch.sampling
    )
    target_logprob, target_top_ids, target_top_logprobs = _in_chunks(
        prompt, hidden[B:], batch.targets[B:], LOGIT_BYTES // (4 * config.vocab_size)
    )
    return kv, StepArrays(
        next_token=next_token,
        logprob=logprob,
        log_mass=log_mass,
        top_ids=top_ids,
        top_logprobs=top_logprobs,
        target_logprob=target_logprob,
        target_top_ids=target_top_ids,
        target_top_logprobs=target_top_logprobs,
    )


def _logprobs(logits: jax.Array, ids: jax.Array, top: int, vocab: Vocab) -> Results:
    """Return log-probabilities of ids i32[R] and of the `top` likeliest ids, from f32[R, V]."""
    normalizer = sampling.log_normalizer(logits, vocab)
    chosen = vocab.at(logits, ids[:, None])[:, 0] - normalizer
    return (chosen, *sampling.top_logprobs(logits, normalizer, top, vocab))


def _no_logprobs(rows: int, top: int) -> Results:
    """Return zeros in the shape of `_logprobs`."""
    return jnp.zeros(rows), jnp.zeros((rows, top), jnp.int32), jnp.zeros((rows, top))


def _in_chunks(
    f: Callable[[Rows], Results], rows: jax.Array, targets: jax.Array, limit: int
) -> Results:
    """Return f((rows, targets)), computed on at most `limit` rows f32[X, E] at a time."""
    X = rows.shape[0]
    if limit >= X:
        return f((rows, targets))
    chunks = -(-X // limit)
    size = -(-X // chunks)

    def fold(x: jax.Array) -> jax.Array:
        more = [(0, chunks * size - X)] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, more).reshape(chunks, size, *x.shape[1:])

    mapped = jax.lax.map(f, (fold(rows), fold(targets)))
    a, b, c = (x.reshape(chunks * size, *x.shape[2:])[:X] for x in mapped)
    return a, b, c
