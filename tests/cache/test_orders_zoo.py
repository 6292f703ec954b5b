"""What each eviction order of the zoo is for, on the real tree; Belady's rule beside them."""

import random

import numpy as np
import pytest

from sgjax.cache import (
    AgeingFrequency,
    FurthestNextUse,
    InsertReason,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
    LfuAgeingSpec,
    NextUseSpec,
    PagePool,
    QueueNextUse,
    RadixTree,
    RandomizedMarking,
    RandomizedSpec,
    TailOptimized,
    TlruSpec,
    build_order,
)
from sgjax.errors import ConfigError
from sgjax.theory.belady import belady_computed
from sgjax.theory.visits import Visit


class Served:
    """Serves prompts one at a time on a tree of `num_pages` tokens."""

    def __init__(self, order, num_pages):
        self.pool = PagePool(num_pages + 1, 1)
        self.tree = RadixTree(self.pool, order)
        self.hits = 0

    def visit(self, prompt):
        key = np.array(prompt, np.int64)
        match = self.tree.match(key[:-1])
        self.tree.pin(match.node)
        need = len(key) - match.num_tokens
        self.tree.evict(max(0, need - self.pool.num_free))
        pages = np.concatenate([match.pages, self.pool.alloc(need)])
        taken = self.tree.insert(key, pages, match.num_tokens, InsertReason.FINISHED)
        assert taken.num_tokens == len(key)
        self.tree.unpin(match.node)
        self.hits += match.num_tokens
        self.tree.check()


def hits(order, prompts, num_pages):
    served = Served(order, num_pages)
    for prompt in prompts:
        served.visit(prompt)
    return served.hits


CYCLE = [[family] * 10 for family in range(5)] * 20
"""Five prompts of ten tokens, again and again: one more than fits into 40 pages."""


def test_marking_beats_lru_on_a_cycle_one_longer_than_the_cache():
    assert hits(LeastRecentlyUsed(), CYCLE, 40) == 0
    marking = [hits(RandomizedMarking(seed), CYCLE, 40) for seed in range(5)]
    # About H(4) / 4 of the visits miss, whatever the adversary does.
    assert sum(marking) / 5 > 0.4 * 9 * len(CYCLE)
    assert min(marking) > 0.3 * 9 * len(CYCLE)


def test_marking_never_evicts_what_was_used_in_this_phase_while_anything_else_is_left():
    served = Served(RandomizedMarking(0), 40)
    for family in range(4):
        served.visit([family] * 10)
    served.visit([9] * 10)  # evicts one of four and begins a phase
    survivors = [f for f in range(4) if served.tree.peek(np.array([f] * 10)) == 10]
    served.visit([survivors[0]] * 10)
    served.visit([8] * 10)
    assert served.tree.peek(np.array([survivors[0]] * 10)) == 10
    assert served.tree.peek(np.array([9] * 10)) == 10


def test_same_seed_evicts_the_same():
    a, b = (hits(RandomizedMarking(3), CYCLE, 35) for _ in range(2))
    assert a == b


def test_tail_optimised_gives_up_short_paths_first_however_recent():
    served = Served(TailOptimized(slack_tokens=10), 60)
    served.visit([1] * 40)
    served.visit([2] * 10)
    served.visit([3] * 10)
    served.visit([4] * 10)
    left = [served.tree.peek(np.array([f] * 40)) for f in (1, 2, 3, 4)]
    assert left == [40, 0, 10, 10]  # LRU would have taken from the long one


def test_tail_optimised_remembers_how_long_a_path_was():
    served = Served(TailOptimized(slack_tokens=10), 60)
    served.visit([1] * 5 + [2] * 35)
    served.visit([1] * 5 + [3] * 20)  # splits; evicts nothing of the first
    served.visit([4] * 8)  # takes a part of a long path, for there is no short one
    served.visit([5] * 8)  # takes the short one, not what is left of a trimmed long one
    assert served.tree.peek(np.array([4] * 8)) == 0
    assert served.tree.peek(np.array([1] * 5)) == 5


OWN = iter(range(100, 10**6))
"""Tokens that nobody else has."""


def popular(family, times):
    """Return prompts that share ten tokens and end in three of their own."""
    return [[family] * 10 + [next(OWN) for _ in range(3)] for _ in range(times)]


