"""Large pages of memory for what every step reads whole: the weights. DEVICE. Imports jax.

A step streams hundreds of megabytes; in pages of 4 kB a fifteenth of its time on a CPU goes into
translating addresses (SmolLM2-135M, one sequence). XLA takes its memory from malloc, which asks for
no others. K/V are left where they are: moving a whole pool takes longer than it saves soon.
"""

import ctypes
import sys
from collections import defaultdict
from typing import Any

import jax

BYTES = 2 << 20
"""Of a large page, on x86-64 and most ARM systems."""

_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1: now, and whatever the system's default is


def use_large_pages(arrays: Any) -> int:
    """Move a host's arrays into large pages, where they fill at least half of each.

    It is advice: contents and addresses stay, and a system that has no such pages keeps the others.

    Args:
        arrays: a pytree of jax.Arrays in the host's memory.

    Returns:
        How many large pages the system granted.
    """
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None)
    granted = 0
    for page, filled in _filled(arrays).items():
        if filled >= BYTES // 2:
            at, size = ctypes.c_void_p(page * BYTES), ctypes.c_size_t(BYTES)
            granted += libc.madvise(at, size, _COLLAPSE) == 0
    return granted


def _filled(arrays: Any) -> dict[int, int]:
    """Return how many bytes of arrays lie in each large page of the address space."""
    filled: dict[int, int] = defaultdict(int)
    for array in jax.tree.leaves(arrays):
        array.block_until_ready()
        for shard in array.addressable_shards:
            start = shard.data.unsafe_buffer_pointer()
            end = start + shard.data.nbytes
            for page in range(start // BYTES, -(-end // BYTES)):
                filled[page] += min(end, (page + 1) * BYTES) - max(start, page * BYTES)
    return filled
