"""Paged attention in plain XLA, shaped for its CPU backend. Imports jax and kernels.

Keys and values are gathered a chunk of pages at a time and merged by online softmax, in loops whose
trip counts follow the lengths in the batch: padding in P costs nothing.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sgjax.kernels import ragged, storage
from sgjax.kernels.batch import Layout
from sgjax.kernels.ragged import EMPTY

Part = tuple[jax.Array, jax.Array]
"""Outputs and log-sum-exps over a part of the context."""

Carry = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

MAX_BUNDLE, MAX_BUNDLE_ROWS = 4, 10
"""Kv heads, and their query heads, worth doing as one product for a single query token."""


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
    run_pays_from: int = 8

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
        return self._read(q, k_pool, v_pool, layout), k_pool, v_pool

    def _read(
        self, q: jax.Array, k_pool: jax.Array, v_pool: jax.Array, layout: Layout
    ) -> jax.Array:
        """Attend to what is in the pool; see `Attention`."""
        T, H, HD = q.shape
        K = k_pool.shape[1] // HD
        D, G, BQ = layout.num_decode, layout.num_blocks, layout.block_size
        # What lies before `own_start` is attended in shared runs, further below.
        own = layout.shared.own_start
        table = self._from(layout.page_table, own)

        def tile(args: tuple[jax.Array, jax.Array, jax.Array]) -> Part:
            queries, limits, table = (x[None] for x in args)
            out, lse = self._attend(queries, limits, table, k_pool, v_pool, 1)
            return out[0], lse[0]

        grouped = q.reshape(T, K, H // K, HD)
        parts = []
        if D:
            limits = (layout.kv_lens - own)[:D, None]
            bundle = _bundle(K, H // K)
            out, lse = self._attend(grouped[:D, None], limits, table[:D], k_pool, v_pool, bundle)
            parts.append((out, lse))
        if G:
            # Padded queries of a block see nothing.
            first = layout.block_start - own[layout.block_row]
            limits = first[:, None] + jnp.arange(1, BQ + 1)
            limits = jnp.where(jnp.arange(BQ) < layout.block_len[:, None], limits, 0)
            queries = grouped[D:].reshape(G, BQ, K, H // K, HD)
            parts.append(jax.lax.map(tile, (queries, limits, table[layout.block_row])))
        out = jnp.concatenate([part.reshape(-1, H, HD) for part, _ in parts])
        lse = jnp.concatenate([part.reshape(-1, H) for _, part in parts])

        def run(q: jax.Array, limits: jax.Array, start: jax.Array, row: jax.Array) -> Part:
            queries = q.reshape(*q.shape[:2], K, H // K, HD)
            tables = self._from(layout.page_table[row], start)
            limits = jnp.maximum(limits - start[:, None], 0)
            out, lse = jax.lax.map(tile, (queries, limits, tables))
            return out.reshape(q.shape), lse.reshape(q.shape[:3])

        merged: jax.Array = jax.lax.cond(
            (layout.shared.end > layout.shared.start).any(),
            lambda: ragged.merge_runs(run, layout.shared.tokens.shape[1], q, layout, out, lse),
            lambda: out,
        )
        return merged.astype(q.dtype)

    def _from(self, table: jax.Array, start: jax.Array) -> jax.Array:
        """Return page tables i32[B, P'] from positions i32[B] on, in whole chunks."""
        P = table.shape[1]
        pages = -(-self.chunk // self.page_size)
        index = (start // self.page_size)[:, None] + jnp.arange(-(-P // pages) * pages)
        # Behind the end it is any page: limits say what is seen.
        return jnp.take_along_axis(table, jnp.minimum(index, P - 1), axis=1)

    def _attend(
        self,
        q: jax.Array,
        limits: jax.Array,
        table: jax.Array,
        k_pool: jax.Array,
        v_pool: jax.Array,
        bundle: int,
    ) -> Part:
        """Attend from queries of some sequences to their own pages.

        Args:
            q: f[B, Q, K, H / K, D].
            limits: i32[B, Q] tokens each query sees: those at positions below it.
            table: i32[B, P] pages, P a whole number of chunks.
            k_pool, v_pool: [N * S, K * D].
            bundle: kv heads whose products are done as one; divides K.

        Returns:
            f32[B, Q, K, H / K, D], zero where the limit is 0, and f32[B, Q, K, H / K] their
            log-sum-exps.
        """
        B, Q, K, G, D = q.shape
        A, M, W = B * (K // bundle), Q * bundle * G, bundle * D
        pages = -(-self.chunk // self.page_size)
        C = pages * self.page_size
        rows = _spread(q.astype(jnp.float32) * D**-0.5, bundle).astype(q.dtype)
        row_limits = jnp.repeat(jnp.repeat(limits, bundle * G, axis=1), K // bundle, axis=0)
        row_limits = row_limits[:, :, None]

        def chunk(carry: Carry) -> Carry:
            c, top, total, acc = carry
            ids = jax.lax.dynamic_slice_in_dim(table, c * pages, pages, axis=1)
            keys, axes = self._gather(k_pool, ids, W)
            vals, _ = self._gather(v_pool, ids, W)
            scores = _einsum(f"amw,{axes}->amc", rows, keys.astype(q.dtype))
            scores = jnp.where(c * C + jnp.arange(C) < row_limits, scores, EMPTY)
            # A query that sees no key at all gets equal weights here; it is zeroed at the end.
            new_top = jnp.maximum(top, scores.max(axis=-1))
            probs = jnp.exp(scores - new_top[..., None])
            decay = jnp.exp(top - new_top)
            new = _einsum(f"amc,{axes}->amw", probs.astype(q.dtype), vals.astype(q.dtype))
            total = total * decay + probs.sum(axis=-1)
            return c + 1, new_top, total, acc * decay[..., None] + new

        trips = -(-jnp.max(limits) // C)
        start = (
            jnp.zeros((), jnp.int32),
            jnp.full((A, M), EMPTY, jnp.float32),
            jnp.zeros((A, M), jnp.float32),
            jnp.zeros((A, M, W), jnp.float32),
        )
        _, top, total, acc = jax.lax.while_loop(lambda carry: carry[0] < trips, chunk, start)
        out = jnp.where(row_limits > 0, acc / total[..., None], 0)
        lse = jnp.where(row_limits[..., 0] > 0, top + jnp.log(total), EMPTY)
        lse = lse.reshape(B, K // bundle, Q, bundle, G)
        return _collect(out, q.shape, bundle), jnp.moveaxis(lse, 1, 2).reshape(B, Q, K, G)

    def _gather(self, pool: jax.Array, pages: jax.Array, width: int) -> tuple[jax.Array, str]:
        """Gather pages i32[B, pages], cut into bundles of `width` elements.

        Returns:
            Their elements, a running over sequences and bundles and c over tokens, and the order
            of its axes: "acw" or "caw", whichever needs no copy (several sequences of several
            bundles do need one).
        """
        by_page = pool.reshape(-1, self.page_size * pool.shape[1])
        stored = by_page.at[pages].get(mode="promise_in_bounds", wrap_negative_indices=False)
        B, C, n = pages.shape[0], pages.shape[1] * self.page_size, pool.shape[1] // width
        found = storage.values(stored).reshape(B, C, n, width)
        if B == 1:
            return found[0], "caw"
        return jnp.moveaxis(found, 2, 1).reshape(B * n, C, width), "acw"


def _bundle(num_kv_heads: int, group: int) -> int:
    """Return how many kv heads of `group` query heads each to treat as one in decode rows.

    With few query heads the time of a product goes into reading keys, not into arithmetic. One
    product of several heads at once, most of it multiplied by zero, reads whole rows of the pool;
    a product for each head reads strided slices.
    """
    fitting = (m for m in range(2, MAX_BUNDLE + 1) if m * group <= MAX_BUNDLE_ROWS)
    return max((m for m in fitting if num_kv_heads % m == 0), default=1)


def _einsum(spec: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.einsum(spec, x, y, preferred_element_type=jnp.float32)


def _spread(q: jax.Array, bundle: int) -> jax.Array:
    """Lay out q[B, Q, K, G, D] as [B * K / m, Q * m * G, m * D], zero outside each head's D."""
    B, Q, K, G, D = q.shape
    own = np.eye(bundle, dtype=q.dtype)[:, None, :, None]
    spread = q.reshape(B, Q, K // bundle, bundle, G, 1, D) * own
    spread = jnp.moveaxis(spread, 2, 1)
    return spread.reshape(-1, Q * bundle * G, bundle * D)


def _collect(out: jax.Array, shape: tuple[int, ...], bundle: int) -> jax.Array:
    """Undo `_spread`: take each head's own D of [B * K / m, Q * m * G, m * D]."""
    B, Q, K, G, D = shape
    spread = out.reshape(B, K // bundle, Q, bundle, G, bundle, D)
    own = jnp.stack([spread[:, :, :, m, :, m] for m in range(bundle)], axis=3)
    return jnp.moveaxis(own, 1, 2).reshape(shape)
