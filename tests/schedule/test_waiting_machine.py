"""Drive tree and queue at random: what a walk from where a request hangs finds is what one from the
root finds."""

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sgjax.cache import (
    CacheNode,
    InsertReason,
    LruSpec,
    NextUseSpec,
    PagePool,
    ThrottledSpec,
    TreeSpec,
    build_cache,
)
from sgjax.schedule import WaitingQueue, build_policy
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.spec import DfsWeightSpec, LpmSpec
from tests.schedule.harness import ask

PROMPTS = st.lists(st.sampled_from([1, 2]), min_size=2, max_size=14)


class WaitingMachine(RuleBasedStateMachine):
    @initialize(
        page_size=st.sampled_from([1, 2]),
        policy=st.sampled_from([LpmSpec(), DfsWeightSpec()]),
        eviction=st.sampled_from([LruSpec(), NextUseSpec()]),
        cache=st.sampled_from([TreeSpec(), ThrottledSpec(keep=0.6)]),
    )
    def start(self, page_size, policy, eviction, cache):
        self.pool = PagePool(25, page_size)
        self.cache = build_cache(cache, eviction, self.pool)
        self.policy = build_policy(policy)
        self.cache.foresee(lambda node: self.queue.next_use(node))
        self.queue = WaitingQueue(self.cache, self.policy.key, track=True)
        self.waiting: list[Sequence] = []
        self.pinned: list[CacheNode] = []
        self.arrivals = 0

    @rule(prompt=PROMPTS)
    def wait(self, prompt):
        request, keys = ask(str(self.arrivals), tuple(prompt)), np.array(prompt, np.int64)
        seq = Sequence(request, keys, None, frozenset(), 0, self.arrivals, 0.0, 100)
        self.arrivals += 1
        self.queue.add(seq)
        self.waiting.append(seq)

    @rule(number=st.integers(0, 9))
    def leave(self, number):
        if self.waiting:
            self.queue.remove(self.waiting.pop(number % len(self.waiting)))

    @rule(prompt=PROMPTS, pin=st.booleans())
    def insert(self, prompt, pin):
        key, size = np.array(prompt, np.int64), self.pool.page_size
        match = self.cache.match(key)
        self.cache.pin(match.node)
        missing = len(key) // size - len(match.pages)
        self.cache.evict(max(0, missing - self.pool.num_free))
        if missing <= self.pool.num_free:
            pages = np.concatenate([match.pages, self.pool.alloc(missing)])
            found = self.cache.insert(key, pages, match.num_tokens, InsertReason.CHUNK, match.node)
            if pin:
                self.cache.pin(found.node)
                self.pinned.append(found.node)
        self.cache.unpin(match.node)

    @rule(prompt=PROMPTS)
    def split(self, prompt):
        self.cache.match(np.array(prompt, np.int64))

    @rule(count=st.integers(1, 24))
    def evict(self, count):
        self.cache.evict(count)

    @rule(number=st.integers(0, 9))
    def unpin(self, number):
        if self.pinned:
            self.cache.unpin(self.pinned.pop(number % len(self.pinned)))

    @rule()
    def refresh(self):
        self.queue.refresh()
        index = self.queue.index
        hangs = {seq.arrival: node for node in self._nodes() for seq in index.hanging(node)}
        weights = Counter()
        for seq in self.waiting:
            node, _, cached = self.cache.walk(seq.tokens.view(0, seq.match_limit))
            assert (hangs[seq.arrival], seq.matched) == (node, cached)
            while node is not None:
                weights[node.id] += 1
                node = node.parent
        assert len(hangs) == len(self.waiting)
        assert index.weights == weights
        hit = (node for node in self._nodes() if node.id in weights and not node.is_pinned)
        held = sum(len(node.key) for node in hit)
        assert self.queue.held(most=100) == held
        assert self.queue.held(most=held / 2) >= held / 2
        assert list(self.queue.in_order()) == sorted(self.waiting, key=self.policy.key)
        order = [seq.arrival for seq in self.policy.order(self.queue, 0.0)]
        assert sorted(order) == [seq.arrival for seq in self.queue.by_arrival()]

    @invariant()
    def cached_is_exact_at_any_time(self):
        if not hasattr(self, "queue"):
            return
        for seq in self.waiting:
            assert self.queue.cached(seq) == self.cache.peek(seq.tokens.view(0, seq.match_limit))

    def _nodes(self):
        stack = [self.cache.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