def passing(times):
    """Return prompts of ten tokens that nobody asks again."""
    return [[next(OWN) for _ in range(10)] for _ in range(times)]


def cached(order, prompts, family):
    """Return how much of a family's prefix the order has kept after some prompts."""
    served = Served(order, 40)
    for prompt in prompts:
        served.visit(prompt)
    return served.tree.peek(np.array([family] * 10))


def test_ageing_frequency_keeps_what_is_popular_through_what_passes():
    prompts = [*popular(1, 4), *passing(4)]
    assert cached(LeastRecentlyUsed(), prompts, 1) == 0
    assert cached(AgeingFrequency(), prompts, 1) == 10


def test_ageing_frequency_gives_up_what_was_popular_once():
    prompts = [*popular(1, 20), *passing(200)]
    assert cached(LeastFrequentlyUsed(), prompts, 1) == 10
    assert cached(AgeingFrequency(), prompts, 1) == 0


def test_the_more_often_it_was_used_the_later_what_was_popular_goes():
    def survives(uses):
        served = Served(AgeingFrequency(), 40)
        for prompt in popular(1, uses):
            served.visit(prompt)
        for count in range(1000):
            if served.tree.peek(np.array([1] * 10)) < 10:
                return count
            served.visit(*passing(1))
        return 1000

    lives = [survives(uses) for uses in (2, 5, 10, 20)]
    assert lives == sorted(lives)
    assert lives[0] < lives[-1] < 1000


@pytest.mark.parametrize("otherwise", [LeastRecentlyUsed, LeastFrequentlyUsed, AgeingFrequency])
@pytest.mark.parametrize("seed", range(3))
def test_where_nobody_waits_next_use_evicts_as_its_other_order(otherwise, seed):
    rng = random.Random(seed)
    prompts = [p for _ in range(30) for p in (*popular(rng.randrange(4), 1), *passing(1))]
    served = [Served(order, 40) for order in (otherwise(), QueueNextUse(otherwise()))]
    for prompt in prompts:
        for each in served:
            each.visit(prompt)
        kept = [[s.tree.peek(np.array([f] * 10)) for f in range(4)] for s in served]
        assert kept[0] == kept[1]


def foresight(prompts):
    """Return a clock to advance and the next use of a node's last token."""
    now = [0]
    tokens = {}

    def next_use(node):
        path, at = [], node
        while at.parent is not None:
            path.append(at.key)
            at = at.parent
        prefix = [int(t) for key in reversed(path) for t in key]
        tokens[node.id] = prefix
        for at in range(now[0] + 1, len(prompts)):
            if prompts[at][: len(prefix)] == prefix and len(prefix) < len(prompts[at]):
                return at
        return float("inf")

    return now, next_use


@pytest.mark.parametrize("seed", range(6))
def test_foresight_lies_between_lru_and_belady(seed):
    rng = random.Random(seed)
    stems = [[rng.randrange(4) for _ in range(rng.randrange(4, 9))] for _ in range(5)]
    prompts = [rng.choice(stems) + [rng.randrange(4) for _ in range(3)] for _ in range(60)]
    now, next_use = foresight(prompts)
    served = Served(FurthestNextUse(next_use), 24)
    for prompt in prompts:
        served.visit(prompt)
        now[0] += 1
    best = sum(map(len, prompts)) - belady_computed([Visit(tuple(p)) for p in prompts], 1, 24)
    lru = hits(LeastRecentlyUsed(), prompts, 24)
    assert lru < served.hits <= best
    assert served.hits > 0.8 * best


def test_orders_come_from_yaml():
    assert isinstance(build_order(RandomizedSpec(seed=1)), RandomizedMarking)
    assert isinstance(build_order(TlruSpec(slack_tokens=5)), TailOptimized)
    assert isinstance(build_order(LfuAgeingSpec()), AgeingFrequency)
    for otherwise in ("lru", "lfu", "lfu_ageing"):
        assert isinstance(build_order(NextUseSpec(otherwise)), QueueNextUse)
    with pytest.raises(ConfigError, match="slack_tokens=-1 is negative"):
        TlruSpec(slack_tokens=-1)
