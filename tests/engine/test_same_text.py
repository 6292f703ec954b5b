"""Rule 8 on the tiny model: greedy text is the same under every switch, and samples too."""

import itertools

import pytest

import sgjax as sgl
from sgjax.engine.executor import _STEP
from tests.engine.rule8 import check_same_text, make_prompts, make_reference

MODEL = {"model": "random:tiny", "dtype": "float32", "max_context_len": 256, "max_running": 8}
ROOMY, TIGHT = 1600, 192

CACHES = [
    {"type": "tree"},
    {"type": "tree", "takes": "finished", "evicts": "leaves"},
    {"type": "none"},
    {"type": "table"},
    {"type": "manual"},
    {"type": "throttled", "keep": 0.5},
]
POLICIES = [
    {"type": "fcfs"},
    {"type": "random", "seed": 1, "anew": True},
    {"type": "lpm"},
    {"type": "dfs_weight"},
    {"type": "aged_lpm", "max_wait_s": 0.01},
]
SIBLINGS = [{"type": "admit"}, {"type": "defer"}, {"type": "share_planned"}]
COMPOSITIONS = [{"type": "mixed"}, {"type": "prompts_first", "decode_steps": 3, "max_padding": 8}]
ADMISSIONS = [
    {"type": "in_order"},
    {"type": "pass_over"},
    {"type": "working_set"},
    {"type": "pass_over", "matches_all": True, "joins_at_end": True},  # not with `share_planned`
]


@pytest.fixture(scope="module")
def reference():
    prompts = make_prompts(vocab=250, seed=3, lengths=(40, 20))
    return make_reference(prompts, new=24, **MODEL, kv_tokens=ROOMY, token_budget=256)


def name(switches: tuple[dict, ...]) -> str:
    return "-".join(str(s.get("takes", s["type"])) for s in switches)


@pytest.mark.parametrize("switches", list(itertools.product(CACHES, POLICIES, SIBLINGS)), ids=name)
def test_text_is_the_same_under_every_cache_policy_and_siblings(reference, switches) -> None:
    cache, policy, siblings = switches
    # What else there is varies along, so that every pair of values meets somewhere.
    turn = POLICIES.index(policy) + SIBLINGS.index(siblings)
    info = check_same_text(
        reference,
        shuffle_seed=turn,
        **MODEL,
        cache=cache,
        policy=policy,
        siblings=siblings,
        page_size=(1, 16)[turn % 2],
        token_budget=(256, 32)[turn // 2 % 2],
        kv_tokens=(ROOMY, TIGHT)[(turn + CACHES.index(cache)) % 2],
        composition=COMPOSITIONS[(turn // 2 + CACHES.index(cache)) % 2],
        admission=ADMISSIONS[
            (turn // 3 + CACHES.index(cache)) % (3 if siblings["type"] == "share_planned" else 4)
        ],
    )
    if cache["type"] == "none":
        assert info["cached_tokens"] == 0


@pytest.mark.parametrize("page_size", [1, 16])
def test_text_is_the_same_through_retractions(reference, page_size) -> None:
    info = check_same_text(
        reference,
        **MODEL,
        kv_tokens=168,
        page_size=page_size,
        cache={"type": "none"},
        siblings={"type": "admit"},
    )
    assert info["retractions"] > 0


def test_text_is_the_same_through_evictions(reference) -> None:
    for eviction in ("lru", "lfu", "fifo"):
        info = check_same_text(reference, **MODEL, kv_tokens=TIGHT, eviction={"type": eviction})
        assert info["evicted_tokens"] > 0
        assert info["cached_tokens"] > 0


def test_text_is_the_same_with_every_attention_backend(reference) -> None:
    for attention in ("reference", "cpu"):
        info = check_same_text(reference, **MODEL, kv_tokens=ROOMY, attention=attention)
        assert info["attention"] == attention


def test_nothing_is_compiled_after_warm_up() -> None:
    with sgl.Engine(**MODEL, kv_tokens=ROOMY, token_budget=256, warmup="full") as engine:
        shapes, programs = engine.get_server_info()["compilations"], _STEP._cache_size()
        assert shapes <= 24
        prompts = make_prompts(vocab=250, seed=4, lengths=(90, 30))
        for params in ({"temperature": 0}, {"temperature": 0.7, "top_k": 5, "min_p": 0.01}):
            engine.generate(input_ids=prompts, sampling_params={**params, "max_new_tokens": 9})
        assert engine.get_server_info()["compilations"] == shapes
        assert _STEP._cache_size() == programs
