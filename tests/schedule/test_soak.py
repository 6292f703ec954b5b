"""Random requests, hints, aborts and steps: nothing hangs, nothing leaks, nobody is forgotten."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgjax.cache import (
    FifoSpec,
    LfuSpec,
    LruSpec,
    ManualSpec,
    NextUseSpec,
    NoCacheSpec,
    SamplesSpec,
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
    InOrderSpec,
    LpmSpec,
    MixedSpec,
    PassOverSpec,
    PromptsFirstSpec,
    RandomSpec,
    SharePlannedSpec,
    WorkingSetSpec,
)
from tests.schedule.harness import Setup
from tests.schedule.soak import soak

ALL_MATCHED = PassOverSpec(matches_all=True)
SETUPS = st.builds(
    Setup,
    policy=st.sampled_from(
        [
            FcfsSpec(),
            RandomSpec(),
            RandomSpec(anew=True),
            LpmSpec(),
            DfsWeightSpec(),
            AgedLpmSpec(max_wait_s=0.2),
        ]
    ),
    siblings=st.sampled_from([AdmitSpec(), DeferSpec(min_tokens=4), SharePlannedSpec()]),
    cache=st.sampled_from(
        [
            TreeSpec(),
            TreeSpec(takes="finished", evicts="leaves"),
            NoCacheSpec(),
            SamplesSpec(),
            TableSpec(),
            ManualSpec(),
            ThrottledSpec(keep=0.5),
        ]
    ),
    eviction=st.sampled_from(
        [LruSpec(), LfuSpec(), FifoSpec(), NextUseSpec(), NextUseSpec("lfu_ageing")]
    ),
    page_size=st.sampled_from([1, 2, 16]),
    pages=st.sampled_from([40, 90, 300]),
    max_running=st.sampled_from([1, 3, 8]),
    token_budget=st.sampled_from([16, 48, 256]),
    growth=st.sampled_from([0.0, 0.5, 1.0]),
    composition=st.sampled_from(
        [MixedSpec(), PromptsFirstSpec(1, max_padding=5), PromptsFirstSpec(4)]
    ),
    admission=st.sampled_from(
        [
            InOrderSpec(),
            PassOverSpec(joins_at_end=True),
            ALL_MATCHED,
            WorkingSetSpec(),
            WorkingSetSpec(keep=1.0),
        ]
    ),
).filter(  # These two exclude each other.
    lambda setup: (setup.siblings, setup.admission) != (SharePlannedSpec(), ALL_MATCHED)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SETUPS, st.integers(0, 2**32))
def test_any_history_ends_with_everyone_answered_and_every_page_back(setup, seed) -> None:
    soak(setup, seed, steps=120)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_history_under_pressure_leaks_nothing(seed: int) -> None:
    setup = Setup(LpmSpec(), DeferSpec(min_tokens=4), pages=120, max_running=6, growth=0.2)
    bench = soak(setup, seed, steps=2000)
    assert bench.pages.evicted_pages > 1000
