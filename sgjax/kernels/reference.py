"""Paged attention written to be obviously right, for any device. Imports jax and kernels.

Every token gathers its whole page table and attends densely in float32: memory T * P * S * H.
Tests compare other backends with it; nothing else should run on it.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sgjax.kernels import storage
from sgjax.kernels.batch import Layout, SharedRuns
from sgjax.kernels.precision import precision_of

Part = tuple[jax.Array, jax.Array]
"""Outputs f32[..., H, D] and log-sum-exps f32[..., H] over a part of the context."""


@dataclass(frozen=True)
class ReferenceAttention:
    """Dense attention over gathered pages.

    Attributes:
        page_size: S.
    """

    page_size: int
    name: str = "reference"
    writes_first: bool = True
    run_pays_from: int = 0

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        k_pool: jax.Array,
        v_pool: jax.Array,
        layout: Layout,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """See `Attention`."""
        k_pool = storage.write(k_pool, k, layout.out_slots)
        v_pool = storage.write(v_pool, v, layout.out_slots)
        T, K = k.shape[:2]
        rows = token_rows(layout)

        def attend(q: jax.Array, row: jax.Array, start: jax.Array, end: jax.Array) -> Part:
            slots = page_slots(layout.page_table[row], self.page_size)
            keys, vals = (storage.heads(x[slots], K, q.shape[-1]) for x in (k_pool, v_pool))
            return dense(q, keys, vals, start, end)

        own = attend(q[:, None], rows, layout.shared.own_start[rows], layout.positions + 1)
        out, lse = (x[:, 0] for x in own)
        shared = layout.shared

        def with_runs() -> jax.Array:
            tokens = jnp.minimum(shared.tokens, T - 1)
            runs = attend(q[tokens], rows[tokens[:, 0]], shared.start, shared.end)
            return merge(out, lse, *runs, shared)

        out = jax.lax.cond((shared.end > shared.start).any(), with_runs, lambda: out)
        return jnp.where(layout.used[:, None, None], out, 0).astype(q.dtype), k_pool, v_pool


def dense(q: jax.Array, keys: jax.Array, vals: jax.Array, start: jax.Array, end: jax.Array) -> Part:
    """Attend from queries f[B, Q, H, D] to positions start <= c < end of f[B, C, K, D].

    Where there are none, the output is 0 and the log-sum-exp minus infinity.
    """
    B, Q, H, D = q.shape
    C, K = keys.shape[1:3]
    q, keys, vals = (x.astype(jnp.float32) for x in (q, keys, vals))
    queries, precision = q.reshape(B, Q, K, H // K, D), precision_of(q.dtype)
    position = jnp.arange(C)
    seen = (start[:, None] <= position) & (position < end[:, None])
    scores = jnp.einsum("bqkgd,bckd->bqkgc", queries, keys, precision=precision) * D**-0.5
    scores = jnp.where(seen[:, None, None, None], scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, axis=-1)
    probs = jnp.where(seen[:, None, None, None], jnp.exp(scores - lse[..., None]), 0)
    # Stale values behind the end of a sequence must not leak, whatever they are.
    vals = jnp.where(seen[:, :, None, None], vals, 0)
    out = jnp.einsum("bqkgc,bckd->bqkgd", probs, vals, precision=precision)
    return out.reshape(q.shape), lse.reshape(B, Q, H)


def merge(
    out: jax.Array, lse: jax.Array, run_out: jax.Array, run_lse: jax.Array, shared: SharedRuns
) -> jax.Array:
    """Return f32[T, H, D], each token's own part and those of its runs as one softmax.

    Args:
        out, lse: f32[T, H, D], f32[T, H] of each token's own part.
        run_out, run_lse: f32[I, W, H, D], f32[I, W, H] of the runs.
        shared: the runs.
    """
    I = len(shared.start)  # noqa: E741 - the shape letter
    at = jnp.arange(1, I + 1)[:, None], shared.tokens  # padding, T, is dropped
    outs = jnp.zeros((I + 1, *out.shape)).at[0].set(out).at[at].set(run_out, mode="drop")
    lses = jnp.full((I + 1, *lse.shape), -jnp.inf).at[0].set(lse).at[at].set(run_lse, mode="drop")
    weights = jnp.exp(lses - jax.nn.logsumexp(lses, axis=0))
    return (weights[..., None] * outs).sum(axis=0)


def token_rows(layout: Layout) -> jax.Array:
    """Return each token's sequence, i32[T]."""
    blocks = jnp.repeat(layout.block_row, layout.block_size)
    return jnp.concatenate([jnp.arange(layout.num_decode), blocks])


def page_slots(page_table: jax.Array, page_size: int) -> jax.Array:
    """Return the pool's slots i32[B, P * S] of page tables i32[B, P]."""
    slots = page_table[:, :, None] * page_size + jnp.arange(page_size)
    return slots.reshape(page_table.shape[0], -1)
