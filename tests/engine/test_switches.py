"""Every optimisation as an object in YAML: without it other counters, and the same text.

Rule 8 for the whole stack, a switch at a time (test_same_text.py has their combinations): requests
sent together, then programs that fork and constrain. Where the way to a constrained text is what is
switched (jump, mask), the language holds, and how many texts agree is reported.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import sgjax as sgl
from sgjax.lang.spec import ForkSpec, ParallelFork, SequentialFork

FULL = {
    "model": "random:tiny", "dtype": "float32", "max_context_len": 256, "max_running": 4,
    "token_budget": 64, "kv_tokens": 480,  # of six families' stems four fit
}  # fmt: skip
NEW = 12
GREEDY = {"temperature": 0.0, "max_new_tokens": NEW, "ignore_eos": True}
STEMS = ["".join(chr(97 + (i * j + j) % 26) for i in range(96)) for j in (3, 5, 7, 9, 11, 15)]
PROMPTS = [f"{stem} {turn}{pair}?" for turn in (0, 1) for stem in STEMS for pair in (2, 3)]
VERDICT = r'\{"grade": "(Excellent|Above Average|Fair|Below Average)", "year": 20\d\d\}'


@sgl.function
def judge(s, essay):  # type: ignore[no-untyped-def]
    s += essay
    forks = s.fork(2)
    for side, f in enumerate(forks):
        f += f" side {side}:" + sgl.gen("view", max_tokens=NEW, ignore_eos=True)
    s += f" {forks[0]['view']}{forks[1]['view']} so:" + sgl.gen("verdict", regex=VERDICT)


@dataclass(frozen=True)
class Ran:
    """What an engine said, and its counters after the requests and after the programs."""

    texts: tuple[str, ...]
    views: tuple[str, ...]
    verdicts: tuple[str, ...]
    requests: dict[str, Any]
    programs: dict[str, Any]


def run(settings: dict[str, Any], fork: ForkSpec) -> Ran:
    """Serve the requests all at once, then the programs, one after the other."""
    with sgl.Engine(**{**FULL, **settings}, debug_checks=True) as engine:
        results = engine.generate(PROMPTS, GREEDY)
        requests = engine.get_server_info()
        assert engine.flush_cache()
        states = [
            judge.run(essay=essay, backend=engine, fork=fork, temperature=0)
            for essay in PROMPTS[:6:2]
        ]
        views = tuple(state.text().partition(" so:")[0] for state in states)
        verdicts = tuple(state["verdict"] for state in states)
        programs = engine.get_server_info()
    return Ran(tuple(r["text"] for r in results), views, verdicts, requests, programs)


@pytest.fixture(scope="module")
def full() -> Ran:
    ran = run({}, ParallelFork())
    assert ran.requests["evicted_tokens"] > 0
    assert ran.programs["forced_tokens"] > 0
    return ran


@dataclass(frozen=True)
class Switch:
    """An optimisation taken out.

    Attributes:
        changes: what must be true of the counters with and without it, whole requests or programs.
        settings, fork: what takes it out.
        steers: whether it is the way to a constrained text that it changes.
    """

    changes: Callable[[Ran, Ran], bool]
    settings: dict[str, Any] = field(default_factory=dict)
    fork: ForkSpec = field(default_factory=ParallelFork)
    steers: bool = False


def fewer_hits(full: Ran, without: Ran) -> bool:
    return without.requests["cached_tokens"] < full.requests["cached_tokens"]


def more_steps(full: Ran, without: Ran) -> bool:
    return without.requests["forward_passes"] > full.requests["forward_passes"]


SWITCHES = {
    "cache none": Switch(
        lambda full, without: (
            without.programs["cached_tokens"] == 0 < full.requests["cached_tokens"]
        ),
        {"cache": {"type": "none"}},
    ),
    "cache finished": Switch(fewer_hits, {"cache": {"type": "tree", "takes": "finished"}}),
    "cache samples": Switch(fewer_hits, {"cache": {"type": "samples"}}),
    "evicts leaves": Switch(
        lambda full, without: without.requests["evicted_tokens"] > full.requests["evicted_tokens"],
        {"cache": {"type": "tree", "evicts": "leaves"}},
    ),
    "cache table": Switch(fewer_hits, {"cache": {"type": "table"}}),
    "cache manual": Switch(
        lambda full, without: (
            without.requests["cached_tokens"] == 0 < without.programs["cached_tokens"]
        ),
        {"cache": {"type": "manual"}},
    ),
    "cache throttled": Switch(fewer_hits, {"cache": {"type": "throttled", "keep": 0.5}}),
    "policy fcfs": Switch(fewer_hits, {"policy": {"type": "fcfs"}}),
    "policy random": Switch(fewer_hits, {"policy": {"type": "random", "seed": 1}}),
    "siblings admit": Switch(fewer_hits, {"siblings": {"type": "admit"}}),
    "no hint": Switch(
        lambda full, without: without.programs["requests"] < full.programs["requests"],
        fork=ParallelFork(hint=False),
    ),
    "fork sequential": Switch(
        lambda full, without: (
            without.programs["forward_passes"] > full.programs["forward_passes"]
            and without.programs["mean_batch_size"] < full.programs["mean_batch_size"]
        ),
        fork=SequentialFork(),
    ),
    "chunk": Switch(more_steps, {"token_budget": 32}),
    "prompts first": Switch(
        more_steps, {"composition": {"type": "prompts_first", "decode_steps": 4}}
    ),
    "page size": Switch(
        lambda full, without: (
            fewer_hits(full, without) and without.requests["cached_tokens"] % 16 == 0
        ),
        {"page_size": 16},
    ),
    "grammar reuse": Switch(
        lambda full, without: (
            (full.programs["grammars"]["compiled"], without.programs["grammars"]["compiled"])
            == (1, len(full.verdicts))
        ),
        {"grammar": {"reuse": False}},
    ),
    "jump none": Switch(
        lambda full, without: (
            without.programs["forced_tokens"] == 0
            and without.programs["forward_passes"] > full.programs["forward_passes"]
        ),
        {"grammar": {"jump": {"type": "none"}}},
        steers=True,
    ),
    "jump retokenize": Switch(
        lambda full, without: without.programs["forced_tokens"] > 0,
        {"grammar": {"jump": {"type": "retokenize"}}},
        steers=True,
    ),
    "mask canonical": Switch(
        lambda full, without: without.programs["forced_tokens"] > 0,
        {"grammar": {"mask": {"type": "canonical"}}},
        steers=True,
    ),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_without_an_optimisation_counters_change_and_texts_do_not(
    full: Ran, name: str, record_property: Callable[[str, object], None]
) -> None:
    switch = SWITCHES[name]
    without = run(switch.settings, switch.fork)
    assert without.texts == full.texts
    assert without.views == full.views
    assert switch.changes(full, without), (full.requests, without.requests, without.programs)
    assert all(re.fullmatch(VERDICT, verdict) for verdict in without.verdicts)
    agreement = sum(a == b for a, b in zip(without.verdicts, full.verdicts, strict=True))
    record_property("agreeing_verdicts", f"{agreement} of {len(full.verdicts)}")
    assert switch.steers or without.verdicts == full.verdicts


def test_matching_all_who_wait_hits_more_of_what_they_share_and_changes_no_text(full: Ran) -> None:
    tight = {"kv_tokens": 400, "policy": {"type": "fcfs"}}
    settings = (
        {**tight, "admission": {"type": "pass_over", "matches_all": m}} for m in (True, False)
    )
    matching, without = (run(s, ParallelFork()) for s in settings)
    assert matching.texts == without.texts == full.texts
    assert fewer_hits(matching, without), (matching.requests, without.requests)


def test_passing_over_who_does_not_fit_saves_steps_and_changes_no_text() -> None:
    def served(admission: str) -> tuple[list[str], int]:
        with sgl.Engine(**{**FULL, "kv_tokens": 180}, admission={"type": admission}) as engine:
            long = {**GREEDY, "max_new_tokens": 3 * NEW}
            results = engine.generate([STEMS[0], STEMS[1], "Hi"], [GREEDY, GREEDY, long])
            return [r["text"] for r in results], engine.get_server_info()["forward_passes"]

    (texts, passes), (same_texts, fewer_passes) = served("in_order"), served("pass_over")
    assert same_texts == texts
    assert fewer_passes < passes - NEW // 2
