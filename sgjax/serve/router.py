"""Routers: which of several workers serves a request (data parallelism, Appendix A.4).

HOST, no jax. Imports cache.base, policies (for a hash), errors and typed. Workers are independent
engines, each with a prefix tree of its own. The router keeps one meta-tree of what it believes to
be in theirs: what it sent them, less what they report to have evicted. It hears of evictions late,
so it may be wrong; then a request is computed where it might have been found, nothing worse.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sgjax.cache.base import CacheEvent, EventKind, Keys, PrefixCache
from sgjax.errors import ConfigError
from sgjax.schedule.policies import mix
from sgjax.typed import FORBID_EXTRA, refuse_negative


@dataclass(frozen=True)
class RoundRobinSpec:
    """Workers take turns."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["round_robin"] = "round_robin"


@dataclass(frozen=True)
class RandomRouterSpec:
    """Each request goes to a random worker."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["random"] = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        refuse_negative(seed=self.seed)


@dataclass(frozen=True)
class CacheAwareSpec:
    """Each request goes where most of its prefix is cached, unless that worker is too busy.

    Attributes:
        min_share: a match below this share of the prompt counts for nothing.
        max_lead: requests by which the chosen worker may be ahead of the least busy one.
        block: tokens in which prefixes are compared.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["cache_aware"] = "cache_aware"
    min_share: float = 0.5
    max_lead: int = 32
    block: int = 16

    def __post_init__(self) -> None:
        if not 0 <= self.min_share <= 1 or self.max_lead < 0 or self.block < 1:
            raise ConfigError(
                f"router {self}: 0 <= min_share <= 1, max_lead >= 0 and block >= 1 are needed"
            )


RouterSpec = Annotated[
    RoundRobinSpec | RandomRouterSpec | CacheAwareSpec, Field(discriminator="type")
]


@dataclass(frozen=True)
class Eviction:
    """What a worker reports to have dropped.

    Attributes:
        kept: tokens of the path that is still cached.
        gone: tokens of the edge behind it that is not; empty if nothing at all is cached behind.
    """

    kept: Keys
    gone: Keys


class Router(abc.ABC):
    """Choose workers, one request after the other."""

    @abc.abstractmethod
    def pick(self, tokens: Keys, loads: Sequence[int]) -> int:
        """Return the worker of a request, and remember the choice.

        Args:
            tokens: the prompt, i64[n].
            loads: requests that wait or run at each worker.
        """

    def forget(self, worker: int, eviction: Eviction) -> None:  # noqa: B027
        """Hear, late, what a worker evicted; most routers do not care."""


class RoundRobin(Router):
    """Workers take turns."""

    def __init__(self) -> None:
        self._picks = 0

    def pick(self, tokens: Keys, loads: Sequence[int]) -> int:
        """Return the next worker."""
        self._picks += 1
        return (self._picks - 1) % len(loads)


