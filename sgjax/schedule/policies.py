"""Scheduling policies: a policy is an order over the waiting; it mutates nothing.

Imports the waiting queue, sequence, cache and the standard library. Where a policy's order is a
fixed key of a sequence, the queue keeps it sorted and `order` costs nothing; only what depends on
the clock or on the shape of the tree walks.
"""

import abc
from collections.abc import Iterator

from sgjax.cache import CacheNode
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.waiting import PrefixIndex, WaitingQueue


class Policy(abc.ABC):
    """Order the waiting requests."""

    tracks_prefix: bool
    """Whether the order depends on what of each waiting request is cached."""

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """Return the sort key the queue keeps sequences by; ties break by place in line."""
        return (seq.place,)

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield all waiting sequences, first to be admitted first.

        Args:
            queue: the waiting; it does not change while the order is consumed.
            now_s: the scheduler's clock in seconds.

        Returns:
            A permutation of the queue, computed as it is consumed.
        """
        del now_s
        return queue.in_order()

    def admitted(self, seq: Sequence) -> None:  # noqa: B027
        """Hear that a sequence was admitted for the first time; most policies do not care."""

    def ended(self, seq: Sequence) -> None:  # noqa: B027
        """Hear that a sequence ended, admitted or not."""


class Fcfs(Policy):
    """First come, first served."""

    tracks_prefix = False


class RandomOrder(Policy):
    """A seeded random order: the paper's "random schedule" ablation (section 6.3).

    Args:
        seed: of the order; each arrival draws its place from (seed, arrival).
        anew: whether all draw again each time the order is asked for.
    """

    tracks_prefix = False

    def __init__(self, seed: int, anew: bool = False) -> None:
        self._seed = seed
        self._anew = anew
        self._asked = 0

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """Return a hash of (seed, arrival)."""
        return (mix(self._seed, seq.arrival), seq.arrival)

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield by what each drew, now or once."""
        if not self._anew:
            return super().order(queue, now_s)
        self._asked += 1
        asked = self._asked
        return iter(sorted(queue.in_order(), key=lambda seq: mix(self._seed, asked, seq.arrival)))


class LongestPrefixMatch(Policy):
    """Longest cached prefix first: the paper's cache-aware schedule (Algorithm 1, line 6)."""

    tracks_prefix = True

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """Return (-matched tokens, place in line)."""
        return (-seq.matched, seq.place)


class AgedLongestPrefixMatch(LongestPrefixMatch):
    """Longest cached prefix first, but whoever waited too long goes before all others.

    The overdue are served first come, first served, and admission stops at the first request
    that does not fit, so a wait is bounded by `max_wait_s` plus the time to serve those who
    arrived before. The paper names starvation as a limitation (section 8).

    Under overload everybody is overdue, and serving all of them by arrival would be no better
    than that. With `hold_s`, whoever was let in by age brings its prefix into the cache, and for
    that long those who share it follow: families take turns, at most one change each `hold_s`.

    Args:
        max_wait_s: seconds after which a request is overdue.
        hold_s: seconds of longest-prefix order after each overdue request that was let in.
    """

    def __init__(self, max_wait_s: float, hold_s: float = 0.0) -> None:
        self._max_wait_s = max_wait_s
        self._hold_s = hold_s
        self._hold_until_s = float("-inf")
        self._picked_by_age = -1

    def admitted(self, seq: Sequence) -> None:
        """Begin a hold if the sequence was let in for its age."""
        if seq.arrival == self._picked_by_age:
            self._hold_until_s = seq.admitted_s + self._hold_s

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield the overdue by arrival unless there is a hold, then by matched prefix."""
        overdue = now_s - self._max_wait_s
        yielded: set[int] = set()
        for seq in queue.by_arrival():
            if seq.arrived_s > overdue or now_s < self._hold_until_s:
                break
            self._picked_by_age = seq.arrival
            yielded.add(seq.arrival)
            yield seq
        for seq in queue.in_order():
            if seq.arrival not in yielded:
                yield seq


class DepthFirstWeighted(Policy):
    """Depth-first over the tree, heavier subtrees first (Theorem 3.1's order, made online).

    A subtree weighs as many waiting requests as hang in it.
    """

    tracks_prefix = True

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield deepest first within the heaviest subtree."""
        del now_s
        assert queue.index is not None
        return _descend(queue.index)


def _descend(index: PrefixIndex) -> Iterator[Sequence]:
    # A stack instead of recursion: a chain of edges may be deeper than Python's limit.
    stack: list[tuple[CacheNode, bool]] = [(index.root, False)]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            yield from sorted(index.hanging(node), key=lambda seq: seq.arrival)
            continue
        stack.append((node, True))
        heavy = [child for child in node.children.values() if child.id in index.weights]
        heavy.sort(key=lambda child: (index.weights[child.id], -child.id))
        stack.extend((child, False) for child in heavy)


def mix(*values: int) -> int:
    """Return a 64-bit hash of integers (splitmix64), the same on every machine."""
    state = 0
    for value in values:
        state = (state ^ (value & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


_MASK = (1 << 64) - 1
