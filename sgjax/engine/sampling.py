"""Sampling on the device: from logits to token ids and log-probabilities.

DEVICE. Pure functions; imports jax and kernels.batch. Order: penalties, masks, then greedy, or
temperature, top-k, top-p, min-p and a draw. Every option is data and each stage sits in a cond, so
a batch in which nobody uses an option does not pay for it.

A row's result depends on that row alone: its draw comes from fold_in(key(seed), position).
Wherever an order of tokens matters it is (logit descending, id ascending), so ties never depend on
the device.
"""

import math

import jax
import jax.numpy as jnp

from sgjax.kernels.batch import Sampling

BLOCK = 256
"""Ids searched together where a whole row is searched in two levels; fewer if V is no multiple."""


def mask_padding(logits: jax.Array, valid_vocab: int) -> jax.Array:
    """Return logits f32[R, V] with -inf at ids that no token has.

    Args:
        logits: f32[R, V].
        valid_vocab: ids below it are tokens, static.
    """
    if valid_vocab >= logits.shape[-1]:
        return logits
    return jnp.where(jnp.arange(logits.shape[-1]) < valid_vocab, logits, -jnp.inf)


def sample(logits: jax.Array, mask_table: jax.Array, sampling: Sampling) -> jax.Array:
    """Choose one token a row.

    Args:
        logits: f32[B, V] raw logits, -inf at padded ids.
        mask_table: u32[U, ceil(V / 32)] allowed ids, bit i of word w for id 32 * w + i.
        sampling: how.

    Returns:
        i32[B].
    """
    adjusted = ((sampling.adjust_mul != 1) | (sampling.adjust_add != 0)).any()
    masked = ((sampling.mask_row != 0) | (sampling.pair_row != 0)).any()
    drawn = (sampling.temperature > 0).any()

    def choose(logits: jax.Array) -> jax.Array:
        logits = jax.lax.cond(adjusted, adjust, lambda x, _: x, logits, sampling)
        logits = jax.lax.cond(masked, apply_masks, lambda x, *_: x, logits, mask_table, sampling)
        best = argmax(logits)
        draws = jax.lax.cond(drawn, draw, lambda *_: best, logits, sampling)
        return jnp.where(sampling.temperature > 0, draws, best)

    # One outer cond, because each inner one copies its [B, V] result.
    with jax.named_scope("sample"):
        chosen: jax.Array = jax.lax.cond(adjusted | masked | drawn, choose, argmax, logits)
    return chosen


