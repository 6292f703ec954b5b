"""Sampling on the device: from logits to token ids and log-probabilities.

DEVICE. Pure functions; imports jax, kernels.batch and engine.vocab. Order: penalties, masks, then
greedy, or temperature, top-k, top-p, min-p and a draw. Every option is data and each stage sits in
a cond, so a batch in which nobody uses an option does not pay for it.

A row's result depends on that row alone: its draw comes from fold_in(key(seed), position).
Wherever an order of tokens matters it is (logit descending, id ascending), so ties never depend on
the device. Where the vocabulary is split, logits are a device's part of them (`Vocab`), all else is
the same on each.
"""

import math

import jax
import jax.numpy as jnp

from sgjax.engine.vocab import WHOLE, Vocab
from sgjax.kernels.batch import Sampling

BLOCK = 256
"""Ids searched together where a whole row is searched in two levels; fewer if V is no multiple."""


def mask_padding(logits: jax.Array, valid_vocab: int, vocab: Vocab = WHOLE) -> jax.Array:
    """Return logits f32[R, V] with -inf at ids that no token has.

    Args:
        logits: f32[R, V].
        valid_vocab: ids below it are tokens, static.
        vocab: how it is split.
    """
    if valid_vocab >= logits.shape[1] * vocab.devices:
        return logits
    return jnp.where(_ids(logits, vocab) < valid_vocab, logits, -jnp.inf)


def sample(
    logits: jax.Array, mask_table: jax.Array, sampling: Sampling, vocab: Vocab = WHOLE
) -> jax.Array:
    """Choose one token a row.

    Args:
        logits: f32[B, V] raw logits, -inf at padded ids.
        mask_table: u32[U, ceil(V / 32)] allowed ids, bit i of word w for id 32 * w + i.
        sampling: how.
        vocab: how it is split.

    Returns:
        i32[B].
    """
    adjusted = ((sampling.adjust_mul != 1) | (sampling.adjust_add != 0)).any()
    masked = (sampling.mask_row != 0).any()
    drawn = (sampling.temperature > 0).any()

    def choose(logits: jax.Array) -> jax.Array:
        logits = jax.lax.cond(adjusted, lambda x: adjust(x, sampling, vocab), lambda x: x, logits)
        logits = jax.lax.cond(
            masked,
            lambda x, table: apply_masks(x, table, sampling, vocab),
            lambda x, _: x,
            logits,
            mask_table,
        )
        best = argmax(logits, vocab)
        draws = jax.lax.cond(drawn, lambda x: draw(x, sampling, vocab), lambda _: best, logits)
        return jnp.where(sampling.temperature > 0, draws, best)

    # One outer cond, because each inner one copies its [B, V] result.
    with jax.named_scope("sample"):
        chosen: jax.Array = jax.lax.cond(
            adjusted | masked | drawn, choose, lambda x: argmax(x, vocab), logits
        )
    return chosen


def adjust(logits: jax.Array, sampling: Sampling, vocab: Vocab = WHOLE) -> jax.Array:
    """Apply repetition penalties, then add penalties and biases; an id may occur repeatedly."""
    rows = jnp.arange(logits.shape[0])[:, None]
    columns, here = vocab.local(logits, sampling.adjust_ids)
    at = jnp.take_along_axis(logits, columns, axis=1)
    factor = jnp.where(at > 0, 1 / sampling.adjust_mul, sampling.adjust_mul)
    logits = logits.at[rows, columns].multiply(jnp.where(here, factor, 1))
    return logits.at[rows, columns].add(jnp.where(here, sampling.adjust_add, 0))


