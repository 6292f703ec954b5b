"""Paged attention written to be obviously right, for any device. Imports jax and kernels.

Every token gathers its whole page table and attends densely in float32: memory T * P * S * H.
Tests compare other backends with it; nothing else should run on it.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sgjax.kernels import storage
from sgjax.kernels.batch import Layout
from sgjax.kernels.precision import precision_of


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
        T, H, D = q.shape
        K = k.shape[1]
        rows, valid = token_rows(layout)
        slots = page_slots(layout.page_table[rows], self.page_size)
        keys = storage.values(k_pool[slots]).reshape(T, -1, K, D).astype(jnp.float32)
        vals = storage.values(v_pool[slots]).reshape(T, -1, K, D).astype(jnp.float32)
        queries = q.reshape(T, K, H // K, D).astype(jnp.float32)
        precision = precision_of(queries.dtype)
        scores = jnp.einsum("tkgd,tskd->tkgs", queries, keys, precision=precision) * D**-0.5
        seen = jnp.arange(slots.shape[1]) <= layout.positions[:, None]
        probs = jax.nn.softmax(jnp.where(seen[:, None, None, :], scores, -jnp.inf), axis=-1)
        # Stale values behind the end of a sequence must not leak, whatever they are.
        vals = jnp.where(seen[:, :, None, None], vals, 0)
        out = jnp.einsum("tkgs,tskd->tkgd", probs, vals, precision=precision).reshape(T, H, D)
        return jnp.where(valid[:, None, None], out, 0).astype(q.dtype), k_pool, v_pool


def token_rows(layout: Layout) -> tuple[jax.Array, jax.Array]:
    """Return each token's sequence i32[T] and whether it is a real token, bool[T]."""
    D, BQ = layout.num_decode, layout.block_size
    rows = jnp.concatenate([jnp.arange(D), jnp.repeat(layout.block_row, BQ)])
    in_block = jnp.arange(BQ) < layout.block_len[:, None]
    return rows, jnp.concatenate([layout.kv_lens[:D] > 0, in_block.reshape(-1)])


def page_slots(page_table: jax.Array, page_size: int) -> jax.Array:
    """Return the pool's slots i32[B, P * S] of page tables i32[B, P]."""
    slots = page_table[:, :, None] * page_size + jnp.arange(page_size)
    return slots.reshape(page_table.shape[0], -1)
