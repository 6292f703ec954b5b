"""One attention for all paged kernels: cut a layout into tiles of queries, merge partial softmaxes.

Imports jax and kernels. A kernel only attends from a tile of queries to one range of one sequence's
positions and returns the output with its log-sum-exp. Decode rows, query blocks and shared runs are
such tiles, and results over disjoint ranges merge exactly, so nothing else differs between devices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import flax.struct
import jax
import jax.numpy as jnp

from sgjax.kernels import storage
from sgjax.kernels.batch import Layout

EMPTY = -1e30
"""Score and log-sum-exp of nothing; minus infinity would give NaN where nothing meets nothing."""


@flax.struct.dataclass
class Tiles:
    """Tiles of queries, each of one sequence; R tiles of M rows (queries times H / K).

    Attributes:
        q: f[R, K, M, D] scaled queries.
        limits: i32[R, M] a row sees positions below this; 0 for padding.
        start, end: i32[R] the range of positions; start is a multiple of S; end <= start is none.
        row: i32[R] whose pages.
    """

    q: jax.Array
    limits: jax.Array
    start: jax.Array
    end: jax.Array
    row: jax.Array


class Kernel(Protocol):
    """Attend from tiles to pages: what a device must provide."""

    def __call__(
        self, tiles: Tiles, table: jax.Array, k_pool: jax.Array, v_pool: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return outputs f32[R, K, M, D] and log-sum-exps f32[R, K, M].

        A row that sees nothing gives zeros and EMPTY.

        Args:
            tiles: the queries.
            table: i32[B, P] pages.
            k_pool, v_pool: [N * S, width].
        """
        ...


