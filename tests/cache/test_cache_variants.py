import numpy as np
from naive_cache import keys

from sgjax.cache import (
    FinishedCache,
    InsertReason,
    LeastRecentlyUsed,
    ManualCache,
    Match,
    NoCache,
    PagePool,
    PrefixCache,
    RadixTree,
    TableCache,
    ThrottledCache,
)

CHUNK, FINISHED, DECLARED = InsertReason


def offer(
    cache: PrefixCache, pool: PagePool, key: list[int], reason: InsertReason, shared: int = 0
) -> Match:
    """Offer a key whose pages past `shared` the caller computed itself."""
    S = pool.page_size
    front = cache.match(keys(*key[:shared])).pages
    pages = np.concatenate([front, pool.alloc(len(key) // S - shared // S)])
    return cache.insert(keys(*key), pages, shared, reason)


def throttled(keep: float, page_size: int = 1) -> tuple[ThrottledCache, PagePool]:
    pool = PagePool(400, page_size)
    return ThrottledCache(RadixTree(pool, LeastRecentlyUsed()), keep), pool


def table() -> tuple[TableCache, PagePool]:
    pool = PagePool(33, 1)
    return TableCache(pool, LeastRecentlyUsed()), pool


# none ---------------------------------------------------------------------------------------------


def test_no_cache_takes_nothing_and_finds_nothing():
    pool = PagePool(9, 1)
    cache = NoCache(1)
    assert offer(cache, pool, [1, 2], FINISHED).num_tokens == 0
    assert cache.match(keys(1, 2)).num_tokens == 0
    assert (cache.evict(2), pool.counts()["sequence"]) == (0, 2)


# manual -------------------------------------------------------------------------------------------


def test_manual_cache_takes_declared_prefixes_only():
    pool = PagePool(33, 1)
    cache = ManualCache(RadixTree(pool, LeastRecentlyUsed()))
    assert offer(cache, pool, [1, 2, 3], CHUNK).num_tokens == 0
    assert offer(cache, pool, [1, 2, 3], FINISHED).num_tokens == 0
    assert offer(cache, pool, [1, 2], DECLARED).num_tokens == 2
    assert cache.peek(keys(1, 2, 3)) == 2


def test_manual_cache_hands_a_finished_sequence_its_declared_part_back():
    pool = PagePool(33, 1)
    cache = ManualCache(RadixTree(pool, LeastRecentlyUsed()))
    declared = offer(cache, pool, [1, 2], DECLARED)
    match = offer(cache, pool, [1, 2, 3], FINISHED, shared=2)
    assert (match.num_tokens, match.node) == (2, declared.node)
    assert pool.counts()["sequence"] == 1


# finished -----------------------------------------------------------------------------------------


def test_a_tree_of_what_has_ended_takes_no_chunk_of_what_runs():
    pool = PagePool(33, 1)
    cache = FinishedCache(RadixTree(pool, LeastRecentlyUsed()))
    assert offer(cache, pool, [1, 2, 3], CHUNK).num_tokens == 0
    assert cache.peek(keys(1, 2, 3)) == 0
    declared = offer(cache, pool, [1, 2], DECLARED)
    assert offer(cache, pool, [1, 2, 3], CHUNK, shared=2).node is declared.node
    assert offer(cache, pool, [1, 2, 3], FINISHED, shared=2).num_tokens == 3
    assert cache.peek(keys(1, 2, 3, 4)) == 3


# throttled ----------------------------------------------------------------------------------------


def test_throttled_match_is_cut_to_its_share_in_whole_pages():
    cache, pool = throttled(0.6, page_size=4)
    offer(cache, pool, list(range(32)), FINISHED)
    key = np.arange(32)
    assert cache.peek(key) == cache.match(key).num_tokens == 16  # floor(0.6 * 32) = 19
    assert cache.walk(key)[1:] == (32, 16)


def test_throttled_share_is_not_lost_to_rounding():
    cache, pool = throttled(0.29)
    offer(cache, pool, list(range(100)), FINISHED)
    assert cache.peek(np.arange(100)) == 29


def test_throttled_duplicates_stay_with_their_sequence_until_it_ends():
    cache, pool = throttled(0.5)
    offer(cache, pool, list(range(8)), FINISHED)
    match = cache.match(np.arange(8))
    pages = np.concatenate([match.pages, pool.alloc(6)])
    cache.pin(match.node)
    chunk = cache.insert(np.arange(8), pages, 4, CHUNK)
    assert chunk.num_tokens == 4
    assert pool.counts()["sequence"] == 6
    finished = cache.insert(np.arange(8), pages, 4, FINISHED)
    assert finished.num_tokens == 8
    assert pool.counts()["sequence"] == 2


def test_throttled_cache_takes_new_chunks_at_once():
    cache, pool = throttled(0.5)
    assert offer(cache, pool, [1, 2, 3], CHUNK).num_tokens == 3
    assert offer(cache, pool, [1, 2, 3, 4], CHUNK, shared=1).num_tokens == 1


def test_throttled_at_keep_1_is_the_tree():
    cache, pool = throttled(1.0)
    offer(cache, pool, [1, 2, 3], CHUNK)
    assert offer(cache, pool, [1, 2, 3, 4], CHUNK).num_tokens == 4
    assert pool.counts()["sequence"] == 0


# table --------------------------------------------------------------------------------------------


def test_table_hits_only_where_an_entire_entry_is_a_prefix():
    cache, pool = table()
    offer(cache, pool, [1, 2, 3], FINISHED)
    assert cache.peek(keys(1, 2, 3, 4)) == 3
    assert cache.peek(keys(1, 2, 3)) == 3
    assert cache.peek(keys(1, 2, 4)) == 0
    assert cache.peek(keys(1, 2)) == 0


def test_table_prefers_the_longest_entry():
    cache, pool = table()
    offer(cache, pool, [1], FINISHED)
    longer = offer(cache, pool, [1, 2, 3], FINISHED)
    assert cache.match(keys(1, 2, 3, 4)).node is longer.node
    assert cache.match(keys(1, 2, 9)).num_tokens == 1


def test_table_takes_no_chunks_of_running_sequences():
    cache, pool = table()
    assert offer(cache, pool, [1, 2, 3], CHUNK).num_tokens == 0
    assert pool.counts()["sequence"] == 3


def test_table_holds_a_common_prefix_once_for_each_sequence_that_computed_it():
    cache, pool = table()
    offer(cache, pool, [1, 2, 3], FINISHED)
    offer(cache, pool, [1, 2, 4], FINISHED)
    assert cache.num_pages == 6
    assert offer(cache, pool, [1, 2, 4], FINISHED).num_tokens == 3
    assert (cache.num_pages, pool.counts()["sequence"]) == (6, 0)


def test_table_entry_that_continues_another_shares_its_pages_and_outlives_it():
    cache, pool = table()
    first = offer(cache, pool, [1, 2], FINISHED)
    second = offer(cache, pool, [1, 2, 3], FINISHED, shared=2)
    assert second.pages[:2].tolist() == first.pages.tolist()
    assert cache.num_pages == 3
    cache.pin(second.node)
    assert (cache.num_evictable, cache.evict(3)) == (0, 0)
    assert cache.match(keys(1, 2, 3)).pages.tolist() == second.pages.tolist()
    cache.unpin(second.node)
    assert cache.evict(1) == 3


def test_table_counts_a_page_of_two_pinned_entries_once():
    cache, pool = table()
    first = offer(cache, pool, [1, 2], FINISHED)
    second = offer(cache, pool, [1, 2, 3], FINISHED, shared=2)
    cache.pin(first.node)
    cache.pin(second.node)
    assert cache.num_evictable == 0
    cache.unpin(first.node)
    assert cache.num_evictable == 0
    cache.unpin(second.node)
    assert cache.num_evictable == 3


def test_table_evicts_the_least_recently_used_entry_that_is_not_pinned():
    cache, pool = table()
    entries = [offer(cache, pool, [i, i], FINISHED) for i in (1, 2, 3)]
    cache.match(keys(1, 1))
    cache.pin(entries[1].node)
    assert cache.num_evictable == 4
    assert cache.evict(1) == 2
    assert [cache.peek(keys(i, i)) for i in (1, 2, 3)] == [2, 2, 0]


def test_table_survives_a_collision_of_fingerprints(monkeypatch):
    monkeypatch.setattr(
        "sgjax.cache.table._fingerprints", lambda key: np.arange(1, len(key) + 1, dtype=np.uint64)
    )
    cache, pool = table()
    offer(cache, pool, [1, 2], FINISHED)
    assert cache.peek(keys(3, 4)) == 0
    assert offer(cache, pool, [3, 4], FINISHED).num_tokens == 0
    assert cache.peek(keys(1, 2)) == 2
    cache.check()
