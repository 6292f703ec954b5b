"""RadixTree: the prefix cache of RadixAttention (paper section 3, Figure 3).

Owns the tree, its pins and its recency; the pages belong to it in the PagePool's account (TREE).
Imports numpy, cache.base, cache.pool and cache.orders.

An edge's key and pages are numpy runs, compared and joined in one go; a node's children are keyed
by the first page of their key. Every operation costs what it touches: the nodes on one path, and
the tokens of the key (eviction: the nodes it frees). Nothing rescans the tree but `check`.
"""

import operator
from collections.abc import Iterator

import numpy as np

from sgjax.cache.base import (
    CacheEvent,
    CacheNode,
    EventKind,
    InsertReason,
    Keys,
    Listener,
    Match,
    NextUse,
    Pages,
    Place,
    Slot,
    common_length,
    slot_at,
    slot_behind,
)
from sgjax.cache.orders import EvictionOrder, EvictionQueue
from sgjax.cache.pool import Owner, PagePool

_EVICTABLE = operator.attrgetter("is_evictable_leaf")


class RadixNode:
    """One edge of the tree and the node it leads to; written by the tree alone.

    Attributes:
        id: number of the node; 0 is the root.
        key: i64[n] tokens of the edge, n a multiple of the page size.
        pages: i32[n / S] their pages. The arrays are replaced, never written.
        num_tokens: tokens from the root to the end of this edge.
        parent: None for the root only.
        children: by the first page of their key.
        pins: pins of this very node.
        pinned_children: children that are pinned themselves or have a pin below them.
        last_used: logical time of the last match or insert through the node.
        hits: matches through the node.
        created: logical time of the insert that brought the tokens.
    """

    __slots__ = (
        "children",
        "created",
        "hits",
        "id",
        "key",
        "last_used",
        "num_tokens",
        "pages",
        "parent",
        "pinned_children",
        "pins",
    )

    def __init__(
        self, node_id: int, parent: "RadixNode | None", key: Keys, pages: Pages, clock: int
    ) -> None:
        self.id = node_id
        self.key = key
        self.pages = pages
        self.num_tokens: int = len(key) + (parent.num_tokens if parent else 0)
        self.parent = parent
        self.children: dict[Slot, RadixNode] = {}
        self.pins = 0
        self.pinned_children = 0
        self.last_used = clock
        self.hits = 0
        self.created = clock

    @property
    def is_pinned(self) -> bool:
        """Return whether there is a pin at or below this node."""
        return self.pins > 0 or self.pinned_children > 0

    @property
    def is_evictable_leaf(self) -> bool:
        """Return whether the node is an unpinned leaf and not the root."""
        return not self.children and not self.is_pinned and self.parent is not None


