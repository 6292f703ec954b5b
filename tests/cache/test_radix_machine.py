"""Drive tree and pool at random beside a naive model; every invariant after every rule."""

from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from naive_cache import Mirror, NaiveTree, Tokens, WaitingIndex, contents, edges, keys, paths

from sgjax.cache import (
    FirstInFirstOut,
    InsertReason,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
    Owner,
    PagePool,
    RadixNode,
    RadixTree,
)

ORDERS = {
    "lru": (LeastRecentlyUsed(), lambda p: (p.last_used,)),
    "lfu": (LeastFrequentlyUsed(), lambda p: (p.hits, p.last_used)),
    "fifo": (FirstInFirstOut(), lambda p: (p.created,)),
}
NUM_PAGES = 25


@dataclass
class Running:
    """A sequence in flight, as a scheduler holds it."""

    key: Tokens
    pages: list[int]
    shared: int
    node: RadixNode


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[int], int]:
    """Draw a key: which of three pages follow each other, and the length of a ragged tail."""
    return draw(st.lists(st.integers(0, 2), max_size=7)), draw(st.integers(0, 15))


class TreeMachine(RuleBasedStateMachine):
    @initialize(page_size=st.sampled_from([1, 2, 4, 16]), order=st.sampled_from(sorted(ORDERS)))
    def start(self, page_size: int, order: str) -> None:
        strategy, priority = ORDERS[order]
        self.S = page_size
        self.pool = PagePool(NUM_PAGES, page_size)
        self.tree = RadixTree(self.pool, strategy)
        self.naive = NaiveTree(page_size, priority)
        self.mirror = Mirror()
        self.waiting = WaitingIndex(self.tree)
        self.tree.listen(self.mirror)
        self.tree.listen(self.waiting)
        self.running: list[Running] = []

    def _key(self, shape: tuple[list[int], int]) -> Tokens:
        # Pages 0 and 1 differ in their last token only, 0 and 2 in their first.
        S = self.S
        page = {0: (0,) * S, 1: (0,) * (S - 1) + (1,), 2: (2,) + (0,) * (S - 1)}
        whole, tail = shape
        return sum((page[i] for i in whole), ()) + (0,) * (tail % S)

    def _evict(self, count: int) -> None:
        expected = max(0, min(count, len(self.naive.evictable())))
        assert self.tree.evict(count) == expected
        self.naive.evict(count, set(contents(self.tree)))

    def _pick(self, number: int) -> Running | None:
        return self.running[number % len(self.running)] if self.running else None

    @rule(shape=shapes())
    def match(self, shape: tuple[list[int], int]) -> None:
        key = self._key(shape)
        match = self.tree.match(keys(*key))
        assert match.pages.tolist() == self.naive.match(key)
        assert match.num_tokens == match.node.num_tokens == len(match.pages) * self.S

    @rule(shape=shapes())
    def peek_changes_nothing(self, shape: tuple[list[int], int]) -> None:
        key = self._key(shape)
        before = edges(self.tree)
        assert self.tree.peek(keys(*key)) == self.naive.longest(key)
        assert edges(self.tree) == before

    @rule(shape=shapes())
    def wait(self, shape: tuple[list[int], int]) -> None:
        self.waiting.add(self._key(shape))

    @rule(shape=shapes(), copies=st.integers(1, 2))
    def admit(self, shape: tuple[list[int], int], copies: int) -> None:
        key = self._key(shape)
        for _ in range(copies):
            match = self.tree.match(keys(*key))
            assert match.pages.tolist() == self.naive.match(key)
            self.tree.pin(match.node)
            self.naive.pins.append(key[: match.num_tokens])
            need = -(-len(key) // self.S) - len(match.pages)
            self._evict(need - self.pool.num_free)
            if need > self.pool.num_free:
                self.tree.unpin(match.node)
                self.naive.pins.remove(key[: match.num_tokens])
                continue
            pages = match.pages.tolist() + self.pool.alloc(need).tolist()
            self.running.append(Running(key, pages, match.num_tokens, match.node))

    def _insert(self, seq: Running, end: int, reason: InsertReason, from_pin: bool) -> None:
        key, pages = seq.key[:end], np.array(seq.pages, np.int32)
        start = seq.node if from_pin else None
        match = self.tree.insert(keys(*key), pages, seq.shared, reason, start)
        assert match.num_tokens == end // self.S * self.S
        assert match.pages.tolist() == self.naive.insert(key, seq.pages)
        self.tree.pin(match.node)
        self.tree.unpin(seq.node)
        self.naive.pins.remove(seq.key[: seq.shared])
        self.naive.pins.append(key[: match.num_tokens])
        seq.pages[: len(match.pages)] = match.pages.tolist()
        seq.shared, seq.node = match.num_tokens, match.node

    @rule(number=st.integers(0, 9), num_tokens=st.integers(0, 40), from_pin=st.booleans())
    def chunk(self, number: int, num_tokens: int, from_pin: bool) -> None:
        if seq := self._pick(number):
            end = min(len(seq.key), seq.shared + num_tokens)
            self._insert(seq, end, InsertReason.CHUNK, from_pin)

    @rule(number=st.integers(0, 9), dropped=st.integers(0, 17), from_pin=st.booleans())
    def finish(self, number: int, dropped: int, from_pin: bool) -> None:
        if seq := self._pick(number):
            end = max(seq.shared, len(seq.key) - dropped)
            self._insert(seq, end, InsertReason.FINISHED, from_pin)
            self._end(seq)

    @rule(number=st.integers(0, 9))
    def abort(self, number: int) -> None:
        if seq := self._pick(number):
            self._end(seq)

    def _end(self, seq: Running) -> None:
        own = np.array(seq.pages[seq.shared // self.S :], np.int32)
        self.pool.free(own, Owner.SEQUENCE)
        self.tree.unpin(seq.node)
        self.naive.pins.remove(seq.key[: seq.shared])
        self.running.remove(seq)

    @rule(count=st.integers(0, 12))
    def evict(self, count: int) -> None:
        self._evict(count)

    @rule()
    def reset(self) -> None:
        self.tree.reset()
        self.naive.reset()

    @invariant()
    def tree_and_pool_agree_with_the_naive_model(self) -> None:
        self.tree.check()
        self.pool.check()
        assert contents(self.tree) == self.naive.pages
        assert self.tree.num_pages == len(self.naive.pages)
        assert self.tree.num_evictable == len(self.naive.evictable())
        own = sum(len(s.pages) - s.shared // self.S for s in self.running)
        assert self.pool.counts()["sequence"] == own

    @invariant()
    def events_suffice_for_a_mirror_and_a_waiting_index(self) -> None:
        assert self.mirror.edges == edges(self.tree)
        ends = paths(self.tree)
        for key, hangs in self.waiting.hangs.items():
            deepest = max((p for p in ends if p == key[: len(p)]), key=len)
            longest = self.naive.longest(key)
            assert hangs == (ends[deepest], longest, longest)

    def teardown(self) -> None:
        if hasattr(self, "running"):
            for seq in list(self.running):
                self._end(seq)
            assert self.tree.num_evictable == self.tree.num_pages
            self.tree.reset()
            assert self.pool.num_free == NUM_PAGES - 1


TestTree = TreeMachine.TestCase
TestTree.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
