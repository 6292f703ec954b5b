"""Paged attention for TPUs in Pallas, lowered by Mosaic. Imports jax, pallas and kernels.

A grid step holds one tile of queries, all heads. Page ids, ranges and rows are prefetched into
scalar memory; pages are copied whole from HBM into one of two buffers while the other is computed
on. Never `ref.reshape` here: the interpreter that checks for races does not know it.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from sgjax.errors import UnsupportedBackend
from sgjax.kernels import ragged
from sgjax.kernels.batch import Layout
from sgjax.kernels.precision import precision_of
from sgjax.kernels.ragged import EMPTY, Tiles

SUBLANES = 16
"""Rows of a tile of bfloat16: a page holds a whole number of them."""


@dataclass(frozen=True)
class PallasTpuAttention:
    """Tiles of queries over page tables on a TPU.

    Attributes:
        page_size: S, a multiple of 16.
        chunk: positions copied and computed at a time, a multiple of the page size.
        tile_rows: rows (queries times H / K) of a tile of a query block.
        interpret: parameters of the interpreter, for tests on the CPU.
    """

    page_size: int
    chunk: int = 128
    tile_rows: int = 128
    interpret: pltpu.InterpretParams | None = None
    name: str = "pallas_tpu"
    writes_first: bool = True
    run_pays_from: int = 2

    def __post_init__(self) -> None:
        if self.page_size % SUBLANES or self.chunk % self.page_size:
            raise UnsupportedBackend(
                f"attention='pallas_tpu' needs pages of a multiple of {SUBLANES} tokens that "
                f"divide {self.chunk}, got page_size={self.page_size}; use page_size 16, 32, 64 or "
                "128"
            )

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
        return ragged.attend(self.kernel, self.tile_rows, q, k, v, k_pool, v_pool, layout)

    def kernel(
        self, tiles: Tiles, table: jax.Array, k_pool: jax.Array, v_pool: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """See `ragged.Kernel`."""
        R, K, M, D = tiles.q.shape
        rows = -(-M // SUBLANES) * SUBLANES
        q = jnp.pad(tiles.q, ((0, 0), (0, 0), (0, rows - M), (0, 0)))
        limits = jnp.pad(tiles.limits, ((0, 0), (0, rows - M)))[:, :, None]
        width = k_pool.shape[1]
        pages = [pool.reshape(-1, self.page_size, width) for pool in (k_pool, v_pool)]
        tile = pl.BlockSpec((1, K, rows, D), lambda r, *_: (r, 0, 0, 0))
        buffers = [pltpu.VMEM((2, self.chunk, width), k_pool.dtype) for _ in "kv"]
        sums = [pltpu.VMEM((K, rows, n), jnp.float32) for n in (1, 1, D)]
        # Bytes and products of full tables: what the tiles ask for is data.
        positions = R * table.shape[1] * self.page_size
        cost = pl.CostEstimate(
            flops=4 * positions * K * rows * D,
            transcendentals=positions * K * rows,
            bytes_accessed=2 * positions * width * k_pool.dtype.itemsize,
        )
        out, lse = pl.pallas_call(
            self._program,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=4,
                grid=(R,),
                in_specs=[
                    tile,
                    pl.BlockSpec((1, rows, 1), lambda r, *_: (r, 0, 0)),
                    pl.BlockSpec(memory_space=pl.ANY),
                    pl.BlockSpec(memory_space=pl.ANY),
                ],
                out_specs=[tile, pl.BlockSpec((1, K, rows, 1), lambda r, *_: (r, 0, 0, 0))],
                scratch_shapes=[*buffers, pltpu.SemaphoreType.DMA((2, 2)), *sums],
            ),
            out_shape=[ragged.f32(R, K, rows, D), ragged.f32(R, K, rows, 1)],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
            interpret=False if self.interpret is None else self.interpret,
            cost_estimate=cost,
            name="paged_attention_tpu",
        )(tiles.start, tiles.end, tiles.row, table, q, limits, *pages)
        return out[:, :, :M], lse[:, :, :M, 0]

    def _program(  # type: ignore[no-untyped-def] # refs have no public type
        self,
        start_ref,
        end_ref,
        row_ref,
        table_ref,
        q_ref,
        limit_ref,
        k_hbm,
        v_hbm,
        out_ref,
        lse_ref,
        k_buffer,
        v_buffer,
        arrived,
        top_ref,
        total_ref,
        acc_ref,
    ) -> None:
        r = pl.program_id(0)
        _, K, _, D = q_ref.shape
        S, C, P = self.page_size, self.chunk, table_ref.shape[1]
        start, end, row = start_ref[r], end_ref[r], row_ref[r]
        chunks = pl.cdiv(jnp.maximum(end - start, 0), C)

        def copies(i, buffer) -> list[Any]:  # type: ignore[no-untyped-def]
            """Return the copies of chunk i's pages; behind the end, the last page again."""
            last = jnp.clip((end - 1) // S, 0, P - 1)
            found = []
            for j in range(C // S):
                page = table_ref[row, jnp.minimum(start // S + i * (C // S) + j, last)]
                to = pl.ds(j * S, S)
                for which, (pool, chunk) in enumerate(((k_hbm, k_buffer), (v_hbm, v_buffer))):
                    found.append(
                        pltpu.make_async_copy(
                            pool.at[page], chunk.at[buffer, to], arrived.at[buffer, which]
                        )
                    )
            return found

        top_ref[...] = jnp.full(top_ref.shape, EMPTY, jnp.float32)
        total_ref[...] = jnp.zeros(total_ref.shape, jnp.float32)
        acc_ref[...] = jnp.zeros(acc_ref.shape, jnp.float32)

        @pl.when(chunks > 0)
        def begin_first() -> None:
            begin(copies(0, 0))

        def chunk(i, carry):  # type: ignore[no-untyped-def]
            buffer = jax.lax.rem(i, 2)

            @pl.when(i + 1 < chunks)
            def begin_next() -> None:
                begin(copies(i + 1, 1 - buffer))

            wait(copies(i, buffer))
            position = start + i * C + jax.lax.broadcasted_iota(jnp.int32, (1, C), 1)
            seen = position < jnp.minimum(limit_ref[0], end)
            behind = start + i * C + jax.lax.broadcasted_iota(jnp.int32, (C, 1), 0) >= end
            for head in range(K):
                columns = slice(head * D, (head + 1) * D)
                keys, vals = k_buffer[buffer, :, columns], v_buffer[buffer, :, columns]
                self._head(
                    q_ref[0, head], keys, jnp.where(behind, 0, vals), seen,
                    top_ref.at[head], total_ref.at[head], acc_ref.at[head],
                )  # fmt: skip
            return carry

        jax.lax.fori_loop(0, chunks, chunk, 0)
        total = total_ref[...]
        safe = jnp.where(total == 0, 1.0, total)
        out_ref[0] = acc_ref[...] / safe
        lse_ref[0] = jnp.where(total == 0, EMPTY, top_ref[...] + jnp.log(safe))

    def _head(self, q, keys, vals, seen, top_ref, total_ref, acc_ref) -> None:  # type: ignore[no-untyped-def]
        """Add one chunk to one head's running softmax."""
        dot = functools.partial(
            jax.lax.dot_general,
            preferred_element_type=jnp.float32,
            precision=precision_of(q.dtype),
        )
        scores = dot(q, keys.astype(q.dtype), (((1,), (1,)), ((), ())))
        scores = jnp.where(seen, scores, EMPTY)
        top = top_ref[...]
        new_top = jnp.maximum(top, scores.max(axis=1, keepdims=True))
        probs = jnp.where(seen, jnp.exp(scores - new_top), 0.0)
        decay = jnp.exp(top - new_top)
        top_ref[...] = new_top
        total_ref[...] = total_ref[...] * decay + probs.sum(axis=1, keepdims=True)
        new = dot(probs.astype(q.dtype), vals.astype(q.dtype), (((1,), (0,)), ((), ())))
        acc_ref[...] = acc_ref[...] * decay + new


def begin(copies: Iterable[Any]) -> None:
    """Start copies."""
    for copy in copies:
        copy.start()


def wait(copies: Iterable[Any]) -> None:
    """Wait for copies."""
    for copy in copies:
        copy.wait()