def apply_masks(
    logits: jax.Array, mask_table: jax.Array, sampling: Sampling, vocab: Vocab = WHOLE
) -> jax.Array:
    """Return logits with -inf where a row's mask forbids the id."""
    words = mask_table[sampling.mask_row]
    if vocab.devices > 1:  # whose parts are whole words
        count = logits.shape[1] // 32
        words = jax.lax.dynamic_slice_in_dim(words, vocab.first_id(logits) // 32, count, axis=1)
    bits = (words[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    allowed = bits.reshape(words.shape[0], -1)[:, : logits.shape[1]]
    return jnp.where(allowed == 1, logits, -jnp.inf)


def log_mass(
    logits: jax.Array, mask_table: jax.Array, sampling: Sampling, vocab: Vocab = WHOLE
) -> jax.Array:
    """Return f32[B] log of the probability that the masks leave; 0 unless wanted and masked."""
    wanted = sampling.wants_logprob & (sampling.mask_row != 0)

    def measure(logits: jax.Array) -> jax.Array:
        allowed = apply_masks(logits, mask_table, sampling, vocab)
        left = log_normalizer(allowed, vocab) - log_normalizer(logits, vocab)
        return jnp.where(wanted, left, 0.0)

    mass: jax.Array = jax.lax.cond(
        wanted.any(), measure, lambda x: jnp.zeros(x.shape[0], jnp.float32), logits
    )
    return mass


def argmax(logits: jax.Array, vocab: Vocab = WHOLE) -> jax.Array:
    """Return the lowest id i32[R] of the largest logit in each row."""
    # XLA's CPU argmax compares pair by pair; its maximum is ten times faster. So take the maxima
    # of short blocks, then search the first best block only.
    R, V = logits.shape
    block = math.gcd(V, BLOCK)
    blocks = logits.reshape(R, V // block, block)
    first = jnp.argmax(blocks.max(axis=-1), axis=-1)
    inside = jnp.take_along_axis(blocks, first[:, None, None], axis=1)[:, 0]
    best = jnp.argmax(inside, axis=-1)[:, None]
    ids = first[:, None] * block + best + vocab.first_id(logits)
    # Devices hold ids in order, so the first of the best devices has the lowest id.
    values = vocab.joined(jnp.take_along_axis(inside, best, axis=1))
    which = jnp.argmax(values, axis=-1)[:, None]
    return jnp.take_along_axis(vocab.joined(ids), which, axis=1)[:, 0].astype(jnp.int32)


def draw(logits: jax.Array, sampling: Sampling, vocab: Vocab = WHOLE) -> jax.Array:
    """Draw i32[B] from the rows' distributions; rows at temperature 0 give arbitrary ids."""
    V = logits.shape[1] * vocab.devices
    temperature = jnp.where(sampling.temperature > 0, sampling.temperature, 1)[:, None]
    scaled = (logits - vocab.largest(logits.max(axis=-1, keepdims=True))) / temperature
    weights = jnp.exp(scaled)
    by_count = sampling.top_k < V
    weights = jax.lax.cond(
        by_count.any(),
        lambda w: keep_largest(scaled, w, w > 0, sampling.top_k * 1.0, vocab),
        lambda w: w,
        weights,
    )
    by_mass = sampling.top_p < 1
    # A row without the option asks for more than everything, which keeps everything.
    wanted = jnp.where(by_mass, sampling.top_p * _sum(weights, vocab)[:, 0], jnp.inf)
    weights = jax.lax.cond(
        by_mass.any(), lambda w: keep_largest(scaled, w, w, wanted, vocab), lambda w: w, weights
    )
    # The likeliest token weighs exp(0) = 1, so min-p compares weights as they are.
    weights = jnp.where(weights >= sampling.min_p[:, None], weights, 0)
    return invert(weights, uniform(sampling), vocab)


def uniform(sampling: Sampling) -> jax.Array:
    """Return f32[B] in [0, 1), one number for each (seed, position)."""

    def one(seed: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.key(seed), position))

    return jax.vmap(one)(sampling.seed, sampling.position)


def keep_largest(
    logits: jax.Array,
    weights: jax.Array,
    amounts: jax.Array,
    wanted: jax.Array,
    vocab: Vocab = WHOLE,
) -> jax.Array:
    """Zero the weights outside the smallest leading set whose amounts reach `wanted`.

    Leading in the order (logit descending, id ascending); at least one token is kept. Instead of
    sorting, bisect: over the logits' bit patterns for the last logit in the set, then over ids
    among its ties.

    Args:
        logits: f32[B, V].
        weights: f32[B, V] >= 0.
        amounts: f32[B, V] >= 0, what is summed: 1 each for top-k, probability for top-p.
        wanted: f32[B].
        vocab: how it is split.

    Returns:
        f32[B, V].
    """
    V, ids = logits.shape[1] * vocab.devices, _ids(logits, vocab)
    keys = _sortable(logits)
    # A share that rounds to nothing would be reached by the empty set.
    wanted = jnp.maximum(wanted, 1e-37)[:, None]

    def reaches(kept: jax.Array) -> jax.Array:
        return _sum(jnp.where(kept, amounts, 0).astype(jnp.float32), vocab) >= wanted

    # Bit by bit from the top: the largest threshold at which the set still reaches.
    def set_bit(i: jax.Array, threshold: jax.Array) -> jax.Array:
        higher = threshold | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(reaches(keys >= higher), higher, threshold)

    threshold = jax.lax.fori_loop(0, 32, set_bit, jnp.zeros((logits.shape[0], 1), jnp.uint32))

    # And the fewest ties, by id. Where the last logit has no equal, all of it are kept.
    ties = keys == threshold
    bits = max(1, (V - 1).bit_length())
    trips = jnp.where((vocab.total(ties.sum(axis=-1)) > 1).any(), bits, 0)

    def set_id_bit(i: jax.Array, last: jax.Array) -> jax.Array:
        lower = last & ~(jnp.int32(1) << (bits - 1 - i))
        return jnp.where(reaches((keys > threshold) | (ties & (ids <= lower))), lower, last)

    everything = jnp.full((logits.shape[0], 1), (1 << bits) - 1, jnp.int32)
    last = jax.lax.fori_loop(0, trips, set_id_bit, everything)
    return jnp.where((keys > threshold) | (ties & (ids <= last)), weights, 0)


def invert(weights: jax.Array, u: jax.Array, vocab: Vocab = WHOLE) -> jax.Array:
    """Return the id i32[B] at which the running sum of f32[B, V] passes u * total; u in [0, 1)."""
    B, V = weights.shape
    block = math.gcd(V, BLOCK)
    blocks = weights.reshape(B, V // block, block)
    sums = vocab.joined(blocks.sum(axis=-1))
    running = jnp.cumsum(sums, axis=-1)
    target = u * running[:, -1]
    first = _first_above(running, sums, target)[:, None]
    before = jnp.take_along_axis(running - sums, first, axis=1)[:, 0]
    # As if ids were blocks: which of them this device has.
    column, here = vocab.local(blocks[:, :, 0], first)
    inside = jnp.take_along_axis(blocks, column[:, :, None], axis=1)[:, 0]
    inside = vocab.total(jnp.where(here, inside, 0))
    return first[:, 0] * block + _first_above(jnp.cumsum(inside, axis=-1), inside, target - before)


def _first_above(running: jax.Array, weights: jax.Array, target: jax.Array) -> jax.Array:
    """Return the first index i32[B] that has weight and whose running sum exceeds the target.

    Running sums are rounded; where none exceeds it, the last index that has weight is meant.
    """
    n = running.shape[1]
    above = (running > target[:, None]) & (weights > 0)
    last = n - 1 - jnp.argmax(weights[:, ::-1] > 0, axis=-1)
    first = jnp.where(above.any(axis=-1), jnp.argmax(above, axis=-1), last)
    return first.astype(jnp.int32)


def log_normalizer(logits: jax.Array, vocab: Vocab = WHOLE) -> jax.Array:
    """Return f32[R] log of the sum of exp of f32[R, V]."""
    return jax.nn.logsumexp(vocab.joined(jax.nn.logsumexp(logits, axis=1, keepdims=True)), axis=1)


def top_logprobs(
    logits: jax.Array, normalizer: jax.Array, count: int, vocab: Vocab = WHOLE
) -> tuple[jax.Array, jax.Array]:
    """Return the likeliest ids i32[R, count] and their log-probabilities f32[R, count]."""
    if count == 0:
        empty = (logits.shape[0], 0)
        return jnp.zeros(empty, jnp.int32), jnp.zeros(empty, jnp.float32)
    best, ids = jax.lax.top_k(logits, min(count, logits.shape[1]))
    # The best of each device, in the order of ids, hold the best of all.
    best, ids = vocab.joined(best), vocab.joined(ids + vocab.first_id(logits))
    best, which = jax.lax.top_k(best, count)
    ids = jnp.take_along_axis(ids, which, axis=1)
    return ids.astype(jnp.int32), best - normalizer[:, None]


def _ids(logits: jax.Array, vocab: Vocab) -> jax.Array:
    """Return i32[V], the ids of the columns."""
    return vocab.first_id(logits) + jnp.arange(logits.shape[1], dtype=jnp.int32)


def _sum(x: jax.Array, vocab: Vocab) -> jax.Array:
    """Return f32[R, 1], the sum of f32[R, V], in an order that a split does not change."""
    R, V = x.shape
    block = math.gcd(V, BLOCK)
    return vocab.joined(x.reshape(R, V // block, block).sum(axis=-1)).sum(axis=-1, keepdims=True)


def _sortable(x: jax.Array) -> jax.Array:
    """Return u32 keys in the order of the floats."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))
