"""What the scheduler knows of a prefix cache: the protocol, and the records it exchanges.

Imports numpy and the standard library. `PagePool` (pool.py) owns pages, `RadixTree` (radix.py)
owns the tree; other caches (variants.py, table.py, samples.py) implement the same protocol.

Who owns which pages of a sequence with n tokens and page size S::

    tokens   [0 ......... shared) [shared ........... n)
    pages     owned by the cache,  owned by the sequence
              pinned by seq.node   freed or inserted by it

`shared` is a multiple of S. Keys are int64 (architecture section 5). Every key handed to a cache is
cut to whole pages by the cache itself.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Pages = NDArray[np.int32]
Slot = int | bytes
"""What tells a node's children apart: the first page of a child's key (S = 1: its one token)."""


def slot_at(key: Keys, start: int, page_size: int) -> Slot:
    """Return the slot of the page that starts at token `start`."""
    if page_size == 1:
        return int(key.item(start))
    return key[start : start + page_size].tobytes()


def slot_behind(key: Keys, depth: int, page_size: int) -> Slot | None:
    """Return the slot of a key's page behind `depth` tokens; None if less than a page is left."""
    return slot_at(key, depth, page_size) if depth + page_size <= len(key) else None


def common_length(a: Keys, b: Keys) -> int:
    """Return the length of the longest common prefix of two keys of one length."""
    if a.tobytes() == b.tobytes():  # bytes compare in half the time
        return len(a)
    return int((a != b).argmax())


