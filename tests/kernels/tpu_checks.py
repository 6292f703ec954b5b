"""Check the TPU kernel in its interpreter: python -m tests.kernels.tpu_checks WHAT MODE.

WHAT is parity, cascade or mutant, MODE how the interpreter copies: on_wait or eager.

The last word printed is "races" or "no-races": whether the interpreter saw a buffer read and
written without order between them. A wrong number ends the program with an error.
"""

import dataclasses
import sys
from types import SimpleNamespace

import jax
import numpy as np
from hypothesis import given, settings
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax.experimental.pallas import tpu as pltpu

from sgjax.engine.runs import Member, plan_runs
from sgjax.kernels import pallas_tpu
from sgjax.kernels.pallas_tpu import PallasTpuAttention
from tests.kernels.ragged import Extend, Packed, pack
from tests.kernels.test_attention import BOUNDARIES, check, ragged


def races_found() -> bool:
    """Return the interpreter's verdict on the last call; jax has no public name for it."""
    return bool(interpret_pallas_call.races.races_found)


Case = tuple[int, int, int, int, str]
CASES: dict[str, list[Case]] = {
    "on_wait": [
        (16, 3, 3, 64, "float32"),  # SmolLM2's: rows of 192 elements are padded
        (32, 1, 4, 96, "bfloat16"),
        (32, 1, 4, 128, "bfloat16"),
        (64, 8, 1, 80, "float32"),  # a row of K * D elements is whole vectors, a head is not
    ],
    "eager": [
        (16, 3, 3, 64, "bfloat16"),
        (32, 1, 2, 80, "float32"),
        (32, 4, 3, 96, "bfloat16"),
        (128, 1, 8, 128, "float32"),
    ],
}
"""Page size, kv heads, query heads of each, head dim and dtype, by how pages are copied."""


def parity(params: pltpu.InterpretParams, case: Case) -> None:
    """Compare with dense attention on ragged batches, without races."""
    page_size, kv_heads, groups, head_dim, dtype = case

    def equal(extends: list[Extend]) -> None:
        check(
            extends, page_size, kv_heads, groups, dtype, tpu(page_size, params),
            tolerance=1e-5 if dtype == "float32" else 2e-2, head_dim=head_dim, platform="tpu",
        )  # fmt: skip
        assert not races_found()

    if page_size == 16:
        equal(BOUNDARIES)
    settings(max_examples=3, deadline=None, database=None)(given(ragged(page_size))(equal))()


def cascade(attention: PallasTpuAttention) -> None:
    """Compare decodes and an extend below a shared run with what they are by themselves."""
    shared = (1, 2, 3)
    ranges = [(48, 49), (59, 60), (48, 52), (48, 57)]
    extends = [Extend((*shared, 4 + i), *range_) for i, range_ in enumerate(ranges)]
    packed = pack(extends, 16, 3, 4, 4, 4)
    top = SimpleNamespace(id=1, num_tokens=48)
    members = [
        Member(row, int(at[0]), len(at), (top,))
        for row, at in zip(rows(packed), packed.places, strict=True)
    ]
    runs = plan_runs(members, 19, 7, 16)
    assert runs.end[0] == 48, "the run was not planned"
    rng = np.random.default_rng(0)
    pools = [rng.standard_normal((16 * 8, 128), np.float32) for _ in "kv"]
    q, k, v = (rng.standard_normal((19, h, 64), np.float32) for h in (6, 2, 2))
    found = []
    for layout in (packed.layout, dataclasses.replace(packed.layout, shared=runs)):
        found.append(np.asarray(jax.jit(attention)(q, k, v, *pools, layout)[0]))
        assert not races_found()
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)


def rows(packed: Packed) -> list[int]:
    """Return the row in the batch of each extend of three decode rows and blocks of four."""
    return [
        at[0] if at[0] < 3 else packed.layout.block_row[(at[0] - 3) // 4] for at in packed.places
    ]


def interpreter(mode: str) -> pltpu.InterpretParams:
    """Return an interpreter that looks for races and goes on where it finds one."""
    known = {field.name for field in dataclasses.fields(pltpu.InterpretParams)}
    goes_on = {"on_race": "warn"} if "on_race" in known else {}  # an older jax always does
    return pltpu.InterpretParams(detect_races=True, dma_execution_mode=mode, **goes_on)


def tpu(page_size: int, params: pltpu.InterpretParams) -> PallasTpuAttention:
    """Return the kernel with small chunks and tiles, so that tiny sequences span several."""
    chunk = max(32, page_size)
    return PallasTpuAttention(page_size, chunk=chunk, tile_rows=8, interpret=params)


def main() -> None:
    """Run one check."""
    what, mode = sys.argv[1:]
    params = interpreter(mode)
    attention = tpu(16, params)
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
    elif what == "cascade":
        cascade(attention)
    else:
        for case in CASES[mode]:
            parity(params, case)
    print("races" if races_found() else "no-races")


if __name__ == "__main__":
    main()