class RadixTree:
    """Map token prefixes to pages of K/V; implements `PrefixCache`."""

    def __init__(self, pool: PagePool, order: EvictionOrder, whole_leaves: bool = False) -> None:
        """Make an empty tree over a pool's pages.

        Args:
            pool: gives the page size and keeps the account of pages.
            order: which unpinned leaf is evicted first.
            whole_leaves: whether eviction never leaves a part of a leaf.
        """
        self.page_size = pool.page_size
        self.num_pages = 0
        self.num_evictable = 0
        self._pool = pool
        self._whole_leaves = whole_leaves
        self._queue: EvictionQueue[RadixNode] = EvictionQueue(order)
        self._clock = 0
        self._next_id = 0
        self._nodes: dict[int, RadixNode] = {}
        self._listeners: list[Listener] = []
        self.root = self._new_node(None, np.empty(0, np.int64), np.empty(0, np.int32))

    # Reading ------------------------------------------------------------------------------------

    def peek(self, key: Keys) -> int:
        """Return the length in tokens of the longest cached prefix; change nothing."""
        return self.walk(key).cached

    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return the deepest node whose whole edge matches, and the tokens that match in all."""
        node, _, in_child = self._descend(key, self._own(start) if start else self.root)
        reached = node.num_tokens + in_child
        return Place(node, reached, reached)

    def first_key(self, key: Keys, depth: int) -> Slot | None:
        """Return the child slot that a key waits for at a node that ends at token `depth`."""
        return slot_behind(key, depth, self.page_size)

    def node(self, node_id: int) -> RadixNode:
        """Return the live node of an id."""
        return self._nodes[node_id]

    # Matching and inserting ---------------------------------------------------------------------

    def match(self, key: Keys) -> Match:
        """Return the longest cached prefix and touch it; split the node it ends in."""
        self._clock += 1
        node = self._reach(key, self.root)
        self._touch(node, hits=1)
        return self._found(node)

    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Take the pages of a prefix that the tree lacks, free those it has; for any reason."""
        S = self.page_size
        end = len(key) // S * S
        assert shared % S == 0, f"{shared} tokens shared, no multiple of the page size {S}"
        assert shared <= end <= len(pages) * S, (shared, end, len(pages))
        self._clock += 1
        node = self._reach(key, self._own(start) if start else self.root)
        cached = node.num_tokens
        assert cached >= shared, f"{shared} tokens shared, but only {cached} in the tree; unpinned?"
        if cached < end:
            node = self._add_leaf(node, key[cached:end], pages[cached // S : end // S])
        self._touch(node, hits=0)
        if cached == shared:  # No duplicates: the caller's pages are the tree's.
            return Match(end, pages[: end // S], node)
        self._pool.free(pages[shared // S : cached // S], Owner.SEQUENCE)
        return self._found(node)

    def _descend(self, key: Keys, node: RadixNode) -> tuple[RadixNode, RadixNode | None, int]:
        """Return the deepest wholly matching node, the child matching in part, and how far."""
        assert key.dtype == np.int64, f"keys are int64, got {key.dtype}"
        S = self.page_size
        depth = node.num_tokens
        end = len(key) // S * S
        while depth < end:
            child = node.children.get(slot_at(key, depth, S))
            if child is None:
                break
            size = len(child.key)
            common = min(size, end - depth)
            if common > S:  # The slot vouches for the first page.
                common = common_length(child.key[:common], key[depth : depth + common]) // S * S
            if common < size:
                return node, child, common
            node = child
            depth += size
        return node, None, 0

    def _reach(self, key: Keys, start: RadixNode) -> RadixNode:
        """Return the node that ends where the longest cached prefix ends, made if need be."""
        node, child, in_child = self._descend(key, start)
        return self._split(child, in_child) if child else node

    def _touch(self, node: RadixNode, hits: int) -> None:
        """Note a use of the path to a node."""
        clock, at = self._clock, node
        while at.parent is not None:
            at.last_used = clock
            at.hits += hits
            at = at.parent

    def _found(self, node: RadixNode) -> Match:
        """Return the path to a node as a match."""
        runs, at = [], node
        while at.parent is not None:
            runs.append(at.pages)
            at = at.parent
        return Match(node.num_tokens, np.concatenate(runs[::-1]) if runs else node.pages, node)

    def _add_leaf(self, parent: RadixNode, key: Keys, pages: Pages) -> RadixNode:
        leaf = self._new_node(parent, key.copy(), pages.copy())
        self._pool.transfer(leaf.pages, Owner.SEQUENCE, Owner.TREE)
        parent.children[self._slot(key, 0)] = leaf
        self.num_pages += len(pages)
        self.num_evictable += len(pages)
        self._queue.offer(leaf)
        self._emit(EventKind.INSERT, leaf, parent)
        return leaf

    def _split(self, lower: RadixNode, size: int) -> RadixNode:
        """Put a new node between a node and its parent, for the first `size` tokens of its edge."""
        S = self.page_size
        parent = lower.parent
        assert parent is not None
        # The upper half is copied, so that it does not keep the whole run alive by itself.
        upper = self._new_node(parent, lower.key[:size].copy(), lower.pages[: size // S].copy())
        upper.created, upper.hits = lower.created, lower.hits
        upper.pinned_children = int(lower.is_pinned)
        parent.children[self._slot(lower.key, 0)] = upper
        lower.key, lower.pages, lower.parent = lower.key[size:], lower.pages[size // S :], upper
        upper.children[self._slot(lower.key, 0)] = lower
        self._emit(EventKind.SPLIT, upper, parent)
        return upper

    # Pins ---------------------------------------------------------------------------------------
    # A node counts its own pins and its pinned children, not the pins of its whole subtree, so a
    # pin or unpin climbs only as far as nodes change between pinned and not.

    def pin(self, node: CacheNode) -> None:
        """Keep the path to `node` from eviction until a matching `unpin`."""
        at = self._own(node)
        was_pinned = at.is_pinned
        at.pins += 1
        while not was_pinned and at.parent is not None:
            self.num_evictable -= len(at.pages)
            at = at.parent
            was_pinned = at.is_pinned
            at.pinned_children += 1

    def unpin(self, node: CacheNode) -> None:
        """Drop one pin of the path to `node`."""
        at = self._own(node)
        assert at.pins > 0, f"node {at.id} is not pinned"
        at.pins -= 1
        while not at.is_pinned and at.parent is not None:
            self.num_evictable += len(at.pages)
            if not at.children:
                self._queue.offer(at)
            at = at.parent
            at.pinned_children -= 1

    # Eviction -----------------------------------------------------------------------------------

    def evict(self, num_pages: int) -> int:
        """Free at least `num_pages` pages of unpinned leaves if there are so many.

        Never more, unless leaves are evicted whole.
        """
        freed: list[Pages] = []
        missing = num_pages
        while missing > 0 and (leaf := self._queue.pop(_EVICTABLE)):
            tail = leaf.pages if self._whole_leaves else leaf.pages[-missing:]
            freed.append(tail)
            missing -= len(tail)
            self.num_pages -= len(tail)
            self.num_evictable -= len(tail)
            if len(tail) < len(leaf.pages):
                self._trim(leaf, len(tail))
            else:
                self._remove(leaf)
        if freed:
            self._pool.free(np.concatenate(freed), Owner.TREE)
        return num_pages - missing

    def reset(self) -> None:
        """Free everything that is not pinned; drop recency."""
        self.evict(self.num_evictable)
        self._queue.clear()
        for node in self._nodes.values():
            node.last_used = node.hits = 0

    def _trim(self, leaf: RadixNode, num_pages: int) -> None:
        size = len(leaf.key) - num_pages * self.page_size
        leaf.num_tokens -= len(leaf.key) - size
        leaf.key, leaf.pages = leaf.key[:size], leaf.pages[:-num_pages]
        assert leaf.parent is not None
        self._queue.offer(leaf)
        self._emit(EventKind.TRIM, leaf, leaf.parent)

    def _remove(self, leaf: RadixNode) -> None:
        parent = leaf.parent
        assert parent is not None
        del parent.children[self._slot(leaf.key, 0)]
        del self._nodes[leaf.id]
        self._queue.gone(leaf)
        if parent.is_evictable_leaf:
            self._queue.offer(parent)
        self._emit(EventKind.EVICT, leaf, parent)

    # Housekeeping -------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change of the tree; it may read the tree, not change it."""
        self._listeners.append(listener)

    def foresee(self, next_use: NextUse) -> bool:
        """Offer the eviction order what the waiting queue knows; return whether it will ask."""
        return self._queue.foresee(next_use)

    def check(self) -> None:
        """Verify all internal invariants against a full walk; for tests and `debug_checks`."""
        S = self.page_size
        nodes = list(self._walk_all())
        assert {n.id: n for n in nodes} == self._nodes, "index of nodes differs from the tree"
        held = np.concatenate([n.pages for n in nodes])
        owned = self._pool.owned_by(Owner.TREE)
        assert np.array_equal(np.sort(held), owned), "tree's pages differ from the pool's account"
        assert self.num_pages == len(held), (self.num_pages, len(held))
        evictable = sum(len(n.pages) for n in nodes if not n.is_pinned)
        assert self.num_evictable == evictable, (self.num_evictable, evictable)
        for n in nodes:
            pinned = sum(child.is_pinned for child in n.children.values())
            assert n.pinned_children == pinned, f"pinned children of node {n.id}"
            assert n.pins >= 0, f"pins of node {n.id}"
            if n.parent is None:
                continue
            assert len(n.key) == len(n.pages) * S > 0, f"edge of node {n.id}"
            assert n.num_tokens == n.parent.num_tokens + len(n.key), f"depth of node {n.id}"
            assert n.parent.children.get(self._slot(n.key, 0)) is n, f"slot of node {n.id}"
            assert not n.is_evictable_leaf or n in self._queue, f"leaf {n.id} is not queued"

    def _walk_all(self) -> Iterator[RadixNode]:
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _new_node(self, parent: RadixNode | None, key: Keys, pages: Pages) -> RadixNode:
        node = RadixNode(self._next_id, parent, key, pages, self._clock)
        self._nodes[node.id] = node
        self._next_id += 1
        return node

    def _slot(self, key: Keys, start: int) -> Slot:
        return slot_at(key, start, self.page_size)

    def _own(self, node: CacheNode) -> RadixNode:
        found = self._nodes.get(node.id)
        assert found is node, f"node {node.id} is not in the tree (evicted while not pinned?)"
        return found

    def _emit(self, kind: EventKind, node: RadixNode, parent: RadixNode) -> None:
        if self._listeners:
            event = CacheEvent(kind, node.id, parent.id, node.key, node.num_tokens, self._clock)
            for listener in self._listeners:
                listener(event)
