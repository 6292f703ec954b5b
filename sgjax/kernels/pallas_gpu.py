"""Paged attention for CUDA in Pallas, lowered by Triton. Imports jax, pallas and kernels.

A program of the kernel holds one kv head of a tile of queries, or a piece of it where many query
heads share that, and walks a share of the tile's range in chunks of positions: page ids first, then
rows of the pool through them, whatever the page size.
The range is split over `splits` programs (split-KV, as FlashDecoding): their partial softmaxes are
merged outside. Triton's arrays have power-of-two sizes, so rows and heads are padded with masks.

Pallas' Triton lowering is deprecated since jax 0.11 but there (checked up to 0.12); parameters are
always given explicitly, because without them jax 0.10 takes another lowering. A kernel through
Mosaic GPU or a foreign call can join as another `ragged.Kernel`.
"""

import dataclasses
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from sgjax.kernels import ragged
from sgjax.kernels.batch import Layout
from sgjax.kernels.precision import precision_of
from sgjax.kernels.ragged import EMPTY, Tiles

PROGRAMS = 1024
"""Programs that keep a large GPU busy: several for each of its some 130 multiprocessors."""


@dataclass(frozen=True)
class PallasGpuAttention:
    """Tiles of queries over page tables, on an NVIDIA GPU of compute capability 8.0 or later.

    Attributes:
        page_size: S.
        chunk: positions a program takes at a time, a power of two >= 16.
        tile_rows: rows (queries times H / K) of a tile of a query block, and of a program: a power
            of two. In float32 a half and a quarter (at least 16): elements are twice as wide, and
            exact products need many registers.
        splits: programs that share a tile's range at most; fewer where tiles fill the device.
        num_warps, num_stages: of each program.
        interpret: run on the CPU, for tests of the arithmetic.
    """

    page_size: int
    chunk: int = 64
    tile_rows: int = 64
    splits: int = 8
    num_warps: int = 4
    num_stages: int = 2
    interpret: bool = False
    name: str = "pallas_gpu"
    writes_first: bool = True
    run_pays_from: int = 2

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
        fitted = self._fitted(q.dtype)
        return ragged.attend(fitted.kernel, fitted.tile_rows, q, k, v, k_pool, v_pool, layout)

    def _fitted(self, dtype: jnp.dtype) -> "PallasGpuAttention":
        if dtype != jnp.float32:
            return self
        chunk, rows = max(self.chunk // 2, 16), max(self.tile_rows // 4, 1)
        return dataclasses.replace(self, chunk=chunk, tile_rows=rows)

    def kernel(
        self, tiles: Tiles, table: jax.Array, k_pool: jax.Array, v_pool: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """See `ragged.Kernel`."""
        R, K, M, D = tiles.q.shape
        # A matrix unit takes at least 16 rows; registers hold no more than those of a tile.
        rows = max(16, min(pl.next_power_of_2(M), self.tile_rows))
        pieces = pl.cdiv(M, rows)
        splits = max(1, min(self.splits, PROGRAMS // (R * K * pieces)))
        lanes, more = pl.next_power_of_2(D), pieces * rows - M
        q = jnp.pad(tiles.q, ((0, 0), (0, 0), (0, more), (0, lanes - D)))
        q = q.reshape(R, K * pieces, rows, lanes)
        limits = jnp.pad(tiles.limits, ((0, 0), (0, more))).reshape(R, pieces, rows)
        out, lse = pl.pallas_call(
            functools.partial(self._program, D),
            grid=(R, K * pieces, splits),
            out_shape=(
                ragged.f32(R, K * pieces, splits, rows, lanes),
                ragged.f32(R, K * pieces, splits, rows),
            ),
            compiler_params=plt.CompilerParams(
                num_warps=self.num_warps, num_stages=self.num_stages
            ),
            interpret=self.interpret,
            name="paged_attention_gpu",
        )(q, limits, tiles.start, tiles.end, tiles.row, table, k_pool, v_pool)
        out, lse = ragged.merge_parts(out, lse, 2)
        out, lse = out.reshape(R, K, -1, lanes), lse.reshape(R, K, -1)
        return out[:, :, :M, :D], lse[:, :, :M]

    def _program(  # type: ignore[no-untyped-def] # refs have no public type
        self,
        D,
        q_ref,
        limit_ref,
        start_ref,
        end_ref,
        row_ref,
        table_ref,
        k_ref,
        v_ref,
        out_ref,
        lse_ref,
    ) -> None:
        r, part, split = pl.program_id(0), pl.program_id(1), pl.program_id(2)
        pieces, splits = limit_ref.shape[1], out_ref.shape[2]
        head = part // pieces
        M, lanes = q_ref.shape[2:]
        S, C, P = self.page_size, self.chunk, table_ref.shape[1]
        start, end, row = start_ref[r], end_ref[r], row_ref[r]
        # Whole chunks a split, as equal as they come.
        chunks = pl.cdiv(pl.cdiv(jnp.maximum(end - start, 0), C), splits)
        first = split * chunks
        last = jnp.minimum(first + chunks, pl.cdiv(jnp.maximum(end - start, 0), C))
        q = q_ref[r, part]
        dot = functools.partial(plt.dot, precision=precision_of(q.dtype))
        limit = limit_ref[r, part % pieces]
        dims = jnp.arange(lanes)
        columns = head * D + dims

        def chunk(i, carry):  # type: ignore[no-untyped-def]
            top, total, acc = carry
            position = start + i * C + jnp.arange(C)
            real = position < end
            page = plt.load(
                table_ref.at[row, jnp.minimum(position // S, P - 1)], mask=real, other=0
            )
            slot = page * S + position % S
            inside = real[:, None] & (dims < D)[None, :]
            keys = plt.load(k_ref.at[slot[:, None], columns[None, :]], mask=inside, other=0)
            scores = dot(q, keys.astype(q.dtype), trans_b=True)
            seen = position[None, :] < limit[:, None]
            scores = jnp.where(seen & real[None, :], scores, EMPTY)
            new_top = jnp.maximum(top, scores.max(axis=1))
            probs = jnp.where(scores > EMPTY / 2, jnp.exp(scores - new_top[:, None]), 0.0)
            decay = jnp.exp(top - new_top)
            vals = plt.load(v_ref.at[slot[:, None], columns[None, :]], mask=inside, other=0)
            new = dot(probs.astype(q.dtype), vals.astype(q.dtype))
            return new_top, total * decay + probs.sum(axis=1), acc * decay[:, None] + new

        empty = (
            jnp.full((M,), EMPTY, jnp.float32),
            jnp.zeros((M,), jnp.float32),
            jnp.zeros((M, lanes), jnp.float32),
        )
        top, total, acc = jax.lax.fori_loop(first, last, chunk, empty)
        none = total == 0
        safe = jnp.where(none, 1.0, total)
        out_ref[r, part, split] = acc / safe[:, None]
        lse_ref[r, part, split] = jnp.where(none, EMPTY, top + jnp.log(safe))
