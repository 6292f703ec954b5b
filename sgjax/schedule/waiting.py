"""The waiting queue: sequences in policy order, each hung on its deepest cached node.

Imports types, cache and sequence. Matching every waiting request anew at each step would cost
O(queue). Instead a request hangs on the deepest tree node whose whole edge it matches, in the slot
of the child it would go to next. Only a change of that slot, or of that node, can change what is
cached for it, so an event of the tree touches exactly the requests that hang there.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from sortedcontainers import SortedKeyList

from sgjax.cache import CacheEvent, CacheNode, EventKind, Place, PrefixCache, Slot
from sgjax.schedule.sequence import Sequence

Key = Callable[[Sequence], tuple[float, ...]]
Hanging = dict[int, Sequence]

_ANY = object()
"""Stands for any slot of a node; None is a slot: of those who match to their end."""


class _Hung(NamedTuple):
    """Where a sequence hangs, and what the index knew when it was hung.

    Attributes:
        node, slot: the place.
        reached: its tokens that were cached.
        heard: changes of the cache so far.
    """

    node: CacheNode
    slot: Slot | None
    reached: int
    heard: int


class PrefixIndex:
    """Hang sequences on their deepest matched node and keep `Sequence.matched` exact.

    What hangs on an evicted leaf passes to its parent, but only with the next `stale`: whoever
    consumes an order meanwhile must find nobody twice. An evicted node keeps its parent till then.

    Args:
        cache: whose nodes they hang on.
        key: the policy's.

    Attributes:
        root: the cache's root.
        weights: node id -> sequences hanging at or below it; absent means none.
        is_exact: whether all `Sequence.matched` are right, as nothing came or went since `stale`.
    """

    def __init__(self, cache: PrefixCache, key: Key) -> None:
        self._cache = cache
        self._key = key
        # Least keys where somebody asked: by node and slot, or node and _ANY. Never out of date.
        self._firsts: dict[tuple[int, object], tuple[float, ...]] = {}
        self._hung: dict[int, _Hung] = {}
        self._slots: dict[int, dict[object, Hanging]] = {}
        self._changes: list[CacheEvent] = []
        self._heard = 0
        self.is_exact = True
        self.root = cache.root
        self.weights: dict[int, int] = {}
        cache.listen(self._note)

    def add(self, seq: Sequence) -> None:
        """Hang a sequence where it belongs now."""
        place = self._cache.walk(seq.tokens.view(0, seq.match_limit))
        seq.matched = place.cached
        self._hang(seq, place)
        self._weigh(place.node, None, 1)

    def remove(self, seq: Sequence) -> None:
        """Take a sequence down."""
        self._weigh(self._take_down(seq), None, -1)

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

    def held(self, most: float) -> int:
        """Return the evictable tokens that those who hang here would hit; stop once it is `most`.

        Whole edges count: what somebody matches of the next one, until a match cuts it, does not.
        """
        tokens = 0
        for node_id in self.weights:
            with suppress(KeyError):  # evicted since the last `stale`
                node = self._cache.node(node_id)
                tokens += 0 if node.is_pinned else len(node.key)
            if tokens >= most:
                break
        return tokens

    def stale(self) -> list[Sequence]:
        """Return what the cache's changes since the last call may have moved."""
        affected: Hanging = {}
        for number, event in enumerate(self._changes, self._heard - len(self._changes)):
            # A split moves nobody who does not reach the end of its upper half.
            least = event.num_tokens if event.kind is EventKind.SPLIT else 0
            for hanging in self._touched(event):
                for arrival, seq in hanging.items():
                    hung = self._hung[arrival]
                    if hung.reached >= least and hung.heard <= number:
                        affected[arrival] = seq
        self._changes.clear()
        self.is_exact = True
        return list(affected.values())

    def find(self, seq: Sequence) -> Place:
        """Return where a stale sequence belongs now.

        Where it hangs is on its way, so the walk goes on from there.
        """
        return self._cache.walk(seq.tokens.view(0, seq.match_limit), self._hung[seq.arrival].node)

    def move(self, seq: Sequence, place: Place) -> None:
        """Hang a stale sequence where `find` says that it belongs."""
        start = self._take_down(seq)
        seq.matched = place.cached
        self._hang(seq, place)
        self._weigh(place.node, start, 1)

    def _hang(self, seq: Sequence, place: Place) -> None:
        node = place.node
        slot = self._cache.first_key(seq.tokens.view(0, seq.match_limit), node.num_tokens)
        self._hung[seq.arrival] = _Hung(node, slot, place.reached, self._heard)
        self._slots.setdefault(node.id, {}).setdefault(slot, {})[seq.arrival] = seq
        if self._firsts:
            for at in ((node.id, slot), (node.id, _ANY)):
                if at in self._firsts:
                    self._firsts[at] = min(self._firsts[at], self._key(seq))

    def _take_down(self, seq: Sequence) -> CacheNode:
        node, slot, *_ = self._hung.pop(seq.arrival)
        if self._firsts:
            for at in ((node.id, slot), (node.id, _ANY)):
                if self._firsts.get(at) == self._key(seq):
                    del self._firsts[at]
        slots = self._slots[node.id]
        del slots[slot][seq.arrival]
        if not slots[slot]:
            del slots[slot]
        if not slots:
            del self._slots[node.id]
        return node

    def _first(self, node_id: int, slot: object) -> tuple[float, ...] | None:
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

    def _note(self, event: CacheEvent) -> None:
        if event.kind is EventKind.SPLIT:
            # The new upper half stands above all that hung at or below the old node.
            (lower,) = self._cache.node(event.node).children.values()
            if lower.id in self.weights:
                self.weights[event.node] = self.weights[lower.id]
        else:
            self.is_exact = False
        self._changes.append(event)
        self._heard += 1

    def _touched(self, event: CacheEvent) -> Iterator[Hanging]:
        """Yield what hangs where a change was."""
        if event.kind is EventKind.EVICT:
            self._lift(event)
        elif event.kind is EventKind.TRIM:
            yield from self._slots.get(event.node, {}).values()
        waiting_for = self._slots.get(event.parent)
        if waiting_for:
            yield waiting_for.get(self._cache.first_key(event.key, 0), {})

    def _lift(self, evicted: CacheEvent) -> None:
        """Hang what hung on an evicted leaf on its parent, in the slot where the leaf was."""
        slots = self._slots.pop(evicted.node, None)
        if slots is None:
            return
        del self.weights[evicted.node]
        slot = self._cache.first_key(evicted.key, 0)
        hanging = self._slots.setdefault(evicted.parent, {}).setdefault(slot, {})
        for hung in slots.values():
            hanging.update(hung)
            for arrival in hung:
                old = self._hung[arrival]
                assert old.node.parent is not None
                self._hung[arrival] = old._replace(node=old.node.parent, slot=slot)
        for at in (*slots, _ANY):
            self._firsts.pop((evicted.node, at), None)
        for at in (slot, _ANY):
            self._firsts.pop((evicted.parent, at), None)

    def _weigh(self, node: CacheNode | None, top: CacheNode | None, change: int) -> None:
        """Change the weights from a node upwards, as far as `top`, whose weight stays."""
        while node is not top:
            assert node is not None
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
        self._cache = cache
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

    def cached(self, seq: Sequence) -> int:
        """Return how many tokens of a waiting sequence are in the cache now."""
        if self.index is not None and self.index.is_exact:
            return seq.matched
        return self._cache.peek(seq.tokens.view(0, seq.match_limit))

    def next_use(self, leaf: CacheNode) -> tuple[float, ...] | None:
        """Return the policy's key of the first sequence that would use a leaf; None if none would.

        Prefixes must be tracked.
        """
        assert self.index is not None
        return self.index.next_use(leaf)

    def held(self, most: float) -> int:
        """Return how many evictable tokens the waiting would hit; stop once it is `most`.

        Prefixes must be tracked.
        """
        assert self.index is not None
        return self.index.held(most)

    def refresh(self) -> None:
        """Bring `Sequence.matched` and the order up to date with the cache."""
        if self.index is None:
            return
        moved = []
        for seq in self.index.stale():
            place = self.index.find(seq)
            if place.cached != seq.matched:
                # Sorted lists find an element by its key, so it must leave before its key changes.
                self._order.remove(seq)
                moved.append(seq)
            self.index.move(seq, place)
        self._order.update(moved)

    def in_order(self) -> Iterator[Sequence]:
        """Yield by the policy's key; the queue must not change meanwhile."""
        return iter(self._order)

    def by_arrival(self) -> Iterator[Sequence]:
        """Yield oldest first; the queue must not change meanwhile."""
        return iter(self._by_arrival)
