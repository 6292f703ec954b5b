"""Eviction orders, and the queue that applies one. Imports the standard library.

An order says which of two nodes goes first; it owns no nodes. Which nodes may go at all (unpinned
leaves) is the cache's business.
"""

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Priority = tuple[float, ...]


class UsedNode(Protocol):
    """What an order may know of a node.

    Attributes:
        id: the node's number; grows with creation, but a split's upper half is younger than its
            lower.
        last_used: logical time of the last match or insert through the node.
        hits: matches through the node since it was inserted.
        created: logical time of the insert that brought the node's tokens.
        num_tokens: tokens from the root to the node's end.
    """

    id: int
    last_used: int
    hits: int
    created: int
    num_tokens: int


class EvictionOrder(Protocol):
    """Rank nodes for eviction."""

    def priority(self, node: UsedNode) -> Priority:
        """Return the node's rank; the least is evicted first, ties go by id.

        It may depend on anything, but while a node lives unpinned and childless it may only grow.
        """
        ...


class LeastRecentlyUsed:
    """Evict what was used longest ago (section 3, "Cache-aware scheduling": LRU leaves)."""

    def priority(self, node: UsedNode) -> Priority:
        """Return the time of the last use."""
        return (node.last_used,)


class LeastFrequentlyUsed:
    """Evict what was matched least often; among equals what was used longest ago."""

    def priority(self, node: UsedNode) -> Priority:
        """Return the number of matches, then the time of the last use."""
        return (node.hits, node.last_used)


class FirstInFirstOut:
    """Evict what was computed first, used or not."""

    def priority(self, node: UsedNode) -> Priority:
        """Return the time the tokens came in."""
        return (node.created,)


N = TypeVar("N", bound=UsedNode)


class EvictionQueue(Generic[N]):
    """A heap of candidates with lazy deletion: one entry a node, put right when it comes up.

    The cache offers a node whenever it becomes a candidate and says nothing when it ceases to be
    one or is touched: an entry whose node is no candidate is dropped when it is popped, and one
    whose priority has grown since goes back in. Both costs are paid by the push they undo.
    """

    def __init__(self, order: EvictionOrder) -> None:
        self._order = order
        self._heap: list[tuple[Priority, int, N]] = []
        self._queued: set[int] = set()

    def offer(self, node: N) -> None:
        """Add a candidate; nothing happens if it is queued already."""
        if node.id not in self._queued:
            self._queued.add(node.id)
            heapq.heappush(self._heap, (self._order.priority(node), node.id, node))

    def pop(self, is_candidate: Callable[[N], bool]) -> N | None:
        """Remove and return the candidate that goes first, or None if there is none left."""
        while self._heap:
            queued, node_id, node = self._heap[0]
            if not is_candidate(node):
                heapq.heappop(self._heap)
                self._queued.remove(node_id)
                continue
            current = self._order.priority(node)
            if current != queued:
                assert current > queued, f"priority of node {node_id} fell: {queued} to {current}"
                heapq.heapreplace(self._heap, (current, node_id, node))
                continue
            heapq.heappop(self._heap)
            self._queued.remove(node_id)
            return node
        return None

    def clear(self) -> None:
        """Forget all entries."""
        self._heap.clear()
        self._queued.clear()

    def __contains__(self, node: N) -> bool:
        return node.id in self._queued
