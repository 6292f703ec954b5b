"""The ablated caches that are a radix tree with restrictions, or nothing at all.

Imports cache.base. An ablation may change what is recomputed and how full the pool
gets, never the text.
"""

import abc
import math
from typing import final

import numpy as np

from sgjax.cache.base import (
    CacheNode,
    InsertReason,
    Keys,
    Listener,
    Match,
    NextUse,
    Pages,
    Place,
    PrefixCache,
    Slot,
)


class RootNode:
    """The root of a cache without a tree.

    Attributes:
        id: 0.
        key: empty.
        num_tokens: 0.
        pins: pins of the root; they keep nothing.
        parent, children: none.
    """

    __slots__ = ("children", "id", "key", "num_tokens", "parent", "pins")

    def __init__(self) -> None:
        self.parent: CacheNode | None = None
        self.children: dict[Slot, CacheNode] = {}
        self.id = 0
        self.key = np.empty(0, np.int64)
        self.num_tokens = 0
        self.pins = 0

    @property
    def is_pinned(self) -> bool:
        """Return whether it has a pin."""
        return self.pins > 0


@final
class NoCache:
    """Hold nothing (paper section 6.3, ablation "No Cache"); implements `PrefixCache`."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.num_pages = 0
        self.num_evictable = 0
        self.root = RootNode()
        self._nothing = Match(0, np.empty(0, np.int32), self.root)

    def match(self, key: Keys) -> Match:
        """Return nothing."""
        return self._nothing

    def peek(self, key: Keys) -> int:
        """Return 0."""
        return 0

    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return the root; a listener never hears of a change."""
        return Place(self.root, 0, 0)

    def first_key(self, key: Keys, depth: int) -> None:
        """Return None: there is nothing to wait for."""
        return

    def node(self, node_id: int) -> RootNode:
        """Return the root, the only node there is."""
        if node_id != self.root.id:
            raise KeyError(node_id)
        return self.root

    def pin(self, node: CacheNode) -> None:
        """Count a pin of the root."""
        assert node is self.root
        self.root.pins += 1

    def unpin(self, node: CacheNode) -> None:
        """Drop a pin of the root."""
        assert node is self.root
        assert self.root.pins > 0, "the root is not pinned"
        self.root.pins -= 1

    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Take nothing; all pages stay the caller's."""
        assert shared == 0
        return self._nothing

    def evict(self, num_pages: int) -> int:
        """Free nothing."""
        return 0

    def reset(self) -> None:
        """Do nothing."""

    def listen(self, listener: Listener) -> None:
        """Accept a listener; there are no events."""

    def foresee(self, next_use: NextUse) -> bool:
        """Return False: nothing is ever evicted."""
        del next_use
        return False

    def check(self) -> None:
        """Do nothing."""


class RestrictedTree(abc.ABC):
    """A radix tree, restricted or not, seen through a restriction of what it gives or takes."""

    def __init__(self, tree: PrefixCache) -> None:
        self._tree = tree
        self.page_size = tree.page_size
        self.root = tree.root

    @property
    def num_pages(self) -> int:
        """Return the number of pages the tree owns."""
        return self._tree.num_pages

    @property
    def num_evictable(self) -> int:
        """Return the number of pages that `evict` could free now."""
        return self._tree.num_evictable

    @abc.abstractmethod
    def match(self, key: Keys) -> Match:
        """Return the longest cached prefix that may be used, and touch it."""

    @abc.abstractmethod
    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return where a waiting key hangs in the tree, and what it may use of it."""

    @abc.abstractmethod
    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Take what may be taken of a computed prefix."""

    def peek(self, key: Keys) -> int:
        """Return the number of tokens that `match` would return; change nothing."""
        return self.walk(key).cached

    def first_key(self, key: Keys, depth: int) -> Slot | None:
        """Return the child slot that a key waits for at a node that ends at token `depth`."""
        return self._tree.first_key(key, depth)

    def node(self, node_id: int) -> CacheNode:
        """Return the live node of an id."""
        return self._tree.node(node_id)

    def pin(self, node: CacheNode) -> None:
        """Keep the path to `node` from eviction until a matching `unpin`."""
        self._tree.pin(node)

    def unpin(self, node: CacheNode) -> None:
        """Drop one pin of the path to `node`."""
        self._tree.unpin(node)

    def evict(self, num_pages: int) -> int:
        """Free at least `num_pages` pages of unpinned leaves if there are so many."""
        return self._tree.evict(num_pages)

    def reset(self) -> None:
        """Free everything that is not pinned; drop recency."""
        self._tree.reset()

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change of the tree."""
        self._tree.listen(listener)

    def foresee(self, next_use: NextUse) -> bool:
        """Offer the tree's eviction order what the waiting queue knows."""
        return self._tree.foresee(next_use)

    def check(self) -> None:
        """Verify all internal invariants against a full walk."""
        self._tree.check()


