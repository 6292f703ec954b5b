"""The accelerators' kernels, interpreted on the CPU, against dense attention.

The TPU's interpreter hangs for ever on some mistakes (a semaphore never signalled), so each of its
tests is a process of its own (tpu_checks.py) with a time limit.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize("page_size", [1, 16])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_the_gpu_kernel_equals_dense_attention_on_ragged_batches(page_size, data):
    extends = data.draw(ragged(page_size))
    check(extends, page_size, 2, 3, "float32", gpu(page_size), tolerance=1e-5)


@pytest.mark.parametrize(("groups", "head_dim"), [(1, 64), (3, 80), (4, 96), (8, 128)])
def test_the_gpu_kernel_serves_every_grouping_and_head_dim(groups, head_dim):
    check(BOUNDARIES, 16, 2, groups, "float32", gpu(16), tolerance=1e-5, head_dim=head_dim)


@pytest.mark.parametrize(("page_size", "extends"), [(1, LONG_PAGES), (16, BOUNDARIES)])
def test_the_gpu_kernel_in_bfloat16_stays_within_two_percent(page_size, extends):
    attention = gpu(page_size)
    check(extends, page_size, 2, 3, "bfloat16", attention, tolerance=2e-2, platform="gpu")


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
