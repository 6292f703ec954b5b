"""The mixture-of-experts MLP (Mixtral): each token goes to its best experts, none is dropped.

DEVICE. Imports jax. Grouped products (`jax.lax.ragged_dot`) do exactly the work that was routed;
XLA's CPU backend has no such kernel, so there every expert computes every token and the weights of
the routing, zero but for the chosen, sum them up.
"""

import jax
import jax.numpy as jnp

from sgjax.kernels.precision import precision_of


def moe(
    x: jax.Array,
    router: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    down: jax.Array,
    experts_per_token: int,
) -> jax.Array:
    """Return the weighted sum of each token's experts, f32[T, E].

    Args:
        x: f[T, E] normed hidden states.
        router: f[X, E].
        gate, up: f[X, E, F] inputs of the experts' gated MLPs, [in, out] as grouped products ask.
        down: f[X, F, E].
        experts_per_token: Y, experts a token is routed to; their probabilities are renormalised.
    """
    x = x.astype(gate.dtype)
    scores = _dot(x, router.T)
    best, experts = jax.lax.top_k(scores, experts_per_token)
    # Softmax over the chosen alone equals softmax over all, renormalised.
    weights = jax.nn.softmax(best, axis=-1)
    out: jax.Array = jax.lax.platform_dependent(
        x, experts, weights, gate, up, down, cpu=every_expert, default=grouped
    )
    return out


def grouped(
    x: jax.Array,
    experts: jax.Array,
    weights: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    down: jax.Array,
) -> jax.Array:
    """Sort (token, expert) pairs by expert i32[T, Y], then one grouped product a matrix."""
    T, Y = experts.shape
    flat = experts.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    sizes = jnp.bincount(flat, length=gate.shape[0]).astype(jnp.int32)
    rows = x[order // Y]
    h = jax.nn.silu(_grouped_dot(rows, gate, sizes)) * _grouped_dot(rows, up, sizes)
    y = _grouped_dot(h.astype(x.dtype), down, sizes)
    y = y * weights.reshape(-1)[order][:, None]
    return jnp.zeros((T, y.shape[1]), jnp.float32).at[order // Y].add(y)


def every_expert(
    x: jax.Array,
    experts: jax.Array,
    weights: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    down: jax.Array,
) -> jax.Array:
    """Let every expert compute every token; X / Y times the work of `grouped`."""
    out = jnp.zeros((x.shape[0], down.shape[2]), jnp.float32)
    for i in range(gate.shape[0]):
        h = jax.nn.silu(_dot(x, gate[i])) * _dot(x, up[i])
        share = jnp.where(experts == i, weights, 0).sum(axis=-1)
        out = out + share[:, None] * _dot(h.astype(x.dtype), down[i])
    return out


def _dot(x: jax.Array, weight: jax.Array) -> jax.Array:
    precision = precision_of(x.dtype)
    return jnp.dot(x, weight, precision=precision, preferred_element_type=jnp.float32)


def _grouped_dot(x: jax.Array, weights: jax.Array, sizes: jax.Array) -> jax.Array:
    precision = precision_of(x.dtype)
    return jax.lax.ragged_dot(
        x, weights, sizes, precision=precision, preferred_element_type=jnp.float32
    )
