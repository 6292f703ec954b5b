"""The waiting queue: sequences in policy order, each hung on its deepest cached node.

Imports types, cache and sequence. Matching every waiting request anew at each step would cost
O(queue). Instead a request hangs on the deepest tree node whose whole edge it matches, in the slot
of the child it would go to next. Only a change of that slot, or of that node, can change what is
cached for it, so an event of the tree touches exactly the requests that hang there.
"""

import enum
from collections.abc import Callable, Iterator

from sortedcontainers import SortedKeyList

from sgjax.cache import CacheEvent, CacheNode, EventKind, PrefixCache, Slot
from sgjax.schedule.sequence import Sequence

Key = Callable[[Sequence], tuple[float, ...]]
Hanging = dict[int, Sequence]


class _Any(enum.Enum):
    """Stands for any slot of a node; None is a slot: of those who match to their end."""

    SLOT = enum.auto()


_ANY = _Any.SLOT


class PrefixIndex:
    """Hang sequences on their deepest matched node and keep `Sequence.matched` exact.

    Args:
        cache: whose nodes they hang on.
        key: the policy's.

    Attributes:
        root: the cache's root.
        weights: node id -> sequences hanging at or below it; absent means none.
    """

    def __init__(self, cache: PrefixCache, key: Key) -> None:
        self._cache = cache
        self._key = key
        # Least keys where somebody asked: by node and slot, or node and _ANY. Never out of date.
        self._firsts: dict[tuple[int, object], tuple[float, ...]] = {}
        self._where: dict[int, tuple[CacheNode, Slot | None]] = {}
        self._slots: dict[int, dict[Slot | None, Hanging]] = {}
        self._changes: list[CacheEvent] = []
        self.root = cache.root
        self.weights: dict[int, int] = {}
        cache.listen(self._note)

    def add(self, seq: Sequence) -> None:
        """Hang a sequence where it belongs now."""
        key = seq.tokens.view(0, seq.match_limit)
        node, seq.matched = self._cache.walk(key)
        slot = self._cache.first_key(key, node.num_tokens)
        self._where[seq.arrival] = (node, slot)
        self._slots.setdefault(node.id, {}).setdefault(slot, {})[seq.arrival] = seq
        for place in ((node.id, slot), (node.id, _ANY)):
            if place in self._firsts:
                self._firsts[place] = min(self._firsts[place], self._key(seq))
        self._weigh(node, 1)

    def remove(self, seq: Sequence) -> None:
        """Take a sequence down."""
        node, slot = self._where.pop(seq.arrival)
        for place in ((node.id, slot), (node.id, _ANY)):
            if self._firsts.get(place) == self._key(seq):
                del self._firsts[place]
        slots = self._slots[node.id]
        del slots[slot][seq.arrival]
        if not slots[slot]:
            del slots[slot]
        if not slots:
            del self._slots[node.id]
        self._weigh(node, -1)

    def hanging(self, node: CacheNode) -> Iterator[Sequence]:
        """Yield the sequences whose deepest matched node is `node`."""
        for slot in self._slots.get(node.id, {}).values():
            yield from slot.values()

    def next_use(self, leaf: CacheNode) -> tuple[float, ...] | None:
        """Return the least key of those who would use pages of a leaf, be it a part of them."""
        firsts = [self._first(leaf.id, _ANY)]
        # Who matches only the beginning of its edge hangs above it, in its slot.
        if leaf.parent is not None:
            firsts.append(self._first(leaf.parent.id, self._cache.first_key(leaf.key, 0)))
        return min((first for first in firsts if first is not None), default=None)

    def _first(self, node_id: int, slot: "Slot | _Any | None") -> tuple[float, ...] | None:
        """Return the least key of those who hang at a node in a slot, or in any; remember it."""
        found = self._firsts.get((node_id, slot))
        if found is None and node_id in self._slots:
            slots = self._slots[node_id]
            chosen = slots.values() if slot is _ANY else [slots.get(slot, {})]
            hanging = (seq for hung in chosen for seq in hung.values())
            found = min(map(self._key, hanging), default=None)
            if found is not None:
                self._firsts[node_id, slot] = found
        return found

    def stale(self) -> list[Sequence]:
        """Return what the cache's changes since the last call may have moved."""
        affected: Hanging = {}
        for event in self._changes:
            if event.kind in (EventKind.EVICT, EventKind.TRIM):
                for slot in self._slots.get(event.node, {}).values():
                    affected.update(slot)
            waiting_for = self._slots.get(event.parent)
            if waiting_for:
                affected.update(waiting_for.get(self._cache.first_key(event.key, 0), {}))
        self._changes.clear()
        return list(affected.values())

    def rehang(self, sequences: list[Sequence]) -> None:
        """Hang stale sequences where they belong now."""
        for seq in sequences:
            self.remove(seq)
            self.add(seq)

    def _note(self, event: CacheEvent) -> None:
        if event.kind is EventKind.SPLIT:
            # The new upper half stands above all that hung at or below the old node.
            (lower,) = self._cache.node(event.node).children.values()
            if lower.id in self.weights:
                self.weights[event.node] = self.weights[lower.id]
        self._changes.append(event)

    def _weigh(self, node: CacheNode | None, change: int) -> None:
        # An evicted node keeps its parent, so that its path can be weighed down afterwards.
        while node is not None:
            weight = self.weights.get(node.id, 0) + change
            if weight:
                self.weights[node.id] = weight
            else:
                del self.weights[node.id]
            node = node.parent


