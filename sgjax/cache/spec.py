"""What YAML says of the cache, and the cache built from it.

Imports the rest of cache/, own and typed.

`cache:` and `eviction:` are objects tagged by `type`; see architecture section 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from sgjax.cache.base import PrefixCache
from sgjax.cache.orders import (
    EvictionOrder,
    FirstInFirstOut,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
)
from sgjax.cache.orders_zoo import AgeingFrequency, QueueNextUse, RandomizedMarking, TailOptimized
from sgjax.cache.pool import PagePool
from sgjax.cache.radix import RadixTree
from sgjax.cache.samples import SamplesCache
from sgjax.cache.table import TableCache
from sgjax.cache.variants import FinishedCache, ManualCache, NoCache, ThrottledCache
from sgjax.errors import ConfigError
from sgjax.own import PythonSpec, make_a
from sgjax.typed import FORBID_EXTRA, refuse_negative

Takes = Literal["computed", "finished"]
"""When a tree takes a sequence's pages: as they are computed, or when it has ended."""

Evicts = Literal["pages", "leaves"]
"""What eviction takes of the last leaf that it needs: as many pages as are missing, or all."""


@dataclass(frozen=True)
class NoCacheSpec:
    """Nothing is reused."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["none"] = "none"


@dataclass(frozen=True)
class TreeSpec:
    """The radix tree: every computed prefix is reused automatically.

    Attributes:
        takes: when; `finished` keeps what runs to itself, as SGLang's first release did.
        evicts: `leaves` evicts leaves whole, as there (`evict` in its radix_cache.py).
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    takes: Takes = "computed"
    evicts: Evicts = "pages"
    type: Literal["tree"] = "tree"


@dataclass(frozen=True)
class SamplesSpec:
    """Only those that run together and ask the very same share their prompt; nothing is kept."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["samples"] = "samples"


@dataclass(frozen=True)
class TableSpec:
    """A table of whole finished sequences; a hit only when an entire entry is a prefix."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["table"] = "table"


@dataclass(frozen=True)
class ManualSpec:
    """Only prefixes declared by the frontend are reused."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["manual"] = "manual"


@dataclass(frozen=True)
class ThrottledSpec:
    """The radix tree, of whose every match only a part may be used.

    Attributes:
        keep: the share that may be used, in [0, 1].
        takes, evicts: as of `TreeSpec`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    keep: float
    takes: Takes = "computed"
    evicts: Evicts = "pages"
    type: Literal["throttled"] = "throttled"

    def __post_init__(self) -> None:
        if not 0.0 <= self.keep <= 1.0:
            raise ConfigError(f"keep: got {self.keep!r}; allowed: a share in [0, 1]")


@dataclass(frozen=True)
class LruSpec:
    """Evict the least recently used."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["lru"] = "lru"


@dataclass(frozen=True)
class LfuSpec:
    """Evict the least often matched."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["lfu"] = "lfu"


@dataclass(frozen=True)
class FifoSpec:
    """Evict what was computed first."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["fifo"] = "fifo"


@dataclass(frozen=True)
class LfuAgeingSpec:
    """Evict the least often matched; what is not matched any more counts for less in time."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["lfu_ageing"] = "lfu_ageing"


@dataclass(frozen=True)
class NextUseSpec:
    """Evict what no waiting request will hit, then what the queue will hit last.

    Attributes:
        otherwise: the order of what no waiting request will hit.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    otherwise: Literal["lru", "lfu", "lfu_ageing"] = "lru"
    type: Literal["next_use"] = "next_use"


@dataclass(frozen=True)
class RandomizedSpec:
    """Evict at random among what was not used in the present phase.

    Attributes:
        seed: of the choice; None takes the engine's, which an experiment varies.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["randomized"] = "randomized"
    seed: int | None = 0

    def __post_init__(self) -> None:
        refuse_negative(seed=self.seed)


@dataclass(frozen=True)
class TlruSpec:
    """Evict first what can be computed again in time.

    Attributes:
        slack_tokens: tokens that a request may compute and still meet its latency.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    slack_tokens: int
    type: Literal["tlru"] = "tlru"

    def __post_init__(self) -> None:
        refuse_negative(slack_tokens=self.slack_tokens)


CacheSpec = Annotated[
    NoCacheSpec | SamplesSpec | TreeSpec | TableSpec | ManualSpec | ThrottledSpec,
    Field(discriminator="type"),
]
EvictionSpec = Annotated[
    LruSpec
    | LfuSpec
    | LfuAgeingSpec
    | FifoSpec
    | NextUseSpec
    | RandomizedSpec
    | TlruSpec
    | PythonSpec,
    Field(discriminator="type"),
]


def build_cache(
    cache: CacheSpec, eviction: EvictionSpec, pool: PagePool, engine_seed: int = 0
) -> PrefixCache:
    """Build the cache that a configuration describes.

    Args:
        cache: which cache.
        eviction: the order in which it gives up what nobody uses.
        pool: the pages.
        engine_seed: of a random order that has no seed of its own.
    """
    order = build_order(eviction, engine_seed)
    match cache:
        case NoCacheSpec():
            return NoCache(pool.page_size)
        case SamplesSpec():
            return SamplesCache(pool)
        case TreeSpec(takes=takes, evicts=evicts):
            return _taking(takes, RadixTree(pool, order, evicts == "leaves"))
        case TableSpec():
            return TableCache(pool, order)
        case ManualSpec():
            return ManualCache(RadixTree(pool, order))
        case ThrottledSpec(keep=keep, takes=takes, evicts=evicts):
            return _taking(takes, ThrottledCache(RadixTree(pool, order, evicts == "leaves"), keep))


def _taking(takes: Takes, tree: PrefixCache) -> PrefixCache:
    return FinishedCache(tree) if takes == "finished" else tree


_PLAIN: dict[str, Callable[[], EvictionOrder]] = {
    "lru": LeastRecentlyUsed,
    "lfu": LeastFrequentlyUsed,
    "lfu_ageing": AgeingFrequency,
    "fifo": FirstInFirstOut,
}


def build_order(eviction: EvictionSpec, engine_seed: int = 0) -> EvictionOrder:
    """Build the eviction order that a configuration describes; see `build_cache`."""
    match eviction:
        case LruSpec() | LfuSpec() | LfuAgeingSpec() | FifoSpec():
            return _PLAIN[eviction.type]()
        case NextUseSpec(otherwise=otherwise):
            return QueueNextUse(_PLAIN[otherwise]())
        case RandomizedSpec(seed=seed):
            return RandomizedMarking(engine_seed if seed is None else seed)
        case TlruSpec(slack_tokens=slack_tokens):
            return TailOptimized(slack_tokens)
        case PythonSpec():
            order: EvictionOrder = make_a(EvictionOrder, eviction)
            return order
