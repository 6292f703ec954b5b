"""Watcher: see what the scheduler and its cache do, step by step, without touching it.

Imports cache and its neighbours. Views are made of what a watcher saw; the engine needs none.
"""

from typing import Protocol

from sgjax.cache import CacheEvent
from sgjax.schedule.plan import Plan


class Watcher(Protocol):
    """Called on the scheduler's thread; may read what it is given, and change nothing."""

    def changed(self, event: CacheEvent) -> None:
        """Hear of a change of the cache."""
        ...

    def planned(self, plan: Plan, now_s: float) -> None:
        """Hear of a step before it runs; its sequences hold their pages and pins."""
        ...

    def committed(self, plan: Plan, times: int, now_s: float) -> None:
        """Hear that a step's results were taken in, or those of `times` runs of it in a row."""
        ...
