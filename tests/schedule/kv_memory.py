"""A model of the K/V pool: what each slot holds, so that a wrong page table is seen at once.

A token's K/V depends on the token and all before it. So each slot holds a hash of the prefix that
ends there, and a step must find, in the slots that its page tables name, the prefixes it needs.
"""

import numpy as np
from numpy.typing import NDArray

from sgjax.cache import SCRATCH_PAGE
from sgjax.schedule import Plan, Sequence

Hashes = NDArray[np.uint64]


class KvMemory:
    """Write and read the slots of a pool as an executor does.

    Args:
        num_pages: N.
        page_size: S.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self._page_size = page_size
        self._slots: Hashes = np.zeros(num_pages * page_size, np.uint64)

    def run(self, plan: Plan) -> None:
        """Write what a step computes, then verify all that its attention reads.

        Two rows may write one slot (equal prompts under `share_planned`), but only the same.
        """
        for row in plan.rows:
            slots = self._slots_of(row.seq, row.start, row.end)
            self._slots[slots] = prefix_hashes(row.whole)[row.start : row.end]
        for row in plan.rows:
            held = self._slots[self._slots_of(row.seq, 0, row.end)]
            wrong = np.flatnonzero(held != prefix_hashes(row.whole)[: row.end])
            assert not len(wrong), f"{row.seq.request.id} reads others' K/V at {wrong.tolist()}"

    def _slots_of(self, seq: Sequence, start: int, end: int) -> NDArray[np.int64]:
        at = np.arange(start, end)
        pages = seq.pages.view().astype(np.int64)[at // self._page_size]
        assert not (pages == SCRATCH_PAGE).any()
        return pages * self._page_size + at % self._page_size


def prefix_hashes(seq: Sequence) -> Hashes:
    """Return a hash of every prefix of a sequence's tokens, never 0."""
    tokens = seq.tokens.view().astype(np.uint64)
    mixed = (tokens + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (np.arange(1, len(tokens) + 1, dtype=np.uint64)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.cumsum(mixed, dtype=np.uint64) | np.uint64(1)
