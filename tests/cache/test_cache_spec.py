import pytest

from sgjax.cache import (
    CacheSpec,
    EvictionSpec,
    FinishedCache,
    FirstInFirstOut,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
    LruSpec,
    ManualCache,
    NoCache,
    PagePool,
    PrefixCache,
    RadixTree,
    SamplesCache,
    TableCache,
    ThrottledCache,
    ThrottledSpec,
    build_cache,
    build_order,
)
from sgjax.errors import ConfigError
from sgjax.typed import validate


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"type": "none"}, NoCache),
        ({"type": "samples"}, SamplesCache),
        ({"type": "tree"}, RadixTree),
        ({"type": "tree", "takes": "finished"}, FinishedCache),
        ({"type": "tree", "evicts": "leaves"}, RadixTree),
        ({"type": "throttled", "keep": 0.4, "takes": "finished"}, FinishedCache),
        ({"type": "table"}, TableCache),
        ({"type": "manual"}, ManualCache),
        ({"type": "throttled", "keep": 0.4}, ThrottledCache),
    ],
)
def test_every_cache_is_built_from_plain_data(data: dict[str, object], kind: type):
    spec = validate(CacheSpec, data, "cache")
    cache: PrefixCache = build_cache(spec, LruSpec(), PagePool(9, 4))
    assert type(cache) is kind
    assert cache.page_size == 4


@pytest.mark.parametrize(
    ("name", "kind"),
    [("lru", LeastRecentlyUsed), ("lfu", LeastFrequentlyUsed), ("fifo", FirstInFirstOut)],
)
def test_every_order_is_built_from_plain_data(name: str, kind: type):
    assert type(build_order(validate(EvictionSpec, {"type": name}, "eviction"))) is kind


def test_an_unknown_type_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'tre'.*did you mean 'tree'"):
        validate(CacheSpec, {"type": "tre"}, "cache")


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'kep'.*did you mean 'keep'"):
        validate(CacheSpec, {"type": "throttled", "keep": 0.5, "kep": 1}, "cache")


@pytest.mark.parametrize("keep", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_and_1_is_refused(keep: float):
    with pytest.raises(ConfigError, match=r"keep: got .* \[0, 1\]"):
        ThrottledSpec(keep=keep)
    # In YAML no number may be nan, whatever it is for.
    with pytest.raises(ConfigError, match=r"keep: got .*(\[0, 1\]|a finite number)"):
        validate(CacheSpec, {"type": "throttled", "keep": keep}, "cache")