class SelectiveTree(RestrictedTree):
    """A tree that takes only some of what it is offered; all may use what it has."""

    @abc.abstractmethod
    def takes(self, reason: InsertReason) -> bool:
        """Return whether what is offered for a reason is taken."""

    def match(self, key: Keys) -> Match:
        """Return the longest prefix of what was taken."""
        return self._tree.match(key)

    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return where a waiting key hangs in the tree, and what it may use of it."""
        return self._tree.walk(key, start)

    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Take what is to be taken; of the rest hand back the part that was shared before."""
        allowed = len(key) if self.takes(reason) else shared
        return self._tree.insert(key[:allowed], pages, shared, reason, start)


@final
class ManualCache(SelectiveTree):
    """Share only prefixes that the frontend declared, as systems with manual sharing do."""

    def takes(self, reason: InsertReason) -> bool:
        """Return whether a prefix was declared."""
        return reason is InsertReason.DECLARED


@final
class FinishedCache(SelectiveTree):
    """Share what has ended, and declared prefixes: what runs shares nothing of its own yet.

    SGLang's first release inserted a request's tokens when it ended (`handle_finished_requests` in
    its model_rpc.py); a frontend's prefix is a request of its own there, which ends at once.
    """

    def takes(self, reason: InsertReason) -> bool:
        """Return whether it is more than a chunk of what still runs."""
        return reason is not InsertReason.CHUNK


@final
class ThrottledCache(RestrictedTree):
    """Use only a part of every match, to sweep the hit rate (paper Figure 8a/b).

    A match of m tokens is cut to floor(keep * m), to whole pages. The same limit holds while a
    running sequence inserts its chunks: what it computed although the tree has it stays its own
    until it ends, so that the memory that sharing would have saved is really used.
    """

    def __init__(self, tree: PrefixCache, keep: float) -> None:
        """Throttle a tree.

        Args:
            tree: the tree.
            keep: share of every match that may be used, in [0, 1].
        """
        super().__init__(tree)
        self._keep = keep

    def match(self, key: Keys) -> Match:
        """Return the allowed part of the longest cached prefix."""
        return self._tree.match(key[: self.peek(key)])

    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return where a waiting key hangs in the tree, and what it may use of it."""
        place = self._tree.walk(key, start)
        return place._replace(cached=self._allowed(place.cached))

    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Take a prefix up to the first duplicate that its sequence may not yet give up."""
        if reason is InsertReason.CHUNK:
            cached = self._tree.walk(key, start).cached
            allowed = max(shared, self._allowed(cached))
            if allowed < cached:
                key = key[:allowed]
        return self._tree.insert(key, pages, shared, reason, start)

    def _allowed(self, cached: int) -> int:
        # The tolerance keeps 0.29 * 100 at 29 although the product is a hair less.
        return math.floor(self._keep * cached + 1e-9) // self.page_size * self.page_size
