"""Check the TPU kernel in its interpreter: python -m tests.kernels.tpu_checks parity|mutant MODE.

The last word printed is "races" or "no-races": whether the interpreter saw a buffer read and
written without order between them. A wrong number ends the program with an error.
"""

import sys

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax.experimental.pallas import tpu as pltpu

from sgjax.kernels import pallas_tpu
from sgjax.kernels.pallas_tpu import PallasTpuAttention
from tests.kernels.test_attention import BOUNDARIES, check, ragged


def races_found() -> bool:
    """Return the interpreter's verdict on the last call; jax has no public name for it."""
    return bool(interpret_pallas_call.races.races_found)


def parity(attention: PallasTpuAttention, mode: str) -> None:
    """Compare with dense attention: ragged batches in both modes, groupings and dtypes shared."""

    def one(kv_heads: int, groups: int, head_dim: int, dtype: str) -> None:
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        check(
            BOUNDARIES, 16, kv_heads, groups, dtype, attention,
            tolerance=tolerance, head_dim=head_dim, platform="tpu",
        )  # fmt: skip
        assert not races_found(), (groups, head_dim)

    if mode == "on_wait":
        one(2, 1, 64, "bfloat16")
        one(1, 4, 128, "float32")
        one(8, 1, 80, "float32")  # a row of K * D elements is whole vectors, a head is not
    else:
        one(2, 8, 128, "float32")
        one(4, 1, 96, "bfloat16")

    @settings(max_examples=4, deadline=None, database=None)
    @given(data=st.data())
    def on_ragged_batches(data: st.DataObject) -> None:
        extends = data.draw(ragged(16))
        check(extends, 16, 2, 3, "float32", attention, tolerance=1e-5, head_dim=64)
        assert not races_found()

    on_ragged_batches()


def main() -> None:
    """Run one check."""
    what, mode = sys.argv[1:]
    params = pltpu.InterpretParams(detect_races=True, dma_execution_mode=mode)
    attention = PallasTpuAttention(16, chunk=32, tile_rows=8, interpret=params)
    if what == "mutant":
        pallas_tpu.wait = lambda copies: None
        rng = np.random.default_rng(0)
        q, kv = (rng.standard_normal(shape, np.float32) for shape in ((2, 2, 16, 64), (96, 128)))
        tiles = pallas_tpu.Tiles(
            q=q,
            limits=np.full((2, 16), 80, np.int32),
            start=np.zeros(2, np.int32),
            end=np.full(2, 80, np.int32),
            row=np.zeros(2, np.int32),
        )
        jax.block_until_ready(attention.kernel(tiles, np.arange(1, 6)[None], kv, kv))
    else:
        parity(attention, mode)
    print("races" if races_found() else "no-races")


if __name__ == "__main__":
    main()
