"""A clock on a cache: what goes through is unchanged, what it takes is counted."""

import time
from itertools import count

import numpy as np

from sgjax.cache import InsertReason, LeastRecentlyUsed, PagePool, RadixTree, TimedCache


def test_everything_goes_through_and_its_processor_time_is_counted(monkeypatch):
    pool = PagePool(20, 1)
    tree = RadixTree(pool, LeastRecentlyUsed())
    cache = TimedCache(tree)
    events = []
    cache.listen(events.append)
    key = np.arange(8, dtype=np.int64)
    cache.insert(key, pool.alloc(8), 0, InsertReason.FINISHED)
    assert (cache.peek(key), cache.num_pages, cache.num_evictable, len(events)) == (8, 8, 8, 1)
    assert cache.root is tree.root
    before_s = cache.seconds
    time.sleep(0.05)
    assert cache.seconds == before_s > 0

    def busy(num_pages):
        end_s = time.thread_time() + 0.02
        while time.thread_time() < end_s:
            pass
        return num_pages

    monkeypatch.setattr(tree, "evict", busy)
    slow = TimedCache(tree)
    assert slow.evict(3) == 3
    assert 0.02 <= slow.seconds < 0.1


def test_what_the_clock_takes_is_not_the_caches(monkeypatch):
    seconds = count()
    monkeypatch.setattr(time, "thread_time", lambda: float(next(seconds)))  # a second a reading
    tree = RadixTree(PagePool(20, 1), LeastRecentlyUsed())
    cache = TimedCache(tree)
    cache.peek(np.arange(8))
    assert cache.seconds == 0
    monkeypatch.setattr(tree, "evict", lambda num_pages: time.thread_time())
    slow = TimedCache(tree)
    slow.evict(1)
    assert slow.seconds == 1
