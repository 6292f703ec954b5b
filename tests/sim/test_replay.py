"""Replaying traces: what is read, what is served, and that macro-steps change nothing."""

import dataclasses
import random

import numpy as np
import pytest

from sgjax.cache import NextUseSpec, NoCacheSpec, TreeSpec
from sgjax.errors import ConfigError
from sgjax.models.presets import load_preset
from sgjax.schedule.spec import (
    AgedLpmSpec,
    FcfsSpec,
    LpmSpec,
    PassOverSpec,
    PromptsFirstSpec,
    WorkingSetSpec,
)
from sgjax.sim import Roofline, load_hardware
from sgjax.sim.replay import ReplayConfig, replay
from sgjax.sim.trace import Arrival, BlockTokens, read_azure, read_mooncake, tile
from sgjax.theory.bound import hit_rate_bound

COST = Roofline(load_preset("llama-3.1-8b").config, load_hardware("h200"), "bfloat16", "bfloat16")
ROOMY = ReplayConfig(kv_tokens=800_000)


def conversations(count, seed=0, rate=8.0, longest=300):
    """Multi-turn chats behind a few system prompts, as blocks: a small Mooncake."""
    rng = random.Random(seed)
    fresh = iter(range(100, 10**9))
    systems = [[s] * 2 for s in range(3)]
    chats = [list(rng.choice(systems)) for _ in range(count // 4 + 1)]
    trace, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        chat = rng.choice(chats)
        chat += [next(fresh) for _ in range(rng.randrange(1, 5))]
        length = 512 * len(chat) - rng.randrange(500)
        family = f"system {chat[0]}"
        trace.append(Arrival(now, BlockTokens(chat, length), rng.randrange(1, longest), family))
    return trace


def assert_same(a, b):
    for field in dataclasses.fields(a):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        else:
            assert left == right, field.name


@pytest.mark.parametrize(
    "config",
    [
        ROOMY,
        dataclasses.replace(ROOMY, kv_tokens=60_000, policy=FcfsSpec()),
        dataclasses.replace(ROOMY, kv_tokens=100_000, max_running=6),
        dataclasses.replace(ROOMY, kv_tokens=50_000, page_size=16, token_budget=1024),
        dataclasses.replace(ROOMY, cache=NoCacheSpec(), kv_tokens=80_000),
        dataclasses.replace(ROOMY, kv_tokens=60_000, policy=AgedLpmSpec(max_wait_s=1.0)),
        dataclasses.replace(ROOMY, kv_tokens=60_000, composition=PromptsFirstSpec(10)),
        dataclasses.replace(
            ROOMY, max_running=6, composition=PromptsFirstSpec(4), admission=PassOverSpec()
        ),
        dataclasses.replace(
            ROOMY,
            kv_tokens=60_000,
            cache=TreeSpec(takes="finished"),
            composition=PromptsFirstSpec(10),
            admission=PassOverSpec(matches_all=True),
        ),
        dataclasses.replace(
            ROOMY, kv_tokens=60_000, eviction=NextUseSpec(), admission=WorkingSetSpec()
        ),
    ],
    ids=[
        "roomy",
        "tight fcfs",
        "few slots",
        "small pages",
        "no cache",
        "aged",
        "prompts first",
        "full",
        "first release",
        "working set",
    ],
)
def test_macro_steps_change_nothing(config):
    trace = conversations(250)
    single = replay(trace, config, COST, macro_steps=False)
    assert_same(replay(trace, config, COST, macro_steps=True), single)
    assert single.refused == 0
    assert not np.isnan(single.e2e_s).any()


def test_macro_steps_save_commits():
    """Long answers, few arrivals: nearly every step is a repetition."""
    trace = conversations(20, rate=0.5)
    calls = 0

    class Counting(Roofline):
        def __call__(self, plan):
            nonlocal calls
            calls += 1
            return super().__call__(plan)

    cost = Counting(
        load_preset("llama-3.1-8b").config, load_hardware("h200"), "bfloat16", "bfloat16"
    )
    served = replay(trace, ROOMY, cost)
    assert calls < served.stats.forward_passes / 10


def test_served_facts_add_up():
    trace = conversations(100)
    served = replay(trace, ROOMY, COST)
    assert served.prompt_tokens.tolist() == [len(a.tokens) for a in trace]
    assert served.output_tokens.tolist() == [a.output_tokens for a in trace]
    assert served.cached_tokens.sum() == served.stats.cached_tokens
    assert (served.queued_s >= 0).all()
    assert (served.ttft_s > served.queued_s).all()
    assert (served.e2e_s >= served.ttft_s).all()
    assert served.families[0] == trace[0].family
    last = (served.arrived_s + served.e2e_s).max()
    assert served.elapsed_s == pytest.approx(last)


def test_roomy_pool_nearly_reaches_the_trees_bound_and_no_cache_hits_nothing():
    trace = conversations(100, rate=0.5)
    bound = hit_rate_bound([a.tokens for a in trace], page_size=512)
    hit_rate = replay(trace, ROOMY, COST).hit_rate
    assert bound.reachable >= hit_rate >= 0.95 * bound.reachable
    assert replay(trace, dataclasses.replace(ROOMY, cache=NoCacheSpec()), COST).hit_rate == 0


def test_requests_that_never_fit_are_refused_and_the_others_served():
    trace = [Arrival(0.0, BlockTokens(range(50), 50 * 512), 5), *conversations(10)]
    served = replay(trace, dataclasses.replace(ROOMY, kv_tokens=20_480), COST)
    assert served.refused == 1
    assert np.isnan(served.e2e_s).tolist() == [True] + [False] * 10


def test_block_tokens_are_equal_exactly_where_their_blocks_are():
    tokens = BlockTokens([7, 3], 600)
    keys = np.asarray(tokens, np.int64)
    assert len(keys) == len(tokens) == 600
    assert keys.tolist() == [tokens[i] for i in range(600)] == list(tokens)
    assert keys[0] == 7 * 512
    assert tokens[-1] == 3 * 512 + 87
    assert tokens[510:514] == [7 * 512 + 510, 7 * 512 + 511, 3 * 512, 3 * 512 + 1]
    with pytest.raises(ConfigError, match="2 blocks do not make a prompt of 512 tokens"):
        BlockTokens([1, 2], 512)


def test_tiled_copies_share_nothing_with_each_other():
    trace = conversations(10)
    tiled = list(tile(trace, 25))
    assert [len(a.tokens) for a in tiled] == [len(trace[i % 10].tokens) for i in range(25)]
    blocks = [{h for a in tiled[at : at + 10] for h in a.tokens.blocks} for at in (0, 10, 20)]
    assert not blocks[0] & blocks[1]
    assert not blocks[1] & blocks[2]
    times = [a.time_s for a in tiled]
    assert times == sorted(times)
    assert tiled[12].time_s - tiled[11].time_s == pytest.approx(trace[2].time_s - trace[1].time_s)


def test_copies_beyond_32_bits_of_keys_are_served():
    trace = [Arrival(0.0, BlockTokens([2**23 - 1], 300), 2), Arrival(1.0, BlockTokens([1], 300), 2)]
    served = replay(tile(trace, 6), ROOMY, COST)
    assert served.refused == 0
    assert len(served.e2e_s) == 6


def test_published_forms_are_read(tmp_path):
    mooncake, azure, original = (tmp_path / n for n in ("m.jsonl", "a.jsonl", "a.csv"))
    mooncake.write_text(
        '{"timestamp": 1500, "input_length": 600, "output_length": 0, "hash_ids": [4, 5]}\n'
    )
    (arrival,) = read_mooncake(mooncake, family="x")
    assert (arrival.time_s, arrival.output_tokens, arrival.family) == (1.5, 1, "x")
    assert arrival.tokens.blocks == (4, 5)
    azure.write_text('{"t": 0, "in": 600, "out": 4}\n{"t": 250, "in": 10, "out": 7}\n')
    original.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,600,4\n2023-11-16 18:15:46.9305900,10,7\n"
    )
    for path in (azure, original):
        first, second = read_azure(path)
        assert (len(first.tokens), second.time_s, second.output_tokens) == (600, 0.25, 7)
        assert not set(first.tokens) & set(second.tokens)


def test_a_trace_in_another_form_is_refused(tmp_path):
    path = tmp_path / "wrong.jsonl"
    path.write_text('{"t": 0}\n')
    with pytest.raises(ConfigError, match="line 1: a row needs timestamp"):
        read_mooncake(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_azure(tmp_path / "missing.csv")


def test_longest_prefix_first_hits_more_than_arrival_order_where_memory_is_short():
    trace = conversations(200, rate=50.0)
    tight = dataclasses.replace(ROOMY, kv_tokens=30_720)
    lpm = replay(trace, dataclasses.replace(tight, policy=LpmSpec()), COST)
    fcfs = replay(trace, dataclasses.replace(tight, policy=FcfsSpec()), COST)
    assert lpm.hit_rate > fcfs.hit_rate
