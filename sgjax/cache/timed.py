"""TimedCache: any prefix cache with a clock on it. Imports cache.base and the standard library.

What a tree costs is one of the paper's claims (section 6.3), so every engine measures it. Whoever
hears the cache's events (the waiting queue's index) is counted with it; what reading the clock
takes, often as long as a short call, is not.
"""

import functools
import itertools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar, final

from sgjax.cache.base import PrefixCache

P = ParamSpec("P")
T = TypeVar("T")


@final
class TimedCache:
    """Pass everything on and count the seconds that takes; implements `PrefixCache`.

    Attributes:
        seconds: of processor time that its thread spent in the cache so far; whatever else runs on
            the machine is not counted.
    """

    def __init__(self, cache: PrefixCache) -> None:
        """Put a clock on a cache."""
        self._cache = cache
        self._reading_s = _reading_s()
        self.seconds = 0.0
        self.page_size = cache.page_size
        self.root = cache.root
        self.match = self._timed(cache.match)
        self.peek = self._timed(cache.peek)
        self.walk = self._timed(cache.walk)
        self.pin = self._timed(cache.pin)
        self.unpin = self._timed(cache.unpin)
        self.insert = self._timed(cache.insert)
        self.evict = self._timed(cache.evict)
        self.reset = self._timed(cache.reset)
        # Look into the key alone, or at one entry.
        self.first_key, self.node = cache.first_key, cache.node
        # These are no work of a run: asked while it is put together, or by its checks.
        self.listen, self.foresee, self.check = cache.listen, cache.foresee, cache.check

    @property
    def num_pages(self) -> int:
        """Return the number of pages the cache owns."""
        return self._cache.num_pages

    @property
    def num_evictable(self) -> int:
        """Return the number of its pages that `evict` could free now."""
        return self._cache.num_evictable

    def _timed(self, call: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(call)
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            started_s = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += max(0.0, time.thread_time() - started_s - self._reading_s)

        return timed


def _reading_s() -> float:
    """Return the seconds that lie between two readings of the clock in a row."""
    readings = [time.thread_time() for _ in range(20)]
    return min(after - before for before, after in itertools.pairwise(readings))