def adjust(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Apply repetition penalties, then add penalties and biases; an id may occur repeatedly."""
    rows = jnp.arange(logits.shape[0])[:, None]
    at = jnp.take_along_axis(logits, sampling.adjust_ids, axis=1)
    factor = jnp.where(at > 0, 1 / sampling.adjust_mul, sampling.adjust_mul)
    logits = logits.at[rows, sampling.adjust_ids].multiply(factor)
    return logits.at[rows, sampling.adjust_ids].add(sampling.adjust_add)


def apply_masks(logits: jax.Array, mask_table: jax.Array, sampling: Sampling) -> jax.Array:
    """Return logits with -inf where either of a row's two masks forbids the id."""
    words = mask_table[sampling.mask_row] & mask_table[sampling.pair_row]
    bits = (words[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    allowed = bits.reshape(words.shape[0], -1)[:, : logits.shape[1]]
    return jnp.where(allowed == 1, logits, -jnp.inf)


def log_mass(logits: jax.Array, mask_table: jax.Array, sampling: Sampling) -> jax.Array:
    """Return f32[B] log of the probability that the masks leave; 0 unless wanted and masked."""
    wanted = sampling.wants_logprob & (sampling.mask_row != 0)

    def measure(logits: jax.Array) -> jax.Array:
        left = log_normalizer(apply_masks(logits, mask_table, sampling)) - log_normalizer(logits)
        return jnp.where(wanted, left, 0.0)

    mass: jax.Array = jax.lax.cond(
        wanted.any(), measure, lambda x: jnp.zeros(x.shape[0], jnp.float32), logits
    )
    return mass


def argmax(logits: jax.Array) -> jax.Array:
    """Return the lowest id i32[R] of the largest logit in each row."""
    # XLA's CPU argmax compares pair by pair; its maximum is ten times faster. So take the maxima
    # of short blocks, then search the first best block only.
    R, V = logits.shape
    block = math.gcd(V, BLOCK)
    blocks = logits.reshape(R, V // block, block)
    first = jnp.argmax(blocks.max(axis=-1), axis=-1)
    inside = jnp.take_along_axis(blocks, first[:, None, None], axis=1)[:, 0]
    return (first * block + jnp.argmax(inside, axis=-1)).astype(jnp.int32)


def draw(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Draw i32[B] from the rows' distributions; rows at temperature 0 give arbitrary ids."""
    V = logits.shape[1]
    temperature = jnp.where(sampling.temperature > 0, sampling.temperature, 1)[:, None]
    scaled = (logits - logits.max(axis=-1, keepdims=True)) / temperature
    weights = jnp.exp(scaled)
    by_count = sampling.top_k < V
    weights = jax.lax.cond(
        by_count.any(),
        lambda w: keep_largest(scaled, w, (w > 0).astype(jnp.float32), sampling.top_k * 1.0),
        lambda w: w,
        weights,
    )
    by_mass = sampling.top_p < 1
    # A row without the option asks for more than everything, which keeps everything.
    wanted = jnp.where(by_mass, sampling.top_p * weights.sum(axis=-1), jnp.inf)
    weights = jax.lax.cond(
        by_mass.any(), lambda w: keep_largest(scaled, w, w, wanted), lambda w: w, weights
    )
    # The likeliest token weighs exp(0) = 1, so min-p compares weights as they are.
    weights = jnp.where(weights >= sampling.min_p[:, None], weights, 0)
    return invert(weights, uniform(sampling))


def uniform(sampling: Sampling) -> jax.Array:
    """Return f32[B] in [0, 1), one number for each (seed, position)."""

    def one(seed: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.key(seed), position))

    return jax.vmap(one)(sampling.seed, sampling.position)


def keep_largest(
    logits: jax.Array, weights: jax.Array, amounts: jax.Array, wanted: jax.Array
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

    Returns:
        f32[B, V].
    """
    V = logits.shape[1]
    ids = jnp.arange(V, dtype=jnp.int32)
    keys = _sortable(logits)
    # A share that rounds to nothing would be reached by the empty set.
    wanted = jnp.maximum(wanted, 1e-37)[:, None]

    def reaches(kept: jax.Array) -> jax.Array:
        return jnp.where(kept, amounts, 0).sum(axis=-1, keepdims=True) >= wanted

    # Bit by bit from the top: the largest threshold at which the set still reaches.
    def set_bit(i: jax.Array, threshold: jax.Array) -> jax.Array:
        higher = threshold | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(reaches(keys >= higher), higher, threshold)

    threshold = jax.lax.fori_loop(0, 32, set_bit, jnp.zeros((logits.shape[0], 1), jnp.uint32))

    # And the fewest ties, by id. Where the last logit has no equal, all of it are kept.
    ties = keys == threshold
    bits = max(1, (V - 1).bit_length())
    trips = jnp.where((ties.sum(axis=-1) > 1).any(), bits, 0)

    def set_id_bit(i: jax.Array, last: jax.Array) -> jax.Array:
        lower = last & ~(jnp.int32(1) << (bits - 1 - i))
        return jnp.where(reaches((keys > threshold) | (ties & (ids <= lower))), lower, last)

    everything = jnp.full((logits.shape[0], 1), (1 << bits) - 1, jnp.int32)
    last = jax.lax.fori_loop(0, trips, set_id_bit, everything)
    return jnp.where((keys > threshold) | (ties & (ids <= last)), weights, 0)


def invert(weights: jax.Array, u: jax.Array) -> jax.Array:
    """Return the id i32[B] at which the running sum of f32[B, V] passes u * total; u in [0, 1)."""
    B, V = weights.shape
    block = math.gcd(V, BLOCK)
    blocks = weights.reshape(B, V // block, block)
    sums = blocks.sum(axis=-1)
    running = jnp.cumsum(sums, axis=-1)
    target = u * running[:, -1]
    first = _first_above(running, sums, target)[:, None]
    before = jnp.take_along_axis(running - sums, first, axis=1)[:, 0]
    inside = jnp.take_along_axis(blocks, first[:, :, None], axis=1)[:, 0]
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


def log_normalizer(logits: jax.Array) -> jax.Array:
    """Return f32[R] log of the sum of exp of f32[R, V]."""
    return jax.nn.logsumexp(logits, axis=-1)


def top_logprobs(
    logits: jax.Array, normalizer: jax.Array, count: int
) -> tuple[jax.Array, jax.Array]:
    """Return the likeliest ids i32[R, count] and their log-probabilities f32[R, count]."""
    if count == 0:
        empty = (logits.shape[0], 0)
        return jnp.zeros(empty, jnp.int32), jnp.zeros(empty, jnp.float32)
    best, ids = jax.lax.top_k(logits, count)
    return ids.astype(jnp.int32), best - normalizer[:, None]


def _sortable(x: jax.Array) -> jax.Array:
    """Return u32 keys in the order of the floats."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))
