"""The waiting queue: what hangs where, and in which order it comes."""

import random

import numpy as np
import pytest

from sgjax.cache import InsertReason, LruSpec, NextUseSpec, PagePool, TreeSpec, build_cache
from sgjax.schedule import WaitingQueue, build_policy
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.spec import DfsWeightSpec, FcfsSpec, LpmSpec, RandomSpec
from sgjax.theory.belady import belady_computed
from sgjax.theory.visits import Visit
from tests.schedule.harness import Bench, Setup, ask, family, words


class Forest:
    """A tree and a queue over it, without a scheduler."""

    def __init__(self, policy, page_size: int = 1, pages: int = 4000, track: bool = False) -> None:
        self.pool = PagePool(pages, page_size)
        self.cache = build_cache(TreeSpec(), LruSpec(), self.pool)
        self.policy = build_policy(policy)
        self.queue = WaitingQueue(self.cache, self.policy.key, self.policy.tracks_prefix or track)
        self._arrivals = 0

    def wait(self, tokens: tuple[int, ...]) -> Sequence:
        request = ask(str(self._arrivals), tokens)
        keys = np.array(tokens, np.int64)
        seq = Sequence(
            request, keys, None, frozenset(), 0, self._arrivals, float(self._arrivals), 1000
        )
        self._arrivals += 1
        self.queue.add(seq)
        return seq

    def compute(self, tokens: tuple[int, ...]) -> None:
        key = np.array(tokens, np.int64)
        match = self.cache.match(key)
        size = self.pool.page_size
        own = self.pool.alloc(len(key) // size - len(match.pages))
        pages = np.concatenate([match.pages, own])
        self.cache.insert(key, pages, match.num_tokens, InsertReason.CHUNK)

    def order(self) -> list[str]:
        self.queue.refresh()
        return [s.request.id for s in self.policy.order(self.queue, 0.0)]


@pytest.mark.parametrize("page_size", [1, 4])
def test_matched_stays_exact_through_inserts_splits_and_evictions(page_size: int) -> None:
    rng = random.Random(page_size)
    forest = Forest(LpmSpec(), page_size, pages=120 if page_size == 1 else 60)
    known: list[tuple[int, ...]] = [words(rng, 12)]
    waiting: list[Sequence] = []
    foreseen = 0

    def shares(seq: Sequence, tokens: np.ndarray) -> bool:
        return np.array_equal(seq.tokens.view(0, seq.matched), tokens[: seq.matched])

    for _ in range(600):
        base = rng.choice(known)[: rng.randrange(0, 40)]
        tokens = base + words(rng, rng.randrange(1, 14))
        known.append(tokens)
        action = rng.random()
        if action < 0.4:
            waiting.append(forest.wait(tokens))
        elif action < 0.7:
            need = len(tokens) // page_size
            if forest.pool.num_free < need:
                forest.cache.evict(need - forest.pool.num_free)
            forest.compute(tokens)
        elif action < 0.85:
            forest.cache.evict(rng.randrange(1, 9))
        elif waiting:
            forest.queue.remove(waiting.pop(rng.randrange(len(waiting))))
        forest.queue.refresh()
        for seq in waiting:
            assert seq.matched == forest.cache.peek(seq.tokens.view(0, seq.match_limit))
        order = [-s.matched for s in forest.queue.in_order()]
        assert order == sorted(order)
        index = forest.queue.index
        assert index is not None
        assert index.weights.get(forest.cache.root.id, 0) == len(waiting)
        tokens = np.array(rng.choice(known), np.int64)
        node, _, cached = forest.cache.walk(tokens)
        if node.num_tokens == cached and node.parent is not None and not node.children:
            users = [s for s in waiting if s.matched > node.parent.num_tokens and shares(s, tokens)]
            first = min(map(forest.policy.key, users), default=None)
            assert forest.queue.next_use(node) == first
            foreseen += first is not None
    assert len(waiting) > 50
    assert foreseen > 20


def test_a_change_of_the_tree_touches_only_what_hangs_there(monkeypatch) -> None:
    rng = random.Random(3)
    forest = Forest(LpmSpec(), pages=20_000)
    one, other = words(rng, 50), words(rng, 50)
    for i in range(500):
        forest.wait((one if i % 100 else other) + words(rng, 10))
    forest.queue.refresh()
    walks = []
    walk = forest.cache.walk
    monkeypatch.setattr(forest.cache, "walk", lambda *args: walks.append(1) or walk(*args))
    forest.compute(other)
    forest.queue.refresh()
    assert len(walks) <= 5 + 500 // 60 * 3  # the five of this family, and chance neighbours


def test_fcfs_orders_by_arrival_and_lpm_by_what_is_cached() -> None:
    rng = random.Random(4)
    prompts = family(rng, 3, 30, 5)
    for policy, expected in ((FcfsSpec(), "0123"), (LpmSpec(), "2103")):
        forest = Forest(policy)
        forest.wait(prompts[0])
        forest.wait(prompts[1])
        forest.wait(prompts[2])
        forest.wait(words(rng, 10))
        forest.compute(prompts[2])
        forest.compute(prompts[1][:32])
        assert "".join(forest.order()) == expected


def test_random_order_is_a_seeded_permutation_of_the_queue() -> None:
    def order(seed: int) -> list[str]:
        rng = random.Random(5)
        forest = Forest(RandomSpec(seed=seed))
        for _ in range(30):
            forest.wait(words(rng, 5))
        return forest.order()

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(map(str, range(30)))


def test_a_random_order_that_is_drawn_anew_is_another_permutation_each_time() -> None:
    rng = random.Random(5)
    once, anew = Forest(RandomSpec(seed=1)), Forest(RandomSpec(seed=1, anew=True))
    for _ in range(30):
        prompt = words(rng, 5)
        once.wait(prompt)
        anew.wait(prompt)
    assert once.order() == once.order()
    first, second = anew.order(), anew.order()
    assert first != second
    assert sorted(first) == sorted(second) == sorted(map(str, range(30)))


def test_dfs_weight_visits_the_heavier_subtree_first_and_whole() -> None:
    rng = random.Random(6)
    heavy, light = words(rng, 20), words(rng, 20)
    branch = heavy + words(rng, 10)
    forest = Forest(DfsWeightSpec())
    forest.compute(heavy)
    forest.compute(light)
    forest.compute(branch)
    prompts = [light, heavy, branch, heavy, branch, light, words(rng, 8), heavy]
    for prompt in prompts:
        forest.wait(prompt + words(rng, 3))
    # Branch (2 of heavy's 5) before heavy's own, heavy before light, the uncached last.
    assert "".join(forest.order()) == "24" + "137" + "05" + "6"


def test_the_queue_says_when_it_will_use_a_leaf_also_a_part_of_it() -> None:
    rng = random.Random(5)
    forest = Forest(FcfsSpec(), track=True)
    a, b, c = (words(rng, 20) for _ in range(3))
    for tokens in (a, b, c):
        forest.compute(tokens)
    leaves = {
        chr(97 + i): forest.cache.walk(np.array(t, np.int64)).node for i, t in enumerate((a, b, c))
    }
    forest.wait((*b, 1))
    forest.wait((*a[:12], 1, 2))  # hangs above the leaf
    last = forest.wait((*b, 2))
    assert [forest.queue.next_use(leaves[name]) for name in "abc"] == [(1,), (0,), None]
    for seq in list(forest.queue.by_arrival())[:2]:
        forest.queue.remove(seq)
    assert [forest.queue.next_use(leaves[name]) for name in "abc"] == [None, (2,), None]
    forest.queue.remove(last)


def test_eviction_by_next_use_keeps_what_the_queue_will_hit() -> None:
    rng = random.Random(1)
    stems = [words(rng, 100) for _ in range(5)]
    asked = [(*stem, turn, 7) for turn in (60, 61, 62, 63) for stem in stems]
    hits = {}
    for eviction in (LruSpec(), NextUseSpec()):
        # Room for four of five stems that come in turns: LRU evicts just what comes next.
        setup = Setup(eviction=eviction, pages=450, max_running=1, token_budget=256)
        bench = Bench(setup)
        bench.add(*(ask(str(i), tokens, new=2) for i, tokens in enumerate(asked)))
        hits[eviction.type] = sum(done.cached_tokens for done in bench.run().values())
    best = sum(map(len, asked)) - belady_computed(
        [Visit(tokens, (0, 0)) for tokens in asked], 1, 450
    )
    assert hits["lru"] < 0.7 * hits["next_use"] <= 0.7 * best
    assert hits["next_use"] >= 0.8 * best
