"""The accelerators' programs through their real compilers. Compiled, not run."""

import functools
import json
from pathlib import Path

import pytest

from sgjax.aot.check import compile_job
from sgjax.aot.job import STEPS, Job

pytestmark = pytest.mark.aot

FIGURES = Path(__file__).parent / "figures.json"
"""Registers, shared memory and spills of the kernel, by jax version, target and tile."""
TILES = [{}, {"chunk": 32}, {"num_warps": 8, "num_stages": 3}]
HEADS = {64: (32, 8, 64), 80: (32, 32, 80), 96: (24, 8, 96), 128: (16, 1, 128)}
"""Query heads, kv heads and head dim, by the last: groups of 4, 1, 3 and 16."""
SHARED_BYTES = {"sm_80": 166912, "sm_86": 101376, "sm_90": 232448}
GPUS, TPUS = ["sm_80", "sm_86", "sm_90"], ["v5e", "v5p", "v6e"]


@functools.cache
def compiled(target, model, step, tensor=1, tile=(), **more):
    job = Job(target, model, step, tensor, num_layers=2, tile=dict(tile), **more)
    return compile_job(job, timeout_s=280)


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("target", GPUS)
def test_the_gpu_kernel_fits_the_chip_without_spills(target, tile):
    verdict = compiled(target, "llama-3-8b", "kernel", tile=tuple(tile.items()))
    assert verdict.status == "fits", verdict.reason
    assert verdict.kernels
    assert 0 < verdict.registers <= 255
    assert verdict.spills == 0
    assert 0 < verdict.shared_bytes <= SHARED_BYTES[target]
    known = json.loads(FIGURES.read_text()).get(verdict.versions["jax"], {})
    if known:  # another jaxlib compiles otherwise: its figures are to be recorded first
        registers, shared, _ = known[f"{target} {tile}"]
        assert verdict.registers <= 1.1 * registers
        assert verdict.shared_bytes <= 1.1 * shared


@pytest.mark.parametrize(
    ("head_dim", "page_size", "dtype"),
    [
        (64, 1, "bfloat16"),
        (64, 16, "float32"),
        (80, 16, "bfloat16"),
        (80, 1, "float32"),
        (96, 1, "bfloat16"),
        (96, 16, "float32"),
        (128, 1, "bfloat16"),
        (128, 16, "float32"),
    ],
)
@pytest.mark.parametrize("target", ["sm_86", "sm_90"])
def test_the_gpu_kernel_fits_every_head_dim_page_size_and_dtype(target, head_dim, page_size, dtype):
    verdict = compiled(
        target, "llama-3-8b", "kernel", page_size=page_size, dtype=dtype, heads=HEADS[head_dim]
    )
    assert verdict.status == "fits", verdict.reason
    assert verdict.spills == 0
    assert 0 < verdict.shared_bytes <= SHARED_BYTES[target]


@pytest.mark.parametrize(
    ("target", "heads", "dtype"),
    [
        ("sm_90", (32, 1, 128), "float32"),
        ("sm_86", (128, 1, 128), "float32"),
        ("sm_90", (128, 1, 128), "bfloat16"),
    ],
)
def test_many_query_heads_a_kv_head_are_cut_into_pieces_without_spills(target, heads, dtype):
    verdict = compiled(target, "llama-3-8b", "kernel", dtype=dtype, heads=heads)
    assert verdict.status == "fits", verdict.reason
    assert verdict.spills == 0


def test_a_tile_beyond_the_a10gs_shared_memory_is_rejected():
    tile = (("chunk", 256), ("num_warps", 8))
    verdict = compiled("a10g", "llama-3-8b", "kernel", tile=tile)
    assert verdict.status == "rejected"
    assert "hared memory" in verdict.reason
    assert "101376" in verdict.reason


