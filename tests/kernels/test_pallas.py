"""The accelerators' kernels, interpreted on the CPU, against dense attention.

The TPU's interpreter hangs for ever on some mistakes (a semaphore never signalled), so each of its
tests is a process of its own (tpu_checks.py) with a time limit.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from sgjax.errors import UnsupportedBackend
from sgjax.kernels.pallas_gpu import PallasGpuAttention
from sgjax.kernels.pallas_tpu import PallasTpuAttention
from sgjax.kernels.select import select_attention
from tests.kernels.test_attention import BOUNDARIES, Extend, check, ragged

ROOT = Path(__file__).parents[2]
LONG_PAGES = [Extend(tuple(range(1, 41)), 30, 40), Extend(tuple(range(41, 105)), 63, 64)]


def gpu(page_size):
    """Small chunks and tiles, so that tiny sequences span several of each."""
    return PallasGpuAttention(page_size, chunk=16, tile_rows=8, splits=2, interpret=True)


@pytest.mark.parametrize(
    ("page_size", "kv_heads", "groups", "head_dim", "dtype"),
    [
        (1, 2, 1, 64, "float32"),
        (16, 2, 3, 80, "float32"),
        (1, 2, 4, 96, "float32"),
        (16, 1, 8, 128, "float32"),
        (16, 2, 1, 96, "bfloat16"),
        (1, 2, 3, 64, "bfloat16"),
        (16, 2, 4, 128, "bfloat16"),
        (1, 1, 8, 80, "bfloat16"),
        (16, 2, 20, 64, "float32"),  # more query heads a kv head than a program has rows
    ],
)
def test_the_gpu_kernel_equals_dense_attention(page_size, kv_heads, groups, head_dim, dtype):
    tolerance = 1e-5 if dtype == "float32" else 2e-2

    def equal(extends):
        check(
            extends, page_size, kv_heads, groups, dtype, gpu(page_size),
            tolerance=tolerance, head_dim=head_dim, platform="gpu",
        )  # fmt: skip

    equal(LONG_PAGES if page_size == 1 else BOUNDARIES)
    settings(max_examples=5, deadline=None)(given(ragged(page_size))(equal))()


def tpu(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.tpu_checks", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()[-1]


@pytest.mark.parametrize("mode", ["on_wait", "eager"])
def test_the_tpu_kernel_equals_dense_attention_and_has_no_races(mode):
    assert tpu("parity", mode) == "no-races"


@pytest.mark.parametrize("mode", ["on_wait", "eager"])
def test_the_tpu_kernel_attends_to_a_shared_run_once_and_gives_the_same(mode):
    assert tpu("cascade", mode) == "no-races"


def test_a_tpu_kernel_that_does_not_wait_for_its_pages_is_caught():
    assert tpu("mutant", "eager") == "races"


@pytest.mark.parametrize(
    ("page_size", "message"), [(8, "page_size=8"), (48, "page_size=48"), (1, "use page_size 16")]
)
def test_the_tpu_kernel_refuses_pages_it_cannot_copy(page_size, message):
    with pytest.raises(UnsupportedBackend, match=message):
        PallasTpuAttention(page_size)


def test_each_platform_has_its_own_kernel():
    assert select_attention("auto", "gpu", 1) == PallasGpuAttention(1)
    assert select_attention("auto", "tpu", 16) == PallasTpuAttention(16)
    with pytest.raises(UnsupportedBackend, match="'pallas_gpu' needs platform 'gpu', got 'cpu'"):
        select_attention("pallas_gpu", "cpu", 16)
