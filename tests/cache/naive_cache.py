"""Slow and obvious counterparts of the tree, and of two things that live on its events."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sgjax.cache import CacheEvent, EventKind, Keys, PrefixCache, RadixNode, RadixTree

Tokens = tuple[int, ...]


def keys(*tokens: int) -> Keys:
    """Return tokens as a key."""
    return np.array(tokens, np.int64)


@dataclass
class NaivePage:
    """One cached page: `priority` reads the three numbers."""

    page: int
    last_used: int
    hits: int
    created: int


class NaiveTree:
    """One dictionary entry a page, keyed by all tokens up to the page's end."""

    def __init__(self, page_size: int, priority: Callable[[NaivePage], tuple[int, ...]]) -> None:
        self.S = page_size
        self.pages: dict[Tokens, NaivePage] = {}
        self.pins: list[Tokens] = []
        self.clock = 0
        self._priority = priority

    def prefixes(self, key: Tokens) -> list[Tokens]:
        """Return the prefixes of a key that end with a page."""
        return [key[:end] for end in range(self.S, len(key) + 1, self.S)]

    def longest(self, key: Tokens) -> int:
        """Return the length of the longest cached prefix."""
        return max((len(p) for p in self.pages if p == key[: len(p)]), default=0)

    def match(self, key: Tokens) -> list[int]:
        """Return the pages of the longest cached prefix and touch them."""
        self.clock += 1
        found = [self.pages[p] for p in self.prefixes(key[: self.longest(key)])]
        for page in found:
            page.last_used, page.hits = self.clock, page.hits + 1
        return [page.page for page in found]

    def insert(self, key: Tokens, pages: list[int]) -> list[int]:
        """Take the pages that are new; return the tree's pages of the whole key."""
        self.clock += 1
        for prefix, page in zip(self.prefixes(key), pages, strict=False):
            known = self.pages.setdefault(prefix, NaivePage(page, 0, 0, self.clock))
            known.last_used = self.clock
        return [self.pages[p].page for p in self.prefixes(key)]

    def evictable(self) -> set[Tokens]:
        """Return what no pin protects."""
        return {p for p in self.pages if not any(pin[: len(p)] == p for pin in self.pins)}

    def evict(self, count: int, survivors: set[Tokens]) -> None:
        """Evict pages one by one; where two may go equally well, follow what really happened."""
        while count > 0 and (candidates := self._leaves()):
            least = min(self._priority(self.pages[p]) for p in candidates)
            tied = [p for p in candidates if self._priority(self.pages[p]) == least]
            del self.pages[min(tied, key=lambda p: p in survivors)]
            count -= 1

    def reset(self) -> None:
        """Evict what no pin protects; drop recency."""
        for prefix in self.evictable():
            del self.pages[prefix]
        for page in self.pages.values():
            page.last_used = page.hits = 0

    def _leaves(self) -> set[Tokens]:
        parents = {p[: -self.S] for p in self.pages}
        return self.evictable() - parents


def contents(tree: RadixTree) -> dict[Tokens, NaivePage]:
    """Return the page of every prefix in a tree, and its node's account of uses."""
    found: dict[Tokens, NaivePage] = {}

    def visit(node: RadixNode, prefix: Tokens) -> None:
        for i, page in enumerate(node.pages.tolist()):
            prefix += tuple(node.key[i * tree.page_size : (i + 1) * tree.page_size].tolist())
            found[prefix] = NaivePage(page, node.last_used, node.hits, node.created)
        for child in node.children.values():
            visit(child, prefix)

    visit(tree.root, ())
    return found


def edges(tree: RadixTree) -> dict[int, tuple[int, Tokens]]:
    """Return parent and edge of every node of a tree but the root."""
    found: dict[int, tuple[int, Tokens]] = {}
    stack = [tree.root]
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        if node.parent is not None:
            found[node.id] = (node.parent.id, tuple(node.key.tolist()))
    return found


def paths(tree: RadixTree) -> dict[Tokens, int]:
    """Return the node in which every path from the root ends."""
    known = edges(tree)

    def path(node: int) -> Tokens:
        return path(known[node][0]) + known[node][1] if node in known else ()

    return {path(node): node for node in (tree.root.id, *known)}


class Mirror:
    """A copy of a tree kept by its events alone, as a router keeps one."""

    def __init__(self) -> None:
        self.edges: dict[int, tuple[int, Tokens]] = {}

    def __call__(self, event: CacheEvent) -> None:
        key = tuple(event.key.tolist())
        if event.kind is EventKind.EVICT:
            assert self.edges.pop(event.node) == (event.parent, key)
            return
        if event.kind is EventKind.SPLIT:
            [lower] = [
                node
                for node, (parent, edge) in self.edges.items()
                if parent == event.parent and edge[: len(key)] == key
            ]
            self.edges[lower] = (event.node, self.edges[lower][1][len(key) :])
        self.edges[event.node] = (event.parent, key)


class WaitingIndex:
    """Hang keys where `walk` says, and move only what an event may have moved."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self.hangs: dict[Tokens, tuple[int, int, int]] = {}
        self.num_walks = 0

    def add(self, key: Tokens) -> None:
        """Add a waiting key."""
        self._walk(key, self._cache.root.id)

    def __call__(self, event: CacheEvent) -> None:
        slot = self._cache.first_key(event.key, 0)
        depth = self._cache.node(event.parent).num_tokens
        least = event.num_tokens if event.kind is EventKind.SPLIT else 0
        for key, (node, reached, _) in list(self.hangs.items()):
            if node == event.node or (
                node == event.parent
                and reached >= least
                and self._cache.first_key(keys(*key), depth) == slot
            ):
                self._walk(key, event.parent)

    def _walk(self, key: Tokens, start: int) -> None:
        place = self._cache.walk(keys(*key), self._cache.node(start))
        self.hangs[key] = (place.node.id, place.reached, place.cached)
        self.num_walks += 1
