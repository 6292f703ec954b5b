"""Drive every cache as a scheduler does: the K/V a sequence reads is always its own prefix's."""

from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from naive_cache import Tokens, WaitingIndex, keys

from sgjax.cache import (
    CacheNode,
    CacheSpec,
    EvictionSpec,
    FifoSpec,
    InsertReason,
    LfuSpec,
    LruSpec,
    ManualSpec,
    NoCacheSpec,
    Owner,
    PagePool,
    SamplesSpec,
    TableSpec,
    ThrottledSpec,
    TreeSpec,
    build_cache,
)

CACHES: list[CacheSpec] = [
    NoCacheSpec(),
    SamplesSpec(),
    TreeSpec(),
    TreeSpec(takes="finished"),
    TreeSpec(evicts="leaves"),
    TableSpec(),
    ManualSpec(),
    ThrottledSpec(keep=0.0),
    ThrottledSpec(keep=0.4),
    ThrottledSpec(keep=0.4, takes="finished", evicts="leaves"),
    ThrottledSpec(keep=1.0),
]
ORDERS: list[EvictionSpec] = [LruSpec(), LfuSpec(), FifoSpec()]
NUM_PAGES = 33


@dataclass
class Running:
    """A sequence in flight, as a scheduler holds it."""

    key: Tokens
    pages: list[int]
    shared: int
    computed: int
    node: CacheNode
    reason_to_end: InsertReason


class ContractMachine(RuleBasedStateMachine):
    """K/V is modelled by what was written to a page: the whole prefix up to the page's end."""

    @initialize(
        spec=st.sampled_from(CACHES),
        order=st.sampled_from(ORDERS),
        page_size=st.sampled_from([1, 4]),
    )
    def start(self, spec: CacheSpec, order: EvictionSpec, page_size: int) -> None:
        self.S = page_size
        self.pool = PagePool(NUM_PAGES, page_size)
        self.cache = build_cache(spec, order, self.pool)
        self.waiting = WaitingIndex(self.cache)
        self.cache.listen(self.waiting)
        self.running: list[Running] = []
        self.finished: list[Tokens] = []
        self.written: dict[int, Tokens] = {}

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=24))
    def wait(self, tokens: list[int]) -> None:
        self.waiting.add(tuple(tokens))

    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=24),
        declared=st.booleans(),
        copies=st.integers(1, 2),
    )
    def admit(self, tokens: list[int], declared: bool, copies: int) -> None:
        for _ in range(copies):
            self._admit(tuple(tokens), declared)

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=6), number=st.integers(0, 9))
    def admit_the_next_turn(self, tokens: list[int], number: int) -> None:
        if self.finished:
            self._admit(self.finished[number % len(self.finished)] + tuple(tokens), declared=False)

    def _admit(self, key: Tokens, declared: bool) -> None:
        S = self.S
        expected = self.cache.peek(keys(*key[:-1]))
        match = self.cache.match(keys(*key[:-1]))
        assert match.num_tokens == expected == match.node.num_tokens == len(match.pages) * S
        self.cache.pin(match.node)
        need = -(-len(key) // S) - len(match.pages)
        if need > self.pool.num_free:
            self.cache.evict(need - self.pool.num_free)
        if need > self.pool.num_free:
            self.cache.unpin(match.node)
            return
        pages = match.pages.tolist() + self.pool.alloc(need).tolist()
        n = match.num_tokens
        reason = InsertReason.DECLARED if declared else InsertReason.FINISHED
        self.running.append(Running(key, pages, n, n, match.node, reason))

    @rule(number=st.integers(0, 9), count=st.integers(1, 30))
    def compute(self, number: int, count: int) -> None:
        if self.running:
            self._compute(self.running[number % len(self.running)], count)

    def _compute(self, seq: Running, count: int) -> None:
        end = min(len(seq.key), seq.computed + count)
        for position in range(seq.computed, end):
            page = position // self.S
            assert page >= seq.shared // self.S, "a page of the cache would be written"
            self.written[seq.pages[page]] = seq.key[: position + 1]
        seq.computed = end

    @rule(number=st.integers(0, 9), count=st.integers(1, 30))
    def compute_a_chunk(self, number: int, count: int) -> None:
        if self.running:
            seq = self.running[number % len(self.running)]
            self._compute(seq, count)
            self._offer(seq, InsertReason.CHUNK)

    def _offer(self, seq: Running, reason: InsertReason) -> None:
        pages = np.array(seq.pages, np.int32)
        key = keys(*seq.key[: seq.computed])
        match = self.cache.insert(key, pages, seq.shared, reason, seq.node)
        assert seq.shared <= match.num_tokens == match.node.num_tokens <= seq.computed
        assert len(match.pages) * self.S == match.num_tokens
        self.cache.pin(match.node)
        self.cache.unpin(seq.node)
        seq.pages[: len(match.pages)] = match.pages.tolist()
        seq.shared, seq.node = match.num_tokens, match.node

    @rule(number=st.integers(0, 9), whole=st.booleans())
    def finish(self, number: int, whole: bool) -> None:
        if self.running:
            seq = self.running[number % len(self.running)]
            if whole:
                self._compute(seq, len(seq.key))
            self._offer(seq, seq.reason_to_end)
            self._end(seq)
            self.finished.append(seq.key[: seq.computed])

    @rule(number=st.integers(0, 9))
    def abort(self, number: int) -> None:
        if self.running:
            self._end(self.running[number % len(self.running)])

    def _end(self, seq: Running) -> None:
        own = np.array(seq.pages[seq.shared // self.S :], np.int32)
        self.pool.free(own, Owner.SEQUENCE)
        self.cache.unpin(seq.node)
        self.running.remove(seq)

    @rule(count=st.integers(1, 12))
    def evict(self, count: int) -> None:
        free, evictable = self.pool.num_free, self.cache.num_evictable
        evicted = self.cache.evict(count)
        assert evicted >= min(count, evictable)
        assert self.pool.num_free == free + evicted

    @rule()
    def evict_exactly_what_is_evictable(self) -> None:
        evictable = self.cache.num_evictable
        assert self.cache.evict(evictable) == evictable
        assert self.cache.num_evictable == 0

    @rule()
    def reset(self) -> None:
        self.cache.reset()
        assert self.cache.num_evictable == 0

    @invariant()
    def every_sequence_reads_its_own_prefix(self) -> None:
        for seq in self.running:
            for i in range(seq.computed // self.S):
                assert self.written[seq.pages[i]] == seq.key[: (i + 1) * self.S]

    @invariant()
    def the_account_of_pages_is_right(self) -> None:
        self.cache.check()
        self.pool.check()
        counts = self.pool.counts()
        assert counts["tree"] == self.cache.num_pages
        own = sum(len(s.pages) - s.shared // self.S for s in self.running)
        assert counts["sequence"] == own

    @invariant()
    def waiting_keys_know_their_match(self) -> None:
        for key, (_, _, cached) in self.waiting.hangs.items():
            assert cached == self.cache.peek(keys(*key))

    def teardown(self) -> None:
        if hasattr(self, "running"):
            for seq in list(self.running):
                self._end(seq)
            assert self.cache.num_evictable == self.cache.num_pages
            self.cache.reset()
            assert self.pool.num_free == NUM_PAGES - 1


TestEveryCache = ContractMachine.TestCase
TestEveryCache.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
