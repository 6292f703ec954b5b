"""Paged attention on the CPU in C++ (native/), called through XLA's foreign function interface.

Imports jax and kernels. New K/V are scattered by XLA, in place; the call reads the pool where it
lies. Shared runs are attended once for all their queries, so this backend uses them.
"""

from dataclasses import dataclass

import jax
import numpy as np

from sgjax.kernels import native, storage
from sgjax.kernels.batch import Layout


@dataclass(frozen=True)
class CpuNativeAttention:
    """One foreign call a layer; every task of it runs on XLA's own threads.

    Attributes:
        page_size: S.
        isa: instruction set, one of `native.ISAS`; the processor must have it.
    """

    page_size: int
    isa: str
    name: str = "cpu_native"
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
        k_pool = storage.write(k_pool, k, layout.out_slots)
        v_pool = storage.write(v_pool, v, layout.out_slots)
        like_q = jax.ShapeDtypeStruct(q.shape, q.dtype)  # type: ignore[no-untyped-call]
        call = jax.ffi.ffi_call(native.ATTENTION, like_q)
        out: jax.Array = call(
            q,
            k_pool,
            v_pool,
            layout.kv_lens,
            layout.page_table,
            layout.block_row,
            layout.block_start,
            layout.block_len,
            layout.shared.tokens,
            layout.shared.start,
            layout.shared.end,
            layout.shared.own_start,
            page_size=np.int64(self.page_size),
            isa=np.int64(native.ISAS.index(self.isa)),
        )
        return out, k_pool, v_pool


def cpu_native_attention(page_size: int) -> CpuNativeAttention:
    """Return the backend for the best instruction set here, built on first use.

    Raises:
        UnsupportedBackend: no compiler, or it fails.
    """
    return CpuNativeAttention(page_size, native.load())