class RandomRouter(Router):
    """A random worker, by a hash of the seed and the number of the request."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._picks = 0

    def pick(self, tokens: Keys, loads: Sequence[int]) -> int:
        """Return a random worker."""
        self._picks += 1
        return mix(self._seed, self._picks) % len(loads)


class CacheAware(Router):
    """The worker with most of the prefix; the least busy one where that is little or it is busy.

    Whoever takes a request away from a busy worker computes its prefix, too: hot prefixes get
    copies.

    Source:
        Appendix A.4; the exploitation and balancing rules as in Srivatsa et al., Preble (2024).
    """

    def __init__(self, spec: CacheAwareSpec) -> None:
        self._spec = spec
        self._tree = MetaTree(spec.block)

    def pick(self, tokens: Keys, loads: Sequence[int]) -> int:
        """Return the worker by prefix and load."""
        matched = self._tree.match(tokens, len(loads))
        idle = min(range(len(loads)), key=lambda worker: (loads[worker], -matched[worker]))
        near = min(range(len(loads)), key=lambda worker: (-matched[worker], loads[worker]))
        worth = matched[near] >= max(1, self._spec.min_share * len(tokens))
        chosen = near if worth and loads[near] <= loads[idle] + self._spec.max_lead else idle
        self._tree.insert(tokens, chosen)
        return chosen

    def forget(self, worker: int, eviction: Eviction) -> None:
        """Take what was evicted out of the meta-tree."""
        self._tree.remove(eviction, worker)


@dataclass(slots=True)
class _Block:
    """A node of the meta-tree.

    Attributes:
        workers: who is believed to hold it, a bit each.
        children: what follows, by its bytes.
    """

    workers: int = 0
    children: dict[bytes, "_Block"] = field(default_factory=dict)


class MetaTree:
    """Which prefixes, in whole blocks, each worker is believed to have cached.

    Args:
        block: tokens a block.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        self._root = _Block()

    def match(self, tokens: Keys, num_workers: int) -> list[int]:
        """Return how many of the tokens' blocks each worker holds from the front, in tokens."""
        matched = [0] * num_workers
        node, holders = self._root, (1 << num_workers) - 1
        for depth, key in enumerate(self._blocks(tokens), 1):
            below = node.children.get(key)
            holders &= below.workers if below is not None else 0
            if below is None or not holders:
                break
            node = below
            for worker in range(num_workers):
                if holders >> worker & 1:
                    matched[worker] = depth * self._block
        return matched

    def insert(self, tokens: Keys, worker: int) -> None:
        """Note that a worker will hold a prompt."""
        node = self._root
        for key in self._blocks(tokens):
            node = node.children.setdefault(key, _Block())
            node.workers |= 1 << worker

    def remove(self, eviction: Eviction, worker: int) -> None:
        """Note that a worker has evicted an edge, or the end of one."""
        whole = len(eviction.kept) // self._block * self._block
        node = self._root
        for key in self._blocks(eviction.kept):
            below = node.children.get(key)
            if below is None:
                return
            node = below
        rest = np.concatenate([eviction.kept[whole:], eviction.gone])[: self._block].tobytes()
        for key in [key for key in node.children if key.startswith(rest)]:
            _take_away(node, key, 1 << worker)

    def __len__(self) -> int:
        count, stack = 0, [self._root]
        while stack:
            children = list(stack.pop().children.values())
            count += len(children)
            stack += children
        return count

    def _blocks(self, tokens: Keys) -> list[bytes]:
        size = self._block
        return [tokens[i : i + size].tobytes() for i in range(0, len(tokens) // size * size, size)]


def _take_away(parent: _Block, key: bytes, bit: int) -> None:
    """Clear a worker's bit in a subtree and drop what nobody holds any more."""
    stack = [(parent, key)]
    while stack:
        above, name = stack.pop()
        node = above.children[name]
        node.workers &= ~bit
        if not node.workers:
            del above.children[name]
            continue
        stack += [(node, below) for below, child in node.children.items() if child.workers & bit]


class EvictionReports:
    """What a worker evicted since it was last asked, off its cache's events.

    Args:
        cache: the worker's, listened to from now on.
    """

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._queued: list[Eviction] = []
        cache.listen(self._note)

    def take(self) -> list[Eviction]:
        """Return the reports since the last call, in order."""
        taken, self._queued = self._queued, []
        return taken

    def _note(self, event: CacheEvent) -> None:
        if event.kind not in (EventKind.EVICT, EventKind.TRIM):
            return
        keys, node = [], self._cache.node(event.parent)
        while node.parent is not None:
            keys.append(node.key)
            node = node.parent
        keys.reverse()
        none = event.key[:0]
        evicted = event.kind is EventKind.EVICT
        kept = np.concatenate([none, *keys] if evicted else [*keys, event.key])
        self._queued.append(Eviction(kept, event.key if evicted else none))


def build_router(spec: RouterSpec) -> Router:
    """Build the router that a configuration describes."""
    match spec:
        case RoundRobinSpec():
            return RoundRobin()
        case RandomRouterSpec(seed=seed):
            return RandomRouter(seed)
        case CacheAwareSpec():
            return CacheAware(spec)
