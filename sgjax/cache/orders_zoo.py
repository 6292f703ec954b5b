"""Eviction orders from the literature: marking, tail-optimised, ageing frequency, next use.

Imports orders and the standard library.
"""

import bisect
import zlib
from collections.abc import Callable

from sgjax.cache.base import NextUse
from sgjax.cache.orders import EvictionOrder, Priority, UsedNode


class RandomizedMarking(EvictionOrder):
    """Evict a random node of those not used in this phase; when all were used, a phase begins.

    Against an adversary LRU may miss always (a cycle one longer than the cache), marking does so
    O(log n) times as often as the best. Of nodes left over from several earlier phases (they were
    pinned then, or inside the tree) the older phase's go first.

    Args:
        seed: of the random choices.

    Source:
        Fiat et al., Competitive paging algorithms (1991); on a prefix tree: Wu et al. (2026).
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._latest = 0
        self._phases: list[int] = []  # the logical times at which phases began

    def priority(self, node: UsedNode) -> Priority:
        """Return the phase of the last use, then a random number fixed for node and phase."""
        self._latest = max(self._latest, node.last_used)
        phase = bisect.bisect_right(self._phases, node.last_used)
        return (phase, zlib.crc32(b"%d %d %d" % (self._seed, node.id, phase)))

    def evicted(self, node: UsedNode) -> None:
        """Begin a phase if even the node that goes first was used in this one."""
        if bisect.bisect_right(self._phases, node.last_used) == len(self._phases):
            self._phases.append(self._latest + 1)


class TailOptimized(EvictionOrder):
    """Evict first what the slowest requests do not need: paths that are soon computed again.

    A path no longer than the slack meets its latency without any cache; what is kept of it helps
    the mean, not the tail. Among those, and then among the others, the least recently used goes
    first. (The original also trims the slack off the ends of longer paths before it touches their
    fronts; an edge is evicted from its end here in any case.)

    Args:
        slack_tokens: tokens that a request may compute and still meet its latency.

    Source:
        Zhang et al., Tail-optimized caching for LLM inference (2025).
    """

    def __init__(self, slack_tokens: int) -> None:
        self._slack = slack_tokens
        self._longest: dict[int, int] = {}  # tokens of the longest path seen through a node

    def priority(self, node: UsedNode) -> Priority:
        """Return whether the path is longer than the slack, then the time of the last use."""
        longest = max(node.num_tokens, self._longest.get(node.id, 0))
        self._longest[node.id] = longest
        return (longest > self._slack, node.last_used)

    def evicted(self, node: UsedNode) -> None:
        """Let the parent remember how long the path was."""
        longest = self._longest.pop(node.id)
        if node.parent is not None:
            known = self._longest.get(node.parent.id, 0)
            self._longest[node.parent.id] = max(known, longest)


class AgeingFrequency(EvictionOrder):
    """Evict what was matched least often, but what is old counts for less and less.

    What was popular once would stay for ever in `LeastFrequentlyUsed`. Here a use is worth the
    number of matches and, on top, the worth of what was evicted last by then: whatever is not used
    any more is overtaken in time, the sooner the more is evicted. Tokens count once as they come
    in, so that what is never matched ages the others, too.

    Source:
        LFU with dynamic aging: Arlitt et al., Evaluating content management techniques for Web
        proxy caches (1999).
    """

    def __init__(self) -> None:
        self._age = 0
        self._worth: dict[int, tuple[int, int]] = {}  # node id -> last use, worth by then

    def priority(self, node: UsedNode) -> Priority:
        """Return the worth at the last use, then its time."""
        last_used, worth = self._worth.get(node.id, (-1, 0))
        if last_used != node.last_used:
            worth = self._age + node.hits + 1
            self._worth[node.id] = (node.last_used, worth)
        return (worth, node.last_used)

    def evicted(self, node: UsedNode) -> None:
        """Let all others age."""
        _, worth = self._worth.pop(node.id)
        self._age = max(self._age, worth)


class FurthestNextUse(EvictionOrder):
    """Evict what will be needed last, as far as somebody knows: Belady's rule, or a workflow's.

    Args:
        next_use: when a node will be used next, on any scale; infinity for never. While a node is
            not used its answer must not change.

    Source:
        Belady (1966); for agents that announce their steps: Pan et al., KVFlow (2025).
    """

    def __init__(self, next_use: Callable[[UsedNode], float]) -> None:
        self._next_use = next_use

    def priority(self, node: UsedNode) -> Priority:
        """Return the next use, the latest first; among equals the deepest."""
        return (-self._next_use(node), -node.num_tokens)


class QueueNextUse(EvictionOrder):
    """Evict what nobody waits for, in another order; then what the queue will use last.

    LRU evicts what is about to be hit as readily as anything else (a limitation of the paper's
    cache). The queue knows who comes next, though not who comes later. What a frontend announces
    (hints) is pinned and does not go at all.

    Args:
        otherwise: the order of what nobody waits for.

    Source:
        Belady's rule as far as a queue can know; for agents: Pan et al., KVFlow (2025).
    """

    def __init__(self, otherwise: EvictionOrder) -> None:
        self._otherwise = otherwise
        self._next_use: NextUse = lambda node: None

    def foresee(self, next_use: NextUse) -> bool:
        """Ask from now on."""
        self._next_use = next_use
        return True

    def priority(self, node: UsedNode) -> Priority:
        """Return 0 and the rank in the other order, or 1 and the negative of the next use."""
        rank = self._otherwise.priority(node)  # it hears of every use
        following = self._next_use(node)
        return (0, *rank) if following is None else (1, *(-key for key in following))

    def evicted(self, node: UsedNode) -> None:
        """Tell the other order."""
        self._otherwise.evicted(node)