class WaitingQueue:
    """Sequences that wait for admission.

    Args:
        cache: whose tree, if it has one, the sequences hang on.
        key: the policy's sort key; it may depend on `Sequence.matched` and on what never changes.
        track: whether `Sequence.matched` is kept up to date (for policies and eviction orders that
            look at prefixes).
    """

    def __init__(self, cache: PrefixCache, key: Key, track: bool) -> None:
        self._order: SortedKeyList = SortedKeyList(key=key)
        self._by_arrival: SortedKeyList = SortedKeyList(key=lambda seq: seq.arrival)
        self._members: set[int] = set()
        self.index = PrefixIndex(cache, key) if track else None

    def __len__(self) -> int:
        return len(self._by_arrival)

    def add(self, seq: Sequence) -> None:
        """Enqueue a sequence; a retracted one takes its old place by arrival."""
        if self.index is not None:
            self.index.add(seq)
        self._members.add(seq.arrival)
        self._by_arrival.add(seq)
        self._order.add(seq)

    def remove(self, seq: Sequence) -> None:
        """Take a sequence out."""
        self._order.remove(seq)
        self._by_arrival.remove(seq)
        self._members.remove(seq.arrival)
        if self.index is not None:
            self.index.remove(seq)

    def __contains__(self, seq: Sequence) -> bool:
        return seq.arrival in self._members

    def next_use(self, leaf: CacheNode) -> tuple[float, ...] | None:
        """Return the policy's key of the first sequence that would use a leaf; None if none would.

        Prefixes must be tracked.
        """
        assert self.index is not None
        return self.index.next_use(leaf)

    def refresh(self) -> None:
        """Bring `Sequence.matched` and the order up to date with the cache."""
        if self.index is None:
            return
        # Sorted lists find an element by its key, so it must leave before its key changes.
        stale = self.index.stale()
        for seq in stale:
            self._order.remove(seq)
        self.index.rehang(stale)
        self._order.update(stale)

    def in_order(self) -> Iterator[Sequence]:
        """Yield by the policy's key; the queue must not change meanwhile."""
        return iter(self._order)

    def by_arrival(self) -> Iterator[Sequence]:
        """Yield oldest first; the queue must not change meanwhile."""
        return iter(self._by_arrival)
