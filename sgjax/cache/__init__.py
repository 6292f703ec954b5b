"""HOST. PagePool, RadixTree, eviction orders and the ablated caches; no jax."""

from sgjax.cache.base import (
    CacheEvent,
    CacheNode,
    EventKind,
    InsertReason,
    Keys,
    Listener,
    Match,
    Pages,
    PrefixCache,
    Slot,
)
from sgjax.cache.orders import (
    EvictionOrder,
    FirstInFirstOut,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
)
from sgjax.cache.orders_zoo import FurthestNextUse, RandomizedMarking, TailOptimized
from sgjax.cache.pool import SCRATCH_PAGE, Owner, PagePool
from sgjax.cache.radix import RadixNode, RadixTree
from sgjax.cache.spec import (
    CacheSpec,
    EvictionSpec,
    FifoSpec,
    LfuSpec,
    LruSpec,
    ManualSpec,
    NoCacheSpec,
    RandomizedSpec,
    TableSpec,
    ThrottledSpec,
    TlruSpec,
    TreeSpec,
    build_cache,
    build_order,
)
from sgjax.cache.table import TableCache
from sgjax.cache.variants import ManualCache, NoCache, ThrottledCache

__all__ = [
    "SCRATCH_PAGE",
    "CacheEvent",
    "CacheNode",
    "CacheSpec",
    "EventKind",
    "EvictionOrder",
    "EvictionSpec",
    "FifoSpec",
    "FirstInFirstOut",
    "FurthestNextUse",
    "InsertReason",
    "Keys",
    "LeastFrequentlyUsed",
    "LeastRecentlyUsed",
    "LfuSpec",
    "Listener",
    "LruSpec",
    "ManualCache",
    "ManualSpec",
    "Match",
    "NoCache",
    "NoCacheSpec",
    "Owner",
    "PagePool",
    "Pages",
    "PrefixCache",
    "RadixNode",
    "RadixTree",
    "RandomizedMarking",
    "RandomizedSpec",
    "Slot",
    "TableCache",
    "TableSpec",
    "TailOptimized",
    "ThrottledCache",
    "ThrottledSpec",
    "TlruSpec",
    "TreeSpec",
    "build_cache",
    "build_order",
]
