"""Paged attention in plain XLA, shaped for its CPU backend. Imports jax and kernels.

Keys and values are gathered a chunk of pages at a time and merged by online softmax, in loops whose
trip counts follow the lengths in the batch: padding in P costs nothing.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sgjax.kernels import storage
from sgjax.kernels.batch import Layout

Carry = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

NEGATIVE = -1e30
"""Stands for minus infinity where infinity minus infinity could arise."""


@dataclass(frozen=True)
class CpuAttention:
    """Chunked attention: all decode rows at once, then query blocks one by one.

    Attributes:
        page_size: S.
        chunk: tokens gathered at a time (rounded up to whole pages).
    """

    page_size: int
    chunk: int = 128
    name: str = "cpu"
    writes_first: bool = True
    uses_runs: bool = False

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
        T, H, HD = q.shape
        K, D, G, BQ = k.shape[1], layout.num_decode, layout.num_blocks, layout.block_size
        pages = -(-self.chunk // self.page_size)
        pad = -layout.page_table.shape[1] % pages
        table = jnp.pad(layout.page_table, ((0, 0), (0, pad)))
        grouped = q.reshape(T, K, H // K, HD)
        parts = []
        if D:
            queries = grouped[:D, None]
            limits = layout.kv_lens[:D, None]
            parts.append(self._attend(queries, limits, table[:D], k_pool, v_pool)[:, 0])
        if G:
            queries = grouped[D:].reshape(G, BQ, K, H // K, HD)
            # Padded queries of a block see nothing.
            limits = layout.block_start[:, None] + jnp.arange(1, BQ + 1)
            limits = jnp.where(jnp.arange(BQ) < layout.block_len[:, None], limits, 0)

            def block(args: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
                queries, limits, row = args
                return self._attend(queries[None], limits[None], table[row][None], k_pool, v_pool)

            out = jax.lax.map(block, (queries, limits, layout.block_row))
            parts.append(out.reshape(G * BQ, K, H // K, HD))
        return jnp.concatenate(parts).reshape(T, H, HD), k_pool, v_pool

    def _attend(
        self,
        q: jax.Array,
        limits: jax.Array,
        table: jax.Array,
        k_pool: jax.Array,
        v_pool: jax.Array,
    ) -> jax.Array:
        """Attend from queries of some sequences to their own pages.

        Args:
            q: f[B, Q, K, H / K, D].
            limits: i32[B, Q] tokens each query sees: those at positions below it.
            table: i32[B, P] pages, P a whole number of chunks.
            k_pool, v_pool: [N * S, K * D].

        Returns:
            f[B, Q, K, H / K, D]; zero where the limit is 0.
        """
        B, Q, K, G, D = q.shape
        pages = -(-self.chunk // self.page_size)
        C = pages * self.page_size
        scaled = (q.astype(jnp.float32) * D**-0.5).astype(q.dtype)

        def chunk(carry: Carry) -> Carry:
            c, top, total, acc = carry
            ids = jax.lax.dynamic_slice_in_dim(table, c * pages, pages, axis=1)
            keys = self._gather(k_pool, ids).reshape(B, C, K, D)
            vals = self._gather(v_pool, ids).reshape(B, C, K, D)
            scores = jnp.einsum(
                "bqkgd,bckd->bkqgc",
                scaled,
                keys.astype(q.dtype),
                preferred_element_type=jnp.float32,
            )
            seen = c * C + jnp.arange(C) < limits[:, None, :, None, None]
            scores = jnp.where(seen, scores, NEGATIVE)
            new_top = jnp.maximum(top, scores.max(axis=-1))
            probs = jnp.where(seen, jnp.exp(scores - new_top[..., None]), 0)
            decay = jnp.exp(top - new_top)
            total = total * decay + probs.sum(axis=-1)
            new = jnp.einsum(
                "bkqgc,bckd->bkqgd",
                probs.astype(q.dtype),
                vals.astype(q.dtype),
                preferred_element_type=jnp.float32,
            )
            return c + 1, new_top, total, acc * decay[..., None] + new

        trips = -(-jnp.max(limits) // C)
        start = (
            jnp.zeros((), jnp.int32),
            jnp.full((B, K, Q, G), NEGATIVE, jnp.float32),
            jnp.zeros((B, K, Q, G), jnp.float32),
            jnp.zeros((B, K, Q, G, D), jnp.float32),
        )
        _, _, total, acc = jax.lax.while_loop(lambda carry: carry[0] < trips, chunk, start)
        out = acc / jnp.maximum(total, 1e-30)[..., None]
        return out.transpose(0, 2, 1, 3, 4).astype(q.dtype)

    def _gather(self, pool: jax.Array, pages: jax.Array) -> jax.Array:
        """Return the elements [B, pages * S, K * D] of pages i32[B, pages]."""
        by_page = pool.reshape(-1, self.page_size * pool.shape[1])
        return storage.values(by_page[pages])
