"""Workloads that replay arrivals, through the lab's own runner on a simulated engine."""

import json
import subprocess
import sys

import pytest
from rich.console import Console

import sgjax as sgl
from sgjax.errors import ConfigError, ProgramError
from sgjax.lab.config import parse_experiment
from sgjax.lab.runner import run_experiment
from sgjax.lab.workloads import DataSource, FamiliesWorkload, TraceWorkload
from sgjax.lab.workloads.families import Family
from sgjax.lab.workloads.replayed import best_eviction
from sgjax.lang.spec import LanguageSpec
from sgjax.sim.trace import Arrival
from sgjax.theory.bound import hit_rate_bound

SIM = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
TWO = {"a": Family(0.75, 100, 10, 4), "b": Family(0.25, 0, 20, 2)}


def records(finished):
    lines = (finished.directory / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_an_experiment_replays_families_in_virtual_time(tmp_path):
    experiment = parse_experiment(
        {
            "name": "zoo",
            "claim": "c",
            "base": {"executor": SIM, "page_size": 1},
            "variants": {"lpm": {"policy": {"type": "lpm"}}, "none": {"cache": {"type": "none"}}},
            "workloads": {
                "two": {
                    "type": "families",
                    "families": {
                        "a": {"share": 0.5, "prefix": 300, "own": 10, "output": 4},
                        "b": {"share": 0.5, "prefix": 300, "own": 10, "output": 4},
                    },
                    "num_requests": 30,
                    "rate_per_s": 2,
                }
            },
            "warmup": 0,
        },
        "test",
    )
    console = Console(quiet=True)
    finished = run_experiment([experiment], tmp_path, lambda s: sgl.Engine(**s), console)
    by_variant = {r["variant"]: r for r in records(finished)}
    lpm, none = by_variant["lpm"]["metrics"], by_variant["none"]["metrics"]
    assert by_variant["lpm"]["executor"] == "sim"
    assert none["cache_hit_rate"] == 0 < 0.9 < lpm["cache_hit_rate"] <= 0.97
    assert lpm["optimal_cache_hit_rate"] >= lpm["cache_hit_rate"]
    # About fifteen virtual seconds of arrivals, simulated in far less.
    assert 10 < 30 / lpm["throughput_programs_per_s"] < 30
    assert by_variant["lpm"]["wall_s"] < 5
    assert lpm["wait_p99_s"] <= lpm["worst_family_wait_p99_s"] <= none["worst_family_wait_p99_s"]
    assert 0.5 < lpm["fairness"] <= 1


def test_families_have_their_shares_prefixes_and_rate():
    task = FamiliesWorkload(TWO, num_requests=400, rate_per_s=20).load(DataSource(), seed=1)
    a = [x for x in task.arrivals if x.family == "a"]
    b = [x for x in task.arrivals if x.family == "b"]
    assert 0.68 < len(a) / 400 < 0.82
    assert len({tuple(x.tokens[:100]) for x in a}) == 1
    assert len({x.tokens[0] for x in b}) == len(b)
    assert {len(x.tokens) for x in a} == {110}
    assert 15 < task.arrivals[-1].time_s < 26
    assert FamiliesWorkload(TWO, 400, 20).load(DataSource(), seed=1) == task


def test_a_cycle_takes_turns_at_even_times():
    workload = FamiliesWorkload(TWO, 6, 2, arrivals="even", order="cycle")
    arrivals = workload.load(DataSource(), seed=0).arrivals
    assert [x.family for x in arrivals] == ["a", "b"] * 3
    assert [x.time_s for x in arrivals] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


def test_a_trace_is_read_from_the_users_folder_cut_and_sped_up(tmp_path):
    row = '{"timestamp": %d, "input_length": %d, "output_length": 5, "hash_ids": [%s]}\n'
    text = row % (0, 500, "1") + row % (1000, 1024, "1, 2") + row % (3000, 512, "3")
    (tmp_path / "t.jsonl").write_text(text)
    data = DataSource(str(tmp_path))
    task = TraceWorkload("t.jsonl", max_tokens=600, speed=2.0).load(data, seed=0)
    assert [a.time_s for a in task.arrivals] == [0.0, 1.5]
    assert TraceWorkload("t.jsonl", num_requests=1).load(data, seed=0).num_programs == 1
    with sgl.Engine(executor=SIM, page_size=512) as engine:
        ran = task.run(engine, LanguageSpec())
    assert [visit.prompt for visit in ran.prompts] == [(1,), (3,)]
    with pytest.raises(ConfigError, match="not found"):
        TraceWorkload("another.jsonl").load(data, seed=0)


def test_without_data_a_trace_of_the_published_ones_structure_is_made_up():
    chats = TraceWorkload("chats.jsonl", num_requests=2000).load(DataSource(), seed=1)
    prompts = [a.tokens.blocks for a in chats.arrivals]
    assert {p[0] for p in prompts} == {0}
    # Mooncake's conversations: 12,035 tokens on average, 39 % go on, 37 % could come from a cache.
    assert 8000 < sum(len(a.tokens) for a in chats.arrivals) / 2000 < 16000
    seen, going_on = set(), 0
    for prompt in prompts:
        going_on += prompt[:2] in seen
        seen |= {prompt[:n] for n in range(2, len(prompt) + 1)}
    assert 0.25 < going_on / 2000 < 0.45
    assert 0.2 < hit_rate_bound(prompts).optimal < 0.45
    assert TraceWorkload("other.jsonl", num_requests=9).load(DataSource(), seed=1) != chats.first(9)
    lengths = TraceWorkload("a.csv", form="azure", num_requests=500).load(DataSource(), seed=1)
    assert hit_rate_bound([a.tokens.blocks for a in lengths.arrivals]).optimal == 0
    assert 900 < sum(len(a.tokens) for a in lengths.arrivals) / 500 < 1500


def test_a_tiled_trace_is_served_copy_by_copy_and_bounded_like_one(tmp_path):
    row = '{"timestamp": %d, "input_length": %d, "output_length": 5, "hash_ids": [%s]}\n'
    rows = [row % (i * 500, 1025 + i, "1, 2, 3") for i in range(10)]
    (tmp_path / "t.jsonl").write_text("".join(rows))
    data = DataSource(str(tmp_path))
    one, three = (TraceWorkload("t.jsonl", tile=n).load(data, seed=0) for n in (1, 3))
    assert (three.num_programs, three.first(4).num_programs) == (30, 4)
    with sgl.Engine(executor=SIM, page_size=512) as engine:
        once = one.run(engine, LanguageSpec())
        before = engine.get_server_info()
        thrice = three.run(engine, LanguageSpec())
        after = engine.get_server_info()
    # The first copy finds what the run before left; the others have prefixes of their own.
    assert (
        after["cached_tokens"] - before["cached_tokens"] == 10 * 1024 + 2 * before["cached_tokens"]
    )
    assert len(thrice.outcomes) == 30
    assert thrice.prompts == once.prompts
    assert "belady_cache_hit_rate" not in thrice.metrics
    with pytest.raises(ConfigError, match="tile=2 is not allowed with form='azure'"):
        TraceWorkload("t.jsonl", form="azure", tile=2).load(data, seed=0)


@pytest.mark.parametrize("policy", ["fcfs", "lpm"])
@pytest.mark.parametrize("eviction", ["lru", "fifo"])
def test_no_run_hits_more_than_the_best_eviction_for_its_order(policy, eviction):
    families = {name: Family(1, 200, 20, 8) for name in "abcdef"}
    task = FamiliesWorkload(families, 120, rate_per_s=8).load(DataSource(), seed=0)
    with sgl.Engine(
        executor=SIM, kv_tokens=900, page_size=16, policy={"type": policy},
        eviction={"type": eviction},
    ) as engine:  # fmt: skip
        ran = task.run(engine, LanguageSpec())
        info = engine.get_server_info()
    assert 0.1 < info["cache_hit_rate"] <= ran.metrics["belady_cache_hit_rate"] < 0.91
    assert info["evicted_tokens"] > 0


def test_the_best_eviction_keeps_what_comes_next():
    a, b, c = ([family] * 40 for family in (1, 2, 3))
    arrivals = [Arrival(0.0, (*stem, end), 1) for end in (7, 8) for stem in (a, b, c)]
    # Room for two prompts of six pages: beside c stay a, which comes next, and one page of b.
    assert best_eviction(arrivals, page_size=8, num_pages=12) == 8 * (5 + 1 + 5) / (6 * 41)


def test_requests_that_do_not_fit_are_reported_and_not_dropped():
    huge = {"huge": Family(1.0, 0, 5000, 1)}
    task = FamiliesWorkload(huge, 2, 1).load(DataSource(), seed=0)
    with (
        sgl.Engine(executor=SIM) as engine,
        pytest.raises(ProgramError, match="2 requests of the trace do not fit"),
    ):
        task.run(engine, LanguageSpec())


def test_language_options_are_refused_where_no_program_runs():
    task = FamiliesWorkload(TWO, 2, 1).load(DataSource(), seed=0)
    with (
        sgl.Engine(executor=SIM) as engine,
        pytest.raises(ConfigError, match="drop 'language'"),
    ):
        task.run(engine, LanguageSpec(programs=1))


ALONE = """
import numpy as np
from sgjax.lab.workloads import replayed
# Each is larger than what malloc takes from memory that it has kept.
held = np.ones(200_000_000, np.uint8)
del held
before = replayed._forget_peak()
taken = np.ones(100_000_000, np.uint8)
assert taken.all()
print(replayed._memory("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a part of a process's peak")
def test_the_memory_taken_is_the_runs_own_and_not_of_work_before_it():
    # In a process of its own: what other tests left behind may be given back meanwhile.
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, timeout=60
    )
    assert 90e6 < float(done.stdout) < 150e6
