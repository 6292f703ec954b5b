"""PageKeeper: the pages of running sequences, between the pool and the prefix cache.

Imports types, cache and sequence. It owns the moments at which a page changes hands (cache.base
draws who owns which interval); the scheduler only says when.
"""

from collections.abc import Iterable

import numpy as np

from sgjax.cache import InsertReason, Match, Owner, PagePool, PrefixCache, TimedCache
from sgjax.schedule.sequence import Sequence
from sgjax.types import Wants

_NO_PAGES = np.empty(0, np.int32)


class PageKeeper:
    """Acquire, grow, offer and release the pages of sequences.

    Args:
        pool: the pages.
        cache: the prefix cache over the same pool; `self.cache` is the same with a clock on it.
    """

    def __init__(self, pool: PagePool, cache: PrefixCache) -> None:
        self.pool = pool
        self._timed = TimedCache(cache)
        self.cache: PrefixCache = self._timed
        self.evicted_pages = 0

    @property
    def cache_s(self) -> float:
        """Return the seconds of processor time spent in the prefix cache."""
        return self._timed.seconds

    @property
    def capacity_tokens(self) -> int:
        """Return the tokens that the whole pool holds."""
        return (self.pool.num_pages - 1) * self.pool.page_size  # but for the scratch page

    @property
    def num_used(self) -> int:
        """Return the pages that are not free."""
        return self.pool.num_pages - self.pool.num_free

    @property
    def room_tokens(self) -> int:
        """Return the tokens that would fit if everything evictable were evicted."""
        return (self.pool.num_free + self.cache.num_evictable) * self.pool.page_size

    def missing_tokens(self, seq: Sequence, match: Match | None = None) -> int:
        """Return the tokens' worth of pages that `seq` needs beyond a match, or those it has."""
        size = self.pool.page_size
        num_held = len(match.pages) if match else seq.pages.length
        return (-(-seq.num_tokens // size) - num_held) * size

    def make_room(self, num_pages: int) -> bool:
        """Evict as little as makes `num_pages` free; return whether they are."""
        missing = num_pages - self.pool.num_free
        if missing > 0:
            self.evicted_pages += self.cache.evict(missing)
        return self.pool.num_free >= num_pages

    def acquire(self, seq: Sequence, match: Match) -> None:
        """Give a sequence its cached pages, whose node the caller has pinned."""
        seq.node = match.node
        seq.shared = seq.num_computed = match.num_tokens
        seq.pages.extend(match.pages)

    def fill(self, sequences: Iterable[Sequence]) -> None:
        """Give sequences pages for all their tokens, evicting what that takes; it must do."""
        needy, missing = self.lacking(sequences)
        fits = self.make_room(missing)
        assert fits, f"no room for {missing} pages that were thought to be there"
        self.grow(needy, missing)

    def lacking(self, running: Iterable[Sequence]) -> tuple[list[Sequence], int]:
        """Return the sequences with tokens beyond their pages, and how many pages they miss."""
        size, missing = self.pool.page_size, 0
        needy: list[Sequence] = []
        for seq in running:
            need = -(-seq.tokens.length // size) - seq.pages.length
            if need > 0:
                needy.append(seq)
                missing += need
        return needy, missing

    def grow(self, needy: list[Sequence], missing: int) -> None:
        """Allocate what `lacking` found missing; there must be room."""
        if missing == len(needy):  # a page each: the rule while decoding, so worth its own loop
            for seq, page in zip(needy, self.pool.alloc(missing).tolist(), strict=True):
                seq.pages.append(page)
            return
        pages, taken = self.pool.alloc(missing), 0
        for seq in needy:
            need = -(-seq.tokens.length // self.pool.page_size) - seq.pages.length
            seq.pages.extend(pages[taken : taken + need])
            taken += need

    def reserve(self, seq: Sequence, num_tokens: int) -> bool:
        """Give one running sequence pages for so many tokens; return False where none are left."""
        need = -(-num_tokens // self.pool.page_size) - seq.pages.length
        if need > 0:
            if not self.make_room(need):
                return False
            seq.pages.extend(self.pool.alloc(need))
        return True

    def offer(self, seq: Sequence, end: int, last: bool = False) -> None:
        """Offer the first `end` tokens' pages to the cache and move the pin to what it took.

        `last` says that the sequence is about to leave its pages.

        Where the tree had the same tokens in other pages, the sequence goes on with the tree's and
        its duplicates are free (rule 6).
        """
        assert seq.node is not None
        reason = InsertReason.FINISHED if last else InsertReason.CHUNK
        if seq.request.wants is Wants.NOTHING:
            reason = InsertReason.DECLARED
        key, pages = seq.tokens.view(0, end), seq.pages.view()
        match = self.cache.insert(key, pages, seq.shared, reason, seq.node)
        if match.node is not seq.node:
            self.cache.pin(match.node)
            self.cache.unpin(seq.node)
            seq.node, seq.shared = match.node, match.num_tokens
        seq.pages.replace_front(match.pages)

    def release(self, seq: Sequence) -> None:
        """Free a sequence's own pages and drop its pin."""
        assert seq.node is not None
        self.pool.free(seq.pages.view(seq.shared // self.pool.page_size), Owner.SEQUENCE)
        self.cache.unpin(seq.node)
        seq.node = None
        seq.pages.truncate(0)
        seq.shared = seq.num_computed = 0
        seq.is_decoding = False

    def truncate(self, seq: Sequence, num_tokens: int) -> None:
        """Drop a running sequence's tokens from index `num_tokens` on, and their K/V.

        Pages of the cache are never written: where the cut falls inside what the cache owns, the
        sequence keeps its whole pages before the cut and computes the rest anew.
        """
        size = self.pool.page_size
        seq.tokens.truncate(num_tokens)
        seq.num_computed = min(seq.num_computed, num_tokens)
        if seq.node is None:
            return
        if num_tokens < seq.shared:
            own = seq.pages.view(seq.shared // size)
            match = self.cache.match(seq.tokens.view(0, num_tokens // size * size))
            self.cache.pin(match.node)
            self.cache.unpin(seq.node)
            self.pool.free(own, Owner.SEQUENCE)
            seq.node, seq.shared = match.node, match.num_tokens
            seq.num_computed = match.num_tokens
            seq.pages.replace_front(match.pages)
            seq.pages.truncate(len(match.pages))
        kept = -(-num_tokens // size)
        if seq.pages.length > kept:
            self.pool.free(seq.pages.view(kept), Owner.SEQUENCE)
            seq.pages.truncate(kept)

    def check(self, running: Iterable[Sequence]) -> None:
        """Verify that every page is owned exactly once and every running page table is right.

        Raises:
            AssertionError: the invariant of architecture section 4 is broken.
        """
        self.pool.check()
        self.cache.check()
        cached, own = [_NO_PAGES], [_NO_PAGES]
        for seq in running:
            shared = seq.shared // self.pool.page_size
            assert seq.pages.length >= -(-seq.num_computed // self.pool.page_size)
            cached.append(seq.pages.view(0, shared))
            own.append(seq.pages.view(shared))
        tree, sequences = (self.pool.owned_by(o) for o in (Owner.TREE, Owner.SEQUENCE))
        assert np.isin(np.concatenate(cached), tree).all(), "a cached page is not the tree's"
        assert np.array_equal(np.sort(np.concatenate(own)), sequences), "pages leaked or shared"
        assert len(tree) == self.cache.num_pages
