"""PagePool: who owns each page of the K/V pool. Imports numpy, errors and cache.base.

Every page has exactly one owner: the free list, the prefix cache (TREE), a running sequence, or
nobody's business (SCRATCH: page 0, where padding writes). The pool knows numbers only; the arrays
that the pages stand for belong to the executor.
"""

import enum

import numpy as np

from sgjax.cache.base import Pages
from sgjax.errors import ConfigError, OutOfPages

SCRATCH_PAGE = 0
"""The page that padded tokens write to; never allocated."""


class Owner(enum.IntEnum):
    """The owner of a page."""

    FREE = 0
    TREE = 1
    SEQUENCE = 2
    SCRATCH = 3


class PagePool:
    """Hand out pages and keep the account of their owners.

    Moves of many pages are a few numpy calls; each verifies its pages' present owner, so that a
    double free or a page named twice fails at once (AssertionError) and not as wrong text later.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        """Make a pool of free pages.

        Args:
            num_pages: N, the scratch page included; >= 2.
            page_size: S, tokens a page holds; >= 1.

        Raises:
            ConfigError: a number is out of range.
        """
        if page_size < 1:
            raise ConfigError(f"page_size: got {page_size}; a page holds at least 1 token")
        if num_pages < 2:
            raise ConfigError(
                f"num_pages: got {num_pages}; at least 2 are needed, page 0 being the scratch page"
            )
        self.num_pages = num_pages
        self.page_size = page_size
        self._owner = np.full(num_pages, Owner.FREE, np.uint8)
        self._owner[SCRATCH_PAGE] = Owner.SCRATCH
        # A stack, top at the end, lowest pages on top: early sequences get contiguous pages.
        self._stack = np.arange(num_pages - 1, 0, -1, dtype=np.int32)
        self._num_owned = [0] * len(Owner)
        self._num_owned[Owner.FREE] = num_pages - 1
        self._num_owned[Owner.SCRATCH] = 1
        self._mark = np.zeros(num_pages, np.int32)

    @property
    def num_free(self) -> int:
        """Return the number of pages that `alloc` can hand out."""
        return self._num_owned[Owner.FREE]

    def alloc(self, n: int) -> Pages:
        """Take n free pages for a sequence.

        Returns:
            i32[n] page ids, now owned by SEQUENCE.

        Raises:
            OutOfPages: fewer than n pages are free.
        """
        assert n >= 0, f"alloc of {n} pages"
        top = self.num_free
        if n > top:
            raise OutOfPages(
                f"{n} pages of K/V asked for, {top} of {self.num_pages} free"
                f" (cache {self._num_owned[Owner.TREE]},"
                f" sequences {self._num_owned[Owner.SEQUENCE]});"
                " evict or retract first, or configure more kv_tokens"
            )
        pages = self._stack[top - n : top][::-1].copy()
        self._give(pages, Owner.FREE, Owner.SEQUENCE)
        return pages

    def free(self, pages: Pages, owner: Owner) -> None:
        """Give pages back; all must be owned by `owner` (TREE or SEQUENCE), none named twice."""
        top = self.num_free
        self._verify(pages, owner)
        self._give(pages, owner, Owner.FREE)
        self._stack[top : top + len(pages)] = pages[::-1]

    def transfer(self, pages: Pages, source: Owner, target: Owner) -> None:
        """Pass pages from one owner to another; neither may be FREE, see `alloc` and `free`."""
        assert Owner.FREE not in (source, target), "free pages move by alloc and free only"
        self._verify(pages, source)
        self._give(pages, source, target)

    def counts(self) -> dict[str, int]:
        """Return the number of pages: total, free, tree, sequence, scratch."""
        owned = {owner.name.lower(): self._num_owned[owner] for owner in Owner}
        return {"total": self.num_pages, **owned}

    def owned_by(self, owner: Owner) -> Pages:
        """Return all pages of an owner in ascending order; reads the whole pool."""
        return np.flatnonzero(self._owner == int(owner)).astype(np.int32)

    def check(self) -> None:
        """Verify that free + tree + sequence + scratch = all, disjoint; reads the whole pool."""
        for owner in Owner:
            held, count = len(self.owned_by(owner)), self._num_owned[owner]
            assert held == count, f"{owner.name}: {held} pages, but {count} counted"
        free = np.sort(self._stack[: self.num_free])
        assert np.array_equal(free, self.owned_by(Owner.FREE)), "free list differs from owners"
        assert self.owned_by(Owner.SCRATCH).tolist() == [SCRATCH_PAGE], "scratch page was moved"

    def _verify(self, pages: Pages, owner: Owner) -> None:
        n = len(pages)
        # Bytes compare in a fraction of the time of small numpy reductions.
        owned = self._owner.take(pages).tobytes().count(int(owner))
        assert owned == n, self._explain(pages, owner)
        if n < 2:
            return
        # Each page is marked with its place in `pages`: a page named twice loses one of its marks.
        places = np.arange(n, dtype=np.int32)
        self._mark[pages] = places
        assert self._mark.take(pages).tobytes() == places.tobytes(), self._explain(pages, owner)

    def _give(self, pages: Pages, source: Owner, target: Owner) -> None:
        self._owner[pages] = int(target)
        self._num_owned[source] -= len(pages)
        self._num_owned[target] += len(pages)

    def _explain(self, pages: Pages, owner: Owner) -> str:
        unique, times = np.unique(pages, return_counts=True)
        if (times > 1).any():
            return f"pages {unique[times > 1].tolist()} named more than once"
        wrong = pages[self._owner[pages] != int(owner)][:8]
        owners = [Owner(self._owner[page]).name for page in wrong]
        return f"pages not owned by {owner.name}: {wrong.tolist()}, but by {owners}"
