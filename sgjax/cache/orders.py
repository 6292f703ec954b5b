"""Eviction orders, and the queue that applies one. Imports cache.base.

An order says which of two nodes goes first; it owns no nodes. Which nodes may go at all (unpinned
leaves) is the cache's business.
"""

import abc
import heapq
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from sgjax.cache.base import CacheNode, Keys, NextUse, Slot

Priority = tuple[float, ...]


class UsedNode(Protocol):
    """What an order may know of a node; also its parent, None where nothing is above.

    Attributes:
        id: the node's number; grows with creation, but a split's upper half is younger than its
            lower.
        key: i64[n] tokens of the node's own edge.
        last_used: logical time of the last match or insert through the node.
        hits: matches through the node since it was inserted.
        created: logical time of the insert that brought the node's tokens.
        num_tokens: tokens from the root to the node's end.
    """

    id: int
    key: Keys
    last_used: int
    hits: int
    created: int
    num_tokens: int

    @property
    def is_pinned(self) -> bool:
        """Return whether there is a pin at or below the node."""
        ...

    @property
    def parent(self) -> CacheNode | None:
        """Return the node above."""
        ...

    @property
    def children(self) -> Mapping[Slot, CacheNode]:
        """Return the nodes below."""
        ...


class EvictionOrder(abc.ABC):
    """Rank nodes for eviction."""

    @abc.abstractmethod
    def priority(self, node: UsedNode) -> Priority:
        """Return the node's rank; the least is evicted first, ties go by id.

        It may depend on anything, but while a node lives unpinned and childless it may only grow.
        """

    def evicted(self, node: UsedNode) -> None:  # noqa: B027
        """Hear that a node was evicted as a whole; most orders do not care."""

    def foresee(self, next_use: NextUse) -> bool:
        """Hear how to ask when the waiting will use a node; return whether this order does."""
        del next_use
        return False


class LeastRecentlyUsed(EvictionOrder):
    """Evict what was used longest ago (section 3, "Cache-aware scheduling": LRU leaves)."""

    def priority(self, node: UsedNode) -> Priority:
        """Return the time of the last use."""
        return (node.last_used,)


class LeastFrequentlyUsed(EvictionOrder):
    """Evict what was matched least often; among equals what was used longest ago."""

    def priority(self, node: UsedNode) -> Priority:
        """Return the number of matches, then the time of the last use."""
        return (node.hits, node.last_used)


class FirstInFirstOut(EvictionOrder):
    """Evict what was computed first, used or not."""

    def priority(self, node: UsedNode) -> Priority:
        """Return the time the tokens came in."""
        return (node.created,)


N = TypeVar("N", bound=UsedNode)


class EvictionQueue(Generic[N]):
    """A heap of candidates with lazy deletion, put right when they come up.

    The cache offers a node whenever it becomes a candidate and says nothing when it ceases to be
    one or is touched: an entry whose node is no candidate is dropped when it is popped, and one
    whose priority has grown since goes back in. Both costs are paid by the push they undo. A
    priority that a use made fall is seen at the next offer; the old entry is then dropped, too.
    """

    def __init__(self, order: EvictionOrder) -> None:
        self._order = order
        self._heap: list[tuple[Priority, int, N]] = []
        self._queued: dict[int, Priority] = {}

    def offer(self, node: N) -> None:
        """Add a candidate; nothing happens if it is queued already at its rank or before."""
        priority, queued = self._order.priority(node), self._queued.get(node.id)
        if queued is None or priority < queued:
            self._queued[node.id] = priority
            heapq.heappush(self._heap, (priority, node.id, node))

    def pop(self, is_candidate: Callable[[N], bool]) -> N | None:
        """Remove and return the candidate that goes first, or None if there is none left."""
        while self._heap:
            queued, node_id, node = self._heap[0]
            if self._queued.get(node_id) != queued:
                heapq.heappop(self._heap)
                continue
            if not is_candidate(node):
                heapq.heappop(self._heap)
                del self._queued[node_id]
                continue
            current = self._order.priority(node)
            if current != queued:
                self._queued[node_id] = current
                heapq.heapreplace(self._heap, (current, node_id, node))
                continue
            heapq.heappop(self._heap)
            del self._queued[node_id]
            return node
        return None

    def gone(self, node: N) -> None:
        """Tell the order that a node was evicted as a whole."""
        self._order.evicted(node)

    def foresee(self, next_use: NextUse) -> bool:
        """Offer the order what the waiting queue knows; return whether it will ask."""
        return self._order.foresee(next_use)

    def clear(self) -> None:
        """Forget all entries."""
        self._heap.clear()
        self._queued.clear()

    def __contains__(self, node: N) -> bool:
        return node.id in self._queued
