"""Random requests, hints, aborts and steps: nothing hangs, nothing leaks, nobody is forgotten."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgjax.cache import (
    FifoSpec,
    LfuSpec,
    LruSpec,
    ManualSpec,
    NoCacheSpec,
    TableSpec,
    ThrottledSpec,
    TreeSpec,
)
from sgjax.schedule.spec import (
    AdmitSpec,
    AgedLpmSpec,
    DeferSpec,
    DfsWeightSpec,
    FcfsSpec,
    LpmSpec,
    RandomSpec,
    SharePlannedSpec,
)
from sgjax.types import Wants
from tests.schedule.harness import Bench, Setup, ask, words

SETUPS = st.builds(
    Setup,
    policy=st.sampled_from(
        [FcfsSpec(), RandomSpec(), LpmSpec(), DfsWeightSpec(), AgedLpmSpec(max_wait_s=0.2)]
    ),
    siblings=st.sampled_from([AdmitSpec(), DeferSpec(min_tokens=4), SharePlannedSpec()]),
    cache=st.sampled_from(
        [TreeSpec(), NoCacheSpec(), TableSpec(), ManualSpec(), ThrottledSpec(keep=0.5)]
    ),
    eviction=st.sampled_from([LruSpec(), LfuSpec(), FifoSpec()]),
    page_size=st.sampled_from([1, 2, 16]),
    pages=st.sampled_from([40, 90, 300]),
    max_running=st.sampled_from([1, 3, 8]),
    token_budget=st.sampled_from([16, 48, 256]),
    growth=st.sampled_from([0.0, 0.5, 1.0]),
)


def soak(setup: Setup, seed: int, steps: int) -> Bench:
    """Drive a scheduler at random, then let it finish; verify that everybody heard back."""
    rng = random.Random(seed)
    bench = Bench(setup)
    longest = min(setup.max_context_len, setup.pages * setup.page_size) - 20
    stems = [words(rng, rng.randrange(1, max(2, longest // 2))) for _ in range(4)]
    asked: list[str] = []
    hints: list[str] = []

    def submit() -> None:
        name = str(len(asked))
        stem = rng.choice(stems)
        prompt = (stem[: rng.randrange(len(stem)) + 1] + words(rng, rng.randrange(1, 9)))[:longest]
        if rng.random() < 0.2:
            followers = rng.randrange(4)
            wants = rng.choice([Wants.NOTHING, Wants.LOGPROBS])
            start = 0 if wants is Wants.LOGPROBS else None
            bench.add(ask(name, prompt, wants=wants, followers=followers, logprob_start=start))
            asked.append(name)
            for _ in range(rng.randrange(followers + 1)):
                child = str(len(asked))
                bench.add(ask(child, prompt + words(rng, 2), 3, after=name))
                asked.append(child)
            hints.append(name)
            return
        bench.add(ask(name, prompt, rng.randrange(1, 12), stream=rng.random() < 0.3))
        asked.append(name)

    for _ in range(steps):
        action = rng.random()
        if action < 0.3:
            submit()
        elif action < 0.35 and asked:
            bench.scheduler.abort(rng.choice(asked))
        elif action < 0.4 and hints:
            bench.scheduler.release_hint(hints.pop())
        else:
            bench.step()
    for name in hints:
        bench.scheduler.release_hint(name)
    done = bench.run()
    assert set(done) == set(asked)
    for name, completion in done.items():
        text = "".join(d.text for d in bench.deltas[name])
        assert text == completion.text
    return bench


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SETUPS, st.integers(0, 2**32))
def test_any_history_ends_with_everyone_answered_and_every_page_back(setup, seed) -> None:
    soak(setup, seed, steps=120)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_history_under_pressure_leaks_nothing(seed: int) -> None:
    setup = Setup(LpmSpec(), DeferSpec(min_tokens=4), pages=120, max_running=6, growth=0.2)
    bench = soak(setup, seed, steps=2000)
    assert bench.pages.evicted_pages > 1000