@pytest.mark.parametrize("target", TPUS)
def test_the_tpu_kernel_compiles(target):
    verdict = compiled(target, "llama-3-8b", "kernel")
    assert verdict.status == "fits", verdict.reason
    assert verdict.kernels


@pytest.mark.parametrize(
    ("heads", "page_size", "dtype"),
    [
        (HEADS[64], 16, "float32"),
        ((9, 3, 64), 128, "bfloat16"),  # rows of 192 elements, padded, as are those of one head
        (HEADS[80], 32, "bfloat16"),
        ((4, 1, 80), 64, "float32"),
        ((3, 1, 96), 16, "bfloat16"),
        (HEADS[96], 32, "float32"),
        (HEADS[128], 64, "bfloat16"),
        (HEADS[128], 128, "float32"),
    ],
)
def test_the_tpu_kernel_compiles_for_every_head_dim_page_size_and_dtype(heads, page_size, dtype):
    verdict = compiled("v5e", "llama-3-8b", "kernel", page_size=page_size, dtype=dtype, heads=heads)
    assert verdict.status == "fits", verdict.reason
    assert verdict.kernels


@pytest.mark.parametrize(
    ("target", "step", "tensor", "row"),
    [("v5e", "decode", 1, 256), ("v5p", "kernel", 1, 256), ("v6e", "prefill", 3, 3 * 128)],
)
def test_rows_that_are_no_whole_tiles_of_a_tpu_are_padded_and_updated_in_place(
    target, step, tensor, row
):
    """SmolLM2's three kv heads of 64: 192 elements, or 64 on each of three devices."""
    verdict = compiled(target, "smollm2-135m", step, tensor)
    assert verdict.status == "fits", verdict.reason
    assert verdict.kernels
    bytes_a_token = 2 * 30 * (row // tensor) * 2
    assert verdict.kv_bytes == verdict.kv_tokens * bytes_a_token
    assert verdict.alias_bytes >= verdict.compiled_kv_bytes
    one_layers_keys = verdict.kv_bytes // 60
    assert verdict.temp_bytes < min(0.05 * verdict.kv_bytes, one_layers_keys)


@pytest.mark.parametrize(
    ("target", "step"),
    [("v5e", "decode"), ("v5p", "extend"), ("v6e", "prefill"), ("sm_90", "decode")],
)
def test_a_step_split_over_eight_updates_kv_in_place_with_two_all_reduces_a_layer(target, step):
    verdict = compiled(target, "llama-3-8b", step, 8)
    assert verdict.status == "fits", verdict.reason
    assert verdict.kernels, "the kernel is not in the program"
    assert verdict.layer_collectives == {"all-reduce": 2 * verdict.num_layers}
    assert verdict.alias_bytes >= verdict.compiled_kv_bytes
    # A copy of one layer's keys alone would be a quarter of what is compiled.
    assert verdict.temp_bytes < 0.05 * verdict.compiled_kv_bytes
    # Beside them travel the embeddings, but no logits.
    D, G, BQ = STEPS[step]
    assert verdict.largest_other <= (D + G * BQ) * 4096


@pytest.mark.parametrize(
    ("model", "tensor", "target", "least_tokens"),
    [
        ("llama-2-70b", 4, "a100-80g", 300_000),
        ("mixtral-8x7b", 8, "a10g", 100_000),
        ("llama-3-8b", 8, "v5e", 500_000),
    ],
)
def test_large_models_fit_their_mesh_and_leave_room_for_kv(model, tensor, target, least_tokens):
    verdict = compiled(target, model, "decode", tensor)
    assert verdict.status == "fits", verdict.reason
    assert verdict.kv_tokens >= least_tokens
    print(f"{model} on {tensor} {target}: {verdict.kv_tokens:,} tokens of K/V")


def test_a_model_too_large_says_what_is_missing():
    verdict = compiled("a10g", "llama-2-70b", "decode", 1)
    assert verdict.status in ("too big", "rejected")
    assert verdict.reason