def attend(
    kernel: Kernel,
    tile_rows: int,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    k_pool: jax.Array,
    v_pool: jax.Array,
    layout: Layout,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Do what `Attention` says by tiles.

    Args:
        kernel: attends from tiles.
        tile_rows: rows a tile of queries has at most (one query's H / K at least).
        q, k, v, k_pool, v_pool, layout: see `Attention`.
    """
    k_pool = storage.write(k_pool, k, layout.out_slots)
    v_pool = storage.write(v_pool, v, layout.out_slots)
    H, HD = q.shape[1:]
    K, D, G, BQ = k.shape[1], layout.num_decode, layout.num_blocks, layout.block_size
    scaled = (q.astype(jnp.float32) * HD**-0.5).astype(q.dtype)
    run = _Run(kernel, layout.page_table, k_pool, v_pool, K)
    own, outs, lses = layout.shared.own_start, [], []
    if D:
        limits = layout.kv_lens[:D, None]
        out, lse = run(scaled[:D, None], limits, own[:D], jnp.arange(D))
        outs.append(out[:, 0])
        lses.append(lse[:, 0])
    if G:
        tile = _queries_a_tile(tile_rows * K // H, BQ)
        offsets = jnp.arange(BQ)
        limits = layout.block_start[:, None] + offsets + 1
        limits = jnp.where(offsets < layout.block_len[:, None], limits, 0)
        rows = jnp.repeat(layout.block_row, BQ // tile)
        queries = scaled[D:].reshape(-1, tile, H, HD)
        out, lse = run(queries, limits.reshape(-1, tile), own[rows], rows)
        outs.append(out.reshape(G * BQ, H, HD))
        lses.append(lse.reshape(G * BQ, H))
    out, lse = jnp.concatenate(outs), jnp.concatenate(lses)
    tile = _queries_a_tile(tile_rows * K // H, layout.shared.tokens.shape[1])
    out = jax.lax.cond(
        (layout.shared.end > layout.shared.start).any(),
        lambda: merge_runs(run, tile, scaled, layout, out, lse),
        lambda: out,
    )
    return out.astype(q.dtype), k_pool, v_pool


def merge_parts(out: jax.Array, lse: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """Merge partial softmaxes over disjoint ranges along an axis of both arrays.

    Args:
        out: f32[..., D] outputs.
        lse: f32[...] their log-sum-exps.
        axis: counted from the front.
    """
    top = lse.max(axis=axis, keepdims=True)
    weight = jnp.exp(lse - top)
    total = weight.sum(axis=axis)
    merged = (out * weight[..., None]).sum(axis=axis) / total[..., None]
    return merged, jnp.squeeze(top, axis) + jnp.log(total)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the type of a kernel's output."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Run:
    kernel: Kernel
    table: jax.Array
    k_pool: jax.Array
    v_pool: jax.Array
    K: int

    def __call__(
        self, q: jax.Array, limits: jax.Array, start: jax.Array, row: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return f32[R, Q, H, D] and f32[R, Q, H] for queries f[R, Q, H, D], limits i32[R, Q]."""
        R, Q, H, D = q.shape
        G = H // self.K
        grouped = q.reshape(R, Q, self.K, G, D).transpose(0, 2, 1, 3, 4)
        tiles = Tiles(
            q=grouped.reshape(R, self.K, Q * G, D),
            limits=jnp.repeat(limits, G, axis=1),
            start=start,
            end=limits.max(axis=1),
            row=row,
        )
        out, lse = self.kernel(tiles, self.table, self.k_pool, self.v_pool)
        out = out.reshape(R, self.K, Q, G, D).transpose(0, 2, 1, 3, 4).reshape(R, Q, H, D)
        return out, lse.reshape(R, self.K, Q, G).transpose(0, 2, 1, 3).reshape(R, Q, H)


def merge_runs(
    run: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    tile: int,
    q: jax.Array,
    layout: Layout,
    out: jax.Array,
    lse: jax.Array,
) -> jax.Array:
    """Attend to the shared runs and merge them into each token's own part.

    Args:
        run: from queries f[R, n, H, D], limits i32[R, n], starts i32[R] and rows i32[R] to outputs
            f32[R, n, H, D] and log-sum-exps f32[R, n, H].
        tile: n, a divisor of the layout's W.
        q: f[T, H, D] as `run` wants them.
        layout: with the runs.
        out, lse: f32[T, H, D], f32[T, H] of attention from each sequence's `own_start` on.

    Returns:
        f32[T, H, D].
    """
    T, D = q.shape[0], layout.num_decode
    shared = layout.shared
    parts = shared.tokens.shape[1] // tile
    tokens = shared.tokens.reshape(-1, tile)
    start, end = (jnp.repeat(x, parts) for x in (shared.start, shared.end))
    first = shared.tokens[:, 0]
    row = first
    if layout.num_blocks:
        block = jnp.clip((first - D) // layout.block_size, 0, layout.num_blocks - 1)
        row = jnp.where(first < D, first, layout.block_row[block])
    row = jnp.clip(jnp.repeat(row, parts), 0, layout.page_table.shape[0] - 1)
    # Unused runs start at 0 and end there, so their rows see nothing.
    limits = jnp.where(tokens < T, end[:, None], 0)
    got, got_lse = run(q[jnp.minimum(tokens, T - 1)], limits, start, row)
    at = tokens.reshape(-1)
    got, got_lse = got.reshape(-1, *got.shape[2:]), got_lse.reshape(-1, got_lse.shape[2])
    got_lse = jnp.where((limits.reshape(-1) > 0)[:, None], got_lse, EMPTY)
    top = lse.at[at].max(got_lse, mode="drop")
    own = jnp.exp(lse - top)
    weight = jnp.exp(got_lse - top[jnp.minimum(at, T - 1)])
    total = own.at[at].add(weight, mode="drop")
    merged = (out * own[..., None]).at[at].add(got * weight[..., None], mode="drop")
    return merged / total[..., None]


def _queries_a_tile(wanted: int, most: int) -> int:
    """Return the largest number <= max(wanted, 1) that divides `most`."""
    return max(n for n in range(1, most + 1) if most % n == 0 and n <= max(wanted, 1))