class CacheNode(Protocol):
    """An opaque position in a cache that can be pinned; the root stands for 'nothing cached'."""

    @property
    def id(self) -> int:
        """Return the node's number, never used again after the node is gone."""
        ...

    @property
    def key(self) -> Keys:
        """Return the tokens of the node's own edge, none for a root."""
        ...

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens on the path from the root to the end of this node."""
        ...

    @property
    def is_pinned(self) -> bool:
        """Return whether there is a pin at or below the node, so that it stays."""
        ...

    @property
    def parent(self) -> "CacheNode | None":
        """Return the node above, None for a root; an evicted node keeps it."""
        ...

    @property
    def children(self) -> "Mapping[Slot, CacheNode]":
        """Return the nodes below, by the first page of their keys."""
        ...


NextUse = Callable[[CacheNode], tuple[float, ...] | None]
"""Tell when the waiting will use pages of a node: the less, the sooner; None if nobody will."""


@dataclass(frozen=True)
class Match:
    """The longest cached prefix of a key.

    Attributes:
        num_tokens: its length, a multiple of the page size.
        pages: i32[num_tokens / S] page ids in order.
        node: the node to pin while the pages are used.
    """

    num_tokens: int
    pages: Pages
    node: CacheNode


class Place(NamedTuple):
    """Where a waiting key hangs.

    Attributes:
        node: the deepest node whose whole edge matches (the table: always the root).
        reached: tokens of the key that are cached; they may end inside a child's edge.
        cached: tokens that `match` would return now; less where a cache is throttled.
    """

    node: CacheNode
    reached: int
    cached: int


class InsertReason(enum.Enum):
    """When a sequence offers its pages; ablated caches take only some offers."""

    CHUNK = "chunk"
    """A prefill chunk has been computed (or is planned, with `share_planned`)."""
    FINISHED = "finished"
    """The sequence ended or was retracted; it drops its pin after this."""
    DECLARED = "declared"
    """The prefix was declared by the frontend (a hint)."""


class EventKind(enum.Enum):
    """How a cache changed."""

    INSERT = "insert"
    """A leaf was added."""
    SPLIT = "split"
    """A node was cut in two: the upper half is new, the lower half keeps the id and the pins."""
    TRIM = "trim"
    """A leaf lost pages off its end and lives on."""
    EVICT = "evict"
    """A leaf was removed."""


@dataclass(frozen=True)
class CacheEvent:
    """One change of the tree; feeds the router, the viewer, the waiting queue and the theory.

    An index of what hangs where (see `PrefixCache.walk`) stays exact if at each event it walks anew
    from `parent` whatever hangs on `node`, and what hangs on `parent` and waits for the slot
    `first_key(event.key, 0)`. Of the latter a split moves only what reached the end of its upper
    half; what hangs on the lower half need not move.

    Attributes:
        kind: what happened.
        node: id of the node inserted, trimmed or evicted, or of the new upper half of a split.
        parent: id of its parent, which still exists.
        key: the node's own edge key (i64[n]) after the event; as it was, if evicted.
        num_tokens: from the root to the end of that edge.
        clock: the tree's logical counter.
    """

    kind: EventKind
    node: int
    parent: int
    key: Keys
    num_tokens: int
    clock: int


Listener = Callable[[CacheEvent], None]


class PrefixCache(Protocol):
    """Map token prefixes to pages of K/V. One thread owns it; it holds no locks."""

    @property
    def page_size(self) -> int:
        """Return S, the tokens a page holds."""
        ...

    @property
    def num_pages(self) -> int:
        """Return the number of pages the cache owns."""
        ...

    @property
    def num_evictable(self) -> int:
        """Return the number of its pages that `evict` could free now (no pin at or below)."""
        ...

    @property
    def root(self) -> CacheNode:
        """Return the node that stands for the empty prefix."""
        ...

    def match(self, key: Keys) -> Match:
        """Return the longest cached prefix and touch it (recency); may split a node."""
        ...

    def peek(self, key: Keys) -> int:
        """Return the length in tokens of the longest cached prefix; change nothing."""
        ...

    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return where a waiting key hangs; change nothing.

        Args:
            key: i64[n].
            start: a node known to lie on the key's path, to save walking from the root.
        """
        ...

    def first_key(self, key: Keys, depth: int) -> Slot | None:
        """Return the child slot that a key waits for at a node that ends at token `depth`.

        None if less than a page is left of the key there.
        """
        ...

    def node(self, node_id: int) -> CacheNode:
        """Return the live node of an id, as events name it; KeyError if it is gone."""
        ...

    def pin(self, node: CacheNode) -> None:
        """Keep the path to `node` from eviction until a matching `unpin`."""
        ...

    def unpin(self, node: CacheNode) -> None:
        """Drop one pin of the path to `node`."""
        ...

    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Offer the pages of a computed prefix.

        Pages that the cache takes pass from SEQUENCE to TREE ownership. Where the tree already
        holds a part of the key in other pages, the caller's duplicates (those past `shared`)
        are freed here, and the returned pages are the tree's: the caller rewrites its page table
        with them before the next step (rule 6).

        Args:
            key: i64[n] the tokens of the prefix; cut to whole pages.
            pages: i32[>= n / S] their pages, in order.
            shared: tokens at the front whose pages the caller had from the cache, and still pins.
            reason: when this offer is made.
            start: a node known to lie on the key's path, such as the one that the caller pins, to
                save walking from the root.

        Returns:
            The part of the key that the cache now owns; its `pages` replace the caller's front
            pages (and may be a view of them). `num_tokens >= shared`. The caller moves its pin to
            `node`.
        """
        ...

    def evict(self, num_pages: int) -> int:
        """Free at least `num_pages` pages from unpinned leaves, worst first, if there are so many.

        Frees the least that covers the need: whole pages off the end of the last leaf, not the
        whole leaf. The table, which has only entire entries, and a tree that evicts leaves whole
        may free more. Returns the number of pages freed to the pool.
        """
        ...

    def reset(self) -> None:
        """Free everything that is not pinned; drop recency."""
        ...

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change of the tree."""
        ...

    def foresee(self, next_use: NextUse) -> bool:
        """Offer the eviction order what the queue knows; return whether it will ask."""
        ...

    def check(self) -> None:
        """Verify all internal invariants against a full walk; for tests and `debug_checks`."""
        ...
