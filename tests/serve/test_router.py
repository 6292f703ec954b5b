"""Routers and their meta-tree: who is chosen, and what is known of evictions."""

import random

import numpy as np
import pytest

from sgjax.cache import InsertReason, LeastRecentlyUsed, PagePool, RadixTree
from sgjax.errors import ConfigError
from sgjax.serve.router import (
    CacheAware,
    CacheAwareSpec,
    EvictionReports,
    MetaTree,
    RandomRouterSpec,
    RoundRobinSpec,
    build_router,
)


def keys(*tokens):
    return np.array(tokens, np.int64)


def test_cache_aware_sends_a_prefix_where_it_is_and_news_to_the_idlest():
    router = CacheAware(CacheAwareSpec(block=2, max_lead=3))
    assert router.pick(keys(1, 1, 1, 1, 5, 5), [4, 2, 3]) == 1
    assert router.pick(keys(1, 1, 1, 1, 6, 6), [0, 3, 0]) == 1
    assert router.pick(keys(1, 1, 1, 1, 7, 7), [0, 4, 0]) == 0  # too far ahead: a copy elsewhere
    assert router.pick(keys(1, 1, 1, 1, 8, 8), [2, 1, 0]) == 1  # two have it: the idler one
    assert (
        router.pick(keys(1, 1, 9, 9, 9, 9), [2, 1, 0]) == 2
    )  # a third of the prompt is too little


def test_other_routers_know_no_prefixes():
    turns, draw = build_router(RoundRobinSpec()), build_router(RandomRouterSpec(seed=1))
    assert [turns.pick(keys(1, 2), [9, 0, 0]) for _ in range(4)] == [0, 1, 2, 0]
    drawn = [draw.pick(keys(1, 2), [0, 0, 0]) for _ in range(300)]
    assert all(80 < drawn.count(worker) < 120 for worker in range(3))
    with pytest.raises(ConfigError, match="min_share"):
        CacheAwareSpec(min_share=1.5)


@pytest.mark.parametrize("page_size", [1, 4])
def test_with_all_reports_read_the_meta_tree_knows_what_the_workers_tree_holds(page_size):
    """Random prompts on a small tree: where the meta-tree errs, it is by less than a block."""
    rng, block = random.Random(page_size), 4
    pool = PagePool(1 + 60 // page_size, page_size)
    tree, meta = RadixTree(pool, LeastRecentlyUsed()), MetaTree(block)
    reports = EvictionReports(tree)
    stems = [[rng.randrange(3) for _ in range(20)] for _ in range(3)]
    prompts = []
    for _ in range(300):
        stem = rng.choice(stems)[: rng.randrange(4, 20)]
        prompt = keys(*stem, *(rng.randrange(3) for _ in range(rng.randrange(1, 12))))
        prompts.append(prompt)
        match = tree.match(prompt)
        tree.pin(match.node)
        need = len(prompt) // page_size - len(match.pages)
        tree.evict(max(0, need - pool.num_free))
        pages = np.concatenate([match.pages, pool.alloc(need)])
        tree.insert(prompt, pages, match.num_tokens, InsertReason.FINISHED)
        tree.unpin(match.node)
        meta.insert(prompt[: len(prompt) // page_size * page_size], 1)
        for eviction in reports.take():
            meta.remove(eviction, 1)
        for asked in rng.sample(prompts, min(10, len(prompts))):
            assert meta.match(asked, 2) == [0, tree.peek(asked) // block * block]
    tree.evict(tree.num_evictable)
    for eviction in reports.take():
        meta.remove(eviction, 1)
    assert len(meta) == 0


def test_what_one_worker_evicts_the_others_still_have():
    meta = MetaTree(2)
    for worker in (0, 1):
        meta.insert(keys(1, 1, 2, 2, 3, 3), worker)
    pool = PagePool(10, 1)
    tree = RadixTree(pool, LeastRecentlyUsed())
    reports = EvictionReports(tree)
    tree.insert(keys(1, 1, 2, 2, 3, 3), pool.alloc(6), 0, InsertReason.FINISHED)
    tree.evict(3)  # cuts inside a block, which is then gone
    for eviction in reports.take():
        meta.remove(eviction, 0)
    assert meta.match(keys(1, 1, 2, 2, 3, 3, 4), 2) == [2, 6]
