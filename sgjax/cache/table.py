"""TableCache: whole finished sequences, without a tree (paper section 6.3, "No Tree Structure").

Imports numpy, cache.base, cache.orders and cache.pool. A key hits only if an entire entry is a
prefix of it. Entries share pages only where one continued another; a prefix that two sequences
computed side by side is held twice, and a partial match is worth nothing.
"""

import bisect
from collections import Counter
from typing import final

import numpy as np
from numpy.typing import NDArray

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
    slot_behind,
)
from sgjax.cache.orders import EvictionOrder, EvictionQueue
from sgjax.cache.pool import Owner, PagePool


class TableEntry:
    """One finished sequence; entry 0 is the empty one and stands for 'nothing cached'.

    Attributes:
        id: number of the entry.
        key: i64[n] its tokens, n a multiple of the page size.
        pages: i32[n / S] their pages; other entries may hold the same.
        num_tokens: n.
        pins: pins of the entry.
        parent, children: none: a table has no tree.
        last_used, hits, created: see `UsedNode`.
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
        "pins",
    )

    def __init__(self, entry_id: int, key: Keys, pages: Pages, clock: int) -> None:
        self.parent: CacheNode | None = None
        self.children: dict[Slot, CacheNode] = {}
        self.id = entry_id
        self.key = key
        self.pages = pages
        self.num_tokens = len(key)
        self.pins = 0
        self.last_used = clock
        self.hits = 0
        self.created = clock

    @property
    def is_pinned(self) -> bool:
        """Return whether it has a pin."""
        return self.pins > 0


@final
class TableCache:
    """Map entire sequences to pages of K/V; implements `PrefixCache`.

    A lookup computes fingerprints of all prefixes of the key in one go and asks for each length
    that some entry has: O(n + lengths). Entries are compared in full before they count as a hit.
    """

    def __init__(self, pool: PagePool, order: EvictionOrder) -> None:
        """Make an empty table over a pool's pages.

        Args:
            pool: gives the page size and keeps the account of pages.
            order: which unpinned entry is evicted first.
        """
        self.page_size = pool.page_size
        self.num_pages = 0
        self.num_evictable = 0
        self.root = TableEntry(0, np.empty(0, np.int64), np.empty(0, np.int32), 0)
        self._pool = pool
        self._queue: EvictionQueue[TableEntry] = EvictionQueue(order)
        self._clock = 0
        self._next_id = 1
        self._entries: dict[int, TableEntry] = {0: self.root}
        self._by_print: dict[int, TableEntry] = {}
        self._lengths: list[int] = []
        self._num_of_length: Counter[int] = Counter()
        # Per page: the entries that hold it, and how many of those are pinned.
        self._holders = np.zeros(pool.num_pages, np.int32)
        self._guards = np.zeros(pool.num_pages, np.int32)
        self._listeners: list[Listener] = []

    # Reading ------------------------------------------------------------------------------------

    def peek(self, key: Keys) -> int:
        """Return the length in tokens of the longest entry that is a prefix; change nothing."""
        return self._find(key).num_tokens

    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return the root, where all keys hang, and the tokens that `match` would return."""
        cached = self.peek(key)
        return Place(self.root, cached, cached)

    def first_key(self, key: Keys, depth: int) -> Slot | None:
        """Return the slot of the page that starts at token `depth`."""
        return slot_behind(key, depth, self.page_size)

    def node(self, node_id: int) -> TableEntry:
        """Return the live entry of an id."""
        return self._entries[node_id]

    # Matching and inserting ---------------------------------------------------------------------

    def match(self, key: Keys) -> Match:
        """Return the longest entry that is a prefix of the key, and touch it."""
        self._clock += 1
        return self._use(self._find(key), hits=1)

    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Take an entire sequence; of a running one's chunks take nothing."""
        S = self.page_size
        end = len(key) // S * S
        assert shared % S == 0, f"{shared} tokens shared, no multiple of the page size {S}"
        assert shared <= end <= len(pages) * S, (shared, end, len(pages))
        self._clock += 1
        if reason is not InsertReason.CHUNK and end > 0:
            fingerprint = int(_fingerprints(key[:end])[-1])
            if fingerprint not in self._by_print:
                return self._use(self._add(key[:end], pages[: end // S], shared, fingerprint), 0)
            entry = self._by_print[fingerprint]
            if np.array_equal(entry.key, key[:end]):
                self._pool.free(pages[shared // S : end // S], Owner.SEQUENCE)
                return self._use(entry, hits=0)
        base = self._find(key[:shared])
        assert base.num_tokens == shared, f"no entry of {shared} tokens; was it unpinned?"
        return self._use(base, hits=0)

    def _find(self, key: Keys) -> TableEntry:
        assert key.dtype == np.int64, f"keys are int64, got {key.dtype}"
        num_short = bisect.bisect_right(self._lengths, len(key))
        if num_short == 0:
            return self.root
        lengths = self._lengths[num_short - 1 :: -1]
        prints = _fingerprints(key)
        for length in lengths:
            entry = self._by_print.get(int(prints[length - 1]))
            if entry and np.array_equal(entry.key, key[:length]):
                return entry
        return self.root

    def _use(self, entry: TableEntry, hits: int) -> Match:
        entry.last_used = self._clock
        entry.hits += hits
        return Match(entry.num_tokens, entry.pages, entry)

    def _add(self, key: Keys, pages: Pages, shared: int, fingerprint: int) -> TableEntry:
        own = pages[shared // self.page_size :]
        self._pool.transfer(own, Owner.SEQUENCE, Owner.TREE)
        entry = TableEntry(self._next_id, key.copy(), pages.copy(), self._clock)
        self._next_id += 1
        self._entries[entry.id] = self._by_print[fingerprint] = entry
        self._num_of_length[len(key)] += 1
        if self._num_of_length[len(key)] == 1:
            bisect.insort(self._lengths, len(key))
        self._holders[entry.pages] += 1
        self.num_pages += len(own)
        self.num_evictable += len(own)
        self._queue.offer(entry)
        self._emit(EventKind.INSERT, entry)
        return entry

    # Pins ---------------------------------------------------------------------------------------

    def pin(self, node: CacheNode) -> None:
        """Keep an entry from eviction until a matching `unpin`."""
        entry = self._own(node)
        entry.pins += 1
        if entry.pins == 1:
            self._guards[entry.pages] += 1
            self.num_evictable -= int((self._guards[entry.pages] == 1).sum())

    def unpin(self, node: CacheNode) -> None:
        """Drop one pin of an entry."""
        entry = self._own(node)
        assert entry.pins > 0, f"entry {entry.id} is not pinned"
        entry.pins -= 1
        if entry.pins == 0:
            self._guards[entry.pages] -= 1
            self.num_evictable += int((self._guards[entry.pages] == 0).sum())
            if entry is not self.root:
                self._queue.offer(entry)

    # Eviction -----------------------------------------------------------------------------------

    def evict(self, num_pages: int) -> int:
        """Free at least `num_pages` pages if there are so many; entries go as a whole."""
        before = self.num_pages
        while before - self.num_pages < num_pages:
            entry = self._queue.pop(_is_unpinned)
            if entry is None:
                break
            self._remove(entry)
        return before - self.num_pages

    def reset(self) -> None:
        """Remove all entries that are not pinned; drop recency."""
        while entry := self._queue.pop(_is_unpinned):
            self._remove(entry)
        for entry in self._entries.values():
            entry.last_used = entry.hits = 0

    def _remove(self, entry: TableEntry) -> None:
        self._holders[entry.pages] -= 1
        freed = entry.pages[self._holders[entry.pages] == 0]
        self._pool.free(freed, Owner.TREE)
        self.num_pages -= len(freed)
        self.num_evictable -= len(freed)
        del self._entries[entry.id]
        self._queue.gone(entry)
        del self._by_print[int(_fingerprints(entry.key)[-1])]
        self._num_of_length[entry.num_tokens] -= 1
        if self._num_of_length[entry.num_tokens] == 0:
            self._lengths.remove(entry.num_tokens)
        self._emit(EventKind.EVICT, entry)

    # Housekeeping -------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change of the table."""
        self._listeners.append(listener)

    def foresee(self, next_use: NextUse) -> bool:
        """Offer the eviction order what the waiting queue knows; return whether it will ask."""
        return self._queue.foresee(next_use)

    def check(self) -> None:
        """Verify all internal invariants against all entries."""
        entries = list(self._entries.values())
        held: Counter[int] = Counter(p for e in entries for p in e.pages.tolist())
        guarded: Counter[int] = Counter(p for e in entries if e.pins for p in e.pages.tolist())
        for counts, array in ((held, self._holders), (guarded, self._guards)):
            assert dict(counts) == {int(p): int(array[p]) for p in np.flatnonzero(array)}
        assert sorted(held) == self._pool.owned_by(Owner.TREE).tolist()
        assert self.num_pages == len(held), (self.num_pages, len(held))
        assert self.num_evictable == len(held) - len(guarded), (self.num_evictable, len(held))
        assert sorted({e.num_tokens for e in entries} - {0}) == self._lengths
        assert len(self._by_print) == len(entries) - 1
        for e in entries:
            assert len(e.key) == len(e.pages) * self.page_size == e.num_tokens, f"entry {e.id}"
            assert e is self.root or e.pins or e in self._queue, f"entry {e.id} is not queued"

    def _own(self, node: CacheNode) -> TableEntry:
        found = self._entries.get(node.id)
        assert found is node, f"entry {node.id} is not in the table (evicted while not pinned?)"
        return found

    def _emit(self, kind: EventKind, entry: TableEntry) -> None:
        if self._listeners:
            event = CacheEvent(
                kind, entry.id, self.root.id, entry.key, entry.num_tokens, self._clock
            )
            for listener in self._listeners:
                listener(event)


def _is_unpinned(entry: TableEntry) -> bool:
    return entry.pins == 0


def _fingerprints(key: Keys) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every prefix of a key: u64[n], entry i covers tokens [0, i]."""
    index = np.arange(len(key), dtype=np.uint64)
    mixed = key.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + index
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(32)
    return np.cumsum(mixed, dtype=np.uint64)
